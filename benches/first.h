/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_FIRST_H
#define PARBAKE_BENCHES_FIRST_H

#include "common/err.h"
#include "vmm/guest/guest.h"

/* What a machine is made for, once, and its result checked. @also_fd: its pidfd. */
/* A command's output. */
int bench_first_exec(struct guest *g, int also_fd, struct err *err);
/* Python's, in the warm interpreter. */
int bench_first_python(struct guest *g, int also_fd, struct err *err);

#endif
