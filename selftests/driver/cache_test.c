// SPDX-License-Identifier: GPL-2.0-only
/*
 * OPTINC_MR_CACHE: the context page tells of every change after which a
 * region's memory is not what is mapped at its addresses, in time, and of
 * little else.
 */
#include "cache.h"

#include <pthread.h>
#include <sys/uio.h>

/* The fixture's region: the half in the middle of its memory */
#define FIRST	16U
#define COUNT	32U

FIXTURE(cache)
{
	struct card card;
	context_page context;
	size_t page;
	char *memory, *region;
	int file;		/* of shared memory; -1 */
	uint32_t mr, slot;
	uint64_t generation;
};

FIXTURE_VARIANT(cache)
{
	bool shared;
};

FIXTURE_VARIANT_ADD(cache, private)
{
	.shared = false,
};

FIXTURE_VARIANT_ADD(cache, shared)
{
	.shared = true,
};

FIXTURE_SETUP(cache)
{
	self->page = page_bytes();
	must_open_watching(&self->card);
	self->context = must_map_context(&self->card);
	self->file = variant->shared ? memfd_create("cache", MFD_CLOEXEC) : -1;
	if (variant->shared)
		must(!ftruncate(self->file, PAGES * self->page));
	self->memory = must_have_pages(PAGES, self->file);
	self->region = self->memory + FIRST * self->page;
	ASSERT_EQ(0, reg_cached(&self->card, self->region, COUNT * self->page, OPTINC_MR_WRITE,
				&self->mr, &self->slot));
	self->generation = generation(self->context);
	/* its own faults were no change */
	EXPECT_EQ(0, self->generation);
	EXPECT_FALSE(is_stale(self->context, self->slot));
}

/* A region that changed costs what it did, until it is ended. */
FIXTURE_TEARDOWN(cache)
{
	EXPECT_EQ(COUNT, pinned());
	EXPECT_EQ(0, dereg(&self->card, self->mr));
	EXPECT_EQ(0, pinned());
}

/* The file behind the memory, which others may have as well */
FIXTURE(file)
{
	struct card card;
	context_page context;
	size_t page;
	char *memory;
	int file;
	uint32_t mr, slot;
	uint64_t generation;
};

FIXTURE_SETUP(file)
{
	self->page = page_bytes();
	must_open_watching(&self->card);
	self->context = must_map_context(&self->card);
	self->file = memfd_create("cache", MFD_CLOEXEC);
	must(!ftruncate(self->file, PAGES * self->page));
	self->memory = must_have_pages(PAGES, self->file);
	ASSERT_EQ(0, reg_cached(&self->card, self->memory, COUNT * self->page, OPTINC_MR_WRITE,
				&self->mr, &self->slot));
	self->generation = generation(self->context);
}

FIXTURE_TEARDOWN(file)
{
	EXPECT_EQ(COUNT, pinned());
	EXPECT_EQ(0, dereg(&self->card, self->mr));
}

#define EXPECT_STALE() do {						\
	EXPECT_TRUE(is_stale(self->context, self->slot));		\
	EXPECT_LT(self->generation, generation(self->context));	\
} while (0)

#define EXPECT_FRESH(what) do {						\
	EXPECT_FALSE(is_stale(self->context, self->slot))		\
		TH_LOG("after %s", what);				\
	EXPECT_EQ(self->generation, generation(self->context))		\
		TH_LOG("after %s", what);				\
} while (0)

/* ----------------------------------------------------- what has to be told */

TEST_F(cache, munmap)
{
	ASSERT_EQ(0, munmap(self->region, COUNT * self->page));
	EXPECT_STALE();
}

TEST_F(cache, munmap_of_one_page)
{
	ASSERT_EQ(0, munmap(self->region + (COUNT - 1) * self->page, self->page));
	EXPECT_STALE();
}

TEST_F(cache, munmap_of_everything_around)
{
	ASSERT_EQ(0, munmap(self->memory, PAGES * self->page));
	EXPECT_STALE();
}

TEST_F(cache, mmap_over)
{
	ASSERT_EQ(self->region,
		  mmap(self->region, self->page, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	EXPECT_STALE();
}

TEST_F(cache, mremap)
{
	char *elsewhere = must_have_pages(COUNT, -1);

	ASSERT_EQ(elsewhere, mremap(self->region, COUNT * self->page, COUNT * self->page,
				    MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere));
	EXPECT_STALE();
}

TEST_F(cache, mremap_to_less)
{
	ASSERT_EQ(self->region, mremap(self->region, COUNT * self->page, self->page, 0));
	EXPECT_STALE();
}

TEST_F(cache, mremap_onto)
{
	ASSERT_EQ(self->region, mremap(self->memory, self->page, self->page,
				       MREMAP_MAYMOVE | MREMAP_FIXED, self->region));
	EXPECT_STALE();
}

TEST_F(cache, dontneed)
{
	ASSERT_EQ(0, madvise(self->region + self->page, self->page, MADV_DONTNEED));
	EXPECT_STALE();
}

/* Told before the call returns, whoever makes it */
static void *drop(void *arg)
{
	must(!madvise(arg, page_bytes(), MADV_DONTNEED));
	return NULL;
}

TEST_F(cache, dontneed_by_another_thread)
{
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, drop, self->region));
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_STALE();
}

static int punches(void *arg)
{
	size_t page = page_bytes();

	return fallocate(*(int *)arg, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 3 * page, page);
}

TEST_F(file, hole)
{
	ASSERT_EQ(0, punches(&self->file));
	EXPECT_STALE();
}

TEST_F(file, hole_by_another_process)
{
	ASSERT_EQ(0, in_child(punches, &self->file));
	EXPECT_STALE();
}

TEST_F(file, truncated)
{
	ASSERT_EQ(0, ftruncate(self->file, (COUNT - 1) * self->page));
	EXPECT_STALE();
}

TEST_F(file, hole_elsewhere)
{
	ASSERT_EQ(0, ftruncate(self->file, COUNT * self->page));
	EXPECT_FRESH("ftruncate() behind it");
	ASSERT_EQ(0, pwrite(self->file, "x", 1, 0) != 1);
	EXPECT_FRESH("pwrite()");
}

/* Each change is one more, also of what is stale already: it may be someone else's news. */
TEST_F(cache, again_and_again)
{
	uint64_t last = self->generation;
	unsigned int i;

	for (i = 0; i < 5; i++) {
		ASSERT_EQ(0, madvise(self->region, self->page, MADV_DONTNEED));
		EXPECT_LT(last, generation(self->context));
		last = generation(self->context);
	}
	EXPECT_STALE();
}

/* ------------------------------------------------- what shall not be told */

TEST_F(cache, unrelated)
{
	char *other = must_have_pages(4, -1);

	memset(other, 1, 4 * self->page);
	ASSERT_EQ(0, munmap(other, 4 * self->page));
	/* up to the region's first byte, and from the first behind it */
	ASSERT_EQ(0, madvise(self->memory, FIRST * self->page, MADV_DONTNEED));
	EXPECT_FRESH("MADV_DONTNEED before it");
	ASSERT_EQ(0, munmap(self->memory, FIRST * self->page));
	EXPECT_FRESH("munmap() before it");
	ASSERT_EQ(0, munmap(self->region + COUNT * self->page,
			    (PAGES - FIRST - COUNT) * self->page));
	EXPECT_FRESH("munmap() behind it");
}

TEST_F(cache, use)
{
	volatile char *p = self->region;
	unsigned int i;

	for (i = 0; i < COUNT * self->page; i++)
		p[i]++;
	EXPECT_FRESH("writing");
	ASSERT_EQ(0, mlock(self->region, COUNT * self->page));
	ASSERT_EQ(0, munlock(self->region, COUNT * self->page));
	EXPECT_FRESH("mlock()");
	ASSERT_EQ(0, msync(self->region, COUNT * self->page, MS_SYNC));
	EXPECT_FRESH("msync()");
	ASSERT_EQ(0, madvise(self->region, COUNT * self->page, MADV_WILLNEED));
	EXPECT_FRESH("MADV_WILLNEED");
}

TEST_F(cache, protection)
{
	ASSERT_EQ(0, mprotect(self->region, COUNT * self->page, PROT_READ));
	EXPECT_FRESH("mprotect(PROT_READ)");
	ASSERT_EQ(0, mprotect(self->region, self->page, PROT_NONE));
	EXPECT_FRESH("mprotect(PROT_NONE)");
	ASSERT_EQ(0, mprotect(self->region, COUNT * self->page, PROT_READ | PROT_WRITE));
	memset(self->region, 1, COUNT * self->page);
	EXPECT_FRESH("writing again");
}

/* What tracks who writes write-protects pages, and lets them be written again. */
TEST_F(cache, soft_dirty)
{
	int fd = open("/proc/self/clear_refs", O_WRONLY);

	ASSERT_LE(0, fd);
	ASSERT_EQ(1, write(fd, "4", 1));
	EXPECT_FRESH("clearing the soft-dirty bits");
	memset(self->region, 1, COUNT * self->page);
	EXPECT_FRESH("writing again");
}

/* Registered once more, for reading and writing, before anybody has touched it or after */
TEST_F(cache, own_registrations)
{
	char *untouched = must_have_pages(COUNT, -1);
	uint32_t mrs[6], slots[6], i;
	uint64_t total = COUNT;

	for (i = 0; i < 4; i++) {
		char *addr = i < 2 ? self->region : untouched;

		ASSERT_EQ(0, reg_cached(&self->card, addr, COUNT * self->page,
					i % 2 ? OPTINC_MR_WRITE : 0, &mrs[i], &slots[i]));
		total += COUNT;
		EXPECT_EQ(total, pinned());
		EXPECT_FRESH("a registration");
	}
	/* the one that has been read: it is the page of zeros, which is replaced to be pinned */
	untouched = must_have_pages(COUNT, -1);
	for (i = 0; i < COUNT; i++)
		EXPECT_EQ(0, *(volatile char *)(untouched + i * self->page));
	for (i = 4; i < 6; i++) {
		ASSERT_EQ(0, reg_cached(&self->card, untouched, COUNT * self->page,
					i % 2 ? OPTINC_MR_WRITE : 0, &mrs[i], &slots[i]));
		EXPECT_FRESH("a registration of what was read");
	}
	for (i = 0; i < 6; i++) {
		EXPECT_FALSE(is_stale(self->context, slots[i]));
		EXPECT_EQ(0, dereg(&self->card, mrs[i]));
	}
	EXPECT_FRESH("deregistrations");
}

/* Pinned pages stay the parent's: the child gets copies, at fork(). */
TEST_F(cache, fork)
{
	struct inherited in = { self->region, COUNT * self->page };

	memset(self->region, 1, COUNT * self->page);
	ASSERT_EQ(0, in_child(writes, &in));
	EXPECT_FRESH("fork() and the child's writing");
	memset(self->region, 2, COUNT * self->page);
	EXPECT_FRESH("the parent's writing");
}

/* Pages that a child shares are replaced when they are pinned: no change of the region. */
TEST_F(cache, registered_after_fork)
{
	char *memory = must_have_pages(COUNT, -1);
	uint32_t mr, slot;
	int wake[2];
	char byte;
	pid_t pid;

	memset(memory, 1, COUNT * self->page);
	ASSERT_EQ(0, pipe(wake));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(wake[1]);
		must(read(wake[0], &byte, 1) == 0);
		_exit(memory[0] != 1);
	}
	ASSERT_EQ(0, reg_cached(&self->card, memory, COUNT * self->page, 0, &mr, &slot));
	EXPECT_FRESH("a registration of shared pages");
	memset(memory, 2, COUNT * self->page);
	EXPECT_FALSE(is_stale(self->context, slot));
	EXPECT_FRESH("writing");
	close(wake[0]);
	close(wake[1]);
	EXPECT_EQ(pid, waitpid(pid, NULL, 0));
	EXPECT_EQ(0, dereg(&self->card, mr));
}

/* ------------------------------------------------------------------ slots */

TEST_F(cache, precise)
{
	uint32_t mrs[COUNT], slots[COUNT], i, j;

	for (i = 0; i < COUNT; i++) {
		ASSERT_EQ(0, reg_cached(&self->card, self->region + i * self->page, self->page, 0,
					&mrs[i], &slots[i]));
		for (j = 0; j < i; j++)
			ASSERT_NE(slots[i], slots[j]);
		ASSERT_NE(slots[i], self->slot);
	}
	EXPECT_FRESH("registrations");
	ASSERT_EQ(0, madvise(self->region + 7 * self->page, self->page, MADV_DONTNEED));
	EXPECT_STALE();
	for (i = 0; i < COUNT; i++)
		EXPECT_EQ(i == 7, is_stale(self->context, slots[i])) TH_LOG("page %u", i);
	/* one that is registered again is as new */
	EXPECT_EQ(0, dereg(&self->card, mrs[7]));
	ASSERT_EQ(0, reg_cached(&self->card, self->region + 7 * self->page, self->page, 0, &mrs[7],
				&slots[7]));
	EXPECT_FALSE(is_stale(self->context, slots[7]));
	for (i = 0; i < COUNT; i++)
		EXPECT_EQ(0, dereg(&self->card, mrs[i]));
}

/* A slot is lower than the regions there can be, so the page never limits this card. */
TEST_F(cache, all_the_card_has)
{
	uint32_t n, max = self->card.query.max_mrs - 1;
	uint32_t *mrs = calloc(max, sizeof(*mrs)), more, slot;

	for (n = 0; n < max && n < OPTINC_CONTEXT_SLOTS; n++) {
		ASSERT_EQ(0, reg_cached(&self->card, self->region, 1, 0, &mrs[n], &slot));
		ASSERT_GE(n + 1, slot);
	}
	EXPECT_EQ(-ENOSPC, reg_cached(&self->card, self->region, 1, 0, &more, &slot));
	EXPECT_FRESH("all that there is");
	EXPECT_EQ(COUNT + n, pinned());
	while (n)
		EXPECT_EQ(0, dereg(&self->card, mrs[--n]));
	free(mrs);
}

/* What fails leaves nothing behind: no charge, no slot, no watch. */
TEST_F(cache, failure)
{
	struct optinc_mr_reg *answer;
	uint32_t mr, slot, i;
	char *memory;

	memory = must_have_pages(8, -1);
	ASSERT_EQ(0, munmap(memory + 7 * self->page, self->page));
	for (i = 0; i < 100; i++) {
		EXPECT_EQ(-EFAULT, reg_cached(&self->card, memory, 8 * self->page, 0, &mr, &slot));
		EXPECT_EQ(COUNT, pinned());
	}
	/* the answer cannot be written */
	answer = (void *)memory;
	*answer = (struct optinc_mr_reg) {
		.size = sizeof(*answer), .flags = OPTINC_MR_CACHE, .addr = (uintptr_t)memory,
		.length = self->page, .fd = -1,
	};
	ASSERT_EQ(0, mprotect(memory, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, call(self->card.fd, OPTINC_IOCTL_MR_REG, answer));
	EXPECT_EQ(COUNT, pinned());
	ASSERT_EQ(0, munmap(memory, 7 * self->page));
	EXPECT_FRESH("failures");
	ASSERT_EQ(0, reg_cached(&self->card, self->region, 1, 0, &mr, &slot));
	EXPECT_EQ(self->slot + 1, slot);
	EXPECT_EQ(0, dereg(&self->card, mr));
}

/* Without the flag nothing is watched. */
TEST_F(cache, plain_region)
{
	struct optinc_mr_reg r = {
		.size = sizeof(r), .addr = (uintptr_t)self->memory, .length = self->page, .fd = -1,
		.slot = 0x5555,
	};

	ASSERT_EQ(0, call(self->card.fd, OPTINC_IOCTL_MR_REG, &r));
	EXPECT_EQ(0, r.slot);
	ASSERT_EQ(0, munmap(self->memory, self->page));
	EXPECT_FRESH("munmap() of a plain region");
	EXPECT_EQ(0, dereg(&self->card, r.mr));
}

/* --------------------------------------------------------------- the page */

#define EXPECT_NO_MAP(error, length, prot, flags, offset) do {			\
	EXPECT_EQ(MAP_FAILED, mmap(NULL, length, prot, flags, self->card.fd,	\
				   (off_t)(offset)));				\
	EXPECT_EQ(error, errno);						\
} while (0)

TEST_F(cache, page_is_for_reading)
{
	uint64_t offset = self->card.query.context_offset;
	void *page = (void *)self->context;
	int fd = open("/proc/self/mem", O_RDWR);
	char byte = 1;

	EXPECT_NO_MAP(EPERM, self->page, PROT_READ | PROT_WRITE, MAP_SHARED, offset);
	EXPECT_NO_MAP(EPERM, self->page, PROT_WRITE, MAP_SHARED, offset);
	EXPECT_NO_MAP(EPERM, self->page, PROT_READ | PROT_EXEC, MAP_SHARED, offset);
	EXPECT_NO_MAP(EINVAL, self->page, PROT_READ, MAP_PRIVATE, offset);
	EXPECT_NO_MAP(EINVAL, 2 * self->page, PROT_READ, MAP_SHARED, offset);
	EXPECT_NO_MAP(EINVAL, self->page, PROT_READ, MAP_SHARED, offset + self->page);
	EXPECT_EQ(-1, mprotect(page, self->page, PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(-1, mprotect(page, self->page, PROT_READ | PROT_EXEC));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(MAP_FAILED, mremap(page, self->page, 2 * self->page, MREMAP_MAYMOVE));
	EXPECT_EQ(EFAULT, errno);
	/* nor as a debugger does, nor by the card */
	ASSERT_LE(0, fd);
	EXPECT_EQ(-1, pwrite(fd, &byte, 1, (off_t)(uintptr_t)page));
	EXPECT_EQ(-EFAULT, reg(&self->card, page, 8, OPTINC_MR_WRITE, &self->slot));
	close(fd);
}

static int sees_another(void *arg)
{
	struct card *c = arg;
	uint32_t mr, slot;
	char *memory = must_have_pages(1, -1);

	/* the parent's context, this process's memory */
	must(!reg_cached(c, memory, page_bytes(), 0, &mr, &slot));
	must(!munmap(memory, page_bytes()));
	if (!is_stale(must_map_context(c), slot))
		return 1;
	memory = must_have_pages(1, -1);
	must(!reg_cached(c, memory, page_bytes(), 0, &mr, &slot));
	if (is_stale(must_map_context(c), slot))
		return 2;
	/* that one goes with the process: the parent finds it stale */
	return 100 + (int)slot;
}

static int touch(void *arg)
{
	return *(volatile char *)arg;
}

/* Of a context, whoever maps it; not inherited */
TEST_F(cache, page_is_the_contexts)
{
	struct card other;
	context_page page;
	int status;

	EXPECT_EQ(256 + SIGSEGV, in_child(touch, (void *)self->context));
	EXPECT_FRESH("fork()");
	status = in_child(sees_another, &self->card);
	ASSERT_LE(100, status);
	EXPECT_LT(self->generation + 1, generation(self->context));
	EXPECT_TRUE(is_stale(self->context, (uint32_t)status - 100));
	EXPECT_FALSE(is_stale(self->context, self->slot));
	/* another context knows nothing of it */
	must_open(&other, 0);
	page = must_map_context(&other);
	ASSERT_EQ(0, munmap(self->region, self->page));
	EXPECT_STALE();
	EXPECT_EQ(0, generation(page));
	ASSERT_EQ(0, munmap((void *)page, self->page));
	shut(&other);
}

static void *exec_true(void *arg)
{
	execl("/bin/true", "true", NULL);
	return arg;
}

/* The memory goes by exec(), with a parent that holds the context. */
TEST_F(cache, exec)
{
	int shared = memfd_create("slot", MFD_CLOEXEC);
	uint32_t mr, slot;
	int status;
	pid_t pid;

	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		must(!reg_cached(&self->card, self->region, self->page, 0, &mr, &slot));
		must(pwrite(shared, &slot, sizeof(slot), 0) == sizeof(slot));
		exec_true(NULL);
		_exit(127);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);
	ASSERT_EQ(sizeof(slot), pread(shared, &slot, sizeof(slot), 0));
	EXPECT_TRUE(is_stale(self->context, slot));
	EXPECT_FALSE(is_stale(self->context, self->slot));
}

/* The page is memory: it stays, with what it says, when the card is reset. */
TEST_F(cache, reset)
{
	struct optinc_reset reset = { .size = sizeof(reset) };
	int ctl = open_node("ctl", 0);
	uint64_t last;
	uint32_t mr, slot;
	struct card again;

	ASSERT_EQ(0, madvise(self->region, self->page, MADV_DONTNEED));
	EXPECT_STALE();
	last = generation(self->context);
	ASSERT_EQ(0, call(ctl, OPTINC_IOCTL_RESET, &reset));
	close(ctl);
	EXPECT_EQ(0, pinned());
	EXPECT_EQ(last, generation(self->context));
	EXPECT_TRUE(is_stale(self->context, self->slot));
	/* nobody watches any more */
	ASSERT_EQ(0, munmap(self->region, self->page));
	EXPECT_EQ(last, generation(self->context));
	EXPECT_NO_MAP(ENODEV, self->page, PROT_READ, MAP_SHARED,
		      self->card.query.context_offset);
	EXPECT_EQ(-ENODEV, reg_cached(&self->card, self->memory, 1, 0, &mr, &slot));
	EXPECT_EQ(0, munmap((void *)self->context, self->page));
	/* for the fixture's end */
	must_open(&again, 0);
	shut(&self->card);
	self->card = again;
	ASSERT_EQ(0, reg_cached(&self->card, self->memory, COUNT * self->page / 4, 0, &mr, &slot));
	EXPECT_EQ(0, dereg(&self->card, mr));
	ASSERT_EQ(0, reg_cached(&self->card, must_have_pages(COUNT, -1), COUNT * self->page, 0,
				&self->mr, &slot));
}

TEST_HARNESS_MAIN
