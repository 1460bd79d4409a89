/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_PROVE_SUBJECT_H
#define PARBAKE_PROVE_SUBJECT_H

#include "bake/ext4/read.h"
#include "common/progress.h"
#include "prove/inventory.h"
#include "store/snapshot.h"
#include "store/store.h"

/* A template version that something is to be said of: its config, its disk, and the packages on it. */
struct subject {
	struct snapshot_config config;
	int disk_fd; /* the whole disk, raw, in the host's cache */
	struct ext4_image *disk;
	struct inventory packages;
};

#define SUBJECT_INIT                                                                               \
	{                                                                                          \
		.disk_fd = -1                                                                      \
	}

/*
 * Open version @m of @s: its disk is expanded into the cache where it is not there yet (seconds).
 * Caller calls subject_clear(). -EBADMSG: it is damaged, or its disk is no ext4.
 */
int subject_open(struct store *s, const struct store_manifest *m, struct progress *progress,
	struct subject *ret, struct err *err);
void subject_clear(struct subject *s);
#define cleanup_subject cleanup_with(subject_clear)

#endif
