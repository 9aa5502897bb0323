// SPDX-License-Identifier: LGPL-2.1-or-later
/* A port of the fabric: attach, drive, sleep and wake. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "emulator/fabric/internal.h"

/* A sleeper looks at its peers' liveness this often. */
#define SLEEP_MAX_NS	(20 * NSEC_PER_MSEC)

uint64_t fabric_clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void note_cpus(struct shm_port *shm)
{
	_Static_assert(sizeof(cpu_set_t) >= sizeof(shm->cpus), "the kernel tells as many");
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		memset(&set, 0xff, sizeof(set));
	memcpy(shm->cpus, &set, sizeof(shm->cpus));
}

/* More ranks than processors that any of them may run on. */
static bool is_crowded(const struct fabric_channel *ch)
{
	const struct shm_segment *shm = ch->port->segment->shm;
	unsigned int cpus = 0;

	for (int w = 0; w < FABRIC_CPU_WORDS; w++) {
		uint64_t any = 0;

		for (unsigned int r = 0; r < ch->join.nranks; r++)
			any |= shm->port[ch->peer[r].port].cpus[w];
		cpus += (unsigned int)__builtin_popcountll(any);
	}
	return ch->join.nranks > cpus;
}

void port_count_crowd(struct fabric_port *port)
{
	const struct fabric_channel *ch;

	port->crowded = false;
	for (ch = port->channels; ch; ch = ch->next)
		if (ch->state == OPTINC_GROUP_READY)
			port->crowded |= is_crowded(ch);
}

static bool name_is_valid(const char *name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	return name[0] && name[strspn(name, allowed)] == 0;
}

static int check_config(const struct fabric_config *config, char *error, size_t size)
{
	if (!name_is_valid(config->name)) {
		snprintf(error, size, "a fabric's name is of letters, digits, '.', '_' and '-'");
		return -EINVAL;
	}
	if (config->ports < 2 || config->ports > FABRIC_MAX_PORTS) {
		snprintf(error, size, "a fabric has 2 to %d ports, not %u", FABRIC_MAX_PORTS,
			 config->ports);
		return -EINVAL;
	}
	if (config->port >= config->ports) {
		snprintf(error, size, "port %u is not one of ports 0 to %u", config->port,
			 config->ports - 1);
		return -EINVAL;
	}
	if (!(config->impair.loss >= 0 && config->impair.loss < 1)) {
		snprintf(error, size, "the loss of a symbol is a probability below 1");
		return -EINVAL;
	}
	if ((config->impair.dead_lanes & ((1u << FABRIC_LANES) - 1)) == (1u << FABRIC_LANES) - 1) {
		snprintf(error, size, "at least one lane has to be alive");
		return -EINVAL;
	}
	return 0;
}

/*
 * Whoever had the port before may have died: its groups are over. Peers see
 * that by the process, but only while they look; what they read of its slots
 * they have done with then.
 */
static void bury_predecessor(struct shm_port *shm)
{
	for (int i = 0; i < SEGMENT_CHANNELS; i++) {
		struct shm_channel *ctl = &shm->channel[i];
		uint64_t generation = atomic_load(&ctl->join.generation);

		if (atomic_load(&ctl->abort) >> 32 != generation)
			atomic_store(&ctl->abort, generation << 32 | OPTINC_ST_PEER_LOST << 16 |
						  (ctl->join.rank & 0xff) << 8);
		atomic_store(&ctl->join.state, SHM_IDLE);
	}
}

static void free_port(struct fabric_port *port)
{
	free(port->scratch);
	free(port->bounce);
	free(port);
}

int fabric_attach(const struct fabric_config *config, struct fabric_port **result,
		  char *error, size_t size)
{
	struct fabric_port *port;
	int ret = check_config(config, error, size);

	if (ret)
		return ret;
	port = calloc(1, sizeof(*port));
	if (!port)
		return -ENOMEM;
	port->scratch = aligned_alloc(SEGMENT_LINE, SCRATCH_BYTES);
	port->bounce = aligned_alloc(SEGMENT_LINE, BOUNCE_BYTES);
	port->kernels = fabric_kernels_select(NULL);
	if (!port->scratch || !port->bounce) {
		free_port(port);
		return -ENOMEM;
	}
	ret = segment_attach(config->name, config->port, config->ports, &port->segment, error, size);
	if (ret) {
		free_port(port);
		return ret;
	}
	port->index = config->port;
	port->ports = config->ports;
	port->impair = config->impair;
	port->impaired = port->impair.delay_ns || port->impair.jitter_ns || port->impair.loss > 0;
	/* Each port draws its own sequence from the one seed. */
	port->random = config->impair.seed * 0x9e3779b97f4a7c15ull + config->port + 1;
	port->shm = &port->segment->shm->port[config->port];
	note_cpus(port->shm);
	atomic_store(&port->shm->asleep, 0);
	bury_predecessor(port->shm);
	atomic_store(&port->shm->pid, (uint32_t)getpid());
	*result = port;
	return 0;
}

void fabric_detach(struct fabric_port *port)
{
	if (atomic_load(&port->shm->pid) == (uint32_t)getpid()) {
		while (port->channels)
			fabric_lose(port->channels);
		atomic_store(&port->shm->pid, 0);
	}
	segment_detach(port->segment, port->index);
	free_port(port);
}

bool fabric_step(struct fabric_port *port)
{
	struct fabric_channel *ch, *next;
	bool moved = false;

	for (ch = port->channels; ch; ch = next) {
		next = ch->next;
		moved |= channel_step(ch);
	}
	port->woken = false;
	return moved;
}

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void port_wake(struct shm_port *shm)
{
	if (atomic_load_explicit(&shm->asleep, memory_order_relaxed) &&
	    atomic_exchange(&shm->asleep, 0))
		futex_wake(&shm->asleep);
}

/*
 * The fence pairs with the one in fabric_sleep(): either the sleeper sees
 * what was posted, or we see that it sleeps.
 */
void port_wake_peers(struct fabric_channel *ch)
{
	struct shm_segment *shm = ch->port->segment->shm;

	atomic_thread_fence(memory_order_seq_cst);
	for (unsigned int r = 0; r < ch->join.nranks; r++)
		if (r != ch->join.rank)
			port_wake(&shm->port[ch->peer[r].port]);
}

void fabric_kick(struct fabric_port *port)
{
	atomic_thread_fence(memory_order_seq_cst);
	port_wake(port->shm);
}

/* No longer than until a completion that is held back is due. */
static uint64_t until_due(const struct fabric_port *port, uint64_t timeout_ns)
{
	const struct fabric_channel *ch;
	uint64_t now, due;

	if (!port->impair.pace)
		return timeout_ns;
	now = fabric_clock_ns();
	for (ch = port->channels; ch; ch = ch->next) {
		if (ch->now.stage != STAGE_PACE)
			continue;
		due = ch->now.started_ns + ch->head->wire_ns;
		due = due > now ? due - now : 0;
		if (due < timeout_ns)
			timeout_ns = due;
	}
	return timeout_ns;
}

void fabric_sleep(struct fabric_port *port, uint64_t timeout_ns, bool (*recheck)(void *arg),
		  void *arg)
{
	struct timespec ts;

	if (timeout_ns > SLEEP_MAX_NS)
		timeout_ns = SLEEP_MAX_NS;
	timeout_ns = until_due(port, timeout_ns);
	ts = (struct timespec){ .tv_nsec = (long)timeout_ns };
	atomic_store(&port->shm->asleep, 1);
	atomic_thread_fence(memory_order_seq_cst);
	port->woken = true;	/* what came before now wakes nobody: look at everything */
	if (!fabric_step(port) && !(recheck && recheck(arg)))
		syscall(SYS_futex, &port->shm->asleep, FUTEX_WAIT, 1, &ts, NULL, 0);
	atomic_store(&port->shm->asleep, 0);
	port->woken = true;
}

uint8_t port_lanes(const struct fabric_port *port)
{
	return (uint8_t)~port->impair.dead_lanes;
}

bool fabric_crowded(const struct fabric_port *port)
{
	return port->crowded;
}

void fabric_counters(const struct fabric_port *port, struct fabric_counters *counters)
{
	*counters = port->counters;
}

unsigned int fabric_lanes_up(const struct fabric_port *port)
{
	return (unsigned int)__builtin_popcount(port_lanes(port));
}
