/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_CMDLINE_H
#define PARBAKE_VMM_CMDLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "vmm/monitor.h"

/*
 * The command line that a guest kernel is booted with (kernel/README.md says why), the same for a
 * bake and for a measured boot. Where the machine is emulated it depends on the host: see
 * machine_tsc_khz(). @settled: the guest's kernel puts each program at the same addresses every
 * time, so that translations of it that were kept fit. Caller frees *@ret.
 */
int machine_cmdline(enum machine_accel accel, bool settled, char **ret, struct err *err);

/*
 * The rate of this host's time stamp counter in kHz, measured over 50 ms against
 * CLOCK_MONOTONIC_RAW once a boot of the host and kept in PATHS_RUN. An emulated machine (TCG)
 * reads this very counter as its own, so its kernel must be told the rate, and a snapshot of it
 * keeps good time only on hosts of the same rate.
 */
int machine_tsc_khz(uint64_t *ret, struct err *err);
/*
 * Are two rates those of one clock? They are where they differ by less than 0.1 %, which is a drift
 * of 86 s a day.
 */
bool machine_tsc_same(uint64_t a_khz, uint64_t b_khz);

#endif
