/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_BOOT_H
#define PARBAKE_BENCHES_BOOT_H

#include "common/smaps.h"
#include "common/err.h"
#include "restore/sandbox.h"
#include "store/store.h"

/*
 * The cold boot that a restore is compared with. Store, manifest and template are borrowed; functions block until the
 * machine has ended and return 0 or -errno.
 */

/* Called with a machine that has just booted; what it returns becomes bench_boot()'s value. */
typedef int bench_booted_fn(void *user, struct machine *m, struct guest *g, struct err *err);

/*
 * Boot the template's machine from its own kernel, initramfs and disk instead of restoring it.
 * *@ret: ns from the request to the agent's answer with the root mounted. @then (may be NULL)
 * follows before the machine ends.
 */
int bench_boot(struct store *s, const struct store_manifest *m, struct template *t, int64_t *ret,
	bench_booted_fn *then, void *user, struct err *err);
/* What the machine has in memory when its agent answers. */
int bench_boot_smaps(struct store *s, const struct store_manifest *m, struct template *t,
	struct smaps *ret, struct err *err);

#endif
