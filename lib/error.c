// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * From a status of the card to an errno and a sentence.
 *
 * Most of what goes wrong in a collective goes wrong on another machine, so
 * the sentence names the rank and what to do about it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

#define REJOIN	"all ranks call optinc_group_rejoin()"

static _Thread_local char last_error[512];

OPTINC_EXPORT const char *optinc_last_error(void)
{
	return last_error;
}

int vfail(int error, const char *fmt, va_list args)
{
	vsnprintf(last_error, sizeof(last_error), fmt, args);
	return error;
}

int fail(int error, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfail(error, fmt, args);
	va_end(args);
	return error;
}

int refuse_open(struct optinc_open_error *error, enum optinc_reason reason, int err,
		const char *fmt, ...)
{
	va_list args;

	error->reason = reason;
	va_start(args, fmt);
	vsnprintf(error->text, sizeof(error->text), fmt, args);
	va_end(args);
	return err;
}

static const struct {
	uint32_t status;
	int error;
} errnos[] = {
	{ OPTINC_ST_SUCCESS,		0 },
	{ OPTINC_ST_INVALID_OPCODE,	-EINVAL },
	{ OPTINC_ST_INVALID_FIELD,	-EINVAL },
	{ OPTINC_ST_INVALID_GROUP,	-ENOENT },
	{ OPTINC_ST_INVALID_MR,		-ERANGE },
	{ OPTINC_ST_MR_BOUNDS,		-ERANGE },
	{ OPTINC_ST_MR_ACCESS,		-EACCES },
	{ OPTINC_ST_UNSUPPORTED,	-EOPNOTSUPP },
	{ OPTINC_ST_PEER_LOST,		-ECONNRESET },
	{ OPTINC_ST_TIMEOUT,		-ETIMEDOUT },
	{ OPTINC_ST_MISMATCH,		-EPROTO },
	{ OPTINC_ST_EXPONENT_MISMATCH,	-EBADMSG },
	{ OPTINC_ST_ABORTED,		-ECONNABORTED },
	{ OPTINC_ST_LINK,		-ENOLINK },
	{ OPTINC_ST_EPOCH_ENDED,	-ESTALE },
	{ OPTINC_ST_RESET,		-ENODEV },
	{ OPTINC_ST_DMA,		-EFAULT },
	{ OPTINC_ST_INTERNAL,		-EIO },
};

int status_errno(uint32_t status)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(errnos); i++) {
		if (errnos[i].status == status)
			return errnos[i].error;
	}
	return -EIO;
}

bool status_known(uint32_t status)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(errnos); i++) {
		if (errnos[i].status == status)
			return true;
	}
	return false;
}

bool status_ends_epoch(uint32_t status)
{
	return status >= OPTINC_ST_PEER_LOST;
}

/* "a", "a and b", "a, b and c" of the names whose bits are set. */
static void join_names(uint32_t bits, const char *const *names, char *text, size_t size)
{
	size_t used = 0;
	unsigned int i;

	text[0] = '\0';
	for (i = 0; i < 32 && used < size; i++) {
		uint32_t later = i < 31 ? bits >> (i + 1) : 0;
		int n;

		if (!(bits >> i & 1))
			continue;
		n = snprintf(text + used, size - used, "%s%s", names[i],
			     !later ? "" : later & (later - 1) ? ", " : " and ");
		if (n < 0)
			return;
		used += (size_t)n;
	}
}

void mismatch_names(uint32_t mismatch, bool join, char *text, size_t size)
{
	static const char *const of_request[] = {
		"operation", "count", "dtype", "reduction", "tag", "root", "flags",
	};
	static const char *const of_join[] = {
		"number of ranks", "bits", "dtypes", "number format version", "deadline", "rank",
	};
	size_t known = join ? ARRAY_SIZE(of_join) : ARRAY_SIZE(of_request);

	mismatch &= (1U << known) - 1;
	if (!mismatch)
		snprintf(text, size, "something that the card does not name");
	else
		join_names(mismatch, join ? of_join : of_request, text, size);
}

void rank_list(uint32_t ranks, char *text, size_t size)
{
	static const char *const numbers[] = {
		"0", "1", "2", "3", "4", "5", "6", "7",
		"8", "9", "10", "11", "12", "13", "14", "15",
	};
	int n;

	ranks &= (1U << OPTINC_MAX_RANKS) - 1;
	n = snprintf(text, size, ranks & (ranks - 1) ? "ranks " : "rank ");
	if (n > 0 && (size_t)n < size)
		join_names(ranks, numbers, text + n, size - (size_t)n);
}

/* "rank 2", "this rank (2)", or "a rank" when the card names none. */
static const char *peer_name(unsigned int self, int peer, char *text, size_t size)
{
	if (peer < 0)
		snprintf(text, size, "a rank");
	else if ((unsigned int)peer == self)
		snprintf(text, size, "this rank (%d)", peer);
	else
		snprintf(text, size, "rank %d", peer);
	return text;
}

static void explain_peer(const struct optinc_group *group, const struct optinc_result *result,
			 char *text, size_t size)
{
	char peer[32], what[96];

	peer_name(group->params.rank, result->peer, peer, sizeof(peer));
	switch (result->status) {
	case OPTINC_ST_PEER_LOST:
		snprintf(text, size, "%s was lost: its process died or its card is gone; "
			 "after it is back, " REJOIN, peer);
		break;
	case OPTINC_ST_TIMEOUT:
		snprintf(text, size, "%s did not come within %u ms: it is late, stuck, or made "
			 "fewer calls than the others; then " REJOIN, peer,
			 group->params.deadline_ms);
		break;
	case OPTINC_ST_MISMATCH:
		mismatch_names(result->mismatch, false, what, sizeof(what));
		snprintf(text, size, "%s differs in %s: all ranks must make the same calls in the "
			 "same order; then " REJOIN, peer, what);
		break;
	case OPTINC_ST_EXPONENT_MISMATCH:
		snprintf(text, size, "%s has other exponents: agree on them with "
			 "optinc_exponent_max() before sending codes; then " REJOIN, peer);
		break;
	case OPTINC_ST_ABORTED:
		if (result->error == -ECANCELED)
			snprintf(text, size, "this rank cancelled a request of the group; " REJOIN);
		else
			snprintf(text, size, "%s gave the group up; " REJOIN, peer);
		break;
	case OPTINC_ST_LINK:
		snprintf(text, size, "the lanes of %s failed: look at its transceiver and fibre; "
			 "then " REJOIN, peer);
		break;
	}
}

void explain_request(const struct optinc_group *group, const struct optinc_result *result,
		     char *text, size_t size)
{
	switch (result->status) {
	case OPTINC_ST_SUCCESS:
		snprintf(text, size, "success");
		break;
	case OPTINC_ST_EPOCH_ENDED:
		snprintf(text, size, "an earlier request of the group %s; " REJOIN,
			 result->error == -ECANCELED ? "was cancelled" : "failed");
		break;
	case OPTINC_ST_RESET:
		snprintf(text, size, "%s", group->failure[0] ? group->failure : CARD_GONE);
		break;
	case OPTINC_ST_DMA:
		snprintf(text, size, "the card could not reach the memory of a request: it must "
			 "stay mapped until the request is done; then " REJOIN);
		break;
	case OPTINC_ST_INTERNAL:
		snprintf(text, size, "%s", group->failure[0] ? group->failure :
			 "the card reports an internal error; see its log, then " REJOIN);
		break;
	case OPTINC_ST_PEER_LOST:
	case OPTINC_ST_TIMEOUT:
	case OPTINC_ST_MISMATCH:
	case OPTINC_ST_EXPONENT_MISMATCH:
	case OPTINC_ST_ABORTED:
	case OPTINC_ST_LINK:
		explain_peer(group, result, text, size);
		break;
	default:
		snprintf(text, size, "the card refused the request (%s); the group goes on",
			 optinc_status_name(result->status));
		break;
	}
}

void explain_join(const struct optinc_group_params *params,
		  const struct optinc_group_wait *wait, char *text, size_t size)
{
	uint32_t all = (1U << params->nranks) - 1;
	uint32_t missing = all & ~wait->joined;
	int rank = wait->peer < params->nranks ? wait->peer : -1;
	char peer[96], what[128];

	peer_name(params->rank, rank, peer, sizeof(peer));
	switch (wait->status) {
	case OPTINC_ST_TIMEOUT:
		if (missing)
			rank_list(missing, peer, sizeof(peer));
		snprintf(text, size, "%s %s not joined within %u ms", peer,
			 missing & (missing - 1) ? "have" : "has", params->deadline_ms);
		break;
	case OPTINC_ST_MISMATCH:
		if (wait->mismatch & OPTINC_JOIN_RANK) {
			if (rank < 0)
				snprintf(text, size, "two processes claim one rank");
			else
				snprintf(text, size, "two processes claim rank %d", rank);
			break;
		}
		mismatch_names(wait->mismatch, true, what, sizeof(what));
		snprintf(text, size, "%s differs in %s: all ranks must join with the same "
			 "parameters", peer, what);
		break;
	case OPTINC_ST_PEER_LOST:
		snprintf(text, size, "%s was lost while the group was joining: its process died "
			 "or its card is gone", peer);
		break;
	case OPTINC_ST_ABORTED:
		snprintf(text, size, "%s gave up while the group was joining", peer);
		break;
	case OPTINC_ST_LINK:
		snprintf(text, size, "the lanes of %s could not be trained: look at its "
			 "transceiver and fibre", peer);
		break;
	case OPTINC_ST_RESET:
		snprintf(text, size, CARD_GONE);
		break;
	default:
		snprintf(text, size, "the card could not form the group (%s)",
			 optinc_status_name(wait->status));
		break;
	}
}
