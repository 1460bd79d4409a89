/* SPDX-License-Identifier: Apache-2.0 */
/* parbake gc: remove from the store what no tag reaches, from the cache what no template needs. */
#include "cli/cli.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/gc_cache.h"
#include "common/json.h"
#include "common/progress.h"

/* A bake writes blobs before the manifest that names them; nothing younger than this is touched. */
#define KEEP_MS (10 * 60 * 1000)
/* What is in the cache may be needed by the next try of a bake that failed. */
#define KEEP_CACHE_MS (24 * 3600 * 1000)

static int64_t seconds(uint64_t ms)
{
	return (int64_t)((ms + 999) / 1000);
}

struct args {
	uint64_t keep_ms, keep_versions, keep_cache_ms;
	const char *store_dir;
	bool dry_run, json;
};

static int run(void *user)
{
	const struct args *a = user;
	cleanup_store struct store *s = NULL;
	uint64_t bytes = 0, cache_bytes = 0;
	unsigned blobs = 0, files = 0;
	struct err err = {0};
	char size[16], cache_size[16];

	if (store_open(a->store_dir, false, &s, &err) < 0)
		return cli_fail(&err);
	store_keep_versions(s, (unsigned)a->keep_versions);
	if (store_gc(s, seconds(a->keep_ms), a->dry_run, &blobs, &bytes, &err) < 0 ||
		gc_cache(s, seconds(a->keep_cache_ms), a->dry_run, &files, &cache_bytes, &err) < 0)
		return cli_fail(&err);
	if (a->json) {
		cleanup_json json_t *obj = json_pack("{s:i, s:I, s:i, s:I, s:b}", "blobs",
			(int)blobs, "bytes", (json_int_t)bytes, "cache_files", (int)files,
			"cache_bytes", (json_int_t)cache_bytes, "dry_run", a->dry_run);

		json_print_line(obj);
	} else {
		printf("%s %u blobs, %s; %u files of the cache, %s\n",
			a->dry_run ? "would remove" : "removed", blobs, progress_bytes(bytes, size),
			files, progress_bytes(cache_bytes, cache_size));
	}
	return CLI_OK;
}

static const struct option_entry options[] = {
	{"keep", 0, OPTION_DURATION, "T", AT(keep_ms), "keep blobs younger than T (10m; 0: none)",
		.zero = true},
	{"keep-versions", 0, OPTION_NUMBER, "N", AT(keep_versions),
		"keep the N newest versions of each name, too, tagged or not",
		.max = LIMIT_INDEX_ENTRIES},
	{"keep-cache", 0, OPTION_DURATION, "T", AT(keep_cache_ms),
		"keep what was used within T (24h; 0: none)", .zero = true},
	{"dry-run", AT(dry_run), "only say what would go"},
	OPTION_JSON(struct args, json),
	OPTION_STORE(struct args, store_dir),
	{0},
};

const struct command command_gc = {"gc",
	"remove what no tag reaches, and what of the cache no template needs", .options = options,
	.args_bytes = sizeof(struct args),
	.defaults = &(const struct args){.keep_ms = KEEP_MS, .keep_cache_ms = KEEP_CACHE_MS},
	.run = run};
