// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Is a submission entry one that can be done? Section 8.3, in its order.
 */
#include "emulator/card/internal.h"

static bool is_float(uint8_t dtype)
{
	return dtype == OPTINC_F32 || dtype == OPTINC_F16 || dtype == OPTINC_BF16;
}

static bool is_raw(uint8_t dtype)
{
	return dtype == OPTINC_I8 || dtype == OPTINC_I16;
}

/* The table of 8.2 but for its column of bits */
static bool combination_exists(const struct optinc_sqe *sqe)
{
	uint8_t flags = sqe->flags;

	switch (sqe->redop) {
	case OPTINC_MEAN:
	case OPTINC_SUM:
		if (is_raw(sqe->dtype))
			return !(flags & ~(OPTINC_SQE_PARITY | OPTINC_SQE_EXPONENTS));
		return is_float(sqe->dtype) && !(flags & ~OPTINC_SQE_PARITY);
	case OPTINC_VOTE:
		return sqe->dtype == OPTINC_BIT && (!flags || flags == OPTINC_SQE_SIGN ||
						    flags == (OPTINC_SQE_SIGN |
							      OPTINC_SQE_ABSTAIN));
	default:
		return false;
	}
}

static bool exp_is_zero(const struct optinc_sqe *sqe)
{
	return !sqe->exp_mr && !sqe->exp_off;
}

/* The table of 8.1 */
static bool fields_fit(const struct optinc_sqe *sqe)
{
	bool plain = !sqe->flags && !sqe->redop;
	bool no_exp = !sqe->count || exp_is_zero(sqe);

	switch (sqe->opcode) {
	case OPTINC_OP_NOP:
		return plain && !sqe->group && !sqe->dtype && !sqe->root && !sqe->count &&
		       exp_is_zero(sqe);
	case OPTINC_OP_ALLREDUCE:
		return combination_exists(sqe) && !sqe->root &&
		       (sqe->flags & OPTINC_SQE_EXPONENTS || no_exp);
	case OPTINC_OP_BROADCAST:
		return plain && sqe->dtype == OPTINC_U8 && no_exp;
	case OPTINC_OP_BARRIER:
		return plain && !sqe->dtype && !sqe->root && !sqe->count && exp_is_zero(sqe);
	default:
		return plain && sqe->dtype == OPTINC_U8 && !sqe->root && no_exp;
	}
}

/* The emulated card offers all that there is, so nothing here is UNSUPPORTED. */
uint32_t card_check_entry(const struct optinc_sqe *sqe)
{
	if (sqe->opcode >= OPTINC_OPCODES)
		return OPTINC_ST_INVALID_OPCODE;
	if (sqe->__reserved0 || sqe->__reserved1 || sqe->flags & ~OPTINC_SQE_FLAGS)
		return OPTINC_ST_INVALID_FIELD;
	if (!fields_fit(sqe) || le64toh(sqe->count) > CARD_MAX_COUNT)
		return OPTINC_ST_INVALID_FIELD;
	return OPTINC_ST_SUCCESS;
}

/* One end of a request's data */
struct range {
	struct card_mr *mr;	/* NULL: not used */
	uint64_t offset;
	uint64_t bytes;
};

static unsigned int element_bytes(uint8_t dtype)
{
	switch (dtype) {
	case OPTINC_F32:
		return 4;
	case OPTINC_F16:
	case OPTINC_BF16:
	case OPTINC_I16:
		return 2;
	default:
		return 1;
	}
}

/* Bytes of @count elements; the element size, for the alignment, is returned. */
static unsigned int source_size(const struct optinc_sqe *sqe, uint64_t *bytes)
{
	unsigned int each = element_bytes(sqe->dtype);
	uint64_t count = le64toh(sqe->count);

	*bytes = sqe->dtype == OPTINC_BIT ? (count + 7) / 8 : count * each;
	return each;
}

static unsigned int result_size(const struct optinc_sqe *sqe, uint64_t *bytes)
{
	unsigned int each = element_bytes(sqe->dtype);
	uint64_t count = le64toh(sqe->count);

	if (sqe->dtype == OPTINC_BIT) {
		*bytes = sqe->flags == OPTINC_SQE_SIGN ? (count + 7) / 8 : count;
		return 1;
	}
	if (sqe->opcode == OPTINC_OP_ALLREDUCE && sqe->redop == OPTINC_SUM && is_raw(sqe->dtype))
		each *= 2;
	*bytes = count * each;
	return each;
}

static uint32_t check_range(const struct card_context *ctx, struct range *range, uint32_t handle,
			    unsigned int align, bool write)
{
	range->mr = card_mr_find(ctx, handle);
	if (!range->mr)
		return OPTINC_ST_INVALID_MR;
	if (write && !range->mr->writable)
		return OPTINC_ST_MR_ACCESS;
	if (range->offset & (align - 1))
		return OPTINC_ST_INVALID_FIELD;
	if (!card_mr_holds(range->mr, range->offset, range->bytes))
		return OPTINC_ST_MR_BOUNDS;
	return OPTINC_ST_SUCCESS;
}

static bool overlap(const struct range *a, const struct range *b)
{
	return a->mr && a->mr == b->mr &&
	       card_overlap(a->offset, a->bytes, b->offset, b->bytes);
}

static bool overlap_is_allowed(const struct range *src, const struct range *dst,
			       const struct range *exp)
{
	if (overlap(exp, dst))
		return false;
	if (!overlap(src, dst))
		return true;
	return src->offset == dst->offset && dst->bytes <= src->bytes;
}

static uint32_t check_ranges(const struct card_context *ctx, const struct card_group *group,
			     const struct optinc_sqe *sqe, struct card_request *request)
{
	bool broadcast = sqe->opcode == OPTINC_OP_BROADCAST;
	struct range src = { .offset = le64toh(sqe->src_off) };
	struct range dst = { .offset = le64toh(sqe->dst_off) };
	struct range exp = { .offset = le64toh(sqe->exp_off) };
	unsigned int src_align = source_size(sqe, &src.bytes);
	unsigned int dst_align = result_size(sqe, &dst.bytes);
	uint32_t status = OPTINC_ST_SUCCESS;

	if (!broadcast || sqe->root == group->rank)
		status = check_range(ctx, &src, le32toh(sqe->src_mr), src_align, false);
	if (!status && (!broadcast || sqe->root != group->rank))
		status = check_range(ctx, &dst, le32toh(sqe->dst_mr), dst_align, true);
	if (!status && sqe->flags & OPTINC_SQE_EXPONENTS) {
		exp.bytes = (le64toh(sqe->count) + OPTINC_BLOCK - 1) / OPTINC_BLOCK;
		status = check_range(ctx, &exp, le32toh(sqe->exp_mr), 1, false);
	}
	if (status)
		return status;
	if (!overlap_is_allowed(&src, &dst, &exp))
		return OPTINC_ST_INVALID_FIELD;
	request->fabric.memory = card_mr_ops(src_align < dst_align ? dst_align : src_align);
	request->src = src.mr;
	request->dst = dst.mr;
	request->exp = exp.mr;
	return OPTINC_ST_SUCCESS;
}

static bool group_takes(const struct card_group *group, const struct optinc_sqe *sqe)
{
	if (sqe->opcode != OPTINC_OP_ALLREDUCE)
		return true;
	/* what a group joined with fits its bits, see card_group_join() */
	return group->dtypes >> sqe->dtype & 1;
}

uint32_t card_check_request(const struct card_context *ctx, const struct card_group *group,
			    const struct optinc_sqe *sqe, struct card_request *request)
{
	if (sqe->root >= group->nranks)
		return OPTINC_ST_INVALID_FIELD;
	if (!group_takes(group, sqe))
		return OPTINC_ST_UNSUPPORTED;
	if (!sqe->count || sqe->opcode == OPTINC_OP_BARRIER)
		return OPTINC_ST_SUCCESS;
	return check_ranges(ctx, group, sqe, request);
}
