// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Requests and groups of the card, with two cards of one fabric in this
 * process: checks of entries, regions at work, epochs and their ends, and
 * what a hostile host gets. Sections 6.3, 8 and 9 of card-interface.rst.
 */
#include <optinc/optinc.h>

#include "selftests/emulator/card_host.h"

#define MEMORY	65536

struct pair {
	struct bench *b[2];
	uint32_t ctx[2];
	uint32_t group[2];
	struct queue q[2];
	struct region src[2], dst[2];
};

static void step_both(struct pair *p, unsigned int n)
{
	while (n--) {
		card_step(p->b[0]->card);
		card_step(p->b[1]->card);
	}
}

static void join_pair(struct pair *p, const struct optinc_hw_join *from, uint32_t handles[2])
{
	struct optinc_hw_join join = *from;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		join.rank = i;
		assert_int_equal(join_group(p->b[i], p->ctx[i], &join), OPTINC_AST_SUCCESS);
		handles[i] = p->b[i]->last.handle;
	}
	for (i = 0; i < 1000; i++) {
		step_both(p, 1);
		if (group_state(p->b[0], p->ctx[0], handles[0]) == OPTINC_GROUP_READY &&
		    group_state(p->b[1], p->ctx[1], handles[1]) == OPTINC_GROUP_READY)
			return;
	}
	fail_msg("the group does not get ready");
}

static int setup(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));
	struct optinc_hw_join join = join_of(1, 0, 2);
	unsigned int i;

	for (i = 0; i < 2; i++) {
		p->b[i] = bench_open(i, 2);
		bench_enable(p->b[i]);
		p->ctx[i] = make_context(p->b[i], 2 + i);
		make_queue(p->b[i], p->ctx[i], &p->q[i], 2 + i, 16, 32, 1);
		/* one in one piece, the other scattered */
		make_region(p->b[i], p->ctx[i], &p->src[i], MEMORY, i ? 13 : 1, 0);
		make_region(p->b[i], p->ctx[i], &p->dst[i], MEMORY, i ? 1 : 29, OPTINC_MR_WRITE);
	}
	join_pair(p, &join, p->group);
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct pair *p = *state;

	bench_close(p->b[0]);
	bench_close(p->b[1]);
	free(p);
	return 0;
}

static struct optinc_sqe allreduce(const struct pair *p, unsigned int i, uint64_t count)
{
	static uint16_t cmd_id;

	return (struct optinc_sqe) {
		.opcode = OPTINC_OP_ALLREDUCE,
		.cmd_id = ++cmd_id,
		.group = p->group[i],
		.tag = 77,
		.dtype = OPTINC_F32,
		.redop = OPTINC_MEAN,
		.count = count,
		.src_mr = p->src[i].handle,
		.dst_mr = p->dst[i].handle,
	};
}

static struct optinc_sqe barrier(const struct pair *p, unsigned int i)
{
	return (struct optinc_sqe) {
		.opcode = OPTINC_OP_BARRIER, .cmd_id = 0x1234, .group = p->group[i],
	};
}

static struct bench *peer_of(struct pair *p, unsigned int i)
{
	return p->b[!i];
}

/* Both submit; both statuses. */
static void run_pair(struct pair *p, const struct optinc_sqe *s0, const struct optinc_sqe *s1,
		     struct optinc_cqe cqe[2])
{
	submit(&p->q[0], s0);
	submit(&p->q[1], s1);
	cqe[0] = await(&p->q[0], p->b[1]);
	cqe[1] = await(&p->q[1], p->b[0]);
	assert_int_equal(cqe[0].cmd_id, s0->cmd_id);
	assert_int_equal(cqe[1].cmd_id, s1->cmd_id);
}

static void expect_pair(struct pair *p, const struct optinc_sqe *s0, const struct optinc_sqe *s1,
			uint32_t status)
{
	struct optinc_cqe cqe[2];

	run_pair(p, s0, s1, cqe);
	assert_int_equal(cqe[0].status >> 1, status);
	assert_int_equal(cqe[1].status >> 1, status);
}

/* Is the group still well, and in step? */
static void expect_alive(struct pair *p)
{
	struct optinc_sqe s0 = barrier(p, 0), s1 = barrier(p, 1);

	expect_pair(p, &s0, &s1, OPTINC_ST_SUCCESS);
}

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

static void fill_random(struct region *r, uint64_t bytes, uint32_t seed)
{
	float x;
	uint64_t i;

	for (i = 0; i + 4 <= bytes; i += 4) {
		x = (float)(int)next_random(&seed) / 1000 - 8000;
		region_put(r, i, &x, 4);
	}
}

struct kind {
	uint8_t dtype, redop, flags;
	unsigned int src, dst;		/* bytes of 8 elements */
};

static const struct kind kinds[] = {
	{ OPTINC_F32, OPTINC_MEAN, 0, 32, 32 },
	{ OPTINC_F32, OPTINC_SUM, OPTINC_SQE_PARITY, 32, 32 },
	{ OPTINC_F16, OPTINC_MEAN, OPTINC_SQE_PARITY, 16, 16 },
	{ OPTINC_BF16, OPTINC_SUM, 0, 16, 16 },
	{ OPTINC_I8, OPTINC_MEAN, 0, 8, 8 },
	{ OPTINC_I8, OPTINC_SUM, 0, 8, 16 },
	{ OPTINC_BIT, OPTINC_VOTE, 0, 1, 8 },
	{ OPTINC_BIT, OPTINC_VOTE, OPTINC_SQE_SIGN, 1, 1 },
	{ OPTINC_BIT, OPTINC_VOTE, OPTINC_SQE_SIGN | OPTINC_SQE_ABSTAIN, 1, 8 },
};

/*
 * CI-COL-1, CI-COL-16, CI-MR-2: results through pieces of odd sizes are those
 * of the reference, and no byte beside the destination changes.
 */
static void check_result(struct pair *p, const struct kind *kind, uint64_t count)
{
	size_t src_bytes = optinc_data_bytes(count, kind->dtype);
	size_t dst_bytes = optinc_result_bytes(count, kind->dtype, kind->redop, kind->flags);
	static uint8_t in[2][MEMORY], want[MEMORY], got[MEMORY], before[MEMORY];
	const void *send[2] = { in[0], in[1] };
	struct optinc_sqe sqe[2];
	unsigned int i;
	size_t k;

	for (i = 0; i < 2; i++) {
		fill_random(&p->src[i], MEMORY, (uint32_t)count * 31 + i);
		region_get(&p->src[i], 64, in[i], src_bytes);
		sqe[i] = allreduce(p, i, count);
		sqe[i].dtype = kind->dtype;
		sqe[i].redop = kind->redop;
		sqe[i].flags = kind->flags;
		sqe[i].src_off = 64;
		sqe[i].dst_off = 128;
		memset(before, 0x6b, sizeof(before));
		region_put(&p->dst[i], 0, before, MEMORY);
	}
	expect_pair(p, &sqe[0], &sqe[1], OPTINC_ST_SUCCESS);
	assert_int_equal(optinc_reference_allreduce(send, want, 2, count, kind->dtype, kind->redop,
						    8, kind->flags, NULL), 0);
	for (i = 0; i < 2; i++) {
		region_get(&p->dst[i], 0, got, MEMORY);
		assert_memory_equal(got + 128, want, dst_bytes);
		for (k = 0; k < MEMORY; k++) {
			if (k < 128 || k >= 128 + dst_bytes)
				assert_int_equal(got[k], 0x6b);
		}
	}
}

static void test_results(void **state)
{
	static const uint64_t counts[] = { 1, 2, 7, 8, 255, 256, 257, 1000, 12345 };
	struct pair *p = *state;
	size_t i, k;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		for (k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
			check_result(p, &kinds[i], counts[k]);
	}
	assert_int_equal(p->b[0]->host.faults, 0);
	assert_int_equal(p->b[1]->host.faults, 0);
}

/* CI-COL-6, -8, -5: broadcast from each root, exponent-max, nothing at all */
static void test_bytes(void **state)
{
	struct pair *p = *state;
	static uint8_t a[2][4096], got[4096];
	struct optinc_sqe s[2];
	unsigned int root, i, k;

	for (root = 0; root < 2; root++) {
		for (i = 0; i < 2; i++) {
			s[i] = allreduce(p, i, 4000);
			s[i].opcode = OPTINC_OP_BROADCAST;
			s[i].dtype = OPTINC_U8;
			s[i].root = (uint8_t)root;
			s[i].src_off = 3;
			s[i].dst_off = 5;
			/* what this rank does not use is ignored */
			if (i == root) {
				s[i].dst_mr = 0xdeadbeef;
				s[i].dst_off = -1ULL;
			} else {
				s[i].src_mr = 0xdeadbeef;
				s[i].src_off = -1ULL;
			}
			memset(a[i], (int)(10 * root + i + 1), sizeof(a[i]));
			region_put(&p->src[i], 0, a[i], 4096);
			region_put(&p->dst[i], 0, a[i], 4096);
		}
		expect_pair(p, &s[0], &s[1], OPTINC_ST_SUCCESS);
		region_get(&p->dst[!root], 5, got, 4000);
		assert_memory_equal(got, a[root], 4000);
		region_get(&p->dst[root], 0, got, 4096);
		assert_memory_equal(got, a[root], 4096);
	}
	for (i = 0; i < 2; i++) {
		s[i] = allreduce(p, i, 1001);
		s[i].opcode = OPTINC_OP_EXPONENT_MAX;
		s[i].dtype = OPTINC_U8;
		s[i].src_off = s[i].dst_off = 7;
		s[i].src_mr = p->dst[i].handle;		/* in place */
		for (k = 0; k < 1001; k++)
			a[i][k] = (uint8_t)(k * (i ? 7 : 13));
		region_put(&p->dst[i], 7, a[i], 1001);
	}
	expect_pair(p, &s[0], &s[1], OPTINC_ST_SUCCESS);
	region_get(&p->dst[0], 7, got, 1001);
	for (k = 0; k < 1001; k++)
		assert_int_equal(got[k], a[0][k] > a[1][k] ? a[0][k] : a[1][k]);

	for (i = 0; i < 2; i++) {
		s[i] = allreduce(p, i, 0);
		s[i].src_mr = s[i].dst_mr = 0x1234;
		s[i].src_off = s[i].dst_off = -1ULL;
	}
	expect_pair(p, &s[0], &s[1], OPTINC_ST_SUCCESS);
	assert_int_equal(p->b[0]->host.faults, 0);
}

/* An entry of rank 0 that is invalid by itself; rank 1 notices nothing. */
static void expect_invalid(struct pair *p, const struct optinc_sqe *sqe, uint32_t status,
			   const char *what)
{
	uint32_t got = run(&p->q[0], sqe, NULL);

	if (got != status)
		fail_msg("%s: status %#x, not %#x", what, got, status);
}

#define INVALID(field, value, status) do {				\
	struct optinc_sqe bad_ = good;					\
									\
	bad_.field = (value);						\
	expect_invalid(p, &bad_, status, #field " = " #value);		\
} while (0)

/* CI-COL-2, -3, -9, -10, CI-GEN-2 */
static void test_entry_checks(void **state)
{
	struct pair *p = *state;
	const struct optinc_sqe good = allreduce(p, 0, 100);
	struct optinc_sqe bad;
	unsigned int dtype, redop, flags;

	INVALID(__reserved0, 1, OPTINC_ST_INVALID_FIELD);
	INVALID(__reserved1, 0x80000000, OPTINC_ST_INVALID_FIELD);
	INVALID(flags, 0x10, OPTINC_ST_INVALID_FIELD);
	INVALID(flags, 0x80, OPTINC_ST_INVALID_FIELD);
	INVALID(opcode, OPTINC_OPCODES, OPTINC_ST_INVALID_OPCODE);
	INVALID(group, 0, OPTINC_ST_INVALID_GROUP);
	INVALID(group, p->group[0] + 1, OPTINC_ST_INVALID_GROUP);
	INVALID(group, p->group[0] + 16, OPTINC_ST_INVALID_GROUP);
	INVALID(root, 1, OPTINC_ST_INVALID_FIELD);
	INVALID(exp_mr, p->src[0].handle, OPTINC_ST_INVALID_FIELD);
	INVALID(exp_off, 1, OPTINC_ST_INVALID_FIELD);
	INVALID(count, (1ULL << 32) - 255, OPTINC_ST_INVALID_FIELD);
	INVALID(count, 1ULL << 40, OPTINC_ST_INVALID_FIELD);
	INVALID(count, -1ULL, OPTINC_ST_INVALID_FIELD);
	INVALID(dtype, OPTINC_DTYPES, OPTINC_ST_INVALID_FIELD);
	INVALID(dtype, 0xff, OPTINC_ST_INVALID_FIELD);
	INVALID(redop, OPTINC_REDOPS, OPTINC_ST_INVALID_FIELD);
	INVALID(redop, 0xff, OPTINC_ST_INVALID_FIELD);
	INVALID(src_mr, 0, OPTINC_ST_INVALID_MR);
	INVALID(src_mr, p->src[0].handle ^ 1, OPTINC_ST_INVALID_MR);
	INVALID(dst_mr, p->dst[0].handle + 1024, OPTINC_ST_INVALID_MR);
	INVALID(dst_mr, p->src[0].handle, OPTINC_ST_MR_ACCESS);
	INVALID(src_off, 2, OPTINC_ST_INVALID_FIELD);
	INVALID(dst_off, 1, OPTINC_ST_INVALID_FIELD);

	/* all combinations of dtype, redop and flags: what the table of 8.2 has and no more */
	for (dtype = 0; dtype < OPTINC_DTYPES + 2; dtype++)
		for (redop = 0; redop < OPTINC_REDOPS + 2; redop++)
			for (flags = 0; flags < 32; flags++) {
				bool is_float = dtype <= OPTINC_BF16, exists;
				bool raw = dtype == OPTINC_I8 || dtype == OPTINC_I16;

				bad = good;
				bad.dtype = (uint8_t)dtype;
				bad.redop = (uint8_t)redop;
				bad.flags = (uint8_t)flags;
				/* stops a valid one at a later check */
				bad.group = 0x777;
				exists = (redop <= OPTINC_SUM && is_float && flags < 2) ||
					 (redop <= OPTINC_SUM && raw && flags < 4) ||
					 (redop == OPTINC_VOTE && dtype == OPTINC_BIT &&
					  (flags == 0 || flags == 4 || flags == 12));
				expect_invalid(p, &bad, exists ? OPTINC_ST_INVALID_GROUP :
					       OPTINC_ST_INVALID_FIELD, "combination");
			}
	/* what this group has not joined with */
	INVALID(dtype, OPTINC_I16, OPTINC_ST_UNSUPPORTED);

	/* of several violations the first in the order of 8.3 */
	bad = good;
	bad.opcode = 99;
	bad.__reserved0 = 1;
	expect_invalid(p, &bad, OPTINC_ST_INVALID_OPCODE, "order 1");
	bad.opcode = OPTINC_OP_ALLREDUCE;
	bad.group = 0x777;
	expect_invalid(p, &bad, OPTINC_ST_INVALID_FIELD, "order 2");
	bad.__reserved0 = 0;
	bad.dtype = OPTINC_I16;
	expect_invalid(p, &bad, OPTINC_ST_INVALID_GROUP, "order 5");
	bad.group = good.group;
	bad.src_mr = 0;
	expect_invalid(p, &bad, OPTINC_ST_UNSUPPORTED, "order 7");
	bad.dtype = OPTINC_F32;
	bad.dst_mr = p->src[0].handle;
	expect_invalid(p, &bad, OPTINC_ST_INVALID_MR, "order 8: source first");
	bad.src_mr = good.src_mr;
	bad.dst_off = 1;
	expect_invalid(p, &bad, OPTINC_ST_MR_ACCESS, "order 8: access before alignment");
	bad.dst_mr = good.dst_mr;
	bad.dst_off = MEMORY + 1;
	expect_invalid(p, &bad, OPTINC_ST_INVALID_FIELD, "order 8: alignment before bounds");
	bad.src_mr = good.dst_mr;
	bad.src_off = 0;
	bad.dst_off = MEMORY;
	expect_invalid(p, &bad, OPTINC_ST_MR_BOUNDS, "order 9: bounds before overlap");

	/* the same for the others */
	bad = barrier(p, 0);
#define BAD(field, value, status) do {					\
	struct optinc_sqe b_ = bad;					\
									\
	b_.field = (value);						\
	expect_invalid(p, &b_, status, #field " = " #value);		\
} while (0)
	BAD(flags, 1, OPTINC_ST_INVALID_FIELD);
	BAD(dtype, OPTINC_U8, OPTINC_ST_INVALID_FIELD);
	BAD(redop, 1, OPTINC_ST_INVALID_FIELD);
	BAD(root, 1, OPTINC_ST_INVALID_FIELD);
	BAD(count, 1, OPTINC_ST_INVALID_FIELD);
	BAD(exp_mr, 1, OPTINC_ST_INVALID_FIELD);
	BAD(group, 0, OPTINC_ST_INVALID_GROUP);
	bad = allreduce(p, 0, 100);
	bad.opcode = OPTINC_OP_BROADCAST;
	bad.dtype = OPTINC_U8;
	BAD(dtype, OPTINC_F32, OPTINC_ST_INVALID_FIELD);
	BAD(flags, OPTINC_SQE_PARITY, OPTINC_ST_INVALID_FIELD);
	BAD(redop, OPTINC_SUM, OPTINC_ST_INVALID_FIELD);
	BAD(root, 2, OPTINC_ST_INVALID_FIELD);
	BAD(root, 255, OPTINC_ST_INVALID_FIELD);
	BAD(exp_mr, 1, OPTINC_ST_INVALID_FIELD);
	BAD(src_mr, 0, OPTINC_ST_INVALID_MR);
	bad.opcode = OPTINC_OP_EXPONENT_MAX;
	BAD(dtype, OPTINC_I8, OPTINC_ST_INVALID_FIELD);
	BAD(root, 1, OPTINC_ST_INVALID_FIELD);
	BAD(flags, OPTINC_SQE_EXPONENTS, OPTINC_ST_INVALID_FIELD);
#undef BAD
	/* none of all these took a number: rank 1 has submitted nothing */
	expect_alive(p);
	assert_int_equal(p->b[0]->host.faults, 0);
}

/* CI-MR-3, -4: the ends of a region, for each of the ranges */
static void test_bounds(void **state)
{
	static const uint64_t far[] = {
		MEMORY, MEMORY + 4, 1ULL << 32, 1ULL << 63, -(uint64_t)MEMORY, -400ULL, -396ULL,
		-4ULL, -8ULL,
	};
	struct pair *p = *state;
	struct optinc_sqe good = allreduce(p, 0, 100), other = allreduce(p, 1, 100);
	size_t i;

	good.src_off = good.dst_off = MEMORY - 400;
	expect_pair(p, &good, &other, OPTINC_ST_SUCCESS);
	INVALID(count, 101, OPTINC_ST_MR_BOUNDS);
	INVALID(src_off, MEMORY - 396, OPTINC_ST_MR_BOUNDS);
	INVALID(dst_off, MEMORY - 396, OPTINC_ST_MR_BOUNDS);
	INVALID(count, (1ULL << 32) - 256, OPTINC_ST_MR_BOUNDS);
	for (i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
		INVALID(src_off, far[i], OPTINC_ST_MR_BOUNDS);
		INVALID(dst_off, far[i], OPTINC_ST_MR_BOUNDS);
	}
	/* bytes at the very end of all offsets */
	good.opcode = OPTINC_OP_EXPONENT_MAX;
	good.redop = 0;
	good.dtype = OPTINC_U8;
	good.count = 1;
	INVALID(src_off, -1ULL, OPTINC_ST_MR_BOUNDS);
	INVALID(dst_off, -1ULL, OPTINC_ST_MR_BOUNDS);
	/* exponents: 2 bytes for 257 codes */
	good = allreduce(p, 0, 257);
	good.dtype = OPTINC_I8;
	good.flags = OPTINC_SQE_EXPONENTS;
	good.exp_mr = p->src[0].handle;
	INVALID(exp_off, MEMORY - 1, OPTINC_ST_MR_BOUNDS);
	INVALID(exp_off, -1ULL, OPTINC_ST_MR_BOUNDS);
	INVALID(exp_off, -2ULL, OPTINC_ST_MR_BOUNDS);
	INVALID(exp_mr, 0, OPTINC_ST_INVALID_MR);
	good.exp_off = MEMORY - 2;
	other = good;
	other.group = p->group[1];
	other.src_mr = other.exp_mr = p->src[1].handle;
	other.dst_mr = p->dst[1].handle;
	expect_pair(p, &good, &other, OPTINC_ST_SUCCESS);
	/* a result that is larger than its source */
	good = allreduce(p, 0, 1000);
	good.dtype = OPTINC_I8;
	good.redop = OPTINC_SUM;
	INVALID(dst_off, MEMORY - 1998, OPTINC_ST_MR_BOUNDS);
	INVALID(dst_off, MEMORY - 2001, OPTINC_ST_INVALID_FIELD);
	expect_alive(p);
	assert_int_equal(p->b[0]->host.faults, 0);
}

/* CI-COL-4 */
static void test_overlap(void **state)
{
	struct pair *p = *state;
	struct optinc_sqe good = allreduce(p, 0, 100), other = allreduce(p, 1, 100);

	good.src_mr = good.dst_mr;
	other.src_mr = other.dst_mr;
	good.src_off = good.dst_off = other.src_off = other.dst_off = 1024;
	expect_pair(p, &good, &other, OPTINC_ST_SUCCESS);
	INVALID(dst_off, 1028, OPTINC_ST_INVALID_FIELD);
	INVALID(dst_off, 1020, OPTINC_ST_INVALID_FIELD);
	INVALID(dst_off, 1024 + 396, OPTINC_ST_INVALID_FIELD);
	INVALID(dst_off, 1024 - 396, OPTINC_ST_INVALID_FIELD);
	good.dst_off = 1024 + 400;
	other.dst_off = 1024 - 400;
	expect_pair(p, &good, &other, OPTINC_ST_SUCCESS);
	/* sum of i8 does not fit in place, nor the counts of votes */
	good.dtype = OPTINC_I8;
	good.redop = OPTINC_SUM;
	INVALID(dst_off, 1024, OPTINC_ST_INVALID_FIELD);
	good.dtype = OPTINC_BIT;
	good.redop = OPTINC_VOTE;
	INVALID(dst_off, 1024, OPTINC_ST_INVALID_FIELD);
	/* exponents under the result */
	good = allreduce(p, 0, 100);
	good.dtype = OPTINC_I8;
	good.flags = OPTINC_SQE_EXPONENTS;
	good.exp_mr = good.dst_mr;
	INVALID(exp_off, 0, OPTINC_ST_INVALID_FIELD);
	INVALID(exp_off, 99, OPTINC_ST_INVALID_FIELD);
	expect_alive(p);
}

/* CI-MR-6, CI-CTX-2, and groups likewise: nothing of another context can be named */
static void test_isolation(void **state)
{
	struct pair *p = *state;
	struct bench *b = p->b[0];
	uint32_t ctx = make_context(b, 9);
	const struct optinc_sqe good = allreduce(p, 0, 100);
	struct optinc_sqe bad = good;
	struct region src, dst;
	struct queue q;

	make_queue(b, ctx, &q, 9, 8, 8, 1);
	make_region(b, ctx, &src, MEMORY, 1, 0);
	make_region(b, ctx, &dst, MEMORY, 1, OPTINC_MR_WRITE);
	assert_int_not_equal(src.handle, p->src[0].handle);
	assert_int_equal(run(&q, &bad, NULL), OPTINC_ST_INVALID_GROUP);
	INVALID(src_mr, src.handle, OPTINC_ST_INVALID_MR);
	INVALID(dst_mr, dst.handle, OPTINC_ST_INVALID_MR);
	/* a handle is of its kind */
	INVALID(src_mr, p->group[0], OPTINC_ST_INVALID_MR);
	INVALID(group, p->src[0].handle, OPTINC_ST_INVALID_GROUP);
	INVALID(group, p->ctx[0], OPTINC_ST_INVALID_GROUP);
	assert_int_equal(object_command(b, OPTINC_ADMIN_CTX_DESTROY, p->group[0], 0),
			 OPTINC_AST_INVALID_HANDLE);
	/* its end does not touch others */
	assert_int_equal(object_command(b, OPTINC_ADMIN_CTX_DESTROY, ctx, 0), OPTINC_AST_SUCCESS);
	expect_alive(p);
}

/* CI-MR-7, -8, CI-QP-5, CI-COL-11 */
static void test_busy_regions(void **state)
{
	struct pair *p = *state;
	struct bench *b = p->b[0];
	struct optinc_sqe s0 = allreduce(p, 0, 100), s1 = allreduce(p, 1, 100);
	struct optinc_sqe nop = { .cmd_id = 1 };
	struct optinc_cqe cqe;
	unsigned int i;
	char now[400], then[400];

	for (i = 0; i < 3; i++)
		submit(&p->q[0], &s0);
	submit(&p->q[0], &nop);
	step_both(p, 10);
	assert_true(card_busy(b->card));
	/* entries behind those that wait are taken; they have no order with them */
	cqe = await(&p->q[0], NULL);
	assert_int_equal(cqe.cmd_id, 1);
	assert_int_equal(cqe.sq_head, p->q[0].tail);
	assert_int_equal(object_command(b, OPTINC_ADMIN_MR_DEREG, p->ctx[0], p->src[0].handle),
			 OPTINC_AST_BUSY);
	assert_int_equal(object_command(b, OPTINC_ADMIN_MR_DEREG, p->ctx[0], p->dst[0].handle),
			 OPTINC_AST_BUSY);
	for (i = 0; i < 3; i++) {
		submit(&p->q[1], &s1);
		assert_int_equal(await(&p->q[0], p->b[1]).status >> 1, OPTINC_ST_SUCCESS);
		assert_int_equal(await(&p->q[1], p->b[0]).status >> 1, OPTINC_ST_SUCCESS);
	}
	assert_false(card_busy(b->card));
	/* in the ring and not taken: does not count, and finds it gone */
	submit(&p->q[0], &s0);
	assert_true(card_busy(b->card));
	region_get(&p->dst[0], 0, then, 400);
	set_reg(b, OPTINC_REG_ADMIN_SQ_TAIL, b->tail);
	assert_int_equal(object_command(b, OPTINC_ADMIN_MR_DEREG, p->ctx[0], p->dst[0].handle),
			 OPTINC_AST_SUCCESS);
	cqe = await(&p->q[0], p->b[1]);
	assert_int_equal(cqe.status >> 1, OPTINC_ST_INVALID_MR);
	region_get(&p->dst[0], 0, now, 400);
	assert_memory_equal(now, then, 400);
	assert_int_equal(object_command(b, OPTINC_ADMIN_MR_DEREG, p->ctx[0], p->src[0].handle),
			 OPTINC_AST_SUCCESS);
	expect_alive(p);
}

/* CI-QP-4, CI-DB-3: as many as the completion ring holds wait for a peer, and no more */
static void test_full_rings(void **state)
{
	struct pair *p = *state;
	struct bench *b = p->b[0];
	struct optinc_sqe s0 = barrier(p, 0), s1 = barrier(p, 1);
	struct queue *q = &p->q[0];
	unsigned int i, round;

	for (round = 0; round < 3; round++) {
		for (i = 0; i < 32; i++) {
			s0.cmd_id = (uint16_t)i;
			submit(q, &s0);
			if (i % 16 == 15)
				step_both(p, 10);
		}
		/* what is outstanding is what counts: the submission ring is empty */
		bell(q, OPTINC_DB_SQ_TAIL, q->tail + 1);
		assert_int_equal(reg(b, OPTINC_REG_DB_DROPPED), round + 1);
		for (i = 0; i < 32; i++) {
			submit(&p->q[1], &s1);
			assert_int_equal(await(&p->q[1], b).status >> 1, OPTINC_ST_SUCCESS);
		}
		step_both(p, 10);
		for (i = 0; i < 32; i++) {
			struct optinc_cqe cqe = await(q, NULL);

			assert_int_equal(cqe.status >> 1, OPTINC_ST_SUCCESS);
			assert_int_equal(cqe.cmd_id, i);
		}
	}
	expect_alive(p);
}

/* CI-COL-13, CI-QP-7 */
static void test_queue_destroy(void **state)
{
	struct pair *p = *state;
	struct bench *b = p->b[0];
	struct optinc_sqe s0 = allreduce(p, 0, 100), s1 = barrier(p, 1);
	struct optinc_cqe cqe;
	struct queue second, third;
	unsigned int i;

	expect_alive(p);
	make_queue(b, p->ctx[0], &second, 2, 8, 8, 1);
	make_queue(b, p->ctx[0], &third, 2, 8, 8, 1);
	assert_int_equal(run(&second, &s0, NULL), OPTINC_ST_INVALID_GROUP);
	/* the first goes without requests: the group may move */
	assert_int_equal(object_command(b, OPTINC_ADMIN_QP_DESTROY, p->ctx[0], p->q[0].id),
			 OPTINC_AST_SUCCESS);
	p->q[0] = second;
	expect_alive(p);
	assert_int_equal(run(&third, &s0, NULL), OPTINC_ST_INVALID_GROUP);

	/* with requests: they complete first, the epoch ends, both sides are told */
	for (i = 0; i < 3; i++)
		submit(&p->q[0], &s0);
	submit(&p->q[1], &s1);
	submit(&p->q[1], &s1);
	card_step(b->card);
	assert_int_equal(object_command(b, OPTINC_ADMIN_QP_DESTROY, p->ctx[0], p->q[0].id),
			 OPTINC_AST_SUCCESS);
	for (i = 0; i < 3; i++) {
		assert_true(peek(&p->q[0], &cqe));
		p->q[0].head_passes++;
		assert_int_equal(cqe.status >> 1, OPTINC_ST_ABORTED);
		assert_int_equal(cqe.peer, 0);
	}
	for (i = 0; i < 2; i++) {
		cqe = await(&p->q[1], b);
		assert_int_equal(cqe.status >> 1, OPTINC_ST_ABORTED);
		assert_int_equal(cqe.peer, 0);
	}
	assert_int_equal(group_state(b, p->ctx[0], p->group[0]), OPTINC_GROUP_FAILED);
	assert_false(card_busy(b->card));
	/* the regions are free, and entries for the group find its epoch ended */
	assert_int_equal(object_command(b, OPTINC_ADMIN_MR_DEREG, p->ctx[0], p->src[0].handle),
			 OPTINC_AST_SUCCESS);
	assert_int_equal(run(&third, &s0, NULL), OPTINC_ST_EPOCH_ENDED);
	assert_int_equal(run(&p->q[1], &s1, NULL), OPTINC_ST_EPOCH_ENDED);
}

/* CI-QP-8 with requests: a completion ring that goes ends its queue pair's epochs */
static void test_broken_ring(void **state)
{
	struct pair *p = *state;
	struct optinc_sqe s0 = barrier(p, 0), s1 = barrier(p, 1);
	struct optinc_cqe cqe;

	submit(&p->q[0], &s0);
	submit(&p->q[0], &s0);
	step_both(p, 5);
	host_unmap(&p->b[0]->host, p->q[0].cq_dma);
	submit(&p->q[1], &s1);
	submit(&p->q[1], &s1);
	cqe = await(&p->q[1], p->b[0]);
	assert_int_equal(cqe.status >> 1, OPTINC_ST_SUCCESS);
	cqe = await(&p->q[1], p->b[0]);
	assert_int_equal(cqe.status >> 1, OPTINC_ST_ABORTED);
	assert_int_equal(cqe.peer, 0);
	step_both(p, 20);
	assert_false(card_busy(p->b[0]->card));
	assert_int_equal(group_state(p->b[0], p->ctx[0], p->group[0]), OPTINC_GROUP_FAILED);
	assert_int_equal(object_command(p->b[0], OPTINC_ADMIN_QP_DESTROY, p->ctx[0], p->q[0].id),
			 OPTINC_AST_SUCCESS);
}

/* A region whose memory is not there: DMA for this rank, ABORTED for its peer */
static void test_dma_error(void **state)
{
	struct pair *p = *state;
	struct optinc_sqe s0 = allreduce(p, 0, 5000), s1 = allreduce(p, 1, 5000);
	struct optinc_cqe cqe[2];

	host_unmap(&p->b[0]->host, p->src[0].dma[0]);
	run_pair(p, &s0, &s1, cqe);
	assert_int_equal(cqe[0].status >> 1, OPTINC_ST_DMA);
	assert_int_equal(cqe[1].status >> 1, OPTINC_ST_ABORTED);
	assert_int_equal(cqe[1].peer, 0);
	assert_int_equal(reg(p->b[0], OPTINC_REG_STATUS), OPTINC_STATUS_READY);
}

/* CI-CTX-3, -4 */
static void test_context_destroy(void **state)
{
	struct pair *p = *state;
	struct bench *b = p->b[0];
	struct optinc_sqe s0 = allreduce(p, 0, 100), s1 = barrier(p, 1);
	struct optinc_cqe cqe;
	unsigned int i, interrupts;

	submit(&p->q[0], &s0);
	submit(&p->q[0], &s0);
	bell(&p->q[0], OPTINC_DB_CQ_ARM, p->q[0].head);
	submit(&p->q[1], &s1);
	submit(&p->q[1], &s1);
	steps(b, 1);
	interrupts = b->host.interrupts[1];
	assert_int_equal(object_command(b, OPTINC_ADMIN_CTX_DESTROY, p->ctx[0], 0),
			 OPTINC_AST_SUCCESS);
	assert_false(peek(&p->q[0], &cqe));
	assert_int_equal(b->host.interrupts[1], interrupts);
	for (i = 0; i < 2; i++) {
		cqe = await(&p->q[1], b);
		assert_int_equal(cqe.status >> 1, OPTINC_ST_PEER_LOST);
		assert_int_equal(cqe.peer, 0);
	}
	assert_false(card_busy(b->card));
	bell(&p->q[0], OPTINC_DB_SQ_TAIL, 3);
	assert_int_equal(reg(b, OPTINC_REG_DB_DROPPED), 1);
	/* the page can be had again */
	make_context(b, 2);
}

/* CI-RST-2, -6: reset, function-level reset and disable, under load */
static void reset_by(struct pair *p, unsigned int way)
{
	struct bench *b = p->b[0];

	b->host.closed = way == 1;
	if (way == 0) {
		set_reg(b, OPTINC_REG_RESET, OPTINC_RESET_KEY);
		b->host.closed = true;
		wait_status(b, OPTINC_STATUS_RESETTING, 0);
	} else if (way == 1) {
		card_reset(b->card);
	} else {
		set_reg(b, OPTINC_REG_CONTROL, 0);
		wait_status(b, OPTINC_STATUS_READY, 0);
		b->host.closed = true;
	}
}

static void test_reset_under_load(void **state)
{
	struct pair *p = *state;
	struct bench *b = p->b[0];
	struct optinc_hw_join join = join_of(1, 0, 2);
	struct optinc_cqe cqe;
	unsigned int way, i;
	char then[MEMORY], now[MEMORY];

	for (way = 0; way < 3; way++) {
		struct optinc_sqe s0 = allreduce(p, 0, 10000), s1 = allreduce(p, 1, 10000);

		for (i = 0; i < 8; i++)
			submit(&p->q[0], &s0);
		bell(&p->q[0], OPTINC_DB_CQ_ARM, p->q[0].head);
		step_both(p, 2);
		submit(&p->q[0], &s0);		/* rung, and not taken */
		reset_by(p, way);
		region_get(&p->dst[0], 0, then, MEMORY);
		for (i = 0; i < 3; i++)
			submit(&p->q[1], &s1);
		for (i = 0; i < 3; i++) {
			cqe = await(&p->q[1], b);
			assert_int_equal(cqe.status >> 1, i && cqe.status >> 1 ==
					 OPTINC_ST_EPOCH_ENDED ? OPTINC_ST_EPOCH_ENDED :
					 OPTINC_ST_PEER_LOST);
			assert_int_equal(cqe.peer, 0);
		}
		steps(b, 10);
		assert_int_equal(b->host.violations, 0);
		assert_false(peek(&p->q[0], &cqe));
		assert_false(card_busy(b->card));
		region_get(&p->dst[0], 0, now, MEMORY);
		assert_memory_equal(now, then, MEMORY);

		/* all as new */
		b->host.closed = false;
		bench_enable(b);
		p->ctx[0] = make_context(b, 2);
		make_queue(b, p->ctx[0], &p->q[0], 2, 16, 32, 1);
		region_register(b, p->ctx[0], &p->src[0], 0);
		region_register(b, p->ctx[0], &p->dst[0], OPTINC_MR_WRITE);
		assert_int_equal(object_command(p->b[1], OPTINC_ADMIN_GROUP_LEAVE, p->ctx[1],
						p->group[1]), OPTINC_AST_SUCCESS);
		assert_int_equal(object_command(p->b[1], OPTINC_ADMIN_QP_DESTROY, p->ctx[1],
						p->q[1].id), OPTINC_AST_SUCCESS);
		make_queue(p->b[1], p->ctx[1], &p->q[1], 3, 16, 32, 1);
		join_pair(p, &join, p->group);
		expect_alive(p);
	}
}

/* CI-ERR-7, -9, -10, CI-GRP-8: abort, leave, rejoin */
static void test_epochs(void **state)
{
	struct pair *p = *state;
	struct optinc_hw_join join = join_of(1, 0, 2);
	struct optinc_sqe s0 = barrier(p, 0), s1 = barrier(p, 1);
	struct optinc_cqe cqe;
	unsigned int i, round;

	post_event(p->b[1], 0);
	step_both(p, 3);
	poll_events(p->b[1]);
	assert_int_equal(p->b[1]->events, 1);	/* of the join */
	for (i = 0; i < 8; i++)
		post_event(p->b[1], (uint16_t)i);
	for (round = 0; round < 4; round++) {
		uint8_t opcode = round & 1 ? OPTINC_ADMIN_GROUP_LEAVE : OPTINC_ADMIN_GROUP_ABORT;

		for (i = 0; i < 3; i++) {
			submit(&p->q[0], &s0);
			if (i)
				submit(&p->q[1], &s1);
		}
		step_both(p, 50);
		assert_int_equal(await(&p->q[0], NULL).status >> 1, OPTINC_ST_SUCCESS);
		assert_int_equal(await(&p->q[0], NULL).status >> 1, OPTINC_ST_SUCCESS);
		assert_int_equal(await(&p->q[1], NULL).status >> 1, OPTINC_ST_SUCCESS);
		assert_int_equal(await(&p->q[1], NULL).status >> 1, OPTINC_ST_SUCCESS);
		assert_int_equal(object_command(p->b[0], opcode, p->ctx[0], p->group[0]),
				 OPTINC_AST_SUCCESS);
		/* a fence: complete when the command is */
		assert_true(reap(&p->q[0], &cqe));
		assert_int_equal(cqe.status >> 1, OPTINC_ST_ABORTED);
		assert_int_equal(cqe.peer, 0);
		submit(&p->q[1], &s1);
		cqe = await(&p->q[1], p->b[0]);
		assert_true(cqe.status >> 1 == OPTINC_ST_ABORTED ||
			    cqe.status >> 1 == OPTINC_ST_EPOCH_ENDED);
		assert_int_equal(cqe.peer, 0);
		cqe.status = 0;
		submit(&p->q[1], &s1);
		cqe = await(&p->q[1], p->b[0]);
		assert_int_equal(cqe.status >> 1, OPTINC_ST_EPOCH_ENDED);
		assert_int_equal(run(&p->q[0], &s0, NULL), round & 1 ? OPTINC_ST_INVALID_GROUP :
				 OPTINC_ST_EPOCH_ENDED);
		if (!(round & 1))
			assert_int_equal(object_command(p->b[0], OPTINC_ADMIN_GROUP_LEAVE,
							p->ctx[0], p->group[0]),
					 OPTINC_AST_SUCCESS);
		assert_int_equal(object_command(p->b[1], OPTINC_ADMIN_GROUP_LEAVE, p->ctx[1],
						p->group[1]), OPTINC_AST_SUCCESS);
		assert_int_equal(join_group(p->b[0], p->ctx[0], &join), OPTINC_AST_SUCCESS);
		s0.group = p->b[0]->last.handle;
		assert_int_equal(run(&p->q[0], &s0, p->b[1]), OPTINC_ST_INVALID_GROUP);
		assert_int_equal(object_command(p->b[0], OPTINC_ADMIN_GROUP_LEAVE, p->ctx[0],
						s0.group), OPTINC_AST_SUCCESS);
		join_pair(p, &join, p->group);
		s0.group = p->group[0];
		s1.group = p->group[1];
	}
	assert_int_equal(p->b[1]->events, 1 + 2 * 4);	/* failed and ready, each round */
}

/* CI-ERR-1, -3, -9: ranks that ask for different things, as the card reports it */
static void test_mismatch(void **state)
{
	struct pair *p = *state;
	struct optinc_hw_join join = join_of(1, 0, 2);
	struct optinc_hw_group_state group;
	struct optinc_cqe cqe[2];
	unsigned int i, k;
	static const uint8_t bits[] = {
		OPTINC_DIFF_COUNT, OPTINC_DIFF_DTYPE, OPTINC_DIFF_REDOP, OPTINC_DIFF_TAG,
		OPTINC_DIFF_FLAGS,
	};

	for (i = 0; i < sizeof(bits); i++) {
		struct optinc_sqe s[2] = { allreduce(p, 0, 100), allreduce(p, 1, 100) };
		char before[400], after[400];

		s[1].count += bits[i] == OPTINC_DIFF_COUNT;
		s[1].dtype = bits[i] == OPTINC_DIFF_DTYPE ? OPTINC_F16 : OPTINC_F32;
		s[1].redop = bits[i] == OPTINC_DIFF_REDOP;
		s[1].tag += bits[i] == OPTINC_DIFF_TAG;
		s[1].flags = bits[i] == OPTINC_DIFF_FLAGS;
		memset(before, 0x31, sizeof(before));
		region_put(&p->dst[0], 0, before, 400);
		run_pair(p, &s[0], &s[1], cqe);
		for (k = 0; k < 2; k++) {
			assert_int_equal(cqe[k].status >> 1, OPTINC_ST_MISMATCH);
			assert_int_equal(cqe[k].mismatch, bits[i]);
			assert_int_equal(cqe[k].peer, 1);
			assert_int_equal(cqe[k].tag, s[k].tag);
		}
		region_get(&p->dst[0], 0, after, 400);
		assert_memory_equal(before, after, 400);
		assert_int_equal(query_group(p->b[0], p->ctx[0], p->group[0], &group),
				 OPTINC_AST_SUCCESS);
		assert_int_equal(group.state, OPTINC_GROUP_FAILED);
		assert_int_equal(group.mismatch, 0);	/* that is the request's */
		for (k = 0; k < 2; k++)
			assert_int_equal(object_command(p->b[k], OPTINC_ADMIN_GROUP_LEAVE,
							p->ctx[k], p->group[k]),
					 OPTINC_AST_SUCCESS);
		join_pair(p, &join, p->group);
	}
}

/* CI-GRP-3: joiners that differ */
static void test_join_mismatch(void **state)
{
	struct pair *p = *state;
	struct optinc_hw_join join = join_of(44, 0, 2);
	struct optinc_hw_group_state group[2];
	uint32_t handle[2];
	uint64_t until = fabric_clock_ns() + 5000000000ULL;
	unsigned int i;

	assert_int_equal(join_group(p->b[0], p->ctx[0], &join), OPTINC_AST_SUCCESS);
	handle[0] = p->b[0]->last.handle;
	join.rank = 1;
	join.bits = 16;
	join.dtypes = 1 << OPTINC_F32;
	join.deadline_ms++;
	assert_int_equal(join_group(p->b[1], p->ctx[1], &join), OPTINC_AST_SUCCESS);
	handle[1] = p->b[1]->last.handle;
	do {
		step_both(p, 100);
	} while ((group_state(p->b[0], p->ctx[0], handle[0]) == OPTINC_GROUP_JOINING ||
		  group_state(p->b[1], p->ctx[1], handle[1]) == OPTINC_GROUP_JOINING) &&
		 fabric_clock_ns() < until);
	for (i = 0; i < 2; i++) {
		assert_int_equal(query_group(p->b[i], p->ctx[i], handle[i], &group[i]),
				 OPTINC_AST_SUCCESS);
		assert_int_equal(group[i].state, OPTINC_GROUP_FAILED);
		assert_int_equal(group[i].status, OPTINC_ST_MISMATCH);
		assert_int_equal(group[i].peer, 1);
		assert_int_equal(group[i].mismatch, OPTINC_JOIN_BITS | OPTINC_JOIN_DTYPES |
				 OPTINC_JOIN_DEADLINE);
	}
	expect_alive(p);
}

/* CI-COL-12: opposite order, one queue pair each */
static void test_opposite_order(void **state)
{
	struct pair *p = *state;
	struct optinc_hw_join join = join_of(2, 0, 2);
	struct optinc_sqe a[2] = { allreduce(p, 0, 5000), allreduce(p, 1, 5000) };
	struct optinc_sqe c[2] = { a[0], a[1] };
	uint32_t second[2];
	unsigned int i, n;

	join_pair(p, &join, second);
	for (i = 0; i < 2; i++) {
		c[i].group = second[i];
		c[i].dst_off = 32768;
	}
	for (n = 0; n < 100; n++) {
		submit(&p->q[0], &a[0]);
		submit(&p->q[0], &c[0]);
		submit(&p->q[1], &c[1]);
		submit(&p->q[1], &a[1]);
		for (i = 0; i < 4; i++)
			assert_int_equal(await(&p->q[i / 2], peer_of(p, i / 2)).status >> 1,
					 OPTINC_ST_SUCCESS);
	}
}

/* CI-CNT-1, what the card itself counts */
static void test_counters(void **state)
{
	struct pair *p = *state;
	struct bench *b = p->b[0];
	struct optinc_admin_cmd cmd = log_command(b);
	const struct optinc_hw_port_log *log = (void *)b->data;
	struct optinc_sqe s0 = allreduce(p, 0, 256), s1 = allreduce(p, 1, 256);
	struct optinc_sqe bad = s0, nop = { .cmd_id = 4 };

	expect_pair(p, &s0, &s1, OPTINC_ST_SUCCESS);
	bad.flags = 0xff;
	assert_int_equal(run(&p->q[0], &bad, NULL), OPTINC_ST_INVALID_FIELD);
	assert_int_equal(run(&p->q[0], &nop, NULL), OPTINC_ST_SUCCESS);
	assert_int_equal(admin(b, cmd), OPTINC_AST_SUCCESS);
	assert_int_equal(log->requests, 3);
	assert_int_equal(log->errors, 1);
	assert_int_equal(log->doorbells, 3);
	assert_int_equal(log->doorbells_dropped, 0);
	assert_true(log->wire_ns > 0);
	assert_int_equal(log->tx_bytes, 256 + 1);	/* codes and an exponent */
}

/*
 * CI-SEC-1: noise in rings, doorbells and commands. Nothing outside of what
 * was given may change, and the card goes on.
 */
static void noise_entry(struct pair *p, uint32_t *seed, struct optinc_sqe *sqe)
{
	const uint32_t handles[] = { p->src[0].handle, p->dst[0].handle, p->group[0], 0, 1, -1U };
	unsigned int i;

	*sqe = allreduce(p, 0, next_random(seed) % 40000);
	for (i = next_random(seed) % 4; i--;)
		((uint8_t *)sqe)[next_random(seed) % 64] = (uint8_t)next_random(seed);
	if (next_random(seed) % 4 == 0)
		sqe->dst_mr = handles[next_random(seed) % 6];
	if (next_random(seed) % 8 == 0)
		sqe->src_off = -(uint64_t)(next_random(seed) % 1000);
	if (next_random(seed) % 4 == 0)
		sqe->opcode = next_random(seed) % 6;
}

static void noise_command(struct pair *p, uint32_t *seed)
{
	struct bench *b = p->b[0];
	struct optinc_admin_cmd cmd = {
		.opcode = next_random(seed) % 0x30, .ctx = p->ctx[0],
		.addr = b->data_dma + next_random(seed) % 32 * 8, .length = next_random(seed) % 300,
	};
	unsigned int i;

	if (cmd.opcode == OPTINC_ADMIN_ASYNC_EVENT || cmd.opcode == OPTINC_ADMIN_CTX_DESTROY)
		return;
	for (i = next_random(seed) % 6; i--;)
		((uint8_t *)&cmd)[4 + next_random(seed) % 60] = (uint8_t)next_random(seed);
	/* not what the test itself stands on */
	if (cmd.handle == p->q[0].id || cmd.handle == p->group[0])
		return;
	admin(b, cmd);
}

static void test_noise(void **state)
{
	struct pair *p = *state;
	struct bench *b = p->b[0];
	uint64_t guard_dma;
	uint8_t *guard = host_alloc(&b->host, 4096, 0, &guard_dma);
	static uint8_t src[MEMORY], now[MEMORY];
	struct optinc_cqe cqe;
	struct optinc_sqe sqe;
	uint32_t seed = 12345, flight = 0;
	unsigned int i;

	memset(guard, 0x77, 4096);
	region_get(&p->src[0], 0, src, MEMORY);
	for (i = 0; i < 30000; i++) {
		if (flight < 8) {
			noise_entry(p, &seed, &sqe);
			submit(&p->q[0], &sqe);
			flight++;
		}
		if (i % 3 == 0)
			card_doorbell(b->card, next_random(&seed) % 80, next_random(&seed) % 16,
				      next_random(&seed) << 8 | next_random(&seed));
		if (i % 5 == 0)
			noise_command(p, &seed);
		step_both(p, 1);
		while (reap(&p->q[0], &cqe))
			flight--;
		/* a request that was valid waits for its peer: end it now and then */
		if (i % 50 == 0) {
			struct optinc_hw_join join = join_of(1, 0, 2);

			object_command(b, OPTINC_ADMIN_GROUP_LEAVE, p->ctx[0], p->group[0]);
			object_command(p->b[1], OPTINC_ADMIN_GROUP_LEAVE, p->ctx[1], p->group[1]);
			while (reap(&p->q[0], &cqe))
				flight--;
			join_pair(p, &join, p->group);
		}
		assert_int_equal(reg(b, OPTINC_REG_STATUS), OPTINC_STATUS_READY);
	}
	for (i = 0; i < 4096; i++)
		assert_int_equal(guard[i], 0x77);
	region_get(&p->src[0], 0, now, MEMORY);
	assert_memory_equal(now, src, MEMORY);
	object_command(b, OPTINC_ADMIN_GROUP_LEAVE, p->ctx[0], p->group[0]);
	object_command(p->b[1], OPTINC_ADMIN_GROUP_LEAVE, p->ctx[1], p->group[1]);
	while (reap(&p->q[0], &cqe))
		flight--;
	assert_int_equal(flight, 0);
}

int main(void)
{
#define CASE(name)	cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(results), CASE(bytes), CASE(entry_checks), CASE(bounds), CASE(overlap),
		CASE(isolation), CASE(busy_regions), CASE(full_rings), CASE(queue_destroy), CASE(broken_ring),
		CASE(dma_error), CASE(context_destroy), CASE(reset_under_load), CASE(epochs),
		CASE(mismatch), CASE(join_mismatch), CASE(opposite_order), CASE(counters),
		CASE(noise),
	};

	return run_both_ways("card: requests and groups", tests);
}
