/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_ENVD_ENVD_H
#define PARBAKE_POOL_ENVD_ENVD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/json.h"
#include "pool/http/http.h"
#include "common/loop.h"
#include "vmm/guest/guest.h"

/*
 * envd: using a sandbox over HTTP, that is its commands, files and code. The routes are those that
 * the ecosystem's SDKs speak (E2B's envd and code interpreter, with JSON) and a plain one for
 * people, POST /exec. All requests are carried to the sandbox's agent as frames, in the loop's
 * thread; nothing blocks, nothing is gathered without a bound.
 *
 * The pool is reached by the functions of struct envd_ops alone, so that a test needs no pool.
 */
struct envd;

/* A sandbox; borrowed until the caller returns to the loop. */
struct envd_target {
	struct guest *guest; /* NULL: it does not run */
	const char *state; /* in words, for errors */
	const char *user; /* of the SDKs' calls that name none; "", NULL: root */
	const json_t *template_env; /* array of "K=V", or NULL */
	const json_t *env; /* object of strings, or NULL */
	uint64_t exec_timeout_ms, output_bytes, exec_memory_bytes, exec_pids; /* 0: the default */
};

struct envd_ops {
	/* false: no such sandbox */
	bool (*find)(void *user, const char *id, struct envd_target *ret);
	/* something was queued for the guest of sandbox @id: let the loop write it */
	void (*kick)(void *user, const char *id);
};

/* @ops and @user are borrowed until envd_free(). Aborts without memory. */
struct envd *envd_new(struct loop *l, const struct envd_ops *ops, void *user);
/* No request may be open any more (free the http server first). Guests may still be open: the
 * commands in them go on and are forgotten here. */
void envd_free(struct envd *w);

/* Answer @rq, a request for @path in the sandbox @id. @routed: it came by the sandbox's own host
 * name or a header, so that the answer for a sandbox that does not run is in E2B's words. false:
 * no such route; nothing was done. */
bool envd_handle(
	struct envd *w, const char *id, struct http_request *rq, const char *path, bool routed);

#endif
