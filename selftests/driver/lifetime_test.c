// SPDX-License-Identifier: GPL-2.0-only
/*
 * What lives how long: mappings and what may be mapped, descriptors that are
 * duplicated, inherited or closed, memory that goes while the card uses it.
 */
#include "card.h"

#include "kselftest_harness.h"

#define ENTRIES	128U	/* rings of two pages and of one */

FIXTURE(rings)
{
	struct card card;
	struct queue queue;
	size_t page;
};

FIXTURE_SETUP(rings)
{
	must_open(&self->card, 0);
	must_create_queue(&self->card, &self->queue, ENTRIES, ENTRIES, -1);
	self->page = page_bytes();
	ASSERT_EQ(2 * self->page, sq_bytes(&self->queue));
	ASSERT_EQ(self->page, cq_bytes(&self->queue));
}

FIXTURE_TEARDOWN(rings)
{
}

#define EXPECT_NO_MAP(error, length, prot, flags, offset) do {			\
	EXPECT_EQ(MAP_FAILED, mmap(NULL, length, prot, flags, self->card.fd,	\
				   (off_t)(offset)));				\
	EXPECT_EQ(error, errno);						\
} while (0)

#define RW	(PROT_READ | PROT_WRITE)

TEST_F(rings, wrong_offset_or_length)
{
	uint64_t doorbells = self->card.query.doorbell_offset;
	uint64_t sq = self->queue.sq_offset, cq = self->queue.cq_offset;
	size_t page = self->page;
	unsigned int bit;

	EXPECT_NO_MAP(EINVAL, page, RW, MAP_SHARED, 0);
	EXPECT_NO_MAP(EINVAL, page, RW, MAP_SHARED, doorbells + page);
	EXPECT_NO_MAP(EINVAL, page, RW, MAP_SHARED, doorbells - page);
	EXPECT_NO_MAP(EINVAL, 2 * page, RW, MAP_SHARED, doorbells);
	EXPECT_NO_MAP(EINVAL, 64 * page, RW, MAP_SHARED, doorbells);
	EXPECT_NO_MAP(EINVAL, page, RW, MAP_SHARED, sq);
	EXPECT_NO_MAP(EINVAL, 3 * page, RW, MAP_SHARED, sq);
	EXPECT_NO_MAP(EINVAL, page, RW, MAP_SHARED, sq + page);
	EXPECT_NO_MAP(EINVAL, 2 * page, RW, MAP_SHARED, sq + page);
	EXPECT_NO_MAP(EINVAL, 2 * page, RW, MAP_SHARED, sq - page);
	EXPECT_NO_MAP(EINVAL, 2 * page, RW, MAP_SHARED, cq);
	EXPECT_NO_MAP(EINVAL, page, RW, MAP_SHARED, cq + page);
	/* a cookie with any one bit wrong is no cookie */
	for (bit = 12; bit < 63; bit++) {
		if ((sq ^ 1ULL << bit) != cq)
			EXPECT_NO_MAP(EINVAL, 2 * page, RW, MAP_SHARED, sq ^ 1ULL << bit);
		if ((cq ^ 1ULL << bit) != sq)
			EXPECT_NO_MAP(EINVAL, page, RW, MAP_SHARED, cq ^ 1ULL << bit);
		EXPECT_NO_MAP(EINVAL, page, RW, MAP_SHARED, doorbells ^ 1ULL << bit);
	}
}

/* The whole range of cookies with a page each: nothing but one's own is there. */
TEST_F(rings, nothing_else_is_mapped)
{
	struct card bare;
	uint64_t n, offset;
	int i;

	bare.fd = open_node("card", 0);
	ASSERT_LE(0, bare.fd);
	ASSERT_EQ(0, query(bare.fd, &bare.query));
	/* pages of this card's queues and others', and around each power of two */
	for (n = 0; n < 4096; n++) {
		offset = n * self->page;
		if (offset == bare.query.doorbell_offset || offset == bare.query.context_offset)
			continue;
		ASSERT_EQ(MAP_FAILED, map(bare.fd, self->page, offset));
		ASSERT_EQ(EINVAL, errno);
	}
	for (n = 1; n < 1ULL << 50; n *= 2) {
		for (i = -1; i <= 1; i++) {
			offset = (n + (uint64_t)i) * self->page;
			if (offset == bare.query.doorbell_offset ||
			    offset == bare.query.context_offset)
				continue;
			ASSERT_EQ(MAP_FAILED, map(bare.fd, self->page, offset));
			ASSERT_TRUE(errno == EINVAL || errno == EOVERFLOW);
		}
	}
}

TEST_F(rings, wrong_protection)
{
	uint64_t offsets[] = {
		self->queue.sq_offset, self->queue.cq_offset, self->card.query.doorbell_offset,
	};
	size_t lengths[] = { 2 * self->page, self->page, self->page };
	unsigned int i;
	void *p;

	for (i = 0; i < ARRAY_SIZE(offsets); i++) {
		EXPECT_NO_MAP(EPERM, lengths[i], RW | PROT_EXEC, MAP_SHARED, offsets[i]);
		EXPECT_NO_MAP(EPERM, lengths[i], PROT_EXEC, MAP_SHARED, offsets[i]);
		EXPECT_NO_MAP(EINVAL, lengths[i], RW, MAP_PRIVATE, offsets[i]);
		EXPECT_NO_MAP(EINVAL, lengths[i], PROT_READ, MAP_PRIVATE, offsets[i]);
		p = mmap(NULL, lengths[i], PROT_READ, MAP_SHARED, self->card.fd, offsets[i]);
		ASSERT_NE(MAP_FAILED, p);
		EXPECT_EQ(-1, mprotect(p, lengths[i], PROT_READ | PROT_EXEC));
		EXPECT_EQ(EACCES, errno);
		EXPECT_EQ(0, *(volatile uint32_t *)p);
		EXPECT_EQ(0, munmap(p, lengths[i]));
	}
}

TEST_F(rings, mremap)
{
	void *sq = self->queue.sq, *cq = (void *)self->queue.cq;
	void *page = (void *)self->card.page;

	EXPECT_EQ(MAP_FAILED, mremap(sq, 2 * self->page, 3 * self->page, MREMAP_MAYMOVE));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(MAP_FAILED, mremap(cq, self->page, 2 * self->page, MREMAP_MAYMOVE));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(MAP_FAILED, mremap(page, self->page, 2 * self->page, MREMAP_MAYMOVE));
	EXPECT_EQ(EFAULT, errno);
	/* moving is harmless */
	page = mmap(NULL, self->page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_EQ(page, mremap((void *)self->card.page, self->page, self->page,
			       MREMAP_MAYMOVE | MREMAP_FIXED, page));
	self->card.page = page;
	post_nop(&self->queue, 1);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->queue));
	/* nor does a mapping give birth to another */
	EXPECT_EQ(MAP_FAILED, mremap(cq, 0, self->page, MREMAP_MAYMOVE));
	EXPECT_EQ(EFAULT, errno);
}

/* A part of a ring, then all of it, goes while the queue is alive and in use. */
TEST_F(rings, munmap)
{
	struct queue *q = &self->queue;
	unsigned int i;

	for (i = 0; i < 10; i++)
		put_entry(q, &(struct optinc_sqe) { .cmd_id = (uint16_t)i });
	announce(q);
	EXPECT_EQ(0, munmap((char *)q->sq + self->page, self->page));
	for (i = 0; i < 10; i++)
		EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(q));
	post_nop(q, 10);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(q));
	for (i = 0; i < 10; i++)
		put_entry(q, &(struct optinc_sqe) { .cmd_id = (uint16_t)i });
	announce(q);
	EXPECT_EQ(0, munmap(q->sq, self->page));
	EXPECT_EQ(0, munmap((void *)q->cq, self->page));
	/* and comes back, with what the card wrote meanwhile */
	q->cq = map(self->card.fd, self->page, q->cq_offset);
	ASSERT_NE(MAP_FAILED, q->cq);
	for (i = 0; i < 10; i++)
		EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(q));
	EXPECT_EQ(0, destroy_queue(q));
}

/* Rings outlive their queue with their content, and are not to be had again. */
TEST_F(rings, after_destroy)
{
	struct queue *q = &self->queue, other;
	unsigned int i;

	post_nop(q, 1);
	must_await(q);
	memset(q->sq, 0x77, sq_bytes(q));
	EXPECT_EQ(0, destroy_queue(q));
	EXPECT_NO_MAP(EINVAL, 2 * self->page, RW, MAP_SHARED, q->sq_offset);
	EXPECT_NO_MAP(EINVAL, self->page, RW, MAP_SHARED, q->cq_offset);
	for (i = 0; i < 10; i++) {
		must_create_queue(&self->card, &other, ENTRIES, ENTRIES, -1);
		memset(other.sq, 0x11, sq_bytes(&other));
	}
	EXPECT_EQ(1, q->cq[0].cmd_id);
	for (i = 0; i < sq_bytes(q); i++)
		ASSERT_EQ(0x77, ((char *)q->sq)[i]);
}

/* Two mappings of a ring are the same memory. */
TEST_F(rings, mapped_twice)
{
	char *again = map(self->card.fd, sq_bytes(&self->queue), self->queue.sq_offset);

	ASSERT_NE(MAP_FAILED, again);
	again[5000] = 99;
	EXPECT_EQ(99, ((char *)self->queue.sq)[5000]);
	EXPECT_EQ(0, munmap(again, sq_bytes(&self->queue)));
}

static int touch(void *arg)
{
	return *(volatile char *)arg;
}

static int maps_own(void *arg)
{
	struct card *c = arg;

	must_map_doorbells(c);
	return c->page[0];
}

/* A child has the descriptor but no mapping. */
TEST_F(rings, fork)
{
	EXPECT_EQ(256 + SIGSEGV, in_child(touch, self->queue.sq));
	EXPECT_EQ(256 + SIGSEGV, in_child(touch, (void *)self->queue.cq));
	EXPECT_EQ(256 + SIGSEGV, in_child(touch, (void *)self->card.page));
	EXPECT_EQ(0, in_child(maps_own, &self->card));
	post_nop(&self->queue, 1);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->queue));
}

FIXTURE(pair)
{
	struct end end[2];
};

FIXTURE_SETUP(pair)
{
	must_pair(self->end, "lifetime");
}

FIXTURE_TEARDOWN(pair)
{
}

/* The context of end 0 has ended: its peer hears of it, with no deadline to wait for. */
static bool lost(struct end *peer)
{
	struct optinc_group_wait wait;
	uint64_t until = now_ms() + PATIENCE_MS / 4;

	do {
		must(!wait_group(&peer->card, peer->group, 0, &wait));
		if (wait.state == OPTINC_GROUP_FAILED)
			return wait.status == OPTINC_ST_PEER_LOST && !wait.peer;
		usleep(1000);
	} while (now_ms() < until);
	return false;
}

static bool alive(struct end *end, struct end *peer)
{
	post_sum(end, 10);
	post_sum(peer, 10);
	return !await_status(&end->queue) && !await_status(&peer->queue);
}

TEST_F(pair, dup)
{
	struct end *e = &self->end[0];
	int fd = dup(e->card.fd);

	unmap_queue(&e->queue);
	shut(&e->card);
	e->card.fd = fd;
	must_map_doorbells(&e->card);
	e->queue.sq = map(fd, sq_bytes(&e->queue), e->queue.sq_offset);
	e->queue.cq = map(fd, cq_bytes(&e->queue), e->queue.cq_offset);
	EXPECT_TRUE(alive(e, &self->end[1]));
	unmap_queue(&e->queue);
	EXPECT_TRUE(self->end[1].card.page);
	shut(&e->card);
	EXPECT_TRUE(lost(&self->end[1]));
}

/* Any one mapping keeps the context and all in it. */
TEST_F(pair, mappings_without_descriptor)
{
	struct end *e = &self->end[0];

	EXPECT_EQ(0, close(e->card.fd));
	EXPECT_TRUE(alive(e, &self->end[1]));
	EXPECT_EQ(0, munmap((void *)e->card.page, page_bytes()));
	EXPECT_EQ(0, munmap(e->queue.sq, sq_bytes(&e->queue)));
	EXPECT_EQ(0, e->queue.cq[7].status);
	EXPECT_FALSE(lost(&self->end[1]));
	EXPECT_EQ(0, munmap((void *)e->queue.cq, cq_bytes(&e->queue)));
	EXPECT_TRUE(lost(&self->end[1]));
}

TEST_F(pair, close_with_everything_open)
{
	struct end *e = &self->end[0];
	struct queue more[3];
	unsigned int i;

	for (i = 0; i < 3; i++)
		must_create_queue(&e->card, &more[i], 64, 64, eventfd(0, EFD_CLOEXEC));
	must_join(&e->card, "left open", 1);
	post_sum(e, 10);
	for (i = 0; i < 3; i++) {
		arm(&more[i], 0);
		unmap_queue(&more[i]);
	}
	unmap_queue(&e->queue);
	shut(&e->card);
	EXPECT_TRUE(lost(&self->end[1]));
	EXPECT_EQ(0, leave_group(&self->end[1].card, self->end[1].group));
}

/*
 * Close while the card works: after the last reference is gone it writes no
 * more, whatever peers do, and the memory can be given to others.
 */
TEST_F(pair, close_under_traffic)
{
	unsigned int round, i;

	shut(&self->end[0].card);
	for (round = 0; round < 20; round++) {
		struct end end[2];
		char key[16];
		uint8_t *before = malloc(END_BYTES);

		snprintf(key, sizeof(key), "traffic %u", round);
		must_pair(end, key);
		memset(end[1].memory, 1, END_BYTES / 2);
		for (i = 0; i < 8; i++) {
			post_sum(&end[0], END_BYTES / 4);
			post_sum(&end[1], END_BYTES / 4);
		}
		usleep(round * 100);
		unmap_queue(&end[0].queue);
		shut(&end[0].card);
		memcpy(before, end[0].memory, END_BYTES);
		usleep(20000);
		ASSERT_EQ(0, memcmp(before, end[0].memory, END_BYTES));
		unmap_queue(&end[1].queue);
		shut(&end[1].card);
		munmap(end[0].memory, END_BYTES);
		munmap(end[1].memory, END_BYTES);
		free(before);
	}
}

/* Deregistering is a fence, and refuses to be one as long as it could not keep it. */
TEST_F(pair, dereg_under_traffic)
{
	struct end *e = &self->end[0];
	int16_t *sums = (int16_t *)(e->memory + END_BYTES / 2);
	unsigned int i, busy = 0, round;

	for (round = 0; round < 50; round++) {
		memset(e->memory, 3, 1000);
		memset(sums, 0, 2000);
		memset(self->end[1].memory, 4, 1000);
		post_sum(e, 1000);
		must_be_taken(&e->queue);
		for (i = 0; i < 3; i++)
			busy += dereg(&e->card, e->mr) == -EBUSY;
		ASSERT_EQ(3 * (round + 1), busy);
		post_sum(&self->end[1], 1000);
		ASSERT_EQ(0, dereg_patiently(&e->card, e->mr));
		/* all of it is here now, before the completion is looked at */
		for (i = 0; i < 1000; i++)
			ASSERT_EQ(7, sums[i]);
		ASSERT_EQ(OPTINC_ST_SUCCESS, await_status(&e->queue));
		ASSERT_EQ(OPTINC_ST_SUCCESS, await_status(&self->end[1].queue));
		/* an entry that names it now is refused */
		post_sum(e, 1000);
		ASSERT_EQ(OPTINC_ST_INVALID_MR, await_status(&e->queue));
		e->mr = must_reg(&e->card, e->memory, e->bytes);
	}
}

/* The card still reaches what was registered, not what is mapped there now. */
TEST_F(pair, munmap_of_registered_memory)
{
	struct end *e = &self->end[0];
	int file = memfd_create("registered", MFD_CLOEXEC);
	int16_t *sums, *other;
	unsigned int i;

	ASSERT_EQ(0, ftruncate(file, END_BYTES));
	e->memory = map(file, END_BYTES, 0);
	sums = (int16_t *)((char *)map(file, END_BYTES, 0) + END_BYTES / 2);
	e->mr = must_reg(&e->card, e->memory, END_BYTES);
	memset(e->memory, 5, 1000);
	memset(self->end[1].memory, 6, 1000);
	post_sum(e, 1000);
	must_be_taken(&e->queue);
	EXPECT_EQ(0, munmap(e->memory, END_BYTES));
	other = mmap(e->memory, END_BYTES, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	ASSERT_EQ(e->memory, (void *)other);
	memset(other, 0, END_BYTES);
	post_sum(&self->end[1], 1000);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&e->queue));
	for (i = 0; i < 1000; i++)
		ASSERT_EQ(11, sums[i]);
	for (i = 0; i < END_BYTES / 2; i++)
		ASSERT_EQ(0, other[i]);
	EXPECT_EQ(0, dereg(&e->card, e->mr));
}

/* Pages that were thrown away are not given to anybody while the card has them. */
TEST_F(pair, thrown_away_under_traffic)
{
	struct end *e = &self->end[0];
	char *fresh;
	unsigned int i;

	EXPECT_EQ(0, munmap(e->memory, END_BYTES));
	fresh = mmap(NULL, 16 << 20, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, fresh);
	memset(fresh, 0x3c, 16 << 20);
	memset(self->end[1].memory, 9, 1000);
	for (i = 0; i < 20; i++)
		ASSERT_TRUE(alive(e, &self->end[1]));
	for (i = 0; i < 16 << 20; i++)
		ASSERT_EQ(0x3c, fresh[i]);
	munmap(fresh, 16 << 20);
}

/* fork() copies what is registered for the child; the parent's is the card's. */
static int looks(void *arg)
{
	struct end *e = arg;
	unsigned int i;

	for (i = 0; i < 100; i++) {
		if (e->memory[i] != 1)
			return 1;
	}
	memset(e->memory, 2, 100);
	return 0;
}

TEST_F(pair, registered_memory_and_fork)
{
	struct end *e = &self->end[0];
	int16_t *sums;
	unsigned int i;

	e->memory = mmap(NULL, END_BYTES, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, e->memory);
	sums = (int16_t *)(e->memory + END_BYTES / 2);
	memset(e->memory, 1, END_BYTES);
	e->mr = must_reg(&e->card, e->memory, END_BYTES);
	EXPECT_EQ(0, in_child(looks, e));
	memset(e->memory, 7, 100);
	memset(self->end[1].memory, 8, 100);
	post_sum(e, 100);
	post_sum(&self->end[1], 100);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&e->queue));
	for (i = 0; i < 100; i++)
		ASSERT_EQ(15, sums[i]);
}

/* Memory for reading that nobody had written yet: what is written later is what the card reads. */
TEST_F(pair, registered_before_written)
{
	struct end *e = &self->end[0];
	int16_t *sums = (int16_t *)(self->end[1].memory + END_BYTES / 2);
	uint8_t *fresh = mmap(NULL, END_BYTES, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct optinc_sqe sqe = sum_entry(e, 100);
	unsigned int i;

	ASSERT_NE(MAP_FAILED, fresh);
	EXPECT_EQ(0, fresh[0]);		/* the zero page */
	ASSERT_EQ(0, reg(&e->card, fresh, END_BYTES, 0, &sqe.src_mr));
	memset(fresh, 20, 100);
	memset(self->end[1].memory, 1, 100);
	post(&e->queue, &sqe);
	post_sum(&self->end[1], 100);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->end[1].queue));
	for (i = 0; i < 100; i++)
		ASSERT_EQ(21, sums[i]);
}

/* A program that is replaced takes its mappings with it, and an O_CLOEXEC descriptor. */
TEST_F(pair, exec)
{
	pid_t pid;
	int status, ready[2];
	char byte;

	must(!leave_group(&self->end[0].card, self->end[0].group));
	must(!leave_group(&self->end[1].card, self->end[1].group));
	self->end[1].group = must_join(&self->end[1].card, "lifetime exec", 1);
	ASSERT_EQ(0, pipe(ready));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		struct end e;

		close(ready[0]);
		must_prepare_end(&e, 0, -1);
		e.group = must_join(&e.card, "lifetime exec", 0);
		must_be_ready(&e.card, e.group);
		must(write(ready[1], "", 1) == 1);
		execl("/bin/sleep", "sleep", "3600", NULL);
		_exit(127);
	}
	ASSERT_EQ(1, read(ready[0], &byte, 1));
	EXPECT_TRUE(lost(&self->end[1]));
	kill(pid, SIGKILL);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(SIGKILL, status);
}

/* One that is killed in the middle of it all is lost, and leaves nothing behind. */
TEST_F(pair, kill_under_traffic)
{
	unsigned int round;

	must(!leave_group(&self->end[1].card, self->end[1].group));
	for (round = 0; round < 10; round++) {
		pid_t pid = fork();

		ASSERT_LE(0, pid);
		if (!pid) {
			struct end e;

			must_prepare_end(&e, 0, eventfd(0, 0));
			e.group = must_join(&e.card, "lifetime kill", 0);
			must_be_ready(&e.card, e.group);
			for (;;) {
				post_sum(&e, 1000);
				arm(&e.queue, e.queue.head);
				await_status(&e.queue);
			}
		}
		self->end[1].group = must_join(&self->end[1].card, "lifetime kill", 1);
		must_be_ready(&self->end[1].card, self->end[1].group);
		post_sum(&self->end[1], 1000);
		ASSERT_EQ(OPTINC_ST_SUCCESS, await_status(&self->end[1].queue));
		usleep(round * 300);
		kill(pid, SIGKILL);
		ASSERT_EQ(pid, waitpid(pid, NULL, 0));
		ASSERT_TRUE(lost(&self->end[1]));
		ASSERT_EQ(0, leave_group(&self->end[1].card, self->end[1].group));
	}
}

TEST_HARNESS_MAIN
