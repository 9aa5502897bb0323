// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two contexts of one card: nothing that one of them has can be named, used or
 * disturbed through the other. The victim and the peer of its group are one
 * user's; the intruder is another's, in a process of its own, or the same
 * user's second file, which makes no difference.
 */
#include "card.h"

#include "kselftest_harness.h"

#define SECRET	0x2a

FIXTURE(two)
{
	struct end victim[2];	/* on cards 0 and 1, a group */
	struct end intruder;	/* on card 0 */
};

FIXTURE_SETUP(two)
{
	struct optinc_query q;
	int fd = open_node("card", 0);

	ASSERT_EQ(0, query(fd, &q));
	close(fd);
	if (!(q.features & OPTINC_FEAT_ISOLATION))
		SKIP(_exit(SKIPPED), "the card does not isolate");
	must_pair(self->victim, "isolation");
	must_prepare_end(&self->intruder, 0, -1);
	/* a handle that happens to be the intruder's own would prove nothing */
	ASSERT_NE(self->victim[0].mr, self->intruder.mr);
	ASSERT_NE(self->victim[0].queue.id, self->intruder.queue.id);
	memset(self->victim[0].memory, SECRET, END_BYTES);
}

FIXTURE_TEARDOWN(two)
{
}

/* The victim still works: a sum over both cards, with the right bits. */
static bool works(struct end victim[2])
{
	int16_t *sums = (int16_t *)(victim[0].memory + END_BYTES / 2);
	unsigned int i;

	memset(victim[0].memory, SECRET, 1000);
	memset(victim[1].memory, 1, 1000);
	post_sum(&victim[0], 1000);
	post_sum(&victim[1], 1000);
	if (await_status(&victim[0].queue) || await_status(&victim[1].queue))
		return false;
	for (i = 0; i < 1000; i++) {
		if (sums[i] != SECRET + 1)
			return false;
	}
	return true;
}

/* Every ioctl that takes a handle, with the victim's */
static int intrude_by_ioctl(struct card *c, const struct end *victim)
{
	struct queue foreign = victim->queue;
	struct optinc_group_wait wait;

	foreign.card = c;
	if (dereg(c, victim->mr) != -ENOENT)
		return 1;
	if (destroy_queue(&foreign) != -ENOENT)
		return 2;
	if (wait_group(c, victim->group, 0, &wait) != -ENOENT || wait.state)
		return 3;
	if (leave_group(c, victim->group) != -ENOENT)
		return 4;
	if (abort_group(c, victim->group) != -ENOENT)
		return 5;
	if (map(c->fd, sq_bytes(&foreign), foreign.sq_offset) != MAP_FAILED || errno != EINVAL)
		return 6;
	if (map(c->fd, cq_bytes(&foreign), foreign.cq_offset) != MAP_FAILED || errno != EINVAL)
		return 7;
	return 0;
}

TEST_F(two, handles_in_ioctls)
{
	EXPECT_EQ(0, intrude_by_ioctl(&self->intruder.card, &self->victim[0]));
	EXPECT_TRUE(works(self->victim));
}

/* Becomes another user, who may open the node by its group. */
static void must_be_someone_else(void)
{
	struct stat st;

	must(!stat("/dev/optinc/card0", &st));
	must(!setgroups(0, NULL) && !setresgid(st.st_gid, st.st_gid, st.st_gid));
	must(!setresuid(NOBODY, NOBODY, NOBODY));
}

static int other_user_by_ioctl(void *arg)
{
	struct card c;

	must_be_someone_else();
	must_open(&c, 0);
	return intrude_by_ioctl(&c, arg);
}

TEST_F(two, handles_in_ioctls_of_another_user)
{
	EXPECT_EQ(0, in_child(other_user_by_ioctl, &self->victim[0]));
	EXPECT_TRUE(works(self->victim));
}

/* Through the victim's own group it could be reached, if context were not looked at. */
static int intrude_by_entry(struct end *e, const struct end *victim)
{
	struct optinc_sqe own, sqe;
	unsigned int i;

	own = sum_entry(e, 100);
	sqe = own;
	sqe.src_mr = victim->mr;
	post(&e->queue, &sqe);
	if (await_status(&e->queue) != OPTINC_ST_INVALID_MR)
		return 1;
	sqe = own;
	sqe.dst_mr = victim->mr;
	post(&e->queue, &sqe);
	if (await_status(&e->queue) != OPTINC_ST_INVALID_MR)
		return 2;
	sqe = own;
	sqe.flags = OPTINC_SQE_EXPONENTS;
	sqe.exp_mr = victim->mr;
	sqe.exp_off = 0;
	post(&e->queue, &sqe);
	if (await_status(&e->queue) != OPTINC_ST_INVALID_MR)
		return 3;
	sqe = own;
	sqe.group = victim->group;
	post(&e->queue, &sqe);
	if (await_status(&e->queue) != OPTINC_ST_INVALID_GROUP)
		return 4;
	sqe = (struct optinc_sqe) { .opcode = OPTINC_OP_BARRIER, .group = victim->group };
	post(&e->queue, &sqe);
	if (await_status(&e->queue) != OPTINC_ST_INVALID_GROUP)
		return 5;
	for (i = 0; i < e->bytes; i++) {
		if (e->memory[i])
			return 6;
	}
	return 0;
}

TEST_F(two, handles_in_entries)
{
	struct end peer;
	unsigned int i;

	/* a group of its own, so that only the region can be wrong */
	must_prepare_end(&peer, 1, -1);
	self->intruder.group = must_join(&self->intruder.card, "intruder", 0);
	peer.group = must_join(&peer.card, "intruder", 1);
	must_be_ready(&peer.card, peer.group);
	must_be_ready(&self->intruder.card, self->intruder.group);
	EXPECT_EQ(0, intrude_by_entry(&self->intruder, &self->victim[0]));
	for (i = 0; i < END_BYTES; i++)
		ASSERT_EQ(SECRET, self->victim[0].memory[i]);
	/* the intruder's group has not suffered from it either */
	post_sum(&self->intruder, 10);
	post_sum(&peer, 10);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->intruder.queue));
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&peer.queue));
	EXPECT_TRUE(works(self->victim));
}

/* A root's broadcast of a foreign region would send the secret to the peer. */
TEST_F(two, broadcast_of_foreign_memory)
{
	struct optinc_sqe sqe = {
		.opcode = OPTINC_OP_BROADCAST, .dtype = OPTINC_U8, .count = 100,
		.src_mr = self->victim[0].mr,
	};

	self->intruder.group = must_join(&self->intruder.card, "broadcast", 0);
	self->victim[1].group = must_join(&self->victim[1].card, "broadcast", 1);
	must_be_ready(&self->intruder.card, self->intruder.group);
	sqe.group = self->intruder.group;
	post(&self->intruder.queue, &sqe);
	EXPECT_EQ(OPTINC_ST_INVALID_MR, await_status(&self->intruder.queue));
}

/* A doorbell for another context's queue: dropped, counted, and nothing else */
static int intrude_by_doorbell(struct card *c, const struct end *victim)
{
	struct optinc_stats before = must_stats(c), after;
	unsigned int offset, n = 0;

	for (offset = OPTINC_DB_SQ_TAIL; offset <= OPTINC_DB_CQ_ARM; offset += 4) {
		ring_doorbell(c, offset, victim->queue.id, 1);
		ring_doorbell(c, offset, victim->queue.id, victim->queue.tail);
		n += 2;
	}
	after = must_stats(c);
	return after.doorbells - before.doorbells == n &&
	       after.doorbells_dropped - before.doorbells_dropped == n ? 0 : 1;
}

TEST_F(two, doorbells)
{
	struct optinc_sqe nop = { .cmd_id = 77 };
	int event = eventfd(0, EFD_CLOEXEC);
	struct end *victim = &self->victim[0];
	struct optinc_cqe cqe;
	struct queue q;

	/* an entry that its owner has not announced */
	must_create_queue(&victim->card, &q, 8, 8, event);
	put_entry(&q, &nop);
	victim->queue.id = q.id;
	victim->queue.tail = 1;
	EXPECT_EQ(0, intrude_by_doorbell(&self->intruder.card, victim));
	EXPECT_FALSE(await_within(&q, &cqe, QUIET_MS));
	EXPECT_EQ(-1, await_signal(event, 0));
	EXPECT_EQ(0, q.cq[0].status);
	announce(&q);
	cqe = must_await(&q);
	EXPECT_EQ(77, cqe.cmd_id);
	EXPECT_EQ(1, cqe.sq_head);
	/* a foreign arming would now have signalled */
	EXPECT_EQ(-1, await_signal(event, QUIET_MS));
}

static int other_user_by_doorbell(void *arg)
{
	struct card c;

	must_be_someone_else();
	must_open(&c, 0);
	return intrude_by_doorbell(&c, arg);
}

TEST_F(two, doorbells_of_another_user)
{
	EXPECT_EQ(0, in_child(other_user_by_doorbell, &self->victim[0]));
	EXPECT_TRUE(works(self->victim));
}

/* A queue that does not exist, of anybody */
TEST_F(two, doorbells_of_no_queue)
{
	struct optinc_stats before = must_stats(&self->intruder.card);

	ring_doorbell(&self->intruder.card, OPTINC_DB_SQ_TAIL, 0, 1);
	ring_doorbell(&self->intruder.card, OPTINC_DB_SQ_TAIL, 0xffff, 1);
	ring_doorbell(&self->intruder.card, 0x0c, self->intruder.queue.id, 1);
	ring_doorbell(&self->intruder.card, 0xffc, self->intruder.queue.id, 1);
	EXPECT_EQ(4, must_stats(&self->intruder.card).doorbells_dropped -
		     before.doorbells_dropped);
	EXPECT_EQ(0, self->intruder.card.page[0]);
	EXPECT_EQ(0, self->intruder.card.page[0x3ff]);
}

/* The intruder's end leaves the victim alone, also when it ends in a crash. */
static int crash(void *arg)
{
	struct end e;

	(void)arg;
	must_prepare_end(&e, 0, -1);
	must_join(&e.card, "crash", 0);
	post_nop(&e.queue, 1);
	raise(SIGKILL);
	return 0;
}

TEST_F(two, end_of_the_other)
{
	EXPECT_EQ(256 + SIGKILL, in_child(crash, NULL));
	shut(&self->intruder.card);
	unmap_queue(&self->intruder.queue);
	EXPECT_TRUE(works(self->victim));
}

/* A ring of one context never shows the content of a ring that was another's. */
TEST_F(two, rings_are_clean)
{
	struct queue q;
	unsigned int i, j;

	for (i = 0; i < 20; i++) {
		must_create_queue(&self->intruder.card, &q, 64, 64, -1);
		for (j = 0; j < sq_bytes(&q); j++)
			ASSERT_EQ(0, ((char *)q.sq)[j]);
		for (j = 0; j < cq_bytes(&q); j++)
			ASSERT_EQ(0, ((volatile char *)q.cq)[j]);
		memset(q.sq, SECRET, sq_bytes(&q));
		memset((void *)q.cq, SECRET, cq_bytes(&q));
		unmap_queue(&q);
		ASSERT_EQ(0, destroy_queue(&q));
	}
}

/* A card without isolation: queues are for CAP_SYS_RAWIO only. */
static int queues_without_privilege(void *arg)
{
	struct optinc_query q;
	struct queue queue;
	struct card c = { 0 };
	uint32_t mr;
	char byte;

	(void)arg;
	must_be_someone_else();
	c.fd = open_node("card", 0);
	must(c.fd >= 0);
	must(!query(c.fd, &q));
	if (q.features & (OPTINC_FEAT_USER_QUEUES | OPTINC_FEAT_ISOLATION))
		return 1;
	if (map(c.fd, q.page_size, q.doorbell_offset) != MAP_FAILED || errno != EPERM)
		return 2;
	if (create_queue(&c, &queue, 2, 2, -1) != -EPERM)
		return 3;
	/* order of checks */
	if (create_queue(&c, &queue, 3, 2, -1) != -EINVAL)
		return 4;
	return reg(&c, &byte, 1, 0, &mr) ? 5 : 0;
}

TEST(no_isolation)
{
	struct queue queue;
	struct card c;

	must_open(&c, 0);
	if (c.query.features & OPTINC_FEAT_ISOLATION)
		SKIP(return, "the card isolates");
	EXPECT_TRUE(c.query.features & OPTINC_FEAT_USER_QUEUES);
	must_create_queue(&c, &queue, 2, 2, -1);
	post_nop(&queue, 1);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&queue));
	EXPECT_EQ(0, in_child(queues_without_privilege, NULL));
}

TEST_HARNESS_MAIN
