// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The collectives: a call is checked whole before anything is submitted, so
 * that what is wrong here is told here, by the name of the argument, and ends
 * no epoch.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

static int refuse(struct optinc_group *group, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));

static int refuse(struct optinc_group *group, int error, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfail(error, fmt, args);
	va_end(args);
	why_card(group->card, OPTINC_REASON_REFUSED, optinc_last_error());
	return error;
}

static int refused(struct optinc_result *result, int error, const struct optinc_options *options)
{
	if (result)
		*result = (struct optinc_result) {
			.error = error,
			.peer = -1,
			.tag = options ? options->tag : 0,
		};
	return error;
}

static const char *dtype_text(enum optinc_dtype dtype)
{
	const char *name = optinc_dtype_name(dtype);

	return name ? name : "(unknown)";
}

static const char *redop_text(enum optinc_redop redop)
{
	const char *name = optinc_redop_name(redop);

	return name ? name : "(unknown)";
}

/* ---------------------------------------------------------------- memory */

static bool aligned(const void *p, size_t to)
{
	return !((uintptr_t)p & (to - 1));
}

static bool overlap(const void *a, size_t a_length, const void *b, size_t b_length)
{
	uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

	return a_length && b_length && x < y + b_length && y < x + a_length;
}

/* @align is that of an element; 0 for a type without one. */
static int check_memory(struct optinc_group *group, const char *name, const void *p,
			size_t length, size_t align)
{
	if (!length)
		return 0;
	if (unlikely(!p))
		return refuse(group, -EINVAL, "%s: NULL", name);
	if (unlikely(!aligned(p, align)))
		return refuse(group, -EINVAL, "%s: %p is not aligned to its %zu-byte elements",
			      name, p, align);
	if (unlikely((uintptr_t)p + length < (uintptr_t)p))
		return refuse(group, -EINVAL, "%s: %zu bytes reach beyond the end of memory",
			      name, length);
	return 0;
}

static int check_count(struct optinc_group *group, const char *name, size_t count)
{
	if (unlikely(count > group->card->query.max_count))
		return refuse(group, -EINVAL, "%s: %zu is more than the card takes at once (%llu)",
			      name, count, (unsigned long long)group->card->query.max_count);
	return 0;
}

static int check_dtype(struct optinc_group *group, enum optinc_dtype dtype)
{
	if (likely((unsigned int)dtype < OPTINC_DTYPES && group->params.dtypes >> dtype & 1))
		return 0;
	if ((unsigned int)dtype >= OPTINC_DTYPES)
		return refuse(group, -EINVAL, "dtype: %d is none", (int)dtype);
	if ((dtype == OPTINC_I8 && group->params.bits != 8) ||
	    (dtype == OPTINC_I16 && group->params.bits != 16))
		return refuse(group, -EOPNOTSUPP, "dtype: %s does not fit the group's codes of %u "
			      "bits", dtype_text(dtype), group->params.bits);
	return refuse(group, -EOPNOTSUPP, "dtype: the group was joined without %s",
		      dtype_text(dtype));
}

/* --------------------------------------------------------------- options */

static int explain_combination(struct optinc_group *group, enum optinc_dtype dtype,
			       enum optinc_redop redop, uint32_t flags)
{
	if (flags & ~(uint32_t)OPTINC_SQE_FLAGS)
		return refuse(group, -EINVAL, "options.flags: 0x%x has unknown flags", flags);
	if ((unsigned int)redop >= OPTINC_REDOPS)
		return refuse(group, -EINVAL, "redop: %d is none", (int)redop);
	if (dtype == OPTINC_U8)
		return refuse(group, -EINVAL, "dtype: u8 is for broadcast; it cannot be reduced");
	if ((redop == OPTINC_VOTE) != (dtype == OPTINC_BIT))
		return refuse(group, -EINVAL, "redop: %s does not go with %s; vote is for bit, "
			      "mean and sum are for the others", redop_text(redop),
			      dtype_text(dtype));
	if (redop == OPTINC_VOTE && flags & OPTINC_SQE_PARITY)
		return refuse(group, -EINVAL, "options.flags: OPTINC_SQE_PARITY has no meaning in "
			      "a vote");
	if (flags & OPTINC_SQE_EXPONENTS)
		return refuse(group, -EINVAL, "options.flags: OPTINC_SQE_EXPONENTS is for i8 and "
			      "i16, not for %s", dtype_text(dtype));
	if (redop != OPTINC_VOTE)
		return refuse(group, -EINVAL, "options.flags: OPTINC_SQE_SIGN and _ABSTAIN are for "
			      "votes");
	return refuse(group, -EINVAL, "options.flags: OPTINC_SQE_ABSTAIN wants _SIGN with it");
}

static int check_reduction(struct optinc_group *group, enum optinc_dtype dtype,
			   enum optinc_redop redop, uint32_t flags)
{
	int ret = check_dtype(group, dtype);

	if (unlikely(ret))
		return ret;
	if (unlikely(!optinc_result_bytes(1, dtype, redop, flags)))
		return explain_combination(group, dtype, redop, flags);
	if (unlikely(!(group->card->query.redops >> redop & 1)))
		return refuse(group, -EOPNOTSUPP, "redop: the card does not do %s",
			      redop_text(redop));
	return 0;
}

static int set_options(struct optinc_group *group, struct call *call,
		       const struct optinc_options *options, uint32_t allowed)
{
	if (!options)
		return 0;
	if (unlikely(options->flags & ~allowed))
		return refuse(group, -EINVAL, "options.flags: 0x%x has flags that do not apply",
			      options->flags);
	call->flags = (uint8_t)options->flags;
	call->tag = options->tag;
	return 0;
}

static int set_exponents(struct optinc_group *group, struct call *call,
			 const struct optinc_options *options)
{
	size_t blocks = call->count / OPTINC_BLOCK + (call->count % OPTINC_BLOCK != 0);

	if (likely(!(call->flags & OPTINC_SQE_EXPONENTS)))
		return 0;
	if (!options->exponents && blocks)
		return refuse(group, -EINVAL, "options.exponents: NULL, but OPTINC_SQE_EXPONENTS "
			      "is set");
	if (overlap(options->exponents, blocks, call->dst, call->dst_length))
		return refuse(group, -EINVAL, "options.exponents: must not overlap recv");
	call->exp = options->exponents;
	call->exp_length = blocks;
	return check_memory(group, "options.exponents", call->exp, blocks, 1);
}

/* ---------------------------------------------------------- describe it */

static int describe_allreduce(struct optinc_group *group, struct call *call, const void *send,
			      void *recv, size_t count, enum optinc_dtype dtype,
			      enum optinc_redop redop, const struct optinc_options *options)
{
	uint32_t flags = options ? options->flags : 0;
	size_t in_place;
	int ret;

	if (unlikely(!group))
		return fail(-EINVAL, "group: NULL");
	ret = check_reduction(group, dtype, redop, flags);
	if (unlikely(ret))
		return ret;
	ret = check_count(group, "count", count);
	if (unlikely(ret))
		return ret;

	*call = (struct call) {
		.opcode = OPTINC_OP_ALLREDUCE,
		.dtype = (uint8_t)dtype,
		.redop = (uint8_t)redop,
		.count = count,
		.src = send,
		.src_length = optinc_data_bytes(count, dtype),
		.dst = recv,
		.dst_length = optinc_result_bytes(count, dtype, redop, flags),
	};
	if (unlikely(count && (!call->src_length || !call->dst_length)))
		return refuse(group, -EINVAL, "count: %zu elements are too many bytes", count);
	ret = check_memory(group, "send", send, call->src_length, optinc_data_bytes(1, dtype));
	if (likely(!ret))
		ret = check_memory(group, "recv", recv, call->dst_length,
				   optinc_result_bytes(1, dtype, redop, flags));
	if (unlikely(ret))
		return ret;

	in_place = send == recv && call->dst_length <= call->src_length;
	if (unlikely(!in_place && overlap(send, call->src_length, recv, call->dst_length)))
		return refuse(group, -EINVAL, send == recv ?
			      "recv: equals send, but the result is larger than the source" :
			      "recv: overlaps send; it may equal send or lie apart");
	ret = set_options(group, call, options, OPTINC_SQE_FLAGS);
	return unlikely(ret) ? ret : set_exponents(group, call, options);
}

static int describe_broadcast(struct optinc_group *group, struct call *call, void *buffer,
			      size_t bytes, unsigned int root,
			      const struct optinc_options *options)
{
	bool source;
	int ret;

	if (!group)
		return fail(-EINVAL, "group: NULL");
	if (root >= group->params.nranks)
		return refuse(group, -EINVAL, "root: %u is not within 0..%u", root,
			      group->params.nranks - 1);
	source = root == group->params.rank;
	*call = (struct call) {
		.opcode = OPTINC_OP_BROADCAST,
		.dtype = OPTINC_U8,
		.root = (uint8_t)root,
		.count = bytes,
		.src = source ? buffer : NULL,
		.src_length = source ? bytes : 0,
		.dst = source ? NULL : buffer,
		.dst_length = source ? 0 : bytes,
	};
	ret = check_count(group, "bytes", bytes);
	if (!ret)
		ret = check_memory(group, "buffer", buffer, bytes, 1);
	return ret ? ret : set_options(group, call, options, 0);
}

static int describe_barrier(struct optinc_group *group, struct call *call,
			    const struct optinc_options *options)
{
	if (!group)
		return fail(-EINVAL, "group: NULL");
	*call = (struct call) { .opcode = OPTINC_OP_BARRIER };
	return set_options(group, call, options, 0);
}

static int describe_exponent_max(struct optinc_group *group, struct call *call,
				 uint8_t *exponents, size_t blocks,
				 const struct optinc_options *options)
{
	int ret;

	if (!group)
		return fail(-EINVAL, "group: NULL");
	*call = (struct call) {
		.opcode = OPTINC_OP_EXPONENT_MAX,
		.dtype = OPTINC_U8,
		.count = blocks,
		.src = exponents,
		.src_length = blocks,
		.dst = exponents,
		.dst_length = blocks,
	};
	ret = check_count(group, "blocks", blocks);
	if (!ret)
		ret = check_memory(group, "exponents", exponents, blocks, 1);
	return ret ? ret : set_options(group, call, options, 0);
}

/* -------------------------------------------------------------- blocking */

OPTINC_EXPORT int optinc_allreduce(struct optinc_group *group, const void *send, void *recv,
				   size_t count, enum optinc_dtype dtype, enum optinc_redop redop,
				   const struct optinc_options *options,
				   struct optinc_result *result)
{
	struct call call;
	int ret;

	ret = describe_allreduce(group, &call, send, recv, count, dtype, redop, options);
	if (unlikely(ret))
		return refused(result, ret, options);
	return request_run(group, &call, result);
}

OPTINC_EXPORT int optinc_broadcast(struct optinc_group *group, void *buffer, size_t bytes,
				   unsigned int root, const struct optinc_options *options,
				   struct optinc_result *result)
{
	struct call call;
	int ret;

	ret = describe_broadcast(group, &call, buffer, bytes, root, options);
	if (ret)
		return refused(result, ret, options);
	return request_run(group, &call, result);
}

OPTINC_EXPORT int optinc_barrier(struct optinc_group *group,
				 const struct optinc_options *options,
				 struct optinc_result *result)
{
	struct call call;
	int ret;

	ret = describe_barrier(group, &call, options);
	if (ret)
		return refused(result, ret, options);
	return request_run(group, &call, result);
}

OPTINC_EXPORT int optinc_exponent_max(struct optinc_group *group, uint8_t *exponents,
				      size_t blocks, const struct optinc_options *options,
				      struct optinc_result *result)
{
	struct call call;
	int ret;

	ret = describe_exponent_max(group, &call, exponents, blocks, options);
	if (ret)
		return refused(result, ret, options);
	return request_run(group, &call, result);
}

/* ---------------------------------------------------------- non-blocking */

static int no_request(struct optinc_request **request)
{
	if (!request)
		return fail(-EINVAL, "request: NULL");
	*request = NULL;
	return 0;
}

OPTINC_EXPORT int optinc_iallreduce(struct optinc_group *group, const void *send, void *recv,
				    size_t count, enum optinc_dtype dtype,
				    enum optinc_redop redop,
				    const struct optinc_options *options,
				    struct optinc_request **request)
{
	struct call call;
	int ret;

	ret = no_request(request);
	if (!ret)
		ret = describe_allreduce(group, &call, send, recv, count, dtype, redop, options);
	return ret ? ret : request_start(group, &call, request);
}

OPTINC_EXPORT int optinc_ibroadcast(struct optinc_group *group, void *buffer, size_t bytes,
				    unsigned int root, const struct optinc_options *options,
				    struct optinc_request **request)
{
	struct call call;
	int ret;

	ret = no_request(request);
	if (!ret)
		ret = describe_broadcast(group, &call, buffer, bytes, root, options);
	return ret ? ret : request_start(group, &call, request);
}

OPTINC_EXPORT int optinc_ibarrier(struct optinc_group *group,
				  const struct optinc_options *options,
				  struct optinc_request **request)
{
	struct call call;
	int ret;

	ret = no_request(request);
	if (!ret)
		ret = describe_barrier(group, &call, options);
	return ret ? ret : request_start(group, &call, request);
}

OPTINC_EXPORT int optinc_iexponent_max(struct optinc_group *group, uint8_t *exponents,
				       size_t blocks, const struct optinc_options *options,
				       struct optinc_request **request)
{
	struct call call;
	int ret;

	ret = no_request(request);
	if (!ret)
		ret = describe_exponent_max(group, &call, exponents, blocks, options);
	return ret ? ret : request_start(group, &call, request);
}
