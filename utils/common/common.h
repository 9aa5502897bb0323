/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the tools share: errors, units, output, ranks as processes, launchers.
 *
 * Exit statuses of all tools: 0, EXIT_FAIL for what went wrong, EXIT_USAGE for
 * a command line that makes no sense.
 */
#ifndef OPTINC_UTILS_COMMON_H
#define OPTINC_UTILS_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>

#include <optinc/optinc.h>

#define EXIT_FAIL	1
#define EXIT_USAGE	2

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define URI_BYTES	256
#define WHY_BYTES	768

/* ----------------------------------------------------------------- errors */

/* Set by each tool's main(); begins every line on stderr. */
extern const char *tool_name;

/* One line on stderr, "TOOL: ..."; returns EXIT_FAIL. */
int tool_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same, with where to read on; returns EXIT_USAGE. */
int usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Fill @why; returns false, so that a function can end with it. */
bool why_set(char why[WHY_BYTES], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* At the end: EXIT_FAIL and an error if stdout could not be written, else @status. */
int tool_finish(int status);

/* ------------------------------------------------------------------ units */

/* "64", "4K", "16MiB", "1G": powers of 1024. False if it is no size. */
bool units_parse_size(const char *text, uint64_t *value);
/* A plain decimal number within limits. */
bool units_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *value);
/* "1.5 MiB", "800 Gb/s", "12.3 us": three or four digits and a unit. */
const char *units_bytes(uint64_t bytes, char *text, size_t size);
const char *units_mbps(uint64_t mbps, char *text, size_t size);
const char *units_ns(uint64_t ns, char *text, size_t size);

/* ----------------------------------------------------------------- output */

enum output {
	OUTPUT_TEXT,
	OUTPUT_JSON,
};

/* "text" or "json". */
bool output_parse(const char *text, enum output *output);
/* Print an object and drop it. */
void output_json(struct json_object *object);
/* Members of an object. */
void json_add_string(struct json_object *object, const char *name, const char *value);
void json_add_uint(struct json_object *object, const char *name, uint64_t value);
void json_add_bool(struct json_object *object, const char *name, bool value);
/* NaN and infinities become null: JSON has none. */
void json_add_double(struct json_object *object, const char *name, double value);

/* ------------------------------------------------------------------ cards */

/* @template with %r as rank, %n as number of ranks, %% as %; false if it does not fit. */
bool uri_expand(const char *template, unsigned int rank, unsigned int nranks,
		char uri[URI_BYTES]);
/* Does the template tell ranks apart, or name the same card for all? */
bool uri_has_rank(const char *template);
bool uri_emulated(const char *uri);
/* "f32" or the names that other tools give it: "float", "half", "bfloat16", "int8" ... */
bool dtype_parse(const char *text, enum optinc_dtype *dtype);
bool redop_parse(const char *text, enum optinc_redop *redop);
/* 10 log10(signal / noise): +inf without noise, NaN without either. */
double snr_db(double signal, double noise);
uint64_t clock_ns(void);

/* -------------------------------------------------------------- launchers */

/**
 * struct launch - this process's place among those that a launcher started
 * @launcher: name for messages, NULL when there is none
 */
struct launch {
	const char *launcher;
	unsigned int rank;
	unsigned int nranks;
};

/*
 * Look into the environment. A launcher of one process counts as none. False,
 * with a sentence in @why, when what it says makes no sense.
 */
bool launch_detect(struct launch *launch, char why[WHY_BYTES]);
/*
 * The group's key: @text, or $OPTINC_KEY when that is NULL; without a launcher
 * a fresh one will do. -1 to go on, else the exit status.
 */
int launch_key(const struct launch *launch, const char *text, uint8_t key[OPTINC_KEY_BYTES]);
/*
 * Template of an emulated fabric that @prefix, and this process or the key of
 * a launcher's ranks, tell from others.
 */
void launch_emulated(const struct launch *launch, const char *prefix,
		     const uint8_t key[OPTINC_KEY_BYTES], char card[URI_BYTES]);
/* Does @card name a card for each rank? -1 to go on, else the exit status. */
int launch_check_card(const struct launch *launch, const char *card);

/* ------------------------------------------------------------------ ranks */

/**
 * struct ranks - ranks as child processes
 * @first: rank of the first one
 * @count: how many
 * @run: what each does; returns its exit status, after rank_fail() if it is not 0
 * @arg: for @run
 * @stall_ms: a rank that has not called rank_progress() for so long is given up
 */
struct ranks {
	unsigned int first;
	unsigned int count;
	int (*run)(unsigned int rank, void *arg);
	void *arg;
	unsigned int stall_ms;
};

/*
 * Fork the ranks and wait for all. 0, the exit status of a rank that just returned
 * one, or -1 with a sentence in @why: when one rank fails or dies the others are ended.
 */
int ranks_run(const struct ranks *ranks, char why[WHY_BYTES]);
/* In a rank: still alive. */
void rank_progress(void);
/* In a rank: why it fails; returns EXIT_FAIL. The first sentence is kept. */
int rank_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Zeroed memory that parent and ranks share; NULL if there is none. */
void *ranks_shared(size_t bytes);

#endif /* OPTINC_UTILS_COMMON_H */
