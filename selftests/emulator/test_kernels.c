// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The kernels of the fabric: every table that this processor runs gives the
 * bits of the plain reference in lib, whatever the caller's floating-point
 * modes are, and touches nothing beyond its arrays.
 *
 * All arrays end at a page that cannot be accessed, and have a margin of known
 * bytes in front, so that a byte too many read or written is noticed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <optinc/optinc.h>

#include "../../emulator/fabric/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define HOSTILE_MXCSR	0xffe1u	/* toward zero, FTZ, DAZ, all masked, one flag */
#define ROUND_UP_MXCSR	0xdfc0u	/* upward, FTZ, DAZ, all masked */
#define UNMASKED_MXCSR	0x2040u	/* downward, DAZ, every exception traps */
#endif

#define MAX_N		1100	/* four blocks and a tail */
#define MARGIN		128
#define MARGIN_BYTE	0x5a

static const struct fabric_kernels *tables[3];
static size_t ntables;

/* A repeatable sequence, so that a failure can be repeated. */
static uint64_t random_state = 0x9e3779b97f4a7c15ull;

static uint32_t random32(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state >> 16;
}

/**
 * struct area - memory that ends at an inaccessible page
 * @base: the mapping, with @mapped bytes before the page
 */
struct area {
	uint8_t *base;
	size_t mapped;
};

static struct area area_create(size_t bytes)
{
	size_t page = sysconf(_SC_PAGESIZE);
	struct area area;

	area.mapped = (bytes + MARGIN + page - 1) / page * page;
	area.base = mmap(NULL, area.mapped + page, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(area.base != MAP_FAILED);
	assert_int_equal(mprotect(area.base + area.mapped, page, PROT_NONE), 0);
	return area;
}

static void area_destroy(struct area *area)
{
	munmap(area->base, area->mapped + sysconf(_SC_PAGESIZE));
}

/* The last @bytes before the page, margin in front. */
static void *area_tail(const struct area *area, size_t bytes)
{
	uint8_t *p = area->base + area->mapped - bytes;

	memset(p - MARGIN, MARGIN_BYTE, MARGIN + bytes);
	return p;
}

static void assert_margin(const void *p)
{
	const uint8_t *margin = (const uint8_t *)p - MARGIN;

	for (int i = 0; i < MARGIN; i++)
		assert_int_equal(margin[i], MARGIN_BYTE);
}

static size_t round_up_64(size_t n)
{
	return (n + 63) / 64 * 64;
}

static bool is_float(enum optinc_dtype dtype)
{
	return dtype == OPTINC_F32 || dtype == OPTINC_F16 || dtype == OPTINC_BF16;
}

static size_t src_size(enum optinc_dtype dtype)
{
	return dtype == OPTINC_F32 ? 4 : dtype == OPTINC_I8 ? 1 : 2;
}

static size_t dst_size(enum optinc_dtype dtype, enum optinc_redop redop)
{
	return src_size(dtype) * (!is_float(dtype) && redop == OPTINC_SUM ? 2 : 1);
}

static size_t result_size(unsigned int bits, enum optinc_redop redop)
{
	return bits / 8 * (redop == OPTINC_SUM ? 2 : 1);
}

/**
 * struct pipeline - the arrays of one all-reduce through the kernels
 */
struct pipeline {
	struct area src[OPTINC_MAX_RANKS], codes[OPTINC_MAX_RANKS], exp[2], reduced, dst;
};

static struct pipeline pipe_areas;

static int create_areas(void **state)
{
	(void)state;
	for (int rank = 0; rank < OPTINC_MAX_RANKS; rank++) {
		pipe_areas.src[rank] = area_create(4 * 65536);
		pipe_areas.codes[rank] = area_create(2 * 65536);
	}
	pipe_areas.exp[0] = area_create(256);
	pipe_areas.exp[1] = area_create(256);
	pipe_areas.reduced = area_create(4 * 65536);
	pipe_areas.dst = area_create(4 * 65536);
	return 0;
}

static int destroy_areas(void **state)
{
	(void)state;
	for (int rank = 0; rank < OPTINC_MAX_RANKS; rank++) {
		area_destroy(&pipe_areas.src[rank]);
		area_destroy(&pipe_areas.codes[rank]);
	}
	area_destroy(&pipe_areas.exp[0]);
	area_destroy(&pipe_areas.exp[1]);
	area_destroy(&pipe_areas.reduced);
	area_destroy(&pipe_areas.dst);
	return 0;
}

/**
 * struct request - what is reduced, and the floating-point modes of the caller
 * @skew: elements by which dst ends before its page, to vary its alignment
 */
struct request {
	enum optinc_dtype dtype;
	enum optinc_redop redop;
	unsigned int bits, nranks, parity, skew, mxcsr;
	size_t n;
	bool stream;
};

static unsigned int set_mxcsr(unsigned int mxcsr)
{
#if defined(__x86_64__)
	unsigned int old = _mm_getcsr();

	if (mxcsr)
		_mm_setcsr(mxcsr);
	return old;
#else
	return mxcsr;
#endif
}

/* All the kernels in turn; returns dst, and how many elements were saturated. */
static void *run_kernels(const struct fabric_kernels *k, const struct request *r,
			 const void *const *src, uint32_t *saturated)
{
	size_t dst_bytes = (r->n + r->skew) * dst_size(r->dtype, r->redop);
	size_t blocks = (r->n + OPTINC_BLOCK - 1) / OPTINC_BLOCK;
	size_t padded = round_up_64(r->n);
	uint8_t *exp = area_tail(&pipe_areas.exp[0], blocks);
	uint8_t *other = area_tail(&pipe_areas.exp[1], blocks);
	void *reduced = area_tail(&pipe_areas.reduced, padded * result_size(r->bits, r->redop));
	void *dst = area_tail(&pipe_areas.dst, dst_bytes);
	void *codes[OPTINC_MAX_RANKS];
	unsigned int old, after;

	for (unsigned int rank = 0; rank < r->nranks; rank++)
		codes[rank] = area_tail(&pipe_areas.codes[rank], padded * r->bits / 8);
	*saturated = 0;
	memset(exp, 0, blocks);
	old = set_mxcsr(r->mxcsr);
	for (unsigned int rank = 0; rank < r->nranks && is_float(r->dtype); rank++) {
		k->exponents(other, src[rank], r->n, r->dtype, r->bits);
		k->max_bytes(exp, other, blocks);
	}
	for (unsigned int rank = 0; rank < r->nranks; rank++)
		*saturated += k->encode(codes[rank], src[rank], is_float(r->dtype) ? exp : NULL,
					r->n, r->dtype, r->bits, r->parity);
	k->reduce(reduced, (const void *const *)codes, r->nranks, r->n, r->bits, r->redop);
	k->decode(dst, reduced, is_float(r->dtype) ? exp : NULL, r->n, r->dtype, r->bits, r->redop,
		  r->nranks, r->parity, r->stream);
	after = set_mxcsr(old);
	if (r->mxcsr)
		assert_int_equal(after, r->mxcsr);
	for (unsigned int rank = 0; rank < r->nranks; rank++) {
		assert_margin(src[rank]);
		assert_margin(codes[rank]);
	}
	assert_margin(exp);
	assert_margin(other);
	assert_margin(reduced);
	assert_margin(dst);
	for (size_t i = r->n * dst_size(r->dtype, r->redop); i < dst_bytes; i++)
		assert_int_equal(((uint8_t *)dst)[i], MARGIN_BYTE);
	return dst;
}

static void fail_request(const struct fabric_kernels *k, const struct request *r,
			 const uint8_t *want, const uint8_t *got)
{
	size_t size = dst_size(r->dtype, r->redop), i = 0;

	while (!memcmp(want + i * size, got + i * size, size))
		i++;
	print_error("%s: dtype %d redop %d bits %u nranks %u parity %u n %zu stream %d: [%zu]",
		    k->name, r->dtype, r->redop, r->bits, r->nranks, r->parity, r->n, r->stream, i);
	for (size_t byte = size; byte-- > 0;)
		print_error("%s%02x", byte == size - 1 ? " want " : "", want[i * size + byte]);
	for (size_t byte = size; byte-- > 0;)
		print_error("%s%02x", byte == size - 1 ? " got " : "", got[i * size + byte]);
	print_error("\n");
	fail();
}

/* Every table against the reference. */
static void check_request(const struct request *r, const void *const *src)
{
	static uint8_t want[4 * 65536];
	struct optinc_result result;
	uint32_t saturated;
	void *got;

	assert_int_equal(optinc_reference_allreduce(src, want, r->nranks, r->n, r->dtype, r->redop,
						    r->bits, r->parity ? OPTINC_SQE_PARITY : 0,
						    &result), 0);
	for (size_t t = 0; t < ntables; t++) {
		got = run_kernels(tables[t], r, src, &saturated);
		if (memcmp(want, got, r->n * dst_size(r->dtype, r->redop)))
			fail_request(tables[t], r, want, got);
		assert_int_equal(saturated, result.saturated);
	}
}

static void set_element(void *src, size_t i, enum optinc_dtype dtype, uint32_t pattern)
{
	uint16_t word = pattern;

	if (src_size(dtype) == 4)
		memcpy((uint8_t *)src + 4 * i, &pattern, 4);
	else if (src_size(dtype) == 2)
		memcpy((uint8_t *)src + 2 * i, &word, 2);
	else
		((uint8_t *)src)[i] = pattern;
}

static unsigned int fraction_bits(enum optinc_dtype dtype)
{
	return dtype == OPTINC_F32 ? 23 : dtype == OPTINC_F16 ? 10 : 7;
}

/* A finite pattern of biased exponent @biased, its fraction full, short (ties), or zero. */
static uint32_t random_float(enum optinc_dtype dtype, unsigned int biased)
{
	unsigned int width = fraction_bits(dtype);
	uint32_t fraction = random32() & ((1u << width) - 1);
	uint32_t sign = random32() & 1;

	switch (random32() % 4) {
	case 0:		/* few leading ones: ties */
		fraction &= ~0u << (random32() % (width + 1));
		break;
	case 1:		/* just below a power of two: clipping */
		fraction |= (1u << width) - 1 - (random32() & 3);
		break;
	}
	return sign << (dtype == OPTINC_F16 ? 15 : width + 8) | biased << width | fraction;
}

/* A block around one exponent; some of zeros, some subnormal, some with NaN or Inf. */
static void random_float_block(void *src, size_t at, size_t n, enum optinc_dtype dtype)
{
	unsigned int special = dtype == OPTINC_F16 ? 31 : 255;
	unsigned int top = random32() % 3 ? random32() % special : random32() % 20;
	unsigned int spread = random32() % 3 ? 10 : 30;
	uint32_t kind = random32() % 16;

	if (random32() % 8 == 0)
		top = special - 1 - random32() % 2;
	if (top >= special)
		top = special - 1;
	for (size_t i = at; i < at + n; i++) {
		unsigned int below = random32() % spread;
		unsigned int biased = kind == 1 || below > top ? 0 : top - below;
		uint32_t pattern = random_float(dtype, biased);

		if (kind == 0)
			pattern = (random32() & 1) << (8 * src_size(dtype) - 1);
		set_element(src, i, dtype, pattern);
	}
	if (kind == 2)		/* Inf or NaN somewhere */
		set_element(src, at + random32() % n, dtype,
			    special << fraction_bits(dtype) | (random32() & 1));
}

static void random_elements(void *src, size_t n, enum optinc_dtype dtype)
{
	for (size_t at = 0; at < n; at += OPTINC_BLOCK) {
		size_t len = n - at < OPTINC_BLOCK ? n - at : OPTINC_BLOCK;

		if (is_float(dtype)) {
			random_float_block(src, at, len, dtype);
			continue;
		}
		for (size_t i = at; i < at + len; i++)
			set_element(src, i, dtype, random32() % 8 ? random32() : 0x8080 & ~0x7fu);
	}
}

static void random_request(struct request *r)
{
	static const unsigned int modes[] = {
#if defined(__x86_64__)
		HOSTILE_MXCSR, ROUND_UP_MXCSR, UNMASKED_MXCSR,
#endif
		0,
	};

	r->redop = random32() % 2 ? OPTINC_SUM : OPTINC_MEAN;
	r->nranks = 2 + random32() % 15;
	r->parity = random32() % 2;
	r->skew = random32() % 20;
	r->mxcsr = modes[random32() % (sizeof(modes) / sizeof(*modes))];
	r->n = random32() % 4 ? 1 + random32() % 300 : 1 + random32() % MAX_N;
	r->stream = random32() % 2;
}

static void check_random(enum optinc_dtype dtype, unsigned int bits, unsigned int times)
{
	struct request r = { .dtype = dtype, .bits = bits };
	const void *src[OPTINC_MAX_RANKS];

	while (times--) {
		random_request(&r);
		for (unsigned int rank = 0; rank < r.nranks; rank++) {
			void *p = area_tail(&pipe_areas.src[rank], r.n * src_size(dtype));

			random_elements(p, r.n, dtype);
			src[rank] = p;
		}
		check_request(&r, src);
	}
}

static void test_random_f32(void **state)
{
	(void)state;
	check_random(OPTINC_F32, 8, 1500);
	check_random(OPTINC_F32, 16, 1500);
}

static void test_random_f16(void **state)
{
	(void)state;
	check_random(OPTINC_F16, 8, 1500);
	check_random(OPTINC_F16, 16, 1500);
}

static void test_random_bf16(void **state)
{
	(void)state;
	check_random(OPTINC_BF16, 8, 1500);
	check_random(OPTINC_BF16, 16, 1500);
}

static void test_random_integers(void **state)
{
	(void)state;
	check_random(OPTINC_I8, 8, 1000);
	check_random(OPTINC_I16, 16, 1000);
}

/* Every length and every alignment of dst, with and without streaming. */
static void test_lengths(void **state)
{
	static const enum optinc_dtype dtypes[] = {
		OPTINC_F32, OPTINC_F16, OPTINC_BF16, OPTINC_I8, OPTINC_I16,
	};
	const void *src[2];

	(void)state;
	for (size_t d = 0; d < sizeof(dtypes) / sizeof(*dtypes); d++) {
		struct request r = { .dtype = dtypes[d], .nranks = 2, .redop = OPTINC_SUM };

		r.bits = dtypes[d] == OPTINC_I16 ? 16 : 8;
		for (r.n = 1; r.n <= 2 * OPTINC_BLOCK + 80; r.n++) {
			r.skew = r.n * 7 % 17;
			r.stream = r.n / 2 % 2;
			for (int rank = 0; rank < 2; rank++) {
				void *p = area_tail(&pipe_areas.src[rank],
						    r.n * src_size(r.dtype));

				random_elements(p, r.n, r.dtype);
				src[rank] = p;
			}
			check_request(&r, src);
		}
	}
}

/* Each pattern alone in its block beside a zero, then next to its neighbours. */
static void check_all_patterns(enum optinc_dtype dtype, unsigned int bits)
{
	struct request r = { .dtype = dtype, .bits = bits, .nranks = 2, .n = 1 };
	uint16_t *a, *b;
	const void *src[2];

	a = area_tail(&pipe_areas.src[0], sizeof(*a));
	b = area_tail(&pipe_areas.src[1], sizeof(*b));
	src[0] = a;
	src[1] = b;
	*b = 0;
	for (uint32_t pattern = 0; pattern < 65536; pattern++) {
		*a = pattern;
		r.redop = pattern % 3 ? OPTINC_MEAN : OPTINC_SUM;
		r.parity = pattern / 2 % 2;
		check_request(&r, src);
	}
	r.n = 65536;
	a = area_tail(&pipe_areas.src[0], r.n * sizeof(*a));
	b = area_tail(&pipe_areas.src[1], r.n * sizeof(*b));
	src[0] = a;
	src[1] = b;
	for (uint32_t i = 0; i < 65536; i++) {
		a[i] = i;
		b[i] = (i & 0xff00) | (random32() & 0xff);
	}
	r.redop = OPTINC_MEAN;
	check_request(&r, src);
	r.redop = OPTINC_SUM;
	check_request(&r, src);
}

static void test_all_f16(void **state)
{
	(void)state;
	check_all_patterns(OPTINC_F16, 8);
	check_all_patterns(OPTINC_F16, 16);
}

static void test_all_bf16(void **state)
{
	(void)state;
	check_all_patterns(OPTINC_BF16, 8);
	check_all_patterns(OPTINC_BF16, 16);
}

static void test_all_integers(void **state)
{
	struct request r8 = { .dtype = OPTINC_I8, .bits = 8, .nranks = 2, .n = 65536 };
	struct request r16 = { .dtype = OPTINC_I16, .bits = 16, .nranks = 2, .n = 65536 };
	int8_t *a8 = area_tail(&pipe_areas.src[0], r8.n);
	int8_t *b8 = area_tail(&pipe_areas.src[1], r8.n);
	const void *src[2] = { a8, b8 };
	int16_t *a16, *b16;

	(void)state;
	for (uint32_t i = 0; i < 65536; i++) {
		a8[i] = i >> 8;
		b8[i] = i;
	}
	for (r8.parity = 0; r8.parity < 2; r8.parity++)
		check_request(&r8, src);
	src[0] = a16 = area_tail(&pipe_areas.src[0], r16.n * 2);
	src[1] = b16 = area_tail(&pipe_areas.src[1], r16.n * 2);
	for (uint32_t i = 0; i < 65536; i++) {
		a16[i] = i;
		b16[i] = i * 40503u;
	}
	for (r16.parity = 0; r16.parity < 2; r16.parity++)
		check_request(&r16, src);
}

/* Codes of @nranks ranks whose totals are first, first + 1 and so on. */
static void set_totals(void *const *codes, unsigned int nranks, unsigned int bits, uint32_t first,
		       size_t n)
{
	uint32_t largest = (1u << bits) - 1;

	for (size_t i = 0; i < n; i++) {
		uint32_t total = first + i;

		for (unsigned int rank = 0; rank < nranks; rank++) {
			uint32_t left = nranks - rank - 1;
			uint32_t code = total / (left + 1);

			if (random32() % 2)	/* as much as can be */
				code = total < largest ? total : largest;
			if (bits == 8)
				((uint8_t *)codes[rank])[i] = code;
			else
				((uint16_t *)codes[rank])[i] = code;
			total -= code;
		}
	}
}

static uint32_t get_result(const void *reduced, size_t i, size_t size)
{
	return size == 1 ? ((const uint8_t *)reduced)[i] :
	       size == 2 ? ((const uint16_t *)reduced)[i] : ((const uint32_t *)reduced)[i];
}

static void check_totals(unsigned int nranks, unsigned int bits, uint32_t first, size_t n)
{
	void *codes[OPTINC_MAX_RANKS];

	for (unsigned int rank = 0; rank < nranks; rank++)
		codes[rank] = area_tail(&pipe_areas.codes[rank], round_up_64(n) * bits / 8);
	set_totals(codes, nranks, bits, first, n);
	for (size_t t = 0; t < ntables; t++) {
		void *mean = area_tail(&pipe_areas.dst, round_up_64(n) * bits / 8);
		void *sum = area_tail(&pipe_areas.reduced, round_up_64(n) * bits / 4);

		tables[t]->reduce(mean, (const void *const *)codes, nranks, n, bits, OPTINC_MEAN);
		tables[t]->reduce(sum, (const void *const *)codes, nranks, n, bits, OPTINC_SUM);
		for (size_t i = 0; i < n; i++) {
			uint32_t total = first + i;

			assert_int_equal(get_result(sum, i, bits / 4), total);
			assert_int_equal(get_result(mean, i, bits / 8),
					 (total + nranks / 2) / nranks);
		}
	}
}

/* The rounded mean is exact for every total there can be. */
static void test_all_totals(void **state)
{
	(void)state;
	for (unsigned int nranks = 2; nranks <= OPTINC_MAX_RANKS; nranks++) {
		check_totals(nranks, 8, 0, nranks * 255 + 1);
		for (unsigned int part = 0; part < nranks; part++)
			check_totals(nranks, 16, part * 65535, 65536);
	}
}

/* The averages of averages: every four bytes near each other, at every height. */
static void test_mean_of_four(void **state)
{
	size_t n = 65536;
	void *codes[4];

	(void)state;
	for (int rank = 0; rank < 4; rank++)
		codes[rank] = area_tail(&pipe_areas.codes[rank], n);
	for (size_t i = 0; i < n; i++)
		for (int rank = 0; rank < 4; rank++)
			((uint8_t *)codes[rank])[i] = (i >> 8) + (i >> (2 * rank) & 3);
	for (size_t t = 0; t < ntables; t++) {
		uint8_t *mean = area_tail(&pipe_areas.dst, n);

		tables[t]->reduce(mean, (const void *const *)codes, 4, n, 8, OPTINC_MEAN);
		for (size_t i = 0; i < n; i++) {
			unsigned int total = 2;

			for (int rank = 0; rank < 4; rank++)
				total += ((uint8_t *)codes[rank])[i];
			assert_int_equal(mean[i], total / 4);
		}
	}
}

/* Wrong symbols may deliver any result, also one that no codes have: all tables agree. */
static void test_any_results(void **state)
{
	static const enum optinc_dtype dtypes[] = {
		OPTINC_F32, OPTINC_F16, OPTINC_BF16, OPTINC_I8, OPTINC_I16,
	};
	static uint8_t want[4 * MAX_N];

	(void)state;
	for (int times = 0; times < 2000; times++) {
		enum optinc_dtype dtype = dtypes[times % 5];
		unsigned int bits = dtype == OPTINC_I8 ? 8 : dtype == OPTINC_I16 ? 16 :
				    random32() % 2 ? 8 : 16;
		enum optinc_redop redop = random32() % 2 ? OPTINC_MEAN : OPTINC_SUM;
		unsigned int nranks = 2 + random32() % 15, parity = random32() % 2;
		size_t n = 1 + random32() % MAX_N, size = result_size(bits, redop);
		size_t bytes = n * dst_size(dtype, redop);
		uint8_t *reduced = area_tail(&pipe_areas.reduced, round_up_64(n) * size);
		uint8_t *exp = area_tail(&pipe_areas.exp[0], (n + 255) / 256);

		for (size_t i = 0; i < n * size; i++)
			reduced[i] = random32();
		if (size == 4)
			for (size_t i = 0; i < n; i++)
				((uint32_t *)reduced)[i] %= nranks * 65535 + 1;
		for (size_t i = 0; i < (n + 255) / 256; i++)
			exp[i] = random32();
		for (size_t t = 0; t < ntables; t++) {
			void *dst = area_tail(&pipe_areas.dst, bytes);

			tables[t]->decode(dst, reduced, exp, n, dtype, bits, redop, nranks, parity,
					  times & 1);
			assert_margin(dst);
			if (t == 0)
				memcpy(want, dst, bytes);
			assert_memory_equal(dst, want, bytes);
		}
	}
}

/* One large element anywhere among small ones is found, at every length. */
static void test_exponents_find_any(void **state)
{
	(void)state;
	for (size_t n = 1; n <= OPTINC_BLOCK; n++) {
		float *src = area_tail(&pipe_areas.src[0], n * sizeof(*src));
		uint16_t *src16 = area_tail(&pipe_areas.src[1], n * sizeof(*src16));

		for (size_t at = 0; at < n; at++) {
			for (size_t i = 0; i < n; i++) {
				src[i] = i == at ? -4.0f : 1.0f;
				src16[i] = i == at ? 0xc400 : 0x3c00;	/* the same in f16 */
			}
			for (size_t t = 0; t < ntables; t++) {
				uint8_t *exp = area_tail(&pipe_areas.exp[0], 1);

				tables[t]->exponents(exp, src, n, OPTINC_F32, 8);
				assert_int_equal(*exp, 127 + 3 - 7);	/* frexp(4) is 3 */
				tables[t]->exponents(exp, src16, n, OPTINC_F16, 16);
				assert_int_equal(*exp, 127 + 3 - 15);
			}
		}
	}
}

static void test_max_bytes(void **state)
{
	uint8_t want[300];

	(void)state;
	for (size_t n = 1; n <= sizeof(want); n++) {
		for (size_t t = 0; t < ntables; t++) {
			uint8_t *dst = area_tail(&pipe_areas.dst, n);
			uint8_t *src = area_tail(&pipe_areas.src[0], n);

			for (size_t i = 0; i < n; i++) {
				dst[i] = random32();
				src[i] = random32();
				want[i] = dst[i] > src[i] ? dst[i] : src[i];
			}
			tables[t]->max_bytes(dst, src, n);
			assert_memory_equal(dst, want, n);
			assert_margin(dst);
		}
	}
}

static void test_votes(void **state)
{
	static const unsigned int flags[] = {
		0, OPTINC_SQE_SIGN, OPTINC_SQE_SIGN | OPTINC_SQE_ABSTAIN,
	};
	static uint8_t want[MAX_N];

	(void)state;
	for (int times = 0; times < 6000; times++) {
		unsigned int flag = flags[times % 3], nranks = 2 + random32() % 15;
		size_t n = 1 + random32() % (random32() % 2 ? 130 : MAX_N);
		size_t bytes = flag == OPTINC_SQE_SIGN ? (n + 7) / 8 : n;
		uint8_t *dst = area_tail(&pipe_areas.dst, bytes);
		const uint8_t *votes[OPTINC_MAX_RANKS];

		for (unsigned int rank = 0; rank < nranks; rank++) {
			uint8_t *p = area_tail(&pipe_areas.src[rank], (n + 7) / 8);
			uint32_t bias = random32();

			for (size_t i = 0; i < (n + 7) / 8; i++)
				p[i] = bias % 4 == 0 ? 0 : bias % 4 == 1 ? 0xff : random32();
			votes[rank] = p;
		}
		assert_int_equal(optinc_reference_allreduce((const void *const *)votes, want,
							    nranks, n, OPTINC_BIT, OPTINC_VOTE, 8,
							    flag, NULL), 0);
		fabric_kernels_vote(dst, votes, nranks, n, flag);
		assert_memory_equal(dst, want, bytes);
		assert_margin(dst);
	}
}

static void test_select(void **state)
{
	const struct fabric_kernels *best = fabric_kernels_select(NULL);

	(void)state;
	assert_non_null(best);
	assert_ptr_equal(best, fabric_kernels_select(NULL));
	assert_null(fabric_kernels_select("none"));
	assert_non_null(fabric_kernels_select("c"));
	assert_string_equal(fabric_kernels_select("c")->name, "c");
	for (size_t t = 0; t < ntables; t++)
		assert_ptr_equal(fabric_kernels_select(tables[t]->name), tables[t]);
}

int main(void)
{
	static const char *const names[] = { "c", "avx2", "avx512" };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_select),
		cmocka_unit_test(test_exponents_find_any),
		cmocka_unit_test(test_max_bytes),
		cmocka_unit_test(test_all_totals),
		cmocka_unit_test(test_mean_of_four),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_any_results),
		cmocka_unit_test(test_all_f16),
		cmocka_unit_test(test_all_bf16),
		cmocka_unit_test(test_all_integers),
		cmocka_unit_test(test_random_f32),
		cmocka_unit_test(test_random_f16),
		cmocka_unit_test(test_random_bf16),
		cmocka_unit_test(test_random_integers),
		cmocka_unit_test(test_votes),
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const struct fabric_kernels *k = fabric_kernels_select(names[i]);

		if (k)
			tables[ntables++] = k;
		else
			print_message("kernels \"%s\": not on this processor\n", names[i]);
	}
	return cmocka_run_group_tests(tests, create_areas, destroy_areas);
}
