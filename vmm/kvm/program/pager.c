/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handing guest memory to a pager: the handshake that restore/pager/pager.h describes, as
 * vmm/qemu/preload_uffd.c does it in other monitors. What always holds is the same: the machine
 * never reads a page that the pager did not give. The userfaultfd stays open here, so without a
 * pager a fault waits and finds no zeros; and a thread of its own, which touches no guest memory,
 * watches the pager's socket and kills the process when the other end closes.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/sock.h"
#include "vmm/kvm/program/memory.h"
#include "vmm/kvm/program/thread.h"

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

#define FEATURES (UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM)
#define NEEDED_IOCTLS (1ull << _UFFDIO_WAKE | 1ull << _UFFDIO_CONTINUE | 1ull << _UFFDIO_ZEROPAGE)

static int open_uffd(int dev_fd)
{
	int fd;

	if (dev_fd < 0)
		return (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	fd = ioctl(dev_fd, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	close(dev_fd);
	return fd;
}

static int register_memory(int uffd, const struct memory *m, struct err *err)
{
	struct uffdio_api api = {.api = UFFD_API, .features = FEATURES};
	struct uffdio_register reg = {
		.range = {.start = (uintptr_t)m->base, .len = m->bytes},
		.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR,
	};

	if (ioctl(uffd, UFFDIO_API, &api) < 0)
		return err_sys(err, errno,
			"userfaultfd: this kernel lacks a feature (5.14 or newer is needed)");
	if (ioctl(uffd, UFFDIO_REGISTER, &reg) < 0)
		return err_sys(err, errno, "userfaultfd: register guest memory");
	if ((reg.ioctls & NEEDED_IOCTLS) != NEEDED_IOCTLS)
		return err_set(err, ENOTSUP,
			"userfaultfd: this kernel cannot map pages of a private memfd");
	return 0;
}

static int send_handshake(int sock, int uffd, const struct memory *m, struct err *err)
{
	char text[160];
	int r,
		len = snprintf(text, sizeof(text),
			"[{\"base_host_virt_addr\":%llu,\"size\":%llu,\"offset\":0,"
			"\"page_size\":4096}]",
			(unsigned long long)(uintptr_t)m->base, (unsigned long long)m->bytes);

	r = sock_send_fds(sock, text, (size_t)len, &uffd, 1);
	return r < 0 ? err_sys(err, -r, "hand over to the pager") : 0;
}

/* The pager says "ok\n" once and then nothing; its end is ours. */
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
	}
	return NULL;
}

int memory_hand_over(struct memory *m, int pager_fd, int dev_fd, struct err *err)
{
	int uffd = open_uffd(dev_fd), r;

	if (uffd < 0)
		return err_sys(err, errno,
			"userfaultfd (see vm.unprivileged_userfaultfd and /dev/userfaultfd)");
	r = register_memory(uffd, m, err);
	if (r == 0)
		r = send_handshake(pager_fd, uffd, m, err);
	if (r == 0)
		r = thread_start(watch, (void *)(intptr_t)pager_fd, 0, err);
	return r; /* the userfaultfd is never closed: see above */
}
