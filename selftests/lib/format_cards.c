// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * format_cards [SEED] - the cases of format_cases.h with what cards make of
 * them, in the text of format_write.h: what rank 0 got, after all ranks were
 * seen to have got the same. Nothing here knows what is right; judge the text
 * with format_check.py, or compare it with that of format_vectors.
 *
 * Ranks are threads with a card each, by default those of an emulated fabric.
 * OPTINC_TEST_CARDS is a URI with %d for the rank, and OPTINC_TEST_RANKS how
 * many such cards there are, by default 4. What the cards cannot do is left
 * out, groups that are too large for them included.
 *
 * In each case some ranks receive in place, and some have registered memory.
 */
#include <pthread.h>
#include <stdarg.h>
#include <unistd.h>

#include "format_write.h"

#define GUARD		64	/* bytes after a buffer that nobody may write to */
#define UNTOUCHED	0xa5
#define BUFFER_BYTES	(FORMAT_CASE_BYTES + GUARD)
#define MEMORY_BYTES	(2 * BUFFER_BYTES)

/**
 * struct rank - one rank and its card
 * @memory: a buffer to send from and one to receive in, not registered and
 *	registered
 * @output: where the result of the case lies
 * @error: what went wrong, or ""
 */
struct rank {
	unsigned int rank;
	pthread_t thread;
	struct optinc_card *card;
	struct optinc_mr *mr;
	struct optinc_group *group;
	unsigned char *memory[2];
	const unsigned char *output;
	struct optinc_result result;
	char error[512];
};

/* A case's result, kept until all are written in order. */
struct outcome {
	unsigned char *output;	/* NULL: the cards cannot do this */
	uint32_t nonfinite;
	uint32_t saturated;
};

static struct rank ranks[OPTINC_MAX_RANKS];
static struct outcome outcomes[FORMAT_CASES];
static struct optinc_group_params params;	/* but for the rank */
static struct format_case c;			/* what all ranks work on */
static char card_uri[160];

static void __attribute__((format(printf, 2, 3))) fail(struct rank *r, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(r->error, sizeof(r->error), fmt, args);
	va_end(args);
}

/* ------------------------------------------------- what each rank does */

static void open_card(struct rank *r)
{
	const char *mark = strstr(card_uri, "%d");
	char uri[176];

	snprintf(uri, sizeof(uri), "%.*s%u%s", (int)(mark - card_uri), card_uri, r->rank, mark + 2);
	if (optinc_open(uri, &r->card)) {
		fail(r, "%s: %s", uri, optinc_last_error());
		return;
	}
	r->memory[0] = malloc(MEMORY_BYTES);
	r->memory[1] = malloc(MEMORY_BYTES);
	if (!r->memory[0] || !r->memory[1])
		fail(r, "out of memory");
	else if (optinc_mr_register(r->card, r->memory[1], MEMORY_BYTES, OPTINC_MR_WRITE, &r->mr))
		fail(r, "memory: %s", optinc_last_error());
}

static void close_card(struct rank *r)
{
	if (optinc_mr_deregister(r->mr))
		fail(r, "memory: %s", optinc_last_error());
	optinc_close(r->card);
	free(r->memory[0]);
	free(r->memory[1]);
}

static void join(struct rank *r)
{
	struct optinc_group_params p = params;

	p.rank = r->rank;
	if (optinc_group_join(r->card, &p, sizeof(p), &r->group))
		fail(r, "join: %s", optinc_last_error());
}

static void leave(struct rank *r)
{
	optinc_group_leave(r->group);
}

static bool untouched(const unsigned char *guard)
{
	unsigned int i;

	for (i = 0; i < GUARD && guard[i] == UNTOUCHED; i++)
		;
	return i == GUARD;
}

static uint32_t saturated_codes(const void *data)
{
	const int16_t *words = data;
	const int8_t *bytes = data;
	uint32_t n = 0;
	size_t i;

	for (i = 0; c.dtype == OPTINC_I8 && i < c.count; i++)
		n += bytes[i] == INT8_MIN;
	for (i = 0; c.dtype == OPTINC_I16 && i < c.count; i++)
		n += words[i] == INT16_MIN;
	return n;
}

/* Four ways of memory; neighbours among ranks and among requests have others. */
static void reduce(struct rank *r)
{
	size_t bytes = optinc_data_bytes(c.count, c.dtype);
	size_t result_bytes = optinc_result_bytes(c.count, c.dtype, c.redop, c.flags);
	unsigned int way = (unsigned int)format_case_mix(c.number) + r->rank;
	unsigned char *send = r->memory[way & 1];
	unsigned char *other = send + BUFFER_BYTES;
	bool in_place = way & 2 && result_bytes == bytes;
	unsigned char *recv = in_place ? send : other;
	const struct optinc_options options = { .flags = c.flags, .tag = c.number };

	memset(send, UNTOUCHED, bytes + GUARD);
	memset(other, UNTOUCHED, result_bytes + GUARD);
	memcpy(send, c.inputs[r->rank], bytes);
	if (optinc_allreduce(r->group, send, recv, c.count, c.dtype, c.redop, &options, &r->result))
		fail(r, "%s", optinc_last_error());
	else if (!in_place && memcmp(send, c.inputs[r->rank], bytes))
		fail(r, "the source has changed");
	else if (!untouched(send + bytes) || !untouched(recv + result_bytes))
		fail(r, "bytes after %s were written to", in_place ? "the buffer" : "a buffer");
	else if (r->result.tag != c.number || r->result.error)
		fail(r, "the completion is that of request %u, error %d", r->result.tag,
		     r->result.error);
	else if (r->result.saturated != saturated_codes(c.inputs[r->rank]))
		fail(r, "%u codes saturated, says the card, but it was sent %u such",
		     r->result.saturated, saturated_codes(c.inputs[r->rank]));
	r->output = recv;
}

/* ------------------------------------------------------- all ranks at once */

static void (*work)(struct rank *r);

static void *rank_main(void *arg)
{
	work(arg);
	return NULL;
}

/* Calls of a group wait for its other ranks: each has a thread for them. */
static bool run(unsigned int nranks, const char *what, void (*each)(struct rank *r))
{
	bool good = true;
	unsigned int r;

	work = each;
	for (r = 0; r < nranks; r++) {
		if (pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r])) {
			perror("pthread_create");
			exit(1);
		}
	}
	for (r = 0; r < nranks; r++) {
		pthread_join(ranks[r].thread, NULL);
		if (!ranks[r].error[0])
			continue;
		fprintf(stderr, "%s: rank %u of %u: %s\n", what, r, nranks, ranks[r].error);
		good = false;
	}
	return good;
}

/* Keep rank 0's result if all ranks have it. */
static bool take(const char *what, struct outcome *outcome)
{
	size_t bytes = optinc_result_bytes(c.count, c.dtype, c.redop, c.flags), i;
	const struct rank *r;

	outcome->nonfinite = ranks[0].result.nonfinite;
	for (r = ranks; r < ranks + c.nranks; r++) {
		for (i = 0; i < bytes && r->output[i] == ranks[0].output[i]; i++)
			;
		if (i < bytes) {
			fprintf(stderr, "%s: byte %zu is %02x on rank %u, %02x on rank 0\n", what,
				i, r->output[i], r->rank, ranks[0].output[i]);
			return false;
		}
		if (r->result.nonfinite != outcome->nonfinite) {
			fprintf(stderr, "%s: %u blocks nonfinite on rank %u, %u on rank 0\n", what,
				r->result.nonfinite, r->rank, outcome->nonfinite);
			return false;
		}
		outcome->saturated += r->result.saturated;
	}
	outcome->output = malloc(bytes + 1);
	if (!outcome->output) {
		fprintf(stderr, "out of memory\n");
		return false;
	}
	memcpy(outcome->output, ranks[0].output, bytes);
	return true;
}

static bool can(const struct optinc_card_info *info)
{
	return info->code_bits >> c.bits & 1 && info->dtypes >> c.dtype & 1 &&
	       info->redops >> c.redop & 1;
}

/* All cases of one group. */
static bool run_group(unsigned int nranks, unsigned int bits, const struct optinc_card_info *info)
{
	bool joined = false;
	unsigned int i;
	char what[64];

	params = (struct optinc_group_params){ .nranks = nranks, .bits = bits };
	snprintf(what, sizeof(what), "group of %u bits", bits);
	for (i = 0; i < FORMAT_CASES; i++) {
		format_case_place(&c, i);
		if (c.nranks != nranks || c.bits != bits || !can(info))
			continue;
		if (!joined && (optinc_key_generate(params.key) || !run(nranks, what, join)))
			return false;
		joined = true;
		format_case_fill(&c);
		snprintf(what, sizeof(what), "case %u (%s)", i, c.name);
		if (!run(nranks, what, reduce) || !take(what, &outcomes[i]))
			return false;
	}
	return !joined || run(nranks, what, leave);
}

static bool run_groups(unsigned int cards)
{
	struct optinc_card_info info;
	unsigned int nranks;

	if (optinc_card_info(ranks[0].card, &info, sizeof(info))) {
		fprintf(stderr, "%s\n", optinc_last_error());
		return false;
	}
	for (nranks = 2; nranks <= cards; nranks++) {
		if (!run_group(nranks, 8, &info) || !run_group(nranks, 16, &info))
			return false;
	}
	return true;
}

/* How many cards there are; 0 if that is not clear. */
static unsigned int find_cards(void)
{
	const char *given = getenv("OPTINC_TEST_CARDS"), *text = getenv("OPTINC_TEST_RANKS");
	int n = text ? atoi(text) : given ? 4 : OPTINC_MAX_RANKS;

	if (given)
		snprintf(card_uri, sizeof(card_uri), "%s", given);
	else
		snprintf(card_uri, sizeof(card_uri), "emu:format-%d?port=%%d&ports=%d",
			 (int)getpid(), OPTINC_MAX_RANKS);
	if (!strstr(card_uri, "%d") || n < 2) {
		fprintf(stderr, "%d cards %s: at least 2 and %%d are wanted\n", n, card_uri);
		return 0;
	}
	return n < OPTINC_MAX_RANKS ? (unsigned int)n : OPTINC_MAX_RANKS;
}

static int write_all(void)
{
	unsigned int i, total = 0;

	format_write_begin();
	for (i = 0; i < FORMAT_CASES; i++) {
		if (!outcomes[i].output)
			continue;
		format_case_place(&c, i);
		format_case_fill(&c);
		format_write_case(&c, outcomes[i].output, outcomes[i].nonfinite,
				  outcomes[i].saturated);
		free(outcomes[i].output);
		total++;
	}
	return format_write_end(total);
}

int main(int argc, char **argv)
{
	unsigned int cards, r;
	uint64_t seed;

	if (!format_write_seed(argc, argv, &seed))
		return 2;
	format_case_init(&c, seed);
	cards = find_cards();
	if (!cards)
		return 2;
	for (r = 0; r < cards; r++)
		ranks[r].rank = r;
	if (!run(cards, "open", open_card) || !run_groups(cards) || !run(cards, "close", close_card))
		return 1;
	return write_all();
}
