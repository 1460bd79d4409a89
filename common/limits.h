/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_LIMITS_H
#define PARBAKE_COMMON_LIMITS_H

/*
 * Every bound in the project, named, in one place. Data that exceeds one is
 * refused with an error that names the bound; nothing grows past it.
 */
#define KIB (1024UL)
#define MIB (1024UL * KIB)
#define GIB (1024UL * MIB)

/* recipes */
#define LIMIT_RECIPE_BYTES (1 * MIB)
#define LIMIT_RECIPE_LINE 4096
#define LIMIT_RECIPE_STEPS 256
#define LIMIT_RECIPE_DEPTH 8 /* of `from` */
#define LIMIT_PACKAGES 4096
#define LIMIT_NAME 63      /* bytes of a template or tag name */
#define LIMIT_NAME_SIZE 64 /* with the NUL */

/* machines */
#define LIMIT_MEMORY_MIN (64 * MIB)
#define LIMIT_MEMORY_MAX (64 * GIB)
#define LIMIT_VCPUS 8
#define LIMIT_DISK_MIN (16 * MIB)
#define LIMIT_DISK_MAX (1024 * GIB)
#define LIMIT_CONSOLE_BYTES (64 * KIB) /* of a machine's console kept, the newest */
#define LIMIT_REGIONS 16               /* memory regions in a handshake */

/* archives */
#define LIMIT_ENTRIES 4000000UL
#define LIMIT_PATH 4096
#define LIMIT_PATH_DEPTH 128
#define LIMIT_XATTR_BYTES (64 * KIB) /* all of one inode */
#define LIMIT_ARCHIVE_BYTES (256 * GIB)

/* store */
#define LIMIT_JSON_BYTES (16 * MIB)
#define LIMIT_FRAME_BYTES (4 * MIB) /* decompressed, of a data frame */
#define LIMIT_FRAMES (64UL * 1024 * 1024)

/* downloads */
#define LIMIT_DOWNLOADS 8 /* at once */
#define LIMIT_DOWNLOAD_TRIES 5
#define LIMIT_REDIRECTS 8

/* running */
#define LIMIT_OUTPUT_BYTES (16 * MIB) /* of one stream of one exec, unless asked otherwise */
#define LIMIT_EXEC_ARGS 4096           /* arguments, and variables, of one exec: the agent's own bound */
#define LIMIT_USER 255                 /* bytes of a user's name: the agent's own bound */
#define LIMIT_CONTEXT_NAME 63
#define LIMIT_EXEC_TIMEOUT_MS 300000   /* of one exec, unless asked otherwise */
#define LIMIT_CREATE_MS 30000          /* a restore that takes longer has failed */
#define LIMIT_PROXY_STREAMS 64
#define LIMIT_PROXY_HEAD (16 * KIB)
#define LIMIT_PROXY_CONNECT_MS 30000 /* looking a name up; connecting, all addresses together */
#define LIMIT_PROXY_ADDRESSES 8      /* of one name that are tried */
#define LIMIT_PROXY_LOOKUPS 64       /* threads that look names up, at once */
#define LIMIT_PROXY_RULES 1024
#define LIMIT_PROXY_NOTES 64         /* hosts whose refusal is shown */
#define LIMIT_QMP_LINE (4 * MIB)
#define LIMIT_PAGER_MACHINES 4096

#endif
