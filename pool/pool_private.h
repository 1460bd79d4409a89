/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_POOL_PRIVATE_H
#define PARBAKE_POOL_POOL_PRIVATE_H

/* What the parts of the pool (pool/pool*.c) share. One thread, the loop's, but for pool_work's. */

#include <limits.h>

#include "common/clock.h"
#include "common/limits.h"
#include "pool/pool.h"
#include "store/snapshot.h"

#define POOL_ID_LEN 20
#define POOL_ID_SIZE (POOL_ID_LEN + 1)
#define POOL_BUCKETS 4096 /* of the hash by id */

/* A text for a person that belongs to something that failed. */
#define POOL_TEXT_MAX 512

/* ---- notes: what the pool knows of one sandbox (pool_record.c) ------------------------------- */

/*
 * A record is the JSON object that a keeper holds for us and that lies beside a capture; notes are it
 * read. All strings and objects are borrowed from the record.
 */
struct pool_record {
	const char *id, *name, *tag, *digest, *key, *mode;
	const char *source; /* of a fork or snapshot: the sandbox it was taken from; "" */
	int64_t started_ms;
	const json_t *metadata, *env; /* objects of strings */
	const json_t *allow; /* array of strings; NULL: no network */
	bool auto_pause;
	unsigned generation; /* of the capture that its next pause makes */
	/* of the template */
	unsigned vcpus;
	uint64_t memory_bytes, disk_bytes;
	uint64_t exec_timeout_ms, output_bytes, exec_memory_bytes, exec_pids;
	bool context;
	const json_t *template_env; /* array of "K=V" */
};

/* -EINVAL names the field. Hostile only as far as a file may have been damaged. */
int pool_record_read(const json_t *record, struct pool_record *ret, struct err *err);
/* A new reference; aborts without memory. */
json_t *pool_record_write(const struct pool_record *n);
/* The template's part of @n. @c is borrowed as long as *@ret is used; @env is the array for
 * n->template_env (a new reference, the caller's). */
void pool_record_template(const struct snapshot_config *c, struct pool_record *ret, json_t **env);
/* Does it fit where it has to? -E2BIG with what to do. */
int pool_record_check(const json_t *record, struct err *err);

/* ---- machines ------------------------------------------------------------------------------- */

enum pool_use {
	POOL_USE_MAKING_SHELL,
	POOL_USE_MAKING_SPARE,
	POOL_USE_SHELL,
	POOL_USE_SPARE,
	POOL_USE_HANDOUT, /* being handed out */
	POOL_USE_SANDBOX,
	POOL_USE_ADOPTED, /* who it is has been asked */
	POOL_USE_DYING,
};

/* A keeper from our end, whatever it is used for. */
struct pool_machine {
	struct pool *pool;
	struct pool_version *version; /* NULL: adopted, not known yet */
	struct pool_machine *next, *prev; /* of all in the pool */
	struct keeper *keeper;
	enum pool_use use;
	int64_t began;
	struct loop_timer *timer; /* by when it must be made, or have answered */
	struct pool_handout *job; /* while POOL_USE_HANDOUT */
	struct pool_sandbox *sb; /* while POOL_USE_SANDBOX */
	char *path; /* of an adopted one's socket */
	void (*gone)(void *user, int error, const char *text); /* while POOL_USE_DYING; or NULL */
	void *user;
};

/* ---- template versions ---------------------------------------------------------------------- */

struct pool_version {
	struct pool *pool;
	struct pool_version *next;
	char digest[DIGEST_TEXT_SIZE];
	char name[LIMIT_NAME_SIZE], tag[LIMIT_NAME_SIZE];
	bool tagged; /* some tag leads to it now */
	struct pool_record shape; /* the template's part */
	json_t *shape_env; /* behind shape.template_env */
	const struct config_template *want; /* NULL: made when asked for, nothing kept ready */

	struct zygote *zygote;
	int64_t zygote_used; /* when something was last made */
	int64_t retry_at; /* after failures: not before */
	unsigned failed_in_row;
	bool tried; /* one shell or spare has been made, or could not be */

	unsigned ready[2], making[2]; /* by enum pool_kind */
	unsigned jobs, sandboxes;
	uint64_t hits_spare, hits_shell, misses, failures;
	char error[POOL_TEXT_MAX];

	double rate; /* arrivals a second, smoothed, as of … */
	int64_t rate_at;
	double make_s[2]; /* to make one, smoothed */
	uint64_t cost_bytes; /* of host memory, of one that is ready; 0: not measured yet */
};
enum pool_kind { POOL_KIND_SHELL, POOL_KIND_SPARE };

struct pool_tag {
	char name[LIMIT_NAME_SIZE], tag[LIMIT_NAME_SIZE];
	struct pool_version *version;
	char created[32];
};

/* ---- jobs: machines being handed out (pool_handout.c) --------------------------------------------- */

/*
 * One create, resume or fork from its request to its answer. It waits for a slot, takes a machine (a spare,
 * a shell, one made for it), hands it out; where one fails that had been waiting, takes the next.
 */
struct pool_handout {
	struct pool *pool;
	struct pool_handout *next, *prev; /* of all */
	struct pool_handout *queue_next; /* of those that wait for a slot */
	bool queued, slot;
	struct pool_sandbox *sb; /* not listed yet (create, fork), or RESUMING */
	struct pool_machine *machine;
	char *capture; /* to restore from; NULL: from the template */
	bool same_identity;
	uint64_t timeout_ms;
	int64_t began, deadline;
	unsigned tries;
	char *text; /* why the last try failed */
	int error;
	struct loop_timer *deadline_timer, *slot_timer, *try_timer;
	/* Its end. 0: the sandbox runs; else it has no machine, and is the callee's to keep or remove. The
	 * job is freed after it. @reply: of the hand-out, NULL where it failed. */
	void (*done)(struct pool_handout *j, int error, const char *text, const json_t *reply);
	struct pool_transition *fork; /* the one that it is part of; NULL: none */
	pool_fn *fn;
	void *user;
};

/* Take over @j (filled in up to `slot`, with done, fn, user). done() comes from the loop, later. */
void pool_handout_submit(struct pool_handout *j);
/* Begin what may begin. */
void pool_handout_pump(struct pool *p);
/* The machine that is being handed out has ended. */
void pool_handout_machine_ended(struct pool_handout *j, const char *text);
/* End it now, its machine too, and free it; nobody is told. */
void pool_handout_cancel(struct pool_handout *j);
/* The same; its fn is told @error, later, and @gone is called when the machine is gone, later too. */
void pool_handout_abort(struct pool_handout *j, int error, const char *text,
	void (*gone)(void *user, int error, const char *text), void *user);
/* Of all, those that wait: fail. */
void pool_handout_fail_waiting(struct pool *p, int error, const char *text);

/* ---- sandboxes ------------------------------------------------------------------------------ */

struct pool_sandbox {
	struct pool *pool;
	struct pool_sandbox *hash_next, *next, *prev;
	bool listed;
	unsigned held; /* by works on the disk; freed when nobody does */
	bool removed;
	enum pool_state state;
	json_t *record;
	struct pool_record notes;
	struct pool_version *version; /* NULL: paused, and its template is not looked at yet */
	struct pool_machine *machine;
	int64_t end_ns; /* of the lease, CLOCK_MONOTONIC */
	int64_t end_ms; /* the same since 1970 */
	int64_t paused_ms; /* since 1970 */
	unsigned capture; /* paused: the generation of the capture it rests in; running: of the one it
			   * came from, as long as it needs it; 0: none */
	struct loop_timer *settle_timer; /* when its keeper is asked next whether it does */
	int settle_ms;
	int64_t create_ns;
	struct loop_timer *lease_timer;

	struct guest *guest;
	struct loop_watch *guest_watch;
	bool guest_synced;
	struct loop_timer *guest_timer; /* its channel is dead, and nobody has said why */
	struct pool_egress *egress; /* its way out, NULL: none */
	json_t *egress_env; /* notes.env with what leads there; NULL: notes.env */

	struct pool_waiter *waiters; /* to resume it, once it is PAUSED, or RUNNING */
	struct pool_transition *change; /* a pause, snapshot or fork on its way; NULL: none */

	uint64_t cpu_ns; /* at the last look, for the share since */
	int64_t cpu_at;
	struct pool_cgroup *cgroup;
};

/* A new one, not listed. @record: a new reference is taken. NULL, with @err, where it cannot be read. */
struct pool_sandbox *pool_sandbox_new(
	struct pool *p, json_t *record, enum pool_state state, struct err *err);
void pool_sandbox_list(struct pool_sandbox *sb);
void pool_sandbox_set(struct pool_sandbox *sb, enum pool_state state);
/* Replace its record. 0, or -EINVAL, -E2BIG and it is as it was. */
int pool_sandbox_note(struct pool_sandbox *sb, json_t *record, struct err *err);
/* Its machine is gone, and it is PAUSED in that capture; another that it had goes. */
void pool_sandbox_rest(struct pool_sandbox *sb, unsigned capture);
/* Take it off the lists; freed as soon as nobody holds it. */
void pool_sandbox_remove(struct pool_sandbox *sb);
void pool_sandbox_hold(struct pool_sandbox *sb);
/* False: it has been removed meanwhile, and is gone now. */
bool pool_sandbox_put(struct pool_sandbox *sb);
/* Any state but CREATING and ENDING. */
struct pool_sandbox *pool_sandbox_find(struct pool *p, const char *id);
/* Its machine has ended by itself or at its lease's end. */
void pool_sandbox_ended(struct pool_sandbox *sb, const char *text);
/* End it: for a machine of which something is wrong. */
void pool_sandbox_kill(struct pool_sandbox *sb, const char *why);
/* A fresh id. */
void pool_id_make(char ret[static POOL_ID_SIZE]);
bool pool_id_valid(const char *text);

/* ---- the guest in the loop (pool_guest.c) ------------------------------------------------------ */

/* Take over @channel (owned). */
int pool_guest_open(struct pool_sandbox *sb, int channel, struct err *err);
/* End its streams; the descriptor is kept and returned where @keep (else -1). May be called anywhere. */
int pool_guest_close(struct pool_sandbox *sb, bool keep);
/* Free what has been closed, now: their streams are told. */
void pool_guests_bury(struct pool *p);

/* ---- resumed ones, until they have all of their memory (settle.c) ------------------------------------ */

/* It runs, from sb->capture: that goes when it is not needed any more. */
void pool_settle(struct pool_sandbox *sb);
/* It was found running: is there a capture that it may need? */
void pool_settle_adopted(struct pool_sandbox *sb);
/* Its machine is gone: does it rest in what it came from? */
bool pool_settle_ended(struct pool_sandbox *sb);

/* ---- leases (pool_lease.c) -------------------------------------------------------------------- */

/* From what hand_out, describe, renew answered. */
void pool_lease_set(struct pool_sandbox *sb, int64_t end_ns);
/* The directory of the capture that its lease's end makes; NULL where it is killed. Caller frees. */
char *pool_lease_pause_dir(const struct pool_sandbox *sb);
/* 0 → the default; -EINVAL where it is longer than the configuration allows. */
int pool_lease_check(const struct pool *p, uint64_t *timeout_ms, struct err *err);

/* ---- work on the disk, off the loop (pool_work.c) ---------------------------------------------- */

struct pool_works;
int pool_works_new(struct loop *l, struct pool_works **ret, struct err *err);
/* Waits for what is being done; what is only queued is done too. done() is not called any more. */
void pool_works_free(struct pool_works *w);
/* @run in another thread, then @done in the loop (may be NULL). Two threads, first come first served. */
void pool_work(struct pool_works *w, void (*run)(void *arg), void (*done)(void *arg), void *arg);
/* Rename @path into the trash now, remove it later. What is not there is no error. */
int pool_trash(struct pool *p, const char *path, struct err *err);

/* ---- the pool ------------------------------------------------------------------------------- */

struct pool_key {
	struct pool_key *next;
	char name[LIMIT_NAME_SIZE];
	double tokens;
	int64_t at;
};

struct pool {
	struct loop *loop;
	const struct config *config;
	int lock_fd;
	char *state, *sockets, *store_dir;
	struct store *store;
	struct pool_works *works;
	struct pool_cgroups *cgroups;
	bool draining, opening;

	/* the store, as of this index.json */
	struct {
		dev_t dev;
		ino_t ino;
		off_t size;
		struct timespec mtime;
		bool read;
	} index;
	struct pool_version *versions;
	struct pool_tag *tags; /* sorted by name and tag */
	size_t n_tags;

	struct pool_sandbox *buckets[POOL_BUCKETS];
	struct pool_sandbox *newest;
	size_t counts[POOL_ENDING + 1], n_sandboxes;
	struct pool_machine *machines;
	struct pool_key *keys;

	struct pool_handout *jobs, *queue, **queue_tail;
	unsigned slots, slots_used;
	int64_t job_ended; /* when the last one did */
	int64_t refill_starved; /* since when it yields to creates; 0: it does not */
	double refill_tokens;
	int64_t refill_at;
	struct loop_timer *refill_timer, *tick_timer;

	struct pool_transition *changes;
	struct pool_burial *burials; /* guests to be freed in the next round */
	struct pool_later *later; /* answers to be given in the next round */
	struct pool_looking *looking; /* questions to keepers */
	void (*on_create)(
		void *user, const struct pool_sandbox_info *f, bool ok, const json_t *parts);
	void *on_create_user;
};

/* Forget the questions that keepers have not answered: nobody is told (pool_free()). */
void pool_looking_free_all(struct pool *p);
/* Call @fn in the next round. */
void pool_later(struct pool *p, pool_fn *fn, void *user, int error, const char *text);
/* The same with err's text. @r: a negative errno. */
void pool_fail_later(struct pool *p, pool_fn *fn, void *user, int r, const struct err *err);
/* "STATE/SUB/ID", "STATE/SUB/ID.json", "STATE/captures/ID-N"; caller frees. */
char *pool_path(const struct pool *p, const char *sub, const char *id);
char *pool_note_path(const struct pool *p, const char *sub, const char *id);
char *pool_capture_path(const struct pool *p, const char *id, unsigned generation);
/* Is @name "ID.json"? Then the id. */
bool pool_note_name(const char *name, char ret[static POOL_ID_SIZE]);
/* Is there a whole capture? */
bool pool_capture_whole(const char *dir);

/* ---- templates (pool_template.c) --------------------------------------------------------------- */

/* Look whether the store has changed, and take in what it has. */
int pool_store_refresh(struct pool *p, struct err *err);
/* What @ref names now. -ENOENT. */
int pool_version_resolve(struct pool *p, const char *ref, struct pool_tag *ret, struct err *err);
/* The version that a record tells of, tagged or not; known from then on. */
struct pool_version *pool_version_of(struct pool *p, const struct pool_record *n);
/* Its zygote, started where there is none. */
int pool_version_zygote(struct pool_version *v, struct err *err);
void pool_version_failed(struct pool_version *v, const char *text);
/* Ends zygotes that nobody needs, forgets versions that nothing is made of. */
void pool_versions_sweep(struct pool *p);
void pool_versions_configure(struct pool *p);
void pool_versions_free(struct pool *p);

/* ---- machines from our end (pool_machine.c) ------------------------------------------------------ */

/* Make one for @v, or from a capture. */
int pool_machine_make(struct pool_version *v, const char *capture, bool same_identity,
	enum pool_use use, struct pool_machine **ret, struct err *err);
int pool_machine_adopt(
	struct pool *p, const char *path, struct pool_machine **ret, struct err *err);
/* Kill it; @gone (may be NULL) when it is. Whoever had it must have let go. */
void pool_machine_end(
	struct pool_machine *m, void (*gone)(void *user, int error, const char *text), void *user);
/* Let go of the connection alone: one with a lease goes on. */
void pool_machine_free(struct pool_machine *m);

/* ---- shells and spares (pool_stock.c) ---------------------------------------------------------- */

/* A spare, else a shell, taken out of the stock. NULL: none. */
struct pool_machine *pool_stock_take(struct pool_version *v, const char **ret_mode);
/* One in the stock has ended; it is freed after this. */
void pool_stock_ended(struct pool_machine *m, const char *text);
void pool_stock_arrival(struct pool_version *v);
/* Arrivals a second, now. */
double pool_stock_rate(const struct pool_version *v);
void pool_stock_want(struct pool_version *v, unsigned ret[static 2]);
/* Make what is missing, as far as it may be now. */
void pool_stock_refill(struct pool *p);
void pool_stock_end(struct pool_version *v);
/* What those that wait cost, of other versions than @keep (NULL: of all). */
uint64_t pool_stock_bytes(const struct pool *p, const struct pool_version *keep);
/* End one that waits, of another version than @keep (NULL: of any). False: there is none. */
bool pool_stock_give_up(struct pool *p, const struct pool_version *keep);
/* What a machine of @v costs the host. */
uint64_t pool_version_cost(const struct pool_version *v);
/* The pure parts: the smoothed rate after @dt_s with @arrivals more; how many should be ready. */
double pool_rate_next(double rate, double dt_s, unsigned arrivals);
unsigned pool_rate_target(double rate, double make_s, unsigned max);

/* ---- limits (pool_limits.c) -------------------------------------------------------------------- */

/* May @key make @n more, of @v? -EDQUOT, -EAGAIN, -ENOMEM. @create: taken from its allowance. @stocked: what
 * waits of @v will do. Shells and spares are ended where their memory is needed. */
int pool_limits_check(struct pool *p, const char *key, const struct pool_version *v, unsigned n,
	bool create, bool stocked, struct err *err);
uint64_t pool_memory_used(const struct pool *p);
/* The token bucket: may one be taken at @now? */
bool pool_tokens_take(double *tokens, int64_t *at, int64_t now, double per_s, double depth);
void pool_keys_free(struct pool *p);

/* ---- cgroups (pool_cgroup.c) --------------------------------------------------------------------- */

struct pool_cgroups;
/* Never fails: where the host gives no right to it, that is said once. */
struct pool_cgroups *pool_cgroups_open(const char *below);
void pool_cgroups_free(struct pool_cgroups *c);
/* Put the monitor @pid of sandbox @id into one of its own. */
struct pool_cgroup *pool_cgroup_new(struct pool_cgroups *c, const char *id, int pid,
	uint64_t memory_bytes, uint64_t pids, unsigned vcpus);
/* Its machine is gone. */
void pool_cgroup_free(struct pool_cgroup *g);
/* Remove those whose machine is gone by now. */
void pool_cgroups_sweep(struct pool_cgroups *c);

/* ---- creates (pool_create.c) --------------------------------------------------------------------- */

/* A job's done() for what is created or forked. */
void pool_create_done(struct pool_handout *j, int error, const char *text, const json_t *reply);

/* ---- what rests (pool_rest.c) -------------------------------------------------------------------- */

/* Write STATE/paused/ID.json, off the loop, then call @done. */
void pool_paused_note(
	struct pool_sandbox *sb, void (*done)(void *user, int error, const char *text), void *user);
/* Remove one capture of it. */
void pool_paused_clear_one(struct pool_sandbox *sb, unsigned generation);
/* Remove it, and all captures that @sb may have. 0, or -errno where its record stays. */
int pool_paused_clear(struct pool_sandbox *sb, struct err *err);

/* ---- changes, snapshots (pool_transition.c, pool_fork.c, pool_snapshot.c) ------------------------------ */

/*
 * Something on its way that needs the sandbox for itself: at most one at a time. It outlives its sandbox
 * while a work of its own is on the disk (pending), then without it.
 */
struct pool_transition {
	struct pool *pool;
	struct pool_transition *next, *prev; /* of all */
	struct pool_sandbox *sb; /* NULL: lost, or it is not needed any more */
	unsigned pending; /* works and jobs that will come back */
	/* the sandbox ended: answer whoever waits for it */
	void (*lost)(struct pool_transition *c, int error, const char *text);
	/* its keeper answered: captured */
	void (*captured)(struct pool_transition *c, int error, const char *text);
	pool_fn *fn;
	void *user;

	int channel; /* pause: the guest's, for when it fails; -1: none */
	pool_fn *kill_fn; /* pause: it is to be killed when it is paused */
	void *kill_user;
	bool kill;

	char *capture; /* fork, snapshot: what it makes, or another's */
	bool own; /* it is not another's: it goes where it is not wanted */
	unsigned count; /* fork */
	uint64_t timeout_ms;

	char id[POOL_ID_SIZE]; /* snapshot */
	char *name;
	bool only_new; /* what is in the store under that name stays */
	json_t *record;
	char *from; /* the capture to copy */
	void (*done)(void *user, const char *snapshot_id, int error, const char *text);
	int error; /* of a work */
	struct err err;
	struct pool_publish *publish;
};

/* Begin one: -ENOENT, -EBUSY with why not. @state: that it must be in (or PAUSED, where @or_paused). */
int pool_transition_begin(struct pool *p, const char *id, bool or_paused,
	struct pool_transition **ret, struct err *err);
/* Capture its sandbox, which runs, into c->capture; then captured(). */
void pool_transition_capture(struct pool_transition *c, const char *dir, bool stop);
/* It does not need the sandbox any more. */
void pool_transition_release(struct pool_transition *c);
void pool_transition_free(struct pool_transition *c);
/* A pause, snapshot or fork has failed, as its sandbox is ending. */
void pool_transition_lost(struct pool_sandbox *sb, const char *text);
/* Its state has changed: whoever wanted it to run asks again. */
void pool_waiters_wake(struct pool_sandbox *sb);
/* It ended, and rests in a whole capture. */
void pool_transition_rested(struct pool_sandbox *sb);
void pool_transition_free_all(struct pool *p);
/* Is it PAUSING with its machine on its way out? Then @fn gets its kill. */
bool pool_transition_kill(struct pool_sandbox *sb, pool_fn *fn, void *user);

/* A process of its own puts the capture @dir into the store (pool_publish.c); @done from the loop. */
int pool_publish_start(struct pool *p, const char *dir, const char *name, bool only_new,
	void (*done)(void *user, int error, const char *text), void *user,
	struct pool_publish **ret, struct err *err);
/* Kill it. */
void pool_publish_free(struct pool_publish *w);
/* The record of snapshot @id, and where its capture is. -ENOENT. Caller frees both. */
int pool_snapshot_find(
	struct pool *p, const char *id, json_t **ret_record, char **ret_capture, struct err *err);

/* Remove its record and its capture; what is not there is no error. */
int pool_snapshot_clear(struct pool *p, const char *id, struct err *err);

/* ---- what was there before (pool_adopt.c) -------------------------------------------------------- */

int pool_adopt(struct pool *p, struct err *err);
/* What came of a machine that was asked who it is. */
void pool_adopt_ended(struct pool_machine *m, const char *text);

/* ---- the way out (pool_egress.c) ------------------------------------------------------------------ */

/* For a sandbox that may reach somewhere, with its guest open: serve it. */
int pool_egress_new(struct pool_sandbox *sb, struct err *err);
void pool_egress_free(struct pool_egress *e);
/* The variables that lead there, over those of @sb's own: a new object. */
json_t *pool_egress_env(const struct pool_record *n);

#endif
