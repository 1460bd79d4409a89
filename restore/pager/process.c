/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pager's process: `parbake pager OPTIONS DIRECTORY NAME`, started by restore/pager/client.c
 * with its descriptors in place (process_private.h). One thread talks to clients; the engine has
 * its own.
 *
 * The process stays while a client is connected or a machine is attached. To leave, it takes the
 * directory's lock, looks once more whether someone waits to be accepted, and ends with the lock
 * held.
 *
 * It is confined (common/confine.h): as root it runs as a user of its own, and it can open nothing
 * by name. So a monitor that a guest has taken over can reach it only through the handshake and its
 * own userfaultfd, and would gain next to nothing by it. What needs the directory is done by the
 * watchdog, the process between the pager and its starter. The watchdog waits for the pager's end,
 * however that comes, and then removes the socket under the lock. Both hold the lock as one, since
 * they share its open file.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/confine.h"
#include "common/file.h"
#include "common/json.h"
#include "common/limits.h"
#include "restore/pager/limits.h"
#include "common/log.h"
#include "common/rpc.h"
#include "common/sock.h"
#include "common/str.h"
#include "restore/pager/memory_delta.h"
#include "restore/pager/pager_private.h"
#include "restore/pager/process_private.h"

struct server {
	bool own;
	int listening; /* -1: own */
	int lock; /* not held yet; -1: own */
	struct image *image;
	struct pager *pager;
	enum pager_way way;
	struct err failed; /* the engine did not start: told to whoever asks */
	int failed_code;
	/* [0] the listening socket, [1] the engine's event, then clients */
	struct pollfd fds[2 + LIMIT_PAGER_CLIENTS];
	unsigned n_fds;
};

/* ---- starting ------------------------------------------------------------------------------ */

#define THREADS 64
#define PASSED 4 /* descriptors with a request, at most */

static int give_up(pid_t watchdog, struct err *err)
{
	struct confine c = CONFINE_INIT;
	struct rlimit files;
	int r;

	/* two descriptors a machine */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	prctl(PR_SET_NAME, "parbake-pager");
	umask(077);
	c.may = CONFINE_MAY_ACCEPT | CONFINE_MAY_MEMFD;
	c.parent = watchdog;
	confine_limit(&c, RLIMIT_CORE, 0);
	confine_limit(&c, RLIMIT_NPROC, THREADS);
	c.files_fd = confine_files_new(NULL, 0, err);
	if (c.files_fd < -1)
		return c.files_fd;
	r = confine_self(&c, err);
	close_fd(&c.files_fd);
	return r;
}

static int parse_options(
	const char *text, struct pager_options *opt, bool *private, bool *has_wset, struct err *err)
{
	cleanup_json json_t *obj = NULL;
	uint64_t threads, window;
	int r = json_parse("the pager's options", text, strlen(text), &obj, err);

	if (r < 0 || (r = json_get_u64(obj, "threads", 0, PAGER_WORKERS_MAX, &threads, err)) < 0 ||
		(r = json_get_u64(obj, "window", 0, UINT32_MAX, &window, err)) < 0)
		return r;
	*opt = (struct pager_options){
		.threads = (unsigned)threads,
		.window_bytes = (uint32_t)window,
		.no_premap = json_is_true(json_object_get(obj, "no_premap")),
		.record = json_is_true(json_object_get(obj, "record")),
		.trace = json_is_true(json_object_get(obj, "trace")),
	};
	*private = json_is_true(json_object_get(obj, "private"));
	*has_wset = json_is_true(json_object_get(obj, "wset"));
	return 0;
}

static int read_ranges(int fd, uint64_t memory_bytes, struct snapshot_ranges *ret, struct err *err)
{
	cleanup_json json_t *obj = NULL;
	cleanup_free char *text = NULL;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "ranges of pages");
	if (st.st_size <= 0 || (uint64_t)st.st_size > LIMIT_JSON_BYTES)
		return err_set(err, EINVAL, "ranges of pages in %lld bytes", (long long)st.st_size);
	text = malloc((size_t)st.st_size);
	if (!text)
		return err_set(err, ENOMEM, "no memory for ranges of pages");
	r = file_pread_full(fd, text, (size_t)st.st_size, 0);
	if (r < 0)
		return err_sys(err, -r, "read ranges of pages");
	r = json_parse("ranges of pages", text, (size_t)st.st_size, &obj, err);
	return r < 0 ? r : snapshot_ranges_from_json(obj, memory_bytes, ret, err);
}

static int start_engine(struct server *s, const char *options, pid_t watchdog, struct err *err)
{
	struct pager_options opt = {0};
	struct snapshot_ranges wset = {0};
	bool private = false, has_wset = false;
	int parsed = parse_options(options, &opt, &private, &has_wset, err), r;

	/* tried while /dev/userfaultfd may be opened */
	s->way = private || pager_probe(NULL, NULL) < 0 ? PAGER_PRIVATE : PAGER_UFFD;
	r = give_up(watchdog, err);
	if (r < 0) {
		log_error("pager: %s", err->text);
		_exit(1); /* with half of it given up there is nothing it should do */
	}
	if (parsed < 0)
		return parsed;
	r = image_open(PAGERD_FD_IMAGE, &s->image, err);
	if (r < 0)
		return r;
	close(PAGERD_FD_IMAGE);
	if (has_wset) {
		r = read_ranges(PAGERD_FD_WSET, image_raw_bytes(s->image), &wset, err);
		close(PAGERD_FD_WSET);
	}
	if (r == 0)
		r = pager_new(s->image, &wset, s->way, &opt, &s->pager, err);
	snapshot_ranges_clear(&wset);
	return r;
}

/* ---- requests ------------------------------------------------------------------------------ */

/* Answer request @n with @obj (taken), and the descriptor @pass where it is none of -1. */
static int send_answer(int fd, uint64_t n, json_t *obj, int pass)
{
	cleanup_json json_t *owned = obj;

	if (!owned || json_object_set_new(owned, "ok", json_true()) < 0 ||
		json_object_set_new(owned, "n", json_integer((json_int_t)n)) < 0)
		abort(); /* no memory, or a bug */
	return rpc_send(fd, owned, &pass, pass >= 0);
}

static int send_error(int fd, uint64_t n, int code, const char *text)
{
	cleanup_json json_t *obj = rpc_failure(n, code, text);

	return rpc_send(fd, obj, NULL, 0);
}

static int do_hello(struct server *s, int fd, uint64_t n)
{
	json_t *obj = json_pack("{s:s, s:i, s:I}", "way", s->way == PAGER_UFFD ? "uffd" : "private",
		"pid", (int)getpid(), "memory_bytes", (json_int_t)s->pager->bytes);

	return send_answer(fd, n, obj, pager_memory_fd(s->pager));
}

/* The delta of an attach: image and ranges. */
static int read_own(
	struct server *s, int image_fd, int ranges_fd, struct memory_delta **ret, struct err *err)
{
	struct snapshot_ranges ranges = {0};
	int r = read_ranges(ranges_fd, s->pager->bytes, &ranges, err);

	if (r == 0)
		r = memory_delta_open(image_fd, &ranges, s->pager->bytes, ret, err);
	snapshot_ranges_clear(&ranges);
	return r;
}

/* @passed: the socket, and with @own what it brings. */
static int do_attach(struct server *s, int fd, uint64_t n, bool own, int *passed)
{
	struct memory_delta *d = NULL;
	struct err err;
	int r = 0;

	if (passed[0] < 0 || (own && passed[3] < 0))
		return send_error(fd, n, EPROTO, "attach: too few descriptors came with it");
	if (own)
		r = read_own(s, passed[1], passed[2], &d, &err);
	if (r == 0)
		r = pager_attach(
			s->pager, steal_fd(&passed[0]), d, own ? steal_fd(&passed[3]) : -1, &err);
	return r < 0 ? send_error(fd, n, -r, err.text) : send_answer(fd, n, json_object(), -1);
}

static int do_stats(struct server *s, int fd, uint64_t n)
{
	json_t *obj = json_object();
	struct pager_stats st;

	pager_get_stats(s->pager, &st);
#define PUT(field) json_object_set_new(obj, #field, json_integer((json_int_t)st.field))
	PUT(faults);
	PUT(faults_minor);
	PUT(faults_missing);
	PUT(faults_hole);
	PUT(faults_removed);
	PUT(frames_filled);
	PUT(bytes_filled);
	PUT(pages_continued);
	PUT(pages_zeroed);
	PUT(pages_premapped);
	PUT(pages_own);
	PUT(machines);
	PUT(machines_total);
#undef PUT
	return send_answer(fd, n, obj, -1);
}

static int do_error(struct server *s, int fd, uint64_t n)
{
	json_t *obj = json_object();
	struct err last;

	pager_get_error(s->pager, &last);
	json_object_set_new(obj, "text", json_lossy(last.text, strlen(last.text)));
	return send_answer(fd, n, obj, -1);
}

/* @obj (taken) is too long for a line: it goes as a file. */
static int send_file(int fd, uint64_t n, json_t *obj)
{
	cleanup_json json_t *owned = obj;
	cleanup_free char *text = json_text(owned);
	cleanup_fd int out = memfd_create("parbake-reply", MFD_CLOEXEC);
	int r = out < 0 ? -errno : file_write_full(out, text, strlen(text));

	if (r < 0)
		return send_error(fd, n, -r, "no memory for the reply");
	return send_answer(fd, n, json_pack("{s:I}", "bytes", (json_int_t)strlen(text)), out);
}

static int do_recorded(struct server *s, int fd, uint64_t n)
{
	struct snapshot_ranges wset;
	json_t *obj;
	struct err err;
	int r = pager_recorded(s->pager, &wset, &err);

	if (r < 0)
		return send_error(fd, n, -r, err.text);
	obj = snapshot_ranges_to_json(&wset);
	snapshot_ranges_clear(&wset);
	return send_file(fd, n, obj);
}

static int do_traced(struct server *s, int fd, uint64_t n)
{
	cleanup_pager_trace struct pager_trace trace = {0};
	struct err err;
	int r = pager_traced(s->pager, &trace, &err);

	return r < 0 ? send_error(fd, n, -r, err.text)
		     : send_file(fd, n, pager_trace_to_json(&trace));
}

/* One request, with what came beside it. */
static int serve(struct server *s, int fd, const json_t *obj, int *passed)
{
	const char *op;
	uint64_t protocol, n;

	if (json_get_string(obj, "op", &op, NULL) < 0 ||
		json_get_u64(obj, "n", 1, INT64_MAX, &n, NULL) < 0)
		return -EPROTO;
	if (json_get_u64(obj, "protocol", PAGERD_PROTOCOL, PAGERD_PROTOCOL, &protocol, NULL) < 0)
		return send_error(fd, n, EPROTO,
			"the pager runs from another version of parbake; "
			"end the sandboxes that use it, then try again");
	if (s->failed_code)
		return send_error(fd, n, s->failed_code, s->failed.text);
	if (strcmp(op, "hello") == 0)
		return do_hello(s, fd, n);
	if (strcmp(op, "attach") == 0)
		return do_attach(s, fd, n, false, passed);
	if (strcmp(op, "attach-own") == 0)
		return do_attach(s, fd, n, true, passed);
	if (strcmp(op, "stats") == 0)
		return do_stats(s, fd, n);
	if (strcmp(op, "error") == 0)
		return do_error(s, fd, n);
	if (strcmp(op, "recorded") == 0)
		return do_recorded(s, fd, n);
	if (strcmp(op, "traced") == 0)
		return do_traced(s, fd, n);
	return send_error(fd, n, EINVAL, "no such request");
}

/* -errno: the client is dropped. */
static int serve_client(struct server *s, int fd)
{
	cleanup_json json_t *obj = NULL;
	static char buf[RPC_BUFFER]; /* one thread serves them all */
	int passed[PASSED] = {-1, -1, -1, -1}, r;
	size_t n_fds = PASSED;
	ssize_t n = rpc_receive(fd, buf, passed, &n_fds);

	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return n < 0 ? (int)n : -ECONNRESET;
	r = json_parse("request", buf, (size_t)n, &obj, NULL) < 0 ? -EPROTO
								  : serve(s, fd, obj, passed);
	for (int i = 0; i < PASSED; i++)
		close_fd(&passed[i]);
	return r;
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void add_client(struct server *s, int fd)
{
	fcntl(fd, F_SETFL, O_NONBLOCK);
	s->fds[s->n_fds++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

/* Take who waits; false: nobody did. */
static bool accept_client(struct server *s)
{
	int fd;
	struct err err;

	if (s->listening < 0 || s->n_fds == 2 + LIMIT_PAGER_CLIENTS)
		return false;
	fd = accept4(s->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return false;
	if (sock_check_peer(fd, &err) < 0)
		close(fd);
	else
		add_client(s, fd);
	return true;
}

/* Nobody needs us: leave, unless someone comes while we take the lock. */
static bool leave(struct server *s)
{
	struct pager_stats st = {0};

	if (s->pager)
		pager_get_stats(s->pager, &st);
	if (s->n_fds > 2 || st.machines)
		return false;
	if (s->own)
		return true;
	while (flock(s->lock, LOCK_EX) < 0 && errno == EINTR)
		;
	if (accept_client(s)) {
		flock(s->lock, LOCK_UN);
		return false;
	}
	close_fd(&s->listening);
	return true; /* the watchdog lets go of the lock */
}

static int loop(struct server *s)
{
	eventfd_t count;

	while (!leave(s)) {
		/* a full house is not polled for more */
		s->fds[0].fd = s->n_fds == 2 + LIMIT_PAGER_CLIENTS ? -1 : s->listening;
		if (poll(s->fds, s->n_fds, -1) < 0 && errno != EINTR)
			return 1;
		if (s->fds[1].revents)
			eventfd_read(s->fds[1].fd, &count);
		for (unsigned i = s->n_fds; i-- > 2;) {
			if (!s->fds[i].revents || serve_client(s, s->fds[i].fd) == 0)
				continue;
			close(s->fds[i].fd);
			s->fds[i] = s->fds[--s->n_fds];
		}
		if (s->fds[0].revents)
			accept_client(s);
	}
	return 0;
}

/* ---- the watchdog ---------------------------------------------------------------------------- */

/*
 * Is nobody's socket at @name? A stamp of the file does not tell whose it is, since the next socket may have the same
 * inode number. Asked with another type, the kernel tells of a socket (EPROTOTYPE) and connects to none.
 */
static bool is_stale(int dir, const char *name)
{
	cleanup_free char *path = str_printf("/proc/self/fd/%d/%s", dir, name);
	struct err err;

	return sock_connect_packets(path, false, &err) == -ECONNREFUSED;
}

/* Wait for the pager's end and clear away its socket, if that name is not another's by now. */
static int keep(pid_t pager, int dir, const char *name, int lock)
{
	int status = 1;

	prctl(PR_SET_NAME, "parbake-pagerwd");
	/* nobody may be led to believe that somebody accepts, and the image is not ours to keep */
	close(PAGERD_FD_SOCKET);
	close(PAGERD_FD_IMAGE);
	close(PAGERD_FD_WSET);
	while (waitpid(pager, &status, 0) < 0 && errno == EINTR)
		;
	while (flock(lock, LOCK_EX) < 0 && errno == EINTR)
		;
	if (is_stale(dir, name))
		unlinkat(dir, name, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Become the watchdog and, in what returns, its pager: *@ret_watchdog. The starter waits for its own child
 * alone, which ends here. */
static int fork_pager(const char *dir, const char *name, int *ret_lock, pid_t *ret_watchdog)
{
	cleanup_free char *lock_path = str_printf("%s/%s", dir, PAGERD_LOCK);
	cleanup_fd int dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_fd int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	pid_t pid, watchdog;

	if (dirfd < 0 || lock < 0)
		return -errno;
	pid = fork();
	if (pid != 0)
		_exit(pid < 0);
	setsid();
	watchdog = getpid();
	pid = fork();
	if (pid < 0)
		_exit(1);
	if (pid != 0)
		_exit(keep(pid, dirfd, name, lock));
	*ret_lock = steal_fd(&lock);
	*ret_watchdog = watchdog;
	return 0;
}

int pager_process_main(int argc, char **argv)
{
	static struct server s = {.listening = -1, .lock = -1};
	pid_t watchdog = 0;
	int r;

	if (argc != 5 || fcntl(PAGERD_FD_SOCKET, F_GETFD) < 0 ||
		fcntl(PAGERD_FD_IMAGE, F_GETFD) < 0) {
		log_error("pager: this command is parbake's own; it is started when it is needed");
		return 2;
	}
	s.own = !argv[4][0];
	if (!s.own && (r = fork_pager(argv[3], argv[4], &s.lock, &watchdog)) < 0) {
		log_error("pager: %s: %s", argv[3], strerrordesc_np(-r));
		return 1;
	}
	s.n_fds = 2;
	s.fds[0] = (struct pollfd){.fd = -1, .events = POLLIN};
	if (s.own)
		add_client(&s, PAGERD_FD_SOCKET);
	else
		s.listening = PAGERD_FD_SOCKET;
	if (s.listening >= 0)
		fcntl(s.listening, F_SETFL, O_NONBLOCK);
	r = start_engine(&s, argv[2], watchdog, &s.failed);
	s.failed_code = -r;
	s.fds[1] = (struct pollfd){.fd = s.pager ? pager_event_fd(s.pager) : -1, .events = POLLIN};
	r = loop(&s);
	pager_free(s.pager);
	if (s.image)
		image_free(s.image);
	return r;
}
