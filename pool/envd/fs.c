/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filesystem.Filesystem: Stat, ListDir, MakeDir, Move, Remove, as unary requests of the Connect
 * protocol.
 *
 * Each is a few requests to the agent one after the other; `next` is the function that runs when
 * one of them is done. A listing goes as deep as the request says, directory by directory, up to
 * LIMIT_ENVD_ENTRIES entries. The entries of a directory are sorted by name, and the content of a
 * subdirectory follows right behind its own entry.
 */
#include "common/buffer.h"
#include "pool/envd/entry.h"
#include "pool/envd/envd_private.h"
#include "pool/envd/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>

/* A directory still to be listed. */
struct fs_dir {
	unsigned depth; /* of what is in it, from 1 */
	SLIST_ENTRY(fs_dir) link;
	char path[];
};

struct fs_call {
	struct envd_call call;
	struct guest_stream *s; /* NULL: none, or it is done */
	void (*next)(struct fs_call *f, int error, const char *text);
	char user[LIMIT_USER + 1], path[PROTO_PATH_MAX + 1], path2[PROTO_PATH_MAX + 1];
	/* STAT's answer */
	struct proto_stat stat;
	char link[PROTO_PATH_MAX + 1];
	json_t *metadata; /* NULL: none */
	/* the listing */
	unsigned max_depth;
	bool too_many;
	SLIST_HEAD(, fs_dir) dirs; /* the first is being listed */
	json_t *entries;
	struct buffer part; /* of an entry that runs on in the next frame */
};

/* ---- asking the agent --------------------------------------------------------------------- */

static void add_metadata(struct fs_call *f, const struct proto_field *field)
{
	char pair[PROTO_METADATA_MAX];
	json_t *one;

	if (proto_str(field, pair, sizeof(pair) - 1) < 0)
		return;
	one = envd_metadata(pair, strlen(pair) + 1);
	if (one && f->metadata)
		json_object_update(f->metadata, one);
	else if (one)
		f->metadata = json_incref(one);
	json_decref(one);
}

static bool stat_parse(struct fs_call *f, const struct guest_reply *reply)
{
	struct proto_in in = {.buf = reply->body, .len = reply->body_len};
	struct proto_field field;
	bool found = false;
	int rc;

	f->link[0] = '\0';
	json_decref(f->metadata);
	f->metadata = NULL;
	while ((rc = proto_next(&in, &field)) == 1) {
		if (field.tag == PROTO_T_STAT) {
			if (field.len != PROTO_STAT_LEN)
				return false;
			memcpy(&f->stat, field.data, PROTO_STAT_LEN);
			found = true;
		} else if (field.tag == PROTO_T_LINK &&
			proto_str(&field, f->link, PROTO_PATH_MAX) < 0) {
			return false;
		} else if (field.tag == PROTO_T_METADATA) {
			add_metadata(f, &field);
		}
	}
	return rc == 0 && found;
}

static void fs_done(void *user, const struct guest_reply *reply)
{
	struct fs_call *f = user;

	f->s = NULL;
	if (envd_call_open(&f->call))
		f->next(f, reply->error, reply->text);
	envd_call_release(&f->call);
}

static void fs_stat_done(void *user, const struct guest_reply *reply)
{
	struct fs_call *f = user;

	f->s = NULL;
	if (envd_call_open(&f->call)) {
		if (!reply->error && !stat_parse(f, reply))
			f->next(f, EPROTO, "the agent's answer is broken");
		else
			f->next(f, reply->error, reply->text);
	}
	envd_call_release(&f->call);
}

static void fs_late(struct envd_call *c)
{
	struct fs_call *f = (struct fs_call *)c;

	if (f->s)
		guest_stream_cancel(f->s);
	envd_fail(c, ENVD_DEADLINE, "%s: the sandbox did not answer in %d s", f->path,
		LIMIT_ENVD_CALL_MS / 1000);
	envd_kick(c->w, c->id);
}

static void fs_gone(struct envd_call *c)
{
	struct fs_call *f = (struct fs_call *)c;

	if (!f->s)
		return;
	guest_stream_cancel(f->s);
	envd_kick(c->w, c->id);
}

static void fs_ask(struct fs_call *f, enum proto_type type, const char *path,
	const struct guest_stream_ops *ops,
	void (*next)(struct fs_call *f, int error, const char *text))
{
	uint8_t buf[2 * PROTO_PATH_MAX + LIMIT_USER + 128];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};

	proto_put_str(&o, PROTO_T_PATH, path);
	if (type == PROTO_FILE_RENAME)
		proto_put_str(&o, PROTO_T_PATH2, f->path2);
	if (type == PROTO_FILE_MKDIR || type == PROTO_FILE_RENAME)
		proto_put_bool(&o, PROTO_T_PARENTS, 1);
	if (type == PROTO_FILE_REMOVE)
		proto_put_bool(&o, PROTO_T_RECURSIVE, 1);
	if (*f->user && type == PROTO_FILE_MKDIR)
		proto_put_str(&o, PROTO_T_USER, f->user);
	f->next = next;
	f->s = envd_request(&f->call, type, &o, ops, f);
}

static const struct guest_stream_ops plain_ops = {.done = fs_done};
static const struct guest_stream_ops stat_ops = {.done = fs_stat_done};

/* ---- answers ------------------------------------------------------------------------------- */

static void reply_entry(struct fs_call *f, const char *path)
{
	envd_reply(&f->call, 200,
		json_pack("{s:o}", "entry",
			envd_entry(path, &f->stat, f->link, steal_ptr(&f->metadata))));
}

static void reply_stat(struct fs_call *f, int error, const char *text)
{
	if (error)
		envd_fail_errno(&f->call, error, text);
	else
		reply_entry(f, f->path);
}

/* ---- what requests say -------------------------------------------------------------------- */

/* The path at @key; trailing slashes taken off. */
static int fs_path(
	struct fs_call *f, const json_t *body, const char *key, char ret[PROTO_PATH_MAX + 1])
{
	const char *text;
	size_t n;

	if (envd_string(&f->call, body, key, &text) < 0)
		return -EINVAL;
	if (!*text) {
		envd_fail(&f->call, ENVD_INVALID, "%s: is needed", key);
		return -EINVAL;
	}
	if (envd_path(&f->call, text, f->user, ret) < 0)
		return -EINVAL;
	for (n = strlen(ret); n > 1 && ret[n - 1] == '/'; n--)
		ret[n - 1] = '\0';
	return 0;
}

static int fs_begin(
	struct envd_call *c, const struct envd_target *t, const json_t *body, const char *key)
{
	struct fs_call *f = (struct fs_call *)c;

	if (envd_user(c, t->user, f->user) < 0 || fs_path(f, body, key, f->path) < 0)
		return -EINVAL;
	envd_call_limit(c, LIMIT_ENVD_CALL_MS, fs_late);
	return 0;
}

/* ---- the methods -------------------------------------------------------------------------- */

static void stat_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct fs_call *f = (struct fs_call *)c;

	if (fs_begin(c, t, body, "path") == 0)
		fs_ask(f, PROTO_FILE_STAT, f->path, &stat_ops, reply_stat);
}

static void made(struct fs_call *f, int error, const char *text)
{
	if (error)
		envd_fail_errno(&f->call, error, text);
	else
		fs_ask(f, PROTO_FILE_STAT, f->path, &stat_ops, reply_stat);
}

/* What is there already? */
static void make_looked(struct fs_call *f, int error, const char *text)
{
	if (error == ENOENT)
		fs_ask(f, PROTO_FILE_MKDIR, f->path, &plain_ops, made);
	else if (error)
		envd_fail_errno(&f->call, error, text);
	else if (S_ISDIR(f->stat.mode))
		envd_fail(&f->call, ENVD_EXISTS, "the directory %s is there already", f->path);
	else
		envd_fail(&f->call, ENVD_INVALID, "%s is there already, and no directory", f->path);
}

static void make_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct fs_call *f = (struct fs_call *)c;

	if (fs_begin(c, t, body, "path") == 0)
		fs_ask(f, PROTO_FILE_STAT, f->path, &stat_ops, make_looked);
}

static void move_looked(struct fs_call *f, int error, const char *text)
{
	if (error)
		envd_fail_errno(&f->call, error, text);
	else
		reply_entry(f, f->path2);
}

static void moved(struct fs_call *f, int error, const char *text)
{
	if (error)
		envd_fail_errno(&f->call, error, text);
	else
		fs_ask(f, PROTO_FILE_STAT, f->path2, &stat_ops, move_looked);
}

static void move_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct fs_call *f = (struct fs_call *)c;

	if (fs_begin(c, t, body, "source") == 0 && fs_path(f, body, "destination", f->path2) == 0)
		fs_ask(f, PROTO_FILE_RENAME, f->path, &plain_ops, moved);
}

/* What is not there is removed already. */
static void removed(struct fs_call *f, int error, const char *text)
{
	if (error && error != ENOENT)
		envd_fail_errno(&f->call, error, text);
	else
		envd_reply(&f->call, 200, json_object());
}

static void remove_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct fs_call *f = (struct fs_call *)c;

	if (fs_begin(c, t, body, "path") == 0)
		fs_ask(f, PROTO_FILE_REMOVE, f->path, &plain_ops, removed);
}

/* ---- ListDir ------------------------------------------------------------------------------ */

static void list_push(struct fs_call *f, const char *path, unsigned depth)
{
	struct fs_dir *d = malloc(sizeof(*d) + strlen(path) + 1);
	struct fs_dir *listed = SLIST_FIRST(&f->dirs);

	if (!d)
		abort();
	d->depth = depth;
	strcpy(d->path, path);
	if (listed)
		SLIST_INSERT_AFTER(listed, d, link);
	else
		SLIST_INSERT_HEAD(&f->dirs, d, link);
}

static void list_pop(struct fs_call *f)
{
	struct fs_dir *d = SLIST_FIRST(&f->dirs);

	SLIST_REMOVE_HEAD(&f->dirs, link);
	free(d);
}

static void list_entry(struct fs_call *f, const struct proto_stat *st, const char *name,
	const char *link, const char *metadata)
{
	const struct fs_dir *d = SLIST_FIRST(&f->dirs);
	char path[PROTO_PATH_MAX + 1];

	if (json_array_size(f->entries) >= LIMIT_ENVD_ENTRIES) {
		f->too_many = true;
		return;
	}
	if (snprintf(path, sizeof(path), "%s%s%s", d->path, d->path[1] ? "/" : "", name) >=
		(int)sizeof(path))
		return;
	json_array_append_new(
		f->entries, envd_entry(path, st, link, envd_metadata(metadata, st->metadata_len)));
	if (S_ISDIR(st->mode) && d->depth < f->max_depth)
		list_push(f, path, d->depth + 1);
}

/* The entries that are whole. false: the agent sends nonsense. */
static bool list_parse(struct fs_call *f)
{
	while (f->part.len >= PROTO_DIRENT_HEAD) {
		const uint8_t *p = f->part.bytes + f->part.head;
		struct proto_stat st;
		char name[256], link[PROTO_PATH_MAX + 1], metadata[PROTO_METADATA_MAX];
		uint16_t n[2]; /* of name and link */
		size_t whole;

		memcpy(&st, p, sizeof(st));
		memcpy(n, p + PROTO_STAT_LEN, sizeof(n));
		if (!n[0] || n[0] >= sizeof(name) || n[1] >= sizeof(link) ||
			st.metadata_len > sizeof(metadata))
			return false;
		whole = PROTO_DIRENT_HEAD + n[0] + n[1] + st.metadata_len;
		if (f->part.len < whole)
			break;
		memcpy(name, p + PROTO_DIRENT_HEAD, n[0]);
		memcpy(link, p + PROTO_DIRENT_HEAD + n[0], n[1]);
		memcpy(metadata, p + PROTO_DIRENT_HEAD + n[0] + n[1], st.metadata_len);
		name[n[0]] = link[n[1]] = '\0';
		if (strlen(name) != n[0] || strchr(name, '/'))
			return false;
		buffer_consume(&f->part, whole);
		list_entry(f, &st, name, link, metadata);
	}
	return true;
}

static size_t list_data(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	struct fs_call *f = user;
	struct envd_call *c = &f->call;

	if (channel != PROTO_OUT || !envd_call_open(c))
		return len;
	buffer_append(&f->part, bytes, len);
	if (!list_parse(f)) {
		guest_stream_cancel(f->s);
		envd_fail(c, ENVD_INTERNAL, "%s: the agent's listing is broken", f->path);
	} else if (f->too_many) {
		guest_stream_cancel(f->s);
		envd_fail(c, ENVD_EXHAUSTED,
			"%s: more than %d entries; list less deep, or with a command", f->path,
			LIMIT_ENVD_ENTRIES);
	}
	return len;
}

static const struct guest_stream_ops list_ops = {.data = list_data, .done = fs_done};

/* As a walk meets them: by name, byte for byte, what is in a directory right behind it. */
static int compare_entries(const void *a, const void *b)
{
	const char *x = json_string_value(json_object_get(*(json_t *const *)a, "path"));
	const char *y = json_string_value(json_object_get(*(json_t *const *)b, "path"));

	while (*x && *x == *y)
		x++, y++;
	if (*x == '/' || *y == '/') /* before any other byte, and behind the end */
		return *x == *y ? 0 : *x == '/' ? (*y ? -1 : 1) : (*x ? 1 : -1);
	return (unsigned char)*x - (unsigned char)*y;
}

/* A new array: @entries in their order. */
static json_t *in_order(const json_t *entries)
{
	size_t n = json_array_size(entries), i;
	json_t **all = calloc(n + 1, sizeof(*all)), *list = json_array(), *entry;

	if (!all || !list)
		abort();
	json_array_foreach(entries, i, entry) all[i] = entry;
	qsort(all, n, sizeof(*all), compare_entries);
	for (i = 0; i < n; i++)
		json_array_append(list, all[i]);
	free(all);
	return list;
}

static void list_next(struct fs_call *f, int error, const char *text)
{
	/* a directory below that has just been removed, or is closed to us, is left out */
	if (error && SLIST_FIRST(&f->dirs)->depth == 1) {
		envd_fail_errno(&f->call, error, text);
		return;
	}
	buffer_free(&f->part);
	list_pop(f);
	if (!SLIST_EMPTY(&f->dirs))
		fs_ask(f, PROTO_FILE_LIST, SLIST_FIRST(&f->dirs)->path, &list_ops, list_next);
	else
		envd_reply(&f->call, 200, json_pack("{s:o}", "entries", in_order(f->entries)));
}

static void list_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct fs_call *f = (struct fs_call *)c;
	json_int_t depth = json_integer_value(json_object_get(body, "depth"));

	if (depth < 0 || depth > LIMIT_ENVD_DEPTH) {
		envd_fail(c, ENVD_INVALID, "depth: from 1 to %d", LIMIT_ENVD_DEPTH);
		return;
	}
	if (fs_begin(c, t, body, "path") < 0)
		return;
	f->max_depth = depth ? (unsigned)depth : 1;
	f->entries = json_array();
	list_push(f, f->path, 1);
	fs_ask(f, PROTO_FILE_LIST, f->path, &list_ops, list_next);
}

static void fs_destroy(struct envd_call *c)
{
	struct fs_call *f = (struct fs_call *)c;

	while (!SLIST_EMPTY(&f->dirs))
		list_pop(f);
	buffer_free(&f->part);
	json_decref(f->metadata);
	json_decref(f->entries);
}

#define METHOD(name, fn)                                                                           \
	{                                                                                          \
		.method = "POST", .path = "/filesystem.Filesystem/" name, .style = ENVD_UNARY,     \
		.body = true, .size = sizeof(struct fs_call), .start = (fn), .gone = fs_gone,      \
		.destroy = fs_destroy                                                              \
	}

const struct envd_route envd_routes_filesystem[] = {
	METHOD("Stat", stat_start),
	METHOD("ListDir", list_start),
	METHOD("MakeDir", make_start),
	METHOD("Move", move_start),
	METHOD("Remove", remove_start),
	{0},
};
