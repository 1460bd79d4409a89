/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_DAEMON_DAEMON_H
#define PARBAKE_POOL_DAEMON_DAEMON_H

#include "common/err.h"
#include "pool/config.h"

/*
 * The configuration file: read where `pool serve` and `pool check` are told no file, and it is
 * there.
 */
#define DAEMON_CONFIG "/etc/parbake/pool.conf"

/*
 * `parbake pool serve`: the pool and its API, until SIGTERM or SIGINT. @config_path NULL:
 * DAEMON_CONFIG where it is there, else the defaults. SIGHUP reads it anew; what is wrong with it
 * then is logged, and the old one stays.
 *
 * On SIGTERM nothing new is begun: connections are refused, open requests have LIMIT_DRAIN_MS to be
 * answered (a second signal: none), standbys and spares end, sandboxes go on with their keepers and
 * are adopted by the next daemon. Then it returns 0.
 *
 * Blocks the signals for the whole process, which must have one thread; takes NOTIFY_SOCKET and
 * WATCHDOG_… (sd_notify(3), sd_watchdog_enabled(3)) out of the environment.
 */
int daemon_run(const char *config_path, struct err *err);

/* listen.c: listen at the unix socket at @path (one that nobody answers at is replaced:
 * -EADDRINUSE else). Its directory is made, 0700, where it is not there; it must not be writable
 * by others. Returns the descriptor. */
int daemon_listen_unix(const char *path, struct err *err);
/* Listen at the TCP address @listen (config.listen). Returns the descriptor. */
int daemon_listen_tcp(const char *listen, struct err *err);
/*
 * Remove the socket at @path, unless somebody answers at it. Called after this daemon's own socket
 * was closed.
 */
void daemon_unlink(const char *path);

#endif
