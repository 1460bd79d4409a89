/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_CLEANUP_H
#define PARBAKE_COMMON_CLEANUP_H

/*
 * Cleanup by attribute. Each handler keeps errno, so `return -errno` after a
 * failed call is right whatever goes out of scope. Hand a resource over with
 * steal_fd() or steal_ptr().
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free_(void *p)
{
	int saved = errno;

	free(*(void **)p);
	errno = saved;
}

static inline void cleanup_fd_(const int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	errno = saved;
}

static inline void cleanup_file_(FILE **f)
{
	int saved = errno;

	if (*f)
		fclose(*f);
	errno = saved;
}

static inline void cleanup_dir_(DIR **d)
{
	int saved = errno;

	if (*d)
		closedir(*d);
	errno = saved;
}

#define cleanup_with(f) __attribute__((__cleanup__(f)))
#define cleanup_free cleanup_with(cleanup_free_)
#define cleanup_fd cleanup_with(cleanup_fd_)
#define cleanup_file cleanup_with(cleanup_file_)
#define cleanup_dir cleanup_with(cleanup_dir_)

/* The descriptor now belongs to the caller's caller; @fd becomes -1. */
static inline int steal_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

static inline void *steal_ptr_(void *pp)
{
	void **ptr = pp;
	void *taken = *ptr;

	*ptr = NULL;
	return taken;
}

#define steal_ptr(pp) ((__typeof__(*(pp)))steal_ptr_(pp))

/* Close @fd unless it is -1, keep errno, leave -1. */
static inline void close_fd(int *fd)
{
	cleanup_fd_(fd);
	*fd = -1;
}

/* Define the cleanup handler `name_p_` for a pointer type freed by @free_fn. */
#define DEFINE_CLEANUP(type, free_fn)                                                              \
	static inline void free_fn##_p_(type *p)                                                   \
	{                                                                                          \
		int saved = errno;                                                                 \
                                                                                                   \
		if (*p)                                                                            \
			free_fn(*p);                                                               \
		errno = saved;                                                                     \
	}

#endif
