// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Attaching to a fabric's shared memory.
 *
 * Who is alive is told by byte-range locks on the segment's file: byte 0 is
 * held while a segment is made, remade or removed, byte 1 + P for as long as a
 * process owns port P. The kernel drops them when the process dies, at
 * whatever instruction. They are the process-owned kind, which a forked child
 * does not inherit: a rank's helper processes do not keep a dead rank alive.
 * Such locks go when the process closes any descriptor of the file, so a
 * process opens a segment once, however many ports it attaches.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "emulator/fabric/segment.h"

#define INIT_LOCK		0
#define PORT_LOCK(port)		(1 + (port))
#define INIT_TIMEOUT_MS		3000
#define SHM_DIR			"/dev/shm"

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment *registry;

/* A child owns none of its parent's ports; what it inherited is left alone. */
static void forget_after_fork(void)
{
	pthread_mutex_init(&registry_lock, NULL);
	registry = NULL;
}

__attribute__((constructor)) static void segment_init(void)
{
	pthread_atfork(NULL, NULL, forget_after_fork);
}

static int file_lock(int fd, short type, off_t start, off_t len)
{
	struct flock lock = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len,
	};

	return fcntl(fd, F_SETLK, &lock) ? -errno : 0;
}

/*
 * Does another process hold a lock in the range? @pid, or NULL, is told which;
 * 0 if it is of another PID namespace, which has no number here.
 */
static bool lock_held(int fd, off_t start, off_t len, pid_t *pid)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = len,
	};

	if (fcntl(fd, F_GETLK, &lock) || lock.l_type == F_UNLCK)
		return false;
	if (pid)
		*pid = lock.l_pid;
	return true;
}

static const char *holder(int fd, off_t start, char *text, size_t size)
{
	pid_t pid = 0;

	if (lock_held(fd, start, 1, &pid) && pid > 0)
		snprintf(text, size, "process %d", pid);
	else
		snprintf(text, size, "another process");
	return text;
}

static bool any_port_held(int fd)
{
	return lock_held(fd, PORT_LOCK(0), FABRIC_MAX_PORTS, NULL);
}

/* Others hold it for microseconds, unless they are stopped. */
static int lock_init(int fd)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	for (int ms = 0; ms < INIT_TIMEOUT_MS; ms++) {
		int ret = file_lock(fd, F_WRLCK, INIT_LOCK, 1);

		if (ret != -EAGAIN && ret != -EACCES)
			return ret;
		nanosleep(&pause, NULL);
	}
	return -EBUSY;
}

static void unlock_init(int fd)
{
	file_lock(fd, F_UNLCK, INIT_LOCK, 1);
}

static struct segment *registry_find(const char *name)
{
	struct segment *s;

	for (s = registry; s; s = s->next)
		if (!strcmp(s->name, name))
			return s;
	return NULL;
}

static size_t control_bytes(unsigned int ports)
{
	size_t bytes = sizeof(struct shm_segment) + ports * sizeof(struct shm_port);

	return (bytes + 4095) / 4096 * 4096;
}

static size_t total_bytes(unsigned int ports)
{
	return control_bytes(ports) + ports * SEGMENT_CHANNELS * CHANNEL_DATA_BYTES;
}

/* Remove what dead processes left behind under other names of this user. */
static void sweep_stale(const char *own)
{
	char prefix[32], name[sizeof(((struct dirent *)0)->d_name) + 1];
	struct dirent *entry;
	DIR *dir = opendir(SHM_DIR);

	if (!dir)
		return;
	snprintf(prefix, sizeof(prefix), "/optinc-%u-", geteuid());
	while ((entry = readdir(dir))) {
		int fd;

		snprintf(name, sizeof(name), "/%s", entry->d_name);
		if (strncmp(name, prefix, strlen(prefix)) || !strcmp(name, own) ||
		    registry_find(name))
			continue;
		fd = openat(dirfd(dir), entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0)
			continue;
		if (!file_lock(fd, F_WRLCK, INIT_LOCK, 1) && !any_port_held(fd))
			unlinkat(dirfd(dir), entry->d_name, 0);
		close(fd);
	}
	closedir(dir);
}

static int check_owner(int fd, const char *name, char *error, size_t size)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_uid != geteuid() || !S_ISREG(st.st_mode) || (st.st_mode & 077)) {
		snprintf(error, size, SHM_DIR "%s is not a private file of this user: remove it or choose another fabric name",
			 name);
		return -EACCES;
	}
	return st.st_nlink ? 0 : -ESTALE;
}

/*
 * Back part of the file with memory. Some kernels give it all back when a
 * signal comes, so that a profiler's would fail it again and again.
 */
static int reserve(int fd, off_t start, off_t len)
{
	sigset_t all, old;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = posix_fallocate(fd, start, len);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -ret;
}

/* Under the init lock, with nobody attached: begin afresh. */
static int make_segment(struct segment *s, char *error, size_t size)
{
	size_t control = control_bytes(s->ports);
	int ret;

	if (ftruncate(s->fd, 0) || ftruncate(s->fd, (off_t)s->bytes))
		return -errno;
	ret = reserve(s->fd, 0, (off_t)control);
	if (ret) {
		snprintf(error, size, "no room for the fabric in " SHM_DIR ": %zu bytes are needed; free some there or enlarge it",
			 control);
		return ret;
	}
	sweep_stale(s->name);
	return 0;
}

static int map_segment(struct segment *s)
{
	void *map = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);

	if (map == MAP_FAILED)
		return -errno;
	s->shm = map;
	s->data_offset = control_bytes(s->ports);
	return 0;
}

static void fill_header(struct segment *s)
{
	s->shm->ports = s->ports;
	s->shm->bytes_per_slot = sizeof(struct shm_slot);
	s->shm->bytes = s->bytes;
	atomic_store(&s->shm->magic, SEGMENT_MAGIC);
}

/* Others are attached: does their segment fit what is asked for? */
static int check_segment(struct segment *s, char *error, size_t size)
{
	struct stat st;
	const struct shm_segment *shm = s->shm;

	if (fstat(s->fd, &st) || (size_t)st.st_size < sizeof(*shm) ||
	    atomic_load(&shm->magic) != SEGMENT_MAGIC ||
	    shm->bytes_per_slot != sizeof(struct shm_slot)) {
		snprintf(error, size, "fabric %s is in use by another version of the emulator", s->name);
		return -EPROTO;
	}
	if (shm->ports != s->ports || (size_t)st.st_size != s->bytes) {
		snprintf(error, size, "fabric %s has %u ports, not %u: give ports=%u, or another name",
			 s->name, shm->ports, s->ports, shm->ports);
		return -EINVAL;
	}
	return 0;
}

/* Open or make the file, under its init lock, which stays held. */
static int open_locked(struct segment *s, char *error, size_t size)
{
	char text[32];
	int ret;

	do {
		s->fd = shm_open(s->name, O_RDWR | O_CREAT, 0600);
		if (s->fd < 0) {
			ret = -errno;
			snprintf(error, size, "cannot open " SHM_DIR "%s: %s", s->name, strerror(-ret));
			return ret;
		}
		ret = lock_init(s->fd);
		if (ret == -EBUSY)
			snprintf(error, size, "%s holds the fabric's lock and does not let go",
				 holder(s->fd, INIT_LOCK, text, sizeof(text)));
		if (!ret)
			ret = check_owner(s->fd, s->name, error, size);
		if (ret)
			close(s->fd);
	} while (ret == -ESTALE);	/* removed while we waited */
	return ret;
}

static int segment_open(struct segment *s, char *error, size_t size)
{
	bool fresh;
	int ret = open_locked(s, error, size);

	if (ret)
		return ret;
	fresh = !any_port_held(s->fd);
	if (fresh)
		ret = make_segment(s, error, size);
	if (!ret)
		ret = map_segment(s);
	if (!ret && fresh)
		fill_header(s);
	else if (!ret)
		ret = check_segment(s, error, size);
	if (ret) {
		if (s->shm)
			munmap(s->shm, s->bytes);
		if (fresh)
			shm_unlink(s->name);
		close(s->fd);
	}
	return ret;
}

static int take_port(struct segment *s, unsigned int port, char *error, size_t size)
{
	char text[32];
	int ret;

	if (s->held & 1u << port) {
		snprintf(error, size, "port %u of the fabric is open in this process already", port);
		return -EBUSY;
	}
	ret = file_lock(s->fd, F_WRLCK, PORT_LOCK(port), 1);
	if (ret == -EAGAIN || ret == -EACCES) {
		snprintf(error, size, "port %u of the fabric is held by %s", port,
			 holder(s->fd, PORT_LOCK(port), text, sizeof(text)));
		return -EBUSY;
	}
	if (ret)
		return ret;
	s->held |= 1u << port;
	s->users++;
	return 0;
}

/* With the init lock held. Frees the segment when it was this process's last port. */
static void drop_if_unused(struct segment *s)
{
	struct segment **p;

	if (s->users) {
		unlock_init(s->fd);
		return;
	}
	if (!any_port_held(s->fd))
		shm_unlink(s->name);
	for (p = &registry; *p; p = &(*p)->next) {
		if (*p == s) {
			*p = s->next;
			break;
		}
	}
	munmap(s->shm, s->bytes);
	close(s->fd);	/* drops the init lock too */
	free(s);
}

static int attach_locked(const char *name, unsigned int port, unsigned int ports,
			 struct segment **segment, char *error, size_t size)
{
	struct segment *s = registry_find(name);
	int ret;

	if (s) {
		ret = s->ports == ports ? lock_init(s->fd) : -EINVAL;
		if (ret == -EINVAL)
			snprintf(error, size, "this process has the fabric open with %u ports, not %u",
				 s->ports, ports);
		if (ret)
			return ret;
	} else {
		s = calloc(1, sizeof(*s));
		if (!s)
			return -ENOMEM;
		snprintf(s->name, sizeof(s->name), "%s", name);
		s->ports = ports;
		s->bytes = total_bytes(ports);
		ret = segment_open(s, error, size);
		if (ret) {
			free(s);
			return ret;
		}
		s->next = registry;
		registry = s;
	}
	ret = take_port(s, port, error, size);
	drop_if_unused(s);
	if (!ret)
		*segment = s;
	return ret;
}

int segment_attach(const char *name, unsigned int port, unsigned int ports,
		   struct segment **segment, char *error, size_t size)
{
	char path[96];
	int ret;

	error[0] = 0;
	snprintf(path, sizeof(path), "/optinc-%u-%s", geteuid(), name);
	pthread_mutex_lock(&registry_lock);
	ret = attach_locked(path, port, ports, segment, error, size);
	pthread_mutex_unlock(&registry_lock);
	if (ret && !error[0])
		snprintf(error, size, "cannot attach to fabric %s: %s", name, strerror(-ret));
	return ret;
}

static bool registered(const struct segment *segment)
{
	const struct segment *s;

	for (s = registry; s; s = s->next)
		if (s == segment)
			return true;
	return false;
}

void segment_detach(struct segment *s, unsigned int port)
{
	pthread_mutex_lock(&registry_lock);
	if (registered(s)) {	/* a forked child has nothing to give back */
		int locked = lock_init(s->fd);

		file_lock(s->fd, F_UNLCK, PORT_LOCK(port), 1);
		s->held &= ~(1u << port);
		s->users--;
		if (!locked)
			drop_if_unused(s);
		/* else somebody is stuck with the lock; a later attach cleans up */
	}
	pthread_mutex_unlock(&registry_lock);
}

bool segment_alive(struct segment *s, unsigned int port)
{
	bool alive;

	pthread_mutex_lock(&registry_lock);
	alive = s->held & 1u << port || lock_held(s->fd, PORT_LOCK(port), 1, NULL);
	pthread_mutex_unlock(&registry_lock);
	return alive;
}

static size_t slots_offset(const struct segment *s, unsigned int port, unsigned int channel)
{
	return s->data_offset + (port * SEGMENT_CHANNELS + channel) * CHANNEL_DATA_BYTES;
}

int segment_reserve(struct segment *s, unsigned int port, unsigned int channel)
{
	return reserve(s->fd, (off_t)slots_offset(s, port, channel), (off_t)CHANNEL_DATA_BYTES);
}

struct shm_slot *segment_slots(struct segment *s, unsigned int port, unsigned int channel)
{
	return (void *)((char *)s->shm + slots_offset(s, port, channel));
}
