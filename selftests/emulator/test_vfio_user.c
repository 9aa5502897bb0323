// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The vfio-user server from the side of its client: a small one, that speaks
 * the protocol over a socket and shares memory by memfd, as QEMU does. At the
 * end a hostile one: 100,000 random changes of good messages.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "driver/optinc_hw.h"
#include "emulator/vfio-user/internal.h"

#define PATIENCE_MS	10000
#define ENTRIES		32
#define VECTORS		5
#define MUTATIONS	100000

/* What the card sees at GUEST, and where in it things lie */
#define GUEST		0x40000000ULL
#define GUEST_BYTES	(1U << 20)
#define SQ_AT		0x1000
#define CQ_AT		0x3000
#define DATA_AT		0x5000

struct client {
	struct vu_server *server;
	struct vu_waker *waker;
	pthread_t thread;
	int stop_fd, fd;
	char path[64];
	int memfd;
	uint8_t *memory;
	uint16_t id, tail;
	bool by_messages;	/* the memory is not shared: the client answers DMA */
	unsigned int dma_requests;
	_Alignas(16) uint8_t reply[VU_MAX_MESSAGE];
};

static void *run(void *server)
{
	vu_server_run(server);
	return NULL;
}

static void make_memory(struct client *c)
{
	c->memfd = memfd_create("guest", MFD_CLOEXEC);
	assert_true(c->memfd >= 0);
	assert_int_equal(ftruncate(c->memfd, GUEST_BYTES), 0);
	c->memory = mmap(NULL, GUEST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c->memfd, 0);
	assert_ptr_not_equal(c->memory, MAP_FAILED);
}

static void start(struct client *c, bool listens)
{
	struct card_config config = {
		.fabric = { .port = 0, .ports = 2 },
		.vectors = VECTORS,
	};
	static unsigned int number;
	char error[256] = "";
	int fds[2] = { -1, -1 };

	memset(c, 0, sizeof(*c));
	snprintf(config.fabric.name, sizeof(config.fabric.name), "vfio-user-%d-%u", (int)getpid(),
		 number++);
	snprintf(c->path, sizeof(c->path), "/tmp/optinc-%d-%u", (int)getpid(), number);
	c->stop_fd = eventfd(0, EFD_CLOEXEC);
	assert_int_equal(vu_waker_new(&c->waker), 0);
	assert_int_equal(vu_dma_guard(), 0);
	if (!listens)
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	if (vu_server_new(&config, listens ? c->path : NULL, fds[1], c->stop_fd, c->waker,
			  &c->server, error, sizeof(error)))
		fail_msg("%s", error);
	c->fd = fds[0];
	assert_int_equal(pthread_create(&c->thread, NULL, run, c->server), 0);
	make_memory(c);
}

static void stop(struct client *c)
{
	uint64_t one = 1;

	assert_int_equal(write(c->stop_fd, &one, sizeof(one)), sizeof(one));
	pthread_join(c->thread, NULL);
	vu_waker_free(c->waker);
	vu_server_free(c->server);
	if (c->fd >= 0)
		close(c->fd);
	close(c->stop_fd);
	munmap(c->memory, GUEST_BYTES);
	close(c->memfd);
}

static bool transmit(struct client *c, const void *message, size_t size, const int *fds, size_t n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(32 * sizeof(int))];
	} control;
	struct iovec iov = { (void *)(uintptr_t)message, size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n) {
		struct cmsghdr *header;

		memset(&control, 0, sizeof(control));
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		header = CMSG_FIRSTHDR(&msg);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(header), fds, n * sizeof(int));
	}
	return sendmsg(c->fd, &msg, MSG_NOSIGNAL) == (ssize_t)size;
}

static uint16_t ask(struct client *c, uint16_t command, const void *payload, size_t size,
		    const int *fds, size_t n)
{
	struct vu_header header = {
		.id = ++c->id, .command = command, .size = (uint32_t)(sizeof(header) + size),
	};
	uint8_t message[VU_MAX_MESSAGE];

	memcpy(message, &header, sizeof(header));
	if (size)
		memcpy(message + sizeof(header), payload, size);
	assert_true(transmit(c, message, sizeof(header) + size, fds, n));
	return header.id;
}

/* The whole of it, or false at the connection's end */
static bool take(struct client *c, void *to, size_t size)
{
	size_t have = 0;

	while (have < size) {
		struct pollfd fd = { .fd = c->fd, .events = POLLIN };
		ssize_t n;

		if (poll(&fd, 1, PATIENCE_MS) != 1)
			fail_msg("the server says nothing");
		n = recv(c->fd, (char *)to + have, size - have, 0);
		if (n <= 0)
			return false;
		have += (size_t)n;
	}
	return true;
}

/* One message from the server, in reply */
static bool listen_once(struct client *c, struct vu_header *header)
{
	if (!take(c, c->reply, sizeof(*header)))
		return false;
	memcpy(header, c->reply, sizeof(*header));
	assert_in_range(header->size, sizeof(*header), sizeof(c->reply));
	return take(c, c->reply + sizeof(*header), header->size - sizeof(*header));
}

static void answer_dma(struct client *c, const struct vu_header *request)
{
	struct vu_header header = {
		.id = request->id, .command = request->command, .flags = VU_FLAG_REPLY,
	};
	static uint8_t message[VU_MAX_MESSAGE];
	struct vu_dma_access access;
	size_t size = sizeof(header) + sizeof(access);
	bool inside;

	memcpy(&access, c->reply + sizeof(header), sizeof(access));
	inside = c->by_messages && access.addr >= GUEST && access.count <= GUEST_BYTES &&
		 access.addr - GUEST <= GUEST_BYTES - access.count;
	c->dma_requests++;
	if (!inside) {
		header.flags |= VU_FLAG_ERROR;
		header.error = EFAULT;
		size = sizeof(header);
	} else if (request->command == VU_DMA_READ) {
		memcpy(message + size, c->memory + (access.addr - GUEST), access.count);
		size += access.count;
	} else {
		memcpy(c->memory + (access.addr - GUEST), c->reply + size, access.count);
	}
	header.size = (uint32_t)size;
	memcpy(message, &header, sizeof(header));
	memcpy(message + sizeof(header), &access, sizeof(access));
	transmit(c, message, size, NULL, 0);
}

/* The answer to @id, in reply; its errno, or -1 if the connection has ended */
static int await(struct client *c, uint16_t id)
{
	struct vu_header header;

	for (;;) {
		if (!listen_once(c, &header))
			return -1;
		if (header.flags & VU_FLAG_REPLY && header.id == id)
			return header.flags & VU_FLAG_ERROR ? (int)header.error : 0;
		if (header.flags & VU_FLAG_REPLY)
			continue;
		answer_dma(c, &header);
	}
}

static int call(struct client *c, uint16_t command, const void *payload, size_t size)
{
	return await(c, ask(c, command, payload, size, NULL, 0));
}

static const void *payload(const struct client *c)
{
	return c->reply + sizeof(struct vu_header);
}

static size_t version_message(uint8_t *to, uint16_t major)
{
	static const char json[] = "{\"capabilities\":{\"max_msg_fds\":8,"
				   "\"max_data_xfer_size\":1048576}}";
	struct vu_version version = { .major = major, .minor = 1 };

	memcpy(to, &version, sizeof(version));
	memcpy(to + sizeof(version), json, sizeof(json));
	return sizeof(version) + sizeof(json);
}

static int say_version(struct client *c, uint16_t major)
{
	uint8_t message[128];

	return call(c, VU_VERSION, message, version_message(message, major));
}

static int map(struct client *c, uint64_t addr, uint64_t size, uint64_t offset, uint32_t flags,
	       int fd)
{
	const struct vu_dma_map map = {
		.argsz = sizeof(map), .flags = flags, .offset = offset, .addr = addr, .size = size,
	};

	return await(c, ask(c, VU_DMA_MAP, &map, sizeof(map), &fd, fd >= 0));
}

static int unmap(struct client *c, uint64_t addr, uint64_t size)
{
	const struct vu_dma_unmap unmap = { .argsz = sizeof(unmap), .addr = addr, .size = size };

	return call(c, VU_DMA_UNMAP, &unmap, sizeof(unmap));
}

static int read_region(struct client *c, uint32_t region, uint64_t offset, void *to, uint32_t n)
{
	const struct vu_region_access access = { .offset = offset, .region = region, .count = n };
	int rc = call(c, VU_REGION_READ, &access, sizeof(access));

	if (!rc)
		memcpy(to, (const char *)payload(c) + sizeof(access), n);
	return rc;
}

static int write_region(struct client *c, uint32_t region, uint64_t offset, const void *from,
			uint32_t n)
{
	struct vu_region_access access = { .offset = offset, .region = region, .count = n };
	uint8_t message[64];

	memcpy(message, &access, sizeof(access));
	memcpy(message + sizeof(access), from, n);
	return call(c, VU_REGION_WRITE, message, sizeof(access) + n);
}

static uint32_t get(struct client *c, uint32_t reg)
{
	uint32_t value = 0;

	assert_int_equal(read_region(c, OPTINC_BAR_REGS, reg, &value, sizeof(value)), 0);
	return value;
}

static void set(struct client *c, uint32_t reg, uint32_t value)
{
	assert_int_equal(write_region(c, OPTINC_BAR_REGS, reg, &value, sizeof(value)), 0);
}

static uint32_t config(struct client *c, uint32_t at, uint32_t n)
{
	uint32_t value = 0;

	assert_int_equal(read_region(c, VFIO_PCI_CONFIG_REGION_INDEX, at, &value, n), 0);
	return value;
}

static void set_config(struct client *c, uint32_t at, uint32_t value, uint32_t n)
{
	assert_int_equal(write_region(c, VFIO_PCI_CONFIG_REGION_INDEX, at, &value, n), 0);
}

static uint32_t capability(struct client *c, uint8_t id)
{
	uint32_t at = config(c, PCI_CAPABILITY_LIST, 1);
	int i;

	for (i = 0; at && i < 48; i++) {
		uint32_t header = config(c, at, 2);

		if ((header & 0xff) == id)
			return at;
		at = header >> 8;
	}
	return 0;
}

static int set_irqs(struct client *c, uint32_t flags, uint32_t index, uint32_t first,
		    uint32_t count, const int *fds, size_t n)
{
	const struct vfio_irq_set irqs = {
		.argsz = sizeof(irqs), .flags = flags, .index = index, .start = first,
		.count = count,
	};

	return await(c, ask(c, VU_SET_IRQS, &irqs, sizeof(irqs), fds, n));
}

#define TRIGGER_FDS	(VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD)

static void allow_master(struct client *c)
{
	set_config(c, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER, 2);
}

static uint32_t await_status(struct client *c, uint32_t mask)
{
	uint32_t status;
	int i;

	for (i = 0; i < 100000; i++) {
		status = get(c, OPTINC_REG_STATUS);
		if (status & (mask | OPTINC_STATUS_FATAL))
			return status;
	}
	fail_msg("STATUS stays %#x", status);
	return 0;
}

static uint32_t enable(struct client *c)
{
	c->tail = 0;
	memset(c->memory, 0, GUEST_BYTES);
	set(c, OPTINC_REG_ADMIN_SIZE, (ENTRIES - 1) << 16 | (ENTRIES - 1));
	set(c, OPTINC_REG_ADMIN_SQ_LO, GUEST + SQ_AT);
	set(c, OPTINC_REG_ADMIN_CQ_LO, GUEST + CQ_AT);
	set(c, OPTINC_REG_CONTROL, OPTINC_CONTROL_ENABLE);
	return await_status(c, OPTINC_STATUS_READY);
}

static void post_identify(struct client *c)
{
	const struct optinc_admin_cmd cmd = {
		.opcode = OPTINC_ADMIN_IDENTIFY,
		.cmd_id = c->tail,
		.addr = GUEST + DATA_AT,
		.length = sizeof(struct optinc_hw_identify),
	};

	memcpy(c->memory + SQ_AT + c->tail * sizeof(cmd), &cmd, sizeof(cmd));
	set(c, OPTINC_REG_ADMIN_SQ_TAIL, ++c->tail);
}

/* Looks at STATUS meanwhile, which also answers the card's DMA messages. */
static bool identify(struct client *c)
{
	const struct optinc_hw_identify *id = (void *)(c->memory + DATA_AT);
	const volatile struct optinc_admin_cqe *cqe = (void *)(c->memory + CQ_AT);
	uint32_t status;

	memset(c->memory + DATA_AT, 0, sizeof(*id));
	cqe += c->tail;
	post_identify(c);
	do {
		status = get(c, OPTINC_REG_STATUS);
	} while (status == OPTINC_STATUS_READY && !(cqe->status & 1));
	return status == OPTINC_STATUS_READY && cqe->status == 1 && id->ports == 2 &&
	       !strcmp(id->model, "OptINC emulated card");
}

static void begin(struct client *c)
{
	start(c, false);
	assert_int_equal(say_version(c, VU_MAJOR), 0);
}

static void test_version(void **state)
{
	static struct client c;
	struct vu_header header = { .id = 9, .command = VU_GET_INFO, .size = sizeof(header) };
	const struct vu_version *version;

	(void)state;
	begin(&c);
	version = payload(&c);
	assert_int_equal(version->major, VU_MAJOR);
	assert_int_equal(version->minor, VU_MINOR);
	memcpy(&header, c.reply, sizeof(header));
	assert_int_equal(c.reply[header.size - 1], 0);
	assert_non_null(strstr((const char *)(version + 1), "\"max_msg_fds\":16"));
	assert_int_equal(say_version(&c, VU_MAJOR), EINVAL);
	stop(&c);

	/* another major version, and anything before the version, end it */
	start(&c, false);
	assert_int_equal(say_version(&c, VU_MAJOR + 1), ENOTSUP);
	assert_int_equal(recv(c.fd, &header, sizeof(header), 0), 0);
	stop(&c);
	start(&c, false);
	assert_int_equal(call(&c, VU_GET_INFO, NULL, 0), EINVAL);
	assert_int_equal(recv(c.fd, &header, sizeof(header), 0), 0);
	stop(&c);
}

static uint64_t region_size(struct client *c, uint32_t index)
{
	const struct vfio_region_info *info = payload(c);
	struct vfio_region_info ask = { .argsz = sizeof(ask), .index = index };

	assert_int_equal(call(c, VU_GET_REGION_INFO, &ask, sizeof(ask)), 0);
	assert_int_equal(info->index, index);
	/* no mapping: doorbells have to stay posted messages */
	assert_int_equal(info->flags, info->size ? 3 : 0);
	return info->size;
}

static uint32_t irq_count(struct client *c, uint32_t index)
{
	const struct vfio_irq_info *info = payload(c);
	struct vfio_irq_info ask = { .argsz = sizeof(ask), .index = index };

	assert_int_equal(call(c, VU_GET_IRQ_INFO, &ask, sizeof(ask)), 0);
	assert_false(info->flags & VFIO_IRQ_INFO_NORESIZE);
	return info->count;
}

static void test_info(void **state)
{
	static struct client c;
	struct vu_device_info ask = { .argsz = sizeof(ask) };
	struct vfio_region_info bad = { .argsz = sizeof(bad), .index = VFIO_PCI_NUM_REGIONS };
	const struct vu_device_info *info = payload(&c);

	(void)state;
	begin(&c);
	assert_int_equal(call(&c, VU_GET_INFO, &ask, sizeof(ask)), 0);
	assert_int_equal(info->flags, VFIO_DEVICE_FLAGS_RESET | VFIO_DEVICE_FLAGS_PCI);
	assert_int_equal(info->regions, VFIO_PCI_NUM_REGIONS);
	assert_int_equal(region_size(&c, 0), OPTINC_BAR0_BYTES);
	assert_int_equal(region_size(&c, 1), 0);
	assert_int_equal(region_size(&c, 2), CARD_BAR2_BYTES);
	assert_int_equal(region_size(&c, 4), 4096);
	assert_int_equal(region_size(&c, VFIO_PCI_ROM_REGION_INDEX), 0);
	assert_int_equal(region_size(&c, VFIO_PCI_CONFIG_REGION_INDEX), 4096);
	assert_int_equal(call(&c, VU_GET_REGION_INFO, &bad, sizeof(bad)), EINVAL);
	assert_int_equal(call(&c, VU_GET_REGION_INFO, &bad, sizeof(bad) - 1), EINVAL);
	assert_int_equal(irq_count(&c, VFIO_PCI_INTX_IRQ_INDEX), 0);
	assert_int_equal(irq_count(&c, VFIO_PCI_MSI_IRQ_INDEX), 0);
	assert_int_equal(irq_count(&c, VFIO_PCI_MSIX_IRQ_INDEX), VECTORS);
	assert_int_equal(call(&c, VU_GET_REGION_IO_FDS, NULL, 0), ENOTSUP);
	assert_int_equal(call(&c, 0xffff, NULL, 0), ENOTSUP);
	stop(&c);
}

static void test_config_walk(void **state)
{
	static struct client c;
	uint32_t pm, msix, express;

	(void)state;
	begin(&c);
	assert_int_equal(config(&c, PCI_VENDOR_ID, 4),
			 OPTINC_PCI_DEVICE_EMU << 16 | OPTINC_PCI_VENDOR_EMU);
	assert_int_equal(config(&c, PCI_CLASS_REVISION, 4) >> 8, OPTINC_PCI_CLASS);
	assert_int_equal(config(&c, PCI_SUBSYSTEM_VENDOR_ID, 4),
			 OPTINC_PCI_SUBDEVICE_EMU << 16 | OPTINC_PCI_SUBVENDOR_EMU);
	assert_int_equal(config(&c, PCI_INTERRUPT_PIN, 1), 0);
	pm = capability(&c, PCI_CAP_ID_PM);
	msix = capability(&c, PCI_CAP_ID_MSIX);
	express = capability(&c, PCI_CAP_ID_EXP);
	assert_true(pm && msix && express);
	assert_int_equal(config(&c, msix + PCI_MSIX_FLAGS, 2), VECTORS - 1);
	assert_int_equal(config(&c, msix + PCI_MSIX_TABLE, 4), OPTINC_BAR_MSIX);
	assert_true(config(&c, express + PCI_EXP_DEVCAP, 4) & PCI_EXP_DEVCAP_FLR);
	assert_int_equal(config(&c, 0x100, 4), PCI_EXT_CAP_ID_ERR | 2 << 16);
	stop(&c);
}

static void test_config_writes(void **state)
{
	static struct client c;
	uint32_t pm, express;

	(void)state;
	begin(&c);
	pm = capability(&c, PCI_CAP_ID_PM);
	express = capability(&c, PCI_CAP_ID_EXP);
	/* sizing */
	set_config(&c, PCI_BASE_ADDRESS_0, UINT32_MAX, 4);
	assert_int_equal(config(&c, PCI_BASE_ADDRESS_0, 4),
			 (uint32_t)-OPTINC_BAR0_BYTES | PCI_BASE_ADDRESS_MEM_TYPE_64);
	set_config(&c, PCI_BASE_ADDRESS_2, UINT32_MAX, 4);
	assert_int_equal(config(&c, PCI_BASE_ADDRESS_2, 4),
			 (uint32_t)-CARD_BAR2_BYTES | PCI_BASE_ADDRESS_MEM_TYPE_64);
	/* read only */
	set_config(&c, PCI_VENDOR_ID, 0, 4);
	assert_int_equal(config(&c, PCI_VENDOR_ID, 2), OPTINC_PCI_VENDOR_EMU);
	set_config(&c, PCI_BASE_ADDRESS_1 + 0x10, UINT32_MAX, 4);
	/* D3hot and back; there is no D1 */
	set_config(&c, pm + PCI_PM_CTRL, 3, 2);
	assert_int_equal(config(&c, pm + PCI_PM_CTRL, 2) & PCI_PM_CTRL_STATE_MASK, 3);
	set_config(&c, pm + PCI_PM_CTRL, 1, 2);
	assert_int_equal(config(&c, pm + PCI_PM_CTRL, 2) & PCI_PM_CTRL_STATE_MASK, 3);
	set_config(&c, pm + PCI_PM_CTRL, 0, 2);
	assert_int_equal(config(&c, pm + PCI_PM_CTRL, 2) & PCI_PM_CTRL_STATE_MASK, 0);
	/* a function-level reset: BARs and command go, AER's masks and payload size stay */
	allow_master(&c);
	set_config(&c, 0x100 + PCI_ERR_UNCOR_MASK, PCI_ERR_UNC_UNSUP, 4);
	set_config(&c, express + PCI_EXP_DEVCTL,
		   PCI_EXP_DEVCTL_BCR_FLR | PCI_EXP_DEVCTL_PAYLOAD_256B | PCI_EXP_DEVCTL_FERE, 2);
	assert_int_equal(config(&c, PCI_COMMAND, 2), 0);
	assert_int_equal(config(&c, PCI_BASE_ADDRESS_0, 4), PCI_BASE_ADDRESS_MEM_TYPE_64);
	assert_int_equal(config(&c, 0x100 + PCI_ERR_UNCOR_MASK, 4), PCI_ERR_UNC_UNSUP);
	assert_int_equal(config(&c, express + PCI_EXP_DEVCTL, 2) &
			 (PCI_EXP_DEVCTL_BCR_FLR | PCI_EXP_DEVCTL_PAYLOAD | PCI_EXP_DEVCTL_FERE),
			 PCI_EXP_DEVCTL_PAYLOAD_256B);
	stop(&c);
}

static void test_regions(void **state)
{
	static struct client c;
	const struct vu_region_access huge = { .offset = 0, .region = 7, .count = UINT32_MAX };
	struct {
		uint64_t n;
		struct vu_write_one one[3];
	} multi = {
		3, { { OPTINC_REG_ADMIN_SQ_LO, 0, 4, { 0x00, 0x10 } },
		     { OPTINC_REG_ADMIN_SQ_HI, 0, 4, { 7 } },
		     { OPTINC_REG_ADMIN_CQ_HI, 0, 4, { 9 } } },
	};
	uint8_t bytes[64];
	uint64_t wide;

	(void)state;
	begin(&c);
	assert_int_equal(get(&c, OPTINC_REG_MAGIC), OPTINC_MAGIC);
	assert_int_equal(read_region(&c, 0, 0, &wide, 8), 0);
	assert_int_equal(wide, 0);		/* of the wrong width */
	assert_int_equal(read_region(&c, 0, 2, bytes, 4), 0);
	assert_int_equal(bytes[0] | bytes[1] | bytes[2] | bytes[3], 0);
	assert_int_equal(read_region(&c, 0, OPTINC_BAR0_BYTES - 3, bytes, 4), EINVAL);
	assert_int_equal(read_region(&c, 0, UINT64_MAX, bytes, 4), EINVAL);
	assert_int_equal(read_region(&c, 1, 0, bytes, 4), EINVAL);
	assert_int_equal(read_region(&c, 99, 0, bytes, 4), EINVAL);
	assert_int_equal(write_region(&c, 7, 4095, bytes, 4), EINVAL);
	assert_int_equal(call(&c, VU_REGION_READ, &huge, sizeof(huge)), EINVAL);
	/* the MSI-X table is memory, the pending bits are not */
	memset(bytes, 0xa5, sizeof(bytes));
	assert_int_equal(write_region(&c, 4, (VECTORS - 1) * 16, bytes, 32), 0);
	assert_int_equal(read_region(&c, 4, (VECTORS - 1) * 16, bytes, 32), 0);
	assert_int_equal(bytes[15], 0xa5);
	assert_int_equal(bytes[16], 0);
	/* several writes in one message; all or none */
	assert_int_equal(call(&c, VU_REGION_WRITE_MULTI, &multi, sizeof(multi)), 0);
	assert_int_equal(get(&c, OPTINC_REG_ADMIN_SQ_LO), 0x1000);
	assert_int_equal(get(&c, OPTINC_REG_ADMIN_SQ_HI), 7);
	multi.one[0].data[1] = 0x20;
	/* one more than the message has; what came last lies behind it */
	assert_int_equal(call(&c, VU_REGION_WRITE_MULTI, &multi,
			      sizeof(multi) - sizeof(multi.one[0])), EINVAL);
	multi.one[1].count = 9;
	assert_int_equal(call(&c, VU_REGION_WRITE_MULTI, &multi, sizeof(multi)), EINVAL);
	assert_int_equal(get(&c, OPTINC_REG_ADMIN_SQ_LO), 0x1000);
	multi.n = UINT64_MAX / sizeof(multi.one[0]);
	assert_int_equal(call(&c, VU_REGION_WRITE_MULTI, &multi, sizeof(multi)), EINVAL);
	stop(&c);
}

static void test_maps(void **state)
{
	static struct client c;
	int pipes[2];

	(void)state;
	begin(&c);
	assert_int_equal(map(&c, GUEST, 0x4000, 0, 3, c.memfd), 0);
	assert_int_equal(map(&c, GUEST + 0x3000, 0x1000, 0, 3, c.memfd), EEXIST);
	assert_int_equal(map(&c, GUEST - 0x1000, 0x10000, 0, 3, -1), EEXIST);
	assert_int_equal(map(&c, GUEST + 0x4000, 0x1000, 0x4000, 3, c.memfd), 0);
	assert_int_equal(map(&c, 0, 0, 0, 3, c.memfd), EINVAL);
	assert_int_equal(map(&c, 0, 0x1000, 0, 0, c.memfd), EINVAL);
	assert_int_equal(map(&c, 0, 0x1000, 0, 8 | 3, c.memfd), EINVAL);
	assert_int_equal(map(&c, UINT64_MAX - 0xfff, 0x2000, 0, 3, -1), EINVAL);
	assert_int_equal(map(&c, UINT64_MAX - 0xfff, 0x1000, 0, 3, -1), 0);
	/* not beyond the file's end, and only of a file */
	assert_int_equal(map(&c, 0, GUEST_BYTES + 1, 0, 3, c.memfd), EINVAL);
	assert_int_equal(map(&c, 0, 0x1000, GUEST_BYTES, 3, c.memfd), EINVAL);
	assert_int_equal(map(&c, 0, 0x1000, UINT64_MAX - 0xfff, 3, c.memfd), EINVAL);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(map(&c, 0, 0x1000, 0, 3, pipes[0]), EINVAL);
	close(pipes[0]);
	close(pipes[1]);
	/* of what is there or not, but not of a part of a map */
	assert_int_equal(unmap(&c, GUEST, 0x1000), EINVAL);
	assert_int_equal(unmap(&c, GUEST + 0x1000, 0x4000), EINVAL);
	assert_int_equal(unmap(&c, GUEST - 0x1000, 0x10000), 0);
	assert_int_equal(unmap(&c, GUEST - 0x1000, 0x10000), 0);
	assert_int_equal(unmap(&c, 0, 0), EINVAL);
	assert_int_equal(unmap(&c, UINT64_MAX, 2), EINVAL);
	assert_int_equal(map(&c, GUEST, GUEST_BYTES, 0, 3, c.memfd), 0);
	stop(&c);
}

static void expect_interrupts(int fd, uint64_t least)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t n = 0;

	if (least) {
		assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
		assert_int_equal(read(fd, &n, sizeof(n)), sizeof(n));
	}
	assert_true(n >= least);
	assert_int_equal(poll(&p, 1, 0), 0);
}

static void enable_msix(struct client *c)
{
	set_config(c, capability(c, PCI_CAP_ID_MSIX) + PCI_MSIX_FLAGS, PCI_MSIX_FLAGS_ENABLE, 2);
}

static void test_identify(void **state)
{
	static struct client c;
	int vector = eventfd(0, EFD_NONBLOCK), i;

	(void)state;
	begin(&c);
	assert_int_equal(map(&c, GUEST, GUEST_BYTES, 0, 3, c.memfd), 0);
	assert_int_equal(set_irqs(&c, TRIGGER_FDS, VFIO_PCI_MSIX_IRQ_INDEX, 0, 1, &vector, 1), 0);
	allow_master(&c);
	assert_int_equal(enable(&c), OPTINC_STATUS_READY);
	assert_true(identify(&c));
	/* not enabled in the capability yet: no message */
	expect_interrupts(vector, 0);
	enable_msix(&c);
	for (i = 0; i < 3; i++)
		assert_true(identify(&c));
	expect_interrupts(vector, 1);
	assert_int_equal(c.dma_requests, 0);
	/* no DMA without bus mastering: the card cannot go on */
	set_config(&c, PCI_COMMAND, PCI_COMMAND_MEMORY, 2);
	assert_false(identify(&c));
	assert_int_equal(await_status(&c, 0), OPTINC_STATUS_FATAL | OPTINC_FATAL_DMA << 8);
	expect_interrupts(vector, 0);
	stop(&c);
	close(vector);
}

/* Rings and data reach over maps of different files, one of them not shared. */
static void test_identify_split(void **state)
{
	static struct client c;
	uint64_t at, cut = 0x400;

	(void)state;
	begin(&c);
	c.by_messages = true;
	for (at = 0; at < 0x8000; at += cut) {
		bool shared = at / cut % 3;

		assert_int_equal(map(&c, GUEST + at, cut, at, 3, shared ? c.memfd : -1), 0);
	}
	allow_master(&c);
	assert_int_equal(enable(&c), OPTINC_STATUS_READY);
	while (c.tail < ENTRIES - 1)
		assert_true(identify(&c));
	assert_true(c.dma_requests > 0);
	stop(&c);
}

static void test_identify_by_messages(void **state)
{
	static struct client c;

	(void)state;
	begin(&c);
	c.by_messages = true;
	assert_int_equal(map(&c, GUEST, GUEST_BYTES, 0, 3, -1), 0);
	allow_master(&c);
	assert_int_equal(enable(&c), OPTINC_STATUS_READY);
	while (c.tail < ENTRIES - 1)
		assert_true(identify(&c));
	assert_true(c.dma_requests >= 3 * (ENTRIES - 1));
	stop(&c);
}

/* A completion ring that may only be read */
static void test_read_only(void **state)
{
	static struct client c;

	(void)state;
	begin(&c);
	assert_int_equal(map(&c, GUEST, 0x3000, 0, 3, c.memfd), 0);
	assert_int_equal(map(&c, GUEST + 0x3000, 0x1000, 0x3000, 1, c.memfd), 0);
	assert_int_equal(map(&c, GUEST + 0x4000, 0x4000, 0x4000, 3, c.memfd), 0);
	allow_master(&c);
	if (enable(&c) == OPTINC_STATUS_READY)
		assert_false(identify(&c));
	assert_true(get(&c, OPTINC_REG_STATUS) & OPTINC_STATUS_FATAL);
	stop(&c);
}

/* The server's next message that is not a reply */
static struct vu_header await_request(struct client *c)
{
	struct vu_header header;

	do {
		assert_true(listen_once(c, &header));
	} while (header.flags & VU_FLAG_REPLY);
	return header;
}

/*
 * A write that makes the card ask for memory is answered before it asks; and
 * while it waits for the memory, requests are answered: a client that waits
 * for either must not wait for ever.
 */
static void test_order(void **state)
{
	static struct client c;
	struct vu_header request;

	(void)state;
	begin(&c);
	c.by_messages = true;
	assert_int_equal(map(&c, GUEST, GUEST_BYTES, 0, 3, -1), 0);
	allow_master(&c);
	assert_int_equal(enable(&c), OPTINC_STATUS_READY);
	post_identify(&c);
	/* set() has had its answer, and nothing else has come before it */
	request = await_request(&c);
	assert_int_equal(request.command, VU_DMA_READ);
	{
		uint8_t kept[sizeof(c.reply)];
		uint16_t id;
		const struct vu_region_access access = { .count = 4 };
		struct vu_header header;

		memcpy(kept, c.reply, sizeof(kept));
		id = ask(&c, VU_REGION_READ, &access, sizeof(access), NULL, 0);
		assert_true(listen_once(&c, &header));
		assert_int_equal(header.id, id);
		assert_int_equal(header.flags, VU_FLAG_REPLY);
		memcpy(c.reply, kept, sizeof(kept));
	}
	answer_dma(&c, &request);
	while (!(((volatile struct optinc_admin_cqe *)(c.memory + CQ_AT))->status & 1))
		assert_int_equal(get(&c, OPTINC_REG_STATUS), OPTINC_STATUS_READY);
	stop(&c);
}

static void check_disabled(struct client *c)
{
	uint32_t status;

	do {
		status = get(c, OPTINC_REG_STATUS);
	} while (status & OPTINC_STATUS_RESETTING);
	assert_int_equal(status, 0);
	assert_int_equal(get(c, OPTINC_REG_CONTROL), 0);
}

enum reset_kind { FUNCTION_LEVEL, BUS, REGISTER, RESETS };

static void reset(struct client *c, enum reset_kind kind)
{
	switch (kind) {
	case FUNCTION_LEVEL:
		set_config(c, capability(c, PCI_CAP_ID_EXP) + PCI_EXP_DEVCTL,
			   PCI_EXP_DEVCTL_BCR_FLR, 2);
		break;
	case BUS:
		assert_int_equal(call(c, VU_DEVICE_RESET, NULL, 0), 0);
		break;
	default:
		set(c, OPTINC_REG_RESET, OPTINC_RESET_KEY);
	}
}

static void test_resets(void **state)
{
	static struct client c;
	enum reset_kind kind;

	(void)state;
	begin(&c);
	assert_int_equal(map(&c, GUEST, GUEST_BYTES, 0, 3, c.memfd), 0);
	for (kind = FUNCTION_LEVEL; kind < RESETS; kind++) {
		allow_master(&c);
		assert_int_equal(enable(&c), OPTINC_STATUS_READY);
		assert_true(identify(&c));
		reset(&c, kind);
		check_disabled(&c);
		assert_int_equal(config(&c, PCI_COMMAND, 2),
				 kind == REGISTER ? PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER : 0);
	}
	stop(&c);
}

/* A reset while the card waits for memory: what comes then has no effect. */
/* All is ones, nothing is done; back, it is as after power-on. */
static void test_pulled(void **state)
{
	static struct client c;
	int tries;

	(void)state;
	begin(&c);
	assert_int_equal(map(&c, GUEST, GUEST_BYTES, 0, 3, c.memfd), 0);
	allow_master(&c);
	assert_int_equal(enable(&c), OPTINC_STATUS_READY);
	vu_server_pull(c.server, 1);
	for (tries = 0; get(&c, OPTINC_REG_MAGIC) != ~0U && tries < 1000; tries++)
		usleep(1000);
	assert_int_equal(get(&c, OPTINC_REG_STATUS), ~0U);
	assert_int_equal(config(&c, PCI_VENDOR_ID, 4), ~0U);
	post_identify(&c);
	usleep(20000);
	assert_int_equal(((struct optinc_admin_cqe *)(c.memory + CQ_AT))->status, 0);
	vu_server_pull(c.server, 0);
	for (tries = 0; get(&c, OPTINC_REG_MAGIC) == ~0U && tries < 1000; tries++)
		usleep(1000);
	assert_int_equal(get(&c, OPTINC_REG_MAGIC), OPTINC_MAGIC);
	check_disabled(&c);
	assert_int_equal(config(&c, PCI_COMMAND, 2), 0);
	allow_master(&c);
	assert_int_equal(enable(&c), OPTINC_STATUS_READY);
	assert_true(identify(&c));
	stop(&c);
}

static void test_resets_in_step(void **state)
{
	static struct client c;
	enum reset_kind kind;

	(void)state;
	begin(&c);
	c.by_messages = true;
	assert_int_equal(map(&c, GUEST, GUEST_BYTES, 0, 3, -1), 0);
	for (kind = FUNCTION_LEVEL; kind < RESETS; kind++) {
		struct vu_header request;
		uint8_t kept[sizeof(c.reply)];

		allow_master(&c);
		assert_int_equal(enable(&c), OPTINC_STATUS_READY);
		post_identify(&c);
		request = await_request(&c);
		memcpy(kept, c.reply, sizeof(kept));
		reset(&c, kind);
		memcpy(c.reply, kept, sizeof(kept));
		answer_dma(&c, &request);
		c.dma_requests = 0;
		check_disabled(&c);
		assert_int_equal(c.dma_requests, 0);
		assert_int_equal(((struct optinc_admin_cqe *)(c.memory + CQ_AT))->status, 0);
	}
	allow_master(&c);
	assert_int_equal(enable(&c), OPTINC_STATUS_READY);
	assert_true(identify(&c));
	stop(&c);
}

/* Memory taken back while the card is at work on it, in a step that takes long */
static void test_unmap_in_step(void **state)
{
	static struct client c;
	struct vu_header request;
	uint8_t kept[sizeof(c.reply)];

	(void)state;
	begin(&c);
	c.by_messages = true;
	assert_int_equal(map(&c, GUEST, DATA_AT, 0, 3, c.memfd), 0);
	assert_int_equal(map(&c, GUEST + DATA_AT, 0x1000, 0, 3, -1), 0);
	allow_master(&c);
	assert_int_equal(enable(&c), OPTINC_STATUS_READY);
	post_identify(&c);
	request = await_request(&c);
	assert_int_equal(request.command, VU_DMA_WRITE);
	memcpy(kept, c.reply, sizeof(kept));
	assert_int_equal(unmap(&c, GUEST, DATA_AT), 0);
	memcpy(c.reply, kept, sizeof(kept));
	answer_dma(&c, &request);
	assert_true(await_status(&c, 0) & OPTINC_STATUS_FATAL);
	assert_int_equal(((struct optinc_admin_cqe *)(c.memory + CQ_AT))->status, 0);
	stop(&c);
}

/* A pointer that the card has stays good until its step ends, then it goes. */
static void test_pointers_in_step(void **state)
{
	struct card_config config = { .fabric = { .ports = 2 }, .vectors = 1 };
	const struct vu_dma_map map = {
		.argsz = sizeof(map), .flags = 3, .addr = GUEST, .size = GUEST_BYTES,
	};
	struct vu_server *server;
	static struct client c;
	char error[256];
	uint8_t *p;

	(void)state;
	make_memory(&c);
	snprintf(config.fabric.name, sizeof(config.fabric.name), "vfio-user-%d", (int)getpid());
	assert_int_equal(vu_server_new(&config, NULL, c.memfd, -1, NULL, &server, error,
				       sizeof(error)), 0);
	server->space.bytes[PCI_COMMAND] = PCI_COMMAND_MASTER;
	assert_int_equal(vu_dma_map(server, &map, c.memfd), 0);
	server->stepping = true;
	p = vu_host_ops.map(server, GUEST + 0x1000, 16, true);
	assert_non_null(p);
	p[0] = 1;
	assert_int_equal(vu_dma_unmap(server, GUEST, GUEST_BYTES), 0);
	p[0] = 2;
	assert_int_equal(c.memory[0x1000], 1);
	assert_null(vu_host_ops.map(server, GUEST + 0x1000, 16, true));
	server->stepping = false;
	vu_dma_reap(server);
	assert_int_equal(msync(p - 0x1000, 4096, MS_ASYNC), -1);
	vu_server_free(server);		/* closes memfd, its "connection" */
	munmap(c.memory, GUEST_BYTES);
}

static void test_irqs(void **state)
{
	static struct client c;
	const struct vfio_irq_set set = {
		.argsz = sizeof(set) + VECTORS, .index = VFIO_PCI_MSIX_IRQ_INDEX, .start = 0,
		.count = VECTORS,
		.flags = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_BOOL,
	};
	static const uint8_t wanted[VECTORS] = { 0, 1, 0, 1, 0 };
	uint8_t some[sizeof(set) + VECTORS];
	int fds[VECTORS], i;
	const uint32_t msix = VFIO_PCI_MSIX_IRQ_INDEX;

	(void)state;
	begin(&c);
	memcpy(some, &set, sizeof(set));
	memcpy(some + sizeof(set), wanted, sizeof(wanted));
	for (i = 0; i < VECTORS; i++)
		fds[i] = eventfd(0, EFD_NONBLOCK);
	/* as QEMU does it: one without an fd, then one by one */
	assert_int_equal(set_irqs(&c, TRIGGER_FDS, msix, 0, 1, NULL, 0), 0);
	for (i = 0; i < VECTORS; i++)
		assert_int_equal(set_irqs(&c, TRIGGER_FDS, msix, (uint32_t)i, 1, &fds[i], 1), 0);
	assert_int_equal(call(&c, VU_SET_IRQS, some, sizeof(some)), 0);
	for (i = 0; i < VECTORS; i++)
		expect_interrupts(fds[i], wanted[i]);
	assert_int_equal(call(&c, VU_SET_IRQS, some, sizeof(some) - 1), EINVAL);
	assert_int_equal(set_irqs(&c, TRIGGER_FDS, msix, VECTORS - 1, 2, fds, 2), EINVAL);
	assert_int_equal(set_irqs(&c, TRIGGER_FDS, msix, UINT32_MAX, 2, fds, 2), EINVAL);
	assert_int_equal(set_irqs(&c, TRIGGER_FDS, msix, 0, 3, fds, 2), EINVAL);
	assert_int_equal(set_irqs(&c, TRIGGER_FDS, VFIO_PCI_INTX_IRQ_INDEX, 0, 1, fds, 1), EINVAL);
	assert_int_equal(set_irqs(&c, VFIO_IRQ_SET_ACTION_MASK | VFIO_IRQ_SET_DATA_NONE, msix, 0,
				  1, NULL, 0), ENOTSUP);
	/* all off */
	assert_int_equal(set_irqs(&c, VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_NONE, msix,
				  0, 0, NULL, 0), 0);
	assert_int_equal(call(&c, VU_SET_IRQS, some, sizeof(some)), 0);
	for (i = 0; i < VECTORS; i++) {
		expect_interrupts(fds[i], 0);
		close(fds[i]);
	}
	stop(&c);
}

static void test_doorbell_width(void **state)
{
	static struct client c;
	uint64_t value = 0;

	(void)state;
	begin(&c);
	assert_int_equal(map(&c, GUEST, GUEST_BYTES, 0, 3, c.memfd), 0);
	allow_master(&c);
	assert_int_equal(enable(&c), OPTINC_STATUS_READY);
	assert_int_equal(write_region(&c, 2, 0, &value, 8), 0);
	assert_int_equal(write_region(&c, 2, 2, &value, 4), 0);
	assert_int_equal(write_region(&c, 2, 4096 * 3 + OPTINC_DB_CQ_ARM, &value, 4), 0);
	assert_int_equal(write_region(&c, 2, CARD_BAR2_BYTES - 4, &value, 4), 0);
	assert_int_equal(get(&c, OPTINC_REG_DB_DROPPED), 4);
	assert_int_equal(read_region(&c, 2, 0, &value, 4), 0);
	assert_int_equal(value, 0);
	stop(&c);
}

/* The file is cut short behind the card's mapping: the card and its process live. */
static void test_file_cut(void **state)
{
	static struct client c;
	struct vu_header header;

	(void)state;
	begin(&c);
	assert_int_equal(map(&c, GUEST, GUEST_BYTES, 0, 3, c.memfd), 0);
	allow_master(&c);
	assert_int_equal(enable(&c), OPTINC_STATUS_READY);
	assert_int_equal(ftruncate(c.memfd, 0), 0);
	set(&c, OPTINC_REG_ADMIN_SQ_TAIL, 1);
	while (listen_once(&c, &header))
		;
	stop(&c);
}

static void connect_to(struct client *c)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", c->path);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(c->fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
}

static void test_reconnect(void **state)
{
	static struct client c;
	struct stat st;
	int first, round;
	char byte;

	(void)state;
	start(&c, true);
	assert_int_equal(stat(c.path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	for (round = 0; round < 3; round++) {
		connect_to(&c);
		assert_int_equal(say_version(&c, VU_MAJOR), 0);
		/* nothing is left of the last client */
		check_disabled(&c);
		assert_int_equal(config(&c, PCI_COMMAND, 2), 0);
		assert_int_equal(map(&c, GUEST, GUEST_BYTES, 0, 3, c.memfd), 0);
		allow_master(&c);
		assert_int_equal(enable(&c), OPTINC_STATUS_READY);
		assert_true(identify(&c));
		/* another is turned away while there is one */
		first = c.fd;
		connect_to(&c);
		assert_int_equal(recv(c.fd, &byte, 1, 0), 0);
		close(c.fd);
		c.fd = first;
		assert_true(identify(&c));
		close(c.fd);
	}
	c.fd = -1;
	stop(&c);
	assert_int_equal(access(c.path, F_OK), -1);
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

/* A card that nobody uses costs nothing, enabled or not. */
static void test_idle(void **state)
{
	static struct client c;
	uint64_t before;

	(void)state;
	begin(&c);
	before = cpu_ns();
	usleep(300000);
	assert_in_range(cpu_ns() - before, 0, 3000000);
	assert_int_equal(map(&c, GUEST, GUEST_BYTES, 0, 3, c.memfd), 0);
	allow_master(&c);
	assert_int_equal(enable(&c), OPTINC_STATUS_READY);
	usleep(2500000);
	before = cpu_ns();
	usleep(500000);
	assert_in_range(cpu_ns() - before, 0, 25000000);
	stop(&c);
}

/* ---- the hostile client ---- */

static uint64_t random_state;

static uint64_t draw(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static uint32_t below(uint32_t n)
{
	return (uint32_t)(draw() % n);
}

struct message {
	uint8_t bytes[512];
	size_t size;
};

static void build(struct message *m, uint16_t command, const void *body, size_t size)
{
	struct vu_header header = { .id = 1, .command = command };

	header.size = (uint32_t)(sizeof(header) + size);
	memcpy(m->bytes, &header, sizeof(header));
	if (size)
		memcpy(m->bytes + sizeof(header), body, size);
	m->size = header.size;
}

static void build_write(struct message *m, uint32_t region, uint64_t offset, uint64_t value,
			uint32_t count)
{
	uint8_t body[sizeof(struct vu_region_access) + 8];
	const struct vu_region_access access = {
		.region = region, .offset = offset, .count = count,
	};

	memcpy(body, &access, sizeof(access));
	memcpy(body + sizeof(access), &value, 8);
	build(m, VU_REGION_WRITE, body, sizeof(access) + count);
}

static void build_enable(struct message *m)
{
	const struct {
		uint64_t n;
		struct vu_write_one one[8];
	} multi = {
		8, {
			{ PCI_COMMAND, 7, 2, { PCI_COMMAND_MASTER } },
			{ OPTINC_REG_ADMIN_SIZE, 0, 4, { ENTRIES - 1, 0, ENTRIES - 1 } },
			{ OPTINC_REG_ADMIN_SQ_LO, 0, 4, { 0, SQ_AT >> 8, 0, GUEST >> 24 } },
			{ OPTINC_REG_ADMIN_CQ_LO, 0, 4, { 0, CQ_AT >> 8, 0, GUEST >> 24 } },
			{ OPTINC_REG_CONTROL, 0, 4, { 1 } },
			{ OPTINC_REG_ADMIN_SQ_TAIL, 0, 4, { 1 } },
			{ 0, 2, 4, { 1, 0, 1 } },
			{ OPTINC_REG_ADMIN_SQ_TAIL, 0, 4, { 5 } },
		},
	};

	build(m, VU_REGION_WRITE_MULTI, &multi, sizeof(multi));
}

/* A good message, of any kind, and what fds go with it */
static size_t good_message(struct client *c, struct message *m, int *fds)
{
	const struct vu_dma_map map = {
		.argsz = sizeof(map), .flags = 3, .size = 0x1000 << below(9),
		.addr = GUEST + 0x1000 * below(4),
	};
	const struct vu_dma_unmap unmap = { .argsz = sizeof(unmap), .addr = 0, .size = 1ULL << 62 };
	const struct vfio_irq_set irqs = {
		.argsz = sizeof(irqs), .flags = TRIGGER_FDS, .index = VFIO_PCI_MSIX_IRQ_INDEX,
		.start = below(VECTORS), .count = 1,
	};
	const struct vu_region_access access = {
		.region = below(9), .offset = 4 * below(64), .count = 1U << below(4),
	};
	const struct vfio_region_info info = { .argsz = sizeof(info), .index = below(9) };
	const struct vu_header answer = {
		.id = (uint16_t)below(4), .command = VU_DMA_READ + (uint16_t)below(2),
		.flags = VU_FLAG_REPLY, .size = sizeof(answer),
	};
	uint8_t version[128];

	switch (below(14)) {
	case 0:
		build(m, VU_VERSION, version, version_message(version, VU_MAJOR));
		return 0;
	case 1:
	case 2:
		build(m, VU_DMA_MAP, &map, sizeof(map));
		fds[0] = c->memfd;
		return below(4) ? 1 : 0;
	case 3:
		build(m, VU_DMA_UNMAP, &unmap, sizeof(unmap));
		return 0;
	case 4:
		build(m, VU_SET_IRQS, &irqs, sizeof(irqs));
		fds[0] = c->stop_fd + 1;	/* replaced below */
		return 1;
	case 5:
		build(m, VU_REGION_READ, &access, sizeof(access));
		return 0;
	case 6:
		build_write(m, 0, 4 * below(24), draw(), 4);
		return 0;
	case 7:
		build_write(m, VFIO_PCI_CONFIG_REGION_INDEX, below(0x140), draw(),
			    1U << below(4));
		return 0;
	case 8:
		build_write(m, 2, 4 * below(3) + 4096 * below(1024), draw(), 4);
		return 0;
	case 9:
		build(m, VU_GET_REGION_INFO, &info, sizeof(info));
		return 0;
	case 10:
		build(m, VU_GET_IRQ_INFO, &info, sizeof(struct vfio_irq_info));
		return 0;
	case 11:
		build(m, VU_DEVICE_RESET, NULL, 0);
		return 0;
	case 12:
		memcpy(m->bytes, &answer, sizeof(answer));
		m->size = sizeof(answer);
		return 0;
	default:
		build_enable(m);
		return 0;
	}
}

static void mutate(struct message *m)
{
	static const uint32_t telling[] = {
		0, 1, 4, 15, 16, 17, 31, 32, 0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff,
		VU_MAX_MESSAGE, VU_MAX_MESSAGE + 1, 4096,
	};
	uint32_t n = below(4), size, i;

	for (i = 0; i < n; i++) {
		size_t at = below((uint32_t)m->size);

		switch (below(4)) {
		case 0:
			m->bytes[at] ^= (uint8_t)(1U << below(8));
			break;
		case 1:
			m->bytes[at] = (uint8_t)draw();
			break;
		default:
			at &= ~(size_t)3;
			if (at + 4 <= m->size)
				memcpy(m->bytes + at, &telling[below(15)], 4);
		}
	}
	switch (below(8)) {
	case 0:
		m->size = 1 + below((uint32_t)m->size);
		break;
	case 1:
		m->size = m->size + below((uint32_t)(sizeof(m->bytes) - m->size));
		break;
	}
	/* most of them shall reach what is behind the check of the length */
	if (below(8) && m->size >= sizeof(struct vu_header)) {
		size = (uint32_t)m->size;
		memcpy(m->bytes + offsetof(struct vu_header, size), &size, sizeof(size));
	}
}

/* Reads what has come, and answers DMA now and then wrongly; false: the end */
static bool drain(struct client *c, uint16_t id, bool *answered)
{
	for (;;) {
		struct pollfd fd = { .fd = c->fd, .events = POLLIN };
		struct vu_header header;

		if (poll(&fd, 1, 0) != 1)
			return true;
		if (!listen_once(c, &header))
			return false;
		if (header.flags & VU_FLAG_REPLY) {
			*answered |= header.id == id;
			continue;
		}
		c->by_messages = below(4);
		answer_dma(c, &header);
	}
}

/* The server answers a good message, or ends the connection: it does not hang. */
static bool is_alive(struct client *c)
{
	const struct vfio_region_info info = { .argsz = sizeof(info), .index = 0 };
	static const uint8_t zeros[VU_MAX_MESSAGE + 64];
	struct message m;
	const uint16_t id = 0xabcd;
	struct vu_header *header = (void *)m.bytes;
	bool answered = false;
	int ms, zero_at = 20;

	build(&m, VU_GET_REGION_INFO, &info, sizeof(info));
	memcpy(&header->id, &id, sizeof(id));
	transmit(c, m.bytes, m.size, NULL, 0);
	for (ms = 0; ms < PATIENCE_MS; ms++) {
		struct pollfd fd = { .fd = c->fd, .events = POLLIN };

		if (!drain(c, id, &answered))
			return false;
		if (answered)
			return true;
		poll(&fd, 1, 1);
		/* it may wait for the rest of a message: a header of zeros ends that */
		if (ms == zero_at)
			send(c->fd, zeros, sizeof(zeros), MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	fail_msg("the server neither answers nor ends the connection");
	return false;
}

static unsigned int open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void fuzz_once(struct client *c, const int *strange, size_t strange_count)
{
	struct message m;
	int fds[32];
	size_t n, i;

	if (c->fd < 0) {
		connect_to(c);
		say_version(c, VU_MAJOR);
		map(c, GUEST, GUEST_BYTES, 0, 3, below(2) ? c->memfd : -1);
	}
	n = good_message(c, &m, fds);
	if (n && fds[0] != c->memfd)
		fds[0] = strange[0];
	if (!below(8)) {
		n = below(24);
		for (i = 0; i < n; i++)
			fds[i] = strange[below((uint32_t)strange_count)];
	}
	mutate(&m);
	memcpy(c->memory + SQ_AT + 64 * below(ENTRIES), m.bytes, 64);
	transmit(c, m.bytes, m.size, fds, n);
}

static void test_mutations(void **state)
{
	static struct client c;
	int strange[5], pipes[2], i;
	unsigned int before, ended = 0;
	bool answered = false;

	(void)state;
	random_state = 0x9e3779b97f4a7c15ULL;
	start(&c, true);
	c.fd = -1;
	assert_int_equal(pipe(pipes), 0);
	strange[0] = eventfd(0, EFD_NONBLOCK);
	strange[1] = pipes[0];
	strange[2] = pipes[1];
	strange[3] = open("/dev/null", O_RDWR);
	strange[4] = c.memfd;
	before = open_fds();
	for (i = 0; i < MUTATIONS; i++) {
		fuzz_once(&c, strange, 5);
		if (below(4) ? drain(&c, 0, &answered) : is_alive(&c))
			continue;
		close(c.fd);
		c.fd = -1;
		ended++;
	}
	print_message("# %d messages, %u connections ended\n", i, ended);
	if (c.fd >= 0)
		close(c.fd);
	/* a well-behaved client is served as ever */
	connect_to(&c);
	c.by_messages = false;
	assert_int_equal(say_version(&c, VU_MAJOR), 0);
	assert_int_equal(map(&c, GUEST, GUEST_BYTES, 0, 3, c.memfd), 0);
	allow_master(&c);
	assert_int_equal(enable(&c), OPTINC_STATUS_READY);
	assert_true(identify(&c));
	/* and nothing of what the other gave is kept: both ends of this connection are new */
	assert_int_equal(open_fds(), before + 2);
	for (i = 0; i < 4; i++)
		close(strange[i]);
	stop(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_version),
		cmocka_unit_test(test_info),
		cmocka_unit_test(test_config_walk),
		cmocka_unit_test(test_config_writes),
		cmocka_unit_test(test_regions),
		cmocka_unit_test(test_maps),
		cmocka_unit_test(test_identify),
		cmocka_unit_test(test_identify_split),
		cmocka_unit_test(test_identify_by_messages),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_resets),
		cmocka_unit_test(test_pulled),
		cmocka_unit_test(test_resets_in_step),
		cmocka_unit_test(test_unmap_in_step),
		cmocka_unit_test(test_pointers_in_step),
		cmocka_unit_test(test_irqs),
		cmocka_unit_test(test_doorbell_width),
		cmocka_unit_test(test_file_cut),
		cmocka_unit_test(test_reconnect),
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_mutations),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("vfio-user", tests, NULL, NULL);
}
