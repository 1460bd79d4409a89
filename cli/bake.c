/* SPDX-License-Identifier: Apache-2.0 */
/* `parbake bake`: recipes by name or path, one after the other. */
#include "cli/cli.h"
#include "common/log.h"

#include <getopt.h>
#include <string.h>
#include <sys/stat.h>

#include "bake/bake.h"
#include "restore/train.h"
#include "common/clock.h"
#include "common/json.h"
#include "common/paths.h"
#include "common/progress.h"
#include "common/str.h"

#define DIRS_MAX 4

struct args {
	const char *store_dir;
	struct bake_options bake;
	bool root_only;
	bool json;
	char *dirs[DIRS_MAX]; /* where named recipes lie; NULL-terminated */
};

/* Takes @dir. What is no directory, or is there already by another name, is passed over. */
static void add_dir(struct args *a, char *dir)
{
	char *real = dir ? realpath(dir, NULL) : NULL;
	struct stat st;
	size_t n = 0;

	free(dir);
	while (real && a->dirs[n] && strcmp(a->dirs[n], real))
		n++;
	if (real && !a->dirs[n] && n < DIRS_MAX - 1 && !stat(real, &st) && S_ISDIR(st.st_mode))
		a->dirs[n] = real;
	else
		free(real);
}

/* $PARBAKE_TEMPLATES, the templates beside the program (a source tree), those installed with it. */
static void find_dirs(struct args *a)
{
	const char *env = getenv("PARBAKE_TEMPLATES");
	cleanup_free char *program = realpath("/proc/self/exe", NULL);
	char *slash = program ? strrchr(program, '/') : NULL, *lib = NULL;

	if (env && *env)
		add_dir(a, str_dup(env));
	if (slash)
		add_dir(a, str_printf("%.*s/templates", (int)(slash - program), program));
	if (!paths_lib("templates", &lib, NULL))
		add_dir(a, lib);
}

static int parse_options(struct args *a, int argc, char **argv, struct err *err)
{
	static const struct option options[] = {
		{"tag", required_argument, NULL, 't'},
		{"force", no_argument, NULL, 'f'},
		{"from-stage", required_argument, NULL, 's'},
		{"until", required_argument, NULL, 'u'},
		{"accel", required_argument, NULL, 'a'},
		{"monitor", required_argument, NULL, 'm'},
		{"json", no_argument, NULL, 'j'},
		{"store", required_argument, NULL, 'S'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	bool accel = false, force = false;
	int c;

	a->bake.from = PLAN_STAGES;
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 't':
			a->bake.tag = optarg;
			break;
		case 'f':
			force = true;
			break;
		case 's':
			if (plan_stage_parse(optarg, &a->bake.from))
				return err_set(err, EINVAL,
					"--from-stage %s: there are source, root and guest",
					optarg);
			break;
		case 'u':
			if (strcmp(optarg, "root"))
				return err_set(err, EINVAL, "--until %s: there is root", optarg);
			a->root_only = true;
			break;
		case 'a':
			if (machine_accel_parse(optarg, &a->bake.accel))
				return err_set(
					err, EINVAL, "--accel %s: must be kvm or tcg", optarg);
			accel = true;
			break;
		case 'm': /* checked where monitors are looked for */
			setenv("PARBAKE_MONITOR", optarg, 1);
			break;
		case 'j':
			a->json = true;
			break;
		case 'S':
			a->store_dir = optarg;
			break;
		case 'h':
			return 1;
		default:
			return err_set(err, EINVAL, "unknown option, or one without its value");
		}
	}
	if (optind == argc)
		return err_set(err, EINVAL, "which recipe? A name (base) or a path (./mine.ini)");
	/* --force with --from-stage: from there */
	if (force && a->bake.from == PLAN_STAGES)
		a->bake.from = PLAN_SOURCE;
	return accel || a->root_only ? 0 : monitor_default_accel(&a->bake.accel, err);
}

static void report(
	const struct args *a, const struct recipe *r, const struct bake_result *res, int64_t begin)
{
	double seconds = (double)(clock_now_ns() - begin) / 1e9;
	const struct store_manifest *m = &res->manifest;
	char memory[16], delta[16];
	json_t *event;

	if (!a->json) {
		if (res->up_to_date)
			printf("%s: up to date (%s)\n", r->name, m->digest);
		else
			printf("%s: baked %s in %.1f s; %s of guest memory hold data, %s of disk "
			       "were "
			       "written over the root\n",
				r->name, m->digest, seconds,
				progress_bytes(res->memory_data_bytes, memory),
				progress_bytes(res->delta_bytes, delta));
		fflush(stdout);
		return;
	}
	event = json_pack("{s:s, s:s, s:s, s:s, s:b, s:f, s:I, s:I, s:I, s:I}", "event", "baked",
		"name", r->name, "tag", m->tag, "digest", m->digest, "up_to_date", res->up_to_date,
		"seconds", seconds, "memory_data_bytes", (json_int_t)res->memory_data_bytes,
		"memory_stored_bytes", (json_int_t)res->memory_stored_bytes, "delta_bytes",
		(json_int_t)res->delta_bytes, "boot_ms", (json_int_t)res->boot_ms);
	if (!event)
		abort();
	json_print_line(event);
	json_decref(event);
}

/* Baked elsewhere, or its translations are gone from the cache: here they are made. */
static void train(struct store *s, const struct store_manifest *m, struct progress *progress)
{
	struct err err;

	if (train_template(s, m, progress, &err) < 0)
		log_warn("%s: sandboxes will start slower than they could: %s", m->name, err.text);
}

static int bake_one(const struct args *a, struct store *s, const char *name, struct err *err)
{
	cleanup_recipe struct recipe *r = NULL;
	cleanup_bake_result struct bake_result res = {0};
	struct bake_options opt = a->bake;
	int64_t begin = clock_now_ns();
	int rc = recipe_read(name, (const char *const *)a->dirs, &r, err);

	if (rc)
		return rc;
	opt.progress = progress_new(a->json ? PROGRESS_JSON : PROGRESS_AUTO);
	rc = a->root_only ? bake_root(r, &opt, err) : bake_run(s, r, &opt, &res, err);
	if (!rc && res.up_to_date)
		train(s, &res.manifest, opt.progress);
	progress_free(opt.progress);
	if (rc)
		err_prefix(err, "bake %s", r->name);
	if (rc || a->root_only)
		return rc;
	report(a, r, &res, begin);
	return 0;
}

int cmd_bake(int argc, char **argv)
{
	struct args a = {0};
	cleanup_store struct store *s = NULL;
	struct err err = {0};
	int rc;

	rc = parse_options(&a, argc, argv, &err);
	if (rc > 0)
		return cli_help("bake");
	if (rc == -EINVAL)
		return cli_usage("bake", "%s", err.text);
	find_dirs(&a);
	if (!rc)
		rc = store_open(a.store_dir, true, &s, &err);
	for (int i = optind; i < argc && !rc; i++)
		rc = bake_one(&a, s, argv[i], &err);
	for (size_t i = 0; i < DIRS_MAX; i++)
		free(a.dirs[i]);
	if (rc && a.json) {
		cleanup_json json_t *event = json_pack("{s:s, s:o}", "event", "error", "text",
			json_lossy(err.text, strlen(err.text)));

		json_print_line(event);
	}
	return rc ? cli_fail(&err) : CLI_OK;
}
