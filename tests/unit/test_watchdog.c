/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that reads the memory of another, which never gives it (a page that is served by userfaultfd, and is not), hangs
 * in the kernel; the watchdog ends it. One that gets on in time lives.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/watchdog.h"
#include "tests/unit/tap.h"

#define PAGE 4096
#define SOON_MS 60000

/* A page of this process that nobody will ever provide. NULL: userfaultfd may not be used here. */
static void *unreadable_page(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	int fd = dev >= 0 ? ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC)
			  : (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	reg.range.start = (uintptr_t)page;
	reg.range.len = PAGE;
	if (fd < 0 || page == MAP_FAILED || ioctl(fd, UFFDIO_API, &api) < 0 ||
		ioctl(fd, UFFDIO_REGISTER, &reg) < 0)
		return NULL;
	return page;
}

/* In a child: read @from of @pid under a watchdog. */
static _Noreturn void read_it(pid_t pid, void *from, int64_t ms)
{
	struct watchdog w = {0};
	char buf[PAGE];
	struct iovec to = {buf, sizeof(buf)}, there = {from, PAGE};

	if (watchdog_start(&w, ms, NULL) < 0)
		_exit(3);
	process_vm_readv(pid, &to, 1, &there, 1, 0);
	watchdog_stop(&w);
	/* what was stopped does not bark */
	poll(NULL, 0, (int)(ms < 300 ? 2 * ms : 1));
	_exit(0);
}

/* How that child ended; -1: it did not. */
static int end_of(void *from, int64_t ms)
{
	pid_t owner = getpid(), pid = fork();
	int status = -1, pidfd;
	struct pollfd p = {.events = POLLIN};

	if (pid == 0)
		read_it(owner, from, ms);
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	p.fd = pidfd;
	if (poll(&p, 1, SOON_MS) != 1)
		kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(pidfd);
	return p.revents ? status : -1;
}

int main(void)
{
	static char readable[PAGE];
	void *page = unreadable_page();
	int status;

	status = end_of(readable, SOON_MS);
	ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "who gets on in time lives");
	status = end_of(readable, 100);
	ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "also past the time, once it is stopped");
	if (!page) {
		tap_skip("userfaultfd may not be used here");
		return tap_done();
	}
	status = end_of(page, 200);
	ok(status != -1, "who waits for memory that never comes ends");
	ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "by the watchdog");
	return tap_done();
}
