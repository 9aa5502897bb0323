// SPDX-License-Identifier: GPL-2.0-or-later
/* The table, as nccl-tests prints it and a little wider; or JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

struct report {
	const struct bench *bench;
	struct json_object *json;
	struct json_object *rows;
	uint64_t wrong;
	double busbw;		/* sum over @timings */
	unsigned int timings;
};

static const char *const collective_names[] = { "allreduce", "broadcast", "barrier" };

static const char *type_name(const struct bench *b)
{
	if (b->collective == BARRIER)
		return "-";
	return optinc_dtype_name(b->collective == ALLREDUCE ? b->dtype : OPTINC_U8);
}

static const char *redop_name(const struct bench *b)
{
	return b->collective == ALLREDUCE ? optinc_redop_name(b->redop) : "-";
}

/* GB/s of data: bytes of the source over time. */
static double algbw(const struct row *row, enum place place)
{
	double us = row->timing[place].time_us;

	return us > 0 ? (double)row->bytes / us / 1000 : 0;
}

/* As nccl-tests defines it: what a ring would put on each link. */
static double busbw(const struct bench *b, const struct row *row, enum place place)
{
	double n = b->launch.nranks;
	double factor = b->collective == ALLREDUCE ? 2 * (n - 1) / n : 1;

	return algbw(row, place) * factor;
}

static enum place main_place(const struct row *row)
{
	return row->timing[OUT_OF_PLACE].valid ? OUT_OF_PLACE : IN_PLACE;
}

static double row_snr(const struct bench *b, const struct row *row)
{
	if (b->collective != ALLREDUCE || !row->timing[main_place(row)].checked)
		return NAN;
	return snr_db(row->signal, row->noise);
}

void report_header(const struct bench *b)
{
	if (b->output != OUTPUT_TEXT)
		return;
	if (uri_emulated(b->card))
		printf("# optinc-bench on emulated cards, times are those of this machine: %s\n",
		       b->card);
	else
		printf("# optinc-bench on cards: %s\n", b->card);
	printf("# collective %s ranks %u (%s) bits %u minBytes %llu maxBytes %llu ",
	       collective_names[b->collective], b->launch.nranks,
	       b->ranks ? "processes of this command" :
	       b->launch.launcher, b->bits, (unsigned long long)b->min_bytes,
	       (unsigned long long)b->max_bytes);
	if (b->step_bytes)
		printf("step: %llu(bytes) ", (unsigned long long)b->step_bytes);
	else
		printf("step: %llu(factor) ", (unsigned long long)b->factor);
	printf("warmup iters: %u iters: %u validation: %u registered: %s\n#\n", b->warmup,
	       b->iters, b->check, b->unregistered ? "no" : "yes");
	fflush(stdout);
}

static void print_columns(void)
{
	printf("#\n# %10s %12s %5s %5s  %35s  %35s  %s\n", "", "", "", "",
	       "out-of-place           ", "in-place             ",
	       "one call, worst rank");
	printf("# %10s %12s %5s %5s  %10s %7s %7s %8s  %10s %7s %7s %8s  %9s %9s %8s %8s %7s %9s\n",
	       "size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong", "time",
	       "algbw", "busbw", "#wrong", "p50", "p99", "sent", "received", "SNR", "wire");
	printf("# %10s %12s %5s %5s  %10s %7s %7s %8s  %10s %7s %7s %8s  %9s %9s %8s %8s %7s %9s\n",
	       "(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)",
	       "(GB/s)", "", "(us)", "(us)", "(B/elem)", "(B/elem)", "(dB)", "(us)");
}

static void print_devices(const struct bench *b, const struct device *devices)
{
	unsigned int k;

	printf("# Using cards\n");
	for (k = 0; k < b->launch.nranks; k++) {
		const struct device *d = &devices[k];

		printf("#  Rank %2u Pid %6u on %s: %s%s, %s\n", k, d->pid, d->host, d->model,
		       d->emulated && !strstr(d->model, "emulated") ? " (emulated)" : "", d->uri);
	}
}

static struct json_object *devices_json(const struct bench *b, const struct device *devices)
{
	struct json_object *array = json_object_new_array();
	unsigned int k;

	for (k = 0; k < b->launch.nranks; k++) {
		struct json_object *o = json_object_new_object();

		json_add_uint(o, "rank", k);
		json_add_uint(o, "pid", devices[k].pid);
		json_add_string(o, "host", devices[k].host);
		json_add_string(o, "model", devices[k].model);
		json_add_bool(o, "emulated", devices[k].emulated);
		json_add_string(o, "uri", devices[k].uri);
		json_object_array_add(array, o);
	}
	return array;
}

static void begin_json(struct report *r, const struct device *devices)
{
	const struct bench *b = r->bench;

	r->json = json_object_new_object();
	r->rows = json_object_new_array();
	json_add_string(r->json, "collective", collective_names[b->collective]);
	json_add_string(r->json, "card", b->card);
	json_add_bool(r->json, "emulated", devices[0].emulated);
	json_add_uint(r->json, "ranks", b->launch.nranks);
	json_add_uint(r->json, "bits", b->bits);
	json_add_uint(r->json, "iters", b->iters);
	json_add_uint(r->json, "warmup_iters", b->warmup);
	json_add_bool(r->json, "registered", !b->unregistered);
	json_object_object_add(r->json, "cards", devices_json(b, devices));
}

struct report *report_new(const struct bench *b, const struct device *devices)
{
	struct report *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->bench = b;
	if (b->output == OUTPUT_JSON) {
		begin_json(r, devices);
	} else {
		print_devices(b, devices);
		print_columns();
		fflush(stdout);
	}
	return r;
}

static void print_timing(const struct bench *b, const struct row *row, enum place place)
{
	const struct timing *t = &row->timing[place];

	if (!t->valid) {
		printf("  %10s %7s %7s %8s", "N/A", "N/A", "N/A", "N/A");
		return;
	}
	printf("  %10.2f %7.2f %7.2f", t->time_us, algbw(row, place), busbw(b, row, place));
	if (t->checked)
		printf(" %8llu", (unsigned long long)t->wrong);
	else
		printf(" %8s", "N/A");
}

static void print_row(const struct bench *b, const struct row *row)
{
	const struct timing *t = &row->timing[main_place(row)];
	double snr = row_snr(b, row);

	printf("%12llu %12llu %5s %5s", (unsigned long long)row->bytes,
	       (unsigned long long)row->count, type_name(b), redop_name(b));
	print_timing(b, row, OUT_OF_PLACE);
	print_timing(b, row, IN_PLACE);
	printf("  %9.2f %9.2f", t->p50_us, t->p99_us);
	if (row->count)
		printf(" %8.4f %8.4f", (double)row->tx_bytes / (double)row->count,
		       (double)row->rx_bytes / (double)row->count);
	else
		printf(" %8s %8s", "N/A", "N/A");
	if (isnan(snr))
		printf(" %7s", "N/A");
	else if (isinf(snr))
		printf(" %7s", "exact");
	else
		printf(" %7.2f", snr);
	printf(" %9.2f\n", (double)row->wire_ns / 1000);
	fflush(stdout);
}

static struct json_object *timing_json(const struct bench *b, const struct row *row,
				       enum place place)
{
	const struct timing *t = &row->timing[place];
	struct json_object *o;

	if (!t->valid)
		return NULL;
	o = json_object_new_object();
	json_add_double(o, "time_us", t->time_us);
	json_add_double(o, "algbw_gbs", algbw(row, place));
	json_add_double(o, "busbw_gbs", busbw(b, row, place));
	json_add_double(o, "p50_us", t->p50_us);
	json_add_double(o, "p99_us", t->p99_us);
	if (t->checked)
		json_add_uint(o, "wrong", t->wrong);
	else
		json_object_object_add(o, "wrong", NULL);
	return o;
}

static void add_row_json(struct report *r, const struct row *row)
{
	const struct bench *b = r->bench;
	struct json_object *o = json_object_new_object();
	double count = row->count ? (double)row->count : NAN;
	double snr = row_snr(b, row);

	json_add_uint(o, "size_bytes", row->bytes);
	json_add_uint(o, "count", row->count);
	json_add_string(o, "type", type_name(b));
	json_add_string(o, "redop", redop_name(b));
	json_object_object_add(o, "out_of_place", timing_json(b, row, OUT_OF_PLACE));
	json_object_object_add(o, "in_place", timing_json(b, row, IN_PLACE));
	json_add_double(o, "sent_bytes_per_element", (double)row->tx_bytes / count);
	json_add_double(o, "received_bytes_per_element", (double)row->rx_bytes / count);
	json_add_double(o, "snr_db", snr);
	json_add_bool(o, "exact", isinf(snr));
	json_add_double(o, "wire_us", (double)row->wire_ns / 1000);
	json_object_array_add(r->rows, o);
}

void report_row(struct report *r, const struct row *row)
{
	enum place place;

	for (place = 0; place < PLACES; place++) {
		if (!row->timing[place].valid)
			continue;
		r->wrong += row->timing[place].wrong;
		r->busbw += busbw(r->bench, row, place);
		r->timings++;
	}
	if (r->json)
		add_row_json(r, row);
	else
		print_row(r->bench, row);
}

void report_drop(struct report *r)
{
	if (!r)
		return;
	if (r->json) {
		json_object_put(r->rows);
		json_object_put(r->json);
	}
	free(r);
}

void report_end(struct report *r)
{
	double average = r->timings ? r->busbw / r->timings : 0;

	if (r->json) {
		json_object_object_add(r->json, "rows", r->rows);
		json_add_uint(r->json, "wrong", r->wrong);
		json_add_double(r->json, "average_busbw_gbs", average);
		output_json(r->json);
	} else {
		printf("# Wrong values      : %llu %s\n", (unsigned long long)r->wrong,
		       r->wrong ? "FAILED" : "OK");
		printf("# Avg bus bandwidth : %.4f\n#\n", average);
	}
	free(r);
}
