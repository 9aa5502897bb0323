// SPDX-License-Identifier: GPL-2.0-or-later
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "lib/internal.h"
#include "fake_provider.h"

#define MAX_QPS		8
#define MAX_MRS		256
#define DB_OFFSET	0x100000
#define CONTEXT_OFFSET	0x140000
#define SQ_OFFSET(qp)	(0x200000 + 0x100000 * (uint64_t)(qp))
#define CQ_OFFSET(qp)	(SQ_OFFSET(qp) + 0x80000)
/* Handles and ids start at different places, to be told apart. */
#define MR_BASE		0x100
#define GROUP_BASE	0x1000
#define QP_BASE		7

struct fake_qp {
	bool live;
	uint32_t sq_entries, cq_entries;
	struct optinc_sqe *sq;
	struct optinc_cqe *cq;
	bool sq_mapped, cq_mapped;	/* then munmap() frees it */
	uint32_t sq_head, cq_tail;
	int eventfd;
	bool armed;
	uint16_t arm_index;
};

struct fake_mr {
	bool live;
	uint8_t *user;		/* where it was registered */
	uint8_t *addr;		/* the same; or what was there then, if it was replaced */
	uint64_t length;
	uint32_t flags;
};

struct fake_group {
	bool live;
	bool aborted;
	uint32_t bits, nranks, rank;
};

struct pending {
	unsigned int qp;
	struct optinc_sqe sqe;
	uint32_t status;	/* of the entry itself */
};

struct fake fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved;
static struct fake_qp qps[MAX_QPS];
static struct fake_mr mrs[MAX_MRS];
static struct fake_group groups[MAX_QPS];
static struct pending pending[FAKE_PENDING];
static unsigned int npending;
static uint8_t doorbell_page[4096];
static struct optinc_context_page context_page;
static uint64_t device_ns;

/* ------------------------------------------------------------- the entry */

static struct fake_mr *find_mr(uint32_t handle)
{
	uint32_t i = handle - MR_BASE;

	return i < MAX_MRS && mrs[i].live ? &mrs[i] : NULL;
}

static uint32_t check_operand(uint32_t handle, uint64_t offset, uint64_t length, bool write,
			      uint64_t align)
{
	struct fake_mr *mr;

	if (!length)
		return OPTINC_ST_SUCCESS;
	mr = find_mr(handle);
	if (!mr)
		return OPTINC_ST_INVALID_MR;
	if (length > mr->length || offset > mr->length - length)
		return OPTINC_ST_MR_BOUNDS;
	if (write && !(mr->flags & OPTINC_MR_WRITE))
		return OPTINC_ST_MR_ACCESS;
	if (((uintptr_t)mr->addr + offset) % align)
		return OPTINC_ST_INVALID_FIELD;
	return OPTINC_ST_SUCCESS;
}

static void *operand(uint32_t handle, uint64_t offset)
{
	struct fake_mr *mr = find_mr(handle);

	return mr ? mr->addr + offset : NULL;
}

static uint32_t check_allreduce(const struct optinc_sqe *s, const struct fake_group *group)
{
	uint64_t count = le64toh(s->count);
	uint64_t in = optinc_data_bytes(count, s->dtype);
	uint64_t out = optinc_result_bytes(count, s->dtype, s->redop, s->flags);
	uint64_t align = optinc_result_bytes(1, s->dtype, s->redop, s->flags);
	uint32_t status;

	if (!align || (s->flags & ~OPTINC_SQE_FLAGS) || s->root)
		return OPTINC_ST_INVALID_FIELD;
	if ((s->dtype == OPTINC_I8 && group->bits != 8) ||
	    (s->dtype == OPTINC_I16 && group->bits != 16))
		return OPTINC_ST_INVALID_FIELD;
	status = check_operand(le32toh(s->src_mr), le64toh(s->src_off), in, false,
			       optinc_data_bytes(1, s->dtype));
	if (!status)
		status = check_operand(le32toh(s->dst_mr), le64toh(s->dst_off), out, true, align);
	if (!status && (s->flags & OPTINC_SQE_EXPONENTS))
		status = check_operand(le32toh(s->exp_mr), le64toh(s->exp_off),
				       (count + OPTINC_BLOCK - 1) / OPTINC_BLOCK, false, 1);
	return status;
}

static uint32_t check_entry(const struct optinc_sqe *s)
{
	uint32_t handle = le32toh(s->group) - GROUP_BASE;
	uint64_t count = le64toh(s->count);
	const struct fake_group *group;
	bool root;

	if (s->__reserved0 || s->__reserved1)
		return OPTINC_ST_INVALID_FIELD;
	if (handle >= MAX_QPS || !groups[handle].live)
		return OPTINC_ST_INVALID_GROUP;
	group = &groups[handle];
	root = s->root == group->rank;
	switch (s->opcode) {
	case OPTINC_OP_ALLREDUCE:
		return check_allreduce(s, group);
	case OPTINC_OP_BROADCAST:
		if (s->root >= group->nranks || s->dtype != OPTINC_U8)
			return OPTINC_ST_INVALID_FIELD;
		return check_operand(le32toh(root ? s->src_mr : s->dst_mr),
				     le64toh(root ? s->src_off : s->dst_off), count, !root, 1);
	case OPTINC_OP_EXPONENT_MAX:
		if (s->dtype != OPTINC_U8 || s->src_mr != s->dst_mr || s->src_off != s->dst_off)
			return OPTINC_ST_INVALID_FIELD;
		return check_operand(le32toh(s->src_mr), le64toh(s->src_off), count, true, 1);
	case OPTINC_OP_BARRIER:
		return count ? OPTINC_ST_INVALID_FIELD : OPTINC_ST_SUCCESS;
	default:
		return OPTINC_ST_INVALID_OPCODE;
	}
}

/* Every rank sends what this one sends. A broadcast delivers 0xb0, counting. */
static void carry_out(const struct optinc_sqe *s)
{
	const struct fake_group *group = &groups[le32toh(s->group) - GROUP_BASE];
	const void *send[OPTINC_MAX_RANKS];
	uint64_t count = le64toh(s->count), i;
	uint8_t *dst = operand(le32toh(s->dst_mr), le64toh(s->dst_off));
	void *out;

	if (!count)
		return;
	if (s->opcode == OPTINC_OP_BROADCAST && s->root != group->rank) {
		for (i = 0; i < count; i++)
			dst[i] = (uint8_t)(0xb0 + i);
	}
	if (s->opcode != OPTINC_OP_ALLREDUCE)
		return;
	for (i = 0; i < group->nranks; i++)
		send[i] = operand(le32toh(s->src_mr), le64toh(s->src_off));
	/* The reference does not work in place. */
	out = malloc(optinc_result_bytes(count, s->dtype, s->redop, s->flags));
	if (!out)
		abort();
	optinc_reference_allreduce(send, out, group->nranks, count, s->dtype, s->redop,
				   group->bits, s->flags & ~(uint32_t)OPTINC_SQE_EXPONENTS, NULL);
	memcpy(dst, out, optinc_result_bytes(count, s->dtype, s->redop, s->flags));
	free(out);
}

/* --------------------------------------------------------- the completion */

static void signal_tail(struct fake_qp *qp)
{
	uint64_t one = 1;

	if (qp->armed && (uint16_t)qp->cq_tail != qp->arm_index) {
		qp->armed = false;
		if (qp->eventfd >= 0 && write(qp->eventfd, &one, sizeof(one)) < 0)
			abort();
	}
	pthread_cond_broadcast(&moved);
}

static void post(struct fake_qp *qp, const struct optinc_sqe *s, uint32_t status,
		 const struct fake_completion *how)
{
	struct optinc_cqe *entry = &qp->cq[qp->cq_tail & (qp->cq_entries - 1)];
	bool phase = !(qp->cq_tail & qp->cq_entries);
	struct optinc_cqe cqe = {
		.cmd_id = htole16(le16toh(s->cmd_id) ^ how->cmd_id_xor),
		.sq_head = htole16((uint16_t)(qp->sq_head + how->sq_head_add)),
		.peer = status ? how->peer : OPTINC_NO_RANK,
		.mismatch = how->mismatch,
		.tag = htole32(le32toh(s->tag) ^ how->tag_xor),
		.device_ns = htole64(device_ns += 100),
		.wire_ns = htole32(42),
		.nonfinite = htole32(3),
		.saturated = htole32(5),
	};

	cqe.status = htole16((uint16_t)(status << OPTINC_CQE_STATUS_SHIFT) |
			     (phase != how->old_phase ? OPTINC_CQE_PHASE : 0));
	/* The status last, and only then visible: as a card writes it. */
	memcpy(entry, &cqe, offsetof(struct optinc_cqe, status));
	memcpy((char *)entry + offsetof(struct optinc_cqe, sq_head), &cqe.sq_head,
	       sizeof(cqe) - offsetof(struct optinc_cqe, sq_head));
	__atomic_store_n(&entry->status, cqe.status, __ATOMIC_RELEASE);
	qp->cq_tail++;
	signal_tail(qp);
}

static bool complete_locked(unsigned int i, const struct fake_completion *how)
{
	static const struct fake_completion success = { .peer = OPTINC_NO_RANK };
	struct fake_qp *qp;
	struct pending p;
	uint32_t status;

	if (i >= npending)
		return false;
	p = pending[i];
	npending--;
	memmove(&pending[i], &pending[i + 1], (npending - i) * sizeof(pending[0]));
	how = how ? how : &success;
	qp = &qps[p.qp];
	if (!qp->live)
		return true;
	status = p.status ? p.status : how->status;
	if (status == OPTINC_ST_SUCCESS)
		carry_out(&p.sqe);
	post(qp, &p.sqe, status, how);
	if (how->twice)
		post(qp, &p.sqe, status, how);
	return true;
}

unsigned int fake_pending(void)
{
	unsigned int n;

	pthread_mutex_lock(&lock);
	n = npending;
	pthread_mutex_unlock(&lock);
	return n;
}

bool fake_complete(unsigned int i, const struct fake_completion *how)
{
	bool done;

	pthread_mutex_lock(&lock);
	done = complete_locked(i, how);
	pthread_mutex_unlock(&lock);
	return done;
}

bool fake_complete_tag(uint32_t tag, const struct fake_completion *how)
{
	bool done = false;
	unsigned int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < npending && !done; i++) {
		if (le32toh(pending[i].sqe.tag) == tag)
			done = complete_locked(i, how);
	}
	pthread_mutex_unlock(&lock);
	return done;
}

/* Of one group's requests, those outstanding. */
static void abort_group(uint32_t handle)
{
	struct fake_completion how = {
		.status = OPTINC_ST_ABORTED,
		.peer = (uint8_t)groups[handle - GROUP_BASE].rank,
	};
	unsigned int i;

	for (i = 0; i < npending;) {
		if (le32toh(pending[i].sqe.group) == handle)
			complete_locked(i, &how);
		else
			i++;
	}
	groups[handle - GROUP_BASE].aborted = true;
}

/* ---------------------------------------------------------------- ioctls */

/* The driver's order: the mark, then the generation. */
static void mark_stale(unsigned int slot)
{
	__atomic_fetch_or(&context_page.mr_stale[slot / 8], 1 << slot % 8, __ATOMIC_RELAXED);
	__atomic_fetch_add(&context_page.mr_generation, 1, __ATOMIC_RELEASE);
}

static int register_mr(struct optinc_mr_reg *reg)
{
	unsigned int i;

	if (reg->flags & ~(uint32_t)(OPTINC_MR_WRITE | OPTINC_MR_CACHE) || reg->__reserved ||
	    (reg->flags & OPTINC_MR_CACHE && !(fake.query.features & OPTINC_FEAT_MR_CACHE)))
		return -EOPNOTSUPP;
	if (fake.pin_limit && fake.pinned + reg->length > fake.pin_limit)
		return -ENOMEM;
	for (i = 0; i < MAX_MRS && mrs[i].live; i++)
		;
	if (i == MAX_MRS || i >= fake.query.max_mrs)
		return -ENOSPC;
	mrs[i].live = true;
	mrs[i].user = (uint8_t *)(uintptr_t)reg->addr;
	mrs[i].addr = mrs[i].user;
	mrs[i].length = reg->length;
	mrs[i].flags = reg->flags;
	reg->mr = fake.bad_handles ? 0 : MR_BASE + i;
	reg->slot = 0;
	if (reg->flags & OPTINC_MR_CACHE) {
		reg->slot = i;
		__atomic_fetch_and(&context_page.mr_stale[i / 8], ~(1 << i % 8), __ATOMIC_RELAXED);
		if (fake.stale_at_birth)
			mark_stale(i);
	}
	fake.live_mrs++;
	fake.pinned += reg->length;
	return 0;
}

static void keep_old_pages(struct fake_mr *mr)
{
	uint8_t *copy = malloc(mr->length);

	if (!copy)
		abort();
	memcpy(copy, mr->addr, mr->length);
	if (mr->addr != mr->user)
		free(mr->addr);
	mr->addr = copy;
}

void fake_replace(const void *addr, size_t length)
{
	const uint8_t *first = addr;
	unsigned int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < MAX_MRS; i++) {
		struct fake_mr *mr = &mrs[i];

		if (!mr->live || first >= mr->user + mr->length || mr->user >= first + length)
			continue;
		keep_old_pages(mr);
		if (mr->flags & OPTINC_MR_CACHE)
			mark_stale(i);
	}
	pthread_mutex_unlock(&lock);
}

static bool mr_in_use(uint32_t handle)
{
	unsigned int i;

	for (i = 0; i < npending; i++) {
		if (le32toh(pending[i].sqe.src_mr) == handle ||
		    le32toh(pending[i].sqe.dst_mr) == handle ||
		    le32toh(pending[i].sqe.exp_mr) == handle)
			return true;
	}
	return false;
}

static int mr_dereg(const struct optinc_mr_dereg *dereg)
{
	struct fake_mr *mr = find_mr(dereg->mr);

	if (!mr)
		return -ENOENT;
	if (mr_in_use(dereg->mr))
		return -EBUSY;
	if (mr->addr != mr->user)
		free(mr->addr);
	mr->live = false;
	fake.live_mrs--;
	fake.pinned -= mr->length;
	return 0;
}

static int qp_create(struct optinc_qp_create *create)
{
	struct fake_qp *qp;
	unsigned int i;

	for (i = 0; i < MAX_QPS && qps[i].live; i++)
		;
	if (i == MAX_QPS)
		return -ENOSPC;
	qp = &qps[i];
	*qp = (struct fake_qp) {
		.live = true,
		.sq_entries = create->sq_entries,
		.cq_entries = create->cq_entries,
		.sq = calloc(create->sq_entries, sizeof(struct optinc_sqe)),
		.cq = calloc(create->cq_entries, sizeof(struct optinc_cqe)),
		.eventfd = create->eventfd,
	};
	create->qp = QP_BASE + i;
	create->sq_offset = SQ_OFFSET(i);
	create->cq_offset = CQ_OFFSET(i);
	fake.create = *create;
	fake.live_qps++;
	return 0;
}

static int qp_destroy(const struct optinc_qp_destroy *destroy)
{
	uint32_t id = destroy->qp - QP_BASE;
	unsigned int i;

	if (id >= MAX_QPS || !qps[id].live)
		return -ENOENT;
	for (i = 0; i < npending;) {
		if (pending[i].qp != id) {
			i++;
			continue;
		}
		npending--;
		memmove(&pending[i], &pending[i + 1], (npending - i) * sizeof(pending[0]));
	}
	qps[id].live = false;
	if (!qps[id].sq_mapped)
		free(qps[id].sq);
	if (!qps[id].cq_mapped)
		free(qps[id].cq);
	fake.live_qps--;
	pthread_cond_broadcast(&moved);
	return 0;
}

static int group_join(struct optinc_group_join *join)
{
	unsigned int i;

	for (i = 0; i < MAX_QPS && groups[i].live; i++)
		;
	if (i == MAX_QPS)
		return -ENOSPC;
	groups[i] = (struct fake_group) { true, false, join->bits, join->nranks, join->rank };
	join->group = fake.bad_handles ? 0 : GROUP_BASE + i;
	fake.join = *join;
	fake.live_groups++;
	return 0;
}

static struct fake_group *find_group(uint32_t handle)
{
	uint32_t i = handle - GROUP_BASE;

	return i < MAX_QPS && groups[i].live ? &groups[i] : NULL;
}

static int group_leave(const struct optinc_group_leave *leave)
{
	struct fake_group *group = find_group(leave->group);

	if (!group)
		return -ENOENT;
	if (!fake.leave_forgets)
		abort_group(leave->group);
	group->live = false;
	fake.live_groups--;
	return 0;
}

static int group_wait(struct optinc_group_wait *wait)
{
	if (!find_group(wait->group))
		return -ENOENT;
	wait->state = fake.group_says.state;
	wait->status = fake.group_says.status;
	wait->peer = fake.group_says.peer;
	wait->mismatch = fake.group_says.mismatch;
	wait->joined = fake.group_says.joined;
	if (wait->state == OPTINC_GROUP_JOINING) {
		pthread_mutex_unlock(&lock);
		usleep(1000 * (wait->timeout_ms < 50 ? wait->timeout_ms : 50));
		pthread_mutex_lock(&lock);
	}
	return 0;
}

static int group_abort(const struct optinc_group_abort *abort)
{
	if (!find_group(abort->group))
		return -ENOENT;
	abort_group(abort->group);
	return 0;
}

static int dispatch(unsigned long cmd, void *arg)
{
	switch (cmd) {
	case OPTINC_IOCTL_QUERY:
		memcpy(arg, &fake.query, sizeof(fake.query));
		return 0;
	case OPTINC_IOCTL_STATS:
		memcpy(arg, &fake.stats, sizeof(fake.stats));
		return 0;
	case OPTINC_IOCTL_MR_REG:
		return register_mr(arg);
	case OPTINC_IOCTL_MR_DEREG:
		return mr_dereg(arg);
	case OPTINC_IOCTL_QP_CREATE:
		return qp_create(arg);
	case OPTINC_IOCTL_QP_DESTROY:
		return qp_destroy(arg);
	case OPTINC_IOCTL_GROUP_JOIN:
		return group_join(arg);
	case OPTINC_IOCTL_GROUP_WAIT:
		return group_wait(arg);
	case OPTINC_IOCTL_GROUP_LEAVE:
		return group_leave(arg);
	case OPTINC_IOCTL_GROUP_ABORT:
		return group_abort(arg);
	default:
		return -ENOTTY;
	}
}

/* -------------------------------------------------------------- provider */

static int fake_open(const char *rest, void **dev, struct optinc_open_error *error)
{
	(void)rest;
	fake.opens++;
	if (fake.open_error) {
		*error = fake.open_says;
		return fake.open_error;
	}
	*dev = &fake;
	return 0;
}

static int fake_ioctl(void *dev, unsigned long cmd, void *arg)
{
	unsigned int nr = cmd & 0xff;
	int ret;

	(void)dev;
	pthread_mutex_lock(&lock);
	if (nr < FAKE_IOCTLS)
		fake.ioctls[nr]++;
	if (nr < FAKE_IOCTLS && fake.ioctl_error[nr])
		ret = fake.ioctl_error[nr];
	else if (*(uint32_t *)arg == 0)
		ret = -EINVAL;	/* every struct begins with its size */
	else
		ret = dispatch(cmd, arg);
	pthread_mutex_unlock(&lock);
	return ret;
}

static void *fake_mmap(void *dev, size_t length, int prot, uint64_t offset)
{
	void *p = MAP_FAILED;
	unsigned int i;

	(void)dev;
	(void)length;
	if (fake.mmap_error || (offset == CONTEXT_OFFSET && prot != PROT_READ)) {
		errno = fake.mmap_error ? fake.mmap_error : EPERM;
		return MAP_FAILED;
	}
	pthread_mutex_lock(&lock);
	if (offset == DB_OFFSET)
		p = doorbell_page;
	if (offset == CONTEXT_OFFSET && !fake.context_error)
		p = &context_page;
	for (i = 0; i < MAX_QPS; i++) {
		if (offset == SQ_OFFSET(i) && qps[i].live) {
			p = qps[i].sq;
			qps[i].sq_mapped = true;
		}
		if (offset == CQ_OFFSET(i) && qps[i].live) {
			p = qps[i].cq;
			qps[i].cq_mapped = true;
		}
	}
	fake.live_maps += p != MAP_FAILED;
	pthread_mutex_unlock(&lock);
	errno = EINVAL;
	return p;
}

static int fake_munmap(void *dev, void *addr, size_t length)
{
	(void)dev;
	(void)length;
	pthread_mutex_lock(&lock);
	fake.live_maps--;
	pthread_mutex_unlock(&lock);
	if (addr != doorbell_page && addr != &context_page)
		free(addr);
	return 0;
}

static void take_entries(unsigned int id, uint16_t tail)
{
	struct fake_qp *qp = &qps[id];

	if ((int16_t)(tail - qp->cq_tail) > (int)qp->cq_entries)
		fake.overruns++;
	while ((uint16_t)qp->sq_head != tail && npending < FAKE_PENDING) {
		struct pending *p = &pending[npending++];

		p->qp = id;
		p->sqe = qp->sq[qp->sq_head & (qp->sq_entries - 1)];
		p->status = check_entry(&p->sqe);
		fake.sqe = p->sqe;
		qp->sq_head++;
		if (fake.mode == FAKE_AT_ONCE)
			complete_locked(npending - 1, NULL);
	}
}

static void fake_doorbell(void *dev, void *page, uint32_t offset, uint32_t value)
{
	uint32_t id = (value >> 16) - QP_BASE;
	uint16_t index = (uint16_t)value;

	(void)dev;
	pthread_mutex_lock(&lock);
	if (page != doorbell_page || offset > OPTINC_DB_CQ_ARM || offset % 4)
		abort();
	fake.doorbells[offset / 4]++;
	if (id < MAX_QPS && qps[id].live) {
		struct fake_qp *qp = &qps[id];

		if (offset == OPTINC_DB_SQ_TAIL) {
			take_entries(id, index);
		} else {
			qp->armed = true;
			qp->arm_index = index;
			signal_tail(qp);
		}
	}
	pthread_mutex_unlock(&lock);
}

static void fake_relax(void *dev)
{
	(void)dev;
	pthread_mutex_lock(&lock);
	fake.relaxes++;
	if (fake.mode == FAKE_ON_RELAX)
		complete_locked(0, NULL);
	pthread_mutex_unlock(&lock);
}

static int fake_wait(void *dev, void *page, uint32_t id, uint16_t cq_index, int eventfd,
		     uint64_t timeout_ns)
{
	struct timespec ts;
	uint64_t until, count;
	int ret = 0;

	(void)dev;
	(void)page;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	until = (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec + timeout_ns;
	ts.tv_sec = (time_t)(until / NS_PER_S);
	ts.tv_nsec = (long)(until % NS_PER_S);

	pthread_mutex_lock(&lock);
	fake.waits++;
	if (fake.mode == FAKE_ON_RELAX)
		complete_locked(0, NULL);
	id -= QP_BASE;
	while (!ret && !fake.wait_error && id < MAX_QPS && qps[id].live &&
	       (uint16_t)qps[id].cq_tail == cq_index)
		ret = pthread_cond_timedwait(&moved, &lock, &ts);
	ret = fake.wait_error;
	pthread_mutex_unlock(&lock);
	/* A wait may drain the descriptor, and does. */
	if (read(eventfd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		abort();
	return ret;
}

static void fake_close(void *dev)
{
	(void)dev;
	fake.closes++;
}

static const struct optinc_provider provider = {
	.abi = OPTINC_PROVIDER_ABI,
	.scheme = "fake",
	.open = fake_open,
	.ioctl = fake_ioctl,
	.mmap = fake_mmap,
	.munmap = fake_munmap,
	.doorbell = fake_doorbell,
	.relax = fake_relax,
	.wait = fake_wait,
	.close = fake_close,
};

static void reset_device(void)
{
	unsigned int i;

	for (i = 0; i < MAX_MRS; i++) {
		if (mrs[i].live && mrs[i].addr != mrs[i].user)
			free(mrs[i].addr);
	}
	memset(qps, 0, sizeof(qps));
	memset(mrs, 0, sizeof(mrs));
	memset(&context_page, 0, sizeof(context_page));
	memset(groups, 0, sizeof(groups));
	npending = 0;
	device_ns = 0;
}

void fake_init(void)
{
	static bool once;
	pthread_condattr_t attr;

	if (!once) {
		pthread_condattr_init(&attr);
		pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		pthread_cond_init(&moved, &attr);
		once = true;
	}
	reset_device();
	memset(&fake, 0, sizeof(fake));
	fake.query = (struct optinc_query) {
		.size = sizeof(fake.query),
		.node = OPTINC_NODE_CARD,
		.features = OPTINC_FEAT_ISOLATION | OPTINC_FEAT_USER_QUEUES,
		.opcodes = (1 << OPTINC_OPCODES) - 1,
		.dtypes = (1 << OPTINC_DTYPES) - 1,
		.redops = (1 << OPTINC_REDOPS) - 1,
		.code_bits = 1 << 8 | 1 << 16,
		.max_count = 1 << 24,
		.max_mr_bytes = 1 << 26,
		.format_version = OPTINC_FORMAT_VERSION,
		.port = 1,
		.ports = 4,
		.lanes = 8,
		.lanes_up = 7,
		.lane_mbps = 800000,
		.max_qps = MAX_QPS,
		.max_mrs = MAX_MRS,
		.max_groups = MAX_QPS,
		.max_queue = 1024,
		.page_size = 4096,
		.interface_version = 1 << 16,
		.doorbell_offset = DB_OFFSET,
		.firmware_version = 77,
		.serial = "FAKE0001",
		.model = "test double",
	};
	fake.group_says.state = OPTINC_GROUP_READY;
	provider_inject(&provider);
}

void fake_init_watching(void)
{
	fake_init();
	fake.query.features |= OPTINC_FEAT_MR_CACHE;
	fake.query.context_offset = CONTEXT_OFFSET;
}

struct optinc_card *fake_card(void)
{
	struct optinc_card *card;

	if (optinc_open("fake:0", &card))
		abort();
	return card;
}

void fake_params(struct optinc_group_params *params)
{
	*params = (struct optinc_group_params) {
		.key = "0123456789abcde",
		.rank = 1,
		.nranks = 3,
		.queue = 8,
	};
}

struct optinc_group *fake_join(struct optinc_card *card, unsigned int queue)
{
	struct optinc_group_params params;
	struct optinc_group *group;

	fake_params(&params);
	params.queue = queue;
	if (optinc_group_join(card, &params, sizeof(params), &group))
		abort();
	return group;
}
