// SPDX-License-Identifier: LGPL-2.1-or-later
/* Groups: keys, join, rejoin, abort, leave. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* The card's own deadline ends a join; this much later the library does. */
#define JOIN_GRACE_MS	1000
#define JOIN_SLICE_MS	1000

/* ------------------------------------------------------------------ keys */

OPTINC_EXPORT int optinc_key_generate(uint8_t key[OPTINC_KEY_BYTES])
{
	ssize_t n;

	if (!key)
		return fail(-EINVAL, "key: NULL");
	do
		n = getrandom(key, OPTINC_KEY_BYTES, 0);
	while (n < 0 && errno == EINTR);
	if (n != OPTINC_KEY_BYTES)
		return fail(n < 0 ? -errno : -EIO, "no random bytes: %s", strerror(errno));
	return 0;
}

OPTINC_EXPORT void optinc_key_format(const uint8_t key[OPTINC_KEY_BYTES], char text[33])
{
	static const char digits[] = "0123456789abcdef";
	unsigned int i;

	for (i = 0; i < OPTINC_KEY_BYTES; i++) {
		text[2 * i] = digits[key[i] >> 4];
		text[2 * i + 1] = digits[key[i] & 15];
	}
	text[2 * OPTINC_KEY_BYTES] = '\0';
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

OPTINC_EXPORT int optinc_key_parse(const char *text, uint8_t key[OPTINC_KEY_BYTES])
{
	uint8_t parsed[OPTINC_KEY_BYTES];
	unsigned int i;

	if (!text || !key || strlen(text) != 2 * OPTINC_KEY_BYTES)
		return fail(-EINVAL, "a key is %d hexadecimal digits", 2 * OPTINC_KEY_BYTES);
	for (i = 0; i < OPTINC_KEY_BYTES; i++) {
		int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return fail(-EINVAL, "a key is %d hexadecimal digits",
				    2 * OPTINC_KEY_BYTES);
		parsed[i] = (uint8_t)(high << 4 | low);
	}
	memcpy(key, parsed, sizeof(parsed));
	return 0;
}

/* ------------------------------------------------------------ parameters */

static bool all_zero(const void *bytes, size_t n)
{
	const uint8_t *b = bytes;

	while (n--) {
		if (*b++)
			return false;
	}
	return true;
}

static unsigned int round_up(unsigned int x)
{
	unsigned int power = 2;

	while (power < x)
		power *= 2;
	return power;
}

/* All that makes sense at this width, raw codes of the other width apart. */
static uint64_t default_dtypes(unsigned int bits)
{
	return 1 << OPTINC_F32 | 1 << OPTINC_F16 | 1 << OPTINC_BF16 | 1 << OPTINC_BIT |
	       1 << OPTINC_U8 | 1 << (bits == 8 ? OPTINC_I8 : OPTINC_I16);
}

static int check_members(const struct optinc_card *card, const struct optinc_group_params *p)
{
	if (all_zero(p->key, sizeof(p->key)))
		return fail(-EINVAL, "key: all zero; make one with optinc_key_generate() and give "
			    "it to every rank");
	if (p->nranks < 2 || p->nranks > OPTINC_MAX_RANKS)
		return fail(-EINVAL, "nranks: %u is not within 2..%d", p->nranks,
			    OPTINC_MAX_RANKS);
	if (p->nranks > card->query.ports)
		return fail(-EINVAL, "nranks: %u ranks do not fit, the fabric has %u ports",
			    p->nranks, card->query.ports);
	if (p->rank >= p->nranks)
		return fail(-EINVAL, "rank: %u is not within 0..%u", p->rank, p->nranks - 1);
	return 0;
}

static int check_dtypes(const struct optinc_card *card, const struct optinc_group_params *p)
{
	unsigned int dtype;

	for (dtype = 0; dtype < 64; dtype++) {
		if (!(p->dtypes >> dtype & 1))
			continue;
		if (dtype >= OPTINC_DTYPES)
			return fail(-EINVAL, "dtypes: bit %u is no dtype", dtype);
		if (!(default_dtypes(p->bits) >> dtype & 1))
			return fail(-EINVAL, "dtypes: %s does not fit a group of %u bits",
				    optinc_dtype_name(dtype), p->bits);
		if (!(card->query.dtypes >> dtype & 1))
			return fail(-EOPNOTSUPP, "dtypes: the card does not do %s",
				    optinc_dtype_name(dtype));
	}
	return 0;
}

static int check_params(const struct optinc_card *card, struct optinc_group_params *p)
{
	int ret = check_members(card, p);

	if (ret)
		return ret;
	p->bits = p->bits ? p->bits : 8;
	if (p->bits != 8 && p->bits != 16)
		return fail(-EINVAL, "bits: codes have 8 or 16 bits, not %u", p->bits);
	if (!(card->query.code_bits >> p->bits & 1))
		return fail(-EOPNOTSUPP, "bits: the card has no codes of %u bits", p->bits);
	p->deadline_ms = p->deadline_ms ? p->deadline_ms : DEFAULT_DEADLINE_MS;
	if (p->deadline_ms > MAX_DEADLINE_MS)
		return fail(-EINVAL, "deadline_ms: %u is more than an hour", p->deadline_ms);
	if (p->queue > OPTINC_MAX_QUEUE)
		return fail(-EINVAL, "queue: %u is more than %d", p->queue, OPTINC_MAX_QUEUE);
	if (p->queue > card->query.max_queue)
		return fail(-EINVAL, "queue: %u is more than the card's %u", p->queue,
			    card->query.max_queue);
	p->queue = round_up(p->queue ? p->queue : DEFAULT_QUEUE);
	while (p->queue > card->query.max_queue)
		p->queue /= 2;
	ret = check_dtypes(card, p);
	if (!ret && !p->dtypes)
		p->dtypes = default_dtypes(p->bits) & card->query.dtypes;
	return ret;
}

static int copy_params(struct optinc_group_params *to, const struct optinc_group_params *from,
		       size_t size)
{
	if (size < offsetof(struct optinc_group_params, bits))
		return fail(-EINVAL, "size: %zu bytes hold no rank and nranks", size);
	if (size > sizeof(*to) && !all_zero((const char *)from + sizeof(*to), size - sizeof(*to)))
		return fail(-E2BIG, "params: this library is too old for what they ask for");
	memset(to, 0, sizeof(*to));
	copy_sized(to, size < sizeof(*to) ? size : sizeof(*to), from, sizeof(*to));
	return 0;
}

/* ------------------------------------------------------------------ join */

static int offer(struct optinc_group *group)
{
	const struct optinc_group_params *p = &group->params;
	struct optinc_group_join join = {
		.size = sizeof(join),
		.rank = p->rank,
		.nranks = p->nranks,
		.bits = p->bits,
		.format = OPTINC_FORMAT_VERSION,
		.dtypes = p->dtypes,
		.deadline_ms = p->deadline_ms,
	};
	int ret;

	memcpy(join.key, p->key, sizeof(join.key));
	ret = card_ioctl(group->card, OPTINC_IOCTL_GROUP_JOIN, &join);
	switch (ret) {
	case 0:
		break;
	case -ENOSPC:
		return fail(ret, "the card holds no more than %u groups",
			    group->card->query.max_groups);
	case -EBUSY:
		return fail(ret, "the fabric cannot take another group now");
	case -EEXIST:
		return fail(ret, "key: this card is in a group with that key already");
	case -ENOMEM:
		return fail(ret, "no memory for another group on the card or its fabric; an "
			    "emulated fabric takes it from /dev/shm: free some there or enlarge it");
	case -ENODEV:
		return fail(ret, CARD_GONE);
	default:
		return fail(ret, "the card does not join the group: %s", strerror(-ret));
	}
	if (!join.group)
		return fail(-EIO, "the card gave the group no handle");
	group->handle = join.group;
	return 0;
}

/* What GROUP_WAIT says, as errno and sentence; -EINPROGRESS while joining. */
static int judge(const struct optinc_group *group, const struct optinc_group_wait *wait)
{
	char text[320];
	int ret;

	switch (wait->state) {
	case OPTINC_GROUP_READY:
		return 0;
	case OPTINC_GROUP_JOINING:
		return -EINPROGRESS;
	case OPTINC_GROUP_FAILED:
		ret = status_errno(wait->status);
		if (!ret || !status_known(wait->status))
			return fail(-EIO, "the card gives no reason for the failed join");
		explain_join(&group->params, wait, text, sizeof(text));
		return fail(ret, "%s", text);
	default:
		return fail(-EIO, "the card puts the group into a state that does not exist");
	}
}

/* Wait for the others. Not locked: the handle is all that is used. */
static int await_ranks(struct optinc_group *group, uint32_t handle)
{
	uint64_t until = now_ns() + (group->params.deadline_ms + JOIN_GRACE_MS) * NS_PER_MS;
	struct optinc_group_wait wait;
	char text[320];
	uint64_t now;
	int ret;

	do {
		wait = (struct optinc_group_wait) {
			.size = sizeof(wait),
			.group = handle,
			.timeout_ms = JOIN_SLICE_MS,
		};
		ret = card_ioctl(group->card, OPTINC_IOCTL_GROUP_WAIT, &wait);
		now = now_ns();
		if (ret == -ENODEV)
			return fail(ret, CARD_GONE);
		if (ret && ret != -EINTR)
			return fail(ret, "waiting for the other ranks failed: %s", strerror(-ret));
		if (ret)
			continue;
		ret = judge(group, &wait);
		if (ret != -EINPROGRESS)
			return ret;
	} while (now < until);

	wait.status = OPTINC_ST_TIMEOUT;
	explain_join(&group->params, &wait, text, sizeof(text));
	return fail(-ETIMEDOUT, "%s", text);
}

/* The card's side of leaving; afterwards nothing of the group is outstanding. */
static void retire(struct optinc_group *group)
{
	queue_leave(group);
	while (queue_reap(group))
		;
	if (group->inflight)
		queue_fail(group, -EIO, "the card left the group without completing its requests");
	queue_quiesce(group);
}

static struct optinc_group *group_new(struct optinc_card *card,
				      const struct optinc_group_params *params)
{
	struct optinc_group *group = calloc(1, sizeof(*group));
	pthread_condattr_t attr;

	if (!group)
		return NULL;
	group->card = card;
	group->params = *params;
	group->queue.eventfd = -1;
	group->epoch = 1;
	pthread_mutex_init(&group->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&group->cond, &attr);
	pthread_condattr_destroy(&attr);
	return group;
}

void group_free(struct optinc_group *group)
{
	unsigned int i;

	group_lock(group);
	group->fd_used = false;
	retire(group);
	for (i = 0; i < group->pool_size; i++) {
		if (group->pool[i].state == REQUEST_DONE)
			request_end(&group->pool[i]);
	}
	queue_destroy(group);
	group_unlock(group);

	staging_free(group->card, &group->staging);
	if (group->queue.eventfd >= 0)
		close(group->queue.eventfd);
	free(group->pool);
	pthread_cond_destroy(&group->cond);
	pthread_mutex_destroy(&group->lock);
	free(group);
}

static int join(struct optinc_group *group)
{
	int ret;

	ret = request_pool_init(group);
	if (!ret)
		ret = queue_create(group, group->params.queue);
	if (!ret)
		ret = offer(group);
	if (!ret)
		ret = await_ranks(group, group->handle);
	return ret;
}

static void list_add(struct optinc_group *group)
{
	struct optinc_card *card = group->card;

	pthread_mutex_lock(&card->lock);
	group->next = card->groups;
	card->groups = group;
	pthread_mutex_unlock(&card->lock);
}

static void list_remove(struct optinc_group *group)
{
	struct optinc_card *card = group->card;
	struct optinc_group **at;

	pthread_mutex_lock(&card->lock);
	for (at = &card->groups; *at; at = &(*at)->next) {
		if (*at == group) {
			*at = group->next;
			break;
		}
	}
	pthread_mutex_unlock(&card->lock);
}

OPTINC_EXPORT int optinc_group_join(struct optinc_card *card,
				    const struct optinc_group_params *params, size_t size,
				    struct optinc_group **out)
{
	struct optinc_group_params p;
	struct optinc_group *group;
	int ret;

	if (!card || !params || !out)
		return fail(-EINVAL, "%s: NULL", !card ? "card" : !params ? "params" : "group");
	*out = NULL;
	ret = copy_params(&p, params, size);
	if (!ret)
		ret = check_params(card, &p);
	if (ret) {
		why_card(card, OPTINC_REASON_GROUP_FAILED, optinc_last_error());
		return ret;
	}
	group = group_new(card, &p);
	if (!group)
		return fail(-ENOMEM, "out of memory");
	ret = join(group);
	if (ret) {
		why_card(card, OPTINC_REASON_GROUP_FAILED, optinc_last_error());
		group_free(group);
		return ret;
	}
	list_add(group);
	*out = group;
	return 0;
}

OPTINC_EXPORT void optinc_group_leave(struct optinc_group *group)
{
	if (!group)
		return;
	list_remove(group);
	group_free(group);
}

/* ---------------------------------------------------------------- rejoin */

/* The old epoch's end and the offer of a new one. Group locked. */
static int begin_rejoin(struct optinc_group *group)
{
	int ret = 0;

	retire(group);
	if (!group->queue.live) {
		queue_destroy(group);
		ret = queue_create(group, group->params.queue);
	}
	return ret ? ret : offer(group);
}

OPTINC_EXPORT int optinc_group_rejoin(struct optinc_group *group)
{
	uint32_t handle;
	int ret;

	if (!group)
		return fail(-EINVAL, "group: NULL");
	group_lock(group);
	if (group->joining) {
		group_unlock(group);
		return fail(-EBUSY, "another thread is joining the group already");
	}
	group->joining = true;
	ret = begin_rejoin(group);
	handle = group->handle;
	group_unlock(group);

	if (!ret)
		ret = await_ranks(group, handle);

	group_lock(group);
	group->joining = false;
	group->cancelled = false;
	if (!ret) {
		group->error = 0;
		group->failure[0] = '\0';
		group->ended[0] = '\0';
		group->epoch++;
	} else {
		group->error = ret;
		snprintf(group->ended, sizeof(group->ended), "%s", optinc_last_error());
		why_card(group->card, OPTINC_REASON_GROUP_FAILED, group->ended);
		retire(group);
	}
	group_unlock(group);
	return ret;
}

/* ----------------------------------------------------------------- rest */

OPTINC_EXPORT int optinc_group_abort(struct optinc_group *group)
{
	struct optinc_group_abort abort = { .size = sizeof(abort) };
	int ret = 0;

	if (!group)
		return fail(-EINVAL, "group: NULL");
	group_lock(group);
	queue_ring(group);
	abort.group = group->handle;
	if (group->handle && !(group->error && !group->joining))
		ret = card_ioctl(group->card, OPTINC_IOCTL_GROUP_ABORT, &abort);
	if (ret)
		queue_fail(group, ret == -ENODEV ? ret : -EIO,
			   "the card does not give the group up: %s", strerror(-ret));
	else if (!group->error)
		group->error = -ECONNABORTED;
	queue_reap(group);
	group_unlock(group);
	return ret ? fail(ret, "the card does not give the group up: %s", strerror(-ret)) : 0;
}

OPTINC_EXPORT int optinc_group_info(struct optinc_group *group, struct optinc_group_info *info,
				    size_t size)
{
	struct optinc_group_info all;

	if (!group || !info)
		return fail(-EINVAL, "%s: NULL", group ? "info" : "group");
	memset(&all, 0, sizeof(all));
	group_lock(group);
	all.rank = group->params.rank;
	all.nranks = group->params.nranks;
	all.bits = group->params.bits;
	all.deadline_ms = group->params.deadline_ms;
	all.dtypes = group->params.dtypes;
	all.epoch = group->epoch;
	all.error = group->error;
	group_unlock(group);
	copy_sized(info, size, &all, sizeof(all));
	return 0;
}

OPTINC_EXPORT int optinc_group_fd(struct optinc_group *group)
{
	if (!group)
		return fail(-EINVAL, "group: NULL");
	group_lock(group);
	group->fd_used = true;
	queue_update_fd(group);
	group_unlock(group);
	return group->queue.eventfd;
}
