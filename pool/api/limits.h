/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_API_LIMITS_H
#define PARBAKE_POOL_API_LIMITS_H

#include "common/limits.h"

/* The bounds of the control plane. What exceeds one is refused with an error that names it. */
#define LIMIT_POOL_HOST_MASK 255 /* bytes of what its servers read as Host */
#define LIMIT_POOL_KEY_TEXT 256 /* bytes of a key that a client sends */
#define LIMIT_METRICS_SAMPLED 256 /* sandboxes whose memory is asked for one page */
#define LIMIT_METRICS_WAIT_MS 2000 /* for their answers */

#endif
