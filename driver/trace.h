/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM optinc

#if !defined(_OPTINC_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _OPTINC_TRACE_H

#include <linux/tracepoint.h>

#include "compat.h"

/* An admin command goes to the card. */
TRACE_EVENT(optinc_submit,
	    TP_PROTO(int card, u8 opcode, u16 cmd_id, u32 ctx, u32 handle, u32 length),
	    TP_ARGS(card, opcode, cmd_id, ctx, handle, length),
	    TP_STRUCT__entry(__field(int, card)
			     __field(u8, opcode)
			     __field(u16, cmd_id)
			     __field(u32, ctx)
			     __field(u32, handle)
			     __field(u32, length)),
	    TP_fast_assign(__entry->card = card;
			   __entry->opcode = opcode;
			   __entry->cmd_id = cmd_id;
			   __entry->ctx = ctx;
			   __entry->handle = handle;
			   __entry->length = length;),
	    TP_printk("card%d opcode=%#x cmd_id=%u ctx=%u handle=%u length=%u",
		      __entry->card, __entry->opcode, __entry->cmd_id, __entry->ctx,
		      __entry->handle, __entry->length)
);

/* Its completion was consumed. */
TRACE_EVENT(optinc_completion,
	    TP_PROTO(int card, u16 cmd_id, u16 status, u32 handle, u64 result),
	    TP_ARGS(card, cmd_id, status, handle, result),
	    TP_STRUCT__entry(__field(int, card)
			     __field(u16, cmd_id)
			     __field(u16, status)
			     __field(u32, handle)
			     __field(u64, result)),
	    TP_fast_assign(__entry->card = card;
			   __entry->cmd_id = cmd_id;
			   __entry->status = status;
			   __entry->handle = handle;
			   __entry->result = result;),
	    TP_printk("card%d cmd_id=%u status=%#x handle=%u result=%#llx",
		      __entry->card, __entry->cmd_id, __entry->status, __entry->handle,
		      __entry->result)
);

TRACE_EVENT(optinc_interrupt,
	    TP_PROTO(int card, unsigned int vector, unsigned int signalled),
	    TP_ARGS(card, vector, signalled),
	    TP_STRUCT__entry(__field(int, card)
			     __field(unsigned int, vector)
			     __field(unsigned int, signalled)),
	    TP_fast_assign(__entry->card = card;
			   __entry->vector = vector;
			   __entry->signalled = signalled;),
	    TP_printk("card%d vector=%u eventfds=%u", __entry->card, __entry->vector,
		      __entry->signalled)
);

/*
 * A process touched its doorbell page for the first time, or for the first
 * time after it was taken away. Doorbells themselves do not pass the kernel.
 */
TRACE_EVENT(optinc_doorbell,
	    TP_PROTO(int card, int page, bool alive),
	    TP_ARGS(card, page, alive),
	    TP_STRUCT__entry(__field(int, card)
			     __field(int, page)
			     __field(bool, alive)),
	    TP_fast_assign(__entry->card = card;
			   __entry->page = page;
			   __entry->alive = alive;),
	    TP_printk("card%d page=%d %s", __entry->card, __entry->page,
		      __entry->alive ? "card" : "dummy")
);

/* A cached region's memory at [start, end) goes or is replaced; events as mmu_notifier has them. */
TRACE_EVENT(optinc_stale,
	    TP_PROTO(int card, unsigned int slot, int event, unsigned long start,
		     unsigned long end),
	    TP_ARGS(card, slot, event, start, end),
	    TP_STRUCT__entry(__field(int, card)
			     __field(unsigned int, slot)
			     __field(int, event)
			     __field(unsigned long, start)
			     __field(unsigned long, end)),
	    TP_fast_assign(__entry->card = card;
			   __entry->slot = slot;
			   __entry->event = event;
			   __entry->start = start;
			   __entry->end = end;),
	    TP_printk("card%d slot=%u event=%d %#lx-%#lx", __entry->card, __entry->slot,
		      __entry->event, __entry->start, __entry->end)
);

/* Steps are string constants. */
TRACE_EVENT(optinc_reset,
	    TP_PROTO(int card, const char *step, int ret),
	    TP_ARGS(card, step, ret),
	    TP_STRUCT__entry(__field(int, card)
			     __string(step, step)
			     __field(int, ret)),
	    TP_fast_assign(__entry->card = card;
			   OPTINC_ASSIGN_STR(step, step);
			   __entry->ret = ret;),
	    TP_printk("card%d %s ret=%d", __entry->card, __get_str(step), __entry->ret)
);

#endif /* _OPTINC_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
