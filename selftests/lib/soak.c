// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Traffic in bulk: four cards, groups of two to four of them with ranks dealt
 * anew, all dtypes and reductions, registered memory or not, in place or not,
 * several requests outstanding in several groups.
 *
 * Every result is compared between the ranks, by a hash of all its bits; and
 * with the reference, in random blocks of it. Sources are windows of a pool of
 * random numbers that all processes see, so that checking costs less than what
 * is checked. At the end no memory is locked or pinned, no context is left, and
 * the cards have counted the requests that were made.
 *
 * usage: soak BYTES[K|M|G] [SEED]	BYTES: what all ranks together send
 *
 * OPTINC_TEST_CARDS is the URI with %d for the card. Prints TAP.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
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

#define CARDS		4
#define GROUPS		3
#define BATCH		4		/* requests outstanding */
#define BATCHES		16		/* of one epoch */
#define POOL		(8U << 20)	/* bytes of random numbers for each rank */
#define MOST		(POOL / 4)	/* elements of a request */
#define SLICES		3		/* of each result, that the reference computes */
#define DEADLINE_MS	60000

static struct shared {
	atomic_uint arrived;
	atomic_bool failed;
	atomic_ullong bytes, requests[CARDS];
	uint64_t hash[BATCH][CARDS];
	char text[512];
} *shared;

static uint8_t *pool[CARDS];		/* by rank, shared */
static unsigned int card_number, nranks, rank, meetings;
static uint64_t common, own;
static struct optinc_card *card;

struct job {
	unsigned int group, bits;
	enum optinc_dtype dtype;
	enum optinc_redop redop;
	struct optinc_options options;
	size_t count, window, send_bytes, result_bytes;
	uint8_t *send, *result;
	struct optinc_mr *send_mr, *result_mr;
	struct optinc_request *request;
};

static uint64_t mix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* The same in all processes; and this one's own */
static unsigned int any(unsigned int below)
{
	return (unsigned int)(mix(&common) % below);
}

static unsigned int mine(unsigned int below)
{
	return (unsigned int)(mix(&own) % below);
}

static void __attribute__((noreturn, format(printf, 1, 2))) bad(const char *format, ...)
{
	va_list args;
	size_t n;

	if (!atomic_exchange(&shared->failed, true)) {
		va_start(args, format);
		vsnprintf(shared->text, sizeof(shared->text), format, args);
		va_end(args);
		n = strlen(shared->text);
		snprintf(shared->text + n, sizeof(shared->text) - n, " [card %u, rank %u of %u: %s]",
			 card_number, rank, nranks, optinc_last_error());
	}
	_exit(1);
}

static void meet(void)
{
	unsigned int want = ++meetings * CARDS;

	atomic_fetch_add(&shared->arrived, 1);
	while (atomic_load(&shared->arrived) < want) {
		if (atomic_load(&shared->failed))
			_exit(1);
		sched_yield();
	}
}

static uint64_t hash(const uint8_t *bytes, size_t n)
{
	uint64_t h = n, word;
	size_t i;

	for (i = 0; i + 8 <= n; i += 8) {
		memcpy(&word, bytes + i, 8);
		h = (h ^ word) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 29;
	}
	for (; i < n; i++)
		h = (h ^ bytes[i]) * 0x100000001b3ull;
	return h;
}

/* Random bits, but floats of magnitudes that meet, with a NaN now and then */
static void fill_pool(unsigned int r, uint64_t seed)
{
	uint64_t state = seed + r;
	uint32_t word;
	size_t i;

	for (i = 0; i < POOL; i += 4) {
		word = (uint32_t)mix(&state);
		if (word % 40009)
			word = (word & 0x83ff83ff) | 0x38003800;
		memcpy(pool[r] + i, &word, 4);
	}
}

/* ---------------------------------------------------------------- requests */

static void choose(struct job *job, unsigned int groups, const unsigned int *bits)
{
	static const enum optinc_dtype floats[] = { OPTINC_F32, OPTINC_F16, OPTINC_BF16 };
	unsigned int kind = any(8);

	*job = (struct job){ .group = any(groups), .redop = any(2) ? OPTINC_MEAN : OPTINC_SUM };
	job->bits = bits[job->group];
	job->count = 1 + (any(MOST) >> any(any(2) ? 4 : 20));
	job->dtype = kind < 6 ? floats[kind % 3] : job->bits == 8 ? OPTINC_I8 : OPTINC_I16;
	if (kind == 7) {
		job->dtype = OPTINC_BIT;
		job->redop = OPTINC_VOTE;
		job->options.flags = any(2) ? OPTINC_SQE_SIGN : 0;
	} else if (any(2)) {
		job->options.flags = OPTINC_SQE_PARITY;
	}
	job->options.tag = any(1u << 31);
	job->send_bytes = optinc_data_bytes(job->count, job->dtype);
	job->result_bytes = optinc_result_bytes(job->count, job->dtype, job->redop,
						job->options.flags);
	job->window = any((unsigned int)(POOL - job->send_bytes + 1)) / 64 * 64;
}

static void must_register(void *at, size_t bytes, uint32_t flags, struct optinc_mr **mr)
{
	if (optinc_mr_register(card, at, bytes, flags, mr))
		bad("register %zu bytes", bytes);
}

/* From the pool itself, or in place from a copy of it */
static void start(struct optinc_group **groups, struct job *job)
{
	bool in_place = job->result_bytes <= job->send_bytes && mine(2);
	bool registered = mine(2);

	job->result = malloc(in_place ? job->send_bytes : job->result_bytes);
	if (!job->result)
		bad("out of memory");
	job->send = pool[rank] + job->window;
	if (in_place)
		job->send = memcpy(job->result, job->send, job->send_bytes);
	if (registered)
		must_register(job->result, in_place ? job->send_bytes : job->result_bytes,
			      OPTINC_MR_WRITE, &job->result_mr);
	if (registered && !in_place)
		must_register(job->send, job->send_bytes, 0, &job->send_mr);
	if (optinc_iallreduce(groups[job->group], job->send, job->result, job->count, job->dtype,
			      job->redop, &job->options, &job->request))
		bad("start of %zu elements of dtype %d", job->count, job->dtype);
	atomic_fetch_add(&shared->requests[card_number], 1);
	atomic_fetch_add(&shared->bytes, job->send_bytes);
}

/* Blocks stand for themselves: those from an element on are computed alone. */
static void check_slice(const struct job *job, size_t first, size_t count)
{
	size_t from = optinc_data_bytes(first, job->dtype);
	size_t to = optinc_result_bytes(first, job->dtype, job->redop, job->options.flags);
	size_t bytes = optinc_result_bytes(count, job->dtype, job->redop, job->options.flags);
	const void *send[CARDS];
	static uint8_t want[64 * OPTINC_BLOCK * 4];
	unsigned int r;

	for (r = 0; r < nranks; r++)
		send[r] = pool[r] + job->window + from;
	if (optinc_reference_allreduce(send, want, nranks, count, job->dtype, job->redop, job->bits,
				       job->options.flags, NULL))
		bad("reference");
	if (memcmp(want, job->result + to, bytes))
		bad("wrong bits: dtype %d, redop %d, %d bits, %zu elements from %zu of %zu",
		    job->dtype, job->redop, job->bits, count, first, job->count);
}

static void check(const struct job *job, unsigned int number)
{
	size_t blocks = (job->count + OPTINC_BLOCK - 1) / OPTINC_BLOCK;
	size_t first, count;
	unsigned int i;

	shared->hash[number][rank] = hash(job->result, job->result_bytes);
	for (i = 0; i < SLICES; i++) {
		/* the last ones, which are not whole, more often than they come */
		first = (i ? mine((unsigned int)blocks) : blocks - 1) * OPTINC_BLOCK;
		count = job->count - first;
		if (count > 64 * OPTINC_BLOCK)
			count = (1 + mine(64)) * OPTINC_BLOCK;
		check_slice(job, first, count);
	}
}

static void finish(struct job *job, unsigned int number)
{
	if (optinc_wait(job->request, -1, NULL))
		bad("%zu elements of dtype %d", job->count, job->dtype);
	check(job, number);
	optinc_mr_deregister(job->send_mr);
	optinc_mr_deregister(job->result_mr);
	free(job->result);
}

/* Ranks submit in the same order, and wait in another. */
static void run_batch(struct optinc_group **groups, unsigned int ngroups, const unsigned int *bits)
{
	struct job jobs[BATCH];
	unsigned int i, turn = mine(BATCH);

	for (i = 0; i < BATCH; i++) {
		choose(&jobs[i], ngroups, bits);
		if (rank < nranks)
			start(groups, &jobs[i]);
	}
	for (i = 0; i < BATCH && rank < nranks; i++)
		finish(&jobs[(i + turn) % BATCH], (i + turn) % BATCH);
	meet();
	for (i = 0; i < BATCH && rank < nranks; i++) {
		if (shared->hash[i][rank] != shared->hash[i][0])
			bad("ranks differ: dtype %d, redop %d, %d bits, %zu elements", jobs[i].dtype,
			    jobs[i].redop, jobs[i].bits, jobs[i].count);
	}
	meet();
}

/* Ranks are dealt to cards; those above nranks sit this one out. */
static void deal(void)
{
	unsigned int order[CARDS] = { 0, 1, 2, 3 }, i, j, t;

	for (i = CARDS - 1; i > 0; i--) {
		j = any(i + 1);
		t = order[i];
		order[i] = order[j];
		order[j] = t;
	}
	rank = order[card_number];
	nranks = 2 + any(CARDS - 1);
}

static void run_epoch(unsigned int epoch)
{
	struct optinc_group *groups[GROUPS] = { NULL };
	unsigned int ngroups = 1 + any(GROUPS), bits[GROUPS], i;

	deal();
	for (i = 0; i < ngroups; i++) {
		struct optinc_group_params p = {
			.key = { 0x50, (uint8_t)i, (uint8_t)epoch, (uint8_t)(epoch >> 8) },
			.rank = rank, .nranks = nranks, .bits = any(2) ? 8 : 16,
			.deadline_ms = DEADLINE_MS, .queue = BATCH,
		};

		bits[i] = p.bits;
		if (rank < nranks && optinc_group_join(card, &p, sizeof(p), &groups[i]))
			bad("join");
	}
	for (i = 0; i < BATCHES; i++)
		run_batch(groups, ngroups, bits);
	for (i = 0; i < ngroups; i++)
		optinc_group_leave(groups[i]);
	meet();
}

/* ------------------------------------------------------------------- the end */

static unsigned long status_kib(const char *name)
{
	FILE *file = fopen("/proc/self/status", "r");
	unsigned long kib = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			kib = strtoul(line + strlen(name), NULL, 10);
	if (file)
		fclose(file);
	return kib;
}

static void open_card(void)
{
	const char *cards = getenv("OPTINC_TEST_CARDS");
	char uri[128];

	if (cards)
		snprintf(uri, sizeof(uri), cards, (int)card_number);
	else
		snprintf(uri, sizeof(uri), "emu:soak-%d?port=%u&ports=%d", (int)getppid(),
			 card_number, CARDS);
	if (optinc_open(uri, &card))
		bad("open %s", uri);
}

static void run_card(uint64_t bytes)
{
	struct optinc_card_stats before, after;
	unsigned int epoch;

	open_card();
	if (optinc_card_stats(card, &before, sizeof(before)))
		bad("stats");
	for (epoch = 0; atomic_load(&shared->bytes) < bytes; epoch++) {
		meet();
		run_epoch(epoch);
		if (card_number == 0 && epoch % 16 == 15)
			fprintf(stderr, "# %.1f GiB of %.1f\n",
				(double)atomic_load(&shared->bytes) / (1 << 30),
				(double)bytes / (1 << 30));
		meet();
	}
	if (optinc_card_stats(card, &after, sizeof(after)))
		bad("stats");
	if (after.requests - before.requests != atomic_load(&shared->requests[card_number]) ||
	    after.errors != before.errors)
		bad("the card counts %llu requests and %llu errors, and there were %llu",
		    (unsigned long long)(after.requests - before.requests),
		    (unsigned long long)(after.errors - before.errors),
		    (unsigned long long)atomic_load(&shared->requests[card_number]));
	optinc_close(card);
	if (status_kib("VmPin:") || status_kib("VmLck:"))
		bad("%lu KiB are pinned and %lu locked at the end", status_kib("VmPin:"),
		    status_kib("VmLck:"));
	exit(0);
}

/* As far as anybody may know */
static bool contexts_are_left(void)
{
	char path[64], byte;
	unsigned int n;
	FILE *file;
	bool left = false;

	for (n = 0; n < CARDS; n++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/optinc/card%u/contexts", n);
		file = fopen(path, "r");
		if (!file)
			continue;
		left |= fread(&byte, 1, 1, file) == 1;
		fclose(file);
	}
	return left;
}

static uint64_t parse_bytes(const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	switch (*end) {
	case 'G':
		return n << 30;
	case 'M':
		return n << 20;
	case 'K':
		return n << 10;
	}
	return n;
}

static void report(bool good, int number, const char *what)
{
	printf("%sok %d - %s\n", good ? "" : "not ", number, what);
}

int main(int argc, char **argv)
{
	uint64_t bytes = argc > 1 ? parse_bytes(argv[1]) : 0;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
	unsigned long long requests = 0;
	char text[128];
	bool good = true;
	unsigned int i;
	int status;

	if (!bytes) {
		fprintf(stderr, "usage: soak BYTES[K|M|G] [SEED]\n");
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared) + CARDS * (size_t)POOL, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	for (i = 0; i < CARDS; i++) {
		pool[i] = (uint8_t *)(shared + 1) + i * (size_t)POOL;
		fill_pool(i, seed);
	}
	printf("1..3\n# seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	for (card_number = 0; card_number < CARDS; card_number++) {
		common = seed;
		own = seed * 31 + card_number;
		if (fork() == 0)
			run_card(bytes);
	}
	for (i = 0; i < CARDS; i++)
		good &= wait(&status) > 0 && status == 0;
	for (i = 0; i < CARDS; i++)
		requests += atomic_load(&shared->requests[i]);
	snprintf(text, sizeof(text), "%llu requests, %.2f GiB: no wrong bit, nothing pinned", requests,
		 (double)atomic_load(&shared->bytes) / (1 << 30));
	report(good, 1, text);
	if (!good)
		printf("# %s\n", shared->text);
	report(atomic_load(&shared->bytes) >= bytes, 2, "all of it was sent");
	report(!contexts_are_left(), 3, "no context is left");
	return good && atomic_load(&shared->bytes) >= bytes && !contexts_are_left() ? 0 : 1;
}
