// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The provider for real cards: optinc.ko's device node.
 *
 * There is one provider for "card:N" and one for "pci:DDDD:BB:DD.F"; they
 * differ in how they find the node.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

const char *sysfs_class_path = "/sys/class/optinc";
const char *dev_path = "/dev/optinc";

/* The device is a file descriptor; the pointer carries it. */
static int fd_of(void *dev)
{
	return (int)(intptr_t)dev;
}

static int explain_open(struct optinc_open_error *error, const char *node, int err)
{
	switch (err) {
	case ENOENT:
		if (access(sysfs_class_path, F_OK))
			return refuse_open(error, OPTINC_REASON_NO_DRIVER, -ENOENT,
				      "the driver is not loaded: modprobe optinc");
		return refuse_open(error, OPTINC_REASON_NO_CARD, -ENOENT,
			      "there is no %s; \"optinc list\" shows the cards", node);
	case ENODEV:
	case ENXIO:
		return refuse_open(error, OPTINC_REASON_NO_CARD, -ENOENT,
			      "the card behind %s is gone", node);
	case EACCES:
	case EPERM:
		return refuse_open(error, OPTINC_REASON_NO_PERMISSION, -EACCES,
			      "no permission to open %s: add yourself to the group optinc and "
			      "log in again", node);
	case EBUSY:
		return refuse_open(error, OPTINC_REASON_BUSY, -EBUSY,
			      "%s has no room for another user", node);
	default:
		return refuse_open(error, OPTINC_REASON_CARD_FAILED, -err, "%s: %s", node,
			      strerror(err));
	}
}

static int open_node(int number, void **dev, struct optinc_open_error *error)
{
	char node[256];
	int fd;

	snprintf(node, sizeof(node), "%s/card%d", dev_path, number);
	fd = open(node, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return explain_open(error, node, errno);
	*dev = (void *)(intptr_t)fd;
	return 0;
}

/* Plain decimal digits; -1 for anything else. */
static int parse_number(const char *text)
{
	int value = 0;

	if (!*text)
		return -1;
	for (; *text; text++) {
		if (*text < '0' || *text > '9' || value > 99999)
			return -1;
		value = value * 10 + (*text - '0');
	}
	return value;
}

int sysfs_card_number(const char *name)
{
	return strncmp(name, "card", 4) ? -1 : parse_number(name + 4);
}

bool sysfs_slot(const char *name, char *slot, size_t size)
{
	char path[512], target[512];
	const char *base;
	ssize_t n;

	n = snprintf(path, sizeof(path), "%s/%s/device", sysfs_class_path, name);
	if (n < 0 || (size_t)n >= sizeof(path))
		return false;
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return false;
	target[n] = '\0';
	base = strrchr(target, '/');
	base = base ? base + 1 : target;
	if (strlen(base) >= size)
		return false;
	strcpy(slot, base);
	return true;
}

static int card_open(const char *rest, void **dev, struct optinc_open_error *error)
{
	int number = parse_number(rest);

	if (number < 0)
		return refuse_open(error, OPTINC_REASON_BAD_URI, -EINVAL,
			      "what follows \"card:\" is the number of a card");
	return open_node(number, dev, error);
}

/* "0000:03:00.0", also without the domain; in the form that sysfs has. */
static bool normalise_slot(const char *text, char *slot, size_t size)
{
	unsigned int domain = 0, bus, device, function;
	int end = 0;

	if (sscanf(text, "%4x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) != 4 ||
	    text[end]) {
		domain = 0;
		end = 0;
		if (sscanf(text, "%2x:%2x.%1x%n", &bus, &device, &function, &end) != 3 ||
		    text[end])
			return false;
	}
	if (device > 31 || function > 7)
		return false;
	snprintf(slot, size, "%04x:%02x:%02x.%x", domain, bus, device, function);
	return true;
}

/* Number of the card in this slot, or -1. */
static int find_slot(const char *slot)
{
	DIR *dir = opendir(sysfs_class_path);
	struct dirent *entry;
	int number = -1;
	char other[64];

	if (!dir)
		return -1;
	while (number < 0 && (entry = readdir(dir))) {
		if (sysfs_card_number(entry->d_name) < 0)
			continue;
		if (sysfs_slot(entry->d_name, other, sizeof(other)) && !strcmp(other, slot))
			number = sysfs_card_number(entry->d_name);
	}
	closedir(dir);
	return number;
}

static int pci_open(const char *rest, void **dev, struct optinc_open_error *error)
{
	char slot[32];
	int number;

	if (!normalise_slot(rest, slot, sizeof(slot)))
		return refuse_open(error, OPTINC_REASON_BAD_URI, -EINVAL,
			      "what follows \"pci:\" is an address like 0000:03:00.0");
	if (access(sysfs_class_path, F_OK))
		return refuse_open(error, OPTINC_REASON_NO_DRIVER, -ENOENT,
			      "the driver is not loaded: modprobe optinc");
	number = find_slot(slot);
	if (number < 0)
		return refuse_open(error, OPTINC_REASON_NO_CARD, -ENOENT,
			      "the driver has no card at %s; \"optinc list\" shows the cards",
			      slot);
	return open_node(number, dev, error);
}

static int kernel_ioctl(void *dev, unsigned long cmd, void *arg)
{
	return ioctl(fd_of(dev), cmd, arg) < 0 ? -errno : 0;
}

static void *kernel_mmap(void *dev, size_t length, int prot, uint64_t offset)
{
	return mmap(NULL, length, prot, MAP_SHARED, fd_of(dev), (off_t)offset);
}

static int kernel_munmap(void *dev, void *addr, size_t length)
{
	(void)dev;
	return munmap(addr, length);
}

/*
 * Orders stores to the rings, which are memory, before the store to the
 * doorbell, which is the card's.
 */
static inline void write_barrier(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__asm__ volatile("" ::: "memory");
#elif defined(__aarch64__)
	__asm__ volatile("dmb oshst" ::: "memory");
#elif defined(__riscv)
	__asm__ volatile("fence w, ow" ::: "memory");
#else
	__sync_synchronize();
#endif
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

static void kernel_doorbell(void *dev, void *page, uint32_t offset, uint32_t value)
{
	(void)dev;
	write_barrier();
	*(volatile uint32_t *)((char *)page + offset) = htole32(value);
}

static void kernel_relax(void *dev)
{
	(void)dev;
	relax();
}

/*
 * The card compares the index that arms it with its tail, so a completion
 * that came before the doorbell makes the descriptor readable at once.
 */
static int kernel_wait(void *dev, void *page, uint32_t qp, uint16_t cq_index, int eventfd,
		       uint64_t timeout_ns)
{
	struct timespec timeout = {
		.tv_sec = (time_t)(timeout_ns / NS_PER_S),
		.tv_nsec = (long)(timeout_ns % NS_PER_S),
	};
	struct pollfd pfd = { .fd = eventfd, .events = POLLIN };
	uint64_t count;
	int n;

	kernel_doorbell(dev, page, OPTINC_DB_CQ_ARM, OPTINC_DB_VALUE(qp, cq_index));
	n = ppoll(&pfd, 1, &timeout, NULL);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	/* Fails only if another thread was faster, and that is as good. */
	if (n > 0 && read(eventfd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return -errno;
	return 0;
}

static void kernel_close(void *dev)
{
	close(fd_of(dev));
}

#define KERNEL_OPERATIONS		\
	.abi = OPTINC_PROVIDER_ABI,	\
	.ioctl = kernel_ioctl,		\
	.mmap = kernel_mmap,		\
	.munmap = kernel_munmap,	\
	.doorbell = kernel_doorbell,	\
	.relax = kernel_relax,		\
	.wait = kernel_wait,		\
	.close = kernel_close

const struct optinc_provider optinc_provider_card = {
	.scheme = "card",
	.open = card_open,
	KERNEL_OPERATIONS,
};

const struct optinc_provider optinc_provider_pci = {
	.scheme = "pci",
	.open = pci_open,
	KERNEL_OPERATIONS,
};
