// SPDX-License-Identifier: GPL-2.0-or-later
/* The command line, and the environment of a launcher. */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"

static const char help[] =
"usage: optinc-bench [OPTION]...\n"
"\n"
"Time collectives over a range of sizes and compare every bit with the reference.\n"
"\n"
"sizes (with K, M, G)\n"
"  -b, --minbytes SIZE      smallest (8)\n"
"  -e, --maxbytes SIZE      largest (16M)\n"
"  -f, --stepfactor N       from one to the next, times (4)\n"
"  -i, --stepbytes SIZE     or plus\n"
"what\n"
"  -C, --collective NAME    allreduce, broadcast or barrier (allreduce)\n"
"  -d, --datatype TYPE      f32, f16, bf16, i8, i16 or bit (f32)\n"
"  -o, --op OP              mean, sum or vote (mean; vote for bit)\n"
"      --bits N             width of a code, 8 or 16 (8; 16 for i16)\n"
"  -r, --root RANK          of a broadcast (0)\n"
"      --unregistered       do not register the buffers beforehand\n"
"how\n"
"  -n, --iters N            timed calls (20)\n"
"  -w, --warmup_iters N     calls before them (5)\n"
"  -c, --check N            0: no, 1: up to 16 MiB, 2: always (1)\n"
"      --seed N             of the data (1)\n"
"      --deadline-ms N      how long ranks wait for each other (10000)\n"
"  -J, --json               JSON instead of the table\n"
"ranks\n"
"  -g, --ranks N            start N ranks here (4)\n"
"      --card URI           card of each rank: %r is the rank, %n their number;\n"
"                           default is an emulated fabric on this machine\n"
"      --key HEX            the group's key, for ranks that a launcher started;\n"
"                           better in $OPTINC_KEY\n"
"  -h, --help\n"
"  -V, --version\n";

enum { OPT_BITS = 256, OPT_CARD, OPT_KEY, OPT_DEADLINE, OPT_SEED, OPT_UNREGISTERED };

static const struct option options[] = {
	{ "minbytes",	  required_argument, NULL, 'b' },
	{ "maxbytes",	  required_argument, NULL, 'e' },
	{ "stepfactor",	  required_argument, NULL, 'f' },
	{ "stepbytes",	  required_argument, NULL, 'i' },
	{ "iters",	  required_argument, NULL, 'n' },
	{ "warmup_iters", required_argument, NULL, 'w' },
	{ "check",	  required_argument, NULL, 'c' },
	{ "datatype",	  required_argument, NULL, 'd' },
	{ "op",		  required_argument, NULL, 'o' },
	{ "collective",	  required_argument, NULL, 'C' },
	{ "root",	  required_argument, NULL, 'r' },
	{ "ranks",	  required_argument, NULL, 'g' },
	{ "json",	  no_argument,	     NULL, 'J' },
	{ "bits",	  required_argument, NULL, OPT_BITS },
	{ "card",	  required_argument, NULL, OPT_CARD },
	{ "key",	  required_argument, NULL, OPT_KEY },
	{ "deadline-ms",  required_argument, NULL, OPT_DEADLINE },
	{ "seed",	  required_argument, NULL, OPT_SEED },
	{ "unregistered", no_argument,	     NULL, OPT_UNREGISTERED },
	{ "help",	  no_argument,	     NULL, 'h' },
	{ "version",	  no_argument,	     NULL, 'V' },
	{ NULL, 0, NULL, 0 }
};

/* What is not known until all options are. */
struct pending {
	bool dtype, redop;
	const char *key;
};

static bool take_size(uint64_t *value)
{
	return units_parse_size(optarg, value) && *value > 0;
}

static bool take_number(unsigned int *value, uint64_t min, uint64_t max)
{
	uint64_t number;

	if (!units_parse_number(optarg, min, max, &number))
		return false;
	*value = (unsigned int)number;
	return true;
}

static bool take_collective(enum collective *collective)
{
	if (!strcmp(optarg, "allreduce") || !strcmp(optarg, "all_reduce"))
		*collective = ALLREDUCE;
	else if (!strcmp(optarg, "broadcast"))
		*collective = BROADCAST;
	else if (!strcmp(optarg, "barrier"))
		*collective = BARRIER;
	else
		return false;
	return true;
}

/* Options with an argument that may be wrong. */
static bool take_value(struct bench *b, struct pending *p, int c)
{
	switch (c) {
	case 'b':
		return take_size(&b->min_bytes);
	case 'e':
		return take_size(&b->max_bytes);
	case 'i':
		return take_size(&b->step_bytes);
	case 'f':
		return units_parse_number(optarg, 2, UINT32_MAX, &b->factor);
	case 'n':
		return take_number(&b->iters, 1, 100000000);
	case 'w':
		return take_number(&b->warmup, 0, 100000000);
	case 'c':
		return take_number(&b->check, 0, 2);
	case 'r':
		return take_number(&b->root, 0, OPTINC_MAX_RANKS - 1);
	case 'g':
		return take_number(&b->ranks, 2, OPTINC_MAX_RANKS);
	case 'C':
		return take_collective(&b->collective);
	case 'd':
		p->dtype = true;
		return dtype_parse(optarg, &b->dtype);
	case 'o':
		p->redop = true;
		return redop_parse(optarg, &b->redop);
	case OPT_BITS:
		return take_number(&b->bits, 8, 16) && (b->bits == 8 || b->bits == 16);
	case OPT_DEADLINE:
		return take_number(&b->deadline_ms, 1, 3600000);
	default:
		return units_parse_number(optarg, 0, UINT64_MAX, &b->seed);
	}
}

/* -1 to go on, else the exit status. */
static int take_option(struct bench *b, struct pending *p, int c, const char *name)
{
	switch (c) {
	case 'J':
		b->output = OUTPUT_JSON;
		return -1;
	case OPT_CARD:
		b->card = optarg;
		return -1;
	case OPT_KEY:
		p->key = optarg;
		return -1;
	case OPT_UNREGISTERED:
		b->unregistered = true;
		return -1;
	case 'h':
		fputs(help, stdout);
		return tool_finish(0);
	case 'V':
		printf("optinc-bench %s\n", optinc_version_string());
		return tool_finish(0);
	case '?':
		return EXIT_USAGE;	/* getopt has said why */
	default:
		return take_value(b, p, c) ? -1 : usage_error("%s: not a valid value: %s", name,
							      optarg);
	}
}

static const char *option_name(int c, char text[32])
{
	size_t i;

	for (i = 0; options[i].name; i++) {
		if (options[i].val == c)
			snprintf(text, 32, "--%s", options[i].name);
	}
	return text;
}

/* Defaults that depend on other options, and combinations that do not exist. */
static int settle_format(struct bench *b, const struct pending *p)
{
	if (!p->redop && b->dtype == OPTINC_BIT)
		b->redop = OPTINC_VOTE;
	if (!b->bits)
		b->bits = b->dtype == OPTINC_I16 ? 16 : 8;
	if (b->collective != ALLREDUCE) {
		if (p->dtype || p->redop)
			return usage_error("-d and -o are for allreduce");
		return -1;
	}
	if (!optinc_result_bytes(1, b->dtype, b->redop, 0))
		return usage_error("-d %s -o %s: there is no such reduction",
				   optinc_dtype_name(b->dtype), optinc_redop_name(b->redop));
	if ((b->dtype == OPTINC_I8 && b->bits != 8) || (b->dtype == OPTINC_I16 && b->bits != 16))
		return usage_error("-d %s --bits %u: raw codes have the width of the group",
				   optinc_dtype_name(b->dtype), b->bits);
	return -1;
}

static int settle_sizes(struct bench *b)
{
	if (b->collective == BARRIER) {
		b->min_bytes = 1;
		b->max_bytes = 1;
	}
	if (b->max_bytes < b->min_bytes)
		return usage_error("-e is smaller than -b");
	if (!data_count(b, b->min_bytes))
		return usage_error("-b %llu: less than one element of %s",
				   (unsigned long long)b->min_bytes, optinc_dtype_name(b->dtype));
	return -1;
}

/* Who are the ranks? -g means this command's own, whatever the environment says. */
static int settle_ranks(struct bench *b)
{
	char why[WHY_BYTES];

	if (!b->ranks) {
		if (!launch_detect(&b->launch, why))
			return usage_error("%s", why);
		if (!b->launch.launcher)
			b->ranks = 4;
	}
	if (b->ranks)
		b->launch = (struct launch){ .nranks = b->ranks };
	if (b->launch.nranks > OPTINC_MAX_RANKS)
		return usage_error("%u ranks of %s: a group has at most %d", b->launch.nranks,
				   b->launch.launcher, OPTINC_MAX_RANKS);
	if (b->root >= b->launch.nranks)
		return usage_error("-r %u: there are %u ranks", b->root, b->launch.nranks);
	return -1;
}

static int settle_card(struct bench *b)
{
	if (b->card)
		return launch_check_card(&b->launch, b->card);
	launch_emulated(&b->launch, "bench", b->key, b->default_card);
	b->card = b->default_card;
	return -1;
}

int bench_parse(struct bench *b, int argc, char **argv)
{
	struct pending p = { 0 };
	char name[32] = "";
	int c, status;

	while ((c = getopt_long(argc, argv, "b:e:f:i:n:w:c:d:o:C:r:g:JhV", options, NULL)) != -1) {
		status = take_option(b, &p, c, option_name(c, name));
		if (status >= 0)
			return status;
	}
	if (optind < argc)
		return usage_error("%s: no such argument", argv[optind]);
	if ((status = settle_format(b, &p)) >= 0 || (status = settle_sizes(b)) >= 0 ||
	    (status = settle_ranks(b)) >= 0 ||
	    (status = launch_key(&b->launch, p.key, b->key)) >= 0)
		return status;
	return settle_card(b);
}
