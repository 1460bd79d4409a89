/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads, in both directions. Headers that concern one connection alone (RFC 9110, 7.6.1) are not
 * passed on: those that are known for it, and those that Connection names. The server is asked to
 * close the connection behind its answer, since the connection is for this request alone.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/str.h"
#include "pool/relay/relay_private.h"
#include "pool/relay/limits.h"

static const char *const hop_by_hop[] = {"Connection", "Keep-Alive", "Proxy-Connection",
	"Proxy-Authenticate", "Proxy-Authorization", "TE", "Trailer", "Transfer-Encoding",
	"Upgrade", "Content-Length", NULL};
/* what lets a client in here, or says where to */
static const char *const of_ours[] = {"Host", "Expect", "X-API-Key", "X-Access-Token",
	"E2b-Traffic-Access-Token", "E2b-Sandbox-Id", "E2b-Sandbox-Port", "X-Sandbox-Id",
	"X-Forwarded-Host", NULL};

static bool among(const char *const *names, const char *name)
{
	while (*names && strcasecmp(*names, name) != 0)
		names++;
	return *names != NULL;
}

/* Is @word one of the words of a list with commas? NULL has none. */
static bool lists(const char *list, const char *word)
{
	size_t n = strlen(word);

	while (list && *list) {
		list += strspn(list, ", \t");
		if (!strncasecmp(list, word, n) && (!list[n] || strchr(", \t;", list[n])))
			return true;
		list += strcspn(list, ",");
	}
	return false;
}

bool relay_upgrades(const struct http_request *rq)
{
	const char *to = http_header(rq, "Upgrade");

	return to && *to && lists(http_header(rq, "Connection"), "upgrade") &&
		!http_body_length(rq);
}

/* ---- to the server ------------------------------------------------------------------------- */

struct writing {
	const struct relays *all;
	const char *connection;
	struct buffer *out;
};

static void add(struct buffer *out, const char *text)
{
	buffer_append(out, text, strlen(text));
}

static void add_header(struct buffer *out, const char *name, const char *value)
{
	add(out, name);
	add(out, ": ");
	add(out, value);
	add(out, "\r\n");
}

static void header(void *user, const char *name, const char *value)
{
	struct writing *w = user;

	if (among(hop_by_hop, name) || among(of_ours, name) || lists(w->connection, name))
		return;
	if (!strcasecmp(name, "Authorization") && w->all->ops->is_ours(w->all->user, value))
		return;
	add_header(w->out, name, value ? value : "");
}

/* The mask with the port in it. */
static char *masked(const struct relay_target *to)
{
	static const char port[] = "${PORT}";
	const char *at = strstr(to->mask_host, port);

	if (!at)
		return str_dup(to->mask_host);
	return str_printf(
		"%.*s%u%s", (int)(at - to->mask_host), to->mask_host, to->port, at + strlen(port));
}

void relay_head_write(const struct relays *all, const struct http_request *rq,
	const struct relay_target *to, bool upgrade, struct buffer *out)
{
	struct writing w = {.all = all, .connection = http_header(rq, "Connection"), .out = out};
	const char *host = http_header(rq, "Host");
	cleanup_free char *mask = *to->mask_host ? masked(to) : NULL;
	uint64_t length = http_body_length(rq);
	char text[32];

	add(out, http_method(rq));
	add(out, " ");
	add(out, http_target(rq));
	add(out, " HTTP/1.1\r\n");
	add_header(out, "Host", mask ? mask : host ? host : "localhost");
	if (host)
		add_header(out, "X-Forwarded-Host", host);
	http_each_header(rq, header, &w);
	if (upgrade)
		add_header(out, "Upgrade", http_header(rq, "Upgrade"));
	add_header(out, "Connection", upgrade ? "Upgrade" : "close");
	snprintf(text, sizeof(text), "%llu", (unsigned long long)length);
	if (length == UINT64_MAX)
		add_header(out, "Transfer-Encoding", "chunked");
	else if (length || http_header(rq, "Content-Length"))
		add_header(out, "Content-Length", text);
	add(out, "\r\n");
}

/* ---- from the server ------------------------------------------------------------------------ */

size_t relay_head_length(const char *text, size_t len)
{
	const char *end = memmem(text, len, "\r\n\r\n", 4);
	const char *bare = memmem(text, len, "\n\n", 2);

	if (bare && (!end || bare < end))
		return (size_t)(bare + 2 - text);
	return end ? (size_t)(end + 4 - text) : 0;
}

static bool token(const char *text)
{
	for (; *text; text++) {
		if (!isalnum((unsigned char)*text) && !strchr("!#$%&'*+-.^_`|~", *text))
			return false;
	}
	return true;
}

/* "HTTP/1.x NNN …" */
static bool status_line(const char *line, unsigned *ret)
{
	if (strncmp(line, "HTTP/1.", 7) || !isdigit((unsigned char)line[7]) || line[8] != ' ' ||
		!isdigit((unsigned char)line[9]) || !isdigit((unsigned char)line[10]) ||
		!isdigit((unsigned char)line[11]) || (line[12] && line[12] != ' '))
		return false;
	*ret = (unsigned)atoi(line + 9);
	return *ret >= 100 && *ret <= 599;
}

struct framed {
	const char *length, *encoding, *connection;
	bool twice;
};

static void see_framing(struct framed *f, const char *name, const char *value)
{
	if (!strcasecmp(name, "Content-Length")) {
		f->twice |= f->length && strcmp(f->length, value) != 0;
		f->length = value;
	} else if (!strcasecmp(name, "Transfer-Encoding")) {
		f->twice |= f->encoding != NULL;
		f->encoding = value;
	} else if (!strcasecmp(name, "Connection")) {
		f->connection = value;
	}
}

static const char *take_framing(struct relay_head *h, const struct framed *f, bool head)
{
	char *end = NULL;

	h->length = UINT64_MAX;
	if (f->twice || (f->length && f->encoding))
		return "it says twice where its body ends";
	if (f->encoding && strcasecmp(f->encoding, "chunked") != 0)
		return "its Transfer-Encoding is not known here";
	if (f->length) {
		errno = 0;
		h->length = strtoull(f->length, &end, 10);
		if (!isdigit((unsigned char)*f->length) || *end || errno || h->length > INT64_MAX)
			return "its Content-Length is no number";
	}
	if (head || h->status < 200 || h->status == 204 || h->status == 304)
		h->framing = RELAY_NO_BODY;
	else if (f->encoding)
		h->framing = RELAY_CHUNKED;
	else
		h->framing = f->length ? RELAY_LENGTH : RELAY_UNTIL_EOF;
	return NULL;
}

/* One "Name: value", ended by a NUL. */
static const char *take_header(struct relay_head *h, char *line, struct framed *f)
{
	char *colon = strchr(line, ':'), *end;

	if (*line == ' ' || *line == '\t' || !colon || colon == line)
		return "a line of its head is no header";
	*colon++ = '\0';
	colon += strspn(colon, " \t");
	end = colon + strlen(colon);
	while (end > colon && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = '\0';
	if (!token(line))
		return "a header's name has a character that it may not have";
	see_framing(f, line, colon);
	if (among(hop_by_hop, line))
		return NULL;
	if (h->n_headers == LIMIT_RELAY_HEADERS)
		return "it has too many headers";
	h->headers[h->n_headers].name = line;
	h->headers[h->n_headers++].value = colon;
	return NULL;
}

const char *relay_head_parse(char *text, size_t len, bool head, struct relay_head *ret)
{
	struct relay_head h = {0};
	struct framed f = {0};
	const char *why = NULL;
	char *save = NULL, *line;

	if (memchr(text, '\0', len))
		return "a NUL is in its head";
	text[len - 1] = '\0';
	line = strtok_r(text, "\n", &save);
	for (bool first = true; line && !why; line = strtok_r(NULL, "\n", &save), first = false) {
		size_t n = strlen(line);

		if (n && line[n - 1] == '\r')
			line[n - 1] = '\0';
		if (first)
			why = status_line(line, &h.status) ? NULL : "it is no HTTP";
		else if (*line)
			why = take_header(&h, line, &f);
	}
	if (!why && !h.status)
		why = "it is no HTTP";
	if (!why)
		why = take_framing(&h, &f, head);
	if (why)
		return why;
	*ret = h;
	ret->n_headers = 0;
	for (size_t i = 0; i < h.n_headers; i++) {
		if (!lists(f.connection, h.headers[i].name))
			ret->headers[ret->n_headers++] = h.headers[i];
	}
	return NULL;
}
