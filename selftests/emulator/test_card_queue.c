// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Queue pairs of the card: rings, credit, doorbells, arming, broken rings,
 * and doorbells from many threads. Section 7 of card-interface.rst.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "selftests/emulator/card_host.h"

struct fixture {
	struct bench *b;
	uint32_t ctx;
	struct queue q;
};

#define VECTOR	3

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->b = bench_open(0, 2);
	bench_enable(f->b);
	f->ctx = make_context(f->b, 5);
	make_queue(f->b, f->ctx, &f->q, 5, 8, 16, VECTOR);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	bench_close(f->b);
	free(f);
	return 0;
}

static struct optinc_sqe nop(uint16_t cmd_id)
{
	return (struct optinc_sqe) { .cmd_id = cmd_id, .tag = 0x5a000000u | cmd_id };
}

static void put_nop(struct queue *q, uint16_t cmd_id)
{
	struct optinc_sqe sqe = nop(cmd_id);

	push(q, &sqe);
}

static void expect_nop(struct queue *q, uint16_t cmd_id)
{
	struct optinc_cqe cqe;

	assert_true(reap(q, &cqe));
	assert_int_equal(cqe.status >> 1, OPTINC_ST_SUCCESS);
	assert_int_equal(cqe.cmd_id, cmd_id);
	assert_int_equal(cqe.tag, 0x5a000000u | cmd_id);
	assert_int_equal(cqe.wire_ns, 0);
}

static uint32_t dropped(struct bench *b)
{
	return reg(b, OPTINC_REG_DB_DROPPED);
}

/* CI-QP-2, CI-QP-3, CI-TIM-2: passes of the rings, and of the index */
static void test_passes(void **state)
{
	struct fixture *f = *state;
	struct optinc_cqe cqe;
	unsigned int i, n, done = 0;

	for (i = 0; i < 65536 + 100; i += n) {
		n = 1 + i % 8;
		for (unsigned int k = 0; k < n; k++)
			put_nop(&f->q, (uint16_t)(i + k));
		bell(&f->q, OPTINC_DB_SQ_TAIL, f->q.tail);
		card_step(f->b->card);
		for (unsigned int k = 0; k < n; k++) {
			assert_true(peek(&f->q, &cqe));
			done++;
			assert_int_equal(cqe.sq_head, (uint16_t)done);
			expect_nop(&f->q, (uint16_t)(i + k));
		}
		assert_false(peek(&f->q, &cqe));
		assert_false(card_busy(f->b->card));
	}
	assert_int_equal(dropped(f->b), 0);
	assert_int_equal(f->b->host.interrupts[VECTOR], 0);	/* CI-INT-1 */
}

/* CI-QP-4, CI-DB-3, CI-DB-4, and that nobody has to tell what is consumed */
static void test_credit(void **state)
{
	struct fixture *f = *state;
	struct queue *q = &f->q;
	struct optinc_cqe cqe;
	unsigned int i;

	for (i = 0; i < 8; i++)
		put_nop(q, (uint16_t)i);
	/* more than the submission ring holds */
	bell(q, OPTINC_DB_SQ_TAIL, 9);
	assert_int_equal(dropped(f->b), 1);
	assert_false(card_busy(f->b->card));
	bell(q, OPTINC_DB_SQ_TAIL, 8);
	assert_int_equal(dropped(f->b), 1);
	assert_true(card_busy(f->b->card));
	/* the same again is no error; backwards, and a wrap ahead, are */
	bell(q, OPTINC_DB_SQ_TAIL, 8);
	assert_int_equal(dropped(f->b), 1);
	bell(q, OPTINC_DB_SQ_TAIL, 7);
	bell(q, OPTINC_DB_SQ_TAIL, 0x8008);
	assert_int_equal(dropped(f->b), 3);
	card_step(f->b->card);

	/* 8 done and not consumed: 8 more fit into the completion ring */
	for (i = 8; i < 16; i++)
		put_nop(q, (uint16_t)i);
	bell(q, OPTINC_DB_SQ_TAIL, 16);
	card_step(f->b->card);
	for (i = 0; i < 16; i++)
		expect_nop(q, (uint16_t)i);

	/* and it works on */
	put_nop(q, 99);
	bell(q, OPTINC_DB_SQ_TAIL, q->tail);
	card_step(f->b->card);
	expect_nop(q, 99);
	assert_false(peek(q, &cqe));
	assert_int_equal(dropped(f->b), 3);
}

/* CI-DB-1, -2, -6: whose doorbell is it? */
static void test_foreign_doorbells(void **state)
{
	struct fixture *f = *state;
	uint32_t other = make_context(f->b, 6);
	struct card *card = f->b->card;
	struct optinc_cqe cqe;
	struct queue q2;
	uint32_t value, n = 0;

	make_queue(f->b, other, &q2, 6, 8, 8, VECTOR);
	put_nop(&f->q, 1);
	value = OPTINC_DB_VALUE(f->q.id, 1);
	card_doorbell(card, 6, OPTINC_DB_SQ_TAIL, value);	/* another context's page */
	assert_int_equal(dropped(f->b), ++n);
	card_doorbell(card, 7, OPTINC_DB_SQ_TAIL, value);	/* nobody's */
	assert_int_equal(dropped(f->b), ++n);
	card_doorbell(card, CARD_CONTEXTS + 5, OPTINC_DB_SQ_TAIL, value);
	assert_int_equal(dropped(f->b), ++n);
	card_doorbell(card, 0x10005, OPTINC_DB_SQ_TAIL, value);
	assert_int_equal(dropped(f->b), ++n);
	card_doorbell(card, -1U, OPTINC_DB_SQ_TAIL, value);
	assert_int_equal(dropped(f->b), ++n);
	card_doorbell(card, 5, OPTINC_DB_SQ_TAIL, OPTINC_DB_VALUE(0, 1));
	assert_int_equal(dropped(f->b), ++n);
	card_doorbell(card, 5, OPTINC_DB_SQ_TAIL, OPTINC_DB_VALUE(q2.id, 1));
	assert_int_equal(dropped(f->b), ++n);
	card_doorbell(card, 5, OPTINC_DB_SQ_TAIL, OPTINC_DB_VALUE(f->q.id ^ 0x8000, 1));
	assert_int_equal(dropped(f->b), ++n);
	card_doorbell(card, 5, 0x08, value);
	card_doorbell(card, 5, 0x01, value);
	card_doorbell(card, 5, 0x1000, value);
	assert_int_equal(dropped(f->b), n += 3);
	card_doorbell(card, 6, OPTINC_DB_CQ_ARM, value);
	assert_int_equal(dropped(f->b), ++n);
	steps(f->b, 3);
	assert_false(peek(&f->q, &cqe));
	assert_false(peek(&q2, &cqe));
	assert_int_equal(f->b->host.interrupts[VECTOR], 0);

	card_doorbell(card, 5, OPTINC_DB_SQ_TAIL, value);
	assert_int_equal(dropped(f->b), n);
	card_step(card);
	expect_nop(&f->q, 1);
}

/* One that rings for a queue pair that is gone, and for its successor in the slot */
static void test_stale_doorbells(void **state)
{
	struct fixture *f = *state;
	uint32_t old = f->q.id, n = 0;
	struct queue q2;
	unsigned int i;

	/* rung and not yet obeyed when it goes */
	put_nop(&f->q, 1);
	bell(&f->q, OPTINC_DB_SQ_TAIL, 1);
	bell(&f->q, OPTINC_DB_CQ_ARM, 9);
	set_reg(f->b, OPTINC_REG_ADMIN_SQ_TAIL, f->b->tail);
	assert_int_equal(object_command(f->b, OPTINC_ADMIN_QP_DESTROY, f->ctx, old),
			 OPTINC_AST_SUCCESS);
	bell(&f->q, OPTINC_DB_SQ_TAIL, 2);
	assert_int_equal(dropped(f->b), ++n);

	/* all slots are used before the old one comes again, with another id */
	for (i = 0; i < CARD_CONTEXTS * 64; i++) {
		queue_memory(f->b, &q2, 5, 2, 2);
		assert_int_equal(admin(f->b, qp_command(f->ctx, &q2, VECTOR)),
				 OPTINC_AST_SUCCESS);
		q2.id = f->b->last.handle;
		assert_int_not_equal(q2.id, old);
		f->b->host.count -= 2;	/* the memory of this one is used again */
		free(f->b->host.pieces[f->b->host.count].memory);
		free(f->b->host.pieces[f->b->host.count + 1].memory);
		if (q2.id % 4096 == old % 4096)
			break;
		assert_int_equal(object_command(f->b, OPTINC_ADMIN_QP_DESTROY, f->ctx, q2.id),
				 OPTINC_AST_SUCCESS);
	}
	assert_int_equal(q2.id % 4096, old % 4096);
	card_doorbell(f->b->card, 5, OPTINC_DB_SQ_TAIL, OPTINC_DB_VALUE(old, 1));
	assert_int_equal(dropped(f->b), ++n);
	assert_false(card_busy(f->b->card));
}

/* CI-INT-2, -3 */
static void test_arm(void **state)
{
	struct fixture *f = *state;
	struct queue *q = &f->q;
	_Atomic unsigned int *interrupts = &f->b->host.interrupts[VECTOR];
	struct optinc_cqe cqe;

	bell(q, OPTINC_DB_CQ_ARM, 0);
	steps(f->b, 3);
	assert_int_equal(*interrupts, 0);
	put_nop(q, 1);
	put_nop(q, 2);
	bell(q, OPTINC_DB_SQ_TAIL, 2);
	card_step(f->b->card);
	assert_int_equal(*interrupts, 1);	/* two completions, one arming */
	put_nop(q, 3);
	bell(q, OPTINC_DB_SQ_TAIL, 3);
	card_step(f->b->card);
	assert_int_equal(*interrupts, 1);	/* used up */

	bell(q, OPTINC_DB_CQ_ARM, 2);		/* the tail is 3 */
	card_step(f->b->card);
	assert_int_equal(*interrupts, 2);
	bell(q, OPTINC_DB_CQ_ARM, 2);		/* the same index arms again */
	card_step(f->b->card);
	assert_int_equal(*interrupts, 3);
	bell(q, OPTINC_DB_CQ_ARM, 0x7777);	/* nonsense differs too */
	card_step(f->b->card);
	assert_int_equal(*interrupts, 4);

	bell(q, OPTINC_DB_CQ_ARM, 3);
	bell(q, OPTINC_DB_CQ_ARM, 3);
	steps(f->b, 3);
	assert_int_equal(*interrupts, 4);
	bell(q, OPTINC_DB_CQ_ARM, 1);		/* re-armed with what has passed */
	card_step(f->b->card);
	assert_int_equal(*interrupts, 5);
	while (reap(q, &cqe))
		;
	put_nop(q, 4);
	bell(q, OPTINC_DB_SQ_TAIL, q->tail);
	card_step(f->b->card);
	assert_int_equal(*interrupts, 5);
	assert_int_equal(dropped(f->b), 0);
}

/* CI-INT-5, and vector 0 shared with the admin queue */
static void test_vectors(void **state)
{
	struct fixture *f = *state;
	struct queue none, shared;
	unsigned int total = 0, i;

	make_queue(f->b, f->ctx, &none, 5, 2, 2, OPTINC_NO_VECTOR);
	make_queue(f->b, f->ctx, &shared, 5, 2, 2, 0);
	for (i = 0; i < HOST_VECTORS; i++)
		total += f->b->host.interrupts[i];
	bell(&none, OPTINC_DB_CQ_ARM, 1);
	put_nop(&none, 1);
	bell(&none, OPTINC_DB_SQ_TAIL, 1);
	steps(f->b, 3);
	for (i = 0; i < HOST_VECTORS; i++)
		total -= f->b->host.interrupts[i];
	assert_int_equal(total, 0);
	i = f->b->host.interrupts[0];
	bell(&shared, OPTINC_DB_CQ_ARM, 1);
	card_step(f->b->card);
	assert_int_equal(f->b->host.interrupts[0], i + 1);
}

/* CI-QP-8 */
static void test_broken_rings(void **state)
{
	struct fixture *f = *state;
	struct queue no_sq, no_cq;
	struct optinc_cqe cqe;

	make_queue(f->b, f->ctx, &no_sq, 5, 4, 4, VECTOR);
	make_queue(f->b, f->ctx, &no_cq, 5, 4, 4, VECTOR);
	put_nop(&no_cq, 1);
	host_unmap(&f->b->host, no_sq.sq_dma);
	host_unmap(&f->b->host, no_cq.cq_dma);
	bell(&no_sq, OPTINC_DB_SQ_TAIL, 1);
	bell(&no_cq, OPTINC_DB_SQ_TAIL, 1);
	steps(f->b, 10);
	assert_false(peek(&no_sq, &cqe));
	assert_false(card_busy(f->b->card));
	/* nothing more is taken from them, and others do not notice */
	bell(&no_sq, OPTINC_DB_SQ_TAIL, 2);
	put_nop(&f->q, 7);
	bell(&f->q, OPTINC_DB_SQ_TAIL, 1);
	steps(f->b, 3);
	expect_nop(&f->q, 7);
	assert_int_equal(reg(f->b, OPTINC_REG_STATUS), OPTINC_STATUS_READY);
	assert_int_equal(object_command(f->b, OPTINC_ADMIN_QP_DESTROY, f->ctx, no_sq.id),
			 OPTINC_AST_SUCCESS);
	assert_int_equal(object_command(f->b, OPTINC_ADMIN_QP_DESTROY, f->ctx, no_cq.id),
			 OPTINC_AST_SUCCESS);
}

/* CI-GEN-2: each reserved byte and unused field of a NOP */
static void test_reserved(void **state)
{
	struct fixture *f = *state;
	struct optinc_sqe sqe;
	unsigned int byte;
	uint32_t status;

	for (byte = 1; byte < 64; byte++) {
		bool free_bytes = byte == 2 || byte == 3 ||		/* cmd_id */
				  (byte >= 8 && byte < 12) ||		/* tag */
				  (byte >= 24 && byte < 48);		/* src, dst: ignored */

		sqe = nop((uint16_t)byte);
		((uint8_t *)&sqe)[byte] ^= 0x40;
		status = run(&f->q, &sqe, NULL);
		if (status != (free_bytes ? OPTINC_ST_SUCCESS : OPTINC_ST_INVALID_FIELD))
			fail_msg("byte %u: status %#x", byte, status);
	}
	for (byte = OPTINC_OPCODES; byte < 256; byte++) {
		sqe = nop((uint16_t)byte);
		sqe.opcode = (uint8_t)byte;
		sqe.flags = 0xff;	/* the opcode comes first */
		assert_int_equal(run(&f->q, &sqe, NULL), OPTINC_ST_INVALID_OPCODE);
	}
}

/* The entry is changed as soon as the card has read it: one read, one truth. */
static void spoil(struct host *host, uint64_t addr)
{
	struct queue *q = host->arg;

	if (addr >= q->sq_dma && addr < q->sq_dma + q->sq_entries * sizeof(*q->sq))
		memset(q->sq, 0xff, q->sq_entries * sizeof(*q->sq));
}

static void test_read_once(void **state)
{
	struct fixture *f = *state;
	bool mapped = host_mapped;
	uint64_t reads;

	/* a pointer leaves no place to do it in */
	host_mapped = false;
	put_nop(&f->q, 11);
	f->b->host.arg = &f->q;
	f->b->host.after_read = spoil;
	reads = f->b->host.reads;
	bell(&f->q, OPTINC_DB_SQ_TAIL, 1);
	steps(f->b, 3);
	assert_int_equal(f->b->host.reads, reads + 1);
	expect_nop(&f->q, 11);
	host_mapped = mapped;
}

/* Turns: a full ring does not hold up another queue pair for long. */
static void test_turns(void **state)
{
	struct fixture *f = *state;
	struct optinc_cqe cqe;
	struct queue big;
	unsigned int i;

	make_queue(f->b, f->ctx, &big, 5, 4096, 4096, VECTOR);
	for (i = 0; i < 4096; i++)
		put_nop(&big, (uint16_t)i);
	bell(&big, OPTINC_DB_SQ_TAIL, 4096);
	put_nop(&f->q, 1);
	bell(&f->q, OPTINC_DB_SQ_TAIL, 1);
	card_step(f->b->card);
	expect_nop(&f->q, 1);
	for (i = 0; i < 4096; i++) {
		while (!peek(&big, &cqe))
			card_step(f->b->card);
		expect_nop(&big, (uint16_t)i);
	}
}

/* Two threads ring, the test's thread steps. */
struct ringer {
	struct queue *q;
	_Atomic bool *stop;
	unsigned int rounds;
	pthread_t thread;
};

static void *ring_and_reap(void *arg)
{
	struct ringer *r = arg;
	struct optinc_cqe cqe;
	unsigned int i;

	for (i = 0; i < r->rounds && !atomic_load(r->stop); i++) {
		put_nop(r->q, (uint16_t)i);
		bell(r->q, OPTINC_DB_SQ_TAIL, r->q->tail);
		card_kick(r->q->b->card);
		while (!reap(r->q, &cqe)) {
			if (atomic_load(r->stop))
				return NULL;
			sched_yield();
		}
		if (cqe.cmd_id != (uint16_t)i)
			return NULL;
	}
	return i == r->rounds ? r : NULL;
}

static void test_threads(void **state)
{
	struct fixture *f = *state;
	struct queue other;
	_Atomic bool stop = false;
	struct ringer ringers[2] = { { &f->q, &stop, 20000, 0 }, { &other, &stop, 20000, 0 } };
	uint64_t until = fabric_clock_ns() + 60000000000ULL;
	void *result[2] = { NULL, NULL };
	int i, left = 2;

	make_queue(f->b, f->ctx, &other, 5, 4, 4, VECTOR);
	for (i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&ringers[i].thread, NULL, ring_and_reap,
						&ringers[i]), 0);
	while (left) {
		if (!card_step(f->b->card))
			card_sleep(f->b->card, 100000);
		if (fabric_clock_ns() > until)
			atomic_store(&stop, true);
		for (i = 0; i < 2; i++) {
			if (ringers[i].q && !pthread_tryjoin_np(ringers[i].thread, &result[i])) {
				ringers[i].q = NULL;
				left--;
			}
		}
	}
	assert_non_null(result[0]);
	assert_non_null(result[1]);
	assert_int_equal(dropped(f->b), 0);
}

/*
 * CI-INT-4: one thread consumes, arms and sleeps until the interrupt, with no
 * time-out to save it. The other submits at odd times and steps.
 */
struct sleeper {
	struct queue *q;
	unsigned int rounds;
	_Atomic unsigned int consumed;
};

static void *consume(void *arg)
{
	struct sleeper *s = arg;
	_Atomic unsigned int *interrupts = &s->q->b->host.interrupts[VECTOR];
	struct optinc_cqe cqe;
	unsigned int seen;

	while (atomic_load(&s->consumed) < s->rounds) {
		seen = atomic_load(interrupts);
		while (reap(s->q, &cqe))
			atomic_fetch_add(&s->consumed, 1);
		if (atomic_load(&s->consumed) >= s->rounds)
			break;
		bell(s->q, OPTINC_DB_CQ_ARM, s->q->head);
		card_kick(s->q->b->card);
		while (atomic_load(interrupts) == seen)
			sched_yield();
	}
	return NULL;
}

static void test_no_lost_wakeup(void **state)
{
	struct fixture *f = *state;
	struct sleeper sleeper = { .q = &f->q, .rounds = 20000 };
	uint64_t until = fabric_clock_ns() + 60000000000ULL;
	struct queue mine = f->q;	/* the submitter's view */
	unsigned int sent = 0, random = 1;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, consume, &sleeper), 0);
	while (atomic_load(&sleeper.consumed) < sleeper.rounds) {
		random = random * 1103515245 + 12345;
		if (sent < sleeper.rounds && sent - atomic_load(&sleeper.consumed) < 8 &&
		    random >> 16 & 1) {
			put_nop(&mine, (uint16_t)sent++);
			bell(&mine, OPTINC_DB_SQ_TAIL, mine.tail);
		}
		if (!card_step(f->b->card) && random >> 17 & 1)
			card_sleep(f->b->card, 50000);
		if (fabric_clock_ns() > until)
			fail_msg("a wake-up was lost after %u completions",
				 atomic_load(&sleeper.consumed));
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* A kick ends a sleep that is under way or about to begin. */
static void *kick_later(void *arg)
{
	struct timespec ts = { .tv_nsec = 3000000 };

	nanosleep(&ts, NULL);
	card_kick(arg);
	return NULL;
}

static void test_kick(void **state)
{
	struct fixture *f = *state;
	uint64_t begin, longest = 0;
	pthread_t thread;
	int i;

	card_kick(f->b->card);
	begin = fabric_clock_ns();
	card_sleep(f->b->card, 20000000);
	assert_true(fabric_clock_ns() - begin < 15000000);
	/* nor does it sleep on a doorbell or a command, kicked or not */
	put_nop(&f->q, 1);
	bell(&f->q, OPTINC_DB_SQ_TAIL, f->q.tail);
	begin = fabric_clock_ns();
	card_sleep(f->b->card, 20000000);
	assert_true(fabric_clock_ns() - begin < 15000000);
	card_step(f->b->card);
	set_reg(f->b, OPTINC_REG_CONTROL, 0);
	begin = fabric_clock_ns();
	card_sleep(f->b->card, 20000000);
	assert_true(fabric_clock_ns() - begin < 15000000);
	card_step(f->b->card);
	/* it is not kept for ever; a sleep may end early, but not each time */
	for (i = 0; i < 20; i++) {
		begin = fabric_clock_ns();
		card_sleep(f->b->card, 2000000);
		if (fabric_clock_ns() - begin > longest)
			longest = fabric_clock_ns() - begin;
	}
	assert_true(longest > 1000000);
	for (i = 0; i < 10; i++) {
		assert_int_equal(pthread_create(&thread, NULL, kick_later, f->b->card), 0);
		begin = fabric_clock_ns();
		card_sleep(f->b->card, 20000000);
		if (fabric_clock_ns() - begin < 15000000)
			i = 100;
		pthread_join(thread, NULL);
	}
	assert_true(i > 100);
}

int main(void)
{
#define CASE(name)	cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(passes), CASE(credit), CASE(foreign_doorbells), CASE(stale_doorbells),
		CASE(arm), CASE(vectors), CASE(broken_rings), CASE(reserved), CASE(read_once),
		CASE(turns), CASE(threads), CASE(no_lost_wakeup), CASE(kick),
	};

	return run_both_ways("card: queue pairs", tests);
}
