// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Tables of memory regions by address: those that callers registered (mr.c),
 * and those that the library keeps (mr_cache.c).
 *
 * Handles live until the card is closed and are used again, so that a group's
 * hint may be followed without a lock: a use is counted first, which pins the
 * handle's contents, and then the contents are compared. A handle whose count
 * is MR_DYING has no region. The table itself wants its owner's lock.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define CHUNK	64

struct mr_chunk {
	struct mr_chunk *next;
	struct optinc_mr mrs[CHUNK];
};

bool mr_try_get(struct optinc_mr *mr)
{
	int uses = __atomic_load_n(&mr->uses, __ATOMIC_RELAXED);

	do {
		if (uses == MR_DYING)
			return false;
	} while (!__atomic_compare_exchange_n(&mr->uses, &uses, uses + 1, true,
					      __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
	return true;
}

bool mr_try_end(struct optinc_mr *mr, int *uses)
{
	*uses = 0;
	return __atomic_compare_exchange_n(&mr->uses, uses, MR_DYING, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

void mr_put(struct optinc_mr *mr)
{
	__atomic_fetch_sub(&mr->uses, 1, __ATOMIC_RELEASE);
}

/* The number of entries that begin at or before @addr. */
static size_t upper_bound(const struct mr_table *t, uintptr_t addr)
{
	size_t low = 0, high = t->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (t->entries[middle].addr <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Regions may overlap: go back until no earlier one reaches far enough. */
struct optinc_mr *mr_table_find(const struct mr_table *t, uintptr_t addr, size_t length,
				bool write)
{
	size_t i = upper_bound(t, addr);

	while (i-- && t->entries[i].furthest >= addr + length) {
		struct optinc_mr *mr = t->entries[i].mr;

		if (t->entries[i].end >= addr + length && mr_try_get(mr)) {
			if (mr_holds(mr, addr, length, write) && !mr_is_stale(mr))
				return mr;
			mr_put(mr);
		}
	}
	return NULL;
}

static void update_furthest(struct mr_table *t, size_t from)
{
	uintptr_t furthest = from ? t->entries[from - 1].furthest : 0;

	for (; from < t->count; from++) {
		if (t->entries[from].end > furthest)
			furthest = t->entries[from].end;
		t->entries[from].furthest = furthest;
	}
}

static bool make_room(struct mr_table *t)
{
	size_t room = t->room ? 2 * t->room : 16;
	struct mr_entry *entries;

	if (t->count < t->room)
		return true;
	entries = realloc(t->entries, room * sizeof(*entries));
	if (!entries)
		return false;
	t->entries = entries;
	t->room = room;
	return true;
}

static bool make_handles(struct mr_table *t, struct optinc_card *card)
{
	struct mr_chunk *chunk;
	unsigned int i;

	if (t->unused)
		return true;
	chunk = calloc(1, sizeof(*chunk));
	if (!chunk)
		return false;
	chunk->next = t->chunks;
	t->chunks = chunk;
	for (i = 0; i < CHUNK; i++) {
		chunk->mrs[i].card = card;
		chunk->mrs[i].uses = MR_DYING;
		mr_table_recycle(t, &chunk->mrs[i]);
	}
	return true;
}

struct optinc_mr *mr_table_add(struct mr_table *t, struct optinc_card *card,
			       const struct optinc_mr_reg *reg, int uses)
{
	struct optinc_mr *mr;
	size_t at;

	if (!make_room(t) || !make_handles(t, card))
		return NULL;
	mr = t->unused;
	t->unused = mr->next_unused;
	mr->addr = (uintptr_t)reg->addr;
	mr->length = (size_t)reg->length;
	mr->flags = reg->flags;
	mr->handle = reg->mr;
	mr->slot = reg->slot;

	at = upper_bound(t, mr->addr);
	memmove(&t->entries[at + 1], &t->entries[at], (t->count - at) * sizeof(*t->entries));
	t->entries[at].addr = mr->addr;
	t->entries[at].end = mr->addr + mr->length;
	t->entries[at].mr = mr;
	t->count++;
	update_furthest(t, at);
	__atomic_store_n(&mr->uses, uses, __ATOMIC_RELEASE);
	return mr;
}

void mr_table_remove(struct mr_table *t, const struct optinc_mr *mr)
{
	size_t at = upper_bound(t, mr->addr);

	while (at-- && t->entries[at].mr != mr)
		;
	if (at >= t->count)
		return;
	t->count--;
	memmove(&t->entries[at], &t->entries[at + 1], (t->count - at) * sizeof(*t->entries));
	update_furthest(t, at);
}

void mr_table_recycle(struct mr_table *t, struct optinc_mr *mr)
{
	mr->next_unused = t->unused;
	t->unused = mr;
}

/* Groups are gone already, so nothing is in use. */
void mr_table_free(struct mr_table *t, struct optinc_card *card)
{
	struct mr_chunk *chunk;
	size_t i;

	for (i = 0; i < t->count; i++)
		mr_deregister_raw(card, t->entries[i].mr->handle);
	free(t->entries);
	while ((chunk = t->chunks)) {
		t->chunks = chunk->next;
		free(chunk);
	}
	memset(t, 0, sizeof(*t));
}
