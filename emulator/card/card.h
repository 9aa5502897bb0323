/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The emulated card, as seen from its PCIe connector.
 *
 * A door (the library's emu: provider, or vfio-user) brings register reads
 * and writes in, and gives the card a way to memory and interrupts out.
 * Behind it, regs.c has BAR0, admin.c the admin queue and its commands,
 * queue.c the queue pairs and doorbells, mr.c memory regions, group.c the
 * way of a request from submission entry through the fabric to completion,
 * fault.c what a card does wrong on purpose.
 *
 * The host is untrusted: whatever it writes, the card answers with a status,
 * a count or silence, as Documentation/card-interface.rst says.
 *
 * card_doorbell(), card_kick() and card_busy() may be called by any thread at
 * any time; all other calls by one thread at a time.
 */
#ifndef OPTINC_CARD_H
#define OPTINC_CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emulator/fabric/fabric.h"

#define CARD_CONTEXTS		64
/* Pages of up to 64 KiB for all contexts; larger ones for fewer */
#define CARD_BAR2_BYTES		(CARD_CONTEXTS * 65536)

/**
 * struct card_host_ops - what a door gives the card
 * @map: a pointer to [@addr, @addr + @length) of host memory for the time of
 *	this call into the card, or NULL where it is not contiguous or not
 *	mapped: then @read and @write are used
 * @read: copy from host memory; 0 or negative errno
 * @write: copy to host memory
 * @interrupt: raise an MSI-X vector
 */
struct card_host_ops {
	void *(*map)(void *host, uint64_t addr, size_t length, bool write);
	int (*read)(void *host, uint64_t addr, void *buf, size_t length);
	int (*write)(void *host, uint64_t addr, const void *buf, size_t length);
	void (*interrupt)(void *host, unsigned int vector);
};

#define CARD_FAULTS	32

/* What fault.c does to admin commands of one opcode */
struct card_fault {
	const struct card_fault_kind *kind;
	uint16_t status;		/* not 0: of the command, which is not executed */
	uint8_t opcode;
	uint32_t skip;			/* so many */
	uint32_t count;			/* and then befall so many; 0: all */
};

struct card_config {
	struct fabric_config fabric;
	unsigned int vectors;		/* MSI-X vectors, at least 1 */
	unsigned int timeout;		/* of handshakes and commands, 100 ms; 0: the default */
	bool no_isolation;		/* for tests: a card without the capability */
	unsigned int fault_count;
	struct card_fault faults[CARD_FAULTS];
};

struct card;

int card_new(const struct card_config *config, const struct card_host_ops *ops, void *host,
	     struct card **card, char *error, size_t error_size);
void card_free(struct card *card);

/*
 * One more fault, as the options "fail-admin", "silent-admin" and "hostile" of
 * optinc-emu have it. 0, or -EINVAL with a sentence in @error.
 */
int card_fault_add(struct card_config *config, const char *option, const char *text,
		   size_t length, char *error, size_t error_size);

uint32_t card_read(struct card *card, uint32_t offset);			/* BAR0 */
void card_write(struct card *card, uint32_t offset, uint32_t value);	/* BAR0 */
/*
 * BAR2: @page is offset / stride. Only notes the value; card_step() obeys it.
 * A door counts an access of wrong width or alignment with an odd @offset.
 */
void card_doorbell(struct card *card, uint32_t page, uint32_t offset, uint32_t value);
void card_reset(struct card *card);					/* FLR, power-on */

/* Do what can be done now; true if anything was. */
bool card_step(struct card *card);
/* After a step that did nothing: sleep until there may be something to do. */
void card_sleep(struct card *card, uint64_t timeout_ns);
/* Ends a sleep, or else the next one at once. */
void card_kick(struct card *card);
/* Requests taken from submission rings, or still in them, and not completed. */
bool card_busy(const struct card *card);
bool card_crowded(const struct card *card);

#endif /* OPTINC_CARD_H */
