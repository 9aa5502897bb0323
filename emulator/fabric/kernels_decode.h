/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Decoding of floats, block by block: what the vector tables have in common.
 *
 * Included in the middle of a table's file, after its own decode_block(),
 * stream_lines(), INLINE and TARGET, which these functions are built from and
 * with.
 */

/* Elements of @reduced from @at on, one block of exponent @s, to @dst. */
INLINE void decode_any_block(void *dst, const void *reduced, size_t at, size_t n, uint8_t s,
			     enum optinc_dtype dtype, unsigned int width, uint32_t offset,
			     unsigned int parity, bool stream)
{
	const void *from = (const uint8_t *)reduced + at * width;

	if (!exp_is_scale(s))
		fill_result(dst, n, dtype, s);
	else if (n == OPTINC_BLOCK)
		decode_block(dst, from, OPTINC_BLOCK, decode_scale(s), dtype, width, offset, parity,
			     stream);
	else
		decode_block(dst, from, n, decode_scale(s), dtype, width, offset, parity, stream);
}

INLINE void decode_floats(void *dst, const void *reduced, const uint8_t *exp, size_t n,
			  enum optinc_dtype dtype, unsigned int width, uint32_t offset,
			  unsigned int parity, bool stream)
{
	size_t size = dtype == OPTINC_F32 ? 4 : 2;

	for (size_t at = 0; at < n; at += OPTINC_BLOCK, exp++)
		decode_any_block((uint8_t *)dst + at * size, reduced, at, block_len(n, at), *exp,
				 dtype, width, offset, parity, stream);
}

/*
 * More than a block to an address that lies @phase elements into its cache line:
 * what does not fill a line yet waits in @lines for the next block, so that
 * every line but the first and the last is written whole. @lines is aligned so
 * that no page ends in it: a vector stored across one costs 100 ns.
 */
INLINE void decode_shifted(float *dst, const void *reduced, const uint8_t *exp, size_t n,
			   size_t phase, unsigned int width, uint32_t offset, unsigned int parity)
{
	float lines[LINE_FLOATS + OPTINC_BLOCK] __attribute__((aligned(2048)));
	size_t left = 0;

	for (size_t at = 0; at < n; at += OPTINC_BLOCK, exp++) {
		size_t from = at ? 0 : LINE_FLOATS, len = block_len(n, at);
		size_t end = phase + len;

		decode_any_block(lines + phase, reduced, at, len, *exp, OPTINC_F32, width, offset,
				 parity, false);
		if (at == 0)
			memcpy(dst, lines + phase, (LINE_FLOATS - phase) * sizeof(*dst));
		left = end % LINE_FLOATS;
		stream_lines(dst + at + from - phase, lines + from, end - left - from);
		memmove(lines, lines + end - left, left * sizeof(*dst));
	}
	memcpy(dst + n - left, lines, left * sizeof(*dst));
}

INLINE void decode_lines(float *dst, const void *reduced, const uint8_t *exp, size_t n,
			 unsigned int width, uint32_t offset, unsigned int parity)
{
	size_t phase = (uintptr_t)dst / sizeof(*dst) % LINE_FLOATS;

	if (phase)
		decode_shifted(dst, reduced, exp, n, phase, width, offset, parity);
	else
		decode_floats(dst, reduced, exp, n, OPTINC_F32, width, offset, parity, true);
}

/* Apart, as its large frame would slow short requests down. */
TARGET static __attribute__((noinline)) void decode_stream(void *dst, const void *reduced,
							   const uint8_t *exp, size_t n,
							   unsigned int width, uint32_t offset,
							   unsigned int parity)
{
	if (width == 1)
		decode_lines(dst, reduced, exp, n, 1, offset, parity);
	else if (width == 2)
		decode_lines(dst, reduced, exp, n, 2, offset, parity);
	else
		decode_lines(dst, reduced, exp, n, 4, offset, parity);
	_mm_sfence();
}

#define DECODE(dtype, width) \
	decode_floats(dst, reduced, exp, n, dtype, width, offset, parity, false)

INLINE void decode_any_floats(void *dst, const void *reduced, const uint8_t *exp, size_t n,
			      enum optinc_dtype dtype, unsigned int width, uint32_t offset,
			      unsigned int parity)
{
	if (dtype == OPTINC_F16)
		DECODE(OPTINC_F16, width);
	else if (dtype == OPTINC_BF16)
		DECODE(OPTINC_BF16, width);
	else
		DECODE(OPTINC_F32, width);
}

TARGET static void decode_any_width(void *dst, const void *reduced, const uint8_t *exp, size_t n,
				    enum optinc_dtype dtype, unsigned int width, uint32_t offset,
				    unsigned int parity, bool stream)
{
	if (stream && dtype == OPTINC_F32 && n > OPTINC_BLOCK)
		decode_stream(dst, reduced, exp, n, width, offset, parity);
	else if (width == 1)
		decode_any_floats(dst, reduced, exp, n, dtype, 1, offset, parity);
	else if (width == 2)
		decode_any_floats(dst, reduced, exp, n, dtype, 2, offset, parity);
	else
		decode_any_floats(dst, reduced, exp, n, dtype, 4, offset, parity);
}
