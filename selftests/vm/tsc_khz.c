// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How fast this machine's time stamp counter counts, in kHz. QEMU's processor
 * has the same one. A guest that measures it itself may be off by any factor
 * when the machine is busy.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

#define MEASURE_NS	50000000L

struct moment {
	uint64_t ns, ticks;
};

/* Both at once, as far as can be: of some tries that with the least between */
static struct moment look(void)
{
	struct moment best = { 0 };
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 20; i++) {
		struct timespec ts;
		uint64_t before = __rdtsc(), after;

		clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
		after = __rdtsc();
		if (after - before >= least)
			continue;
		least = after - before;
		best.ns = (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
		best.ticks = before + least / 2;
	}
	return best;
}

int main(void)
{
	const struct timespec pause = { .tv_nsec = MEASURE_NS };
	struct moment a = look(), b;

	nanosleep(&pause, NULL);
	b = look();
	printf("%llu\n", (unsigned long long)((b.ticks - a.ticks) * 1000000 / (b.ns - a.ns)));
	return 0;
}
