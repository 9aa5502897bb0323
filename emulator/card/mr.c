// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Memory regions: lists of segments of host memory that look like one array.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/card/internal.h"

_Static_assert(sizeof(struct optinc_hw_segment) == 16, "as specified");

_Static_assert(CARD_CONTEXT_MRS == CARD_HANDLE_SLOTS, "each slot of a handle has a region");

#define LIST_PIECE	256	/* entries of the list read at a time */

struct card_mr *card_mr_find(const struct card_context *ctx, uint32_t handle)
{
	struct card_mr *mr = &ctx->mrs[handle % CARD_HANDLE_SLOTS];

	return handle && mr->handle == handle ? mr : NULL;
}

/* A region while its list is read: segments that touch become one. */
struct list {
	struct card *card;
	struct card_segment *segment;
	uint32_t used, room;
	uint64_t length;	/* so far */
};

static bool grow(struct list *list)
{
	uint32_t room = list->room ? 2 * list->room : 4;
	struct card_segment *segment;

	if (room - list->room > CARD_SEGMENTS - list->card->segments)
		return false;
	segment = realloc(list->segment, room * sizeof(*segment));
	if (!segment)
		return false;
	list->card->segments += room - list->room;
	list->segment = segment;
	list->room = room;
	return true;
}

static void discard(struct list *list)
{
	list->card->segments -= list->room;
	free(list->segment);
}

static bool continues(const struct list *list, uint64_t addr)
{
	const struct card_segment *last;

	if (!list->used)
		return false;
	last = &list->segment[list->used - 1];
	/* 0 is what follows the last byte of all, and continues nothing */
	return addr && addr == last->addr + (list->length - last->offset);
}

static uint16_t append(struct list *list, const struct optinc_hw_segment *entry, uint64_t left)
{
	uint64_t addr = le64toh(entry->addr);
	uint64_t length = le64toh(entry->length);

	if (!length || !card_reachable(addr, length) || length > left)
		return OPTINC_AST_INVALID_FIELD;
	if (!continues(list, addr)) {
		/* one more for the end of the last segment */
		if (list->used + 2 > list->room && !grow(list))
			return OPTINC_AST_NO_MEMORY;
		list->segment[list->used].offset = list->length;
		list->segment[list->used].addr = addr;
		list->used++;
	}
	list->length += length;
	return OPTINC_AST_SUCCESS;
}

static uint16_t read_list(struct list *list, uint64_t addr, uint32_t segments, uint64_t length)
{
	struct optinc_hw_segment entry[LIST_PIECE];
	struct card *card = list->card;
	uint16_t status;
	uint32_t i, n;

	for (; segments; segments -= n, addr += n * sizeof(*entry)) {
		n = segments < LIST_PIECE ? segments : LIST_PIECE;
		if (card->ops->read(card->host, addr, entry, n * sizeof(*entry)))
			return OPTINC_AST_DMA;
		for (i = 0; i < n; i++) {
			status = append(list, &entry[i], length - list->length);
			if (status)
				return status;
		}
	}
	if (list->length != length)
		return OPTINC_AST_INVALID_FIELD;
	list->segment[list->used].offset = length;
	return OPTINC_AST_SUCCESS;
}

/* Give back what growing by doubling took too much; if that fails, keep it. */
static void trim(struct list *list)
{
	struct card_segment *segment;

	segment = realloc(list->segment, (list->used + 1) * sizeof(*segment));
	if (!segment)
		return;
	list->segment = segment;
	list->card->segments -= list->room - (list->used + 1);
	list->room = list->used + 1;
}

static bool values_are_valid(const struct optinc_admin_cmd *cmd)
{
	uint64_t length = le64toh(cmd->mr_reg.length);
	uint32_t segments = le32toh(cmd->mr_reg.segments);

	return length && length <= CARD_MAX_MR_BYTES &&
	       segments && segments <= OPTINC_MAX_SEGMENTS &&
	       le32toh(cmd->length) == segments * sizeof(struct optinc_hw_segment) &&
	       !(le32toh(cmd->mr_reg.access) & ~(uint32_t)OPTINC_MR_WRITE);
}

uint16_t card_mr_reg(struct card *card, struct card_context *ctx,
		     const struct optinc_admin_cmd *cmd, struct admin_result *result)
{
	struct list list = { .card = card };
	struct card_mr *mr = ctx->free_mrs;
	uint16_t status;

	if (!values_are_valid(cmd))
		return OPTINC_AST_INVALID_FIELD;
	if (!mr)
		return OPTINC_AST_LIMIT;
	status = read_list(&list, le64toh(cmd->addr), le32toh(cmd->mr_reg.segments),
			   le64toh(cmd->mr_reg.length));
	if (status) {
		discard(&list);
		return status;
	}
	trim(&list);

	ctx->free_mrs = mr->next;
	mr->handle = card_handle(card, (uint32_t)(mr - ctx->mrs));
	mr->busy = 0;
	mr->writable = le32toh(cmd->mr_reg.access) & OPTINC_MR_WRITE;
	mr->length = list.length;
	mr->segments = list.used;
	mr->segment = list.segment;
	mr->card = card;
	mr->room = list.room;
	result->handle = mr->handle;
	return OPTINC_AST_SUCCESS;
}

uint16_t card_mr_dereg(struct card *card, struct card_context *ctx,
		       const struct optinc_admin_cmd *cmd, struct admin_result *result)
{
	struct card_mr *mr = card_mr_find(ctx, le32toh(cmd->handle));

	(void)card;
	(void)result;
	if (!mr)
		return OPTINC_AST_INVALID_HANDLE;
	if (mr->busy)
		return OPTINC_AST_BUSY;
	card_mr_free(ctx, mr);
	return OPTINC_AST_SUCCESS;
}

void card_mr_free(struct card_context *ctx, struct card_mr *mr)
{
	mr->card->segments -= mr->room;
	free(mr->segment);
	memset(mr, 0, sizeof(*mr));
	mr->next = ctx->free_mrs;
	ctx->free_mrs = mr;
}

/* The segment that @offset, which is below the region's length, lies in */
static uint32_t find_segment(const struct card_mr *mr, uint64_t offset)
{
	uint32_t low = 0, high = mr->segments;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (mr->segment[middle].offset <= offset)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/*
 * The fabric asks only for what was checked when the request was taken. It is
 * checked again here, where the price is small: these are the functions that
 * reach into the host.
 */
static bool may_access(const struct card_mr *mr, uint64_t offset, size_t length, bool write)
{
	return card_mr_holds(mr, offset, length) && (mr->writable || !write) && !mr->card->quiet;
}

/*
 * Offsets are aligned to the elements, the host's memory to nothing. Where it
 * is not, elements have no pointers to them, and the fabric copies.
 */
static inline void *mr_map(void *region, uint64_t offset, size_t length, bool write,
			   unsigned int element)
{
	const struct card_mr *mr = region;
	const struct card_segment *segment = mr->segment;
	struct card *card = mr->card;
	void *p;

	if (!may_access(mr, offset, length, write) || !length)
		return NULL;
	if (mr->segments > 1) {
		segment += find_segment(mr, offset);
		if (length > segment[1].offset - offset)
			return NULL;
	}
	p = card->ops->map(card->host, segment->addr + (offset - segment->offset), length, write);
	return ((uintptr_t)p ^ offset) & (element - 1) ? NULL : p;
}

static void *mr_map1(void *region, uint64_t offset, size_t length, bool write)
{
	return mr_map(region, offset, length, write, 1);
}

static void *mr_map2(void *region, uint64_t offset, size_t length, bool write)
{
	return mr_map(region, offset, length, write, 2);
}

static void *mr_map4(void *region, uint64_t offset, size_t length, bool write)
{
	return mr_map(region, offset, length, write, 4);
}

/* Calls @copy for the part of each segment that the range covers. */
static int for_each_part(struct card_mr *mr, uint64_t offset, void *buf, size_t length,
			 int (*copy)(struct card *card, uint64_t addr, void *buf, size_t length))
{
	const struct card_segment *segment;
	char *at = buf;
	int rc = 0;

	if (!length)
		return 0;
	segment = &mr->segment[find_segment(mr, offset)];
	for (; length && !rc; segment++) {
		uint64_t left = segment[1].offset - offset;
		size_t n = length < left ? length : (size_t)left;

		rc = copy(mr->card, segment->addr + (offset - segment->offset), at, n);
		offset += n;
		at += n;
		length -= n;
	}
	return rc;
}

static int copy_from(struct card *card, uint64_t addr, void *buf, size_t length)
{
	return card->ops->read(card->host, addr, buf, length);
}

static int copy_to(struct card *card, uint64_t addr, void *buf, size_t length)
{
	return card->ops->write(card->host, addr, buf, length);
}

static int mr_read(void *region, uint64_t offset, void *buf, size_t length)
{
	if (!may_access(region, offset, length, false))
		return -EFAULT;
	return for_each_part(region, offset, buf, length, copy_from);
}

static int mr_write(void *region, uint64_t offset, const void *buf, size_t length)
{
	if (!may_access(region, offset, length, true))
		return -EFAULT;
	/* copy_to() does not write to its buffer */
	return for_each_part(region, offset, (void *)(uintptr_t)buf, length, copy_to);
}

const struct fabric_memory_ops *card_mr_ops(unsigned int element)
{
	static const struct fabric_memory_ops ops[] = {
		{ mr_map1, mr_read, mr_write },
		{ mr_map2, mr_read, mr_write },
		{ mr_map4, mr_read, mr_write },
	};

	return &ops[element / 2];
}
