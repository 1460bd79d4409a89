/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_OVEN_H
#define PARBAKE_BAKE_OVEN_H

#include <stdbool.h>
#include <stdint.h>

#include "bake/recipe/recipe.h"
#include "bake/scan/lent.h"
#include "common/json.h"
#include "common/progress.h"
#include "vmm/guest/guest.h"
#include "vmm/monitor.h"

/*
 * The oven, the machine that a template is baked in: booted once over the root disk, its memory in
 * a memfd of ours, what it writes in an overlay of ours. It dies with the thread that booted it and
 * leaves nothing.
 */
struct oven {
	struct machine *machine;
	struct guest *guest;
	int memory_fd, overlay_fd; /* owned; no name leads to them */
	int alive_fd; /* the machine's pidfd, borrowed */
	struct machine_shape shape;
	struct proto_hello hello;
	uint64_t tsc_khz; /* what the guest was told; 0: nothing */
	bool settled; /* of its oven_spec */
	bool bash; /* the guest has /bin/bash */
	struct progress *progress; /* borrowed; may be NULL */
	const struct lent *lent; /* borrowed; what is never shown; may be NULL */
	json_t *processes; /* owned; the record that guest_quiesce() makes (bake/processes.h) */
};

struct oven_spec {
	struct machine_shape shape;
	bool settled; /* programs lie at the same addresses every time: machine_cmdline() */
	const struct monitor_facts *monitor; /* NULL: monitor_probe()'s */
	const char *kernel, *initrd; /* paths */
	int disk_fd; /* the root disk, read-only; borrowed while the oven lives */
	uint64_t disk_bytes;
	const char *scratch_dir; /* where the overlay's file without a name is made */
	struct progress *progress;
};

/* Boot, wait for the agent and the root (machine_boot_wait()), set clock, entropy and names. */
int oven_boot(const struct oven_spec *spec, struct oven *ret, struct err *err);
void oven_clear(struct oven *o); /* harmless on OVEN_INIT */
#define OVEN_INIT                                                                                  \
	{                                                                                          \
		.memory_fd = -1, .overlay_fd = -1, .alive_fd = -1                                  \
	}
#define cleanup_oven cleanup_with(oven_clear)

#define OVEN_HOSTNAME "parbake" /* while it is baked */

/* Send a request without data to the agent, and wait for its reply at most @ms. */
int oven_call(struct oven *o, enum proto_type type, const struct proto_out *body, int64_t ms,
	struct err *err);
/* Put the newest lines of the console behind an error. */
void oven_explain(struct oven *o, struct err *err);

/*
 * Run one step's shell line (bash -e -o pipefail where the guest has bash, else sh -e): output
 * goes to the progress line by line; a status other than 0 is -EIO with the status and the last
 * lines of output. @label stands before both. @env is NULL-terminated.
 */
int oven_shell(struct oven *o, const char *label, const char *line, const char *const *env,
	struct err *err);
/* The same of code in the warm interpreter: an exception is -EIO with its traceback. */
int oven_python(struct oven *o, const char *label, const char *code, struct err *err);

#endif
