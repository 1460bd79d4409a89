/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real machine: booted, captured, restored (plainly and through a pager that is played here by a
 * thread), and killed in every state. That a machine is restored and not booted again shows in the
 * agent's HELLO: its nonce is made at boot, its counter goes on. All of it with each monitor that is
 * here.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/proc.h"
#include "common/sock.h"
#include "common/str.h"
#include "tests/unit/fake_pager.h"
#include "tests/unit/tap.h"
#include "vmm/qemu/state_private.h"
#include "vmm/boot.h"
#include "vmm/guest/guest.h"
#include "vmm/monitor.h"

#define MEMORY (128 * MIB)
#define DISK (16 * MIB)
#define SOON clock_deadline(60000)
#define CMDLINE                                                                                    \
	"console=ttyS0 reboot=t panic=-1 tsc=reliable no_timer_check lapic_timer_khz=1000000"

static struct {
	const struct monitor_facts *monitor;
	char dir[64], *libdir, *kernel, *initrd;
	int memory, state, disk;
	uint64_t printed;
} fix = {.memory = -1, .state = -1, .disk = -1};

/* A call that must succeed; where it does not, its error is shown. Needs an `err` in scope. */
#define works(call, what)                                                                          \
	({                                                                                         \
		int r_ = (call);                                                                   \
		ok(r_ == 0, "%s", (what));                                                         \
		if (r_ != 0)                                                                       \
			printf("# %d: %s\n", r_, err.text);                                        \
	})

/* What the captured machine said last. */
static struct proto_hello captured;

/* ---- machines --------------------------------------------------------------------------- */

static void count_console(void *user, const char *bytes, size_t len)
{
	(void)bytes;
	*(uint64_t *)user += len;
}

static int start(
	bool boot, int pager_fd, const char *cmdline, struct machine **ret, struct err *err)
{
	cleanup_fd int overlay = memfd_create("overlay", MFD_CLOEXEC);
	struct machine_spec spec = {
		.shape = {.memory_bytes = MEMORY, .vcpus = 1, .accel = MACHINE_TCG},
		.monitor = fix.monitor,
		.memory_fd = fix.memory,
		.pager_fd = pager_fd,
		.disk_fd = fix.disk,
		.overlay_fd = overlay,
	};

	if (boot) {
		spec.kernel = fix.kernel;
		spec.initrd = fix.initrd;
		spec.cmdline = cmdline;
		spec.console = count_console;
		spec.user = &fix.printed;
	}
	if (machine_overlay_init(overlay, DISK, err) < 0)
		return -EIO;
	return machine_start(&spec, ret, err);
}

static int channel_guest(struct machine *m, struct guest **ret, struct err *err)
{
	cleanup_fd int fd = machine_take_channel(m);
	int r = guest_new(fd, ret, err);

	if (r == 0)
		steal_fd(&fd);
	return r;
}

/* Does the process end within @ms? */
static bool ends(struct machine *m, int ms)
{
	struct pollfd p = {.fd = machine_pidfd(m), .events = POLLIN};

	return poll(&p, 1, ms) == 1 && machine_get_state(m) == MACHINE_ENDED;
}

static void test_boot_and_capture(void)
{
	cleanup_machine struct machine *m = NULL;
	cleanup_guest struct guest *g = NULL;
	cleanup_free char *console = NULL;
	struct proto_hello first = {0}, again = {0};
	struct err err = {""};
	struct stat st;

	works(start(true, -1, CMDLINE, &m, &err), "a machine starts");
	if (!m)
		return;
	is_int(machine_get_state(m), MACHINE_RUNNING, "a booted machine is running");
	is_int(machine_ready(m, SOON, &err), 0, "a booted machine's monitor answers");
	is_int(channel_guest(m, &g, &err), 0, "the channel of a machine is taken");
	is_int(machine_take_channel(m), -1, "the channel of a machine is taken only once");
	works(machine_boot_wait(m, g, NULL, &first, &err), "a booted machine's agent answers");
	machine_get_state(m);
	ok(fix.printed > 1000, "the console was told: %" PRIu64 " bytes", fix.printed);
	console = machine_console(m);
	has_str(console, "Linux version", "the console's text is kept");
	is_int(machine_resume(m, SOON, &err), -EINVAL, "a running machine cannot be resumed: %s",
		err.text);
	is_int(machine_restore(m, fix.state, SOON, &err), -EINVAL,
		"a running machine cannot be restored: %s", err.text);
	is_int(machine_capture(m, fix.state, SOON, &err), -EINVAL,
		"a running machine cannot be captured: %s", err.text);
	is_int(machine_pause(m, SOON, &err), 0, "a machine is paused");
	works(machine_capture(m, fix.state, SOON, &err),
		"a paused machine's device state is written");
	is_int(machine_get_state(m), MACHINE_PAUSED,
		"a machine that was paused twice is still paused");
	works(machine_resume(m, SOON, &err), "a machine goes on after a capture");
	works(guest_sync(g, SOON, machine_pidfd(m), &again, &err),
		"a machine that went on answers");
	ok(!memcmp(first.boot, again.boot, sizeof(first.boot)),
		"a captured machine answers with the nonce of its boot");
	is_int((int64_t)again.counter, (int64_t)first.counter + 1,
		"a machine's HELLO has the next count");
	is_int(machine_pause(m, SOON, &err), 0, "a machine is paused a second time");
	works(machine_capture(m, fix.state, SOON, &err), "a machine is captured again");
	fstat(fix.state, &st);
	ok(st.st_size > 4096 && st.st_size < 1 << 20, "in %jd bytes", (intmax_t)st.st_size);
	captured = again;
	is_int(fcntl(fix.memory, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK), 0,
		"the memory of a machine is sealed");
}

/* STANDBY → answered, as a create does it. */
static int restore(struct machine *m, struct guest **g, struct proto_hello *ret, struct err *err)
{
	int r = machine_restore(m, fix.state, SOON, err);

	if (r == 0)
		r = channel_guest(m, g, err);
	if (r == 0)
		guest_sync_send(*g);
	if (r == 0)
		r = machine_resume(m, SOON, err);
	return r < 0 ? r : guest_sync(*g, SOON, machine_pidfd(m), ret, err);
}

static void check_hello(const struct proto_hello *h)
{
	ok(!memcmp(h->boot, captured.boot, sizeof(h->boot)), "the nonce is that of the boot");
	is_int((int64_t)h->counter, (int64_t)captured.counter + 1, "the count goes on");
}

/* What is restored is captured again: the same beginning, devices, and no memory. */
static void check_second_state(struct machine *m)
{
	cleanup_fd int fd = memfd_create("state", MFD_CLOEXEC);
	static uint8_t first[1 << 20], second[1 << 20];
	size_t was = 0, is = 0;
	ssize_t n = pread(fix.state, first, sizeof(first), 0), len;
	struct err err = {""};

	works(machine_capture(m, fd, SOON, &err), "a machine's second state is written");
	len = pread(fd, second, sizeof(second), 0);
	ok(n > 0 && len > 0 && (size_t)len < sizeof(second),
		"the device state of %zd bytes holds no memory", len);
	is_int(qemu_state_prefix(first, (size_t)n, &was, &err), 0, "the first has a beginning");
	is_int(qemu_state_prefix(second, (size_t)len, &is, &err), 0,
		"the second state has a beginning");
	ok(was == is && memcmp(first, second, is) == 0, "the same");
	ok(memcmp(second + len - 2, "{}", 2) == 0, "the second state has an end");
	works(machine_capture(m, fd, SOON, &err),
		"a machine can be captured again after a capture");
}

static void test_restore_plain(void)
{
	cleanup_machine struct machine *a = NULL, *b = NULL;
	cleanup_guest struct guest *ga = NULL, *gb = NULL;
	struct proto_hello hello = {0};
	struct err err = {""};

	works(start(false, -1, NULL, &a, &err), "a standby");
	works(start(false, -1, NULL, &b, &err), "a second standby starts");
	if (!a || !b)
		return;
	is_int(machine_get_state(a), MACHINE_STANDBY, "a machine without memory is a standby");
	is_int(machine_resume(a, SOON, &err), -EINVAL, "a standby cannot be resumed: %s", err.text);
	works(machine_ready(a, SOON, &err), "a standby's monitor answers");
	works(restore(a, &ga, &hello, &err), "the first is restored and answers");
	check_hello(&hello);
	is_int(machine_get_state(a), MACHINE_RUNNING, "a restored and resumed machine is running");
	works(restore(b, &gb, &hello, &err), "the second too");
	check_hello(&hello);
	is_int(machine_pause(a, SOON, &err), 0, "the first is paused");
	check_second_state(a);
	is_int(machine_resume(a, SOON, &err), 0, "the first machine goes on after its capture");
	is_int(guest_sync(ga, SOON, machine_pidfd(a), &hello, &err), 0,
		"the first machine answers after its capture");
	is_int((int64_t)hello.counter, (int64_t)captured.counter + 2,
		"the first machine goes on with a count of its own");
}

static void test_restore_pager(void)
{
	cleanup_machine struct machine *m = NULL;
	cleanup_guest struct guest *g = NULL;
	struct proto_hello hello = {0};
	struct fake_pager pager;
	struct err err = {""};
	cleanup_fd int fd = pager_start(&pager, "ok\n", true);

	works(start(false, fd, NULL, &m, &err), "a standby with a pager");
	close_fd(&fd);
	if (m) {
		works(restore(m, &g, &hello, &err),
			"a standby with a pager is restored and answers");
		check_hello(&hello);
	}
	ok(m && machine_get_state(m) == MACHINE_RUNNING, "a machine with a pager runs");
	pager_stop(&pager);
	is_int((int64_t)pager.size, MEMORY, "all of the memory was handed over");
	ok(pager.minor > 100, "%d pages were shared", pager.minor);
	printf("# %d more were zeros, %d ranges removed\n", pager.missing, pager.removed);
	is_int(pager.failed, 0, "no page failed");
	ok(m && ends(m, 1000), "a machine is dead within a second without its pager");
	if (m) {
		machine_end_reason(m, &err);
		has_str(err.text, "killed by signal 9",
			"the error of a machine without its pager says how it ended");
		is_int(machine_pause(m, SOON, &err), -ECONNABORTED, "calls tell: %s", err.text);
	}
}

/* A pager that serves nothing: the guest waits, and never sees a zero in place of its data. */
static void test_pager_silent(void)
{
	cleanup_machine struct machine *m = NULL;
	struct fake_pager pager;
	struct err err = {""};
	cleanup_fd int fd = pager_start(&pager, "ok\n", false);
	int r;

	works(start(false, fd, NULL, &m, &err), "a standby with a pager that serves nothing");
	close_fd(&fd);
	if (m) {
		works(machine_ready(m, SOON, &err),
			"a monitor is up though its pager serves nothing");
		r = machine_restore(m, fix.state, clock_deadline(300), &err);
		if (r == 0)
			r = machine_resume(m, clock_deadline(300), &err);
		ok(r == 0 || r == -ETIMEDOUT, "the monitor or its guest waits for a page: %d", r);
		ok(machine_get_state(m) != MACHINE_ENDED, "as long as the pager lives");
	}
	pager_stop(&pager);
	is_int(pager.failed, 0, "the handshake was good");
	ok(m && ends(m, 1000),
		"a machine that hangs in a fault is dead within a second of its pager's end");
}

static void test_pager_refuses(void)
{
	cleanup_machine struct machine *m = NULL;
	struct fake_pager pager;
	struct err err = {""};
	cleanup_fd int fd = pager_start(&pager, "no\n", true);

	works(start(false, fd, NULL, &m, &err), "a standby with a pager that refuses");
	close_fd(&fd);
	ok(m && ends(m, 20000), "a machine without a pager ends");
	pager_stop(&pager);
}

/* A monitor that hands its memory over by itself asks for no library. */
static void test_needs_no_preload(void)
{
	cleanup_machine struct machine *m = NULL;
	cleanup_guest struct guest *g = NULL;
	struct proto_hello hello = {0};
	struct fake_pager pager;
	struct err err = {""};
	cleanup_fd int fd = pager_start(&pager, "ok\n", true);

	setenv("PARBAKE_LIBDIR", "/nonexistent", 1);
	works(start(false, fd, NULL, &m, &err), "a standby without a preload library");
	setenv("PARBAKE_LIBDIR", fix.libdir, 1);
	close_fd(&fd);
	if (m) {
		works(restore(m, &g, &hello, &err), "a machine is restored through the pager");
		check_hello(&hello);
	}
	pager_stop(&pager);
	is_int((int64_t)pager.size, MEMORY, "to which it gave all of its memory");
}

/* An empty library is ignored by the loader: nothing registers the memory. */
static void test_no_preload(void)
{
	cleanup_machine struct machine *m = NULL;
	struct err err = {""};
	int pair[2];

	if (fix.monitor->hands_over) {
		test_needs_no_preload();
		return;
	}
	if (file_publish(fix.dir, "libparbake-uffd.so", "", 0, 0755, &err) < 0 ||
		sock_pair(pair, &err) < 0)
		abort();
	setenv("PARBAKE_LIBDIR", fix.dir, 1);
	is_int(start(false, pair[1], NULL, &m, &err), 0,
		"a standby whose preload library does nothing");
	setenv("PARBAKE_LIBDIR", fix.libdir, 1);
	is_int(machine_restore(m, fix.state, SOON, &err), -ENOTSUP, "is not restored: %s",
		err.text);
	close(pair[0]);
	close(pair[1]);
}

static void test_bad_state(void)
{
	cleanup_fd int cut = memfd_create("cut", MFD_CLOEXEC),
		       other = memfd_create("x", MFD_CLOEXEC);
	char buf[4096] = "#!/bin/sh\n";
	struct machine *m = NULL;
	struct err err = {""};

	file_pwrite_full(other, buf, sizeof(buf), 0);
	file_pread_full(fix.state, buf, sizeof(buf), 0);
	file_pwrite_full(cut, buf, sizeof(buf), 0);
	is_int(start(false, -1, NULL, &m, &err), 0, "a standby");
	is_int(machine_restore(m, other, SOON, &err), -EBADMSG,
		"a file that is no state is refused: %s", err.text);
	is_int(machine_restore(m, cut, SOON, &err), -ECONNABORTED, "half a state too");
	has_str(err.text, "the monitor said last",
		"half a state is refused with the monitor's words: %s", err.text);
	is_int(machine_get_state(m), MACHINE_ENDED, "a machine whose restore failed is over");
	machine_free(m);
}

static void *kill_it(void *arg)
{
	kill(*(int *)arg, SIGKILL);
	return NULL;
}

static void test_killed(void)
{
	cleanup_machine struct machine *m = NULL, *n = NULL;
	struct err err = {""};
	int64_t before;
	pthread_t thread;
	int pid;

	is_int(start(false, -1, NULL, &m, &err), 0, "a standby");
	pid = machine_pid(m);
	kill(pid, SIGSTOP);
	is_int(machine_ready(m, clock_deadline(50), &err), -ETIMEDOUT, "stopped, it is late: %s",
		err.text);
	before = clock_now_ns();
	pthread_create(&thread, NULL, kill_it, &pid);
	is_int(machine_restore(m, fix.state, clock_deadline(100000), &err), -ECONNABORTED,
		"killed while it is waited for: %s", err.text);
	ok(clock_now_ns() - before < 5000000000ll, "a monitor that is killed is noticed at once");
	pthread_join(thread, NULL);

	is_int(start(false, -1, NULL, &n, &err), 0, "a second machine starts");
	is_int(machine_restore(n, fix.state, SOON, &err), 0, "a second machine is restored");
	kill(machine_pid(n), SIGKILL);
	ok(ends(n, 5000), "the second machine is killed");
	is_int(machine_resume(n, SOON, &err), -ECONNABORTED, "which its next call tells: %s",
		err.text);
}

/* kill −9 of the owner takes the machine along. */
static void test_owner_killed(void)
{
	int fds[2], monitor = 0, status;
	struct pollfd p = {.fd = -1, .events = POLLIN};
	pid_t owner;

	if (pipe2(fds, O_CLOEXEC) < 0 || (owner = fork()) < 0)
		abort();
	if (owner == 0) {
		struct machine *m;
		int pid;

		if (start(false, -1, NULL, &m, NULL) < 0 || machine_ready(m, SOON, NULL) < 0)
			_exit(1);
		pid = machine_pid(m);
		if (write(fds[1], &pid, sizeof(pid)) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	close(fds[1]);
	is_int(read(fds[0], &monitor, sizeof(monitor)), sizeof(monitor), "an owner has a machine");
	close(fds[0]);
	p.fd = (int)syscall(SYS_pidfd_open, monitor, 0);
	kill(owner, SIGKILL);
	waitpid(owner, &status, 0);
	ok(p.fd < 0 || poll(&p, 1, 5000) == 1, "which ends with it");
	close(p.fd);
}

static void test_boot_fails(void)
{
	cleanup_machine struct machine *m = NULL, *n = NULL;
	cleanup_guest struct guest *g = NULL;
	char *kernel = fix.kernel;
	int sealed = fix.memory;
	struct proto_hello hello;
	struct err err = {""};

	fix.memory = memfd_create("memory", MFD_CLOEXEC);
	if (ftruncate(fix.memory, MEMORY) < 0)
		abort();
	fix.kernel = "/nonexistent/vmlinux";
	is_int(start(true, -1, CMDLINE, &m, &err), -ENOENT,
		"a machine with a kernel that is not there does not start");
	fix.kernel = kernel;
	has_str(err.text, "/nonexistent/vmlinux", "a machine without its kernel says why: %s",
		err.text);

	is_int(start(true, -1, CMDLINE " rdinit=/nonexistent", &n, &err), 0,
		"a machine without an init starts");
	is_int(channel_guest(n, &g, &err), 0,
		"the channel of a machine without an init is listened to");
	is_int(machine_boot_wait(n, g, NULL, &hello, &err), -ECONNABORTED, "panics, which ends it");
	has_str(err.text, "Kernel panic", "the kernel's panic is quoted");
	printf("# %.60s…\n", err.text);
	close(fix.memory);
	fix.memory = sealed;
}

/* Four processes that do nothing but compute: on two cores a boot takes several times as long. */
static void test_boot_busy(void)
{
	int n = getenv("PARBAKE_BOOTS") ? atoi(getenv("PARBAKE_BOOTS")) : 1;
	int memory = fix.memory;
	pid_t busy[4];

	for (int i = 0; i < 4; i++) {
		busy[i] = fork();
		if (busy[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (volatile unsigned spin = 0;; spin++)
				;
		}
	}
	for (int i = 0; i < n; i++) {
		cleanup_machine struct machine *m = NULL;
		cleanup_guest struct guest *g = NULL;
		struct proto_hello hello;
		struct err err = {""};
		int64_t before = clock_now_ns();

		fix.memory = memfd_create("memory", MFD_CLOEXEC);
		if (ftruncate(fix.memory, MEMORY) < 0)
			abort();
		if (start(true, -1, CMDLINE, &m, &err) == 0 && channel_guest(m, &g, &err) == 0)
			works(machine_boot_wait(m, g, NULL, &hello, &err), "a boot on a busy host");
		else
			ok(false, "a machine on a busy host: %s", err.text);
		printf("# took %.1f s\n", (double)(clock_now_ns() - before) / 1e9);
		close(fix.memory);
	}
	fix.memory = memory;
	for (int i = 0; i < 4; i++) {
		kill(busy[i], SIGKILL);
		waitpid(busy[i], NULL, 0);
	}
}

/* ---- how long it takes ------------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void measure(bool with_pager)
{
	enum { N = 40, PARTS = 4 };
	static const char *const names[] = {
		"process started", "monitor answers", "state loaded", "agent answers"};
	int64_t took[PARTS][N];
	int n = getenv("PARBAKE_MEASURE") ? atoi(getenv("PARBAKE_MEASURE")) : 3;

	n = n < 1 ? 1 : n > N ? N : n;
	for (int i = 0; i < n; i++) {
		cleanup_machine struct machine *m = NULL;
		cleanup_guest struct guest *g = NULL;
		struct proto_hello hello;
		struct fake_pager pager = {0};
		int fd = with_pager ? pager_start(&pager, "ok\n", true) : -1;
		int64_t at[PARTS + 1];
		struct err err = {""};
		bool good;

		at[0] = clock_now_ns();
		good = start(false, fd, NULL, &m, &err) == 0;
		at[1] = clock_now_ns();
		good = good && machine_ready(m, SOON, &err) == 0;
		at[2] = clock_now_ns();
		good = good && machine_restore(m, fix.state, SOON, &err) == 0 &&
			channel_guest(m, &g, &err) == 0;
		at[3] = clock_now_ns();
		if (good)
			guest_sync_send(g);
		good = good && machine_resume(m, SOON, &err) == 0 &&
			guest_sync(g, SOON, machine_pidfd(m), &hello, &err) == 0;
		at[4] = clock_now_ns();
		if (!good)
			ok(false, "restored: %s", err.text);
		for (int k = 0; k < PARTS; k++)
			took[k][i] = at[k + 1] - at[k];
		close_fd(&fd);
		if (with_pager)
			pager_stop(&pager);
	}
	for (int k = 0; k < PARTS; k++) {
		qsort(took[k], (size_t)n, sizeof(took[k][0]), compare);
		printf("# %s, %s: p50 %.1f ms, max %.1f ms (n = %d)\n",
			with_pager ? "pager" : "plain", names[k], (double)took[k][n / 2] / 1e6,
			(double)took[k][n - 1] / 1e6, n);
	}
}

/* ---- what the tests need ---------------------------------------------------------------- */

static int count_fds(void)
{
	cleanup_dir DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	return n;
}

static char *built_kernel(const char *tree)
{
	cleanup_free char *script = str_printf("%s/kernel/build.sh", tree);
	const char *argv[] = {"bash", script, "--print-path", NULL};
	struct proc_spec spec = {.argv = argv};
	char *out;

	if (getenv("PARBAKE_KERNEL"))
		return str_dup(getenv("PARBAKE_KERNEL"));
	if (proc_output(&spec, 30000, 4096, &out, NULL) < 0)
		return NULL;
	out[strcspn(out, "\n")] = '\0';
	return out;
}

static int truncate_new(const char *path)
{
	cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	return fd < 0 ? -1 : ftruncate(fd, DISK);
}

/* false: something is not here, which is said. */
static bool set_up(void)
{
	cleanup_free char *self = realpath("/proc/self/exe", NULL), *disk_path = NULL;
	const struct monitor_facts *facts;
	struct err err;

	for (int i = 0; i < 2; i++)
		*strrchr(self, '/') = '\0'; /* …/build/tests/test_machine → …/build */
	fix.libdir = str_dup(self);
	fix.initrd = getenv("PARBAKE_INITRD") ? str_dup(getenv("PARBAKE_INITRD"))
					      : str_printf("%s/initramfs.cpio", self);
	*strrchr(self, '/') = '\0';
	fix.kernel = built_kernel(self);
	snprintf(fix.dir, sizeof(fix.dir), "/tmp/parbake-machine-XXXXXX");
	if (!mkdtemp(fix.dir))
		abort();
	setenv("PARBAKE_HOME", fix.dir, 1);
	setenv("PARBAKE_LIBDIR", fix.libdir, 1);
	if (monitor_probe(&facts, &err) < 0) {
		tap_skip(err.text);
		return false;
	}
	if (!fix.kernel || access(fix.kernel, R_OK) < 0) {
		tap_skip("no guest kernel; build it with make kernel or set PARBAKE_KERNEL");
		return false;
	}
	if (access(fix.initrd, R_OK) < 0) {
		tap_skip("no initramfs; build it with make all or set PARBAKE_INITRD");
		return false;
	}
	fix.state = memfd_create("state", MFD_CLOEXEC);
	disk_path = str_printf("%s/disk", fix.dir);
	if (truncate_new(disk_path) < 0)
		abort();
	fix.disk = open(disk_path, O_RDONLY | O_CLOEXEC);
	return true;
}

static void test_monitor(const struct monitor_facts *facts)
{
	int fds;

	printf("# %s %s, %s\n", facts->program, facts->version,
		facts->has_kvm ? "kvm" : facts->why_not_kvm);
	fix.monitor = facts;
	fix.printed = 0;
	captured = (struct proto_hello){0};
	fix.memory = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (ftruncate(fix.memory, MEMORY) < 0)
		abort();
	test_boot_and_capture();
	if (captured.counter) {
		test_restore_plain();
		fds = count_fds();
		test_restore_pager();
		test_pager_silent();
		test_pager_refuses();
		test_no_preload();
		test_bad_state();
		test_killed();
		test_owner_killed();
		test_boot_fails();
		test_boot_busy();
		is_int(count_fds(), fds, "no descriptor is left behind");
		measure(false);
		measure(true);
	}
	close_fd(&fix.memory);
}

/* What there is is found again by its version, and nothing else is. */
static void test_find(void)
{
	const struct monitor_facts *facts, *found;
	struct err err = {""};

	for (unsigned i = 0; i < 4; i++) {
		if (monitor_candidate(i, &facts, NULL) < 0)
			continue;
		is_int(monitor_find(facts->name, facts->version, &found, &err), 0,
			"%s is found by its version", facts->version);
		ok(found == facts, "a build of the monitor finds itself");
		is_int(monitor_find("other", facts->version, &found, &err), -ENOENT,
			"a build of the monitor is not found as another monitor");
	}
	is_int(monitor_find("qemu", "0.0", &found, &err), -ENOENT,
		"a monitor of another version is not found here");
	has_str(err.text, facts->program, "the error tells which versions are here: %s", err.text);
}

int main(void)
{
	const struct monitor_facts *facts;
	int r;

	if (set_up()) {
		test_find();
		for (unsigned i = 0; (r = monitor_candidate(i, &facts, NULL)) != -ERANGE; i++)
			if (r == 0 && facts->emulates)
				test_monitor(facts);
	}
	file_remove_tree(AT_FDCWD, fix.dir, NULL);
	return tap_done();
}
