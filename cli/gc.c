/* SPDX-License-Identifier: Apache-2.0 */
/* parbake gc: remove from the store what no tag reaches, from the cache what no template needs. */
#include "cli/cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

/* A duration, or 0. */
static int take_keep(const char *option, const char *arg, uint64_t *ret_ms, struct err *err)
{
	if (strcmp(arg, "0"))
		return cli_duration(option, arg, ret_ms, err);
	*ret_ms = 0;
	return 0;
}

int cmd_gc(int argc, char **argv)
{
	static const struct option options[] = {
		{"keep", required_argument, NULL, 'k'},
		{"keep-versions", required_argument, NULL, 'v'},
		{"keep-cache", required_argument, NULL, 'c'},
		{"dry-run", no_argument, NULL, 'n'},
		{"json", no_argument, NULL, 'j'},
		{"store", required_argument, NULL, 'S'},
		{NULL, 0, NULL, 0},
	};
	cleanup_store struct store *s = NULL;
	const char *dir = NULL;
	uint64_t keep_ms = KEEP_MS, keep_cache_ms = KEEP_CACHE_MS, bytes = 0, cache_bytes = 0;
	bool dry_run = false, json = false;
	unsigned blobs = 0, files = 0;
	uint64_t versions = 0;
	struct err err = {0};
	char size[16], cache_size[16];
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if ((opt == 'v' &&
			    cli_number("--keep-versions", optarg, 0, LIMIT_INDEX_ENTRIES, &versions,
				    &err) < 0) ||
			(opt == 'k' && take_keep("--keep", optarg, &keep_ms, &err) < 0) ||
			(opt == 'c' && take_keep("--keep-cache", optarg, &keep_cache_ms, &err) < 0))
			return cli_usage("gc", "%s", err.text);
		if (opt == 'n')
			dry_run = true;
		else if (opt == 'j')
			json = true;
		else if (opt == 'S')
			dir = optarg;
		else if (opt == '?')
			return cli_usage("gc", "see above");
	}
	if (optind < argc)
		return cli_usage("gc", "\"%s\"?", argv[optind]);
	if (store_open(dir, false, &s, &err) < 0)
		return cli_fail(&err);
	store_keep_versions(s, (unsigned)versions);
	if (store_gc(s, seconds(keep_ms), dry_run, &blobs, &bytes, &err) < 0 ||
		gc_cache(s, seconds(keep_cache_ms), dry_run, &files, &cache_bytes, &err) < 0)
		return cli_fail(&err);
	if (json) {
		cleanup_json json_t *obj = json_pack("{s:i, s:I, s:i, s:I, s:b}", "blobs",
			(int)blobs, "bytes", (json_int_t)bytes, "cache_files", (int)files,
			"cache_bytes", (json_int_t)cache_bytes, "dry_run", dry_run);

		json_print_line(obj);
	} else {
		printf("%s %u blobs, %s; %u files of the cache, %s\n",
			dry_run ? "would remove" : "removed", blobs, progress_bytes(bytes, size),
			files, progress_bytes(cache_bytes, cache_size));
	}
	return CLI_OK;
}
