// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What a card does wrong on purpose, for those who test a driver: admin
 * commands that fail, that are never answered, or that are answered as no card
 * may. Section 7 of Documentation/emulator.rst is about it.
 *
 * A fault belongs to an opcode. It skips so many commands of that opcode and
 * befalls the next ones, counted from when the card was made: resets do not
 * mend it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/card/internal.h"

#define WRONG_ID	0xfffe

struct card_fault_kind {
	const char *name;
	/*
	 * The command was executed, and @cqe is what the host would get, its phase
	 * bit still to be added. How often it gets it.
	 */
	unsigned int (*spoil)(struct card *card, struct card_fault_state *state,
			      const struct optinc_admin_cmd *cmd, struct optinc_admin_cqe *cqe);
	bool identify;		/* of that command alone */
};

#define SPOIL(name)								\
	static unsigned int name(struct card *card, struct card_fault_state *state, \
				 const struct optinc_admin_cmd *cmd, struct optinc_admin_cqe *cqe)
#define UNUSED(...)	((void)(const void *[]){ __VA_ARGS__ })

SPOIL(silent)
{
	UNUSED(card, state, cmd, cqe);
	return 0;
}

SPOIL(unknown_id)
{
	UNUSED(card, state, cmd);
	cqe->cmd_id = htole16(WRONG_ID);
	return 1;
}

SPOIL(twice)
{
	UNUSED(card, state, cmd, cqe);
	return 2;
}

SPOIL(wrong_phase)
{
	UNUSED(card, state, cmd);
	cqe->status ^= htole16(1);
	return 1;
}

SPOIL(wrong_head)
{
	UNUSED(card, state, cmd);
	cqe->sq_head = (uint16_t)~cqe->sq_head;
	return 1;
}

SPOIL(same_handle)
{
	UNUSED(card, cmd);
	if (!state->handle)
		state->handle = cqe->handle;
	cqe->handle = state->handle;
	return 1;
}

SPOIL(no_handle)
{
	UNUSED(card, state, cmd);
	cqe->handle = 0;
	return 1;
}

SPOIL(short_data)
{
	UNUSED(card, state, cmd);
	cqe->result = htole64(8);
	return 1;
}

SPOIL(garbage)
{
	uint32_t length = le32toh(cmd->length);
	char data[sizeof(struct optinc_hw_identify)];

	UNUSED(state, cqe);
	memset(data, 0xff, sizeof(data));
	card->ops->write(card->host, le64toh(cmd->addr), data,
			 length < sizeof(data) ? length : sizeof(data));
	return 1;
}

SPOIL(huge)
{
	struct optinc_hw_identify id;
	const size_t limits = offsetof(struct optinc_hw_identify, max_contexts);

	UNUSED(state, cqe);
	if (card->ops->read(card->host, le64toh(cmd->addr), &id, sizeof(id)))
		return 1;
	id.max_count = UINT64_MAX;
	id.max_mr_bytes = UINT64_MAX;
	memset((char *)&id + limits, 0xff, offsetof(struct optinc_hw_identify, serial) - limits);
	/* of all of these bits, the host knows few */
	id.features = id.opcodes = id.dtypes = id.redops = id.code_bits = UINT64_MAX;
	id.lanes_up = UINT16_MAX;
	card->ops->write(card->host, le64toh(cmd->addr), &id, sizeof(id));
	return 1;
}

SPOIL(strings)
{
	static const char text[] = "no end\n\x1b[31m\xff%s%n";
	char both[sizeof(((struct optinc_hw_identify *)0)->serial) * 2];
	size_t i;

	UNUSED(card, state, cqe);
	for (i = 0; i < sizeof(both); i++)
		both[i] = text[i % (sizeof(text) - 1)];
	card->ops->write(card->host, le64toh(cmd->addr) +
			 offsetof(struct optinc_hw_identify, serial), both, sizeof(both));
	return 1;
}

SPOIL(fatal)
{
	UNUSED(state, cmd, cqe);
	card_fatal(card, OPTINC_FATAL_FIRMWARE);
	return 0;
}

/* With ASYNC_EVENT: whenever the host wants to be told of an event there is one. */
SPOIL(flood)
{
	UNUSED(state, cmd, cqe);
	card->lane_event = true;
	return 1;
}

static const struct card_fault_kind silent_kind = { "silent", silent, false };
static const struct card_fault_kind fail_kind = { "fail", NULL, false };
static const struct card_fault_kind hostile_kinds[] = {
	{ "unknown-id", unknown_id, false }, { "twice", twice, false },
	{ "wrong-phase", wrong_phase, false }, { "wrong-head", wrong_head, false },
	{ "same-handle", same_handle, false }, { "no-handle", no_handle, false },
	{ "short", short_data, false }, { "garbage", garbage, false },
	{ "huge", huge, true }, { "strings", strings, true },
	{ "fatal", fatal, false }, { "flood", flood, false },
};

static const struct {
	const char *name;
	uint8_t opcode;
} opcodes[] = {
	{ "identify", OPTINC_ADMIN_IDENTIFY }, { "get-log", OPTINC_ADMIN_GET_LOG },
	{ "async-event", OPTINC_ADMIN_ASYNC_EVENT },
	{ "ctx-create", OPTINC_ADMIN_CTX_CREATE }, { "ctx-destroy", OPTINC_ADMIN_CTX_DESTROY },
	{ "mr-reg", OPTINC_ADMIN_MR_REG }, { "mr-dereg", OPTINC_ADMIN_MR_DEREG },
	{ "qp-create", OPTINC_ADMIN_QP_CREATE }, { "qp-destroy", OPTINC_ADMIN_QP_DESTROY },
	{ "group-join", OPTINC_ADMIN_GROUP_JOIN }, { "group-query", OPTINC_ADMIN_GROUP_QUERY },
	{ "group-leave", OPTINC_ADMIN_GROUP_LEAVE }, { "group-abort", OPTINC_ADMIN_GROUP_ABORT },
};

const struct card_fault *card_fault_due(struct card *card, uint8_t opcode)
{
	const struct card_fault *due = NULL;
	unsigned int i;

	for (i = 0; i < card->config.fault_count; i++) {
		const struct card_fault *fault = &card->config.faults[i];
		uint32_t nth;

		if (fault->opcode != opcode)
			continue;
		nth = card->faults[i].commands++;
		if (!due && nth >= fault->skip && (!fault->count || nth - fault->skip < fault->count))
			due = fault;
	}
	return due;
}

unsigned int card_fault_spoil(struct card *card, const struct card_fault *fault,
			      const struct optinc_admin_cmd *cmd, struct optinc_admin_cqe *cqe)
{
	if (!fault || !fault->kind->spoil)
		return 1;
	return fault->kind->spoil(card, &card->faults[fault - card->config.faults], cmd, cqe);
}

static const struct card_fault_kind *find_hostile(const char *name)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(hostile_kinds); i++) {
		if (!strcmp(hostile_kinds[i].name, name))
			return &hostile_kinds[i];
	}
	return NULL;
}

static bool number(const char *text, unsigned long max, unsigned long *value)
{
	char *end;

	errno = 0;
	*value = strtoul(text, &end, 0);
	return *text >= '0' && *text <= '9' && !*end && !errno && *value <= max;
}

static bool find_opcode(const char *name, uint8_t *opcode)
{
	unsigned long value;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(opcodes); i++) {
		if (!strcmp(opcodes[i].name, name)) {
			*opcode = opcodes[i].opcode;
			return true;
		}
	}
	if (!number(name, 0xff, &value))
		return false;
	*opcode = (uint8_t)value;
	return true;
}

/* The words of "a:b:c", or of what follows; false if it is absent */
static bool next_word(char **text, char **word)
{
	*word = *text ? strsep(text, ":") : NULL;
	return *word;
}

static const char *parse(char *text, const char *option, struct card_fault *fault)
{
	unsigned long value;
	char *word;

	fault->kind = &silent_kind;
	if (!strcmp(option, "fail-admin"))
		fault->kind = &fail_kind;
	if (!strcmp(option, "hostile")) {
		next_word(&text, &word);
		fault->kind = find_hostile(word);
		if (!fault->kind)
			return "there is no such fault";
	}
	if (!next_word(&text, &word) || !find_opcode(word, &fault->opcode))
		return "an admin command is wanted, such as mr-reg or 0x12";
	if (fault->kind->identify && fault->opcode != OPTINC_ADMIN_IDENTIFY)
		return "that is a fault of identify";
	if (fault->kind == &fail_kind) {
		fault->status = OPTINC_AST_INTERNAL;
		if (next_word(&text, &word)) {
			if (!number(word, 0x7fff, &value) || !value)
				return "a status of 1 to 0x7fff is wanted";
			fault->status = (uint16_t)value;
		}
	}
	if (next_word(&text, &word)) {
		if (!number(word, UINT32_MAX, &value))
			return "a number of commands to skip is wanted";
		fault->skip = (uint32_t)value;
	}
	if (next_word(&text, &word)) {
		if (!number(word, UINT32_MAX, &value) || !value)
			return "a number of commands that it befalls is wanted";
		fault->count = (uint32_t)value;
	}
	return text ? "something follows it" : NULL;
}

int card_fault_add(struct card_config *config, const char *option, const char *text,
		   size_t length, char *error, size_t error_size)
{
	struct card_fault fault = { 0 };
	const char *wrong = "too long";
	char copy[64];

	if (length < sizeof(copy)) {
		memcpy(copy, text, length);
		copy[length] = '\0';
		wrong = parse(copy, option, &fault);
	}
	if (!wrong && config->fault_count == CARD_FAULTS)
		wrong = "too many faults";
	if (wrong) {
		snprintf(error, error_size, "%s=%.*s: %s", option, (int)length, text, wrong);
		return -EINVAL;
	}
	config->faults[config->fault_count++] = fault;
	return 0;
}
