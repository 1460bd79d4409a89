/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's files (nothing half-made, nothing outside the root) and its TCP, both ways. */
#include "tests/unit/agent_client.h"

static struct seen *file(unsigned type, const char *path)
{
	proto_put_str(begin(), PROTO_T_PATH, path);
	return call(type);
}

static struct seen *put(const char *path, const char *bytes, int parents)
{
	struct seen *s;

	proto_put_str(begin(), PROTO_T_PATH, path);
	proto_put_bool(&body, PROTO_T_PARENTS, parents);
	proto_put_u32(&body, PROTO_T_MODE, 0640);
	s = request(PROTO_FILE_PUT);
	if (*bytes)
		send_frame(PROTO_DATA, 0, s->id, bytes, (uint32_t)strlen(bytes));
	send_frame(PROTO_EOF, 0, s->id, NULL, 0);
	return finish(s);
}

/* Is there something but the names given in the directory @path of the root? */
static int litter(const char *path)
{
	char full[128];
	struct dirent *e;
	DIR *d;
	int n = 0;

	snprintf(full, sizeof(full), "%s%s", root_dir, path);
	d = opendir(full);
	while (d && (e = readdir(d)) != NULL)
		n += !strncmp(e->d_name, ".parbake-", 9);
	if (d)
		closedir(d);
	return n;
}

static void test_files(void)
{
	struct proto_stat stat;
	struct stat st;
	struct proto_in in;
	struct proto_field f;
	char full[128];
	struct seen *s;

	s = put("/a/b/file", "content", 0);
	is_int(field(s, PROTO_T_ERROR), ENOENT, "PUT does not make parents unasked");
	s = put("/a/b/file", "content", 1);
	is_int(field(s, PROTO_T_BYTES), 7, "PUT with parents");
	snprintf(full, sizeof(full), "%s/a/b/file", root_dir);
	ok(lstat(full, &st) == 0 && (st.st_mode & 07777) == 0640,
		"PUT sets the mode, whatever the umask");
	s = file(PROTO_FILE_GET, "/a/b/file");
	is_str(out(s, PROTO_OUT), "content", "GET reads a file");
	proto_put_str(begin(), PROTO_T_PATH, "/a/b/file");
	proto_put_u64(&body, PROTO_T_OFFSET, 3);
	proto_put_u64(&body, PROTO_T_LENGTH, 2);
	s = call(PROTO_FILE_GET);
	is_str(out(s, PROTO_OUT), "te", "GET of a part");
	s = file(PROTO_FILE_STAT, "/a/b/file");
	in = (struct proto_in){.buf = s->reply, .len = s->reply_len};
	memset(&stat, 0, sizeof(stat));
	if (proto_next(&in, &f) == 1 && f.tag == PROTO_T_STAT)
		memcpy(&stat, f.data, sizeof(stat));
	ok(stat.size == 7 && stat.mode == (S_IFREG | 0640), "STAT describes a file");
	s = file(PROTO_FILE_LIST, "/a");
	ok(s->total[PROTO_OUT] == PROTO_DIRENT_HEAD + 1 &&
			s->out[PROTO_OUT][PROTO_DIRENT_HEAD] == 'b',
		"LIST lists a directory");
	s = file(PROTO_FILE_REMOVE, "/a");
	is_int(field(s, PROTO_T_ERROR), ENOTEMPTY, "REMOVE alone leaves a full directory");
	proto_put_str(begin(), PROTO_T_PATH, "/a/b/file");
	proto_put_str(&body, PROTO_T_PATH2, "/a/moved");
	s = call(PROTO_FILE_RENAME);
	is_str(out(file(PROTO_FILE_GET, "/a/moved"), PROTO_OUT), "content", "RENAME moves a file");
	s = file(PROTO_FILE_MKDIR, "/a/b");
	is_int(field(s, PROTO_T_ERROR), EEXIST, "MKDIR of what is there");

	/* what is not whole is not there, and leaves nothing */
	proto_put_str(begin(), PROTO_T_PATH, "/a/moved");
	s = request(PROTO_FILE_PUT);
	send_frame(PROTO_DATA, 0, s->id, "half", 4);
	send_frame(PROTO_CANCEL, 0, s->id, NULL, 0);
	finish(s);
	is_int(field(s, PROTO_T_ERROR), ECANCELED, "PUT canceled half-way");
	is_str(out(file(PROTO_FILE_GET, "/a/moved"), PROTO_OUT), "content", "changes nothing");
	for (int64_t until = now_ms() + 5000; litter("/a") && now_ms() < until;) {
		int never = 0;

		wait_for(&never, 20);
	}
	is_int(litter("/a"), 0, "a PUT that was cut leaves nothing behind");
}

/* A file is what it had when it was opened, or an error. */
static void test_changing(void)
{
	char full[128];
	struct seen *s;
	int fd;

	snprintf(full, sizeof(full), "%s/shrinks", root_dir);
	fd = open(full, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || ftruncate(fd, 4 << 20) < 0)
		bail(full);
	for (int i = 0; i < 2; i++) {
		uint32_t credit[2] = {PROTO_OUT, PROTO_WINDOW};

		proto_put_str(begin(), PROTO_T_PATH, "/shrinks");
		s = request(PROTO_FILE_GET);
		s->greedy = 1;
		while (s->total[PROTO_OUT] < PROTO_WINDOW && read_some(WAIT_MS))
			continue;
		if (ftruncate(fd, i ? 100 : 5 << 20) < 0)
			bail(full);
		s->greedy = 0;
		send_frame(PROTO_CREDIT, 0, s->id, credit, sizeof(credit));
		finish(s);
		is_int(field(s, PROTO_T_ERROR), i ? EIO : -1, "a file that %s while it is read",
			i ? "shrinks" : "grows");
		if (i)
			has_str(error_text(s), "became shorter",
				"the error of a file that shrank says so");
		else
			is_int(field(s, PROTO_T_BYTES), 4 << 20,
				"a file that grows is sent as long as it was at the beginning");
		if (ftruncate(fd, 4 << 20) < 0)
			bail(full);
	}
	close(fd);
}

static void test_escapes(void)
{
	char path[160], target[128];
	struct stat st;
	struct seen *s;
	int fd;

	/* outside the root, beside it */
	snprintf(target, sizeof(target), "%s.outside", root_dir);
	fd = open(target, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, "secret", 6) != 6)
		bail("cannot write a file");
	close(fd);
	snprintf(path, sizeof(path), "%s/link", root_dir);
	ok(symlink(target, path) == 0, "a link that leads out");
	snprintf(path, sizeof(path), "/../../../../..%s", target);
	s = file(PROTO_FILE_GET, path);
	is_int(field(s, PROTO_T_ERROR), ENOENT, "`..` ends at the root");
	s = file(PROTO_FILE_GET, "/link");
	is_int(field(s, PROTO_T_ERROR), ENOENT, "an absolute link too");
	s = file(PROTO_FILE_STAT, "/link");
	is_str(text(s, PROTO_T_LINK, 0), "/link",
		"STAT of one that leads out tells nothing of what is there");
	snprintf(path, sizeof(path), "%s/up", root_dir);
	ok(symlink("../../../../../../../../../tmp", path) == 0, "a relative link that leads out");
	s = put("/up/parbake-escaped", "x", 0);
	is_int(field(s, PROTO_T_ERROR), ENOENT, "PUT through it stays inside");
	s = put("/link", "new", 0);
	is_int(field(s, PROTO_T_BYTES), 3, "PUT over a link replaces the link");
	fd = open(target, O_RDONLY);
	ok(fd >= 0 && read(fd, path, 6) == 6 && !memcmp(path, "secret", 6), "not its target");
	close(fd);
	snprintf(path, sizeof(path), "%s/tree", root_dir);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/tree/out", root_dir);
	ok(symlink(target, path) == 0, "a link inside a tree");
	proto_put_str(begin(), PROTO_T_PATH, "/tree");
	proto_put_bool(&body, PROTO_T_RECURSIVE, 1);
	s = call(PROTO_FILE_REMOVE);
	is_int(field(s, PROTO_T_ERROR), -1, "REMOVE of the tree");
	ok(lstat(target, &st) == 0, "follows no link");
	unlink(target);
	snprintf(path, sizeof(path), "%s/fifo", root_dir);
	ok(mkfifo(path, 0600) == 0, "a FIFO");
	s = file(PROTO_FILE_GET, "/fifo");
	is_int(field(s, PROTO_T_ERROR), EINVAL, "a FIFO is refused, and does not block");
	s = put("/fifo", "x", 0);
	is_int(field(s, PROTO_T_ERROR), EINVAL, "for writing too");
	s = file(PROTO_FILE_GET, "relative");
	is_int(field(s, PROTO_T_ERROR), EINVAL, "a path must be absolute");
	proto_put_str(begin(), PROTO_T_PATH, "/");
	proto_put_bool(&body, PROTO_T_RECURSIVE, 1);
	s = call(PROTO_FILE_REMOVE);
	is_int(field(s, PROTO_T_ERROR), EINVAL, "the root itself is not removed");
	s = file(PROTO_FILE_REMOVE, "/a/..");
	is_int(field(s, PROTO_T_ERROR), EINVAL, "what `..` names is not removed");
}

/* ---- TCP ------------------------------------------------------------------------------ */

static int listen_local(uint16_t *ret_port)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, len) < 0 || listen(fd, 8) < 0 ||
		getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
		bail("no loopback");
	*ret_port = ntohs(addr.sin_port);
	return fd;
}

static void test_port(void)
{
	char got[16] = "";
	uint16_t port;
	int listener = listen_local(&port), fd;
	struct seen *s;

	proto_put_u32(begin(), PROTO_T_PORT, port);
	s = request(PROTO_PORT);
	send_frame(PROTO_DATA, PROTO_IN, s->id, "ping", 4);
	send_frame(PROTO_EOF, PROTO_IN, s->id, NULL, 0);
	fd = accept(listener, NULL, NULL);
	ok(fd >= 0 && recv(fd, got, 5, MSG_WAITALL) == 4 && !strcmp(got, "ping"),
		"PORT: bytes and the end reach the server");
	ok(send(fd, "pong", 4, 0) == 4, "which answers");
	close(fd);
	close(listener);
	finish(s);
	is_str(out(s, PROTO_OUT), "pong", "the server's answer reaches the host");
	is_int(field(s, PROTO_T_ERROR), -1, "no error");
	proto_put_u32(begin(), PROTO_T_PORT, port);
	s = request(PROTO_PORT);
	send_frame(PROTO_DATA, PROTO_IN, s->id, "ping", 4);
	finish(s);
	is_int(field(s, PROTO_T_ERROR), ECONNREFUSED, "PORT: nobody listens");
}

static void test_proxy(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char got[16] = "";
	uint16_t port;
	int fd = listen_local(&port), opened = 0;
	struct seen *s;

	close(fd); /* now it is free, most likely */
	addr.sin_port = htons(port);
	proto_put_u32(begin(), PROTO_T_PORT, port);
	s = call(PROTO_PROXY);
	is_int(field(s, PROTO_T_ERROR), -1, "PROXY listens");
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ok(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0, "a client connects");
	ok(send(fd, "GET", 3, 0) == 3, "a client of the proxy asks");
	for (int64_t until = now_ms() + WAIT_MS; !opened && now_ms() < until;) {
		int never = 0;

		wait_for(&never, 20);
		LIST_FOREACH(s, &streams, link)
			if (s->open)
				break;
		opened = s && s->total[PROTO_OUT] == 3;
	}
	ok(opened, "the host is asked to serve it, and has its bytes");
	if (!opened)
		return;
	is_int(s->id % 2, 0, "on an even stream");
	send_frame(PROTO_DATA, PROTO_IN, s->id, "200 OK", 6);
	send_frame(PROTO_REPLY, 0, s->id, NULL, 0);
	ok(recv(fd, got, 7, MSG_WAITALL) == 6 && !strcmp(got, "200 OK"),
		"the proxy's answer reaches the client, which then sees the end");
	close(fd);
	seen_free(s);
	proto_put_u32(begin(), PROTO_T_PORT, 0);
	call(PROTO_PROXY);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ok(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0, "stopped, it listens no more");
	close(fd);
}

static void tests(void)
{
	if (!do_sync(PROTO_VERSION, PROTO_VERSION))
		bail("no HELLO");
	test_files();
	test_changing();
	test_escapes();
	test_port();
	test_proxy();
}

int main(int argc, char **argv)
{
	(void)argc;
	agent_find(argv[0]);
	agent_session(tests);
	return tap_done();
}
