/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control plane: its routes, and the create. The paths are those of E2B's public description.
 * For any other path api_control() returns false, and its caller answers 404.
 */
#include <stdio.h>
#include <string.h>

#include "pool/api/control_private.h"

static void created(void *user, struct pool_sandbox *sb, int error, const char *text)
{
	struct control_call *c = user;
	struct pool_sandbox_info f;

	if (error == ENOENT) {
		api_error(c->rq, 404, "template \"%.64s\" not found: %s", c->id, text);
	} else if (error || !sb) {
		api_error(c->rq, api_status(error ? error : EIO), "%s", text);
	} else {
		pool_sandbox_info(sb, &f);
		http_reply(c->rq, 201, control_sandbox(c->api, &f));
	}
	control_call_free(c);
}

static void create_read(void *user, struct http_request *rq, const char *body, size_t len)
{
	struct control_call *c = user;
	cleanup_control_create struct control_create body_of = {0};
	struct pool_create spec;
	struct err err;

	if (control_create_parse(body, len, &body_of, &err) < 0) {
		api_error(rq, 400, "%s", err.text);
		control_call_free(c);
		return;
	}
	if (c->key[0] && body_of.inside) {
		api_error(rq, 403,
			"network.allowOut: %.200s leads to the host or its networks; holders of a "
			"key "
			"may allow public hosts alone",
			body_of.inside);
		control_call_free(c);
		return;
	}
	snprintf(c->id, sizeof(c->id), "%s", body_of.template);
	spec = (struct pool_create){
		.template = body_of.template,
		.key = c->key,
		.timeout_ms = body_of.timeout_ms,
		.metadata = body_of.metadata,
		.env = body_of.env,
		.auto_pause = body_of.auto_pause,
		.auto_resume = body_of.auto_resume,
		.guarded_ports = body_of.guarded_ports,
		.mask_host = body_of.mask_host,
		.allow = body_of.allow,
		.n_allow = body_of.n_allow,
	};
	pool_create(c->api->pool, &spec, created, c);
}

/* "/sandboxes/ID…": the id into @id; what is behind it, or NULL where that is no id. */
static const char *split_id(const char *path, const char *prefix, char id[static LIMIT_NAME_SIZE])
{
	size_t n = strlen(prefix), len;

	if (strncmp(path, prefix, n))
		return NULL;
	len = strcspn(path + n, "/");
	if (!len || len >= LIMIT_NAME_SIZE)
		return NULL;
	memcpy(id, path + n, len);
	id[len] = '\0';
	return path + n + len;
}

/* The second edition of some routes: /v2/sandboxes/ID/connect needs no body, and /logs has the entries alone. */
static bool second(struct api *a, const struct api_caller *who, struct http_request *rq)
{
	char id[LIMIT_NAME_SIZE];
	const char *rest = split_id(http_path(rq), "/v2/sandboxes/", id);

	if (rest && !strcmp(rest, "/connect"))
		return control_one(a, who, rq, id, "/v2/connect");
	if (rest && !strcmp(rest, "/logs"))
		return control_one(a, who, rq, id, "/v2/logs");
	return false;
}

bool api_control(struct api *a, const struct api_caller *who, struct http_request *rq)
{
	const char *path = http_path(rq), *method = http_method(rq), *rest;
	bool get = !strcmp(method, "GET");
	char id[LIMIT_NAME_SIZE];

	if ((!strcmp(path, "/sandboxes") || !strcmp(path, "/v2/sandboxes")) &&
		!strcmp(method, "POST")) {
		http_collect(rq, LIMIT_HTTP_BODY, create_read, control_call_free,
			control_call_new(a, who, rq, ""));
		return true;
	}
	if (get && (!strcmp(path, "/sandboxes") || !strcmp(path, "/v2/sandboxes"))) {
		control_list(a, who, rq, path[1] == 'v');
		return true;
	}
	if (get && !strcmp(path, "/snapshots")) {
		control_snapshots(a, who, rq);
		return true;
	}
	if (!strncmp(path, "/templates", 10))
		return control_templates(a, who, rq, path + 10);
	if (!strncmp(path, "/v2/templates", 13) && (get || !strcmp(method, "PATCH")))
		return control_templates(a, who, rq, path + 13);
	rest = split_id(path, "/sandboxes/", id);
	if (rest)
		return control_one(a, who, rq, id, rest);
	return second(a, who, rq);
}
