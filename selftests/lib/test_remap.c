// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Buffers that come and go between calls, mostly at addresses that others had:
 * every result is the reference's, for the memory that is there now. Where the
 * library keeps buffers registered it says how often it did, and how often it
 * noticed.
 */
#define _GNU_SOURCE
#include "ranks.h"

#define COUNT	30000U		/* elements: more than is copied */
#define BYTES	(COUNT * sizeof(float))
#define WHOLE	((BYTES + 4095) & ~4095UL)

static float expected[COUNT];

static float element(unsigned int rank, unsigned int round, unsigned int i)
{
	return (float)(int)((i * 37 + round * 101 + rank * 13) % 199) * 0.01f;
}

static void fill(float *x, unsigned int rank, unsigned int round)
{
	for (unsigned int i = 0; i < COUNT; i++)
		x[i] = element(rank, round, i);
}

static void check_reduce(float *send, float *recv, unsigned int round)
{
	static float theirs[2][COUNT];
	const void *sends[] = { theirs[0], theirs[1] };

	for (unsigned int r = 0; r < 2; r++)
		fill(theirs[r], r, round);
	CHECK_INT(optinc_reference_allreduce(sends, expected, 2, COUNT, OPTINC_F32, OPTINC_MEAN, 8,
					     0, NULL), 0);
	fill(send, me.rank, round);
	CHECK_INT(optinc_allreduce(me.group, send, recv, COUNT, OPTINC_F32, OPTINC_MEAN, NULL,
				   NULL), 0);
	for (unsigned int i = 0; i < COUNT; i++) {
		if (memcmp(&recv[i], &expected[i], sizeof(float)))
			rank_fail(__FILE__, __LINE__, "round %u, element %u: %a, not %a", round, i,
				  (double)recv[i], (double)expected[i]);
	}
}

static void *map_at(void *addr)
{
	void *p = mmap(addr, WHOLE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | (addr ? MAP_FIXED : 0), -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

/* Each of @which ways ends with other memory at the address of @p. */
static void replace(void *p, unsigned int which)
{
	void *elsewhere;

	switch (which % 5) {
	case 0:
		CHECK_INT(munmap(p, WHOLE), 0);
		map_at(p);
		break;
	case 1:
		map_at(p);
		break;
	case 2:
		CHECK_INT(madvise(p, WHOLE, MADV_DONTNEED), 0);
		break;
	case 3:
		elsewhere = map_at(NULL);
		CHECK(mremap(elsewhere, WHOLE, WHOLE, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
		break;
	case 4:
		elsewhere = map_at(NULL);
		CHECK(mremap(p, WHOLE, WHOLE, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) ==
		      elsewhere);
		map_at(p);
		CHECK_INT(munmap(elsewhere, WHOLE), 0);
		break;
	}
}

static struct optinc_card_stats stats(void)
{
	struct optinc_card_stats s;

	CHECK_INT(optinc_card_stats(me.card, &s, sizeof(s)), 0);
	return s;
}

static bool caches(void)
{
	long limit;

	CHECK_INT(optinc_card_get(me.card, OPTINC_OPTION_MR_CACHE, &limit), 0);
	return limit > 0;
}

static void body_replaced(void)
{
	float *send = map_at(NULL), *recv = map_at(NULL);
	unsigned int round;

	join_bits(8);
	for (round = 0; round < 40; round++) {
		check_reduce(send, recv, round);
		if (round % 4 == 1)
			replace(send, round / 4);
		if (round % 4 >= 2)
			replace(recv, round / 3);
	}
	if (caches()) {
		CHECK(stats().mr_flushes >= 29);
		CHECK(stats().mr_hits > 20);
	}
	munmap(send, WHOLE);
	munmap(recv, WHOLE);
}

/* What programs do: the allocator decides which memory it is. */
static void body_allocated(void)
{
	unsigned int round;

	join_bits(8);
	for (round = 0; round < 40; round++) {
		size_t before = round * 12345 % 200000;
		char *skip = malloc(before + 1);
		float *send = malloc(BYTES), *recv = malloc(BYTES);

		CHECK(skip && send && recv);
		memset(skip, 1, before + 1);
		check_reduce(send, recv, round);
		if (round % 3)
			free(skip);
		check_reduce(recv, send, round);
		free(send);
		free(recv);
		if (!(round % 3))
			free(skip);
	}
}

/* Buffers that stay cost one registration each. */
static void body_kept(void)
{
	float *send = map_at(NULL), *recv = map_at(NULL);
	unsigned int round;

	join_bits(8);
	for (round = 0; round < 20; round++)
		check_reduce(send, recv, round);
	if (caches()) {
		CHECK_INT(stats().mr_misses, 2);
		CHECK_INT(stats().mr_hits, 38);
		CHECK_INT(stats().mr_flushes, 0);
		CHECK_INT(stats().mr_bytes, 2 * WHOLE);
	}
	/* off, and the memory is the caller's alone again */
	CHECK_INT(optinc_card_set(me.card, OPTINC_OPTION_MR_CACHE, 0), 0);
	CHECK_INT(stats().mr_bytes, 0);
	check_reduce(send, recv, 1000);
	CHECK_INT(stats().mr_bytes, 0);
	munmap(send, WHOLE);
	munmap(recv, WHOLE);
}

static void test_replaced(void **state)
{
	(void)state;
	run_ranks(2, body_replaced);
}

static void test_allocated(void **state)
{
	(void)state;
	run_ranks(2, body_allocated);
}

static void test_kept(void **state)
{
	(void)state;
	run_ranks(2, body_kept);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replaced),
		cmocka_unit_test(test_allocated),
		cmocka_unit_test(test_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
