// SPDX-License-Identifier: LGPL-2.1-or-later
/* Host memory of a request: by pointer where that works, else through a copy. */
#include "emulator/fabric/internal.h"

static void dma_failed(struct fabric_channel *ch)
{
	channel_fail(ch, OPTINC_ST_DMA, ch->join.rank, 0);
}

/* NULL: the channel has failed. Good until the next load, or memory_open(). */
const void *memory_load(struct fabric_channel *ch, struct fabric_request *rq,
			void *region, uint64_t offset, size_t length)
{
	const void *p = rq->memory->map(region, offset, length, false);

	if (p)
		return p;
	if (!rq->memory->read(region, offset, ch->port->bounce, length))
		return ch->port->bounce;
	dma_failed(ch);
	return NULL;
}

/* Where to write results of the destination; memory_commit() makes them so. */
void *memory_open(struct fabric_channel *ch, struct fabric_request *rq,
		  uint64_t offset, size_t length)
{
	void *p = rq->memory->map(rq->dst, offset, length, true);

	return p ? p : ch->port->bounce;
}

int memory_commit(struct fabric_channel *ch, struct fabric_request *rq, uint64_t offset,
		  size_t length, const void *data)
{
	if (data != ch->port->bounce)
		return 0;
	if (!rq->memory->write(rq->dst, offset, data, length))
		return 0;
	dma_failed(ch);
	return -1;
}
