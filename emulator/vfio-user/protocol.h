/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The vfio-user protocol, version 0.1, as far as a PCIe function needs it.
 *
 * Little endian on a UNIX stream socket between processes of one machine.
 * Structures and flags that the protocol has from VFIO are in linux/vfio.h.
 */
#ifndef OPTINC_VFIO_USER_PROTOCOL_H
#define OPTINC_VFIO_USER_PROTOCOL_H

#include <stdint.h>

enum vu_command {
	VU_VERSION		= 1,
	VU_DMA_MAP		= 2,
	VU_DMA_UNMAP		= 3,
	VU_GET_INFO		= 4,
	VU_GET_REGION_INFO	= 5,
	VU_GET_REGION_IO_FDS	= 6,
	VU_GET_IRQ_INFO		= 7,
	VU_SET_IRQS		= 8,
	VU_REGION_READ		= 9,
	VU_REGION_WRITE		= 10,
	VU_DMA_READ		= 11,	/* from the device */
	VU_DMA_WRITE		= 12,	/* from the device */
	VU_DEVICE_RESET		= 13,
	VU_REGION_WRITE_MULTI	= 15,
};

#define VU_FLAG_TYPE		0xf
#define VU_FLAG_REPLY		0x1
#define VU_FLAG_NO_REPLY	0x10
#define VU_FLAG_ERROR		0x20

struct vu_header {
	uint16_t id;
	uint16_t command;
	uint32_t size;		/* with the header */
	uint32_t flags;
	uint32_t error;		/* errno of a reply with VU_FLAG_ERROR */
};

#define VU_MAJOR		0
#define VU_MINOR		1

struct vu_version {
	uint16_t major, minor;
	/* then JSON text with its NUL */
};

#define VU_MAP_READ		(1U << 0)
#define VU_MAP_WRITE		(1U << 1)

struct vu_dma_map {
	uint32_t argsz;
	uint32_t flags;
	uint64_t offset;	/* in the file that comes with the message */
	uint64_t addr;
	uint64_t size;
};

struct vu_dma_unmap {
	uint32_t argsz;
	uint32_t flags;		/* VFIO_DMA_UNMAP_FLAG_* */
	uint64_t addr;
	uint64_t size;
};

struct vu_device_info {
	uint32_t argsz;
	uint32_t flags;
	uint32_t regions;
	uint32_t irqs;
};

struct vu_region_access {
	uint64_t offset;
	uint32_t region;
	uint32_t count;
	/* then the data */
};

/* One of the writes of VU_REGION_WRITE_MULTI; a uint64_t with their number comes first */
struct vu_write_one {
	uint64_t offset;
	uint32_t region;
	uint32_t count;		/* at most 8 */
	uint8_t data[8];
};

struct vu_dma_access {
	uint64_t addr;
	uint64_t count;
	/* then the data */
};

/* Bytes of data in one message, fds with one, and the largest message */
#define VU_MAX_DATA		65536
#define VU_MAX_FDS		16
#define VU_MAX_MESSAGE		(VU_MAX_DATA + 64)
#define VU_MAX_MAPS		65535

#endif /* OPTINC_VFIO_USER_PROTOCOL_H */
