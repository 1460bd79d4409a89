/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_RECORD_PRIVATE_H
#define PARBAKE_POOL_RECORD_PRIVATE_H

/* Records: what the pool knows of one sandbox, as a JSON object and as a struct (pool/record.c). */

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/json.h"

struct snapshot_config;

/*
 * A record is the JSON object that a keeper holds for the daemon and that lies beside a checkpoint.
 * This struct is a view of it: all strings and objects are borrowed from the JSON object.
 */
struct pool_record {
	const char *id, *name, *tag, *digest, *key, *mode;
	const char *source; /* of a fork or snapshot: the sandbox it was taken from; "" */
	int64_t started_ms;
	const json_t *metadata, *env; /* objects of strings */
	const json_t *allow; /* array of strings; NULL: no network */
	bool auto_pause; /* the end of its lease pauses it, and does not kill it */
	bool auto_resume; /* a request for what runs in it resumes it */
	bool guarded_ports; /* its ports are for holders of its token alone */
	const char *mask_host; /* what its servers read as Host; "": what was sent */
	uint64_t
		lease_ms; /* of the lease that its create asked for; a request that wakes the sandbox begins such a lease */
	unsigned generation; /* of the checkpoint that the next pause makes */
	/* of the template */
	unsigned vcpus;
	uint64_t memory_bytes, disk_bytes;
	uint64_t exec_timeout_ms, output_bytes, exec_memory_bytes, exec_pids;
	bool context;
	const char *user; /* of SDKs that name none; "": root */
	const json_t *template_env; /* array of "K=V" */
};

/*
 * Read and check @record. -EINVAL names the field. A record may come from a damaged file, but not
 * from an enemy.
 */
int pool_record_read(const json_t *record, struct pool_record *ret, struct err *err);
/* The JSON object of @n: a new reference. Aborts without memory. */
json_t *pool_record_write(const struct pool_record *n);
/* Fill in the template's part of @ret from the config @c. @c is borrowed as long as *@ret is
 * used; @env is the array for n->template_env (a new reference, the caller's). */
void pool_record_template(const struct snapshot_config *c, struct pool_record *ret, json_t **env);
/* Is the record small enough for a keeper to hold? -E2BIG with what to do. */
int pool_record_check(const json_t *record, struct err *err);

#endif
