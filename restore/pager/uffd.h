/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_PAGER_UFFD_H
#define PARBAKE_RESTORE_PAGER_UFFD_H

#include <linux/userfaultfd.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

/* userfaultfd(2): making one, reading it, answering it. Kernel documentation:
 * Documentation/admin-guide/mm/userfaultfd.rst. All functions may be called from any thread. */

/* The result of an answer, whatever its errno (restore/pager/uffd.c has the table). */
enum uffd_result {
	UFFD_DONE, /* all of the range */
	UFFD_EXISTS, /* a page was there already: its waiters still need their wake */
	UFFD_AGAIN, /* the address space is changing: read the pending events, then try again */
	UFFD_NO_RANGE, /* the machine unmapped the range: wake the thread, and let it fault again */
	UFFD_NO_MEMORY, /* the host has no memory now: wake the thread, and let it fault again */
	UFFD_GONE, /* the machine's address space is no more */
	UFFD_BROKEN, /* never to happen: the machine must not run on */
};
const char *uffd_result_name(enum uffd_result r);

/* The features a machine's userfaultfd must have. */
#define UFFD_FEATURES                                                                              \
	(UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_EVENT_REMOVE)

/* Make a userfaultfd that traps kernel-mode faults too, close-on-exec, non-blocking, API agreed
 * with UFFD_FEATURES. *@ret_how (may be NULL): "/dev/userfaultfd" or "userfaultfd(2)". The error
 * names the knob. */
int uffd_create(const char **ret_how, struct err *err);
/* Register a private mapping of shared memory for missing and minor faults. */
int uffd_register(int fd, void *addr, size_t len);
/* Is @fd a userfaultfd? (It came from another process.) */
int uffd_check(int fd, struct err *err);
/*
 * Read the messages that wait: returns their number, 0, or -errno. This does not block, whatever
 * the other holder of the descriptor did to O_NONBLOCK (for 2 ms, before 6.10, and by means of
 * SIGRTMIN, whose handler becomes an empty one).
 */
ssize_t uffd_read(int fd, struct uffd_msg *msgs, size_t n);
extern atomic_bool uffd_no_nowait; /* as before 6.10; set by the first read, or by a test */

/*
 * Map the pages that are in the file, or zero pages, over [@addr, @addr + @len), waking the threads
 * that wait there. *@ret_done: bytes from @addr on that were mapped, whatever the result (a short
 * answer is progress).
 */
enum uffd_result uffd_continue(int fd, uint64_t addr, uint64_t len, uint64_t *ret_done);
/*
 * Give the machine pages that hold the @len bytes at @from and that it shares with nobody.
 * Otherwise as uffd_continue().
 */
enum uffd_result uffd_copy(
	int fd, uint64_t addr, const void *from, uint64_t len, uint64_t *ret_done);
enum uffd_result uffd_zeropage(int fd, uint64_t addr, uint64_t len, uint64_t *ret_done);
/* Wake the threads that wait in the range; they fault again where nothing was mapped. */
enum uffd_result uffd_wake(int fd, uint64_t addr, uint64_t len);

#endif
