/* SPDX-License-Identifier: Apache-2.0 */
/* `parbake bake`: recipes by name or path, one after the other. */
#include "cli/cli.h"
#include "common/log.h"

#include <fcntl.h>
#include <string.h>

#include "bake/bake.h"
#include "restore/train.h"
#include "cli/recipes.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/json.h"
#include "common/paths.h"
#include "common/progress.h"
#include "cli/limits.h"
#include "common/str.h"
#include "prove/lock.h"

struct args {
	const char *store_dir;
	struct words recipes;
	struct bake_options bake;
	const char *accel, *monitor, *until; /* NULL: not given */
	bool force;
	bool lock, locked; /* write the lock beside the recipe; be held to it */
	bool json;
	struct recipe_dirs dirs;
};

/* 0, an exit status, or a negative errno. */
static int check_options(struct args *a, struct err *err)
{
	if (a->lock && a->locked)
		return command_usage(
			&command_bake, "--lock makes a lock anew, --locked keeps to it");
	if ((a->lock || a->locked || a->bake.dry) && a->until)
		return command_usage(&command_bake,
			"--until root makes no version: there is nothing to compare");
	if (a->lock && a->bake.dry)
		return command_usage(
			&command_bake, "--check bakes nothing that a lock could be made of");
	/* --force with --from-stage: from there */
	if (a->force && a->bake.from == PLAN_STAGES)
		a->bake.from = PLAN_SOURCE;
	if (a->monitor)
		setenv("PARBAKE_MONITOR", a->monitor, 1);
	if (a->accel)
		return machine_accel_parse(a->accel, &a->bake.accel);
	return a->until ? 0 : monitor_default_accel(&a->bake.accel, err);
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

	if (train_template(s, m, true, progress, &err) < 0)
		log_warn("%s: sandboxes will start slower than they could: %s", m->name, err.text);
}

/* The tag's version against what the recipe would give now. */
static int report_check(const struct args *a, const struct recipe *r, const struct bake_result *res)
{
	const char *first = res->up_to_date ? ""
		: res->first == PLAN_STAGES ? "all"
					    : plan_stage_name(res->first);

	if (a->json) {
		cleanup_json json_t *event = json_pack("{s:s, s:s, s:b, s:s}", "event", "checked",
			"name", r->name, "up_to_date", res->up_to_date, "from_stage", first);

		json_print_line(event);
	} else if (res->up_to_date) {
		printf("%s: up to date (%s)\n", r->name, res->manifest.digest);
	} else {
		printf("%s: to be baked, %s\n", r->name,
			res->first == PLAN_STAGES           ? "there is no version of it"
				: res->first == PLAN_SOURCE ? "from the sources on"
				: res->first == PLAN_ROOT   ? "from the root disk on"
							    : "from the boot on");
	}
	fflush(stdout);
	return res->up_to_date ? CLI_OK : CLI_DIFFERS;
}

static int read_lock(const struct recipe *r, struct lock *ret, struct err *err)
{
	cleanup_free char *path = lock_path(r), *text = NULL;
	size_t len;
	int rc = file_read_all(AT_FDCWD, path, LIMIT_LOCK_BYTES, &text, &len, err);

	if (rc == -ENOENT)
		err_append(err, ": make it with `parbake bake --lock`");
	return rc ? rc : lock_parse(path, text, len, ret, err);
}

static int write_lock(const struct recipe *r, const struct lock *l, struct err *err)
{
	cleanup_free char *path = lock_path(r), *text = lock_text(l);
	char *slash = strrchr(path, '/');

	if (slash)
		*slash = '\0';
	return file_publish(slash ? path : ".", slash ? slash + 1 : path, text, strlen(text),
		0666 & ~cli_umask, err);
}

static void report_drift(const struct args *a, const struct recipe *r, const struct strings *drift)
{
	for (size_t i = 0; i < drift->n; i++) {
		cleanup_json json_t *event = NULL;

		if (!a->json) {
			fprintf(stderr, "%s\n", drift->items[i]);
			continue;
		}
		event = json_pack("{s:s, s:s, s:o}", "event", "drift", "name", r->name, "text",
			json_lossy(drift->items[i], strlen(drift->items[i])));
		json_print_line(event);
	}
}

/* An exit status, or a negative errno. */
static int bake_one(const struct args *a, struct store *s, const char *name, struct err *err)
{
	cleanup_recipe struct recipe *r = NULL;
	cleanup_bake_result struct bake_result res = {0};
	cleanup_lock_watch struct lock_watch watch = {0};
	struct bake_options opt = a->bake;
	int64_t begin = clock_now_ns();
	int rc = recipe_read(name, (const char *const *)a->dirs.items, &r, err);

	if (rc)
		return rc;
	if (a->locked)
		rc = read_lock(r, &watch.lock, err);
	if (rc)
		return rc;
	opt.check = a->locked ? lock_hold : a->lock ? lock_make : NULL;
	opt.check_user = &watch;
	opt.progress = progress_new(a->json ? PROGRESS_JSON : PROGRESS_AUTO);
	rc = a->until ? bake_root(r, &opt, err) : bake_run(s, r, &opt, &res, err);
	if (!rc && res.up_to_date && !opt.dry)
		train(s, &res.manifest, opt.progress);
	progress_free(opt.progress);
	report_drift(a, r, &watch.drift);
	if (!rc && a->lock)
		rc = write_lock(r, &watch.lock, err);
	if (rc)
		err_prefix(err, "bake %s", r->name);
	if (rc || a->until)
		return rc;
	if (opt.dry)
		return report_check(a, r, &res);
	report(a, r, &res, begin);
	return 0;
}

static int run(void *user)
{
	struct args *a = user;
	cleanup_store struct store *s = NULL;
	struct err err = {0};
	int rc = check_options(a, &err);

	if (rc > 0)
		return rc;
	if (rc == -EINVAL)
		return command_usage(&command_bake, "%s", err.text);
	recipe_dirs_find(&a->dirs);
	if (!rc)
		rc = store_open(a->store_dir, true, &s, &err);
	/* a check goes through all of them */
	for (size_t i = 0; i < a->recipes.n && rc >= 0; i++) {
		int one = bake_one(a, s, a->recipes.items[i], &err);

		rc = one < 0 ? one : rc > one ? rc : one;
	}
	recipe_dirs_clear(&a->dirs);
	if (rc < 0 && a->json) {
		cleanup_json json_t *event = json_pack("{s:s, s:o}", "event", "error", "text",
			json_lossy(err.text, strlen(err.text)));

		json_print_line(event);
	}
	if (rc < 0)
		cli_fail(&err);
	return rc >= 0 ? rc : rc == -ESTALE ? CLI_DIFFERS : CLI_FAILED;
}

static const char *const stages[] = {
	[PLAN_SOURCE] = "source", [PLAN_ROOT] = "root", [PLAN_GUEST] = "guest", NULL};

static const struct option_entry options[] = {
	{"tag", 0, OPTION_TEXT, "TAG", AT(bake.tag), "publish under NAME:TAG (latest)"},
	{"force", AT(force), "do every stage anew, whatever is cached"},
	{"from-stage", 0, OPTION_CHOICE, "S", AT(bake.from),
		"do stage S and those after it anew: source, root, guest", .choices = stages},
	{"until", 0, OPTION_TEXT, AT(until),
		"make the root disk, into the cache, and no more: needs no guest kernel",
		.choices = (const char *const[]){"root", NULL}},
	{"accel", 0, OPTION_TEXT, AT(accel), "bake for it (what this host has)",
		.choices = (const char *const[]){"tcg", "kvm", NULL}},
	{"monitor", 0, OPTION_TEXT, AT(monitor),
		"bake with parbake-vmm (kvm) or QEMU (qemu; what works best)",
		.choices = (const char *const[]){"kvm", "qemu", NULL}},
	{"sources", 0, OPTION_TEXT, "DIR", AT(bake.sources),
		"take the root's archive from DIR, where `parbake fetch` has put it", NAMES_DIR},
	{"lock", AT(lock), "write what it was made of into NAME.lock beside the recipe"},
	{"locked", AT(locked), "bake what NAME.lock says: any drift is listed and refused"},
	{"check", AT(bake.dry),
		"bake nothing, say whether the version is what the recipe would give"},
	{"json", AT(json), "events, one JSON object a line"},
	OPTION_STORE(struct args, store_dir),
	{0},
};

static const struct operand_entry operands[] = {
	{"RECIPE", AT(recipes), NAMES_RECIPE, .many = true}, {0}};

const struct command command_bake = {"bake", "make snapshots from recipes",
	.notes = "Exit status: 0; 1 it failed; 3 --check: to be baked, --locked: it differs from "
		 "the lock.",
	.options = options, .operands = operands, .args_bytes = sizeof(struct args),
	.defaults = &(const struct args){.bake.from = PLAN_STAGES}, .run = run};
