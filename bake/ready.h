/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_READY_H
#define PARBAKE_BAKE_READY_H

#include <stdbool.h>

#include "bake/oven.h"

/*
 * Run the recipe's ready check until it passes, at most READY_MS. While it waits, what the check says is shown, each
 * time that it says something else. A check that fails twice in the same way, which waiting cannot mend, ends the wait
 * at once. The error has the last line of what the check said, whole.
 */
#define READY_MS 300000
int ready_wait(struct oven *o, const struct recipe *r, struct err *err);

/* How one check ended. */
enum ready_verdict {
	READY_YES,
	READY_NOT_YET,
	READY_NEVER, /* should it end so again: nothing that time brings makes it pass */
};
/*
 * @service: the recipe starts something, which may make what the check looks for. *@ret_line (of the caller's, to be
 * freed): but for READY_YES, why, in one line.
 */
enum ready_verdict ready_judge(const struct guest_result *res, bool service, char **ret_line);

#endif
