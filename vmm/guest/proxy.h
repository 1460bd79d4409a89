/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_GUEST_PROXY_H
#define PARBAKE_VMM_GUEST_PROXY_H

#include <stdint.h>

#include "common/err.h"
#include "egress/proxy.h"

/* The agent's channel as the transport of an egress proxy: each PROXY_OPEN is a connection. */

struct guest;

/*
 * A proxy for @g's connections, in the loop that runs @g (guest_wait(), or its owner's), in its
 * thread. Takes guest_on_open(). proxy_free() it before guest_free().
 */
int guest_proxy_new(
	struct guest *g, const struct proxy_spec *spec, struct proxy **ret, struct err *err);
/* Let the agent listen on loopback @port for such connections; 0: stop listening. Waits as
 * guest_call() does. */
int guest_proxy_listen(
	struct guest *g, unsigned port, int64_t deadline, int also_fd, struct err *err);

#endif
