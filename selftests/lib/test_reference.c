// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The reference against values worked out by hand from
 * Documentation/number-format.rst: one test for each rule, which fails if the
 * rule is broken. Patterns are literal; the comments say how they came about.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <optinc/optinc.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/* What the last reduction counted. */
static struct optinc_result result;

/*
 * @in: @nranks arrays of @count elements, one behind the other. The bytes
 * behind the expected result must stay as they were.
 */
static void check(unsigned int nranks, size_t count, enum optinc_dtype dtype,
		  enum optinc_redop redop, unsigned int bits, unsigned int flags, const void *in,
		  const void *expected)
{
	size_t each = optinc_data_bytes(count, dtype);
	size_t bytes = optinc_result_bytes(count, dtype, redop, flags);
	const void *send[OPTINC_MAX_RANKS];
	static unsigned char out[4096];
	unsigned int rank;
	size_t i;

	assert_true(bytes < sizeof(out));
	for (rank = 0; rank < nranks; rank++)
		send[rank] = (const unsigned char *)in + rank * each;
	memset(out, 0xa5, sizeof(out));
	memset(&result, 0xa5, sizeof(result));
	assert_int_equal(optinc_reference_allreduce(send, out, nranks, count, dtype, redop, bits,
						    flags, &result), 0);
	assert_memory_equal(out, expected, bytes);
	for (i = bytes; i < sizeof(out); i++)
		assert_int_equal(out[i], 0xa5);
}

/* Two ranks, f32, most of the tests. */
#define CHECK_F32(redop, bits, flags, in, expected) \
	check(2, ARRAY_SIZE(expected), OPTINC_F32, redop, bits, flags, in, expected)

/*
 * The examples of the document: four ranks, e = -5 at 8 bits and -13 at 16,
 * from 3.1416 on the last rank.
 */
static void documented_examples(void **state)
{
	static const uint32_t in[4][4] = {
		{ 0x3f333333, 0xbeb33333, 0x3dcccccd, 0x80000000 }, /* 0.7 -0.35 0.1 -0 */
		{ 0x3ff33333, 0x3e99999a, 0x3dcccccd, 0x3d4ccccd }, /* 1.9 0.3 0.1 0.05 */
		{ 0xbecccccd, 0x3e99999a, 0x3ca3d70a, 0x3d4ccccd }, /* -0.4 0.3 0.02 0.05 */
		{ 0x40490ff9, 0xbe4ccccd, 0x3db851ec, 0x3d4ccccd }, /* 3.1416 -0.2 0.09 0.05 */
	};
	/* 43 1 3 1, 43 1 2 2, 171 3 10 6 times 2^-5; 10940 103 635 307 times 2^-13 */
	static const uint32_t mean[] = { 0x3fac0000, 0x3d000000, 0x3dc00000, 0x3d000000 };
	static const uint32_t other[] = { 0x3fac0000, 0x3d000000, 0x3d800000, 0x3d800000 };
	static const uint32_t sum[] = { 0x40ab0000, 0x3dc00000, 0x3ea00000, 0x3e400000 };
	static const uint32_t mean16[] = { 0x3faaf000, 0x3c4e0000, 0x3d9ec000, 0x3d198000 };

	(void)state;
	check(4, 4, OPTINC_F32, OPTINC_MEAN, 8, 0, in, mean);
	check(4, 4, OPTINC_F32, OPTINC_MEAN, 8, OPTINC_SQE_PARITY, in, other);
	check(4, 4, OPTINC_F32, OPTINC_SUM, 8, 0, in, sum);
	check(4, 4, OPTINC_F32, OPTINC_SUM, 8, OPTINC_SQE_PARITY, in, sum);
	check(4, 4, OPTINC_F32, OPTINC_MEAN, 16, 0, in, mean16);
}

/*
 * 64 lies in [2^6, 2^7): e = 7 - 7 = 0 on both ranks, whoever sends it, and
 * 1 + 1/64 has code 1. By its own exponent, rank 0 would have sent 65 * 2^-6.
 */
static void exponent_is_the_maximum_over_ranks(void **state)
{
	static const uint32_t in[] = { 0x3f820000, 0, 0, 0x42800000 };
	static const uint32_t swapped[] = { 0, 0x42800000, 0x3f820000, 0 };
	static const uint32_t sum[] = { 0x3f800000, 0x42800000 };

	(void)state;
	CHECK_F32(OPTINC_SUM, 8, 0, in, sum);
	CHECK_F32(OPTINC_SUM, 8, 0, swapped, sum);
	/* e = -8 at 16 bits: nothing is lost */
	CHECK_F32(OPTINC_SUM, 16, 0, in, ((const uint32_t[]){ 0x3f820000, 0x42800000 }));
}

/* Elements 0..255 share the 64; element 256 is alone, and exact. */
static void exponent_is_the_blocks_own(void **state)
{
	static uint32_t in[2][257], sum[257];

	(void)state;
	in[0][0] = sum[0] = 0x42800000;
	in[0][255] = 0x3f820000;	/* 1 + 1/64 again */
	sum[255] = 0x3f800000;
	in[1][256] = sum[256] = 0x3f820000;
	CHECK_F32(OPTINC_SUM, 8, 0, in, sum);
}

/*
 * Codes 64, then 1 on one rank and 0 on the other: T = 257 at an even element
 * gives (257 + 1) / 2 = 129, one up; T = 255 of the negated code gives 128,
 * nothing. -1 the other way round. Parity changes places.
 */
static void parity_says_which_half_goes_up(void **state)
{
	static const uint32_t in[2][5] = {
		{ 0x42800000, 0x3f800000, 0x3f800000, 0xbf800000, 0xbf800000 },
		{ 0x42800000, 0, 0, 0, 0 },
	};
	static const uint32_t even[] = { 0x42800000, 0, 0x3f800000, 0xbf800000, 0 };
	static const uint32_t odd[] = { 0x42800000, 0x3f800000, 0, 0, 0xbf800000 };
	static const uint32_t sum[] = { 0x43000000, 0x3f800000, 0x3f800000, 0xbf800000,
					0xbf800000 };

	(void)state;
	CHECK_F32(OPTINC_MEAN, 8, 0, in, even);
	CHECK_F32(OPTINC_MEAN, 8, OPTINC_SQE_PARITY, in, odd);
	CHECK_F32(OPTINC_SUM, 8, 0, in, sum);
	CHECK_F32(OPTINC_SUM, 8, OPTINC_SQE_PARITY, in, sum);
}

/* e = 0: 127.75 and 127.5 round to 128, which an 8-bit code of this format has not. */
static void codes_are_clipped(void **state)
{
	static const uint32_t in[2][4] = {
		{ 0x42ff8000, 0xc2ff8000, 0x42ff0000, 0x42fe8000 }, /* 127.75 - 127.5 127.25 */
		{ 0x42ff8000, 0xc2ff8000, 0x42ff0000, 0x42fe8000 },
	};
	static const uint32_t mean[] = { 0x42fe0000, 0xc2fe0000, 0x42fe0000, 0x42fe0000 };
	static const uint32_t sum[] = { 0x437e0000, 0xc37e0000, 0x437e0000, 0x437e0000 };
	/* 32767.75 at e = 0 becomes 32767 */
	static const uint32_t in16[2][2] = {
		{ 0x46ffff80, 0xc6ffff80 }, { 0x46ffff80, 0xc6ffff80 },
	};
	static const uint32_t mean16[] = { 0x46fffe00, 0xc6fffe00 };

	(void)state;
	CHECK_F32(OPTINC_MEAN, 8, 0, in, mean);
	CHECK_F32(OPTINC_SUM, 8, 0, in, sum);
	CHECK_F32(OPTINC_MEAN, 16, 0, in16, mean16);
	/* clipping a float is rounding, not an error to count */
	assert_int_equal(result.saturated, 0);
}

/* e = 0 from the 64; both ranks send the same, so that the mean rounds nothing. */
static void codes_round_half_to_even(void **state)
{
	static const uint32_t in[2][10] = {
		/* 64, 0.5 1.5 2.5 3.5, -0.5 -1.5 -2.5, next above and below 0.5 */
		{ 0x42800000, 0x3f000000, 0x3fc00000, 0x40200000, 0x40600000,
		  0xbf000000, 0xbfc00000, 0xc0200000, 0x3f000001, 0x3effffff },
		{ 0x42800000, 0x3f000000, 0x3fc00000, 0x40200000, 0x40600000,
		  0xbf000000, 0xbfc00000, 0xc0200000, 0x3f000001, 0x3effffff },
	};
	static const uint32_t mean[] = {
		0x42800000, 0, 0x40000000, 0x40000000, 0x40800000,	/* 0 2 2 4 */
		0, 0xc0000000, 0xc0000000, 0x3f800000, 0,		/* 0 -2 -2 1 0 */
	};

	(void)state;
	CHECK_F32(OPTINC_MEAN, 8, 0, in, mean);
}

/* One rank's one element takes the block, and only that, on every rank. */
static void nan_takes_the_block(void **state)
{
	static const uint32_t special[] = { 0x7fc00000, 0x7f800001, 0xffc12345, 0x7f800000,
					    0xff800000 };
	static const uint16_t half[2][2] = { { 0x3c00, 0x7c00 }, { 0x3c00, 0x3c00 } };
	static const uint16_t brain[2][2] = { { 0x3f80, 0x3f80 }, { 0x3f80, 0xff80 } };
	static uint32_t in[2][513], mean[513];
	size_t i, s;

	(void)state;
	for (s = 0; s < ARRAY_SIZE(special); s++) {
		for (i = 0; i < 513; i++) {
			in[0][i] = in[1][i] = 0x3f800000;
			mean[i] = i < 256 || i == 512 ? 0x7fc00000 : 0x3f800000;
		}
		in[1][3] = special[s];
		in[0][512] = special[s];
		CHECK_F32(OPTINC_MEAN, 8, 0, in, mean);
		assert_int_equal(result.nonfinite, 2);
	}
	check(2, 2, OPTINC_F16, OPTINC_SUM, 8, 0, half, (const uint16_t[]){ 0x7e00, 0x7e00 });
	assert_int_equal(result.nonfinite, 1);
	check(2, 2, OPTINC_BF16, OPTINC_SUM, 16, 0, brain, (const uint16_t[]){ 0x7fc0, 0x7fc0 });
	assert_int_equal(result.nonfinite, 1);
}

/* -0, 1 - 1 and blocks of zeros, at even and odd elements. */
static void zero_is_plus_zero(void **state)
{
	static const uint32_t zeros[2][2] = { { 0x80000000, 0x80000000 }, { 0, 0x80000000 } };
	static const uint32_t cancel[2][4] = {
		{ 0x3f800000, 0x3f800000, 0xbf800000, 0x80000000 },
		{ 0xbf800000, 0xbf800000, 0x3f800000, 0x80000000 },
	};
	static const uint32_t none[4];
	static const uint32_t mixed[2][2] = { { 0, 0x80000000 }, { 0x3f800000, 0xbf800000 } };

	(void)state;
	check(2, 2, OPTINC_F32, OPTINC_MEAN, 8, 0, zeros, none);
	assert_int_equal(result.nonfinite, 0);
	check(2, 4, OPTINC_F32, OPTINC_MEAN, 8, 0, cancel, none);
	check(2, 4, OPTINC_F32, OPTINC_MEAN, 16, OPTINC_SQE_PARITY, cancel, none);
	check(2, 4, OPTINC_F32, OPTINC_SUM, 8, 0, cancel, none);
	/* codes 64 and -64 halved, e = -6 */
	CHECK_F32(OPTINC_MEAN, 8, 0, mixed, ((const uint32_t[]){ 0x3f000000, 0xbf000000 }));
}

/*
 * 2^-126, smallest normal, would have e = -125 - 7. It stops at -126: 1.5
 * units become 2, half a unit 0, one pattern more than half 1.
 */
static void exponent_stops_at_minus_126(void **state)
{
	static const uint32_t in[2][4] = {
		{ 0x00800000, 0x00c00000, 0x00400000, 0x80400001 },
		{ 0x00800000, 0x00c00000, 0x00400000, 0x80400001 },
	};
	static const uint32_t mean[] = { 0x00800000, 0x01000000, 0, 0x80800000 };
	static const uint16_t brain[2][4] = {
		{ 0x0080, 0x00c0, 0x0040, 0x8041 }, { 0x0080, 0x00c0, 0x0040, 0x8041 },
	};
	static const uint16_t brain_mean[] = { 0x0080, 0x0100, 0, 0x8080 };
	/* a subnormal of 23 places down to the last: far from any code */
	static const uint32_t last[2][1] = { { 1 }, { 1 } };

	(void)state;
	CHECK_F32(OPTINC_MEAN, 8, 0, in, mean);
	CHECK_F32(OPTINC_MEAN, 16, 0, in, mean);
	check(2, 4, OPTINC_BF16, OPTINC_MEAN, 8, 0, brain, brain_mean);
	check(2, 4, OPTINC_BF16, OPTINC_MEAN, 16, 0, brain, brain_mean);
	CHECK_F32(OPTINC_SUM, 8, 0, last, ((const uint32_t[]){ 0 }));
}

/* The largest float: e = 128 - 7 = 121, code 127. 254 * 2^121 is beyond 2^128. */
static void sums_overflow_to_infinity(void **state)
{
	static const uint32_t in[2][3] = {
		{ 0x7f7fffff, 0xff7fffff, 0x7f7fffff }, { 0x7f7fffff, 0xff7fffff, 0 },
	};

	(void)state;
	CHECK_F32(OPTINC_SUM, 8, 0, in,
		  ((const uint32_t[]){ 0x7f800000, 0xff800000, 0x7f7e0000 }));
	assert_int_equal(result.nonfinite, 0);
	/* 127 and 127 / 2: even element, 64 */
	CHECK_F32(OPTINC_MEAN, 8, 0, in,
		  ((const uint32_t[]){ 0x7f7e0000, 0xff7e0000, 0x7f000000 }));
}

static void f16_is_rounded_once(void **state)
{
	/* 65504: e = 16 - 7 = 9, code 127: 65024; twice that is infinity */
	static const uint16_t top[2][1] = { { 0x7bff }, { 0x7bff } };
	/* at 16 bits e = 1: 65504 + 14 = 65518 rounds to 65504, + 16 = 65520 to infinity */
	static const uint16_t edge[2][2] = { { 0x7bff, 0x7bff }, { 0x4b00, 0x4c00 } };
	/*
	 * 3 * 2^-24: frexp's exponent is -22, e = -29, code 96. Its half with 0
	 * is 1.5 smallest subnormals, to even: 2. 2^-24 alone halves to 0, and
	 * to +0 from below as well.
	 */
	static const uint16_t small[2][2] = { { 0x0003, 0x8003 }, { 0, 0 } };
	static const uint16_t vanish[2][2] = { { 0x8001, 0x0001 }, { 0, 0x8000 } };

	(void)state;
	check(2, 1, OPTINC_F16, OPTINC_MEAN, 8, 0, top, (const uint16_t[]){ 0x7bf0 });
	check(2, 1, OPTINC_F16, OPTINC_SUM, 8, 0, top, (const uint16_t[]){ 0x7c00 });
	check(2, 1, OPTINC_F16, OPTINC_MEAN, 16, 0, top, (const uint16_t[]){ 0x7bff });
	check(2, 2, OPTINC_F16, OPTINC_SUM, 16, 0, edge, (const uint16_t[]){ 0x7bff, 0x7c00 });
	check(2, 2, OPTINC_F16, OPTINC_MEAN, 8, 0, small, (const uint16_t[]){ 0x0002, 0x8002 });
	check(2, 2, OPTINC_F16, OPTINC_SUM, 8, 0, small, (const uint16_t[]){ 0x0003, 0x8003 });
	check(2, 2, OPTINC_F16, OPTINC_MEAN, 8, 0, vanish, (const uint16_t[]){ 0, 0 });
	check(2, 2, OPTINC_F16, OPTINC_MEAN, 16, 0, vanish, (const uint16_t[]){ 0, 0 });
}

static void bf16_is_rounded_once(void **state)
{
	/* 255/128: e = -6, 127.5 to even is 128, clipped: 127/64. Exact at 16 bits. */
	static const uint16_t clip[2][1] = { { 0x3fff }, { 0x3fff } };
	/*
	 * 1 and 1 + 1/128: half a last place, to even; one place higher; and
	 * 2 - 1/128 with 2, where rounding up carries into the exponent.
	 */
	static const uint16_t ties[2][3] = {
		{ 0x3f80, 0x3f81, 0x3fff }, { 0x3f81, 0x3f82, 0x4000 },
	};
	static const uint16_t even[] = { 0x3f80, 0x3f82, 0x4000 };

	(void)state;
	check(2, 1, OPTINC_BF16, OPTINC_MEAN, 8, 0, clip, (const uint16_t[]){ 0x3ffe });
	check(2, 1, OPTINC_BF16, OPTINC_MEAN, 16, 0, clip, (const uint16_t[]){ 0x3fff });
	check(2, 3, OPTINC_BF16, OPTINC_MEAN, 16, 0, ties, even);
}

static void raw_codes(void **state)
{
	static const int8_t pair[2][4] = { { 3, 3, -3, -128 }, { 4, 4, -4, -128 } };
	static const int8_t three[3][2] = { { 1, 1 }, { 1, 0 }, { 0, 0 } };
	static const int8_t four[4][2] = { { -1, -1 }, { -1, -1 }, { 0, 0 }, { 0, 0 } };
	static const int16_t words[2][3] = { { -32768, 32767, 5 }, { -32768, 32767, 6 } };
	int16_t lowest[16], sum = -16 * 127;
	int8_t bytes[16];
	int32_t long_sum = -16 * 32767;
	unsigned int i;

	(void)state;
	/* 3.5 up; -3.5 up, negated; -3.5 up; -127 saturated on both ranks */
	check(2, 4, OPTINC_I8, OPTINC_MEAN, 8, 0, pair, (const int8_t[]){ 4, 3, -3, -127 });
	assert_int_equal(result.saturated, 2);
	assert_int_equal(result.nonfinite, 0);
	check(2, 4, OPTINC_I8, OPTINC_MEAN, 8, OPTINC_SQE_PARITY, pair,
	      (const int8_t[]){ 3, 4, -4, -127 });
	check(2, 4, OPTINC_I8, OPTINC_SUM, 8, 0, pair, (const int16_t[]){ 7, 7, -7, -254 });
	/* 2/3 up and 1/3 down, on either side of zero */
	check(3, 2, OPTINC_I8, OPTINC_MEAN, 8, 0, three, (const int8_t[]){ 1, 0 });
	check(3, 2, OPTINC_I8, OPTINC_MEAN, 8, OPTINC_SQE_PARITY, three, (const int8_t[]){ 1, 0 });
	/* -1/2 up; 1/2 up, negated */
	check(4, 2, OPTINC_I8, OPTINC_MEAN, 8, 0, four, (const int8_t[]){ 0, -1 });

	check(2, 3, OPTINC_I16, OPTINC_MEAN, 16, 0, words, (const int16_t[]){ -32767, 32767, 6 });
	assert_int_equal(result.saturated, 2);
	check(2, 3, OPTINC_I16, OPTINC_SUM, 16, 0, words, (const int32_t[]){ -65534, 65534, 11 });

	for (i = 0; i < 16; i++) {
		bytes[i] = -128;
		lowest[i] = -32768;
	}
	check(16, 1, OPTINC_I8, OPTINC_SUM, 8, 0, bytes, &sum);
	assert_int_equal(result.saturated, 16);
	check(16, 1, OPTINC_I16, OPTINC_SUM, 16, 0, lowest, &long_sum);
}

/* Votes 111, 110, 100, 000 and again, of three ranks; the document's; ties of two. */
static void votes(void **state)
{
	static const uint8_t three[3][2] = { { 0x77, 0xff }, { 0x33, 0xfe }, { 0x11, 0xfd } };
	static const int8_t count[] = { 3, 1, -1, -3, 3, 1, -1, -3, 1, 1 };
	static const int8_t sign[] = { 1, 1, -1, -1, 1, 1, -1, -1, 1, 1 };
	static const uint8_t four[3][1] = { { 0x07 }, { 0x03 }, { 0x01 } };
	static const uint8_t two[2][1] = { { 0xff }, { 0xf9 } };
	unsigned int abstain = OPTINC_SQE_SIGN | OPTINC_SQE_ABSTAIN;
	unsigned int bits;

	(void)state;
	for (bits = 8; bits <= 16; bits += 8) {
		check(3, 10, OPTINC_BIT, OPTINC_VOTE, bits, 0, three, count);
		check(3, 10, OPTINC_BIT, OPTINC_VOTE, bits, OPTINC_SQE_SIGN, three,
		      (const uint8_t[]){ 0x33, 0x03 });
		check(3, 10, OPTINC_BIT, OPTINC_VOTE, bits, abstain, three, sign);
		check(3, 4, OPTINC_BIT, OPTINC_VOTE, bits, 0, four, count);
		check(3, 4, OPTINC_BIT, OPTINC_VOTE, bits, OPTINC_SQE_SIGN, four,
		      (const uint8_t[]){ 0x03 });
		check(3, 4, OPTINC_BIT, OPTINC_VOTE, bits, abstain, four, sign);
		/* a tie: counts 0, is 1 as a sign, abstains as 0 */
		check(2, 3, OPTINC_BIT, OPTINC_VOTE, bits, 0, two, (const int8_t[]){ 2, 0, 0 });
		check(2, 3, OPTINC_BIT, OPTINC_VOTE, bits, OPTINC_SQE_SIGN, two,
		      (const uint8_t[]){ 0x07 });
		check(2, 3, OPTINC_BIT, OPTINC_VOTE, bits, abstain, two,
		      (const int8_t[]){ 1, 0, 0 });
	}
}

static void nothing_is_reduced_to_nothing(void **state)
{
	static unsigned char none[1];

	(void)state;
	check(2, 0, OPTINC_F32, OPTINC_MEAN, 8, 0, none, none);
	check(2, 0, OPTINC_I8, OPTINC_SUM, 8, 0, none, none);
	check(2, 0, OPTINC_BIT, OPTINC_VOTE, 8, OPTINC_SQE_SIGN, none, none);
	assert_int_equal(result.nonfinite, 0);
	assert_int_equal(result.saturated, 0);
}

/* Elements need no alignment, neither sent nor received; result may be NULL. */
static void unaligned_memory(void **state)
{
	static const uint32_t one = 0x3f800000;
	unsigned char in[2][5], out[6] = { 0xa5, 0, 0, 0, 0, 0xa5 };
	const void *send[] = { in[0] + 1, in[1] + 1 };

	(void)state;
	memcpy(in[0] + 1, &one, 4);
	memcpy(in[1] + 1, &one, 4);
	assert_int_equal(optinc_reference_allreduce(send, out + 1, 2, 1, OPTINC_F32, OPTINC_MEAN,
						    8, 0, NULL), 0);
	assert_memory_equal(out + 1, &one, 4);
	assert_int_equal(out[0], 0xa5);
	assert_int_equal(out[5], 0xa5);
}

static void lengths(void **state)
{
	unsigned int abstain = OPTINC_SQE_SIGN | OPTINC_SQE_ABSTAIN;
	static const struct {
		enum optinc_dtype dtype;
		enum optinc_redop redop;
		unsigned int flags;
		size_t data, result;	/* of nine elements */
	} of_nine[] = {
		{ OPTINC_F32, OPTINC_MEAN, 0, 36, 36 },
		{ OPTINC_F32, OPTINC_SUM, OPTINC_SQE_PARITY, 36, 36 },
		{ OPTINC_F16, OPTINC_SUM, 0, 18, 18 },
		{ OPTINC_BF16, OPTINC_MEAN, 0, 18, 18 },
		{ OPTINC_I8, OPTINC_MEAN, 0, 9, 9 },
		{ OPTINC_I8, OPTINC_SUM, OPTINC_SQE_EXPONENTS, 9, 18 },
		{ OPTINC_I16, OPTINC_MEAN, OPTINC_SQE_EXPONENTS, 18, 18 },
		{ OPTINC_I16, OPTINC_SUM, 0, 18, 36 },
		{ OPTINC_BIT, OPTINC_VOTE, 0, 2, 9 },
		{ OPTINC_BIT, OPTINC_VOTE, OPTINC_SQE_SIGN, 2, 2 },
		{ OPTINC_BIT, OPTINC_VOTE, OPTINC_SQE_SIGN | OPTINC_SQE_ABSTAIN, 2, 9 },
		/* what does not exist */
		{ OPTINC_U8, OPTINC_SUM, 0, 9, 0 },
		{ OPTINC_F32, OPTINC_VOTE, 0, 36, 0 },
		{ OPTINC_BIT, OPTINC_SUM, 0, 2, 0 },
		{ OPTINC_BIT, OPTINC_VOTE, OPTINC_SQE_ABSTAIN, 2, 0 },
		{ OPTINC_BIT, OPTINC_VOTE, OPTINC_SQE_PARITY, 2, 0 },
		{ OPTINC_F32, OPTINC_SUM, OPTINC_SQE_SIGN, 36, 0 },
		{ OPTINC_F32, OPTINC_SUM, OPTINC_SQE_EXPONENTS, 36, 0 },
		{ OPTINC_F32, OPTINC_SUM, 0x10, 36, 0 },
		{ OPTINC_DTYPES, OPTINC_SUM, 0, 0, 0 },
		{ OPTINC_F32, OPTINC_REDOPS, 0, 36, 0 },
	};
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(of_nine); i++) {
		assert_int_equal(optinc_data_bytes(9, of_nine[i].dtype), of_nine[i].data);
		assert_int_equal(optinc_result_bytes(9, of_nine[i].dtype, of_nine[i].redop,
						     of_nine[i].flags), of_nine[i].result);
	}
	assert_int_equal(optinc_data_bytes(8, OPTINC_BIT), 1);
	assert_int_equal(optinc_data_bytes(SIZE_MAX, OPTINC_BIT), SIZE_MAX / 8 + 1);
	assert_int_equal(optinc_result_bytes(17, OPTINC_BIT, OPTINC_VOTE, abstain), 17);
	/* no size_t could say how many */
	assert_int_equal(optinc_data_bytes(SIZE_MAX / 4 + 1, OPTINC_F32), 0);
	assert_int_equal(optinc_result_bytes(SIZE_MAX / 4 + 1, OPTINC_I16, OPTINC_SUM, 0), 0);
}

static void refused(void **state)
{
	static const struct {
		unsigned int nranks;
		enum optinc_dtype dtype;
		enum optinc_redop redop;
		unsigned int bits, flags;
	} invalid[] = {
		{ 1, OPTINC_F32, OPTINC_MEAN, 8, 0 },
		{ 17, OPTINC_F32, OPTINC_MEAN, 8, 0 },
		{ 2, OPTINC_F32, OPTINC_MEAN, 0, 0 },
		{ 2, OPTINC_F32, OPTINC_MEAN, 12, 0 },
		{ 2, OPTINC_I8, OPTINC_MEAN, 16, 0 },
		{ 2, OPTINC_I16, OPTINC_MEAN, 8, 0 },
		{ 2, OPTINC_I8, OPTINC_MEAN, 8, OPTINC_SQE_EXPONENTS },
		{ 2, OPTINC_F32, OPTINC_SUM, 8, OPTINC_SQE_EXPONENTS },
		{ 2, OPTINC_F32, OPTINC_SUM, 8, OPTINC_SQE_SIGN },
		{ 2, OPTINC_F32, OPTINC_SUM, 8, OPTINC_SQE_SIGN | OPTINC_SQE_ABSTAIN },
		{ 2, OPTINC_F32, OPTINC_SUM, 8, 0x10 },
		{ 2, OPTINC_F32, OPTINC_SUM, 8, 1U << 31 },
		{ 2, OPTINC_F32, OPTINC_VOTE, 8, 0 },
		{ 2, OPTINC_I8, OPTINC_VOTE, 8, 0 },
		{ 2, OPTINC_BIT, OPTINC_MEAN, 8, 0 },
		{ 2, OPTINC_BIT, OPTINC_SUM, 8, 0 },
		{ 2, OPTINC_BIT, OPTINC_VOTE, 8, OPTINC_SQE_ABSTAIN },
		{ 2, OPTINC_BIT, OPTINC_VOTE, 4, 0 },
		{ 2, OPTINC_U8, OPTINC_SUM, 8, 0 },
		{ 2, OPTINC_DTYPES, OPTINC_SUM, 8, 0 },
		{ 2, OPTINC_F32, OPTINC_REDOPS, 8, 0 },
	};
	uint32_t in = 0, out = 0xa5a5a5a5;
	const void *send[OPTINC_MAX_RANKS + 1];
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(send); i++)
		send[i] = &in;
	for (i = 0; i < ARRAY_SIZE(invalid); i++) {
		assert_int_equal(optinc_reference_allreduce(send, &out, invalid[i].nranks, 1,
							    invalid[i].dtype, invalid[i].redop,
							    invalid[i].bits, invalid[i].flags,
							    NULL), -EINVAL);
		assert_int_equal(out, 0xa5a5a5a5);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(documented_examples),
		cmocka_unit_test(exponent_is_the_maximum_over_ranks),
		cmocka_unit_test(exponent_is_the_blocks_own),
		cmocka_unit_test(parity_says_which_half_goes_up),
		cmocka_unit_test(codes_are_clipped),
		cmocka_unit_test(codes_round_half_to_even),
		cmocka_unit_test(nan_takes_the_block),
		cmocka_unit_test(zero_is_plus_zero),
		cmocka_unit_test(exponent_stops_at_minus_126),
		cmocka_unit_test(sums_overflow_to_infinity),
		cmocka_unit_test(f16_is_rounded_once),
		cmocka_unit_test(bf16_is_rounded_once),
		cmocka_unit_test(raw_codes),
		cmocka_unit_test(votes),
		cmocka_unit_test(nothing_is_reduced_to_nothing),
		cmocka_unit_test(unaligned_memory),
		cmocka_unit_test(lengths),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
