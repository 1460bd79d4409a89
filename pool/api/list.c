/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of sandboxes: filtered, in the order of their start, in pages.
 *
 * The token of the next page names the last sandbox of this page, by its start and its id. So a
 * list stays right while sandboxes come and go: none is listed twice, and none that stays is left
 * out.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/buffer.h"
#include "common/rfc3339.h"
#include "common/str.h"
#include "pool/api/control_private.h"

/* ---- queries ---------------------------------------------------------------------------------- */

/* Percent-decoded, '+' a space; NULL where it is broken or holds a NUL. Caller frees. */
static char *decode(const char *text, size_t len)
{
	cleanup_free char *out = str_printf("%.*s", (int)len, text);

	return http_decode(out, true) ? steal_ptr(&out) : NULL;
}

int control_metadata_parse(const char *text, json_t **ret, struct err *err)
{
	cleanup_json json_t *obj = json_object();

	while (*text) {
		size_t len = strcspn(text, "&");
		const char *eq = memchr(text, '=', len);
		cleanup_free char *key = NULL, *value = NULL;

		if (len) {
			if (eq) {
				key = decode(text, (size_t)(eq - text));
				value = decode(eq + 1, (size_t)(text + len - eq - 1));
			}
			if (!key || !value || json_object_size(obj) >= LIMIT_POOL_METADATA ||
				json_object_set_new(obj, key, json_string(value)) < 0)
				return err_set(err, EINVAL,
					"metadata: not of the form key=value&key=value, "
					"percent-encoded, "
					"with at most %d of them",
					LIMIT_POOL_METADATA);
		}
		text += len + (text[len] == '&');
	}
	*ret = steal_ptr(&obj);
	return 0;
}

char *control_token_make(int64_t ms, const char *id)
{
	return str_printf("%lld.%s", (long long)ms, id);
}

int control_token_parse(
	const char *text, int64_t *ret_ms, char ret_id[static LIMIT_NAME_SIZE], struct err *err)
{
	const char *dot = strchr(text, '.');
	char *end;
	long long ms;

	errno = 0;
	ms = strtoll(text, &end, 10);
	if (!isdigit((unsigned char)*text) || errno || end != dot || !dot[1] ||
		strlen(dot + 1) >= LIMIT_NAME_SIZE)
		return err_set(err, EINVAL, "nextToken: not one that a list has given");
	*ret_ms = ms;
	memcpy(ret_id, dot + 1, strlen(dot + 1) + 1);
	return 0;
}

static int states_parse(const char *text, unsigned *ret, struct err *err)
{
	*ret = 0;
	while (*text) {
		size_t len = strcspn(text, ",");

		if (len == 7 && !strncmp(text, "running", len))
			*ret |= CONTROL_RUNNING;
		else if (len == 6 && !strncmp(text, "paused", len))
			*ret |= CONTROL_PAUSED;
		else
			return err_set(err, EINVAL,
				"state: \"running\", \"paused\", or both with a comma");
		text += len + (text[len] == ',');
	}
	if (!*ret)
		*ret = CONTROL_RUNNING | CONTROL_PAUSED;
	return 0;
}

static int page_parse(struct http_request *rq, struct control_filter *f, struct err *err)
{
	const char *limit = http_query(rq, "limit"), *token = http_query(rq, "nextToken");
	const char *order = http_query(rq, "order"), *after = http_query(rq, "startedAfter");
	int64_t ns;
	char *end;
	int r = 0;

	f->limit = CONTROL_PAGE;
	if (limit && *limit) {
		unsigned long n = strtoul(limit, &end, 10);

		if (*end || *limit == '-' || n < 1 || n > CONTROL_PAGE)
			return err_set(
				err, EINVAL, "limit: not a number from 1 to %d", CONTROL_PAGE);
		f->limit = (unsigned)n;
	}
	if (order && strcmp(order, "asc") && strcmp(order, "desc"))
		return err_set(err, EINVAL, "order: \"asc\" or \"desc\"");
	f->oldest_first = order && !strcmp(order, "asc");
	if (after && *after) {
		if (rfc3339_parse(after, &ns) < 0)
			return err_set(
				err, EINVAL, "startedAfter: not a time (2026-01-02T03:04:05Z)");
		f->started_after_ms = ns / 1000000;
	}
	if (token && *token) {
		r = control_token_parse(token, &f->after_ms, f->after_id, err);
		f->has_after = r == 0;
	}
	return r;
}

static int filter_parse(
	struct http_request *rq, bool paged, struct control_filter *f, struct err *err)
{
	const char *metadata = http_query(rq, "metadata"), *state = http_query(rq, "state");
	int r = 0;

	*f = (struct control_filter){.states = CONTROL_RUNNING};
	if (metadata)
		r = control_metadata_parse(metadata, &f->metadata, err);
	if (r == 0 && paged) {
		f->template = http_query(rq, "template");
		r = states_parse(state ? state : "", &f->states, err);
	}
	if (r == 0 && paged)
		r = page_parse(rq, f, err);
	return r;
}

/* ---- choosing --------------------------------------------------------------------------------- */

static bool template_match(const char *wanted, const struct pool_sandbox_info *f)
{
	cleanup_free char *id = control_template_id(f->template_name, f->template_tag);

	return !strcmp(wanted, id) || !strcmp(wanted, f->template_name);
}

bool control_filter_match(const struct control_filter *f, const struct pool_sandbox_info *info)
{
	unsigned state = info->state == POOL_PAUSED || info->state == POOL_PAUSING
		? CONTROL_PAUSED
		: CONTROL_RUNNING;
	const char *key;
	const json_t *value;

	if (!(f->states & state) || info->started_ms < f->started_after_ms)
		return false;
	if (f->template && *f->template && !template_match(f->template, info))
		return false;
	if (!f->metadata)
		return true;
	json_object_foreach(f->metadata, key, value)
	{
		if (!json_equal((json_t *)value, json_object_get(info->metadata, key)))
			return false;
	}
	return true;
}

/* Is it behind the token, in the order asked for? */
static bool is_behind(const struct control_filter *f, const struct pool_sandbox_info *info)
{
	int order = strcmp(info->id, f->after_id);

	if (!f->has_after)
		return true;
	if (info->started_ms != f->after_ms)
		return (info->started_ms > f->after_ms) == f->oldest_first;
	return f->oldest_first ? order > 0 : order < 0;
}

struct found {
	struct pool_sandbox **items; /* newest first */
	size_t n, running;
};

static struct found find_all(
	struct api *a, const struct api_caller *who, const struct control_filter *f)
{
	struct found all = {.items = malloc((pool_size(a->pool) + 1) * sizeof(*all.items))};

	if (!all.items)
		abort();
	for (struct pool_sandbox *sb = pool_next(a->pool, NULL); sb; sb = pool_next(a->pool, sb)) {
		struct pool_sandbox_info info;

		pool_sandbox_info(sb, &info);
		if (!control_owns(who, info.key) || !control_filter_match(f, &info))
			continue;
		all.running += info.state == POOL_RUNNING || info.state == POOL_RESUMING;
		if (is_behind(f, &info))
			all.items[all.n++] = sb;
	}
	return all;
}

void control_list(struct api *a, const struct api_caller *who, struct http_request *rq, bool paged)
{
	cleanup_buffer struct buffer list = {0};
	struct control_filter f;
	struct found all;
	struct pool_sandbox_info info;
	struct err err;
	size_t n;

	if (filter_parse(rq, paged, &f, &err) < 0) {
		json_decref(f.metadata);
		api_error(rq, 400, "%s", err.text);
		return;
	}
	all = find_all(a, who, &f);
	n = f.limit && all.n > f.limit ? f.limit : all.n;
	for (size_t i = 0; i < n; i++) {
		struct pool_sandbox *sb = all.items[f.oldest_first ? all.n - 1 - i : i];
		const char *text;

		pool_sandbox_info(sb, &info);
		text = control_listed_text(sb, &info);
		buffer_append(&list, i ? "," : "[", 1);
		buffer_append(&list, text, strlen(text));
	}
	buffer_append(&list, n ? "]" : "[]", n ? 2 : 3); /* with the NUL */
	if (n < all.n) {
		cleanup_free char *token = control_token_make(info.started_ms, info.id);

		http_add_header(rq, "X-Next-Token", token);
	}
	if (paged && f.states & CONTROL_RUNNING) {
		char text[24];

		snprintf(text, sizeof(text), "%zu", all.running);
		http_add_header(rq, "X-Total-Running", text);
	}
	free(all.items);
	json_decref(f.metadata);
	http_reply_text(rq, 200, "application/json", (const char *)list.bytes + list.head);
}
