/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that go over to another protocol. MHD hands out the socket, and the bytes that it has
 * read too far. For MHD the connection stays there, suspended, until MHD is told that it is closed;
 * that has to happen before MHD stops.
 */
#include "common/clock.h"
#include "pool/http/http_private.h"

static void begin(void *cls, struct MHD_Connection *mhd, void *rq_cls, const char *extra,
	size_t extra_len, MHD_socket fd, struct MHD_UpgradeResponseHandle *handle)
{
	struct http_request *rq = cls;

	(void)mhd;
	(void)rq_cls;
	rq->upgraded = handle;
	if (rq->conn) {
		http_hangup_forget(rq->conn); /* its owner sees its end now */
		rq->conn->deadline = CLOCK_NEVER;
	}
	if (rq->s->stopping)
		http_upgrade_cut(rq);
	else
		rq->upgrade->begin(rq->upgrade_user, fd, extra, extra_len);
}

struct MHD_Response *http_upgrade_response(struct http_request *rq)
{
	return MHD_create_response_for_upgrade(begin, rq);
}

void http_upgrade(struct http_request *rq, const struct http_upgrade_ops *ops, void *user)
{
	if (rq->answer != HTTP_NO_ANSWER)
		return;
	rq->answer = HTTP_UPGRADE;
	rq->status = MHD_HTTP_SWITCHING_PROTOCOLS;
	rq->upgrade = ops;
	rq->upgrade_user = user;
	if (rq->conn)
		http_resume(rq);
}

void http_upgrade_close(struct http_request *rq)
{
	struct MHD_UpgradeResponseHandle *handle = rq->upgraded;

	rq->upgraded = NULL;
	if (handle)
		MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
	http_kick(rq->s);
}

void http_upgrade_cut(struct http_request *rq)
{
	if (!rq->upgraded)
		return;
	rq->upgrade->cut(rq->upgrade_user);
	http_upgrade_close(rq);
}
