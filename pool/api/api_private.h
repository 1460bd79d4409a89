/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_API_API_PRIVATE_H
#define PARBAKE_POOL_API_API_PRIVATE_H

/* The API from inside: its state, and what its parts (pool/api/) call of each other. One thread: the loop's. */
#include "common/digest.h"
#include "common/limits.h"
#include "pool/api/api.h"

#define API_SECRET_BYTES 32

struct api {
	struct loop *loop;
	struct pool *pool;
	const struct config *config;
	struct metrics *metrics;
	struct api_monitoring *monitoring; /* monitoring.c: what /metrics shows */
	int64_t started_ns; /* CLOCK_MONOTONIC */
	bool draining;
	uint8_t secret[API_SECRET_BYTES]; /* token.c */
	struct relays *relays; /* port.c; NULL: not used yet */
	struct envd *envd; /* made by api_envd(), freed by api_free(); NULL: not used yet */
};

/* Who sent a request: the key found in X-API-Key or Authorization: Bearer; NULL where no keys
 * are configured. */
struct api_caller {
	const struct config_key *key;
};

/* {"code": status, "message": text}, as E2B's control plane has it. */
void api_error(struct http_request *rq, unsigned status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/*
 * @text made fit for a client: the paths of the host's own directories (store, state, cache, run)
 * become "…". Caller frees.
 */
char *api_hide(const char *text);
/* The HTTP status for an errno that the pool answered (pool_fn). */
unsigned api_status(int error);

/* monitoring.c: /metrics, GET /v1/pool. */
void api_monitoring_new(struct api *a);
/* The pool is gone, and with it the answers that pages waited for: those pages are dropped. */
void api_monitoring_drop(struct api *a);
void api_monitoring_free(struct api *a);
void api_metrics(struct api *a, struct http_request *rq);
void api_pool(struct api *a, struct http_request *rq);

/* token.c: the secret in the state directory, made where there is none. */
int api_token_open(struct api *a, struct err *err);
/* The token for the inside of the sandbox @id. */
void api_token_of(const struct api *a, const char *id, char ret[static DIGEST_TEXT_SIZE]);
/* Is @text (NULL: no) that token? Takes the same time whatever @text is. */
bool api_token_is(const struct api *a, const char *id, const char *text);

/* signature.c: what a signed address of a file says. */
struct api_signature {
	const char *id; /* of the sandbox */
	const char *path, *username; /* NULL: not said */
	const char *signature, *expiration; /* as they came; NULL: none */
	bool write;
};
/* Why the signature is not valid, in E2B's words; NULL: it is. @now_s: seconds since 1970. */
const char *api_signature_wrong(const struct api *a, const struct api_signature *s, int64_t now_s);

/* What a request for the inside of a sandbox names. */
struct api_inside {
	char id[LIMIT_NAME_SIZE];
	unsigned port;
	const char *path; /* without a /sandboxes/ID in front; borrowed */
	bool routed; /* its host name or a header says which sandbox, as SDKs do */
};
/* api.c: serve @rq, which is for what runs in @sb. */
void api_inside(struct api *a, struct pool_sandbox *sb, struct http_request *rq,
	const struct api_inside *to);
/* port.c: may @rq be carried to the port @to? False: it has been answered. */
bool api_port_open(struct api *a, struct http_request *rq, const struct api_inside *to);
/* Carry @rq to the port @port of @sb, and answer it. */
void api_port(struct api *a, struct pool_sandbox *sb, struct http_request *rq, unsigned port);
/* asleep.c: answer "not found", in E2B's words. */
void api_asleep_answer(struct http_request *rq, const char *id);
/*
 * Resume the sandbox @f where it is paused and requests are to wake it; @rq is served then. False:
 * it is not to be woken.
 */
bool api_wake(struct api *a, const struct pool_sandbox_info *f, struct http_request *rq,
	const struct api_inside *to);

/* control.c and its kin: false: no such route (404 is the caller's). */
bool api_control(struct api *a, const struct api_caller *who, struct http_request *rq);
/* envd.c: a request for what runs in @sb. False: no such route. */
bool api_envd(struct api *a, struct pool_sandbox *sb, struct http_request *rq,
	const struct api_inside *to);

#endif
