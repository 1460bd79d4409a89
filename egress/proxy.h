/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_EGRESS_PROXY_H
#define PARBAKE_EGRESS_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "vmm/guest/guest.h"

/*
 * A machine's way out while it is baked: an HTTP/1.1 forward proxy. Connections to a port on the
 * guest's loopback come over the agent's channel (PROXY_OPEN); this end connects, and only to what
 * the recipe allows. It lives in guest_wait()'s loop and never blocks it.
 *
 * The host's own upstream proxy is honoured (https_proxy for CONNECT, http_proxy for http://
 * URLs, in lower case; HTTPS_PROXY too; no_proxy, NO_PROXY: "*", hosts with their subdomains,
 * host:port). Only http:// upstream proxies, with user:password@ if need be. The upstream then
 * resolves names, so that the addresses behind them are its own to check: here only names are.
 */

/*
 * What is allowed: "host", "host:port", "*.domain", "*.domain:port", an address literal
 * ("10.0.0.8:8080", "[2001:db8::1]:443"), each with an optional word "private" behind it.
 * Without a port: 80 and 443. "*." means any depth below the domain, not the domain itself.
 * Upper and lower case are the same, a dot at the end is dropped; ASCII only (write xn-- names
 * as such).
 *
 * A name may not lead to loopback, link-local, private, shared (100.64/10), multicast or
 * other special addresses (IPv4 in IPv6 included), unless its rule says "private". An address
 * literal is allowed only by a rule that is that literal, and then whatever it is.
 */
struct proxy_rule {
	char host[256]; /* lower case, no dot at the end, no "*."; literals as of inet_ntop(3) */
	uint16_t port; /* 0: 80 and 443 */
	bool subdomains, literal, private_ok;
};

/* Parse one. -EINVAL with what is wrong. */
int proxy_rule_parse(const char *text, struct proxy_rule *ret, struct err *err);
/* Does it allow @host (as in struct proxy_rule) at @port? */
bool proxy_rule_match(const struct proxy_rule *r, const char *host, uint16_t port);

struct proxy_stats {
	uint64_t connections; /* asked for */
	uint64_t refused; /* not allowed, by name or by address */
	uint64_t failed; /* allowed, but broken requests, no such name, no answer */
	uint64_t bytes_out; /* guest → network */
	uint64_t bytes_in; /* network → guest */
	unsigned open; /* now */
};

struct proxy;

/*
 * Serve @g's proxy connections from now on. @allow: @n_allow items as above, copied; an item that
 * is the word "private" alone belongs to the one before it. @note (may be NULL) gets a sentence the
 * first time a host is refused. Takes guest_on_open(). Same thread as @g.
 */
int proxy_new(struct guest *g, const char *const *allow, size_t n_allow,
	void (*note)(void *user, const char *text), void *user, struct proxy **ret,
	struct err *err);
/* Ends its connections. Before guest_free(). NULL is allowed. */
void proxy_free(struct proxy *p);
DEFINE_CLEANUP(struct proxy *, proxy_free)
#define cleanup_proxy cleanup_with(proxy_free_p_)

/* Let the agent listen on loopback @port and send its connections here; 0: stop listening. */
int proxy_listen(struct proxy *p, unsigned port, int64_t deadline, int also_fd, struct err *err);
void proxy_get_stats(const struct proxy *p, struct proxy_stats *ret);

#endif
