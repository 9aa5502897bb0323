// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mappings into user space: rings, the context page, and one page of BAR2 for
 * doorbells.
 *
 * Rings and context pages are mapped at once, page by page; each holds its page,
 * nothing else has to be remembered. The doorbell page is put in by faults, so that it can
 * be taken away: optinc_zap_doorbell() removes it, and the next access finds
 * the context dead and gets a page that goes nowhere. A fault is in odev->srcu
 * while it looks and inserts, and the zap comes after the context is marked
 * and all such sections have ended: no mapping of the card survives it.
 */
#include <linux/fs.h>
#include <linux/mm.h>

#include "compat.h"
#include "optinc.h"
#include "trace.h"

static vm_fault_t doorbell_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct optinc_context *ctx = vma->vm_private_data;
	struct optinc_device *odev = ctx->odev;
	vm_fault_t ret;
	bool alive;
	int idx;

	idx = srcu_read_lock(&odev->srcu);
	alive = optinc_alive(ctx);
	if (alive) {
		phys_addr_t page = odev->doorbells +
				   ((phys_addr_t)ctx->db_page << (12 + odev->stride_order));

		ret = vmf_insert_pfn(vma, vmf->address, PHYS_PFN(page));
	} else {
		ret = vmf_insert_pfn_prot(vma, vmf->address, page_to_pfn(ctx->dummy),
					  vm_get_page_prot(vma->vm_flags));
	}
	srcu_read_unlock(&odev->srcu, idx);
	trace_optinc_doorbell(odev->id, ctx->db_page, alive);
	return ret;
}

static const struct vm_operations_struct doorbell_vm_ops = {
	.fault = doorbell_fault,
};

/* odev->contexts_lock held: the file is open as long as there is a mapping. */
void optinc_zap_doorbell(struct optinc_context *ctx)
{
	if (ctx->mapping)
		unmap_mapping_range(ctx->mapping, (loff_t)OPTINC_PGOFF_DOORBELL << PAGE_SHIFT,
				    PAGE_SIZE, 1);
}

static int map_doorbell(struct optinc_context *ctx, struct vm_area_struct *vma)
{
	int ret;

	if (vma->vm_end - vma->vm_start != PAGE_SIZE)
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC || !optinc_may_queue(ctx->odev))
		return -EPERM;
	mutex_lock(&ctx->lock);
	ret = optinc_context_create(ctx);
	mutex_unlock(&ctx->lock);
	if (ret)
		return ret;
	vm_flags_mod(vma, VM_PFNMAP | VM_IO | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY,
		     VM_MAYEXEC);
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	vma->vm_private_data = ctx;
	vma->vm_ops = &doorbell_vm_ops;
	return 0;
}

static int insert_ring(struct vm_area_struct *vma, const struct optinc_ring *ring)
{
	size_t offset;
	int ret = 0;

	vm_flags_mod(vma, VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY, VM_MAYEXEC);
	for (offset = 0; offset < ring->bytes && !ret; offset += PAGE_SIZE)
		ret = vm_insert_page(vma, vma->vm_start + offset,
				     virt_to_page(ring->cpu + offset));
	return ret;
}

static int map_ring(struct optinc_context *ctx, struct vm_area_struct *vma)
{
	unsigned long cq = vma->vm_pgoff & OPTINC_PGOFF_CQ;
	unsigned long id = vma->vm_pgoff >> OPTINC_PGOFF_QP_SHIFT;
	struct optinc_ring *ring;
	struct optinc_qp *qp;
	int ret = -EINVAL;

	if (id > U16_MAX || vma->vm_pgoff != (OPTINC_PGOFF_QP(id) | cq))
		return -EINVAL;
	mutex_lock(&ctx->lock);
	qp = xa_load(&ctx->qps, id);
	if (!qp)
		goto unlock;
	ring = cq ? &qp->cq : &qp->sq;
	if (vma->vm_end - vma->vm_start != ring->bytes)
		goto unlock;
	ret = vma->vm_flags & VM_EXEC ? -EPERM : insert_ring(vma, ring);
unlock:
	mutex_unlock(&ctx->lock);
	return ret;
}

/* Memory of the context, not of the card: it stays mapped, and true, after a reset. */
static int map_context(struct optinc_context *ctx, struct vm_area_struct *vma)
{
	struct page *page;

	if (vma->vm_end - vma->vm_start != PAGE_SIZE)
		return -EINVAL;
	if (vma->vm_flags & (VM_WRITE | VM_EXEC))
		return -EPERM;
	mutex_lock(&ctx->lock);
	page = optinc_context_page(ctx);
	mutex_unlock(&ctx->lock);
	if (!page)
		return -ENOMEM;
	vm_flags_mod(vma, VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY, VM_MAYWRITE | VM_MAYEXEC);
	return vm_insert_page(vma, vma->vm_start, page);
}

int optinc_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct optinc_context *ctx = file->private_data;
	int ret = -ENODEV;
	int idx;

	idx = srcu_read_lock(&ctx->odev->srcu);
	if (optinc_alive(ctx)) {
		if (!(vma->vm_flags & VM_MAYSHARE))
			ret = -EINVAL;
		else if (vma->vm_pgoff == OPTINC_PGOFF_DOORBELL)
			ret = map_doorbell(ctx, vma);
		else if (vma->vm_pgoff == OPTINC_PGOFF_CONTEXT && IS_ENABLED(CONFIG_MMU_NOTIFIER))
			ret = map_context(ctx, vma);
		else
			ret = map_ring(ctx, vma);
	}
	srcu_read_unlock(&ctx->odev->srcu, idx);
	return ret;
}
