/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_POOL_H
#define PARBAKE_POOL_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "egress/proxy.h"
#include "common/cleanup.h"
#include "common/err.h"
#include "common/json.h"
#include "pool/config.h"
#include "pool/keeper/keeper.h"
#include "common/loop.h"
#include "vmm/guest/guest.h"
#include "pool/limits.h"

/*
 * The pool: which sandboxes there are, in what state, under whose lease, and how many standbys and
 * spares wait for each template. It knows nothing of HTTP: the API (pool/api/) calls it, and gets
 * its answers by callback from the loop.
 *
 *     create ─► CREATING ─► RUNNING ─► PAUSING ─► PAUSED ─► RESUMING ─► RUNNING
 *                   └── fails      └────────── kill, lease, its own end ──► (gone)
 *
 * A paused sandbox or a snapshot is in the state directory: a record, paused/ID.json or
 * snapshots/ID.json, and the checkpoint that the record speaks of, captures/ID-N or captures/ID. A
 * running sandbox is with its keeper (pool/keeper/keeper.h), its record included. So nothing else
 * records sandboxes that could disagree with the machines.
 *
 * All functions belong to the loop's thread. Callbacks come from the loop, never from within the
 * call.
 */
enum pool_state {
	POOL_CREATING,
	POOL_RUNNING,
	POOL_PAUSING,
	POOL_PAUSED,
	POOL_RESUMING,
	POOL_ENDING
};
const char *pool_state_name(enum pool_state state);

struct pool;
struct pool_sandbox;

/* Opens the state directory (locked: -EWOULDBLOCK where another daemon has it), adopts the
 * sandboxes that still run, lists the paused ones, clears what belongs to neither, starts a
 * zygote for each template configured. @config is borrowed until pool_configure() or
 * pool_free(). */
int pool_new(struct loop *l, const struct config *config, struct pool **ret, struct err *err);
/* A new configuration (checked by config_may_replace()). */
void pool_configure(struct pool *p, const struct config *config);
/* Drain: no more creates (-ESHUTDOWN), standbys and spares end; sandboxes go on with their keepers. */
void pool_drain(struct pool *p);
void pool_free(struct pool *p);
/* Have the configured standbys and spares been made once, or failed? @why: of the first that failed. */
bool pool_settled(const struct pool *p, struct err *why);

/*
 * The end of a request. @sb (NULL where the request failed) is borrowed until the callback returns
 * to the loop. @error: 0, or a positive errno with @text: ENOENT (no such template, sandbox),
 * EINVAL, EEXIST, EDQUOT (the key's limit), EAGAIN (too many at once: the creates per second),
 * ENOSPC, ENOMEM (the budget), EBUSY (another transition is under way), ESHUTDOWN, ETIMEDOUT, EIO.
 */
typedef void pool_fn(void *user, struct pool_sandbox *sb, int error, const char *text);

struct pool_create {
	const char *template; /* NAME[:TAG|@digest], or the id of a snapshot */
	const char *key; /* config_key.name, "" without keys */
	uint64_t timeout_ms; /* 0: the default */
	const json_t *metadata; /* object of strings, or NULL */
	const json_t *env; /* the same */
	bool auto_pause, auto_resume, guarded_ports; /* as in struct pool_sandbox_info */
	const char *mask_host; /* NULL: none */
	const struct proxy_rule *allow; /* what it may reach, n_allow ≤ LIMIT_POOL_ALLOW of them */
	size_t n_allow;
};
void pool_create(struct pool *p, const struct pool_create *spec, pool_fn *fn, void *user);

/* Kill a sandbox: answers when its machine is gone. Of a paused sandbox the files are removed. */
void pool_kill(struct pool *p, const char *id, pool_fn *fn, void *user);
/* The lease ends @timeout_ms from now (refresh: at least; never earlier than it would). */
void pool_renew(struct pool *p, const char *id, uint64_t timeout_ms, bool only_longer, pool_fn *fn,
	void *user);
void pool_pause(struct pool *p, const char *id, pool_fn *fn, void *user);
/* Resume a paused sandbox. The lease of one that runs already is renewed (only longer). For one
 * that is being paused or resumed, the resume waits until that is done. @auto_pause: -1 leaves
 * it as it was. */
void pool_resume(struct pool *p, const char *id, uint64_t timeout_ms, int auto_pause, pool_fn *fn,
	void *user);
/* The same where a request has come for what runs in a paused sandbox whose auto_resume is set:
 * the lease is as long as its create asked for, and at least LIMIT_POOL_WAKE_MS, as far as the
 * configuration allows. */
void pool_wake(struct pool *p, const char *id, pool_fn *fn, void *user);
/* Make a snapshot: a checkpoint of a running sandbox, or a copy of the one of a paused sandbox.
 * @done gets its id. @name NULL: the snapshot stays in the state directory. Otherwise a process
 * of its own publishes it in the store as the template @name. @only_new: EEXIST where a template
 * of that name is in the store or in the configuration, unless the sandbox's key has published
 * that template: then the earlier version loses the name. */
void pool_snapshot(struct pool *p, const char *id, const char *name, bool only_new,
	void (*done)(void *user, const char *snapshot_id, int error, const char *text), void *user);
/*
 * Remove a template that @key has published ("": that any key has published). ENOENT: there is
 * none; EPERM: another key or the host's operator put it there.
 */
void pool_template_remove(
	struct pool *p, const char *ref, const char *key, pool_fn *fn, void *user);
void pool_snapshot_remove(struct pool *p, const char *snapshot_id, pool_fn *fn, void *user);
/* The snapshots in the state directory: a new array of {"id", "source" (the sandbox), "key",
 * "started_ms" (when it was taken), "template": {"name", "tag", "digest", …}}. */
json_t *pool_snapshots(struct pool *p);
/*
 * @count (≤ LIMIT_POOL_FORK) sandboxes from one checkpoint of the sandbox @id: @fn is called for
 * each, with an error for those that failed.
 */
void pool_fork(struct pool *p, const char *id, unsigned count, uint64_t timeout_ms, pool_fn *fn,
	void *user);
/* keeper_stats() with "cpu_pct", the share of one processor since the last time (or its
 * beginning); keeper_console(): both for a running sandbox. */
void pool_stats(struct pool *p, const char *id, keeper_fn *fn, void *user);
void pool_console(struct pool *p, const char *id, keeper_fn *fn, void *user);

/* ---- looking at sandboxes ------------------------------------------------------------------- */

struct pool_sandbox *pool_find(
	struct pool *p, const char *id); /* NULL: none (or ENDING, CREATING) */
/* The next sandbox after @after (NULL: the first), in the order of their start, newest first. */
struct pool_sandbox *pool_next(struct pool *p, const struct pool_sandbox *after);
size_t pool_count(const struct pool *p, enum pool_state state);
/*
 * Bytes of memory that sandboxes, standbys and spares may take together: as configured, or three
 * quarters of the host's.
 */
uint64_t pool_memory_budget(const struct pool *p);
size_t pool_size(const struct pool *p); /* how many sandboxes pool_next() goes through, at most */

/* A sandbox's mode where a standby was there for its create, by the name that was published first. */
#define POOL_MODE_STANDBY "shell"

struct pool_sandbox_info { /* borrowed strings, as long as the sandbox is not given back to the loop */
	const char *id, *template_name, *template_tag, *template_digest, *key;
	enum pool_state state;
	int64_t started_ms, end_ms; /* since 1970, of the lease; paused: when it was paused */
	const json_t *metadata, *env; /* objects */
	const json_t *allow; /* array of rules (pool_rule_read()); NULL: no network */
	bool auto_pause; /* the end of its lease pauses it, and does not kill it */
	bool auto_resume; /* a request for what runs in it resumes it, by pool_wake() */
	bool guarded_ports; /* its ports are for holders of its token alone */
	const char *mask_host; /* what its servers read as Host; "": what was sent */
	unsigned vcpus;
	uint64_t memory_bytes, disk_bytes;
	const char *
		mode; /* how it was created: "cold", POOL_MODE_STANDBY, "spare", "resume", "fork" */
	int64_t create_ns; /* from the request to its answer */
	const char *
		disk_error; /* why the host cannot keep what the guest writes to its disk; NULL: it can */
	uint64_t exec_timeout_ms, output_bytes, exec_memory_bytes,
		exec_pids; /* of the template; 0: default */
	const char *user; /* of SDKs that name none; "": root */
	const json_t *template_env; /* array of "K=V" */
};
void pool_sandbox_info(const struct pool_sandbox *sb, struct pool_sandbox_info *ret);
/*
 * How a list shows a sandbox: a text, and what of it can change, as it was when the text was made. Kept with
 * the sandbox, so that a list of thousands is not made anew for each request; the API fills it, the pool frees it.
 */
struct pool_listed {
	char *text; /* NULL: not made yet */
	int64_t started_ms, end_ms;
	bool paused;
};
struct pool_listed *pool_sandbox_listed(struct pool_sandbox *sb);
/* A rule as records have it: {"host", "port", "subdomains", "prefix_bits" (of a network), "private"}. A new
 * object; -EINVAL. */
json_t *pool_rule_write(const struct proxy_rule *rule);
int pool_rule_read(const json_t *rule, struct proxy_rule *ret, struct err *err);
/* The guest of @sb, to send requests to; NULL where @sb does not run. The pool dispatches it in
 * the loop. Its streams end (ECONNRESET) when the sandbox is paused or ends. A pause or an end
 * never waits for the caller's requests. */
struct guest *pool_guest(struct pool_sandbox *sb);
/* Let the loop write the requests that were queued for the guest of @sb. */
void pool_guest_kick(struct pool_sandbox *sb);

/* ---- looking at the pool -------------------------------------------------------------------- */

struct pool_template_info {
	const char *name, *tag, *digest; /* digest "": configured, and not in the store */
	const char *created; /* RFC 3339, "" where the template is not in the store */
	unsigned standbys, spares, want_standbys, want_spares, making; /* now, target, being made */
	unsigned sandboxes; /* running from it */
	uint64_t hits_spare, hits_standby, misses; /* creates: found a spare, a standby, neither */
	uint64_t failures; /* of making standbys and spares */
	const char *error; /* the last failure's text; "": the last one was made */
	double arrivals_per_s; /* smoothed */
	uint64_t memory_bytes;
	unsigned vcpus;
	uint64_t disk_bytes;
	const json_t *aliases; /* array of strings; NULL: none */
	const char *translations; /* translations_state_name() */
};
/* The template that @ref, NAME[:TAG] or an alias, names. False: there is none in the store. */
bool pool_template_named(struct pool *p, const char *ref, struct pool_template_info *ret);
/* The templates of the store and of the configuration, in the order of names: @i from 0; false beyond the last. */
bool pool_template(struct pool *p, unsigned i, struct pool_template_info *ret);
/* Call @fn at the end of each create: for metrics. @parts: the "trace" that the keeper answered. */
void pool_on_create(struct pool *p,
	void (*fn)(void *user, const struct pool_sandbox_info *f, bool ok, const json_t *parts),
	void *user);

#endif
