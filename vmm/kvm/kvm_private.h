/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_KVM_PRIVATE_H
#define PARBAKE_VMM_KVM_KVM_PRIVATE_H

/* The kvm driver: what its parts share. */

#include "common/confine.h"
#include "vmm/monitor.h"

#define KVM_NAME "kvm"

/*
 * What a monitor of @program gives up before it starts: with @disk_bytes of disk, and with the call
 * userfaultfd(2) where @uffd_call. *@ret borrows a descriptor that stays open for the life of this
 * process.
 */
int kvm_confine_make(const char *program, const struct machine_shape *shape, uint64_t disk_bytes,
	bool uffd_call, struct confine *ret, struct err *err);
/* monitor_ops */
int kvm_prepare(const struct monitor_facts *facts, struct err *err);
int kvm_confined(const struct monitor_facts *facts, struct err *err);
int kvm_probe(unsigned i, struct monitor_facts *ret, struct err *err);
void kvm_forget(void);

#endif
