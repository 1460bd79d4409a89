/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_BAKE_H
#define PARBAKE_BAKE_BAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "bake/plan/plan.h"
#include "bake/recipe/recipe.h"
#include "common/progress.h"
#include "store/snapshot.h"
#include "store/store.h"
#include "vmm/monitor.h"

/*
 * Bakes. A bake from beginning to end: recipe → source → root disk → booted, installed, warmed →
 * captured → tried → published. Nothing has a name in the store before all of it is done, so a bake
 * that fails or is killed leaves the earlier version as it was. A host bakes a recipe once at a
 * time; another bake of it waits.
 */

/* Where a bake stands when its caller may stop it. */
enum bake_point {
	BAKE_PLANNED, /* all inputs are known, nothing was done */
	BAKE_ROOTED, /* the root disk is there */
	BAKE_MADE, /* the version is there: tried and not published yet, or published before and up to date */
};

/* What is known then. All of it is borrowed. */
struct bake_view {
	const struct recipe *recipe;
	const struct plan *plan;
	int64_t epoch;
	const char *kernel_digest, *agent_digest;
	const struct monitor_facts *monitor;
	enum machine_accel accel;
	int root_fd; /* from BAKE_ROOTED on; -1 where the version was up to date */
	const char *root_digest;
	struct store *store;
	const struct store_manifest *made; /* BAKE_MADE */
};

/* A value other than 0 ends the bake with it; nothing is published then. */
typedef int bake_check_fn(
	void *user, enum bake_point point, const struct bake_view *view, struct err *err);

/* How to bake. All of it is borrowed. */
struct bake_options {
	const char *tag; /* NULL: "latest" */
	/* this stage and those after it are done anew; PLAN_STAGES: what is cached is used */
	enum plan_stage from;
	enum machine_accel accel;
	struct progress *progress; /* may be NULL */
	bake_check_fn *check; /* called at each point; may be NULL */
	void *check_user;
	const char *sources; /* a directory with saved sources (bake_fetch()); NULL: none */
	bool dry; /* only say whether the version is up to date */
};

struct bake_result {
	bool up_to_date; /* nothing was to be done */
	/* of a dry run that is not up to date: the first stage to be done; PLAN_STAGES: no version has the tag */
	enum plan_stage first;
	struct store_manifest manifest;
	uint64_t memory_data_bytes, memory_stored_bytes, delta_bytes;
	uint64_t boot_ms;
};

/*
 * Bake @r into @s. -EINVAL: opt->tag is not a valid tag. Otherwise the errno of what failed; @err
 * says what that was.
 */
int bake_run(struct store *s, const struct recipe *r, const struct bake_options *opt,
	struct bake_result *ret, struct err *err);
void bake_result_clear(struct bake_result *r);
/*
 * The first part of a bake alone: source and root disk, into the cache, where bake_run() finds
 * them. It needs neither a guest kernel nor a monitor. Of @opt, only `from`, `sources` and
 * `progress` are used.
 */
int bake_root(const struct recipe *r, const struct bake_options *opt, struct err *err);
/* Save what the sources of @r take from a network in the directory @dir. Of @opt, only `progress` is used. */
int bake_fetch(
	const struct recipe *r, const struct bake_options *opt, const char *dir, struct err *err);
#define cleanup_bake_result cleanup_with(bake_result_clear)

#endif
