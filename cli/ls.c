/* SPDX-License-Identifier: Apache-2.0 */
/* parbake ls: what the store holds, a line a tag. */
#include "cli/cli.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "common/json.h"
#include "common/progress.h"
#include "restore/translations.h"

static uint64_t stored_bytes(const struct store_manifest *m)
{
	uint64_t sum = m->config_blob.bytes;

	for (unsigned i = 0; i < m->n_layers; i++)
		sum += m->layers[i].bytes;
	return sum;
}

static void print_row(const struct store_manifest *m, bool json)
{
	cleanup_snapshot_config struct snapshot_config c = {0};
	const struct store_layer *layer = store_layer(m, STORE_MEDIA_MEMORY);
	const char *code = translations_state_name(
		layer ? translations_look(m->config, layer->digest) : TRANSLATIONS_UNNEEDED);
	char size[16], memory[16];
	struct err err = {0};

	if (snapshot_config_from_json(m->config, &c, &err) < 0) {
		fprintf(stderr, "parbake: %s:%s: %s\n", m->name, m->tag, err.text);
		return;
	}
	if (json) {
		cleanup_json json_t *obj = json_pack(
			"{s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:s, s:s, s:s, s:s}", "name", m->name,
			"tag", m->tag, "digest", m->digest, "created", m->created, "stored_bytes",
			(json_int_t)stored_bytes(m), "memory_bytes", (json_int_t)c.memory_bytes,
			"vcpus", (int)c.vcpus, "accel", c.accel, "monitor", c.monitor,
			"translations", code, "description", c.description ?: "");

		json_print_line(obj);
		return;
	}
	printf("%-20s %-10s %.19s  %-4s %2u x %-9s %9s  %.20s  %s\n", m->name, m->tag, m->digest,
		c.accel, c.vcpus, progress_bytes(c.memory_bytes, memory),
		progress_bytes(stored_bytes(m), size), m->created, code);
}

int cmd_ls(int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},
		{"store", required_argument, NULL, 'S'},
		{NULL, 0, NULL, 0},
	};
	cleanup_store struct store *s = NULL;
	struct store_manifest *list = NULL;
	const char *dir = NULL;
	bool json = false;
	size_t n = 0;
	struct err err = {0};
	int opt, r;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'j')
			json = true;
		else if (opt == 'S')
			dir = optarg;
		else
			return cli_usage("ls", "see above");
	}
	if (optind < argc)
		return cli_usage("ls", "\"%s\"?", argv[optind]);
	/* reading makes nothing: a store that is not there yet has no templates */
	r = store_open(dir, false, &s, &err);
	if (r < 0 && (r != -ENOENT || dir))
		return cli_fail(&err);
	if (s && store_list(s, &list, &n, &err) < 0)
		return cli_fail(&err);
	if (!json && n)
		printf("%-20s %-10s %-19s  %-4s %-14s %9s  %-20s  %s\n", "TEMPLATE", "TAG",
			"DIGEST", "ACCEL", "MACHINE", "STORED", "CREATED", "TRANSLATIONS");
	for (size_t i = 0; i < n; i++) {
		print_row(&list[i], json);
		store_manifest_clear(&list[i]);
	}
	if (!json && !n)
		fprintf(stderr, "parbake: no templates%s%s: bake one with `parbake bake base`\n",
			s ? " in " : "", s ? store_dir(s) : "");
	free(list);
	return CLI_OK;
}
