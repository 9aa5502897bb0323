// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sleeping: poll() of the node, eventfds that are armed, and nothing missed.
 */
#include "card.h"

#include "kselftest_harness.h"

#define ROUNDS	2000U

/* How card 0's vectors are called: all, or with "io" those of queues */
static const char *vectors(const char *kind)
{
	static char name[32];

	snprintf(name, sizeof(name), "optinc%u-%s", node_number(0), kind);
	return name;
}

/* Interrupts of card 0 that the machine has counted */
static unsigned long count_interrupts(const char *kind)
{
	char line[4096], *p, *end;
	unsigned long sum = 0, n;
	FILE *file = fopen("/proc/interrupts", "r");

	must(file);
	while (fgets(line, sizeof(line), file)) {
		if (!strstr(line, vectors(kind)))
			continue;
		p = strchr(line, ':');
		must(p);
		for (p++; n = strtoul(p, &end, 10), end != p; p = end)
			sum += n;
	}
	fclose(file);
	return sum;
}

static bool has_vector(const char *kind)
{
	char line[4096];
	bool found = false;
	FILE *file = fopen("/proc/interrupts", "r");

	must(file);
	while (fgets(line, sizeof(line), file))
		found = found || strstr(line, vectors(kind));
	fclose(file);
	return found;
}

/*
 * The driver signals all queues of a vector, and a card with one vector has
 * the admin queue there too: then there may be more signals, never fewer.
 */
static bool own_vector;

FIXTURE(event)
{
	struct card card;
	struct queue queue;
	int fd;
};

FIXTURE_SETUP(event)
{
	self->fd = eventfd(0, EFD_CLOEXEC);
	must_open(&self->card, 0);
	must_create_queue(&self->card, &self->queue, 16, 16, self->fd);
	own_vector = has_vector("io");
	if (!own_vector)
		await_signal(self->fd, QUIET_MS);
}

FIXTURE_TEARDOWN(event)
{
}

/* How often it was signalled, once included at least; -1 if it was not */
static int signals(int fd)
{
	int n = await_signal(fd, PATIENCE_MS);

	return own_vector || n < 1 ? n : 1;
}

/* No signal that cannot be explained */
static bool quiet(int fd)
{
	return await_signal(fd, QUIET_MS) == -1 || !own_vector;
}

static short node_events(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT | POLLPRI };

	return poll(&p, 1, ms) < 0 ? -1 : p.revents;
}

static void must_reset(unsigned int number)
{
	struct optinc_reset reset = { .size = sizeof(reset) };
	int ctl = open_node("ctl", number);

	must(!call(ctl, OPTINC_IOCTL_RESET, &reset));
	close(ctl);
}

TEST_F(event, not_without_arming)
{
	unsigned int i;

	for (i = 0; i < 100; i++) {
		post_nop(&self->queue, (uint16_t)i);
		ASSERT_EQ(OPTINC_ST_SUCCESS, await_status(&self->queue));
	}
	EXPECT_TRUE(quiet(self->fd));
}

/* Who polls makes no interrupt, on any vector. */
TEST_F(event, polling_makes_no_interrupt)
{
	unsigned long before = count_interrupts(""), i;

	ASSERT_LT(0, before);
	for (i = 0; i < 1000; i++) {
		post_nop(&self->queue, (uint16_t)i);
		ASSERT_EQ(OPTINC_ST_SUCCESS, await_status(&self->queue));
	}
	EXPECT_EQ(before, count_interrupts(""));
}

TEST_F(event, armed_before)
{
	arm(&self->queue, 0);
	EXPECT_TRUE(quiet(self->fd));
	post_nop(&self->queue, 1);
	EXPECT_EQ(1, signals(self->fd));
	EXPECT_TRUE(is_done(&self->queue));
	/* used up */
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->queue));
	post_nop(&self->queue, 2);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->queue));
	EXPECT_TRUE(quiet(self->fd));
}

/* An index that differs from the ring's tail signals at once. */
TEST_F(event, armed_after)
{
	static const int wrong[] = { 0, 1, -1, 7, 0x8000 };
	unsigned int i;

	post_nop(&self->queue, 1);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->queue));
	post_nop(&self->queue, 2);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->queue));
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		arm(&self->queue, (uint32_t)wrong[i]);
		EXPECT_EQ(1, signals(self->fd)) TH_LOG("%d", wrong[i]);
	}
	EXPECT_TRUE(quiet(self->fd));
	/* armed twice is armed once */
	arm(&self->queue, 2);
	arm(&self->queue, 2);
	post_nop(&self->queue, 3);
	EXPECT_EQ(1, signals(self->fd));
	post_nop(&self->queue, 4);
	EXPECT_TRUE(quiet(self->fd));
}

/* Consume, arm, sleep; the completion comes before, between or after. */
TEST_F(event, no_lost_wakeup)
{
	struct queue *q = &self->queue;
	unsigned int round, delay, asleep = 0;
	struct optinc_cqe cqe;

	for (round = 0; round < ROUNDS; round++) {
		post_nop(q, (uint16_t)round);
		for (delay = round % 7 * (round % 131); delay; delay--)
			__asm__ volatile("");
		while (!is_done(q)) {
			arm(q, q->head);
			ASSERT_LE(1, await_signal(self->fd, PATIENCE_MS))
				TH_LOG("round %u", round);
			asleep++;
		}
		cqe = must_await(q);
		ASSERT_EQ((uint16_t)round, cqe.cmd_id);
	}
	TH_LOG("%u of %u rounds slept", asleep, ROUNDS);
	EXPECT_LT(ROUNDS / 100, asleep);
}

/* The same, with a completion that comes from another card when it likes */
TEST(no_lost_wakeup_with_a_peer)
{
	int fd[2] = { eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC) };
	struct optinc_sqe barrier = { .opcode = OPTINC_OP_BARRIER };
	unsigned int round, r;
	struct end end[2];
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	ASSERT_LE(0, pid);
	r = !pid;
	must_prepare_end(&end[r], r, fd[r]);
	barrier.group = must_join(&end[r].card, "event peer", r);
	must_be_ready(&end[r].card, barrier.group);
	for (round = 0; round < ROUNDS / 4; round++) {
		struct queue *q = &end[r].queue;

		if (round % 3 == r)
			usleep(round % 100);
		post(q, &barrier);
		while (!is_done(q)) {
			arm(q, q->head);
			must(await_signal(fd[r], PATIENCE_MS) >= 1);
		}
		must(await_status(q) == OPTINC_ST_SUCCESS);
	}
	if (!pid)
		_exit(0);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

/* Many queues share an eventfd, and vectors: each has its signal. */
TEST_F(event, shared)
{
	struct queue q[8];
	int own[8];
	unsigned int i, n = 0;

	if (self->card.query.max_qps < 9)
		SKIP(return, "the card has few queues");
	for (i = 0; i < 8; i++) {
		own[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		must_create_queue(&self->card, &q[i], 4, 4, i < 4 ? self->fd : own[i]);
		arm(&q[i], 0);
	}
	EXPECT_TRUE(quiet(self->fd));
	for (i = 0; i < 8; i++)
		post_nop(&q[i], 1);
	while (n < 4) {
		int more = await_signal(self->fd, PATIENCE_MS);

		ASSERT_LE(1, more);
		n += (unsigned int)more;
		/* vectors may merge, a queue's completions do not */
		for (i = 0; i < 4 && is_done(&q[i]); i++)
			;
		if (i == 4)
			break;
	}
	for (i = 4; i < 8; i++)
		EXPECT_LE(1, await_signal(own[i], PATIENCE_MS)) TH_LOG("queue %u", i);
	for (i = 0; i < 8; i++)
		EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&q[i]));
}

/* The driver has a reference of its own; and gives it back. */
TEST_F(event, closed_eventfd)
{
	int fd = dup(self->fd);

	close(self->fd);
	arm(&self->queue, 0);
	post_nop(&self->queue, 1);
	EXPECT_EQ(1, signals(fd));
	close(fd);
	arm(&self->queue, 0);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->queue));
	post_nop(&self->queue, 2);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->queue));
	EXPECT_EQ(0, destroy_queue(&self->queue));
}

/* A queue that is destroyed signals no more. */
TEST_F(event, destroyed)
{
	arm(&self->queue, 0);
	EXPECT_EQ(0, destroy_queue(&self->queue));
	ring_doorbell(&self->card, OPTINC_DB_CQ_ARM, self->queue.id, 5);
	EXPECT_TRUE(quiet(self->fd));
}

/* A queue without an eventfd can be armed in vain. */
TEST_F(event, without)
{
	unsigned long before = count_interrupts("");
	struct queue q;

	must_create_queue(&self->card, &q, 4, 4, -1);
	before = count_interrupts("io");
	arm(&q, 5);
	arm(&q, 0);
	post_nop(&q, 1);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&q));
	usleep(QUIET_MS * 1000);
	EXPECT_EQ(before, count_interrupts("io"));
}

/* Section 9, as sleepers see it */
TEST_F(event, reset)
{
	struct optinc_group_wait wait;
	struct optinc_query q;
	struct card again;
	uint32_t group = must_join(&self->card, "event reset", 0);
	int status, ctl = open_node("ctl", 0);
	void *mapping = (void *)self->card.page;
	pid_t pid;

	post_nop(&self->queue, 0x1234);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->queue));
	arm(&self->queue, 1);
	EXPECT_EQ(0, node_events(self->card.fd, QUIET_MS));
	EXPECT_EQ(0, node_events(ctl, 0));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(wait_group(&self->card, group, PATIENCE_MS, &wait) == -ENODEV ? 0 : 1);
	usleep(QUIET_MS * 1000);
	must_reset(0);
	EXPECT_EQ(POLLERR | POLLHUP, node_events(self->card.fd, PATIENCE_MS));
	EXPECT_EQ(0, node_events(ctl, 0));
	EXPECT_LE(1, await_signal(self->fd, PATIENCE_MS));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(-ENODEV, query(self->card.fd, &q));
	EXPECT_EQ(0, query(ctl, &q));
	EXPECT_EQ(MAP_FAILED, map(self->card.fd, page_bytes(), q.page_size));
	EXPECT_EQ(ENODEV, errno);
	/* stores go nowhere, also through pages that had not been touched */
	ring_doorbell(&self->card, OPTINC_DB_SQ_TAIL, self->queue.id, 1);
	EXPECT_EQ(0x1234, self->queue.cq[0].cmd_id);
	EXPECT_FALSE(is_done(&self->queue));
	/* the next one is not disturbed by them */
	must_open(&again, 0);
	ring_doorbell(&self->card, OPTINC_DB_SQ_TAIL, self->queue.id, 2);
	EXPECT_EQ(0, must_stats(&again).doorbells);
	EXPECT_EQ(0, munmap(mapping, page_bytes()));
}

/* Somebody who sleeps in poll() wakes. */
TEST_F(event, reset_wakes)
{
	int status;
	pid_t pid = fork();

	ASSERT_LE(0, pid);
	if (!pid)
		_exit(node_events(self->card.fd, PATIENCE_MS) == (POLLERR | POLLHUP) ? 0 : 1);
	usleep(QUIET_MS * 1000);
	must_reset(0);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* GROUP_WAIT: interruptible, ended by a leave, woken by the peer's join */
TEST_F(event, group_wait)
{
	struct sigaction action = { .sa_handler = on_alarm };
	uint32_t group = must_join(&self->card, "event wait", 0);
	struct optinc_group_wait wait;
	struct card peer;
	uint64_t begin = now_ms();
	int status;
	pid_t pid;

	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	alarm(1);
	EXPECT_EQ(-EINTR, wait_group(&self->card, group, PATIENCE_MS, &wait));
	EXPECT_LT(now_ms() - begin, PATIENCE_MS);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(-wait_group(&self->card, group, PATIENCE_MS, &wait));
	usleep(QUIET_MS * 1000);
	EXPECT_EQ(0, leave_group(&self->card, group));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(ENOENT, WEXITSTATUS(status));

	group = must_join(&self->card, "event wait 2", 0);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		must(!wait_group(&self->card, group, PATIENCE_MS, &wait));
		_exit((int)wait.state);
	}
	usleep(QUIET_MS * 1000);
	must_open(&peer, 1);
	must_join(&peer, "event wait 2", 1);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(OPTINC_GROUP_READY, WEXITSTATUS(status));
	shut(&peer);
	do {
		ASSERT_EQ(0, wait_group(&self->card, group, 0, &wait));
	} while (wait.state == OPTINC_GROUP_READY && now_ms() - begin < PATIENCE_MS);
	EXPECT_EQ(OPTINC_ST_PEER_LOST, wait.status);
	EXPECT_EQ(1, wait.peer);
}

TEST_HARNESS_MAIN
