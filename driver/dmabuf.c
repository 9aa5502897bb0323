// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions of a dma-buf: a static attachment, which pins where an exporter
 * could move. Whoever exports it has paid for the memory.
 */
#include <linux/dma-buf.h>
#include <linux/overflow.h>

#include "compat.h"
#include "optinc.h"

int optinc_dmabuf_get(struct optinc_mr *mr, int fd, u64 offset)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	/* The sum was checked. */
	if (offset + mr->length > dmabuf->size) {
		dma_buf_put(dmabuf);
		return -EINVAL;
	}
	mr->dmabuf = dmabuf;
	mr->skip = offset;
	return 0;
}

void optinc_dmabuf_put(struct optinc_mr *mr)
{
	dma_buf_put(mr->dmabuf);
	mr->dmabuf = NULL;
}

int optinc_dmabuf_map(struct optinc_device *odev, struct optinc_mr *mr)
{
	struct dma_buf_attachment *attachment;
	struct sg_table *sgt;

	attachment = dma_buf_attach(mr->dmabuf, &odev->pdev->dev);
	if (IS_ERR(attachment))
		return PTR_ERR(attachment);
	sgt = dma_buf_map_attachment_unlocked(attachment, mr->dir);
	if (IS_ERR(sgt)) {
		dma_buf_detach(mr->dmabuf, attachment);
		return PTR_ERR(sgt);
	}
	mr->attachment = attachment;
	mr->sgt = sgt;
	return 0;
}

void optinc_dmabuf_unmap(struct optinc_mr *mr)
{
	dma_buf_unmap_attachment_unlocked(mr->attachment, mr->sgt, mr->dir);
	dma_buf_detach(mr->dmabuf, mr->attachment);
	mr->attachment = NULL;
	mr->sgt = NULL;
}
