/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of requests, checked. Each message names the field and says what it may be: the message is
 * all that the client's author sees.
 *
 * The network: a sandbox can reach only what its create names. SDKs send allow_internet_access =
 * true where their caller said nothing, so that field alone opens nothing (the answer says what the
 * sandbox may reach). network.allowOut opens the network, host by host. A field that would restrict
 * a network that is open by default is accepted where the restriction holds anyway, and refused
 * where it would have to be enforced. Addresses of the host itself or of its networks (a host with
 * "private": true, or such an address) may be asked for by whoever runs the pool, and not by
 * holders of a key.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "egress/proxy.h"
#include "pool/api/control_private.h"
#include "pool/api/limits.h"

#define ENV_NAME_MAX 256
#define HOST_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:[]${}"

static int body_parse(const char *text, size_t len, json_t **ret, struct err *err)
{
	cleanup_json json_t *body = NULL;
	int r;

	while (len && isspace((unsigned char)*text)) {
		text++;
		len--;
	}
	if (!len) {
		*ret = json_object();
		return 0;
	}
	r = json_parse("the body", text, len, &body, err);
	if (r == 0 && !json_is_object(body))
		r = err_set(err, EINVAL, "the body is not a JSON object");
	if (r < 0)
		return -EINVAL;
	*ret = steal_ptr(&body);
	return 0;
}

/* A field, NULL where it is absent or null. */
static const json_t *field(const json_t *body, const char *name)
{
	const json_t *value = json_object_get(body, name);

	return json_is_null(value) ? NULL : value;
}

static int bool_field(const json_t *body, const char *name, int *ret, struct err *err)
{
	const json_t *value = field(body, name);

	if (!value)
		return 0;
	if (!json_is_boolean(value))
		return err_set(err, EINVAL, "%s: not true or false", name);
	*ret = json_is_true(value);
	return 0;
}

/* Seconds, in milliseconds. 1: it is there. */
static int seconds_field(
	const json_t *body, const char *name, bool zero, uint64_t *ret_ms, struct err *err)
{
	const json_t *value = field(body, name);
	json_int_t s;

	if (!value)
		return 0;
	s = json_is_integer(value) ? json_integer_value(value) : -1;
	if (s < !zero || s > LIMIT_LEASE_MS / 1000)
		return err_set(err, EINVAL, "%s: not a number of seconds from %d to %lld", name,
			!zero, LIMIT_LEASE_MS / 1000);
	*ret_ms = (uint64_t)s * 1000;
	return 1;
}

static int strings_field(const json_t *body, const char *name, const json_t **ret, struct err *err)
{
	const json_t *obj = field(body, name), *value;
	const char *key;

	if (!obj)
		return 0;
	if (!json_is_object(obj))
		return err_set(err, EINVAL, "%s: not an object of strings", name);
	if (json_object_size(obj) > LIMIT_POOL_METADATA)
		return err_set(err, EINVAL, "%s: more than %d entries", name, LIMIT_POOL_METADATA);
	json_object_foreach((json_t *)obj, key, value)
	{
		if (!json_is_string(value))
			return err_set(err, EINVAL, "%s: \"%.100s\" is not a string", name, key);
		if (strlen(json_string_value(value)) != json_string_length(value))
			return err_set(err, EINVAL, "%s: \"%.100s\" has a NUL in it", name, key);
	}
	*ret = obj;
	return 0;
}

/* Names as execve(2) can carry them. */
static int env_check(const json_t *env, struct err *err)
{
	const char *name;
	const json_t *value;

	json_object_foreach((json_t *)env, name, value)
	{
		if (!*name || strchr(name, '=') || strlen(name) > ENV_NAME_MAX)
			return err_set(err, EINVAL,
				"envVars: \"%.100s\" cannot be a variable's name", name);
	}
	return 0;
}

/* What would have to be done, and is not: named, unless it is empty. */
static int unsupported(
	const json_t *body, const char *const *names, const char *in, struct err *err)
{
	for (; *names; names++) {
		const json_t *value = field(body, *names);

		if (value && !(json_is_object(value) && json_object_size(value) == 0) &&
			!(json_is_array(value) && json_array_size(value) == 0) &&
			!(json_is_string(value) && json_string_length(value) == 0))
			return err_set(
				err, EINVAL, "%s%s: not supported here; leave it out", in, *names);
	}
	return 0;
}

/* "HOST", or {"host": "HOST", "private": true}: what such a host leads to may be inside, too. *@ret_text: HOST. */
static int rule_parse(
	const json_t *item, struct proxy_rule *ret, const char **ret_text, struct err *err)
{
	const json_t *host = json_is_object(item) ? field(item, "host") : item;
	const char *text = json_string_value(host);
	int private = 0;
	struct err why;
	int r = 0;

	if (!text || strlen(text) != json_string_length(host) ||
		proxy_rule_parse(text, ret, &why) < 0)
		r = err_set(err, EINVAL,
			"network.allowOut: %.200s%snot a host by name (\"example.org\", "
			"\"*.example.org\", \"example.org:8443\"), address or network of addresses",
			text ? text : "", text ? ": " : "");
	if (r == 0 && json_is_object(item))
		r = bool_field(item, "private", &private, err);
	if (r < 0)
		return r;
	/* who writes an address means that one */
	ret->private_ok = private || proxy_rule_inside(ret);
	*ret_text = text;
	return 0;
}

static int allow_parse(const json_t *list, struct control_create *c, struct err *err)
{
	size_t n = json_array_size(list);
	int r = 0;

	if (!json_is_array(list) || n > LIMIT_POOL_ALLOW)
		return err_set(err, EINVAL, "network.allowOut: not an array of at most %d hosts",
			LIMIT_POOL_ALLOW);
	if (!n)
		return 0;
	c->allow = calloc(n, sizeof(*c->allow));
	if (!c->allow)
		abort();
	for (size_t i = 0; i < n && r == 0; i++) {
		const char *text = NULL;

		r = rule_parse(json_array_get(list, i), &c->allow[i], &text, err);
		if (r == 0 && !c->inside && c->allow[i].private_ok)
			c->inside = text;
	}
	c->n_allow = n;
	return r;
}

/* A host name with a port behind it maybe, ${PORT} for the one that was asked for; it becomes a line of a head. */
static int mask_parse(const json_t *network, const char **ret, struct err *err)
{
	const json_t *value = field(network, "maskRequestHost");
	const char *text = json_string_value(value);

	if (!value)
		return 0;
	if (!text || strlen(text) != json_string_length(value) ||
		json_string_length(value) > LIMIT_POOL_HOST_MASK ||
		text[strspn(text, HOST_LETTERS)])
		return err_set(err, EINVAL,
			"network.maskRequestHost: not a host (\"example.org\", "
			"\"localhost:${PORT}\")");
	*ret = *text ? text : NULL;
	return 0;
}

static int network_parse(struct control_create *c, struct err *err)
{
	static const char *const not_here[] = {"egressProxy", "rules", NULL};
	const json_t *body = c->body, *network = field(body, "network"), *allow, *deny;
	int public = 1, internet = 1;
	int r = bool_field(body, "allow_internet_access", &internet, err);

	if (r == 0 && network && !json_is_object(network))
		r = err_set(err, EINVAL, "network: not an object");
	if (r < 0 || !network)
		return r;
	allow = field(network, "allowOut");
	deny = field(network, "denyOut");
	r = unsupported(network, not_here, "network.", err);
	if (r == 0)
		r = bool_field(network, "allowPublicTraffic", &public, err);
	if (r == 0)
		r = mask_parse(network, &c->mask_host, err);
	c->guarded_ports = !public;
	if (r == 0 && deny && !json_is_array(deny))
		r = err_set(err, EINVAL, "network.denyOut: not an array");
	/* false is "deny all": what is allowed goes before that */
	if (r == 0 && allow)
		r = allow_parse(allow, c, err);
	return r;
}

static int create_fields(struct control_create *c, struct err *err)
{
	static const char *const not_here[] = {"mcp", "iam", "volumeMounts", NULL};
	const json_t *template = field(c->body, "templateID");
	const json_t *resume = field(c->body, "autoResume");
	int auto_pause = 0, secure = 0, memory = 1, auto_resume = 0;
	int r = 0;

	c->template = json_string_value(template);
	if (!c->template || !*c->template)
		r = err_set(err, EINVAL, "templateID: the name of a template is needed");
	if (r == 0)
		r = seconds_field(c->body, "timeout", false, &c->timeout_ms, err);
	if (r >= 0)
		r = strings_field(c->body, "metadata", &c->metadata, err);
	if (r == 0)
		r = strings_field(c->body, "envVars", &c->env, err);
	if (r == 0 && c->env)
		r = env_check(c->env, err);
	if (r == 0)
		r = bool_field(c->body, "autoPause", &auto_pause, err);
	if (r == 0)
		r = bool_field(c->body, "secure", &secure, err);
	if (r == 0)
		r = bool_field(c->body, "autoPauseMemory", &memory, err);
	if (r == 0 && !memory)
		r = err_set(err, EINVAL,
			"autoPauseMemory: a pause always keeps the memory; leave it out");
	if (r == 0 && resume)
		r = bool_field(resume, "enabled", &auto_resume, err);
	if (r == 0)
		r = unsupported(c->body, not_here, "", err);
	if (r == 0)
		r = network_parse(c, err);
	c->auto_pause = auto_pause != 0;
	c->auto_resume = auto_resume != 0;
	return r;
}

void control_create_clear(struct control_create *c)
{
	json_decref(c->body);
	free(c->allow);
}

int control_create_parse(const char *text, size_t len, struct control_create *ret, struct err *err)
{
	cleanup_control_create struct control_create c = {0};
	int r = body_parse(text, len, &c.body, err);

	if (r == 0)
		r = create_fields(&c, err);
	if (r < 0)
		return r;
	*ret = c;
	c = (struct control_create){0};
	return 0;
}

/* NAME or NAME:TAG of a template. */
static int name_field(const json_t *body, struct control_change *ret, struct err *err)
{
	const json_t *value = field(body, "name");
	const char *text = json_string_value(value);
	char name[2 * LIMIT_NAME_SIZE];
	char *tag;

	if (!value)
		return 0;
	if (text && strlen(text) < sizeof(name)) {
		strcpy(name, text);
		tag = strchr(name, ':');
		if (tag)
			*tag++ = '\0';
		if (store_name_valid(name) && (!tag || store_tag_valid(tag))) {
			memcpy(ret->name, text, strlen(text) + 1);
			return 0;
		}
	}
	return err_set(err, EINVAL,
		"name: not the name of a template: lower-case letters and digits, between them "
		"one of . _ -, and a :tag behind it if need be");
}

int control_change_parse(const char *text, size_t len, const char *timeout, bool required,
	struct control_change *ret, struct err *err)
{
	cleanup_json json_t *body = NULL;
	struct control_change c = *ret;
	const json_t *count;
	int memory = 1, r;

	r = body_parse(text, len, &body, err);
	if (r == 0 && timeout) {
		r = seconds_field(body, timeout, true, &c.timeout_ms, err);
		c.has_timeout = r == 1;
		if (r == 0 && required)
			r = err_set(err, EINVAL, "%s: how many seconds, is needed", timeout);
	}
	if (r >= 0)
		r = bool_field(body, "autoPause", &c.auto_pause, err);
	if (r == 0)
		r = bool_field(body, "memory", &memory, err);
	if (r == 0 && !memory)
		r = err_set(err, EINVAL, "memory: it is always kept, and restored; leave it out");
	count = r == 0 ? field(body, "count") : NULL;
	if (count) {
		json_int_t n = json_is_integer(count) ? json_integer_value(count) : 0;

		if (n < 1 || n > LIMIT_POOL_FORK)
			r = err_set(
				err, EINVAL, "count: not a number from 1 to %d", LIMIT_POOL_FORK);
		c.count = (uint64_t)n;
	}
	if (r == 0)
		r = name_field(body, &c, err);
	if (r == 0)
		r = bool_field(body, "replace", &c.replace, err);
	if (r < 0)
		return r;
	*ret = c;
	return 0;
}

int control_public_parse(const char *text, size_t len, bool absent, bool *ret, struct err *err)
{
	cleanup_json json_t *body = NULL;
	int is_public = absent;
	int r = body_parse(text, len, &body, err);

	if (r == 0)
		r = bool_field(body, "public", &is_public, err);
	if (r == 0)
		*ret = is_public != 0;
	return r;
}
