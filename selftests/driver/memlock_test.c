// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages of regions are charged to whoever registers them: VmPin to the page,
 * against RLIMIT_MEMLOCK, and given back on every way that a region can end.
 */
#include "card.h"

#include <linux/capability.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "kselftest_harness.h"

#define LIMIT	16UL	/* pages, where there is a limit */

static void must_drop_ipc_lock(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	must(!syscall(SYS_capget, &header, data));
	data[0].effective &= ~(1U << CAP_IPC_LOCK);
	must(!syscall(SYS_capset, &header, data));
}

static void must_limit(unsigned long pages)
{
	struct rlimit limit = { pages * page_bytes(), pages * page_bytes() };

	must(!setrlimit(RLIMIT_MEMLOCK, &limit));
	must_drop_ipc_lock();
}

FIXTURE(memory)
{
	struct card card;
	size_t page;
	char *memory;
	unsigned long locked;	/* at the beginning */
};

FIXTURE_SETUP(memory)
{
	must_open(&self->card, 0);
	self->page = page_bytes();
	self->memory = mmap(NULL, 64 * self->page, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->memory);
	self->locked = status_pages(getpid(), "VmLck");
	ASSERT_EQ(0, pinned());
}

FIXTURE_TEARDOWN(memory)
{
	EXPECT_EQ(self->locked, status_pages(getpid(), "VmLck"));
}

/* By pages that it touches, not by bytes; each registration on its own */
TEST_F(memory, exact)
{
	static const struct {
		size_t skip, length;	/* both: pages plus bytes */
		size_t skip_bytes, length_bytes;
		unsigned long pages;
	} cases[] = {
		{ 0, 0, 0, 1, 1 }, { 0, 1, 0, 0, 1 }, { 0, 1, 1, 0, 2 }, { 0, 1, 0, 1, 2 },
		{ 3, 0, -1UL, 2, 2 }, { 2, 7, 5, -5UL, 7 }, { 2, 7, 5, -4UL, 8 },
		{ 0, 64, 0, 0, 64 },
	};
	unsigned long total = 0;
	uint32_t mrs[ARRAY_SIZE(cases)], again, i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		char *addr = self->memory + cases[i].skip * self->page + cases[i].skip_bytes;

		mrs[i] = must_reg(&self->card, addr,
				  cases[i].length * self->page + cases[i].length_bytes);
		total += cases[i].pages;
		EXPECT_EQ(total, pinned()) TH_LOG("case %u", i);
	}
	/* for reading alone it costs the same */
	EXPECT_EQ(0, reg(&self->card, self->memory, self->page, 0, &again));
	EXPECT_EQ(total + 1, pinned());
	EXPECT_EQ(0, dereg(&self->card, again));
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		EXPECT_EQ(0, dereg(&self->card, mrs[i]));
		total -= cases[i].pages;
		EXPECT_EQ(total, pinned()) TH_LOG("case %u", i);
	}
	EXPECT_EQ(0, pinned());
}

TEST_F(memory, close_gives_back)
{
	struct card other;
	uint32_t i;

	must_open(&other, 0);
	for (i = 0; i < 10; i++)
		must_reg(&other, self->memory + i * self->page, 5 * self->page);
	must_reg(&self->card, self->memory, 3 * self->page);
	EXPECT_EQ(53, pinned());
	/* the mapping keeps the context, and the charge */
	EXPECT_EQ(0, close(other.fd));
	EXPECT_EQ(53, pinned());
	EXPECT_EQ(0, munmap((void *)other.page, self->page));
	EXPECT_EQ(3, pinned());
	shut(&self->card);
	EXPECT_EQ(0, pinned());
}

/* What fails costs nothing, wherever it fails. */
TEST_F(memory, failure_gives_back)
{
	struct optinc_mr_reg *answer = (void *)(self->memory + 40 * self->page);
	uint32_t mr, n;

	ASSERT_EQ(0, munmap(self->memory + 20 * self->page, self->page));
	EXPECT_EQ(-EFAULT, reg(&self->card, self->memory, 30 * self->page, 0, &mr));
	EXPECT_EQ(0, pinned());
	EXPECT_EQ(-EINVAL, reg(&self->card, self->memory, 0, 0, &mr));
	EXPECT_EQ(-ENOENT, dereg(&self->card, 12345));
	EXPECT_EQ(0, pinned());
	/* the answer cannot be written */
	*answer = (struct optinc_mr_reg) {
		.size = sizeof(*answer), .addr = (uintptr_t)self->memory,
		.length = 5 * self->page, .fd = -1,
	};
	ASSERT_EQ(0, mprotect(answer, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, call(self->card.fd, OPTINC_IOCTL_MR_REG, answer));
	EXPECT_EQ(0, pinned());
	/* the card has no room */
	for (n = 0; n < self->card.query.max_mrs; n++)
		ASSERT_EQ(0, reg(&self->card, self->memory, 1, 0, &mr));
	EXPECT_EQ(n, pinned());
	EXPECT_EQ(-ENOSPC, reg(&self->card, self->memory, 5 * self->page, 0, &mr));
	EXPECT_EQ(n, pinned());
}

TEST_F(memory, limit)
{
	uint32_t first, second, mr;

	must_limit(LIMIT);
	EXPECT_EQ(-ENOMEM, reg(&self->card, self->memory, (LIMIT + 1) * self->page, 0, &mr));
	EXPECT_EQ(0, pinned());
	EXPECT_EQ(-ENOMEM, reg(&self->card, self->memory + 1, LIMIT * self->page, 0, &mr));
	first = must_reg(&self->card, self->memory, LIMIT * self->page);
	EXPECT_EQ(LIMIT, pinned());
	EXPECT_EQ(-ENOMEM, reg(&self->card, self->memory, 1, 0, &mr));
	EXPECT_EQ(LIMIT, pinned());
	EXPECT_EQ(0, dereg(&self->card, first));
	/* the same memory twice is charged twice */
	first = must_reg(&self->card, self->memory, LIMIT / 2 * self->page);
	second = must_reg(&self->card, self->memory, LIMIT / 2 * self->page);
	EXPECT_EQ(-ENOMEM, reg(&self->card, self->memory, 1, 0, &mr));
	EXPECT_EQ(0, dereg(&self->card, second));
	EXPECT_EQ(0, reg(&self->card, self->memory, 1, 0, &mr));
	EXPECT_EQ(LIMIT / 2 + 1, pinned());
	EXPECT_EQ(0, dereg(&self->card, first));
}

/* The limit is the process's, not the file's, and no privilege is inherited by files. */
TEST_F(memory, limit_over_files)
{
	struct card other;
	uint32_t mr;

	must_reg(&self->card, self->memory, 40 * self->page);
	must_limit(LIMIT);
	must_open(&other, 0);
	EXPECT_EQ(-ENOMEM, reg(&other, self->memory, 1, 0, &mr));
	shut(&self->card);
	EXPECT_EQ(0, reg(&other, self->memory, LIMIT * self->page, 0, &mr));
	EXPECT_EQ(-ENOMEM, reg(&other, self->memory, 1, 0, &mr));
}

/* CAP_IPC_LOCK is not limited, but charged. */
TEST_F(memory, privileged)
{
	struct rlimit limit = { 0, 0 };

	ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &limit));
	must_reg(&self->card, self->memory, 64 * self->page);
	EXPECT_EQ(64, pinned());
}

/* What mlock() charges is another account. */
TEST_F(memory, mlock)
{
	uint32_t mr;

	must_limit(LIMIT);
	ASSERT_EQ(0, mlock(self->memory, LIMIT * self->page));
	EXPECT_EQ(0, reg(&self->card, self->memory, LIMIT * self->page, 0, &mr));
	EXPECT_EQ(self->locked + LIMIT, status_pages(getpid(), "VmLck"));
	EXPECT_EQ(0, munlock(self->memory, LIMIT * self->page));
	EXPECT_EQ(LIMIT, pinned());
}

struct inherited {
	struct card *card;
	char *memory;
	uint32_t mr;
	pid_t parent;
};

/* A child pays for what it registers, and not for what its parent did. */
static int child_registers(void *arg)
{
	struct inherited *in = arg;
	uint32_t mr;

	if (pinned())
		return 1;
	must_limit(LIMIT);
	if (reg(in->card, in->memory, LIMIT * page_bytes(), 0, &mr))
		return 2;
	if (pinned() != LIMIT || status_pages(in->parent, "VmPin") != 20)
		return 3;
	if (reg(in->card, in->memory, 1, 0, &mr) != -ENOMEM)
		return 4;
	return 0;
}

TEST_F(memory, fork)
{
	struct inherited in = { &self->card, self->memory, 0, getpid() };

	in.mr = must_reg(&self->card, self->memory, 20 * self->page);
	EXPECT_EQ(0, in_child(child_registers, &in));
	/* what the child registered is still there, and nobody's to pay for */
	EXPECT_EQ(20, pinned());
	EXPECT_EQ(0, dereg(&self->card, in.mr));
	EXPECT_EQ(0, pinned());
}

/* The owner gets it back, whoever ends it. */
static int child_deregisters(void *arg)
{
	struct inherited *in = arg;

	if (dereg(in->card, in->mr))
		return 1;
	if (pinned())
		return 2;
	return status_pages(in->parent, "VmPin") ? 3 : 0;
}

TEST_F(memory, dereg_by_child)
{
	struct inherited in = { &self->card, self->memory, 0, getpid() };

	in.mr = must_reg(&self->card, self->memory, 20 * self->page);
	EXPECT_EQ(0, in_child(child_deregisters, &in));
	EXPECT_EQ(0, pinned());
}

/* The child has the last reference of the parent's context. */
TEST_F(memory, close_by_child)
{
	int wake[2];
	char byte;
	pid_t pid;
	int fd;

	must_reg(&self->card, self->memory, 20 * self->page);
	ASSERT_EQ(0, pipe(wake));
	fd = dup(self->card.fd);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(wake[1]);
		must(read(wake[0], &byte, 1) == 0);
		_exit(0);
	}
	close(wake[0]);
	close(fd);
	shut(&self->card);
	EXPECT_EQ(20, pinned());
	close(wake[1]);
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	EXPECT_EQ(0, pinned());
}

/* A new program does not inherit the charge, and cannot underflow it. */
TEST_F(memory, exec)
{
	static const char none[] = "grep -q '^VmPin:.* 0 kB' /proc/self/status";
	char script[160];
	pid_t pid;
	int status, fd;

	must_reg(&self->card, self->memory, 20 * self->page);
	fd = dup(self->card.fd);	/* without O_CLOEXEC */
	snprintf(script, sizeof(script), "%s && exec %d>&- && %s", none, fd, none);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		must_reg(&self->card, self->memory, 4 * self->page);
		execl("/bin/sh", "sh", "-c", script, NULL);
		_exit(127);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(20, pinned());
}

/* A reset gives it back too, when the card can no longer reach the memory. */
TEST_F(memory, reset)
{
	struct optinc_reset reset = { .size = sizeof(reset) };
	int ctl = open_node("ctl", 0);

	must_reg(&self->card, self->memory, 20 * self->page);
	ASSERT_EQ(0, call(ctl, OPTINC_IOCTL_RESET, &reset));
	EXPECT_EQ(0, pinned());
}

/* A region that is in use is not unpinned. */
TEST_F(memory, busy)
{
	struct end ends[2];

	must_pair(ends, "memlock");
	EXPECT_EQ(2 * END_BYTES / self->page, pinned());
	post_sum(&ends[0], 100);
	must_be_taken(&ends[0].queue);
	EXPECT_EQ(-EBUSY, dereg(&ends[0].card, ends[0].mr));
	EXPECT_EQ(2 * END_BYTES / self->page, pinned());
	post_sum(&ends[1], 100);
	EXPECT_EQ(0, dereg_patiently(&ends[0].card, ends[0].mr));
	EXPECT_EQ(END_BYTES / self->page, pinned());
}

struct watch {
	struct end *peer;
	unsigned long pages;
	int status;
};

/* As soon as anything is unpinned, the peer lets the request go on that used it. */
static void *unpinned(void *arg)
{
	struct watch *watch = arg;

	while (pinned() == watch->pages)
		;
	post_sum(watch->peer, 1000);
	watch->status = await_status(&watch->peer->queue);
	return NULL;
}

/* When close() unpins, the card has already forgotten the context: a fence, too. */
TEST_F(memory, close_is_a_fence)
{
	unsigned int round;

	for (round = 0; round < 10; round++) {
		struct watch watch;
		struct end ends[2];
		pthread_t thread;
		char key[16];

		snprintf(key, sizeof(key), "fence %u", round);
		must_pair(ends, key);
		watch = (struct watch) { &ends[1], pinned(), 0 };
		ASSERT_EQ(2 * END_BYTES / self->page, watch.pages);
		post_sum(&ends[0], 1000);
		must_be_taken(&ends[0].queue);
		ASSERT_EQ(0, pthread_create(&thread, NULL, unpinned, &watch));
		unmap_queue(&ends[0].queue);
		shut(&ends[0].card);
		ASSERT_EQ(0, pthread_join(thread, NULL));
		ASSERT_EQ(OPTINC_ST_PEER_LOST, watch.status) TH_LOG("round %u", round);
		unmap_queue(&ends[1].queue);
		shut(&ends[1].card);
	}
}

TEST_HARNESS_MAIN
