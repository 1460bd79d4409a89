/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_ROOT_H
#define PARBAKE_AGENT_ROOT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Opening by path beneath the root: `..` and links resolve as if the root were /, and
 * the kernel's magic links in /proc are refused. May block on a disk: for workers
 * and for small files.
 */

/* openat2(2) of @path (absolute or not) beneath agent.root. A descriptor or -errno. */
int root_open(const char *path, int flags, mode_t mode);
/* A regular file for reading, however the path's file may try to block or act on open:
 * a descriptor, or -EINVAL where it is not a regular file. */
int root_open_file(const char *path);
/* A small regular file as a string, caller frees; NULL: -errno in *@ret_err. */
char *root_read(const char *path, size_t max, int *ret_err);

#endif
