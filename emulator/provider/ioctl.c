// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The ioctls' core: Documentation/uapi.rst sections 2 and 3, as the driver
 * has them. The caller's structure is copied in once and out once; handlers
 * work on the copy.
 */
#include <errno.h>
#include <string.h>

#include "emulator/provider/internal.h"

#define SIZE_MAX_BYTES	4096

struct call {
	unsigned long cmd;
	uint32_t min;		/* size of the structure's first version */
	uint32_t size;		/* as we know it */
	int (*run)(struct emu_dev *dev, void *arg);
};


static const struct call calls[] = {
	{ OPTINC_IOCTL_QUERY, 192, sizeof(struct optinc_query), emu_query },
	{ OPTINC_IOCTL_STATS, 96, sizeof(struct optinc_stats), emu_stats },
	{ OPTINC_IOCTL_MR_REG, 40, sizeof(struct optinc_mr_reg), emu_mr_reg },
	{ OPTINC_IOCTL_MR_DEREG, 8, sizeof(struct optinc_mr_dereg), emu_mr_dereg },
	{ OPTINC_IOCTL_QP_CREATE, 40, sizeof(struct optinc_qp_create), emu_qp_create },
	{ OPTINC_IOCTL_QP_DESTROY, 8, sizeof(struct optinc_qp_destroy), emu_qp_destroy },
	{ OPTINC_IOCTL_GROUP_JOIN, 56, sizeof(struct optinc_group_join), emu_group_join },
	{ OPTINC_IOCTL_GROUP_WAIT, 32, sizeof(struct optinc_group_wait), emu_group_wait },
	{ OPTINC_IOCTL_GROUP_LEAVE, 8, sizeof(struct optinc_group_leave), emu_group_leave },
	{ OPTINC_IOCTL_GROUP_ABORT, 8, sizeof(struct optinc_group_abort), emu_group_abort },
	/* RESET is the control node's, and there is none */
};

/* The largest of the structures, aligned for all of them */
union any {
	uint32_t size;
	struct optinc_query query;
	struct optinc_stats stats;
	struct optinc_qp_create qp_create;
	struct optinc_group_join group_join;
	struct optinc_group_wait group_wait;
};

static const struct call *find(unsigned long cmd)
{
	size_t i;

	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (calls[i].cmd == cmd)
			return &calls[i];
	}
	return NULL;
}

static int copy_in(const struct call *call, union any *ours, const void *theirs, uint32_t size)
{
	const char *bytes = theirs;
	uint32_t i;

	if (size < call->min)
		return -EINVAL;
	if (size > SIZE_MAX_BYTES)
		return -E2BIG;
	memset(ours, 0, sizeof(*ours));
	memcpy(ours, theirs, size < call->size ? size : call->size);
	/* another thread may have changed it since */
	ours->size = size;
	for (i = call->size; i < size; i++) {
		if (bytes[i])
			return -E2BIG;
	}
	return 0;
}

int emu_ioctl(void *arg, unsigned long cmd, void *theirs)
{
	const struct call *call = find(cmd);
	struct emu_dev *dev = arg;
	union any ours;
	uint32_t size;
	int rc;

	if (!call)
		return -ENOTTY;
	if (!emu_here(dev) || atomic_load(&dev->dead))
		return -ENODEV;
	if (!theirs)
		return -EFAULT;
	memcpy(&size, theirs, sizeof(size));
	rc = copy_in(call, &ours, theirs, size);
	if (!rc)
		rc = call->run(dev, &ours);
	if (!rc)
		memcpy(theirs, &ours, size < call->size ? size : call->size);
	return rc;
}
