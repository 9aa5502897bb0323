/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The card's door for virtual machines: a vfio-user server.
 *
 * A client, QEMU as a rule, connects to a card's socket, shares the guest's
 * memory and then reads and writes the card's PCIe function by messages. One
 * thread for each card does all of this and drives the card too; see server.c.
 *
 *	server.c	the thread: its loop, and how it sleeps
 *	socket.c	messages from and to a socket
 *	message.c	what each message asks for
 *	config.c	PCI configuration space
 *	bar.c		registers, doorbells, the MSI-X table
 *	dma.c		guest memory
 *	irq.c		MSI-X by eventfds
 *	waker.c		wakes a card that sleeps in the fabric for its socket
 *
 * The client is untrusted. What it sends is checked before use, gets an error
 * or closes the connection, and never ends the process: there are other cards
 * in it, and a card outlives its host.
 */
#ifndef OPTINC_VFIO_USER_INTERNAL_H
#define OPTINC_VFIO_USER_INTERNAL_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/optinc_hw.h"
#include "emulator/card/card.h"
#include "emulator/vfio-user/protocol.h"
#include "emulator/vfio-user/server.h"

#define VU_CONFIG_BYTES		4096
#define VU_MAX_VECTORS		OPTINC_CAP1_VECTORS

#define NSEC_PER_USEC		1000ULL
#define NSEC_PER_MSEC		1000000ULL
#define NSEC_PER_SEC		1000000000ULL

/* A client that does not read, or not answer, for so long has gone astray. */
#define VU_PATIENCE_MS		5000

struct vu_map {
	uint64_t addr, size;
	uint8_t *at;		/* NULL: reached by messages */
	size_t skip;		/* of the pages mapped, before *at */
	bool writable;
};

struct vu_dma {
	struct vu_map *maps;	/* by address, none overlap */
	size_t count, room;
	size_t recent;		/* the one found last */
	/* unmapped during a step of the card, which may still use it */
	struct vu_map *lost;
	size_t lost_count, lost_room;
	uint16_t next_id;
	size_t max_data;	/* of one message, as both sides want */
};

/* What a card waits for while it waits for the client's answer */
struct vu_pending {
	bool waiting;
	uint16_t id, command;
	uint64_t addr;
	uint8_t *data;		/* of a read */
	uint32_t count;
	int result;		/* 0 or negative errno */
};

struct vu_config_space {
	uint8_t bytes[VU_CONFIG_BYTES];
	uint8_t writable[VU_CONFIG_BYTES];	/* bits that a write sets */
	uint8_t clears[VU_CONFIG_BYTES];	/* bits that writing 1 clears */
	uint8_t sticky[VU_CONFIG_BYTES];	/* bits that a function-level reset keeps */
	uint8_t initial[VU_CONFIG_BYTES];
};

struct vu_server {
	struct card *card;
	struct card_config config;
	char path[108];
	int listener;		/* -1: none, the one client is there from the start */
	int fd;			/* of the client, or -1 */
	int stop_fd;		/* readable: end */
	volatile sig_atomic_t broken;	/* close the connection */
	bool versioned;		/* the client has said VU_VERSION */
	bool stepping;		/* within card_step() */
	bool reset_pending;	/* asked for during a step */
	_Atomic bool pull;	/* what vu_server_pull() wants */
	bool pulled;		/* what is so */
	uint64_t host_ns;	/* when the host last wrote to a register */
	struct vu_waker *waker;
	_Atomic bool asleep;	/* in card_sleep(), to be woken for the socket */

	struct vu_config_space space;
	struct vu_dma dma;
	struct vu_pending pending;
	int vector_fds[VU_MAX_VECTORS];
	uint32_t table_bytes, pba_offset, bar4_bytes;
	uint8_t *table;		/* BAR4's memory */

	size_t rx_have;
	unsigned int rx_fd_count;
	int rx_fds[VU_MAX_FDS];
	_Alignas(16) uint8_t rx[VU_MAX_MESSAGE];
	_Alignas(16) uint8_t tx[VU_MAX_MESSAGE];
};

/* socket.c */
/* The next whole message is in rx: 1. Nothing more to read: 0. Gone: -1. */
int vu_receive(struct vu_server *server);
void vu_close_fds(struct vu_server *server);
/* Take one of the fds that came with the message, or -1. */
int vu_take_fd(struct vu_server *server);
/* Header and up to two parts; false: the connection is broken. */
bool vu_send(struct vu_server *server, struct vu_header *header, const void *a, size_t a_size,
	     const void *b, size_t b_size);
int vu_listen(const char *path, char *error, size_t error_size);

/* message.c */
/* Obey the message in rx, and answer it. */
void vu_message(struct vu_server *server);

/* config.c */
void vu_config_init(struct vu_server *server);
void vu_config_reset(struct vu_server *server, bool function_level);
void vu_config_read(struct vu_server *server, uint32_t offset, void *data, uint32_t count);
void vu_config_write(struct vu_server *server, uint32_t offset, const void *data, uint32_t count);
/* Bus Master Enable, and in D0 */
bool vu_may_master(const struct vu_server *server);
bool vu_msix_enabled(const struct vu_server *server);

/* bar.c */
int vu_bar_init(struct vu_server *server);
uint64_t vu_region_size(const struct vu_server *server, uint32_t region);
/* The access lies in the region. */
void vu_region_read(struct vu_server *server, uint32_t region, uint64_t offset, void *data,
		    uint32_t count);
void vu_region_write(struct vu_server *server, uint32_t region, uint64_t offset, const void *data,
		     uint32_t count);

/* dma.c; 0 or negative errno */
int vu_dma_map(struct vu_server *server, const struct vu_dma_map *map, int fd);
int vu_dma_unmap(struct vu_server *server, uint64_t addr, uint64_t size);
void vu_dma_unmap_all(struct vu_server *server);
/* No step is under way: what the client took back during the last one can go. */
void vu_dma_reap(struct vu_server *server);
void vu_dma_free(struct vu_server *server);
/* An answer to a message of ours, in rx; false: we did not ask */
bool vu_dma_answer(struct vu_server *server, const struct vu_header *header);
extern const struct card_host_ops vu_host_ops;
/* The calling thread reaches into this server's client. */
void vu_dma_guard_thread(struct vu_server *server);

/* irq.c */
void vu_irq_init(struct vu_server *server);
void vu_irq_drop(struct vu_server *server);
int vu_irq_set(struct vu_server *server, const void *payload, size_t size);
uint32_t vu_irq_count(const struct vu_server *server, uint32_t index);
void vu_irq_raise(void *server, unsigned int vector);

/* waker.c */
int vu_waker_watch(struct vu_server *server);
void vu_waker_forget(struct vu_server *server);
void vu_waker_arm(struct vu_server *server);
void vu_waker_disarm(struct vu_server *server);

/* server.c */
/* As at power-on, at once or after the step that is under way */
void vu_reset(struct vu_server *server);

#endif /* OPTINC_VFIO_USER_INTERNAL_H */
