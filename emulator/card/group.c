// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Groups of this card, section 9: what the host sees of the fabric's channels.
 */
#include <errno.h>
#include <string.h>

#include "emulator/card/internal.h"

_Static_assert(sizeof(struct optinc_hw_join) == 64, "as specified");
_Static_assert(sizeof(struct optinc_hw_group_state) == 32, "as specified");

#define DTYPE(type)		(1ULL << OPTINC_##type)
#define DEADLINE_MAX_MS		3600000

struct card_group *card_group_find(struct card *card, const struct card_context *ctx,
				   uint32_t handle)
{
	uint32_t slot = handle % CARD_HANDLE_SLOTS;
	struct card_group *group;

	if (!handle || slot >= CARD_GROUPS)
		return NULL;
	group = &card->groups[slot];
	return group->handle == handle && group->ctx == ctx ? group : NULL;
}

static struct card_group *find_free(struct card *card)
{
	unsigned int i;

	for (i = 0; i < CARD_GROUPS; i++) {
		if (!card->groups[i].handle)
			return &card->groups[i];
	}
	return NULL;
}

static bool all_zero(const uint8_t *bytes, size_t n)
{
	while (n--) {
		if (bytes[n])
			return false;
	}
	return true;
}

static bool dtypes_fit(uint64_t dtypes, uint32_t bits)
{
	uint64_t fit = CARD_DTYPES & ~(bits == 8 ? DTYPE(I16) : DTYPE(I8));

	return dtypes && !(dtypes & ~fit);
}

/* The table of 9.1, in its order; bits and dtypes are all offered. */
static uint16_t check_join(const struct card *card, const struct optinc_hw_join *join)
{
	uint32_t ports = card->config.fabric.ports;
	uint32_t most = ports < OPTINC_MAX_RANKS ? ports : OPTINC_MAX_RANKS;
	uint32_t nranks = le32toh(join->nranks);
	uint32_t bits = le32toh(join->bits);
	uint32_t deadline_ms = le32toh(join->deadline_ms);

	if (!all_zero(join->__reserved, sizeof(join->__reserved)) ||
	    all_zero(join->key, sizeof(join->key)) ||
	    nranks < 2 || nranks > most || le32toh(join->rank) >= nranks ||
	    (bits != 8 && bits != 16))
		return OPTINC_AST_INVALID_FIELD;
	if (le32toh(join->format) != OPTINC_FORMAT_VERSION)
		return OPTINC_AST_UNSUPPORTED;
	if (!dtypes_fit(le64toh(join->dtypes), bits) ||
	    !deadline_ms || deadline_ms > DEADLINE_MAX_MS)
		return OPTINC_AST_INVALID_FIELD;
	return OPTINC_AST_SUCCESS;
}

/* From within the fabric, so the host is told later. */
static void changed(void *arg)
{
	struct card_group *group = arg;
	struct fabric_state state;

	fabric_query(group->channel, &state);
	group->state = state.state;
	group->was_ready |= state.state == OPTINC_GROUP_READY;
	group->event = true;
	group->card->attention = true;
}

static uint16_t admin_status(int error)
{
	switch (error) {
	case 0:
		return OPTINC_AST_SUCCESS;
	case -EEXIST:
	case -EBUSY:
		return OPTINC_AST_BUSY;
	case -ENOSPC:
	case -ENOMEM:
		return OPTINC_AST_NO_MEMORY;
	default:
		return OPTINC_AST_INTERNAL;
	}
}

static int offer(struct card_group *group, const struct optinc_hw_join *from)
{
	struct fabric_join join = {
		.rank = le32toh(from->rank),
		.nranks = le32toh(from->nranks),
		.bits = le32toh(from->bits),
		.format = le32toh(from->format),
		.dtypes = le64toh(from->dtypes),
		.deadline_ms = le32toh(from->deadline_ms),
	};

	memcpy(join.key, from->key, sizeof(join.key));
	group->state = OPTINC_GROUP_JOINING;
	group->nranks = join.nranks;
	group->rank = join.rank;
	group->bits = join.bits;
	group->dtypes = join.dtypes;
	return fabric_join(group->card->port, &join, changed, group, &group->channel);
}

uint16_t card_group_join(struct card *card, struct card_context *ctx,
			 const struct optinc_admin_cmd *cmd, struct admin_result *result)
{
	struct card_group *group;
	struct optinc_hw_join join;
	uint16_t status;

	if (le32toh(cmd->length) != sizeof(join))
		return OPTINC_AST_INVALID_FIELD;
	group = find_free(card);
	if (!group)
		return OPTINC_AST_LIMIT;
	if (card->ops->read(card->host, le64toh(cmd->addr), &join, sizeof(join)))
		return OPTINC_AST_DMA;
	status = check_join(card, &join);
	if (status)
		return status;

	memset(group, 0, sizeof(*group));
	group->card = card;
	group->ctx = ctx;
	status = admin_status(offer(group, &join));
	if (status)
		return status;
	group->handle = card_handle(card, (uint32_t)(group - card->groups));
	result->handle = group->handle;
	return OPTINC_AST_SUCCESS;
}

uint16_t card_group_query(struct card *card, struct card_context *ctx,
			  const struct optinc_admin_cmd *cmd, struct admin_result *result)
{
	struct card_group *group = card_group_find(card, ctx, le32toh(cmd->handle));
	struct optinc_hw_group_state answer = { 0 };
	struct fabric_state state;

	if (!group)
		return OPTINC_AST_INVALID_HANDLE;
	fabric_query(group->channel, &state);
	answer.state = htole32(state.state);
	answer.status = htole32(state.status);
	answer.peer = htole16(state.peer);
	/* a request's mismatch is told by its completion, in other terms */
	answer.mismatch = htole16(group->was_ready ? 0 : state.mismatch);
	answer.joined = htole32(state.joined);
	return card_admin_put(card, cmd, &answer, sizeof(answer), result);
}

/*
 * Either way, all requests are complete then and nothing reaches their
 * memory. Peers see that this rank left, or that it was lost.
 */
static void leave(struct card_group *group)
{
	fabric_leave(group->channel);
	memset(group, 0, sizeof(*group));
}

void card_group_lose(struct card_group *group)
{
	fabric_lose(group->channel);
	memset(group, 0, sizeof(*group));
}

uint16_t card_group_leave(struct card *card, struct card_context *ctx,
			  const struct optinc_admin_cmd *cmd, struct admin_result *result)
{
	struct card_group *group = card_group_find(card, ctx, le32toh(cmd->handle));

	(void)result;
	if (!group)
		return OPTINC_AST_INVALID_HANDLE;
	leave(group);
	return OPTINC_AST_SUCCESS;
}

uint16_t card_group_abort(struct card *card, struct card_context *ctx,
			  const struct optinc_admin_cmd *cmd, struct admin_result *result)
{
	struct card_group *group = card_group_find(card, ctx, le32toh(cmd->handle));

	(void)result;
	if (!group)
		return OPTINC_AST_INVALID_HANDLE;
	fabric_abort(group->channel);
	return OPTINC_AST_SUCCESS;
}
