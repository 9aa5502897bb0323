// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * optinc_wait_any(): as optinc_wait() where all requests are of one group;
 * with several groups, each is looked at in turn and all their descriptors
 * are slept on.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

struct any {
	struct optinc_request **requests;
	size_t n;
	struct optinc_request *first;	/* that is not NULL */
	struct optinc_group *group;	/* of all of them; NULL if there are several */
	size_t index;			/* which one ended */
};

static bool any_init(struct any *any, struct optinc_request **requests, size_t n)
{
	size_t i;

	memset(any, 0, sizeof(*any));
	any->requests = requests;
	any->n = n;
	for (i = 0; i < n; i++) {
		if (!requests[i])
			continue;
		if (!any->first) {
			any->first = requests[i];
			any->group = requests[i]->group;
		} else if (requests[i]->group != any->group) {
			any->group = NULL;
		}
	}
	return any->first;
}

static int any_finish(struct any *any, size_t i, struct optinc_result *result)
{
	struct optinc_group *group = any->requests[i]->group;
	int error = request_finish(any->requests[i], result);

	any->requests[i] = NULL;
	any->index = i;
	if (group->fd_used)
		queue_update_fd(group);
	return error;
}

/* Of one group: as optinc_wait(), with more to look at. -EAGAIN: not yet. */
static int any_of_group(struct any *any, uint64_t until, struct optinc_result *result)
{
	struct watch watch = { 0 };
	uint64_t left = FOREVER_NS;
	bool late = false;
	int ret = -EAGAIN;
	size_t i;

	group_lock(any->group);
	queue_reap(any->group);
	for (;;) {
		for (i = 0; i < any->n; i++) {
			if (any->requests[i] && any->requests[i]->state == REQUEST_DONE)
				break;
		}
		if (i < any->n) {
			ret = any_finish(any, i, result);
			break;
		}
		if (until != FOREVER_NS) {
			uint64_t now = now_ns();

			left = now < until ? until - now : 0;
		}
		if (!left && late) {
			fail(-EAGAIN, "none of the requests is done yet");
			break;
		}
		if (!left) {
			late = true;
			queue_look(any->group);
			continue;
		}
		queue_await(any->group, left);
		queue_watch(any->group, &watch);
	}
	group_unlock(any->group);
	return ret;
}

/* Of several groups: true if one was done. */
static bool any_look(struct any *any, struct optinc_result *result, int *error)
{
	struct optinc_group *group = NULL;
	struct optinc_card *card = NULL;
	bool done;
	size_t i;

	for (i = 0; i < any->n; i++) {
		if (!any->requests[i])
			continue;
		group = any->requests[i]->group;
		if (group->card != card) {
			card = group->card;
			card->provider->relax(card->dev);
		}
		group_lock(group);
		queue_reap(group);
		done = any->requests[i]->state == REQUEST_DONE;
		if (done)
			*error = any_finish(any, i, result);
		group_unlock(group);
		if (done)
			return true;
	}
	return false;
}

/*
 * Sleep until any of the groups has a completion. Another thread that waits
 * for one of them may take the signal, so never for long.
 */
static void any_sleep(struct any *any, uint64_t left)
{
	struct pollfd *pfds = calloc(any->n, sizeof(*pfds));
	int ms = left > 10 * NS_PER_MS ? 10 : (int)(left / NS_PER_MS) + 1;
	struct optinc_group *group;
	uint64_t count;
	size_t i;

	for (i = 0; i < any->n && pfds; i++) {
		pfds[i].fd = -1;
		if (!any->requests[i])
			continue;
		group = any->requests[i]->group;
		pfds[i].fd = group->queue.eventfd;
		pfds[i].events = POLLIN;
		group_lock(group);
		queue_arm(group);
		group_unlock(group);
	}
	if (!pfds) {
		poll(NULL, 0, 1);
		return;
	}
	poll(pfds, any->n, ms);
	for (i = 0; i < any->n; i++) {
		if (pfds[i].fd < 0 || !pfds[i].revents)
			continue;
		group = any->requests[i]->group;
		group_lock(group);
		if (read(pfds[i].fd, &count, sizeof(count)) > 0)
			group->fd_signalled = false;
		queue_update_fd(group);
		group_unlock(group);
	}
	free(pfds);
}

static int any_of_many(struct any *any, uint64_t until, struct optinc_result *result)
{
	struct optinc_group *group = any->first->group;
	uint64_t spin, start = 0, now;
	struct watch watch = { 0 };
	int error = 0;

	spin = (uint64_t)__atomic_load_n(&group->card->spin_us, __ATOMIC_RELAXED) * NS_PER_US;
	while (!any_look(any, result, &error)) {
		now = now_ns();
		if (!start)
			start = now;
		if (now >= until)
			return fail(-EAGAIN, "none of the requests is done yet");
		if (now - start < spin)
			continue;
		any_sleep(any, until - now);
		/* Its request ends, or it is failed: either ends the wait. */
		group_lock(group);
		queue_watch(group, &watch);
		group_unlock(group);
	}
	return error;
}

OPTINC_EXPORT int optinc_wait_any(struct optinc_request **requests, size_t n, int timeout_ms,
				  size_t *index, struct optinc_result *result)
{
	uint64_t until = FOREVER_NS;
	struct any any;
	int ret;

	if (!requests || !index)
		return fail(-EINVAL, "%s: NULL", requests ? "index" : "requests");
	if (!any_init(&any, requests, n))
		return fail(-EINVAL, "requests: none of them is a request");
	if (timeout_ms >= 0)
		until = now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
	ret = any.group ? any_of_group(&any, until, result) : any_of_many(&any, until, result);
	*index = any.index;
	return ret;
}
