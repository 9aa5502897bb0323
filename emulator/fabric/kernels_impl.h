/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the tables of kernels.h share: the floating-point guard, the exponent
 * rule, and the numbers of the format.
 *
 * Code and result arrays may be read and written up to n rounded up to 64
 * elements; the user's src and dst never beyond n.
 */
#ifndef OPTINC_FABRIC_KERNELS_IMPL_H
#define OPTINC_FABRIC_KERNELS_IMPL_H

#include <string.h>

#include "kernels.h"

#if defined(__x86_64__)
#define FABRIC_X86
#include <immintrin.h>
extern const struct fabric_kernels fabric_kernels_avx2;
extern const struct fabric_kernels fabric_kernels_avx512;
#else
#include <fenv.h>
#endif

extern const struct fabric_kernels fabric_kernels_c;

#define ALWAYS_INLINE	inline __attribute__((always_inline))

#define LINE_FLOATS	16	/* of one cache line */

#define FABRIC_EXP_SMALLEST	1

#define F32_NAN		0x7fc00000u
#define F16_NAN		0x7e00u
#define BF16_NAN	0x7fc0u

/*
 * Rounding to nearest, subnormals kept, between enter and leave; the caller's
 * modes and exception flags come back. The barriers hold the loads and stores
 * of the arithmetic between them, and so the arithmetic. Loading the register
 * is cheaper than asking whether a flag was raised.
 */
#ifdef FABRIC_X86
#define MXCSR_DEFAULT	0x1f80u
#define MXCSR_FLAGS	0x003fu

typedef unsigned int fpenv;

static inline fpenv fpenv_enter(void)
{
	fpenv env = _mm_getcsr();

	if ((env & ~MXCSR_FLAGS) != MXCSR_DEFAULT)
		_mm_setcsr(MXCSR_DEFAULT);
	__asm__ volatile("" ::: "memory");
	return env;
}

static inline void fpenv_leave(fpenv env)
{
	__asm__ volatile("" ::: "memory");
	_mm_setcsr(env);
}
#else
typedef fenv_t fpenv;

static inline fpenv fpenv_enter(void)
{
	fpenv env;

	fegetenv(&env);
	fesetenv(FE_DFL_ENV);
	__asm__ volatile("" ::: "memory");
	return env;
}

static inline void fpenv_leave(fpenv env)
{
	__asm__ volatile("" ::: "memory");
	fesetenv(&env);
}
#endif

static inline float f32_from_bits(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static inline uint32_t f32_bits(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static ALWAYS_INLINE size_t block_len(size_t n, size_t at)
{
	return n - at < OPTINC_BLOCK ? n - at : OPTINC_BLOCK;
}

static ALWAYS_INLINE bool is_float(enum optinc_dtype dtype)
{
	return dtype == OPTINC_F32 || dtype == OPTINC_F16 || dtype == OPTINC_BF16;
}

/* Neither zeros nor non-finite: the block has codes of its own. */
static ALWAYS_INLINE bool exp_is_scale(uint8_t s)
{
	return s != FABRIC_EXP_ZERO && s != FABRIC_EXP_NONFINITE;
}

/* 2^-e, by which encode multiplies, and 2^e, by which decode does. */
static ALWAYS_INLINE float encode_scale(uint8_t s)
{
	return f32_from_bits((254u - s) << 23);
}

static ALWAYS_INLINE float decode_scale(uint8_t s)
{
	return f32_from_bits((uint32_t)s << 23);
}

/* Offset of what reduce gave: the result that stands for zero. */
static ALWAYS_INLINE uint32_t result_zero(unsigned int bits, enum optinc_redop redop,
					  unsigned int nranks)
{
	return (redop == OPTINC_SUM ? nranks : 1) << (bits - 1);
}

/* Bytes of one element of what reduce gave. */
static ALWAYS_INLINE unsigned int result_width(unsigned int bits, enum optinc_redop redop)
{
	return bits / 8 * (redop == OPTINC_SUM ? 2 : 1);
}

/* Stored exponent of a block whose largest magnitude has the bits @m. */
static inline uint8_t exp_of_f32(uint32_t m, unsigned int bits)
{
	if (m == 0)
		return FABRIC_EXP_ZERO;
	if (m >= 0x7f800000)
		return FABRIC_EXP_NONFINITE;
	return (m >> 23) + 2 > bits ? (m >> 23) + 2 - bits : 1;
}

/* Half precision's bias is 15, and a subnormal m is m * 2^-24. */
static inline uint8_t exp_of_f16(uint32_t m, unsigned int bits)
{
	if (m == 0)
		return FABRIC_EXP_ZERO;
	if (m >= 0x7c00)
		return FABRIC_EXP_NONFINITE;
	if (m < 0x0400)
		return 32 - __builtin_clz(m) + 104 - bits;
	return (m >> 10) + 114 - bits;
}

static ALWAYS_INLINE uint8_t exp_of_16(uint32_t m, enum optinc_dtype dtype, unsigned int bits)
{
	return dtype == OPTINC_F16 ? exp_of_f16(m, bits) : exp_of_f32(m << 16, bits);
}

/* @n codes of zero. */
static inline void fill_zero_codes(void *codes, size_t n, unsigned int bits)
{
	uint16_t *codes16 = codes;

	if (bits == 8) {
		memset(codes, 0x80, n);
		return;
	}
	for (size_t i = 0; i < n; i++)
		codes16[i] = 0x8000;
}

/* A block that has no codes of its own: zeros, or the canonical quiet NaN. */
static inline void fill_result(void *dst, size_t n, enum optinc_dtype dtype, uint8_t s)
{
	bool nan = s == FABRIC_EXP_NONFINITE;
	uint32_t nan16 = dtype == OPTINC_F16 ? F16_NAN : BF16_NAN;

	if (dtype == OPTINC_F32)
		for (size_t i = 0; i < n; i++)
			((float *)dst)[i] = f32_from_bits(nan ? F32_NAN : 0);
	else
		for (size_t i = 0; i < n; i++)
			((uint16_t *)dst)[i] = nan ? nan16 : 0;
}

/*
 * The mean is floor(X / N) with X = T + floor(N / 2), taken as the high part of
 * X * M with M = ceil(2^k / N) = (2^k + r) / N, 0 <= r < N. Then
 *	X * M / 2^k = X / N + X * r / (2^k * N),
 * and as X / N lies at least 1 / N below the next integer, the floor is that of
 * X / N if X * r < 2^k. N <= 16, and r = 0 for N = 16, so r <= 14.
 * 8 bit: X <= 15 * 255 + 7 = 3832, 3832 * 14 = 53648 < 2^16: k = 16 does.
 * 16 bit: X <= 15 * 65535 + 7 < 2^20, X * 14 < 2^24: k = 32 does.
 */
static ALWAYS_INLINE uint32_t mean_reciprocal16(unsigned int nranks)
{
	return (65536 + nranks - 1) / nranks;
}

static ALWAYS_INLINE uint32_t mean_reciprocal32(unsigned int nranks)
{
	return ((1ull << 32) + nranks - 1) / nranks;
}

#endif /* OPTINC_FABRIC_KERNELS_IMPL_H */
