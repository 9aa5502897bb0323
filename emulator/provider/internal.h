/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The provider "emu:": a small driver, in the caller's process, for the
 * emulated card. It speaks to the card as optinc.ko does, by registers, admin
 * queue, doorbells and interrupts; DMA addresses are the process's own.
 *
 * Locks, outermost first:
 *
 *	lock		the card, and all here that is not said to be otherwise.
 *			Who drives the card holds it, also while asleep in it;
 *			who needs it says so in "want" and kicks the sleeper.
 *	wait_lock	waiters, and the references to rings
 */
#ifndef OPTINC_PROVIDER_EMU_INTERNAL_H
#define OPTINC_PROVIDER_EMU_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <linux/optinc.h>

#include "driver/optinc_hw.h"
#include "emulator/card/card.h"
#include "lib/provider.h"

#define EMU_QPS			64
#define EMU_GROUPS		FABRIC_MAX_CHANNELS
#define EMU_ADMIN_ENTRIES	32
#define EMU_EVENTS		4	/* ASYNC_EVENT commands kept with the card */
#define EMU_VECTORS		(1 + EMU_QPS)	/* one each, unless the URI says less */

#define NSEC_PER_USEC		1000ULL
#define NSEC_PER_MSEC		1000000ULL

/* Rings live as long as the queue pair, a mapping or a waiter needs them. */
struct emu_rings {
	unsigned int refs;		/* wait_lock */
	_Atomic bool dead;		/* the queue pair is gone */
	struct optinc_sqe *sq;
	struct optinc_cqe *cq;
	size_t sq_bytes, cq_bytes;	/* of whole pages */
	uint32_t cq_entries;
};

struct emu_mapping {
	struct emu_mapping *next;	/* wait_lock */
	struct emu_rings *rings;
	void *addr;
	size_t bytes;
};

struct emu_qp {
	_Atomic uint32_t id;		/* 0: free */
	_Atomic bool armed;		/* since the last interrupt */
	uint16_t vector;
	int eventfd;			/* our own, or -1 */
	struct emu_rings *rings;	/* changed with both locks held */
};

struct emu_group {
	_Atomic uint32_t handle;	/* 0: free */
	_Atomic bool changed;		/* no longer JOINING */
};

struct emu_admin {
	struct optinc_admin_cmd *sq;
	struct optinc_admin_cqe *cq;
	uint16_t tail, head;
	uint16_t sequence;		/* of cmd_ids */
	bool waiting;			/* for the completion of cmd_id */
	uint16_t cmd_id;
	struct optinc_admin_cqe done;
};

/* Who waits for what; see emu_wait_done(). */
struct emu_waiter {
	struct emu_waiter *next, **prev;	/* wait_lock */
	_Atomic uint32_t woken;			/* futex */
	/* either a completion ... */
	struct emu_rings *rings;
	const struct optinc_cqe *cqe;
	uint16_t phase;
	/* ... or a group */
	struct emu_group *group;
	uint32_t handle;
};

/* What the service thread does; see service.c. */
enum emu_service_state {
	EMU_SERVICE_AWAKE,
	EMU_SERVICE_TICKING,	/* wakes by itself soon */
	EMU_SERVICE_IDLE,	/* until a doorbell wakes it */
};

struct emu_dev {
	struct card *card;
	/* what doorbells and waits of all threads touch */
	_Atomic uint32_t want;		/* threads that wait for the lock */
	_Atomic bool relax_want;	/* a spinning thread would drive */
	_Atomic bool relaxed;		/* a spinning thread drove last */
	_Atomic bool dozing;		/* the lock's holder is asleep in the card */
	_Atomic bool crowded;		/* what card_crowded() said last */
	_Atomic uint64_t driven;	/* steps; to see that somebody drives */
	_Atomic uint32_t waiters_count;
	_Atomic uint32_t armed;		/* queue pairs that wait for an interrupt */
	_Atomic bool rang;		/* a doorbell, since the service looked */
	_Atomic uint32_t service_state;	/* futex, enum emu_service_state */
	_Atomic bool dead;		/* the card does not answer */
	const uint8_t *here;		/* zero in a forked child */

	pthread_mutex_t lock;
	struct emu_admin admin;
	bool admin_irq;
	uint32_t timeout_ms;
	uint32_t ctx;
	struct optinc_hw_identify id;
	struct emu_qp qps[EMU_QPS];
	struct emu_group groups[EMU_GROUPS];
	_Atomic uint32_t joining;	/* groups */
	void *data;			/* a page, for what admin commands read and write */
	size_t page_size;
	unsigned int vectors;
	unsigned int next_vector;
	void *doorbell_page;		/* a token; nothing is there */

	pthread_mutex_t wait_lock;
	struct emu_waiter *waiters;
	struct emu_mapping *mappings;

	pthread_mutex_t service_lock;
	_Atomic bool service_started;
	_Atomic bool service_stop;
	bool service_runs;
	pthread_t service;
};

/* After fork() the child must leave the card, which is its parent's, alone. */
static inline bool emu_here(const struct emu_dev *dev)
{
	return *(const volatile uint8_t *)dev->here;
}

/* uri.c */
int emu_uri_parse(const char *rest, struct card_config *config, char *error, size_t error_size);
/* The names that there are, and whether one may be given several times; false behind the last */
bool emu_uri_parameter(size_t i, const char **name, bool *repeats);

/* driver.c: all with the lock held */
int emu_start(struct emu_dev *dev, char *error, size_t error_size);
void emu_stop(struct emu_dev *dev);
/*
 * Runs one command; fills what of the completion is asked for. 0 or negative errno.
 * Members of the command's union are assigned after it was initialised without
 * them: a union initialised by a member need not be zero beyond it.
 */
int emu_command(struct emu_dev *dev, struct optinc_admin_cmd *cmd, uint32_t *handle,
		uint64_t *result);
/* One that acts on an object of the context and has no more to say */
int emu_object_command(struct emu_dev *dev, uint8_t opcode, uint32_t handle);
static inline uint64_t emu_dma(const void *pointer)
{
	return (uintptr_t)pointer;
}

/* Completions of the admin queue: what is waited for, and events. */
void emu_admin_drain(struct emu_dev *dev);
/* It is no longer joining: wake who waits for that. */
void emu_group_changed(struct emu_dev *dev, uint32_t handle);

/* drive.c */
void emu_lock(struct emu_dev *dev);
bool emu_trylock(struct emu_dev *dev);
void emu_unlock(struct emu_dev *dev);
bool emu_step(struct emu_dev *dev);
/* Sleep in the card, lock held, until there is work, a kick, or the time. */
void emu_doze(struct emu_dev *dev, uint64_t timeout_ns);
/* Somebody waits for the lock, or spins and would drive. */
bool emu_wanted(struct emu_dev *dev);
void emu_kick(struct emu_dev *dev);
void emu_relax(void *dev);
void emu_wait_for(struct emu_dev *dev, struct emu_waiter *waiter, uint64_t timeout_ns);
void emu_wake_done(struct emu_dev *dev);

/* service.c */
void emu_service_need(struct emu_dev *dev);
void emu_service_stop(struct emu_dev *dev);

/* rings.c */
struct emu_rings *emu_rings_new(struct emu_dev *dev, uint32_t sq_entries, uint32_t cq_entries);
void emu_rings_put(struct emu_dev *dev, struct emu_rings *rings);
/* NULL if there is no such queue pair */
struct emu_rings *emu_rings_get(struct emu_dev *dev, uint32_t qp);
uint64_t emu_ring_offset(uint32_t qp, bool cq);
void *emu_mmap(void *dev, size_t length, int prot, uint64_t offset);
int emu_munmap(void *dev, void *addr, size_t length);
void emu_unmap_all(struct emu_dev *dev);
#define EMU_DOORBELL_OFFSET	(1ULL << 20)

/* ioctl.c; info.c, regions.c, qps.c, groups.c: on a copy of the caller's structure */
int emu_ioctl(void *dev, unsigned long cmd, void *arg);
int emu_query(struct emu_dev *dev, void *arg);
int emu_stats(struct emu_dev *dev, void *arg);
int emu_mr_reg(struct emu_dev *dev, void *arg);
int emu_mr_dereg(struct emu_dev *dev, void *arg);
int emu_qp_create(struct emu_dev *dev, void *arg);
int emu_qp_destroy(struct emu_dev *dev, void *arg);
int emu_group_join(struct emu_dev *dev, void *arg);
int emu_group_wait(struct emu_dev *dev, void *arg);
int emu_group_leave(struct emu_dev *dev, void *arg);
int emu_group_abort(struct emu_dev *dev, void *arg);
/* Ends what is left of a queue pair once the card has ended it, lock held. */
void emu_qp_forget(struct emu_dev *dev, struct emu_qp *qp);

#endif /* OPTINC_PROVIDER_EMU_INTERNAL_H */
