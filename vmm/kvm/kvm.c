/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kvm driver: a machine is one process of parbake-vmm (program/), which hosts with KVM have
 * beside QEMU because it has nothing in it but what a sandbox's machine needs. The process gets all
 * that it needs as descriptors. Everything else goes over a pair of sockets (control.h), a request
 * and its answer at a time.
 *
 * The setup is sent before the process has started. The first message that comes back says that the
 * monitor is ready; where it is not, its end says so. The monitor hands its memory to the pager by
 * itself, before it says that it is ready.
 */
#include "vmm/kvm/kvm.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/sock.h"
#include "vmm/kvm/kvm_private.h"
#include "vmm/machine.h"

#define ERRORS_BYTES (8 * KIB) /* kept of the monitor's standard error */
#define END_WAIT_MS 1000

struct kvm {
	int control_fd;
	bool ready;
	unsigned stale; /* answers to come that nobody waits for any more */
	uint32_t steps[KVM_STEPS];
};

const char *const kvm_step_names[] = {
	[KVM_STEP_MEMORY] = "memory",
	[KVM_STEP_VM] = "machine",
	[KVM_STEP_IRQCHIP] = "irqchip",
	[KVM_STEP_SLOTS] = "slots",
	[KVM_STEP_VCPUS] = "vcpus",
	[KVM_STEP_CPUID] = "cpuid",
	[KVM_STEP_DEVICES] = "devices",
	[KVM_STEP_THREADS] = "threads",
	[KVM_STEP_FILTER] = "filter",
	[KVM_STEP_READ] = "read",
	[KVM_STEP_LOAD] = "load",
};
static_assert(sizeof(kvm_step_names) / sizeof(kvm_step_names[0]) == KVM_STEPS, "all named");

/* What the process gets, by its numbers there; -1: not needed. Owned but for what the machine's spec lends. */
struct child_fds {
	int control, channel, console, errors, kvm, uffd_dev, kernel, initrd;
};

static void child_fds_close(struct child_fds *f)
{
	close_fd(&f->control);
	close_fd(&f->channel);
	close_fd(&f->console);
	close_fd(&f->errors);
	close_fd(&f->kvm);
	close_fd(&f->uffd_dev);
	close_fd(&f->kernel);
	close_fd(&f->initrd);
}

static int open_file(const char *path, int flags, int *ret, struct err *err)
{
	*ret = open(path, flags | O_CLOEXEC);
	return *ret < 0 ? err_sys(err, errno, "open %s", path) : 0;
}

static int make_fds(
	struct machine *m, const struct machine_spec *spec, struct child_fds *f, struct err *err)
{
	struct kvm *k = m->driver;
	int pair[2];
	int r = console_new(LIMIT_CONSOLE_BYTES, &m->console, &f->console, err);

	if (r == 0)
		r = console_new(ERRORS_BYTES, &m->errors, &f->errors, err);
	if (r < 0 || (r = sock_pair(pair, err)) < 0)
		return r;
	m->channel_fd = pair[0];
	f->channel = pair[1];
	r = sock_pair_packets(pair, err);
	if (r < 0)
		return r;
	k->control_fd = pair[0];
	f->control = pair[1];
	/* what the guest prints is lost where nobody takes it, and makes nobody wait */
	if (fcntl(f->console, F_SETFL, O_WRONLY | O_NONBLOCK) < 0)
		return err_sys(err, errno, "the console");
	r = open_file("/dev/kvm", O_RDWR, &f->kvm, err);
	if (r == 0 && spec->pager_fd >= 0) /* else there is userfaultfd(2) */
		f->uffd_dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (r == 0 && spec->kernel)
		r = open_file(spec->kernel, O_RDONLY, &f->kernel, err);
	if (r == 0 && spec->kernel)
		r = open_file(spec->initrd, O_RDONLY, &f->initrd, err);
	return r;
}

static void map_fds(
	struct proc_spec *ps, const struct machine_spec *spec, const struct child_fds *f)
{
	const struct {
		int from, to;
	} maps[] = {
		{f->errors, 2},
		{f->control, KVM_FD_CONTROL},
		{f->kvm, KVM_FD_KVM},
		{spec->memory_fd, KVM_FD_MEMORY},
		{spec->disk_fd, KVM_FD_DISK},
		{spec->overlay_fd, KVM_FD_OVERLAY},
		{f->channel, KVM_FD_CHANNEL},
		{f->console, KVM_FD_CONSOLE},
		{spec->pager_fd, KVM_FD_PAGER},
		{f->uffd_dev, KVM_FD_UFFD_DEV},
		{f->kernel, KVM_FD_KERNEL},
		{f->initrd, KVM_FD_INITRD},
	};

	for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
		if (maps[i].from >= 0)
			proc_map_fd(ps, maps[i].from, maps[i].to);
	}
}

static int send_setup(const struct kvm *k, const struct machine_spec *spec,
	const struct child_fds *f, struct err *err)
{
	const char *cmdline = spec->kernel ? spec->cmdline : "";
	struct kvm_setup setup = {.version = KVM_CONTROL_VERSION,
		.flags = (spec->kernel ? KVM_SETUP_BOOT : 0) |
			(spec->pager_fd >= 0 ? KVM_SETUP_PAGER : 0) |
			(f->uffd_dev >= 0 ? KVM_SETUP_UFFD_DEV : 0) |
			(confine_host()->off ? KVM_SETUP_UNFILTERED : 0),
		.memory_bytes = spec->shape.memory_bytes,
		.vcpus = spec->shape.vcpus,
		.cmdline_len = (uint32_t)strlen(cmdline)};
	struct iovec iov[2] = {
		{&setup, sizeof(setup)}, {(void *)(uintptr_t)cmdline, setup.cmdline_len}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

	if (setup.cmdline_len >= KVM_CMDLINE_MAX)
		return err_set(err, E2BIG, "a command line of more than %d bytes", KVM_CMDLINE_MAX);
	return sendmsg(k->control_fd, &msg, MSG_NOSIGNAL) < 0 ? err_sys(err, errno, "set it up")
							      : 0;
}

static int launch(struct machine *m, const struct machine_spec *spec, const struct child_fds *f,
	struct err *err)
{
	const char *const argv[] = {spec->monitor->program, NULL};
	const char *const env[] = {NULL};
	struct confine confine;
	struct proc_spec ps = {
		.argv = argv, .env = env, .die_with_parent = true, .cwd = "/", .confine = &confine};
	struct stat disk;
	int r;

	if (fstat(spec->disk_fd, &disk) < 0)
		return err_sys(err, errno, "the disk");
	r = kvm_confine_make(spec->monitor->program, &spec->shape, (uint64_t)disk.st_size,
		spec->pager_fd >= 0 && f->uffd_dev < 0, &confine, err);
	if (r < 0)
		return r;
	map_fds(&ps, spec, f);
	return proc_start(&ps, &m->proc, err);
}

static int kvm_start(struct machine *m, const struct machine_spec *spec, struct err *err)
{
	struct child_fds f = {-1, -1, -1, -1, -1, -1, -1, -1};
	struct kvm *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return err_set(err, ENOMEM, "out of memory");
	m->driver = k;
	k->control_fd = -1;
	if (spec->shape.accel != MACHINE_KVM)
		return err_set(err, ENODEV, "parbake-vmm runs with KVM alone");
	r = make_fds(m, spec, &f, err);
	if (r == 0)
		r = send_setup(k, spec, &f, err);
	if (r == 0)
		r = launch(m, spec, &f, err);
	child_fds_close(&f);
	return r;
}

static void kvm_release(struct machine *m)
{
	struct kvm *k = m->driver;

	if (!k)
		return;
	close_fd(&k->control_fd);
	free(k);
	m->driver = NULL;
}

/* ---- requests --------------------------------------------------------------------------- */

/*
 * Take what the monitor has said, without waiting: 1 with an answer in @ret, 0 where there is none. What it says
 * unasked is kept.
 */
static int take(struct machine *m, struct kvm_reply *ret, struct err *err)
{
	struct kvm *k = m->driver;

	for (;;) {
		ssize_t n = recv(k->control_fd, ret, sizeof(*ret) - 1, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n <= 0)
			return err_set(err, ECONNABORTED, "the monitor has hung up");
		if ((size_t)n < offsetof(struct kvm_reply, text))
			return err_set(err, EPROTO, "the monitor says what makes no sense");
		((char *)ret)[n] = '\0';
		for (int i = 0; i < KVM_STEPS; i++)
			k->steps[i] = ret->steps[i] ? ret->steps[i] : k->steps[i];
		if (ret->command == KVM_READY)
			k->ready = true;
		else if (ret->command == KVM_DISK_ERROR)
			snprintf(m->disk_error, sizeof(m->disk_error), "%.*s",
				(int)sizeof(m->disk_error) - 1, ret->text);
		else if (k->stale)
			k->stale--;
		else
			return 1;
	}
}

static int wait_control(struct machine *m, int64_t deadline, struct err *err)
{
	const struct kvm *k = m->driver;
	struct pollfd p = {.fd = k->control_fd, .events = POLLIN};
	int n = poll(&p, 1, clock_left_ms(deadline));

	machine_tell_console(m);
	if (n < 0 && errno != EINTR)
		return err_sys(err, errno, "wait for the monitor");
	if (n == 0 && clock_left_ms(deadline) == 0)
		return err_set(err, ETIMEDOUT, "the monitor does not answer");
	return 0;
}

/* The answer to @command; KVM_READY: until the monitor has said that it is. */
static int take_reply(
	struct machine *m, enum kvm_command command, int64_t deadline, struct err *err)
{
	const struct kvm *k = m->driver;
	struct kvm_reply reply = {0};
	int r;

	while ((r = take(m, &reply, err)) == 0 && !(command == KVM_READY && k->ready)) {
		r = wait_control(m, deadline, err);
		if (r < 0)
			return r;
	}
	if (r == -ECONNABORTED) /* it ends now, and has said why */
		poll(&(struct pollfd){.fd = m->proc.pidfd, .events = POLLIN}, 1, END_WAIT_MS);
	if (r <= 0)
		return r;
	if (reply.command != command)
		return err_set(err, EPROTO, "the monitor answers what it was not asked");
	if (reply.error)
		return err_set(err, reply.error > 0 && reply.error < 4096 ? reply.error : EREMOTEIO,
			"%s", reply.text);
	return 0;
}

static int kvm_ready(struct machine *m, int64_t deadline, struct err *err)
{
	const struct kvm *k = m->driver;

	return k->ready ? 0 : take_reply(m, KVM_READY, deadline, err);
}

static int request(
	struct machine *m, const struct kvm_request *req, int fd, int64_t deadline, struct err *err)
{
	struct kvm *k = m->driver;
	int r = sock_send_fds(k->control_fd, req, sizeof(*req), &fd, fd >= 0);

	if (r < 0 && r != -EPIPE)
		return err_sys(err, -r, "ask the monitor");
	r = take_reply(m, (enum kvm_command)req->command, deadline, err);
	if (r == -ETIMEDOUT)
		k->stale++;
	return r;
}

static int kvm_restore(struct machine *m, int state_fd, int64_t deadline, struct err *err)
{
	const struct kvm_request req = {.command = KVM_RESTORE};
	struct stat st;

	if (fstat(state_fd, &st) < 0)
		return err_sys(err, errno, "device state");
	if (!S_ISREG(st.st_mode))
		return err_set(err, EINVAL, "device state: not a regular file");
	return request(m, &req, state_fd, deadline, err);
}

static int kvm_resume(struct machine *m, int64_t deadline, struct err *err)
{
	const struct kvm_request req = {.command = KVM_RESUME};

	return request(m, &req, -1, deadline, err);
}

static int kvm_pause(struct machine *m, int64_t deadline, struct err *err)
{
	const struct kvm_request req = {.command = KVM_PAUSE}, undo = {.command = KVM_RESUME};
	struct kvm *k = m->driver;
	int r = request(m, &req, -1, deadline, err);

	/* should it come round to it, it is to go on at once */
	if (r == -ETIMEDOUT && sock_send_fds(k->control_fd, &undo, sizeof(undo), NULL, 0) == 0)
		k->stale++;
	return r;
}

static int kvm_capture(struct machine *m, int state_fd, int64_t deadline, struct err *err)
{
	const struct kvm_request req = {.command = KVM_CAPTURE};

	return request(m, &req, state_fd, deadline, err);
}

static int kvm_read_memory(
	struct machine *m, uint64_t offset, uint64_t len, int fd, int64_t deadline, struct err *err)
{
	const struct kvm_request req = {.command = KVM_READ_MEMORY, .offset = offset, .len = len};

	return request(m, &req, fd, deadline, err);
}

void kvm_get_steps(const struct machine *m, uint32_t ret[static KVM_STEPS])
{
	const struct kvm *k = m->driver;

	memcpy(ret, k->steps, sizeof(k->steps));
}

/* It translates nothing: a machine with KVM is not asked (monitor.c). */
static int kvm_save_translations(struct machine *m, int fd, int64_t deadline, struct err *err)
{
	(void)m;
	(void)fd;
	(void)deadline;
	return err_set(err, ENOTSUP, "parbake-vmm translates nothing");
}

static void kvm_poll(struct machine *m)
{
	struct kvm_reply reply;

	take(m, &reply, NULL); /* that it has ended, its pidfd tells */
}

static int kvm_event_fd(const struct machine *m)
{
	const struct kvm *k = m->driver;

	return k->control_fd;
}

static const char *kvm_cpu_model(enum machine_accel accel)
{
	(void)accel;
	return "host,vmx=off,svm=off,pmu=off,invtsc=off";
}

const struct monitor_ops monitor_kvm = {
	.name = KVM_NAME,
	.candidates = 1,
	.cpu_model = kvm_cpu_model,
	.probe = kvm_probe,
	.forget = kvm_forget,
	.confined = kvm_confined,
	.prepare = kvm_prepare,
	.start = kvm_start,
	.ready = kvm_ready,
	.restore = kvm_restore,
	.resume = kvm_resume,
	.pause = kvm_pause,
	.capture = kvm_capture,
	.read_memory = kvm_read_memory,
	.save_translations = kvm_save_translations,
	.poll = kvm_poll,
	.event_fd = kvm_event_fd,
	.release = kvm_release,
};
