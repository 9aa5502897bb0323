// SPDX-License-Identifier: GPL-2.0-only
/*
 * OPTINC_MR_CACHE, by chance: whatever processes do to their memory, no page is
 * replaced unnoticed, and the card reads what was there or what is told to have
 * changed.
 */
#include "cache.h"

#include <pthread.h>
#include <sys/uio.h>

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
	struct inherited in = { at, bytes };
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

FIXTURE(chance)
{
	struct card card;
	context_page context;
	size_t page;
};

FIXTURE_VARIANT(chance)
{
	unsigned int seed;
};

FIXTURE_VARIANT_ADD(chance, one)
{
	.seed = 1,
};

FIXTURE_VARIANT_ADD(chance, another)
{
	.seed = 2,
};

FIXTURE_SETUP(chance)
{
	self->page = page_bytes();
	must_open_watching(&self->card);
	self->context = must_map_context(&self->card);
}

FIXTURE_TEARDOWN(chance)
{
	EXPECT_EQ(0, pinned());
}

/*
 * Wherever the page that is mapped is not the one that was when the region was
 * registered, the region is stale. The other way round is a matter of cost. Until
 * both have been seen.
 */
TEST_F_TIMEOUT(chance, never_unnoticed, 120)
{
	struct chance c = { NULL, memfd_create("pages", MFD_CLOEXEC), self->page,
			    variant->seed };
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	unsigned int round, i, steps, changed = 0, kept = 0;
	uint64_t before[PAGES], until = now_ms() + 4000;
	uint32_t mr, slot;

	ASSERT_LE(0, pagemap);
	ASSERT_EQ(0, ftruncate(c.file, PAGES * self->page));
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
	struct inherited in = { must_have_pages(PAGES, -1), PAGES * self->page };
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
