/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_PROC_H
#define PARBAKE_COMMON_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/confine.h"
#include "common/err.h"

/* Child processes: started with exactly the descriptors named, watched by pidfd. */

#define PROC_FDS_MAX 32

struct proc_spec {
	const char *const
		*argv; /* NULL-terminated; argv[0] looked up in PATH unless it has a '/' */
	const char *const *env; /* NULL-terminated "K=V"; NULL: the parent's */
	/* descriptor `from` of this process becomes `to` there (to ≥ 0). 0, 1 and 2 are
	 * /dev/null unless mapped (2 is inherited where keep_stderr). All other descriptors are
	 * closed. */
	struct {
		int from, to;
	} fds[PROC_FDS_MAX];
	size_t n_fds;
	bool keep_stderr;
	bool die_with_parent; /* PR_SET_PDEATHSIG SIGKILL (of the calling thread!) */
	bool new_session;
	const char *cwd;
	/* what the child gives up before its program starts (CONFINE_MAY_EXEC is needed); NULL:
	 * nothing. A program that the user it becomes cannot reach by name is started by
	 * descriptor. */
	const struct confine *confine;
};

struct proc {
	pid_t pid; /* 0: none */
	int pidfd; /* readable when it has ended; -1: none */
};

#define PROC_INIT                                                                                  \
	{                                                                                          \
		.pid = 0, .pidfd = -1                                                              \
	}

/* The program to start for a process of parbake's own: PARBAKE_EXE, else this program where it is
 * parbake, else the one in PATH. Borrowed for ever. */
const char *proc_program(void);

/* Map one more descriptor; aborts past PROC_FDS_MAX (a bug). */
void proc_map_fd(struct proc_spec *spec, int from, int to);

/* Start it. An exec that fails is an error here (-ENOENT …), not an exit status. Uses
 * vfork-like cloning: its cost does not grow with this process's memory. */
int proc_start(const struct proc_spec *spec, struct proc *ret, struct err *err);
/* Send a signal by pidfd; 0 where it is gone already. */
int proc_signal(const struct proc *p, int sig);
/* Has it ended? Does not reap. */
bool proc_ended(const struct proc *p);
/*
 * Wait at most until @deadline (clock.h) and reap: *@ret_status as waitpid(2) gives it. -ETIMEDOUT
 * leaves it running. After success @p is PROC_INIT. It is so after -ECHILD too: the child has
 * ended, but the kernel kept no status (SIGCHLD is ignored).
 */
int proc_wait(struct proc *p, long long deadline, int *ret_status);
/* SIGKILL and reap, if there is one. */
void proc_kill(struct proc *p);
#define cleanup_proc __attribute__((__cleanup__(proc_kill)))

/*
 * Run to the end, its standard output (≤ @max bytes, else -EFBIG) into fresh memory; a status other
 * than 0 is an error that quotes the end of its standard error. This function makes @spec's mapping
 * of 1 and 2. Caller frees *@ret_out.
 */
int proc_output(
	const struct proc_spec *spec, int timeout_ms, size_t max, char **ret_out, struct err *err);

#endif
