/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bind mounts' sources stay open, and are written in place: their inodes are
 * what is bound.
 */
#include "agent/etc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/agent.h"

#define ETC_RUN "/run/parbake"
#define ETC_HOSTNAME "parbake"

static int etc_id = -1, etc_name = -1;

static int etc_write(int fd, const char *text)
{
	size_t len = strlen(text);

	if (fd < 0)
		return -ENOENT;
	if (pwrite(fd, text, len, 0) != (ssize_t)len || ftruncate(fd, (off_t)len) < 0)
		return -errno;
	return 0;
}

/* Bind @source over @name in /etc; a link there is left alone. */
static void etc_bind(int etc, const char *source, const char *name)
{
	struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
	char path[64];
	struct stat st;
	int fd;

	fd = openat(etc, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd >= 0)
		close(fd);
	fd = (int)syscall(SYS_openat2, etc, name, &how, sizeof(how));
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		agent_log("/etc/%s is not a file: left as it is", name);
		if (fd >= 0)
			close(fd);
		return;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (mount(source, path, NULL, MS_BIND, NULL) < 0)
		agent_log("cannot bind over /etc/%s: %s", name, strerror(errno));
	close(fd);
}

static int etc_file(const char *path, const char *text)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

	if (fd < 0 || etc_write(fd, text) < 0)
		agent_log("cannot write %s: %s", path, strerror(errno));
	return fd;
}

void etc_init(void)
{
	static const char hosts[] = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n";
	char id[40] = "";
	uint8_t random[16] = {0};
	struct stat st;
	int etc, fd;

	agent_random(random, sizeof(random));
	for (unsigned i = 0; i < 16; i++)
		snprintf(id + 2 * i, 3, "%02x", random[i]);
	strcat(id, "\n");
	mkdir(ETC_RUN, 0755);
	etc_id = etc_file(ETC_RUN "/machine-id", id);
	etc_name = etc_file(ETC_RUN "/hostname", ETC_HOSTNAME "\n");
	sethostname(ETC_HOSTNAME, strlen(ETC_HOSTNAME));
	if (!agent.rooted)
		return;
	mkdir("/etc", 0755);
	etc = open("/etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (etc < 0) {
		agent_log("the root's /etc is not a directory: %s", strerror(errno));
		return;
	}
	etc_bind(etc, ETC_RUN "/machine-id", "machine-id");
	etc_bind(etc, ETC_RUN "/hostname", "hostname");
	if (fstatat(etc, "hosts", &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) {
		fd = etc_file(ETC_RUN "/hosts", hosts);
		if (fd >= 0)
			close(fd);
		etc_bind(etc, ETC_RUN "/hosts", "hosts");
	}
	close(etc);
}

int etc_machine_id(const char *id)
{
	char line[40];

	snprintf(line, sizeof(line), "%.32s\n", id);
	return etc_write(etc_id, line);
}

int etc_hostname(const char *name)
{
	char line[80];
	int res;

	snprintf(line, sizeof(line), "%.63s\n", name);
	if (sethostname(name, strlen(name)) < 0)
		return -errno;
	res = etc_write(etc_name, line);
	return res;
}
