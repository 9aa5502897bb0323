// SPDX-License-Identifier: LGPL-2.1-or-later
/* QUERY and STATS */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "emulator/provider/internal.h"

int emu_query(struct emu_dev *dev, void *arg)
{
	const struct optinc_hw_identify *id = &dev->id;
	struct optinc_query *query = arg;

	if (query->__reserved)
		return -EOPNOTSUPP;
	*query = (struct optinc_query) {
		.size = query->size,
		.node = OPTINC_NODE_CARD,
		.features = le64toh(id->features) | OPTINC_FEAT_USER_QUEUES,
		.opcodes = le64toh(id->opcodes),
		.dtypes = le64toh(id->dtypes),
		.redops = le64toh(id->redops),
		.code_bits = le64toh(id->code_bits),
		.max_count = le64toh(id->max_count),
		.max_mr_bytes = le64toh(id->max_mr_bytes),
		.format_version = le32toh(id->format_version),
		.port = le16toh(id->port),
		.ports = le16toh(id->ports),
		.lanes = le16toh(id->lanes),
		.lanes_up = le16toh(id->lanes_up),
		.lane_mbps = le32toh(id->lane_mbps),
		.max_qps = le32toh(id->max_qps),
		.max_mrs = le32toh(id->max_mrs),
		.max_groups = le32toh(id->max_groups),
		.max_queue = le32toh(id->max_queue),
		.page_size = (uint32_t)dev->page_size,
		.interface_version = le32toh(id->interface_version),
		.doorbell_offset = EMU_DOORBELL_OFFSET,
		.firmware_version = le32toh(id->firmware_version),
	};
	memcpy(query->serial, id->serial, sizeof(query->serial));
	memcpy(query->model, id->model, sizeof(query->model));
	return 0;
}

static int read_log(struct emu_dev *dev, struct optinc_hw_port_log *log)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_GET_LOG,
		.addr = htole64(emu_dma(dev->data)),
		.length = htole32(sizeof(*log)),
	};
	int rc;

	cmd.log.page = htole32(OPTINC_LOG_PORT);
	emu_lock(dev);
	rc = emu_command(dev, &cmd, NULL, NULL);
	memcpy(log, dev->data, sizeof(*log));
	emu_unlock(dev);
	return rc;
}

int emu_stats(struct emu_dev *dev, void *arg)
{
	struct optinc_stats *stats = arg;
	struct optinc_hw_port_log log;
	int rc;

	if (stats->__reserved)
		return -EOPNOTSUPP;
	rc = read_log(dev, &log);
	if (rc)
		return rc;
	*stats = (struct optinc_stats) {
		.size = stats->size,
		.tx_bytes = le64toh(log.tx_bytes),
		.rx_bytes = le64toh(log.rx_bytes),
		.requests = le64toh(log.requests),
		.errors = le64toh(log.errors),
		.replays = le64toh(log.replays),
		.nonfinite = le64toh(log.nonfinite),
		.saturated = le64toh(log.saturated),
		.doorbells = le64toh(log.doorbells),
		.doorbells_dropped = le64toh(log.doorbells_dropped),
		.wire_ns = le64toh(log.wire_ns),
		.device_ns = le64toh(log.device_ns),
	};
	return 0;
}
