// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a card does wrong on purpose: each fault does what
 * Documentation/emulator.rst says, to the commands it says, and to no others.
 */
#include <errno.h>

#include "selftests/emulator/card_host.h"

static struct bench *opened;

/* A card with faults such as "hostile=twice:get-log", up to a NULL */
static struct bench *open_faulty(const char *fault, ...)
{
	struct card_config config = { .vectors = HOST_VECTORS };
	char error[256];
	va_list more;

	va_start(more, fault);
	for (; fault; fault = va_arg(more, const char *)) {
		const char *equals = strchr(fault, '=');
		char option[32];

		snprintf(option, sizeof(option), "%.*s", (int)(equals - fault), fault);
		if (card_fault_add(&config, option, equals + 1, strlen(equals + 1), error,
				   sizeof(error)))
			fail_msg("%s", error);
	}
	va_end(more);
	opened = bench_open_config(&config, 0, 2);
	return opened;
}

static int close_it(void **state)
{
	(void)state;
	if (opened)
		bench_close(opened);
	opened = NULL;
	return 0;
}

static struct optinc_admin_cmd identify_command(struct bench *b)
{
	return (struct optinc_admin_cmd) {
		.opcode = OPTINC_ADMIN_IDENTIFY,
		.addr = b->data_dma,
		.length = sizeof(struct optinc_hw_identify),
	};
}

/* Posts @cmd and takes what comes of it, in whatever state: how many completions */
static unsigned int completions(struct bench *b, struct optinc_admin_cmd cmd,
				struct optinc_admin_cqe *cqe)
{
	unsigned int n = 0;

	cmd.cmd_id = 7;
	admin_post(b, &cmd);
	steps(b, 10);
	while (admin_poll(b, cqe))
		n++;
	return n;
}

static void test_fail(void **state)
{
	struct bench *b = open_faulty("fail-admin=get-log:4:1:2", "fail-admin=0x2:0x7fff:2:2",
				      "fail-admin=identify", NULL);
	struct optinc_hw_port_log *log = (void *)b->data;

	(void)state;
	bench_enable(b);
	assert_int_equal(admin(b, log_command(b)), OPTINC_AST_SUCCESS);
	memset(b->data, 0, sizeof(*log));
	assert_int_equal(admin(b, log_command(b)), OPTINC_AST_LIMIT);
	/* not executed */
	assert_int_equal(log->device_ns, 0);
	/* of two, the first; then what is left of the second, after a reset too */
	assert_int_equal(admin(b, log_command(b)), OPTINC_AST_LIMIT);
	bench_reset(b);
	bench_enable(b);
	assert_int_equal(admin(b, log_command(b)), 0x7fff);
	assert_int_equal(admin(b, log_command(b)), OPTINC_AST_SUCCESS);
	assert_int_not_equal(log->device_ns, 0);
	assert_int_equal(admin(b, identify_command(b)), OPTINC_AST_INTERNAL);
	assert_int_equal(admin(b, identify_command(b)), OPTINC_AST_INTERNAL);
	make_context(b, 0);
}

static void test_silent(void **state)
{
	struct bench *b = open_faulty("silent-admin=ctx-create:0:1", NULL);
	struct optinc_admin_cmd create = { .opcode = OPTINC_ADMIN_CTX_CREATE };
	struct optinc_admin_cqe cqe;

	(void)state;
	bench_enable(b);
	assert_int_equal(completions(b, create, &cqe), 0);
	/* it was executed: the page is taken */
	assert_int_equal(admin(b, create), OPTINC_AST_BUSY);
	make_context(b, 1);
}

static void test_completions(void **state)
{
	struct bench *b = open_faulty("hostile=unknown-id:get-log:0:1", "hostile=short:get-log:1:1",
				      "hostile=wrong-head:get-log:2:1", "hostile=twice:get-log:3:1",
				      "hostile=wrong-phase:get-log:4:1", NULL);
	struct optinc_admin_cqe cqe;

	(void)state;
	bench_enable(b);
	assert_int_equal(completions(b, log_command(b), &cqe), 1);
	assert_int_equal(cqe.cmd_id, 0xfffe);
	assert_int_equal(cqe.sq_head, 1);
	assert_int_equal(completions(b, log_command(b), &cqe), 1);
	assert_int_equal(cqe.cmd_id, 7);
	assert_int_equal(cqe.result, 8);
	assert_int_equal(completions(b, log_command(b), &cqe), 1);
	assert_int_equal(cqe.sq_head, 0xffff - 3);
	assert_int_equal(completions(b, log_command(b), &cqe), 2);
	assert_int_equal(cqe.sq_head, 4);

	bench_reset(b);
	bench_enable(b);
	/* there, and nobody can see it, nor what follows */
	assert_int_equal(completions(b, log_command(b), &cqe), 0);
	assert_int_equal(b->cq[0].cmd_id, 7);
	assert_int_equal(b->cq[0].status, 0);
	assert_int_equal(completions(b, log_command(b), &cqe), 0);
	assert_int_equal(b->cq[1].status, 1);
}

static void test_handles(void **state)
{
	struct bench *b = open_faulty("hostile=same-handle:mr-reg:1:2",
				      "hostile=no-handle:mr-reg:3:1", NULL);
	struct optinc_admin_cqe cqe;
	struct region r[4];
	uint32_t ctx, first;
	unsigned int i;

	(void)state;
	bench_enable(b);
	ctx = make_context(b, 0);
	for (i = 0; i < 3; i++)
		make_region(b, ctx, &r[i], 64, 1, 0);
	assert_int_not_equal(r[0].handle, r[1].handle);
	assert_int_equal(r[1].handle, r[2].handle);
	first = r[1].handle;
	region_memory(b, &r[3], 64, 1);
	assert_int_equal(completions(b, mr_command(b, ctx, &r[3], 0), &cqe), 1);
	assert_int_equal(cqe.status >> 1, OPTINC_AST_SUCCESS);
	assert_int_equal(cqe.handle, 0);
	make_region(b, ctx, &r[3], 64, 1, 0);
	assert_int_not_equal(r[3].handle, first);
}

static void test_identity(void **state)
{
	struct bench *b = open_faulty("hostile=huge:identify:0:1", "hostile=strings:identify:1:1",
				      "hostile=garbage:identify:2:1", NULL);
	struct optinc_hw_identify id, huge, strings;
	unsigned int i;

	(void)state;
	bench_enable(b);
	assert_int_equal(admin(b, identify_command(b)), OPTINC_AST_SUCCESS);
	memcpy(&huge, b->data, sizeof(huge));
	assert_int_equal(admin(b, identify_command(b)), OPTINC_AST_SUCCESS);
	memcpy(&strings, b->data, sizeof(strings));
	assert_int_equal(admin(b, identify_command(b)), OPTINC_AST_SUCCESS);
	for (i = 0; i < sizeof(id); i++)
		assert_int_equal((unsigned char)b->data[i], 0xff);
	assert_int_equal(admin(b, identify_command(b)), OPTINC_AST_SUCCESS);
	memcpy(&id, b->data, sizeof(id));

	assert_true(huge.max_count == UINT64_MAX && huge.max_mr_bytes == UINT64_MAX);
	assert_true(huge.max_contexts == UINT32_MAX && huge.max_segments == UINT32_MAX);
	assert_true(huge.opcodes == UINT64_MAX);
	assert_int_equal(huge.lanes_up, UINT16_MAX);
	assert_int_equal(huge.lanes, id.lanes);
	assert_int_equal(huge.interface_version, id.interface_version);
	assert_string_equal(huge.serial, id.serial);

	assert_null(memchr(strings.serial, 0, sizeof(strings.serial) + sizeof(strings.model)));
	assert_int_equal(strings.max_count, id.max_count);
	assert_memory_equal(strings.__reserved, id.__reserved, sizeof(id.__reserved));
}

static void test_garbage_is_bounded(void **state)
{
	struct bench *b = open_faulty("hostile=garbage:get-log", NULL);
	struct optinc_admin_cmd cmd = log_command(b);

	(void)state;
	bench_enable(b);
	cmd.length = 24;
	b->data[23] = b->data[24] = 5;
	assert_int_equal(admin(b, cmd), OPTINC_AST_SUCCESS);
	assert_int_equal((unsigned char)b->data[23], 0xff);
	assert_int_equal(b->data[24], 5);
}

static void test_fatal(void **state)
{
	struct bench *b = open_faulty("hostile=fatal:get-log:0:1", NULL);
	struct optinc_admin_cqe cqe;

	(void)state;
	bench_enable(b);
	assert_int_equal(completions(b, log_command(b), &cqe), 0);
	assert_int_equal(reg(b, OPTINC_REG_STATUS) & OPTINC_STATUS_FATAL, OPTINC_STATUS_FATAL);
	bench_reset(b);
	bench_enable(b);
	assert_int_equal(admin(b, log_command(b)), OPTINC_AST_SUCCESS);
}

static void test_flood(void **state)
{
	struct bench *b = open_faulty("hostile=flood:async-event:1:2", NULL);
	uint16_t i;

	(void)state;
	bench_enable(b);
	for (i = 0; i < 4; i++) {
		post_event(b, i);
		poll_events(b);
		/* the second and the third time there is one, for who waited longest */
		assert_int_equal(b->events, i > 2 ? 2 : i);
		if (b->events)
			assert_int_equal(b->event.cmd_id, EVENT_ID + b->events - 1);
	}
	assert_int_equal(b->event.result, OPTINC_EVENT_LANE);
}

static void test_options(void **state)
{
	static const struct {
		const char *option, *text, *error;
	} wrong[] = {
		{ "fail-admin", "", "an admin command" },
		{ "fail-admin", "mr", "an admin command" },
		{ "fail-admin", "0x100", "an admin command" },
		{ "fail-admin", "mr-reg:0", "a status" },
		{ "fail-admin", "mr-reg:0x8000", "a status" },
		{ "fail-admin", "mr-reg:1:-1", "to skip" },
		{ "fail-admin", "mr-reg:1:1:0", "befalls" },
		{ "fail-admin", "mr-reg:1:1:1:1", "something follows" },
		{ "silent-admin", "mr-reg:", "to skip" },
		{ "silent-admin", "mr-reg:1:4294967296", "befalls" },
		{ "hostile", "mr-reg", "no such fault" },
		{ "hostile", "silent:mr-reg", "no such fault" },
		{ "hostile", "twice", "an admin command" },
		{ "hostile", "huge:mr-reg", "of identify" },
		{ "hostile", "twice:0000000000000000000000000000000000000000000000000000000000001",
		  "too long" },
	};
	struct card_config config = { .vectors = 1 };
	char error[256];
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(card_fault_add(&config, wrong[i].option, wrong[i].text,
						strlen(wrong[i].text), error, sizeof(error)),
				 -EINVAL);
		if (!strstr(error, wrong[i].error))
			fail_msg("%s=%s: %s", wrong[i].option, wrong[i].text, error);
	}
	assert_int_equal(config.fault_count, 0);
	for (i = 0; i < CARD_FAULTS; i++)
		assert_int_equal(card_fault_add(&config, "silent-admin", "0xffx", 4, error,
						sizeof(error)), 0);
	assert_int_equal(card_fault_add(&config, "silent-admin", "1", 1, error, sizeof(error)),
			 -EINVAL);
	assert_non_null(strstr(error, "too many"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_fail, close_it),
		cmocka_unit_test_teardown(test_silent, close_it),
		cmocka_unit_test_teardown(test_completions, close_it),
		cmocka_unit_test_teardown(test_handles, close_it),
		cmocka_unit_test_teardown(test_identity, close_it),
		cmocka_unit_test_teardown(test_garbage_is_bounded, close_it),
		cmocka_unit_test_teardown(test_fatal, close_it),
		cmocka_unit_test_teardown(test_flood, close_it),
		cmocka_unit_test_teardown(test_options, close_it),
	};

	return run_both_ways("card faults", tests);
}
