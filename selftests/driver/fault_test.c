// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every allocation and every copy to or from the user that fails, one after
 * the other: for each entry point the first is made to fail, then the second,
 * until the call gets through without any. What fails says so with an errno of
 * the contract, nothing stays behind, and the same call works afterwards.
 *
 * Needs a kernel with fault injection (CONFIG_FAULT_INJECTION): selftests/vm
 * has one. Run it alone: it counts the contexts of card 0, and unbinds card 1.
 */
#include <limits.h>

#include "card.h"

#include "kselftest_harness.h"

#define MOST_POINTS	5000		/* more than any call has */
#define DEBUGFS		"/sys/kernel/debug/"
#define PCI_DRIVER	"/sys/bus/pci/drivers/optinc/"
#define BYTES		(256 * 1024U)

/* What steps work with */
struct scene {
	struct card card, ctl;	/* of card 0 */
	struct queue queue;
	uint32_t mr, group;
	uint8_t *memory;
	void *mapping;
	int fd, eventfd;
	char slot[64];		/* where the card sits that is unbound and bound */
};

/* @after leaves things as they were before @before, whatever @call returned. */
struct step {
	const char *name;
	void (*before)(struct scene *s);
	int (*call)(struct scene *s);		/* 0 or -errno */
	void (*after)(struct scene *s, int ret);
};

/* Faults in whatever the kernel does for this thread, silently */
static bool faults_are_possible(void)
{
	static const char * const settings[][2] = {
		{ "failslab/ignore-gfp-wait", "N" }, { "failslab/verbose", "0" },
		{ "fail_page_alloc/ignore-gfp-wait", "N" }, { "fail_page_alloc/verbose", "0" },
		{ "fail_page_alloc/ignore-gfp-highmem", "N" },
		{ "fail_page_alloc/min-order", "0" }, { "fail_usercopy/verbose", "0" },
	};
	char path[128];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(settings); i++) {
		snprintf(path, sizeof(path), DEBUGFS "%s", settings[i][0]);
		if (write_text(path, settings[i][1]))
			return false;
	}
	return !access("/proc/thread-self/fail-nth", W_OK);
}

static int nth_fd = -1;

/* The copy of the number itself may be what fails; then it is used up. */
static void fail_nth(unsigned int n)
{
	char text[16];
	ssize_t written;

	snprintf(text, sizeof(text), "%u", n);
	do {
		written = pwrite(nth_fd, text, strlen(text), 0);
	} while (written < 0 && errno == EFAULT);
	must(written == (ssize_t)strlen(text));
}

/* Has one failed since fail_nth()? None does any more. */
static bool has_failed(void)
{
	char text[16] = "";
	ssize_t length = pread(nth_fd, text, sizeof(text) - 1, 0);

	if (length < 0 && errno == EFAULT)
		return false;
	must(length > 0);
	if (!atoi(text))
		return true;
	fail_nth(0);
	return false;
}

/* What card 0's contexts have, in the driver's own words */
static void contexts(char *text, size_t size)
{
	int fd = open(DEBUGFS "optinc/card0/contexts", O_RDONLY | O_CLOEXEC);
	ssize_t n, length = 0;

	must(fd >= 0);
	while ((n = read(fd, text + length, size - 1 - (size_t)length)) > 0)
		length += n;
	must(!n);
	text[length] = 0;
	close(fd);
}

static unsigned long pinned_kib(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	unsigned long kib = -1UL;
	char line[256];

	must(file);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "VmPin: %lu", &kib);
	fclose(file);
	return kib;
}

/*
 * A fault has an errno of its own, and what it does not hinder is a success like
 * any other: a kernel may well do without an allocation.
 */
static bool is_of_a_fault(int ret)
{
	return !ret || ret == -ENOMEM || ret == -EFAULT;
}

/* Fails a step's points one by one; true if there was no surprise. */
static bool sweep(struct __test_metadata *_metadata, struct scene *s, const struct step *step)
{
	char before[8192], after[8192];
	unsigned int n, hindered = 0;
	bool failed, fine = true;
	unsigned long pins;
	int ret;

	for (n = 1; n < MOST_POINTS; n++) {
		contexts(before, sizeof(before));
		pins = pinned_kib();
		if (step->before)
			step->before(s);
		fail_nth(n);
		ret = step->call(s);
		failed = has_failed();
		if (step->after)
			step->after(s, ret);
		contexts(after, sizeof(after));
		if (strcmp(before, after) || pins != pinned_kib()) {
			TH_LOG("%s: point %u (%d) leaves something: %lu, then %lu KiB; %s, then %s",
			       step->name, n, ret, pins, pinned_kib(), before, after);
			fine = false;
		}
		if (!failed)
			break;
		if (!is_of_a_fault(ret)) {
			TH_LOG("%s: point %u: %s", step->name, n, strerror(-ret));
			fine = false;
		}
		hindered += !!ret;
	}
	if (ret)
		TH_LOG("%s: without a fault: %s", step->name, strerror(-ret));
	TH_LOG("%s: %u points, %u of them end it", step->name, n - 1, hindered);
	return fine && !ret && n > 1 && n < MOST_POINTS;
}

static int do_open(struct scene *s)
{
	s->fd = open_node("card", 0);
	return s->fd < 0 ? s->fd : 0;
}

static int do_open_ctl(struct scene *s)
{
	s->fd = open_node("ctl", 0);
	return s->fd < 0 ? s->fd : 0;
}

static void undo_open(struct scene *s, int ret)
{
	if (!ret)
		must(!close(s->fd));
}

static int do_query(struct scene *s)
{
	return query(s->card.fd, &s->card.query);
}

static int do_stats(struct scene *s)
{
	struct optinc_stats stats = { .size = sizeof(stats) };

	return call(s->card.fd, OPTINC_IOCTL_STATS, &stats);
}

static int do_reset(struct scene *s)
{
	struct optinc_reset args = { .size = sizeof(args) };

	return call(s->ctl.fd, OPTINC_IOCTL_RESET, &args);
}

/* It can be asked for again, however it failed. */
static void redo_reset(struct scene *s, int ret)
{
	if (ret)
		must(!do_reset(s));
}

static int do_reg(struct scene *s)
{
	return reg(&s->card, s->memory, BYTES, OPTINC_MR_WRITE, &s->mr);
}

static int do_reg_small(struct scene *s)
{
	return reg(&s->card, s->memory + 5, 100, 0, &s->mr);
}

static int do_reg_cached(struct scene *s)
{
	uint32_t slot;

	return reg_cached(&s->card, s->memory, BYTES, OPTINC_MR_WRITE, &s->mr, &slot);
}

static void undo_reg(struct scene *s, int ret)
{
	if (!ret)
		must(!dereg(&s->card, s->mr));
}

static void prepare_reg(struct scene *s)
{
	s->mr = must_reg(&s->card, s->memory, BYTES);
}

static int do_dereg(struct scene *s)
{
	return dereg(&s->card, s->mr);
}

/* What did not happen can be done still. */
static void redo_dereg(struct scene *s, int ret)
{
	if (ret)
		must(!dereg(&s->card, s->mr));
}

static int do_create(struct scene *s)
{
	return create_queue(&s->card, &s->queue, 8, 16, s->eventfd);
}

static void undo_create(struct scene *s, int ret)
{
	if (!ret)
		must(!destroy_queue(&s->queue));
}

static void prepare_create(struct scene *s)
{
	must(!do_create(s));
}

static int do_destroy(struct scene *s)
{
	return destroy_queue(&s->queue);
}

static void redo_destroy(struct scene *s, int ret)
{
	if (ret)
		must(!destroy_queue(&s->queue));
}

static int do_map_sq(struct scene *s)
{
	s->mapping = map(s->card.fd, sq_bytes(&s->queue), s->queue.sq_offset);
	return s->mapping == MAP_FAILED ? -errno : 0;
}

static void undo_map_sq(struct scene *s, int ret)
{
	if (!ret)
		must(!munmap(s->mapping, sq_bytes(&s->queue)));
	must(!destroy_queue(&s->queue));
}

static int do_map_doorbells(struct scene *s)
{
	s->mapping = map(s->card.fd, s->card.query.page_size, s->card.query.doorbell_offset);
	return s->mapping == MAP_FAILED ? -errno : 0;
}

static void undo_map_doorbells(struct scene *s, int ret)
{
	if (!ret)
		must(!munmap(s->mapping, s->card.query.page_size));
}

static int do_map_context(struct scene *s)
{
	s->mapping = mmap(NULL, s->card.query.page_size, PROT_READ, MAP_SHARED, s->card.fd,
			  (off_t)s->card.query.context_offset);
	return s->mapping == MAP_FAILED ? -errno : 0;
}

static void undo_map_context(struct scene *s, int ret)
{
	if (!ret)
		must(!munmap(s->mapping, s->card.query.page_size));
	shut(&s->card);
}

static int do_join(struct scene *s)
{
	struct optinc_group_join join = join_of("fault", 0);
	int ret = call(s->card.fd, OPTINC_IOCTL_GROUP_JOIN, &join);

	s->group = join.group;
	return ret;
}

static void undo_join(struct scene *s, int ret)
{
	if (!ret)
		must(!leave_group(&s->card, s->group));
}

static void prepare_join(struct scene *s)
{
	s->group = must_join(&s->card, "fault", 0);
}

static int do_wait(struct scene *s)
{
	struct optinc_group_wait wait;

	return wait_group(&s->card, s->group, 1, &wait);
}

static int do_abort(struct scene *s)
{
	return abort_group(&s->card, s->group);
}

static int do_leave(struct scene *s)
{
	return leave_group(&s->card, s->group);
}

static void leave(struct scene *s, int ret)
{
	(void)ret;
	must(!leave_group(&s->card, s->group));
}

static void redo_leave(struct scene *s, int ret)
{
	if (ret)
		must(!leave_group(&s->card, s->group));
}

static int do_read_debugfs(struct scene *s)
{
	char text[4096];
	ssize_t n;
	int fd = open(DEBUGFS "optinc/card0/vectors", O_RDONLY | O_CLOEXEC);

	(void)s;
	if (fd < 0)
		return -errno;
	n = read(fd, text, sizeof(text));
	n = n < 0 ? -errno : 0;
	close(fd);
	return (int)n;
}

static void open_scene(struct scene *s)
{
	must_open(&s->card, 0);
}

static void close_scene(struct scene *s, int ret)
{
	(void)ret;
	shut(&s->card);
}

static void must_find_slot(struct scene *s, unsigned int number)
{
	char path[64], target[PATH_MAX];
	ssize_t n;

	snprintf(path, sizeof(path), "/sys/class/optinc/card%u/device", number);
	n = readlink(path, target, sizeof(target) - 1);
	must(n > 0);
	target[n] = 0;
	snprintf(s->slot, sizeof(s->slot), "%s", strrchr(target, '/') + 1);
}

static void unbind(struct scene *s)
{
	must(!write_text(PCI_DRIVER "unbind", s->slot));
}

/* Without memory, the PCI core finds that BARs are taken or interrupts are used up. */
static int do_bind(struct scene *s)
{
	int ret = write_text(PCI_DRIVER "bind", s->slot);

	return ret == -EBUSY || ret == -ENOSPC ? -ENOMEM : ret;
}

static void redo_bind(struct scene *s, int ret)
{
	if (ret)
		must(!write_text(PCI_DRIVER "bind", s->slot));
}

FIXTURE(faults)
{
	struct scene scene;
};

FIXTURE_SETUP(faults)
{
	struct scene *s = &self->scene;

	if (!faults_are_possible())
		SKIP(exit(SKIPPED), "the kernel cannot inject faults");
	nth_fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	must(nth_fd >= 0);
	s->ctl.fd = open_node("ctl", 0);
	must(s->ctl.fd >= 0);
	s->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	must(s->eventfd >= 0);
	s->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(s->memory != MAP_FAILED);
	memset(s->memory, 1, BYTES);
}

FIXTURE_TEARDOWN(faults)
{
	close(self->scene.ctl.fd);
}

#define TIMEOUT_S	900

static void sweep_all(struct __test_metadata *_metadata, struct scene *s,
		      const struct step *steps, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		EXPECT_TRUE(sweep(_metadata, s, &steps[i]));
}

TEST_F_TIMEOUT(faults, open, TIMEOUT_S)
{
	static const struct step steps[] = {
		{ "open", NULL, do_open, undo_open },
		{ "open of the control node", NULL, do_open_ctl, undo_open },
		{ "read of debugfs", NULL, do_read_debugfs, NULL },
		{ "RESET", NULL, do_reset, redo_reset },
	};

	sweep_all(_metadata, &self->scene, steps, ARRAY_SIZE(steps));
}

/* The first thing in a context also makes it known to the card. */
TEST_F_TIMEOUT(faults, fresh_context, TIMEOUT_S)
{
	static const struct step steps[] = {
		{ "the first MR_REG", open_scene, do_reg, close_scene },
		{ "the first MR_REG with CACHE", open_scene, do_reg_cached, close_scene },
		{ "the first mmap of the context page", open_scene, do_map_context,
		  undo_map_context },
		{ "the first QP_CREATE", open_scene, do_create, close_scene },
		{ "the first GROUP_JOIN", open_scene, do_join, close_scene },
	};

	sweep_all(_metadata, &self->scene, steps, ARRAY_SIZE(steps));
}

TEST_F_TIMEOUT(faults, context, TIMEOUT_S)
{
	static const struct step steps[] = {
		{ "QUERY", NULL, do_query, NULL },
		{ "STATS", NULL, do_stats, NULL },
		{ "MR_REG of 256 KiB", NULL, do_reg, undo_reg },
		{ "MR_REG of a part of a page", NULL, do_reg_small, undo_reg },
		{ "MR_REG with CACHE", NULL, do_reg_cached, undo_reg },
		{ "MR_DEREG", prepare_reg, do_dereg, redo_dereg },
		{ "QP_CREATE", NULL, do_create, undo_create },
		{ "QP_DESTROY", prepare_create, do_destroy, redo_destroy },
		{ "mmap of a ring", prepare_create, do_map_sq, undo_map_sq },
		{ "mmap of doorbells", NULL, do_map_doorbells, undo_map_doorbells },
		{ "GROUP_JOIN", NULL, do_join, undo_join },
		{ "GROUP_WAIT", prepare_join, do_wait, leave },
		{ "GROUP_ABORT", prepare_join, do_abort, leave },
		{ "GROUP_LEAVE", prepare_join, do_leave, redo_leave },
	};
	struct scene *s = &self->scene;
	uint32_t mr;

	must_open(&s->card, 0);
	/* the card knows the context, and the driver's arrays have room */
	mr = must_reg(&s->card, s->memory, 1);
	sweep_all(_metadata, s, steps, ARRAY_SIZE(steps));
	EXPECT_EQ(0, dereg(&s->card, mr));
}

TEST_F_TIMEOUT(faults, probe, TIMEOUT_S)
{
	static const struct step probe = { "probe", unbind, do_bind, redo_bind };
	struct scene *s = &self->scene;

	must_find_slot(s, 1);
	EXPECT_TRUE(sweep(_metadata, s, &probe));
}

TEST_HARNESS_MAIN
