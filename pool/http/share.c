/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares of connections: to whom a connection belongs, and how many each holder may have.
 *
 * A connection belongs to its address (of IPv6, the 64 bits that a site gets), or to its user at
 * the unix socket, from when it is accepted. It also belongs to its key, from when a request on it
 * was found to have one. Each holder may have as many as common/share.h says, so that a holder who
 * takes all that he can leaves room for others. A holder who has his full share gets a new
 * connection all the same where one of his older connections has not shown a key yet, or waits for
 * nothing: the older one is closed. So a client is heard even where another client floods the
 * server from the same address (they share a proxy, say). Connections whose client has not been
 * identified may be half of all, together.
 */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "pool/http/limits.h"
#include "common/share.h"
#include "pool/http/http_private.h"

/* ---- holders ------------------------------------------------------------------------------- */

static struct http_bucket *bucket(struct http_server *s, const char *name)
{
	uint32_t h = 2166136261u; /* FNV-1a */

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 16777619u;
	return &s->holders[h % HTTP_HOLDERS];
}

static struct http_holder *holder_get(struct http_server *s, const char *name)
{
	struct http_holder *h;

	LIST_FOREACH(h, bucket(s, name), bucket)
		if (!strcmp(h->name, name))
			return h;
	h = calloc(1, sizeof(*h) + strlen(name) + 1);
	if (!h)
		abort();
	strcpy(h->name, name);
	LIST_INSERT_HEAD(bucket(s, name), h, bucket);
	return h;
}

/* It goes where it has nothing. */
static void holder_put(struct http_holder *h)
{
	if (h->n || h->bodies)
		return;
	LIST_REMOVE(h, bucket);
	free(h);
}

static void address_name(const struct sockaddr *from, char ret[static 64])
{
	struct sockaddr_in6 in6 = {0};
	struct sockaddr_in in = {0};
	const uint8_t *a = in6.sin6_addr.s6_addr;

	if (from->sa_family == AF_INET) {
		memcpy(&in, from, sizeof(in));
		snprintf(ret, 64, "4 %08x", ntohl(in.sin_addr.s_addr));
		return;
	}
	if (from->sa_family == AF_INET6)
		memcpy(&in6, from, sizeof(in6));
	if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
		snprintf(ret, 64, "4 %02x%02x%02x%02x", a[12], a[13], a[14], a[15]);
	else
		snprintf(ret, 64, "6 %02x%02x%02x%02x%02x%02x%02x%02x", a[0], a[1], a[2], a[3],
			a[4], a[5], a[6], a[7]);
}

/* ---- connections --------------------------------------------------------------------------- */

/*
 * Cut the oldest connection of @h (NULL: of all) whose client has not said who it is; where there is none,
 * and with @idle, the oldest that has no request at hand. False: there is none either.
 */
static bool evict(struct http_server *s, const struct http_holder *h, bool idle)
{
	struct http_conn *oldest = NULL, *c;

	/* the newest are first */
	LIST_FOREACH(c, &s->conns, link) {
		bool unknown = !c->known && !(c->rq && c->rq->whole);

		if (c->cut || (h && c->from != h && c->key != h))
			continue;
		if (unknown || (idle && !c->rq && (!oldest || oldest->known)))
			oldest = c;
	}
	if (!oldest)
		return false;
	http_conn_cut(oldest);
	return true;
}

bool http_share_enter(struct http_conn *c, const struct sockaddr *from)
{
	struct http_server *s = c->s;
	unsigned all = c->tcp ? s->n_tcp : s->n_conns;
	unsigned max = c->tcp ? s->max_conns - s->max_conns / 16 : s->max_conns;
	struct http_holder *h;
	char name[64];

	if (c->tcp)
		address_name(from, name);
	else
		snprintf(name, sizeof(name), "u %u", c->uid);
	h = holder_get(s, name);
	if (!share_may_take(h->n, all, max, LIMIT_HTTP_SHARE) && !evict(s, h, true)) {
		holder_put(h);
		return false;
	}
	if (s->n_unknown >= s->max_conns / 2 && s->n_unknown >= LIMIT_HTTP_SHARE)
		evict(s, NULL, false);
	c->from = h;
	h->n++;
	s->n_unknown++;
	return true;
}

static void key_leave(struct http_conn *c)
{
	if (!c->key)
		return;
	c->key->n--;
	holder_put(c->key);
	c->key = NULL;
}

void http_share_leave(struct http_conn *c)
{
	key_leave(c);
	c->s->n_unknown -= !c->known;
	c->from->n--;
	holder_put(c->from);
}

bool http_admit(struct http_request *rq, const char *key)
{
	struct http_conn *c = rq->conn;
	struct http_holder *h;
	char name[2 * LIMIT_NAME_SIZE];

	if (!c)
		return true;
	if (key && *key) {
		snprintf(name, sizeof(name), "k %s", key);
		h = holder_get(c->s, name);
		/* it is among all of them already */
		if (c->key != h &&
			!share_may_take(
				h->n, c->s->n_conns - 1, c->s->max_conns, LIMIT_HTTP_SHARE) &&
			!evict(c->s, h, true)) {
			holder_put(h);
			http_add_header(rq, "Connection", "close");
			return false;
		}
		h->n++; /* before it leaves the one that it had, which may be the same */
		key_leave(c);
		c->key = h;
	}
	c->s->n_unknown -= !c->known;
	c->known = true;
	return true;
}

/* ---- bodies -------------------------------------------------------------------------------- */

bool http_share_collect(struct http_request *rq, size_t bytes)
{
	struct http_server *s = rq->s;
	struct http_holder *h = rq->payer;
	size_t free_bytes = s->max_bodies - s->bodies;

	if (!h)
		h = rq->conn->key ? rq->conn->key : rq->conn->from;
	if (bytes > free_bytes || (h->bodies && h->bodies + bytes > free_bytes))
		return false;
	rq->payer = h;
	h->bodies += bytes;
	s->bodies += bytes;
	return true;
}

void http_share_collected(struct http_request *rq)
{
	struct http_holder *h = rq->payer;

	if (!h)
		return;
	rq->s->bodies -= rq->text_size;
	h->bodies -= rq->text_size;
	rq->payer = NULL;
	holder_put(h);
}
