// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Which table of kernels this processor uses, and the votes, which are quick
 * enough in plain C: 64 at a time, bit-sliced.
 */
#include <endian.h>
#include <stdlib.h>

#include "kernels_impl.h"

#ifdef FABRIC_X86
#include <cpuid.h>

static bool cpu_has_f16c(void)
{
	unsigned int eax, ebx, ecx, edx;

	return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

static bool cpu_runs_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c();
}

static bool cpu_runs_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
	       cpu_runs_avx2();
}
#endif

static bool cpu_runs_c(void)
{
	return true;
}

/* Best first. */
static const struct {
	const struct fabric_kernels *table;
	bool (*runs)(void);
} tables[] = {
#ifdef FABRIC_X86
	{ &fabric_kernels_avx512, cpu_runs_avx512 },
	{ &fabric_kernels_avx2, cpu_runs_avx2 },
#endif
	{ &fabric_kernels_c, cpu_runs_c },
};

static const struct fabric_kernels *find_table(const char *name)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		if ((!name || !strcmp(name, tables[i].table->name)) && tables[i].runs())
			return tables[i].table;
	return NULL;
}

const struct fabric_kernels *fabric_kernels_select(const char *name)
{
	static const struct fabric_kernels *chosen;
	const struct fabric_kernels *table;

	if (name)
		return find_table(name);
	table = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
	if (table)
		return table;
	name = getenv("OPTINC_KERNELS");
	table = name ? find_table(name) : NULL;
	if (!table)
		table = find_table(NULL);
	__atomic_store_n(&chosen, table, __ATOMIC_RELAXED);
	return table;
}

#define BYTES(b)	(0x0101010101010101ull * (b))
#define PLANES		5	/* a number of votes, 0..31, in binary */

/* Adds one vote to each of 64 counters whose bit k lies in plane[k]. */
static inline void count_votes(uint64_t *plane, uint64_t votes)
{
	for (int k = 0; k < PLANES; k++) {
		uint64_t carry = plane[k] & votes;

		plane[k] ^= votes;
		votes = carry;
	}
}

static inline uint64_t load_votes(const uint8_t *votes, size_t len)
{
	uint64_t word = 0;

	memcpy(&word, votes, len < sizeof(word) ? len : sizeof(word));
	return le64toh(word);
}

/* The +1 votes at bytes [at, at + len), counted from @start in every counter. */
static void count_ranks(uint64_t *plane, unsigned int start, const uint8_t *const *votes,
			unsigned int nranks, size_t at, size_t len)
{
	for (int k = 0; k < PLANES; k++)
		plane[k] = start >> k & 1 ? ~0ull : 0;
	for (unsigned int rank = 0; rank < nranks; rank++)
		count_votes(plane, load_votes(votes[rank] + at, len));
}

/* Bit j of @bits as byte j, 0 or 1. */
static inline uint64_t bits_to_bytes(uint64_t bits)
{
	uint64_t each = BYTES(bits & 0xff) & 0x8040201008040201ull;

	return (each + BYTES(0x7f)) >> 7 & BYTES(1);
}

/* Eight differences a - b of bytes below 128, as i8. */
static inline uint64_t subtract_bytes(uint64_t a, uint64_t b)
{
	return ((a | BYTES(0x80)) - b) ^ BYTES(0x80);
}

static void store_bytes(void *dst, uint64_t bytes, size_t n)
{
	bytes = htole64(bytes);
	memcpy(dst, &bytes, n < sizeof(bytes) ? n : sizeof(bytes));
}

/* votes for +1 less votes for -1: twice the former less all */
static void store_counts(uint8_t *dst, const uint64_t *plane, unsigned int nranks, size_t n)
{
	for (size_t i = 0; i < n; i += 8) {
		uint64_t twice = 0;

		for (int k = 0; k < PLANES; k++)
			twice += bits_to_bytes(plane[k] >> i) << (k + 1);
		store_bytes(dst + i, subtract_bytes(twice, BYTES(nranks)), n - i);
	}
}

/* @more: +1 has more than half of the votes; @half: at least half */
static void store_signs(uint8_t *dst, uint64_t more, uint64_t half, size_t n)
{
	for (size_t i = 0; i < n; i += 8) {
		uint64_t sum = bits_to_bytes(more >> i) + bits_to_bytes(half >> i);

		store_bytes(dst + i, subtract_bytes(sum, BYTES(1)), n - i);
	}
}

static void store_packed(uint8_t *dst, uint64_t bits, size_t n)
{
	if (n < 64)
		bits &= (1ull << n) - 1;
	store_bytes(dst, bits, (n + 7) / 8);
}

/*
 * A counter that starts at 16 - t has its top bit set once t votes have come,
 * and at most 16 - t + 16 < 32 of them fit.
 */
void fabric_kernels_vote(void *dst, const uint8_t *const *votes, unsigned int nranks, size_t n,
			 unsigned int flags)
{
	unsigned int start_half = 16 - (nranks + 1) / 2;
	unsigned int start_more = 16 - (nranks / 2 + 1);
	bool sign = flags & OPTINC_SQE_SIGN;
	uint64_t plane[PLANES], half;

	for (size_t i = 0; i < n; i += 64) {
		size_t len = n - i < 64 ? n - i : 64;
		size_t bytes = (len + 7) / 8;

		count_ranks(plane, sign ? start_half : 0, votes, nranks, i / 8, bytes);
		if (!sign) {
			store_counts((uint8_t *)dst + i, plane, nranks, len);
			continue;
		}
		half = plane[PLANES - 1];
		if (!(flags & OPTINC_SQE_ABSTAIN)) {
			store_packed((uint8_t *)dst + i / 8, half, len);
			continue;
		}
		count_ranks(plane, start_more, votes, nranks, i / 8, bytes);
		store_signs((uint8_t *)dst + i, plane[PLANES - 1], half, len);
	}
}
