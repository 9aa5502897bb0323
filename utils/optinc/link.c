// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A card's PCI Express link, through libpci.
 *
 * libpci reports errors to a function that must not return; ours keeps the
 * message and jumps back here, so that a list of cards survives it. Without
 * root the capabilities cannot be read from configuration space; the kernel's
 * own attributes then say what they can.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pci/pci.h>

#include "tool.h"

static jmp_buf failed;
static char failure[256];
/* What there is to clean up, also after a jump. */
static struct pci_access *access_open;
static struct pci_dev *device_open;

static void on_error(char *msg, ...) __attribute__((noreturn, format(printf, 1, 2)));

static void on_error(char *msg, ...)
{
	va_list args;

	va_start(args, msg);
	vsnprintf(failure, sizeof(failure), msg, args);
	va_end(args);
	longjmp(failed, 1);
}

/* What libpci warns of shows in what it cannot tell. */
static void on_warning(char *msg, ...) __attribute__((format(printf, 1, 2)));

static void on_warning(char *msg, ...)
{
	(void)msg;
}

/* What reads as all ones is not there; the kernel's link attributes are as wrong then. */
static bool is_gone(struct pci_dev *dev)
{
	return pci_read_word(dev, PCI_VENDOR_ID) == 0xffff;
}

/* Code of the Link Status and Link Capabilities registers, in tenths of GT/s. */
static unsigned int speed_of(unsigned int code)
{
	static const unsigned int speeds[] = { 0, 25, 50, 80, 160, 320, 640 };

	return code < ARRAY_SIZE(speeds) ? speeds[code] : 0;
}

static void read_config(struct pci_dev *dev, struct link *link)
{
	struct pci_cap *cap;

	pci_fill_info(dev, PCI_FILL_IDENT | PCI_FILL_CAPS);
	link->vendor = dev->vendor_id;
	link->device = dev->device_id;
	cap = pci_find_cap(dev, PCI_CAP_ID_EXP, PCI_CAP_NORMAL);
	if (cap) {
		unsigned int status = pci_read_word(dev, (int)cap->addr + PCI_EXP_LNKSTA);
		unsigned int most = (unsigned int)pci_read_long(dev, (int)cap->addr +
								PCI_EXP_LNKCAP);

		link->width = (status & PCI_EXP_LNKSTA_WIDTH) >> 4;
		link->gts = speed_of(status & PCI_EXP_LNKSTA_SPEED);
		link->max_width = (most & PCI_EXP_LNKCAP_WIDTH) >> 4;
		link->max_gts = speed_of(most & PCI_EXP_LNKCAP_SPEED);
	}
}

static void clean_up(void)
{
	if (device_open)
		pci_free_dev(device_open);
	if (access_open)
		pci_cleanup(access_open);
	device_open = NULL;
	access_open = NULL;
}

/* "16.0 GT/s PCIe" or "8": the number at the beginning, times ten. */
static unsigned int attribute(const char *slot, const char *name)
{
	char path[256], text[64] = "";
	double value;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", slot, name);
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (!fgets(text, sizeof(text), file))
		text[0] = '\0';
	fclose(file);
	value = strtod(text, NULL);
	return value > 0 && value < 10000 ? (unsigned int)(10 * value + 0.5) : 0;
}

static void read_attributes(const char *slot, struct link *link)
{
	link->width = attribute(slot, "current_link_width") / 10;
	link->gts = attribute(slot, "current_link_speed");
	link->max_width = attribute(slot, "max_link_width") / 10;
	link->max_gts = attribute(slot, "max_link_speed");
}

bool link_read(const char *slot, struct link *link, char why[WHY_BYTES])
{
	unsigned int domain, bus, device, function;
	struct pci_access *access;
	char end;

	memset(link, 0, sizeof(*link));
	if (sscanf(slot, "%x:%x:%x.%x%c", &domain, &bus, &device, &function, &end) != 4)
		return why_set(why, "%s is no PCI address", slot);
	if (setjmp(failed)) {
		clean_up();
		return why_set(why, "libpci: %s", failure);
	}
	access = pci_alloc();
	access->method = PCI_ACCESS_SYS_BUS_PCI;
	access->error = on_error;
	access->warning = on_warning;
	pci_init(access);
	access_open = access;	/* one that did not come that far cannot be cleaned up */
	device_open = pci_get_dev(access, (int)domain, (int)bus, (int)device, (int)function);
	link->gone = is_gone(device_open);
	if (!link->gone)
		read_config(device_open, link);
	clean_up();
	if (!link->width && !link->gone)
		read_attributes(slot, link);
	return true;
}
