// SPDX-License-Identifier: GPL-2.0-or-later
/* optinc info: all that a card says about itself, and its counters. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tool.h"

#define UNIT_BYTES	32

static const struct {
	uint64_t bit;
	const char *name;
} features[] = {
	{ OPTINC_FEAT_ISOLATION,	"isolation" },
	{ OPTINC_FEAT_USER_QUEUES,	"user-queues" },
	{ OPTINC_FEAT_MR_CACHE,		"mr-cache" },
	{ OPTINC_FEAT_DMABUF,		"dmabuf" },
	{ OPTINC_FEAT_EMULATED,		"emulated" },
};

/* A counter, and how its text reads. */
static const struct counter {
	const char *name;
	size_t offset;
	const char *(*human)(uint64_t value, char *text, size_t size);
} counters[] = {
#define COUNTER(field, human)	{ #field, offsetof(struct optinc_card_stats, field), human }
	COUNTER(tx_bytes, units_bytes),
	COUNTER(rx_bytes, units_bytes),
	COUNTER(requests, NULL),
	COUNTER(errors, NULL),
	COUNTER(replays, NULL),
	COUNTER(nonfinite, NULL),
	COUNTER(saturated, NULL),
	COUNTER(doorbells, NULL),
	COUNTER(doorbells_dropped, NULL),
	COUNTER(wire_ns, units_ns),
	COUNTER(device_ns, units_ns),
#undef COUNTER
};

static uint64_t counter_value(const struct optinc_card_stats *stats, const struct counter *c)
{
	uint64_t value;

	memcpy(&value, (const char *)stats + c->offset, sizeof(value));
	return value;
}

/* Each name of the bitmaps by its bit; NULL where there is none. */
static const char *feature_name(unsigned int bit)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(features); i++) {
		if (features[i].bit == 1ull << bit)
			return features[i].name;
	}
	return NULL;
}

static const char *dtype_name(unsigned int bit)
{
	return optinc_dtype_name((enum optinc_dtype)bit);
}

static const char *redop_name(unsigned int bit)
{
	return optinc_redop_name((enum optinc_redop)bit);
}

static const char *bits_name(unsigned int bit)
{
	return bit == 8 ? "8" : bit == 16 ? "16" : NULL;
}

static const struct bitmap {
	const char *label;
	const char *key;
	const char *(*name)(unsigned int bit);
} bitmaps[] = {
	{ "features",	"features",	feature_name },
	{ "dtypes",	"dtypes",	dtype_name },
	{ "reductions",	"redops",	redop_name },
	{ "code bits",	"code_bits",	bits_name },
};

static uint64_t bitmap_value(const struct optinc_card_info *info, size_t i)
{
	const uint64_t values[] = { info->features, info->dtypes, info->redops, info->code_bits };

	return values[i];
}

static void print_label(const char *label)
{
	printf("%-18s ", label);
}

static void print_bitmap(const struct bitmap *map, uint64_t value)
{
	unsigned int bit;

	print_label(map->label);
	if (!value)
		putchar('-');
	for (bit = 0; bit < 64 && value; bit++, value >>= 1) {
		const char *name = map->name(bit);

		if (!(value & 1))
			continue;
		if (name)
			fputs(name, stdout);
		else
			printf("bit%u", bit);
		if (value > 1)
			putchar(' ');
	}
	putchar('\n');
}

static void print_identity(const struct optinc_card_info *info)
{
	char lane[UNIT_BYTES], port[UNIT_BYTES];

	print_label("card");
	printf("%s\n", info->uri);
	print_label("model");
	printf("%s\n", info->model);
	print_label("serial");
	printf("%s\n", info->serial);
	print_label("interface");
	printf("%u.%u\n", info->interface_version >> 16, info->interface_version & 0xffff);
	print_label("firmware");
	printf("0x%08x\n", info->firmware_version);
	print_label("port");
	printf("%u of a fabric of %u\n", info->port, info->ports);
	print_label("lanes");
	printf("%u of %u carry light, %s each, %s together\n", info->lanes_up, info->lanes,
	       units_mbps(info->lane_mbps, lane, sizeof(lane)),
	       units_mbps((uint64_t)info->lane_mbps * info->lanes_up, port, sizeof(port)));
}

static void print_text(const struct optinc_card_info *info, const struct optinc_card_stats *stats)
{
	char text[UNIT_BYTES];
	size_t i;

	print_identity(info);
	for (i = 0; i < ARRAY_SIZE(bitmaps); i++)
		print_bitmap(&bitmaps[i], bitmap_value(info, i));
	print_label("elements at once");
	printf("%" PRIu64 "\n", info->max_count);
	print_label("groups");
	printf("at most %u\n\ncounters since the card's reset\n", info->max_groups);
	for (i = 0; i < ARRAY_SIZE(counters); i++) {
		uint64_t value = counter_value(stats, &counters[i]);

		print_label(counters[i].name);
		printf("%" PRIu64, value);
		if (counters[i].human && value)
			printf(" (%s)", counters[i].human(value, text, sizeof(text)));
		putchar('\n');
	}
}

/* {"value": 19, "names": [...]} */
static struct json_object *bitmap_json(const struct bitmap *map, uint64_t value)
{
	struct json_object *o = json_object_new_object();
	struct json_object *names = json_object_new_array();
	unsigned int bit;

	json_add_uint(o, "value", value);
	for (bit = 0; bit < 64; bit++) {
		const char *name = value >> bit & 1 ? map->name(bit) : NULL;

		if (name)
			json_object_array_add(names, json_object_new_string(name));
	}
	json_object_object_add(o, "names", names);
	return o;
}

static void print_json(const struct optinc_card_info *info, const struct optinc_card_stats *stats)
{
	struct json_object *o = json_object_new_object();
	struct json_object *s = json_object_new_object();
	size_t i;

	json_add_string(o, "card", info->uri);
	json_add_string(o, "model", info->model);
	json_add_string(o, "serial", info->serial);
	json_add_uint(o, "interface_version", info->interface_version);
	json_add_uint(o, "firmware_version", info->firmware_version);
	json_add_uint(o, "port", info->port);
	json_add_uint(o, "ports", info->ports);
	json_add_uint(o, "lanes", info->lanes);
	json_add_uint(o, "lanes_up", info->lanes_up);
	json_add_uint(o, "lane_mbps", info->lane_mbps);
	for (i = 0; i < ARRAY_SIZE(bitmaps); i++)
		json_object_object_add(o, bitmaps[i].key,
				       bitmap_json(&bitmaps[i], bitmap_value(info, i)));
	json_add_uint(o, "max_count", info->max_count);
	json_add_uint(o, "max_groups", info->max_groups);
	for (i = 0; i < ARRAY_SIZE(counters); i++)
		json_add_uint(s, counters[i].name, counter_value(stats, &counters[i]));
	json_object_object_add(o, "stats", s);
	output_json(o);
}

int info_run(const struct options *options)
{
	struct optinc_card_info info;
	struct optinc_card_stats stats;
	struct optinc_card *card;
	int status = open_card(options, &card);

	if (status)
		return status;
	if (optinc_card_info(card, &info, sizeof(info)) ||
	    optinc_card_stats(card, &stats, sizeof(stats)))
		status = tool_error("info: %s", optinc_last_error());
	else if (options->output == OUTPUT_JSON)
		print_json(&info, &stats);
	else
		print_text(&info, &stats);
	optinc_close(card);
	return status;
}
