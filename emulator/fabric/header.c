// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The header of a request: what the ranks have to agree on, compared by every
 * rank from the same data, so that all come to the same verdict.
 */
#include <stddef.h>

#include "emulator/fabric/internal.h"

struct field {
	uint8_t offset;
	uint8_t bytes;
	uint8_t diff;
};

#define FIELD(name, flag) { offsetof(struct shm_header, name), \
			    sizeof(((struct shm_header *)0)->name), flag }

static const struct field fields[] = {
	FIELD(opcode, OPTINC_DIFF_OPCODE),
	FIELD(count, OPTINC_DIFF_COUNT),
	FIELD(dtype, OPTINC_DIFF_DTYPE),
	FIELD(redop, OPTINC_DIFF_REDOP),
	FIELD(tag, OPTINC_DIFF_TAG),
	FIELD(root, OPTINC_DIFF_ROOT),
	FIELD(flags, OPTINC_DIFF_FLAGS),
};

void header_fill(struct fabric_channel *ch, struct fabric_request *rq, struct shm_header *header)
{
	struct link_draw draw;

	link_draw(ch->port, rq, ch->join.bits, &draw);
	*header = (struct shm_header){
		.opcode = rq->opcode,
		.flags = rq->flags,
		.dtype = rq->dtype,
		.redop = rq->redop,
		.root = rq->root,
		.lanes = port_lanes(ch->port),
		.replays = draw.replays,
		.tag = rq->tag,
		.extra_ns = draw.extra_ns,
		.count = rq->count,
	};
}

static const struct shm_header *header_of(const struct fabric_channel *ch, unsigned int rank)
{
	return &ch->peer[rank].ctl->post[ch->now.first & 1].header;
}

static uint64_t value_of(const struct fabric_channel *ch, unsigned int rank,
			 const struct field *field)
{
	const uint8_t *p = (const uint8_t *)header_of(ch, rank) + field->offset;

	switch (field->bytes) {
	case 1:
		return *p;
	case 4:
		return *(const uint32_t *)(const void *)p;
	default:
		return *(const uint64_t *)(const void *)p;
	}
}

/* What most ranks say; among equals, what the lowest rank says. */
static uint64_t majority(const struct fabric_channel *ch, const struct field *field)
{
	unsigned int most = 0;
	uint64_t best = 0;

	for (unsigned int r = 0; r < ch->join.nranks; r++) {
		uint64_t value = value_of(ch, r, field);
		unsigned int votes = 0;

		for (unsigned int s = 0; s < ch->join.nranks; s++)
			votes += value_of(ch, s, field) == value;
		if (votes > most) {
			most = votes;
			best = value;
		}
	}
	return best;
}

static bool all_alike(const struct fabric_channel *ch)
{
	const struct shm_header *own = header_of(ch, ch->join.rank);

	for (unsigned int r = 0; r < ch->join.nranks; r++) {
		const struct shm_header *h = header_of(ch, r);

		if (h->opcode != own->opcode || h->flags != own->flags || h->dtype != own->dtype ||
		    h->redop != own->redop || h->root != own->root || h->tag != own->tag ||
		    h->count != own->count)
			return false;
	}
	return true;
}

/* Name the lowest rank that differs from the majority, and all it differs in. */
static int report_mismatch(struct fabric_channel *ch)
{
	unsigned int diff[OPTINC_MAX_RANKS] = { 0 };
	unsigned int odd = 0;

	for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
		uint64_t value = majority(ch, &fields[f]);

		for (unsigned int r = 0; r < ch->join.nranks; r++)
			if (value_of(ch, r, &fields[f]) != value)
				diff[r] |= fields[f].diff;
	}
	while (odd + 1 < ch->join.nranks && !diff[odd])
		odd++;
	return channel_fail(ch, OPTINC_ST_MISMATCH, odd, diff[odd]);
}

int header_check(struct fabric_channel *ch, struct fabric_request *rq)
{
	uint8_t lanes = 0xff;
	uint32_t replays = 0, extra_ns = 0;

	if (!all_alike(ch))
		return report_mismatch(ch);
	for (unsigned int r = 0; r < ch->join.nranks; r++) {
		const struct shm_header *h = header_of(ch, r);

		lanes &= h->lanes;
		if (h->replays == LINK_DEAD || !lanes)
			return channel_fail(ch, OPTINC_ST_LINK, r, 0);
		replays += h->replays;
		if (h->extra_ns > extra_ns)
			extra_ns = h->extra_ns;
	}
	ch->port->counters.replays += replays;
	rq->wire_ns = link_time_ns(ch, rq, lanes, replays, extra_ns);
	return 0;
}
