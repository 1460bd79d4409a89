/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heads of HTTP requests, as a proxy gets them (RFC 9112): "CONNECT host:port" and "GET
 * http://host/path". A connection carries one request: the head that is sent on says Connection:
 * close, and exactly the body that its Content-Length names follows. A body in chunks would have to
 * be parsed to know where it ends, and without that a second request could follow it unseen, to a
 * host that nobody checked. So such a body is refused (411), and the client has to send a length.
 */
#include "egress/head.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/limits.h"

struct text {
	const char *at;
	size_t len;
};

size_t proxy_head_end(const char *bytes, size_t len)
{
	const char *end = memmem(bytes, len, "\r\n\r\n", 4);

	return end ? (size_t)(end - bytes) + 4 : 0;
}

/* token of RFC 9110, 5.6.2 */
static bool is_token(const char *p, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)p[i];

		if (c <= 0x20 || c >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", c))
			return false;
	}
	return len > 0;
}

static bool text_is(struct text t, const char *word)
{
	return t.len == strlen(word) && !strncasecmp(t.at, word, t.len);
}

static struct text trimmed(const char *p, size_t len)
{
	while (len && (*p == ' ' || *p == '\t')) {
		p++;
		len--;
	}
	while (len && (p[len - 1] == ' ' || p[len - 1] == '\t'))
		len--;
	return (struct text){p, len};
}

/* The line at @*pos, without its CRLF; false at the empty line. */
static bool next_line(const char *head, size_t len, size_t *pos, struct text *ret)
{
	const char *end = memmem(head + *pos, len - *pos, "\r\n", 2);

	if (!end || end == head + *pos)
		return false;
	*ret = (struct text){head + *pos, (size_t)(end - head) - *pos};
	*pos += ret->len + 2;
	return true;
}

/* "Name: value" */
static bool split_field(struct text line, struct text *name, struct text *value)
{
	const char *colon = memchr(line.at, ':', line.len);

	if (!colon || !is_token(line.at, (size_t)(colon - line.at)))
		return false;
	*name = (struct text){line.at, (size_t)(colon - line.at)};
	*value = trimmed(colon + 1, line.len - name->len - 1);
	return true;
}

/* No control characters but tabs: a bare CR or LF, or a NUL, ends a line for some readers. */
static bool value_clean(struct text line)
{
	for (size_t i = 0; i < line.len; i++) {
		unsigned char c = (unsigned char)line.at[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

static bool parse_length(struct text t, uint64_t *ret)
{
	uint64_t n = 0;

	if (!t.len || t.len > 18)
		return false;
	for (size_t i = 0; i < t.len; i++) {
		if (t.at[i] < '0' || t.at[i] > '9')
			return false;
		n = n * 10 + (uint64_t)(t.at[i] - '0');
	}
	*ret = n;
	return true;
}

static int refuse(const char **ret_why, int status, const char *why)
{
	*ret_why = why;
	return status;
}

/* The request's target: an authority, or an http URL. */
static int parse_target(struct text t, struct proxy_head *h, const char **why)
{
	size_t n;

	h->connect = !strcmp(h->method, "CONNECT");
	if (h->connect) {
		h->port = 0;
		if (!proxy_authority_parse(t.at, t.len, h->host, &h->literal, &h->port) || !h->port)
			return refuse(why, 400, "CONNECT needs host:port");
		return 0;
	}
	if (t.len < 7 || strncasecmp(t.at, "http://", 7) != 0) {
		if (t.len >= 8 && !strncasecmp(t.at, "https://", 8))
			return refuse(why, 400, "https goes through CONNECT");
		return refuse(why, 400, "this is a proxy: it takes CONNECT and http:// URLs");
	}
	t.at += 7;
	t.len -= 7;
	for (n = 0; n < t.len && !strchr("/?#", t.at[n]); n++)
		;
	h->port = 80;
	if (!proxy_authority_parse(t.at, n, h->host, &h->literal, &h->port))
		return refuse(why, 400, "the URL's host is broken");
	h->path = t.at + n;
	h->path_len = t.len - n;
	if (memchr(h->path, '#', h->path_len))
		return refuse(why, 400, "the URL holds a fragment");
	return 0;
}

static int parse_request_line(struct text line, struct proxy_head *h, const char **why)
{
	const char *sp = memchr(line.at, ' ', line.len);
	const char *end = sp ? memrchr(line.at, ' ', line.len) : NULL;
	struct text target, version;

	if (!sp || end == sp)
		return refuse(why, 400, "this is no HTTP request");
	if ((size_t)(sp - line.at) >= sizeof(h->method) ||
		!is_token(line.at, (size_t)(sp - line.at)))
		return refuse(why, 400, "this is no HTTP request");
	memcpy(h->method, line.at, (size_t)(sp - line.at));
	target = (struct text){sp + 1, (size_t)(end - sp) - 1};
	version = (struct text){end + 1, line.len - (size_t)(end - line.at) - 1};
	for (size_t i = 0; i < target.len; i++) {
		if (target.at[i] <= 0x20 || target.at[i] == 0x7f)
			return refuse(why, 400, "the request's target holds a space");
	}
	if (version.len < 5 || memcmp(version.at, "HTTP/", 5) != 0)
		return refuse(why, 400, "this is no HTTP request");
	if (version.len != 8 || memcmp(version.at, "HTTP/1.", 7) != 0 ||
		(version.at[7] != '0' && version.at[7] != '1'))
		return refuse(why, 505, "only HTTP/1.0 and 1.1");
	return parse_target(target, h, why);
}

int proxy_head_parse(const char *head, size_t len, struct proxy_head *ret, const char **ret_why)
{
	struct proxy_head h = {0};
	struct text line, name, value;
	bool have_length = false;
	size_t pos = 0;
	int status;

	if (!next_line(head, len, &pos, &line))
		return refuse(ret_why, 400, "this is no HTTP request");
	status = parse_request_line(line, &h, ret_why);
	if (status)
		return status;
	while (next_line(head, len, &pos, &line)) {
		uint64_t n;

		if (!split_field(line, &name, &value) || !value_clean(line))
			return refuse(ret_why, 400, "a broken header line");
		if (text_is(name, "Transfer-Encoding") && !h.connect)
			return refuse(ret_why, 411, "a body needs a Content-Length here");
		if (!text_is(name, "Content-Length") || h.connect)
			continue;
		if (!parse_length(value, &n) || (have_length && n != h.body_bytes))
			return refuse(ret_why, 400, "a broken Content-Length");
		have_length = true;
		h.body_bytes = n;
	}
	if (pos + 2 != len)
		return refuse(ret_why, 400, "a broken head");
	*ret = h;
	return 0;
}

int proxy_head_status(const char *head, size_t len)
{
	if (len < 12 || memcmp(head, "HTTP/1.", 7) != 0 || head[8] != ' ')
		return -1;
	for (int i = 9; i < 12; i++) {
		if (head[i] < '0' || head[i] > '9')
			return -1;
	}
	return (head[9] - '0') * 100 + (head[10] - '0') * 10 + (head[11] - '0');
}

/* ---- sending it on ---------------------------------------------------------------------- */

/* Is @name one of the comma-separated words of @list? */
static bool in_list(struct text list, struct text name)
{
	while (list.len) {
		const char *comma = memchr(list.at, ',', list.len);
		size_t n = comma ? (size_t)(comma - list.at) : list.len;
		struct text word = trimmed(list.at, n);

		if (word.len == name.len && !strncasecmp(word.at, name.at, word.len))
			return true;
		n += comma ? 1 : 0;
		list.at += n;
		list.len -= n;
	}
	return false;
}

/* Fields that are about this hop alone (RFC 9110, 7.6.1), and Host, which is written anew. */
static bool hop_by_hop(const char *head, size_t len, size_t pos, struct text name)
{
	static const char *const always[] = {"Connection", "Proxy-Connection", "Keep-Alive", "TE",
		"Trailer", "Upgrade", "Proxy-Authorization", "Proxy-Authenticate", "Host"};
	struct text line, other, value;

	for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++) {
		if (text_is(name, always[i]))
			return true;
	}
	if (text_is(name, "Content-Length"))
		return false; /* naming it in Connection must not change where the body ends */
	while (next_line(head, len, &pos, &line)) {
		if (split_field(line, &other, &value) &&
			(text_is(other, "Connection") || text_is(other, "Proxy-Connection")) &&
			in_list(value, name))
			return true;
	}
	return false;
}

char *proxy_head_rewrite(const char *head, size_t len, const struct proxy_head *h, bool absolute,
	const char *auth, size_t *ret_len)
{
	struct text line, name, value;
	char authority[272], *buf = NULL;
	size_t pos = 0, fields, size = 0;
	FILE *f = open_memstream(&buf, &size);

	if (!f)
		abort();
	proxy_authority_text(h->host, h->port, authority);
	if (h->port == 80)
		*strrchr(authority, ':') = '\0';
	fprintf(f, "%s %s%s%s%.*s HTTP/1.1\r\nHost: %s\r\n", h->method, absolute ? "http://" : "",
		absolute ? authority : "", h->path_len && h->path[0] == '/' ? "" : "/",
		(int)h->path_len, h->path, authority);
	next_line(head, len, &pos, &line);
	fields = pos;
	while (next_line(head, len, &pos, &line)) {
		if (split_field(line, &name, &value) && !hop_by_hop(head, len, fields, name))
			fprintf(f, "%.*s\r\n", (int)line.len, line.at);
	}
	if (absolute && auth)
		fprintf(f, "Proxy-Authorization: %s\r\n", auth);
	fprintf(f, "Connection: close\r\n\r\n");
	if (fclose(f) != 0)
		abort();
	*ret_len = size;
	return buf;
}
