// SPDX-License-Identifier: GPL-2.0-only
/*
 * Queue pairs and their rings.
 *
 * Rings are pages of their own, mapped for the card, and not coherent memory
 * of the DMA API: a process may have them mapped for longer than the queue
 * pair, the context, and even the card's driver binding exist. Its page table
 * holds references of pages; coherent memory has none and would have to be
 * freed with the binding. Both sides write and nobody syncs, so only memory
 * that needs no sync is taken (optinc_dma_needs_sync()).
 */
#include <linux/dma-mapping.h>
#include <linux/eventfd.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "compat.h"
#include "optinc.h"

static int ring_alloc(struct optinc_device *odev, struct optinc_ring *ring, size_t bytes)
{
	struct device *dev = &odev->pdev->dev;
	gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN;
	int ret = -ENOMEM;

	if (dma_get_required_mask(dev) > dma_get_mask(dev))
		gfp |= GFP_DMA32;
	ring->bytes = PAGE_ALIGN(bytes);
	ring->cpu = alloc_pages_exact(ring->bytes, gfp);
	if (!ring->cpu)
		return -ENOMEM;
	ring->dma = dma_map_single(dev, ring->cpu, ring->bytes, DMA_BIDIRECTIONAL);
	if (dma_mapping_error(dev, ring->dma))
		goto free;
	if (optinc_dma_needs_sync(odev, ring->dma)) {
		dma_unmap_single(dev, ring->dma, ring->bytes, DMA_BIDIRECTIONAL);
		ret = -EOPNOTSUPP;
		goto free;
	}
	return 0;

free:
	free_pages_exact(ring->cpu, ring->bytes);
	ring->cpu = NULL;
	return ret;
}

static void ring_free(struct optinc_device *odev, struct optinc_ring *ring)
{
	dma_unmap_single(&odev->pdev->dev, ring->dma, ring->bytes, DMA_BIDIRECTIONAL);
	/* Pages that are still mapped by a process stay until it unmaps them. */
	free_pages_exact(ring->cpu, ring->bytes);
	ring->cpu = NULL;
}

static int check_qp_create(struct optinc_context *ctx, const struct optinc_qp_create *create)
{
	u32 max = ctx->odev->identity.max_queue;

	if (create->flags)
		return -EOPNOTSUPP;
	if (!is_power_of_2(create->sq_entries) || create->sq_entries < 2 ||
	    create->sq_entries > max || !is_power_of_2(create->cq_entries) ||
	    create->cq_entries < create->sq_entries || create->cq_entries > max)
		return -EINVAL;
	return 0;
}

/* The eventfd hears of its vector before the card can interrupt. */
static int attach_eventfd(struct optinc_device *odev, struct optinc_qp *qp, int fd)
{
	struct eventfd_ctx *eventfd;

	if (fd == -1)
		return 0;
	eventfd = eventfd_ctx_fdget(fd);
	if (IS_ERR(eventfd))
		return PTR_ERR(eventfd);
	qp->eventfd = eventfd;
	optinc_vector_attach(qp, optinc_vector_choose(odev));
	return 0;
}

/* The card does not use the queue pair. */
static void free_qp(struct optinc_device *odev, struct optinc_qp *qp)
{
	optinc_vector_detach(qp);
	if (qp->eventfd)
		eventfd_ctx_put(qp->eventfd);
	if (qp->cq.cpu)
		ring_free(odev, &qp->cq);
	if (qp->sq.cpu)
		ring_free(odev, &qp->sq);
	kfree(qp);
}

/* ctx->lock held. Says in @kept whether the queue pair is the context's, on error too. */
static int tell_card(struct optinc_context *ctx, struct optinc_qp *qp, bool *kept)
{
	struct optinc_device *odev = ctx->odev;
	int ret;

	ret = optinc_context_create(ctx);
	if (ret)
		return ret;
	ret = optinc_cmd_qp_create(odev, ctx->handle, qp, &qp->id);
	*kept = optinc_unanswered(ret);
	if (!ret) {
		ret = xa_insert(&ctx->qps, qp->id, qp, GFP_KERNEL_ACCOUNT);
		if (ret == -EBUSY) {
			optinc_fail(odev, "the card made two queue pairs of one id");
			*kept = true;
			ret = -EIO;
		} else {
			*kept = !ret || optinc_cmd_qp_destroy(odev, ctx->handle, qp->id);
		}
	}
	if (*kept)
		list_add(&qp->node, &ctx->qp_list);
	return ret;
}

int optinc_ioctl_qp_create(struct optinc_context *ctx, void *arg)
{
	struct optinc_device *odev = ctx->odev;
	struct optinc_qp_create *create = arg;
	struct optinc_qp *qp;
	bool kept = false;
	int ret;

	ret = check_qp_create(ctx, create);
	if (ret)
		return ret;
	qp = kzalloc(sizeof(*qp), GFP_KERNEL_ACCOUNT);
	if (!qp)
		return -ENOMEM;
	qp->sq_entries = create->sq_entries;
	qp->cq_entries = create->cq_entries;
	ret = attach_eventfd(odev, qp, create->eventfd);
	if (!ret && !optinc_may_queue(odev))
		ret = -EPERM;
	if (!ret)
		ret = ring_alloc(odev, &qp->sq, qp->sq_entries * sizeof(struct optinc_sqe));
	if (!ret)
		ret = ring_alloc(odev, &qp->cq, qp->cq_entries * sizeof(struct optinc_cqe));
	if (ret)
		goto free;

	mutex_lock(&ctx->lock);
	ret = tell_card(ctx, qp, &kept);
	mutex_unlock(&ctx->lock);
	if (ret)
		goto free;
	create->qp = qp->id;
	create->sq_offset = (u64)OPTINC_PGOFF_QP(qp->id) << PAGE_SHIFT;
	create->cq_offset = (u64)(OPTINC_PGOFF_QP(qp->id) | OPTINC_PGOFF_CQ) << PAGE_SHIFT;
	return 0;

free:
	if (!kept)
		free_qp(odev, qp);
	return ret;
}

static int destroy(struct optinc_context *ctx, u32 id)
{
	struct optinc_qp *qp;
	int ret;

	mutex_lock(&ctx->lock);
	qp = xa_load(&ctx->qps, id);
	ret = qp ? optinc_cmd_qp_destroy(ctx->odev, ctx->handle, id) : -ENOENT;
	if (!ret) {
		xa_erase(&ctx->qps, id);
		list_del(&qp->node);
	}
	mutex_unlock(&ctx->lock);
	if (!ret)
		free_qp(ctx->odev, qp);
	return ret;
}

int optinc_ioctl_qp_destroy(struct optinc_context *ctx, void *arg)
{
	struct optinc_qp_destroy *args = arg;

	return destroy(ctx, args->qp);
}

void optinc_undo_qp_create(struct optinc_context *ctx, void *arg)
{
	struct optinc_qp_create *create = arg;

	destroy(ctx, create->qp);
}

/* ctx->lock held: whoever sleeps shall look. */
void optinc_qps_signal(struct optinc_context *ctx)
{
	struct optinc_qp *qp;

	list_for_each_entry(qp, &ctx->qp_list, node)
		if (qp->eventfd)
			optinc_eventfd_signal(qp->eventfd);
}

/* ctx->lock held; the card uses none of them. */
void optinc_qps_reap(struct optinc_context *ctx)
{
	struct optinc_qp *qp, *next;

	list_for_each_entry_safe(qp, next, &ctx->qp_list, node) {
		if (qp->id)
			xa_erase(&ctx->qps, qp->id);
		list_del(&qp->node);
		free_qp(ctx->odev, qp);
	}
}
