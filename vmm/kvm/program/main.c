/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake-vmm: a monitor for machines with KVM, one process for each, started and driven by parbake
 * (vmm/kvm/kvm.c). All that it needs comes to it as descriptors (vmm/kvm/control.h); it opens nothing.
 *
 *     setup ─► memory, handed to the pager ─► VM, processors, devices ─► threads ─► filter ─► "ready"
 *     then: restore, resume, pause, capture, as it is told; the agent's channel in between
 *
 * The main thread serves parbake and the channel, each processor's thread serves what its guest does to devices. The
 * thread that watches the pager touches no guest memory, so that no fault can hold it up.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/sock.h"
#include "vmm/kvm/program/vm.h"

#define NAME "parbake-vmm"
#define EXIT_SETUP 1
#define EXIT_OWNER 2 /* parbake let go, or says what makes no sense */

static struct vm vm;
static int epoll_fd = -1;

__attribute__((noreturn)) static void leave(int status, const char *text)
{
	if (dprintf(STDERR_FILENO, NAME ": %s\n", text) < 0)
		_exit(status);
	_exit(status);
}

/*
 * The channel is watched for what the console asks for, and not at all while the guest stands still: it is given
 * nothing then, so that what is captured is whole. With the console's lock.
 */
static struct {
	bool held, there;
} channel = {.held = true};

static void watch(void *user, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.fd = KVM_FD_CHANNEL};
	int op = !events || channel.held ? EPOLL_CTL_DEL
		: channel.there          ? EPOLL_CTL_MOD
					 : EPOLL_CTL_ADD;

	(void)user;
	if (op == EPOLL_CTL_DEL && !channel.there)
		return;
	channel.there = op != EPOLL_CTL_DEL;
	epoll_ctl(epoll_fd, op, KVM_FD_CHANNEL, &e);
}

static void hold_channel(bool held)
{
	pthread_mutex_lock(&vm.console.v.lock);
	channel.held = held;
	watch(NULL, vm.console.watched);
	pthread_mutex_unlock(&vm.console.v.lock);
}

static int watch_requests(struct err *err)
{
	struct epoll_event control = {.events = EPOLLIN, .data.fd = KVM_FD_CONTROL};

	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, KVM_FD_CONTROL, &control) < 0)
		return err_sys(err, errno, "wait for requests");
	vm.console.watch = watch;
	return 0;
}

static void reply(enum kvm_command command, int error, const uint32_t *steps, const struct err *err)
{
	struct kvm_reply out = {.command = command, .error = error};
	size_t text = 0;

	if (steps)
		memcpy(out.steps, steps, KVM_STEPS * sizeof(steps[0]));
	if (error) {
		snprintf(out.text, sizeof(out.text), "%.*s", KVM_REPLY_TEXT - 1, err->text);
		text = strlen(out.text);
	}
	if (send(KVM_FD_CONTROL, &out, offsetof(struct kvm_reply, text) + text + 1, MSG_NOSIGNAL) <
		0)
		_exit(EXIT_OWNER);
}

static void disk_failed(int error)
{
	struct err err;

	err_sys(&err, error, "the disk");
	reply(KVM_DISK_ERROR, error, NULL, &err);
}

/* ---- requests --------------------------------------------------------------------------- */

static int read_memory(const struct kvm_request *req, int fd, struct err *err)
{
	uint64_t bytes = vm.memory.bytes;
	int r;

	if (req->offset > bytes || req->len > bytes - req->offset)
		return err_set(err, EINVAL, "no such memory");
	r = ftruncate(fd, 0) < 0 ? -errno : 0;
	if (r == 0)
		r = file_pwrite_full(fd, vm.memory.base + req->offset, req->len, 0);
	return r < 0 ? err_sys(err, -r, "write guest memory") : 0;
}

static int resume(struct err *err)
{
	int r = vm_resume(&vm, err);

	if (r == 0)
		hold_channel(false);
	return r;
}

static int answer(const struct kvm_request *req, int fd, uint32_t *steps, struct err *err)
{
	switch (req->command) {
	case KVM_RESTORE:
		return vm_load(&vm, fd, steps, err);
	case KVM_RESUME:
		return resume(err);
	case KVM_PAUSE:
		hold_channel(true);
		return vm_pause(&vm, err);
	case KVM_CAPTURE:
		return vm_save(&vm, fd, err);
	case KVM_READ_MEMORY:
		return read_memory(req, fd, err);
	default:
		return err_set(err, EINVAL, "no such request");
	}
}

static void serve_request(void)
{
	uint32_t steps[KVM_STEPS] = {0};
	struct kvm_request req;
	int fds[1] = {-1};
	size_t n_fds = 1;
	struct err err = {""};
	ssize_t n = sock_recv_fds(KVM_FD_CONTROL, &req, sizeof(req), fds, &n_fds);
	int r;

	if (n == -EAGAIN)
		return;
	if (n != sizeof(req))
		_exit(EXIT_OWNER);
	r = answer(&req, n_fds == 1 ? fds[0] : -1, steps, &err);
	if (n_fds == 1)
		close(fds[0]);
	reply(req.command, -r, steps, &err);
}

__attribute__((noreturn)) static void loop(void)
{
	for (;;) {
		struct epoll_event events[2];
		int n = epoll_wait(epoll_fd, events, 2, -1);

		for (int i = 0; i < n; i++) {
			if (events[i].data.fd == KVM_FD_CONTROL)
				serve_request();
			else if (!vm.stop) /* it may just have been paused */
				console_event(&vm.console, events[i].events);
		}
	}
}

/* ---- start ------------------------------------------------------------------------------ */

static int receive_setup(struct kvm_setup *ret, char *cmdline, struct err *err)
{
	struct iovec iov[2] = {{ret, sizeof(*ret)}, {cmdline, KVM_CMDLINE_MAX}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
	ssize_t n = recvmsg(KVM_FD_CONTROL, &msg, 0);

	if (n < (ssize_t)sizeof(*ret) || ret->version != KVM_CONTROL_VERSION ||
		(size_t)n - sizeof(*ret) != ret->cmdline_len)
		return err_set(err, EPROTO, "it is started by parbake alone");
	if (ret->vcpus < 1 || ret->vcpus > VM_VCPUS_MAX || ret->memory_bytes < 2 << 20 ||
		ret->memory_bytes % MEMORY_PAGE)
		return err_set(err, EINVAL, "no such machine");
	cmdline[ret->cmdline_len] = '\0';
	return 0;
}

int main(int argc, char **argv)
{
	static char cmdline[KVM_CMDLINE_MAX + 1];
	uint32_t steps[KVM_STEPS] = {0};
	struct kvm_setup setup;
	struct err err;
	uint64_t t;
	int r;

	if (argc == 2 && !strcmp(argv[1], "--version")) {
		printf(NAME " " PARBAKE_VERSION "\n");
		return 0;
	}
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_NAME, NAME, 0, 0, 0);
	r = receive_setup(&setup, cmdline, &err);
	if (r == 0)
		r = vm_make(&vm, &setup, steps, &err);
	vm.blk.failed = disk_failed;
	t = vm_now_ns();
	if (r == 0 && setup.flags & KVM_SETUP_BOOT)
		r = vm_boot(&vm, KVM_FD_KERNEL, KVM_FD_INITRD, cmdline, &err);
	if (r == 0)
		r = vm_start_threads(&vm, &err);
	if (r == 0)
		r = watch_requests(&err);
	vm_step(steps, KVM_STEP_THREADS, &t);
	if (r == 0 && !(setup.flags & KVM_SETUP_UNFILTERED))
		r = filter_install(&err);
	vm_step(steps, KVM_STEP_FILTER, &t);
	if (r == 0 && setup.flags & KVM_SETUP_BOOT)
		r = resume(&err);
	if (r < 0)
		leave(EXIT_SETUP, err.text);
	reply(KVM_READY, 0, steps, NULL);
	loop();
}
