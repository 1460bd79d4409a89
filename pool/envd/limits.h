/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_ENVD_LIMITS_H
#define PARBAKE_POOL_ENVD_LIMITS_H

#include "common/limits.h"

/* The bounds of what is spoken in a sandbox. What exceeds one is refused with an error that names it. */
#define LIMIT_LANGUAGE 31 /* bytes of the name of a context's language */
#define LIMIT_ENVD_COLLECT (2 * MIB) /* of one stream of a command whose output is answered whole */
#define LIMIT_ENVD_STREAM (64 * GIB) /* of one that is passed on as it comes */
#define LIMIT_ENVD_CHUNK (32 * KIB) /* bytes of output in one event */
#define LIMIT_ENVD_READERS 8 /* that follow one command */
#define LIMIT_ENVD_INPUTS 16 /* requests with input that wait for one command */
#define LIMIT_ENVD_INPUT (2 * MIB) /* bytes of them, beyond the one at hand */
#define LIMIT_ENVD_ENTRIES 10000 /* of a directory's listing, those below it included */
#define LIMIT_ENVD_METADATA                                                                        \
	3072 /* bytes of a file's metadata: what an ext4 file system has room for */
#define LIMIT_ENVD_METADATA_KEY 200
#define LIMIT_ENVD_DEPTH 64 /* of a listing */
#define LIMIT_ENVD_RESULT (9 * MIB) /* of one result of code: the driver's own bound, and some */
#define LIMIT_ENVD_HEALTH_MS 5000 /* from asking whether a sandbox is well to calling it not */
#define LIMIT_ENVD_CALL_MS 60000 /* a file operation without data */
#define LIMIT_ENVD_CONTEXT_MS                                                                      \
	180000 /* the start of an interpreter, in an emulated machine of a busy host */
#define LIMIT_ENVD_STALL_MS 60000 /* a transfer in which no byte moves */
#define LIMIT_ENVD_GRACE_MS 10000 /* a command that outlives its timeout by so much is given up */
#define LIMIT_ENVD_CODE_GRACE_MS                                                                   \
	40000 /* the same of code: more than the agent gives an interpreter to stop */

#endif
