// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * MSI-X: an eventfd of the client's for each vector.
 *
 * The client emulates the table and its masks. The fds stay across a reset of
 * the function: they say where the client wants messages, not that there are
 * to be any.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <string.h>
#include <unistd.h>

#include "emulator/vfio-user/internal.h"

void vu_irq_init(struct vu_server *server)
{
	unsigned int i;

	for (i = 0; i < VU_MAX_VECTORS; i++)
		server->vector_fds[i] = -1;
}

static void put_vector(struct vu_server *server, uint32_t vector, int fd)
{
	if (server->vector_fds[vector] >= 0)
		close(server->vector_fds[vector]);
	server->vector_fds[vector] = fd;
}

void vu_irq_drop(struct vu_server *server)
{
	uint32_t i;

	for (i = 0; i < VU_MAX_VECTORS; i++)
		put_vector(server, i, -1);
}

uint32_t vu_irq_count(const struct vu_server *server, uint32_t index)
{
	switch (index) {
	case VFIO_PCI_MSIX_IRQ_INDEX:
		return server->config.vectors;
	case VFIO_PCI_ERR_IRQ_INDEX:
		return 1;	/* clients ask for it; there is never an error to tell */
	default:
		return 0;
	}
}

static void trigger(struct vu_server *server, uint32_t vector)
{
	uint64_t one = 1;
	ssize_t n;

	if (server->vector_fds[vector] < 0)
		return;
	/* fails when the counter is full: then the client has enough to see */
	n = write(server->vector_fds[vector], &one, sizeof(one));
	(void)n;
}

void vu_irq_raise(void *arg, unsigned int vector)
{
	struct vu_server *server = arg;

	if (vector < server->config.vectors && vu_may_master(server) && vu_msix_enabled(server))
		trigger(server, vector);
}

/* Either an fd for each vector, or none: then they have none from now on. */
static int set_fds(struct vu_server *server, uint32_t index, uint32_t start, uint32_t count)
{
	uint32_t i;

	if (server->rx_fd_count && server->rx_fd_count != count)
		return -EINVAL;
	if (index != VFIO_PCI_MSIX_IRQ_INDEX)
		return 0;
	for (i = 0; i < count; i++) {
		int fd = vu_take_fd(server);

		/* a client that gives something else than an eventfd must not stop us */
		if (fd >= 0)
			fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
		put_vector(server, start + i, fd);
	}
	return 0;
}

static int trigger_all(struct vu_server *server, const struct vfio_irq_set *set,
		       const uint8_t *wanted)
{
	uint32_t i;

	if (set->index != VFIO_PCI_MSIX_IRQ_INDEX)
		return 0;
	for (i = 0; i < set->count; i++) {
		if (!wanted || wanted[i])
			trigger(server, set->start + i);
	}
	return 0;
}

int vu_irq_set(struct vu_server *server, const void *payload, size_t size)
{
	struct vfio_irq_set set;
	const size_t fixed = offsetof(struct vfio_irq_set, data);
	uint32_t vectors;

	if (size < fixed)
		return -EINVAL;
	memcpy(&set, payload, fixed);
	if (set.argsz < fixed || set.index >= VFIO_PCI_NUM_IRQS)
		return -EINVAL;
	vectors = vu_irq_count(server, set.index);
	if (set.start > vectors || set.count > vectors - set.start)
		return -EINVAL;
	if ((set.flags & VFIO_IRQ_SET_ACTION_TYPE_MASK) != VFIO_IRQ_SET_ACTION_TRIGGER)
		return -ENOTSUP;

	switch (set.flags & VFIO_IRQ_SET_DATA_TYPE_MASK) {
	case VFIO_IRQ_SET_DATA_NONE:
		if (set.count)
			return trigger_all(server, &set, NULL);
		if (set.index == VFIO_PCI_MSIX_IRQ_INDEX)
			vu_irq_drop(server);
		return 0;
	case VFIO_IRQ_SET_DATA_BOOL:
		if (size - fixed < set.count)
			return -EINVAL;
		return trigger_all(server, &set, (const uint8_t *)payload + fixed);
	case VFIO_IRQ_SET_DATA_EVENTFD:
		return set_fds(server, set.index, set.start, set.count);
	default:
		return -EINVAL;
	}
}
