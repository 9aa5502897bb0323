// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Cards: open and why not, what they are told to be, knobs, sizes of structs;
 * the kernel's provider as far as files go; names.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Before cmocka.h, which makes a macro of fail. */
#include "lib/internal.h"
#include "fake_provider.h"

#include <cmocka.h>

static int setup(void **state)
{
	(void)state;
	fake_init();
	unsetenv("OPTINC_SPIN_US");
	unsetenv("OPTINC_EMU_PATH");
	return 0;
}

static void assert_opens_with(const char *uri, int error, enum optinc_reason reason,
			      const char *says)
{
	struct optinc_card *card = (struct optinc_card *)&fake;
	struct optinc_why why;

	assert_int_equal(optinc_open(uri, &card), error);
	assert_null(card);
	if (!strstr(optinc_last_error(), says))
		fail_msg("%s: \"%s\" does not say \"%s\"", uri, optinc_last_error(), says);
	assert_int_equal(optinc_why(NULL, &why), 0);
	assert_int_equal(why.used, 0);
	assert_string_equal(optinc_reason_name(why.reason), optinc_reason_name(reason));
	assert_true(why.text[0]);
}

static void test_bad_uris(void **state)
{
	static const char *const uris[] = {
		"", "0", "card", "card:", "card:x", "card:1x", "card:-1", "card: 1", "card:1000000",
		"pci:", "pci:zz", "pci:0000:03:00", "pci:0000:03:00.8", "pci:0000:03:20.0",
		"pci:0000:03:00.0x", "nvme:0", ":", "fak:0", "faker:0", "em:x", "emux:x",
	};
	char lengthy[200];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(uris) / sizeof(uris[0]); i++)
		assert_opens_with(uris[i], -EINVAL, OPTINC_REASON_BAD_URI, "");
	memset(lengthy, 'x', sizeof(lengthy));
	lengthy[199] = '\0';
	memcpy(lengthy, "fake:", 5);
	assert_opens_with(lengthy, -EINVAL, OPTINC_REASON_BAD_URI, "longer");
	assert_opens_with(NULL, -EINVAL, OPTINC_REASON_BAD_URI, "");
	assert_int_equal(optinc_open("fake:", NULL), -EINVAL);
	assert_int_equal(fake.opens, 0);
}

static void test_open_refused(void **state)
{
	(void)state;
	fake.open_error = -EBUSY;
	fake.open_says = (struct optinc_open_error) {
		OPTINC_REASON_BUSY, "port 1 is held by process 17",
	};
	assert_opens_with("fake:1", -EBUSY, OPTINC_REASON_BUSY,
			  "fake:1: port 1 is held by process 17");
	/* A provider that says nothing, and one that forgets the NUL. */
	fake.open_says = (struct optinc_open_error) { .reason = OPTINC_REASON_NO_CARD };
	assert_opens_with("fake:1", -EBUSY, OPTINC_REASON_NO_CARD, "busy");
	memset(fake.open_says.text, 'y', sizeof(fake.open_says.text));
	assert_opens_with("fake:1", -EBUSY, OPTINC_REASON_NO_CARD, "yyy");
}

static void test_unusable_cards(void **state)
{
	(void)state;
	fake.query.interface_version = 2 << 16;
	assert_opens_with("fake:", -EPROTO, OPTINC_REASON_VERSION, "interface version 2");
	fake.query.interface_version = 1 << 16 | 9;	/* a newer minor is fine */
	fake.query.format_version = 7;
	assert_opens_with("fake:", -EPROTO, OPTINC_REASON_VERSION, "number format version 7");
	fake.query.format_version = OPTINC_FORMAT_VERSION;
	fake.query.features = 0;
	assert_opens_with("fake:", -EOPNOTSUPP, OPTINC_REASON_NO_ISOLATION, "CAP_SYS_RAWIO");
	fake.query.features = OPTINC_FEAT_USER_QUEUES;
	fake.query.node = OPTINC_NODE_CTL;
	assert_opens_with("fake:", -ENOENT, OPTINC_REASON_NO_CARD, "data node");
	fake.query.node = OPTINC_NODE_CARD;
	fake.query.page_size = 4097;
	assert_opens_with("fake:", -EIO, OPTINC_REASON_CARD_FAILED, "impossible");
	fake.query.page_size = 1 << 30;
	assert_opens_with("fake:", -EIO, OPTINC_REASON_CARD_FAILED, "impossible");
	fake.query.page_size = 4096;
	fake.query.max_queue = 0;
	assert_opens_with("fake:", -EIO, OPTINC_REASON_CARD_FAILED, "impossible");
	fake.query.max_queue = 64;
	fake.query.port = 4;
	assert_opens_with("fake:", -EIO, OPTINC_REASON_CARD_FAILED, "impossible");
	fake.query.port = 0;
	fake.mmap_error = EPERM;
	assert_opens_with("fake:", -EPERM, OPTINC_REASON_CARD_FAILED, "doorbell");
	fake.mmap_error = 0;
	fake.ioctl_error[OPTINC_IOCTL_QUERY & 0xff] = -ENODEV;
	assert_opens_with("fake:", -ENODEV, OPTINC_REASON_CARD_FAILED, "identify");
	fake.ioctl_error[OPTINC_IOCTL_QUERY & 0xff] = 0;
	/* All attempts were closed again, and now nothing is wrong. */
	assert_int_equal(fake.opens, fake.closes);
	assert_int_equal(fake.live_maps, 0);
	optinc_close(fake_card());
	optinc_close(NULL);
}

static void test_info(void **state)
{
	struct optinc_card *card;
	struct optinc_card_info info;

	(void)state;
	/* A card whose strings do not end. */
	memset(fake.query.model, 'm', sizeof(fake.query.model));
	card = fake_card();
	memset(&info, 0xff, sizeof(info));
	assert_int_equal(optinc_card_info(card, &info, sizeof(info)), 0);
	assert_int_equal(info.port, 1);
	assert_int_equal(info.ports, 4);
	assert_int_equal(info.lanes, 8);
	assert_int_equal(info.lanes_up, 7);
	assert_int_equal(info.lane_mbps, 800000);
	assert_int_equal(info.max_count, 1 << 24);
	assert_int_equal(info.code_bits, 1 << 8 | 1 << 16);
	assert_int_equal(info.interface_version, 1 << 16);
	assert_int_equal(info.firmware_version, 77);
	assert_string_equal(info.serial, "FAKE0001");
	assert_int_equal(strlen(info.model), 31);
	assert_string_equal(info.uri, "fake:0");
	assert_int_equal(optinc_card_info(NULL, &info, sizeof(info)), -EINVAL);
	assert_int_equal(optinc_card_info(card, NULL, sizeof(info)), -EINVAL);
	optinc_close(card);
}

/* A caller of another version: his bytes and no more, zero where we know nothing. */
static void test_struct_sizes(void **state)
{
	struct optinc_card *card = fake_card();
	struct optinc_group *group = fake_join(card, 8);
	union {
		struct optinc_card_info info;
		struct optinc_card_stats stats;
		struct optinc_group_info group;
		uint8_t bytes[1024];
	} u;
	size_t i;

	(void)state;
	fake.stats.requests = 5;
	fake.stats.device_ns = 6;
	memset(&u, 0xee, sizeof(u));
	assert_int_equal(optinc_card_info(card, &u.info, 8), 0);
	assert_int_equal(u.info.features, fake.query.features);
	assert_int_equal(u.bytes[8], 0xee);
	memset(&u, 0xee, sizeof(u));
	assert_int_equal(optinc_card_info(card, &u.info, 1000), 0);
	for (i = sizeof(u.info); i < 1000; i++)
		assert_int_equal(u.bytes[i], 0);
	assert_int_equal(u.bytes[1000], 0xee);

	memset(&u, 0xee, sizeof(u));
	assert_int_equal(optinc_card_stats(card, &u.stats, sizeof(u.stats) + 16), 0);
	assert_int_equal(u.stats.requests, 5);
	assert_int_equal(u.stats.device_ns, 6);
	assert_int_equal(u.bytes[sizeof(u.stats) + 15], 0);
	assert_int_equal(u.bytes[sizeof(u.stats) + 16], 0xee);

	memset(&u, 0xee, sizeof(u));
	assert_int_equal(optinc_group_info(group, &u.group, 8), 0);
	assert_int_equal(u.group.rank, 1);
	assert_int_equal(u.group.nranks, 3);
	assert_int_equal(u.bytes[8], 0xee);
	assert_int_equal(optinc_group_info(NULL, &u.group, 8), -EINVAL);
	assert_int_equal(optinc_group_info(group, NULL, 8), -EINVAL);
	optinc_close(card);
}

static void test_stats_fail(void **state)
{
	struct optinc_card *card = fake_card();
	struct optinc_card_stats stats;

	(void)state;
	fake.ioctl_error[OPTINC_IOCTL_STATS & 0xff] = -ENODEV;
	assert_int_equal(optinc_card_stats(card, &stats, sizeof(stats)), -ENODEV);
	optinc_close(card);
}

static long spin_of(const char *env)
{
	struct optinc_card *card;
	long value = -1;

	setenv("OPTINC_SPIN_US", env, 1);
	card = fake_card();
	assert_int_equal(optinc_card_get(card, OPTINC_OPTION_SPIN_US, &value), 0);
	optinc_close(card);
	unsetenv("OPTINC_SPIN_US");
	return value;
}

static void test_knobs(void **state)
{
	struct optinc_card *card = fake_card();
	long value;

	(void)state;
	assert_int_equal(optinc_card_get(card, OPTINC_OPTION_SPIN_US, &value), 0);
	assert_int_equal(value, 50);
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_SPIN_US, 0), 0);
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_SPIN_US, 1000000), 0);
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_SPIN_US, 1000001), -EINVAL);
	assert_int_equal(optinc_card_set(card, OPTINC_OPTION_SPIN_US, -1), -EINVAL);
	assert_int_equal(optinc_card_set(card, 99, 1), -EINVAL);
	assert_int_equal(optinc_card_get(card, 99, &value), -EINVAL);
	assert_int_equal(optinc_card_get(card, OPTINC_OPTION_SPIN_US, NULL), -EINVAL);
	assert_int_equal(optinc_card_set(NULL, OPTINC_OPTION_SPIN_US, 1), -EINVAL);
	assert_int_equal(optinc_card_get(card, OPTINC_OPTION_SPIN_US, &value), 0);
	assert_int_equal(value, 1000000);
	optinc_close(card);

	assert_int_equal(spin_of("0"), 0);
	assert_int_equal(spin_of("777"), 777);
	assert_int_equal(spin_of("-5"), 50);
	assert_int_equal(spin_of("5s"), 50);
	assert_int_equal(spin_of("99999999999999999999"), 50);
	assert_int_equal(spin_of(""), 50);
}

static void test_why_of_states(void **state)
{
	struct optinc_card *card = fake_card();
	struct optinc_why why;

	(void)state;
	assert_int_equal(optinc_why(card, &why), 0);
	assert_int_equal(why.reason, OPTINC_REASON_IDLE);
	assert_int_equal(why.used, 0);
	assert_int_equal(optinc_barrier(fake_join(card, 4), NULL, NULL), 0);
	assert_int_equal(optinc_why(card, &why), 0);
	assert_int_equal(why.reason, OPTINC_REASON_USED);
	assert_int_equal(why.used, 1);
	assert_non_null(strstr(why.text, "fake:0"));
	assert_int_equal(optinc_why(card, NULL), -EINVAL);
	optinc_close(card);
}

/* Each thread has its own. */
static void *other_thread(void *arg)
{
	struct optinc_why *why = arg;

	optinc_why(NULL, why);
	return optinc_last_error()[0] ? arg : NULL;
}

static void test_errors_are_per_thread(void **state)
{
	struct optinc_card *card;
	struct optinc_why why;
	pthread_t thread;
	void *said;

	(void)state;
	assert_int_equal(optinc_open("nonsense", &card), -EINVAL);
	assert_true(optinc_last_error()[0]);
	assert_int_equal(pthread_create(&thread, NULL, other_thread, &why), 0);
	pthread_join(thread, &said);
	assert_null(said);
	assert_int_equal(why.used, 0);
	assert_int_equal(why.reason, OPTINC_REASON_NO_CARD);
}

/* ----------------------------------------------------- the kernel's files */

static char root[64], class_dir[80], dev_dir[80];

static int files_setup(void **state)
{
	setup(state);
	strcpy(root, "/tmp/optinc-test-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	snprintf(class_dir, sizeof(class_dir), "%s/class", root);
	snprintf(dev_dir, sizeof(dev_dir), "%s/dev", root);
	sysfs_class_path = class_dir;
	dev_path = dev_dir;
	return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int files_teardown(void **state)
{
	(void)state;
	return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void add_entry(const char *name, const char *slot)
{
	char path[256], target[256];

	snprintf(path, sizeof(path), "%s/%s", class_dir, name);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/%s/device", class_dir, name);
	snprintf(target, sizeof(target), "../../../devices/pci0000:00/%s", slot ? slot : "");
	if (slot)
		assert_int_equal(symlink(target, path), 0);
}

static void add_node(const char *name, unsigned int mode)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dev_dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fclose(f);
	assert_int_equal(chmod(path, mode), 0);
}

static void test_no_driver(void **state)
{
	struct optinc_list *list;

	(void)state;
	assert_opens_with("card:0", -ENOENT, OPTINC_REASON_NO_DRIVER, "modprobe optinc");
	assert_opens_with("pci:0000:03:00.0", -ENOENT, OPTINC_REASON_NO_DRIVER, "modprobe optinc");
	assert_int_equal(optinc_enumerate(&list), 0);
	assert_int_equal(optinc_list_count(list), 0);
	assert_null(optinc_list_uri(list, 0));
	optinc_list_free(list);
}

static void test_enumerate(void **state)
{
	struct optinc_list *list;
	char name[16];
	unsigned int i;

	(void)state;
	assert_int_equal(mkdir(class_dir, 0700), 0);
	add_entry("card10", "0000:81:00.0");
	add_entry("card2", "0000:03:00.1");
	add_entry("card0", NULL);
	add_entry("ctl0", "0000:03:00.1");
	add_entry("cardx", "0000:03:00.1");
	assert_int_equal(optinc_enumerate(&list), 0);
	assert_int_equal(optinc_list_count(list), 3);
	assert_string_equal(optinc_list_uri(list, 0), "card:0");
	assert_string_equal(optinc_list_uri(list, 1), "card:2");
	assert_string_equal(optinc_list_uri(list, 2), "card:10");
	assert_string_equal(optinc_list_slot(list, 0), "");
	assert_string_equal(optinc_list_slot(list, 1), "0000:03:00.1");
	assert_string_equal(optinc_list_slot(list, 2), "0000:81:00.0");
	assert_null(optinc_list_uri(list, 3));
	assert_null(optinc_list_slot(list, 3));
	optinc_list_free(list);
	for (i = 20; i < 60; i++) {
		snprintf(name, sizeof(name), "card%u", i);
		add_entry(name, "0000:03:00.1");
	}
	assert_int_equal(optinc_enumerate(&list), 0);
	assert_int_equal(optinc_list_count(list), 43);
	assert_string_equal(optinc_list_uri(list, 42), "card:59");
	optinc_list_free(list);
	optinc_list_free(NULL);
	assert_int_equal(optinc_list_count(NULL), 0);
	assert_int_equal(optinc_enumerate(NULL), -EINVAL);
}

static void test_kernel_open(void **state)
{
	(void)state;
	assert_int_equal(mkdir(class_dir, 0700), 0);
	assert_int_equal(mkdir(dev_dir, 0700), 0);
	add_entry("card3", "0000:03:00.1");
	assert_opens_with("card:0", -ENOENT, OPTINC_REASON_NO_CARD, "card0");
	assert_opens_with("pci:0000:03:00.0", -ENOENT, OPTINC_REASON_NO_CARD, "0000:03:00.0");
	/* The link leads from the slot to the node, here a file that is no device. */
	assert_opens_with("pci:0000:03:00.1", -ENOENT, OPTINC_REASON_NO_CARD, "card3");
	add_node("card3", 0600);
	assert_opens_with("card:3", -ENOTTY, OPTINC_REASON_CARD_FAILED, "identify");
	assert_opens_with("pci:0000:03:00.1", -ENOTTY, OPTINC_REASON_CARD_FAILED, "identify");
	assert_opens_with("pci:03:00.1", -ENOTTY, OPTINC_REASON_CARD_FAILED, "identify");
}

/* As nobody, if this is root, who may open anything. */
static void test_no_permission(void **state)
{
	bool is_root = !geteuid();

	(void)state;
	assert_int_equal(mkdir(class_dir, 0755), 0);
	assert_int_equal(mkdir(dev_dir, 0755), 0);
	assert_int_equal(chmod(root, 0755), 0);
	add_node("card3", is_root ? 0600 : 0);
	if (is_root)
		assert_int_equal(seteuid(65534), 0);
	assert_opens_with("card:3", -EACCES, OPTINC_REASON_NO_PERMISSION, "group optinc");
	if (is_root)
		assert_int_equal(seteuid(0), 0);
}

/* ------------------------------------------------------------- emulator */

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void test_no_emulator(void **state)
{
	char path[128];

	(void)state;
	setenv("OPTINC_EMU_PATH", root, 1);
	assert_opens_with("emu:x?port=0&ports=2", -ENOPKG, OPTINC_REASON_NO_EMULATOR,
			  "no such file");
	/* One that does not load is reported, not passed over. */
	snprintf(path, sizeof(path), "%s/liboptinc-emu.so", root);
	write_file(path, "not a shared object");
	assert_opens_with("emu:x?port=0&ports=2", -ENOPKG, OPTINC_REASON_NO_EMULATOR, path);
	unsetenv("OPTINC_EMU_PATH");
}

/* Built by the compiler at hand: an emulator of another time. */
static void test_emulator_of_another_version(void **state)
{
	char path[128], command[512];

	(void)state;
	snprintf(path, sizeof(path), "%s/emu.c", root);
	write_file(path, "const struct { unsigned abi; } optinc_provider = { 4711 };\n");
	snprintf(command, sizeof(command), "%s -shared -fPIC -o %s/liboptinc-emu.so %s",
		 getenv("CC") ? getenv("CC") : "cc", root, path);
	assert_int_equal(system(command), 0);
	setenv("OPTINC_EMU_PATH", root, 1);
	assert_opens_with("emu:x?port=0&ports=2", -EPROTO, OPTINC_REASON_VERSION, "4711");
	unsetenv("OPTINC_EMU_PATH");
}

/* ----------------------------------------------------------------- names */

static void test_names(void **state)
{
	unsigned int i, known = 0;

	(void)state;
	assert_string_equal(optinc_dtype_name(OPTINC_BF16), "bf16");
	assert_string_equal(optinc_redop_name(OPTINC_VOTE), "vote");
	for (i = 0; i < OPTINC_DTYPES; i++)
		assert_non_null(optinc_dtype_name(i));
	for (i = 0; i < OPTINC_REDOPS; i++)
		assert_non_null(optinc_redop_name(i));
	assert_null(optinc_dtype_name(OPTINC_DTYPES));
	assert_null(optinc_dtype_name((enum optinc_dtype)-1));
	assert_null(optinc_redop_name(OPTINC_REDOPS));
	assert_string_equal(optinc_status_name(OPTINC_ST_PEER_LOST), "peer-lost");
	assert_string_equal(optinc_status_name(0x23), "unknown");
	assert_string_equal(optinc_status_name(0xffffffff), "unknown");
	/* Every status has a name and an errno, and nothing else has. */
	for (i = 0; i < 0x8000; i++) {
		bool named = strcmp(optinc_status_name(i), "unknown");

		assert_int_equal(named, status_known(i));
		assert_true(i == 0 ? !status_errno(i) : status_errno(i) < 0);
		known += named;
	}
	assert_int_equal(known, 18);
	for (i = 0; i <= OPTINC_REASON_CARD_FAILED; i++)
		assert_string_not_equal(optinc_reason_name(i), "unknown");
	assert_string_equal(optinc_reason_name(OPTINC_REASON_CARD_FAILED + 1), "unknown");
	assert_int_equal(optinc_version(), OPTINC_VERSION);
	assert_string_equal(optinc_version_string(), "0.1.0");
}

static void test_rank_lists(void **state)
{
	char text[64];

	(void)state;
	rank_list(1 << 3, text, sizeof(text));
	assert_string_equal(text, "rank 3");
	rank_list(1 << 1 | 1 << 15, text, sizeof(text));
	assert_string_equal(text, "ranks 1 and 15");
	rank_list(7, text, sizeof(text));
	assert_string_equal(text, "ranks 0, 1 and 2");
	rank_list(0xffffffff, text, sizeof(text));
	assert_string_equal(text, "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14 and 15");
	rank_list(0xffff, text, 12);
	assert_string_equal(text, "ranks 0, 1,");
}

#define TEST(name)	cmocka_unit_test_setup(name, setup)
#define FILE_TEST(name)	cmocka_unit_test_setup_teardown(name, files_setup, files_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_bad_uris),
		TEST(test_open_refused),
		TEST(test_unusable_cards),
		TEST(test_info),
		TEST(test_struct_sizes),
		TEST(test_stats_fail),
		TEST(test_knobs),
		TEST(test_why_of_states),
		TEST(test_errors_are_per_thread),
		FILE_TEST(test_no_driver),
		FILE_TEST(test_enumerate),
		FILE_TEST(test_kernel_open),
		FILE_TEST(test_no_permission),
		FILE_TEST(test_no_emulator),
		FILE_TEST(test_emulator_of_another_version),
		TEST(test_names),
		TEST(test_rank_lists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
