/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A host for the emulated card, for tests: memory at DMA addresses of its
 * own, registers, admin queue, queue pairs. It checks what every completion
 * has to have, so that each test needs to look only at what it is about.
 *
 * With host_mapped false the card gets no pointers and has to use read and
 * write; each test runs both ways.
 */
#ifndef OPTINC_SELFTESTS_CARD_HOST_H
#define OPTINC_SELFTESTS_CARD_HOST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "driver/optinc_hw.h"
#include "emulator/card/card.h"

#define HOST_PIECES	4096
#define HOST_VECTORS	8
#define ADMIN_ENTRIES	32
#define STEPS		200000

static bool host_mapped;

/* One allocation, contiguous for the card, with nothing before and after it */
struct piece {
	uint64_t dma;
	uint64_t length;
	char *memory;
};

struct host {
	struct piece pieces[HOST_PIECES];
	unsigned int count;
	uint64_t next;
	unsigned int faults;		/* accesses to what is not there */
	bool closed;			/* no access and no interrupt is allowed */
	unsigned int violations;	/* of that */
	uint64_t reads;
	_Atomic unsigned int interrupts[HOST_VECTORS];
	void (*after_read)(struct host *host, uint64_t addr);
	void *arg;
};

static inline char *host_find(struct host *host, uint64_t addr, uint64_t length)
{
	unsigned int i;

	if (host->closed)
		host->violations++;
	for (i = 0; i < host->count; i++) {
		const struct piece *piece = &host->pieces[i];

		if (piece->memory && addr >= piece->dma && addr - piece->dma <= piece->length &&
		    length <= piece->length - (addr - piece->dma))
			return piece->memory + (addr - piece->dma);
	}
	host->faults++;
	return NULL;
}

static inline void *host_op_map(void *arg, uint64_t addr, size_t length, bool write)
{
	(void)write;
	return host_mapped ? host_find(arg, addr, length) : NULL;
}

static inline int host_op_read(void *arg, uint64_t addr, void *buf, size_t length)
{
	struct host *host = arg;
	const char *from = host_find(host, addr, length);

	if (!from)
		return -14;
	memcpy(buf, from, length);
	host->reads++;
	if (host->after_read)
		host->after_read(host, addr);
	return 0;
}

static inline int host_op_write(void *arg, uint64_t addr, const void *buf, size_t length)
{
	char *to = host_find(arg, addr, length);

	if (!to)
		return -14;
	if (length == 8) {
		/* one access on the bus; other threads look at the status in it */
		memcpy(to, buf, 2);
		memcpy(to + 4, (const char *)buf + 4, 4);
		__atomic_store_n((uint16_t *)(void *)(to + 2), ((const uint16_t *)buf)[1],
				 __ATOMIC_RELEASE);
		return 0;
	}
	memcpy(to, buf, length);
	return 0;
}

static inline void host_op_interrupt(void *arg, unsigned int vector)
{
	struct host *host = arg;

	if (host->closed)
		host->violations++;
	assert_true(vector < HOST_VECTORS);
	atomic_fetch_add(&host->interrupts[vector], 1);
}

static const struct card_host_ops host_ops = {
	.map = host_op_map,
	.read = host_op_read,
	.write = host_op_write,
	.interrupt = host_op_interrupt,
};

/* Zeroed memory; its DMA address begins at a multiple of 4 KiB plus @shift. */
static inline void *host_alloc(struct host *host, uint64_t length, uint64_t shift, uint64_t *dma)
{
	struct piece *piece = &host->pieces[host->count++];

	assert_true(host->count <= HOST_PIECES);
	piece->dma = host->next + shift;
	piece->length = length;
	piece->memory = calloc(1, length);
	assert_non_null(piece->memory);
	/* at least a page that is not there follows */
	host->next += (length + shift + 2 * 4096 - 1) / 4096 * 4096 + 4096;
	*dma = piece->dma;
	return piece->memory;
}

static inline void host_unmap(struct host *host, uint64_t dma)
{
	unsigned int i;

	for (i = 0; i < host->count; i++) {
		if (host->pieces[i].dma != dma)
			continue;
		free(host->pieces[i].memory);
		host->pieces[i].memory = NULL;
		return;
	}
	fail_msg("no such piece");
}

/* A card and its host's side of the admin queue */
struct bench {
	struct card *card;
	struct host host;
	struct optinc_admin_cmd *sq;
	struct optinc_admin_cqe *cq;
	uint64_t sq_dma, cq_dma;
	uint16_t tail, head;
	uint64_t data_dma;		/* a buffer for commands */
	char *data;
	struct optinc_admin_cqe last;
	unsigned int events;		/* completions of ASYNC_EVENT seen */
	struct optinc_admin_cqe event;	/* the last of them */
};

#define DATA_BYTES	65536
#define EVENT_ID	0xee00		/* and following */

static inline uint32_t reg(struct bench *b, uint32_t offset)
{
	return card_read(b->card, offset);
}

static inline void set_reg(struct bench *b, uint32_t offset, uint32_t value)
{
	card_write(b->card, offset, value);
}

static inline void set_reg64(struct bench *b, uint32_t offset, uint64_t value)
{
	card_write(b->card, offset, (uint32_t)value);
	card_write(b->card, offset + 4, (uint32_t)(value >> 32));
}

static inline void steps(struct bench *b, unsigned int n)
{
	while (n--)
		card_step(b->card);
}

static inline char *fabric_name(void)
{
	static char name[64];

	snprintf(name, sizeof(name), "selftest-%d", (int)getpid());
	return name;
}

static inline struct bench *bench_open_config(const struct card_config *base, unsigned int port,
					      unsigned int ports)
{
	struct card_config config = *base;
	struct bench *b = calloc(1, sizeof(*b));
	char error[256] = "";
	int rc;

	assert_non_null(b);
	snprintf(config.fabric.name, sizeof(config.fabric.name), "%s", fabric_name());
	config.fabric.port = port;
	config.fabric.ports = ports;
	b->host.next = 0x7000000000;
	rc = card_new(&config, &host_ops, &b->host, &b->card, error, sizeof(error));
	if (rc)
		fail_msg("card_new: %d, %s", rc, error);
	b->sq = host_alloc(&b->host, ADMIN_ENTRIES * sizeof(*b->sq), 0, &b->sq_dma);
	b->cq = host_alloc(&b->host, ADMIN_ENTRIES * sizeof(*b->cq), 0, &b->cq_dma);
	b->data = host_alloc(&b->host, DATA_BYTES, 0, &b->data_dma);
	return b;
}

static inline struct bench *bench_open(unsigned int port, unsigned int ports)
{
	const struct card_config config = { .vectors = HOST_VECTORS };

	return bench_open_config(&config, port, ports);
}

static inline void bench_close(struct bench *b)
{
	unsigned int i;

	b->host.closed = false;
	card_free(b->card);
	for (i = 0; i < b->host.count; i++)
		free(b->host.pieces[i].memory);
	free(b);
}

static inline uint32_t wait_status(struct bench *b, uint32_t mask, uint32_t value)
{
	unsigned int i;

	for (i = 0; i < 100; i++) {
		if ((reg(b, OPTINC_REG_STATUS) & mask) == value)
			break;
		card_step(b->card);
	}
	return reg(b, OPTINC_REG_STATUS);
}

static inline void set_admin(struct bench *b)
{
	memset(b->sq, 0, ADMIN_ENTRIES * sizeof(*b->sq));
	memset(b->cq, 0, ADMIN_ENTRIES * sizeof(*b->cq));
	b->tail = b->head = 0;
	set_reg(b, OPTINC_REG_ADMIN_SIZE, (ADMIN_ENTRIES - 1) << 16 | (ADMIN_ENTRIES - 1));
	set_reg64(b, OPTINC_REG_ADMIN_SQ_LO, b->sq_dma);
	set_reg64(b, OPTINC_REG_ADMIN_CQ_LO, b->cq_dma);
}

static inline void bench_enable(struct bench *b)
{
	set_admin(b);
	set_reg(b, OPTINC_REG_CONTROL, OPTINC_CONTROL_ENABLE);
	assert_int_equal(wait_status(b, OPTINC_STATUS_READY, OPTINC_STATUS_READY),
			 OPTINC_STATUS_READY);
}

static inline void bench_disable(struct bench *b)
{
	set_reg(b, OPTINC_REG_CONTROL, 0);
	assert_int_equal(wait_status(b, OPTINC_STATUS_READY, 0), 0);
}

static inline void bench_reset(struct bench *b)
{
	set_reg(b, OPTINC_REG_RESET, OPTINC_RESET_KEY);
	assert_int_equal(reg(b, OPTINC_REG_STATUS), OPTINC_STATUS_RESETTING);
	assert_int_equal(wait_status(b, OPTINC_STATUS_RESETTING, 0), 0);
}

/* The next completion if there is one; what all of them must have is checked. */
static inline bool admin_poll(struct bench *b, struct optinc_admin_cqe *cqe)
{
	const struct optinc_admin_cqe *at = &b->cq[b->head % ADMIN_ENTRIES];
	uint16_t phase = !(b->head / ADMIN_ENTRIES & 1);

	if ((at->status & 1) != phase)
		return false;
	*cqe = *at;
	b->head++;
	set_reg(b, OPTINC_REG_ADMIN_CQ_HEAD, b->head);
	assert_int_equal(cqe->__reserved0, 0);
	assert_int_equal(cqe->__reserved1, 0);
	assert_int_equal(cqe->__reserved2, 0);
	if (cqe->status >> 1) {
		assert_int_equal(cqe->handle, 0);
		assert_int_equal(cqe->result, 0);
	}
	return true;
}

static inline void admin_post(struct bench *b, const struct optinc_admin_cmd *cmd)
{
	b->sq[b->tail % ADMIN_ENTRIES] = *cmd;
	b->tail++;
	set_reg(b, OPTINC_REG_ADMIN_SQ_TAIL, b->tail);
}

/* Run a command; the status. b->last has the completion, events are put aside. */
static inline uint16_t admin(struct bench *b, struct optinc_admin_cmd cmd)
{
	struct optinc_admin_cqe cqe;
	unsigned int i;

	cmd.cmd_id = b->tail & 0x7fff;
	admin_post(b, &cmd);
	for (i = 0; i < STEPS; i++) {
		card_step(b->card);
		while (admin_poll(b, &cqe)) {
			if (cqe.cmd_id >= EVENT_ID) {
				b->events++;
				b->event = cqe;
				continue;
			}
			assert_int_equal(cqe.cmd_id, cmd.cmd_id);
			assert_int_equal(cqe.sq_head, b->tail);
			b->last = cqe;
			return cqe.status >> 1;
		}
	}
	fail_msg("no completion of command %#x", cmd.opcode);
	return 0xffff;
}

/* Events that came without a command being waited for */
static inline void poll_events(struct bench *b)
{
	struct optinc_admin_cqe cqe;

	card_step(b->card);
	while (admin_poll(b, &cqe)) {
		assert_true(cqe.cmd_id >= EVENT_ID);
		b->events++;
		b->event = cqe;
	}
}

static inline void post_event(struct bench *b, uint16_t n)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_ASYNC_EVENT,
		.cmd_id = (uint16_t)(EVENT_ID + n),
	};

	admin_post(b, &cmd);
	card_step(b->card);
}

static inline uint32_t make_context(struct bench *b, uint32_t page)
{
	struct optinc_admin_cmd cmd = { .opcode = OPTINC_ADMIN_CTX_CREATE };

	cmd.ctx_create.db_page = page;
	assert_int_equal(admin(b, cmd), OPTINC_AST_SUCCESS);
	assert_int_not_equal(b->last.handle, 0);
	return b->last.handle;
}

/*
 * A union that is initialised by one of its members need not be zero beyond
 * it, so members of a command's are assigned, here and everywhere.
 */
static inline struct optinc_admin_cmd log_command(struct bench *b)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_GET_LOG,
		.addr = b->data_dma,
		.length = sizeof(struct optinc_hw_port_log),
	};

	cmd.log.page = OPTINC_LOG_PORT;
	return cmd;
}

static inline uint16_t object_command(struct bench *b, uint8_t opcode, uint32_t ctx,
				      uint32_t handle)
{
	struct optinc_admin_cmd cmd = { .opcode = opcode, .ctx = ctx, .handle = handle };

	return admin(b, cmd);
}

/* A region and its host's view: segments of the host's memory */
struct region {
	uint32_t handle;
	uint64_t length;
	unsigned int segments;
	char *memory[64];
	uint64_t bytes[64];
	uint64_t dma[64];
};

static inline struct optinc_admin_cmd mr_command(struct bench *b, uint32_t ctx,
						 const struct region *r, uint32_t access)
{
	struct optinc_hw_segment *list = (void *)b->data;
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_MR_REG,
		.ctx = ctx,
		.addr = b->data_dma,
		.length = r->segments * (uint32_t)sizeof(*list),
	};
	unsigned int i;

	cmd.mr_reg.length = r->length;
	cmd.mr_reg.segments = r->segments;
	cmd.mr_reg.access = access;
	for (i = 0; i < r->segments; i++) {
		list[i].addr = r->dma[i];
		list[i].length = r->bytes[i];
	}
	return cmd;
}

/* Memory of @length in @segments pieces of odd sizes at odd addresses */
static inline void region_memory(struct bench *b, struct region *r, uint64_t length,
				 unsigned int segments)
{
	uint64_t left = length;
	unsigned int i;

	assert_true(segments && segments <= 64 && length >= segments);
	memset(r, 0, sizeof(*r));
	r->length = length;
	r->segments = segments;
	for (i = 0; i < segments; i++) {
		uint64_t n = i + 1 == segments ? left : length / segments - (i & 1);

		if (!n)
			n = 1;
		r->bytes[i] = n;
		r->memory[i] = host_alloc(&b->host, n, segments > 1 ? 3 * i + 1 : 0, &r->dma[i]);
		left -= n;
	}
}

static inline void region_register(struct bench *b, uint32_t ctx, struct region *r,
				   uint32_t access)
{
	assert_int_equal(admin(b, mr_command(b, ctx, r, access)), OPTINC_AST_SUCCESS);
	r->handle = b->last.handle;
	assert_int_not_equal(r->handle, 0);
}

static inline void make_region(struct bench *b, uint32_t ctx, struct region *r, uint64_t length,
			       unsigned int segments, uint32_t access)
{
	region_memory(b, r, length, segments);
	region_register(b, ctx, r, access);
}

static inline void region_copy(struct region *r, uint64_t offset, void *buf, uint64_t length,
			       bool store)
{
	char *at = buf;
	unsigned int i;

	for (i = 0; i < r->segments && length; i++) {
		uint64_t n;

		if (offset >= r->bytes[i]) {
			offset -= r->bytes[i];
			continue;
		}
		n = r->bytes[i] - offset < length ? r->bytes[i] - offset : length;
		if (store)
			memcpy(r->memory[i] + offset, at, n);
		else
			memcpy(at, r->memory[i] + offset, n);
		at += n;
		length -= n;
		offset = 0;
	}
	assert_int_equal(length, 0);
}

static inline void region_put(struct region *r, uint64_t offset, const void *buf, uint64_t length)
{
	region_copy(r, offset, (void *)(uintptr_t)buf, length, true);
}

static inline void region_get(struct region *r, uint64_t offset, void *buf, uint64_t length)
{
	region_copy(r, offset, buf, length, false);
}

/* The host's side of a queue pair */
struct queue {
	struct bench *b;
	uint32_t id, page;
	uint32_t sq_entries, cq_entries;
	struct optinc_sqe *sq;
	struct optinc_cqe *cq;
	uint64_t sq_dma, cq_dma;
	uint16_t tail, head;
	uint32_t head_passes;		/* head without modulo */
	uint64_t last_ns;
};

static inline struct optinc_admin_cmd qp_command(uint32_t ctx, const struct queue *q,
						 uint16_t vector)
{
	struct optinc_admin_cmd cmd = { .opcode = OPTINC_ADMIN_QP_CREATE, .ctx = ctx };

	cmd.qp_create.sq_addr = q->sq_dma;
	cmd.qp_create.cq_addr = q->cq_dma;
	cmd.qp_create.sq_entries = (uint16_t)q->sq_entries;
	cmd.qp_create.cq_entries = (uint16_t)q->cq_entries;
	cmd.qp_create.vector = vector;
	return cmd;
}

static inline void queue_memory(struct bench *b, struct queue *q, uint32_t page,
				uint32_t sq_entries, uint32_t cq_entries)
{
	memset(q, 0, sizeof(*q));
	q->b = b;
	q->page = page;
	q->sq_entries = sq_entries;
	q->cq_entries = cq_entries;
	q->sq = host_alloc(&b->host, sq_entries * sizeof(*q->sq), 0, &q->sq_dma);
	q->cq = host_alloc(&b->host, cq_entries * sizeof(*q->cq), 0, &q->cq_dma);
}

static inline void make_queue(struct bench *b, uint32_t ctx, struct queue *q, uint32_t page,
			      uint32_t sq_entries, uint32_t cq_entries, uint16_t vector)
{
	queue_memory(b, q, page, sq_entries, cq_entries);
	assert_int_equal(admin(b, qp_command(ctx, q, vector)), OPTINC_AST_SUCCESS);
	q->id = b->last.handle;
	assert_in_range(q->id, 1, 0xffff);
}

static inline void bell(struct queue *q, uint32_t offset, uint16_t index)
{
	card_doorbell(q->b->card, q->page, offset, OPTINC_DB_VALUE(q->id, index));
}

/* Into the ring, without the doorbell */
static inline void push(struct queue *q, const struct optinc_sqe *sqe)
{
	q->sq[q->tail & (q->sq_entries - 1)] = *sqe;
	q->tail++;
}

static inline void submit(struct queue *q, const struct optinc_sqe *sqe)
{
	push(q, sqe);
	bell(q, OPTINC_DB_SQ_TAIL, q->tail);
}

/* The next completion, left where it is */
static inline bool peek(struct queue *q, struct optinc_cqe *cqe)
{
	struct optinc_cqe *at = &q->cq[q->head_passes & (q->cq_entries - 1)];
	uint16_t phase = !(q->head_passes / q->cq_entries & 1);
	uint16_t status = __atomic_load_n(&at->status, __ATOMIC_ACQUIRE);

	if ((status & 1) != phase)
		return false;
	*cqe = *at;
	return true;
}

static inline bool reap(struct queue *q, struct optinc_cqe *cqe)
{
	if (!peek(q, cqe))
		return false;
	q->head_passes++;
	q->head++;
	assert_true(cqe->device_ns >= q->last_ns);
	q->last_ns = cqe->device_ns;
	if (cqe->status >> 1) {
		assert_int_equal(cqe->nonfinite, 0);
		assert_int_equal(cqe->saturated, 0);
		assert_int_equal(cqe->wire_ns, 0);
	} else {
		assert_int_equal(cqe->peer, OPTINC_NO_RANK);
	}
	if (cqe->status >> 1 != OPTINC_ST_MISMATCH)
		assert_int_equal(cqe->mismatch, 0);
	return true;
}

/* Steps both cards (the second may be NULL) until @q has a completion. */
static inline struct optinc_cqe await(struct queue *q, struct bench *other)
{
	struct optinc_cqe cqe = { 0 };
	unsigned int i;

	for (i = 0; i < STEPS; i++) {
		if (reap(q, &cqe))
			return cqe;
		card_step(q->b->card);
		if (other)
			card_step(other->card);
	}
	fail_msg("no completion");
	return cqe;
}

/* Submits one entry and returns its status. */
static inline uint32_t run(struct queue *q, const struct optinc_sqe *sqe, struct bench *other)
{
	struct optinc_cqe cqe;

	submit(q, sqe);
	cqe = await(q, other);
	assert_int_equal(cqe.cmd_id, sqe->cmd_id);
	assert_int_equal(cqe.tag, sqe->tag);
	return cqe.status >> 1;
}

static inline struct optinc_hw_join join_of(uint8_t key, uint32_t rank, uint32_t nranks)
{
	struct optinc_hw_join join = {
		.key = { key, 1 },
		.rank = rank,
		.nranks = nranks,
		.bits = 8,
		.format = OPTINC_FORMAT_VERSION,
		.dtypes = 1 << OPTINC_F32 | 1 << OPTINC_F16 | 1 << OPTINC_BF16 |
			  1 << OPTINC_I8 | 1 << OPTINC_BIT,
		.deadline_ms = 10000,
	};

	return join;
}

static inline uint16_t join_group(struct bench *b, uint32_t ctx, const struct optinc_hw_join *join)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_GROUP_JOIN,
		.ctx = ctx,
		.addr = b->data_dma,
		.length = sizeof(*join),
	};

	memcpy(b->data, join, sizeof(*join));
	return admin(b, cmd);
}

static inline uint16_t query_group(struct bench *b, uint32_t ctx, uint32_t group,
				   struct optinc_hw_group_state *state)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_GROUP_QUERY,
		.ctx = ctx,
		.handle = group,
		.addr = b->data_dma,
		.length = sizeof(*state),
	};
	uint16_t status = admin(b, cmd);

	memcpy(state, b->data, sizeof(*state));
	return status;
}

static inline uint32_t group_state(struct bench *b, uint32_t ctx, uint32_t group)
{
	struct optinc_hw_group_state state;

	assert_int_equal(query_group(b, ctx, group, &state), OPTINC_AST_SUCCESS);
	return state.state;
}

/* Both directions of a test: with pointers to host memory, and without */
#define run_both_ways(name, tests) ({						\
	int failed_;								\
										\
	host_mapped = true;							\
	failed_ = cmocka_run_group_tests_name(name ", mapped", tests, NULL, NULL); \
	host_mapped = false;							\
	failed_ += cmocka_run_group_tests_name(name ", copied", tests, NULL, NULL); \
	failed_;								\
})

#endif /* OPTINC_SELFTESTS_CARD_HOST_H */
