/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_FETCH_LIMITS_H
#define PARBAKE_BAKE_FETCH_LIMITS_H

#include "common/limits.h"

/* The bounds of downloads. What exceeds one is refused with an error that names it. */
#define LIMIT_DOWNLOADS 8 /* at once */
#define LIMIT_DOWNLOAD_TRIES 5
#define LIMIT_DOWNLOAD_STALL_S 60 /* without a byte */
#define LIMIT_REDIRECTS 8

#endif
