/* SPDX-License-Identifier: Apache-2.0 */
/* The pager as a process: one for all clients, gone with the last, and its machines with it. */
#include <dirent.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "common/proc.h"
#include "restore/pager/pager.h"
#include "tests/unit/pager_image.h"
#include "tests/unit/tap.h"

#define PAGES 1024ul

static char home[] = "/tmp/parbake-pager_client-XXXXXX";

static struct pager_client *client(const struct pager_client_spec *spec)
{
	struct pager_client *d = NULL;
	struct err err;

	if (pager_client_connect(spec, &d, &err) < 0) {
		printf("# %s\n", err.text);
		return NULL;
	}
	return d;
}

static struct proc machine(
	struct pager_client *d, int *ret_news, const char *mode, const char *page)
{
	const char *argv[] = {"/proc/self/exe", "machine", mode, page, NULL};
	struct proc_spec spec = {.argv = argv, .keep_stderr = true, .die_with_parent = true};
	struct proc p = PROC_INIT;
	int news[2], sock = -1, own_in;
	struct err err;

	if (sock_pair(news, &err) < 0 ||
		(pager_client_way(d) == PAGER_UFFD &&
			pager_client_attach(d, -1, NULL, &sock, &own_in, &err) < 0)) {
		printf("# %s\n", err.text);
		exit(1);
	}
	proc_map_fd(&spec, pager_client_memory_fd(d), 3);
	if (sock >= 0)
		proc_map_fd(&spec, sock, 4);
	proc_map_fd(&spec, news[1], 5);
	if (proc_start(&spec, &p, &err) < 0)
		child_die("machine");
	close_fd(&sock);
	close(news[1]);
	if (ret_news)
		*ret_news = news[0];
	else
		close(news[0]);
	return p;
}

static int ended(struct proc *m)
{
	int status = -1;

	if (proc_wait(m, clock_deadline(30000), &status) < 0)
		proc_kill(m);
	return status;
}

static int hear(int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	char byte;

	if (poll(&pfd, 1, 20000) <= 0)
		return -1;
	return read(fd, &byte, 1) == 1 ? byte : 0;
}

/* Names in the run directory beside the lock. */
static int litter(void)
{
	char path[128];
	int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/run/pager", home);
	dir = opendir(path);
	for (struct dirent *e; dir && (e = readdir(dir));)
		n += e->d_name[0] != '.' && strcmp(e->d_name, "lock") != 0;
	if (dir)
		closedir(dir);
	return n;
}

/* What stays once the keepers, which follow their pagers, had their time. */
static int litter_in_the_end(void)
{
	for (int i = 0; i < 1000 && litter(); i++)
		poll(NULL, 0, 5);
	return litter();
}

/* Wait until the process has ended (it is not our child: who reaps it may take his time). */
static bool gone(int pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	bool ended_now = fd < 0 ? errno == ESRCH : poll(&pfd, 1, 10000) == 1;

	close_fd(&fd);
	return ended_now;
}

static void test_shared(struct pager_client_spec *spec)
{
	struct pager_client *a = client(spec), *b = client(spec), *other;
	struct pager_client_spec changed = *spec;
	struct pager_stats s;
	struct proc m;
	struct err err;
	int pid, news;

	if (!ok(a && b, "two clients connect"))
		return;
	pid = pager_client_pid(a);
	is_int(pager_client_pid(b), pid, "to one process");
	is_int(litter(), 1, "many clients of a template share one socket");
	changed.options.window_bytes = PAGE;
	other = client(&changed);
	ok(other && pager_client_pid(other) != pid, "other options, another process");
	pager_client_free(other);
	m = machine(a, NULL, "read", "5");
	is_int(ended(&m), 0, "a machine by way of the first");
	m = machine(b, NULL, "read", "6");
	is_int(ended(&m), 0, "a machine of the second client attaches");
	is_int(pager_client_get_stats(a, &s, &err), 0, "the pager counts");
	is_int(s.machines_total, 2, "the pager counts both machines");
	is_int(pager_client_get_error(a, &err, &err), 0, "asked for errors, it answers");
	is_str(err.text, "", "a pager without errors says so");
	is_int(pager_client_recorded(a, NULL, &err), -EINVAL,
		"a pager records nothing unless it was told to");
	pager_client_free(a);
	m = machine(b, &news, "stop", "9");
	is_int(hear(news), 'h', "a machine runs while its client lives");
	pager_client_free(b);
	ok(kill(pid, 0) == 0, "a machine keeps its pager's process without any client");
	if (write(news, "g", 1) != 1)
		child_die("news");
	is_int(hear(news), '!', "a machine without a client is served");
	ok(ended(&m) >= 0 && gone(pid), "a pager's process goes with its last machine");
	is_int(litter_in_the_end(), 0, "a pager that goes leaves nothing");
	close(news);
}

static void test_killed(struct pager_client_spec *spec)
{
	struct pager_client *a = client(spec), *b;
	struct pollfd pfd = {.events = POLLIN};
	struct proc m;
	struct err err;
	int news, status, pid, sock, own_in;

	if (!ok(a, "a client"))
		return;
	pid = pager_client_pid(a);
	m = machine(a, &news, "stop", "9");
	is_int(hear(news), 'h', "a client's machine runs");
	kill(pid, SIGKILL);
	pfd.fd = pager_client_fd(a);
	is_int(poll(&pfd, 1, 5000), 1, "the pager's end is seen");
	status = ended(&m);
	ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the machine is dead");
	is_int(pager_client_attach(a, -1, NULL, &sock, &own_in, &err), -ECONNRESET,
		"nothing attaches to a pager whose machine is dead");
	b = client(spec);
	ok(b && pager_client_pid(b) != pid, "a new client replaces the socket it left");
	m = machine(b, NULL, "read", "9");
	is_int(ended(&m), 0, "a client that replaced a dead pager is served");
	pid = pager_client_pid(b);
	pager_client_free(a);
	pager_client_free(b);
	ok(gone(pid), "the process goes");
	is_int(litter_in_the_end(), 0, "a pager that was replaced leaves nothing");
	close(news);
}

static int parent_of(int pid)
{
	char path[64], text[512] = "";
	FILE *f;
	int parent = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f || !fgets(text, sizeof(text), f) || !strrchr(text, ')') ||
		sscanf(strrchr(text, ')'), ") %*c %d", &parent) != 1)
		child_die(path);
	fclose(f);
	return parent;
}

/* The watchdog of one that was killed comes late: the socket is another's by then, maybe with the inode of its own. */
static void test_late_watchdog(struct pager_client_spec *spec)
{
	struct pager_client *a = client(spec), *b, *c;
	struct pollfd pfd = {.events = POLLIN};
	int pid, watchdog;

	if (!ok(a, "a client"))
		return;
	pid = pager_client_pid(a);
	watchdog = parent_of(pid);
	kill(watchdog, SIGSTOP);
	kill(pid, SIGKILL);
	pfd.fd = pager_client_fd(a);
	is_int(poll(&pfd, 1, 5000), 1, "a pager is killed that its watchdog does not see");
	b = client(spec);
	ok(b && pager_client_pid(b) != pid, "a second pager takes the place of a killed one");
	kill(watchdog, SIGCONT);
	ok(gone(watchdog), "the watchdog wakes, and goes");
	c = client(spec);
	ok(b && c && pager_client_pid(c) == pager_client_pid(b),
		"a watchdog leaves another pager's socket alone");
	pid = b ? pager_client_pid(b) : -1;
	pager_client_free(a);
	pager_client_free(b);
	pager_client_free(c);
	ok(gone(pid), "which goes in the end");
	is_int(litter_in_the_end(), 0, "a watchdog leaves nothing");
}

static void test_own(struct pager_client_spec spec)
{
	struct snapshot_ranges got = {0};
	struct pager_client *a, *b;
	struct proc m;
	struct err err;
	int pid;

	spec.own = true;
	spec.options.record = spec.options.no_premap = true;
	a = client(&spec);
	b = client(&spec);
	if (!ok(a && b && pager_client_pid(a) != pager_client_pid(b), "own processes"))
		return;
	is_int(litter(), 0, "a pager of one's own has no socket");
	m = machine(a, NULL, "read", "77");
	is_int(ended(&m), 0, "a machine");
	is_int(pager_client_recorded(a, &got, &err), 0, "what a machine touched is recorded");
	ok(got.n == 1 && got.ranges[0].offset == 77 * PAGE && got.ranges[0].bytes == PAGE,
		"what it read comes over");
	snapshot_ranges_clear(&got);
	pid = pager_client_pid(a);
	pager_client_free(a);
	ok(kill(pid, 0) < 0, "a process of one's own is gone at once");
	pager_client_free(b);
	spec.options.record = spec.options.no_premap = false;
	spec.no_uffd = true;
	a = client(&spec);
	if (!ok(a && pager_client_way(a) == PAGER_PRIVATE,
		    "a pager without userfaultfd serves the private way"))
		return;
	m = machine(a, NULL, "read", "3");
	is_int(ended(&m), 0, "a machine of the private way has its memory");
	pager_client_free(a);
}

/* Many at once, of which some are killed: one process, and none in the end. */
static void test_race(struct pager_client_spec *spec)
{
	pid_t pids[12];
	int pipes[2], seen[12], n = 0, bad = 0;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		child_die("pipe");
	for (int i = 0; i < 12; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			struct pager_client *d = client(spec);
			int pid = d ? pager_client_pid(d) : -1;

			if (write(pipes[1], &pid, sizeof(pid)) != sizeof(pid))
				_exit(1);
			if (i % 3)
				pager_client_free(d);
			else
				kill(getpid(), SIGKILL);
			_exit(0);
		}
	}
	for (int i = 0; i < 12; i++)
		waitpid(pids[i], NULL, 0);
	close(pipes[1]);
	while (read(pipes[0], &seen[n], sizeof(seen[n])) == sizeof(seen[n]))
		n++;
	for (int i = 0; i < n; i++)
		bad += seen[i] <= 0 || !gone(seen[i]);
	is_int(n, 12, "every client spoke");
	is_int(bad, 0, "each had a pager, and every pager is gone");
	is_int(litter_in_the_end(), 0, "pagers that were killed leave nothing");
	close(pipes[0]);
}

/* Each sandbox of a pool has a connection of its own. */
static void test_many(struct pager_client_spec *spec)
{
	enum { MANY = 1200 };
	static struct pager_client *d[MANY];
	struct rlimit files;
	int bad = 0, pid;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_max < 3 * MANY) {
		tap_skip("too few descriptors are allowed here");
		return;
	}
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	for (int i = 0; i < MANY && !bad; i++) {
		d[i] = client(spec);
		bad += !d[i] || pager_client_pid(d[i]) != pager_client_pid(d[0]);
	}
	is_int(bad, 0, "%d clients at one pager", MANY);
	pid = d[0] ? pager_client_pid(d[0]) : -1;
	pager_client_forget(d[0]); /* as good as freed, where nobody else has it */
	for (int i = 1; i < MANY; i++)
		pager_client_free(d[i]);
	ok(gone(pid), "a pager goes with the last of many clients");
	is_int(litter_in_the_end(), 0, "a pager with many clients leaves nothing");
}

static void test_broken(struct pager_client_spec spec)
{
	int fd = memfd_create("broken", MFD_CLOEXEC);
	struct pager_client *d;
	struct err err;

	if (write(fd, "not an image", 12) != 12)
		child_die("memfd");
	spec.key = "sha256:broken";
	spec.image_fd = fd;
	is_int(pager_client_connect(&spec, &d, &err), -EBADMSG,
		"a pager that cannot start says so");
	printf("# %s\n", err.text);
	close(fd);
	is_int(litter_in_the_end(), 0, "a pager that cannot start leaves nothing");
}

int main(int argc, char **argv)
{
	struct pager_client_spec spec = {.key = "sha256:test"};
	struct snapshot_range range = {0, 4 * PAGE};
	struct snapshot_ranges wset = {.ranges = &range, .n = 1};
	char command[64];
	struct err err;

	if (argc > 1 && strcmp(argv[1], "machine") == 0)
		return child_main(argc, argv);
	if (argc > 1 && strcmp(argv[1], "pager") == 0)
		return pager_process_main(argc, argv);
	if (!mkdtemp(home))
		child_die("mkdtemp");
	setenv("PARBAKE_HOME", home, 1);
	setenv("PARBAKE_EXE", "/proc/self/exe", 1);
#ifdef __SANITIZE_ADDRESS__
	/* its leak check traces its own process */
	setenv("PARBAKE_CONFINE", "off", 1);
#endif
	spec.image_fd = image_file(PAGES, 0);
	spec.wset = &wset;
	test_own(spec);
	test_broken(spec);
	if (pager_probe(NULL, &err) < 0) {
		tap_skip("userfaultfd may not be used here");
	} else {
		test_shared(&spec);
		test_killed(&spec);
		test_late_watchdog(&spec);
		test_race(&spec);
		test_many(&spec);
	}
	close(spec.image_fd);
	snprintf(command, sizeof(command), "rm -rf %s", home);
	if (system(command) != 0)
		printf("# %s stays\n", home);
	return tap_done();
}
