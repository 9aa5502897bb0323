// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who may touch the hardware when.
 *
 * Hardware means registers, the admin queue, DMA mappings, and putting the
 * card's pages into a process. There are two ways to have it:
 *
 * 1. Within a read section of odev->srcu that has seen the state ONLINE
 *    (optinc_online(), or optinc_alive() for a context). Nothing in such a
 *    section waits for user space: no user memory is touched, no signal, peer
 *    or event is waited for. Admin commands are, and end early when the admin
 *    queue is stopped.
 *
 * 2. As the owner of a transition, one at a time. optinc_begin*() takes it by
 *    making the state RESETTING; optinc_quiesce() then stops the admin queue,
 *    waits for all sections of kind 1, marks every context dead, and takes
 *    its doorbell page away. After that the owner is alone. It stops the card,
 *    gives back what contexts of before had (optinc_contexts_reap()), and
 *    ends the transition as ONLINE, DEAD or GONE.
 *
 * A context that was marked dead stays dead: files opened before a reset get
 * -ENODEV for good, those opened afterwards work. Memory that the card might
 * reach is given back only after the card is known to be stopped: it said so,
 * its bus mastering is off, or it was reset.
 *
 *	PROBING -> ONLINE <-> RESETTING <-> DEAD
 *	                          |
 *	                          v
 *	                         GONE
 *
 * Callbacks of the PCI core (remove, error recovery, function reset, sleep,
 * shutdown) exclude each other by the device lock, and a transition may last
 * from one callback to another; should the second never come, the next one
 * takes over what the first left (odev->pci_owned).
 */
#include "optinc.h"
#include "trace.h"

/* In a read section of odev->srcu */
bool optinc_online(struct optinc_device *odev)
{
	/* Pairs with optinc_end(): all of the bring-up is seen. */
	return smp_load_acquire(&odev->state) == OPTINC_ONLINE;
}

bool optinc_alive(struct optinc_context *ctx)
{
	return optinc_online(ctx->odev) && !READ_ONCE(ctx->dead);
}

static int try_begin(struct optinc_device *odev, bool pci)
{
	int ret = 0;

	spin_lock_irq(&odev->state_lock);
	switch (odev->state) {
	case OPTINC_PROBING:
	case OPTINC_ONLINE:
	case OPTINC_DEAD:
		odev->state = OPTINC_RESETTING;
		break;
	case OPTINC_RESETTING:
		ret = pci && odev->pci_owned ? 0 : -EBUSY;
		break;
	case OPTINC_GONE:
		ret = -ENODEV;
		break;
	}
	if (!ret)
		odev->pci_owned = pci;
	spin_unlock_irq(&odev->state_lock);
	return ret;
}

/* 0, or -EBUSY if another transition is under way, or -ENODEV */
int optinc_begin(struct optinc_device *odev)
{
	return try_begin(odev, false);
}

/* For the PCI core's callbacks: waits for the end of another. 0 or -ENODEV */
int optinc_begin_pci(struct optinc_device *odev)
{
	int ret;

	wait_event(odev->state_wq, (ret = try_begin(odev, true)) != -EBUSY);
	return ret;
}

void optinc_end(struct optinc_device *odev, enum optinc_state state)
{
	spin_lock_irq(&odev->state_lock);
	odev->pci_owned = false;
	odev->reset_wanted = false;
	/* Pairs with optinc_online(). */
	smp_store_release(&odev->state, state);
	spin_unlock_irq(&odev->state_lock);
	wake_up_all(&odev->state_wq);
	if (state == OPTINC_ONLINE)
		optinc_admin_online(odev);
}

void optinc_quiesce(struct optinc_device *odev)
{
	optinc_admin_stop(odev);
	synchronize_srcu(&odev->srcu);
	cancel_work_sync(&odev->admin.event_work);
	optinc_contexts_kill(odev);
	wake_up_all(&odev->event_wq);
}

/*
 * The card did what it may not, or does not answer: reset it. From any
 * context. The log has one line, of what came out of it.
 */
void optinc_fail(struct optinc_device *odev, const char *why)
{
	unsigned long flags;

	spin_lock_irqsave(&odev->state_lock, flags);
	if (odev->state == OPTINC_ONLINE && !odev->removing && !odev->reset_wanted) {
		odev->reset_wanted = true;
		odev->why = why;
		queue_work(system_long_wq, &odev->reset_work);
	}
	spin_unlock_irqrestore(&odev->state_lock, flags);
	trace_optinc_reset(odev->id, why, 0);
}
