// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Traffic in bulk: four cards, groups of two to four of them with ranks dealt
 * anew, all dtypes and reductions, registered memory or not, in place or not,
 * several requests outstanding in several groups.
 *
 * Every bit of every rank's result is compared with the reference. Since blocks
 * stand for themselves, sources are made of the same 127 KiB of random numbers
 * again and again, and begin anywhere in them: the reference computes these once
 * for each kind of request, and the rest is memcmp(). A chunk that is written to
 * another's place is wrong all the same, as no chunks' distance is a multiple of
 * 127 KiB. At the end no memory is locked or pinned, no context is left, and the
 * cards have counted the requests that were made.
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

#include "draw.h"

#define CARDS		4
#define GROUPS		3
#define BATCH		4		/* requests outstanding */
#define BATCHES		16		/* of one epoch */
#define POOL		(8U << 20)	/* bytes of random numbers for each rank */
#define MOST		(POOL / 4)	/* elements of a request */
#define UNIT		1024U		/* whole blocks of all types */
#define PERIOD		(127 * UNIT)	/* bytes after which the pool repeats */
#define KINDS		(OPTINC_DTYPES * OPTINC_REDOPS * 16 * 2 * (CARDS + 1))
#define MOST_EXPECTED	(96U << 20)	/* bytes */
#define DEADLINE_MS	60000

static struct shared {
	atomic_uint arrived;
	atomic_bool failed;
	atomic_ullong bytes, requests[CARDS];
	/* what the reference makes of one period, by kind */
	struct expected {
		atomic_int state;	/* 0; 1, somebody computes it; 2 */
		uint32_t at;
	} expected[KINDS];
	atomic_uint expected_bytes;
	char text[512];
} *shared;

static uint8_t *pool[CARDS];		/* by rank, shared */
static uint8_t *expected;		/* shared */
static unsigned int card_number, nranks, rank, meetings;
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

/*
 * Random bits, but floats of magnitudes that meet in a block and differ between
 * blocks, with a NaN now and then
 */
static void fill_pool(unsigned int r, uint64_t seed)
{
	uint64_t state = seed + r;
	uint32_t word, magnitude = 0;
	size_t i;

	for (i = 0; i < PERIOD; i += 4) {
		if (i % (UNIT / 2) == 0)
			magnitude = (8 + (uint32_t)(mix(&state) % 12)) * 0x04000400;
		word = (uint32_t)mix(&state);
		if (word % 40009)
			word = (word & 0x83ff83ff) | magnitude;
		memcpy(pool[r] + i, &word, 4);
	}
	for (; i < POOL; i++)
		pool[r][i] = pool[r][i - PERIOD];
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
		job->options.flags = any(2) ? OPTINC_SQE_SIGN | (any(2) ? OPTINC_SQE_ABSTAIN : 0) : 0;
	} else if (any(2)) {
		job->options.flags = OPTINC_SQE_PARITY;
	}
	job->options.tag = any(1u << 31);
	job->send_bytes = optinc_data_bytes(job->count, job->dtype);
	job->result_bytes = optinc_result_bytes(job->count, job->dtype, job->redop,
						job->options.flags);
	job->window = any((unsigned int)((POOL - job->send_bytes) / UNIT + 1)) * UNIT;
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

static size_t elements_of(const struct job *job, size_t bytes)
{
	return job->dtype == OPTINC_BIT ? 8 * bytes : bytes / optinc_data_bytes(1, job->dtype);
}

static size_t result_of(const struct job *job, size_t count)
{
	return optinc_result_bytes(count, job->dtype, job->redop, job->options.flags);
}

static void compute(const struct job *job, size_t from, size_t count, uint8_t *to)
{
	const void *send[CARDS];

	for (unsigned int r = 0; r < nranks; r++)
		send[r] = pool[r] + from;
	if (optinc_reference_allreduce(send, to, nranks, count, job->dtype, job->redop, job->bits,
				       job->options.flags, NULL))
		bad("reference");
}

/* Of a period, for requests of this kind; who comes first computes it. */
static const uint8_t *expect(const struct job *job)
{
	unsigned int kind = job->dtype * OPTINC_REDOPS + job->redop;
	size_t count = elements_of(job, PERIOD);
	struct expected *e;
	int none = 0;

	kind = ((kind * 16 + job->options.flags) * 2 + (job->bits == 16)) * (CARDS + 1) + nranks;
	e = &shared->expected[kind];
	if (atomic_compare_exchange_strong(&e->state, &none, 1)) {
		e->at = atomic_fetch_add(&shared->expected_bytes, result_of(job, count));
		if (e->at + result_of(job, count) > MOST_EXPECTED)
			bad("no room for what is expected");
		compute(job, 0, count, expected + e->at);
		atomic_store(&e->state, 2);
	}
	while (atomic_load(&e->state) != 2) {
		if (atomic_load(&shared->failed))
			_exit(1);
		sched_yield();
	}
	return expected + e->at;
}

static void compare(const struct job *job, size_t at, const uint8_t *want, size_t bytes)
{
	if (memcmp(want, job->result + at, bytes))
		bad("wrong bits: dtype %d, redop %d, flags %#x, %u bits, in %zu bytes from %zu of %zu",
		    job->dtype, job->redop, job->options.flags, job->bits, bytes, at,
		    job->result_bytes);
}

/* All of the result; its last block, if that is not whole, has an exponent of its own. */
static void check(const struct job *job)
{
	size_t whole = job->count / OPTINC_BLOCK * OPTINC_BLOCK, left = result_of(job, whole);
	size_t period = result_of(job, elements_of(job, PERIOD)), at = 0;
	size_t in = result_of(job, elements_of(job, job->window % PERIOD));
	const uint8_t *want = expect(job);
	uint8_t tail[OPTINC_BLOCK * sizeof(uint32_t)];

	for (; left; in = 0) {
		size_t bytes = left < period - in ? left : period - in;

		compare(job, at, want + in, bytes);
		at += bytes;
		left -= bytes;
	}
	if (whole == job->count)
		return;
	compute(job, job->window + optinc_data_bytes(whole, job->dtype), job->count - whole, tail);
	compare(job, at, tail, job->result_bytes - at);
}

static void finish(struct job *job)
{
	if (optinc_wait(job->request, -1, NULL))
		bad("%zu elements of dtype %d", job->count, job->dtype);
	check(job);
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
		finish(&jobs[(i + turn) % BATCH]);
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
	shared = mmap(NULL, sizeof(*shared) + CARDS * (size_t)POOL + MOST_EXPECTED,
		      PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	for (i = 0; i < CARDS; i++) {
		pool[i] = (uint8_t *)(shared + 1) + i * (size_t)POOL;
		fill_pool(i, seed);
	}
	expected = (uint8_t *)(shared + 1) + CARDS * (size_t)POOL;
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
