// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Who drives the emulated card, and who waits: waits, spins, ioctls and the
 * service thread on one card and on several, eventfds, fork. Each test ends
 * in bounded time only if no wake-up is lost.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include "selftests/emulator/provider_dev.h"

/* Far more than anything here takes, far less than giving up takes */
#define SOON	(3 * SECOND)

struct pair {
	struct dev d[2];
	struct dqp q[2];
	uint32_t group[2];
};

static void *join_thread(void *arg)
{
	struct pair *p = arg;

	finish_join(&p->d[1], p->group[1]);
	return NULL;
}

static void open_pair(struct pair *p, const char *more, const int eventfds[2])
{
	pthread_t thread;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		open_dev(&p->d[i], uri_of(i, 2, more));
		make_qp(&p->d[i], &p->q[i], 16, 32, eventfds ? eventfds[i] : -1);
		p->group[i] = begin_join(&p->d[i], 1, i, 2);
	}
	assert_int_equal(pthread_create(&thread, NULL, join_thread, p), 0);
	finish_join(&p->d[0], p->group[0]);
	pthread_join(thread, NULL);
}

static int setup(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));

	open_pair(p, "", NULL);
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct pair *p = *state;

	close_dev(&p->d[0]);
	close_dev(&p->d[1]);
	free(p);
	return 0;
}

/* A rank that enters barriers, and waits for each in its own way */
struct rank {
	struct dqp *q;
	uint32_t group;
	unsigned int rounds;
	unsigned int way;		/* 0 wait, 1 spin, 2 either, 3 eventfd */
	_Atomic unsigned int done;
	pthread_t thread;
};

static uint32_t take_poll(struct dqp *q)
{
	struct pollfd pfd = { .fd = q->eventfd, .events = POLLIN };
	struct optinc_cqe cqe;
	uint64_t count;

	while (!take(q, &cqe)) {
		arm(q);
		/* nothing but the eventfd tells, and no time-out helps */
		if (poll(&pfd, 1, 20000) != 1)
			fail_msg("the eventfd was not signalled");
		assert_int_equal(read(q->eventfd, &count, sizeof(count)), sizeof(count));
	}
	return cqe.status >> 1;
}

static uint32_t take_by(struct dqp *q, unsigned int way)
{
	switch (way) {
	case 0:
		return take_wait(q);
	case 1:
		return take_relax(q);
	default:
		return take_poll(q);
	}
}

static void *enter_barriers(void *arg)
{
	struct rank *r = arg;
	unsigned int i;

	for (i = 0; i < r->rounds; i++) {
		post_barrier(r->q, r->group);
		if (take_by(r->q, r->way == 2 ? i % 2 : r->way) != OPTINC_ST_SUCCESS)
			break;
		atomic_fetch_add(&r->done, 1);
	}
	return NULL;
}

static void *do_nops(void *arg)
{
	struct rank *r = arg;
	unsigned int i;

	for (i = 0; i < r->rounds; i++) {
		post_nop(r->q, (uint16_t)i);
		if (take_by(r->q, r->way == 2 ? i % 2 : r->way) != OPTINC_ST_SUCCESS)
			break;
		atomic_fetch_add(&r->done, 1);
	}
	return NULL;
}

static void start(struct rank *r, void *(*run)(void *arg))
{
	assert_int_equal(pthread_create(&r->thread, NULL, run, r), 0);
}

static void finish(struct rank *r)
{
	pthread_join(r->thread, NULL);
	assert_int_equal(r->done, r->rounds);
}

static void run_pair(struct pair *p, unsigned int way0, unsigned int way1, unsigned int rounds)
{
	struct rank r[2] = {
		{ .q = &p->q[0], .group = p->group[0], .rounds = rounds, .way = way0 },
		{ .q = &p->q[1], .group = p->group[1], .rounds = rounds, .way = way1 },
	};

	start(&r[0], enter_barriers);
	start(&r[1], enter_barriers);
	finish(&r[0]);
	finish(&r[1]);
}

static void test_ways(void **state)
{
	struct pair *p = *state;

	run_pair(p, 0, 0, 3000);
	run_pair(p, 1, 1, 3000);
	run_pair(p, 0, 1, 3000);
	run_pair(p, 2, 2, 3000);
}

/* Poll of an eventfd, with a vector for each queue pair and one for all */
static void poll_both(const char *more)
{
	int fds[2] = { eventfd(0, EFD_NONBLOCK), eventfd(0, EFD_NONBLOCK) };
	struct pair p = { 0 };

	open_pair(&p, more, fds);
	run_pair(&p, 3, 3, 1000);
	run_pair(&p, 3, 0, 500);
	close_dev(&p.d[0]);
	close_dev(&p.d[1]);
	close(fds[0]);
	close(fds[1]);
}

static void test_eventfd(void **state)
{
	(void)state;
	poll_both("");
}

static void test_one_vector(void **state)
{
	(void)state;
	poll_both("&vectors=1");
}

/* For one who polls the service thread works at once, not at its next tick. */
static void test_eventfd_at_once(void **state)
{
	struct pair *p = *state;
	int fd = eventfd(0, EFD_NONBLOCK);
	uint64_t begin, best = UINT64_MAX;
	unsigned int batch, n;
	struct dqp q;

	make_qp(&p->d[0], &q, 4, 4, fd);
	for (batch = 0; batch < 20; batch++) {
		begin = now_ns();
		for (n = 0; n < 20; n++) {
			arm(&q);
			post_nop(&q, 1);
			assert_int_equal(take_poll(&q), OPTINC_ST_SUCCESS);
		}
		if (now_ns() - begin < best)
			best = now_ns() - begin;
	}
	assert_true(best < 20 * MSEC / 2);
	close(fd);
}

/* Not armed, not signalled; and the caller may close its descriptor. */
static void test_eventfd_owned(void **state)
{
	struct pair *p = *state;
	int fd = eventfd(0, EFD_NONBLOCK), copy = dup(fd);
	uint64_t count = 0;
	struct dqp q;

	make_qp(&p->d[0], &q, 4, 4, fd);
	close(fd);
	post_nop(&q, 1);
	assert_int_equal(take_wait(&q), OPTINC_ST_SUCCESS);
	assert_int_equal(read(copy, &count, sizeof(count)), -1);
	q.eventfd = copy;
	arm(&q);
	post_nop(&q, 2);
	assert_int_equal(take_poll(&q), OPTINC_ST_SUCCESS);
	close(copy);
}

/* Two threads with a queue pair each, and a third with ioctls, on one card */
static void test_shared_card(void **state)
{
	struct pair *p = *state;
	struct dqp other;
	struct rank r[2] = {
		{ .q = &p->q[0], .rounds = 20000, .way = 2 },
		{ .q = &other, .rounds = 20000, .way = 2 },
	};
	struct optinc_stats stats = { .size = sizeof(stats) };
	uint64_t begin, worst = 0;
	unsigned int n;
	char memory[64];

	make_qp(&p->d[0], &other, 4, 8, -1);
	start(&r[0], do_nops);
	start(&r[1], do_nops);
	for (n = 0; n < 300; n++) {
		struct optinc_mr_dereg dereg = { .size = sizeof(dereg) };

		begin = now_ns();
		assert_int_equal(P->ioctl(p->d[0].dev, OPTINC_IOCTL_STATS, &stats), 0);
		dereg.mr = reg_mr(&p->d[0], memory, sizeof(memory), OPTINC_MR_WRITE);
		assert_int_equal(P->ioctl(p->d[0].dev, OPTINC_IOCTL_MR_DEREG, &dereg), 0);
		if (now_ns() - begin > worst)
			worst = now_ns() - begin;
	}
	finish(&r[0]);
	finish(&r[1]);
	assert_true(worst < SOON);
}

/*
 * One thread sleeps in the card for a peer that does not come. Doorbells,
 * waits, spins and ioctls of others on the same card go on as if it were not
 * there, and then the peer comes.
 */
static void test_behind_a_sleeper(void **state)
{
	struct pair *p = *state;
	struct rank sleeper = { .q = &p->q[0], .group = p->group[0], .rounds = 1, .way = 0 };
	struct optinc_stats stats = { .size = sizeof(stats) };
	uint64_t begin, worst[3] = { 0 };
	struct dqp other;
	unsigned int n, i;

	make_qp(&p->d[0], &other, 4, 8, -1);
	start(&sleeper, enter_barriers);
	sleep_ns(30 * MSEC);
	for (n = 0; n < 50; n++) {
		for (i = 0; i < 3; i++) {
			begin = now_ns();
			if (i == 2) {
				assert_int_equal(P->ioctl(p->d[0].dev, OPTINC_IOCTL_STATS, &stats),
						 0);
			} else {
				post_nop(&other, 1);
				assert_int_equal(take_by(&other, i), OPTINC_ST_SUCCESS);
			}
			if (now_ns() - begin > worst[i])
				worst[i] = now_ns() - begin;
		}
		sleep_ns(MSEC);
	}
	assert_int_equal(sleeper.done, 0);
	for (i = 0; i < 3; i++)
		assert_true(worst[i] < SOON);
	post_barrier(&p->q[1], p->group[1]);
	assert_int_equal(take_wait(&p->q[1]), OPTINC_ST_SUCCESS);
	finish(&sleeper);
}

/*
 * The same, but nobody calls after the doorbell: it alone ends the sleep,
 * which without it would go on for up to 20 ms.
 */
static void test_doorbell_wakes(void **state)
{
	struct pair *p = *state;
	struct rank sleeper = { .q = &p->q[0], .group = p->group[0], .rounds = 1, .way = 0 };
	unsigned int n, prompt = 0;
	struct optinc_cqe cqe;
	struct dqp other;
	uint64_t begin;

	make_qp(&p->d[0], &other, 4, 8, -1);
	start(&sleeper, enter_barriers);
	sleep_ns(30 * MSEC);
	for (n = 0; n < 40; n++) {
		post_nop(&other, 1);
		begin = now_ns();
		while (!take(&other, &cqe) && now_ns() - begin < SOON)
			sleep_ns(50000);
		prompt += now_ns() - begin < 2 * MSEC;
		sleep_ns(2 * MSEC);
	}
	/* a busy machine spoils some; of sleeps that are not ended it would be 4 */
	assert_true(prompt >= 12);
	post_barrier(&p->q[1], p->group[1]);
	assert_int_equal(take_wait(&p->q[1]), OPTINC_ST_SUCCESS);
	finish(&sleeper);
}

/* A wait behind another is woken: it does not find out by looking now and then. */
static void test_woken_behind(void **state)
{
	struct pair *p = *state;
	struct rank sleeper = { .q = &p->q[0], .group = p->group[0], .rounds = 1, .way = 0 };
	struct rank behind = { .rounds = 1, .way = 0 };
	struct dqp q[2];
	uint32_t group[2];
	uint64_t begin, took, best = UINT64_MAX;
	unsigned int n, i;

	for (i = 0; i < 2; i++) {
		make_qp(&p->d[i], &q[i], 4, 8, -1);
		group[i] = begin_join(&p->d[i], 2, i, 2);
	}
	finish_join(&p->d[0], group[0]);
	finish_join(&p->d[1], group[1]);
	start(&sleeper, enter_barriers);
	sleep_ns(30 * MSEC);
	behind.q = &q[0];
	behind.group = group[0];
	for (n = 0; n < 20; n++) {
		behind.done = 0;
		start(&behind, enter_barriers);
		sleep_ns(2 * MSEC);
		post_barrier(&q[1], group[1]);
		begin = now_ns();
		P->relax(p->d[1].dev);
		finish(&behind);
		took = now_ns() - begin;
		if (took < best)
			best = took;
		assert_int_equal(take_wait(&q[1]), OPTINC_ST_SUCCESS);
	}
	assert_true(best < 4 * MSEC);
	post_barrier(&p->q[1], p->group[1]);
	assert_int_equal(take_wait(&p->q[1]), OPTINC_ST_SUCCESS);
	finish(&sleeper);
}

/* The driver goes away without its completion: one that waits behind takes over. */
static void *wait_shortly(void *arg)
{
	struct dqp *q = arg;

	assert_int_equal(P->wait(q->d->dev, q->d->page, q->id, (uint16_t)q->head, -1, 60 * MSEC),
			 0);
	return NULL;
}

static void test_take_over(void **state)
{
	struct pair *p = *state;
	struct rank behind = { .q = &p->q[0], .group = p->group[0], .rounds = 1, .way = 0 };
	struct dqp other;
	pthread_t thread;
	uint64_t begin;
	unsigned int n;

	make_qp(&p->d[0], &other, 4, 8, -1);
	for (n = 0; n < 10; n++) {
		assert_int_equal(pthread_create(&thread, NULL, wait_shortly, &other), 0);
		sleep_ns(10 * MSEC);
		behind.done = 0;
		start(&behind, enter_barriers);
		pthread_join(thread, NULL);
		begin = now_ns();
		post_barrier(&p->q[1], p->group[1]);
		assert_int_equal(take_wait(&p->q[1]), OPTINC_ST_SUCCESS);
		finish(&behind);
		assert_true(now_ns() - begin < SOON);
	}
}

/* Nobody waits and nobody spins: the service thread does it, on both cards. */
static void test_service(void **state)
{
	struct pair *p = *state;
	uint64_t until;
	unsigned int n;

	for (n = 0; n < 20; n++) {
		struct optinc_cqe cqe;

		until = now_ns() + SOON;
		post_barrier(&p->q[0], p->group[0]);
		post_barrier(&p->q[1], p->group[1]);
		while ((!is_done(&p->q[0]) || !is_done(&p->q[1])) && now_ns() < until)
			sleep_ns(100000);
		assert_true(take(&p->q[0], &cqe) && cqe.status >> 1 == OPTINC_ST_SUCCESS);
		assert_true(take(&p->q[1], &cqe) && cqe.status >> 1 == OPTINC_ST_SUCCESS);
		/* ticking, and asleep */
		sleep_ns(n % 10 == 9 ? 300 * MSEC : MSEC);
	}
}

/* A join that nobody waits for */
static void test_service_joins(void **state)
{
	struct pair *p = *state;
	uint32_t group[2];
	struct optinc_group_wait wait;
	unsigned int i;

	sleep_ns(300 * MSEC);		/* the service thread sleeps by then */
	for (i = 0; i < 2; i++)
		group[i] = begin_join(&p->d[i], 9, i, 2);
	sleep_ns(SECOND);
	for (i = 0; i < 2; i++) {
		assert_int_equal(group_wait(&p->d[i], group[i], 0, &wait), 0);
		assert_int_equal(wait.state, OPTINC_GROUP_READY);
		assert_int_equal(wait.joined, 3);
	}
}

/* A wait for a group, and one for a queue pair, end when these go. */
struct waiter {
	struct pair *p;
	uint32_t group;
	struct dqp *q;
	int rc;
	pthread_t thread;
};

static void *wait_for_group(void *arg)
{
	struct waiter *w = arg;
	struct optinc_group_wait wait;

	w->rc = group_wait(&w->p->d[0], w->group, 20000, &wait);
	return NULL;
}

static void *wait_for_qp(void *arg)
{
	struct waiter *w = arg;

	w->rc = P->wait(w->q->d->dev, w->q->d->page, w->q->id, 0, -1, 20 * SECOND);
	return NULL;
}

static void test_objects_go(void **state)
{
	struct pair *p = *state;
	struct dqp q;
	struct waiter on_group = { .p = p }, on_qp = { .p = p, .q = &q };
	struct optinc_group_leave leave = { .size = sizeof(leave) };
	uint64_t begin;
	unsigned int n;

	for (n = 0; n < 5; n++) {
		on_group.group = leave.group = begin_join(&p->d[0], 99, 0, 2);
		make_qp(&p->d[0], &q, 4, 4, -1);
		pthread_create(&on_group.thread, NULL, wait_for_group, &on_group);
		pthread_create(&on_qp.thread, NULL, wait_for_qp, &on_qp);
		sleep_ns(20 * MSEC);
		begin = now_ns();
		assert_int_equal(P->ioctl(p->d[0].dev, OPTINC_IOCTL_GROUP_LEAVE, &leave), 0);
		pthread_join(on_group.thread, NULL);
		assert_int_equal(on_group.rc, -ENOENT);
		assert_int_equal(destroy_qp(&q), 0);
		pthread_join(on_qp.thread, NULL);
		/* or it had not begun to wait */
		assert_true(on_qp.rc == 0 || on_qp.rc == -ENOENT);
		assert_true(now_ns() - begin < SOON);
		unmap_qp(&q);
	}
}

/* A peer that closes with everything open */
static void test_peer_closes(void **state)
{
	struct pair *p = *state;
	struct optinc_group_wait wait;
	uint64_t begin = now_ns();

	post_barrier(&p->q[0], p->group[0]);
	P->relax(p->d[0].dev);
	close_dev(&p->d[1]);
	assert_int_equal(take_wait(&p->q[0]), OPTINC_ST_PEER_LOST);
	assert_true(now_ns() - begin < SOON);
	assert_int_equal(group_wait(&p->d[0], p->group[0], 0, &wait), 0);
	assert_int_equal(wait.state, OPTINC_GROUP_FAILED);
	assert_int_equal(wait.status, OPTINC_ST_PEER_LOST);
	assert_int_equal(wait.peer, 1);
	open_dev(&p->d[1], uri_of(1, 2, ""));
}

/* Many cards in one process, more of them than processors */
#define RANKS	6

static void test_crowd(void **state)
{
	struct dev d[RANKS];
	struct dqp q[RANKS];
	struct rank r[RANKS] = { 0 };
	char uri[128];
	unsigned int i;

	(void)state;
	for (i = 0; i < RANKS; i++) {
		snprintf(uri, sizeof(uri), "crowd-%d?port=%u&ports=%u", (int)getpid(), i, RANKS);
		open_dev(&d[i], uri);
		make_qp(&d[i], &q[i], 4, 4, -1);
		r[i] = (struct rank) { .q = &q[i], .rounds = 200, .way = i % 3 };
		r[i].group = begin_join(&d[i], 5, i, RANKS);
	}
	/* the first waits for the join, the service threads drive the others */
	for (i = 0; i < RANKS; i++)
		finish_join(&d[i], r[i].group);
	for (i = 0; i < RANKS; i++)
		start(&r[i], enter_barriers);
	for (i = 0; i < RANKS; i++)
		finish(&r[i]);
	for (i = 0; i < RANKS; i++)
		close_dev(&d[i]);
}

/* A child that closes, or calls, what it has inherited disturbs nobody. */
static int child(struct pair *p)
{
	struct optinc_stats stats = { .size = sizeof(stats) };

	if (P->ioctl(p->d[0].dev, OPTINC_IOCTL_STATS, &stats) != -ENODEV ||
	    P->wait(p->d[0].dev, p->d[0].page, p->q[0].id, 0, -1, SECOND) != -ENODEV ||
	    P->mmap(p->d[0].dev, p->d[0].query.page_size, PROT_READ | PROT_WRITE,
		    p->d[0].query.doorbell_offset) != MAP_FAILED)
		return 1;
	P->doorbell(p->d[0].dev, p->d[0].page, OPTINC_DB_SQ_TAIL,
		    OPTINC_DB_VALUE(p->q[0].id, p->q[0].tail + 1));
	P->relax(p->d[0].dev);
	P->close(p->d[0].dev);
	P->close(p->d[1].dev);
	return 0;
}

static void test_fork(void **state)
{
	struct pair *p = *state;
	struct rank busy = { .q = &p->q[0], .group = p->group[0], .rounds = 20000, .way = 0 };
	struct rank peer = { .q = &p->q[1], .group = p->group[1], .rounds = 20000, .way = 0 };
	unsigned int n;
	int status;
	pid_t pid;

	start(&busy, enter_barriers);
	start(&peer, enter_barriers);
	for (n = 0; n < 20; n++) {
		pid = fork();
		if (!pid)
			_exit(child(p));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	finish(&busy);
	finish(&peer);
}

/* Steady use by waits costs no thread that works: it ticks, and sleeps when it is quiet. */
static void test_quiet(void **state)
{
	struct pair *p = *state;
	struct timespec before, after;
	int64_t used;

	run_pair(p, 0, 0, 10);
	sleep_ns(300 * MSEC);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	sleep_ns(SECOND);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	used = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
	assert_true(used < 10000000);
}

/*
 * An armed queue whose work waits for a peer, while another thread drives the
 * card: nothing may turn round and round for it.
 */
static void test_armed_and_driven(void **state)
{
	struct pair *p = *state;
	struct rank sleeper = { .q = &p->q[0], .group = p->group[0], .rounds = 1, .way = 0 };
	struct timespec before, after;
	int64_t used;
	int fd = eventfd(0, EFD_NONBLOCK);
	struct dqp q;

	make_qp(&p->d[0], &q, 4, 4, fd);
	arm(&q);
	start(&sleeper, enter_barriers);
	sleep_ns(50 * MSEC);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	sleep_ns(SECOND);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	used = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
	post_barrier(&p->q[1], p->group[1]);
	assert_int_equal(take_wait(&p->q[1]), OPTINC_ST_SUCCESS);
	finish(&sleeper);
	assert_true(used < 300000000);
	post_nop(&q, 1);
	assert_int_equal(take_poll(&q), OPTINC_ST_SUCCESS);
	close(fd);
}

int main(void)
{
#define CASE(name)	cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(ways), cmocka_unit_test(test_eventfd), cmocka_unit_test(test_one_vector),
		CASE(eventfd_at_once), CASE(eventfd_owned), CASE(shared_card), CASE(behind_a_sleeper), CASE(doorbell_wakes),
		CASE(woken_behind), CASE(take_over),
		CASE(service), CASE(service_joins), CASE(objects_go), CASE(peer_closes),
		cmocka_unit_test(test_crowd), CASE(fork), CASE(quiet), CASE(armed_and_driven),
	};

	return cmocka_run_group_tests_name("provider: threads", tests, NULL, NULL);
}
