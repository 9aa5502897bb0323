// SPDX-License-Identifier: GPL-2.0-only
/*
 * Groups of two cards, as sections 9.1 to 9.6 of Documentation/card-interface.rst
 * have them: who meets whom, how an epoch ends and whom that concerns, and what a
 * rank may do while its peer is silent.
 */
#include "card.h"

#include "kselftest_harness.h"

#define SOON_MS		1000	/* for a peer's loss */
#define SLACK_MS	900	/* of this machine, where the card has 100 */
#define OUTSTANDING	4U

FIXTURE(group)
{
	struct end end[2];
};

FIXTURE_SETUP(group)
{
	must_pair(self->end, "group");
}

FIXTURE_TEARDOWN(group)
{
}

static void post_barrier(struct queue *q, uint32_t group)
{
	post(q, &(struct optinc_sqe) { .opcode = OPTINC_OP_BARRIER, .group = group });
}

static int state_of(struct card *c, uint32_t group)
{
	struct optinc_group_wait wait;

	must(!wait_group(c, group, 0, &wait));
	return wait.state;
}

/* Both ranks of a group alone, with other queues */
static bool meet(struct end end[2], const char *key)
{
	uint32_t group[2];
	struct queue q[2];
	int r, bad = 0;

	for (r = 0; r < 2; r++) {
		must_create_queue(&end[r].card, &q[r], 4, 4, -1);
		group[r] = must_join(&end[r].card, key, (uint32_t)r);
	}
	for (r = 0; r < 2; r++)
		must_be_ready(&end[r].card, group[r]);
	for (r = 0; r < 2; r++)
		post_barrier(&q[r], group[r]);
	for (r = 0; r < 2; r++)
		bad |= await_status(&q[r]);
	for (r = 0; r < 2; r++) {
		must(!leave_group(&end[r].card, group[r]));
		unmap_queue(&q[r]);
		must(!destroy_queue(&q[r]));
	}
	return !bad;
}

/* Two keys that differ in one bit: nobody comes. */
TEST_F(group, keys_apart)
{
	struct optinc_group_join join[2] = { join_of("apart", 0), join_of("apart", 1) };
	int r;

	join[1].key[15] ^= 0x80;
	for (r = 0; r < 2; r++)
		ASSERT_EQ(0, call(self->end[r].card.fd, OPTINC_IOCTL_GROUP_JOIN, &join[r]));
	usleep(QUIET_MS * 1000);
	for (r = 0; r < 2; r++)
		EXPECT_EQ(OPTINC_GROUP_JOINING, state_of(&self->end[r].card, join[r].group));
}

TEST_F(group, entry_while_joining)
{
	struct end *e = &self->end[0];
	uint32_t group = must_join(&e->card, "joining", 0);

	post_barrier(&e->queue, group);
	EXPECT_EQ(OPTINC_ST_INVALID_GROUP, await_status(&e->queue));
	EXPECT_EQ(OPTINC_GROUP_JOINING, state_of(&e->card, group));
}

TEST_F(group, joined_twice)
{
	struct optinc_group_join join = join_of("group", 0);
	uint32_t group = must_join(&self->end[0].card, "twice", 0);

	EXPECT_EQ(-EBUSY, call(self->end[0].card.fd, OPTINC_IOCTL_GROUP_JOIN, &join));
	join = join_of("twice", 0);
	EXPECT_EQ(-EBUSY, call(self->end[0].card.fd, OPTINC_IOCTL_GROUP_JOIN, &join));
	EXPECT_EQ(OPTINC_GROUP_JOINING, state_of(&self->end[0].card, group));
	EXPECT_EQ(OPTINC_GROUP_READY, state_of(&self->end[0].card, self->end[0].group));
}

/* A group is its first queue's, until that is destroyed; then it has failed. */
TEST_F(group, second_queue)
{
	struct end *e = &self->end[0];
	struct queue q;

	must_create_queue(&e->card, &q, 4, 4, -1);
	post_barrier(&e->queue, e->group);
	must_be_taken(&e->queue);
	post_barrier(&q, e->group);
	EXPECT_EQ(OPTINC_ST_INVALID_GROUP, await_status(&q));
	post_barrier(&self->end[1].queue, self->end[1].group);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&e->queue));
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->end[1].queue));
	ASSERT_EQ(0, destroy_queue(&e->queue));
	post_barrier(&q, e->group);
	EXPECT_NE(OPTINC_ST_INVALID_GROUP, await_status(&q));
}

/* Two groups, a queue of each, in opposite order on two ranks */
TEST_F(group, opposite_order)
{
	struct queue q[2];
	uint32_t group[2];
	unsigned int r, round;

	for (r = 0; r < 2; r++) {
		must_create_queue(&self->end[r].card, &q[r], 8, 8, -1);
		group[r] = must_join(&self->end[r].card, "opposite", r);
	}
	for (r = 0; r < 2; r++)
		must_be_ready(&self->end[r].card, group[r]);
	for (round = 0; round < 100; round++) {
		post_barrier(&self->end[0].queue, self->end[0].group);
		must_be_taken(&self->end[0].queue);
		post_barrier(&q[1], group[1]);
		must_be_taken(&q[1]);
		post_barrier(&q[0], group[0]);
		post_barrier(&self->end[1].queue, self->end[1].group);
		for (r = 0; r < 2; r++) {
			ASSERT_EQ(OPTINC_ST_SUCCESS, await_status(&q[r]));
			ASSERT_EQ(OPTINC_ST_SUCCESS, await_status(&self->end[r].queue));
		}
	}
}

/* These wait for the peer. */
static void post_some(struct end *e)
{
	unsigned int i;

	for (i = 0; i < OUTSTANDING; i++)
		post_sum(e, 100);
	must_be_taken(&e->queue);
}

/* ... which brings its own. */
static bool complete_some(struct end *waiting, struct end *peer)
{
	unsigned int i;
	int bad = 0;

	for (i = 0; i < OUTSTANDING; i++)
		post_sum(peer, 100);
	for (i = 0; i < OUTSTANDING; i++)
		bad |= await_status(&waiting->queue) | await_status(&peer->queue);
	return !bad;
}

/* All that is outstanding ends with a status and a rank, and what comes later too. */
static void expect_end(struct __test_metadata *_metadata, struct end *e, int status, int peer)
{
	struct optinc_cqe cqe;
	unsigned int i;

	for (i = 0; i < OUTSTANDING; i++) {
		cqe = must_await(&e->queue);
		EXPECT_EQ(status, cqe.status >> OPTINC_CQE_STATUS_SHIFT);
		EXPECT_EQ(peer, cqe.peer);
	}
	post_barrier(&e->queue, e->group);
	cqe = must_await(&e->queue);
	EXPECT_EQ(OPTINC_ST_EPOCH_ENDED, cqe.status >> OPTINC_CQE_STATUS_SHIFT);
	EXPECT_EQ(peer, cqe.peer);
	EXPECT_EQ(OPTINC_GROUP_FAILED, state_of(&e->card, e->group));
}

TEST_F(group, abort)
{
	post_some(&self->end[0]);
	ASSERT_EQ(0, abort_group(&self->end[1].card, self->end[1].group));
	expect_end(_metadata, &self->end[0], OPTINC_ST_ABORTED, 1);
}

TEST_F(group, own_abort)
{
	post_some(&self->end[0]);
	ASSERT_EQ(0, abort_group(&self->end[0].card, self->end[0].group));
	expect_end(_metadata, &self->end[0], OPTINC_ST_ABORTED, 0);
}

TEST_F(group, leave)
{
	post_some(&self->end[0]);
	ASSERT_EQ(0, leave_group(&self->end[1].card, self->end[1].group));
	expect_end(_metadata, &self->end[0], OPTINC_ST_ABORTED, 1);
	/* and both can meet again */
	ASSERT_EQ(0, leave_group(&self->end[0].card, self->end[0].group));
	EXPECT_TRUE(meet(self->end, "group"));
}

TEST_F(group, peer_lost)
{
	uint64_t begin;

	post_some(&self->end[1]);
	unmap_queue(&self->end[0].queue);
	shut(&self->end[0].card);
	begin = now_ms();
	expect_end(_metadata, &self->end[1], OPTINC_ST_PEER_LOST, 0);
	EXPECT_LE(now_ms() - begin, SOON_MS);
}

/* Destroying a queue ends what is outstanding in it, before it returns. */
TEST_F(group, queue_destroyed)
{
	struct queue *q = &self->end[0].queue;
	unsigned int i;

	post_some(&self->end[0]);
	ASSERT_TRUE(complete_some(&self->end[0], &self->end[1]));
	post_some(&self->end[0]);
	memset(self->end[0].memory, 0x11, END_BYTES);
	ASSERT_EQ(0, destroy_queue(q));
	for (i = 0; i < OUTSTANDING; i++) {
		ASSERT_TRUE(is_done(q));
		EXPECT_EQ(OPTINC_ST_ABORTED, consume(q).status >> OPTINC_CQE_STATUS_SHIFT);
	}
	/* no request names it any more, and nothing is written */
	EXPECT_EQ(0, dereg(&self->end[0].card, self->end[0].mr));
	post_sum(&self->end[1], 100);
	EXPECT_EQ(OPTINC_ST_ABORTED, await_status(&self->end[1].queue));
	for (i = 0; i < END_BYTES; i++)
		ASSERT_EQ(0x11, self->end[0].memory[i]);
}

/* The oldest has the cause, and those behind it have not failed themselves. */
TEST_F(group, deadline)
{
	struct optinc_group_join join;
	struct queue q[2];
	struct optinc_cqe cqe;
	uint64_t begin, ms;
	unsigned int r, i;

	for (r = 0; r < 2; r++) {
		must_create_queue(&self->end[r].card, &q[r], 8, 8, -1);
		join = join_of("deadline", r);
		join.deadline_ms = 400;
		ASSERT_EQ(0, call(self->end[r].card.fd, OPTINC_IOCTL_GROUP_JOIN, &join));
		self->end[r].group = join.group;
	}
	for (r = 0; r < 2; r++)
		must_be_ready(&self->end[r].card, self->end[r].group);
	usleep(500000);		/* nothing is outstanding: no clock runs */
	begin = now_ms();
	for (i = 0; i < OUTSTANDING; i++)
		post_barrier(&q[0], self->end[0].group);
	for (i = 0; i < OUTSTANDING; i++) {
		cqe = must_await(&q[0]);
		ms = now_ms() - begin;
		EXPECT_EQ(i ? OPTINC_ST_EPOCH_ENDED : OPTINC_ST_TIMEOUT,
			  cqe.status >> OPTINC_CQE_STATUS_SHIFT);
		EXPECT_EQ(1, cqe.peer);
		EXPECT_LE(399, ms);
		EXPECT_LE(ms, 500 + SLACK_MS);
	}
	/* the other rank had none outstanding: the next one tells */
	post_barrier(&q[1], self->end[1].group);
	EXPECT_EQ(OPTINC_ST_TIMEOUT, await_status(&q[1]));
	post_barrier(&q[1], self->end[1].group);
	EXPECT_EQ(OPTINC_ST_EPOCH_ENDED, await_status(&q[1]));
}

/* What ends one group is nothing to another on the same cards. */
TEST_F(group, others_go_on)
{
	uint32_t group[2];
	unsigned int r;

	for (r = 0; r < 2; r++)
		group[r] = must_join(&self->end[r].card, "other", r);
	for (r = 0; r < 2; r++)
		must_be_ready(&self->end[r].card, group[r]);
	post_some(&self->end[0]);
	ASSERT_EQ(0, abort_group(&self->end[1].card, group[1]));
	EXPECT_TRUE(complete_some(&self->end[0], &self->end[1]));
	EXPECT_EQ(OPTINC_GROUP_FAILED, state_of(&self->end[0].card, group[0]));
}

/* Who leaves after its last completion does not take it from its peer. */
TEST_F(group, last_request)
{
	char key[16];
	unsigned int round, r;

	for (round = 0; round < 100; round++) {
		uint32_t group[2];
		struct queue q[2];

		snprintf(key, sizeof(key), "last %u", round);
		for (r = 0; r < 2; r++) {
			must_create_queue(&self->end[r].card, &q[r], 4, 4, -1);
			group[r] = must_join(&self->end[r].card, key, r);
		}
		for (r = 0; r < 2; r++)
			must_be_ready(&self->end[r].card, group[r]);
		post_barrier(&q[round % 2], group[round % 2]);
		post_barrier(&q[!(round % 2)], group[!(round % 2)]);
		ASSERT_EQ(OPTINC_ST_SUCCESS, await_status(&q[0]));
		ASSERT_EQ(0, leave_group(&self->end[0].card, group[0]));
		ASSERT_EQ(OPTINC_ST_SUCCESS, await_status(&q[1])) TH_LOG("round %u", round);
		ASSERT_EQ(0, leave_group(&self->end[1].card, group[1]));
		for (r = 0; r < 2; r++) {
			unmap_queue(&q[r]);
			ASSERT_EQ(0, destroy_queue(&q[r]));
		}
	}
}

/* Everything that is a command goes on while the peer says nothing. */
TEST_F(group, silent_peer)
{
	struct end *e = &self->end[0];
	uint64_t begin = now_ms();
	uint32_t mr, group;
	struct queue q;
	char byte;

	post_some(e);
	group = must_join(&e->card, "silent", 0);
	ASSERT_EQ(0, reg(&e->card, &byte, 1, 0, &mr));
	ASSERT_EQ(0, create_queue(&e->card, &q, 4, 4, -1));
	ASSERT_EQ(0, destroy_queue(&q));
	ASSERT_EQ(0, dereg(&e->card, mr));
	must_stats(&e->card);
	ASSERT_EQ(0, leave_group(&e->card, group));
	ASSERT_EQ(0, leave_group(&e->card, e->group));
	EXPECT_LE(now_ms() - begin, PATIENCE_MS / 4);
	EXPECT_EQ(OPTINC_ST_ABORTED, await_status(&e->queue));
}

/* A mismatch is found before anything is written. */
TEST_F(group, mismatch_writes_nothing)
{
	struct optinc_cqe cqe;
	unsigned int r, i;

	for (r = 0; r < 2; r++)
		memset(self->end[r].memory, 0x22, END_BYTES);
	post_sum(&self->end[0], 1000);
	post_sum(&self->end[1], 1001);
	for (r = 0; r < 2; r++) {
		cqe = must_await(&self->end[r].queue);
		EXPECT_EQ(OPTINC_ST_MISMATCH, cqe.status >> OPTINC_CQE_STATUS_SHIFT);
		EXPECT_EQ(OPTINC_DIFF_COUNT, cqe.mismatch);
		EXPECT_EQ(1, cqe.peer);
		for (i = 0; i < END_BYTES; i++)
			ASSERT_EQ(0x22, self->end[r].memory[i]);
	}
}

/* Exponents that differ in the last of three blocks: told who has others */
TEST_F(group, exponents_differ)
{
	struct optinc_cqe cqe;
	unsigned int r;

	for (r = 0; r < 2; r++) {
		struct end *e = &self->end[r];
		struct optinc_sqe sqe = sum_entry(e, 700);

		sqe.flags = OPTINC_SQE_EXPONENTS;
		sqe.exp_mr = e->mr;
		sqe.exp_off = 4096;
		memset(e->memory + 4096, 7, 3);
		e->memory[4098] = (uint8_t)(7 + r);
		post(&e->queue, &sqe);
	}
	for (r = 0; r < 2; r++) {
		cqe = must_await(&self->end[r].queue);
		EXPECT_EQ(OPTINC_ST_EXPONENT_MISMATCH, cqe.status >> OPTINC_CQE_STATUS_SHIFT);
		EXPECT_EQ(1, cqe.peer);
	}
}

#define MUCH	(8 << 20)	/* codes of a large request */

/* A small request of one group passes a large one of another. */
TEST_F(group, small_beside_large)
{
	struct optinc_sqe sqe = {
		.opcode = OPTINC_OP_ALLREDUCE, .dtype = OPTINC_I8, .redop = OPTINC_MEAN,
		.count = MUCH,
	};
	unsigned int r, i, n, passed = 0;
	struct queue q[2];
	uint32_t large[2];

	if (self->end[0].card.query.max_count < MUCH)
		SKIP(return, "the card has no large requests");
	for (r = 0; r < 2; r++) {
		void *memory = mmap(NULL, MUCH, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		ASSERT_NE(MAP_FAILED, memory);
		sqe.src_mr = sqe.dst_mr = must_reg(&self->end[r].card, memory, MUCH);
		must_create_queue(&self->end[r].card, &q[r], 8, 8, -1);
		large[r] = must_join(&self->end[r].card, "large", r);
		sqe.group = large[r];
		for (i = 0; i < 4; i++)
			put_entry(&q[r], &sqe);
	}
	for (r = 0; r < 2; r++)
		must_be_ready(&self->end[r].card, large[r]);
	announce(&q[0]);
	announce(&q[1]);
	for (n = 0; n < 3; n++) {
		post_sum(&self->end[0], 10);
		post_sum(&self->end[1], 10);
		ASSERT_EQ(OPTINC_ST_SUCCESS, await_status(&self->end[0].queue));
		ASSERT_EQ(OPTINC_ST_SUCCESS, await_status(&self->end[1].queue));
		passed += !(q[0].cq[3].status & OPTINC_CQE_PHASE);
	}
	EXPECT_LT(0, passed);
	for (i = 0; i < 4; i++) {
		EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&q[0]));
		EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&q[1]));
	}
}

static void must_reset(unsigned int number)
{
	struct optinc_reset reset = { .size = sizeof(reset) };
	int ctl = open_node("ctl", number);

	must(!call(ctl, OPTINC_IOCTL_RESET, &reset));
	close(ctl);
}

/* What a reset ends, for the peer too; and what it does not change */
TEST_F(group, reset)
{
	struct optinc_query before = self->end[0].card.query;
	uint64_t clock = must_stats(&self->end[0].card).device_ns, begin;
	struct optinc_stats stats;
	struct card again;
	unsigned int i;

	post_some(&self->end[1]);
	ASSERT_TRUE(complete_some(&self->end[1], &self->end[0]));
	post_some(&self->end[1]);
	memset(self->end[0].memory, 0x33, END_BYTES);
	begin = now_ms();
	must_reset(0);
	expect_end(_metadata, &self->end[1], OPTINC_ST_PEER_LOST, 0);
	EXPECT_LE(now_ms() - begin, SOON_MS + SLACK_MS);
	for (i = 0; i < END_BYTES; i++)
		ASSERT_EQ(0x33, self->end[0].memory[i]);
	must_open(&again, 0);
	stats = must_stats(&again);
	EXPECT_EQ(0, stats.requests + stats.errors + stats.tx_bytes + stats.rx_bytes);
	EXPECT_EQ(0, stats.doorbells + stats.doorbells_dropped + stats.wire_ns);
	EXPECT_LT(clock, stats.device_ns);
	EXPECT_STREQ(before.serial, again.query.serial);
	EXPECT_STREQ(before.model, again.query.model);
	/* as if nothing had been */
	unmap_queue(&self->end[0].queue);
	munmap((void *)self->end[0].card.page, page_bytes());
	self->end[0].card = again;
	EXPECT_TRUE(meet(self->end, "after"));
}

TEST_HARNESS_MAIN
