// SPDX-License-Identifier: GPL-2.0-or-later
/* Compare what the cards returned with the reference and with the float64 mean. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "demo.h"

double ring_bytes(unsigned int nranks)
{
	return 2.0 * (nranks - 1) / nranks * 4;
}

uint64_t tensor_tx_bytes(const struct demo *demo, const struct tensor *t)
{
	uint64_t most = 0;
	unsigned int rank;

	for (rank = 0; rank < demo->nranks; rank++) {
		if (t->reduction[rank].tx_bytes > most)
			most = t->reduction[rank].tx_bytes;
	}
	return most;
}

uint64_t tensor_rx_bytes(const struct demo *demo, const struct tensor *t)
{
	uint64_t most = 0;
	unsigned int rank;

	for (rank = 0; rank < demo->nranks; rank++) {
		if (t->reduction[rank].rx_bytes > most)
			most = t->reduction[rank].rx_bytes;
	}
	return most;
}

/* Bit for bit: 0 and -0 differ, NaNs compare. */
static size_t differing(const float *a, const float *b, size_t count)
{
	size_t i, n = 0;

	if (!memcmp(a, b, 4 * count))
		return 0;
	for (i = 0; i < count; i++)
		n += memcmp(&a[i], &b[i], 4) != 0;
	return n;
}

/* Blocks that hold a NaN or an infinity have no mean to be compared with. */
static double snr(const struct demo *demo, const struct tensor *t)
{
	double signal = 0, noise = 0;
	unsigned int rank;
	size_t i;

	for (i = 0; i < t->count; i++) {
		double mean = 0, error;

		if (isnan(t->output[0][i]))
			continue;
		for (rank = 0; rank < demo->nranks; rank++)
			mean += t->input[rank][i];
		mean /= demo->nranks;
		error = t->output[0][i] - mean;
		signal += mean * mean;
		noise += error * error;
	}
	return snr_db(signal, noise);
}

static uint32_t crc(const struct tensor *t)
{
	const uint8_t *bytes = (const uint8_t *)t->output[0];
	size_t left = 4 * t->count;
	uLong value = crc32(0, NULL, 0);

	while (left) {
		uInt n = left > 1u << 30 ? 1u << 30 : (uInt)left;

		value = crc32(value, bytes, n);
		bytes += n;
		left -= n;
	}
	return (uint32_t)value;
}

static bool verify(const struct demo *demo, struct tensor *t, char why[WHY_BYTES])
{
	struct optinc_result result = { 0 };
	float *expected = malloc(4 * t->count);
	unsigned int rank;

	if (!expected ||
	    optinc_reference_allreduce((const void *const *)t->input, expected, demo->nranks,
				       t->count, OPTINC_F32, OPTINC_MEAN, DEMO_BITS, 0, &result)) {
		why_set(why, "%s: the reference cannot be computed: %s", t->name,
			expected ? optinc_last_error() : "out of memory");
		free(expected);
		return false;
	}
	for (rank = 0; rank < demo->nranks; rank++) {
		size_t n = differing(t->output[rank], expected, t->count);

		if (n && !t->wrong)
			t->wrong_rank = rank;
		t->wrong += n;
	}
	free(expected);
	t->nonfinite = result.nonfinite;
	t->snr = snr(demo, t);
	t->crc = crc(t);
	return true;
}

/* The first thing that is not as it should be. */
static bool judge(const struct demo *demo, const struct tensor *t, char why[WHY_BYTES])
{
	unsigned int rank;

	if (t->wrong)
		return why_set(why,
			       "%s: rank %u differs from the reference, %zu of %zu elements do",
			       t->name, t->wrong_rank, t->wrong,
			       demo->nranks * t->count);
	for (rank = 0; rank < demo->nranks; rank++) {
		const struct reduction *r = &t->reduction[rank];

		if (r->nonfinite != t->nonfinite)
			return why_set(why,
				       "%s: rank %u counted %u nonfinite blocks, the reference %u",
				       t->name, rank, r->nonfinite, t->nonfinite);
		if (!r->tx_bytes)
			return why_set(why, "%s: the card of rank %u counted no bytes sent",
				       t->name, rank);
	}
	return true;
}

bool tensors_verify(struct demo *demo, char why[WHY_BYTES])
{
	bool good = true;
	size_t i;

	for (i = 0; i < demo->ntensors; i++) {
		if (!verify(demo, &demo->tensors[i], why))
			return false;
	}
	for (i = 0; good && i < demo->ntensors; i++)
		good = judge(demo, &demo->tensors[i], why);
	return good;
}
