/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_EGRESS_HEAD_H
#define PARBAKE_EGRESS_HEAD_H

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "egress/proxy.h"

/* Parts of the proxy that hold no connection: request heads, names and addresses, the host's own
 * upstream proxies, looking names up. */

/* A request's head, parsed. */
struct proxy_head {
	bool connect;
	char method[32];
	char host[256]; /* as in struct proxy_rule */
	bool literal;
	uint16_t port;
	const char *path; /* http: path and query, borrowed from the head; may lack the first '/' */
	size_t path_len;
	uint64_t body_bytes; /* that follow the head */
};

/* The length of the head in @bytes, with its empty line; 0: it is not whole yet. */
size_t proxy_head_end(const char *bytes, size_t len);
/*
 * Parse a whole head: 0, or the HTTP status to refuse it with and, in *@ret_why, why. Strict: what
 * two programs could read in two ways is refused (RFC 9112).
 */
int proxy_head_parse(const char *head, size_t len, struct proxy_head *ret, const char **ret_why);
/*
 * Make the head to send on: in origin form, or in absolute form with @auth (a Proxy-Authorization
 * value or NULL) for an upstream proxy. Hop-by-hop fields are dropped, Host is as the URL has it,
 * and Connection is close. Caller frees.
 */
char *proxy_head_rewrite(const char *head, size_t len, const struct proxy_head *h, bool absolute,
	const char *auth, size_t *ret_len);
/* The status of a response's head ("HTTP/1.1 200 …"), or -1. */
int proxy_head_status(const char *head, size_t len);

/*
 * @text (not terminated) as a host: into @ret, in lower case, without its last dot; *@ret_literal:
 * it is an address (IPv6 without brackets). False: @text is not a host.
 */
bool proxy_host_parse(const char *text, size_t len, char ret[static 256], bool *ret_literal);
/* "host", "host:port", "[v6]:port". *@ret_port is left alone where there is none. */
bool proxy_authority_parse(
	const char *text, size_t len, char host[static 256], bool *ret_literal, uint16_t *ret_port);
/* "host:port", bracketed where it must be. */
void proxy_authority_text(const char *host, uint16_t port, char ret[static 272]);

/* Why an address may not be reached by way of a name ("loopback", "the host's own"), or NULL. */
const char *proxy_address_refused(const struct sockaddr *sa);

/* An upstream proxy. */
struct proxy_upstream {
	char host[256];
	uint16_t port; /* 0: none */
	char *auth; /* value of Proxy-Authorization, or NULL */
};

/* The proxies for https and http, and no_proxy, read from the environment once. */
struct proxy_env {
	struct proxy_upstream https, http;
	char *no_proxy;
};

int proxy_env_read(struct proxy_env *ret, struct err *err);
void proxy_env_free(struct proxy_env *env);
/* The upstream for a host, or NULL: connect directly. */
const struct proxy_upstream *proxy_env_for(
	const struct proxy_env *env, bool connect, const char *host, uint16_t port);

/* A name being looked up, in a thread of its own. */
struct proxy_lookup;

/* Begin a lookup. -EAGAIN: too many run already, of all, of @who's key or of @who's sandbox. */
int proxy_lookup_start(
	const char *host, uint16_t port, const struct proxy_asker *who, struct proxy_lookup **ret);
/* Readable when it is done. Borrowed. */
int proxy_lookup_fd(const struct proxy_lookup *l);
/*
 * The result of a lookup that is done: 0 and the addresses (borrowed until proxy_lookup_free()), or
 * -1 and why.
 */
int proxy_lookup_result(
	const struct proxy_lookup *l, const struct addrinfo **ret, const char **ret_why);
/* Free a lookup, at any time; a thread that still runs cleans up after itself. */
void proxy_lookup_free(struct proxy_lookup *l);

#endif
