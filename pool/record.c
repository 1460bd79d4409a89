/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records: all that must be known of a sandbox when the daemon that made it is gone, as one JSON
 * object. The keeper holds the record while the sandbox runs, and the file paused/ID.json holds it
 * while it does not. The record also has what the template says, so that a sandbox outlives its
 * template's tag.
 *
 * In version 1 of the format the hosts that may be reached were text, "HOST" or "HOST private",
 * each checked by itself.
 *
 * The JSON object is the truth, and struct pool_record is only a view of it. The struct borrows
 * every string from the object, so that a thousand sandboxes hold each text once.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/digest.h"
#include "common/err.h"
#include "common/json.h"
#include "common/limits.h"
#include "pool/keeper/limits.h"
#include "common/str.h"
#include "egress/proxy.h"
#include "pool/record_private.h"
#include "pool/sandbox_private.h"
#include "store/snapshot.h"

#ifndef RECORD_VERSION /* a test builds a later parbake with another */
#define RECORD_VERSION 2
#endif

static int string_of(const json_t *record, const char *key, const char **ret, struct err *err)
{
	return json_get_string(record, key, ret, err);
}

static int number_of(
	const json_t *record, const char *key, uint64_t max, uint64_t *ret, struct err *err)
{
	return json_get_u64(record, key, 0, max, ret, err);
}

/* An object whose values are strings; absent is none. */
static int strings_of(const json_t *record, const char *key, const json_t **ret, struct err *err)
{
	const json_t *obj = json_object_get(record, key), *value;
	const char *name;

	if (!json_is_object(obj) || json_object_size(obj) > LIMIT_POOL_METADATA)
		return err_set(err, EINVAL, "\"%s\" is not an object of at most %d strings", key,
			LIMIT_POOL_METADATA);
	json_object_foreach((json_t *)obj, name, value)
	{
		if (!json_is_string(value))
			return err_set(err, EINVAL, "\"%s\": \"%s\" is not a string", key, name);
	}
	*ret = obj;
	return 0;
}

static int list_of(
	const json_t *record, const char *key, size_t max, const json_t **ret, struct err *err)
{
	const json_t *list = json_object_get(record, key);

	if (json_is_null(list) || !list) {
		*ret = NULL;
		return 0;
	}
	if (!json_is_array(list) || json_array_size(list) > max)
		return err_set(
			err, EINVAL, "\"%s\" is not an array of at most %zu strings", key, max);
	for (size_t i = 0; i < json_array_size(list); i++) {
		if (!json_is_string(json_array_get(list, i)))
			return err_set(err, EINVAL, "\"%s\" holds what is not a string", key);
	}
	*ret = list;
	return 0;
}

/* ---- what may be reached ------------------------------------------------------------------------ */

json_t *pool_rule_write(const struct proxy_rule *rule)
{
	struct proxy_rule host = *rule;
	char text[PROXY_RULE_TEXT];
	json_t *obj;

	host.port = 0;
	proxy_rule_text(&host, text);
	obj = json_pack("{s:s, s:i, s:b}", "host", text, "port", (int)rule->port, "private",
		(int)rule->private_ok);
	if (!obj)
		abort();
	return obj;
}

/* As version 1 had it. */
static int rule_read_text(const char *text, struct proxy_rule *ret, struct err *err)
{
	const char *space = strchr(text, ' ');
	cleanup_free char *host = str_printf("%.*s", (int)strcspn(text, " "), text);
	int r = proxy_rule_parse(host, ret, err);

	if (r == 0 && space && strcmp(space, " private"))
		r = err_set(err, EINVAL, "\"allow\": \"%s\" is no host", text);
	if (r == 0)
		ret->private_ok = space || (ret->literal && proxy_rule_inside(ret));
	return r;
}

int pool_rule_read(const json_t *rule, struct proxy_rule *ret, struct err *err)
{
	const char *host;
	uint64_t port = 0;
	int r;

	if (json_is_string(rule))
		return rule_read_text(json_string_value(rule), ret, err);
	if (!json_is_object(rule))
		return err_set(err, EINVAL, "\"allow\" holds what is no rule");
	r = json_get_string(rule, "host", &host, err);
	if (r == 0)
		r = json_get_u64(rule, "port", 0, UINT16_MAX, &port, err);
	if (r == 0)
		r = proxy_rule_parse(host, ret, err);
	if (r == 0 && ret->port)
		r = err_set(err, EINVAL, "\"host\" has a port");
	if (r < 0)
		return r;
	ret->port = (uint16_t)port;
	ret->private_ok = json_is_true(json_object_get(rule, "private"));
	return 0;
}

/* Absent or null: no network. */
static int allow_of(const json_t *record, const json_t **ret, struct err *err)
{
	const json_t *list = json_object_get(record, "allow");
	struct proxy_rule rule;
	int r = 0;

	*ret = NULL;
	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list) || json_array_size(list) > LIMIT_POOL_ALLOW)
		return err_set(err, EINVAL, "\"allow\" is not an array of at most %d rules",
			LIMIT_POOL_ALLOW);
	for (size_t i = 0; i < json_array_size(list) && r == 0; i++)
		r = pool_rule_read(json_array_get(list, i), &rule, err);
	*ret = list;
	return r;
}

static int template_read(const json_t *record, struct pool_record *n, struct err *err)
{
	const json_t *t = json_object_get(record, "template");
	uint64_t vcpus = 0;
	int r = string_of(t, "name", &n->name, err);

	if (r == 0)
		r = string_of(t, "tag", &n->tag, err);
	if (r == 0)
		r = string_of(t, "digest", &n->digest, err);
	if (r == 0 && !digest_valid(n->digest))
		r = err_set(err, EINVAL, "\"digest\" is not one");
	if (r == 0)
		r = number_of(t, "vcpus", LIMIT_VCPUS, &vcpus, err);
	n->vcpus = (unsigned)vcpus;
	if (r == 0)
		r = number_of(t, "memory_bytes", LIMIT_MEMORY_MAX, &n->memory_bytes, err);
	if (r == 0)
		r = number_of(t, "disk_bytes", LIMIT_DISK_MAX, &n->disk_bytes, err);
	if (r == 0)
		r = number_of(t, "exec_timeout_ms", LIMIT_TIMEOUT_MS, &n->exec_timeout_ms, err);
	if (r == 0)
		r = number_of(t, "output_bytes", INT64_MAX, &n->output_bytes, err);
	if (r == 0)
		r = number_of(t, "exec_memory_bytes", INT64_MAX, &n->exec_memory_bytes, err);
	if (r == 0)
		r = number_of(t, "exec_pids", INT64_MAX, &n->exec_pids, err);
	if (r == 0)
		r = list_of(t, "env", LIMIT_CONFIG_ENV, &n->template_env, err);
	n->context = json_is_true(json_object_get(t, "context"));
	n->user = json_string_value(json_object_get(t, "user"));
	n->user = n->user ? n->user : "";
	return r;
}

int pool_record_read(const json_t *record, struct pool_record *ret, struct err *err)
{
	struct pool_record n = {0};
	uint64_t version = 0, started = 0, generation = 0;
	int r = number_of(record, "version", INT32_MAX, &version, err);

	if (r == 0 && (version < 1 || version > RECORD_VERSION))
		r = err_set(err, EPROTONOSUPPORT,
			"a record of version %d, not %d: another parbake wrote it", (int)version,
			RECORD_VERSION);
	if (r == 0)
		r = string_of(record, "id", &n.id, err);
	if (r == 0 && !pool_id_valid(n.id))
		r = err_set(err, EINVAL, "\"id\" is none");
	if (r == 0)
		r = string_of(record, "key", &n.key, err);
	if (r == 0)
		r = string_of(record, "mode", &n.mode, err);
	if (r == 0)
		r = string_of(record, "source", &n.source, err);
	if (r == 0)
		r = number_of(record, "started_ms", INT64_MAX, &started, err);
	if (r == 0)
		r = number_of(record, "generation", INT32_MAX, &generation, err);
	if (r == 0)
		r = strings_of(record, "metadata", &n.metadata, err);
	if (r == 0)
		r = strings_of(record, "env", &n.env, err);
	if (r == 0)
		r = allow_of(record, &n.allow, err);
	if (r == 0)
		r = template_read(record, &n, err);
	if (r < 0) {
		err_prefix(err, "a sandbox's record");
		return r == -ENOENT ? -EINVAL : r;
	}
	n.started_ms = (int64_t)started;
	n.generation = (unsigned)generation;
	n.auto_pause = json_is_true(json_object_get(record, "auto_pause"));
	n.auto_resume = json_is_true(json_object_get(record, "auto_resume"));
	n.guarded_ports = json_is_true(json_object_get(record, "guarded_ports"));
	n.mask_host = json_string_value(json_object_get(record, "mask_host"));
	n.mask_host = n.mask_host ? n.mask_host : "";
	n.lease_ms = (uint64_t)json_integer_value(json_object_get(record, "lease_ms"));
	*ret = n;
	return 0;
}

static json_t *copy_or(const json_t *value, json_t *otherwise)
{
	json_t *copy;

	if (!value)
		return otherwise;
	json_decref(otherwise);
	copy = json_deep_copy(value);
	if (!copy)
		abort();
	return copy;
}

json_t *pool_record_write(const struct pool_record *n)
{
	json_t *t = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:o}",
		"name", n->name, "tag", n->tag, "digest", n->digest, "vcpus", (json_int_t)n->vcpus,
		"memory_bytes", (json_int_t)n->memory_bytes, "disk_bytes",
		(json_int_t)n->disk_bytes, "exec_timeout_ms", (json_int_t)n->exec_timeout_ms,
		"output_bytes", (json_int_t)n->output_bytes, "exec_memory_bytes",
		(json_int_t)n->exec_memory_bytes, "exec_pids", (json_int_t)n->exec_pids, "context",
		n->context, "user", n->user ? n->user : "", "env",
		copy_or(n->template_env, json_array()));
	json_t *record = json_pack(
		"{s:i, s:s, s:s, s:s, s:s, s:I, s:I, s:b, s:b, s:b, s:s, s:I, s:o, s:o, "
		"s:o, s:o}",
		"version", RECORD_VERSION, "id", n->id, "key", n->key, "mode", n->mode, "source",
		n->source ? n->source : "", "started_ms", (json_int_t)n->started_ms, "generation",
		(json_int_t)n->generation, "auto_pause", n->auto_pause, "auto_resume",
		n->auto_resume, "guarded_ports", n->guarded_ports, "mask_host",
		n->mask_host ? n->mask_host : "", "lease_ms", (json_int_t)n->lease_ms, "metadata",
		copy_or(n->metadata, json_object()), "env", copy_or(n->env, json_object()), "allow",
		copy_or(n->allow, json_null()), "template", t);

	if (!record)
		abort(); /* no memory, or a text of ours that is not UTF-8 */
	return record;
}

void pool_record_template(const struct snapshot_config *c, struct pool_record *ret, json_t **env)
{
	*env = json_array();
	for (size_t i = 0; i < c->env.n; i++)
		json_array_append_new(*env, json_lossy(c->env.items[i], strlen(c->env.items[i])));
	*ret = (struct pool_record){
		.vcpus = c->vcpus,
		.memory_bytes = c->memory_bytes,
		.disk_bytes = c->disk_bytes,
		.exec_timeout_ms = c->exec_timeout_ms,
		.output_bytes = c->output_bytes,
		.exec_memory_bytes = c->exec_memory_bytes,
		.exec_pids = c->exec_pids,
		.context = c->context,
		.user = c->user ? c->user : "",
		.template_env = *env,
	};
}

int pool_record_check(const json_t *record, struct err *err)
{
	cleanup_free char *text = json_text(record);

	if (strlen(text) > LIMIT_KEEPER_RECORD)
		return err_set(err, E2BIG,
			"metadata and variables are too long: with the template's own they may be "
			"%lu "
			"bytes, and are %zu",
			LIMIT_KEEPER_RECORD, strlen(text));
	return 0;
}
