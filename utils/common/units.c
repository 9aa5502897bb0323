// SPDX-License-Identifier: GPL-2.0-or-later
/* Numbers with units, in both directions. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common.h"

/* Digits at @text; false if there are none or they do not fit. */
static bool parse_digits(const char *text, uint64_t *value, const char **end)
{
	char *stop;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*value = strtoull(text, &stop, 10);
	*end = stop;
	return !errno;
}

bool units_parse_size(const char *text, uint64_t *value)
{
	static const char prefixes[] = "KMGT";
	const char *end, *prefix;
	unsigned int shift = 0;

	if (!parse_digits(text, value, &end))
		return false;
	prefix = *end ? strchr(prefixes, toupper((unsigned char)*end)) : NULL;
	if (prefix) {
		shift = 10 * (unsigned int)(prefix - prefixes + 1);
		end++;
		if (!strncasecmp(end, "iB", 2))
			end++;
	}
	if (*end == 'B' || *end == 'b')
		end++;
	if (*end || *value > UINT64_MAX >> shift)
		return false;
	*value <<= shift;
	return true;
}

bool units_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	const char *end;

	return parse_digits(text, value, &end) && !*end && *value >= min && *value <= max;
}

/* @value in the largest unit that leaves at least 1 before the point. */
static const char *scaled(double value, double step, const char *const *units, size_t n,
			  char *text, size_t size)
{
	size_t i = 0;

	while (i + 1 < n && value >= step) {
		value /= step;
		i++;
	}
	if (i == 0 || value == (double)(uint64_t)value)
		snprintf(text, size, "%.0f %s", value, units[i]);
	else
		snprintf(text, size, "%.*f %s", value < 10 ? 2 : value < 100 ? 1 : 0, value,
			 units[i]);
	return text;
}

const char *units_bytes(uint64_t bytes, char *text, size_t size)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };

	return scaled((double)bytes, 1024, units, ARRAY_SIZE(units), text, size);
}

const char *units_mbps(uint64_t mbps, char *text, size_t size)
{
	static const char *const units[] = { "Mb/s", "Gb/s", "Tb/s", "Pb/s" };

	return scaled((double)mbps, 1000, units, ARRAY_SIZE(units), text, size);
}

const char *units_ns(uint64_t ns, char *text, size_t size)
{
	static const char *const units[] = { "ns", "us", "ms", "s" };

	return scaled((double)ns, 1000, units, ARRAY_SIZE(units), text, size);
}
