/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a bake. Everything costly lies between two short ends. At the beginning the plan is
 * made and compared with the snapshot that the tag names (a bake of an unchanged recipe ends
 * there). At the end manifest and tag are written. Nobody else can reach what is made in between:
 * cached stages are files under their own keys, blobs without a manifest are removed by the next
 * gc, the machine dies with this process, and its disk and memory have no names.
 */
#include "bake/bake.h"

#include <fcntl.h>
#include <string.h>

#include "bake/capture.h"
#include "bake/guest_install.h"
#include "bake/oven.h"
#include "bake/root.h"
#include "bake/scan/lent.h"
#include "bake/source/source.h"
#include "bake/plan/stage.h"
#include "bake/trial.h"
#include "bake/warm.h"
#include "common/clock.h"
#include "common/paths.h"
#include "common/str.h"
#include "vmm/kernel.h"

#define TAG_DEFAULT "latest"

struct baking {
	struct store *store;
	const struct recipe *r;
	const struct bake_options *opt;
	const char *tag;
	char *kernel, *initrd, *scratch;
	char kernel_digest[DIGEST_TEXT_SIZE], initrd_digest[DIGEST_TEXT_SIZE];
	const struct monitor_facts *monitor;
	int64_t epoch;
	struct plan plan;
	struct bake_view view;
};

static void baking_clear(struct baking *b)
{
	free(b->kernel);
	free(b->initrd);
	free(b->scratch);
}

static int sum_file(const char *path, char ret[static DIGEST_TEXT_SIZE], struct err *err)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_sys(err, errno, "%s", path);
	return digest_fd(fd, ret, err);
}

/* What the bake depends on, and from it the plan. */
static int prepare(struct baking *b, struct err *err)
{
	cleanup_free char *monitor = NULL;
	struct plan_facts facts;
	int rc = plan_epoch(&b->epoch, err);

	if (!rc)
		rc = machine_kernel_path(&b->kernel, err);
	if (!rc)
		rc = paths_lib("initramfs.cpio", &b->initrd, err);
	if (!rc)
		rc = stage_dir(&b->scratch, err);
	if (!rc)
		rc = sum_file(b->kernel, b->kernel_digest, err);
	if (!rc)
		rc = sum_file(b->initrd, b->initrd_digest, err);
	if (!rc)
		rc = monitor_probe_for(b->opt->accel, &b->monitor, err);
	if (rc) {
		err_prefix(err, "accel %s", machine_accel_name(b->opt->accel));
		return rc;
	}
	monitor = str_printf("%s\n%s\n%s\n%s", b->monitor->name, b->monitor->version,
		b->monitor->machine, monitor_cpu_model(b->monitor, b->opt->accel));
	facts = (struct plan_facts){
		.epoch = b->epoch,
		.kernel_digest = b->kernel_digest,
		.agent_digest = b->initrd_digest,
		.monitor = monitor,
		.accel = machine_accel_name(b->opt->accel),
	};
	rc = plan_make(b->r, &facts, &b->plan, err);
	if (rc)
		err_prefix(err, "%s", b->r->files_read[b->r->n_files_read - 1]);
	return rc;
}

static int check(struct baking *b, enum bake_point point, struct err *err)
{
	return b->opt->check ? b->opt->check(b->opt->check_user, point, &b->view, err) : 0;
}

/* The inputs are known. */
static int check_plan(struct baking *b, struct err *err)
{
	b->view = (struct bake_view){.recipe = b->r,
		.plan = &b->plan,
		.epoch = b->epoch,
		.kernel_digest = b->kernel_digest,
		.agent_digest = b->initrd_digest,
		.monitor = b->monitor,
		.accel = b->opt->accel,
		.root_fd = -1,
		.store = b->store};
	return check(b, BAKE_PLANNED, err);
}

/* Is what the tag names the result of this very plan, and all there? */
static bool up_to_date(struct baking *b, struct store_manifest *ret)
{
	cleanup_free char *ref = str_printf("%s:%s", b->r->name, b->tag);
	cleanup_manifest struct store_manifest m = {0};
	const json_t *extra;
	const char *key;

	if (store_resolve(b->store, ref, &m, NULL))
		return false;
	extra = json_object_get(m.config, "extra");
	if (!extra || json_get_string(extra, "key", &key, NULL) ||
		strcmp(key, b->plan.key[PLAN_GUEST]))
		return false;
	for (unsigned i = 0; i < m.n_layers; i++)
		if (!store_blob_has(b->store, m.layers[i].digest, m.layers[i].bytes))
			return false;
	*ret = m;
	m = (struct store_manifest){0};
	return true;
}

/* The first stage whose key is another than that of what the tag names. */
static enum plan_stage first_stage(struct baking *b)
{
	static const char *const keys[] = {
		[PLAN_SOURCE] = "source_key", [PLAN_ROOT] = "root_key", [PLAN_GUEST] = "key"};
	cleanup_free char *ref = str_printf("%s:%s", b->r->name, b->tag);
	cleanup_manifest struct store_manifest m = {0};

	if (store_resolve(b->store, ref, &m, NULL))
		return PLAN_STAGES;
	for (unsigned i = 0; i < PLAN_GUEST; i++) {
		const char *was;

		if (json_get_string(json_object_get(m.config, "extra"), keys[i], &was, NULL) ||
			strcmp(was, b->plan.key[i]))
			return (enum plan_stage)i;
	}
	return PLAN_GUEST;
}

static int done_before(struct baking *b, struct bake_result *ret, struct err *err)
{
	ret->up_to_date = true;
	b->view.made = &ret->manifest;
	return check(b, BAKE_MADE, err);
}

static int boot(struct baking *b, const struct root_disk *root, struct oven *oven, uint64_t *ret_ms,
	struct err *err)
{
	struct oven_spec spec = {
		.shape = {.memory_bytes = b->r->memory_bytes,
			.vcpus = b->r->vcpus,
			.accel = b->opt->accel},
		.settled = recipe_settles_addresses(b->r, b->opt->accel == MACHINE_TCG),
		.monitor = b->monitor,
		.kernel = b->kernel,
		.initrd = b->initrd,
		.disk_fd = root->fd,
		.disk_bytes = b->r->disk_bytes,
		.scratch_dir = b->scratch,
		.progress = b->opt->progress,
	};
	int64_t begin = clock_now_ns();
	int rc;

	progress_stage(b->opt->progress, "boot", NULL, 0);
	rc = oven_boot(&spec, oven, err);
	if (rc)
		return rc;
	*ret_ms = (uint64_t)(clock_now_ns() - begin) / 1000000;
	progress_done(b->opt->progress, "the agent answered after %lu ms", (unsigned long)*ret_ms);
	return 0;
}

/* The guest stage: one machine from boot to blobs. */
static int bake_guest(struct baking *b, const struct root_disk *root, struct capture *capture,
	struct bake_result *ret, struct err *err)
{
	cleanup_lent struct lent lent = {0};
	cleanup_oven struct oven oven = OVEN_INIT;
	struct capture_spec spec = {
		.what = {.recipe = b->r,
			.plan = &b->plan,
			.monitor = b->monitor,
			.accel = b->opt->accel,
			.kernel_digest = b->kernel_digest,
			.initrd_digest = b->initrd_digest},
		.store = b->store,
		.root = root,
		.kernel = b->kernel,
		.initrd = b->initrd,
		.epoch = b->epoch,
		.scratch_dir = b->scratch,
		.lent = &lent,
		.progress = b->opt->progress,
	};
	int rc = boot(b, root, &oven, &ret->boot_ms, err);

	if (!rc)
		rc = guest_install(&oven, b->r, &lent, err);
	if (!rc)
		rc = guest_warm(&oven, b->r, err);
	if (!rc)
		rc = guest_quiesce(&oven, b->r, err);
	if (!rc)
		rc = capture_machine(&oven, &spec, capture, err);
	return rc;
}

static int try_candidate(struct baking *b, struct capture *c, int64_t created, struct err *err)
{
	cleanup_manifest struct store_manifest candidate = {0};
	cleanup_with(snapshot_ranges_clear) struct snapshot_ranges wset = {0};
	int rc;

	progress_stage(b->opt->progress, "trial", NULL, 0);
	rc = store_put_manifest(b->store, b->r->name, b->tag, c->config, c->layers, c->n_layers,
		created, &candidate, err);
	if (!rc)
		rc = trial_restore(b->store, &candidate, b->opt->progress, &wset, err);
	b->view.made = &candidate;
	if (!rc)
		rc = check(b, BAKE_MADE, err);
	b->view.made = NULL;
	if (rc)
		return rc;
	progress_done(b->opt->progress, "restored; a working set of %zu ranges", wset.n);
	return wset.n ? capture_add_wset(c, b->store, &wset, err) : 0;
}

static int bake_all(struct baking *b, struct bake_result *ret, struct err *err)
{
	enum plan_stage from = b->opt->from;
	cleanup_capture struct capture capture = {0};
	struct root_disk root = {.fd = -1};
	int64_t created = clock_realtime_ns() / 1000000000;
	cleanup_free char *why = monitor_accel_reason(b->monitor, b->opt->accel);
	int rc;

	progress_note(b->opt->progress, "accelerator: %s", why);
	rc = b->opt->sources
		? source_take_saved(b->r, &b->plan, b->opt->sources, b->opt->progress, err)
		: 0;
	if (!rc)
		rc = root_get(b->r, &b->plan, b->epoch, from <= PLAN_SOURCE && !b->opt->sources,
			from <= PLAN_ROOT, b->opt->progress, &root, err);
	b->view.root_fd = root.fd;
	b->view.root_digest = root.raw_digest;
	if (!rc)
		rc = check(b, BAKE_ROOTED, err);
	if (!rc)
		rc = bake_guest(b, &root, &capture, ret, err);
	close_fd(&root.fd);
	if (!rc)
		rc = try_candidate(b, &capture, created, err);
	if (!rc)
		rc = store_publish(b->store, b->r->name, b->tag, capture.config, capture.layers,
			capture.n_layers, created, &ret->manifest, err);
	if (rc)
		return rc;
	ret->memory_data_bytes = capture.memory_data_bytes;
	ret->memory_stored_bytes = capture.memory_stored_bytes;
	ret->delta_bytes = capture.delta_bytes;
	return 0;
}

int bake_run(struct store *s, const struct recipe *r, const struct bake_options *opt,
	struct bake_result *ret, struct err *err)
{
	cleanup_with(baking_clear) struct baking b = {
		.store = s, .r = r, .opt = opt, .tag = opt->tag ? opt->tag : TAG_DEFAULT};
	cleanup_fd int lock = -1;
	int rc;

	*ret = (struct bake_result){0};
	/* what would fail at the very end fails now */
	if (!store_tag_valid(b.tag))
		return err_set(err, EINVAL,
			"\"%.80s\" is not a tag: up to %d letters and digits, between them single "
			". _ -",
			b.tag, LIMIT_NAME);
	rc = prepare(&b, err);
	if (!rc)
		rc = check_plan(&b, err);
	if (rc)
		return rc;
	if (opt->dry) {
		ret->up_to_date = up_to_date(&b, &ret->manifest);
		ret->first = first_stage(&b);
		return 0;
	}
	if (opt->from == PLAN_STAGES && up_to_date(&b, &ret->manifest))
		return done_before(&b, ret, err);
	lock = stage_lock(PLAN_GUEST, b.plan.key[PLAN_GUEST], opt->progress, err);
	if (lock < 0)
		return lock;
	/* the one that was waited for may have done it */
	if (opt->from == PLAN_STAGES && up_to_date(&b, &ret->manifest))
		return done_before(&b, ret, err);
	return bake_all(&b, ret, err);
}

/* A plan whose source and root are right: their keys depend on none of what is empty here. */
static int plan_sources(
	const struct recipe *r, int64_t *ret_epoch, struct plan *ret, struct err *err)
{
	struct plan_facts facts = {
		.kernel_digest = "", .agent_digest = "", .monitor = "", .accel = ""};
	int rc = plan_epoch(&facts.epoch, err);

	if (!rc)
		rc = plan_make(r, &facts, ret, err);
	*ret_epoch = facts.epoch;
	return rc;
}

int bake_root(const struct recipe *r, const struct bake_options *opt, struct err *err)
{
	struct root_disk root = {.fd = -1};
	struct plan plan;
	int64_t epoch;
	int rc = plan_sources(r, &epoch, &plan, err);

	if (!rc && opt->sources)
		rc = source_take_saved(r, &plan, opt->sources, opt->progress, err);
	if (!rc)
		rc = root_get(r, &plan, epoch, opt->from <= PLAN_SOURCE && !opt->sources,
			opt->from <= PLAN_ROOT, opt->progress, &root, err);
	close_fd(&root.fd);
	return rc;
}

int bake_fetch(
	const struct recipe *r, const struct bake_options *opt, const char *dir, struct err *err)
{
	struct plan plan;
	int64_t epoch;
	int rc = plan_sources(r, &epoch, &plan, err);

	return rc ? rc : source_save(r, &plan, epoch, dir, opt->progress, err);
}

void bake_result_clear(struct bake_result *r)
{
	store_manifest_clear(&r->manifest);
	*r = (struct bake_result){0};
}
