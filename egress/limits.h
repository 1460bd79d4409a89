/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_EGRESS_LIMITS_H
#define PARBAKE_EGRESS_LIMITS_H

#include "common/limits.h"

/* The bounds of the way out of a guest. What exceeds one is refused with an error that names it. */
#define LIMIT_PROXY_STREAMS 64
#define LIMIT_PROXY_HEAD (16 * KIB)
#define LIMIT_PROXY_CONNECT_MS 30000 /* looking a name up; connecting, all addresses together */
#define LIMIT_PROXY_ADDRESSES 8 /* of one name that are tried */
#define LIMIT_PROXY_LOOKUPS 128 /* threads that look names up, at once */
#define LIMIT_PROXY_LOOKUPS_EACH 8 /* of them, of one sandbox */
#define LIMIT_PROXY_LOOKUP_RETRY_MS 50 /* until one that found none free asks again */
#define LIMIT_PROXY_RULES 1024
#define LIMIT_PROXY_NOTES 64 /* hosts whose refusal is shown */

#endif
