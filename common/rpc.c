/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between processes. One message is one packet, so a reader never waits for the rest of a
 * message, and a message that is too long is lost without harm to the next one. Both ends run as
 * one user; neither trusts that the other is of the same version.
 */
#include "common/rpc.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/sock.h"

#define TEXT_MAX 8192 /* bytes of a failure's text, each of which may be escaped as six */

int rpc_text(const json_t *obj, char **ret, struct err *err)
{
	char *text = json_text(obj);

	if (strlen(text) > LIMIT_RPC_BYTES) {
		free(text);
		return err_set(err, EMSGSIZE, "a message of more than %lu bytes", LIMIT_RPC_BYTES);
	}
	*ret = text;
	return 0;
}

int rpc_send(int sock, const json_t *obj, const int *fds, size_t n_fds)
{
	int64_t deadline = clock_deadline(LIMIT_RPC_SEND_MS);
	const struct timespec pace = {.tv_nsec = 1000000};
	struct pollfd pfd = {.fd = sock, .events = POLLOUT};
	cleanup_free char *text = NULL;
	int r = rpc_text(obj, &text, NULL);

	while (r == 0) {
		r = sock_send_fds(sock, text, strlen(text), fds, n_fds);
		/* the second: descriptors that others of this user sent and nobody took yet (unix(7)) */
		if ((r != -EAGAIN && r != -ETOOMANYREFS) || clock_left_ms(deadline) == 0)
			return r;
		if (r == -EAGAIN)
			poll(&pfd, 1, clock_left_ms(deadline));
		else
			nanosleep(&pace, NULL);
		r = 0;
	}
	return r;
}

ssize_t rpc_receive(int sock, char *buf, int *fds, size_t *n_fds)
{
	size_t room = *n_fds;
	ssize_t n;

	/*
	 * where the other end closed with something unread, the kernel says so once, before its
	 * last message
	 */
	for (int i = 0; i < 2; i++) {
		*n_fds = room;
		n = sock_recv_fds(sock, buf, RPC_BUFFER, fds, n_fds);
		if (n < 0)
			*n_fds = 0;
		if (n != -ECONNRESET)
			break;
	}
	if (n <= (ssize_t)LIMIT_RPC_BYTES)
		return n == -ECONNRESET ? 0 : n;
	rpc_close_fds(fds, *n_fds);
	*n_fds = 0;
	return -EPROTO;
}

void rpc_close_fds(int *fds, size_t n_fds)
{
	for (size_t i = 0; i < n_fds; i++)
		close_fd(&fds[i]);
}

void rpc_put_failure(json_t *obj, int error, const char *text)
{
	if (json_object_set_new(obj, "errno", json_integer(error)) < 0 ||
		json_object_set_new(obj, "text", json_lossy(text, strnlen(text, TEXT_MAX))) < 0)
		abort(); /* no memory */
}

json_t *rpc_failure(uint64_t n, int error, const char *text)
{
	json_t *obj = json_pack("{s:I, s:b}", "n", (json_int_t)n, "ok", 0);

	if (!obj)
		abort(); /* no memory */
	rpc_put_failure(obj, error, text);
	return obj;
}

int rpc_check(const json_t *answer, struct err *err)
{
	const char *text;
	uint64_t code;

	if (json_is_true(json_object_get(answer, "ok")))
		return 0;
	if (json_get_u64(answer, "errno", 1, 4095, &code, NULL) < 0 ||
		json_get_string(answer, "text", &text, NULL) < 0)
		return err_set(err, EPROTO, "an answer that makes no sense");
	return err_set(err, (int)code, "%s", text);
}
