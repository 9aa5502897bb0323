// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Which provider serves a URI. The only place that knows there are several.
 *
 * The emulated card is a shared object of its own, loaded when a URI says
 * "emu:" and not before. It is looked for in $OPTINC_EMU_PATH (a directory;
 * for build trees, and ignored in set-user-ID programs), beside liboptinc.so,
 * in the directory "optinc" beside it, and where the loader looks. Once loaded it
 * stays: it may have threads.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#define EMULATOR	"liboptinc-emu.so"

static const struct optinc_provider *injected;

static struct {
	pthread_mutex_t lock;
	void *handle;
} emulator = { .lock = PTHREAD_MUTEX_INITIALIZER };

void provider_inject(const struct optinc_provider *provider)
{
	injected = provider;
}

/* Directory of the object that this code is in; false when that is not known. */
static bool own_directory(char *dir, size_t size)
{
	Dl_info info;
	char *slash;

	if (!dladdr((void *)(uintptr_t)optinc_open, &info) || !info.dli_fname)
		return false;
	if (strlen(info.dli_fname) >= size)
		return false;
	strcpy(dir, info.dli_fname);
	slash = strrchr(dir, '/');
	if (!slash)
		return false;
	*slash = '\0';
	return true;
}

/*
 * NULL when the file is not there. One that is there but does not load is an
 * error to report, not a reason to look further: @found is set.
 */
static void *load_from(const char *dir, const char *sub, bool *found)
{
	char path[PATH_MAX];
	int n;

	n = snprintf(path, sizeof(path), "%s/%s" EMULATOR, dir, sub);
	if (n < 0 || (size_t)n >= sizeof(path) || access(path, F_OK))
		return NULL;
	*found = true;
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *load_emulator(void)
{
	const char *path = secure_getenv("OPTINC_EMU_PATH");
	char dir[PATH_MAX];
	bool found = false;
	void *handle;

	if (path && *path)
		return load_from(path, "", &found);
	if (own_directory(dir, sizeof(dir))) {
		handle = load_from(dir, "", &found);
		if (!found)
			handle = load_from(dir, "optinc/", &found);
		if (found)
			return handle;
	}
	return dlopen(EMULATOR, RTLD_NOW | RTLD_LOCAL);
}

static int no_emulator(struct optinc_open_error *error, const char *text)
{
	error->reason = OPTINC_REASON_NO_EMULATOR;
	snprintf(error->text, sizeof(error->text), "the emulated card (" EMULATOR
		 ") cannot be loaded: %s", text ? text : "there is no such file");
	return -ENOPKG;
}

static int emulator_find(const struct optinc_provider **provider,
			 struct optinc_open_error *error)
{
	const struct optinc_provider *p;

	if (!emulator.handle) {
		dlerror();
		emulator.handle = load_emulator();
	}
	if (!emulator.handle)
		return no_emulator(error, dlerror());

	p = dlsym(emulator.handle, OPTINC_PROVIDER_SYMBOL);
	if (!p)
		return no_emulator(error, dlerror());
	if (p->abi != OPTINC_PROVIDER_ABI) {
		error->reason = OPTINC_REASON_VERSION;
		snprintf(error->text, sizeof(error->text), EMULATOR " is for another version of "
			 "liboptinc (%u, not %u): install the two together", p->abi,
			 OPTINC_PROVIDER_ABI);
		return -EPROTO;
	}
	*provider = p;
	return 0;
}

static int bad_uri(struct optinc_open_error *error)
{
	error->reason = OPTINC_REASON_BAD_URI;
	snprintf(error->text, sizeof(error->text), "a card is named \"card:N\", "
		 "\"pci:DDDD:BB:DD.F\" or \"emu:NAME?port=P&ports=N\"");
	return -EINVAL;
}

int provider_find(const char *uri, const struct optinc_provider **provider, const char **rest,
		  struct optinc_open_error *error)
{
	const struct optinc_provider *const providers[] = {
		injected, &optinc_provider_card, &optinc_provider_pci,
	};
	const char *colon = strchr(uri, ':');
	size_t length, i;
	int ret;

	if (!colon)
		return bad_uri(error);
	length = (size_t)(colon - uri);
	*rest = colon + 1;

	for (i = 0; i < ARRAY_SIZE(providers); i++) {
		if (!providers[i] || strlen(providers[i]->scheme) != length ||
		    strncmp(uri, providers[i]->scheme, length))
			continue;
		*provider = providers[i];
		return 0;
	}
	if (length != 3 || strncmp(uri, "emu", 3))
		return bad_uri(error);

	pthread_mutex_lock(&emulator.lock);
	ret = emulator_find(provider, error);
	pthread_mutex_unlock(&emulator.lock);
	return ret;
}
