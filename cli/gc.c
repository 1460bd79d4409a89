/* SPDX-License-Identifier: Apache-2.0 */
/* parbake gc: remove from the store what no tag reaches. */
#include "cli/cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

#include "common/json.h"
#include "common/progress.h"

/* A bake writes blobs before the manifest that names them; nothing younger than this is touched. */
#define KEEP_MS (10 * 60 * 1000)

int cmd_gc(int argc, char **argv)
{
	static const struct option options[] = {
		{"keep", required_argument, NULL, 'k'},
		{"dry-run", no_argument, NULL, 'n'},
		{"json", no_argument, NULL, 'j'},
		{"store", required_argument, NULL, 'S'},
		{NULL, 0, NULL, 0},
	};
	cleanup_store struct store *s = NULL;
	const char *dir = NULL;
	uint64_t keep_ms = KEEP_MS, bytes = 0;
	bool dry_run = false, json = false;
	unsigned blobs = 0;
	struct err err = {0};
	char size[16];
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'k' && optarg[0] == '0' && !optarg[1])
			keep_ms = 0;
		else if (opt == 'k' && cli_duration("--keep", optarg, &keep_ms, &err) < 0)
			return cli_usage("gc", "%s", err.text);
		else if (opt == 'n')
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
	if (store_open(dir, false, &s, &err) < 0 ||
		store_gc(s, (int64_t)((keep_ms + 999) / 1000), dry_run, &blobs, &bytes, &err) < 0)
		return cli_fail(&err);
	if (json) {
		cleanup_json json_t *obj = json_pack("{s:i, s:I, s:b}", "blobs", (int)blobs,
			"bytes", (json_int_t)bytes, "dry_run", dry_run);

		json_print_line(obj);
	} else {
		printf("%s %u blobs, %s\n", dry_run ? "would remove" : "removed", blobs,
			progress_bytes(bytes, size));
	}
	return CLI_OK;
}
