// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * BAR0. Accesses only read and note; card_regs_step() obeys, because a door
 * may have to answer the host's access before the card may reach its memory.
 *
 * A reserved or write-only register reads as zero; a write to one that is
 * reserved or read-only is ignored.
 */
#include "emulator/card/internal.h"

void card_regs_init(struct card *card)
{
	card->control = 0;
	card->status = 0;
	card->admin_size = 0;
	card->admin_sq[0] = card->admin_sq[1] = 0;
	card->admin_cq[0] = card->admin_cq[1] = 0;
	card->attention = false;
	card->quiet = true;
	card->lane_event = false;
	card->lanes_up = fabric_lanes_up(card->port);
	card->requests_done = 0;
	card->requests_failed = 0;
	atomic_store(&card->doorbells, 0);
	atomic_store(&card->dropped, 0);
	fabric_counters(card->port, &card->base);
}

/* Doorbell pages of the chosen stride, 6.2 */
unsigned int card_pages(const struct card *card)
{
	unsigned int n = card_field(card->control, OPTINC_CONTROL_DB_STRIDE);
	unsigned int fit = CARD_BAR2_BYTES / (4096U << n);

	return fit < CARD_CONTEXTS ? fit : CARD_CONTEXTS;
}

static uint32_t cap0(const struct card *card)
{
	return card_prep(card->config.timeout ?: CARD_TIMEOUT, OPTINC_CAP0_TIMEOUT) |
	       (card->config.no_isolation ? 0 : OPTINC_CAP0_ISOLATION) |
	       card_prep(CARD_DMA_BITS, OPTINC_CAP0_DMA_BITS) |
	       card_prep(CARD_ADMIN_ENTRIES, OPTINC_CAP0_ADMIN_ENTRIES);
}

static uint32_t cap1(const struct card *card)
{
	return card_prep(card->config.vectors, OPTINC_CAP1_VECTORS) |
	       card_prep(CARD_CONTEXTS, OPTINC_CAP1_CONTEXTS);
}

/* All ones stand for a card that is gone. */
static uint32_t dropped(const struct card *card)
{
	uint64_t n = atomic_load(&card->dropped);

	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX - 1;
}

/* The two halves of the clock fit together when the low one is read first. */
static uint32_t clock_lo(struct card *card)
{
	uint64_t now = fabric_clock_ns();

	card->clock_hi = (uint32_t)(now >> 32);
	return (uint32_t)now;
}

uint32_t card_read(struct card *card, uint32_t offset)
{
	switch (offset) {
	case OPTINC_REG_MAGIC:
		return OPTINC_MAGIC;
	case OPTINC_REG_VERSION:
		return card_prep(OPTINC_INTERFACE_MAJOR, OPTINC_VERSION_MAJOR_MASK) |
		       card_prep(OPTINC_INTERFACE_MINOR, OPTINC_VERSION_MINOR_MASK);
	case OPTINC_REG_CAP0:
		return cap0(card);
	case OPTINC_REG_CAP1:
		return cap1(card);
	case OPTINC_REG_CONTROL:
		return card->control;
	case OPTINC_REG_STATUS:
		return card->status;
	case OPTINC_REG_ADMIN_SIZE:
		return card->admin_size;
	case OPTINC_REG_ADMIN_SQ_LO:
	case OPTINC_REG_ADMIN_SQ_HI:
		return card->admin_sq[offset == OPTINC_REG_ADMIN_SQ_HI];
	case OPTINC_REG_ADMIN_CQ_LO:
	case OPTINC_REG_ADMIN_CQ_HI:
		return card->admin_cq[offset == OPTINC_REG_ADMIN_CQ_HI];
	case OPTINC_REG_FW_STATE:
		return OPTINC_FW_RUNNING;
	case OPTINC_REG_CLOCK_LO:
		return clock_lo(card);
	case OPTINC_REG_CLOCK_HI:
		return card->clock_hi;
	case OPTINC_REG_DB_DROPPED:
		return dropped(card);
	default:
		return 0;
	}
}

/*
 * While the card still ends what ENABLE had begun, it takes no new ENABLE:
 * the host waits for READY to go.
 */
static void write_control(struct card *card, uint32_t value)
{
	bool enable = value & OPTINC_CONTROL_ENABLE;

	if (card->control & OPTINC_CONTROL_ENABLE) {
		if (!enable)
			card->control &= ~OPTINC_CONTROL_ENABLE;
	} else if (enable && !card_ready(card)) {
		card->control = OPTINC_CONTROL_ENABLE | (value & OPTINC_CONTROL_DB_STRIDE);
	}
	card->attention = true;
}

/* Where commands and completions lie may change only while nobody uses it. */
static void write_admin(struct card *card, uint32_t offset, uint32_t value)
{
	if (card->control & OPTINC_CONTROL_ENABLE || card_ready(card))
		return;

	switch (offset) {
	case OPTINC_REG_ADMIN_SIZE:
		card->admin_size = value;
		return;
	case OPTINC_REG_ADMIN_SQ_LO:
	case OPTINC_REG_ADMIN_SQ_HI:
		card->admin_sq[offset == OPTINC_REG_ADMIN_SQ_HI] = value;
		return;
	default:
		card->admin_cq[offset == OPTINC_REG_ADMIN_CQ_HI] = value;
	}
}

static bool takes_commands(const struct card *card)
{
	return card_ready(card) && card->control & OPTINC_CONTROL_ENABLE;
}

static void write_admin_tail(struct card *card, uint32_t value)
{
	struct card_admin *admin = &card->admin;
	uint16_t more = (uint16_t)(value - admin->sq_tail);
	uint16_t unread = (uint16_t)(admin->sq_tail - admin->sq_head);
	uint16_t owed = (uint16_t)(admin->sq_tail - admin->cq_head);

	if (!takes_commands(card) || value > UINT16_MAX)
		return;
	if (more > admin->sq_entries - unread || more > admin->cq_entries - owed)
		return;
	admin->sq_tail = (uint16_t)value;
	card->attention = true;
}

static void write_admin_head(struct card *card, uint32_t value)
{
	struct card_admin *admin = &card->admin;

	if (!takes_commands(card) || value > UINT16_MAX)
		return;
	if ((uint16_t)(value - admin->cq_head) > (uint16_t)(admin->cq_tail - admin->cq_head))
		return;
	admin->cq_head = (uint16_t)value;
}

static void write_reset(struct card *card, uint32_t value)
{
	if (value != OPTINC_RESET_KEY)
		return;
	atomic_store(&card->live, false);
	card->status = OPTINC_STATUS_RESETTING;
	card->quiet = true;
	card->attention = true;
}

void card_write(struct card *card, uint32_t offset, uint32_t value)
{
	if (card->status & OPTINC_STATUS_RESETTING)
		return;
	if (offset == OPTINC_REG_RESET)
		write_reset(card, value);
	if (card->status & (OPTINC_STATUS_FATAL | OPTINC_STATUS_RESETTING))
		return;

	switch (offset) {
	case OPTINC_REG_CONTROL:
		write_control(card, value);
		return;
	case OPTINC_REG_ADMIN_SIZE:
	case OPTINC_REG_ADMIN_SQ_LO:
	case OPTINC_REG_ADMIN_SQ_HI:
	case OPTINC_REG_ADMIN_CQ_LO:
	case OPTINC_REG_ADMIN_CQ_HI:
		write_admin(card, offset, value);
		return;
	case OPTINC_REG_ADMIN_SQ_TAIL:
		write_admin_tail(card, value);
		return;
	case OPTINC_REG_ADMIN_CQ_HEAD:
		write_admin_head(card, value);
		return;
	}
}

/*
 * No way to go on: only a reset helps. May be called from deep within a
 * command, so card_regs_step() tells the peers.
 */
void card_fatal(struct card *card, uint32_t code)
{
	atomic_store(&card->live, false);
	card->status = OPTINC_STATUS_FATAL | card_prep(code, OPTINC_STATUS_FATAL_CODE);
	card->quiet = true;
	card->attention = true;
}

static bool enable(struct card *card)
{
	card->quiet = false;
	if (!card_admin_start(card))
		return true;		/* fatal, by now */
	card->status = OPTINC_STATUS_READY;
	atomic_store(&card->live, true);
	return true;
}

static bool disable(struct card *card)
{
	card_teardown(card);
	card->status &= ~OPTINC_STATUS_READY;
	return true;
}

bool card_regs_step(struct card *card)
{
	bool enabled = card->control & OPTINC_CONTROL_ENABLE;

	card->attention = false;
	if (card->status & OPTINC_STATUS_RESETTING) {
		card_reset(card);
		return true;
	}
	if (card->status & OPTINC_STATUS_FATAL)
		return disable(card);
	if (enabled && !card_ready(card))
		return enable(card);
	if (!enabled && card_ready(card))
		return disable(card);
	return card_ready(card) && card_admin_step(card);
}
