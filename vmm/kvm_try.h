/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KVM_TRY_H
#define PARBAKE_VMM_KVM_TRY_H

#include "common/err.h"
#include "vmm/monitor.h"

/*
 * Does KVM work on this host? "It opens" says little: there are hosts (nested ones above all) whose KVM makes
 * machines and runs a firmware, but interprets what a kernel does, slowly and with gaps. So there are three steps,
 * each with the reason in @err. Any thread; the last two start no thread that stays, and leave nothing behind.
 *
 * The device: may it be opened, is its API the one we know? Microseconds.
 */
int kvm_try_device(struct err *err);
/*
 * Kernel mode: some instructions of a kernel in a machine of one page, and how fast they are beside this very
 * processor's own. Milliseconds where KVM is good, less than a second where it is not. -EIO: KVM gives up at an
 * instruction; -ETIME: it interprets them; others: the machine could not be made.
 */
int kvm_try_kernel_mode(struct err *err);
/*
 * The real thing: the monitor of @facts boots @kernel with @initrd (paths) under KVM until the agent says hello,
 * beside the same boot under emulation, where that monitor emulates. It works where KVM answers and has not used more processor time for it than
 * emulation did. -EIO: the machine ended, with how; -ETIME: emulation is faster; others: nothing was learnt.
 */
int kvm_try_boot(
	const struct monitor_facts *facts, const char *kernel, const char *initrd, struct err *err);

/* What the answers depend on beside the monitor: host kernel, KVM's modules, processor. A line; caller frees. */
char *kvm_try_host(void);

#endif
