/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_BENCH_BOOT_H
#define PARBAKE_CLI_BENCH_BOOT_H

#include "benches/smaps.h"
#include "common/err.h"
#include "restore/sandbox.h"
#include "store/store.h"

/*
 * Boot the template's machine from its own kernel, initramfs and disk instead of restoring it: *@ret is the time
 * in nanoseconds from the request to the agent's answer with the root mounted.
 */
int bench_boot(struct store *s, const struct store_manifest *m, struct template *t, int64_t *ret,
	struct err *err);

/* The same for what the machine has in memory when its agent answers. */
int bench_boot_smaps(struct store *s, const struct store_manifest *m, struct template *t,
	struct smaps *ret, struct err *err);

#endif
