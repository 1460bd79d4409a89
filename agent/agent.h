/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_AGENT_H
#define PARBAKE_AGENT_AGENT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/*
 * What every part of the agent shares: how it was started, and the small tools
 * (logging, failures, time). The agent is one process and one thread; nothing
 * here is locked.
 */

/* Bounds of the agent. Nothing grows past them, whatever the host or the guest's programs do. */
#define AGENT_ARGS_MAX 4096u /* T_ARG and T_ENV of one request, each */
#define AGENT_CONTEXTS_MAX 16u
#define AGENT_CONTEXT_NAME_MAX 63u
#define AGENT_CODE_QUEUE_MAX 64u /* CODE waiting for one context */
#define AGENT_PROXY_MAX 64u /* proxy connections at once */
#define AGENT_ETC_MAX (1u << 20) /* bytes of /etc/passwd or /etc/group read */
#define AGENT_GROUPS_MAX 64u /* supplementary groups */
#define AGENT_LIST_MAX 1000000u /* entries of one FILE_LIST */
#define AGENT_DEPTH_MAX 512u /* directories deep, of a recursive REMOVE */
#define AGENT_WATCHES_MAX 4096u /* directories that one watcher watches */
#define AGENT_WATCHERS_MAX 64u /* watchers that are kept, each a process */
#define AGENT_FREEZE_MS_MAX 600000u /* a file system frozen at most this long */
#define AGENT_FREEZE_MS_DEFAULT 30000u
#define AGENT_RESEED_MS 20000u /* contexts answer a reseed within this, on the busiest host too */
#define AGENT_QUIESCE_MS 10000u
#define AGENT_PREPARE_MS 60000u /* contexts are prepared within this, on the busiest host too */
#define AGENT_GRACE_MS 50u /* what an exec left behind may still write */
#define AGENT_DRAIN_MS 500u /* a killed exec's output waits this long for credit */
#define AGENT_INTERRUPT_MS 1000u /* from SIGINT to killing a context, of time in which it ran */
#define AGENT_RUN_MAX_MS 30000u /* by the clock, however little the machine runs */
#define AGENT_SHUTDOWN_MS 10000u

struct agent {
	bool machine; /* PID 1 of a machine: may set the clock, freeze, reboot … */
	bool rooted; /* the root is mounted */
	bool frozen; /* its file system is frozen: touch nothing on it */
	int root; /* the root directory, for files: O_DIRECTORY */
	int random; /* /dev/urandom, or -1 */
	uint8_t boot[16]; /* this boot's nonce: only in memory */
	uint64_t counter; /* SYNCs answered */
};

extern struct agent agent;

/* To the console, one line. For what happens rarely: boot, breaches. */
__attribute__((format(printf, 1, 2))) void agent_log(const char *fmt, ...);

/* Why a request failed: becomes T_ERROR. `err` is a positive errno. */
struct fail {
	int err;
	char text[512];
};

/* Set *@f and return -@err. */
__attribute__((format(printf, 3, 4))) int fail_set(struct fail *f, int err, const char *fmt, ...);

static inline int64_t agent_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

#define MS_NS INT64_C(1000000)

static inline void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Random, without waiting for the kernel to have gathered enough: for what must only be unique. */
void agent_random(void *buf, size_t len);

/* Zeroed memory; never NULL: without memory for its own few bytes PID 1 cannot go on. */
void *agent_alloc(size_t len);

#endif
