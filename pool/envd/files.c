/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET and POST /files: a file out of and into a sandbox, byte for byte, as fast as the slower end
 * takes it and with one window of it in memory.
 *
 * A download's answer begins with the file's first bytes (or with its end). An error before that is
 * a status; an error after it cuts the answer, so that no client takes a part for the whole. An
 * upload has become a file when the agent says so. The agent writes beside the target and renames:
 * where the client goes away in the middle, the file that was there before is still there. A form
 * may have several files: they are written one after the other, and the answer lists all of them.
 */
#include "pool/envd/envd_private.h"
#include "pool/envd/gunzip.h"
#include "pool/envd/limits.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MODE_ASIS UINT32_MAX

struct file_call {
	struct envd_call call;
	struct guest_stream *s; /* NULL: none, or it is done */
	char user[LIMIT_USER + 1], path[PROTO_PATH_MAX + 1];
	uint32_t mode; /* of an upload; MODE_ASIS: the agent's own */
	bool stalled; /* the guest's bytes wait for the client */
	bool blocked; /* the client's bytes wait for the guest */
	bool named; /* ?path= says where it goes */
	bool begun; /* a file of the upload is being written */
	bool eof; /* all of it has been sent */
	bool over; /* the body's end has come */
	json_t *entries; /* of an upload: the files that are written */
	json_t *metadata; /* of an upload; NULL: none */
	bool wrong; /* it cannot be metadata */
	struct gunzip *gunzip; /* NULL: the body is as it is */
	uint64_t moved, moved_then;
};

static void file_stall(struct envd_call *c)
{
	struct file_call *f = (struct file_call *)c;

	if (f->moved != f->moved_then) {
		f->moved_then = f->moved;
		envd_call_limit(c, LIMIT_ENVD_STALL_MS, file_stall);
		return;
	}
	if (f->s)
		guest_stream_cancel(f->s);
	envd_fail(c, ENVD_DEADLINE, "%s: no byte has moved for %d s", f->path,
		LIMIT_ENVD_STALL_MS / 1000);
	envd_kick(c->w, c->id);
}

static void file_gone(struct envd_call *c)
{
	struct file_call *f = (struct file_call *)c;

	if (!f->s)
		return;
	guest_stream_cancel(f->s);
	envd_kick(c->w, c->id);
}

static int file_where(struct envd_call *c, const char *path)
{
	struct file_call *f = (struct file_call *)c;

	return envd_path(c, path, f->user, f->path);
}

/* Does the reply count @total bytes? */
static bool bytes_agree(const struct guest_reply *reply, uint64_t total)
{
	struct proto_in in = {.buf = reply->body, .len = reply->body_len};
	struct proto_field f;
	uint64_t bytes = 0;
	int rc;

	while ((rc = proto_next(&in, &f)) == 1) {
		if (f.tag == PROTO_T_BYTES && proto_u64(&f, &bytes) < 0)
			return false;
	}
	return rc == 0 && bytes == total;
}

/* ---- GET ---------------------------------------------------------------------------------- */

static void get_begin(struct envd_call *c)
{
	if (!c->begun)
		envd_begin(c, 200, "application/octet-stream");
}

static size_t get_data(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	struct file_call *f = user;
	struct envd_call *c = &f->call;
	size_t at = 0;

	if (channel != PROTO_OUT || !envd_call_open(c))
		return len;
	get_begin(c);
	while (at < len) {
		size_t n = len - at < LIMIT_ENVD_CHUNK ? len - at : LIMIT_ENVD_CHUNK;

		f->stalled = envd_call_full(c);
		if (f->stalled)
			break;
		envd_write(c, bytes + at, n);
		at += n;
	}
	f->moved += at;
	return at;
}

static void get_done(void *user, const struct guest_reply *reply)
{
	struct file_call *f = user;
	struct envd_call *c = &f->call;

	f->s = NULL;
	if (reply->error == EINVAL || reply->error == EISDIR) {
		envd_fail(c, ENVD_INVALID, "%s", reply->text);
	} else if (reply->error) {
		envd_fail_errno(c, reply->error, reply->text);
	} else if (!bytes_agree(reply, f->moved)) {
		envd_abort(c);
	} else {
		get_begin(c);
		envd_finish(c);
	}
	envd_call_release(c);
}

static void get_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	static const struct guest_stream_ops ops = {.data = get_data, .done = get_done};
	struct file_call *f = (struct file_call *)c;
	const char *path = http_query(c->rq, "path");
	uint8_t buf[PROTO_PATH_MAX + 64];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};

	(void)body;
	if (!path || !*path) {
		envd_fail(c, ENVD_INVALID, "?path= is needed: the file to read");
		return;
	}
	if (envd_user(c, t->user, f->user) < 0 || file_where(c, path) < 0)
		return;
	proto_put_str(&o, PROTO_T_PATH, f->path);
	f->s = envd_request(c, PROTO_FILE_GET, &o, &ops, f);
	if (f->s)
		envd_call_limit(c, LIMIT_ENVD_STALL_MS, file_stall);
}

static void file_writable(struct envd_call *c)
{
	struct file_call *f = (struct file_call *)c;

	if (!f->s || !f->stalled)
		return;
	f->stalled = false;
	guest_stream_resume(f->s);
	envd_kick(c->w, c->id);
}

/* ---- POST --------------------------------------------------------------------------------- */

/* X-Metadata-K: V, for each file of the upload. Of a K that comes twice the last counts. */
static void put_metadata(void *user, const char *name, const char *value)
{
	static const char prefix[] = "X-Metadata-";
	struct file_call *f = user;
	char key[LIMIT_ENVD_METADATA_KEY + 1];
	size_t n = sizeof(prefix) - 1, i;

	if (strncasecmp(name, prefix, n) != 0)
		return;
	f->wrong = f->wrong || !name[n] || strlen(name + n) >= sizeof(key) || strchr(name + n, '=');
	for (const char *p = value; *p; p++)
		f->wrong = f->wrong || *p < ' ' || *p > '~';
	if (f->wrong)
		return;
	for (i = 0; name[n + i]; i++)
		key[i] = (char)tolower((unsigned char)name[n + i]);
	key[i] = '\0';
	if (!f->metadata)
		f->metadata = json_object();
	json_object_set_new(f->metadata, key, json_string(value));
}

/* The metadata into @o, where it is all that a file may have. */
static int put_metadata_fields(struct file_call *f, struct proto_out *o)
{
	const char *key;
	json_t *value;
	size_t bytes = 0;

	http_each_header(f->call.rq, put_metadata, f);
	json_object_foreach(f->metadata, key, value)
	{
		cleanup_free char *pair = NULL;

		if (asprintf(&pair, "%s=%s", key, json_string_value(value)) < 0)
			abort();
		bytes += strlen(pair) + 1;
		if (bytes <= LIMIT_ENVD_METADATA)
			proto_put_str(o, PROTO_T_METADATA, pair);
	}
	if (!f->wrong && bytes <= LIMIT_ENVD_METADATA)
		return 0;
	envd_fail(&f->call, ENVD_INVALID,
		"X-Metadata-K: V: a K has up to %d bytes and no '=', a V is printable ASCII, and "
		"all of "
		"them together have up to %d bytes",
		LIMIT_ENVD_METADATA_KEY, LIMIT_ENVD_METADATA);
	return -EINVAL;
}

static void put_entry(struct file_call *f)
{
	const char *name = strrchr(f->path, '/') + 1;
	json_t *entry = json_pack("{s:o,s:s,s:o}", "name", json_lossy(name, strlen(name)), "type",
		"file", "path", json_lossy(f->path, strlen(f->path)));

	if (entry && f->metadata)
		json_object_set(entry, "metadata", f->metadata);
	if (!f->entries)
		f->entries = json_array();
	json_array_append_new(f->entries, entry);
}

/* What has come of it before, as the error's last words. */
static const char *put_before(const struct file_call *f)
{
	return json_array_size(f->entries) ? " (the files before it in the form are written)" : "";
}

static void put_done(void *user, const struct guest_reply *reply)
{
	struct file_call *f = user;
	struct envd_call *c = &f->call;

	f->s = NULL;
	f->begun = false;
	if (reply->error)
		envd_fail(c, envd_code_of(reply->error), "%s%s", reply->text, put_before(f));
	else if (!bytes_agree(reply, f->moved))
		envd_fail(c, ENVD_INTERNAL, "%s: fewer bytes arrived than were sent", f->path);
	else
		put_entry(f);
	if (f->over)
		envd_reply(c, 200, json_incref(f->entries));
	/* the next file; or the rest of the body, to be dropped */
	if (f->blocked && c->rq) {
		f->blocked = false;
		http_upload_resume(c->rq);
	}
	envd_call_release(c);
}

static void put_writable(void *user, enum proto_channel channel)
{
	struct file_call *f = user;

	if (channel != PROTO_IN || !f->blocked || !f->call.rq || f->eof)
		return;
	f->blocked = false;
	http_upload_resume(f->call.rq);
}

static void put_request(struct envd_call *c)
{
	static const struct guest_stream_ops ops = {.writable = put_writable, .done = put_done};
	struct file_call *f = (struct file_call *)c;
	uint8_t buf[PROTO_PATH_MAX + LIMIT_USER + 64 + 8 * LIMIT_ENVD_METADATA];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};

	if (put_metadata_fields(f, &o) < 0)
		return;
	proto_put_str(&o, PROTO_T_PATH, f->path);
	proto_put_bool(&o, PROTO_T_PARENTS, 1);
	if (f->mode != MODE_ASIS)
		proto_put_u32(&o, PROTO_T_MODE, f->mode);
	if (*f->user)
		proto_put_str(&o, PROTO_T_USER, f->user);
	f->moved = f->moved_then = 0;
	f->eof = false;
	f->s = envd_request(c, PROTO_FILE_PUT, &o, &ops, f);
	f->begun = f->s != NULL;
	if (f->s)
		envd_call_limit(c, LIMIT_ENVD_STALL_MS, file_stall);
}

/* To the guest: how many of the bytes it takes now. */
static size_t put_send(void *user, const void *bytes, size_t len)
{
	struct file_call *f = user;
	struct envd_call *c = &f->call;
	size_t n;

	if (len > LIMIT_HTTP_UPLOAD - f->moved) {
		guest_stream_cancel(f->s);
		envd_kick(c->w, c->id);
		envd_fail(c, ENVD_FULL, "more than the %llu bytes that a file may have",
			(unsigned long long)LIMIT_HTTP_UPLOAD);
		return len;
	}
	n = guest_stream_send(f->s, PROTO_IN, bytes, len);
	f->moved += n;
	f->blocked = n < len;
	if (n)
		envd_kick(c->w, c->id);
	return n;
}

/* The body is no gzip, or no whole one: nothing is written. */
static void put_broken(struct file_call *f, const char *why)
{
	guest_stream_cancel(f->s);
	envd_kick(f->call.w, f->call.id);
	envd_fail(&f->call, ENVD_INVALID, "Content-Encoding: gzip: the body %s", why);
}

static size_t put_data(void *user, const char *bytes, size_t len)
{
	struct file_call *f = user;
	const char *why = NULL;
	size_t n;

	if (!f->s || !envd_call_open(&f->call))
		return len;
	if (!f->gunzip)
		return put_send(f, bytes, len);
	n = gunzip_feed(f->gunzip, bytes, len, put_send, f, &why);
	if (why)
		put_broken(f, why);
	return why ? len : n;
}

static void put_eof(struct file_call *f)
{
	f->eof = true;
	guest_stream_eof(f->s, PROTO_IN);
	envd_kick(f->call.w, f->call.id);
}

static void put_end(void *user)
{
	struct file_call *f = user;
	struct envd_call *c = &f->call;

	f->over = true;
	if (f->begun && f->s && f->gunzip && !gunzip_whole(f->gunzip))
		put_broken(f, "ends before its end");
	else if (f->begun && f->s)
		put_eof(f);
	else if (f->entries)
		envd_reply(c, 200, json_incref(f->entries));
	else if (!f->begun)
		envd_fail(c, ENVD_INVALID, "there is no file in the form");
}

/* Is a file of this form written there already? */
static bool put_again(const struct file_call *f)
{
	const json_t *entry;
	size_t i;

	json_array_foreach(f->entries, i, entry)
	{
		const char *path = json_string_value(json_object_get(entry, "path"));

		if (path && !strcmp(path, f->path))
			return true;
	}
	return false;
}

/* The next file of a form. The one before it is written first. */
static bool put_part(void *user, const char *field, const char *filename)
{
	struct file_call *f = user;
	struct envd_call *c = &f->call;

	if (!envd_call_open(c))
		return true;
	if (f->begun) {
		if (!f->eof)
			put_eof(f);
		f->blocked = true;
		return false;
	}
	if (field && strcmp(field, "file") != 0) {
		envd_fail(c, ENVD_INVALID,
			"the form's field is called %.60s; \"file\" is expected%s", field,
			put_before(f));
		return true;
	}
	if (!f->named && (!filename || !*filename)) {
		envd_fail(c, ENVD_INVALID, "?path= or the file's name is needed: where it goes");
		return true;
	}
	if (!f->named && file_where(c, filename) < 0)
		return true;
	if (put_again(f)) {
		envd_fail(c, ENVD_INVALID,
			"%s: two files of the form go there, and the first has been written%s",
			f->path,
			f->named ? "; without ?path= each goes where its file name says" : "");
		return true;
	}
	put_request(c);
	return true;
}

/* ?mode=, octal: permission bits alone. */
static int put_mode(struct envd_call *c)
{
	struct file_call *f = (struct file_call *)c;
	const char *text = http_query(c->rq, "mode");
	char *end;
	unsigned long mode;

	f->mode = MODE_ASIS;
	if (!text)
		return 0;
	mode = strtoul(text, &end, 8);
	if (*text < '0' || *text > '7' || *end || mode > 0777) {
		envd_fail(c, ENVD_INVALID, "mode: permission bits are needed, in octal: 644");
		return -EINVAL;
	}
	f->mode = (uint32_t)mode;
	return 0;
}

static void put_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	static const struct http_upload_ops ops = {.data = put_data, .end = put_end};
	struct file_call *f = (struct file_call *)c;
	const char *type = http_header(c->rq, "Content-Type"), *path = http_query(c->rq, "path");
	const char *coded = http_header(c->rq, "Content-Encoding");

	(void)body;
	f->named = path && *path;
	if (envd_user(c, t->user, f->user) < 0 || put_mode(c) < 0 ||
		(f->named && file_where(c, path) < 0))
		return;
	if (coded && strcasecmp(coded, "identity") != 0) {
		bool form = type && !strncasecmp(type, "multipart/", 10);

		if (form || (strcasecmp(coded, "gzip") != 0 && strcasecmp(coded, "x-gzip") != 0)) {
			envd_fail(c, ENVD_TYPE, "Content-Encoding: %.60s: %s", coded,
				form ? "a form is sent as it is; gzip is for "
				       "application/octet-stream"
				     : "only gzip is decoded");
			return;
		}
		f->gunzip = gunzip_new();
	}
	if (type && !strncasecmp(type, "multipart/form-data", 19)) {
		http_upload_form(c->rq, &ops, put_part, f);
		return;
	}
	if (!type || strncasecmp(type, "application/octet-stream", 24) != 0) {
		envd_fail(c, ENVD_INVALID,
			"send the file as multipart/form-data (field \"file\") or as Content-Type: "
			"application/octet-stream (got %.100s)",
			type ? type : "none");
		return;
	}
	if (!f->named) {
		envd_fail(c, ENVD_INVALID, "?path= is needed: where the file goes");
		return;
	}
	put_request(c);
	if (f->s)
		http_upload(c->rq, &ops, f);
}

static void put_destroy(struct envd_call *c)
{
	struct file_call *f = (struct file_call *)c;

	json_decref(f->entries);
	json_decref(f->metadata);
	gunzip_free(f->gunzip);
}

const struct envd_route envd_routes_files[] = {
	{.method = "GET",
		.path = "/files",
		.style = ENVD_PLAIN,
		.size = sizeof(struct file_call),
		.start = get_start,
		.writable = file_writable,
		.gone = file_gone},
	{.method = "POST",
		.path = "/files",
		.style = ENVD_PLAIN,
		.size = sizeof(struct file_call),
		.start = put_start,
		.gone = file_gone,
		.destroy = put_destroy},
	{0},
};
