/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_SOCK_H
#define PARBAKE_COMMON_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"

/* Unix sockets (of streams, where nothing else is said), close-on-exec, and descriptors passed over them. */

#define SOCK_FDS_MAX 8

/* A connected pair. */
int sock_pair(int ret[2], struct err *err);
/* Listen at @path (mode 0600; a stale file is the caller's to remove). Returns the descriptor. */
int sock_listen(const char *path, struct err *err);
/* Connect to @path. Returns the descriptor or -errno (-ECONNREFUSED: nobody listens). */
int sock_connect(const char *path, struct err *err);
/* The same three of sockets that keep messages apart (SOCK_SEQPACKET), with backlog as the kernel allows. */
int sock_pair_packets(int ret[2], struct err *err);
int sock_listen_packets(const char *path, struct err *err);
/*
 * Without @wait this fails with -EAGAIN where the listener's queue is full, and the descriptor is
 * non-blocking.
 */
int sock_connect_packets(const char *path, bool wait, struct err *err);
/* -EPERM unless the peer runs as this user or root. */
int sock_check_peer(int fd, struct err *err);
/* Send @len bytes (≥ 1) with @n_fds descriptors, all of it. */
int sock_send_fds(int fd, const void *data, size_t len, const int *fds, size_t n_fds);
/*
 * One recvmsg(2): returns the bytes read (0: the peer closed) or -errno. At most *@n_fds
 * descriptors are taken (close-on-exec, owned by the caller), any more are closed and the call
 * fails with -EPROTO. *@n_fds is set to their number. Where a message is longer than @len, the rest
 * of it is lost: offer a byte more than may come.
 */
ssize_t sock_recv_fds(int fd, void *buf, size_t len, int *fds, size_t *n_fds);

#endif
