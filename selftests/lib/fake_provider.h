/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A card for tests of the library alone: in process, no fabric behind it, and
 * as wrong as the test asks for. It checks submission entries as a card has
 * to, and keeps them until it is told how to complete them.
 *
 * Its groups are of ranks that all hold what this one holds.
 */
#ifndef FAKE_PROVIDER_H
#define FAKE_PROVIDER_H

#include <stdbool.h>
#include <stdint.h>

#include <optinc/optinc.h>

#include "lib/provider.h"

#define FAKE_PENDING	4096
#define FAKE_IOCTLS	16

enum fake_mode {
	FAKE_AT_ONCE,		/* complete within the doorbell */
	FAKE_ON_RELAX,		/* one at each relax() or wait() */
	FAKE_HOLD,		/* only fake_complete() does */
};

/* How to complete a request; all zero is success. */
struct fake_completion {
	uint32_t status;
	uint8_t peer;
	uint8_t mismatch;
	uint16_t cmd_id_xor;	/* wrong on purpose: */
	uint32_t tag_xor;
	uint16_t sq_head_add;
	bool old_phase;		/* write the entry with the phase of the last pass */
	bool twice;
};

/*
 * The knobs and counters of the one card there is. Set them while no other
 * thread uses the card.
 */
struct fake {
	struct optinc_query query;
	struct optinc_stats stats;
	enum fake_mode mode;
	int ioctl_error[FAKE_IOCTLS];	/* by number of the ioctl; 0 is none */
	int mmap_error;
	bool context_error;		/* of mmap, of the context page alone */
	int wait_error;
	int open_error;
	struct optinc_open_error open_says;
	struct optinc_group_wait group_says;	/* what GROUP_WAIT fills in */
	bool bad_handles;		/* give 0 for regions and groups */
	bool leave_forgets;		/* leave without completing */
	bool stale_at_birth;		/* memory changes while it is being registered */
	uint64_t pin_limit;		/* bytes of all regions; 0 is none */

	unsigned int opens, closes;
	unsigned int ioctls[FAKE_IOCTLS];
	unsigned int doorbells[2];	/* SQ tail, CQ arm */
	unsigned int relaxes, waits;
	unsigned int live_mrs, live_qps, live_groups, live_maps;
	uint64_t pinned;		/* bytes of all regions */
	unsigned int overruns;		/* tails beyond what the completion ring holds */
	struct optinc_group_join join;	/* the last one */
	struct optinc_qp_create create;
	struct optinc_sqe sqe;		/* the last one */
};

extern struct fake fake;

/* A card with nothing wrong, opened by "fake:anything". */
void fake_init(void);
/* ... that tells when memory changes */
void fake_init_watching(void);
/*
 * The memory is other memory now, with the same content: regions made before
 * have the old pages, and what watches them tells.
 */
void fake_replace(const void *addr, size_t length);
/* Requests taken and not completed, of all groups, oldest first. */
unsigned int fake_pending(void);
/* Complete the @i-th of them; NULL is success. False when there is none. */
bool fake_complete(unsigned int i, const struct fake_completion *how);
/* The same for the oldest request of the group with this tag. */
bool fake_complete_tag(uint32_t tag, const struct fake_completion *how);

/* Open it; rank 1 of 3 in a group of 8 bits. They cannot fail. */
struct optinc_card *fake_card(void);
void fake_params(struct optinc_group_params *params);
struct optinc_group *fake_join(struct optinc_card *card, unsigned int queue);

#endif /* FAKE_PROVIDER_H */
