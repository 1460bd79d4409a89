/* SPDX-License-Identifier: Apache-2.0 */
/* parbake inspect: a snapshot's manifest and config, as JSON for people and programs. */
#include "cli/cli.h"

#include <stdio.h>

#include "common/json.h"

static json_t *layers_json(const struct store_manifest *m)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < m->n_layers; i++)
		json_array_append_new(list,
			json_pack("{s:s, s:s, s:I}", "mediaType", m->layers[i].media, "digest",
				m->layers[i].digest, "size", (json_int_t)m->layers[i].bytes));
	return list;
}

static void print_pretty(const json_t *value)
{
	cleanup_free char *text =
		json_dumps(value, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_ENCODE_ANY);

	if (!text)
		abort();
	printf("%s\n", text);
}

static int print_blob(struct store *s, const char *digest, struct err *err)
{
	cleanup_fd int fd = -1;
	char buf[16384];
	ssize_t n;
	int r = store_blob_open(s, digest, STORE_BYTES_ANY, &fd, err);

	if (r < 0)
		return r;
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		fwrite(buf, 1, (size_t)n, stdout);
	return n < 0 ? err_sys(err, errno, "read %s", digest) : 0;
}

static int print_recipe(const struct store_manifest *m, struct err *err)
{
	cleanup_snapshot_config struct snapshot_config c = {0};
	int r = snapshot_config_from_json(m->config, &c, err);

	if (r < 0)
		return r;
	printf("%s", c.recipe ?: "");
	return 0;
}

enum part { PART_ALL, PART_CONFIG, PART_MANIFEST, PART_RECIPE };

struct args {
	const char *store_dir, *template;
	bool json; /* JSON is all it prints */
	int part;
};

static int run(void *user)
{
	const struct args *a = user;
	cleanup_store struct store *s = NULL;
	cleanup_manifest struct store_manifest m = {0};
	struct err err = {0};
	int r = cli_resolve(a->store_dir, a->template, &s, &m, &err);

	if (r < 0)
		return cli_fail(&err);
	if (a->part == PART_CONFIG) {
		print_pretty(m.config);
	} else if (a->part == PART_MANIFEST) {
		/* its own bytes, so that their digest can be checked */
		r = print_blob(s, m.digest, &err);
	} else if (a->part == PART_RECIPE) {
		r = print_recipe(&m, &err);
	} else {
		cleanup_json json_t *all = json_pack("{s:s, s:s, s:s, s:s, s:o, s:O}", "name",
			m.name, "tag", m.tag, "digest", m.digest, "created", m.created, "layers",
			layers_json(&m), "config", m.config);

		print_pretty(all);
	}
	return r < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry options[] = {
	{"config", 0, OPTION_SET, AT(part), "its config alone", .set = PART_CONFIG},
	{"manifest", 0, OPTION_SET, AT(part), "its manifest, the very bytes", .set = PART_MANIFEST},
	{"recipe", 0, OPTION_SET, AT(part), "the recipe it was baked from", .set = PART_RECIPE},
	{"json", AT(json), "as without: JSON is all it prints"},
	OPTION_STORE(struct args, store_dir),
	{0},
};

static const struct operand_entry operands[] = {{"TEMPLATE", AT(template), NAMES_TEMPLATE}, {0}};

const struct command command_inspect = {"inspect", "show what a snapshot is made of, as JSON",
	.options = options, .operands = operands, .args_bytes = sizeof(struct args), .run = run};
