/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest agent as an ordinary process (`--fd N`) over a socketpair, spoken to in raw frames:
 * synchronising, breaches, credit, exec, files, TCP, contexts. Where this host has a
 * cgroup v2 mount that may be written, trees are cgroups as in a machine.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/proto.h"
#include "tests/unit/tap.h"

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
	int open;   /* frames that came before the agent opened it: its request's type */
	struct seen *next;
};

static int sock = -1;
static pid_t agent_pid;
static struct seen *streams;
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

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- a mini client -------------------------------------------------------------------- */

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
	struct seen *s = streams;

	while (s && s->id != id)
		s = s->next;
	return s;
}

static struct seen *seen_new(uint32_t id)
{
	struct seen *s = calloc(1, sizeof(*s));

	s->id = id;
	s->next = streams;
	streams = s;
	return s;
}

static void seen_free(struct seen *s)
{
	for (struct seen **p = &streams; *p; p = &(*p)->next) {
		if (*p == s) {
			*p = s->next;
			break;
		}
	}
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
		snprintf(last_fault, sizeof(last_fault), "%.*s", (int)h->length, (const char *)body);
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

/* Read until *@flag, the agent hangs up (0) or @ms have passed (0). */
static int wait_for(const int *flag, int ms)
{
	int64_t until = now_ms() + ms;

	while (!*flag) {
		struct pollfd p = {.fd = sock, .events = POLLIN};
		int64_t left = until - now_ms();
		ssize_t n;

		if (left <= 0 || poll(&p, 1, (int)left) <= 0)
			return *flag;
		n = recv(sock, in_buf + in_len, sizeof(in_buf) - in_len, 0);
		if (n <= 0)
			return *flag;
		in_len += (size_t)n;
		got_bytes();
	}
	return 1;
}

static int do_sync(uint32_t lowest, uint32_t highest)
{
	struct proto_sync sync = {.version_min = lowest, .version_max = highest};

	while (streams)
		seen_free(streams);
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
		snprintf(fd, sizeof(fd), "%d", pair[1]);
		fcntl(pair[1], F_SETFD, 0);
		if (cgroup_dir[0])
			execl(agent_path, "parbake-agent", "--fd", fd, "--root", root_dir, "--cgroup",
				cgroup_dir, NULL);
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

/* ---- tests ---------------------------------------------------------------------------- */

static void test_sync(void)
{
	static const uint8_t garbage[] = "PBK1 garbage PBK";
	uint64_t before;
	uint8_t boot[PROTO_NONCE_LEN];

	send_raw(garbage, sizeof(garbage));
	ok(do_sync(1, 1), "HELLO comes, after garbage");
	is_int(hello.version, PROTO_VERSION, "the version is ours");
	is_int(hello.counter, 1, "the counter begins");
	ok(hello.uptime_ns > 0 && hello.realtime_ns > 0, "HELLO has the times");
	memcpy(boot, hello.boot, sizeof(boot));
	before = hello.counter;
	ok(do_sync(0, 7), "SYNC again");
	is_int(hello.counter, before + 1, "the counter goes on");
	ok(!memcmp(boot, hello.boot, sizeof(boot)), "the boot nonce stays");
	ok(do_sync(77, 78), "no version in common is answered");
	is_int(hello.version, 0, "with version 0");
	send_frame(PROTO_PING, 0, 0, "x", 1);
	ok(do_sync(1, 1), "and it stays unsynchronised until the next SYNC");
	is_int(pongs, 0, "the PING between was dropped");
	send_frame(PROTO_PING, 0, 0, "0123456789", 10);
	ok(wait_for(&pongs, WAIT_MS), "PONG");
	ok(last_pong_len == 10 && !memcmp(last_pong, "0123456789", 10), "with the same bytes");
}

/* After a breach: FAULT, deaf, and well again with SYNC. */
static void breach(const char *what, unsigned type, unsigned flags, uint32_t id, const void *bytes,
	uint32_t len, const char *says)
{
	faults = 0;
	send_frame(type, flags, id, bytes, len);
	ok(wait_for(&faults, WAIT_MS), "%s: FAULT", what);
	has_str(last_fault, says, "%s: it says why", what);
	pongs = 0;
	send_frame(PROTO_PING, 0, 0, NULL, 0);
	ok(do_sync(1, 1) && pongs == 0, "%s: unsynchronised until SYNC", what);
}

static void test_breaches(void)
{
	static uint8_t big[PROTO_DATA_MAX + 1];
	static const uint8_t past[] = {1, 0, 0, 0, 255, 0, 0, 0};
	static const uint8_t shape[] = {PROTO_T_TIMEOUT_MS, 0, 0, 0, 1, 0, 0, 0, 5};
	uint32_t too_much[2] = {PROTO_OUT, 1};
	struct seen *s;

	breach("unknown type", 9, 0, 0, NULL, 0, "unknown type");
	breach("flags", PROTO_PING, 1, 0, NULL, 0, "flags");
	breach("request on stream 0", PROTO_EXEC, 0, 0, NULL, 0, "wrong stream");
	breach("request on an even stream", PROTO_EXEC, 0, 2, NULL, 0, "not the host's");
	breach("long PING", PROTO_PING, 0, 0, big, 65, "PING");
	breach("field past the end", PROTO_EXEC, 0, 9001, past, sizeof(past), "past the end");
	breach("field of a wrong shape", PROTO_EXEC, 0, 9001, shape, sizeof(shape), "wrong shape");
	proto_put_str(begin(), PROTO_T_SHELL, "exec sleep 100");
	s = request(PROTO_EXEC);
	breach("long DATA", PROTO_DATA, 0, s->id, big, sizeof(big), "DATA of");
	proto_put_str(begin(), PROTO_T_SHELL, "exec sleep 100");
	s = request(PROTO_EXEC);
	breach("credit beyond the window", PROTO_CREDIT, 0, s->id, too_much, 8, "window");
	proto_put_str(begin(), PROTO_T_SHELL, "exec sleep 100");
	s = request(PROTO_EXEC);
	breach("a stream opened twice", PROTO_EXEC, 0, s->id, NULL, 0, "is open");
	proto_put_str(begin(), PROTO_T_SHELL, "exec sleep 100");
	proto_put_bool(&body, PROTO_T_STDIN, 1);
	s = request(PROTO_EXEC);
	for (unsigned i = 0; i < 5; i++) /* the pipe takes 64 KiB, the window is 256 */
		send_frame(PROTO_DATA, 0, s->id, big, PROTO_DATA_MAX);
	breach("DATA beyond the credit", PROTO_DATA, 0, s->id, big, PROTO_DATA_MAX, "credit");
	send_frame(PROTO_DATA, 3, 12345, big, 100);
	send_frame(PROTO_EOF, 0, 12345, NULL, 0);
	send_frame(PROTO_CANCEL, 0, 12345, NULL, 0);
	s = shell("echo well");
	is_str(out(s, PROTO_OUT), "well\n", "late frames of a closed stream are ignored");
	begin();
	s = call(63);
	is_int(field(s, PROTO_T_ERROR), ENOSYS, "an unknown request is answered");
}

static void test_exec(void)
{
	struct seen *s = shell("printf out; printf err >&2; exit 7");

	is_int(field(s, PROTO_T_EXIT_CODE), 7, "exit code");
	is_str(out(s, PROTO_OUT), "out", "stdout");
	is_str(out(s, PROTO_ERR), "err", "stderr, apart");
	ok(s->eof[PROTO_OUT] && s->eof[PROTO_ERR], "both have ended");
	is_int(field(s, PROTO_T_TOTAL_OUT), 3, "total of stdout");
	is_int(field(s, PROTO_T_TIMED_OUT), 0, "not timed out");
	s = shell("kill -TERM $$");
	is_int(field(s, PROTO_T_EXIT_SIGNAL), SIGTERM, "ended by a signal");
	is_int(field(s, PROTO_T_EXIT_CODE), -1, "then there is no exit code");
	s = shell("exit 127");
	is_int(field(s, PROTO_T_EXIT_CODE), 127, "127 is an exit code as any other");

	proto_put_str(begin(), PROTO_T_ARG, "parbake-no-such-program");
	s = call(PROTO_EXEC);
	is_int(field(s, PROTO_T_ERROR), ENOENT, "a program that is not there is an error");
	has_str(error_text(s), "parbake-no-such-program", "which names it");
	proto_put_str(begin(), PROTO_T_ARG, "/etc/passwd");
	s = call(PROTO_EXEC);
	is_int(field(s, PROTO_T_ERROR), EACCES, "one that may not be executed");
	proto_put_str(begin(), PROTO_T_ARG, "true");
	proto_put_str(&body, PROTO_T_CWD, "/no/such/place");
	s = call(PROTO_EXEC);
	has_str(error_text(s), "/no/such/place", "a directory that is not there");
	begin();
	s = call(PROTO_EXEC);
	is_int(field(s, PROTO_T_ERROR), EINVAL, "no program at all");

	proto_put_str(begin(), PROTO_T_ARG, "printf");
	proto_put_str(&body, PROTO_T_ARG, "%s|");
	proto_put_str(&body, PROTO_T_ARG, "a b");
	proto_put_str(&body, PROTO_T_ARG, "");
	proto_put_str(&body, PROTO_T_ARG, "$HOME");
	s = call(PROTO_EXEC);
	is_str(out(s, PROTO_OUT), "a b||$HOME|", "arguments are passed as they are");

	proto_put_str(begin(), PROTO_T_SHELL, "echo $A:$LANG:$HOME; pwd");
	proto_put_str(&body, PROTO_T_ENV, "A=1");
	proto_put_str(&body, PROTO_T_ENV, "LANG=xx");
	proto_put_str(&body, PROTO_T_CWD, "/usr");
	s = call(PROTO_EXEC);
	is_str(out(s, PROTO_OUT), "1:xx:/root\n/usr\n", "environment and directory");
	s = shell("ls /proc/self/fd | wc -l; cat /proc/self/status | grep -E 'SigBlk|SigIgn'");
	is_str(out(s, PROTO_OUT), "4\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n",
		"no descriptor and no signal mask leaks into it");
}

static void test_stdin(void)
{
	static uint8_t block[PROTO_DATA_MAX];
	struct seen *s;

	proto_put_str(begin(), PROTO_T_SHELL, "wc -c");
	s = call(PROTO_EXEC);
	is_str(out(s, PROTO_OUT), "0\n", "without stdin it is empty");
	proto_put_str(begin(), PROTO_T_SHELL, "wc -c");
	proto_put_bool(&body, PROTO_T_STDIN, 1);
	s = request(PROTO_EXEC);
	for (unsigned i = 0; i < 4; i++)
		send_frame(PROTO_DATA, 0, s->id, block, sizeof(block));
	send_frame(PROTO_EOF, 0, s->id, NULL, 0);
	finish(s);
	is_str(out(s, PROTO_OUT), "262144\n", "a whole window of stdin, then its end");
	proto_put_str(begin(), PROTO_T_SHELL, "exec <&-; echo closed");
	proto_put_bool(&body, PROTO_T_STDIN, 1);
	s = request(PROTO_EXEC);
	for (unsigned i = 0; i < 4; i++)
		send_frame(PROTO_DATA, 0, s->id, block, sizeof(block));
	finish(s);
	is_str(out(s, PROTO_OUT), "closed\n", "stdin that nobody reads holds nothing up");
	proto_put_str(begin(), PROTO_T_SHELL, "trap 'echo got; exit 3' USR1; echo up; "
					      "while :; do sleep 0.05; done");
	s = request(PROTO_EXEC);
	while (!s->total[PROTO_OUT] && !s->replied) {
		int never = 0;

		wait_for(&never, 20);
	}
	{
		uint32_t sig = SIGUSR1;

		send_frame(PROTO_SIGNAL, 0, s->id, &sig, 4);
	}
	finish(s);
	is_int(field(s, PROTO_T_EXIT_CODE) >= 0 || field(s, PROTO_T_EXIT_SIGNAL) == SIGUSR1, 1,
		"SIGNAL reaches it");
}

static void test_limits(void)
{
	struct seen *s;
	static const char line[] = "head -c 300000 /dev/zero; head -c 10 /dev/zero >&2";

	proto_put_str(begin(), PROTO_T_SHELL, line);
	proto_put_u64(&body, PROTO_T_LIMIT_OUT, 1000);
	proto_put_u64(&body, PROTO_T_LIMIT_ERR, 10);
	s = call(PROTO_EXEC);
	is_int(s->total[PROTO_OUT], 1000, "output up to the limit is passed on");
	is_int(field(s, PROTO_T_CUT_OUT), 1, "and marked as cut");
	is_int(field(s, PROTO_T_TOTAL_OUT), 300000, "the rest is counted");
	is_int(field(s, PROTO_T_CUT_ERR), 0, "exactly the limit is not cut");
	is_int(s->total[PROTO_ERR], 10, "and complete");
	s = shell("head -c 5000000 /dev/zero");
	is_int(s->total[PROTO_OUT], 5000000, "5 MB come whole");
	is_int(field(s, PROTO_T_TOTAL_OUT), 5000000, "and are counted");
}

static void test_credit(void)
{
	struct seen *s, *other;
	uint32_t credit[2] = {PROTO_OUT, PROTO_WINDOW};
	int64_t started;

	proto_put_str(begin(), PROTO_T_SHELL, "head -c 1000000 /dev/zero; echo end >&2");
	s = request(PROTO_EXEC);
	s->greedy = 1;
	other = shell("echo through");
	is_str(out(other, PROTO_OUT), "through\n", "a stream without credit holds no other up");
	while (s->total[PROTO_OUT] < PROTO_WINDOW && !s->replied) {
		int never = 0;

		wait_for(&never, 20);
	}
	is_int(s->total[PROTO_OUT], PROTO_WINDOW, "it sends its window and no more");
	send_frame(PROTO_CREDIT, 0, s->id, credit, sizeof(credit));
	s->greedy = 0;
	while (s->total[PROTO_OUT] < 2 * PROTO_WINDOW && !s->replied) {
		int never = 0;

		wait_for(&never, 20);
	}
	send_frame(PROTO_CREDIT, 0, s->id, credit, sizeof(credit));
	finish(s);
	is_int(s->total[PROTO_OUT], 1000000, "with credit it goes on to the end");

	proto_put_str(begin(), PROTO_T_SHELL, "exec head -c 100000000 /dev/zero");
	proto_put_u64(&body, PROTO_T_TIMEOUT_MS, 300);
	started = now_ms();
	s = request(PROTO_EXEC);
	s->greedy = 1;
	finish(s);
	is_int(field(s, PROTO_T_TIMED_OUT), 1, "a timeout works without credit");
	is_int(field(s, PROTO_T_CUT_OUT), 1, "what could not be sent is marked as cut");
	ok(now_ms() - started < 10000, "and it does not take long");
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

/* Until no process is left with @mark in its arguments, at most 5 s. */
static int all_gone(const char *mark)
{
	int64_t until = now_ms() + 5000;
	int n;

	while ((n = processes_of(mark, 0)) > 0 && now_ms() < until) {
		int never = 0;

		wait_for(&never, 20);
	}
	return n == 0;
}

/* Until a process has @mark in its arguments (it may be amidst an exec), at most 5 s. */
static int shows_up(const char *mark)
{
	int64_t until = now_ms() + 5000;
	int n;

	while ((n = processes_of(mark, 0)) == 0 && now_ms() < until) {
		int never = 0;

		wait_for(&never, 20);
	}
	return n > 0;
}

static void test_trees(void)
{
	struct seen *s;
	int64_t started = now_ms();

	proto_put_str(begin(), PROTO_T_SHELL,
		"(setsid sh -c 'sleep 301.25; :' &) ; setsid sleep 301.25 & sleep 301.25");
	proto_put_u64(&body, PROTO_T_TIMEOUT_MS, 500);
	s = call(PROTO_EXEC);
	is_int(field(s, PROTO_T_TIMED_OUT), 1, "a timeout");
	is_int(field(s, PROTO_T_EXIT_SIGNAL), SIGKILL, "kills the main process");
	ok(now_ms() - started < 5000, "in time, though others held the pipes");
	ok(all_gone("301.25"), "grandchildren in sessions of their own are dead too");

	started = now_ms();
	s = shell("sleep 302.25 & echo here");
	is_str(out(s, PROTO_OUT), "here\n", "a background child does not hold an exec");
	is_int(field(s, PROTO_T_EXIT_CODE), 0, "which has its exit code");
	ok(now_ms() - started < 10000, "and ends at once");
	ok(all_gone("302.25"), "what it left behind is killed");

	proto_put_str(begin(), PROTO_T_SHELL, "setsid sleep 303.25 & exec sleep 303.25");
	s = request(PROTO_EXEC);
	send_frame(PROTO_CANCEL, 0, s->id, NULL, 0);
	finish(s);
	is_int(s->replied, 1, "CANCEL is replied to, once");
	ok(all_gone("303.25"), "and kills the tree");

	proto_put_str(begin(), PROTO_T_SHELL, "setsid sleep 304.25 & exec sleep 304.25");
	request(PROTO_EXEC);
	ok(do_sync(1, 1), "SYNC while something runs");
	ok(all_gone("304.25"), "kills it");

	proto_put_str(begin(), PROTO_T_SHELL, "exec sleep 305.25");
	proto_put_bool(&body, PROTO_T_DETACH, 1);
	s = call(PROTO_EXEC);
	is_int(field(s, PROTO_T_ERROR), -1, "a detached one is started");
	ok(do_sync(1, 1), "SYNC");
	ok(shows_up("305.25"), "it lives on");
	processes_of("305.25", SIGKILL);
	ok(all_gone("305.25"), "until it is ended");
}

static void test_parallel(void)
{
	struct seen *all[20];
	int good = 0;

	for (int i = 0; i < 20; i++) {
		char line[64];

		snprintf(line, sizeof(line), "head -c 200000 /dev/zero; exit %d", i);
		proto_put_str(begin(), PROTO_T_SHELL, line);
		all[i] = request(PROTO_EXEC);
	}
	for (int i = 0; i < 20; i++) {
		finish(all[i]);
		good += field(all[i], PROTO_T_EXIT_CODE) == i && all[i]->total[PROTO_OUT] == 200000;
	}
	is_int(good, 20, "20 streams at once, each whole and with its own exit code");
}

static void test_pty(void)
{
	uint16_t size[2] = {33, 77};
	struct seen *s;

	proto_put_str(begin(), PROTO_T_SHELL, "stty size; read x; echo got $x");
	proto_put(&body, PROTO_T_PTY, size, sizeof(size));
	proto_put_bool(&body, PROTO_T_STDIN, 1);
	s = request(PROTO_EXEC);
	send_frame(PROTO_DATA, 0, s->id, "line\n", 5);
	finish(s);
	has_str(out(s, PROTO_OUT), "33 77", "a terminal of the size asked for");
	has_str(out(s, PROTO_OUT), "got line", "its input");
	is_int(field(s, PROTO_T_EXIT_CODE), 0, "its exit code");
}

/* ---- files ---------------------------------------------------------------------------- */

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
	ok(lstat(full, &st) == 0 && (st.st_mode & 07777) == 0640, "with its mode, whatever the umask");
	s = file(PROTO_FILE_GET, "/a/b/file");
	is_str(out(s, PROTO_OUT), "content", "GET");
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
	ok(stat.size == 7 && stat.mode == (S_IFREG | 0640), "STAT");
	s = file(PROTO_FILE_LIST, "/a");
	ok(s->total[PROTO_OUT] == PROTO_DIRENT_HEAD + 1 && s->out[PROTO_OUT][PROTO_DIRENT_HEAD] == 'b',
		"LIST");
	s = file(PROTO_FILE_REMOVE, "/a");
	is_int(field(s, PROTO_T_ERROR), ENOTEMPTY, "REMOVE alone leaves a full directory");
	proto_put_str(begin(), PROTO_T_PATH, "/a/b/file");
	proto_put_str(&body, PROTO_T_PATH2, "/a/moved");
	s = call(PROTO_FILE_RENAME);
	is_str(out(file(PROTO_FILE_GET, "/a/moved"), PROTO_OUT), "content", "RENAME");
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
	is_int(litter("/a"), 0, "and leaves nothing behind");
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
	is_str(text(s, PROTO_T_LINK, 0), target, "STAT shows the link itself");
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
	is_int(field(s, PROTO_T_ERROR), EINVAL, "is refused, and does not block");
	s = put("/fifo", "x", 0);
	is_int(field(s, PROTO_T_ERROR), EINVAL, "for writing too");
	s = file(PROTO_FILE_GET, "relative");
	is_int(field(s, PROTO_T_ERROR), EINVAL, "a path must be absolute");
	proto_put_str(begin(), PROTO_T_PATH, "/");
	proto_put_bool(&body, PROTO_T_RECURSIVE, 1);
	s = call(PROTO_FILE_REMOVE);
	is_int(field(s, PROTO_T_ERROR), EINVAL, "the root itself is not removed");
	s = file(PROTO_FILE_REMOVE, "/a/..");
	is_int(field(s, PROTO_T_ERROR), EINVAL, "nor what `..` names");
}

/* ---- TCP ------------------------------------------------------------------------------ */

static int listen_local(uint16_t *ret_port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
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
	is_str(out(s, PROTO_OUT), "pong", "and its answer reaches the host");
	is_int(field(s, PROTO_T_ERROR), -1, "no error");
	proto_put_u32(begin(), PROTO_T_PORT, port);
	s = request(PROTO_PORT);
	send_frame(PROTO_DATA, PROTO_IN, s->id, "ping", 4);
	finish(s);
	is_int(field(s, PROTO_T_ERROR), ECONNREFUSED, "PORT: nobody listens");
}

static void test_proxy(void)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
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
	ok(send(fd, "GET", 3, 0) == 3, "and asks");
	for (int64_t until = now_ms() + WAIT_MS; !opened && now_ms() < until;) {
		int never = 0;

		wait_for(&never, 20);
		for (s = streams; s && !s->open; s = s->next)
			continue;
		opened = s && s->total[PROTO_OUT] == 3;
	}
	ok(opened, "the host is asked to serve it, and has its bytes");
	if (!opened)
		return;
	is_int(s->id % 2, 0, "on an even stream");
	send_frame(PROTO_DATA, PROTO_IN, s->id, "200 OK", 6);
	send_frame(PROTO_REPLY, 0, s->id, NULL, 0);
	ok(recv(fd, got, 7, MSG_WAITALL) == 6 && !strcmp(got, "200 OK"),
		"its answer reaches the client, which then sees the end");
	close(fd);
	seen_free(s);
	proto_put_u32(begin(), PROTO_T_PORT, 0);
	call(PROTO_PROXY);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ok(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0, "stopped, it listens no more");
	close(fd);
}

/* ---- the machine and contexts --------------------------------------------------------- */

static void test_machine(void)
{
	struct seen *s;

	begin();
	s = call(PROTO_INFO);
	ok(!memcmp(text(s, PROTO_T_NONCE, 0), "", 0) && field(s, PROTO_T_MEM_TOTAL) > 0, "INFO");
	is_int(field(s, PROTO_T_COUNTER), (int64_t)hello.counter, "has the counter");
	is_int(field(s, PROTO_T_STREAMS), 0, "no other stream is open");
	begin();
	s = call(PROTO_FREEZE);
	is_int(field(s, PROTO_T_ERROR), EPERM, "a host is not frozen");
	proto_put_u64(begin(), PROTO_T_REALTIME_NS, 1);
	s = call(PROTO_CLOCK);
	is_int(field(s, PROTO_T_ERROR), EPERM, "nor its clock set");
	proto_put_str(begin(), PROTO_T_MACHINE_ID, "UPPER");
	s = call(PROTO_IDENTITY);
	is_int(field(s, PROTO_T_ERROR), EINVAL, "a machine id that is none");
	begin();
	s = call(PROTO_QUIESCE);
	is_int(field(s, PROTO_T_ERROR), -1, "QUIESCE");
}

static struct seen *code(const char *line, uint64_t timeout_ms)
{
	proto_put_str(begin(), PROTO_T_CODE, line);
	proto_put_u64(&body, PROTO_T_TIMEOUT_MS, timeout_ms);
	return call(PROTO_CODE);
}

static int context_start(void)
{
	char env[8192];
	struct seen *s;

	/* its python3 is the one of this test's PATH */
	snprintf(env, sizeof(env), "PATH=%s", getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	proto_put_str(begin(), PROTO_T_ENV, env);
	proto_put_str(&body, PROTO_T_ACTION, "start");
	s = call(PROTO_CONTEXT);
	if (field(s, PROTO_T_ERROR) == -1)
		return 1;
	printf("# %s\n", error_text(s));
	return 0;
}

static void test_contexts(void)
{
	char first[64];
	struct seen *s;
	uint8_t entropy[64];

	s = code("x = 6 * 7\nprint('hi', x)\nx", 0);
	is_str(out(s, PROTO_OUT), "hi 42\n", "CODE: stdout");
	has_str(out(s, PROTO_RESULT), "\"text/plain\": \"42\"", "its result");
	is_int(field(s, PROTO_T_EXECUTION), 1, "its execution count");
	s = code("import os, sys\nos.system('echo sub')\nprint('e', file=sys.stderr)\nx + 1", 0);
	is_str(out(s, PROTO_OUT), "sub\n", "what a child process prints is its output");
	is_str(out(s, PROTO_ERR), "e\n", "stderr, apart");
	has_str(out(s, PROTO_RESULT), "\"43\"", "variables stay");
	s = code("1 / 0", 0);
	is_str(text(s, PROTO_T_ENAME, 0), "ZeroDivisionError", "an exception's class");
	is_str(text(s, PROTO_T_EVALUE, 0), "division by zero", "its text");
	has_str(text(s, PROTO_T_TRACEBACK, 0), "1 / 0", "its traceback");
	ok(!strchr(text(s, PROTO_T_TRACEBACK, 0), '\033'), "in plain text");
	s = code("def f(:", 0);
	is_str(text(s, PROTO_T_ENAME, 0), "SyntaxError", "a syntax error");
	s = code("import sys; sys.exit(3)", 0);
	is_str(text(s, PROTO_T_ENAME, 0), "SystemExit", "sys.exit() is an exception");
	s = code("input('? ')", 0);
	has_str(text(s, PROTO_T_EVALUE, 0), "input()", "input() says that it is not possible");
	s = code("import time\nwhile True: time.sleep(0.01)", 300);
	is_int(field(s, PROTO_T_TIMED_OUT), 1, "a timeout");
	is_str(text(s, PROTO_T_ENAME, 0), "KeyboardInterrupt", "interrupts the code");
	s = code("import subprocess; subprocess.Popen(['sleep', '306.25']); print(x)", 0);
	is_str(out(s, PROTO_OUT), "42\n", "and the variables are still there");
	s = code("from IPython.display import display, HTML\ndisplay(HTML('<b>'))", 0);
	has_str(out(s, PROTO_RESULT), "text/html", "display() gives a bundle");
	s = code("print('a' * 100000)", 0);
	is_int(s->total[PROTO_OUT], 100001, "long output is whole");
	s = code("import random, uuid; print(random.random())", 0);
	snprintf(first, sizeof(first), "%.60s", out(s, PROTO_OUT));
	code("random.seed(1); a = random.getstate()", 0);
	if (getrandom(entropy, sizeof(entropy), 0) != sizeof(entropy))
		bail("no random numbers");
	proto_put(begin(), PROTO_T_ENTROPY, entropy, sizeof(entropy));
	s = call(PROTO_IDENTITY);
	is_int(field(s, PROTO_T_ERROR), -1, "IDENTITY with a context");
	s = code("print(random.getstate() != a)", 0);
	is_str(out(s, PROTO_OUT), "True\n", "reseeds its generators");

	s = code("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
		 "while True: time.sleep(1)",
		300);
	is_int(field(s, PROTO_T_TIMED_OUT), 1, "code that ignores the interrupt");
	is_int(field(s, PROTO_T_CONTEXT_GONE), 1, "costs the interpreter");
	is_int(field(s, PROTO_T_ERROR), ETIMEDOUT, "and is an error");
	ok(all_gone("306.25"), "with the children of earlier cells");
	ok(context_start(), "it starts again");
	s = code("x", 0);
	is_str(text(s, PROTO_T_ENAME, 0), "NameError", "afresh");
	s = code("print('last', flush=True)\nimport os; os._exit(3)", 0);
	is_int(field(s, PROTO_T_CONTEXT_GONE), 1, "an interpreter that ends itself is gone");
	has_str(error_text(s), "code 3", "and it is said how");
	is_str(out(s, PROTO_OUT), "last\n", "with its last words");
	begin();
	s = call(PROTO_INFO);
	is_int(field(s, PROTO_T_CONTEXTS), 0, "none is left");
}

/* A directory of our own in a cgroup v2 mount, where there is one. */
static void find_cgroup(void)
{
	char line[4096], where[2048], type[64], kill[4200];
	FILE *f = fopen("/proc/mounts", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*s %2047s %63s", where, type) != 2 || strcmp(type, "cgroup2") != 0)
			continue;
		snprintf(cgroup_dir, sizeof(cgroup_dir), "%s/parbake-test-%d", where, (int)getpid());
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

static void run_all(int contexts)
{
	int status;

	printf("# trees are %s\n", cgroup_dir[0] ? "cgroups" : "found by walking /proc");
	agent_start();
	test_sync();
	test_breaches();
	test_exec();
	test_stdin();
	test_limits();
	test_credit();
	test_trees();
	test_parallel();
	test_pty();
	test_files();
	test_escapes();
	test_port();
	test_proxy();
	test_machine();
	if (contexts && ok(context_start(), "a context starts"))
		test_contexts();
	close(sock);
	ok(waitpid(agent_pid, &status, 0) == agent_pid && WIFEXITED(status) &&
			WEXITSTATUS(status) == 0,
		"the agent ends with its connection");
}

int main(int argc, char **argv)
{
	char line[256];
	int contexts = system("python3 -c 'import IPython' 2>/dev/null") == 0;

	(void)argc;
	snprintf(line, sizeof(line), "%.200s", argv[0]);
	snprintf(agent_path, sizeof(agent_path), "%s/../agent/parbake-agent", dirname(line));
	snprintf(root_dir, sizeof(root_dir), "/tmp/parbake-agent-XXXXXX");
	if (access(agent_path, X_OK) < 0 || !mkdtemp(root_dir))
		bail("no agent, or no directory");
	if (!contexts)
		tap_skip("contexts: python3 has no IPython");
	find_cgroup();
	if (cgroup_dir[0]) {
		run_all(contexts);
		ok(rmdir(cgroup_dir) == 0, "every cgroup it made is gone");
		cgroup_dir[0] = '\0';
		contexts = 0; /* once is enough */
		snprintf(line, sizeof(line), "rm -rf '%s'", root_dir);
		if (system(line) != 0 || mkdir(root_dir, 0755) < 0)
			bail("no directory");
		next_id = 1;
		in_len = 0;
	} else {
		tap_skip("cgroups: no cgroup v2 mount to write to");
	}
	run_all(contexts);
	snprintf(line, sizeof(line), "rm -rf '%s'", root_dir);
	if (system(line) != 0)
		bail("cannot clean up");
	return tap_done();
}
