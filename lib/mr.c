// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Memory regions: register, deregister, find the one that holds an operand.
 *
 * Handles live until the card is closed and are used again, so that a group's
 * hint may be followed without a lock: a use is counted first, which pins the
 * handle's contents, and then the contents are compared. A handle whose count
 * is MR_DYING has no region.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define CHUNK	64

struct mr_chunk {
	struct mr_chunk *next;
	struct optinc_mr mrs[CHUNK];
};

struct mr_entry {
	uintptr_t addr;
	uintptr_t end;
	uintptr_t furthest;	/* largest end of this entry and all before it */
	struct optinc_mr *mr;
};

static bool try_get(struct optinc_mr *mr)
{
	int uses = __atomic_load_n(&mr->uses, __ATOMIC_RELAXED);

	do {
		if (uses == MR_DYING)
			return false;
	} while (!__atomic_compare_exchange_n(&mr->uses, &uses, uses + 1, true,
					      __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
	return true;
}

void mr_put(struct optinc_mr *mr)
{
	__atomic_fetch_sub(&mr->uses, 1, __ATOMIC_RELEASE);
}

static bool holds(const struct optinc_mr *mr, uintptr_t addr, size_t length, bool write)
{
	return addr >= mr->addr && length <= mr->length && addr - mr->addr <= mr->length - length &&
	       (!write || (mr->flags & OPTINC_MR_WRITE));
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
static struct optinc_mr *find(const struct mr_table *t, uintptr_t addr, size_t length,
			      bool write)
{
	size_t i = upper_bound(t, addr);

	while (i-- && t->entries[i].furthest >= addr + length) {
		struct optinc_mr *mr = t->entries[i].mr;

		if (t->entries[i].end >= addr + length && try_get(mr)) {
			if (holds(mr, addr, length, write))
				return mr;
			mr_put(mr);
		}
	}
	return NULL;
}

struct optinc_mr *mr_get(struct optinc_card *card, struct mr_hint *hint, const void *ptr,
			 size_t length, bool write)
{
	uintptr_t addr = (uintptr_t)ptr;
	struct optinc_mr *mr;

	if (likely(hint->mr && addr - hint->addr < hint->length && try_get(hint->mr))) {
		if (likely(holds(hint->mr, addr, length, write)))
			return hint->mr;
		mr_put(hint->mr);
	}

	pthread_mutex_lock(&card->lock);
	mr = find(&card->mrs, addr, length, write);
	pthread_mutex_unlock(&card->lock);
	if (mr) {
		hint->mr = mr;
		hint->addr = mr->addr;
		hint->length = mr->length;
	}
	return mr;
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

static int insert(struct mr_table *t, struct optinc_mr *mr)
{
	size_t at;

	if (t->count == t->room) {
		size_t room = t->room ? 2 * t->room : 16;
		struct mr_entry *entries = realloc(t->entries, room * sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		t->entries = entries;
		t->room = room;
	}
	at = upper_bound(t, mr->addr);
	memmove(&t->entries[at + 1], &t->entries[at], (t->count - at) * sizeof(*t->entries));
	t->entries[at].addr = mr->addr;
	t->entries[at].end = mr->addr + mr->length;
	t->entries[at].mr = mr;
	t->count++;
	update_furthest(t, at);
	return 0;
}

static void take_out(struct mr_table *t, const struct optinc_mr *mr)
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

static struct optinc_mr *handle_new(struct optinc_card *card)
{
	struct mr_table *t = &card->mrs;
	struct optinc_mr *mr;
	unsigned int i;

	if (!t->unused) {
		struct mr_chunk *chunk = calloc(1, sizeof(*chunk));

		if (!chunk)
			return NULL;
		chunk->next = t->chunks;
		t->chunks = chunk;
		for (i = 0; i < CHUNK; i++) {
			chunk->mrs[i].card = card;
			chunk->mrs[i].uses = MR_DYING;
			chunk->mrs[i].next_unused = t->unused;
			t->unused = &chunk->mrs[i];
		}
	}
	mr = t->unused;
	t->unused = mr->next_unused;
	return mr;
}

static void handle_free(struct mr_table *t, struct optinc_mr *mr)
{
	mr->next_unused = t->unused;
	t->unused = mr;
}

int mr_register_raw(struct optinc_card *card, const void *addr, size_t length,
		    unsigned int flags, uint32_t *handle)
{
	struct optinc_mr_reg reg = {
		.size = sizeof(reg),
		.flags = flags,
		.addr = (uintptr_t)addr,
		.length = length,
		.fd = -1,
	};
	int ret;

	if (card->query.max_mr_bytes && length > card->query.max_mr_bytes)
		return fail(-EINVAL, "%zu bytes do not fit into one memory region: the card "
			    "takes %llu", length,
			    (unsigned long long)card->query.max_mr_bytes);
	ret = card_ioctl(card, OPTINC_IOCTL_MR_REG, &reg);
	switch (ret) {
	case 0:
		break;
	case -EFAULT:
		return fail(ret, "[%p, +%zu) is not mapped%s", addr, length,
			    flags & OPTINC_MR_WRITE ? " writable" : "");
	case -ENOMEM:
		return fail(ret, "%zu bytes cannot be pinned: raise RLIMIT_MEMLOCK "
			    "(\"ulimit -l\")", length);
	case -ENOSPC:
		return fail(ret, "the card has room for no more than %u regions of one user",
			    card->query.max_mrs);
	default:
		return fail(ret, "memory cannot be registered: %s", strerror(-ret));
	}
	if (!reg.mr)
		return fail(-EIO, "the card gave a region no handle");
	*handle = reg.mr;
	return 0;
}

int mr_deregister_raw(struct optinc_card *card, uint32_t handle)
{
	struct optinc_mr_dereg dereg = { .size = sizeof(dereg), .mr = handle };

	return card_ioctl(card, OPTINC_IOCTL_MR_DEREG, &dereg);
}

static int publish(struct optinc_card *card, const struct optinc_mr_reg *reg,
		   struct optinc_mr **out)
{
	struct optinc_mr *mr;
	int ret = -ENOMEM;

	pthread_mutex_lock(&card->lock);
	mr = handle_new(card);
	if (mr) {
		mr->addr = (uintptr_t)reg->addr;
		mr->length = (size_t)reg->length;
		mr->flags = reg->flags;
		mr->handle = reg->mr;
		ret = insert(&card->mrs, mr);
		if (ret)
			handle_free(&card->mrs, mr);
		else
			__atomic_store_n(&mr->uses, 0, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&card->lock);
	*out = mr;
	return ret;
}

OPTINC_EXPORT int optinc_mr_register(struct optinc_card *card, void *addr, size_t length,
				     unsigned int flags, struct optinc_mr **mr)
{
	struct optinc_mr_reg reg = { .flags = flags, .addr = (uintptr_t)addr, .length = length };
	int ret;

	if (!card || !mr)
		return fail(-EINVAL, "%s: NULL", card ? "mr" : "card");
	*mr = NULL;
	if (!addr || !length || (uintptr_t)addr + length < (uintptr_t)addr)
		return fail(-EINVAL, "length: [%p, +%zu) is no memory", addr, length);
	if (flags & ~(unsigned int)OPTINC_MR_WRITE)
		return fail(-EOPNOTSUPP, "flags: only OPTINC_MR_WRITE is possible here, not 0x%x",
			    flags);

	ret = mr_register_raw(card, addr, length, flags, &reg.mr);
	if (ret)
		return ret;
	ret = publish(card, &reg, mr);
	if (ret) {
		*mr = NULL;
		mr_deregister_raw(card, reg.mr);
		return fail(ret, "out of memory");
	}
	return 0;
}

OPTINC_EXPORT int optinc_mr_deregister(struct optinc_mr *mr)
{
	struct optinc_card *card;
	int uses = 0;
	int ret;

	if (!mr)
		return fail(-EINVAL, "mr: NULL");
	card = mr->card;
	if (!__atomic_compare_exchange_n(&mr->uses, &uses, MR_DYING, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_RELAXED)) {
		if (uses == MR_DYING)
			return fail(-EINVAL, "mr: not registered");
		return fail(-EBUSY, "mr: %d operands of requests are in this region; wait for "
			    "the requests first", uses);
	}

	/* A card that is gone does no more DMA either. */
	ret = mr_deregister_raw(card, mr->handle);
	if (ret && ret != -ENODEV) {
		__atomic_store_n(&mr->uses, 0, __ATOMIC_RELEASE);
		return fail(ret, "the region cannot be deregistered: %s", strerror(-ret));
	}
	pthread_mutex_lock(&card->lock);
	take_out(&card->mrs, mr);
	handle_free(&card->mrs, mr);
	pthread_mutex_unlock(&card->lock);
	return 0;
}

/* Groups are gone already, so nothing is in use. */
void mr_table_free(struct optinc_card *card)
{
	struct mr_table *t = &card->mrs;
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
