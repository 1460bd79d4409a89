/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_PATHS_H
#define PARBAKE_COMMON_PATHS_H

#include "common/err.h"

/*
 * The three directories that parbake uses, its places (docs/files.md): store, cache, run. As root
 * below /var and /run, otherwise the XDG directories; PARBAKE_HOME moves all three under one
 * directory. Each is made 0700 when first asked for. Decided once a process.
 */
enum paths_place { PATHS_STORE, PATHS_CACHE, PATHS_RUN };

/* The absolute path of a place, made if it was not there. Borrowed for ever. */
int paths_get(enum paths_place place, const char **ret, struct err *err);
/* @sub (one or more components) below a place, made 0700. Caller frees *@ret. */
int paths_sub(enum paths_place place, const char *sub, char **ret, struct err *err);
/* A file that parbake came with ("kernel", "libparbake-uffd.so", "templates"):
 * $PARBAKE_LIBDIR, else the directory of the running program + /build, ../lib/parbake beside
 * that, else the installed libdir. -ENOENT with what was tried. Caller frees. */
int paths_lib(const char *name, char **ret, struct err *err);

#endif
