/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates and snapshots: both are listed. A snapshot can be removed, and so can a template that a
 * key has published.
 */
#include <string.h>

#include "pool/api/control_private.h"

static void templates_list(struct api *a, struct http_request *rq)
{
	json_t *list = json_array();
	struct pool_template_info t;

	for (unsigned i = 0; pool_template(a->pool, i, &t); i++) {
		if (*t.digest)
			json_array_append_new(list, control_template(&t));
	}
	http_reply(rq, 200, list);
}

/* May holders of @of ("": who runs the pool) see what belongs to @key? */
static bool owns(const char *of, const json_t *record)
{
	const char *key = json_string_value(json_object_get(record, "key"));

	return !*of || !strcmp(of, key ? key : "");
}

/* The record of a snapshot that @of's holders may see; NULL: none. New reference. */
static json_t *snapshot_find(struct api *a, const char *of, const char *id)
{
	cleanup_json json_t *all = pool_snapshots(a->pool);

	for (size_t i = 0; i < json_array_size(all); i++) {
		json_t *one = json_array_get(all, i);

		if (!strcmp(json_string_value(json_object_get(one, "id")), id) && owns(of, one))
			return json_incref(one);
	}
	return NULL;
}

static void snapshot_removed(void *user, struct pool_sandbox *sb, int error, const char *text)
{
	struct control_call *c = user;

	(void)sb;
	if (error)
		api_error(c->rq, api_status(error), "%s", text);
	else
		http_reply(c->rq, 204, NULL);
	control_call_free(c);
}

static void template_remove(
	struct api *a, const struct api_caller *who, struct http_request *rq, const char *id)
{
	const char *key = who->key ? who->key->name : "";
	cleanup_json json_t *snapshot = snapshot_find(a, key, id);
	struct control_call *c = control_call_new(a, who, rq, id);

	if (snapshot)
		pool_snapshot_remove(a->pool, id, snapshot_removed, c);
	else
		pool_template_remove(a->pool, id, key, snapshot_removed, c);
}

static void template_unknown(struct http_request *rq, const char *ref)
{
	api_error(rq, 404, "template \"%.64s\" doesn't exist", ref);
}

static void template_show(struct api *a, struct http_request *rq, const char *ref)
{
	struct pool_template_info t;

	if (pool_template_named(a->pool, ref, &t))
		http_reply(rq, 200, control_template(&t));
	else
		template_unknown(rq, ref);
}

/* Which template a name leads to: what clients ask before they make one of that name. */
static void alias_show(struct api *a, struct http_request *rq, const char *ref)
{
	struct pool_template_info t;
	cleanup_free char *id = NULL;

	if (!pool_template_named(a->pool, ref, &t)) {
		template_unknown(rq, ref);
		return;
	}
	id = control_template_id(t.name, t.tag);
	http_reply(rq, 200, json_pack("{s:s, s:b}", "templateID", id, "public", 1));
}

/* Whether others may see it. A template of the store is everybody's, a snapshot that stays with the pool is its key's:
 * what is so already can be asked for, and nothing else. */
static void template_changed(void *user, struct http_request *rq, const char *body, size_t len)
{
	struct control_call *c = user;
	cleanup_json json_t *snapshot = snapshot_find(c->api, c->key, c->id);
	struct pool_template_info t;
	bool is_public = true;
	struct err err;

	if (!snapshot && !pool_template_named(c->api->pool, c->id, &t))
		template_unknown(rq, c->id);
	else if (control_public_parse(body, len, !snapshot, &is_public, &err) < 0)
		api_error(rq, 400, "%s", err.text);
	else if (is_public == (snapshot != NULL))
		api_error(rq, 403,
			snapshot ? "snapshot \"%s\" is its key's alone: give it a name to share it"
				 : "template \"%s\" is in the store, which is for every key",
			c->id);
	else
		http_reply(rq, 200, json_pack("{s:[s]}", "names", c->id));
	control_call_free(c);
}

bool control_templates(
	struct api *a, const struct api_caller *who, struct http_request *rq, const char *rest)
{
	static const char aliases[] = "/aliases/";
	const char *method = http_method(rq), *ref = rest + 1;
	bool get = !strcmp(method, "GET");

	if (!*rest && get)
		templates_list(a, rq);
	else if (get && !strncmp(rest, aliases, strlen(aliases)) && rest[strlen(aliases)])
		alias_show(a, rq, rest + strlen(aliases));
	else if (*rest != '/' || !*ref || strchr(ref, '/') || strlen(ref) >= 2 * LIMIT_NAME_SIZE)
		return false;
	else if (get)
		template_show(a, rq, ref);
	else if (!strcmp(method, "DELETE"))
		template_remove(a, who, rq, ref);
	else if (!strcmp(method, "PATCH"))
		http_collect(rq, LIMIT_HTTP_BODY, template_changed, control_call_free,
			control_call_new(a, who, rq, ref));
	else
		return false;
	return true;
}

void control_snapshots(struct api *a, const struct api_caller *who, struct http_request *rq)
{
	cleanup_json json_t *all = pool_snapshots(a->pool);
	const char *of = http_query(rq, "sandboxID");
	json_t *list = json_array();

	for (size_t i = 0; i < json_array_size(all); i++) {
		const json_t *one = json_array_get(all, i);
		const char *source = json_string_value(json_object_get(one, "source"));

		if (!owns(who->key ? who->key->name : "", one) ||
			(of && *of && strcmp(of, source ? source : "")))
			continue;
		json_array_append_new(list,
			json_pack(
				"{s:O, s:[]}", "snapshotID", json_object_get(one, "id"), "names"));
	}
	http_reply(rq, 200, list);
}
