/* SPDX-License-Identifier: Apache-2.0 */
/* The QMP client against a peer that is played here: a good one, and hostile ones. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/limits.h"
#include "common/proc.h"
#include "common/sock.h"
#include "tests/unit/tap.h"
#include "vmm/qemu/qmp.h"

#define GREETING "{\"QMP\": {\"version\": {}, \"capabilities\": [\"oob\"]}}\r\n"
#define SOON clock_deadline(10000)

static struct {
	int count;
	bool flag;
	char last[64];
} seen;

static void on_event(void *user, const char *name, const json_t *data)
{
	(void)user, (void)data;
	seen.count++;
	snprintf(seen.last, sizeof(seen.last), "%s", name);
	if (!strcmp(name, "DONE"))
		seen.flag = true;
}

/* A client, and the monitor's end of its connection. */
static struct qmp *connect_to(int *ret_peer, const char *says)
{
	struct qmp *q;
	int pair[2];

	memset(&seen, 0, sizeof(seen));
	if (sock_pair(pair, NULL) < 0 || qmp_new(pair[0], -1, on_event, NULL, &q, NULL) < 0)
		abort();
	if (says && write(pair[1], says, strlen(says)) < 0)
		abort();
	*ret_peer = pair[1];
	return q;
}

static void say(int peer, const char *text)
{
	if (write(peer, text, strlen(text)) < 0)
		abort();
}

static void test_pipeline(void)
{
	cleanup_fd int peer = -1, got_fd = -1;
	cleanup_qmp struct qmp *q = connect_to(&peer, NULL);
	cleanup_json json_t *value = NULL;
	uint64_t a = 0, b = 0, c = 0;
	char buf[4096];
	size_t n_fds = 1;
	struct err err;
	int fds[2];
	ssize_t n;

	is_int(pipe(fds), 0, "a pipe to pass");
	is_int(qmp_send(q, "qmp_capabilities", NULL, -1, &a, &err), 0, "sent before the greeting");
	is_int(qmp_send(q, "stop", NULL, -1, &b, &err), 0,
		"a second command is sent before the greeting");
	n = recv(peer, buf, sizeof(buf) - 1, 0);
	buf[n > 0 ? n : 0] = '\0';
	is_str(buf,
		"{\"execute\":\"qmp_capabilities\",\"id\":1}\n{\"execute\":\"stop\",\"id\":2}\n",
		"two commands are lines with ids");
	is_int(qmp_send(q, "getfd", json_pack("{s:s}", "fdname", "x"), fds[0], &c, &err), 0,
		"a command with a descriptor is sent");
	n = sock_recv_fds(peer, buf, sizeof(buf) - 1, &got_fd, &n_fds);
	buf[n > 0 ? n : 0] = '\0';
	is_int((int64_t)n_fds, 1, "the descriptor of a command arrives");
	has_str(buf, "\"arguments\":{\"fdname\":\"x\"}",
		"a command with a descriptor has its arguments");
	say(peer,
		GREETING
		"{\"return\": {}, \"id\": 1}\r\n{\"event\": \"STOP\", \"timestamp\": {}}\r\n");
	say(peer, "{\"return\": {\"n\": 5}, \"id\": 2}\r\n{\"return\": {\"n\": 6},");
	is_int(qmp_wait(q, a, SOON, NULL, &err), 0, "the first is answered");
	is_int(qmp_wait(q, b, SOON, &value, &err), 0, "the second is answered");
	is_int(json_integer_value(json_object_get(value, "n")), 5,
		"the second answer has its value");
	is_str(seen.last, "STOP", "the event between was told");
	is_int(qmp_wait(q, c, clock_deadline(0), NULL, &err), -ETIMEDOUT,
		"half a line is no answer");
	say(peer, " \"id\": 3}\n");
	is_int(qmp_wait(q, c, SOON, NULL, &err), 0, "the rest of it makes one");
	say(peer, "{\"event\":\"DONE\"}\n");
	is_int(qmp_wait_flag(q, &seen.flag, SOON, &err), 0, "an event is waited for");
	close(fds[0]);
	close(fds[1]);
}

static void test_refusal(void)
{
	cleanup_fd int peer = -1;
	cleanup_qmp struct qmp *q = connect_to(&peer,
		GREETING "{\"error\":{\"class\":\"GenericError\",\"desc\":\"no such\"},\"id\":1}\n"
			 "{\"return\":{},\"id\":2}\n");
	uint64_t b = 0, c = 0;
	struct err err;

	qmp_send(q, "getfd", NULL, -1, NULL, &err);
	qmp_send(q, "migrate", NULL, -1, &b, &err);
	is_int(qmp_wait(q, b, SOON, NULL, &err), -EREMOTEIO, "an earlier refusal is not lost");
	is_str(err.text, "getfd: no such", "an error tells which command was refused, and why");
	say(peer, "{\"return\":{},\"id\":3}\n");
	qmp_send(q, "cont", NULL, -1, &c, &err);
	is_int(qmp_wait(q, c, SOON, NULL, &err), 0, "a refusal is told once");
}

static void test_hostile(void)
{
	static const struct {
		const char *what, *says;
		int want;
	} cases[] = {
		{"an answer to nothing", GREETING "{\"return\":{},\"id\":2}\n", -EPROTO},
		{"an answer with a negative id", GREETING "{\"return\":{},\"id\":-1}\n", -EPROTO},
		{"an answer without an id", GREETING "{\"return\":{}}\n", -EPROTO},
		{"an answer with a text for an id", GREETING "{\"return\":{},\"id\":\"1\"}\n",
			-EPROTO},
		{"an answer twice",
			GREETING "{\"return\":{},\"id\":1}\n{\"return\":{},\"id\":1}\nx", -EPROTO},
		{"no greeting", "{\"return\":{},\"id\":1}\n", -EPROTO},
		{"two greetings", GREETING GREETING, -EPROTO},
		{"no JSON", GREETING "hello\n", -EPROTO},
		{"a list", GREETING "[1]\n", -EPROTO},
		{"an object of nothing known", GREETING "{\"x\":1}\n", -EPROTO},
		{"the same key twice", GREETING "{\"event\":\"A\",\"event\":\"B\"}\n", -EPROTO},
		{"a refusal without a reason", GREETING "{\"error\":3,\"id\":1}\n", -EREMOTEIO},
		{"an event with a number for data", GREETING "{\"event\":\"X\",\"data\":3}\n",
			-ETIMEDOUT},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cleanup_fd int peer = -1;
		cleanup_qmp struct qmp *q = connect_to(&peer, cases[i].says);
		struct err err = {""};
		int r = qmp_call(q, "stop", NULL, clock_deadline(0), NULL, &err);

		if (r == 0) /* the second line breaks it */
			r = qmp_poll(q, &err);
		is_int(r, cases[i].want, "%s: %s", cases[i].what, err.text);
		if (r == -EPROTO)
			is_int(qmp_send(q, "cont", NULL, -1, NULL, &err), -EPROTO,
				"… and for ever");
	}
}

static void test_deep(void)
{
	cleanup_fd int peer = -1;
	cleanup_qmp struct qmp *q = connect_to(&peer, GREETING);
	char deep[60001];
	struct err err;

	memset(deep, '[', 60000);
	deep[60000] = '\0';
	say(peer, deep);
	say(peer, "\n");
	is_int(qmp_call(q, "stop", NULL, SOON, NULL, &err), -EPROTO, "60,000 brackets: %s",
		err.text);
}

/* Writes without end, until nobody reads. */
struct chatter {
	int fd;
	const char *piece;
};

static void *chatter(void *arg)
{
	const struct chatter *c = arg;
	char buf[64 * KIB];
	size_t len = strlen(c->piece);

	for (size_t i = 0; i + len <= sizeof(buf); i += len)
		memcpy(buf + i, c->piece, len);
	while (send(c->fd, buf, sizeof(buf) / len * len, MSG_NOSIGNAL) > 0)
		;
	return NULL;
}

static void test_endless(const char *what, const char *piece, int64_t wait_ms, int want)
{
	struct chatter arg = {-1, piece};
	struct qmp *q = connect_to(&arg.fd, GREETING);
	struct err err = {""};
	pthread_t thread;
	int r;

	pthread_create(&thread, NULL, chatter, &arg);
	r = qmp_call(q, "stop", NULL, clock_deadline(wait_ms), NULL, &err);
	is_int(r, want, "%s: %s", what, err.text);
	qmp_free(q);
	pthread_join(thread, NULL);
	close(arg.fd);
}

static void test_unread(void)
{
	cleanup_fd int peer = -1;
	cleanup_qmp struct qmp *q = connect_to(&peer, GREETING);
	struct err err = {""};
	int r = 0;

	for (int i = 0; i < 100 && r == 0; i++)
		r = qmp_send(q, "stop", NULL, -1, NULL, &err);
	is_int(r, -EPROTO, "a monitor that answers nothing: %s", err.text);
}

static void test_end(void)
{
	const char *argv[] = {"sleep", "100", NULL};
	struct proc_spec spec = {.argv = argv};
	cleanup_proc struct proc p = PROC_INIT;
	int64_t before = clock_now_ns();
	struct qmp *q;
	struct err err;
	int pair[2], peer;

	q = connect_to(&peer, GREETING);
	close(peer);
	is_int(qmp_call(q, "stop", NULL, SOON, NULL, &err), -ECONNABORTED, "a closed socket: %s",
		err.text);
	qmp_free(q);

	/* the peer's end stays open here, so only the pidfd can tell */
	is_int(proc_start(&spec, &p, &err), 0, "a process for a monitor");
	is_int(sock_pair(pair, NULL), 0, "a connection");
	is_int(qmp_new(pair[0], p.pidfd, on_event, NULL, &q, NULL), 0, "a client with its pidfd");
	say(pair[1], GREETING);
	proc_signal(&p, SIGKILL);
	is_int(qmp_call(q, "stop", NULL, clock_deadline(60000), NULL, &err), -ECONNABORTED,
		"a killed process: %s", err.text);
	ok(clock_now_ns() - before < 20 * 1000000000ll,
		"the end of a killed process is noticed at once");
	qmp_free(q);
	close(pair[1]);
}

int main(void)
{
	test_pipeline();
	test_refusal();
	test_hostile();
	test_deep();
	test_endless("a line without end", "x", 60000, -EPROTO);
	test_endless("events without end", "{\"event\":\"X\"}\n", 300, -ETIMEDOUT);
	test_unread();
	test_end();
	return tap_done();
}
