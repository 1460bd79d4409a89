/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_WATCHDOG_H
#define PARBAKE_COMMON_WATCHDOG_H

#include <stdint.h>
#include <time.h>

#include "common/err.h"

/*
 * A watchdog, the last resort of a process that must not outlive its work: a call into the kernel
 * on behalf of a process that is not trusted (reading its memory, say) may never return, and
 * nothing but SIGKILL ends it. From watchdog_start() on this whole process is killed after @ms (>
 * 0), unless watchdog_stop() comes first. The watchdog is a timer of the kernel: it needs no
 * thread, and no thread of this process can miss it. Each @w belongs to one thread; a fork does not
 * inherit it.
 */
struct watchdog {
	timer_t timer;
	int armed; /* 0: there is none */
};

int watchdog_start(struct watchdog *w, int64_t ms, struct err *err);
/* Harmless where it was not started. */
void watchdog_stop(struct watchdog *w);

#endif
