/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_EXT4_IMAGES_H
#define PARBAKE_TESTS_EXT4_IMAGES_H

/* Images in a directory of the test's own, and what e2fsprogs say of them. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "tests/unit/tap.h"

static char dir[] = "/tmp/parbake-ext4-XXXXXX";

/* What a command prints (both streams) in fresh memory; its status in @ret_status. */
__attribute__((format(printf, 2, 3))) static char *run(int *ret_status, const char *fmt, ...)
{
	char *cmd, *out = NULL;
	size_t len;
	va_list args;
	FILE *from, *to = open_memstream(&out, &len);
	int c;

	va_start(args, fmt);
	if (vasprintf(&cmd, fmt, args) < 0)
		abort();
	va_end(args);
	from = popen(cmd, "re");
	while ((c = getc(from)) != EOF)
		putc(c, to);
	c = pclose(from);
	fclose(to);
	free(cmd);
	if (ret_status)
		*ret_status = WIFEXITED(c) ? WEXITSTATUS(c) : -1;
	return out;
}

static int image_file(const char *name)
{
	cleanup_free char *path = str_printf("%s/%s", dir, name);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0)
		abort();
	return fd;
}

__attribute__((unused)) static void is_clean(const char *name)
{
	int status;
	cleanup_free char *out = run(&status, "e2fsck -fn %s/%s 2>&1", dir, name);

	if (!ok(status == 0, "e2fsck -fn %s", name))
		printf("# %s\n", out);
}

__attribute__((unused)) static char *debugfs(const char *name, const char *request)
{
	return run(NULL, "debugfs -R '%s' %s/%s 2>&1", request, dir, name);
}

__attribute__((unused)) static void debugfs_has(
	const char *name, const char *request, const char *part)
{
	cleanup_free char *out = debugfs(name, request);

	has_str(out, part, "debugfs %s: %s", request, part);
}

#endif
