// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The lanes as a model: how many bytes a request is, how long they take, and
 * how lanes fall short. Documentation/card-interface.rst has the formulas.
 *
 * Time is that of the slowest rank, since the optical unit waits for all. A
 * lost symbol is noticed by the chunk's check sum, and all ranks send that
 * chunk again.
 */
#include <math.h>

#include "emulator/fabric/internal.h"

/* Section 11 of the card interface: the reference fabric */
#define SYMBOL_NS		(2e3 / FABRIC_LANE_MBPS)	/* PAM4: 2 bits each */
#define PROPAGATION_NS		50.0	/* one way, 10 m of fibre */
#define UNIT_NS			10.0	/* through P, f and T */
#define SIDE_TRIP_NS		300.0	/* side path, there and back */
#define SIDE_NS_PER_BYTE	(8 / 50.0)
#define LOSS_NS			1000.0	/* until a loss is noticed */
#define DESCRIPTOR_BYTES	64
#define MAX_REPLAYS		3	/* of one chunk */

static bool is_float(unsigned int dtype)
{
	return dtype == OPTINC_F32 || dtype == OPTINC_F16 || dtype == OPTINC_BF16;
}

static uint64_t blocks(uint64_t count)
{
	return (count + OPTINC_BLOCK - 1) / OPTINC_BLOCK;
}

/* Base-4 digits that come back for one element. */
static unsigned int result_digits(const struct fabric_request *rq, unsigned int nranks,
				  unsigned int bits)
{
	if (rq->dtype == OPTINC_BIT)
		return 3 * nranks < 16 ? 2 : 3;
	if (rq->redop == OPTINC_SUM)
		return bits / 2 + (nranks <= 4 ? 1 : 2);
	return bits / 2;
}

static uint64_t exponent_bytes(const struct fabric_request *rq, uint64_t count)
{
	bool has = is_float(rq->dtype) || (rq->flags & OPTINC_SQE_EXPONENTS);

	return rq->opcode == OPTINC_OP_ALLREDUCE && has ? blocks(count) : 0;
}

uint64_t link_tx_bytes(const struct fabric_request *rq, unsigned int rank, unsigned int bits,
		       uint64_t count)
{
	switch (rq->opcode) {
	case OPTINC_OP_ALLREDUCE:
		if (rq->dtype == OPTINC_BIT)
			return (count + 3) / 4;
		return count * (bits / 8) + exponent_bytes(rq, count);
	case OPTINC_OP_BROADCAST:
		return rank == rq->root ? count : 0;
	case OPTINC_OP_EXPONENT_MAX:
		return count;
	default:
		return 0;
	}
}

uint64_t link_rx_bytes(const struct fabric_request *rq, unsigned int rank, unsigned int nranks,
		       unsigned int bits, uint64_t count)
{
	switch (rq->opcode) {
	case OPTINC_OP_ALLREDUCE:
		return (count * result_digits(rq, nranks, bits) + 3) / 4 +
		       exponent_bytes(rq, count);
	case OPTINC_OP_BROADCAST:
		return rank == rq->root ? 0 : count;
	case OPTINC_OP_EXPONENT_MAX:
		return count;
	default:
		return 0;
	}
}

static unsigned int source_digits(const struct fabric_request *rq, unsigned int bits)
{
	if (rq->opcode == OPTINC_OP_BROADCAST)
		return 4;
	return rq->dtype == OPTINC_BIT ? 1 : bits / 2;
}

/* Symbol times of so many blocks of a chunk, section 10.2. */
static uint64_t symbols(uint64_t nblocks, unsigned int digits, unsigned int lanes)
{
	uint64_t sets = lanes >= digits ? lanes / digits : 1;
	uint64_t sub_slots = lanes >= digits ? 1 : (digits + lanes - 1) / lanes;

	return (nblocks + sets - 1) / sets * OPTINC_BLOCK * sub_slots;
}

/* Time of a chunk's codes, there and back at once: the longer of the two. */
static double chunk_ns(const struct fabric_request *rq, unsigned int nranks, unsigned int bits,
		       unsigned int lanes, uint64_t count)
{
	unsigned int back = rq->opcode == OPTINC_OP_BROADCAST ? 4 : result_digits(rq, nranks, bits);
	uint64_t a = symbols(blocks(count), source_digits(rq, bits), lanes);
	uint64_t b = symbols(blocks(count), back, lanes);

	return (double)(a > b ? a : b) * SYMBOL_NS;
}

/* Until the maxima of a chunk are back, so many bytes of exponents having gone. */
static double side_ns(uint64_t bytes)
{
	return SIDE_TRIP_NS + (double)(DESCRIPTOR_BYTES + bytes) * SIDE_NS_PER_BYTE;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/*
 * All chunks but the last are alike, so the start of the last one's codes,
 * S_c = max(S_(c-1) + d, X_c), is decided by the first chunk's exponents, the
 * last but one's, or its own.
 */
static double codes_ns(const struct fabric_request *rq, unsigned int nranks, unsigned int bits,
		       unsigned int lanes)
{
	uint64_t before = (rq->count - 1) / CHUNK;
	uint64_t last = rq->count - before * CHUNK;
	double full = chunk_ns(rq, nranks, bits, lanes, CHUNK);
	double start = side_ns(exponent_bytes(rq, rq->count));

	if (before) {
		start = larger(start, side_ns(exponent_bytes(rq, CHUNK)) + (double)before * full);
		start = larger(start, side_ns(exponent_bytes(rq, before * CHUNK)) + full);
	}
	return start + chunk_ns(rq, nranks, bits, lanes, last) + 2 * PROPAGATION_NS + UNIT_NS;
}

static double request_ns(const struct fabric_request *rq, unsigned int nranks, unsigned int bits,
			 unsigned int lanes)
{
	if (!rq->count || rq->opcode == OPTINC_OP_BARRIER)
		return side_ns(0);
	if (rq->opcode == OPTINC_OP_EXPONENT_MAX)
		return side_ns(rq->count);
	return codes_ns(rq, nranks, bits, lanes);
}

static bool same_time(const struct link_time *t, const struct fabric_request *rq, uint8_t lanes)
{
	return t->count == rq->count && t->opcode == rq->opcode && t->flags == rq->flags &&
	       t->dtype == rq->dtype && t->redop == rq->redop && t->lanes == lanes;
}

uint64_t link_time_ns(struct fabric_channel *ch, const struct fabric_request *rq, uint8_t lanes,
		      uint32_t replays, uint32_t extra_ns)
{
	struct link_time *t = &ch->time;

	if (!same_time(t, rq, lanes)) {
		unsigned int n = (unsigned int)__builtin_popcount(lanes);
		uint64_t chunk = rq->count < CHUNK ? rq->count : CHUNK;

		*t = (struct link_time){
			.count = rq->count, .opcode = rq->opcode, .flags = rq->flags,
			.dtype = rq->dtype, .redop = rq->redop, .lanes = lanes,
			.codes_ns = request_ns(rq, ch->join.nranks, ch->join.bits, n),
			.replay_ns = LOSS_NS + chunk_ns(rq, ch->join.nranks, ch->join.bits, n, chunk),
		};
	}
	return (uint64_t)ceil(t->codes_ns + replays * t->replay_ns + extra_ns);
}

/* splitmix64: a well-mixed sequence from any seed */
static double draw(struct fabric_port *port)
{
	uint64_t z = port->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	z ^= z >> 31;
	return (double)(z >> 11) * 0x1p-53;
}

/* How often chunks of this request have to be sent again. */
static uint16_t draw_replays(struct fabric_port *port, const struct fabric_request *rq,
			     unsigned int bits)
{
	uint64_t chunks = (rq->count + CHUNK - 1) / CHUNK;
	uint64_t per_chunk = link_tx_bytes(rq, rq->root, bits, rq->count < CHUNK ? rq->count : CHUNK);
	double survives = exp(log1p(-port->impair.loss) * (double)per_chunk * 4);
	unsigned int total = 0;

	for (uint64_t c = 0; c < chunks; c++) {
		unsigned int tries = 0;

		while (draw(port) >= survives)
			if (++tries > MAX_REPLAYS)
				return LINK_DEAD;
		total += tries;
	}
	return total < LINK_DEAD ? (uint16_t)total : LINK_DEAD;
}

void link_draw(struct fabric_port *port, const struct fabric_request *rq, unsigned int bits,
	       struct link_draw *drawn)
{
	const struct fabric_impairments *impair = &port->impair;
	double extra = (double)impair->delay_ns;

	*drawn = (struct link_draw){ 0 };
	if (!port->impaired)
		return;
	if (impair->jitter_ns)
		extra += draw(port) * (double)impair->jitter_ns;
	drawn->extra_ns = extra < UINT32_MAX ? (uint32_t)extra : UINT32_MAX;
	if (impair->loss > 0)
		drawn->replays = draw_replays(port, rq, bits);
}
