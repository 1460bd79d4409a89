/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The userfaultfd calls, and the one place that knows what their errors mean.
 *
 * An answer that maps only part of its range says so in a field that the kernel writes last, and
 * returns EAGAIN. The next call, over the rest of the range, returns why it stopped. A call that is
 * refused before it begins leaves that field alone, so it is set to 0 first. The kernel refuses
 * every answer with EAGAIN from the moment a thread enters madvise(MADV_DONTNEED) until the event
 * it sent was read and that thread has run on: reading is what ends the wait.
 */
#include "restore/pager/uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"

#ifndef USERFAULTFD_IOC_NEW /* 6.1, but absent from older headers */
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

#define BELL_NS 2000000 /* a read that should not have waited is ended after so long */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static const char *const result_names[] = {
	[UFFD_DONE] = "done",
	[UFFD_EXISTS] = "exists",
	[UFFD_AGAIN] = "again",
	[UFFD_NO_RANGE] = "no range",
	[UFFD_NO_MEMORY] = "no memory",
	[UFFD_GONE] = "gone",
	[UFFD_BROKEN] = "broken",
};
_Static_assert(sizeof(result_names) / sizeof(*result_names) == UFFD_BROKEN + 1, "every result");

const char *uffd_result_name(enum uffd_result r)
{
	return result_names[r];
}

static enum uffd_result classify(int code)
{
	switch (code) {
	case 0:
		return UFFD_DONE;
	case EEXIST: /* another answer, or a huge page, came first */
		return UFFD_EXISTS;
	case EAGAIN: /* mmap_changing, or a short answer */
	case EINTR: /* we are being killed */
	case EBUSY:
		return UFFD_AGAIN;
	case ENOENT: /* no mapping registered with this descriptor covers the range */
		return UFFD_NO_RANGE;
	case ENOMEM: /* page tables, or a memory cgroup at its limit */
		return UFFD_NO_MEMORY;
	case ESRCH: /* the process is gone */
	case ENOSPC: /* what kernels before 4.11 and exiting processes say instead */
		return UFFD_GONE;
	default: /* EFAULT: CONTINUE on a page the file lacks; EINVAL, ENOTTY, EBADF: not what it
		    was */
		return UFFD_BROKEN;
	}
}

int uffd_check(int fd, struct err *err)
{
	char link[32], target[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, target, sizeof(target) - 1);
	if (n < 0)
		return err_sys(err, errno, "look at the machine's descriptor");
	target[n] = '\0';
	if (strcmp(target, "anon_inode:[userfaultfd]") != 0)
		return err_set(
			err, EPROTO, "the machine's descriptor is %s, not a userfaultfd", target);
	return 0;
}

/*
 * Whether a read waits is a flag of the open file, which the machine has too: a monitor that was taken
 * over can clear it and keep a reader for ever. Where a read cannot say for itself that it will not wait
 * (before 6.10), a timer of the thread's own rings until it is through.
 */
static pthread_key_t bell_key;
static pthread_once_t bell_once = PTHREAD_ONCE_INIT;
static __thread struct {
	timer_t timer;
	bool made;
} bell;

static void bell_rings(int signal)
{
	(void)signal;
}

static void bell_delete(void *made)
{
	(void)made;
	timer_delete(bell.timer);
	bell.made = false;
}

static void bell_begin(void)
{
	struct sigaction sa = {.sa_handler = bell_rings}; /* no SA_RESTART: it ends a read */

	sigaction(SIGRTMIN, &sa, NULL);
	pthread_key_create(&bell_key, bell_delete);
}

static int bell_make(void)
{
	struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
	sigset_t set;

	pthread_once(&bell_once, bell_begin);
	ev.sigev_notify_thread_id = gettid();
	if (timer_create(CLOCK_MONOTONIC, &ev, &bell.timer) < 0)
		return -errno;
	bell.made = true;
	pthread_setspecific(bell_key, &bell);
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	return 0;
}

static ssize_t read_bounded(int fd, void *to, size_t len)
{
	/* again and again: the first may ring before the read has begun */
	const struct itimerspec ring = {{.tv_nsec = BELL_NS}, {.tv_nsec = BELL_NS}}, none = {0};
	ssize_t got;
	int r = bell.made ? 0 : bell_make();

	if (r < 0 || timer_settime(bell.timer, 0, &ring, NULL) < 0) {
		errno = r < 0 ? -r : errno;
		return -1;
	}
	got = read(fd, to, len);
	r = errno;
	timer_settime(bell.timer, 0, &none, NULL);
	errno = r;
	return got;
}

atomic_bool uffd_no_nowait;

ssize_t uffd_read(int fd, struct uffd_msg *msgs, size_t n)
{
	struct iovec iov = {.iov_base = msgs, .iov_len = n * sizeof(*msgs)};
	ssize_t got = -1;

	errno = EOPNOTSUPP;
	if (!atomic_load_explicit(&uffd_no_nowait, memory_order_relaxed)) {
		got = preadv2(fd, &iov, 1, -1, RWF_NOWAIT);
		if (got < 0 && errno == EOPNOTSUPP)
			atomic_store_explicit(&uffd_no_nowait, true, memory_order_relaxed);
	}
	if (got < 0 && errno == EOPNOTSUPP)
		got = read_bounded(fd, msgs, n * sizeof(*msgs));
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	return got / (ssize_t)sizeof(*msgs);
}

enum uffd_result uffd_continue(int fd, uint64_t addr, uint64_t len, uint64_t *ret_done)
{
	struct uffdio_continue arg = {.range = {.start = addr, .len = len}};
	int code = ioctl(fd, UFFDIO_CONTINUE, &arg) < 0 ? errno : 0;

	*ret_done = arg.mapped > 0 ? (uint64_t)arg.mapped : 0;
	return classify(code);
}

enum uffd_result uffd_copy(
	int fd, uint64_t addr, const void *from, uint64_t len, uint64_t *ret_done)
{
	struct uffdio_copy arg = {.dst = addr, .src = (uintptr_t)from, .len = len};
	int code = ioctl(fd, UFFDIO_COPY, &arg) < 0 ? errno : 0;

	*ret_done = arg.copy > 0 ? (uint64_t)arg.copy : 0;
	return classify(code);
}

enum uffd_result uffd_zeropage(int fd, uint64_t addr, uint64_t len, uint64_t *ret_done)
{
	struct uffdio_zeropage arg = {.range = {.start = addr, .len = len}};
	int code = ioctl(fd, UFFDIO_ZEROPAGE, &arg) < 0 ? errno : 0;

	*ret_done = arg.zeropage > 0 ? (uint64_t)arg.zeropage : 0;
	return classify(code);
}

enum uffd_result uffd_wake(int fd, uint64_t addr, uint64_t len)
{
	struct uffdio_range arg = {.start = addr, .len = len};

	return classify(ioctl(fd, UFFDIO_WAKE, &arg) < 0 ? errno : 0);
}

int uffd_register(int fd, void *addr, size_t len)
{
	struct uffdio_register arg = {
		.range = {.start = (uintptr_t)addr, .len = len},
		.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR,
	};

	return ioctl(fd, UFFDIO_REGISTER, &arg) < 0 ? -errno : 0;
}

/* By the device, else by the call. */
static int open_any(const char **how, struct err *err)
{
	cleanup_fd int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	int dev_code = dev < 0 ? errno : 0, fd = -1, call_code;

	*how = "/dev/userfaultfd";
	if (dev >= 0) {
		fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
		dev_code = fd < 0 ? errno : 0;
	}
	if (fd >= 0)
		return fd;
	*how = "userfaultfd(2)";
	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		return fd;
	call_code = errno;
	if (call_code == ENOSYS)
		return err_set(err, ENOSYS,
			"userfaultfd: not in this kernel (CONFIG_USERFAULTFD), or "
			"a container's seccomp filter hides it");
	if (call_code == EPERM)
		return err_set(err, EPERM,
			"userfaultfd: this user may not trap kernel-mode faults; give it read and "
			"write "
			"permission on /dev/userfaultfd (now: %s), or set sysctl "
			"vm.unprivileged_userfaultfd=1, or grant CAP_SYS_PTRACE",
			strerrordesc_np(dev_code));
	return err_sys(err, call_code, "userfaultfd(2)");
}

int uffd_create(const char **ret_how, struct err *err)
{
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURES};
	const char *how;
	cleanup_fd int fd = open_any(&how, err);

	if (fd < 0)
		return fd;
	if (ioctl(fd, UFFDIO_API, &api) < 0)
		return err_set(err, errno == EINVAL ? EOPNOTSUPP : errno,
			"%s: this kernel lacks minor faults on shared memory or remove events; "
			"Linux 5.14 or newer is needed",
			how);
	if (ret_how)
		*ret_how = how;
	return steal_fd(&fd);
}
