// SPDX-License-Identifier: GPL-2.0-or-later
/* optinc why: can a card be used, and if not, why? */
#include <stdio.h>

#include "tool.h"

static void print_why(const struct options *options, const char *uri, const struct optinc_why *why)
{
	struct json_object *o;

	if (options->output == OUTPUT_TEXT) {
		printf("%-8s %s\n%-8s %s\n%-8s %s\n%-8s %s\n", "card", uri, "used",
		       why->used ? "yes" : "no", "reason", optinc_reason_name(why->reason), "why",
		       why->text);
		return;
	}
	o = json_object_new_object();
	json_add_string(o, "card", uri);
	json_add_bool(o, "used", why->used);
	json_add_string(o, "reason", optinc_reason_name(why->reason));
	json_add_string(o, "why", why->text);
	output_json(o);
}

int why_run(const struct options *options)
{
	const char *uri = options->card ? options->card : DEFAULT_CARD;
	struct optinc_card *card = NULL;
	struct optinc_why why;
	int ret = optinc_open(uri, &card);

	ret = optinc_why(ret ? NULL : card, &why);
	optinc_close(card);
	if (ret)
		return tool_error("why: %s", optinc_last_error());
	print_why(options, uri, &why);
	return why.reason == OPTINC_REASON_USED || why.reason == OPTINC_REASON_IDLE ?
	       0 : EXIT_FAIL;
}
