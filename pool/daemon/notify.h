/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_DAEMON_NOTIFY_H
#define PARBAKE_POOL_DAEMON_NOTIFY_H

#include "common/loop.h"

/*
 * What a service tells its manager, by the protocol of sd_notify(3): datagrams of NAME=VALUE lines
 * to the unix socket in NOTIFY_SOCKET. Where NOTIFY_SOCKET is not set all functions do nothing. One
 * thread: the loop's.
 */
struct notify;

/* Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment, so that no child
 * speaks for us. Where the manager asks for a watchdog, it is fed from the loop, twice as often
 * as it asks for: a loop that hangs does not feed it. Aborts without memory. */
struct notify *notify_new(struct loop *l);
void notify_free(struct notify *n);
/* "READY=1\nSTATUS=…". What cannot be sent is logged, once. */
void notify_send(struct notify *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
