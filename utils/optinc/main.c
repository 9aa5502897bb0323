// SPDX-License-Identifier: GPL-2.0-or-later
/* optinc: the table of subcommands and their common options. */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

static const struct command commands[] = {
	{
		"list", "cards of this machine",
		"List the cards that the kernel driver knows, with slot, PCI Express link, model\n"
		"and whether they can be used; with --card only that one.\n",
		list_run,
	}, {
		"info", "what a card says about itself, and its counters",
		"Print identity, limits and counters of a card, " DEFAULT_CARD " if none is\n"
		"named.\n",
		info_run,
	}, {
		"why", "can a card be used, and if not, why",
		"Open a card, " DEFAULT_CARD " if none is named, and say whether it can be\n"
		"used. The exit status is 0 if so, 1 if not.\n",
		why_run,
	}, {
		"version", "versions of tool, library and number format",
		"Print versions.\n",
		version_run,
	},
};

static const char common_help[] =
"  -C, --card URI       card:N, pci:DDDD:BB:DD.F or emu:NAME?port=P&ports=N;\n"
"                       default is $OPTINC_CARD\n"
"  -o, --output FORMAT  text or json\n"
"  -h, --help\n";

static const struct option long_options[] = {
	{ "card",	required_argument, NULL, 'C' },
	{ "output",	required_argument, NULL, 'o' },
	{ "help",	no_argument,	   NULL, 'h' },
	{ "version",	no_argument,	   NULL, 'V' },
	{ NULL, 0, NULL, 0 }
};

int open_card(const struct options *options, struct optinc_card **card)
{
	const char *uri = options->card ? options->card : DEFAULT_CARD;

	if (!optinc_open(uri, card))
		return 0;
	return tool_error("%s: %s", uri, optinc_last_error());
}

static void print_help(void)
{
	size_t i;

	fputs("usage: optinc COMMAND [OPTION]...\n\n"
	      "Look at photonic in-network-computing cards.\n\n", stdout);
	for (i = 0; i < ARRAY_SIZE(commands); i++)
		printf("  %-10s %s\n", commands[i].name, commands[i].summary);
	printf("\n%s  -V, --version\n\n\"optinc COMMAND --help\" says more.\n", common_help);
}

static void print_command_help(const struct command *command)
{
	printf("usage: optinc %s [OPTION]...\n\n%s\n%s", command->name, command->help,
	       common_help);
}

static const struct command *find_command(const char *name)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(commands); i++) {
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	}
	return NULL;
}

/* -1 to go on, else the exit status. */
static int take_option(struct options *o, int c, bool *help, bool *version)
{
	switch (c) {
	case 'C':
		o->card = optarg;
		return -1;
	case 'o':
		if (output_parse(optarg, &o->output))
			return -1;
		return usage_error("-o %s: the formats are text and json", optarg);
	case 'h':
		*help = true;
		return -1;
	case 'V':
		*version = true;
		return -1;
	default:
		return EXIT_USAGE;	/* getopt has said why */
	}
}

int main(int argc, char **argv)
{
	struct options options = { .card = getenv("OPTINC_CARD") };
	const struct command *command;
	bool help = false, version = false;
	int c, status;

	argv[0] = (char *)tool_name;	/* for getopt's messages */
	if (options.card && !options.card[0])
		options.card = NULL;
	while ((c = getopt_long(argc, argv, "C:o:hV", long_options, NULL)) != -1) {
		status = take_option(&options, c, &help, &version);
		if (status >= 0)
			return status;
	}
	command = optind < argc ? find_command(argv[optind]) : NULL;
	if (optind < argc && !command)
		return usage_error("%s: no such command", argv[optind]);
	if (argc - optind > 1)
		return usage_error("%s: %s takes no argument", argv[optind + 1], command->name);

	if (help) {
		if (command)
			print_command_help(command);
		else
			print_help();
		return tool_finish(0);
	}
	if (version)
		return tool_finish(version_run(&options));
	if (!command)
		return usage_error("a command is wanted");
	return tool_finish(command->run(&options));
}
