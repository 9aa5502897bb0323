/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * liboptinc: all-reduce through OptINC photonic in-network-computing cards.
 *
 * Functions that can fail return 0 or a negative errno; optinc_last_error()
 * has the sentence. Counts are elements, lengths bytes, times as named.
 *
 * Threads: every call may be made from any thread. Calls on one card, and on
 * different groups, run side by side; calls on one group are serialised by
 * the library, and requests reach the card in the order of the calls. A
 * handle must not be used after the call that ends it (close, leave,
 * deregister, a wait that returned the result). After fork() the child may
 * use none of its parent's handles; it opens its own.
 */
#ifndef OPTINC_OPTINC_H
#define OPTINC_OPTINC_H

#include <stddef.h>
#include <stdint.h>

#include <linux/optinc.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OPTINC_VERSION_MAJOR	0
#define OPTINC_VERSION_MINOR	1
#define OPTINC_VERSION_PATCH	0
#define OPTINC_VERSION \
	(OPTINC_VERSION_MAJOR << 16 | OPTINC_VERSION_MINOR << 8 | OPTINC_VERSION_PATCH)
/** Grows when a released symbol changes or goes; equals the soname. */
#define OPTINC_ABI_VERSION	0

/** optinc_version() - OPTINC_VERSION of the library that is loaded. */
unsigned int optinc_version(void);
/** optinc_version_string() - the same as "major.minor.patch". */
const char *optinc_version_string(void);

/**
 * optinc_last_error() - what went wrong in this thread's last failed call
 *
 * A sentence, without newline, that says what to do where that is known.
 * Never NULL; valid until the thread's next call. Empty before any failure.
 */
const char *optinc_last_error(void);

/* ------------------------------------------------------------------ cards */

struct optinc_card;
struct optinc_group;
struct optinc_mr;
struct optinc_request;

/**
 * optinc_open() - open a card
 * @uri: "card:N" (N of /dev/optinc/cardN), "pci:DDDD:BB:DD.F", or
 *	"emu:NAME?port=P&ports=N" for port P of the emulated fabric NAME with
 *	N ports; Documentation/emulator.rst lists further parameters
 * @card: the handle
 *
 * Emulation is used only when the URI asks for it.
 *
 * -EINVAL: the URI does not parse. -ENOENT: no such card. -EACCES: no
 * permission. -EBUSY: the emulated port is held by someone else. -ENOPKG: the
 * emulator is not installed. -EPROTO: the card speaks another version.
 */
int optinc_open(const char *uri, struct optinc_card **card);

/**
 * optinc_close() - close a card and all that hangs on it
 *
 * Groups still joined are left (their peers are told), regions deregistered,
 * outstanding requests given up; their handles are gone. NULL is allowed.
 */
void optinc_close(struct optinc_card *card);

/** struct optinc_card_info - what optinc_card_info() tells */
struct optinc_card_info {
	uint64_t features;	/**< OPTINC_FEAT_* */
	uint64_t dtypes;	/**< bitmap of enum optinc_dtype */
	uint64_t redops;	/**< bitmap of enum optinc_redop */
	uint64_t max_count;	/**< elements of one request */
	uint32_t code_bits;	/**< bitmap: bit 8, bit 16 */
	uint32_t interface_version; /**< major << 16 | minor */
	uint32_t firmware_version;
	uint16_t port;		/**< this card's port */
	uint16_t ports;		/**< ports of its fabric */
	uint16_t lanes;
	uint16_t lanes_up;	/**< lanes that carry light */
	uint32_t lane_mbps;	/**< rate of one lane, Mbit/s */
	uint32_t max_groups;
	char serial[32];
	char model[32];
	char uri[128];		/**< opens this card again */
};

/**
 * optinc_card_info() - identify a card
 * @card: the card
 * @info: filled
 * @size: sizeof(struct optinc_card_info) as the caller was compiled
 */
int optinc_card_info(struct optinc_card *card, struct optinc_card_info *info, size_t size);

/**
 * struct optinc_card_stats - counters
 *
 * Those of the port, since the card's reset; those that begin with mr_ are of
 * this handle's registration cache, see OPTINC_OPTION_MR_CACHE.
 */
struct optinc_card_stats {
	uint64_t tx_bytes;	/**< codes and exponents put on the lanes */
	uint64_t rx_bytes;	/**< codes and exponents that came back */
	uint64_t requests;	/**< completed, whatever the status */
	uint64_t errors;	/**< of these, failed */
	uint64_t replays;	/**< chunks sent again after lost symbols */
	uint64_t nonfinite;	/**< blocks with a NaN or an infinity */
	uint64_t saturated;	/**< raw codes clipped */
	uint64_t doorbells;	/**< doorbell writes that the card saw */
	uint64_t doorbells_dropped;
	uint64_t wire_ns;	/**< modelled time on the lanes */
	uint64_t device_ns;	/**< the card's clock now */
	uint64_t mr_hits;	/**< operands whose memory was still registered */
	uint64_t mr_misses;	/**< operands that wanted registration */
	uint64_t mr_flushes;	/**< regions given up as their memory had changed */
	uint64_t mr_evictions;	/**< regions given up for others */
	uint64_t mr_bytes;	/**< registered now */
};

/** optinc_card_stats() - read the counters; @size as in optinc_card_info() */
int optinc_card_stats(struct optinc_card *card, struct optinc_card_stats *stats, size_t size);

/** enum optinc_option - knobs of a card handle */
enum optinc_option {
	/**
	 * Microseconds that a wait looks at the completion queue before it
	 * sleeps: 0..1000000. Default 50, or $OPTINC_SPIN_US. A request on
	 * registered or small memory whose wait ends within them makes no
	 * system call and no interrupt.
	 */
	OPTINC_OPTION_SPIN_US = 1,
	/**
	 * Bytes of callers' buffers that the library keeps registered, that is
	 * pinned, after the request that used them; 0 turns it off. Default: a
	 * quarter of the machine's memory, and half of RLIMIT_MEMLOCK where that
	 * applies; or $OPTINC_MR_CACHE. Always 0 without OPTINC_FEAT_MR_CACHE,
	 * then -EOPNOTSUPP for anything else. A buffer that is freed or remapped
	 * is noticed, and no longer pinned from the handle's next request on.
	 */
	OPTINC_OPTION_MR_CACHE = 2,
};

/** optinc_card_set() - set a knob; -EINVAL for an unknown one or out of range */
int optinc_card_set(struct optinc_card *card, enum optinc_option option, long value);
/** optinc_card_get() - read a knob */
int optinc_card_get(struct optinc_card *card, enum optinc_option option, long *value);

struct optinc_list;
/**
 * optinc_enumerate() - the cards that the kernel driver knows (sysfs)
 * @list: free with optinc_list_free(); empty, not an error, when there are none
 */
int optinc_enumerate(struct optinc_list **list);
size_t optinc_list_count(const struct optinc_list *list);
/** optinc_list_uri() - URI of entry @i, NULL beyond the end */
const char *optinc_list_uri(const struct optinc_list *list, size_t i);
/** optinc_list_slot() - PCI address of entry @i, "" when not known */
const char *optinc_list_slot(const struct optinc_list *list, size_t i);
void optinc_list_free(struct optinc_list *list);

/** enum optinc_reason - why a card is used or not */
enum optinc_reason {
	OPTINC_REASON_USED = 0,		/**< requests have completed on the card */
	OPTINC_REASON_IDLE,		/**< open and healthy, nothing submitted yet */
	OPTINC_REASON_BAD_URI,
	OPTINC_REASON_NO_DRIVER,	/**< optinc.ko is not loaded */
	OPTINC_REASON_NO_CARD,		/**< no such card */
	OPTINC_REASON_NO_PERMISSION,
	OPTINC_REASON_BUSY,		/**< someone else holds the port */
	OPTINC_REASON_NO_EMULATOR,	/**< liboptinc-emu.so is not installed */
	OPTINC_REASON_VERSION,		/**< interface or format version differs */
	OPTINC_REASON_NO_ISOLATION,	/**< card cannot have user queues */
	OPTINC_REASON_GROUP_FAILED,	/**< a join failed */
	OPTINC_REASON_EPOCH_ENDED,	/**< a request failed and nobody rejoined */
	OPTINC_REASON_REFUSED,		/**< a request was not one the card can do */
	OPTINC_REASON_CARD_FAILED,	/**< reset, DMA or internal error */
};

struct optinc_why {
	int used;			/**< 1 when the last request ran on the card */
	enum optinc_reason reason;
	char text[256];			/**< a sentence, with what to do */
};

/**
 * optinc_why() - was the card used, and if not, why?
 * @card: a card, or NULL for this thread's last optinc_open()
 * @why: filled
 */
int optinc_why(struct optinc_card *card, struct optinc_why *why);
/** optinc_reason_name() - a reason as a short identifier, "no-driver" */
const char *optinc_reason_name(enum optinc_reason reason);

/* ----------------------------------------------------------------- memory */

/**
 * optinc_mr_register() - let the card reach [@addr, @addr + @length)
 * @card: the card
 * @addr: any alignment
 * @length: bytes, at least 1
 * @flags: OPTINC_MR_WRITE if results go there
 * @mr: the handle
 *
 * Optional: a collective on memory that lies in a registered region uses it;
 * on other memory the library copies messages of less than 32 KiB and keeps
 * larger ones registered (OPTINC_OPTION_MR_CACHE), or, where it cannot, copies
 * up to 64 KiB and registers the rest for the time of the call. The memory must stay mapped until
 * optinc_mr_deregister(). -EFAULT: not mapped. -ENOMEM: RLIMIT_MEMLOCK.
 */
int optinc_mr_register(struct optinc_card *card, void *addr, size_t length,
		       unsigned int flags, struct optinc_mr **mr);
/** optinc_mr_deregister() - the card does no more DMA there; -EBUSY while in use */
int optinc_mr_deregister(struct optinc_mr *mr);

/* ----------------------------------------------------------------- groups */

/** optinc_key_generate() - a fresh random group key, from the kernel's generator */
int optinc_key_generate(uint8_t key[OPTINC_KEY_BYTES]);
/** optinc_key_format() - @key as 32 hexadecimal digits and a NUL */
void optinc_key_format(const uint8_t key[OPTINC_KEY_BYTES], char text[33]);
/** optinc_key_parse() - 32 hexadecimal digits; -EINVAL for anything else */
int optinc_key_parse(const char *text, uint8_t key[OPTINC_KEY_BYTES]);

/** struct optinc_group_params - who reduces together; equal on all ranks but @rank */
struct optinc_group_params {
	uint8_t key[OPTINC_KEY_BYTES];	/**< the same random key on every rank */
	unsigned int rank;		/**< 0..nranks-1 */
	unsigned int nranks;		/**< 2..16 */
	unsigned int bits;		/**< code width: 8 (also for 0) or 16 */
	unsigned int deadline_ms;	/**< of join and requests; 0 is 10000 */
	uint64_t dtypes;		/**< bitmap; 0 is all that @bits allows */
	unsigned int queue;		/**< requests outstanding, 0 is 64; at most 4096 */
};

/**
 * optinc_group_join() - join, and wait until every rank has
 * @card: this rank's card
 * @params: the group
 * @size: sizeof(struct optinc_group_params)
 * @group: the handle
 *
 * -ETIMEDOUT: within the deadline not all came; the text names who did not.
 * -EPROTO: a rank differs in size, bits, dtypes, format, deadline, or two
 * claim one rank; the text names rank and difference. -ECONNRESET: a rank died.
 */
int optinc_group_join(struct optinc_card *card, const struct optinc_group_params *params,
		      size_t size, struct optinc_group **group);
/**
 * optinc_group_rejoin() - a new epoch after an error, same key, all ranks
 *
 * Outstanding requests are completed first and can still be waited for.
 * Errors as optinc_group_join(); after one, rejoin may be tried again.
 */
int optinc_group_rejoin(struct optinc_group *group);
/** optinc_group_abort() - end the epoch: all ranks' requests fail with -ECONNABORTED */
int optinc_group_abort(struct optinc_group *group);
/** optinc_group_leave() - leave; outstanding requests fail, on all ranks; NULL is allowed */
void optinc_group_leave(struct optinc_group *group);

/** struct optinc_group_info - what optinc_group_info() tells */
struct optinc_group_info {
	unsigned int rank;
	unsigned int nranks;
	unsigned int bits;
	unsigned int deadline_ms;
	uint64_t dtypes;	/**< as joined, defaults filled in */
	uint64_t epoch;		/**< 1 after the first join */
	int error;		/**< 0, or the negative errno that ended the epoch */
};

/** optinc_group_info() - @size as in optinc_card_info() */
int optinc_group_info(struct optinc_group *group, struct optinc_group_info *info, size_t size);

/* ------------------------------------------------------------ collectives */

/** struct optinc_options - per request; NULL stands for all zero */
struct optinc_options {
	uint32_t flags;		/**< OPTINC_SQE_*; equal on all ranks */
	uint32_t tag;		/**< compared across ranks */
	/**
	 * With OPTINC_SQE_EXPONENTS: one byte per block of 256, of this rank's
	 * raw codes. The request fails with -EBADMSG where ranks disagree.
	 */
	const uint8_t *exponents;
};

/** struct optinc_result - how a request went */
struct optinc_result {
	int error;		/**< 0 or negative errno */
	uint32_t status;	/**< enum optinc_status, as the card said it */
	int peer;		/**< rank that the error speaks of, or -1 */
	uint32_t mismatch;	/**< OPTINC_DIFF_* in which @peer differs */
	uint32_t tag;
	uint32_t nonfinite;	/**< blocks that are NaN in the result */
	uint32_t saturated;	/**< raw codes of this rank that were clipped */
	uint32_t wire_ns;	/**< modelled time on the lanes */
	uint64_t device_ns;	/**< card clock at completion */
};

/**
 * optinc_allreduce() - reduce over the ranks of a group
 * @group: the group
 * @send: @count elements of @dtype
 * @recv: optinc_result_bytes() bytes; may equal @send where that is no larger
 *	than the source; must not overlap it otherwise
 * @count: elements, equal on all ranks; 0 is allowed
 * @dtype: f32, f16, bf16; i8 in an 8-bit, i16 in a 16-bit group; bit
 * @redop: mean or sum; vote for bit
 * @options: or NULL
 * @result: or NULL
 *
 * The result is that of optinc_reference_allreduce(), bit for bit.
 *
 * Blocks until the request is done: at most about the group's deadline after
 * the last peer was heard of. Errors of the request (the epoch ends):
 * -ECONNRESET a rank died, -ETIMEDOUT a rank did not come, -EPROTO a rank
 * asked for something else, -EBADMSG exponents disagree, -ECONNABORTED a rank
 * gave up, -ENOLINK lanes failed; the text names rank and difference. -ESTALE:
 * an earlier request failed, rejoin first. -EINVAL, -EOPNOTSUPP: this request
 * is not valid; nothing was submitted and the group goes on. -ENODEV: the
 * card was reset or is gone.
 */
int optinc_allreduce(struct optinc_group *group, const void *send, void *recv, size_t count,
		     enum optinc_dtype dtype, enum optinc_redop redop,
		     const struct optinc_options *options, struct optinc_result *result);
/** optinc_broadcast() - @bytes bytes of @root's @buffer to everyone's */
int optinc_broadcast(struct optinc_group *group, void *buffer, size_t bytes, unsigned int root,
		     const struct optinc_options *options, struct optinc_result *result);
/** optinc_barrier() - return when every rank has entered */
int optinc_barrier(struct optinc_group *group, const struct optinc_options *options,
		   struct optinc_result *result);
/**
 * optinc_exponent_max() - bytewise maximum over the ranks
 * @exponents: @blocks bytes, one per block, in place
 *
 * For callers who quantise themselves: agree on exponents, then send i8 or
 * i16 codes with OPTINC_SQE_EXPONENTS.
 */
int optinc_exponent_max(struct optinc_group *group, uint8_t *exponents, size_t blocks,
			const struct optinc_options *options, struct optinc_result *result);

/**
 * optinc_iallreduce() - as optinc_allreduce(), without waiting
 * @request: ends with the wait or test that returns its result
 *
 * Buffers belong to the card until then. -EAGAIN: as many requests are
 * outstanding as the group's queue holds, or as the card has room for where
 * their memory is not registered; wait for one.
 */
int optinc_iallreduce(struct optinc_group *group, const void *send, void *recv, size_t count,
		      enum optinc_dtype dtype, enum optinc_redop redop,
		      const struct optinc_options *options, struct optinc_request **request);
int optinc_ibroadcast(struct optinc_group *group, void *buffer, size_t bytes, unsigned int root,
		      const struct optinc_options *options, struct optinc_request **request);
int optinc_ibarrier(struct optinc_group *group, const struct optinc_options *options,
		    struct optinc_request **request);
int optinc_iexponent_max(struct optinc_group *group, uint8_t *exponents, size_t blocks,
			 const struct optinc_options *options, struct optinc_request **request);

/**
 * optinc_batch_begin() - submit what follows at once
 *
 * The group's non-blocking requests are gathered until optinc_batch_end(),
 * which announces all of them to the card by a single doorbell. A call that
 * waits for one of the group's requests or tests it, or that finds the queue
 * full, announces what there is. Batches may be nested; then the outermost
 * counts. Affects all threads that use the group.
 */
int optinc_batch_begin(struct optinc_group *group);
/** optinc_batch_end() - announce them; -EINVAL if there is no batch */
int optinc_batch_end(struct optinc_group *group);

/**
 * optinc_test() - is a request done?
 *
 * 1: done, @result (or NULL) is filled and the request has ended; look at
 * result->error. 0: not yet.
 */
int optinc_test(struct optinc_request *request, struct optinc_result *result);
/**
 * optinc_wait() - wait for a request
 * @timeout_ms: -1 for as long as it takes, which the group's deadline bounds
 *
 * Returns the request's error, and the request has ended. -EAGAIN: not done
 * within @timeout_ms; the request lives on.
 */
int optinc_wait(struct optinc_request *request, int timeout_ms, struct optinc_result *result);
/**
 * optinc_wait_any() - wait until one of several requests is done
 * @requests: NULL entries are skipped; the one that ended is set to NULL
 * @index: which one ended
 *
 * The requests may belong to different groups and cards. Returns the
 * request's error; -EAGAIN as optinc_wait(); -EINVAL if all are NULL.
 */
int optinc_wait_any(struct optinc_request **requests, size_t n, int timeout_ms,
		    size_t *index, struct optinc_result *result);
/**
 * optinc_cancel() - give a request up
 *
 * A collective cannot be taken back by one rank: unless already done, the
 * group's epoch ends and all its requests fail, this rank's with -ECANCELED.
 * The request still wants its wait or test.
 */
int optinc_cancel(struct optinc_request *request);
/**
 * optinc_group_fd() - a descriptor that polls readable when a request ends
 *
 * Belongs to the group; do not read or close it. When it is readable, call
 * optinc_test() on the group's requests; that makes it unreadable again.
 */
int optinc_group_fd(struct optinc_group *group);

/* ---------------------------------------------------------- number format */

/** optinc_data_bytes() - bytes of @count elements of @dtype; 0 if it is none */
size_t optinc_data_bytes(size_t count, enum optinc_dtype dtype);
/**
 * optinc_result_bytes() - bytes that an all-reduce writes
 *
 * As the source, but: sum of i8 gives i16, of i16 gives i32; vote gives an
 * i8 per element, or packed bits with OPTINC_SQE_SIGN alone. 0 for a
 * combination that does not exist.
 */
size_t optinc_result_bytes(size_t count, enum optinc_dtype dtype, enum optinc_redop redop,
			   unsigned int flags);
/**
 * optinc_reference_allreduce() - the number format, computed plainly
 * @send: @nranks pointers to @count elements each
 * @recv: the result that every rank gets; may equal none of @send
 * @nranks: 2..16
 * @bits: 8 or 16
 * @flags: OPTINC_SQE_*, but not _EXPONENTS
 * @result: nonfinite and saturated (of all ranks together) are set; or NULL
 *
 * No card is involved. Slow on purpose: integer arithmetic, one element after
 * the other, as Documentation/number-format.rst has it. -EINVAL for a
 * combination that does not exist.
 */
int optinc_reference_allreduce(const void *const *send, void *recv, unsigned int nranks,
			       size_t count, enum optinc_dtype dtype, enum optinc_redop redop,
			       unsigned int bits, unsigned int flags,
			       struct optinc_result *result);

/** optinc_status_name() - a card status as an identifier, "peer-lost" */
const char *optinc_status_name(uint32_t status);
/** optinc_dtype_name() - "f32"; NULL if unknown */
const char *optinc_dtype_name(enum optinc_dtype dtype);
/** optinc_redop_name() - "mean"; NULL if unknown */
const char *optinc_redop_name(enum optinc_redop redop);

#ifdef __cplusplus
}
#endif

#endif /* OPTINC_OPTINC_H */
