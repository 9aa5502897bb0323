// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Gradients in files: DIRECTORY/<tensor>-rank<k>.f32, raw little-endian
 * float32, for the same ranks 0..N-1 of every tensor.
 */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "demo.h"

_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "the files' byte order is this machine's");

#define SUFFIX	".f32"

/* Take "<tensor>-rank<k>.f32" apart. */
static bool parse_name(const char *file, char name[NAME_BYTES], unsigned int *rank)
{
	const char *end = file + strlen(file), *dash = NULL, *p;
	char digits[8];
	uint64_t value;

	if (end - file <= (ptrdiff_t)strlen(SUFFIX) || strcmp(end - strlen(SUFFIX), SUFFIX))
		return false;
	end -= strlen(SUFFIX);
	for (p = file; (p = strstr(p, "-rank")); p++)
		dash = p;
	if (!dash || dash == file || dash - file >= NAME_BYTES)
		return false;
	p = dash + strlen("-rank");
	if (end <= p || end - p >= (ptrdiff_t)sizeof(digits))
		return false;
	memcpy(digits, p, (size_t)(end - p));
	digits[end - p] = '\0';
	if (!units_parse_number(digits, 0, OPTINC_MAX_RANKS - 1, &value))
		return false;
	memcpy(name, file, (size_t)(dash - file));
	name[dash - file] = '\0';
	*rank = (unsigned int)value;
	return true;
}

static struct tensor *find_or_add(struct demo *demo, const char *name)
{
	struct tensor *tensors;
	size_t i;

	for (i = 0; i < demo->ntensors; i++) {
		if (!strcmp(demo->tensors[i].name, name))
			return &demo->tensors[i];
	}
	tensors = realloc(demo->tensors, (demo->ntensors + 1) * sizeof(*tensors));
	if (!tensors)
		return NULL;
	demo->tensors = tensors;
	memset(&tensors[i], 0, sizeof(tensors[i]));
	snprintf(tensors[i].name, sizeof(tensors[i].name), "%s", name);
	demo->ntensors++;
	return &tensors[i];
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

/* Which tensors are there, and how many ranks? */
static bool scan(struct demo *demo, char why[WHY_BYTES])
{
	DIR *dir = opendir(demo->directory);
	struct dirent *entry;

	if (!dir)
		return why_set(why, "cannot read %s: %s", demo->directory, strerror(errno));
	while ((entry = readdir(dir))) {
		char name[NAME_BYTES];
		unsigned int rank;

		if (!parse_name(entry->d_name, name, &rank))
			continue;
		if (!find_or_add(demo, name)) {
			why_set(why, "out of memory");
			closedir(dir);
			return false;
		}
		if (rank >= demo->nranks)
			demo->nranks = rank + 1;
	}
	closedir(dir);
	if (!demo->ntensors || demo->nranks < 2)
		return why_set(why,
			       "%s has no gradients of two or more ranks: files TENSOR-rankK" SUFFIX
			       " with little-endian float32 are looked for", demo->directory);
	qsort(demo->tensors, demo->ntensors, sizeof(*demo->tensors), compare);
	return true;
}

static bool read_file(const char *path, float **data, size_t *count, char why[WHY_BYTES])
{
	FILE *file = fopen(path, "rb");
	struct stat st;
	bool ok = false;

	if (!file || fstat(fileno(file), &st)) {
		why_set(why, "cannot read %s: %s", path, strerror(errno));
	} else if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size % 4) {
		why_set(why, "%s is not a file of float32: %lld bytes", path,
			(long long)st.st_size);
	} else {
		*count = (size_t)st.st_size / 4;
		*data = malloc((size_t)st.st_size);
		ok = *data && fread(*data, 4, *count, file) == *count;
		if (!ok)
			why_set(why, "cannot read all of %s", path);
	}
	if (file)
		fclose(file);
	return ok;
}

static bool load(struct demo *demo, struct tensor *t, char why[WHY_BYTES])
{
	char path[4096 + 256];
	unsigned int rank;

	for (rank = 0; rank < demo->nranks; rank++) {
		size_t count;

		snprintf(path, sizeof(path), "%s/%s-rank%u" SUFFIX, demo->directory, t->name, rank);
		if (!read_file(path, &t->input[rank], &count, why))
			return false;
		if (rank && count != t->count)
			return why_set(why, "%s has %zu elements, rank 0 has %zu", path,
				       count, t->count);
		t->count = count;
		t->output[rank] = ranks_shared(4 * count);
		if (!t->output[rank])
			break;
	}
	t->reduction = ranks_shared(demo->nranks * sizeof(*t->reduction));
	if (rank < demo->nranks || !t->reduction)
		return why_set(why, "out of memory for %s", t->name);
	return true;
}

bool tensors_load(struct demo *demo, char why[WHY_BYTES])
{
	size_t i;

	if (!scan(demo, why))
		return false;
	for (i = 0; i < demo->ntensors; i++) {
		if (!load(demo, &demo->tensors[i], why))
			return false;
	}
	return true;
}

static bool write_file(const char *path, const float *data, size_t count, char why[WHY_BYTES])
{
	FILE *file = fopen(path, "wb");
	bool ok = file && fwrite(data, 4, count, file) == count;

	if (file && fclose(file))
		ok = false;
	if (!ok)
		why_set(why, "cannot write %s: %s", path, strerror(errno));
	return ok;
}

bool tensors_write(const struct demo *demo, char why[WHY_BYTES])
{
	char path[4096 + 256];
	size_t i;

	if (mkdir(demo->write, 0777) && errno != EEXIST)
		return why_set(why, "cannot make %s: %s", demo->write, strerror(errno));
	for (i = 0; i < demo->ntensors; i++) {
		const struct tensor *t = &demo->tensors[i];

		snprintf(path, sizeof(path), "%s/%s-mean" SUFFIX, demo->write, t->name);
		if (!write_file(path, t->output[0], t->count, why))
			return false;
	}
	return true;
}

void tensors_free(struct demo *demo)
{
	unsigned int rank;
	size_t i;

	for (i = 0; i < demo->ntensors; i++) {
		for (rank = 0; rank < demo->nranks; rank++)
			free(demo->tensors[i].input[rank]);
	}
	free(demo->tensors);
}
