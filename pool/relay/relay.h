/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_RELAY_RELAY_H
#define PARBAKE_POOL_RELAY_RELAY_H

#include <stdbool.h>

#include "common/loop.h"
#include "pool/http/http.h"
#include "vmm/guest/guest.h"
#include "pool/relay/limits.h"

/*
 * The relay: HTTP to the servers that run in sandboxes. A request for a port is carried to that
 * port of the guest's loopback, and what the server there answers is carried back as it comes: long
 * answers, events, and after an upgrade (websockets) bytes both ways. Each request has a connection
 * of its own to the server. All functions belong to the loop's thread.
 *
 * Both sides are strangers to the daemon. A server's head is read and written anew, never passed on
 * as bytes, so that one answer cannot pose as two; what a client sent to be admitted by the daemon
 * (API keys, tokens) does not reach the server.
 */
struct relays;

/* A sandbox, borrowed until the caller returns to the loop. */
struct relay_target {
	const char *id;
	struct guest *guest; /* NULL: it does not run */
	unsigned port; /* 1 to 65535 */
	const char *
		mask_host; /* what the server reads as Host, "${PORT}" being the port; "": what the client sent */
};

struct relay_ops {
	/* Something was queued for the guest of the sandbox @id. */
	void (*kick)(void *user, const char *id);
	/*
	 * Is @value, of a header Authorization, meant for this daemon? Then no server may see it.
	 */
	bool (*is_ours)(void *user, const char *value);
};

/* @ops and @user are borrowed until relays_free(). Aborts without memory. */
struct relays *relays_new(struct loop *l, const struct relay_ops *ops, void *user);
/* No request may be open any more: free the HTTP server first. NULL is allowed. */
void relays_free(struct relays *all);

/*
 * From the HTTP server's handler: carry @rq to @to and answer it. At most LIMIT_RELAY_SANDBOX at once for a sandbox:
 * 429 beyond. What cannot be reached is answered in E2B's words, 502: no such sandbox, or nothing listens.
 */
void relay_request(struct relays *all, struct http_request *rq, const struct relay_target *to);

#endif
