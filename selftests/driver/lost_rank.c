// SPDX-License-Identifier: GPL-2.0-only
/*
 * A rank is lost by kill -9 in the middle of an all-reduce of 256 MiB: its
 * process in a machine, or its card's process on the host, which to the machine
 * is a card that was pulled out.
 *
 * Runs in two machines at once, a rank each, that do the same rounds; they meet
 * by files in /mnt, which they share. Both have many such requests outstanding,
 * one behind the other, since a process takes a while to die. In a round one
 * machine is the victim. It watches what its card has received, and strikes when
 * that has come to a part drawn at random. Then
 *
 * - the other rank is told which rank was lost, within the deadline. That a
 *   transfer was under way is seen by its bytes, which are not those of some
 *   whole requests;
 * - all processes of the victim's machine that use a dead card are told so: who
 *   polls or sleeps for the request, who joins a group, who asks for counters,
 *   who opens it;
 * - the kernel's log has a line more at most;
 * - the next group on another card, or on the same if it lives, gets its bits.
 *
 * A blow that comes between two requests is struck again.
 *
 * OPTINC_LOST_ROUNDS is how many of each kind (2). The machines have a card for
 * the rounds with processes, and one for each blow at a card.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <optinc/optinc.h>

#define COUNT		((size_t)64 << 20)	/* elements: 256 MiB */
#define BYTES		(COUNT * sizeof(float))
#define HUGE		((size_t)2 << 20)
#define CHUNK		32768
/* Received in the end: codes of 8 bits, and an exponent for each block */
#define LANE_BYTES	(COUNT / CHUNK * (CHUNK + CHUNK / OPTINC_BLOCK))
#define DEADLINE_MS	5000
#define PATIENCE_MS	60000			/* for the other machine */
#define REQUESTS	32			/* outstanding, when the blow comes */
#define ATTEMPTS	3			/* at one round */

struct told {
	bool ended;
	int error, peer;
	uint32_t status;
	uint64_t at_ms;
	char text[256];
};

static struct shared {
	struct told request, join;
	bool ready, go, joining;
} *shared;

static unsigned int machine, rounds, number, failures;
static unsigned int next_card = 1;	/* to be killed */
static unsigned int blows;		/* that may have left a line in the log */
static unsigned int lines;		/* of the log since the beginning */
static int kmsg;

/* ----------------------------------------------------------------- small */

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* The same in both machines */
static unsigned int draw(unsigned int seed, unsigned int below)
{
	uint64_t z = (seed + 1) * 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (unsigned int)((z ^ z >> 31) % below);
}

static void __attribute__((format(printf, 2, 3))) ok(bool good, const char *format, ...)
{
	va_list args;

	printf("%sok %u - ", good ? "" : "not ", ++number);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
	failures += !good;
}

/* A part of a round; what is not so is told. */
static bool __attribute__((format(printf, 2, 3))) so(bool good, const char *format, ...)
{
	va_list args;

	if (good)
		return true;
	printf("# %s:0: not so: ", __FILE__);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	return false;
}

static void note(struct told *told, int error, const struct optinc_result *res)
{
	told->at_ms = now_ms();
	told->error = error;
	told->status = res ? res->status : 0;
	told->peer = res ? res->peer : -1;
	snprintf(told->text, sizeof(told->text), "%s", optinc_last_error());
	told->ended = true;
}

static void set(bool *flag)
{
	__atomic_store_n(flag, true, __ATOMIC_RELEASE);
}

static bool is_set(const bool *flag)
{
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

/* By a process that is there */
static void await_set(const bool *flag, pid_t pid)
{
	while (!is_set(flag)) {
		if (waitpid(pid, NULL, WNOHANG)) {
			so(false, "a process gets ready");
			exit(1);
		}
		usleep(1000);
	}
}

static void __attribute__((noreturn)) give_up(void)
{
	so(false, "a rank begins: %s", optinc_last_error());
	fflush(NULL);
	_exit(2);
}

/* -------------------------------------------------------- the other machine */

static void path_of(char *path, size_t size, const char *what, unsigned int of)
{
	snprintf(path, size, "/mnt/vm%u/%s", of, what);
}

static void say(const char *what, const char *word)
{
	char path[64], new[64];
	int fd;

	path_of(path, sizeof(path), what, machine);
	path_of(new, sizeof(new), ".new", machine);
	fd = open(new, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0 || write(fd, word, strlen(word)) < 0 || close(fd) || rename(new, path)) {
		perror(path);
		exit(2);
	}
}

/* What the other one has to say; false if it does not in time. */
static bool hear(const char *what, char word[32])
{
	uint64_t until = now_ms() + PATIENCE_MS;
	char path[64];
	ssize_t n;
	int fd;

	path_of(path, sizeof(path), what, !machine);
	while ((fd = open(path, O_RDONLY)) < 0) {
		if (now_ms() > until)
			return so(false, "the other machine says nothing of %s", what);
		usleep(1000);
	}
	n = read(fd, word, 31);
	word[n > 0 ? n : 0] = '\0';
	close(fd);
	return true;
}

static void meet(const char *what)
{
	char word[32];

	say(what, "here");
	if (!hear(what, word))
		exit(1);
}

/* -------------------------------------------------------------- the log */

static void read_log(void)
{
	char record[4096];
	ssize_t n;

	while ((n = read(kmsg, record, sizeof(record) - 1)) > 0 || errno == EPIPE) {
		if (n <= 0)
			continue;
		record[n] = '\0';
		record[strcspn(record, "\n")] = '\0';
		printf("# log: %s\n", strchr(record, ';') ? strchr(record, ';') + 1 : record);
		lines++;
	}
}

/* ------------------------------------------------------------- processes */

static struct optinc_card *open_card(unsigned int n)
{
	struct optinc_card *card;
	char uri[32];

	snprintf(uri, sizeof(uri), "card:%u", n);
	return optinc_open(uri, &card) ? NULL : card;
}

static int join(struct optinc_card *card, unsigned int rank, unsigned int key,
		unsigned int deadline_ms, struct optinc_group **group)
{
	struct optinc_group_params params = {
		.key = { 0x6c, (uint8_t)key, (uint8_t)(key >> 8) }, .rank = rank, .nranks = 2,
		.deadline_ms = deadline_ms,
	};

	return optinc_group_join(card, &params, sizeof(params), group);
}

/* In huge pages, which are soon mapped, pinned and unmapped */
static float *memory(void)
{
	void *p = mmap(NULL, BYTES + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	if (p == MAP_FAILED) {
		perror("mmap");
		_exit(2);
	}
	p = (void *)(((uintptr_t)p + HUGE - 1) / HUGE * HUGE);
	madvise(p, BYTES, MADV_HUGEPAGE);
	return p;
}

/* A child, which does not outlive this process */
static pid_t spawn(void)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static void request(unsigned int n, unsigned int rank, unsigned int key)
{
	float *source = memory(), *result = memory();
	struct optinc_request *requests[REQUESTS];
	struct optinc_card *card = open_card(n);
	struct optinc_mr *source_mr, *result_mr;
	struct optinc_group *group;
	struct optinc_result res;
	int error = 0;

	for (size_t i = 0; i < COUNT; i++)
		source[i] = (float)(int)(i % 2001) - 1000.f;
	/* sleep, or poll first */
	if (!card || optinc_card_set(card, OPTINC_OPTION_SPIN_US, key & 1 ? 0 : 100) ||
	    optinc_mr_register(card, source, BYTES, 0, &source_mr) ||
	    optinc_mr_register(card, result, BYTES, OPTINC_MR_WRITE, &result_mr))
		give_up();
	set(&shared->ready);
	while (!is_set(&shared->go))
		usleep(1000);
	if (join(card, rank, key, DEADLINE_MS, &group))
		give_up();
	for (unsigned int i = 0; i < REQUESTS; i++)
		if (optinc_iallreduce(group, source, result, COUNT, OPTINC_F32, OPTINC_MEAN, NULL,
				      &requests[i]))
			give_up();
	for (unsigned int i = 0; i < REQUESTS && !error; i++)
		error = optinc_wait(requests[i], -1, &res);
	note(&shared->request, error, &res);
	/* neither hangs */
	optinc_group_leave(group);
	optinc_close(card);
	_exit(0);
}

/* A group whose other rank never comes; asked for once, and not by the second */
static void join_alone(unsigned int n)
{
	struct optinc_group_join join = {
		.size = sizeof(join), .key = { 0x6d }, .nranks = 2, .bits = 8,
		.format = OPTINC_FORMAT_VERSION, .dtypes = 1 << OPTINC_F32,
		.deadline_ms = PATIENCE_MS,
	};
	struct optinc_group_wait wait = { .size = sizeof(wait), .timeout_ms = PATIENCE_MS };
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/optinc/card%u", n);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, OPTINC_IOCTL_GROUP_JOIN, &join)) {
		perror(path);
		_exit(2);
	}
	wait.group = join.group;
	set(&shared->joining);
	note(&shared->join, ioctl(fd, OPTINC_IOCTL_GROUP_WAIT, &wait) ? -errno : 0, NULL);
	close(fd);
	_exit(0);
}

static void check_next_group(unsigned int rank, unsigned int key, bool *right)
{
	static float send[2][700], recv[700], want[700];
	const void *all[2] = { send[0], send[1] };
	struct optinc_card *card = open_card(0);
	struct optinc_group *group;

	for (int i = 0; i < 1400; i++)
		send[i / 700][i % 700] = (float)((i * 37) % 199 - 99) * 0.01f;
	optinc_reference_allreduce(all, want, 2, 700, OPTINC_F32, OPTINC_MEAN, 8, 0, NULL);
	*right = card && !join(card, rank, key, PATIENCE_MS, &group) &&
		 !optinc_allreduce(group, send[rank], recv, 700, OPTINC_F32, OPTINC_MEAN, NULL,
				   NULL) && !memcmp(want, recv, sizeof(want));
	so(*right, "the next group: %s", optinc_last_error());
	optinc_close(card);
}

/* Its status, or -1 if it had to be ended */
static int reap(pid_t pid, uint64_t until)
{
	int status;

	while (waitpid(pid, &status, WNOHANG) != pid) {
		if (now_ms() > until) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -1;
		}
		usleep(1000);
	}
	return status;
}

/* ---------------------------------------------------------------- rounds */

struct round {
	bool of_card;			/* the card is struck, not the process */
	unsigned int n, attempt, card, key;
	unsigned int victim;		/* machine */
	unsigned int rank[2];		/* of the machines */
	uint64_t at;			/* bytes */
	char blow[32];			/* file that tells of it */
	pid_t requester, joiner;
	uint64_t struck_ms;
	struct optinc_card *watched;	/* the same card, in a context of its own */
	uint64_t base, bytes;		/* of its counter, before and after */
	bool good;
};

static uint64_t rx_bytes(struct optinc_card *card)
{
	struct optinc_card_stats stats;

	return optinc_card_stats(card, &stats, sizeof(stats)) ? 0 : stats.rx_bytes;
}

/* The file is there before it happens: so nobody is told sooner than it seems. */
static void strike(struct round *r)
{
	say(r->blow, "");
	r->struck_ms = now_ms();
	/* to a card comes who looks for the file, beside the machines */
	if (!r->of_card)
		kill(r->requester, SIGKILL);
}

/* Until the request has come so far, or has ended */
static void await_progress(struct round *r)
{
	uint64_t until = now_ms() + PATIENCE_MS;

	while (rx_bytes(r->watched) - r->base < r->at && !shared->request.ended &&
	       now_ms() < until)
		;
	strike(r);
}

/* Until the other machine strikes, if it does at all */
static void await_blow(struct round *r)
{
	uint64_t until = now_ms() + PATIENCE_MS;
	char path[64];

	path_of(path, sizeof(path), r->blow, !machine);
	while (access(path, F_OK) && now_ms() < until)
		usleep(500);
	r->struck_ms = now_ms();
}

/* A blow is seen some time after it was struck. */
static long long after(const struct round *r, const struct told *told)
{
	return told->at_ms > r->struck_ms ? (long long)(told->at_ms - r->struck_ms) : 0;
}

static void check_told(struct round *r, const char *who, const struct told *told, int error,
		       const char *says)
{
	if (!so(told->ended, "%s is told something", who)) {
		r->good = false;
		return;
	}
	r->good &= so(told->error == error, "%s is told %d and not %d: %s", who, error,
		      told->error, told->text);
	r->good &= so(strstr(told->text, says), "%s reads \"%s\" in \"%s\"", who, says,
		      told->text);
	r->good &= so(after(r, told) < DEADLINE_MS, "%s is told in time, not after %lld ms", who,
		      after(r, told));
}

static void check_survivor(struct round *r)
{
	const struct told *told = &shared->request;
	unsigned int lost = r->rank[r->victim];
	char name[16];

	snprintf(name, sizeof(name), "rank %u", lost);
	check_told(r, "the other rank", told, -ECONNRESET, name);
	r->good &= so(told->status == OPTINC_ST_PEER_LOST, "status %#x is peer-lost", told->status);
	r->good &= so(told->peer == (int)lost, "rank %d is %u", told->peer, lost);
}

/* All who use the card: its counters are asked for since before the blow. */
static void check_dead_card(struct round *r)
{
	uint64_t until = r->struck_ms + DEADLINE_MS;
	struct optinc_card_stats stats;
	int error;

	do {
		error = optinc_card_stats(r->watched, &stats, sizeof(stats));
	} while (!error && now_ms() < until);
	r->good &= so(error == -ENODEV, "who asks for counters is told %d: %s", error,
		      optinc_last_error());
	r->good &= so(!reap(r->joiner, until), "who joins ends, and in order");
	check_told(r, "who asked", &shared->request, -ENODEV, "gone");
	check_told(r, "who joins", &shared->join, -ENODEV, "");
	r->good &= so(!open_card(r->card) && strstr(optinc_last_error(), "gone"),
		      "who opens it reads: %s", optinc_last_error());
}

static void begin(struct round *r)
{
	char what[32];

	memset(shared, 0, sizeof(*shared));
	r->card = r->of_card ? next_card++ : 0;
	if (r->of_card)
		snprintf(r->blow, sizeof(r->blow), "kill-card%u", r->card);
	else
		snprintf(r->blow, sizeof(r->blow), "killed-%u-%u", r->n, r->attempt);
	r->key = 1 + r->n * ATTEMPTS + r->attempt;
	r->victim = r->n & 1;
	r->rank[0] = r->n >> 1 & 1;
	r->rank[1] = !r->rank[0];
	r->at = LANE_BYTES / 100 * (1 + draw(r->key, 90));
	r->good = true;
	r->watched = open_card(r->card);
	if (!so(r->watched, "open: %s", optinc_last_error()))
		exit(1);
	r->base = rx_bytes(r->watched);
	if (r->of_card && machine == r->victim) {
		r->joiner = spawn();
		if (!r->joiner)
			join_alone(r->card);
		await_set(&shared->joining, r->joiner);
	}
	r->requester = spawn();
	if (!r->requester)
		request(r->card, r->rank[machine], r->key);
	await_set(&shared->ready, r->requester);
	snprintf(what, sizeof(what), "begin-%u-%u", r->n, r->attempt);
	meet(what);
	set(&shared->go);
}

/* False: no request was under way, as the survivor sees. */
static bool play(struct round *r)
{
	char what[32], word[32];
	bool missed;
	int status;

	begin(r);
	if (machine == r->victim)
		await_progress(r);
	else
		await_blow(r);
	status = reap(r->requester, r->struck_ms + 2 * DEADLINE_MS);
	if (machine == r->victim && !r->of_card)
		r->good &= so(!status || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL),
			      "status %#x is that of kill -9", status);
	else
		r->good &= so(!status, "who asked ends in order, not with %#x", status);

	snprintf(what, sizeof(what), "end-%u-%u", r->n, r->attempt);
	if (machine != r->victim) {
		r->bytes = (rx_bytes(r->watched) - r->base) % LANE_BYTES;
		missed = !r->bytes;
		say(what, missed ? "missed" : "lost");
		check_survivor(r);
	} else {
		if (r->of_card)
			check_dead_card(r);
		if (!hear(what, word))
			exit(1);
		missed = !strcmp(word, "missed");
	}
	optinc_close(r->watched);
	return !missed;
}

static void round_of(bool of_card, unsigned int n)
{
	struct round r = { .of_card = of_card, .n = n };
	bool right, struck = false;

	for (; r.attempt < ATTEMPTS && !struck; r.attempt++) {
		struck = play(&r);
		blows += !of_card || machine == r.victim;
	}
	r.good &= so(struck, "a request was under way at one of %d blows", ATTEMPTS);
	check_next_group(r.rank[machine], 0x4000 + r.key, &right);
	read_log();
	r.good &= right;
	r.good &= so(lines <= blows, "%u lines in the log after %u blows", lines, blows);
	if (machine != r.victim)
		ok(r.good, "%s %u: told %lld ms after rank %u was lost, at %llu of %llu MB",
		   of_card ? "card" : "process", n, after(&r, &shared->request),
		   r.rank[r.victim], (unsigned long long)r.bytes / 1000000,
		   (unsigned long long)LANE_BYTES / 1000000);
	else if (of_card)
		ok(r.good, "card %u: its own told after %lld ms", n, after(&r, &shared->request));
	else
		ok(r.good, "process %u: killed as rank %u", n, r.rank[machine]);
}

int main(void)
{
	const char *vm = getenv("OPTINC_VM"), *text = getenv("OPTINC_LOST_ROUNDS");

	machine = vm ? (unsigned int)atoi(vm) : 0;
	rounds = text ? (unsigned int)atoi(text) : 2;
	kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
	if (kmsg < 0 || lseek(kmsg, 0, SEEK_END) < 0) {
		perror("/dev/kmsg");
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	printf("1..%u\n", 2 * rounds);
	for (unsigned int n = 0; n < rounds; n++)
		round_of(false, n);
	for (unsigned int n = 0; n < rounds; n++)
		round_of(true, rounds + n);
	return failures != 0;
}
