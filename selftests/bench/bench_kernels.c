// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How fast the kernels of the fabric are: GB/s of elements (of codes, for
 * reduce) per table and size, and the ratio to memcpy() of as many bytes in
 * the same run. The small sizes stay in the cache; "stream" goes through a
 * large array in chunks, as a large request does.
 *
 *	bench_kernels [f32|f16|bf16 [8|16 [mean|sum]]]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../emulator/fabric/kernels.h"

#define CHUNK		32768
#define LARGE		(16u << 20)	/* elements */
#define MAX_TABLES	3
#define REPEAT		7

/**
 * struct bench - arrays and the case at hand
 * @n: elements of one call, of @total
 */
struct bench {
	const struct fabric_kernels *table;
	enum optinc_dtype dtype;
	enum optinc_redop redop;
	unsigned int bits, nranks;
	size_t n, total, size;
	uint8_t *src, *dst, *exp, *reduced;
	void *codes[OPTINC_MAX_RANKS];
	bool stream;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void run_memcpy(struct bench *b, size_t at)
{
	memcpy(b->dst + at * b->size, b->src + at * b->size, b->n * b->size);
	__asm__ volatile("" ::: "memory");
}

static void run_exponents(struct bench *b, size_t at)
{
	b->table->exponents(b->exp, b->src + at * b->size, b->n, b->dtype, b->bits);
}

static void run_encode(struct bench *b, size_t at)
{
	b->table->encode(b->codes[0], b->src + at * b->size, b->exp, b->n, b->dtype, b->bits, 0);
}

static void run_prepare(struct bench *b, size_t at)
{
	run_exponents(b, at);
	run_encode(b, at);
}

static void run_reduce(struct bench *b, size_t at)
{
	(void)at;
	b->table->reduce(b->reduced, (const void *const *)b->codes, b->nranks, b->n, b->bits,
			 b->redop);
}

static void run_decode(struct bench *b, size_t at)
{
	b->table->decode(b->dst + at * b->size, b->reduced, b->exp, b->n, b->dtype, b->bits,
			 b->redop, b->nranks, 0, b->stream);
}

/* Seconds of one call, the best of several measurements of about a millisecond. */
static double measure(struct bench *b, void (*run)(struct bench *b, size_t at))
{
	size_t calls = b->total / b->n, rounds = calls > 1 ? 1 : 4 + (1u << 21) / b->n / 4;
	double best = 1e9;

	for (int repeat = 0; repeat < REPEAT; repeat++) {
		double start = now(), took;

		for (size_t round = 0; round < rounds; round++)
			for (size_t at = 0; at < b->total; at += b->n)
				run(b, at);
		took = (now() - start) / rounds / calls;
		best = took < best ? took : best;
	}
	return best;
}

static void report(struct bench *b, const char *kernel, void (*run)(struct bench *b, size_t at),
		   size_t size, double copy)
{
	double took = measure(b, run);

	printf("%-7s %-14s %8zu %9.1f ns %7.1f GB/s  %5.2f of memcpy\n",
	       b->table ? b->table->name : "-", kernel, b->n, took * 1e9, b->n * size / took / 1e9,
	       copy * size / b->size / took);
}

static void bench_cached(struct bench *b, const struct fabric_kernels *const *tables, size_t n)
{
	static const unsigned int ranks[] = { 2, 3, 4, 8, 16 };
	char name[32];
	double copy;

	b->n = b->total = n;
	b->stream = false;
	copy = measure(b, run_memcpy);
	printf("memcpy of %zu elements: %.1f ns, %.1f GB/s\n", n, copy * 1e9,
	       n * b->size / copy / 1e9);
	for (size_t t = 0; tables[t]; t++) {
		b->table = tables[t];
		report(b, "exponents", run_exponents, b->size, copy);
		report(b, "encode", run_encode, b->size, copy);
		for (size_t i = 0; i < sizeof(ranks) / sizeof(*ranks); i++) {
			b->nranks = ranks[i];
			snprintf(name, sizeof(name), "reduce N=%u", b->nranks);
			report(b, name, run_reduce, b->nranks * b->bits / 8, copy);
		}
		b->nranks = 2;
		report(b, "decode", run_decode, b->size, copy);
	}
}

static void bench_large(struct bench *b, const struct fabric_kernels *const *tables)
{
	double copy;

	b->n = CHUNK;
	b->total = LARGE;
	copy = measure(b, run_memcpy);
	printf("memcpy of %u elements, by chunks: %.1f GB/s\n", LARGE,
	       CHUNK * b->size / copy / 1e9);
	for (size_t t = 0; tables[t]; t++) {
		b->table = tables[t];
		report(b, "exp+encode", run_prepare, b->size, copy);
		b->stream = false;
		report(b, "decode", run_decode, b->size, copy);
		b->stream = true;
		report(b, "decode stream", run_decode, b->size, copy);
		b->dst += 16;
		report(b, "  from 16", run_decode, b->size, copy);
		b->dst -= 16;
	}
}

static void *allocate(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

	if (!p) {
		perror("bench_kernels");
		exit(1);
	}
	memset(p, 0x3c, bytes);
	return p;
}

static void parse(struct bench *b, int argc, char **argv)
{
	b->dtype = OPTINC_F32;
	b->bits = 8;
	b->redop = OPTINC_MEAN;
	if (argc > 1 && strcmp(argv[1], "f32"))
		b->dtype = strcmp(argv[1], "f16") ? OPTINC_BF16 : OPTINC_F16;
	if (argc > 2)
		b->bits = atoi(argv[2]) == 16 ? 16 : 8;
	if (argc > 3 && !strcmp(argv[3], "sum"))
		b->redop = OPTINC_SUM;
	b->size = b->dtype == OPTINC_F32 ? 4 : 2;
	b->nranks = 2;
}

int main(int argc, char **argv)
{
	static const char *const names[MAX_TABLES] = { "c", "avx2", "avx512" };
	static const size_t sizes[] = { 8, 64, 1024, CHUNK };
	const struct fabric_kernels *tables[MAX_TABLES + 1] = { NULL };
	volatile float inexact = 1.0f;
	struct bench b = { 0 };
	size_t count = 0;

	/* The inexact flag is raised in nearly every process; lowering it again costs. */
	inexact = inexact / 3.0f;
	parse(&b, argc, argv);
	for (int i = 0; i < MAX_TABLES; i++) {
		tables[count] = fabric_kernels_select(names[i]);
		count += tables[count] != NULL;
	}
	b.src = allocate(LARGE * b.size);
	b.dst = allocate(LARGE * b.size + 64);
	b.exp = allocate(CHUNK / OPTINC_BLOCK);
	b.reduced = allocate(CHUNK * 4);
	for (int rank = 0; rank < OPTINC_MAX_RANKS; rank++)
		b.codes[rank] = allocate(CHUNK * 2);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		bench_cached(&b, tables, sizes[i]);
	bench_large(&b, tables);
	return 0;
}
