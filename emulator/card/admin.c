// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The admin queue, section 5: commands are fetched, checked by a table and
 * completed, all through the host's memory and none of it trusted.
 */
#include <string.h>

#include "emulator/card/internal.h"

_Static_assert(sizeof(struct optinc_admin_cmd) == 64, "as specified");
_Static_assert(sizeof(struct optinc_admin_cqe) == 32, "as specified");

/* What a command uses; every other byte of it has to be zero. */
#define USES_CTX	(1 << 0)
#define USES_HANDLE	(1 << 1)
#define USES_BUFFER	(1 << 2)

/* Taken, and completed later by an event */
#define HELD		0xffff

struct admin_command {
	uint8_t opcode;
	uint8_t uses;
	uint8_t raw;		/* bytes of raw[] it uses */
	uint16_t (*run)(struct card *card, struct card_context *ctx,
			const struct optinc_admin_cmd *cmd, struct admin_result *result);
};

static uint16_t async_event(struct card *card, struct card_context *ctx,
			    const struct optinc_admin_cmd *cmd, struct admin_result *result)
{
	struct card_admin *admin = &card->admin;

	(void)ctx;
	(void)result;
	if (admin->events == OPTINC_MAX_ASYNC_EVENTS)
		return OPTINC_AST_LIMIT;
	admin->event_ids[admin->events++] = cmd->cmd_id;
	return HELD;
}

static const struct admin_command commands[] = {
	{ OPTINC_ADMIN_IDENTIFY, USES_BUFFER, 0, card_identify },
	{ OPTINC_ADMIN_GET_LOG, USES_BUFFER, 8, card_get_log },
	{ OPTINC_ADMIN_ASYNC_EVENT, 0, 0, async_event },
	{ OPTINC_ADMIN_CTX_CREATE, 0, 4, card_context_create },
	{ OPTINC_ADMIN_CTX_DESTROY, USES_CTX, 0, card_context_destroy },
	{ OPTINC_ADMIN_MR_REG, USES_CTX | USES_BUFFER, 16, card_mr_reg },
	{ OPTINC_ADMIN_MR_DEREG, USES_CTX | USES_HANDLE, 0, card_mr_dereg },
	{ OPTINC_ADMIN_QP_CREATE, USES_CTX, 22, card_qp_create },
	{ OPTINC_ADMIN_QP_DESTROY, USES_CTX | USES_HANDLE, 0, card_qp_destroy },
	{ OPTINC_ADMIN_GROUP_JOIN, USES_CTX | USES_BUFFER, 0, card_group_join },
	{ OPTINC_ADMIN_GROUP_QUERY, USES_CTX | USES_HANDLE | USES_BUFFER, 0, card_group_query },
	{ OPTINC_ADMIN_GROUP_LEAVE, USES_CTX | USES_HANDLE, 0, card_group_leave },
	{ OPTINC_ADMIN_GROUP_ABORT, USES_CTX | USES_HANDLE, 0, card_group_abort },
};

static const struct admin_command *find_command(uint8_t opcode)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(commands); i++) {
		if (commands[i].opcode == opcode)
			return &commands[i];
	}
	return NULL;
}

static bool unused_is_zero(const struct admin_command *command,
			   const struct optinc_admin_cmd *cmd)
{
	size_t i;

	if (cmd->flags)
		return false;
	if (!(command->uses & USES_CTX) && cmd->ctx)
		return false;
	if (!(command->uses & USES_HANDLE) && cmd->handle)
		return false;
	if (!(command->uses & USES_BUFFER) && (cmd->addr || cmd->length))
		return false;
	for (i = command->raw; i < sizeof(cmd->raw); i++) {
		if (cmd->raw[i])
			return false;
	}
	return true;
}

static bool buffer_is_valid(const struct optinc_admin_cmd *cmd)
{
	uint64_t addr = le64toh(cmd->addr);
	uint32_t length = le32toh(cmd->length);

	return addr % 8 == 0 && length && card_reachable(addr, length);
}

/* Section 5.3, steps 1 to 5; values and what follows are the command's own. */
static uint16_t run(struct card *card, const struct optinc_admin_cmd *cmd,
		    struct admin_result *result)
{
	const struct admin_command *command = find_command(cmd->opcode);
	struct card_context *ctx = NULL;

	if (!command)
		return OPTINC_AST_INVALID_OPCODE;
	if (!unused_is_zero(command, cmd))
		return OPTINC_AST_INVALID_FIELD;
	if (command->uses & USES_CTX) {
		ctx = card_context_find(card, le32toh(cmd->ctx));
		if (!ctx)
			return OPTINC_AST_INVALID_HANDLE;
	}
	/* GROUP_QUERY: its handle comes before its buffer; others look it up themselves */
	if (command->uses & USES_HANDLE && command->uses & USES_BUFFER &&
	    !card_group_find(card, ctx, le32toh(cmd->handle)))
		return OPTINC_AST_INVALID_HANDLE;
	if (command->uses & USES_BUFFER && !buffer_is_valid(cmd))
		return OPTINC_AST_INVALID_FIELD;
	return command->run(card, ctx, cmd, result);
}

uint16_t card_admin_put(struct card *card, const struct optinc_admin_cmd *cmd, const void *data,
			size_t length, struct admin_result *result)
{
	uint32_t room = le32toh(cmd->length);

	if (length > room)
		length = room;
	if (card->ops->write(card->host, le64toh(cmd->addr), data, length))
		return OPTINC_AST_DMA;
	result->result = length;
	return OPTINC_AST_SUCCESS;
}

static uint64_t base(const uint32_t halves[2])
{
	return (uint64_t)halves[1] << 32 | halves[0];
}

static struct optinc_admin_cqe completion(const struct card *card, uint16_t cmd_id,
					  uint16_t status, const struct admin_result *result)
{
	return (struct optinc_admin_cqe) {
		.cmd_id = cmd_id,
		.status = htole16((uint16_t)(status << 1)),
		.sq_head = htole16(card->admin.sq_head),
		.handle = htole32(status ? 0 : result->handle),
		.result = htole64(status ? 0 : result->result),
	};
}

/*
 * Writes @cqe with its phase. Bytes 8 to 31 first: who sees the new phase, in
 * bytes 0 to 7, sees all.
 */
static void complete(struct card *card, struct optinc_admin_cqe cqe)
{
	struct card_admin *admin = &card->admin;
	uint16_t slot = admin->cq_tail % admin->cq_entries;
	uint16_t phase = !(admin->cq_tail / admin->cq_entries & 1);
	uint64_t addr = base(card->admin_cq) + slot * sizeof(cqe);

	cqe.status ^= htole16(phase);
	if (card->ops->write(card->host, addr + 8, (const char *)&cqe + 8, sizeof(cqe) - 8) ||
	    card->ops->write(card->host, addr, &cqe, 8)) {
		card_fatal(card, OPTINC_FATAL_DMA);
		return;
	}
	admin->cq_tail++;
	admin->raise = true;
}

static void take(struct card *card)
{
	struct card_admin *admin = &card->admin;
	uint16_t slot = admin->sq_head % admin->sq_entries;
	struct admin_result result = { 0 };
	const struct card_fault *fault;
	struct optinc_admin_cmd cmd;
	struct optinc_admin_cqe cqe;
	unsigned int copies;
	uint16_t status;

	if (card->ops->read(card->host, base(card->admin_sq) + slot * sizeof(cmd), &cmd,
			    sizeof(cmd))) {
		card_fatal(card, OPTINC_FATAL_DMA);
		return;
	}
	admin->sq_head++;
	fault = card_fault_due(card, cmd.opcode);
	status = fault && fault->status ? fault->status : run(card, &cmd, &result);
	cqe = completion(card, cmd.cmd_id, status, &result);
	copies = card_fault_spoil(card, fault, &cmd, &cqe);
	while (copies-- && status != HELD && card_ready(card))
		complete(card, cqe);
}

/* The command that waited longest gets the event. */
static void complete_event(struct card *card, uint32_t type, uint32_t handle)
{
	struct card_admin *admin = &card->admin;
	struct admin_result result = { .handle = handle, .result = type };
	uint16_t cmd_id = admin->event_ids[0];

	admin->events--;
	memmove(admin->event_ids, admin->event_ids + 1,
		admin->events * sizeof(admin->event_ids[0]));
	complete(card, completion(card, cmd_id, OPTINC_AST_SUCCESS, &result));
}

static bool tell_events(struct card *card)
{
	bool did = false;
	unsigned int i;

	for (i = 0; i < CARD_GROUPS && card->admin.events; i++) {
		struct card_group *group = &card->groups[i];

		if (!group->handle || !group->event)
			continue;
		group->event = false;
		complete_event(card, OPTINC_EVENT_GROUP, group->handle);
		did = true;
	}
	if (card->lane_event && card->admin.events) {
		card->lane_event = false;
		complete_event(card, OPTINC_EVENT_LANE, 0);
		did = true;
	}
	return did;
}

bool card_admin_step(struct card *card)
{
	struct card_admin *admin = &card->admin;
	bool did = false;

	while (admin->sq_head != admin->sq_tail && card_ready(card)) {
		take(card);
		did = true;
	}
	if (card_ready(card))
		did |= tell_events(card);
	if (admin->raise && card_ready(card)) {
		admin->raise = false;
		card->ops->interrupt(card->host, 0);
	}
	return did;
}

/* The rings are there if their ends can be read. */
static bool ring_answers(struct card *card, uint64_t addr, uint64_t bytes)
{
	uint64_t word;

	return !card->ops->read(card->host, addr, &word, sizeof(word)) &&
	       !card->ops->read(card->host, addr + bytes - sizeof(word), &word, sizeof(word));
}

static bool sizes_are_valid(const struct card *card, uint32_t sq_entries, uint32_t cq_entries)
{
	return !(card->admin_size & ~(OPTINC_ADMIN_SIZE_SQ | OPTINC_ADMIN_SIZE_CQ)) &&
	       card_power_of_two(sq_entries) && card_power_of_two(cq_entries) &&
	       sq_entries >= 2 && cq_entries <= CARD_ADMIN_ENTRIES && cq_entries >= sq_entries;
}

bool card_admin_start(struct card *card)
{
	uint32_t sq_entries = card_field(card->admin_size, OPTINC_ADMIN_SIZE_SQ) + 1;
	uint32_t cq_entries = card_field(card->admin_size, OPTINC_ADMIN_SIZE_CQ) + 1;
	uint64_t sq_bytes = sq_entries * sizeof(struct optinc_admin_cmd);
	uint64_t cq_bytes = cq_entries * sizeof(struct optinc_admin_cqe);
	uint64_t sq = base(card->admin_sq);
	uint64_t cq = base(card->admin_cq);

	if (!card_pages(card) || !sizes_are_valid(card, sq_entries, cq_entries) ||
	    sq % CARD_RING_ALIGN || cq % CARD_RING_ALIGN ||
	    !card_reachable(sq, sq_bytes) || !card_reachable(cq, cq_bytes) ||
	    card_overlap(sq, sq_bytes, cq, cq_bytes)) {
		card_fatal(card, OPTINC_FATAL_ADMIN_BASE);
		return false;
	}
	if (!ring_answers(card, sq, sq_bytes) || !ring_answers(card, cq, cq_bytes)) {
		card_fatal(card, OPTINC_FATAL_DMA);
		return false;
	}
	memset(&card->admin, 0, sizeof(card->admin));
	card->admin.sq_entries = (uint16_t)sq_entries;
	card->admin.cq_entries = (uint16_t)cq_entries;
	return true;
}
