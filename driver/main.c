// SPDX-License-Identifier: GPL-2.0-only
/*
 * OptINC photonic in-network-computing cards: module, probe and remove.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "compat.h"
#include "optinc.h"

static DEFINE_IDA(card_ida);

static struct optinc_device *device_alloc(struct pci_dev *pdev)
{
	struct optinc_device *odev = kzalloc(sizeof(*odev), GFP_KERNEL);

	if (!odev)
		return NULL;
	if (init_srcu_struct(&odev->srcu)) {
		kfree(odev);
		return NULL;
	}
	odev->pdev = pci_dev_get(pdev);
	kref_init(&odev->ref);
	odev->state = OPTINC_PROBING;
	spin_lock_init(&odev->state_lock);
	init_waitqueue_head(&odev->state_wq);
	mutex_init(&odev->identity_lock);
	mutex_init(&odev->contexts_lock);
	INIT_LIST_HEAD(&odev->contexts);
	ida_init(&odev->db_ida);
	xa_init(&odev->groups);
	init_waitqueue_head(&odev->event_wq);
	optinc_recovery_init(odev);
	return odev;
}

static void device_free(struct kref *ref)
{
	struct optinc_device *odev = container_of(ref, struct optinc_device, ref);

	xa_destroy(&odev->groups);
	ida_destroy(&odev->db_ida);
	cleanup_srcu_struct(&odev->srcu);
	pci_dev_put(odev->pdev);
	kfree(odev);
}

/* The last file of a removed card, or remove() itself */
void optinc_device_put(struct optinc_device *odev)
{
	kref_put(&odev->ref, device_free);
}

static void say_no_isolation(struct optinc_device *odev)
{
	if (!optinc_isolates(odev))
		dev_warn(&odev->pdev->dev,
			 "card does not isolate contexts: user queues need CAP_SYS_RAWIO\n");
}

static int optinc_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct optinc_device *odev;
	int ret;

	odev = device_alloc(pdev);
	if (!odev)
		return -ENOMEM;
	odev->id = ida_alloc_max(&card_ida, OPTINC_MAX_CARDS - 1, GFP_KERNEL);
	if (odev->id < 0) {
		ret = odev->id;
		goto put;
	}
	ret = optinc_nodes_prepare(odev);
	if (ret)
		goto free_id;
	ret = optinc_pci_enable(odev);
	if (ret)
		goto drop_nodes;
	ret = optinc_admin_alloc(odev);
	if (ret)
		goto disable;
	ret = optinc_irq_setup(odev);
	if (ret)
		goto free_admin;
	ret = optinc_bring_up(odev);
	if (ret) {
		dev_err_probe(&pdev->dev, ret, "does not start: %s\n", odev->trouble);
		goto free_irq;
	}
	pci_set_drvdata(pdev, odev);
	optinc_end(odev, OPTINC_ONLINE);

	ret = optinc_nodes_add(odev);
	if (ret)
		goto stop;
	optinc_debugfs_add(odev);
	say_no_isolation(odev);
	optinc_health_start(odev);
	return 0;

stop:
	spin_lock_irq(&odev->state_lock);
	odev->removing = true;
	spin_unlock_irq(&odev->state_lock);
	cancel_work_sync(&odev->reset_work);
	optinc_begin_pci(odev);
	optinc_quiesce(odev);
	optinc_stop(odev);
	optinc_contexts_reap(odev);
	optinc_end(odev, OPTINC_GONE);
free_irq:
	optinc_irq_teardown(odev);
free_admin:
	optinc_admin_free(odev);
disable:
	optinc_pci_disable(odev);
drop_nodes:
	put_device(&odev->ctl_dev);
	put_device(&odev->card_dev);
free_id:
	ida_free(&card_ida, odev->id);
put:
	optinc_device_put(odev);
	return ret;
}

/*
 * Files may stay open, and then keep odev; after optinc_end() they find
 * nothing but -ENODEV in it.
 */
static void optinc_remove(struct pci_dev *pdev)
{
	struct optinc_device *odev = pci_get_drvdata(pdev);

	/* Recovery ends, and is not begun again. */
	spin_lock_irq(&odev->state_lock);
	odev->removing = true;
	spin_unlock_irq(&odev->state_lock);
	cancel_work_sync(&odev->reset_work);
	cancel_delayed_work_sync(&odev->health_work);

	optinc_debugfs_del(odev);
	optinc_nodes_del(odev);
	if (!optinc_begin_pci(odev)) {
		optinc_quiesce(odev);
		optinc_stop(odev);
		pci_clear_master(pdev);
		optinc_contexts_reap(odev);
		optinc_end(odev, OPTINC_GONE);
		wake_up_all(&odev->event_wq);
	}
	optinc_irq_teardown(odev);
	optinc_admin_free(odev);
	optinc_pci_disable(odev);
	ida_free(&card_ida, odev->id);
	put_device(&odev->ctl_dev);
	put_device(&odev->card_dev);
	optinc_device_put(odev);
}

/*
 * 1af4:10f0 is an ID for experiments that others may use as well: MAGIC is
 * checked, and there is no MODULE_DEVICE_TABLE, so that it loads nothing by
 * itself. Vendors add a line, or new_id does.
 */
static const struct pci_device_id optinc_ids[] = {
	{ PCI_DEVICE_SUB(OPTINC_PCI_VENDOR_EMU, OPTINC_PCI_DEVICE_EMU,
			 OPTINC_PCI_SUBVENDOR_EMU, OPTINC_PCI_SUBDEVICE_EMU) },
	{ }
};

static struct pci_driver optinc_driver = {
	.name		= KBUILD_MODNAME,
	.id_table	= optinc_ids,
	.probe		= optinc_probe,
	.remove		= optinc_remove,
	.shutdown	= optinc_shutdown,
	.err_handler	= &optinc_err_handlers,
	.driver.pm	= &optinc_pm_ops,
};

static int __init optinc_init(void)
{
	int ret;

	ret = optinc_nodes_init();
	if (ret)
		return ret;
	optinc_debugfs_init();
	ret = pci_register_driver(&optinc_driver);
	if (ret) {
		optinc_debugfs_exit();
		optinc_nodes_exit();
	}
	return ret;
}

static void __exit optinc_exit(void)
{
	pci_unregister_driver(&optinc_driver);
	optinc_debugfs_exit();
	optinc_nodes_exit();
}

module_init(optinc_init);
module_exit(optinc_exit);

MODULE_DESCRIPTION("OptINC photonic in-network-computing cards");
MODULE_AUTHOR("OptINC developers");
MODULE_LICENSE("GPL");
OPTINC_IMPORT_DMA_BUF;
