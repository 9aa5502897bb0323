// SPDX-License-Identifier: GPL-2.0-or-later
/* optinc-demo: average gradients of several ranks through cards. */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "demo.h"

#define DEADLINE_MS	10000

static const char help[] =
"usage: optinc-demo [OPTION]... DIRECTORY\n"
"\n"
"Average the gradients in DIRECTORY, files TENSOR-rankK.f32 of raw little-endian\n"
"float32, through one card per rank, and show what that sends and how exact it is.\n"
"\n"
"  -C, --card URI       card of each rank, %r stands for the rank and %n for the\n"
"                       number of ranks; default is an emulated fabric of this\n"
"                       process: emu:demo-PID?port=%r&ports=%n; ranks that a\n"
"                       launcher started on machines of their own may share a name\n"
"  -w, --write DIR      store the averages there, as TENSOR-mean.f32\n"
"  -o, --output FORMAT  text or json\n"
"      --deadline-ms N  how long ranks wait for each other (10000)\n"
"  -h, --help\n"
"  -V, --version\n"
"\n"
"Ranks are processes of this command, or those of a launcher (Open MPI, PMI, Slurm,\n"
"or RANK and WORLD_SIZE), with the group's key in $OPTINC_KEY: rank 0 reports.\n"
"\n"
"The last line is \"demo: PASS ...\" with exit status 0, or \"demo: FAIL why\" with 1.\n";

enum { OPT_DEADLINE = 256 };

static const struct option options[] = {
	{ "card",	 required_argument, NULL, 'C' },
	{ "write",	 required_argument, NULL, 'w' },
	{ "output",	 required_argument, NULL, 'o' },
	{ "deadline-ms", required_argument, NULL, OPT_DEADLINE },
	{ "help",	 no_argument,	    NULL, 'h' },
	{ "version",	 no_argument,	    NULL, 'V' },
	{ NULL, 0, NULL, 0 }
};

/* One option; -1 to go on, else the exit status. */
static int take_option(struct demo *demo, int c)
{
	uint64_t number;

	switch (c) {
	case 'C':
		demo->card = optarg;
		return -1;
	case 'w':
		demo->write = optarg;
		return -1;
	case 'o':
		if (output_parse(optarg, &demo->output))
			return -1;
		return usage_error("-o %s: the formats are text and json", optarg);
	case OPT_DEADLINE:
		if (!units_parse_number(optarg, 1, 3600000, &number))
			return usage_error("--deadline-ms %s: not within 1 to 3600000", optarg);
		demo->deadline_ms = (unsigned int)number;
		return -1;
	case 'h':
		fputs(help, stdout);
		return tool_finish(0);
	case 'V':
		printf("optinc-demo %s\n", optinc_version_string());
		return tool_finish(0);
	default:
		return EXIT_USAGE;	/* getopt has said why */
	}
}

/* Who are the ranks, what do they share, and which card has each? */
static int settle(struct demo *demo)
{
	char why[WHY_BYTES];
	int status;

	if (!launch_detect(&demo->launch, why))
		return usage_error("%s", why);
	status = launch_key(&demo->launch, NULL, demo->key);
	if (status >= 0)
		return status;
	if (demo->card)
		return launch_check_card(&demo->launch, demo->card);
	launch_emulated(&demo->launch, "demo", demo->key, demo->default_card);
	demo->card = demo->default_card;
	return -1;
}

static int parse(struct demo *demo, int argc, char **argv)
{
	int c;

	while ((c = getopt_long(argc, argv, "C:w:o:hV", options, NULL)) != -1) {
		int status = take_option(demo, c);

		if (status >= 0)
			return status;
	}
	if (argc - optind != 1)
		return usage_error("one directory of gradients is wanted, not %d", argc - optind);
	demo->directory = argv[optind];
	return settle(demo);
}

static bool run(struct demo *demo, char why[WHY_BYTES])
{
	if (!tensors_load(demo, why))
		return false;
	if (demo->launch.launcher && demo->launch.nranks != demo->nranks)
		return why_set(why, "%u ranks of %s, and gradients of %u in %s",
			       demo->launch.nranks, demo->launch.launcher, demo->nranks,
			       demo->directory);
	if (!demo->launch.rank)
		report_begin(demo);
	if (!ranks_reduce(demo, why))
		return false;
	if (demo->launch.rank)
		return true;
	if (!tensors_verify(demo, why)) {
		report_tensors(demo);
		return false;
	}
	report_tensors(demo);
	return !demo->write || tensors_write(demo, why);
}

int main(int argc, char **argv)
{
	struct demo demo = { .deadline_ms = DEADLINE_MS };
	char why[WHY_BYTES] = "";
	bool good;
	int status;

	tool_name = "optinc-demo";
	argv[0] = (char *)tool_name;	/* for getopt's messages */
	status = parse(&demo, argc, argv);
	if (status >= 0)
		return status;
	good = run(&demo, why);
	if (!demo.launch.rank)
		status = report_end(&demo, good ? NULL : why);
	else
		status = good ? 0 : tool_error("%s", why);
	tensors_free(&demo);
	return tool_finish(status);
}
