/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests for what runs in a sandbox, where the sandbox does not run. Where requests are to wake
 * the sandbox (auto_resume), the request waits until the sandbox runs, and is then served as if it
 * had always run. Otherwise the client is answered in E2B's words, by which SDKs know that a
 * sandbox is paused or gone: 502, "The sandbox was not found".
 */
#include <stdlib.h>
#include <string.h>

#include "common/str.h"
#include "pool/api/api_private.h"

void api_asleep_answer(struct http_request *rq, const char *id)
{
	http_reply(rq, 502,
		json_pack("{s:s, s:s, s:i}", "sandboxId", id, "message",
			"The sandbox was not found", "code", 502));
}

struct waking {
	struct api *api;
	struct http_request *rq;
	struct api_inside to;
	char *path;
};

static void woken(void *user, struct pool_sandbox *sb, int error, const char *text)
{
	struct waking *w = user;
	struct http_request *rq = w->rq;

	if (http_is_gone(rq))
		http_reply(rq, 503, NULL);
	else if (!error && sb)
		api_inside(w->api, sb, rq, &w->to);
	else if (w->to.routed && (error == ENOENT || error == EBUSY))
		api_asleep_answer(rq, w->to.id);
	else
		api_error(rq, api_status(error ? error : EIO), "%s", text);
	http_go_on(rq);
	free(w->path);
	free(w);
}

bool api_wake(struct api *a, const struct pool_sandbox_info *f, struct http_request *rq,
	const struct api_inside *to)
{
	bool asleep = f->state == POOL_PAUSED || f->state == POOL_PAUSING;
	struct waking *w;

	if (!f->auto_resume || !(asleep || f->state == POOL_RESUMING))
		return false;
	w = malloc(sizeof(*w));
	if (!w)
		abort();
	*w = (struct waking){.api = a, .rq = rq, .to = *to, .path = str_dup(to->path)};
	w->to.path = w->path;
	http_wait(rq);
	pool_wake(a->pool, to->id, woken, w);
	return true;
}
