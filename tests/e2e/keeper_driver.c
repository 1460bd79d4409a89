/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives zygotes and keepers as a daemon does, with real machines: `keeper_driver NAME TAG DIGEST SOCKETS
 * CAPTURES` (two directories).
 * Run by keeper.sh. What must be gone is waited for by pidfd, with a deadline.
 */
#include "tests/e2e/keeper_driver.h"

#include "common/file.h"
#include "common/smaps.h"
#include "common/str.h"
#include "pool/keeper/limits.h"

/* ---- a whole life -------------------------------------------------------------------------- */

static void check_stats(struct box *b)
{
	uint64_t shared, private, monitor, keeper, disk, cpu;
	struct smaps own = {0};
	int r;

	keeper_stats(b->k, on_answer, fresh(b));
	is_int(answered(b), 0, "stats");
	if (json_get_u64(b->a.reply, "memory_private", 1, GIB, &private, &err) < 0 ||
		json_get_u64(b->a.reply, "memory_shared", 0, GIB, &shared, &err) < 0 ||
		json_get_u64(b->a.reply, "monitor_private", 0, GIB, &monitor, &err) < 0 ||
		json_get_u64(b->a.reply, "keeper_private", 1, GIB, &keeper, &err) < 0 ||
		json_get_u64(b->a.reply, "disk_bytes", 1, GIB, &disk, &err) < 0 ||
		json_get_u64(b->a.reply, "cpu_ns", 1, INT64_MAX, &cpu, &err) < 0) {
		ok(false, "a keeper tells all the statistics: %s", err.text);
		return;
	}
	ok(true, "a keeper tells all the statistics");
	printf("# guest private %lu KiB, shared %lu KiB; monitor %lu KiB; keeper %lu KiB; disk %lu "
	       "KiB\n",
		private / KIB, shared / KIB, monitor / KIB, keeper / KIB, disk / KIB);
	/* its own pages: its share of what it has in common follows from who else runs */
	r = smaps_read(b->k->pid, &own, &err);
	if (r == -EACCES)
		ok(true, "a keeper is small # SKIP this user may not look into it");
	else
		ok(r == 0 && own.private_bytes <= 1 * MIB, "a keeper is small: %llu KiB of its own",
			(unsigned long long)own.private_bytes / KIB);
}

static void test_life(void)
{
	struct box b;
	uint64_t end_ns = 0, renewed = 0, pid = 0;
	const char *id, *state;
	int keeper, monitor;

	make(&b, NULL, false);
	keeper_describe(b.k, on_answer, fresh(&b));
	is_int(answered(&b), EINVAL, "what has no lease has nothing to describe");
	keeper_ready(b.k, on_answer, fresh(&b));
	is_int(answered(&b), 0, "a standby is ready");
	keeper = pidfd(b.k->pid);
	monitor = pidfd(b.k->monitor_pid);
	ok(keeper >= 0 && monitor >= 0, "the processes of a standby are known once it is ready");
	keeper_prepare(b.k, on_answer, fresh(&b));
	is_int(answered(&b), 0, "a spare");
	is_int(count_dir(sockets), 0, "a spare has no socket in the directory");
	is_int(hand_out(&b, "life", 60000, NULL), 0, "handed out");
	is_int(b.a.n_fds, 2, "a hand-out brings the machine and its channel");
	ok(json_object_get(json_object_get(b.a.reply, "trace"), "answered"), "the parts are told");
	ok(json_get_u64(b.a.reply, "end_ns", 1, INT64_MAX, &end_ns, &err) == 0 &&
			(int64_t)end_ns > clock_boot_ns() + 50000000000LL &&
			(int64_t)end_ns < clock_boot_ns() + 61000000000LL,
		"a hand-out tells when the lease ends, by the clock that goes on while the host "
		"sleeps");
	ok(json_get_u64(b.a.reply, "monitor_pid", 1, INT32_MAX, &pid, &err) == 0 &&
			(int)pid == b.k->monitor_pid,
		"a hand-out tells the monitor's process");
	is_int(count_dir(sockets), 1, "a sandbox that was handed out has a socket");
	ok(says(&b, "cat /etc/hostname; echo x >/tmp/x", "life\n"),
		"the channel of a sandbox that was handed out works");
	is_int(hand_out(&b, "again", 60000, NULL), EALREADY, "a sandbox is handed out only once");

	drop(&b); /* the daemon dies */
	is_int(adopt(&b, "life"), 0, "another daemon finds the sandbox of a daemon that died");
	is_int(b.k->pid > 0, 1, "knows who keeps it");
	id = json_string_value(json_object_get(b.a.reply, "id"));
	state = json_string_value(json_object_get(b.a.reply, "state"));
	is_str(id, "life", "an adopted keeper tells the sandbox's id");
	is_str(state, "running", "an adopted keeper tells the sandbox's state");
	is_int(json_integer_value(json_object_get(json_object_get(b.a.reply, "record"), "answer")),
		42, "an adopted keeper tells the sandbox's record");
	ok(says(&b, "cat /tmp/x", "x\n"),
		"an adopted sandbox is the same one, and its channel works");
	check_stats(&b);
	keeper_console(b.k, on_answer, fresh(&b));
	is_int(answered(&b), 0, "a keeper is asked for its console");
	ok(json_is_string(json_object_get(b.a.reply, "text")), "is a text");
	keeper_renew(b.k, 120000, NULL, NULL, on_answer, fresh(&b));
	is_int(answered(&b), 0, "a lease is renewed");
	ok(json_get_u64(b.a.reply, "end_ns", 1, INT64_MAX, &renewed, &err) == 0 && renewed > end_ns,
		"a renewed lease ends later");
	keeper_renew(b.k, 1, NULL, NULL, on_answer, fresh(&b));
	is_int(answered(&b), 0, "a lease is shortened");
	ok(run_until(&b.ended), "a shortened lease ends the sandbox");
	has_str(b.text, "lease", "the reason is told");
	ok(ends(monitor), "the machine is gone at the lease's end");
	ok(ends(keeper), "the keeper is gone at the lease's end");
	is_int(count_dir(sockets), 0, "the keeper's socket is gone at the lease's end");
	keeper_ready(b.k, on_answer, fresh(&b));
	is_int(answered(&b), ECONNRESET, "a request to what is gone says so");
	drop(&b);
}

/* ---- ends ---------------------------------------------------------------------------------- */

static void test_lease_without_daemon(void)
{
	struct box b;
	int monitor, keeper;

	make(&b, NULL, false);
	is_int(hand_out(&b, "alone", 300, NULL), 0, "handed out cold");
	monitor = pidfd(b.k->monitor_pid);
	keeper = pidfd(b.k->pid);
	drop(&b);
	ok(ends(monitor), "a lease ends its machine without any daemon");
	ok(ends(keeper), "a lease ends its keeper without any daemon");
	ok(no_names(), "a keeper's socket is gone after a lease that ended without a daemon");
	is_int(adopt(&b, "alone"), ENOENT, "who comes later finds nothing");
}

static void test_unwanted(void)
{
	struct box b[2];
	int procs[4];

	make(&b[0], NULL, false);
	make(&b[1], NULL, false);
	keeper_ready(b[0].k, on_answer, fresh(&b[0]));
	keeper_prepare(b[1].k, on_answer, fresh(&b[1]));
	ok(answered(&b[0]) == 0 && answered(&b[1]) == 0, "a standby and a spare");
	for (int i = 0; i < 2; i++) {
		procs[2 * i] = pidfd(b[i].k->pid);
		procs[2 * i + 1] = pidfd(b[i].k->monitor_pid);
		drop(&b[i]);
	}
	ok(ends(procs[0]) && ends(procs[1]) && ends(procs[2]) && ends(procs[3]),
		"end when nobody is connected any more");
	make(&b[0], NULL, false); /* and one that is not even there yet */
	drop(&b[0]);
}

/* A signal to one of its processes. @both_know: the keeper notices by itself. */
static void test_signal(bool to_keeper, const char *id, const char *want)
{
	struct box b;
	int monitor, keeper;

	make(&b, NULL, false);
	is_int(hand_out(&b, id, 60000, NULL), 0, "handed out (%s)", id);
	monitor = pidfd(b.k->monitor_pid);
	keeper = pidfd(b.k->pid);
	kill(to_keeper ? b.k->pid : b.k->monitor_pid, SIGKILL);
	ok(run_until(&b.ended), "kill -9 of the %s is noticed", to_keeper ? "keeper" : "monitor");
	has_str(b.text, want, "the daemon is told that the process was killed");
	ok(ends(monitor) && ends(keeper),
		"keeper and machine are gone after a kill -9 of one of them");
	is_int(count_dir(sockets), 0, "the keeper's socket is gone after a kill -9");
	drop(&b);
}

static void test_stopped(void)
{
	struct box b;
	int monitor, keeper;

	make(&b, NULL, false);
	is_int(hand_out(&b, "stopped", 60000, NULL), 0, "handed out");
	monitor = pidfd(b.k->monitor_pid);
	keeper = pidfd(b.k->pid);
	kill(b.k->monitor_pid, SIGSTOP);
	kill(b.k->pid, SIGSTOP);
	is_int(end(&b), 0, "a kill works where both are stopped");
	ok(!b.ended, "the end that was asked for is not told as one that was not");
	ok(ends(monitor) && ends(keeper),
		"keeper and machine are gone after a kill, though both were stopped");
	is_int(count_dir(sockets), 0, "the keeper's socket is gone after a kill");
	is_int(end(&b), 0, "a second kill finds it gone");
	drop(&b);

	make(&b, NULL, false);
	is_int(hand_out(&b, "stopped", 60000, NULL), 0, "handed out, by the same name");
	monitor = pidfd(b.k->monitor_pid);
	keeper = pidfd(b.k->pid);
	kill(b.k->pid, SIGSTOP);
	drop(&b);
	{
		cleanup_free char *path = str_printf("%s/stopped", sockets);
		struct answer open = {0};

		b = (struct box){.channel = -1, .machine = -1};
		is_int(keeper_adopt(l, path, &ops, &b, &b.k, &err), 0, "a stopped one is adopted");
		keeper_describe(b.k, on_answer, &open);
		is_int(end(&b), 0, "an adopted keeper that says nothing is killed");
		ok(open.done && open.error == ECONNRESET, "what was asked before had its answer");
	}
	ok(ends(monitor) && ends(keeper),
		"keeper and machine are gone after the kill of a silent keeper");
	is_int(count_dir(sockets), 0, "the socket of a silent keeper is gone after its kill");
	drop(&b);
}

static void test_kill_early(void)
{
	struct box b;

	make(&b, NULL, false);
	is_int(end(&b), 0, "a kill right behind the making");
	drop(&b);
	make(&b, NULL, false);
	keeper_ready(b.k, on_answer, fresh(&b));
	answered(&b);
	is_int(end(&b), 0, "the keeper of a standby is ended");
	drop(&b);
}

/* ---- refusals ------------------------------------------------------------------------------ */

static void test_refused(void)
{
	struct box a, b;
	cleanup_json json_t *big = json_object();
	cleanup_free char *text = calloc(1, LIMIT_KEEPER_RECORD + 1);
	struct keeper_lease lease = {.id = "big", .record = big, .lease_ms = 60000};

	memset(text, 'x', LIMIT_KEEPER_RECORD);
	json_object_set_new(big, "x", json_string(text));
	make(&a, NULL, false);
	make(&b, NULL, false);
	keeper_renew(a.k, 1000, NULL, NULL, on_answer, fresh(&a));
	is_int(answered(&a), EINVAL, "no lease, nothing to renew");
	keeper_capture(a.k, "/tmp/parbake-never", false, on_answer, fresh(&a));
	is_int(answered(&a), EINVAL, "a keeper without a lease has nothing to capture");
	is_int(hand_out(&a, "Not-A-Name", 60000, NULL), EINVAL, "a bad name");
	is_int(hand_out(&a, "dir", 60000, "not/absolute"), EINVAL,
		"a directory that depends on where one is");
	keeper_hand_out(a.k, &lease, NULL, on_answer, fresh(&a));
	is_int(answered(&a), E2BIG, "a record that is too long is refused");
	is_int(hand_out(&a, "taken", 60000, NULL), 0,
		"a keeper that refused a hand-out can be handed out all the same");
	is_int(hand_out(&b, "taken", 60000, NULL), EEXIST, "a name is given once");
	is_int(hand_out(&b, "other", 60000, NULL), 0, "a second keeper gets another name");
	is_int(count_dir(sockets), 2, "two names");
	ok(says(&a, "hostname", "taken\n") && says(&b, "hostname", "other\n"), "two machines");
	is_int(end(&a), 0, "the first of two sandboxes is killed");
	is_int(end(&b), 0, "the second of two sandboxes is killed");
	is_int(count_dir(sockets), 0, "no names");
	drop(&a);
	drop(&b);
}

/* ---- zygotes ----------------------------------------------------------------------------- */

static void test_zygote_killed(void)
{
	struct box b, late;
	pid_t pid;

	make(&b, NULL, false);
	is_int(hand_out(&b, "orphan", 60000, NULL), 0, "handed out");
	pid = zygote_pid();
	ok(pid > 0 && !kill(pid, SIGSTOP), "the zygote is stopped");
	make(&late, NULL, false);
	keeper_ready(late.k, on_answer, fresh(&late));
	kill(pid, SIGKILL);
	ok(run_until(&zygote_end.ended), "kill -9 of the zygote is noticed");
	has_str(zygote_end.text, "killed by signal 9",
		"the daemon is told that the zygote was killed");
	is_int(answered(&late), ECONNRESET, "what it had not made yet is answered");
	ok(run_until(&late.ended), "a keeper that a killed zygote had not made yet ends");
	drop(&late);
	ok(keeper_make(zygote, NULL, false, &ops, &late, &late.k, &err) == -ECONNREFUSED,
		"a killed zygote makes no keeper any more");
	ok(!b.ended && says(&b, "hostname", "orphan\n"), "what it had made goes on");
	drop(&b);
	is_int(adopt(&b, "orphan"), 0, "can be adopted");
	is_int(end(&b), 0, "a sandbox whose zygote was killed can be killed");
	drop(&b);
	zygote_free(zygote);
	start_zygote(digest);
}

static void test_no_template(void)
{
	struct zygote *good = zygote;
	struct box b;

	start_zygote("sha256:0000000000000000000000000000000000000000000000000000000000000000");
	make(&b, NULL, false);
	keeper_ready(b.k, on_answer, fresh(&b));
	ok(answered(&b) != 0, "a template that is not there");
	has_str(b.a.text, "is missing", "the answer says why");
	ok(run_until(&b.ended), "the keeper ends");
	ok(run_until(&zygote_end.ended), "the zygote too");
	has_str(zygote_end.text, "is missing", "a zygote without a template says why it ends");
	drop(&b);
	zygote_free(zygote);
	zygote = good;
}

/* ---- the pager ----------------------------------------------------------------------------- */

/* The pagers of this PARBAKE_HOME are killed. */
static unsigned kill_pagers(void)
{
	cleanup_dir DIR *dir = opendir("/proc");
	const char *home = getenv("PARBAKE_HOME") ?: "?";
	unsigned n = 0;

	for (struct dirent *e; dir && (e = readdir(dir));) {
		cleanup_free char *comm_path = str_printf("/proc/%s/comm", e->d_name);
		cleanup_free char *line_path = str_printf("/proc/%s/cmdline", e->d_name);
		cleanup_free char *comm = NULL, *line = NULL;
		size_t len;

		if (file_read_all(AT_FDCWD, comm_path, 64, &comm, NULL, NULL) < 0 ||
			strcmp(comm, "parbake-pager\n") != 0 ||
			file_read_all(AT_FDCWD, line_path, 65536, &line, &len, NULL) < 0 ||
			!memmem(line, len, home, strlen(home)))
			continue;
		n += kill(atoi(e->d_name), SIGKILL) == 0;
	}
	return n;
}

static void test_pager_killed(void)
{
	struct box b;
	int keeper, monitor;

	make(&b, NULL, false);
	is_int(hand_out(&b, "paged", 60000, NULL), 0, "handed out");
	keeper = pidfd(b.k->pid);
	monitor = pidfd(b.k->monitor_pid);
	if (pager_probe(NULL, NULL) < 0 || kill_pagers() == 0) {
		tap_skip("without userfaultfd no machine needs its pager");
		end(&b);
	} else {
		ok(run_until(&b.ended), "a pager that is killed takes its sandboxes along");
		has_str(b.text, "pager is gone", "the reason is told");
	}
	ok(ends(keeper) && ends(monitor),
		"machine and keeper are gone where their pager was killed");
	drop(&b);
	make(&b, NULL, false);
	is_int(hand_out(&b, "paged", 60000, NULL), 0, "the next one has a new pager");
	ok(says(&b, "echo hi", "hi\n"), "the next sandbox works with a new pager");
	zygote_free(zygote);
	ok(says(&b, "echo hi", "hi\n"), "a sandbox works without its zygote, too");
	is_int(end(&b), 0, "a sandbox without its zygote is killed");
	drop(&b);
	start_zygote(digest);
}

/* ---- faults -------------------------------------------------------------------------------- */

static void test_faults(void)
{
	static const struct {
		const char *point;
		int want;
	} faults[] = {
		{"zygote.fork=ENOMEM", ENOMEM},
		{"zygote.fork", ECONNRESET},
		{"keeper.begin=EIO", EIO},
		{"keeper.begin", ECONNRESET},
		{"keeper.hand-out.named=ENOSPC", ENOSPC},
		{"keeper.hand-out.named", ECONNRESET},
		{"keeper.hand-out.answered=EIO", EIO},
		{"keeper.hand-out.answered", ECONNRESET},
		{"restore.activate.begin=EIO", EIO},
	};
	struct zygote *good = zygote;

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		struct keeper_lease lease = {.id = "faulty", .lease_ms = 60000};
		struct box b;
		int keeper, monitor;

		setenv("PARBAKE_FAULT", faults[i].point, 1);
		start_zygote(digest);
		unsetenv("PARBAKE_FAULT");
		make(&b, NULL, false);
		keeper_hand_out(b.k, &lease, NULL, on_answer, fresh(&b));
		while (!b.a.done && b.k->monitor_pid < 0)
			loop_once(l, CLOCK_NEVER, &err);
		keeper = pidfd(b.k->pid);
		monitor = pidfd(b.k->monitor_pid);
		is_int(answered(&b), faults[i].want, "%s: the answer", faults[i].point);
		ok(run_until(&b.ended), "a keeper ends after a hand-out that fails");
		ok(ends(keeper) && ends(monitor),
			"the processes of a hand-out that failed are gone");
		is_int(count_dir(sockets), 0, "the socket of a hand-out that failed is gone");
		drop(&b);
		zygote_free(zygote);
	}
	zygote = good;
}

/* The daemon dies when it has asked and before anybody has heard: the next one looks at once. */
static void test_asked_and_gone(void)
{
	struct keeper_lease lease = {.id = "unheard", .lease_ms = 600000};
	struct box b;
	int keeper, monitor, pid;

	make(&b, NULL, false);
	keeper_ready(b.k, on_answer, fresh(&b));
	is_int(answered(&b), 0, "a standby has been started");
	pid = b.k->pid;
	keeper = pidfd(pid);
	monitor = pidfd(b.k->monitor_pid);
	kill(pid, SIGSTOP);
	keeper_hand_out(b.k, &lease, NULL, on_answer, fresh(&b));
	loop_once(l, 0, &err); /* it is sent, at the latest */
	drop(&b);
	kill(pid, SIGCONT);
	ok(ends(keeper), "a keeper takes no lease from a daemon that has gone");
	ok(ends(monitor), "the machine of a keeper without a daemon is gone");
	is_int(count_dir(sockets), 0, "a keeper without a daemon leaves no socket");
}

/* ---- at rest ------------------------------------------------------------------------------- */

static bool is_capture(const char *dir)
{
	cleanup_free char *path = str_printf("%s/capture.json", dir);

	return access(path, F_OK) == 0;
}

static void test_capture(void)
{
	cleanup_free char *snap = str_printf("%s/snap", at_rest),
			  *paused = str_printf("%s/paused", at_rest);
	struct box b, forks[2];
	uint64_t bytes = 0;
	int monitor, keeper;

	make(&b, NULL, false);
	is_int(hand_out(&b, "source", 60000, NULL), 0, "handed out");
	ok(says(&b, "echo before >/tmp/x; echo done", "done\n"), "something is in it");
	keeper_capture(b.k, snap, false, on_answer, fresh(&b));
	is_int(answered(&b), 0, "a snapshot");
	ok(json_get_u64(b.a.reply, "memory_bytes", 1, GIB, &bytes, &err) == 0 &&
			json_get_u64(b.a.reply, "stopped_ns", 1, INT64_MAX, &bytes, &err) == 0,
		"tells its sizes");
	ok(is_capture(snap), "is complete");
	ok(says(&b, "cat /tmp/x", "before\n"), "the sandbox goes on");
	keeper_capture(b.k, snap, true, on_answer, fresh(&b));
	is_int(answered(&b), EEXIST, "a directory that is there");
	ok(says(&b, "echo after >>/tmp/x; echo done", "done\n"),
		"a sandbox goes on after a capture that was refused");
	monitor = pidfd(b.k->monitor_pid);
	keeper = pidfd(b.k->pid);
	keeper_capture(b.k, paused, true, on_answer, fresh(&b));
	is_int(answered(&b), 0, "a pause");
	is_int(count_dir(sockets), 0, "the socket is gone when a pause is answered");
	ok(run_until(&b.ended), "the daemon is told of a paused sandbox's end");
	ok(ends(monitor) && ends(keeper), "the processes of a paused sandbox are gone");
	drop(&b);

	make(&b, paused, true);
	is_int(hand_out(&b, "source", 60000, NULL), 0, "a paused sandbox is resumed");
	ok(says(&b, "cat /tmp/x; hostname", "before\nafter\nsource\n"),
		"a resumed sandbox goes on as itself");
	is_int(end(&b), 0, "a resumed sandbox ends");
	drop(&b);
	for (int i = 0; i < 2; i++)
		make(&forks[i], snap, false);
	keeper_prepare(forks[0].k, on_answer, fresh(&forks[0]));
	is_int(answered(&forks[0]), 0, "a spare of a snapshot");
	ok(hand_out(&forks[0], "fork0", 60000, NULL) == 0 &&
			hand_out(&forks[1], "fork1", 60000, NULL) == 0,
		"two forks of it");
	ok(says(&forks[0], "cat /tmp/x; hostname", "before\nfork0\n") &&
			says(&forks[1], "cat /tmp/x; hostname", "before\nfork1\n"),
		"are others, with what was in it");
	for (int i = 0; i < 2; i++) {
		end(&forks[i]);
		drop(&forks[i]);
	}
	make(&b, "/nonexistent/capture", true);
	keeper_ready(b.k, on_answer, fresh(&b));
	is_int(answered(&b), ENOENT, "a capture that is not there");
	ok(run_until(&b.ended), "ends it");
	drop(&b);
}

/* A lease that ends in a pause, with nobody there; and one that cannot. */
static void test_lease_pauses(void)
{
	cleanup_free char *dir = str_printf("%s/lease", at_rest),
			  *no = str_printf("%s/no/dir", at_rest);
	struct box b;
	int monitor, keeper;

	make(&b, NULL, false);
	is_int(hand_out(&b, "sleeper", 60000, dir), 0, "handed out");
	ok(says(&b, "echo kept >/tmp/x; echo done", "done\n"), "something is in it");
	monitor = pidfd(b.k->monitor_pid);
	keeper = pidfd(b.k->pid);
	keeper_renew(b.k, 1, dir, NULL, on_answer, fresh(&b));
	answered(&b);
	drop(&b);
	ok(ends(monitor) && ends(keeper), "a lease ends while no daemon is there");
	ok(is_capture(dir), "a lease's end with a directory to pause into leaves a checkpoint");
	ok(no_names(), "a sandbox that its lease paused has no socket");
	make(&b, dir, true);
	is_int(hand_out(&b, "sleeper", 60000, NULL), 0,
		"a sandbox that its lease paused is resumed");
	ok(says(&b, "cat /tmp/x", "kept\n"), "a sandbox that its lease paused has lost nothing");
	keeper_renew(b.k, 1, no, NULL, on_answer, fresh(&b));
	is_int(answered(&b), 0, "a lease that ends in a pause that cannot be");
	ok(says(&b, "cat /tmp/x", "kept\n"), "a sandbox runs on where its lease cannot pause it");
	keeper_renew(b.k, 60000, NULL, NULL, on_answer, fresh(&b));
	is_int(answered(&b), 0, "the lease of a sandbox that could not be paused is renewed");
	is_int(end(&b), 0, "a sandbox that could not be paused is killed");
	drop(&b);
}

/* ---- many ---------------------------------------------------------------------------------- */

#define ROUNDS 5
#define AT_ONCE 10

static void test_many(void)
{
	static struct box b[AT_ONCE];
	unsigned before = count_dir("/proc/self/fd"), bad = 0;
	int procs[ROUNDS * AT_ONCE][2];

	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < AT_ONCE; i++) {
			cleanup_free char *id = str_printf("many%u", i);
			struct keeper_lease lease = {.id = id, .lease_ms = 60000};

			make(&b[i], NULL, false);
			keeper_hand_out(b[i].k, &lease, NULL, on_answer, fresh(&b[i]));
		}
		for (unsigned i = 0; i < AT_ONCE; i++) {
			bad += answered(&b[i]) != 0;
			take_fds(&b[i]);
			procs[round * AT_ONCE + i][0] = pidfd(b[i].k->pid);
			procs[round * AT_ONCE + i][1] = pidfd(b[i].k->monitor_pid);
		}
		for (unsigned i = 0; i < AT_ONCE; i++)
			keeper_kill(b[i].k, on_answer, fresh(&b[i]));
		for (unsigned i = 0; i < AT_ONCE; i++) {
			bad += answered(&b[i]) != 0;
			drop(&b[i]);
		}
	}
	is_int(bad, 0, "%d made, handed out and killed, %d at once", ROUNDS * AT_ONCE, AT_ONCE);
	for (unsigned i = 0; i < ROUNDS * AT_ONCE; i++) {
		bad += procs[i][0] < 0 || !ends(procs[i][0]);
		bad += procs[i][1] < 0 || !ends(procs[i][1]);
	}
	is_int(bad, 0, "no process is left");
	is_int(count_dir("/proc/self/fd"), before, "no descriptor");
	is_int(count_dir(sockets), 0, "no name");
}

int main(int argc, char **argv)
{
	if (argc != 6) {
		fprintf(stderr, "usage: keeper_driver NAME TAG DIGEST SOCKETS CAPTURES\n");
		return 2;
	}
	name = argv[1];
	tag = argv[2];
	digest = argv[3];
	sockets = argv[4];
	at_rest = argv[5];
	signal(SIGPIPE, SIG_IGN);
	if (loop_new(&l, &err) < 0)
		return 1;
	start_zygote(digest);
	test_life();
	test_lease_without_daemon();
	test_unwanted();
	test_signal(true, "killed", "keeper has ended");
	test_signal(false, "died", "killed by signal 9");
	test_stopped();
	test_kill_early();
	test_refused();
	test_pager_killed();
	test_zygote_killed();
	test_no_template();
	test_faults();
	test_asked_and_gone();
	if (geteuid() == 0) {
		test_capture();
		test_lease_pauses();
	} else {
		tap_skip("captures need root");
	}
	test_many();
	zygote_free(zygote);
	loop_free(l);
	return tap_done();
}
