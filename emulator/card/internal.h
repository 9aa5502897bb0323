/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The emulated card's insides. See card.h for what lies in which file, and
 * Documentation/card-interface.rst for what all this has to do; section
 * numbers in comments are that document's.
 *
 * One thread at a time is in here, but for card_doorbell(), card_kick() and
 * card_busy(): what these touch is atomic, and lives as long as the card.
 */
#ifndef OPTINC_CARD_INTERNAL_H
#define OPTINC_CARD_INTERNAL_H

#include <endian.h>
#include <stdatomic.h>

#include "driver/optinc_hw.h"
#include "emulator/card/card.h"

/*
 * The host is untrusted, so whatever it can make the card allocate has a
 * limit: requests and segments of the whole card, besides what IDENTIFY says.
 */
#define CARD_CONTEXT_QPS	64
#define CARD_CONTEXT_MRS	1024
#define CARD_GROUPS		FABRIC_MAX_CHANNELS
#define CARD_QPS		(CARD_CONTEXTS * CARD_CONTEXT_QPS)
#define CARD_REQUESTS		(1U << 18)
#define CARD_SEGMENTS		(4U << 20)
#define CARD_ADMIN_ENTRIES	256
#define CARD_MAX_COUNT		((1ULL << 32) - OPTINC_BLOCK)
#define CARD_MAX_MR_BYTES	(1ULL << 40)
#define CARD_DMA_BITS		64
#define CARD_TIMEOUT		50	/* of handshakes, 100 ms */
#define CARD_FIRMWARE		0x00000100	/* 0.1.0 */
#define CARD_RING_ALIGN		4096
#define CARD_HANDLE_SLOTS	1024	/* of contexts, regions and groups, at most */
#define CARD_BURST		16	/* entries of a queue pair's turn, 9.6 */

#define CARD_DTYPES		((1U << OPTINC_DTYPES) - 1)
#define CARD_REDOPS		((1U << OPTINC_REDOPS) - 1)
#define CARD_OPCODES		((1U << OPTINC_OPCODES) - 1)

#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))

static inline uint32_t card_field(uint32_t value, uint32_t mask)
{
	return (value & mask) >> __builtin_ctz(mask);
}

static inline uint32_t card_prep(uint32_t value, uint32_t mask)
{
	return value << __builtin_ctz(mask) & mask;
}

static inline bool card_power_of_two(uint32_t n)
{
	return n && !(n & (n - 1));
}

/* [@addr, @addr + @length) ends at or below 2^CARD_DMA_BITS, that is 2^64. */
static inline bool card_reachable(uint64_t addr, uint64_t length)
{
	return !length || addr <= UINT64_MAX - (length - 1);
}

/* Two reachable ranges that are not empty have a byte in common. */
static inline bool card_overlap(uint64_t a, uint64_t a_length, uint64_t b, uint64_t b_length)
{
	return a < b ? b - a < a_length : a - b < b_length;
}

struct card_segment {
	uint64_t offset;	/* in the region, of the segment's first byte */
	uint64_t addr;
};

struct card_mr {
	uint32_t handle;	/* 0: free */
	uint32_t busy;		/* requests that name it */
	bool writable;
	uint32_t segments;
	uint32_t room;		/* of segment[], charged to the card's limit */
	uint64_t length;
	struct card_segment *segment;	/* behind the last one the region's end */
	struct card *card;
	struct card_mr *next;	/* free ones */
};

struct card_context {
	uint32_t handle;	/* 0: free */
	uint16_t page;		/* of doorbells */
	unsigned int qps;
	struct card_mr *free_mrs;
	struct card_mr *mrs;	/* CARD_CONTEXT_MRS of them */
};

struct card_group {
	uint32_t handle;	/* 0: free */
	uint32_t state;		/* OPTINC_GROUP_* */
	bool was_ready;
	bool event;		/* its state changed, and the host was not told */
	struct card *card;
	struct card_context *ctx;
	struct card_qp *qp;	/* that its requests come from, once there was one */
	struct fabric_channel *channel;
	uint32_t nranks;
	uint32_t rank;
	uint32_t bits;
	uint64_t dtypes;
};

/* A request from the time it is taken to its completion */
struct card_request {
	struct fabric_request fabric;	/* first: complete() gets its address */
	struct card_qp *qp;
	struct card_group *group;	/* NULL: free */
	struct card_mr *src, *dst, *exp;
	struct card_request *next;	/* free ones */
	uint16_t cmd_id;
};

/*
 * A queue pair as doorbells see it. The slot outlives the queue pair, and the
 * words that any thread changes have the queue pair's id above the index: so
 * a doorbell that comes late cannot ring for the slot's next queue pair.
 */
struct card_bell {
	_Alignas(64) _Atomic uint32_t owner;	/* (page + 1) << 16 | id; 0: nobody */
	_Atomic uint32_t sq_tail;	/* T of section 7.2 */
	_Atomic uint32_t cq_arm;	/* noted and not yet obeyed; 0: none */
	_Atomic uint16_t sq_head;	/* H, written by the card alone */
	_Atomic uint16_t cq_tail;	/* P, likewise */
	_Atomic uint16_t sq_entries;
	_Atomic uint16_t cq_entries;
};

struct card_qp {
	struct card *card;
	struct card_context *ctx;
	struct card_bell *bell;
	struct card_qp *next;		/* with the same bit in card->rung */
	uint16_t id;
	uint16_t vector;
	bool failed;			/* a ring could not be reached: broken, 7.2 */
	bool given_up;			/* and its requests were given up */
	bool closing;			/* no more completions */
	bool armed;
	uint16_t sq_head, cq_tail;
	uint16_t sq_entries, cq_entries;
	uint64_t sq_addr, cq_addr;
	/* The rings where mapped, good in this one of card->calls */
	uint64_t mapped;
	const struct optinc_sqe *sq;
	struct optinc_cqe *cq;

	struct card_request *free;
	struct card_request requests[];	/* cq_entries of them */
};

struct card_admin {
	uint16_t sq_entries, cq_entries;
	uint16_t sq_head, sq_tail;
	uint16_t cq_head, cq_tail;
	bool raise;			/* completions were written: interrupt */
	unsigned int events;		/* ASYNC_EVENT commands outstanding */
	uint16_t event_ids[OPTINC_MAX_ASYNC_EVENTS];
};

struct card_fault_state {
	uint32_t commands;		/* of its opcode */
	uint32_t handle;		/* to be given again */
};

struct card {
	/* what other threads touch has a cache line of its own */
	_Alignas(64) _Atomic uint64_t rung;	/* bit: slot modulo 64 */
	_Atomic uint64_t doorbells;
	_Atomic uint64_t dropped;
	_Atomic uint64_t taken;			/* requests, not completed */
	_Atomic bool live;			/* READY: doorbells count */
	_Atomic bool kicked;			/* since the last sleep */

	_Alignas(64) struct fabric_port *port;
	const struct card_host_ops *ops;
	void *host;
	uint64_t calls;		/* into the card: the lifetime of mapped pointers */
	bool attention;		/* registers or the admin queue want a look */
	bool quiet;		/* not ready: no DMA, no interrupts */
	bool lane_event;	/* the host was not told of lanes_up */
	unsigned int lanes_up;
	uint64_t requests_done;
	uint64_t requests_failed;

	uint32_t control, status;
	uint32_t admin_size;
	uint32_t admin_sq[2], admin_cq[2];	/* low, high half */
	uint32_t clock_hi;
	struct card_admin admin;

	uint32_t handles;	/* given out */
	uint32_t requests;	/* allocated, at most CARD_REQUESTS */
	uint32_t segments;	/* allocated, at most CARD_SEGMENTS */
	unsigned int next_qp;	/* slot to try first: reuse comes late */
	struct card_context contexts[CARD_CONTEXTS];
	struct card_group groups[CARD_GROUPS];
	struct card_qp *qps[CARD_QPS];
	struct card_qp *chains[64];	/* queue pairs by their bit in rung */
	uint8_t generations[CARD_QPS];
	struct card_bell bells[CARD_QPS];

	struct fabric_counters base;	/* at reset; logs tell what came since */
	struct card_config config;
	struct card_fault_state faults[CARD_FAULTS];
};

struct admin_result {
	uint32_t handle;
	uint64_t result;
};

/* card.c */
/*
 * A new handle: the slot in the low bits and above it a number that the card
 * gives out once in four million times, never 0. So a stale handle, another
 * context's or one of another kind names nothing, rather than something else.
 */
uint32_t card_handle(struct card *card, uint32_t slot);
void card_teardown(struct card *card);

/* regs.c */
void card_regs_init(struct card *card);
bool card_regs_step(struct card *card);
void card_fatal(struct card *card, uint32_t code);
unsigned int card_pages(const struct card *card);
static inline bool card_ready(const struct card *card)
{
	return card->status & OPTINC_STATUS_READY;
}

/* admin.c; functions that return uint16_t return OPTINC_AST_* */
bool card_admin_start(struct card *card);
bool card_admin_step(struct card *card);
/* Write to a command's data buffer what fits. */
uint16_t card_admin_put(struct card *card, const struct optinc_admin_cmd *cmd, const void *data,
			size_t length, struct admin_result *result);

/* fault.c */
/* What befalls a command that was just taken, or NULL */
const struct card_fault *card_fault_due(struct card *card, uint8_t opcode);
/* How many completions like @cqe it gets; @fault may be NULL, and may change it. */
unsigned int card_fault_spoil(struct card *card, const struct card_fault *fault,
			      const struct optinc_admin_cmd *cmd, struct optinc_admin_cqe *cqe);

/* identify.c */
uint16_t card_identify(struct card *card, struct card_context *ctx,
		       const struct optinc_admin_cmd *cmd, struct admin_result *result);
uint16_t card_get_log(struct card *card, struct card_context *ctx,
		      const struct optinc_admin_cmd *cmd, struct admin_result *result);

/* context.c */
struct card_context *card_context_find(struct card *card, uint32_t handle);
uint16_t card_context_create(struct card *card, struct card_context *ctx,
			     const struct optinc_admin_cmd *cmd, struct admin_result *result);
uint16_t card_context_destroy(struct card *card, struct card_context *ctx,
			      const struct optinc_admin_cmd *cmd, struct admin_result *result);
void card_context_end(struct card *card, struct card_context *ctx);

/* mr.c */
/* For requests whose largest element has so many bytes: 1, 2 or 4 */
const struct fabric_memory_ops *card_mr_ops(unsigned int element);
struct card_mr *card_mr_find(const struct card_context *ctx, uint32_t handle);
uint16_t card_mr_reg(struct card *card, struct card_context *ctx,
		     const struct optinc_admin_cmd *cmd, struct admin_result *result);
uint16_t card_mr_dereg(struct card *card, struct card_context *ctx,
		       const struct optinc_admin_cmd *cmd, struct admin_result *result);
void card_mr_free(struct card_context *ctx, struct card_mr *mr);
static inline bool card_mr_holds(const struct card_mr *mr, uint64_t offset, uint64_t length)
{
	return offset <= mr->length && length <= mr->length - offset;
}

/* qp.c */
uint16_t card_qp_create(struct card *card, struct card_context *ctx,
			const struct optinc_admin_cmd *cmd, struct admin_result *result);
uint16_t card_qp_destroy(struct card *card, struct card_context *ctx,
			 const struct optinc_admin_cmd *cmd, struct admin_result *result);
void card_qp_free(struct card_qp *qp);
/* Ends the epochs of groups that it has requests in; they are completed then. */
void card_qp_give_up(struct card_qp *qp);

/* queue.c */
bool card_queues_step(struct card *card);
/* Status, phase, sq_head and time are filled in here. */
void card_qp_complete(struct card_qp *qp, struct optinc_cqe *cqe, uint32_t status);
static inline void card_ring(struct card *card, const struct card_bell *bell)
{
	atomic_fetch_or(&card->rung, 1ULL << ((bell - card->bells) % 64));
}

/* request.c; functions that return uint32_t return OPTINC_ST_* */
/* Take one entry, already copied, from @qp's ring to its completion or the fabric. */
void card_submit(struct card_qp *qp, const struct optinc_sqe *sqe);
void card_request_complete(struct fabric_request *request);

/* check.c: section 8.3, steps 1 to 4, and 7 to 9 with the regions filled in */
uint32_t card_check_entry(const struct optinc_sqe *sqe);
uint32_t card_check_request(const struct card_context *ctx, const struct card_group *group,
			    const struct optinc_sqe *sqe, struct card_request *request);

/* group.c */
struct card_group *card_group_find(struct card *card, const struct card_context *ctx,
				   uint32_t handle);
uint16_t card_group_join(struct card *card, struct card_context *ctx,
			 const struct optinc_admin_cmd *cmd, struct admin_result *result);
uint16_t card_group_query(struct card *card, struct card_context *ctx,
			  const struct optinc_admin_cmd *cmd, struct admin_result *result);
uint16_t card_group_leave(struct card *card, struct card_context *ctx,
			  const struct optinc_admin_cmd *cmd, struct admin_result *result);
uint16_t card_group_abort(struct card *card, struct card_context *ctx,
			  const struct optinc_admin_cmd *cmd, struct admin_result *result);
void card_group_lose(struct card_group *group);

#endif /* OPTINC_CARD_INTERNAL_H */
