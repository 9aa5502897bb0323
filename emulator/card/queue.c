// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Queue pairs at work, section 7: doorbells in, entries taken, completions
 * and interrupts out.
 */
#include <string.h>

#include "emulator/card/internal.h"

_Static_assert(sizeof(struct optinc_sqe) == 64, "as specified");
_Static_assert(sizeof(struct optinc_cqe) == 32, "as specified");

/*
 * The credit rule: no more entries than the submission ring holds, and no
 * more requests outstanding than the completion ring holds. The card's own
 * indices may have moved on since they were loaded; the host cannot know that
 * yet.
 */
static bool ring_tail(struct card *card, struct card_bell *bell, uint32_t value)
{
	uint32_t tail = atomic_load_explicit(&bell->sq_tail, memory_order_relaxed);
	uint16_t more = (uint16_t)(value - tail);
	uint16_t unread = (uint16_t)(tail - atomic_load_explicit(&bell->sq_head,
								 memory_order_relaxed));
	uint16_t outstanding = (uint16_t)(tail - atomic_load_explicit(&bell->cq_tail,
								      memory_order_relaxed));

	if ((value ^ tail) >> 16)
		return false;
	if (more > bell->sq_entries - unread || more > bell->cq_entries - outstanding)
		return false;
	if (!more)
		return true;
	if (!atomic_compare_exchange_strong_explicit(&bell->sq_tail, &tail, value,
						     memory_order_release, memory_order_relaxed))
		return false;	/* another thread rang for the same queue pair at once */
	card_ring(card, bell);
	return true;
}

static bool ring_arm(struct card *card, struct card_bell *bell, uint32_t value)
{
	atomic_store_explicit(&bell->cq_arm, value, memory_order_relaxed);
	card_ring(card, bell);
	return true;
}

static bool ring(struct card *card, uint32_t page, uint32_t offset, uint32_t value)
{
	struct card_bell *bell = &card->bells[(value >> 16) % CARD_QPS];

	if (page >= CARD_CONTEXTS ||
	    atomic_load_explicit(&bell->owner, memory_order_acquire) !=
	    ((page + 1) << 16 | value >> 16))
		return false;

	switch (offset) {
	case OPTINC_DB_SQ_TAIL:
		return ring_tail(card, bell, value);
	case OPTINC_DB_CQ_ARM:
		return ring_arm(card, bell, value);
	default:
		return false;
	}
}

void card_doorbell(struct card *card, uint32_t page, uint32_t offset, uint32_t value)
{
	if (!atomic_load_explicit(&card->live, memory_order_relaxed))
		return;
	atomic_fetch_add_explicit(&card->doorbells, 1, memory_order_relaxed);
	if (!ring(card, page, offset, value))
		atomic_fetch_add_explicit(&card->dropped, 1, memory_order_relaxed);
}

/* Pointers to the rings, for this call into the card; NULL: copy instead. */
static void map_rings(struct card_qp *qp)
{
	struct card *card = qp->card;

	if (qp->mapped == card->calls)
		return;
	qp->mapped = card->calls;
	qp->sq = card->ops->map(card->host, qp->sq_addr,
				qp->sq_entries * sizeof(struct optinc_sqe), false);
	qp->cq = card->ops->map(card->host, qp->cq_addr,
				qp->cq_entries * sizeof(struct optinc_cqe), true);
}

/* A later step gives the requests up: this may be called while one completes. */
static void break_qp(struct card_qp *qp)
{
	qp->failed = true;
	card_ring(qp->card, qp->bell);
}

/*
 * The host's memory is read once: what is checked is what is used. The
 * barrier keeps the compiler from reading it again in place of the copy.
 */
static bool fetch(struct card_qp *qp, struct optinc_sqe *sqe)
{
	uint16_t slot = qp->sq_head & (qp->sq_entries - 1);
	struct card *card = qp->card;

	if (qp->sq) {
		memcpy(sqe, &qp->sq[slot], sizeof(*sqe));
		atomic_signal_fence(memory_order_seq_cst);
		return true;
	}
	return !card->ops->read(card->host, qp->sq_addr + slot * sizeof(*sqe), sqe, sizeof(*sqe));
}

static void take(struct card_qp *qp)
{
	struct optinc_sqe sqe;

	if (!fetch(qp, &sqe)) {
		break_qp(qp);
		return;
	}
	qp->sq_head++;
	atomic_store_explicit(&qp->bell->sq_head, qp->sq_head, memory_order_relaxed);
	card_submit(qp, &sqe);
}

static bool take_turn(struct card_qp *qp, uint16_t tail)
{
	unsigned int n;

	for (n = 0; n < CARD_BURST && qp->sq_head != tail && !qp->failed; n++)
		take(qp);
	if (qp->sq_head != tail && !qp->failed)
		card_ring(qp->card, qp->bell);
	return n;
}

static void interrupt(struct card_qp *qp)
{
	qp->armed = false;
	if (qp->vector != OPTINC_NO_VECTOR)
		qp->card->ops->interrupt(qp->card->host, qp->vector);
}

static bool arm(struct card_qp *qp)
{
	uint32_t value;

	if (!atomic_load_explicit(&qp->bell->cq_arm, memory_order_relaxed))
		return false;
	value = atomic_exchange_explicit(&qp->bell->cq_arm, 0, memory_order_relaxed);
	if (value >> 16 != qp->id)
		return false;	/* for the slot's former queue pair */
	qp->armed = true;
	if ((uint16_t)value != qp->cq_tail)
		interrupt(qp);
	return true;
}

static bool qp_step(struct card_qp *qp)
{
	/* pairs with the release in ring_tail(): the entries are there */
	uint16_t tail = (uint16_t)atomic_load_explicit(&qp->bell->sq_tail, memory_order_acquire);
	bool did = false;

	if (qp->sq_head != tail && !qp->failed) {
		map_rings(qp);
		did = take_turn(qp, tail);
	}
	did |= arm(qp);
	if (qp->failed && !qp->given_up) {
		qp->given_up = true;
		card_qp_give_up(qp);
		did = true;
	}
	return did;
}

bool card_queues_step(struct card *card)
{
	uint64_t rung = atomic_exchange(&card->rung, 0);
	bool did = false;
	struct card_qp *qp;

	for (; rung; rung &= rung - 1) {
		for (qp = card->chains[__builtin_ctzll(rung)]; qp; qp = qp->next)
			did |= qp_step(qp);
	}
	return did;
}

/* The status, with its phase, is written when all else is visible. */
static bool publish(struct card_qp *qp, const struct optinc_cqe *cqe)
{
	uint16_t slot = qp->cq_tail & (qp->cq_entries - 1);
	struct card *card = qp->card;
	uint64_t addr;

	map_rings(qp);
	if (qp->cq) {
		struct optinc_cqe *to = &qp->cq[slot];

		to->cmd_id = cqe->cmd_id;
		to->sq_head = cqe->sq_head;
		to->peer = cqe->peer;
		to->mismatch = cqe->mismatch;
		memcpy((char *)to + 8, (const char *)cqe + 8, sizeof(*cqe) - 8);
		__atomic_store_n(&to->status, cqe->status, __ATOMIC_RELEASE);
		return true;
	}
	addr = qp->cq_addr + slot * sizeof(*cqe);
	return !card->ops->write(card->host, addr + 8, (const char *)cqe + 8, sizeof(*cqe) - 8) &&
	       !card->ops->write(card->host, addr, cqe, 8);
}

void card_qp_complete(struct card_qp *qp, struct optinc_cqe *cqe, uint32_t status)
{
	struct card *card = qp->card;
	uint16_t phase = !(qp->cq_tail & qp->cq_entries);

	if (qp->failed && status)
		status = OPTINC_ST_DMA;
	cqe->status = htole16((uint16_t)(status << OPTINC_CQE_STATUS_SHIFT | phase));
	cqe->sq_head = htole16(qp->sq_head);
	cqe->device_ns = htole64(fabric_clock_ns());
	/* before the host can see the completion, and submit another request for it */
	atomic_store_explicit(&qp->bell->cq_tail, (uint16_t)(qp->cq_tail + 1),
			      memory_order_relaxed);
	if (!publish(qp, cqe)) {
		break_qp(qp);
		return;
	}
	qp->cq_tail++;
	card->requests_done++;
	card->requests_failed += status != OPTINC_ST_SUCCESS;
	if (qp->armed)
		interrupt(qp);
}
