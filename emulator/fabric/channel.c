// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * One rank's end of a group: requests in order, in steps all ranks take alike.
 *
 * A step is a post: the rank writes its data for the step into the slot of
 * the step's number, then the step's number into its post word. Waiting for a
 * step is waiting for every peer's post of it. The first step of a request
 * carries its header. A chunk's exponents go with step N, its codes, which
 * need everyone's exponents, with N + 1; where ranks share the reduction, the
 * reduced parts go with N + 2. Chunks follow each other at one step's
 * distance, so a post carries exponents of one chunk, codes of the one before
 * and reduced codes of the one before that.
 *
 * Slots. A rank reads what came with step S until just before it posts S + 2.
 * A rank that has seen all posts of S + 2 may therefore write the slot of S
 * again; with four slots it writes step S + 4 having seen at least those of
 * S + 2. The two posts alternate likewise: S + 2 is posted having seen S + 1
 * of all, which they post after reading S.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/fabric/internal.h"

#define POLLS_AT_ONCE	16

static inline void cpu_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

/*
 * Peers that sleep are woken later, see wake_sleepers(): whether they do can
 * only be told once the post is visible to all, which takes a while.
 */
static void post_step(struct fabric_channel *ch)
{
	uint32_t step = ch->step + 1;
	uint64_t word = (uint64_t)ch->generation << 32 | step;

	atomic_store_explicit(&ch->ctl->post[step & 1].word, word, memory_order_release);
	ch->step = step;
	ch->seen = 1u << ch->join.rank;
	ch->unannounced = true;
	channel_moved(ch);
}

/* Before waiting, and before a request ends: when there is time, or none later. */
static void wake_sleepers(struct fabric_channel *ch)
{
	if (!ch->unannounced)
		return;
	ch->unannounced = false;
	port_wake_peers(ch);
}

/* The line is written at once: peers poll it, and would take it in between. */
static void post_first(struct fabric_channel *ch)
{
	struct shm_post *post = &ch->ctl->post[(ch->step + 1) & 1];

	post->header = ch->draft.header;
	memcpy(post->data, ch->draft.data, sizeof(post->data));
	post_step(ch);
}

static bool all_posted(struct fabric_channel *ch)
{
	uint32_t missing = ((1u << ch->join.nranks) - 1) & ~ch->seen;

	for (; missing; missing &= missing - 1) {
		unsigned int r = (unsigned int)__builtin_ctz(missing);
		const struct peer *peer = &ch->peer[r];
		uint64_t want = (uint64_t)peer->generation << 32 | ch->step;

		if (atomic_load_explicit(&peer->ctl->post[ch->step & 1].word,
					 memory_order_acquire) != want)
			return false;
		ch->seen |= 1u << r;
	}
	return true;
}

bool channel_has_posts(struct fabric_channel *ch)
{
	return all_posted(ch);
}

/*
 * Peers are often about to post: a short look is cheaper than another round.
 * It comes before waking those who sleep, which waits for the post to be
 * visible to all.
 */
static bool all_posted_soon(struct fabric_channel *ch)
{
	int polls = fabric_crowded(ch->port) ? 1 : POLLS_AT_ONCE;

	for (int i = 0; i < polls; i++) {
		if (all_posted(ch))
			return true;
		cpu_pause();
	}
	wake_sleepers(ch);
	return false;
}

static void complete(struct fabric_channel *ch, uint32_t status, unsigned int peer,
		     unsigned int mismatch)
{
	struct fabric_request *rq = ch->head;
	struct fabric_counters *counters = &ch->port->counters;

	ch->head = rq->next;
	if (!ch->head)
		ch->tail = &ch->head;
	ch->now.stage = STAGE_START;
	rq->status = status;
	rq->peer = (uint8_t)peer;
	rq->mismatch = (uint8_t)mismatch;
	if (status != OPTINC_ST_SUCCESS) {
		rq->nonfinite = 0;
		rq->saturated = 0;
		rq->wire_ns = 0;
	}
	counters->requests++;
	counters->errors += status != OPTINC_ST_SUCCESS;
	counters->nonfinite += rq->nonfinite;
	counters->saturated += rq->saturated;
	counters->wire_ns += rq->wire_ns;
	wake_sleepers(ch);
	rq->complete(rq);
}

/* Causes that concern the group, not one request: all that is outstanding has them. */
static bool concerns_group(uint32_t status)
{
	return status == OPTINC_ST_ABORTED || status == OPTINC_ST_PEER_LOST ||
	       status == OPTINC_ST_LINK;
}

void channel_flush(struct fabric_channel *ch, uint32_t status, unsigned int peer,
		   unsigned int mismatch)
{
	while (ch->head) {
		complete(ch, status, peer, mismatch);
		if (!concerns_group(status))
			status = OPTINC_ST_EPOCH_ENDED;
		mismatch = 0;
	}
}

static void tell_peers(struct fabric_channel *ch, uint32_t status, unsigned int peer,
		       unsigned int mismatch)
{
	uint64_t word = (uint64_t)ch->generation << 32 | status << 16 | peer << 8 | mismatch;

	atomic_store_explicit(&ch->ctl->abort, word, memory_order_release);
	port_wake_peers(ch);
}

int channel_fail(struct fabric_channel *ch, uint32_t status, unsigned int peer,
		 unsigned int mismatch)
{
	bool was_ready = ch->state == OPTINC_GROUP_READY;

	ch->state = OPTINC_GROUP_FAILED;
	ch->status = status;
	ch->peer_rank = (uint8_t)peer;
	ch->mismatch = (uint8_t)mismatch;
	if (was_ready)
		tell_peers(ch, status, peer, mismatch);
	channel_flush(ch, status, peer, mismatch);
	ch->changed(ch->changed_arg);
	return -EIO;
}

static void finish(struct fabric_channel *ch)
{
	struct fabric_request *rq = ch->head;

	if (!watch_same_peers(ch)) {
		/* Somebody left while we read: what we read may not be theirs. */
		watch(ch);
		if (ch->state == OPTINC_GROUP_READY)
			channel_fail(ch, OPTINC_ST_ABORTED, OPTINC_NO_RANK, 0);
		return;
	}
	atomic_store_explicit(&ch->ctl->finished, (uint64_t)ch->generation << 32 | ch->step,
			      memory_order_release);
	if (ch->port->impair.pace &&
	    fabric_clock_ns() < ch->now.started_ns + rq->wire_ns) {
		ch->now.stage = STAGE_PACE;
		wake_sleepers(ch);
		return;
	}
	complete(ch, OPTINC_ST_SUCCESS, OPTINC_NO_RANK, 0);
}

static const struct collective *kind_of(const struct fabric_channel *ch,
					const struct fabric_request *rq, struct progress *now)
{
	now->chunks = 0;
	if (rq->opcode == OPTINC_OP_BARRIER || !rq->count)
		return &empty_kind;
	if (rq->opcode == OPTINC_OP_ALLREDUCE && rq->dtype != OPTINC_BIT)
		return allreduce_kind(ch, rq, now);
	return bytes_kind(ch, rq, now);
}

static void count_traffic(struct fabric_channel *ch, const struct fabric_request *rq,
			  uint64_t chunk)
{
	uint64_t left = rq->count - chunk * ch->now.chunk_elems;
	uint64_t n = left < ch->now.chunk_elems ? left : ch->now.chunk_elems;
	struct fabric_counters *counters = &ch->port->counters;

	counters->tx_bytes += link_tx_bytes(rq, ch->join.rank, ch->join.bits, n);
	counters->rx_bytes += link_rx_bytes(rq, ch->join.rank, ch->join.nranks, ch->join.bits, n);
}

static int produce(struct fabric_channel *ch, struct fabric_request *rq, uint64_t chunk,
		   uint32_t step)
{
	count_traffic(ch, rq, chunk);
	return ch->now.kind->produce(ch, rq, chunk, step);
}

static int prepare(struct fabric_channel *ch, struct fabric_request *rq, uint64_t chunk,
		   uint32_t step)
{
	if (!ch->now.kind->prepare || chunk >= ch->now.chunks)
		return 0;
	return ch->now.kind->prepare(ch, rq, chunk, step);
}

/* The first step: the header, and what of the data needs nothing from peers. */
static bool start(struct fabric_channel *ch, struct fabric_request *rq)
{
	struct progress *now = &ch->now;
	uint32_t step = ch->step + 1;

	if (ch->port->impair.mute_after &&
	    ch->port->requests_begun >= ch->port->impair.mute_after) {
		watch(ch);
		return ch->state != OPTINC_GROUP_READY;
	}
	/* What nobody can have completed without us fails if the epoch has ended. */
	if (watch_gave_up(ch))
		return true;
	ch->port->requests_begun++;
	now->kind = kind_of(ch, rq, now);
	now->first = step;
	now->round = 0;
	now->started_ns = ch->port->impair.pace ? fabric_clock_ns() : 0;
	rq->nonfinite = 0;
	rq->saturated = 0;
	rq->wire_ns = 0;
	header_fill(ch, rq, &ch->draft.header);
	if (now->kind->begin) {
		if (now->chunks)
			count_traffic(ch, rq, 0);
		if (now->kind->begin(ch, rq, step))
			return true;
	} else if (now->kind->lead) {
		if (prepare(ch, rq, 0, step))
			return true;
	} else if (now->chunks) {
		if (produce(ch, rq, 0, step))
			return true;
	}
	post_first(ch);
	now->stage = STAGE_HEADERS;
	if (now->kind->lead)
		prepare(ch, rq, 1, step + 1);
	return true;
}

/*
 * One round, all peers having posted step first + round: reduce the chunk
 * whose codes came with it, send the codes of the next, post, and hand over
 * the chunk that is complete.
 */
static void data_round(struct fabric_channel *ch, struct fabric_request *rq)
{
	struct progress *now = &ch->now;
	const struct collective *kind = now->kind;
	uint32_t have = now->first + (uint32_t)now->round;
	int64_t coded = (int64_t)now->round - kind->lead;	/* codes came with @have */
	int64_t ready = coded - kind->share;			/* complete with @have */
	int64_t chunks = (int64_t)now->chunks;
	bool post = false;

	if (kind->share && coded >= 0 && coded < chunks) {
		if (kind->reduce(ch, rq, (uint64_t)coded, have, have + 1))
			return;
		post = true;
	}
	if (coded + 1 < chunks) {
		if (produce(ch, rq, (uint64_t)(coded + 1), have + 1))
			return;
		post = true;
	}
	if (post)
		post_step(ch);
	if (ready >= 0 && kind->deliver(ch, rq, (uint64_t)ready, have))
		return;
	now->round++;
	if (ready + 1 == chunks) {
		finish(ch);
		return;
	}
	prepare(ch, rq, now->round + 1, have + 2);
}

static bool headers(struct fabric_channel *ch, struct fabric_request *rq)
{
	if (header_check(ch, rq))
		return true;
	if (!ch->now.chunks) {
		finish(ch);
		return true;
	}
	ch->now.stage = STAGE_DATA;
	data_round(ch, rq);
	return true;
}

bool channel_step(struct fabric_channel *ch)
{
	struct fabric_request *rq = ch->head;

	if (ch->state == OPTINC_GROUP_JOINING)
		return join_step(ch);
	if (!rq)
		return false;
	if (ch->now.stage == STAGE_START) {
		if (!start(ch, rq))
			return false;
		/* a short request is often done with one more look */
		if (ch->now.stage != STAGE_HEADERS || !all_posted_soon(ch))
			return true;
		return headers(ch, rq);
	}
	if (ch->now.stage == STAGE_PACE) {
		if (fabric_clock_ns() < ch->now.started_ns + rq->wire_ns)
			return false;
		complete(ch, OPTINC_ST_SUCCESS, OPTINC_NO_RANK, 0);
		return true;
	}
	if (!all_posted_soon(ch)) {
		watch(ch);
		/* it may have ended the epoch, or seen the last post */
		return ch->state != OPTINC_GROUP_READY ||
		       ch->seen == (1u << ch->join.nranks) - 1;
	}
	channel_moved(ch);
	if (ch->now.stage == STAGE_HEADERS)
		return headers(ch, rq);
	data_round(ch, rq);
	return true;
}

static struct fabric_channel *find_key(struct fabric_port *port, const uint8_t *key)
{
	struct fabric_channel *ch;

	for (ch = port->channels; ch; ch = ch->next)
		if (!memcmp(ch->join.key, key, OPTINC_KEY_BYTES) &&
		    ch->state != OPTINC_GROUP_FAILED)
			return ch;
	return NULL;
}

static int free_channel(struct fabric_port *port)
{
	if (__builtin_popcount(port->channels_used) == FABRIC_MAX_CHANNELS)
		return -ENOSPC;
	for (unsigned int i = 0; i < SEGMENT_CHANNELS; i++)
		if (!(port->channels_used & 1u << i) && join_settled(port, i))
			return (int)i;
	return -ENOSPC;
}

int fabric_join(struct fabric_port *port, const struct fabric_join *join,
		void (*changed)(void *arg), void *arg, struct fabric_channel **result)
{
	struct fabric_channel *ch;
	int index, ret;

	if (find_key(port, join->key))
		return -EEXIST;
	index = free_channel(port);
	if (index < 0)
		return index;
	ret = segment_reserve(port->segment, port->index, (unsigned int)index);
	if (ret)
		return ret;
	ch = aligned_alloc(SEGMENT_LINE, sizeof(*ch));
	if (!ch)
		return -ENOMEM;
	memset(ch, 0, sizeof(*ch));
	ch->port = port;
	ch->index = (unsigned int)index;
	ch->ctl = &port->shm->channel[index];
	ch->slots = segment_slots(port->segment, port->index, ch->index);
	ch->join = *join;
	ch->changed = changed;
	ch->changed_arg = arg;
	ch->state = OPTINC_GROUP_JOINING;
	ch->tail = &ch->head;
	port->channels_used |= 1u << index;
	ch->next = port->channels;
	port->channels = ch;
	join_offer(ch);
	*result = ch;
	return 0;
}

void fabric_query(struct fabric_channel *ch, struct fabric_state *state)
{
	if (ch->state == OPTINC_GROUP_READY)
		watch_peers(ch);	/* an idle group is not looked at otherwise */
	*state = (struct fabric_state){
		.state = ch->state,
		.status = ch->state == OPTINC_GROUP_FAILED ? ch->status : OPTINC_ST_SUCCESS,
		.peer = ch->state == OPTINC_GROUP_FAILED ? ch->peer_rank : OPTINC_NO_RANK,
		.mismatch = ch->state == OPTINC_GROUP_FAILED ? ch->mismatch : 0,
		.joined = ch->joined,
	};
}

void fabric_abort(struct fabric_channel *ch)
{
	if (ch->state == OPTINC_GROUP_JOINING)
		join_withdraw(ch);
	if (ch->state != OPTINC_GROUP_FAILED)
		channel_fail(ch, OPTINC_ST_ABORTED, ch->join.rank, 0);
}

static void leave(struct fabric_channel *ch, uint32_t told)
{
	struct fabric_port *port = ch->port;
	struct fabric_channel **p;

	if (ch->state == OPTINC_GROUP_READY)
		tell_peers(ch, told, ch->join.rank, 0);
	ch->state = OPTINC_GROUP_FAILED;
	channel_flush(ch, OPTINC_ST_ABORTED, ch->join.rank, 0);
	join_withdraw(ch);
	for (p = &port->channels; *p != ch; p = &(*p)->next)
		;
	*p = ch->next;
	port->channels_used &= ~(1u << ch->index);
	free(ch);
	port_count_crowd(port);
}

void fabric_leave(struct fabric_channel *ch)
{
	leave(ch, OPTINC_ST_ABORTED);
}

void fabric_lose(struct fabric_channel *ch)
{
	leave(ch, OPTINC_ST_PEER_LOST);
}

void fabric_submit(struct fabric_channel *ch, struct fabric_request *rq)
{
	rq->next = NULL;
	rq->nonfinite = 0;
	rq->saturated = 0;
	rq->wire_ns = 0;
	*ch->tail = rq;
	ch->tail = &rq->next;
	if (ch->state == OPTINC_GROUP_FAILED)
		channel_flush(ch, OPTINC_ST_EPOCH_ENDED, ch->peer_rank, 0);
}

/* A barrier, or nothing to reduce: the header is all. */
const struct collective empty_kind;
