// SPDX-License-Identifier: LGPL-2.1-or-later
/* The cards that the kernel driver knows, from sysfs. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct list_entry {
	int number;
	char uri[24];
	char slot[40];
};

struct optinc_list {
	size_t count;
	size_t room;
	struct list_entry *entries;
};

static int compare(const void *a, const void *b)
{
	const struct list_entry *x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

static int add(struct optinc_list *list, const char *name)
{
	struct list_entry *entry;
	int number = sysfs_card_number(name);

	if (number < 0)
		return 0;	/* "ctlN", "." and ".." */
	if (list->count == list->room) {
		size_t room = list->room ? 2 * list->room : 8;

		entry = realloc(list->entries, room * sizeof(*entry));
		if (!entry)
			return -ENOMEM;
		list->entries = entry;
		list->room = room;
	}
	entry = &list->entries[list->count++];
	entry->number = number;
	snprintf(entry->uri, sizeof(entry->uri), "card:%d", number);
	if (!sysfs_slot(name, entry->slot, sizeof(entry->slot)))
		entry->slot[0] = '\0';
	return 0;
}

OPTINC_EXPORT int optinc_enumerate(struct optinc_list **out)
{
	struct optinc_list *list;
	struct dirent *entry;
	int ret = 0;
	DIR *dir;

	if (!out)
		return fail(-EINVAL, "list: NULL");
	*out = NULL;
	list = calloc(1, sizeof(*list));
	if (!list)
		return fail(-ENOMEM, "out of memory");

	dir = opendir(sysfs_class_path);
	while (dir && !ret && (entry = readdir(dir)))
		ret = add(list, entry->d_name);
	if (dir)
		closedir(dir);
	if (ret) {
		optinc_list_free(list);
		return fail(ret, "out of memory");
	}
	if (list->count)
		qsort(list->entries, list->count, sizeof(*list->entries), compare);
	*out = list;
	return 0;
}

OPTINC_EXPORT size_t optinc_list_count(const struct optinc_list *list)
{
	return list ? list->count : 0;
}

OPTINC_EXPORT const char *optinc_list_uri(const struct optinc_list *list, size_t i)
{
	return list && i < list->count ? list->entries[i].uri : NULL;
}

OPTINC_EXPORT const char *optinc_list_slot(const struct optinc_list *list, size_t i)
{
	return list && i < list->count ? list->entries[i].slot : NULL;
}

OPTINC_EXPORT void optinc_list_free(struct optinc_list *list)
{
	if (!list)
		return;
	free(list->entries);
	free(list);
}
