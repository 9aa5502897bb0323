// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/debug/optinc/cardN: what a developer of driver or firmware wants
 * to see when something hangs. No stable interface.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "optinc.h"

static struct dentry *root;

static int registers_show(struct seq_file *s, void *unused)
{
	static const struct {
		u32 offset;
		const char *name;
	} regs[] = {
		{ OPTINC_REG_MAGIC, "MAGIC" },
		{ OPTINC_REG_VERSION, "VERSION" },
		{ OPTINC_REG_CAP0, "CAP0" },
		{ OPTINC_REG_CAP1, "CAP1" },
		{ OPTINC_REG_CONTROL, "CONTROL" },
		{ OPTINC_REG_STATUS, "STATUS" },
		{ OPTINC_REG_ADMIN_SIZE, "ADMIN_SIZE" },
		{ OPTINC_REG_FW_STATE, "FW_STATE" },
		{ OPTINC_REG_DB_DROPPED, "DB_DROPPED" },
	};
	struct optinc_device *odev = s->private;
	int ret = 0, idx;
	unsigned int i;

	idx = srcu_read_lock(&odev->srcu);
	if (optinc_online(odev)) {
		for (i = 0; i < ARRAY_SIZE(regs); i++)
			seq_printf(s, "%#05x %-10s %#010x\n", regs[i].offset, regs[i].name,
				   optinc_read(odev, regs[i].offset));
	} else {
		ret = -ENODEV;
	}
	srcu_read_unlock(&odev->srcu, idx);
	return ret;
}
DEFINE_SHOW_ATTRIBUTE(registers);

static int admin_show(struct seq_file *s, void *unused)
{
	static const char * const uses[] = {
		[OPTINC_SLOT_FREE]	= "free",
		[OPTINC_SLOT_WAIT]	= "waits",
		[OPTINC_SLOT_DONE]	= "done",
		[OPTINC_SLOT_EVENT]	= "event",
	};
	struct optinc_device *odev = s->private;
	struct optinc_admin *admin = &odev->admin;
	unsigned int i;

	spin_lock_irq(&admin->lock);
	seq_printf(s, "entries %u\nstopped %d\nsq_tail %u\ncq_head %u\nwaiting %u\n",
		   admin->entries, admin->stopped, admin->sq_tail, admin->cq_head,
		   admin->waiting);
	for (i = 0; i < admin->entries; i++)
		if (admin->slots[i].use != OPTINC_SLOT_FREE)
			seq_printf(s, "slot %u %s\n", i, uses[admin->slots[i].use]);
	spin_unlock_irq(&admin->lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(admin);

static void show_context(struct seq_file *s, struct optinc_context *ctx)
{
	struct optinc_group *group;
	unsigned long handle;
	struct optinc_mr *mr;
	struct optinc_qp *qp;

	seq_printf(s, "context %u pid %d page %d%s%s\n", ctx->handle, ctx->pid, ctx->db_page,
		   READ_ONCE(ctx->dead) ? " dead" : "", ctx->orphan ? " orphan" : "");
	list_for_each_entry(qp, &ctx->qp_list, node)
		seq_printf(s, "  qp %u sq %u cq %u vector %d\n", qp->id, qp->sq_entries,
			   qp->cq_entries, qp->vector ? (int)qp->vector->index : -1);
	list_for_each_entry(mr, &ctx->mr_list, node)
		seq_printf(s, "  mr %u bytes %llu%s%s%s pieces %u\n", mr->handle, mr->length,
			   mr->writable ? " write" : "", mr->dmabuf ? " dmabuf" : "",
			   mr->watch ? " cache" : "", mr->sgt ? mr->sgt->nents : 0);
	xa_for_each(&ctx->groups, handle, group)
		seq_printf(s, "  group %lu ranks %u events %d\n", handle, group->nranks,
			   atomic_read(&group->events));
}

static int contexts_show(struct seq_file *s, void *unused)
{
	struct optinc_device *odev = s->private;
	struct optinc_context *ctx;

	mutex_lock(&odev->contexts_lock);
	list_for_each_entry(ctx, &odev->contexts, node_list) {
		mutex_lock(&ctx->lock);
		show_context(s, ctx);
		mutex_unlock(&ctx->lock);
	}
	mutex_unlock(&odev->contexts_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(contexts);

static int vectors_show(struct seq_file *s, void *unused)
{
	struct optinc_device *odev = s->private;
	unsigned int i;

	for (i = 0; i < odev->nr_vectors; i++) {
		struct optinc_vector *vector = &odev->vectors[i];

		spin_lock_irq(&vector->lock);
		seq_printf(s, "%s qps %u interrupts %llu\n", vector->name, vector->nr_qps,
			   vector->interrupts);
		spin_unlock_irq(&vector->lock);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(vectors);

void optinc_debugfs_add(struct optinc_device *odev)
{
	struct dentry *dir = debugfs_create_dir(dev_name(&odev->card_dev), root);

	odev->debugfs = dir;
	debugfs_create_file("registers", 0400, dir, odev, &registers_fops);
	debugfs_create_file("admin", 0400, dir, odev, &admin_fops);
	debugfs_create_file("contexts", 0400, dir, odev, &contexts_fops);
	debugfs_create_file("vectors", 0400, dir, odev, &vectors_fops);
}

/* Waits for readers. */
void optinc_debugfs_del(struct optinc_device *odev)
{
	debugfs_remove_recursive(odev->debugfs);
}

void optinc_debugfs_init(void)
{
	root = debugfs_create_dir("optinc", NULL);
}

void optinc_debugfs_exit(void)
{
	debugfs_remove_recursive(root);
}
