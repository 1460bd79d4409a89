/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_KEEPER_KEEPER_H
#define PARBAKE_POOL_KEEPER_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/json.h"
#include "common/loop.h"
#include "store/store.h"

/*
 * A keeper is the small process that owns one sandbox: its monitor (which dies with it), its memory,
 * overlay and channel. It outlives the daemon, holds the lease, and acts on it when there is no
 * daemon to do so; so a daemon that is killed loses nothing, and one that never comes back leaks
 * nothing. Keepers are forked, not started: by the zygote of their template, a process that has the
 * template open already, so that a keeper costs a fork.
 *
 *     daemon ──"make"──► zygote ──fork──► keeper ──start──► monitor
 *        └────────────── a connection of its own ──┘
 *
 * What goes to the guest does not pass a keeper: it hands the daemon a duplicate of the channel
 * (for guest_new()), and keeps its own only so that the channel lives on when the daemon does not.
 *
 * A keeper without a lease (a shell, a spare, one in the making) has no name and ends with the
 * daemon's connection. With the lease it gets its name, the socket SOCKETS/ID, at which a later
 * daemon adopts it. At most one connection is served; a new one at the socket replaces an old one that
 * has closed, and waits for one that has not.
 *
 * Their messages (SOCK_SEQPACKET, one JSON object a message, at most LIMIT_RPC_BYTES bytes, descriptors
 * beside it): requests {"op":…, "n":number, …}, answered in order by {"n":number, "ok":true, …} or
 * {"n":…, "ok":false, "errno":…, "text":…}; and events without "n": {"event":"ended", "text":…}.
 * keeper_private.h lists the fields. All of it is between processes of one user; what a keeper tells of
 * the guest is checked in the keeper.
 */

/* ---- the daemon's end ---------------------------------------------------------------------- */

struct keeper;
struct zygote;

/* The answer to a request. @error: 0 or a positive errno, with @text then. @reply: borrowed, NULL
 * where it failed. @fds are the callback's (close them). */
typedef void keeper_fn(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds);

struct keeper_ops {
	/* the machine has ended, or the keeper has (then @text says that), unasked or at its lease's end.
	 * Called once; open requests have had their answer (ECONNRESET) before. Free it then. */
	void (*ended)(void *user, const char *text);
};

/* What a keeper is told of its sandbox when it gets its lease, and tells whoever adopts it. */
struct keeper_lease {
	const char *id; /* [a-z0-9]{1,63}: the name of its socket */
	const json_t
		*record; /* the daemon's own notes, ≤ LIMIT_KEEPER_RECORD as text; kept, not read */
	uint64_t lease_ms; /* from when the sandbox is ready */
	const char *pause_dir; /* at the lease's end pause to this directory; NULL: kill */
};

/*
 * Start the zygote of one template version. Its process opens the template (which may take long, the
 * first time) and answers; requests may be made at once. @store_dir NULL: the default. @sockets: the
 * directory for keepers' sockets, made by the caller, 0700. Dies with the daemon.
 */
int zygote_start(struct loop *l, const char *store_dir, const char *manifest_digest,
	const char *name, const char *tag, const char *sockets,
	void (*ended)(void *user, const char *text), void *user, struct zygote **ret,
	struct err *err);
void zygote_free(struct zygote *n); /* its keepers go on; not from within one of its callbacks */
int zygote_pid(const struct zygote *n);

/*
 * Fork a keeper, which starts a shell at once. @capture (NULL: none): a directory that
 * keeper_capture() made, from which it will be restored (@same_identity: restore/checkpoint.h). The keeper may be used as soon as this
 * returns: its requests wait until it is there; should it fail to start, they are answered with why.
 */
int keeper_make(struct zygote *n, const char *capture, bool same_identity,
	const struct keeper_ops *ops, void *user, struct keeper **ret, struct err *err);
/* Connect to the one at @path (a socket in SOCKETS). -ECONNREFUSED, -ENOENT: it is gone. Its first
 * request is keeper_describe(). */
int keeper_adopt(struct loop *l, const char *path, const struct keeper_ops *ops, void *user,
	struct keeper **ret, struct err *err);
/* Close the connection: one without a lease ends, one with a lease goes on. Callbacks of open
 * requests are not called. */
void keeper_free(struct keeper *k);

/*
 * Requests. Each queues, returns at once and calls @fn once (may be NULL), later, from the loop.
 * Replies' descriptors and fields are named behind them.
 */
/* The shell's monitor is up: {}. */
void keeper_ready(struct keeper *k, keeper_fn *fn, void *user);
/* Shell → spare (restored, has answered, paused): {}. */
void keeper_prepare(struct keeper *k, keeper_fn *fn, void *user);
/*
 * Shell or spare → running under @lease: {"trace":{part: ns since the request was read}, "end_ns":
 * lease's end (CLOCK_BOOTTIME ns), "monitor_pid":, "faults": of the monitor's process so far}; fds: machine's
 * pidfd, channel. @hostname may be NULL.
 */
void keeper_hand_out(struct keeper *k, const struct keeper_lease *lease, const char *hostname,
	keeper_fn *fn, void *user);
/* The same as keeper_hand_out() answers, with "id", "record" and "state" ("running"), to who adopts. */
void keeper_describe(struct keeper *k, keeper_fn *fn, void *user);
/* The lease ends @lease_ms from now; @record (NULL: as it was) replaces the notes: {"end_ns":}. */
void keeper_renew(struct keeper *k, uint64_t lease_ms, const char *pause_dir, const json_t *record,
	keeper_fn *fn, void *user);
/*
 * Capture the sandbox as what differs from its template into the directory @dir (made here; must not be
 * there; complete when its capture.json is). @stop: it is gone afterwards (a pause), else it goes on (a
 * snapshot). Where it fails it goes on as it was, and nothing is left at @dir: {"memory_bytes",
 * "disk_bytes" (of the delta), "stopped_ns"}.
 */
void keeper_capture(struct keeper *k, const char *dir, bool stop, keeper_fn *fn, void *user);
/* {"settled": bool}: has its machine all of the memory that it was captured with? Until then the checkpoint that it was
 * made from is needed. An error: it never will have. */
void keeper_settled(struct keeper *k, keeper_fn *fn, void *user);
/*
 * {"memory_private", "memory_shared", "monitor_private", "keeper_private", "disk_bytes", "cpu_ns", "faults",
 * "rough"}: of the guest's memory what is its own, and its share of the template's; PSS of the monitor without it,
 * and of the keeper; what its disk takes; processor time and page faults of the monitor. "rough": true where this
 * user may not look into a machine: then all that is the monitor's own counts as memory_private, and
 * memory_shared is not a share.
 */
void keeper_stats(struct keeper *k, keeper_fn *fn, void *user);
/* {"text"}: the console's last words. */
void keeper_console(struct keeper *k, keeper_fn *fn, void *user);
/*
 * End it. @fn is called when the machine is gone, whatever state it and its keeper were in (stopped by
 * a signal, say): the kill goes to both by pidfd. ended() is not called any more; free it then.
 */
void keeper_kill(struct keeper *k, keeper_fn *fn, void *user);
/* Both -1 until known: the machine's, when keeper_ready() or keeper_hand_out() is answered. */
int keeper_pid(const struct keeper *k);
int keeper_monitor_pid(const struct keeper *k);
/* As machine_disk_error(). Borrowed until the loop goes on. */
const char *keeper_disk_error(const struct keeper *k);

/* ---- the processes ------------------------------------------------------------------------- */

/* `parbake zygote` (internal): started with its descriptors by zygote_start(). */
int zygote_main(int argc, char **argv);

#endif
