// SPDX-License-Identifier: GPL-2.0-only
/*
 * What an open data node owns, and how it ends.
 *
 * The end has two sides: the context on the card (CTX_DESTROY is a fence) and
 * the host's memory, which is given back after it. When the card does not
 * answer, it may still reach the memory. Then the context stays on the list
 * without its file, as an orphan, until a reset or removal has stopped the
 * card; optinc_contexts_reap() ends it.
 */
#include <linux/mm.h>
#include <linux/slab.h>

#include "optinc.h"

struct optinc_context *optinc_context_alloc(struct optinc_device *odev, u32 node)
{
	struct optinc_context *ctx = kzalloc(sizeof(*ctx), GFP_KERNEL_ACCOUNT);

	if (!ctx)
		return NULL;
	if (node == OPTINC_NODE_CARD) {
		/* Now, because a dead doorbell page cannot wait for memory. */
		ctx->dummy = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!ctx->dummy) {
			kfree(ctx);
			return NULL;
		}
	}
	ctx->odev = odev;
	ctx->node = node;
	ctx->pid = task_tgid_nr(current);
	ctx->db_page = -1;
	INIT_LIST_HEAD(&ctx->node_list);
	mutex_init(&ctx->lock);
	xa_init(&ctx->mrs);
	INIT_LIST_HEAD(&ctx->mr_list);
	xa_init(&ctx->qps);
	INIT_LIST_HEAD(&ctx->qp_list);
	xa_init(&ctx->groups);
	ida_init(&ctx->slots);
	return ctx;
}

void optinc_context_free(struct optinc_context *ctx)
{
	if (ctx->dummy)
		__free_page(ctx->dummy);
	if (ctx->page)
		__free_page(ctx->page);
	ida_destroy(&ctx->slots);
	xa_destroy(&ctx->mrs);
	xa_destroy(&ctx->qps);
	xa_destroy(&ctx->groups);
	mutex_destroy(&ctx->lock);
	kfree(ctx);
}

/* The card has the context from here on. In odev->srcu, with ctx->lock held. */
int optinc_context_create(struct optinc_context *ctx)
{
	struct optinc_device *odev = ctx->odev;
	int page, ret;

	if (ctx->handle)
		return 0;
	/* A page whose creation got no answer stays taken until the reset. */
	if (ctx->db_page >= 0)
		return -ENODEV;
	page = ida_alloc_max(&odev->db_ida,
			     min(odev->db_pages, odev->identity.max_contexts) - 1, GFP_KERNEL);
	if (page < 0)
		return page;
	ret = optinc_cmd_ctx_create(odev, page, &ctx->handle);
	if (ret == -EBUSY) {
		optinc_fail(odev, "the card has a doorbell page in use that is not");
		ret = -EIO;
	}
	if (ret && !optinc_unanswered(ret))
		ida_free(&odev->db_ida, page);
	else
		ctx->db_page = page;
	return ret;
}

/* ctx->lock held; the card reaches nothing of this context any more. */
static void reap(struct optinc_context *ctx)
{
	optinc_groups_reap(ctx);
	optinc_qps_reap(ctx);
	optinc_mrs_reap(ctx);
	if (ctx->db_page >= 0)
		ida_free(&ctx->odev->db_ida, ctx->db_page);
	ctx->db_page = -1;
	ctx->handle = 0;
	ctx->reaped = true;
}

/* The orderly end; the card is well. */
static int destroy(struct optinc_context *ctx)
{
	int ret = 0;

	mutex_lock(&ctx->lock);
	if (ctx->handle)
		ret = optinc_cmd_ctx_destroy(ctx->odev, ctx->handle);
	else if (ctx->db_page >= 0)
		ret = -ENODEV;
	if (!ret)
		reap(ctx);
	mutex_unlock(&ctx->lock);
	return ret;
}

/* The file and all its mappings are gone. */
void optinc_context_close(struct optinc_context *ctx)
{
	struct optinc_device *odev = ctx->odev;
	bool orphan;
	int idx;

	if (ctx->node != OPTINC_NODE_CARD) {
		optinc_context_free(ctx);
		return;
	}

	idx = srcu_read_lock(&odev->srcu);
	if (optinc_alive(ctx))
		destroy(ctx);
	srcu_read_unlock(&odev->srcu, idx);

	mutex_lock(&odev->contexts_lock);
	orphan = !ctx->reaped;
	ctx->orphan = orphan;
	ctx->mapping = NULL;
	if (!orphan)
		list_del(&ctx->node_list);
	mutex_unlock(&odev->contexts_lock);
	if (!orphan)
		optinc_context_free(ctx);
}

/*
 * All contexts are dead from here on: doorbells go nowhere, sleepers wake. By
 * the owner of a transition, when nobody is in odev->srcu.
 */
void optinc_contexts_kill(struct optinc_device *odev)
{
	struct optinc_context *ctx;

	mutex_lock(&odev->contexts_lock);
	list_for_each_entry(ctx, &odev->contexts, node_list) {
		WRITE_ONCE(ctx->dead, true);
		optinc_zap_doorbell(ctx);
		mutex_lock(&ctx->lock);
		optinc_qps_signal(ctx);
		mutex_unlock(&ctx->lock);
	}
	mutex_unlock(&odev->contexts_lock);
}

/* The card is stopped: give back what the dead contexts had. */
void optinc_contexts_reap(struct optinc_device *odev)
{
	struct optinc_context *ctx, *next;

	mutex_lock(&odev->contexts_lock);
	list_for_each_entry_safe(ctx, next, &odev->contexts, node_list) {
		mutex_lock(&ctx->lock);
		if (!ctx->reaped)
			reap(ctx);
		mutex_unlock(&ctx->lock);
		if (ctx->orphan) {
			list_del(&ctx->node_list);
			optinc_context_free(ctx);
		}
	}
	mutex_unlock(&odev->contexts_lock);
}
