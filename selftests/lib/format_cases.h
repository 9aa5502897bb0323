/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * All-reduce requests that try the corners of the number format.
 *
 *	static struct format_case c;
 *
 *	format_case_init(&c, FORMAT_CASE_SEED);
 *	while (format_case_next(&c))
 *		reduce(c.inputs, c.nranks, c.count, c.dtype, c.redop, c.bits, c.flags);
 *
 * The generator knows nothing of the arithmetic: it makes inputs, for the
 * reference, for a card, or for anything else that claims to follow
 * Documentation/number-format.rst. A seed gives the same cases on any machine.
 */
#ifndef OPTINC_FORMAT_CASES_H
#define OPTINC_FORMAT_CASES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <optinc/optinc.h>

#define FORMAT_CASE_SEED	1
#define FORMAT_CASE_COUNT_MAX	33025
#define FORMAT_CASE_BYTES	(4 * 33032)	/* of one rank, at most; of a result too */

/**
 * struct format_case - one request, with what every rank sends
 * @name: what kind of values the inputs hold
 * @number: 0, 1, 2 ...; with the seed it determines the case
 * @inputs: one array of optinc_data_bytes(@count, @dtype) bytes for each rank;
 *	they point into @data, so do not copy the struct
 *
 * What follows @inputs belongs to the generator. Over 2 MiB: make it static.
 */
struct format_case {
	const char *name;
	unsigned int number;
	unsigned int nranks;
	size_t count;
	enum optinc_dtype dtype;
	enum optinc_redop redop;
	unsigned int bits;
	unsigned int flags;
	const void *inputs[OPTINC_MAX_RANKS];

	uint64_t seed;
	uint64_t random;
	unsigned int next;
	uint32_t (*element)(struct format_case *c, unsigned int rank, size_t i);
	/* of the block that is being filled */
	uint32_t centre;	/* biased exponent that the values lie around */
	uint32_t common;	/* random */
	unsigned int chosen_rank;
	size_t chosen;		/* index of one element */
	size_t first;
	_Alignas(64) unsigned char data[OPTINC_MAX_RANKS][FORMAT_CASE_BYTES];
};

/* SplitMix64 (Steele, Lea, Flood 2014) */
static inline uint64_t format_case_mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static inline uint32_t format_case_random(struct format_case *c)
{
	c->random += UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(format_case_mix(c->random) >> 32);
}

/* The same on every rank, for values that must meet. */
static inline uint32_t format_case_shared(const struct format_case *c, size_t i)
{
	uint64_t z = c->seed * 31 + c->number * UINT64_C(1000003) + i + 1;

	return (uint32_t)(format_case_mix(z) >> 32);
}

static inline unsigned int format_case_fraction_bits(const struct format_case *c)
{
	return c->dtype == OPTINC_F32 ? 23 : c->dtype == OPTINC_F16 ? 10 : 7;
}

static inline uint32_t format_case_exponent_max(const struct format_case *c)
{
	return c->dtype == OPTINC_F16 ? 30 : 254;
}

/* A pattern of the case's type; @fraction is cut to what fits. */
static inline uint32_t format_case_pattern(const struct format_case *c, uint32_t negative,
					   int64_t biased, uint32_t fraction)
{
	unsigned int bits = format_case_fraction_bits(c);
	unsigned int sign = c->dtype == OPTINC_F32 ? 31 : 15;

	if (biased < 0)
		biased = 0;
	return (negative & 1) << sign | (uint32_t)biased << bits |
	       (fraction & ((UINT32_C(1) << bits) - 1));
}

static inline uint32_t format_case_zero(struct format_case *c)
{
	return format_case_pattern(c, format_case_random(c), 0, 0);
}

/*
 * @n half steps of a block whose largest element has the exponent @centre, a
 * step being what one code is worth there. Exact while @n fits the fraction.
 */
static inline uint32_t format_case_half_steps(const struct format_case *c, uint32_t negative,
					      uint32_t n)
{
	unsigned int bits = format_case_fraction_bits(c);
	int64_t biased = (int64_t)c->centre - c->bits + 1;

	if (!n)
		return format_case_pattern(c, negative, 0, 0);
	while (n >> 1 >> bits) {
		n >>= 1;
		biased++;
	}
	biased += bits;
	while (!(n >> bits)) {
		n <<= 1;
		biased--;
	}
	return format_case_pattern(c, negative, biased, n);
}

static inline bool format_case_is_chosen(const struct format_case *c, unsigned int rank, size_t i)
{
	return rank == c->chosen_rank && i == c->chosen;
}

/* ---------------------------------------- floating point, one element each */

static inline uint32_t format_case_normal(struct format_case *c, unsigned int rank, size_t i)
{
	uint32_t r = format_case_random(c);

	(void)rank, (void)i;
	return format_case_pattern(c, r >> 31, (int64_t)c->centre - (r >> 24) % 10,
				   format_case_random(c));
}

/* Any finite pattern: most elements vanish beside the largest. */
static inline uint32_t format_case_any(struct format_case *c, unsigned int rank, size_t i)
{
	uint32_t r = format_case_random(c);

	(void)rank, (void)i;
	return format_case_pattern(c, r, (r >> 1) % (format_case_exponent_max(c) + 1),
				   format_case_random(c));
}

/* In the first block, and in half of the others, one element of one rank is special. */
static inline uint32_t format_case_special(struct format_case *c, unsigned int rank, size_t i,
					   uint32_t negative, uint32_t fraction)
{
	if (!format_case_is_chosen(c, rank, i) || (c->first && c->common % 2))
		return format_case_normal(c, rank, i);
	return format_case_pattern(c, negative, format_case_exponent_max(c) + 1, fraction);
}

/* Quiet or signalling. */
static inline uint32_t format_case_nan(struct format_case *c, unsigned int rank, size_t i)
{
	uint32_t quiet = UINT32_C(1) << (format_case_fraction_bits(c) - 1);

	return format_case_special(c, rank, i, c->common >> 1, c->common & 4 ? quiet : 1);
}

static inline uint32_t format_case_plus_inf(struct format_case *c, unsigned int rank, size_t i)
{
	return format_case_special(c, rank, i, 0, 0);
}

static inline uint32_t format_case_minus_inf(struct format_case *c, unsigned int rank, size_t i)
{
	return format_case_special(c, rank, i, 1, 0);
}

static inline uint32_t format_case_zeros(struct format_case *c, unsigned int rank, size_t i)
{
	(void)rank, (void)i;
	return format_case_zero(c);
}

/* Blocks of zeros on all ranks, on some, and zeros here and there. */
static inline uint32_t format_case_some_zeros(struct format_case *c, unsigned int rank, size_t i)
{
	if (c->common % 4 == 0 || c->common >> (8 + rank) & 1 || format_case_random(c) % 4 == 0)
		return format_case_zero(c);
	return format_case_normal(c, rank, i);
}

static inline uint32_t format_case_subnormal(struct format_case *c, unsigned int rank, size_t i)
{
	unsigned int bits = format_case_fraction_bits(c);
	uint32_t r = format_case_random(c);

	(void)rank, (void)i;
	return format_case_pattern(c, r, 0, format_case_random(c) >> (32 - bits + r / 2 % bits));
}

/* Where the exponent of f32 and bf16 stops at -126, and results of f16 are subnormal. */
static inline uint32_t format_case_tiny(struct format_case *c, unsigned int rank, size_t i)
{
	uint32_t r = format_case_random(c);

	(void)rank, (void)i;
	return format_case_pattern(c, r, (r >> 1) % (c->common % (c->bits + 4) + 1),
				   format_case_random(c));
}

/* Nearly the largest number, of one sign in half of the blocks: sums overflow. */
static inline uint32_t format_case_huge(struct format_case *c, unsigned int rank, size_t i)
{
	uint32_t r = format_case_random(c);

	(void)rank, (void)i;
	return format_case_pattern(c, c->common & 1 ? c->common >> 1 : r,
				   (int64_t)format_case_exponent_max(c) - (r >> 1) % 2,
				   format_case_random(c));
}

/* Just below a power of two: the quotient rounds up to 2^(bits - 1), and is clipped. */
static inline uint32_t format_case_clip(struct format_case *c, unsigned int rank, size_t i)
{
	uint32_t r = format_case_random(c);

	(void)rank, (void)i;
	return format_case_pattern(c, r, (int64_t)c->centre - (r >> 1) % 2,
				   ~(format_case_random(c) & (r >> 8) & (r >> 16) & 0xfff));
}

/* Quotients half-way between two codes. */
static inline uint32_t format_case_ties(struct format_case *c, unsigned int rank, size_t i)
{
	unsigned int bits = format_case_fraction_bits(c);
	uint32_t r = format_case_random(c);
	uint32_t top = UINT32_C(1) << (c->bits - 1);

	if (format_case_is_chosen(c, rank, i))
		return format_case_half_steps(c, r, top);
	if (bits > c->bits - 2)
		bits = c->bits - 2;
	return format_case_half_steps(c, r, (r >> 1) % (UINT32_C(1) << bits) * 2 + 1);
}

/* Codes -1, 0, 1, 2: their sum is often half-way between two multiples of the ranks. */
static inline uint32_t format_case_small(struct format_case *c, unsigned int rank, size_t i)
{
	uint32_t r = format_case_random(c);

	if (format_case_is_chosen(c, rank, i))
		return format_case_half_steps(c, r, UINT32_C(1) << (c->bits - 1));
	r %= 4;
	return r == 3 ? format_case_half_steps(c, 1, 2) : format_case_half_steps(c, 0, 2 * r);
}

/* Largest and smallest exponents take turns among ranks and blocks. */
static inline uint32_t format_case_extremes(struct format_case *c, unsigned int rank, size_t i)
{
	uint32_t r = format_case_random(c);
	int64_t biased = (rank + c->first / OPTINC_BLOCK) % 2 ? format_case_exponent_max(c) : 4;

	(void)i;
	return format_case_pattern(c, r, biased - (r >> 1) % 5, format_case_random(c));
}

/* Pairs of ranks send x and -x. */
static inline uint32_t format_case_cancel(struct format_case *c, unsigned int rank, size_t i)
{
	uint32_t shared = format_case_shared(c, i + (rank / 2) * UINT64_C(4096));

	if (rank == (c->nranks & ~1U))
		return format_case_zero(c);
	return format_case_pattern(c, rank, (int64_t)c->centre - shared % 8, shared >> 8);
}

static inline uint32_t format_case_equal(struct format_case *c, unsigned int rank, size_t i)
{
	uint32_t shared = format_case_shared(c, i);

	(void)rank;
	return format_case_pattern(c, shared, (int64_t)c->centre - (shared >> 1) % 8, shared >> 8);
}

/* One element of one rank is not zero. */
static inline uint32_t format_case_lone(struct format_case *c, unsigned int rank, size_t i)
{
	if (!format_case_is_chosen(c, rank, i))
		return format_case_zero(c);
	return format_case_normal(c, rank, i);
}

/* One rank sends one of the smallest numbers: in the mean of f16 it vanishes. */
static inline uint32_t format_case_smallest(struct format_case *c, unsigned int rank, size_t i)
{
	uint32_t r = format_case_random(c);

	if (rank != i % c->nranks)
		return format_case_zero(c);
	return format_case_pattern(c, r, 0, 1 + (r >> 1) % 3);
}

/* The largest number, of the same sign on all ranks. */
static inline uint32_t format_case_largest(struct format_case *c, unsigned int rank, size_t i)
{
	(void)rank;
	return format_case_pattern(c, format_case_shared(c, i), format_case_exponent_max(c), ~0U);
}

/* -------------------------------------------------- raw codes, one element each */

static inline uint32_t format_case_raw_any(struct format_case *c, unsigned int rank, size_t i)
{
	(void)rank, (void)i;
	return format_case_random(c);
}

static inline uint32_t format_case_raw_limits(struct format_case *c, unsigned int rank, size_t i)
{
	uint32_t top = UINT32_C(1) << (c->bits - 1);
	const uint32_t limits[] = { top, top + 1, top - 1, 0, top, top - 2, top + 2, 1 };

	(void)rank, (void)i;
	return limits[format_case_random(c) % 8];
}

static inline uint32_t format_case_raw_lowest(struct format_case *c, unsigned int rank, size_t i)
{
	(void)rank, (void)i;
	return UINT32_C(1) << (c->bits - 1);
}

static inline uint32_t format_case_raw_highest(struct format_case *c, unsigned int rank, size_t i)
{
	(void)rank, (void)i;
	return (UINT32_C(1) << (c->bits - 1)) - 1;
}

static inline uint32_t format_case_raw_small(struct format_case *c, unsigned int rank, size_t i)
{
	(void)rank, (void)i;
	return format_case_random(c) % 4 - 1;
}

static inline uint32_t format_case_raw_cancel(struct format_case *c, unsigned int rank, size_t i)
{
	uint32_t shared = format_case_shared(c, i + (rank / 2) * UINT64_C(4096));

	if (rank == (c->nranks & ~1U))
		return 0;
	return rank % 2 ? -shared : shared;
}

/* --------------------------------------------------------- votes, one bit each */

static inline uint32_t format_case_vote_any(struct format_case *c, unsigned int rank, size_t i)
{
	(void)rank, (void)i;
	return format_case_random(c) & 1;
}

static inline uint32_t format_case_vote_all(struct format_case *c, unsigned int rank, size_t i)
{
	(void)rank;
	return (format_case_shared(c, i / 8) >> (i % 3)) & 1;
}

/* A tie where the ranks are even, a majority of one where they are odd. */
static inline uint32_t format_case_vote_tie(struct format_case *c, unsigned int rank, size_t i)
{
	return (format_case_shared(c, i) + rank) & 1;
}

static inline uint32_t format_case_vote_lone(struct format_case *c, unsigned int rank, size_t i)
{
	return (format_case_shared(c, i / 16) & 1) ^ (rank == i % c->nranks);
}

/* ------------------------------------------------------------------ iteration */

struct format_case_kind {
	const char *name;
	uint32_t (*element)(struct format_case *c, unsigned int rank, size_t i);
};

static const struct format_case_kind format_case_floats[] = {
	{ "normal", format_case_normal },
	{ "any", format_case_any },
	{ "nan", format_case_nan },
	{ "plus-inf", format_case_plus_inf },
	{ "minus-inf", format_case_minus_inf },
	{ "zeros", format_case_zeros },
	{ "some-zeros", format_case_some_zeros },
	{ "subnormal", format_case_subnormal },
	{ "tiny", format_case_tiny },
	{ "huge", format_case_huge },
	{ "clip", format_case_clip },
	{ "ties", format_case_ties },
	{ "small", format_case_small },
	{ "extremes", format_case_extremes },
	{ "cancel", format_case_cancel },
	{ "equal", format_case_equal },
	{ "lone", format_case_lone },
	{ "smallest", format_case_smallest },
	{ "largest", format_case_largest },
};

static const struct format_case_kind format_case_raws[] = {
	{ "any", format_case_raw_any },
	{ "limits", format_case_raw_limits },
	{ "lowest", format_case_raw_lowest },
	{ "highest", format_case_raw_highest },
	{ "small", format_case_raw_small },
	{ "cancel", format_case_raw_cancel },
	{ "any", format_case_raw_any },
};

static const struct format_case_kind format_case_votes[] = {
	{ "any", format_case_vote_any },
	{ "all", format_case_vote_all },
	{ "tie", format_case_vote_tie },
	{ "lone", format_case_vote_lone },
	{ "any", format_case_vote_any },
};

/*
 * What the cases run through: each entry with every group size, four times,
 * and then the long requests. The tables of kinds have the lengths 19, 7 and 5
 * and those of counts 8 and 6, so that a kind meets other counts and group
 * sizes each time it comes round.
 */
static const struct {
	enum optinc_dtype dtype;
	enum optinc_redop redop;
	unsigned int bits;
	unsigned int flags;
} format_case_plan[] = {
	{ OPTINC_F32, OPTINC_MEAN, 8, 0 },
	{ OPTINC_F32, OPTINC_MEAN, 16, 0 },
	{ OPTINC_F32, OPTINC_SUM, 8, 0 },
	{ OPTINC_F32, OPTINC_SUM, 16, 0 },
	{ OPTINC_F16, OPTINC_MEAN, 8, 0 },
	{ OPTINC_F16, OPTINC_MEAN, 16, 0 },
	{ OPTINC_F16, OPTINC_SUM, 8, 0 },
	{ OPTINC_F16, OPTINC_SUM, 16, 0 },
	{ OPTINC_BF16, OPTINC_MEAN, 8, 0 },
	{ OPTINC_BF16, OPTINC_MEAN, 16, 0 },
	{ OPTINC_BF16, OPTINC_SUM, 8, 0 },
	{ OPTINC_BF16, OPTINC_SUM, 16, 0 },
	{ OPTINC_I8, OPTINC_MEAN, 8, 0 },
	{ OPTINC_I8, OPTINC_SUM, 8, 0 },
	{ OPTINC_I16, OPTINC_MEAN, 16, 0 },
	{ OPTINC_I16, OPTINC_SUM, 16, 0 },
	{ OPTINC_BIT, OPTINC_VOTE, 8, 0 },
	{ OPTINC_BIT, OPTINC_VOTE, 16, 0 },
	{ OPTINC_BIT, OPTINC_VOTE, 8, OPTINC_SQE_SIGN },
	{ OPTINC_BIT, OPTINC_VOTE, 16, OPTINC_SQE_SIGN },
	{ OPTINC_BIT, OPTINC_VOTE, 8, OPTINC_SQE_SIGN | OPTINC_SQE_ABSTAIN },
	{ OPTINC_BIT, OPTINC_VOTE, 16, OPTINC_SQE_SIGN | OPTINC_SQE_ABSTAIN },
};

#define FORMAT_CASE_ARRAY(a)	(sizeof(a) / sizeof((a)[0]))
#define FORMAT_CASE_SLOTS	(4 * (OPTINC_MAX_RANKS - 1))
#define FORMAT_CASE_SHORT	(FORMAT_CASE_SLOTS * FORMAT_CASE_ARRAY(format_case_plan))
#define FORMAT_CASE_LONG	9	/* the last is the longest */
#define FORMAT_CASES		\
	(FORMAT_CASE_SHORT + FORMAT_CASE_LONG * FORMAT_CASE_ARRAY(format_case_plan))

static inline void format_case_store(struct format_case *c, unsigned int rank, size_t i,
				     uint32_t value)
{
	unsigned char *p = c->data[rank];
	uint16_t half = (uint16_t)value;

	switch (c->dtype) {
	case OPTINC_F32:
		memcpy(p + 4 * i, &value, 4);
		break;
	case OPTINC_I8:
		p[i] = (unsigned char)value;
		break;
	case OPTINC_BIT:
		/* bits beyond the last vote stay set: nobody may look at them */
		if (i % 8 == 0)
			p[i / 8] = 0xff;
		if (!(value & 1))
			p[i / 8] &= (unsigned char)~(1U << (i % 8));
		break;
	default:
		memcpy(p + 2 * i, &half, 2);
		break;
	}
}

static inline void format_case_init(struct format_case *c, uint64_t seed)
{
	memset(c, 0, sizeof(*c));
	c->seed = seed;
}

/* Few elements, in one block to three. Returns what the kind follows from. */
static inline unsigned int format_case_place_short(struct format_case *c, unsigned int plan,
						   unsigned int slot)
{
	static const size_t counts[] = { 257, 0, 513, 7, 256, 1, 255, 64 };
	unsigned int turn = slot + 7 * plan;

	c->nranks = 2 + slot / 4;
	c->count = counts[turn % FORMAT_CASE_ARRAY(counts)];
	return turn;
}

/* Many blocks: where one is short, cards divide the work by other rules than for few. */
static inline unsigned int format_case_place_long(struct format_case *c, unsigned int plan,
						  unsigned int slot)
{
	static const unsigned int nranks[] = { 2, 3, 4, 7, 8, 12, 15, 16 };
	static const size_t counts[] = { 4609, 2048, 2303, 5000, 1281, 2561 };
	unsigned int turn = slot + FORMAT_CASE_LONG * plan;

	if (slot < FORMAT_CASE_ARRAY(nranks)) {
		c->nranks = nranks[slot];
		c->count = counts[turn % FORMAT_CASE_ARRAY(counts)];
	} else {
		c->nranks = 2 + plan % 3;
		c->count = FORMAT_CASE_COUNT_MAX;
	}
	return turn;
}

/* Case @number without its values and its parity, which format_case_fill() adds. */
static inline void format_case_place(struct format_case *c, unsigned int number)
{
	bool is_long = number >= FORMAT_CASE_SHORT;
	unsigned int n = is_long ? number - FORMAT_CASE_SHORT : number;
	unsigned int slots = is_long ? FORMAT_CASE_LONG : FORMAT_CASE_SLOTS;
	unsigned int plan = n / slots, slot = n % slots, turn;
	const struct format_case_kind *kind;

	c->number = number;
	c->dtype = format_case_plan[plan].dtype;
	c->redop = format_case_plan[plan].redop;
	c->bits = format_case_plan[plan].bits;
	c->flags = format_case_plan[plan].flags;
	turn = is_long ? format_case_place_long(c, plan, slot) :
			 format_case_place_short(c, plan, slot);
	if (c->dtype == OPTINC_BIT)
		kind = &format_case_votes[turn % FORMAT_CASE_ARRAY(format_case_votes)];
	else if (c->dtype == OPTINC_I8 || c->dtype == OPTINC_I16)
		kind = &format_case_raws[turn % FORMAT_CASE_ARRAY(format_case_raws)];
	else
		kind = &format_case_floats[turn % FORMAT_CASE_ARRAY(format_case_floats)];
	c->name = kind->name;
	c->element = kind->element;
}

static inline void format_case_fill(struct format_case *c)
{
	uint32_t lowest, r;
	unsigned int rank;
	size_t i, end;

	c->random = format_case_mix(c->seed) + c->number * UINT64_C(0xd1342543de82ef95);
	/* Votes know no parity, and card-interface.rst does not let them have one. */
	if (format_case_random(c) & 1 && c->dtype != OPTINC_BIT)
		c->flags |= OPTINC_SQE_PARITY;
	for (rank = 0; rank < OPTINC_MAX_RANKS; rank++)
		c->inputs[rank] = rank < c->nranks ? c->data[rank] : NULL;

	/* High enough that half a step is a normal number. */
	lowest = c->dtype == OPTINC_F16 ? 17 : 20;
	for (c->first = 0; c->first < c->count; c->first = end) {
		end = c->count - c->first > OPTINC_BLOCK ? c->first + OPTINC_BLOCK : c->count;
		c->common = format_case_random(c);
		c->chosen_rank = format_case_random(c) % c->nranks;
		c->chosen = c->first + format_case_random(c) % (end - c->first);
		c->centre = lowest + format_case_random(c) %
				     (format_case_exponent_max(c) - lowest + 1);
		for (rank = 0; rank < c->nranks; rank++) {
			for (i = c->first; i < end; i++) {
				r = c->element(c, rank, i);
				format_case_store(c, rank, i, r);
			}
		}
	}
}

/* The next case, or false when all FORMAT_CASES have been. */
static inline bool format_case_next(struct format_case *c)
{
	if (c->next >= FORMAT_CASES)
		return false;
	format_case_place(c, c->next++);
	format_case_fill(c);
	return true;
}

#endif /* OPTINC_FORMAT_CASES_H */
