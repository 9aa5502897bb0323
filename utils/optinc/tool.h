/* SPDX-License-Identifier: GPL-2.0-or-later */
/* optinc: look at cards. One file per subcommand, one table of them in main.c. */
#ifndef OPTINC_UTILS_TOOL_H
#define OPTINC_UTILS_TOOL_H

#include "../common/common.h"

#define DEFAULT_CARD	"card:0"

/**
 * struct options - what every subcommand takes
 * @card: --card or $OPTINC_CARD, NULL when neither is given
 */
struct options {
	enum output output;
	const char *card;
};

/**
 * struct command - a subcommand
 * @summary: a line for the list of them
 * @help: what it does, below the usage line
 * @run: returns the exit status
 */
struct command {
	const char *name;
	const char *summary;
	const char *help;
	int (*run)(const struct options *options);
};

int list_run(const struct options *options);
int info_run(const struct options *options);
int why_run(const struct options *options);
int version_run(const struct options *options);

/* Open the card that the options name; 0 or an exit status, after the error message. */
int open_card(const struct options *options, struct optinc_card **card);

/**
 * struct link - a PCI function's link; zero where it is not known
 * @gone: nothing answers in the slot any more, so nothing else is known
 * @gts: rate of a lane in tenths of GT/s
 */
struct link {
	unsigned int vendor, device;
	unsigned int width, max_width;
	unsigned int gts, max_gts;
	bool gone;
};

/* Through libpci. False, with a sentence in @why, if it fails altogether. */
bool link_read(const char *slot, struct link *link, char why[WHY_BYTES]);

#endif /* OPTINC_UTILS_TOOL_H */
