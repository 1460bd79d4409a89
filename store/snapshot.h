/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_STORE_SNAPSHOT_H
#define PARBAKE_STORE_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "common/json.h"

/*
 * The config of a snapshot: all that a restore depends on, and what the recipe says of
 * running it. As JSON it is the config blob (docs/format.md lists the fields).
 */
#define SNAPSHOT_FORMAT 1

struct snapshot_env {
	char **items; /* "K=V" */
	size_t n;
};

struct snapshot_config {
	/* the machine */
	uint64_t memory_bytes;
	unsigned vcpus;
	char accel[8];
	char monitor[32], monitor_version[64], machine[64], cpu[64];
	char cpu_features[DIGEST_TEXT_SIZE]; /* digest of the host's CPU flags under KVM, else "" */
	uint64_t
		tsc_khz; /* TCG: the rate of the time stamp counter its clock follows (vmm/cmdline.h); else 0 */
	uint32_t page_bytes;
	char kernel_digest[DIGEST_TEXT_SIZE], agent_digest[DIGEST_TEXT_SIZE];
	uint32_t protocol; /* the agent's */
	uint8_t boot_nonce
		[16]; /* the agent's nonce of the boot that was captured: proves a restore */
	/* images: raw digests and sizes */
	uint64_t disk_bytes;
	char disk_raw_digest
		[DIGEST_TEXT_SIZE]; /* of the root disk as made from the sources (reproducible) */
	char delta_raw_digest
		[DIGEST_TEXT_SIZE]; /* of what the bake wrote over it, "" where nothing */
	char memory_raw_digest[DIGEST_TEXT_SIZE];
	/* running it */
	char *description;
	struct snapshot_env env;
	char *ready; /* shell line or "python: …", NULL: none */
	char *user; /* the account of SDKs that name none; NULL: root */
	uint64_t exec_timeout_ms, output_bytes, exec_memory_bytes,
		exec_pids; /* [limits]; 0: default */
	bool context; /* a warm interpreter is running */
	/* provenance */
	char recipe_digest[DIGEST_TEXT_SIZE];
	char *recipe; /* the canonical text */
	uint64_t memory_data_bytes; /* non-zero bytes of guest memory */
	json_t *extra; /* object: free facts ("packages": n, "parbake": version, …); may be NULL */
};

/*
 * Aliases: further names of a template, which count where no template has that name. They stand in
 * "aliases" of the config's extra, an array of strings. snapshot_aliases_set() puts @n of them into
 * the object @extra, and no "aliases" where @n is 0. snapshot_aliases_have() says whether @name is
 * one in @config, a config as JSON from anywhere.
 */
void snapshot_aliases_set(json_t *extra, char *const *names, size_t n);
bool snapshot_aliases_have(const json_t *config, const char *name);

/* Can @name be a template's user: at most LIMIT_ACCOUNT of a-z, 0-9, _ and -, a letter or _ first? */
bool snapshot_user_good(const char *name);

void snapshot_config_clear(struct snapshot_config *c);
#define cleanup_snapshot_config __attribute__((__cleanup__(snapshot_config_clear)))
/* New reference; aborts without memory. */
json_t *snapshot_config_to_json(const struct snapshot_config *c);
/* -EINVAL names the field; an unknown format number is refused with what to do. */
int snapshot_config_from_json(const json_t *obj, struct snapshot_config *ret, struct err *err);

/*
 * Ranges: pieces of memory or disk, in rising order. Those of a working set are page runs of guest
 * memory in the order they are first needed.
 */
struct snapshot_range {
	uint64_t offset, bytes; /* multiples of 4 KiB */
};
struct snapshot_ranges {
	struct snapshot_range *ranges;
	size_t n;
};
void snapshot_ranges_clear(struct snapshot_ranges *w);
/* *@ret is a copy. */
int snapshot_ranges_copy(
	const struct snapshot_ranges *w, struct snapshot_ranges *ret, struct err *err);
/* JSON {"version":1,"ranges":[[offset,bytes],…]} both ways; @memory_bytes bounds it. */
json_t *snapshot_ranges_to_json(const struct snapshot_ranges *w);
int snapshot_ranges_from_json(
	const json_t *obj, uint64_t memory_bytes, struct snapshot_ranges *ret, struct err *err);

/*
 * A disk delta holds the ranges that the bake wrote over the root disk, one behind the other; where
 * they belong stands in the config's extra "delta", [[offset, bytes], …]; see docs/format.md. These
 * ranges are ascending and apart, in multiples of 512 bytes, within disk_bytes.
 * snapshot_delta_get() gives none where extra has no "delta"; the caller clears *@ret.
 * snapshot_delta_set() makes extra where there is none.
 */
int snapshot_delta_get(
	const struct snapshot_config *c, struct snapshot_ranges *ret, struct err *err);
void snapshot_delta_set(struct snapshot_config *c, const struct snapshot_range *ranges, size_t n);

#endif
