/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of a checkpoint, capture.json: {"capture": {…}, "digest": "sha256:…"}. The digest is
 * that of the text of "capture" as json_text() makes it (compact, keys sorted), so that a changed
 * byte is found here as it is in the other files. docs/format.md lists the fields.
 */
#include <string.h>

#include "restore/checkpoint_private.h"

void checkpoint_record_clear(struct checkpoint_record *r)
{
	snapshot_ranges_clear(&r->ranges);
	*r = (struct checkpoint_record){0};
}

static json_t *file_to_json(const struct checkpoint_file *f, uint64_t raw)
{
	json_t *obj = json_pack("{s:s, s:I, s:I}", "digest", f->digest, "bytes",
		(json_int_t)f->bytes, "raw_bytes", (json_int_t)raw);

	if (!obj)
		abort(); /* no memory */
	return obj;
}

char *checkpoint_record_text(const struct checkpoint_record *r)
{
	cleanup_json json_t *all = NULL;
	cleanup_free char *inner = NULL;
	char digest[DIGEST_TEXT_SIZE];
	json_t *capture = json_pack(
		"{s:i, s:s, s:s, s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:s, s:s, s:I, s:I}",
		"format", CHECKPOINT_FORMAT, "parbake", PARBAKE_VERSION, "manifest", r->manifest,
		"name", r->name, "tag", r->tag, "memory_bytes", (json_int_t)r->memory_bytes,
		"disk_bytes", (json_int_t)r->disk_bytes, "memory_ranges",
		snapshot_ranges_to_json(&r->ranges), "memory",
		file_to_json(&r->memory, r->memory_raw), "disk",
		file_to_json(&r->disk, r->disk_raw), "state",
		file_to_json(&r->state, r->state.bytes), "machine_id", r->machine_id, "hostname",
		r->hostname, "stopped_ns", (json_int_t)r->stopped_ns, "created",
		(json_int_t)r->created);

	if (!capture)
		abort();
	inner = json_text(capture);
	digest_buffer(inner, strlen(inner), digest);
	all = json_pack("{s:o, s:s}", "capture", capture, "digest", digest);
	if (!all)
		abort();
	return json_text(all);
}

/* ---- reading ----------------------------------------------------------------------------------- */

static int text_field(const json_t *obj, const char *key, char *ret, size_t size, struct err *err)
{
	const char *text;
	int r = json_get_string(obj, key, &text, err);

	if (r < 0)
		return r;
	if (strlen(text) >= size)
		return err_set(err, EINVAL, "\"%s\" is too long", key);
	for (const char *at = text; *at; at++) {
		if (*at < ' ' || *at > '~')
			return err_set(err, EINVAL, "\"%s\" has a character it may not have", key);
	}
	snprintf(ret, size, "%s", text);
	return 0;
}

static int digest_field(
	const json_t *obj, const char *key, char ret[static DIGEST_TEXT_SIZE], struct err *err)
{
	int r = text_field(obj, key, ret, DIGEST_TEXT_SIZE, err);

	if (r == 0 && !digest_valid(ret))
		r = err_set(err, EINVAL, "\"%s\" is not a digest", key);
	return r;
}

static int file_from_json(const json_t *obj, const char *key, uint64_t min, uint64_t max,
	uint64_t max_raw, struct checkpoint_file *ret, uint64_t *ret_raw, struct err *err)
{
	const json_t *file = json_object_get(obj, key);
	int r = json_get_u64(file, "bytes", min, max, &ret->bytes, err);

	if (r == 0)
		r = json_get_u64(file, "raw_bytes", 0, max_raw, ret_raw, err);
	if (r == 0 && ret->bytes)
		r = digest_field(file, "digest", ret->digest, err);
	if (r < 0)
		err_prefix(err, "\"%s\"", key);
	return r;
}

static bool id_valid(const char *id)
{
	return strlen(id) == 32 && strspn(id, "0123456789abcdef") == 32;
}

static int identity(const json_t *obj, struct checkpoint_record *c, struct err *err)
{
	int r = text_field(obj, "machine_id", c->machine_id, sizeof(c->machine_id), err);

	if (r == 0 && !id_valid(c->machine_id))
		r = err_set(err, EINVAL, "\"machine_id\" is not one");
	if (r == 0)
		r = text_field(obj, "hostname", c->hostname, sizeof(c->hostname), err);
	return r;
}

static int fields(const json_t *obj, struct checkpoint_record *c, struct err *err)
{
	uint64_t format, state_raw, stopped, created;
	int r = json_get_u64(obj, "format", 0, INT64_MAX, &format, err);

	if (r == 0 && format != CHECKPOINT_FORMAT)
		return err_set(err, EINVAL, "it has format %llu, this parbake reads format %d",
			(unsigned long long)format, CHECKPOINT_FORMAT);
	if (r < 0 || (r = digest_field(obj, "manifest", c->manifest, err)) < 0 ||
		(r = text_field(obj, "name", c->name, sizeof(c->name), err)) < 0 ||
		(r = text_field(obj, "tag", c->tag, sizeof(c->tag), err)) < 0 ||
		(r = json_get_u64(obj, "memory_bytes", LIMIT_MEMORY_MIN, LIMIT_MEMORY_MAX,
			 &c->memory_bytes, err)) < 0 ||
		(r = json_get_u64(obj, "disk_bytes", 1, LIMIT_DISK_MAX, &c->disk_bytes, err)) < 0 ||
		(r = file_from_json(obj, CHECKPOINT_MEMORY, 0, 2 * LIMIT_MEMORY_MAX,
			 c->memory_bytes, &c->memory, &c->memory_raw, err)) < 0 ||
		(r = file_from_json(obj, CHECKPOINT_DISK, 1, 3 * LIMIT_DISK_MAX, c->disk_bytes,
			 &c->disk, &c->disk_raw, err)) < 0 ||
		(r = file_from_json(obj, CHECKPOINT_STATE, 1, LIMIT_STATE_BYTES, LIMIT_STATE_BYTES,
			 &c->state, &state_raw, err)) < 0 ||
		(r = identity(obj, c, err)) < 0 ||
		(r = json_get_u64(obj, "stopped_ns", 0, INT64_MAX, &stopped, err)) < 0 ||
		(r = json_get_u64(obj, "created", 0, INT64_MAX, &created, err)) < 0)
		return r;
	c->stopped_ns = (int64_t)stopped;
	c->created = (int64_t)created;
	return snapshot_ranges_from_json(
		json_object_get(obj, "memory_ranges"), c->memory_bytes, &c->ranges, err);
}

int checkpoint_record_parse(
	const void *text, size_t len, struct checkpoint_record *ret, struct err *err)
{
	cleanup_checkpoint_record struct checkpoint_record c = {0};
	cleanup_json json_t *all = NULL;
	cleanup_free char *inner = NULL;
	const json_t *obj;
	const char *want;
	char digest[DIGEST_TEXT_SIZE];
	int r = json_parse(STORE_CAPTURE_FILE, text, len, &all, err);

	if (r < 0) {
		err_prefix(err, "it is damaged");
		return r == -ENOMEM ? r : -EBADMSG;
	}
	obj = json_object_get(all, "capture");
	if (!json_is_object(obj))
		return err_set(err, EBADMSG, "it is damaged: no object \"capture\"");
	inner = json_text(obj);
	digest_buffer(inner, strlen(inner), digest);
	if (json_get_string(all, "digest", &want, NULL) < 0 || strcmp(want, digest) != 0)
		return err_set(err, EBADMSG, "it is damaged: its digest is another");
	r = fields(obj, &c, err);
	if (r < 0)
		return -EBADMSG;
	*ret = c;
	c = (struct checkpoint_record){0};
	return 0;
}
