/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The library is built with -fvisibility=hidden; what the public header
 * declares is marked with this where it is defined.
 */
#ifndef OPTINC_EXPORT_H
#define OPTINC_EXPORT_H

#define OPTINC_EXPORT __attribute__((visibility("default")))

#endif /* OPTINC_EXPORT_H */
