// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Requests against a card that is not to be trusted: what the library makes
 * of statuses, of completions that lie, of a card that falls silent; how many
 * requests it lets out; how waiting, cancelling and descriptors behave.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_provider.h"

#define IOCTL(x)	(OPTINC_IOCTL_##x & 0xff)

static struct optinc_card *card;
static struct optinc_group *group;
static float in[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
static float out[8];

static int setup(void **state)
{
	(void)state;
	fake_init();
	card = fake_card();
	group = fake_join(card, 8);
	return 0;
}

/* Whatever a test did: nothing may be left on the card. */
static int teardown(void **state)
{
	(void)state;
	fake.mode = FAKE_AT_ONCE;
	memset(fake.ioctl_error, 0, sizeof(fake.ioctl_error));
	fake.wait_error = 0;
	optinc_close(card);
	if (fake.live_mrs || fake.live_qps || fake.live_groups || fake.live_maps ||
	    fake.closes != fake.opens || fake.overruns) {
		print_error("left: %u regions, %u queue pairs, %u groups, %u mappings; "
			    "%u overruns\n", fake.live_mrs, fake.live_qps, fake.live_groups,
			    fake.live_maps, fake.overruns);
		return -1;
	}
	return 0;
}

static struct optinc_request *start_in(struct optinc_group *g, uint32_t tag)
{
	struct optinc_options options = { .tag = tag };
	struct optinc_request *request;

	assert_int_equal(optinc_ibarrier(g, &options, &request), 0);
	assert_non_null(request);
	return request;
}

static struct optinc_request *start(uint32_t tag)
{
	return start_in(group, tag);
}

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static void assert_says(const char *part)
{
	if (!strstr(optinc_last_error(), part))
		fail_msg("\"%s\" does not say \"%s\"", optinc_last_error(), part);
}

static int group_error(void)
{
	struct optinc_group_info info;

	assert_int_equal(optinc_group_info(group, &info, sizeof(info)), 0);
	return info.error;
}

/* ---------------------------------------------------------------- status */

struct status_case {
	struct fake_completion how;
	int error;
	bool ends;
	const char *says;
};

static const struct status_case status_cases[] = {
	{ { .status = OPTINC_ST_INVALID_OPCODE }, -EINVAL, false, "invalid-opcode" },
	{ { .status = OPTINC_ST_INVALID_FIELD }, -EINVAL, false, "invalid-field" },
	{ { .status = OPTINC_ST_INVALID_GROUP }, -ENOENT, false, "invalid-group" },
	{ { .status = OPTINC_ST_INVALID_MR }, -ERANGE, false, "invalid-mr" },
	{ { .status = OPTINC_ST_MR_BOUNDS }, -ERANGE, false, "mr-bounds" },
	{ { .status = OPTINC_ST_MR_ACCESS }, -EACCES, false, "mr-access" },
	{ { .status = OPTINC_ST_UNSUPPORTED }, -EOPNOTSUPP, false, "unsupported" },
	{ { .status = OPTINC_ST_PEER_LOST, .peer = 2 }, -ECONNRESET, true, "rank 2 was lost" },
	{ { .status = OPTINC_ST_PEER_LOST, .peer = 2 }, -ECONNRESET, true,
	  "optinc_group_rejoin()" },
	{ { .status = OPTINC_ST_TIMEOUT, .peer = 0 }, -ETIMEDOUT, true,
	  "rank 0 did not come within 10000 ms" },
	{ { .status = OPTINC_ST_MISMATCH, .peer = 0,
	    .mismatch = OPTINC_DIFF_COUNT | OPTINC_DIFF_TAG },
	  -EPROTO, true, "rank 0 differs in count and tag:" },
	{ { .status = OPTINC_ST_MISMATCH, .peer = 1, .mismatch = OPTINC_DIFF_DTYPE }, -EPROTO, true,
	  "this rank (1) differs in dtype:" },
	{ { .status = OPTINC_ST_MISMATCH, .peer = 2, .mismatch = 0x7f }, -EPROTO, true,
	  "rank 2 differs in operation, count, dtype, reduction, tag, root and flags:" },
	{ { .status = OPTINC_ST_MISMATCH, .peer = 2, .mismatch = 0x80 }, -EPROTO, true,
	  "does not name" },
	{ { .status = OPTINC_ST_EXPONENT_MISMATCH, .peer = 2 }, -EBADMSG, true,
	  "optinc_exponent_max()" },
	{ { .status = OPTINC_ST_ABORTED, .peer = 0 }, -ECONNABORTED, true,
	  "rank 0 gave the group up" },
	{ { .status = OPTINC_ST_LINK, .peer = 2 }, -ENOLINK, true, "lanes of rank 2" },
	{ { .status = OPTINC_ST_EPOCH_ENDED, .peer = OPTINC_NO_RANK }, -ESTALE, true,
	  "earlier request" },
	{ { .status = OPTINC_ST_RESET, .peer = OPTINC_NO_RANK }, -ENODEV, true, "open it again" },
	{ { .status = OPTINC_ST_DMA, .peer = OPTINC_NO_RANK }, -EFAULT, true, "memory" },
	{ { .status = OPTINC_ST_INTERNAL, .peer = OPTINC_NO_RANK }, -EIO, true, "internal error" },
	/* a rank that the group does not have is not believed */
	{ { .status = OPTINC_ST_PEER_LOST, .peer = 3 }, -ECONNRESET, true, "a rank was lost" },
};

static void check_status(const struct status_case *c)
{
	bool named = c->how.peer < 3 && c->how.status >= OPTINC_ST_PEER_LOST;
	struct optinc_result result;
	struct optinc_request *request, *next;
	struct optinc_why why;

	fake.mode = FAKE_HOLD;
	request = start(0x1234);
	assert_true(fake_complete(0, &c->how));
	assert_int_equal(optinc_wait(request, -1, &result), c->error);
	assert_says(c->says);
	assert_int_equal(result.error, c->error);
	assert_int_equal(result.status, c->how.status);
	assert_int_equal(result.tag, 0x1234);
	if (c->how.status >= OPTINC_ST_PEER_LOST)
		assert_int_equal(result.peer, named ? c->how.peer : -1);
	assert_int_equal(group_error(), c->ends ? c->error : 0);

	optinc_why(card, &why);
	assert_int_equal(why.used, 0);
	assert_int_equal(why.reason, c->how.status >= OPTINC_ST_RESET ? OPTINC_REASON_CARD_FAILED :
			 c->ends ? OPTINC_REASON_EPOCH_ENDED : OPTINC_REASON_REFUSED);

	/* Goes on, or wants a rejoin. */
	assert_int_equal(optinc_ibarrier(group, NULL, &next), c->ends ? -ESTALE : 0);
	if (c->ends) {
		assert_null(next);
		assert_int_equal(optinc_group_rejoin(group), 0);
		next = start(1);
	}
	assert_int_equal(group_error(), 0);
	assert_true(fake_complete(0, NULL));
	assert_int_equal(optinc_wait(next, -1, NULL), 0);
	optinc_why(card, &why);
	assert_int_equal(why.reason, OPTINC_REASON_USED);
	assert_int_equal(why.used, 1);
}

static void test_statuses(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(status_cases) / sizeof(status_cases[0]); i++)
		check_status(&status_cases[i]);
}

static void test_result_fields(void **state)
{
	struct optinc_result result;
	struct optinc_options options = { .tag = 0xfeedbeef };

	(void)state;
	memset(&result, 0xff, sizeof(result));
	assert_int_equal(optinc_allreduce(group, in, out, 8, OPTINC_F32, OPTINC_MEAN, &options,
					  &result), 0);
	assert_int_equal(result.error, 0);
	assert_int_equal(result.status, OPTINC_ST_SUCCESS);
	assert_int_equal(result.peer, -1);
	assert_int_equal(result.mismatch, 0);
	assert_int_equal(result.tag, 0xfeedbeef);
	assert_int_equal(result.nonfinite, 3);
	assert_int_equal(result.saturated, 5);
	assert_int_equal(result.wire_ns, 42);
	assert_int_equal(result.device_ns, 100);
	assert_memory_equal(in, out, sizeof(in));
}

/* After an error the sentence of the error that ended the epoch is told again. */
static void test_epoch_ended_tells_why(void **state)
{
	struct fake_completion how = { .status = OPTINC_ST_PEER_LOST, .peer = 2 };
	struct optinc_request *request;

	(void)state;
	fake.mode = FAKE_HOLD;
	request = start(0);
	fake_complete(0, &how);
	assert_int_equal(optinc_wait(request, -1, NULL), -ECONNRESET);
	assert_int_equal(optinc_barrier(group, NULL, NULL), -ESTALE);
	assert_says("rank 2 was lost");
	assert_int_equal(fake_pending(), 0);
}

/* --------------------------------------------------------------- hostile */

/* The completion @how fails the group, both requests of it, and no more. */
static void check_hostile(const struct fake_completion *how, const char *says)
{
	struct optinc_request *a, *b;
	struct optinc_result result;
	unsigned int destroyed = fake.ioctls[IOCTL(QP_DESTROY)];
	unsigned int left = fake.ioctls[IOCTL(GROUP_LEAVE)];

	fake.mode = FAKE_HOLD;
	a = start(1);
	b = start(2);
	assert_true(fake_complete(0, how));
	assert_int_equal(optinc_wait(b, -1, &result), -EIO);
	assert_says(says);
	assert_int_equal(result.status, OPTINC_ST_INTERNAL);
	assert_int_equal(result.tag, 2);
	assert_int_equal(group_error(), -EIO);
	/* Fenced before the requests ended: their memory is the caller's again. */
	assert_int_equal(fake.ioctls[IOCTL(QP_DESTROY)], destroyed + 1);
	assert_int_equal(fake.ioctls[IOCTL(GROUP_LEAVE)], left + 1);
	assert_int_equal(optinc_wait(a, -1, NULL), how->twice ? 0 : -EIO);
	assert_int_equal(optinc_barrier(group, NULL, NULL), -ESTALE);

	assert_int_equal(optinc_group_rejoin(group), 0);
	fake.mode = FAKE_AT_ONCE;
	assert_int_equal(optinc_barrier(group, NULL, NULL), 0);
}

static void test_hostile_completions(void **state)
{
	struct fake_completion wrong_index = { .cmd_id_xor = 0x000f };
	struct fake_completion wrong_generation = { .cmd_id_xor = 0x8000 };
	struct fake_completion anything = { .cmd_id_xor = 0xffff };
	struct fake_completion wrong_tag = { .tag_xor = 0x80 };
	struct fake_completion ahead = { .sq_head_add = 1 };
	struct fake_completion behind = { .sq_head_add = 0xfff0 };
	struct fake_completion twice = { .twice = true };
	struct fake_completion no_status = { .status = 0x7fff };
	struct fake_completion gap = { .status = 0x08 };

	(void)state;
	check_hostile(&wrong_index, "not outstanding");
	check_hostile(&wrong_generation, "not outstanding");
	check_hostile(&anything, "not outstanding");
	check_hostile(&wrong_tag, "tag");
	check_hostile(&ahead, "claims to have taken");
	check_hostile(&behind, "claims to have taken");
	check_hostile(&twice, "not outstanding");
	check_hostile(&no_status, "status that does not exist (0x7fff)");
	check_hostile(&gap, "status that does not exist (0x8)");
}

/* An entry of the last pass is not a completion. */
static void test_old_phase(void **state)
{
	struct fake_completion old = { .old_phase = true };
	struct optinc_request *request;

	(void)state;
	fake.mode = FAKE_HOLD;
	request = start(1);
	fake_complete(0, &old);
	assert_int_equal(optinc_test(request, NULL), 0);
	assert_int_equal(optinc_wait(request, 20, NULL), -EAGAIN);
	assert_int_equal(group_error(), 0);
}

static void test_out_of_order(void **state)
{
	struct optinc_request *r[5];
	struct optinc_result result;
	const unsigned int order[] = { 3, 0, 2, 0, 0 };
	unsigned int i;

	(void)state;
	fake.mode = FAKE_HOLD;
	for (i = 0; i < 5; i++)
		r[i] = start(i);
	for (i = 0; i < 5; i++)
		assert_true(fake_complete(order[i], NULL));
	for (i = 0; i < 5; i++) {
		assert_int_equal(optinc_wait(r[i], -1, &result), 0);
		assert_int_equal(result.tag, i);
	}
}

/* A card that takes requests and never completes them does not hang anyone. */
static void test_silent_card(void **state)
{
	struct optinc_group_params params;
	struct optinc_group *silent;
	double begin;

	(void)state;
	fake_params(&params);
	params.deadline_ms = 1;
	assert_int_equal(optinc_group_join(card, &params, sizeof(params), &silent), 0);
	fake.mode = FAKE_HOLD;
	begin = seconds();
	assert_int_equal(optinc_barrier(silent, NULL, NULL), -EIO);
	assert_says("stopped answering");
	assert_true(seconds() - begin > 4.9 && seconds() - begin < 9);
	assert_int_equal(optinc_barrier(silent, NULL, NULL), -ESTALE);
	optinc_group_leave(silent);
}

/* A card that is pulled writes no completions; its driver says so. */
static void test_card_gone(void **state)
{
	double begin = seconds();

	(void)state;
	fake.mode = FAKE_HOLD;
	fake.ioctl_error[IOCTL(QUERY)] = -ENODEV;
	assert_int_equal(optinc_barrier(group, NULL, NULL), -ENODEV);
	assert_says("open it again");
	assert_true(seconds() - begin < 5);
	assert_int_equal(group_error(), -ENODEV);
}

static void test_wait_fails(void **state)
{
	(void)state;
	fake.mode = FAKE_HOLD;
	fake.wait_error = -ENODEV;
	assert_int_equal(optinc_barrier(group, NULL, NULL), -ENODEV);
	fake.wait_error = 0;
	assert_int_equal(optinc_group_rejoin(group), 0);
	fake.wait_error = -EBADF;
	assert_int_equal(optinc_barrier(group, NULL, NULL), -EIO);
	assert_says("waiting for the card failed");
}

/* ---------------------------------------------------------------- credit */

static void test_credit(void **state)
{
	struct optinc_request *r[8], *more;
	unsigned int i;

	(void)state;
	fake.mode = FAKE_HOLD;
	for (i = 0; i < 8; i++)
		r[i] = start(i);
	assert_int_equal(optinc_ibarrier(group, NULL, &more), -EAGAIN);
	assert_null(more);
	assert_says("8 requests are outstanding");
	assert_int_equal(fake_pending(), 8);
	/* Done is not ended: the room is that of results nobody has looked at. */
	fake_complete(0, NULL);
	assert_int_equal(optinc_ibarrier(group, NULL, &more), -EAGAIN);
	assert_int_equal(optinc_wait(r[0], -1, NULL), 0);
	r[0] = start(8);
	assert_int_equal(optinc_ibarrier(group, NULL, &more), -EAGAIN);
	while (fake_pending())
		fake_complete(0, NULL);
	/* Blocking calls get through all the same. */
	fake.mode = FAKE_AT_ONCE;
	for (i = 0; i < 20; i++)
		assert_int_equal(optinc_barrier(group, NULL, NULL), 0);
	for (i = 0; i < 8; i++)
		assert_int_equal(optinc_wait(r[i], -1, NULL), 0);
}

/* A blocking call with the queue full waits for room instead of failing. */
static void *complete_later(void *arg)
{
	(void)arg;
	usleep(30000);
	while (fake_complete(0, NULL))
		;
	usleep(30000);
	while (fake_complete(0, NULL))
		;
	return NULL;
}

static void test_blocking_waits_for_room(void **state)
{
	struct optinc_request *r[8];
	pthread_t thread;
	unsigned int i;

	(void)state;
	fake.mode = FAKE_HOLD;
	for (i = 0; i < 8; i++)
		r[i] = start(i);
	assert_int_equal(pthread_create(&thread, NULL, complete_later, NULL), 0);
	assert_int_equal(optinc_barrier(group, NULL, NULL), 0);
	pthread_join(thread, NULL);
	for (i = 0; i < 8; i++)
		assert_int_equal(optinc_test(r[i], NULL), 1);
}

/* Indices run over 16 bits, rings wrap, phases turn; a doorbell for each, and no more. */
static void test_many(void **state)
{
	const unsigned int n = 70000;
	struct optinc_result result;
	struct optinc_options options = { 0 };
	unsigned int i;

	(void)state;
	for (i = 0; i < n; i++) {
		options.tag = i;
		assert_int_equal(optinc_barrier(group, &options, &result), 0);
		assert_int_equal(result.tag, i);
	}
	assert_int_equal(fake.doorbells[0], n);
	assert_int_equal(fake.doorbells[1], 0);
	assert_int_equal(fake.overruns, 0);
}

/* A batch costs one doorbell, at its outermost end. */
static void test_batch(void **state)
{
	struct optinc_request *r[8];
	unsigned int i;

	(void)state;
	for (unsigned int round = 0; round < 100; round++) {
		assert_int_equal(optinc_batch_begin(group), 0);
		assert_int_equal(optinc_batch_begin(group), 0);
		for (i = 0; i < 8; i++)
			r[i] = start(i);
		assert_int_equal(optinc_batch_end(group), 0);
		assert_int_equal(fake.doorbells[0], round);
		assert_int_equal(optinc_batch_end(group), 0);
		assert_int_equal(fake.doorbells[0], round + 1);
		for (i = 0; i < 8; i++)
			assert_int_equal(optinc_wait(r[i], -1, NULL), 0);
	}
	assert_int_equal(fake.doorbells[0], 100);
	assert_int_equal(fake.doorbells[1], 0);
	/* an empty one costs nothing */
	assert_int_equal(optinc_batch_begin(group), 0);
	assert_int_equal(optinc_batch_end(group), 0);
	assert_int_equal(fake.doorbells[0], 100);
	assert_int_equal(optinc_batch_end(group), -EINVAL);
	assert_says("no batch");
	assert_int_equal(optinc_batch_begin(NULL), -EINVAL);
	assert_int_equal(optinc_batch_end(NULL), -EINVAL);
}

/* Whoever wants something of a batch's requests announces them. */
static void test_batch_is_not_waited_for(void **state)
{
	struct optinc_group *other = fake_join(card, 8);
	struct optinc_request *r[8], *more;
	struct pollfd pfd;
	size_t index;
	unsigned int i;

	(void)state;
	assert_int_equal(optinc_batch_begin(group), 0);
	r[0] = start(0);
	assert_int_equal(optinc_wait(r[0], -1, NULL), 0);
	r[0] = start(0);
	assert_int_equal(optinc_test(r[0], NULL), 1);
	r[0] = start(0);
	assert_int_equal(optinc_wait_any(r, 1, -1, &index, NULL), 0);
	r[0] = start(0);
	r[1] = start_in(other, 0);
	assert_int_equal(fake.doorbells[0], 4);		/* the other group's */
	assert_int_equal(optinc_wait_any(r, 2, -1, &index, NULL), 0);
	assert_int_equal(optinc_wait_any(r, 2, -1, &index, NULL), 0);
	assert_int_equal(fake.doorbells[0], 5);
	assert_int_equal(optinc_barrier(group, NULL, NULL), 0);
	/* a full queue */
	for (i = 0; i < 8; i++)
		r[i] = start(i);
	assert_int_equal(optinc_ibarrier(group, NULL, &more), -EAGAIN);
	for (i = 0; i < 8; i++)
		assert_int_equal(optinc_test(r[i], NULL), 1);
	/* a descriptor is readable once the batch has ended */
	pfd = (struct pollfd){ .fd = optinc_group_fd(group), .events = POLLIN };
	r[0] = start(0);
	assert_int_equal(poll(&pfd, 1, 10), 0);
	assert_int_equal(optinc_batch_end(group), 0);
	assert_int_equal(poll(&pfd, 1, 5000), 1);
	assert_int_equal(optinc_test(r[0], NULL), 1);
	/* who leaves or gives up leaves nothing in the ring */
	assert_int_equal(optinc_batch_begin(group), 0);
	fake.mode = FAKE_HOLD;
	r[0] = start(0);
	assert_int_equal(optinc_group_abort(group), 0);
	assert_int_equal(optinc_wait(r[0], -1, NULL), -ECONNABORTED);
	assert_int_equal(optinc_batch_begin(other), 0);
	r[1] = start_in(other, 1);
	i = fake.doorbells[0];
	optinc_group_leave(other);
	assert_int_equal(fake.doorbells[0], i + 1);
}

/* The largest queue, full again and again; what is done is not seen at once. */
static void test_full_queue(void **state)
{
	struct optinc_group *large = fake_join(card, 1024);
	static struct optinc_request *r[1024];
	unsigned int i, round;

	(void)state;
	assert_int_equal(fake.create.sq_entries, 1024);
	assert_int_equal(fake.create.cq_entries, 1024);
	for (round = 0; round < 5; round++) {
		fake.mode = FAKE_AT_ONCE;
		assert_int_equal(optinc_barrier(large, NULL, NULL), 0);
		fake.mode = FAKE_HOLD;
		for (i = 0; i < 1024; i++)
			r[i] = start_in(large, i);
		while (fake_complete(0, NULL))
			;
		for (i = 0; i < 1024 - 100 * round; i++)
			assert_int_equal(optinc_wait(r[i], -1, NULL), 0);
		for (; i < 1024; i++)
			assert_int_equal(optinc_test(r[i], NULL), 1);
	}
	assert_int_equal(fake.overruns, 0);
	optinc_group_leave(large);
}

/* ------------------------------------------------------- test, wait, any */

static void test_test_and_wait(void **state)
{
	struct optinc_request *request;
	struct optinc_result result;
	double begin;

	(void)state;
	fake.mode = FAKE_HOLD;
	request = start(7);
	assert_int_equal(optinc_test(request, &result), 0);
	assert_int_equal(optinc_wait(request, 0, &result), -EAGAIN);
	begin = seconds();
	assert_int_equal(optinc_wait(request, 50, &result), -EAGAIN);
	assert_true(seconds() - begin >= 0.049 && seconds() - begin < 2);
	fake_complete(0, NULL);
	assert_int_equal(optinc_test(request, &result), 1);
	assert_int_equal(result.tag, 7);

	request = start(8);
	fake_complete(0, NULL);
	assert_int_equal(optinc_wait(request, 0, &result), 0);
	assert_int_equal(optinc_test(NULL, NULL), -EINVAL);
	assert_int_equal(optinc_wait(NULL, 0, NULL), -EINVAL);
	assert_int_equal(optinc_cancel(NULL), -EINVAL);
}

/* Polling alone drives a card that works in the caller's time. */
static void test_polling_makes_progress(void **state)
{
	struct optinc_request *r[3];
	size_t index;

	(void)state;
	fake.mode = FAKE_ON_RELAX;
	r[0] = start(0);
	assert_int_equal(optinc_test(r[0], NULL), 1);
	r[0] = start(0);
	assert_int_equal(optinc_wait(r[0], 0, NULL), 0);
	r[0] = NULL;
	r[1] = start(1);
	r[2] = start(2);
	assert_int_equal(optinc_wait_any(r, 3, 0, &index, NULL), 0);
	assert_int_equal(index, 1);
	assert_int_equal(optinc_wait_any(r, 3, 0, &index, NULL), 0);
	assert_int_equal(index, 2);
}

static void test_wait_any(void **state)
{
	struct optinc_request *r[4];
	struct optinc_result result;
	size_t index = 99;

	(void)state;
	fake.mode = FAKE_HOLD;
	r[0] = start(10);
	r[1] = NULL;
	r[2] = start(12);
	r[3] = start(13);
	assert_int_equal(optinc_wait_any(r, 4, 20, &index, &result), -EAGAIN);
	fake_complete_tag(12, NULL);
	assert_int_equal(optinc_wait_any(r, 4, -1, &index, &result), 0);
	assert_int_equal(index, 2);
	assert_int_equal(result.tag, 12);
	assert_null(r[2]);
	fake_complete_tag(13, &(struct fake_completion) { .status = OPTINC_ST_TIMEOUT, .peer = 0 });
	assert_int_equal(optinc_wait_any(r, 4, -1, &index, &result), -ETIMEDOUT);
	assert_int_equal(index, 3);
	fake_complete(0, NULL);
	assert_int_equal(optinc_wait_any(r, 4, -1, &index, NULL), 0);
	assert_int_equal(index, 0);
	assert_int_equal(optinc_wait_any(r, 4, -1, &index, NULL), -EINVAL);
	assert_int_equal(optinc_wait_any(NULL, 1, -1, &index, NULL), -EINVAL);
}

static void *complete_tag_later(void *arg)
{
	usleep(50000);
	assert_true(fake_complete_tag((uint32_t)(uintptr_t)arg, NULL));
	return NULL;
}

static void test_wait_any_of_groups(void **state)
{
	struct optinc_group *other = fake_join(card, 8);
	struct optinc_request *r[2];
	struct optinc_result result;
	pthread_t thread;
	size_t index;

	(void)state;
	fake.mode = FAKE_HOLD;
	r[0] = start(1);
	r[1] = start_in(other, 2);
	assert_int_equal(optinc_wait_any(r, 2, 30, &index, &result), -EAGAIN);
	pthread_create(&thread, NULL, complete_tag_later, (void *)2);
	assert_int_equal(optinc_wait_any(r, 2, -1, &index, &result), 0);
	assert_int_equal(index, 1);
	assert_int_equal(result.tag, 2);
	pthread_join(thread, NULL);
	r[1] = start_in(other, 3);
	pthread_create(&thread, NULL, complete_tag_later, (void *)1);
	assert_int_equal(optinc_wait_any(r, 2, -1, &index, &result), 0);
	assert_int_equal(index, 0);
	pthread_join(thread, NULL);
	fake_complete_tag(3, NULL);
	assert_int_equal(optinc_wait_any(r, 2, 0, &index, &result), 0);
	assert_int_equal(index, 1);
	optinc_group_leave(other);
}

/* --------------------------------------------------------- cancel, abort */

static void test_cancel(void **state)
{
	struct optinc_request *a, *b, *done;
	struct optinc_result result;

	(void)state;
	fake.mode = FAKE_HOLD;
	done = start(0);
	a = start(1);
	b = start(2);
	fake_complete(0, NULL);
	assert_int_equal(optinc_cancel(a), 0);
	assert_int_equal(fake.ioctls[IOCTL(GROUP_ABORT)], 1);
	assert_int_equal(optinc_wait(a, -1, &result), -ECANCELED);
	assert_says("cancelled");
	assert_int_equal(result.status, OPTINC_ST_ABORTED);
	assert_int_equal(optinc_wait(b, -1, NULL), -ECANCELED);
	/* What was done before stays done. */
	assert_int_equal(optinc_wait(done, -1, NULL), 0);
	assert_int_equal(group_error(), -ECANCELED);
	assert_int_equal(optinc_barrier(group, NULL, NULL), -ESTALE);
	assert_int_equal(optinc_group_rejoin(group), 0);

	/* In the new epoch somebody else's abort is not a cancellation. */
	a = start(3);
	fake_complete(0, &(struct fake_completion) { .status = OPTINC_ST_ABORTED, .peer = 0 });
	assert_int_equal(optinc_wait(a, -1, NULL), -ECONNABORTED);
}

/* Nothing to take back: the group goes on. */
static void test_cancel_done(void **state)
{
	struct optinc_request *a;

	(void)state;
	fake.mode = FAKE_HOLD;
	a = start(1);
	fake_complete(0, NULL);
	assert_int_equal(optinc_cancel(a), 0);
	assert_int_equal(fake.ioctls[IOCTL(GROUP_ABORT)], 0);
	assert_int_equal(optinc_wait(a, -1, NULL), 0);
	assert_int_equal(group_error(), 0);
}

static void test_abort_and_rejoin(void **state)
{
	struct optinc_request *a;
	struct optinc_group_info info;

	(void)state;
	fake.mode = FAKE_HOLD;
	a = start(1);
	assert_int_equal(optinc_group_abort(group), 0);
	assert_int_equal(optinc_group_abort(group), 0);
	assert_int_equal(fake.ioctls[IOCTL(GROUP_ABORT)], 1);
	assert_int_equal(optinc_wait(a, -1, NULL), -ECONNABORTED);
	assert_int_equal(optinc_group_rejoin(group), 0);
	optinc_group_info(group, &info, sizeof(info));
	assert_int_equal(info.epoch, 2);
	assert_int_equal(info.error, 0);
	/* The same queue pair serves the new epoch. */
	assert_int_equal(fake.ioctls[IOCTL(QP_CREATE)], 1);
}

/* Requests outstanding at a rejoin are completed first and can be waited for. */
static void test_rejoin_completes(void **state)
{
	struct optinc_request *a, *b;

	(void)state;
	fake.mode = FAKE_HOLD;
	a = start(1);
	assert_int_equal(optinc_group_rejoin(group), 0);
	b = start(2);
	assert_int_equal(optinc_wait(a, -1, NULL), -ECONNABORTED);
	assert_int_equal(group_error(), 0);
	fake_complete(0, NULL);
	assert_int_equal(optinc_wait(b, -1, NULL), 0);

	/* A card that leaves without completing gets a new queue pair. */
	a = start(3);
	fake.leave_forgets = true;
	assert_int_equal(optinc_group_rejoin(group), 0);
	fake.leave_forgets = false;
	assert_int_equal(optinc_wait(a, -1, NULL), -EIO);
	assert_int_equal(fake.ioctls[IOCTL(QP_CREATE)], 2);
	fake.mode = FAKE_AT_ONCE;
	assert_int_equal(optinc_barrier(group, NULL, NULL), 0);
}

static void test_failed_rejoin(void **state)
{
	(void)state;
	fake.group_says = (struct optinc_group_wait) {
		.state = OPTINC_GROUP_FAILED, .status = OPTINC_ST_TIMEOUT, .peer = 2, .joined = 3,
	};
	assert_int_equal(optinc_group_rejoin(group), -ETIMEDOUT);
	assert_says("rank 2 has not joined within 10000 ms");
	assert_int_equal(optinc_barrier(group, NULL, NULL), -ESTALE);
	assert_says("rank 2 has not joined");
	assert_int_equal(fake.live_groups, 0);
	fake.group_says.state = OPTINC_GROUP_READY;
	assert_int_equal(optinc_group_rejoin(group), 0);
	assert_int_equal(optinc_barrier(group, NULL, NULL), 0);
}

/* A card that does not obey is not waited for. */
static void test_abort_fails(void **state)
{
	struct optinc_request *a;

	(void)state;
	fake.mode = FAKE_HOLD;
	a = start(1);
	fake.ioctl_error[IOCTL(GROUP_ABORT)] = -EIO;
	assert_int_equal(optinc_cancel(a), 0);
	assert_int_equal(optinc_wait(a, -1, NULL), -EIO);
	fake.ioctl_error[IOCTL(GROUP_ABORT)] = 0;
	assert_int_equal(optinc_group_rejoin(group), 0);
}

static void test_leave_with_outstanding(void **state)
{
	struct optinc_group *other = fake_join(card, 8);

	(void)state;
	fake.mode = FAKE_HOLD;
	start_in(other, 1);
	start_in(other, 2);
	fake_complete(0, NULL);
	optinc_group_leave(other);
	optinc_group_leave(NULL);
	assert_int_equal(fake.live_groups, 1);
	assert_int_equal(fake.live_qps, 1);
}

/* ------------------------------------------------------------ descriptor */

static bool readable(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1;
}

/* Readable exactly while a request is done whose result nobody has taken. */
static void test_group_fd(void **state)
{
	struct optinc_request *a, *b;
	int fd = optinc_group_fd(group);

	(void)state;
	assert_true(fd >= 0);
	fake.mode = FAKE_HOLD;
	assert_false(readable(fd));
	a = start(1);
	b = start(2);
	assert_false(readable(fd));
	fake_complete(0, NULL);
	assert_true(readable(fd));
	assert_int_equal(optinc_test(b, NULL), 0);
	assert_true(readable(fd));	/* a is still to be taken */
	assert_int_equal(optinc_test(a, NULL), 1);
	assert_false(readable(fd));
	fake_complete(0, NULL);
	assert_true(readable(fd));	/* armed again by the test */
	assert_int_equal(optinc_wait(b, -1, NULL), 0);
	assert_false(readable(fd));

	/* Spurious wake-ups end with the next test. */
	a = start(3);
	b = start(4);
	fake_complete(0, NULL);
	fake_complete(0, NULL);
	assert_int_equal(optinc_test(a, NULL), 1);
	assert_true(readable(fd));
	assert_int_equal(optinc_test(b, NULL), 1);
	assert_false(readable(fd));

	/* Another thread's blocking call, which drains it, loses nothing. */
	optinc_card_set(card, OPTINC_OPTION_SPIN_US, 0);
	a = start(5);
	fake.mode = FAKE_ON_RELAX;
	assert_int_equal(optinc_barrier(group, NULL, NULL), 0);
	assert_true(readable(fd));
	assert_int_equal(optinc_test(a, NULL), 1);
	assert_false(readable(fd));
}

/* -------------------------------------------------------------- the knob */

static void test_spin(void **state)
{
	struct optinc_request *request;

	(void)state;
	fake.mode = FAKE_HOLD;
	optinc_card_set(card, OPTINC_OPTION_SPIN_US, 0);
	request = start(1);
	assert_int_equal(optinc_wait(request, 10, NULL), -EAGAIN);
	assert_true(fake.waits >= 1);
	assert_true(fake.relaxes <= 1);	/* the last look */

	optinc_card_set(card, OPTINC_OPTION_SPIN_US, 1000000);
	fake.waits = fake.relaxes = 0;
	assert_int_equal(optinc_wait(request, 10, NULL), -EAGAIN);
	assert_int_equal(fake.waits, 0);
	assert_true(fake.relaxes > 100);

	/* In between: some looks, then sleep. */
	optinc_card_set(card, OPTINC_OPTION_SPIN_US, 200);
	fake.waits = fake.relaxes = 0;
	assert_int_equal(optinc_wait(request, 50, NULL), -EAGAIN);
	assert_true(fake.relaxes >= 32);
	assert_true(fake.waits >= 1);
	fake_complete(0, NULL);
	assert_int_equal(optinc_wait(request, -1, NULL), 0);
}

#define TEST(name)	cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_statuses),
		TEST(test_result_fields),
		TEST(test_epoch_ended_tells_why),
		TEST(test_hostile_completions),
		TEST(test_old_phase),
		TEST(test_out_of_order),
		TEST(test_silent_card),
		TEST(test_card_gone),
		TEST(test_wait_fails),
		TEST(test_credit),
		TEST(test_blocking_waits_for_room),
		TEST(test_many),
		TEST(test_batch),
		TEST(test_batch_is_not_waited_for),
		TEST(test_full_queue),
		TEST(test_test_and_wait),
		TEST(test_polling_makes_progress),
		TEST(test_wait_any),
		TEST(test_wait_any_of_groups),
		TEST(test_cancel),
		TEST(test_cancel_done),
		TEST(test_abort_and_rejoin),
		TEST(test_rejoin_completes),
		TEST(test_failed_rejoin),
		TEST(test_abort_fails),
		TEST(test_leave_with_outstanding),
		TEST(test_group_fd),
		TEST(test_spin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
