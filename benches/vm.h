/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_VM_H
#define PARBAKE_BENCHES_VM_H

#include "common/cleanup.h"
#include "common/err.h"
#include "vmm/kvm/control.h"
#include "vmm/monitor.h"

/*
 * What parbake-vmm takes to make a machine and load its state, without what a kernel then does: the guest is two
 * instructions, the first of which tells that it was reached. So it runs wherever /dev/kvm makes machines.
 */
#define VM_BENCH_MEMORY (256ull << 20)

struct vm_bench;

/* Boot the guest and capture it. -ENODEV: there is no KVM here, or no parbake-vmm. Caller frees. */
int vm_bench_new(struct vm_bench **ret, struct err *err);
void vm_bench_free(struct vm_bench *b);
DEFINE_CLEANUP(struct vm_bench *, vm_bench_free)
#define cleanup_vm_bench cleanup_with(vm_bench_free_p_)

/* CLOCK_MONOTONIC, ns. */
struct vm_sample {
	int64_t begin; /* before the process was started */
	int64_t ready; /* a standby */
	int64_t asked; /* for the restore */
	int64_t loaded, reached; /* the state; the guest's first instruction */
	uint64_t faults; /* of the process until it was ready */
	uint32_t steps[KVM_STEPS]; /* ns */
};
/* One machine, from nothing. @ret_machine: it is kept, and runs on; NULL: it is freed. */
int vm_bench_sample(
	struct vm_bench *b, struct vm_sample *ret, struct machine **ret_machine, struct err *err);

#endif
