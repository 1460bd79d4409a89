/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_ERR_H
#define PARBAKE_COMMON_ERR_H

#include <errno.h>

/*
 * Errors, as a text for a person. Slow paths take a last `struct err *`: it is set on every failure
 * and left alone on success; callers put their context in front. The pointer may be NULL where
 * nobody will read it. Not shared between threads.
 */
#define ERR_TEXT_MAX 2048

struct err {
	char text[ERR_TEXT_MAX];
};

/*
 * Set the text (cut at ERR_TEXT_MAX) and return -@code, so that a failing
 * function can end with `return err_set(err, EINVAL, "...")`. @code is a
 * positive errno.
 */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As err_set(), with ": " and what errno @code means at the end. */
int err_sys(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/*
 * What a failed operation on the host's own files is to whoever asked for something else by name: ENOENT, EACCES and EPERM,
 * which would say that the thing asked for is not there, or not theirs, are EIO. @code: a positive errno, or 0.
 */
int err_of_files(int code);

#ifdef __clang_analyzer__
/* It does not look into err.c, and would follow paths on which a failure had returned 0. */
static inline int err_is_negative(int r)
{
	if (r >= 0)
		__builtin_unreachable();
	return r;
}
#define err_set(...) err_is_negative(err_set(__VA_ARGS__))
#define err_sys(...) err_is_negative(err_sys(__VA_ARGS__))
#endif
/* Put "fmt: " in front of the text that is there. */
void err_prefix(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Put text behind what is there (a way out, the last words of a console). */
void err_append(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
