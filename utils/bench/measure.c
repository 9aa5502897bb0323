// SPDX-License-Identifier: GPL-2.0-or-later
/* Time one size, and put the ranks' figures together. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/*
 * A sum in place grows with each call; the source is restored, untimed, before
 * it overflows: 16 ranks times 16 calls are 2^64, a float16 bears none.
 */
#define RESTORE_EVERY	16

static bool grows(const struct bench *b, enum place place)
{
	return place == IN_PLACE && b->collective == ALLREDUCE && b->redop == OPTINC_SUM;
}

static int barrier(struct rank *rank)
{
	rank_progress();
	if (optinc_barrier(rank->group, NULL, NULL))
		return rank_fail("barrier: %s", optinc_last_error());
	return 0;
}

static int call(struct rank *rank, const struct row *row, enum place place,
		struct optinc_result *result)
{
	const struct bench *b = rank->bench;
	int ret;

	rank_progress();
	switch (b->collective) {
	case ALLREDUCE:
		ret = optinc_allreduce(rank->group, place == IN_PLACE ? rank->recv : rank->send,
				       rank->recv, row->count, b->dtype, b->redop, NULL, result);
		break;
	case BROADCAST:
		ret = optinc_broadcast(rank->group, rank->recv, row->count, b->root, NULL,
				       result);
		break;
	default:
		ret = optinc_barrier(rank->group, NULL, result);
		break;
	}
	if (ret)
		return rank_fail("%llu bytes: %s", (unsigned long long)row->bytes,
				 optinc_last_error());
	return 0;
}

/* What the call needs in its buffers; what it must overwrite is filled with garbage. */
static void prepare(struct rank *rank, const struct row *row, enum place place)
{
	const struct bench *b = rank->bench;
	bool source = place == IN_PLACE;

	if (b->collective == BROADCAST)
		source = rank->rank == b->root;
	if (source)
		memcpy(rank->recv, rank->send, row->bytes);
	else
		memset(rank->recv, 0xa5, result_bytes(b, row->count));
}

static int restore(struct rank *rank, const struct row *row, enum place place, unsigned int i)
{
	unsigned int every = rank->bench->dtype == OPTINC_F16 ? 1 : RESTORE_EVERY;

	if (!grows(rank->bench, place) || i % every)
		return 0;
	prepare(rank, row, place);
	return barrier(rank);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The smallest latency that @percent of the calls do not exceed. */
static double percentile_us(const uint64_t *sorted, unsigned int n, unsigned int percent)
{
	return (double)sorted[((uint64_t)n * percent + 99) / 100 - 1] / 1000;
}

static int time_calls(struct rank *rank, struct row *row, enum place place)
{
	struct timing *t = &row->timing[place];
	unsigned int i, n = rank->bench->iters;
	uint64_t total = 0, start, end;

	prepare(rank, row, place);
	for (i = 0; i < rank->bench->warmup; i++) {
		if (restore(rank, row, place, i) || call(rank, row, place, NULL))
			return EXIT_FAIL;
	}
	if (barrier(rank))
		return EXIT_FAIL;
	start = clock_ns();
	for (i = 0; i < n; i++) {
		if (grows(rank->bench, place)) {
			if (restore(rank, row, place, i))
				return EXIT_FAIL;
			start = clock_ns();
		}
		if (call(rank, row, place, NULL))
			return EXIT_FAIL;
		end = clock_ns();
		rank->latency[i] = end - start;
		total += end - start;
		start = end;
	}
	qsort(rank->latency, n, sizeof(*rank->latency), compare);
	t->valid = true;
	t->time_us = (double)total / n / 1000;
	t->p50_us = percentile_us(rank->latency, n, 50);
	t->p99_us = percentile_us(rank->latency, n, 99);
	return barrier(rank);
}

/* One more call, whose bytes are counted and whose result is checked. */
static int check_call(struct rank *rank, struct row *row, enum place place)
{
	const struct bench *b = rank->bench;
	struct optinc_card_stats before, after;
	struct optinc_result result;

	prepare(rank, row, place);
	if (barrier(rank))
		return EXIT_FAIL;
	if (optinc_card_stats(rank->card, &before, sizeof(before)))
		return rank_fail("counters of the card: %s", optinc_last_error());
	if (call(rank, row, place, &result))
		return EXIT_FAIL;
	if (optinc_card_stats(rank->card, &after, sizeof(after)))
		return rank_fail("counters of the card: %s", optinc_last_error());
	row->tx_bytes = after.tx_bytes - before.tx_bytes;
	row->rx_bytes = after.rx_bytes - before.rx_bytes;
	row->wire_ns = result.wire_ns;
	if (b->collective == BARRIER || !b->check || (b->check == 1 && row->bytes > CHECK_LIMIT))
		return 0;
	return check_result(rank, row, place);
}

/* Broadcast and barrier have one form; results larger than sources do not fit in place. */
static bool possible(const struct bench *b, enum place place)
{
	if (b->collective == BARRIER)
		return place == OUT_OF_PLACE;
	if (b->collective == BROADCAST)
		return place == IN_PLACE;
	return place == OUT_OF_PLACE || result_bytes(b, 1024) <= data_bytes(b, 1024);
}

int measure_row(struct rank *rank, struct row *row)
{
	enum place place;

	data_fill(rank->bench, rank->rank, 0, row->count, rank->send);
	for (place = 0; place < PLACES; place++) {
		if (!possible(rank->bench, place))
			continue;
		if (time_calls(rank, row, place) || check_call(rank, row, place))
			return EXIT_FAIL;
	}
	return 0;
}

static int gather(struct rank *rank, const void *mine, size_t size, uint8_t *all)
{
	unsigned int k;

	memcpy(all + rank->rank * size, mine, size);
	for (k = 0; k < rank->nranks; k++) {
		rank_progress();
		if (optinc_broadcast(rank->group, all + k * size, size, k, NULL, NULL))
			return rank_fail("gathering results: %s", optinc_last_error());
	}
	return 0;
}

static void take_max(double *a, double b)
{
	*a = b > *a ? b : *a;
}

static void take_max_uint(uint64_t *a, uint64_t b)
{
	*a = b > *a ? b : *a;
}

int gather_row(struct rank *rank, struct row *row)
{
	struct row rows[OPTINC_MAX_RANKS];
	unsigned int k, place;

	if (gather(rank, row, sizeof(*row), (uint8_t *)rows))
		return EXIT_FAIL;
	*row = rows[0];
	for (k = 1; k < rank->nranks; k++) {
		for (place = 0; place < PLACES; place++) {
			struct timing *t = &row->timing[place];
			const struct timing *u = &rows[k].timing[place];

			take_max(&t->time_us, u->time_us);
			take_max(&t->p50_us, u->p50_us);
			take_max(&t->p99_us, u->p99_us);
			t->wrong += u->wrong;
		}
		take_max_uint(&row->tx_bytes, rows[k].tx_bytes);
		take_max_uint(&row->rx_bytes, rows[k].rx_bytes);
		take_max_uint(&row->wire_ns, rows[k].wire_ns);
	}
	return 0;
}

int gather_devices(struct rank *rank, struct device devices[OPTINC_MAX_RANKS])
{
	struct device mine = devices[rank->rank];

	return gather(rank, &mine, sizeof(mine), (uint8_t *)devices);
}
