// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Groups.
 *
 * Checks come in the order of Documentation/uapi.rst, section 3: flags and
 * reserved members, values, handles.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "emulator/provider/internal.h"

#define DTYPE(type)	(1ULL << OPTINC_##type)

static struct emu_group *find_group(struct emu_dev *dev, uint32_t handle)
{
	unsigned int i;

	for (i = 0; handle && i < EMU_GROUPS; i++) {
		if (atomic_load(&dev->groups[i].handle) == handle)
			return &dev->groups[i];
	}
	return NULL;
}

static struct emu_group *free_group(struct emu_dev *dev)
{
	unsigned int i;

	for (i = 0; i < EMU_GROUPS; i++) {
		if (!atomic_load(&dev->groups[i].handle))
			return &dev->groups[i];
	}
	return NULL;
}

/* Values that this card does not know or offer; the rest the card checks. */
static bool join_is_offered(const struct emu_dev *dev, const struct optinc_group_join *join)
{
	uint64_t fit = le64toh(dev->id.dtypes);

	if (join->bits == 8)
		fit &= ~DTYPE(I16);
	else if (join->bits == 16)
		fit &= ~DTYPE(I8);
	else
		return false;
	return le64toh(dev->id.code_bits) >> join->bits & 1 &&
	       join->format == le32toh(dev->id.format_version) && !(join->dtypes & ~fit);
}

static int query(struct emu_dev *dev, uint32_t handle, struct optinc_hw_group_state *state)
{
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_GROUP_QUERY,
		.ctx = htole32(dev->ctx),
		.handle = htole32(handle),
		.addr = htole64(emu_dma(dev->data)),
		.length = htole32(sizeof(*state)),
	};
	int rc = emu_command(dev, &cmd, NULL, NULL);

	memcpy(state, dev->data, sizeof(*state));
	return rc;
}

static int join(struct emu_dev *dev, struct optinc_group_join *from, struct emu_group *group)
{
	struct optinc_hw_join *to = dev->data;
	struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_GROUP_JOIN,
		.ctx = htole32(dev->ctx),
		.addr = htole64(emu_dma(to)),
		.length = htole32(sizeof(*to)),
	};
	struct optinc_hw_group_state state;
	int rc;

	*to = (struct optinc_hw_join) {
		.rank = htole32(from->rank),
		.nranks = htole32(from->nranks),
		.bits = htole32(from->bits),
		.format = htole32(from->format),
		.dtypes = htole64(from->dtypes),
		.deadline_ms = htole32(from->deadline_ms),
	};
	memcpy(to->key, from->key, sizeof(to->key));
	rc = emu_command(dev, &cmd, &from->group, NULL);
	if (rc)
		return rc;
	atomic_store(&group->changed, false);
	atomic_store(&group->handle, from->group);
	atomic_fetch_add(&dev->joining, 1);
	/* its event may have come while the handle was not known yet */
	if (!query(dev, from->group, &state) && le32toh(state.state) != OPTINC_GROUP_JOINING)
		emu_group_changed(dev, from->group);
	return 0;
}

int emu_group_join(struct emu_dev *dev, void *arg)
{
	struct optinc_group_join *from = arg;
	struct emu_group *group;
	int rc = -ENOSPC;

	if (from->flags || !join_is_offered(dev, from))
		return -EOPNOTSUPP;
	emu_lock(dev);
	group = free_group(dev);
	if (group)
		rc = join(dev, from, group);
	emu_unlock(dev);
	/* somebody has to drive it if the caller does not wait */
	if (!rc)
		emu_service_need(dev);
	return rc;
}

static void wait_for_group(struct emu_dev *dev, uint32_t handle, uint32_t timeout_ms)
{
	struct emu_waiter waiter = { .handle = handle };

	emu_lock(dev);
	waiter.group = find_group(dev, handle);
	emu_unlock(dev);
	if (waiter.group && timeout_ms)
		emu_wait_for(dev, &waiter, timeout_ms * NSEC_PER_MSEC);
}

int emu_group_wait(struct emu_dev *dev, void *arg)
{
	struct optinc_group_wait *wait = arg;
	struct optinc_hw_group_state state;
	int rc;

	if (wait->__reserved)
		return -EOPNOTSUPP;
	wait_for_group(dev, wait->group, wait->timeout_ms);
	emu_lock(dev);
	rc = query(dev, wait->group, &state);
	emu_unlock(dev);
	if (rc)
		return rc;
	wait->state = le32toh(state.state);
	wait->status = le32toh(state.status);
	wait->peer = le16toh(state.peer);
	wait->mismatch = le16toh(state.mismatch);
	wait->joined = le32toh(state.joined);
	return 0;
}

int emu_group_leave(struct emu_dev *dev, void *arg)
{
	const struct optinc_group_leave *leave = arg;
	struct emu_group *group;
	int rc = -ENOENT;

	emu_lock(dev);
	group = find_group(dev, leave->group);
	if (group)
		rc = emu_object_command(dev, OPTINC_ADMIN_GROUP_LEAVE, leave->group);
	if (!rc) {
		if (!atomic_exchange(&group->changed, true))
			atomic_fetch_sub(&dev->joining, 1);
		atomic_store(&group->handle, 0);
		emu_wake_done(dev);
	}
	emu_unlock(dev);
	return rc;
}

int emu_group_abort(struct emu_dev *dev, void *arg)
{
	const struct optinc_group_abort *abort = arg;
	int rc;

	emu_lock(dev);
	rc = emu_object_command(dev, OPTINC_ADMIN_GROUP_ABORT, abort->group);
	emu_unlock(dev);
	return rc;
}
