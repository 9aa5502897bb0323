/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests whose ranks are processes: each forks, opens its own card, and runs
 * the same body. What a rank finds wrong is told to the parent, which also
 * ends ranks that hang.
 *
 * OPTINC_TEST_CARDS is the URI with %d for the rank, or a URI for each rank with
 * commas between them, by default that of an emulated fabric of four ports;
 * OPTINC_TEST_RANKS is how many cards there are, by default 4.
 */
#ifndef RANKS_H
#define RANKS_H

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <optinc/optinc.h>

#define MAX_RANKS	4
#define RANKS_DEADLINE	60	/* seconds, of a whole test; OPTINC_TEST_DEADLINE names others */

/* Shared by parent and ranks. */
struct ranks_shared {
	uint8_t key[2][OPTINC_KEY_BYTES];
	unsigned int arrived;	/* at sync(), ever */
	unsigned int counter;	/* for the test's own use */
	bool failed;		/* some rank has given up */
	bool lost[MAX_RANKS];	/* this rank is meant to die */
	char message[MAX_RANKS][768];
};

struct rank {
	unsigned int rank, nranks;
	struct optinc_card *card;
	struct optinc_group *group;
	unsigned int syncs;
};

static struct ranks_shared *shared;
static struct rank me;

static int test_ranks(void)
{
	const char *text = getenv("OPTINC_TEST_RANKS");
	int n = text ? atoi(text) : MAX_RANKS;

	return n < 2 ? 2 : n > MAX_RANKS ? MAX_RANKS : n;
}

/* A rank's check has failed: say so and end. */
static void __attribute__((noreturn, format(printf, 3, 4)))
rank_fail(const char *file, int line, const char *fmt, ...)
{
	char *text = shared->message[me.rank];
	size_t size = sizeof(shared->message[0]);
	va_list args;
	int n;

	n = snprintf(text, size, "rank %u of %u: %s:%d: ", me.rank, me.nranks, file, line);
	va_start(args, fmt);
	n += vsnprintf(text + n, size - (size_t)n, fmt, args);
	va_end(args);
	if ((size_t)n < size)
		snprintf(text + n, size - (size_t)n, " [last error: %s]", optinc_last_error());
	__atomic_store_n(&shared->failed, true, __ATOMIC_RELEASE);
	_exit(1);
}

#define CHECK(x)	\
	((x) ? (void)0 : rank_fail(__FILE__, __LINE__, "%s is not so", #x))
#define CHECK_INT(x, expected) do {						\
	long long x_ = (long long)(x), e_ = (long long)(expected);		\
	if (x_ != e_)								\
		rank_fail(__FILE__, __LINE__, "%s is %lld, not %s (%lld)", #x, x_,	\
			  #expected, e_);					\
} while (0)
#define CHECK_SAYS(part)	\
	(strstr(optinc_last_error(), part) ? (void)0 : \
	 rank_fail(__FILE__, __LINE__, "the error does not say \"%s\"", part))

static inline double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Wait until @counter has come to @target, or another rank has failed. */
static inline void await(const unsigned int *counter, unsigned int target)
{
	while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < target) {
		if (__atomic_load_n(&shared->failed, __ATOMIC_ACQUIRE))
			_exit(1);
		usleep(200);
	}
}

static inline void count_up(unsigned int *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL);
}

/* Meet all ranks outside of the cards. */
static inline void sync_ranks(void)
{
	count_up(&shared->arrived);
	await(&shared->arrived, ++me.syncs * me.nranks);
}

static void rank_uri(unsigned int rank, char *uri, size_t size)
{
	static char template[160];
	const char *given = getenv("OPTINC_TEST_CARDS");
	const char *mark;

	for (; given && rank && strchr(given, ','); rank--)
		given = strchr(given, ',') + 1;
	if (given && strchr(getenv("OPTINC_TEST_CARDS"), ',')) {
		snprintf(uri, size, "%.*s", (int)strcspn(given, ","), given);
		return;
	}
	if (!template[0] && given)
		snprintf(template, sizeof(template), "%s", given);
	else if (!template[0])
		snprintf(template, sizeof(template), "emu:test-%d?port=%%d&ports=4",
			 (int)getppid());
	mark = strstr(template, "%d");
	if (mark)
		snprintf(uri, size, "%.*s%u%s", (int)(mark - template), template, rank, mark + 2);
	else
		snprintf(uri, size, "%s", template);
}

static inline void open_card(void)
{
	char uri[160];

	rank_uri(me.rank, uri, sizeof(uri));
	CHECK_INT(optinc_open(uri, &me.card), 0);
}

static inline struct optinc_group_params params_of(unsigned int bits)
{
	struct optinc_group_params p = {
		.rank = me.rank,
		.nranks = me.nranks,
		.bits = bits,
		.deadline_ms = 10000,
		.queue = 16,
	};

	memcpy(p.key, shared->key[0], sizeof(p.key));
	return p;
}

static inline struct optinc_group *join_with(const struct optinc_group_params *p)
{
	struct optinc_group *group;

	CHECK_INT(optinc_group_join(me.card, p, sizeof(*p), &group), 0);
	CHECK(group);
	return group;
}

static inline void join_bits(unsigned int bits)
{
	struct optinc_group_params p = params_of(bits);

	me.group = join_with(&p);
}

static bool any_lost(void)
{
	unsigned int r;

	for (r = 0; r < me.nranks; r++) {
		if (shared->lost[r])
			return true;
	}
	return false;
}

/* Nobody leaves before all have what they came for: that would be an error of theirs. */
static void rank_main(unsigned int rank, unsigned int nranks, void (*body)(void))
{
	me = (struct rank) { .rank = rank, .nranks = nranks };
	open_card();
	body();
	if (!any_lost())
		sync_ranks();
	optinc_close(me.card);
	_exit(0);
}

/* Wait for all, but not for ever. Returns how many hang or failed. */
static unsigned int reap_ranks(pid_t *pids, unsigned int nranks)
{
	const char *deadline = getenv("OPTINC_TEST_DEADLINE");
	double until = seconds() + (deadline ? atoi(deadline) : RANKS_DEADLINE);
	unsigned int left = nranks, bad = 0, r;
	int status;

	while (left && seconds() < until) {
		for (r = 0; r < nranks; r++) {
			if (!pids[r] || waitpid(pids[r], &status, WNOHANG) != pids[r])
				continue;
			pids[r] = 0;
			left--;
			if (shared->lost[r] ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL :
			    WIFEXITED(status) && !WEXITSTATUS(status))
				continue;
			bad++;
			if (WIFSIGNALED(status))
				print_error("rank %u died of signal %d\n", r, WTERMSIG(status));
		}
		usleep(1000);
	}
	for (r = 0; r < nranks; r++) {
		if (!pids[r])
			continue;
		print_error("rank %u hangs\n", r);
		kill(pids[r], SIGKILL);
		waitpid(pids[r], &status, 0);
		bad++;
	}
	return bad;
}

static void run_ranks(unsigned int nranks, void (*body)(void))
{
	pid_t pids[MAX_RANKS] = { 0 };
	unsigned int r, bad;

	if ((int)nranks > test_ranks()) {
		print_message("# needs %u cards\n", nranks);
		skip();
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	assert_true(shared != MAP_FAILED);
	assert_int_equal(optinc_key_generate(shared->key[0]), 0);
	assert_int_equal(optinc_key_generate(shared->key[1]), 0);
	fflush(NULL);
	for (r = 0; r < nranks; r++) {
		pids[r] = fork();
		assert_true(pids[r] >= 0);
		if (!pids[r])
			rank_main(r, nranks, body);
	}
	bad = reap_ranks(pids, nranks);
	for (r = 0; r < nranks; r++) {
		if (shared->message[r][0])
			print_error("%s\n", shared->message[r]);
	}
	munmap(shared, sizeof(*shared));
	assert_int_equal(bad, 0);
}

#endif /* RANKS_H */
