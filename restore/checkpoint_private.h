/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_CHECKPOINT_PRIVATE_H
#define PARBAKE_RESTORE_CHECKPOINT_PRIVATE_H

/* Checkpoints from inside: what checkpoint*.c share, and what sandbox.c needs of a checkpoint. */

#include "common/json.h"
#include "common/limits.h"
#include "restore/checkpoint.h"
#include "restore/sandbox_private.h"

#define CHECKPOINT_FORMAT 1

#define CHECKPOINT_MEMORY "memory"
#define CHECKPOINT_DISK "disk"
#define CHECKPOINT_STATE "state"

/* A file of a checkpoint. */
struct checkpoint_file {
	uint64_t bytes; /* 0: there is none (no page of memory differs) */
	char digest[DIGEST_TEXT_SIZE];
};

/* capture.json. */
struct checkpoint_record {
	char manifest[DIGEST_TEXT_SIZE];
	char name[LIMIT_NAME_SIZE], tag[LIMIT_NAME_SIZE]; /* of the template, when it was opened */
	uint64_t memory_bytes, disk_bytes; /* of the machine */
	struct snapshot_ranges ranges; /* of memory, one behind the other in the image; owned */
	struct checkpoint_file memory, disk, state;
	uint64_t memory_raw, disk_raw; /* bytes of the delta */
	char machine_id[33], hostname[64];
	int64_t stopped_ns, created;
};
void checkpoint_record_clear(struct checkpoint_record *r);
#define cleanup_checkpoint_record __attribute__((__cleanup__(checkpoint_record_clear)))
/* The text, with its digest in it. Caller frees. */
char *checkpoint_record_text(const struct checkpoint_record *r);
/* Checked, field by field and as a whole. -EBADMSG. */
int checkpoint_record_parse(
	const void *text, size_t len, struct checkpoint_record *ret, struct err *err);

struct checkpoint {
	char *dir;
	struct checkpoint_record record;
	int memory_fd, disk_fd, state_fd; /* memory: -1 where there is none */
	struct memory_delta *memory;
};

/* Is @c a checkpoint of the template version @t? -EINVAL: it is not. */
int checkpoint_fits(const struct checkpoint *c, const struct template *t, struct err *err);
/*
 * What a machine made from @c gets: its memory delta in *@ret (borrowed), and the device state's
 * descriptor in *@ret_state (the caller closes it).
 */
int checkpoint_lend(
	const struct checkpoint *c, struct template_own *ret, int *ret_state, struct err *err);
void checkpoint_get_identity(
	const struct checkpoint *c, char ret_id[static 33], char ret_hostname[static 64]);
/* Copy the overlay of @c into the empty file @fd. */
int checkpoint_copy_overlay(const struct checkpoint *c, int fd, struct err *err);

/* checkpoint_memory.c: the memory of a paused machine. */
struct checkpoint_memory {
	struct machine *machine;
	const struct stat *file; /* the file that the machine maps as its memory */
	uint64_t bytes; /* of memory */
	struct image *image; /* the template's */
	int template_fd; /* the memfd of the template's pager */
	const struct snapshot_ranges *own; /* pages that count as the machine's own in any case */
	size_t max_ranges; /* more are joined; at most LIMIT_CAPTURE_RANGES */
	int64_t deadline;
};
/*
 * Write the pages in which the machine differs from the template into @fd (empty), one behind the
 * other; pages of zeros are left as holes. Their ranges go to *@ret, which the caller clears.
 */
int checkpoint_memory_take(
	const struct checkpoint_memory *m, int fd, struct snapshot_ranges *ret, struct err *err);

#endif
