// SPDX-License-Identifier: GPL-2.0-only
/*
 * The PCI function: BARs, DMA masks, bus mastering.
 *
 * BAR2 is not mapped by the kernel. Its pages go to user space, mmap.c.
 */
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/iommu.h>

#include "compat.h"
#include "optinc.h"

static int check_bars(struct optinc_device *odev)
{
	struct pci_dev *pdev = odev->pdev;
	unsigned long need = IORESOURCE_MEM;

	if ((pci_resource_flags(pdev, OPTINC_BAR_REGS) & need) != need ||
	    (pci_resource_flags(pdev, OPTINC_BAR_DOORBELLS) & need) != need ||
	    pci_resource_len(pdev, OPTINC_BAR_REGS) < OPTINC_BAR0_BYTES) {
		dev_err(&pdev->dev, "BARs are not those of a card\n");
		return -ENODEV;
	}
	odev->doorbells = pci_resource_start(pdev, OPTINC_BAR_DOORBELLS);
	odev->doorbells_bytes = pci_resource_len(pdev, OPTINC_BAR_DOORBELLS);
	return 0;
}

/* Bus mastering waits until a card that somebody left running is reset. */
int optinc_pci_enable(struct optinc_device *odev)
{
	struct pci_dev *pdev = odev->pdev;
	int ret;

	ret = pci_enable_device_mem(pdev);
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "cannot be enabled\n");
	ret = check_bars(odev);
	if (ret)
		goto disable;
	ret = pci_request_mem_regions(pdev, KBUILD_MODNAME);
	if (ret) {
		dev_err_probe(&pdev->dev, ret, "BARs are taken\n");
		goto disable;
	}
	odev->regs = pci_iomap(pdev, OPTINC_BAR_REGS, OPTINC_BAR0_BYTES);
	if (!odev->regs) {
		ret = -ENOMEM;
		goto release;
	}

	ret = optinc_hw_check(odev);
	if (ret)
		goto unmap;
	ret = optinc_hw_boot(odev);
	if (ret) {
		dev_err_probe(&pdev->dev, ret, "firmware does not run\n");
		goto unmap;
	}
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(odev->dma_bits));
	if (ret) {
		dev_err_probe(&pdev->dev, ret, "%u-bit DMA is not possible\n", odev->dma_bits);
		goto unmap;
	}
	/* Regions are lists of segments of any length. */
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	dma_set_seg_boundary(&pdev->dev, ULONG_MAX);
	optinc_aer_enable(pdev);
	return 0;

unmap:
	pci_iounmap(pdev, odev->regs);
	odev->regs = NULL;
release:
	pci_release_mem_regions(pdev);
disable:
	pci_disable_device(pdev);
	return ret;
}

void optinc_pci_disable(struct optinc_device *odev)
{
	struct pci_dev *pdev = odev->pdev;

	pci_clear_master(pdev);
	pci_iounmap(pdev, odev->regs);
	odev->regs = NULL;
	pci_release_mem_regions(pdev);
	pci_disable_device(pdev);
}

/*
 * Would the CPU see what the card writes to this address only after a sync?
 * Nobody can sync rings and regions that user space and the card share, so
 * they must be memory that both see as it is: coherent, and not bounced. An
 * IOMMU that translates has no need to bounce whole pages.
 */
bool optinc_dma_needs_sync(struct optinc_device *odev, dma_addr_t addr)
{
	struct device *dev = &odev->pdev->dev;
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	if (!dev_is_dma_coherent(dev))
		return true;
	if (domain && domain->type != IOMMU_DOMAIN_IDENTITY)
		return false;
	return dma_need_sync(dev, addr);
}
