/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_QEMU_STATE_PRIVATE_H
#define PARBAKE_VMM_QEMU_STATE_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "vmm/monitor.h"
#include "vmm/qemu/qmp.h"

/* What is saved of a machine: its device state, where it was itself restored (state.c), its memory, its translations. */

/*
 * Find the beginning of a device state, which is all that lies before its first device: header,
 * configuration, memory that is not the guest's. *@ret_len: its length. -EBADMSG: not what QEMU
 * writes with x-ignore-shared.
 */
int qemu_state_prefix(const uint8_t *state, size_t len, size_t *ret_len, struct err *err);
/*
 * The same for what xen-save-devices-state wrote: find where the devices begin. That its end is
 * there is checked, too.
 */
int qemu_state_devices(const uint8_t *state, size_t len, size_t *ret_start, struct err *err);
/*
 * Write the paused machine's device state to @state_fd (emptied, at its beginning), to be loaded as
 * @base_fd was: the state that it was restored from, read from its beginning.
 */
int qemu_state_save(struct qmp *q, int base_fd, int state_fd, int64_t deadline, struct err *err);

/* Write guest memory to @fd, a memfd. */
int qemu_memory_save(
	struct qmp *q, uint64_t offset, uint64_t len, int fd, int64_t deadline, struct err *err);

/* As machine_save_translations() and machine_translated(); translated.c. */
int qemu_translations_save(struct qmp *q, int fd, int64_t deadline, struct err *err);
int qemu_translations_count(
	struct qmp *q, struct machine_translated *ret, int64_t deadline, struct err *err);

#endif
