/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * OptINC photonic in-network-computing cards: user interface.
 *
 * Two character devices per card: the data node /dev/optinc/cardN (group
 * "optinc", mode 0660) carries everything below; the control node
 * /dev/optinc/ctlN (root) carries OPTINC_IOCTL_QUERY, _STATS and _RESET.
 *
 * Every ioctl takes one extensible struct that begins with its own size.
 * Documentation/uapi.rst is the contract: errno values, what each call may
 * block on, what the entries of the mmap'd rings mean.
 */
#ifndef _UAPI_LINUX_OPTINC_H
#define _UAPI_LINUX_OPTINC_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define OPTINC_IOCTL_TYPE	0xE8

#define OPTINC_IOCTL_QUERY	_IO(OPTINC_IOCTL_TYPE, 0x00)
#define OPTINC_IOCTL_STATS	_IO(OPTINC_IOCTL_TYPE, 0x01)
#define OPTINC_IOCTL_MR_REG	_IO(OPTINC_IOCTL_TYPE, 0x02)
#define OPTINC_IOCTL_MR_DEREG	_IO(OPTINC_IOCTL_TYPE, 0x03)
#define OPTINC_IOCTL_QP_CREATE	_IO(OPTINC_IOCTL_TYPE, 0x04)
#define OPTINC_IOCTL_QP_DESTROY	_IO(OPTINC_IOCTL_TYPE, 0x05)
#define OPTINC_IOCTL_GROUP_JOIN	_IO(OPTINC_IOCTL_TYPE, 0x06)
#define OPTINC_IOCTL_GROUP_WAIT	_IO(OPTINC_IOCTL_TYPE, 0x07)
#define OPTINC_IOCTL_GROUP_LEAVE _IO(OPTINC_IOCTL_TYPE, 0x08)
#define OPTINC_IOCTL_GROUP_ABORT _IO(OPTINC_IOCTL_TYPE, 0x09)
#define OPTINC_IOCTL_RESET	_IO(OPTINC_IOCTL_TYPE, 0x0a)

/* Limits of the interface itself; a card may offer less, see optinc_query. */
#define OPTINC_MAX_RANKS	16
#define OPTINC_KEY_BYTES	16
#define OPTINC_BLOCK		256	/* elements that share one exponent */
#define OPTINC_FORMAT_VERSION	1	/* Documentation/number-format.rst */
#define OPTINC_MAX_QUEUE	4096	/* entries of one ring */
#define OPTINC_NO_RANK		0xff

/* Element types. Bit positions in the dtype bitmaps. */
enum optinc_dtype {
	OPTINC_F32	= 0,
	OPTINC_F16	= 1,
	OPTINC_BF16	= 2,
	OPTINC_I8	= 3,	/* raw codes of an 8-bit group */
	OPTINC_I16	= 4,	/* raw codes of a 16-bit group */
	OPTINC_BIT	= 5,	/* packed, least significant bit first; 1 is +1 */
	OPTINC_U8	= 6,	/* opaque bytes: broadcast; exponents: exponent-max */
	OPTINC_DTYPES
};

/* Reductions of OPTINC_OP_ALLREDUCE. Bit positions in the reductions bitmap. */
enum optinc_redop {
	OPTINC_MEAN	= 0,
	OPTINC_SUM	= 1,
	OPTINC_VOTE	= 2,	/* with OPTINC_BIT only */
	OPTINC_REDOPS
};

/* Opcodes of a submission entry. Bit positions in the opcode bitmap. */
enum optinc_opcode {
	OPTINC_OP_NOP		= 0,
	OPTINC_OP_ALLREDUCE	= 1,
	OPTINC_OP_BROADCAST	= 2,
	OPTINC_OP_BARRIER	= 3,
	OPTINC_OP_EXPONENT_MAX	= 4,	/* bytewise maximum over the ranks */
	OPTINC_OPCODES
};

/* optinc_sqe.flags */
#define OPTINC_SQE_PARITY	(1 << 0) /* negate even elements, not odd ones */
#define OPTINC_SQE_EXPONENTS	(1 << 1) /* i8, i16: exp_* must agree across ranks */
#define OPTINC_SQE_SIGN		(1 << 2) /* vote: the sign, packed; a tie is +1 */
#define OPTINC_SQE_ABSTAIN	(1 << 3) /* with SIGN: i8 -1, 0, +1; a tie is 0 */
#define OPTINC_SQE_FLAGS	0x0f

/**
 * struct optinc_sqe - one submission, 64 bytes, little endian
 * @opcode: enum optinc_opcode
 * @flags: OPTINC_SQE_*
 * @cmd_id: returned in the completion; the submitter's to choose
 * @group: handle from OPTINC_IOCTL_GROUP_JOIN; 0 for OPTINC_OP_NOP
 * @tag: compared across ranks, returned in the completion
 * @dtype: enum optinc_dtype of the source
 * @redop: enum optinc_redop
 * @root: rank whose data a broadcast sends
 * @count: elements (bits for OPTINC_BIT, bytes for OPTINC_U8)
 * @src_mr: handle of the memory that is read; ignored where nothing is
 * @dst_mr: handle of the memory that is written
 * @src_off: byte offset into @src_mr, aligned to the element
 * @dst_off: byte offset into @dst_mr, aligned to the result's element
 * @exp_mr: with OPTINC_SQE_EXPONENTS, memory of one byte per block
 * @exp_off: byte offset into @exp_mr
 *
 * Source and destination are equal (in place) or do not overlap. In place
 * needs a result no larger than its source. All other bytes are zero.
 */
struct optinc_sqe {
	__u8	opcode;
	__u8	flags;
	__le16	cmd_id;
	__le32	group;
	__le32	tag;
	__u8	dtype;
	__u8	redop;
	__u8	root;
	__u8	__reserved0;
	__le64	count;
	__le32	src_mr;
	__le32	dst_mr;
	__le64	src_off;
	__le64	dst_off;
	__le64	exp_off;
	__le32	exp_mr;
	__le32	__reserved1;
};

/* optinc_cqe.status: status code in bits 15:1, phase in bit 0 */
#define OPTINC_CQE_PHASE	(1 << 0)
#define OPTINC_CQE_STATUS_SHIFT	1

enum optinc_status {
	OPTINC_ST_SUCCESS		= 0x00,
	/* the entry itself; the group goes on */
	OPTINC_ST_INVALID_OPCODE	= 0x01,
	OPTINC_ST_INVALID_FIELD		= 0x02,
	OPTINC_ST_INVALID_GROUP		= 0x03,
	OPTINC_ST_INVALID_MR		= 0x04,
	OPTINC_ST_MR_BOUNDS		= 0x05,
	OPTINC_ST_MR_ACCESS		= 0x06,
	OPTINC_ST_UNSUPPORTED		= 0x07,
	/* the group; its epoch has ended */
	OPTINC_ST_PEER_LOST		= 0x10,	/* peer names the rank */
	OPTINC_ST_TIMEOUT		= 0x11,	/* peer names the rank waited for */
	OPTINC_ST_MISMATCH		= 0x12,	/* peer differs in mismatch */
	OPTINC_ST_EXPONENT_MISMATCH	= 0x13,	/* peer's exponents differ */
	OPTINC_ST_ABORTED		= 0x14,	/* peer gave the group up */
	OPTINC_ST_LINK			= 0x15,	/* peer's lanes failed */
	OPTINC_ST_EPOCH_ENDED		= 0x16,	/* an earlier request failed */
	/* the card */
	OPTINC_ST_RESET			= 0x20,
	OPTINC_ST_DMA			= 0x21,
	OPTINC_ST_INTERNAL		= 0x22,
};

/* optinc_cqe.mismatch: what differs between peer and the majority */
#define OPTINC_DIFF_OPCODE	(1 << 0)
#define OPTINC_DIFF_COUNT	(1 << 1)
#define OPTINC_DIFF_DTYPE	(1 << 2)
#define OPTINC_DIFF_REDOP	(1 << 3)
#define OPTINC_DIFF_TAG		(1 << 4)
#define OPTINC_DIFF_ROOT	(1 << 5)
#define OPTINC_DIFF_FLAGS	(1 << 6)
/* optinc_group_wait.mismatch: what differs between joiners */
#define OPTINC_JOIN_SIZE	(1 << 0)
#define OPTINC_JOIN_BITS	(1 << 1)
#define OPTINC_JOIN_DTYPES	(1 << 2)
#define OPTINC_JOIN_FORMAT	(1 << 3)
#define OPTINC_JOIN_DEADLINE	(1 << 4)
#define OPTINC_JOIN_RANK	(1 << 5) /* two joiners claim one rank */

/**
 * struct optinc_cqe - one completion, 32 bytes, little endian
 * @cmd_id: of the submission
 * @status: enum optinc_status << 1 | phase; the phase starts as 1 and
 *	inverts at each pass of the ring
 * @sq_head: submission entries the card has taken, modulo 65536
 * @peer: rank that the status speaks of, or OPTINC_NO_RANK
 * @mismatch: OPTINC_DIFF_*, where the status is MISMATCH
 * @tag: of the submission
 * @nonfinite: blocks that held a NaN or an infinity on some rank
 * @device_ns: card clock at completion, nanoseconds
 * @wire_ns: modelled time on the lanes, nanoseconds, saturating
 * @saturated: raw codes of this rank that were clipped, saturating
 */
struct optinc_cqe {
	__le16	cmd_id;
	__le16	status;
	__le16	sq_head;
	__u8	peer;
	__u8	mismatch;
	__le32	tag;
	__le32	nonfinite;
	__le64	device_ns;
	__le32	wire_ns;
	__le32	saturated;
};

/*
 * Doorbell page, one per context. A value names the queue pair and a ring
 * index: queue pair id in bits 31:16, index modulo 65536 in bits 15:0. One
 * that names a queue pair of another context is dropped and counted.
 */
#define OPTINC_DB_SQ_TAIL	0x00
#define OPTINC_DB_CQ_ARM	0x04	/* interrupt once the CQ tail differs from index */
#define OPTINC_DB_VALUE(qp, index)	((__u32)(qp) << 16 | (__u16)(index))

/* optinc_query.node */
#define OPTINC_NODE_CARD	1
#define OPTINC_NODE_CTL		2

/* optinc_query.features */
#define OPTINC_FEAT_ISOLATION	(1ULL << 0) /* card checks MR handle, context, bounds */
#define OPTINC_FEAT_USER_QUEUES	(1ULL << 1) /* rings and doorbell may be mmap'd */
#define OPTINC_FEAT_MR_CACHE	(1ULL << 2) /* OPTINC_MR_CACHE is kept coherent */
#define OPTINC_FEAT_DMABUF	(1ULL << 3)
#define OPTINC_FEAT_EMULATED	(1ULL << 4)

/**
 * struct optinc_query - OPTINC_IOCTL_QUERY: what card and driver offer
 * @size: sizeof(struct optinc_query)
 * @node: OPTINC_NODE_* (out)
 * @features: OPTINC_FEAT_* (out)
 * @opcodes: bitmap of enum optinc_opcode (out)
 * @dtypes: bitmap of enum optinc_dtype (out)
 * @redops: bitmap of enum optinc_redop (out)
 * @code_bits: bitmap of code widths: bit 8, bit 16 (out)
 * @max_count: elements of one request (out)
 * @max_mr_bytes: length of one memory region (out)
 * @format_version: OPTINC_FORMAT_VERSION of the card (out)
 * @port: this card's port of its fabric (out)
 * @ports: ports of the fabric (out)
 * @lanes: lanes of the port, and how many of them carry light (out)
 * @lane_mbps: rate of one lane, Mbit/s (out)
 * @max_qps: queue pairs of one context (out)
 * @max_mrs: memory regions of one context (out)
 * @max_groups: groups of the card (out)
 * @max_queue: entries of one ring (out)
 * @page_size: alignment of mmap offsets (out)
 * @doorbell_offset: mmap offset of the context's doorbell page (out)
 * @context_offset: mmap offset of struct optinc_context_page; 0 without
 *	OPTINC_FEAT_MR_CACHE (out)
 * @interface_version: major << 16 | minor of the card interface (out)
 * @firmware_version: card's own, as it likes (out)
 * @serial: NUL-terminated (out)
 * @model: NUL-terminated (out)
 */
struct optinc_query {
	__u32		size;
	__u32		node;
	__aligned_u64	features;
	__aligned_u64	opcodes;
	__aligned_u64	dtypes;
	__aligned_u64	redops;
	__aligned_u64	code_bits;
	__aligned_u64	max_count;
	__aligned_u64	max_mr_bytes;
	__u32		format_version;
	__u16		port;
	__u16		ports;
	__u16		lanes;
	__u16		lanes_up;
	__u32		lane_mbps;
	__u32		max_qps;
	__u32		max_mrs;
	__u32		max_groups;
	__u32		max_queue;
	__u32		page_size;
	__u32		interface_version;
	__aligned_u64	doorbell_offset;
	__aligned_u64	context_offset;
	__u32		firmware_version;
	__u32		__reserved;
	char		serial[32];
	char		model[32];
};

/**
 * struct optinc_stats - OPTINC_IOCTL_STATS: counters of the port since reset
 * @size: sizeof(struct optinc_stats)
 * @tx_bytes: codes and exponents that the port put on its lanes
 * @rx_bytes: codes and exponents that came back
 * @requests: requests completed, whatever the status
 * @errors: of these, not with OPTINC_ST_SUCCESS
 * @replays: chunks sent again after lost symbols
 * @nonfinite: blocks with a NaN or an infinity
 * @saturated: raw codes clipped
 * @doorbells: doorbell writes seen
 * @doorbells_dropped: of these, not obeyed
 * @wire_ns: modelled time on the lanes
 * @device_ns: the card's clock now
 */
struct optinc_stats {
	__u32		size;
	__u32		__reserved;
	__aligned_u64	tx_bytes;
	__aligned_u64	rx_bytes;
	__aligned_u64	requests;
	__aligned_u64	errors;
	__aligned_u64	replays;
	__aligned_u64	nonfinite;
	__aligned_u64	saturated;
	__aligned_u64	doorbells;
	__aligned_u64	doorbells_dropped;
	__aligned_u64	wire_ns;
	__aligned_u64	device_ns;
};

/* optinc_mr_reg.flags */
#define OPTINC_MR_WRITE		(1 << 0) /* the card may write, not only read */
#define OPTINC_MR_DMABUF	(1 << 1) /* fd and addr (an offset) name a dma-buf */
#define OPTINC_MR_CACHE		(1 << 2) /* watched: the context page tells when it is stale */

/**
 * struct optinc_mr_reg - OPTINC_IOCTL_MR_REG: let the card reach memory
 * @size: sizeof(struct optinc_mr_reg)
 * @flags: OPTINC_MR_*
 * @addr: user address, or offset into the dma-buf; any alignment
 * @length: bytes, at least 1
 * @fd: dma-buf with OPTINC_MR_DMABUF, else -1
 * @mr: handle, not 0 (out)
 * @slot: with OPTINC_MR_CACHE, the region's bit of the context page; else 0 (out)
 * @__reserved: zero
 */
struct optinc_mr_reg {
	__u32		size;
	__u32		flags;
	__aligned_u64	addr;
	__aligned_u64	length;
	__s32		fd;
	__u32		mr;
	__u32		slot;
	__u32		__reserved;
};

/**
 * struct optinc_context_page - what the driver tells of a context, to be
 *	mapped for reading at optinc_query.context_offset
 * @mr_generation: grows whenever regions with OPTINC_MR_CACHE become stale
 * @__reserved: zero
 * @mr_stale: bit n % 8 of byte n / 8 is set, before @mr_generation grows, when
 *	the memory at the addresses of the region with slot n may no longer be
 *	what it was when it was registered
 *
 * Load @mr_generation, or the byte of @mr_stale, with acquire semantics. What a
 * system call did to the memory is seen when it returns.
 */
#define OPTINC_CONTEXT_SLOTS	32256
struct optinc_context_page {
	__aligned_u64	mr_generation;
	__aligned_u64	__reserved[7];
	__u8		mr_stale[OPTINC_CONTEXT_SLOTS / 8];
};

/**
 * struct optinc_mr_dereg - OPTINC_IOCTL_MR_DEREG
 * @size: sizeof(struct optinc_mr_dereg)
 * @mr: handle
 *
 * A fence: when it returns 0 the card does no more DMA to the region.
 * -EBUSY while requests that name the region are outstanding.
 */
struct optinc_mr_dereg {
	__u32		size;
	__u32		mr;
};

/**
 * struct optinc_qp_create - OPTINC_IOCTL_QP_CREATE
 * @size: sizeof(struct optinc_qp_create)
 * @flags: zero
 * @sq_entries: power of two, 2..max_queue
 * @cq_entries: power of two, sq_entries..max_queue
 * @eventfd: signalled by an armed completion queue, or -1
 * @qp: id for doorbells, 16 bit (out)
 * @sq_offset: mmap offset of the submission ring, sq_entries * 64 bytes (out)
 * @cq_offset: mmap offset of the completion ring, cq_entries * 32 bytes (out)
 */
struct optinc_qp_create {
	__u32		size;
	__u32		flags;
	__u32		sq_entries;
	__u32		cq_entries;
	__s32		eventfd;
	__u32		qp;
	__aligned_u64	sq_offset;
	__aligned_u64	cq_offset;
};

/**
 * struct optinc_qp_destroy - OPTINC_IOCTL_QP_DESTROY
 * @size: sizeof(struct optinc_qp_destroy)
 * @qp: id
 *
 * A fence like OPTINC_IOCTL_MR_DEREG. Requests still outstanding are given
 * up: their groups' epochs end and the peers are told.
 */
struct optinc_qp_destroy {
	__u32		size;
	__u32		qp;
};

/**
 * struct optinc_group_join - OPTINC_IOCTL_GROUP_JOIN: offer to reduce together
 * @size: sizeof(struct optinc_group_join)
 * @flags: zero
 * @key: the group's identity, random, passed out of band, not all zero
 * @rank: 0..nranks-1
 * @nranks: 2..OPTINC_MAX_RANKS, at most the ports of the fabric
 * @bits: code width, 8 or 16
 * @format: OPTINC_FORMAT_VERSION
 * @dtypes: bitmap of what the group will reduce
 * @deadline_ms: 1..3600000; bounds the join and each request's wait for peers
 * @group: handle, not 0 (out)
 *
 * Returns at once; OPTINC_IOCTL_GROUP_WAIT tells when all have come.
 */
struct optinc_group_join {
	__u32		size;
	__u32		flags;
	__u8		key[OPTINC_KEY_BYTES];
	__u32		rank;
	__u32		nranks;
	__u32		bits;
	__u32		format;
	__aligned_u64	dtypes;
	__u32		deadline_ms;
	__u32		group;
};

/* optinc_group_wait.state */
#define OPTINC_GROUP_JOINING	1
#define OPTINC_GROUP_READY	2
#define OPTINC_GROUP_FAILED	3

/**
 * struct optinc_group_wait - OPTINC_IOCTL_GROUP_WAIT: has everyone joined?
 * @size: sizeof(struct optinc_group_wait)
 * @group: handle
 * @timeout_ms: how long to wait for a state other than JOINING; 0 only asks
 * @state: OPTINC_GROUP_* (out)
 * @status: why FAILED, enum optinc_status (out)
 * @peer: rank that the status speaks of (out)
 * @mismatch: OPTINC_JOIN_SIZE and following (out)
 * @joined: bitmap of the ranks that have come (out)
 *
 * Returns 0 when the state is known, JOINING included.
 */
struct optinc_group_wait {
	__u32		size;
	__u32		group;
	__u32		timeout_ms;
	__u32		state;
	__u32		status;
	__u16		peer;
	__u16		mismatch;
	__u32		joined;
	__u32		__reserved;
};

/**
 * struct optinc_group_leave - OPTINC_IOCTL_GROUP_LEAVE
 * @size: sizeof(struct optinc_group_leave)
 * @group: handle, invalid afterwards
 *
 * A fence: requests still outstanding complete first, with
 * OPTINC_ST_ABORTED, and the peers are told.
 */
struct optinc_group_leave {
	__u32		size;
	__u32		group;
};

/**
 * struct optinc_group_abort - OPTINC_IOCTL_GROUP_ABORT: end the epoch
 * @size: sizeof(struct optinc_group_abort)
 * @group: handle; stays valid, for OPTINC_IOCTL_GROUP_LEAVE
 *
 * Every rank's outstanding requests complete with OPTINC_ST_ABORTED.
 */
struct optinc_group_abort {
	__u32		size;
	__u32		group;
};

/**
 * struct optinc_reset - OPTINC_IOCTL_RESET, control node only
 * @size: sizeof(struct optinc_reset)
 * @flags: zero
 */
struct optinc_reset {
	__u32		size;
	__u32		flags;
};

#endif /* _UAPI_LINUX_OPTINC_H */
