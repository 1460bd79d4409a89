/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_CAPTURE_H
#define PARBAKE_BAKE_CAPTURE_H

#include "bake/oven.h"
#include "bake/plan/plan.h"
#include "bake/root.h"
#include "bake/scan/lent.h"
#include "bake/recipe/recipe.h"
#include "store/snapshot.h"
#include "store/store.h"

/* What a machine is made from: all that is known of a snapshot before it is baked. All of it is borrowed. */
struct capture_what {
	const struct recipe *recipe;
	const struct plan *plan;
	const struct monitor_facts *monitor;
	enum machine_accel accel;
	const char *kernel_digest, *initrd_digest;
};

/* Fill in what of the config depends on that alone; @c was all zero, and the caller clears it. */
void capture_describe(const struct capture_what *what, struct snapshot_config *c);

/*
 * Capturing an oven's machine as a snapshot: what is captured, and what it was made from. All of it
 * is borrowed.
 */
struct capture_spec {
	struct capture_what what;
	struct store *store;
	const struct root_disk *root;
	const char *kernel, *initrd; /* paths */
	int64_t epoch;
	const char *scratch_dir;
	struct lent *lent; /* to the guest; nothing of it may be captured */
	struct progress *progress;
};

#define CAPTURE_LAYERS 8

/* The captured snapshot: blobs in the store that nothing names yet. */
struct capture {
	struct store_layer layers[CAPTURE_LAYERS];
	unsigned n_layers;
	json_t *config; /* owned */
	uint64_t memory_data_bytes, memory_stored_bytes, delta_bytes;
};

/*
 * Pause the machine, which must be quiet (guest_quiesce()), search it for what was lent (-EPERM:
 * something is there), and write device state, memory and disks into the store. The machine stays
 * paused and is of no more use. Caller calls capture_clear().
 */
int capture_machine(
	struct oven *o, const struct capture_spec *spec, struct capture *ret, struct err *err);
/* Add the working set to the capture, as one more blob. */
int capture_add_wset(
	struct capture *c, struct store *s, const struct snapshot_ranges *wset, struct err *err);
void capture_clear(struct capture *c);
#define cleanup_capture cleanup_with(capture_clear)

#endif
