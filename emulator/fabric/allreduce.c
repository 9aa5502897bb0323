// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * All-reduce of numbers. Floats: exponents lead their codes by a step. Small
 * ones travel raw in a single step and every rank computes everything, which
 * saves the round trips; the lanes are counted as the format has it.
 */
#include <string.h>

#include "emulator/fabric/internal.h"

/* Up to so many bytes of floats, one raw step is faster than three. */
#define RAW_BYTES	4096
/* Up to so many elements, every rank reduces all of a chunk. */
#define WHOLE_ELEMS	2048
/* From so many bytes on, results out of place bypass the cache. */
#define STREAM_BYTES	(8u << 20)

static size_t elem_bytes(unsigned int dtype)
{
	switch (dtype) {
	case OPTINC_F32:
		return 4;
	case OPTINC_I8:
		return 1;
	default:
		return 2;
	}
}

static size_t result_bytes(const struct fabric_request *rq)
{
	bool wider = rq->redop == OPTINC_SUM && (rq->dtype == OPTINC_I8 || rq->dtype == OPTINC_I16);

	return elem_bytes(rq->dtype) << wider;
}

static bool is_float(unsigned int dtype)
{
	return dtype == OPTINC_F32 || dtype == OPTINC_F16 || dtype == OPTINC_BF16;
}

static unsigned int parity_of(const struct fabric_request *rq)
{
	return rq->flags & OPTINC_SQE_PARITY;
}

static size_t chunk_count(const struct fabric_channel *ch, const struct fabric_request *rq,
			  uint64_t chunk)
{
	uint64_t left = rq->count - chunk * ch->now.chunk_elems;

	return left < ch->now.chunk_elems ? left : ch->now.chunk_elems;
}

static size_t block_count(size_t elems)
{
	return (elems + OPTINC_BLOCK - 1) / OPTINC_BLOCK;
}

static const void *load_chunk(struct fabric_channel *ch, struct fabric_request *rq,
			      uint64_t chunk, size_t n)
{
	size_t esize = elem_bytes(rq->dtype);

	return memory_load(ch, rq, rq->src, rq->src_off + chunk * ch->now.chunk_elems * esize,
			   n * esize);
}

/* Exponents of own data; raw codes bring theirs with produce(). */
static int float_prepare(struct fabric_channel *ch, struct fabric_request *rq, uint64_t chunk,
			 uint32_t step)
{
	size_t n = chunk_count(ch, rq, chunk);
	const void *src = load_chunk(ch, rq, chunk, n);

	if (!src)
		return -1;
	ch->port->kernels->exponents(own_slot(ch, step)->exps, src, n, rq->dtype, ch->join.bits);
	return 0;
}

/* The maximum over the ranks, from what came with @step. */
static void agree(struct fabric_channel *ch, struct fabric_request *rq, uint8_t *agreed,
		  size_t blocks, uint32_t step)
{
	memcpy(agreed, peer_slot(ch, 0, step)->exps, blocks);
	for (unsigned int r = 1; r < ch->join.nranks; r++)
		ch->port->kernels->max_bytes(agreed, peer_slot(ch, r, step)->exps, blocks);
	for (size_t b = 0; b < blocks; b++)
		rq->nonfinite += agreed[b] == FABRIC_EXP_NONFINITE;
}

static int float_produce(struct fabric_channel *ch, struct fabric_request *rq, uint64_t chunk,
			 uint32_t step)
{
	size_t n = chunk_count(ch, rq, chunk);
	uint8_t *exps = ch->now.exps[chunk % SLOTS];
	const void *src;

	agree(ch, rq, exps, block_count(n), step - 1);
	src = load_chunk(ch, rq, chunk, n);
	if (!src)
		return -1;
	ch->port->kernels->encode(own_slot(ch, step)->codes, src, exps, n, rq->dtype,
				  ch->join.bits, parity_of(rq));
	return 0;
}

static int int_produce(struct fabric_channel *ch, struct fabric_request *rq, uint64_t chunk,
		       uint32_t step)
{
	size_t n = chunk_count(ch, rq, chunk);
	const void *src = load_chunk(ch, rq, chunk, n);

	if (!src)
		return -1;
	rq->saturated += ch->port->kernels->encode(own_slot(ch, step)->codes, src, NULL, n,
						   rq->dtype, ch->join.bits, parity_of(rq));
	if (!(rq->flags & OPTINC_SQE_EXPONENTS))
		return 0;
	src = memory_load(ch, rq, rq->exp,
			  rq->exp_off + chunk * ch->now.chunk_elems / OPTINC_BLOCK, block_count(n));
	if (!src)
		return -1;
	memcpy(own_slot(ch, step)->exps, src, block_count(n));
	return 0;
}

/* The lowest rank that differs from what most ranks say of a block. */
static unsigned int odd_exponent(const struct fabric_channel *ch, size_t block, uint32_t step)
{
	unsigned int best = 0, most = 0, r, s;

	for (r = 0; r < ch->join.nranks; r++) {
		unsigned int votes = 0;

		for (s = 0; s < ch->join.nranks; s++)
			votes += peer_slot(ch, r, step)->exps[block] ==
				 peer_slot(ch, s, step)->exps[block];
		if (votes > most) {
			most = votes;
			best = r;
		}
	}
	for (r = 0; r < ch->join.nranks; r++)
		if (peer_slot(ch, r, step)->exps[block] != peer_slot(ch, best, step)->exps[block])
			break;
	return r;
}

/* Raw codes only add up where all ranks mean the same by them. */
static int check_exponents(struct fabric_channel *ch, struct fabric_request *rq, size_t n,
			   uint32_t step)
{
	if (!(rq->flags & OPTINC_SQE_EXPONENTS))
		return 0;
	for (size_t b = 0; b < block_count(n); b++) {
		unsigned int odd = odd_exponent(ch, b, step);

		if (odd < ch->join.nranks)
			return channel_fail(ch, OPTINC_ST_EXPONENT_MISMATCH, odd, 0);
	}
	return 0;
}

struct part {
	size_t first;	/* elements */
	size_t count;
};

/* Rank @r's share of a chunk, in whole blocks. */
static struct part share_of(const struct fabric_channel *ch, unsigned int r, size_t n)
{
	size_t blocks = block_count(n);
	size_t from = blocks * r / ch->join.nranks * OPTINC_BLOCK;
	size_t to = blocks * (r + 1) / ch->join.nranks * OPTINC_BLOCK;

	if (to > n)
		to = n;
	return (struct part){ from, to > from ? to - from : 0 };
}

static void reduce_part(struct fabric_channel *ch, const struct fabric_request *rq, void *out,
			struct part part, uint32_t step)
{
	const void *codes[OPTINC_MAX_RANKS];

	for (unsigned int r = 0; r < ch->join.nranks; r++)
		codes[r] = peer_slot(ch, r, step)->codes + part.first * (ch->join.bits / 8);
	ch->port->kernels->reduce(out, codes, ch->join.nranks, part.count, ch->join.bits, rq->redop);
}

static int share_reduce(struct fabric_channel *ch, struct fabric_request *rq, uint64_t chunk,
			uint32_t from, uint32_t to)
{
	size_t n = chunk_count(ch, rq, chunk);

	if (check_exponents(ch, rq, n, from))
		return -1;
	reduce_part(ch, rq, own_slot(ch, to)->reduced, share_of(ch, ch->join.rank, n), from);
	return 0;
}

static void decode_part(struct fabric_channel *ch, const struct fabric_request *rq, void *dst,
			const void *reduced, const uint8_t *exps, struct part part)
{
	ch->port->kernels->decode((char *)dst + part.first * result_bytes(rq), reduced,
				  exps + part.first / OPTINC_BLOCK, part.count, rq->dtype,
				  ch->join.bits, rq->redop, ch->join.nranks, parity_of(rq),
				  ch->now.stream);
}

static int share_deliver(struct fabric_channel *ch, struct fabric_request *rq, uint64_t chunk,
			 uint32_t step)
{
	size_t n = chunk_count(ch, rq, chunk), bytes = n * result_bytes(rq);
	uint64_t offset = rq->dst_off + chunk * ch->now.chunk_elems * result_bytes(rq);
	void *dst = memory_open(ch, rq, offset, bytes);

	for (unsigned int r = 0; r < ch->join.nranks; r++)
		decode_part(ch, rq, dst, peer_slot(ch, r, step)->reduced,
			    ch->now.exps[chunk % SLOTS], share_of(ch, r, n));
	return memory_commit(ch, rq, offset, bytes, dst);
}

/* Every rank reduces everything, in pieces that stay in the first-level cache. */
static int whole_deliver(struct fabric_channel *ch, struct fabric_request *rq, uint64_t chunk,
			 uint32_t step)
{
	size_t n = chunk_count(ch, rq, chunk), bytes = n * result_bytes(rq);
	uint64_t offset = rq->dst_off + chunk * ch->now.chunk_elems * result_bytes(rq);
	void *dst;

	if (check_exponents(ch, rq, n, step))
		return -1;
	dst = memory_open(ch, rq, offset, bytes);
	for (size_t at = 0; at < n; at += WHOLE_ELEMS) {
		struct part part = { at, n - at < WHOLE_ELEMS ? n - at : WHOLE_ELEMS };

		reduce_part(ch, rq, ch->port->scratch, part, step);
		decode_part(ch, rq, dst, ch->port->scratch, ch->now.exps[chunk % SLOTS], part);
	}
	return memory_commit(ch, rq, offset, bytes, dst);
}

/* Raw floats of a small request: in the post's line, or in the slot. */
static int raw_begin(struct fabric_channel *ch, struct fabric_request *rq, uint32_t step)
{
	size_t bytes = rq->count * elem_bytes(rq->dtype);
	const void *src = memory_load(ch, rq, rq->src, rq->src_off, bytes);

	if (!src)
		return -1;
	if (bytes <= POST_INLINE)
		memcpy(ch->draft.data, src, bytes);
	else
		memcpy(own_slot(ch, step)->codes, src, bytes);
	return 0;
}

static int raw_deliver(struct fabric_channel *ch, struct fabric_request *rq, uint64_t chunk,
		       uint32_t step)
{
	const struct fabric_kernels *k = ch->port->kernels;
	size_t n = rq->count, bytes = n * elem_bytes(rq->dtype), blocks = block_count(n);
	unsigned int nranks = ch->join.nranks, bits = ch->join.bits;
	uint8_t *exps = ch->now.exps[0], own[RAW_BYTES / 2 / OPTINC_BLOCK];
	const void *codes[OPTINC_MAX_RANKS], *raw[OPTINC_MAX_RANKS];
	size_t stride = (n * (bits / 8) + SEGMENT_LINE - 1) / SEGMENT_LINE * SEGMENT_LINE;
	uint8_t *scratch = ch->port->scratch;
	void *dst;

	(void)chunk;
	memset(exps, 0, blocks);
	for (unsigned int r = 0; r < nranks; r++) {
		raw[r] = bytes <= POST_INLINE ? ch->peer[r].ctl->post[step & 1].data :
						peer_slot(ch, r, step)->codes;
		k->exponents(own, raw[r], n, rq->dtype, bits);
		for (size_t b = 0; b < blocks; b++)
			exps[b] = own[b] > exps[b] ? own[b] : exps[b];
	}
	for (size_t b = 0; b < blocks; b++)
		rq->nonfinite += exps[b] == FABRIC_EXP_NONFINITE;
	for (unsigned int r = 0; r < nranks; r++) {
		codes[r] = scratch;
		k->encode(scratch, raw[r], exps, n, rq->dtype, bits, parity_of(rq));
		scratch += stride;
	}
	k->reduce(scratch, codes, nranks, n, bits, rq->redop);
	dst = memory_open(ch, rq, rq->dst_off, bytes);
	k->decode(dst, scratch, exps, n, rq->dtype, bits, rq->redop, nranks, parity_of(rq), false);
	return memory_commit(ch, rq, rq->dst_off, bytes, dst);
}

static const struct collective raw = {
	.begin = raw_begin, .deliver = raw_deliver,
};

static const struct collective float_share = {
	.lead = 1, .share = true, .prepare = float_prepare, .produce = float_produce,
	.reduce = share_reduce, .deliver = share_deliver,
};

static const struct collective float_whole = {
	.lead = 1, .prepare = float_prepare, .produce = float_produce, .deliver = whole_deliver,
};

static const struct collective int_share = {
	.share = true, .produce = int_produce, .reduce = share_reduce, .deliver = share_deliver,
};

static const struct collective int_whole = {
	.produce = int_produce, .deliver = whole_deliver,
};

const struct collective *allreduce_kind(const struct fabric_channel *ch,
					const struct fabric_request *rq, struct progress *now)
{
	bool whole = ch->join.nranks == 2 || rq->count <= WHOLE_ELEMS;
	bool in_place = rq->src == rq->dst && rq->src_off == rq->dst_off;
	size_t bytes = rq->count * elem_bytes(rq->dtype);

	now->chunk_elems = CHUNK;
	now->chunks = (rq->count + CHUNK - 1) / CHUNK;
	now->stream = !in_place && bytes >= STREAM_BYTES;
	if (!is_float(rq->dtype))
		return whole ? &int_whole : &int_share;
	if (bytes <= RAW_BYTES)
		return &raw;
	return whole ? &float_whole : &float_share;
}
