/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_QEMU_H
#define PARBAKE_VMM_QEMU_H

/* The parts of the qemu driver among themselves. */

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"
#include "vmm/monitor.h"

#define QEMU_MACHINE_TYPE "microvm"

/* Descriptors in the monitor's process. */
enum qemu_fd {
	QEMU_FD_MEMORY = 3,
	QEMU_FD_DISK,
	QEMU_FD_OVERLAY,
	QEMU_FD_QMP,
	QEMU_FD_CHANNEL,
	QEMU_FD_CONSOLE,
	QEMU_FD_PAGER, /* with a pager alone, as the next */
	QEMU_FD_ACK,
};

#define QEMU_ARGS_MAX 96

/* NULL-terminated, each string owned. */
struct qemu_args {
	char *items[QEMU_ARGS_MAX + 1];
	size_t n;
};

void qemu_args_clear(struct qemu_args *a);
#define cleanup_qemu_args __attribute__((__cleanup__(qemu_args_clear)))
/* The command line for a machine. */
void qemu_args_make(struct qemu_args *a, const char *program, const struct machine_spec *spec);
/*
 * The environment: a short list of the parent's variables, and with a pager ours. @preload: the
 * monitor has to be taught by the preload library; -ENOENT where that is not there.
 */
int qemu_env_make(struct qemu_args *a, bool pager, bool preload, struct err *err);

/*
 * Does the device /dev/kvm work (microseconds)? And this QEMU with it (as long as a start)? *@why
 * is set where not.
 */
bool qemu_try_kvm_device(char why[static 128]);
bool qemu_try_kvm(const char *program, char why[static 128]);
/* monitor_ops.probe */
int qemu_probe(unsigned i, struct monitor_facts *ret, struct err *err);

#endif
