// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every ioctl with everything that can be wrong about it, the nodes' modes,
 * and what QUERY and STATS say: sections 1 to 4 of Documentation/uapi.rst.
 */
#include "card.h"

#include "kselftest_harness.h"

static const struct {
	const char *name;
	unsigned long cmd;
	uint32_t size;
	bool ctl;		/* exists on the control node */
	bool card;		/* exists on the data node */
} calls[] = {
	{ "QUERY", OPTINC_IOCTL_QUERY, 192, true, true },
	{ "STATS", OPTINC_IOCTL_STATS, 96, true, true },
	{ "MR_REG", OPTINC_IOCTL_MR_REG, 40, false, true },
	{ "MR_DEREG", OPTINC_IOCTL_MR_DEREG, 8, false, true },
	{ "QP_CREATE", OPTINC_IOCTL_QP_CREATE, 40, false, true },
	{ "QP_DESTROY", OPTINC_IOCTL_QP_DESTROY, 8, false, true },
	{ "GROUP_JOIN", OPTINC_IOCTL_GROUP_JOIN, 56, false, true },
	{ "GROUP_WAIT", OPTINC_IOCTL_GROUP_WAIT, 32, false, true },
	{ "GROUP_LEAVE", OPTINC_IOCTL_GROUP_LEAVE, 8, false, true },
	{ "GROUP_ABORT", OPTINC_IOCTL_GROUP_ABORT, 8, false, true },
	{ "RESET", OPTINC_IOCTL_RESET, 8, true, false },
};

FIXTURE(node)
{
	struct card card;
	int ctl;
};

FIXTURE_SETUP(node)
{
	must_open(&self->card, 0);
	self->ctl = open_node("ctl", 0);
	ASSERT_LE(0, self->ctl);
}

FIXTURE_TEARDOWN(node)
{
	close(self->ctl);
	shut(&self->card);
}

/* One member of a good structure is changed at a time. */
#define EXPECT_WITH(error, fd, cmd, good, field, value) do {			\
	typeof(good) bad_ = good;						\
										\
	bad_.field = (value);							\
	EXPECT_EQ(error, call(fd, cmd, &bad_))					\
		TH_LOG("with " #field " = " #value);				\
} while (0)

TEST(modes)
{
	struct stat st;

	ASSERT_EQ(0, stat("/dev/optinc/card0", &st));
	EXPECT_EQ(S_IFCHR | 0660, st.st_mode);
	EXPECT_EQ(0, st.st_uid);
	ASSERT_EQ(0, stat("/dev/optinc/ctl0", &st));
	EXPECT_EQ(S_IFCHR | 0600, st.st_mode);
	EXPECT_EQ(0, st.st_uid);
	EXPECT_EQ(0, st.st_gid);
}

/* The result of opening a node, as a user who is nobody and in group @arg */
static int open_as(const char *kind, gid_t group)
{
	int fd;

	must(!setgroups(0, NULL) && !setresgid(group, group, group));
	must(!setresuid(NOBODY, NOBODY, NOBODY));
	fd = open_node(kind, 0);
	return fd < 0 ? -fd : 0;
}

static int nobody_opens_card(void *arg)
{
	(void)arg;
	return open_as("card", NOBODY);
}

static int member_opens_card(void *arg)
{
	struct stat st;

	(void)arg;
	must(!stat("/dev/optinc/card0", &st));
	return open_as("card", st.st_gid);
}

static int member_opens_ctl(void *arg)
{
	struct stat st;

	(void)arg;
	must(!stat("/dev/optinc/card0", &st));
	return open_as("ctl", st.st_gid);
}

TEST(who_may_open)
{
	EXPECT_EQ(EACCES, in_child(nobody_opens_card, NULL));
	EXPECT_EQ(0, in_child(member_opens_card, NULL));
	EXPECT_EQ(EACCES, in_child(member_opens_ctl, NULL));
}

/* No seeking, no reading, no writing, no mapping of the control node */
TEST_F(node, other_operations)
{
	char byte = 0;

	EXPECT_EQ(-1, lseek(self->card.fd, 0, SEEK_SET));
	EXPECT_EQ(ESPIPE, errno);
	EXPECT_EQ(-1, read(self->card.fd, &byte, 1));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, write(self->card.fd, &byte, 1));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, map(self->ctl, page_bytes(), self->card.query.doorbell_offset));
	EXPECT_EQ(ENODEV, errno);
}

TEST_F(node, unknown_commands)
{
	struct optinc_query q = { .size = sizeof(q) };
	unsigned int nr, fd;

	for (fd = 0; fd < 2; fd++) {
		int node = fd ? self->ctl : self->card.fd;

		for (nr = ARRAY_SIZE(calls); nr < 256; nr++)
			EXPECT_EQ(-ENOTTY, call(node, _IO(OPTINC_IOCTL_TYPE, nr), &q));
		EXPECT_EQ(-ENOTTY, call(node, _IO(OPTINC_IOCTL_TYPE - 1, 0), &q));
		EXPECT_EQ(-ENOTTY, call(node, OPTINC_IOCTL_QUERY | 1U << 31, &q));
		EXPECT_EQ(-ENOTTY, call(node, OPTINC_IOCTL_QUERY | sizeof(q) << 16, &q));
		EXPECT_EQ(-ENOTTY, call(node, _IO(OPTINC_IOCTL_TYPE, 255), NULL));
	}
	for (nr = 0; nr < ARRAY_SIZE(calls); nr++) {
		if (!calls[nr].ctl)
			EXPECT_EQ(-ENOTTY, call(self->ctl, calls[nr].cmd, NULL));
		if (!calls[nr].card)
			EXPECT_EQ(-ENOTTY, call(self->card.fd, calls[nr].cmd, NULL));
	}
}

/* Section 2, the same for all */
TEST_F(node, sizes)
{
	size_t page = page_bytes();
	char *buffer = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	char *copy = malloc(page);
	uint32_t *size = (uint32_t *)buffer;
	unsigned int i;

	ASSERT_NE(MAP_FAILED, buffer);
	ASSERT_EQ(0, munmap(buffer + 2 * page, page));
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		int fd = calls[i].card ? self->card.fd : self->ctl;
		uint32_t first = calls[i].size, n;

		memset(buffer, 0, 2 * page);
		EXPECT_EQ(-EFAULT, call(fd, calls[i].cmd, NULL)) TH_LOG("%s", calls[i].name);
		EXPECT_EQ(-EFAULT, call(fd, calls[i].cmd, buffer + 2 * page));
		for (n = 0; n < first; n++) {
			*size = n;
			EXPECT_EQ(-EINVAL, call(fd, calls[i].cmd, buffer))
				TH_LOG("%s, size %u", calls[i].name, n);
		}
		*size = page + 1;
		EXPECT_EQ(-E2BIG, call(fd, calls[i].cmd, buffer)) TH_LOG("%s", calls[i].name);
		*size = -1U;
		EXPECT_EQ(-E2BIG, call(fd, calls[i].cmd, buffer)) TH_LOG("%s", calls[i].name);
		/* a member of tomorrow, at the first and the last byte there can be */
		for (n = first; n < page; n += page - 1 - first) {
			*size = page;
			buffer[n] = 1;
			memcpy(copy, buffer, page);
			EXPECT_EQ(-E2BIG, call(fd, calls[i].cmd, buffer))
				TH_LOG("%s, byte %u", calls[i].name, n);
			EXPECT_EQ(0, memcmp(copy, buffer, page));
			buffer[n] = 0;
		}
		/* the structure ends where memory does: no byte too many is read */
		size = (uint32_t *)(buffer + 2 * page - first);
		*size = first;
		EXPECT_NE(-EFAULT, call(fd, calls[i].cmd, size)) TH_LOG("%s", calls[i].name);
		memset(size, 0, first);
		size = (uint32_t *)(buffer + 2 * page - 4);
		*size = first;
		EXPECT_EQ(-EFAULT, call(fd, calls[i].cmd, size)) TH_LOG("%s", calls[i].name);
		size = (uint32_t *)buffer;
	}
	free(copy);
}

/* A longer structure is answered as if it were ours; the rest is left alone. */
TEST_F(node, longer_structure)
{
	union {
		struct optinc_query query;
		unsigned char bytes[512];
	} arg;
	unsigned int i;

	memset(&arg, 0, sizeof(arg));
	arg.query.size = 300;
	memset(arg.bytes + 300, 0x5a, sizeof(arg) - 300);
	ASSERT_EQ(0, call(self->card.fd, OPTINC_IOCTL_QUERY, &arg));
	EXPECT_EQ(300, arg.query.size);
	EXPECT_EQ(OPTINC_NODE_CARD, arg.query.node);
	for (i = sizeof(arg.query); i < sizeof(arg); i++)
		ASSERT_EQ(i < 300 ? 0 : 0x5a, arg.bytes[i]);
}

TEST_F(node, query)
{
	struct optinc_query q, ctl;
	char path[64], serial[32] = "";
	FILE *file;

	memset(&q, 0xff, sizeof(q));	/* what is (out) is not looked at */
	q.size = sizeof(q);
	q.__reserved = 0;
	ASSERT_EQ(0, call(self->card.fd, OPTINC_IOCTL_QUERY, &q));
	EXPECT_EQ(sizeof(q), q.size);
	EXPECT_EQ(OPTINC_NODE_CARD, q.node);
	EXPECT_EQ(0, q.features & ~(OPTINC_FEAT_ISOLATION | OPTINC_FEAT_USER_QUEUES |
				    OPTINC_FEAT_MR_CACHE | OPTINC_FEAT_DMABUF |
				    OPTINC_FEAT_EMULATED));
	EXPECT_TRUE(q.features & OPTINC_FEAT_USER_QUEUES);
	EXPECT_EQ(0, q.opcodes >> OPTINC_OPCODES);
	EXPECT_EQ(0x1f, q.opcodes & 0x1f);
	EXPECT_EQ(0, q.dtypes >> OPTINC_DTYPES);
	EXPECT_EQ(0, q.redops >> OPTINC_REDOPS);
	EXPECT_NE(0, q.code_bits);
	EXPECT_EQ(0, q.code_bits & ~(1ULL << 8 | 1ULL << 16));
	EXPECT_LE(1ULL << 20, q.max_count);
	EXPECT_LE(1ULL << 30, q.max_mr_bytes);
	EXPECT_EQ(OPTINC_FORMAT_VERSION, q.format_version);
	EXPECT_LE(2, q.ports);
	EXPECT_LT(q.port, q.ports);
	EXPECT_LE(1, q.lanes);
	EXPECT_LE(q.lanes_up, q.lanes);
	EXPECT_LE(1, q.max_qps);
	EXPECT_LE(16, q.max_mrs);
	EXPECT_LE(1, q.max_groups);
	EXPECT_LE(64, q.max_queue);
	EXPECT_LE(q.max_queue, OPTINC_MAX_QUEUE);
	EXPECT_EQ(page_bytes(), q.page_size);
	EXPECT_EQ(0, q.doorbell_offset % q.page_size);
	EXPECT_NE(0, q.doorbell_offset);
	EXPECT_EQ(0, q.context_offset % q.page_size);
	EXPECT_EQ(!(q.features & OPTINC_FEAT_MR_CACHE), !q.context_offset);
	EXPECT_EQ(1, q.interface_version >> 16);
	EXPECT_EQ(0, q.__reserved);
	EXPECT_LT(strnlen(q.serial, sizeof(q.serial)), sizeof(q.serial));
	EXPECT_LT(strnlen(q.model, sizeof(q.model)), sizeof(q.model));

	ASSERT_EQ(0, query(self->ctl, &ctl));
	EXPECT_EQ(OPTINC_NODE_CTL, ctl.node);
	EXPECT_EQ(0, ctl.doorbell_offset);
	EXPECT_EQ(0, ctl.context_offset);
	ctl.node = q.node;
	ctl.doorbell_offset = q.doorbell_offset;
	ctl.context_offset = q.context_offset;
	EXPECT_EQ(0, memcmp(&ctl, &q, sizeof(q)));

	snprintf(path, sizeof(path), "/sys/class/optinc/card%u/serial", node_number(0));
	file = fopen(path, "r");
	ASSERT_NE(NULL, file);
	EXPECT_NE(NULL, fgets(serial, sizeof(serial), file));
	serial[strcspn(serial, "\n")] = '\0';
	EXPECT_STREQ(serial, q.serial);
	fclose(file);

	EXPECT_WITH(-EOPNOTSUPP, self->card.fd, OPTINC_IOCTL_QUERY, q, __reserved, 1);
	EXPECT_WITH(-EOPNOTSUPP, self->ctl, OPTINC_IOCTL_QUERY, q, __reserved, 1U << 31);
}

TEST_F(node, stats)
{
	struct optinc_stats before, after, ctl = { .size = sizeof(ctl) };
	struct queue q;

	must_create_queue(&self->card, &q, 4, 4, -1);
	before = must_stats(&self->card);
	post_nop(&q, 1);
	ASSERT_EQ(OPTINC_ST_SUCCESS, await_status(&q));
	ring_doorbell(&self->card, OPTINC_DB_SQ_TAIL, q.id, 0x4000);
	after = must_stats(&self->card);
	EXPECT_EQ(sizeof(after), after.size);
	EXPECT_EQ(0, after.__reserved);
	EXPECT_EQ(1, after.requests - before.requests);
	EXPECT_EQ(0, after.errors - before.errors);
	EXPECT_EQ(2, after.doorbells - before.doorbells);
	EXPECT_EQ(1, after.doorbells_dropped - before.doorbells_dropped);
	EXPECT_EQ(before.tx_bytes, after.tx_bytes);
	EXPECT_LT(before.device_ns, after.device_ns);
	ASSERT_EQ(0, call(self->ctl, OPTINC_IOCTL_STATS, &ctl));
	EXPECT_EQ(after.doorbells, ctl.doorbells);
	EXPECT_EQ(after.requests, ctl.requests);
	EXPECT_WITH(-EOPNOTSUPP, self->card.fd, OPTINC_IOCTL_STATS, after, __reserved, 1);
	EXPECT_WITH(-EOPNOTSUPP, self->ctl, OPTINC_IOCTL_STATS, after, __reserved, 1U << 31);
}

TEST_F(node, mr_reg)
{
	size_t page = page_bytes();
	char *memory = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	struct optinc_mr_reg good = {
		.size = sizeof(good), .addr = (uintptr_t)memory + 1, .length = 8 * page - 2,
		.fd = -1,
	};
	int fd = self->card.fd;
	unsigned int i;
	uint32_t mr;

	ASSERT_NE(MAP_FAILED, memory);
	for (i = 3; i < 32; i++)
		EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_MR_REG, good, flags, 1U << i);
	if (!(self->card.query.features & OPTINC_FEAT_MR_CACHE))
		EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_MR_REG, good, flags, OPTINC_MR_CACHE);
	EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_MR_REG, good, flags,
		    OPTINC_MR_CACHE | OPTINC_MR_DMABUF);
	for (i = 0; i < 32; i++)
		EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_MR_REG, good, __reserved, 1U << i);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_MR_REG, good, length, 0);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_MR_REG, good, length,
		    self->card.query.max_mr_bytes + 1);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_MR_REG, good, length, -1ULL);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_MR_REG, good, addr, -4096ULL);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_MR_REG, good, fd, 0);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_MR_REG, good, fd, -2);
	EXPECT_WITH(-EFAULT, fd, OPTINC_IOCTL_MR_REG, good, addr, 0);
	EXPECT_WITH(-EFAULT, fd, OPTINC_IOCTL_MR_REG, good, addr, 1ULL << 60);
	/* of two things wrong, the first in the order of section 3 */
	good.flags = 1U << 31;
	EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_MR_REG, good, length, 0);
	good.flags = OPTINC_MR_WRITE;
	good.addr = 0;
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_MR_REG, good, length, 0);

	EXPECT_EQ(0, reg(&self->card, memory + 1, 1, 0, &mr));
	EXPECT_NE(0, mr);
	EXPECT_EQ(0, dereg(&self->card, mr));
	EXPECT_EQ(-ENOENT, dereg(&self->card, mr));
	EXPECT_EQ(-ENOENT, dereg(&self->card, 0));
	EXPECT_EQ(-ENOENT, dereg(&self->card, -1U));
}

/* What cannot be read, written or pinned for long */
TEST_F(node, mr_memory)
{
	size_t page = page_bytes();
	char *memory = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	struct card *c = &self->card;
	uint32_t mr;

	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_EQ(0, munmap(memory + 4 * page, page));
	EXPECT_EQ(-EFAULT, reg(c, memory, 8 * page, 0, &mr));
	EXPECT_EQ(-EFAULT, reg(c, memory + 1, 4 * page, 0, &mr));
	EXPECT_EQ(0, reg(c, memory + 1, 4 * page - 1, 0, &mr));
	ASSERT_EQ(0, mprotect(memory + 3 * page, page, PROT_READ));
	EXPECT_EQ(-EFAULT, reg(c, memory, 4 * page, OPTINC_MR_WRITE, &mr));
	EXPECT_EQ(0, reg(c, memory, 4 * page, 0, &mr));
	ASSERT_EQ(0, mprotect(memory, page, PROT_NONE));
	EXPECT_EQ(-EFAULT, reg(c, memory, 4 * page, 0, &mr));
	/* the card's own memory */
	EXPECT_EQ(-EFAULT, reg(c, (void *)c->page, page, 0, &mr));
	/* a closed and a wrong descriptor of a dma-buf */
	if (c->query.features & OPTINC_FEAT_DMABUF) {
		struct optinc_mr_reg r = {
			.size = sizeof(r), .flags = OPTINC_MR_DMABUF, .length = page, .fd = -1,
		};

		EXPECT_EQ(-EBADF, call(c->fd, OPTINC_IOCTL_MR_REG, &r));
		r.fd = 1000;
		EXPECT_EQ(-EBADF, call(c->fd, OPTINC_IOCTL_MR_REG, &r));
		r.fd = c->fd;
		EXPECT_EQ(-EINVAL, call(c->fd, OPTINC_IOCTL_MR_REG, &r));
		r.fd = eventfd(0, 0);
		EXPECT_EQ(-EINVAL, call(c->fd, OPTINC_IOCTL_MR_REG, &r));
	}
}

TEST_F(node, mr_limit)
{
	struct card *c = &self->card;
	uint32_t *mrs = calloc(c->query.max_mrs + 1, sizeof(*mrs)), n, more;
	char byte;

	for (n = 0; n <= c->query.max_mrs; n++) {
		if (reg(c, &byte, 1, 0, &mrs[n]))
			break;
	}
	EXPECT_EQ(c->query.max_mrs, n);
	EXPECT_EQ(-ENOSPC, reg(c, &byte, 1, 0, &more));
	EXPECT_EQ(0, dereg(c, mrs[n / 2]));
	EXPECT_EQ(0, reg(c, &byte, 1, 0, &more));
	EXPECT_EQ(-ENOSPC, reg(c, &byte, 1, 0, &more));
	free(mrs);
}

TEST_F(node, qp_create)
{
	uint32_t bad[] = { 0, 1, 3, 7, 2 * self->card.query.max_queue, 0x10000, 0x10008, 1U << 31 };
	struct optinc_qp_create good = {
		.size = sizeof(good), .sq_entries = 8, .cq_entries = 16, .eventfd = -1,
	};
	int fd = self->card.fd, pipe_fd[2];
	uint32_t max = self->card.query.max_qps, i;
	struct queue *queues = calloc(max + 1, sizeof(*queues));

	ASSERT_EQ(0, pipe(pipe_fd));
	for (i = 0; i < 32; i++)
		EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_QP_CREATE, good, flags, 1U << i);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_QP_CREATE, good, sq_entries, bad[i]);
		EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_QP_CREATE, good, cq_entries, bad[i]);
	}
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_QP_CREATE, good, cq_entries, 4);
	EXPECT_WITH(-EBADF, fd, OPTINC_IOCTL_QP_CREATE, good, eventfd, 1000);
	EXPECT_WITH(-EBADF, fd, OPTINC_IOCTL_QP_CREATE, good, eventfd, -2);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_QP_CREATE, good, eventfd, pipe_fd[0]);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_QP_CREATE, good, eventfd, fd);

	for (i = 0; i < max; i++) {
		ASSERT_EQ(0, create_queue(&self->card, &queues[i], 2, 2, -1));
		ASSERT_LE(1, queues[i].id);
		ASSERT_LE(queues[i].id, 0xffff);
		ASSERT_EQ(0, queues[i].sq_offset % self->card.query.page_size);
		ASSERT_EQ(0, queues[i].cq_offset % self->card.query.page_size);
		ASSERT_NE(queues[i].sq_offset, queues[i].cq_offset);
	}
	EXPECT_EQ(-ENOSPC, create_queue(&self->card, &queues[max], 2, 2, -1));
	EXPECT_EQ(0, destroy_queue(&queues[max / 2]));
	EXPECT_EQ(-ENOENT, destroy_queue(&queues[max / 2]));
	queues[max].id = 0;
	EXPECT_EQ(-ENOENT, destroy_queue(&queues[max]));
	queues[max].id = queues[0].id | 0x10000;
	EXPECT_EQ(-ENOENT, destroy_queue(&queues[max]));
	EXPECT_EQ(0, create_queue(&self->card, &queues[max], 2, 2, -1));
	free(queues);
}

/* The largest rings that there can be, from end to end */
TEST_F(node, large_rings)
{
	uint32_t n = self->card.query.max_queue, i;
	struct queue q;

	must_create_queue(&self->card, &q, n, n, -1);
	for (i = 0; i < n * sizeof(struct optinc_sqe); i++)
		ASSERT_EQ(0, ((char *)q.sq)[i]);
	for (i = 0; i < n * sizeof(struct optinc_cqe); i++)
		ASSERT_EQ(0, ((volatile char *)q.cq)[i]);
	for (i = 0; i < n; i++)
		put_entry(&q, &(struct optinc_sqe) { .cmd_id = (uint16_t)i, .tag = ~i });
	announce(&q);
	for (i = 0; i < n; i++) {
		struct optinc_cqe cqe = must_await(&q);

		ASSERT_EQ(OPTINC_ST_SUCCESS, cqe.status >> OPTINC_CQE_STATUS_SHIFT);
		ASSERT_EQ(i, cqe.cmd_id);
		ASSERT_EQ(~i, cqe.tag);
	}
}

TEST_F(node, group_join)
{
	struct optinc_group_join good = join_of("ioctl join", 1), join;
	int fd = self->card.fd;

	EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_GROUP_JOIN, good, flags, 1);
	EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_GROUP_JOIN, good, flags, 1U << 31);
	EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_GROUP_JOIN, good, bits, 0);
	EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_GROUP_JOIN, good, bits, 12);
	EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_GROUP_JOIN, good, bits, 72);
	EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_GROUP_JOIN, good, bits, 16);	/* I8 needs 8 */
	EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_GROUP_JOIN, good, format, 0);
	EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_GROUP_JOIN, good, format, 2);
	EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_GROUP_JOIN, good, dtypes, 1 << OPTINC_I16);
	EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_GROUP_JOIN, good, dtypes, 1 << OPTINC_DTYPES);
	EXPECT_WITH(-EOPNOTSUPP, fd, OPTINC_IOCTL_GROUP_JOIN, good, dtypes, 1ULL << 63);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_GROUP_JOIN, good, dtypes, 0);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_GROUP_JOIN, good, nranks, 0);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_GROUP_JOIN, good, nranks, 1);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_GROUP_JOIN, good, nranks,
		    self->card.query.ports + 1U);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_GROUP_JOIN, good, nranks, 17);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_GROUP_JOIN, good, rank, 2);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_GROUP_JOIN, good, rank, -1U);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_GROUP_JOIN, good, deadline_ms, 0);
	EXPECT_WITH(-EINVAL, fd, OPTINC_IOCTL_GROUP_JOIN, good, deadline_ms, 3600001);
	join = good;
	memset(join.key, 0, sizeof(join.key));
	EXPECT_EQ(-EINVAL, call(fd, OPTINC_IOCTL_GROUP_JOIN, &join));
	/* none of these has left anything behind */
	ASSERT_EQ(0, call(fd, OPTINC_IOCTL_GROUP_JOIN, &good));
	EXPECT_NE(0, good.group);
	join = good;
	EXPECT_EQ(-EBUSY, call(fd, OPTINC_IOCTL_GROUP_JOIN, &join));
}

TEST_F(node, group_calls)
{
	uint32_t group = must_join(&self->card, "ioctl calls", 1);
	struct optinc_group_wait wait, bad = {
		.size = sizeof(bad), .group = group, .__reserved = 1,
	};
	uint32_t wrong[] = { 0, group + 1, group ^ 0x10000, -1U };
	uint64_t begin;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		EXPECT_EQ(-ENOENT, wait_group(&self->card, wrong[i], 0, &wait));
		EXPECT_EQ(-ENOENT, wait_group(&self->card, wrong[i], PATIENCE_MS, &wait));
		EXPECT_EQ(-ENOENT, leave_group(&self->card, wrong[i]));
		EXPECT_EQ(-ENOENT, abort_group(&self->card, wrong[i]));
	}
	EXPECT_EQ(-EOPNOTSUPP, call(self->card.fd, OPTINC_IOCTL_GROUP_WAIT, &bad));
	begin = now_ms();
	EXPECT_EQ(0, wait_group(&self->card, group, 200, &wait));
	EXPECT_LE(200, now_ms() - begin);
	EXPECT_EQ(OPTINC_GROUP_JOINING, wait.state);
	EXPECT_EQ(OPTINC_ST_SUCCESS, wait.status);
	EXPECT_EQ(OPTINC_NO_RANK, wait.peer);
	EXPECT_EQ(1 << 1, wait.joined);
	EXPECT_EQ(0, abort_group(&self->card, group));
	EXPECT_EQ(0, wait_group(&self->card, group, PATIENCE_MS, &wait));
	EXPECT_EQ(OPTINC_GROUP_FAILED, wait.state);
	EXPECT_EQ(OPTINC_ST_ABORTED, wait.status);
	EXPECT_EQ(1, wait.peer);
	EXPECT_EQ(0, abort_group(&self->card, group));
	EXPECT_EQ(0, leave_group(&self->card, group));
	EXPECT_EQ(-ENOENT, leave_group(&self->card, group));
	EXPECT_EQ(-ENOENT, wait_group(&self->card, group, 0, &wait));
}

TEST_F(node, group_limit)
{
	uint32_t max = self->card.query.max_groups, i;
	struct optinc_group_join join = join_of("ioctl limit", 0);
	uint32_t first = 0;

	for (i = 0; i < max; i++) {
		memcpy(&join.key[12], &i, 4);
		ASSERT_EQ(0, call(self->card.fd, OPTINC_IOCTL_GROUP_JOIN, &join))
			TH_LOG("the %uth of %u", i + 1, max);
		first = first ?: join.group;
	}
	memcpy(&join.key[12], &max, 4);
	EXPECT_EQ(-ENOSPC, call(self->card.fd, OPTINC_IOCTL_GROUP_JOIN, &join));
	EXPECT_EQ(0, leave_group(&self->card, first));
	EXPECT_EQ(0, call(self->card.fd, OPTINC_IOCTL_GROUP_JOIN, &join));
}

/* Opening takes nothing from the card; the first call that needs a context does. */
TEST_F(node, context_limit)
{
	enum { FILES = 3000 };
	struct rlimit files = { FILES + 100, FILES + 100 };
	struct card *cards = calloc(FILES, sizeof(*cards));
	uint32_t mr, n, i;
	char byte;

	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &files));
	for (n = 0; n < FILES; n++) {
		cards[n].fd = open_node("card", 0);
		ASSERT_LE(0, cards[n].fd);
	}
	for (n = 0; n < FILES; n++) {
		if (reg(&cards[n], &byte, 1, 0, &mr))
			break;
	}
	TH_LOG("%u contexts", n + 1);
	EXPECT_LE(1, n);
	EXPECT_LT(n, 2047);
	EXPECT_EQ(-ENOSPC, reg(&cards[n], &byte, 1, 0, &mr));
	EXPECT_EQ(MAP_FAILED, map(cards[n].fd, self->card.query.page_size,
				  self->card.query.doorbell_offset));
	EXPECT_EQ(ENOSPC, errno);
	close(cards[0].fd);
	EXPECT_EQ(0, reg(&cards[n], &byte, 1, 0, &mr));
	for (i = 1; i < FILES; i++)
		close(cards[i].fd);
	free(cards);
}

/* What was made is undone when the answer cannot be written. */
TEST_F(node, answer_not_writable)
{
	struct card *c = &self->card;
	void *page = mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct optinc_mr_reg *mr = page;
	struct optinc_qp_create *create = page;
	struct optinc_group_join *join = page, good = join_of("ioctl answer", 0);
	uint32_t i;

	ASSERT_NE(MAP_FAILED, page);
	*mr = (struct optinc_mr_reg) {
		.size = sizeof(*mr), .addr = (uintptr_t)page, .length = 1, .fd = -1,
	};
	ASSERT_EQ(0, mprotect(page, page_bytes(), PROT_READ));
	for (i = 0; i <= c->query.max_mrs; i++)
		ASSERT_EQ(-EFAULT, call(c->fd, OPTINC_IOCTL_MR_REG, mr));
	ASSERT_EQ(0, mprotect(page, page_bytes(), PROT_READ | PROT_WRITE));
	*create = (struct optinc_qp_create) {
		.size = sizeof(*create), .sq_entries = 2, .cq_entries = 2, .eventfd = -1,
	};
	ASSERT_EQ(0, mprotect(page, page_bytes(), PROT_READ));
	for (i = 0; i <= c->query.max_qps; i++)
		ASSERT_EQ(-EFAULT, call(c->fd, OPTINC_IOCTL_QP_CREATE, create));
	ASSERT_EQ(0, mprotect(page, page_bytes(), PROT_READ | PROT_WRITE));
	*join = good;
	ASSERT_EQ(0, mprotect(page, page_bytes(), PROT_READ));
	for (i = 0; i <= c->query.max_groups; i++)
		ASSERT_EQ(-EFAULT, call(c->fd, OPTINC_IOCTL_GROUP_JOIN, join));
	EXPECT_EQ(0, call(c->fd, OPTINC_IOCTL_GROUP_JOIN, &good));
}

static int reset_without_privilege(void *arg)
{
	struct optinc_reset reset = { .size = sizeof(reset) };
	int *ctl = arg;

	must(!setresuid(NOBODY, NOBODY, NOBODY));
	return -call(*ctl, OPTINC_IOCTL_RESET, &reset);
}

TEST_F(node, reset)
{
	struct optinc_reset reset = { .size = sizeof(reset) };
	struct optinc_stats stats;
	struct optinc_query q;
	struct card again;
	unsigned int i;

	for (i = 0; i < 32; i++)
		EXPECT_WITH(-EOPNOTSUPP, self->ctl, OPTINC_IOCTL_RESET, reset, flags, 1U << i);
	EXPECT_EQ(EPERM, in_child(reset_without_privilege, &self->ctl));
	ASSERT_EQ(0, query(self->card.fd, &q));
	ASSERT_EQ(0, call(self->ctl, OPTINC_IOCTL_RESET, &reset));
	/* presence is looked at before the structure, after the command */
	for (i = 0; i < ARRAY_SIZE(calls); i++)
		EXPECT_EQ(calls[i].card ? -ENODEV : -ENOTTY,
			  call(self->card.fd, calls[i].cmd, NULL)) TH_LOG("call %u", i);
	ASSERT_EQ(0, query(self->ctl, &q));
	must_open(&again, 0);
	stats = must_stats(&again);
	EXPECT_EQ(0, stats.doorbells);
	EXPECT_EQ(0, stats.requests);
	shut(&again);
}

TEST_HARNESS_MAIN
