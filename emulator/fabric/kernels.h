/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The arithmetic of the number format (Documentation/number-format.rst), on
 * chunks that begin at a multiple of OPTINC_BLOCK elements of the request.
 *
 * One table per instruction set, all giving the same bits. No function
 * depends on, or changes, the caller's floating-point environment.
 */
#ifndef OPTINC_FABRIC_KERNELS_H
#define OPTINC_FABRIC_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/optinc.h>

#define FABRIC_EXP_ZERO		0	/* every element of the block is zero */
#define FABRIC_EXP_NONFINITE	255	/* a NaN or an infinity somewhere */

/**
 * struct fabric_kernels - one instruction set's implementation
 * @name: "c", "avx2", "avx512"
 * @exponents: one stored exponent (e + 127, 0 or 255) for each block of @n
 *	elements of @dtype (f32, f16, bf16), for codes of @bits (8, 16); the
 *	last block may be short
 * @encode: @n codes in offset binary (u8 or u16 by @bits), negated at odd
 *	(index + @parity), index counted from @src. Floats use the agreed
 *	exponents @exp; blocks of zeros and non-finite blocks send the code of
 *	zero. i8 and i16 are saturated; returns how many were.
 * @reduce: from @nranks arrays of @n codes: mean gives u8 or u16 offset
 *	codes, sum gives T as u16 (@bits 8) or u32 (@bits 16)
 * @decode: what reduce gave, into @n elements of the result type (of @dtype;
 *	sum of i8 gives i16, of i16 gives i32), negation undone. Non-finite
 *	blocks become the canonical quiet NaN, zeros +0. @stream: use
 *	non-temporal stores where @dst is aligned for them.
 * @max_bytes: @dst[i] = max(@dst[i], @src[i])
 *
 * Code and result arrays of the fabric are aligned to 64 bytes, and may be read
 * and written up to @n rounded up to 64 elements; @src and @dst of the user are
 * aligned only to their element, and nothing beyond @n is touched.
 */
struct fabric_kernels {
	const char *name;
	void (*exponents)(uint8_t *exp, const void *src, size_t n,
			  enum optinc_dtype dtype, unsigned int bits);
	uint32_t (*encode)(void *codes, const void *src, const uint8_t *exp, size_t n,
			   enum optinc_dtype dtype, unsigned int bits, unsigned int parity);
	void (*reduce)(void *out, const void *const *codes, unsigned int nranks, size_t n,
		       unsigned int bits, enum optinc_redop redop);
	void (*decode)(void *dst, const void *reduced, const uint8_t *exp, size_t n,
		       enum optinc_dtype dtype, unsigned int bits, enum optinc_redop redop,
		       unsigned int nranks, unsigned int parity, bool stream);
	void (*max_bytes)(uint8_t *dst, const uint8_t *src, size_t n);
};

/**
 * fabric_kernels_vote() - votes of @nranks arrays of packed bits
 * @dst: i8 counts (T - 2N, plus votes less minus votes); with
 *	OPTINC_SQE_SIGN packed bits, a tie is 1; with _ABSTAIN too, i8 -1, 0, 1
 * @votes: @nranks arrays of (@n + 7) / 8 bytes; bits beyond @n are ignored,
 *	and written as zero in packed results
 */
void fabric_kernels_vote(void *dst, const uint8_t *const *votes, unsigned int nranks, size_t n,
			 unsigned int flags);

/**
 * fabric_kernels_select() - the table to use on this processor
 * @name: "c", "avx2", "avx512", or NULL for the one that measured best
 *
 * NULL when the processor cannot run @name.
 */
const struct fabric_kernels *fabric_kernels_select(const char *name);

#endif /* OPTINC_FABRIC_KERNELS_H */
