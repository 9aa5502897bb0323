// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The fabric by itself: several ports in this process, stepped by hand, so
 * that what comes before what is the test's choice.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "emulator/fabric/fabric.h"

#define RANKS		3
#define MARK		0xffffffff	/* no status */

static char fabric[32];
static struct fabric_port *port[RANKS];
static struct fabric_channel *channel[RANKS];
static struct fabric_request request[RANKS];

static void changed(void *arg)
{
	(void)arg;
}

static void complete(struct fabric_request *rq)
{
	(void)rq;
}

static struct fabric_config config_of(unsigned int p)
{
	struct fabric_config config = { .port = p, .ports = RANKS };

	snprintf(config.name, sizeof(config.name), "%s", fabric);
	return config;
}

static unsigned int deadline_ms = 5000;
static uint64_t delay_ns = 50000000;

static void attach(unsigned int p, bool pace)
{
	struct fabric_config config = config_of(p);
	char error[256];

	config.impair.pace = pace;
	config.impair.delay_ns = pace ? delay_ns : 0;
	assert_int_equal(fabric_attach(&config, &port[p], error, sizeof(error)), 0);
}

static int offer(unsigned int p, unsigned int nranks, unsigned int key,
		 struct fabric_channel **ch)
{
	struct fabric_join join = {
		.key = { 1, (uint8_t)key, (uint8_t)(key >> 8) }, .rank = p, .nranks = nranks,
		.bits = 8, .format = OPTINC_FORMAT_VERSION, .dtypes = 1, .deadline_ms = deadline_ms,
	};

	return fabric_join(port[p], &join, changed, NULL, ch);
}

static uint32_t state_of(struct fabric_channel *ch)
{
	struct fabric_state state;

	fabric_query(ch, &state);
	return state.state;
}

static void step_all(unsigned int n)
{
	for (unsigned int p = 0; p < n; p++)
		fabric_step(port[p]);
}

static void join_all(bool pace)
{
	for (unsigned int p = 0; p < RANKS; p++) {
		attach(p, pace);
		assert_int_equal(offer(p, RANKS, 1, &channel[p]), 0);
	}
	for (unsigned int p = 0; p < RANKS; p++)
		while (state_of(channel[p]) == OPTINC_GROUP_JOINING)
			step_all(RANKS);
	for (unsigned int p = 0; p < RANKS; p++)
		assert_int_equal(state_of(channel[p]), OPTINC_GROUP_READY);
}

static void submit(unsigned int p)
{
	request[p] = (struct fabric_request){
		.opcode = OPTINC_OP_BARRIER, .complete = complete, .status = MARK,
	};
	fabric_submit(channel[p], &request[p]);
}

static void detach_all(void)
{
	for (unsigned int p = 0; p < RANKS; p++)
		fabric_detach(port[p]);
}

/* Card interface 9.4: who leaves does not take back what it has completed. */
static void what_a_leaver_completed(void (*go)(struct fabric_channel *ch), bool pace)
{
	join_all(pace);
	for (unsigned int p = 0; p < RANKS; p++)
		submit(p);
	fabric_step(port[1]);		/* posts */
	fabric_step(port[1]);		/* waits for 0 and 2 */
	while (request[0].status == MARK) {
		fabric_step(port[2]);
		fabric_step(port[0]);
	}
	assert_int_equal(request[0].status, OPTINC_ST_SUCCESS);
	go(channel[0]);
	/* 1 hears that 0 is gone before it looks at the posts again */
	state_of(channel[1]);
	while (request[1].status == MARK || request[2].status == MARK)
		step_all(RANKS);
	assert_int_equal(request[1].status, OPTINC_ST_SUCCESS);
	assert_int_equal(request[2].status, OPTINC_ST_SUCCESS);
	submit(1);
	while (request[1].status == MARK)
		fabric_step(port[1]);
	assert_int_equal(request[1].peer, 0);
	detach_all();
}

static void leaving_takes_nothing_back(void **state)
{
	(void)state;
	what_a_leaver_completed(fabric_leave, false);
}

static void losing_takes_nothing_back(void **state)
{
	(void)state;
	what_a_leaver_completed(fabric_lose, false);
}

static void nor_while_a_completion_is_held_back(void **state)
{
	(void)state;
	what_a_leaver_completed(fabric_leave, true);
}

/* All ranks of a job are stopped, and go on later: that makes none of them late. */
static void who_does_not_look_blames_nobody(void **state)
{
	uint64_t since;

	(void)state;
	deadline_ms = 300;
	join_all(false);
	submit(0);
	for (unsigned int i = 0; i < 1000; i++)
		fabric_step(port[0]);
	usleep(600000);
	for (unsigned int i = 0; i < 1000; i++)
		fabric_step(port[0]);
	assert_int_equal(request[0].status, MARK);
	submit(1);
	submit(2);
	while (request[0].status == MARK)
		step_all(RANKS);
	assert_int_equal(request[0].status, OPTINC_ST_SUCCESS);

	/* who does look finds who is late */
	submit(0);
	since = fabric_clock_ns();
	while (request[0].status == MARK)
		fabric_step(port[0]);
	assert_int_equal(request[0].status, OPTINC_ST_TIMEOUT);
	assert_true(fabric_clock_ns() - since >= 300000000);
	deadline_ms = 5000;
	detach_all();
}

/* Modelled time passes, and no more than that, also where the card sleeps. */
static void held_back_no_longer_than_modelled(void **state)
{
	uint64_t since, shortest = UINT64_MAX;

	(void)state;
	delay_ns = 3000000;
	join_all(true);
	for (unsigned int i = 0; i < 20; i++) {
		since = fabric_clock_ns();
		for (unsigned int p = 0; p < RANKS; p++) {
			submit(p);
			fabric_step(port[p]);
		}
		while (request[0].status == MARK)
			if (!fabric_step(port[0]))
				fabric_sleep(port[0], 20000000, NULL, NULL);
		since = fabric_clock_ns() - since;
		assert_true(since >= delay_ns);
		if (since < shortest)
			shortest = since;
		while (request[1].status == MARK || request[2].status == MARK)
			step_all(RANKS);
	}
	assert_true(shortest < 2 * delay_ns);
	delay_ns = 50000000;
	detach_all();
}

/* A slow peer still reads what it was sent; the card has room for others meanwhile. */
static void full_card_has_room_while_peers_read(void **state)
{
	struct fabric_channel *ch[2][FABRIC_MAX_CHANNELS], *more;

	(void)state;
	attach(0, false);
	attach(1, false);
	attach(2, false);
	for (unsigned int i = 0; i < FABRIC_MAX_CHANNELS; i++) {
		assert_int_equal(offer(0, 2, 10 + i, &ch[0][i]), 0);
		assert_int_equal(offer(1, 2, 10 + i, &ch[1][i]), 0);
	}
	assert_int_equal(offer(0, 2, 99, &more), -ENOSPC);
	for (unsigned int i = 0; i < FABRIC_MAX_CHANNELS; i++) {
		while (state_of(ch[0][i]) == OPTINC_GROUP_JOINING ||
		       state_of(ch[1][i]) == OPTINC_GROUP_JOINING)
			step_all(2);
		channel[0] = ch[0][i];
		submit(0);
		fabric_step(port[0]);	/* rank 1 has not read this */
		fabric_leave(ch[0][i]);
	}
	for (unsigned int i = 0; i < FABRIC_MAX_CHANNELS; i++)
		assert_int_equal(offer(0, 2, 100 + i, &ch[0][i]), 0);
	assert_int_equal(offer(0, 2, 99, &more), -ENOSPC);
	detach_all();
}

/* Port @p in a process of its own: joins all that rank 0 offers, and dies. */
static pid_t spawn_victim(unsigned int p, unsigned int key)
{
	struct fabric_channel *ch[FABRIC_MAX_CHANNELS];
	pid_t pid = fork();

	if (pid)
		return pid;
	attach(p, false);
	for (unsigned int i = 0; i < FABRIC_MAX_CHANNELS; i++)
		if (offer(p, 2, key + i, &ch[i]))
			_exit(1);
	for (unsigned int i = 0; i < FABRIC_MAX_CHANNELS; i++)
		while (state_of(ch[i]) == OPTINC_GROUP_JOINING)
			fabric_step(port[p]);
	kill(getpid(), SIGKILL);
	_exit(1);
}

/* Who died reads no more, also when somebody else has its port. */
static void a_successor_does_not_read_on(void **state)
{
	struct fabric_channel *ch[FABRIC_MAX_CHANNELS];

	(void)state;
	attach(0, false);
	for (unsigned int p = 1; p < RANKS; p++) {
		pid_t pid = spawn_victim(p, 100 * p);

		for (unsigned int i = 0; i < FABRIC_MAX_CHANNELS; i++)
			assert_int_equal(offer(0, 2, 100 * p + i, &ch[i]), 0);
		for (unsigned int i = 0; i < FABRIC_MAX_CHANNELS; i++) {
			while (state_of(ch[i]) == OPTINC_GROUP_JOINING)
				fabric_step(port[0]);
			channel[0] = ch[i];
			submit(0);
			fabric_step(port[0]);
		}
		waitpid(pid, NULL, 0);
		attach(p, false);
		for (unsigned int i = 0; i < FABRIC_MAX_CHANNELS; i++)
			fabric_leave(ch[i]);
	}
	for (unsigned int i = 0; i < FABRIC_MAX_CHANNELS; i++)
		assert_int_equal(offer(0, 2, 1000 + i, &ch[i]), 0);
	detach_all();
}

/* 0: it was as it should be. */
static int in_another_pid_namespace(void)
{
	struct fabric_config config = config_of(1);
	struct fabric_port *taken;
	char error[256];
	int status;
	pid_t pid;

	if (unshare(CLONE_NEWPID))
		return 77;
	pid = fork();
	if (pid) {
		waitpid(pid, &status, 0);
		return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
	}
	if (fabric_attach(&config, &taken, error, sizeof(error)))
		_exit(1);
	config.port = 0;
	_exit(fabric_attach(&config, &taken, error, sizeof(error)) == -EBUSY ? 0 : 2);
}

/* Containers have PID namespaces of their own, and may share /dev/shm. */
static void other_pid_namespaces_are_alive(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	attach(0, false);
	assert_int_equal(offer(0, 2, 1, &channel[0]), 0);
	pid = fork();
	if (!pid)
		_exit(in_another_pid_namespace());
	waitpid(pid, &status, 0);
	assert_true(WIFEXITED(status));
	attach(1, false);
	assert_int_equal(offer(1, 2, 1, &channel[1]), 0);
	while (state_of(channel[0]) == OPTINC_GROUP_JOINING)
		step_all(2);
	/* the fabric was not made anew over there */
	assert_int_equal(state_of(channel[0]), OPTINC_GROUP_READY);
	fabric_detach(port[1]);
	fabric_detach(port[0]);
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leaving_takes_nothing_back),
		cmocka_unit_test(losing_takes_nothing_back),
		cmocka_unit_test(nor_while_a_completion_is_held_back),
		cmocka_unit_test(who_does_not_look_blames_nobody),
		cmocka_unit_test(held_back_no_longer_than_modelled),
		cmocka_unit_test(full_card_has_room_while_peers_read),
		cmocka_unit_test(a_successor_does_not_read_on),
		cmocka_unit_test(other_pid_namespaces_are_alive),
	};

	snprintf(fabric, sizeof(fabric), "test-fabric-%d", getpid());
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
