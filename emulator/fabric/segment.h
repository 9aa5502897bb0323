/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The fabric's shared memory: its layout, and how processes attach to it.
 *
 * An area has one writer, the process that holds its port's lock; the only
 * word that others write is the port's sleep flag, whose value carries no
 * meaning beyond "wake up". A reader takes nothing in a peer's area for
 * granted: generations, indices and sizes are checked before they are used.
 */
#ifndef OPTINC_FABRIC_SEGMENT_H
#define OPTINC_FABRIC_SEGMENT_H

#include <stdalign.h>
#include <stdatomic.h>

#include "emulator/fabric/fabric.h"

#define SEGMENT_MAGIC		0x4f494e4346414204ULL
#define SEGMENT_LINE		64

#define CHUNK			32768	/* elements that travel in one step */
#define CHUNK_BLOCKS		(CHUNK / OPTINC_BLOCK)
#define CHUNK_BYTES		65536	/* of codes, or of a broadcast */
/* A third of a chunk, in whole blocks, of 32-bit sums: the largest share. */
#define SHARE_BYTES		((CHUNK_BLOCKS / 3 + 1) * OPTINC_BLOCK * 4)
#define SLOTS			4
#define POST_INLINE		32
/* Of a port: its groups', and those of groups it left that a peer may still read. */
#define SEGMENT_CHANNELS	(2 * FABRIC_MAX_CHANNELS)
#define FABRIC_CPU_WORDS	16	/* bitmap; processors beyond are not counted */

/* What the ranks of a group must agree on, and what the lanes add. */
struct shm_header {
	uint8_t opcode;
	uint8_t flags;
	uint8_t dtype;
	uint8_t redop;
	uint8_t root;
	uint8_t lanes;		/* bitmap of those that carry light */
	uint16_t replays;	/* chunks this rank has to send again; LINK_DEAD */
	uint32_t tag;
	uint32_t extra_ns;	/* delay and jitter */
	uint64_t count;
};

/* One step's post. Steps alternate between two, each on a line of its own. */
struct shm_post {
	alignas(SEGMENT_LINE) _Atomic uint64_t word;	/* generation << 32 | step */
	struct shm_header header;			/* of a request's first step */
	uint8_t data[POST_INLINE];
};

_Static_assert(sizeof(struct shm_post) == SEGMENT_LINE, "a post is one cache line");

/* Data of one step; post.word is what makes it valid. */
struct shm_slot {
	alignas(SEGMENT_LINE) uint8_t exps[CHUNK_BLOCKS];
	alignas(SEGMENT_LINE) uint8_t codes[CHUNK_BYTES];
	alignas(SEGMENT_LINE) uint8_t reduced[SHARE_BYTES];
};

enum shm_offer {
	SHM_IDLE,
	SHM_OFFER,	/* looking for the others */
	SHM_BOUND,	/* peer[] names all the others as this rank sees them */
	SHM_READY,	/* so they do; of interest only to those whom peer[] names */
};

struct shm_peer {
	uint32_t generation;
	uint8_t port;
	uint8_t channel;
	uint16_t unused;
};

/* Rendezvous of a group, see join.c. */
struct shm_join {
	_Atomic uint32_t state;		/* enum shm_offer */
	_Atomic uint32_t generation;	/* new with each join */
	uint8_t key[OPTINC_KEY_BYTES];
	uint32_t rank, nranks, bits, format;
	uint64_t dtypes;
	uint32_t deadline_ms;
	uint32_t unused;
	uint64_t since_ns;		/* of the offer; the earliest is the founder */
	struct shm_peer peer[OPTINC_MAX_RANKS];
};

/* Control of one rank's end of one group. */
struct shm_channel {
	alignas(SEGMENT_LINE) struct shm_join join;
	alignas(SEGMENT_LINE) _Atomic uint64_t abort;	/* generation << 32 | why */
	alignas(SEGMENT_LINE) _Atomic uint64_t finished; /* ... | step: peers' slots are read */
	struct shm_post post[2];
};

struct shm_port {
	alignas(SEGMENT_LINE) _Atomic uint32_t asleep;	/* futex; others clear it */
	alignas(SEGMENT_LINE) _Atomic uint32_t pid;
	uint64_t cpus[FABRIC_CPU_WORDS];	/* that it may run on */
	struct shm_channel channel[SEGMENT_CHANNELS];
};

struct shm_segment {
	_Atomic uint64_t magic;		/* written last */
	uint32_t ports;
	uint32_t bytes_per_slot;
	uint64_t bytes;
	struct shm_port port[];
};

/* Slots lie behind the control areas; a channel's are allocated when it joins. */
#define CHANNEL_DATA_BYTES	((SLOTS * sizeof(struct shm_slot) + 4095) / 4096 * 4096)

/* One attached segment of this process, shared by its ports. */
struct segment {
	struct segment *next;
	char name[96];
	int fd;
	unsigned int ports;
	unsigned int users;		/* ports of this process */
	uint32_t held;			/* bitmap of them */
	struct shm_segment *shm;
	size_t bytes;
	size_t data_offset;
};

int segment_attach(const char *name, unsigned int port, unsigned int ports,
		   struct segment **segment, char *error, size_t error_size);
void segment_detach(struct segment *segment, unsigned int port);
/* Does a process hold that port's lock? One system call for foreign ports. */
bool segment_alive(struct segment *segment, unsigned int port);
/* Back a channel's slots with memory, so that writing them cannot fault. */
int segment_reserve(struct segment *segment, unsigned int port, unsigned int channel);
struct shm_slot *segment_slots(struct segment *segment, unsigned int port, unsigned int channel);

#endif /* OPTINC_FABRIC_SEGMENT_H */
