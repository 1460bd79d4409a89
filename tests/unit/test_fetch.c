/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Downloads from a server in this program that misbehaves as the path says: it cuts, ignores or
 * misunderstands ranges, changes the file between tries, answers 5xx, stalls, redirects badly.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bake/fetch/fetch.h"
#include "common/clock.h"
#include "common/digest.h"
#include "common/file.h"
#include "bake/fetch/limits.h"
#include "common/proc.h"
#include "common/str.h"
#include "tests/unit/tap.h"

#define SIZE 300000
#define MANY 20

static char home[] = "/tmp/test_fetch.XXXXXX";
static char data_a[SIZE], data_b[SIZE], hex_a[DIGEST_HEX_SIZE], hex_b[DIGEST_HEX_SIZE];
static char many[MANY][64], hex_many[MANY][DIGEST_HEX_SIZE];
static int port;

/* What the server saw. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int requests, resumes, at_once, most_at_once;
static char last_if_range[128];
static atomic_bool repaired;

struct request {
	int fd;
	char path[128];
	long long from; /* of a range; -1: none */
	int nth; /* of this path, from 1 */
};

static struct {
	char path[128];
	int n;
} seen[64];

static void say(int fd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(int fd, const char *fmt, ...)
{
	char text[1024];
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (send(fd, text, n, MSG_NOSIGNAL) < 0)
		return;
}

static void push(int fd, const char *p, size_t len)
{
	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		p += n;
		len -= n;
	}
}

/* A well-made answer, ranges included, of which only @give bytes of the body are sent. */
static void answer(
	const struct request *rq, const char *data, size_t size, size_t give, const char *extra)
{
	size_t from = 0;

	if (rq->from >= (long long)size) {
		say(rq->fd,
			"HTTP/1.1 416 No\r\nContent-Range: bytes */%zu\r\nContent-Length: "
			"0\r\n\r\n",
			size);
		return;
	}
	if (rq->from > 0) {
		from = rq->from;
		say(rq->fd, "HTTP/1.1 206 Partial\r\nContent-Range: bytes %zu-%zu/%zu\r\n", from,
			size - 1, size);
	} else {
		say(rq->fd, "HTTP/1.1 200 OK\r\n");
	}
	say(rq->fd, "%sContent-Length: %zu\r\nConnection: close\r\n\r\n", extra, size - from);
	if (give > size - from)
		give = size - from;
	push(rq->fd, data + from, give);
}

static void answer_many(const struct request *rq)
{
	int i = atoi(rq->path + strlen("/many/"));
	int64_t deadline = clock_realtime_ns() + 5000000000;
	struct timespec ts = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};

	/* hold each answer until as many are here as may be at once, or no more are to come */
	pthread_mutex_lock(&lock);
	at_once++;
	if (at_once > most_at_once)
		most_at_once = at_once;
	pthread_cond_broadcast(&changed);
	while (most_at_once < LIMIT_DOWNLOADS && pthread_cond_timedwait(&changed, &lock, &ts) == 0)
		;
	at_once--;
	pthread_mutex_unlock(&lock);
	answer(rq, many[i], strlen(many[i]), SIZE, "");
}

static void answer_redirect(const struct request *rq)
{
	if (strcmp(rq->path, "/redirect") == 0)
		say(rq->fd,
			"HTTP/1.1 302 Found\r\nLocation: /redirect2\r\nContent-Length: "
			"4\r\n\r\nbody");
	else if (strcmp(rq->path, "/redirect2") == 0)
		say(rq->fd,
			"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:%d/ok\r\n"
			"Content-Length: 0\r\n\r\n",
			port);
	else if (strcmp(rq->path, "/redirect-loop") == 0)
		say(rq->fd,
			"HTTP/1.1 302 Found\r\nLocation: /redirect-loop\r\nContent-Length: "
			"0\r\n\r\n");
	else
		say(rq->fd,
			"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: "
			"0\r\n\r\n");
}

/* Answers whose first try goes wrong in one way or another. */
static void answer_broken(const struct request *rq)
{
	const char *p = rq->path;
	bool first = rq->nth == 1;
	char byte;

	if (strcmp(p, "/cut-once") == 0) {
		answer(rq, data_a, SIZE, first ? SIZE / 2 : SIZE, "ETag: \"v1\"\r\n");
	} else if (strcmp(p, "/cut-until-repaired") == 0) {
		answer(rq, data_a, SIZE,
			repaired               ? SIZE
				: rq->from > 0 ? 0
					       : SIZE / 3,
			"ETag: \"v7\"\r\n");
	} else if (strcmp(p, "/cut-no-range") == 0) {
		struct request whole = *rq;

		whole.from = -1;
		answer(&whole, data_a, SIZE, first ? SIZE / 2 : SIZE, "");
	} else if (strcmp(p, "/changed-etag") == 0) {
		struct request whole = *rq;

		/* If-Range does not hold any more: the whole of the new file */
		whole.from = -1;
		answer(&whole, first ? data_a : data_b, SIZE, first ? SIZE / 2 : SIZE,
			first ? "ETag: \"a\"\r\n" : "ETag: \"b\"\r\n");
	} else if (strcmp(p, "/changed-silently") == 0) {
		answer(rq, first ? data_a : data_b, SIZE, first ? SIZE / 2 : SIZE, "");
	} else if (strcmp(p, "/other-range") == 0) {
		struct request other = *rq;

		if (rq->from > 0)
			other.from = 7;
		answer(&other, data_a, SIZE, first ? SIZE / 2 : SIZE, "");
	} else if (strcmp(p, "/stall") == 0) {
		answer(rq, data_a, SIZE, first ? SIZE / 2 : SIZE, "");
		if (first && recv(rq->fd, &byte, 1, 0) < 0) /* until the client gives up */
			return;
	} else if (strcmp(p, "/drop") == 0) {
		if (!first)
			answer(rq, data_a, SIZE, SIZE, "");
	} else if (strcmp(p, "/503") == 0) {
		if (rq->nth < 3)
			say(rq->fd, "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy");
		else
			answer(rq, data_a, SIZE, SIZE, "");
	} else {
		say(rq->fd, "HTTP/1.1 418 I am a teapot\r\nContent-Length: 0\r\n\r\n");
	}
}

static void serve(const struct request *rq)
{
	const char *p = rq->path;

	if (strcmp(p, "/ok") == 0 || strcmp(p, "/once") == 0)
		answer(rq, data_a, SIZE, SIZE, "ETag: \"v1\"\r\n");
	else if (strcmp(p, "/empty") == 0)
		answer(rq, "", 0, 0, "");
	else if (strncmp(p, "/many/", 6) == 0)
		answer_many(rq);
	else if (strcmp(p, "/404") == 0)
		say(rq->fd, "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n");
	else if (strcmp(p, "/403") == 0)
		say(rq->fd, "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
	else if (strcmp(p, "/500") == 0)
		say(rq->fd, "HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n");
	else if (strcmp(p, "/cut-always") == 0)
		answer(rq, data_a, SIZE, rq->from > 0 ? 0 : SIZE / 2, "ETag: \"v1\"\r\n");
	else if (strcmp(p, "/endless") == 0) {
		say(rq->fd, "HTTP/1.1 200 OK\r\n\r\n");
		for (int i = 0; i < 100; i++)
			push(rq->fd, data_a, SIZE);
	} else if (strncmp(p, "/redirect", 9) == 0)
		answer_redirect(rq);
	else
		answer_broken(rq);
}

static bool request_read(struct request *rq)
{
	char head[8192], *range, *if_range;
	size_t len = 0;

	while (len < sizeof(head) - 1) {
		ssize_t n = recv(rq->fd, head + len, sizeof(head) - 1 - len, 0);

		if (n <= 0)
			return false;
		len += n;
		head[len] = '\0';
		if (strstr(head, "\r\n\r\n"))
			break;
	}
	if (sscanf(head, "GET %127s", rq->path) != 1)
		return false;
	range = strcasestr(head, "\r\nRange: bytes=");
	rq->from = range ? atoll(range + strlen("\r\nRange: bytes=")) : -1;
	if_range = strcasestr(head, "\r\nIf-Range: ");
	pthread_mutex_lock(&lock);
	requests++;
	resumes += rq->from > 0;
	last_if_range[0] = '\0';
	if (if_range)
		sscanf(if_range, "\r\n%*[^:]: %127[^\r]", last_if_range);
	for (int i = 0; i < 64; i++) {
		if (!seen[i].n)
			memcpy(seen[i].path, rq->path, sizeof(rq->path));
		if (strcmp(seen[i].path, rq->path) == 0) {
			rq->nth = ++seen[i].n;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	return true;
}

static void *connection(void *arg)
{
	struct request rq = {.fd = (int)(intptr_t)arg};

	if (request_read(&rq))
		serve(&rq);
	shutdown(rq.fd, SHUT_WR);
	close(rq.fd);
	return NULL;
}

static void *listener(void *arg)
{
	int fd = (int)(intptr_t)arg;

	for (;;) {
		int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		pthread_t thread;

		if (c < 0)
			return NULL;
		pthread_create(&thread, NULL, connection, (void *)(intptr_t)c);
		pthread_detach(thread);
	}
}

static int server_start(pthread_t *thread)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 64) < 0 ||
		getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
		abort();
	port = ntohs(addr.sin_port);
	pthread_create(thread, NULL, listener, (void *)(intptr_t)fd);
	return fd;
}

static void hex_of(const void *data, size_t len, char ret[static DIGEST_HEX_SIZE])
{
	char text[DIGEST_TEXT_SIZE];

	digest_buffer(data, len, text);
	memcpy(ret, text + strlen("sha256:"), DIGEST_HEX_SIZE);
}

/* Empty the cache, and forget what was seen. */
static void reset(void)
{
	cleanup_free char *cmd = str_printf("find %s -path '*/downloads/*' -type f -delete", home);

	if (system(cmd))
		abort();
	pthread_mutex_lock(&lock);
	requests = resumes = 0;
	memset(seen, 0, sizeof(seen));
	pthread_mutex_unlock(&lock);
}

static int fetch(const char *path, const char *sha256, uint64_t max, char **ret, struct err *err)
{
	cleanup_free char *url = str_printf("http://127.0.0.1:%d%s", port, path);
	struct fetch_item item = {.url = url, .sha256 = sha256, .max_bytes = max, .stall_s = 1};
	int r;

	err->text[0] = '\0';
	r = fetch_all(&item, 1, NULL, err);
	*ret = item.ret_path;
	return r;
}

static int files_left(void)
{
	cleanup_free char *cmd = str_printf("find %s -type f | wc -l", home);
	FILE *f = popen(cmd, "re");
	int n = -1;

	if (fscanf(f, "%d", &n) != 1)
		n = -1;
	pclose(f);
	return n;
}

static void comes(const char *path, const char *data, const char *hex, int want_requests)
{
	cleanup_free char *at = NULL, *text = NULL;
	struct err err;
	size_t len = 0;

	reset();
	if (!is_int(fetch(path, hex, 0, &at, &err), 0, "%s comes", path)) {
		printf("# %s\n", err.text);
		return;
	}
	ok(file_read_all(AT_FDCWD, at, 2 * SIZE, &text, &len, &err) == 0 && len == SIZE &&
			memcmp(text, data, SIZE) == 0,
		"with the right bytes");
	has_str(at, "/downloads/sha256/", "into the cache");
	is_int(requests, want_requests, "in so many requests");
	is_int(files_left(), 1, "a download leaves nothing but its file");
}

static void fails(const char *path, const char *hex, uint64_t max, int want, const char *part)
{
	cleanup_free char *at = NULL;
	struct err err;

	reset();
	is_int(fetch(path, hex, max, &at, &err), want, "%s fails", path);
	has_str(err.text, part, "%s", err.text);
	ok(!at, "a download that failed has no path");
}

static void test_broken(void)
{
	comes("/ok", data_a, hex_a, 1);
	comes("/cut-once", data_a, hex_a, 2);
	is_int(resumes, 1, "the second one for the rest");
	is_str(last_if_range, "\"v1\"", "the rest is asked for of the same file");
	comes("/cut-no-range", data_a, hex_a, 2);
	comes("/changed-etag", data_b, hex_b, 2);
	comes("/changed-silently", data_b, hex_b, 3);
	comes("/other-range", data_a, hex_a, 3);
	comes("/stall", data_a, hex_a, 2);
	comes("/drop", data_a, hex_a, 2);
	comes("/503", data_a, hex_a, 3);
	comes("/redirect", data_a, hex_a, 3);
}

static void test_failures(void)
{
	fails("/ok", hex_b, 0, -EBADMSG, "differs: 300000 bytes came, of sha256:");
	is_int(files_left(), 0, "a wrong file is not kept");
	fails("/404", hex_a, 0, -ENOENT, "/404: is not there");
	fails("/403", hex_a, 0, -EACCES, "answered 403");
	fails("/teapot", hex_a, 0, -EIO, "answered 418");
	is_int(requests, 1, "which is not tried again");
	fails("/500", hex_a, 0, -EIO, "answered 500 (after 5 tries)");
	is_int(requests, LIMIT_DOWNLOAD_TRIES,
		"a download that failed was tried as often as it should be");
	fails("/cut-always", hex_a, 0, -EBADMSG, "truncated: 150000 of 300000 bytes came");
	fails("/ok", hex_a, SIZE - 1, -EFBIG, "larger than the 299999 bytes allowed");
	fails("/endless", hex_a, 1000000, -EFBIG, "larger than the 1000000 bytes allowed");
	fails("/redirect-loop", hex_a, 0, -EIO, "more than 8 redirects");
	fails("/redirect-file", hex_a, 0, -EIO,
		"file:///etc/passwd, which is neither http nor https");
	fails("/ok", "abc", 0, -EINVAL, "sha256");
	fails("/ok", "ZZZ0000000000000000000000000000000000000000000000000000000000000", 0, -EINVAL,
		"no sha256");
}

/* A failed download's part is used by the next call, in another process as well. */
static void test_resume_later(void)
{
	cleanup_free char *at = NULL;
	struct err err;

	reset();
	is_int(fetch("/cut-until-repaired", hex_a, 0, &at, &err), -EBADMSG,
		"a download that breaks off");
	is_int(files_left(), 2, "leaves its part and where it came from");
	repaired = true;
	requests = 0;
	is_int(fetch("/cut-until-repaired", hex_a, 0, &at, &err), 0,
		"a download is taken up later");
	is_int(requests, 1, "a download is resumed with one request");
	is_str(last_if_range, "\"v7\"", "for the rest of that very file");
	is_int(files_left(), 1, "the part of a finished download is gone");
	free(steal_ptr(&at));
	requests = 0;
	is_int(fetch("/cut-until-repaired", hex_a, 0, &at, &err), 0, "what is cached");
	is_int(requests, 0, "what is cached is not asked for");
}

/* A part that is longer than the file, and one that is the whole of it. */
static void test_strange_parts(void)
{
	cleanup_free char *at = NULL;
	cleanup_free char *cmd = str_printf("find %s -type d -name partial", home);
	FILE *f = popen(cmd, "re");
	char line[512] = "";
	struct err err;

	if (!fgets(line, sizeof(line), f))
		abort();
	pclose(f);
	line[strcspn(line, "\n")] = '\0';
	reset();
	file_publish(line, hex_a, data_b, SIZE, 0600, &err);
	is_int(fetch("/ok", hex_a, 0, &at, &err), 0, "a part of another file, as long");
	is_int(requests, 2, "a part of another file is found out at the end, and all comes anew");
	reset();
	free(steal_ptr(&at));
	file_publish(line, hex_a, data_a, SIZE, 0600, &err);
	is_int(fetch("/ok", hex_a, 0, &at, &err), 0, "a part that is all of it");
	is_int(requests, 1, "takes one request to see");
}

static void test_many(void)
{
	struct fetch_item items[MANY + 1] = {{0}};
	cleanup_free char *dup = str_printf("http://127.0.0.1:%d/many/3", port);
	struct err err = {""};
	int r;

	reset();
	for (int i = 0; i < MANY; i++) {
		items[i].url = str_printf("http://127.0.0.1:%d/many/%d", port, i);
		items[i].sha256 = hex_many[i];
	}
	items[MANY].url = dup;
	items[MANY].sha256 = hex_many[3];
	r = fetch_all(items, MANY + 1, NULL, &err);
	if (!is_int(r, 0, "twenty at once"))
		printf("# %s\n", err.text);
	is_int(most_at_once, LIMIT_DOWNLOADS,
		"never more than LIMIT_DOWNLOADS, and as many as that");
	is_int(requests, MANY, "the same file is fetched once");
	is_str(items[MANY].ret_path, items[3].ret_path,
		"a file that was fetched once is there for both");
	for (int i = 0; i <= MANY; i++) {
		free(items[i].ret_path);
		if (i < MANY)
			free((char *)items[i].url);
	}
}

static void *fetch_once(void *arg)
{
	cleanup_free char *at = NULL;
	struct err err;

	return (void *)(intptr_t)fetch("/once", arg, 0, &at, &err);
}

/* The lock is of the file, so two threads are to it as two processes. */
static void test_two_fetchers(void)
{
	pthread_t threads[4];
	intptr_t sum = 0;
	void *r;

	reset();
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, fetch_once, hex_a);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &r);
		sum += (intptr_t)r != 0;
	}
	is_int(sum, 0, "four fetchers of one file all have it");
	is_int(requests, 1, "one of four fetchers has asked the server");
	is_int(files_left(), 1, "four fetchers leave nothing but their file");
}

static void test_file_url(void)
{
	cleanup_free char *dir = str_printf("%s/mirror", home),
			  *url = str_printf("file://%s/a", dir);
	struct fetch_item item = {.url = url, .sha256 = hex_a};
	struct fetch_item two[2] = {{.url = url, .sha256 = hex_a}, {.url = url, .sha256 = hex_b}};
	struct fetch_item bad = {.url = "ftp://user:secret@example.org/x", .sha256 = hex_a};
	struct err err = {""};

	reset();
	mkdir(dir, 0755);
	file_publish(dir, "a", data_a, SIZE, 0644, &err);
	is_int(fetch_all(&item, 1, NULL, &err), 0, "a file URL");
	free(item.ret_path);
	reset();
	is_int(fetch_all(two, 2, NULL, &err), -EBADMSG,
		"a file URL with two sums, one of them wrong, is refused");
	ok(!two[0].ret_path && !two[1].ret_path, "gives neither");
	reset();
	item.url = "file:///nonexistent/a";
	is_int(fetch_all(&item, 1, NULL, &err), -ENOENT, "a file URL to nothing: %s", err.text);
	is_int(fetch_all(&bad, 1, NULL, &err), -EINVAL, "ftp is not spoken");
	is_int(fetch_all(NULL, 0, NULL, &err), 0, "a list of no downloads is no error");
	item.url = "http://user:secret@127.0.0.1:1/x?token=secret";
	item.sha256 = hex_a;
	is_int(fetch_all(&item, 1, NULL, &err), -EIO, "nobody listens");
	ok(!strstr(err.text, "secret"), "an error's text has no secret of a URL: %s", err.text);
}

static const char tls_server[] =
	"import http.server, ssl, sys\n"
	"class H(http.server.BaseHTTPRequestHandler):\n"
	"    def do_GET(self):\n"
	"        if self.path == '/down':\n"
	"            self.send_response(302)\n"
	"            self.send_header('Location', 'http://127.0.0.1:%s/ok' % sys.argv[2])\n"
	"            self.send_header('Content-Length', '0'); self.end_headers(); return\n"
	"        self.send_response(200); self.send_header('Content-Length', '3'); "
	"self.end_headers()\n"
	"        self.wfile.write(b'abc')\n"
	"    def log_message(self, *a): pass\n"
	"s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)\n"
	"c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); c.load_cert_chain(sys.argv[1])\n"
	"s.socket = c.wrap_socket(s.socket, server_side=True, do_handshake_on_connect=False)\n"
	"print(s.server_port, flush=True); s.serve_forever()\n";

static void tls_checks(int tls_port, const char *cert)
{
	cleanup_free char *good = str_printf("https://127.0.0.1:%d/abc", tls_port);
	cleanup_free char *down = str_printf("https://127.0.0.1:%d/down", tls_port);
	char hex[DIGEST_HEX_SIZE];
	struct fetch_item item = {.url = good, .sha256 = hex};
	struct err err = {""};

	hex_of("abc", 3, hex);
	unsetenv("CURL_CA_BUNDLE");
	is_int(fetch_all(&item, 1, NULL, &err), -EIO, "an unknown certificate");
	has_str(err.text, "certificate", "%s", err.text);
	setenv("CURL_CA_BUNDLE", cert, 1);
	if (!is_int(fetch_all(&item, 1, NULL, &err), 0,
		    "a server's certificate is checked with CURL_CA_BUNDLE"))
		printf("# %s\n", err.text);
	free(item.ret_path);
	unsetenv("CURL_CA_BUNDLE");
	setenv("SSL_CERT_FILE", cert, 1);
	item.url = down;
	item.sha256 = hex_a;
	is_int(fetch_all(&item, 1, NULL, &err), -EIO, "from https to http");
	has_str(err.text, "which is not https", "%s", err.text);
	unsetenv("SSL_CERT_FILE");
}

static void test_tls(void)
{
	cleanup_free char *cert = str_printf("%s/cert.pem", home),
			  *port_text = str_printf("%d", port);
	cleanup_free char *make =
		str_printf("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
			   "-nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 "
			   "-keyout %s.key -out %s "
			   "2>/dev/null && cat %s.key >>%s",
			cert, cert, cert, cert);
	const char *argv[] = {"python3", "-c", tls_server, cert, port_text, NULL};
	struct proc_spec spec = {.argv = argv, .die_with_parent = true};
	cleanup_proc struct proc server = PROC_INIT;
	struct err err;
	cleanup_file FILE *from = NULL;
	char line[32] = "";
	int pipe_fd[2];

	reset();
	if (system(make) || pipe2(pipe_fd, O_CLOEXEC) < 0) {
		tap_skip("no openssl program to make a certificate with");
		return;
	}
	proc_map_fd(&spec, pipe_fd[1], 1);
	if (!is_int(proc_start(&spec, &server, &err), 0, "a server that speaks TLS"))
		return;
	close(pipe_fd[1]);
	/* a whole line: the server may write its number and the newline apart */
	from = fdopen(pipe_fd[0], "re");
	if (!ok(fgets(line, sizeof(line), from), "says its port"))
		return;
	tls_checks(atoi(line), cert);
}

int main(void)
{
	pthread_t server;
	int fd;

	if (!mkdtemp(home))
		return 1;
	setenv("PARBAKE_HOME", home, 1);
	setenv("no_proxy", "*", 1);
	for (int i = 0; i < SIZE; i++) {
		data_a[i] = (char)(i * 2654435761U >> 11);
		data_b[i] = (char)(i * 2246822519U >> 9);
	}
	hex_of(data_a, SIZE, hex_a);
	hex_of(data_b, SIZE, hex_b);
	for (int i = 0; i < MANY; i++) {
		snprintf(many[i], sizeof(many[i]), "file number %d", i);
		hex_of(many[i], strlen(many[i]), hex_many[i]);
	}
	fd = server_start(&server);
	test_broken();
	test_failures();
	test_resume_later();
	test_strange_parts();
	test_many();
	test_two_fetchers();
	test_file_url();
	test_tls();
	shutdown(fd, SHUT_RDWR);
	pthread_join(server, NULL);
	close(fd);
	{
		struct err err;

		file_remove_tree(AT_FDCWD, home, &err);
	}
	return tap_done();
}
