/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of requests: thrown away, collected, or passed on as they come.
 *
 * A handler that takes an upload may take fewer bytes than came. The connection is then suspended,
 * and the other bytes stay in MHD's buffer. There is no other buffer: the client waits in its
 * send(2). A form has one buffer more, because MHD's parser takes all that it is given. So the
 * parser is given little at a time, and nothing while the last piece is not taken.
 *
 * A body that is too long, or that is not a form where one is wanted, is answered here with an
 * error; what still comes of it is thrown away, up to a bound.
 */
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "pool/http/limits.h"
#include "common/str.h"
#include "pool/http/http_private.h"

#define FORM_BUFFER (8 * KIB) /* of MHD's parser: a boundary, the headers of a part */
#define FORM_PIECE (16 * KIB) /* given to it at once */

static bool discard(struct http_request *rq, size_t *len)
{
	rq->discarded += *len;
	*len = 0;
	return rq->discarded <= LIMIT_HTTP_DISCARD;
}

/* ---- collected ------------------------------------------------------------------------------ */

static void drop_text(struct http_request *rq)
{
	http_share_collected(rq);
	rq->text_len = rq->text_size = 0;
	free(steal_ptr(&rq->text));
}

/* Each body is bounded, connections are many: together they are, too. */
static void too_many(struct http_request *rq)
{
	rq->body = HTTP_DISCARD;
	drop_text(rq);
	http_answer_error(rq, 503, "too many bodies are being read at once: try again in a moment");
}

static void too_much(struct http_request *rq)
{
	char why[64];

	snprintf(why, sizeof(why), "the body may have %zu bytes at most", rq->max);
	rq->body = HTTP_DISCARD;
	drop_text(rq);
	http_answer_error(rq, 413, why);
}

void http_collect(struct http_request *rq, size_t max,
	void (*fn)(void *user, struct http_request *rq, const char *body, size_t len),
	void (*dropped)(void *user), void *user)
{
	rq->body = HTTP_COLLECT;
	rq->max = max;
	rq->collected = fn;
	rq->dropped = dropped;
	rq->body_user = user;
	if (rq->length != UINT64_MAX && rq->length > max)
		too_much(rq);
}

static bool text_grow(struct http_request *rq, size_t need)
{
	size_t size = rq->text_size ? 2 * rq->text_size : 1024;

	if (size < need)
		size = need;
	if (!http_share_collect(rq, size - rq->text_size))
		return false;
	rq->text_size = size;
	rq->text = realloc(rq->text, size);
	if (!rq->text)
		abort();
	return true;
}

static bool collect(struct http_request *rq, const char *bytes, size_t *len)
{
	if (*len > rq->max - rq->text_len) {
		too_much(rq);
		return discard(rq, len);
	}
	if (rq->text_len + *len + 1 > rq->text_size && !text_grow(rq, rq->text_len + *len + 1)) {
		too_many(rq);
		return discard(rq, len);
	}
	memcpy(rq->text + rq->text_len, bytes, *len);
	rq->text_len += *len;
	rq->text[rq->text_len] = '\0';
	*len = 0;
	return true;
}

/* ---- passed on ------------------------------------------------------------------------------ */

/* What data() takes of it. */
static size_t pass(struct http_request *rq, const char *bytes, size_t len)
{
	size_t took = 0;

	rq->go = false;
	if (len)
		took = rq->ops->data(rq->body_user, bytes, len);
	return took < len ? took : len;
}

/* Less was taken than came: no more until http_upload_resume(), which may have been called
 * already. */
static void stop(struct http_request *rq)
{
	rq->stopped = rq->excused = true;
	http_suspend(rq);
	if (rq->go)
		http_upload_resume(rq);
}

void http_upload_resume(struct http_request *rq)
{
	if (!rq->stopped) {
		rq->go = true;
		return;
	}
	rq->go = rq->stopped = false;
	http_resume(rq);
}

void http_upload(struct http_request *rq, const struct http_upload_ops *ops, void *user)
{
	rq->body = HTTP_UPLOAD;
	rq->ops = ops;
	rq->body_user = user;
	rq->max = LIMIT_HTTP_UPLOAD;
	if (rq->length != UINT64_MAX && rq->length > LIMIT_HTTP_UPLOAD)
		too_much(rq);
}

static bool upload(struct http_request *rq, const char *bytes, size_t *len)
{
	size_t came = *len, took;

	if (came > LIMIT_HTTP_UPLOAD - rq->received) {
		too_much(rq);
		return discard(rq, len);
	}
	took = pass(rq, bytes, came);
	rq->received += took;
	*len = came - took;
	if (took < came && rq->answer == HTTP_NO_ANSWER)
		stop(rq);
	else
		*len = 0; /* answered meanwhile: the rest is not wanted */
	return true;
}

/* ---- a form --------------------------------------------------------------------------------- */

static bool same(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static void part_begin(struct http_request *rq, const char *field, const char *filename)
{
	struct http_form_part *part;

	free(rq->part_field);
	free(rq->part_name);
	rq->part_field = field ? str_dup(field) : NULL;
	rq->part_name = filename ? str_dup(filename) : NULL;
	rq->part_bytes = 0;
	if (!filename) {
		rq->part = rq->part == HTTP_PART_NONE ? HTTP_PART_NONE : HTTP_PART_OTHER;
		return;
	}
	rq->part = HTTP_PART_FILE;
	rq->parts = reallocarray(rq->parts, rq->n_parts + 1, sizeof(*rq->parts));
	if (!rq->parts)
		abort();
	part = &rq->parts[rq->n_parts++];
	*part = (struct http_form_part){.at = rq->held_len,
		.field = str_dup(field ? field : ""),
		.filename = str_dup(filename)};
}

/* MHD's parser has more of a part. It tells of a part once at offset 0 without bytes where none are
 * there yet. */
static enum MHD_Result form_piece(void *cls, enum MHD_ValueKind kind, const char *field,
	const char *filename, const char *type, const char *encoding, const char *bytes,
	uint64_t offset, size_t len)
{
	struct http_request *rq = cls;

	(void)kind;
	(void)type;
	(void)encoding;
	if (rq->body != HTTP_FORM || rq->answer != HTTP_NO_ANSWER)
		return MHD_YES;
	if (offset == 0 &&
		(rq->part == HTTP_PART_NONE || rq->part_bytes || !same(field, rq->part_field) ||
			!same(filename, rq->part_name)))
		part_begin(rq, field, filename);
	rq->part_bytes += len;
	if (rq->part != HTTP_PART_FILE || !filename || !len)
		return MHD_YES;
	if (rq->held_len + len > rq->held_size) {
		rq->held_size = rq->held_len + len;
		rq->held = realloc(rq->held, rq->held_size);
		if (!rq->held)
			abort();
	}
	memcpy(rq->held + rq->held_len, bytes, len);
	rq->held_len += len;
	return MHD_YES;
}

static void part_forget(struct http_request *rq)
{
	free(rq->parts[0].field);
	free(rq->parts[0].filename);
	memmove(rq->parts, rq->parts + 1, --rq->n_parts * sizeof(*rq->parts));
}

/* false: some is left, and it is stopped. */
static bool form_drain(struct http_request *rq)
{
	while (rq->answer == HTTP_NO_ANSWER && (rq->held_at < rq->held_len || rq->n_parts)) {
		size_t end = rq->n_parts ? rq->parts[0].at : rq->held_len;

		rq->held_at += pass(rq, rq->held + rq->held_at, end - rq->held_at);
		if (rq->answer != HTTP_NO_ANSWER)
			break;
		if (rq->held_at < end ||
			(rq->n_parts &&
				!rq->on_part(rq->body_user, rq->parts[0].field,
					rq->parts[0].filename))) {
			stop(rq);
			return false;
		}
		if (rq->n_parts)
			part_forget(rq);
	}
	while (rq->n_parts)
		part_forget(rq);
	rq->held_at = rq->held_len = 0;
	return true;
}

static void no_form(struct http_request *rq, const char *why)
{
	rq->body = HTTP_DISCARD;
	http_answer_error(rq, 400, why);
}

void http_upload_form(struct http_request *rq, const struct http_upload_ops *ops,
	bool (*part)(void *user, const char *field, const char *filename), void *user)
{
	const char *type = http_header(rq, "Content-Type");

	http_upload(rq, ops, user);
	if (rq->body != HTTP_UPLOAD)
		return;
	rq->body = HTTP_FORM;
	rq->on_part = part;
	if (type && !strncasecmp(type, "multipart/form-data", 19))
		rq->form = MHD_create_post_processor(rq->mhd, FORM_BUFFER, form_piece, rq);
	if (!rq->form)
		no_form(rq, "the body must be multipart/form-data, with a boundary");
}

static bool form(struct http_request *rq, const char *bytes, size_t *len)
{
	while (*len && form_drain(rq)) {
		size_t piece = *len < FORM_PIECE ? *len : FORM_PIECE;

		if (piece > LIMIT_HTTP_UPLOAD - rq->received) {
			too_much(rq);
			return discard(rq, len);
		}
		if (MHD_post_process(rq->form, bytes, piece) != MHD_YES) {
			no_form(rq, "the body is no well-formed multipart/form-data");
			return discard(rq, len);
		}
		rq->received += piece;
		bytes += piece;
		*len -= piece;
		if (rq->answer != HTTP_NO_ANSWER) { /* the rest is not wanted */
			rq->body = HTTP_DISCARD;
			return discard(rq, len);
		}
	}
	if (!rq->stopped)
		form_drain(rq);
	return true;
}

/* false: not yet. */
static bool form_end(struct http_request *rq)
{
	if (!form_drain(rq))
		return false;
	if (MHD_destroy_post_processor(steal_ptr(&rq->form)) != MHD_YES)
		no_form(rq, "the form ends in the middle of a part");
	else if (rq->part == HTTP_PART_NONE)
		no_form(rq, "the form has no part with a file name");
	return true;
}

/* ---- each of them --------------------------------------------------------------------------- */

bool http_body_data(struct http_request *rq, const char *bytes, size_t *len)
{
	if (rq->body != HTTP_DISCARD && rq->answer != HTTP_NO_ANSWER)
		rq->body = HTTP_DISCARD; /* answered before its end */
	switch (rq->body) {
	case HTTP_COLLECT:
		return collect(rq, bytes, len);
	case HTTP_UPLOAD:
		return upload(rq, bytes, len);
	case HTTP_FORM:
		return form(rq, bytes, len);
	default:
		return discard(rq, len);
	}
}

void http_body_end(struct http_request *rq)
{
	if (rq->body == HTTP_FORM && rq->answer == HTTP_NO_ANSWER && !form_end(rq))
		return;
	rq->ended = true;
	if (rq->answer != HTTP_NO_ANSWER)
		return;
	if (rq->body == HTTP_COLLECT) {
		rq->dropped = NULL;
		/* it is borrowed until then: whoever waits for an answer holds none of it */
		rq->collected(rq->body_user, rq, rq->text ? rq->text : "", rq->text_len);
		drop_text(rq);
	} else if (rq->body == HTTP_UPLOAD || rq->body == HTTP_FORM) {
		rq->ops->end(rq->body_user);
	}
}

void http_body_free(struct http_request *rq)
{
	if (rq->dropped)
		rq->dropped(rq->body_user);
	if (rq->form)
		MHD_destroy_post_processor(rq->form);
	drop_text(rq);
	free(rq->held);
	free(rq->part_field);
	free(rq->part_name);
	while (rq->n_parts)
		part_forget(rq);
	free(rq->parts);
}
