/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_VM_H
#define PARBAKE_VMM_KVM_VM_H

#include <linux/kvm.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/kvm/control.h"
#include "vmm/kvm/program/disk.h"
#include "vmm/kvm/program/memory.h"
#include "vmm/kvm/program/serial.h"
#include "vmm/kvm/program/virtio.h"

/* The machine of this process, which has just one. */

#define VM_VCPUS_MAX 8
#define VM_CPUID_MAX 160 /* entries of a processor's CPUID */
#define VM_MSRS_MAX 512

/* Where the machine's devices are; a boot tells the guest so (boot.c). */
#define VM_MMIO 0xd0000000ull
enum vm_device { VM_BLK, VM_CONSOLE, VM_ENTROPY, VM_BALLOON, VM_DEVICES };
extern const unsigned vm_irqs[VM_DEVICES];

struct vm_cpuid {
	uint32_t n, unused;
	struct kvm_cpuid_entry2 entries[VM_CPUID_MAX];
};

struct vm;

struct vcpu {
	struct vm *vm;
	unsigned n;
	int fd;
	struct kvm_run *run;
	_Atomic int tid; /* 0: not yet */
};

struct vm {
	struct memory memory;
	int kvm_fd, fd;
	unsigned n_vcpus;
	size_t run_bytes, xsave_bytes;
	struct vcpu vcpus[VM_VCPUS_MAX];
	struct vm_cpuid cpuid; /* of the processors, but for their numbers */
	uint32_t n_msrs; /* that a state record has */
	uint32_t msrs[VM_MSRS_MAX];

	struct serial serial;
	struct blk blk;
	struct disk disk;
	struct console console;
	struct virtio entropy, balloon;
	struct virtio *devices[VM_DEVICES];

	/* Whether its processors run. Under lock, but for the hint `stop`. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	atomic_bool stop;
	unsigned parked;
	struct kvm_clock_data clock; /* the guest's, while they stand still */
	bool wake_devices; /* at the next resume: the state was loaded */
};

/* ---- vm.c ---- */

/*
 * Make the machine, up to processors that could run, with @setup's memory and devices. @steps: enum
 * kvm_step, ns.
 */
int vm_make(struct vm *vm, const struct kvm_setup *setup, uint32_t *steps, struct err *err);
uint64_t vm_now_ns(void);
/* Add what has passed since *@since to @steps[@step], and set *@since to now. */
void vm_step(uint32_t *steps, enum kvm_step step, uint64_t *since);

/* ---- vcpu.c ---- */

/*
 * Start the processors' threads, which stand still at first. They may not have begun when this
 * returns.
 */
int vm_start_threads(struct vm *vm, struct err *err);
/* Returns when all stand still, with the clock in vm->clock. */
int vm_pause(struct vm *vm, struct err *err);
int vm_resume(struct vm *vm, struct err *err);

/* ---- cpuid.c ---- */

/* Make the CPUID that guests get, from what this host has. */
int vm_cpuid_make(struct vm *vm, struct err *err);
/* Give processor @n its CPUID, with its number in it. */
int vm_cpuid_set(struct vm *vm, unsigned n, struct err *err);
/* Can this host's processors do all that @saved promises? -ENOTSUP with what is missing. */
int vm_cpuid_fits(const struct vm_cpuid *host, const struct vm_cpuid *saved, struct err *err);

/* ---- boot.c ---- */

/*
 * Load kernel, initramfs, command line and tables into memory, and set the first processor to the
 * kernel's entry.
 */
int vm_boot(struct vm *vm, int kernel_fd, int initrd_fd, const char *cmdline, struct err *err);

/* ---- save.c ---- */

/* Write a state record to @fd. All processors stand still. */
int vm_save(struct vm *vm, int fd, struct err *err);
/*
 * Load the state record in @fd, once, before the processors run for the first time. -EBADMSG: not
 * such a record, or damaged; -ENOTSUP: not for this host.
 */
int vm_load(struct vm *vm, int fd, uint32_t *steps, struct err *err);

/* ---- filter.c ---- */

/*
 * From now on this process may make only the system calls of the filter's list; any other ends it.
 */
int filter_install(struct err *err);

#endif
