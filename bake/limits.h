/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_LIMITS_H
#define PARBAKE_BAKE_LIMITS_H

#include "common/limits.h"

/* The bounds of a bake. What exceeds one is refused with an error that names it. */
#define LIMIT_SECRET_BYTES (64 * KIB) /* of one of [secrets] */
#define LIMIT_CA_BYTES (16 * MIB) /* of the host's CA bundle */
#define LIMIT_STEP_MS 3600000 /* one install or warm step */
#define LIMIT_STEP_OUTPUT (256 * MIB) /* of one stream of a step that is passed on */
#define LIMIT_STEP_LINE 1000 /* bytes of a line of it; longer ones are broken */
#define LIMIT_PROCESSES 1000 /* of a guest that are recorded */
#define LIMIT_PROCESS_TEXT (64 * MIB) /* of a file of the guest's /proc */
#define LIMIT_PROCESS_COMMAND 200 /* bytes of a command that are recorded */
#define LIMIT_PROCESS_KIB (1ULL << 40) /* of memory that a line may tell */

#endif
