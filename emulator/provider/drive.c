// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Who drives the card, and how the others wait.
 *
 * The card does its work in card_step(), in whatever thread holds the lock:
 * one that spins (relax), one that sleeps for its completion (wait), one that
 * waits for an admin command, or else the service thread. One that sleeps and
 * does not drive is a waiter: it is woken when what it waits for has come, or
 * to take over when the driver leaves. Should a wake-up be lost after all, a
 * waiter looks for itself after a while.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <sched.h>

#include "emulator/provider/futex.h"
#include "emulator/provider/internal.h"

/*
 * Steps in vain before a driver sleeps, which costs some 35 us: where ranks
 * outnumber processors it yields in between, else it spins.
 */
#define YIELDS			1000
#define SPINS			200
#define DOZE_NS			(20 * NSEC_PER_MSEC)
#define LOOK_NS			(10 * NSEC_PER_MSEC)
/* Spinning threads come and go without a word: look more often behind them. */
#define LOOK_RELAXED_NS		(100 * NSEC_PER_USEC)

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

void emu_kick(struct emu_dev *dev)
{
	if (atomic_load(&dev->dozing))
		card_kick(dev->card);
}

void emu_lock(struct emu_dev *dev)
{
	atomic_fetch_add(&dev->want, 1);
	emu_kick(dev);
	pthread_mutex_lock(&dev->lock);
	atomic_fetch_sub(&dev->want, 1);
	atomic_store_explicit(&dev->relaxed, false, memory_order_relaxed);
}

/* Fails also when somebody waits for the lock: they have waited longer. */
bool emu_trylock(struct emu_dev *dev)
{
	if (atomic_load_explicit(&dev->want, memory_order_relaxed) ||
	    pthread_mutex_trylock(&dev->lock))
		return false;
	atomic_store_explicit(&dev->relaxed, false, memory_order_relaxed);
	return true;
}

bool emu_wanted(struct emu_dev *dev)
{
	return atomic_load(&dev->want) || atomic_load(&dev->relax_want);
}

/* Under wait_lock, so that the waiter is still there. */
static void wake(struct emu_waiter *waiter)
{
	if (!atomic_exchange(&waiter->woken, 1))
		futex_wake(&waiter->woken);
}

/* A completion, or a group that is no longer joining; or it is gone. */
static bool is_done(const struct emu_waiter *waiter)
{
	uint16_t status;

	if (waiter->group)
		return atomic_load(&waiter->group->changed) ||
		       atomic_load(&waiter->group->handle) != waiter->handle;
	status = le16toh(__atomic_load_n(&waiter->cqe->status, __ATOMIC_ACQUIRE));
	return (status & OPTINC_CQE_PHASE) == waiter->phase || atomic_load(&waiter->rings->dead);
}

void emu_wake_done(struct emu_dev *dev)
{
	struct emu_waiter *waiter;

	pthread_mutex_lock(&dev->wait_lock);
	for (waiter = dev->waiters; waiter; waiter = waiter->next) {
		if (is_done(waiter))
			wake(waiter);
	}
	pthread_mutex_unlock(&dev->wait_lock);
}

static void hand_over(struct emu_dev *dev)
{
	struct emu_waiter *waiter;

	pthread_mutex_lock(&dev->wait_lock);
	for (waiter = dev->waiters; waiter; waiter = waiter->next) {
		if (atomic_load(&waiter->woken))
			continue;
		wake(waiter);
		break;
	}
	pthread_mutex_unlock(&dev->wait_lock);
}

void emu_unlock(struct emu_dev *dev)
{
	pthread_mutex_unlock(&dev->lock);
	if (atomic_load(&dev->waiters_count))
		hand_over(dev);
}

/*
 * What a step did comes before the look at waiters_count, as becoming a
 * waiter comes before its look at what it waits for: one of the two sees the
 * other.
 */
static void after_step(struct emu_dev *dev, bool did)
{
	bool crowded = card_crowded(dev->card);

	if (atomic_load_explicit(&dev->crowded, memory_order_relaxed) != crowded)
		atomic_store_explicit(&dev->crowded, crowded, memory_order_relaxed);
	if (dev->admin_irq)
		emu_admin_drain(dev);
	if (!did) {
		uint64_t n = atomic_load_explicit(&dev->driven, memory_order_relaxed);

		/* one writer at a time: it has the lock */
		atomic_store_explicit(&dev->driven, n + 1, memory_order_relaxed);
		return;
	}
	atomic_fetch_add(&dev->driven, 1);
	if (atomic_load(&dev->waiters_count))
		emu_wake_done(dev);
}

bool emu_step(struct emu_dev *dev)
{
	bool did = card_step(dev->card);

	after_step(dev, did);
	return did;
}

void emu_doze(struct emu_dev *dev, uint64_t timeout_ns)
{
	atomic_store(&dev->dozing, true);
	if (!emu_wanted(dev))
		card_sleep(dev->card, timeout_ns);
	atomic_store(&dev->dozing, false);
	/* it looks at the fabric once more before it sleeps, and may have found something */
	after_step(dev, true);
}

static void make_room(struct emu_dev *dev)
{
	if (atomic_load_explicit(&dev->crowded, memory_order_relaxed))
		sched_yield();
	else
		pause_cpu();
}

void emu_relax(void *arg)
{
	struct emu_dev *dev = arg;
	bool did;

	if (!emu_here(dev))
		return;
	if (atomic_load_explicit(&dev->want, memory_order_relaxed) ||
	    pthread_mutex_trylock(&dev->lock)) {
		if (!atomic_load_explicit(&dev->relax_want, memory_order_relaxed)) {
			atomic_store(&dev->relax_want, true);
			emu_kick(dev);
		}
		make_room(dev);
		return;
	}
	if (atomic_load_explicit(&dev->relax_want, memory_order_relaxed))
		atomic_store_explicit(&dev->relax_want, false, memory_order_relaxed);
	if (!atomic_load_explicit(&dev->relaxed, memory_order_relaxed))
		atomic_store_explicit(&dev->relaxed, true, memory_order_relaxed);
	did = emu_step(dev);
	/* no handing over: this thread is most likely back at once */
	pthread_mutex_unlock(&dev->lock);
	if (!did)
		make_room(dev);
}

/* Until @waiter has what it waits for, somebody wants the lock, or the time has come. */
static void drive(struct emu_dev *dev, const struct emu_waiter *waiter, uint64_t until)
{
	unsigned int idle = 0;
	uint64_t now;

	while (!is_done(waiter) && !emu_wanted(dev)) {
		if (emu_step(dev)) {
			idle = 0;	/* peers are at it too: the next chunk comes soon */
			continue;
		}
		if (idle++ < (atomic_load(&dev->crowded) ? YIELDS : SPINS)) {
			make_room(dev);
			continue;
		}
		now = fabric_clock_ns();
		if (now >= until)
			break;
		emu_doze(dev, until - now < DOZE_NS ? until - now : DOZE_NS);
		idle = 0;	/* woken by a peer, most likely: more will come */
	}
	/* a thread that spun may do so no more; if it does it will say so again */
	atomic_store(&dev->relax_want, false);
}

static void add_waiter(struct emu_dev *dev, struct emu_waiter *waiter)
{
	struct emu_waiter **at = &dev->waiters;

	atomic_store(&waiter->woken, 0);
	pthread_mutex_lock(&dev->wait_lock);
	while (*at)
		at = &(*at)->next;
	waiter->next = NULL;
	waiter->prev = at;
	*at = waiter;
	atomic_fetch_add(&dev->waiters_count, 1);
	pthread_mutex_unlock(&dev->wait_lock);
	/* the service thread gives way to those who wait */
	emu_kick(dev);
}

static void remove_waiter(struct emu_dev *dev, struct emu_waiter *waiter)
{
	pthread_mutex_lock(&dev->wait_lock);
	*waiter->prev = waiter->next;
	if (waiter->next)
		waiter->next->prev = waiter->prev;
	atomic_fetch_sub(&dev->waiters_count, 1);
	pthread_mutex_unlock(&dev->wait_lock);
}

/*
 * True with the lock held, to drive. Whoever leaves the lock wakes a waiter,
 * unless it spins; behind those, the waiter looks whether anybody still does.
 */
static bool sleep_behind(struct emu_dev *dev, struct emu_waiter *waiter, uint64_t until)
{
	bool relaxed = atomic_load_explicit(&dev->relaxed, memory_order_relaxed);
	uint64_t look = relaxed ? LOOK_RELAXED_NS : LOOK_NS;
	uint64_t driven = atomic_load(&dev->driven);
	uint64_t now = fabric_clock_ns();
	bool locked = false;

	if (now >= until)
		return false;
	add_waiter(dev, waiter);
	if (!is_done(waiter)) {
		if (!relaxed)
			locked = emu_trylock(dev);
		if (!locked)
			futex_wait(&waiter->woken, 0, until - now < look ? until - now : look);
	}
	remove_waiter(dev, waiter);
	if (locked || is_done(waiter))
		return locked;
	if (atomic_load(&waiter->woken) || atomic_load(&dev->driven) == driven)
		return emu_trylock(dev);
	return false;
}

void emu_wait_for(struct emu_dev *dev, struct emu_waiter *waiter, uint64_t timeout_ns)
{
	uint64_t now = fabric_clock_ns();
	uint64_t until = timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX;
	bool locked = emu_trylock(dev);

	while (!is_done(waiter) && !atomic_load(&dev->dead)) {
		if (locked) {
			drive(dev, waiter, until);
			emu_unlock(dev);
			locked = false;
		} else {
			locked = sleep_behind(dev, waiter, until);
		}
		if (fabric_clock_ns() >= until)
			break;
	}
	if (locked)
		emu_unlock(dev);
}
