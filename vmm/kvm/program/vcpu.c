/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processors: a thread each, which is in KVM_RUN or serves what the guest did there.
 *
 * To pause, `stop` is set, each thread is made to leave KVM_RUN (immediate_exit for one that is about to enter, a
 * signal for one that is inside), and all are waited for. A thread stops only between two KVM_RUN that are complete:
 * what the guest read from a device is put into its registers by the KVM_RUN that follows, so one more is made, which
 * returns at once, before the registers are true.
 *
 * The guest's clock stands still while it is paused: it is read when all have stopped and set when they go on.
 *
 * What the guest may do to end its machine is a reset, which ends the process with status 0. What KVM cannot do for it
 * ends it with another, and a line that says why.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vmm/kvm/program/thread.h"
#include "vmm/kvm/program/vm.h"

#define KICK SIGUSR1
#define PORT_RESET 0x64 /* of the keyboard controller */
#define RESET 0xfe
#define EXIT_KVM 3

__attribute__((format(printf, 2, 3), noreturn)) static void fatal(
	const struct vcpu *c, const char *fmt, ...)
{
	char line[256];
	va_list args;
	int n = snprintf(line, sizeof(line), "parbake-vmm: processor %u: ", c->n);

	va_start(args, fmt);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, args);
	va_end(args);
	if (n > (int)sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		_exit(EXIT_KVM + 1);
	_exit(EXIT_KVM);
}

/* ---- exits ------------------------------------------------------------------------------ */

static void serve_port(struct vm *vm, uint16_t port, bool in, uint8_t *data, uint32_t size)
{
	if (port >= SERIAL_PORT && port < SERIAL_PORT + SERIAL_PORTS) {
		if (in)
			data[0] = serial_read(&vm->serial, port - SERIAL_PORT);
		else
			serial_write(&vm->serial, port - SERIAL_PORT, data[0]);
		in = false;
	} else if (port == PORT_RESET && !in && data[0] == RESET) {
		_exit(0);
	}
	if (in) /* nothing is there */
		memset(data, port == PORT_RESET ? 0 : 0xff, size);
}

static void serve_io(struct vcpu *c)
{
	struct kvm_run *run = c->run;
	uint8_t *data = (uint8_t *)run + run->io.data_offset;
	bool in = run->io.direction == KVM_EXIT_IO_IN;

	for (uint32_t i = 0; i < run->io.count; i++, data += run->io.size)
		serve_port(c->vm, run->io.port, in, data, run->io.size);
}

static void serve_mmio(struct vcpu *c)
{
	struct kvm_run *run = c->run;
	uint64_t at = run->mmio.phys_addr - VM_MMIO;

	if (at < VM_DEVICES * (uint64_t)VIRTIO_MMIO_BYTES) {
		struct virtio *v = c->vm->devices[at / VIRTIO_MMIO_BYTES];
		uint32_t reg = (uint32_t)(at % VIRTIO_MMIO_BYTES);

		if (run->mmio.is_write)
			virtio_write(v, reg, run->mmio.data, run->mmio.len);
		else
			virtio_read(v, reg, run->mmio.data, run->mmio.len);
	} else if (!run->mmio.is_write) {
		memset(run->mmio.data, 0xff, sizeof(run->mmio.data));
	}
}

/* True: what was served is complete only with the next KVM_RUN. */
static bool serve(struct vcpu *c)
{
	struct kvm_run *run = c->run;

	switch (run->exit_reason) {
	case KVM_EXIT_IO:
		serve_io(c);
		return true;
	case KVM_EXIT_MMIO:
		serve_mmio(c);
		return true;
	case KVM_EXIT_INTR:
		return false;
	case KVM_EXIT_SHUTDOWN: /* a triple fault: how a guest resets */
	case KVM_EXIT_SYSTEM_EVENT:
		_exit(0);
	case KVM_EXIT_FAIL_ENTRY:
		fatal(c, "KVM could not enter the guest (hardware reason %#llx)",
			(unsigned long long)run->fail_entry.hardware_entry_failure_reason);
	case KVM_EXIT_INTERNAL_ERROR:
		fatal(c, "internal error of KVM (suberror %u, %#llx)", run->internal.suberror,
			(unsigned long long)(run->internal.ndata ? run->internal.data[0] : 0));
	default:
		fatal(c, "KVM stopped the guest for reason %u, which has none here",
			run->exit_reason);
	}
}

/* ---- running ---------------------------------------------------------------------------- */

static void park(struct vm *vm)
{
	pthread_mutex_lock(&vm->lock);
	vm->parked++;
	pthread_cond_broadcast(&vm->changed);
	while (vm->stop)
		pthread_cond_wait(&vm->changed, &vm->lock);
	vm->parked--;
	pthread_mutex_unlock(&vm->lock);
}

static void *run(void *arg)
{
	struct vcpu *c = arg;
	bool incomplete = false;

	c->tid = (int)syscall(SYS_gettid);
	for (;;) {
		c->run->immediate_exit = 0;
		if (c->vm->stop) {
			if (!incomplete) {
				park(c->vm);
				continue;
			}
			c->run->immediate_exit = 1;
		}
		if (ioctl(c->fd, KVM_RUN, 0) < 0) {
			if (errno != EINTR && errno != EAGAIN)
				fatal(c, "KVM_RUN: %s", strerrordesc_np(errno));
			incomplete = false;
			continue;
		}
		incomplete = serve(c);
	}
	return NULL;
}

static void kicked(int sig)
{
	(void)sig; /* KVM_RUN has returned: that is all */
}

int vm_start_threads(struct vm *vm, struct err *err)
{
	struct sigaction act = {.sa_handler = kicked};
	int r = 0;

	vm->stop = true;
	if (sigaction(KICK, &act, NULL) < 0)
		return err_sys(err, errno, "a signal for processors");
	for (unsigned i = 0; r == 0 && i < vm->n_vcpus; i++)
		r = thread_start(run, &vm->vcpus[i], KICK, err);
	return r;
}

int vm_pause(struct vm *vm, struct err *err)
{
	if (vm->stop)
		return 0;
	vm->stop = true;
	for (unsigned i = 0; i < vm->n_vcpus; i++) {
		vm->vcpus[i].run->immediate_exit = 1;
		if (vm->vcpus[i].tid) /* else it has not begun, and will find that it is to stop */
			syscall(SYS_tgkill, getpid(), vm->vcpus[i].tid, KICK);
	}
	pthread_mutex_lock(&vm->lock);
	while (vm->parked < vm->n_vcpus)
		pthread_cond_wait(&vm->changed, &vm->lock);
	pthread_mutex_unlock(&vm->lock);
	memset(&vm->clock, 0, sizeof(vm->clock));
	if (ioctl(vm->fd, KVM_GET_CLOCK, &vm->clock) < 0)
		return err_sys(err, errno, "KVM: read the guest's clock");
	return 0;
}

int vm_resume(struct vm *vm, struct err *err)
{
	struct kvm_clock_data clock = {.clock = vm->clock.clock};

	if (!vm->stop)
		return 0;
	if (clock.clock && ioctl(vm->fd, KVM_SET_CLOCK, &clock) < 0)
		return err_sys(err, errno, "KVM: set the guest's clock");
	/* its watchdogs are to know that it stood still; a guest that has no kvmclock does not care */
	for (unsigned i = 0; clock.clock && i < vm->n_vcpus; i++)
		ioctl(vm->vcpus[i].fd, KVM_KVMCLOCK_CTRL, 0);
	if (vm->wake_devices) {
		for (unsigned i = 0; i < VM_DEVICES; i++)
			virtio_wake(vm->devices[i]);
		vm->wake_devices = false;
	}
	pthread_mutex_lock(&vm->lock);
	vm->stop = false;
	pthread_cond_broadcast(&vm->changed);
	pthread_mutex_unlock(&vm->lock);
	return 0;
}
