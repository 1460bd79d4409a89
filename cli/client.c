/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP for the commands that speak to a pool, on libcurl's multi interface: every request is begun and ends in
 * a callback from client_turn(), so that a command with one request, one that streams while it
 * sends, and a benchmark with hundreds at once all go the same way.
 *
 * What comes from the server is bounded: a body that is collected by LIMIT_JSON_BYTES, headers by
 * libcurl, time by the request's timeout. Redirects are not followed, other schemes not spoken.
 */
#include "cli/client.h"

#include <curl/curl.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>

#include "common/buffer.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/paths.h"
#include "common/str.h"

#define CONNECT_MS 5000L
#define MAX_NEXT 1024 /* bytes of a page's token */
#define MAX_EXTRA_FDS 8

struct client {
	CURLM *multi;
	char *base; /* scheme and host */
	char *socket; /* of a unix socket, else NULL */
	char *key; /* "X-API-Key: …" or NULL */
	char *where;
	LIST_HEAD(, client_call) calls;
};

struct client_call {
	struct client *client;
	LIST_ENTRY(client_call) link; /* client.calls */
	CURL *easy;
	struct curl_slist *headers;
	int (*data)(void *user, const char *bytes, size_t len);
	void (*done)(void *user, const struct client_answer *a);
	void *user;
	int upload_fd;
	uint64_t upload_left; /* bytes of it that were announced and not read yet */
	struct buffer body; /* with a NUL behind it, where there is one */
	int stopped; /* a negative errno of data(), or of the body's bound */
	char next_token[MAX_NEXT];
	char error[CURL_ERROR_SIZE];
	char *what; /* "POST /sandboxes" */
};

/* ---- where it is --------------------------------------------------------------------------- */

static bool has_scheme(const char *url, const char *scheme)
{
	return strncasecmp(url, scheme, strlen(scheme)) == 0;
}

static int locate(struct client *c, struct err *err)
{
	const char *api = getenv("PARBAKE_API"), *dir;
	size_t len;
	int r;

	if (!api || !*api) {
		r = paths_get(PATHS_RUN, &dir, err);
		if (r < 0)
			return r;
		c->socket = str_printf("%s/pool.sock", dir);
	} else if (has_scheme(api, "unix:")) {
		c->socket = str_dup(api + strlen("unix:"));
	} else if (has_scheme(api, "http://") || has_scheme(api, "https://")) {
		len = strlen(api);
		while (len && api[len - 1] == '/')
			len--;
		c->base = str_printf("%.*s", (int)len, api);
		c->where = str_dup(c->base);
		return 0;
	} else {
		return err_set(err, EINVAL,
			"PARBAKE_API=%s: write unix:PATH, http://HOST:PORT or https://HOST", api);
	}
	if (!*c->socket)
		return err_set(err, EINVAL, "PARBAKE_API=%s: no path behind unix:", api);
	c->base = str_dup("http://localhost");
	c->where = str_printf("unix:%s", c->socket);
	return 0;
}

int client_new(struct client **ret, struct err *err)
{
	cleanup_client struct client *c = calloc(1, sizeof(*c));
	const char *key = getenv("PARBAKE_API_KEY");
	int r;

	if (!c || curl_global_init(CURL_GLOBAL_DEFAULT))
		abort();
	r = locate(c, err);
	if (r < 0)
		return r;
	if (key && *key) {
		if (strpbrk(key, "\r\n"))
			return err_set(err, EINVAL, "PARBAKE_API_KEY has more than one line");
		c->key = str_printf("X-API-Key: %s", key);
	}
	c->multi = curl_multi_init();
	if (!c->multi)
		abort();
	curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, 512L);
	*ret = steal_ptr(&c);
	return 0;
}

/* ---- one request --------------------------------------------------------------------------- */

void client_drop(struct client_call *call)
{
	LIST_REMOVE(call, link);
	if (call->easy) {
		curl_multi_remove_handle(call->client->multi, call->easy);
		curl_easy_cleanup(call->easy);
	}
	curl_slist_free_all(call->headers);
	buffer_free(&call->body);
	free(call->what);
	free(call);
}

void client_drop_all(struct client *c)
{
	while (!LIST_EMPTY(&c->calls))
		client_drop(LIST_FIRST(&c->calls));
}

void client_free(struct client *c)
{
	client_drop_all(c);
	if (c->multi)
		curl_multi_cleanup(c->multi);
	free(c->base);
	free(c->socket);
	free(c->key);
	free(c->where);
	free(c);
}

static unsigned status_of(const struct client_call *call)
{
	long status = 0;

	curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	return (unsigned)status;
}

static int collect(struct client_call *call, const char *bytes, size_t len)
{
	if (len > LIMIT_JSON_BYTES - call->body.len)
		return -EFBIG;
	buffer_append(&call->body, bytes, len);
	*buffer_reserve(&call->body, 1) = '\0';
	return 0;
}

static size_t on_data(char *bytes, size_t one, size_t n, void *arg)
{
	struct client_call *call = arg;
	size_t len = one * n;

	if (call->data && status_of(call) / 100 == 2)
		call->stopped = call->data(call->user, bytes, len);
	else
		call->stopped = collect(call, bytes, len);
	return call->stopped ? CURL_WRITEFUNC_ERROR : len;
}

static size_t on_header(char *line, size_t one, size_t n, void *arg)
{
	static const char name[] = "x-next-token:";
	struct client_call *call = arg;
	size_t len = one * n, at = sizeof(name) - 1;

	if (len <= at || strncasecmp(line, name, at))
		return len;
	while (at < len && (line[at] == ' ' || line[at] == '\t'))
		at++;
	n = len - at;
	while (n && strchr("\r\n ", line[at + n - 1]))
		n--;
	if (n >= sizeof(call->next_token))
		return CURL_WRITEFUNC_ERROR;
	memcpy(call->next_token, line + at, n);
	call->next_token[n] = '\0';
	return len;
}

static size_t on_read(char *to, size_t one, size_t n, void *arg)
{
	struct client_call *call = arg;
	size_t want = one * n < call->upload_left ? one * n : (size_t)call->upload_left;
	ssize_t got;

	do
		got = read(call->upload_fd, to, want);
	while (got < 0 && errno == EINTR);
	if (got < 0 || (got == 0 && want)) {
		call->stopped = got < 0 ? -errno : -ENODATA;
		return CURL_READFUNC_ABORT;
	}
	call->upload_left -= (uint64_t)got;
	return (size_t)got;
}

static void set_body(struct client_call *call, const struct client_spec *spec)
{
	CURL *e = call->easy;

	if (spec->json) {
		cleanup_free char *text = json_text(spec->json);

		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(text));
		curl_easy_setopt(e, CURLOPT_COPYPOSTFIELDS, text);
	} else if (spec->body) {
		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)spec->body_len);
		curl_easy_setopt(e, CURLOPT_COPYPOSTFIELDS, spec->body);
	} else if (spec->upload_fd > 0) {
		call->upload_fd = spec->upload_fd;
		call->upload_left = spec->upload_bytes;
		curl_easy_setopt(e, CURLOPT_POST, 1L);
		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)spec->upload_bytes);
		curl_easy_setopt(e, CURLOPT_READFUNCTION, on_read);
		curl_easy_setopt(e, CURLOPT_READDATA, call);
	} else if (!strcmp(spec->method, "POST")) {
		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)0);
		curl_easy_setopt(e, CURLOPT_COPYPOSTFIELDS, "");
	}
}

static void add_header(struct client_call *call, const char *text)
{
	struct curl_slist *more = curl_slist_append(call->headers, text);

	if (!more)
		abort();
	call->headers = more;
}

static void set_headers(struct client_call *call, const struct client_spec *spec)
{
	cleanup_free char *type =
		str_printf("Content-Type: %s", spec->type ? spec->type : "application/json");

	add_header(call, type);
	add_header(call, "Expect:"); /* no 100-continue: it would cost a turn */
	if (call->client->key)
		add_header(call, call->client->key);
	for (unsigned i = 0; spec->headers && spec->headers[i]; i++)
		add_header(call, spec->headers[i]);
	curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
}

static void set_options(struct client_call *call, const struct client_spec *spec)
{
	cleanup_free char *url = str_printf("%s%s", call->client->base, spec->path);
	int64_t timeout = spec->timeout_ms ? spec->timeout_ms : CLIENT_TIMEOUT_MS;
	const char *ca = getenv("SSL_CERT_FILE");
	CURL *e = call->easy;

	curl_easy_setopt(e, CURLOPT_PRIVATE, call);
	curl_easy_setopt(e, CURLOPT_URL, url);
	if (call->client->socket)
		curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, call->client->socket);
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	if (ca && *ca)
		curl_easy_setopt(e, CURLOPT_CAINFO, ca);
	/* a proxy of the environment is not meant for a daemon on this host */
	if (call->client->socket)
		curl_easy_setopt(e, CURLOPT_PROXY, "");
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_USERAGENT, "parbake/" PARBAKE_VERSION);
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	if (timeout > 0)
		curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)timeout);
	curl_easy_setopt(e, CURLOPT_ERRORBUFFER, call->error);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, call);
	curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(e, CURLOPT_HEADERDATA, call);
	set_body(call, spec);
	curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, spec->method);
	set_headers(call, spec);
}

struct client_call *client_begin(struct client *c, const struct client_spec *spec, struct err *err)
{
	struct client_call *call = calloc(1, sizeof(*call));

	if (!call)
		abort();
	call->client = c;
	LIST_INSERT_HEAD(&c->calls, call, link);
	call->data = spec->data;
	call->done = spec->done;
	call->user = spec->user;
	call->what = str_printf("%s %.*s", spec->method, (int)strcspn(spec->path, "?"), spec->path);
	call->easy = curl_easy_init();
	if (!call->easy)
		abort();
	set_options(call, spec);
	if (curl_multi_add_handle(c->multi, call->easy) != CURLM_OK) {
		err_set(err, EIO, "%s: libcurl takes no more requests", call->what);
		client_drop(call);
		return NULL;
	}
	return call;
}

/* ---- its end ------------------------------------------------------------------------------- */

static int errno_of(unsigned status)
{
	switch (status) {
	case 400:
	case 422:
		return EINVAL;
	case 401:
	case 403:
		return EACCES;
	case 404:
		return ENOENT;
	case 409:
		return EBUSY;
	case 413:
		return EFBIG;
	case 429:
		return EAGAIN;
	case 503:
		return ESHUTDOWN;
	case 504:
		return ETIMEDOUT;
	case 507:
		return ENOSPC;
	default:
		return EIO;
	}
}

/* {"code":…, "message":…} */
static int refused(const struct client_call *call, unsigned status, struct err *err)
{
	cleanup_json json_t *obj = NULL;
	const char *message;

	if (call->body.len &&
		json_parse("answer", buffer_text(&call->body), call->body.len, &obj, NULL) == 0 &&
		json_is_object(obj) && json_get_string(obj, "message", &message, NULL) == 0)
		err_set(err, errno_of(status), "%s", message);
	else
		err_set(err, EIO, "%s: %s answered %u without a reason: is it a pool?", call->what,
			call->client->where, status);
	if (status == 401)
		err_append(err, "%s",
			getenv("PARBAKE_API_KEY") ? " (PARBAKE_API_KEY is not the right one)"
						  : " (PARBAKE_API_KEY is not set)");
	return errno_of(status);
}

static int unreachable(const struct client_call *call, struct err *err)
{
	const struct client *c = call->client;
	long number = 0;

	curl_easy_getinfo(call->easy, CURLINFO_OS_ERRNO, &number);
	err_set(err, ECONNREFUSED,
		"no pool answers at %s (%s): start one with `parbake pool serve`, or set "
		"PARBAKE_API "
		"to where it is",
		c->where, number ? strerror((int)number) : call->error);
	return ECONNREFUSED;
}

static int failed(const struct client_call *call, CURLcode rc, struct err *err)
{
	switch (rc) {
	case CURLE_COULDNT_CONNECT:
	case CURLE_COULDNT_RESOLVE_HOST:
		return unreachable(call, err);
	case CURLE_OPERATION_TIMEDOUT:
		err_set(err, ETIMEDOUT, "%s: no answer from %s in time", call->what,
			call->client->where);
		return ETIMEDOUT;
	case CURLE_WRITE_ERROR:
	case CURLE_ABORTED_BY_CALLBACK:
		if (call->stopped == -ENODATA) {
			err_set(err, EIO,
				"%s: the file became shorter while it was read: %llu bytes less",
				call->what, (unsigned long long)call->upload_left);
			return EIO;
		}
		if (call->stopped) {
			err_sys(err, -call->stopped, "%s", call->what);
			return -call->stopped;
		}
		break;
	case CURLE_GOT_NOTHING:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
	case CURLE_PARTIAL_FILE:
		err_set(err, ECONNRESET, "%s: the pool at %s closed the connection", call->what,
			call->client->where);
		return ECONNRESET;
	default:
		break;
	}
	err_set(err, EIO, "%s: %s", call->what,
		call->error[0] ? call->error : curl_easy_strerror(rc));
	return EIO;
}

static void ended(struct client_call *call, CURLcode rc)
{
	struct client_answer a = {.body = "", .next = call->next_token};
	struct err err = {0};

	a.status = status_of(call);
	if (rc != CURLE_OK)
		a.error = failed(call, rc, &err);
	else if (a.status >= 300 || a.status < 200)
		a.error = refused(call, a.status, &err);
	if (call->body.len) {
		a.body = buffer_text(&call->body);
		a.len = call->body.len;
	}
	a.text = err.text;
	if (call->done)
		call->done(call->user, &a);
	client_drop(call);
}

int client_turn(struct client *c, struct pollfd *fds, unsigned n, int64_t deadline, struct err *err)
{
	struct curl_waitfd wait[MAX_EXTRA_FDS] = {{0}};
	int running, left = clock_left_ms(deadline);
	CURLMsg *msg;
	CURLMcode rc = curl_multi_perform(c->multi, &running);

	if (n > MAX_EXTRA_FDS)
		return err_set(err, E2BIG, "too many descriptors to wait for");
	for (unsigned i = 0; i < n; i++) {
		wait[i].fd = fds[i].fd;
		wait[i].events = (fds[i].events & POLLIN ? CURL_WAIT_POLLIN : 0) |
			(fds[i].events & POLLOUT ? CURL_WAIT_POLLOUT : 0);
		fds[i].revents = 0;
	}
	/* what has ended needs no wait */
	if (rc == CURLM_OK && !(msg = curl_multi_info_read(c->multi, &running))) {
		rc = curl_multi_poll(c->multi, wait, n, left < 0 ? 3600000 : left, NULL);
		for (unsigned i = 0; i < n; i++)
			fds[i].revents = (wait[i].revents & CURL_WAIT_POLLIN ? POLLIN : 0) |
				(wait[i].revents & CURL_WAIT_POLLOUT ? POLLOUT : 0);
		if (rc == CURLM_OK)
			rc = curl_multi_perform(c->multi, &running);
		msg = rc == CURLM_OK ? curl_multi_info_read(c->multi, &running) : NULL;
	}
	if (rc != CURLM_OK)
		return err_set(err, EIO, "wait for the network: %s", curl_multi_strerror(rc));
	for (; msg; msg = curl_multi_info_read(c->multi, &running)) {
		struct client_call *call = NULL;

		if (msg->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&call);
		ended(call, msg->data.result);
	}
	return 0;
}
