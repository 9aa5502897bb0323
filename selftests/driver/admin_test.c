// SPDX-License-Identifier: GPL-2.0-only
/*
 * Cards that misbehave on the admin queue. What a call gives then, that its
 * objects are unwound, that the card is reset or left alone as state.c and
 * uapi.rst section 9 say, and that the log has a line for each fault, no more.
 *
 * Each test has a card with faults of its own, in a slot of its own: run_in_vm's
 * machine "faulty" has them, and a card in any other machine has none. Faults
 * are counted, so a test is good for one run.
 */
#include <dirent.h>
#include <pthread.h>

#include "card.h"

#include "kselftest_harness.h"

#define DRIVER		"/sys/bus/pci/drivers/optinc/"
#define DEVICES		"/sys/bus/pci/devices/"
#define BYTES		(256 * 1024U)
#define MOST_CARDS	16

/* Slots as run_in_vm has them */
enum {
	REFUSES, FORGETS, LIES, REPEATS, SILENT, MUTE, REFUSES_EVENT, FLOODS, HUGE, STRINGS, HANGS,
	GARBAGE, SHORT, MUTE_IDENTIFY, NO_EVENTS, UNKNOWN_ID, SLOTS
};

#define note(format, ...)	\
	fprintf(stderr, "# %s:%d: " format "\n", __FILE__, __LINE__, ##__VA_ARGS__)

static ssize_t read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, text, size - 1);
	text[n > 0 ? n : 0] = 0;
	close(fd);
	return n;
}

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* The cards' PCI addresses, in order */
static unsigned int find_slots(char slots[MOST_CARDS][16])
{
	char path[64], vendor[16], device[16];
	struct dirent *entry;
	unsigned int n = 0;
	DIR *dir = opendir(DEVICES);

	must(dir);
	while ((entry = readdir(dir))) {
		snprintf(path, sizeof(path), DEVICES "%.12s/vendor", entry->d_name);
		if (read_text(path, vendor, sizeof(vendor)) < 0 || strcmp(vendor, "0x1af4\n"))
			continue;
		snprintf(path, sizeof(path), DEVICES "%.12s/device", entry->d_name);
		must(read_text(path, device, sizeof(device)) > 0);
		if (strcmp(device, "0x10f0\n"))
			continue;
		must(n < MOST_CARDS);
		snprintf(slots[n++], 16, "%.12s", entry->d_name);
	}
	closedir(dir);
	qsort(slots, n, sizeof(slots[0]), compare);
	return n;
}

/* N of cardN, -1 if the slot has no driver */
static int card_number(const char *slot)
{
	struct dirent *entry;
	char path[64];
	int number = -1;
	DIR *dir;

	snprintf(path, sizeof(path), DEVICES "%s/optinc", slot);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		sscanf(entry->d_name, "card%d", &number);
	if (dir)
		closedir(dir);
	return number;
}

/* The driver's lines about @slot with @text in them; *@last is the last one. */
static unsigned int log_lines(const char *slot, const char *text, char *last, size_t size)
{
	char record[2048], of[32];
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	unsigned int n = 0;
	ssize_t length;

	must(fd >= 0);
	snprintf(of, sizeof(of), "optinc %s: ", slot);
	while ((length = read(fd, record, sizeof(record) - 1)) > 0 || errno == EPIPE) {
		char *line;

		if (length <= 0)
			continue;
		record[length] = 0;
		line = strstr(record, of);
		/* what the driver core says of a probe is not ours */
		if (!line || strstr(line, "probe with driver") || !strstr(line, text))
			continue;
		n++;
		if (last)
			snprintf(last, size, "%.*s", (int)strcspn(line, "\n"), line);
	}
	must(errno == EAGAIN);
	close(fd);
	return n;
}

FIXTURE(faulty)
{
	char slot[16];
	int number;
	struct card card, ctl;
	uint8_t *memory;
	unsigned long pins;
	unsigned int lines;		/* in the log, so far */
};

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

static void attribute(int number, const char *name, char *text, size_t size)
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/sys/class/optinc/card%d/%s", number, name);
	n = read_text(path, text, size);
	must(n > 0);
	text[n - 1] = 0;
}

static bool state_is(int number, const char *state)
{
	char text[32];

	attribute(number, "state", text, sizeof(text));
	return !strcmp(text, state);
}

static unsigned long resets(int number)
{
	char text[32];

	attribute(number, "resets", text, sizeof(text));
	return strtoul(text, NULL, 10);
}

/* A reset that is under way, or due, ends in @state as the @nth. */
static bool await_reset(int number, unsigned long nth, const char *state)
{
	uint64_t until = now_ms() + PATIENCE_MS;

	while (resets(number) != nth || !state_is(number, state)) {
		if (now_ms() > until) {
			note("card%d: %lu resets", number, resets(number));
			return false;
		}
		usleep(10000);
	}
	return true;
}

/* What all contexts of the card have, in the driver's own words */
static void contexts(int number, char *text, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/kernel/debug/optinc/card%d/contexts", number);
	must(read_text(path, text, size) >= 0);
}

static bool owns_nothing(int number)
{
	char text[8192];

	contexts(number, text, sizeof(text));
	if (!strstr(text, "  "))
		return true;
	note("card%d: %s", number, text);
	return false;
}

static bool no_contexts(int number)
{
	char text[8192];

	contexts(number, text, sizeof(text));
	if (!*text)
		return true;
	note("card%d: %s", number, text);
	return false;
}

static int stats(struct card *c)
{
	struct optinc_stats s = { .size = sizeof(s) };

	return call(c->fd, OPTINC_IOCTL_STATS, &s);
}

static int join(struct card *c, const char *key, uint32_t *group)
{
	struct optinc_group_join args = join_of(key, 0);
	int ret = call(c->fd, OPTINC_IOCTL_GROUP_JOIN, &args);

	*group = args.group;
	return ret;
}

static int reset(struct card *ctl)
{
	struct optinc_reset args = { .size = sizeof(args) };

	return call(ctl->fd, OPTINC_IOCTL_RESET, &args);
}

/* All that a card can be asked for, from a new context to its end */
static void must_work(int number)
{
	uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	struct queue queue;
	struct card card;
	uint32_t group, mr;

	must(memory != MAP_FAILED);
	must_open(&card, (unsigned int)number);
	mr = must_reg(&card, memory, BYTES);
	must_create_queue(&card, &queue, 8, 8, -1);
	must_be_taken(&queue);
	must(!join(&card, "works", &group));
	must(!leave_group(&card, group));
	must(!stats(&card));
	unmap_queue(&queue);
	must(!destroy_queue(&queue));
	must(!dereg(&card, mr));
	shut(&card);
	must(!munmap(memory, BYTES));
}

/* Without a doorbell page, which would need a context of the card */
static void must_open_plain(struct card *c, int number)
{
	memset(c, 0, sizeof(*c));
	c->fd = open_node("card", (unsigned int)number);
	must(c->fd >= 0);
}

/* One more line in the log, with @text; the fault's */
static bool one_line(FIXTURE_DATA(faulty) *self, const char *text)
{
	char last[512] = "";
	unsigned int n = log_lines(self->slot, "", last, sizeof(last));
	bool fine = n == self->lines + 1 && strstr(last, text);

	if (!fine)
		note("%u lines, %u before; the last: %s", n, self->lines, last);
	self->lines = n;
	return fine;
}

static bool no_line(FIXTURE_DATA(faulty) *self)
{
	char last[512] = "";
	unsigned int n = log_lines(self->slot, "", last, sizeof(last));

	if (n != self->lines)
		note("%u lines, %u before; the last: %s", n, self->lines, last);
	return n == self->lines;
}

FIXTURE_SETUP(faulty)
{
	char slots[MOST_CARDS][16];

	if (find_slots(slots) != SLOTS)
		SKIP(exit(SKIPPED), "the cards of this machine have no faults");
	memset(self, 0, sizeof(*self));
	self->ctl.fd = -1;
	self->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	must(self->memory != MAP_FAILED);
	self->pins = pinned_kib();
}

FIXTURE_TEARDOWN(faulty)
{
	if (self->ctl.fd >= 0)
		close(self->ctl.fd);
}

/* The test is about the card in this slot. */
static void take(FIXTURE_DATA(faulty) *self, unsigned int slot)
{
	char slots[MOST_CARDS][16];

	must(find_slots(slots) == SLOTS);
	memcpy(self->slot, slots[slot], sizeof(self->slot));
	self->number = card_number(self->slot);
	if (self->ctl.fd >= 0)
		close(self->ctl.fd);
	self->ctl.fd = -1;
	if (self->number >= 0) {
		self->ctl.fd = open_node("ctl", (unsigned int)self->number);
		must(self->ctl.fd >= 0);
	}
	self->lines = log_lines(self->slot, "", NULL, 0);
}

/* After a fault of the card's: reset for the @nth time, well, and rid of the context */
static bool was_reset(FIXTURE_DATA(faulty) *self, struct card *card, unsigned long nth,
		      const char *why)
{
	bool fine = await_reset(self->number, nth, "online");

	fine &= one_line(self, why);
	if (card) {
		fine &= query(card->fd, &card->query) == -ENODEV;
		fine &= owns_nothing(self->number);
		close(card->fd);
	}
	if (pinned_kib() != self->pins) {
		note("%lu KiB are pinned, %lu before", pinned_kib(), self->pins);
		fine = false;
	}
	return fine && no_contexts(self->number);
}

/* Statuses come as uapi.rst section 3 says, and what failed leaves nothing. */
TEST_F(faulty, refused)
{
	static const int errors[] = { EOPNOTSUPP, EINVAL, ENOENT, ENOSPC, EBUSY, EIO, EOPNOTSUPP,
				      ENOMEM, EIO, EIO };
	char before[4096], after[4096];
	struct optinc_group_wait wait;
	struct queue queue;
	struct card card;
	uint32_t mr, group;
	unsigned int i;

	take(self, REFUSES);
	must_open_plain(&card, self->number);
	/* the context itself; then it can be had */
	EXPECT_EQ(reg(&card, self->memory, BYTES, 0, &mr), -ENOSPC);
	EXPECT_EQ(self->pins, pinned_kib());
	EXPECT_TRUE(owns_nothing(self->number));
	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		EXPECT_EQ(reg(&card, self->memory, BYTES, OPTINC_MR_WRITE, &mr), -errors[i]);
		EXPECT_EQ(self->pins, pinned_kib());
		EXPECT_TRUE(owns_nothing(self->number));
	}
	contexts(self->number, before, sizeof(before));
	EXPECT_EQ(create_queue(&card, &queue, 8, 8, -1), -ENOSPC);
	EXPECT_EQ(create_queue(&card, &queue, 8, 8, -1), -ENOMEM);
	EXPECT_EQ(create_queue(&card, &queue, 8, 8, -1), -EIO);
	EXPECT_EQ(join(&card, "refused", &group), -EBUSY);
	EXPECT_EQ(join(&card, "refused", &group), -ENOSPC);
	EXPECT_EQ(stats(&card), -EIO);
	contexts(self->number, after, sizeof(after));
	EXPECT_STREQ(before, after);

	/* refused as well, and they are there still */
	mr = must_reg(&card, self->memory, BYTES);
	EXPECT_EQ(dereg(&card, mr), -EBUSY);
	EXPECT_NE(self->pins, pinned_kib());
	EXPECT_EQ(dereg(&card, mr), 0);
	EXPECT_EQ(join(&card, "refused", &group), 0);
	EXPECT_EQ(wait_group(&card, group, 0, &wait), -EIO);
	EXPECT_EQ(wait_group(&card, group, 0, &wait), -EIO);
	EXPECT_EQ(leave_group(&card, group), 0);
	EXPECT_EQ(self->pins, pinned_kib());
	close(card.fd);
	must_work(self->number);
	EXPECT_EQ(resets(self->number), 0);
	EXPECT_TRUE(no_contexts(self->number));
	EXPECT_TRUE(no_line(self));
}

/* A card that does not know what it made, or says that a context were busy */
TEST_F(faulty, forgotten)
{
	struct queue queue;
	struct card card;
	uint32_t mr, group;
	unsigned int i;

	take(self, FORGETS);
	for (i = 1; i <= 4; i++) {
		must_open_plain(&card, self->number);
		mr = must_reg(&card, self->memory, BYTES);
		must(!create_queue(&card, &queue, 8, 8, -1));
		must(!join(&card, "forgotten", &group));
		if (i == 1)
			EXPECT_EQ(dereg(&card, mr), -EIO);
		if (i == 2)
			EXPECT_EQ(destroy_queue(&queue), -EIO);
		if (i == 3)
			EXPECT_EQ(leave_group(&card, group), -EIO);
		if (i == 4)
			close(card.fd);		/* CTX_DESTROY */
		EXPECT_TRUE(was_reset(self, i < 4 ? &card : NULL, i, "does not end what it made"));
	}
	must_work(self->number);
}

/* Completions that cannot be, of a command that is harmless */
TEST_F(faulty, lies)
{
	static const struct {
		int ret[2];		/* either of them */
		const char *line;	/* NULL: not worth one, and no reset */
	} lies[] = {
		{ { 0 }, NULL },			/* wrong-head */
		{ { -EIO, -EIO }, NULL },		/* short */
		{ { -ENODEV, -ENODEV }, "a completion names no command" },
		{ { -ENODEV, 0 }, "a command that is not outstanding" },
		{ { -ETIMEDOUT, -ENODEV }, "the card has stopped" },
		{ { -ETIMEDOUT, -ETIMEDOUT }, "an admin command is not answered" },
	};
	unsigned int i, n = 0;
	struct card card;
	int ret;

	take(self, LIES);
	for (i = 0; i < ARRAY_SIZE(lies); i++) {
		must_open_plain(&card, self->number);
		must_reg(&card, self->memory, BYTES);
		ret = stats(&card);
		if (ret != lies[i].ret[0] && ret != lies[i].ret[1])
			note("lie %u: %d", i, ret);
		EXPECT_TRUE(ret == lies[i].ret[0] || ret == lies[i].ret[1]);
		if (lies[i].line) {
			EXPECT_TRUE(was_reset(self, &card, ++n, lies[i].line));
			continue;
		}
		EXPECT_TRUE(no_line(self));
		shut(&card);
	}
	EXPECT_EQ(resets(self->number), n);
	must_work(self->number);
}

/* Objects of one handle, and of none */
TEST_F(faulty, handles)
{
	struct queue queues[2];
	struct card card;
	uint32_t mr, group;

	take(self, REPEATS);
	must_open_plain(&card, self->number);
	must_reg(&card, self->memory, BYTES);
	EXPECT_EQ(reg(&card, self->memory, BYTES, 0, &mr), -EIO);
	EXPECT_TRUE(was_reset(self, &card, 1, "two regions of one handle"));

	must_open_plain(&card, self->number);
	EXPECT_EQ(reg(&card, self->memory, BYTES, 0, &mr), -ENODEV);
	EXPECT_TRUE(was_reset(self, &card, 2, "a handle that cannot be"));

	must_open_plain(&card, self->number);
	must(!create_queue(&card, &queues[0], 8, 8, -1));
	EXPECT_EQ(create_queue(&card, &queues[1], 8, 8, -1), -EIO);
	EXPECT_TRUE(was_reset(self, &card, 3, "two queue pairs of one id"));

	must_open_plain(&card, self->number);
	must(!join(&card, "one", &group));
	EXPECT_EQ(join(&card, "two", &group), -EIO);
	EXPECT_TRUE(was_reset(self, &card, 4, "two groups of one handle"));
	must_work(self->number);
}

/* What was created, or not: the card does not say. */
TEST_F(faulty, silent)
{
	static const char line[] = "an admin command is not answered";
	struct queue queue;
	struct card card;
	uint32_t mr, group;

	take(self, SILENT);
	must_open_plain(&card, self->number);
	EXPECT_EQ(reg(&card, self->memory, BYTES, 0, &mr), -ETIMEDOUT);	/* CTX_CREATE */
	EXPECT_TRUE(was_reset(self, &card, 1, line));

	must_open_plain(&card, self->number);
	EXPECT_EQ(reg(&card, self->memory, BYTES, 0, &mr), -ETIMEDOUT);
	EXPECT_TRUE(was_reset(self, &card, 2, line));

	must_open_plain(&card, self->number);
	must_reg(&card, self->memory, BYTES);
	EXPECT_EQ(create_queue(&card, &queue, 8, 8, -1), -ETIMEDOUT);
	EXPECT_TRUE(was_reset(self, &card, 3, line));

	must_open_plain(&card, self->number);
	EXPECT_EQ(join(&card, "silent", &group), -ETIMEDOUT);
	EXPECT_TRUE(was_reset(self, &card, 4, line));

	/* the file is gone, and what it had stays until the card is known to be stopped */
	must_open_plain(&card, self->number);
	must_reg(&card, self->memory, BYTES);
	must(!create_queue(&card, &queue, 8, 8, -1));
	close(card.fd);
	EXPECT_TRUE(was_reset(self, NULL, 5, line));
	must_work(self->number);
}

/* Five resets of the driver's own in a minute are enough. */
TEST_F(faulty, left_alone)
{
	struct optinc_query q;
	struct card card;
	unsigned int i;

	take(self, MUTE);
	for (i = 1; i <= 5; i++) {
		must_open_plain(&card, self->number);
		must_reg(&card, self->memory, BYTES);
		EXPECT_EQ(stats(&card), -ETIMEDOUT);
		ASSERT_TRUE(was_reset(self, &card, i, "is not answered, STATUS"));
	}
	must_open_plain(&card, self->number);
	must_reg(&card, self->memory, BYTES);
	EXPECT_EQ(stats(&card), -ETIMEDOUT);
	EXPECT_TRUE(await_reset(self->number, 5, "dead"));
	EXPECT_TRUE(one_line(self, "left alone"));
	EXPECT_EQ(query(card.fd, &q), -ENODEV);
	EXPECT_EQ(self->pins, pinned_kib());
	close(card.fd);
	EXPECT_TRUE(no_contexts(self->number));

	/* whoever asks for it has it back, but it gets no more of the driver's resets */
	EXPECT_EQ(reset(&self->ctl), 0);
	EXPECT_TRUE(state_is(self->number, "online"));
	EXPECT_TRUE(no_line(self));
	must_open_plain(&card, self->number);
	EXPECT_EQ(stats(&card), -ETIMEDOUT);
	EXPECT_TRUE(await_reset(self->number, 6, "dead"));
	EXPECT_TRUE(one_line(self, "left alone"));
	close(card.fd);

	EXPECT_EQ(write_text(DRIVER "unbind", self->slot), 0);
	EXPECT_EQ(write_text(DRIVER "bind", self->slot), 0);
	EXPECT_GE(card_number(self->slot), 0);
	EXPECT_TRUE(no_line(self));
}

/*
 * Eight events before the card is in use, all there is room for; told to go on,
 * the card refuses the next one. It is noticed, so none of the eight was lost.
 */
TEST_F(faulty, event_refused)
{
	take(self, REFUSES_EVENT);
	EXPECT_TRUE(await_reset(self->number, 1, "online"));
	self->lines = 0;
	EXPECT_TRUE(one_line(self, "refuses to report events, STATUS"));
	must_work(self->number);
}

/* An event each time the driver asks for one hinders nobody. */
TEST_F(faulty, flood)
{
	uint64_t begun = now_ms();
	struct card card;
	unsigned int i;

	take(self, FLOODS);
	must_open_plain(&card, self->number);
	for (i = 0; i < 50; i++)
		EXPECT_EQ(stats(&card), 0);
	close(card.fd);
	for (i = 0; i < 3; i++) {
		must_work(self->number);
		EXPECT_EQ(reset(&self->ctl), 0);
	}
	EXPECT_EQ(write_text(DRIVER "unbind", self->slot), 0);
	EXPECT_EQ(write_text(DRIVER "bind", self->slot), 0);
	EXPECT_TRUE(no_line(self));
	EXPECT_LT(now_ms() - begun, PATIENCE_MS / 2);
	/* and goes on while others are tested, and when the module is unloaded */
}

/* Limits that no driver could honour are cut to what one can. */
TEST_F(faulty, huge)
{
	struct optinc_query q;
	struct card card;
	uint32_t mr;

	take(self, HUGE);
	must_open_plain(&card, self->number);
	ASSERT_EQ(query(card.fd, &q), 0);
	EXPECT_LE(q.max_count, 1ULL << 40);
	EXPECT_LE(q.max_mr_bytes, 1ULL << 48);
	EXPECT_LE(q.max_queue, OPTINC_MAX_QUEUE);
	EXPECT_EQ(q.lanes_up, q.lanes);
	EXPECT_EQ(q.features >> 32, 0);
	EXPECT_EQ(q.dtypes >> OPTINC_DTYPES, 0);
	EXPECT_EQ(reg(&card, self->memory, UINT64_MAX / 2, 0, &mr), -EINVAL);
	close(card.fd);
	must_work(self->number);
	EXPECT_TRUE(no_line(self));
}

static bool is_clean(const char *text, size_t size)
{
	size_t i, length = strnlen(text, size);

	for (i = 0; i < length; i++) {
		if (text[i] < 0x20 || text[i] > 0x7e)
			return false;
	}
	return length && length < size;
}

/* Names without an end; then, after a reset, an identity that is none at all */
TEST_F(faulty, identity)
{
	struct optinc_query q;
	struct card card;
	char text[256];

	take(self, STRINGS);
	must_open_plain(&card, self->number);
	ASSERT_EQ(query(card.fd, &q), 0);
	EXPECT_TRUE(is_clean(q.serial, sizeof(q.serial)));
	EXPECT_TRUE(is_clean(q.model, sizeof(q.model)));
	attribute(self->number, "serial", text, sizeof(text));
	EXPECT_STREQ(q.serial, text);
	attribute(self->number, "model", text, sizeof(text));
	EXPECT_STREQ(q.model, text);
	must_reg(&card, self->memory, BYTES);
	EXPECT_TRUE(no_line(self));

	EXPECT_EQ(reset(&self->ctl), -EIO);
	EXPECT_TRUE(state_is(self->number, "dead"));
	EXPECT_TRUE(one_line(self, "left alone"));
	EXPECT_EQ(self->pins, pinned_kib());
	EXPECT_EQ(query(self->ctl.fd, &q), -ENODEV);
	close(card.fd);
	EXPECT_EQ(reset(&self->ctl), 0);
	must_work(self->number);
	EXPECT_TRUE(no_line(self));
}

/* Probe fails, says why in one line, and leaves nothing, each time. */
TEST_F(faulty, not_probed)
{
	static const struct {
		unsigned int slot;
		const char *line;
	} bad[] = {
		{ GARBAGE, "interface_version out of range" },
		{ SHORT, "does not identify itself" },
		{ MUTE_IDENTIFY, "an admin command is not answered" },
		{ NO_EVENTS, "refuses to report events" },
		{ UNKNOWN_ID, "a completion names no command" },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		take(self, bad[i].slot);
		EXPECT_EQ(self->number, -1);
		self->lines = 0;
		EXPECT_TRUE(one_line(self, bad[i].line));
		write_text(DRIVER "bind", self->slot);
		EXPECT_EQ(card_number(self->slot), -1);
		EXPECT_TRUE(one_line(self, bad[i].line));
	}
}

struct waiter {
	struct card card;
	pthread_t thread;
	int ret;
};

static void *wait_for_stats(void *arg)
{
	struct waiter *w = arg;

	w->ret = stats(&w->card);
	return NULL;
}

/* A thread waits for an answer that does not come. */
static void must_hang(FIXTURE_DATA(faulty) *self, struct waiter *w)
{
	uint64_t until = now_ms() + PATIENCE_MS;
	char path[64], text[4096];

	snprintf(path, sizeof(path), "/sys/kernel/debug/optinc/card%d/admin", self->number);
	must_open_plain(&w->card, self->number);
	must_reg(&w->card, self->memory, BYTES);
	must(!pthread_create(&w->thread, NULL, wait_for_stats, w));
	do {
		must(read_text(path, text, sizeof(text)) > 0);
		must(now_ms() < until);
	} while (!strstr(text, "waits"));
}

/* What the thread got; it was not kept waiting by the card's time limit of 5 s. */
static int must_end(struct waiter *w, uint64_t begun)
{
	pthread_join(w->thread, NULL);
	must(now_ms() - begun < 3000);
	close(w->card.fd);
	return w->ret;
}

/* Unbinding and resets do not wait for a card that is silent. */
TEST_F(faulty, hangs)
{
	char path[64];
	struct waiter w;
	uint64_t begun;

	take(self, HANGS);
	must_hang(self, &w);
	begun = now_ms();
	EXPECT_EQ(write_text(DRIVER "unbind", self->slot), 0);
	EXPECT_EQ(must_end(&w, begun), -ENODEV);
	EXPECT_EQ(self->pins, pinned_kib());
	EXPECT_EQ(write_text(DRIVER "bind", self->slot), 0);
	take(self, HANGS);

	must_hang(self, &w);
	begun = now_ms();
	snprintf(path, sizeof(path), DEVICES "%s/reset", self->slot);
	EXPECT_EQ(write_text(path, "1"), 0);
	EXPECT_EQ(must_end(&w, begun), -ENODEV);

	must_hang(self, &w);
	begun = now_ms();
	EXPECT_EQ(reset(&self->ctl), 0);
	EXPECT_EQ(must_end(&w, begun), -ENODEV);
	EXPECT_EQ(resets(self->number), 2);
	EXPECT_TRUE(state_is(self->number, "online"));
	EXPECT_EQ(self->pins, pinned_kib());
	EXPECT_TRUE(no_contexts(self->number));
	EXPECT_TRUE(no_line(self));
}

TEST_HARNESS_MAIN
