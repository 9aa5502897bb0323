// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The command line of optinc-emu.
 *
 * A card's parameters are those of an emu: URI, and are parsed as one: each
 * becomes KEY=VALUE, from an option --KEY for all cards or from one --card.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/provider/internal.h"
#include "emulator/vfio-user/server.h"

#define MAX_PARAMETERS	64
#define MAX_CARDS	FABRIC_MAX_PORTS
#define MAX_OPTIONS	32

const char vu_help[] =
	"usage: optinc-emu --fabric NAME --ports N --port P --socket PATH [OPTION]...\n"
	"       optinc-emu --fabric NAME --ports N [OPTION]... --card KEY=VALUE,... [--card ...]\n"
	"\n"
	"Emulated OptINC cards for virtual machines: a vfio-user server for each card,\n"
	"to be given to QEMU as\n"
	"  -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"PATH\"}}'\n"
	"with the guest's memory shared (memory-backend-memfd,share=on).\n"
	"\n"
	"cards\n"
	"  --fabric NAME         the fabric: letters, digits, '.', '_', '-'\n"
	"  --ports N             its ports, 2 to 16, the same for all its cards\n"
	"  --port P              the card's port, 0 to N-1\n"
	"  --socket PATH         where the virtual machine connects; only for this user\n"
	"  --card KEY=VALUE,...  one of several cards, with its port= and socket=, and any of\n"
	"                        the options below for it alone; may be repeated\n"
	"  --vectors V           MSI-X vectors, 1 to 2047 (65)\n"
	"  --no-isolation        a card without the isolation capability; in --card\n"
	"                        isolation=0\n"
	"how a card's lanes fall short\n"
	"  --impair PRESET       clean, ethernet or wifi; the options below refine it\n"
	"  --seed S              of all that is drawn (0)\n"
	"  --delay TIME          added to each request's modelled time: 500ns, 2us, 1.5ms\n"
	"  --jitter TIME         uniform in 0 to TIME, drawn for each request, added too\n"
	"  --loss P              probability that a symbol is lost and sent again\n"
	"  --dead-lane L         a lane without light; may be repeated\n"
	"  --mute-after N        stop answering peers after N requests\n"
	"  --pace 1              complete no request before its modelled time\n"
	"what a card does wrong, for tests of a driver; all but the last may be repeated\n"
	"  --fail-admin OPCODE[:STATUS[:SKIP[:COUNT]]]\n"
	"                        admin commands end with STATUS (9, INTERNAL); SKIP of them do\n"
	"                        not (0), COUNT do (all). OPCODE is like mr-reg, or 0x12\n"
	"  --silent-admin OPCODE[:SKIP[:COUNT]]\n"
	"                        they are executed and not answered\n"
	"  --hostile WHAT:OPCODE[:SKIP[:COUNT]]\n"
	"                        they are answered with unknown-id, twice, wrong-phase,\n"
	"                        wrong-head, same-handle, no-handle, short, garbage, huge,\n"
	"                        strings, fatal, flood: see optinc-emu(1)\n"
	"  --timeout N           the card's time limit, 1 to 255 tenths of a second (50)\n"
	"\n"
	"  --help\n"
	"  --version\n"
	"\n"
	"Cards of one fabric meet, whichever process they are in, and whether they are\n"
	"reached through a virtual machine or by an emu: URI of the same fabric.\n"
	"Prints \"optinc-emu: ready\" once all sockets are there. SIGUSR1 pulls the cards out\n"
	"of their slots, whereupon all reads of them are ones; SIGUSR2 puts them back, as\n"
	"after power-on. SIGTERM or SIGINT ends it. A virtual machine that ends leaves the\n"
	"card ready for the next one.\n";

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

static const char * const fault_options[] = { "fail-admin", "silent-admin", "hostile" };

/* The one that it is, or NULL */
static const char *fault_option(const struct parameter *parameter)
{
	size_t i;

	for (i = 0; i < sizeof(fault_options) / sizeof(fault_options[0]); i++) {
		if (is_key(parameter, fault_options[i]))
			return fault_options[i];
	}
	return NULL;
}

static bool repeats(const struct parameter *parameter)
{
	bool repeated;
	const char *name;
	size_t i;

	for (i = 0; emu_uri_parameter(i, &name, &repeated); i++) {
		if (is_key(parameter, name))
			return repeated;
	}
	return fault_option(parameter);
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

static int take_timeout(struct line *line, struct vu_options *card,
			const struct parameter *parameter)
{
	unsigned int tenths = 0;
	size_t i;

	for (i = 0; i < parameter->value_length; i++) {
		if (parameter->value[i] < '0' || parameter->value[i] > '9' || tenths > 255)
			break;
		tenths = 10 * tenths + (unsigned int)(parameter->value[i] - '0');
	}
	if (i < parameter->value_length || !tenths || tenths > 255)
		return FAIL(line, "timeout=%.*s: 1 to 255 is wanted",
			    (int)parameter->value_length, parameter->value);
	card->card.timeout = tenths;
	return 0;
}

/* The parameters that a URI does not have */
static int take_own(struct line *line, struct vu_options *card, const struct parameter *parameter,
		    bool *taken)
{
	const char *fault = fault_option(parameter);

	*taken = true;
	if (fault)
		return card_fault_add(&card->card, fault, parameter->value,
				      parameter->value_length, line->error, line->error_size);
	if (is_key(parameter, "timeout"))
		return take_timeout(line, card, parameter);
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
	static const struct parameter required[] = {
		{ .key = "port", .key_length = 4 },
		{ .key = "ports", .key_length = 5 },
		{ .key = "socket", .key_length = 6 },
	};
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
		if (!has(&own, &line->common.list[i]) || repeats(&line->common.list[i])) {
			if (own.count == MAX_PARAMETERS)
				return FAIL(line, "more than %d parameters", MAX_PARAMETERS);
			own.list[own.count++] = line->common.list[i];
		}
	}
	for (i = 0; i < sizeof(required) / sizeof(required[0]); i++) {
		if (!has(&own, &required[i]))
			return FAIL(line, "--%s is missing", required[i].key);
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
	card->card.timeout = extra.card.timeout;
	card->card.fault_count = extra.card.fault_count;
	memcpy(card->card.faults, extra.card.faults, sizeof(extra.card.faults));
	memcpy(card->path, extra.path, sizeof(card->path));
	return 0;
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

/* What getopt_long() returns for each kind */
enum { OPT_PARAMETER = 256, OPT_FABRIC, OPT_CARD, OPT_NO_ISOLATION, OPT_HELP, OPT_VERSION };

/* Options of this program alone, and those that a URI has as well */
static void list_options(struct option options[MAX_OPTIONS])
{
	static const struct option own[] = {
		{ "fabric",	  required_argument, NULL, OPT_FABRIC },
		{ "card",	  required_argument, NULL, OPT_CARD },
		{ "socket",	  required_argument, NULL, OPT_PARAMETER },
		{ "no-isolation", no_argument,	     NULL, OPT_NO_ISOLATION },
		{ "fail-admin",	  required_argument, NULL, OPT_PARAMETER },
		{ "silent-admin", required_argument, NULL, OPT_PARAMETER },
		{ "hostile",	  required_argument, NULL, OPT_PARAMETER },
		{ "timeout",	  required_argument, NULL, OPT_PARAMETER },
		{ "help",	  no_argument,	     NULL, OPT_HELP },
		{ "version",	  no_argument,	     NULL, OPT_VERSION },
	};
	size_t n = sizeof(own) / sizeof(own[0]), i;
	const char *name;
	bool repeated;

	memcpy(options, own, sizeof(own));
	for (i = 0; n < MAX_OPTIONS - 1 && emu_uri_parameter(i, &name, &repeated); i++)
		options[n++] = (struct option){ name, required_argument, NULL, OPT_PARAMETER };
	options[n] = (struct option){ NULL, 0, NULL, 0 };
}

static int take_option(struct line *line, int c, const char *name, struct vu_option_list *list)
{
	switch (c) {
	case OPT_PARAMETER:
		return add(line, &line->common, name, strlen(name), optarg, strlen(optarg));
	case OPT_FABRIC:
		line->fabric = optarg;
		return 0;
	case OPT_CARD:
		if (line->card_count == MAX_CARDS)
			return FAIL(line, "more than %d cards", MAX_CARDS);
		line->cards[line->card_count++] = optarg;
		return 0;
	case OPT_NO_ISOLATION:
		return add(line, &line->common, "isolation", strlen("isolation"), "0", 1);
	case OPT_HELP:
		list->help = true;
		return 0;
	case OPT_VERSION:
		list->version = true;
		return 0;
	default:
		return -EINVAL;		/* getopt has said why */
	}
}

static int parse_line(struct line *line, int argc, char **argv, struct vu_option_list *list)
{
	struct option options[MAX_OPTIONS];
	int c, index = 0, rc = 0;

	list_options(options);
	optind = 0;
	while (!rc && (c = getopt_long(argc, argv, "", options, &index)) != -1)
		rc = take_option(line, c, options[index].name, list);
	if (!rc && optind < argc)
		return FAIL(line, "%s: not an option", argv[optind]);
	return rc;
}

int vu_options_parse(int argc, char **argv, struct vu_option_list *list, char *error,
		     size_t error_size)
{
	struct line line = { .error = error, .error_size = error_size };
	size_t i;
	int rc;

	memset(list, 0, sizeof(*list));
	*error = '\0';
	rc = parse_line(&line, argc, argv, list);
	if (rc || list->help || list->version)
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
