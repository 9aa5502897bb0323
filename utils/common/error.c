// SPDX-License-Identifier: GPL-2.0-or-later
/* Errors of the tools: one line each, on stderr. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common.h"

const char *tool_name = "optinc";

static void print_error(const char *fmt, va_list args, const char *end)
{
	char text[1024];

	vsnprintf(text, sizeof(text), fmt, args);
	fflush(stdout);
	fprintf(stderr, "%s: %s%s", tool_name, text, end);
}

int tool_error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	print_error(fmt, args, "\n");
	va_end(args);
	return EXIT_FAIL;
}

int usage_error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	print_error(fmt, args, ": see --help\n");
	va_end(args);
	return EXIT_USAGE;
}

bool why_set(char why[WHY_BYTES], const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, WHY_BYTES, fmt, args);
	va_end(args);
	return false;
}

int tool_finish(int status)
{
	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	return tool_error("cannot write to standard output: %s",
			  errno ? strerror(errno) : "write error");
}
