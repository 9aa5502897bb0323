// SPDX-License-Identifier: GPL-2.0-or-later
/* A rank's life: card, group, buffers, all sizes, and back. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define ALIGN	4096

static int open_card(struct rank *rank)
{
	const struct bench *b = rank->bench;
	struct optinc_group_params params = {
		.rank = rank->rank, .nranks = rank->nranks, .bits = b->bits,
		.deadline_ms = b->deadline_ms,
	};
	char uri[URI_BYTES];

	if (!uri_expand(b->card, rank->rank, rank->nranks, uri))
		return rank_fail("%s is no name of a card", b->card);
	if (optinc_open(uri, &rank->card))
		return rank_fail("%s: %s", uri, optinc_last_error());
	rank_progress();
	memcpy(params.key, b->key, sizeof(params.key));
	if (optinc_group_join(rank->card, &params, sizeof(params), &rank->group))
		return rank_fail("join: %s", optinc_last_error());
	rank_progress();
	return 0;
}

static void *aligned(size_t bytes)
{
	void *p = NULL;

	return posix_memalign(&p, ALIGN, bytes ? bytes : 1) ? NULL : p;
}

/* The largest size, as source and as result. */
static void buffer_sizes(const struct bench *b, size_t *send, size_t *recv)
{
	uint64_t count = data_count(b, b->max_bytes);

	*send = data_bytes(b, count);
	*recv = result_bytes(b, count);
	if (*recv < *send)
		*recv = *send;
}

static int make_buffers(struct rank *rank)
{
	const struct bench *b = rank->bench;
	size_t send, recv;
	unsigned int k;

	buffer_sizes(b, &send, &recv);
	rank->send = aligned(send);
	rank->recv = aligned(recv);
	rank->latency = calloc(b->iters, sizeof(*rank->latency));
	rank->expected = aligned(4 * SLICE);
	if (!rank->send || !rank->recv || !rank->latency || !rank->expected)
		return rank_fail("out of memory: -e is too large");
	for (k = 0; k < rank->nranks; k++) {
		rank->slice[k] = aligned(4 * SLICE);
		if (!rank->slice[k])
			return rank_fail("out of memory");
	}
	if (b->unregistered || b->collective == BARRIER)
		return 0;
	if (optinc_mr_register(rank->card, rank->send, send, 0, &rank->send_mr) ||
	    optinc_mr_register(rank->card, rank->recv, recv, OPTINC_MR_WRITE, &rank->recv_mr))
		return rank_fail("registering %zu bytes: %s", send + recv, optinc_last_error());
	return 0;
}

static void free_all(struct rank *rank)
{
	unsigned int k;

	if (rank->recv_mr)
		optinc_mr_deregister(rank->recv_mr);
	if (rank->send_mr)
		optinc_mr_deregister(rank->send_mr);
	optinc_group_leave(rank->group);
	optinc_close(rank->card);
	for (k = 0; k < rank->nranks; k++)
		free(rank->slice[k]);
	free(rank->send);
	free(rank->recv);
	free(rank->latency);
	free(rank->expected);
}

static int describe(struct rank *rank, struct device *devices)
{
	struct device *mine = &devices[rank->rank];
	struct optinc_card_info info;

	if (optinc_card_info(rank->card, &info, sizeof(info)))
		return rank_fail("card: %s", optinc_last_error());
	if (data_count(rank->bench, rank->bench->max_bytes) > info.max_count)
		return rank_fail("-e is too large: the card takes at most %llu elements at once",
				 (unsigned long long)info.max_count);
	mine->pid = (uint32_t)getpid();
	mine->emulated = !!(info.features & OPTINC_FEAT_EMULATED);
	gethostname(mine->host, sizeof(mine->host) - 1);
	snprintf(mine->model, sizeof(mine->model), "%s", info.model);
	snprintf(mine->uri, sizeof(mine->uri), "%s", info.uri);
	return gather_devices(rank, devices);
}

/* The next size; 0 after the last. */
static uint64_t next_size(const struct bench *b, uint64_t bytes)
{
	if (b->collective == BARRIER)
		return 0;
	if (b->step_bytes)
		bytes = bytes > UINT64_MAX - b->step_bytes ? 0 : bytes + b->step_bytes;
	else
		bytes = bytes > UINT64_MAX / b->factor ? 0 : bytes * b->factor;
	return bytes <= b->max_bytes ? bytes : 0;
}

static int run_sizes(struct rank *rank, struct report *report, uint64_t *wrong)
{
	const struct bench *b = rank->bench;
	uint64_t bytes;

	for (bytes = b->min_bytes; bytes; bytes = next_size(b, bytes)) {
		struct row row = { 0 };

		row.count = b->collective == BARRIER ? 0 : data_count(b, bytes);
		row.bytes = data_bytes(b, row.count);
		if (measure_row(rank, &row) || gather_row(rank, &row))
			return EXIT_FAIL;
		*wrong += row.timing[OUT_OF_PLACE].wrong + row.timing[IN_PLACE].wrong;
		if (report)
			report_row(report, &row);
	}
	return 0;
}

static int run(struct rank *rank)
{
	struct device devices[OPTINC_MAX_RANKS] = { 0 };
	struct report *report = NULL;
	uint64_t wrong = 0;

	if (open_card(rank) || describe(rank, devices) || make_buffers(rank))
		return EXIT_FAIL;
	if (!rank->rank)
		report = report_new(rank->bench, devices);
	if (run_sizes(rank, report, &wrong)) {
		report_drop(report);
		return EXIT_FAIL;
	}
	if (report)
		report_end(report);
	return wrong ? EXIT_FAIL : 0;
}

int rank_main(unsigned int number, void *arg)
{
	struct bench *bench = arg;
	struct rank rank = {
		.bench = bench, .rank = number, .nranks = bench->launch.nranks,
	};
	int ret = run(&rank);

	/* Nobody leaves while another still wants something of it. */
	if (!ret && optinc_barrier(rank.group, NULL, NULL))
		ret = rank_fail("the last barrier: %s", optinc_last_error());
	free_all(&rank);
	return ret;
}
