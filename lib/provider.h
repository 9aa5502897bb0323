/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The seam between liboptinc and what carries its requests.
 *
 * A provider offers what a device node offers. lib/provider_kernel.c has the
 * node itself; liboptinc-emu.so brings the emulated card, and is loaded when a
 * URI says "emu:". Above this seam nothing knows which of them it has.
 */
#ifndef OPTINC_PROVIDER_H
#define OPTINC_PROVIDER_H

#include <stddef.h>
#include <stdint.h>

#include <linux/optinc.h>

#define OPTINC_PROVIDER_ABI	2
#define OPTINC_PROVIDER_SYMBOL	"optinc_provider"

/* What a provider's open() may say beyond its errno. */
struct optinc_open_error {
	int reason;		/* enum optinc_reason */
	char text[256];		/* a sentence, with what to do */
};

/**
 * struct optinc_provider - one kind of device
 * @abi: OPTINC_PROVIDER_ABI, checked before anything else is used
 * @scheme: what the URI begins with, without the colon
 * @open: @rest is the URI behind the colon; on failure fills @error
 * @ioctl: one of OPTINC_IOCTL_* and its struct; 0 or negative errno
 * @mmap: map what a query or a queue pair's creation gave the offset of, with
 *	PROT_READ or PROT_READ | PROT_WRITE; MAP_FAILED and errno as mmap(2)
 * @munmap: undo that
 * @doorbell: store @value at byte @offset of the doorbell page, ordered after
 *	all earlier stores to the rings
 * @relax: called between two looks at a completion queue. A pause for
 *	hardware; an emulated card does its work here.
 * @wait: sleep until queue pair @qp's completion tail differs from @cq_index,
 *	or @timeout_ns has passed; may wake early. 0 or negative errno.
 * @close: ends the context: mappings, regions, queue pairs and groups go
 */
struct optinc_provider {
	uint32_t abi;
	const char *scheme;
	int (*open)(const char *rest, void **dev, struct optinc_open_error *error);
	int (*ioctl)(void *dev, unsigned long cmd, void *arg);
	void *(*mmap)(void *dev, size_t length, int prot, uint64_t offset);
	int (*munmap)(void *dev, void *addr, size_t length);
	void (*doorbell)(void *dev, void *page, uint32_t offset, uint32_t value);
	void (*relax)(void *dev);
	int (*wait)(void *dev, void *page, uint32_t qp, uint16_t cq_index,
		    int eventfd, uint64_t timeout_ns);
	void (*close)(void *dev);
};

#endif /* OPTINC_PROVIDER_H */
