// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the card says it is: section 5.5 IDENTIFY of the card interface,
 * believed within the limits of section 1.5. Limits that are larger are cut;
 * a card that offers less than it must is not used.
 */
#include <linux/capability.h>

#include "optinc.h"

/* ASCII, NUL-terminated whatever the card says */
static void copy_string(char *to, const char *from, size_t size)
{
	size_t i;

	memset(to, 0, size);
	for (i = 0; i < size - 1 && from[i]; i++)
		to[i] = from[i] >= 0x20 && from[i] <= 0x7e ? from[i] : '?';
}

static u64 known(__le64 bits, unsigned int count)
{
	return le64_to_cpu(bits) & (BIT_ULL(count) - 1);
}

static void decode(const struct optinc_hw_identify *hw, struct optinc_identity *id)
{
	id->interface_version = le32_to_cpu(hw->interface_version);
	id->firmware_version = le32_to_cpu(hw->firmware_version);
	id->features = le64_to_cpu(hw->features) & (OPTINC_FEAT_ISOLATION | OPTINC_FEAT_EMULATED);
	id->opcodes = known(hw->opcodes, OPTINC_OPCODES);
	id->dtypes = known(hw->dtypes, OPTINC_DTYPES);
	id->redops = known(hw->redops, OPTINC_REDOPS);
	id->code_bits = le64_to_cpu(hw->code_bits) & (BIT_ULL(8) | BIT_ULL(16));
	id->max_count = min(le64_to_cpu(hw->max_count), BIT_ULL(40));
	id->max_mr_bytes = min(le64_to_cpu(hw->max_mr_bytes), BIT_ULL(48));
	id->format_version = le32_to_cpu(hw->format_version);
	id->port = le16_to_cpu(hw->port);
	id->ports = le16_to_cpu(hw->ports);
	id->lanes = le16_to_cpu(hw->lanes);
	id->lanes_up = min(le16_to_cpu(hw->lanes_up), id->lanes);
	id->lane_mbps = le32_to_cpu(hw->lane_mbps);
	id->max_contexts = min_t(u32, le32_to_cpu(hw->max_contexts), 2047);
	id->max_qps = min_t(u32, le32_to_cpu(hw->max_qps), 65535);
	id->max_mrs = min_t(u32, le32_to_cpu(hw->max_mrs), 1048576);
	id->max_groups = min_t(u32, le32_to_cpu(hw->max_groups), 65535);
	id->max_queue = min_t(u32, le32_to_cpu(hw->max_queue), OPTINC_MAX_QUEUE);
	id->max_segments = min_t(u32, le32_to_cpu(hw->max_segments), OPTINC_MAX_SEGMENTS);
	copy_string(id->serial, hw->serial, sizeof(id->serial));
	copy_string(id->model, hw->model, sizeof(id->model));
}

/* The name of the first field that no card may have so, or NULL */
static const char *check(const struct optinc_identity *id)
{
	u64 opcodes = BIT_ULL(OPTINC_OP_NOP) | BIT_ULL(OPTINC_OP_ALLREDUCE) |
		      BIT_ULL(OPTINC_OP_BROADCAST) | BIT_ULL(OPTINC_OP_BARRIER) |
		      BIT_ULL(OPTINC_OP_EXPONENT_MAX);

	if (id->interface_version >> 16 != OPTINC_INTERFACE_MAJOR)
		return "interface_version";
	if ((id->opcodes & opcodes) != opcodes)
		return "opcodes";
	if (!(id->dtypes & BIT_ULL(OPTINC_U8)))
		return "dtypes";
	if (!(id->redops & BIT_ULL(OPTINC_MEAN)))
		return "redops";
	if (!id->code_bits)
		return "code_bits";
	if (id->max_count < BIT_ULL(20))
		return "max_count";
	if (id->max_mr_bytes < BIT_ULL(30))
		return "max_mr_bytes";
	if (id->ports < 2 || id->ports > 256)
		return "ports";
	if (id->port >= id->ports)
		return "port";
	if (!id->lanes || id->lanes > 256)
		return "lanes";
	if (!id->max_contexts)
		return "max_contexts";
	if (!id->max_qps)
		return "max_qps";
	if (id->max_mrs < 16)
		return "max_mrs";
	if (!id->max_groups)
		return "max_groups";
	if (id->max_queue < 64 || !is_power_of_2(id->max_queue))
		return "max_queue";
	if (id->max_segments < 256)
		return "max_segments";
	return NULL;
}

/* At each start of the card; by the owner of the transition */
int optinc_identify(struct optinc_device *odev)
{
	struct optinc_hw_identify hw;
	struct optinc_identity id;
	const char *wrong;
	int ret;

	ret = optinc_cmd_identify(odev, &hw);
	if (ret) {
		optinc_trouble(odev, "does not identify itself");
		return ret;
	}
	decode(&hw, &id);
	wrong = check(&id);
	if (wrong) {
		optinc_trouble(odev, "identifies itself with %s out of range", wrong);
		return -EIO;
	}
	if (!!(id.features & OPTINC_FEAT_ISOLATION) != odev->cap_isolation) {
		dev_warn_once(&odev->pdev->dev,
			      "CAP0 and IDENTIFY disagree on isolation: taken as none\n");
		id.features &= ~OPTINC_FEAT_ISOLATION;
	}
	mutex_lock(&odev->identity_lock);
	odev->identity = id;
	mutex_unlock(&odev->identity_lock);
	return 0;
}

/* A lane came or went. */
void optinc_refresh_lanes(struct optinc_device *odev)
{
	struct optinc_hw_identify hw;

	if (optinc_cmd_identify(odev, &hw))
		return;
	WRITE_ONCE(odev->identity.lanes_up,
		   min(le16_to_cpu(hw.lanes_up), odev->identity.lanes));
}

bool optinc_isolates(struct optinc_device *odev)
{
	return odev->identity.features & OPTINC_FEAT_ISOLATION;
}

/* May the caller have rings and a doorbell page? */
bool optinc_may_queue(struct optinc_device *odev)
{
	return optinc_isolates(odev) || capable(CAP_SYS_RAWIO);
}
