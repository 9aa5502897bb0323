/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A card as its device node shows it, for tests: contexts, queue pairs,
 * regions and groups through uapi/linux/optinc.h and nothing else.
 *
 * Calls return 0 or a negative errno, so that a test can name the one that it
 * expects. What a test needs and does not ask about has a name with must_: it
 * says what failed and aborts, which the harness reports.
 *
 * Cards have numbers from 0 in tests. OPTINC_TEST_NODES says, with commas, which
 * N of /dev/optinc/cardN these are; without it, they are the same.
 */
#ifndef OPTINC_SELFTESTS_CARD_H
#define OPTINC_SELFTESTS_CARD_H

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/optinc.h>

#define PATIENCE_MS	20000		/* for what has to happen */
#define QUIET_MS	50		/* for what must not */
#define NOBODY		65534
#define SKIPPED		255		/* how a fixture ends a test: it would run otherwise */

#define must(x)		((x) ? (void)0 : die(__FILE__, __LINE__, #x))

static inline void die(const char *file, int line, const char *what)
{
	fprintf(stderr, "# %s:%d: %s failed, errno %d: %s\n", file, line, what, errno,
		strerror(errno));
	abort();
}

struct card {
	int fd;
	volatile uint32_t *page;	/* of doorbells; NULL before map_doorbells() */
	struct optinc_query query;
};

struct queue {
	struct card *card;
	uint32_t id;
	uint32_t sq_entries, cq_entries;
	uint64_t sq_offset, cq_offset;
	struct optinc_sqe *sq;
	volatile struct optinc_cqe *cq;
	uint16_t tail;
	uint32_t head;			/* without modulo */
};

static inline uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static inline size_t page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static inline size_t whole_pages(size_t bytes)
{
	return (bytes + page_bytes() - 1) & ~(page_bytes() - 1);
}

static inline int call(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) ? -errno : 0;
}

/* N of a test's card; a test that wants more cards than there are is skipped. */
static inline unsigned int node_number(unsigned int number)
{
	const char *text = getenv("OPTINC_TEST_NODES");
	unsigned int i;

	if (!text)
		return number;
	for (i = 0; text && i < number; i++) {
		text = strchr(text, ',');
		text = text ? text + 1 : NULL;
	}
	if (!text) {
		fprintf(stderr, "# needs %u cards\n", number + 1);
		_exit(SKIPPED);
	}
	return (unsigned int)strtoul(text, NULL, 10);
}

/* Returns the descriptor of /dev/optinc/{card,ctl}N. */
static inline int open_node(const char *kind, unsigned int number)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/dev/optinc/%s%u", kind, node_number(number));
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* For files of sysfs and debugfs: 0, or the negative errno of what it means there */
static inline int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = write(fd, text, strlen(text));
	n = n < 0 ? -errno : 0;
	close(fd);
	return (int)n;
}

static inline void *map(int fd, size_t length, uint64_t offset)
{
	return mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
}

static inline int query(int fd, struct optinc_query *q)
{
	memset(q, 0, sizeof(*q));
	q->size = sizeof(*q);
	return call(fd, OPTINC_IOCTL_QUERY, q);
}

static inline void must_map_doorbells(struct card *c)
{
	c->page = map(c->fd, c->query.page_size, c->query.doorbell_offset);
	must(c->page != MAP_FAILED);
}

/* A context with its doorbell page */
static inline void must_open(struct card *c, unsigned int number)
{
	memset(c, 0, sizeof(*c));
	c->fd = open_node("card", number);
	must(c->fd >= 0);
	must(!query(c->fd, &c->query));
	must_map_doorbells(c);
}

static inline void shut(struct card *c)
{
	if (c->page)
		must(!munmap((void *)c->page, c->query.page_size));
	c->page = NULL;
	must(!close(c->fd));
	c->fd = -1;
}

static inline void ring_doorbell(struct card *c, unsigned int offset, uint32_t qp, uint32_t index)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	c->page[offset / 4] = OPTINC_DB_VALUE(qp, index);
}

/* Counters, once they include every doorbell of before */
static inline struct optinc_stats must_stats(struct card *c)
{
	struct optinc_stats s = { .size = sizeof(s) };

	must(!call(c->fd, OPTINC_IOCTL_STATS, &s));
	return s;
}

static inline int reg(struct card *c, void *addr, uint64_t length, uint32_t flags, uint32_t *mr)
{
	struct optinc_mr_reg r = {
		.size = sizeof(r), .flags = flags, .addr = (uintptr_t)addr, .length = length,
		.fd = -1,
	};
	int ret = call(c->fd, OPTINC_IOCTL_MR_REG, &r);

	*mr = r.mr;
	return ret;
}

static inline uint32_t must_reg(struct card *c, void *addr, uint64_t length)
{
	uint32_t mr;

	must(!reg(c, addr, length, OPTINC_MR_WRITE, &mr));
	must(mr);
	return mr;
}

/* With OPTINC_MR_CACHE; the bit of the context page is *@slot. */
static inline int reg_cached(struct card *c, void *addr, uint64_t length, uint32_t flags,
			     uint32_t *mr, uint32_t *slot)
{
	struct optinc_mr_reg r = {
		.size = sizeof(r), .flags = flags | OPTINC_MR_CACHE, .addr = (uintptr_t)addr,
		.length = length, .fd = -1,
	};
	int ret = call(c->fd, OPTINC_IOCTL_MR_REG, &r);

	*mr = r.mr;
	*slot = r.slot;
	return ret;
}

static inline int dereg(struct card *c, uint32_t mr)
{
	struct optinc_mr_dereg d = { .size = sizeof(d), .mr = mr };

	return call(c->fd, OPTINC_IOCTL_MR_DEREG, &d);
}

/* Once no request names it any more */
static inline int dereg_patiently(struct card *c, uint32_t mr)
{
	uint64_t until = now_ms() + PATIENCE_MS;
	int ret;

	do {
		ret = dereg(c, mr);
	} while (ret == -EBUSY && now_ms() < until);
	return ret;
}

static inline int create_queue(struct card *c, struct queue *q, uint32_t sq_entries,
			       uint32_t cq_entries, int eventfd)
{
	struct optinc_qp_create create = {
		.size = sizeof(create), .sq_entries = sq_entries, .cq_entries = cq_entries,
		.eventfd = eventfd,
	};
	int ret = call(c->fd, OPTINC_IOCTL_QP_CREATE, &create);

	memset(q, 0, sizeof(*q));
	q->card = c;
	q->id = create.qp;
	q->sq_entries = sq_entries;
	q->cq_entries = cq_entries;
	q->sq_offset = create.sq_offset;
	q->cq_offset = create.cq_offset;
	return ret;
}

static inline size_t sq_bytes(const struct queue *q)
{
	return whole_pages(q->sq_entries * sizeof(struct optinc_sqe));
}

static inline size_t cq_bytes(const struct queue *q)
{
	return whole_pages(q->cq_entries * sizeof(struct optinc_cqe));
}

static inline void must_create_queue(struct card *c, struct queue *q, uint32_t sq_entries,
				     uint32_t cq_entries, int eventfd)
{
	must(!create_queue(c, q, sq_entries, cq_entries, eventfd));
	q->sq = map(c->fd, sq_bytes(q), q->sq_offset);
	must(q->sq != MAP_FAILED);
	q->cq = map(c->fd, cq_bytes(q), q->cq_offset);
	must(q->cq != MAP_FAILED);
}

static inline void unmap_queue(struct queue *q)
{
	must(!munmap(q->sq, sq_bytes(q)));
	must(!munmap((void *)q->cq, cq_bytes(q)));
}

static inline int destroy_queue(struct queue *q)
{
	struct optinc_qp_destroy destroy = { .size = sizeof(destroy), .qp = q->id };

	return call(q->card->fd, OPTINC_IOCTL_QP_DESTROY, &destroy);
}

/* Writes an entry without announcing it. */
static inline void put_entry(struct queue *q, const struct optinc_sqe *sqe)
{
	q->sq[q->tail & (q->sq_entries - 1)] = *sqe;
	q->tail++;
}

static inline void announce(struct queue *q)
{
	ring_doorbell(q->card, OPTINC_DB_SQ_TAIL, q->id, q->tail);
}

static inline void post(struct queue *q, const struct optinc_sqe *sqe)
{
	put_entry(q, sqe);
	announce(q);
}

static inline void post_nop(struct queue *q, uint16_t cmd_id)
{
	struct optinc_sqe sqe = { .cmd_id = cmd_id };

	post(q, &sqe);
}

static inline void arm(struct queue *q, uint32_t index)
{
	ring_doorbell(q->card, OPTINC_DB_CQ_ARM, q->id, index);
}

static inline bool is_done(const struct queue *q)
{
	uint16_t status = q->cq[q->head & (q->cq_entries - 1)].status;

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return (status & OPTINC_CQE_PHASE) == !(q->head / q->cq_entries & 1);
}

/* Takes a completion that is there. */
static inline struct optinc_cqe consume(struct queue *q)
{
	struct optinc_cqe cqe;

	memcpy(&cqe, (void *)&q->cq[q->head & (q->cq_entries - 1)], sizeof(cqe));
	q->head++;
	return cqe;
}

/* Polls for a completion; false if there is none in @ms. */
static inline bool await_within(struct queue *q, struct optinc_cqe *cqe, unsigned int ms)
{
	uint64_t until = now_ms() + ms;

	while (!is_done(q)) {
		if (now_ms() > until)
			return false;
		sched_yield();
	}
	*cqe = consume(q);
	return true;
}

static inline struct optinc_cqe must_await(struct queue *q)
{
	struct optinc_cqe cqe;

	must(await_within(q, &cqe, PATIENCE_MS));
	return cqe;
}

/* The status of the next completion, -1 if there is none. */
static inline int await_status(struct queue *q)
{
	struct optinc_cqe cqe;

	return await_within(q, &cqe, PATIENCE_MS) ? cqe.status >> OPTINC_CQE_STATUS_SHIFT : -1;
}

/* The card has taken all entries of before: a NOP waits for no request, and no peer. */
static inline void must_be_taken(struct queue *q)
{
	post_nop(q, 0xffff);
	must(must_await(q).cmd_id == 0xffff);
}

/* What a signal wakes; -1 if nothing comes in @ms, else how often it was signalled. */
static inline int await_signal(int eventfd, int ms)
{
	struct pollfd p = { .fd = eventfd, .events = POLLIN };
	uint64_t n;

	if (poll(&p, 1, ms) != 1)
		return -1;
	must(read(eventfd, &n, sizeof(n)) == sizeof(n));
	return (int)n;
}

static inline struct optinc_group_join join_of(const char *key, uint32_t rank)
{
	struct optinc_group_join join = {
		.size = sizeof(join),
		.rank = rank,
		.nranks = 2,
		.bits = 8,
		.format = OPTINC_FORMAT_VERSION,
		.dtypes = 1 << OPTINC_F32 | 1 << OPTINC_I8 | 1 << OPTINC_BIT,
		.deadline_ms = PATIENCE_MS,
	};
	size_t length = strlen(key);

	memcpy(join.key, key, length < sizeof(join.key) ? length : sizeof(join.key));
	return join;
}

static inline uint32_t must_join(struct card *c, const char *key, uint32_t rank)
{
	struct optinc_group_join join = join_of(key, rank);

	must(!call(c->fd, OPTINC_IOCTL_GROUP_JOIN, &join));
	must(join.group);
	return join.group;
}

static inline int wait_group(struct card *c, uint32_t group, uint32_t ms,
			     struct optinc_group_wait *wait)
{
	memset(wait, 0, sizeof(*wait));
	wait->size = sizeof(*wait);
	wait->group = group;
	wait->timeout_ms = ms;
	return call(c->fd, OPTINC_IOCTL_GROUP_WAIT, wait);
}

static inline void must_be_ready(struct card *c, uint32_t group)
{
	struct optinc_group_wait wait;

	must(!wait_group(c, group, PATIENCE_MS, &wait));
	must(wait.state == OPTINC_GROUP_READY);
}

static inline int leave_group(struct card *c, uint32_t group)
{
	struct optinc_group_leave leave = { .size = sizeof(leave), .group = group };

	return call(c->fd, OPTINC_IOCTL_GROUP_LEAVE, &leave);
}

static inline int abort_group(struct card *c, uint32_t group)
{
	struct optinc_group_abort args = { .size = sizeof(args), .group = group };

	return call(c->fd, OPTINC_IOCTL_GROUP_ABORT, &args);
}

/* One end of a group of two: a context of its own, with a queue and a region */
struct end {
	struct card card;
	struct queue queue;
	uint32_t group, mr;
	uint8_t *memory;
	size_t bytes;
};

#define END_BYTES	(64 * 1024)

static inline void must_prepare_end(struct end *e, unsigned int number, int eventfd)
{
	must_open(&e->card, number);
	must_create_queue(&e->card, &e->queue, 8, 8, eventfd);
	e->bytes = END_BYTES;
	e->memory = mmap(NULL, e->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			 0);
	must(e->memory != MAP_FAILED);
	e->mr = must_reg(&e->card, e->memory, e->bytes);
}

/* Both ends of a group, on cards 0 and 1 */
static inline void must_pair(struct end ends[2], const char *key)
{
	int r;

	for (r = 0; r < 2; r++) {
		must_prepare_end(&ends[r], (unsigned int)r, -1);
		ends[r].group = must_join(&ends[r].card, key, (uint32_t)r);
	}
	for (r = 0; r < 2; r++)
		must_be_ready(&ends[r].card, ends[r].group);
}

/* Sum of codes: @count bytes at the region's beginning to 16-bit sums in its second half */
static inline struct optinc_sqe sum_entry(const struct end *e, uint64_t count)
{
	return (struct optinc_sqe) {
		.opcode = OPTINC_OP_ALLREDUCE, .group = e->group, .dtype = OPTINC_I8,
		.redop = OPTINC_SUM, .count = count, .src_mr = e->mr, .dst_mr = e->mr,
		.dst_off = e->bytes / 2,
	};
}

static inline void post_sum(struct end *e, uint64_t count)
{
	struct optinc_sqe sqe = sum_entry(e, count);

	post(&e->queue, &sqe);
}

/* A line of /proc/PID/status, in pages */
static inline unsigned long status_pages(pid_t pid, const char *name)
{
	char path[32], line[128];
	unsigned long kib = -1UL;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "r");
	must(file);
	while (fgets(line, sizeof(line), file)) {
		if (!strncmp(line, name, strlen(name)))
			kib = strtoul(line + strlen(name) + 1, NULL, 10);
	}
	fclose(file);
	must(kib != -1UL);
	return kib * 1024 / page_bytes();
}

static inline unsigned long pinned(void)
{
	return status_pages(getpid(), "VmPin");
}

/* Runs @body in a child; its exit status, or 256 plus the signal that ended it. */
static inline int in_child(int (*body)(void *arg), void *arg)
{
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	must(pid >= 0);
	if (!pid)
		_exit(body(arg));
	must(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

#endif /* OPTINC_SELFTESTS_CARD_H */
