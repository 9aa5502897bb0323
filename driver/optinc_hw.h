/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The OptINC card interface in C: registers, admin queue, structures that
 * card and host exchange. Documentation/card-interface.rst is the
 * specification; section numbers here are its.
 *
 * Everything that crosses PCIe is little endian. I/O queue entries, shared
 * with user space, are in uapi/linux/optinc.h.
 */
#ifndef _OPTINC_HW_H
#define _OPTINC_HW_H

#ifdef __KERNEL__
#include <linux/bits.h>
#include <linux/types.h>
#else
#include <linux/types.h>
#ifndef GENMASK
#define GENMASK(h, l)		((~0U << (l)) & (~0U >> (31 - (h))))
#define BIT(n)			(1U << (n))
#endif
#endif

#include <linux/optinc.h>

/* PCIe identity of the emulated card; vendors have their own */
#define OPTINC_PCI_VENDOR_EMU		0x1af4
#define OPTINC_PCI_DEVICE_EMU		0x10f0
#define OPTINC_PCI_SUBVENDOR_EMU	0x1af4
#define OPTINC_PCI_SUBDEVICE_EMU	0x0bc1
#define OPTINC_PCI_CLASS		0x120000

#define OPTINC_BAR_REGS			0
#define OPTINC_BAR_DOORBELLS		2
#define OPTINC_BAR_MSIX			4

/* BAR0: registers. 32-bit accesses; 64-bit registers low half first. */
#define OPTINC_REG_MAGIC		0x000	/* RO */
#define OPTINC_MAGIC			0x434e494f	/* "OINC" */

#define OPTINC_REG_VERSION		0x004	/* RO */
#define OPTINC_VERSION_MINOR_MASK	GENMASK(15, 0)
#define OPTINC_VERSION_MAJOR_MASK	GENMASK(31, 16)
#define OPTINC_INTERFACE_MAJOR		1
#define OPTINC_INTERFACE_MINOR		0

#define OPTINC_REG_CAP0			0x008	/* RO */
#define OPTINC_CAP0_TIMEOUT		GENMASK(7, 0)	/* handshakes, units of 100 ms */
#define OPTINC_CAP0_DB_STRIDE		GENMASK(11, 8)	/* smallest, 4096 << n bytes */
#define OPTINC_CAP0_ISOLATION		BIT(12)
#define OPTINC_CAP0_DMA_BITS		GENMASK(22, 16)	/* address bits, 32..64 */
#define OPTINC_CAP0_ADMIN_ENTRIES	GENMASK(31, 23)	/* largest admin ring */

#define OPTINC_REG_CAP1			0x00c	/* RO */
#define OPTINC_CAP1_VECTORS		GENMASK(10, 0)	/* MSI-X vectors of use */
#define OPTINC_CAP1_CONTEXTS		GENMASK(26, 16)	/* doorbell pages in BAR2 */

#define OPTINC_REG_CONTROL		0x010	/* RW, reset value 0 */
#define OPTINC_CONTROL_ENABLE		BIT(0)
#define OPTINC_CONTROL_DB_STRIDE	GENMASK(11, 8)	/* chosen, as in CAP0 */

#define OPTINC_REG_STATUS		0x014	/* RO */
#define OPTINC_STATUS_READY		BIT(0)
#define OPTINC_STATUS_FATAL		BIT(1)
#define OPTINC_STATUS_RESETTING		BIT(2)
#define OPTINC_STATUS_FATAL_CODE	GENMASK(15, 8)

#define OPTINC_FATAL_ADMIN_BASE		1	/* bad admin ring address or size */
#define OPTINC_FATAL_DMA		2	/* admin ring not reachable */
#define OPTINC_FATAL_FIRMWARE		3

#define OPTINC_REG_RESET		0x018	/* WO */
#define OPTINC_RESET_KEY		0x54534552	/* "REST" */

#define OPTINC_REG_ADMIN_SIZE		0x020	/* RW, writable while disabled */
#define OPTINC_ADMIN_SIZE_SQ		GENMASK(11, 0)	/* entries - 1 */
#define OPTINC_ADMIN_SIZE_CQ		GENMASK(27, 16)
#define OPTINC_REG_ADMIN_SQ_LO		0x028	/* RW, while disabled; 4 KiB aligned */
#define OPTINC_REG_ADMIN_SQ_HI		0x02c
#define OPTINC_REG_ADMIN_CQ_LO		0x030
#define OPTINC_REG_ADMIN_CQ_HI		0x034
#define OPTINC_REG_ADMIN_SQ_TAIL	0x038	/* WO doorbell */
#define OPTINC_REG_ADMIN_CQ_HEAD	0x03c	/* WO doorbell */

#define OPTINC_REG_FW_STATE		0x040	/* RO */
#define OPTINC_FW_BOOTING		0
#define OPTINC_FW_RUNNING		1
#define OPTINC_FW_FAILED		2

#define OPTINC_REG_CLOCK_LO		0x048	/* RO, card clock, ns; low half latches high */
#define OPTINC_REG_CLOCK_HI		0x04c
#define OPTINC_REG_DB_DROPPED		0x050	/* RO, doorbells not obeyed since reset */

#define OPTINC_BAR0_BYTES		0x4000

/* Admin queue: 64-byte commands, 32-byte completions, vector 0 */
enum optinc_admin_opcode {
	OPTINC_ADMIN_IDENTIFY		= 0x01,
	OPTINC_ADMIN_GET_LOG		= 0x02,
	OPTINC_ADMIN_ASYNC_EVENT	= 0x03,
	OPTINC_ADMIN_CTX_CREATE		= 0x10,
	OPTINC_ADMIN_CTX_DESTROY	= 0x11,
	OPTINC_ADMIN_MR_REG		= 0x12,
	OPTINC_ADMIN_MR_DEREG		= 0x13,
	OPTINC_ADMIN_QP_CREATE		= 0x14,
	OPTINC_ADMIN_QP_DESTROY		= 0x15,
	OPTINC_ADMIN_GROUP_JOIN		= 0x20,
	OPTINC_ADMIN_GROUP_QUERY	= 0x21,
	OPTINC_ADMIN_GROUP_LEAVE	= 0x22,
	OPTINC_ADMIN_GROUP_ABORT	= 0x23,
	/* 0x30-0x3f banks, 0x40-0x4f measure and capture, 0x50-0x5f lanes,
	 * 0x60-0x6f module pages, 0x70-0x7f firmware, 0xc0-0xff vendor
	 */
};

/**
 * struct optinc_admin_cmd - admin command
 * @opcode: enum optinc_admin_opcode
 * @cmd_id: returned in the completion
 * @ctx: context the command acts for; 0 where none is
 * @handle: MR, queue pair or group the command acts on; 0 where none is
 * @addr: DMA address of the command's data buffer
 * @length: bytes of it
 * All other bytes are zero.
 */
struct optinc_admin_cmd {
	__u8	opcode;
	__u8	flags;
	__le16	cmd_id;
	__le32	ctx;
	__le32	handle;
	__le32	length;
	__le64	addr;
	union {
		__u8 raw[40];
		struct {
			__le32	page;		/* OPTINC_LOG_* */
			__le32	offset;
		} log;
		struct {
			__le32	db_page;	/* page of BAR2 the context gets */
		} ctx_create;
		struct {
			__le64	length;		/* of the region */
			__le32	segments;	/* entries at addr */
			__le32	access;		/* OPTINC_MR_WRITE or 0 */
		} mr_reg;
		struct {
			__le64	sq_addr;	/* 4 KiB aligned, contiguous */
			__le64	cq_addr;
			__le16	sq_entries;	/* power of two */
			__le16	cq_entries;
			__le16	vector;		/* or OPTINC_NO_VECTOR */
			__le16	__reserved;
		} qp_create;
	};
};

#define OPTINC_NO_VECTOR	0xffff

/**
 * struct optinc_admin_cqe - admin completion
 * @cmd_id: of the command
 * @status: enum optinc_admin_status << 1 | phase
 * @sq_head: commands taken, modulo 65536
 * @handle: of what was created
 * @result: by command; IDENTIFY and GET_LOG give the bytes written
 */
struct optinc_admin_cqe {
	__le16	cmd_id;
	__le16	status;
	__le16	sq_head;
	__le16	__reserved0;
	__le32	handle;
	__le32	__reserved1;
	__le64	result;
	__le64	__reserved2;
};

enum optinc_admin_status {
	OPTINC_AST_SUCCESS		= 0x00,
	OPTINC_AST_INVALID_OPCODE	= 0x01,
	OPTINC_AST_INVALID_FIELD	= 0x02,	/* reserved and not zero, or out of range */
	OPTINC_AST_INVALID_HANDLE	= 0x03,
	OPTINC_AST_LIMIT		= 0x04,	/* no more of these */
	OPTINC_AST_BUSY			= 0x05,
	OPTINC_AST_DMA			= 0x06,
	OPTINC_AST_UNSUPPORTED		= 0x07,
	OPTINC_AST_NO_MEMORY		= 0x08,	/* of the card or its fabric */
	OPTINC_AST_INTERNAL		= 0x09,
};

/* One piece of a memory region, in order; the list is MR_REG's data buffer */
struct optinc_hw_segment {
	__le64	addr;
	__le64	length;
};

#define OPTINC_MAX_SEGMENTS	0x100000

/* IDENTIFY's data buffer, 256 bytes */
struct optinc_hw_identify {
	__le32	interface_version;
	__le32	firmware_version;
	__le64	features;		/* OPTINC_FEAT_ISOLATION, _EMULATED */
	__le64	opcodes;
	__le64	dtypes;
	__le64	redops;
	__le64	code_bits;
	__le64	max_count;
	__le64	max_mr_bytes;
	__le32	format_version;
	__le16	port;
	__le16	ports;
	__le16	lanes;
	__le16	lanes_up;
	__le32	lane_mbps;
	__le32	max_contexts;
	__le32	max_qps;		/* of one context */
	__le32	max_mrs;		/* of one context */
	__le32	max_groups;		/* of the card */
	__le32	max_queue;
	__le32	max_segments;		/* of one region */
	char	serial[32];
	char	model[32];
	__u8	__reserved[88];
};

/* GROUP_JOIN's data buffer, 64 bytes */
struct optinc_hw_join {
	__u8	key[OPTINC_KEY_BYTES];
	__le32	rank;
	__le32	nranks;
	__le32	bits;
	__le32	format;
	__le64	dtypes;
	__le32	deadline_ms;
	__u8	__reserved[20];
};

/* GROUP_QUERY's data buffer, 32 bytes */
struct optinc_hw_group_state {
	__le32	state;			/* OPTINC_GROUP_* */
	__le32	status;			/* enum optinc_status */
	__le16	peer;
	__le16	mismatch;
	__le32	joined;			/* bitmap of ranks */
	__u8	__reserved[16];
};

/* GET_LOG pages */
#define OPTINC_LOG_PORT		1	/* struct optinc_hw_port_log */

struct optinc_hw_port_log {
	__le64	tx_bytes;
	__le64	rx_bytes;
	__le64	requests;
	__le64	errors;
	__le64	replays;
	__le64	nonfinite;
	__le64	saturated;
	__le64	doorbells;
	__le64	doorbells_dropped;
	__le64	wire_ns;
	__le64	device_ns;
	__u8	__reserved[40];
};

/* ASYNC_EVENT: completes when something happens; result is one of these */
#define OPTINC_EVENT_TYPE	GENMASK(7, 0)
#define OPTINC_EVENT_GROUP	1	/* handle: the group whose state changed */
#define OPTINC_EVENT_LANE	2	/* a lane came up or went down */
#define OPTINC_EVENT_FATAL	3	/* precedes STATUS.FATAL where it can */

#define OPTINC_MAX_ASYNC_EVENTS	8	/* ASYNC_EVENT commands outstanding */

#endif /* _OPTINC_HW_H */
