/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_API_CONTROL_PRIVATE_H
#define PARBAKE_POOL_API_CONTROL_PRIVATE_H

/* The control plane: what its parts (pool/api/) share. */

#include "common/limits.h"
#include "pool/api/api_private.h"

/*
 * SDKs decide by this version what they may ask for. From 0.4.0 on they send no user where their
 * caller named none.
 */
#define CONTROL_ENVD_VERSION                                                                       \
	"0.6.4" /* metadata of files, entries in events of a watched directory */
#define CONTROL_CLIENT "parbake"
#define CONTROL_PAGE 100 /* sandboxes of a page, at most and unless asked otherwise */

/* ---- bodies (body.c) ---------------------------------------------------------------- A known
 * field with a wrong value is refused by name. A field that is not known is ignored, since SDKs
 * add fields. null is the same as absent. -EINVAL with a message for the client. An empty body
 * is an empty object, where nothing is required. */

struct control_create {
	json_t *body; /* the rest is borrowed from it */
	const char *template;
	uint64_t timeout_ms; /* 0: absent */
	const json_t *metadata, *env; /* NULL: absent */
	bool auto_pause, auto_resume, guarded_ports;
	const char *mask_host; /* NULL: absent */
	struct proxy_rule *allow; /* NULL: none */
	size_t n_allow;
	const char *inside; /* the first host with private_ok, as it was written; NULL: none */
};
int control_create_parse(const char *text, size_t len, struct control_create *ret, struct err *err);
void control_create_clear(struct control_create *c);
#define cleanup_control_create __attribute__((__cleanup__(control_create_clear)))

/*
 * The bodies of requests about one sandbox. A field that is absent keeps the value that the caller
 * has set.
 */
struct control_change {
	bool has_timeout;
	uint64_t timeout_ms;
	int auto_pause; /* -1: absent */
	uint64_t count;
	char name[2 * LIMIT_NAME_SIZE]; /* "": absent */
	int replace; /* whether a template of that name is replaced; absent: no */
};
/* {"public": …}; *@ret is @absent where the field is absent. */
int control_public_parse(const char *text, size_t len, bool absent, bool *ret, struct err *err);
/* @timeout: the name of the field with the seconds ("timeout", "duration"); NULL: none. */
int control_change_parse(const char *text, size_t len, const char *timeout, bool required,
	struct control_change *ret, struct err *err);

/* ---- lists (list.c) ------------------------------------------------------------------ */

enum control_states { CONTROL_RUNNING = 1, CONTROL_PAUSED = 2 };

struct control_filter {
	unsigned states;
	json_t *metadata; /* object of strings; NULL: any */
	const char *template; /* NULL: any */
	int64_t started_after_ms;
	bool oldest_first;
	unsigned limit; /* 0: none */
	bool has_after; /* begin after the sandbox after_ms, after_id */
	int64_t after_ms;
	char after_id[LIMIT_NAME_SIZE];
};
/* "a=b&c=d", keys and values percent-encoded: a new object. -EINVAL. */
int control_metadata_parse(const char *text, json_t **ret, struct err *err);
int control_token_parse(
	const char *text, int64_t *ret_ms, char ret_id[static LIMIT_NAME_SIZE], struct err *err);
char *control_token_make(int64_t ms, const char *id);
bool control_filter_match(const struct control_filter *f, const struct pool_sandbox_info *info);
void control_list(struct api *a, const struct api_caller *who, struct http_request *rq, bool paged);

/* ---- answers (render.c) ------------------------------------------------------------- */

/* May @who see and touch what belongs to @key? */
bool control_owns(const struct api_caller *who, const char *key);
/* "name", or "name:tag". Caller frees. */
char *control_template_id(const char *name, const char *tag);
json_t *control_sandbox(const struct api *a, const struct pool_sandbox_info *f);
/*
 * A sandbox as an item of a list: the text of its JSON, which is kept with @sb until one of its values changes. @f: of @sb,
 * as it is now.
 */
const char *control_listed_text(struct pool_sandbox *sb, const struct pool_sandbox_info *f);
json_t *control_detail(const struct api *a, const struct pool_sandbox_info *f);
json_t *control_template(const struct pool_template_info *t);

/* ---- one sandbox (sandbox.c, usage.c) ---------------------------------------- */

/* False: no such route. @rest: behind /sandboxes/ID, "" or with its '/'. */
bool control_one(struct api *a, const struct api_caller *who, struct http_request *rq,
	const char *id, const char *rest);
void control_metrics(struct api *a, struct http_request *rq, const char *id);
void control_logs(struct api *a, struct http_request *rq, const char *id, bool v2);
/* Of /templates and /snapshots. */
bool control_templates(
	struct api *a, const struct api_caller *who, struct http_request *rq, const char *rest);
void control_snapshots(struct api *a, const struct api_caller *who, struct http_request *rq);

/* A request that waits for the pool's answer. */
struct control_call {
	struct api *api;
	struct http_request *rq;
	char id[2 * LIMIT_NAME_SIZE]; /* a sandbox's, a snapshot's, or a template's NAME:TAG */
	char key[LIMIT_NAME_SIZE];
	bool v2, was_running, named; /* named: the snapshot it makes */
	/* of a fork */
	unsigned count;
	json_t *results;
	bool some; /* some fork has succeeded */
	int error; /* of the last fork that failed */
	char text[ERR_TEXT_MAX];
};
struct control_call *control_call_new(
	struct api *a, const struct api_caller *who, struct http_request *rq, const char *id);
void control_call_free(void *call); /* a struct control_call */
/* "No such sandbox", in the words that clients know. */
void control_not_found(struct http_request *rq, const char *id);

#endif
