// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The card's registers and its admin queue: sections 2 to 6 of
 * Documentation/card-interface.rst, with the clauses of its section 17 named.
 */
#include "selftests/emulator/card_host.h"

static int setup(void **state)
{
	*state = bench_open(0, 2);
	return 0;
}

static int setup_enabled(void **state)
{
	setup(state);
	bench_enable(*state);
	return 0;
}

static int teardown(void **state)
{
	bench_close(*state);
	return 0;
}

/* CI-REG-1, -2, -3, -4 */
static void test_registers(void **state)
{
	static const uint32_t readable[] = { 0x00, 0x04, 0x08, 0x0c, 0x10, 0x14, 0x20, 0x28,
					     0x2c, 0x30, 0x34, 0x40, 0x48, 0x4c, 0x50 };
	struct bench *b = *state;
	uint32_t offset, cap0, cap1;
	size_t i;

	assert_int_equal(reg(b, OPTINC_REG_MAGIC), 0x434e494f);
	assert_int_equal(reg(b, OPTINC_REG_VERSION), 0x00010000);
	assert_int_equal(reg(b, OPTINC_REG_FW_STATE), OPTINC_FW_RUNNING);
	assert_int_equal(reg(b, OPTINC_REG_STATUS), 0);
	assert_int_equal(reg(b, OPTINC_REG_CONTROL), 0);
	assert_int_equal(reg(b, OPTINC_REG_ADMIN_SIZE), 0);
	assert_int_equal(reg(b, OPTINC_REG_DB_DROPPED), 0);
	cap0 = reg(b, OPTINC_REG_CAP0);
	cap1 = reg(b, OPTINC_REG_CAP1);
	/* CI-GEN-4 */
	assert_in_range(cap0 & 0xff, 1, 255);
	assert_in_range(cap0 >> 8 & 0xf, 0, 4);
	assert_true(cap0 & OPTINC_CAP0_ISOLATION);
	assert_int_equal(cap0 >> 13 & 7, 0);
	assert_in_range(cap0 >> 16 & 0x7f, 32, 64);
	assert_in_range(cap0 >> 23, 32, 256);
	assert_int_equal(cap1 & 0x7ff, HOST_VECTORS);
	assert_int_equal(cap1 >> 16 & 0x7ff, CARD_CONTEXTS);
	assert_int_equal(cap1 & ~(0x7ffU | 0x7ffU << 16), 0);

	for (offset = 0; offset < OPTINC_BAR0_BYTES + 64; offset++) {
		bool is_readable = false;

		for (i = 0; i < sizeof(readable) / sizeof(readable[0]); i++)
			is_readable |= readable[i] == offset;
		if (!is_readable)
			assert_int_equal(reg(b, offset), 0);
	}
	/* what is read only, undefined or not aligned does not change */
	for (offset = 0; offset < 0x400; offset++) {
		if (offset % 4 == 0 && offset >= 0x10 && offset <= 0x3c && offset != 0x14)
			continue;
		set_reg(b, offset, 0xffffffff);
	}
	steps(b, 3);
	assert_int_equal(reg(b, OPTINC_REG_MAGIC), 0x434e494f);
	assert_int_equal(reg(b, OPTINC_REG_CAP0), cap0);
	assert_int_equal(reg(b, OPTINC_REG_STATUS), 0);
	assert_int_equal(reg(b, OPTINC_REG_ADMIN_SIZE), 0);
	assert_int_equal(reg(b, OPTINC_REG_DB_DROPPED), 0);
}

/* CI-REG-5, CI-EN-1, CI-EN-3, CI-EN-4 */
static void test_enable(void **state)
{
	struct optinc_admin_cmd create = { .opcode = OPTINC_ADMIN_CTX_CREATE };
	struct bench *b = *state;
	uint32_t ctx;

	set_admin(b);
	assert_int_equal(reg(b, OPTINC_REG_ADMIN_SQ_LO), (uint32_t)b->sq_dma);
	assert_int_equal(reg(b, OPTINC_REG_ADMIN_SQ_HI), b->sq_dma >> 32);
	/* the stride is taken with ENABLE only; reserved bits are ignored */
	set_reg(b, OPTINC_REG_CONTROL, 3 << 8);
	assert_int_equal(reg(b, OPTINC_REG_CONTROL), 0);
	set_reg(b, OPTINC_REG_CONTROL, 0xfffff0ff | 2 << 8);
	assert_int_equal(reg(b, OPTINC_REG_CONTROL), OPTINC_CONTROL_ENABLE | 2 << 8);
	assert_int_equal(reg(b, OPTINC_REG_STATUS), 0);
	/* locked from ENABLE on */
	set_reg(b, OPTINC_REG_ADMIN_SIZE, 0);
	set_reg(b, OPTINC_REG_ADMIN_SQ_LO, 0);
	assert_int_equal(wait_status(b, OPTINC_STATUS_READY, OPTINC_STATUS_READY),
			 OPTINC_STATUS_READY);
	set_reg(b, OPTINC_REG_ADMIN_CQ_HI, 77);
	assert_int_equal(reg(b, OPTINC_REG_ADMIN_SIZE), 31 << 16 | 31);
	assert_int_equal(reg(b, OPTINC_REG_ADMIN_SQ_LO), (uint32_t)b->sq_dma);
	assert_int_equal(reg(b, OPTINC_REG_ADMIN_CQ_HI), b->cq_dma >> 32);

	ctx = make_context(b, 3);
	/* while it disables it takes no ENABLE, and what was there is gone after it */
	set_reg(b, OPTINC_REG_CONTROL, 0);
	set_reg(b, OPTINC_REG_CONTROL, OPTINC_CONTROL_ENABLE);
	set_reg(b, OPTINC_REG_ADMIN_SIZE, 0);
	assert_int_equal(wait_status(b, OPTINC_STATUS_READY, 0), 0);
	assert_int_equal(reg(b, OPTINC_REG_ADMIN_SIZE), 31 << 16 | 31);
	b->host.closed = true;
	steps(b, 10);
	assert_int_equal(reg(b, OPTINC_REG_STATUS), 0);
	assert_int_equal(b->host.violations, 0);

	b->host.closed = false;
	bench_enable(b);
	assert_int_equal(object_command(b, OPTINC_ADMIN_CTX_DESTROY, ctx, 0),
			 OPTINC_AST_INVALID_HANDLE);
	create.ctx_create.db_page = 3;
	assert_int_equal(admin(b, create), OPTINC_AST_SUCCESS);
}

struct bad_start {
	uint32_t size;
	uint64_t sq, cq;
	uint32_t control;
	uint32_t code;
};

static void expect_fatal(struct bench *b, const struct bad_start *bad)
{
	set_reg(b, OPTINC_REG_ADMIN_SIZE, bad->size);
	set_reg64(b, OPTINC_REG_ADMIN_SQ_LO, bad->sq);
	set_reg64(b, OPTINC_REG_ADMIN_CQ_LO, bad->cq);
	set_reg(b, OPTINC_REG_CONTROL, bad->control);
	assert_int_equal(wait_status(b, OPTINC_STATUS_FATAL, OPTINC_STATUS_FATAL),
			 OPTINC_STATUS_FATAL | bad->code << 8);
	/* nothing but a reset helps */
	set_reg(b, OPTINC_REG_CONTROL, 0);
	steps(b, 3);
	set_admin(b);
	set_reg(b, OPTINC_REG_CONTROL, OPTINC_CONTROL_ENABLE);
	steps(b, 3);
	assert_int_equal(reg(b, OPTINC_REG_STATUS), OPTINC_STATUS_FATAL | bad->code << 8);
	bench_reset(b);
	bench_enable(b);
	bench_reset(b);
}

/* CI-EN-2, CI-EN-5, CI-RST-3 */
static void test_bad_start(void **state)
{
	struct bench *b = *state;
	const uint32_t on = OPTINC_CONTROL_ENABLE, size = 31 << 16 | 31;
	const struct bad_start bad[] = {
		{ 0 << 16 | 0, b->sq_dma, b->cq_dma, on, OPTINC_FATAL_ADMIN_BASE },
		{ 31 << 16 | 0, b->sq_dma, b->cq_dma, on, OPTINC_FATAL_ADMIN_BASE },
		{ 31 << 16 | 30, b->sq_dma, b->cq_dma, on, OPTINC_FATAL_ADMIN_BASE },
		{ 30 << 16 | 15, b->sq_dma, b->cq_dma, on, OPTINC_FATAL_ADMIN_BASE },
		{ 15 << 16 | 31, b->sq_dma, b->cq_dma, on, OPTINC_FATAL_ADMIN_BASE },
		{ 511 << 16 | 31, b->sq_dma, b->cq_dma, on, OPTINC_FATAL_ADMIN_BASE },
		{ 511 << 16 | 511, b->sq_dma, b->cq_dma, on, OPTINC_FATAL_ADMIN_BASE },
		{ size | 1 << 12, b->sq_dma, b->cq_dma, on, OPTINC_FATAL_ADMIN_BASE },
		{ size | 1U << 31, b->sq_dma, b->cq_dma, on, OPTINC_FATAL_ADMIN_BASE },
		{ size, b->sq_dma + 64, b->cq_dma, on, OPTINC_FATAL_ADMIN_BASE },
		{ size, b->sq_dma, b->cq_dma + 2048, on, OPTINC_FATAL_ADMIN_BASE },
		{ 255 << 16 | 255, -4096ULL, b->cq_dma, on, OPTINC_FATAL_ADMIN_BASE },
		{ 255 << 16 | 255, b->sq_dma, -4096ULL, on, OPTINC_FATAL_ADMIN_BASE },
		{ size, b->sq_dma, b->sq_dma, on, OPTINC_FATAL_ADMIN_BASE },
		{ 255 << 16 | 255, b->sq_dma, b->sq_dma + 4096, on, OPTINC_FATAL_ADMIN_BASE },
		{ size, b->sq_dma, b->cq_dma, on | 11 << 8, OPTINC_FATAL_ADMIN_BASE },
		{ size, b->sq_dma, b->cq_dma, on | 15 << 8, OPTINC_FATAL_ADMIN_BASE },
		{ size, b->sq_dma, 0x1000, on, OPTINC_FATAL_DMA },
		{ size, 0x1000, b->cq_dma, on, OPTINC_FATAL_DMA },
		/* begins in memory and ends outside */
		{ 63 << 16 | 63, b->sq_dma, b->cq_dma, on, OPTINC_FATAL_DMA },
	};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		expect_fatal(b, &bad[i]);
}

/* An admin ring that goes while the card is ready */
static void test_ring_goes(void **state)
{
	struct bench *b = *state;
	struct optinc_admin_cmd cmd = { .opcode = OPTINC_ADMIN_CTX_CREATE };
	unsigned int i;

	bench_enable(b);
	for (i = 0; i < b->host.count; i++) {
		if (b->host.pieces[i].dma == b->sq_dma)
			b->host.pieces[i].dma = 0x1000;
	}
	admin_post(b, &cmd);
	assert_int_equal(wait_status(b, OPTINC_STATUS_FATAL, OPTINC_STATUS_FATAL),
			 OPTINC_STATUS_FATAL | OPTINC_FATAL_DMA << 8);
	b->host.closed = true;
	steps(b, 5);
	assert_int_equal(b->host.violations, 0);
}

/* CI-RST-1, -2, -4, -5, -7, CI-REG-6, -7 */
static void test_reset(void **state)
{
	struct bench *b = *state;
	uint64_t before, after;
	uint32_t ctx;

	bench_enable(b);
	ctx = make_context(b, 0);
	card_doorbell(b->card, 0, OPTINC_DB_SQ_TAIL, OPTINC_DB_VALUE(0x1234, 1));
	assert_int_equal(reg(b, OPTINC_REG_DB_DROPPED), 1);
	set_reg(b, OPTINC_REG_RESET, OPTINC_RESET_KEY ^ 1);
	steps(b, 3);
	assert_int_equal(reg(b, OPTINC_REG_STATUS), OPTINC_STATUS_READY);

	bench_disable(b);
	assert_int_equal(reg(b, OPTINC_REG_DB_DROPPED), 1);
	bench_enable(b);
	make_context(b, 0);
	before = reg(b, OPTINC_REG_CLOCK_LO);
	before |= (uint64_t)reg(b, OPTINC_REG_CLOCK_HI) << 32;

	set_reg(b, OPTINC_REG_RESET, OPTINC_RESET_KEY);
	assert_int_equal(reg(b, OPTINC_REG_STATUS), OPTINC_STATUS_RESETTING);
	/* all writes are ignored until it has ended */
	set_reg(b, OPTINC_REG_CONTROL, OPTINC_CONTROL_ENABLE);
	set_reg(b, OPTINC_REG_ADMIN_SIZE, 7);
	b->host.closed = true;
	assert_int_equal(wait_status(b, OPTINC_STATUS_RESETTING, 0), 0);
	steps(b, 5);
	assert_int_equal(b->host.violations, 0);
	assert_int_equal(reg(b, OPTINC_REG_STATUS), 0);
	assert_int_equal(reg(b, OPTINC_REG_CONTROL), 0);
	assert_int_equal(reg(b, OPTINC_REG_ADMIN_SIZE), 0);
	assert_int_equal(reg(b, OPTINC_REG_ADMIN_SQ_HI), 0);
	assert_int_equal(reg(b, OPTINC_REG_DB_DROPPED), 0);
	after = reg(b, OPTINC_REG_CLOCK_LO);
	after |= (uint64_t)reg(b, OPTINC_REG_CLOCK_HI) << 32;
	assert_true(after > before);

	b->host.closed = false;
	bench_enable(b);
	assert_int_equal(object_command(b, OPTINC_ADMIN_CTX_DESTROY, ctx, 0),
			 OPTINC_AST_INVALID_HANDLE);
	make_context(b, 0);
	/* as a function-level reset comes */
	card_reset(b->card);
	assert_int_equal(reg(b, OPTINC_REG_STATUS), 0);
	assert_int_equal(reg(b, OPTINC_REG_ADMIN_SIZE), 0);
	bench_enable(b);
	make_context(b, 0);
}

/* CI-EN-6: outside READY doorbells and commands do nothing and are not counted */
static void test_not_ready(void **state)
{
	struct bench *b = *state;

	set_admin(b);
	set_reg(b, OPTINC_REG_ADMIN_SQ_TAIL, 1);
	card_doorbell(b->card, 0, OPTINC_DB_SQ_TAIL, 0x10000);
	steps(b, 5);
	assert_int_equal(reg(b, OPTINC_REG_DB_DROPPED), 0);
	assert_false(card_busy(b->card));
	bench_enable(b);
	steps(b, 5);
	/* the tail written before was not kept: no command has been taken */
	assert_int_equal(b->cq[0].status, 0);
	make_context(b, 0);
	assert_int_equal(b->last.sq_head, 1);
}

static struct optinc_admin_cmd identify_command(struct bench *b, uint32_t length)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_IDENTIFY,
		.addr = b->data_dma,
		.length = length,
	};

	return cmd;
}

/* CI-ADM-1, -2, -3 */
static void test_admin_ring(void **state)
{
	struct bench *b = *state;
	struct optinc_admin_cmd cmd = identify_command(b, 8);
	struct optinc_admin_cqe cqe;
	unsigned int i, n;

	for (i = 0; i < 5 * ADMIN_ENTRIES + 3; i++) {
		n = b->host.interrupts[0];
		assert_int_equal(admin(b, cmd), OPTINC_AST_SUCCESS);
		assert_true(b->host.interrupts[0] > n);
	}
	/* a full ring at once */
	for (i = 0; i < ADMIN_ENTRIES; i++) {
		cmd.cmd_id = (uint16_t)i;
		admin_post(b, &cmd);
	}
	/* and not one more, nor one less, nor with high bits */
	set_reg(b, OPTINC_REG_ADMIN_SQ_TAIL, (uint16_t)(b->tail + 1));
	set_reg(b, OPTINC_REG_ADMIN_SQ_TAIL, (uint16_t)(b->tail - 1));
	set_reg(b, OPTINC_REG_ADMIN_SQ_TAIL, b->tail | 0x10000);
	set_reg(b, OPTINC_REG_ADMIN_CQ_HEAD, (uint16_t)(b->head + 1));
	set_reg(b, OPTINC_REG_ADMIN_CQ_HEAD, (uint16_t)(b->head - 1));
	card_step(b->card);
	/* completions that are not consumed hold back credit */
	set_reg(b, OPTINC_REG_ADMIN_SQ_TAIL, (uint16_t)(b->tail + 1));
	steps(b, 3);
	for (i = 0; i < ADMIN_ENTRIES; i++) {
		assert_true(admin_poll(b, &cqe));
		assert_int_equal(cqe.cmd_id, i);
		assert_int_equal(cqe.status >> 1, OPTINC_AST_SUCCESS);
	}
	steps(b, 3);
	assert_false(admin_poll(b, &cqe));
	assert_int_equal(reg(b, OPTINC_REG_DB_DROPPED), 0);
	assert_int_equal(admin(b, cmd), OPTINC_AST_SUCCESS);
}

/* Rings of different sizes: the smaller one bounds what is in it. */
static void test_admin_sizes(void **state)
{
	struct bench *b = *state;
	struct optinc_admin_cmd cmd = identify_command(b, 8);
	unsigned int i;

	set_admin(b);
	set_reg(b, OPTINC_REG_ADMIN_SIZE, (ADMIN_ENTRIES - 1) << 16 | 1);
	set_reg(b, OPTINC_REG_CONTROL, OPTINC_CONTROL_ENABLE);
	wait_status(b, OPTINC_STATUS_READY, OPTINC_STATUS_READY);
	for (i = 0; i < 3; i++)
		b->sq[i] = cmd;
	set_reg(b, OPTINC_REG_ADMIN_SQ_TAIL, 3);
	steps(b, 3);
	assert_int_equal(b->cq[0].status, 0);
	set_reg(b, OPTINC_REG_ADMIN_SQ_TAIL, 2);
	steps(b, 3);
	assert_int_equal(b->cq[0].status, 1);
	assert_int_equal(b->cq[1].status, 1);
	assert_int_equal(b->cq[1].sq_head, 2);
	set_reg(b, OPTINC_REG_ADMIN_SQ_TAIL, 4);
	steps(b, 3);
	assert_int_equal(b->cq[3].status, 1);
	assert_int_equal(b->cq[3].sq_head, 4);
	assert_int_equal(b->cq[4].status, 0);
}

static void test_admin_index_wrap(void **state)
{
	struct bench *b = *state;
	struct optinc_admin_cmd cmd = identify_command(b, 8);
	unsigned int i;

	for (i = 0; i < 65536 + 40; i++)
		assert_int_equal(admin(b, cmd), OPTINC_AST_SUCCESS);
}

/* CI-ADM-8, CI-GEN-3, CI-GEN-4, CI-MR-9 */
static void test_identify(void **state)
{
	struct bench *b = *state;
	struct optinc_hw_identify *id = (void *)b->data;
	uint32_t length;
	size_t i;

	for (length = 1; length <= 300; length++) {
		uint32_t want = length < 256 ? length : 256;

		memset(b->data, 0xaa, 512);
		assert_int_equal(admin(b, identify_command(b, length)), OPTINC_AST_SUCCESS);
		assert_int_equal(b->last.result, want);
		assert_int_equal((uint8_t)b->data[want], 0xaa);
	}
	assert_int_equal(id->interface_version, 0x10000);
	assert_int_equal(id->features, OPTINC_FEAT_ISOLATION | OPTINC_FEAT_EMULATED);
	assert_int_equal(id->opcodes, 0x1f);
	assert_int_equal(id->dtypes, 0x7f);
	assert_int_equal(id->redops, 7);
	assert_int_equal(id->code_bits, 1 << 8 | 1 << 16);
	assert_int_equal(id->format_version, OPTINC_FORMAT_VERSION);
	assert_int_equal(id->port, 0);
	assert_int_equal(id->ports, 2);
	assert_int_equal(id->lanes, 8);
	assert_int_equal(id->lanes_up, 8);
	assert_in_range(id->max_count, 1 << 20, 1ULL << 40);
	assert_in_range(id->max_mr_bytes, 1 << 30, 1ULL << 48);
	assert_in_range(id->max_contexts, 1, 2047);
	assert_true((uint64_t)id->max_contexts * id->max_qps <= 65535);
	assert_in_range(id->max_mrs, 16, 1048576);
	assert_in_range(id->max_groups, 1, 65535);
	assert_in_range(id->max_queue, 64, 4096);
	assert_in_range(id->max_segments, 256, 1048576);
	for (i = 0; i < sizeof(id->__reserved); i++)
		assert_int_equal(id->__reserved[i], 0);
	assert_int_equal(id->serial[31], 0);
	assert_int_equal(id->model[31], 0);
	assert_true(strlen(id->serial) > 0);
}

/* CI-ADM-9 */
static void test_log(void **state)
{
	struct bench *b = *state;
	struct optinc_admin_cmd cmd = log_command(b);
	const struct optinc_hw_port_log *log = (void *)b->data;
	uint64_t ns;

	card_doorbell(b->card, 0, OPTINC_DB_SQ_TAIL, 0x10000);
	assert_int_equal(admin(b, cmd), OPTINC_AST_SUCCESS);
	assert_int_equal(b->last.result, 128);
	assert_int_equal(log->doorbells, 1);
	assert_int_equal(log->doorbells_dropped, 1);
	ns = log->device_ns;
	assert_true(ns > 0);
	cmd.log.offset = 80;
	memset(b->data, 0xaa, 256);
	assert_int_equal(admin(b, cmd), OPTINC_AST_SUCCESS);
	assert_int_equal(b->last.result, 48);
	assert_true(*(uint64_t *)(void *)b->data >= ns);
	assert_int_equal((uint8_t)b->data[48], 0xaa);
	cmd.log.offset = 120;
	assert_int_equal(admin(b, cmd), OPTINC_AST_SUCCESS);
	assert_int_equal(b->last.result, 8);
	cmd.log.offset = 128;
	assert_int_equal(admin(b, cmd), OPTINC_AST_INVALID_FIELD);
	cmd.log.offset = 4;
	assert_int_equal(admin(b, cmd), OPTINC_AST_INVALID_FIELD);
	cmd.log.offset = 0xfffffff8;
	assert_int_equal(admin(b, cmd), OPTINC_AST_INVALID_FIELD);
	cmd.log.offset = 0;
	cmd.log.page = 2;
	assert_int_equal(admin(b, cmd), OPTINC_AST_UNSUPPORTED);
	cmd.log.page = 0;
	assert_int_equal(admin(b, cmd), OPTINC_AST_UNSUPPORTED);
}

/* CI-ADM-6 */
static void test_opcodes(void **state)
{
	static const uint8_t known[] = { 1, 2, 3, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15,
					 0x20, 0x21, 0x22, 0x23 };
	struct bench *b = *state;
	unsigned int opcode;

	for (opcode = 0; opcode < 256; opcode++) {
		struct optinc_admin_cmd cmd = { .opcode = (uint8_t)opcode };

		if (memchr(known, (int)opcode, sizeof(known)))
			continue;
		assert_int_equal(admin(b, cmd), OPTINC_AST_INVALID_OPCODE);
		/* the opcode is looked at first */
		cmd.flags = 1;
		cmd.ctx = 5;
		assert_int_equal(admin(b, cmd), OPTINC_AST_INVALID_OPCODE);
	}
}

/* Valid commands of all kinds, and which bytes of them are in use */
struct sample {
	struct optinc_admin_cmd cmd;
	bool ctx, handle, buffer;
	unsigned int raw;
};

/* CI-GEN-1, CI-ADM-12: each unused byte, set in each command */
static void test_unused_bytes(void **state)
{
	struct bench *b = *state;
	uint32_t ctx = make_context(b, 0);
	struct optinc_hw_join join = join_of(1, 0, 2);
	struct region r;
	struct queue q;
	struct sample samples[13];
	unsigned int n = 0, i, byte;

	region_memory(b, &r, 100, 1);
	queue_memory(b, &q, 0, 2, 2);
	samples[n++] = (struct sample) { identify_command(b, 256), false, false, true, 0 };
	samples[n++] = (struct sample) { log_command(b), false, false, true, 8 };
	samples[n++] = (struct sample) { { .opcode = OPTINC_ADMIN_ASYNC_EVENT },
					 false, false, false, 0 };
	samples[n++] = (struct sample) { { .opcode = OPTINC_ADMIN_CTX_CREATE },
					 false, false, false, 4 };
	samples[n++] = (struct sample) { { .opcode = OPTINC_ADMIN_CTX_DESTROY, .ctx = ctx },
					 true, false, false, 0 };
	samples[n++] = (struct sample) { mr_command(b, ctx, &r, 0), true, false, true, 16 };
	samples[n++] = (struct sample) { { .opcode = OPTINC_ADMIN_MR_DEREG, .ctx = ctx,
					   .handle = 1 }, true, true, false, 0 };
	samples[n++] = (struct sample) { qp_command(ctx, &q, 0), true, false, false, 22 };
	samples[n++] = (struct sample) { { .opcode = OPTINC_ADMIN_QP_DESTROY, .ctx = ctx,
					   .handle = 1 }, true, true, false, 0 };
	samples[n++] = (struct sample) { { .opcode = OPTINC_ADMIN_GROUP_JOIN, .ctx = ctx,
					   .addr = b->data_dma, .length = sizeof(join) },
					 true, false, true, 0 };
	samples[n++] = (struct sample) { { .opcode = OPTINC_ADMIN_GROUP_QUERY, .ctx = ctx,
					   .handle = 1, .addr = b->data_dma, .length = 32 },
					 true, true, true, 0 };
	samples[n++] = (struct sample) { { .opcode = OPTINC_ADMIN_GROUP_LEAVE, .ctx = ctx,
					   .handle = 1 }, true, true, false, 0 };
	samples[n++] = (struct sample) { { .opcode = OPTINC_ADMIN_GROUP_ABORT, .ctx = ctx,
					   .handle = 1 }, true, true, false, 0 };
	assert_int_equal(n, 13);

	for (i = 0; i < n; i++) {
		const struct sample *s = &samples[i];

		for (byte = 1; byte < 64; byte++) {
			struct optinc_admin_cmd cmd = s->cmd;
			bool used = byte == 2 || byte == 3 ||
				    (byte >= 4 && byte < 8 && s->ctx) ||
				    (byte >= 8 && byte < 12 && s->handle) ||
				    (byte >= 12 && byte < 24 && s->buffer) ||
				    (byte >= 24 && byte < 24 + s->raw);

			if (used)
				continue;
			((uint8_t *)&cmd)[byte] = 0x80;
			if (admin(b, cmd) != OPTINC_AST_INVALID_FIELD)
				fail_msg("command %#x takes byte %u", cmd.opcode, byte);
		}
	}
	/* none of them had an effect */
	assert_int_equal(object_command(b, OPTINC_ADMIN_CTX_DESTROY, ctx, 0), OPTINC_AST_SUCCESS);
}

/* CI-ADM-5, CI-ADM-7 */
static void test_buffers(void **state)
{
	struct bench *b = *state;
	struct optinc_admin_cmd cmd = identify_command(b, 256);
	uint32_t ctx = make_context(b, 0);
	struct optinc_admin_cmd query = {
		.opcode = OPTINC_ADMIN_GROUP_QUERY, .ctx = ctx, .handle = 3,
		.addr = b->data_dma + 1, .length = 32,
	};

	cmd.addr = b->data_dma + 4;
	assert_int_equal(admin(b, cmd), OPTINC_AST_INVALID_FIELD);
	cmd.addr = -8ULL;
	assert_int_equal(admin(b, cmd), OPTINC_AST_INVALID_FIELD);
	cmd.addr = -256ULL;	/* ends at 2^64: in range, but not there */
	assert_int_equal(admin(b, cmd), OPTINC_AST_DMA);
	cmd.addr = 0;
	assert_int_equal(admin(b, cmd), OPTINC_AST_DMA);
	cmd.addr = b->data_dma + DATA_BYTES - 128;
	assert_int_equal(admin(b, cmd), OPTINC_AST_DMA);
	cmd.addr = b->data_dma;
	cmd.length = 0;
	assert_int_equal(admin(b, cmd), OPTINC_AST_INVALID_FIELD);
	assert_int_equal(reg(b, OPTINC_REG_STATUS), OPTINC_STATUS_READY);
	/* of two violations the first: context, handle, buffer */
	assert_int_equal(admin(b, query), OPTINC_AST_INVALID_HANDLE);
	query.ctx = ctx + 1;
	query.flags = 1;
	assert_int_equal(admin(b, query), OPTINC_AST_INVALID_FIELD);
}

/* CI-CTX-1, CI-DB-5 */
static void test_contexts(void **state)
{
	struct bench *b = *state;
	struct optinc_admin_cmd create = { .opcode = OPTINC_ADMIN_CTX_CREATE };
	uint32_t handles[CARD_CONTEXTS];
	uint32_t i;

	create.ctx_create.db_page = CARD_CONTEXTS;
	assert_int_equal(admin(b, create), OPTINC_AST_INVALID_FIELD);
	create.ctx_create.db_page = 0x80000000;
	assert_int_equal(admin(b, create), OPTINC_AST_INVALID_FIELD);
	for (i = 0; i < CARD_CONTEXTS; i++)
		handles[i] = make_context(b, CARD_CONTEXTS - 1 - i);
	create.ctx_create.db_page = 5;
	assert_int_equal(admin(b, create), OPTINC_AST_LIMIT);
	assert_int_equal(object_command(b, OPTINC_ADMIN_CTX_DESTROY, handles[7], 0),
			 OPTINC_AST_SUCCESS);
	assert_int_equal(admin(b, create), OPTINC_AST_BUSY);
	create.ctx_create.db_page = CARD_CONTEXTS - 1 - 7;
	assert_int_equal(admin(b, create), OPTINC_AST_SUCCESS);
	/* the slot is used again, the handle is not */
	assert_int_not_equal(b->last.handle, handles[7]);
	assert_int_equal(object_command(b, OPTINC_ADMIN_CTX_DESTROY, handles[7], 0),
			 OPTINC_AST_INVALID_HANDLE);
	assert_int_equal(object_command(b, OPTINC_ADMIN_CTX_DESTROY, 0, 0),
			 OPTINC_AST_INVALID_HANDLE);

	/* pages of 1 MiB: BAR2 has four of them */
	bench_reset(b);
	set_admin(b);
	set_reg(b, OPTINC_REG_CONTROL, OPTINC_CONTROL_ENABLE | 8 << 8);
	assert_int_equal(wait_status(b, OPTINC_STATUS_READY, OPTINC_STATUS_READY),
			 OPTINC_STATUS_READY);
	create.ctx_create.db_page = CARD_BAR2_BYTES >> 20;
	assert_int_equal(admin(b, create), OPTINC_AST_INVALID_FIELD);
	create.ctx_create.db_page--;
	assert_int_equal(admin(b, create), OPTINC_AST_SUCCESS);
}

static void expect_mr(struct bench *b, struct optinc_admin_cmd cmd, uint16_t status)
{
	assert_int_equal(admin(b, cmd), status);
}

/* CI-MR-1 */
static void test_regions(void **state)
{
	struct bench *b = *state;
	uint32_t ctx = make_context(b, 0), other = make_context(b, 1);
	struct optinc_hw_segment *list = (void *)b->data;
	struct optinc_admin_cmd cmd, bad;
	struct region r;
	uint32_t handle;

	region_memory(b, &r, 1000, 7);
	cmd = mr_command(b, ctx, &r, OPTINC_MR_WRITE);
	expect_mr(b, cmd, OPTINC_AST_SUCCESS);
	handle = b->last.handle;

	bad = cmd;
	bad.mr_reg.length = 0;
	expect_mr(b, bad, OPTINC_AST_INVALID_FIELD);
	bad.mr_reg.length = 999;
	expect_mr(b, bad, OPTINC_AST_INVALID_FIELD);
	bad.mr_reg.length = 1001;
	expect_mr(b, bad, OPTINC_AST_INVALID_FIELD);
	bad.mr_reg.length = (1ULL << 48) + 1;
	expect_mr(b, bad, OPTINC_AST_INVALID_FIELD);
	bad = cmd;
	bad.mr_reg.segments = 0;
	bad.length = 16;
	expect_mr(b, bad, OPTINC_AST_INVALID_FIELD);
	bad.mr_reg.segments = 6;
	expect_mr(b, bad, OPTINC_AST_INVALID_FIELD);
	bad.mr_reg.segments = OPTINC_MAX_SEGMENTS + 1;
	bad.length = (OPTINC_MAX_SEGMENTS + 1) * 16;
	expect_mr(b, bad, OPTINC_AST_INVALID_FIELD);
	/* 16 * segments modulo 2^32 is the length */
	bad.mr_reg.segments = 0x10000001;
	bad.length = 16;
	expect_mr(b, bad, OPTINC_AST_INVALID_FIELD);
	bad = cmd;
	bad.mr_reg.access = 2;
	expect_mr(b, bad, OPTINC_AST_INVALID_FIELD);
	bad.mr_reg.access = OPTINC_MR_WRITE | 0x80000000;
	expect_mr(b, bad, OPTINC_AST_INVALID_FIELD);
	bad = cmd;
	bad.addr = 0x1000;
	expect_mr(b, bad, OPTINC_AST_DMA);
	bad.addr = b->data_dma + DATA_BYTES - 64;
	expect_mr(b, bad, OPTINC_AST_DMA);

	mr_command(b, ctx, &r, 0);
	list[3].length = 0;
	expect_mr(b, cmd, OPTINC_AST_INVALID_FIELD);
	mr_command(b, ctx, &r, 0);
	list[6].addr = -1ULL;
	expect_mr(b, cmd, OPTINC_AST_INVALID_FIELD);
	mr_command(b, ctx, &r, 0);
	list[0].length = -1ULL;
	list[0].addr = 1;
	expect_mr(b, cmd, OPTINC_AST_INVALID_FIELD);
	mr_command(b, ctx, &r, 0);
	/* lengths whose sum wraps to the right one */
	list[1].length += 1ULL << 63;
	list[1].addr = 0;
	list[2].length += 1ULL << 63;
	list[2].addr = 0;
	expect_mr(b, cmd, OPTINC_AST_INVALID_FIELD);
	/* at the end of all addresses is no error, nor is memory that is not there */
	r.segments = 1;
	r.bytes[0] = 1000;
	r.dma[0] = -1000ULL;
	expect_mr(b, mr_command(b, ctx, &r, 0), OPTINC_AST_SUCCESS);
	r.dma[0] = -999ULL;
	expect_mr(b, mr_command(b, ctx, &r, 0), OPTINC_AST_INVALID_FIELD);

	/* CI-CTX-2 */
	assert_int_equal(object_command(b, OPTINC_ADMIN_MR_DEREG, other, handle),
			 OPTINC_AST_INVALID_HANDLE);
	assert_int_equal(object_command(b, OPTINC_ADMIN_MR_DEREG, ctx, handle),
			 OPTINC_AST_SUCCESS);
	assert_int_equal(object_command(b, OPTINC_ADMIN_MR_DEREG, ctx, handle),
			 OPTINC_AST_INVALID_HANDLE);
	assert_int_equal(object_command(b, OPTINC_ADMIN_MR_DEREG, ctx, 0),
			 OPTINC_AST_INVALID_HANDLE);
}

/* Limits of regions: of a context, and of segments that the card holds */
static void test_region_limits(void **state)
{
	struct bench *b = *state;
	uint32_t ctx = make_context(b, 0), other = make_context(b, 1);
	struct optinc_hw_segment *big;
	struct optinc_admin_cmd cmd;
	struct region r;
	uint32_t first, i;
	uint64_t dma;
	unsigned int full;

	region_memory(b, &r, 100, 1);
	cmd = mr_command(b, ctx, &r, 0);
	expect_mr(b, cmd, OPTINC_AST_SUCCESS);
	first = b->last.handle;
	for (i = 1; i < 1024; i++) {
		expect_mr(b, cmd, OPTINC_AST_SUCCESS);
		assert_int_not_equal(b->last.handle, first);
	}
	expect_mr(b, cmd, OPTINC_AST_LIMIT);
	/* another context has its own, and one that is free can be had again */
	cmd.ctx = other;
	expect_mr(b, cmd, OPTINC_AST_SUCCESS);
	assert_int_equal(object_command(b, OPTINC_ADMIN_MR_DEREG, ctx, first),
			 OPTINC_AST_SUCCESS);
	cmd.ctx = ctx;
	expect_mr(b, cmd, OPTINC_AST_SUCCESS);
	assert_int_not_equal(b->last.handle, first);
	assert_int_equal(object_command(b, OPTINC_ADMIN_CTX_DESTROY, ctx, 0), OPTINC_AST_SUCCESS);

	/* segments that do not touch, so none can be joined */
	big = host_alloc(&b->host, OPTINC_MAX_SEGMENTS * sizeof(*big), 0, &dma);
	for (i = 0; i < OPTINC_MAX_SEGMENTS; i++) {
		big[i].addr = (uint64_t)i * 16;
		big[i].length = 1;
	}
	cmd.ctx = other;
	cmd.addr = dma;
	cmd.length = OPTINC_MAX_SEGMENTS * sizeof(*big);
	cmd.mr_reg.segments = OPTINC_MAX_SEGMENTS;
	cmd.mr_reg.length = OPTINC_MAX_SEGMENTS;
	for (full = 0; full < 20; full++) {
		uint16_t status = admin(b, cmd);

		if (status) {
			assert_int_equal(status, OPTINC_AST_NO_MEMORY);
			break;
		}
	}
	assert_in_range(full, 1, 8);
	assert_int_equal(object_command(b, OPTINC_ADMIN_CTX_DESTROY, other, 0),
			 OPTINC_AST_SUCCESS);
	/* all was given back */
	cmd.ctx = make_context(b, 2);
	for (i = 0; i < full; i++)
		expect_mr(b, cmd, OPTINC_AST_SUCCESS);
	expect_mr(b, cmd, OPTINC_AST_NO_MEMORY);
}

/* CI-QP-1 */
static void test_queue_pairs(void **state)
{
	struct bench *b = *state;
	uint32_t ctx = make_context(b, 0), other = make_context(b, 1);
	struct optinc_admin_cmd cmd, bad;
	uint32_t ids[64];
	struct queue q;
	unsigned int i, n;

	queue_memory(b, &q, 0, 64, 128);
	cmd = qp_command(ctx, &q, 1);
	assert_int_equal(admin(b, cmd), OPTINC_AST_SUCCESS);
	ids[0] = b->last.handle;

	static const uint16_t sizes[][2] = {
		{ 0, 64 }, { 1, 64 }, { 3, 64 }, { 63, 64 }, { 64, 32 }, { 64, 0 }, { 64, 65 },
		{ 64, 8192 }, { 8192, 8192 }, { 64, 0x8000 },
	};
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		bad = cmd;
		bad.qp_create.sq_entries = sizes[i][0];
		bad.qp_create.cq_entries = sizes[i][1];
		assert_int_equal(admin(b, bad), OPTINC_AST_INVALID_FIELD);
	}
	bad = cmd;
	bad.qp_create.sq_addr += 64;
	assert_int_equal(admin(b, bad), OPTINC_AST_INVALID_FIELD);
	bad = cmd;
	bad.qp_create.cq_addr += 32;
	assert_int_equal(admin(b, bad), OPTINC_AST_INVALID_FIELD);
	bad = cmd;
	bad.qp_create.cq_addr = bad.qp_create.sq_addr;
	assert_int_equal(admin(b, bad), OPTINC_AST_INVALID_FIELD);
	bad.qp_create.sq_entries = 128;
	bad.qp_create.cq_addr = bad.qp_create.sq_addr + 4096;
	assert_int_equal(admin(b, bad), OPTINC_AST_INVALID_FIELD);
	bad = cmd;
	bad.qp_create.sq_addr = -4096ULL;
	bad.qp_create.sq_entries = 128;
	assert_int_equal(admin(b, bad), OPTINC_AST_INVALID_FIELD);
	bad = cmd;
	bad.qp_create.vector = HOST_VECTORS;
	assert_int_equal(admin(b, bad), OPTINC_AST_INVALID_FIELD);
	bad = cmd;
	bad.ctx = 0;
	assert_int_equal(admin(b, bad), OPTINC_AST_INVALID_HANDLE);

	for (i = 1; i < 64; i++) {
		assert_int_equal(admin(b, cmd), OPTINC_AST_SUCCESS);
		ids[i] = b->last.handle;
		for (n = 0; n < i; n++)
			assert_int_not_equal(ids[n], ids[i]);
	}
	assert_int_equal(admin(b, cmd), OPTINC_AST_LIMIT);
	assert_int_equal(object_command(b, OPTINC_ADMIN_QP_DESTROY, other, ids[3]),
			 OPTINC_AST_INVALID_HANDLE);
	assert_int_equal(object_command(b, OPTINC_ADMIN_QP_DESTROY, ctx, ids[3]),
			 OPTINC_AST_SUCCESS);
	assert_int_equal(object_command(b, OPTINC_ADMIN_QP_DESTROY, ctx, ids[3]),
			 OPTINC_AST_INVALID_HANDLE);
	assert_int_equal(object_command(b, OPTINC_ADMIN_QP_DESTROY, ctx, ids[4] + 0x10000),
			 OPTINC_AST_INVALID_HANDLE);
	assert_int_equal(admin(b, cmd), OPTINC_AST_SUCCESS);
	assert_int_not_equal(b->last.handle, ids[3]);
}

/* What all queue pairs of the card can hold has an end, and comes back. */
static void test_queue_limits(void **state)
{
	struct bench *b = *state;
	uint32_t ctx = make_context(b, 0);
	struct optinc_admin_cmd cmd;
	unsigned int i, made = 0;
	struct queue q;

	queue_memory(b, &q, 0, 4096, 4096);
	for (i = 1; i < CARD_CONTEXTS; i++) {
		unsigned int n;

		cmd = qp_command(ctx, &q, 1);
		for (n = 0; n < 64; n++) {
			uint16_t status = admin(b, cmd);

			if (status) {
				assert_int_equal(status, OPTINC_AST_NO_MEMORY);
				break;
			}
			made++;
		}
		if (n < 64)
			break;
		ctx = make_context(b, i);
	}
	assert_in_range(made, 64, 128);
	bench_disable(b);
	bench_enable(b);
	cmd = qp_command(make_context(b, 0), &q, 1);
	assert_int_equal(admin(b, cmd), OPTINC_AST_SUCCESS);
}

/* CI-GRP-1 */
static void test_join_checks(void **state)
{
	struct bench *b = *state;
	uint32_t ctx = make_context(b, 0);
	const struct optinc_hw_join good = join_of(7, 1, 2);
	struct optinc_hw_group_state group;
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_GROUP_JOIN, .ctx = ctx, .addr = b->data_dma,
	};
	struct optinc_hw_join bad;
	unsigned int i;

#define EXPECT(field, value, status) do {				\
	bad = good;							\
	bad.field = (value);						\
	assert_int_equal(join_group(b, ctx, &bad), status);		\
} while (0)
	for (i = 0; i < sizeof(bad.__reserved); i++)
		EXPECT(__reserved[i], 1, OPTINC_AST_INVALID_FIELD);
	bad = good;
	memset(bad.key, 0, sizeof(bad.key));
	assert_int_equal(join_group(b, ctx, &bad), OPTINC_AST_INVALID_FIELD);
	EXPECT(nranks, 0, OPTINC_AST_INVALID_FIELD);
	EXPECT(nranks, 1, OPTINC_AST_INVALID_FIELD);
	EXPECT(nranks, 3, OPTINC_AST_INVALID_FIELD);
	EXPECT(nranks, 17, OPTINC_AST_INVALID_FIELD);
	EXPECT(rank, 2, OPTINC_AST_INVALID_FIELD);
	EXPECT(rank, -1U, OPTINC_AST_INVALID_FIELD);
	EXPECT(bits, 0, OPTINC_AST_INVALID_FIELD);
	EXPECT(bits, 12, OPTINC_AST_INVALID_FIELD);
	EXPECT(bits, 0x10008, OPTINC_AST_INVALID_FIELD);
	EXPECT(format, 0, OPTINC_AST_UNSUPPORTED);
	EXPECT(format, OPTINC_FORMAT_VERSION + 1, OPTINC_AST_UNSUPPORTED);
	EXPECT(dtypes, 0, OPTINC_AST_INVALID_FIELD);
	EXPECT(dtypes, 1 << OPTINC_I16, OPTINC_AST_INVALID_FIELD);
	EXPECT(dtypes, 1 << OPTINC_DTYPES, OPTINC_AST_INVALID_FIELD);
	EXPECT(dtypes, 1ULL << 63 | 1, OPTINC_AST_INVALID_FIELD);
	bad = good;
	bad.bits = 16;
	assert_int_equal(join_group(b, ctx, &bad), OPTINC_AST_INVALID_FIELD);
	EXPECT(deadline_ms, 0, OPTINC_AST_INVALID_FIELD);
	EXPECT(deadline_ms, 3600001, OPTINC_AST_INVALID_FIELD);
#undef EXPECT
	/* two violations: the table's order */
	bad = good;
	bad.format = 9;
	bad.deadline_ms = 0;
	assert_int_equal(join_group(b, ctx, &bad), OPTINC_AST_UNSUPPORTED);

	cmd.length = 63;
	assert_int_equal(admin(b, cmd), OPTINC_AST_INVALID_FIELD);
	cmd.length = 72;
	assert_int_equal(admin(b, cmd), OPTINC_AST_INVALID_FIELD);
	cmd.length = 64;
	cmd.addr = 0x1000;
	assert_int_equal(admin(b, cmd), OPTINC_AST_DMA);

	/* no object came of all this: there is room for 16 */
	for (i = 0; i < 16; i++) {
		bad = good;
		bad.key[5] = (uint8_t)i;
		assert_int_equal(join_group(b, ctx, &bad), OPTINC_AST_SUCCESS);
		assert_int_equal(query_group(b, ctx, b->last.handle, &group), OPTINC_AST_SUCCESS);
	}
	bad.key[5] = 99;
	assert_int_equal(join_group(b, ctx, &bad), OPTINC_AST_LIMIT);
}

/* CI-GRP-9, CI-CTX-2, stale handles, JOINING as it shows */
static void test_groups(void **state)
{
	struct bench *b = *state;
	uint32_t ctx = make_context(b, 0), other = make_context(b, 1);
	const struct optinc_hw_join join = join_of(7, 1, 2);
	struct optinc_hw_group_state group;
	struct optinc_admin_cmd query = { .opcode = OPTINC_ADMIN_GROUP_QUERY, .ctx = ctx };
	uint32_t handle;

	assert_int_equal(join_group(b, ctx, &join), OPTINC_AST_SUCCESS);
	handle = b->last.handle;
	assert_int_equal(join_group(b, ctx, &join), OPTINC_AST_BUSY);
	assert_int_equal(join_group(b, other, &join), OPTINC_AST_BUSY);
	assert_int_equal(query_group(b, ctx, handle, &group), OPTINC_AST_SUCCESS);
	assert_int_equal(group.state, OPTINC_GROUP_JOINING);
	assert_int_equal(group.status, 0);
	assert_int_equal(group.peer, OPTINC_NO_RANK);
	assert_int_equal(group.mismatch, 0);
	assert_int_equal(group.joined, 1 << 1);
	/* a short buffer gets what fits */
	query.handle = handle;
	query.addr = b->data_dma;
	query.length = 4;
	memset(b->data, 0xaa, 64);
	assert_int_equal(admin(b, query), OPTINC_AST_SUCCESS);
	assert_int_equal(b->last.result, 4);
	assert_int_equal((uint8_t)b->data[4], 0xaa);

	assert_int_equal(query_group(b, other, handle, &group), OPTINC_AST_INVALID_HANDLE);
	assert_int_equal(object_command(b, OPTINC_ADMIN_GROUP_LEAVE, other, handle),
			 OPTINC_AST_INVALID_HANDLE);
	assert_int_equal(object_command(b, OPTINC_ADMIN_GROUP_ABORT, other, handle),
			 OPTINC_AST_INVALID_HANDLE);
	assert_int_equal(object_command(b, OPTINC_ADMIN_GROUP_ABORT, ctx, handle),
			 OPTINC_AST_SUCCESS);
	assert_int_equal(query_group(b, ctx, handle, &group), OPTINC_AST_SUCCESS);
	assert_int_equal(group.state, OPTINC_GROUP_FAILED);
	assert_int_equal(group.status, OPTINC_ST_ABORTED);
	assert_int_equal(group.peer, 1);
	assert_int_equal(object_command(b, OPTINC_ADMIN_GROUP_ABORT, ctx, handle),
			 OPTINC_AST_SUCCESS);
	assert_int_equal(object_command(b, OPTINC_ADMIN_GROUP_LEAVE, ctx, handle),
			 OPTINC_AST_SUCCESS);
	assert_int_equal(object_command(b, OPTINC_ADMIN_GROUP_LEAVE, ctx, handle),
			 OPTINC_AST_INVALID_HANDLE);
	assert_int_equal(query_group(b, ctx, handle, &group), OPTINC_AST_INVALID_HANDLE);
	assert_int_equal(join_group(b, other, &join), OPTINC_AST_SUCCESS);
	assert_int_not_equal(b->last.handle, handle);
}

/* CI-ADM-10, CI-ADM-11 */
static void test_events(void **state)
{
	struct bench *b = *state;
	uint32_t ctx = make_context(b, 0);
	struct optinc_hw_join join = join_of(7, 1, 2);
	struct optinc_admin_cmd cmd = { .opcode = OPTINC_ADMIN_ASYNC_EVENT };
	uint32_t first, second;
	uint16_t i;

	/* kept without a command outstanding, and merged */
	assert_int_equal(join_group(b, ctx, &join), OPTINC_AST_SUCCESS);
	first = b->last.handle;
	assert_int_equal(object_command(b, OPTINC_ADMIN_GROUP_ABORT, ctx, first),
			 OPTINC_AST_SUCCESS);
	steps(b, 5);
	post_event(b, 0);
	poll_events(b);
	assert_int_equal(b->events, 1);
	assert_int_equal(b->event.cmd_id, EVENT_ID);
	assert_int_equal(b->event.handle, first);
	assert_int_equal(b->event.result, OPTINC_EVENT_GROUP);

	/* a group that is gone has no event any more */
	join.key[3] = 1;
	assert_int_equal(join_group(b, ctx, &join), OPTINC_AST_SUCCESS);
	second = b->last.handle;
	assert_int_equal(object_command(b, OPTINC_ADMIN_GROUP_ABORT, ctx, second),
			 OPTINC_AST_SUCCESS);
	assert_int_equal(object_command(b, OPTINC_ADMIN_GROUP_LEAVE, ctx, second),
			 OPTINC_AST_SUCCESS);
	for (i = 0; i < OPTINC_MAX_ASYNC_EVENTS; i++)
		post_event(b, i);
	steps(b, 3);
	poll_events(b);
	assert_int_equal(b->events, 1);
	assert_int_equal(admin(b, cmd), OPTINC_AST_LIMIT);

	/* the oldest command gets the next one */
	join.key[3] = 2;
	assert_int_equal(join_group(b, ctx, &join), OPTINC_AST_SUCCESS);
	second = b->last.handle;
	assert_int_equal(object_command(b, OPTINC_ADMIN_GROUP_ABORT, ctx, second),
			 OPTINC_AST_SUCCESS);
	poll_events(b);
	assert_int_equal(b->events, 2);
	assert_int_equal(b->event.cmd_id, EVENT_ID);
	assert_int_equal(b->event.handle, second);
	post_event(b, 0);
	assert_int_equal(admin(b, cmd), OPTINC_AST_LIMIT);
}

/* A join that nobody answers ends with the deadline, and the event says so. */
static void test_join_deadline(void **state)
{
	struct bench *b = *state;
	uint32_t ctx = make_context(b, 0);
	struct optinc_hw_join join = join_of(9, 0, 2);
	struct optinc_hw_group_state group;
	uint64_t until = fabric_clock_ns() + 5000000000ULL;
	uint32_t handle;

	post_event(b, 0);
	join.deadline_ms = 50;
	assert_int_equal(join_group(b, ctx, &join), OPTINC_AST_SUCCESS);
	handle = b->last.handle;
	while (!b->events && fabric_clock_ns() < until) {
		card_sleep(b->card, 1000000);
		poll_events(b);
	}
	assert_int_equal(b->events, 1);
	assert_int_equal(b->event.handle, handle);
	assert_int_equal(query_group(b, ctx, handle, &group), OPTINC_AST_SUCCESS);
	assert_int_equal(group.state, OPTINC_GROUP_FAILED);
	assert_int_equal(group.status, OPTINC_ST_TIMEOUT);
	assert_int_equal(group.peer, 1);
	assert_int_equal(group.joined, 1);
}

/* A card that is made for tests of the driver: without isolation */
static void test_no_isolation(void **state)
{
	struct card_config config = { .vectors = 1, .no_isolation = true };
	struct bench *b = *state;
	char error[256] = "";
	struct card *card;

	snprintf(config.fabric.name, sizeof(config.fabric.name), "%s", fabric_name());
	config.fabric.ports = 2;
	/* the port is the bench's own still */
	assert_int_equal(card_new(&config, &host_ops, &b->host, &card, error, sizeof(error)),
			 -16);
	assert_true(strlen(error) > 0);
	config.fabric.port = 1;
	config.vectors = 0;
	assert_int_equal(card_new(&config, &host_ops, &b->host, &card, error, sizeof(error)),
			 -22);
	config.vectors = 2048;
	assert_int_equal(card_new(&config, &host_ops, &b->host, &card, error, sizeof(error)),
			 -22);
	config.vectors = 1;
	assert_int_equal(card_new(&config, &host_ops, &b->host, &card, error, sizeof(error)), 0);
	assert_int_equal(card_read(card, OPTINC_REG_CAP0) & OPTINC_CAP0_ISOLATION, 0);
	card_free(card);
	card_free(NULL);
}

int main(void)
{
#define CASE(name)	cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
#define CASE_ON(name)	cmocka_unit_test_setup_teardown(test_##name, setup_enabled, teardown)
	const struct CMUnitTest tests[] = {
		CASE(registers), CASE(enable), CASE(bad_start), CASE(ring_goes), CASE(reset),
		CASE(not_ready), CASE_ON(admin_ring), CASE(admin_sizes), CASE_ON(admin_index_wrap),
		CASE_ON(identify), CASE_ON(log), CASE_ON(opcodes), CASE_ON(unused_bytes),
		CASE_ON(buffers), CASE_ON(contexts), CASE_ON(regions), CASE_ON(region_limits),
		CASE_ON(queue_pairs), CASE_ON(queue_limits), CASE_ON(join_checks),
		CASE_ON(groups), CASE_ON(events), CASE_ON(join_deadline), CASE_ON(no_isolation),
	};

	return run_both_ways("card: registers and admin queue", tests);
}
