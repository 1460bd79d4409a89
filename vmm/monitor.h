/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_MONITOR_H
#define PARBAKE_VMM_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/err.h"

/*
 * One machine, whatever runs it. A driver implements struct monitor_ops; callers
 * use the machine_… functions. A machine belongs to one thread at a time.
 *
 *     machine_start ──► STANDBY ──restore──► PAUSED ──resume──► RUNNING
 *           └──(with boot)──► RUNNING ──pause──► PAUSED ──capture──► PAUSED
 *     any state ──kill or its own end──► ENDED
 *
 * Everything a machine needs comes to it as descriptors: no name in a file
 * system leads to its memory, disk, channel or monitor socket, so when it ends (also
 * by kill −9 of its owner: it dies with the thread that started it) nothing is left.
 */
enum machine_accel { MACHINE_TCG, MACHINE_KVM };
enum machine_state { MACHINE_STANDBY, MACHINE_PAUSED, MACHINE_RUNNING, MACHINE_ENDED };

const char *machine_accel_name(enum machine_accel accel);
int machine_accel_parse(const char *name, enum machine_accel *ret);

/* What the device state depends on; recorded in a snapshot's config. */
struct machine_shape {
	uint64_t memory_bytes; /* multiple of 2 MiB */
	unsigned vcpus;
	enum machine_accel accel;
};

struct machine_spec {
	struct machine_shape shape;
	/* guest memory: a memfd of memory_bytes. Boot maps it shared (so that the owner can
	 * read the memory it captured), restore maps it privately. Borrowed during start. */
	int memory_fd;
	/* restore only: connected unix socket over which the monitor hands its userfaultfd and
	 * regions to the pager (restore/pager/pager.h); -1: no userfaultfd, plain private mapping. Borrowed. */
	int pager_fd;
	/* which monitor; NULL: the one that monitor_probe_for() tells. Borrowed during start. */
	const struct monitor_facts *monitor;
	/* the disk: an immutable raw file and the machine's own qcow2 overlay over it. Borrowed. */
	int disk_fd; /* opened read-only */
	int overlay_fd; /* opened read-write, of machine_overlay_init() */
	/* restore only, 0: none. What machine_save_translations() wrote with this very monitor for this very
	 * snapshot: the machine need not translate that code again. Trusted like the monitor itself;
	 * where it does not fit, the monitor leaves it. Borrowed during start. */
	int translations_fd;
	/* boot only; paths */
	const char *kernel, *initrd, *cmdline;
	/* boot only: console output as it comes, in whatever thread calls into the machine. May be NULL. */
	void (*console)(void *user, const char *bytes, size_t len);
	void *user;
};

/* What a monitor is; part of a snapshot's config, compared at restore. */
struct monitor_facts {
	char name[32]; /* its driver: "qemu", "kvm" */
	char version[64]; /* its own version with the package's, as --version prints it */
	char machine[64]; /* machine type, versioned */
	char program[4096];
	char origin[32]; /* where it was found: "PARBAKE_QEMU", "make monitor", "PATH" */
	bool emulates; /* runs machines without KVM */
	bool hands_over; /* gives its memory to a pager by itself: needs no preload library */
	bool has_kvm; /* KVM was tried, with this monitor and our kernel (vmm/kvm_try.h), and works */
	char why_not_kvm[256];
};

struct machine;

/*
 * A host may have several monitors, and a snapshot belongs to the one that made it. In order of
 * preference: parbake-vmm, which runs with KVM alone; what PARBAKE_QEMU names (then there are no others); the
 * trimmed QEMU of `make monitor`, where it is built; qemu-system-x86_64 in PATH. PARBAKE_MONITOR=kvm|qemu leaves
 * the others out. Each is probed once a process, its answers cached on
 * disk by the program's identity (size, mtime, inode); the facts stay valid for ever. Any thread.
 */
/* The @i-th, from 0: -ERANGE beyond the last; -ENOENT where that monitor is not on this host;
 * other errors, with the reason, where it does not work. */
int monitor_candidate(unsigned i, const struct monitor_facts **ret, struct err *err);
/*
 * The first monitor that works with @accel; and the first that works with the default accelerator,
 * which is the one that bakes.
 */
int monitor_probe_for(enum machine_accel accel, const struct monitor_facts **ret, struct err *err);
int monitor_probe(const struct monitor_facts **ret, struct err *err);
/*
 * The monitor @name in version @version. -ENOENT: there is none; the error says which monitors
 * there are.
 */
int monitor_find(
	const char *name, const char *version, const struct monitor_facts **ret, struct err *err);
/* Forget what earlier processes found out about the monitors of this host, so that this one tries anew. Before the
 * first of the calls above. */
void monitor_forget(void);
/* KVM where a monitor works with it, else TCG; PARBAKE_ACCEL=tcg|kvm decides. -ENODEV with the reason. */
int monitor_default_accel(enum machine_accel *ret, struct err *err);
/* Why machines of @facts run with @accel: a sentence for people. Caller frees. */
char *monitor_accel_reason(const struct monitor_facts *facts, enum machine_accel accel);

/*
 * Find out, and keep, what the first machine_start() of a process would find out and all later ones
 * use. For a process that is going to fork. It leaves no thread behind.
 */
int monitor_prepare(const struct monitor_facts *facts, struct err *err);

/*
 * How machines' processes are confined on this host (common/confine.h), tried with the monitor: a
 * sentence for people in @ret. Returns 0 where all of it works, 1 where some of it does not, -errno
 * where confined machines cannot be started.
 */
int monitor_confinement(char ret[static 256], struct err *err);

/* The CPU model that guests of this monitor get with @accel. */
const char *monitor_cpu_model(const struct monitor_facts *facts, enum machine_accel accel);

/* Start a machine. With spec->kernel it boots at once (RUNNING), without it the machine is a
 * STANDBY. Returns as soon as the process runs; its monitor socket is waited for by the next call. */
int machine_start(const struct machine_spec *spec, struct machine **ret, struct err *err);
/*
 * The calls that follow return -ECONNABORTED as soon as the monitor has ended, with how it ended
 * and its last words in the error; -ETIMEDOUT at @deadline (clock.h), after which the machine is
 * fit to be freed only (but see machine_pause()); -EINVAL in the wrong state; -EREMOTEIO where the
 * monitor refused, with its reason.
 *
 * A machine that its monitor stops by itself (an internal error of KVM, a panic of the guest's
 * kernel) has ended: its process is killed as soon as that is noticed, and machine_end_reason()
 * says why. Each call notices it, and so does whoever watches machine_event_fd().
 */
/* Wait until the monitor answers. */
int machine_ready(struct machine *m, int64_t deadline, struct err *err);
/* STANDBY → PAUSED: load the device state (a regular file, read from its beginning; it is not to change while
 * the machine lives). */
int machine_restore(struct machine *m, int state_fd, int64_t deadline, struct err *err);
int machine_resume(struct machine *m, int64_t deadline, struct err *err);
/*
 * At -ETIMEDOUT the machine is RUNNING and stays so: where the monitor pauses it later after all,
 * it is resumed at once.
 */
int machine_pause(struct machine *m, int64_t deadline, struct err *err);
/*
 * PAUSED: write the device state, without memory, to @state_fd (a regular file, emptied first). A booted
 * machine's memory is what lies in the file it shares with its owner; a restored one's is that of
 * its process: see restore/checkpoint.h. What it wrote to its disk is in the overlay, all of it. The machine may be
 * resumed afterwards.
 */
int machine_capture(struct machine *m, int state_fd, int64_t deadline, struct err *err);
/*
 * PAUSED: the monitor writes @len bytes of guest memory, from @offset on, to @fd, a memfd, which is
 * emptied first. For a caller that may not look into the monitor's process. Up to MACHINE_READ_MAX:
 * beyond, a guest's addresses are not the memory's offsets.
 */
#define MACHINE_READ_MAX 0x80000000ull
int machine_read_memory(struct machine *m, uint64_t offset, uint64_t len, int fd, int64_t deadline,
	struct err *err);
/*
 * PAUSED, of a restored machine: write to @fd (a regular file, empty) the code that its monitor has
 * translated from what the snapshot's memory holds. -ENOTSUP where the monitor translates nothing
 * or cannot keep it. The monitor had @fd open: before the file can be trusted, the monitor must be
 * gone (machine_free()). @fd -1 (allowed while RUNNING, too): nothing is written; it marks that
 * what is translated by now is what later machines will need at once.
 */
int machine_save_translations(struct machine *m, int fd, int64_t deadline, struct err *err);
/* How much code the monitor has translated so far. PAUSED or RUNNING. -ENOTSUP where it translates nothing, or
 * cannot say. */
struct machine_translated {
	uint64_t bytes, blocks;
};
int machine_translated(
	struct machine *m, struct machine_translated *ret, int64_t deadline, struct err *err);
/* SIGKILL, wait until it is gone, release everything. NULL is allowed. */
void machine_free(struct machine *m);
DEFINE_CLEANUP(struct machine *, machine_free)
#define cleanup_machine cleanup_with(machine_free_p_)

/* Never waits. Also takes in what the monitor said and feeds spec->console: call it now and then. */
enum machine_state machine_get_state(struct machine *m);
int machine_pid(const struct machine *m);
/* Readable when the monitor process has ended. Borrowed. */
int machine_pidfd(const struct machine *m);
/* Readable when the monitor has something to say: call machine_get_state() then. Borrowed; -1: it says nothing. */
int machine_event_fd(const struct machine *m);
/* The host cannot keep what the guest writes to its disk, or read it back (the guest was told: EIO): a sentence that
 * says so. NULL: nothing of the kind has been seen. Borrowed until the next call. */
const char *machine_disk_error(const struct machine *m);
/* The host's end of the agent channel; moves to the caller (for guest_new()), once. */
int machine_take_channel(struct machine *m);
/* The last bytes (≤ LIMIT_CONSOLE_BYTES) of the guest's console and of the monitor's own standard error,
 * cleaned for a terminal. Caller frees. Also drains what is waiting. */
char *machine_console(struct machine *m);
/* The signal that ended its process; 0: none did. */
int machine_end_signal(const struct machine *m);
/* Machine ended: sets @err to how ("exited with status 1", "killed by signal 9"), with its last words. */
void machine_end_reason(struct machine *m, struct err *err);

/* Make @fd (an empty file) a qcow2 overlay of @disk_bytes virtual size without a named backing
 * file. Written directly, in the format of QEMU's docs/interop/qcow2.txt (version 3); no program
 * is run. */
int machine_overlay_init(int fd, uint64_t disk_bytes, struct err *err);
/*
 * Call @fn for each run of disk bytes that the overlay holds (of a machine that is paused or gone),
 * in rising order. @zero: the range reads as zeros and has no bytes in the file; otherwise its bytes lie
 * at @file_offset of the overlay. The overlay is data from a hostile machine: checked, never trusted.
 */
int machine_overlay_walk(int fd, uint64_t disk_bytes,
	int (*fn)(void *user, uint64_t disk_offset, uint64_t len, bool zero, uint64_t file_offset),
	void *user, struct err *err);

/* ---- the drivers' side ------------------------------------------------------------------ */

struct monitor_ops {
	const char *name;
	unsigned candidates; /* that it may find at most */
	const char *(*cpu_model)(enum machine_accel accel); /* as monitor_cpu_model() */
	int (*probe)(unsigned i, struct monitor_facts *ret,
		struct err *err); /* as monitor_candidate() */
	void (*forget)(void); /* as monitor_forget() */
	/* try whether the monitor starts while it is confined */
	int (*confined)(const struct monitor_facts *facts, struct err *err);
	int (*prepare)(const struct monitor_facts *facts, struct err *err); /* monitor_prepare() */
	int (*start)(struct machine *m, const struct machine_spec *spec, struct err *err);
	int (*ready)(struct machine *m, int64_t deadline, struct err *err);
	int (*restore)(struct machine *m, int state_fd, int64_t deadline, struct err *err);
	int (*resume)(struct machine *m, int64_t deadline, struct err *err);
	int (*pause)(struct machine *m, int64_t deadline, struct err *err);
	int (*capture)(struct machine *m, int state_fd, int64_t deadline, struct err *err);
	int (*read_memory)(struct machine *m, uint64_t offset, uint64_t len, int fd,
		int64_t deadline, struct err *err);
	int (*save_translations)(struct machine *m, int fd, int64_t deadline, struct err *err);
	int (*translated)(struct machine *m, struct machine_translated *ret, int64_t deadline,
		struct err *err); /* as machine_translated(); NULL: it never emulates */
	void (*poll)(
		struct machine *m); /* take in what the monitor said, without waiting for more */
	int (*event_fd)(const struct machine *m); /* as machine_event_fd() */
	void (*release)(struct machine *m); /* the process is gone: free the driver's part */
};

#endif
