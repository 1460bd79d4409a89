/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_KVM_H
#define PARBAKE_VMM_KVM_KVM_H

#include <stdint.h>

#include "vmm/kvm/control.h"
#include "vmm/monitor.h"

/* What the kvm driver says of its machines beyond struct monitor_ops; for benchmarks. */

/*
 * The time that each step of the start and of the newest restore took, ns (0: not done yet). @m is
 * a machine of this driver.
 */
void kvm_get_steps(const struct machine *m, uint32_t ret[static KVM_STEPS]);
/* Their names, for people. */
extern const char *const kvm_step_names[KVM_STEPS];

#endif
