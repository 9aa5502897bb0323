// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What is wrong with a call is told by the call: the errno, the argument's
 * name, and nothing submitted. And the parameters of a group: checked,
 * completed, compared, and what a failed join says.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fake_provider.h"

#define IOCTL(x)	(OPTINC_IOCTL_##x & 0xff)

static struct optinc_card *card;
static struct optinc_group *group;	/* 8 bits */
static _Alignas(64) uint8_t a[8192], b[8192];

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
	memset(fake.ioctl_error, 0, sizeof(fake.ioctl_error));
	optinc_close(card);
	return fake.live_mrs || fake.live_qps || fake.live_groups || fake.live_maps ? -1 : 0;
}

static void assert_begins(const char *with)
{
	if (strncmp(optinc_last_error(), with, strlen(with)))
		fail_msg("\"%s\" does not begin with \"%s\"", optinc_last_error(), with);
}

static void assert_says(const char *part)
{
	if (!strstr(optinc_last_error(), part))
		fail_msg("\"%s\" does not say \"%s\"", optinc_last_error(), part);
}

/* ------------------------------------------------------------ collectives */

struct bad_call {
	const char *argument;
	int error;
	void *send, *recv;
	size_t count;
	enum optinc_dtype dtype;
	enum optinc_redop redop;
	struct optinc_options options;
};

#define F32	.dtype = OPTINC_F32, .redop = OPTINC_MEAN
#define FLAGS(f)	.options.flags = (f)

static const struct bad_call bad_calls[] = {
	{ "send:", -EINVAL, NULL, b, 4, F32 },
	{ "recv:", -EINVAL, a, NULL, 4, F32 },
	{ "send:", -EINVAL, a + 2, b, 4, F32 },
	{ "recv:", -EINVAL, a, b + 1, 4, F32 },
	{ "send:", -EINVAL, a + 1, b, 4, .dtype = OPTINC_F16 },
	{ "recv:", -EINVAL, a, b + 1, 4, .dtype = OPTINC_I8, .redop = OPTINC_SUM },
	{ "send:", -EINVAL, (void *)(uintptr_t)-64, b, 64, F32 },
	/* overlap, from either side */
	{ "recv:", -EINVAL, a, a + 4, 4, F32 },
	{ "recv:", -EINVAL, a + 4, a, 4, F32 },
	{ "recv:", -EINVAL, a, a + 12, 4, F32 },
	/* in place with a larger result */
	{ "recv:", -EINVAL, a, a, 4, .dtype = OPTINC_I8, .redop = OPTINC_SUM },
	{ "recv:", -EINVAL, a, a, 64, .dtype = OPTINC_BIT, .redop = OPTINC_VOTE },
	{ "recv:", -EINVAL, a, a, 64, .dtype = OPTINC_BIT, .redop = OPTINC_VOTE,
	  FLAGS(OPTINC_SQE_SIGN | OPTINC_SQE_ABSTAIN) },
	{ "count:", -EINVAL, a, b, (1 << 24) + 1, F32 },
	{ "dtype:", -EINVAL, a, b, 4, .dtype = OPTINC_DTYPES },
	{ "dtype:", -EINVAL, a, b, 4, .dtype = (enum optinc_dtype)-1 },
	{ "dtype:", -EINVAL, a, b, 4, .dtype = OPTINC_U8 },
	{ "dtype:", -EOPNOTSUPP, a, b, 4, .dtype = OPTINC_I16 },
	{ "redop:", -EINVAL, a, b, 4, .dtype = OPTINC_F32, .redop = OPTINC_REDOPS },
	{ "redop:", -EINVAL, a, b, 4, .dtype = OPTINC_F32, .redop = OPTINC_VOTE },
	{ "redop:", -EINVAL, a, b, 4, .dtype = OPTINC_BIT, .redop = OPTINC_MEAN },
	{ "options.flags:", -EINVAL, a, b, 4, F32, FLAGS(1 << 4) },
	{ "options.flags:", -EINVAL, a, b, 4, F32, FLAGS(1U << 31) },
	{ "options.flags:", -EINVAL, a, b, 4, F32, FLAGS(OPTINC_SQE_SIGN) },
	{ "options.flags:", -EINVAL, a, b, 4, F32, FLAGS(OPTINC_SQE_EXPONENTS) },
	{ "options.flags:", -EINVAL, a, b, 4, .dtype = OPTINC_BIT, .redop = OPTINC_VOTE,
	  FLAGS(OPTINC_SQE_ABSTAIN) },
	{ "options.exponents:", -EINVAL, a, b, 4, .dtype = OPTINC_I8,
	  FLAGS(OPTINC_SQE_EXPONENTS) },
	{ "options.exponents:", -EINVAL, a, b, 4, .dtype = OPTINC_I8,
	  .options = { .flags = OPTINC_SQE_EXPONENTS, .exponents = b + 3 } },
};

static void test_bad_allreduce(void **state)
{
	struct optinc_request *request;
	struct optinc_result result;
	struct optinc_why why;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad_calls) / sizeof(bad_calls[0]); i++) {
		const struct bad_call *c = &bad_calls[i];

		memset(&result, 0xff, sizeof(result));
		if (optinc_allreduce(group, c->send, c->recv, c->count, c->dtype, c->redop,
				     &c->options, &result) != c->error)
			fail_msg("case %zu: \"%s\"", i, optinc_last_error());
		assert_begins(c->argument);
		assert_int_equal(result.error, c->error);
		assert_int_equal(result.peer, -1);
		optinc_why(card, &why);
		assert_int_equal(why.reason, OPTINC_REASON_REFUSED);
		assert_string_equal(why.text, optinc_last_error());
		request = (struct optinc_request *)&result;
		assert_int_equal(optinc_iallreduce(group, c->send, c->recv, c->count, c->dtype,
						   c->redop, &c->options, &request), c->error);
		assert_null(request);
	}
	/* Nothing was submitted, and the group goes on. */
	assert_int_equal(fake.doorbells[0], 0);
	assert_int_equal(optinc_allreduce(group, a, b, 4, OPTINC_F32, OPTINC_MEAN, NULL, NULL), 0);
}

static void test_bad_others(void **state)
{
	struct optinc_options parity = { .flags = OPTINC_SQE_PARITY };
	struct optinc_request *request;

	(void)state;
	assert_int_equal(optinc_broadcast(group, a, 4, 3, NULL, NULL), -EINVAL);
	assert_begins("root:");
	assert_int_equal(optinc_broadcast(group, NULL, 4, 0, NULL, NULL), -EINVAL);
	assert_begins("buffer:");
	assert_int_equal(optinc_broadcast(group, a, (1 << 24) + 1, 0, NULL, NULL), -EINVAL);
	assert_begins("bytes:");
	assert_int_equal(optinc_broadcast(group, a, 4, 0, &parity, NULL), -EINVAL);
	assert_begins("options.flags:");
	assert_int_equal(optinc_allreduce(group, a, b, 4, OPTINC_BIT, OPTINC_VOTE, &parity, NULL),
			 -EINVAL);
	assert_begins("options.flags: OPTINC_SQE_PARITY");
	assert_int_equal(optinc_barrier(group, &parity, NULL), -EINVAL);
	assert_begins("options.flags:");
	assert_int_equal(optinc_exponent_max(group, NULL, 1, NULL, NULL), -EINVAL);
	assert_begins("exponents:");
	assert_int_equal(optinc_exponent_max(group, a, (1 << 24) + 1, NULL, NULL), -EINVAL);
	assert_begins("blocks:");
	assert_int_equal(optinc_allreduce(NULL, a, b, 4, OPTINC_F32, OPTINC_MEAN, NULL, NULL),
			 -EINVAL);
	assert_begins("group:");
	assert_int_equal(optinc_barrier(NULL, NULL, NULL), -EINVAL);
	assert_int_equal(optinc_broadcast(NULL, a, 1, 0, NULL, NULL), -EINVAL);
	assert_int_equal(optinc_exponent_max(NULL, a, 1, NULL, NULL), -EINVAL);
	assert_int_equal(optinc_ibarrier(group, NULL, NULL), -EINVAL);
	assert_begins("request:");
	assert_int_equal(optinc_ibroadcast(group, a, 4, 3, NULL, &request), -EINVAL);
	assert_int_equal(optinc_iexponent_max(group, NULL, 4, NULL, &request), -EINVAL);
	assert_null(request);
	assert_int_equal(fake.doorbells[0], 0);
}

static void test_card_does_not(void **state)
{
	struct optinc_group_params p;
	struct optinc_group *narrow;

	(void)state;
	fake_params(&p);
	p.dtypes = 1 << OPTINC_F32;
	assert_int_equal(optinc_group_join(card, &p, sizeof(p), &narrow), 0);
	assert_int_equal(optinc_allreduce(narrow, a, b, 4, OPTINC_F16, OPTINC_MEAN, NULL, NULL),
			 -EOPNOTSUPP);
	assert_begins("dtype: the group was joined without f16");
	/* what a group may reduce does not bound what it may broadcast */
	assert_int_equal(optinc_broadcast(narrow, a, 4, 0, NULL, NULL), 0);
	assert_int_equal(optinc_allreduce(narrow, a, b, 4, OPTINC_F32, OPTINC_MEAN, NULL, NULL), 0);
	optinc_group_leave(narrow);
	optinc_close(card);

	fake.query.redops = 1 << OPTINC_MEAN;
	card = fake_card();
	group = fake_join(card, 8);
	assert_int_equal(optinc_allreduce(group, a, b, 4, OPTINC_F32, OPTINC_SUM, NULL, NULL),
			 -EOPNOTSUPP);
	assert_begins("redop: the card does not do sum");
}

/* No elements, no memory: still a request that all ranks take part in. */
static void test_zero_count(void **state)
{
	struct optinc_options options = { .flags = OPTINC_SQE_EXPONENTS };

	(void)state;
	assert_int_equal(optinc_allreduce(group, NULL, NULL, 0, OPTINC_F32, OPTINC_MEAN, NULL,
					  NULL), 0);
	assert_int_equal(fake.sqe.src_mr, 0);
	assert_int_equal(fake.sqe.dst_mr, 0);
	assert_int_equal(fake.sqe.count, 0);
	assert_int_equal(optinc_allreduce(group, a + 1, a + 1, 0, OPTINC_I8, OPTINC_SUM, &options,
					  NULL), 0);
	assert_int_equal(fake.sqe.exp_mr, 0);
	assert_int_equal(optinc_broadcast(group, NULL, 0, 0, NULL, NULL), 0);
	assert_int_equal(optinc_exponent_max(group, NULL, 0, NULL, NULL), 0);
	assert_int_equal(fake.doorbells[0], 4);
	assert_int_equal(fake.ioctls[IOCTL(MR_REG)], 0);
}

static void test_adjacent_is_not_overlap(void **state)
{
	(void)state;
	assert_int_equal(optinc_allreduce(group, a, a + 16, 4, OPTINC_F32, OPTINC_MEAN, NULL, NULL),
			 0);
	assert_int_equal(optinc_allreduce(group, a + 16, a, 4, OPTINC_F32, OPTINC_MEAN, NULL, NULL),
			 0);
	assert_int_equal(optinc_allreduce(group, a, a, 4, OPTINC_F32, OPTINC_MEAN, NULL, NULL), 0);
	assert_int_equal(optinc_allreduce(group, a, a, 64, OPTINC_BIT, OPTINC_VOTE,
					  &(struct optinc_options) { .flags = OPTINC_SQE_SIGN },
					  NULL), 0);
}

/* The entry, field by field, as the card interface has it. */
static void test_submission_entry(void **state)
{
	struct optinc_options options = {
		.flags = OPTINC_SQE_PARITY, .tag = 0x01020304,
	};
	const uint8_t *raw = (const uint8_t *)&fake.sqe;

	(void)state;
	assert_int_equal(sizeof(fake.sqe), 64);
	assert_int_equal(optinc_allreduce(group, a, b, 0x123, OPTINC_BF16, OPTINC_SUM, &options,
					  NULL), 0);
	assert_int_equal(raw[0], OPTINC_OP_ALLREDUCE);
	assert_int_equal(raw[1], OPTINC_SQE_PARITY);
	assert_int_equal(raw[8], 4);		/* tag, little endian */
	assert_int_equal(raw[11], 1);
	assert_int_equal(raw[12], OPTINC_BF16);
	assert_int_equal(raw[13], OPTINC_SUM);
	assert_int_equal(raw[14], 0);
	assert_int_equal(raw[15], 0);
	assert_int_equal(raw[16], 0x23);	/* count */
	assert_int_equal(raw[17], 0x01);
	assert_memory_equal(raw + 60, "\0\0\0\0", 4);
	assert_int_equal(optinc_broadcast(group, a, 5, 2, NULL, NULL), 0);
	assert_int_equal(raw[0], OPTINC_OP_BROADCAST);
	assert_int_equal(raw[12], OPTINC_U8);
	assert_int_equal(raw[14], 2);
}

/* ------------------------------------------------------------------ join */

struct bad_params {
	const char *says;
	int error;
	size_t offset;
	uint64_t value;
	size_t width;
};

#define SET(field, value) \
	offsetof(struct optinc_group_params, field), value, \
	sizeof(((struct optinc_group_params *)NULL)->field)

static const struct bad_params bad_params[] = {
	{ "nranks: 1 ", -EINVAL, SET(nranks, 1) },
	{ "nranks: 17 ", -EINVAL, SET(nranks, 17) },
	{ "nranks: 5 ranks do not fit", -EINVAL, SET(nranks, 5) },
	{ "rank: 3 ", -EINVAL, SET(rank, 3) },
	{ "bits: ", -EINVAL, SET(bits, 12) },
	{ "deadline_ms: ", -EINVAL, SET(deadline_ms, 3600001) },
	{ "queue: 4097 ", -EINVAL, SET(queue, 4097) },
	{ "queue: 2000 is more than the card's 1024", -EINVAL, SET(queue, 2000) },
	{ "dtypes: bit 7 ", -EINVAL, SET(dtypes, 1 << 7) },
	{ "dtypes: bit 63 ", -EINVAL, SET(dtypes, 1ULL << 63) },
	{ "dtypes: i16 does not fit", -EINVAL, SET(dtypes, 1 << OPTINC_I16) },
};

static void test_bad_params(void **state)
{
	struct optinc_group_params p;
	struct optinc_group *g;
	struct optinc_why why;
	unsigned int joins = fake.ioctls[IOCTL(GROUP_JOIN)];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad_params) / sizeof(bad_params[0]); i++) {
		fake_params(&p);
		memcpy((char *)&p + bad_params[i].offset, &bad_params[i].value,
		       bad_params[i].width);
		assert_int_equal(optinc_group_join(card, &p, sizeof(p), &g), bad_params[i].error);
		assert_null(g);
		assert_begins(bad_params[i].says);
	}
	fake_params(&p);
	memset(p.key, 0, sizeof(p.key));
	assert_int_equal(optinc_group_join(card, &p, sizeof(p), &g), -EINVAL);
	assert_begins("key: ");
	optinc_why(card, &why);
	assert_int_equal(why.reason, OPTINC_REASON_GROUP_FAILED);
	assert_int_equal(optinc_group_join(NULL, &p, sizeof(p), &g), -EINVAL);
	assert_int_equal(optinc_group_join(card, NULL, sizeof(p), &g), -EINVAL);
	assert_int_equal(optinc_group_join(card, &p, sizeof(p), NULL), -EINVAL);
	assert_int_equal(fake.ioctls[IOCTL(GROUP_JOIN)], joins);
}

static void test_defaults(void **state)
{
	struct optinc_group_params p;
	struct optinc_group_info info;
	struct optinc_group *g;

	(void)state;
	fake_params(&p);
	p.queue = 0;
	assert_int_equal(optinc_group_join(card, &p, sizeof(p), &g), 0);
	assert_int_equal(optinc_group_info(g, &info, sizeof(info)), 0);
	assert_int_equal(info.rank, 1);
	assert_int_equal(info.nranks, 3);
	assert_int_equal(info.bits, 8);
	assert_int_equal(info.deadline_ms, 10000);
	assert_int_equal(info.dtypes, 1 << OPTINC_F32 | 1 << OPTINC_F16 | 1 << OPTINC_BF16 |
			 1 << OPTINC_I8 | 1 << OPTINC_BIT | 1 << OPTINC_U8);
	assert_int_equal(info.epoch, 1);
	assert_int_equal(fake.create.sq_entries, 64);
	assert_true(fake.create.eventfd >= 0);
	assert_int_equal(fake.join.format, OPTINC_FORMAT_VERSION);
	assert_int_equal(fake.join.deadline_ms, 10000);
	assert_memory_equal(fake.join.key, p.key, sizeof(p.key));
	optinc_group_leave(g);

	p.bits = 16;
	p.queue = 33;
	p.deadline_ms = 77;
	assert_int_equal(optinc_group_join(card, &p, sizeof(p), &g), 0);
	optinc_group_info(g, &info, sizeof(info));
	assert_true(info.dtypes & 1 << OPTINC_I16);
	assert_false(info.dtypes & 1 << OPTINC_I8);
	assert_int_equal(fake.create.sq_entries, 64);	/* rounded up */
	assert_int_equal(fake.join.deadline_ms, 77);
	optinc_group_leave(g);
}

/* Of a caller compiled against an older or a newer header. */
static void test_params_size(void **state)
{
	struct {
		struct optinc_group_params p;
		uint64_t newer;
	} large;
	struct optinc_group *g;

	(void)state;
	memset(&large, 0, sizeof(large));
	fake_params(&large.p);
	large.p.bits = 99;	/* beyond an old caller's struct: not read */
	assert_int_equal(optinc_group_join(card, &large.p,
					   offsetof(struct optinc_group_params, bits), &g), 0);
	optinc_group_leave(g);
	assert_int_equal(optinc_group_join(card, &large.p, 20, &g), -EINVAL);
	large.p.bits = 8;
	assert_int_equal(optinc_group_join(card, &large.p, sizeof(large), &g), 0);
	optinc_group_leave(g);
	large.newer = 1;
	assert_int_equal(optinc_group_join(card, &large.p, sizeof(large), &g), -E2BIG);
}

struct failed_join {
	struct optinc_group_wait wait;
	int error;
	const char *says;
};

#define FAILED(...)	{ .state = OPTINC_GROUP_FAILED, __VA_ARGS__ }

static const struct failed_join failed_joins[] = {
	{ FAILED(.status = OPTINC_ST_TIMEOUT, .peer = 2, .joined = 3), -ETIMEDOUT,
	  "rank 2 has not joined within 10000 ms" },
	{ FAILED(.status = OPTINC_ST_TIMEOUT, .peer = 0, .joined = 2), -ETIMEDOUT,
	  "ranks 0 and 2 have not joined within 10000 ms" },
	{ FAILED(.status = OPTINC_ST_MISMATCH, .peer = 0, .mismatch = OPTINC_JOIN_BITS), -EPROTO,
	  "rank 0 differs in bits: all ranks" },
	{ FAILED(.status = OPTINC_ST_MISMATCH, .peer = 1,
		 .mismatch = OPTINC_JOIN_SIZE | OPTINC_JOIN_DTYPES | OPTINC_JOIN_FORMAT |
			     OPTINC_JOIN_DEADLINE),
	  -EPROTO, "this rank (1) differs in number of ranks, dtypes, number format version and "
	  "deadline: all ranks" },
	{ FAILED(.status = OPTINC_ST_MISMATCH, .peer = 2, .mismatch = OPTINC_JOIN_RANK), -EPROTO,
	  "two processes claim rank 2" },
	{ FAILED(.status = OPTINC_ST_MISMATCH, .peer = 1, .mismatch = OPTINC_JOIN_RANK), -EPROTO,
	  "two processes claim rank 1" },
	{ FAILED(.status = OPTINC_ST_PEER_LOST, .peer = 2), -ECONNRESET, "rank 2 was lost" },
	{ FAILED(.status = OPTINC_ST_ABORTED, .peer = 0), -ECONNABORTED, "rank 0 gave up" },
	{ FAILED(.status = OPTINC_ST_LINK, .peer = 0), -ENOLINK, "lanes of rank 0" },
	{ FAILED(.status = OPTINC_ST_RESET, .peer = 0xff), -ENODEV, "open it again" },
	{ FAILED(.status = OPTINC_ST_PEER_LOST, .peer = 700), -ECONNRESET, "a rank was lost" },
	/* what a card must not say */
	{ FAILED(.status = OPTINC_ST_SUCCESS), -EIO, "gives no reason" },
	{ FAILED(.status = 0x77), -EIO, "gives no reason" },
	{ { .state = 9 }, -EIO, "state that does not exist" },
};

static void test_failed_joins(void **state)
{
	struct optinc_group_params p;
	struct optinc_group *g;
	struct optinc_why why;
	size_t i;

	(void)state;
	fake_params(&p);
	for (i = 0; i < sizeof(failed_joins) / sizeof(failed_joins[0]); i++) {
		fake.group_says = failed_joins[i].wait;
		assert_int_equal(optinc_group_join(card, &p, sizeof(p), &g), failed_joins[i].error);
		assert_null(g);
		assert_says(failed_joins[i].says);
		optinc_why(card, &why);
		assert_int_equal(why.reason, OPTINC_REASON_GROUP_FAILED);
		assert_string_equal(why.text, optinc_last_error());
		/* All of the attempt is undone. */
		assert_int_equal(fake.live_groups, 1);
		assert_int_equal(fake.live_qps, 1);
	}
}

/* A card that never makes up its mind is not waited for beyond the deadline. */
static void test_endless_join(void **state)
{
	struct optinc_group_params p;
	struct optinc_group *g;

	(void)state;
	fake_params(&p);
	p.deadline_ms = 100;
	fake.group_says = (struct optinc_group_wait) {
		.state = OPTINC_GROUP_JOINING, .peer = 0xff, .joined = 2,
	};
	assert_int_equal(optinc_group_join(card, &p, sizeof(p), &g), -ETIMEDOUT);
	assert_says("ranks 0 and 2 have not joined within 100 ms");
}

static void test_join_steps_fail(void **state)
{
	static const struct {
		unsigned int ioctl;
		int error;
		const char *says;
	} steps[] = {
		{ IOCTL(QP_CREATE), -ENOSPC, "queue pairs" },
		{ IOCTL(QP_CREATE), -EIO, "no queue pair" },
		{ IOCTL(GROUP_JOIN), -ENOSPC, "groups" },
		{ IOCTL(GROUP_JOIN), -EBUSY, "fabric" },
		{ IOCTL(GROUP_JOIN), -EEXIST, "key:" },
		{ IOCTL(GROUP_JOIN), -ENODEV, "open it again" },
		{ IOCTL(GROUP_WAIT), -EIO, "waiting for the other ranks failed" },
		{ IOCTL(GROUP_WAIT), -ENODEV, "the card was reset or is gone" },
	};
	struct optinc_group_params p;
	struct optinc_group *g;
	size_t i;

	(void)state;
	fake_params(&p);
	for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		fake.ioctl_error[steps[i].ioctl] = steps[i].error;
		assert_int_equal(optinc_group_join(card, &p, sizeof(p), &g), steps[i].error);
		assert_null(g);
		assert_says(steps[i].says);
		fake.ioctl_error[steps[i].ioctl] = 0;
		assert_int_equal(fake.live_qps, 1);
		assert_int_equal(fake.live_groups, 1);
	}
	fake.mmap_error = EAGAIN;
	assert_int_equal(optinc_group_join(card, &p, sizeof(p), &g), -EAGAIN);
	fake.mmap_error = 0;
	fake.bad_handles = true;
	assert_int_equal(optinc_group_join(card, &p, sizeof(p), &g), -EIO);
	fake.bad_handles = false;
	fake.live_groups--;	/* which the card gave no name for */
	assert_int_equal(fake.live_qps, 1);
}

static void test_keys(void **state)
{
	uint8_t key[OPTINC_KEY_BYTES], again[OPTINC_KEY_BYTES], other[OPTINC_KEY_BYTES];
	char text[33];

	(void)state;
	assert_int_equal(optinc_key_generate(key), 0);
	assert_int_equal(optinc_key_generate(other), 0);
	assert_memory_not_equal(key, other, sizeof(key));
	optinc_key_format(key, text);
	assert_int_equal(strlen(text), 32);
	assert_int_equal(optinc_key_parse(text, again), 0);
	assert_memory_equal(key, again, sizeof(key));
	assert_int_equal(optinc_key_parse("000102030405060708090a0B0c0D0e0F", again), 0);
	assert_int_equal(again[15], 15);
	memcpy(other, again, sizeof(other));
	assert_int_equal(optinc_key_parse("000102030405060708090a0b0c0d0e0", again), -EINVAL);
	assert_int_equal(optinc_key_parse("000102030405060708090a0b0c0d0e0f0", again), -EINVAL);
	assert_int_equal(optinc_key_parse("000102030405060708090a0b0c0d0e0g", again), -EINVAL);
	assert_int_equal(optinc_key_parse("", again), -EINVAL);
	assert_int_equal(optinc_key_parse(NULL, again), -EINVAL);
	assert_memory_equal(again, other, sizeof(again));	/* untouched by failures */
}

#define TEST(name)	cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_bad_allreduce),
		TEST(test_bad_others),
		TEST(test_card_does_not),
		TEST(test_zero_count),
		TEST(test_adjacent_is_not_overlap),
		TEST(test_submission_entry),
		TEST(test_bad_params),
		TEST(test_defaults),
		TEST(test_params_size),
		TEST(test_failed_joins),
		TEST(test_endless_join),
		TEST(test_join_steps_fail),
		TEST(test_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
