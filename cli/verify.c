/* SPDX-License-Identifier: Apache-2.0 */
/* parbake verify: every byte of the named snapshots, or of all, in the store and in this host's cache. */
#include "cli/cli.h"

#include <stdio.h>

#include "bake/trial.h"
#include "common/clock.h"
#include "common/json.h"
#include "restore/disk.h"
#include "restore/translations.h"
#include "store/signed.h"
#include "store/snapshot.h"

/* What the cache of this host has of it: how much was read, and in what time. */
struct cached {
	unsigned files;
	uint64_t bytes;
	int64_t ns;
};

static int verify_cached(const struct store_manifest *m, struct cached *ret, struct err *err)
{
	cleanup_snapshot_config struct snapshot_config c = {0};
	const struct store_layer *memory = store_layer(m, STORE_MEDIA_MEMORY);
	int64_t begin = clock_now_ns();
	uint64_t disk = 0, translations = 0;
	int r = snapshot_config_from_json(m->config, &c, err);

	if (r < 0 || (r = disk_verify(&c, &disk, err)) < 0)
		return r;
	ret->files = (unsigned)r;
	if (memory)
		r = translations_verify(memory->digest, c.monitor_version, &translations, err);
	if (r < 0)
		return r;
	ret->files += memory ? (unsigned)r : 0;
	ret->bytes = disk + translations;
	ret->ns = clock_now_ns() - begin;
	return 0;
}

/* How it is told: as JSON; what else is done: a restore, a look at signatures. */
struct args {
	bool json, boot;
	const char *keys; /* that one of has signed it; NULL: any, or none */
	const char *store_dir;
	struct words templates;
};

static int verify_one(struct store *s, const struct store_manifest *m, const struct args *a)
{
	struct progress *progress = progress_new(a->json ? PROGRESS_SILENT : PROGRESS_AUTO);
	struct err err = {0};
	struct cached cached = {0};
	uint64_t boot_ms = 0;
	char size[16];
	int r = store_verify(s, m, progress, &err);
	bool stored = r == 0;

	if (r == 0)
		r = verify_cached(m, &cached, &err);
	if (r == 0 && a->keys)
		r = store_signed_by_file(s, m->digest, a->keys, &err);
	if (r == 0 && a->boot) {
		progress_stage(progress, "restore", NULL, 0);
		r = trial_ready(s, m, &boot_ms, &err);
		if (r == 0)
			progress_done(progress, NULL);
		else
			err_prefix(&err, "restore it");
	}
	progress_free(progress);
	if (a->json) {
		cleanup_json json_t *obj = json_pack("{s:s, s:s, s:s, s:b, s:o}", "name", m->name,
			"tag", m->tag, "digest", m->digest, "ok", r == 0, "error",
			json_lossy(err.text, strlen(err.text)));

		if (a->boot && r == 0)
			json_object_set_new(obj, "boot_ms", json_integer((json_int_t)boot_ms));
		json_print_line(obj);
	} else if (r < 0 && stored) {
		fprintf(stderr, "parbake: %s:%s: %s\n", m->name, m->tag, err.text);
	} else if (r < 0) {
		fprintf(stderr,
			"parbake: %s:%s: %s\nremove it with `parbake rm %s:%s` and bake it anew\n",
			m->name, m->tag, err.text, m->name, m->tag);
	} else {
		printf("%s:%s: good, %s; of it in the cache: %u files, %s read in %.2f s\n",
			m->name, m->tag, m->digest, cached.files,
			progress_bytes(cached.bytes, size), (double)cached.ns / 1e9);
		if (a->boot)
			printf("%s:%s: restored, and its check passed after %lu ms\n", m->name,
				m->tag, (unsigned long)boot_ms);
	}
	return r;
}

/* Every tag, also those that are too damaged for store_list(). */
static int verify_all(struct store *s, const struct args *a)
{
	struct err err = {0};
	char **refs = NULL;
	int bad = 0;
	size_t n = 0;

	if (store_refs(s, &refs, &n, &err) < 0)
		return cli_fail(&err);
	for (size_t i = 0; i < n; i++) {
		cleanup_manifest struct store_manifest m = {0};

		if (store_resolve(s, refs[i], &m, &err) < 0) {
			cli_fail(&err);
			bad = 1;
		} else {
			bad |= verify_one(s, &m, a) < 0;
		}
		free(refs[i]);
	}
	free(refs);
	return bad ? CLI_FAILED : CLI_OK;
}

static int run(void *user)
{
	const struct args *a = user;
	cleanup_store struct store *s = NULL;
	bool bad = false;
	struct err err = {0};

	if (store_open(a->store_dir, false, &s, &err) < 0)
		return cli_fail(&err);
	if (a->templates.n == 0)
		return verify_all(s, a);
	for (size_t i = 0; i < a->templates.n; i++) {
		cleanup_manifest struct store_manifest m = {0};

		if (store_resolve(s, a->templates.items[i], &m, &err) < 0)
			return cli_fail(&err);
		bad |= verify_one(s, &m, a) < 0;
	}
	return bad ? CLI_FAILED : CLI_OK;
}

static const struct option_entry options[] = {
	{"boot", AT(boot), "then restore each, and have it pass its ready check"},
	{"require-signature", 0, OPTION_TEXT, "FILE", AT(keys), "a key in FILE must have signed it",
		NAMES_FILE},
	OPTION_JSON(struct args, json),
	OPTION_STORE(struct args, store_dir),
	{0},
};

static const struct operand_entry operands[] = {
	{"TEMPLATE", AT(templates), NAMES_TEMPLATE, .optional = true, .many = true}, {0}};

const struct command command_verify = {"verify",
	"check every byte of snapshots against their digests, and of what the cache has of them",
	.options = options, .operands = operands, .args_bytes = sizeof(struct args), .run = run};
