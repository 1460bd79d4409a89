/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error texts live in a fixed buffer, so that reporting "out of memory" needs
 * no memory. A text that does not fit is cut; it is never left half-formatted.
 */
#include "common/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void set_text(struct err *err, const char *fmt, va_list args)
{
	/* The arguments may point into the old text. */
	char text[ERR_TEXT_MAX];

	vsnprintf(text, sizeof(text), fmt, args);
	memcpy(err->text, text, strlen(text) + 1);
}

int(err_set)(struct err *err, int code, const char *fmt, ...)
{
	va_list args;

	if (err) {
		va_start(args, fmt);
		set_text(err, fmt, args);
		va_end(args);
	}
	return -code;
}

int(err_sys)(struct err *err, int code, const char *fmt, ...)
{
	va_list args;

	if (err) {
		va_start(args, fmt);
		set_text(err, fmt, args);
		va_end(args);
		err_append(err, ": %s", strerrordesc_np(code) ?: "unknown error");
	}
	return -code;
}

int err_of_files(int code)
{
	return code == ENOENT || code == EACCES || code == EPERM ? EIO : code;
}

void err_prefix(struct err *err, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX];
	va_list args;
	size_t len;

	if (!err)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	len = strlen(text);
	/* what does not fit of the old text is cut */
	if (snprintf(text + len, sizeof(text) - len, ": %s", err->text) < 0)
		return;
	memcpy(err->text, text, strlen(text) + 1);
}

void err_append(struct err *err, const char *fmt, ...)
{
	va_list args;
	size_t len;

	if (!err)
		return;
	len = strlen(err->text);
	va_start(args, fmt);
	vsnprintf(err->text + len, sizeof(err->text) - len, fmt, args);
	va_end(args);
}
