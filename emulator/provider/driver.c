// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The card's driver: handshakes and admin queue, sections 4 and 5 of
 * Documentation/card-interface.rst from the host's side.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "emulator/provider/internal.h"

/* cmd_ids of events, apart from those of commands that somebody waits for */
#define EVENT_IDS	0x8000

#define SQ_BYTES	(EMU_ADMIN_ENTRIES * sizeof(struct optinc_admin_cmd))
#define CQ_BYTES	(EMU_ADMIN_ENTRIES * sizeof(struct optinc_admin_cqe))

static uint64_t deadline(const struct emu_dev *dev)
{
	return fabric_clock_ns() + dev->timeout_ms * NSEC_PER_MSEC;
}

/* Poll STATUS until the bits of @mask are @value. */
static int await_status(struct emu_dev *dev, uint32_t mask, uint32_t value)
{
	uint64_t until = deadline(dev);
	uint32_t status;

	for (;;) {
		status = card_read(dev->card, OPTINC_REG_STATUS);
		if (status & OPTINC_STATUS_FATAL)
			return -EIO;
		if ((status & mask) == value)
			return 0;
		if (fabric_clock_ns() > until)
			return -ETIMEDOUT;
		if (!card_step(dev->card))
			card_sleep(dev->card, NSEC_PER_MSEC);
	}
}

static void write64(struct emu_dev *dev, uint32_t reg, uint64_t value)
{
	card_write(dev->card, reg, (uint32_t)value);
	card_write(dev->card, reg + 4, (uint32_t)(value >> 32));
}

static int enable(struct emu_dev *dev)
{
	uint32_t entries = EMU_ADMIN_ENTRIES - 1;

	card_write(dev->card, OPTINC_REG_ADMIN_SIZE, entries << 16 | entries);
	write64(dev, OPTINC_REG_ADMIN_SQ_LO, emu_dma(dev->admin.sq));
	write64(dev, OPTINC_REG_ADMIN_CQ_LO, emu_dma(dev->admin.cq));
	card_write(dev->card, OPTINC_REG_CONTROL, OPTINC_CONTROL_ENABLE);
	return await_status(dev, OPTINC_STATUS_READY, OPTINC_STATUS_READY);
}

static void post(struct emu_dev *dev, const struct optinc_admin_cmd *cmd)
{
	struct emu_admin *admin = &dev->admin;

	admin->sq[admin->tail % EMU_ADMIN_ENTRIES] = *cmd;
	admin->tail++;
	card_write(dev->card, OPTINC_REG_ADMIN_SQ_TAIL, admin->tail);
}

static void post_event(struct emu_dev *dev, uint16_t cmd_id)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_ASYNC_EVENT,
		.cmd_id = htole16(cmd_id),
	};

	post(dev, &cmd);
}

void emu_group_changed(struct emu_dev *dev, uint32_t handle)
{
	unsigned int i;

	for (i = 0; i < EMU_GROUPS; i++) {
		struct emu_group *group = &dev->groups[i];

		if (atomic_load(&group->handle) != handle)
			continue;
		if (!atomic_exchange(&group->changed, true))
			atomic_fetch_sub(&dev->joining, 1);
	}
}

static void completed(struct emu_dev *dev, const struct optinc_admin_cqe *cqe)
{
	uint16_t cmd_id = le16toh(cqe->cmd_id);

	if (cmd_id >= EVENT_IDS) {
		if ((le64toh(cqe->result) & OPTINC_EVENT_TYPE) == OPTINC_EVENT_GROUP)
			emu_group_changed(dev, le32toh(cqe->handle));
		post_event(dev, cmd_id);
		return;
	}
	if (dev->admin.waiting && dev->admin.cmd_id == cmd_id) {
		dev->admin.waiting = false;
		dev->admin.done = *cqe;
	}
}

void emu_admin_drain(struct emu_dev *dev)
{
	struct emu_admin *admin = &dev->admin;
	uint16_t phase, status;

	dev->admin_irq = false;
	for (;;) {
		const struct optinc_admin_cqe *cqe = &admin->cq[admin->head % EMU_ADMIN_ENTRIES];

		phase = !(admin->head / EMU_ADMIN_ENTRIES & 1);
		status = le16toh(__atomic_load_n(&cqe->status, __ATOMIC_ACQUIRE));
		if ((status & 1) != phase)
			return;
		admin->head++;
		card_write(dev->card, OPTINC_REG_ADMIN_CQ_HEAD, admin->head);
		completed(dev, cqe);
	}
}

static int to_errno(uint16_t status)
{
	switch (status) {
	case OPTINC_AST_SUCCESS:
		return 0;
	case OPTINC_AST_INVALID_OPCODE:
	case OPTINC_AST_UNSUPPORTED:
		return -EOPNOTSUPP;
	case OPTINC_AST_INVALID_FIELD:
		return -EINVAL;
	case OPTINC_AST_INVALID_HANDLE:
		return -ENOENT;
	case OPTINC_AST_LIMIT:
		return -ENOSPC;
	case OPTINC_AST_BUSY:
		return -EBUSY;
	case OPTINC_AST_NO_MEMORY:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

int emu_command(struct emu_dev *dev, struct optinc_admin_cmd *cmd, uint32_t *handle,
		uint64_t *result)
{
	struct emu_admin *admin = &dev->admin;
	uint64_t until = deadline(dev);

	if (atomic_load(&dev->dead))
		return -ENODEV;
	admin->sequence = (admin->sequence + 1) % EVENT_IDS;
	admin->cmd_id = admin->sequence;
	admin->waiting = true;
	cmd->cmd_id = htole16(admin->cmd_id);
	post(dev, cmd);
	while (admin->waiting) {
		/* the card steps where waiters are woken for what that completes */
		emu_step(dev);
		emu_admin_drain(dev);
		if (admin->waiting && fabric_clock_ns() > until) {
			admin->waiting = false;
			atomic_store(&dev->dead, true);
			return -ETIMEDOUT;
		}
	}
	if (handle)
		*handle = le32toh(admin->done.handle);
	if (result)
		*result = le64toh(admin->done.result);
	return to_errno(le16toh(admin->done.status) >> 1);
}

int emu_object_command(struct emu_dev *dev, uint8_t opcode, uint32_t handle)
{
	struct optinc_admin_cmd cmd = {
		.opcode = opcode,
		.ctx = htole32(dev->ctx),
		.handle = htole32(handle),
	};

	return emu_command(dev, &cmd, NULL, NULL);
}

static int identify(struct emu_dev *dev)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_IDENTIFY,
		.addr = htole64(emu_dma(dev->data)),
		.length = htole32(sizeof(dev->id)),
	};
	uint64_t written;
	int rc = emu_command(dev, &cmd, NULL, &written);

	if (rc)
		return rc;
	if (written != sizeof(dev->id))
		return -EPROTO;
	memcpy(&dev->id, dev->data, sizeof(dev->id));
	return 0;
}

static int create_context(struct emu_dev *dev)
{
	struct optinc_admin_cmd cmd = { .opcode = OPTINC_ADMIN_CTX_CREATE };

	return emu_command(dev, &cmd, &dev->ctx, NULL);
}

static int check_version(struct emu_dev *dev)
{
	uint32_t version = card_read(dev->card, OPTINC_REG_VERSION);

	if (card_read(dev->card, OPTINC_REG_MAGIC) != OPTINC_MAGIC)
		return -ENODEV;
	return version >> 16 == OPTINC_INTERFACE_MAJOR ? 0 : -EPROTO;
}

static int bring_up(struct emu_dev *dev)
{
	int rc = check_version(dev);
	unsigned int i;

	dev->timeout_ms = 100 * (card_read(dev->card, OPTINC_REG_CAP0) & OPTINC_CAP0_TIMEOUT);
	if (!rc)
		rc = enable(dev);
	if (!rc)
		rc = identify(dev);
	if (!rc)
		rc = create_context(dev);
	for (i = 0; !rc && i < EMU_EVENTS; i++)
		post_event(dev, (uint16_t)(EVENT_IDS + i));
	return rc;
}

static void *pages(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

int emu_start(struct emu_dev *dev, char *error, size_t error_size)
{
	int rc;

	dev->admin.sq = pages(SQ_BYTES);
	dev->admin.cq = pages(CQ_BYTES);
	dev->data = pages(dev->page_size);
	if (!dev->admin.sq || !dev->admin.cq || !dev->data) {
		snprintf(error, error_size, "out of memory");
		return -ENOMEM;
	}
	rc = bring_up(dev);
	if (rc)
		snprintf(error, error_size, "the emulated card does not start: %s (status %#x)",
			 strerror(-rc), card_read(dev->card, OPTINC_REG_STATUS));
	return rc;
}

/* Also what is left of a start that failed. */
void emu_stop(struct emu_dev *dev)
{
	card_write(dev->card, OPTINC_REG_CONTROL, 0);
	await_status(dev, OPTINC_STATUS_READY, 0);
	if (dev->admin.sq)
		munmap(dev->admin.sq, SQ_BYTES);
	if (dev->admin.cq)
		munmap(dev->admin.cq, CQ_BYTES);
	if (dev->data)
		munmap(dev->data, dev->page_size);
}
