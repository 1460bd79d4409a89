/* SPDX-License-Identifier: Apache-2.0 */
/* Templates and snapshots: listed; a snapshot can be removed, a template is the store's. */
#include <string.h>

#include "pool/api/control_private.h"

static void templates_list(struct api *a, struct http_request *rq)
{
	json_t *list = json_array();
	struct pool_template_facts t;

	for (unsigned i = 0; pool_template(a->pool, i, &t); i++) {
		if (*t.digest)
			json_array_append_new(list, control_template(&t));
	}
	http_reply(rq, 200, list);
}

static bool template_find(struct api *a, const char *ref, struct pool_template_facts *ret)
{
	for (unsigned i = 0; pool_template(a->pool, i, ret); i++) {
		cleanup_free char *id = control_template_id(ret->name, ret->tag);

		if (*ret->digest && !strcmp(id, ref))
			return true;
	}
	return false;
}

/* The record of a snapshot that @who may see; NULL: none. New reference. */
static json_t *snapshot_find(struct api *a, const struct api_caller *who, const char *id)
{
	cleanup_json json_t *all = pool_snapshots(a->pool);

	for (size_t i = 0; i < json_array_size(all); i++) {
		json_t *one = json_array_get(all, i);
		const char *key = json_string_value(json_object_get(one, "key"));

		if (!strcmp(json_string_value(json_object_get(one, "id")), id) &&
			control_owns(who, key ? key : ""))
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
	cleanup_json json_t *snapshot = snapshot_find(a, who, id);
	struct pool_template_facts t;

	if (snapshot)
		pool_snapshot_remove(
			a->pool, id, snapshot_removed, control_call_new(a, who, rq, id));
	else if (template_find(a, id, &t))
		api_error(rq, 403,
			"template \"%s\" is in the host's store: `parbake rm` removes it there",
			id);
	else
		api_error(rq, 404, "template \"%.64s\" doesn't exist", id);
}

bool control_templates(
	struct api *a, const struct api_caller *who, struct http_request *rq, const char *rest)
{
	bool get = !strcmp(http_method(rq), "GET");
	struct pool_template_facts t;

	if (!*rest && get) {
		templates_list(a, rq);
		return true;
	}
	if (*rest != '/' || !rest[1] || strchr(rest + 1, '/'))
		return false;
	if (!strcmp(http_method(rq), "DELETE")) {
		template_remove(a, who, rq, rest + 1);
		return true;
	}
	if (!get)
		return false;
	if (template_find(a, rest + 1, &t))
		http_reply(rq, 200, control_template(&t));
	else
		api_error(rq, 404, "template \"%.64s\" doesn't exist", rest + 1);
	return true;
}

void control_snapshots(struct api *a, const struct api_caller *who, struct http_request *rq)
{
	cleanup_json json_t *all = pool_snapshots(a->pool);
	const char *of = http_query(rq, "sandboxID");
	json_t *list = json_array();

	for (size_t i = 0; i < json_array_size(all); i++) {
		const json_t *one = json_array_get(all, i);
		const char *key = json_string_value(json_object_get(one, "key"));
		const char *source = json_string_value(json_object_get(one, "source"));

		if (!control_owns(who, key ? key : "") ||
			(of && *of && strcmp(of, source ? source : "")))
			continue;
		json_array_append_new(list,
			json_pack(
				"{s:O, s:[]}", "snapshotID", json_object_get(one, "id"), "names"));
	}
	http_reply(rq, 200, list);
}
