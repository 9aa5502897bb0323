// SPDX-License-Identifier: GPL-2.0-or-later
/* The table, for people and for programs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "demo.h"

static double per_element(uint64_t bytes, const struct tensor *t)
{
	return (double)bytes / (double)t->count;
}

void report_begin(const struct demo *demo)
{
	if (demo->output != OUTPUT_TEXT)
		return;
	printf("demo: %u ranks on %s: %s\n", demo->nranks,
	       uri_emulated(demo->card) ? "emulated cards" : "cards", demo->card);
	printf("demo: mean of %u-bit codes, gradients from %s\n\n", DEMO_BITS, demo->directory);
	fflush(stdout);
}

static void print_row(const char *name, uint64_t elements, uint64_t sent, double ring)
{
	double each = (double)sent / (double)elements;

	printf("%-20s %9llu %11llu %7.4f %9.4f %6.2fx", name, (unsigned long long)elements,
	       (unsigned long long)sent, each, ring, each > 0 ? ring / each : 0.0);
}

static void print_table(const struct demo *demo)
{
	uint64_t elements = 0, sent = 0;
	double ring = ring_bytes(demo->nranks);
	size_t i;

	printf("%-20s %9s %11s %7s %9s %7s %8s %5s %8s %9s\n", "", "", "sent/rank", "sent",
	       "ring f32", "", "SNR", "bit-", "CRC-32", "nonfinite");
	printf("%-20s %9s %11s %7s %9s %7s %8s %5s %8s %9s\n", "tensor", "elements", "(B)",
	       "(B/el)", "(B/el)", "less", "(dB)", "exact", "", "(blocks)");
	for (i = 0; i < demo->ntensors; i++) {
		const struct tensor *t = &demo->tensors[i];
		uint64_t tx = tensor_tx_bytes(demo, t);

		print_row(t->name, t->count, tx, ring);
		if (isnan(t->snr))
			printf(" %8s", "-");
		else
			printf(" %8.2f", t->snr);
		printf(" %5s %08x %9u\n", t->wrong ? "no" : "yes", t->crc, t->nonfinite);
		elements += t->count;
		sent += tx;
	}
	print_row("all", elements, sent, ring);
	printf("\n\n");
}

void report_tensors(const struct demo *demo)
{
	if (demo->output == OUTPUT_TEXT)
		print_table(demo);
}

static struct json_object *tensor_json(const struct demo *demo, const struct tensor *t)
{
	struct json_object *o = json_object_new_object();
	uint64_t time_ns = 0, wire_ns = 0, replays = 0;
	unsigned int rank;
	char crc[9];

	for (rank = 0; rank < demo->nranks; rank++) {
		const struct reduction *r = &t->reduction[rank];

		time_ns = r->time_ns > time_ns ? r->time_ns : time_ns;
		wire_ns = r->wire_ns > wire_ns ? r->wire_ns : wire_ns;
		replays += r->replays;
	}
	snprintf(crc, sizeof(crc), "%08x", t->crc);
	json_add_string(o, "tensor", t->name);
	json_add_uint(o, "elements", t->count);
	json_add_uint(o, "sent_bytes", tensor_tx_bytes(demo, t));
	json_add_double(o, "sent_bytes_per_element",
			per_element(tensor_tx_bytes(demo, t), t));
	json_add_uint(o, "received_bytes", tensor_rx_bytes(demo, t));
	json_add_double(o, "ring_bytes_per_element", ring_bytes(demo->nranks));
	json_add_double(o, "snr_db", t->snr);
	json_add_bool(o, "bit_exact", !t->wrong);
	json_add_uint(o, "wrong_elements", t->wrong);
	json_add_string(o, "crc32", crc);
	json_add_uint(o, "nonfinite_blocks", t->nonfinite);
	json_add_uint(o, "replays", replays);
	json_add_double(o, "time_us", (double)time_ns / 1000);
	json_add_double(o, "wire_us", (double)wire_ns / 1000);
	return o;
}

/* Tensors are left out when the ranks did not get as far as a verdict. */
static void print_json(const struct demo *demo, const char *why)
{
	struct json_object *o = json_object_new_object();
	struct json_object *tensors = json_object_new_array();
	size_t i;

	json_add_string(o, "card", demo->card);
	json_add_bool(o, "emulated", uri_emulated(demo->card));
	json_add_uint(o, "ranks", demo->nranks);
	json_add_uint(o, "bits", DEMO_BITS);
	json_add_string(o, "reduction", "mean");
	json_add_string(o, "gradients", demo->directory);
	for (i = 0; i < demo->ntensors; i++) {
		const struct tensor *t = &demo->tensors[i];

		if (t->reduction && t->reduction[0].done)
			json_object_array_add(tensors, tensor_json(demo, t));
	}
	json_object_object_add(o, "tensors", tensors);
	json_add_bool(o, "pass", !why);
	json_add_string(o, "why", why);
	output_json(o);
}

int report_end(const struct demo *demo, const char *why)
{
	if (demo->output == OUTPUT_JSON)
		print_json(demo, why);
	else if (why)
		printf("demo: FAIL %s\n", why);
	else
		printf("demo: PASS %zu tensors, every bit equal to the reference\n",
		       demo->ntensors);
	return why ? EXIT_FAIL : 0;
}
