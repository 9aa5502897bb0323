// SPDX-License-Identifier: LGPL-2.1-or-later
#include "internal.h"

#define STRING(x)	#x
#define DOTTED(a, b, c)	STRING(a) "." STRING(b) "." STRING(c)

OPTINC_EXPORT unsigned int optinc_version(void)
{
	return OPTINC_VERSION;
}

OPTINC_EXPORT const char *optinc_version_string(void)
{
	return DOTTED(OPTINC_VERSION_MAJOR, OPTINC_VERSION_MINOR, OPTINC_VERSION_PATCH);
}
