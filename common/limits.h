/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_LIMITS_H
#define PARBAKE_COMMON_LIMITS_H

/*
 * Bounds that several parts share; those of one part stand in the limits.h of its folder. Data that
 * exceeds one is refused with an error that names the bound; nothing grows past it.
 */
#define KIB (1024UL)
#define MIB (1024UL * KIB)
#define GIB (1024UL * MIB)

/* recipes */
#define LIMIT_RECIPE_BYTES (1 * MIB)
#define LIMIT_RECIPE_LINE 4096
#define LIMIT_PROGRAMS 32 /* that a recipe names, for translations to be kept of */
#define LIMIT_PROGRAMS_MS                                                                          \
	12000 /* to run all of them in, once before the capture, once in the trial */
#define LIMIT_TRANSLATIONS_BYTES 100000000ull /* kept for a template */
#define LIMIT_ALIASES 8 /* other names of a template */
#define LIMIT_NAME 63 /* bytes of a template or tag name */
#define LIMIT_NAME_SIZE 64 /* with the NUL */

/* machines */
#define LIMIT_MEMORY_MIN (64 * MIB)
#define LIMIT_MEMORY_MAX (64 * GIB)
#define LIMIT_VCPUS 8
#define LIMIT_DISK_MAX (1024 * GIB)
#define LIMIT_CONSOLE_BYTES (64 * KIB) /* of a machine's console kept, the newest */
#define LIMIT_BOOT_MS 120000 /* a boot that makes progress may take */
#define LIMIT_BOOT_STILL_MS 15000 /* a boot without progress is given up after */
#define LIMIT_REGIONS 16 /* memory regions in a handshake */
#define LIMIT_STATE_BYTES (64 * MIB) /* of a device state */

/* archives */
#define LIMIT_ENTRIES 4000000UL
#define LIMIT_PATH 4096
#define LIMIT_PATH_DEPTH 128
#define LIMIT_XATTR_BYTES (64 * KIB) /* all of one inode */
#define LIMIT_ARCHIVE_BYTES (256 * GIB)
#define LIMIT_ARCHIVE_RATIO 1000 /* bytes unpacked from one, once there are … */
#define LIMIT_ARCHIVE_RATIO_FROM (1 * GIB)

/* store */
#define LIMIT_JSON_BYTES (16 * MIB)
#define LIMIT_RANGES 1000000 /* of a working set, of a disk delta */
#define LIMIT_CONFIG_ENV 4096 /* variables in a snapshot's environment */

/* proving */
#define LIMIT_SIGNATURE_BYTES (64 * KIB) /* of a signature, of a file of keys */
#define LIMIT_SIGNATURE_KEYS 1024

/* running */
#define LIMIT_OUTPUT_BYTES (16 * MIB) /* of one stream of one exec, unless asked otherwise */
#define LIMIT_EXEC_ARGS 4096 /* arguments, and variables, of one exec: the agent's own bound */
#define LIMIT_USER 255 /* bytes of a user's name: the agent's own bound */
#define LIMIT_ACCOUNT 32 /* bytes of the name of a template's own user: useradd's bound */
#define LIMIT_CONTEXT_NAME 63
#define LIMIT_EXEC_TIMEOUT_MS 300000 /* of one exec, unless asked otherwise */
#define LIMIT_TIMEOUT_MS 31536000000LL /* that may be asked for: a year */
#define LIMIT_CREATE_MS 30000 /* a restore that takes longer has failed */
#define LIMIT_QMP_LINE (4 * MIB)
#define LIMIT_RPC_BYTES (64 * KIB) /* of a message between two of our own processes */
#define LIMIT_RPC_SEND_MS 5000 /* one that does not read is taken for gone after */

/* the pool */
#define LIMIT_POOL_SANDBOXES 65536 /* of one daemon, paused ones included */
#define LIMIT_POOL_FORK 64 /* forks of one request */
#define LIMIT_POOL_METADATA 64 /* pairs of a sandbox's metadata, and of its env */
#define LIMIT_POOL_ALLOW 64 /* hosts that a sandbox may reach */
#define LIMIT_LEASE_MS 31536000000LL /* a year */
#define LIMIT_CAPTURE_MS 600000
#define LIMIT_CAPTURE_RANGES                                                                       \
	400000 /* of memory in a checkpoint: half of what LIMIT_JSON_BYTES holds */
#define LIMIT_DRAIN_MS 15000 /* that a daemon told to end waits for its open requests */
#define LIMIT_HTTP_BODY (1 * MIB) /* of a request that is JSON */
#define LIMIT_HTTP_UPLOAD (16 * GIB) /* of a file */
#define LIMIT_METRICS_SERIES 1024 /* of one family */

/* measuring */
#define LIMIT_SAMPLES 1000000 /* of one series */
#define LIMIT_BENCH_SERIES 4096 /* of one document */
#define LIMIT_BENCH_FILES 64 /* documents read at once */
#define LIMIT_SYMBOLS_BYTES (32 * MIB) /* of a System.map */

#endif
