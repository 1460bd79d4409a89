/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_MACHINE_H
#define PARBAKE_VMM_MACHINE_H

/* A machine from inside: for monitor.c, boot.c and the drivers alone. */

#include "common/proc.h"
#include "vmm/console.h"
#include "vmm/monitor.h"

struct machine {
	const struct monitor_ops *ops;
	enum machine_state state; /* as of the last call; monitor.c moves it */
	struct machine_shape shape;
	bool booted; /* started with a kernel: its memory is shared with the owner */
	/* set by the driver's start(); released by monitor.c */
	struct proc proc;
	int channel_fd; /* the host's end; -1: taken */
	struct console *console; /* the guest's */
	struct console *errors; /* the monitor's standard error */
	void *driver; /* the driver's own; freed by its release() */
	/* the owner's */
	void (*on_console)(void *user, const char *bytes, size_t len);
	void *user;
	uint64_t console_pos; /* the position up to which on_console has been called */
	struct guest_watch *watch; /* of machine_watch() */
	/* errors that only the driver noticed; "": none */
	char end[192]; /* why the machine has ended: the driver has killed its process, or the process is ending by itself */
	char disk_error[192]; /* how the machine's disk fails, on the host's side */
};

/* Pass new console output to on_console. Called wherever a driver waits. */
void machine_tell_console(struct machine *m);

/* The drivers. */
extern const struct monitor_ops monitor_kvm;
extern const struct monitor_ops monitor_qemu;
/* The driver of the monitor @facts. */
const struct monitor_ops *monitor_ops_of(const struct monitor_facts *facts);

#endif
