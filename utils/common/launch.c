// SPDX-License-Identifier: GPL-2.0-or-later
/* Rank and size from the environment that a launcher leaves. */
#include <stdio.h>
#include <stdlib.h>

#include "common.h"

static const struct {
	const char *launcher;
	const char *rank;
	const char *size;
} launchers[] = {
	{ "Open MPI",		"OMPI_COMM_WORLD_RANK",	"OMPI_COMM_WORLD_SIZE" },
	{ "PMI",		"PMI_RANK",		"PMI_SIZE" },
	{ "Slurm",		"SLURM_PROCID",		"SLURM_NTASKS" },
	{ "the environment",	"RANK",			"WORLD_SIZE" },
};

bool launch_detect(struct launch *launch, char why[WHY_BYTES])
{
	size_t i;

	launch->launcher = NULL;
	launch->rank = 0;
	launch->nranks = 1;
	for (i = 0; i < ARRAY_SIZE(launchers); i++) {
		const char *rank_text = getenv(launchers[i].rank);
		const char *size_text = getenv(launchers[i].size);
		uint64_t rank, size;

		if (!rank_text || !size_text)
			continue;
		if (!units_parse_number(size_text, 1, 1u << 20, &size) ||
		    !units_parse_number(rank_text, 0, size - 1, &rank))
			return why_set(why, "%s=%.40s and %s=%.40s are no rank and size",
				       launchers[i].rank, rank_text, launchers[i].size, size_text);
		if (size == 1)
			continue;
		launch->launcher = launchers[i].launcher;
		launch->rank = (unsigned int)rank;
		launch->nranks = (unsigned int)size;
		return true;
	}
	return true;
}
