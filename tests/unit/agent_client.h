/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_AGENT_CLIENT_H
#define PARBAKE_TESTS_AGENT_CLIENT_H

/*
 * The guest agent as an ordinary process (`--fd N`) over a socketpair, and a client that speaks to
 * it in raw frames, for the tests of the agent. It waits for events with deadlines; a reply
 * that does not come is seen by the checks after it.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/proto.h"
#include "tests/unit/tap.h"

/* A test that uses only part of this is no fault. */
#pragma GCC diagnostic ignored "-Wunused-function"

#define KEEP (1u << 16) /* bytes of a channel kept */
#define WAIT_MS 30000

/* One stream as the test sees it. */
struct seen {
	uint32_t id;
	int replied, faulted;
	uint8_t out[PROTO_CHANNELS][KEEP];
	uint64_t total[PROTO_CHANNELS];
	int eof[PROTO_CHANNELS];
	uint8_t reply[1 << 16];
	uint32_t reply_len;
	int greedy; /* give no credit back */
	int open; /* frames that came before the agent opened it: its request's type */
	LIST_ENTRY(seen) link;
};

static int sock = -1;
static pid_t agent_pid;
static LIST_HEAD(, seen) streams;
static uint32_t next_id = 1;
static char last_fault[512];
static int faults, pongs;
static uint8_t last_pong[64];
static uint32_t last_pong_len;
static struct proto_hello hello;
static uint8_t nonce[PROTO_NONCE_LEN];
static int synced;
static uint8_t in_buf[4 << 20];
static size_t in_len;
static char agent_path[4096], cgroup_dir[4096], root_dir[64];
static void (*agent_prepare)(void); /* in the agent's process, before it is the agent */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void bail(const char *what)
{
	printf("Bail out! %s\n", what);
	exit(1);
}

static void send_raw(const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	while (len > 0) {
		ssize_t n = send(sock, at, len, MSG_NOSIGNAL);

		if (n <= 0)
			bail("the agent is gone");
		at += n;
		len -= (size_t)n;
	}
}

static void send_frame(unsigned type, unsigned flags, uint32_t id, const void *body, uint32_t len)
{
	struct proto_header h = {.magic = PROTO_MAGIC,
		.type = (uint16_t)type,
		.flags = (uint16_t)flags,
		.stream = id,
		.length = len};

	send_raw(&h, sizeof(h));
	if (len)
		send_raw(body, len);
}

static struct seen *seen_find(uint32_t id)
{
	struct seen *s;

	LIST_FOREACH(s, &streams, link)
		if (s->id == id)
			break;
	return s;
}

static struct seen *seen_new(uint32_t id)
{
	struct seen *s = calloc(1, sizeof(*s));

	s->id = id;
	LIST_INSERT_HEAD(&streams, s, link);
	return s;
}

static void seen_free(struct seen *s)
{
	LIST_REMOVE(s, link);
	free(s);
}

static void got_data(struct seen *s, unsigned channel, const uint8_t *body, uint32_t len)
{
	uint32_t credit[2] = {channel, len};

	for (uint32_t i = 0; i < len && s->total[channel] + i < KEEP - 1; i++)
		s->out[channel][s->total[channel] + i] = body[i];
	s->total[channel] += len;
	if (!s->greedy)
		send_frame(PROTO_CREDIT, 0, s->id, credit, sizeof(credit));
}

static void got_frame(const struct proto_header *h, const uint8_t *body)
{
	struct seen *s = seen_find(h->stream);

	switch (h->type) {
	case PROTO_FAULT:
		snprintf(
			last_fault, sizeof(last_fault), "%.*s", (int)h->length, (const char *)body);
		faults++;
		break;
	case PROTO_PONG:
		memcpy(last_pong, body, h->length <= 64 ? h->length : 64);
		last_pong_len = h->length;
		pongs++;
		break;
	case PROTO_DATA:
		if (s)
			got_data(s, h->flags, body, h->length);
		break;
	case PROTO_EOF:
		if (s)
			s->eof[h->flags] = 1;
		break;
	case PROTO_REPLY:
		if (s) {
			s->replied++;
			s->reply_len = h->length < sizeof(s->reply) ? h->length : 0;
			memcpy(s->reply, body, s->reply_len);
		}
		break;
	case PROTO_PROXY_OPEN:
		seen_new(h->stream)->open = h->type;
		break;
	}
}

/* Handle whole frames; before HELLO came, look for it. */
static void got_bytes(void)
{
	struct proto_header h;
	size_t at = 0;

	while (in_len - at >= sizeof(h)) {
		memcpy(&h, in_buf + at, sizeof(h));
		if (!synced && (h.magic != PROTO_MAGIC || h.type != PROTO_HELLO)) {
			at++;
			continue;
		}
		if (h.magic != PROTO_MAGIC || h.length > PROTO_BODY_MAX)
			bail("the agent sent a broken header");
		if (in_len - at < sizeof(h) + h.length)
			break;
		if (!synced) {
			memcpy(&hello, in_buf + at + sizeof(h), sizeof(hello));
			synced = !memcmp(hello.nonce, nonce, sizeof(nonce));
		} else {
			got_frame(&h, in_buf + at + sizeof(h));
		}
		at += sizeof(h) + h.length;
	}
	memmove(in_buf, in_buf + at, in_len - at);
	in_len -= at;
}

/* Read what comes next: 0 where the agent hangs up or @ms have passed. */
static int read_some(int64_t ms)
{
	struct pollfd p = {.fd = sock, .events = POLLIN};
	ssize_t n;

	if (ms <= 0 || poll(&p, 1, (int)ms) <= 0)
		return 0;
	n = recv(sock, in_buf + in_len, sizeof(in_buf) - in_len, 0);
	if (n <= 0)
		return 0;
	in_len += (size_t)n;
	got_bytes();
	return 1;
}

/* Read until *@flag, the agent hangs up (0) or @ms have passed (0). */
static int wait_for(const int *flag, int ms)
{
	int64_t until = now_ms() + ms;

	while (!*flag)
		if (!read_some(until - now_ms()))
			return *flag;
	return 1;
}

static int do_sync(uint32_t lowest, uint32_t highest)
{
	struct proto_sync sync = {.version_min = lowest, .version_max = highest};

	while (!LIST_EMPTY(&streams))
		seen_free(LIST_FIRST(&streams));
	if (getrandom(nonce, sizeof(nonce), 0) != sizeof(nonce))
		bail("no random numbers");
	memcpy(sync.nonce, nonce, sizeof(nonce));
	synced = 0;
	send_frame(PROTO_SYNC, 0, 0, &sync, sizeof(sync));
	return wait_for(&synced, WAIT_MS);
}

static void agent_start(void)
{
	int pair[2], size = 4 << 20;
	char fd[16];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		bail("no socketpair");
	setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	agent_pid = fork();
	if (agent_pid == 0) {
		if (agent_prepare)
			agent_prepare();
		snprintf(fd, sizeof(fd), "%d", pair[1]);
		fcntl(pair[1], F_SETFD, 0);
		if (cgroup_dir[0])
			execl(agent_path, "parbake-agent", "--fd", fd, "--root", root_dir,
				"--cgroup", cgroup_dir, NULL);
		else
			execl(agent_path, "parbake-agent", "--fd", fd, "--root", root_dir, NULL);
		_exit(127);
	}
	close(pair[1]);
	sock = pair[0];
}

/* ---- requests ------------------------------------------------------------------------- */

static uint8_t body_buf[PROTO_BODY_MAX];
static struct proto_out body;

static struct proto_out *begin(void)
{
	body = (struct proto_out){.buf = body_buf, .max = sizeof(body_buf)};
	return &body;
}

static struct seen *request(unsigned type)
{
	struct seen *s = seen_new(next_id);

	next_id += 2;
	send_frame(type, 0, s->id, body.buf, body.len);
	return s;
}

static struct seen *finish(struct seen *s)
{
	if (!wait_for(&s->replied, WAIT_MS))
		printf("# stream %u has had no reply\n", s->id);
	return s;
}

static struct seen *call(unsigned type)
{
	return finish(request(type));
}

static struct seen *shell(const char *line)
{
	proto_put_str(begin(), PROTO_T_SHELL, line);
	return call(PROTO_EXEC);
}

/* A field of the reply: its number, or -1 where it is not there. */
static int64_t field(const struct seen *s, unsigned tag)
{
	struct proto_in in = {.buf = s->reply, .len = s->reply_len};
	struct proto_field f;
	uint64_t v = 0;

	while (proto_next(&in, &f) > 0) {
		if (f.tag != tag)
			continue;
		memcpy(&v, f.data, f.len < 8 ? f.len : (tag == PROTO_T_ERROR ? 4 : 8));
		return (int64_t)v;
	}
	return -1;
}

/* A field as text, behind @skip bytes. */
static const char *text(const struct seen *s, unsigned tag, uint32_t skip)
{
	static char buf[8][8192];
	static unsigned turn;
	struct proto_in in = {.buf = s->reply, .len = s->reply_len};
	struct proto_field f;

	turn = (turn + 1) % 8;
	buf[turn][0] = '\0';
	while (proto_next(&in, &f) > 0)
		if (f.tag == tag && f.len >= skip)
			snprintf(buf[turn], sizeof(buf[turn]), "%.*s", (int)(f.len - skip),
				(const char *)f.data + skip);
	return buf[turn];
}

static const char *error_text(const struct seen *s)
{
	return text(s, PROTO_T_ERROR, 4);
}

static const char *out(const struct seen *s, unsigned channel)
{
	return (const char *)s->out[channel];
}

/* A number of seconds to sleep for that no other process sleeps for: to find those of @line, in
 * which it replaces each `%m`. */
static const char *marked(const char *line, unsigned n, char ret_mark[32])
{
	static char text[512];
	const char *at;
	size_t len = 0;

	snprintf(ret_mark, 32, "%u.%07d", 300 + n, (int)getpid());
	for (at = line; *at && len < sizeof(text) - 40; at++) {
		if (at[0] == '%' && at[1] == 'm') {
			len += (size_t)snprintf(text + len, 32, "%s", ret_mark);
			at++;
		} else {
			text[len++] = *at;
		}
	}
	text[len] = '\0';
	return text;
}

/* How many processes have @mark in their arguments; each is sent @sig where that is not 0. */
static int processes_of(const char *mark, int sig)
{
	char path[320], cmd[512];
	struct dirent *e;
	DIR *d = opendir("/proc");
	int n = 0;

	while (d && (e = readdir(d)) != NULL) {
		ssize_t len;
		int fd;

		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		len = read(fd, cmd, sizeof(cmd));
		close(fd);
		if (len <= 0 || !memmem(cmd, (size_t)len, mark, strlen(mark)))
			continue;
		n++;
		if (sig)
			kill(atoi(e->d_name), sig);
	}
	if (d)
		closedir(d);
	return n;
}

/* Until no process is left with @mark in its arguments, at most 5 s. Each is sent @sig, if not 0. */
static int all_gone(const char *mark, int sig)
{
	int64_t until = now_ms() + 5000;
	int n;

	while ((n = processes_of(mark, sig)) > 0 && now_ms() < until) {
		int never = 0;

		wait_for(&never, 20);
	}
	return n == 0;
}

/* A directory of our own in a cgroup v2 mount, where there is one. */
static void find_cgroup(void)
{
	char line[4096], where[2048], type[64], kill[4200];
	FILE *f = fopen("/proc/mounts", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*s %2047s %63s", where, type) != 2 ||
			strcmp(type, "cgroup2") != 0)
			continue;
		snprintf(
			cgroup_dir, sizeof(cgroup_dir), "%s/parbake-test-%d", where, (int)getpid());
		if (mkdir(cgroup_dir, 0755) < 0)
			cgroup_dir[0] = '\0';
		snprintf(kill, sizeof(kill), "%s/cgroup.kill", cgroup_dir);
		if (cgroup_dir[0] && access(kill, W_OK) < 0) {
			rmdir(cgroup_dir);
			cgroup_dir[0] = '\0';
		}
		break;
	}
	if (f)
		fclose(f);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void directory_remove(const char *path)
{
	if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
		bail("cannot clean up");
}

/* Run @tests over one agent; it must end with its connection. */
static void agent_session(void (*tests)(void))
{
	int status;

	next_id = 1;
	in_len = 0;
	snprintf(root_dir, sizeof(root_dir), "/tmp/parbake-agent-XXXXXX");
	if (!mkdtemp(root_dir))
		bail("no directory");
	printf("# trees are %s\n", cgroup_dir[0] ? "cgroups" : "found by walking /proc");
	agent_start();
	tests();
	close(sock);
	ok(waitpid(agent_pid, &status, 0) == agent_pid && WIFEXITED(status) &&
			WEXITSTATUS(status) == 0,
		"the agent ends with its connection");
	directory_remove(root_dir);
}

/* The agent's program, beside this one. */
static void agent_find(const char *argv0)
{
	char dir[2048];

	snprintf(dir, sizeof(dir), "%s", argv0);
	snprintf(agent_path, sizeof(agent_path), "%s/../agent/parbake-agent", dirname(dir));
	if (access(agent_path, X_OK) < 0)
		bail("no agent beside the test");
}

#endif
