// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * format_vectors [SEED] - the cases of format_cases.h with what
 * optinc_reference_allreduce() makes of them, for format_check.py, and for
 * whoever wants to hold an implementation against them.
 *
 * The text on standard output has one item a line, its name first:
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
 *	saturated 0
 *	end
 *	...
 *	total 1320		cases above; a file without it was cut short
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "format_cases.h"

static const char *const dtype_names[OPTINC_DTYPES] = {
	[OPTINC_F32] = "f32", [OPTINC_F16] = "f16", [OPTINC_BF16] = "bf16",
	[OPTINC_I8] = "i8", [OPTINC_I16] = "i16", [OPTINC_BIT] = "bit",
};

static const char *const redop_names[OPTINC_REDOPS] = {
	[OPTINC_MEAN] = "mean", [OPTINC_SUM] = "sum", [OPTINC_VOTE] = "vote",
};

static void print_bytes(const char *label, const void *data, size_t bytes)
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

static void print_flags(unsigned int flags)
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

static void print_case(const struct format_case *c, const void *output,
		       const struct optinc_result *result)
{
	unsigned int rank;
	char label[32];

	printf("case %u %s\n", c->number, c->name);
	printf("dtype %s\nredop %s\nbits %u\n", dtype_names[c->dtype], redop_names[c->redop],
	       c->bits);
	print_flags(c->flags);
	printf("nranks %u\ncount %zu\n", c->nranks, c->count);
	for (rank = 0; rank < c->nranks; rank++) {
		snprintf(label, sizeof(label), "input %u", rank);
		print_bytes(label, c->inputs[rank], optinc_data_bytes(c->count, c->dtype));
	}
	print_bytes("output", output,
		    optinc_result_bytes(c->count, c->dtype, c->redop, c->flags));
	printf("nonfinite %" PRIu32 "\nsaturated %" PRIu32 "\nend\n", result->nonfinite,
	       result->saturated);
}

int main(int argc, char **argv)
{
	static unsigned char output[FORMAT_CASE_BYTES];
	static struct format_case c;
	uint64_t seed = FORMAT_CASE_SEED;
	struct optinc_result result;
	unsigned int total = 0;
	char *end;
	int err;

	if (argc > 1) {
		errno = 0;
		seed = strtoull(argv[1], &end, 0);
		if (argc > 2 || errno || *end || end == argv[1]) {
			fprintf(stderr, "usage: %s [SEED]\n", argv[0]);
			return 2;
		}
	}

	puts("optinc-format-vectors 1");
	format_case_init(&c, seed);
	while (format_case_next(&c)) {
		memset(output, 0xa5, sizeof(output));
		err = optinc_reference_allreduce(c.inputs, output, c.nranks, c.count, c.dtype,
						 c.redop, c.bits, c.flags, &result);
		if (err) {
			fprintf(stderr, "case %u (%s): %s\n", c.number, c.name, strerror(-err));
			return 1;
		}
		print_case(&c, output, &result);
		total++;
	}
	printf("total %u\n", total);
	if (fflush(stdout) || ferror(stdout)) {
		perror("standard output");
		return 1;
	}
	return 0;
}
