// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * format_vectors [SEED] - the cases of format_cases.h with what
 * optinc_reference_allreduce() makes of them, in the text of format_write.h.
 */
#include "format_write.h"

int main(int argc, char **argv)
{
	static unsigned char output[FORMAT_CASE_BYTES];
	static struct format_case c;
	struct optinc_result result;
	unsigned int total = 0;
	uint64_t seed;
	int err;

	if (!format_write_seed(argc, argv, &seed))
		return 2;
	format_write_begin();
	format_case_init(&c, seed);
	while (format_case_next(&c)) {
		memset(output, 0xa5, sizeof(output));
		err = optinc_reference_allreduce(c.inputs, output, c.nranks, c.count, c.dtype,
						 c.redop, c.bits, c.flags, &result);
		if (err) {
			fprintf(stderr, "case %u (%s): %s\n", c.number, c.name, strerror(-err));
			return 1;
		}
		format_write_case(&c, output, result.nonfinite, result.saturated);
		total++;
	}
	return format_write_end(total);
}
