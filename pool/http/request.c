/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request: its parsed head, and how long it lives.
 *
 * A request lives until MHD is done with it and its handler owes no answer any more. Where the
 * client goes first, a handler that asked for it (http_on_end()) is told, and the request is freed.
 * A handler that did not ask will answer some time, without checking: until then the request stays,
 * without a connection.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/limits.h"
#include "common/str.h"
#include "pool/http/http_private.h"

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool http_decode(char *text, bool plus)
{
	char *to = text;

	for (const char *p = text; *p; p++) {
		if (*p == '%') {
			int high = digit(p[1]), low = high < 0 ? -1 : digit(p[2]);

			if (low < 0 || high + low == 0)
				return false;
			*to++ = (char)(high * 16 + low);
			p += 2;
		} else {
			*to++ = plus && *p == '+' ? ' ' : *p;
		}
	}
	*to = '\0';
	return true;
}

/* name=value&name&… in place. */
static bool parse_query(struct http_request *rq, char *query)
{
	char *save = NULL;

	for (char *p = strtok_r(query, "&", &save); p; p = strtok_r(NULL, "&", &save)) {
		char *value = strchr(p, '=');

		if (value)
			*value++ = '\0';
		else
			value = p + strlen(p);
		if (!http_decode(p, true) || !http_decode(value, true))
			return false;
		rq->query = reallocarray(rq->query, rq->n_query + 1, sizeof(*rq->query));
		if (!rq->query)
			abort();
		rq->query[rq->n_query++] = (struct http_pair){.name = p, .value = value};
	}
	return true;
}

/* ---- where its body ends -------------------------------------------------------------------- */

struct framing {
	unsigned lengths, encodings, hosts;
	const char *length, *encoding;
	const char
		*end; /* behind the field that was seen last; NULL: none was, or it says nothing */
	bool in_a_row; /* the fields lie in MHD's buffer as they came */
	bool broken; /* a field that is none */
};

/* What a field may not have in it: a CR alone is a line's end to some, a NUL a text's. */
static bool has_controls(const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if ((c < ' ' && c != '\t') || c == 0x7f)
			return true;
	}
	return false;
}

static enum MHD_Result framing_field(void *cls, enum MHD_ValueKind kind, const char *name,
	size_t name_len, const char *value, size_t value_len)
{
	static const char no_token[] = " \t\"(),/:;<=>?@[\\]{}";
	struct framing *f = cls;

	(void)kind;
	if (!value || strlen(name) != name_len || strpbrk(name, no_token) || has_controls(name) ||
		strlen(value) != value_len || has_controls(value))
		f->broken = true;
	/* each follows the one before it and its CRLF: no line ends otherwise, is folded, or hides something
	 * behind a NUL */
	if (f->end && name != f->end + 2)
		f->broken = true;
	f->end = value && f->in_a_row ? value + value_len : NULL;
	f->hosts += !strcasecmp(name, "Host");
	if (!strcasecmp(name, "Content-Length")) {
		f->lengths++;
		f->length = value;
	} else if (!strcasecmp(name, "Transfer-Encoding")) {
		f->encodings++;
		f->encoding = value;
	}
	return MHD_YES;
}

/*
 * Of the body; UINT64_MAX: told by its chunks. @head: where the request begins in MHD's buffer, in which its fields lie
 * one behind the other. MHD has refused what is no number, and takes the first of two
 * that differ. A proxy in front of us may take the other, and what it holds for a body would be the next
 * request here: so what can be read in two ways is refused (RFC 9112, 5.1 and 6.3). NULL, or why.
 */
static const char *body_length(struct http_request *rq, const char *head)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(rq->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	/* what was looked at; newer ones refuse such lines themselves */
	struct framing f = {.in_a_row = !strcmp(MHD_get_version(), "0.9.75")};
	char *end;

	MHD_get_connection_values_n(rq->mhd, MHD_HEADER_KIND, framing_field, &f);
	/* behind the last there is its CRLF, and the empty line */
	if (f.end && (!info || f.end + 4 != head + info->header_size))
		f.broken = true;
	if (f.broken)
		return "a header's name or value has a character that it may not have, or its line "
		       "does not end as it must (CR LF)";
	if (f.hosts > 1)
		return "there are two Host headers";
	if (f.lengths + f.encodings > 1)
		return "the length of the body is told twice: one Content-Length, or one "
		       "Transfer-Encoding";
	if (f.encodings && (!f.encoding || strcasecmp(f.encoding, "chunked") != 0))
		return "Transfer-Encoding: only \"chunked\" is known here";
	if (f.length && !isdigit((unsigned char)*f.length))
		return "Content-Length: not a number";
	errno = 0;
	rq->length = f.encodings ? UINT64_MAX : f.length ? strtoull(f.length, &end, 10) : 0;
	/* no body has so many bytes; the greatest number says "not told" to libmicrohttpd, and here */
	if (f.length && (*end || errno || rq->length > INT64_MAX))
		return "Content-Length: not a number of bytes that can be";
	return NULL;
}

struct http_request *http_request_new(struct http_conn *conn, struct MHD_Connection *mhd,
	const char *method, char *uri, unsigned *ret_status, const char **ret_why)
{
	struct http_request *rq = calloc(1, sizeof(*rq));
	struct http_server *s = conn->s;
	char *query;

	if (!rq)
		abort();
	*rq = (struct http_request){.s = s, .conn = conn, .mhd = mhd};
	rq->tcp = conn->tcp;
	rq->uid = conn->uid;
	rq->method = str_dup(method);
	rq->uri = uri;
	rq->target = str_dup(uri);
	query = strchr(uri, '?');
	if (query)
		*query++ = '\0';
	rq->path = str_dup(uri);
	LIST_INSERT_HEAD(&s->requests, rq, link);
	conn->rq = rq;
	*ret_status = 0;
	*ret_why = body_length(rq, method);
	if (*ret_why) {
		*ret_status = 400;
		rq->unframed = true;
		http_add_header(rq, "Connection", "close");
	} else if (!http_decode(rq->path, false) || (query && !parse_query(rq, query))) {
		*ret_status = 400;
		*ret_why = "the address has a % that begins no %XX, or a NUL";
	} else if (rq->path[0] != '/' && strcmp(rq->path, "*")) {
		*ret_status = 400;
		*ret_why = "the address of a request must begin with /";
	}
	return rq;
}

void http_request_over(struct http_request *rq, bool sent)
{
	void (*fn)(void *user, bool complete) = rq->on_end;
	bool complete = sent && rq->queued && !rq->gone;

	if (rq->answer == HTTP_STREAM)
		complete &= rq->stream_over && !rq->stream_cut && rq->ring_len == 0;
	if (rq->conn) {
		rq->conn->rq = NULL;
		rq->conn->deadline = clock_now_ns() + rq->s->idle_ns;
		if (rq->s->quiesced)
			rq->conn->deadline = 0;
	}
	rq->conn = NULL;
	rq->mhd = NULL;
	rq->suspended = false;
	rq->gone = true;
	rq->on_end = NULL;
	if (fn) {
		fn(rq->end_user, complete);
		http_request_free(rq);
		return;
	}
	if (rq->answer == HTTP_STREAM && !rq->stream_over) {
		if (rq->want_room)
			http_answer_tell(rq); /* all there is, now */
		return;
	}
	/* a body that never came whole was never given to the handler, which therefore owes
	 * nothing */
	if (rq->answer != HTTP_NO_ANSWER || (rq->body == HTTP_COLLECT && !rq->ended))
		http_request_free(rq);
}

void http_request_free(struct http_request *rq)
{
	LIST_REMOVE(rq, link);
	http_body_free(rq);
	http_answer_free(rq);
	free(rq->method);
	free(rq->uri);
	free(rq->target);
	free(rq->path);
	free(rq->query);
	free(rq);
}

const char *http_method(const struct http_request *rq)
{
	return rq->method;
}

const char *http_path(const struct http_request *rq)
{
	return rq->path;
}

const char *http_header(const struct http_request *rq, const char *name)
{
	return rq->mhd ? MHD_lookup_connection_value(rq->mhd, MHD_HEADER_KIND, name) : NULL;
}

const char *http_query(const struct http_request *rq, const char *name)
{
	for (size_t i = 0; i < rq->n_query; i++)
		if (!strcmp(rq->query[i].name, name))
			return rq->query[i].value;
	return NULL;
}

const char *http_target(const struct http_request *rq)
{
	return rq->target;
}

uint64_t http_body_length(const struct http_request *rq)
{
	return rq->length;
}

struct each {
	void (*fn)(void *user, const char *name, const char *value);
	void *user;
};

static enum MHD_Result each_header(
	void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct each *e = cls;

	(void)kind;
	e->fn(e->user, name, value ? value : "");
	return MHD_YES;
}

void http_each_header(const struct http_request *rq,
	void (*fn)(void *user, const char *name, const char *value), void *user)
{
	struct each e = {.fn = fn, .user = user};

	if (rq->mhd)
		MHD_get_connection_values(rq->mhd, MHD_HEADER_KIND, each_header, &e);
}

bool http_from_tcp(const struct http_request *rq)
{
	return rq->tcp;
}

uid_t http_peer_uid(const struct http_request *rq)
{
	return rq->uid;
}

void http_wait(struct http_request *rq)
{
	rq->waits = rq->waited = true;
	http_suspend(rq);
}

void http_go_on(struct http_request *rq)
{
	rq->waits = false;
	if (rq->conn)
		http_resume(rq);
}

bool http_is_gone(const struct http_request *rq)
{
	return rq->gone;
}

void http_on_end(struct http_request *rq, void (*fn)(void *user, bool complete), void *user)
{
	rq->on_end = fn;
	rq->end_user = user;
}
