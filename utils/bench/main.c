// SPDX-License-Identifier: GPL-2.0-or-later
/* optinc-bench: time collectives. The ranks are processes, watched by this one. */
#include "bench.h"

#define STALL_MARGIN_MS	30000

int main(int argc, char **argv)
{
	struct bench bench = {
		.min_bytes = 8, .max_bytes = 16u << 20, .factor = 4, .iters = 20, .warmup = 5,
		.check = 1, .dtype = OPTINC_F32, .redop = OPTINC_MEAN, .deadline_ms = 10000,
		.seed = 1,
	};
	struct ranks ranks = { .run = rank_main, .arg = &bench };
	char why[WHY_BYTES];
	int status;

	tool_name = "optinc-bench";
	argv[0] = (char *)tool_name;	/* for getopt's messages */
	status = bench_parse(&bench, argc, argv);
	if (status >= 0)
		return status;

	ranks.first = bench.launch.rank;
	ranks.count = bench.ranks ? bench.ranks : 1;
	ranks.stall_ms = 2 * bench.deadline_ms + STALL_MARGIN_MS;
	if (!ranks.first)
		report_header(&bench);
	status = ranks_run(&ranks, why);
	return tool_finish(status < 0 ? tool_error("%s", why) : status);
}
