/* SPDX-License-Identifier: Apache-2.0 */
/* `parbake sbom`: what is in a version, and where it comes from, for tools that read such documents. */
#include "cli/cli.h"

#include "common/progress.h"
#include "prove/bom.h"

static const char *const formats[] = {"spdx", "cyclonedx", "provenance", NULL};
static json_t *(*const makers[])(const struct store_manifest *m, const struct subject *s) = {
	bom_spdx, bom_cyclonedx, bom_provenance};

struct args {
	const char *store_dir, *template;
	int format;
};

static int print_document(const struct args *a, struct err *err)
{
	cleanup_store struct store *s = NULL;
	cleanup_manifest struct store_manifest m = {0};
	cleanup_subject struct subject subject = SUBJECT_INIT;
	cleanup_json json_t *document = NULL;
	cleanup_free char *text = NULL;
	struct progress *progress = progress_new(PROGRESS_SILENT);
	int r = cli_resolve(a->store_dir, a->template, &s, &m, err);

	if (!r)
		r = subject_open(s, &m, progress, &subject, err);
	progress_free(progress);
	if (r)
		return r;
	document = makers[a->format](&m, &subject);
	text = json_dumps(document, JSON_INDENT(1) | JSON_SORT_KEYS);
	if (!text)
		abort();
	printf("%s\n", text);
	return 0;
}

static int run(void *user)
{
	struct err err = {0};

	return print_document(user, &err) < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry options[] = {
	{"format", 0, OPTION_CHOICE, "F", AT(format),
		"spdx: SPDX 2.3 (the default); cyclonedx: CycloneDX 1.5; provenance: an in-toto "
		"statement with SLSA's provenance",
		.choices = formats},
	OPTION_STORE(struct args, store_dir),
	{0},
};

static const struct operand_entry operands[] = {{"TEMPLATE", AT(template), NAMES_TEMPLATE}, {0}};

const struct command command_sbom = {"sbom",
	"what is in a version and where it comes from, as a document for tools", .options = options,
	.operands = operands, .args_bytes = sizeof(struct args), .run = run};
