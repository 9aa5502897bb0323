// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The in-process provider by Documentation/uapi.rst: URIs, every ioctl with
 * everything that can be wrong about it, mappings. Threads are in
 * test_provider_threads.c.
 */
#include <fcntl.h>
#include <sys/eventfd.h>

#include "selftests/emulator/provider_dev.h"

static int setup(void **state)
{
	struct dev *d = calloc(1, sizeof(*d));

	open_dev(d, uri_of(0, 2, ""));
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	struct dev *d = *state;

	close_dev(d);
	free(d);
	return 0;
}

static int ctl(struct dev *d, unsigned long cmd, void *arg)
{
	return P->ioctl(d->dev, cmd, arg);
}

/* A URI that does not open, and a word that its error has to have */
static const struct {
	const char *uri;
	const char *word;
} bad_uris[] = {
	{ "", "name" }, { "?port=0&ports=2", "name" }, { "a/b?port=0&ports=2", "name" },
	{ "a b?port=0&ports=2", "name" },
	{ "0123456789012345678901234567890123456789012345678901234567890123?port=0&ports=2",
	  "name" },
	{ "x", "port" }, { "x?ports=2", "port" }, { "x?port=0", "ports" },
	{ "x?port=0&ports", "ports" }, { "x?port=0&ports=", "ports" },
	{ "x?port=2&ports=2", "port=2" }, { "x?port=16&ports=16", "port=16" },
	{ "x?port=0&ports=1", "ports=1" }, { "x?port=0&ports=17", "ports=17" },
	{ "x?port=-1&ports=2", "port=-1" }, { "x?port=+1&ports=2", "port=+1" },
	{ "x?port= 1&ports=2", "port= 1" }, { "x?port=1x&ports=2", "port=1x" },
	{ "x?port=99999999999999999999999&ports=2", "port=9" },
	{ "x?port=0&ports=2&port=1", "\"port\"" }, { "x?port=0&ports=2&color=red", "color" },
	{ "x?port=0&ports=2&impair=bad", "impair=bad" },
	{ "x?port=0&ports=2&delay=5", "delay=5" }, { "x?port=0&ports=2&delay=5m", "delay=5m" },
	{ "x?port=0&ports=2&delay=-5us", "delay=-5us" },
	{ "x?port=0&ports=2&delay=2.1s", "delay=2.1s" },
	{ "x?port=0&ports=2&delay=inf", "delay=inf" },
	{ "x?port=0&ports=2&delay=nans", "delay=nans" },
	{ "x?port=0&ports=2&jitter=us", "jitter=us" },
	{ "x?port=0&ports=2&jitter=1us ", "jitter=1us" },
	{ "x?port=0&ports=2&loss=1", "loss=1" }, { "x?port=0&ports=2&loss=-0.1", "loss=-0.1" },
	{ "x?port=0&ports=2&loss=nan", "loss=nan" }, { "x?port=0&ports=2&loss=0.1x", "loss" },
	{ "x?port=0&ports=2&dead-lane=8", "dead-lane=8" },
	{ "x?port=0&ports=2&pace=2", "pace=2" }, { "x?port=0&ports=2&vectors=0", "vectors=0" },
	{ "x?port=0&ports=2&vectors=2048", "vectors=2048" },
	{ "x?port=0&ports=2&seed=0x10", "seed=0x10" },
	{ "x?port=0&ports=2&mute-after=-1", "mute-after=-1" },
	{ "x?port=0&ports=2&dead-lane=0&dead-lane=1&dead-lane=2&dead-lane=3&dead-lane=4&"
	  "dead-lane=5&dead-lane=6&dead-lane=7", "lane" },
};

static void test_bad_uris(void **state)
{
	struct optinc_open_error error;
	void *dev;
	size_t i;
	int rc;

	(void)state;
	for (i = 0; i < sizeof(bad_uris) / sizeof(bad_uris[0]); i++) {
		memset(&error, 0x5a, sizeof(error));
		rc = P->open(bad_uris[i].uri, &dev, &error);
		if (rc != -EINVAL || error.reason != OPTINC_REASON_BAD_URI ||
		    !strstr(error.text, bad_uris[i].word) || strchr(error.text, '\n'))
			fail_msg("%s: %d, reason %d, %s", bad_uris[i].uri, rc, error.reason,
				 error.text);
	}
}

static void test_good_uris(void **state)
{
	static const struct {
		const char *more;
		unsigned int lanes_up;
	} good[] = {
		{ "", 8 }, { "&impair=clean", 8 }, { "&impair=ethernet", 8 },
		{ "&delay=1.5ms&impair=wifi", 8 }, { "&delay=0&jitter=100ns", 8 },
		{ "&loss=0.25&seed=18446744073709551615", 8 }, { "&loss=1e-9", 8 },
		{ "&dead-lane=3", 7 }, { "&dead-lane=0&dead-lane=7&dead-lane=7", 6 },
		{ "&pace=1&mute-after=5&vectors=1", 8 },
	};
	struct dev d;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		open_dev(&d, uri_of(1, 2, good[i].more));
		assert_int_equal(d.query.port, 1);
		assert_int_equal(d.query.ports, 2);
		assert_int_equal(d.query.lanes_up, good[i].lanes_up);
		close_dev(&d);
	}
}

/* The port is held; another one is not; and after close it is free. */
static void test_busy_port(void **state)
{
	struct optinc_open_error error;
	struct dev *d = *state;
	struct dev other;
	void *dev;

	assert_int_equal(P->open(uri_of(0, 2, ""), &dev, &error), -EBUSY);
	assert_int_equal(error.reason, OPTINC_REASON_BUSY);
	assert_true(strlen(error.text) > 0);
	assert_int_equal(P->open(uri_of(1, 3, ""), &dev, &error), -EINVAL);
	assert_int_equal(error.reason, OPTINC_REASON_BAD_URI);
	open_dev(&other, uri_of(1, 2, ""));
	close_dev(&other);
	close_dev(d);
	open_dev(d, uri_of(0, 2, ""));
}

static const struct {
	unsigned long cmd;
	uint32_t size;
} calls[] = {
	{ OPTINC_IOCTL_QUERY, sizeof(struct optinc_query) },
	{ OPTINC_IOCTL_STATS, sizeof(struct optinc_stats) },
	{ OPTINC_IOCTL_MR_REG, sizeof(struct optinc_mr_reg) },
	{ OPTINC_IOCTL_MR_DEREG, sizeof(struct optinc_mr_dereg) },
	{ OPTINC_IOCTL_QP_CREATE, sizeof(struct optinc_qp_create) },
	{ OPTINC_IOCTL_QP_DESTROY, sizeof(struct optinc_qp_destroy) },
	{ OPTINC_IOCTL_GROUP_JOIN, sizeof(struct optinc_group_join) },
	{ OPTINC_IOCTL_GROUP_WAIT, sizeof(struct optinc_group_wait) },
	{ OPTINC_IOCTL_GROUP_LEAVE, sizeof(struct optinc_group_leave) },
	{ OPTINC_IOCTL_GROUP_ABORT, sizeof(struct optinc_group_abort) },
};

/* Section 2: sizes and tails, the same for all */
static void test_sizes(void **state)
{
	union {
		uint32_t size;
		char bytes[8192];
	} arg, before;
	struct dev *d = *state;
	size_t i;

	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		unsigned long cmd = calls[i].cmd;
		uint32_t size = calls[i].size, n;

		assert_int_equal(ctl(d, cmd, NULL), -EFAULT);
		memset(&arg, 0, sizeof(arg));
		for (n = 0; n < size; n++) {
			arg.size = n;
			assert_int_equal(ctl(d, cmd, &arg), -EINVAL);
		}
		arg.size = 4097;
		assert_int_equal(ctl(d, cmd, &arg), -E2BIG);
		arg.size = -1U;
		assert_int_equal(ctl(d, cmd, &arg), -E2BIG);
		/* a tail that is not zero, at its first and last byte */
		arg.size = 4096;
		arg.bytes[size] = 1;
		assert_int_equal(ctl(d, cmd, &arg), -E2BIG);
		arg.bytes[size] = 0;
		arg.bytes[4095] = 1;
		before = arg;
		assert_int_equal(ctl(d, cmd, &arg), -E2BIG);
		/* on failure nothing comes back */
		assert_memory_equal(&arg, &before, sizeof(arg));
	}
	/* a longer structure with a tail of zeros is understood, and its tail left alone */
	memset(&arg, 0, sizeof(arg));
	arg.size = 4096;
	assert_int_equal(ctl(d, OPTINC_IOCTL_QUERY, &arg), 0);
	assert_int_equal(arg.size, 4096);
	for (i = sizeof(struct optinc_query); i < 8192; i++)
		assert_int_equal(arg.bytes[i], 0);
	memset(&arg, 0, sizeof(arg));
	memset(arg.bytes + sizeof(struct optinc_query), 0x5a, 64);
	arg.size = sizeof(struct optinc_query);
	assert_int_equal(ctl(d, OPTINC_IOCTL_QUERY, &arg), 0);
	assert_int_equal(arg.bytes[sizeof(struct optinc_query)], 0x5a);
}

/* A handful of commands that are none; RESET is the control node's. */
static void test_unknown_commands(void **state)
{
	struct optinc_reset reset = { .size = sizeof(reset) };
	struct dev *d = *state;
	unsigned long n;

	assert_int_equal(ctl(d, OPTINC_IOCTL_RESET, &reset), -ENOTTY);
	for (n = 0x0b; n < 0x100; n++)
		assert_int_equal(ctl(d, _IO(OPTINC_IOCTL_TYPE, n), &reset), -ENOTTY);
	assert_int_equal(ctl(d, _IO(0xe7, 0), &reset), -ENOTTY);
	assert_int_equal(ctl(d, 0, &reset), -ENOTTY);
	assert_int_equal(ctl(d, OPTINC_IOCTL_QUERY | 1UL << 32, &reset), -ENOTTY);
	assert_int_equal(ctl(d, 0xffff, NULL), -ENOTTY);
}

static void test_query(void **state)
{
	struct dev *d = *state;
	struct optinc_query q;

	memset(&q, 0xff, sizeof(q));	/* what is (out) is not looked at */
	q.size = sizeof(q);
	q.__reserved = 0;
	assert_int_equal(ctl(d, OPTINC_IOCTL_QUERY, &q), 0);
	assert_int_equal(q.node, OPTINC_NODE_CARD);
	assert_int_equal(q.features, OPTINC_FEAT_ISOLATION | OPTINC_FEAT_USER_QUEUES |
			 OPTINC_FEAT_EMULATED);
	assert_int_equal(q.format_version, OPTINC_FORMAT_VERSION);
	assert_int_equal(q.lanes, 8);
	assert_int_equal(q.page_size, sysconf(_SC_PAGESIZE));
	assert_int_not_equal(q.doorbell_offset, 0);
	assert_int_equal(q.doorbell_offset % q.page_size, 0);
	assert_int_equal(q.interface_version, 0x10000);
	assert_true(strnlen(q.serial, sizeof(q.serial)) < sizeof(q.serial));
	assert_true(strnlen(q.model, sizeof(q.model)) < sizeof(q.model));
	assert_int_equal(q.__reserved, 0);
	q.__reserved = 1;
	assert_int_equal(ctl(d, OPTINC_IOCTL_QUERY, &q), -EOPNOTSUPP);
}

static void test_stats(void **state)
{
	struct dev *d = *state;
	struct optinc_stats s = { .size = sizeof(s) };
	struct dqp q;
	uint64_t ns;

	make_qp(d, &q, 4, 4, -1);
	post_nop(&q, 1);
	assert_int_equal(take_relax(&q), OPTINC_ST_SUCCESS);
	P->doorbell(d->dev, d->page, OPTINC_DB_SQ_TAIL, OPTINC_DB_VALUE(q.id, 0x4000));
	assert_int_equal(ctl(d, OPTINC_IOCTL_STATS, &s), 0);
	assert_int_equal(s.size, sizeof(s));
	assert_int_equal(s.__reserved, 0);
	assert_int_equal(s.requests, 1);
	assert_int_equal(s.errors, 0);
	assert_int_equal(s.doorbells, 2);
	assert_int_equal(s.doorbells_dropped, 1);
	ns = s.device_ns;
	assert_int_equal(ctl(d, OPTINC_IOCTL_STATS, &s), 0);
	assert_true(s.device_ns > ns);
	s.__reserved = 1;
	assert_int_equal(ctl(d, OPTINC_IOCTL_STATS, &s), -EOPNOTSUPP);
}

#define EXPECT(call, good, field, value, error) do {			\
	typeof(good) bad_ = good;					\
									\
	bad_.field = (value);						\
	assert_int_equal(ctl(d, call, &bad_), error);			\
} while (0)

static void test_mr_reg(void **state)
{
	struct dev *d = *state;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *memory = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	struct optinc_mr_reg good = {
		.size = sizeof(good), .addr = (uintptr_t)memory + 1, .length = 8 * page - 2,
		.fd = -1,
	};
	struct optinc_mr_dereg dereg = { .size = sizeof(dereg) };
	unsigned int i;

	assert_ptr_not_equal(memory, MAP_FAILED);
	for (i = 1; i < 32; i++) {
		EXPECT(OPTINC_IOCTL_MR_REG, good, flags, 1U << i, -EOPNOTSUPP);
		EXPECT(OPTINC_IOCTL_MR_REG, good, flags, 1U << i | 1, -EOPNOTSUPP);
	}
	for (i = 0; i < 32; i++)
		EXPECT(OPTINC_IOCTL_MR_REG, good, __reserved, 1U << i, -EOPNOTSUPP);
	EXPECT(OPTINC_IOCTL_MR_REG, good, length, 0, -EINVAL);
	EXPECT(OPTINC_IOCTL_MR_REG, good, length, d->query.max_mr_bytes + 1, -EINVAL);
	EXPECT(OPTINC_IOCTL_MR_REG, good, length, -1ULL, -EINVAL);
	EXPECT(OPTINC_IOCTL_MR_REG, good, length, -(uintptr_t)memory, -EINVAL);
	EXPECT(OPTINC_IOCTL_MR_REG, good, addr, -4096ULL, -EINVAL);
	EXPECT(OPTINC_IOCTL_MR_REG, good, fd, 0, -EINVAL);
	EXPECT(OPTINC_IOCTL_MR_REG, good, fd, -2, -EINVAL);
	EXPECT(OPTINC_IOCTL_MR_REG, good, addr, 0, -EFAULT);
	EXPECT(OPTINC_IOCTL_MR_REG, good, addr, 1ULL << 60, -EFAULT);

	assert_int_equal(ctl(d, OPTINC_IOCTL_MR_REG, &good), 0);
	assert_int_not_equal(good.mr, 0);
	dereg.mr = good.mr;
	good.flags = OPTINC_MR_WRITE;
	assert_int_equal(ctl(d, OPTINC_IOCTL_MR_REG, &good), 0);
	assert_int_equal(ctl(d, OPTINC_IOCTL_MR_DEREG, &dereg), 0);
	assert_int_equal(ctl(d, OPTINC_IOCTL_MR_DEREG, &dereg), -ENOENT);
	dereg.mr = 0;
	assert_int_equal(ctl(d, OPTINC_IOCTL_MR_DEREG, &dereg), -ENOENT);
	dereg.mr = good.mr ^ 0x400;
	assert_int_equal(ctl(d, OPTINC_IOCTL_MR_DEREG, &dereg), -ENOENT);

	/* a hole in the middle, at the end; and the last byte before one */
	assert_int_equal(munmap(memory + 4 * page, page), 0);
	assert_int_equal(ctl(d, OPTINC_IOCTL_MR_REG, &good), -EFAULT);
	good.length = 4 * page;
	assert_int_equal(ctl(d, OPTINC_IOCTL_MR_REG, &good), -EFAULT);
	good.length--;
	assert_int_equal(ctl(d, OPTINC_IOCTL_MR_REG, &good), 0);
	/* what may not be written, or not be read */
	assert_int_equal(mprotect(memory + 3 * page, page, PROT_READ), 0);
	assert_int_equal(ctl(d, OPTINC_IOCTL_MR_REG, &good), -EFAULT);
	good.flags = 0;
	assert_int_equal(ctl(d, OPTINC_IOCTL_MR_REG, &good), 0);
	assert_int_equal(mprotect(memory, page, PROT_NONE), 0);
	assert_int_equal(ctl(d, OPTINC_IOCTL_MR_REG, &good), -EFAULT);
	munmap(memory, 8 * page);

	/* no more than there are */
	good.addr = (uintptr_t)&good;
	good.length = 8;
	for (i = 0; i <= d->query.max_mrs; i++) {
		if (ctl(d, OPTINC_IOCTL_MR_REG, &good))
			break;
	}
	assert_in_range(i, d->query.max_mrs - 4, d->query.max_mrs);
	assert_int_equal(ctl(d, OPTINC_IOCTL_MR_REG, &good), -ENOSPC);
}

static unsigned int open_fds(void)
{
	unsigned int n = 0;
	int fd;

	for (fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_qp_create(void **state)
{
	struct dev *d = *state;
	struct optinc_qp_create good = {
		.size = sizeof(good), .sq_entries = 8, .cq_entries = 16, .eventfd = -1,
	};
	struct optinc_qp_destroy destroy = { .size = sizeof(destroy) };
	static const uint32_t bad_entries[] = { 0, 1, 3, 7, 8192, 0x10000, 0x10008, 0x80000000 };
	unsigned int i, fds;
	int pipe_fd[2], event = eventfd(0, EFD_NONBLOCK);
	uint32_t ids[64];

	assert_int_equal(pipe(pipe_fd), 0);
	fds = open_fds();
	EXPECT(OPTINC_IOCTL_QP_CREATE, good, flags, 1, -EOPNOTSUPP);
	EXPECT(OPTINC_IOCTL_QP_CREATE, good, flags, 1U << 31, -EOPNOTSUPP);
	for (i = 0; i < sizeof(bad_entries) / sizeof(bad_entries[0]); i++) {
		EXPECT(OPTINC_IOCTL_QP_CREATE, good, sq_entries, bad_entries[i], -EINVAL);
		EXPECT(OPTINC_IOCTL_QP_CREATE, good, cq_entries, bad_entries[i], -EINVAL);
	}
	EXPECT(OPTINC_IOCTL_QP_CREATE, good, cq_entries, 4, -EINVAL);
	EXPECT(OPTINC_IOCTL_QP_CREATE, good, eventfd, 200, -EBADF);
	EXPECT(OPTINC_IOCTL_QP_CREATE, good, eventfd, -2, -EBADF);
	EXPECT(OPTINC_IOCTL_QP_CREATE, good, eventfd, pipe_fd[1], -EINVAL);
	assert_int_equal(open_fds(), fds);

	good.eventfd = event;
	for (i = 0; i < d->query.max_qps; i++) {
		assert_int_equal(ctl(d, OPTINC_IOCTL_QP_CREATE, &good), 0);
		assert_in_range(good.qp, 1, 0xffff);
		assert_int_equal(good.sq_offset % d->query.page_size, 0);
		assert_int_not_equal(good.sq_offset, good.cq_offset);
		ids[i] = good.qp;
	}
	fds = open_fds();
	assert_int_equal(ctl(d, OPTINC_IOCTL_QP_CREATE, &good), -ENOSPC);
	assert_int_equal(open_fds(), fds);
	destroy.qp = ids[9];
	assert_int_equal(ctl(d, OPTINC_IOCTL_QP_DESTROY, &destroy), 0);
	assert_int_equal(open_fds(), fds - 1);
	assert_int_equal(ctl(d, OPTINC_IOCTL_QP_DESTROY, &destroy), -ENOENT);
	destroy.qp = 0;
	assert_int_equal(ctl(d, OPTINC_IOCTL_QP_DESTROY, &destroy), -ENOENT);
	destroy.qp = ids[10] | 0x10000;
	assert_int_equal(ctl(d, OPTINC_IOCTL_QP_DESTROY, &destroy), -ENOENT);
	assert_int_equal(ctl(d, OPTINC_IOCTL_QP_CREATE, &good), 0);
	assert_int_not_equal(good.qp, ids[9]);
	close(event);
	close(pipe_fd[0]);
	close(pipe_fd[1]);
}

static void *map(struct dev *d, size_t length, uint64_t offset)
{
	errno = 0;
	return P->mmap(d->dev, length, PROT_READ | PROT_WRITE, offset);
}

static void expect_no_map(struct dev *d, size_t length, uint64_t offset)
{
	assert_ptr_equal(map(d, length, offset), MAP_FAILED);
	assert_int_equal(errno, EINVAL);
}

/* Section 5 */
static void test_mmap(void **state)
{
	struct dev *d = *state;
	size_t page = d->query.page_size;
	struct optinc_qp_create create = {
		.size = sizeof(create), .sq_entries = 128, .cq_entries = 128, .eventfd = -1,
	};
	struct optinc_qp_destroy destroy = { .size = sizeof(destroy) };
	char *sq, *again, *cq;
	void *page_again;

	assert_int_equal(ctl(d, OPTINC_IOCTL_QP_CREATE, &create), 0);
	expect_no_map(d, page, 0);
	expect_no_map(d, page, d->query.doorbell_offset + page);
	expect_no_map(d, 2 * page, d->query.doorbell_offset);
	expect_no_map(d, 0, d->query.doorbell_offset);
	expect_no_map(d, -1UL, d->query.doorbell_offset);
	expect_no_map(d, page, create.sq_offset);
	expect_no_map(d, 3 * page, create.sq_offset);
	expect_no_map(d, 2 * page, create.sq_offset + page);
	expect_no_map(d, 2 * page, create.sq_offset + (1ULL << 24));
	expect_no_map(d, 2 * page, create.sq_offset | 1ULL << 63);
	expect_no_map(d, 2 * page, create.cq_offset);
	page_again = map(d, page, d->query.doorbell_offset);
	assert_ptr_not_equal(page_again, MAP_FAILED);
	assert_int_equal(P->munmap(d->dev, page_again, page), 0);

	sq = map(d, 128 * 64, create.sq_offset);
	again = map(d, 128 * 64, create.sq_offset);
	cq = map(d, 128 * 32, create.cq_offset);
	assert_ptr_not_equal(sq, MAP_FAILED);
	assert_ptr_not_equal(again, MAP_FAILED);
	assert_ptr_not_equal(cq, MAP_FAILED);
	cq[0] = 1;
	assert_int_equal(P->munmap(d->dev, sq + page, page), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(P->munmap(d->dev, sq, page), -1);
	assert_int_equal(P->munmap(d->dev, sq, 128 * 64), 0);
	/* mappings outlive the queue pair */
	destroy.qp = create.qp;
	assert_int_equal(ctl(d, OPTINC_IOCTL_QP_DESTROY, &destroy), 0);
	expect_no_map(d, 2 * page, create.sq_offset);
	again[0] = 2;
	assert_int_equal(cq[0], 1);
	assert_int_equal(P->munmap(d->dev, again, 128 * 64), 0);
	assert_int_equal(P->munmap(d->dev, again, 128 * 64), -1);
	/* cq is left for close() */
}

static void test_group_join(void **state)
{
	struct dev *d = *state;
	struct optinc_group_join good = join_of(1, 1, 2);
	struct optinc_group_join join;
	uint32_t groups[16];
	struct optinc_group_leave leave = { .size = sizeof(leave) };
	struct optinc_group_abort abort = { .size = sizeof(abort) };
	struct optinc_group_wait wait;
	unsigned int i;

	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, flags, 1, -EOPNOTSUPP);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, bits, 0, -EOPNOTSUPP);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, bits, 12, -EOPNOTSUPP);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, bits, 72, -EOPNOTSUPP);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, bits, 16, -EOPNOTSUPP);	/* I8 needs 8 */
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, format, 0, -EOPNOTSUPP);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, format, 2, -EOPNOTSUPP);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, dtypes, 1 << OPTINC_I16, -EOPNOTSUPP);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, dtypes, 1 << OPTINC_DTYPES, -EOPNOTSUPP);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, dtypes, 1ULL << 63, -EOPNOTSUPP);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, dtypes, 0, -EINVAL);
	join = good;
	memset(join.key, 0, sizeof(join.key));
	assert_int_equal(ctl(d, OPTINC_IOCTL_GROUP_JOIN, &join), -EINVAL);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, nranks, 0, -EINVAL);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, nranks, 1, -EINVAL);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, nranks, 3, -EINVAL);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, nranks, 17, -EINVAL);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, rank, 2, -EINVAL);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, deadline_ms, 0, -EINVAL);
	EXPECT(OPTINC_IOCTL_GROUP_JOIN, good, deadline_ms, 3600001, -EINVAL);

	for (i = 0; i < 16; i++)
		groups[i] = begin_join(d, (uint8_t)(i + 1), 1, 2);
	join = join_of(17, 1, 2);
	assert_int_equal(ctl(d, OPTINC_IOCTL_GROUP_JOIN, &join), -ENOSPC);
	leave.group = groups[3];
	assert_int_equal(ctl(d, OPTINC_IOCTL_GROUP_LEAVE, &leave), 0);
	assert_int_equal(ctl(d, OPTINC_IOCTL_GROUP_LEAVE, &leave), -ENOENT);
	assert_int_equal(group_wait(d, groups[3], 0, &wait), -ENOENT);
	join = join_of(1, 1, 2);
	assert_int_equal(ctl(d, OPTINC_IOCTL_GROUP_JOIN, &join), -EBUSY);

	abort.group = groups[5];
	assert_int_equal(group_wait(d, groups[5], 0, &wait), 0);
	assert_int_equal(wait.state, OPTINC_GROUP_JOINING);
	assert_int_equal(wait.joined, 1 << 1);
	assert_int_equal(wait.peer, OPTINC_NO_RANK);
	assert_int_equal(ctl(d, OPTINC_IOCTL_GROUP_ABORT, &abort), 0);
	assert_int_equal(group_wait(d, groups[5], 10000, &wait), 0);
	assert_int_equal(wait.state, OPTINC_GROUP_FAILED);
	assert_int_equal(wait.status, OPTINC_ST_ABORTED);
	assert_int_equal(wait.peer, 1);
	assert_int_equal(ctl(d, OPTINC_IOCTL_GROUP_ABORT, &abort), 0);
	abort.group = 0;
	assert_int_equal(ctl(d, OPTINC_IOCTL_GROUP_ABORT, &abort), -ENOENT);
	leave.group = 0;
	assert_int_equal(ctl(d, OPTINC_IOCTL_GROUP_LEAVE, &leave), -ENOENT);
	assert_int_equal(group_wait(d, 0, 0, &wait), -ENOENT);
	assert_int_equal(group_wait(d, 12345, 5000, &wait), -ENOENT);
	wait = (struct optinc_group_wait) { .size = sizeof(wait), .group = groups[0],
					    .__reserved = 1 };
	assert_int_equal(ctl(d, OPTINC_IOCTL_GROUP_WAIT, &wait), -EOPNOTSUPP);
}

/* The time of a wait is kept, also when nothing happens. */
static void test_group_timeout(void **state)
{
	struct dev *d = *state;
	uint32_t group = begin_join(d, 9, 0, 2);
	struct optinc_group_wait wait;
	uint64_t begin = now_ns(), took;

	assert_int_equal(group_wait(d, group, 100, &wait), 0);
	took = now_ns() - begin;
	assert_int_equal(wait.state, OPTINC_GROUP_JOINING);
	assert_true(took >= 100 * MSEC);
	assert_true(took < 5 * SECOND);
}

/* No such queue pair; no completion; time. */
static void test_wait(void **state)
{
	struct dev *d = *state;
	struct dqp q;
	uint64_t begin;

	make_qp(d, &q, 4, 4, -1);
	assert_int_equal(P->wait(d->dev, d->page, 0, 0, -1, SECOND), -ENOENT);
	assert_int_equal(P->wait(d->dev, d->page, q.id ^ 0x1000, 0, -1, SECOND), -ENOENT);
	begin = now_ns();
	assert_int_equal(P->wait(d->dev, d->page, q.id, 0, -1, 50 * MSEC), 0);
	assert_true(now_ns() - begin >= 50 * MSEC);
	assert_int_equal(P->wait(d->dev, d->page, q.id, 0, -1, 0), 0);
	post_nop(&q, 7);
	begin = now_ns();
	assert_int_equal(P->wait(d->dev, d->page, q.id, 0, -1, UINT64_MAX), 0);
	assert_true(is_done(&q));
	/* the tail differs already */
	assert_int_equal(P->wait(d->dev, d->page, q.id, 0, -1, 20 * SECOND), 0);
	assert_true(now_ns() - begin < 10 * SECOND);
	assert_int_equal(destroy_qp(&q), 0);
	assert_int_equal(P->wait(d->dev, d->page, q.id, 0, -1, SECOND), -ENOENT);
}

/* Everything left open, many times: nothing is lost (the sanitizer's to find) */
static void test_close_open(void **state)
{
	struct dev *d = *state;
	unsigned int i, fds;
	int event = eventfd(0, EFD_NONBLOCK);
	struct dqp q[3];
	char memory[100];

	fds = open_fds();
	for (i = 0; i < 10; i++) {
		make_qp(d, &q[0], 4, 8, event);
		make_qp(d, &q[1], 64, 64, -1);
		make_qp(d, &q[2], 2, 2, event);
		reg_mr(d, memory, sizeof(memory), OPTINC_MR_WRITE);
		begin_join(d, 3, 0, 2);
		post_nop(&q[0], 1);
		arm(&q[1]);
		assert_int_equal(destroy_qp(&q[2]), 0);
		close_dev(d);
		open_dev(d, uri_of(0, 2, ""));
	}
	assert_int_equal(open_fds(), fds);
	P->close(NULL);
	close(event);
}

/* The seam itself */
static void test_table(void **state)
{
	(void)state;
	assert_int_equal(P->abi, OPTINC_PROVIDER_ABI);
	assert_string_equal(P->scheme, "emu");
}

int main(void)
{
#define CASE(name)	cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table), cmocka_unit_test(test_bad_uris),
		cmocka_unit_test(test_good_uris), CASE(busy_port), CASE(sizes),
		CASE(unknown_commands), CASE(query), CASE(stats), CASE(mr_reg), CASE(qp_create),
		CASE(mmap), CASE(group_join), CASE(group_timeout), CASE(wait), CASE(close_open),
	};

	return cmocka_run_group_tests_name("provider: uapi", tests, NULL, NULL);
}
