/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands ask of a pool most: one JSON request, the list of sandboxes, an id from its prefix. */
#include <ctype.h>
#include <string.h>

#include "cli/client.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/rfc3339.h"
#include "common/str.h"

#define PAGE 100 /* sandboxes of one answer */

struct waiting {
	bool over;
	int r;
	json_t *json;
	char *next;
	struct err *err;
	const char *what;
};

static void over(void *user, const struct client_answer *a)
{
	struct waiting *w = user;

	w->over = true;
	if (a->error) {
		w->r = err_set(w->err, a->error, "%s", a->text);
	} else if (a->len) {
		w->r = json_parse(w->what, a->body, a->len, &w->json, w->err);
		if (w->r < 0)
			err_prefix(w->err, "the answer makes no sense");
	}
	w->next = str_dup(a->next);
}

static int call_page(struct client *c, const struct client_spec *spec, json_t **ret,
	char **ret_next, struct err *err)
{
	struct client_spec mine = *spec;
	struct waiting w = {.err = err, .what = spec->path};
	struct client_call *call;
	int r = 0;

	mine.done = over;
	mine.user = &w;
	call = client_begin(c, &mine, err);
	if (!call)
		return -EIO;
	while (!w.over && r == 0)
		r = client_turn(c, NULL, 0, CLOCK_NEVER, err);
	if (!w.over)
		client_drop(call);
	if (r == 0)
		r = w.r;
	if (r == 0 && ret)
		*ret = w.json;
	else
		json_decref(w.json);
	if (ret_next)
		*ret_next = w.next;
	else
		free(w.next);
	return r;
}

int client_call_spec(
	struct client *c, const struct client_spec *spec, json_t **ret, struct err *err)
{
	return call_page(c, spec, ret, NULL, err);
}

int client_call(struct client *c, const char *method, const char *path, const json_t *body,
	json_t **ret, struct err *err)
{
	const struct client_spec spec = {.method = method, .path = path, .json = body};

	return call_page(c, &spec, ret, NULL, err);
}

char *client_escape(const char *text)
{
	char *ret = malloc(3 * strlen(text) + 1), *at = ret;

	if (!ret)
		abort();
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;

		if (isalnum(byte) || strchr("-._~", byte))
			*at++ = *text;
		else
			at += sprintf(at, "%%%02X", byte);
	}
	*at = '\0';
	return ret;
}

/* ---- fields ------------------------------------------------------------------------------- */

const char *client_string(const json_t *obj, const char *key)
{
	const char *text = json_string_value(json_object_get(obj, key));

	return text ? text : "";
}

double client_number(const json_t *obj, const char *key)
{
	return json_number_value(json_object_get(obj, key));
}

bool client_time(const json_t *obj, const char *key, int64_t *ret_ms)
{
	int64_t ns;

	if (rfc3339_parse(client_string(obj, key), &ns) < 0)
		return false;
	*ret_ms = ns / 1000000;
	return true;
}

const char *client_age(int64_t ms, char ret[static 16])
{
	uint64_t s = ms < 0 ? 0 : (uint64_t)ms / 1000;
	unsigned d = (unsigned)(s / 86400 % 100000), h = (unsigned)(s / 3600 % 24),
		 m = (unsigned)(s / 60 % 60);

	if (ms < 0)
		snprintf(ret, 16, "-");
	else if (d)
		snprintf(ret, 16, "%ud%02uh", d, h);
	else if (h)
		snprintf(ret, 16, "%uh%02um", h, m);
	else if (m)
		snprintf(ret, 16, "%um%02us", m, (unsigned)(s % 60));
	else
		snprintf(ret, 16, "%us", (unsigned)(s % 60));
	return ret;
}

/* ---- sandboxes ----------------------------------------------------------------------------- */

/* One page behind @token ("": the first), appended to @list. *@ret_next: of the one after it. */
static int list_page(struct client *c, const char *state, const char *token, json_t *list,
	char **ret_next, struct err *err)
{
	cleanup_free char *escaped = client_escape(token);
	cleanup_free char *path = str_printf("/v2/sandboxes?state=%s&limit=%d%s%s",
		state ? state : "running,paused", PAGE, *token ? "&nextToken=" : "", escaped);
	const struct client_spec spec = {.method = "GET", .path = path};
	cleanup_json json_t *page = NULL;
	int r = call_page(c, &spec, &page, ret_next, err);

	if (r < 0)
		return r;
	if (!json_is_array(page) || json_array_extend(list, page) < 0)
		return err_set(err, EPROTO, "%s: the answer is no list of sandboxes", path);
	return 0;
}

int client_list(struct client *c, const char *state, json_t **ret, struct err *err)
{
	cleanup_json json_t *list = json_array();
	cleanup_free char *token = str_dup("");

	do {
		cleanup_free char *next = NULL;
		size_t before = json_array_size(list);
		int r = list_page(c, state, token, list, &next, err);

		if (r < 0)
			return r;
		/* a server that pages for ever is not believed */
		if (json_array_size(list) > LIMIT_POOL_SANDBOXES ||
			(*next && json_array_size(list) == before))
			return err_set(err, EPROTO, "the list of sandboxes does not end");
		free(token);
		token = steal_ptr(&next);
	} while (*token);
	*ret = json_incref(list);
	return 0;
}

static bool may_be_id(const char *text)
{
	size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return len > 0 && len <= LIMIT_NAME && !text[len];
}

static int by_prefix(struct client *c, const char *text, char **ret, struct err *err)
{
	cleanup_json json_t *list = NULL;
	const char *found = NULL, *id;
	json_t *one;
	size_t i;
	int r = client_list(c, NULL, &list, err);

	if (r < 0)
		return r;
	json_array_foreach(list, i, one)
	{
		r = json_get_string(one, "sandboxID", &id, err);
		if (r < 0)
			return r;
		if (strncmp(id, text, strlen(text)))
			continue;
		if (found)
			return err_set(err, EEXIST,
				"%s: several sandboxes begin so (%s, %s); write more of the id",
				text, found, id);
		found = id;
	}
	if (!found || !may_be_id(found))
		return err_set(err, ENOENT, "there is no sandbox %s; see `parbake ps --all`", text);
	*ret = str_dup(found);
	return 0;
}

int client_resolve(struct client *c, const char *text, char **ret, struct err *err)
{
	cleanup_free char *path = NULL;
	cleanup_json json_t *sandbox = NULL;
	int r;

	if (!may_be_id(text))
		return err_set(err, EINVAL, "\"%s\" is not the id of a sandbox", text);
	path = str_printf("/sandboxes/%s", text);
	r = client_call(c, "GET", path, NULL, &sandbox, err);
	if (r == 0)
		*ret = str_dup(text);
	return r == -ENOENT ? by_prefix(c, text, ret, err) : r;
}

int client_open(const char *text, struct client **ret, char **ret_id, struct err *err)
{
	cleanup_client struct client *c = NULL;
	int r = client_new(&c, err);

	if (r == 0)
		r = client_resolve(c, text, ret_id, err);
	if (r == 0)
		*ret = steal_ptr(&c);
	return r;
}
