// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Queue pairs: making and ending them. queue.c runs them.
 */
#include <stdlib.h>
#include <string.h>

#include "emulator/card/internal.h"

_Static_assert(CARD_QPS == 1 << 12, "an id is 12 bits of slot and 4 of generation");
#define ID_SLOTS	CARD_QPS
#define ID_GENERATIONS	16

static struct card_qp *find(const struct card *card, const struct card_context *ctx, uint32_t id)
{
	struct card_qp *qp = card->qps[id % ID_SLOTS];

	return qp && qp->id == id && qp->ctx == ctx ? qp : NULL;
}

static bool values_are_valid(const struct card *card, const struct optinc_admin_cmd *cmd)
{
	uint64_t sq = le64toh(cmd->qp_create.sq_addr);
	uint64_t cq = le64toh(cmd->qp_create.cq_addr);
	uint32_t sq_entries = le16toh(cmd->qp_create.sq_entries);
	uint32_t cq_entries = le16toh(cmd->qp_create.cq_entries);
	uint64_t sq_bytes = sq_entries * sizeof(struct optinc_sqe);
	uint64_t cq_bytes = cq_entries * sizeof(struct optinc_cqe);
	uint16_t vector = le16toh(cmd->qp_create.vector);

	return card_power_of_two(sq_entries) && card_power_of_two(cq_entries) &&
	       sq_entries >= 2 && cq_entries >= sq_entries && cq_entries <= OPTINC_MAX_QUEUE &&
	       sq % CARD_RING_ALIGN == 0 && cq % CARD_RING_ALIGN == 0 &&
	       card_reachable(sq, sq_bytes) && card_reachable(cq, cq_bytes) &&
	       !card_overlap(sq, sq_bytes, cq, cq_bytes) &&
	       (vector < card->config.vectors || vector == OPTINC_NO_VECTOR);
}

static struct card_qp *allocate(struct card *card, uint16_t entries)
{
	struct card_qp *qp;
	unsigned int i;

	if (entries > CARD_REQUESTS - card->requests)
		return NULL;
	qp = calloc(1, sizeof(*qp) + entries * sizeof(qp->requests[0]));
	if (!qp)
		return NULL;
	card->requests += entries;
	for (i = entries; i--;) {
		struct card_request *request = &qp->requests[i];

		request->qp = qp;
		request->fabric.memory = card_mr_ops(1);
		request->fabric.complete = card_request_complete;
		request->next = qp->free;
		qp->free = request;
	}
	return qp;
}

/* There is a free slot: contexts are bounded, and so are their queue pairs. */
static unsigned int take_slot(struct card *card)
{
	unsigned int slot = card->next_qp;

	while (card->qps[slot])
		slot = (slot + 1) % CARD_QPS;
	card->next_qp = (slot + 1) % CARD_QPS;
	return slot;
}

/* The generation runs from 1: no id is 0. */
static uint16_t new_id(struct card *card, unsigned int slot)
{
	uint8_t generation = card->generations[slot] % (ID_GENERATIONS - 1) + 1;

	card->generations[slot] = generation;
	return (uint16_t)(generation * ID_SLOTS + slot);
}

static void open_bell(struct card_qp *qp)
{
	struct card_bell *bell = qp->bell;
	uint32_t start = (uint32_t)qp->id << 16;

	atomic_store(&bell->sq_tail, start);
	atomic_store(&bell->cq_arm, 0);
	atomic_store(&bell->sq_head, 0);
	atomic_store(&bell->cq_tail, 0);
	atomic_store(&bell->sq_entries, qp->sq_entries);
	atomic_store(&bell->cq_entries, qp->cq_entries);
	atomic_store(&bell->owner, (qp->ctx->page + 1U) << 16 | qp->id);
}

static void install(struct card *card, struct card_qp *qp)
{
	unsigned int slot = take_slot(card);

	qp->id = new_id(card, slot);
	qp->bell = &card->bells[slot];
	qp->next = card->chains[slot % 64];
	card->chains[slot % 64] = qp;
	card->qps[slot] = qp;
	qp->ctx->qps++;
	open_bell(qp);
}

uint16_t card_qp_create(struct card *card, struct card_context *ctx,
			const struct optinc_admin_cmd *cmd, struct admin_result *result)
{
	struct card_qp *qp;

	if (!values_are_valid(card, cmd))
		return OPTINC_AST_INVALID_FIELD;
	if (ctx->qps == CARD_CONTEXT_QPS)
		return OPTINC_AST_LIMIT;
	qp = allocate(card, le16toh(cmd->qp_create.cq_entries));
	if (!qp)
		return OPTINC_AST_NO_MEMORY;
	qp->card = card;
	qp->ctx = ctx;
	qp->vector = le16toh(cmd->qp_create.vector);
	qp->sq_entries = le16toh(cmd->qp_create.sq_entries);
	qp->cq_entries = le16toh(cmd->qp_create.cq_entries);
	qp->sq_addr = le64toh(cmd->qp_create.sq_addr);
	qp->cq_addr = le64toh(cmd->qp_create.cq_addr);
	install(card, qp);
	result->handle = qp->id;
	return OPTINC_AST_SUCCESS;
}

void card_qp_give_up(struct card_qp *qp)
{
	unsigned int i;

	for (i = 0; i < qp->cq_entries; i++) {
		if (qp->requests[i].group)
			fabric_abort(qp->requests[i].group->channel);
	}
}

static void unbind_groups(struct card_qp *qp)
{
	struct card *card = qp->card;
	unsigned int i;

	for (i = 0; i < CARD_GROUPS; i++) {
		if (card->groups[i].qp == qp)
			card->groups[i].qp = NULL;
	}
}

/* No request of it is outstanding any more. */
void card_qp_free(struct card_qp *qp)
{
	struct card *card = qp->card;
	unsigned int slot = qp->id % ID_SLOTS;
	struct card_qp **at = &card->chains[slot % 64];

	atomic_store(&qp->bell->owner, 0);
	while (*at != qp)
		at = &(*at)->next;
	*at = qp->next;
	card->qps[slot] = NULL;
	card->requests -= qp->cq_entries;
	qp->ctx->qps--;
	unbind_groups(qp);
	free(qp);
}

uint16_t card_qp_destroy(struct card *card, struct card_context *ctx,
			 const struct optinc_admin_cmd *cmd, struct admin_result *result)
{
	struct card_qp *qp = find(card, ctx, le32toh(cmd->handle));

	(void)result;
	if (!qp)
		return OPTINC_AST_INVALID_HANDLE;
	card_qp_give_up(qp);
	card_qp_free(qp);
	return OPTINC_AST_SUCCESS;
}
