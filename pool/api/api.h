/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_API_API_H
#define PARBAKE_POOL_API_API_H

#include "common/err.h"
#include "pool/config.h"
#include "pool/http/http.h"
#include "common/metrics.h"
#include "pool/pool.h"

/*
 * The HTTP API (docs/api.md): routes, keys, and what is behind each route.
 *
 * Control (pool/api/control.c and what it calls) is E2B's REST, errors {"code":…, "message":…}. What is used *in* a
 * sandbox (pool/envd/) comes on the same listener for a host name PORT-ID.DOMAIN, or with a header
 * E2b-Sandbox-Id, or X-Sandbox-Id; or below /sandboxes/ID/.
 */
struct api;

/* All borrowed until api_free(). */
int api_new(struct loop *l, struct pool *p, const struct config *config, struct metrics *m,
	struct api **ret, struct err *err);
void api_configure(struct api *a, const struct config *config);
/* The daemon ends: not ready any more. */
void api_drain(struct api *a);
/* The pool has been freed; what the loop still has of its guests' ends may come. */
void api_pool_gone(struct api *a);
/* Free the pool and the server first: what is open has ended then. */
void api_free(struct api *a);
/* The http_server's handler; @user is the struct api. */
void api_handle(void *user, struct http_request *rq);

#endif
