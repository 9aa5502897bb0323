// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What the client asks for. The message lies in rx, whole, with the length
 * that its header gives; everything else about it is checked here.
 */
#include <errno.h>
#include <linux/vfio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emulator/vfio-user/internal.h"

struct request {
	struct vu_header header;
	const uint8_t *payload;
	size_t size;		/* of the payload */
};

/* A reply with what may be data of up to VU_MAX_DATA in tx, behind a fixed part. */
static void reply(struct vu_server *server, const struct request *request, const void *fixed,
		  size_t fixed_size, size_t data_size)
{
	struct vu_header header = {
		.id = request->header.id,
		.command = request->header.command,
		.flags = VU_FLAG_REPLY,
	};

	if (!(request->header.flags & VU_FLAG_NO_REPLY))
		vu_send(server, &header, fixed, fixed_size, server->tx, data_size);
}

static void refuse(struct vu_server *server, const struct request *request, int error)
{
	struct vu_header header = {
		.id = request->header.id,
		.command = request->header.command,
		.flags = VU_FLAG_REPLY | VU_FLAG_ERROR,
		.error = (uint32_t)-error,
	};

	if (!(request->header.flags & VU_FLAG_NO_REPLY))
		vu_send(server, &header, NULL, 0, NULL, 0);
}

static int ok(struct vu_server *server, const struct request *request)
{
	reply(server, request, NULL, 0, 0);
	return 0;
}

/* The number behind "name": in the client's JSON; @otherwise if it has none. */
static uint64_t capability(const char *json, const char *name, uint64_t otherwise)
{
	const char *at = strstr(json, name);

	if (!at)
		return otherwise;
	at += strlen(name);
	at += strspn(at, "\" \t\r\n:");
	return *at >= '0' && *at <= '9' ? strtoull(at, NULL, 10) : otherwise;
}

static int say_version(struct vu_server *server, const struct request *request)
{
	struct vu_version version;
	uint64_t max = VU_MAX_DATA;
	int n;

	if (server->versioned || request->size < sizeof(version))
		return -EINVAL;
	memcpy(&version, request->payload, sizeof(version));
	if (version.major != VU_MAJOR)
		return -ENOTSUP;
	if (request->size > sizeof(version)) {
		if (request->payload[request->size - 1])
			return -EINVAL;
		max = capability((const char *)request->payload + sizeof(version),
				 "\"max_data_xfer_size", VU_MAX_DATA);
	}
	if (!max)
		return -EINVAL;
	server->dma.max_data = max < VU_MAX_DATA ? (size_t)max : VU_MAX_DATA;
	server->versioned = true;
	version.major = VU_MAJOR;
	version.minor = version.minor < VU_MINOR ? version.minor : VU_MINOR;
	n = snprintf((char *)server->tx, sizeof(server->tx),
		     "{\"capabilities\":{\"max_msg_fds\":%d,\"max_data_xfer_size\":%d,"
		     "\"pgsizes\":4096,\"max_dma_maps\":%d,\"write_multiple\":true}}",
		     VU_MAX_FDS, VU_MAX_DATA, VU_MAX_MAPS);
	reply(server, request, &version, sizeof(version), (size_t)n + 1);
	return 0;
}

static int dma_map(struct vu_server *server, const struct request *request)
{
	struct vu_dma_map map;
	int fd, rc;

	if (request->size < sizeof(map) || server->rx_fd_count > 1)
		return -EINVAL;
	memcpy(&map, request->payload, sizeof(map));
	if (map.argsz < sizeof(map))
		return -EINVAL;
	fd = vu_take_fd(server);
	rc = vu_dma_map(server, &map, fd);
	if (fd >= 0)
		close(fd);
	return rc ? rc : ok(server, request);
}

static int dma_unmap(struct vu_server *server, const struct request *request)
{
	struct vu_dma_unmap unmap;
	int rc = 0;

	if (request->size < sizeof(unmap))
		return -EINVAL;
	memcpy(&unmap, request->payload, sizeof(unmap));
	if (unmap.flags & ~VFIO_DMA_UNMAP_FLAG_ALL)
		return -ENOTSUP;
	if (!unmap.flags)
		rc = vu_dma_unmap(server, unmap.addr, unmap.size);
	else if (unmap.addr || unmap.size)
		rc = -EINVAL;
	else
		vu_dma_unmap_all(server);
	if (rc)
		return rc;
	reply(server, request, &unmap, sizeof(unmap), 0);
	return 0;
}

static int get_info(struct vu_server *server, const struct request *request)
{
	struct vu_device_info info = {
		.argsz = sizeof(info),
		.flags = VFIO_DEVICE_FLAGS_RESET | VFIO_DEVICE_FLAGS_PCI,
		.regions = VFIO_PCI_NUM_REGIONS,
		.irqs = VFIO_PCI_NUM_IRQS,
	};

	if (request->size < sizeof(info.argsz))
		return -EINVAL;
	reply(server, request, &info, sizeof(info), 0);
	return 0;
}

static int get_region_info(struct vu_server *server, const struct request *request)
{
	struct vfio_region_info info;

	if (request->size < sizeof(info))
		return -EINVAL;
	memcpy(&info, request->payload, sizeof(info));
	if (info.argsz < sizeof(info) || info.index >= VFIO_PCI_NUM_REGIONS)
		return -EINVAL;
	info.argsz = sizeof(info);
	info.size = vu_region_size(server, info.index);
	info.flags = info.size ? VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE : 0;
	info.cap_offset = 0;
	info.offset = 0;
	reply(server, request, &info, sizeof(info), 0);
	return 0;
}

static int get_irq_info(struct vu_server *server, const struct request *request)
{
	struct vfio_irq_info info;

	if (request->size < sizeof(info))
		return -EINVAL;
	memcpy(&info, request->payload, sizeof(info));
	if (info.index >= VFIO_PCI_NUM_IRQS)
		return -EINVAL;
	info.argsz = sizeof(info);
	info.count = vu_irq_count(server, info.index);
	info.flags = info.count ? VFIO_IRQ_INFO_EVENTFD : 0;
	reply(server, request, &info, sizeof(info), 0);
	return 0;
}

static int set_irqs(struct vu_server *server, const struct request *request)
{
	int rc = vu_irq_set(server, request->payload, request->size);

	return rc ? rc : ok(server, request);
}

static bool is_inside(const struct vu_server *server, const struct vu_region_access *access)
{
	uint64_t size = vu_region_size(server, access->region);

	return access->count && access->count <= VU_MAX_DATA && access->offset <= size &&
	       access->count <= size - access->offset;
}

static int region_read(struct vu_server *server, const struct request *request)
{
	struct vu_region_access access;

	if (request->size < sizeof(access))
		return -EINVAL;
	memcpy(&access, request->payload, sizeof(access));
	if (!is_inside(server, &access))
		return -EINVAL;
	vu_region_read(server, access.region, access.offset, server->tx, access.count);
	reply(server, request, &access, sizeof(access), access.count);
	return 0;
}

static int region_write(struct vu_server *server, const struct request *request)
{
	struct vu_region_access access;

	if (request->size < sizeof(access))
		return -EINVAL;
	memcpy(&access, request->payload, sizeof(access));
	if (!is_inside(server, &access) || access.count > request->size - sizeof(access))
		return -EINVAL;
	vu_region_write(server, access.region, access.offset, request->payload + sizeof(access),
			access.count);
	reply(server, request, &access, sizeof(access), 0);
	return 0;
}

static bool is_whole(const struct vu_server *server, const struct vu_write_one *one)
{
	const struct vu_region_access access = {
		.offset = one->offset, .region = one->region, .count = one->count,
	};

	return one->count <= sizeof(one->data) && is_inside(server, &access);
}

/* All are checked before the first is obeyed. */
static int region_write_multi(struct vu_server *server, const struct request *request)
{
	struct vu_write_one one;
	uint64_t n, i;

	if (request->size < sizeof(n))
		return -EINVAL;
	memcpy(&n, request->payload, sizeof(n));
	if (n > (request->size - sizeof(n)) / sizeof(one))
		return -EINVAL;
	for (i = 0; i < n; i++) {
		memcpy(&one, request->payload + sizeof(n) + i * sizeof(one), sizeof(one));
		if (!is_whole(server, &one))
			return -EINVAL;
	}
	for (i = 0; i < n; i++) {
		memcpy(&one, request->payload + sizeof(n) + i * sizeof(one), sizeof(one));
		vu_region_write(server, one.region, one.offset, one.data, one.count);
	}
	reply(server, request, &n, sizeof(n), 0);
	return 0;
}

static int device_reset(struct vu_server *server, const struct request *request)
{
	vu_config_reset(server, false);
	vu_reset(server);
	return ok(server, request);
}

/* They answer, unless they return a negative errno: then the answer is that. */
static int (*const handlers[])(struct vu_server *server, const struct request *request) = {
	[VU_VERSION] = say_version,
	[VU_DMA_MAP] = dma_map,
	[VU_DMA_UNMAP] = dma_unmap,
	[VU_GET_INFO] = get_info,
	[VU_GET_REGION_INFO] = get_region_info,
	[VU_GET_IRQ_INFO] = get_irq_info,
	[VU_SET_IRQS] = set_irqs,
	[VU_REGION_READ] = region_read,
	[VU_REGION_WRITE] = region_write,
	[VU_DEVICE_RESET] = device_reset,
	[VU_REGION_WRITE_MULTI] = region_write_multi,
};

static int obey(struct vu_server *server, const struct request *request)
{
	uint16_t command = request->header.command;

	if (command >= sizeof(handlers) / sizeof(handlers[0]) || !handlers[command])
		return -ENOTSUP;
	if (!server->versioned && command != VU_VERSION)
		return -EINVAL;
	return handlers[command](server, request);
}

void vu_message(struct vu_server *server)
{
	struct request request = { .payload = server->rx + sizeof(request.header) };
	int rc;

	memcpy(&request.header, server->rx, sizeof(request.header));
	request.size = server->rx_have - sizeof(request.header);
	server->rx_have = 0;
	switch (request.header.flags & VU_FLAG_TYPE) {
	case 0:
		rc = obey(server, &request);
		if (rc)
			refuse(server, &request, rc);
		/* a client of another version has nothing else to say to us */
		if (!server->versioned)
			server->broken = 1;
		break;
	case VU_FLAG_REPLY:
		if (!vu_dma_answer(server, &request.header))
			server->broken = 1;
		break;
	default:
		server->broken = 1;
	}
	vu_close_fds(server);
}
