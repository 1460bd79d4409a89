/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_CPU_H
#define PARBAKE_VMM_CPU_H

#include "common/digest.h"
#include "common/err.h"
#include "vmm/monitor.h"

/*
 * The features of the host's CPU that a snapshot depends on: under KVM the digest of the CPU's
 * feature flags (/proc/cpuinfo, sorted), "" under TCG, whose guests see an emulated CPU that is the
 * same everywhere.
 */
int machine_cpu_features(
	enum machine_accel accel, char ret[static DIGEST_TEXT_SIZE], struct err *err);

#endif
