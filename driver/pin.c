// SPDX-License-Identifier: GPL-2.0-only
/*
 * User memory of a region: pinned for long, and charged.
 *
 * The charge goes to mm->pinned_vm, VmPin in /proc, as that of RDMA does, and
 * against RLIMIT_MEMLOCK. The mm is held with the region, so that it gets its
 * charge back whoever ends the region, and whenever.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "compat.h"
#include "optinc.h"

#define BATCH	(PAGE_SIZE / sizeof(struct page *))

static int charge(struct optinc_device *odev, struct optinc_mr *mr, unsigned long pages)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct mm_struct *mm = current->mm;
	u64 total;

	total = atomic64_add_return(pages, &mm->pinned_vm);
	if (total > limit && !capable(CAP_IPC_LOCK)) {
		atomic64_sub(pages, &mm->pinned_vm);
		dev_info_ratelimited(&odev->pdev->dev,
				     "%s[%d]: %lu pages more would exceed RLIMIT_MEMLOCK, %lu pages\n",
				     current->comm, task_tgid_nr(current), pages, limit);
		return -ENOMEM;
	}
	mmgrab(mm);
	mr->mm = mm;
	mr->charged = pages;
	return 0;
}

static void uncharge(struct optinc_mr *mr)
{
	atomic64_sub(mr->charged, &mr->mm->pinned_vm);
	mmdrop(mr->mm);
	mr->mm = NULL;
}

static int pin_batch(struct optinc_mr *mr, unsigned long addr, unsigned long pages,
		     struct page **batch)
{
	int n = min_t(unsigned long, pages, BATCH);
	int ret;

	if (mr->writable)
		ret = pin_user_pages_fast(addr, n, FOLL_LONGTERM | FOLL_WRITE, batch);
	else
		ret = optinc_pin_readable(addr, n, batch);

	switch (ret) {
	case 0:
	case -EOPNOTSUPP:	/* memory that cannot be pinned for long */
		return -EFAULT;
	case -ERESTARTSYS:
	case -ERESTARTNOINTR:
		return -EINTR;
	default:
		return ret;
	}
}

static int pin_all(struct optinc_device *odev, struct optinc_mr *mr, unsigned long addr,
		   unsigned long left, struct page **batch)
{
	unsigned int max = dma_get_max_seg_size(&odev->pdev->dev);
	int n, ret;

	while (left) {
		if (fatal_signal_pending(current))
			return -EINTR;
		n = pin_batch(mr, addr, left, batch);
		if (n < 0)
			return n;
		left -= n;
		addr += (unsigned long)n << PAGE_SHIFT;
		/* Pages that follow each other, as those of huge pages do, become one. */
		ret = sg_alloc_append_table_from_pages(&mr->pages, batch, n, 0,
						       (unsigned long)n << PAGE_SHIFT, max, left,
						       GFP_KERNEL_ACCOUNT);
		if (ret) {
			unpin_user_pages(batch, n);
			return ret;
		}
		cond_resched();
	}
	return 0;
}

static void unpin_all(struct optinc_mr *mr)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_sg(&mr->pages.sgt, sg, i) {
		unpin_user_page_range_dirty_lock(sg_page(sg), DIV_ROUND_UP(sg->length, PAGE_SIZE),
						 mr->writable);
		cond_resched();
	}
	sg_free_append_table(&mr->pages);
}

static int watch_and_pin(struct optinc_context *ctx, struct optinc_mr *mr, unsigned long addr,
			 unsigned long pages, bool watch)
{
	struct page **batch = (struct page **)__get_free_page(GFP_KERNEL);
	int ret = 0;

	if (!batch)
		return -ENOMEM;
	if (watch)
		ret = optinc_watch(ctx, mr, addr, pages);
	if (!ret)
		ret = pin_all(ctx->odev, mr, addr, pages, batch);
	optinc_watch_pinned(mr);
	free_page((unsigned long)batch);
	return ret;
}

/*
 * mr->length bytes at @addr of the caller; their sum was checked. With @watch
 * the context page tells what becomes of them.
 */
int optinc_pin(struct optinc_context *ctx, struct optinc_mr *mr, u64 addr, bool watch)
{
	u64 skip = addr & ~PAGE_MASK;
	u64 pages = DIV_ROUND_UP_ULL(skip + mr->length, PAGE_SIZE);
	int ret;

	if (addr + mr->length > ULONG_MAX)
		return -EFAULT;
	if (pages > U32_MAX)
		return -ENOMEM;
	ret = charge(ctx->odev, mr, pages);
	if (ret)
		return ret;
	mr->skip = skip;
	mr->sgt = &mr->pages.sgt;
	ret = watch_and_pin(ctx, mr, (unsigned long)addr & PAGE_MASK, pages, watch);
	if (ret)
		optinc_unpin(mr);
	return ret;
}

void optinc_unpin(struct optinc_mr *mr)
{
	optinc_unwatch(mr);
	unpin_all(mr);
	uncharge(mr);
}
