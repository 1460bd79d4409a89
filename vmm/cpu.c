/* SPDX-License-Identifier: Apache-2.0 */
/* The host CPU's features as one digest, whatever the order in which the kernel prints them. */
#include "vmm/cpu.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/limits.h"

#define FLAGS_MAX 1024

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int machine_cpu_features(
	enum machine_accel accel, char ret[static DIGEST_TEXT_SIZE], struct err *err)
{
	cleanup_free char *text = NULL;
	cleanup_digest struct digest *d = digest_new();
	char *flags[FLAGS_MAX], *line, *save = NULL;
	size_t len, n = 0;
	int rc;

	ret[0] = '\0';
	if (accel != MACHINE_KVM)
		return 0;
	rc = file_read_all(AT_FDCWD, "/proc/cpuinfo", 16 * MIB, &text, &len, err);
	if (rc)
		return rc;
	line = strstr(text, "\nflags");
	line = line ? strchr(line, ':') : NULL;
	if (!line)
		return err_set(err, ENODATA, "/proc/cpuinfo lists no flags");
	line++;
	line[strcspn(line, "\n")] = '\0';
	for (char *w = strtok_r(line, " \t", &save); w && n < FLAGS_MAX;
		w = strtok_r(NULL, " \t", &save))
		flags[n++] = w;
	qsort(flags, n, sizeof(*flags), compare);
	for (size_t i = 0; i < n; i++) {
		digest_update(d, flags[i], strlen(flags[i]));
		digest_update(d, " ", 1);
	}
	digest_final(d, ret);
	return 0;
}
