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

#define LANE_SYMBOLS_PER_NS	(FABRIC_LANE_MBPS / 2 / 1000.0)	/* PAM4: 2 bits each */
#define PROPAGATION_NS		50.0	/* 10 m of fibre, one way */
#define EXPONENT_TRIP_NS	250.0	/* side path: there, maximum, back */
#define EXPONENT_BYTES_PER_NS	12.5	/* side path, 100 Gb/s */
#define MAX_REPLAYS		8	/* of one chunk */

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

/* Symbols on the busier direction. */
static double symbols(const struct fabric_request *rq, unsigned int nranks, unsigned int bits,
		      uint64_t count)
{
	double there = (double)link_tx_bytes(rq, rq->root, bits, count) * 4;
	double back = (double)link_rx_bytes(rq, rq->root + 1u, nranks, bits, count) * 4;

	return there > back ? there : back;
}

uint64_t link_time_ns(const struct fabric_request *rq, unsigned int nranks, unsigned int bits,
		      unsigned int lanes, uint32_t replays, uint32_t extra_ns)
{
	uint64_t chunk = rq->count < CHUNK ? rq->count : CHUNK;
	double per_ns = lanes * LANE_SYMBOLS_PER_NS;
	double ns = 2 * PROPAGATION_NS + extra_ns;

	ns += symbols(rq, nranks, bits, rq->count) / per_ns;
	ns += replays * (symbols(rq, nranks, bits, chunk) / per_ns + 2 * PROPAGATION_NS);
	if (exponent_bytes(rq, chunk) || rq->opcode == OPTINC_OP_BARRIER)
		ns += EXPONENT_TRIP_NS + (double)exponent_bytes(rq, chunk) / EXPONENT_BYTES_PER_NS;
	return (uint64_t)(ns + 0.5);
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

	if (impair->jitter_ns)
		extra += draw(port) * (double)impair->jitter_ns;
	drawn->extra_ns = extra < UINT32_MAX ? (uint32_t)extra : UINT32_MAX;
	drawn->replays = impair->loss > 0 ? draw_replays(port, rq, bits) : 0;
}
