/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_POOL_PRIVATE_H
#define PARBAKE_POOL_POOL_PRIVATE_H

/*
 * The pool as a whole: the state that its parts share, its paths, and answers given from the loop
 * (pool/pool.c).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <time.h>

#include "common/err.h"
#include "common/json.h"
#include "common/limits.h"
#include "pool/pool.h"
#include "pool/sandbox_private.h"

struct config;
struct loop;
struct loop_timer;
struct pool_burial;
struct pool_cgroups;
struct pool_handout;
struct pool_later;
struct pool_question;
struct pool_machine;
struct pool_tag;
struct pool_publish;
struct pool_transition;
struct pool_version;
struct pool_works;
struct store;

#define POOL_BUCKETS 4096 /* of the hash by id */

struct pool_key {
	LIST_ENTRY(pool_key) link;
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
	LIST_HEAD(, pool_version) versions;
	struct pool_tag *tags; /* sorted by name and tag */
	size_t n_tags;

	LIST_HEAD(pool_bucket, pool_sandbox) buckets[POOL_BUCKETS];
	TAILQ_HEAD(, pool_sandbox) sandboxes; /* the newest first */
	size_t counts[POOL_ENDING + 1], n_sandboxes;
	LIST_HEAD(, pool_machine) machines;
	LIST_HEAD(, pool_key) keys;

	LIST_HEAD(, pool_handout) handouts;
	TAILQ_HEAD(, pool_handout) queue; /* hand-outs that wait for a slot */
	unsigned slots, slots_used;
	int64_t handout_ended; /* when the last hand-out ended */
	int64_t refill_starved; /* since when making standbys and spares has yielded to creates; 0: it does not */
	double refill_tokens;
	int64_t refill_at;
	struct loop_timer *refill_timer, *tick_timer;

	int64_t gc_at; /* when garbage is to be collected in the store; 0: never */
	int64_t gc_wanted_at; /* when gc may take what has lost its name last */
	struct pool_publish *gc; /* the collection of garbage under way */

	LIST_HEAD(, pool_transition) transitions;
	LIST_HEAD(, pool_burial) burials; /* guests to be freed in the next round */
	LIST_HEAD(, pool_later) later; /* answers to be given in the next round */
	LIST_HEAD(, pool_question) questions; /* questions to keepers */
	void (*on_create)(
		void *user, const struct pool_sandbox_info *f, bool ok, const json_t *parts);
	void *on_create_user;
};

/* Forget the questions that keepers have not answered; nobody is told. For pool_free(). */
void pool_looking_free_all(struct pool *p);
/* Call @fn with @error and @text in the loop's next round. */
void pool_later(struct pool *p, pool_fn *fn, void *user, int error, const char *text);
/* The same with the text of @err. @r: a negative errno. */
void pool_fail_later(struct pool *p, pool_fn *fn, void *user, int r, const struct err *err);
/*
 * The paths "STATE/SUB/ID", "STATE/SUB/ID.json" (a record) and "STATE/captures/ID-N" (a
 * checkpoint). Caller frees.
 */
char *pool_path(const struct pool *p, const char *sub, const char *id);
char *pool_record_path(const struct pool *p, const char *sub, const char *id);
char *pool_capture_path(const struct pool *p, const char *id, unsigned generation);
/* Is @name "ID.json", the file name of a record? Then @ret is the id. */
bool pool_record_name(const char *name, char ret[static POOL_ID_SIZE]);
/* Is there a whole checkpoint in @dir? */
bool pool_capture_whole(const char *dir);

#endif
