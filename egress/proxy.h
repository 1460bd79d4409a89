/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_EGRESS_PROXY_H
#define PARBAKE_EGRESS_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "egress/limits.h"

/*
 * Egress, a machine's way out to the network: an HTTP/1.1 forward proxy, for bakes and for the
 * pool. A transport (vmm/guest/proxy.h is one) brings the connections that a guest makes, each as a
 * stream. The proxy connects them, and only to what its rules allow. It runs in the event loop of
 * the transport, in its thread, and never blocks it.
 *
 * The host's own upstream proxy is honoured (https_proxy for CONNECT, http_proxy for http:// URLs,
 * in lower case; HTTPS_PROXY too; no_proxy, NO_PROXY: "*", hosts with their subdomains, host:port).
 * Only http:// upstream proxies, with user:password@ if need be. Where names are looked up here
 * (resolve_here), connections go through a tunnel of the upstream to the address that was checked.
 * Otherwise the upstream resolves names, and it has to check what is behind them.
 */

/*
 * One thing that may be reached: a host by name, all below a domain, an address, or a network of
 * addresses that are asked for as such.
 *
 * Whatever a rule names, the proxy does not connect to loopback, link-local, private, shared
 * (100.64/10), multicast and other special addresses, nor to the host's own (IPv4 in IPv6
 * included), unless private_ok is set. No text that proxy_rule_parse() takes sets private_ok: a
 * caller that may set it (for a recipe, for an operator) has a word or field of its own for it. So
 * nothing that a tenant writes can set it.
 */
struct proxy_rule {
	char host[256]; /* lower case, no dot at the end, no "*."; addresses as of inet_ntop(3) */
	uint16_t port; /* 0: 80 and 443 */
	uint8_t prefix_bits; /* of a network: the bits that its addresses share */
	bool subdomains; /* any depth below host, not host itself */
	bool literal; /* host is an address */
	bool network; /* host is the first address of one; literal too */
	bool private_ok;
};

#define PROXY_RULE_TEXT 288

/*
 * Parse "host", "host:port", "*.domain", "*.domain:port", an address ("10.0.0.8:8080",
 * "[2001:db8::1]:443") or a network ("192.0.2.0/24", "2001:db8::/32"); nothing else, no space
 * and no option. Upper and lower case are the same, a dot at the end is dropped; ASCII only (write
 * xn-- names as such). private_ok becomes false. -EINVAL with what is wrong.
 */
int proxy_rule_parse(const char *text, struct proxy_rule *ret, struct err *err);
/* The text that proxy_rule_parse() reads as @r (except for private_ok). */
void proxy_rule_text(const struct proxy_rule *r, char ret[static PROXY_RULE_TEXT]);
/* Does @r name an address that may be reached only with private_ok? */
bool proxy_rule_inside(const struct proxy_rule *r);
/* Does @r allow @host (as in struct proxy_rule) at @port? */
bool proxy_rule_match(const struct proxy_rule *r, const char *host, uint16_t port);

struct proxy;
struct proxy_conn;

/*
 * Who looks names up: each asker has a share of the lookups that may run. Borrowed strings; NULL:
 * nobody in particular.
 */
struct proxy_asker {
	const char *sandbox, *key;
};

struct proxy_spec {
	const struct proxy_rule *rules; /* n_rules ≤ LIMIT_PROXY_RULES of them, copied */
	size_t n_rules;
	struct proxy_asker who; /* borrowed as long as there is the proxy */
	/* no upstream proxy is given a name that private_ok is not said of: it is looked up here, its
	 * address is checked, and that is what the upstream is asked for */
	bool resolve_here;
	void (*note)(void *user,
		const char *text); /* a sentence, the first time a host is refused; or NULL */
	void *user;
};

/* What the proxy asks of a transport. None of these may block. */
struct proxy_transport {
	/* @stream was given to proxy_accept(). Send to the guest: returns how many bytes were taken,
	 * at most room(). Where room() was 0, the transport calls proxy_conn_writable() later. */
	size_t (*send)(void *stream, const void *bytes, size_t len);
	size_t (*room)(void *stream);
	/* there is nothing more to send */
	void (*eof)(void *stream);
	/* offer what proxy_conn_data() has left once more; the connection may be gone afterwards */
	void (*resume)(void *stream);
	/* end the stream, with a positive errno and why, or with 0; its connection is gone */
	void (*reply)(void *stream, int error, const char *text);
	/* Call @fn with what poll(2) finds at @fd, until unwatch(). With events 0 it is not polled.
	 * The calls get what watch() returned, which is not NULL. */
	void *(*watch)(void *user, int fd, short events, void (*fn)(void *user, short revents),
		void *fn_user);
	void (*watch_set)(void *watch, short events);
	void (*unwatch)(void *watch);
	/* the proxy ends: no more proxy_accept() */
	void (*stop)(void *user);
};

/* A proxy for what @transport, which gets @user, brings. Both are borrowed until proxy_free(). */
int proxy_new(const struct proxy_transport *transport, void *transport_user,
	const struct proxy_spec *spec, struct proxy **ret, struct err *err);
/* End the proxy's connections and free it, before its transport. NULL is allowed. */
void proxy_free(struct proxy *p);

/* The transport has a connection, with @stream to it. NULL: there are too many. */
struct proxy_conn *proxy_accept(struct proxy *p, void *stream);
/* Bytes from the guest: returns how many are done with. The transport keeps the others until
 * resume(). Like proxy_conn_eof(), it may end the connection: then reply() has been called. */
size_t proxy_conn_data(struct proxy_conn *c, const uint8_t *bytes, size_t len);
/* The guest will send nothing more. */
void proxy_conn_eof(struct proxy_conn *c);
/* There is room() again. */
void proxy_conn_writable(struct proxy_conn *c);
/* The guest is gone, or has given the connection up. @c is freed; reply() is not called. */
void proxy_conn_lost(struct proxy_conn *c);

#endif
