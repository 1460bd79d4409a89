/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_HTTP_OPEN_H
#define PARBAKE_TESTS_HTTP_OPEN_H

/* How many requests a server has whose handler was called and which are not over. */
#include "pool/http/http_private.h"

static inline unsigned http_open(const struct http_server *s)
{
	const struct http_request *rq;
	unsigned n = 0;

	LIST_FOREACH(rq, &s->requests, link)
		n++;
	return n;
}

#endif
