// SPDX-License-Identifier: LGPL-2.1-or-later
/* Memory regions: register, deregister, find the one that holds an operand. */
#include <errno.h>
#include <string.h>

#include "internal.h"

struct optinc_mr *mr_get(struct optinc_card *card, struct mr_hint *hint, const void *ptr,
			 size_t length, bool write)
{
	uintptr_t addr = (uintptr_t)ptr;
	struct optinc_mr *mr;

	if (likely(hint->mr && addr - hint->addr < hint->length && mr_try_get(hint->mr))) {
		mr = hint->mr;
		if (likely(mr_holds(mr, addr, length, write) && !mr_is_stale(mr))) {
			if (mr->flags & OPTINC_MR_CACHE)
				mr_cache_count_hit(mr);
			return mr;
		}
		mr_put(mr);
	}

	pthread_mutex_lock(&card->lock);
	mr = mr_table_find(&card->mrs, addr, length, write);
	pthread_mutex_unlock(&card->lock);
	if (!mr && length >= CACHE_MIN)
		mr = mr_cache_get(card, addr, length, write);
	if (mr) {
		hint->mr = mr;
		hint->addr = mr->addr;
		hint->length = mr->length;
	}
	return mr;
}

int mr_reg(struct optinc_card *card, struct optinc_mr_reg *reg)
{
	int ret;

	reg->size = sizeof(*reg);
	reg->fd = -1;
	/* What the library keeps for itself makes way. */
	do
		ret = card_ioctl(card, OPTINC_IOCTL_MR_REG, reg);
	while ((ret == -ENOMEM || ret == -ENOSPC) && mr_cache_shrink(card, ret, reg->length));
	return ret;
}

int mr_register_raw(struct optinc_card *card, const void *addr, size_t length,
		    unsigned int flags, uint32_t *handle)
{
	struct optinc_mr_reg reg = {
		.flags = flags,
		.addr = (uintptr_t)addr,
		.length = length,
	};
	int ret;

	if (card->query.max_mr_bytes && length > card->query.max_mr_bytes)
		return fail(-EINVAL, "%zu bytes do not fit into one memory region: the card "
			    "takes %llu", length,
			    (unsigned long long)card->query.max_mr_bytes);
	ret = mr_reg(card, &reg);
	switch (ret) {
	case 0:
		break;
	case -EFAULT:
		return fail(ret, "[%p, +%zu) is not mapped%s", addr, length,
			    flags & OPTINC_MR_WRITE ? " writable" : "");
	case -ENOMEM:
		return fail(ret, "%zu bytes cannot be pinned: raise RLIMIT_MEMLOCK "
			    "(\"ulimit -l\")", length);
	case -ENOSPC:
		return fail(ret, "the card has room for no more than %u regions of one user",
			    card->query.max_mrs);
	default:
		return fail(ret, "memory cannot be registered: %s", strerror(-ret));
	}
	if (!reg.mr)
		return fail(-EIO, "the card gave a region no handle");
	*handle = reg.mr;
	return 0;
}

int mr_deregister_raw(struct optinc_card *card, uint32_t handle)
{
	struct optinc_mr_dereg dereg = { .size = sizeof(dereg), .mr = handle };

	return card_ioctl(card, OPTINC_IOCTL_MR_DEREG, &dereg);
}

OPTINC_EXPORT int optinc_mr_register(struct optinc_card *card, void *addr, size_t length,
				     unsigned int flags, struct optinc_mr **mr)
{
	struct optinc_mr_reg reg = { .flags = flags, .addr = (uintptr_t)addr, .length = length };
	int ret;

	if (!card || !mr)
		return fail(-EINVAL, "%s: NULL", card ? "mr" : "card");
	*mr = NULL;
	if (!addr || !length || (uintptr_t)addr + length < (uintptr_t)addr)
		return fail(-EINVAL, "length: [%p, +%zu) is no memory", addr, length);
	if (flags & ~(unsigned int)OPTINC_MR_WRITE)
		return fail(-EOPNOTSUPP, "flags: only OPTINC_MR_WRITE is possible here, not 0x%x",
			    flags);

	ret = mr_register_raw(card, addr, length, flags, &reg.mr);
	if (ret)
		return ret;
	pthread_mutex_lock(&card->lock);
	*mr = mr_table_add(&card->mrs, card, &reg, 0);
	pthread_mutex_unlock(&card->lock);
	if (!*mr) {
		mr_deregister_raw(card, reg.mr);
		return fail(-ENOMEM, "out of memory");
	}
	return 0;
}

OPTINC_EXPORT int optinc_mr_deregister(struct optinc_mr *mr)
{
	struct optinc_card *card;
	int ret, uses;

	if (!mr)
		return fail(-EINVAL, "mr: NULL");
	card = mr->card;
	if (!mr_try_end(mr, &uses)) {
		if (uses == MR_DYING)
			return fail(-EINVAL, "mr: not registered");
		return fail(-EBUSY, "mr: %d operands of requests are in this region; wait for "
			    "the requests first", uses);
	}

	/* A card that is gone does no more DMA either. */
	ret = mr_deregister_raw(card, mr->handle);
	if (ret && ret != -ENODEV) {
		__atomic_store_n(&mr->uses, 0, __ATOMIC_RELEASE);
		return fail(ret, "the region cannot be deregistered: %s", strerror(-ret));
	}
	pthread_mutex_lock(&card->lock);
	mr_table_remove(&card->mrs, mr);
	mr_table_recycle(&card->mrs, mr);
	pthread_mutex_unlock(&card->lock);
	return 0;
}
