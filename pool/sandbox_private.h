/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_SANDBOX_PRIVATE_H
#define PARBAKE_POOL_SANDBOX_PRIVATE_H

/* One sandbox: its state, its record, its machine (pool/sandbox.c). One thread: the loop's. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/err.h"
#include "common/json.h"
#include "pool/pool.h"
#include "pool/record_private.h"

struct guest;
struct loop_timer;
struct loop_watch;
struct pool_cgroup;
struct pool_egress;
struct pool_machine;
struct pool_transition;
struct pool_version;
struct pool_waiter;

#define POOL_ID_LEN 20
#define POOL_ID_SIZE (POOL_ID_LEN + 1)

struct pool_sandbox {
	struct pool *pool;
	LIST_ENTRY(pool_sandbox) bucket;
	TAILQ_ENTRY(pool_sandbox) link; /* pool.sandboxes */
	bool listed; /* in both */
	unsigned held; /* how many pieces of work on the disk hold it; it is freed when none does */
	bool removed;
	enum pool_state state;
	json_t *record_json; /* what &record was read from: the keeper, and the file of a paused one, hold it */
	struct pool_record record;
	struct pool_listed shown;
	struct pool_version *version; /* NULL: paused, and its template was not looked up yet */
	struct pool_machine *machine;
	int64_t end_ns; /* of the lease, CLOCK_BOOTTIME */
	int64_t end_ms; /* the same since 1970 */
	int64_t paused_ms; /* since 1970 */
	unsigned
		capture; /* paused: the generation of the checkpoint it is in; running: of the one that it came from, as long as it needs it; 0: none */
	struct loop_timer *settle_timer; /* asks its keeper again whether it has settled */
	int settle_ms;
	int64_t create_ns;
	struct loop_timer *lease_timer;

	struct guest *guest;
	struct loop_watch *guest_watch;
	bool guest_synced;
	struct loop_timer *guest_timer; /* its channel is dead, and its keeper is silent */
	struct pool_egress *egress; /* its way out, NULL: none */
	json_t *egress_env; /* record.env with the variables that lead to the way out; NULL: record.env alone */

	SLIST_HEAD(, pool_waiter) waiters; /* they resume it once it is PAUSED or RUNNING */
	struct pool_transition *transition; /* a pause, snapshot or fork on its way; NULL: none */

	uint64_t cost_bytes; /* of host memory, when it was last measured; 0: not yet */
	uint64_t
		disk_bytes; /* of the host's disk: its checkpoint's, or its overlay's when last measured */
	uint64_t cpu_ns; /* at the last measurement, for the share since then */
	int64_t cpu_at;
	struct pool_cgroup *cgroup;
};

/*
 * A new sandbox, not listed. Takes a new reference to @record. NULL, with @err, where the record
 * cannot be read.
 */
struct pool_sandbox *pool_sandbox_new(
	struct pool *p, json_t *record, enum pool_state state, struct err *err);
void pool_sandbox_list(struct pool_sandbox *sb);
void pool_sandbox_set(struct pool_sandbox *sb, enum pool_state state);
/*
 * Replace the record of @sb. Returns 0; or -EINVAL or -E2BIG, and the sandbox keeps the record that
 * it had.
 */
int pool_sandbox_set_record(struct pool_sandbox *sb, json_t *record, struct err *err);
/*
 * The machine of @sb is gone: @sb is PAUSED in its checkpoint of generation @capture. Another
 * checkpoint that it had is removed.
 */
void pool_sandbox_set_paused(struct pool_sandbox *sb, unsigned capture);
/* Take @sb off the lists. It is freed as soon as nobody holds it. */
void pool_sandbox_remove(struct pool_sandbox *sb);
void pool_sandbox_hold(struct pool_sandbox *sb);
/* False: @sb was removed while it was held, and has been freed now. */
bool pool_sandbox_put(struct pool_sandbox *sb);
/* Find a sandbox by id, in any state but CREATING and ENDING. NULL: there is none. */
struct pool_sandbox *pool_sandbox_find(struct pool *p, const char *id);
/* The machine of @sb has ended, by itself or at its lease's end. */
void pool_sandbox_ended(struct pool_sandbox *sb, const char *text);
/* End @sb, because something is wrong with its machine; @why says what. */
void pool_sandbox_kill(struct pool_sandbox *sb, const char *why);
/* Make a new random id. */
void pool_id_make(char ret[static POOL_ID_SIZE]);
bool pool_id_valid(const char *text);

#endif
