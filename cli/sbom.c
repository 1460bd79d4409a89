/* SPDX-License-Identifier: Apache-2.0 */
/* `parbake sbom`: what is in a version, and where it comes from, for tools that read such documents. */
#include "cli/cli.h"

#include <getopt.h>
#include <string.h>

#include "common/progress.h"
#include "prove/bom.h"

static const struct {
	const char *name;
	json_t *(*make)(const struct store_manifest *m, const struct subject *s);
} formats[] = {
	{"spdx", bom_spdx},
	{"cyclonedx", bom_cyclonedx},
	{"provenance", bom_provenance},
};
#define N_FORMATS (sizeof(formats) / sizeof(*formats))

static int print_document(const char *store_dir, const char *ref, size_t format, struct err *err)
{
	cleanup_store struct store *s = NULL;
	cleanup_manifest struct store_manifest m = {0};
	cleanup_subject struct subject subject = SUBJECT_INIT;
	cleanup_json json_t *document = NULL;
	cleanup_free char *text = NULL;
	struct progress *progress = progress_new(PROGRESS_SILENT);
	int r = cli_resolve(store_dir, ref, &s, &m, err);

	if (!r)
		r = subject_open(s, &m, progress, &subject, err);
	progress_free(progress);
	if (r)
		return r;
	document = formats[format].make(&m, &subject);
	text = json_dumps(document, JSON_INDENT(1) | JSON_SORT_KEYS);
	if (!text)
		abort();
	printf("%s\n", text);
	return 0;
}

int cmd_sbom(int argc, char **argv)
{
	static const struct option options[] = {
		{"format", required_argument, NULL, 'f'},
		{"store", required_argument, NULL, 'S'},
		{NULL, 0, NULL, 0},
	};
	const char *dir = NULL, *name = formats[0].name;
	struct err err = {0};
	size_t format = 0;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'f')
			name = optarg;
		else if (opt == 'S')
			dir = optarg;
		else
			return cli_usage("sbom", "see above");
	}
	while (format < N_FORMATS && strcmp(formats[format].name, name))
		format++;
	if (format == N_FORMATS)
		return cli_usage(
			"sbom", "--format %s: there are spdx, cyclonedx and provenance", name);
	if (argc - optind != 1)
		return cli_usage("sbom", "which template?");
	return print_document(dir, argv[optind], format, &err) < 0 ? cli_fail(&err) : CLI_OK;
}
