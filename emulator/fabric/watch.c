// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * While a channel waits: has a peer died, given up, or not come in time?
 *
 * Looking costs cache misses, a clock and system calls, so it is done after
 * many polls in vain, not at each.
 */
#include "emulator/fabric/internal.h"

#define POLLS_BETWEEN_LOOKS	64
#define ALIVE_INTERVAL_NS	(20 * NSEC_PER_MSEC)
/* Between two looks, counts as time that a peer took; more is this rank's own. */
#define LOOK_COUNTS_NS		(100 * NSEC_PER_MSEC)

bool watch_same_peers(const struct fabric_channel *ch)
{
	atomic_thread_fence(memory_order_acquire);
	for (unsigned int r = 0; r < ch->join.nranks; r++)
		if (atomic_load_explicit(&ch->peer[r].ctl->join.generation,
					 memory_order_relaxed) != ch->peer[r].generation)
			return false;
	return true;
}

/* What a rank that gave up told, if it is worth passing on as it is. */
static bool passes_on(uint32_t status)
{
	switch (status) {
	case OPTINC_ST_PEER_LOST:
	case OPTINC_ST_TIMEOUT:
	case OPTINC_ST_MISMATCH:
	case OPTINC_ST_EXPONENT_MISMATCH:
	case OPTINC_ST_ABORTED:
	case OPTINC_ST_LINK:
		return true;
	default:
		return false;
	}
}

/*
 * Nothing is waited for: the request goes on, whatever a peer does now. One
 * that left or died after it had completed a request had seen the posts of all
 * ranks; having seen that it left, we see them too, if we look again.
 */
static bool has_all(struct fabric_channel *ch)
{
	return ch->head && (ch->now.stage == STAGE_PACE ||
			    (ch->now.stage != STAGE_START && channel_has_posts(ch)));
}

static bool peer_gave_up(struct fabric_channel *ch, unsigned int rank)
{
	const struct peer *peer = &ch->peer[rank];
	uint64_t word = atomic_load_explicit(&peer->ctl->abort, memory_order_acquire);
	uint32_t status = (uint32_t)word >> 16;
	unsigned int about = (uint32_t)word >> 8 & 0xff;

	if (word >> 32 != peer->generation) {
		if (atomic_load_explicit(&peer->ctl->join.generation, memory_order_acquire) ==
		    peer->generation)
			return false;
		status = OPTINC_ST_ABORTED;	/* gone and offering anew */
		about = rank;
		word = 0;
	}
	if (!passes_on(status) || about >= ch->join.nranks) {
		status = OPTINC_ST_ABORTED;
		about = rank;
		word = 0;
	}
	if (has_all(ch))
		return false;
	channel_fail(ch, status, about, (uint32_t)word & 0xff);
	return true;
}

static bool peer_died(struct fabric_channel *ch, unsigned int rank)
{
	const struct peer *peer = &ch->peer[rank];
	struct shm_segment *shm = ch->port->segment->shm;

	if (atomic_load(&shm->port[peer->port].pid) == peer->pid &&
	    segment_alive(ch->port->segment, peer->port))
		return false;
	atomic_thread_fence(memory_order_acquire);
	if (has_all(ch))
		return false;
	channel_fail(ch, OPTINC_ST_PEER_LOST, rank, 0);
	return true;
}

static bool any(struct fabric_channel *ch, uint32_t ranks,
		bool (*ended)(struct fabric_channel *ch, unsigned int rank))
{
	for (; ranks; ranks &= ranks - 1)
		if (ended(ch, (unsigned int)__builtin_ctz(ranks)))
			return true;
	return false;
}

static uint32_t other_ranks(const struct fabric_channel *ch)
{
	return ((1u << ch->join.nranks) - 1) & ~(1u << ch->join.rank);
}

bool watch_gave_up(struct fabric_channel *ch)
{
	return any(ch, other_ranks(ch), peer_gave_up);
}

bool watch_peers(struct fabric_channel *ch)
{
	return any(ch, other_ranks(ch), peer_gave_up) || any(ch, other_ranks(ch), peer_died);
}

void watch(struct fabric_channel *ch)
{
	uint32_t others = other_ranks(ch);
	uint32_t missing = others & ~ch->seen;
	uint64_t now;

	if (++ch->idle_polls % POLLS_BETWEEN_LOOKS && !ch->port->woken)
		return;
	if (any(ch, others, peer_gave_up))
		return;
	now = fabric_clock_ns();
	if (!ch->idle_since_ns) {
		ch->idle_since_ns = now;
		ch->looked_ns = now;
		ch->alive_check_ns = now + ALIVE_INTERVAL_NS;
		return;
	}
	/* stopped, all ranks alike perhaps: that makes nobody late */
	if (now - ch->looked_ns > LOOK_COUNTS_NS)
		ch->idle_since_ns += now - ch->looked_ns - LOOK_COUNTS_NS;
	ch->looked_ns = now;
	if (now >= ch->alive_check_ns) {
		ch->alive_check_ns = now + ALIVE_INTERVAL_NS;
		if (any(ch, others, peer_died))
			return;
	}
	if (now - ch->idle_since_ns >= ch->join.deadline_ms * NSEC_PER_MSEC && !has_all(ch))
		channel_fail(ch, OPTINC_ST_TIMEOUT,
			     missing ? (unsigned int)__builtin_ctz(missing) : ch->join.rank, 0);
}
