// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * How the ranks of a group find each other, without a coordinator.
 *
 * A rank offers: it writes key, rank and parameters into a channel of its
 * port, under a new generation. It then looks through all ports for offers of
 * the same key. Once it knows all others it binds: it names, for each, port,
 * channel and generation. A group is ready for a rank when every rank's
 * record is bound and names the same set. A rank that withdraws in between
 * and offers again has a new generation, so nobody can be in a group with a
 * rank that is not in the same group with it.
 *
 * A rank that disagrees is kept waiting a moment before it is refused, so
 * that the others have time to see its record and are told the same.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/fabric/internal.h"

#define SCAN_INTERVAL_NS	(100 * 1000ull)
#define REFUSE_GRACE_NS		(200 * NSEC_PER_MSEC)

/* A peer's record, copied out before it is believed. */
struct offer {
	uint32_t state;
	uint32_t generation;
	struct fabric_join join;
	struct shm_peer peer[OPTINC_MAX_RANKS];
};

const struct shm_channel *join_peer_channel(const struct fabric_port *port,
					    unsigned int peer_port, unsigned int channel)
{
	if (peer_port >= port->ports || channel >= FABRIC_MAX_CHANNELS)
		return NULL;
	return &port->segment->shm->port[peer_port].channel[channel];
}

static bool read_offer(const struct shm_channel *ctl, struct offer *offer)
{
	const struct shm_join *shm = &ctl->join;

	offer->state = atomic_load_explicit(&shm->state, memory_order_acquire);
	if (offer->state != SHM_OFFER && offer->state != SHM_BOUND)
		return false;
	offer->generation = atomic_load_explicit(&shm->generation, memory_order_acquire);
	memcpy(offer->join.key, shm->key, sizeof(shm->key));
	offer->join.rank = shm->rank;
	offer->join.nranks = shm->nranks;
	offer->join.bits = shm->bits;
	offer->join.format = shm->format;
	offer->join.dtypes = shm->dtypes;
	offer->join.deadline_ms = shm->deadline_ms;
	memcpy(offer->peer, shm->peer, sizeof(offer->peer));
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&shm->state, memory_order_relaxed) == offer->state &&
	       atomic_load_explicit(&shm->generation, memory_order_relaxed) == offer->generation;
}

static unsigned int differences(const struct fabric_join *mine, const struct fabric_join *other)
{
	unsigned int diff = 0;

	if (mine->nranks != other->nranks)
		diff |= OPTINC_DIFF_SIZE;
	if (mine->bits != other->bits)
		diff |= OPTINC_DIFF_BITS;
	if (mine->dtypes != other->dtypes)
		diff |= OPTINC_DIFF_DTYPES;
	if (mine->format != other->format)
		diff |= OPTINC_DIFF_FORMAT;
	if (mine->deadline_ms != other->deadline_ms)
		diff |= OPTINC_DIFF_DEADLINE;
	return diff;
}

static void refuse(struct fabric_channel *ch, unsigned int peer, unsigned int mismatch)
{
	if (!ch->refuse_ns) {
		ch->refuse_ns = fabric_clock_ns() + REFUSE_GRACE_NS;
		ch->peer_rank = (uint8_t)peer;
		ch->mismatch = (uint8_t)mismatch;
	}
}

/* An offer of our key: take note of its rank, or of what is wrong with it. */
static void consider(struct fabric_channel *ch, unsigned int port, unsigned int channel,
		     const struct offer *offer)
{
	const struct shm_segment *shm = ch->port->segment->shm;
	unsigned int rank = offer->join.rank;
	unsigned int diff = differences(&ch->join, &offer->join);

	if (rank >= OPTINC_MAX_RANKS || !segment_alive(ch->port->segment, port))
		return;
	if (diff) {
		refuse(ch, rank, diff);
		return;
	}
	if (rank >= ch->join.nranks)
		return;
	if (ch->joined & 1u << rank) {
		refuse(ch, rank, OPTINC_DIFF_RANK);
		return;
	}
	ch->joined |= 1u << rank;
	ch->peer[rank] = (struct peer){
		.ctl = &shm->port[port].channel[channel],
		.slots = segment_slots(ch->port->segment, port, channel),
		.generation = offer->generation,
		.pid = atomic_load(&shm->port[port].pid),
		.port = (uint8_t)port,
		.channel = (uint8_t)channel,
	};
}

static void look_around(struct fabric_channel *ch)
{
	struct offer offer;

	ch->joined = 1u << ch->join.rank;
	for (unsigned int p = 0; p < ch->port->ports; p++) {
		if (p == ch->port->index)
			continue;
		for (unsigned int c = 0; c < FABRIC_MAX_CHANNELS; c++) {
			const struct shm_channel *ctl = join_peer_channel(ch->port, p, c);

			if (read_offer(ctl, &offer) &&
			    !memcmp(offer.join.key, ch->join.key, OPTINC_KEY_BYTES))
				consider(ch, p, c, &offer);
		}
	}
}

static bool everyone_here(const struct fabric_channel *ch)
{
	return ch->joined == (1u << ch->join.nranks) - 1;
}

/* Name the others in our record; true if that is news to them. */
static bool bind(struct fabric_channel *ch)
{
	struct shm_join *shm = &ch->ctl->join;
	struct shm_peer peer[OPTINC_MAX_RANKS] = { 0 };
	bool bound = atomic_load_explicit(&shm->state, memory_order_relaxed) == SHM_BOUND;

	for (unsigned int r = 0; r < ch->join.nranks; r++)
		peer[r] = (struct shm_peer){
			.generation = ch->peer[r].generation,
			.port = ch->peer[r].port,
			.channel = ch->peer[r].channel,
		};
	if (bound && !memcmp(peer, shm->peer, sizeof(peer)))
		return false;
	atomic_store_explicit(&shm->state, SHM_IDLE, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	memcpy(shm->peer, peer, sizeof(peer));
	atomic_store_explicit(&shm->state, SHM_BOUND, memory_order_release);
	return true;
}

static void unbind(struct fabric_channel *ch)
{
	if (atomic_load_explicit(&ch->ctl->join.state, memory_order_relaxed) == SHM_BOUND)
		atomic_store_explicit(&ch->ctl->join.state, SHM_OFFER, memory_order_release);
}

static bool all_bound_alike(const struct fabric_channel *ch)
{
	struct offer offer;

	for (unsigned int r = 0; r < ch->join.nranks; r++) {
		const struct shm_peer *own = ch->ctl->join.peer;

		if (r == ch->join.rank)
			continue;
		if (!read_offer(ch->peer[r].ctl, &offer) || offer.state != SHM_BOUND ||
		    offer.generation != ch->peer[r].generation ||
		    memcmp(offer.peer, own, sizeof(offer.peer)))
			return false;
	}
	return true;
}

static void join_ready(struct fabric_channel *ch)
{
	ch->state = OPTINC_GROUP_READY;
	ch->seen = 1u << ch->join.rank;
	channel_moved(ch);
	if (ch->join.nranks > ch->port->crowd)
		ch->port->crowd = ch->join.nranks;
	port_wake_peers(ch);
	ch->changed(ch->changed_arg);
}

static void join_failed(struct fabric_channel *ch, uint32_t status, unsigned int peer,
			unsigned int mismatch)
{
	join_withdraw(ch);
	channel_fail(ch, status, peer, mismatch);
}

static void wake_everyone(struct fabric_channel *ch)
{
	struct shm_segment *shm = ch->port->segment->shm;

	/* Not only peers: who they are is what is being found out. */
	atomic_thread_fence(memory_order_seq_cst);
	for (unsigned int p = 0; p < ch->port->ports; p++)
		if (p != ch->port->index)
			port_wake(&shm->port[p]);
}

bool join_step(struct fabric_channel *ch)
{
	uint64_t now = fabric_clock_ns();

	if (now < ch->join_scan_ns && !ch->port->woken)
		return false;
	ch->join_scan_ns = now + SCAN_INTERVAL_NS;
	look_around(ch);
	if (ch->refuse_ns) {
		if (now >= ch->refuse_ns || everyone_here(ch)) {
			join_failed(ch, OPTINC_ST_MISMATCH, ch->peer_rank, ch->mismatch);
			return true;
		}
	} else if (everyone_here(ch)) {
		if (bind(ch))
			wake_everyone(ch);
		if (all_bound_alike(ch)) {
			join_ready(ch);
			return true;
		}
	} else {
		unbind(ch);
	}
	if (now >= ch->join_deadline_ns) {
		join_failed(ch, OPTINC_ST_TIMEOUT,
			    (unsigned int)__builtin_ctz(~ch->joined), 0);
		return true;
	}
	return false;
}

void join_offer(struct fabric_channel *ch)
{
	struct shm_channel *ctl = ch->ctl;
	struct shm_join *shm = &ctl->join;
	uint64_t word;

	ch->generation = atomic_load(&shm->generation) + 1;
	word = (uint64_t)ch->generation << 32;
	memcpy(shm->key, ch->join.key, sizeof(shm->key));
	shm->rank = ch->join.rank;
	shm->nranks = ch->join.nranks;
	shm->bits = ch->join.bits;
	shm->format = ch->join.format;
	shm->dtypes = ch->join.dtypes;
	shm->deadline_ms = ch->join.deadline_ms;
	memset(shm->peer, 0, sizeof(shm->peer));
	atomic_store(&ctl->post[0].word, word);
	atomic_store(&ctl->post[1].word, word);
	atomic_store(&ctl->finished, word);
	atomic_store(&shm->generation, ch->generation);
	atomic_store(&shm->state, SHM_OFFER);
	ch->peer[ch->join.rank] = (struct peer){
		.ctl = ctl, .slots = ch->slots, .generation = ch->generation,
		.pid = atomic_load(&ch->port->shm->pid),
		.port = (uint8_t)ch->port->index, .channel = (uint8_t)ch->index,
	};
	ch->joined = 1u << ch->join.rank;
	ch->join_deadline_ns = fabric_clock_ns() + ch->join.deadline_ms * NSEC_PER_MSEC;
	wake_everyone(ch);
}

void join_withdraw(struct fabric_channel *ch)
{
	atomic_store(&ch->ctl->join.state, SHM_IDLE);
}

/* One rank of a channel's last group: can it still be reading our slots? */
static bool peer_settled(struct fabric_port *port, const struct shm_peer *peer, uint32_t step)
{
	const struct shm_channel *ctl = join_peer_channel(port, peer->port, peer->channel);
	uint64_t want = (uint64_t)peer->generation << 32 | step;

	return !ctl || atomic_load(&ctl->join.generation) != peer->generation ||
	       atomic_load(&ctl->finished) == want ||
	       atomic_load(&ctl->abort) >> 32 == peer->generation ||
	       !segment_alive(port->segment, peer->port);
}

bool join_settled(struct fabric_port *port, unsigned int channel)
{
	const struct shm_channel *ctl = &port->shm->channel[channel];
	uint32_t even = (uint32_t)atomic_load(&ctl->post[0].word);
	uint32_t odd = (uint32_t)atomic_load(&ctl->post[1].word);
	uint32_t step = (int32_t)(even - odd) > 0 ? even : odd;

	if (!step || ctl->join.nranks > OPTINC_MAX_RANKS)
		return true;
	for (unsigned int r = 0; r < ctl->join.nranks; r++)
		if (r != ctl->join.rank && !peer_settled(port, &ctl->join.peer[r], step))
			return false;
	return true;
}
