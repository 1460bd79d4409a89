/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making the machine. Memory comes first: the pager maps the working set while KVM makes the rest.
 *
 * The interrupt controllers are KVM's. A timer chip is not there: guests count time by kvmclock and their local
 * timers, and the chip would cost each machine a thread of the kernel's (boot.c says what tells a guest so).
 */
#include "vmm/kvm/program/vm.h"

#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define TSS_AT                                                                                     \
	0xfffbd000ul /* three pages that older Intel processors need; where nothing else is */

const unsigned vm_irqs[VM_DEVICES] = {5, 6, 7, 9};

uint64_t vm_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void vm_step(uint32_t *steps, enum kvm_step step, uint64_t *since)
{
	uint64_t now = vm_now_ns();

	steps[step] += (uint32_t)(now - *since);
	*since = now;
}

static void vm_raise(void *user, unsigned irq)
{
	const struct vm *vm = user;
	struct kvm_irq_level level = {.irq = irq, .level = 1};

	ioctl(vm->fd, KVM_IRQ_LINE, &level);
	level.level = 0;
	ioctl(vm->fd, KVM_IRQ_LINE, &level);
}

static int make_memory(struct vm *vm, const struct kvm_setup *s, struct err *err)
{
	int dev = s->flags & KVM_SETUP_UFFD_DEV ? KVM_FD_UFFD_DEV : -1;
	int r = memory_map(
		&vm->memory, KVM_FD_MEMORY, s->memory_bytes, s->flags & KVM_SETUP_BOOT, err);

	close(KVM_FD_MEMORY);
	if (r == 0 && s->flags & KVM_SETUP_PAGER)
		r = memory_hand_over(&vm->memory, KVM_FD_PAGER, dev, err);
	return r;
}

static int make_slots(struct vm *vm, struct err *err)
{
	uint64_t low = memory_low(&vm->memory);
	struct kvm_userspace_memory_region slots[] = {
		{.slot = 0,
			.guest_phys_addr = 0,
			.memory_size = low,
			.userspace_addr = (uintptr_t)vm->memory.base},
		{.slot = 1,
			.guest_phys_addr = MEMORY_HIGH,
			.memory_size = vm->memory.bytes - low,
			.userspace_addr = (uintptr_t)vm->memory.base + low},
	};

	for (unsigned i = 0; i < 2; i++) {
		if (slots[i].memory_size &&
			ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &slots[i]) < 0)
			return err_sys(err, errno, "KVM: give the machine its memory");
	}
	return 0;
}

static int make_vcpus(struct vm *vm, struct err *err)
{
	int bytes = ioctl(vm->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);

	if (bytes < (int)sizeof(struct kvm_run))
		return err_sys(err, bytes < 0 ? errno : EINVAL, "KVM: a processor's page");
	vm->run_bytes = (size_t)bytes;
	for (unsigned i = 0; i < vm->n_vcpus; i++) {
		struct vcpu *c = &vm->vcpus[i];

		c->vm = vm;
		c->n = i;
		c->fd = ioctl(vm->fd, KVM_CREATE_VCPU, (unsigned long)i);
		if (c->fd < 0)
			return err_sys(err, errno, "KVM: make processor %u", i);
		c->run = mmap(NULL, vm->run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
		if (c->run == MAP_FAILED)
			return err_sys(err, errno, "KVM: map processor %u", i);
	}
	return 0;
}

/* Which registers a state record has is the host's to say. */
static int list_msrs(struct vm *vm, struct err *err)
{
	static struct {
		struct kvm_msr_list list;
		uint32_t indices[VM_MSRS_MAX];
	} l;

	l.list.nmsrs = VM_MSRS_MAX;
	if (ioctl(vm->kvm_fd, KVM_GET_MSR_INDEX_LIST, &l) < 0)
		return err_sys(err, errno, "KVM: list its registers");
	vm->n_msrs = l.list.nmsrs;
	memcpy(vm->msrs, l.indices, l.list.nmsrs * sizeof(vm->msrs[0]));
	return 0;
}

static int make_cpuid(struct vm *vm, struct err *err)
{
	int xsave = ioctl(vm->fd, KVM_CHECK_EXTENSION, KVM_CAP_XSAVE2);
	int r = vm_cpuid_make(vm, err);

	vm->xsave_bytes =
		xsave > (int)sizeof(struct kvm_xsave) ? (size_t)xsave : sizeof(struct kvm_xsave);
	for (unsigned i = 0; r == 0 && i < vm->n_vcpus; i++)
		r = vm_cpuid_set(vm, i, err);
	return r == 0 ? list_msrs(vm, err) : r;
}

static int make_devices(struct vm *vm, const struct kvm_setup *s, struct err *err)
{
	int r = disk_open(&vm->disk, KVM_FD_DISK, KVM_FD_OVERLAY, s->flags & KVM_SETUP_BOOT, err);

	serial_init(&vm->serial, KVM_FD_CONSOLE, vm_raise, vm);
	vm->blk.disk = &vm->disk;
	vm->console.fd = KVM_FD_CHANNEL;
	vm->devices[VM_BLK] = &vm->blk.v;
	vm->devices[VM_CONSOLE] = &vm->console.v;
	vm->devices[VM_ENTROPY] = &vm->entropy;
	vm->devices[VM_BALLOON] = &vm->balloon;
	virtio_init(&vm->blk.v, &blk_ops, &vm->memory, vm_irqs[VM_BLK], vm_raise, vm);
	virtio_init(&vm->console.v, &console_ops, &vm->memory, vm_irqs[VM_CONSOLE], vm_raise, vm);
	virtio_init(&vm->entropy, &entropy_ops, &vm->memory, vm_irqs[VM_ENTROPY], vm_raise, vm);
	virtio_init(&vm->balloon, &balloon_ops, &vm->memory, vm_irqs[VM_BALLOON], vm_raise, vm);
	return r;
}

int vm_make(struct vm *vm, const struct kvm_setup *s, uint32_t *steps, struct err *err)
{
	uint64_t t = vm_now_ns();
	int r;

	pthread_mutex_init(&vm->lock, NULL);
	pthread_cond_init(&vm->changed, NULL);
	vm->kvm_fd = KVM_FD_KVM;
	vm->n_vcpus = s->vcpus;
	r = make_memory(vm, s, err);
	vm_step(steps, KVM_STEP_MEMORY, &t);
	if (r < 0)
		return r;
	vm->fd = ioctl(vm->kvm_fd, KVM_CREATE_VM, 0);
	if (vm->fd < 0)
		return err_sys(err, errno, "KVM: make a machine");
	vm_step(steps, KVM_STEP_VM, &t);
	if (ioctl(vm->fd, KVM_SET_TSS_ADDR, TSS_AT) < 0)
		return err_sys(err, errno, "KVM: a machine's own pages");
	/* memory before the controllers: in the other order it waits for a grace period of KVM's, 6 ms instead of 0.2 */
	r = make_slots(vm, err);
	vm_step(steps, KVM_STEP_SLOTS, &t);
	if (r == 0 && ioctl(vm->fd, KVM_CREATE_IRQCHIP, 0) < 0)
		return err_sys(err, errno, "KVM: make the interrupt controllers");
	vm_step(steps, KVM_STEP_IRQCHIP, &t);
	if (r == 0)
		r = make_vcpus(vm, err);
	vm_step(steps, KVM_STEP_VCPUS, &t);
	if (r == 0)
		r = make_cpuid(vm, err);
	vm_step(steps, KVM_STEP_CPUID, &t);
	if (r == 0)
		r = make_devices(vm, s, err);
	vm_step(steps, KVM_STEP_DEVICES, &t);
	return r;
}
