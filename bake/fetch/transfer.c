/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request and the bytes of its answer. A part that may be resumed is requested with Range and
 * If-Range; where the bytes belong is decided when the first one comes, from the answer's code and
 * headers: a 206 must begin just where the part ends, a 200 is the whole file and starts the part
 * anew. Bytes of any other answer are dropped, up to a bound.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bake/fetch/fetch_private.h"
#include "common/cleanup.h"
#include "common/limits.h"
#include "bake/fetch/limits.h"
#include "common/str.h"

#define ERROR_BODY_MAX (1 * MIB) /* of an answer that is not the file */

char *fetch_url_shown(const char *url)
{
	const char *host = strstr(url, "://"), *at, *slash;
	int len = (int)strcspn(url, "?#");

	if (!host)
		return str_printf("%.*s", len, url);
	host += 3;
	slash = host + strcspn(host, "/?#");
	at = memrchr(host, '@', slash - host);
	return at
		? str_printf("%.*s%.*s", (int)(host - url), url, (int)(url + len - at - 1), at + 1)
		: str_printf("%.*s", len, url);
}

bool fetch_has_scheme(const char *url, const char *scheme)
{
	return strncasecmp(url, scheme, strlen(scheme)) == 0 &&
		strncmp(url + strlen(scheme), "://", 3) == 0;
}

/* The value of header @name in @line of @len bytes, trimmed; "" where it is another. */
static size_t header_value(const char *line, size_t len, const char *name, char *ret, size_t room)
{
	size_t n = strlen(name);

	ret[0] = '\0';
	if (len <= n || strncasecmp(line, name, n) || line[n] != ':')
		return 0;
	line += n + 1;
	len -= n + 1;
	while (len && (*line == ' ' || *line == '\t'))
		line++, len--;
	while (len && (line[len - 1] == '\r' || line[len - 1] == '\n' || line[len - 1] == ' '))
		len--;
	if (len >= room)
		return 0;
	memcpy(ret, line, len);
	ret[len] = '\0';
	return len;
}

static size_t on_header(char *line, size_t one, size_t len, void *arg)
{
	struct fetch_transfer *t = arg;
	char value[FETCH_VALIDATOR_SIZE];
	unsigned long long from;

	if (len >= 5 && memcmp(line, "HTTP/", 5) == 0) {
		t->has_range = false;
		t->validator[0] = '\0';
	}
	/* a weak ETag does not promise the same bytes, so it cannot guard a range */
	if (header_value(line, len, "ETag", value, sizeof(value)) && strncmp(value, "W/", 2))
		memcpy(t->validator, value, sizeof(value));
	if (!t->validator[0] && header_value(line, len, "Last-Modified", value, sizeof(value)))
		memcpy(t->validator, value, sizeof(value));
	if (header_value(line, len, "Content-Range", value, sizeof(value)) &&
		sscanf(value, "bytes %llu-", &from) == 1) {
		t->has_range = true;
		t->range_from = from;
	}
	return one * len;
}

long fetch_answer_code(const struct fetch_transfer *t)
{
	long code = 0;

	curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &code);
	return code ? code : 200; /* a file URL has none */
}

/* The first bytes of an answer: where do they belong? */
static enum fetch_stop body_begin(struct fetch_transfer *t, long code)
{
	curl_off_t len = -1;

	if (code == 206 && (!t->has_range || t->range_from != t->part.have))
		return STOP_RANGE;
	if (code == 200 && t->part.have && (t->write_error = fetch_part_restart(&t->part)) < 0)
		return STOP_WRITE;
	t->resumed = t->part.have > 0;
	curl_easy_getinfo(t->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &len);
	if (len >= 0) {
		t->total = t->part.have + (uint64_t)len;
		if (t->total > t->max)
			return STOP_LARGE;
	}
	fetch_part_note(&t->part, t->item->url, t->validator);
	t->began = true;
	return STOP_NONE;
}

static size_t on_data(char *data, size_t one, size_t n, void *arg)
{
	struct fetch_transfer *t = arg;
	long code = fetch_answer_code(t);
	size_t len = one * n;

	if (code != 200 && code != 206) {
		t->dropped += len;
		t->stop = t->dropped > ERROR_BODY_MAX ? STOP_BODY : STOP_NONE;
		return t->stop ? CURL_WRITEFUNC_ERROR : len;
	}
	if (!t->began)
		t->stop = body_begin(t, code);
	/* what an earlier try left may be more than this one allows */
	if (!t->stop && (t->part.have > t->max || len > t->max - t->part.have))
		t->stop = STOP_LARGE;
	if (!t->stop && (t->write_error = fetch_part_write(&t->part, data, len)) < 0)
		t->stop = STOP_WRITE;
	return t->stop ? CURL_WRITEFUNC_ERROR : len;
}

static void easy_set(struct fetch_transfer *t)
{
	const char *ca = getenv("CURL_CA_BUNDLE"), *dir = getenv("SSL_CERT_DIR");
	CURL *e = t->easy;

	if (!ca || !*ca)
		ca = getenv("SSL_CERT_FILE");
	if (ca && *ca)
		curl_easy_setopt(e, CURLOPT_CAINFO, ca);
	if (dir && *dir)
		curl_easy_setopt(e, CURLOPT_CAPATH, dir);
	curl_easy_setopt(e, CURLOPT_PRIVATE, t);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_USERAGENT, "parbake/" PARBAKE_VERSION);
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, 30L);
	curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME,
		t->item->stall_s ? (long)t->item->stall_s : (long)LIMIT_DOWNLOAD_STALL_S);
	curl_easy_setopt(e, CURLOPT_ERRORBUFFER, t->error);
	curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(e, CURLOPT_HEADERDATA, t);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
}

int fetch_transfer_start(struct fetch *f, struct fetch_transfer *t, struct err *err)
{
	char range[32];

	if (!t->easy)
		t->easy = curl_easy_init();
	if (!t->easy)
		return err_sys(err, ENOMEM, "%s", t->shown);
	curl_easy_reset(t->easy);
	easy_set(t);
	curl_slist_free_all(t->headers);
	t->headers = NULL;
	t->stop = STOP_NONE;
	t->write_error = 0;
	t->began = t->has_range = false;
	t->dropped = 0;
	t->error[0] = t->validator[0] = '\0';
	if (fetch_has_scheme(t->url, "file") && t->part.have && fetch_part_restart(&t->part) < 0)
		return err_sys(err, errno, "%s: starting over", t->shown);
	curl_easy_setopt(t->easy, CURLOPT_URL, t->url);
	curl_easy_setopt(t->easy, CURLOPT_PROTOCOLS_STR,
		t->redirects ? (t->https ? "https" : "http,https") : "http,https,file");
	if (t->part.have) {
		snprintf(range, sizeof(range), "%llu-", (unsigned long long)t->part.have);
		curl_easy_setopt(t->easy, CURLOPT_RANGE, range);
		if (t->part.validator[0]) {
			cleanup_free char *line = str_printf("If-Range: %s", t->part.validator);

			t->headers = curl_slist_append(NULL, line);
			curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
		}
	}
	if (curl_multi_add_handle(f->multi, t->easy) != CURLM_OK)
		return err_sys(err, ENOMEM, "%s", t->shown);
	t->state = RUNNING;
	return 0;
}
