/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process's memory, from /proc/PID/smaps (Documentation/filesystems/proc.rst), added up; mappings
 * of a memfd count as guest memory.
 */
#include "common/smaps.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/str.h"

#define SMAPS_MAX (64 * MIB)

/* "7f00-7f10 rw-p 00000000 00:01 5 /memfd:parbake-memory (deleted)": a mapping's head? */
static bool is_head(const char *line)
{
	size_t n = strspn(line, "0123456789abcdef");

	return n > 0 && line[n] == '-';
}

int smaps_parse(const char *text, struct smaps *ret, struct err *err)
{
	struct smaps s = {0};
	bool guest = false, any = false;

	for (const char *line = text, *next; *line; line = next) {
		size_t len = strcspn(line, "\n");
		unsigned long long kib;
		char key[32];

		next = line + len + (line[len] == '\n');
		if (is_head(line)) {
			guest = memmem(line, len, " /memfd:", 8) != NULL;
			any = true;
			continue;
		}
		if (!any)
			return err_set(err, EINVAL, "smaps: it does not begin with a mapping");
		if (sscanf(line, "%31[A-Za-z_]: %llu kB", key, &kib) != 2)
			continue; /* VmFlags and what newer kernels say */
		if (!strcmp(key, "Rss")) {
			s.rss += kib * KIB;
			s.guest_rss += guest ? kib * KIB : 0;
		} else if (!strcmp(key, "Pss")) {
			s.pss += kib * KIB;
			s.guest_pss += guest ? kib * KIB : 0;
		} else if (!strcmp(key, "Private_Clean") || !strcmp(key, "Private_Dirty")) {
			s.private_bytes += kib * KIB;
			s.guest_private += guest ? kib * KIB : 0;
		}
	}
	*ret = s;
	return 0;
}

int smaps_read(int pid, struct smaps *ret, struct err *err)
{
	cleanup_free char *path = str_printf("/proc/%d/smaps", pid);
	cleanup_free char *text = NULL;
	int r = file_read_all(AT_FDCWD, path, SMAPS_MAX, &text, NULL, err);

	if (r == -ENOENT)
		return -ESRCH;
	return r < 0 ? r : smaps_parse(text, ret, err);
}

/* "RssAnon:	    1234 kB" of proc(5). 0: no such line. */
static uint64_t status_bytes(const char *text, const char *key)
{
	const char *at = strstr(text, key);
	unsigned long long kib;

	return at && sscanf(at + strlen(key), " %llu kB", &kib) == 1 ? kib * KIB : 0;
}

int smaps_read_rough(int pid, struct smaps *ret, struct err *err)
{
	cleanup_free char *path = str_printf("/proc/%d/status", pid);
	cleanup_free char *text = NULL;
	uint64_t own, memfd;
	int r = file_read_all(AT_FDCWD, path, 64 * KIB, &text, NULL, err);

	if (r < 0)
		return r == -ENOENT ? -ESRCH : r;
	own = status_bytes(text, "\nRssAnon:");
	memfd = status_bytes(text, "\nRssShmem:");
	*ret = (struct smaps){.rss = status_bytes(text, "\nVmRSS:"),
		.pss = own + memfd,
		.private_bytes = own,
		.guest_rss = own + memfd,
		.guest_pss = own + memfd,
		.guest_private = own};
	return 0;
}
