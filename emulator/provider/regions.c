// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Memory regions.
 *
 * Checks come in the order of Documentation/uapi.rst, section 3: flags and
 * reserved members, values, handles.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <sys/mman.h>

#include "emulator/provider/internal.h"

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
		.addr = htole64(emu_dma(segment)),
		.length = htole32(sizeof(*segment)),
	};
	int rc;

	cmd.mr_reg.length = htole64(reg->length);
	cmd.mr_reg.segments = htole32(1);
	cmd.mr_reg.access = htole32(reg->flags & OPTINC_MR_WRITE);
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
	if (reg->flags & ~(uint32_t)OPTINC_MR_WRITE || reg->__reserved)
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
	rc = emu_object_command(dev, OPTINC_ADMIN_MR_DEREG, dereg->mr);
	emu_unlock(dev);
	return rc;
}
