// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Was the card used, and if not, why? A framework that falls back to another
 * transport asks this, so that nobody wonders for a week.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

static _Thread_local struct {
	bool opened;
	enum optinc_reason reason;
	char text[256];
} last_open;

void why_open(enum optinc_reason reason, const char *text)
{
	last_open.opened = true;
	last_open.reason = reason;
	snprintf(last_open.text, sizeof(last_open.text), "%s", text);
}

/* The text goes first: a reader that finds the reason holds the lock as well. */
void why_card(struct optinc_card *card, enum optinc_reason reason, const char *text)
{
	pthread_mutex_lock(&card->lock);
	snprintf(card->reason_text, sizeof(card->reason_text), "%s", text);
	__atomic_store_n(&card->reason, (int)reason, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&card->lock);
}

static void why_not_opened(struct optinc_why *why)
{
	if (!last_open.opened) {
		why->reason = OPTINC_REASON_NO_CARD;
		snprintf(why->text, sizeof(why->text),
			 "this thread has not called optinc_open()");
		return;
	}
	why->reason = last_open.reason;
	snprintf(why->text, sizeof(why->text), "%s", last_open.text);
}

OPTINC_EXPORT int optinc_why(struct optinc_card *card, struct optinc_why *why)
{
	if (!why)
		return fail(-EINVAL, "why: NULL");
	memset(why, 0, sizeof(*why));
	why->reason = OPTINC_REASON_IDLE;
	if (!card) {
		why_not_opened(why);
		return 0;
	}

	pthread_mutex_lock(&card->lock);
	why->reason = (enum optinc_reason)__atomic_load_n(&card->reason, __ATOMIC_RELAXED);
	why->used = why->reason == OPTINC_REASON_USED;
	if (why->used)
		snprintf(why->text, sizeof(why->text), "requests run on %s", card->uri);
	else if (why->reason == OPTINC_REASON_IDLE)
		snprintf(why->text, sizeof(why->text), "%s is open; no request has been made",
			 card->uri);
	else
		snprintf(why->text, sizeof(why->text), "%s", card->reason_text);
	pthread_mutex_unlock(&card->lock);
	return 0;
}
