// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The API on real or emulated cards, with processes as ranks (ranks.h): the
 * same program for every provider. Results are compared bit for bit with
 * optinc_reference_allreduce(); every failure that a rank can cause is
 * caused, and each rank must be told what, by whom, in time.
 */
#include <poll.h>

#include "ranks.h"

#define GROUPED(name, n) \
	static void name##_##n(void **state) { (void)state; run_ranks(n, name); }

/* ------------------------------------------------------------------ data */

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

enum kind { ORDINARY, WILD };

/* Ordinary: a normal range. Wild: all exponents, subnormals, zero blocks, NaN. */
static uint32_t float_bits(uint64_t r, size_t i, unsigned int fraction, unsigned int exponent,
			   enum kind kind)
{
	uint32_t special = (1U << exponent) - 1;
	uint32_t biased = special / 2 - 4 + r % 8;
	uint32_t f = (uint32_t)(r >> 32) & ((1U << fraction) - 1);
	uint32_t sign = (uint32_t)(r >> 20 & 1) << (fraction + exponent);

	if (kind == WILD) {
		biased = (uint32_t)(r >> 8) % special;
		if (i / OPTINC_BLOCK % 5 == 1)
			return sign;
		if (i / OPTINC_BLOCK % 5 == 2)
			biased = 0;
		if (i / OPTINC_BLOCK % 5 == 3 && r % 300 == 0)
			biased = special;
	}
	return sign | biased << fraction | f;
}

static void fill(void *data, size_t count, enum optinc_dtype dtype, uint64_t seed, enum kind kind)
{
	size_t i, bytes = optinc_data_bytes(count, dtype);
	uint8_t *b = data;
	uint16_t *h = data;
	uint32_t *w = data;

	for (i = 0; dtype == OPTINC_F32 && i < count; i++)
		w[i] = float_bits(mix(seed + i), i, 23, 8, kind);
	for (i = 0; dtype == OPTINC_F16 && i < count; i++)
		h[i] = (uint16_t)float_bits(mix(seed + i), i, 10, 5, kind);
	for (i = 0; dtype == OPTINC_BF16 && i < count; i++)
		h[i] = (uint16_t)float_bits(mix(seed + i), i, 7, 8, kind);
	for (i = 0; dtype >= OPTINC_I8 && i < bytes; i++)
		b[i] = (uint8_t)mix(seed + i);
}

static uint32_t count_saturated(const void *data, size_t count, enum optinc_dtype dtype)
{
	const int16_t *h = data;
	const int8_t *b = data;
	uint32_t n = 0;
	size_t i;

	for (i = 0; i < count; i++)
		n += dtype == OPTINC_I8 ? b[i] == -128 : dtype == OPTINC_I16 ? h[i] == -32768 : 0;
	return n;
}

/* ------------------------------------------------- against the reference */

enum where { SEPARATE, IN_PLACE, REGISTERED, REGISTERED_IN_PLACE, WHERES };

struct format {
	enum optinc_dtype dtype;
	enum optinc_redop redop;
	unsigned int bits;	/* 0: of any group */
	unsigned int flags;
};

static const struct format formats[] = {
	{ OPTINC_F32, OPTINC_MEAN, 0, 0 },
	{ OPTINC_F32, OPTINC_MEAN, 0, OPTINC_SQE_PARITY },
	{ OPTINC_F32, OPTINC_SUM, 0, 0 },
	{ OPTINC_F16, OPTINC_MEAN, 0, 0 },
	{ OPTINC_F16, OPTINC_SUM, 0, OPTINC_SQE_PARITY },
	{ OPTINC_BF16, OPTINC_MEAN, 0, OPTINC_SQE_PARITY },
	{ OPTINC_BF16, OPTINC_SUM, 0, 0 },
	{ OPTINC_I8, OPTINC_MEAN, 8, 0 },
	{ OPTINC_I8, OPTINC_MEAN, 8, OPTINC_SQE_PARITY },
	{ OPTINC_I8, OPTINC_SUM, 8, 0 },
	{ OPTINC_I16, OPTINC_MEAN, 16, 0 },
	{ OPTINC_I16, OPTINC_SUM, 16, OPTINC_SQE_PARITY },
	{ OPTINC_BIT, OPTINC_VOTE, 0, 0 },
	{ OPTINC_BIT, OPTINC_VOTE, 0, OPTINC_SQE_SIGN },
	{ OPTINC_BIT, OPTINC_VOTE, 0, OPTINC_SQE_SIGN | OPTINC_SQE_ABSTAIN },
};

/* Sizes around blocks, cache lines and what is copied, registered, chunked. */
static const size_t counts[] = {
	0, 1, 2, 7, 13, 14, 15, 255, 256, 257, 1000, 4096, 16384, 16385, 70001, 150000,
};

#define MOST	150000

static void *send_data[MAX_RANKS];
static uint8_t *result_data, *expected_data;

static void allocate(void)
{
	unsigned int r;

	for (r = 0; r < me.nranks; r++)
		CHECK(!posix_memalign(&send_data[r], 64, 4 * MOST));
	CHECK(!posix_memalign((void **)&result_data, 64, 4 * MOST + 64));
	CHECK(!posix_memalign((void **)&expected_data, 64, 4 * MOST + 64));
}

static void check_bytes(const struct format *f, size_t count, const uint8_t *got, size_t bytes)
{
	size_t i;

	if (!memcmp(got, expected_data, bytes))
		return;
	for (i = 0; got[i] == expected_data[i]; i++)
		;
	rank_fail(__FILE__, __LINE__, "%s %s flags %x of %zu: byte %zu of %zu is %02x, not %02x",
		  optinc_dtype_name(f->dtype), optinc_redop_name(f->redop), f->flags, count, i,
		  bytes, got[i], expected_data[i]);
}

static void check_one(const struct format *f, unsigned int bits, size_t count, enum kind kind,
		      enum where where)
{
	size_t bytes = optinc_result_bytes(count, f->dtype, f->redop, f->flags);
	bool in_place = where == IN_PLACE || where == REGISTERED_IN_PLACE;
	struct optinc_options options = { .flags = f->flags, .tag = (uint32_t)count };
	struct optinc_result result, expected;
	uint64_t seed = mix(count * 64 + f->dtype * 8 + f->redop * 4 + kind) << 8;
	uint8_t *out = in_place ? send_data[me.rank] : result_data;
	struct optinc_mr *mr = NULL, *mr_out = NULL;
	uint32_t saturated;
	unsigned int r;

	if (in_place && bytes > optinc_data_bytes(count, f->dtype))
		return;
	for (r = 0; r < me.nranks; r++)
		fill(send_data[r], count, f->dtype, seed + r * 0x100000000, kind);
	saturated = count_saturated(send_data[me.rank], count, f->dtype);
	CHECK_INT(optinc_reference_allreduce((const void *const *)send_data, expected_data,
					     me.nranks, count, f->dtype, f->redop, bits, f->flags,
					     &expected), 0);
	if (!in_place)
		memset(result_data, 0xa5, bytes + 8);
	if (where == REGISTERED || where == REGISTERED_IN_PLACE) {
		CHECK_INT(optinc_mr_register(me.card, send_data[me.rank], 4 * MOST,
					     in_place ? OPTINC_MR_WRITE : 0, &mr), 0);
		CHECK_INT(optinc_mr_register(me.card, result_data, 4 * MOST, OPTINC_MR_WRITE,
					     &mr_out), 0);
	}

	CHECK_INT(optinc_allreduce(me.group, send_data[me.rank], out, count, f->dtype, f->redop,
				   &options, &result), 0);
	check_bytes(f, count, out, bytes);
	CHECK_INT(result.nonfinite, expected.nonfinite);
	CHECK_INT(result.saturated, saturated);
	CHECK_INT(result.tag, count);
	CHECK_INT(result.peer, -1);
	if (!in_place)
		CHECK(out[bytes] == 0xa5 && out[bytes + 7] == 0xa5);
	if (mr)
		CHECK_INT(optinc_mr_deregister(mr), 0);
	if (mr_out)
		CHECK_INT(optinc_mr_deregister(mr_out), 0);
}

static void against_reference(unsigned int bits)
{
	struct optinc_card_info info;
	unsigned int f, c, turn = 0;

	CHECK_INT(optinc_card_info(me.card, &info, sizeof(info)), 0);
	if (!(info.code_bits >> bits & 1))
		return;
	allocate();
	join_bits(bits);
	for (f = 0; f < sizeof(formats) / sizeof(formats[0]); f++) {
		const struct format *fmt = &formats[f];

		if ((fmt->bits && fmt->bits != bits) || !(info.dtypes >> fmt->dtype & 1) ||
		    !(info.redops >> fmt->redop & 1))
			continue;
		for (c = 0; c < sizeof(counts) / sizeof(counts[0]); c++, turn++) {
			check_one(fmt, bits, counts[c], ORDINARY, turn % WHERES);
			check_one(fmt, bits, counts[c], WILD, (turn + 1) % WHERES);
		}
	}
	optinc_group_leave(me.group);
}

static void reference_8(void)
{
	against_reference(8);
}

static void reference_16(void)
{
	against_reference(16);
}

GROUPED(reference_8, 2)
GROUPED(reference_8, 3)
GROUPED(reference_8, 4)
GROUPED(reference_16, 2)
GROUPED(reference_16, 4)

/* ---------------------------------------------------- cards, small things */

static void identify(void)
{
	struct optinc_card_info info;
	struct optinc_card_stats before, after;
	struct optinc_why why;
	char uri[160];

	rank_uri(me.rank, uri, sizeof(uri));
	CHECK_INT(optinc_card_info(me.card, &info, sizeof(info)), 0);
	CHECK(!strcmp(info.uri, uri));
	CHECK(info.port < info.ports);
	CHECK(info.ports >= me.nranks);
	CHECK(info.dtypes >> OPTINC_F32 & 1);
	CHECK(info.lanes && info.lanes_up <= info.lanes && info.lane_mbps);
	CHECK(info.max_count >= 1 << 20);
	CHECK(info.serial[0] && info.model[0]);
	CHECK_INT(optinc_why(me.card, &why), 0);
	CHECK_INT(why.reason, OPTINC_REASON_IDLE);

	CHECK_INT(optinc_card_stats(me.card, &before, sizeof(before)), 0);
	join_bits(8);
	CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
	CHECK_INT(optinc_broadcast(me.group, uri, sizeof(uri), 0, NULL, NULL), 0);
	CHECK_INT(optinc_card_stats(me.card, &after, sizeof(after)), 0);
	CHECK_INT(after.requests - before.requests, 2);
	CHECK_INT(after.errors - before.errors, 0);
	CHECK(after.device_ns > before.device_ns);
	CHECK(after.doorbells > before.doorbells);
	CHECK_INT(optinc_why(me.card, &why), 0);
	CHECK_INT(why.used, 1);
}

GROUPED(identify, 2)

static void join_and_leave(void)
{
	struct optinc_group_info info;
	unsigned int i;

	for (i = 0; i < 30; i++) {
		join_bits(8);
		CHECK_INT(optinc_group_info(me.group, &info, sizeof(info)), 0);
		CHECK_INT(info.rank, me.rank);
		CHECK_INT(info.nranks, me.nranks);
		CHECK_INT(info.epoch, 1);
		CHECK_INT(info.error, 0);
		CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
		/* Nobody leaves before all have the barrier behind them. */
		sync_ranks();
		optinc_group_leave(me.group);
		sync_ranks();
	}
}

GROUPED(join_and_leave, 2)
GROUPED(join_and_leave, 4)

static void barrier(void)
{
	unsigned int i, seen;

	join_bits(8);
	for (i = 1; i <= 200; i++) {
		count_up(&shared->counter);
		CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
		/* All have entered; none can be further before this one is. */
		seen = __atomic_load_n(&shared->counter, __ATOMIC_ACQUIRE);
		CHECK_INT(seen, i * me.nranks);
		CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
	}
}

GROUPED(barrier, 2)
GROUPED(barrier, 4)

static void broadcast(void)
{
	static const size_t sizes[] = { 0, 1, 8, 100, 4096, 65536, 65537, 300000 };
	static uint8_t data[300000], expected[300000];
	unsigned int root, s;

	join_bits(8);
	for (root = 0; root < me.nranks; root++) {
		for (s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
			fill(expected, sizes[s], OPTINC_U8, mix(root * 100 + s), ORDINARY);
			memset(data, (int)me.rank, sizeof(data));
			if (me.rank == root)
				memcpy(data, expected, sizes[s]);
			CHECK_INT(optinc_broadcast(me.group, data, sizes[s], root, NULL, NULL), 0);
			CHECK(!memcmp(data, expected, sizes[s]));
			if (sizes[s] < sizeof(data))
				CHECK_INT(data[sizes[s]], me.rank);
		}
	}
}

GROUPED(broadcast, 2)
GROUPED(broadcast, 3)
GROUPED(broadcast, 4)

static void exponents(void)
{
	struct optinc_options options = { .flags = OPTINC_SQE_EXPONENTS };
	struct optinc_result result;
	uint8_t exp[600], mine[600];
	int8_t codes[1000], out[1000];
	unsigned int i, r;

	join_bits(8);
	for (i = 0; i < sizeof(exp); i++)
		exp[i] = (uint8_t)mix(me.rank * 1000 + i);
	memcpy(mine, exp, sizeof(exp));
	CHECK_INT(optinc_exponent_max(me.group, exp, sizeof(exp), NULL, NULL), 0);
	for (i = 0; i < sizeof(exp); i++) {
		uint8_t most = 0;

		for (r = 0; r < me.nranks; r++) {
			uint8_t e = (uint8_t)mix(r * 1000 + i);

			most = e > most ? e : most;
		}
		CHECK_INT(exp[i], most);
	}

	memset(codes, 5, sizeof(codes));
	options.exponents = exp;
	CHECK_INT(optinc_allreduce(me.group, codes, out, 1000, OPTINC_I8, OPTINC_MEAN, &options,
				   NULL), 0);
	for (i = 0; i < 1000; i++)
		CHECK_INT(out[i], 5);

	/* Disagreement in the last block, of the last rank. */
	exp[3] = (uint8_t)(exp[3] ^ (me.rank == me.nranks - 1));
	CHECK_INT(optinc_allreduce(me.group, codes, out, 1000, OPTINC_I8, OPTINC_MEAN, &options,
				   &result), -EBADMSG);
	CHECK_SAYS("optinc_exponent_max()");
	CHECK_INT(result.status, OPTINC_ST_EXPONENT_MISMATCH);
	CHECK_INT(optinc_group_rejoin(me.group), 0);
	CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
}

GROUPED(exponents, 2)
GROUPED(exponents, 3)

/* ---------------------------------------------------------- non-blocking */

static void nonblocking(void)
{
	struct optinc_request *r[16], *more;
	static float in[16][300], out[16][300];
	struct optinc_result result;
	unsigned int i, k, done = 0;
	size_t index;

	join_bits(8);
	for (i = 0; i < 16; i++) {
		for (k = 0; k < 300; k++)
			in[i][k] = (float)(i + 1);
	}
	for (k = 0; k < 20; k++) {
		memset(out, 0, sizeof(out));
		for (i = 0; i < 16; i++) {
			struct optinc_options options = { .tag = i };

			CHECK_INT(optinc_iallreduce(me.group, in[i], out[i], 300, OPTINC_F32,
						    OPTINC_SUM, &options, &r[i]), 0);
		}
		CHECK_INT(optinc_ibarrier(me.group, NULL, &more), -EAGAIN);
		for (done = 0; done < 16; done++) {
			if (k % 2) {
				CHECK_INT(optinc_wait_any(r, 16, -1, &index, &result), 0);
			} else {
				index = done;
				while (!optinc_test(r[index], &result))
					;
			}
			CHECK_INT(result.error, 0);
			CHECK_INT(result.tag, index);
			CHECK(out[index][299] == (float)(me.nranks * (index + 1)));
		}
	}
}

GROUPED(nonblocking, 2)
GROUPED(nonblocking, 4)

static struct optinc_group *join_second(void)
{
	struct optinc_group_params p = params_of(8);

	memcpy(p.key, shared->key[1], sizeof(p.key));
	return join_with(&p);
}

/* Two groups, entered in opposite order by even and odd ranks: no deadlock. */
static void opposite_order(void)
{
	struct optinc_group *groups[2];
	struct optinc_request *r[2];
	static float in[2][5000], out[2][5000];
	struct optinc_result result;
	unsigned int i, k, g;

	join_bits(8);
	groups[0] = me.group;
	groups[1] = join_second();
	for (g = 0; g < 2; g++) {
		for (i = 0; i < 5000; i++)
			in[g][i] = (float)(g + 1);
	}
	for (k = 0; k < 50; k++) {
		memset(out, 0, sizeof(out));
		for (i = 0; i < 2; i++) {
			g = (i + me.rank) % 2;
			CHECK_INT(optinc_iallreduce(groups[g], in[g], out[g], 5000, OPTINC_F32,
						    OPTINC_SUM, NULL, &r[g]), 0);
		}
		for (i = 0; i < 2; i++) {
			size_t index = (i + me.rank) % 2;

			if (k % 2)
				CHECK_INT(optinc_wait(r[index], -1, &result), 0);
			else
				CHECK_INT(optinc_wait_any(r, 2, -1, &index, &result), 0);
			CHECK(out[index][4999] == (float)(me.nranks * (index + 1)));
		}
	}
}

GROUPED(opposite_order, 2)
GROUPED(opposite_order, 4)

/* Of four ports two and two make a group each, side by side. */
static void halves(void)
{
	struct optinc_group_params p = params_of(8);
	float in[100], out[100];
	unsigned int i, k;

	memcpy(p.key, shared->key[me.rank % 2], sizeof(p.key));
	p.rank = me.rank / 2;
	p.nranks = 2;
	me.group = join_with(&p);
	for (i = 0; i < 100; i++)
		in[i] = (float)(me.rank % 2 ? 3 : 50);
	for (k = 0; k < 100; k++) {
		CHECK_INT(optinc_allreduce(me.group, in, out, 100, OPTINC_F32, OPTINC_SUM, NULL,
					   NULL), 0);
		CHECK(out[99] == 2 * in[0]);
	}
}

GROUPED(halves, 4)

static void descriptor(void)
{
	struct pollfd pfd = { .events = POLLIN };
	struct optinc_request *r;
	struct optinc_result result;
	unsigned int i;

	join_bits(8);
	pfd.fd = optinc_group_fd(me.group);
	CHECK(pfd.fd >= 0);
	CHECK_INT(poll(&pfd, 1, 0), 0);
	for (i = 0; i < 20; i++) {
		sync_ranks();
		if (me.rank == 1)
			usleep(5000);	/* so that the others really sleep */
		CHECK_INT(optinc_ibarrier(me.group, NULL, &r), 0);
		do
			CHECK_INT(poll(&pfd, 1, 5000), 1);
		while (!optinc_test(r, &result));
		CHECK_INT(result.error, 0);
		CHECK_INT(poll(&pfd, 1, 0), 0);
	}
}

GROUPED(descriptor, 2)
GROUPED(descriptor, 4)

/* A wait that is over leaves the request as it was. */
static void wait_timeout(void)
{
	struct optinc_request *r;
	double begin;

	join_bits(8);
	sync_ranks();
	if (me.rank == 0) {
		CHECK_INT(optinc_ibarrier(me.group, NULL, &r), 0);
		begin = seconds();
		CHECK_INT(optinc_wait(r, 50, NULL), -EAGAIN);
		CHECK(seconds() - begin > 0.049 && seconds() - begin < 1);
		sync_ranks();
		CHECK_INT(optinc_wait(r, -1, NULL), 0);
	} else {
		sync_ranks();
		CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
	}
}

GROUPED(wait_timeout, 2)

/* ------------------------------------------------------------- mismatches */

struct call_args {
	unsigned int opcode;
	size_t count;
	enum optinc_dtype dtype;
	enum optinc_redop redop;
	unsigned int root;
	struct optinc_options options;
};

static const struct {
	uint32_t difference;
	const char *name;
	struct call_args common, odd;
} mismatches[] = {
	{ OPTINC_DIFF_COUNT, "count", { .opcode = OPTINC_OP_ALLREDUCE, .count = 100 },
	  { .opcode = OPTINC_OP_ALLREDUCE, .count = 101 } },
	{ OPTINC_DIFF_COUNT, "count", { .opcode = OPTINC_OP_ALLREDUCE, .count = 40000 },
	  { .opcode = OPTINC_OP_ALLREDUCE, .count = 8 } },
	{ OPTINC_DIFF_COUNT, "count", { .opcode = OPTINC_OP_ALLREDUCE, .count = 0 },
	  { .opcode = OPTINC_OP_ALLREDUCE, .count = 1 } },
	{ OPTINC_DIFF_DTYPE, "dtype",
	  { .opcode = OPTINC_OP_ALLREDUCE, .count = 64, .dtype = OPTINC_F16 },
	  { .opcode = OPTINC_OP_ALLREDUCE, .count = 64, .dtype = OPTINC_BF16 } },
	{ OPTINC_DIFF_REDOP, "reduction",
	  { .opcode = OPTINC_OP_ALLREDUCE, .count = 64, .redop = OPTINC_MEAN },
	  { .opcode = OPTINC_OP_ALLREDUCE, .count = 64, .redop = OPTINC_SUM } },
	{ OPTINC_DIFF_TAG, "tag", { .opcode = OPTINC_OP_BARRIER, .options.tag = 5 },
	  { .opcode = OPTINC_OP_BARRIER, .options.tag = 6 } },
	{ OPTINC_DIFF_ROOT, "root", { .opcode = OPTINC_OP_BROADCAST, .count = 10, .root = 0 },
	  { .opcode = OPTINC_OP_BROADCAST, .count = 10, .root = 1 } },
	{ OPTINC_DIFF_FLAGS, "flags", { .opcode = OPTINC_OP_ALLREDUCE, .count = 64 },
	  { .opcode = OPTINC_OP_ALLREDUCE, .count = 64, .options.flags = OPTINC_SQE_PARITY } },
	{ OPTINC_DIFF_OPCODE, "operation", { .opcode = OPTINC_OP_BROADCAST, .count = 64 },
	  { .opcode = OPTINC_OP_EXPONENT_MAX, .count = 64 } },
	{ OPTINC_DIFF_COUNT | OPTINC_DIFF_TAG, "count and tag",
	  { .opcode = OPTINC_OP_ALLREDUCE, .count = 9, .options.tag = 1 },
	  { .opcode = OPTINC_OP_ALLREDUCE, .count = 8, .options.tag = 2 } },
};

static int make_call(const struct call_args *c, struct optinc_result *result)
{
	static float in[40000], out[40000];

	switch (c->opcode) {
	case OPTINC_OP_ALLREDUCE:
		return optinc_allreduce(me.group, in, out, c->count, c->dtype, c->redop,
					&c->options, result);
	case OPTINC_OP_BROADCAST:
		return optinc_broadcast(me.group, out, c->count, c->root, &c->options, result);
	case OPTINC_OP_BARRIER:
		return optinc_barrier(me.group, &c->options, result);
	default:
		return optinc_exponent_max(me.group, (uint8_t *)out, c->count, &c->options, result);
	}
}

/* The last rank differs from the two others: all three are told so, and in what. */
static void mismatch(void)
{
	unsigned int i, odd = me.nranks - 1;
	struct optinc_result result;
	struct optinc_group_info info;
	int ret;

	join_bits(8);
	for (i = 0; i < sizeof(mismatches) / sizeof(mismatches[0]); i++) {
		ret = make_call(me.rank == odd ? &mismatches[i].odd : &mismatches[i].common,
				&result);
		if (ret != -EPROTO)
			rank_fail(__FILE__, __LINE__, "case %u (%s): %d", i, mismatches[i].name,
				  ret);
		CHECK_INT(result.status, OPTINC_ST_MISMATCH);
		CHECK_INT(result.peer, odd);
		if ((result.mismatch & mismatches[i].difference) != mismatches[i].difference)
			rank_fail(__FILE__, __LINE__, "case %u (%s): mismatch is 0x%x", i,
				  mismatches[i].name, result.mismatch);
		if (mismatches[i].difference != OPTINC_DIFF_OPCODE)
			CHECK_SAYS(mismatches[i].name);
		CHECK_INT(make_call(&mismatches[i].common, &result), -ESTALE);
		CHECK_INT(optinc_group_rejoin(me.group), 0);
		CHECK_INT(optinc_group_info(me.group, &info, sizeof(info)), 0);
		CHECK_INT(info.epoch, i + 2);
		CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
	}
}

GROUPED(mismatch, 3)
GROUPED(mismatch, 4)

/* --------------------------------------------------------------- failures */

static void deadline(void)
{
	struct optinc_group_params p = params_of(8);
	unsigned int late = me.nranks - 1;
	struct optinc_result result;
	struct optinc_why why;
	double begin;
	int ret;

	p.deadline_ms = 400;
	me.group = join_with(&p);
	CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
	sync_ranks();
	if (me.rank != late) {
		begin = seconds();
		CHECK_INT(optinc_barrier(me.group, NULL, &result), -ETIMEDOUT);
		CHECK(seconds() - begin > 0.3 && seconds() - begin < 3);
		CHECK_INT(result.peer, late);
		CHECK_SAYS("did not come within 400 ms");
		CHECK_INT(optinc_why(me.card, &why), 0);
		CHECK_INT(why.reason, OPTINC_REASON_EPOCH_ENDED);
	}
	sync_ranks();
	/* The late one finds the epoch ended, and hangs no longer than the rest. */
	ret = optinc_barrier(me.group, NULL, NULL);
	CHECK(ret == -ESTALE || (me.rank == late && ret == -ETIMEDOUT));
	sync_ranks();
	CHECK_INT(optinc_group_rejoin(me.group), 0);
	CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
}

GROUPED(deadline, 2)
GROUPED(deadline, 4)

/* All that is queued behind the failed one fails too. */
static void queued_behind(void)
{
	struct optinc_group_params p = params_of(8);
	struct optinc_request *r[4];
	struct optinc_result result;
	unsigned int i;

	p.deadline_ms = 300;
	me.group = join_with(&p);
	sync_ranks();
	if (me.rank == 0) {
		for (i = 0; i < 4; i++)
			CHECK_INT(optinc_ibarrier(me.group, NULL, &r[i]), 0);
		CHECK_INT(optinc_wait(r[0], -1, NULL), -ETIMEDOUT);
		for (i = 1; i < 4; i++) {
			int ret = optinc_wait(r[i], -1, &result);

			CHECK(ret == -ESTALE || ret == -ETIMEDOUT);
		}
	}
	sync_ranks();
}

GROUPED(queued_behind, 2)

static void abort_and_rejoin(void)
{
	struct optinc_request *r;
	struct optinc_result result;
	struct optinc_group_info info;
	unsigned int i;

	join_bits(8);
	for (i = 0; i < 5; i++) {
		CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
		sync_ranks();
		if (me.rank == 1) {
			await(&shared->counter, (i + 1) * (me.nranks - 1));
			CHECK_INT(optinc_group_abort(me.group), 0);
		} else {
			CHECK_INT(optinc_ibarrier(me.group, NULL, &r), 0);
			count_up(&shared->counter);
			CHECK_INT(optinc_wait(r, -1, &result), -ECONNABORTED);
			CHECK_INT(result.peer, 1);
			CHECK_SAYS("rank 1 gave the group up");
		}
		CHECK_INT(optinc_barrier(me.group, NULL, NULL), -ESTALE);
		CHECK_INT(optinc_group_rejoin(me.group), 0);
		CHECK_INT(optinc_group_info(me.group, &info, sizeof(info)), 0);
		CHECK_INT(info.epoch, i + 2);
	}
}

GROUPED(abort_and_rejoin, 2)
GROUPED(abort_and_rejoin, 4)

static void cancel(void)
{
	struct optinc_request *r[2];
	struct optinc_result result;
	int ret;

	join_bits(8);
	CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
	sync_ranks();
	if (me.rank == 1) {
		CHECK_INT(optinc_ibarrier(me.group, NULL, &r[0]), 0);
		CHECK_INT(optinc_ibarrier(me.group, NULL, &r[1]), 0);
		CHECK_INT(optinc_wait(r[0], 30, NULL), -EAGAIN);
		await(&shared->counter, me.nranks - 2);
		CHECK_INT(optinc_cancel(r[1]), 0);
		CHECK_INT(optinc_wait(r[0], -1, NULL), -ECANCELED);
		CHECK_INT(optinc_wait(r[1], -1, &result), -ECANCELED);
	} else if (me.rank == 2) {
		CHECK_INT(optinc_ibarrier(me.group, NULL, &r[0]), 0);
		count_up(&shared->counter);
		CHECK_INT(optinc_wait(r[0], -1, &result), -ECONNABORTED);
		CHECK_INT(result.peer, 1);
	}
	sync_ranks();
	if (me.rank == 0) {
		/* comes when all is over */
		ret = optinc_barrier(me.group, NULL, NULL);
		CHECK(ret == -ECONNABORTED || ret == -ESTALE);
	}
	CHECK_INT(optinc_group_rejoin(me.group), 0);
	CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
}

GROUPED(cancel, 2)
GROUPED(cancel, 3)

/* One rank's process is killed in the middle of things; the others go on. */
static void peer_lost(void)
{
	unsigned int victim = me.nranks - 1, i;
	struct optinc_result result;
	static float data[20000];
	double begin;
	int ret;

	join_bits(8);
	shared->lost[victim] = true;
	for (i = 0; i < 20; i++)
		CHECK_INT(optinc_allreduce(me.group, data, data, 20000, OPTINC_F32, OPTINC_MEAN,
					   NULL, NULL), 0);
	sync_ranks();
	if (me.rank == victim)
		raise(SIGKILL);
	begin = seconds();
	ret = optinc_allreduce(me.group, data, data, 20000, OPTINC_F32, OPTINC_MEAN, NULL,
			       &result);
	CHECK_INT(ret, -ECONNRESET);
	CHECK_INT(result.peer, victim);
	CHECK_SAYS("was lost");
	/* long before the deadline of 10 s */
	CHECK(seconds() - begin < 3);
	CHECK_INT(optinc_barrier(me.group, NULL, NULL), -ESTALE);
}

GROUPED(peer_lost, 2)
GROUPED(peer_lost, 4)

/* It comes back with a new process, and all rejoin. */
static void peer_returns(void)
{
	unsigned int victim = me.nranks - 1;
	struct optinc_group_params p = params_of(8);
	int status;
	pid_t pid;

	if (me.rank == victim) {
		/* This process forks the one that dies; it has its own handles. */
		optinc_close(me.card);
		me.card = NULL;
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			open_card();
			join_bits(8);
			CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
			await(&shared->counter, victim);
			raise(SIGKILL);
		}
		CHECK_INT(waitpid(pid, &status, 0), pid);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		sync_ranks();
		open_card();
		me.group = join_with(&p);
	} else {
		join_bits(8);
		CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
		count_up(&shared->counter);
		CHECK_INT(optinc_barrier(me.group, NULL, NULL), -ECONNRESET);
		sync_ranks();
		CHECK_INT(optinc_group_rejoin(me.group), 0);
	}
	CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
}

GROUPED(peer_returns, 2)
GROUPED(peer_returns, 3)

/* A rank that closes its card with the group joined is not waited for. */
static void peer_closes(void)
{
	struct optinc_request *r;
	int ret;

	join_bits(8);
	CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
	if (me.rank == 0) {
		CHECK_INT(optinc_ibarrier(me.group, NULL, &r), 0);
		usleep(20000);
		optinc_close(me.card);
		open_card();
	} else {
		/* Rank 0 entered, but never both. */
		ret = optinc_barrier(me.group, NULL, NULL);
		if (!ret)
			ret = optinc_barrier(me.group, NULL, NULL);
		CHECK(ret == -ECONNABORTED || ret == -ECONNRESET);
	}
}

GROUPED(peer_closes, 2)
GROUPED(peer_closes, 3)

/* ------------------------------------------------------------ failed joins */

static void join_deadline(void)
{
	struct optinc_group_params p = params_of(8);
	struct optinc_group *group;
	struct optinc_why why;
	double begin = seconds();

	p.deadline_ms = 300;
	if (me.rank != 1) {
		CHECK_INT(optinc_group_join(me.card, &p, sizeof(p), &group), -ETIMEDOUT);
		CHECK(!group);
		CHECK_SAYS("rank 1 has not joined within 300 ms");
		CHECK(seconds() - begin < 3);
		CHECK_INT(optinc_why(me.card, &why), 0);
		CHECK_INT(why.reason, OPTINC_REASON_GROUP_FAILED);
	}
	sync_ranks();
	/* The failed attempt has left nothing behind. */
	p.deadline_ms = 10000;
	me.group = join_with(&p);
	CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
}

GROUPED(join_deadline, 2)
GROUPED(join_deadline, 4)

static void check_join_mismatch(struct optinc_group_params *p, const char *what)
{
	struct optinc_group *group;
	int ret;

	p->deadline_ms = p->deadline_ms ? p->deadline_ms : 3000;
	ret = optinc_group_join(me.card, p, sizeof(*p), &group);
	if (ret != -EPROTO)
		rank_fail(__FILE__, __LINE__, "joining with another %s gives %d", what, ret);
	CHECK_SAYS(what);
	sync_ranks();
	/* Another key each time, derived from the last. */
	shared->key[0][me.rank]++;
	sync_ranks();
}

static void join_mismatch(void)
{
	bool odd = me.rank == me.nranks - 1;
	struct optinc_group_params p;

	p = params_of(odd ? 16 : 8);
	p.dtypes = 1 << OPTINC_F32;
	check_join_mismatch(&p, "bits");
	p = params_of(8);
	p.dtypes = 1 << OPTINC_F32 | (odd ? 1 << OPTINC_F16 : 0);
	check_join_mismatch(&p, "dtypes");
	p = params_of(8);
	p.deadline_ms = odd ? 4000 : 3000;
	check_join_mismatch(&p, "deadline");
	if (me.nranks > 2) {
		p = params_of(8);
		p.nranks = odd ? me.nranks : me.nranks - 1;
		/* The others are complete without it: it has to be first. */
		usleep(odd ? 0 : 200000);
		check_join_mismatch(&p, "number of ranks");
		p = params_of(8);
		p.rank = odd ? 0 : me.rank;
		check_join_mismatch(&p, "claim rank 0");
	}
	join_bits(8);
	CHECK_INT(optinc_barrier(me.group, NULL, NULL), 0);
}

GROUPED(join_mismatch, 2)
GROUPED(join_mismatch, 3)

/* ------------------------------------------------------------- endurance */

/* Many small requests, sleeping instead of spinning in some of the ranks. */
static void many(void)
{
	float in[2] = { 1, -3 }, out[2];
	struct optinc_mr *mr;
	unsigned int i;

	join_bits(8);
	CHECK_INT(optinc_card_set(me.card, OPTINC_OPTION_SPIN_US, me.rank % 2 ? 0 : 50), 0);
	CHECK_INT(optinc_mr_register(me.card, in, sizeof(in), 0, &mr), 0);
	for (i = 0; i < 3000; i++) {
		out[0] = 0;
		CHECK_INT(optinc_allreduce(me.group, in, out, 2, OPTINC_F32, OPTINC_SUM, NULL,
					   NULL), 0);
		CHECK(out[0] == (float)me.nranks && out[1] == -3 * (float)me.nranks);
	}
	CHECK_INT(optinc_mr_deregister(mr), 0);
}

GROUPED(many, 2)
GROUPED(many, 4)

/* Large enough for many chunks, and checked to the last element. */
static void large(void)
{
	const size_t count = 3 * 1000 * 1000 + 17;
	float *data = malloc(count * sizeof(*data));
	size_t i;

	CHECK(data);
	join_bits(8);
	for (i = 0; i < count; i++)
		data[i] = (float)(i / OPTINC_BLOCK % 64);
	CHECK_INT(optinc_allreduce(me.group, data, data, count, OPTINC_F32, OPTINC_SUM, NULL, NULL),
		  0);
	for (i = 0; i < count; i++)
		CHECK(data[i] == (float)(me.nranks * (i / OPTINC_BLOCK % 64)));
	free(data);
}

GROUPED(large, 2)
GROUPED(large, 4)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(identify_2),
		cmocka_unit_test(join_and_leave_2),
		cmocka_unit_test(join_and_leave_4),
		cmocka_unit_test(barrier_2),
		cmocka_unit_test(barrier_4),
		cmocka_unit_test(broadcast_2),
		cmocka_unit_test(broadcast_3),
		cmocka_unit_test(broadcast_4),
		cmocka_unit_test(exponents_2),
		cmocka_unit_test(exponents_3),
		cmocka_unit_test(reference_8_2),
		cmocka_unit_test(reference_8_3),
		cmocka_unit_test(reference_8_4),
		cmocka_unit_test(reference_16_2),
		cmocka_unit_test(reference_16_4),
		cmocka_unit_test(nonblocking_2),
		cmocka_unit_test(nonblocking_4),
		cmocka_unit_test(opposite_order_2),
		cmocka_unit_test(opposite_order_4),
		cmocka_unit_test(halves_4),
		cmocka_unit_test(descriptor_2),
		cmocka_unit_test(descriptor_4),
		cmocka_unit_test(wait_timeout_2),
		cmocka_unit_test(mismatch_3),
		cmocka_unit_test(mismatch_4),
		cmocka_unit_test(deadline_2),
		cmocka_unit_test(deadline_4),
		cmocka_unit_test(queued_behind_2),
		cmocka_unit_test(abort_and_rejoin_2),
		cmocka_unit_test(abort_and_rejoin_4),
		cmocka_unit_test(cancel_2),
		cmocka_unit_test(cancel_3),
		cmocka_unit_test(peer_lost_2),
		cmocka_unit_test(peer_lost_4),
		cmocka_unit_test(peer_returns_2),
		cmocka_unit_test(peer_returns_3),
		cmocka_unit_test(peer_closes_2),
		cmocka_unit_test(peer_closes_3),
		cmocka_unit_test(join_deadline_2),
		cmocka_unit_test(join_deadline_4),
		cmocka_unit_test(join_mismatch_2),
		cmocka_unit_test(join_mismatch_3),
		cmocka_unit_test(many_2),
		cmocka_unit_test(many_4),
		cmocka_unit_test(large_2),
		cmocka_unit_test(large_4),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
