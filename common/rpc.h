/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_RPC_H
#define PARBAKE_COMMON_RPC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "common/json.h"
#include "common/limits.h"

/*
 * Messages between parbake's own processes: one JSON object each, with descriptors beside it, over a unix
 * socket that keeps messages apart (sock_pair_packets() and its kin).
 *
 *     request   {"op":OP, "n":N, …}
 *     answer    {"n":N, "ok":true, …}  or  {"n":N, "ok":false, "errno":E, "text":"…"}
 *     event     {"event":NAME, …}, which nobody asked for
 *
 * N counts up on each connection, so that an answer which comes too late is not taken for the answer to a later
 * request. What each pair of processes asks of each other stands in its own header (pool/keeper/, restore/pager/),
 * and so does how the two ends tell that they are of different versions. Any thread; one at a time for a socket.
 */
#define RPC_BUFFER (LIMIT_RPC_BYTES + 1) /* what rpc_receive() wants, one byte more than may come */

/* The text of a message, fit to be sent: -EMSGSIZE where it is longer than LIMIT_RPC_BYTES. Caller frees. */
int rpc_text(const json_t *obj, char **ret, struct err *err);
/*
 * Send @obj with @n_fds descriptors, which stay the caller's. Where the other end does not read, and
 * @sock does not block, this waits LIMIT_RPC_SEND_MS at most, then -EAGAIN.
 */
int rpc_send(int sock, const json_t *obj, const int *fds, size_t n_fds);
/*
 * Take one message into @buf (RPC_BUFFER bytes). Returns its length; 0 where the other end is closed; -EAGAIN where
 * nothing has come and @sock does not block; -EPROTO where it is too long, or brings more than *@n_fds descriptors (at most
 * SOCK_FDS_MAX). *@n_fds becomes their number, and those in @fds are the caller's.
 */
ssize_t rpc_receive(int sock, char *buf, int *fds, size_t *n_fds);
/* Close them, and leave -1 in their places. */
void rpc_close_fds(int *fds, size_t n_fds);

/*
 * The answer that request @n failed. Bytes of @text that are not UTF-8 are replaced, and a long
 * text is cut. New reference.
 */
json_t *rpc_failure(uint64_t n, int error, const char *text);
/* Put @error and @text into @obj, an answer or event that reports a failure. */
void rpc_put_failure(json_t *obj, int error, const char *text);
/*
 * 0 where @answer reports success. Otherwise the -errno and text that it has; -EPROTO where it is
 * not a valid answer.
 */
int rpc_check(const json_t *answer, struct err *err);

#endif
