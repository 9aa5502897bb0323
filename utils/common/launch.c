// SPDX-License-Identifier: GPL-2.0-or-later
/* Rank, size and key from the environment that a launcher leaves. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

int launch_key(const struct launch *launch, const char *text, uint8_t key[OPTINC_KEY_BYTES])
{
	if (!text)
		text = getenv("OPTINC_KEY");
	if (text && *text) {
		if (!optinc_key_parse(text, key))
			return -1;
		return usage_error("the group key is not 32 hexadecimal digits");
	}
	if (launch->launcher) {
		tool_error("started by %s without a group key: before that, on one machine, "
			   "export OPTINC_KEY=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n')",
			   launch->launcher);
		return EXIT_USAGE;
	}
	if (optinc_key_generate(key))
		return tool_error("group key: %s", optinc_last_error());
	return -1;
}

/* FNV-1a: ranks that share a key find one fabric, and other jobs another. */
static uint32_t key_hash(const uint8_t *key)
{
	uint32_t hash = 0x811c9dc5;
	size_t i;

	for (i = 0; i < OPTINC_KEY_BYTES; i++)
		hash = (hash ^ key[i]) * 0x01000193;
	return hash;
}

void launch_emulated(const struct launch *launch, const char *prefix,
		     const uint8_t key[OPTINC_KEY_BYTES], char card[URI_BYTES])
{
	if (launch->launcher)
		snprintf(card, URI_BYTES, "emu:%s-%08x?port=%%r&ports=%%n", prefix, key_hash(key));
	else
		snprintf(card, URI_BYTES, "emu:%s-%d?port=%%r&ports=%%n", prefix, (int)getpid());
}

int launch_check_card(const struct launch *launch, const char *card)
{
	/* Ranks on machines of their own may all say card:0. */
	if ((!launch->launcher || uri_emulated(card)) && !uri_has_rank(card))
		return usage_error("--card %s: %%r is missing, all ranks would open one card",
				   card);
	return -1;
}
