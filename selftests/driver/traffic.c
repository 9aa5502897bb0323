// SPDX-License-Identifier: GPL-2.0-only
/*
 * Traffic for as long as it is let: a process for each card, all of one group,
 * reducing integers of which every sum is known. Whatever befalls a card, its
 * process closes it, opens it again when it is back, and all begin anew.
 *
 * usage: traffic CARDS STATUS-FILE
 *
 * The file has, anew twenty times a second, "ok N wrong N errors N joins N".
 * Ends at SIGTERM. Fails if a sum was wrong, an error was not of those that the
 * library documents, a process hangs, or nothing was ever right.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <optinc/optinc.h>

#define MOST_CARDS	16
#define MOST		(256 * 1024)	/* elements of a request */
#define DEADLINE_MS	1500		/* of a join that a card drops out of, too */
#define END_S		60		/* from SIGTERM to the last process's end */

static struct shared {
	atomic_bool end;
	atomic_uint generation;		/* of the group; what failed begins the next */
	atomic_ulong ok, wrong, errors, joins, unexpected;
	uint8_t key[OPTINC_KEY_BYTES];
} *shared;

static unsigned int ranks, rank;

static uint32_t mix(uint32_t x)
{
	x ^= x >> 16;
	x *= 0x7feb352dU;
	x ^= x >> 15;
	x *= 0x846ca68bU;
	return x ^ x >> 16;
}

/* A rank's element: within +-31, so that sums of four fit wherever they have to */
static int8_t element(unsigned int r, uint32_t seed, size_t i)
{
	return (int8_t)((seed + r * 37 + i * (2 * r + 3)) % 63) - 31;
}

/* All but nothing can go wrong with a card under one's feet. */
static bool is_documented(int error)
{
	switch (-error) {
	case ENODEV:
	case ENOENT:
	case ENXIO:
	case EIO:
	case EBUSY:
	case ETIMEDOUT:
	case ECONNRESET:
	case ECONNABORTED:
	case ENOLINK:
	case ESTALE:
	case EPROTO:
	case EAGAIN:
		return true;
	}
	return false;
}

static void count_error(const char *what, int error)
{
	atomic_fetch_add(&shared->errors, 1);
	if (is_documented(error))
		return;
	if (atomic_fetch_add(&shared->unexpected, 1) < 20)
		fprintf(stderr, "# rank %u: %s: %d: %s\n", rank, what, error,
			optinc_last_error());
}

static bool reduce_once(struct optinc_group *group, const int8_t *codes, int16_t *sums,
			uint32_t seed, size_t count)
{
	unsigned int r;
	int error, sum;
	size_t i;

	error = optinc_allreduce(group, codes, sums, count, OPTINC_I8, OPTINC_SUM, NULL, NULL);
	if (error) {
		count_error("allreduce", error);
		return false;
	}
	for (i = 0; i < count; i += 1 + i % 7) {
		for (r = 0, sum = 0; r < ranks; r++)
			sum += element(r, seed, i);
		if (sums[i] == sum)
			continue;
		fprintf(stderr, "# rank %u: element %zu of %zu is %d, not %d\n", rank, i, count,
			sums[i], sum);
		atomic_fetch_add(&shared->wrong, 1);
		return true;
	}
	atomic_fetch_add(&shared->ok, 1);
	return true;
}

/* Rounds of one group, until something happens to one of its cards */
static void rounds(struct optinc_group *group, unsigned int generation)
{
	static int8_t codes[MOST];
	static int16_t sums[MOST];
	uint32_t round, seed;
	size_t i, count;

	for (round = 0; atomic_load(&shared->generation) == generation; round++) {
		seed = mix(generation * 8191 + round);
		count = 1 + seed % (seed % 16 ? 2048 : MOST);
		for (i = 0; i < count; i++)
			codes[i] = element(rank, seed, i);
		/* the end is a generation too: so all end after the same round */
		if (!reduce_once(group, codes, sums, seed, count))
			return;
	}
}

static void one_generation(void)
{
	unsigned int generation = atomic_load(&shared->generation);
	struct optinc_group_params params = {
		.rank = rank, .nranks = ranks, .deadline_ms = DEADLINE_MS,
	};
	struct optinc_group *group;
	struct optinc_card *card;
	char uri[32];
	int error;

	snprintf(uri, sizeof(uri), "card:%u", rank);
	error = optinc_open(uri, &card);
	if (error) {
		count_error("open", error);
		usleep(20000);
		return;
	}
	memcpy(params.key, shared->key, sizeof(params.key));
	memcpy(params.key, &generation, sizeof(generation));
	error = optinc_group_join(card, &params, sizeof(params), &group);
	if (error) {
		count_error("join", error);
	} else {
		atomic_fetch_add(&shared->joins, 1);
		rounds(group, generation);
		optinc_group_leave(group);
	}
	optinc_close(card);
	atomic_compare_exchange_strong(&shared->generation, &generation, generation + 1);
}

static void run_rank(void)
{
	while (!atomic_load(&shared->end))
		one_generation();
	exit(0);
}

static void end(int signal)
{
	(void)signal;
	atomic_store(&shared->end, true);
	atomic_fetch_add(&shared->generation, 1);
}

static void write_status(const char *path)
{
	char next[256];
	FILE *file;

	snprintf(next, sizeof(next), "%s.new", path);
	file = fopen(next, "w");
	if (!file)
		return;
	fprintf(file, "ok %lu wrong %lu errors %lu joins %lu\n", atomic_load(&shared->ok),
		atomic_load(&shared->wrong), atomic_load(&shared->errors),
		atomic_load(&shared->joins));
	fclose(file);
	rename(next, path);
}

/* How many are left END_S after the end was asked for, or did not end well */
static unsigned int supervise(const char *status_file)
{
	unsigned int left = ranks, bad = 0;
	time_t asked = 0;
	int status;

	while (left) {
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid > 0) {
			left--;
			bad += status != 0;
			if (status)
				fprintf(stderr, "# a process ended with %#x\n", status);
			continue;
		}
		if (atomic_load(&shared->end)) {
			if (!asked)
				asked = time(NULL);
			if (time(NULL) > asked + END_S)
				return left + bad;
		}
		write_status(status_file);
		usleep(50000);
	}
	write_status(status_file);
	return bad;
}

int main(int argc, char **argv)
{
	unsigned int bad;

	ranks = argc == 3 ? (unsigned int)atoi(argv[1]) : 0;
	if (ranks < 2 || ranks > MOST_CARDS) {
		fprintf(stderr, "usage: traffic CARDS STATUS-FILE\n");
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED || optinc_key_generate(shared->key))
		return 1;
	for (rank = 0; rank < ranks; rank++) {
		pid_t pid = fork();

		if (pid < 0)
			return 1;
		if (!pid)
			run_rank();
	}
	signal(SIGTERM, end);
	bad = supervise(argv[2]);
	printf("# traffic: %lu right, %lu wrong, %lu errors (%lu unexpected), %lu joins, %u bad ends\n",
	       atomic_load(&shared->ok), atomic_load(&shared->wrong), atomic_load(&shared->errors),
	       atomic_load(&shared->unexpected), atomic_load(&shared->joins), bad);
	return bad || atomic_load(&shared->wrong) || atomic_load(&shared->unexpected) ||
	       !atomic_load(&shared->ok);
}
