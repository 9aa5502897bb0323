// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What each ioctl does, Documentation/uapi.rst section 4. Checks come in the
 * order of its section 3: flags and reserved members, values, handles.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emulator/provider/internal.h"

#define DTYPE(type)	(1ULL << OPTINC_##type)

static uint64_t dma(const void *pointer)
{
	return (uintptr_t)pointer;
}

int emu_query(struct emu_dev *dev, void *arg)
{
	const struct optinc_hw_identify *id = &dev->id;
	struct optinc_query *query = arg;

	if (query->__reserved)
		return -EOPNOTSUPP;
	*query = (struct optinc_query) {
		.size = query->size,
		.node = OPTINC_NODE_CARD,
		.features = le64toh(id->features) | OPTINC_FEAT_USER_QUEUES,
		.opcodes = le64toh(id->opcodes),
		.dtypes = le64toh(id->dtypes),
		.redops = le64toh(id->redops),
		.code_bits = le64toh(id->code_bits),
		.max_count = le64toh(id->max_count),
		.max_mr_bytes = le64toh(id->max_mr_bytes),
		.format_version = le32toh(id->format_version),
		.port = le16toh(id->port),
		.ports = le16toh(id->ports),
		.lanes = le16toh(id->lanes),
		.lanes_up = le16toh(id->lanes_up),
		.lane_mbps = le32toh(id->lane_mbps),
		.max_qps = le32toh(id->max_qps),
		.max_mrs = le32toh(id->max_mrs),
		.max_groups = le32toh(id->max_groups),
		.max_queue = le32toh(id->max_queue),
		.page_size = (uint32_t)dev->page_size,
		.interface_version = le32toh(id->interface_version),
		.doorbell_offset = EMU_DOORBELL_OFFSET,
		.firmware_version = le32toh(id->firmware_version),
	};
	memcpy(query->serial, id->serial, sizeof(query->serial));
	memcpy(query->model, id->model, sizeof(query->model));
	return 0;
}

static int read_log(struct emu_dev *dev, struct optinc_hw_port_log *log)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_GET_LOG,
		.addr = htole64(dma(dev->data)),
		.length = htole32(sizeof(*log)),
		.log.page = htole32(OPTINC_LOG_PORT),
	};
	int rc;

	emu_lock(dev);
	rc = emu_command(dev, &cmd, NULL, NULL);
	memcpy(log, dev->data, sizeof(*log));
	emu_unlock(dev);
	return rc;
}

int emu_stats(struct emu_dev *dev, void *arg)
{
	struct optinc_stats *stats = arg;
	struct optinc_hw_port_log log;
	int rc;

	if (stats->__reserved)
		return -EOPNOTSUPP;
	rc = read_log(dev, &log);
	if (rc)
		return rc;
	*stats = (struct optinc_stats) {
		.size = stats->size,
		.tx_bytes = le64toh(log.tx_bytes),
		.rx_bytes = le64toh(log.rx_bytes),
		.requests = le64toh(log.requests),
		.errors = le64toh(log.errors),
		.replays = le64toh(log.replays),
		.nonfinite = le64toh(log.nonfinite),
		.saturated = le64toh(log.saturated),
		.doorbells = le64toh(log.doorbells),
		.doorbells_dropped = le64toh(log.doorbells_dropped),
		.wire_ns = le64toh(log.wire_ns),
		.device_ns = le64toh(log.device_ns),
	};
	return 0;
}

/* One command that acts on an object of the context */
static int object_command(struct emu_dev *dev, uint8_t opcode, uint32_t handle)
{
	struct optinc_admin_cmd cmd = {
		.opcode = opcode,
		.ctx = htole32(dev->ctx),
		.handle = htole32(handle),
	};

	return emu_command(dev, &cmd, NULL, NULL);
}

static bool is_mapped(const struct emu_dev *dev, uintptr_t first, uintptr_t end)
{
	unsigned char resident[4096];
	size_t piece = sizeof(resident) * dev->page_size;

	for (; first < end; first += piece) {
		if (piece > end - first)
			piece = end - first;
		if (mincore((void *)first, piece, resident))
			return false;
	}
	return true;
}

/*
 * May the pages be read, or written? The kernel is asked to fault them in,
 * which changes nothing in them. One that cannot (before 5.14, or a kind of
 * memory without pages) says EINVAL for all, and then it is taken for granted.
 */
static bool is_accessible(const struct emu_dev *dev, uintptr_t page, bool write)
{
#ifdef MADV_POPULATE_WRITE
	int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
	void *probe = dev->data;

	if (!madvise((void *)page, dev->page_size, advice))
		return true;
	return madvise(probe, dev->page_size, advice) && errno == EINVAL;
#else
	(void)dev;
	(void)page;
	(void)write;
	return true;
#endif
}

/*
 * The card reaches user memory as this process does. What the driver learns
 * by pinning is asked here: is it mapped from end to end, and are both ends
 * of the right kind? No pins are kept.
 */
static int check_memory(const struct emu_dev *dev, uint64_t addr, uint64_t length, bool write)
{
	uintptr_t first = (uintptr_t)addr & ~(dev->page_size - 1);
	uintptr_t last = (uintptr_t)(addr + length - 1) & ~(dev->page_size - 1);

	if (!is_mapped(dev, first, last + dev->page_size))
		return -EFAULT;
	if (!is_accessible(dev, first, write) || !is_accessible(dev, last, write))
		return -EFAULT;
	return 0;
}

static int register_region(struct emu_dev *dev, struct optinc_mr_reg *reg)
{
	struct optinc_hw_segment *segment = dev->data;
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_MR_REG,
		.ctx = htole32(dev->ctx),
		.addr = htole64(dma(segment)),
		.length = htole32(sizeof(*segment)),
		.mr_reg.length = htole64(reg->length),
		.mr_reg.segments = htole32(1),
		.mr_reg.access = htole32(reg->flags & OPTINC_MR_WRITE),
	};
	int rc;

	emu_lock(dev);
	segment->addr = htole64(reg->addr);
	segment->length = htole64(reg->length);
	rc = emu_command(dev, &cmd, &reg->mr, NULL);
	emu_unlock(dev);
	return rc;
}

int emu_mr_reg(struct emu_dev *dev, void *arg)
{
	struct optinc_mr_reg *reg = arg;
	int rc;

	/* DMABUF and CACHE are features, and not offered */
	if (reg->flags & ~(uint32_t)OPTINC_MR_WRITE)
		return -EOPNOTSUPP;
	if (!reg->length || reg->length > le64toh(dev->id.max_mr_bytes) ||
	    reg->addr > UINTPTR_MAX - reg->length || reg->fd != -1)
		return -EINVAL;
	rc = check_memory(dev, reg->addr, reg->length, reg->flags & OPTINC_MR_WRITE);
	return rc ? rc : register_region(dev, reg);
}

int emu_mr_dereg(struct emu_dev *dev, void *arg)
{
	const struct optinc_mr_dereg *dereg = arg;
	int rc;

	emu_lock(dev);
	rc = object_command(dev, OPTINC_ADMIN_MR_DEREG, dereg->mr);
	emu_unlock(dev);
	return rc;
}

static bool ring_size_is_valid(const struct emu_dev *dev, uint32_t entries)
{
	return entries >= 2 && entries <= le32toh(dev->id.max_queue) && !(entries & (entries - 1));
}

/* Our own descriptor of the caller's eventfd, or -1 for none */
static int take_eventfd(int fd, int *own)
{
	char link[64], name[32];
	ssize_t n;

	*own = -1;
	if (fd == -1)
		return 0;
	*own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (*own < 0)
		return errno == EBADF ? -EBADF : -ENOMEM;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", *own);
	n = readlink(link, name, sizeof(name) - 1);
	name[n < 0 ? 0 : n] = '\0';
	/* without /proc there is no telling; a write will show */
	if (n < 0 || !strcmp(name, "anon_inode:[eventfd]"))
		return 0;
	close(*own);
	*own = -1;
	return -EINVAL;
}

static struct emu_qp *free_qp(struct emu_dev *dev)
{
	unsigned int i;

	for (i = 0; i < EMU_QPS; i++) {
		if (!atomic_load(&dev->qps[i].id))
			return &dev->qps[i];
	}
	return NULL;
}

static struct emu_qp *find_qp(struct emu_dev *dev, uint32_t id)
{
	unsigned int i;

	for (i = 0; id && i < EMU_QPS; i++) {
		if (atomic_load(&dev->qps[i].id) == id)
			return &dev->qps[i];
	}
	return NULL;
}

/* Vector 0 is the admin queue's, and shared only where there is no other. */
static uint16_t choose_vector(struct emu_dev *dev)
{
	if (dev->vectors == 1)
		return 0;
	return (uint16_t)(1 + dev->next_vector++ % (dev->vectors - 1));
}

static int create_qp(struct emu_dev *dev, struct emu_qp *qp, struct optinc_qp_create *create,
		     struct emu_rings *rings)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_QP_CREATE,
		.ctx = htole32(dev->ctx),
		.qp_create.sq_addr = htole64(dma(rings->sq)),
		.qp_create.cq_addr = htole64(dma(rings->cq)),
		.qp_create.sq_entries = htole16((uint16_t)create->sq_entries),
		.qp_create.cq_entries = htole16((uint16_t)create->cq_entries),
	};
	int rc;

	qp->vector = qp->eventfd < 0 ? OPTINC_NO_VECTOR : choose_vector(dev);
	cmd.qp_create.vector = htole16(qp->vector);
	rc = emu_command(dev, &cmd, &create->qp, NULL);
	if (rc)
		return rc;
	pthread_mutex_lock(&dev->wait_lock);
	qp->rings = rings;
	atomic_store(&qp->armed, false);
	atomic_store(&qp->id, create->qp);
	pthread_mutex_unlock(&dev->wait_lock);
	create->sq_offset = emu_ring_offset(create->qp, false);
	create->cq_offset = emu_ring_offset(create->qp, true);
	return 0;
}

static int add_qp(struct emu_dev *dev, struct optinc_qp_create *create, struct emu_rings *rings,
		  int eventfd)
{
	struct emu_qp *qp;
	int rc = -ENOSPC;

	emu_lock(dev);
	qp = free_qp(dev);
	if (qp) {
		qp->eventfd = eventfd;
		rc = create_qp(dev, qp, create, rings);
		if (rc)
			qp->eventfd = -1;
	}
	emu_unlock(dev);
	return rc;
}

int emu_qp_create(struct emu_dev *dev, void *arg)
{
	struct optinc_qp_create *create = arg;
	struct emu_rings *rings;
	int eventfd, rc;

	if (create->flags)
		return -EOPNOTSUPP;
	if (!ring_size_is_valid(dev, create->sq_entries) ||
	    !ring_size_is_valid(dev, create->cq_entries) ||
	    create->cq_entries < create->sq_entries)
		return -EINVAL;
	rc = take_eventfd(create->eventfd, &eventfd);
	if (rc)
		return rc;
	rings = emu_rings_new(dev, create->sq_entries, create->cq_entries);
	rc = rings ? add_qp(dev, create, rings, eventfd) : -ENOMEM;
	if (!rc)
		return 0;
	if (rings)
		emu_rings_put(dev, rings);
	if (eventfd >= 0)
		close(eventfd);
	return rc;
}

void emu_qp_forget(struct emu_dev *dev, struct emu_qp *qp)
{
	struct emu_rings *rings = qp->rings;

	if (atomic_exchange(&qp->armed, false))
		atomic_fetch_sub(&dev->armed, 1);
	pthread_mutex_lock(&dev->wait_lock);
	qp->rings = NULL;
	atomic_store(&qp->id, 0);
	atomic_store(&rings->dead, true);
	pthread_mutex_unlock(&dev->wait_lock);
	if (qp->eventfd >= 0)
		close(qp->eventfd);
	qp->eventfd = -1;
	emu_wake_done(dev);
	emu_rings_put(dev, rings);
}

int emu_qp_destroy(struct emu_dev *dev, void *arg)
{
	const struct optinc_qp_destroy *destroy = arg;
	struct emu_qp *qp;
	int rc = -ENOENT;

	emu_lock(dev);
	qp = find_qp(dev, destroy->qp);
	if (qp)
		rc = object_command(dev, OPTINC_ADMIN_QP_DESTROY, destroy->qp);
	if (!rc)
		emu_qp_forget(dev, qp);
	emu_unlock(dev);
	return rc;
}

static struct emu_group *find_group(struct emu_dev *dev, uint32_t handle)
{
	unsigned int i;

	for (i = 0; handle && i < EMU_GROUPS; i++) {
		if (atomic_load(&dev->groups[i].handle) == handle)
			return &dev->groups[i];
	}
	return NULL;
}

static struct emu_group *free_group(struct emu_dev *dev)
{
	unsigned int i;

	for (i = 0; i < EMU_GROUPS; i++) {
		if (!atomic_load(&dev->groups[i].handle))
			return &dev->groups[i];
	}
	return NULL;
}

/* Values that this card does not know or offer; the rest the card checks. */
static bool join_is_offered(const struct emu_dev *dev, const struct optinc_group_join *join)
{
	uint64_t fit = le64toh(dev->id.dtypes);

	if (join->bits == 8)
		fit &= ~DTYPE(I16);
	else if (join->bits == 16)
		fit &= ~DTYPE(I8);
	else
		return false;
	return le64toh(dev->id.code_bits) >> join->bits & 1 &&
	       join->format == le32toh(dev->id.format_version) && !(join->dtypes & ~fit);
}

static int join(struct emu_dev *dev, struct optinc_group_join *from, struct emu_group *group)
{
	struct optinc_hw_join *to = dev->data;
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_GROUP_JOIN,
		.ctx = htole32(dev->ctx),
		.addr = htole64(dma(to)),
		.length = htole32(sizeof(*to)),
	};
	int rc;

	*to = (struct optinc_hw_join) {
		.rank = htole32(from->rank),
		.nranks = htole32(from->nranks),
		.bits = htole32(from->bits),
		.format = htole32(from->format),
		.dtypes = htole64(from->dtypes),
		.deadline_ms = htole32(from->deadline_ms),
	};
	memcpy(to->key, from->key, sizeof(to->key));
	rc = emu_command(dev, &cmd, &from->group, NULL);
	if (rc)
		return rc;
	atomic_store(&group->changed, false);
	atomic_store(&group->handle, from->group);
	atomic_fetch_add(&dev->joining, 1);
	return 0;
}

int emu_group_join(struct emu_dev *dev, void *arg)
{
	struct optinc_group_join *from = arg;
	struct emu_group *group;
	int rc = -ENOSPC;

	if (from->flags || !join_is_offered(dev, from))
		return -EOPNOTSUPP;
	emu_lock(dev);
	group = free_group(dev);
	if (group)
		rc = join(dev, from, group);
	emu_unlock(dev);
	/* somebody has to drive it if the caller does not wait */
	if (!rc)
		emu_service_need(dev);
	return rc;
}

static int query_group(struct emu_dev *dev, uint32_t handle, struct optinc_hw_group_state *state)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_GROUP_QUERY,
		.ctx = htole32(dev->ctx),
		.handle = htole32(handle),
		.addr = htole64(dma(dev->data)),
		.length = htole32(sizeof(*state)),
	};
	int rc;

	emu_lock(dev);
	rc = emu_command(dev, &cmd, NULL, NULL);
	memcpy(state, dev->data, sizeof(*state));
	emu_unlock(dev);
	return rc;
}

static void wait_for_group(struct emu_dev *dev, uint32_t handle, uint32_t timeout_ms)
{
	struct emu_waiter waiter = { .handle = handle };

	emu_lock(dev);
	waiter.group = find_group(dev, handle);
	emu_unlock(dev);
	if (waiter.group && timeout_ms)
		emu_wait_for(dev, &waiter, timeout_ms * NSEC_PER_MSEC);
}

int emu_group_wait(struct emu_dev *dev, void *arg)
{
	struct optinc_group_wait *wait = arg;
	struct optinc_hw_group_state state;
	int rc;

	if (wait->__reserved)
		return -EOPNOTSUPP;
	wait_for_group(dev, wait->group, wait->timeout_ms);
	rc = query_group(dev, wait->group, &state);
	if (rc)
		return rc;
	wait->state = le32toh(state.state);
	wait->status = le32toh(state.status);
	wait->peer = le16toh(state.peer);
	wait->mismatch = le16toh(state.mismatch);
	wait->joined = le32toh(state.joined);
	return 0;
}

int emu_group_leave(struct emu_dev *dev, void *arg)
{
	const struct optinc_group_leave *leave = arg;
	struct emu_group *group;
	int rc = -ENOENT;

	emu_lock(dev);
	group = find_group(dev, leave->group);
	if (group)
		rc = object_command(dev, OPTINC_ADMIN_GROUP_LEAVE, leave->group);
	if (!rc) {
		if (!atomic_exchange(&group->changed, true))
			atomic_fetch_sub(&dev->joining, 1);
		atomic_store(&group->handle, 0);
		emu_wake_done(dev);
	}
	emu_unlock(dev);
	return rc;
}

int emu_group_abort(struct emu_dev *dev, void *arg)
{
	const struct optinc_group_abort *abort = arg;
	int rc;

	emu_lock(dev);
	rc = object_command(dev, OPTINC_ADMIN_GROUP_ABORT, abort->group);
	emu_unlock(dev);
	return rc;
}
