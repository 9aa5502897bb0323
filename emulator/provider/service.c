// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The service thread drives the card where nobody waits: after a doorbell
 * whose caller went on to compute, for one who polls an eventfd, while a
 * group joins. It costs nothing where callers wait for what they submit: then
 * its ticks find that somebody drives.
 *
 * Doorbells do not wake it while it ticks, so that they need no system call,
 * except when a completion queue is armed: its owner sleeps in poll().
 */
#include <signal.h>
#include <string.h>

#include "emulator/provider/futex.h"
#include "emulator/provider/internal.h"

#define TICK_NS		(1 * NSEC_PER_MSEC)
/* Given way to one who looked once and then went to poll(): be back soon. */
#define BACK_NS		(50 * NSEC_PER_USEC)
#define RECENT_TICKS	100	/* of silence before it stops ticking */

/* Armed queues with work before them: their owners wait for the eventfd. */
static bool is_urgent(const struct emu_dev *dev)
{
	return atomic_load(&dev->armed) && card_busy(dev->card);
}

static bool has_work(const struct emu_dev *dev)
{
	return card_busy(dev->card) || atomic_load(&dev->joining);
}

/* True if all is done; false if others drive the card, or would. */
static bool drive(struct emu_dev *dev)
{
	bool done = false;

	if (!emu_trylock(dev))
		return false;
	while (!emu_wanted(dev) && !atomic_load(&dev->waiters_count) &&
	       !atomic_load(&dev->service_stop)) {
		if (emu_step(dev))
			continue;
		done = !has_work(dev);
		if (done)
			break;
		emu_doze(dev, TICK_NS);
	}
	atomic_store(&dev->relax_want, false);
	emu_unlock(dev);
	return done;
}

/* Announces the sleep, then looks again: doorbells do it the other way round. */
static void sleep_as(struct emu_dev *dev, uint32_t state, uint64_t timeout_ns, bool others)
{
	atomic_exchange(&dev->service_state, state);
	if (!atomic_load(&dev->service_stop) && (others || !is_urgent(dev)) &&
	    (state == EMU_SERVICE_TICKING || !has_work(dev)))
		futex_wait(&dev->service_state, state, timeout_ns);
	atomic_store(&dev->service_state, EMU_SERVICE_AWAKE);
}

static void *serve(void *arg)
{
	struct emu_dev *dev = arg;
	unsigned int silent = 0;
	bool others = false;	/* drive the card, so nothing is urgent */
	uint64_t driven;

	while (!atomic_load(&dev->service_stop)) {
		driven = atomic_load(&dev->driven);
		if (atomic_exchange(&dev->rang, false) || has_work(dev))
			silent = 0;
		if (silent++ < RECENT_TICKS)
			sleep_as(dev, EMU_SERVICE_TICKING,
				 others && is_urgent(dev) ? BACK_NS : TICK_NS, others);
		else
			sleep_as(dev, EMU_SERVICE_IDLE, 0, others);
		others = false;
		if (is_urgent(dev) || (has_work(dev) && atomic_load(&dev->driven) == driven))
			others = !drive(dev);
	}
	return NULL;
}

static void start(struct emu_dev *dev)
{
	sigset_t all, old;

	/* the program's signals are for the program's threads */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	dev->service_runs = !pthread_create(&dev->service, NULL, serve, dev);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void start_once(struct emu_dev *dev)
{
	pthread_mutex_lock(&dev->service_lock);
	if (!atomic_load(&dev->service_started)) {
		start(dev);
		/* where no thread can be had, those who wait drive the card still */
		atomic_store(&dev->service_started, true);
	}
	pthread_mutex_unlock(&dev->service_lock);
}

static void wake(struct emu_dev *dev)
{
	if (atomic_exchange(&dev->service_state, EMU_SERVICE_AWAKE) != EMU_SERVICE_AWAKE)
		futex_wake(&dev->service_state);
}

/* After a doorbell, or a join: the card has work. */
void emu_service_need(struct emu_dev *dev)
{
	uint32_t state = atomic_load(&dev->service_state);

	if (!atomic_load_explicit(&dev->service_started, memory_order_acquire))
		start_once(dev);
	if (!atomic_load_explicit(&dev->rang, memory_order_relaxed))
		atomic_store_explicit(&dev->rang, true, memory_order_relaxed);
	if (state == EMU_SERVICE_IDLE ||
	    (state == EMU_SERVICE_TICKING &&
	     atomic_load_explicit(&dev->armed, memory_order_relaxed)))
		wake(dev);
}

void emu_service_stop(struct emu_dev *dev)
{
	pthread_mutex_lock(&dev->service_lock);
	atomic_store(&dev->service_stop, true);
	if (dev->service_runs) {
		wake(dev);
		emu_kick(dev);
		pthread_join(dev->service, NULL);
		dev->service_runs = false;
	}
	pthread_mutex_unlock(&dev->service_lock);
}
