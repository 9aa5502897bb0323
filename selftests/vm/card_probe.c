// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Speak to a card without a driver, as root in a guest: registers through
 * sysfs, the enable handshake, and IDENTIFY, whose rings and buffer lie in a
 * huge page that the card reaches by its physical address. Proves the way
 * from the guest to the card and back before there is a driver.
 *
 *	card_probe 0000:01:00.0 PORT
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "driver/optinc_hw.h"

#define HUGE_PAGE	(2UL << 20)
#define ENTRIES		32
#define COMMANDS	200

struct shared {
	_Alignas(4096) struct optinc_admin_cmd sq[ENTRIES];
	_Alignas(4096) volatile struct optinc_admin_cqe cq[ENTRIES];
	_Alignas(4096) struct optinc_hw_identify id;
};

static volatile uint32_t *regs;
static int tests, failures;

static __attribute__((format(printf, 2, 3))) bool check(bool ok, const char *format, ...)
{
	va_list args;

	printf("%s %d - ", ok ? "ok" : "not ok", ++tests);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	failures += !ok;
	return ok;
}

static __attribute__((noreturn)) void give_up(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

static uint32_t get(uint32_t reg)
{
	return regs[reg / 4];
}

static void set(uint32_t reg, uint32_t value)
{
	regs[reg / 4] = value;
}

static int open_device(const char *name, const char *file, int flags)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", name, file);
	fd = open(path, flags);
	if (fd < 0)
		give_up(path);
	return fd;
}

/* Memory space and bus mastering, as pci_enable_device() and pci_set_master() */
static void enable_device(const char *name)
{
	int fd = open_device(name, "enable", O_WRONLY);
	uint16_t command;

	if (write(fd, "1", 1) != 1)
		give_up("enable");
	close(fd);
	fd = open_device(name, "config", O_RDWR);
	if (pread(fd, &command, sizeof(command), 4) != sizeof(command))
		give_up("config");
	command |= 6;
	if (pwrite(fd, &command, sizeof(command), 4) != sizeof(command))
		give_up("config");
	close(fd);
}

static void map_registers(const char *name)
{
	int fd = open_device(name, "resource0", O_RDWR | O_SYNC);
	void *p = mmap(NULL, OPTINC_BAR0_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		give_up("resource0");
	close(fd);
	regs = p;
}

static struct shared *huge_page(void)
{
	int fd = open("/proc/sys/vm/nr_hugepages", O_WRONLY);
	void *p;

	if (fd < 0 || write(fd, "8", 1) != 1)
		give_up("nr_hugepages");
	close(fd);
	p = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_LOCKED | MAP_POPULATE, -1, 0);
	if (p == MAP_FAILED)
		give_up("huge page");
	memset(p, 0, HUGE_PAGE);
	return p;
}

static uint64_t physical(const void *p)
{
	uint64_t entry, page = (uint64_t)sysconf(_SC_PAGESIZE);
	int fd = open("/proc/self/pagemap", O_RDONLY);
	off_t at = (off_t)((uintptr_t)p / page * sizeof(entry));

	if (fd < 0 || pread(fd, &entry, sizeof(entry), at) != sizeof(entry))
		give_up("pagemap");
	close(fd);
	return (entry & ((1ULL << 55) - 1)) * page + (uintptr_t)p % page;
}

static bool wait_for(uint32_t mask, uint32_t value)
{
	uint64_t until = now_ns() + 5000000000ULL;

	while ((get(OPTINC_REG_STATUS) & mask) != value) {
		if (now_ns() > until)
			return false;
	}
	return true;
}

static void set64(uint32_t reg, uint64_t value)
{
	set(reg, (uint32_t)value);
	set(reg + 4, (uint32_t)(value >> 32));
}

static bool enable_card(const struct shared *shared)
{
	set(OPTINC_REG_RESET, OPTINC_RESET_KEY);
	if (!check(wait_for(OPTINC_STATUS_RESETTING, 0), "the reset ends"))
		return false;
	set(OPTINC_REG_ADMIN_SIZE, (ENTRIES - 1) << 16 | (ENTRIES - 1));
	set64(OPTINC_REG_ADMIN_SQ_LO, physical(shared->sq));
	set64(OPTINC_REG_ADMIN_CQ_LO, physical((const void *)shared->cq));
	set(OPTINC_REG_CONTROL, OPTINC_CONTROL_ENABLE);
	wait_for(OPTINC_STATUS_READY, OPTINC_STATUS_READY);
	return check(get(OPTINC_REG_STATUS) == OPTINC_STATUS_READY, "the card is ready");
}

/* One command and its completion, by polling; its status, or -1 */
static int identify(struct shared *shared, uint16_t n)
{
	uint64_t until = now_ns() + 5000000000ULL;
	uint16_t phase = !(n / ENTRIES & 1), status;

	shared->sq[n % ENTRIES] = (struct optinc_admin_cmd){
		.opcode = OPTINC_ADMIN_IDENTIFY,
		.cmd_id = n,
		.addr = physical(&shared->id),
		.length = sizeof(shared->id),
	};
	set(OPTINC_REG_ADMIN_SQ_TAIL, (uint16_t)(n + 1));
	do {
		status = shared->cq[n % ENTRIES].status;
		if (now_ns() > until)
			return -1;
	} while ((status & 1) != phase);
	set(OPTINC_REG_ADMIN_CQ_HEAD, (uint16_t)(n + 1));
	return shared->cq[n % ENTRIES].cmd_id == n ? status >> 1 : -1;
}

static void identify_often(struct shared *shared)
{
	uint64_t start = now_ns();
	int n, good = 0;

	for (n = 1; n <= COMMANDS && good == n - 1; n++)
		good += identify(shared, (uint16_t)n) == OPTINC_AST_SUCCESS;
	check(good == COMMANDS, "%d commands", COMMANDS);
	printf("# %.1f us a command\n", (double)(now_ns() - start) / COMMANDS / 1000);
}

static void time_reads(void)
{
	uint64_t start = now_ns();
	int i;

	for (i = 0; i < 1000; i++)
		get(OPTINC_REG_STATUS);
	printf("# %.1f us a register read\n", (double)(now_ns() - start) / 1000 / 1000);
}

int main(int argc, char **argv)
{
	struct shared *shared;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 3) {
		fprintf(stderr, "usage: card_probe DEVICE PORT\n");
		return 2;
	}
	enable_device(argv[1]);
	map_registers(argv[1]);
	check(get(OPTINC_REG_MAGIC) == OPTINC_MAGIC, "MAGIC");
	check(get(OPTINC_REG_VERSION) >> 16 == OPTINC_INTERFACE_MAJOR, "VERSION");
	check(get(OPTINC_REG_FW_STATE) == OPTINC_FW_RUNNING, "the firmware runs");
	shared = huge_page();
	if (enable_card(shared)) {
		check(identify(shared, 0) == OPTINC_AST_SUCCESS, "IDENTIFY");
		check(shared->id.port == atoi(argv[2]), "port %u, serial \"%.32s\"",
		      shared->id.port, shared->id.serial);
		identify_often(shared);
		time_reads();
	}
	set(OPTINC_REG_CONTROL, 0);
	check(wait_for(OPTINC_STATUS_READY, 0), "the card is disabled");
	printf("1..%d\n", tests);
	return failures ? 1 : 0;
}
