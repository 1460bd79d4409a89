/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_HTTP_LIMITS_H
#define PARBAKE_POOL_HTTP_LIMITS_H

#include "common/limits.h"

/* The bounds of HTTP. What exceeds one is refused with an error that names it. */
#define LIMIT_HTTP_CONNECTIONS 4096 /* of them one in sixteen is kept for the unix socket */
#define LIMIT_HTTP_SHARE 16 /* of them each address, user and key may have, while there are any */
#define LIMIT_HTTP_HEADER (32 * KIB) /* of a request's line and headers */
#define LIMIT_HTTP_BODIES (64 * MIB) /* of all such that are being read, together */
#define LIMIT_HTTP_BUFFER (256 * KIB) /* of an answer, kept for a client that reads slowly */
#define LIMIT_HTTP_DISCARD                                                                         \
	(1 * MIB) /* of a body that nobody asked for; more of it ends the connection */
#define LIMIT_HTTP_ANSWER_HEADERS 68 /* that a handler adds */
#define LIMIT_HTTP_IDLE_S                                                                          \
	60 /* for a request to come, its body included; an upload to get on, an answer to go */
#define LIMIT_HTTP_STALL_S                                                                         \
	900 /* that a client reads nothing of a stream (a pager at its terminal) */
#define LIMIT_HTTP_RATE 16384 /* bytes a second below which an upload or an answer is too slow */

#endif
