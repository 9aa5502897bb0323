/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between the kernels that the driver builds on, 6.1 to 7.x. The
 * rest of the driver is written for the newest; no other file has an #if for
 * a version. Kbuild defines OPTINC_HAS_*.
 */
#ifndef _OPTINC_COMPAT_H
#define _OPTINC_COMPAT_H

#include <linux/aer.h>
#include <linux/dma-buf.h>
#include <linux/eventfd.h>
#include <linux/mm.h>
#include <linux/pci.h>

/* 6.8: the count, always 1, is gone */
#ifdef OPTINC_HAS_EVENTFD_SIGNAL_ONE
static inline void optinc_eventfd_signal(struct eventfd_ctx *ctx)
{
	eventfd_signal(ctx);
}
#else
static inline void optinc_eventfd_signal(struct eventfd_ctx *ctx)
{
	eventfd_signal(ctx, 1);
}
#endif

/* 6.2: class callbacks get a const device */
#ifdef OPTINC_HAS_CONST_DEVNODE
#define optinc_devnode_device const struct device
#else
#define optinc_devnode_device struct device
#endif

/* 6.3: vm_flags is written through helpers */
#ifndef OPTINC_HAS_VM_FLAGS_SET
static inline void vm_flags_mod(struct vm_area_struct *vma, vm_flags_t set, vm_flags_t clear)
{
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
}
#endif

/* 6.13: the name space is a string */
#ifdef OPTINC_HAS_IMPORT_NS_STRING
#define OPTINC_IMPORT_DMA_BUF	MODULE_IMPORT_NS("DMA_BUF")
#else
#define OPTINC_IMPORT_DMA_BUF	MODULE_IMPORT_NS(DMA_BUF)
#endif

/* 6.2, and later ones of 6.1: dma-buf takes the reservation lock itself or not */
#ifndef OPTINC_HAS_DMA_BUF_UNLOCKED
#define dma_buf_map_attachment_unlocked		dma_buf_map_attachment
#define dma_buf_unmap_attachment_unlocked	dma_buf_unmap_attachment
#endif

/* 6.5: the PCI core enables error reporting for everyone */
#ifdef OPTINC_HAS_AER_ENABLE
static inline void optinc_aer_enable(struct pci_dev *pdev)
{
	pci_enable_pcie_error_reporting(pdev);
}
#else
static inline void optinc_aer_enable(struct pci_dev *pdev)
{
}
#endif

/*
 * 6.2: pinning for reading breaks copy-on-write as needed. Before, a page of a
 * private mapping that nobody had written yet (the zero page, the page cache's)
 * stayed pinned while the process went on with a copy, and had to be pinned as
 * if for writing: by force where the mapping is for reading only. Force does
 * not ask whether it is even that, so the plain attempt comes first; a shared
 * mapping has no copy to break, and refuses the force.
 */
#ifdef OPTINC_HAS_GUP_UNSHARE
static inline int optinc_pin_readable(unsigned long addr, int n, struct page **pages)
{
	return pin_user_pages_fast(addr, n, FOLL_LONGTERM, pages);
}
#else
static inline int optinc_pin_readable(unsigned long addr, int n, struct page **pages)
{
	int ret = pin_user_pages_fast(addr, n, FOLL_LONGTERM | FOLL_WRITE, pages);
	int forced;

	if (ret != -EFAULT)
		return ret;
	ret = pin_user_pages_fast(addr, n, FOLL_LONGTERM, pages);
	if (ret <= 0)
		return ret;
	unpin_user_pages(pages, ret);
	forced = pin_user_pages_fast(addr, ret, FOLL_LONGTERM | FOLL_WRITE | FOLL_FORCE, pages);
	if (forced != -EFAULT)
		return forced;
	return pin_user_pages_fast(addr, ret, FOLL_LONGTERM, pages);
}
#endif

/* 6.10: a tracepoint's string is named once */
#ifdef OPTINC_HAS_ASSIGN_STR_ONE
#define OPTINC_ASSIGN_STR(dst, src)	__assign_str(dst)
#else
#define OPTINC_ASSIGN_STR(dst, src)	__assign_str(dst, src)
#endif

#endif /* _OPTINC_COMPAT_H */
