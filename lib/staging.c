// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Staging: registered memory of a group, through which small operands travel
 * that the caller has not registered. Copying 64 KiB costs less than pinning
 * its pages. Made at the first need.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#define UNIT		512U
#define UNITS		2048U	/* 1 MiB: stays within a modest RLIMIT_MEMLOCK */

static void set_up(struct optinc_card *card, struct staging *s)
{
	uint8_t *base;

	s->broken = true;
	s->used = calloc(UNITS, 1);
	if (!s->used)
		return;
	base = mmap(NULL, (size_t)UNIT * UNITS, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return;
	if (mr_register_raw(card, base, (size_t)UNIT * UNITS, OPTINC_MR_WRITE, &s->handle)) {
		munmap(base, (size_t)UNIT * UNITS);
		return;
	}
	s->base = base;
	s->broken = false;
}

/* First free run at or after where the last one was given back, then from 0. */
static int find(const struct staging *s, unsigned int units)
{
	unsigned int at = s->next;
	bool wrapped = false;
	const uint8_t *hit;

	for (;;) {
		if (at + units > UNITS) {
			if (wrapped)
				return -1;
			wrapped = true;
			at = 0;
			continue;
		}
		hit = memrchr(s->used + at, 1, units);
		if (!hit)
			return (int)at;
		at = (unsigned int)(hit - s->used) + 1;
	}
}

static unsigned int units_of(size_t length)
{
	return (unsigned int)((length + UNIT - 1) / UNIT);
}

void *staging_get(struct optinc_card *card, struct staging *s, size_t length)
{
	unsigned int units = units_of(length);
	int at;

	if (unlikely(!s->base)) {
		if (!s->broken)
			set_up(card, s);
		if (s->broken)
			return NULL;
	}
	at = find(s, units);
	if (at < 0)
		return NULL;
	memset(s->used + at, 1, units);
	s->next = (unsigned int)at + units;
	return s->base + (size_t)at * UNIT;
}

/* What was used last is still in the cache: start there. */
void staging_put(struct staging *s, void *addr, size_t length)
{
	unsigned int at = (unsigned int)(((uint8_t *)addr - s->base) / UNIT);

	memset(s->used + at, 0, units_of(length));
	s->next = at;
}

void staging_free(struct optinc_card *card, struct staging *s)
{
	if (s->base) {
		mr_deregister_raw(card, s->handle);
		munmap(s->base, (size_t)UNIT * UNITS);
	}
	free(s->used);
	memset(s, 0, sizeof(*s));
}
