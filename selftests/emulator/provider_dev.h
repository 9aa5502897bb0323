/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The in-process provider as the library sees it, for tests: a device, its
 * queue pairs and groups, through the seam of lib/provider.h and nothing else.
 */
#ifndef OPTINC_SELFTESTS_PROVIDER_DEV_H
#define OPTINC_SELFTESTS_PROVIDER_DEV_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <optinc/optinc.h>

#include "lib/provider.h"

extern const struct optinc_provider optinc_provider;

#define P	(&optinc_provider)
#define SECOND	1000000000ULL
#define MSEC	1000000ULL

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec;
}

static inline void sleep_ns(uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND) };

	nanosleep(&ts, NULL);
}

struct dev {
	void *dev;
	void *page;
	struct optinc_query query;
};

struct dqp {
	struct dev *d;
	uint32_t id;
	uint32_t sq_entries, cq_entries;
	struct optinc_sqe *sq;
	struct optinc_cqe *cq;
	uint16_t tail;
	uint32_t head;		/* without modulo */
	int eventfd;
};

static inline const char *uri_of(unsigned int port, unsigned int ports, const char *more)
{
	static char uri[256];

	snprintf(uri, sizeof(uri), "selftest-%d?port=%u&ports=%u%s", (int)getpid(), port, ports,
		 more);
	return uri;
}

static inline void open_dev(struct dev *d, const char *uri)
{
	struct optinc_open_error error;
	int rc = P->open(uri, &d->dev, &error);

	if (rc)
		fail_msg("open %s: %d, %s", uri, rc, error.text);
	d->query = (struct optinc_query) { .size = sizeof(d->query) };
	assert_int_equal(P->ioctl(d->dev, OPTINC_IOCTL_QUERY, &d->query), 0);
	d->page = P->mmap(d->dev, d->query.page_size, PROT_READ | PROT_WRITE,
			  d->query.doorbell_offset);
	assert_ptr_not_equal(d->page, MAP_FAILED);
}

static inline void close_dev(struct dev *d)
{
	P->close(d->dev);
	d->dev = NULL;
}

static inline void map_qp(struct dqp *q, const struct optinc_qp_create *create)
{
	q->id = create->qp;
	q->sq = P->mmap(q->d->dev, q->sq_entries * sizeof(*q->sq), PROT_READ | PROT_WRITE,
			create->sq_offset);
	q->cq = P->mmap(q->d->dev, q->cq_entries * sizeof(*q->cq), PROT_READ | PROT_WRITE,
			create->cq_offset);
	assert_ptr_not_equal(q->sq, MAP_FAILED);
	assert_ptr_not_equal(q->cq, MAP_FAILED);
}

static inline void make_qp(struct dev *d, struct dqp *q, uint32_t sq_entries, uint32_t cq_entries,
			   int eventfd)
{
	struct optinc_qp_create create = {
		.size = sizeof(create), .sq_entries = sq_entries, .cq_entries = cq_entries,
		.eventfd = eventfd,
	};

	memset(q, 0, sizeof(*q));
	q->d = d;
	q->sq_entries = sq_entries;
	q->cq_entries = cq_entries;
	q->eventfd = eventfd;
	assert_int_equal(P->ioctl(d->dev, OPTINC_IOCTL_QP_CREATE, &create), 0);
	map_qp(q, &create);
}

static inline int destroy_qp(struct dqp *q)
{
	struct optinc_qp_destroy destroy = { .size = sizeof(destroy), .qp = q->id };

	return P->ioctl(q->d->dev, OPTINC_IOCTL_QP_DESTROY, &destroy);
}

static inline void unmap_qp(struct dqp *q)
{
	assert_int_equal(P->munmap(q->d->dev, q->sq, q->sq_entries * sizeof(*q->sq)), 0);
	assert_int_equal(P->munmap(q->d->dev, q->cq, q->cq_entries * sizeof(*q->cq)), 0);
}

static inline uint32_t reg_mr(struct dev *d, void *addr, uint64_t length, uint32_t flags)
{
	struct optinc_mr_reg reg = {
		.size = sizeof(reg), .flags = flags, .addr = (uintptr_t)addr, .length = length,
		.fd = -1,
	};

	assert_int_equal(P->ioctl(d->dev, OPTINC_IOCTL_MR_REG, &reg), 0);
	assert_int_not_equal(reg.mr, 0);
	return reg.mr;
}

static inline struct optinc_group_join join_of(uint8_t key, uint32_t rank, uint32_t nranks)
{
	return (struct optinc_group_join) {
		.size = sizeof(struct optinc_group_join),
		.key = { key, 0x55 },
		.rank = rank,
		.nranks = nranks,
		.bits = 8,
		.format = OPTINC_FORMAT_VERSION,
		.dtypes = 1 << OPTINC_F32 | 1 << OPTINC_I8,
		.deadline_ms = 20000,
	};
}

static inline uint32_t begin_join(struct dev *d, uint8_t key, uint32_t rank, uint32_t nranks)
{
	struct optinc_group_join join = join_of(key, rank, nranks);

	assert_int_equal(P->ioctl(d->dev, OPTINC_IOCTL_GROUP_JOIN, &join), 0);
	assert_int_not_equal(join.group, 0);
	return join.group;
}

static inline int group_wait(struct dev *d, uint32_t group, uint32_t timeout_ms,
			     struct optinc_group_wait *wait)
{
	*wait = (struct optinc_group_wait) {
		.size = sizeof(*wait), .group = group, .timeout_ms = timeout_ms,
	};
	return P->ioctl(d->dev, OPTINC_IOCTL_GROUP_WAIT, wait);
}

static inline void finish_join(struct dev *d, uint32_t group)
{
	struct optinc_group_wait wait;

	assert_int_equal(group_wait(d, group, 20000, &wait), 0);
	if (wait.state != OPTINC_GROUP_READY)
		fail_msg("group: state %u, status %#x", wait.state, wait.status);
}

static inline void post(struct dqp *q, const struct optinc_sqe *sqe)
{
	q->sq[q->tail & (q->sq_entries - 1)] = *sqe;
	q->tail++;
	P->doorbell(q->d->dev, q->d->page, OPTINC_DB_SQ_TAIL, OPTINC_DB_VALUE(q->id, q->tail));
}

static inline void post_nop(struct dqp *q, uint16_t cmd_id)
{
	struct optinc_sqe sqe = { .cmd_id = cmd_id };

	post(q, &sqe);
}

static inline void post_barrier(struct dqp *q, uint32_t group)
{
	struct optinc_sqe sqe = { .opcode = OPTINC_OP_BARRIER, .group = group };

	post(q, &sqe);
}

static inline void arm(struct dqp *q)
{
	P->doorbell(q->d->dev, q->d->page, OPTINC_DB_CQ_ARM, OPTINC_DB_VALUE(q->id, q->head));
}

static inline bool is_done(struct dqp *q)
{
	const struct optinc_cqe *cqe = &q->cq[q->head & (q->cq_entries - 1)];

	return (__atomic_load_n(&cqe->status, __ATOMIC_ACQUIRE) & 1) ==
	       !(q->head / q->cq_entries & 1);
}

static inline bool take(struct dqp *q, struct optinc_cqe *cqe)
{
	if (!is_done(q))
		return false;
	*cqe = q->cq[q->head & (q->cq_entries - 1)];
	q->head++;
	return true;
}

/* Wait as the library does when it sleeps; the status. */
static inline uint32_t take_wait(struct dqp *q)
{
	uint64_t until = now_ns() + 20 * SECOND;
	struct optinc_cqe cqe;
	int rc;

	while (!take(q, &cqe)) {
		rc = P->wait(q->d->dev, q->d->page, q->id, (uint16_t)q->head, q->eventfd, SECOND);
		if (rc)
			fail_msg("wait: %d", rc);
		if (now_ns() > until)
			fail_msg("no completion in 20 s");
	}
	return cqe.status >> 1;
}

/* Wait as the library does when it spins. */
static inline uint32_t take_relax(struct dqp *q)
{
	uint64_t until = now_ns() + 20 * SECOND;
	struct optinc_cqe cqe;
	unsigned int n = 0;

	while (!take(q, &cqe)) {
		P->relax(q->d->dev);
		if (++n % 1024 == 0 && now_ns() > until)
			fail_msg("no completion in 20 s");
	}
	return cqe.status >> 1;
}

#endif /* OPTINC_SELFTESTS_PROVIDER_DEV_H */
