// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A request's way from its entry through the fabric to its completion.
 */
#include "emulator/card/internal.h"

/* An entry that does not get as far as the fabric; its group does not notice. */
static void answer(struct card_qp *qp, const struct optinc_sqe *sqe, uint32_t status)
{
	struct optinc_cqe cqe = {
		.cmd_id = sqe->cmd_id,
		.tag = sqe->tag,
		.peer = OPTINC_NO_RANK,
	};

	card_qp_complete(qp, &cqe, status);
}

/* What is in the fabric's hands keeps its regions and its group. */
static void hold(struct card_request *request, struct card_group *group)
{
	struct card *card = request->qp->card;

	request->group = group;
	if (request->src)
		request->src->busy++;
	if (request->dst)
		request->dst->busy++;
	if (request->exp)
		request->exp->busy++;
	/* one writer: no locked instruction needed */
	atomic_store_explicit(&card->taken,
			      atomic_load_explicit(&card->taken, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

static void release(struct card_request *request)
{
	struct card *card = request->qp->card;

	request->group = NULL;
	if (request->src)
		request->src->busy--;
	if (request->dst)
		request->dst->busy--;
	if (request->exp)
		request->exp->busy--;
	atomic_store_explicit(&card->taken,
			      atomic_load_explicit(&card->taken, memory_order_relaxed) - 1,
			      memory_order_relaxed);
	request->next = request->qp->free;
	request->qp->free = request;
}

static void fill(struct card_request *request, const struct optinc_sqe *sqe)
{
	struct fabric_request *f = &request->fabric;

	request->cmd_id = sqe->cmd_id;
	f->opcode = sqe->opcode;
	f->flags = sqe->flags;
	f->dtype = sqe->dtype;
	f->redop = sqe->redop;
	f->root = sqe->root;
	f->tag = le32toh(sqe->tag);
	f->count = le64toh(sqe->count);
	f->src = request->src;
	f->dst = request->dst;
	f->exp = request->exp;
	f->src_off = le64toh(sqe->src_off);
	f->dst_off = le64toh(sqe->dst_off);
	f->exp_off = le64toh(sqe->exp_off);
}

/*
 * An entry for a group that has FAILED goes to the fabric all the same: it
 * knows with which cause to complete it. It reaches no memory there.
 */
static uint32_t check(struct card_qp *qp, struct card_group *group,
		      const struct optinc_sqe *sqe, struct card_request *request)
{
	uint32_t status;

	request->src = request->dst = request->exp = NULL;
	if (!group || group->state == OPTINC_GROUP_JOINING || (group->qp && group->qp != qp))
		return OPTINC_ST_INVALID_GROUP;
	if (group->state == OPTINC_GROUP_FAILED)
		return OPTINC_ST_SUCCESS;
	status = card_check_request(qp->ctx, group, sqe, request);
	if (!status)
		group->qp = qp;
	return status;
}

void card_submit(struct card_qp *qp, const struct optinc_sqe *sqe)
{
	uint32_t status = card_check_entry(sqe);
	struct card_request *request = qp->free;
	struct card_group *group;

	if (status || sqe->opcode == OPTINC_OP_NOP) {
		answer(qp, sqe, status);
		return;
	}
	/* credit covers outstanding requests, so there is a free one */
	group = card_group_find(qp->card, qp->ctx, le32toh(sqe->group));
	status = check(qp, group, sqe, request);
	if (status) {
		answer(qp, sqe, status);
		return;
	}
	qp->free = request->next;
	fill(request, sqe);
	hold(request, group);
	/* may complete it at once */
	fabric_submit(group->channel, &request->fabric);
}

void card_request_complete(struct fabric_request *fabric)
{
	struct card_request *request = (struct card_request *)fabric;
	struct card_qp *qp = request->qp;
	bool success = fabric->status == OPTINC_ST_SUCCESS;
	struct optinc_cqe cqe = {
		.cmd_id = request->cmd_id,
		.peer = fabric->peer,
		.mismatch = fabric->mismatch,
		.tag = htole32(fabric->tag),
	};

	if (success) {
		cqe.nonfinite = htole32(fabric->nonfinite);
		cqe.saturated = htole32(fabric->saturated);
		cqe.wire_ns = htole32(fabric->wire_ns < UINT32_MAX ? (uint32_t)fabric->wire_ns :
				      UINT32_MAX);
	}
	release(request);
	if (!qp->closing && !qp->card->quiet)
		card_qp_complete(qp, &cqe, fabric->status);
}
