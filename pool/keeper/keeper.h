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
#include "pool/keeper/limits.h"

/*
 * Keepers and zygotes, as the daemon uses them. A keeper is the small process that owns one
 * sandbox: its monitor (which dies with it), its memory, overlay and channel. A keeper outlives the
 * daemon, holds the lease, and acts on the lease when there is no daemon. So a daemon that is
 * killed loses nothing, and a daemon that never comes back leaks nothing. Keepers are forked by the
 * zygote of their template, a process that has the template open already, so that a keeper costs
 * only a fork.
 *
 *     daemon ──"make"──► zygote ──fork──► keeper ──start──► monitor
 *        └────────────── a connection of its own ──┘
 *
 * What goes to the guest does not pass through its keeper. The keeper hands the daemon a duplicate
 * of the channel (for guest_new()), and keeps its own only so that the channel outlives the daemon.
 *
 * A keeper without a lease (a standby, a spare, one in the making) has no name and ends with the
 * daemon's connection. With the lease it gets its name, the socket SOCKETS/ID, at which a later
 * daemon adopts it. A keeper serves at most one connection: a new one at the socket waits until the
 * old one has closed.
 *
 * The messages (SOCK_SEQPACKET, one JSON object a message, at most LIMIT_RPC_BYTES bytes,
 * descriptors beside it): requests {"op":…, "n":number, …}, answered in order by {"n":number,
 * "ok":true, …} or {"n":…, "ok":false, "errno":…, "text":…}; and events without "n":
 * {"event":"ended", "text":…}. keeper_private.h lists the fields. All of it is between processes of
 * one user; what a keeper says of its guest has been checked in the keeper. All functions belong to
 * the loop's thread.
 */

/* ---- the daemon's end ---------------------------------------------------------------------- */

struct keeper;
struct zygote;

/* The answer to a request. @error: 0, or a positive errno with @text. @reply: borrowed until the
 * callback returns; NULL where the request failed. @fds belong to the callback, which closes
 * them. */
typedef void keeper_fn(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds);

struct keeper_ops {
	/* the machine has ended, or the keeper has (then @text says so), by itself or at its
	 * lease's end. Called once, after the open requests were answered (ECONNRESET). Free the
	 * keeper then. */
	void (*ended)(void *user, const char *text);
};

/*
 * What a keeper learns of its sandbox when it gets its lease, and passes on to a daemon that adopts
 * it.
 */
struct keeper_lease {
	const char *id; /* [a-z0-9]{1,63}: the name of its socket */
	const json_t
		*record; /* the daemon's record, ≤ LIMIT_KEEPER_RECORD as text; kept, not read */
	uint64_t lease_ms; /* counted from when the sandbox is ready */
	const char *pause_dir; /* the lease's end pauses to this directory; NULL: it kills */
};

/*
 * Start the zygote of one template version. Its process opens the template (which may take long,
 * the first time) and then serves requests, which may be made at once. @store_dir NULL: the
 * default. @sockets: the directory for keepers' sockets, made by the caller, 0700. The zygote dies
 * with the daemon.
 */
int zygote_start(struct loop *l, const char *store_dir, const char *manifest_digest,
	const char *name, const char *tag, const char *sockets,
	void (*ended)(void *user, const char *text), void *user, struct zygote **ret,
	struct err *err);
void zygote_free(struct zygote *n); /* its keepers go on; not from within one of its callbacks */

/*
 * Fork a keeper, which at once starts a monitor with nothing restored in it (a standby). @capture
 * (NULL: none): the directory of a checkpoint that keeper_capture() made, from which the keeper
 * will restore (@same_identity: restore/checkpoint.h). The keeper may be used as soon as this
 * returns: requests wait until it runs; where it fails to start, they are answered with the reason.
 */
int keeper_make(struct zygote *n, const char *capture, bool same_identity,
	const struct keeper_ops *ops, void *user, struct keeper **ret, struct err *err);
/* Connect to the keeper at @path (a socket in SOCKETS). -ECONNREFUSED, -ENOENT: it is gone. The
 * first request to it is keeper_describe(). */
int keeper_adopt(struct loop *l, const char *path, const struct keeper_ops *ops, void *user,
	struct keeper **ret, struct err *err);
/* Close the connection: a keeper without a lease ends, a keeper with a lease goes on. Callbacks
 * of open requests are not called. */
void keeper_free(struct keeper *k);

/*
 * Requests. Each is queued and returns at once; @fn (may be NULL) is called once, later, from the
 * loop. The comments name the fields of each reply, and the descriptors that come with it.
 */
/* The standby's monitor is up: {}. */
void keeper_ready(struct keeper *k, keeper_fn *fn, void *user);
/* Standby → spare (restored, has answered, paused): {}. */
void keeper_prepare(struct keeper *k, keeper_fn *fn, void *user);
/*
 * Standby or spare → running under @lease: {"trace":{part: ns since the request was read}, "end_ns":
 * lease's end (CLOCK_BOOTTIME ns), "monitor_pid":, "faults": of the monitor's process so far}; fds: machine's
 * pidfd, channel. @hostname may be NULL.
 */
void keeper_hand_out(struct keeper *k, const struct keeper_lease *lease, const char *hostname,
	keeper_fn *fn, void *user);
/*
 * For adopting a keeper: the reply of keeper_hand_out(), with "id", "record" and "state"
 * ("running").
 */
void keeper_describe(struct keeper *k, keeper_fn *fn, void *user);
/*
 * The lease ends @lease_ms from now; @record (NULL: none) replaces the record that the keeper
 * holds: {"end_ns":}.
 */
void keeper_renew(struct keeper *k, uint64_t lease_ms, const char *pause_dir, const json_t *record,
	keeper_fn *fn, void *user);
/*
 * Write a checkpoint of the sandbox into the directory @dir, which is made here and must not exist;
 * it is complete when its capture.json is there. @stop: the sandbox is gone afterwards (a pause),
 * else it goes on (a snapshot). Where this fails the sandbox goes on as it was, and nothing is left
 * at @dir: {"memory_bytes", "disk_bytes" (of the delta), "stopped_ns"}.
 */
void keeper_capture(struct keeper *k, const char *dir, bool stop, keeper_fn *fn, void *user);
/* {"settled": bool}: has the machine all of the memory of the checkpoint that it was restored
 * from? Until then that checkpoint is needed. An error: the machine never will have all of it. */
void keeper_settled(struct keeper *k, keeper_fn *fn, void *user);
/*
 * {"memory_private", "memory_shared", "monitor_private", "keeper_private", "disk_bytes", "cpu_ns",
 * "faults", "rough"}: the guest's own memory, and its share of the template's; the PSS of the
 * monitor without guest memory, and of the keeper; the bytes of its overlay; processor time and
 * page faults of the monitor. "rough": true where this user may not look into the monitor: then all
 * of the monitor's own memory counts as memory_private, and memory_shared is not divided among
 * those who share it.
 */
void keeper_stats(struct keeper *k, keeper_fn *fn, void *user);
/* {"text"}: the newest bytes of the console. */
void keeper_console(struct keeper *k, keeper_fn *fn, void *user);
/*
 * Kill the keeper and its machine. @fn is called when the machine is gone, whatever state both were
 * in (stopped by a signal, say): the kill goes to both by pidfd. ended() is not called any more;
 * free the keeper then.
 */
void keeper_kill(struct keeper *k, keeper_fn *fn, void *user);
/* As machine_disk_error(). Borrowed until the loop goes on. */
const char *keeper_disk_error(const struct keeper *k);

/* ---- the processes ------------------------------------------------------------------------- */

/* `parbake zygote` (internal): started with its descriptors by zygote_start(). */
int zygote_main(int argc, char **argv);

#endif
