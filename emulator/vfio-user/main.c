// SPDX-License-Identifier: LGPL-2.1-or-later
/* optinc-emu: emulated cards for virtual machines. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <optinc/optinc.h>

#include "emulator/vfio-user/internal.h"

struct process {
	struct vu_option_list options;
	struct vu_waker *waker;
	int stop_fd;
	struct vu_server *servers[FABRIC_MAX_PORTS];
	pthread_t threads[FABRIC_MAX_PORTS];
	size_t server_count, thread_count;
};

static void *run(void *server)
{
	vu_server_run(server);
	return NULL;
}

static int make_cards(struct process *process)
{
	char error[256];
	size_t i;

	for (i = 0; i < process->options.count; i++) {
		const struct vu_options *card = &process->options.cards[i];
		int rc = vu_server_new(&card->card, card->path, -1, process->stop_fd,
				       process->waker, &process->servers[i], error, sizeof(error));

		if (rc) {
			fprintf(stderr, "optinc-emu: port %u: %s\n", card->card.fabric.port, error);
			return rc;
		}
		process->server_count++;
	}
	return 0;
}

static int start_cards(struct process *process)
{
	size_t i;
	int rc;

	for (i = 0; i < process->server_count; i++) {
		rc = pthread_create(&process->threads[i], NULL, run, process->servers[i]);
		if (rc) {
			fprintf(stderr, "optinc-emu: no thread for a card: %s\n", strerror(rc));
			return -rc;
		}
		process->thread_count++;
	}
	return 0;
}

static void finish(struct process *process)
{
	uint64_t one = 1;
	size_t i;

	while (write(process->stop_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	for (i = 0; i < process->thread_count; i++)
		pthread_join(process->threads[i], NULL);
	vu_waker_free(process->waker);
	for (i = 0; i < process->server_count; i++)
		vu_server_free(process->servers[i]);
	close(process->stop_fd);
	free(process->options.cards);
}

static int prepare(struct process *process)
{
	int rc = vu_dma_guard();

	signal(SIGPIPE, SIG_IGN);
	process->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (!rc && process->stop_fd < 0)
		rc = -errno;
	if (!rc)
		rc = vu_waker_new(&process->waker);
	if (rc)
		fprintf(stderr, "optinc-emu: %s\n", strerror(-rc));
	return rc;
}

/* The cards' threads inherit the mask: signals come to this one alone. */
static void block(sigset_t *signals)
{
	sigemptyset(signals);
	sigaddset(signals, SIGTERM);
	sigaddset(signals, SIGINT);
	sigaddset(signals, SIGHUP);
	sigaddset(signals, SIGUSR1);
	sigaddset(signals, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, signals, NULL);
}

/* Until a signal that ends it */
static void await_end(struct process *process, const sigset_t *signals)
{
	int signal;
	size_t i;

	for (;;) {
		if (sigwait(signals, &signal))
			continue;
		if (signal != SIGUSR1 && signal != SIGUSR2)
			return;
		for (i = 0; i < process->server_count; i++)
			vu_server_pull(process->servers[i], signal == SIGUSR1);
	}
}

static int inform(const struct vu_option_list *options)
{
	if (options->help)
		fputs(vu_help, stdout);
	else
		printf("optinc-emu %d.%d.%d, card interface %d.%d\n", OPTINC_VERSION_MAJOR,
		       OPTINC_VERSION_MINOR, OPTINC_VERSION_PATCH, OPTINC_INTERFACE_MAJOR,
		       OPTINC_INTERFACE_MINOR);
	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return 0;
	fprintf(stderr, "optinc-emu: cannot write to standard output: %s\n",
		errno ? strerror(errno) : "write error");
	return 1;
}

int main(int argc, char **argv)
{
	static char tool[] = "optinc-emu";
	struct process process = { .stop_fd = -1 };
	char error[256];
	sigset_t signals;
	int rc;

	argv[0] = tool;		/* for getopt's messages */
	if (vu_options_parse(argc, argv, &process.options, error, sizeof(error))) {
		if (*error)
			fprintf(stderr, "optinc-emu: %s: see --help\n", error);
		return 2;
	}
	if (process.options.help || process.options.version)
		return inform(&process.options);
	block(&signals);
	rc = prepare(&process);
	if (!rc)
		rc = make_cards(&process);
	if (!rc)
		rc = start_cards(&process);
	if (!rc) {
		/* for scripts that wait until the sockets are there */
		printf("optinc-emu: ready\n");
		fflush(stdout);
		await_end(&process, &signals);
	}
	finish(&process);
	return rc ? 1 : 0;
}
