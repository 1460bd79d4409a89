/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_EGRESS_CONNECTION_PRIVATE_H
#define PARBAKE_EGRESS_CONNECTION_PRIVATE_H

#include "egress/proxy.h"
#include "egress/head.h"
#include "egress/limits.h"

/*
 * The proxy from inside: what proxy.c (the proxy as a whole) and connection.c (its connections)
 * share.
 */

struct proxy {
	const struct proxy_transport *transport;
	void *transport_user;
	struct proxy_rule *rules;
	size_t n_rules;
	struct proxy_env env;
	struct proxy_asker who;
	bool resolve_here;
	void (*note)(void *user, const char *text);
	void *user;
	struct proxy_conn *conns[LIMIT_PROXY_STREAMS];
	char *noted[LIMIT_PROXY_NOTES];
	unsigned n_noted;
	uint8_t buf[64 << 10];
};

/* A connection for the transport's @stream, in its slot of @p->conns. */
struct proxy_conn *proxy_conn_new(struct proxy *p, void *stream);
/* End the connection: REPLY with @error (positive errno, or 0) and free it. */
void proxy_conn_end(struct proxy_conn *c, int error, const char *text);

/* Is the host of @h allowed? *@ret_any: is it allowed whatever its addresses are? */
bool proxy_allows(const struct proxy *p, const struct proxy_head *h, bool *ret_any);
/* Report that a host was refused, the first time for each host. */
void proxy_note_refusal(struct proxy *p, const char *host, uint16_t port, const char *why);

#endif
