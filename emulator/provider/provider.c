// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * "emu:NAME?port=P&ports=N": what liboptinc loads. One open is one card.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <optinc/optinc.h>

#include "emulator/provider/internal.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK		18
#endif

/* DMA addresses are this process's own, and stay so for as long as a region does. */
static void *host_map(void *host, uint64_t addr, size_t length, bool write)
{
	(void)host;
	(void)length;
	(void)write;
	return (void *)(uintptr_t)addr;
}

static int host_read(void *host, uint64_t addr, void *buf, size_t length)
{
	(void)host;
	memcpy(buf, (const void *)(uintptr_t)addr, length);
	return 0;
}

static int host_write(void *host, uint64_t addr, const void *buf, size_t length)
{
	(void)host;
	memcpy((void *)(uintptr_t)addr, buf, length);
	return 0;
}

static void signal_qp(struct emu_dev *dev, struct emu_qp *qp)
{
	uint64_t one = 1;
	ssize_t n;

	if (atomic_exchange(&qp->armed, false))
		atomic_fetch_sub(&dev->armed, 1);
	/* fails only when the counter is full, and readable it is then */
	n = write(qp->eventfd, &one, sizeof(one));
	(void)n;
}

/* From within the card, so the lock is held. */
static void host_interrupt(void *host, unsigned int vector)
{
	struct emu_dev *dev = host;
	unsigned int i;

	if (vector == 0)
		dev->admin_irq = true;
	for (i = 0; i < EMU_QPS; i++) {
		struct emu_qp *qp = &dev->qps[i];

		if (atomic_load(&qp->id) && qp->eventfd >= 0 && qp->vector == vector)
			signal_qp(dev, qp);
	}
}

static const struct card_host_ops host_ops = {
	.map = host_map,
	.read = host_read,
	.write = host_write,
	.interrupt = host_interrupt,
};

static void *page(const struct emu_dev *dev, int protection)
{
	void *p = mmap(NULL, dev->page_size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* A page that a forked child finds wiped. */
static bool mark_here(struct emu_dev *dev)
{
	uint8_t *here = page(dev, PROT_READ | PROT_WRITE);

	if (!here)
		return false;
	*here = 1;
	madvise(here, dev->page_size, MADV_WIPEONFORK);
	dev->here = here;
	return true;
}

static void free_dev(struct emu_dev *dev)
{
	if (dev->here)
		munmap((void *)(uintptr_t)dev->here, dev->page_size);
	if (dev->doorbell_page)
		munmap(dev->doorbell_page, dev->page_size);
	pthread_mutex_destroy(&dev->lock);
	pthread_mutex_destroy(&dev->wait_lock);
	pthread_mutex_destroy(&dev->service_lock);
	free(dev);
}

static struct emu_dev *new_dev(void)
{
	struct emu_dev *dev = calloc(1, sizeof(*dev));
	unsigned int i;

	if (!dev)
		return NULL;
	pthread_mutex_init(&dev->lock, NULL);
	pthread_mutex_init(&dev->wait_lock, NULL);
	pthread_mutex_init(&dev->service_lock, NULL);
	dev->page_size = (size_t)sysconf(_SC_PAGESIZE);
	for (i = 0; i < EMU_QPS; i++)
		dev->qps[i].eventfd = -1;
	/* no access: a doorbell is a call here, and a store a mistake */
	dev->doorbell_page = page(dev, PROT_NONE);
	if (!dev->doorbell_page || !mark_here(dev)) {
		free_dev(dev);
		return NULL;
	}
	return dev;
}

static int fail(struct optinc_open_error *error, int rc)
{
	switch (rc) {
	case -EINVAL:
		error->reason = OPTINC_REASON_BAD_URI;
		break;
	case -EBUSY:
		error->reason = OPTINC_REASON_BUSY;
		break;
	case -EACCES:
	case -EPERM:
		error->reason = OPTINC_REASON_NO_PERMISSION;
		break;
	case -EPROTO:
		error->reason = OPTINC_REASON_VERSION;
		break;
	default:
		error->reason = OPTINC_REASON_CARD_FAILED;
	}
	if (!error->text[0])
		snprintf(error->text, sizeof(error->text), "the emulated card does not open: %s",
			 strerror(-rc));
	return rc;
}

static int start(struct emu_dev *dev, const struct card_config *config,
		 struct optinc_open_error *error)
{
	int rc;

	rc = card_new(config, &host_ops, dev, &dev->card, error->text, sizeof(error->text));
	if (rc)
		return rc;
	dev->vectors = config->vectors;
	rc = emu_start(dev, error->text, sizeof(error->text));
	if (rc) {
		emu_stop(dev);
		card_free(dev->card);
	}
	return rc;
}

static int emu_open(const char *rest, void **result, struct optinc_open_error *error)
{
	struct card_config config;
	struct emu_dev *dev;
	int rc;

	memset(error, 0, sizeof(*error));
	rc = emu_uri_parse(rest, &config, error->text, sizeof(error->text));
	if (rc)
		return fail(error, rc);
	dev = new_dev();
	if (!dev)
		return fail(error, -ENOMEM);
	rc = start(dev, &config, error);
	if (rc) {
		free_dev(dev);
		return fail(error, rc);
	}
	*result = dev;
	return 0;
}

static void arm(struct emu_dev *dev, uint32_t id)
{
	unsigned int i;

	for (i = 0; i < EMU_QPS; i++) {
		struct emu_qp *qp = &dev->qps[i];

		if (atomic_load_explicit(&qp->id, memory_order_relaxed) != id)
			continue;
		if (!atomic_exchange(&qp->armed, true))
			atomic_fetch_add(&dev->armed, 1);
		return;
	}
}

static void emu_doorbell(void *arg, void *db_page, uint32_t offset, uint32_t value)
{
	struct emu_dev *dev = arg;

	(void)db_page;
	if (!emu_here(dev))
		return;
	if (offset == OPTINC_DB_CQ_ARM)
		arm(dev, value >> 16);
	card_doorbell(dev->card, 0, offset, value);
	emu_kick(dev);
	emu_service_need(dev);
}

static int emu_wait(void *arg, void *db_page, uint32_t qp, uint16_t cq_index, int eventfd,
		    uint64_t timeout_ns)
{
	struct emu_waiter waiter = { 0 };
	struct emu_dev *dev = arg;

	(void)db_page;
	(void)eventfd;
	if (!emu_here(dev) || atomic_load(&dev->dead))
		return -ENODEV;
	waiter.rings = emu_rings_get(dev, qp);
	if (!waiter.rings)
		return -ENOENT;
	waiter.cqe = &waiter.rings->cq[cq_index & (waiter.rings->cq_entries - 1)];
	waiter.phase = !(cq_index & waiter.rings->cq_entries);
	emu_wait_for(dev, &waiter, timeout_ns);
	emu_rings_put(dev, waiter.rings);
	return atomic_load(&dev->dead) ? -ENODEV : 0;
}

static void forget_all(struct emu_dev *dev)
{
	unsigned int i;

	for (i = 0; i < EMU_QPS; i++) {
		if (atomic_load(&dev->qps[i].id))
			emu_qp_forget(dev, &dev->qps[i]);
	}
	emu_unmap_all(dev);
}

/*
 * In a forked child the card stays as it is: it is the parent's, in memory
 * that both share. The copies of what is private to it are left too, since
 * another thread may have been in the middle of them.
 */
static void emu_close(void *arg)
{
	struct emu_dev *dev = arg;

	if (!dev || !emu_here(dev))
		return;
	emu_service_stop(dev);
	emu_lock(dev);
	emu_stop(dev);
	forget_all(dev);
	emu_unlock(dev);
	card_free(dev->card);
	free_dev(dev);
}

const struct optinc_provider optinc_provider __attribute__((visibility("default"))) = {
	.abi = OPTINC_PROVIDER_ABI,
	.scheme = "emu",
	.open = emu_open,
	.ioctl = emu_ioctl,
	.mmap = emu_mmap,
	.munmap = emu_munmap,
	.doorbell = emu_doorbell,
	.relax = emu_relax,
	.wait = emu_wait,
	.close = emu_close,
};
