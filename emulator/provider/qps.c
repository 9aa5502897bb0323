// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Queue pairs.
 *
 * Checks come in the order of Documentation/uapi.rst, section 3: flags and
 * reserved members, values, handles.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "emulator/provider/internal.h"

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
	};
	int rc;

	qp->vector = qp->eventfd < 0 ? OPTINC_NO_VECTOR : choose_vector(dev);
	cmd.qp_create.sq_addr = htole64(emu_dma(rings->sq));
	cmd.qp_create.cq_addr = htole64(emu_dma(rings->cq));
	cmd.qp_create.sq_entries = htole16((uint16_t)create->sq_entries);
	cmd.qp_create.cq_entries = htole16((uint16_t)create->cq_entries);
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
		rc = emu_object_command(dev, OPTINC_ADMIN_QP_DESTROY, destroy->qp);
	if (!rc)
		emu_qp_forget(dev, qp);
	emu_unlock(dev);
	return rc;
}
