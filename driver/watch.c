// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions with OPTINC_MR_CACHE: whether the memory at their addresses still is
 * what was pinned. The context page tells, which processes read without a
 * call.
 *
 * Each region has an interval notifier, inserted before the first page is
 * pinned. What had begun earlier is waited for, what begins later is reported,
 * so there is no change that neither the pins nor the page know of.
 *
 * An event counts unless it is known to leave every page in its place:
 *
 *  - changes of protection, which are those of mprotect(), of hints for NUMA
 *    balancing, of write-protection for writeback, userfaultfd or fork(), and
 *    soft-dirty tracking. Should a page be replaced after one of them, by a
 *    copy on write, that is an event of its own.
 *  - what the pinning task does to its own region while it pins it: faults
 *    break copy-on-write and move pages to where they can stay for long, before
 *    they are pinned. Other regions that see the same are told.
 *
 * Too many events cost time, too few are wrong results: those that can come
 * without a page being replaced (a huge page's mapping is split, reclaim or
 * compaction finds pages pinned) count.
 *
 * The callback runs wherever page tables are changed, perhaps not allowed to
 * sleep, and before they are. It takes no lock, so that none of the driver's is
 * ordered against those of memory management, and a region may be ended under
 * any of the driver's locks. A region keeps its mm's structure, not its memory:
 * the mm may have exited when the notifier goes.
 */
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "optinc.h"
#include "trace.h"

struct optinc_watch {
	struct mmu_interval_notifier notifier;
	struct optinc_context *ctx;
	struct optinc_context_page *page;
	struct task_struct *pinning;	/* NULL once all is pinned */
	unsigned int slot;
};

static bool stays(const struct optinc_watch *watch, const struct mmu_notifier_range *range)
{
	switch (range->event) {
	case MMU_NOTIFY_PROTECTION_VMA:
	case MMU_NOTIFY_PROTECTION_PAGE:
	case MMU_NOTIFY_SOFT_DIRTY:
		return true;
	default:
		return READ_ONCE(watch->pinning) == current;
	}
}

static bool invalidate(struct mmu_interval_notifier *notifier,
		       const struct mmu_notifier_range *range, unsigned long seq)
{
	struct optinc_watch *watch = container_of(notifier, struct optinc_watch, notifier);
	atomic64_t *generation = (atomic64_t *)&watch->page->mr_generation;

	mmu_interval_set_seq(notifier, seq);
	if (stays(watch, range))
		return true;
	set_bit_le(watch->slot, watch->page->mr_stale);
	/* Whoever sees the new generation sees the bit. */
	atomic64_inc_return_release(generation);
	trace_optinc_stale(watch->ctx->odev->id, watch->slot, range->event, range->start,
			   range->end);
	return true;
}

static const struct mmu_interval_notifier_ops watch_ops = {
	.invalidate = invalidate,
};

/* ctx->lock held. The page stays until the context ends, or its last mapping if that is later. */
struct page *optinc_context_page(struct optinc_context *ctx)
{
	static_assert(sizeof(struct optinc_context_page) <= PAGE_SIZE);

	if (!ctx->page)
		ctx->page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	return ctx->page;
}

/* Before the pages at @addr, a page's beginning, are pinned. By the task that pins them. */
int optinc_watch(struct optinc_context *ctx, struct optinc_mr *mr, unsigned long addr,
		 unsigned long pages)
{
	struct optinc_watch *watch;
	struct page *page;
	int slot, ret;

	mutex_lock(&ctx->lock);
	page = optinc_context_page(ctx);
	mutex_unlock(&ctx->lock);
	if (!page)
		return -ENOMEM;
	watch = kzalloc(sizeof(*watch), GFP_KERNEL_ACCOUNT);
	if (!watch)
		return -ENOMEM;
	slot = ida_alloc_max(&ctx->slots, OPTINC_CONTEXT_SLOTS - 1, GFP_KERNEL_ACCOUNT);
	if (slot < 0) {
		kfree(watch);
		return slot;
	}
	watch->ctx = ctx;
	watch->page = page_address(page);
	watch->slot = slot;
	watch->pinning = current;
	clear_bit_le(slot, watch->page->mr_stale);
	ret = mmu_interval_notifier_insert(&watch->notifier, current->mm, addr,
					   pages << PAGE_SHIFT, &watch_ops);
	if (ret) {
		ida_free(&ctx->slots, slot);
		kfree(watch);
		return ret;
	}
	/* Waits for what was under way; what comes now is told to the callback. */
	mmu_interval_read_begin(&watch->notifier);
	mr->watch = watch;
	mr->slot = slot;
	return 0;
}

void optinc_watch_pinned(struct optinc_mr *mr)
{
	if (mr->watch)
		WRITE_ONCE(mr->watch->pinning, NULL);
}

/* Waits for callbacks under way. */
void optinc_unwatch(struct optinc_mr *mr)
{
	struct optinc_watch *watch = mr->watch;

	if (!watch)
		return;
	mmu_interval_notifier_remove(&watch->notifier);
	ida_free(&watch->ctx->slots, watch->slot);
	kfree(watch);
	mr->watch = NULL;
}
