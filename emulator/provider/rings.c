// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The rings of queue pairs, and the mappings of them and of the doorbell page.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "emulator/provider/internal.h"

#define OFFSET_KIND_SHIFT	20
#define OFFSET_QP_SHIFT		24
#define KIND_SQ			2
#define KIND_CQ			3

static size_t whole_pages(const struct emu_dev *dev, size_t bytes)
{
	return (bytes + dev->page_size - 1) & ~(dev->page_size - 1);
}

static void *ring_memory(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void free_rings(struct emu_rings *rings)
{
	if (rings->sq)
		munmap(rings->sq, rings->sq_bytes);
	if (rings->cq)
		munmap(rings->cq, rings->cq_bytes);
	free(rings);
}

struct emu_rings *emu_rings_new(struct emu_dev *dev, uint32_t sq_entries, uint32_t cq_entries)
{
	struct emu_rings *rings = calloc(1, sizeof(*rings));

	if (!rings)
		return NULL;
	rings->refs = 1;
	rings->cq_entries = cq_entries;
	rings->sq_bytes = whole_pages(dev, sq_entries * sizeof(*rings->sq));
	rings->cq_bytes = whole_pages(dev, cq_entries * sizeof(*rings->cq));
	rings->sq = ring_memory(rings->sq_bytes);
	rings->cq = ring_memory(rings->cq_bytes);
	if (!rings->sq || !rings->cq) {
		free_rings(rings);
		return NULL;
	}
	return rings;
}

void emu_rings_put(struct emu_dev *dev, struct emu_rings *rings)
{
	bool last;

	pthread_mutex_lock(&dev->wait_lock);
	last = !--rings->refs;
	pthread_mutex_unlock(&dev->wait_lock);
	if (last)
		free_rings(rings);
}

struct emu_rings *emu_rings_get(struct emu_dev *dev, uint32_t qp)
{
	struct emu_rings *rings = NULL;
	unsigned int i;

	pthread_mutex_lock(&dev->wait_lock);
	for (i = 0; qp && i < EMU_QPS; i++) {
		if (atomic_load(&dev->qps[i].id) != qp)
			continue;
		rings = dev->qps[i].rings;
		if (rings)
			rings->refs++;
		break;
	}
	pthread_mutex_unlock(&dev->wait_lock);
	return rings;
}

uint64_t emu_ring_offset(uint32_t qp, bool cq)
{
	return (uint64_t)qp << OFFSET_QP_SHIFT |
	       (uint64_t)(cq ? KIND_CQ : KIND_SQ) << OFFSET_KIND_SHIFT;
}

static void *map_failed(int error)
{
	errno = error;
	return MAP_FAILED;
}

/* Takes over the reference to @rings, whatever happens. */
static void *add_mapping(struct emu_dev *dev, struct emu_rings *rings, bool cq, size_t bytes)
{
	struct emu_mapping *mapping;

	if (bytes != (cq ? rings->cq_bytes : rings->sq_bytes)) {
		emu_rings_put(dev, rings);
		return map_failed(EINVAL);
	}
	mapping = malloc(sizeof(*mapping));
	if (!mapping) {
		emu_rings_put(dev, rings);
		return map_failed(ENOMEM);
	}
	mapping->rings = rings;
	mapping->addr = cq ? (void *)rings->cq : (void *)rings->sq;
	mapping->bytes = bytes;
	pthread_mutex_lock(&dev->wait_lock);
	mapping->next = dev->mappings;
	dev->mappings = mapping;
	pthread_mutex_unlock(&dev->wait_lock);
	return mapping->addr;
}

static void *map_ring(struct emu_dev *dev, size_t length, uint64_t offset)
{
	bool cq = (offset >> OFFSET_KIND_SHIFT & 0xf) == KIND_CQ;
	uint64_t qp = offset >> OFFSET_QP_SHIFT;
	struct emu_rings *rings;

	if (qp > UINT16_MAX || offset != emu_ring_offset((uint32_t)qp, cq))
		return map_failed(EINVAL);
	rings = emu_rings_get(dev, (uint32_t)qp);
	if (!rings)
		return map_failed(EINVAL);
	return add_mapping(dev, rings, cq, whole_pages(dev, length));
}

/* All there is to map is for reading and writing, or for either. */
void *emu_mmap(void *arg, size_t length, int prot, uint64_t offset)
{
	struct emu_dev *dev = arg;

	(void)prot;
	if (!emu_here(dev) || atomic_load(&dev->dead))
		return map_failed(ENODEV);
	if (!length || length > SIZE_MAX - dev->page_size)
		return map_failed(EINVAL);
	if (offset != EMU_DOORBELL_OFFSET)
		return map_ring(dev, length, offset);
	if (whole_pages(dev, length) != dev->page_size)
		return map_failed(EINVAL);
	return dev->doorbell_page;
}

/* One mapping of many of the same ring: they are all alike. */
static struct emu_mapping *take_mapping(struct emu_dev *dev, const void *addr, size_t bytes)
{
	struct emu_mapping **at, *mapping;

	pthread_mutex_lock(&dev->wait_lock);
	for (at = &dev->mappings; *at; at = &(*at)->next) {
		if ((*at)->addr == addr && (*at)->bytes == bytes)
			break;
	}
	mapping = *at;
	if (mapping)
		*at = mapping->next;
	pthread_mutex_unlock(&dev->wait_lock);
	return mapping;
}

static int unmap_failed(int error)
{
	errno = error;
	return -1;
}

int emu_munmap(void *arg, void *addr, size_t length)
{
	struct emu_dev *dev = arg;
	struct emu_mapping *mapping;

	if (!emu_here(dev))
		return unmap_failed(ENODEV);
	if (length > SIZE_MAX - dev->page_size)
		return unmap_failed(EINVAL);
	if (addr == dev->doorbell_page && whole_pages(dev, length) == dev->page_size)
		return 0;
	mapping = take_mapping(dev, addr, whole_pages(dev, length));
	if (!mapping)
		return unmap_failed(EINVAL);
	emu_rings_put(dev, mapping->rings);
	free(mapping);
	return 0;
}

void emu_unmap_all(struct emu_dev *dev)
{
	while (dev->mappings)
		emu_munmap(dev, dev->mappings->addr, dev->mappings->bytes);
}
