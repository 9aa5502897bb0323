// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Threads: several on one group, several groups on one card, registrations
 * beside requests. Worth most under -fsanitize=thread.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_provider.h"

#define THREADS	4
#define ROUNDS	2000

static struct optinc_card *card;
static struct optinc_group *group;

static int setup(void **state)
{
	(void)state;
	fake_init();
	card = fake_card();
	group = fake_join(card, 8);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	optinc_close(card);
	return fake.live_mrs || fake.live_qps || fake.live_groups || fake.live_maps ||
	       fake.overruns ? -1 : 0;
}

struct worker {
	pthread_t thread;
	struct optinc_group *group;
	uint32_t id;
	unsigned int done;
	int error;
	float memory[16];
};

static struct worker workers[THREADS];

static void run(void *(*main)(void *), struct optinc_group *const *groups)
{
	unsigned int i;

	memset(workers, 0, sizeof(workers));
	for (i = 0; i < THREADS; i++) {
		workers[i].id = i;
		workers[i].group = groups ? groups[i] : group;
		assert_int_equal(pthread_create(&workers[i].thread, NULL, main, &workers[i]), 0);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	for (i = 0; i < THREADS; i++) {
		assert_int_equal(workers[i].error, 0);
		assert_int_equal(workers[i].done, ROUNDS);
	}
}

static void note(struct worker *w, int error, bool right)
{
	if (!error && !right)
		error = -EBADMSG;
	if (error && !w->error)
		w->error = error;
	w->done++;
}

/* Each call gets its own result, whichever thread reaped it. */
static void *blocking(void *arg)
{
	struct worker *w = arg;
	struct optinc_options options;
	struct optinc_result result;
	float out[16];
	unsigned int i, j;
	int ret;

	for (i = 0; i < ROUNDS; i++) {
		options = (struct optinc_options) { .tag = w->id << 24 | i };
		for (j = 0; j < 16; j++)
			w->memory[j] = (float)((w->id * 16 + j + i) % 100);
		ret = optinc_allreduce(w->group, w->memory, out, 16, OPTINC_F32, OPTINC_SUM,
				       &options, &result);
		note(w, ret, result.tag == options.tag && out[0] > 2.9f * w->memory[0] - 0.5f &&
		     out[0] < 3.1f * w->memory[0] + 0.5f);
	}
	return NULL;
}

static void test_blocking(void **state)
{
	(void)state;
	fake.mode = FAKE_ON_RELAX;
	run(blocking, NULL);
}

/* Waiters that sleep are woken by whoever reaps, and take over when he leaves. */
static void test_blocking_asleep(void **state)
{
	(void)state;
	fake.mode = FAKE_ON_RELAX;
	optinc_card_set(card, OPTINC_OPTION_SPIN_US, 0);
	run(blocking, NULL);
	assert_true(fake.waits > 0);
}

/* More threads than the group has requests: all get their turn. */
static void *crowd(void *arg)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < 300 && !ret; i++)
		ret = optinc_barrier(arg, NULL, NULL);
	return (void *)(intptr_t)ret;
}

static void test_crowd(void **state)
{
	struct optinc_group *small = fake_join(card, 2);
	pthread_t threads[12];
	void *error;
	unsigned int i;

	(void)state;
	fake.mode = FAKE_ON_RELAX;
	for (i = 0; i < 12; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, crowd, small), 0);
	for (i = 0; i < 12; i++) {
		pthread_join(threads[i], &error);
		assert_null(error);
	}
	optinc_group_leave(small);
}

static void *nonblocking(void *arg)
{
	struct worker *w = arg;
	struct optinc_request *r[2];	/* of all threads: as many as the queue holds */
	struct optinc_result result;
	unsigned int i = 0, n, j;
	size_t index;
	int ret;

	while (i < ROUNDS) {
		for (n = 0; n < 2 && i + n < ROUNDS; n++) {
			struct optinc_options options = { .tag = w->id << 24 | (i + n) };

			do {
				ret = optinc_ibarrier(w->group, &options, &r[n]);
				if (ret == -EAGAIN)
					usleep(10);
			} while (ret == -EAGAIN);
			if (ret) {
				note(w, ret, true);
				return NULL;
			}
		}
		i += n;
		for (j = 0; j < n; j++) {
			if (w->id % 2) {
				ret = optinc_wait_any(r, n, -1, &index, &result);
			} else {
				while (!optinc_test(r[j], &result))
					;
				ret = result.error;
			}
			note(w, ret, result.tag >> 24 == w->id);
		}
	}
	return NULL;
}

static void test_nonblocking(void **state)
{
	(void)state;
	fake.mode = FAKE_ON_RELAX;
	run(nonblocking, NULL);
}

/* Even threads block, odd ones do not. */
static void *mixed(void *arg)
{
	struct worker *w = arg;

	return w->id % 2 ? nonblocking(arg) : blocking(arg);
}

static void test_mixed(void **state)
{
	(void)state;
	fake.mode = FAKE_ON_RELAX;
	run(mixed, NULL);
}

static void test_groups_side_by_side(void **state)
{
	struct optinc_group *groups[THREADS] = { group };
	unsigned int i;

	(void)state;
	for (i = 1; i < THREADS; i++)
		groups[i] = fake_join(card, 4);
	fake.mode = FAKE_ON_RELAX;
	run(mixed, groups);
}

static void *stuck(void *arg)
{
	return (void *)(intptr_t)optinc_barrier(arg, NULL, NULL);
}

/* A thread that waits on one group, spinning or asleep, is in nobody's way on another. */
static void check_not_blocked(long spin_us)
{
	struct optinc_group *waited = fake_join(card, 4);
	struct timespec a, b;
	pthread_t thread;
	void *error;
	unsigned int i;

	optinc_card_set(card, OPTINC_OPTION_SPIN_US, spin_us);
	fake.mode = FAKE_HOLD;
	assert_int_equal(pthread_create(&thread, NULL, stuck, waited), 0);
	while (!fake_pending())
		usleep(100);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (i = 0; i < 100; i++) {
		struct optinc_options options = { .tag = 5 };
		struct optinc_request *r;

		assert_int_equal(optinc_ibarrier(group, &options, &r), 0);
		assert_true(fake_complete_tag(5, NULL));
		assert_int_equal(optinc_wait(r, 1000, NULL), 0);
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	assert_true(b.tv_sec - a.tv_sec < 2);
	assert_true(fake_complete(0, NULL));
	pthread_join(thread, &error);
	assert_null(error);
	optinc_group_leave(waited);
}

static void test_waiting_blocks_no_other_group(void **state)
{
	(void)state;
	check_not_blocked(0);
	check_not_blocked(1000000);
}

/* On the same group a waiter lets others submit, however long he would spin. */
static void test_waiter_lets_others_in(void **state)
{
	struct timespec a, b;
	pthread_t thread;
	struct optinc_request *r;
	void *error;

	(void)state;
	optinc_card_set(card, OPTINC_OPTION_SPIN_US, 1000000);
	fake.mode = FAKE_HOLD;
	assert_int_equal(pthread_create(&thread, NULL, stuck, group), 0);
	while (!fake_pending())
		usleep(100);
	clock_gettime(CLOCK_MONOTONIC, &a);
	assert_int_equal(optinc_ibarrier(group, NULL, &r), 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	assert_true((double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec) < 0.5);
	fake_complete(0, NULL);
	fake_complete(0, NULL);
	assert_int_equal(optinc_wait(r, -1, NULL), 0);
	pthread_join(thread, &error);
	assert_null(error);
}

/* A failure wakes all that wait. */
static void test_failure_wakes_all(void **state)
{
	pthread_t threads[THREADS];
	void *error;
	unsigned int i;

	(void)state;
	fake.mode = FAKE_HOLD;
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, stuck, group), 0);
	while (fake_pending() < THREADS)
		usleep(100);
	fake_complete(2, &(struct fake_completion) { .cmd_id_xor = 0x55 });
	for (i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &error);
		assert_int_equal((intptr_t)error, -EIO);
	}
}

/* Regions come and go beside requests that look for one. */
static void *registering(void *arg)
{
	struct worker *w = arg;
	struct optinc_mr *mr;
	unsigned int i;
	float out[16];
	int ret;

	for (i = 0; i < ROUNDS; i++) {
		ret = optinc_mr_register(card, w->memory, sizeof(w->memory), OPTINC_MR_WRITE, &mr);
		if (!ret)
			ret = optinc_allreduce(w->group, w->memory, i % 2 ? out : w->memory, 16,
					       OPTINC_F32, OPTINC_MEAN, NULL, NULL);
		if (!ret)
			ret = optinc_mr_deregister(mr);
		note(w, ret, true);
	}
	return NULL;
}

static void test_registering(void **state)
{
	(void)state;
	fake.mode = FAKE_ON_RELAX;
	run(registering, NULL);
}

/* Informational calls beside everything else. */
static void *asking(void *arg)
{
	struct worker *w = arg;
	struct optinc_group_info info;
	struct optinc_card_stats stats;
	struct optinc_why why;
	unsigned int i;
	int ret;

	if (w->id)
		return blocking(arg);
	for (i = 0; i < ROUNDS; i++) {
		ret = optinc_group_info(w->group, &info, sizeof(info));
		if (!ret)
			ret = optinc_why(card, &why);
		if (!ret)
			ret = optinc_card_stats(card, &stats, sizeof(stats));
		if (!ret)
			ret = optinc_card_set(card, OPTINC_OPTION_SPIN_US, i % 100);
		note(w, ret, info.error == 0);
	}
	return NULL;
}

static void test_asking(void **state)
{
	(void)state;
	fake.mode = FAKE_ON_RELAX;
	run(asking, NULL);
}

#define TEST(name)	cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_blocking),
		TEST(test_blocking_asleep),
		TEST(test_crowd),
		TEST(test_nonblocking),
		TEST(test_mixed),
		TEST(test_groups_side_by_side),
		TEST(test_waiting_blocks_no_other_group),
		TEST(test_waiter_lets_others_in),
		TEST(test_failure_wakes_all),
		TEST(test_registering),
		TEST(test_asking),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
