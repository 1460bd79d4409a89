/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_STORE_LIMITS_H
#define PARBAKE_STORE_LIMITS_H

#include "common/limits.h"

/* The bounds of the store. What exceeds one is refused with an error that names it. */
#define LIMIT_FRAME_BYTES (4 * MIB) /* decompressed, of a data frame */
#define LIMIT_FRAMES (64UL * 1024 * 1024)
#define LIMIT_MANIFEST_BYTES (1 * MIB)
#define LIMIT_INDEX_ENTRIES 65536 /* manifests in index.json */
#define LIMIT_INDEX_DEPTH 4 /* of an index within an index */

#endif
