// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Requests: from a pool of the group's, through the queue, to their end.
 *
 * The pool has twice as many as the queue holds: one half for non-blocking
 * calls, whose requests stay taken until somebody looks at their result, the
 * other for blocking ones, so that these always get through.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

int request_pool_init(struct optinc_group *group)
{
	unsigned int i;

	group->pool_size = 2 * group->params.queue;
	group->pool = calloc(group->pool_size, sizeof(*group->pool));
	if (!group->pool)
		return fail(-ENOMEM, "out of memory");
	for (i = group->pool_size; i--;) {
		group->pool[i].group = group;
		group->pool[i].index = (uint16_t)i;
		group->pool[i].cmd_id = (uint16_t)i;
		group->pool[i].next_free = group->free;
		group->free = &group->pool[i];
	}
	return 0;
}

/* -------------------------------------------------------------- operands */

static int map(struct optinc_group *group, struct operand *op, const void *addr, size_t length,
	       bool write, struct mr_hint *hint)
{
	struct optinc_card *card = group->card;
	int ret;

	op->addr = (void *)(uintptr_t)addr;
	op->length = length;
	op->mr = mr_get(card, hint, addr, length, write);
	if (likely(op->mr)) {
		op->handle = op->mr->handle;
		op->offset = (uintptr_t)addr - op->mr->addr;
		return 0;
	}
	if (length <= STAGE_MAX)
		op->stage = staging_get(card, &group->staging, length);
	if (op->stage) {
		op->handle = group->staging.handle;
		op->offset = (uint64_t)((uint8_t *)op->stage - group->staging.base);
		return 0;
	}
	ret = mr_register_raw(card, addr, length, write ? OPTINC_MR_WRITE : 0, &op->temporary);
	if (ret)
		return ret;
	op->handle = op->temporary;
	op->offset = 0;
	return 0;
}

static int unmap(struct optinc_group *group, struct operand *op)
{
	int ret = 0;

	if (op->mr)
		mr_put(op->mr);
	else if (op->stage)
		staging_put(&group->staging, op->stage, op->length);
	else if (op->temporary)
		ret = mr_deregister_raw(group->card, op->temporary);
	op->mr = NULL;
	op->stage = NULL;
	op->temporary = 0;
	op->handle = 0;
	op->offset = 0;
	op->length = 0;
	return ret == -ENODEV ? 0 : ret;
}

/* In place: the destination is the source's memory, which the source owns. */
static void share(struct operand *dst, const struct operand *src, size_t length)
{
	dst->addr = src->addr;
	dst->length = length;
	dst->handle = src->handle;
	dst->offset = src->offset;
}

static int map_all(struct optinc_group *group, struct optinc_request *request,
		   const struct call *call)
{
	bool in_place = call->src_length && call->dst_length && call->src == call->dst;
	struct mr_hint hint_exp = { .mr = NULL };
	int ret = 0;

	mr_cache_poll(group->card);
	if (call->src_length) {
		ret = map(group, &request->src, call->src, call->src_length, in_place,
			  in_place ? &group->hint_dst : &group->hint_src);
		if (!ret && request->src.stage)
			memcpy(request->src.stage, call->src, call->src_length);
	}
	if (!ret && in_place)
		share(&request->dst, &request->src, call->dst_length);
	else if (!ret && call->dst_length)
		ret = map(group, &request->dst, call->dst, call->dst_length, true,
			  &group->hint_dst);
	if (!ret && unlikely(call->exp_length)) {
		ret = map(group, &request->exp, call->exp, call->exp_length, false, &hint_exp);
		if (!ret && request->exp.stage)
			memcpy(request->exp.stage, call->exp, call->exp_length);
	}
	return ret;
}

static int unmap_all(struct optinc_group *group, struct optinc_request *request)
{
	int ret, first;

	first = request->src.length ? unmap(group, &request->src) : 0;
	ret = request->dst.length ? unmap(group, &request->dst) : 0;
	first = first ? first : ret;
	ret = request->exp.length ? unmap(group, &request->exp) : 0;
	return first ? first : ret;
}

static void copy_out(const struct optinc_request *request, bool in_place)
{
	const void *stage = in_place ? request->src.stage : request->dst.stage;

	if (stage && request->dst.length)
		memcpy(request->dst.addr, stage, request->dst.length);
}

/* ------------------------------------------------------------ begin, end */

static struct optinc_request *pool_get(struct optinc_group *group)
{
	struct optinc_request *request = group->free;

	group->free = request->next_free;
	/* Another generation: a completion of the last use is not one of this. */
	request->cmd_id = (uint16_t)(request->cmd_id + group->pool_size);
	return request;
}

static void pool_put(struct optinc_group *group, struct optinc_request *request)
{
	bool none = !group->free;

	request->state = REQUEST_FREE;
	request->next_free = group->free;
	group->free = request;
	if (unlikely(none))
		queue_wake(group);
}

/* Unmap the operands and give the request back. */
void request_end(struct optinc_request *request)
{
	struct optinc_group *group = request->group;
	bool in_place = request->src.length && request->src.addr == request->dst.addr;

	if (!request->result.error)
		copy_out(request, in_place);
	if (unlikely(unmap_all(group, request)) && group->queue.live)
		queue_fail(group, -EIO, "the card does not give up the memory of a request");
	if (!request->blocking) {
		group->started--;
		group->finished--;
	}
	pool_put(group, request);
}

static int not_joined(struct optinc_group *group)
{
	if (group->joining)
		return fail(-ESTALE, "the group is being joined again by another thread");
	return fail(-ESTALE, "the group's epoch has ended: %s", group->ended[0] ? group->ended :
		    "it was given up; all ranks call optinc_group_rejoin()");
}

/*
 * For blocking calls. Room in the queue comes with a completion; a request
 * comes when another thread has ended its own.
 */
static int wait_for_room(struct optinc_group *group)
{
	struct watch watch = { 0 };

	while (!group->error && !group->joining) {
		if (queue_has_room(group) && group->free)
			return 0;
		if (!group->free)
			queue_sleep_behind(group, FOREVER_NS);
		else
			queue_await(group, FOREVER_NS);
		queue_watch(group, &watch);
	}
	return not_joined(group);
}

static bool may_start(struct optinc_group *group)
{
	return group->started < group->params.queue && queue_has_room(group);
}

static int begin(struct optinc_group *group, const struct call *call, bool blocking,
		 struct optinc_request **out)
{
	struct optinc_request *request;
	int ret;

	if (unlikely(group->error || group->joining))
		return not_joined(group);
	if (blocking) {
		ret = likely(group->free && queue_has_room(group)) ? 0 : wait_for_room(group);
	} else {
		if (!may_start(group))
			queue_reap(group);
		ret = group->error ? not_joined(group) : 0;
		if (!ret && !may_start(group))
			ret = fail(-EAGAIN, "%u requests are outstanding, more the group's queue "
				   "does not hold: wait for one", group->params.queue);
	}
	if (unlikely(ret))
		return ret;

	request = pool_get(group);
	request->blocking = blocking;
	ret = map_all(group, request, call);
	if (unlikely(ret)) {
		unmap_all(group, request);
		pool_put(group, request);
		if (ret == -ENOSPC && !blocking && group->started)
			ret = fail(-EAGAIN, "%u requests are outstanding, and the card has no room for "
				   "the memory of more: wait for one, or register memory for all",
				   group->started);
		return ret;
	}
	if (!blocking)
		group->started++;
	queue_submit(group, request, call);
	*out = request;
	return 0;
}

int request_finish(struct optinc_request *request, struct optinc_result *result)
{
	struct optinc_group *group = request->group;
	int error = request->result.error;
	char text[320];

	if (unlikely(error)) {
		explain_request(group, &request->result, text, sizeof(text));
		fail(error, "%s", text);
	}
	if (result)
		*result = request->result;
	request_end(request);
	return error;
}

int request_start(struct optinc_group *group, const struct call *call,
		  struct optinc_request **request)
{
	int ret;

	*request = NULL;
	group_lock(group);
	ret = begin(group, call, false, request);
	group_unlock(group);
	return ret;
}

/* 0 when done, -EAGAIN when @timeout_ns is over. */
static int wait_done(struct optinc_request *request, uint64_t timeout_ns)
{
	struct optinc_group *group = request->group;
	uint64_t until = 0, left = timeout_ns;
	struct watch watch = { 0 };

	while (request->state != REQUEST_DONE) {
		if (timeout_ns != FOREVER_NS) {
			uint64_t now = now_ns();

			if (!until)
				until = now + timeout_ns;
			left = now < until ? until - now : 0;
		}
		if (!left) {
			queue_look(group);
			if (request->state != REQUEST_DONE)
				return fail(-EAGAIN, "the request is not done yet");
			break;
		}
		queue_await(group, left);
		if (request->state != REQUEST_DONE)
			queue_watch(group, &watch);
	}
	return 0;
}

int request_run(struct optinc_group *group, const struct call *call,
		struct optinc_result *result)
{
	struct optinc_request *request;
	int ret;

	group_lock(group);
	ret = begin(group, call, true, &request);
	if (likely(!ret)) {
		wait_done(request, FOREVER_NS);
		ret = request_finish(request, result);
		if (unlikely(group->fd_used))
			queue_update_fd(group);
	} else if (result) {
		*result = (struct optinc_result) { .error = ret, .peer = -1, .tag = call->tag };
	}
	group_unlock(group);
	return ret;
}

/* ----------------------------------------------------------------- batch */

OPTINC_EXPORT int optinc_batch_begin(struct optinc_group *group)
{
	if (!group)
		return fail(-EINVAL, "group: NULL");
	group_lock(group);
	group->batches++;
	group_unlock(group);
	return 0;
}

OPTINC_EXPORT int optinc_batch_end(struct optinc_group *group)
{
	int ret = 0;

	if (!group)
		return fail(-EINVAL, "group: NULL");
	group_lock(group);
	if (!group->batches)
		ret = fail(-EINVAL, "no batch of the group was begun");
	else if (!--group->batches)
		queue_ring(group);
	group_unlock(group);
	return ret;
}

/* --------------------------------------------------------- test and wait */

OPTINC_EXPORT int optinc_test(struct optinc_request *request, struct optinc_result *result)
{
	struct optinc_group *group;
	int ret = 0;

	if (!request)
		return fail(-EINVAL, "request: NULL");
	group = request->group;
	group_lock(group);
	if (request->state != REQUEST_DONE)
		queue_look(group);
	if (request->state == REQUEST_DONE) {
		request_finish(request, result);
		ret = 1;
	}
	queue_update_fd(group);
	group_unlock(group);
	return ret;
}

OPTINC_EXPORT int optinc_wait(struct optinc_request *request, int timeout_ms,
			      struct optinc_result *result)
{
	struct optinc_group *group;
	int ret;

	if (!request)
		return fail(-EINVAL, "request: NULL");
	group = request->group;
	group_lock(group);
	ret = wait_done(request, timeout_ms < 0 ? FOREVER_NS : (uint64_t)timeout_ms * NS_PER_MS);
	if (!ret)
		ret = request_finish(request, result);
	if (unlikely(group->fd_used))
		queue_update_fd(group);
	group_unlock(group);
	return ret;
}

OPTINC_EXPORT int optinc_cancel(struct optinc_request *request)
{
	struct optinc_group_abort abort = { .size = sizeof(abort) };
	struct optinc_group *group;
	int ret;

	if (!request)
		return fail(-EINVAL, "request: NULL");
	group = request->group;
	group_lock(group);
	queue_reap(group);
	if (request->state == REQUEST_INFLIGHT && group->handle && !group->error) {
		group->cancelled = true;
		group->error = -ECANCELED;
		abort.group = group->handle;
		ret = card_ioctl(group->card, OPTINC_IOCTL_GROUP_ABORT, &abort);
		if (ret)
			queue_fail(group, ret == -ENODEV ? ret : -EIO,
				   "the card does not give the group up: %s", strerror(-ret));
		queue_reap(group);
	}
	if (group->fd_used)
		queue_update_fd(group);
	group_unlock(group);
	return 0;
}
