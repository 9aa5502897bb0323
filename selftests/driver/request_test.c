// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requests of two cards, as section 8 of Documentation/card-interface.rst has
 * them: which exist, in which order they are checked, what they touch and what
 * they count. Results have their own test, reduce_test.c.
 */
#include "card.h"

#include "kselftest_harness.h"

#define HALF	(END_BYTES / 2)

FIXTURE(request)
{
	struct end end[2];
};

FIXTURE_SETUP(request)
{
	must_pair(self->end, "request");
}

FIXTURE_TEARDOWN(request)
{
}

static int status_of(struct end *e, struct optinc_sqe sqe)
{
	post(&e->queue, &sqe);
	return await_status(&e->queue);
}

/* The same on both ranks, with their own handles */
static int both(struct end end[2], struct optinc_sqe sqe, struct optinc_cqe cqe[2])
{
	int r, bad = 0;

	for (r = 0; r < 2; r++) {
		sqe.group = end[r].group;
		if (sqe.count) {
			sqe.src_mr = end[r].mr;
			sqe.dst_mr = end[r].mr;
		}
		post(&end[r].queue, &sqe);
	}
	for (r = 0; r < 2; r++) {
		cqe[r] = must_await(&end[r].queue);
		bad |= cqe[r].status >> OPTINC_CQE_STATUS_SHIFT;
	}
	return bad;
}

static bool works(struct end end[2])
{
	struct optinc_cqe cqe[2];

	return !both(end, (struct optinc_sqe) { .opcode = OPTINC_OP_BARRIER }, cqe);
}

/* The table of 8.2 for a group of 8 bits */
static bool exists(unsigned int dtype, unsigned int redop, unsigned int flags)
{
	bool arithmetic = redop == OPTINC_MEAN || redop == OPTINC_SUM;

	switch (dtype) {
	case OPTINC_F32:
	case OPTINC_F16:
	case OPTINC_BF16:
		return arithmetic && !(flags & ~OPTINC_SQE_PARITY);
	case OPTINC_I8:
	case OPTINC_I16:
		return arithmetic &&
		       !(flags & ~(OPTINC_SQE_PARITY | OPTINC_SQE_EXPONENTS));
	case OPTINC_BIT:
		return redop == OPTINC_VOTE && (!flags || flags == OPTINC_SQE_SIGN ||
						flags == (OPTINC_SQE_SIGN | OPTINC_SQE_ABSTAIN));
	default:
		return false;
	}
}

/* All combinations of dtype, redop and flags, without a region: who exists comes further */
TEST_F(request, combinations)
{
	unsigned int dtype, redop, flags;
	struct end *e = &self->end[0];

	for (dtype = 0; dtype < 16; dtype++) {
		for (redop = 0; redop < 8; redop++) {
			for (flags = 0; flags < 256; flags = flags < 16 ? flags + 1 : 2 * flags) {
				bool offered = e->card.query.dtypes >> dtype & 1 &&
					       e->card.query.redops >> redop & 1;
				/* what the group joined with, see join_of() */
				bool joined = dtype == OPTINC_F32 || dtype == OPTINC_I8 ||
					      dtype == OPTINC_BIT;
				int want = !exists(dtype, redop, flags) ?
					OPTINC_ST_INVALID_FIELD : offered && joined ?
					OPTINC_ST_INVALID_MR : OPTINC_ST_UNSUPPORTED;

				ASSERT_EQ(want, status_of(e, (struct optinc_sqe) {
					.opcode = OPTINC_OP_ALLREDUCE, .group = e->group,
					.dtype = (uint8_t)dtype, .redop = (uint8_t)redop,
					.flags = (uint8_t)flags, .count = 16,
				})) TH_LOG("dtype %u redop %u flags %#x", dtype, redop, flags);
			}
		}
	}
	EXPECT_TRUE(works(self->end));
}

/* Two violations each: the first of the list in 8.3 is told. */
TEST_F(request, order_of_checks)
{
	struct end *e = &self->end[0];
	struct optinc_sqe sqe = sum_entry(e, 100);

	/* from the last check to the first, each added to those behind it */
	sqe.src_off = e->bytes - 99;
	sqe.dst_off = e->bytes - 99;
	EXPECT_EQ(OPTINC_ST_MR_BOUNDS, status_of(e, sqe));
	sqe.src_mr = 0;
	EXPECT_EQ(OPTINC_ST_INVALID_MR, status_of(e, sqe));
	sqe.dtype = OPTINC_I16;		/* in a group of 8 bits */
	EXPECT_EQ(OPTINC_ST_UNSUPPORTED, status_of(e, sqe));
	sqe.group = e->group + 1;
	EXPECT_EQ(OPTINC_ST_INVALID_GROUP, status_of(e, sqe));
	sqe.count = -1ULL;
	EXPECT_EQ(OPTINC_ST_INVALID_FIELD, status_of(e, sqe));
	sqe.opcode = 0xee;
	EXPECT_EQ(OPTINC_ST_INVALID_OPCODE, status_of(e, sqe));
	/* within a region: exists, may be written, aligned, in bounds */
	sqe = sum_entry(e, 100);
	sqe.dst_off = e->bytes - 99;	/* neither aligned nor in bounds */
	EXPECT_EQ(OPTINC_ST_INVALID_FIELD, status_of(e, sqe));
	ASSERT_EQ(0, reg(&e->card, e->memory, e->bytes, 0, &sqe.dst_mr));
	EXPECT_EQ(OPTINC_ST_MR_ACCESS, status_of(e, sqe));
	sqe.src_off = e->bytes;
	EXPECT_EQ(OPTINC_ST_MR_BOUNDS, status_of(e, sqe));
	EXPECT_TRUE(works(self->end));
}

TEST_F(request, alignment)
{
	struct end *e = &self->end[0];
	struct optinc_sqe sqe = {
		.opcode = OPTINC_OP_ALLREDUCE, .group = e->group, .count = 4,
		.src_mr = e->mr, .dst_mr = e->mr, .dst_off = HALF, .dtype = OPTINC_F32,
	};
	unsigned int i;

	for (i = 1; i < 8; i++) {
		if (i % 4 == 0)
			continue;
		sqe.src_off = i;
		EXPECT_EQ(OPTINC_ST_INVALID_FIELD, status_of(e, sqe));
		sqe.src_off = 0;
		sqe.dst_off = HALF + i;
		EXPECT_EQ(OPTINC_ST_INVALID_FIELD, status_of(e, sqe));
		sqe.dst_off = HALF;
	}
	EXPECT_TRUE(works(self->end));
}

/* Ranges that overlap by a byte; in place where the result is larger */
TEST_F(request, overlap)
{
	struct end *e = &self->end[0];
	struct optinc_sqe mean = sum_entry(e, 1000), sum = mean;
	struct optinc_cqe cqe[2];

	mean.redop = OPTINC_MEAN;
	sum.dst_off = 0;
	EXPECT_EQ(OPTINC_ST_INVALID_FIELD, status_of(e, sum));
	sum.dst_off = 998;
	EXPECT_EQ(OPTINC_ST_INVALID_FIELD, status_of(e, sum));
	mean.dst_off = 999;
	EXPECT_EQ(OPTINC_ST_INVALID_FIELD, status_of(e, mean));
	mean.dst_off = 1;
	EXPECT_EQ(OPTINC_ST_INVALID_FIELD, status_of(e, mean));
	mean.src_off = 999;
	mean.dst_off = 0;
	EXPECT_EQ(OPTINC_ST_INVALID_FIELD, status_of(e, mean));
	/* the exponents' range */
	mean = sum_entry(e, 1000);
	mean.flags = OPTINC_SQE_EXPONENTS;
	mean.exp_mr = e->mr;
	mean.exp_off = HALF + 1999;
	EXPECT_EQ(OPTINC_ST_INVALID_FIELD, status_of(e, mean));
	/* neighbours, and in place */
	sum.dst_off = 1000;
	EXPECT_EQ(OPTINC_ST_SUCCESS, both(self->end, sum, cqe));
	mean = sum_entry(e, 1000);
	mean.redop = OPTINC_MEAN;
	mean.dst_off = 0;
	EXPECT_EQ(OPTINC_ST_SUCCESS, both(self->end, mean, cqe));
}

/* Nothing to move: the others are waited for, handles are not looked at. */
TEST_F(request, count_zero)
{
	struct optinc_sqe sqe = {
		.opcode = OPTINC_OP_ALLREDUCE, .dtype = OPTINC_I8, .redop = OPTINC_SUM,
		.src_mr = 0xdead, .dst_mr = 0xbeef, .src_off = -1ULL, .dst_off = 1,
	};
	struct optinc_cqe cqe[2];
	unsigned int i, r;

	for (r = 0; r < 2; r++)
		memset(self->end[r].memory, 0x44, END_BYTES);
	sqe.group = self->end[0].group;
	post(&self->end[0].queue, &sqe);
	EXPECT_FALSE(await_within(&self->end[0].queue, &cqe[0], QUIET_MS));
	sqe.group = self->end[1].group;
	EXPECT_EQ(OPTINC_ST_SUCCESS, status_of(&self->end[1], sqe));
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->end[0].queue));
	for (r = 0; r < 2; r++) {
		for (i = 0; i < END_BYTES; i++)
			ASSERT_EQ(0x44, self->end[r].memory[i]);
	}
}

/* A region that begins and ends anywhere, over many pages */
TEST_F(request, odd_region)
{
	size_t count = 20001, i;
	struct optinc_sqe sqe;
	unsigned int r;

	for (r = 0; r < 2; r++) {
		struct end *e = &self->end[r];
		uint8_t *m = e->memory + 13 + r;

		memset(e->memory, 0x55, END_BYTES);
		for (i = 0; i < count; i++)
			m[i] = (uint8_t)(i * (r + 3) % 100);
		sqe = sum_entry(e, count);
		sqe.redop = OPTINC_MEAN;
		sqe.src_mr = must_reg(&e->card, m, count);
		sqe.dst_mr = must_reg(&e->card, e->memory + HALF - 77, count);
		sqe.dst_off = 0;
		post(&e->queue, &sqe);
	}
	for (r = 0; r < 2; r++)
		ASSERT_EQ(OPTINC_ST_SUCCESS, await_status(&self->end[r].queue));
	for (r = 0; r < 2; r++) {
		uint8_t *result = self->end[r].memory + HALF - 77;

		for (i = 0; i < count; i++) {
			int total = (int)(i * 3 % 100 + i * 4 % 100), g = i % 2 ? -1 : 1;
			int want = g * ((g * total + 256 + 1) / 2 - 128);

			ASSERT_EQ(want, (int8_t)result[i]) TH_LOG("element %zu", i);
		}
		EXPECT_EQ(0x55, result[-1]);
		EXPECT_EQ(0x55, result[count]);
	}
}

TEST_F(request, read_only_is_not_written)
{
	struct end *e = &self->end[0];
	struct optinc_sqe sqe = sum_entry(e, 100);
	unsigned int i;

	memset(e->memory, 0x66, END_BYTES);
	ASSERT_EQ(0, reg(&e->card, e->memory, e->bytes, 0, &sqe.dst_mr));
	EXPECT_EQ(OPTINC_ST_MR_ACCESS, status_of(e, sqe));
	EXPECT_TRUE(works(self->end));
	for (i = 0; i < END_BYTES; i++)
		ASSERT_EQ(0x66, e->memory[i]);
}

/* Sums of counts and offsets that only fit into more than 64 bits */
TEST_F(request, no_wrap)
{
	static const uint64_t offsets[] = { -1ULL, -2ULL, -100ULL, -101ULL, 1ULL << 63, 1ULL << 32 };
	struct end *e = &self->end[0];
	struct optinc_sqe sqe;
	unsigned int i, bit;

	for (i = 0; i < ARRAY_SIZE(offsets); i++) {
		sqe = sum_entry(e, 100);
		sqe.src_off = offsets[i];
		EXPECT_EQ(OPTINC_ST_MR_BOUNDS, status_of(e, sqe));
		sqe = sum_entry(e, 100);
		sqe.dst_off = offsets[i] & ~1ULL;
		EXPECT_EQ(OPTINC_ST_MR_BOUNDS, status_of(e, sqe));
	}
	for (bit = 17; bit < 64; bit++) {
		uint64_t count = 1ULL << bit;

		EXPECT_EQ(count > e->card.query.max_count ? OPTINC_ST_INVALID_FIELD :
			  OPTINC_ST_MR_BOUNDS, status_of(e, sum_entry(e, count)));
	}
	EXPECT_TRUE(works(self->end));
}

/* A known sequence, and what each counter makes of it */
TEST_F(request, counters)
{
	struct optinc_stats before[2], after[2];
	struct optinc_cqe cqe[2];
	unsigned int r;
	uint64_t wire[2] = { 0, 0 };
	struct optinc_sqe sum = sum_entry(&self->end[0], 1000);
	struct optinc_sqe broadcast = {
		.opcode = OPTINC_OP_BROADCAST, .dtype = OPTINC_U8, .count = 999, .dst_off = HALF,
	};
	struct optinc_sqe most = {
		.opcode = OPTINC_OP_EXPONENT_MAX, .dtype = OPTINC_U8, .count = 77, .dst_off = HALF,
	};
	const struct optinc_sqe *all[] = { &sum, &broadcast, &most };

	memset(self->end[0].memory, 1, HALF);
	memset(self->end[1].memory, 0x80, HALF);	/* all of them saturate */
	for (r = 0; r < 2; r++)
		before[r] = must_stats(&self->end[r].card);
	for (unsigned int i = 0; i < ARRAY_SIZE(all); i++) {
		ASSERT_EQ(OPTINC_ST_SUCCESS, both(self->end, *all[i], cqe));
		for (r = 0; r < 2; r++)
			wire[r] += cqe[r].wire_ns;
		EXPECT_EQ(cqe[0].wire_ns, cqe[1].wire_ns);
		EXPECT_NE(0, cqe[0].wire_ns);
	}
	EXPECT_EQ(OPTINC_ST_INVALID_OPCODE,
		  status_of(&self->end[0], (struct optinc_sqe) { .opcode = 0xee }));
	ring_doorbell(&self->end[0].card, OPTINC_DB_SQ_TAIL, self->end[0].queue.id, 0x4000);
	for (r = 0; r < 2; r++) {
		after[r] = must_stats(&self->end[r].card);
		EXPECT_EQ(3 + !r, after[r].requests - before[r].requests);
		EXPECT_EQ(!r, after[r].errors - before[r].errors);
		EXPECT_EQ(r ? 1000 : 0, after[r].saturated - before[r].saturated);
		EXPECT_EQ(0, after[r].nonfinite - before[r].nonfinite);
		EXPECT_EQ(3 + 2 * !r, after[r].doorbells - before[r].doorbells);
		EXPECT_EQ(!r, after[r].doorbells_dropped - before[r].doorbells_dropped);
		EXPECT_EQ(wire[r], after[r].wire_ns - before[r].wire_ns);
		/* D is 4 digits, so a byte of a code; exponents travel as they are */
		EXPECT_EQ(1000 + 77 + (r ? 0 : 999), after[r].tx_bytes - before[r].tx_bytes);
		EXPECT_LE(1000 + 77 + (r ? 999 : 0), after[r].rx_bytes - before[r].rx_bytes);
	}
}

/* The clock in the completions of a queue never goes back. */
TEST_F(request, clock)
{
	struct queue *q = &self->end[0].queue;
	uint64_t last = must_stats(&self->end[0].card).device_ns;
	unsigned int i;

	for (i = 0; i < 1000; i++) {
		struct optinc_cqe cqe;

		post_nop(q, (uint16_t)i);
		cqe = must_await(q);
		ASSERT_LE(last, cqe.device_ns);
		last = cqe.device_ns;
	}
	EXPECT_LE(last, must_stats(&self->end[0].card).device_ns);
}

/* Stores that are not of 32 bits at an offset that there is */
TEST_F(request, doorbell_width)
{
	struct card *c = &self->end[0].card;
	uint64_t before = must_stats(c).doorbells_dropped;
	volatile uint8_t *page = (volatile uint8_t *)c->page;
	struct optinc_cqe cqe;

	put_entry(&self->end[0].queue, &(struct optinc_sqe) { .cmd_id = 5 });
	*page = 1;
	*(volatile uint16_t *)page = 1;
	*(volatile uint16_t *)(page + 2) = (uint16_t)self->end[0].queue.id;
	EXPECT_EQ(before + 3, must_stats(c).doorbells_dropped);
	EXPECT_FALSE(await_within(&self->end[0].queue, &cqe, QUIET_MS));
	announce(&self->end[0].queue);
	EXPECT_EQ(5, must_await(&self->end[0].queue).cmd_id);
}

static uint64_t draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* A word of an entry, sometimes one that makes sense */
static void scribble(struct optinc_sqe *sqe, struct end *e, uint64_t *state)
{
	uint64_t how = draw(state);
	unsigned int i;

	if (how & 1)
		*sqe = sum_entry(e, draw(state) % 2000);
	for (i = 0; i < sizeof(*sqe); i++) {
		if (!(how & 1) || draw(state) % 32 == 0)
			((uint8_t *)sqe)[i] = (uint8_t)draw(state);
	}
}

/* Random entries and doorbells: no more than their own region can change. */
TEST_F(request, random_input)
{
	uint64_t state = 88172645463325252ULL, until = now_ms() + 5000;
	struct end *e = &self->end[0];
	uint8_t *bystander = mmap(NULL, END_BYTES, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint32_t readable, i;
	struct queue q;

	ASSERT_NE(MAP_FAILED, bystander);
	memset(bystander, 0x77, END_BYTES);
	ASSERT_EQ(0, reg(&e->card, bystander, END_BYTES, 0, &readable));
	while (now_ms() < until) {
		must_create_queue(&e->card, &q, 64, 64, -1);
		for (i = 0; i < 64; i++)
			scribble(&q.sq[i], e, &state);
		for (i = 0; i < 200; i++) {
			uint32_t id = draw(&state) % 4 ? q.id : (uint32_t)draw(&state);

			/* the fixture's own queue has to stay as it is */
			if ((id & 0xffff) == e->queue.id)
				continue;
			ring_doorbell(&e->card, draw(&state) % 8 * 4, id & 0xffff,
				      (uint32_t)draw(&state) % 128);
		}
		must_stats(&e->card);
		unmap_queue(&q);
		ASSERT_EQ(0, destroy_queue(&q));
	}
	for (i = 0; i < END_BYTES; i++)
		ASSERT_EQ(0x77, bystander[i]);
	/* the card is there, for this context and a new one */
	post_nop(&e->queue, 1);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&e->queue));
	must_prepare_end(&self->end[1], 0, -1);
	post_nop(&self->end[1].queue, 1);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->end[1].queue));
}

TEST_HARNESS_MAIN
