// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * "NAME?port=P&ports=N&...", the part of an emu: URI behind the colon.
 * Documentation/emulator.rst has the parameters.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/provider/internal.h"

#define NSEC_PER_SEC	1000000000ULL
#define DURATION_MAX	(2 * NSEC_PER_SEC)	/* delay and jitter together fit wire_ns */

struct parse {
	struct card_config *config;
	const char *key;	/* of the parameter at hand */
	const char *value;
	char *error;
	size_t error_size;
	unsigned int seen;	/* bit: index in parameters[] */
};

static __attribute__((format(printf, 2, 3))) int bad(struct parse *p, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(p->error, p->error_size, format, args);
	va_end(args);
	return -EINVAL;
}

static int parse_number(struct parse *p, uint64_t max, uint64_t *number)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(p->value, &end, 10);
	/* strtoull() takes signs and blanks; a URI does not */
	if (errno || end == p->value || *end || p->value[0] < '0' || p->value[0] > '9' || n > max)
		return bad(p, "%s=%s: a whole number from 0 to %llu is wanted", p->key, p->value,
			   (unsigned long long)max);
	*number = n;
	return 0;
}

/* Decimal point whatever the program's locale is. */
static double to_double(const char *text, char **end)
{
	locale_t c = newlocale(LC_ALL_MASK, "C", NULL);
	double x;

	if (!c) {
		*end = (char *)(uintptr_t)text;
		return 0;
	}
	x = strtod_l(text, end, c);
	freelocale(c);
	return x;
}

static uint64_t unit_of(const char *text)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {
		{ "ns", 1 }, { "us", 1000 }, { "ms", 1000000 }, { "s", NSEC_PER_SEC },
	};
	size_t i;

	for (i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (!strcmp(text, units[i].name))
			return units[i].ns;
	}
	return 0;
}

static int parse_duration(struct parse *p, uint64_t *ns)
{
	char *end;
	double x = to_double(p->value, &end);
	uint64_t unit = unit_of(end);

	if (!strcmp(p->value, "0")) {
		*ns = 0;
		return 0;
	}
	if (end == p->value || p->value[0] < '0' || p->value[0] > '9' || !unit ||
	    !(x * (double)unit <= (double)DURATION_MAX))
		return bad(p, "%s=%s: a time of at most 2s is wanted, such as 500ns, 2us, 1.5ms",
			   p->key, p->value);
	*ns = (uint64_t)(x * (double)unit);
	return 0;
}

static int set_port(struct parse *p)
{
	uint64_t n = 0;
	int rc = parse_number(p, FABRIC_MAX_PORTS - 1, &n);

	p->config->fabric.port = (unsigned int)n;
	return rc;
}

static int set_ports(struct parse *p)
{
	uint64_t n = 0;
	int rc = parse_number(p, FABRIC_MAX_PORTS, &n);

	if (!rc && n < 2)
		return bad(p, "ports=%s: a fabric has 2 to %u ports", p->value, FABRIC_MAX_PORTS);
	p->config->fabric.ports = (unsigned int)n;
	return rc;
}

static int set_seed(struct parse *p)
{
	return parse_number(p, UINT64_MAX, &p->config->fabric.impair.seed);
}

static int set_impair(struct parse *p)
{
	static const struct {
		const char *name;
		uint64_t delay_ns, jitter_ns;
		double loss;
	} presets[] = {
		{ "clean", 0, 0, 0 },
		{ "ethernet", 5 * NSEC_PER_USEC, 2 * NSEC_PER_USEC, 1e-12 },
		{ "wifi", 2 * NSEC_PER_MSEC, 1 * NSEC_PER_MSEC, 1e-8 },
	};
	struct fabric_impairments *impair = &p->config->fabric.impair;
	size_t i;

	for (i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
		if (strcmp(p->value, presets[i].name))
			continue;
		impair->delay_ns = presets[i].delay_ns;
		impair->jitter_ns = presets[i].jitter_ns;
		impair->loss = presets[i].loss;
		return 0;
	}
	return bad(p, "impair=%s: there are clean, ethernet and wifi", p->value);
}

static int set_delay(struct parse *p)
{
	return parse_duration(p, &p->config->fabric.impair.delay_ns);
}

static int set_jitter(struct parse *p)
{
	return parse_duration(p, &p->config->fabric.impair.jitter_ns);
}

static int set_loss(struct parse *p)
{
	char *end;
	double x = to_double(p->value, &end);

	if (end == p->value || *end || p->value[0] < '0' || p->value[0] > '9' ||
	    !(x >= 0 && x < 1))
		return bad(p, "loss=%s: a probability for each symbol is wanted, 0 or more and "
			   "below 1, such as 1e-9", p->value);
	p->config->fabric.impair.loss = x;
	return 0;
}

static int set_dead_lane(struct parse *p)
{
	uint64_t lane = 0;
	int rc = parse_number(p, FABRIC_LANES - 1, &lane);

	if (!rc)
		p->config->fabric.impair.dead_lanes |= 1U << lane;
	return rc;
}

static int set_mute_after(struct parse *p)
{
	return parse_number(p, UINT64_MAX, &p->config->fabric.impair.mute_after);
}

static int set_pace(struct parse *p)
{
	uint64_t n = 0;
	int rc = parse_number(p, 1, &n);

	p->config->fabric.impair.pace = n;
	return rc;
}

static int set_vectors(struct parse *p)
{
	uint64_t n = 0;
	int rc = parse_number(p, OPTINC_CAP1_VECTORS, &n);

	if (!rc && !n)
		return bad(p, "vectors=0: a card has at least one interrupt vector");
	p->config->vectors = (unsigned int)n;
	return rc;
}

/* In the order in which they are obeyed: a preset first, so others refine it. */
static const struct parameter {
	const char *name;
	int (*set)(struct parse *p);
	bool required;
	bool repeats;
} parameters[] = {
	{ "impair", set_impair, false, false },
	{ "port", set_port, true, false },
	{ "ports", set_ports, true, false },
	{ "seed", set_seed, false, false },
	{ "delay", set_delay, false, false },
	{ "jitter", set_jitter, false, false },
	{ "loss", set_loss, false, false },
	{ "dead-lane", set_dead_lane, false, true },
	{ "mute-after", set_mute_after, false, false },
	{ "pace", set_pace, false, false },
	{ "vectors", set_vectors, false, false },
};

#define PARAMETERS	(sizeof(parameters) / sizeof(parameters[0]))

bool emu_uri_parameter(size_t i, const char **name, bool *repeats)
{
	if (i >= PARAMETERS)
		return false;
	*name = parameters[i].name;
	*repeats = parameters[i].repeats;
	return true;
}

static const struct parameter *find(const char *name)
{
	size_t i;

	for (i = 0; i < PARAMETERS; i++) {
		if (!strcmp(parameters[i].name, name))
			return &parameters[i];
	}
	return NULL;
}

/* Splits "key=value" in place. */
static int split(struct parse *p, char *item)
{
	char *equals = strchr(item, '=');

	if (!*item)
		return bad(p, "the URI has an empty parameter; write NAME?port=P&ports=N");
	if (!equals)
		return bad(p, "\"%s\" lacks a value; write %s=...", item, item);
	*equals = '\0';
	p->key = item;
	p->value = equals + 1;
	return 0;
}

/* Checks that each parameter is known, and given once. */
static int check_names(struct parse *p, char *query)
{
	char *save = NULL, *item;
	int rc;

	for (item = strtok_r(query, "&", &save); item; item = strtok_r(NULL, "&", &save)) {
		const struct parameter *parameter;
		unsigned int bit;

		rc = split(p, item);
		if (rc)
			return rc;
		parameter = find(p->key);
		if (!parameter)
			return bad(p, "emulated cards have no parameter \"%s\"", p->key);
		bit = 1U << (parameter - parameters);
		if (p->seen & bit && !parameter->repeats)
			return bad(p, "parameter \"%s\" is given twice", p->key);
		p->seen |= bit;
	}
	return 0;
}

static int apply(struct parse *p, char *query, const struct parameter *parameter)
{
	char *save = NULL, *item;
	int rc;

	for (item = strtok_r(query, "&", &save); item; item = strtok_r(NULL, "&", &save)) {
		rc = split(p, item);
		if (!rc && !strcmp(p->key, parameter->name))
			rc = parameter->set(p);
		if (rc)
			return rc;
	}
	return 0;
}

static int check_required(struct parse *p)
{
	size_t i;

	for (i = 0; i < PARAMETERS; i++) {
		if (parameters[i].required && !(p->seen & 1U << i))
			return bad(p, "parameter \"%s\" is missing; write emu:NAME?port=P&ports=N",
				   parameters[i].name);
	}
	if (p->config->fabric.port >= p->config->fabric.ports)
		return bad(p, "port=%u: a fabric with ports=%u has ports 0 to %u",
			   p->config->fabric.port, p->config->fabric.ports,
			   p->config->fabric.ports - 1);
	return 0;
}

/* Parsing cuts the text up, so each pass gets a copy. */
static int each_pass(struct parse *p, const char *query,
		     int (*pass)(struct parse *p, char *query, const struct parameter *parameter),
		     const struct parameter *parameter)
{
	char *copy = strdup(query);
	int rc;

	if (!copy)
		return -ENOMEM;
	rc = pass(p, copy, parameter);
	free(copy);
	return rc;
}

static int names_pass(struct parse *p, char *query, const struct parameter *parameter)
{
	(void)parameter;
	return check_names(p, query);
}

static int set_name(struct parse *p, const char *rest, size_t length)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789._-";
	char *name = p->config->fabric.name;

	if (!length || length >= sizeof(p->config->fabric.name) || strspn(rest, allowed) < length)
		return bad(p, "a fabric's name has 1 to %zu letters, digits, '.', '_' and '-'; "
			   "write emu:NAME?port=P&ports=N", sizeof(p->config->fabric.name) - 1);
	memcpy(name, rest, length);
	name[length] = '\0';
	return 0;
}

int emu_uri_parse(const char *rest, struct card_config *config, char *error, size_t error_size)
{
	struct parse p = { .config = config, .error = error, .error_size = error_size };
	size_t length = strcspn(rest, "?");
	const char *query = rest[length] ? rest + length + 1 : "";
	size_t i;
	int rc;

	memset(config, 0, sizeof(*config));
	config->vectors = EMU_VECTORS;
	rc = set_name(&p, rest, length);
	if (!rc)
		rc = each_pass(&p, query, names_pass, NULL);
	for (i = 0; !rc && i < PARAMETERS; i++) {
		if (p.seen & 1U << i)
			rc = each_pass(&p, query, apply, &parameters[i]);
	}
	if (!rc)
		rc = check_required(&p);
	if (rc == -ENOMEM)
		snprintf(error, error_size, "out of memory");
	return rc;
}
