// SPDX-License-Identifier: GPL-2.0-only
/*
 * Card 0 as a PCI function: section 2 of Documentation/card-interface.rst, from
 * what sysfs has of configuration space and BARs; and its function-level reset.
 */
#include <linux/pci_regs.h>

#include "card.h"

#include "kselftest_harness.h"

FIXTURE(pci)
{
	uint8_t config[256];
};

static int open_file(const char *name, int flags)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/class/optinc/card%u/device/%s", node_number(0), name);
	return open(path, flags | O_CLOEXEC);
}

FIXTURE_SETUP(pci)
{
	int fd = open_file("config", O_RDONLY);

	ASSERT_LE(0, fd);
	ASSERT_EQ(sizeof(self->config), pread(fd, self->config, sizeof(self->config), 0));
	close(fd);
}

FIXTURE_TEARDOWN(pci)
{
}

static unsigned int word(const uint8_t *config, unsigned int offset)
{
	return config[offset] | (unsigned int)config[offset + 1] << 8;
}

/* Offset of a capability, 0 if there is none */
static unsigned int capability(const uint8_t *config, unsigned int id)
{
	unsigned int offset = config[PCI_CAPABILITY_LIST] & ~3U, n;

	for (n = 0; n < 48 && offset >= 0x40; n++) {
		if (config[offset] == id)
			return offset;
		offset = config[offset + 1] & ~3U;
	}
	return 0;
}

TEST_F(pci, identity)
{
	const uint8_t *c = self->config;
	unsigned int express = capability(c, PCI_CAP_ID_EXP);

	EXPECT_EQ(0x12, c[PCI_CLASS_DEVICE + 1]);
	EXPECT_EQ(0, c[PCI_CLASS_DEVICE]);
	EXPECT_EQ(0, c[PCI_CLASS_PROG]);
	EXPECT_EQ(PCI_HEADER_TYPE_NORMAL, c[PCI_HEADER_TYPE] & 0x7f);
	EXPECT_EQ(0, c[PCI_INTERRUPT_PIN]);
	EXPECT_EQ(0, word(c, PCI_ROM_ADDRESS) | word(c, PCI_ROM_ADDRESS + 2));
	EXPECT_NE(0, capability(c, PCI_CAP_ID_MSIX));
	EXPECT_NE(0, capability(c, PCI_CAP_ID_PM));
	ASSERT_NE(0, express);
	EXPECT_EQ(PCI_EXP_TYPE_ENDPOINT, (word(c, express + PCI_EXP_FLAGS) &
					  PCI_EXP_FLAGS_TYPE) >> 4);
	EXPECT_NE(0, word(c, express + PCI_EXP_DEVCAP + 2) & PCI_EXP_DEVCAP_FLR >> 16);
}

/* BARs 0, 2 and 4: 64 bit, memory, not prefetchable */
TEST_F(pci, bars)
{
	unsigned long long start, end, flags, size[6];
	int fd = open_file("resource", O_RDONLY);
	FILE *file;
	unsigned int i;

	ASSERT_LE(0, fd);
	file = fdopen(fd, "r");
	for (i = 0; i < 6; i++) {
		ASSERT_EQ(3, fscanf(file, "%llx %llx %llx", &start, &end, &flags));
		size[i] = end ? end - start + 1 : 0;
		if (i % 2) {
			EXPECT_EQ(0, size[i]);
		} else {
			EXPECT_EQ(PCI_BASE_ADDRESS_MEM_TYPE_64,
				  self->config[PCI_BASE_ADDRESS_0 + 4 * i] & 0xf);
		}
	}
	fclose(file);
	EXPECT_EQ(16384, size[0]);
	EXPECT_LE(4096, size[2]);
	EXPECT_EQ(0, size[2] & (size[2] - 1));
	EXPECT_NE(0, size[4]);
}

static bool write_file(const char *name, const char *text)
{
	int fd = open_file(name, O_WRONLY);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	close(fd);
	return done;
}

/* As OPTINC_IOCTL_RESET: contexts, counters and requests are gone, the card works. */
TEST_F(pci, function_level_reset)
{
	struct optinc_stats stats;
	struct card again;
	struct end e;
	uint64_t clock;
	unsigned int i;

	must_prepare_end(&e, 0, -1);
	post_nop(&e.queue, 1);
	ASSERT_EQ(OPTINC_ST_SUCCESS, await_status(&e.queue));
	clock = must_stats(&e.card).device_ns;
	must_join(&e.card, "flr", 0);
	memset(e.memory, 0x88, e.bytes);
	if (!write_file("reset_method", "flr"))
		SKIP(return, "the kernel offers no function-level reset of it");
	ASSERT_TRUE(write_file("reset", "1"));
	write_file("reset_method", "default");
	EXPECT_EQ(-ENODEV, query(e.card.fd, &e.card.query));
	must_open(&again, 0);
	stats = must_stats(&again);
	EXPECT_EQ(0, stats.requests + stats.doorbells + stats.errors + stats.doorbells_dropped);
	EXPECT_LT(clock, stats.device_ns);
	for (i = 0; i < e.bytes; i++)
		ASSERT_EQ(0x88, e.memory[i]);
	/* the group's key is free */
	must_join(&again, "flr", 0);
}

TEST_HARNESS_MAIN
