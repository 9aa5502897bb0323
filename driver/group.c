// SPDX-License-Identifier: GPL-2.0-only
/*
 * Groups: section 9 of the card interface.
 *
 * A wait for the peers is not within odev->srcu: it sleeps until the card
 * reports an event of the group, and asks the card then. The count of events
 * is read before the card is asked, so none is missed.
 */
#include <linux/freezer.h>
#include <linux/slab.h>

#include "optinc.h"

#define MAX_DEADLINE_MS	3600000
#define ANY_WIDTH	(BIT_ULL(OPTINC_F32) | BIT_ULL(OPTINC_F16) | BIT_ULL(OPTINC_BF16) | \
			 BIT_ULL(OPTINC_BIT) | BIT_ULL(OPTINC_U8))

static void free_group(struct kref *ref)
{
	kfree(container_of(ref, struct optinc_group, ref));
}

static void put_group(struct optinc_group *group)
{
	kref_put(&group->ref, free_group);
}

static int check_join(const struct optinc_identity *id, const struct optinc_group_join *join)
{
	u64 dtypes = ANY_WIDTH | BIT_ULL(join->bits == 8 ? OPTINC_I8 : OPTINC_I16);

	if (join->flags)
		return -EOPNOTSUPP;
	if ((join->bits != 8 && join->bits != 16) || !(id->code_bits & BIT_ULL(join->bits)))
		return -EOPNOTSUPP;
	if (join->format != id->format_version || join->dtypes & ~(dtypes & id->dtypes))
		return -EOPNOTSUPP;
	if (!memchr_inv(join->key, 0, sizeof(join->key)) || !join->dtypes)
		return -EINVAL;
	if (join->nranks < 2 || join->nranks > min_t(u32, OPTINC_MAX_RANKS, id->ports) ||
	    join->rank >= join->nranks)
		return -EINVAL;
	if (!join->deadline_ms || join->deadline_ms > MAX_DEADLINE_MS)
		return -EINVAL;
	return 0;
}

/* ctx->lock held; the card has the group. */
static int remember(struct optinc_context *ctx, struct optinc_group *group)
{
	struct optinc_device *odev = ctx->odev;
	int ret;

	ret = xa_insert(&odev->groups, group->handle, group, GFP_KERNEL_ACCOUNT);
	if (ret == -EBUSY) {
		optinc_fail(odev, "the card made two groups of one handle");
		return -EIO;
	}
	if (ret)
		goto leave;
	ret = xa_insert(&ctx->groups, group->handle, group, GFP_KERNEL_ACCOUNT);
	if (!ret)
		return 0;
	xa_erase(&odev->groups, group->handle);
leave:
	optinc_cmd_group_leave(odev, ctx->handle, group->handle);
	return ret;
}

int optinc_ioctl_group_join(struct optinc_context *ctx, void *arg)
{
	struct optinc_group_join *join = arg;
	struct optinc_hw_join hw = {
		.rank = cpu_to_le32(join->rank),
		.nranks = cpu_to_le32(join->nranks),
		.bits = cpu_to_le32(join->bits),
		.format = cpu_to_le32(join->format),
		.dtypes = cpu_to_le64(join->dtypes),
		.deadline_ms = cpu_to_le32(join->deadline_ms),
	};
	struct optinc_group *group;
	int ret;

	ret = check_join(&ctx->odev->identity, join);
	if (ret)
		return ret;
	group = kzalloc(sizeof(*group), GFP_KERNEL_ACCOUNT);
	if (!group)
		return -ENOMEM;
	kref_init(&group->ref);
	group->nranks = join->nranks;
	memcpy(hw.key, join->key, sizeof(hw.key));

	mutex_lock(&ctx->lock);
	ret = optinc_context_create(ctx);
	if (!ret)
		ret = optinc_cmd_group_join(ctx->odev, ctx->handle, &hw, &group->handle);
	if (!ret)
		ret = remember(ctx, group);
	mutex_unlock(&ctx->lock);
	memzero_explicit(hw.key, sizeof(hw.key));
	if (ret)
		put_group(group);
	else
		join->group = group->handle;
	return ret;
}

static struct optinc_group *get_group(struct optinc_context *ctx, u32 handle)
{
	struct optinc_group *group;

	mutex_lock(&ctx->lock);
	group = xa_load(&ctx->groups, handle);
	if (group)
		kref_get(&group->ref);
	mutex_unlock(&ctx->lock);
	return group;
}

/* Asks the card; what it says is checked. */
static int query(struct optinc_context *ctx, struct optinc_group *group,
		 struct optinc_group_wait *wait)
{
	struct optinc_hw_group_state hw;
	bool failed;
	int ret;

	ret = optinc_cmd_group_query(ctx->odev, ctx->handle, group->handle, &hw);
	if (ret)
		return ret;
	wait->state = le32_to_cpu(hw.state);
	wait->status = le32_to_cpu(hw.status);
	wait->peer = le16_to_cpu(hw.peer);
	wait->mismatch = le16_to_cpu(hw.mismatch);
	wait->joined = le32_to_cpu(hw.joined) & GENMASK(group->nranks - 1, 0);
	if (wait->state < OPTINC_GROUP_JOINING || wait->state > OPTINC_GROUP_FAILED)
		return -EIO;
	if (wait->peer >= group->nranks && wait->peer != OPTINC_NO_RANK)
		return -EIO;
	failed = wait->state == OPTINC_GROUP_FAILED;
	return failed == (wait->status != OPTINC_ST_SUCCESS) ? 0 : -EIO;
}

static int guarded_query(struct optinc_context *ctx, struct optinc_group *group,
			 struct optinc_group_wait *wait)
{
	int ret = -ENODEV;
	int idx;

	idx = srcu_read_lock(&ctx->odev->srcu);
	if (optinc_alive(ctx))
		ret = READ_ONCE(group->left) ? -ENOENT : query(ctx, group, wait);
	srcu_read_unlock(&ctx->odev->srcu, idx);
	return ret;
}

static int wait_group(struct optinc_context *ctx, struct optinc_group *group,
		      struct optinc_group_wait *wait)
{
	long left = msecs_to_jiffies(wait->timeout_ms);
	int events, ret;

	for (;;) {
		events = atomic_read(&group->events);
		/* Pairs with optinc_group_event(): the count before the state */
		smp_rmb();
		ret = guarded_query(ctx, group, wait);
		if (ret || wait->state != OPTINC_GROUP_JOINING || !left)
			return ret;
		/* Sleep of the machine is no signal. */
		left = wait_event_freezable_timeout(ctx->odev->event_wq,
						    atomic_read(&group->events) != events ||
						    READ_ONCE(group->left) ||
						    !optinc_alive(ctx), left);
		if (left < 0)
			return -EINTR;
	}
}

int optinc_ioctl_group_wait(struct optinc_context *ctx, void *arg)
{
	struct optinc_group_wait *wait = arg;
	struct optinc_group *group;
	int ret;

	if (wait->__reserved)
		return -EOPNOTSUPP;
	group = get_group(ctx, wait->group);
	if (!group)
		return optinc_alive(ctx) ? -ENOENT : -ENODEV;
	ret = wait_group(ctx, group, wait);
	put_group(group);
	return ret;
}

static int leave(struct optinc_context *ctx, u32 handle)
{
	struct optinc_device *odev = ctx->odev;
	struct optinc_group *group;
	int ret;

	mutex_lock(&ctx->lock);
	group = xa_load(&ctx->groups, handle);
	ret = group ? optinc_cmd_group_leave(odev, ctx->handle, handle) : -ENOENT;
	if (!ret) {
		WRITE_ONCE(group->left, true);
		xa_erase(&ctx->groups, handle);
		xa_erase(&odev->groups, handle);
	}
	mutex_unlock(&ctx->lock);
	if (!ret) {
		wake_up_all(&odev->event_wq);
		put_group(group);
	}
	return ret;
}

int optinc_ioctl_group_leave(struct optinc_context *ctx, void *arg)
{
	struct optinc_group_leave *args = arg;

	return leave(ctx, args->group);
}

void optinc_undo_group_join(struct optinc_context *ctx, void *arg)
{
	struct optinc_group_join *join = arg;

	leave(ctx, join->group);
}

int optinc_ioctl_group_abort(struct optinc_context *ctx, void *arg)
{
	struct optinc_group_abort *args = arg;
	int ret;

	mutex_lock(&ctx->lock);
	if (xa_load(&ctx->groups, args->group))
		ret = optinc_cmd_group_abort(ctx->odev, ctx->handle, args->group);
	else
		ret = -ENOENT;
	mutex_unlock(&ctx->lock);
	return ret;
}

/* From the admin queue's event work; a group that has just been left is no error. */
void optinc_group_event(struct optinc_device *odev, u32 handle)
{
	struct optinc_group *group;

	xa_lock(&odev->groups);
	group = xa_load(&odev->groups, handle);
	if (group)
		atomic_inc(&group->events);
	xa_unlock(&odev->groups);
	wake_up_all(&odev->event_wq);
}

/* ctx->lock held; the card has none of them. */
void optinc_groups_reap(struct optinc_context *ctx)
{
	struct optinc_group *group;
	unsigned long handle;

	xa_for_each(&ctx->groups, handle, group) {
		xa_erase(&ctx->groups, handle);
		xa_erase(&ctx->odev->groups, handle);
		WRITE_ONCE(group->left, true);
		put_group(group);
	}
}
