// SPDX-License-Identifier: LGPL-2.1-or-later
/* Requests whose data needs no exponents: votes, broadcast, exponent-max. */
#include <string.h>

#include "emulator/fabric/internal.h"

static size_t chunk_count(const struct fabric_channel *ch, const struct fabric_request *rq,
			  uint64_t chunk)
{
	uint64_t left = rq->count - chunk * ch->now.chunk_elems;

	return left < ch->now.chunk_elems ? left : ch->now.chunk_elems;
}

static size_t source_bytes(const struct fabric_request *rq, uint64_t elems)
{
	return rq->dtype == OPTINC_BIT ? (elems + 7) / 8 : elems;
}

static int copy_in(struct fabric_channel *ch, struct fabric_request *rq, uint64_t chunk,
		   uint32_t step)
{
	size_t bytes = source_bytes(rq, chunk_count(ch, rq, chunk));
	const void *src;

	if (rq->opcode == OPTINC_OP_BROADCAST && rq->root != ch->join.rank)
		return 0;
	src = memory_load(ch, rq, rq->src,
			  rq->src_off + source_bytes(rq, chunk * ch->now.chunk_elems), bytes);
	if (!src)
		return -1;
	memcpy(own_slot(ch, step)->codes, src, bytes);
	return 0;
}

static int broadcast_deliver(struct fabric_channel *ch, struct fabric_request *rq,
			     uint64_t chunk, uint32_t step)
{
	size_t n = chunk_count(ch, rq, chunk);
	uint64_t offset = rq->dst_off + chunk * ch->now.chunk_elems;
	void *dst;

	if (rq->root == ch->join.rank)
		return 0;
	dst = memory_open(ch, rq, offset, n);
	memcpy(dst, peer_slot(ch, rq->root, step)->codes, n);
	return memory_commit(ch, rq, offset, n, dst);
}

static int max_deliver(struct fabric_channel *ch, struct fabric_request *rq, uint64_t chunk,
		       uint32_t step)
{
	size_t n = chunk_count(ch, rq, chunk);
	uint64_t offset = rq->dst_off + chunk * ch->now.chunk_elems;
	void *dst = memory_open(ch, rq, offset, n);

	memcpy(dst, peer_slot(ch, 0, step)->codes, n);
	for (unsigned int r = 1; r < ch->join.nranks; r++)
		ch->port->kernels->max_bytes(dst, peer_slot(ch, r, step)->codes, n);
	return memory_commit(ch, rq, offset, n, dst);
}

static size_t vote_bytes(const struct fabric_request *rq, uint64_t elems)
{
	unsigned int form = rq->flags & (OPTINC_SQE_SIGN | OPTINC_SQE_ABSTAIN);

	return form == OPTINC_SQE_SIGN ? (elems + 7) / 8 : elems;
}

static int vote_deliver(struct fabric_channel *ch, struct fabric_request *rq, uint64_t chunk,
			uint32_t step)
{
	size_t n = chunk_count(ch, rq, chunk), bytes = vote_bytes(rq, n);
	uint64_t offset = rq->dst_off + vote_bytes(rq, chunk * ch->now.chunk_elems);
	const uint8_t *votes[OPTINC_MAX_RANKS];
	void *dst = memory_open(ch, rq, offset, bytes);

	for (unsigned int r = 0; r < ch->join.nranks; r++)
		votes[r] = peer_slot(ch, r, step)->codes;
	fabric_kernels_vote(dst, votes, ch->join.nranks, n, rq->flags);
	return memory_commit(ch, rq, offset, bytes, dst);
}

static const struct collective broadcast = {
	.produce = copy_in, .deliver = broadcast_deliver,
};

static const struct collective exponent_max = {
	.produce = copy_in, .deliver = max_deliver,
};

static const struct collective vote = {
	.produce = copy_in, .deliver = vote_deliver,
};

/* Votes: results may be a byte for each bit, and have to fit the bounce buffer. */
const struct collective *bytes_kind(const struct fabric_channel *ch,
				    const struct fabric_request *rq, struct progress *now)
{
	(void)ch;
	now->chunk_elems = CHUNK_BYTES;
	now->chunks = (rq->count + CHUNK_BYTES - 1) / CHUNK_BYTES;
	now->stream = false;
	if (rq->dtype == OPTINC_BIT)
		return &vote;
	return rq->opcode == OPTINC_OP_BROADCAST ? &broadcast : &exponent_max;
}
