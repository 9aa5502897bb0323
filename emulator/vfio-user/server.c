// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * One card and its client: the loop.
 *
 * What the client asks for is answered first; then the card takes a step,
 * which is where it obeys. When neither has anything to do:
 *
 *	requests wait for peers		sleep in the fabric; the waker looks
 *					after the socket
 *	none do				sleep on the socket, and look at the
 *					fabric now and then, for a group that
 *					joins or loses a member
 *	the card is not enabled		sleep on the socket
 *
 * A client that goes takes its memory and interrupts with it, and the card is
 * as after power-on for the next one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "emulator/vfio-user/internal.h"

/* Before a sleep, as often: a message that follows at once finds us awake. */
#define SPINS		64
/* In the fabric; shorter where completions are held back for a time */
#define DOZE_NS		(20 * NSEC_PER_MSEC)
#define DOZE_PACED_NS	(50 * NSEC_PER_USEC)
/* Between looks at the fabric without requests; often where a group may be joining */
#define LOOK_MS		20
#define LOOK_OFTEN_MS	1
#define RETRY_MS	50
#define RECENT_NS	(2 * NSEC_PER_SEC)

void vu_reset(struct vu_server *server)
{
	if (server->stepping)
		server->reset_pending = true;
	else
		card_reset(server->card);
}

/* What had to wait, because the card was at work. */
static void after_step(struct vu_server *server)
{
	server->stepping = false;
	vu_dma_reap(server);
	if (server->reset_pending) {
		server->reset_pending = false;
		card_reset(server->card);
	}
}

void vu_server_pull(struct vu_server *server, int pulled)
{
	atomic_store(&server->pull, pulled);
}

/* Out or in, the card has lost its power. */
static void follow_pull(struct vu_server *server)
{
	bool pull = atomic_load(&server->pull);

	if (pull == server->pulled)
		return;
	server->pulled = pull;
	vu_config_reset(server, false);
	vu_reset(server);
}

static bool step(struct vu_server *server)
{
	bool did;

	server->stepping = true;
	did = card_step(server->card);
	after_step(server);
	return did;
}

/* True if there was a message. */
static bool listen_to_client(struct vu_server *server)
{
	int rc = vu_receive(server);

	if (rc > 0)
		vu_message(server);
	else if (rc < 0)
		server->broken = 1;
	return rc > 0;
}

/* There is one host: others who come are told so by the end of their connection. */
static void turn_away(struct vu_server *server)
{
	int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0)
		close(fd);
}

/* False: it is time to end. */
static bool sleep_on_socket(struct vu_server *server, int timeout_ms)
{
	struct pollfd fds[] = {
		{ .fd = server->stop_fd, .events = POLLIN },
		{ .fd = server->fd, .events = POLLIN | POLLRDHUP },
		{ .fd = server->listener, .events = POLLIN },
	};

	if (poll(fds, 3, timeout_ms) <= 0)
		return true;
	/* unless this one has just gone, and the other is the next host */
	if (fds[2].revents && server->fd >= 0 && !(fds[1].revents & ~POLLIN))
		turn_away(server);
	return !fds[0].revents;
}

static bool sleep_in_fabric(struct vu_server *server)
{
	bool paced = server->config.fabric.impair.pace;

	vu_waker_arm(server);
	/* it looks at the fabric before it sleeps, and may have work there */
	server->stepping = true;
	card_sleep(server->card, paced ? DOZE_PACED_NS : DOZE_NS);
	after_step(server);
	vu_waker_disarm(server);
	return sleep_on_socket(server, 0);
}

static bool sleep_idle(struct vu_server *server)
{
	bool recent = fabric_clock_ns() - server->host_ns < RECENT_NS;

	if (!(card_read(server->card, OPTINC_REG_STATUS) & OPTINC_STATUS_READY))
		return sleep_on_socket(server, -1);
	return sleep_on_socket(server, recent ? LOOK_OFTEN_MS : LOOK_MS);
}

static void make_room(struct vu_server *server)
{
	if (card_crowded(server->card))
		sched_yield();
}

/* Until the client has gone: true; false: it is time to end. */
static bool serve(struct vu_server *server)
{
	unsigned int spins = 0;
	bool go_on = true;

	while (go_on && !server->broken) {
		bool did;

		follow_pull(server);
		did = listen_to_client(server);
		did |= step(server);
		if (did) {
			spins = 0;
		} else if (spins < SPINS) {
			spins++;
			make_room(server);
		} else if (card_busy(server->card)) {
			go_on = sleep_in_fabric(server);
		} else {
			spins = 0;
			go_on = sleep_idle(server);
		}
	}
	return go_on;
}

static void welcome(struct vu_server *server)
{
	server->broken = 0;
	server->versioned = false;
	server->rx_have = 0;
	server->dma.max_data = VU_MAX_DATA;
	if (vu_waker_watch(server))
		server->broken = 1;
}

static void say_goodbye(struct vu_server *server)
{
	vu_waker_forget(server);
	vu_close_fds(server);
	close(server->fd);
	server->fd = -1;
	vu_dma_unmap_all(server);
	vu_irq_drop(server);
	vu_config_reset(server, false);
	card_reset(server->card);
}

/* False: it is time to end. */
static bool await_client(struct vu_server *server)
{
	if (!sleep_on_socket(server, -1))
		return false;
	server->fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
	/* it went again, or there are no descriptors left: those may come back */
	if (server->fd < 0)
		poll(NULL, 0, RETRY_MS);
	return true;
}

void vu_server_run(struct vu_server *server)
{
	bool go_on = true;

	vu_dma_guard_thread(server);
	while (go_on) {
		if (server->fd < 0) {
			if (server->listener < 0)
				break;
			go_on = await_client(server);
			continue;
		}
		welcome(server);
		go_on = serve(server);
		say_goodbye(server);
	}
	vu_dma_guard_thread(NULL);
}

static int new_card(struct vu_server *server, char *error, size_t error_size)
{
	int rc = card_new(&server->config, &vu_host_ops, server, &server->card, error, error_size);

	if (rc)
		return rc;
	rc = vu_bar_init(server);
	if (rc)
		snprintf(error, error_size, "out of memory");
	else
		vu_config_init(server);
	return rc;
}

int vu_server_new(const struct card_config *config, const char *path, int fd, int stop_fd,
		  struct vu_waker *waker, struct vu_server **result, char *error,
		  size_t error_size)
{
	struct vu_server *server = aligned_alloc(_Alignof(struct vu_server), sizeof(*server));
	int rc;

	if (!server) {
		snprintf(error, error_size, "out of memory");
		return -ENOMEM;
	}
	memset(server, 0, sizeof(*server));
	server->config = *config;
	server->listener = -1;
	server->fd = fd;
	server->stop_fd = stop_fd;
	server->waker = waker;
	vu_irq_init(server);
	rc = new_card(server, error, error_size);
	if (!rc && path) {
		server->listener = vu_listen(path, error, error_size);
		if (server->listener < 0)
			rc = server->listener;
		else
			snprintf(server->path, sizeof(server->path), "%s", path);
	}
	if (rc) {
		server->fd = -1;
		vu_server_free(server);
		return rc;
	}
	*result = server;
	return 0;
}

void vu_server_free(struct vu_server *server)
{
	if (!server)
		return;
	if (server->listener >= 0) {
		close(server->listener);
		unlink(server->path);
	}
	if (server->fd >= 0)
		close(server->fd);
	vu_irq_drop(server);
	card_free(server->card);
	vu_dma_free(server);
	free(server->table);
	free(server);
}
