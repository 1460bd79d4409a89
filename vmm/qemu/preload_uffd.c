/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * Hands a monitor's guest memory over to a pager. It wraps mmap and open in the monitor's process:
 * as a preload library for any dynamically linked monitor, or linked in with
 * -Wl,--wrap=mmap,--wrap=mmap64,--wrap=open,--wrap=open64 and -DPARBAKE_UFFD_WRAP. The environment
 * names descriptors of that process:
 *
 *     PARBAKE_UFFD_MEM   the memfd that is guest memory (the mapping is known by device and inode)
 *     PARBAKE_UFFD_SOCK  a connected unix socket to the pager
 *     PARBAKE_UFFD_ACK   an eventfd: 1 is written once the memory is registered
 *     PARBAKE_UFFD_DEV   /dev/userfaultfd, opened (else: opened here, else the system call)
 *     PARBAKE_KVM        /dev/kvm, opened: what whoever opens that name gets
 *     PARBAKE_PRELOAD    this library, to be closed
 *
 * The devices are descriptors because the monitor's user may open neither. PARBAKE_CONFINED (any
 * value): nobody is to trace this process, not even one of the same user.
 *
 * When the memfd is mapped, privately and writable, the mapping is registered with a userfaultfd
 * for missing and minor faults before anyone can touch it, and the userfaultfd is sent over the
 * socket with [{"base_host_virt_addr":…,"size":…,"offset":…,"page_size":4096}]. The answer is not
 * waited for: the pager maps the working set while the monitor goes on starting, and whoever
 * touches a page before waits for that page. So it must answer "ok\n" once, and then nothing.
 *
 * What always holds: the machine never reads a page that the pager did not give. The userfaultfd
 * stays open here, so without a pager a fault waits for ever instead of finding zeros; and a thread
 * that watches the socket kills the process when the pager's end closes. Whatever fails ends the
 * process, and so does a second mapping of the memory, which nobody would serve.
 *
 * Kernel faults must be served too (KVM, reads and writes of the disk straight into guest memory),
 * so the userfaultfd is not of the USER_MODE_ONLY kind.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

#define FEATURES (UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM)
#define NEEDED_IOCTLS                                                                              \
	((uint64_t)1 << _UFFDIO_WAKE | (uint64_t)1 << _UFFDIO_CONTINUE |                           \
		(uint64_t)1 << _UFFDIO_ZEROPAGE)
#define STACK_BYTES (64 * 1024)
#define EXIT_STATUS 125

static_assert(sizeof(uint64_t) == sizeof(uintptr_t), "addresses are sent as they are");
static_assert(sizeof(off_t) == 8, "mmap and mmap64 are one");

static atomic_flag handed_over = ATOMIC_FLAG_INIT;

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *fmt, ...)
{
	char line[256] = "parbake-uffd: ";
	size_t len = strlen(line);
	va_list args;

	va_start(args, fmt);
	vsnprintf(line + len, sizeof(line) - len - 1, fmt, args);
	va_end(args);
	len = strlen(line);
	line[len++] = '\n';
	if (write(STDERR_FILENO, line, len) < 0)
		_exit(EXIT_STATUS + 1);
	_exit(EXIT_STATUS);
}

/* A descriptor's number from the environment, or -1 where the variable is not there. */
static int env_fd(const char *name)
{
	const char *text = getenv(name);
	char *end;
	long n;

	if (!text)
		return -1;
	n = strtol(text, &end, 10);
	if (end == text || *end || n < 0 || n > INT_MAX)
		die("%s=%s: not a descriptor", name, text);
	return (int)n;
}

static int is_guest_memory(int fd)
{
	int mem = env_fd("PARBAKE_UFFD_MEM");
	struct stat want, got;

	if (mem < 0)
		return 0;
	if (fstat(mem, &want) < 0)
		die("guest memory: %s", strerror(errno));
	return fstat(fd, &got) == 0 && got.st_dev == want.st_dev && got.st_ino == want.st_ino;
}

static int open_uffd(void)
{
	int dev = env_fd("PARBAKE_UFFD_DEV");
	int fd = -1;

	if (dev < 0)
		dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (dev >= 0) {
		fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
		close(dev);
	}
	if (fd < 0)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		die("userfaultfd: %s (see vm.unprivileged_userfaultfd and /dev/userfaultfd)",
			strerror(errno));
	return fd;
}

static void register_memory(int uffd, void *addr, size_t len)
{
	struct uffdio_api api = {.api = UFFD_API, .features = FEATURES};
	struct uffdio_register reg = {
		.range = {.start = (uintptr_t)addr, .len = len},
		.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR,
	};

	if (ioctl(uffd, UFFDIO_API, &api) < 0)
		die("userfaultfd: this kernel lacks a feature (5.14 or newer is needed): %s",
			strerror(errno));
	if (ioctl(uffd, UFFDIO_REGISTER, &reg) < 0)
		die("userfaultfd: register guest memory: %s", strerror(errno));
	if ((reg.ioctls & NEEDED_IOCTLS) != NEEDED_IOCTLS)
		die("userfaultfd: this kernel cannot map pages of a private memfd");
}

static void send_handshake(int sock, int uffd, void *addr, size_t len, off_t offset)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control = {0};
	char text[256];
	struct iovec iov = {.iov_base = text};
	struct msghdr msg = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf)};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
	ssize_t n;

	iov.iov_len = (size_t)snprintf(text, sizeof(text),
		"[{\"base_host_virt_addr\":%llu,\"size\":%zu,\"offset\":%lld,\"page_size\":4096}]",
		(unsigned long long)(uintptr_t)addr, len, (long long)offset);
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &uffd, sizeof(int));
	do {
		n = sendmsg(sock, &msg, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n != (ssize_t)iov.iov_len)
		die("hand over to the pager: %s", n < 0 ? strerror(errno) : "cut short");
}

/* Touches no guest memory, so that no fault can hold it up. */
static void *watch(void *arg)
{
	static const char want[] = "ok\n";
	int sock = (int)(intptr_t)arg;
	size_t got = 0;

	for (;;) {
		char ch;
		ssize_t n = recv(sock, &ch, 1, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n == 1 && got < sizeof(want) - 1 && ch == want[got]) {
			got++;
			continue;
		}
		kill(getpid(), SIGKILL);
		_exit(EXIT_STATUS);
	}
	return NULL;
}

static void start_watch(int sock)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int r;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(
		&attr, STACK_BYTES > PTHREAD_STACK_MIN ? STACK_BYTES : PTHREAD_STACK_MIN);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, &attr, watch, (void *)(intptr_t)sock);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (r)
		die("start the watch on the pager: %s", strerror(r));
}

static void hand_over(void *addr, size_t len, int prot, int flags, off_t offset)
{
	int sock = env_fd("PARBAKE_UFFD_SOCK");
	int ack = env_fd("PARBAKE_UFFD_ACK");
	uint64_t one = 1;
	int uffd;

	if ((prot & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE) ||
		(flags & MAP_TYPE) != MAP_PRIVATE)
		die("guest memory mapped in a way nobody would serve (protection %#x, flags %#x)",
			(unsigned)prot, (unsigned)flags);
	if (atomic_flag_test_and_set(&handed_over))
		die("guest memory mapped a second time");
	if (sock < 0)
		die("PARBAKE_UFFD_SOCK is not set");
	uffd = open_uffd(); /* never closed: see above */
	register_memory(uffd, addr, len);
	send_handshake(sock, uffd, addr, len, offset);
	start_watch(sock);
	if (ack >= 0 && write(ack, &one, sizeof(one)) != (ssize_t)sizeof(one))
		die("say that memory is registered: %s", strerror(errno));
}

static void *map(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	void *at = (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, offset);
	int saved = errno;

	if (at != MAP_FAILED && fd >= 0 && !(flags & MAP_ANONYMOUS) && is_guest_memory(fd))
		hand_over(at, len, prot, flags, offset);
	errno = saved;
	return at;
}

static int open_name(const char *path, int flags, mode_t mode)
{
	int kvm = strcmp(path, "/dev/kvm") == 0 ? env_fd("PARBAKE_KVM") : -1;

	if (kvm >= 0)
		return fcntl(kvm, F_DUPFD_CLOEXEC, 0);
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* open's optional third argument, as glibc takes it. */
#define OPEN_MODE(flags)                                                                           \
	({                                                                                         \
		mode_t mode_ = 0;                                                                  \
		if ((flags)&O_CREAT || ((flags)&O_TMPFILE) == O_TMPFILE) {                         \
			va_list args_;                                                             \
			va_start(args_, flags);                                                    \
			mode_ = va_arg(args_, mode_t);                                             \
			va_end(args_);                                                             \
		}                                                                                  \
		mode_;                                                                             \
	})

__attribute__((constructor)) static void begin(void)
{
	int library = env_fd("PARBAKE_PRELOAD");

	if (library >= 0)
		close(library);
	if (!getenv("PARBAKE_CONFINED"))
		return;
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	/* a program that was started by descriptor has its number for a name */
	prctl(PR_SET_NAME, program_invocation_short_name, 0, 0, 0);
}

#ifdef PARBAKE_UFFD_WRAP
int __wrap_open(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t offset);

int __wrap_open(const char *path, int flags, ...)
{
	return open_name(path, flags, OPEN_MODE(flags));
}

int __wrap_open64(const char *path, int flags, ...)
{
	return open_name(path, flags, OPEN_MODE(flags));
}

void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	return map(addr, len, prot, flags, fd, offset);
}

void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t offset)
{
	return map(addr, len, prot, flags, fd, offset);
}
#else
/*
 * With 64-bit offsets the header's mmap is the symbol mmap64, and open open64; all names are defined
 * by hand.
 */
int uffd_open(const char *path, int flags, ...) __asm__("open");
int uffd_open64(const char *path, int flags, ...) __asm__("open64");
void *uffd_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset) __asm__("mmap");
void *uffd_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t offset) __asm__(
	"mmap64");

int uffd_open(const char *path, int flags, ...)
{
	return open_name(path, flags, OPEN_MODE(flags));
}

int uffd_open64(const char *path, int flags, ...)
{
	return open_name(path, flags, OPEN_MODE(flags));
}

void *uffd_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	return map(addr, len, prot, flags, fd, offset);
}

void *uffd_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	return map(addr, len, prot, flags, fd, offset);
}
#endif
