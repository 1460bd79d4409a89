/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_CONSOLE_H
#define PARBAKE_VMM_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/*
 * Consoles: what a machine prints (its guest's serial console, its monitor's standard error). Each
 * is a pipe that is always drained, and its newest bytes are kept. All functions may be called from
 * any thread, but console_free() only when nobody else uses that console.
 */
struct console;

/*
 * Make a console that keeps the newest @size bytes. *@ret_fd is the pipe's writing end: pass it to
 * a child and close it.
 */
int console_new(size_t size, struct console **ret, int *ret_fd, struct err *err);
void console_free(struct console *c);
/*
 * End the thread that drains the consoles, before a fork; the next console_new() starts another.
 * False: there are consoles, and the thread stays.
 */
bool console_stop(void);

/* How many bytes were ever printed, what waits in the pipe included. */
uint64_t console_total(struct console *c);
/*
 * Copy at most @len bytes from position *@pos (counted from the first byte ever) and advance it;
 * bytes that are no longer kept are skipped. 0: there is nothing new.
 */
size_t console_read(struct console *c, uint64_t *pos, char *buf, size_t len);
/*
 * All bytes that are kept, made fit for a terminal (printable ASCII, tabs and newlines; no escape
 * sequences), NUL-terminated. Caller frees. NULL without memory.
 */
char *console_text(struct console *c);
/*
 * The last lines of a text, at most @max bytes of it: the place in @text where they begin. For
 * messages.
 */
const char *console_tail(const char *text, size_t max);

#endif
