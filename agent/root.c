/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of openat2(2) with RESOLVE_IN_ROOT, so that no check of a path can be
 * raced. Files are opened with O_PATH first: that runs no driver's open, so a device or FIFO
 * is seen for what it is before anything happens.
 */
#include "agent/root.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "agent/agent.h"

int root_open(const char *path, int flags, mode_t mode)
{
	struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
		.mode = mode,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	long fd;

	do {
		fd = syscall(SYS_openat2, agent.root, path, &how, sizeof(how));
	} while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return fd < 0 ? -errno : (int)fd;
}

int root_open_file(const char *path)
{
	int at = root_open(path, O_PATH, 0), fd;
	char self[64];
	struct stat st;

	if (at < 0)
		return at;
	if (fstat(at, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(at);
		return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	}
	snprintf(self, sizeof(self), "/proc/self/fd/%d", at);
	fd = open(self, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		fd = -errno;
	close(at);
	return fd;
}

char *root_read(const char *path, size_t max, int *ret_err)
{
	int fd = root_open_file(path);
	size_t len = 0, room = 4096;
	char *text;

	if (fd < 0) {
		*ret_err = fd;
		return NULL;
	}
	text = agent_alloc(room);
	for (;;) {
		ssize_t n;

		if (len + 1 == room) {
			char *grown = agent_alloc(room * 2);

			memcpy(grown, text, len);
			free(text);
			text = grown;
			room *= 2;
		}
		n = read(fd, text + len, room - len - 1);
		if (n <= 0 || (len += (size_t)n) > max) {
			*ret_err = n < 0 ? -errno : n > 0 ? -EFBIG : 0;
			break;
		}
	}
	close(fd);
	if (*ret_err) {
		free(text);
		return NULL;
	}
	text[len] = '\0';
	return text;
}
