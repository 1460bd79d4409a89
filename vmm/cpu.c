/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's CPU as a guest under KVM depends on it: vendor and feature flags as /proc/cpuinfo names
 * them, of the first CPU, sorted, so that the order a kernel prints them in does not matter.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/limits.h"
#include "vmm/monitor.h"

#define FLAGS_MAX 1024
#define CPUINFO_MAX (16 * MIB)

/* The value of the first line "@key\t: value" of @text, cut out of it; NULL: none. */
static char *value_of(char *text, const char *key)
{
	size_t len = strlen(key);

	for (char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, len) == 0 && (line[len] == '\t' || line[len] == ' ')) {
			char *value = strchr(line, ':');

			if (value)
				value[1 + strcspn(value + 1, "\n")] = '\0';
			return value ? value + 1 + strspn(value + 1, " ") : NULL;
		}
	}
	return NULL;
}

static int compare_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int monitor_cpu_features(char ret[static DIGEST_TEXT_SIZE], struct err *err)
{
	cleanup_free char *text = NULL;
	cleanup_digest struct digest *d = NULL;
	char *flags[FLAGS_MAX], *vendor, *list, *save = NULL;
	size_t len, n = 0;
	int r = file_read_all(AT_FDCWD, "/proc/cpuinfo", CPUINFO_MAX, &text, &len, err);

	if (r < 0)
		return r;
	list = value_of(text, "flags"); /* the later line first: each cuts the text behind it */
	vendor = value_of(text, "vendor_id");
	if (!vendor || !list)
		return err_set(err, ENODATA, "/proc/cpuinfo names no vendor or no flags");
	for (char *flag = strtok_r(list, " ", &save); flag && n < FLAGS_MAX;
		flag = strtok_r(NULL, " ", &save))
		flags[n++] = flag;
	qsort(flags, n, sizeof(*flags), compare_text);
	d = digest_new();
	digest_update(d, vendor, strlen(vendor) + 1);
	for (size_t i = 0; i < n; i++)
		digest_update(d, flags[i], strlen(flags[i]) + 1);
	digest_final(d, ret);
	return 0;
}
