/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_CONFINE_H
#define PARBAKE_COMMON_CONFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/err.h"

/*
 * Confinement: a process that hostile bytes reach gives up what it does not need: its user, its
 * capabilities, the network, the file system, most of the kernel's calls. docs/security.md has the
 * whole picture.
 *
 * As root a process becomes a user and group of its own, CONFINE_USERS + its process number: no two
 * live at the same time, nothing on the host belongs to them, and so they can neither signal nor
 * trace nor look into each other. Otherwise it keeps its user, and everything else is done all the
 * same.
 */

/* The first of 2^22 users (as many as there can be processes): a range that useradd, subuid(5) and
 * systemd leave alone. PARBAKE_USERS=N moves it. */
#define CONFINE_USERS 0x70000000u
#define CONFINE_USERS_N 0x400000u

#define CONFINE_LIMITS_MAX 10

/* Calls that are denied unless asked for. */
enum confine_may {
	CONFINE_MAY_EXEC = 1, /* execve(2): to start the program after being confined */
	CONFINE_MAY_ACCEPT = 2, /* accept4(2) from sockets it was given */
	CONFINE_MAY_MEMFD = 4, /* memfd_create(2) */
	CONFINE_MAY_UFFD = 8, /* userfaultfd(2) */
};

struct confine {
	unsigned may; /* enum confine_may */
	/* from confine_files_new(): what it may open by name; -1: whatever its user may. Borrowed. */
	int files_fd;
	/* confine_self() alone: die with this parent (PR_SET_PDEATHSIG SIGKILL); 0: no */
	pid_t parent;
	/* let the kernel choose this process first where memory is out and one is to be killed */
	bool killed_first;
	struct {
		int resource; /* RLIMIT_…; never raised above what the process has */
		rlim_t most;
	} limits[CONFINE_LIMITS_MAX];
	size_t n_limits;
};

#define CONFINE_INIT                                                                               \
	{                                                                                          \
		.files_fd = -1                                                                     \
	}

/* Aborts past CONFINE_LIMITS_MAX (a bug). */
void confine_limit(struct confine *c, int resource, rlim_t most);

/* What this host lets a process do; found out once, at the first call. */
struct confine_host {
	bool off; /* PARBAKE_CONFINE=off: nothing is done */
	bool root; /* this process is root */
	bool users; /* … and can become the users */
	uid_t first; /* of them */
	bool namespaces; /* an empty network namespace was made, and IPC namespaces can be */
	int files; /* Landlock's version; 0: there is none */
	char why[128]; /* why the first of these that does not work does not */
};
const struct confine_host *confine_host(void);

/* A path, and everything beneath it, that may be opened. */
struct confine_path {
	const char *path; /* what is not there is left out */
	bool write; /* not reading and execution alone */
};
/* Returns a descriptor for struct confine, or -1 where the host has no Landlock; else -errno. */
int confine_files_new(const struct confine_path *paths, size_t n, struct err *err);

/*
 * Confine this process, which must have one thread, for good. On failure some of it may have been
 * done, and the process must end.
 */
int confine_self(const struct confine *c, struct err *err);

/*
 * For proc.c: the same in two steps, with other work between them, in a child that shares memory
 * with its parent (system calls alone, on what confine_prepare() made ready). -1 and errno.
 */
#define CONFINE_FILTER_MAX 512
struct confine_ready {
	const struct confine *c;
	const struct confine_host *host;
	/* -1: none. The child, which rearranges its descriptors, puts its own numbers here. */
	int net_fd, files_fd;
	size_t n;
	struct {
		unsigned short code;
		unsigned char yes, no;
		unsigned k;
	} filter[CONFINE_FILTER_MAX]; /* struct sock_filter */
	size_t self[4]; /* the instructions that hold its own process number */
	size_t n_self;
};
void confine_prepare(const struct confine *c, struct confine_ready *ret);
/*
 * Give up limits, namespaces and user. A request for a signal at the parent's death is lost here:
 * make it afterwards.
 */
int confine_become(const struct confine_ready *r);
/*
 * Give up capabilities, files and system calls. Nothing may come after it but the start of the
 * program.
 */
int confine_lock(struct confine_ready *r);

#endif
