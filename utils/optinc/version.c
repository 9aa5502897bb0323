// SPDX-License-Identifier: GPL-2.0-or-later
/* optinc version: of this tool, of the library that is loaded, of the number format. */
#include <stdio.h>

#include "tool.h"

static void tool_version(char *text, size_t size)
{
	snprintf(text, size, "%d.%d.%d", OPTINC_VERSION_MAJOR, OPTINC_VERSION_MINOR,
		 OPTINC_VERSION_PATCH);
}

int version_run(const struct options *options)
{
	struct json_object *o;
	char tool[32];

	tool_version(tool, sizeof(tool));
	if (options->output == OUTPUT_TEXT) {
		printf("optinc %s, liboptinc %s, number format %d\n", tool,
		       optinc_version_string(), OPTINC_FORMAT_VERSION);
		return 0;
	}
	o = json_object_new_object();
	json_add_string(o, "optinc", tool);
	json_add_string(o, "liboptinc", optinc_version_string());
	json_add_uint(o, "number_format", OPTINC_FORMAT_VERSION);
	output_json(o);
	return 0;
}
