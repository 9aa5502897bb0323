// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Messages from and to the client's socket.
 *
 * Receiving never blocks: a message that has come in part stays in rx until
 * the rest is there. File descriptors come with a message's first bytes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "emulator/vfio-user/internal.h"

void vu_close_fds(struct vu_server *server)
{
	unsigned int i;

	for (i = 0; i < server->rx_fd_count; i++) {
		if (server->rx_fds[i] >= 0)
			close(server->rx_fds[i]);
	}
	server->rx_fd_count = 0;
}

int vu_take_fd(struct vu_server *server)
{
	unsigned int i;

	for (i = 0; i < server->rx_fd_count; i++) {
		int fd = server->rx_fds[i];

		if (fd < 0)
			continue;
		server->rx_fds[i] = -1;
		return fd;
	}
	return -1;
}

/* All of them belong to us now: keep each, or close it. */
static void collect_fds(struct vu_server *server, struct msghdr *msg)
{
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t i, n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (server->rx_fd_count < VU_MAX_FDS)
				server->rx_fds[server->rx_fd_count++] = fd;
			else
				close(fd);
		}
	}
}

/* Bytes read; 0: none there now; -1: the client is gone. */
static ssize_t read_some(struct vu_server *server, size_t wanted)
{
	/* one more than is used, so that too many are noticed and closed */
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE((VU_MAX_FDS + 1) * sizeof(int))];
	} control;
	struct iovec iov = { server->rx + server->rx_have, wanted };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	ssize_t n;

	do {
		n = recvmsg(server->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
	if (msg.msg_controllen)
		collect_fds(server, &msg);
	return n ? n : -1;
}

int vu_receive(struct vu_server *server)
{
	struct vu_header header;
	size_t size = sizeof(header);
	ssize_t n;

	for (;;) {
		if (server->rx_have >= sizeof(header)) {
			memcpy(&header, server->rx, sizeof(header));
			size = header.size;
			/* there is no way to find the next message's beginning */
			if (size < sizeof(header) || size > sizeof(server->rx))
				return -1;
		}
		if (server->rx_have == size)
			return 1;
		n = read_some(server, size - server->rx_have);
		if (n <= 0)
			return (int)n;
		server->rx_have += (size_t)n;
	}
}

static bool wait_writable(struct vu_server *server)
{
	struct pollfd fds[] = {
		{ .fd = server->fd, .events = POLLOUT },
		{ .fd = server->stop_fd, .events = POLLIN },
	};

	return poll(fds, 2, VU_PATIENCE_MS) > 0 && !fds[1].revents;
}

bool vu_send(struct vu_server *server, struct vu_header *header, const void *a, size_t a_size,
	     const void *b, size_t b_size)
{
	struct iovec iov[] = {
		{ header, sizeof(*header) },
		{ (void *)(uintptr_t)a, a_size },
		{ (void *)(uintptr_t)b, b_size },
	};
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 3 };
	size_t left = sizeof(*header) + a_size + b_size;

	header->size = (uint32_t)left;
	while (left && !server->broken) {
		ssize_t n = sendmsg(server->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EAGAIN && wait_writable(server))
				continue;
			server->broken = 1;
			break;
		}
		left -= (size_t)n;
		while (n && msg.msg_iovlen) {
			size_t part = (size_t)n < msg.msg_iov->iov_len ? (size_t)n :
								       msg.msg_iov->iov_len;

			msg.msg_iov->iov_base = (char *)msg.msg_iov->iov_base + part;
			msg.msg_iov->iov_len -= part;
			n -= (ssize_t)part;
			if (!msg.msg_iov->iov_len && msg.msg_iovlen > 1) {
				msg.msg_iov++;
				msg.msg_iovlen--;
			}
		}
	}
	return !server->broken;
}

/* A socket that a server who died has left behind refuses connections. */
static bool is_stale(const struct sockaddr_un *addr)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool stale;

	if (fd < 0)
		return false;
	stale = connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) && errno == ECONNREFUSED;
	close(fd);
	return stale;
}

static int bind_private(int fd, const struct sockaddr_un *addr)
{
	mode_t old = umask(0177);
	int rc = bind(fd, (const struct sockaddr *)addr, sizeof(*addr)) ? -errno : 0;

	umask(old);
	return rc;
}

int vu_listen(const char *path, char *error, size_t error_size)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd, rc;

	if (!path[0] || strlen(path) >= sizeof(addr.sun_path)) {
		snprintf(error, error_size, "%s: the path of a socket has 1 to %zu bytes", path,
			 sizeof(addr.sun_path) - 1);
		return -ENAMETOOLONG;
	}
	memcpy(addr.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		rc = -errno;
		snprintf(error, error_size, "socket: %s", strerror(-rc));
		return rc;
	}
	rc = bind_private(fd, &addr);
	if (rc == -EADDRINUSE && is_stale(&addr) && !unlink(path))
		rc = bind_private(fd, &addr);
	if (!rc && listen(fd, 4))
		rc = -errno;
	if (rc) {
		snprintf(error, error_size, "%s: %s", path,
			 rc == -EADDRINUSE ? "there is a file of that name, or another server" :
					     strerror(-rc));
		close(fd);
		return rc;
	}
	return fd;
}
