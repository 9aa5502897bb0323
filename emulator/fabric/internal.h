/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files of the fabric share. */
#ifndef OPTINC_FABRIC_INTERNAL_H
#define OPTINC_FABRIC_INTERNAL_H

#include "emulator/fabric/kernels.h"
#include "emulator/fabric/segment.h"

#define NSEC_PER_MSEC		1000000ull

/* Where a request stands on this rank. */
enum stage {
	STAGE_START,	/* nothing posted yet */
	STAGE_HEADERS,	/* first step posted, peers' headers awaited */
	STAGE_DATA,	/* headers agree; chunks flow */
	STAGE_PACE,	/* done, but its modelled time has not passed */
};

/* The request at the head of a channel, and how far it is. */
struct progress {
	const struct collective *kind;
	enum stage stage;
	bool stream;			/* results bypass the cache */
	uint32_t first;			/* step that carried the header */
	uint64_t round;			/* rounds done since the header's step */
	uint64_t chunks;
	uint32_t chunk_elems;
	uint64_t started_ns;
	uint8_t exps[SLOTS][CHUNK_BLOCKS];	/* agreed, by chunk modulo SLOTS */
};

/**
 * struct collective - how one kind of request moves, see channel.c
 * @lead: steps that a chunk's exponents travel ahead of its codes
 * @share: each rank reduces a part of a chunk and reads the others' parts
 * @begin: fills the first step besides its header
 * @prepare: exponents of chunk @chunk, into the slot of step @step
 * @produce: codes of a chunk, into the slot of a step
 * @reduce: own share of the chunk whose codes came with step @from, into the
 *	slot of step @to
 * @deliver: results of the chunk, complete with step @step, to the host
 *
 * Each returns 0 or, the channel having failed, a negative errno. Members
 * that a kind does not need are NULL.
 */
struct collective {
	unsigned int lead;
	bool share;
	int (*begin)(struct fabric_channel *ch, struct fabric_request *rq, uint32_t step);
	int (*prepare)(struct fabric_channel *ch, struct fabric_request *rq,
		       uint64_t chunk, uint32_t step);
	int (*produce)(struct fabric_channel *ch, struct fabric_request *rq,
		       uint64_t chunk, uint32_t step);
	int (*reduce)(struct fabric_channel *ch, struct fabric_request *rq,
		      uint64_t chunk, uint32_t from, uint32_t to);
	int (*deliver)(struct fabric_channel *ch, struct fabric_request *rq,
		       uint64_t chunk, uint32_t step);
};

/* A peer's end of a READY group. */
struct peer {
	const struct shm_channel *ctl;
	const struct shm_slot *slots;
	uint32_t generation;
	uint32_t pid;
	uint8_t port;
	uint8_t channel;
};

/* What a request's modelled time depends on, besides the group, and what it is. */
struct link_time {
	uint64_t count;
	uint8_t opcode, flags, dtype, redop;
	uint8_t lanes;
	double codes_ns;		/* all but injected delay and replays */
	double replay_ns;		/* of one chunk */
};

struct fabric_channel {
	struct fabric_channel *next;	/* channels of the port in use */
	struct fabric_port *port;
	unsigned int index;
	struct shm_channel *ctl;
	struct shm_slot *slots;
	uint32_t generation;
	struct fabric_join join;
	void (*changed)(void *arg);
	void *changed_arg;

	uint32_t state;			/* OPTINC_GROUP_* */
	uint32_t status;
	uint8_t peer_rank;
	uint8_t mismatch;
	uint32_t joined;

	struct peer peer[OPTINC_MAX_RANKS];
	uint32_t step;			/* last posted */
	bool unannounced;		/* sleeping peers were not woken for it yet */
	struct shm_post draft;		/* of a request's first post */
	uint32_t seen;			/* ranks whose post of that step has been seen */

	struct fabric_request *head, **tail;
	struct progress now;
	struct link_time time;		/* of the last request: the next is often like it */

	uint32_t idle_polls;
	uint64_t idle_since_ns;		/* 0: something moved since the last look */
	uint64_t looked_ns;
	uint64_t alive_check_ns;
	uint64_t join_deadline_ns;
	uint64_t join_scan_ns;
	uint64_t refuse_ns;		/* when a refused join is given up */
};

struct fabric_port {
	struct segment *segment;
	unsigned int index;
	unsigned int ports;
	bool crowded;			/* a group has more ranks than processors */
	struct shm_port *shm;
	struct fabric_impairments impair;
	bool impaired;			/* something is to be drawn for each request */
	const struct fabric_kernels *kernels;
	struct fabric_channel *channels;
	uint32_t channels_used;		/* bitmap */
	bool woken;			/* after a sleep, look at everything */
	uint64_t requests_begun;
	uint64_t random;		/* state of the impairments' generator */
	struct fabric_counters counters;
	/* Work space of one step: codes of every rank, and bounce buffers. */
	uint8_t *scratch;
	uint8_t *bounce;
};

#define SCRATCH_BYTES	((size_t)OPTINC_MAX_RANKS * CHUNK_BYTES)
#define BOUNCE_BYTES	((size_t)CHUNK * 4)

/* port.c */
void port_wake(struct shm_port *shm);
void port_wake_peers(struct fabric_channel *ch);

/* After a group became ready, or went. */
void port_count_crowd(struct fabric_port *port);
/* Bitmap of the lanes that carry light. */
uint8_t port_lanes(const struct fabric_port *port);

/* join.c */
bool join_step(struct fabric_channel *ch);
void join_offer(struct fabric_channel *ch);
void join_withdraw(struct fabric_channel *ch);
/* Has every rank of the channel's last group read what it left in the slots? */
bool join_settled(struct fabric_port *port, unsigned int channel);
/* A peer's area, or NULL where port and channel are out of range. */
const struct shm_channel *join_peer_channel(const struct fabric_port *port,
					    unsigned int peer_port, unsigned int channel);

/* channel.c */
bool channel_step(struct fabric_channel *ch);
/* Has every rank posted the step that is waited for? */
bool channel_has_posts(struct fabric_channel *ch);
/* The epoch ends: peers are told, requests completed. Returns a negative errno. */
int channel_fail(struct fabric_channel *ch, uint32_t status, unsigned int peer,
		 unsigned int mismatch);
/* Ends every request of the channel; the first with @status. */
void channel_flush(struct fabric_channel *ch, uint32_t status, unsigned int peer,
		   unsigned int mismatch);

/* watch.c: called when nothing moved: is a peer gone, did one give up, is it late? */
void watch(struct fabric_channel *ch);
/* Has a peer given up? Cheap. The channel has failed if so. */
bool watch_gave_up(struct fabric_channel *ch);
/* Has a peer given up or died? The channel has failed if so. */
bool watch_peers(struct fabric_channel *ch);
/* Is every peer still of the group that was joined? Data read before is good if so. */
bool watch_same_peers(const struct fabric_channel *ch);

static inline void channel_moved(struct fabric_channel *ch)
{
	ch->idle_polls = 0;
	ch->idle_since_ns = 0;
}

/* header.c */
void header_fill(struct fabric_channel *ch, struct fabric_request *rq, struct shm_header *header);
/* Do the ranks ask for the same? If not, or if lanes failed, the channel has failed. */
int header_check(struct fabric_channel *ch, struct fabric_request *rq);

/* The kinds of requests: allreduce.c, raw.c, bytes.c */
const struct collective *allreduce_kind(const struct fabric_channel *ch,
					const struct fabric_request *rq,
					struct progress *now);
const struct collective *bytes_kind(const struct fabric_channel *ch,
				    const struct fabric_request *rq, struct progress *now);
extern const struct collective empty_kind;

/* memory.c: host memory of a request, by pointer where it can be */
const void *memory_load(struct fabric_channel *ch, struct fabric_request *rq,
			void *region, uint64_t offset, size_t length);
void *memory_open(struct fabric_channel *ch, struct fabric_request *rq,
		  uint64_t offset, size_t length);
int memory_commit(struct fabric_channel *ch, struct fabric_request *rq, uint64_t offset,
		  size_t length, const void *data);

/* link.c */
struct link_draw {
	uint32_t extra_ns;
	uint16_t replays;
};

#define LINK_DEAD	0xffff	/* replays: more than the lanes may try */

void link_draw(struct fabric_port *port, const struct fabric_request *rq, unsigned int bits,
	       struct link_draw *draw);
/* Modelled time of the channel's request over the lanes of bitmap @lanes, with @replays by all ranks together. */
uint64_t link_time_ns(struct fabric_channel *ch, const struct fabric_request *rq,
		      uint8_t lanes, uint32_t replays, uint32_t extra_ns);
/* Bytes of codes and exponents that @count elements of a request are on the lanes. */
uint64_t link_tx_bytes(const struct fabric_request *rq, unsigned int rank, unsigned int bits,
		       uint64_t count);
uint64_t link_rx_bytes(const struct fabric_request *rq, unsigned int rank, unsigned int nranks,
		       unsigned int bits, uint64_t count);

/* Step data: in the slot of the step's number. */
static inline struct shm_slot *own_slot(struct fabric_channel *ch, uint32_t step)
{
	return &ch->slots[step % SLOTS];
}

static inline const struct shm_slot *peer_slot(const struct fabric_channel *ch,
					       unsigned int rank, uint32_t step)
{
	return &ch->peer[rank].slots[step % SLOTS];
}

#endif /* OPTINC_FABRIC_INTERNAL_H */
