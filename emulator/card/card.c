// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The emulated card: making, driving and ending it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/card/internal.h"

uint32_t card_handle(struct card *card, uint32_t slot)
{
	uint32_t handle;

	do {
		handle = ++card->handles * CARD_HANDLE_SLOTS + slot;
	} while (handle < CARD_HANDLE_SLOTS);
	return handle;
}

int card_new(const struct card_config *config, const struct card_host_ops *ops, void *host,
	     struct card **card, char *error, size_t error_size)
{
	struct card *c;
	int rc;

	if (config->vectors < 1 || config->vectors > OPTINC_CAP1_VECTORS) {
		snprintf(error, error_size, "a card has 1 to %u interrupt vectors, not %u",
			 OPTINC_CAP1_VECTORS, config->vectors);
		return -EINVAL;
	}

	c = aligned_alloc(_Alignof(struct card), sizeof(*c));
	if (!c) {
		snprintf(error, error_size, "out of memory");
		return -ENOMEM;
	}
	memset(c, 0, sizeof(*c));
	c->config = *config;
	c->ops = ops;
	c->host = host;
	rc = fabric_attach(&config->fabric, &c->port, error, error_size);
	if (rc) {
		free(c);
		return rc;
	}
	card_regs_init(c);
	*card = c;
	return 0;
}

/*
 * Ends all contexts. The host hears nothing of it, but the peers do: leaving
 * the groups completes their requests, and no region is reached any more.
 */
void card_teardown(struct card *card)
{
	unsigned int i;

	atomic_store(&card->live, false);
	card->quiet = true;
	for (i = 0; i < CARD_CONTEXTS; i++) {
		if (card->contexts[i].handle)
			card_context_end(card, &card->contexts[i]);
	}
	memset(&card->admin, 0, sizeof(card->admin));
	atomic_store(&card->rung, 0);
}

void card_reset(struct card *card)
{
	card->calls++;
	card_teardown(card);
	card_regs_init(card);
}

void card_free(struct card *card)
{
	if (!card)
		return;
	card->calls++;
	card_teardown(card);
	fabric_detach(card->port);
	free(card);
}

static void look_at_lanes(struct card *card)
{
	unsigned int up = fabric_lanes_up(card->port);

	if (up == card->lanes_up)
		return;
	card->lanes_up = up;
	card->lane_event = true;
	card->attention = true;
}

bool card_step(struct card *card)
{
	bool did = false;

	card->calls++;
	if (card->attention)
		did |= card_regs_step(card);
	if (!card_ready(card))
		return did;

	if (atomic_load_explicit(&card->rung, memory_order_relaxed))
		did |= card_queues_step(card);
	did |= fabric_step(card->port);
	/* lanes are slow to change, and steps that do nothing are many */
	if (!did && card->admin.events && card->calls % 256 == 0)
		look_at_lanes(card);
	/* what the fabric had to tell: the host should not wait for it */
	if (card->attention)
		did |= card_regs_step(card);
	return did;
}

static bool has_work(void *arg)
{
	struct card *card = arg;

	return card->attention || atomic_load(&card->rung) || atomic_load(&card->kicked);
}

void card_sleep(struct card *card, uint64_t timeout_ns)
{
	card->calls++;
	fabric_sleep(card->port, timeout_ns, has_work, card);
	atomic_store_explicit(&card->kicked, false, memory_order_relaxed);
}

void card_kick(struct card *card)
{
	/* it may be on its way to sleep */
	atomic_store(&card->kicked, true);
	fabric_kick(card->port);
}

bool card_busy(const struct card *card)
{
	/* what is in a ring and not taken has rung */
	return atomic_load_explicit(&card->rung, memory_order_relaxed) ||
	       atomic_load_explicit(&card->taken, memory_order_relaxed);
}

bool card_crowded(const struct card *card)
{
	return fabric_crowded(card->port);
}
