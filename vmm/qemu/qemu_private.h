/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_QEMU_QEMU_PRIVATE_H
#define PARBAKE_VMM_QEMU_QEMU_PRIVATE_H

/* The qemu driver: what its parts share. */

#include <stdbool.h>
#include <stddef.h>

#include "common/confine.h"
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
	QEMU_FD_PRELOAD, /* where it is not linked in */
	QEMU_FD_PAGER, /* only with a pager, as the next two */
	QEMU_FD_ACK,
	QEMU_FD_UFFD_DEV, /* where it may be opened */
	QEMU_FD_KVM, /* only with KVM */
	QEMU_FD_KERNEL, /* only for a boot, as the next */
	QEMU_FD_INITRD,
	QEMU_FD_FIRMWARE, /* where it comes with the program */
	QEMU_FD_TRANSLATIONS, /* where there are some */
};

#define QEMU_ARGS_MAX 96

/* NULL-terminated, each string owned. */
struct qemu_args {
	char *items[QEMU_ARGS_MAX + 1];
	size_t n;
};

void qemu_args_clear(struct qemu_args *a);
#define cleanup_qemu_args __attribute__((__cleanup__(qemu_args_clear)))
/* The command line for a machine. @firmware: it is at QEMU_FD_FIRMWARE. */
void qemu_args_make(
	struct qemu_args *a, const char *program, bool firmware, const struct machine_spec *spec);
/*
 * The environment: a short list of the parent's variables, and those that preload_uffd.c reads.
 * @preload: it is at QEMU_FD_PRELOAD, to be loaded.
 */
void qemu_env_make(struct qemu_args *a, bool preload, bool pager, bool uffd_dev, bool kvm);

/* ---- what a monitor gives up, and how it gets what it then could not open (confine.c) ---- */

/*
 * The preload library as a sealed memfd: it may lie where the monitor's user cannot look. Borrowed.
 * -1 in *@ret: this monitor has it linked in.
 */
int qemu_preload(const struct monitor_facts *facts, int *ret, struct err *err);
/* A file's content, likewise, for a boot. Caller closes. */
int qemu_copy_file(const char *path, struct err *err);
/*
 * What a monitor of @program gives up: with @disk_bytes of disk, and with the call userfaultfd(2)
 * where @uffd_call. *@ret_firmware: the firmware that lies beside the program, or -1. Both borrow
 * descriptors that stay open for the life of this process.
 */
int qemu_confine_make(const char *program, const struct machine_shape *shape, uint64_t disk_bytes,
	bool uffd_call, struct confine *ret, int *ret_firmware, struct err *err);
/* monitor_ops.prepare: make all of these once, and keep them. */
int qemu_prepare(const struct monitor_facts *facts, struct err *err);
/* monitor_ops.confined: does QEMU start at all when it is confined so? */
int qemu_confined(const struct monitor_facts *facts, struct err *err);
/* monitor_ops.cpu_model */
const char *qemu_cpu_model(enum machine_accel accel);

/* monitor_ops.probe */
void qemu_forget(void);
int qemu_probe(unsigned i, struct monitor_facts *ret, struct err *err);

#endif
