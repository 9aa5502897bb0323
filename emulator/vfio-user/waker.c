// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A card with requests under way sleeps in the fabric, where its peers wake
 * it. Should its client speak meanwhile, this thread, one for all cards of the
 * process, wakes it too. It watches a socket only while its card sleeps so.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "emulator/vfio-user/internal.h"

/* A kick that comes before the card sleeps is lost: after so long, another. */
#define AGAIN_NS	(20 * NSEC_PER_USEC)

struct vu_waker {
	pthread_t thread;
	int epoll, stop_fd;
};

static void wake(struct vu_server *server)
{
	const struct timespec again = { .tv_nsec = AGAIN_NS };

	while (atomic_load(&server->asleep)) {
		card_kick(server->card);
		nanosleep(&again, NULL);
	}
}

static void *watch(void *arg)
{
	struct vu_waker *waker = arg;
	struct epoll_event event;

	for (;;) {
		int n = epoll_wait(waker->epoll, &event, 1, -1);

		if (n < 0 && errno != EINTR)
			return NULL;
		if (n < 1)
			continue;
		if (!event.data.ptr)
			return NULL;
		wake(event.data.ptr);
	}
}

int vu_waker_new(struct vu_waker **result)
{
	struct vu_waker *waker = calloc(1, sizeof(*waker));
	struct epoll_event event = { .events = EPOLLIN };
	int rc = ENOMEM;

	if (!waker)
		return -ENOMEM;
	waker->epoll = epoll_create1(EPOLL_CLOEXEC);
	waker->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (waker->epoll >= 0 && waker->stop_fd >= 0 &&
	    !epoll_ctl(waker->epoll, EPOLL_CTL_ADD, waker->stop_fd, &event))
		rc = pthread_create(&waker->thread, NULL, watch, waker);
	if (rc) {
		close(waker->epoll);
		close(waker->stop_fd);
		free(waker);
		return -rc;
	}
	*result = waker;
	return 0;
}

void vu_waker_free(struct vu_waker *waker)
{
	uint64_t one = 1;

	if (!waker)
		return;
	while (write(waker->stop_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	pthread_join(waker->thread, NULL);
	close(waker->epoll);
	close(waker->stop_fd);
	free(waker);
}

static int control(struct vu_server *server, int operation, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = server };

	return epoll_ctl(server->waker->epoll, operation, server->fd, &event) ? -errno : 0;
}

int vu_waker_watch(struct vu_server *server)
{
	return control(server, EPOLL_CTL_ADD, EPOLLONESHOT);
}

void vu_waker_forget(struct vu_server *server)
{
	control(server, EPOLL_CTL_DEL, 0);
}

void vu_waker_arm(struct vu_server *server)
{
	atomic_store(&server->asleep, true);
	control(server, EPOLL_CTL_MOD, EPOLLIN | EPOLLONESHOT);
}

void vu_waker_disarm(struct vu_server *server)
{
	atomic_store(&server->asleep, false);
	control(server, EPOLL_CTL_MOD, EPOLLONESHOT);
}
