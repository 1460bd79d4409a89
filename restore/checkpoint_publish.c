/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing a checkpoint as a template version of its own, which is whole: it does not depend on
 * the version that the checkpoint came from.
 *
 * Memory and disk delta are written out raw, once, with the checkpoint's deltas applied to them,
 * and compressed as a bake compresses them. Kernel, initramfs, root disk and working set are the
 * same blobs as the template's. The config is the template's too, except that "extra" says where
 * the version came from, and has no "key", by which a bake would take the version for what the
 * recipe makes.
 */
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "common/fault.h"
#include "common/file.h"
#include "common/paths.h"
#include "common/str.h"
#include "restore/checkpoint_private.h"
#include "vmm/disk_delta.h"

struct making {
	struct store *store;
	const struct checkpoint *capture;
	const char *scratch_dir;
	struct progress *progress;
	struct store_manifest from;
	struct snapshot_config config;
	struct store_layer layers[STORE_LAYERS_MAX];
	unsigned n_layers;
};

static struct store_layer *next_layer(struct making *m, const char *media)
{
	struct store_layer *layer = &m->layers[m->n_layers++];

	*layer = (struct store_layer){0};
	snprintf(layer->media, sizeof(layer->media), "%s", media);
	return layer;
}

/* The raw content of one of the template's images, expanded and checked, in a scratch file. */
static int expand(struct making *m, const char *media, const char *what, uint64_t bytes,
	const char *raw_digest, struct err *err)
{
	const struct store_layer *layer = store_layer(&m->from, media);
	cleanup_fd int blob = -1, fd = -1;
	cleanup_image struct image *img = NULL;
	int r;

	if (!layer)
		return err_set(err, EBADMSG, "it has no layer %s", media);
	r = store_blob_open(m->store, layer->digest, layer->bytes, &blob, err);
	if (r == 0)
		r = image_open(blob, &img, err);
	if (r == 0 && image_raw_bytes(img) != bytes)
		r = err_set(err, EBADMSG, "it is not of the size that the config says");
	if (r == 0)
		r = fd = file_scratch(m->scratch_dir, err);
	if (r >= 0)
		r = image_expand(img, fd, raw_digest, NULL, err);
	if (r < 0) {
		err_prefix(err, "the template's %s", what);
		return r;
	}
	return steal_fd(&fd);
}

static int put_memory(struct making *m, struct err *err)
{
	struct snapshot_config *c = &m->config;
	struct image_stats stats;
	cleanup_fd int raw =
		expand(m, STORE_MEDIA_MEMORY, "memory", c->memory_bytes, c->memory_raw_digest, err);
	int r = raw < 0 ? raw : memory_delta_apply(m->capture->memory, raw, err);

	if (r < 0 ||
		(r = store_blob_put_image(m->store, STORE_MEDIA_MEMORY, "memory", raw,
			 c->memory_bytes, m->progress, next_layer(m, STORE_MEDIA_MEMORY), &stats,
			 err)) < 0)
		return r;
	memcpy(c->memory_raw_digest, stats.raw_digest, sizeof(c->memory_raw_digest));
	c->memory_data_bytes = stats.data_bytes;
	return 0;
}

/* The delta that the template has: *@ret_fd with its bytes, or -1 where it has none. */
static int template_delta(
	struct making *m, struct snapshot_ranges *ret, int *ret_fd, struct err *err)
{
	uint64_t bytes = 0;
	int r = snapshot_delta_get(&m->config, ret, err);

	for (size_t i = 0; r == 0 && i < ret->n; i++)
		bytes += ret->ranges[i].bytes;
	if (r < 0 || !ret->n)
		return r;
	r = expand(m, STORE_MEDIA_DELTA, "disk delta", bytes, m->config.delta_raw_digest, err);
	if (r < 0)
		return r;
	*ret_fd = r;
	return 0;
}

static int put_delta(struct making *m, struct err *err)
{
	cleanup_with(snapshot_ranges_clear) struct snapshot_ranges old = {0}, new = {0}, both = {0};
	cleanup_fd int old_fd = -1, new_fd = file_scratch(m->scratch_dir, err), both_fd = -1;
	struct snapshot_config *c = &m->config;
	struct image_stats stats;
	uint64_t bytes;
	int r = new_fd < 0 ? new_fd : template_delta(m, &old, &old_fd, err);

	if (r == 0)
		r = disk_delta_of_overlay(
			m->capture->disk_fd, c->disk_bytes, new_fd, &new, &bytes, err);
	if (r == 0)
		r = both_fd = file_scratch(m->scratch_dir, err);
	if (r >= 0)
		r = disk_delta_merge(&old, old_fd, &new, new_fd, both_fd, &both, &bytes, err);
	if (r < 0 || !both.n)
		return r;
	r = store_blob_put_image(m->store, STORE_MEDIA_DELTA, "disk delta", both_fd, bytes,
		m->progress, next_layer(m, STORE_MEDIA_DELTA), &stats, err);
	if (r < 0)
		return r;
	snapshot_delta_set(c, both.ranges, both.n);
	memcpy(c->delta_raw_digest, stats.raw_digest, sizeof(c->delta_raw_digest));
	return 0;
}

static int put_state(struct making *m, struct err *err)
{
	char path[64];
	cleanup_fd int fd = -1;

	/* an offset of its own */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", m->capture->state_fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "the device state");
	return store_blob_put_fd(m->store, fd, next_layer(m, STORE_MEDIA_STATE), err);
}

/* What is as it was. */
static int keep_layers(struct making *m, struct err *err)
{
	static const char *const medias[] = {
		STORE_MEDIA_DISK, STORE_MEDIA_KERNEL, STORE_MEDIA_INITRD, STORE_MEDIA_WSET};

	for (size_t i = 0; i < sizeof(medias) / sizeof(medias[0]); i++) {
		const struct store_layer *layer = store_layer(&m->from, medias[i]);

		if (!layer)
			continue;
		if (!store_blob_has(m->store, layer->digest, layer->bytes))
			return err_set(err, ENOENT, "blob %s is missing in %s", layer->digest,
				store_dir(m->store));
		m->layers[m->n_layers++] = *layer;
	}
	return 0;
}

static void say_origin(struct making *m)
{
	const struct checkpoint_record *r = &m->capture->record;
	json_t *origin = json_pack("{s:s, s:s, s:s, s:I, s:s}", "manifest", r->manifest, "name",
		r->name, "tag", r->tag, "captured", (json_int_t)r->created, "parbake",
		PARBAKE_VERSION);

	if (!m->config.extra)
		m->config.extra = json_object();
	if (!origin || json_object_set_new(m->config.extra, "captured_from", origin) < 0)
		abort(); /* no memory */
	json_object_del(m->config.extra, "key");
	json_object_del(
		m->config.extra, "scan"); /* that was of the template, before anything ran */
	snapshot_aliases_set(m->config.extra, NULL, 0); /* they lead to the template */
}

static int make(struct making *m, const char *name, const char *tag, struct store_manifest *ret,
	struct err *err)
{
	const struct checkpoint_record *rec = &m->capture->record;
	cleanup_json json_t *config = NULL;
	int r = snapshot_config_from_json(m->from.config, &m->config, err);

	if (r < 0)
		return r;
	if (m->config.memory_bytes != rec->memory_bytes || m->config.disk_bytes != rec->disk_bytes)
		return err_set(
			err, EBADMSG, "it is of a machine of another size than its template's");
	if ((r = put_state(m, err)) < 0 || (r = put_memory(m, err)) < 0 ||
		(r = put_delta(m, err)) < 0 || (r = keep_layers(m, err)) < 0)
		return r;
	r = fault_point("restore.publish.before-manifest");
	if (r < 0)
		return err_sys(err, -r, "write the manifest");
	say_origin(m);
	config = snapshot_config_to_json(&m->config);
	return store_publish(
		m->store, name, tag, config, m->layers, m->n_layers, time(NULL), ret, err);
}

int checkpoint_publish(struct store *s, const struct checkpoint *c, const char *name,
	const char *tag, struct progress *progress, struct store_manifest *ret, struct err *err)
{
	struct making m = {.store = s, .capture = c, .progress = progress};
	cleanup_free char *ref = str_printf("%s@%s", c->record.name, c->record.manifest);
	int r = store_manifest_whole(s, c->record.manifest, err);

	if (r == 0)
		r = paths_get(PATHS_CACHE, &m.scratch_dir, err);
	if (r == 0)
		r = store_resolve(s, ref, &m.from, err);
	if (r == 0)
		r = make(&m, name, tag, ret, err);
	if (r < 0)
		err_prefix(err, "publish the capture %s as %s", c->dir, name);
	snapshot_config_clear(&m.config);
	store_manifest_clear(&m.from);
	return r;
}
