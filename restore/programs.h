/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_PROGRAMS_H
#define PARBAKE_RESTORE_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/str.h"
#include "vmm/guest/guest.h"

/*
 * The programs that sandboxes start most. A bake runs them before the capture, so that what the
 * guest's kernel reads from the disk for them is in the snapshot's memory; and in a machine that was
 * restored from it, so that their translations are kept (restore/train.h).
 */
struct programs_one {
	const char *name; /* for whoever reads it */
	const char *needs; /* the program without which the line is left out; NULL: none */
	const char *line; /* for a shell */
};
#define PROGRAMS_MAX (16 + LIMIT_PROGRAMS)

/*
 * The programs of a template: in an @emulated machine those that parbake knows, and in any those
 * that its recipe names, @named shell lines, which *@ret borrows. Returns how many.
 */
size_t programs_list(
	const struct strings *named, bool emulated, struct programs_one ret[static PROGRAMS_MAX]);
/* The shell lines that a recipe names, to and from the "extra" of a config (docs/format.md). */
void programs_to_extra(const struct strings *named, json_t *extra);
void programs_from_extra(const json_t *extra, struct strings *ret); /* strings_clear() */

/*
 * Run one of them in the guest; how it ends does not matter. @env is NULL-terminated. @budget_ms: it
 * is killed after so long. 1: it ran; 0: the guest has it not; -errno: the guest cannot be spoken to.
 */
int programs_run(struct guest *g, int alive_fd, const char *const *env,
	const struct programs_one *p, int64_t budget_ms, struct err *err);

#endif
