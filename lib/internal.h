/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the files of liboptinc share.
 *
 * A call of a collective goes this way: collective.c checks it and describes
 * it in a struct call, request.c takes a request and finds the memory (mr.c,
 * mr_cache.c, staging.c), queue.c writes the submission entry and rings. On the way back
 * queue.c reaps completions into requests, request.c ends them, error.c finds
 * the errno and the sentence.
 *
 * Locks, in the order in which they nest:
 *   group->lock	its queue pair, requests, staging; see queue.c
 *   card->lock		lists of groups and regions, text of optinc_why()
 *   card->cache.lock	regions that the library keeps; not with card->lock
 */
#ifndef OPTINC_INTERNAL_H
#define OPTINC_INTERNAL_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <optinc/optinc.h>

#include "export.h"
#include "provider.h"

#define INTERFACE_MAJOR		1	/* of the card interface that this library speaks */
#define DEFAULT_SPIN_US		50
#define MAX_SPIN_US		1000000
#define DEFAULT_QUEUE		64
#define DEFAULT_DEADLINE_MS	10000
#define MAX_DEADLINE_MS		3600000

#define NS_PER_US		UINT64_C(1000)
#define NS_PER_MS		UINT64_C(1000000)
#define NS_PER_S		UINT64_C(1000000000)
#define FOREVER_NS		UINT64_MAX

#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))
#define likely(x)		__builtin_expect(!!(x), 1)
#define unlikely(x)		__builtin_expect(!!(x), 0)

/* ---------------------------------------------------------------- card.c */

struct mr_entry {
	uintptr_t addr;
	uintptr_t end;
	uintptr_t furthest;	/* largest end of this entry and all before it */
	struct optinc_mr *mr;
};

struct mr_table {
	struct mr_entry *entries;	/* sorted by address */
	size_t count;
	size_t room;
	struct optinc_mr *unused;	/* handles to use again */
	struct mr_chunk *chunks;	/* where all handles live until close */
};

/* See mr_cache.c. What is not atomic is under the lock. */
struct mr_cache {
	const struct optinc_context_page *page;	/* NULL: the card has no such regions */
	struct mr_cache *next;		/* of the process's */
	pthread_mutex_t lock;
	struct mr_table table;
	long limit;			/* atomic: of bytes; 0 is off */
	size_t bytes;			/* registered, or about to be */
	unsigned int regions;		/* the same */
	unsigned int most;		/* of them */
	unsigned int backoff;
	uint64_t swept;			/* atomic: generation up to which none is stale */
	uint64_t clock;			/* atomic: counts misses */
	uint64_t hits;			/* atomic */
	uint64_t misses, flushes, evictions;
};

struct optinc_card {
	const struct optinc_provider *provider;
	void *dev;
	void *doorbell;
	struct optinc_query query;
	long spin_us;			/* atomic */
	int reason;			/* atomic, enum optinc_reason */
	pthread_mutex_t lock;
	char reason_text[256];
	struct optinc_group *groups;
	struct mr_table mrs;
	struct mr_cache cache;
	char uri[128];
};

static inline int card_ioctl(struct optinc_card *card, unsigned long cmd, void *arg)
{
	return card->provider->ioctl(card->dev, cmd, arg);
}

static inline void card_doorbell(struct optinc_card *card, uint32_t offset, uint32_t value)
{
	card->provider->doorbell(card->dev, card->doorbell, offset, value);
}

/* ------------------------------------------------------------ provider.c */

extern const struct optinc_provider optinc_provider_card;
extern const struct optinc_provider optinc_provider_pci;

/* Find the provider of @uri; *@rest is then what follows the colon. */
int provider_find(const char *uri, const struct optinc_provider **provider, const char **rest,
		  struct optinc_open_error *error);
/* Before all others; for tests. NULL takes it away. */
void provider_inject(const struct optinc_provider *provider);

/* Where the kernel's files are; tests point them elsewhere. */
extern const char *sysfs_class_path;	/* "/sys/class/optinc" */
extern const char *dev_path;		/* "/dev/optinc" */
/* The PCI address behind /sys/class/optinc/@name; false when it has none. */
bool sysfs_slot(const char *name, char *slot, size_t size);
/* N of "cardN"; -1 for any other name. */
int sysfs_card_number(const char *name);

/* ------------------------------------- mr.c, mr_table.c, mr_cache.c */

#define MR_DYING	(-1)
#define CACHE_MIN	32768	/* smaller operands are copied; see mr_cache.c */

struct optinc_mr {
	struct optinc_card *card;
	struct optinc_mr *next_unused;
	uintptr_t addr;
	size_t length;
	uint32_t handle;
	uint32_t flags;
	uint32_t slot;		/* with OPTINC_MR_CACHE */
	int uses;		/* atomic: requests outstanding, or MR_DYING */
	uint64_t used;		/* atomic: the cache's clock at the last use */
};

/* A group's memory of which region held its last operand. */
struct mr_hint {
	struct optinc_mr *mr;
	uintptr_t addr;
	size_t length;
};

static inline bool mr_holds(const struct optinc_mr *mr, uintptr_t addr, size_t length, bool write)
{
	return addr >= mr->addr && length <= mr->length && addr - mr->addr <= mr->length - length &&
	       (!write || (mr->flags & OPTINC_MR_WRITE));
}

/* Has the memory changed hands? By one who counted a use, or holds the cache's lock. */
static inline bool mr_is_stale(const struct optinc_mr *mr)
{
	const uint8_t *marks;

	if (likely(!(mr->flags & OPTINC_MR_CACHE)))
		return false;
	marks = mr->card->cache.page->mr_stale;
	return __atomic_load_n(&marks[mr->slot / 8], __ATOMIC_ACQUIRE) >> mr->slot % 8 & 1;
}

/* The region that holds all of the operand, with a use counted; or NULL. */
struct optinc_mr *mr_get(struct optinc_card *card, struct mr_hint *hint, const void *addr,
			 size_t length, bool write);
/* MR_REG of what @reg says; fills in the rest. Says nothing. */
int mr_reg(struct optinc_card *card, struct optinc_mr_reg *reg);
/* Register for one request, behind the table's back. */
int mr_register_raw(struct optinc_card *card, const void *addr, size_t length,
		    unsigned int flags, uint32_t *handle);
int mr_deregister_raw(struct optinc_card *card, uint32_t handle);

/* Count a use; false if there is no region any more. */
bool mr_try_get(struct optinc_mr *mr);
void mr_put(struct optinc_mr *mr);
/* Make it MR_DYING, if nobody uses it; else false and *@uses. */
bool mr_try_end(struct optinc_mr *mr, int *uses);
/* With a use counted; or NULL. */
struct optinc_mr *mr_table_find(const struct mr_table *t, uintptr_t addr, size_t length,
				bool write);
/* NULL: no memory. */
struct optinc_mr *mr_table_add(struct mr_table *t, struct optinc_card *card,
			       const struct optinc_mr_reg *reg, int uses);
void mr_table_remove(struct mr_table *t, const struct optinc_mr *mr);
/* The handle of a region that was removed. */
void mr_table_recycle(struct mr_table *t, struct optinc_mr *mr);
void mr_table_free(struct mr_table *t, struct optinc_card *card);

void mr_cache_init(struct optinc_card *card);
void mr_cache_free(struct optinc_card *card);
/* As mr_get(), for what nobody registered. NULL: do without. */
struct optinc_mr *mr_cache_get(struct optinc_card *card, uintptr_t addr, size_t length,
			       bool write);
void mr_cache_count_hit(struct optinc_mr *mr);
/* Give regions back: for @bytes where @error is -ENOMEM, or one. False: there is none. */
bool mr_cache_shrink(struct optinc_card *card, int error, size_t bytes);
/* Give back what is stale. */
void mr_cache_sweep(struct optinc_card *card);
static inline void mr_cache_poll(struct optinc_card *card)
{
	const struct mr_cache *cache = &card->cache;

	if (cache->page && unlikely(__atomic_load_n(&cache->page->mr_generation, __ATOMIC_ACQUIRE) !=
				    __atomic_load_n(&cache->swept, __ATOMIC_RELAXED)))
		mr_cache_sweep(card);
}

int mr_cache_set_limit(struct optinc_card *card, long limit);
void mr_cache_stats(struct optinc_card *card, struct optinc_card_stats *stats);

/* ------------------------------------------------------------- staging.c */

#define STAGE_MAX	65536	/* larger operands are registered, not copied */

struct staging {
	uint8_t *base;
	uint32_t handle;
	unsigned int next;	/* where to look first */
	uint8_t *used;		/* one byte per unit */
	bool broken;		/* could not be set up: do not try each time */
};

/* @length bytes of staging, or NULL when there is none left. */
void *staging_get(struct optinc_card *card, struct staging *s, size_t length);
void staging_put(struct staging *s, void *addr, size_t length);
void staging_free(struct optinc_card *card, struct staging *s);

/* ------------------------------------------------------------- request.c */

enum request_state {
	REQUEST_FREE,
	REQUEST_INFLIGHT,
	REQUEST_DONE,
};

/* Memory of a call, and how the card reaches it. */
struct operand {
	void *addr;		/* the caller's */
	size_t length;
	struct optinc_mr *mr;	/* a registered region, or */
	void *stage;		/* a copy in staging, or */
	uint32_t temporary;	/* a region registered for this request */
	uint32_t handle;	/* of whichever it is */
	uint64_t offset;
};

/* A collective call, checked. */
struct call {
	uint8_t opcode;
	uint8_t flags;
	uint8_t dtype;
	uint8_t redop;
	uint8_t root;
	uint32_t tag;
	uint64_t count;
	const void *src;
	size_t src_length;	/* 0: nothing is read */
	void *dst;
	size_t dst_length;	/* 0: nothing is written */
	const void *exp;
	size_t exp_length;
};

struct optinc_request {
	struct optinc_group *group;
	struct optinc_request *next_free;
	enum request_state state;
	bool blocking;		/* made by a blocking call, which will end it */
	uint16_t cmd_id;	/* index in the pool, and above it a generation */
	uint16_t index;
	uint32_t tag;
	uint64_t bytes;
	struct operand src, dst, exp;
	struct optinc_result result;
};

int request_pool_init(struct optinc_group *group);
void request_pool_free(struct optinc_group *group);
/* All that follow want the group locked: */
void request_end(struct optinc_request *request);
/* The request is done: hand out its result and end it. Returns its error. */
int request_finish(struct optinc_request *request, struct optinc_result *result);
/* A collective: submit; or submit, wait, end. They lock. */
int request_start(struct optinc_group *group, const struct call *call,
		  struct optinc_request **request);
int request_run(struct optinc_group *group, const struct call *call,
		struct optinc_result *result);

/* --------------------------------------------------------------- queue.c */

struct queue {
	uint32_t id;
	bool live;		/* the card knows it */
	uint32_t sq_entries;
	uint32_t cq_entries;
	struct optinc_sqe *sq;
	struct optinc_cqe *cq;
	uint32_t sq_tail;	/* these run freely; the card sees them modulo 65536 */
	uint32_t sq_rung;	/* the tail that the card has been told */
	uint32_t sq_head;	/* as far as the card has told */
	uint32_t cq_head;
	int eventfd;
};

struct optinc_group {
	struct optinc_card *card;
	struct optinc_group *next;	/* of the card's */

	pthread_mutex_t lock;
	pthread_cond_t cond;		/* something completed, or the reaper left */
	int contenders;			/* atomic: threads blocked on the lock */
	int sleepers;			/* threads waiting on cond */
	bool reaper;			/* a thread looks after the queue, unlocked */
	uint64_t completions;		/* atomic: requests completed, ever */

	struct queue queue;
	unsigned int batches;		/* begun and not ended */
	unsigned int inflight;
	uint64_t inflight_bytes;
	unsigned int started;		/* non-blocking requests not ended */
	unsigned int finished;		/* of these, completed */
	struct optinc_request *pool;
	struct optinc_request *free;
	unsigned int pool_size;		/* power of two */
	struct mr_hint hint_src, hint_dst;
	struct staging staging;

	uint32_t handle;		/* 0 when not joined */
	bool joining;
	bool cancelled;			/* this rank's optinc_cancel() ended the epoch */
	bool fd_used;			/* optinc_group_fd() was called */
	bool fd_signalled;
	int error;			/* what ended the epoch */
	char ended[256];		/* the sentence for that; "" if there is none */
	char failure[192];		/* why, where the library itself ended it */
	uint64_t epoch;
	struct optinc_group_params params;
};

void group_lock(struct optinc_group *group);
static inline void group_unlock(struct optinc_group *group)
{
	pthread_mutex_unlock(&group->lock);
}

int queue_create(struct optinc_group *group, unsigned int entries);
/* Tell the card to forget the queue pair; the rings stay mapped. */
void queue_disable(struct optinc_group *group);
void queue_destroy(struct optinc_group *group);

/* All that follow want the group locked. */
bool queue_has_room(struct optinc_group *group);
void queue_submit(struct optinc_group *group, struct optinc_request *request,
		  const struct call *call);
/* Announce what has been submitted, if it has not been. */
void queue_ring(struct optinc_group *group);
/* Announce, and take completions; true if there were any. */
bool queue_reap(struct optinc_group *group);
/* The same, and give an emulated card the time to complete something. */
void queue_look(struct optinc_group *group);
/* Until something completes, or about @timeout_ns has passed; may drop the lock. */
void queue_await(struct optinc_group *group, uint64_t timeout_ns);
/* Until somebody calls queue_wake(), or for a tenth of a second. */
void queue_sleep_behind(struct optinc_group *group, uint64_t timeout_ns);
void queue_wake(struct optinc_group *group);
/* Ask for a signal of the eventfd once there is a completion not reaped yet. */
void queue_arm(struct optinc_group *group);
/* Wait until no thread is left in the queue unlocked. */
void queue_quiesce(struct optinc_group *group);
/* The card leaves the group; what was outstanding is then to be reaped. */
void queue_leave(struct optinc_group *group);
/* Complete all that is outstanding with @error; the group needs a rejoin. */
void queue_fail(struct optinc_group *group, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Make the descriptor of optinc_group_fd() say what there is to say. */
void queue_update_fd(struct optinc_group *group);
/* Look for a dead card while waiting: @watch starts as zeros. */
struct watch {
	uint64_t completions;
	uint64_t since_ns;
	uint64_t asked_ns;
};
void queue_watch(struct optinc_group *group, struct watch *watch);

/* --------------------------------------------------------------- group.c */

/* Leave, give up what is outstanding, free. Not on the card's list any more. */
void group_free(struct optinc_group *group);

/* ------------------------------------------------------- error.c, names.c */

#define CARD_GONE	"the card was reset or is gone; close it and open it again"

/* Note the sentence for optinc_last_error() and return @error. */
int fail(int error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int vfail(int error, const char *fmt, va_list args);
/* Why a card was not opened. Returns @err. */
int refuse_open(struct optinc_open_error *error, enum optinc_reason reason, int err,
		const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Errno of a card status; 0 for success, -EIO for one that does not exist. */
int status_errno(uint32_t status);
bool status_known(uint32_t status);
/* Does this status end the group's epoch? */
bool status_ends_epoch(uint32_t status);
/* The sentence for a failed request or join. */
void explain_request(const struct optinc_group *group, const struct optinc_result *result,
		     char *text, size_t size);
void explain_join(const struct optinc_group_params *params,
		  const struct optinc_group_wait *wait, char *text, size_t size);
/* "count and tag" of OPTINC_DIFF_* of a request, or of a join. */
void mismatch_names(uint32_t mismatch, bool join, char *text, size_t size);
/* "rank 3", "ranks 1 and 3", "ranks 1, 2 and 3" of a bitmap. */
void rank_list(uint32_t ranks, char *text, size_t size);

/* ----------------------------------------------------------------- why.c */

/* A card handle's state, and that of this thread's last optinc_open(). */
void why_card(struct optinc_card *card, enum optinc_reason reason, const char *text);
void why_open(enum optinc_reason reason, const char *text);
static inline void why_used(struct optinc_card *card)
{
	if (unlikely(__atomic_load_n(&card->reason, __ATOMIC_RELAXED) != OPTINC_REASON_USED))
		why_card(card, OPTINC_REASON_USED, "");
}

/* ----------------------------------------------------------------- small */

uint64_t now_ns(void);
/* A number from the environment; @fallback if it is not there or not within. */
long env_long(const char *name, long min, long max, long fallback);
/*
 * A struct for a caller that was compiled against another version of it:
 * what he does not know is cut off, what we do not know is zero.
 */
void copy_sized(void *to, size_t size, const void *from, size_t from_size);

#endif /* OPTINC_INTERNAL_H */
