// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory regions: section 6.3 of the card interface.
 *
 * A region's memory is pinned first, outside of odev->srcu since that may
 * fault. Then it is mapped for the card and registered. From the moment the
 * card is told of it until the card has said that it forgot it, or is
 * stopped, it is on ctx->mr_list and stays mapped.
 */
#include <linux/dma-mapping.h>
#include <linux/overflow.h>
#include <linux/slab.h>

#include "optinc.h"

#define MR_FLAGS	(OPTINC_MR_WRITE | OPTINC_MR_DMABUF | OPTINC_MR_CACHE)

static int check_mr_reg(struct optinc_context *ctx, const struct optinc_mr_reg *reg)
{
	u64 end;

	if (reg->flags & ~MR_FLAGS || reg->__reserved)
		return -EOPNOTSUPP;
	if (reg->flags & OPTINC_MR_DMABUF && !IS_ENABLED(CONFIG_DMA_SHARED_BUFFER))
		return -EOPNOTSUPP;
	if (reg->flags & OPTINC_MR_CACHE &&
	    (reg->flags & OPTINC_MR_DMABUF || !IS_ENABLED(CONFIG_MMU_NOTIFIER)))
		return -EOPNOTSUPP;
	if (!reg->length || reg->length > READ_ONCE(ctx->odev->identity.max_mr_bytes))
		return -EINVAL;
	if (check_add_overflow(reg->addr, reg->length, &end))
		return -EINVAL;
	if (!(reg->flags & OPTINC_MR_DMABUF) && reg->fd != -1)
		return -EINVAL;
	return 0;
}

/*
 * Regions may overlap, as what users call buffers does. The DMA API allows that
 * where nothing is synchronised, and nothing is: see optinc_dma_needs_sync().
 */
#define MR_DMA_ATTRS	DMA_ATTR_SKIP_CPU_SYNC

/* In odev->srcu, or while the card is stopped */
static void unmap_mr(struct optinc_context *ctx, struct optinc_mr *mr)
{
	if (!mr->mapped)
		return;
	if (mr->dmabuf)
		optinc_dmabuf_unmap(mr);
	else
		dma_unmap_sgtable(&ctx->odev->pdev->dev, mr->sgt, mr->dir, MR_DMA_ATTRS);
	mr->mapped = false;
}

static void free_mr(struct optinc_mr *mr)
{
	if (mr->dmabuf)
		optinc_dmabuf_put(mr);
	else
		optinc_unpin(mr);
	kfree(mr);
}

static int map_mr(struct optinc_context *ctx, struct optinc_mr *mr)
{
	struct optinc_device *odev = ctx->odev;
	struct scatterlist *sg;
	unsigned int i;
	int ret;

	if (mr->dmabuf) {
		ret = optinc_dmabuf_map(odev, mr);
		mr->mapped = !ret;
		return ret;
	}
	ret = dma_map_sgtable(&odev->pdev->dev, mr->sgt, mr->dir, MR_DMA_ATTRS);
	if (ret)
		return ret == -EIO ? -ENOMEM : ret;
	mr->mapped = true;
	for_each_sgtable_dma_sg(mr->sgt, sg, i) {
		if (optinc_dma_needs_sync(odev, sg_dma_address(sg)))
			return -EOPNOTSUPP;
	}
	return 0;
}

/*
 * The region's pieces as the card sees them, neighbours merged; their number,
 * 0 if the table is too short. Only counts if @list is NULL.
 */
static u32 list_segments(const struct optinc_mr *mr, struct optinc_hw_segment *list)
{
	u64 skip = mr->skip, left = mr->length, end = 0;
	struct scatterlist *sg;
	unsigned int i;
	u32 n = 0;

	for_each_sgtable_dma_sg(mr->sgt, sg, i) {
		u64 addr = sg_dma_address(sg);
		u64 length = sg_dma_len(sg);

		if (skip >= length) {
			skip -= length;
			continue;
		}
		addr += skip;
		length = min(length - skip, left);
		skip = 0;
		if (!n || addr != end) {
			if (list)
				list[n].addr = cpu_to_le64(addr);
			n++;
		}
		if (list)
			le64_add_cpu(&list[n - 1].length, length);
		end = addr + length;
		left -= length;
		if (!left)
			return n;
	}
	return 0;
}

/* ctx->lock held. Says in @kept whether the region is the context's, on error too. */
static int tell_card(struct optinc_context *ctx, struct optinc_mr *mr, struct optinc_buffer *list,
		     u32 segments, bool *kept)
{
	struct optinc_device *odev = ctx->odev;
	int ret;

	ret = optinc_context_create(ctx);
	if (!ret && ctx->nr_mrs >= odev->identity.max_mrs)
		ret = -ENOSPC;
	if (ret) {
		optinc_buffer_free(odev, list);
		return ret;
	}
	list_add(&mr->node, &ctx->mr_list);
	ctx->nr_mrs++;
	ret = optinc_cmd_mr_reg(odev, ctx->handle, mr, list, segments, &mr->handle);
	optinc_buffer_done(odev, list, ret);
	*kept = optinc_unanswered(ret);
	if (!ret) {
		ret = xa_insert(&ctx->mrs, mr->handle, mr, GFP_KERNEL_ACCOUNT);
		if (ret == -EBUSY) {
			optinc_fail(odev, "the card made two regions of one handle");
			*kept = true;
			return -EIO;
		}
		*kept = !ret || optinc_cmd_mr_dereg(odev, ctx->handle, mr->handle);
	}
	if (!*kept) {
		list_del(&mr->node);
		ctx->nr_mrs--;
	}
	return ret;
}

/* In odev->srcu */
static int register_mr(struct optinc_context *ctx, struct optinc_mr *mr, bool *kept)
{
	struct optinc_device *odev = ctx->odev;
	struct optinc_buffer *list;
	u32 segments;
	int ret;

	ret = map_mr(ctx, mr);
	if (ret)
		goto unmap;
	segments = list_segments(mr, NULL);
	if (!segments) {
		ret = -EINVAL;
		goto unmap;
	}
	if (segments > odev->identity.max_segments) {
		ret = -ENOSPC;
		goto unmap;
	}
	list = optinc_buffer_alloc(odev, segments * sizeof(struct optinc_hw_segment));
	if (!list) {
		ret = -ENOMEM;
		goto unmap;
	}
	list_segments(mr, list->cpu);

	mutex_lock(&ctx->lock);
	ret = tell_card(ctx, mr, list, segments, kept);
	mutex_unlock(&ctx->lock);
unmap:
	if (!*kept)
		unmap_mr(ctx, mr);
	return ret;
}

int optinc_ioctl_mr_reg(struct optinc_context *ctx, void *arg)
{
	struct optinc_mr_reg *reg = arg;
	struct optinc_mr *mr;
	bool kept = false;
	int ret, idx;

	ret = check_mr_reg(ctx, reg);
	if (ret)
		return ret;
	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return -ENOMEM;
	mr->length = reg->length;
	mr->writable = reg->flags & OPTINC_MR_WRITE;
	mr->dir = mr->writable ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE;
	if (reg->flags & OPTINC_MR_DMABUF)
		ret = optinc_dmabuf_get(mr, reg->fd, reg->addr);
	else
		ret = optinc_pin(ctx, mr, reg->addr, reg->flags & OPTINC_MR_CACHE);
	if (ret) {
		kfree(mr);
		return ret;
	}

	idx = srcu_read_lock(&ctx->odev->srcu);
	ret = optinc_alive(ctx) ? register_mr(ctx, mr, &kept) : -ENODEV;
	if (!ret) {
		reg->mr = mr->handle;
		reg->slot = mr->slot;
	}
	srcu_read_unlock(&ctx->odev->srcu, idx);
	if (!kept)
		free_mr(mr);
	return ret;
}

static int deregister(struct optinc_context *ctx, u32 handle)
{
	struct optinc_mr *mr;
	int ret;

	mutex_lock(&ctx->lock);
	mr = xa_load(&ctx->mrs, handle);
	ret = mr ? optinc_cmd_mr_dereg(ctx->odev, ctx->handle, handle) : -ENOENT;
	if (!ret) {
		xa_erase(&ctx->mrs, handle);
		list_del(&mr->node);
		ctx->nr_mrs--;
	}
	mutex_unlock(&ctx->lock);
	if (!ret) {
		unmap_mr(ctx, mr);
		free_mr(mr);
	}
	return ret;
}

int optinc_ioctl_mr_dereg(struct optinc_context *ctx, void *arg)
{
	struct optinc_mr_dereg *dereg = arg;

	return deregister(ctx, dereg->mr);
}

void optinc_undo_mr_reg(struct optinc_context *ctx, void *arg)
{
	struct optinc_mr_reg *reg = arg;

	deregister(ctx, reg->mr);
}

/* ctx->lock held; the card reaches none of them. */
void optinc_mrs_reap(struct optinc_context *ctx)
{
	struct optinc_mr *mr, *next;

	list_for_each_entry_safe(mr, next, &ctx->mr_list, node) {
		if (mr->handle)
			xa_erase(&ctx->mrs, mr->handle);
		list_del(&mr->node);
		unmap_mr(ctx, mr);
		free_mr(mr);
	}
	ctx->nr_mrs = 0;
}
