// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The registration cache, on a card that keeps the pages that it was given
 * while the caller's memory becomes other memory: a stale region that is used
 * gives stale bits.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "fake_provider.h"

#define IOCTL(x)	(OPTINC_IOCTL_##x & 0xff)
#define PAGE		4096U
#define LEAST		32768U	/* bytes of an operand that is cached */
#define STAGED		65536U	/* the most that can be copied */
#define BYTES		(1U << 20)
#define FLOATS(bytes)	((bytes) / sizeof(float))

static struct optinc_card *card;
static struct optinc_group *group;
static float *buffer, *other;

static void open_all(void)
{
	card = fake_card();
	group = fake_join(card, 64);
}

static int setup(void **state)
{
	(void)state;
	fake_init_watching();
	setenv("OPTINC_MR_CACHE", "67108864", 1);
	open_all();
	buffer = aligned_alloc(PAGE, BYTES);
	other = aligned_alloc(PAGE, BYTES);
	memset(buffer, 0, BYTES);
	memset(other, 0, BYTES);
	return !buffer || !other;
}

static int teardown(void **state)
{
	(void)state;
	memset(fake.ioctl_error, 0, sizeof(fake.ioctl_error));
	optinc_close(card);
	unsetenv("OPTINC_MR_CACHE");
	free(buffer);
	free(other);
	if (fake.live_mrs || fake.live_qps || fake.live_groups || fake.live_maps || fake.pinned) {
		print_error("left: %u regions, %u queue pairs, %u groups, %u mappings\n",
			    fake.live_mrs, fake.live_qps, fake.live_groups, fake.live_maps);
		return -1;
	}
	return 0;
}

static struct optinc_card_stats stats(void)
{
	struct optinc_card_stats s;

	assert_int_equal(optinc_card_stats(card, &s, sizeof(s)), 0);
	return s;
}

static unsigned int registrations(void)
{
	return fake.ioctls[IOCTL(MR_REG)];
}

/* Small whole numbers, which an average of equals gives back exactly. */
static void fill(float *x, size_t bytes, unsigned int seed)
{
	size_t i;

	for (i = 0; i < FLOATS(bytes); i++)
		x[i] = (float)((i + seed) % 100);
}

static int reduce(float *send, float *recv, size_t bytes)
{
	return optinc_allreduce(group, send, recv, FLOATS(bytes), OPTINC_F32, OPTINC_MEAN, NULL,
				NULL);
}

/* Reduces, and the bits are right: what is there now, to where @recv is now. */
static void check(float *send, float *recv, size_t bytes)
{
	static unsigned int seed;
	size_t i;

	seed += 7;
	fill(send, bytes, seed);
	if (send != recv)
		memset(recv, 0x55, bytes);
	assert_int_equal(reduce(send, recv, bytes), 0);
	for (i = 0; i < FLOATS(bytes); i++) {
		if (recv[i] != (float)((i + seed) % 100))
			fail_msg("element %zu of %zu is %g", i, FLOATS(bytes), (double)recv[i]);
	}
}

static void test_kept(void **state)
{
	struct optinc_card_stats s;
	unsigned int i;

	(void)state;
	for (i = 0; i < 10; i++)
		check(buffer, other, STAGED * 2);
	assert_int_equal(registrations(), 2);
	s = stats();
	assert_int_equal(s.mr_misses, 2);
	assert_int_equal(s.mr_hits, 18);
	assert_int_equal(s.mr_flushes, 0);
	assert_int_equal(s.mr_bytes, 4 * STAGED);
	/* a part of it; several in turn, so that no hint is of use */
	check(buffer + 1000, other + 10, STAGED);
	for (i = 0; i < 10; i++) {
		check(buffer, other, LEAST);
		check(other + FLOATS(STAGED), other, LEAST);
	}
	assert_int_equal(registrations(), 2);
}

static void test_in_place(void **state)
{
	(void)state;
	check(buffer, buffer, STAGED * 2);
	check(buffer, buffer, STAGED * 2);
	assert_int_equal(registrations(), 1);
	fake_replace(buffer, 1);
	check(buffer, buffer, STAGED * 2);
	assert_int_equal(registrations(), 2);
}

/* A buffer that is freed and another one that has its address */
static void test_replaced(void **state)
{
	unsigned int i;

	(void)state;
	for (i = 0; i < 20; i++) {
		check(buffer, other, STAGED * 2);
		fake_replace(i % 2 ? buffer : other, STAGED * 2);
	}
	check(buffer, other, STAGED * 2);
	assert_int_equal(registrations(), 22);
	assert_int_equal(stats().mr_flushes, 20);
	assert_int_equal(fake.live_mrs, 2);
}

/* The last byte of the last page counts, the first one behind it does not. */
static void test_edges(void **state)
{
	char *bytes = (char *)buffer;

	(void)state;
	check(buffer + 1, buffer + 1, LEAST);	/* in nine pages */
	assert_int_equal(fake.pinned, LEAST + PAGE);
	fake_replace(bytes + LEAST + PAGE, PAGE);
	check(buffer + 1, buffer + 1, LEAST);
	assert_int_equal(registrations(), 1);
	fake_replace(bytes + LEAST + PAGE - 1, 1);
	check(buffer + 1, buffer + 1, LEAST);
	assert_int_equal(registrations(), 2);
	fake_replace(bytes, 1);
	check(buffer + 1, buffer + 1, LEAST);
	assert_int_equal(registrations(), 3);
}

/* One buffer's end costs nothing to the others. */
static void test_spared(void **state)
{
	float *part[8];
	unsigned int i;

	(void)state;
	for (i = 0; i < 8; i++) {
		part[i] = buffer + i * FLOATS(LEAST);
		check(part[i], part[i], LEAST);
	}
	assert_int_equal(registrations(), 8);
	fake_replace(part[3], LEAST);
	for (i = 0; i < 8; i++)
		check(part[i], part[i], LEAST);
	assert_int_equal(registrations(), 9);
	assert_int_equal(stats().mr_flushes, 1);
}

/* What is stale goes with the next request, of whatever kind. */
static void test_given_back(void **state)
{
	(void)state;
	check(buffer, buffer, BYTES);
	assert_int_equal(fake.pinned, BYTES);
	fake_replace(buffer, BYTES);
	assert_int_equal(fake.pinned, BYTES);
	assert_int_equal(optinc_barrier(group, NULL, NULL), 0);
	assert_int_equal(fake.pinned, 0);
	assert_int_equal(stats().mr_bytes, 0);
}

static void test_small_is_copied(void **state)
{
	(void)state;
	check(buffer, other, LEAST - 4);
	check(buffer, other, 4);
	assert_int_equal(registrations(), 1);	/* staging */
	assert_int_equal(stats().mr_misses, 0);
	/* unless it lies in what is there already */
	check(buffer, buffer, STAGED);
	check(buffer + 5, buffer + 5, 4);
	assert_int_equal(stats().mr_hits, 1);
	/* which must then be looked at like any other */
	fake_replace(buffer, STAGED);
	check(buffer + 5, buffer + 5, 4);
	assert_int_equal(stats().mr_hits, 1);
}

/* The memory changes under a request: that is the caller's affair, but only for this one. */
static void test_replaced_in_flight(void **state)
{
	struct optinc_request *r;
	unsigned int i;

	(void)state;
	fake.mode = FAKE_HOLD;
	assert_int_equal(optinc_iallreduce(group, buffer, buffer, FLOATS(STAGED), OPTINC_F32,
					   OPTINC_MEAN, NULL, &r), 0);
	fake_replace(buffer, STAGED);
	fake.mode = FAKE_AT_ONCE;
	for (i = 0; i < 3; i++)
		check(buffer, buffer, STAGED);
	assert_int_equal(registrations(), 2);
	assert_int_equal(fake.live_mrs, 2);	/* the stale one is in use */
	fake_complete(0, NULL);
	assert_int_equal(optinc_wait(r, -1, NULL), 0);
	check(buffer, buffer, STAGED);
	assert_int_equal(fake.live_mrs, 1);
	assert_int_equal(stats().mr_flushes, 1);
}

/* One that changes while it is made is of no use, and no harm. */
static void test_replaced_while_registered(void **state)
{
	(void)state;
	fake.stale_at_birth = true;
	check(buffer, other, LEAST);	/* copied */
	check(buffer, other, 2 * STAGED);	/* registered for the call */
	fake.stale_at_birth = false;
	check(buffer, other, LEAST);
	assert_int_equal(stats().mr_flushes, 4);
	assert_int_equal(fake.live_mrs, 3);	/* with staging */
}

/* A region for reading, then for writing too: one of them is enough. */
static void test_read_then_written(void **state)
{
	(void)state;
	check(buffer, other, STAGED);
	check(other, buffer, STAGED);
	assert_int_equal(registrations(), 3);	/* other was writable */
	assert_int_equal(fake.live_mrs, 2);
	check(buffer, buffer, STAGED);
	/* a larger one takes the place of those in it */
	check(buffer, buffer, 4 * STAGED);
	assert_int_equal(fake.live_mrs, 2);
	assert_int_equal(stats().mr_bytes, 5 * STAGED);
}

/* Buffers that move a little each time: no page is pinned again and again. */
static void test_shifted(void **state)
{
	unsigned int i;

	(void)state;
	for (i = 0; i < 60; i++) {
		check(buffer + i * 1000, buffer + i * 1000, 2 * STAGED);
		assert_true(fake.live_mrs <= 3);
	}
	/* for reading alone they are no less many */
	for (i = 0; i < 60; i++) {
		check(other + i * 1000, buffer, 2 * STAGED);
		assert_true(fake.live_mrs <= 6);
	}
}

/* Slices share the pages at their ends, and stay. */
static void test_slices(void **state)
{
	unsigned int i, before;

	(void)state;
	for (i = 0; i < 20; i++)
		check(buffer + i * 10001, buffer + i * 10001, 10001 * sizeof(float));
	before = registrations();
	assert_int_equal(before, 20);
	for (i = 0; i < 20; i++)
		check(buffer + i * 10001, buffer + i * 10001, 10001 * sizeof(float));
	assert_int_equal(registrations(), before);
}

/* ------------------------------------------------------------------ bounds */

static void test_bytes(void **state)
{
	float *part[8];
	unsigned int i;

	(void)state;
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_MR_CACHE, 4 * LEAST + 100), 0);
	for (i = 0; i < 8; i++)
		part[i] = buffer + i * FLOATS(LEAST);
	for (i = 0; i < 4; i++)
		check(part[i], part[i], LEAST);
	check(part[0], part[0], LEAST);
	check(part[4], part[4], LEAST);		/* in the place of 1, which is the oldest */
	assert_int_equal(stats().mr_evictions, 1);
	check(part[0], part[0], LEAST);
	check(part[2], part[2], LEAST);
	check(part[3], part[3], LEAST);
	assert_int_equal(registrations(), 5);
	check(part[1], part[1], LEAST);
	assert_int_equal(registrations(), 6);
	assert_int_equal(fake.pinned, 4 * LEAST);
	/* more than all of it: for the call */
	check(buffer, buffer, 8 * LEAST);
	assert_int_equal(fake.pinned, 4 * LEAST);
	/* less is given back at once */
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_MR_CACHE, LEAST), 0);
	assert_int_equal(fake.pinned, LEAST);
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_MR_CACHE, 0), 0);
	assert_int_equal(fake.pinned, 0);
}

/* No more than half of the card's regions */
static void test_count(void **state)
{
	unsigned int i;

	(void)state;
	fake.query.max_mrs = 16;
	optinc_close(card);
	open_all();
	for (i = 0; i < 32; i++)
		check(buffer + i * FLOATS(LEAST), buffer + i * FLOATS(LEAST), LEAST);
	assert_int_equal(fake.live_mrs, 8);
	assert_int_equal(stats().mr_evictions, 24);
}

/* What requests use is not evicted, and what does not fit goes the other way. */
static void test_in_use(void **state)
{
	struct optinc_request *r[4];
	unsigned int i;

	(void)state;
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_MR_CACHE, 2 * STAGED), 0);
	fake.mode = FAKE_HOLD;
	for (i = 0; i < 4; i++)
		assert_int_equal(optinc_iallreduce(group, buffer + i * FLOATS(STAGED),
						   buffer + i * FLOATS(STAGED), FLOATS(STAGED),
						   OPTINC_F32, OPTINC_MEAN, NULL, &r[i]), 0);
	assert_int_equal(stats().mr_bytes, 2 * STAGED);
	assert_int_equal(stats().mr_evictions, 0);
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_MR_CACHE, 0), 0);
	assert_int_equal(stats().mr_bytes, 2 * STAGED);
	while (fake_complete(0, NULL))
		;
	for (i = 0; i < 4; i++)
		assert_int_equal(optinc_wait(r[i], -1, NULL), 0);
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_MR_CACHE, 0), 0);
	assert_int_equal(stats().mr_bytes, 0);
}

/* RLIMIT_MEMLOCK: the cache makes way for whatever would have worked without it. */
static void test_memlock(void **state)
{
	struct optinc_mr *mr;
	unsigned int i;

	(void)state;
	fake.pin_limit = 4 * STAGED;
	check(buffer, other, 2 * STAGED);
	assert_int_equal(fake.pinned, 4 * STAGED);
	/* other buffers */
	for (i = 0; i < 4; i++)
		check(buffer + (i + 1) * FLOATS(STAGED), other + i * FLOATS(STAGED), 2 * STAGED);
	assert_true(stats().mr_evictions >= 4);
	/* the caller's own region, of all there is */
	assert_int_equal(optinc_mr_register(card, buffer, 4 * STAGED, OPTINC_MR_WRITE, &mr), 0);
	assert_int_equal(stats().mr_bytes, 0);
	check(buffer, buffer, 4 * STAGED);
	assert_int_equal(optinc_mr_deregister(mr), 0);
	/* more than may be pinned: what was an error is one */
	assert_int_equal(reduce(buffer, buffer, 4 * STAGED + PAGE), -ENOMEM);
	check(buffer, buffer, 4 * STAGED);
}

/* Too little for any region, but enough for staging */
static void test_memlock_small(void **state)
{
	unsigned int i, before;

	(void)state;
	check(buffer, other, 4);	/* staging is there */
	fake.pin_limit = fake.pinned;
	before = registrations();
	for (i = 0; i < 20; i++)
		check(buffer, other, STAGED);
	/* and does not try each time */
	assert_int_equal(registrations(), before + 1);
	assert_int_equal(stats().mr_bytes, 0);
	/* but does so again */
	fake.pin_limit = 0;
	for (i = 0; i < 100; i++)
		check(buffer, other, STAGED);
	assert_int_equal(registrations(), before + 3);
}

/* The process has one account, whatever cards it has open. */
static void test_another_card_makes_way(void **state)
{
	struct optinc_card *second = fake_card();
	struct optinc_mr *mr;

	(void)state;
	check(buffer, other, 4 * STAGED);
	fake.pin_limit = fake.pinned;
	assert_int_equal(optinc_mr_register(second, buffer, 4 * STAGED, 0, &mr), 0);
	assert_int_equal(stats().mr_bytes, 4 * STAGED);
	check(buffer, other, 2 * STAGED);
	optinc_close(second);
	check(buffer, other, 4 * STAGED);
}

/* The card's regions: staging, the caller's, temporary ones go before. */
static void test_regions_used_up(void **state)
{
	struct optinc_mr *mrs[16];
	unsigned int i;

	(void)state;
	fake.query.max_mrs = 16;
	optinc_close(card);
	open_all();
	for (i = 0; i < 8; i++)
		check(buffer + i * FLOATS(STAGED), buffer + i * FLOATS(STAGED), STAGED);
	for (i = 0; i < 16; i++)
		assert_int_equal(optinc_mr_register(card, other, 64, 0, &mrs[i]), 0);
	assert_int_equal(stats().mr_bytes, 0);
	assert_int_equal(optinc_mr_deregister(mrs[0]), 0);
	check(buffer, buffer, STAGED);
	check(buffer, buffer, 2 * STAGED);
	for (i = 1; i < 16; i++)
		assert_int_equal(optinc_mr_deregister(mrs[i]), 0);
}

/* ---------------------------------------------------------------- failures */

/* Memory that cannot be pinned is copied as ever, and asked about now and then only. */
static void test_fallback(void **state)
{
	static const int errors[] = { -EFAULT, -EINVAL, -EIO, -EOPNOTSUPP };
	unsigned int i, n, before;

	(void)state;
	check(buffer, other, 4);
	for (i = 0; i < 4; i++) {
		fake.ioctl_error[IOCTL(MR_REG)] = errors[i];
		before = registrations();
		for (n = 0; n < 30; n++)
			check(buffer, other, STAGED);
		assert_true(registrations() - before <= 1);
		/* and large ones fail as ever */
		assert_int_equal(reduce(buffer, other, 2 * STAGED), errors[i]);
		for (n = 0; n < 10; n++)
			check(buffer, other, STAGED);
	}
	fake.ioctl_error[IOCTL(MR_REG)] = 0;
	assert_int_equal(stats().mr_bytes, 0);
}

/* A signal is no reason to do without for long. */
static void test_interrupted(void **state)
{
	(void)state;
	check(buffer, other, 4);
	fake.ioctl_error[IOCTL(MR_REG)] = -EINTR;
	check(buffer, other, STAGED);
	fake.ioctl_error[IOCTL(MR_REG)] = 0;
	check(buffer, other, STAGED);
	assert_int_equal(stats().mr_bytes, 2 * STAGED);
}

/* A region that the card does not give up is forgotten; it goes with the context. */
static void test_not_given_up(void **state)
{
	(void)state;
	check(buffer, buffer, STAGED);
	fake_replace(buffer, STAGED);
	fake.ioctl_error[IOCTL(MR_DEREG)] = -EBUSY;
	check(buffer, buffer, STAGED);
	check(buffer, buffer, STAGED);
	fake.ioctl_error[IOCTL(MR_DEREG)] = 0;
	assert_int_equal(stats().mr_bytes, STAGED);
	assert_int_equal(fake.live_mrs, 2);
	optinc_close(card);
	assert_int_equal(fake.live_mrs, 1);
	/* which this card forgets to do */
	fake_init_watching();
	open_all();
}

static void test_bad_answers(void **state)
{
	(void)state;
	check(buffer, other, 4);
	fake.bad_handles = true;
	check(buffer, other, STAGED);
	fake.bad_handles = false;
	assert_int_equal(stats().mr_bytes, 0);
	/* those that have no name cannot be ended */
	fake.live_mrs--;
	fake.pinned -= STAGED;
}

static void test_no_page(void **state)
{
	long limit;

	(void)state;
	optinc_close(card);
	fake.context_error = true;
	open_all();
	assert_int_equal(optinc_card_get(card, OPTINC_OPTION_MR_CACHE, &limit), 0);
	assert_int_equal(limit, 0);
	check(buffer, other, STAGED * 2);
	assert_int_equal(fake.live_mrs, 0);
}

/* ----------------------------------------------------------------- options */

static long limit_with(const char *env)
{
	long value;

	optinc_close(card);
	if (env)
		setenv("OPTINC_MR_CACHE", env, 1);
	else
		unsetenv("OPTINC_MR_CACHE");
	open_all();
	assert_int_equal(optinc_card_get(card, OPTINC_OPTION_MR_CACHE, &value), 0);
	return value;
}

static void test_options(void **state)
{
	long usual = limit_with(NULL);

	(void)state;
	assert_true(usual > 0);
	assert_int_equal(limit_with("12345678"), 12345678);
	assert_int_equal(limit_with(""), usual);
	assert_int_equal(limit_with("-1"), usual);
	assert_int_equal(limit_with("much"), usual);
	assert_int_equal(limit_with("1G"), usual);
	assert_int_equal(limit_with("0"), 0);
	check(buffer, other, STAGED * 2);
	assert_int_equal(fake.live_mrs, 0);
	assert_int_equal(stats().mr_misses, 0);
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_MR_CACHE, -1), -EINVAL);
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_MR_CACHE, BYTES), 0);
	check(buffer, other, STAGED * 2);
	assert_int_equal(fake.live_mrs, 2);
}

static void test_without_the_feature(void **state)
{
	long value = 1;

	(void)state;
	optinc_close(card);
	fake_init();
	open_all();
	assert_int_equal(optinc_card_get(card, OPTINC_OPTION_MR_CACHE, &value), 0);
	assert_int_equal(value, 0);
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_MR_CACHE, BYTES), -EOPNOTSUPP);
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_MR_CACHE, 0), 0);
	check(buffer, other, STAGED * 2);
	check(buffer, other, STAGED * 2);
	assert_int_equal(registrations(), 4);
	assert_int_equal(fake.live_mrs, 0);
	assert_int_equal(stats().mr_misses, 0);
}

/* ----------------------------------------------------------------- threads */

#define THREADS	4
#define ROUNDS	300

struct worker {
	pthread_t thread;
	struct optinc_group *group;
	float *buffers[4];
	unsigned int number;
	bool wrong;
};

static bool round_is_right(struct worker *w, unsigned int round)
{
	float *send = w->buffers[round % 4], *recv = w->buffers[(round / 3) % 4];
	size_t i, n = FLOATS(LEAST) + round % 5 * 100;

	for (i = 0; i < n; i++)
		send[i] = (float)((i + round + w->number) % 100);
	if (optinc_allreduce(w->group, send, recv, n, OPTINC_F32, OPTINC_MEAN, NULL, NULL))
		return false;
	for (i = 0; i < n; i++) {
		if (recv[i] != (float)((i + round + w->number) % 100))
			return false;
	}
	return true;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	unsigned int round;

	for (round = 0; round < ROUNDS && !w->wrong; round++) {
		w->wrong = !round_is_right(w, round);
		if (round % 7 == w->number)
			fake_replace(w->buffers[round % 3], LEAST);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct worker workers[THREADS];
	struct optinc_mr *mr;
	unsigned int i, n;

	(void)state;
	/* of the sixteen buffers' pages */
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_MR_CACHE, 11 * LEAST), 0);
	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker) { .group = fake_join(card, 8), .number = i };
		for (n = 0; n < 4; n++)
			workers[i].buffers[n] = aligned_alloc(PAGE, 2 * LEAST);
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	/* others that want what the cache has */
	for (n = 0; n < 100; n++) {
		assert_int_equal(optinc_mr_register(card, buffer, BYTES, 0, &mr), 0);
		assert_int_equal(optinc_mr_deregister(mr), 0);
		stats();
	}
	for (i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
		assert_false(workers[i].wrong);
		optinc_group_leave(workers[i].group);
		for (n = 0; n < 4; n++)
			free(workers[i].buffers[n]);
	}
	assert_true(stats().mr_flushes > THREADS);
	assert_true(stats().mr_hits > 0);
	assert_true(stats().mr_bytes <= 11 * LEAST);
}

#define TEST(name)	cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_kept),
		TEST(test_in_place),
		TEST(test_replaced),
		TEST(test_edges),
		TEST(test_spared),
		TEST(test_given_back),
		TEST(test_small_is_copied),
		TEST(test_replaced_in_flight),
		TEST(test_replaced_while_registered),
		TEST(test_read_then_written),
		TEST(test_shifted),
		TEST(test_slices),
		TEST(test_bytes),
		TEST(test_count),
		TEST(test_in_use),
		TEST(test_memlock),
		TEST(test_memlock_small),
		TEST(test_another_card_makes_way),
		TEST(test_regions_used_up),
		TEST(test_fallback),
		TEST(test_interrupted),
		TEST(test_not_given_up),
		TEST(test_bad_answers),
		TEST(test_no_page),
		TEST(test_options),
		TEST(test_without_the_feature),
		TEST(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
