/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The fabric: where the ports of one machine's emulated cards meet.
 *
 * A fabric is a named shared-memory segment. Each process attaches the ports
 * of its cards; the ranks of a group then exchange exponents, codes and
 * reduced codes through it, and each does its share of the optical unit's
 * arithmetic. There is no daemon and no lock across processes. Every area
 * has one writer; whatever is read from a peer's is checked before use.
 *
 * Nothing here blocks but fabric_sleep(). A port is driven by one thread at a
 * time, which calls fabric_step(); fabric_kick() may be called by any.
 */
#ifndef OPTINC_FABRIC_H
#define OPTINC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/optinc.h>

#define FABRIC_MAX_PORTS	OPTINC_MAX_RANKS
#define FABRIC_MAX_CHANNELS	16	/* groups of one port */
#define FABRIC_LANES		8
#define FABRIC_LANE_MBPS	800000

struct fabric_port;
struct fabric_channel;

/**
 * struct fabric_impairments - how the port's lanes fall short
 * @seed: of all that is drawn
 * @delay_ns: added to each request's modelled time
 * @jitter_ns: uniform in 0..jitter_ns, drawn per request, added too
 * @loss: probability that a symbol is lost; its chunk is sent again
 * @dead_lanes: bitmap of lanes without light
 * @mute_after: stop answering peers after so many requests, 0 for never
 * @pace: hold a completion back until its modelled time has passed
 */
struct fabric_impairments {
	uint64_t seed;
	uint64_t delay_ns;
	uint64_t jitter_ns;
	double loss;
	uint32_t dead_lanes;
	uint64_t mute_after;
	bool pace;
};

struct fabric_config {
	char name[64];		/* [A-Za-z0-9._-]+ */
	unsigned int port;	/* 0..ports-1 */
	unsigned int ports;	/* 2..FABRIC_MAX_PORTS, equal for all who attach */
	struct fabric_impairments impair;
};

/**
 * fabric_attach() - take a port
 * @error: on failure a sentence with what to do
 *
 * Makes the segment where there is none, and remakes one that nobody is
 * attached to. -EBUSY: the port is taken. -EINVAL: other count of ports than
 * those attached. -ENOSPC: no room in /dev/shm. -EACCES: another user's.
 */
int fabric_attach(const struct fabric_config *config, struct fabric_port **port,
		  char *error, size_t error_size);
/* Peers in groups still joined see this rank lost. The last one out removes the segment. */
void fabric_detach(struct fabric_port *port);

/* Reach into memory of the host, on behalf of one request. */
struct fabric_memory_ops {
	/* A pointer good until the next fabric_step(), or NULL: use read, write. */
	void *(*map)(void *mr, uint64_t offset, size_t length, bool write);
	/* 0, or negative errno: the request fails with OPTINC_ST_DMA. */
	int (*read)(void *mr, uint64_t offset, void *buf, size_t length);
	int (*write)(void *mr, uint64_t offset, const void *buf, size_t length);
};

/**
 * struct fabric_request - one collective
 *
 * The card fills the upper part, having checked it against the group and the
 * memory regions, and keeps it until @complete is called, from within
 * fabric_step() or fabric_leave(), with the lower part filled.
 */
struct fabric_request {
	uint8_t opcode;
	uint8_t flags;
	uint8_t dtype;
	uint8_t redop;
	uint8_t root;
	uint32_t tag;
	uint64_t count;
	const struct fabric_memory_ops *memory;
	void *src, *dst, *exp;	/* regions; NULL where there is none */
	uint64_t src_off, dst_off, exp_off;
	void (*complete)(struct fabric_request *request);

	uint32_t status;	/* enum optinc_status */
	uint8_t peer;
	uint8_t mismatch;
	uint32_t nonfinite;
	uint32_t saturated;
	uint64_t wire_ns;

	struct fabric_request *next;	/* the fabric's, while it holds the request */
};

struct fabric_join {
	uint8_t key[OPTINC_KEY_BYTES];
	uint32_t rank, nranks, bits, format;
	uint64_t dtypes;
	uint32_t deadline_ms;
};

struct fabric_state {
	uint32_t state;		/* OPTINC_GROUP_* */
	uint32_t status;	/* why FAILED */
	uint8_t peer;
	uint8_t mismatch;	/* OPTINC_JOIN_SIZE and following, for a failed join */
	uint32_t joined;	/* bitmap of ranks */
};

/*
 * fabric_join() - offer to reduce with whoever offers the same key
 *
 * Returns at once; @changed(@arg) is called from fabric_step() when the state
 * leaves JOINING, and when a READY group fails. -ENOSPC: no free channel, or
 * no room in /dev/shm. -EEXIST: this port offers that key already.
 */
int fabric_join(struct fabric_port *port, const struct fabric_join *join,
		void (*changed)(void *arg), void *arg, struct fabric_channel **channel);
void fabric_query(struct fabric_channel *channel, struct fabric_state *state);
/* Completes all requests (ABORTED), tells the peers, frees the channel. */
void fabric_leave(struct fabric_channel *channel);
/* The same, but peers are told that this rank is lost: a reset, a context that ends. */
void fabric_lose(struct fabric_channel *channel);
/* Completes all requests (ABORTED), tells the peers; the channel is FAILED. */
void fabric_abort(struct fabric_channel *channel);
/* Queue a request behind the group's others; a FAILED group completes it with EPOCH_ENDED. */
void fabric_submit(struct fabric_channel *channel, struct fabric_request *request);

/* Do what can be done now; true if anything was. */
bool fabric_step(struct fabric_port *port);
/*
 * fabric_sleep() - after a step that did nothing: sleep until a peer posts, a
 * kick, or the time; @recheck (or NULL) is asked once the sleep is announced,
 * and true cancels it.
 */
void fabric_sleep(struct fabric_port *port, uint64_t timeout_ns,
		  bool (*recheck)(void *arg), void *arg);
/* Wake the port's sleeper, if there is one. Cheap when there is not. */
void fabric_kick(struct fabric_port *port);
/* More ranks share this machine's processors than there are: yield, do not spin. */
bool fabric_crowded(const struct fabric_port *port);

struct fabric_counters {
	uint64_t tx_bytes, rx_bytes, requests, errors, replays, nonfinite, saturated, wire_ns;
};

void fabric_counters(const struct fabric_port *port, struct fabric_counters *counters);
unsigned int fabric_lanes_up(const struct fabric_port *port);
uint64_t fabric_clock_ns(void);

#endif /* OPTINC_FABRIC_H */
