// SPDX-License-Identifier: GPL-2.0-or-later
/* Output for programs: JSON through json-c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common.h"

bool output_parse(const char *text, enum output *output)
{
	if (!strcmp(text, "text"))
		*output = OUTPUT_TEXT;
	else if (!strcmp(text, "json"))
		*output = OUTPUT_JSON;
	else
		return false;
	return true;
}

void output_json(struct json_object *object)
{
	puts(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY |
					    JSON_C_TO_STRING_SPACED |
					    JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(object);
}

void json_add_string(struct json_object *object, const char *name, const char *value)
{
	json_object_object_add(object, name, value ? json_object_new_string(value) : NULL);
}

void json_add_uint(struct json_object *object, const char *name, uint64_t value)
{
	json_object_object_add(object, name, json_object_new_uint64(value));
}

void json_add_bool(struct json_object *object, const char *name, bool value)
{
	json_object_object_add(object, name, json_object_new_boolean(value));
}

void json_add_double(struct json_object *object, const char *name, double value)
{
	char text[32];

	if (!isfinite(value)) {
		json_object_object_add(object, name, NULL);
		return;
	}
	/* Six digits of a measurement are enough, and 17 are unreadable. */
	snprintf(text, sizeof(text), "%.6g", value);
	json_object_object_add(object, name, json_object_new_double_s(value, text));
}
