// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Ranks at random, for as long as asked for.
 *
 * results	requests of all kinds, 2 to 16 ranks, memory registered or not:
 *		bits are the reference's and the same on all ranks
 * leaving	who leaves or closes right after its last request takes nothing
 *		back from slower ranks
 * epochs	one rank aborts, cancels, leaves, closes or asks for something
 *		else at a random moment: all are told the same, and rejoin
 * groups	up to 16 groups a card, submitted in an order of each rank's own,
 *		waited for in another, by wait, wait_any, test or poll
 * turnover	groups come and go while the card has all that it can have
 * stopped	a rank is stopped: the others name it in time; it goes on, and
 *		all rejoin
 * killed	a rank is killed while joining, leaving, rejoining; another takes
 *		its port
 *
 * usage: test_stress [SECONDS [SEED [SCENARIO]]], by default 20 seconds and a
 * new seed. What a failure says begins with the seed and the round: the same
 * two make the same round again, as far as time allows.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
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

#define MAX_RANKS	OPTINC_MAX_RANKS
#define MAX_GROUPS	16
#define MAX_REQUESTS	24
#define DEADLINE_MS	4000
/* On top of a deadline, on a machine that is busy with other things. */
#define MARGIN_MS	3000
#define ROUND_MS	60000

static struct shared {
	_Atomic unsigned int arrived;	/* at meet(), ever */
	_Atomic bool failed;
	_Atomic bool stopped;
	char text[600];
	uint64_t hash[MAX_REQUESTS][MAX_RANKS];
	int error[MAX_RANKS], peer[MAX_RANKS];
} *shared;

static char fabric[48];
static unsigned int rank, nranks, meetings;
static uint64_t seed, round_seed;
static unsigned int round_number;
static struct optinc_card *card;

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void __attribute__((noreturn, format(printf, 1, 2))) bad(const char *format, ...)
{
	va_list args;
	int n;

	if (!atomic_exchange(&shared->failed, true)) {
		n = snprintf(shared->text, sizeof(shared->text),
			     "seed %llu round %u: rank %u of %u: ", (unsigned long long)seed,
			     round_number, rank, nranks);
		va_start(args, format);
		n += vsnprintf(shared->text + n, sizeof(shared->text) - (size_t)n, format, args);
		va_end(args);
		if ((size_t)n < sizeof(shared->text))
			snprintf(shared->text + n, sizeof(shared->text) - (size_t)n,
				 " [last error: %s]", optinc_last_error());
	}
	_exit(1);
}

/* All ranks, outside of their cards. */
static void meet(void)
{
	unsigned int want = ++meetings * nranks;

	atomic_fetch_add(&shared->arrived, 1);
	while (atomic_load(&shared->arrived) < want) {
		if (atomic_load(&shared->failed))
			_exit(1);
		usleep(100);
	}
}

static void open_card(void)
{
	char uri[128];

	snprintf(uri, sizeof(uri), "emu:%s?port=%u&ports=%u", fabric, rank, nranks);
	for (int tries = 0; optinc_open(uri, &card); tries++) {
		if (tries > 300)	/* the port of one who was killed is free soon */
			bad("open");
		usleep(10000);
	}
	if (mine(4) == 0)
		optinc_card_set(card, OPTINC_OPTION_SPIN_US, 0);
}

static struct optinc_group_params params_of(unsigned int key, unsigned int bits)
{
	struct optinc_group_params p = {
		.key = { 0x5a, (uint8_t)key, (uint8_t)(key >> 8) }, .rank = rank,
		.nranks = nranks, .bits = bits, .deadline_ms = DEADLINE_MS, .queue = 32,
	};

	return p;
}

static struct optinc_group *join(unsigned int key, unsigned int bits)
{
	struct optinc_group_params p = params_of(key, bits);
	struct optinc_group *group;

	if (optinc_group_join(card, &p, sizeof(p), &group))
		bad("join %u", key);
	return group;
}

/* ---------------------------------------------------------------- requests */

/* Something to do, and what comes of it. */
struct job {
	enum { REDUCE, BROADCAST, BARRIER, EXPONENT_MAX } what;
	enum optinc_dtype dtype;
	enum optinc_redop redop;
	struct optinc_options options;
	unsigned int root, bits, checker;
	size_t count, send_bytes, result_bytes;
	uint64_t data;			/* seed of what the ranks send */
	uint8_t *memory, *send, *result;
	bool in_place;
	struct optinc_mr *mr;
	struct optinc_request *request;
};

static void fill(const struct job *job, unsigned int r, uint8_t *to)
{
	uint64_t state = job->data + r;
	size_t i;

	for (i = 0; i + 8 <= job->send_bytes; i += 8) {
		uint64_t z = mix(&state);

		memcpy(to + i, &z, 8);
	}
	for (; i < job->send_bytes; i++)
		to[i] = (uint8_t)mix(&state);
	if (job->what != REDUCE || job->dtype != OPTINC_F32)
		return;
	/* of one magnitude mostly: few NaNs, and many blocks that are not */
	for (i = 0; i < job->count; i++) {
		uint32_t *bits = (uint32_t *)(void *)to + i;

		if (*bits % 509)
			*bits = (*bits & 0x807fffff) | (0x3f000000 - (*bits >> 9 & 7) * 0x00800000u);
	}
}

static void choose_reduction(struct job *job)
{
	static const enum optinc_dtype floats[] = { OPTINC_F32, OPTINC_F16, OPTINC_BF16 };
	unsigned int kind = any(8);

	job->what = REDUCE;
	job->redop = any(2) ? OPTINC_MEAN : OPTINC_SUM;
	job->dtype = kind < 5 ? floats[kind % 3] : job->bits == 8 ? OPTINC_I8 : OPTINC_I16;
	if (kind == 7) {
		job->dtype = OPTINC_BIT;
		job->redop = OPTINC_VOTE;
		job->options.flags = any(2) ? OPTINC_SQE_SIGN | (any(2) ? OPTINC_SQE_ABSTAIN : 0) : 0;
	} else if (any(3) == 0) {
		job->options.flags = OPTINC_SQE_PARITY;
	}
	job->send_bytes = optinc_data_bytes(job->count, job->dtype);
	job->result_bytes = optinc_result_bytes(job->count, job->dtype, job->redop,
						job->options.flags);
	job->in_place = job->result_bytes <= job->send_bytes && any(2);
}

/* Alike on all ranks but for where the memory is. */
static void choose(struct job *job, unsigned int bits, size_t most, unsigned int number)
{
	*job = (struct job){
		.bits = bits,
		.data = mix(&common),
		.checker = number % nranks,
		.options.tag = any(1000),
		.count = any(most) >> any(16),
	};
	switch (any(10)) {
	case 0:
		job->what = BROADCAST;
		job->root = any(nranks);
		break;
	case 1:
		job->what = BARRIER;
		break;
	case 2:
		job->what = EXPONENT_MAX;
		break;
	default:
		choose_reduction(job);
	}
	if (job->what == BROADCAST || job->what == EXPONENT_MAX) {
		job->send_bytes = job->result_bytes = job->count;
		job->in_place = true;
	}
}

static void prepare(struct job *job)
{
	size_t bytes = job->send_bytes + job->result_bytes + 256;

	job->memory = malloc(bytes);
	if (!job->memory)
		bad("out of memory");
	job->send = job->memory + 4 * mine(16);
	job->result = job->in_place ? job->send : job->send + (job->send_bytes + 3) / 4 * 4 + 4 * mine(16);
	fill(job, rank, job->send);
	if (mine(3) == 0 && optinc_mr_register(card, job->memory, bytes, OPTINC_MR_WRITE, &job->mr))
		bad("register %zu bytes", bytes);
}

static int start(struct optinc_group *group, struct job *job)
{
	switch (job->what) {
	case REDUCE:
		return optinc_iallreduce(group, job->send, job->result, job->count, job->dtype,
					 job->redop, &job->options, &job->request);
	case BROADCAST:
		job->options.flags = 0;
		return optinc_ibroadcast(group, job->send, job->count, job->root, &job->options,
					 &job->request);
	case BARRIER:
		return optinc_ibarrier(group, &job->options, &job->request);
	default:
		return optinc_iexponent_max(group, job->send, job->count, &job->options,
					    &job->request);
	}
}

static int run(struct optinc_group *group, struct job *job)
{
	int ret;

	if (job->what == REDUCE && mine(2))
		return optinc_allreduce(group, job->send, job->result, job->count, job->dtype,
					job->redop, &job->options, NULL);
	ret = start(group, job);
	return ret ? ret : optinc_wait(job->request, -1, NULL);
}

static void expect(const struct job *job, uint8_t *want)
{
	const void *send[MAX_RANKS];
	uint8_t *all = malloc((job->send_bytes + 8) * nranks), *at;

	for (unsigned int r = 0; r < nranks; r++) {
		send[r] = at = all + (job->send_bytes + 7) / 8 * 8 * r;
		fill(job, r, at);
		if (job->what == BROADCAST && r == job->root)
			memcpy(want, at, job->count);
		for (size_t i = 0; job->what == EXPONENT_MAX && i < job->count; i++)
			want[i] = r && want[i] > at[i] ? want[i] : at[i];
	}
	if (job->what == REDUCE &&
	    optinc_reference_allreduce(send, want, nranks, job->count, job->dtype, job->redop,
				       job->bits, job->options.flags, NULL))
		bad("reference");
	free(all);
}

static uint64_t hash(const uint8_t *bytes, size_t n)
{
	uint64_t h = 0xcbf29ce484222325ull;

	while (n--)
		h = (h ^ *bytes++) * 0x100000001b3ull;
	return h;
}

/* One rank compares with the reference; all write down what they got. */
static void check(struct job *job, unsigned int number)
{
	uint8_t *want;

	shared->hash[number % MAX_REQUESTS][rank] = hash(job->result, job->result_bytes);
	if (job->checker == rank && job->result_bytes) {
		want = malloc(job->result_bytes);
		expect(job, want);
		if (memcmp(want, job->result, job->result_bytes))
			bad("request %u: kind %d, %zu elements of %s, %s, flags %#x, %u bits%s: wrong bits",
			    number, job->what, job->count, optinc_dtype_name(job->dtype),
			    optinc_redop_name(job->redop), job->options.flags, job->bits,
			    job->in_place ? ", in place" : "");
		free(want);
	}
	if (job->mr && optinc_mr_deregister(job->mr))
		bad("deregister");
	free(job->memory);
}

static void compare_hashes(unsigned int n)
{
	meet();
	for (unsigned int i = 0; i < n; i++)
		if (shared->hash[i][rank] != shared->hash[i][0])
			bad("request %u: other bits than rank 0", i);
	meet();
}

/* A small one; 0, or its error. Wrong bits end the test. */
static int quick(struct optinc_group *group, struct optinc_result *result)
{
	float send[64], recv[64], want[64], all[MAX_RANKS][64];
	const void *from[MAX_RANKS];
	unsigned int n = 1 + any(64);
	int ret;

	for (unsigned int r = 0; r < nranks; r++) {
		for (unsigned int i = 0; i < n; i++)
			all[r][i] = (float)(int)(i * 37 + r * 101 + n) * 0.01f;
		from[r] = all[r];
	}
	memcpy(send, all[rank], sizeof(send));
	ret = optinc_allreduce(group, send, recv, n, OPTINC_F32, OPTINC_MEAN, NULL, result);
	if (ret)
		return ret;
	optinc_reference_allreduce(from, want, nranks, n, OPTINC_F32, OPTINC_MEAN, 8, 0, NULL);
	if (memcmp(recv, want, n * sizeof(float)))
		bad("wrong bits in %u elements", n);
	return 0;
}

/* --------------------------------------------------------------- scenarios */

static void results(void)
{
	unsigned int bits = any(2) ? 8 : 16, n = 1 + any(MAX_REQUESTS), most = 600000 / nranks;
	struct job jobs[MAX_REQUESTS];
	struct optinc_group *group;
	bool batch = any(2);

	open_card();
	group = join(1, bits);
	for (unsigned int i = 0; i < n; i++) {
		choose(&jobs[i], bits, most, i);
		prepare(&jobs[i]);
		if (batch ? start(group, &jobs[i]) : run(group, &jobs[i]))
			bad("request %u of %u, %s", i, n, batch ? "submit" : "run");
	}
	for (unsigned int i = 0; i < n; i++) {
		if (batch && optinc_wait(jobs[i].request, -1, NULL))
			bad("request %u of %u", i, n);
		check(&jobs[i], i);
	}
	compare_hashes(n);
	optinc_close(card);
}

static void leaving(void)
{
	unsigned int epochs = 5 + any(30);
	bool closing = any(3) == 0;

	if (!closing)
		open_card();
	for (unsigned int e = 0; e < epochs; e++) {
		unsigned int n = 1 + any(3);
		struct optinc_group *group;

		if (closing)
			open_card();
		group = join(e, 8);
		while (n--)
			if (quick(group, NULL))
				bad("epoch %u: a rank that left took something back", e);
		if (closing)
			optinc_close(card);
		else
			optinc_group_leave(group);
	}
	if (!closing)
		optinc_close(card);
}

enum deed { ABORT, CANCEL, LEAVE, CLOSE, MISMATCH, DEEDS };

/* What the villain does while the others are in the middle of requests. */
static void misbehave(enum deed deed, struct optinc_group **group)
{
	struct optinc_options options = { .tag = 77 };
	struct optinc_request *request;

	usleep(mine(2000));
	switch (deed) {
	case ABORT:
		if (optinc_group_abort(*group))
			bad("abort");
		break;
	case CANCEL:
		if (optinc_ibarrier(*group, NULL, &request) || optinc_cancel(request))
			bad("cancel");
		/* done before, or cancelled */
		optinc_wait(request, -1, NULL);
		optinc_group_abort(*group);
		break;
	case LEAVE:
		optinc_group_leave(*group);
		*group = NULL;
		break;
	case CLOSE:
		optinc_close(card);
		*group = NULL;
		break;
	default:
		if (optinc_barrier(*group, &options, NULL) != -EPROTO)
			bad("a tag of its own is no mismatch");
	}
}

static bool is_told(enum deed deed, int error, int peer, unsigned int villain)
{
	switch (deed) {
	case ABORT:
	case CANCEL:
	case LEAVE:
	case CLOSE:
		return error == -ECONNABORTED && peer == (int)villain;
	default:
		/* of two, the first is in the majority */
		return error == -EPROTO && (peer == (int)villain || nranks == 2);
	}
}

static void one_epoch(struct optinc_group **group, unsigned int key)
{
	/* a first request that works: all know then that the group is ready */
	unsigned int villain = any(nranks), n = 1 + any(6), started = 0;
	struct optinc_result result = { 0 };
	enum deed deed = any(DEEDS);
	uint64_t since;
	int ret = 0;

	for (unsigned int i = 0; i < n; i++)
		if (quick(*group, NULL))
			bad("epoch %u, request %u", key, i);
	if (rank == villain) {
		misbehave(deed, group);
	} else {
		since = now_ms();
		while (!ret && started++ < 1000)
			ret = optinc_barrier(*group, NULL, &result);
		if (now_ms() - since > DEADLINE_MS + MARGIN_MS)
			bad("deed %d was told after %llu ms", deed,
			    (unsigned long long)(now_ms() - since));
		if (!is_told(deed, ret, result.peer, villain))
			bad("deed %d of rank %u is told as %d, rank %d", deed, villain, ret,
			    result.peer);
	}
	if (*group) {
		if (optinc_group_rejoin(*group))
			bad("rejoin after deed %d of rank %u", deed, villain);
	} else {
		if (deed == CLOSE)
			open_card();
		*group = join(1, 8);
	}
}

static void epochs(void)
{
	unsigned int n = 5 + any(20);
	struct optinc_group *group;

	open_card();
	group = join(1, 8);
	for (unsigned int e = 0; e < n; e++)
		one_epoch(&group, e);
	if (quick(group, NULL))
		bad("after all");
	optinc_close(card);
}

static void shuffle(unsigned int *order, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		order[i] = i;
	for (unsigned int i = n; i > 1; i--) {
		unsigned int j = mine(i), t = order[i - 1];

		order[i - 1] = order[j];
		order[j] = t;
	}
}

static void wait_by_poll(struct optinc_group *group, struct job *job)
{
	struct pollfd pfd = { .fd = optinc_group_fd(group), .events = POLLIN };
	struct optinc_result result;

	while (!optinc_test(job->request, &result))
		if (poll(&pfd, 1, DEADLINE_MS + MARGIN_MS) <= 0)
			bad("the descriptor is not readable");
	if (result.error)
		bad("polled request");
}

static void wait_for_all(struct optinc_group **group, struct job *jobs, unsigned int n)
{
	struct optinc_request *left[MAX_GROUPS];
	unsigned int order[MAX_GROUPS], how = mine(3);
	size_t index;

	shuffle(order, n);
	for (unsigned int i = 0; i < n; i++)
		left[i] = jobs[i].request;
	for (unsigned int i = 0; i < n; i++) {
		if (how == 0 && optinc_wait(jobs[order[i]].request, -1, NULL))
			bad("group %u", order[i]);
		if (how == 1 && optinc_wait_any(left, n, -1, &index, NULL))
			bad("wait_any: group %zu", index);
		if (how == 2)
			wait_by_poll(group[order[i]], &jobs[order[i]]);
	}
}

static void groups(void)
{
	unsigned int n = 1 + any(MAX_GROUPS), rounds = 1 + any(8), order[MAX_GROUPS];
	struct optinc_group *group[MAX_GROUPS];
	struct job jobs[MAX_GROUPS];

	open_card();
	for (unsigned int g = 0; g < n; g++)
		group[g] = join(g, 8);
	for (unsigned int i = 0; i < rounds; i++) {
		shuffle(order, n);
		for (unsigned int g = 0; g < n; g++) {
			choose(&jobs[g], 8, 60000 / nranks, g);
			prepare(&jobs[g]);
		}
		for (unsigned int g = 0; g < n; g++)
			if (start(group[order[g]], &jobs[order[g]]))
				bad("group %u, submit", order[g]);
		wait_for_all(group, jobs, n);
		for (unsigned int g = 0; g < n; g++)
			check(&jobs[g], g);
		compare_hashes(n);
	}
	optinc_close(card);
}

static void turnover(void)
{
	struct optinc_group *group[MAX_GROUPS] = { NULL };
	unsigned int n = MAX_GROUPS + 30 + any(30);

	open_card();
	for (unsigned int key = 0; key < n; key++) {
		unsigned int at = key % MAX_GROUPS;

		/* others may still read what this rank sent there last */
		if (group[at] && quick(group[at], NULL))
			bad("key %u, before leaving", key);
		optinc_group_leave(group[at]);
		group[at] = join(key, 8);
	}
	meet();
	optinc_close(card);
}

/* Of this rank's own process group, by the parent; see stop_one(). */
static void stopped(void)
{
	struct optinc_result result = { .peer = -1 };
	unsigned int victim = any(nranks);
	struct optinc_group_params p;
	struct optinc_group *group;
	uint64_t since = 0;
	int ret;

	open_card();
	p = params_of(1, 8);
	p.deadline_ms = 500;
	while ((ret = optinc_group_join(card, &p, sizeof(p), &group)) == -ETIMEDOUT)
		;
	if (ret)
		bad("join");
	meet();
	do {
		since = now_ms();
		ret = quick(group, &result);
		if (rank == victim && atomic_load(&shared->stopped) == false && mine(50) == 0)
			raise(SIGSTOP);
	} while (!ret);
	if (rank != victim && (ret != -ETIMEDOUT || result.peer != (int)victim))
		bad("rank %u is stopped, told is %d, rank %d", victim, ret, result.peer);
	if (rank != victim && now_ms() - since > 500 + MARGIN_MS)
		bad("told after %llu ms", (unsigned long long)(now_ms() - since));
	if (rank == victim && ret != -ETIMEDOUT && ret != -ESTALE)
		bad("the one that was stopped is told %d", ret);
	shared->error[rank] = ret;
	meet();
	if (optinc_group_rejoin(group))
		bad("rejoin");
	if (quick(group, NULL))
		bad("after the rejoin");
	meet();
	optinc_close(card);
}

/* Joins, requests, leaves, rejoins, until something happens. */
static void killed(void)
{
	struct optinc_group *group;
	unsigned int key = 100;
	uint64_t since;
	int ret = 0;

	open_card();
	group = NULL;
	do {
		struct optinc_group_params p = params_of(key++, 8);

		since = now_ms();
		ret = optinc_group_join(card, &p, sizeof(p), &group);
		for (unsigned int i = 0; !ret && i < 3; i++)
			ret = quick(group, NULL);
		if (!ret && any(2)) {
			/* ABORTED is what a rank sees whose peer is there already */
			ret = optinc_group_rejoin(group);
			if (!ret)
				ret = quick(group, NULL);
		}
		if (now_ms() - since > 3 * DEADLINE_MS + MARGIN_MS)
			bad("%llu ms", (unsigned long long)(now_ms() - since));
		if (ret && ret != -ECONNRESET && ret != -ETIMEDOUT && ret != -ECONNABORTED)
			bad("told is %d", ret);
		if (group)
			optinc_group_leave(group);
		group = NULL;
	} while (!ret);
	optinc_close(card);
}

static void after_kill(void)
{
	struct optinc_group *group;

	open_card();
	group = join(1, 8);
	if (quick(group, NULL))
		bad("after the kill");
	meet();
	optinc_close(card);
}

/* ------------------------------------------------------------------ rounds */

static pid_t pids[MAX_RANKS];

static void spawn(void (*body)(void))
{
	atomic_store(&shared->arrived, 0);
	meetings = 0;
	fflush(NULL);
	for (unsigned int r = 0; r < nranks; r++) {
		pids[r] = fork();
		if (pids[r])
			continue;
		rank = r;
		common = round_seed;
		own = round_seed * 31 + r + 1;
		body();
		_exit(0);
	}
}

/* All have to end in order, but for @victim; a rank that is stopped goes on later. */
static void reap(int victim)
{
	uint64_t until = now_ms() + ROUND_MS, resume = 0;
	unsigned int left = nranks;
	int status;

	while (left && now_ms() < until) {
		for (unsigned int r = 0; r < nranks; r++) {
			if (!pids[r] || waitpid(pids[r], &status, WNOHANG | WUNTRACED) != pids[r])
				continue;
			if (WIFSTOPPED(status)) {
				atomic_store(&shared->stopped, true);
				resume = now_ms() + 1500;
				continue;
			}
			left--;
			pids[r] = 0;
			if ((int)r != victim && (!WIFEXITED(status) || WEXITSTATUS(status)) &&
			    !atomic_exchange(&shared->failed, true))
				snprintf(shared->text, sizeof(shared->text),
					 "seed %llu round %u: rank %u of %u ended with status %#x",
					 (unsigned long long)seed, round_number, r, nranks, status);
		}
		if (resume && now_ms() > resume) {
			resume = 0;
			for (unsigned int r = 0; r < nranks; r++)
				if (pids[r])
					kill(pids[r], SIGCONT);
		}
		usleep(300);
	}
	for (unsigned int r = 0; r < nranks; r++) {
		if (!pids[r])
			continue;
		if (!atomic_exchange(&shared->failed, true))
			snprintf(shared->text, sizeof(shared->text),
				 "seed %llu round %u: rank %u of %u hangs",
				 (unsigned long long)seed, round_number, r, nranks);
		kill(pids[r], SIGKILL);
		waitpid(pids[r], &status, 0);
		pids[r] = 0;
	}
}

static void kill_one(void)
{
	unsigned int victim = any(nranks);

	usleep(any(40000));
	kill(pids[victim], SIGKILL);
	reap((int)victim);
	if (!atomic_load(&shared->failed)) {
		spawn(after_kill);
		reap(-1);
	}
}

static const struct scenario {
	const char *name;
	void (*body)(void);
	unsigned int least_ranks, most_ranks;
} scenarios[] = {
	{ "results", results, 2, 16 },
	{ "leaving", leaving, 3, 16 },
	{ "epochs", epochs, 2, 8 },
	{ "groups", groups, 2, 6 },
	{ "turnover", turnover, 2, 6 },
	{ "stopped", stopped, 2, 6 },
	{ "killed", killed, 2, 6 },
};

#define SCENARIOS	(sizeof(scenarios) / sizeof(scenarios[0]))

static bool one_round(const struct scenario *scenario)
{
	uint64_t state = seed + (round_number + 1) * 0x632be59bd9b4e019ull;

	memset(shared, 0, sizeof(*shared));
	round_seed = mix(&state);
	common = round_seed ^ 1;
	nranks = scenario->least_ranks + any(scenario->most_ranks - scenario->least_ranks + 1);
	spawn(scenario->body);
	if (scenario->body == killed)
		kill_one();
	else
		reap(-1);
	return !atomic_load(&shared->failed);
}

static bool run_scenario(unsigned int number, const struct scenario *scenario, uint64_t ms,
			 unsigned int only)
{
	uint64_t until = now_ms() + ms;
	unsigned int rounds = 0;
	bool good = true;

	round_number = only;
	while (good && now_ms() < until) {
		good = one_round(scenario);
		round_number++;
		rounds++;
	}
	printf("%sok %u - %s: %u rounds, seed %llu\n", good ? "" : "not ", number, scenario->name,
	       rounds, (unsigned long long)seed);
	if (!good)
		printf("# %s\n", shared->text);
	fflush(stdout);
	return good;
}

int main(int argc, char **argv)
{
	double secs = argc > 1 ? atof(argv[1]) : 20;
	const char *only = argc > 3 ? argv[3] : NULL;
	unsigned int first = argc > 4 ? (unsigned int)atoi(argv[4]) : 0;
	unsigned int n = 0, number = 0;
	bool good = true;

	seed = argc > 2 ? strtoull(argv[2], NULL, 0) : now_ms() * 1000003 + (uint64_t)getpid();
	snprintf(fabric, sizeof(fabric), "stress-%d", getpid());
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (shared == MAP_FAILED)
		return 2;
	for (unsigned int i = 0; i < SCENARIOS; i++)
		n += !only || !strcmp(only, scenarios[i].name);
	printf("1..%u\n", n);
	for (unsigned int i = 0; i < SCENARIOS; i++)
		if (!only || !strcmp(only, scenarios[i].name))
			good &= run_scenario(++number, &scenarios[i], (uint64_t)(1000 * secs / n),
					     first);
	return !good;
}
