// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The kernels for AVX-512 (F, BW, VL, DQ): as those for AVX2, twice as wide,
 * with masks for what does not fill a vector.
 *
 * Nearly every instruction that could round names its rounding and suppresses
 * exceptions, so neither the modes nor the flags of MXCSR are involved, which
 * takes longer to read than a short request takes to encode. Guarded are only
 * subnormal elements, because of DAZ, and the narrowing to half precision,
 * whose intrinsic does not suppress exceptions.
 */
#include "kernels_impl.h"

#ifdef FABRIC_X86

#define TARGET	__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")))
#define INLINE	static ALWAYS_INLINE TARGET

#define RNE	(_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

INLINE __m256i load256(const void *p)
{
	return _mm256_loadu_si256(p);
}

INLINE __m512i load512(const void *p)
{
	return _mm512_loadu_si512(p);
}

INLINE void store512(void *p, __m512i v)
{
	_mm512_storeu_si512(p, v);
}

/* One bit for each of the elements from @i to @n, at most @lanes (below 64). */
INLINE uint64_t lanes_mask(size_t i, size_t n, unsigned int lanes)
{
	size_t left = n > i ? n - i : 0;

	return (1ull << (left < lanes ? left : lanes)) - 1;
}

INLINE uint32_t max_lanes16(__m256i v)
{
	__m128i m = _mm_max_epu16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
	__m128i ones = _mm_set1_epi16(-1);

	return 0xffff ^ (_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(m, ones))) & 0xffff);
}

INLINE __m256i max_magnitudes32(__m256i max, __m256i v)
{
	return _mm256_max_epu32(max, _mm256_and_si256(v, _mm256_set1_epi32(0x7fffffff)));
}

INLINE __m256i max_magnitudes16(__m256i max, __m256i v)
{
	return _mm256_max_epu16(max, _mm256_and_si256(v, _mm256_set1_epi16(0x7fff)));
}

/*
 * Exponents touch the user's memory first, and memory is read 5 to 10 % faster
 * by loads of half a cache line than by loads of a whole one.
 */
TARGET static uint32_t max_magnitude32(const float *src, size_t n)
{
	__m256i m0 = _mm256_setzero_si256(), m1 = m0, m2 = m0, m3 = m0;
	size_t i;

	for (i = 0; i + 32 <= n; i += 32) {
		m0 = max_magnitudes32(m0, load256(src + i));
		m1 = max_magnitudes32(m1, load256(src + i + 8));
		m2 = max_magnitudes32(m2, load256(src + i + 16));
		m3 = max_magnitudes32(m3, load256(src + i + 24));
	}
	for (; i < n; i += 8)
		m0 = max_magnitudes32(m0,
				      _mm256_maskz_loadu_epi32(lanes_mask(i, n, 8), src + i));
	m0 = _mm256_max_epu32(_mm256_max_epu32(m0, m1), _mm256_max_epu32(m2, m3));
	return _mm512_reduce_max_epu32(_mm512_zextsi256_si512(m0));
}

TARGET static uint32_t max_magnitude16(const uint16_t *src, size_t n)
{
	__m256i m0 = _mm256_setzero_si256(), m1 = m0;
	size_t i;

	for (i = 0; i + 32 <= n; i += 32) {
		m0 = max_magnitudes16(m0, load256(src + i));
		m1 = max_magnitudes16(m1, load256(src + i + 16));
	}
	for (; i < n; i += 16)
		m0 = max_magnitudes16(m0,
				      _mm256_maskz_loadu_epi16(lanes_mask(i, n, 16), src + i));
	return max_lanes16(_mm256_max_epu16(m0, m1));
}

TARGET static void avx512_exponents(uint8_t *exp, const void *src, size_t n,
				    enum optinc_dtype dtype, unsigned int bits)
{
	const uint16_t *src16 = src;
	const float *src32 = src;

	for (size_t at = 0; at < n; at += OPTINC_BLOCK, exp++) {
		size_t len = block_len(n, at);

		if (dtype == OPTINC_F32)
			*exp = exp_of_f32(max_magnitude32(src32 + at, len), bits);
		else
			*exp = exp_of_16(max_magnitude16(src16 + at, len), dtype, bits);
	}
}

/* +scale at the elements that are sent as they are, -scale at the others */
INLINE __m512 alternate(float scale, unsigned int parity)
{
	__m512i sign = _mm512_set1_epi64(parity & 1 ? 0x80000000ull : 0x80000000ull << 32);

	return _mm512_xor_ps(_mm512_set1_ps(scale), _mm512_castsi512_ps(sign));
}

INLINE __m512 widen_floats(__m256i v, enum optinc_dtype dtype)
{
	if (dtype == OPTINC_F16)
		return _mm512_cvt_roundph_ps(v, _MM_FROUND_NO_EXC);
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

INLINE __m512 load_floats(const void *src, size_t i, enum optinc_dtype dtype)
{
	if (dtype == OPTINC_F32)
		return _mm512_loadu_ps((const float *)src + i);
	return widen_floats(_mm256_loadu_si256((const void *)((const uint16_t *)src + i)), dtype);
}

/* Elements from @i to @n, at most sixteen; zeros for the rest. */
INLINE __m512 load_some_floats(const void *src, size_t i, size_t n, enum optinc_dtype dtype)
{
	__mmask16 mask = lanes_mask(i, n, 16);

	if (dtype == OPTINC_F32)
		return _mm512_maskz_loadu_ps(mask, (const float *)src + i);
	return widen_floats(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)src + i), dtype);
}

INLINE __m512i quantise(__m512 x, __m512 scale)
{
	return _mm512_cvt_roundps_epi32(_mm512_mul_round_ps(x, scale, RNE), RNE);
}

/* Only a rounding up to the power of two, or down to its negative, is clipped. */
INLINE void store_codes8(uint8_t *codes, __m512i q0, __m512i q1, __m512i q2, __m512i q3)
{
	const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11,
						15);
	__m512i q = _mm512_packs_epi16(_mm512_packs_epi32(q0, q1), _mm512_packs_epi32(q2, q3));

	q = _mm512_max_epi8(q, _mm512_set1_epi8(-127));
	q = _mm512_xor_si512(q, _mm512_set1_epi8(-128));
	store512(codes, _mm512_permutexvar_epi32(order, q));
}

INLINE void store_codes16(uint16_t *codes, __m512i q0, __m512i q1)
{
	const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
	__m512i q = _mm512_packs_epi32(q0, q1);

	q = _mm512_max_epi16(q, _mm512_set1_epi16(-32767));
	q = _mm512_xor_si512(q, _mm512_set1_epi16(-32768));
	store512(codes, _mm512_permutexvar_epi64(order, q));
}

INLINE void store_codes(void *codes, size_t i, __m512i q0, __m512i q1, __m512i q2, __m512i q3,
			unsigned int bits)
{
	if (bits == 8) {
		store_codes8((uint8_t *)codes + i, q0, q1, q2, q3);
	} else {
		store_codes16((uint16_t *)codes + i, q0, q1);
		store_codes16((uint16_t *)codes + i + 32, q2, q3);
	}
}

/* Elements [at, n), at most a block. */
INLINE void encode_block(void *codes, const void *src, size_t at, size_t n, __m512 scale,
			 enum optinc_dtype dtype, unsigned int bits)
{
	size_t i;

	for (i = at; i + 64 <= n; i += 64)
		store_codes(codes, i, quantise(load_floats(src, i, dtype), scale),
			    quantise(load_floats(src, i + 16, dtype), scale),
			    quantise(load_floats(src, i + 32, dtype), scale),
			    quantise(load_floats(src, i + 48, dtype), scale), bits);
	if (i < n)
		store_codes(codes, i, quantise(load_some_floats(src, i, n, dtype), scale),
			    quantise(load_some_floats(src, i + 16, n, dtype), scale),
			    quantise(load_some_floats(src, i + 32, n, dtype), scale),
			    quantise(load_some_floats(src, i + 48, n, dtype), scale), bits);
}

/*
 * A subnormal element, below 2^-126, counts only beside the smallest scale: with
 * the next larger one it is less than a half.
 */
INLINE void encode_small_block(void *codes, const void *src, size_t at, size_t n, __m512 scale,
			       enum optinc_dtype dtype, unsigned int bits)
{
	fpenv env = fpenv_enter();

	encode_block(codes, src, at, n, scale, dtype, bits);
	fpenv_leave(env);
}

INLINE void encode_floats(void *codes, const void *src, const uint8_t *exp, size_t n,
			  enum optinc_dtype dtype, unsigned int bits, unsigned int parity)
{
	for (size_t at = 0; at < n; at += OPTINC_BLOCK, exp++) {
		__m512 scale = alternate(encode_scale(*exp), parity);
		size_t len = block_len(n, at);

		if (!exp_is_scale(*exp))
			fill_zero_codes((uint8_t *)codes + at * bits / 8, len, bits);
		else if (*exp == FABRIC_EXP_SMALLEST && dtype != OPTINC_F16)
			encode_small_block(codes, src, at, at + len, scale, dtype, bits);
		else
			encode_block(codes, src, at, at + len, scale, dtype, bits);
	}
}

TARGET static uint32_t encode_i8(uint8_t *codes, const int8_t *src, size_t n, unsigned int parity)
{
	const __m512i lowest = _mm512_set1_epi8(-128);
	const __mmask64 odd = 0xaaaaaaaaaaaaaaaaull >> (parity & 1);
	uint32_t saturated = 0;

	for (size_t i = 0; i < n; i += 64) {
		__mmask64 mask = n - i < 64 ? lanes_mask(i, n, 63) : ~0ull;
		__m512i v = _mm512_maskz_loadu_epi8(mask, src + i);

		saturated += __builtin_popcountll(_mm512_cmpeq_epi8_mask(v, lowest));
		v = _mm512_max_epi8(v, _mm512_set1_epi8(-127));
		v = _mm512_mask_sub_epi8(v, odd, _mm512_setzero_si512(), v);
		store512(codes + i, _mm512_xor_si512(v, lowest));
	}
	return saturated;
}

TARGET static uint32_t encode_i16(uint16_t *codes, const int16_t *src, size_t n,
				  unsigned int parity)
{
	const __m512i lowest = _mm512_set1_epi16(-32768);
	const __mmask32 odd = 0xaaaaaaaau >> (parity & 1);
	uint32_t saturated = 0;

	for (size_t i = 0; i < n; i += 32) {
		__m512i v = _mm512_maskz_loadu_epi16(lanes_mask(i, n, 32), src + i);

		saturated += __builtin_popcount(_mm512_cmpeq_epi16_mask(v, lowest));
		v = _mm512_max_epi16(v, _mm512_set1_epi16(-32767));
		v = _mm512_mask_sub_epi16(v, odd, _mm512_setzero_si512(), v);
		store512(codes + i, _mm512_xor_si512(v, lowest));
	}
	return saturated;
}

#define ENCODE(dtype, bits) \
	encode_floats(codes, src, exp, n, dtype, bits, parity)

TARGET static void encode_any_floats(void *codes, const void *src, const uint8_t *exp, size_t n,
				     enum optinc_dtype dtype, unsigned int bits,
				     unsigned int parity)
{
	if (dtype == OPTINC_F32)
		return bits == 8 ? ENCODE(OPTINC_F32, 8) : ENCODE(OPTINC_F32, 16);
	if (dtype == OPTINC_F16)
		return bits == 8 ? ENCODE(OPTINC_F16, 8) : ENCODE(OPTINC_F16, 16);
	return bits == 8 ? ENCODE(OPTINC_BF16, 8) : ENCODE(OPTINC_BF16, 16);
}

static uint32_t avx512_encode(void *codes, const void *src, const uint8_t *exp, size_t n,
			      enum optinc_dtype dtype, unsigned int bits, unsigned int parity)
{
	if (dtype == OPTINC_I8)
		return encode_i8(codes, src, n, parity);
	if (dtype == OPTINC_I16)
		return encode_i16(codes, src, n, parity);
	encode_any_floats(codes, src, exp, n, dtype, bits, parity);
	return 0;
}

INLINE __m512i average(__m512i a, __m512i b, unsigned int bits)
{
	return bits == 8 ? _mm512_avg_epu8(a, b) : _mm512_avg_epu16(a, b);
}

/*
 * With ab = (a + b + r) / 2 and cd = (c + d + s) / 2, the average of the two is
 * floor((T + r + s + 2) / 4): one more than floor((T + 2) / 4) just where r or
 * s is 1 and ab + cd is odd.
 */
INLINE __m512i mean_of_4(__m512i a, __m512i b, __m512i c, __m512i d, unsigned int bits)
{
	__m512i one = bits == 8 ? _mm512_set1_epi8(1) : _mm512_set1_epi16(1);
	__m512i ab = average(a, b, bits), cd = average(c, d, bits);
	__m512i rounded = _mm512_or_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d));
	__m512i extra = _mm512_and_si512(_mm512_and_si512(rounded, _mm512_xor_si512(ab, cd)), one);

	return bits == 8 ? _mm512_sub_epi8(average(ab, cd, bits), extra) :
			   _mm512_sub_epi16(average(ab, cd, bits), extra);
}

INLINE void reduce_mean_2(void *out, const void *const *codes, size_t bytes, unsigned int bits)
{
	const uint8_t *a = codes[0], *b = codes[1];

	for (size_t i = 0; i < bytes; i += 64)
		store512((uint8_t *)out + i, average(load512(a + i), load512(b + i), bits));
}

INLINE void reduce_mean_4(void *out, const void *const *codes, size_t bytes, unsigned int bits)
{
	const uint8_t *a = codes[0], *b = codes[1], *c = codes[2], *d = codes[3];

	for (size_t i = 0; i < bytes; i += 64)
		store512((uint8_t *)out + i, mean_of_4(load512(a + i), load512(b + i),
						       load512(c + i), load512(d + i), bits));
}

/* T + floor(N / 2) of the even and of the odd bytes: the sum of all words, less the odd ones. */
TARGET static void reduce_mean8(uint8_t *out, const void *const *codes, unsigned int nranks,
				size_t bytes)
{
	const __m512i half = _mm512_set1_epi16(nranks / 2);
	const __m512i reciprocal = _mm512_set1_epi16(mean_reciprocal16(nranks));

	for (size_t i = 0; i < bytes; i += 64) {
		__m512i all = half, odd = half, even;

		for (unsigned int rank = 0; rank < nranks; rank++) {
			__m512i v = load512((const uint8_t *)codes[rank] + i);

			all = _mm512_add_epi16(all, v);
			odd = _mm512_add_epi16(odd, _mm512_srli_epi16(v, 8));
		}
		even = _mm512_sub_epi16(odd, half);
		even = _mm512_sub_epi16(all, _mm512_slli_epi16(even, 8));
		even = _mm512_mulhi_epu16(even, reciprocal);
		odd = _mm512_mulhi_epu16(odd, reciprocal);
		store512(out + i, _mm512_or_si512(even, _mm512_slli_epi16(odd, 8)));
	}
}

/* The high halves of sixteen products. */
INLINE __m512i mulhi32(__m512i a, __m512i b)
{
	__m512i even = _mm512_srli_epi64(_mm512_mul_epu32(a, b), 32);
	__m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);

	return _mm512_mask_blend_epi32(0xaaaa, even, odd);
}

TARGET static void reduce_mean16(uint8_t *out, const void *const *codes, unsigned int nranks,
				 size_t bytes)
{
	const __m512i half = _mm512_set1_epi32(nranks / 2);
	const __m512i reciprocal = _mm512_set1_epi32(mean_reciprocal32(nranks));

	for (size_t i = 0; i < bytes; i += 64) {
		__m512i all = half, odd = half, even;

		for (unsigned int rank = 0; rank < nranks; rank++) {
			__m512i v = load512((const uint8_t *)codes[rank] + i);

			all = _mm512_add_epi32(all, v);
			odd = _mm512_add_epi32(odd, _mm512_srli_epi32(v, 16));
		}
		even = _mm512_sub_epi32(odd, half);
		even = _mm512_sub_epi32(all, _mm512_slli_epi32(even, 16));
		even = mulhi32(even, reciprocal);
		odd = mulhi32(odd, reciprocal);
		store512(out + i, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
	}
}

INLINE void reduce_sum(uint8_t *out, const void *const *codes, unsigned int nranks, size_t bytes,
		       unsigned int bits)
{
	for (size_t i = 0; i < bytes; i += 64) {
		__m512i low = _mm512_setzero_si512(), high = low;

		for (unsigned int rank = 0; rank < nranks; rank++) {
			const __m256i *v = (const void *)((const uint8_t *)codes[rank] + i);

			if (bits == 8) {
				low = _mm512_add_epi16(low, _mm512_cvtepu8_epi16(v[0]));
				high = _mm512_add_epi16(high, _mm512_cvtepu8_epi16(v[1]));
			} else {
				low = _mm512_add_epi32(low, _mm512_cvtepu16_epi32(v[0]));
				high = _mm512_add_epi32(high, _mm512_cvtepu16_epi32(v[1]));
			}
		}
		store512(out + 2 * i, low);
		store512(out + 2 * i + 64, high);
	}
}

TARGET static void avx512_reduce(void *out, const void *const *codes, unsigned int nranks,
				 size_t n, unsigned int bits, enum optinc_redop redop)
{
	size_t bytes = n * bits / 8;

	if (redop == OPTINC_SUM)
		bits == 8 ? reduce_sum(out, codes, nranks, bytes, 8) :
			    reduce_sum(out, codes, nranks, bytes, 16);
	else if (nranks == 2)
		bits == 8 ? reduce_mean_2(out, codes, bytes, 8) :
			    reduce_mean_2(out, codes, bytes, 16);
	else if (nranks == 4)
		bits == 8 ? reduce_mean_4(out, codes, bytes, 8) :
			    reduce_mean_4(out, codes, bytes, 16);
	else if (bits == 8)
		reduce_mean8(out, codes, nranks, bytes);
	else
		reduce_mean16(out, codes, nranks, bytes);
}

/* Sixteen results as integers: the bytes, words or long words at @i, less @zero. */
INLINE __m512i load_results(const void *reduced, size_t i, unsigned int width, __m512i zero)
{
	const void *p = (const uint8_t *)reduced + i * width;
	__m512i v;

	if (width == 1)
		v = _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
	else if (width == 2)
		v = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
	else
		v = load512(p);
	return _mm512_sub_epi32(v, zero);
}

/* Exact, or infinite; adding +0 to the product makes -0 into +0. */
INLINE __m512 dequantise(__m512i v, __m512 scale)
{
	return _mm512_fmadd_round_ps(_mm512_cvt_roundepi32_ps(v, RNE), scale,
				     _mm512_setzero_ps(), RNE);
}

/* A half precision value that rounds to zero is +0, whatever its sign was. */
INLINE __m256i narrow_to_f16(__m512 x)
{
	__m256i h = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);

	return _mm256_maskz_mov_epi16(_mm256_cmpneq_epi16_mask(h, _mm256_set1_epi16(-32768)), h);
}

/* A byte is exact in the eight bits of bfloat16; more is rounded half to even. */
INLINE __m256i narrow_floats(__m512 x, enum optinc_dtype dtype, unsigned int width)
{
	__m512i u = _mm512_castps_si512(x), odd;

	if (dtype == OPTINC_F16)
		return narrow_to_f16(x);
	if (width > 1) {
		odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
		u = _mm512_add_epi32(_mm512_add_epi32(u, odd), _mm512_set1_epi32(0x7fff));
	}
	return _mm512_cvtepi32_epi16(_mm512_srli_epi32(u, 16));
}

INLINE void store_some_floats(void *dst, size_t i, __m512 x, enum optinc_dtype dtype,
			      unsigned int width, __mmask16 mask)
{
	if (dtype == OPTINC_F32)
		_mm512_mask_storeu_ps((float *)dst + i, mask, x);
	else
		_mm256_mask_storeu_epi16((uint16_t *)dst + i, mask, narrow_floats(x, dtype, width));
}

INLINE void store_floats(void *dst, size_t i, __m512 x, enum optinc_dtype dtype,
			 unsigned int width, bool stream)
{
	if (dtype != OPTINC_F32)
		_mm256_storeu_si256((void *)((uint16_t *)dst + i), narrow_floats(x, dtype, width));
	else if (stream)
		_mm512_stream_ps((float *)dst + i, x);
	else
		_mm512_storeu_ps((float *)dst + i, x);
}

/* At most a block. */
INLINE void decode_block(void *dst, const void *reduced, size_t n, float scale,
			 enum optinc_dtype dtype, unsigned int width, uint32_t offset,
			 unsigned int parity, bool stream)
{
	const __m512 scales = alternate(scale, parity);
	const __m512i zero = _mm512_set1_epi32(offset);
	size_t i;

	for (i = 0; i + 16 <= n; i += 16)
		store_floats(dst, i, dequantise(load_results(reduced, i, width, zero), scales),
			     dtype, width, stream);
	if (i < n)
		store_some_floats(dst, i,
				  dequantise(load_results(reduced, i, width, zero), scales),
				  dtype, width, lanes_mask(i, n, 16));
}

INLINE void stream_lines(float *dst, const float *src, size_t n)
{
	for (size_t i = 0; i < n; i += 16)
		_mm512_stream_ps(dst + i, _mm512_load_ps(src + i));
}

#include "kernels_decode.h"

static void decode_f16(void *dst, const void *reduced, const uint8_t *exp, size_t n,
		       unsigned int width, uint32_t offset, unsigned int parity)
{
	fpenv env = fpenv_enter();

	decode_any_width(dst, reduced, exp, n, OPTINC_F16, width, offset, parity, false);
	fpenv_leave(env);
}

TARGET static void decode_raw8(int8_t *dst, const uint8_t *reduced, size_t n, uint32_t offset,
			       unsigned int parity)
{
	const __mmask64 odd = 0xaaaaaaaaaaaaaaaaull >> (parity & 1);

	for (size_t i = 0; i < n; i += 64) {
		__mmask64 mask = n - i < 64 ? lanes_mask(i, n, 63) : ~0ull;
		__m512i v = _mm512_sub_epi8(load512(reduced + i), _mm512_set1_epi8(offset));

		v = _mm512_mask_sub_epi8(v, odd, _mm512_setzero_si512(), v);
		_mm512_mask_storeu_epi8(dst + i, mask, v);
	}
}

TARGET static void decode_raw16(int16_t *dst, const uint16_t *reduced, size_t n, uint32_t offset,
				unsigned int parity)
{
	const __mmask32 odd = 0xaaaaaaaau >> (parity & 1);

	for (size_t i = 0; i < n; i += 32) {
		__m512i v = _mm512_sub_epi16(load512(reduced + i), _mm512_set1_epi16(offset));

		v = _mm512_mask_sub_epi16(v, odd, _mm512_setzero_si512(), v);
		_mm512_mask_storeu_epi16(dst + i, lanes_mask(i, n, 32), v);
	}
}

TARGET static void decode_raw32(int32_t *dst, const uint32_t *reduced, size_t n, uint32_t offset,
				unsigned int parity)
{
	const __mmask16 odd = 0xaaaau >> (parity & 1);

	for (size_t i = 0; i < n; i += 16) {
		__m512i v = _mm512_sub_epi32(load512(reduced + i), _mm512_set1_epi32(offset));

		v = _mm512_mask_sub_epi32(v, odd, _mm512_setzero_si512(), v);
		_mm512_mask_storeu_epi32(dst + i, lanes_mask(i, n, 16), v);
	}
}

static void avx512_decode(void *dst, const void *reduced, const uint8_t *exp, size_t n,
			  enum optinc_dtype dtype, unsigned int bits, enum optinc_redop redop,
			  unsigned int nranks, unsigned int parity, bool stream)
{
	uint32_t offset = result_zero(bits, redop, nranks);
	unsigned int width = result_width(bits, redop);

	if (dtype == OPTINC_F16)
		decode_f16(dst, reduced, exp, n, width, offset, parity);
	else if (is_float(dtype))
		decode_any_width(dst, reduced, exp, n, dtype, width, offset, parity, stream);
	else if (width == 1)
		decode_raw8(dst, reduced, n, offset, parity);
	else if (width == 2)
		decode_raw16(dst, reduced, n, offset, parity);
	else
		decode_raw32(dst, reduced, n, offset, parity);
}

TARGET static void avx512_max_bytes(uint8_t *dst, const uint8_t *src, size_t n)
{
	for (size_t i = 0; i < n; i += 64) {
		__mmask64 mask = n - i < 64 ? lanes_mask(i, n, 63) : ~0ull;
		__m512i v = _mm512_maskz_loadu_epi8(mask, src + i);

		v = _mm512_max_epu8(v, _mm512_maskz_loadu_epi8(mask, dst + i));
		_mm512_mask_storeu_epi8(dst + i, mask, v);
	}
}

const struct fabric_kernels fabric_kernels_avx512 = {
	.name		= "avx512",
	.exponents	= avx512_exponents,
	.encode		= avx512_encode,
	.reduce		= avx512_reduce,
	.decode		= avx512_decode,
	.max_bytes	= avx512_max_bytes,
};

#endif /* FABRIC_X86 */
