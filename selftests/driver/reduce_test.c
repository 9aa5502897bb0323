// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reductions over two cards, straight through the device nodes: every bit is
 * compared with integer arithmetic as Documentation/number-format.rst has it.
 * Then the rings themselves: credit, full queues, phases and the wrap of
 * indices.
 *
 * Both ranks are this process's, on cards 0 and 1. With OPTINC_TEST_RANK, 0 or
 * 1, it is that rank alone, on card 0, and another machine runs the other one
 * with the same OPTINC_TEST_KEY. "vm" takes the rank from OPTINC_VM.
 */
#include "card.h"

#include "kselftest_harness.h"

#define BYTES	0x100000U	/* of a region: source, and result behind it */
#define RESULT	(BYTES / 2)
#define SKEW_MS	120000		/* between the starts of two machines */

static unsigned int first, end;	/* the ranks that are here */
static bool apart;		/* the others are elsewhere */

/* OPTINC_TEST_RANK is a number, or "vm" for that of the machine. */
static unsigned int own_rank(void)
{
	const char *text = getenv("OPTINC_TEST_RANK");

	if (!strcmp(text, "vm"))
		text = getenv("OPTINC_VM");
	must(text && (!strcmp(text, "0") || !strcmp(text, "1")));
	return (unsigned int)atoi(text);
}

struct rank {
	struct card card;
	struct queue queue;
	uint32_t group, mr;
	uint8_t *memory;
};

FIXTURE(ranks)
{
	struct rank rank[2];
};

FIXTURE_VARIANT(ranks)
{
	uint32_t bits;
	uint32_t queue;
};

FIXTURE_VARIANT_ADD(ranks, width8)
{
	.bits = 8, .queue = 16,
};

FIXTURE_VARIANT_ADD(ranks, width16)
{
	.bits = 16, .queue = 2,
};

/* A group of its own for each test, the same one on every machine */
static void must_form(struct rank ranks[2], const char *test, uint32_t bits)
{
	struct optinc_group_join join = join_of(getenv("OPTINC_TEST_KEY") ?: "reduce", 0);
	struct optinc_group_wait wait;
	unsigned int r, i;

	for (i = 0; test[i]; i++)
		join.key[8 + i % 8] = (uint8_t)(join.key[8 + i % 8] * 31 + test[i]);
	join.key[15] ^= (uint8_t)bits;
	join.bits = bits;
	join.dtypes = 1 << OPTINC_F32 | 1 << (bits == 8 ? OPTINC_I8 : OPTINC_I16) |
		      1 << OPTINC_BIT;
	join.deadline_ms = apart ? SKEW_MS : PATIENCE_MS;
	for (r = first; r < end; r++) {
		join.rank = r;
		must(!call(ranks[r].card.fd, OPTINC_IOCTL_GROUP_JOIN, &join));
		ranks[r].group = join.group;
	}
	for (r = first; r < end; r++) {
		must(!wait_group(&ranks[r].card, ranks[r].group, SKEW_MS, &wait));
		must(wait.state == OPTINC_GROUP_READY);
	}
}

static void must_open_rank(struct rank *r, unsigned int number, uint32_t queue)
{
	must_open(&r->card, number);
	must_create_queue(&r->card, &r->queue, queue, queue, -1);
	r->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(r->memory != MAP_FAILED);
	r->mr = must_reg(&r->card, r->memory, BYTES);
}

FIXTURE_SETUP(ranks)
{
	unsigned int r;

	apart = getenv("OPTINC_TEST_RANK");
	first = apart ? own_rank() : 0;
	end = apart ? first + 1 : 2;
	for (r = first; r < end; r++)
		must_open_rank(&self->rank[r], apart ? 0 : r, variant->queue);
	must_form(self->rank, _metadata->name, variant->bits);
}

/* The clean order: the peer's last request succeeds whoever leaves first. */
FIXTURE_TEARDOWN(ranks)
{
	unsigned int r;

	for (r = first; r < end; r++) {
		EXPECT_EQ(0, leave_group(&self->rank[r].card, self->rank[r].group));
		EXPECT_EQ(0, destroy_queue(&self->rank[r].queue));
		EXPECT_EQ(0, dereg(&self->rank[r].card, self->rank[r].mr));
		unmap_queue(&self->rank[r].queue);
		shut(&self->rank[r].card);
	}
}

/* What both machines can draw: element @i of rank @r in a test's round */
static uint32_t draw(unsigned int r, unsigned int round, size_t i)
{
	uint64_t x = ((uint64_t)(r + 1) << 56 | (uint64_t)round << 40 | i) * 0x9e3779b97f4a7c15ULL;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ULL;
	return (uint32_t)(x >> 32);
}

static int code(unsigned int r, unsigned int round, size_t i, uint32_t bits)
{
	return bits == 8 ? (int8_t)draw(r, round, i) : (int16_t)draw(r, round, i);
}

/* Section 4 of the format: the code that has no counterpart */
static int saturate(int q, uint32_t bits, uint32_t *saturated)
{
	int limit = (1 << (bits - 1)) - 1;

	if (q >= -limit)
		return q;
	++*saturated;
	return -limit;
}

/* Section 5: what the fabric makes of the codes of both ranks */
static int reduce(int a, int b, size_t i, uint32_t bits, bool mean, bool parity)
{
	int offset = 1 << (bits - 1);
	int g = (i + parity) % 2 ? -1 : 1;
	int total = g * a + offset + g * b + offset;

	return mean ? g * ((total + 1) / 2 - offset) : g * (total - 2 * offset);
}

static void post_all(struct rank ranks[2], struct optinc_sqe sqe)
{
	unsigned int r;

	for (r = first; r < end; r++) {
		sqe.group = ranks[r].group;
		if (sqe.count) {
			sqe.src_mr = ranks[r].mr;
			sqe.dst_mr = ranks[r].mr;
		}
		post(&ranks[r].queue, &sqe);
	}
}

/* The statuses together; the last rank's completion */
static int await_all(struct rank ranks[2], struct optinc_cqe *cqe)
{
	unsigned int r;
	int status = 0;

	for (r = first; r < end; r++) {
		*cqe = must_await(&ranks[r].queue);
		status |= cqe->status >> OPTINC_CQE_STATUS_SHIFT;
	}
	return status;
}

static const size_t counts[] = { 1, 2, 255, 256, 257, 1000, 32768, 32769, 100003 };

TEST_F(ranks, codes)
{
	unsigned int n, kind, r, bytes = variant->bits / 8;
	struct optinc_cqe cqe;

	for (n = 0; n < ARRAY_SIZE(counts) * 4; n++) {
		size_t count = counts[n / 4], i;
		uint32_t saturated = 0, ignored = 0;
		bool mean, parity;

		kind = n % 4;
		mean = kind & 1;
		parity = kind & 2;
		for (r = first; r < end; r++) {
			uint8_t *m = self->rank[r].memory;

			memset(m + RESULT, 0xee, BYTES - RESULT);
			for (i = 0; i < count; i++) {
				int q = code(r, n, i, variant->bits);

				memcpy(m + i * bytes, &q, bytes);
			}
		}
		post_all(self->rank, (struct optinc_sqe) {
			.opcode = OPTINC_OP_ALLREDUCE, .count = count, .dst_off = RESULT,
			.tag = n, .dtype = bytes == 1 ? OPTINC_I8 : OPTINC_I16,
			.redop = mean ? OPTINC_MEAN : OPTINC_SUM,
			.flags = parity ? OPTINC_SQE_PARITY : 0,
		});
		ASSERT_EQ(OPTINC_ST_SUCCESS, await_all(self->rank, &cqe)) TH_LOG("%u", n);
		ASSERT_EQ(n, cqe.tag);
		for (i = 0; i < count; i++) {
			int codes[2], want, got = 0, size = mean ? bytes : 2 * bytes;

			for (r = 0; r < 2; r++)
				codes[r] = saturate(code(r, n, i, variant->bits), variant->bits,
						    r == end - 1 ? &saturated : &ignored);
			want = reduce(codes[0], codes[1], i, variant->bits, mean, parity);
			for (r = first; r < end; r++) {
				memcpy(&got, self->rank[r].memory + RESULT + i * size, size);
				ASSERT_EQ(0, memcmp(&got, &want, size))
					TH_LOG("%u: element %zu is %#x, not %#x", n, i, got, want);
			}
		}
		ASSERT_EQ(saturated, cqe.saturated);
		for (r = first; r < end; r++)
			ASSERT_EQ(0xee, self->rank[r].memory[RESULT + count * bytes *
							     (mean ? 1 : 2)]);
	}
}

/*
 * Floating point whose codes are themselves: each block begins with the
 * largest code, so that one unit is 2^@scale.
 */
TEST_F(ranks, floats)
{
	int largest = (1 << (variant->bits - 1)) - 1;
	unsigned int n, r;
	struct optinc_cqe cqe;

	for (n = 0; n < ARRAY_SIZE(counts) * 2; n++) {
		size_t count = counts[n / 2], i;
		int scale = (int)n * 5 - 40;
		float unit = 1, *m;

		for (i = 0; i < (size_t)abs(scale); i++)
			unit = scale < 0 ? unit / 2 : unit * 2;
		for (r = first; r < end; r++) {
			m = (float *)self->rank[r].memory;
			for (i = 0; i < count; i++)
				m[i] = unit * (float)(i % OPTINC_BLOCK ?
					code(r, n, i, variant->bits) % largest : largest);
		}
		post_all(self->rank, (struct optinc_sqe) {
			.opcode = OPTINC_OP_ALLREDUCE, .count = count, .dst_off = 0,
			.dtype = OPTINC_F32, .redop = n % 2 ? OPTINC_MEAN : OPTINC_SUM,
		});
		ASSERT_EQ(OPTINC_ST_SUCCESS, await_all(self->rank, &cqe)) TH_LOG("%u", n);
		for (i = 0; i < count; i++) {
			int codes[2];
			float want;

			for (r = 0; r < 2; r++)
				codes[r] = i % OPTINC_BLOCK ?
					code(r, n, i, variant->bits) % largest : largest;
			want = unit * (float)reduce(codes[0], codes[1], i, variant->bits, n % 2,
						    false);
			for (r = first; r < end; r++) {
				m = (float *)self->rank[r].memory + i;
				ASSERT_EQ(0, memcmp(m, &want, sizeof(want)))
					TH_LOG("%u: element %zu is %g, not %g", n, i, *m, want);
			}
		}
	}
}

TEST_F(ranks, votes)
{
	size_t count = 10007, i;
	struct optinc_cqe cqe;
	unsigned int r;

	for (r = first; r < end; r++) {
		for (i = 0; i < (count + 7) / 8; i++)
			self->rank[r].memory[i] = (uint8_t)draw(r, 0, i);
	}
	post_all(self->rank, (struct optinc_sqe) {
		.opcode = OPTINC_OP_ALLREDUCE, .count = count, .dst_off = RESULT,
		.dtype = OPTINC_BIT, .redop = OPTINC_VOTE,
	});
	ASSERT_EQ(OPTINC_ST_SUCCESS, await_all(self->rank, &cqe));
	for (i = 0; i < count; i++) {
		int votes = 0;

		for (r = 0; r < 2; r++)
			votes += (uint8_t)draw(r, 0, i / 8) >> i % 8 & 1 ? 1 : -1;
		for (r = first; r < end; r++)
			ASSERT_EQ(votes, (int8_t)self->rank[r].memory[RESULT + i]);
	}
}

/* Opaque bytes: from one root, then the other; and the maximum of both */
TEST_F(ranks, bytes)
{
	size_t count = 70001, i;
	struct optinc_cqe cqe;
	unsigned int round, r;

	for (round = 0; round < 3; round++) {
		for (r = first; r < end; r++) {
			for (i = 0; i < count; i++)
				self->rank[r].memory[i] = (uint8_t)draw(r, round, i);
			memset(self->rank[r].memory + RESULT, 0xee, count);
		}
		post_all(self->rank, (struct optinc_sqe) {
			.opcode = round < 2 ? OPTINC_OP_BROADCAST : OPTINC_OP_EXPONENT_MAX,
			.count = count, .dst_off = RESULT, .dtype = OPTINC_U8,
			.root = round == 1,
		});
		ASSERT_EQ(OPTINC_ST_SUCCESS, await_all(self->rank, &cqe));
		for (i = 0; i < count; i++) {
			uint8_t a = (uint8_t)draw(0, round, i), b = (uint8_t)draw(1, round, i);
			uint8_t want = round == 0 ? a : round == 1 || b > a ? b : a;

			for (r = first; r < end; r++)
				ASSERT_EQ(round == r ? 0xee : want,
					  self->rank[r].memory[RESULT + i]);
		}
	}
}

/* Many outstanding, completed in order, over several passes of the rings */
TEST_F(ranks, in_order)
{
	unsigned int n, r, done[2] = { 0, 0 };

	for (r = first; r < end; r++)
		memset(self->rank[r].memory, (int)r + 1, 4096);
	for (n = 0; n < 500; n++) {
		for (r = first; r < end; r++) {
			struct queue *q = &self->rank[r].queue;

			while ((uint16_t)(q->tail - q->head) >= variant->queue)
				ASSERT_EQ((uint16_t)done[r]++, must_await(q).cmd_id);
			post(q, &(struct optinc_sqe) {
				.opcode = OPTINC_OP_EXPONENT_MAX, .dtype = OPTINC_U8,
				.group = self->rank[r].group, .cmd_id = (uint16_t)n,
				.count = 1 + n % 100, .src_mr = self->rank[r].mr,
				.dst_mr = self->rank[r].mr, .dst_off = RESULT + n * 128,
			});
		}
	}
	for (r = first; r < end; r++) {
		while (done[r] < 500)
			ASSERT_EQ((uint16_t)done[r]++, must_await(&self->rank[r].queue).cmd_id);
		for (n = 0; n < 500; n++) {
			uint8_t *result = self->rank[r].memory + RESULT + n * 128;

			ASSERT_EQ(2, result[0]);
			ASSERT_EQ(2, result[n % 100]);
			ASSERT_EQ(0, result[n % 100 + 1]);
		}
	}
}

FIXTURE(ring)
{
	struct rank rank[2];
};

FIXTURE_SETUP(ring)
{
	if (getenv("OPTINC_TEST_RANK"))
		SKIP(_exit(SKIPPED), "of one machine");
	first = 0;
	end = 2;
	must_open_rank(&self->rank[0], 0, 4);
	must_open_rank(&self->rank[1], 1, 4);
	must_form(self->rank, _metadata->name, 8);
}

FIXTURE_TEARDOWN(ring)
{
}

static uint64_t dropped(struct rank *r)
{
	return must_stats(&r->card).doorbells_dropped;
}

/* A queue full of requests that wait for a peer takes no more, and loses none. */
TEST_F(ring, full)
{
	struct optinc_sqe barrier = { .opcode = OPTINC_OP_BARRIER };
	struct queue *q = &self->rank[0].queue;
	struct optinc_cqe cqe;
	uint64_t before;
	unsigned int i;

	barrier.group = self->rank[0].group;
	for (i = 0; i < 4; i++) {
		barrier.cmd_id = (uint16_t)i;
		post(q, &barrier);
	}
	EXPECT_FALSE(await_within(q, &cqe, QUIET_MS));
	before = dropped(&self->rank[0]);
	/* one too many; and the whole ring once more */
	ring_doorbell(&self->rank[0].card, OPTINC_DB_SQ_TAIL, q->id, 5);
	ring_doorbell(&self->rank[0].card, OPTINC_DB_SQ_TAIL, q->id, 8);
	ring_doorbell(&self->rank[0].card, OPTINC_DB_SQ_TAIL, q->id, 3);
	EXPECT_EQ(before + 3, dropped(&self->rank[0]));
	/* the same again says nothing new, and is no error */
	announce(q);
	EXPECT_EQ(before + 3, dropped(&self->rank[0]));

	barrier.group = self->rank[1].group;
	for (i = 0; i < 4; i++)
		post(&self->rank[1].queue, &barrier);
	for (i = 0; i < 4; i++) {
		cqe = must_await(q);
		EXPECT_EQ(OPTINC_ST_SUCCESS, cqe.status >> OPTINC_CQE_STATUS_SHIFT);
		EXPECT_EQ(i, cqe.cmd_id);
		EXPECT_EQ(4, cqe.sq_head);
		EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->rank[1].queue));
	}
	EXPECT_FALSE(await_within(q, &cqe, QUIET_MS));
	post_nop(q, 9);
	EXPECT_EQ(9, must_await(q).cmd_id);
}

/* A doorbell announces a batch, and nothing else has to be announced. */
TEST_F(ring, batches)
{
	struct queue *q = &self->rank[0].queue;
	struct optinc_stats before = must_stats(&self->rank[0].card), after;
	uint64_t until = now_ms() + PATIENCE_MS;
	unsigned int batch, i;

	for (batch = 0; batch < 100; batch++) {
		for (i = 0; i < 4; i++)
			put_entry(q, &(struct optinc_sqe) { .cmd_id = (uint16_t)(4 * batch + i) });
		announce(q);
		for (i = 0; i < 4; i++) {
			while (!is_done(q))
				ASSERT_LT(now_ms(), until);
			ASSERT_EQ(4 * batch + i, consume(q).cmd_id);
		}
	}
	after = must_stats(&self->rank[0].card);
	EXPECT_EQ(before.doorbells + 100, after.doorbells);
	EXPECT_EQ(before.doorbells_dropped, after.doorbells_dropped);
}

/*
 * A slot is free once the card has taken its entry, of which nobody is told; a NOP,
 * as in must_be_taken(), would need a slot itself. A card has a moment for it; an
 * emulated one, which may not get to run, answers commands while it looks at queues.
 */
static void must_have_looked(struct card *c)
{
	usleep(20000);
	must_stats(c);
	must_stats(c);
}

/* Completion rings may be larger: what is outstanding may then outnumber the entries. */
TEST_F(ring, more_completions_than_entries)
{
	struct optinc_sqe barrier = { .opcode = OPTINC_OP_BARRIER, .group = self->rank[0].group };
	struct queue q;
	struct optinc_cqe cqe;
	uint64_t before;
	unsigned int i;

	must_create_queue(&self->rank[0].card, &q, 2, 8, -1);
	for (i = 0; i < 7; i++) {
		barrier.cmd_id = (uint16_t)i;
		post(&q, &barrier);
		must_have_looked(&self->rank[0].card);
	}
	post_nop(&q, 99);
	cqe = must_await(&q);
	EXPECT_EQ(99, cqe.cmd_id);
	EXPECT_EQ(8, cqe.sq_head);
	barrier.cmd_id = 7;
	post(&q, &barrier);
	must_have_looked(&self->rank[0].card);
	/* there is room in one ring, and none in the other */
	before = dropped(&self->rank[0]);
	ring_doorbell(&self->rank[0].card, OPTINC_DB_SQ_TAIL, q.id, 10);
	EXPECT_EQ(before + 1, dropped(&self->rank[0]));
	barrier.group = self->rank[1].group;
	for (i = 0; i < 8; i++) {
		post(&self->rank[1].queue, &barrier);
		EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->rank[1].queue));
		EXPECT_EQ(i, must_await(&q).cmd_id);
	}
}

/* Through all 65536 indices and beyond, in uneven batches */
TEST_F(ring, wrap)
{
	unsigned int total = 66000, sent = 0, seen = 0, batch;
	struct optinc_cqe cqe;
	struct queue q;

	must_create_queue(&self->rank[0].card, &q, 64, 128, -1);
	while (seen < total) {
		for (batch = 1 + sent % 61; batch && sent < total &&
		     (uint16_t)(q.tail - q.head) < 64; batch--, sent++)
			put_entry(&q, &(struct optinc_sqe) {
				.cmd_id = (uint16_t)(sent * 3), .tag = sent,
			});
		announce(&q);
		do {
			ASSERT_TRUE(await_within(&q, &cqe, PATIENCE_MS)) TH_LOG("%u", seen);
			ASSERT_EQ(OPTINC_ST_SUCCESS, cqe.status >> OPTINC_CQE_STATUS_SHIFT);
			ASSERT_EQ(seen, cqe.tag);
			ASSERT_EQ((uint16_t)(seen * 3), cqe.cmd_id);
			seen++;
		} while (is_done(&q) && seen < sent);
	}
}

/* Entries that make no sense: each is answered, and the group goes on. */
TEST_F(ring, bad_entries)
{
	struct optinc_sqe good = {
		.opcode = OPTINC_OP_ALLREDUCE, .group = self->rank[0].group, .dtype = OPTINC_I8,
		.redop = OPTINC_SUM, .count = 100, .src_mr = self->rank[0].mr,
		.dst_mr = self->rank[0].mr, .dst_off = RESULT,
	};
	struct queue *q = &self->rank[0].queue;
	uint32_t readable;

#define EXPECT_ENTRY(status, field, value) do {					\
	struct optinc_sqe bad_ = good;						\
										\
	bad_.field = (value);							\
	post(q, &bad_);								\
	EXPECT_EQ(status, await_status(q)) TH_LOG("with " #field " = " #value);	\
} while (0)

	ASSERT_EQ(0, reg(&self->rank[0].card, self->rank[0].memory, BYTES, 0, &readable));
	EXPECT_ENTRY(OPTINC_ST_INVALID_OPCODE, opcode, OPTINC_OPCODES);
	EXPECT_ENTRY(OPTINC_ST_INVALID_OPCODE, opcode, 0xff);
	EXPECT_ENTRY(OPTINC_ST_INVALID_FIELD, flags, 0x80);
	EXPECT_ENTRY(OPTINC_ST_INVALID_FIELD, __reserved0, 1);
	EXPECT_ENTRY(OPTINC_ST_INVALID_FIELD, __reserved1, 1);
	EXPECT_ENTRY(OPTINC_ST_INVALID_FIELD, dtype, OPTINC_DTYPES);
	EXPECT_ENTRY(OPTINC_ST_INVALID_FIELD, redop, OPTINC_VOTE);
	EXPECT_ENTRY(OPTINC_ST_INVALID_FIELD, root, 1);
	EXPECT_ENTRY(OPTINC_ST_INVALID_FIELD, count, -1ULL);
	EXPECT_ENTRY(OPTINC_ST_INVALID_FIELD, exp_mr, 1);
	EXPECT_ENTRY(OPTINC_ST_INVALID_GROUP, group, 0);
	EXPECT_ENTRY(OPTINC_ST_INVALID_GROUP, group, self->rank[0].group + 1);
	EXPECT_ENTRY(OPTINC_ST_UNSUPPORTED, dtype, OPTINC_I16);
	EXPECT_ENTRY(OPTINC_ST_INVALID_MR, src_mr, 0);
	EXPECT_ENTRY(OPTINC_ST_INVALID_MR, dst_mr, -1U);
	EXPECT_ENTRY(OPTINC_ST_MR_ACCESS, dst_mr, readable);
	EXPECT_ENTRY(OPTINC_ST_INVALID_FIELD, dst_off, RESULT + 1);
	EXPECT_ENTRY(OPTINC_ST_INVALID_FIELD, dst_off, 98);
	EXPECT_ENTRY(OPTINC_ST_MR_BOUNDS, dst_off, BYTES - 198);
	EXPECT_ENTRY(OPTINC_ST_MR_BOUNDS, src_off, BYTES - 99);
	EXPECT_ENTRY(OPTINC_ST_MR_BOUNDS, src_off, -1ULL);
	EXPECT_ENTRY(OPTINC_ST_MR_BOUNDS, count, self->rank[0].card.query.max_count);
	good.dst_off = BYTES - 200;
	post(q, &good);
	good.group = self->rank[1].group;
	good.src_mr = self->rank[1].mr;
	good.dst_mr = self->rank[1].mr;
	post(&self->rank[1].queue, &good);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(q));
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->rank[1].queue));
}

/* Ranks that ask for different things learn who differs, and in what. */
TEST_F(ring, mismatch)
{
	struct optinc_sqe sqe = { .opcode = OPTINC_OP_BARRIER, .tag = 1 };
	struct optinc_cqe cqe;
	unsigned int r;

	for (r = 0; r < 2; r++) {
		sqe.group = self->rank[r].group;
		sqe.tag = r;
		post(&self->rank[r].queue, &sqe);
	}
	for (r = 0; r < 2; r++) {
		cqe = must_await(&self->rank[r].queue);
		EXPECT_EQ(OPTINC_ST_MISMATCH, cqe.status >> OPTINC_CQE_STATUS_SHIFT);
		EXPECT_EQ(1, cqe.peer);
		EXPECT_EQ(OPTINC_DIFF_TAG, cqe.mismatch);
		post(&self->rank[r].queue, &(struct optinc_sqe) {
			.opcode = OPTINC_OP_BARRIER, .group = self->rank[r].group,
		});
		EXPECT_EQ(OPTINC_ST_EPOCH_ENDED, await_status(&self->rank[r].queue));
		EXPECT_EQ(0, leave_group(&self->rank[r].card, self->rank[r].group));
	}
	must_form(self->rank, "mismatch", 8);
	for (r = 0; r < 2; r++) {
		sqe.group = self->rank[r].group;
		post(&self->rank[r].queue, &sqe);
	}
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_all(self->rank, &cqe));
}

TEST_HARNESS_MAIN
