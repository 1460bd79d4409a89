/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pager's process: `parbake pager OPTIONS DIRECTORY NAME`, started by restore/pagerd.c with its
 * descriptors in place (pagerd_impl.h). One thread talks to clients; the engine has its own.
 *
 * It stays while a client is connected or a machine attached. To leave it takes the directory's
 * lock, looks once more whether someone waits to be accepted, and only then removes its socket. It
 * holds no capability, no directory, no terminal: a monitor that a guest has taken over can reach
 * it only through the handshake and its own userfaultfd.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "common/file.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/sock.h"
#include "restore/pager_impl.h"
#include "restore/pagerd_impl.h"

struct server {
	const char *dir, *name;
	bool own;
	int listening; /* -1: own */
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

static void drop_privileges(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {0};
	struct rlimit files;

	/* two descriptors a machine */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	prctl(PR_SET_NAME, "parbake-pager");
	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	syscall(SYS_capset, &head, none);
	umask(077);
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

static int read_wset(uint64_t memory_bytes, struct snapshot_wset *ret, struct err *err)
{
	cleanup_json json_t *obj = NULL;
	cleanup_free char *text = NULL;
	struct stat st;
	int r;

	if (fstat(PAGERD_FD_WSET, &st) < 0)
		return err_sys(err, errno, "the working set");
	if (st.st_size <= 0 || (uint64_t)st.st_size > LIMIT_JSON_BYTES)
		return err_set(
			err, EINVAL, "the working set has %lld bytes", (long long)st.st_size);
	text = malloc((size_t)st.st_size);
	if (!text)
		return err_set(err, ENOMEM, "no memory for the working set");
	r = file_pread_full(PAGERD_FD_WSET, text, (size_t)st.st_size, 0);
	if (r < 0)
		return err_sys(err, -r, "read the working set");
	close(PAGERD_FD_WSET);
	r = json_parse("the working set", text, (size_t)st.st_size, &obj, err);
	return r < 0 ? r : snapshot_wset_from_json(obj, memory_bytes, ret, err);
}

static int start_engine(struct server *s, const char *options, struct err *err)
{
	struct pager_options opt;
	struct snapshot_wset wset = {0};
	bool private = false, has_wset = false;
	int r = parse_options(options, &opt, &private, &has_wset, err);

	if (r < 0 || (r = image_open(PAGERD_FD_IMAGE, &s->image, err)) < 0)
		return r;
	close(PAGERD_FD_IMAGE);
	if (has_wset)
		r = read_wset(image_raw_bytes(s->image), &wset, err);
	if (r == 0) {
		s->way = private || pager_probe(NULL, NULL) < 0 ? PAGER_PRIVATE : PAGER_UFFD;
		r = pager_new(s->image, &wset, s->way, &opt, &s->pager, err);
	}
	snapshot_wset_clear(&wset);
	return r;
}

/* ---- requests ------------------------------------------------------------------------------ */

static int send_reply(int fd, json_t *obj, int pass)
{
	cleanup_free char *text = json_text(obj);
	cleanup_free char *line = str_printf("%s\n", text);

	return sock_send_fds(fd, line, strlen(line), &pass, pass >= 0);
}

static int send_error(int fd, int code, const char *text)
{
	cleanup_json json_t *obj = json_pack("{s:b, s:i, s:s%}", "ok", false, "errno", code, "text",
		text, strnlen(text, LIMIT_PAGER_LINE / 8)); /* every byte may be escaped */

	return obj ? send_reply(fd, obj, -1) : send_error(fd, code, "(its text is not UTF-8)");
}

static int do_hello(struct server *s, int fd)
{
	cleanup_json json_t *obj = json_pack("{s:b, s:s, s:i, s:I}", "ok", true, "way",
		s->way == PAGER_UFFD ? "uffd" : "private", "pid", (int)getpid(), "memory_bytes",
		(json_int_t)s->pager->bytes);

	return send_reply(fd, obj, pager_memory_fd(s->pager));
}

static int do_attach(struct server *s, int fd, int *passed)
{
	cleanup_json json_t *obj = json_pack("{s:b}", "ok", true);
	struct err err;
	int r;

	if (*passed < 0)
		return send_error(fd, EPROTO, "attach: no socket came with it");
	r = pager_attach(s->pager, steal_fd(passed), &err);
	return r < 0 ? send_error(fd, -r, err.text) : send_reply(fd, obj, -1);
}

static int do_stats(struct server *s, int fd)
{
	cleanup_json json_t *obj = json_pack("{s:b}", "ok", true);
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
	PUT(machines);
	PUT(machines_total);
#undef PUT
	return send_reply(fd, obj, -1);
}

static int do_error(struct server *s, int fd)
{
	cleanup_json json_t *obj = NULL;
	struct err last;

	pager_get_error(s->pager, &last);
	obj = json_pack("{s:b, s:s%}", "ok", true, "text", last.text,
		strnlen(last.text, LIMIT_PAGER_LINE / 8));
	return obj ? send_reply(fd, obj, -1) : send_error(fd, EILSEQ, "its text is not UTF-8");
}

/* @obj (taken) is too long for a line: it goes as a file. */
static int send_file(int fd, json_t *obj)
{
	cleanup_json json_t *owned = obj, *reply = NULL;
	cleanup_free char *text = json_text(owned);
	cleanup_fd int out = memfd_create("parbake-reply", MFD_CLOEXEC);
	int r = out < 0 ? -errno : file_write_full(out, text, strlen(text));

	if (r < 0)
		return send_error(fd, -r, "no memory for the reply");
	reply = json_pack("{s:b, s:I}", "ok", true, "bytes", (json_int_t)strlen(text));
	return send_reply(fd, reply, out);
}

static int do_recorded(struct server *s, int fd)
{
	struct snapshot_wset wset;
	json_t *obj;
	struct err err;
	int r = pager_recorded(s->pager, &wset, &err);

	if (r < 0)
		return send_error(fd, -r, err.text);
	obj = snapshot_wset_to_json(&wset);
	snapshot_wset_clear(&wset);
	return send_file(fd, obj);
}

static int do_traced(struct server *s, int fd)
{
	cleanup_pager_trace struct pager_trace trace = {0};
	struct err err;
	int r = pager_traced(s->pager, &trace, &err);

	return r < 0 ? send_error(fd, -r, err.text) : send_file(fd, pager_trace_to_json(&trace));
}

/* One request. -errno: the client is dropped. */
static int serve_client(struct server *s, int fd)
{
	cleanup_json json_t *obj = NULL;
	char line[LIMIT_PAGER_LINE];
	cleanup_fd int passed = -1;
	size_t n_fds = 1;
	ssize_t n = sock_recv_fds(fd, line, sizeof(line), &passed, &n_fds);
	const char *op;
	uint64_t protocol;
	struct err err;

	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return n < 0 ? (int)n : -ECONNRESET;
	if (line[n - 1] != '\n' || json_parse("request", line, (size_t)n, &obj, NULL) < 0 ||
		json_get_string(obj, "op", &op, NULL) < 0)
		return -EPROTO;
	if (json_get_u64(obj, "protocol", PAGERD_PROTOCOL, PAGERD_PROTOCOL, &protocol, &err) < 0)
		return send_error(fd, EPROTO,
			"the pager runs from another version of parbake; "
			"end the sandboxes that use it, then try again");
	if (s->failed_code)
		return send_error(fd, s->failed_code, s->failed.text);
	if (strcmp(op, "hello") == 0)
		return do_hello(s, fd);
	if (strcmp(op, "attach") == 0)
		return do_attach(s, fd, &passed);
	if (strcmp(op, "stats") == 0)
		return do_stats(s, fd);
	if (strcmp(op, "error") == 0)
		return do_error(s, fd);
	if (strcmp(op, "recorded") == 0)
		return do_recorded(s, fd);
	if (strcmp(op, "traced") == 0)
		return do_traced(s, fd);
	return send_error(fd, EINVAL, "no such request");
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
	cleanup_fd int lock = -1;
	cleanup_free char *path = NULL;
	struct pager_stats st = {0};

	if (s->pager)
		pager_get_stats(s->pager, &st);
	if (s->n_fds > 2 || st.machines)
		return false;
	if (s->own)
		return true;
	lock = file_lock(s->dir, PAGERD_LOCK, true, true, NULL);
	if (accept_client(s))
		return false;
	path = str_printf("%s/%s", s->dir, s->name);
	if (lock >= 0) /* without it the socket stays, for the next one to replace */
		unlink(path);
	close_fd(&s->listening);
	return true;
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

int pagerd_main(int argc, char **argv)
{
	static struct server s = {.listening = -1};
	int r;

	if (argc != 5 || fcntl(PAGERD_FD_SOCKET, F_GETFD) < 0 ||
		fcntl(PAGERD_FD_IMAGE, F_GETFD) < 0) {
		log_error("pager: this command is parbake's own; it is started when it is needed");
		return 2;
	}
	s.dir = argv[3];
	s.name = argv[4];
	s.own = !s.name[0];
	if (!s.own) {
		/* the starter waits for the parent alone */
		pid_t pid = fork();

		if (pid != 0)
			_exit(pid < 0);
		setsid();
	}
	drop_privileges();
	s.n_fds = 2;
	s.fds[0] = (struct pollfd){.fd = -1, .events = POLLIN};
	if (s.own)
		add_client(&s, PAGERD_FD_SOCKET);
	else
		s.listening = PAGERD_FD_SOCKET;
	if (s.listening >= 0)
		fcntl(s.listening, F_SETFL, O_NONBLOCK);
	r = start_engine(&s, argv[2], &s.failed);
	s.failed_code = -r;
	s.fds[1] = (struct pollfd){.fd = s.pager ? pager_event_fd(s.pager) : -1, .events = POLLIN};
	r = loop(&s);
	pager_free(s.pager);
	if (s.image)
		image_free(s.image);
	return r;
}
