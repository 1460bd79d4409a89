/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_SANDBOX_PRIVATE_H
#define PARBAKE_RESTORE_SANDBOX_PRIVATE_H

#include <sys/stat.h>

#include "restore/pager/memory_delta.h"
#include "restore/sandbox.h"

/* Templates and sandboxes from inside: what sandbox.c and checkpoint*.c need of them. */

/* What does not change: borrowed as long as the template. */
const struct machine_shape *template_shape(const struct template *t);
int template_state_fd(const struct template *t);
int template_image_fd(const struct template *t); /* of its memory */
bool template_counts_cpu(const struct template *t);
/* The key of the template's memory, under which its translations are kept. */
const char *template_memory_key(const struct template *t);
/* "name:tag", for errors. */
const char *template_label(const struct template *t);
void template_get_name(const struct template *t, char ret_name[static LIMIT_NAME_SIZE],
	char ret_tag[static LIMIT_NAME_SIZE]);
/* The digest of its manifest, and the store's directory that it was opened in. */
const char *template_manifest(const struct template *t);
const char *template_store(const struct template *t);

/* The memory delta of a machine, in the two forms in which it is needed. Borrowed. */
struct template_own {
	int image_fd;
	const struct snapshot_ranges *ranges;
	struct memory_delta *delta;
};
/*
 * Memory for one more machine: a memfd, and a socket for it to attach by (-1: the private way),
 * both the caller's. @own may be NULL; *@ret_own_in as pager_client_attach() has it. A pager that
 * is gone is replaced. Any thread.
 */
int template_memory(struct template *t, const struct template_own *own, int *ret_memory,
	int *ret_pager, int *ret_own_in, struct err *err);
/* Put behind @err that the pager is gone, or the failure that it knows of, where one of the two
 * is so. @ended: a machine has ended, so the pager may be about to end. */
void template_explain(struct template *t, bool ended, struct err *err);

/* What became of a request that was sent ahead. */
struct sandbox_sent {
	struct sandbox *sandbox;
	bool done;
	int error;
	char text[256];
	int64_t at; /* when it was answered */
};

/* A sandbox from inside. */
struct sandbox {
	struct template *t;
	struct machine *machine;
	struct guest *guest;
	int overlay_fd;
	enum {
		SANDBOX_STANDBY,
		SANDBOX_LOADED,
		SANDBOX_SPARE,
		SANDBOX_ACTIVE,
		SANDBOX_FAILED
	} stage;
	struct sandbox_sent identity, thaw;
	bool answered; /* both */
	struct sandbox_trace trace, cpu;
	char machine_id[33], hostname[64]; /* that the guest was told last */
	struct stat memory; /* of the file that its memory is mapped from */
	/* made from a checkpoint: */
	int state_fd; /* -1: the template's */
	bool keep_identity; /* machine_id and hostname are told again as they are */
	bool spare; /* sandbox_prepare() has restored it, and it has its own identity */
	struct snapshot_ranges own; /* these pages are not the template's, touched or not */
	int own_in; /* from pager_client_attach(): says whether it has all of them; -1: it has */
};

#endif
