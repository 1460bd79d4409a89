/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_API_API_H
#define PARBAKE_POOL_API_API_H

#include "common/err.h"
#include "pool/config.h"
#include "pool/http/http.h"
#include "common/metrics.h"
#include "pool/pool.h"

/*
 * The HTTP API of the pool (docs/api.md): routes, keys, and what is behind each route. One thread:
 * the loop's.
 *
 * The control plane (pool/api/control.c and what it calls) is E2B's REST API, with errors
 * {"code":…, "message":…}. Requests for what is *in* a sandbox (pool/envd/, pool/relay/) come on
 * the same listener: for a host name PORT-ID.DOMAIN, with a header E2b-Sandbox-Id or X-Sandbox-Id,
 * or below /sandboxes/ID/.
 */
struct api;

/* All arguments are borrowed until api_free(). */
int api_new(struct loop *l, struct pool *p, const struct config *config, struct metrics *m,
	struct api **ret, struct err *err);
void api_configure(struct api *a, const struct config *config);
/* The daemon is about to end: from now on it answers that it is not ready. */
void api_drain(struct api *a);
/*
 * The pool has been freed. The ends of its guests' streams that are still in the loop may be called
 * after this.
 */
void api_pool_gone(struct api *a);
/* Free the pool and the HTTP server first: no request is open then. */
void api_free(struct api *a);
/* The http_server's handler; @user is the struct api. */
void api_handle(void *user, struct http_request *rq);

#endif
