/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_DAEMON_NOTIFY_H
#define PARBAKE_POOL_DAEMON_NOTIFY_H

#include "common/loop.h"

/*
 * What a service tells its manager, by the protocol of sd_notify(3): datagrams of NAME=VALUE lines
 * to the unix socket in NOTIFY_SOCKET. Without that all of this does nothing.
 */
struct notify;

/* Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment, so that no child
 * speaks for us. Where a watchdog is asked for it is fed from the loop, twice as often as it wants:
 * a loop that hangs feeds none. Aborts without memory. */
struct notify *notify_new(struct loop *l);
void notify_free(struct notify *n);
/* "READY=1\nSTATUS=…". What cannot be sent is logged, once. */
void notify_send(struct notify *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
