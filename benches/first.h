/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_FIRST_H
#define PARBAKE_BENCHES_FIRST_H

#include "common/err.h"
#include "vmm/guest/guest.h"

/*
 * The first useful thing that a machine does, with its result checked: a wrong one is -EIO. @also_fd is the monitor's
 * pidfd, so that its end is noticed. The thread of @g.
 */

/* A command's output. */
int bench_first_exec(struct guest *g, int also_fd, struct err *err);
/* The value of an expression in the warm Python interpreter. */
int bench_first_python(struct guest *g, int also_fd, struct err *err);

#endif
