// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The host's memory: what the client shares by fd is mapped here, the rest is
 * reached by messages.
 *
 * A client whose virtual processor waits for our answer does not look at our
 * messages. So everything that it has sent is answered before we ask, and
 * what it sends while we wait is answered at once: message.c is entered from
 * within card_step() then, and what that may do to the card and to the maps is
 * put off, see stepping in internal.h.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "emulator/vfio-user/internal.h"

#define PAGE		4096ULL

/* Index of the first map that ends behind @addr */
static size_t first_behind(const struct vu_dma *dma, uint64_t addr)
{
	size_t low = 0, high = dma->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (dma->maps[middle].addr + (dma->maps[middle].size - 1) < addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool holds(const struct vu_map *map, uint64_t addr)
{
	return addr >= map->addr && addr - map->addr < map->size;
}

static struct vu_map *find(struct vu_dma *dma, uint64_t addr)
{
	size_t i;

	if (dma->recent < dma->count && holds(&dma->maps[dma->recent], addr))
		return &dma->maps[dma->recent];
	i = first_behind(dma, addr);
	if (i == dma->count || !holds(&dma->maps[i], addr))
		return NULL;
	dma->recent = i;
	return &dma->maps[i];
}

static bool make_room(struct vu_map **maps, size_t count, size_t *room)
{
	size_t more = *room ? *room * 2 : 16;
	struct vu_map *grown;

	if (count < *room)
		return true;
	grown = realloc(*maps, more * sizeof(**maps));
	if (!grown)
		return false;
	*maps = grown;
	*room = more;
	return true;
}

/* A file that is long enough: beyond its end there is SIGBUS. */
static int check_file(const struct vu_dma_map *map, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || map->offset > (uint64_t)st.st_size ||
	    map->size > (uint64_t)st.st_size - map->offset)
		return -EINVAL;
	return 0;
}

static int share(const struct vu_dma_map *map, int fd, struct vu_map *to)
{
	int prot = PROT_READ | (to->writable ? PROT_WRITE : 0);
	int rc = check_file(map, fd);
	void *at;

	if (rc)
		return rc;
	to->skip = map->offset % PAGE;
	at = mmap(NULL, map->size + to->skip, prot, MAP_SHARED | MAP_NORESERVE, fd,
		  (off_t)(map->offset - to->skip));
	if (at == MAP_FAILED)
		return -errno;
	madvise(at, map->size + to->skip, MADV_DONTDUMP);
	to->at = (uint8_t *)at + to->skip;
	return 0;
}

int vu_dma_map(struct vu_server *server, const struct vu_dma_map *map, int fd)
{
	struct vu_dma *dma = &server->dma;
	struct vu_map new = {
		.addr = map->addr, .size = map->size, .writable = map->flags & VU_MAP_WRITE,
	};
	size_t i;
	int rc;

	if (!map->size || map->size - 1 > UINT64_MAX - map->addr ||
	    map->flags & ~(VU_MAP_READ | VU_MAP_WRITE) || !(map->flags & VU_MAP_READ))
		return -EINVAL;
	i = first_behind(dma, map->addr);
	if (i < dma->count && dma->maps[i].addr <= map->addr + (map->size - 1))
		return -EEXIST;
	if (dma->count == VU_MAX_MAPS)
		return -ENOSPC;
	if (!make_room(&dma->maps, dma->count, &dma->room))
		return -ENOMEM;
	if (fd >= 0) {
		rc = share(map, fd, &new);
		if (rc)
			return rc;
	}
	memmove(&dma->maps[i + 1], &dma->maps[i], (dma->count - i) * sizeof(new));
	dma->maps[i] = new;
	dma->count++;
	return 0;
}

static void release(const struct vu_map *map)
{
	if (map->at)
		munmap(map->at - map->skip, map->size + map->skip);
}

/* Memory of nobody in its place, so that pointers to it stay good. */
static bool detach(const struct vu_map *map)
{
	return mmap(map->at - map->skip, map->size + map->skip, PROT_READ | PROT_WRITE,
		    MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

/*
 * The card may hold a pointer to it until the step ends. The client has it
 * back at once nevertheless.
 */
static void drop(struct vu_server *server, const struct vu_map *map)
{
	struct vu_dma *dma = &server->dma;

	if (!server->stepping || !map->at) {
		release(map);
		return;
	}
	/* else it is leaked: better than a pointer to nothing */
	if (detach(map) && make_room(&dma->lost, dma->lost_count, &dma->lost_room))
		dma->lost[dma->lost_count++] = *map;
}

void vu_dma_reap(struct vu_server *server)
{
	struct vu_dma *dma = &server->dma;

	while (dma->lost_count)
		release(&dma->lost[--dma->lost_count]);
}

/* All maps within the range, of which there may be none; it must not cut one. */
int vu_dma_unmap(struct vu_server *server, uint64_t addr, uint64_t size)
{
	struct vu_dma *dma = &server->dma;
	size_t from, to, i;
	uint64_t last;

	if (!size || size - 1 > UINT64_MAX - addr)
		return -EINVAL;
	last = addr + (size - 1);
	from = first_behind(dma, addr);
	for (to = from; to < dma->count && dma->maps[to].addr <= last; to++) {
		if (dma->maps[to].addr < addr ||
		    dma->maps[to].addr + (dma->maps[to].size - 1) > last)
			return -EINVAL;
	}
	for (i = from; i < to; i++)
		drop(server, &dma->maps[i]);
	if (to > from)
		memmove(&dma->maps[from], &dma->maps[to], (dma->count - to) * sizeof(*dma->maps));
	dma->count -= to - from;
	return 0;
}

void vu_dma_unmap_all(struct vu_server *server)
{
	while (server->dma.count)
		drop(server, &server->dma.maps[--server->dma.count]);
}

void vu_dma_free(struct vu_server *server)
{
	vu_dma_unmap_all(server);
	vu_dma_reap(server);
	free(server->dma.maps);
	free(server->dma.lost);
}

/*
 * SIGBUS: the client has cut short the file behind a map. Give the map memory
 * of nobody, so that the card finishes its step, and end the connection.
 */
static _Thread_local struct vu_server *here;

static void on_sigbus(int signal, siginfo_t *info, void *context)
{
	const uint8_t *at = info->si_addr;
	size_t i;

	(void)context;
	for (i = 0; here && i < here->dma.count; i++) {
		const struct vu_map *map = &here->dma.maps[i];

		if (!map->at || at < map->at - map->skip || at >= map->at + map->size)
			continue;
		if (!detach(map))
			break;
		here->broken = 1;
		return;
	}
	/* a defect of our own: on return it happens again, and ends the process */
	sigaction(signal, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL);
}

int vu_dma_guard(void)
{
	struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };

	return sigaction(SIGBUS, &action, NULL) ? -errno : 0;
}

void vu_dma_guard_thread(struct vu_server *server)
{
	here = server;
}

/* No DMA, but for what is under way, once a reset or the client's end is noted. */
static bool may_reach(const struct vu_server *server)
{
	return vu_may_master(server) && !server->broken && !server->reset_pending &&
	       server->fd >= 0;
}

static void *host_map(void *host, uint64_t addr, size_t length, bool write)
{
	struct vu_server *server = host;
	const struct vu_map *map;

	if (!may_reach(server))
		return NULL;
	map = find(&server->dma, addr);
	if (!map || !map->at || (write && !map->writable) ||
	    length > map->size - (addr - map->addr))
		return NULL;
	return map->at + (addr - map->addr);
}

/* Everything that has come; message.c answers it. */
static bool answer_all(struct vu_server *server)
{
	int rc = 0;

	while (!server->broken) {
		rc = vu_receive(server);
		if (rc <= 0)
			break;
		vu_message(server);
	}
	if (rc < 0)
		server->broken = 1;
	return !server->broken;
}

static int await_answer(struct vu_server *server)
{
	uint64_t until = fabric_clock_ns() + VU_PATIENCE_MS * NSEC_PER_MSEC;
	struct pollfd fds[] = {
		{ .fd = server->fd, .events = POLLIN },
		{ .fd = server->stop_fd, .events = POLLIN },
	};
	uint64_t now;

	for (;;) {
		if (!answer_all(server))
			return -EIO;
		if (!server->pending.waiting)
			return server->pending.result;
		now = fabric_clock_ns();
		if (now >= until || fds[1].revents) {
			/* the answer may still come, and nobody could tell to what */
			server->broken = 1;
			return -ETIMEDOUT;
		}
		poll(fds, 2, (int)((until - now) / NSEC_PER_MSEC + 1));
	}
}

static int ask(struct vu_server *server, uint16_t command, uint64_t addr, void *data,
	       uint32_t count)
{
	struct vu_dma_access access = { .addr = addr, .count = count };
	struct vu_pending *pending = &server->pending;
	struct vu_header header = { .command = command };
	int rc;

	if (!answer_all(server) || !may_reach(server))
		return -EIO;
	header.id = ++server->dma.next_id;
	*pending = (struct vu_pending){
		.waiting = true, .id = header.id, .command = command, .addr = addr,
		.data = data, .count = count,
	};
	if (command == VU_DMA_READ)
		vu_send(server, &header, &access, sizeof(access), NULL, 0);
	else
		vu_send(server, &header, &access, sizeof(access), data, count);
	rc = await_answer(server);
	pending->waiting = false;
	/* a reset came before the answer: what was read must have no effect */
	return rc ? rc : may_reach(server) ? 0 : -EIO;
}

bool vu_dma_answer(struct vu_server *server, const struct vu_header *header)
{
	struct vu_pending *pending = &server->pending;
	const uint8_t *data = server->rx + sizeof(*header) + sizeof(struct vu_dma_access);

	if (!pending->waiting || header->id != pending->id || header->command != pending->command)
		return false;
	pending->waiting = false;
	if (header->flags & VU_FLAG_ERROR) {
		pending->result = -EFAULT;
	} else if (header->command == VU_DMA_READ) {
		if (header->size < (size_t)(data - server->rx) + pending->count)
			return false;
		memcpy(pending->data, data, pending->count);
	}
	return true;
}

static int by_messages(struct vu_server *server, uint16_t command, uint64_t addr, uint8_t *data,
		       size_t length)
{
	int rc = 0;

	while (length && !rc) {
		size_t n = length < server->dma.max_data ? length : server->dma.max_data;

		rc = ask(server, command, addr, data, (uint32_t)n);
		addr += n;
		data += n;
		length -= n;
	}
	return rc;
}

/* What completes an entry must become visible in one piece, and last. */
static void store(uint8_t *to, const uint8_t *from, size_t length)
{
	uint64_t word;

	if (length == sizeof(word) && !((uintptr_t)to % sizeof(word))) {
		memcpy(&word, from, sizeof(word));
		__atomic_store_n((uint64_t *)(void *)to, word, __ATOMIC_RELEASE);
		return;
	}
	memcpy(to, from, length);
	atomic_thread_fence(memory_order_release);
}

static int copy(struct vu_server *server, uint64_t addr, uint8_t *data, size_t length, bool write)
{
	int rc = 0;

	while (length && !rc) {
		const struct vu_map *map = find(&server->dma, addr);
		uint64_t at;
		size_t n;

		if (!may_reach(server))
			return -EIO;
		if (!map || (write && !map->writable))
			return -EFAULT;
		at = addr - map->addr;
		n = length < map->size - at ? length : (size_t)(map->size - at);
		if (!map->at)
			rc = by_messages(server, write ? VU_DMA_WRITE : VU_DMA_READ, addr, data, n);
		else if (write)
			store(map->at + at, data, n);
		else
			memcpy(data, map->at + at, n);
		addr += n;
		data += n;
		length -= n;
	}
	return rc;
}

static int host_read(void *host, uint64_t addr, void *buf, size_t length)
{
	return copy(host, addr, buf, length, false);
}

static int host_write(void *host, uint64_t addr, const void *buf, size_t length)
{
	/* copy() only reads it then */
	return copy(host, addr, (void *)(uintptr_t)buf, length, true);
}

const struct card_host_ops vu_host_ops = {
	.map = host_map,
	.read = host_read,
	.write = host_write,
	.interrupt = vu_irq_raise,
};
