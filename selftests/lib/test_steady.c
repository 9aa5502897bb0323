// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a request costs once a group is joined, if its callers poll: no system
 * call, no interrupt, one doorbell; and one doorbell for a batch.
 *
 * Two ranks all-reduce 4 KiB, from registered memory and from memory that the
 * library copies. strace(1) counts the system calls of the whole process: a
 * thousand requests and ten thousand need the same. On emulated cards it
 * counts those of the calling thread; the service thread, which stands for
 * the card's own processor, looks around by the clock.
 *
 * OPTINC_TEST_CARDS is the URI with %d for the rank, by default that of an
 * emulated fabric.
 *
 * usage: test_steady
 *	  test_steady RANK REQUESTS KEY URI	one rank, for itself
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optinc/optinc.h>

#define COUNT		1024		/* elements: 4 KiB */
#define BATCH		16
#define SPIN_US		1000000L	/* never sleep */
#define MARK		"getppid"	/* nobody else calls it */
#define MARKS		4
#define FEW		1000
#define MANY		10000
/* A machine that stalls for half a second makes a waiter ask the card for its health. */
#define ATTEMPTS	3

/* ------------------------------------------------------------- one rank */

/* What a rank has to say. */
struct report {
	unsigned long requests, batches;
	unsigned long doorbells, batch_doorbells;	/* used by these */
	unsigned long interrupts;
};

static void __attribute__((noreturn)) give_up(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, optinc_last_error());
	exit(1);
}

static uint64_t doorbells(struct optinc_card *card)
{
	struct optinc_card_stats stats;

	if (optinc_card_stats(card, &stats, sizeof(stats)))
		give_up("stats");
	return stats.doorbells;
}

/* Of all vectors of the card; the number of reads does not depend on the content. */
static unsigned long interrupts(const char *uri)
{
	static char text[64 * 4096];
	unsigned long sum = 0;
	size_t have = 0;
	int fd = open("/proc/interrupts", O_RDONLY);
	char name[32];

	snprintf(name, sizeof(name), " optinc%d-", atoi(strchr(uri, ':') + 1));
	for (unsigned int i = 0; i < 64; i++) {
		ssize_t n = read(fd, text + have, sizeof(text) - 1 - have);

		have += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	text[have] = '\0';
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char *at = strchr(line, ':'), *end;

		if (!at || !strstr(at, name))
			continue;
		for (at++;; at = end) {
			unsigned long n = strtoul(at, &end, 10);

			if (end == at || *end != ' ')
				break;
			sum += n;
		}
	}
	return sum;
}

static void reduce(struct optinc_group *group, float *registered, unsigned long n)
{
	static float copied[2 * COUNT];

	while (n--) {
		float *at = n % 2 ? registered : copied;

		if (optinc_allreduce(group, at, at + COUNT, COUNT, OPTINC_F32, OPTINC_MEAN, NULL,
				     NULL))
			give_up("all-reduce");
	}
}

static void reduce_batch(struct optinc_group *group, float *memory)
{
	struct optinc_request *requests[BATCH];

	optinc_batch_begin(group);
	for (unsigned int i = 0; i < BATCH; i++)
		if (optinc_iallreduce(group, memory, memory + COUNT, COUNT, OPTINC_F32,
				      OPTINC_MEAN, NULL, &requests[i]))
			give_up("submit");
	optinc_batch_end(group);
	for (unsigned int i = 0; i < BATCH; i++)
		if (optinc_wait(requests[i], -1, NULL))
			give_up("wait");
}

static void mark(void)
{
	syscall(SYS_getppid);
}

static int be_rank(unsigned int rank, unsigned long requests, const char *key, const char *uri)
{
	static float memory[2 * COUNT];
	struct optinc_group_params params = { .rank = rank, .nranks = 2 };
	struct report report = { .requests = requests, .batches = FEW / BATCH };
	struct optinc_group *group;
	struct optinc_card *card;
	struct optinc_mr *mr;
	uint64_t before;

	for (unsigned int i = 0; i < COUNT; i++)
		memory[i] = (float)(int)(i * 37 % 199) * 0.01f;
	if (optinc_open(uri, &card) || optinc_card_set(card, OPTINC_OPTION_SPIN_US, SPIN_US) ||
	    optinc_mr_register(card, memory, sizeof(memory), OPTINC_MR_WRITE, &mr) ||
	    optinc_key_parse(key, params.key) ||
	    optinc_group_join(card, &params, sizeof(params), &group))
		give_up(uri);
	/* what the first requests of both kinds set up */
	reduce(group, memory, 2);
	before = doorbells(card);
	report.interrupts = interrupts(uri);
	mark();
	reduce(group, memory, requests);
	mark();
	report.interrupts = interrupts(uri) - report.interrupts;
	report.doorbells = doorbells(card) - before;
	before = doorbells(card);
	mark();
	for (unsigned long i = 0; i < report.batches; i++)
		reduce_batch(group, memory);
	mark();
	report.batch_doorbells = doorbells(card) - before;
	/* the other one may be in the midst of the last */
	if (optinc_barrier(group, NULL, NULL))
		give_up("barrier");
	optinc_close(card);
	return write(STDOUT_FILENO, &report, sizeof(report)) != sizeof(report);
}

/* -------------------------------------------------------------- the test */

static const char *self;
static unsigned int number, failures;
static bool emulated;

static void ok(bool good, const char *what)
{
	printf("%sok %u - %s\n", good ? "" : "not ", ++number, what);
	fflush(stdout);
	failures += !good;
}

static void skip(const char *why)
{
	for (int i = 0; i < (emulated ? 1 : 2); i++)
		printf("ok %u - system calls # SKIP %s\n", ++number, why);
}

static int processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

static void uri_of(unsigned int rank, char *uri, size_t size)
{
	const char *template = getenv("OPTINC_TEST_CARDS"), *mark;

	mark = template ? strstr(template, "%d") : NULL;
	if (mark)
		snprintf(uri, size, "%.*s%u%s", (int)(mark - template), template, rank, mark + 2);
	else
		snprintf(uri, size, "emu:steady-%d?port=%u&ports=2", getpid(), rank);
}

/* System calls by name, and those that were made between two calls of mark() */
struct calls {
	unsigned int kinds, marks;
	unsigned long steady;
	char first[32];			/* of these */
	struct {
		char name[32];
		unsigned long count;
	} of[64];
};

static void count(struct calls *calls, const char *name)
{
	unsigned int i;

	for (i = 0; i < calls->kinds && strcmp(calls->of[i].name, name); i++)
		;
	if (i == 64)
		return;
	if (i == calls->kinds) {
		snprintf(calls->of[i].name, sizeof(calls->of[i].name), "%s", name);
		calls->kinds++;
	}
	calls->of[i].count++;
	if (!strcmp(name, MARK))
		calls->marks++;
	else if (calls->marks % 2 && !calls->steady++)
		snprintf(calls->first, sizeof(calls->first), "%s", name);
}

/* strace(1)'s output: a line for each call, which may have a process before it */
static bool read_trace(const char *path, struct calls *calls)
{
	FILE *file = fopen(path, "r");
	char line[4096], name[32];

	memset(calls, 0, sizeof(*calls));
	while (file && fgets(line, sizeof(line), file)) {
		const char *at = line + strspn(line, "0123456789 ");

		/* neither "<... resumed>" nor "+++ exited +++" */
		if (sscanf(at, "%31[a-z0-9_](", name) == 1 && strchr(at, '('))
			count(calls, name);
	}
	if (file)
		fclose(file);
	return calls->marks == MARKS;
}

static unsigned long count_of(const struct calls *calls, const char *name)
{
	for (unsigned int i = 0; i < calls->kinds; i++)
		if (!strcmp(calls->of[i].name, name))
			return calls->of[i].count;
	return 0;
}

static unsigned long total(const struct calls *calls)
{
	unsigned long sum = 0;

	for (unsigned int i = 0; i < calls->kinds; i++)
		sum += calls->of[i].count;
	return sum;
}

/* Says what differs. */
static bool equal(unsigned int rank, const struct calls *few, const struct calls *many)
{
	bool same = true;

	for (unsigned int i = 0; i < few->kinds + many->kinds; i++) {
		const char *name = i < few->kinds ? few->of[i].name : many->of[i - few->kinds].name;
		unsigned long a = count_of(few, name), b = count_of(many, name);

		if (a == b || (i >= few->kinds && a))
			continue;
		same = false;
		printf("# rank %u: %s: %lu with %d requests, %lu with %d\n", rank, name, a, FEW, b,
		       MANY);
	}
	return same;
}

static pid_t spawn(unsigned int rank, unsigned long requests, const char *key, const char *trace,
		   int out)
{
	char text[32], who[8], uri[192];
	const char *argv[16];
	unsigned int n = 0;
	pid_t pid;

	uri_of(rank, uri, sizeof(uri));
	snprintf(text, sizeof(text), "%lu", requests);
	snprintf(who, sizeof(who), "%u", rank);
	if (trace) {
		argv[n++] = "strace";
		if (!emulated)
			argv[n++] = "-f";
		argv[n++] = "-o";
		argv[n++] = trace;
	}
	argv[n++] = self;
	argv[n++] = who;
	argv[n++] = text;
	argv[n++] = key;
	argv[n++] = uri;
	argv[n] = NULL;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		dup2(out, STDOUT_FILENO);
		execvp(argv[0], (char **)argv);
		_exit(127);
	}
	return pid;
}

/* Both ranks, to their end */
static bool run(unsigned long requests, bool traced, struct report report[2],
		struct calls calls[2])
{
	char path[2][64], key[33];
	uint8_t bytes[OPTINC_KEY_BYTES];
	bool good = true;
	int out[2][2], status;
	pid_t pid[2];

	if (optinc_key_generate(bytes))
		return false;
	optinc_key_format(bytes, key);
	for (unsigned int r = 0; r < 2; r++) {
		snprintf(path[r], sizeof(path[r]), "/tmp/optinc-steady-%d-%u", getpid(), r);
		if (pipe2(out[r], O_CLOEXEC))
			return false;
		pid[r] = spawn(r, requests, key, traced ? path[r] : NULL, out[r][1]);
		close(out[r][1]);
	}
	for (unsigned int r = 0; r < 2; r++) {
		good &= read(out[r][0], &report[r], sizeof(report[r])) == sizeof(report[r]);
		close(out[r][0]);
		good &= waitpid(pid[r], &status, 0) == pid[r] && !status;
		if (traced) {
			good &= read_trace(path[r], &calls[r]);
			unlink(path[r]);
		}
	}
	return good;
}

/* An emulated card that is kept waiting for a peer looks whether it is alive. */
static bool steady(const struct calls calls[2], unsigned int requests)
{
	unsigned long most = emulated ? MANY / 100 : 0;

	for (unsigned int r = 0; r < 2; r++)
		if (calls[r].steady)
			printf("# rank %u: %lu system calls with %u requests, the first is %s\n", r,
			       calls[r].steady, requests, calls[r].first);
	return calls[0].steady <= most && calls[1].steady <= most;
}

static void test_system_calls(void)
{
	struct calls few[2] = { 0 }, many[2] = { 0 };
	bool ran = true, none = false, same = false;
	struct report report[2];
	char text[160];

	for (unsigned int i = 0; i < ATTEMPTS && !(none && same); i++) {
		ran = run(FEW, true, report, few) && run(MANY, true, report, many);
		none = ran && steady(few, FEW) && steady(many, MANY);
		same = ran && (emulated || (equal(0, &few[0], &many[0]) &&
					    equal(1, &few[1], &many[1])));
	}
	snprintf(text, sizeof(text), "%d requests and %d make no system call", FEW, MANY);
	ok(none, text);
	if (emulated)
		return;
	snprintf(text, sizeof(text), "the same in all with %d as with %d (%lu, %lu)", FEW, MANY,
		 total(&few[0]) + total(&few[1]), total(&many[0]) + total(&many[1]));
	ok(same, text);
}

static void test_counters(void)
{
	struct report r[2];
	char text[160];
	bool ran;

	ran = run(FEW, false, r, NULL);
	if (!ran)
		memset(r, 0, sizeof(r));
	snprintf(text, sizeof(text), "a request rings once: %lu and %lu doorbells for %lu",
		 r[0].doorbells, r[1].doorbells, r[0].requests);
	ok(ran && r[0].doorbells == r[0].requests && r[1].doorbells == r[1].requests, text);
	snprintf(text, sizeof(text), "a batch of %d rings once: %lu and %lu doorbells for %lu",
		 BATCH, r[0].batch_doorbells, r[1].batch_doorbells, r[0].batches);
	ok(ran && r[0].batch_doorbells == r[0].batches && r[1].batch_doorbells == r[1].batches,
	   text);
	if (emulated)
		return;
	snprintf(text, sizeof(text), "who polls is not interrupted: %lu and %lu interrupts",
		 r[0].interrupts, r[1].interrupts);
	ok(ran && !r[0].interrupts && !r[1].interrupts, text);
}

int main(int argc, char **argv)
{
	char uri[192];

	self = argv[0];
	if (argc == 5)
		return be_rank((unsigned int)atoi(argv[1]), strtoul(argv[2], NULL, 0), argv[3],
			       argv[4]);
	uri_of(0, uri, sizeof(uri));
	emulated = !strncmp(uri, "emu:", 4);
	printf("1..%d\n", emulated ? 3 : 5);
	if (system("strace -V >/dev/null 2>&1"))
		skip("there is no strace");
	else if (emulated && processors() < 2)
		skip("ranks that share a processor yield it to each other");
	else
		test_system_calls();
	test_counters();
	return failures != 0;
}
