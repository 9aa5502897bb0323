// SPDX-License-Identifier: LGPL-2.1-or-later
/* Short identifiers of the interface's enums, for messages and tools. */
#include "internal.h"

static const char *const dtype_names[] = {
	[OPTINC_F32]	= "f32",
	[OPTINC_F16]	= "f16",
	[OPTINC_BF16]	= "bf16",
	[OPTINC_I8]	= "i8",
	[OPTINC_I16]	= "i16",
	[OPTINC_BIT]	= "bit",
	[OPTINC_U8]	= "u8",
};

static const char *const redop_names[] = {
	[OPTINC_MEAN]	= "mean",
	[OPTINC_SUM]	= "sum",
	[OPTINC_VOTE]	= "vote",
};

static const char *const status_names[] = {
	[OPTINC_ST_SUCCESS]		= "success",
	[OPTINC_ST_INVALID_OPCODE]	= "invalid-opcode",
	[OPTINC_ST_INVALID_FIELD]	= "invalid-field",
	[OPTINC_ST_INVALID_GROUP]	= "invalid-group",
	[OPTINC_ST_INVALID_MR]		= "invalid-mr",
	[OPTINC_ST_MR_BOUNDS]		= "mr-bounds",
	[OPTINC_ST_MR_ACCESS]		= "mr-access",
	[OPTINC_ST_UNSUPPORTED]		= "unsupported",
	[OPTINC_ST_PEER_LOST]		= "peer-lost",
	[OPTINC_ST_TIMEOUT]		= "timeout",
	[OPTINC_ST_MISMATCH]		= "mismatch",
	[OPTINC_ST_EXPONENT_MISMATCH]	= "exponent-mismatch",
	[OPTINC_ST_ABORTED]		= "aborted",
	[OPTINC_ST_LINK]		= "link",
	[OPTINC_ST_EPOCH_ENDED]		= "epoch-ended",
	[OPTINC_ST_RESET]		= "reset",
	[OPTINC_ST_DMA]			= "dma",
	[OPTINC_ST_INTERNAL]		= "internal",
};

static const char *const reason_names[] = {
	[OPTINC_REASON_USED]		= "used",
	[OPTINC_REASON_IDLE]		= "idle",
	[OPTINC_REASON_BAD_URI]		= "bad-uri",
	[OPTINC_REASON_NO_DRIVER]	= "no-driver",
	[OPTINC_REASON_NO_CARD]		= "no-card",
	[OPTINC_REASON_NO_PERMISSION]	= "no-permission",
	[OPTINC_REASON_BUSY]		= "busy",
	[OPTINC_REASON_NO_EMULATOR]	= "no-emulator",
	[OPTINC_REASON_VERSION]		= "version",
	[OPTINC_REASON_NO_ISOLATION]	= "no-isolation",
	[OPTINC_REASON_GROUP_FAILED]	= "group-failed",
	[OPTINC_REASON_EPOCH_ENDED]	= "epoch-ended",
	[OPTINC_REASON_REFUSED]		= "refused",
	[OPTINC_REASON_CARD_FAILED]	= "card-failed",
};

static const char *name_of(const char *const *names, size_t n, uint32_t value)
{
	return value < n ? names[value] : NULL;
}

OPTINC_EXPORT const char *optinc_dtype_name(enum optinc_dtype dtype)
{
	return name_of(dtype_names, ARRAY_SIZE(dtype_names), dtype);
}

OPTINC_EXPORT const char *optinc_redop_name(enum optinc_redop redop)
{
	return name_of(redop_names, ARRAY_SIZE(redop_names), redop);
}

OPTINC_EXPORT const char *optinc_status_name(uint32_t status)
{
	const char *name = name_of(status_names, ARRAY_SIZE(status_names), status);

	return name ? name : "unknown";
}

OPTINC_EXPORT const char *optinc_reason_name(enum optinc_reason reason)
{
	const char *name = name_of(reason_names, ARRAY_SIZE(reason_names), reason);

	return name ? name : "unknown";
}
