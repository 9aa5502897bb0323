/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * optinc-bench: how fast collectives are, and whether their bits are right.
 *
 * Flags and columns are those of nccl-tests where both have them.
 */
#ifndef OPTINC_UTILS_BENCH_H
#define OPTINC_UTILS_BENCH_H

#include "../common/common.h"

#define CHECK_LIMIT	(16u << 20)	/* bytes; larger results only with -c 2 */
#define SLICE		65536u		/* elements that are checked at a time */

enum collective {
	ALLREDUCE,
	BROADCAST,
	BARRIER,
};

enum place {
	OUT_OF_PLACE,
	IN_PLACE,
	PLACES
};

/**
 * struct bench - what the command line asks for
 * @step_bytes: added from size to size; 0: multiply by @factor instead
 * @check: 0 never, 1 up to CHECK_LIMIT, 2 always
 * @ranks: that this process starts; 0 when a launcher has started them
 * @place: this process's place among @launch.nranks, also without a launcher
 */
struct bench {
	uint64_t min_bytes, max_bytes, step_bytes, factor;
	unsigned int iters, warmup, check;
	enum collective collective;
	enum optinc_dtype dtype;
	enum optinc_redop redop;
	unsigned int bits, root;
	unsigned int ranks;
	struct launch launch;
	const char *card;		/* URI template */
	char default_card[URI_BYTES];
	uint8_t key[OPTINC_KEY_BYTES];
	unsigned int deadline_ms;
	uint64_t seed;
	bool unregistered;
	enum output output;
};

/* One way of doing it: the largest of the ranks' figures, and all their errors. */
struct timing {
	bool valid;
	bool checked;
	uint64_t wrong;
	double time_us;			/* of one call, mean over the calls */
	double p50_us, p99_us;
};

/* One size. */
struct row {
	uint64_t bytes;
	uint64_t count;
	struct timing timing[PLACES];
	uint64_t tx_bytes, rx_bytes;	/* of one call */
	uint64_t wire_ns;
	double signal, noise;		/* against the mean or sum in float64 */
};

/* A rank's card, for the header. */
struct device {
	uint32_t pid;
	uint32_t emulated;
	char host[64];
	char model[32];
	char uri[128];
};

/**
 * struct rank - a rank at work
 * @send: source; @recv: result, and both of them in place
 * @slice: inputs of all ranks, expected result: SLICE elements each
 * @latency: of each timed call, ns
 */
struct rank {
	const struct bench *bench;
	unsigned int rank, nranks;
	struct optinc_card *card;
	struct optinc_group *group;
	void *send, *recv;
	struct optinc_mr *send_mr, *recv_mr;
	void *slice[OPTINC_MAX_RANKS];
	void *expected;
	uint64_t *latency;
};

/* options.c: -1 to go on, else the exit status */
int bench_parse(struct bench *bench, int argc, char **argv);

/* data.c: what rank @rank sends, elements @first to @first + @count; @first is a multiple of 64 */
void data_fill(const struct bench *bench, unsigned int rank, uint64_t first, uint64_t count,
	       void *data);
/* Element @i of an array as a number: @bytes is of a result that is an integer. */
double data_float(const void *data, enum optinc_dtype dtype, uint64_t i);
double data_integer(const void *data, size_t bytes, uint64_t i);
uint64_t data_count(const struct bench *bench, uint64_t bytes);
size_t data_bytes(const struct bench *bench, uint64_t count);
size_t result_bytes(const struct bench *bench, uint64_t count);
bool is_float(enum optinc_dtype dtype);

/* check.c: compare @rank->recv with what it must be; a collective call. 0 or exit status */
int check_result(struct rank *rank, struct row *row, enum place place);

/* measure.c: 0 or exit status */
int measure_row(struct rank *rank, struct row *row);
/* Combine the ranks' rows; every rank gets the same. */
int gather_row(struct rank *rank, struct row *row);
int gather_devices(struct rank *rank, struct device devices[OPTINC_MAX_RANKS]);

/* rank.c: a rank's life, for ranks_run() */
int rank_main(unsigned int rank, void *bench);

/* report.c: only rank 0 calls these */
struct report;
void report_header(const struct bench *bench);
struct report *report_new(const struct bench *bench, const struct device *devices);
void report_row(struct report *report, const struct row *row);
/* One of these ends it: the last lines, or nothing more because of a failure. */
void report_end(struct report *report);
void report_drop(struct report *report);

#endif /* OPTINC_UTILS_BENCH_H */
