// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * All-reduce against Open MPI, in one run: same processes, same buffers, out
 * of place, the two in turns. MPI's result is a float32 sum; ours is the mean
 * in the 8-bit format of Documentation/number-format.rst.
 *
 * usage: mpirun -np N bench_mpi [MAX_BYTES]
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <optinc/optinc.h>

#define ROUNDS	9

struct bench {
	int rank, ranks;
	struct optinc_group *group;
	float *send, *recv;
};

static void die(const char *what)
{
	fprintf(stderr, "bench_mpi: %s: %s\n", what, optinc_last_error());
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void run_mpi(struct bench *b, size_t count)
{
	MPI_Allreduce(b->send, b->recv, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void run_optinc(struct bench *b, size_t count)
{
	if (optinc_allreduce(b->group, b->send, b->recv, count, OPTINC_F32, OPTINC_MEAN, NULL,
			     NULL))
		die("all-reduce");
}

/* Microseconds a call, of the slowest rank. */
static double time_us(struct bench *b, void (*run)(struct bench *, size_t), size_t count,
		      int iterations)
{
	double start, mine, slowest;

	run(b, count);
	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	for (int i = 0; i < iterations; i++)
		run(b, count);
	mine = (MPI_Wtime() - start) / iterations * 1e6;
	MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return slowest;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v)
{
	qsort(v, ROUNDS, sizeof(*v), by_value);
	return v[ROUNDS / 2];
}

static int iterations_for(size_t bytes)
{
	size_t n = (8u << 20) / (bytes + 2048);

	return n > 2000 ? 2000 : n < 3 ? 3 : (int)n;
}

static void compare(struct bench *b, size_t bytes)
{
	double mpi[ROUNDS], optinc[ROUNDS], ratio[ROUNDS];
	int iterations = iterations_for(bytes);

	for (int i = 0; i < ROUNDS; i++) {
		mpi[i] = time_us(b, run_mpi, bytes / 4, iterations);
		optinc[i] = time_us(b, run_optinc, bytes / 4, iterations);
		ratio[i] = mpi[i] / optinc[i];
	}
	qsort(ratio, ROUNDS, sizeof(*ratio), by_value);
	if (!b->rank)
		printf("%12zu %12.2f %12.2f %9.2f %9.2f..%.2f\n", bytes, median(mpi),
		       median(optinc), ratio[ROUNDS / 2], ratio[0], ratio[ROUNDS - 1]);
	fflush(stdout);
}

static struct optinc_card *open_card(struct bench *b)
{
	struct optinc_group_params params = { .rank = (unsigned int)b->rank,
					      .nranks = (unsigned int)b->ranks };
	struct optinc_card *card;
	char uri[128];
	int id = 0;

	if (!b->rank) {
		if (optinc_key_generate(params.key))
			die("key");
		memcpy(&id, params.key, sizeof(id));
	}
	MPI_Bcast(params.key, sizeof(params.key), MPI_BYTE, 0, MPI_COMM_WORLD);
	MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD);
	snprintf(uri, sizeof(uri), "emu:bench-%08x?port=%d&ports=%d", (unsigned int)id, b->rank,
		 b->ranks);
	if (optinc_open(uri, &card))
		die("open");
	if (optinc_group_join(card, &params, sizeof(params), &b->group))
		die("join");
	return card;
}

int main(int argc, char **argv)
{
	size_t max = argc > 1 ? strtoul(argv[1], NULL, 0) : 64u << 20;
	struct optinc_card *card;
	struct optinc_mr *mr;
	struct bench b;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &b.ranks);
	b.send = aligned_alloc(4096, max);
	b.recv = aligned_alloc(4096, max);
	if (!b.send || !b.recv)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (size_t i = 0; i < max / 4; i++)
		b.send[i] = (float)((int)((i * 2654435761u + (unsigned int)b.rank * 977) % 2001) -
				    1000) * 1e-3f;
	memset(b.recv, 0, max);
	card = open_card(&b);
	if (optinc_mr_register(card, b.send, max, 0, &mr) ||
	    optinc_mr_register(card, b.recv, max, OPTINC_MR_WRITE, &mr))
		die("register");
	if (!b.rank)
		printf("# %d ranks; MPI: float32 sum; optinc: mean in the 8-bit format, emulated cards\n"
		       "# medians of %d rounds, the two in turns; ratio = MPI / optinc, min..max\n"
		       "%12s %12s %12s %9s\n", b.ranks, ROUNDS, "bytes", "MPI us", "optinc us",
		       "ratio");
	for (size_t bytes = 8; bytes <= max; bytes *= bytes < (1u << 12) ? 8 : 4)
		compare(&b, bytes);
	optinc_close(card);
	MPI_Finalize();
	free(b.send);
	free(b.recv);
	return 0;
}
