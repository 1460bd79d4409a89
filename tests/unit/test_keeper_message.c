/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between daemon and keeper, and the daemon's end against a keeper that is made up. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/str.h"
#include "pool/keeper/end_private.h"
#include "tests/unit/tap.h"

#define PATIENCE_MS 20000

static struct loop *l;
static struct err err;
static char buf[RPC_BUFFER];

/* ---- requests and answers ------------------------------------------------------------------ */

static int parse(const char *text, struct keeper_request *rq)
{
	return keeper_request_parse(text, strlen(text), rq, &err);
}

static void test_requests(void)
{
	static const struct {
		const char *text;
		int want;
		const char *says;
	} bad[] = {
		{"", -EINVAL, "not JSON"},
		{"[]", -EINVAL, "missing"},
		{"{\"op\":\"ready\"}", -EINVAL, "\"n\""},
		{"{\"op\":\"ready\",\"n\":0}", -EINVAL, "\"n\""},
		{"{\"op\":\"ready\",\"n\":-1}", -EINVAL, "\"n\""},
		{"{\"n\":1}", -EINVAL, "\"op\""},
		{"{\"op\":\"fly\",\"n\":1}", -ENOSYS, "\"fly\""},
		{"{\"op\":\"ready\",\"n\":1,\"n\":2}", -EINVAL, "duplicate"},
		{"{\"op\":\"hand_out\",\"n\":1,\"lease_ms\":5}", -EINVAL, "\"id\" is missing"},
		{"{\"op\":\"hand_out\",\"n\":1,\"id\":\"a\"}", -EINVAL, "\"lease_ms\" is missing"},
		{"{\"op\":\"hand_out\",\"n\":1,\"id\":\"../a\",\"lease_ms\":5}", -EINVAL, "\"id\""},
		{"{\"op\":\"hand_out\",\"n\":1,\"id\":\"\",\"lease_ms\":5}", -EINVAL, "\"id\""},
		{"{\"op\":\"hand_out\",\"n\":1,\"id\":\"a\",\"lease_ms\":31536000001}", -EINVAL,
			"\"lease_ms\""},
		{"{\"op\":\"hand_out\",\"n\":1,\"id\":\"a\",\"lease_ms\":5,\"hostname\":\"\"}",
			-EINVAL, "\"hostname\""},
		{"{\"op\":\"hand_out\",\"n\":1,\"id\":\"a\",\"lease_ms\":5,\"record\":[]}", -EINVAL,
			"\"record\""},
		{"{\"op\":\"renew\",\"n\":1,\"lease_ms\":5,\"pause_dir\":\"here\"}", -EINVAL,
			"\"pause_dir\""},
		{"{\"op\":\"capture\",\"n\":1}", -EINVAL, "\"dir\""},
		{"{\"op\":\"capture\",\"n\":1,\"dir\":7}", -EINVAL, "\"dir\""},
	};
	struct keeper_request rq;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		is_int(parse(bad[i].text, &rq), bad[i].want, "refused: %s", bad[i].text);
		has_str(err.text, bad[i].says, "the error names it");
		keeper_request_clear(&rq);
	}
	ok(parse("{\"op\":\"fly\",\"n\":7}", &rq) < 0 && rq.n == 7,
		"what is unknown can be answered");
	keeper_request_clear(&rq);
	is_int(parse("{\"op\":\"hand_out\",\"n\":3,\"id\":\"a1\",\"lease_ms\":250,\"record\":{"
		     "\"k\":1},"
		     "\"pause_dir\":\"/p\",\"hostname\":\"h\",\"more\":true}",
		       &rq),
		0, "a whole one");
	ok(rq.op == KEEPER_HAND_OUT && rq.n == 3 && rq.lease_ms == 250 && rq.record,
		"a request has its number");
	is_str(rq.id, "a1", "a request has its id");
	is_str(rq.pause_dir, "/p", "a request has its directory");
	is_str(rq.hostname, "h", "a request has its host name");
	keeper_request_clear(&rq);
	is_int(parse("{\"op\":\"capture\",\"n\":1,\"dir\":\"/c\",\"stop\":true}", &rq), 0,
		"a capture");
	ok(rq.stop && !strcmp(rq.dir, "/c"), "a capture's request has its fields");
	keeper_request_clear(&rq);
	for (int op = 0; op < KEEPER_OPS; op++) {
		cleanup_free char *text = str_printf(
			"{\"op\":\"%s\",\"n\":1,\"id\":\"a\",\"lease_ms\":1,\"dir\":\"/\"}",
			keeper_op_name((enum keeper_op)op));

		ok(parse(text, &rq) == 0 && rq.op == (enum keeper_op)op, "%s",
			keeper_op_name((enum keeper_op)op));
		keeper_request_clear(&rq);
	}
}

static int parse_answer(const char *text, struct keeper_answer *a)
{
	return keeper_answer_parse(text, strlen(text), a, &err);
}

static void test_answers(void)
{
	static const char *const bad[] = {"", "7", "{}", "{\"n\":1}", "{\"n\":1,\"ok\":false}",
		"{\"n\":1,\"ok\":false,\"errno\":0}", "{\"n\":1,\"ok\":false,\"errno\":5000}",
		"{\"n\":\"1\",\"ok\":true}", "{\"n\":1,\"ok\":false,\"errno\":1,\"text\":2}",
		"{\"event\":3}", "{\"event\":\"hello\",\"pid\":0}",
		"{\"event\":\"hello\",\"pid\":1e9}"};
	struct keeper_answer a;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ok(parse_answer(bad[i], &a) < 0, "refused: %s", bad[i]);
		keeper_answer_clear(&a);
	}
	is_int(parse_answer("{\"n\":4,\"ok\":true,\"x\":1}", &a), 0, "an answer");
	ok(a.n == 4 && !a.error && !a.event && !*a.text, "an answer of success has no error");
	keeper_answer_clear(&a);
	is_int(parse_answer("{\"event\":\"hello\",\"pid\":12,\"monitor_pid\":13}", &a), 0,
		"a greeting");
	ok(a.pid == 12 && a.monitor_pid == 13, "a greeting has the processes' numbers");
	keeper_answer_clear(&a);
	{
		cleanup_json json_t *obj = rpc_failure(9, ENOSPC, "not \xff text");
		cleanup_free char *text = json_text(obj);

		is_int(parse_answer(text, &a), 0, "a failure, of which not all was text");
		ok(a.n == 9 && a.error == ENOSPC, "a failure has its number and error");
		has_str(a.text, "not \xef\xbf\xbd text",
			"a failure has as much text as could be sent");
		keeper_answer_clear(&a);
	}
}

/* ---- the socket ---------------------------------------------------------------------------- */

static void test_socket(void)
{
	cleanup_free char *big = calloc(1, LIMIT_RPC_BYTES + 2), *text = NULL;
	cleanup_json json_t *long_obj = NULL, *hi = json_pack("{s:i}", "n", 1);
	int pair[2], fds[KEEPER_FDS], three[3] = {0, 1, 2};
	size_t n_fds = KEEPER_FDS;

	memset(big, 'x', LIMIT_RPC_BYTES + 1);
	long_obj = json_pack("{s:s}", "text", big);
	is_int(rpc_text(long_obj, &text, &err), -EMSGSIZE,
		"a message that is too long is not sent");
	if (sock_pair_packets(pair, &err) < 0)
		abort();
	fcntl(pair[0], F_SETFL, O_RDWR | O_NONBLOCK);
	n_fds = KEEPER_FDS;
	is_int(rpc_receive(pair[0], buf, fds, &n_fds), -EAGAIN,
		"an empty socket has no message yet");
	is_int(rpc_send(pair[1], hi, three, 2), 0, "sent, with two descriptors");
	n_fds = KEEPER_FDS;
	is_int(rpc_receive(pair[0], buf, fds, &n_fds), 7, "came whole");
	is_int(n_fds, 2, "a message comes with its descriptors");
	rpc_close_fds(fds, n_fds);
	is_int(sock_send_fds(pair[1], "{}", 2, three, 3), 0, "three descriptors");
	n_fds = KEEPER_FDS;
	is_int(rpc_receive(pair[0], buf, fds, &n_fds), -EPROTO,
		"more descriptors than a message has are refused");
	is_int(n_fds, 0, "descriptors beyond the bound are closed");
	is_int(sock_send_fds(pair[1], big, LIMIT_RPC_BYTES, NULL, 0), 0,
		"a message as long as may be is sent");
	n_fds = KEEPER_FDS;
	is_int(rpc_receive(pair[0], buf, fds, &n_fds), LIMIT_RPC_BYTES,
		"a message as long as may be comes");
	is_int(sock_send_fds(pair[1], big, LIMIT_RPC_BYTES + 1, three, 1), 0,
		"a message of one byte more is sent");
	n_fds = KEEPER_FDS;
	is_int(rpc_receive(pair[0], buf, fds, &n_fds), -EPROTO, "does not");
	close(pair[1]);
	n_fds = KEEPER_FDS;
	is_int(rpc_receive(pair[0], buf, fds, &n_fds), 0, "the end");
	close(pair[0]);
}

/* ---- the daemon's end ---------------------------------------------------------------------- */

static char seen[256];

struct fake {
	struct keeper *k;
	int far; /* the keeper's end */
	bool ended;
	char text[256];
	int child; /* a process that plays the machine */
};

static struct fake f;

static void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *fmt, ...)
{
	size_t len = strlen(seen);
	va_list args;

	va_start(args, fmt);
	vsnprintf(seen + len, sizeof(seen) - len, fmt, args);
	va_end(args);
}

static void on_ended(void *user, const char *text)
{
	struct fake *fake = user;

	note("ended ");
	fake->ended = true;
	snprintf(fake->text, sizeof(fake->text), "%s", text);
}

static const struct keeper_ops ops = {.ended = on_ended};

static void on_answer(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	(void)text;
	note("%s:%s%s ", (const char *)user, error ? strerrorname_np(error) : "ok",
		reply && json_object_get(reply, "x") ? "+x" : "");
	for (unsigned i = 0; i < n_fds; i++)
		close(fds[i]);
}

static void free_on_answer(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	on_answer("freed", error, text, reply, fds, n_fds);
	keeper_free(((struct fake *)user)->k);
	f.k = NULL;
}

static void kill_on_answer(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	on_answer("first", error, text, reply, fds, n_fds);
	keeper_kill(((struct fake *)user)->k, on_answer, "kill");
}

static void begin(void)
{
	int pair[2];

	seen[0] = '\0';
	f = (struct fake){.child = -1};
	if (sock_pair_packets(pair, &err) < 0 ||
		keeper_new(l, pair[0], "/nowhere", &ops, &f, &f.k, &err) < 0)
		abort();
	f.far = pair[1];
}

static void finish(void)
{
	keeper_free(f.k);
	close_fd(&f.far);
	if (f.child > 0) {
		kill(f.child, SIGKILL);
		waitpid(f.child, NULL, 0);
	}
}

static void say(const char *text, const int *fds, size_t n_fds)
{
	if (sock_send_fds(f.far, text, strlen(text), fds, n_fds) < 0)
		abort();
}

/* A greeting: a process of ours is keeper and machine in one. */
static void greet(int signal_first)
{
	cleanup_free char *text = NULL;
	int fds[2];

	f.child = fork();
	if (f.child == 0) {
		for (;;)
			pause();
	}
	if (signal_first)
		kill(f.child, signal_first);
	fds[0] = fds[1] = (int)syscall(SYS_pidfd_open, f.child, 0);
	text = str_printf("{\"event\":\"hello\",\"pid\":%d,\"monitor_pid\":%d}", f.child, f.child);
	say(text, fds, 2);
	close(fds[0]);
}

static void rounds(int n)
{
	while (n-- > 0)
		loop_once(l, 0, &err);
}

static void until(const char *word)
{
	int64_t deadline = clock_deadline(PATIENCE_MS);

	while (!strstr(seen, word) && clock_left_ms(deadline))
		loop_once(l, deadline, &err);
}

static void test_order(void)
{
	int fds[KEEPER_FDS];
	size_t n_fds = KEEPER_FDS;
	cleanup_keeper_request struct keeper_request rq = {0};
	ssize_t n;

	begin();
	keeper_ready(f.k, on_answer, "a");
	keeper_renew(f.k, 5, NULL, NULL, on_answer, "b");
	keeper_stats(f.k, NULL, NULL);
	keeper_console(f.k, on_answer, "d");
	n = rpc_receive(f.far, buf, fds, &n_fds);
	ok(n > 0 && keeper_request_parse(buf, (size_t)n, &rq, &err) == 0 && rq.n == 1 &&
			rq.op == KEEPER_READY,
		"requests come numbered");
	rounds(2);
	is_str(seen, "", "no request is answered before the keeper has answered");
	say("{\"n\":1,\"ok\":true,\"x\":1}", NULL, 0);
	say("{\"n\":2,\"ok\":false,\"errno\":28,\"text\":\"full\"}", NULL, 0);
	say("{\"n\":3,\"ok\":true}", NULL, 0);
	say("{\"n\":4,\"ok\":true}", (int[]){0, 1}, 2);
	rounds(2);
	is_str(seen, "a:ok+x b:ENOSPC d:ok ", "answers come in order");
	say("{\"event\":\"what newer ones say\"}", NULL, 0);
	rounds(2);
	ok(!f.ended, "an event that is not known is passed over");
	finish();
}

static void test_ends(void)
{
	begin();
	keeper_ready(f.k, on_answer, "a");
	keeper_prepare(f.k, on_answer, "b");
	say("{\"n\":2,\"ok\":true}", NULL, 0);
	until("ended");
	is_str(seen, "a:EPROTO b:EPROTO ended ",
		"an answer out of turn ends it, open requests first");
	finish();

	begin();
	keeper_ready(f.k, on_answer, "a");
	say("{\"event\":\"ended\",\"errno\":12,\"text\":\"no memory\"}", NULL, 0);
	until("ended");
	is_str(seen, "a:ENOMEM ended ", "why it did not start is the answer");
	is_str(f.text, "no memory", "the request is told why its keeper did not start");
	keeper_ready(f.k, on_answer, "late");
	is_str(seen, "a:ENOMEM ended ", "later requests are not answered at once");
	until("late");
	is_str(seen, "a:ENOMEM ended late:ECONNRESET ",
		"requests to a keeper that failed are answered from the loop");
	finish();

	begin();
	keeper_ready(f.k, on_answer, "a");
	close_fd(&f.far);
	until("ended");
	is_str(seen, "a:ECONNRESET ended ", "a connection that closes");
	finish();

	begin();
	say("nonsense", NULL, 0);
	until("ended");
	has_str(f.text, "makes no sense", "nonsense ends it");
	finish();

	begin();
	keeper_ready(f.k, free_on_answer, &f);
	keeper_ready(f.k, on_answer, "b");
	say("{\"n\":1,\"ok\":true}", NULL, 0);
	say("{\"n\":2,\"ok\":true}", NULL, 0);
	until("freed");
	rounds(3);
	is_str(seen, "freed:ok ", "freed from within an answer, it is silent");
	finish();
}

static void test_kill(void)
{
	begin();
	greet(SIGSTOP);
	rounds(2);
	is_int(f.k->pid, f.child, "a greeting tells who the keeper is");
	is_int(f.k->monitor_pid, f.child, "a greeting tells the keeper's machine");
	keeper_ready(f.k, on_answer, "a");
	keeper_kill(f.k, on_answer, "kill");
	keeper_kill(f.k, on_answer, "again");
	is_str(seen, "", "a kill is answered from the loop");
	until("kill");
	until("again");
	has_str(seen, "a:ECONNRESET kill:ok ",
		"a stopped one is killed; what was open is answered");
	has_str(seen, "again:EALREADY ", "a second kill is too much");
	ok(!strstr(seen, "ended"), "there is no other end");
	ok(waitpid(f.child, NULL, WNOHANG) == f.child,
		"keeper and machine are gone when that is told");
	f.child = -1;
	finish();

	begin();
	keeper_kill(f.k, on_answer, "kill");
	rounds(3);
	is_str(seen, "", "a kill of who has not said who it is waits for that");
	greet(0);
	until("kill");
	is_str(seen, "kill:ok ", "a kill waits for the greeting of its keeper");
	ok(waitpid(f.child, NULL, WNOHANG) == f.child, "a keeper that was killed is gone");
	f.child = -1;
	finish();

	begin();
	keeper_kill(f.k, on_answer, "kill");
	close_fd(&f.far);
	until("kill");
	is_str(seen, "kill:ok ", "a keeper that never was is gone, too");
	finish();

	begin();
	greet(0);
	keeper_ready(f.k, kill_on_answer, &f);
	say("{\"n\":1,\"ok\":true}", NULL, 0);
	until("kill");
	is_str(seen, "first:ok kill:ok ", "a kill from within an answer");
	finish();

	begin();
	greet(0);
	rounds(2);
	keeper_ready(f.k, kill_on_answer, &f);
	kill(f.child, SIGKILL); /* it has the far end, too */
	close_fd(&f.far);
	until("kill");
	rounds(3);
	is_str(seen, "first:ECONNRESET kill:ok ",
		"a kill from within what its end answers is answered, and is the only end");
	finish();
}

static void test_refused(void)
{
	cleanup_free char *text = calloc(1, LIMIT_RPC_BYTES + 1);
	cleanup_json json_t *big = json_object();
	struct keeper_lease lease = {.id = "a", .record = big, .lease_ms = 1};

	memset(text, 'x', LIMIT_RPC_BYTES);
	json_object_set_new(big, "x", json_string(text));
	begin();
	keeper_hand_out(f.k, &lease, NULL, on_answer, "big");
	keeper_capture(f.k, "/not \xff utf-8", false, on_answer, "utf");
	keeper_ready(f.k, on_answer, "good");
	is_str(seen, "", "what cannot be sent is not answered at once");
	say("{\"n\":2,\"ok\":true}", NULL, 0);
	until("good");
	until("utf");
	ok(strstr(seen, "big:EMSGSIZE") && strstr(seen, "utf:EINVAL"),
		"a request that cannot be sent fails from the loop: %s", seen);
	finish();
}

static void test_adopt(void)
{
	char dir[] = "/tmp/parbake-test-XXXXXX";
	cleanup_free char *path = NULL;
	cleanup_fd int listening = -1;
	struct stat st;

	if (!mkdtemp(dir))
		abort();
	path = str_printf("%s/id", dir);
	is_int(keeper_adopt(l, path, &ops, &f, &f.k, &err), -ENOENT,
		"a socket that is not there cannot be adopted");
	listening = sock_listen_packets(path, &err);
	ok(listening >= 0 && stat(path, &st) == 0 && (st.st_mode & 0777) == 0600,
		"a socket for its user alone");
	is_int(keeper_adopt(l, path, &ops, &f, &f.k, &err), 0, "whoever listens is adopted");
	is_int(f.k->pid, getpid(), "by the kernel's word for who that is");
	keeper_free(f.k);
	close_fd(&listening);
	is_int(keeper_adopt(l, path, &ops, &f, &f.k, &err), -ECONNREFUSED, "nobody listens");
	unlink(path);
	rmdir(dir);
}

static unsigned count_fds(void)
{
	cleanup_dir DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (dir && readdir(dir))
		n++;
	return n;
}

int main(void)
{
	unsigned before;

	signal(SIGPIPE, SIG_IGN);
	test_requests();
	test_answers();
	test_socket();
	if (loop_new(&l, &err) < 0)
		abort();
	before = count_fds();
	test_order();
	test_ends();
	test_kill();
	test_refused();
	test_adopt();
	is_int(count_fds(), before, "no descriptor is left");
	loop_free(l);
	return tap_done();
}
