/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What guests see of the host's processors: all that KVM supports, without what would tie a snapshot to one host's
 * moment or gives a sandbox nothing: nested virtualisation, performance counters, asynchronous page faults (a state
 * that spans guest and host), the promise that the time stamp counter is one for ever, which would make Linux prefer it
 * to kvmclock, and the host's topology. Each processor stands alone in its package.
 *
 * A record of other processors' state fits here if each feature that its guest was promised is a feature here.
 */
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "vmm/kvm/program/vm.h"

#define ECX1_VMX (1u << 5)
#define ECX1_TSC_DEADLINE (1u << 24)
#define ECX1_HYPERVISOR (1u << 31)
#define EDX1_HTT (1u << 28)
#define EDX7_AMX (1u << 22 | 1u << 24 | 1u << 25)
#define ECX8_SVM (1u << 2)
#define ECX8_TOPOLOGY (1u << 22)
#define EDX8_INVARIANT_TSC (1u << 8)
/* asynchronous page faults in three forms, migration control */
#define KVM_NOT (1u << 4 | 1u << 10 | 1u << 14 | 1u << 17)

static void trim(struct kvm_cpuid_entry2 *e, bool tsc_deadline)
{
	switch (e->function) {
	case 1:
		e->ebx &= 0xff00ffff; /* one logical processor a package */
		e->ecx = (e->ecx & ~ECX1_VMX) | ECX1_HYPERVISOR |
			(tsc_deadline ? ECX1_TSC_DEADLINE : 0);
		e->edx &= ~EDX1_HTT;
		break;
	case 4:
		e->eax &= 0x3fff; /* cores and threads that share a cache: one */
		break;
	case 7:
		if (e->index == 0)
			e->edx &= ~EDX7_AMX;
		break;
	case 0xa: /* performance counters */
	case 0xb: /* topology */
	case 0x1f:
		e->eax = e->ebx = e->ecx = e->edx = 0;
		break;
	case 0x40000001:
		e->eax &= ~KVM_NOT;
		break;
	case 0x80000001:
		e->ecx &= ~(ECX8_SVM | ECX8_TOPOLOGY);
		break;
	case 0x80000007:
		e->edx &= ~EDX8_INVARIANT_TSC;
		break;
	case 0x80000008:
		e->ecx = 0;
		break;
	case 0x8000000a: /* nested virtualisation */
		e->eax = e->ebx = e->ecx = e->edx = 0;
		break;
	}
}

int vm_cpuid_make(struct vm *vm, struct err *err)
{
	bool deadline = ioctl(vm->kvm_fd, KVM_CHECK_EXTENSION, KVM_CAP_TSC_DEADLINE_TIMER) > 0;

	vm->cpuid.n = VM_CPUID_MAX;
	if (ioctl(vm->kvm_fd, KVM_GET_SUPPORTED_CPUID, &vm->cpuid) < 0)
		return err_sys(err, errno, "KVM: list what its processors can do");
	for (uint32_t i = 0; i < vm->cpuid.n; i++)
		trim(&vm->cpuid.entries[i], deadline);
	return 0;
}

int vm_cpuid_set(struct vm *vm, unsigned n, struct err *err)
{
	for (uint32_t i = 0; i < vm->cpuid.n; i++) {
		struct kvm_cpuid_entry2 *e = &vm->cpuid.entries[i];

		if (e->function == 1)
			e->ebx = (e->ebx & 0xff00ffff & 0x00ffffff) | 1u << 16 | n << 24;
		else if (e->function == 0xb || e->function == 0x1f)
			e->edx = n;
	}
	if (ioctl(vm->vcpus[n].fd, KVM_SET_CPUID2, &vm->cpuid) < 0)
		return err_sys(err, errno, "KVM: tell processor %u what it is", n);
	return 0;
}

/* ---- does it fit? ----------------------------------------------------------------------- */

/* Leaves whose bits are features, each register of which must hold no bit that the host's does not. */
static const struct feature_leaf {
	uint32_t function, index;
	bool eax, ebx, ecx, edx;
} feature_leaves[] = {
	{1, 0, false, false, true, true},
	{7, 0, false, true, true, true},
	{7, 1, true, true, true, true},
	{7, 2, false, false, false, true},
	{0xd, 0, true, false, false, true},
	{0xd, 1, true, false, true, true},
	{0x40000001, 0, true, false, false, false},
	{0x80000001, 0, false, false, true, true},
	{0x80000008, 0, false, true, false, false},
};

static const struct kvm_cpuid_entry2 *find(
	const struct vm_cpuid *c, uint32_t function, uint32_t index)
{
	for (uint32_t i = 0; i < c->n; i++) {
		if (c->entries[i].function == function && c->entries[i].index == index)
			return &c->entries[i];
	}
	return NULL;
}

static int lacks(uint32_t host, uint32_t saved, const struct feature_leaf *l, const char *reg,
	struct err *err)
{
	uint32_t missing = saved & ~host;

	if (!missing)
		return 0;
	return err_set(err, ENOTSUP,
		"this host's processors lack a feature that the snapshot's guest uses: CPUID "
		"%#x.%u %s bit %d",
		l->function, l->index, reg, __builtin_ctz(missing));
}

int vm_cpuid_fits(const struct vm_cpuid *host, const struct vm_cpuid *saved, struct err *err)
{
	static const struct kvm_cpuid_entry2 none;

	for (size_t i = 0; i < sizeof(feature_leaves) / sizeof(feature_leaves[0]); i++) {
		const struct feature_leaf *l = &feature_leaves[i];
		const struct kvm_cpuid_entry2 *s = find(saved, l->function, l->index);
		const struct kvm_cpuid_entry2 *h = find(host, l->function, l->index) ?: &none;
		int r = 0;

		if (!s)
			continue;
		if (l->eax)
			r = lacks(h->eax, s->eax, l, "EAX", err);
		if (r == 0 && l->ebx)
			r = lacks(h->ebx, s->ebx, l, "EBX", err);
		if (r == 0 && l->ecx)
			r = lacks(h->ecx, s->ecx, l, "ECX", err);
		if (r == 0 && l->edx)
			r = lacks(h->edx, s->edx, l, "EDX", err);
		if (r < 0)
			return r;
	}
	return 0;
}
