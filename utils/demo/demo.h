/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * optinc-demo: average gradients that lie in files, on as many cards as there
 * are ranks, and show what that cost and how exact it is. The ranks are processes
 * of this command, or a launcher has started them, and this is one of them.
 */
#ifndef OPTINC_UTILS_DEMO_H
#define OPTINC_UTILS_DEMO_H

#include "../common/common.h"

#define DEMO_BITS	8
#define NAME_BYTES	96

/* What a rank saw of its card while it reduced one tensor. Shared memory. */
struct reduction {
	uint64_t tx_bytes;
	uint64_t rx_bytes;
	uint64_t replays;
	uint64_t wire_ns;
	uint64_t time_ns;
	uint32_t nonfinite;
	uint32_t done;
};

/**
 * struct tensor - one tensor's gradients, results and verdict
 * @input: per rank, as read from its file
 * @output: per rank, shared with the processes of this command
 * @reduction: per rank, likewise
 * @wrong: elements that differ from the reference, on all ranks together
 * @wrong_rank: the first rank that has such
 * @nonfinite: blocks with a NaN or an infinity, as the reference counts them
 * @snr: of the result against the mean in float64, dB
 * @crc: CRC-32 of rank 0's result
 */
struct tensor {
	char name[NAME_BYTES];
	size_t count;
	float *input[OPTINC_MAX_RANKS];
	float *output[OPTINC_MAX_RANKS];
	struct reduction *reduction;

	size_t wrong;
	unsigned int wrong_rank;
	uint32_t nonfinite;
	double snr;
	uint32_t crc;
};

struct demo {
	const char *directory;
	const char *card;	/* URI template */
	const char *write;	/* directory for results, or NULL */
	enum output output;
	unsigned int deadline_ms;
	uint8_t key[OPTINC_KEY_BYTES];
	struct launch launch;
	char default_card[URI_BYTES];

	unsigned int nranks;
	size_t ntensors;
	struct tensor *tensors;	/* by name */
};

/* These return false with a sentence in @why. */
bool tensors_load(struct demo *demo, char why[WHY_BYTES]);
bool tensors_write(const struct demo *demo, char why[WHY_BYTES]);
bool ranks_reduce(struct demo *demo, char why[WHY_BYTES]);
bool tensors_verify(struct demo *demo, char why[WHY_BYTES]);

void tensors_free(struct demo *demo);

/* Of a tensor: the largest over the ranks. */
uint64_t tensor_tx_bytes(const struct demo *demo, const struct tensor *tensor);
uint64_t tensor_rx_bytes(const struct demo *demo, const struct tensor *tensor);
/* Bytes that a rank sends for an element in a ring all-reduce of float32. */
double ring_bytes(unsigned int nranks);

void report_begin(const struct demo *demo);
void report_tensors(const struct demo *demo);
/* @why is NULL for a pass; returns the exit status. */
int report_end(const struct demo *demo, const char *why);

#endif /* OPTINC_UTILS_DEMO_H */
