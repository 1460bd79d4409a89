/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON in which the control plane shows sandboxes and templates, in the shapes that SDKs know.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/rfc3339.h"
#include "egress/proxy.h"
#include "common/clock.h"
#include "common/str.h"
#include "pool/api/control_private.h"

bool control_owns(const struct api_caller *who, const char *key)
{
	return !who->key || !strcmp(who->key->name, key);
}

char *control_template_id(const char *name, const char *tag)
{
	return strcmp(tag, "latest") ? str_printf("%s:%s", name, tag) : str_dup(name);
}

static bool is_paused(const struct pool_sandbox_info *f)
{
	return f->state == POOL_PAUSED || f->state == POOL_PAUSING;
}

static json_t *copy(const json_t *value)
{
	json_t *c = value ? json_deep_copy(value) : json_object();

	if (!c)
		abort();
	return c;
}

json_t *control_sandbox(const struct api *a, const struct pool_sandbox_info *f)
{
	cleanup_free char *template = control_template_id(f->template_name, f->template_tag);
	char token[DIGEST_TEXT_SIZE];

	api_token_of(a, f->id, token);
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "sandboxID", f->id,
		"templateID", template, "alias", f->template_name, "clientID", CONTROL_CLIENT,
		"envdVersion", CONTROL_ENVD_VERSION, "domain", a->config->domain, "envdAccessToken",
		token, "trafficAccessToken", token);
}

static json_t *control_listed(const struct pool_sandbox_info *f)
{
	cleanup_free char *template = control_template_id(f->template_name, f->template_tag);
	char started[RFC3339_SIZE], end[RFC3339_SIZE];

	rfc3339_text(f->started_ms * 1000000, 3, started);
	rfc3339_text(f->end_ms * 1000000, 3, end);
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:s, s:s}",
		"sandboxID", f->id, "templateID", template, "alias", f->template_name, "clientID",
		CONTROL_CLIENT, "startedAt", started, "endAt", end, "cpuCount",
		(json_int_t)f->vcpus, "memoryMB", (json_int_t)(f->memory_bytes / MIB), "diskSizeMB",
		(json_int_t)(f->disk_bytes / MIB), "metadata", copy(f->metadata), "state",
		is_paused(f) ? "paused" : "running", "envdVersion", CONTROL_ENVD_VERSION);
}

const char *control_listed_text(struct pool_sandbox *sb, const struct pool_sandbox_info *f)
{
	struct pool_listed *l = pool_sandbox_listed(sb);

	if (!l->text || l->started_ms != f->started_ms || l->end_ms != f->end_ms ||
		l->paused != is_paused(f)) {
		json_t *obj = control_listed(f);

		free(l->text);
		*l = (struct pool_listed){json_text(obj), f->started_ms, f->end_ms, is_paused(f)};
		json_decref(obj);
	}
	return l->text;
}

/* What may be reached, in the form that a create takes. */
static json_t *allowed(const json_t *rules)
{
	json_t *list = json_array();

	for (size_t i = 0; i < json_array_size(rules); i++) {
		struct proxy_rule rule;
		char text[PROXY_RULE_TEXT];

		if (pool_rule_read(json_array_get(rules, i), &rule, NULL) < 0)
			continue; /* records were read before */
		proxy_rule_text(&rule, text);
		if (rule.private_ok && (!rule.literal || rule.network))
			json_array_append_new(
				list, json_pack("{s:s, s:b}", "host", text, "private", 1));
		else
			json_array_append_new(list, json_string(text));
	}
	return list;
}

static json_t *network(const struct pool_sandbox_info *f)
{
	json_t *obj = json_pack("{s:b}", "allowPublicTraffic", !f->guarded_ports);

	if (f->allow)
		json_object_set_new(obj, "allowOut", allowed(f->allow));
	if (f->mask_host[0])
		json_object_set_new(obj, "maskRequestHost", json_string(f->mask_host));
	return obj;
}

json_t *control_detail(const struct api *a, const struct pool_sandbox_info *f)
{
	json_t *obj = control_listed(f);

	json_object_set_new(obj, "domain", json_string(a->config->domain));
	json_object_set_new(obj, "allowInternetAccess", json_boolean(f->allow != NULL));
	json_object_set_new(obj, "network", network(f));
	json_object_set_new(obj, "lifecycle",
		json_pack("{s:b, s:s}", "autoResume", f->auto_resume, "onTimeout",
			f->auto_pause ? "pause" : "kill"));
	/* of ours, beside what SDKs know */
	json_object_set_new(obj, "mode", json_string(f->mode));
	if (f->disk_error)
		json_object_set_new(obj, "diskError", json_string(f->disk_error));
	json_object_set_new(obj, "createMs", json_real((double)f->create_ns / 1e6));
	json_object_set_new(obj, "templateDigest", json_string(f->template_digest));
	return obj;
}

json_t *control_template(const struct pool_template_info *t)
{
	cleanup_free char *id = control_template_id(t->name, t->tag);
	const char *created = t->created && *t->created ? t->created : "1970-01-01T00:00:00Z";
	uint64_t spawned = t->hits_spare + t->hits_standby + t->misses;
	json_t *aliases = json_pack("[s]", id);

	if (t->aliases)
		json_array_extend(aliases, (json_t *)t->aliases);
	return json_pack(
		"{s:s, s:s, s:I, s:I, s:I, s:b, s:o, s:[s], s:s, s:s, s:n, s:n, s:I, s:i, s:s, "
		"s:s}",
		"templateID", id, "buildID", t->digest, "cpuCount", (json_int_t)t->vcpus,
		"memoryMB", (json_int_t)(t->memory_bytes / MIB), "diskSizeMB",
		(json_int_t)(t->disk_bytes / MIB), "public", 1, "aliases", aliases, "names", id,
		"createdAt", created, "updatedAt", created, "createdBy", "lastSpawnedAt",
		"spawnCount", (json_int_t)spawned, "buildCount", 1, "envdVersion",
		CONTROL_ENVD_VERSION, "buildStatus", *t->digest ? "ready" : "error");
}
