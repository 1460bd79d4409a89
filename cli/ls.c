/* SPDX-License-Identifier: Apache-2.0 */
/* parbake ls: what the store holds, a line a tag. */
#include "cli/cli.h"

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

struct args {
	const char *store_dir;
	bool json;
};

static int run(void *user)
{
	const struct args *a = user;
	cleanup_store struct store *s = NULL;
	struct store_manifest *list = NULL;
	size_t n = 0;
	struct err err = {0};
	/* reading makes nothing: a store that is not there yet has no templates */
	int r = store_open(a->store_dir, false, &s, &err);

	if (r < 0 && (r != -ENOENT || a->store_dir))
		return cli_fail(&err);
	if (s && store_list(s, &list, &n, &err) < 0)
		return cli_fail(&err);
	if (!a->json && n)
		printf("%-20s %-10s %-19s  %-4s %-14s %9s  %-20s  %s\n", "TEMPLATE", "TAG",
			"DIGEST", "ACCEL", "MACHINE", "STORED", "CREATED", "TRANSLATIONS");
	for (size_t i = 0; i < n; i++) {
		print_row(&list[i], a->json);
		store_manifest_clear(&list[i]);
	}
	if (!a->json && !n)
		fprintf(stderr, "parbake: no templates%s%s: bake one with `parbake bake base`\n",
			s ? " in " : "", s ? store_dir(s) : "");
	free(list);
	return CLI_OK;
}

static const struct option_entry options[] = {
	OPTION_JSON(struct args, json),
	OPTION_STORE(struct args, store_dir),
	{0},
};

const struct command command_ls = {"ls", "list the templates in the store", .options = options,
	.args_bytes = sizeof(struct args), .run = run};
