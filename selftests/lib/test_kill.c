// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A rank dies by SIGKILL; what it leaves behind must not hurt the others.
 *
 * 1. In the middle of a 256 MiB all-reduce, between its first and its last
 *    chunk (the victim watches its card's byte counter and kills itself
 *    there): the others are told which rank was lost, within the deadline, and
 *    the next group on the same fabric gives right results.
 * 2. At random moments of a life of joins, requests and leaves: the others
 *    end with an error or without, but they end, and the fabric goes on.
 *
 * usage: test_kill [ROUNDS [MIB]]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <optinc/optinc.h>

#define RANKS		4
#define DEADLINE_MS	5000
#define CHUNK_TX	(32768 + 128)	/* bytes of one chunk on the lanes, at 8 bits */

struct report {
	int ran;		/* reached the end */
	int error;		/* of the large request */
	int peer;
	uint64_t ended_ns;
	int next_error;		/* of the next group */
	int next_wrong;
	char text[200];
};

static struct shared {
	struct report rank[RANKS];
	_Atomic uint64_t killed_ns;
} *shared;

static size_t count;
static float *source, *result[RANKS];
static char fabric[64];
static unsigned int number, failures;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void tap(int good, const char *format, ...)
{
	va_list ap;

	printf("%sok %u - ", good ? "" : "not ", ++number);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	failures += !good;
}

static uint64_t random_state = 1;

static uint64_t draw(uint64_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % below;
}

static struct optinc_card *open_card(int rank)
{
	struct optinc_card *card;
	char uri[128];

	snprintf(uri, sizeof(uri), "emu:%s?port=%d&ports=%d", fabric, rank, RANKS);
	for (int tries = 0; tries < 200; tries++) {
		int ret = optinc_open(uri, &card);

		if (!ret)
			return card;
		if (ret != -EBUSY)	/* the dead holder may not be reaped yet */
			break;
		usleep(10000);
	}
	fprintf(stderr, "rank %d: %s\n", rank, optinc_last_error());
	_exit(3);
}

static int join(struct optinc_card *card, int rank, uint8_t key, struct optinc_group **group)
{
	struct optinc_group_params params = {
		.key = { 0x6b, key }, .rank = (unsigned int)rank, .nranks = RANKS,
		.deadline_ms = DEADLINE_MS,
	};

	return optinc_group_join(card, &params, sizeof(params), group);
}

/* A small all-reduce, compared with the reference. */
static int check_group(struct optinc_group *group, int rank, int *wrong)
{
	static float send[RANKS][700], recv[700], want[700];
	const void *all[RANKS];
	int ret;

	for (int r = 0; r < RANKS; r++) {
		for (int i = 0; i < 700; i++)
			send[r][i] = (float)((i * 37 + r * 101) % 199 - 99) * 0.01f;
		all[r] = send[r];
	}
	ret = optinc_allreduce(group, send[rank], recv, 700, OPTINC_F32, OPTINC_MEAN, NULL, NULL);
	if (ret)
		return ret;
	optinc_reference_allreduce(all, want, RANKS, 700, OPTINC_F32, OPTINC_MEAN, 8, 0, NULL);
	*wrong = memcmp(recv, want, sizeof(want)) != 0;
	return 0;
}

struct assassin {
	struct optinc_card *card;
	uint64_t at_bytes;
};

static void *kill_self_at(void *arg)
{
	struct assassin *assassin = arg;
	struct optinc_card_stats stats;

	for (;;) {
		if (optinc_card_stats(assassin->card, &stats, sizeof(stats)))
			return NULL;
		if (stats.tx_bytes >= assassin->at_bytes) {
			shared->killed_ns = now_ns();
			kill(getpid(), SIGKILL);
		}
	}
}

static void next_group(struct optinc_card *card, int rank, struct report *report, uint8_t key)
{
	struct optinc_group *group;

	report->next_error = join(card, rank, key, &group);
	if (!report->next_error)
		report->next_error = check_group(group, rank, &report->next_wrong);
	report->ran = 1;
	optinc_close(card);
	_exit(0);
}

static void large_request(int rank, int victim, uint64_t at_bytes)
{
	struct report *report = &shared->rank[rank];
	struct optinc_card *card = open_card(rank);
	struct optinc_result res;
	struct optinc_group *group;
	struct assassin assassin = { card, at_bytes };
	pthread_t thread;

	if (join(card, rank, 1, &group)) {
		fprintf(stderr, "rank %d: %s\n", rank, optinc_last_error());
		_exit(3);
	}
	if (rank == victim)
		pthread_create(&thread, NULL, kill_self_at, &assassin);
	report->error = optinc_allreduce(group, source, result[rank], count, OPTINC_F32,
					 OPTINC_MEAN, NULL, &res);
	report->ended_ns = now_ns();
	report->peer = res.peer;
	snprintf(report->text, sizeof(report->text), "%s", optinc_last_error());
	optinc_group_leave(group);
	next_group(card, rank, report, 2);
}

static pid_t spawn_large(int rank, int victim, uint64_t at_bytes)
{
	pid_t pid = fork();

	if (!pid)
		large_request(rank, victim, at_bytes);
	return pid;
}

static pid_t spawn_next(int rank, uint8_t key)
{
	pid_t pid = fork();

	if (!pid)
		next_group(open_card(rank), rank, &shared->rank[rank], key);
	return pid;
}

/* False: the victim's second thread came too late, and nobody failed. */
static bool kill_in_the_middle(int round)
{
	uint64_t total = (uint64_t)(count / 32768) * CHUNK_TX;
	int victim = (int)draw(RANKS), named = 0, good = 0, text = 0, missed = 0;
	uint64_t at = CHUNK_TX + draw(total - 2 * CHUNK_TX), slowest = 0;
	pid_t pid[RANKS], again;
	int status;

	memset(shared, 0, sizeof(*shared));
	for (int r = 0; r < RANKS; r++)
		pid[r] = spawn_large(r, victim, at);
	waitpid(pid[victim], &status, 0);
	again = spawn_next(victim, 2);
	for (int r = 0; r < RANKS; r++)
		if (r != victim)
			waitpid(pid[r], NULL, 0);
	waitpid(again, NULL, 0);
	for (int r = 0; r < RANKS; r++)
		missed += !shared->rank[r].error;
	if (missed == RANKS)
		return false;
	for (int r = 0; r < RANKS; r++) {
		const struct report *p = &shared->rank[r];
		char name[16];

		good += p->ran && !p->next_error && !p->next_wrong;
		if (r == victim)
			continue;
		snprintf(name, sizeof(name), "rank %d", victim);
		named += p->error == -ECONNRESET && p->peer == victim;
		text += strstr(p->text, name) != NULL;
		if (p->ended_ns - shared->killed_ns > slowest)
			slowest = p->ended_ns - shared->killed_ns;
	}
	tap(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && named == RANKS - 1 &&
	    text == RANKS - 1 && slowest < DEADLINE_MS * 1000000ull && good == RANKS,
	    "round %d: rank %d killed after %llu of %llu bytes: %d of 3 name it (%d in words) after %llu ms, next group right on %d of 4",
	    round, victim, (unsigned long long)at, (unsigned long long)total, named, text,
	    (unsigned long long)(slowest / 1000000), good);
	return true;
}

/* Joins, requests, leaves, for as long as it goes. */
static void live(int rank)
{
	struct optinc_card *card = open_card(rank);

	for (uint8_t key = 10;; key++) {
		struct optinc_group *group;
		int wrong = 0, ret = join(card, rank, key, &group);

		for (int i = 0; !ret && i < 20; i++)
			ret = check_group(group, rank, &wrong);
		if (!ret && wrong)
			_exit(4);
		if (ret == -EAGAIN || ret == -EINVAL)
			_exit(5);
		if (ret) {
			shared->rank[rank].ran = 1;
			_exit(0);
		}
		optinc_group_leave(group);
	}
}

static void kill_at_random(int round)
{
	int victim = (int)draw(RANKS), ended = 0, good = 0;
	pid_t pid[RANKS];
	uint64_t start;

	memset(shared, 0, sizeof(*shared));
	for (int r = 0; r < RANKS; r++) {
		pid[r] = fork();
		if (!pid[r])
			live(r);
	}
	usleep((useconds_t)draw(30000));
	kill(pid[victim], SIGKILL);
	start = now_ns();
	for (int r = 0; r < RANKS; r++) {
		int status;

		waitpid(pid[r], &status, 0);
		ended += r != victim && WIFEXITED(status) && !WEXITSTATUS(status);
	}
	for (int r = 0; r < RANKS; r++)
		pid[r] = spawn_next(r, 3);
	for (int r = 0; r < RANKS; r++) {
		waitpid(pid[r], NULL, 0);
		good += shared->rank[r].ran && !shared->rank[r].next_error &&
			!shared->rank[r].next_wrong;
	}
	tap(ended == RANKS - 1 && now_ns() - start < 3 * DEADLINE_MS * 1000000ull && good == RANKS,
	    "random round %d: rank %d killed: %d of 3 ended in order, fabric right on %d of 4",
	    round, victim, ended, good);
}

static float *shared_floats(size_t n)
{
	void *p = mmap(NULL, n * sizeof(float), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	return p;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 50, missed = 0;
	size_t mib = argc > 2 ? strtoul(argv[2], NULL, 0) : 256;

	count = mib << 18;
	random_state = (uint64_t)getpid() * 2654435761u + 1;
	snprintf(fabric, sizeof(fabric), "kill-%d", getpid());
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	source = shared_floats(count);
	for (size_t i = 0; i < count; i++)
		source[i] = (float)(int)(i * 2654435761u % 2001 - 1000) * 1e-3f;
	for (int r = 0; r < RANKS; r++)
		result[r] = shared_floats(count);
	printf("1..%d\n", 2 * rounds);
	for (int i = 0; i < rounds; i++)
		while (!kill_in_the_middle(i))
			if (++missed > rounds)
				return 1;
	for (int i = 0; i < rounds; i++)
		kill_at_random(i);
	return failures != 0;
}
