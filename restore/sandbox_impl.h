/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_SANDBOX_IMPL_H
#define PARBAKE_RESTORE_SANDBOX_IMPL_H

#include "restore/sandbox.h"

/* What sandbox.c needs of a template. */

/* What does not change: borrowed as long as the template. */
const struct machine_shape *template_shape(const struct template *t);
int template_state_fd(const struct template *t);
/* -1: there are none. */
int template_translations_fd(const struct template *t);
/* The key of its memory, which is what translations are of. */
const char *template_memory_key(const struct template *t);
/* "name:tag", for errors. */
const char *template_label(const struct template *t);
/*
 * Memory for one more machine: a memfd, and a socket for it to attach by (-1: the private way),
 * both the caller's. A pager that is gone is replaced. Any thread.
 */
int template_memory(struct template *t, int *ret_memory, int *ret_pager, struct err *err);
/* Is the pager gone? Then, or where it knows of a failure, that is put behind @err. @ended: a machine of it has
 * ended, so it may be about to. */
void template_explain(struct template *t, bool ended, struct err *err);

#endif
