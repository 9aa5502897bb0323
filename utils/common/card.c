// SPDX-License-Identifier: GPL-2.0-or-later
/* Names of cards, types and reductions on command lines. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common.h"

bool uri_expand(const char *template, unsigned int rank, unsigned int nranks,
		char uri[URI_BYTES])
{
	size_t used = 0;

	for (; *template; template++) {
		int n;

		if (template[0] == '%' && template[1] == 'r')
			n = snprintf(uri + used, URI_BYTES - used, "%u", rank);
		else if (template[0] == '%' && template[1] == 'n')
			n = snprintf(uri + used, URI_BYTES - used, "%u", nranks);
		else
			n = snprintf(uri + used, URI_BYTES - used, "%c", *template);
		if (n < 0 || used + (size_t)n >= URI_BYTES)
			return false;
		used += (size_t)n;
		if (template[0] == '%' && template[1] && strchr("rn%", template[1]))
			template++;
	}
	uri[used] = '\0';
	return used > 0;
}

bool uri_has_rank(const char *template)
{
	for (; *template; template++) {
		if (template[0] != '%')
			continue;
		if (template[1] == 'r')
			return true;
		if (template[1])
			template++;
	}
	return false;
}

bool uri_emulated(const char *uri)
{
	return !strncmp(uri, "emu:", 4);
}

bool dtype_parse(const char *text, enum optinc_dtype *dtype)
{
	static const struct {
		const char *name;
		enum optinc_dtype dtype;
	} others[] = {
		{ "float", OPTINC_F32 }, { "float32", OPTINC_F32 }, { "half", OPTINC_F16 },
		{ "float16", OPTINC_F16 }, { "bfloat16", OPTINC_BF16 }, { "int8", OPTINC_I8 },
		{ "int16", OPTINC_I16 },
	};
	size_t i;

	for (i = 0; i < OPTINC_U8; i++) {
		if (!strcmp(text, optinc_dtype_name((enum optinc_dtype)i))) {
			*dtype = (enum optinc_dtype)i;
			return true;
		}
	}
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		if (!strcmp(text, others[i].name)) {
			*dtype = others[i].dtype;
			return true;
		}
	}
	return false;
}

bool redop_parse(const char *text, enum optinc_redop *redop)
{
	unsigned int i;

	for (i = 0; i < OPTINC_REDOPS; i++) {
		if (!strcmp(text, optinc_redop_name((enum optinc_redop)i))) {
			*redop = (enum optinc_redop)i;
			return true;
		}
	}
	if (strcmp(text, "avg"))
		return false;
	*redop = OPTINC_MEAN;
	return true;
}

double snr_db(double signal, double noise)
{
	if (noise > 0)
		return 10 * log10(signal / noise);
	return signal > 0 ? INFINITY : NAN;
}

uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
