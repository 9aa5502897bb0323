// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * PCI configuration space.
 *
 * Four masks beside the bytes say what a write does to each bit and what a
 * function-level reset leaves. What acts on the card, Bus Master Enable, the
 * power state, MSI-X enable, is read from the bytes when it is needed.
 */
#include <linux/pci_regs.h>
#include <string.h>

#include "emulator/vfio-user/internal.h"

#define PM_AT		0x40
#define MSIX_AT		0x50
#define EXP_AT		0x60
#define AER_AT		0x100

#define COMMAND_WRITABLE \
	(PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_PARITY | PCI_COMMAND_SERR | \
	 PCI_COMMAND_INTX_DISABLE)
#define STATUS_CLEARS \
	(PCI_STATUS_PARITY | PCI_STATUS_SIG_TARGET_ABORT | PCI_STATUS_REC_TARGET_ABORT | \
	 PCI_STATUS_REC_MASTER_ABORT | PCI_STATUS_SIG_SYSTEM_ERROR | PCI_STATUS_DETECTED_PARITY)

/* PCI Express 5.0, x16: what QEMU's root ports train to, at most */
#define LINK_SPEED	PCI_EXP_LNKCAP_SLS_32_0GB
#define LINK_SPEEDS \
	(PCI_EXP_LNKCAP2_SLS_2_5GB | PCI_EXP_LNKCAP2_SLS_5_0GB | PCI_EXP_LNKCAP2_SLS_8_0GB | \
	 PCI_EXP_LNKCAP2_SLS_16_0GB | PCI_EXP_LNKCAP2_SLS_32_0GB)
#define LINK_WIDTH	(16 << 4)
#define MAX_PAYLOAD	2	/* 512 bytes */

/* Errors that an endpoint without ECRC, ACS and multicast can meet */
#define UNCOR_ERRORS \
	(PCI_ERR_UNC_DLP | PCI_ERR_UNC_POISON_TLP | PCI_ERR_UNC_FCP | PCI_ERR_UNC_COMP_TIME | \
	 PCI_ERR_UNC_COMP_ABORT | PCI_ERR_UNC_UNX_COMP | PCI_ERR_UNC_RX_OVER | \
	 PCI_ERR_UNC_MALF_TLP | PCI_ERR_UNC_UNSUP | PCI_ERR_UNC_INTN)
#define UNCOR_FATAL \
	(PCI_ERR_UNC_DLP | PCI_ERR_UNC_FCP | PCI_ERR_UNC_RX_OVER | PCI_ERR_UNC_MALF_TLP | \
	 PCI_ERR_UNC_INTN)
#define COR_ERRORS \
	(PCI_ERR_COR_RCVR | PCI_ERR_COR_BAD_TLP | PCI_ERR_COR_BAD_DLLP | PCI_ERR_COR_REP_ROLL | \
	 PCI_ERR_COR_REP_TIMER | PCI_ERR_COR_ADV_NFAT | PCI_ERR_COR_INTERNAL)

static void put(uint8_t *bytes, uint32_t at, uint32_t value, unsigned int size)
{
	unsigned int i;

	for (i = 0; i < size; i++)
		bytes[at + i] = (uint8_t)(value >> 8 * i);
}

static uint32_t get16(const struct vu_config_space *space, uint32_t at)
{
	return space->bytes[at] | (uint32_t)space->bytes[at + 1] << 8;
}

static void init_header(struct vu_server *server)
{
	struct vu_config_space *space = &server->space;
	unsigned int bar;

	put(space->bytes, PCI_VENDOR_ID, OPTINC_PCI_VENDOR_EMU, 2);
	put(space->bytes, PCI_DEVICE_ID, OPTINC_PCI_DEVICE_EMU, 2);
	put(space->writable, PCI_COMMAND, COMMAND_WRITABLE, 2);
	put(space->bytes, PCI_STATUS, PCI_STATUS_CAP_LIST, 2);
	put(space->clears, PCI_STATUS, STATUS_CLEARS, 2);
	put(space->bytes, PCI_CLASS_REVISION, OPTINC_PCI_CLASS << 8 | 1, 4);
	put(space->writable, PCI_CACHE_LINE_SIZE, 0xff, 1);
	put(space->bytes, PCI_SUBSYSTEM_VENDOR_ID, OPTINC_PCI_SUBVENDOR_EMU, 2);
	put(space->bytes, PCI_SUBSYSTEM_ID, OPTINC_PCI_SUBDEVICE_EMU, 2);
	put(space->bytes, PCI_CAPABILITY_LIST, PM_AT, 1);
	put(space->writable, PCI_INTERRUPT_LINE, 0xff, 1);
	for (bar = OPTINC_BAR_REGS; bar <= OPTINC_BAR_MSIX; bar += 2) {
		uint32_t at = PCI_BASE_ADDRESS_0 + 4 * bar;

		put(space->bytes, at, PCI_BASE_ADDRESS_MEM_TYPE_64, 4);
		put(space->writable, at, -(uint32_t)vu_region_size(server, bar), 4);
		put(space->writable, at + 4, UINT32_MAX, 4);
	}
}

static void init_pm(struct vu_config_space *space)
{
	put(space->bytes, PM_AT, PCI_CAP_ID_PM | MSIX_AT << 8, 2);
	put(space->bytes, PM_AT + PCI_PM_PMC, 3, 2);
	put(space->bytes, PM_AT + PCI_PM_CTRL, PCI_PM_CTRL_NO_SOFT_RESET, 2);
	put(space->writable, PM_AT + PCI_PM_CTRL, PCI_PM_CTRL_STATE_MASK, 2);
}

static void init_msix(struct vu_server *server)
{
	struct vu_config_space *space = &server->space;

	put(space->bytes, MSIX_AT, PCI_CAP_ID_MSIX | EXP_AT << 8, 2);
	put(space->bytes, MSIX_AT + PCI_MSIX_FLAGS, server->config.vectors - 1, 2);
	put(space->writable, MSIX_AT + PCI_MSIX_FLAGS,
	    PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL, 2);
	put(space->bytes, MSIX_AT + PCI_MSIX_TABLE, OPTINC_BAR_MSIX, 4);
	put(space->bytes, MSIX_AT + PCI_MSIX_PBA, server->pba_offset | OPTINC_BAR_MSIX, 4);
}

static void init_express(struct vu_config_space *space)
{
	put(space->bytes, EXP_AT, PCI_CAP_ID_EXP, 2);
	put(space->bytes, EXP_AT + PCI_EXP_FLAGS, 2 | PCI_EXP_TYPE_ENDPOINT << 4, 2);
	put(space->bytes, EXP_AT + PCI_EXP_DEVCAP,
	    MAX_PAYLOAD | PCI_EXP_DEVCAP_EXT_TAG | PCI_EXP_DEVCAP_RBER | PCI_EXP_DEVCAP_FLR, 4);
	put(space->bytes, EXP_AT + PCI_EXP_DEVCTL,
	    PCI_EXP_DEVCTL_RELAX_EN | PCI_EXP_DEVCTL_NOSNOOP_EN | 2 << 12, 2);
	put(space->writable, EXP_AT + PCI_EXP_DEVCTL,
	    PCI_EXP_DEVCTL_CERE | PCI_EXP_DEVCTL_NFERE | PCI_EXP_DEVCTL_FERE |
	    PCI_EXP_DEVCTL_URRE | PCI_EXP_DEVCTL_RELAX_EN | PCI_EXP_DEVCTL_PAYLOAD |
	    PCI_EXP_DEVCTL_EXT_TAG | PCI_EXP_DEVCTL_NOSNOOP_EN | PCI_EXP_DEVCTL_READRQ, 2);
	put(space->sticky, EXP_AT + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_PAYLOAD, 2);
	put(space->clears, EXP_AT + PCI_EXP_DEVSTA,
	    PCI_EXP_DEVSTA_CED | PCI_EXP_DEVSTA_NFED | PCI_EXP_DEVSTA_FED | PCI_EXP_DEVSTA_URD, 2);
	put(space->bytes, EXP_AT + PCI_EXP_LNKCAP, LINK_SPEED | LINK_WIDTH, 4);
	put(space->writable, EXP_AT + PCI_EXP_LNKCTL,
	    PCI_EXP_LNKCTL_RCB | PCI_EXP_LNKCTL_CCC | PCI_EXP_LNKCTL_ES, 2);
	put(space->sticky, EXP_AT + PCI_EXP_LNKCTL, 0xffff, 2);
	put(space->bytes, EXP_AT + PCI_EXP_LNKSTA, LINK_SPEED | LINK_WIDTH, 2);
	put(space->bytes, EXP_AT + PCI_EXP_DEVCAP2, PCI_EXP_DEVCAP2_COMP_TMOUT_DIS, 4);
	put(space->writable, EXP_AT + PCI_EXP_DEVCTL2, PCI_EXP_DEVCTL2_COMP_TMOUT_DIS, 2);
	put(space->bytes, EXP_AT + PCI_EXP_LNKCAP2, LINK_SPEEDS, 4);
	put(space->bytes, EXP_AT + PCI_EXP_LNKCTL2, LINK_SPEED, 2);
	put(space->writable, EXP_AT + PCI_EXP_LNKCTL2, PCI_EXP_LNKCAP_SLS, 2);
	put(space->sticky, EXP_AT + PCI_EXP_LNKCTL2, 0xffff, 2);
}

/* All of it outlives a function-level reset. */
static void init_aer(struct vu_config_space *space)
{
	put(space->bytes, AER_AT, PCI_EXT_CAP_ID_ERR | 2 << 16, 4);
	put(space->clears, AER_AT + PCI_ERR_UNCOR_STATUS, UNCOR_ERRORS, 4);
	put(space->bytes, AER_AT + PCI_ERR_UNCOR_MASK, PCI_ERR_UNC_INTN, 4);
	put(space->writable, AER_AT + PCI_ERR_UNCOR_MASK, UNCOR_ERRORS, 4);
	put(space->bytes, AER_AT + PCI_ERR_UNCOR_SEVER, UNCOR_FATAL, 4);
	put(space->writable, AER_AT + PCI_ERR_UNCOR_SEVER, UNCOR_ERRORS, 4);
	put(space->clears, AER_AT + PCI_ERR_COR_STATUS, COR_ERRORS, 4);
	put(space->bytes, AER_AT + PCI_ERR_COR_MASK, PCI_ERR_COR_ADV_NFAT | PCI_ERR_COR_INTERNAL,
	    4);
	put(space->writable, AER_AT + PCI_ERR_COR_MASK, COR_ERRORS, 4);
	memset(space->sticky + AER_AT, 0xff, PCI_ERR_ROOT_COMMAND);
}

void vu_config_init(struct vu_server *server)
{
	struct vu_config_space *space = &server->space;

	memset(space, 0, sizeof(*space));
	init_header(server);
	init_pm(space);
	init_msix(server);
	init_express(space);
	init_aer(space);
	memcpy(space->initial, space->bytes, sizeof(space->initial));
}

void vu_config_reset(struct vu_server *server, bool function_level)
{
	struct vu_config_space *space = &server->space;
	uint32_t i;

	for (i = 0; i < VU_CONFIG_BYTES; i++) {
		uint8_t kept = function_level ? space->sticky[i] : 0;

		space->bytes[i] = (space->bytes[i] & kept) | (space->initial[i] & (uint8_t)~kept);
	}
	memset(server->table, 0, server->table_bytes);
}

void vu_config_read(struct vu_server *server, uint32_t offset, void *data, uint32_t count)
{
	memcpy(data, server->space.bytes + offset, count);
}

static void write_byte(struct vu_config_space *space, uint32_t at, uint8_t value)
{
	uint8_t writable = space->writable[at];

	space->bytes[at] = (space->bytes[at] & (uint8_t)~writable) | (value & writable);
	space->bytes[at] &= (uint8_t)~(value & space->clears[at]);
}

/* D1 and D2 are not there: a write of them leaves the state as it is. */
static void write_power(struct vu_config_space *space, uint8_t value)
{
	uint8_t state = value & PCI_PM_CTRL_STATE_MASK;

	if (state == 1 || state == 2)
		value ^= state ^ (space->bytes[PM_AT + PCI_PM_CTRL] & PCI_PM_CTRL_STATE_MASK);
	write_byte(space, PM_AT + PCI_PM_CTRL, value);
}

void vu_config_write(struct vu_server *server, uint32_t offset, const void *data, uint32_t count)
{
	const uint8_t *bytes = data;
	bool flr = false;
	uint32_t i;

	for (i = 0; i < count; i++) {
		if (offset + i == PM_AT + PCI_PM_CTRL)
			write_power(&server->space, bytes[i]);
		else
			write_byte(&server->space, offset + i, bytes[i]);
		if (offset + i == EXP_AT + PCI_EXP_DEVCTL + 1)
			flr = bytes[i] & PCI_EXP_DEVCTL_BCR_FLR >> 8;
	}
	if (flr) {
		vu_config_reset(server, true);
		vu_reset(server);
	}
}

bool vu_may_master(const struct vu_server *server)
{
	const struct vu_config_space *space = &server->space;

	return get16(space, PCI_COMMAND) & PCI_COMMAND_MASTER &&
	       !(get16(space, PM_AT + PCI_PM_CTRL) & PCI_PM_CTRL_STATE_MASK);
}

bool vu_msix_enabled(const struct vu_server *server)
{
	return get16(&server->space, MSIX_AT + PCI_MSIX_FLAGS) & PCI_MSIX_FLAGS_ENABLE;
}
