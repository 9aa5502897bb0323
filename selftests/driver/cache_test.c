// SPDX-License-Identifier: GPL-2.0-only
/*
 * OPTINC_MR_CACHE: the context page tells of every change after which a
 * region's memory is not what is mapped at its addresses, in time, and of
 * little else.
 */
#include "card.h"

#include <pthread.h>
#include <sys/uio.h>

#include "kselftest_harness.h"

#define PAGES	64U	/* of the fixture's memory; its region is the half in the middle */
#define FIRST	16U
#define COUNT	32U

typedef const volatile struct optinc_context_page *context_page;

static context_page must_map_context(struct card *c)
{
	void *page = mmap(NULL, page_bytes(), PROT_READ, MAP_SHARED, c->fd,
			  (off_t)c->query.context_offset);

	must(page != MAP_FAILED);
	return page;
}

/* Ends the test where there is nothing to test. */
static void must_watch(const struct card *c)
{
	if (c->query.features & OPTINC_FEAT_MR_CACHE)
		return;
	ksft_print_msg("the kernel has no MMU notifiers\n");
	exit(SKIPPED);
}

static void must_open_watching(struct card *c)
{
	must_open(c, 0);
	must_watch(c);
}

static bool is_stale(context_page page, uint32_t slot)
{
	return __atomic_load_n(&page->mr_stale[slot / 8], __ATOMIC_ACQUIRE) >> slot % 8 & 1;
}

static uint64_t generation(context_page page)
{
	return __atomic_load_n(&page->mr_generation, __ATOMIC_ACQUIRE);
}

/* No huge pages: what splits one is told, and is another matter. */
static char *must_have_pages(unsigned int n, int fd)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	char *memory = mmap(NULL, n * page_bytes(), PROT_READ | PROT_WRITE, flags, fd, 0);

	must(memory != MAP_FAILED);
	must(!madvise(memory, n * page_bytes(), MADV_NOHUGEPAGE));
	return memory;
}

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

struct inherited {
	char *memory;
	size_t bytes;
	int wait;	/* a pipe to read until it is closed */
};

static int writes(void *arg)
{
	struct inherited *in = arg;

	memset(in->memory, 0x33, in->bytes);
	return 0;
}

/* Pinned pages stay the parent's: the child gets copies, at fork(). */
TEST_F(cache, fork)
{
	struct inherited in = { self->region, COUNT * self->page, -1 };

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

/* -------------------------------------------------------- what always holds */

/* Where the page is that is mapped at @addr; 0 if none is. */
static uint64_t frame(int pagemap, const char *addr)
{
	uint64_t entry = 0;

	must(pread(pagemap, &entry, 8, (off_t)((uintptr_t)addr / page_bytes() * 8)) == 8);
	return entry >> 63 ? entry & ((1ULL << 55) - 1) : 0;
}

struct chance {
	char *memory;
	int file;
	size_t page;
	unsigned int state;
};

static unsigned int draw(struct chance *c, unsigned int below)
{
	c->state = c->state * 1103515245 + 12345;
	return (c->state >> 16) % below;
}

/* Something that processes do to their memory, at random pages of it */
static void meddle(struct chance *c)
{
	unsigned int first = draw(c, PAGES), count = 1 + draw(c, PAGES - first);
	char *at = c->memory + first * c->page;
	size_t bytes = count * c->page;
	struct inherited in = { at, bytes, -1 };
	int prot = PROT_READ | PROT_WRITE;

	switch (draw(c, 14)) {
	case 0:
		mmap(at, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	case 1:
		mmap(at, bytes, prot, MAP_SHARED | MAP_FIXED, c->file, first * c->page);
		break;
	case 2:
		mmap(at, bytes, prot, MAP_PRIVATE | MAP_FIXED, c->file, first * c->page);
		break;
	case 3:
		madvise(at, bytes, MADV_DONTNEED);
		break;
	case 4:
		madvise(at, bytes, MADV_PAGEOUT);
		break;
	case 5:
		madvise(at, bytes, MADV_FREE);
		break;
	case 6:
		fallocate(c->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first * c->page,
			  bytes);
		break;
	case 7:
		mremap(at, c->page, c->page, MREMAP_MAYMOVE | MREMAP_FIXED,
		       c->memory + draw(c, PAGES) * c->page);
		break;
	case 8:
		in_child(writes, &in);
		break;
	case 9:
		mprotect(at, bytes, PROT_READ);
		mprotect(at, bytes, prot);
		break;
	case 10:
		madvise(at, bytes, MADV_HUGEPAGE);
		break;
	case 11:
		madvise(at, bytes, MADV_COLD);
		break;
	default:
		/* holes that mremap() left are no memory */
		(void)!writev(c->file, &(struct iovec) { at, bytes }, 1);
		(void)!lseek(c->file, 0, SEEK_SET);
		(void)!read(c->file, at, bytes);
		(void)!lseek(c->file, 0, SEEK_SET);
		break;
	}
}

/*
 * Wherever the page that is mapped is not the one that was when the region was
 * registered, the region is stale. The other way round is a matter of cost. Until
 * both have been seen.
 */
TEST_F_TIMEOUT(cache, never_unnoticed, 120)
{
	struct chance c = { NULL, memfd_create("pages", MFD_CLOEXEC), self->page, 1 };
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	unsigned int round, i, steps, changed = 0, kept = 0;
	uint64_t before[PAGES], until = now_ms() + 4000;
	uint32_t mr, slot;

	ASSERT_LE(0, pagemap);
	ASSERT_EQ(0, ftruncate(c.file, PAGES * self->page));
	c.state += variant->shared;
	for (round = 0; (round < 400 && now_ms() < until) || changed < 10 || kept < 10; round++) {
		unsigned int first = draw(&c, PAGES), count = 1 + draw(&c, PAGES - first);
		bool moved = false, stale;

		if (!c.memory || !draw(&c, 8)) {
			c.memory = mmap(c.memory, PAGES * self->page, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS | (c.memory ? MAP_FIXED : 0),
					-1, 0);
			ASSERT_NE(MAP_FAILED, c.memory);
		}
		if (reg_cached(&self->card, c.memory + first * self->page, count * self->page,
			       draw(&c, 2) ? OPTINC_MR_WRITE : 0, &mr, &slot))
			continue;
		EXPECT_FALSE(is_stale(self->context, slot)) TH_LOG("round %u", round);
		for (i = first; i < first + count; i++)
			before[i] = frame(pagemap, c.memory + i * self->page);
		for (steps = draw(&c, 4); steps; steps--)
			meddle(&c);
		for (i = first; i < first + count; i++) {
			/* what is not mapped now comes back as the same, or as something new */
			if (!frame(pagemap, c.memory + i * self->page))
				(void)!write(c.file, c.memory + i * self->page, 1);
			moved |= frame(pagemap, c.memory + i * self->page) != before[i];
		}
		(void)!lseek(c.file, 0, SEEK_SET);
		stale = is_stale(self->context, slot);
		EXPECT_TRUE(stale || !moved) TH_LOG("round %u", round);
		changed += moved;
		kept += !stale;
		EXPECT_EQ(0, dereg(&self->card, mr));
	}
	close(pagemap);
	ASSERT_EQ(0, munmap(c.memory, PAGES * self->page));
}

/* ---------------------------------------------------------- what the card sees */

FIXTURE(traffic)
{
	struct end end[2];
	context_page context;
	size_t page;
};

FIXTURE_SETUP(traffic)
{
	self->page = page_bytes();
	must_pair(self->end, "cache");
	must_watch(&self->end[0].card);
	self->context = must_map_context(&self->end[0].card);
}

FIXTURE_TEARDOWN(traffic)
{
}

/* The byte at @offset of a region, as the card reads it: summed with a zero */
static int card_reads(struct end end[2], uint32_t mr, uint64_t offset)
{
	struct optinc_sqe sqe = sum_entry(&end[0], 1);

	sqe.src_mr = mr;
	sqe.src_off = offset;
	end[1].memory[0] = 0;
	post(&end[0].queue, &sqe);
	post_sum(&end[1], 1);
	must(!await_status(&end[0].queue) && !await_status(&end[1].queue));
	return *(int16_t *)(end[0].memory + END_BYTES / 2);
}

/* What is unmapped stays the card's, accounted for, until the region is ended. */
TEST_F(traffic, pages_stay_until_the_end)
{
	struct card *c = &self->end[0].card;
	unsigned long others = pinned();
	char *memory = must_have_pages(2, -1);
	uint32_t mr, slot;

	memset(memory, 17, 2 * self->page);
	ASSERT_EQ(0, reg_cached(c, memory, 2 * self->page, 0, &mr, &slot));
	ASSERT_EQ(0, munmap(memory, 2 * self->page));
	EXPECT_TRUE(is_stale(self->context, slot));
	EXPECT_EQ(others + 2, pinned());
	ASSERT_EQ(memory, mmap(memory, 2 * self->page, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	memset(memory, 55, 2 * self->page);
	EXPECT_EQ(17, card_reads(self->end, mr, self->page));
	EXPECT_EQ(0, dereg_patiently(c, mr));
	EXPECT_EQ(others, pinned());
	ASSERT_EQ(0, reg_cached(c, memory, 2 * self->page, 0, &mr, &slot));
	EXPECT_EQ(55, card_reads(self->end, mr, self->page));
	EXPECT_EQ(0, dereg_patiently(c, mr));
}

#define RACE_PAGES	4096U

struct race {
	pthread_barrier_t barrier;
	char *memory;
	size_t bytes;
	unsigned int round;
	uint64_t took_ns;	/* the last time */
	bool end;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* Replaces all of the memory while it is being registered. */
static void *replace(void *arg)
{
	struct race *race = arg;
	uint64_t start;

	for (;;) {
		pthread_barrier_wait(&race->barrier);
		if (race->end)
			return NULL;
		/* the region is there before, now and then */
		if (race->round % 8 == 0)
			usleep(5000);
		start = now_ns();
		must(mmap(race->memory, race->bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE, -1, 0) !=
		     MAP_FAILED);
		race->memory[race->bytes - 1] = (char)(race->round % 100);
		race->took_ns = now_ns() - start;
		pthread_barrier_wait(&race->barrier);
	}
}

/*
 * A change that is under way while the region is made: either the region has
 * the pages of afterwards, or it is known to be stale. From its beginning to
 * its end, and until both have been seen.
 */
TEST_F_TIMEOUT(traffic, registered_while_it_changes, 200)
{
	struct race race = { .bytes = RACE_PAGES * self->page };
	unsigned int round, fresh = 0, stale = 0;
	uint64_t until = now_ms() + 6000;
	struct card *c = &self->end[0].card;
	pthread_t thread;
	uint32_t mr, slot;
	int ret;

	race.memory = must_have_pages(RACE_PAGES, -1);
	ASSERT_EQ(0, pthread_barrier_init(&race.barrier, NULL, 2));
	ASSERT_EQ(0, pthread_create(&thread, NULL, replace, &race));
	for (round = 1; (round <= 300 && now_ms() < until) || !fresh || !stale; round++) {
		char *last = race.memory + race.bytes - self->page;
		uint64_t then;

		race.round = round;
		memset(race.memory, 1, race.bytes);
		*(last + self->page - 1) = 111;
		pthread_barrier_wait(&race.barrier);
		then = now_ns() + (round % 8 ? race.took_ns * (round * 37 % 100) / 100 : 0);
		while (now_ns() < then)
			;
		ret = reg_cached(c, last, self->page, 0, &mr, &slot);
		pthread_barrier_wait(&race.barrier);
		if (ret)
			continue;
		if (is_stale(self->context, slot)) {
			stale++;
		} else {
			fresh++;
			ASSERT_EQ(round % 100, card_reads(self->end, mr, self->page - 1))
				TH_LOG("round %u", round);
		}
		ASSERT_EQ(0, dereg_patiently(c, mr));
	}
	race.end = true;
	pthread_barrier_wait(&race.barrier);
	ASSERT_EQ(0, pthread_join(thread, NULL));
	TH_LOG("%u regions were stale, %u fresh", stale, fresh);
}

struct storm {
	struct card *card;
	char *memory;
	size_t bytes;
	unsigned int seed;
	bool *stop;
};

static void *registers(void *arg)
{
	struct storm *storm = arg;
	struct chance c = { storm->memory, -1, page_bytes(), storm->seed };
	uint32_t mr, slot;

	while (!__atomic_load_n(storm->stop, __ATOMIC_RELAXED)) {
		unsigned int first = draw(&c, PAGES), count = 1 + draw(&c, PAGES - first);

		if (!reg_cached(storm->card, c.memory + first * c.page, count * c.page,
				draw(&c, 2) ? OPTINC_MR_WRITE : 0, &mr, &slot) && draw(&c, 8))
			dereg(storm->card, mr);
	}
	return NULL;
}

static void *replaces(void *arg)
{
	struct storm *storm = arg;
	struct chance c = { storm->memory, -1, page_bytes(), storm->seed };

	while (!__atomic_load_n(storm->stop, __ATOMIC_RELAXED)) {
		unsigned int first = draw(&c, PAGES), count = 1 + draw(&c, PAGES - first);
		char *at = c.memory + first * c.page;

		if (draw(&c, 2))
			madvise(at, count * c.page, MADV_DONTNEED);
		else
			mmap(at, count * c.page, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	}
	return NULL;
}

/*
 * Regions come and go while their memory does, while the process forks, and
 * the card is reset under them, or the file closed. Nothing hangs, and in the
 * end nothing is pinned.
 */
TEST_F_TIMEOUT(traffic, storm, 120)
{
	struct optinc_reset reset = { .size = sizeof(reset) };
	struct inherited in = { must_have_pages(PAGES, -1), PAGES * self->page, -1 };
	int ctl = open_node("ctl", 2), round, i;
	uint64_t until = now_ms() + 4000;
	unsigned long others = pinned();

	ASSERT_LE(0, ctl);
	for (round = 0; now_ms() < until; round++) {
		bool stop = false;
		struct card card;
		struct storm storm = {
			&card, in.memory, in.bytes, (unsigned int)round + 1, &stop,
		};
		pthread_t threads[4];

		must_open(&card, 2);
		for (i = 0; i < 4; i++)
			ASSERT_EQ(0, pthread_create(&threads[i], NULL,
						    i < 2 ? registers : replaces, &storm));
		usleep(50000);
		EXPECT_EQ(0, in_child(writes, &in));
		if (round % 2)
			EXPECT_EQ(0, call(ctl, OPTINC_IOCTL_RESET, &reset));
		__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
		for (i = 0; i < 4; i++)
			ASSERT_EQ(0, pthread_join(threads[i], NULL));
		shut(&card);
		ASSERT_EQ(others, pinned()) TH_LOG("round %d", round);
	}
	close(ctl);
}

TEST_HARNESS_MAIN
