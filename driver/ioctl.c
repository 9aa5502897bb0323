// SPDX-License-Identifier: GPL-2.0-only
/*
 * ioctl dispatch, and the calls that only ask. Documentation/uapi.rst is the
 * contract: sections 2 and 3 are kept here, for all calls.
 *
 * A structure is copied in once and out once. User memory is touched outside
 * of odev->srcu only, so that a page fault that user space never answers
 * cannot hold up a reset.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/nospec.h>
#include <linux/uaccess.h>

#include "optinc.h"

struct optinc_ioctl_op {
	unsigned int cmd;
	unsigned int size;		/* of the structure */
	unsigned int min_size;		/* of its first version */
	unsigned int nodes;		/* BIT(OPTINC_NODE_*) */
	bool unguarded;			/* sees to odev->srcu itself */
	bool answers;			/* the structure is copied back */
	int (*execute)(struct optinc_context *ctx, void *arg);
	void (*undo)(struct optinc_context *ctx, void *arg);
};

static int ioctl_query(struct optinc_context *ctx, void *arg)
{
	struct optinc_identity *id = &ctx->odev->identity;
	struct optinc_query *query = arg;
	u32 size = query->size;

	if (query->__reserved)
		return -EOPNOTSUPP;
	memset(query, 0, sizeof(*query));
	query->size = size;
	query->node = ctx->node;
	query->features = id->features;
	if (optinc_may_queue(ctx->odev))
		query->features |= OPTINC_FEAT_USER_QUEUES;
	if (IS_ENABLED(CONFIG_DMA_SHARED_BUFFER))
		query->features |= OPTINC_FEAT_DMABUF;
	if (IS_ENABLED(CONFIG_MMU_NOTIFIER))
		query->features |= OPTINC_FEAT_MR_CACHE;
	query->opcodes = id->opcodes;
	query->dtypes = id->dtypes;
	query->redops = id->redops;
	query->code_bits = id->code_bits;
	query->max_count = id->max_count;
	query->max_mr_bytes = id->max_mr_bytes;
	query->format_version = id->format_version;
	query->port = id->port;
	query->ports = id->ports;
	query->lanes = id->lanes;
	query->lanes_up = READ_ONCE(id->lanes_up);
	query->lane_mbps = id->lane_mbps;
	query->max_qps = id->max_qps;
	query->max_mrs = id->max_mrs;
	query->max_groups = id->max_groups;
	query->max_queue = id->max_queue;
	query->page_size = PAGE_SIZE;
	query->interface_version = id->interface_version;
	query->firmware_version = id->firmware_version;
	if (ctx->node == OPTINC_NODE_CARD)
		query->doorbell_offset = (u64)OPTINC_PGOFF_DOORBELL << PAGE_SHIFT;
	if (ctx->node == OPTINC_NODE_CARD && IS_ENABLED(CONFIG_MMU_NOTIFIER))
		query->context_offset = (u64)OPTINC_PGOFF_CONTEXT << PAGE_SHIFT;
	memcpy(query->serial, id->serial, sizeof(query->serial));
	memcpy(query->model, id->model, sizeof(query->model));
	return 0;
}

static int ioctl_stats(struct optinc_context *ctx, void *arg)
{
	struct optinc_stats *stats = arg;
	struct optinc_hw_port_log log;
	int ret;

	if (stats->__reserved)
		return -EOPNOTSUPP;
	ret = optinc_cmd_port_log(ctx->odev, &log);
	if (ret)
		return ret;
	stats->tx_bytes = le64_to_cpu(log.tx_bytes);
	stats->rx_bytes = le64_to_cpu(log.rx_bytes);
	stats->requests = le64_to_cpu(log.requests);
	stats->errors = le64_to_cpu(log.errors);
	stats->replays = le64_to_cpu(log.replays);
	stats->nonfinite = le64_to_cpu(log.nonfinite);
	stats->saturated = le64_to_cpu(log.saturated);
	stats->doorbells = le64_to_cpu(log.doorbells);
	stats->doorbells_dropped = le64_to_cpu(log.doorbells_dropped);
	stats->wire_ns = le64_to_cpu(log.wire_ns);
	stats->device_ns = le64_to_cpu(log.device_ns);
	return 0;
}

static int ioctl_reset(struct optinc_context *ctx, void *arg)
{
	struct optinc_reset *reset = arg;
	int ret;

	if (reset->flags)
		return -EOPNOTSUPP;
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	ret = optinc_begin(ctx->odev);
	if (ret)
		return ret;
	ret = optinc_reset(ctx->odev, NULL);
	return ret && ret != -ENOMEM ? -EIO : ret;
}

#define CARD	BIT(OPTINC_NODE_CARD)
#define CTL	BIT(OPTINC_NODE_CTL)

/* The smallest size is that of the structure's first version, up to @last. */
#define FIRST(_struct, _last)	offsetofend(struct optinc_##_struct, _last)

#define OP(_cmd, _nodes, _min_size, _size, _execute, ...)		\
	[_IOC_NR(OPTINC_IOCTL_##_cmd)] = {				\
		.cmd = OPTINC_IOCTL_##_cmd,				\
		.nodes = _nodes,					\
		.min_size = _min_size,					\
		.size = _size,						\
		.execute = _execute,					\
		__VA_ARGS__						\
	}

static const struct optinc_ioctl_op ops[] = {
	OP(QUERY, CARD | CTL, FIRST(query, model), sizeof(struct optinc_query),
	   ioctl_query, .answers = true),
	OP(STATS, CARD | CTL, FIRST(stats, device_ns), sizeof(struct optinc_stats),
	   ioctl_stats, .answers = true),
	OP(MR_REG, CARD, FIRST(mr_reg, __reserved), sizeof(struct optinc_mr_reg),
	   optinc_ioctl_mr_reg, .answers = true, .undo = optinc_undo_mr_reg, .unguarded = true),
	OP(MR_DEREG, CARD, FIRST(mr_dereg, mr), sizeof(struct optinc_mr_dereg),
	   optinc_ioctl_mr_dereg),
	OP(QP_CREATE, CARD, FIRST(qp_create, cq_offset), sizeof(struct optinc_qp_create),
	   optinc_ioctl_qp_create, .answers = true, .undo = optinc_undo_qp_create),
	OP(QP_DESTROY, CARD, FIRST(qp_destroy, qp), sizeof(struct optinc_qp_destroy),
	   optinc_ioctl_qp_destroy),
	OP(GROUP_JOIN, CARD, FIRST(group_join, group), sizeof(struct optinc_group_join),
	   optinc_ioctl_group_join, .answers = true, .undo = optinc_undo_group_join),
	OP(GROUP_WAIT, CARD, FIRST(group_wait, __reserved), sizeof(struct optinc_group_wait),
	   optinc_ioctl_group_wait, .answers = true, .unguarded = true),
	OP(GROUP_LEAVE, CARD, FIRST(group_leave, group), sizeof(struct optinc_group_leave),
	   optinc_ioctl_group_leave),
	OP(GROUP_ABORT, CARD, FIRST(group_abort, group), sizeof(struct optinc_group_abort),
	   optinc_ioctl_group_abort),
	OP(RESET, CTL, FIRST(reset, flags), sizeof(struct optinc_reset), ioctl_reset,
	   .unguarded = true),
};

union any {
	u32 size;
	struct optinc_query query;
	struct optinc_stats stats;
	struct optinc_mr_reg mr_reg;
	struct optinc_mr_dereg mr_dereg;
	struct optinc_qp_create qp_create;
	struct optinc_qp_destroy qp_destroy;
	struct optinc_group_join group_join;
	struct optinc_group_wait group_wait;
	struct optinc_group_leave group_leave;
	struct optinc_group_abort group_abort;
	struct optinc_reset reset;
};

static const struct optinc_ioctl_op *find_op(struct optinc_context *ctx, unsigned int cmd)
{
	unsigned int nr = _IOC_NR(cmd);

	if (nr >= ARRAY_SIZE(ops))
		return NULL;
	nr = array_index_nospec(nr, ARRAY_SIZE(ops));
	if (cmd != ops[nr].cmd || !(ops[nr].nodes & BIT(ctx->node)))
		return NULL;
	return &ops[nr];
}

/* Only a reset is worth trying on a card that did not come back from one. */
static bool usable(struct optinc_context *ctx, const struct optinc_ioctl_op *op)
{
	if (op->cmd == OPTINC_IOCTL_RESET)
		return READ_ONCE(ctx->odev->state) != OPTINC_GONE;
	return optinc_alive(ctx);
}

static int copy_in(union any *arg, const struct optinc_ioctl_op *op, void __user *uarg)
{
	u32 size;
	int ret;

	if (get_user(size, (u32 __user *)uarg))
		return -EFAULT;
	if (size < op->min_size)
		return -EINVAL;
	if (size > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(arg, op->size, uarg, size);
	if (ret)
		return ret;
	/* It may have changed meanwhile. */
	arg->size = size;
	return 0;
}

static int execute(struct optinc_context *ctx, const struct optinc_ioctl_op *op, union any *arg)
{
	int ret = -ENODEV;
	int idx;

	if (op->unguarded)
		return op->execute(ctx, arg);
	idx = srcu_read_lock(&ctx->odev->srcu);
	if (optinc_alive(ctx))
		ret = op->execute(ctx, arg);
	srcu_read_unlock(&ctx->odev->srcu, idx);
	return ret;
}

static void undo(struct optinc_context *ctx, const struct optinc_ioctl_op *op, union any *arg)
{
	int idx;

	if (!op->undo)
		return;
	idx = srcu_read_lock(&ctx->odev->srcu);
	if (optinc_alive(ctx))
		op->undo(ctx, arg);
	srcu_read_unlock(&ctx->odev->srcu, idx);
}

long optinc_ioctl(struct file *file, unsigned int cmd, unsigned long uarg)
{
	struct optinc_context *ctx = file->private_data;
	void __user *user = (void __user *)uarg;
	const struct optinc_ioctl_op *op;
	union any arg;
	int ret;

	op = find_op(ctx, cmd);
	if (!op)
		return -ENOTTY;
	if (!usable(ctx, op))
		return -ENODEV;
	ret = copy_in(&arg, op, user);
	if (ret)
		return ret;
	ret = execute(ctx, op, &arg);
	if (ret || !op->answers)
		return ret;
	if (copy_to_user(user, &arg, min(arg.size, op->size))) {
		undo(ctx, op, &arg);
		return -EFAULT;
	}
	return 0;
}
