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
 * rank that is not in the same group with it. A record that is ready belongs
 * to an epoch that has begun, perhaps long ago: it counts for those it names.
 *
 * All are compared with the founder, who offered first. A join that is refused
 * stays a moment before it fails, so that the others have time to see the same
 * records and come to the same verdict.
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
	uint64_t since_ns;
	struct fabric_join join;
	struct shm_peer peer[OPTINC_MAX_RANKS];
};

const struct shm_channel *join_peer_channel(const struct fabric_port *port,
					    unsigned int peer_port, unsigned int channel)
{
	if (peer_port >= port->ports || channel >= SEGMENT_CHANNELS)
		return NULL;
	return &port->segment->shm->port[peer_port].channel[channel];
}

static bool read_offer(const struct shm_channel *ctl, struct offer *offer)
{
	const struct shm_join *shm = &ctl->join;

	offer->state = atomic_load_explicit(&shm->state, memory_order_acquire);
	if (offer->state == SHM_IDLE)
		return false;
	offer->generation = atomic_load_explicit(&shm->generation, memory_order_acquire);
	memcpy(offer->join.key, shm->key, sizeof(shm->key));
	offer->join.rank = shm->rank;
	offer->join.nranks = shm->nranks;
	offer->join.bits = shm->bits;
	offer->join.format = shm->format;
	offer->join.dtypes = shm->dtypes;
	offer->join.deadline_ms = shm->deadline_ms;
	offer->since_ns = shm->since_ns;
	memcpy(offer->peer, shm->peer, sizeof(offer->peer));
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&shm->state, memory_order_relaxed) == offer->state &&
	       atomic_load_explicit(&shm->generation, memory_order_relaxed) == offer->generation;
}

static unsigned int differences(const struct fabric_join *founder, const struct fabric_join *other)
{
	unsigned int diff = 0;

	if (founder->nranks != other->nranks)
		diff |= OPTINC_JOIN_SIZE;
	if (founder->bits != other->bits)
		diff |= OPTINC_JOIN_BITS;
	if (founder->dtypes != other->dtypes)
		diff |= OPTINC_JOIN_DTYPES;
	if (founder->format != other->format)
		diff |= OPTINC_JOIN_FORMAT;
	if (founder->deadline_ms != other->deadline_ms)
		diff |= OPTINC_JOIN_DEADLINE;
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

/* An offer by a live rank, with where it stands. */
struct candidate {
	struct offer offer;
	uint8_t port;
	uint8_t channel;
};

static bool names_us(const struct fabric_channel *ch, const struct offer *offer)
{
	const struct shm_peer *us = &offer->peer[ch->join.rank];

	return us->generation == ch->generation && us->port == ch->port->index &&
	       us->channel == ch->index;
}

/* Is it about the epoch that we are joining? */
static bool concerns_us(const struct fabric_channel *ch, const struct candidate *found)
{
	const struct offer *offer = &found->offer;

	if (memcmp(offer->join.key, ch->join.key, OPTINC_KEY_BYTES) ||
	    offer->join.nranks > OPTINC_MAX_RANKS || offer->join.rank >= offer->join.nranks)
		return false;
	/* One that was ready with us counts even if it has left or died since. */
	return offer->state == SHM_READY ? names_us(ch, offer) :
					   segment_alive(ch->port->segment, found->port);
}

static bool earlier(const struct candidate *a, const struct candidate *b)
{
	if (a->offer.since_ns != b->offer.since_ns)
		return a->offer.since_ns < b->offer.since_ns;
	return a->port < b->port;
}

/* All offers of our key, ours included, by age. */
static unsigned int find_offers(struct fabric_channel *ch, struct candidate *list)
{
	unsigned int n = 0;

	for (unsigned int p = 0; p < ch->port->ports; p++) {
		for (unsigned int c = 0; c < SEGMENT_CHANNELS; c++) {
			struct candidate found = { .port = (uint8_t)p, .channel = (uint8_t)c };
			unsigned int i;

			if (!read_offer(join_peer_channel(ch->port, p, c), &found.offer) ||
			    !concerns_us(ch, &found))
				continue;
			for (i = n++; i && earlier(&found, &list[i - 1]); i--)
				list[i] = list[i - 1];
			list[i] = found;
			break;	/* a port offers a key once */
		}
	}
	return n;
}

static void accept(struct fabric_channel *ch, const struct candidate *found)
{
	const struct shm_segment *shm = ch->port->segment->shm;
	unsigned int rank = found->offer.join.rank;

	ch->joined |= 1u << rank;
	ch->peer[rank] = (struct peer){
		.ctl = &shm->port[found->port].channel[found->channel],
		.slots = segment_slots(ch->port->segment, found->port, found->channel),
		.generation = found->offer.generation,
		.pid = atomic_load(&shm->port[found->port].pid),
		.port = found->port,
		.channel = found->channel,
	};
}

/* Who is here, and does everyone agree with the founder? */
static void look_around(struct fabric_channel *ch)
{
	struct candidate list[FABRIC_MAX_PORTS];
	unsigned int n = find_offers(ch, list);
	uint64_t deadline;

	ch->joined = 0;
	if (!n)
		return;
	deadline = list[0].offer.since_ns + ch->join.deadline_ms * NSEC_PER_MSEC;
	if (deadline < ch->join_deadline_ns)
		ch->join_deadline_ns = deadline;
	for (unsigned int i = 0; i < n; i++) {
		const struct fabric_join *join = &list[i].offer.join;
		unsigned int diff = differences(&list[0].offer.join, join);

		if (!diff && ch->joined & 1u << join->rank)
			diff = OPTINC_JOIN_RANK;
		if (diff)
			refuse(ch, join->rank, diff);
		else
			accept(ch, &list[i]);
	}
}

static bool everyone_here(const struct fabric_channel *ch)
{
	return !ch->refuse_ns && ch->joined == (1u << ch->join.nranks) - 1;
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
		if (!read_offer(ch->peer[r].ctl, &offer) || offer.state == SHM_OFFER ||
		    offer.generation != ch->peer[r].generation ||
		    memcmp(offer.peer, own, sizeof(offer.peer)))
			return false;
	}
	return true;
}

static void join_ready(struct fabric_channel *ch)
{
	atomic_store_explicit(&ch->ctl->join.state, SHM_READY, memory_order_release);
	ch->state = OPTINC_GROUP_READY;
	ch->seen = 1u << ch->join.rank;
	channel_moved(ch);
	port_count_crowd(ch->port);
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

/*
 * Ranks that time out withdraw, all at about the same time. What is seen after
 * the deadline therefore does not count: it would name those who were here.
 */
static bool look_in_time(struct fabric_channel *ch)
{
	uint32_t joined = ch->joined;

	if (fabric_clock_ns() < ch->join_deadline_ns) {
		look_around(ch);
		if (fabric_clock_ns() < ch->join_deadline_ns)
			return true;
	}
	ch->joined = joined;
	return false;
}

static bool try_bind(struct fabric_channel *ch)
{
	if (!everyone_here(ch)) {
		unbind(ch);
		return false;
	}
	if (bind(ch))
		wake_everyone(ch);
	if (!all_bound_alike(ch))
		return false;
	join_ready(ch);
	return true;
}

bool join_step(struct fabric_channel *ch)
{
	uint64_t now = fabric_clock_ns();

	if (ch->refuse_ns && now >= ch->refuse_ns) {
		join_failed(ch, OPTINC_ST_MISMATCH, ch->peer_rank, ch->mismatch);
		return true;
	}
	if (now < ch->join_scan_ns && !ch->port->woken)
		return false;
	ch->join_scan_ns = now + SCAN_INTERVAL_NS;
	if (look_in_time(ch))
		return try_bind(ch);
	if (ch->refuse_ns)
		return false;
	join_failed(ch, OPTINC_ST_TIMEOUT, (unsigned int)__builtin_ctz(~ch->joined), 0);
	return true;
}

void join_offer(struct fabric_channel *ch)
{
	struct shm_channel *ctl = ch->ctl;
	struct shm_join *shm = &ctl->join;
	uint64_t word;

	atomic_store(&shm->state, SHM_IDLE);
	ch->generation = atomic_load(&shm->generation) + 1;
	word = (uint64_t)ch->generation << 32;
	memcpy(shm->key, ch->join.key, sizeof(shm->key));
	shm->rank = ch->join.rank;
	shm->nranks = ch->join.nranks;
	shm->bits = ch->join.bits;
	shm->format = ch->join.format;
	shm->dtypes = ch->join.dtypes;
	shm->deadline_ms = ch->join.deadline_ms;
	shm->since_ns = fabric_clock_ns();
	memset(shm->peer, 0, sizeof(shm->peer));
	atomic_store(&ctl->post[0].word, word);
	atomic_store(&ctl->post[1].word, word);
	atomic_store(&ctl->finished, word);
	atomic_store(&shm->generation, ch->generation);
	atomic_store(&shm->state, SHM_OFFER);
	ch->joined = 1u << ch->join.rank;
	ch->join_deadline_ns = shm->since_ns + ch->join.deadline_ms * NSEC_PER_MSEC;
	wake_everyone(ch);
}

void join_withdraw(struct fabric_channel *ch)
{
	/* A ready record stays: others may still have to see that they are, too. */
	if (atomic_load(&ch->ctl->join.state) != SHM_READY)
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
