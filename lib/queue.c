// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A group's queue pair: rings, doorbells, completions, waiting.
 *
 * The group's lock covers all of it. Whoever waits looks at the completion
 * ring himself and holds the lock meanwhile, which costs nothing as long as
 * nobody else wants it. When somebody does (group->contenders), or when it
 * is time to sleep, the waiter becomes the group's reaper: he drops the lock,
 * watches one ring entry, and takes the lock again when it has changed. At
 * most one thread is reaper; other waiters sleep on group->cond, are woken by
 * every completion, and take over when the reaper leaves.
 *
 * A completion is believed in nothing: the request it names must exist and be
 * outstanding, its tag must be the request's, the submission head must lie
 * between the old one and the tail. Otherwise the group is failed.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define SLEEP_NS		NS_PER_S		/* of the reaper, at most */
#define SLEEPER_NS		(100 * NS_PER_MS)	/* of those behind him */
#define SPINS_PER_CLOCK		32

void group_lock(struct optinc_group *group)
{
	if (likely(!pthread_mutex_trylock(&group->lock)))
		return;
	__atomic_fetch_add(&group->contenders, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&group->lock);
	__atomic_fetch_sub(&group->contenders, 1, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------- create, destroy */

static int map_rings(struct optinc_group *group, const struct optinc_qp_create *create)
{
	struct optinc_card *card = group->card;
	struct queue *q = &group->queue;
	void *sq, *cq;

	sq = card->provider->mmap(card->dev, q->sq_entries * sizeof(*q->sq),
				  PROT_READ | PROT_WRITE, create->sq_offset);
	if (sq == MAP_FAILED)
		return errno ? -errno : -EIO;
	cq = card->provider->mmap(card->dev, q->cq_entries * sizeof(*q->cq),
				  PROT_READ | PROT_WRITE, create->cq_offset);
	if (cq == MAP_FAILED) {
		int ret = errno ? -errno : -EIO;

		card->provider->munmap(card->dev, sq, q->sq_entries * sizeof(*q->sq));
		return ret;
	}
	q->sq = sq;
	q->cq = cq;
	return 0;
}

int queue_create(struct optinc_group *group, unsigned int entries)
{
	struct optinc_card *card = group->card;
	struct optinc_qp_create create = { .size = sizeof(create) };
	struct queue *q = &group->queue;
	int ret;

	if (q->eventfd < 0)
		q->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->eventfd < 0)
		return fail(-errno, "no eventfd: %s", strerror(errno));

	q->sq_entries = entries;
	q->cq_entries = entries;
	q->sq_tail = q->sq_rung = q->sq_head = q->cq_head = 0;
	create.sq_entries = q->sq_entries;
	create.cq_entries = q->cq_entries;
	create.eventfd = q->eventfd;
	ret = card_ioctl(card, OPTINC_IOCTL_QP_CREATE, &create);
	if (ret == -ENOSPC)
		return fail(ret, "the card gives one user no more than %u queue pairs",
			    card->query.max_qps);
	if (ret)
		return fail(ret, "no queue pair: %s", strerror(-ret));
	q->id = create.qp;
	q->live = true;
	ret = create.qp > 0xffff ? -EIO : map_rings(group, &create);
	if (ret) {
		queue_disable(group);
		return fail(ret, "the queue pair's rings cannot be mapped: %s", strerror(-ret));
	}
	return 0;
}

void queue_disable(struct optinc_group *group)
{
	struct optinc_qp_destroy destroy = {
		.size = sizeof(destroy),
		.qp = group->queue.id,
	};

	if (!group->queue.live)
		return;
	group->queue.live = false;
	card_ioctl(group->card, OPTINC_IOCTL_QP_DESTROY, &destroy);
}

void queue_destroy(struct optinc_group *group)
{
	const struct optinc_provider *provider = group->card->provider;
	struct queue *q = &group->queue;

	queue_disable(group);
	if (q->sq)
		provider->munmap(group->card->dev, q->sq, q->sq_entries * sizeof(*q->sq));
	if (q->cq)
		provider->munmap(group->card->dev, q->cq, q->cq_entries * sizeof(*q->cq));
	q->sq = NULL;
	q->cq = NULL;
}

/* ---------------------------------------------------------------- submit */

void queue_arm(struct optinc_group *group)
{
	card_doorbell(group->card, OPTINC_DB_CQ_ARM,
		      OPTINC_DB_VALUE(group->queue.id, group->queue.cq_head));
}

/* What is in flight has a slot of the completion ring until it is consumed. */
bool queue_has_room(struct optinc_group *group)
{
	const struct queue *q = &group->queue;

	return group->inflight < q->sq_entries && q->sq_tail - q->sq_head < q->sq_entries;
}

void queue_submit(struct optinc_group *group, struct optinc_request *request,
		  const struct call *call)
{
	struct queue *q = &group->queue;
	struct optinc_sqe sqe = {
		.opcode = call->opcode,
		.flags = call->flags,
		.cmd_id = htole16(request->cmd_id),
		.group = htole32(group->handle),
		.tag = htole32(call->tag),
		.dtype = call->dtype,
		.redop = call->redop,
		.root = call->root,
		.count = htole64(call->count),
		.src_mr = htole32(request->src.handle),
		.dst_mr = htole32(request->dst.handle),
		.src_off = htole64(request->src.offset),
		.dst_off = htole64(request->dst.offset),
		.exp_off = htole64(request->exp.offset),
		.exp_mr = htole32(request->exp.handle),
	};

	request->state = REQUEST_INFLIGHT;
	request->tag = call->tag;
	request->bytes = call->src_length + call->dst_length;
	group->inflight++;
	group->inflight_bytes += request->bytes;

	q->sq[q->sq_tail & (q->sq_entries - 1)] = sqe;
	q->sq_tail++;
	if (likely(!group->batches))
		queue_ring(group);
}

void queue_ring(struct optinc_group *group)
{
	struct queue *q = &group->queue;

	if (q->sq_rung == q->sq_tail || !q->live)
		return;
	q->sq_rung = q->sq_tail;
	card_doorbell(group->card, OPTINC_DB_SQ_TAIL, OPTINC_DB_VALUE(q->id, q->sq_tail));
	if (unlikely(group->fd_used))
		queue_arm(group);
}

/* -------------------------------------------------------------- complete */

void queue_wake(struct optinc_group *group)
{
	if (group->sleepers)
		pthread_cond_broadcast(&group->cond);
}

static void complete(struct optinc_group *group, struct optinc_request *request)
{
	request->state = REQUEST_DONE;
	group->inflight--;
	group->inflight_bytes -= request->bytes;
	if (!request->blocking)
		group->finished++;
	__atomic_store_n(&group->completions, group->completions + 1, __ATOMIC_RELAXED);
}

static void end_epoch(struct optinc_group *group, const struct optinc_result *result)
{
	bool card = result->status >= OPTINC_ST_RESET;

	if (group->ended[0])
		return;
	if (!group->error)
		group->error = result->error;
	explain_request(group, result, group->ended, sizeof(group->ended));
	why_card(group->card, card ? OPTINC_REASON_CARD_FAILED : OPTINC_REASON_EPOCH_ENDED,
		 group->ended);
}

static void complete_failed(struct optinc_group *group, struct optinc_request *request)
{
	struct optinc_result *result = &request->result;
	char text[256];

	if (group->cancelled && (result->status == OPTINC_ST_ABORTED ||
				 result->status == OPTINC_ST_EPOCH_ENDED))
		result->error = -ECANCELED;
	if (status_ends_epoch(result->status)) {
		end_epoch(group, result);
	} else {
		explain_request(group, result, text, sizeof(text));
		why_card(group->card, OPTINC_REASON_REFUSED, text);
	}
}

/* NULL when the completion is one that this card should not have sent. */
static struct optinc_request *believe(struct optinc_group *group, const struct optinc_cqe *cqe)
{
	struct queue *q = &group->queue;
	uint16_t cmd_id = le16toh(cqe->cmd_id);
	uint16_t taken = (uint16_t)(le16toh(cqe->sq_head) - (uint16_t)q->sq_head);
	struct optinc_request *request = &group->pool[cmd_id & (group->pool_size - 1)];

	if (request->state != REQUEST_INFLIGHT || request->cmd_id != cmd_id) {
		queue_fail(group, -EIO, "the card completed a request (0x%04x) that is not "
			   "outstanding", cmd_id);
		return NULL;
	}
	if (taken > q->sq_tail - q->sq_head) {
		queue_fail(group, -EIO, "the card claims to have taken %u requests of %u", taken,
			   q->sq_tail - q->sq_head);
		return NULL;
	}
	if (le32toh(cqe->tag) != request->tag) {
		queue_fail(group, -EIO, "the card returned tag 0x%x for 0x%x",
			   le32toh(cqe->tag), request->tag);
		return NULL;
	}
	if (!status_known(le16toh(cqe->status) >> OPTINC_CQE_STATUS_SHIFT)) {
		queue_fail(group, -EIO, "the card gave a status that does not exist (0x%x)",
			   le16toh(cqe->status) >> OPTINC_CQE_STATUS_SHIFT);
		return NULL;
	}
	q->sq_head += taken;
	return request;
}

static bool take(struct optinc_group *group, const struct optinc_cqe *cqe)
{
	struct optinc_request *request = believe(group, cqe);
	struct optinc_result *result;

	if (unlikely(!request))
		return false;
	result = &request->result;
	result->status = le16toh(cqe->status) >> OPTINC_CQE_STATUS_SHIFT;
	result->peer = cqe->peer < group->params.nranks ? cqe->peer : -1;
	result->mismatch = cqe->mismatch;
	result->tag = request->tag;
	result->nonfinite = le32toh(cqe->nonfinite);
	result->saturated = le32toh(cqe->saturated);
	result->wire_ns = le32toh(cqe->wire_ns);
	result->device_ns = le64toh(cqe->device_ns);
	if (likely(result->status == OPTINC_ST_SUCCESS)) {
		result->error = 0;
		why_used(group->card);
	} else {
		result->error = status_errno(result->status);
		complete_failed(group, request);
	}
	complete(group, request);
	return true;
}

/* Has the entry at @head been written in this pass of the ring? */
static inline bool entry_new(const struct queue *q, uint32_t head)
{
	const __le16 *status = &q->cq[head & (q->cq_entries - 1)].status;
	bool phase = le16toh(__atomic_load_n(status, __ATOMIC_ACQUIRE)) & OPTINC_CQE_PHASE;

	return phase == !(head & q->cq_entries);
}

bool queue_reap(struct optinc_group *group)
{
	struct queue *q = &group->queue;
	bool any = false;

	queue_ring(group);
	while (q->live && entry_new(q, q->cq_head)) {
		/* Once: the card could change it between two looks. */
		struct optinc_cqe cqe = q->cq[q->cq_head & (q->cq_entries - 1)];

		q->cq_head++;
		any = true;
		if (unlikely(!take(group, &cqe)))
			break;
	}
	if (!any)
		return false;
	queue_wake(group);
	if (unlikely(group->fd_used) && group->finished)
		queue_update_fd(group);
	return true;
}

void queue_look(struct optinc_group *group)
{
	if (queue_reap(group))
		return;
	group->card->provider->relax(group->card->dev);
	queue_reap(group);
}

void queue_leave(struct optinc_group *group)
{
	struct optinc_group_leave leave = { .size = sizeof(leave), .group = group->handle };

	/* What the card has not taken gets no completion. */
	queue_ring(group);
	if (group->handle)
		card_ioctl(group->card, OPTINC_IOCTL_GROUP_LEAVE, &leave);
	group->handle = 0;
}

void queue_fail(struct optinc_group *group, int error, const char *fmt, ...)
{
	struct optinc_request *request;
	va_list args;
	unsigned int i;

	va_start(args, fmt);
	vsnprintf(group->failure, sizeof(group->failure), fmt, args);
	va_end(args);

	/* Both are fences: once the requests end, nothing writes to their memory. */
	queue_leave(group);
	queue_disable(group);
	for (i = 0; i < group->pool_size; i++) {
		request = &group->pool[i];
		if (request->state != REQUEST_INFLIGHT)
			continue;
		request->result = (struct optinc_result) {
			.error = error,
			.status = error == -ENODEV ? OPTINC_ST_RESET : OPTINC_ST_INTERNAL,
			.peer = -1,
			.tag = request->tag,
		};
		complete(group, request);
	}
	group->error = error;
	snprintf(group->ended, sizeof(group->ended), "%s", group->failure);
	why_card(group->card, OPTINC_REASON_CARD_FAILED, group->failure);
	queue_wake(group);
	if (group->fd_used)
		queue_update_fd(group);
}

void queue_update_fd(struct optinc_group *group)
{
	int fd = group->queue.eventfd;
	uint64_t count = 1;
	ssize_t n;

	if (!group->fd_used)
		return;
	if (group->finished) {
		if (!group->fd_signalled)
			group->fd_signalled = write(fd, &count, sizeof(count)) > 0;
		return;
	}
	n = read(fd, &count, sizeof(count));	/* fails when it holds nothing */
	(void)n;
	group->fd_signalled = false;
	if (group->inflight)
		queue_arm(group);
}

/* ------------------------------------------------------------------ wait */

static void reaper_begin(struct optinc_group *group)
{
	group->reaper = true;
	group_unlock(group);
}

static void reaper_end(struct optinc_group *group)
{
	group_lock(group);
	group->reaper = false;
	queue_wake(group);
}

void queue_quiesce(struct optinc_group *group)
{
	while (group->reaper) {
		group->sleepers++;
		pthread_cond_wait(&group->cond, &group->lock);
		group->sleepers--;
	}
}

/*
 * Look at the next entry until it is new, or for @budget_ns. The clock is not
 * read before the entry has been looked at a few times.
 */
static bool spin(struct optinc_group *group, uint64_t budget_ns)
{
	const struct optinc_provider *provider = group->card->provider;
	uint64_t completions = group->completions;
	uint32_t head = group->queue.cq_head;
	bool locked = true;
	uint64_t start = 0;
	bool found = false;
	unsigned int i;

	for (i = 1; !found && budget_ns; i++) {
		provider->relax(group->card->dev);
		found = entry_new(&group->queue, head) ||
			__atomic_load_n(&group->completions, __ATOMIC_RELAXED) != completions;
		if (unlikely(locked && __atomic_load_n(&group->contenders, __ATOMIC_RELAXED))) {
			reaper_begin(group);
			locked = false;
		}
		if (i % SPINS_PER_CLOCK)
			continue;
		if (!start)
			start = now_ns();
		else if (now_ns() - start >= budget_ns)
			break;
	}
	if (!locked)
		reaper_end(group);
	return found;
}

/* Somebody else looks after the queue. */
void queue_sleep_behind(struct optinc_group *group, uint64_t timeout_ns)
{
	uint64_t until = now_ns() + (timeout_ns < SLEEPER_NS ? timeout_ns : SLEEPER_NS);
	struct timespec ts = {
		.tv_sec = (time_t)(until / NS_PER_S),
		.tv_nsec = (long)(until % NS_PER_S),
	};

	group->sleepers++;
	pthread_cond_timedwait(&group->cond, &group->lock, &ts);
	group->sleepers--;
}

static void sleep_first(struct optinc_group *group, uint64_t timeout_ns)
{
	struct optinc_card *card = group->card;
	struct queue *q = &group->queue;
	uint32_t id = q->id;
	uint16_t head = (uint16_t)q->cq_head;
	int ret;

	reaper_begin(group);
	ret = card->provider->wait(card->dev, card->doorbell, id, head, q->eventfd,
				   timeout_ns < SLEEP_NS ? timeout_ns : SLEEP_NS);
	reaper_end(group);
	if (!q->live)
		return;
	queue_reap(group);
	if (ret == -ENODEV && q->live)
		queue_fail(group, ret, CARD_GONE);
	else if (ret < 0 && ret != -EINTR && ret != -EAGAIN && ret != -ETIMEDOUT && q->live)
		queue_fail(group, -EIO, "waiting for the card failed: %s", strerror(-ret));
	/* The wait may have taken what optinc_group_fd()'s poller should see. */
	group->fd_signalled = false;
	queue_update_fd(group);
}

void queue_await(struct optinc_group *group, uint64_t timeout_ns)
{
	uint64_t budget;

	if (queue_reap(group) || !group->queue.live)
		return;
	if (group->reaper) {
		queue_sleep_behind(group, timeout_ns);
		return;
	}
	budget = (uint64_t)__atomic_load_n(&group->card->spin_us, __ATOMIC_RELAXED) * NS_PER_US;
	if (budget > timeout_ns)
		budget = timeout_ns;
	if (spin(group, budget) || queue_reap(group)) {
		queue_reap(group);
		return;
	}
	/* Another thread may have become reaper when this one was it no more. */
	if (group->queue.live && !group->reaper && timeout_ns > budget)
		sleep_first(group, timeout_ns - budget);
}

/*
 * The card ends every request within the group's deadline, plus the time for
 * the data. One that is long beyond that has stopped answering. The slowest
 * thing that is meant to work moves a megabyte a second.
 */
void queue_watch(struct optinc_group *group, struct watch *watch)
{
	uint64_t limit = 2 * group->params.deadline_ms * NS_PER_MS + 5 * NS_PER_S +
			 group->inflight_bytes * NS_PER_US;
	struct optinc_query query = { .size = sizeof(query) };
	uint64_t now;

	if (watch->completions != group->completions) {
		watch->completions = group->completions;
		watch->since_ns = 0;
		return;
	}
	if (!group->queue.live)
		return;
	now = now_ns();
	if (!watch->since_ns) {
		watch->since_ns = now;
		watch->asked_ns = now;
		return;
	}
	if (now - watch->since_ns > limit) {
		queue_fail(group, -EIO, "the card stopped answering: nothing completed for %llu s",
			   (unsigned long long)((now - watch->since_ns) / NS_PER_S));
		return;
	}
	/* A card that was unplugged writes no completions. */
	if (now - watch->asked_ns < 500 * NS_PER_MS)
		return;
	watch->asked_ns = now;
	if (card_ioctl(group->card, OPTINC_IOCTL_QUERY, &query) == -ENODEV)
		queue_fail(group, -ENODEV, CARD_GONE);
}
