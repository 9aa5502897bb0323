// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Contexts: who owns queue pairs, regions, groups and a doorbell page.
 */
#include <stdlib.h>
#include <string.h>

#include "emulator/card/internal.h"

struct card_context *card_context_find(struct card *card, uint32_t handle)
{
	uint32_t slot = handle % CARD_HANDLE_SLOTS;

	if (!handle || slot >= CARD_CONTEXTS || card->contexts[slot].handle != handle)
		return NULL;
	return &card->contexts[slot];
}

static struct card_context *find_free(struct card *card)
{
	unsigned int i;

	for (i = 0; i < CARD_CONTEXTS; i++) {
		if (!card->contexts[i].handle)
			return &card->contexts[i];
	}
	return NULL;
}

static bool page_is_taken(const struct card *card, uint32_t page)
{
	unsigned int i;

	for (i = 0; i < CARD_CONTEXTS; i++) {
		if (card->contexts[i].handle && card->contexts[i].page == page)
			return true;
	}
	return false;
}

static bool make_regions(struct card_context *ctx)
{
	unsigned int i;

	ctx->mrs = calloc(CARD_CONTEXT_MRS, sizeof(*ctx->mrs));
	if (!ctx->mrs)
		return false;
	for (i = CARD_CONTEXT_MRS; i--;) {
		ctx->mrs[i].next = ctx->free_mrs;
		ctx->free_mrs = &ctx->mrs[i];
	}
	return true;
}

uint16_t card_context_create(struct card *card, struct card_context *ctx,
			     const struct optinc_admin_cmd *cmd, struct admin_result *result)
{
	uint32_t page = le32toh(cmd->ctx_create.db_page);

	if (page >= card_pages(card))
		return OPTINC_AST_INVALID_FIELD;
	ctx = find_free(card);
	if (!ctx)
		return OPTINC_AST_LIMIT;
	if (page_is_taken(card, page))
		return OPTINC_AST_BUSY;
	if (!make_regions(ctx))
		return OPTINC_AST_NO_MEMORY;
	ctx->page = (uint16_t)page;
	ctx->handle = card_handle(card, (uint32_t)(ctx - card->contexts));
	result->handle = ctx->handle;
	return OPTINC_AST_SUCCESS;
}

/*
 * The order matters: giving up the groups completes their requests, so that
 * nothing names the queue pairs and regions any more.
 */
void card_context_end(struct card *card, struct card_context *ctx)
{
	unsigned int i;

	for (i = 0; i < CARD_QPS; i++) {
		if (card->qps[i] && card->qps[i]->ctx == ctx)
			card->qps[i]->closing = true;
	}
	for (i = 0; i < CARD_GROUPS; i++) {
		if (card->groups[i].handle && card->groups[i].ctx == ctx)
			card_group_lose(&card->groups[i]);
	}
	for (i = 0; i < CARD_QPS; i++) {
		if (card->qps[i] && card->qps[i]->ctx == ctx)
			card_qp_free(card->qps[i]);
	}
	for (i = 0; i < CARD_CONTEXT_MRS; i++) {
		if (ctx->mrs[i].handle)
			card_mr_free(ctx, &ctx->mrs[i]);
	}
	free(ctx->mrs);
	memset(ctx, 0, sizeof(*ctx));
}

uint16_t card_context_destroy(struct card *card, struct card_context *ctx,
			      const struct optinc_admin_cmd *cmd, struct admin_result *result)
{
	(void)cmd;
	(void)result;
	card_context_end(card, ctx);
	return OPTINC_AST_SUCCESS;
}
