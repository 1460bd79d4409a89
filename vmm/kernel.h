/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_KERNEL_H
#define PARBAKE_VMM_KERNEL_H

#include "common/err.h"

/*
 * The path of the guest kernel: $PARBAKE_KERNEL, else what parbake came with, else what
 * kernel/build.sh beside the program has built. Caller frees. -ENOENT says how to get one. Any
 * thread.
 */
int machine_kernel_path(char **ret, struct err *err);

#endif
