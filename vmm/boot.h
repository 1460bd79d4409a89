/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_BOOT_H
#define PARBAKE_VMM_BOOT_H

#include "common/progress.h"
#include "vmm/guest/guest.h"
#include "vmm/monitor.h"

/*
 * Wait until the agent of the booting machine @m answers on @g, however slow a busy host makes it:
 * for as long as there is progress, that is new bytes on the console or processor time used by the
 * monitor. *@ret is the agent's HELLO; the caller checks whether the guest has a root
 * (PROTO_HELLO_ROOT). @p (may be NULL) is told how far the boot is. -ETIMEDOUT: no progress for
 * LIMIT_BOOT_STILL_MS, or not up after LIMIT_BOOT_MS; -ECONNABORTED: the monitor has ended; else as
 * guest_sync(). The error quotes what the console said last.
 */
int machine_boot_wait(struct machine *m, struct guest *g, struct progress *p,
	struct proto_hello *ret, struct err *err);

/*
 * Listen to the monitor of @m whenever @g is waited for: a machine that its monitor has stopped is
 * ended then, and so is the wait. Called once for a machine, and lasts until @g is freed; @m is
 * freed later.
 */
void machine_watch(struct machine *m, struct guest *g);

#endif
