/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_FILE_H
#define PARBAKE_COMMON_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

/* Files: whole reads and writes, directories, and publishing. All of it may be
 * called from any thread. Paths are relative to the descriptor @dirfd where
 * there is one (AT_FDCWD allowed). */

/* Read exactly @len bytes at @offset. -ENODATA where the file ends before. */
int file_pread_full(int fd, void *buf, size_t len, off_t offset);
/* Write all of it, at the file's offset (or at @offset). */
int file_write_full(int fd, const void *buf, size_t len);
int file_pwrite_full(int fd, const void *buf, size_t len, off_t offset);

/*
 * Read a whole file of at most @max bytes into fresh memory, NUL-terminated
 * (the NUL is not counted). Caller frees *@ret. -EFBIG where it is longer. The first: what is left
 * of an open one, @name in errors.
 */
int file_read_rest(
	int fd, const char *name, size_t max, char **ret, size_t *ret_len, struct err *err);
int file_read_all(
	int dirfd, const char *path, size_t max, char **ret, size_t *ret_len, struct err *err);

/*
 * Copy the first @len bytes of @from to @to, a new file of that length (or longer): holes stay holes, blocks are
 * shared where the file system can. Moves @from's offset. @go_on (may be NULL) is asked between steps: what it
 * returns, if not 0, ends it. -errno.
 */
int file_copy_sparse(int from, int to, uint64_t len, int (*go_on)(void *user), void *user);

/* mkdir -p; what is made gets @mode, whatever the umask. */
int file_mkdir_p(const char *path, mode_t mode, struct err *err);

/*
 * Remove a tree beneath @dirfd without following links or crossing file
 * systems. What is already gone is no error.
 */
int file_remove_tree(int dirfd, const char *name, struct err *err);

/*
 * A file that others see whole or not at all: written without a name (O_TMPFILE), so that who dies on
 * the way leaves nothing; then fsync, named in its directory, fsync of the directory. Where the file
 * system cannot do that it has a temporary name meanwhile, which begins with ".tmp-".
 */
struct publish {
	int fd; /* write here; -1 once finished */
	int dirfd; /* owned */
	char tmp[64]; /* "": it has no name */
};

#define PUBLISH_INIT                                                                               \
	{                                                                                          \
		.fd = -1, .dirfd = -1                                                              \
	}

/* Begin in @dir (opened here). */
int publish_begin(struct publish *p, const char *dir, struct err *err);
/* Give it its name @name in the directory, with @mode, replacing what is there. */
int publish_commit(struct publish *p, const char *name, mode_t mode, struct err *err);
/* Remove what was not committed, close. Harmless after commit or on PUBLISH_INIT. */
void publish_end(struct publish *p);
#define cleanup_publish __attribute__((__cleanup__(publish_end)))

/* publish_begin + write + publish_commit. */
int file_publish(const char *dir, const char *name, const void *data, size_t len, mode_t mode,
	struct err *err);

/* A descriptor for scratch data in @dir to which no name leads. Caller closes. -errno. */
int file_scratch(const char *dir, struct err *err);

/*
 * Take flock(2) on @name in @dir, made if absent. Waits where @wait, else
 * -EWOULDBLOCK. Returns the descriptor that holds the lock (close releases it).
 */
int file_lock(const char *dir, const char *name, bool exclusive, bool wait, struct err *err);

#endif
