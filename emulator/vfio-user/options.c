// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The command line of optinc-emu.
 *
 * A card's parameters are those of an emu: URI, and are parsed as one: each
 * becomes KEY=VALUE, from an option --KEY for all cards or from one --card.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/provider/internal.h"
#include "emulator/vfio-user/server.h"

#define MAX_PARAMETERS	64
#define MAX_CARDS	FABRIC_MAX_PORTS

const char vu_help[] =
	"Usage: optinc-emu --fabric NAME --ports N --port P --socket PATH [OPTION]...\n"
	"       optinc-emu --fabric NAME --ports N [OPTION]... --card KEY=VALUE,... [--card ...]\n"
	"\n"
	"Emulated OptINC cards for virtual machines: a vfio-user server for each card,\n"
	"to be given to QEMU as\n"
	"  -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"PATH\"}}'\n"
	"with the guest's memory shared (memory-backend-memfd,share=on).\n"
	"\n"
	"Cards of one fabric meet, whichever process they are in, and whether they are\n"
	"reached through a virtual machine or by an emu: URI of the same fabric.\n"
	"\n"
	"  --fabric NAME         the fabric: letters, digits, '.', '_', '-'\n"
	"  --ports N             its ports, the same for all its cards\n"
	"  --port P              the card's port, 0 to N-1\n"
	"  --socket PATH         where the virtual machine connects; only for this user\n"
	"  --card KEY=VALUE,...  one of several cards, with its port= and socket=, and any of\n"
	"                        the options below for it alone\n"
	"  --vectors V           MSI-X vectors, 1 to 2047\n"
	"  --no-isolation        a card without the isolation capability; in --card\n"
	"                        isolation=0\n"
	"\n"
	"How the lanes of a card fall short:\n"
	"  --impair PRESET       clean, ethernet or wifi; the options below refine it\n"
	"  --seed S              of all that is drawn\n"
	"  --delay TIME          added to each request's modelled time: 500ns, 2us, 1.5ms\n"
	"  --jitter TIME         uniform in 0 to TIME, drawn for each request, added too\n"
	"  --loss P              probability that a symbol is lost and sent again\n"
	"  --dead-lane L         a lane without light; may be repeated\n"
	"  --mute-after N        stop answering peers after N requests\n"
	"  --pace 1              complete no request before its modelled time\n"
	"\n"
	"  --help\n"
	"\n"
	"SIGUSR1 pulls the cards out of their slots, while all reads of them are ones;\n"
	"SIGUSR2 puts them back, as after power-on. SIGTERM or SIGINT ends it. A virtual\n"
	"machine that ends leaves the card ready for the next one.\n";

struct parameter {
	const char *key;
	size_t key_length;
	const char *value;
	size_t value_length;
};

struct parameters {
	struct parameter list[MAX_PARAMETERS];
	size_t count;
};

struct line {
	struct parameters common;	/* of all cards */
	const char *cards[MAX_CARDS];
	size_t card_count;
	const char *fabric, *socket;
	char *error;
	size_t error_size;
};

#define FAIL(line, ...) \
	(snprintf((line)->error, (line)->error_size, __VA_ARGS__), -EINVAL)

static int add(struct line *line, struct parameters *to, const char *key, size_t key_length,
	       const char *value, size_t value_length)
{
	/* else it would end the parameter, and be another */
	if (memchr(value, '&', value_length) || memchr(key, '&', key_length))
		return FAIL(line, "%.*s=%.*s: '&' has no place in it", (int)key_length, key,
			    (int)value_length, value);
	if (to->count == MAX_PARAMETERS)
		return FAIL(line, "more than %d parameters", MAX_PARAMETERS);
	to->list[to->count++] = (struct parameter){ key, key_length, value, value_length };
	return 0;
}

static bool is_key(const struct parameter *parameter, const char *key)
{
	return parameter->key_length == strlen(key) &&
	       !memcmp(parameter->key, key, parameter->key_length);
}

static bool has(const struct parameters *in, const struct parameter *like)
{
	size_t i;

	for (i = 0; i < in->count; i++) {
		if (in->list[i].key_length == like->key_length &&
		    !memcmp(in->list[i].key, like->key, like->key_length))
			return true;
	}
	return false;
}

/* "key=value,key=value" */
static int split_card(struct line *line, const char *text, struct parameters *to)
{
	int rc = 0;

	while (!rc && *text) {
		size_t length = strcspn(text, ",");
		const char *equals = memchr(text, '=', length);

		if (!equals)
			return FAIL(line, "--card: \"%.*s\" lacks a value; write KEY=VALUE",
				    (int)length, text);
		rc = add(line, to, text, (size_t)(equals - text), equals + 1,
			 length - (size_t)(equals + 1 - text));
		text += length + (text[length] == ',');
	}
	return rc;
}

/* The parameters that a URI does not have */
static int take_own(struct line *line, struct vu_options *card, const struct parameter *parameter,
		    bool *taken)
{
	*taken = true;
	if (is_key(parameter, "socket")) {
		if (!parameter->value_length || parameter->value_length >= sizeof(card->path))
			return FAIL(line, "socket=%.*s: a path of 1 to %zu bytes is wanted",
				    (int)parameter->value_length, parameter->value,
				    sizeof(card->path) - 1);
		memcpy(card->path, parameter->value, parameter->value_length);
		card->path[parameter->value_length] = '\0';
		return 0;
	}
	if (is_key(parameter, "isolation")) {
		if (parameter->value_length != 1 || (*parameter->value != '0' &&
						     *parameter->value != '1'))
			return FAIL(line, "isolation=%.*s: 0 or 1 is wanted",
				    (int)parameter->value_length, parameter->value);
		card->card.no_isolation = *parameter->value == '0';
		return 0;
	}
	*taken = false;
	return 0;
}

static int append(struct line *line, char *uri, size_t size, const struct parameter *parameter,
		  bool first)
{
	size_t have = strlen(uri);
	int n = snprintf(uri + have, size - have, "%c%.*s=%.*s", first ? '?' : '&',
			 (int)parameter->key_length, parameter->key,
			 (int)parameter->value_length, parameter->value);

	return n < 0 || (size_t)n >= size - have ? FAIL(line, "too many parameters") : 0;
}

static int parse_card(struct line *line, const char *text, struct vu_options *card)
{
	struct parameters own = { .count = 0 };
	struct vu_options extra = { .path = "" };
	char uri[4096];
	bool first = true, taken;
	size_t i;
	int rc = text ? split_card(line, text, &own) : 0;

	if (rc)
		return rc;
	for (i = 0; i < line->common.count; i++) {
		/* what a card says of itself goes before what is said of all */
		if (!has(&own, &line->common.list[i]) || is_key(&line->common.list[i], "dead-lane")) {
			if (own.count == MAX_PARAMETERS)
				return FAIL(line, "more than %d parameters", MAX_PARAMETERS);
			own.list[own.count++] = line->common.list[i];
		}
	}
	snprintf(uri, sizeof(uri), "%s", line->fabric);
	for (i = 0; !rc && i < own.count; i++) {
		rc = take_own(line, &extra, &own.list[i], &taken);
		if (rc || taken)
			continue;
		rc = append(line, uri, sizeof(uri), &own.list[i], first);
		first = false;
	}
	if (!rc)
		rc = emu_uri_parse(uri, &card->card, line->error, line->error_size);
	if (rc)
		return rc;
	card->card.no_isolation = extra.card.no_isolation;
	memcpy(card->path, extra.path, sizeof(card->path));
	return card->path[0] ? 0 : FAIL(line, "port %u: say with socket which path a virtual "
					      "machine connects to", card->card.fabric.port);
}

static int check_apart(struct line *line, const struct vu_option_list *list)
{
	size_t i, j;

	for (i = 0; i < list->count; i++) {
		for (j = 0; j < i; j++) {
			if (list->cards[i].card.fabric.port == list->cards[j].card.fabric.port)
				return FAIL(line, "two cards at port %u",
					    list->cards[i].card.fabric.port);
			if (!strcmp(list->cards[i].path, list->cards[j].path))
				return FAIL(line, "two cards at %s", list->cards[i].path);
		}
	}
	return 0;
}

static int take_option(struct line *line, const char *name, const char *value)
{
	if (!strcmp(name, "fabric")) {
		line->fabric = value;
		return 0;
	}
	if (!strcmp(name, "card")) {
		if (line->card_count == MAX_CARDS)
			return FAIL(line, "more than %d cards", MAX_CARDS);
		line->cards[line->card_count++] = value;
		return 0;
	}
	return add(line, &line->common, name, strlen(name), value, strlen(value));
}

static int parse_line(struct line *line, int argc, char **argv, int *help)
{
	int i, rc = 0;

	for (i = 1; i < argc && !rc; i++) {
		const char *name = argv[i];

		if (strncmp(name, "--", 2) || !name[2])
			return FAIL(line, "\"%s\" is not an option", name);
		name += 2;
		if (!strcmp(name, "help")) {
			*help = 1;
			return 0;
		}
		if (!strcmp(name, "no-isolation")) {
			rc = take_option(line, "isolation", "0");
			continue;
		}
		if (strchr(name, '='))
			return FAIL(line, "%s: write the value as a word of its own", argv[i]);
		if (i + 1 == argc)
			return FAIL(line, "%s lacks its value", argv[i]);
		rc = take_option(line, name, argv[++i]);
	}
	return rc;
}

int vu_options_parse(int argc, char **argv, struct vu_option_list *list, char *error,
		     size_t error_size)
{
	struct line line = { .error = error, .error_size = error_size };
	size_t i;
	int rc;

	memset(list, 0, sizeof(*list));
	rc = parse_line(&line, argc, argv, &list->help);
	if (rc || list->help)
		return rc;
	if (!line.fabric)
		return FAIL(&line, "--fabric is missing");
	list->count = line.card_count ? line.card_count : 1;
	list->cards = calloc(list->count, sizeof(*list->cards));
	if (!list->cards) {
		snprintf(error, error_size, "out of memory");
		return -ENOMEM;
	}
	for (i = 0; i < list->count && !rc; i++)
		rc = parse_card(&line, line.card_count ? line.cards[i] : NULL, &list->cards[i]);
	if (!rc)
		rc = check_apart(&line, list);
	if (rc) {
		free(list->cards);
		list->cards = NULL;
	}
	return rc;
}
