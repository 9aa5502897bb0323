// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The kernels in plain C, for any processor.
 *
 * Each block goes through a buffer of integers or floats that stays in the
 * first-level cache: read the elements, do the arithmetic, write the elements.
 * The loops are simple enough for the compiler to vectorise.
 */
#include "kernels_impl.h"

/* 1.5 * 2^23: added to a small float, leaves its nearest integer in the low bits. */
#define ROUND_MAGIC	12582912.0f

/* Arrays of the fabric are a multiple of this long, so loops over them can be. */
#define BATCH		64

/*
 * Half precision to single: the bits, moved, are the value times 2^-112, also
 * where they are subnormal. NaN and Inf do not come here.
 */
static ALWAYS_INLINE float f16_to_f32(uint16_t h)
{
	float magnitude = f32_from_bits((h & 0x7fffu) << 13) * 0x1p112f;

	return f32_from_bits(f32_bits(magnitude) | (h & 0x8000u) << 16);
}

/*
 * Half to even. Below 2^-14, adding 1/2 leaves multiples of 2^-24 in the low
 * bits. What rounds to zero is +0, whatever its sign was.
 */
static ALWAYS_INLINE uint16_t f32_to_f16(float f)
{
	uint32_t m = f32_bits(f) & 0x7fffffff;
	uint32_t sign = f32_bits(f) >> 16 & 0x8000;
	uint32_t subnormal = f32_bits(f32_from_bits(m) + 0.5f) - 0x3f000000;
	uint32_t normal = (m + 0xfff + (m >> 13 & 1) - (112u << 23)) >> 13;

	if (m >= 0x47800000)		/* 2^16, Inf */
		normal = 0x7c00;
	normal = m < 0x38800000 ? subnormal : normal;
	return normal ? sign | normal : 0;
}

static ALWAYS_INLINE uint16_t f32_to_bf16(float f)
{
	uint32_t u = f32_bits(f);

	return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

/* -v if @odd, by two's complement so that it stays one loop. */
static ALWAYS_INLINE int32_t negate_if(int32_t v, unsigned int odd)
{
	int32_t mask = -(int32_t)(odd & 1);

	return (v ^ mask) - mask;
}

static ALWAYS_INLINE uint32_t max_magnitude32(const float *src, size_t n)
{
	int32_t max = 0;

	for (size_t i = 0; i < n; i++) {
		int32_t m = f32_bits(src[i]) & 0x7fffffff;

		max = m > max ? m : max;
	}
	return max;
}

static ALWAYS_INLINE uint32_t max_magnitude16(const uint16_t *src, size_t n)
{
	int16_t max = 0;

	for (size_t i = 0; i < n; i++) {
		int16_t m = src[i] & 0x7fff;

		max = m > max ? m : max;
	}
	return max;
}

static ALWAYS_INLINE uint32_t max_magnitude(const void *src, size_t at, size_t n,
					    enum optinc_dtype dtype)
{
	if (dtype == OPTINC_F32)
		return max_magnitude32((const float *)src + at, n);
	return max_magnitude16((const uint16_t *)src + at, n);
}

static void c_exponents(uint8_t *exp, const void *src, size_t n, enum optinc_dtype dtype,
			unsigned int bits)
{
	for (size_t at = 0; at < n; at += OPTINC_BLOCK, exp++) {
		size_t len = block_len(n, at);
		uint32_t max = len == OPTINC_BLOCK ? max_magnitude(src, at, OPTINC_BLOCK, dtype) :
						     max_magnitude(src, at, len, dtype);

		*exp = dtype == OPTINC_F32 ? exp_of_f32(max, bits) : exp_of_16(max, dtype, bits);
	}
}

static ALWAYS_INLINE void load_floats(float *x, const void *src, size_t at, size_t n,
				      enum optinc_dtype dtype)
{
	const uint16_t *src16 = (const uint16_t *)src + at;

	if (dtype == OPTINC_F32)
		memcpy(x, (const float *)src + at, n * sizeof(*x));
	else if (dtype == OPTINC_F16)
		for (size_t i = 0; i < n; i++)
			x[i] = f16_to_f32(src16[i]);
	else
		for (size_t i = 0; i < n; i++)
			x[i] = f32_from_bits((uint32_t)src16[i] << 16);
}

static ALWAYS_INLINE void quantise(int32_t *q, const float *x, size_t n, float scale, float limit)
{
	for (size_t i = 0; i < n; i++) {
		float y = x[i] * scale;

		y = y < limit ? y : limit;
		y = y > -limit ? y : -limit;
		q[i] = (int32_t)(f32_bits(y + ROUND_MAGIC) - f32_bits(ROUND_MAGIC));
	}
}

static ALWAYS_INLINE void store_codes(void *codes, size_t at, const int32_t *q, size_t n,
				      unsigned int bits, unsigned int parity)
{
	uint8_t *codes8 = (uint8_t *)codes + at;
	uint16_t *codes16 = (uint16_t *)codes + at;

	if (bits == 8)
		for (size_t i = 0; i < n; i++)
			codes8[i] = negate_if(q[i], i + parity) + 0x80;
	else
		for (size_t i = 0; i < n; i++)
			codes16[i] = negate_if(q[i], i + parity) + 0x8000;
}

static void encode_floats(void *codes, const void *src, const uint8_t *exp, size_t n,
			  enum optinc_dtype dtype, unsigned int bits, unsigned int parity)
{
	float limit = (1 << (bits - 1)) - 1;
	int32_t q[OPTINC_BLOCK];
	float x[OPTINC_BLOCK];

	for (size_t at = 0; at < n; at += OPTINC_BLOCK, exp++) {
		size_t len = block_len(n, at);

		if (!exp_is_scale(*exp)) {
			fill_zero_codes((uint8_t *)codes + at * bits / 8, len, bits);
			continue;
		}
		load_floats(x, src, at, len, dtype);
		if (len < OPTINC_BLOCK) {
			quantise(q, x, len, encode_scale(*exp), limit);
			store_codes(codes, at, q, len, bits, parity);
		} else {
			quantise(q, x, OPTINC_BLOCK, encode_scale(*exp), limit);
			store_codes(codes, at, q, OPTINC_BLOCK, bits, parity);
		}
	}
}

static uint32_t encode_integers(void *codes, const void *src, size_t n, unsigned int bits,
				unsigned int parity)
{
	int32_t limit = (1 << (bits - 1)) - 1;
	int32_t q[OPTINC_BLOCK];
	uint32_t saturated = 0;

	for (size_t at = 0; at < n; at += OPTINC_BLOCK) {
		size_t len = block_len(n, at);

		for (size_t i = 0; i < len; i++) {
			q[i] = bits == 8 ? ((const int8_t *)src)[at + i] :
					   ((const int16_t *)src)[at + i];
			saturated += q[i] < -limit;
			q[i] = q[i] < -limit ? -limit : q[i];
		}
		store_codes(codes, at, q, len, bits, parity);
	}
	return saturated;
}

static uint32_t c_encode(void *codes, const void *src, const uint8_t *exp, size_t n,
			 enum optinc_dtype dtype, unsigned int bits, unsigned int parity)
{
	fpenv env;

	if (!is_float(dtype))
		return encode_integers(codes, src, n, bits, parity);
	env = fpenv_enter();
	encode_floats(codes, src, exp, n, dtype, bits, parity);
	fpenv_leave(env);
	return 0;
}

static ALWAYS_INLINE void add_codes(uint32_t *total, const void *codes, size_t at,
				    unsigned int bits)
{
	const uint8_t *codes8 = (const uint8_t *)codes + at;
	const uint16_t *codes16 = (const uint16_t *)codes + at;

	if (bits == 8)
		for (size_t i = 0; i < BATCH; i++)
			total[i] += codes8[i];
	else
		for (size_t i = 0; i < BATCH; i++)
			total[i] += codes16[i];
}

static ALWAYS_INLINE void divide(uint32_t *total, unsigned int nranks, uint64_t reciprocal)
{
	for (size_t i = 0; i < BATCH; i++)
		total[i] = (total[i] + nranks / 2) * reciprocal >> 32;
}

static ALWAYS_INLINE void store_results(void *out, size_t at, const uint32_t *total,
					unsigned int width)
{
	uint8_t *out8 = (uint8_t *)out + at;
	uint16_t *out16 = (uint16_t *)out + at;

	if (width == 1)
		for (size_t i = 0; i < BATCH; i++)
			out8[i] = total[i];
	else if (width == 2)
		for (size_t i = 0; i < BATCH; i++)
			out16[i] = total[i];
	else
		memcpy((uint32_t *)out + at, total, BATCH * sizeof(*total));
}

static void c_reduce(void *out, const void *const *codes, unsigned int nranks, size_t n,
		     unsigned int bits, enum optinc_redop redop)
{
	uint64_t reciprocal = mean_reciprocal32(nranks);

	for (size_t at = 0; at < n; at += BATCH) {
		uint32_t total[BATCH] = { 0 };

		for (unsigned int rank = 0; rank < nranks; rank++)
			add_codes(total, codes[rank], at, bits);
		if (redop == OPTINC_MEAN)
			divide(total, nranks, reciprocal);
		store_results(out, at, total, result_width(bits, redop));
	}
}

static ALWAYS_INLINE void load_results(int32_t *v, const void *reduced, size_t at, size_t n,
				       unsigned int width, uint32_t zero, unsigned int parity)
{
	const uint8_t *r8 = (const uint8_t *)reduced + at;
	const uint16_t *r16 = (const uint16_t *)reduced + at;
	const uint32_t *r32 = (const uint32_t *)reduced + at;

	if (width == 1)
		for (size_t i = 0; i < n; i++)
			v[i] = negate_if((int32_t)(r8[i] - zero), i + parity);
	else if (width == 2)
		for (size_t i = 0; i < n; i++)
			v[i] = negate_if((int32_t)(r16[i] - zero), i + parity);
	else
		for (size_t i = 0; i < n; i++)
			v[i] = negate_if((int32_t)(r32[i] - zero), i + parity);
}

static ALWAYS_INLINE void store_floats(void *dst, size_t at, const int32_t *v, size_t n,
				       enum optinc_dtype dtype, float scale)
{
	uint16_t *dst16 = (uint16_t *)dst + at;
	float *dst32 = (float *)dst + at;

	if (dtype == OPTINC_F32)
		for (size_t i = 0; i < n; i++)
			dst32[i] = (float)v[i] * scale;
	else if (dtype == OPTINC_F16)
		for (size_t i = 0; i < n; i++)
			dst16[i] = f32_to_f16((float)v[i] * scale);
	else
		for (size_t i = 0; i < n; i++)
			dst16[i] = f32_to_bf16((float)v[i] * scale);
}

static ALWAYS_INLINE void store_integers(void *dst, size_t at, const int32_t *v, size_t n,
					 unsigned int width)
{
	if (width == 1)
		for (size_t i = 0; i < n; i++)
			((int8_t *)dst)[at + i] = v[i];
	else if (width == 2)
		for (size_t i = 0; i < n; i++)
			((int16_t *)dst)[at + i] = v[i];
	else
		memcpy((int32_t *)dst + at, v, n * sizeof(*v));
}

/* Elements [at, at + len) of floats with the exponent @s, or of integers. */
static ALWAYS_INLINE void decode_block(void *dst, const void *reduced, size_t at, size_t len,
				       enum optinc_dtype dtype, unsigned int width, uint32_t zero,
				       unsigned int parity, uint8_t s)
{
	int32_t v[OPTINC_BLOCK];

	load_results(v, reduced, at, len, width, zero, parity);
	if (is_float(dtype))
		store_floats(dst, at, v, len, dtype, decode_scale(s));
	else
		store_integers(dst, at, v, len, width);
}

static void c_decode(void *dst, const void *reduced, const uint8_t *exp, size_t n,
		     enum optinc_dtype dtype, unsigned int bits, enum optinc_redop redop,
		     unsigned int nranks, unsigned int parity, bool stream)
{
	unsigned int size = dtype == OPTINC_F32 ? 4 : 2;
	unsigned int width = result_width(bits, redop);
	uint32_t zero = result_zero(bits, redop, nranks);
	fpenv env = fpenv_enter();

	(void)stream;
	for (size_t at = 0; at < n; at += OPTINC_BLOCK) {
		uint8_t s = is_float(dtype) ? exp[at / OPTINC_BLOCK] : 0;
		size_t len = block_len(n, at);

		if (is_float(dtype) && !exp_is_scale(s))
			fill_result((uint8_t *)dst + at * size, len, dtype, s);
		else if (len == OPTINC_BLOCK)
			decode_block(dst, reduced, at, OPTINC_BLOCK, dtype, width, zero, parity, s);
		else
			decode_block(dst, reduced, at, len, dtype, width, zero, parity, s);
	}
	fpenv_leave(env);
}

static void c_max_bytes(uint8_t *dst, const uint8_t *src, size_t n)
{
	for (size_t i = 0; i < n; i++)
		dst[i] = dst[i] > src[i] ? dst[i] : src[i];
}

const struct fabric_kernels fabric_kernels_c = {
	.name		= "c",
	.exponents	= c_exponents,
	.encode		= c_encode,
	.reduce		= c_reduce,
	.decode		= c_decode,
	.max_bytes	= c_max_bytes,
};
