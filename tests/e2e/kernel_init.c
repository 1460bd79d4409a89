/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The /init of tests/e2e/kernel.sh: tries what parbake and its sandboxes need of
 * the guest kernel, by using it rather than by looking for its name, and
 * reports over the virtio-serial port "parbake.test":
 *
 *	check NAME ok
 *	check NAME failed: REASON
 *	note TEXT
 *	end
 *
 * Each check runs in a child, so that one which unshares, filters or kills
 * itself leaves the others alone. Then the machine is reset, which ends it.
 *
 * Run on the host as `kernel_init --tsc-khz` it prints the host's TSC rate,
 * which the emulated guest is told as tsc_early_khz=.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <linux/vm_sockets.h>
#include <mqueue.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define PORT_NAME "parbake.test"

static FILE *report;

/* Returns 0 when what a call gave is not an error, else its negative errno. */
static int passed(long result)
{
	return result < 0 ? -errno : 0;
}

/* Reads a small file whole; returns its length or a negative errno. */
static int read_text(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, size - 1);
	close(fd);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return (int)n;
}

static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return -errno;
	rc = passed(write(fd, text, strlen(text)));
	close(fd);
	return rc;
}

/* --- file systems */

static int check_ext4(void)
{
	/* version 2, then user::rw- user:1:r-- group::--- mask::rwx other::--- */
	/* clang-format off */
	static const unsigned char acl[] = {
		2, 0, 0, 0,
		0x01, 0, 6, 0, 0xff, 0xff, 0xff, 0xff,
		0x02, 0, 4, 0, 1, 0, 0, 0,
		0x04, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
		0x10, 0, 7, 0, 0xff, 0xff, 0xff, 0xff,
		0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
	};
	/* clang-format on */
	int fd;

	if (mount("/dev/vda", "/disk", "ext4", 0, NULL))
		return -errno;
	fd = open("/disk/file", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 || fsetxattr(fd, "security.parbake", "x", 1, 0) ||
		fsetxattr(fd, "user.parbake", "x", 1, 0) ||
		fsetxattr(fd, "system.posix_acl_access", acl, sizeof(acl), 0) || fsync(fd))
		return -errno;
	close(fd);
	return passed(umount("/disk"));
}

static int check_overlay(void)
{
	char text[8];

	mkdir("/tmp/lower", 0755);
	mkdir("/tmp/upper", 0755);
	mkdir("/tmp/work", 0755);
	mkdir("/tmp/merged", 0755);
	if (mknod("/tmp/lower/file", S_IFREG | 0644, 0) || write_text("/tmp/lower/file", "low") ||
		mount("overlay", "/tmp/merged", "overlay", 0,
			"lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work"))
		return -errno;
	if (write_text("/tmp/merged/file", "top") ||
		read_text("/tmp/lower/file", text, sizeof(text)) < 0 || strcmp(text, "low"))
		return -EIO;
	return passed(umount("/tmp/merged"));
}

static int check_tmpfs_xattr(void)
{
	return passed(setxattr("/tmp", "trusted.parbake", "x", 1, 0));
}

static int check_fuse(void)
{
	return passed(open("/dev/fuse", O_RDWR | O_CLOEXEC));
}

static int check_binfmt_misc(void)
{
	return passed(mount("binfmt_misc", "/proc/sys/fs/binfmt_misc", "binfmt_misc", 0, NULL));
}

static int check_loop(void)
{
	return passed(open("/dev/loop-control", O_RDWR | O_CLOEXEC));
}

/* --- containment */

static int check_cgroup2(void)
{
	static const char *const files[] = {
		"memory.max",
		"pids.max",
		"cpu.max",
		"cgroup.freeze",
		"cgroup.kill",
	};
	char path[64];
	int rc;

	mkdir("/sys/fs/cgroup", 0755);
	if (mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL))
		return -errno;
	rc = write_text("/sys/fs/cgroup/cgroup.subtree_control", "+memory +pids +cpu");
	if (rc)
		return rc;
	if (mkdir("/sys/fs/cgroup/a", 0755))
		return -errno;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "/sys/fs/cgroup/a/%s", files[i]);
		if (access(path, W_OK))
			return -errno;
	}
	return 0;
}

static int check_namespaces(void)
{
	return passed(unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
		CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWCGROUP | CLONE_NEWTIME));
}

static int check_seccomp(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTSUP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		return -errno;
	return syscall(SYS_getppid) == -1 && errno == ENOTSUP ? 0 : -EIO;
}

/* --- descriptors and calls */

static int check_epoll(void)
{
	return passed(epoll_create1(EPOLL_CLOEXEC));
}

static int check_eventfd(void)
{
	return passed(eventfd(0, EFD_CLOEXEC));
}

static int check_timerfd(void)
{
	return passed(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
}

static int check_signalfd(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	return passed(signalfd(-1, &set, SFD_CLOEXEC));
}

static int check_inotify(void)
{
	return passed(inotify_init1(IN_CLOEXEC));
}

static int check_io_uring(void)
{
	struct io_uring_params params = {0};

	return passed(syscall(SYS_io_uring_setup, 4, &params));
}

static int check_aio(void)
{
	aio_context_t ctx = 0;

	return passed(syscall(SYS_io_setup, 4, &ctx));
}

static int check_memfd(void)
{
	return passed(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

static int check_userfaultfd(void)
{
	return passed(syscall(SYS_userfaultfd, O_CLOEXEC));
}

static int check_pidfd(void)
{
	return passed(syscall(SYS_pidfd_open, getpid(), 0));
}

static int check_fhandle(void)
{
	struct {
		struct file_handle head;
		unsigned char room[128];
	} h = {.head.handle_bytes = sizeof(h.room)};
	int mount_id;

	return passed(name_to_handle_at(AT_FDCWD, "/tmp", &h.head, &mount_id, 0));
}

static int check_futex(void)
{
	int word = 0;

	return passed(syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0));
}

static int check_process_vm(void)
{
	char from = 'x', to = 0;
	struct iovec l = {&to, 1}, r = {&from, 1};

	if (process_vm_readv(getpid(), &l, 1, &r, 1, 0) != 1)
		return -errno;
	return to == 'x' ? 0 : -EIO;
}

static int check_mqueue(void)
{
	return passed(mq_open("/parbake", O_CREAT | O_RDWR, 0600, NULL));
}

static int check_sysvipc(void)
{
	return passed(shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600));
}

static int check_pty(void)
{
	int fd;

	mkdir("/dev/pts", 0755);
	if (mount("devpts", "/dev/pts", "devpts", 0, "ptmxmode=0666"))
		return -errno;
	fd = posix_openpt(O_RDWR | O_NOCTTY);
	if (fd < 0 || grantpt(fd) || unlockpt(fd))
		return -errno;
	return passed(open(ptsname(fd), O_RDWR | O_NOCTTY));
}

/* --- sockets */

static int loopback_up(void)
{
	struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &ifr))
		return -errno;
	close(fd);
	return 0;
}

/* Listens on an address the kernel completes, connects to it, passes a byte. */
static int stream_pair(struct sockaddr *addr, socklen_t len)
{
	int s = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int c = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char byte = 0;
	int a;

	if (s < 0 || c < 0 || bind(s, addr, len) || listen(s, 1) || getsockname(s, addr, &len) ||
		connect(c, addr, len))
		return -errno;
	a = accept(s, NULL, NULL);
	if (a < 0 || write(c, "x", 1) != 1 || read(a, &byte, 1) != 1)
		return -errno;
	return byte == 'x' ? 0 : -EIO;
}

static int check_ipv4(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int rc = loopback_up();

	return rc ? rc : stream_pair((struct sockaddr *)&addr, sizeof(addr));
}

static int check_ipv6(void)
{
	struct sockaddr_in6 addr = {
		.sin6_family = AF_INET6,
		.sin6_addr = IN6ADDR_LOOPBACK_INIT,
	};
	int rc = loopback_up();

	return rc ? rc : stream_pair((struct sockaddr *)&addr, sizeof(addr));
}

static int check_unix(void)
{
	int pair[2];

	return passed(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
}

static int check_vsock(void)
{
	return passed(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

/* --- devices and time */

static int check_virtio_drivers(void)
{
	static const char *const names[] = {
		"virtio_blk",
		"virtio_console",
		"virtio_rng",
		"virtio_balloon",
		"virtio_net",
		"vmw_vsock_virtio_transport",
	};
	char path[96];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "/sys/bus/virtio/drivers/%s", names[i]);
		if (access(path, F_OK))
			return -ENODEV;
	}
	return 0;
}

static int check_hwrng(void)
{
	char buf[16];
	int fd = open("/dev/hwrng", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : passed(read(fd, buf, sizeof(buf)));
}

static int check_random_ready(void)
{
	char buf[16];

	return passed(getrandom(buf, sizeof(buf), GRND_NONBLOCK));
}

/* Without a usable TSC the clock ticks in whole jiffies and timers with it. */
static int check_clock(void)
{
	struct timespec res;
	char name[32];
	int rc = read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource", name,
		sizeof(name));

	if (rc < 0)
		return rc;
	if (clock_getres(CLOCK_MONOTONIC, &res))
		return -errno;
	if (strncmp(name, "tsc", 3) && strncmp(name, "kvm-clock", 9))
		return -ENODEV;
	return res.tv_sec == 0 && res.tv_nsec == 1 ? 0 : -ERANGE;
}

/* The local APIC's timer passed its calibration: else each sleep ends on the PIT. */
static int check_apic_timer(void)
{
	char text[4096], *line;
	int rc = read_text("/proc/interrupts", text, sizeof(text));
	struct timespec nap = {.tv_nsec = 20 * 1000 * 1000};

	if (rc < 0)
		return rc;
	line = strstr(text, "LOC:");
	if (!line)
		return -ENOENT;
	rc = atoi(line + 4);
	nanosleep(&nap, NULL);
	read_text("/proc/interrupts", text, sizeof(text));
	line = strstr(text, "LOC:");
	return line && atoi(line + 4) > rc ? 0 : -ETIME;
}

static int check_absent(void)
{
	static const char *const paths[] = {
		"/dev/mem",
		"/dev/port",
		"/dev/kmem",
		"/proc/kcore",
		"/proc/modules",
		"/proc/sysrq-trigger",
		"/sys/kernel/debug",
		"/sys/kernel/tracing",
	};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (!access(paths[i], F_OK))
			return -EEXIST;
	return 0;
}

static int check_kallsyms(void)
{
	return passed(access("/proc/kallsyms", R_OK) || access("/proc/config.gz", R_OK) ? -1 : 0);
}

static const struct check {
	const char *name;
	int (*run)(void);
} checks[] = {
	{"tmpfs-xattr", check_tmpfs_xattr},
	{"ext4-acl-xattr", check_ext4},
	{"overlayfs", check_overlay},
	{"fuse", check_fuse},
	{"binfmt_misc", check_binfmt_misc},
	{"loop", check_loop},
	{"cgroup2", check_cgroup2},
	{"namespaces", check_namespaces},
	{"seccomp-filter", check_seccomp},
	{"epoll", check_epoll},
	{"eventfd", check_eventfd},
	{"timerfd", check_timerfd},
	{"signalfd", check_signalfd},
	{"inotify", check_inotify},
	{"io_uring", check_io_uring},
	{"aio", check_aio},
	{"memfd", check_memfd},
	{"userfaultfd", check_userfaultfd},
	{"pidfd", check_pidfd},
	{"fhandle", check_fhandle},
	{"futex", check_futex},
	{"process_vm", check_process_vm},
	{"mqueue", check_mqueue},
	{"sysvipc", check_sysvipc},
	{"pty", check_pty},
	{"ipv4", check_ipv4},
	{"ipv6", check_ipv6},
	{"unix", check_unix},
	{"vsock", check_vsock},
	{"virtio-drivers", check_virtio_drivers},
	{"hwrng", check_hwrng},
	{"random-ready", check_random_ready},
	{"clock", check_clock},
	{"apic-timer", check_apic_timer},
	{"kallsyms", check_kallsyms},
	{"nothing-extra", check_absent},
};

static void run_check(const struct check *c)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		alarm(10);
		_exit(-c->run() & 0xff);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		fprintf(report, "check %s failed: cannot run it\n", c->name);
	else if (WIFSIGNALED(status))
		fprintf(report, "check %s failed: signal %d\n", c->name, WTERMSIG(status));
	else if (WEXITSTATUS(status))
		fprintf(report, "check %s failed: %s\n", c->name, strerror(WEXITSTATUS(status)));
	else
		fprintf(report, "check %s ok\n", c->name);
	fflush(report);
}

static FILE *open_report(void)
{
	char path[300], name[64];
	struct dirent *e;
	FILE *f = NULL;
	DIR *d = opendir("/sys/class/virtio-ports");

	while (d && !f && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", e->d_name);
		if (e->d_name[0] == '.' || read_text(path, name, sizeof(name)) < 0 ||
			strcmp(name, PORT_NAME "\n"))
			continue;
		snprintf(path, sizeof(path), "/dev/%s", e->d_name);
		f = fopen(path, "we");
	}
	if (d)
		closedir(d);
	return f;
}

static void note_memory(void)
{
	char text[4096], *line, *rest = text;

	if (read_text("/proc/meminfo", text, sizeof(text)) < 0)
		return;
	while ((line = strsep(&rest, "\n")))
		if (!strncmp(line, "MemTotal:", 9) || !strncmp(line, "MemFree:", 8))
			fprintf(report, "note %s\n", line);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The TSC's rate against the raw clock, over 50 ms: some 20 ppm of error. */
static void print_tsc_khz(void)
{
	struct timespec nap = {.tv_nsec = 50 * 1000 * 1000};
	uint64_t ns = now_ns(), tsc = __rdtsc();

	nanosleep(&nap, NULL);
	ns = now_ns() - ns;
	tsc = __rdtsc() - tsc;
	printf("%llu\n", (unsigned long long)(tsc * 1000000 / ns));
}

int main(int argc, char **argv)
{
	struct timespec up;

	if (argc > 1 && !strcmp(argv[1], "--tsc-khz")) {
		print_tsc_khz();
		return 0;
	}
	if (getpid() != 1) {
		fprintf(stderr, "this is the /init of tests/e2e/kernel.sh\n");
		return 2;
	}
	clock_gettime(CLOCK_MONOTONIC, &up);
	mkdir("/dev", 0755);
	mkdir("/proc", 0555);
	mkdir("/sys", 0555);
	mkdir("/tmp", 01777);
	mkdir("/disk", 0755);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("tmpfs", "/tmp", "tmpfs", 0, NULL);
	report = open_report();
	if (report) {
		fprintf(report, "note kernel start to /init: %ld ms\n",
			up.tv_sec * 1000 + up.tv_nsec / 1000000);
		note_memory();
		for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
			run_check(&checks[i]);
		fprintf(report, "end\n");
		fflush(report);
	}
	reboot(RB_AUTOBOOT);
	return 1;
}
