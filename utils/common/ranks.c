// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Ranks as child processes, watched by their parent.
 *
 * Whatever a rank does, the tool ends: a rank that fails takes the others with
 * it, one that makes no progress is killed, and none outlives the parent.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

#define POLL_MS		200
#define GRACE_MS	2000	/* for the others to notice that one has failed */

/* What a rank tells its parent. */
struct report {
	_Atomic uint64_t progress;
	_Atomic uint32_t order;		/* of failure among the ranks, from 1; 0 is none */
	char why[512];
};

struct shared {
	_Atomic uint32_t failures;
	struct report report[OPTINC_MAX_RANKS];
};

/* What the parent knows of a rank. */
struct child {
	pid_t pid;		/* 0 once it has been waited for */
	int status;
	bool stalled;
	bool killed;		/* by this process */
	uint64_t progress;
	uint64_t progress_ns;	/* when it last changed */
};

struct watch {
	const struct ranks *ranks;
	struct shared *shared;
	struct child child[OPTINC_MAX_RANKS];
	unsigned int left;
	uint64_t failed_ns;	/* when the first failure was seen; 0 is never */
};

/* Of this process, if it is a rank. */
static struct shared *my_shared;
static struct report *my_report;

void *ranks_shared(size_t bytes)
{
	void *map = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return map == MAP_FAILED ? NULL : map;
}

void rank_progress(void)
{
	if (my_report)
		atomic_fetch_add_explicit(&my_report->progress, 1, memory_order_relaxed);
}

int rank_fail(const char *fmt, ...)
{
	va_list args;

	if (!my_report || my_report->order)
		return EXIT_FAIL;
	va_start(args, fmt);
	vsnprintf(my_report->why, sizeof(my_report->why), fmt, args);
	va_end(args);
	my_report->order = atomic_fetch_add(&my_shared->failures, 1) + 1;
	return EXIT_FAIL;
}

static void child_main(struct watch *w, unsigned int i, const sigset_t *mask, pid_t parent)
{
	int status;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_FAIL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	my_shared = w->shared;
	my_report = &w->shared->report[i];
	status = w->ranks->run(w->ranks->first + i, w->ranks->arg);
	exit(tool_finish(status));
}

static bool failed(const struct watch *w, unsigned int i)
{
	const struct child *c = &w->child[i];

	return w->shared->report[i].order || c->stalled ||
	       (!c->pid && WIFSIGNALED(c->status));
}

static void kill_all(struct watch *w)
{
	unsigned int i;

	for (i = 0; i < w->ranks->count; i++) {
		if (w->child[i].pid <= 0)
			continue;
		w->child[i].killed = true;
		kill(w->child[i].pid, SIGKILL);
	}
}

static void reap(struct watch *w)
{
	unsigned int i;

	for (i = 0; i < w->ranks->count; i++) {
		struct child *c = &w->child[i];

		if (c->pid <= 0 || waitpid(c->pid, &c->status, WNOHANG) != c->pid)
			continue;
		c->pid = 0;
		w->left--;
		if (failed(w, i) && !w->failed_ns)
			w->failed_ns = clock_ns();
	}
}

static void look_for_stalls(struct watch *w, uint64_t now)
{
	unsigned int i;

	for (i = 0; i < w->ranks->count; i++) {
		struct child *c = &w->child[i];
		uint64_t progress = w->shared->report[i].progress;

		if (!c->pid || progress != c->progress) {
			c->progress = progress;
			c->progress_ns = now;
		} else if (now - c->progress_ns > w->ranks->stall_ms * 1000000ull) {
			c->stalled = true;
		}
	}
	for (i = 0; i < w->ranks->count; i++) {
		if (w->child[i].stalled) {
			w->failed_ns = now;
			kill_all(w);
			return;
		}
	}
}

/*
 * The rank that began it: one that was killed or stalled, as it can not have
 * been told of another's end; else the first that reported a failure.
 */
static unsigned int culprit(const struct watch *w)
{
	unsigned int i, first = w->ranks->count;

	for (i = 0; i < w->ranks->count; i++) {
		const struct report *r = &w->shared->report[i];
		const struct child *c = &w->child[i];

		if (c->stalled || (WIFSIGNALED(c->status) && !c->killed && !r->order))
			return i;
		if (r->order && (first == w->ranks->count ||
				 r->order < w->shared->report[first].order))
			first = i;
	}
	return first;
}

static void describe(const struct watch *w, unsigned int i, char why[WHY_BYTES])
{
	const struct child *c = &w->child[i];
	unsigned int rank = w->ranks->first + i;

	if (c->stalled)
		why_set(why, "rank %u made no progress for %u s and was ended", rank,
			w->ranks->stall_ms / 1000);
	else if (w->shared->report[i].order)
		why_set(why, "rank %u: %s", rank, w->shared->report[i].why);
	else
		why_set(why, "rank %u was ended by signal %d (%s)", rank,
			WTERMSIG(c->status), strsignal(WTERMSIG(c->status)));
}

static int verdict(const struct watch *w, char why[WHY_BYTES])
{
	unsigned int i = culprit(w);
	int status = 0;

	if (i < w->ranks->count) {
		describe(w, i, why);
		return -1;
	}
	for (i = 0; i < w->ranks->count; i++) {
		if (WEXITSTATUS(w->child[i].status) > status)
			status = WEXITSTATUS(w->child[i].status);
	}
	return status;
}

static int watch(struct watch *w, const sigset_t *sigchld, char why[WHY_BYTES])
{
	const struct timespec poll = { .tv_nsec = POLL_MS * 1000000l };

	while (w->left) {
		uint64_t now;

		reap(w);
		if (!w->left)
			break;
		now = clock_ns();
		if (!w->failed_ns)
			look_for_stalls(w, now);
		else if (now - w->failed_ns > GRACE_MS * 1000000ull)
			kill_all(w);
		sigtimedwait(sigchld, NULL, &poll);
	}
	return verdict(w, why);
}

static bool fork_all(struct watch *w, const sigset_t *mask, char why[WHY_BYTES])
{
	pid_t parent = getpid();
	unsigned int i;

	fflush(NULL);
	for (i = 0; i < w->ranks->count; i++) {
		pid_t pid = fork();

		if (pid == 0)
			child_main(w, i, mask, parent);
		if (pid < 0)
			return why_set(why, "cannot start rank %u: %s",
				       w->ranks->first + i, strerror(errno));
		w->child[i].pid = pid;
		w->child[i].progress_ns = clock_ns();
		w->left++;
	}
	return true;
}

int ranks_run(const struct ranks *ranks, char why[WHY_BYTES])
{
	struct watch w = { .ranks = ranks };
	sigset_t sigchld, mask;
	int ret = -1;

	w.shared = ranks_shared(sizeof(*w.shared));
	if (!w.shared) {
		why_set(why, "out of memory");
		return -1;
	}
	sigemptyset(&sigchld);
	sigaddset(&sigchld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &sigchld, &mask);
	if (fork_all(&w, &mask, why)) {
		ret = watch(&w, &sigchld, why);
	} else {
		kill_all(&w);
		while (w.left) {
			reap(&w);
			usleep(1000);
		}
	}
	sigprocmask(SIG_SETMASK, &mask, NULL);
	munmap(w.shared, sizeof(*w.shared));
	return ret;
}
