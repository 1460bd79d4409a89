/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's sockets. A unix socket that is there already belongs to another daemon where
 * somebody answers at it; otherwise a daemon that was killed has left it. Nothing that is not a
 * socket is ever removed.
 */
#include <libgen.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/sock.h"
#include "common/str.h"
#include "pool/daemon/daemon.h"

static int check_dir(const char *path, struct err *err)
{
	cleanup_free char *copy = str_dup(path);
	const char *dir = dirname(copy);
	struct stat st;
	int r = file_mkdir_p(dir, 0700, err);

	if (r < 0)
		return r;
	if (stat(dir, &st) < 0)
		return err_sys(err, errno, "%s", dir);
	if (st.st_mode & 022)
		return err_set(err, EPERM,
			"others may write into %s, so anyone could put a socket there; chmod it to "
			"0700, or "
			"choose another [pool] socket",
			dir);
	return 0;
}

/* What is left at @path goes, unless somebody answers there. */
static int clear_stale(const char *path, struct err *err)
{
	struct stat st;
	int fd;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : err_sys(err, errno, "%s", path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(err, EEXIST,
			"%s is there and no socket; remove it, or choose another "
			"[pool] socket",
			path);
	fd = sock_connect(path, NULL);
	if (fd >= 0) {
		close(fd);
		return err_set(err, EADDRINUSE,
			"another daemon answers at %s; `parbake pool status` asks it", path);
	}
	if (fd != -ECONNREFUSED && fd != -ENOENT)
		return err_sys(err, -fd, "ask who listens at %s", path);
	if (unlink(path) < 0 && errno != ENOENT)
		return err_sys(err, errno, "remove the stale socket %s", path);
	return 0;
}

int daemon_listen_unix(const char *path, struct err *err)
{
	int r = check_dir(path, err);

	if (!r)
		r = clear_stale(path, err);
	return r ? r : sock_listen(path, err);
}

int daemon_listen_tcp(const char *listen_at, struct err *err)
{
	struct sockaddr_storage addr;
	socklen_t len = 0;
	cleanup_fd int fd = -1;
	int on = 1;

	if (config_listen_addr(listen_at, &addr, &len))
		return err_set(err, EINVAL, "listen at %s: not an address and port", listen_at);
	fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(err, errno, "listen at %s", listen_at);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (addr.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&addr, len) < 0 || listen(fd, SOMAXCONN) < 0)
		return err_sys(err, errno, "listen at %s", listen_at);
	return steal_fd(&fd);
}

void daemon_unlink(const char *path)
{
	int other = sock_connect(path, NULL);

	if (other >= 0)
		close(other);
	else
		unlink(path);
}
