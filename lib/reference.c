// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The number format of Documentation/number-format.rst, computed plainly.
 *
 * This is what cards, emulators and tests are compared against, so it is
 * written to be read next to the document, not to be fast. It works on bit
 * patterns and integers alone: no floating-point instruction is executed, and
 * nothing depends on the caller's rounding mode, FTZ or DAZ.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <optinc/optinc.h>

#include "export.h"

#define STORED_ZERO		0	/* every element is +-0 on every rank */
#define STORED_NONFINITE	255	/* a NaN or an infinity on some rank */
#define STORED_BIAS		127
#define EXPONENT_MIN		(-126)

/**
 * struct float_format - an IEEE 754 binary interchange format, or bfloat16
 * @bytes: of one element
 * @fraction_bits: stored bits of the significand
 * @exponent_bits: bits of the biased exponent; the sign lies above them
 */
struct float_format {
	unsigned int bytes;
	unsigned int fraction_bits;
	unsigned int exponent_bits;
};

static const struct float_format format_f32 = { 4, 23, 8 };
static const struct float_format format_f16 = { 2, 10, 5 };
static const struct float_format format_bf16 = { 2, 7, 8 };

/**
 * struct number - a finite value, (negative ? -1 : 1) * significand * 2^exponent
 */
struct number {
	bool negative;
	uint32_t significand;
	int exponent;
};

/**
 * struct request - an all-reduce, arguments checked
 * @half: offset of the offset binary code, 2^(bits - 1); the largest code is
 *	one less
 * @parity: 0, or 1 with OPTINC_SQE_PARITY
 */
struct request {
	const void *const *send;
	void *recv;
	unsigned int nranks;
	size_t count;
	enum optinc_dtype dtype;
	enum optinc_redop redop;
	unsigned int bits;
	int32_t half;
	unsigned int parity;
	uint32_t nonfinite;
	uint32_t saturated;
};

/* NULL for a type that is not floating point. */
static const struct float_format *float_format(enum optinc_dtype dtype)
{
	switch (dtype) {
	case OPTINC_F32:
		return &format_f32;
	case OPTINC_F16:
		return &format_f16;
	case OPTINC_BF16:
		return &format_bf16;
	default:
		return NULL;
	}
}

/* Bytes of one element; 0 for bits and for what is no type. */
static size_t element_bytes(enum optinc_dtype dtype)
{
	switch (dtype) {
	case OPTINC_F32:
		return 4;
	case OPTINC_F16:
	case OPTINC_BF16:
	case OPTINC_I16:
		return 2;
	case OPTINC_I8:
	case OPTINC_U8:
		return 1;
	default:
		return 0;
	}
}

static bool combination_exists(enum optinc_dtype dtype, enum optinc_redop redop,
			       unsigned int flags)
{
	bool raw = dtype == OPTINC_I8 || dtype == OPTINC_I16;

	if (flags & ~(unsigned int)OPTINC_SQE_FLAGS)
		return false;
	if ((flags & OPTINC_SQE_EXPONENTS) && !raw)
		return false;

	switch (redop) {
	case OPTINC_MEAN:
	case OPTINC_SUM:
		if (flags & (OPTINC_SQE_SIGN | OPTINC_SQE_ABSTAIN))
			return false;
		return raw || float_format(dtype);
	case OPTINC_VOTE:
		if (flags & OPTINC_SQE_PARITY)
			return false;
		if ((flags & OPTINC_SQE_ABSTAIN) && !(flags & OPTINC_SQE_SIGN))
			return false;
		return dtype == OPTINC_BIT;
	default:
		return false;
	}
}

/* Zero, not a small wrong number, where the product has no size_t. */
static size_t array_bytes(size_t count, size_t each)
{
	return each && count <= SIZE_MAX / each ? count * each : 0;
}

static size_t packed_bytes(size_t count)
{
	return count / 8 + (count % 8 != 0);
}

OPTINC_EXPORT size_t optinc_data_bytes(size_t count, enum optinc_dtype dtype)
{
	if (dtype == OPTINC_BIT)
		return packed_bytes(count);
	return array_bytes(count, element_bytes(dtype));
}

OPTINC_EXPORT size_t optinc_result_bytes(size_t count, enum optinc_dtype dtype,
					 enum optinc_redop redop, unsigned int flags)
{
	if (!combination_exists(dtype, redop, flags))
		return 0;
	if (redop == OPTINC_VOTE) {
		bool packed = (flags & OPTINC_SQE_SIGN) && !(flags & OPTINC_SQE_ABSTAIN);

		return packed ? packed_bytes(count) : count;
	}
	if (redop == OPTINC_SUM && !float_format(dtype))
		return array_bytes(count, 2 * element_bytes(dtype));
	return array_bytes(count, element_bytes(dtype));
}

/* Elements may lie at any address: all access to user memory is by memcpy. */
static uint32_t load_pattern(const void *base, size_t index, unsigned int bytes)
{
	const unsigned char *p = (const unsigned char *)base + index * bytes;
	uint16_t half;
	uint32_t word;

	if (bytes == 2) {
		memcpy(&half, p, 2);
		return half;
	}
	memcpy(&word, p, 4);
	return word;
}

static void store_pattern(void *base, size_t index, unsigned int bytes, uint32_t pattern)
{
	unsigned char *p = (unsigned char *)base + index * bytes;
	uint16_t half = (uint16_t)pattern;

	if (bytes == 2)
		memcpy(p, &half, 2);
	else
		memcpy(p, &pattern, 4);
}

/* Bits up to and including the highest one that is set; 0 for 0. */
static int bit_length(uint32_t value)
{
	int length = 0;

	while (value) {
		value >>= 1;
		length++;
	}
	return length;
}

/* rint(value / 2^shift), half to even, whatever the processor's rounding mode is. */
static uint32_t shift_right_half_even(uint32_t value, int shift)
{
	uint32_t quotient, remainder, middle;

	/*
	 * Values have at most 24 bits: beyond 25 places, less than a half is
	 * left. The shifts below then stay within the word.
	 */
	if (shift > 25)
		return 0;
	if (shift == 0)
		return value;
	quotient = value >> shift;
	remainder = value & ((UINT32_C(1) << shift) - 1);
	middle = UINT32_C(1) << (shift - 1);
	if (remainder > middle || (remainder == middle && (quotient & 1)))
		quotient++;
	return quotient;
}

/* All ones: the biased exponent of NaN and the infinities. */
static uint32_t exponent_special(const struct float_format *format)
{
	return (UINT32_C(1) << format->exponent_bits) - 1;
}

/* Exponent of the last place of subnormal and of the smallest normal numbers. */
static int exponent_lowest(const struct float_format *format)
{
	int bias = (1 << (format->exponent_bits - 1)) - 1;

	return 1 - bias - (int)format->fraction_bits;
}

/* Returns false for NaN and the infinities. */
static bool unpack(const struct float_format *format, uint32_t pattern, struct number *x)
{
	uint32_t hidden = UINT32_C(1) << format->fraction_bits;
	uint32_t fraction = pattern & (hidden - 1);
	uint32_t biased = (pattern >> format->fraction_bits) & exponent_special(format);

	x->negative = pattern >> (format->fraction_bits + format->exponent_bits) & 1;
	if (biased == 0) {
		x->significand = fraction;
		x->exponent = exponent_lowest(format);
	} else {
		x->significand = hidden | fraction;
		x->exponent = exponent_lowest(format) + (int)biased - 1;
	}
	return biased != exponent_special(format);
}

/*
 * The format's pattern of @x, rounded once to nearest even. Beyond the largest
 * finite number comes infinity. Zero is +0, even where a negative @x vanishes:
 * a zero must not tell from which side it came.
 */
static uint32_t pack(const struct float_format *format, const struct number *x)
{
	uint32_t hidden = UINT32_C(1) << format->fraction_bits;
	uint32_t sign = UINT32_C(1) << (format->fraction_bits + format->exponent_bits);
	uint32_t significand, biased;
	int exponent, shift;

	/* Of the last place: gives a full significand, or a subnormal one. */
	exponent = x->exponent + bit_length(x->significand) - (int)format->fraction_bits - 1;
	if (exponent < exponent_lowest(format))
		exponent = exponent_lowest(format);

	shift = exponent - x->exponent;
	if (shift > 0)
		significand = shift_right_half_even(x->significand, shift);
	else
		significand = x->significand << -shift;
	if (significand == 2 * hidden) {
		significand = hidden;
		exponent++;
	}

	if (significand == 0)
		return 0;
	if (!x->negative)
		sign = 0;
	if (significand < hidden)
		return sign | significand;
	biased = (uint32_t)(exponent - exponent_lowest(format) + 1);
	if (biased >= exponent_special(format))
		return sign | exponent_special(format) << format->fraction_bits;
	return sign | biased << format->fraction_bits | (significand - hidden);
}

static uint32_t quiet_nan(const struct float_format *format)
{
	return exponent_special(format) << format->fraction_bits |
	       UINT32_C(1) << (format->fraction_bits - 1);
}

/* The byte that says how the elements from @first up to @end are scaled. */
static unsigned int stored_exponent(const struct request *req,
				    const struct float_format *format, size_t first, size_t end)
{
	bool zero = true;
	int largest = EXPONENT_MIN + (int)req->bits - 1;
	unsigned int rank;
	struct number x;
	int exponent;
	size_t i;

	for (rank = 0; rank < req->nranks; rank++) {
		for (i = first; i < end; i++) {
			uint32_t pattern = load_pattern(req->send[rank], i, format->bytes);

			if (!unpack(format, pattern, &x))
				return STORED_NONFINITE;
			if (x.significand == 0)
				continue;
			zero = false;
			/* frexp's: the value is below 2^exponent, not below half of it */
			exponent = x.exponent + bit_length(x.significand);
			if (exponent > largest)
				largest = exponent;
		}
	}
	if (zero)
		return STORED_ZERO;
	return (unsigned int)(largest - ((int)req->bits - 1) + STORED_BIAS);
}

/* rint(x / 2^e), half to even, clipped to +-(2^(bits - 1) - 1) */
static int32_t quantise(const struct request *req, const struct number *x, int e)
{
	int shift = e - x->exponent;
	int32_t code;

	/* Shifts to the left stay small: |x| < 2^(e + bits - 1). */
	if (shift >= 0)
		code = (int32_t)shift_right_half_even(x->significand, shift);
	else
		code = (int32_t)(x->significand << -shift);
	if (code > req->half - 1)
		code = req->half - 1;
	return x->negative ? -code : code;
}

/*
 * What the fabric does with the codes of one element: alternation, offset
 * binary, sum over the ranks, and back.
 */
static int32_t reduce(const struct request *req, size_t index, const int32_t *codes)
{
	bool negated = (index % 2 + req->parity) % 2;
	uint32_t nranks = req->nranks;
	uint32_t total = 0;
	unsigned int rank;
	int32_t code;

	for (rank = 0; rank < nranks; rank++)
		total += (uint32_t)((negated ? -codes[rank] : codes[rank]) + req->half);

	if (req->redop == OPTINC_MEAN)
		code = (int32_t)((total + nranks / 2) / nranks) - req->half;
	else
		code = (int32_t)total - (int32_t)nranks * req->half;
	return negated ? -code : code;
}

static void reduce_float_block(struct request *req, const struct float_format *format,
			       size_t first, size_t end)
{
	unsigned int stored = stored_exponent(req, format, first, end);
	int e = (int)stored - STORED_BIAS;
	int32_t codes[OPTINC_MAX_RANKS];
	unsigned int rank;
	struct number x;
	int32_t code;
	size_t i;

	if (stored == STORED_NONFINITE && req->nonfinite < UINT32_MAX)
		req->nonfinite++;

	for (i = first; i < end; i++) {
		if (stored == STORED_NONFINITE) {
			store_pattern(req->recv, i, format->bytes, quiet_nan(format));
			continue;
		}
		if (stored == STORED_ZERO) {
			store_pattern(req->recv, i, format->bytes, 0);
			continue;
		}
		for (rank = 0; rank < req->nranks; rank++) {
			unpack(format, load_pattern(req->send[rank], i, format->bytes), &x);
			codes[rank] = quantise(req, &x, e);
		}
		code = reduce(req, i, codes);
		x.negative = code < 0;
		x.significand = (uint32_t)(code < 0 ? -code : code);
		x.exponent = e;
		store_pattern(req->recv, i, format->bytes, pack(format, &x));
	}
}

/* A raw code; the one value without a counterpart of the other sign is saturated. */
static int32_t load_raw(struct request *req, unsigned int rank, size_t index)
{
	const unsigned char *base = req->send[rank];
	int32_t code;
	int16_t word;
	int8_t byte;

	if (req->dtype == OPTINC_I8) {
		memcpy(&byte, base + index, 1);
		code = byte;
	} else {
		memcpy(&word, base + 2 * index, 2);
		code = word;
	}
	if (code == -req->half) {
		code++;
		if (req->saturated < UINT32_MAX)
			req->saturated++;
	}
	return code;
}

static void reduce_raw(struct request *req, size_t index)
{
	unsigned char *base = req->recv;
	size_t bytes = element_bytes(req->dtype) * (req->redop == OPTINC_SUM ? 2 : 1);
	int32_t codes[OPTINC_MAX_RANKS];
	unsigned int rank;
	int32_t code;
	int16_t word;
	int8_t byte;

	for (rank = 0; rank < req->nranks; rank++)
		codes[rank] = load_raw(req, rank, index);
	code = reduce(req, index, codes);

	switch (bytes) {
	case 1:
		byte = (int8_t)code;
		memcpy(base + index, &byte, 1);
		break;
	case 2:
		word = (int16_t)code;
		memcpy(base + 2 * index, &word, 2);
		break;
	default:
		memcpy(base + 4 * index, &code, 4);
		break;
	}
}

/* A vote for is the digit 3, a vote against the digit 1: +1 and -1, offset by 2. */
static int vote_count(const struct request *req, size_t index)
{
	int total = 0;
	unsigned int rank;

	for (rank = 0; rank < req->nranks; rank++) {
		const unsigned char *votes = req->send[rank];

		total += votes[index / 8] >> (index % 8) & 1 ? 3 : 1;
	}
	return total - 2 * (int)req->nranks;
}

static void reduce_votes(const struct request *req, unsigned int flags)
{
	bool packed = (flags & OPTINC_SQE_SIGN) && !(flags & OPTINC_SQE_ABSTAIN);
	unsigned char *out = req->recv;
	size_t i;

	/* So that the bits after the last vote are zero. */
	if (packed && req->count)
		memset(out, 0, packed_bytes(req->count));

	for (i = 0; i < req->count; i++) {
		int count = vote_count(req, i);

		if (packed) {
			if (count >= 0)
				out[i / 8] |= (unsigned char)(1 << (i % 8));
			continue;
		}
		if (flags & OPTINC_SQE_ABSTAIN)
			count = (count > 0) - (count < 0);
		out[i] = (unsigned char)count;
	}
}

OPTINC_EXPORT int optinc_reference_allreduce(const void *const *send, void *recv,
					     unsigned int nranks, size_t count,
					     enum optinc_dtype dtype, enum optinc_redop redop,
					     unsigned int bits, unsigned int flags,
					     struct optinc_result *result)
{
	const struct float_format *format = float_format(dtype);
	struct request req = {
		.send = send,
		.recv = recv,
		.nranks = nranks,
		.count = count,
		.dtype = dtype,
		.redop = redop,
		.bits = bits,
		.parity = flags & OPTINC_SQE_PARITY ? 1 : 0,
	};
	size_t first, i;

	if (!combination_exists(dtype, redop, flags) || (flags & OPTINC_SQE_EXPONENTS))
		return -EINVAL;
	if (nranks < 2 || nranks > OPTINC_MAX_RANKS)
		return -EINVAL;
	if (bits != 8 && bits != 16)
		return -EINVAL;
	if ((dtype == OPTINC_I8 && bits != 8) || (dtype == OPTINC_I16 && bits != 16))
		return -EINVAL;
	req.half = (int32_t)1 << (bits - 1);

	if (redop == OPTINC_VOTE) {
		reduce_votes(&req, flags);
	} else if (format) {
		for (first = 0; first < count; first += OPTINC_BLOCK) {
			size_t left = count - first;

			reduce_float_block(&req, format, first,
					   first + (left < OPTINC_BLOCK ? left : OPTINC_BLOCK));
		}
	} else {
		for (i = 0; i < count; i++)
			reduce_raw(&req, i);
	}

	if (result) {
		memset(result, 0, sizeof(*result));
		result->peer = -1;
		result->nonfinite = req.nonfinite;
		result->saturated = req.saturated;
	}
	return 0;
}
