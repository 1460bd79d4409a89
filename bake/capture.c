/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capturing a paused machine as blobs. Memory is read where it lies, in the memfd that the machine
 * maps shared, so it and the device state are of one instant; the disk is the root disk, which
 * nothing changes, and a delta of what the bake wrote over it. The delta's image has holes where
 * nothing was written; the ranges in the config say what was written, zeros included. All of it is
 * scanned for what was lent to the guest before any of it gets into the store.
 *
 * The compressed root disk depends on the root stage alone: its blob is remembered beside that
 * stage's result and not made again while the store has it.
 */
#include "bake/capture.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "bake/plan/stage.h"
#include "bake/scan/scan.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/str.h"
#include "restore/programs.h"
#include "store/image.h"
#include "vmm/cpu.h"
#include "vmm/disk_delta.h"

#define MACHINE_MS 120000

static struct store_layer *next_layer(struct capture *c, const char *media)
{
	struct store_layer *layer = &c->layers[c->n_layers++];

	*layer = (struct store_layer){0};
	snprintf(layer->media, sizeof(layer->media), "%s", media);
	return layer;
}

static int put_file(
	struct capture *c, struct store *s, const char *media, const char *path, struct err *err)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_sys(err, errno, "%s", path);
	return store_blob_put_fd(s, fd, next_layer(c, media), err);
}

/* What the machine has left, in files without a name, before it is searched and stored. */
struct taken {
	int state, delta; /* owned */
	uint64_t delta_bytes;
	struct snapshot_ranges ranges; /* of the delta */
};

static void taken_clear(struct taken *t)
{
	close_fd(&t->state);
	close_fd(&t->delta);
	snapshot_ranges_clear(&t->ranges);
}

static int take(struct oven *o, const struct capture_spec *spec, struct taken *t, struct err *err)
{
	int rc = t->state = file_scratch(spec->scratch_dir, err);

	if (rc >= 0)
		rc = t->delta = file_scratch(spec->scratch_dir, err);
	if (rc < 0)
		return rc;
	rc = machine_capture(o->machine, t->state, clock_deadline(MACHINE_MS), err);
	if (rc) {
		err_prefix(err, "capture the machine's state");
		return rc;
	}
	return disk_delta_of_overlay(o->overlay_fd, spec->what.recipe->disk_bytes, t->delta,
		&t->ranges, &t->delta_bytes, err);
}

static int scan(struct oven *o, const struct capture_spec *spec, const struct taken *t,
	json_t **ret, struct err *err)
{
	struct scan_spec scan = {
		.lent = spec->lent,
		.memory_fd = o->memory_fd,
		.memory_bytes = o->shape.memory_bytes,
		.state_fd = t->state,
		.disk_fd = spec->root->fd,
		.disk_bytes = spec->what.recipe->disk_bytes,
		.delta_fd = t->delta,
		.delta_bytes = t->delta_bytes,
		.delta = &t->ranges,
		.scratch_dir = spec->scratch_dir,
		.progress = spec->progress,
	};
	off_t end = lseek(t->state, 0, SEEK_END);

	if (end < 0)
		return err_sys(err, errno, "the machine's state");
	scan.state_bytes = (uint64_t)end;
	return scan_snapshot(&scan, ret, err);
}

static int put_state(
	struct capture *c, const struct capture_spec *spec, const struct taken *t, struct err *err)
{
	if (lseek(t->state, 0, SEEK_SET) < 0)
		return err_sys(err, errno, "the machine's state");
	return store_blob_put_fd(spec->store, t->state, next_layer(c, STORE_MEDIA_STATE), err);
}

/* The root disk's blob that was made before, if this store still has it. */
static bool known_root(struct capture *c, const struct capture_spec *spec)
{
	cleanup_json json_t *facts = NULL;
	const char *digest;
	uint64_t bytes;

	if (stage_facts(PLAN_ROOT, spec->what.plan->key[PLAN_ROOT], &facts, NULL) ||
		json_get_string(facts, "blob", &digest, NULL) || !digest_valid(digest) ||
		json_get_u64(facts, "blob_bytes", 1, INT64_MAX, &bytes, NULL) ||
		!store_blob_has(spec->store, digest, bytes))
		return false;
	struct store_layer *layer = next_layer(c, STORE_MEDIA_DISK);

	memcpy(layer->digest, digest, DIGEST_TEXT_SIZE);
	layer->bytes = bytes;
	return true;
}

static int put_root(struct capture *c, const struct capture_spec *spec, struct err *err)
{
	cleanup_json json_t *facts = NULL;
	struct image_stats stats;
	const struct store_layer *layer;
	int rc;

	if (known_root(c, spec))
		return 0;
	rc = store_blob_put_image(spec->store, STORE_MEDIA_DISK, "root disk", spec->root->fd,
		spec->what.recipe->disk_bytes, spec->progress, next_layer(c, STORE_MEDIA_DISK),
		&stats, err);
	if (rc)
		return rc;
	if (strcmp(stats.raw_digest, spec->root->raw_digest))
		return err_set(err, EBADMSG,
			"the cached root disk is damaged (its digest is %s, it was made as %s): "
			"bake with "
			"--from-stage root",
			stats.raw_digest, spec->root->raw_digest);
	layer = &c->layers[c->n_layers - 1];
	facts = json_pack("{s:s, s:s, s:I}", "raw_digest", spec->root->raw_digest, "blob",
		layer->digest, "blob_bytes", (json_int_t)layer->bytes);
	if (!facts)
		abort();
	return stage_put_facts(PLAN_ROOT, spec->what.plan->key[PLAN_ROOT], facts, err);
}

/* ---- the disk delta --------------------------------------------------------------------- */

static int put_delta(struct capture *c, const struct capture_spec *spec, const struct taken *t,
	struct snapshot_config *config, struct err *err)
{
	struct image_stats stats;
	int rc;

	if (!t->ranges.n)
		return 0;
	rc = store_blob_put_image(spec->store, STORE_MEDIA_DELTA, "disk delta", t->delta,
		t->delta_bytes, spec->progress, next_layer(c, STORE_MEDIA_DELTA), &stats, err);
	if (rc)
		return rc;
	snapshot_delta_set(config, t->ranges.ranges, t->ranges.n);
	memcpy(config->delta_raw_digest, stats.raw_digest, DIGEST_TEXT_SIZE);
	c->delta_bytes = t->delta_bytes;
	return 0;
}

/* ---- the config ------------------------------------------------------------------------- */

static void copy_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from ? from : "");
}

static json_t *free_facts(const struct oven *o, const struct capture_spec *spec)
{
	json_t *packages = json_array(), *facts;

	for (size_t i = 0; i < spec->what.recipe->packages.n; i++)
		json_array_append_new(packages, json_string(spec->what.recipe->packages.items[i]));
	facts = json_pack("{s:s, s:s, s:s, s:s, s:I, s:b, s:o}", "parbake", PARBAKE_VERSION, "key",
		spec->what.plan->key[PLAN_GUEST], "root_key", spec->what.plan->key[PLAN_ROOT],
		"source_key", spec->what.plan->key[PLAN_SOURCE], "epoch", (json_int_t)spec->epoch,
		"settled_addresses", o->settled, "packages", packages);
	if (!facts)
		abort();
	programs_to_extra(&spec->what.recipe->programs, facts);
	snapshot_aliases_set(facts, spec->what.recipe->aliases.items, spec->what.recipe->aliases.n);
	return facts;
}

void capture_describe(const struct capture_what *what, struct snapshot_config *c)
{
	const struct recipe *r = what->recipe;

	c->memory_bytes = r->memory_bytes;
	c->vcpus = r->vcpus;
	copy_text(c->accel, sizeof(c->accel), machine_accel_name(what->accel));
	copy_text(c->monitor, sizeof(c->monitor), what->monitor->name);
	copy_text(c->monitor_version, sizeof(c->monitor_version), what->monitor->version);
	copy_text(c->machine, sizeof(c->machine), what->monitor->machine);
	copy_text(c->cpu, sizeof(c->cpu), monitor_cpu_model(what->monitor, what->accel));
	c->page_bytes = IMAGE_PAGE;
	c->protocol = PROTO_VERSION;
	copy_text(c->kernel_digest, sizeof(c->kernel_digest), what->kernel_digest);
	copy_text(c->agent_digest, sizeof(c->agent_digest), what->initrd_digest);
	c->disk_bytes = r->disk_bytes;
	c->description = str_dup(r->description);
	c->env.items = calloc(r->env.n + 1, sizeof(*c->env.items));
	if (!c->env.items)
		abort();
	for (size_t i = 0; i < r->env.n; i++)
		c->env.items[c->env.n++] = str_dup(r->env.items[i]);
	if (r->ready)
		c->ready = r->ready_python ? str_printf("python:%s", r->ready) : str_dup(r->ready);
	c->user = r->user ? str_dup(r->user) : NULL;
	c->exec_timeout_ms = r->exec_timeout_ms;
	c->output_bytes = r->output_bytes;
	c->exec_memory_bytes = r->exec_memory_bytes;
	c->exec_pids = r->exec_pids;
	c->context = recipe_uses_python(r);
	copy_text(c->recipe_digest, sizeof(c->recipe_digest), what->plan->recipe_digest);
	c->recipe = recipe_text(r);
}

static void describe(
	const struct oven *o, const struct capture_spec *spec, struct snapshot_config *c)
{
	capture_describe(&spec->what, c);
	c->tsc_khz = o->tsc_khz;
	c->protocol = o->hello.version;
	memcpy(c->boot_nonce, o->hello.boot, sizeof(c->boot_nonce));
	copy_text(c->disk_raw_digest, sizeof(c->disk_raw_digest), spec->root->raw_digest);
	c->extra = free_facts(o, spec);
}

static int put_processes(
	struct capture *c, const struct oven *o, const struct capture_spec *spec, struct err *err)
{
	cleanup_free char *text = json_text(o->processes);

	return store_blob_put(
		spec->store, text, strlen(text), next_layer(c, STORE_MEDIA_PROCESSES), err);
}

int capture_machine(
	struct oven *o, const struct capture_spec *spec, struct capture *ret, struct err *err)
{
	cleanup_snapshot_config struct snapshot_config config = {0};
	cleanup_capture struct capture c = {0};
	cleanup_with(taken_clear) struct taken taken = {.state = -1, .delta = -1};
	json_t *searched = NULL;
	struct image_stats memory;
	int rc = machine_pause(o->machine, clock_deadline(MACHINE_MS), err);

	if (rc) {
		err_prefix(err, "pause the machine");
		return rc;
	}
	describe(o, spec, &config);
	rc = machine_cpu_features(o->shape.accel, config.cpu_features, err);
	if (!rc)
		rc = take(o, spec, &taken, err);
	if (!rc)
		rc = scan(o, spec, &taken, &searched, err);
	if (searched)
		json_object_set_new(config.extra, "scan", searched);
	if (!rc)
		rc = put_state(&c, spec, &taken, err);
	if (!rc)
		rc = store_blob_put_image(spec->store, STORE_MEDIA_MEMORY, "memory", o->memory_fd,
			o->shape.memory_bytes, spec->progress, next_layer(&c, STORE_MEDIA_MEMORY),
			&memory, err);
	if (!rc)
		rc = put_delta(&c, spec, &taken, &config, err);
	if (!rc)
		rc = put_root(&c, spec, err);
	if (!rc)
		rc = put_file(&c, spec->store, STORE_MEDIA_KERNEL, spec->kernel, err);
	if (!rc)
		rc = put_file(&c, spec->store, STORE_MEDIA_INITRD, spec->initrd, err);
	if (!rc && o->processes)
		rc = put_processes(&c, o, spec, err);
	if (rc)
		return rc;
	memcpy(config.memory_raw_digest, memory.raw_digest, DIGEST_TEXT_SIZE);
	config.memory_data_bytes = memory.data_bytes;
	c.memory_data_bytes = memory.data_bytes;
	c.memory_stored_bytes = memory.stored_bytes;
	c.config = snapshot_config_to_json(&config);
	*ret = c;
	c = (struct capture){0};
	return 0;
}

int capture_add_wset(
	struct capture *c, struct store *s, const struct snapshot_ranges *wset, struct err *err)
{
	cleanup_json json_t *json = snapshot_ranges_to_json(wset);
	cleanup_free char *text = json_text(json);

	return store_blob_put(s, text, strlen(text), next_layer(c, STORE_MEDIA_WSET), err);
}

void capture_clear(struct capture *c)
{
	json_decref(c->config);
	*c = (struct capture){0};
}
