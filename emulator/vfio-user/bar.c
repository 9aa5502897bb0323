// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * BARs: registers and doorbells, which the card has, and the MSI-X table,
 * which is memory here because clients emulate it.
 */
#include <endian.h>
#include <errno.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/vfio-user/internal.h"

#define PBA_ALIGN	2048

static uint32_t round_up(uint32_t n, uint32_t to)
{
	return (n + to - 1) / to * to;
}

int vu_bar_init(struct vu_server *server)
{
	uint32_t vectors = server->config.vectors;
	uint32_t bytes;

	server->table_bytes = vectors * PCI_MSIX_ENTRY_SIZE;
	server->pba_offset = round_up(server->table_bytes, PBA_ALIGN);
	bytes = server->pba_offset + round_up(vectors, 64) / 8;
	server->bar4_bytes = 4096;
	while (server->bar4_bytes < bytes)
		server->bar4_bytes *= 2;
	server->table = calloc(1, server->bar4_bytes);
	return server->table ? 0 : -ENOMEM;
}

uint64_t vu_region_size(const struct vu_server *server, uint32_t region)
{
	switch (region) {
	case VFIO_PCI_BAR0_REGION_INDEX + OPTINC_BAR_REGS:
		return OPTINC_BAR0_BYTES;
	case VFIO_PCI_BAR0_REGION_INDEX + OPTINC_BAR_DOORBELLS:
		return CARD_BAR2_BYTES;
	case VFIO_PCI_BAR0_REGION_INDEX + OPTINC_BAR_MSIX:
		return server->bar4_bytes;
	case VFIO_PCI_CONFIG_REGION_INDEX:
		return VU_CONFIG_BYTES;
	default:
		return 0;
	}
}

/* While a reset waits for the end of a step, the card is as one that resets. */
static uint32_t read_register(struct vu_server *server, uint32_t offset)
{
	if (server->reset_pending && offset == OPTINC_REG_STATUS)
		return OPTINC_STATUS_RESETTING;
	return card_read(server->card, offset);
}

static void write_register(struct vu_server *server, uint32_t offset, uint32_t value)
{
	server->host_ns = fabric_clock_ns();
	if (server->reset_pending)
		return;
	/*
	 * In the midst of a step the card could overwrite what it notes of a
	 * reset: so it gets to know afterwards.
	 */
	if (server->stepping && offset == OPTINC_REG_RESET) {
		server->reset_pending = value == OPTINC_RESET_KEY;
		return;
	}
	card_write(server->card, offset, value);
}

static bool is_word(uint64_t offset, uint32_t count)
{
	return count == 4 && !(offset % 4);
}

void vu_region_read(struct vu_server *server, uint32_t region, uint64_t offset, void *data,
		    uint32_t count)
{
	uint32_t value;

	if (server->pulled) {
		memset(data, 0xff, count);
		return;
	}
	switch (region) {
	case VFIO_PCI_CONFIG_REGION_INDEX:
		vu_config_read(server, (uint32_t)offset, data, count);
		return;
	case OPTINC_BAR_MSIX:
		memcpy(data, server->table + offset, count);
		return;
	case OPTINC_BAR_REGS:
		if (is_word(offset, count)) {
			value = htole32(read_register(server, (uint32_t)offset));
			memcpy(data, &value, sizeof(value));
			return;
		}
		break;
	}
	memset(data, 0, count);
}

static void write_doorbell(struct vu_server *server, uint64_t offset, const void *data,
			   uint32_t count)
{
	uint32_t control = card_read(server->card, OPTINC_REG_CONTROL);
	uint64_t stride = 4096ULL << (control & OPTINC_CONTROL_DB_STRIDE) /
				     (OPTINC_CONTROL_DB_STRIDE & -OPTINC_CONTROL_DB_STRIDE);
	uint32_t value;

	if (server->reset_pending)
		return;
	if (!is_word(offset, count)) {
		/* counted as dropped, as an odd offset is */
		card_doorbell(server->card, (uint32_t)(offset / stride), 1, 0);
		return;
	}
	memcpy(&value, data, sizeof(value));
	card_doorbell(server->card, (uint32_t)(offset / stride), (uint32_t)(offset % stride),
		      le32toh(value));
}

static void write_table(struct vu_server *server, uint64_t offset, const void *data,
			uint32_t count)
{
	if (offset >= server->table_bytes)
		return;		/* pending bits are read only */
	if (count > server->table_bytes - offset)
		count = (uint32_t)(server->table_bytes - offset);
	memcpy(server->table + offset, data, count);
}

void vu_region_write(struct vu_server *server, uint32_t region, uint64_t offset, const void *data,
		     uint32_t count)
{
	uint32_t value;

	if (server->pulled)
		return;
	switch (region) {
	case VFIO_PCI_CONFIG_REGION_INDEX:
		vu_config_write(server, (uint32_t)offset, data, count);
		return;
	case OPTINC_BAR_DOORBELLS:
		write_doorbell(server, offset, data, count);
		return;
	case OPTINC_BAR_MSIX:
		write_table(server, offset, data, count);
		return;
	case OPTINC_BAR_REGS:
		if (!is_word(offset, count))
			return;
		memcpy(&value, data, sizeof(value));
		write_register(server, (uint32_t)offset, le32toh(value));
		return;
	}
}
