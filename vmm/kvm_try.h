/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_TRY_H
#define PARBAKE_VMM_KVM_TRY_H

#include "common/err.h"
#include "vmm/monitor.h"

/*
 * Does KVM work on this host? "It opens" says little: there are hosts (nested ones above all) whose
 * KVM makes machines and runs a firmware, but interprets what a kernel does, slowly and with gaps.
 * So there are three steps, each with the reason in @err. Any thread; the last two start no thread
 * that stays, and leave nothing behind.
 *
 * First, the device: may it be opened, and is its API the one that we know? This takes
 * microseconds.
 */
int kvm_try_device(struct err *err);
/*
 * Second, kernel mode: some instructions of a kernel in a machine of one page, and how fast they
 * are beside this very processor's own. This takes milliseconds where KVM is good, and less than a
 * second where it is not. -EIO: KVM gives up at an instruction; -ETIME: it interprets them; others:
 * the machine could not be made.
 */
int kvm_try_kernel_mode(struct err *err);
/*
 * Third, a boot: the monitor of @facts boots @kernel with @initrd (paths) under KVM until the agent
 * says hello, beside the same boot under emulation, where that monitor emulates. KVM works where
 * the agent answers and the boot has not used more processor time for it than emulation did. -EIO:
 * the machine ended, with how; -ETIME: emulation is faster; others: nothing was found out.
 */
int kvm_try_boot(
	const struct monitor_facts *facts, const char *kernel, const char *initrd, struct err *err);

/*
 * What the answers depend on beside the monitor, as one line: host kernel, KVM's modules,
 * processor. Caller frees.
 */
char *kvm_try_host(void);

#endif
