/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets: every descriptor that arrives is close-on-exec, or closed. */
#include "common/sock.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/cleanup.h"

static int make_pair(int type, int ret[2], struct err *err)
{
	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ret) < 0)
		return err_sys(err, errno, "make a socket pair");
	return 0;
}

int sock_pair(int ret[2], struct err *err)
{
	return make_pair(SOCK_STREAM, ret, err);
}

int sock_pair_packets(int ret[2], struct err *err)
{
	return make_pair(SOCK_SEQPACKET, ret, err);
}

static int make_addr(const char *path, struct sockaddr_un *addr, struct err *err)
{
	*addr = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof(addr->sun_path))
		return err_set(err, ENAMETOOLONG, "socket %s: a path of more than %zu bytes", path,
			sizeof(addr->sun_path) - 1);
	memcpy(addr->sun_path, path, strlen(path) + 1);
	return 0;
}

/* A socket, and the address it is for. Returns the descriptor. */
static int make_socket(const char *path, int type, struct sockaddr_un *addr, struct err *err)
{
	int r = make_addr(path, addr, err), fd;

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	return fd < 0 ? err_sys(err, errno, "make a socket") : fd;
}

static int listen_at(const char *path, int type, struct err *err)
{
	struct sockaddr_un addr;
	cleanup_fd int fd = make_socket(path, type, &addr, err);

	if (fd < 0)
		return fd;
	/* the mode of a socket is decided at bind: 0600 from its first moment */
	if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return err_sys(err, errno, "listen at %s", path);
	if (chmod(path, 0600) < 0 || listen(fd, SOMAXCONN) < 0)
		return err_sys(err, errno, "listen at %s", path);
	return steal_fd(&fd);
}

int sock_listen(const char *path, struct err *err)
{
	return listen_at(path, SOCK_STREAM, err);
}

int sock_listen_packets(const char *path, struct err *err)
{
	return listen_at(path, SOCK_SEQPACKET, err);
}

static int connect_to(const char *path, int type, struct err *err)
{
	struct sockaddr_un addr;
	cleanup_fd int fd = make_socket(path, type, &addr, err);

	if (fd < 0)
		return fd;
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return err_sys(err, errno, "connect to %s", path);
	return steal_fd(&fd);
}

int sock_connect(const char *path, struct err *err)
{
	return connect_to(path, SOCK_STREAM, err);
}

int sock_connect_packets(const char *path, bool wait, struct err *err)
{
	return connect_to(path, SOCK_SEQPACKET | (wait ? 0 : SOCK_NONBLOCK), err);
}

int sock_check_peer(int fd, struct err *err)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return err_sys(err, errno, "ask who connected");
	if (cred.uid != geteuid() && cred.uid != 0)
		return err_set(err, EPERM, "the peer runs as user %u", (unsigned)cred.uid);
	return 0;
}

int sock_send_fds(int fd, const void *data, size_t len, const int *fds, size_t n_fds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(SOCK_FDS_MAX * sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = (void *)data, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (len == 0 || n_fds > SOCK_FDS_MAX)
		return -EINVAL;
	if (n_fds) {
		struct cmsghdr *cmsg;

		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, n_fds * sizeof(int));
	}
	while (iov.iov_len) {
		ssize_t n = sendmsg(fd, &msg, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		iov.iov_base = (char *)iov.iov_base + n;
		iov.iov_len -= (size_t)n;
		msg.msg_control = NULL; /* they went with the first byte */
		msg.msg_controllen = 0;
	}
	return 0;
}

ssize_t sock_recv_fds(int fd, void *buf, size_t len, int *fds, size_t *n_fds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(SOCK_FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf)};
	size_t room = *n_fds, got = 0;
	bool too_many = false;
	ssize_t n;

	do {
		n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg); cmsg; cmsg = CMSG_NXTHDR(&msg, cmsg)) {
		size_t count;

		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int one;

			memcpy(&one, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
			if (got < room) {
				fds[got++] = one;
			} else {
				close(one);
				too_many = true;
			}
		}
	}
	if (too_many || msg.msg_flags & MSG_CTRUNC) {
		for (size_t i = 0; i < got; i++)
			close(fds[i]);
		*n_fds = 0;
		return -EPROTO;
	}
	*n_fds = got;
	return n;
}
