/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_READY_H
#define PARBAKE_BAKE_READY_H

#include <stdbool.h>

#include "bake/oven.h"

/*
 * The ready check. ready_wait() runs the recipe's check until it passes, at most READY_MS. While it
 * waits, what the check prints is shown whenever it has changed. A check that fails twice in the
 * same way, which waiting cannot mend, ends the wait at once. The error has the last line of what
 * the check said, whole.
 */
#define READY_MS 300000
int ready_wait(struct oven *o, const struct recipe *r, struct err *err);

/* How one check ended. */
enum ready_verdict {
	READY_YES,
	READY_NOT_YET,
	READY_NEVER, /* waiting cannot make it pass, where it ends so a second time */
};
/*
 * @service: the recipe starts something, which may make what the check looks for. *@ret_line
 * (caller frees): why the check did not pass, in one line; not set for READY_YES.
 */
enum ready_verdict ready_judge(const struct guest_result *res, bool service, char **ret_line);

#endif
