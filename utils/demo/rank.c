// SPDX-License-Identifier: GPL-2.0-or-later
/* One rank: open its card, join the others, reduce every tensor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "demo.h"

#define STALL_MARGIN_MS	20000

/* A rank's own buffers, large enough for any tensor. */
struct buffers {
	float *send;
	float *recv;
};

static bool buffers_alloc(const struct demo *demo, struct buffers *b)
{
	size_t i, most = 0;

	for (i = 0; i < demo->ntensors; i++) {
		if (demo->tensors[i].count > most)
			most = demo->tensors[i].count;
	}
	b->send = malloc(4 * most);
	b->recv = malloc(4 * most);
	return b->send && b->recv;
}

static int reduce(struct optinc_card *card, struct optinc_group *group, struct tensor *t,
		  unsigned int rank, const struct buffers *b)
{
	struct reduction *r = &t->reduction[rank];
	struct optinc_card_stats before, after;
	struct optinc_result result;
	uint64_t start;

	rank_progress();
	memcpy(b->send, t->input[rank], 4 * t->count);
	if (optinc_card_stats(card, &before, sizeof(before)))
		return rank_fail("counters of the card: %s", optinc_last_error());
	start = clock_ns();
	if (optinc_allreduce(group, b->send, b->recv, t->count, OPTINC_F32, OPTINC_MEAN, NULL,
			     &result))
		return rank_fail("%s: %s", t->name, optinc_last_error());
	r->time_ns = clock_ns() - start;
	if (optinc_card_stats(card, &after, sizeof(after)))
		return rank_fail("counters of the card: %s", optinc_last_error());

	memcpy(t->output[rank], b->recv, 4 * t->count);
	r->tx_bytes = after.tx_bytes - before.tx_bytes;
	r->rx_bytes = after.rx_bytes - before.rx_bytes;
	r->replays = after.replays - before.replays;
	r->wire_ns = result.wire_ns;
	r->nonfinite = result.nonfinite;
	r->done = 1;
	return 0;
}

static int join(const struct demo *demo, unsigned int rank, struct optinc_card *card,
		struct optinc_group **group)
{
	struct optinc_group_params params = {
		.rank = rank, .nranks = demo->nranks, .bits = DEMO_BITS,
		.deadline_ms = demo->deadline_ms,
	};

	memcpy(params.key, demo->key, sizeof(params.key));
	if (optinc_group_join(card, &params, sizeof(params), group))
		return rank_fail("join: %s", optinc_last_error());
	return 0;
}

static int reduce_all(const struct demo *demo, unsigned int rank, struct optinc_card *card,
		      struct optinc_group *group)
{
	struct buffers b = { NULL, NULL };
	struct optinc_why used;
	int ret = 0;
	size_t i;

	if (!buffers_alloc(demo, &b))
		ret = rank_fail("out of memory");
	for (i = 0; !ret && i < demo->ntensors; i++)
		ret = reduce(card, group, &demo->tensors[i], rank, &b);
	if (!ret && !optinc_why(card, &used) && !used.used)
		ret = rank_fail("the card was not used: %s", used.text);
	free(b.send);
	free(b.recv);
	return ret;
}

/* From processes that share no memory: every rank's results and figures to all. */
static int gather(const struct demo *demo, struct optinc_group *group, struct tensor *t)
{
	unsigned int k;

	for (k = 0; k < demo->nranks; k++) {
		rank_progress();
		if (optinc_broadcast(group, t->output[k], 4 * t->count, k, NULL, NULL) ||
		    optinc_broadcast(group, &t->reduction[k], sizeof(t->reduction[k]), k,
				     NULL, NULL))
			return rank_fail("gathering %s: %s", t->name, optinc_last_error());
	}
	return 0;
}

static int gather_all(const struct demo *demo, struct optinc_group *group)
{
	size_t i;
	int ret = 0;

	for (i = 0; !ret && i < demo->ntensors; i++)
		ret = gather(demo, group, &demo->tensors[i]);
	return ret;
}

static int run(unsigned int rank, void *arg)
{
	const struct demo *demo = arg;
	struct optinc_group *group = NULL;
	struct optinc_card *card;
	char uri[URI_BYTES];
	int ret;

	if (!uri_expand(demo->card, rank, demo->nranks, uri))
		return rank_fail("%s is no name of a card", demo->card);
	if (optinc_open(uri, &card))
		return rank_fail("%s: %s", uri, optinc_last_error());
	rank_progress();
	ret = join(demo, rank, card, &group);
	rank_progress();
	if (!ret)
		ret = reduce_all(demo, rank, card, group);
	if (!ret && demo->launch.launcher)
		ret = gather_all(demo, group);
	if (!ret && optinc_barrier(group, NULL, NULL))
		ret = rank_fail("the last barrier: %s", optinc_last_error());
	optinc_group_leave(group);
	optinc_close(card);
	return ret;
}

bool ranks_reduce(struct demo *demo, char why[WHY_BYTES])
{
	struct ranks ranks = {
		.first = demo->launch.rank,
		.count = demo->launch.launcher ? 1 : demo->nranks,
		.run = run, .arg = demo,
		.stall_ms = 2 * demo->deadline_ms + STALL_MARGIN_MS,
	};
	int ret = ranks_run(&ranks, why);

	if (ret > 0)
		why_set(why, "a rank ended with status %d", ret);
	return ret == 0;
}
