// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The kernels for AVX2 with FMA and F16C.
 *
 * A float block is multiplied by its scale with alternating sign, so that the
 * negation of odd elements costs nothing. Functions take the type and the
 * width as constants and are inlined into one specialised loop for each.
 */
#include "kernels_impl.h"

#ifdef FABRIC_X86

#define TARGET	__attribute__((target("avx2,fma,f16c")))
#define INLINE	static ALWAYS_INLINE TARGET

#define RNE	(_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

INLINE __m256i load256(const void *p)
{
	return _mm256_loadu_si256(p);
}

INLINE void store256(void *p, __m256i v)
{
	_mm256_storeu_si256(p, v);
}

/* The first @n of eight 32-bit lanes. */
INLINE __m256i lanes_mask(size_t n)
{
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n),
				  _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* The largest of the lanes, which are below 2^31 and 2^15. */
INLINE uint32_t max_lanes32(__m256i v)
{
	__m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

	m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
	m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
	return _mm_cvtsi128_si32(m);
}

INLINE uint32_t max_lanes16(__m256i v)
{
	__m128i m = _mm_max_epu16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
	__m128i ones = _mm_set1_epi16(-1);

	return 0xffff ^ (_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(m, ones))) & 0xffff);
}

INLINE __m256i max_magnitudes32(__m256i max, const float *p)
{
	return _mm256_max_epu32(max, _mm256_and_si256(load256(p), _mm256_set1_epi32(0x7fffffff)));
}

INLINE __m256i max_magnitudes16(__m256i max, const uint16_t *p)
{
	return _mm256_max_epu16(max, _mm256_and_si256(load256(p), _mm256_set1_epi16(0x7fff)));
}

TARGET static uint32_t max_magnitude32(const float *src, size_t n)
{
	__m256i m0 = _mm256_setzero_si256(), m1 = m0, m2 = m0, m3 = m0;
	size_t i;

	for (i = 0; i + 32 <= n; i += 32) {
		m0 = max_magnitudes32(m0, src + i);
		m1 = max_magnitudes32(m1, src + i + 8);
		m2 = max_magnitudes32(m2, src + i + 16);
		m3 = max_magnitudes32(m3, src + i + 24);
	}
	for (; i + 8 <= n; i += 8)
		m0 = max_magnitudes32(m0, src + i);
	if (i < n) {
		__m256i v = _mm256_maskload_epi32((const int *)(src + i), lanes_mask(n - i));

		m1 = _mm256_max_epu32(m1, _mm256_and_si256(v, _mm256_set1_epi32(0x7fffffff)));
	}
	m0 = _mm256_max_epu32(_mm256_max_epu32(m0, m1), _mm256_max_epu32(m2, m3));
	return max_lanes32(m0);
}

TARGET static uint32_t max_magnitude16(const uint16_t *src, size_t n)
{
	__m256i m0 = _mm256_setzero_si256(), m1 = m0;
	uint32_t max = 0;
	size_t i;

	for (i = 0; i + 32 <= n; i += 32) {
		m0 = max_magnitudes16(m0, src + i);
		m1 = max_magnitudes16(m1, src + i + 16);
	}
	if (n >= 32) {		/* the last 32 again, in part */
		m0 = max_magnitudes16(m0, src + n - 32);
		m1 = max_magnitudes16(m1, src + n - 16);
		return max_lanes16(_mm256_max_epu16(m0, m1));
	}
	for (; i < n; i++)
		max = (src[i] & 0x7fffu) > max ? src[i] & 0x7fffu : max;
	return max;
}

TARGET static void avx2_exponents(uint8_t *exp, const void *src, size_t n,
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
INLINE __m256 alternate(float scale, unsigned int parity)
{
	__m256i sign = _mm256_set1_epi64x(parity & 1 ? 0x80000000ull : 0x80000000ull << 32);

	return _mm256_xor_ps(_mm256_set1_ps(scale), _mm256_castsi256_ps(sign));
}

INLINE __m256 widen_floats(__m128i v, enum optinc_dtype dtype)
{
	if (dtype == OPTINC_F16)
		return _mm256_cvtph_ps(v);
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

INLINE __m256 load_floats(const void *src, size_t i, enum optinc_dtype dtype)
{
	if (dtype == OPTINC_F32)
		return _mm256_loadu_ps((const float *)src + i);
	return widen_floats(_mm_loadu_si128((const void *)((const uint16_t *)src + i)), dtype);
}

/* Elements from @i to @n, at most eight; zeros for the rest. */
INLINE __m256 load_some_floats(const void *src, size_t i, size_t n, enum optinc_dtype dtype)
{
	uint16_t copy[8] = { 0 };

	if (i + 8 <= n)
		return load_floats(src, i, dtype);
	if (i >= n)
		return _mm256_setzero_ps();
	if (dtype == OPTINC_F32)
		return _mm256_maskload_ps((const float *)src + i, lanes_mask(n - i));
	for (size_t k = 0; k < n - i; k++)
		copy[k] = ((const uint16_t *)src)[i + k];
	return widen_floats(_mm_loadu_si128((const void *)copy), dtype);
}

INLINE __m256i quantise(__m256 x, __m256 scale)
{
	return _mm256_cvtps_epi32(_mm256_mul_ps(x, scale));
}

/* Only a rounding up to the power of two, or down to its negative, is clipped. */
INLINE void store_codes8(uint8_t *codes, __m256i q0, __m256i q1, __m256i q2, __m256i q3)
{
	const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	__m256i q = _mm256_packs_epi16(_mm256_packs_epi32(q0, q1), _mm256_packs_epi32(q2, q3));

	q = _mm256_max_epi8(q, _mm256_set1_epi8(-127));
	q = _mm256_xor_si256(q, _mm256_set1_epi8(-128));
	store256(codes, _mm256_permutevar8x32_epi32(q, order));
}

INLINE void store_codes16(uint16_t *codes, __m256i q0, __m256i q1)
{
	__m256i q = _mm256_packs_epi32(q0, q1);

	q = _mm256_max_epi16(q, _mm256_set1_epi16(-32767));
	q = _mm256_xor_si256(q, _mm256_set1_epi16(-32768));
	store256(codes, _mm256_permute4x64_epi64(q, 0xd8));
}

INLINE void store_codes(void *codes, size_t i, __m256i q0, __m256i q1, __m256i q2, __m256i q3,
			unsigned int bits)
{
	if (bits == 8) {
		store_codes8((uint8_t *)codes + i, q0, q1, q2, q3);
	} else {
		store_codes16((uint16_t *)codes + i, q0, q1);
		store_codes16((uint16_t *)codes + i + 16, q2, q3);
	}
}

/* Elements [at, n), at most a block. */
INLINE void encode_block(void *codes, const void *src, size_t at, size_t n, __m256 scale,
			 enum optinc_dtype dtype, unsigned int bits)
{
	size_t i;

	for (i = at; i + 32 <= n; i += 32)
		store_codes(codes, i, quantise(load_floats(src, i, dtype), scale),
			    quantise(load_floats(src, i + 8, dtype), scale),
			    quantise(load_floats(src, i + 16, dtype), scale),
			    quantise(load_floats(src, i + 24, dtype), scale), bits);
	if (i < n)
		store_codes(codes, i, quantise(load_some_floats(src, i, n, dtype), scale),
			    quantise(load_some_floats(src, i + 8, n, dtype), scale),
			    quantise(load_some_floats(src, i + 16, n, dtype), scale),
			    quantise(load_some_floats(src, i + 24, n, dtype), scale), bits);
}

INLINE void encode_floats(void *codes, const void *src, const uint8_t *exp, size_t n,
			  enum optinc_dtype dtype, unsigned int bits, unsigned int parity)
{
	for (size_t at = 0; at < n; at += OPTINC_BLOCK, exp++) {
		size_t len = block_len(n, at);

		if (exp_is_scale(*exp))
			encode_block(codes, src, at, at + len,
				     alternate(encode_scale(*exp), parity), dtype, bits);
		else
			fill_zero_codes((uint8_t *)codes + at * bits / 8, len, bits);
	}
}

TARGET static uint32_t encode_i8(uint8_t *codes, const int8_t *src, size_t n, unsigned int parity)
{
	const __m256i sign = _mm256_set1_epi16(parity & 1 ? 0x01ff : (short)0xff01);
	const __m256i lowest = _mm256_set1_epi8(-128);
	uint32_t saturated = 0, low;
	int8_t copy[32] = { 0 };

	for (size_t i = 0; i < n; i += 32) {
		const int8_t *from = src + i;
		__m256i v;

		if (n - i < 32)
			from = memcpy(copy, from, n - i);
		v = load256(from);
		low = _mm256_movemask_epi8(_mm256_cmpeq_epi8(v, lowest));
		saturated += __builtin_popcount(low);
		v = _mm256_sign_epi8(_mm256_max_epi8(v, _mm256_set1_epi8(-127)), sign);
		store256(codes + i, _mm256_xor_si256(v, lowest));
	}
	return saturated;
}

TARGET static uint32_t encode_i16(uint16_t *codes, const int16_t *src, size_t n,
				  unsigned int parity)
{
	const __m256i sign = _mm256_set1_epi32(parity & 1 ? 0x0001ffff : (int)0xffff0001);
	const __m256i lowest = _mm256_set1_epi16(-32768);
	uint32_t saturated = 0, low;
	int16_t copy[16] = { 0 };

	for (size_t i = 0; i < n; i += 16) {
		const int16_t *from = src + i;
		__m256i v;

		if (n - i < 16)
			from = memcpy(copy, from, (n - i) * sizeof(*copy));
		v = load256(from);
		low = _mm256_movemask_epi8(_mm256_cmpeq_epi16(v, lowest));
		saturated += __builtin_popcount(low) / 2;
		v = _mm256_sign_epi16(_mm256_max_epi16(v, _mm256_set1_epi16(-32767)), sign);
		store256(codes + i, _mm256_xor_si256(v, lowest));
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

static uint32_t avx2_encode(void *codes, const void *src, const uint8_t *exp, size_t n,
			    enum optinc_dtype dtype, unsigned int bits, unsigned int parity)
{
	fpenv env;

	if (dtype == OPTINC_I8)
		return encode_i8(codes, src, n, parity);
	if (dtype == OPTINC_I16)
		return encode_i16(codes, src, n, parity);
	env = fpenv_enter();
	encode_any_floats(codes, src, exp, n, dtype, bits, parity);
	fpenv_leave(env);
	return 0;
}

/* floor((a + b + 1) / 2) is the rounded mean of two, and nearly that of two such. */
INLINE __m256i average(__m256i a, __m256i b, unsigned int bits)
{
	return bits == 8 ? _mm256_avg_epu8(a, b) : _mm256_avg_epu16(a, b);
}

/*
 * With ab = (a + b + r) / 2 and cd = (c + d + s) / 2, the average of the two is
 * floor((T + r + s + 2) / 4): one more than floor((T + 2) / 4) just where r or
 * s is 1 and ab + cd is odd.
 */
INLINE __m256i mean_of_4(__m256i a, __m256i b, __m256i c, __m256i d, unsigned int bits)
{
	__m256i one = bits == 8 ? _mm256_set1_epi8(1) : _mm256_set1_epi16(1);
	__m256i ab = average(a, b, bits), cd = average(c, d, bits);
	__m256i rounded = _mm256_or_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
	__m256i extra = _mm256_and_si256(_mm256_and_si256(rounded, _mm256_xor_si256(ab, cd)), one);

	return bits == 8 ? _mm256_sub_epi8(average(ab, cd, bits), extra) :
			   _mm256_sub_epi16(average(ab, cd, bits), extra);
}

INLINE void reduce_mean_2(void *out, const void *const *codes, size_t bytes, unsigned int bits)
{
	const uint8_t *a = codes[0], *b = codes[1];

	for (size_t i = 0; i < bytes; i += 32)
		store256((uint8_t *)out + i, average(load256(a + i), load256(b + i), bits));
}

INLINE void reduce_mean_4(void *out, const void *const *codes, size_t bytes, unsigned int bits)
{
	const uint8_t *a = codes[0], *b = codes[1], *c = codes[2], *d = codes[3];

	for (size_t i = 0; i < bytes; i += 32)
		store256((uint8_t *)out + i, mean_of_4(load256(a + i), load256(b + i),
						       load256(c + i), load256(d + i), bits));
}

/* T + floor(N / 2) of the even and of the odd bytes: the sum of all words, less the odd ones. */
TARGET static void reduce_mean8(uint8_t *out, const void *const *codes, unsigned int nranks,
				size_t bytes)
{
	const __m256i half = _mm256_set1_epi16(nranks / 2);
	const __m256i reciprocal = _mm256_set1_epi16(mean_reciprocal16(nranks));

	for (size_t i = 0; i < bytes; i += 32) {
		__m256i all = half, odd = half, even;

		for (unsigned int rank = 0; rank < nranks; rank++) {
			__m256i v = load256((const uint8_t *)codes[rank] + i);

			all = _mm256_add_epi16(all, v);
			odd = _mm256_add_epi16(odd, _mm256_srli_epi16(v, 8));
		}
		even = _mm256_sub_epi16(odd, half);
		even = _mm256_sub_epi16(all, _mm256_slli_epi16(even, 8));
		even = _mm256_mulhi_epu16(even, reciprocal);
		odd = _mm256_mulhi_epu16(odd, reciprocal);
		store256(out + i, _mm256_or_si256(even, _mm256_slli_epi16(odd, 8)));
	}
}

/* The high halves of eight products. */
INLINE __m256i mulhi32(__m256i a, __m256i b)
{
	__m256i even = _mm256_srli_epi64(_mm256_mul_epu32(a, b), 32);
	__m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);

	return _mm256_blend_epi32(even, odd, 0xaa);
}

TARGET static void reduce_mean16(uint8_t *out, const void *const *codes, unsigned int nranks,
				 size_t bytes)
{
	const __m256i half = _mm256_set1_epi32(nranks / 2);
	const __m256i reciprocal = _mm256_set1_epi32(mean_reciprocal32(nranks));

	for (size_t i = 0; i < bytes; i += 32) {
		__m256i all = half, odd = half, even;

		for (unsigned int rank = 0; rank < nranks; rank++) {
			__m256i v = load256((const uint8_t *)codes[rank] + i);

			all = _mm256_add_epi32(all, v);
			odd = _mm256_add_epi32(odd, _mm256_srli_epi32(v, 16));
		}
		even = _mm256_sub_epi32(odd, half);
		even = _mm256_sub_epi32(all, _mm256_slli_epi32(even, 16));
		even = mulhi32(even, reciprocal);
		odd = mulhi32(odd, reciprocal);
		store256(out + i, _mm256_or_si256(even, _mm256_slli_epi32(odd, 16)));
	}
}

INLINE void reduce_sum(uint8_t *out, const void *const *codes, unsigned int nranks, size_t bytes,
		       unsigned int bits)
{
	for (size_t i = 0; i < bytes; i += 32) {
		__m256i low = _mm256_setzero_si256(), high = low;

		for (unsigned int rank = 0; rank < nranks; rank++) {
			const __m128i *v = (const void *)((const uint8_t *)codes[rank] + i);

			if (bits == 8) {
				low = _mm256_add_epi16(low, _mm256_cvtepu8_epi16(v[0]));
				high = _mm256_add_epi16(high, _mm256_cvtepu8_epi16(v[1]));
			} else {
				low = _mm256_add_epi32(low, _mm256_cvtepu16_epi32(v[0]));
				high = _mm256_add_epi32(high, _mm256_cvtepu16_epi32(v[1]));
			}
		}
		store256(out + 2 * i, low);
		store256(out + 2 * i + 32, high);
	}
}

TARGET static void avx2_reduce(void *out, const void *const *codes, unsigned int nranks, size_t n,
			       unsigned int bits, enum optinc_redop redop)
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

/* Eight results as integers: the bytes, words or long words at @i, less @zero. */
INLINE __m256i load_results(const void *reduced, size_t i, unsigned int width, __m256i zero)
{
	const void *p = (const uint8_t *)reduced + i * width;
	__m256i v;

	if (width == 1)
		v = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p));
	else if (width == 2)
		v = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
	else
		v = load256(p);
	return _mm256_sub_epi32(v, zero);
}

/* Exact, or infinite; adding +0 to the product makes -0 into +0. */
INLINE __m256 dequantise(__m256i v, __m256 scale)
{
	return _mm256_fmadd_ps(_mm256_cvtepi32_ps(v), scale, _mm256_setzero_ps());
}

/* A half precision value that rounds to zero is +0, whatever its sign was. */
INLINE __m128i narrow_to_f16(__m256 x)
{
	__m128i h = _mm256_cvtps_ph(x, RNE);

	return _mm_andnot_si128(_mm_cmpeq_epi16(h, _mm_set1_epi16(-32768)), h);
}

/* A byte is exact in the eight bits of bfloat16; more is rounded half to even. */
INLINE __m128i narrow_floats(__m256 x, enum optinc_dtype dtype, unsigned int width)
{
	const __m256i order = _mm256_setr_epi8(2, 3, 6, 7, 10, 11, 14, 15, -1, -1, -1, -1, -1, -1,
					       -1, -1, 2, 3, 6, 7, 10, 11, 14, 15, -1, -1, -1, -1,
					       -1, -1, -1, -1);
	__m256i u = _mm256_castps_si256(x), odd;

	if (dtype == OPTINC_F16)
		return narrow_to_f16(x);
	if (width > 1) {
		odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
		u = _mm256_add_epi32(_mm256_add_epi32(u, odd), _mm256_set1_epi32(0x7fff));
	}
	u = _mm256_shuffle_epi8(u, order);
	return _mm256_castsi256_si128(_mm256_permute4x64_epi64(u, 0x08));
}

INLINE void store_some_floats(void *dst, size_t i, size_t n, __m256 x, enum optinc_dtype dtype,
			      unsigned int width)
{
	uint16_t copy[8];

	if (dtype == OPTINC_F32) {
		_mm256_maskstore_ps((float *)dst + i, lanes_mask(n - i), x);
		return;
	}
	_mm_storeu_si128((void *)copy, narrow_floats(x, dtype, width));
	for (size_t k = 0; k < n - i; k++)
		((uint16_t *)dst)[i + k] = copy[k];
}

INLINE void store_floats(void *dst, size_t i, __m256 x, enum optinc_dtype dtype,
			 unsigned int width, bool stream)
{
	if (dtype != OPTINC_F32)
		_mm_storeu_si128((void *)((uint16_t *)dst + i), narrow_floats(x, dtype, width));
	else if (stream)
		_mm256_stream_ps((float *)dst + i, x);
	else
		_mm256_storeu_ps((float *)dst + i, x);
}

/* At most a block. */
INLINE void decode_block(void *dst, const void *reduced, size_t n, float scale,
			 enum optinc_dtype dtype, unsigned int width, uint32_t offset,
			 unsigned int parity, bool stream)
{
	const __m256 scales = alternate(scale, parity);
	const __m256i zero = _mm256_set1_epi32(offset);
	size_t i;

	for (i = 0; i + 8 <= n; i += 8)
		store_floats(dst, i, dequantise(load_results(reduced, i, width, zero), scales),
			     dtype, width, stream);
	if (i < n)
		store_some_floats(dst, i, n,
				  dequantise(load_results(reduced, i, width, zero), scales),
				  dtype, width);
}

INLINE void stream_lines(float *dst, const float *src, size_t n)
{
	for (size_t i = 0; i < n; i += 8)
		_mm256_stream_ps(dst + i, _mm256_load_ps(src + i));
}

#include "kernels_decode.h"

/* Integers keep their width: 32 bytes at a time, less the offset, odd ones negated. */
INLINE __m256i decode_integers(__m256i v, unsigned int width, __m256i offset, __m256i sign)
{
	if (width == 1)
		return _mm256_sign_epi8(_mm256_sub_epi8(v, offset), sign);
	if (width == 2)
		return _mm256_sign_epi16(_mm256_sub_epi16(v, offset), sign);
	return _mm256_sign_epi32(_mm256_sub_epi32(v, offset), sign);
}

INLINE void decode_raw(uint8_t *dst, const uint8_t *reduced, size_t n, unsigned int width,
		       __m256i offset, __m256i sign)
{
	size_t bytes = n * width, i;
	uint8_t copy[32];

	for (i = 0; i + 32 <= bytes; i += 32)
		store256(dst + i, decode_integers(load256(reduced + i), width, offset, sign));
	if (i == bytes)
		return;
	store256(copy, decode_integers(load256(reduced + i), width, offset, sign));
	memcpy(dst + i, copy, bytes - i);
}

TARGET static void decode_any_raw(void *dst, const void *reduced, size_t n, unsigned int width,
				  uint32_t offset, unsigned int parity)
{
	bool even = parity & 1;

	if (width == 1)
		decode_raw(dst, reduced, n, 1, _mm256_set1_epi8(offset),
			   _mm256_set1_epi16(even ? 0x01ff : (short)0xff01));
	else if (width == 2)
		decode_raw(dst, reduced, n, 2, _mm256_set1_epi16(offset),
			   _mm256_set1_epi32(even ? 0x0001ffff : (int)0xffff0001));
	else
		decode_raw(dst, reduced, n, 4, _mm256_set1_epi32(offset),
			   _mm256_set1_epi64x(even ? 0x00000001ffffffffll :
						     (long long)0xffffffff00000001ull));
}

static void avx2_decode(void *dst, const void *reduced, const uint8_t *exp, size_t n,
			enum optinc_dtype dtype, unsigned int bits, enum optinc_redop redop,
			unsigned int nranks, unsigned int parity, bool stream)
{
	uint32_t offset = result_zero(bits, redop, nranks);
	unsigned int width = result_width(bits, redop);
	fpenv env;

	if (!is_float(dtype)) {
		decode_any_raw(dst, reduced, n, width, offset, parity);
		return;
	}
	env = fpenv_enter();
	decode_any_width(dst, reduced, exp, n, dtype, width, offset, parity, stream);
	fpenv_leave(env);
}

TARGET static void avx2_max_bytes(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t i;

	for (i = 0; i + 32 <= n; i += 32)
		store256(dst + i, _mm256_max_epu8(load256(dst + i), load256(src + i)));
	for (; i < n; i++)
		dst[i] = dst[i] > src[i] ? dst[i] : src[i];
}

const struct fabric_kernels fabric_kernels_avx2 = {
	.name		= "avx2",
	.exponents	= avx2_exponents,
	.encode		= avx2_encode,
	.reduce		= avx2_reduce,
	.decode		= avx2_decode,
	.max_bytes	= avx2_max_bytes,
};

#endif /* FABRIC_X86 */
