// SPDX-License-Identifier: GPL-2.0-or-later
/* optinc list: which cards are there? */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

/**
 * struct row - a card
 * @state: why it is used or not, as optinc_reason_name() has it
 */
struct row {
	char uri[URI_BYTES];
	char slot[40];
	char model[32];
	const char *state;
	struct link link;
};

struct table {
	struct row *rows;
	size_t count;
};

static void look_into(struct row *row)
{
	struct optinc_card_info info;
	struct optinc_card *card = NULL;
	struct optinc_why why;
	int ret = optinc_open(row->uri, &card);

	if (!optinc_why(ret ? NULL : card, &why))
		row->state = optinc_reason_name(why.reason);
	if (ret)
		return;
	if (!optinc_card_info(card, &info, sizeof(info)))
		snprintf(row->model, sizeof(row->model), "%s", info.model);
	optinc_close(card);
}

static void fill_row(struct row *row, const char *uri, const char *slot)
{
	char why[WHY_BYTES];

	memset(row, 0, sizeof(*row));
	row->state = "unknown";
	snprintf(row->uri, sizeof(row->uri), "%s", uri);
	snprintf(row->slot, sizeof(row->slot), "%s", slot);
	if (slot[0] && !link_read(slot, &row->link, why))
		tool_error("%s: %s", uri, why);
	look_into(row);
}

/* The slot of a card that is named on the command line. */
static const char *slot_of(const struct optinc_list *list, const char *uri)
{
	size_t i;

	if (!strncmp(uri, "pci:", 4))
		return uri + 4;
	for (i = 0; i < optinc_list_count(list); i++) {
		if (!strcmp(optinc_list_uri(list, i), uri))
			return optinc_list_slot(list, i);
	}
	return "";
}

static bool fill_table(struct table *t, const struct optinc_list *list, const char *only)
{
	size_t i;

	t->count = only ? 1 : optinc_list_count(list);
	t->rows = calloc(t->count + 1, sizeof(*t->rows));
	if (!t->rows)
		return false;
	if (only) {
		fill_row(&t->rows[0], only, slot_of(list, only));
		return true;
	}
	for (i = 0; i < t->count; i++)
		fill_row(&t->rows[i], optinc_list_uri(list, i), optinc_list_slot(list, i));
	return true;
}

static const char *or_dash(const char *text)
{
	return text[0] ? text : "-";
}

/* "x8 16 GT/s" or "gone", and whether card and slot could do more. */
static void print_link(const struct link *l)
{
	char text[64] = "-";

	if (l->gone)
		snprintf(text, sizeof(text), "gone");
	else if (l->width)
		snprintf(text, sizeof(text), "x%u %g GT/s%s", l->width, l->gts / 10.0,
			 l->width < l->max_width || l->gts < l->max_gts ? " (degraded)" : "");
	printf("%-24s", text);
}

static void print_text(const struct table *t)
{
	size_t i;

	if (!t->count) {
		printf("no cards: if one is plugged in, load the driver with \"modprobe optinc\"; "
		       "without one, try --card 'emu:demo?port=0&ports=2'\n");
		return;
	}
	printf("%-32s %-13s %-24s %-16s %s\n", "CARD", "SLOT", "LINK", "MODEL", "STATE");
	for (i = 0; i < t->count; i++) {
		const struct row *r = &t->rows[i];

		printf("%-32s %-13s ", r->uri, or_dash(r->slot));
		print_link(&r->link);
		printf(" %-16s %s\n", or_dash(r->model), r->state);
	}
}

static void add_link(struct json_object *o, const struct link *l)
{
	struct json_object *link = NULL;
	char id[16];

	if (l->vendor) {
		snprintf(id, sizeof(id), "%04x:%04x", l->vendor, l->device);
		json_add_string(o, "id", id);
	} else {
		json_add_string(o, "id", NULL);
	}
	if (l->width) {
		link = json_object_new_object();
		json_add_uint(link, "width", l->width);
		json_add_double(link, "gts", l->gts / 10.0);
		json_add_uint(link, "max_width", l->max_width);
		json_add_double(link, "max_gts", l->max_gts / 10.0);
	}
	json_object_object_add(o, "link", link);
	json_add_bool(o, "gone", l->gone);
}

static void print_json(const struct table *t)
{
	struct json_object *object = json_object_new_object();
	struct json_object *cards = json_object_new_array();
	size_t i;

	for (i = 0; i < t->count; i++) {
		const struct row *r = &t->rows[i];
		struct json_object *o = json_object_new_object();

		json_add_string(o, "card", r->uri);
		json_add_string(o, "slot", r->slot[0] ? r->slot : NULL);
		add_link(o, &r->link);
		json_add_string(o, "model", r->model[0] ? r->model : NULL);
		json_add_string(o, "state", r->state);
		json_object_array_add(cards, o);
	}
	json_object_object_add(object, "cards", cards);
	output_json(object);
}

int list_run(const struct options *options)
{
	struct optinc_list *list;
	struct table table = { 0 };
	bool ok;

	if (optinc_enumerate(&list))
		return tool_error("list: %s", optinc_last_error());
	ok = fill_table(&table, list, options->card);
	optinc_list_free(list);
	if (!ok)
		return tool_error("list: out of memory");
	if (options->output == OUTPUT_JSON)
		print_json(&table);
	else
		print_text(&table);
	free(table.rows);
	return 0;
}
