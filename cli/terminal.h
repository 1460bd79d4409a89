/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_TERMINAL_H
#define PARBAKE_CLI_TERMINAL_H

#include <stddef.h>

/* The terminal of `parbake run --tty` and `exec -t`; one a process. */

/* The size of the terminal at standard output, else at standard input or error (the others may be pipes),
 * else 24 by 80. */
void terminal_size(unsigned *ret_rows, unsigned *ret_cols);
/* Where standard input is a terminal: every key goes to the guest, until terminal_restore(); a signal
 * that ends us restores it too. */
void terminal_raw(void);
void terminal_restore(void);
/* Readable when the terminal's size has changed: for guest_exec_spec.resize_fd, with terminal_resized() as
 * .resize. -1: it cannot be told. The caller closes it. */
int terminal_resize_fd(void);
void terminal_resized(void *fd, unsigned *ret_rows, unsigned *ret_cols);
/* Write all of a command's output to our own @fd; one that others made non-blocking is waited for.
 * -errno. */
int terminal_pass(int fd, const void *bytes, size_t len);

#endif
