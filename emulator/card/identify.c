// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What the card tells about itself: IDENTIFY and the log pages.
 */
#include <stdio.h>
#include <string.h>

#include "emulator/card/internal.h"

_Static_assert(sizeof(struct optinc_hw_identify) == 256, "as specified");
_Static_assert(sizeof(struct optinc_hw_port_log) == 128, "as specified");

/* Unique: a name that is too long for the field is cut, and told apart by a hash. */
static void serial(char *text, size_t size, const struct fabric_config *fabric)
{
	uint32_t hash = 2166136261U;
	const char *c;

	if (strlen(fabric->name) <= 28) {
		snprintf(text, size, "%.28s-%u", fabric->name, fabric->port % 100);
		return;
	}
	for (c = fabric->name; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 16777619U;
	snprintf(text, size, "%.19s-%08x-%u", fabric->name, hash, fabric->port % 100);
}

static void describe(const struct card *card, struct optinc_hw_identify *id)
{
	const struct fabric_config *fabric = &card->config.fabric;
	uint64_t features = OPTINC_FEAT_EMULATED;

	if (!card->config.no_isolation)
		features |= OPTINC_FEAT_ISOLATION;
	id->interface_version = htole32(OPTINC_INTERFACE_MAJOR << 16 | OPTINC_INTERFACE_MINOR);
	id->firmware_version = htole32(CARD_FIRMWARE);
	id->features = htole64(features);
	id->opcodes = htole64(CARD_OPCODES);
	id->dtypes = htole64(CARD_DTYPES);
	id->redops = htole64(CARD_REDOPS);
	id->code_bits = htole64(1ULL << 8 | 1ULL << 16);
	id->format_version = htole32(OPTINC_FORMAT_VERSION);
	id->port = htole16((uint16_t)fabric->port);
	id->ports = htole16((uint16_t)fabric->ports);
	id->lanes = htole16(FABRIC_LANES);
	id->lanes_up = htole16((uint16_t)fabric_lanes_up(card->port));
	id->lane_mbps = htole32(FABRIC_LANE_MBPS);
	serial(id->serial, sizeof(id->serial), fabric);
	snprintf(id->model, sizeof(id->model), "OptINC emulated card");
}

static void describe_limits(struct optinc_hw_identify *id)
{
	id->max_count = htole64(CARD_MAX_COUNT);
	id->max_mr_bytes = htole64(CARD_MAX_MR_BYTES);
	id->max_contexts = htole32(CARD_CONTEXTS);
	id->max_qps = htole32(CARD_CONTEXT_QPS);
	id->max_mrs = htole32(CARD_CONTEXT_MRS);
	id->max_groups = htole32(CARD_GROUPS);
	id->max_queue = htole32(OPTINC_MAX_QUEUE);
	id->max_segments = htole32(OPTINC_MAX_SEGMENTS);
}

uint16_t card_identify(struct card *card, struct card_context *ctx,
		       const struct optinc_admin_cmd *cmd, struct admin_result *result)
{
	struct optinc_hw_identify id;

	(void)ctx;
	memset(&id, 0, sizeof(id));
	describe(card, &id);
	describe_limits(&id);
	return card_admin_put(card, cmd, &id, sizeof(id), result);
}

/* Counters of the port outlive a reset; the host sees what came after it. */
static void fill_port_log(const struct card *card, struct optinc_hw_port_log *log)
{
	const struct fabric_counters *base = &card->base;
	struct fabric_counters now;

	fabric_counters(card->port, &now);
	log->tx_bytes = htole64(now.tx_bytes - base->tx_bytes);
	log->rx_bytes = htole64(now.rx_bytes - base->rx_bytes);
	/* the fabric knows nothing of entries that did not get so far */
	log->requests = htole64(card->requests_done);
	log->errors = htole64(card->requests_failed);
	log->replays = htole64(now.replays - base->replays);
	log->nonfinite = htole64(now.nonfinite - base->nonfinite);
	log->saturated = htole64(now.saturated - base->saturated);
	log->wire_ns = htole64(now.wire_ns - base->wire_ns);
	log->doorbells = htole64(atomic_load(&card->doorbells));
	log->doorbells_dropped = htole64(atomic_load(&card->dropped));
	log->device_ns = htole64(fabric_clock_ns());
}

uint16_t card_get_log(struct card *card, struct card_context *ctx,
		      const struct optinc_admin_cmd *cmd, struct admin_result *result)
{
	uint32_t offset = le32toh(cmd->log.offset);
	struct optinc_hw_port_log log;

	(void)ctx;
	if (le32toh(cmd->log.page) != OPTINC_LOG_PORT)
		return OPTINC_AST_UNSUPPORTED;
	if (offset % 8 || offset >= sizeof(log))
		return OPTINC_AST_INVALID_FIELD;
	memset(&log, 0, sizeof(log));
	fill_port_log(card, &log);
	return card_admin_put(card, cmd, (const char *)&log + offset, sizeof(log) - offset,
			      result);
}
