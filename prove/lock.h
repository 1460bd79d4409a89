/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_PROVE_LOCK_H
#define PARBAKE_PROVE_LOCK_H

#include "bake/bake.h"
#include "common/err.h"
#include "common/str.h"
#include "prove/subject.h"

/*
 * Locks: every input of a bake with its version and digest, one a line, sorted (docs/format.md). All zero is
 * an empty one. One thread at a time.
 */
enum lock_kind {
	LOCK_AGENT,
	LOCK_ARCHIVE, /* [root] source = tar */
	LOCK_DEBIAN,
	LOCK_EPOCH,
	LOCK_FILE, /* of [files] */
	LOCK_KERNEL,
	LOCK_MONITOR,
	LOCK_NPM,
	LOCK_PARBAKE,
	LOCK_RECIPE,
	LOCK_ROOT, /* the root disk: what comes of the sources */
	LOCK_WHEEL,
	LOCK_KINDS
};

struct lock {
	struct lock_line {
		enum lock_kind kind;
		char *name, *version, *digest; /* "-" where there is none */
	} * lines;
	size_t n;
};

/* Read a lock's text; @path is what errors name. -EINVAL with the line; an unknown version is refused by name. */
int lock_parse(const char *path, const char *text, size_t len, struct lock *ret, struct err *err);
/* The text of a lock, which lock_parse() reads. Caller frees. */
char *lock_text(const struct lock *l);
void lock_clear(struct lock *l);
#define cleanup_lock cleanup_with(lock_clear)

/* NAME.lock beside the recipe. Caller frees. */
char *lock_path(const struct recipe *r);

/*
 * Compare: a line for a person in @drift for each difference between @want and @have in lines of the kinds in
 * @kinds (1 << enum lock_kind). @more: @want may have lines that are not in @have yet.
 */
void lock_compare(const struct lock *want, const struct lock *have, unsigned kinds, bool more,
	struct strings *drift);

/* The kinds that are known before a bake, and with the root disk. */
#define LOCK_INPUTS                                                                                \
	(1U << LOCK_AGENT | 1U << LOCK_ARCHIVE | 1U << LOCK_EPOCH | 1U << LOCK_FILE |              \
		1U << LOCK_KERNEL | 1U << LOCK_MONITOR | 1U << LOCK_PARBAKE | 1U << LOCK_RECIPE)

/* A bake that is held to a lock, or that one is made of. All zero but for what the caller sets. */
struct lock_watch {
	struct lock lock; /* held to; or made, complete once the bake has ended well */
	struct strings drift; /* from the lock, a line each */
};
void lock_watch_clear(struct lock_watch *w);
#define cleanup_lock_watch cleanup_with(lock_watch_clear)

/* bake_options.check, with a struct lock_watch: -ESTALE, and the drift, as soon as there is any. */
bake_check_fn lock_hold;
/* The same, which makes the lock. */
bake_check_fn lock_make;

#endif
