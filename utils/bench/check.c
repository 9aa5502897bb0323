// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Is the result right? Bit for bit against the reference, and how far from the
 * mean or sum in float64.
 *
 * A request may be computed in slices: blocks of 256 do not know each other.
 * All ranks check alike, and meet in a barrier after each slice, so that none waits
 * for another longer than the group's deadline allows however slow the reference is.
 */
#include <math.h>
#include <string.h>

#include "bench.h"

static uint64_t differing(const uint8_t *a, const uint8_t *b, size_t elements, size_t bytes)
{
	uint64_t wrong = 0;
	size_t i;

	if (!memcmp(a, b, elements * bytes))
		return 0;
	for (i = 0; i < elements; i++)
		wrong += memcmp(a + i * bytes, b + i * bytes, bytes) != 0;
	return wrong;
}

static double input(const struct rank *rank, unsigned int k, uint64_t i)
{
	enum optinc_dtype dtype = rank->bench->dtype;

	if (is_float(dtype))
		return data_float(rank->slice[k], dtype, i);
	return data_integer(rank->slice[k], optinc_data_bytes(1, dtype), i);
}

/* @result is the slice as the card returned it. */
static void add_noise(const struct rank *rank, const void *result, uint64_t count,
		      struct row *row)
{
	const struct bench *b = rank->bench;
	size_t bytes = result_bytes(b, 1);
	unsigned int k;
	uint64_t i;

	for (i = 0; i < count; i++) {
		double exact = 0, got;

		for (k = 0; k < rank->nranks; k++)
			exact += input(rank, k, i);
		if (b->redop == OPTINC_MEAN)
			exact /= rank->nranks;
		got = is_float(b->dtype) ? data_float(result, b->dtype, i) :
					   data_integer(result, bytes, i);
		row->signal += exact * exact;
		row->noise += (got - exact) * (got - exact);
	}
}

/* Fill rank->expected; inputs stay in rank->slice. */
static int expect(struct rank *rank, uint64_t first, uint64_t count)
{
	const struct bench *b = rank->bench;
	unsigned int k;

	if (b->collective == BROADCAST) {
		data_fill(b, b->root, first, count, rank->expected);
		return 0;
	}
	for (k = 0; k < rank->nranks; k++)
		data_fill(b, k, first, count, rank->slice[k]);
	if (optinc_reference_allreduce((const void *const *)rank->slice, rank->expected,
				       rank->nranks, count, b->dtype, b->redop, b->bits, 0, NULL))
		return rank_fail("reference: there is no %s of %s with %u bits",
				 optinc_redop_name(b->redop), optinc_dtype_name(b->dtype),
				 b->bits);
	return 0;
}

int check_result(struct rank *rank, struct row *row, enum place place)
{
	const struct bench *b = rank->bench;
	/* The figures of accuracy are those of one call. */
	bool accuracy = b->collective == ALLREDUCE && b->redop != OPTINC_VOTE &&
			(place == OUT_OF_PLACE || !row->timing[OUT_OF_PLACE].valid);
	uint64_t first;

	for (first = 0; first < row->count; first += SLICE) {
		uint64_t count = row->count - first < SLICE ? row->count - first : SLICE;
		const uint8_t *result = (const uint8_t *)rank->recv + result_bytes(b, first);

		rank_progress();
		if (expect(rank, first, count))
			return EXIT_FAIL;
		row->timing[place].wrong += differing(result, rank->expected, count,
						      result_bytes(b, 1));
		if (accuracy)
			add_noise(rank, result, count, row);
		if (optinc_barrier(rank->group, NULL, NULL))
			return rank_fail("barrier: %s", optinc_last_error());
	}
	row->timing[place].checked = true;
	return 0;
}
