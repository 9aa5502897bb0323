// SPDX-License-Identifier: GPL-2.0-only
/*
 * The admin queue: section 5 of the card interface.
 *
 * One allocation holds both rings, of as many entries each. A command's
 * cmd_id is its slot. Slots in use never exceed the entries, so neither ring
 * can overflow; ASYNC_EVENT commands have eight slots of their own.
 *
 * A waiter waits no longer than the card's time limit. It looks at the ring
 * itself from time to time, lest a lost interrupt costs more than a second,
 * and at STATUS, so that a card that died is noticed early. A command without
 * an answer keeps its slot and its buffer until the card is reset: the card
 * may still write there.
 */
#include <linux/bitfield.h>
#include <linux/dma-mapping.h>
#include <linux/dmapool.h>
#include <linux/slab.h>

#include "optinc.h"
#include "trace.h"

static int status_errno(u16 status)
{
	switch (status) {
	case OPTINC_AST_SUCCESS:
		return 0;
	case OPTINC_AST_INVALID_OPCODE:
	case OPTINC_AST_UNSUPPORTED:
		return -EOPNOTSUPP;
	case OPTINC_AST_INVALID_FIELD:
		return -EINVAL;
	case OPTINC_AST_INVALID_HANDLE:
		return -ENOENT;
	case OPTINC_AST_LIMIT:
		return -ENOSPC;
	case OPTINC_AST_BUSY:
		return -EBUSY;
	case OPTINC_AST_NO_MEMORY:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

/* admin->lock held. The caller has the slot. */
static void push(struct optinc_device *odev, unsigned int id, struct optinc_admin_cmd *cmd)
{
	struct optinc_admin *admin = &odev->admin;

	cmd->cmd_id = cpu_to_le16(id);
	admin->sq[admin->sq_tail & (admin->entries - 1)] = *cmd;
	admin->sq_tail++;
	trace_optinc_submit(odev->id, cmd->opcode, id, le32_to_cpu(cmd->ctx),
			    le32_to_cpu(cmd->handle), le32_to_cpu(cmd->length));
	/* writel() orders the store to the ring before the doorbell. */
	optinc_write(odev, OPTINC_REG_ADMIN_SQ_TAIL, admin->sq_tail);
}

/* admin->lock held */
static struct optinc_slot *free_slot(struct optinc_admin *admin)
{
	unsigned int i;

	for (i = 0; i < admin->entries; i++)
		if (admin->slots[i].use == OPTINC_SLOT_FREE)
			return &admin->slots[i];
	return NULL;
}

static void post_event(struct optinc_device *odev)
{
	struct optinc_admin_cmd cmd = { .opcode = OPTINC_ADMIN_ASYNC_EVENT };
	struct optinc_admin *admin = &odev->admin;
	struct optinc_slot *slot;

	spin_lock_irq(&admin->lock);
	slot = admin->stopped ? NULL : free_slot(admin);
	if (slot) {
		slot->use = OPTINC_SLOT_EVENT;
		push(odev, slot - admin->slots, &cmd);
	}
	spin_unlock_irq(&admin->lock);
}

static void handle_event(struct optinc_device *odev, const struct optinc_event *event)
{
	switch (FIELD_GET(OPTINC_EVENT_TYPE, event->result)) {
	case OPTINC_EVENT_GROUP:
		optinc_group_event(odev, event->handle);
		break;
	case OPTINC_EVENT_LANE:
		optinc_refresh_lanes(odev);
		break;
	case OPTINC_EVENT_FATAL:
		optinc_fail(odev, "the card announces a fatal error");
		break;
	default:
		dev_dbg(&odev->pdev->dev, "event %#llx is not known\n", event->result);
	}
}

static void event_work(struct work_struct *work)
{
	struct optinc_device *odev = container_of(work, struct optinc_device, admin.event_work);
	struct optinc_event events[OPTINC_MAX_ASYNC_EVENTS];
	struct optinc_admin *admin = &odev->admin;
	unsigned int n, i;
	int idx;

	idx = srcu_read_lock(&odev->srcu);
	if (!optinc_online(odev))
		goto out;
	spin_lock_irq(&admin->lock);
	n = admin->nevents;
	memcpy(events, admin->events, n * sizeof(*events));
	admin->nevents = 0;
	spin_unlock_irq(&admin->lock);

	for (i = 0; i < n; i++) {
		handle_event(odev, &events[i]);
		post_event(odev);
	}
out:
	srcu_read_unlock(&odev->srcu, idx);
}

/* admin->lock held. Returns what is wrong with the completion, or NULL. */
static const char *take(struct optinc_device *odev, const struct optinc_admin_cqe *cqe)
{
	struct optinc_admin *admin = &odev->admin;
	u16 id = le16_to_cpu(cqe->cmd_id);
	struct optinc_slot *slot;
	struct optinc_event *event;

	if (id >= admin->entries)
		return "a completion names no command";
	slot = &admin->slots[id];
	slot->status = le16_to_cpu(cqe->status) >> 1;
	slot->handle = le32_to_cpu(cqe->handle);
	slot->result = le64_to_cpu(cqe->result);
	trace_optinc_completion(odev->id, id, slot->status, slot->handle, slot->result);

	switch (slot->use) {
	case OPTINC_SLOT_WAIT:
		slot->use = OPTINC_SLOT_DONE;
		complete(&slot->done);
		return NULL;
	case OPTINC_SLOT_EVENT:
		slot->use = OPTINC_SLOT_FREE;
		if (slot->status != OPTINC_AST_SUCCESS)
			return "the card refuses to report events";
		event = &admin->events[admin->nevents++];
		event->handle = slot->handle;
		event->result = slot->result;
		schedule_work(&admin->event_work);
		return NULL;
	default:
		return "a completion names a command that is not outstanding";
	}
}

/* admin->lock held. No commands from here on; who waits gets -ENODEV. */
static void stop(struct optinc_admin *admin)
{
	unsigned int i;

	admin->stopped = true;
	for (i = 0; i < admin->entries; i++)
		if (admin->slots[i].use == OPTINC_SLOT_WAIT)
			complete(&admin->slots[i].done);
	wake_up_all(&admin->room);
}

void optinc_admin_stop(struct optinc_device *odev)
{
	spin_lock_irq(&odev->admin.lock);
	stop(&odev->admin);
	spin_unlock_irq(&odev->admin.lock);
}

/*
 * Consumes what has arrived, at most a ring full. What comes after a completion
 * that cannot be is not to be trusted either.
 */
void optinc_admin_interrupt(struct optinc_device *odev)
{
	struct optinc_admin *admin = &odev->admin;
	const char *wrong = NULL;
	unsigned int n;
	unsigned long flags;

	spin_lock_irqsave(&admin->lock, flags);
	for (n = 0; n < admin->entries && !admin->stopped && !wrong; n++) {
		struct optinc_admin_cqe *cqe = &admin->cq[admin->cq_head & (admin->entries - 1)];
		bool phase = !(admin->cq_head / admin->entries & 1);

		if ((le16_to_cpu(READ_ONCE(cqe->status)) & 1) != phase)
			break;
		/* The rest of the entry is valid once the phase is. */
		dma_rmb();
		wrong = take(odev, cqe);
		admin->cq_head++;
	}
	if (wrong) {
		admin->wrong = wrong;
		stop(admin);
	}
	if (n && !admin->stopped)
		optinc_write(odev, OPTINC_REG_ADMIN_CQ_HEAD, admin->cq_head);
	spin_unlock_irqrestore(&admin->lock, flags);

	if (wrong)
		optinc_fail(odev, wrong);
}

/*
 * Puts the command into the ring and gives its slot; NULL if the queue is
 * stopped. False when there is no room now.
 */
static bool try_submit(struct optinc_device *odev, struct optinc_admin_cmd *cmd,
		       struct optinc_slot **slot)
{
	struct optinc_admin *admin = &odev->admin;
	bool stopped;

	*slot = NULL;
	spin_lock_irq(&admin->lock);
	stopped = admin->stopped;
	if (!stopped && admin->waiting < admin->entries - OPTINC_MAX_ASYNC_EVENTS)
		*slot = free_slot(admin);
	if (*slot) {
		admin->waiting++;
		(*slot)->use = OPTINC_SLOT_WAIT;
		reinit_completion(&(*slot)->done);
		push(odev, *slot - admin->slots, cmd);
	}
	spin_unlock_irq(&admin->lock);
	return *slot || stopped;
}

/* Done, stopped, or as long as the card is alive and not late. */
static const char *wait_answer(struct optinc_device *odev, struct optinc_slot *slot)
{
	unsigned long deadline = jiffies + odev->timeout;
	u32 status;

	while (!wait_for_completion_timeout(&slot->done, min_t(unsigned long, HZ,
							       odev->timeout))) {
		optinc_admin_interrupt(odev);
		if (try_wait_for_completion(&slot->done))
			break;
		status = optinc_read(odev, OPTINC_REG_STATUS);
		if (status == ~0U)
			return "the card is gone";
		if (status & OPTINC_STATUS_FATAL)
			return "the card has stopped";
		if (time_after(jiffies, deadline))
			return "an admin command is not answered";
	}
	return NULL;
}

/*
 * Executes one command and maps its status; -ETIMEDOUT and -ENODEV tell that
 * there was no answer. Not interruptible, limited by the card's time.
 */
int optinc_admin_exec(struct optinc_device *odev, struct optinc_admin_cmd *cmd,
		      struct optinc_slot *answer)
{
	struct optinc_admin *admin = &odev->admin;
	struct optinc_slot *slot;
	const char *wrong;
	int ret;

	if (!wait_event_timeout(admin->room, try_submit(odev, cmd, &slot), 2 * odev->timeout))
		return -ETIMEDOUT;
	if (!slot)
		return -ENODEV;

	wrong = wait_answer(odev, slot);

	spin_lock_irq(&admin->lock);
	if (slot->use == OPTINC_SLOT_DONE) {
		answer->handle = slot->handle;
		answer->result = slot->result;
		ret = status_errno(slot->status);
		slot->use = OPTINC_SLOT_FREE;
		admin->waiting--;
		wrong = NULL;
	} else {
		ret = wrong && optinc_present(odev) ? -ETIMEDOUT : -ENODEV;
	}
	if (wrong) {
		admin->wrong = admin->wrong ?: wrong;
		stop(admin);
	}
	spin_unlock_irq(&admin->lock);

	if (wrong)
		optinc_fail(odev, wrong);
	wake_up(&admin->room);
	return ret;
}

/* Before the card is enabled: rings and slots as new */
void optinc_admin_prepare(struct optinc_device *odev)
{
	struct optinc_admin *admin = &odev->admin;
	unsigned int i;

	spin_lock_irq(&admin->lock);
	memset(admin->ring, 0, admin->ring_bytes);
	admin->sq_tail = 0;
	admin->cq_head = 0;
	admin->waiting = 0;
	admin->nevents = 0;
	admin->wrong = NULL;
	for (i = 0; i < admin->entries; i++)
		admin->slots[i].use = OPTINC_SLOT_FREE;
	spin_unlock_irq(&admin->lock);
}

/* After it */
void optinc_admin_start(struct optinc_device *odev)
{
	unsigned int i;

	spin_lock_irq(&odev->admin.lock);
	odev->admin.stopped = false;
	spin_unlock_irq(&odev->admin.lock);
	for (i = 0; i < OPTINC_MAX_ASYNC_EVENTS; i++)
		post_event(odev);
}

/*
 * The card is ONLINE: what it said while it was brought up, when event_work()
 * and optinc_fail() had no say, counts now.
 */
void optinc_admin_online(struct optinc_device *odev)
{
	struct optinc_admin *admin = &odev->admin;
	const char *wrong;

	spin_lock_irq(&admin->lock);
	wrong = admin->wrong;
	if (admin->nevents)
		schedule_work(&admin->event_work);
	spin_unlock_irq(&admin->lock);
	if (wrong)
		optinc_fail(odev, wrong);
}

int optinc_admin_alloc(struct optinc_device *odev)
{
	struct device *dev = &odev->pdev->dev;
	struct optinc_admin *admin = &odev->admin;
	size_t sq_bytes = ALIGN(admin->entries * sizeof(*admin->sq), 4096);
	unsigned int i;

	spin_lock_init(&admin->lock);
	init_waitqueue_head(&admin->room);
	INIT_WORK(&admin->event_work, event_work);
	INIT_LIST_HEAD(&admin->abandoned);
	for (i = 0; i < ARRAY_SIZE(admin->slots); i++)
		init_completion(&admin->slots[i].done);
	admin->stopped = true;

	admin->ring_bytes = sq_bytes + ALIGN(admin->entries * sizeof(*admin->cq), 4096);
	admin->ring = dma_alloc_coherent(dev, admin->ring_bytes, &admin->ring_dma, GFP_KERNEL);
	if (!admin->ring)
		return -ENOMEM;
	admin->sq = admin->ring;
	admin->cq = admin->ring + sq_bytes;
	admin->pool = dma_pool_create("optinc", dev, OPTINC_SMALL_BUFFER, 8, 0);
	if (!admin->pool) {
		dma_free_coherent(dev, admin->ring_bytes, admin->ring, admin->ring_dma);
		return -ENOMEM;
	}
	return 0;
}

/* The card is stopped and its interrupts are freed. */
void optinc_admin_free(struct optinc_device *odev)
{
	struct optinc_admin *admin = &odev->admin;

	cancel_work_sync(&admin->event_work);
	optinc_buffers_reap(odev);
	dma_pool_destroy(admin->pool);
	dma_free_coherent(&odev->pdev->dev, admin->ring_bytes, admin->ring, admin->ring_dma);
}

/* Zeroed; small ones, which are nearly all, come from a pool. */
struct optinc_buffer *optinc_buffer_alloc(struct optinc_device *odev, size_t size)
{
	struct optinc_buffer *buf = kzalloc(sizeof(*buf), GFP_KERNEL);

	if (!buf)
		return NULL;
	buf->size = size;
	if (size <= OPTINC_SMALL_BUFFER)
		buf->cpu = dma_pool_zalloc(odev->admin.pool, GFP_KERNEL, &buf->dma);
	else
		buf->cpu = dma_alloc_coherent(&odev->pdev->dev, size, &buf->dma,
					      GFP_KERNEL | __GFP_NOWARN);
	if (!buf->cpu) {
		kfree(buf);
		return NULL;
	}
	return buf;
}

void optinc_buffer_free(struct optinc_device *odev, struct optinc_buffer *buf)
{
	if (buf->size <= OPTINC_SMALL_BUFFER)
		dma_pool_free(odev->admin.pool, buf->cpu, buf->dma);
	else
		dma_free_coherent(&odev->pdev->dev, buf->size, buf->cpu, buf->dma);
	kfree(buf);
}

/* Done with a buffer whose command ended with @ret */
void optinc_buffer_done(struct optinc_device *odev, struct optinc_buffer *buf, int ret)
{
	if (!optinc_unanswered(ret)) {
		optinc_buffer_free(odev, buf);
		return;
	}
	spin_lock_irq(&odev->admin.lock);
	list_add(&buf->node, &odev->admin.abandoned);
	spin_unlock_irq(&odev->admin.lock);
}

/* The card is stopped. */
void optinc_buffers_reap(struct optinc_device *odev)
{
	struct optinc_buffer *buf, *next;
	LIST_HEAD(list);

	spin_lock_irq(&odev->admin.lock);
	list_splice_init(&odev->admin.abandoned, &list);
	spin_unlock_irq(&odev->admin.lock);
	list_for_each_entry_safe(buf, next, &list, node)
		optinc_buffer_free(odev, buf);
}
