// SPDX-License-Identifier: LGPL-2.1-or-later
/* Cards: open, close, identify, count, tune. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "internal.h"

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

void copy_sized(void *to, size_t size, const void *from, size_t from_size)
{
	size_t common = size < from_size ? size : from_size;

	memcpy(to, from, common);
	if (size > common)
		memset((char *)to + common, 0, size - common);
}

static bool power_of_two(uint32_t x)
{
	return x && !(x & (x - 1));
}

/* What the device says of itself is not believed beyond what we can work with. */
static int check_query(struct optinc_query *q, struct optinc_open_error *error)
{
	q->serial[sizeof(q->serial) - 1] = '\0';
	q->model[sizeof(q->model) - 1] = '\0';

	if (q->interface_version >> 16 != INTERFACE_MAJOR)
		return refuse_open(error, OPTINC_REASON_VERSION, -EPROTO,
			      "the card speaks interface version %u, this library version %u: "
			      "update the older of them", q->interface_version >> 16,
			      INTERFACE_MAJOR);
	if (q->format_version != OPTINC_FORMAT_VERSION)
		return refuse_open(error, OPTINC_REASON_VERSION, -EPROTO,
			      "the card has number format version %u, this library version %u: "
			      "update the older of them", q->format_version,
			      OPTINC_FORMAT_VERSION);
	if (!(q->features & OPTINC_FEAT_USER_QUEUES))
		return refuse_open(error, OPTINC_REASON_NO_ISOLATION, -EOPNOTSUPP,
			      "the card does not isolate its users, so the driver gives queues "
			      "only to processes with CAP_SYS_RAWIO");
	if (q->node != OPTINC_NODE_CARD)
		return refuse_open(error, OPTINC_REASON_NO_CARD, -ENOENT,
			      "this is not a card's data node");
	if (!power_of_two(q->page_size) || q->page_size < 4096 || q->page_size > 1U << 24 ||
	    q->max_queue < 2 || !q->ports || q->port >= q->ports)
		return refuse_open(error, OPTINC_REASON_CARD_FAILED, -EIO,
			      "the card identifies itself with impossible values");
	if (q->max_queue > OPTINC_MAX_QUEUE)
		q->max_queue = OPTINC_MAX_QUEUE;
	return 0;
}

long env_long(const char *name, long min, long max, long fallback)
{
	const char *text = secure_getenv(name);
	char *end;
	long value;

	if (!text || !*text)
		return fallback;
	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || *end || value < min || value > max)
		return fallback;
	return value;
}

static int identify(struct optinc_card *card, struct optinc_open_error *error)
{
	int ret;

	memset(&card->query, 0, sizeof(card->query));
	card->query.size = sizeof(card->query);
	ret = card_ioctl(card, OPTINC_IOCTL_QUERY, &card->query);
	if (ret < 0)
		return refuse_open(error, OPTINC_REASON_CARD_FAILED, ret,
			      "the card does not identify itself: %s", strerror(-ret));
	ret = check_query(&card->query, error);
	if (ret)
		return ret;

	card->doorbell = card->provider->mmap(card->dev, card->query.page_size,
					      PROT_READ | PROT_WRITE,
					      card->query.doorbell_offset);
	if (card->doorbell == MAP_FAILED) {
		ret = errno ? -errno : -EIO;
		return refuse_open(error, OPTINC_REASON_CARD_FAILED, ret,
			      "the doorbell page cannot be mapped: %s", strerror(-ret));
	}
	return 0;
}

static int open_card(struct optinc_card *card, const char *uri, struct optinc_open_error *error)
{
	const char *rest;
	int ret;

	ret = provider_find(uri, &card->provider, &rest, error);
	if (ret)
		return ret;
	ret = card->provider->open(rest, &card->dev, error);
	if (ret) {
		if (!error->text[0])
			snprintf(error->text, sizeof(error->text), "%s", strerror(-ret));
		return ret;
	}
	ret = identify(card, error);
	if (ret)
		card->provider->close(card->dev);
	return ret;
}

OPTINC_EXPORT int optinc_open(const char *uri, struct optinc_card **out)
{
	struct optinc_open_error error = { .reason = OPTINC_REASON_CARD_FAILED };
	struct optinc_card *card;
	int ret;

	if (!out)
		return fail(-EINVAL, "card: NULL");
	*out = NULL;
	if (!uri || strlen(uri) >= sizeof(card->uri)) {
		why_open(OPTINC_REASON_BAD_URI, "the URI is missing or too long");
		return fail(-EINVAL, "uri: %s", uri ? "longer than 127 characters" : "NULL");
	}
	card = calloc(1, sizeof(*card));
	if (!card) {
		why_open(OPTINC_REASON_CARD_FAILED, "out of memory");
		return fail(-ENOMEM, "out of memory");
	}

	ret = open_card(card, uri, &error);
	if (ret) {
		free(card);
		error.text[sizeof(error.text) - 1] = '\0';
		why_open((enum optinc_reason)error.reason, error.text);
		return fail(ret, "%s: %s", uri, error.text);
	}

	snprintf(card->uri, sizeof(card->uri), "%s", uri);
	pthread_mutex_init(&card->lock, NULL);
	card->spin_us = env_long("OPTINC_SPIN_US", 0, MAX_SPIN_US, DEFAULT_SPIN_US);
	mr_cache_init(card);
	card->reason = OPTINC_REASON_IDLE;
	why_open(OPTINC_REASON_IDLE, "the card is open");
	*out = card;
	return 0;
}

OPTINC_EXPORT void optinc_close(struct optinc_card *card)
{
	struct optinc_group *group;

	if (!card)
		return;
	while ((group = card->groups)) {
		card->groups = group->next;
		group_free(group);
	}
	mr_cache_free(card);
	mr_table_free(&card->mrs, card);
	card->provider->munmap(card->dev, card->doorbell, card->query.page_size);
	card->provider->close(card->dev);
	pthread_mutex_destroy(&card->lock);
	free(card);
}

OPTINC_EXPORT int optinc_card_info(struct optinc_card *card, struct optinc_card_info *info,
				   size_t size)
{
	const struct optinc_query *q;
	struct optinc_card_info all;

	if (!card || !info)
		return fail(-EINVAL, "%s: NULL", card ? "info" : "card");
	q = &card->query;
	memset(&all, 0, sizeof(all));
	all.features = q->features;
	all.dtypes = q->dtypes;
	all.redops = q->redops;
	all.max_count = q->max_count;
	all.code_bits = (uint32_t)q->code_bits;
	all.interface_version = q->interface_version;
	all.firmware_version = q->firmware_version;
	all.port = q->port;
	all.ports = q->ports;
	all.lanes = q->lanes;
	all.lanes_up = q->lanes_up;
	all.lane_mbps = q->lane_mbps;
	all.max_groups = q->max_groups;
	memcpy(all.serial, q->serial, sizeof(all.serial));
	memcpy(all.model, q->model, sizeof(all.model));
	memcpy(all.uri, card->uri, sizeof(all.uri));
	copy_sized(info, size, &all, sizeof(all));
	return 0;
}

OPTINC_EXPORT int optinc_card_stats(struct optinc_card *card, struct optinc_card_stats *stats,
				    size_t size)
{
	struct optinc_stats s = { .size = sizeof(s) };
	struct optinc_card_stats all;
	int ret;

	if (!card || !stats)
		return fail(-EINVAL, "%s: NULL", card ? "stats" : "card");
	ret = card_ioctl(card, OPTINC_IOCTL_STATS, &s);
	if (ret < 0)
		return fail(ret, "%s: no counters: %s", card->uri, strerror(-ret));

	memset(&all, 0, sizeof(all));
	all.tx_bytes = s.tx_bytes;
	all.rx_bytes = s.rx_bytes;
	all.requests = s.requests;
	all.errors = s.errors;
	all.replays = s.replays;
	all.nonfinite = s.nonfinite;
	all.saturated = s.saturated;
	all.doorbells = s.doorbells;
	all.doorbells_dropped = s.doorbells_dropped;
	all.wire_ns = s.wire_ns;
	all.device_ns = s.device_ns;
	mr_cache_stats(card, &all);
	copy_sized(stats, size, &all, sizeof(all));
	return 0;
}

static int set_spin(struct optinc_card *card, long value)
{
	if (value < 0 || value > MAX_SPIN_US)
		return fail(-EINVAL, "value: %ld us of looking at a queue is not within 0..%d",
			    value, MAX_SPIN_US);
	__atomic_store_n(&card->spin_us, value, __ATOMIC_RELAXED);
	return 0;
}

static int set_cache(struct optinc_card *card, long value)
{
	if (value < 0)
		return fail(-EINVAL, "value: %ld bytes are not a limit of registered memory", value);
	if (mr_cache_set_limit(card, value))
		return fail(-EOPNOTSUPP, "value: the driver does not tell when memory changes, so "
			    "none can stay registered");
	return 0;
}

OPTINC_EXPORT int optinc_card_set(struct optinc_card *card, enum optinc_option option,
				  long value)
{
	if (!card)
		return fail(-EINVAL, "card: NULL");
	switch (option) {
	case OPTINC_OPTION_SPIN_US:
		return set_spin(card, value);
	case OPTINC_OPTION_MR_CACHE:
		return set_cache(card, value);
	}
	return fail(-EINVAL, "option: there is no option %d", (int)option);
}

OPTINC_EXPORT int optinc_card_get(struct optinc_card *card, enum optinc_option option,
				  long *value)
{
	if (!card || !value)
		return fail(-EINVAL, "%s: NULL", card ? "value" : "card");
	switch (option) {
	case OPTINC_OPTION_SPIN_US:
		*value = __atomic_load_n(&card->spin_us, __ATOMIC_RELAXED);
		return 0;
	case OPTINC_OPTION_MR_CACHE:
		*value = __atomic_load_n(&card->cache.limit, __ATOMIC_RELAXED);
		return 0;
	}
	return fail(-EINVAL, "option: there is no option %d", (int)option);
}
