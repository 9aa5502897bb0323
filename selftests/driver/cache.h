/* SPDX-License-Identifier: GPL-2.0-only */
/* The context page, and memory that comes and goes: for tests of OPTINC_MR_CACHE */
#ifndef OPTINC_SELFTESTS_CACHE_H
#define OPTINC_SELFTESTS_CACHE_H

#include "card.h"

#include "kselftest_harness.h"

#define PAGES	64U	/* of a test's memory */

typedef const volatile struct optinc_context_page *context_page;

static inline context_page must_map_context(struct card *c)
{
	void *page = mmap(NULL, page_bytes(), PROT_READ, MAP_SHARED, c->fd,
			  (off_t)c->query.context_offset);

	must(page != MAP_FAILED);
	return page;
}

/* Ends the test where there is nothing to test. */
static inline void must_watch(const struct card *c)
{
	if (c->query.features & OPTINC_FEAT_MR_CACHE)
		return;
	ksft_print_msg("the kernel has no MMU notifiers\n");
	exit(SKIPPED);
}

static inline void must_open_watching(struct card *c)
{
	must_open(c, 0);
	must_watch(c);
}

static inline bool is_stale(context_page page, uint32_t slot)
{
	return __atomic_load_n(&page->mr_stale[slot / 8], __ATOMIC_ACQUIRE) >> slot % 8 & 1;
}

static inline uint64_t generation(context_page page)
{
	return __atomic_load_n(&page->mr_generation, __ATOMIC_ACQUIRE);
}

/* No huge pages: what splits one is told, and is another matter. */
static inline char *must_have_pages(unsigned int n, int fd)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	char *memory = mmap(NULL, n * page_bytes(), PROT_READ | PROT_WRITE, flags, fd, 0);

	must(memory != MAP_FAILED);
	must(!madvise(memory, n * page_bytes(), MADV_NOHUGEPAGE));
	return memory;
}

struct inherited {
	char *memory;
	size_t bytes;
};

static inline int writes(void *arg)
{
	struct inherited *in = arg;

	memset(in->memory, 0x33, in->bytes);
	return 0;
}

#endif /* OPTINC_SELFTESTS_CACHE_H */
