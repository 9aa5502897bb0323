// SPDX-License-Identifier: GPL-2.0-only
/*
 * Character devices: /dev/optinc/cardN for users, /dev/optinc/ctlN for root.
 *
 * An open file holds its cdev, that the struct device, and that odev; so odev
 * outlives the card for as long as somebody has a file. The module stays as
 * long, through the owner of the cdev.
 */
#include <linux/freezer.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/poll.h>

#include "compat.h"
#include "optinc.h"

static dev_t first_devt;

static bool is_ctl(dev_t devt)
{
	return (MINOR(devt) - MINOR(first_devt)) & 1;
}

/* The group of cardN is udev's to set. */
static char *optinc_devnode(optinc_devnode_device *dev, umode_t *mode)
{
	if (mode)
		*mode = is_ctl(dev->devt) ? 0600 : 0660;
	return kasprintf(GFP_KERNEL, "optinc/%s", dev_name(dev));
}

struct class optinc_class = {
	.name		= "optinc",
	.devnode	= optinc_devnode,
};

/* Opening waits for a reset to end, so that "open again" is all a user has to do. */
static int open_card(struct optinc_context *ctx, struct file *file)
{
	struct optinc_device *odev = ctx->odev;
	int ret, idx;

	do {
		ret = wait_event_freezable(odev->state_wq,
					   READ_ONCE(odev->state) != OPTINC_RESETTING);
		if (ret)
			return ret;
		idx = srcu_read_lock(&odev->srcu);
		if (optinc_online(odev)) {
			mutex_lock(&odev->contexts_lock);
			ctx->mapping = file->f_mapping;
			list_add_tail(&ctx->node_list, &odev->contexts);
			mutex_unlock(&odev->contexts_lock);
		} else {
			ret = READ_ONCE(odev->state) == OPTINC_RESETTING ? -EAGAIN : -ENODEV;
		}
		srcu_read_unlock(&odev->srcu, idx);
	} while (ret == -EAGAIN);
	return ret;
}

static int open_node(struct file *file, struct optinc_device *odev, u32 node)
{
	struct optinc_context *ctx;
	int ret = 0;

	ctx = optinc_context_alloc(odev, node);
	if (!ctx)
		return -ENOMEM;
	if (node == OPTINC_NODE_CARD)
		ret = open_card(ctx, file);
	else if (READ_ONCE(odev->state) == OPTINC_GONE)
		ret = -ENODEV;
	if (ret) {
		optinc_context_free(ctx);
		return ret;
	}
	file->private_data = ctx;
	return nonseekable_open(NULL, file);
}

static int optinc_open_card(struct inode *inode, struct file *file)
{
	return open_node(file, container_of(inode->i_cdev, struct optinc_device, card_cdev),
			 OPTINC_NODE_CARD);
}

static int optinc_open_ctl(struct inode *inode, struct file *file)
{
	return open_node(file, container_of(inode->i_cdev, struct optinc_device, ctl_cdev),
			 OPTINC_NODE_CTL);
}

static int optinc_release(struct inode *inode, struct file *file)
{
	optinc_context_close(file->private_data);
	return 0;
}

static __poll_t optinc_poll(struct file *file, poll_table *wait)
{
	struct optinc_context *ctx = file->private_data;

	poll_wait(file, &ctx->odev->event_wq, wait);
	if (READ_ONCE(ctx->dead) || READ_ONCE(ctx->odev->state) == OPTINC_GONE)
		return EPOLLERR | EPOLLHUP;
	return 0;
}

static const struct file_operations card_fops = {
	.owner		= THIS_MODULE,
	.open		= optinc_open_card,
	.release	= optinc_release,
	.poll		= optinc_poll,
	.unlocked_ioctl	= optinc_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.mmap		= optinc_mmap,
};

static const struct file_operations ctl_fops = {
	.owner		= THIS_MODULE,
	.open		= optinc_open_ctl,
	.release	= optinc_release,
	.poll		= optinc_poll,
	.unlocked_ioctl	= optinc_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

static void release_card(struct device *dev)
{
	optinc_device_put(container_of(dev, struct optinc_device, card_dev));
}

static void release_ctl(struct device *dev)
{
	optinc_device_put(container_of(dev, struct optinc_device, ctl_dev));
}

static int prepare(struct optinc_device *odev, struct device *dev, struct cdev *cdev, bool ctl,
		   const struct file_operations *fops)
{
	device_initialize(dev);
	kref_get(&odev->ref);
	dev->class = &optinc_class;
	dev->parent = &odev->pdev->dev;
	dev->devt = MKDEV(MAJOR(first_devt), MINOR(first_devt) + 2 * odev->id + ctl);
	dev->release = ctl ? release_ctl : release_card;
	dev_set_drvdata(dev, odev);
	cdev_init(cdev, fops);
	cdev->owner = THIS_MODULE;
	return dev_set_name(dev, ctl ? "ctl%d" : "card%d", odev->id);
}

/* From here on each of the two devices is ended by put_device(). */
int optinc_nodes_prepare(struct optinc_device *odev)
{
	int ret;

	odev->card_dev.groups = optinc_card_groups;
	ret = prepare(odev, &odev->card_dev, &odev->card_cdev, false, &card_fops);
	if (ret)
		goto put_card;
	ret = prepare(odev, &odev->ctl_dev, &odev->ctl_cdev, true, &ctl_fops);
	if (ret)
		goto put_ctl;
	return 0;

put_ctl:
	put_device(&odev->ctl_dev);
put_card:
	put_device(&odev->card_dev);
	return ret;
}

int optinc_nodes_add(struct optinc_device *odev)
{
	int ret;

	ret = cdev_device_add(&odev->ctl_cdev, &odev->ctl_dev);
	if (ret)
		return ret;
	ret = cdev_device_add(&odev->card_cdev, &odev->card_dev);
	if (ret)
		cdev_device_del(&odev->ctl_cdev, &odev->ctl_dev);
	return ret;
}

void optinc_nodes_del(struct optinc_device *odev)
{
	cdev_device_del(&odev->card_cdev, &odev->card_dev);
	cdev_device_del(&odev->ctl_cdev, &odev->ctl_dev);
}

int optinc_nodes_init(void)
{
	int ret;

	ret = alloc_chrdev_region(&first_devt, 0, 2 * OPTINC_MAX_CARDS, "optinc");
	if (ret)
		return ret;
	ret = class_register(&optinc_class);
	if (ret)
		unregister_chrdev_region(first_devt, 2 * OPTINC_MAX_CARDS);
	return ret;
}

void optinc_nodes_exit(void)
{
	class_unregister(&optinc_class);
	unregister_chrdev_region(first_devt, 2 * OPTINC_MAX_CARDS);
}
