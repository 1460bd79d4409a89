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
#define LIMIT_PROGRAMS 32 /* that a recipe names, for translations to be kept of */
#define LIMIT_PROGRAMS_MS 12000 /* to run all of them in, once before the capture, once in the trial */
#define LIMIT_TRANSLATIONS_BYTES 100000000ull /* kept for a template */
#define LIMIT_RECIPE_STEPS 256
#define LIMIT_RECIPE_DEPTH 8 /* of `from` */
#define LIMIT_PACKAGES 4096
#define LIMIT_ALIASES 8 /* other names of a template */
#define LIMIT_NAME 63 /* bytes of a template or tag name */
#define LIMIT_NAME_SIZE 64 /* with the NUL */

#define LIMIT_SECRET_BYTES (64 * KIB) /* of one of [secrets] */
#define LIMIT_CA_BYTES (16 * MIB) /* of the host's CA bundle */
#define LIMIT_STEP_MS 3600000 /* one install or warm step */
#define LIMIT_STEP_OUTPUT (256 * MIB) /* of one stream of a step that is passed on */
#define LIMIT_STEP_LINE 1000 /* bytes of a line of it; longer ones are broken */

/* machines */
#define LIMIT_MEMORY_MIN (64 * MIB)
#define LIMIT_MEMORY_MAX (64 * GIB)
#define LIMIT_VCPUS 8
#define LIMIT_DISK_MIN (16 * MIB)
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
#define LIMIT_FRAME_BYTES (4 * MIB) /* decompressed, of a data frame */
#define LIMIT_FRAMES (64UL * 1024 * 1024)
#define LIMIT_MANIFEST_BYTES (1 * MIB)
#define LIMIT_INDEX_ENTRIES 65536 /* manifests in index.json */
#define LIMIT_INDEX_DEPTH 4 /* of an index within an index */
#define LIMIT_RANGES 1000000 /* of a working set, of a disk delta */
#define LIMIT_CONFIG_ENV 4096 /* variables in a snapshot's environment */

/* downloads */
#define LIMIT_DOWNLOADS 8 /* at once */
#define LIMIT_DOWNLOAD_TRIES 5
#define LIMIT_DOWNLOAD_STALL_S 60 /* without a byte */
#define LIMIT_REDIRECTS 8

/* proving */
#define LIMIT_INVENTORY 100000 /* packages on a disk */
#define LIMIT_PACKAGE_TEXT 256 /* bytes of a name, of a version */
#define LIMIT_SIGNATURE_BYTES (64 * KIB) /* of a signature, of a file of keys */
#define LIMIT_SIGNATURE_KEYS 1024
#define LIMIT_LOCK_BYTES (16 * MIB)
#define LIMIT_DIFF_TEXT (16 * KIB) /* of a file whose lines are compared */
#define LIMIT_DIFF_LINES 400

/* running */
#define LIMIT_OUTPUT_BYTES (16 * MIB) /* of one stream of one exec, unless asked otherwise */
#define LIMIT_EXEC_ARGS 4096 /* arguments, and variables, of one exec: the agent's own bound */
#define LIMIT_USER 255 /* bytes of a user's name: the agent's own bound */
#define LIMIT_CONTEXT_NAME 63
#define LIMIT_LANGUAGE 31 /* bytes of the name of a context's language */
#define LIMIT_EXEC_TIMEOUT_MS 300000 /* of one exec, unless asked otherwise */
#define LIMIT_TIMEOUT_MS 31536000000LL /* that may be asked for: a year */
#define LIMIT_CREATE_MS 30000 /* a restore that takes longer has failed */
#define LIMIT_PROXY_STREAMS 64
#define LIMIT_PROXY_HEAD (16 * KIB)
#define LIMIT_PROXY_CONNECT_MS 30000 /* looking a name up; connecting, all addresses together */
#define LIMIT_PROXY_ADDRESSES 8 /* of one name that are tried */
#define LIMIT_PROXY_LOOKUPS 128 /* threads that look names up, at once */
#define LIMIT_PROXY_LOOKUPS_EACH 8 /* of them, of one sandbox */
#define LIMIT_PROXY_LOOKUP_RETRY_MS 50 /* until one that found none free asks again */
#define LIMIT_PROXY_RULES 1024
#define LIMIT_PROXY_NOTES 64 /* hosts whose refusal is shown */
#define LIMIT_QMP_LINE (4 * MIB)
#define LIMIT_PAGER_MACHINES 4096
#define LIMIT_PAGER_CLIENTS                                                                        \
	(LIMIT_PAGER_MACHINES + 256) /* connections to one pager: each keeper has one */
#define LIMIT_RPC_BYTES (64 * KIB) /* of a message between two of our own processes */
#define LIMIT_RPC_SEND_MS 5000 /* one that does not read is taken for gone after */
#define LIMIT_PAGER_TRACE 65536 /* entries of a pager's trace kept until they are fetched */
#define LIMIT_PAGER_REPLY_MS 60000 /* a pager that says nothing for so long is broken */

/* the pool */
#define LIMIT_KEEPER_RECORD (32 * KIB) /* of the record that a keeper holds, as text */
#define LIMIT_KEEPER_FILES                                                                         \
	1024 /* descriptors of a keeper; and of all that are on their way (unix(7)) */
#define LIMIT_PAUSE_TRIES 10 /* of a pause at a lease's end; then the sandbox is killed */
#define LIMIT_PAUSE_RETRY_MS 30000 /* between two */
#define LIMIT_POOL_SANDBOXES 65536 /* of one daemon, paused ones included */
#define LIMIT_POOL_TEMPLATES 256 /* with a zygote at once */
#define LIMIT_POOL_WAKE_MS 300000LL /* the lease of a sandbox that a request woke, at least */
#define LIMIT_POOL_HOST_MASK 255 /* bytes of what its servers read as Host */
#define LIMIT_POOL_FORK 64 /* forks of one request */
#define LIMIT_POOL_KEYS 1024
#define LIMIT_POOL_READY 1024 /* standbys, and spares, of one template */
#define LIMIT_POOL_KEY_TEXT 256 /* bytes of a key that a client sends */
#define LIMIT_POOL_METADATA 64 /* pairs of a sandbox's metadata, and of its env */
#define LIMIT_POOL_ALLOW 64 /* hosts that a sandbox may reach */
#define LIMIT_LEASE_MS 31536000000LL /* a year */
#define LIMIT_KILL_MS 10000 /* after SIGKILL; a machine that is not gone by then is reported so */
#define LIMIT_CAPTURE_MS 600000
#define LIMIT_CAPTURE_HANG_MS 30000 /* beyond that: a keeper that hangs in the kernel is killed */
#define LIMIT_CAPTURE_RANGES                                                                       \
	400000 /* of memory in a checkpoint: half of what LIMIT_JSON_BYTES holds */
#define LIMIT_DRAIN_MS 15000 /* that a daemon told to end waits for its open requests */
#define LIMIT_HTTP_CONNECTIONS 4096 /* of them one in sixteen is kept for the unix socket */
#define LIMIT_HTTP_SHARE 16 /* of them each address, user and key may have, while there are any */
#define LIMIT_HTTP_HEADER (32 * KIB) /* of a request's line and headers */
#define LIMIT_HTTP_BODY (1 * MIB) /* of a request that is JSON */
#define LIMIT_HTTP_BODIES (64 * MIB) /* of all such that are being read, together */
#define LIMIT_HTTP_UPLOAD (16 * GIB) /* of a file */
#define LIMIT_HTTP_BUFFER (256 * KIB) /* of an answer, kept for a client that reads slowly */
#define LIMIT_HTTP_DISCARD                                                                         \
	(1 * MIB) /* of a body that nobody asked for; more of it ends the connection */
#define LIMIT_HTTP_ANSWER_HEADERS 68 /* that a handler adds */
#define LIMIT_RELAY_HEADERS 64 /* of the answer of a server in a sandbox */
#define LIMIT_RELAY_HEAD (64 * KIB) /* of its head */
#define LIMIT_RELAY_SANDBOX                                                                        \
	64 /* requests at once for one sandbox's servers; its agent has 128 streams */
#define LIMIT_HTTP_IDLE_S                                                                          \
	60 /* for a request to come, its body included; an upload to get on, an answer to go */
#define LIMIT_HTTP_STALL_S                                                                         \
	900 /* that a client reads nothing of a stream (a pager at its terminal) */
#define LIMIT_HTTP_RATE 16384 /* bytes a second below which an upload or an answer is too slow */
#define LIMIT_METRICS_SERIES 1024 /* of one family */
#define LIMIT_CLIENT_PART                                                                          \
	(15 * MIB) /* of an answer that a command reads in parts: a line, a frame */
#define LIMIT_METRICS_SAMPLED 256 /* sandboxes whose memory is asked for one page */
#define LIMIT_METRICS_WAIT_MS 2000 /* for their answers */

/* using a sandbox over HTTP */
#define LIMIT_ENVD_COLLECT (2 * MIB) /* of one stream of a command whose output is answered whole */
#define LIMIT_ENVD_STREAM (64 * GIB) /* of one that is passed on as it comes */
#define LIMIT_ENVD_CHUNK (32 * KIB) /* bytes of output in one event */
#define LIMIT_ENVD_READERS 8 /* that follow one command */
#define LIMIT_ENVD_INPUTS 16 /* requests with input that wait for one command */
#define LIMIT_ENVD_INPUT (2 * MIB) /* bytes of them, beyond the one at hand */
#define LIMIT_ENVD_ENTRIES 10000 /* of a directory's listing, those below it included */
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

/* measuring */
#define LIMIT_SAMPLES 1000000 /* of one series */
#define LIMIT_BENCH_SERIES 4096 /* of one document */
#define LIMIT_BENCH_FILES 64 /* documents read at once */
#define LIMIT_BENCH_CLIENTS 256 /* creates at once */
#define LIMIT_BENCH_OPEN 1024 /* requests of an open loop that are not answered yet */
#define LIMIT_SYMBOLS_BYTES (32 * MIB) /* of a System.map */

#endif
