/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Random choices of tests whose ranks are processes: those that all make alike,
 * and those that each makes for itself. Seeded, so that a failure comes again.
 */
#ifndef DRAW_H
#define DRAW_H

#include <stdint.h>

static uint64_t common, own;	/* states of the generators */

static uint64_t mix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* The same in all processes; and this one's own */
static unsigned int any(unsigned int below)
{
	return (unsigned int)(mix(&common) % below);
}

static unsigned int mine(unsigned int below)
{
	return (unsigned int)(mix(&own) % below);
}

#endif /* DRAW_H */
