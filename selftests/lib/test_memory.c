// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Which memory the card is given: registered regions by handle and offset,
 * copies in staging for small operands, regions for the time of the call for
 * large ones; and that no region goes while it is used.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake_provider.h"

#define IOCTL(x)	(OPTINC_IOCTL_##x & 0xff)
#define STAGED		65536	/* bytes of an operand that is still copied */

static struct optinc_card *card;
static struct optinc_group *group;
static float buffer[4 * STAGED];	/* 1 MiB */
static float other[4 * STAGED];

static int setup(void **state)
{
	(void)state;
	fake_init();
	card = fake_card();
	group = fake_join(card, 64);
	memset(buffer, 0, sizeof(buffer));
	memset(other, 0, sizeof(other));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	memset(fake.ioctl_error, 0, sizeof(fake.ioctl_error));
	optinc_close(card);
	if (fake.live_mrs || fake.live_qps || fake.live_groups || fake.live_maps) {
		print_error("left: %u regions, %u queue pairs, %u groups, %u mappings\n",
			    fake.live_mrs, fake.live_qps, fake.live_groups, fake.live_maps);
		return -1;
	}
	return 0;
}

static struct optinc_mr *reg(void *addr, size_t length, unsigned int flags)
{
	struct optinc_mr *mr;

	assert_int_equal(optinc_mr_register(card, addr, length, flags, &mr), 0);
	return mr;
}

static void assert_says(const char *part)
{
	if (!strstr(optinc_last_error(), part))
		fail_msg("\"%s\" does not say \"%s\"", optinc_last_error(), part);
}

/* Small whole numbers, which an average of equals gives back exactly. */
static void fill(float *x, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		x[i] = (float)(i % 100);
}

static void mean(const float *send, float *recv, size_t n)
{
	assert_int_equal(optinc_allreduce(group, send, recv, n, OPTINC_F32, OPTINC_MEAN, NULL,
					  NULL), 0);
}

static unsigned int registrations(void)
{
	return fake.ioctls[IOCTL(MR_REG)];
}

static void test_registered(void **state)
{
	struct optinc_mr *a = reg(buffer, sizeof(buffer), 0);
	struct optinc_mr *b = reg(other, sizeof(other), OPTINC_MR_WRITE);

	(void)state;
	fill(buffer + 100, 50);
	mean(buffer + 100, other + 7, 50);
	assert_memory_equal(buffer + 100, other + 7, 50 * sizeof(float));
	assert_int_equal(fake.sqe.src_off, 400);
	assert_int_equal(fake.sqe.dst_off, 28);
	assert_true(fake.sqe.src_mr != fake.sqe.dst_mr);
	/* The whole of the region, to the last byte. */
	mean(buffer, other, 4 * STAGED);
	assert_int_equal(registrations(), 2);
	assert_int_equal(optinc_mr_deregister(a), 0);
	assert_int_equal(optinc_mr_deregister(b), 0);
	assert_int_equal(fake.live_mrs, 0);
}

/* Not all of the operand is in the region: it must not be used. */
static void test_partly_registered(void **state)
{
	struct optinc_mr *a = reg(buffer, 400, OPTINC_MR_WRITE);

	(void)state;
	fill(buffer, 200);
	mean(buffer, buffer, 100);
	assert_int_equal(registrations(), 1);
	mean(buffer, buffer, 101);		/* one beyond the end: staging is made */
	assert_int_equal(registrations(), 2);
	assert_int_equal(fake.sqe.src_mr, fake.sqe.dst_mr);
	mean(buffer + 99, other, 2);
	mean(other, other, 1);
	assert_int_equal(registrations(), 2);
	assert_int_equal(optinc_mr_deregister(a), 0);
}

/* A region that the card may not write is no destination. */
static void test_read_only_region(void **state)
{
	struct optinc_mr *a = reg(buffer, sizeof(buffer), 0);
	struct optinc_mr *b;

	(void)state;
	fill(other, 64);
	mean(other, buffer, 64);
	assert_memory_equal(other, buffer, 64 * sizeof(float));
	assert_int_equal(registrations(), 2);	/* staging */
	/* A writable region of the same memory is found behind it. */
	b = reg(buffer, sizeof(buffer), OPTINC_MR_WRITE);
	mean(buffer, buffer, 64);
	mean(buffer, buffer, 2 * STAGED);
	assert_int_equal(registrations(), 3);
	assert_int_equal(optinc_mr_deregister(b), 0);
	assert_int_equal(optinc_mr_deregister(a), 0);
}

/* Regions may overlap; an early large one is found behind later small ones. */
static void test_overlapping_regions(void **state)
{
	struct optinc_mr *large = reg(buffer, sizeof(buffer), OPTINC_MR_WRITE);
	struct optinc_mr *small[40];
	unsigned int i;

	(void)state;
	for (i = 0; i < 40; i++)
		small[i] = reg(buffer + 100 * i, 40, OPTINC_MR_WRITE);
	fill(buffer, STAGED);
	mean(buffer + 3950, other, 1);
	for (i = 0; i < 40; i++) {
		unsigned int before = registrations();

		mean(buffer + 100 * i, buffer + 100 * i, 50);	/* larger than the small one */
		assert_int_equal(fake.sqe.src_off, 400 * i);
		mean(buffer + 100 * i + 2, buffer + 100 * i + 2, 8);
		assert_int_equal(registrations(), before);
	}
	assert_int_equal(optinc_mr_deregister(large), 0);
	/* Now only the small ones are there, from any order of removal. */
	for (i = 0; i < 40; i++) {
		unsigned int j = (i * 17) % 40, before = registrations();

		mean(buffer + 100 * j + 2, buffer + 100 * j + 2, 8);
		assert_int_equal(registrations(), before);
		assert_int_equal(optinc_mr_deregister(small[j]), 0);
	}
}

/* A handle that serves another region must not be taken for the old one. */
static void test_reused_handle(void **state)
{
	struct optinc_mr *a = reg(buffer, 4096, OPTINC_MR_WRITE);

	(void)state;
	fill(buffer, 64);
	fill(other, 64);
	mean(buffer, buffer, 64);
	assert_int_equal(optinc_mr_deregister(a), 0);
	a = reg(other, 4096, OPTINC_MR_WRITE);
	mean(buffer, buffer, 64);
	assert_int_equal(registrations(), 3);	/* staging, not the stale region */
	mean(other, other, 64);
	assert_int_equal(registrations(), 3);
	assert_int_equal(optinc_mr_deregister(a), 0);
	assert_int_equal(optinc_mr_deregister(a), -EINVAL);
}

static void test_staging(void **state)
{
	static const size_t sizes[] = { 1, 2, 3, 127, 128, 129, 1000, STAGED / 4 };
	size_t i, n;

	(void)state;
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		n = sizes[i];
		fill(buffer + 1, n);
		memset(other, 0xee, sizeof(other));
		mean(buffer + 1, other + 3, n);
		assert_memory_equal(buffer + 1, other + 3, n * sizeof(float));
		/* nothing before, nothing behind */
		assert_int_equal(((unsigned char *)(other + 3))[-1], 0xee);
		assert_int_equal(((unsigned char *)(other + 3 + n))[0], 0xee);
		mean(buffer + 1, buffer + 1, n);
		assert_memory_equal(buffer + 1, other + 3, n * sizeof(float));
	}
	assert_int_equal(registrations(), 1);
}

/* Results of another size, and the third operand. */
static void test_staging_of_codes(void **state)
{
	struct optinc_options options = { .flags = OPTINC_SQE_EXPONENTS };
	uint8_t exponents[2] = { 100, 101 };
	int8_t codes[300];
	int16_t sums[300];
	unsigned int i;

	(void)state;
	for (i = 0; i < 300; i++)
		codes[i] = (int8_t)(i % 200 - 100);
	options.exponents = exponents;
	assert_int_equal(optinc_allreduce(group, codes, sums, 300, OPTINC_I8, OPTINC_SUM, &options,
					  NULL), 0);
	for (i = 0; i < 300; i++)
		assert_int_equal(sums[i], 3 * codes[i]);
	assert_true(fake.sqe.exp_mr);
	assert_int_equal(registrations(), 1);
}

static void test_broadcast_memory(void **state)
{
	unsigned char bytes[100];
	unsigned int i;

	(void)state;
	memset(bytes, 7, sizeof(bytes));
	assert_int_equal(optinc_broadcast(group, bytes, sizeof(bytes), 1, NULL, NULL), 0);
	assert_int_equal(fake.sqe.dst_mr, 0);
	assert_true(fake.sqe.src_mr);
	for (i = 0; i < sizeof(bytes); i++)
		assert_int_equal(bytes[i], 7);
	assert_int_equal(optinc_broadcast(group, bytes, sizeof(bytes), 2, NULL, NULL), 0);
	assert_int_equal(fake.sqe.src_mr, 0);
	for (i = 0; i < sizeof(bytes); i++)
		assert_int_equal(bytes[i], (uint8_t)(0xb0 + i));
}

static void test_large(void **state)
{
	(void)state;
	fill(buffer, STAGED);
	mean(buffer, other, STAGED);
	assert_memory_equal(buffer, other, STAGED * sizeof(float));
	assert_int_equal(registrations(), 2);
	assert_int_equal(fake.live_mrs, 0);
	/* In place one region serves both. */
	mean(buffer, buffer, STAGED);
	assert_int_equal(registrations(), 3);
	assert_int_equal(fake.live_mrs, 0);
	/* The first size that is not copied. */
	mean(buffer, buffer, STAGED / 4 + 1);
	assert_int_equal(registrations(), 4);
}

/* Staging is finite; what does not fit is registered instead. */
static void test_staging_used_up(void **state)
{
	struct optinc_request *r[40];
	unsigned int i, n = STAGED / 4;

	(void)state;
	fake.mode = FAKE_HOLD;
	fill(buffer, 2 * STAGED);
	for (i = 0; i < 40; i++)
		assert_int_equal(optinc_iallreduce(group, buffer + i * 64,
						   other + i * n % (3 * STAGED), n, OPTINC_F32,
						   OPTINC_MEAN, NULL, &r[i]), 0);
	assert_true(fake.live_mrs > 1);
	while (fake_complete(0, NULL))
		;
	for (i = 0; i < 40; i++)
		assert_int_equal(optinc_wait(r[i], -1, NULL), 0);
	assert_int_equal(fake.live_mrs, 1);
	/* All of it was given back. */
	i = registrations();
	fake.mode = FAKE_AT_ONCE;
	for (n = 0; n < 100; n++)
		mean(buffer, other, STAGED / 4);
	assert_int_equal(registrations(), i);
	assert_memory_equal(buffer, other, STAGED);
}

/* Nor is there room for regions without end: that is a matter of waiting. */
static void test_regions_used_up(void **state)
{
	struct optinc_request *r[2], *more;

	(void)state;
	fake.mode = FAKE_HOLD;
	assert_int_equal(optinc_iallreduce(group, buffer, other, STAGED, OPTINC_F32, OPTINC_MEAN,
					   NULL, &r[0]), 0);
	fake.ioctl_error[IOCTL(MR_REG)] = -ENOSPC;
	assert_int_equal(optinc_iallreduce(group, buffer, other + STAGED, STAGED, OPTINC_F32,
					   OPTINC_MEAN, NULL, &more), -EAGAIN);
	assert_says("wait for one");
	assert_null(more);
	fake.ioctl_error[IOCTL(MR_REG)] = 0;
	assert_int_equal(optinc_iallreduce(group, buffer, other + STAGED, STAGED, OPTINC_F32,
					   OPTINC_MEAN, NULL, &r[1]), 0);
	while (fake_complete(0, NULL))
		;
	assert_int_equal(optinc_wait(r[0], -1, NULL), 0);
	assert_int_equal(optinc_wait(r[1], -1, NULL), 0);
	/* With nothing outstanding, waiting is of no use. */
	fake.ioctl_error[IOCTL(MR_REG)] = -ENOSPC;
	assert_int_equal(optinc_iallreduce(group, buffer, other, STAGED, OPTINC_F32, OPTINC_MEAN,
					   NULL, &more), -ENOSPC);
	fake.ioctl_error[IOCTL(MR_REG)] = 0;
	assert_int_equal(fake.live_mrs, 0);
}

/* No staging to be had: each operand is registered, and it works. */
static void test_no_staging(void **state)
{
	(void)state;
	fake.ioctl_error[IOCTL(MR_REG)] = -ENOMEM;
	assert_int_equal(optinc_allreduce(group, buffer, other, 8, OPTINC_F32, OPTINC_MEAN, NULL,
					  NULL), -ENOMEM);
	assert_says("RLIMIT_MEMLOCK");
	fake.ioctl_error[IOCTL(MR_REG)] = 0;
	fill(buffer, 8);
	mean(buffer, other, 8);
	assert_memory_equal(buffer, other, 8 * sizeof(float));
	assert_int_equal(fake.live_mrs, 0);
}

/* The group goes on when memory cannot be registered for one call. */
static void test_registration_fails(void **state)
{
	(void)state;
	fake.ioctl_error[IOCTL(MR_REG)] = -EFAULT;
	assert_int_equal(optinc_allreduce(group, buffer, other, STAGED, OPTINC_F32, OPTINC_MEAN,
					  NULL, NULL), -EFAULT);
	assert_says("not mapped");
	assert_int_equal(fake.doorbells[0], 0);
	fake.ioctl_error[IOCTL(MR_REG)] = 0;
	mean(buffer, other, STAGED);
}

static void test_busy(void **state)
{
	struct optinc_mr *a = reg(buffer, sizeof(buffer), OPTINC_MR_WRITE);
	struct optinc_request *r, *q;

	(void)state;
	fake.mode = FAKE_HOLD;
	assert_int_equal(optinc_iallreduce(group, buffer, buffer + 8, 8, OPTINC_F32, OPTINC_MEAN,
					   NULL, &r), 0);
	assert_int_equal(optinc_iallreduce(group, buffer, buffer, 8, OPTINC_F32, OPTINC_MEAN, NULL,
					   &q), 0);
	assert_int_equal(optinc_mr_deregister(a), -EBUSY);
	assert_says("3 operands");
	fake_complete(0, NULL);
	assert_int_equal(optinc_wait(r, -1, NULL), 0);
	assert_int_equal(optinc_mr_deregister(a), -EBUSY);
	/* A failed request gives its memory back as well. */
	fake_complete(0, &(struct fake_completion) { .status = OPTINC_ST_TIMEOUT });
	assert_int_equal(optinc_wait(q, -1, NULL), -ETIMEDOUT);
	assert_int_equal(optinc_mr_deregister(a), 0);
	assert_int_equal(fake.live_mrs, 0);
}

/* A failed request writes nothing: the caller's buffer is as it was. */
static void test_failed_request_copies_nothing(void **state)
{
	struct optinc_request *r;

	(void)state;
	fake.mode = FAKE_HOLD;
	fill(buffer, 8);
	other[0] = 77;
	assert_int_equal(optinc_iallreduce(group, buffer, other, 8, OPTINC_F32, OPTINC_MEAN, NULL,
					   &r), 0);
	fake_complete(0, &(struct fake_completion) { .status = OPTINC_ST_PEER_LOST });
	assert_int_equal(optinc_wait(r, -1, NULL), -ECONNRESET);
	assert_true(other[0] == 77);
}

static void test_register_errors(void **state)
{
	static const struct {
		int error;
		const char *says;
	} cases[] = {
		{ -EFAULT, "not mapped" },
		{ -ENOMEM, "ulimit -l" },
		{ -ENOSPC, "256 regions" },
		{ -EIO, "cannot be registered" },
	};
	struct optinc_mr *mr;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fake.ioctl_error[IOCTL(MR_REG)] = cases[i].error;
		assert_int_equal(optinc_mr_register(card, buffer, 1, 0, &mr), cases[i].error);
		assert_null(mr);
		assert_says(cases[i].says);
	}
	fake.ioctl_error[IOCTL(MR_REG)] = 0;
	assert_int_equal(optinc_mr_register(card, buffer, 0, 0, &mr), -EINVAL);
	assert_int_equal(optinc_mr_register(card, NULL, 8, 0, &mr), -EINVAL);
	assert_int_equal(optinc_mr_register(card, (void *)-4096L, 8192, 0, &mr), -EINVAL);
	assert_int_equal(optinc_mr_register(card, buffer, 8, OPTINC_MR_DMABUF, &mr), -EOPNOTSUPP);
	assert_int_equal(optinc_mr_register(card, buffer, (1 << 26) + 1, 0, &mr), -EINVAL);
	assert_says("67108864");
	assert_int_equal(optinc_mr_register(NULL, buffer, 8, 0, &mr), -EINVAL);
	assert_int_equal(optinc_mr_register(card, buffer, 8, 0, NULL), -EINVAL);
	assert_int_equal(optinc_mr_deregister(NULL), -EINVAL);
	assert_int_equal(fake.live_mrs, 0);
}

static void test_deregister_errors(void **state)
{
	struct optinc_mr *a = reg(buffer, 4096, OPTINC_MR_WRITE);

	(void)state;
	fake.ioctl_error[IOCTL(MR_DEREG)] = -EBUSY;
	assert_int_equal(optinc_mr_deregister(a), -EBUSY);
	mean(buffer, buffer, 8);	/* still there */
	assert_int_equal(registrations(), 1);
	/* A card that is gone cannot be asked, and need not. */
	fake.ioctl_error[IOCTL(MR_DEREG)] = -ENODEV;
	assert_int_equal(optinc_mr_deregister(a), 0);
	fake.live_mrs = 0;
}

/* A region that the card will not give up may be written to: the group ends. */
static void test_temporary_not_given_up(void **state)
{
	struct optinc_group_info info;

	(void)state;
	fake.ioctl_error[IOCTL(MR_DEREG)] = -EIO;
	optinc_allreduce(group, buffer, other, STAGED, OPTINC_F32, OPTINC_MEAN, NULL, NULL);
	optinc_group_info(group, &info, sizeof(info));
	assert_int_equal(info.error, -EIO);
	fake.live_mrs = 0;
}

static void test_bad_handle(void **state)
{
	struct optinc_mr *mr;

	(void)state;
	fake.bad_handles = true;
	assert_int_equal(optinc_mr_register(card, buffer, 8, 0, &mr), -EIO);
	fake.live_mrs = 0;
}

#define TEST(name)	cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_registered),
		TEST(test_partly_registered),
		TEST(test_read_only_region),
		TEST(test_overlapping_regions),
		TEST(test_reused_handle),
		TEST(test_staging),
		TEST(test_staging_of_codes),
		TEST(test_broadcast_memory),
		TEST(test_large),
		TEST(test_staging_used_up),
		TEST(test_regions_used_up),
		TEST(test_no_staging),
		TEST(test_registration_fails),
		TEST(test_busy),
		TEST(test_failed_request_copies_nothing),
		TEST(test_register_errors),
		TEST(test_deregister_errors),
		TEST(test_temporary_not_given_up),
		TEST(test_bad_handle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
