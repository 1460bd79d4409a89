/* SPDX-License-Identifier: Apache-2.0 */
/* parbake inspect: a snapshot's manifest and config, as JSON for people and programs. */
#include "cli/cli.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

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

int cmd_inspect(int argc, char **argv)
{
	static const struct option options[] = {
		{"config", no_argument, NULL, 'c'},
		{"manifest", no_argument, NULL, 'm'},
		{"recipe", no_argument, NULL, 'r'},
		{"json", no_argument, NULL, 'j'},
		{"store", required_argument, NULL, 'S'},
		{NULL, 0, NULL, 0},
	};
	cleanup_store struct store *s = NULL;
	cleanup_manifest struct store_manifest m = {0};
	const char *dir = NULL;
	struct err err = {0};
	int opt, what = 0, r;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'S')
			dir = optarg;
		else if (opt == '?')
			return cli_usage("inspect", "see above");
		else if (opt != 'j') /* JSON is all it prints */
			what = opt;
	}
	if (argc - optind != 1)
		return cli_usage("inspect", "which template?");
	r = cli_resolve(dir, argv[optind], &s, &m, &err);
	if (r < 0)
		return cli_fail(&err);
	if (what == 'c') {
		print_pretty(m.config);
	} else if (what == 'm') {
		/* its own bytes, so that their digest can be checked */
		r = print_blob(s, m.digest, &err);
	} else if (what == 'r') {
		r = print_recipe(&m, &err);
	} else {
		cleanup_json json_t *all = json_pack("{s:s, s:s, s:s, s:s, s:o, s:O}", "name",
			m.name, "tag", m.tag, "digest", m.digest, "created", m.created, "layers",
			layers_json(&m), "config", m.config);

		print_pretty(all);
	}
	return r < 0 ? cli_fail(&err) : CLI_OK;
}
