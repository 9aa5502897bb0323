/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The vfio-user server, as its program and its tests see it. See internal.h. */
#ifndef OPTINC_VFIO_USER_SERVER_H
#define OPTINC_VFIO_USER_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "emulator/card/card.h"

struct vu_server;
struct vu_waker;

/* Once for the process: survive a client that takes memory away under a mapping. */
int vu_dma_guard(void);

/* One for all servers of a process */
int vu_waker_new(struct vu_waker **waker);
void vu_waker_free(struct vu_waker *waker);

/**
 * vu_server_new() - a card, and the socket that its host comes to
 * @path: of the socket; NULL: @fd is a client's connection, and the only one
 * @stop_fd: becomes readable when all is to end
 * @error: on failure a sentence
 */
int vu_server_new(const struct card_config *config, const char *path, int fd, int stop_fd,
		  struct vu_waker *waker, struct vu_server **server, char *error,
		  size_t error_size);
/* Serve until @stop_fd becomes readable, or the one client has gone. */
void vu_server_run(struct vu_server *server);
/*
 * Pull the card out of its slot, or put one back: from any thread. Pulled, it
 * does nothing, and reads of it are all ones; back, it is as after power-on.
 */
void vu_server_pull(struct vu_server *server, int pulled);
/* No other thread may still run it, and the waker is freed before. */
void vu_server_free(struct vu_server *server);

/* config.card and the socket's path from one card's description; see options.c */
struct vu_options {
	struct card_config card;
	char path[108];
};

struct vu_option_list {
	struct vu_options *cards;
	size_t count;
	bool help, version;
};

/*
 * From a command line. 0, or negative errno with a sentence in @error, which is
 * empty where getopt_long() has printed one.
 */
int vu_options_parse(int argc, char **argv, struct vu_option_list *list, char *error,
		     size_t error_size);
extern const char vu_help[];

#endif /* OPTINC_VFIO_USER_SERVER_H */
