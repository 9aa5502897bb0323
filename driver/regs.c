// SPDX-License-Identifier: GPL-2.0-only
/*
 * Registers, and the handshakes of sections 4.2, 4.3 and 4.5 of the card
 * interface. Each has the card's own time limit.
 *
 * A card that is gone reads as all ones, which no register but CLOCK may hold:
 * -ENODEV. Numbers that the card gives are checked here before anyone uses
 * them.
 */
#include <linux/bitfield.h>
#include <linux/delay.h>
#include <linux/io.h>

#include "optinc.h"

#define GONE	(~0U)

u32 optinc_read(struct optinc_device *odev, u32 offset)
{
	return readl(odev->regs + offset);
}

void optinc_write(struct optinc_device *odev, u32 offset, u32 value)
{
	writel(value, odev->regs + offset);
}

bool optinc_present(struct optinc_device *odev)
{
	return odev->pdev->error_state != pci_channel_io_perm_failure &&
	       optinc_read(odev, OPTINC_REG_STATUS) != GONE;
}

/* Until (register & @mask) == @value: 0, -ETIMEDOUT or -ENODEV. */
static int poll_register(struct optinc_device *odev, u32 offset, u32 mask, u32 value, u32 *last)
{
	unsigned long deadline = jiffies + odev->timeout;
	unsigned int pause = 20;
	bool late;

	for (;;) {
		/* One more look after the deadline: this thread may have slept over it. */
		late = time_after(jiffies, deadline);
		*last = optinc_read(odev, offset);
		if (*last == GONE && !optinc_present(odev))
			return -ENODEV;
		if ((*last & mask) == value)
			return 0;
		if (late)
			return -ETIMEDOUT;
		usleep_range(pause, 2 * pause);
		pause = min(2 * pause, 5000U);
	}
}

static int check_caps(struct optinc_device *odev, u32 cap0, u32 cap1)
{
	struct device *dev = &odev->pdev->dev;
	unsigned int timeout = FIELD_GET(OPTINC_CAP0_TIMEOUT, cap0);
	unsigned int contexts = FIELD_GET(OPTINC_CAP1_CONTEXTS, cap1);
	unsigned int entries = FIELD_GET(OPTINC_CAP0_ADMIN_ENTRIES, cap0);
	unsigned int order = FIELD_GET(OPTINC_CAP0_DB_STRIDE, cap0);

	odev->dma_bits = FIELD_GET(OPTINC_CAP0_DMA_BITS, cap0);
	odev->cap_isolation = FIELD_GET(OPTINC_CAP0_ISOLATION, cap0);
	odev->cap_vectors = FIELD_GET(OPTINC_CAP1_VECTORS, cap1);
	if (!timeout || !contexts || !odev->cap_vectors || order > 4 || entries < 32 ||
	    entries > 256 || odev->dma_bits < 32 || odev->dma_bits > 64) {
		dev_err(dev, "capabilities %#x, %#x are out of range\n", cap0, cap1);
		return -EIO;
	}

	odev->timeout = msecs_to_jiffies(100 * timeout) + 1;
	odev->admin.entries = rounddown_pow_of_two(min(entries, OPTINC_ADMIN_ENTRIES));
	while ((4096UL << order) < PAGE_SIZE)
		order++;
	odev->stride_order = order;
	odev->db_pages = min_t(u64, contexts, odev->doorbells_bytes >> (12 + order));
	if (!odev->db_pages || !IS_ALIGNED(odev->doorbells, PAGE_SIZE)) {
		dev_err(dev, "no room for a doorbell page\n");
		return -EIO;
	}
	return 0;
}

/* Is it a card, and one that this driver knows? */
int optinc_hw_check(struct optinc_device *odev)
{
	struct device *dev = &odev->pdev->dev;
	u32 magic = optinc_read(odev, OPTINC_REG_MAGIC);
	u32 version, cap0, cap1;

	if (magic != OPTINC_MAGIC) {
		dev_err(dev, "not a card: magic %#x\n", magic);
		return -ENODEV;
	}
	version = optinc_read(odev, OPTINC_REG_VERSION);
	cap0 = optinc_read(odev, OPTINC_REG_CAP0);
	cap1 = optinc_read(odev, OPTINC_REG_CAP1);
	if (version == GONE || cap0 == GONE || cap1 == GONE)
		return -ENODEV;
	if (FIELD_GET(OPTINC_VERSION_MAJOR_MASK, version) != OPTINC_INTERFACE_MAJOR) {
		dev_err(dev, "interface version %lu.%lu is not known\n",
			FIELD_GET(OPTINC_VERSION_MAJOR_MASK, version),
			FIELD_GET(OPTINC_VERSION_MINOR_MASK, version));
		return -EOPNOTSUPP;
	}
	return check_caps(odev, cap0, cap1);
}

/* Firmware runs, and the card is disabled: resets one that was left enabled. */
int optinc_hw_boot(struct optinc_device *odev)
{
	unsigned long deadline = jiffies + odev->timeout;
	u32 state, status;
	bool late;

	for (;;) {
		late = time_after(jiffies, deadline);
		state = optinc_read(odev, OPTINC_REG_FW_STATE);
		if (state == GONE)
			return -ENODEV;
		if (state == OPTINC_FW_RUNNING)
			break;
		if (state != OPTINC_FW_BOOTING)
			return -EIO;
		if (late)
			return -ETIMEDOUT;
		usleep_range(1000, 2000);
	}

	status = optinc_read(odev, OPTINC_REG_STATUS);
	if (status == GONE)
		return -ENODEV;
	if (status || optinc_read(odev, OPTINC_REG_CONTROL) & OPTINC_CONTROL_ENABLE)
		return optinc_hw_reset(odev);
	return 0;
}

int optinc_hw_reset(struct optinc_device *odev)
{
	u32 status;
	int ret;

	if (!optinc_present(odev))
		return -ENODEV;
	optinc_write(odev, OPTINC_REG_RESET, OPTINC_RESET_KEY);
	ret = poll_register(odev, OPTINC_REG_STATUS, OPTINC_STATUS_RESETTING, 0, &status);
	if (ret)
		return ret;
	return status & (OPTINC_STATUS_READY | OPTINC_STATUS_FATAL) ? -EIO : 0;
}

static void write_address(struct optinc_device *odev, u32 offset, dma_addr_t addr)
{
	optinc_write(odev, offset, lower_32_bits(addr));
	optinc_write(odev, offset + 4, upper_32_bits(addr));
}

int optinc_hw_enable(struct optinc_device *odev)
{
	struct optinc_admin *admin = &odev->admin;
	unsigned long deadline = jiffies + odev->timeout;
	u32 status;
	bool late;

	optinc_write(odev, OPTINC_REG_ADMIN_SIZE,
		     FIELD_PREP(OPTINC_ADMIN_SIZE_SQ, admin->entries - 1) |
		     FIELD_PREP(OPTINC_ADMIN_SIZE_CQ, admin->entries - 1));
	write_address(odev, OPTINC_REG_ADMIN_SQ_LO, admin->ring_dma);
	write_address(odev, OPTINC_REG_ADMIN_CQ_LO,
		      admin->ring_dma + ((void *)admin->cq - admin->ring));
	optinc_write(odev, OPTINC_REG_CONTROL, OPTINC_CONTROL_ENABLE |
		     FIELD_PREP(OPTINC_CONTROL_DB_STRIDE, odev->stride_order));

	optinc_trouble(odev, "does not become ready");
	for (;;) {
		late = time_after(jiffies, deadline);
		status = optinc_read(odev, OPTINC_REG_STATUS);
		if (status == GONE)
			return -ENODEV;
		if (status & OPTINC_STATUS_FATAL) {
			optinc_trouble(odev, "refuses to start, fatal code %lu",
				       FIELD_GET(OPTINC_STATUS_FATAL_CODE, status));
			return -EIO;
		}
		if (status & OPTINC_STATUS_READY)
			return 0;
		if (late)
			return -ETIMEDOUT;
		usleep_range(20, 100);
	}
}

int optinc_hw_disable(struct optinc_device *odev)
{
	u32 status;

	if (!optinc_present(odev))
		return -ENODEV;
	optinc_write(odev, OPTINC_REG_CONTROL, 0);
	return poll_register(odev, OPTINC_REG_STATUS, OPTINC_STATUS_READY, 0, &status);
}
