// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The registration cache: regions of callers' buffers that nobody registered,
 * kept after the request that made them, because the next one will probably
 * use the same buffers.
 *
 * A caller frees such a buffer without telling anybody. The driver tells
 * (OPTINC_MR_CACHE): it marks a region in the context page before the system
 * call returns that took or replaced its memory. So each use looks at the
 * region's mark, which costs one load, and a region that has it is never used
 * again. What is marked is deregistered at the next submission after the last
 * request that uses it: until then its pages stay pinned.
 *
 * The cache is a guest: it gives way to whoever is refused memory or a region,
 * and where it cannot have a region, requests go the way they go without it.
 * It does not report errors.
 *
 * Below CACHE_MIN a copy is cheaper than a region. On an emulated card, whose
 * registration pins nothing and costs 2.8 us, the two copies of an operand of
 * 16 KiB cost 0.5 us of the 4.4 us that the request takes, those of 32 KiB 1.5 us
 * of 8.3 us, those of 64 KiB 3.2 us of 16 us: registering pays at the sixth, the
 * second, the first use. A driver pins pages and asks a card, and takes longer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

#define MOST_REGIONS	1024U
#define BACKOFF		64U	/* misses without a try after one that failed */

/* All caches of the process: what it may pin is one account. */
static struct {
	pthread_mutex_t lock;	/* outside of a cache's own */
	struct mr_cache *first;
} caches = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ------------------------------------------------------------ end regions */

/* Out of the table, by a caller who has made it MR_DYING. Locked. */
static void take_out(struct mr_cache *cache, struct optinc_mr *mr, struct optinc_mr **list)
{
	mr_table_remove(&cache->table, mr);
	mr->next_unused = *list;
	*list = mr;
}

/*
 * Not locked. One that the card does not give up is forgotten all the same:
 * no request names it, and closing the card ends it.
 */
static void end_regions(struct mr_cache *cache, struct optinc_mr *list)
{
	struct optinc_mr *mr;
	size_t bytes = 0;

	if (likely(!list))
		return;
	for (mr = list; mr; mr = mr->next_unused) {
		mr_deregister_raw(mr->card, mr->handle);
		bytes += mr->length;
	}
	pthread_mutex_lock(&cache->lock);
	cache->bytes -= bytes;
	while ((mr = list)) {
		list = mr->next_unused;
		cache->regions--;
		mr_table_recycle(&cache->table, mr);
	}
	pthread_mutex_unlock(&cache->lock);
}

/* The region that was used least recently of those that no request uses. Locked. */
static struct optinc_mr *oldest(struct mr_cache *cache)
{
	struct optinc_mr *mr, *best = NULL;
	size_t i;

	for (i = 0; i < cache->table.count; i++) {
		mr = cache->table.entries[i].mr;
		if (!__atomic_load_n(&mr->uses, __ATOMIC_RELAXED) &&
		    (!best || __atomic_load_n(&mr->used, __ATOMIC_RELAXED) <
		     __atomic_load_n(&best->used, __ATOMIC_RELAXED)))
			best = mr;
	}
	return best;
}

/* Regions of at least @bytes, if there are that many; how many it were. Locked. */
static size_t evict(struct mr_cache *cache, size_t bytes, struct optinc_mr **list)
{
	struct optinc_mr *mr;
	size_t taken = 0;
	int uses;

	while (taken < bytes && (mr = oldest(cache))) {
		if (!mr_try_end(mr, &uses))
			continue;
		taken += mr->length;
		take_out(cache, mr, list);
		cache->evictions++;
	}
	return taken;
}

static size_t shrink(struct mr_cache *cache, size_t bytes)
{
	struct optinc_mr *list = NULL;
	size_t taken;

	pthread_mutex_lock(&cache->lock);
	taken = evict(cache, bytes, &list);
	pthread_mutex_unlock(&cache->lock);
	end_regions(cache, list);
	return taken;
}

bool mr_cache_shrink(struct optinc_card *card, int error, size_t bytes)
{
	size_t taken = 0;
	struct mr_cache *cache;

	if (error == -ENOSPC)
		return shrink(&card->cache, 1);
	/* A cache that is on the list does not go, nor does its card. */
	pthread_mutex_lock(&caches.lock);
	for (cache = caches.first; cache && taken < bytes; cache = cache->next)
		taken += shrink(cache, bytes - taken);
	pthread_mutex_unlock(&caches.lock);
	return taken;
}

void mr_cache_sweep(struct optinc_card *card)
{
	struct mr_cache *cache = &card->cache;
	struct optinc_mr *mr, *list = NULL;
	uint64_t generation;
	bool left = false;
	int uses;
	size_t i;

	/* Before the marks: one that comes later comes with another generation. */
	generation = __atomic_load_n(&cache->page->mr_generation, __ATOMIC_ACQUIRE);
	pthread_mutex_lock(&cache->lock);
	for (i = cache->table.count; i--;) {
		mr = cache->table.entries[i].mr;
		if (!mr_is_stale(mr))
			continue;
		if (mr_try_end(mr, &uses)) {
			take_out(cache, mr, &list);
			cache->flushes++;
		} else {
			left = true;
		}
	}
	/* One that is in use is looked at again: no generation equals this. */
	__atomic_store_n(&cache->swept, generation - left, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&cache->lock);
	end_regions(cache, list);
}

/* ----------------------------------------------------------- make regions */

/* Room for one more of @bytes; false if there is none to be had. */
static bool reserve(struct mr_cache *cache, size_t bytes)
{
	struct optinc_mr *list = NULL;
	size_t limit = (size_t)__atomic_load_n(&cache->limit, __ATOMIC_RELAXED);
	bool fits;

	pthread_mutex_lock(&cache->lock);
	cache->misses++;
	__atomic_store_n(&cache->clock, cache->clock + 1, __ATOMIC_RELAXED);
	fits = bytes <= limit && !cache->backoff;
	if (cache->backoff)
		cache->backoff--;
	if (fits && cache->bytes + bytes > limit)
		fits = cache->bytes - evict(cache, cache->bytes + bytes - limit, &list) + bytes <=
		       limit;
	else if (fits && cache->regions >= cache->most)
		fits = evict(cache, 1, &list);
	if (fits) {
		cache->bytes += bytes;
		cache->regions++;
	}
	pthread_mutex_unlock(&cache->lock);
	end_regions(cache, list);
	return fits;
}

static void unreserve(struct mr_cache *cache, size_t bytes, bool backoff)
{
	pthread_mutex_lock(&cache->lock);
	cache->bytes -= bytes;
	cache->regions--;
	if (backoff)
		cache->backoff = BACKOFF;
	pthread_mutex_unlock(&cache->lock);
}

/* Is most of @other in @mr, and all that it allows? */
static bool superseded(const struct optinc_mr *other, const struct optinc_mr *mr)
{
	uintptr_t from = mr->addr > other->addr ? mr->addr : other->addr;
	uintptr_t mr_end = mr->addr + mr->length, end = other->addr + other->length;

	if (mr_end < end)
		end = mr_end;
	return other != mr && from < end && end - from > other->length / 2 &&
	       !(other->flags & ~mr->flags & OPTINC_MR_WRITE);
}

/*
 * Buffers that an allocator puts now here, now there must not pile up: their
 * pages would be pinned, and paid for, many times. Slices of one buffer share
 * no more than a page each. Locked.
 */
static void take_superseded(struct mr_cache *cache, const struct optinc_mr *mr,
			    struct optinc_mr **list)
{
	struct mr_table *t = &cache->table;
	struct optinc_mr *other;
	int uses;
	size_t i;

	for (i = t->count; i--;) {
		other = t->entries[i].mr;
		if (superseded(other, mr) && mr_try_end(other, &uses))
			take_out(cache, other, list);
	}
}

/* Whole pages, which cost no more, and hold what lies beside. */
static struct optinc_mr *fill(struct optinc_card *card, uintptr_t addr, size_t length, bool write)
{
	struct mr_cache *cache = &card->cache;
	uintptr_t mask = card->query.page_size - 1;
	struct optinc_mr_reg reg = { .flags = OPTINC_MR_CACHE };
	struct optinc_mr *mr, *list = NULL;
	size_t bytes;
	int ret;

	reg.addr = addr & ~mask;
	bytes = ((addr + length + mask) & ~mask) - (uintptr_t)reg.addr;
	if (bytes < length || (card->query.max_mr_bytes && bytes > card->query.max_mr_bytes) ||
	    !reserve(cache, bytes))
		return NULL;
	reg.length = bytes;
	if (write)
		reg.flags |= OPTINC_MR_WRITE;
	ret = mr_reg(card, &reg);
	if (ret || !reg.mr || reg.slot >= OPTINC_CONTEXT_SLOTS) {
		unreserve(cache, bytes, ret != -EINTR);
		return NULL;
	}

	pthread_mutex_lock(&cache->lock);
	mr = mr_table_add(&cache->table, card, &reg, 1);
	if (mr) {
		__atomic_store_n(&mr->used, cache->clock, __ATOMIC_RELAXED);
		take_superseded(cache, mr, &list);
	}
	pthread_mutex_unlock(&cache->lock);
	end_regions(cache, list);
	if (!mr) {
		mr_deregister_raw(card, reg.mr);
		unreserve(cache, bytes, true);
	} else if (unlikely(mr_is_stale(mr))) {
		/* It changed while it was being registered: whose pages these are is not known. */
		mr_put(mr);
		mr = NULL;
	}
	return mr;
}

void mr_cache_count_hit(struct optinc_mr *mr)
{
	struct mr_cache *cache = &mr->card->cache;

	__atomic_store_n(&mr->used, __atomic_load_n(&cache->clock, __ATOMIC_RELAXED),
			 __ATOMIC_RELAXED);
	__atomic_fetch_add(&cache->hits, 1, __ATOMIC_RELAXED);
}

struct optinc_mr *mr_cache_get(struct optinc_card *card, uintptr_t addr, size_t length, bool write)
{
	struct mr_cache *cache = &card->cache;
	struct optinc_mr *mr;

	if (!cache->page || !__atomic_load_n(&cache->limit, __ATOMIC_RELAXED))
		return NULL;
	pthread_mutex_lock(&cache->lock);
	mr = mr_table_find(&cache->table, addr, length, write);
	pthread_mutex_unlock(&cache->lock);
	if (!mr)
		return fill(card, addr, length, write);
	mr_cache_count_hit(mr);
	return mr;
}

/* ---------------------------------------------------------------- set up */

static bool may_pin_without_limit(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	return !syscall(SYS_capget, &header, data) &&
	       data[0].effective >> CAP_IPC_LOCK & 1;
}

/* A quarter of the machine's memory; of what may be pinned, a half is left to others. */
static long default_limit(void)
{
	long page = sysconf(_SC_PAGESIZE), pages = sysconf(_SC_PHYS_PAGES);
	long limit = page > 0 && pages > 0 ? pages / 4 * page : 0;
	struct rlimit memlock;

	if (!getrlimit(RLIMIT_MEMLOCK, &memlock) && memlock.rlim_cur != RLIM_INFINITY &&
	    memlock.rlim_cur / 2 < (rlim_t)limit && !may_pin_without_limit())
		limit = (long)(memlock.rlim_cur / 2);
	return limit;
}

void mr_cache_init(struct optinc_card *card)
{
	struct mr_cache *cache = &card->cache;
	void *page = MAP_FAILED;

	pthread_mutex_init(&cache->lock, NULL);
	if (card->query.features & OPTINC_FEAT_MR_CACHE)
		page = card->provider->mmap(card->dev, sizeof(*cache->page), PROT_READ,
					    card->query.context_offset);
	if (page == MAP_FAILED)
		return;
	cache->page = page;
	cache->most = card->query.max_mrs / 2;
	if (cache->most > MOST_REGIONS)
		cache->most = MOST_REGIONS;
	cache->limit = env_long("OPTINC_MR_CACHE", 0, LONG_MAX, default_limit());
	pthread_mutex_lock(&caches.lock);
	cache->next = caches.first;
	caches.first = cache;
	pthread_mutex_unlock(&caches.lock);
}

int mr_cache_set_limit(struct optinc_card *card, long limit)
{
	struct mr_cache *cache = &card->cache;
	size_t bytes;

	if (!cache->page)
		return limit ? -EOPNOTSUPP : 0;
	__atomic_store_n(&cache->limit, limit, __ATOMIC_RELAXED);
	pthread_mutex_lock(&cache->lock);
	bytes = cache->bytes;
	pthread_mutex_unlock(&cache->lock);
	if (bytes > (size_t)limit)
		shrink(cache, bytes - (size_t)limit);
	return 0;
}

void mr_cache_stats(struct optinc_card *card, struct optinc_card_stats *stats)
{
	struct mr_cache *cache = &card->cache;

	pthread_mutex_lock(&cache->lock);
	stats->mr_hits = __atomic_load_n(&cache->hits, __ATOMIC_RELAXED);
	stats->mr_misses = cache->misses;
	stats->mr_flushes = cache->flushes;
	stats->mr_evictions = cache->evictions;
	stats->mr_bytes = cache->bytes;
	pthread_mutex_unlock(&cache->lock);
}

/* Groups are gone already, so nothing is in use. */
void mr_cache_free(struct optinc_card *card)
{
	struct mr_cache *cache = &card->cache, **at;

	pthread_mutex_lock(&caches.lock);
	for (at = &caches.first; *at && *at != cache; at = &(*at)->next)
		;
	if (*at)
		*at = cache->next;
	pthread_mutex_unlock(&caches.lock);
	mr_table_free(&cache->table, card);
	if (cache->page)
		card->provider->munmap(card->dev, (void *)(uintptr_t)cache->page,
				       sizeof(*cache->page));
	pthread_mutex_destroy(&cache->lock);
}
