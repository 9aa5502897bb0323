/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Cases of format_cases.h with what something makes of them, as text, for
 * format_check.py, and for whoever wants to hold an implementation against
 * them. One item a line, its name first:
 *
 *	optinc-format-vectors 1
 *	case 17 ties		number and kind, for people
 *	dtype f32		f32 f16 bf16 i8 i16 bit
 *	redop mean		mean sum vote
 *	bits 8
 *	flags parity,sign	any of parity, sign, abstain; - for none
 *	nranks 4
 *	count 257
 *	input 0 1f00c03f...	rank and bytes in hexadecimal, in the order of
 *				little-endian memory; - for no bytes
 *	output 0000803f...	the claim
 *	nonfinite 0
 *	saturated 0		of all ranks together
 *	end
 *	...
 *	total 1518		cases above; a file without it was cut short
 */
#ifndef OPTINC_FORMAT_WRITE_H
#define OPTINC_FORMAT_WRITE_H

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "format_cases.h"

static inline void format_write_bytes(const char *label, const void *data, size_t bytes)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *p = data;
	size_t i;

	printf("%s ", label);
	if (!bytes)
		putchar('-');
	for (i = 0; i < bytes; i++) {
		putchar(digits[p[i] >> 4]);
		putchar(digits[p[i] & 15]);
	}
	putchar('\n');
}

static inline void format_write_flags(unsigned int flags)
{
	static const struct {
		unsigned int flag;
		const char *name;
	} names[] = {
		{ OPTINC_SQE_PARITY, "parity" },
		{ OPTINC_SQE_SIGN, "sign" },
		{ OPTINC_SQE_ABSTAIN, "abstain" },
	};
	const char *between = "";
	size_t i;

	printf("flags ");
	for (i = 0; i < FORMAT_CASE_ARRAY(names); i++) {
		if (!(flags & names[i].flag))
			continue;
		printf("%s%s", between, names[i].name);
		between = ",";
	}
	puts(flags ? "" : "-");
}

static inline void format_write_begin(void)
{
	puts("optinc-format-vectors 1");
}

static inline void format_write_case(const struct format_case *c, const void *output,
				     uint32_t nonfinite, uint32_t saturated)
{
	static const char *const dtypes[OPTINC_DTYPES] = {
		[OPTINC_F32] = "f32", [OPTINC_F16] = "f16", [OPTINC_BF16] = "bf16",
		[OPTINC_I8] = "i8", [OPTINC_I16] = "i16", [OPTINC_BIT] = "bit",
	};
	static const char *const redops[OPTINC_REDOPS] = {
		[OPTINC_MEAN] = "mean", [OPTINC_SUM] = "sum", [OPTINC_VOTE] = "vote",
	};
	unsigned int rank;
	char label[32];

	printf("case %u %s\n", c->number, c->name);
	printf("dtype %s\nredop %s\nbits %u\n", dtypes[c->dtype], redops[c->redop], c->bits);
	format_write_flags(c->flags);
	printf("nranks %u\ncount %zu\n", c->nranks, c->count);
	for (rank = 0; rank < c->nranks; rank++) {
		snprintf(label, sizeof(label), "input %u", rank);
		format_write_bytes(label, c->inputs[rank], optinc_data_bytes(c->count, c->dtype));
	}
	format_write_bytes("output", output,
			   optinc_result_bytes(c->count, c->dtype, c->redop, c->flags));
	printf("nonfinite %" PRIu32 "\nsaturated %" PRIu32 "\nend\n", nonfinite, saturated);
}

/* Returns the exit status. */
static inline int format_write_end(unsigned int total)
{
	printf("total %u\n", total);
	if (fflush(stdout) || ferror(stdout)) {
		perror("standard output");
		return 1;
	}
	return 0;
}

/* The command line of a program that writes cases: [SEED]. */
static inline bool format_write_seed(int argc, char **argv, uint64_t *seed)
{
	char *end;

	*seed = FORMAT_CASE_SEED;
	if (argc < 2)
		return true;
	errno = 0;
	*seed = strtoull(argv[1], &end, 0);
	if (argc == 2 && !errno && !*end && end != argv[1])
		return true;
	fprintf(stderr, "usage: %s [SEED]\n", argv[0]);
	return false;
}

#endif /* OPTINC_FORMAT_WRITE_H */
