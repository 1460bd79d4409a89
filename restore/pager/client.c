/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's connection to a pager's process.
 *
 * The pager's socket lies in PATHS_RUN/pager under a name that is the digest of all that makes two
 * pagers differ. A client that connects holds the directory's lock for that moment. Where nobody
 * listens (there is no socket, or a killed pager left one), the client makes the listening socket
 * itself, starts the process with it and connects at once: the connection waits in the queue while
 * the process comes up. The process takes the same lock to leave, so nobody connects to one that is
 * leaving.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/json.h"
#include "common/limits.h"
#include "restore/pager/limits.h"
#include "common/paths.h"
#include "common/proc.h"
#include "common/rpc.h"
#include "common/sock.h"
#include "common/str.h"
#include "restore/pager/process_private.h"
#include "restore/pager/pager_private.h"

#define TRIES 3 /* a pager may be killed between our connecting and its first word */

struct pager_client {
	pthread_mutex_t lock; /* one request at a time */
	int sock;
	uint64_t asked; /* the number of the last request */
	int memory_fd;
	enum pager_way way;
	int pid;
	struct proc proc; /* own: to reap */
};

/* ---- starting ------------------------------------------------------------------------------ */

/* The options as the process gets them; the same text, the same pager. */
static char *options_text(const struct pager_client_spec *spec)
{
	cleanup_json json_t *obj = json_pack("{s:s, s:i, s:b, s:b, s:I, s:I, s:b, s:b, s:b, s:s}",
		"key", spec->key, "protocol", PAGERD_PROTOCOL, "wset", spec->wset != NULL,
		"private", spec->no_uffd, "threads", (json_int_t)spec->options.threads, "window",
		(json_int_t)spec->options.window_bytes, "no_premap", spec->options.no_premap,
		"record", spec->options.record, "trace", spec->options.trace, "version",
		PARBAKE_VERSION);

	if (!obj)
		abort(); /* no memory, or a bug */
	return json_text(obj);
}

static int wset_fd(const struct snapshot_ranges *wset, struct err *err)
{
	cleanup_json json_t *obj = snapshot_ranges_to_json(wset);
	cleanup_free char *text = json_text(obj);
	cleanup_fd int fd = memfd_create("parbake-wset", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : file_write_full(fd, text, strlen(text));

	if (r < 0)
		return err_sys(err, -r, "pager: pass the working set");
	return steal_fd(&fd);
}

/* Start it with @sock, its listening socket or (own) its end of the connection. */
static int start(const struct pager_client_spec *spec, const char *options, const char *dir,
	const char *name, int sock, struct proc *ret, struct err *err)
{
	const char *argv[] = {proc_program(), "pager", options, dir, name, NULL};
	struct proc_spec ps = {
		.argv = argv, .new_session = true, .cwd = "/", .keep_stderr = spec->own};
	cleanup_fd int wset = -1;
	int r;

	proc_map_fd(&ps, sock, PAGERD_FD_SOCKET);
	proc_map_fd(&ps, spec->image_fd, PAGERD_FD_IMAGE);
	if (spec->wset) {
		wset = wset_fd(spec->wset, err);
		if (wset < 0)
			return wset;
		proc_map_fd(&ps, wset, PAGERD_FD_WSET);
	}
	r = proc_start(&ps, ret, err);
	if (r < 0)
		err_prefix(err, "start a pager");
	return r;
}

/* A daemon starts as our child's child, so that it is nobody's zombie. */
static int start_shared(const struct pager_client_spec *spec, const char *options, const char *dir,
	const char *name, int sock, struct err *err)
{
	cleanup_proc struct proc parent = PROC_INIT;
	int status, r = start(spec, options, dir, name, sock, &parent, err);

	if (r < 0)
		return r;
	r = proc_wait(&parent, clock_deadline(LIMIT_PAGER_REPLY_MS), &status);
	if (r < 0)
		return err_sys(err, -r, "start a pager");
	if (status != 0)
		return err_set(err, EIO, "the pager did not start (%s pager: status %#x)",
			proc_program(), (unsigned)status);
	return 0;
}

/* Connect to the shared one, start it where there is none. */
static int connect_shared(
	const struct pager_client_spec *spec, const char *options, struct err *err)
{
	cleanup_free char *dir = NULL, *path = NULL;
	cleanup_fd int lock = -1, dirfd = -1, sock = -1, listening = -1;
	char digest[DIGEST_TEXT_SIZE], name[48];
	int r = paths_sub(PATHS_RUN, "pager", &dir, err);

	if (r < 0)
		return r;
	digest_buffer(options, strlen(options), digest);
	snprintf(name, sizeof(name), "%.32s.sock", digest + strlen("sha256:"));
	lock = file_lock(dir, PAGERD_LOCK, true, true, err);
	if (lock < 0)
		return lock;
	dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return err_sys(err, errno, "%s", dir);
	/* by way of the descriptor: a socket's path may have 107 bytes, the directory's any number
	 */
	path = str_printf("/proc/self/fd/%d/%s", dirfd, name);
	sock = sock_connect_packets(path, true, err);
	if (sock >= 0) {
		r = sock_check_peer(sock, err);
		return r < 0 ? r : steal_fd(&sock);
	}
	if (sock != -ECONNREFUSED && sock != -ENOENT)
		return sock;
	if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
		return err_sys(
			err, errno, "remove the socket %s/%s of a pager that is gone", dir, name);
	listening = sock_listen_packets(path, err);
	if (listening < 0)
		return listening;
	r = start_shared(spec, options, dir, name, listening, err);
	if (r == 0)
		r = sock = sock_connect_packets(path, true, err);
	if (r < 0) {
		unlinkat(dirfd, name, 0);
		return r;
	}
	return steal_fd(&sock);
}

static int connect_own(const struct pager_client_spec *spec, const char *options, struct proc *proc,
	struct err *err)
{
	int pair[2], r = sock_pair_packets(pair, err);

	if (r < 0)
		return r;
	r = start(spec, options, "", "", pair[1], proc, err);
	close(pair[1]);
	if (r < 0) {
		close(pair[0]);
		return r;
	}
	return pair[0];
}

/* ---- requests ------------------------------------------------------------------------------ */

/* The answer to request @n. *@ret_fd (where not NULL): the descriptor that must come with it. */
static int receive(int sock, uint64_t n, json_t **ret, int *ret_fd, struct err *err)
{
	cleanup_free char *buf = malloc(RPC_BUFFER);
	struct pollfd pfd = {.fd = sock, .events = POLLIN};
	int64_t deadline = clock_deadline(LIMIT_PAGER_REPLY_MS);
	cleanup_json json_t *answer = NULL;
	uint64_t got = 0;
	size_t n_fds;
	int fd = -1, r;
	ssize_t len;

	if (!buf)
		return err_set(err, ENOMEM, "no memory for the pager's answer");
	while (got != n) { /* one that came too late answers an older request */
		close_fd(&fd);
		r = poll(&pfd, 1, clock_left_ms(deadline));
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return err_set(err, ETIMEDOUT, "the pager does not answer");
		n_fds = 1;
		len = rpc_receive(sock, buf, &fd, &n_fds);
		if (len == 0)
			return err_set(err, ECONNRESET, "the pager is gone");
		if (len < 0)
			return err_sys(err, (int)-len, "hear from the pager");
		json_decref(steal_ptr(&answer));
		r = json_parse("the pager's answer", buf, (size_t)len, &answer, err);
		if (r == 0)
			r = json_get_u64(answer, "n", 1, INT64_MAX, &got, err);
		if (r < 0) {
			close_fd(&fd);
			return r;
		}
	}
	r = rpc_check(answer, err);
	if (r == 0 && ret_fd && fd < 0)
		r = err_set(err, EPROTO, "the pager sent no descriptor");
	if (r == 0 && ret_fd)
		*ret_fd = steal_fd(&fd);
	close_fd(&fd);
	if (r == 0 && ret)
		*ret = steal_ptr(&answer);
	return r;
}

/* Ask @op, with @n_pass descriptors. Caller owns *@ret and *@ret_fd on success. */
static int ask(struct pager_client *d, const char *op, const int *pass, size_t n_pass, json_t **ret,
	int *ret_fd, struct err *err)
{
	cleanup_json json_t *request = NULL;
	int r;

	pthread_mutex_lock(&d->lock);
	request = json_pack("{s:s, s:i, s:I}", "op", op, "protocol", PAGERD_PROTOCOL, "n",
		(json_int_t)++d->asked);
	if (!request)
		abort(); /* no memory */
	r = rpc_send(d->sock, request, pass, n_pass);
	if (r == -EPIPE || r == -ECONNRESET)
		r = err_set(err, ECONNRESET, "the pager is gone");
	else if (r < 0)
		err_sys(err, -r, "ask the pager");
	else
		r = receive(d->sock, d->asked, ret, ret_fd, err);
	pthread_mutex_unlock(&d->lock);
	return r;
}

static int hello(struct pager_client *d, struct err *err)
{
	cleanup_json json_t *reply = NULL;
	const char *way;
	uint64_t pid, bytes;
	struct stat st;
	int r = ask(d, "hello", NULL, 0, &reply, &d->memory_fd, err);

	if (r < 0)
		return r;
	if ((r = json_get_string(reply, "way", &way, err)) < 0 ||
		(r = json_get_u64(reply, "pid", 1, INT32_MAX, &pid, err)) < 0 ||
		(r = json_get_u64(reply, "memory_bytes", 1, LIMIT_MEMORY_MAX, &bytes, err)) < 0)
		return r;
	if (fstat(d->memory_fd, &st) < 0 || (uint64_t)st.st_size != bytes)
		return err_set(err, EPROTO, "the pager's memory is not %llu bytes",
			(unsigned long long)bytes);
	d->pid = (int)pid;
	d->way = strcmp(way, "uffd") == 0 ? PAGER_UFFD : PAGER_PRIVATE;
	return 0;
}

int pager_client_connect(
	const struct pager_client_spec *spec, struct pager_client **ret, struct err *err)
{
	cleanup_free char *options = options_text(spec);
	cleanup_pager_client struct pager_client *d = NULL;
	int r = 0;

	for (int i = 0; i < TRIES; i++) {
		if (d)
			pager_client_free(d);
		d = calloc(1, sizeof(*d));
		if (!d)
			return err_set(err, ENOMEM, "pager: no memory");
		pthread_mutex_init(&d->lock, NULL);
		d->proc = (struct proc)PROC_INIT;
		d->memory_fd = -1;
		d->sock = spec->own ? connect_own(spec, options, &d->proc, err)
				    : connect_shared(spec, options, err);
		if (d->sock < 0)
			return d->sock;
		r = hello(d, err);
		if (r != -ECONNRESET)
			break;
	}
	if (r < 0)
		return r;
	*ret = steal_ptr(&d);
	return 0;
}

void pager_client_free(struct pager_client *d)
{
	int status;

	if (!d)
		return;
	close_fd(&d->sock);
	close_fd(&d->memory_fd);
	/* one of our own leaves with us; should a machine of it still run, that ends here */
	if (d->proc.pid && proc_wait(&d->proc, clock_deadline(1000), &status) < 0)
		proc_kill(&d->proc);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

void pager_client_forget(struct pager_client *d)
{
	if (!d)
		return;
	close_fd(&d->proc.pidfd);
	d->proc.pid = 0;
	pager_client_free(d);
}

int pager_client_memory_fd(const struct pager_client *d)
{
	return d->memory_fd;
}

enum pager_way pager_client_way(const struct pager_client *d)
{
	return d->way;
}

int pager_client_pid(const struct pager_client *d)
{
	return d->pid;
}

int pager_client_fd(const struct pager_client *d)
{
	return d->sock;
}

int pager_client_attach(struct pager_client *d, int own_fd, const struct snapshot_ranges *own,
	int *ret_fd, int *ret_own_in, struct err *err)
{
	cleanup_fd int ranges = own && own->n ? wset_fd(own, err) : -1;
	int pair[2], in[2] = {-1, -1}, r;

	if (own && own->n && ranges < 0)
		return ranges;
	r = sock_pair(pair, err);
	if (r < 0)
		return r;
	if (ranges >= 0)
		r = sock_pair(in, err);
	if (r == 0)
		r = ask(d, ranges >= 0 ? "attach-own" : "attach",
			(int[]){pair[1], own_fd, ranges, in[1]}, ranges >= 0 ? 4 : 1, NULL, NULL,
			err);
	close(pair[1]);
	close_fd(&in[1]);
	if (r < 0) {
		close(pair[0]);
		close_fd(&in[0]);
		return r;
	}
	*ret_fd = pair[0];
	*ret_own_in = in[0];
	return 0;
}

int pager_client_get_stats(struct pager_client *d, struct pager_stats *ret, struct err *err)
{
	cleanup_json json_t *reply = NULL;
	struct pager_stats s = {0};
	uint64_t machines;
	int r = ask(d, "stats", NULL, 0, &reply, NULL, err);

	if (r < 0)
		return r;
#define GET(field)                                                                                 \
	if ((r = json_get_u64(reply, #field, 0, INT64_MAX, &s.field, err)) < 0)                    \
	return r
	GET(faults);
	GET(faults_minor);
	GET(faults_missing);
	GET(faults_hole);
	GET(faults_removed);
	GET(frames_filled);
	GET(bytes_filled);
	GET(pages_continued);
	GET(pages_zeroed);
	GET(pages_premapped);
	GET(pages_own);
	GET(machines_total);
#undef GET
	r = json_get_u64(reply, "machines", 0, LIMIT_PAGER_MACHINES, &machines, err);
	if (r < 0)
		return r;
	s.machines = (unsigned)machines;
	*ret = s;
	return 0;
}

int pager_client_get_error(struct pager_client *d, struct err *ret, struct err *err)
{
	cleanup_json json_t *reply = NULL;
	const char *text;
	int r = ask(d, "error", NULL, 0, &reply, NULL, err);

	if (r < 0 || (r = json_get_string(reply, "text", &text, err)) < 0)
		return r;
	snprintf(ret->text, sizeof(ret->text), "%s", text);
	return 0;
}

/* Ask @op, whose reply is a file of JSON. New reference. */
static int ask_file(struct pager_client *d, const char *op, json_t **ret, struct err *err)
{
	cleanup_json json_t *reply = NULL;
	cleanup_free char *text = NULL;
	cleanup_fd int fd = -1;
	uint64_t bytes;
	int r = ask(d, op, NULL, 0, &reply, &fd, err);

	if (r < 0 || (r = json_get_u64(reply, "bytes", 1, LIMIT_JSON_BYTES, &bytes, err)) < 0)
		return r;
	text = malloc(bytes);
	if (!text)
		return err_set(err, ENOMEM, "pager: no memory for what it %s", op);
	r = file_pread_full(fd, text, bytes, 0);
	if (r < 0)
		return err_sys(err, -r, "read what the pager %s", op);
	return json_parse("the pager's reply", text, bytes, ret, err);
}

int pager_client_recorded(struct pager_client *d, struct snapshot_ranges *ret, struct err *err)
{
	cleanup_json json_t *obj = NULL;
	struct stat st;
	int r = ask_file(d, "recorded", &obj, err);

	if (r < 0)
		return r;
	if (fstat(d->memory_fd, &st) < 0)
		return err_sys(err, errno, "the pager's memory");
	return snapshot_ranges_from_json(obj, (uint64_t)st.st_size, ret, err);
}

int pager_client_traced(struct pager_client *d, struct pager_trace *ret, struct err *err)
{
	cleanup_json json_t *obj = NULL;
	int r = ask_file(d, "traced", &obj, err);

	return r < 0 ? r : pager_trace_from_json(obj, ret, err);
}
