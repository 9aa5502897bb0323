/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * OptINC driver: what its files share.
 *
 *	main.c		module, probe and remove
 *	pci.c		BARs, DMA masks
 *	regs.c		register handshakes
 *	admin.c		the admin queue
 *	command.c	admin commands, one function each
 *	identify.c	IDENTIFY, believed within limits
 *	irq.c		vectors
 *	state.c		who may touch the hardware when
 *	recovery.c	resets, PCI errors, sleep, a watch on the card's health
 *	node.c		character devices
 *	ioctl.c		ioctl dispatch
 *	context.c	what an open file owns, and its end
 *	mr.c		memory regions; pin.c user memory, dmabuf.c dma-bufs,
 *			watch.c what becomes of the memory of cached ones
 *	qp.c		queue pairs and their rings
 *	mmap.c		mappings of rings, doorbell pages and context pages
 *	group.c		groups
 *	sysfs.c, debugfs.c, trace.h
 */
#ifndef _OPTINC_H
#define _OPTINC_H

#include <linux/cdev.h>
#include <linux/completion.h>
#include <linux/device.h>
#include <linux/idr.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/ratelimit.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "optinc_hw.h"

#define OPTINC_MAX_CARDS	128
#define OPTINC_MAX_VECTORS	64
#define OPTINC_ADMIN_ENTRIES	64	/* at most; a power of two */
#define OPTINC_SMALL_BUFFER	256	/* bytes, of the pool */

struct dma_buf;
struct dma_buf_attachment;
struct dma_pool;
struct eventfd_ctx;
struct optinc_device;
struct optinc_watch;

/* state.c has the rules */
enum optinc_state {
	OPTINC_PROBING,
	OPTINC_ONLINE,
	OPTINC_RESETTING,
	OPTINC_DEAD,		/* did not come back from a reset */
	OPTINC_GONE,		/* removed */
};

/* IDENTIFY in host order, checked and bounded */
struct optinc_identity {
	u32 interface_version;
	u32 firmware_version;
	u64 features;
	u64 opcodes;
	u64 dtypes;
	u64 redops;
	u64 code_bits;
	u64 max_count;
	u64 max_mr_bytes;
	u32 format_version;
	u16 port;
	u16 ports;
	u16 lanes;
	u16 lanes_up;
	u32 lane_mbps;
	u32 max_contexts;
	u32 max_qps;
	u32 max_mrs;
	u32 max_groups;
	u32 max_queue;
	u32 max_segments;
	char serial[32];
	char model[32];
};

/* Memory that an admin command's data buffer is in */
struct optinc_buffer {
	struct list_head node;		/* of admin.abandoned */
	void *cpu;
	dma_addr_t dma;
	size_t size;
};

enum optinc_slot_use {
	OPTINC_SLOT_FREE,
	OPTINC_SLOT_WAIT,		/* somebody waits for done */
	OPTINC_SLOT_DONE,		/* has the answer */
	OPTINC_SLOT_EVENT,		/* ASYNC_EVENT */
};

/* A command that the card has, by its cmd_id */
struct optinc_slot {
	struct completion done;
	enum optinc_slot_use use;
	u16 status;
	u32 handle;
	u64 result;
};

struct optinc_event {
	u32 handle;
	u64 result;
};

struct optinc_admin {
	spinlock_t lock;		/* all below but the memory's addresses */
	bool stopped;			/* no commands; completions are not looked at */
	unsigned int entries;		/* of either ring */
	unsigned int waiting;		/* slots in use, ASYNC_EVENT excepted */
	u16 sq_tail;
	u16 cq_head;
	struct optinc_admin_cmd *sq;
	struct optinc_admin_cqe *cq;
	void *ring;
	dma_addr_t ring_dma;
	size_t ring_bytes;
	struct optinc_slot slots[OPTINC_ADMIN_ENTRIES];
	wait_queue_head_t room;
	struct optinc_event events[OPTINC_MAX_ASYNC_EVENTS];
	unsigned int nevents;
	const char *wrong;		/* with the card, since it was started; or NULL */
	struct work_struct event_work;
	struct list_head abandoned;	/* buffers of commands without an answer */
	struct dma_pool *pool;
};

struct optinc_vector {
	struct optinc_device *odev;
	unsigned int index;
	spinlock_t lock;		/* the list */
	struct list_head qps;
	unsigned int nr_qps;
	u64 interrupts;
	char name[32];
};

struct optinc_device {
	struct pci_dev *pdev;
	struct kref ref;
	int id;				/* N of cardN and ctlN */
	struct device card_dev;
	struct device ctl_dev;
	struct cdev card_cdev;
	struct cdev ctl_cdev;
	struct dentry *debugfs;

	/* state.c */
	enum optinc_state state;
	spinlock_t state_lock;		/* state and the flags below */
	wait_queue_head_t state_wq;
	struct srcu_struct srcu;
	bool removing;			/* under state_lock: no more recovery work */
	bool reset_wanted;		/* under state_lock */
	const char *why;		/* a string constant; set with reset_wanted */
	bool pci_owned;			/* RESETTING belongs to the PCI core's callbacks */
	u64 resets;

	/* recovery.c */
	struct work_struct reset_work;
	struct delayed_work health_work;
	u32 status;			/* STATUS before the last reset */
	unsigned long first_reset;	/* jiffies */
	unsigned int recent_resets;	/* since then, of the driver's own */
	char trouble[64];		/* why it did not start, for the log */
	struct ratelimit_state log_limit;

	/* Constant after probe */
	void __iomem *regs;
	phys_addr_t doorbells;
	resource_size_t doorbells_bytes;
	unsigned int stride_order;	/* of doorbell pages: 4096 << n */
	unsigned int db_pages;
	unsigned int dma_bits;
	unsigned long timeout;		/* jiffies, of handshakes and commands */
	bool cap_isolation;
	unsigned int cap_vectors;
	unsigned int nr_vectors;
	struct optinc_vector *vectors;

	struct optinc_admin admin;

	struct mutex identity_lock;	/* against readers in sysfs */
	struct optinc_identity identity;

	struct mutex contexts_lock;	/* the list; outside of ctx->lock */
	struct list_head contexts;
	struct ida db_ida;		/* doorbell pages in use */

	struct xarray groups;		/* by card's handle, for events */
	wait_queue_head_t event_wq;	/* group waits and poll() */
};

/* One open file */
struct optinc_context {
	struct optinc_device *odev;
	u32 node;			/* OPTINC_NODE_*; a control node owns nothing */
	struct list_head node_list;	/* of odev->contexts */
	struct address_space *mapping;	/* of the file; NULL when it is closed */
	struct page *dummy;		/* mapped in a dead doorbell page's place */
	pid_t pid;			/* who opened, for debugfs */

	bool dead;			/* the card was reset or removed */
	bool reaped;			/* memory was given back */
	bool orphan;			/* file is closed, the card may still reach memory */

	struct mutex lock;		/* all below; never held over user memory */
	u32 handle;			/* on the card; 0: not created yet */
	int db_page;			/* -1: none */
	struct xarray mrs;		/* by handle */
	struct list_head mr_list;	/* all that are mapped, without handle too */
	unsigned int nr_mrs;
	struct xarray qps;		/* by id */
	struct list_head qp_list;
	struct xarray groups;		/* by handle */
	struct page *page;		/* struct optinc_context_page; NULL before its first use */
	struct ida slots;		/* of its mr_stale; has a lock of its own */
};

struct optinc_mr {
	struct list_head node;
	u32 handle;
	bool writable;
	u64 length;
	u64 skip;			/* bytes of the table before the region */
	enum dma_data_direction dir;
	struct sg_table *sgt;
	bool mapped;
	/* user memory */
	struct sg_append_table pages;
	struct mm_struct *mm;
	unsigned long charged;		/* pages on mm */
	struct optinc_watch *watch;	/* with OPTINC_MR_CACHE */
	u32 slot;			/* of it */
	/* dma-buf */
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attachment;
};

struct optinc_ring {
	void *cpu;
	dma_addr_t dma;
	size_t bytes;			/* whole pages */
};

struct optinc_qp {
	struct list_head node;
	u32 id;
	u32 sq_entries;
	u32 cq_entries;
	struct optinc_ring sq;
	struct optinc_ring cq;
	struct optinc_vector *vector;	/* NULL: no eventfd */
	struct list_head vector_node;
	struct eventfd_ctx *eventfd;
};

struct optinc_group {
	struct kref ref;
	u32 handle;
	u32 nranks;
	atomic_t events;		/* grows with every event */
	bool left;
};

/* state.c */
bool optinc_online(struct optinc_device *odev);
bool optinc_alive(struct optinc_context *ctx);
int optinc_begin(struct optinc_device *odev);
int optinc_begin_pci(struct optinc_device *odev);
void optinc_end(struct optinc_device *odev, enum optinc_state state);
void optinc_quiesce(struct optinc_device *odev);
void optinc_fail(struct optinc_device *odev, const char *why);

/* recovery.c */
extern const struct pci_error_handlers optinc_err_handlers;
extern const struct dev_pm_ops optinc_pm_ops;
void optinc_recovery_init(struct optinc_device *odev);
__printf(2, 3) void optinc_trouble(struct optinc_device *odev, const char *format, ...);
int optinc_bring_up(struct optinc_device *odev);
void optinc_stop(struct optinc_device *odev);
int optinc_reset(struct optinc_device *odev, const char *why);
void optinc_health_start(struct optinc_device *odev);
void optinc_shutdown(struct pci_dev *pdev);

/* pci.c */
int optinc_pci_enable(struct optinc_device *odev);
void optinc_pci_disable(struct optinc_device *odev);
bool optinc_dma_needs_sync(struct optinc_device *odev, dma_addr_t addr);

/* regs.c */
u32 optinc_read(struct optinc_device *odev, u32 offset);
void optinc_write(struct optinc_device *odev, u32 offset, u32 value);
bool optinc_present(struct optinc_device *odev);
int optinc_hw_check(struct optinc_device *odev);
int optinc_hw_boot(struct optinc_device *odev);
int optinc_hw_reset(struct optinc_device *odev);
int optinc_hw_enable(struct optinc_device *odev);
int optinc_hw_disable(struct optinc_device *odev);

/* admin.c */
int optinc_admin_alloc(struct optinc_device *odev);
void optinc_admin_free(struct optinc_device *odev);
void optinc_admin_prepare(struct optinc_device *odev);
void optinc_admin_start(struct optinc_device *odev);
void optinc_admin_online(struct optinc_device *odev);
void optinc_admin_stop(struct optinc_device *odev);
void optinc_admin_interrupt(struct optinc_device *odev);
int optinc_admin_exec(struct optinc_device *odev, struct optinc_admin_cmd *cmd,
		      struct optinc_slot *answer);
struct optinc_buffer *optinc_buffer_alloc(struct optinc_device *odev, size_t size);
void optinc_buffer_free(struct optinc_device *odev, struct optinc_buffer *buf);
void optinc_buffer_done(struct optinc_device *odev, struct optinc_buffer *buf, int ret);
void optinc_buffers_reap(struct optinc_device *odev);

/*
 * Did the card leave a command without an answer? Then it may have obeyed it,
 * or may do so yet: what it was told of stays as it is until it is reset.
 */
static inline bool optinc_unanswered(int ret)
{
	return ret == -ETIMEDOUT || ret == -ENODEV;
}

/* command.c */
int optinc_cmd_identify(struct optinc_device *odev, struct optinc_hw_identify *id);
int optinc_cmd_port_log(struct optinc_device *odev, struct optinc_hw_port_log *log);
int optinc_cmd_ctx_create(struct optinc_device *odev, u32 db_page, u32 *ctx);
int optinc_cmd_ctx_destroy(struct optinc_device *odev, u32 ctx);
int optinc_cmd_mr_reg(struct optinc_device *odev, u32 ctx, const struct optinc_mr *mr,
		      struct optinc_buffer *list, u32 segments, u32 *handle);
int optinc_cmd_mr_dereg(struct optinc_device *odev, u32 ctx, u32 mr);
int optinc_cmd_qp_create(struct optinc_device *odev, u32 ctx, const struct optinc_qp *qp,
			 u32 *id);
int optinc_cmd_qp_destroy(struct optinc_device *odev, u32 ctx, u32 qp);
int optinc_cmd_group_join(struct optinc_device *odev, u32 ctx,
			  const struct optinc_hw_join *join, u32 *group);
int optinc_cmd_group_query(struct optinc_device *odev, u32 ctx, u32 group,
			   struct optinc_hw_group_state *state);
int optinc_cmd_group_leave(struct optinc_device *odev, u32 ctx, u32 group);
int optinc_cmd_group_abort(struct optinc_device *odev, u32 ctx, u32 group);

/* identify.c */
int optinc_identify(struct optinc_device *odev);
void optinc_refresh_lanes(struct optinc_device *odev);
bool optinc_isolates(struct optinc_device *odev);
bool optinc_may_queue(struct optinc_device *odev);

/* irq.c */
int optinc_irq_setup(struct optinc_device *odev);
void optinc_irq_teardown(struct optinc_device *odev);
void optinc_vector_attach(struct optinc_qp *qp, struct optinc_vector *vector);
void optinc_vector_detach(struct optinc_qp *qp);
struct optinc_vector *optinc_vector_choose(struct optinc_device *odev);

/* node.c */
extern struct class optinc_class;
int optinc_nodes_init(void);
void optinc_nodes_exit(void);
int optinc_nodes_prepare(struct optinc_device *odev);
int optinc_nodes_add(struct optinc_device *odev);
void optinc_nodes_del(struct optinc_device *odev);
void optinc_device_put(struct optinc_device *odev);

/* ioctl.c */
long optinc_ioctl(struct file *file, unsigned int cmd, unsigned long arg);

/* context.c */
struct optinc_context *optinc_context_alloc(struct optinc_device *odev, u32 node);
void optinc_context_free(struct optinc_context *ctx);
void optinc_context_close(struct optinc_context *ctx);
int optinc_context_create(struct optinc_context *ctx);
void optinc_contexts_kill(struct optinc_device *odev);
void optinc_contexts_reap(struct optinc_device *odev);

/* mr.c, pin.c, dmabuf.c */
int optinc_ioctl_mr_reg(struct optinc_context *ctx, void *arg);
int optinc_ioctl_mr_dereg(struct optinc_context *ctx, void *arg);
void optinc_undo_mr_reg(struct optinc_context *ctx, void *arg);
void optinc_mrs_reap(struct optinc_context *ctx);
int optinc_pin(struct optinc_context *ctx, struct optinc_mr *mr, u64 addr, bool watch);
void optinc_unpin(struct optinc_mr *mr);
#ifdef CONFIG_DMA_SHARED_BUFFER
int optinc_dmabuf_get(struct optinc_mr *mr, int fd, u64 offset);
void optinc_dmabuf_put(struct optinc_mr *mr);
int optinc_dmabuf_map(struct optinc_device *odev, struct optinc_mr *mr);
void optinc_dmabuf_unmap(struct optinc_mr *mr);
#else
static inline int optinc_dmabuf_get(struct optinc_mr *mr, int fd, u64 offset)
{
	return -EOPNOTSUPP;
}

static inline void optinc_dmabuf_put(struct optinc_mr *mr)
{
}

static inline int optinc_dmabuf_map(struct optinc_device *odev, struct optinc_mr *mr)
{
	return -EOPNOTSUPP;
}

static inline void optinc_dmabuf_unmap(struct optinc_mr *mr)
{
}
#endif

/* watch.c */
#ifdef CONFIG_MMU_NOTIFIER
struct page *optinc_context_page(struct optinc_context *ctx);
int optinc_watch(struct optinc_context *ctx, struct optinc_mr *mr, unsigned long addr,
		 unsigned long pages);
void optinc_watch_pinned(struct optinc_mr *mr);
void optinc_unwatch(struct optinc_mr *mr);
#else
static inline struct page *optinc_context_page(struct optinc_context *ctx)
{
	return NULL;
}

static inline int optinc_watch(struct optinc_context *ctx, struct optinc_mr *mr,
			       unsigned long addr, unsigned long pages)
{
	return -EOPNOTSUPP;
}

static inline void optinc_watch_pinned(struct optinc_mr *mr)
{
}

static inline void optinc_unwatch(struct optinc_mr *mr)
{
}
#endif

/* qp.c */
int optinc_ioctl_qp_create(struct optinc_context *ctx, void *arg);
int optinc_ioctl_qp_destroy(struct optinc_context *ctx, void *arg);
void optinc_undo_qp_create(struct optinc_context *ctx, void *arg);
void optinc_qps_signal(struct optinc_context *ctx);
void optinc_qps_reap(struct optinc_context *ctx);

/* mmap.c */
#define OPTINC_PGOFF_DOORBELL	1UL	/* 0 stands for none */
#define OPTINC_PGOFF_CONTEXT	6UL
#define OPTINC_PGOFF_QP_SHIFT	9	/* two rings of at most 256 pages each */
#define OPTINC_PGOFF_CQ		BIT(8)
#define OPTINC_PGOFF_QP(id)	((unsigned long)(id) << OPTINC_PGOFF_QP_SHIFT)

int optinc_mmap(struct file *file, struct vm_area_struct *vma);
void optinc_zap_doorbell(struct optinc_context *ctx);

/* group.c */
int optinc_ioctl_group_join(struct optinc_context *ctx, void *arg);
int optinc_ioctl_group_wait(struct optinc_context *ctx, void *arg);
int optinc_ioctl_group_leave(struct optinc_context *ctx, void *arg);
int optinc_ioctl_group_abort(struct optinc_context *ctx, void *arg);
void optinc_undo_group_join(struct optinc_context *ctx, void *arg);
void optinc_group_event(struct optinc_device *odev, u32 handle);
void optinc_groups_reap(struct optinc_context *ctx);

/* sysfs.c, debugfs.c */
extern const struct attribute_group *optinc_card_groups[];
void optinc_debugfs_init(void);
void optinc_debugfs_exit(void);
void optinc_debugfs_add(struct optinc_device *odev);
void optinc_debugfs_del(struct optinc_device *odev);

#endif /* _OPTINC_H */
