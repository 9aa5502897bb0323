// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions of dma-bufs: reductions from and into them, what of them may be
 * named, and who goes first: descriptor, exporter, region, card, driver.
 *
 * The buffers are udmabuf's where there is /dev/udmabuf, else dumb buffers of
 * vgem, which is loaded if it has to be.
 */
#include "card.h"

#include <linux/dma-buf.h>
#include <linux/udmabuf.h>
#include <sys/syscall.h>

#include "kselftest_harness.h"

#define BYTES	(256 * 1024U)
#define COUNT	1000U

/* What is needed of DRM's interface; its headers come with libdrm. */
struct drm_version {
	int major, minor, patchlevel;
	size_t name_len;
	char *name;
	size_t date_len;
	char *date;
	size_t desc_len;
	char *desc;
};

struct drm_mode_create_dumb {
	uint32_t height, width, bpp, flags, handle, pitch;
	uint64_t size;
};

struct drm_prime_handle {
	uint32_t handle, flags;
	int32_t fd;
};

#define DRM_IOCTL_VERSION		_IOWR('d', 0x00, struct drm_version)
#define DRM_IOCTL_PRIME_HANDLE_TO_FD	_IOWR('d', 0x2d, struct drm_prime_handle)
#define DRM_IOCTL_MODE_CREATE_DUMB	_IOWR('d', 0xb2, struct drm_mode_create_dumb)

struct buffer {
	int fd;
	uint8_t *memory;	/* mapped here */
	bool vgem;
};

/* A descriptor of vgem's node; -1 if there is none. */
static int open_vgem(void)
{
	char path[32], name[16];
	int i, fd;

	for (i = 0; i < 16; i++) {
		struct drm_version version = { .name = name, .name_len = sizeof(name) - 1 };

		snprintf(path, sizeof(path), "/dev/dri/card%d", i);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		memset(name, 0, sizeof(name));
		if (!ioctl(fd, DRM_IOCTL_VERSION, &version) && !strcmp(name, "vgem"))
			return fd;
		close(fd);
	}
	return -1;
}

/* The node and the handle are closed: the descriptor is all that is left. */
static int from_vgem(int vgem)
{
	struct drm_mode_create_dumb dumb = { .width = 1024, .height = BYTES / 4096, .bpp = 32 };
	struct drm_prime_handle prime = { .flags = O_CLOEXEC | O_RDWR, .fd = -1 };

	must(!ioctl(vgem, DRM_IOCTL_MODE_CREATE_DUMB, &dumb));
	must(dumb.size == BYTES);
	prime.handle = dumb.handle;
	must(!ioctl(vgem, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime));
	close(vgem);
	return prime.fd;
}

static int from_udmabuf(int udmabuf)
{
	struct udmabuf_create create = { .flags = UDMABUF_FLAGS_CLOEXEC, .size = BYTES };
	int fd;

	create.memfd = memfd_create("dmabuf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	must(!ftruncate(create.memfd, BYTES));
	must(!fcntl(create.memfd, F_ADD_SEALS, F_SEAL_SHRINK));
	fd = ioctl(udmabuf, UDMABUF_CREATE, &create);
	must(fd >= 0);
	close(create.memfd);
	close(udmabuf);
	return fd;
}

/* Ends the test where nobody exports any. */
static void must_export(struct buffer *b)
{
	int exporter = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);

	b->vgem = exporter < 0;
	if (b->vgem)
		exporter = open_vgem();
	if (exporter < 0 && !system("modprobe -q vgem 2>/dev/null"))
		exporter = open_vgem();
	if (exporter < 0) {
		ksft_print_msg("no exporter: neither /dev/udmabuf nor vgem\n");
		exit(SKIPPED);
	}
	b->fd = b->vgem ? from_vgem(exporter) : from_udmabuf(exporter);
	b->memory = map(b->fd, BYTES, 0);
	must(b->memory != MAP_FAILED);
}

static void drop(struct buffer *b)
{
	must(!munmap(b->memory, BYTES));
	must(!close(b->fd));
}

static void sync_with(const struct buffer *b, uint64_t flags)
{
	struct dma_buf_sync sync = { .flags = flags | DMA_BUF_SYNC_RW };

	must(!ioctl(b->fd, DMA_BUF_IOCTL_SYNC, &sync));
}

static void fill(const struct buffer *b, size_t offset, size_t bytes, unsigned int seed)
{
	size_t i;

	sync_with(b, DMA_BUF_SYNC_START);
	for (i = 0; i < bytes; i++)
		b->memory[offset + i] = (uint8_t)((i + seed) % 101);
	sync_with(b, DMA_BUF_SYNC_END);
}

static int reg_buffer(struct card *c, int fd, uint64_t offset, uint64_t length, uint32_t flags,
		      uint32_t *mr)
{
	struct optinc_mr_reg r = {
		.size = sizeof(r), .flags = OPTINC_MR_DMABUF | flags, .addr = offset,
		.length = length, .fd = fd,
	};
	int ret = call(c->fd, OPTINC_IOCTL_MR_REG, &r);

	*mr = r.mr;
	return ret;
}

/* Attachments to any dma-buf, as the kernel counts them; -1 where it does not tell. */
static int attachments(void)
{
	FILE *file = fopen("/sys/kernel/debug/dma_buf/bufinfo", "r");
	char line[256];
	int sum = 0, n;

	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file)) {
		/* there is a total of buffers, too */
		if (strstr(line, "attached") && sscanf(line, "Total %d devices", &n) == 1)
			sum += n;
	}
	fclose(file);
	return sum;
}

FIXTURE(dmabuf)
{
	struct end end[2];
	struct buffer buffer;
	int before;	/* attachments */
};

FIXTURE_SETUP(dmabuf)
{
	must_export(&self->buffer);
	must_pair(self->end, "dmabuf");
	EXPECT_TRUE(self->end[0].card.query.features & OPTINC_FEAT_DMABUF);
	self->before = attachments();
	memset(self->end[1].memory, 0, self->end[1].bytes);
}

FIXTURE_TEARDOWN(dmabuf)
{
	EXPECT_EQ(self->before, attachments());
}

#define EXPECT_ATTACHED(n) do {					\
	if (self->before >= 0)						\
		EXPECT_EQ(self->before + (n), attachments());		\
} while (0)

/* The status of a sum of @count codes. Refused, it concerns no peer. */
static int sum(struct end end[2], uint32_t src, uint64_t src_off, uint32_t dst, uint64_t dst_off,
	       uint64_t count)
{
	struct optinc_sqe sqe = sum_entry(&end[0], count);

	sqe.src_mr = src;
	sqe.src_off = src_off;
	sqe.dst_mr = dst;
	sqe.dst_off = dst_off;
	post(&end[0].queue, &sqe);
	return await_status(&end[0].queue);
}

/* The peer's half goes first, so that a rank waits for nobody. */
static int sum_with_peer(struct end end[2], uint32_t src, uint64_t src_off, uint32_t dst,
			 uint64_t dst_off, uint64_t count)
{
	int status, peer;

	post_sum(&end[1], count);
	status = sum(end, src, src_off, dst, dst_off, count);
	peer = await_status(&end[1].queue);
	return status ? status : peer;
}

static bool is_sum(const uint8_t *result, size_t count, unsigned int seed)
{
	size_t i;

	for (i = 0; i < count; i++) {
		int16_t value;

		memcpy(&value, result + 2 * i, sizeof(value));
		if (value != (int16_t)((i + seed) % 101))
			return false;
	}
	return true;
}

/* Codes from the buffer, sums to memory */
static bool reads(struct end end[2], uint32_t mr, uint64_t offset, uint64_t count,
		  unsigned int seed)
{
	struct end *e = &end[0];

	memset(e->memory, 0x77, e->bytes);
	return !sum_with_peer(end, mr, offset, e->mr, e->bytes / 2, count) &&
	       is_sum(e->memory + e->bytes / 2, count, seed);
}

/* Codes from memory, sums to the buffer */
static bool writes(struct end end[2], const struct buffer *b, uint32_t mr, uint64_t offset,
		   uint64_t at, uint64_t count, unsigned int seed)
{
	struct end *e = &end[0];
	uint64_t i;
	bool right;

	for (i = 0; i < count; i++)
		e->memory[i] = (uint8_t)((i + seed) % 101);
	fill(b, 0, BYTES, 5);
	if (sum_with_peer(end, e->mr, 0, mr, offset, count))
		return false;
	sync_with(b, DMA_BUF_SYNC_START);
	right = is_sum(b->memory + at, count, seed) &&
		(!at || b->memory[at - 1] == (at - 1 + 5) % 101) &&
		b->memory[at + 2 * count] == (at + 2 * count + 5) % 101;
	sync_with(b, DMA_BUF_SYNC_END);
	return right;
}

TEST_F(dmabuf, from)
{
	struct end *e = &self->end[0];
	uint32_t mr;

	fill(&self->buffer, 0, BYTES, 3);
	ASSERT_EQ(0, reg_buffer(&e->card, self->buffer.fd, 0, BYTES, 0, &mr));
	EXPECT_ATTACHED(1);
	EXPECT_TRUE(reads(self->end, mr, 0, COUNT, 3));
	EXPECT_TRUE(reads(self->end, mr, 0, END_BYTES / 4, 3));
	EXPECT_TRUE(reads(self->end, mr, 101 * 40 + 7, COUNT, 3 + 7));
	/* all of it, to the last byte */
	EXPECT_TRUE(reads(self->end, mr, BYTES - COUNT, COUNT, 3 + (BYTES - COUNT) % 101));
	/* it is the memory itself, not a copy of then */
	fill(&self->buffer, 0, BYTES, 60);
	EXPECT_TRUE(reads(self->end, mr, 0, COUNT, 60));
	EXPECT_EQ(0, dereg_patiently(&e->card, mr));
}

TEST_F(dmabuf, into)
{
	struct end *e = &self->end[0];
	uint32_t mr;

	ASSERT_EQ(0, reg_buffer(&e->card, self->buffer.fd, 0, BYTES, OPTINC_MR_WRITE, &mr));
	EXPECT_TRUE(writes(self->end, &self->buffer, mr, 0, 0, COUNT, 11));
	EXPECT_TRUE(writes(self->end, &self->buffer, mr, 4096 - 2, 4096 - 2, COUNT, 12));
	EXPECT_TRUE(writes(self->end, &self->buffer, mr, 20000, 20000, END_BYTES / 4, 13));
	/* from one part of it into another */
	fill(&self->buffer, 0, BYTES, 9);
	EXPECT_EQ(0, sum_with_peer(self->end, mr, 0, mr, BYTES / 2, COUNT));
	sync_with(&self->buffer, DMA_BUF_SYNC_START);
	EXPECT_TRUE(is_sum(self->buffer.memory + BYTES / 2, COUNT, 9));
	sync_with(&self->buffer, DMA_BUF_SYNC_END);
	EXPECT_EQ(0, dereg_patiently(&e->card, mr));
}

/* A region of a part begins where it says, at any byte. */
TEST_F(dmabuf, offset)
{
	static const uint64_t offsets[] = { 1, 101, 4095, 4096, 4097, 12345, BYTES - 8192 };
	struct end *e = &self->end[0];
	unsigned int i;
	uint32_t mr;

	for (i = 0; i < ARRAY_SIZE(offsets); i++) {
		uint64_t offset = offsets[i];

		fill(&self->buffer, 0, BYTES, 1);
		ASSERT_EQ(0, reg_buffer(&e->card, self->buffer.fd, offset, 8192, 0, &mr));
		EXPECT_TRUE(reads(self->end, mr, 0, COUNT, 1 + offset % 101));
		EXPECT_TRUE(reads(self->end, mr, 8192 - COUNT, COUNT,
				  1 + (offset + 8192 - COUNT) % 101));
		EXPECT_EQ(OPTINC_ST_MR_BOUNDS, sum(self->end, mr, 8192 - COUNT + 1, e->mr,
						   e->bytes / 2, COUNT));
		EXPECT_EQ(0, dereg_patiently(&e->card, mr));
		offset &= ~1ULL;
		ASSERT_EQ(0, reg_buffer(&e->card, self->buffer.fd, offset, 8190, OPTINC_MR_WRITE,
					&mr));
		EXPECT_TRUE(writes(self->end, &self->buffer, mr, 0, offset, COUNT, 33));
		EXPECT_EQ(0, dereg_patiently(&e->card, mr));
	}
}

TEST_F(dmabuf, bounds)
{
	struct card *c = &self->end[0].card;
	int fd = self->buffer.fd;
	uint32_t mr;

	EXPECT_EQ(-EINVAL, reg_buffer(c, fd, 0, 0, 0, &mr));
	EXPECT_EQ(-EINVAL, reg_buffer(c, fd, 0, BYTES + 1, 0, &mr));
	EXPECT_EQ(-EINVAL, reg_buffer(c, fd, 1, BYTES, 0, &mr));
	EXPECT_EQ(-EINVAL, reg_buffer(c, fd, BYTES, 1, 0, &mr));
	EXPECT_EQ(-EINVAL, reg_buffer(c, fd, BYTES - 1, 2, 0, &mr));
	EXPECT_EQ(-EINVAL, reg_buffer(c, fd, 1ULL << 32, 1, 0, &mr));
	EXPECT_EQ(-EINVAL, reg_buffer(c, fd, -1ULL, 1, 0, &mr));
	EXPECT_EQ(-EINVAL, reg_buffer(c, fd, -1ULL, 2, 0, &mr));
	EXPECT_EQ(-EINVAL, reg_buffer(c, fd, -4096ULL, 8192, 0, &mr));
	EXPECT_EQ(-EBADF, reg_buffer(c, -1, 0, 1, 0, &mr));
	EXPECT_EQ(-EINVAL, reg_buffer(c, c->fd, 0, 1, 0, &mr));
	EXPECT_EQ(-EOPNOTSUPP, reg_buffer(c, fd, 0, 1, OPTINC_MR_CACHE, &mr));
	EXPECT_ATTACHED(0);
	EXPECT_EQ(0, reg_buffer(c, fd, BYTES - 1, 1, 0, &mr));
	EXPECT_EQ(0, dereg(c, mr));
	EXPECT_EQ(-ENOENT, dereg(c, mr));
}

TEST_F(dmabuf, for_reading_alone)
{
	struct end *e = &self->end[0];
	uint32_t mr;

	fill(&self->buffer, 0, BYTES, 1);
	ASSERT_EQ(0, reg_buffer(&e->card, self->buffer.fd, 0, BYTES, 0, &mr));
	EXPECT_EQ(OPTINC_ST_MR_ACCESS, sum(self->end, e->mr, 0, mr, 0, COUNT));
	EXPECT_TRUE(reads(self->end, mr, 0, COUNT, 1));
	EXPECT_EQ(0, dereg_patiently(&e->card, mr));
}

/* The exporter has paid. */
TEST_F(dmabuf, costs_nothing)
{
	unsigned long others = pinned();
	uint32_t mr;

	ASSERT_EQ(0, reg_buffer(&self->end[0].card, self->buffer.fd, 0, BYTES, 0, &mr));
	EXPECT_EQ(others, pinned());
	EXPECT_EQ(0, dereg(&self->end[0].card, mr));
	EXPECT_EQ(others, pinned());
}

TEST_F(dmabuf, twice)
{
	struct end *e = &self->end[0];
	uint32_t first, second, third;

	fill(&self->buffer, 0, BYTES, 21);
	ASSERT_EQ(0, reg_buffer(&e->card, self->buffer.fd, 0, BYTES, 0, &first));
	ASSERT_EQ(0, reg_buffer(&e->card, self->buffer.fd, 0, BYTES, OPTINC_MR_WRITE, &second));
	/* another card's, too */
	ASSERT_EQ(0, reg_buffer(&self->end[1].card, self->buffer.fd, 0, BYTES, 0, &third));
	EXPECT_NE(first, second);
	EXPECT_ATTACHED(3);
	EXPECT_TRUE(reads(self->end, first, 0, COUNT, 21));
	EXPECT_EQ(0, dereg_patiently(&e->card, first));
	EXPECT_ATTACHED(2);
	EXPECT_TRUE(reads(self->end, second, 0, COUNT, 21));
	EXPECT_TRUE(writes(self->end, &self->buffer, second, 0, 0, COUNT, 22));
	EXPECT_EQ(0, dereg_patiently(&e->card, second));
	EXPECT_EQ(0, dereg(&self->end[1].card, third));
}

/* Nothing is left of the buffer but the region. */
TEST_F(dmabuf, descriptor_closed)
{
	struct end *e = &self->end[0];
	uint32_t mr;

	fill(&self->buffer, 0, BYTES, 44);
	ASSERT_EQ(0, reg_buffer(&e->card, self->buffer.fd, 0, BYTES, OPTINC_MR_WRITE, &mr));
	drop(&self->buffer);
	EXPECT_ATTACHED(1);
	EXPECT_TRUE(reads(self->end, mr, 0, COUNT, 44));
	EXPECT_EQ(0, sum_with_peer(self->end, e->mr, 0, mr, BYTES / 2, COUNT));
	EXPECT_TRUE(reads(self->end, mr, 0, COUNT, 44));
	EXPECT_EQ(0, dereg_patiently(&e->card, mr));
}

/* The region keeps the exporter's code, and gives it up. */
TEST_F(dmabuf, exporter_gone)
{
	struct end *e = &self->end[0];
	uint32_t mr;

	if (!self->buffer.vgem)
		SKIP(exit(SKIPPED), "udmabuf is no module");
	fill(&self->buffer, 0, BYTES, 50);
	ASSERT_EQ(0, reg_buffer(&e->card, self->buffer.fd, 0, BYTES, 0, &mr));
	drop(&self->buffer);
	EXPECT_EQ(-1, syscall(SYS_delete_module, "vgem", O_NONBLOCK));
	EXPECT_EQ(EAGAIN, errno);
	EXPECT_TRUE(reads(self->end, mr, 0, COUNT, 50));
	EXPECT_EQ(0, dereg_patiently(&e->card, mr));
	EXPECT_EQ(0, syscall(SYS_delete_module, "vgem", O_NONBLOCK));
}

/* When MR_DEREG returns nothing is written any more, and before that it does not return. */
TEST_F(dmabuf, dereg_is_a_fence)
{
	struct end *e = &self->end[0];
	struct optinc_sqe sqe = sum_entry(e, COUNT);
	uint32_t mr;

	fill(&self->buffer, 0, BYTES, 7);
	ASSERT_EQ(0, reg_buffer(&e->card, self->buffer.fd, 0, BYTES, OPTINC_MR_WRITE, &mr));
	sqe.dst_mr = mr;
	sqe.dst_off = 0;
	memset(e->memory, 1, COUNT);
	post(&e->queue, &sqe);
	must_be_taken(&e->queue);
	EXPECT_EQ(-EBUSY, dereg(&e->card, mr));
	EXPECT_ATTACHED(1);
	post_sum(&self->end[1], COUNT);
	EXPECT_EQ(0, dereg_patiently(&e->card, mr));
	EXPECT_ATTACHED(0);
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&e->queue));
	EXPECT_EQ(OPTINC_ST_SUCCESS, await_status(&self->end[1].queue));
	sync_with(&self->buffer, DMA_BUF_SYNC_START);
	EXPECT_EQ(1, self->buffer.memory[0]);
	EXPECT_EQ(0, self->buffer.memory[1]);
	EXPECT_EQ((2 * COUNT + 7) % 101, self->buffer.memory[2 * COUNT]);
	sync_with(&self->buffer, DMA_BUF_SYNC_END);
	/* the handle is nobody's now */
	EXPECT_EQ(OPTINC_ST_INVALID_MR, sum(self->end, mr, 0, e->mr, e->bytes / 2, COUNT));
}

static void close_end(struct end *e)
{
	unmap_queue(&e->queue);
	shut(&e->card);
}

/* With a request in it that nobody ends */
TEST_F(dmabuf, close)
{
	struct end *e = &self->end[0];
	struct optinc_sqe sqe = sum_entry(e, COUNT);
	uint32_t mr;

	fill(&self->buffer, 0, BYTES, 7);
	ASSERT_EQ(0, reg_buffer(&e->card, self->buffer.fd, 0, BYTES, OPTINC_MR_WRITE, &mr));
	ASSERT_EQ(0, reg_buffer(&e->card, self->buffer.fd, 5, 5, 0, &mr));
	sqe.src_mr = mr;
	post(&e->queue, &sqe);
	EXPECT_ATTACHED(2);
	close_end(e);
	EXPECT_ATTACHED(0);
	fill(&self->buffer, 0, BYTES, 8);
}

static int registers_and_dies(void *arg)
{
	struct buffer *b = arg;
	struct card c;
	uint32_t mr;

	must_open(&c, 0);
	must(!reg_buffer(&c, b->fd, 0, BYTES, OPTINC_MR_WRITE, &mr));
	return kill(getpid(), SIGKILL);
}

TEST_F(dmabuf, killed)
{
	EXPECT_EQ(256 + SIGKILL, in_child(registers_and_dies, &self->buffer));
	EXPECT_ATTACHED(0);
}

/* A reset ends the region, not the buffer. */
TEST_F(dmabuf, reset)
{
	struct optinc_reset reset = { .size = sizeof(reset) };
	struct end *e = &self->end[0], again[2];
	int ctl = open_node("ctl", 0);
	uint32_t mr;

	ASSERT_LE(0, ctl);
	ASSERT_EQ(0, reg_buffer(&e->card, self->buffer.fd, 0, BYTES, OPTINC_MR_WRITE, &mr));
	ASSERT_EQ(0, call(ctl, OPTINC_IOCTL_RESET, &reset));
	close(ctl);
	EXPECT_ATTACHED(0);
	EXPECT_EQ(-ENODEV, dereg(&e->card, mr));
	EXPECT_EQ(-ENODEV, reg_buffer(&e->card, self->buffer.fd, 0, BYTES, 0, &mr));
	EXPECT_ATTACHED(0);
	must_pair(again, "dmabuf, again");
	fill(&self->buffer, 0, BYTES, 2);
	ASSERT_EQ(0, reg_buffer(&again[0].card, self->buffer.fd, 0, BYTES, 0, &mr));
	memset(again[1].memory, 0, again[1].bytes);
	EXPECT_TRUE(reads(again, mr, 0, COUNT, 2));
	EXPECT_EQ(0, dereg_patiently(&again[0].card, mr));
}

/* The PCI address of card @number */
static void must_find_slot(unsigned int number, char *slot, size_t size)
{
	char path[64], target[256];
	ssize_t n;

	snprintf(path, sizeof(path), "/sys/class/optinc/card%u/device", number);
	n = readlink(path, target, sizeof(target) - 1);
	must(n > 0);
	target[n] = 0;
	snprintf(slot, size, "%s", strrchr(target, '/') + 1);
}

static void must_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	must(fd >= 0);
	must(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

/* The card is taken from the driver while it has the buffer. */
TEST_F(dmabuf, removal)
{
	struct end *e = &self->end[0];
	char slot[32];
	uint32_t mr;

	must_find_slot(0, slot, sizeof(slot));
	ASSERT_EQ(0, reg_buffer(&e->card, self->buffer.fd, 0, BYTES, OPTINC_MR_WRITE, &mr));
	must_write("/sys/bus/pci/drivers/optinc/unbind", slot);
	EXPECT_ATTACHED(0);
	EXPECT_EQ(-ENODEV, dereg(&e->card, mr));
	fill(&self->buffer, 0, BYTES, 30);
	must_write("/sys/bus/pci/drivers/optinc/bind", slot);
	close_end(e);
	must_open(&e->card, 0);
	EXPECT_EQ(0, reg_buffer(&e->card, self->buffer.fd, 0, BYTES, 0, &mr));
	EXPECT_EQ(0, dereg(&e->card, mr));
}

/* The driver goes while the process still has the buffer that the card had. */
TEST_F(dmabuf, driver_gone)
{
	const char *module = getenv("MODULE");
	uint32_t mr;
	int i, fd;

	if (!module)
		SKIP(exit(SKIPPED), "MODULE does not name the driver");
	fd = open(module, O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, reg_buffer(&self->end[0].card, self->buffer.fd, 0, BYTES, 0, &mr));
	EXPECT_EQ(-1, syscall(SYS_delete_module, "optinc", O_NONBLOCK));
	for (i = 0; i < 2; i++)
		close_end(&self->end[i]);
	ASSERT_EQ(0, syscall(SYS_delete_module, "optinc", O_NONBLOCK));
	EXPECT_ATTACHED(0);
	fill(&self->buffer, 0, BYTES, 3);
	ASSERT_EQ(0, syscall(SYS_finit_module, fd, "", 0));
	close(fd);
	must_open(&self->end[0].card, 0);
	EXPECT_EQ(0, reg_buffer(&self->end[0].card, self->buffer.fd, 0, BYTES, 0, &mr));
	EXPECT_EQ(0, dereg(&self->end[0].card, mr));
}

TEST_HARNESS_MAIN
