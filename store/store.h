/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_STORE_STORE_H
#define PARBAKE_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/digest.h"
#include "common/err.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/progress.h"
#include "store/image.h"

/*
 * The store: an OCI image layout (image-spec 1.1: oci-layout, index.json, blobs/sha256/). Each
 * template version is a manifest; a tag (org.opencontainers.image.ref.name in index.json) is its
 * name. A ref is name[:tag][@sha256:…]; tag default "latest"; in index.json "name" for latest, else
 * "name:tag", so that `skopeo inspect --raw oci:STORE:base` finds it. Blobs are immutable and
 * appear by rename. index.json is changed under the store's lock, by rename. Readers take no lock:
 * a blob that gc removed stays readable through descriptors already open.
 */
#define STORE_MEDIA_CONFIG "application/vnd.parbake.config.v1+json"
#define STORE_MEDIA_DISK "application/vnd.parbake.disk.v1.raw+zstd"
#define STORE_MEDIA_DELTA "application/vnd.parbake.disk-delta.v1.raw+zstd"
#define STORE_MEDIA_MEMORY "application/vnd.parbake.memory.v1.raw+zstd"
#define STORE_MEDIA_STATE "application/vnd.parbake.state.v1+octet-stream"
#define STORE_MEDIA_KERNEL "application/vnd.parbake.kernel.v1"
#define STORE_MEDIA_INITRD "application/vnd.parbake.initramfs.v1"
#define STORE_MEDIA_WSET "application/vnd.parbake.working-set.v1+json"
#define STORE_MEDIA_PROCESSES "application/vnd.parbake.processes.v1+json"
#define STORE_ARTIFACT_TYPE "application/vnd.parbake.template.v1"
#define STORE_LAYERS_MAX 16

struct store;

/* Open (and make, with @create) the store in @dir, NULL: PATHS_STORE. */
int store_open(const char *dir, bool create, struct store **ret, struct err *err);
void store_free(struct store *s);
DEFINE_CLEANUP(struct store *, store_free)
#define cleanup_store cleanup_with(store_free_p_)
const char *store_dir(const struct store *s);

struct store_layer {
	char media[80];
	char digest[DIGEST_TEXT_SIZE];
	uint64_t bytes;
};

/* A manifest, resolved. It borrows nothing, and owns its config. */
struct store_manifest {
	char digest[DIGEST_TEXT_SIZE]; /* of the manifest */
	char name[LIMIT_NAME_SIZE], tag[LIMIT_NAME_SIZE];
	char created[32]; /* RFC 3339, UTC */
	struct store_layer layers[STORE_LAYERS_MAX];
	unsigned n_layers;
	struct store_layer config_blob;
	json_t *config;
};

void store_manifest_clear(struct store_manifest *m);
#define cleanup_manifest __attribute__((__cleanup__(store_manifest_clear)))
/* The layer of a media type, or NULL. */
const struct store_layer *store_layer(const struct store_manifest *m, const char *media);

/*
 * Is @name a template name: lower-case letters and digits, between them single [._-] (or --),
 * at most LIMIT_NAME bytes? That is the image-spec's grammar for a component of ref.name;
 * skopeo insists on it.
 */
bool store_name_valid(const char *name);
/* The same of a tag, which may have upper-case letters too. */
bool store_tag_valid(const char *tag);
/* A name that no template has may be an alias of one (snapshot_aliases_have()); *@ret then has
 * the name of that template. -ENOENT: there is none; the error has the nearest name that there
 * is. */
int store_resolve(struct store *s, const char *ref, struct store_manifest *ret, struct err *err);
/* Every tagged version, sorted by name and tag; caller clears each and frees the array. */
int store_list(struct store *s, struct store_manifest **ret, size_t *ret_n, struct err *err);
/*
 * The refs of all tags ("base", "base:v1"), sorted, without a look at what they name: what
 * store_list() leaves out with a warning because it is damaged is here. Caller frees each and
 * the array.
 */
int store_refs(struct store *s, char ***ret, size_t *ret_n, struct err *err);
/* Open a blob for reading. Its size is checked (STORE_BYTES_ANY: not known), its digest only by
 * store_verify(). */
#define STORE_BYTES_ANY UINT64_MAX
int store_blob_open(
	struct store *s, const char *digest, uint64_t bytes, int *ret_fd, struct err *err);
/*
 * Read a layer that holds JSON, of at most LIMIT_JSON_BYTES; @what names it in errors. Its digest is checked. *@ret is
 * the caller's reference. -EBADMSG: it is damaged.
 */
int store_layer_json(struct store *s, const struct store_layer *layer, const char *what,
	json_t **ret, struct err *err);
/* Is the blob there, with this size? */
bool store_blob_has(struct store *s, const char *digest, uint64_t bytes);

/*
 * A new blob: write to store_blob_fd(), then finish. Content already there is replaced, so that a damaged one becomes
 * whole; descriptors of it keep what they have.
 */
struct store_blob;
int store_blob_begin(struct store *s, struct store_blob **ret, struct err *err);
int store_blob_fd(const struct store_blob *b);
/*
 * fsync, name it by @digest (NULL: computed here), fill *@ret's digest and bytes. Frees @b on
 * success and failure.
 */
int store_blob_finish(
	struct store_blob *b, const char *digest, struct store_layer *ret, struct err *err);
void store_blob_abort(struct store_blob *b); /* NULL is allowed */
/* A whole file or buffer at once. */
int store_blob_put(
	struct store *s, const void *data, size_t len, struct store_layer *ret, struct err *err);
int store_blob_put_fd(struct store *s, int fd, struct store_layer *ret, struct err *err);
/*
 * Compress @raw_bytes of @raw_fd into an image blob of the media type @media, which decides the
 * size of its frames. @what names it in errors, and as a stage of @progress (may be NULL). Moves
 * @raw_fd's offset. *@ret with its media, ready for a manifest.
 */
int store_blob_put_image(struct store *s, const char *media, const char *what, int raw_fd,
	uint64_t raw_bytes, struct progress *progress, struct store_layer *ret,
	struct image_stats *ret_stats, struct err *err);

/*
 * Publish: write config and manifest blobs, then tag them in index.json by rename, last. All
 * layers must be there, at most one of each media type. The version before loses its tag (it
 * stays until gc). *@ret as resolved. @config is borrowed. @created: seconds since 1970.
 */
int store_publish(struct store *s, const char *name, const char *tag, const json_t *config,
	const struct store_layer *layers, unsigned n_layers, int64_t created,
	struct store_manifest *ret, struct err *err);
/* From now on tags in @s keep what they name: to publish another version under a tag that is
 * there is -EEXIST, unless the tag names the version @but (a digest; NULL: none). For a process
 * that may add templates and may not replace those of others. */
void store_keep_tags(struct store *s, const char *but);
/*
 * The same without the tag: config and manifest blobs that nothing names yet (gc takes them,
 * when they are old enough), to try a snapshot before it is published.
 */
int store_put_manifest(struct store *s, const char *name, const char *tag, const json_t *config,
	const struct store_layer *layers, unsigned n_layers, int64_t created,
	struct store_manifest *ret, struct err *err);
/*
 * Check every byte: digests of manifest, config, layers; frames and raw digests of images.
 * Errors name the blob, and which of its bytes are wrong where its format tells. @progress may be NULL.
 */
int store_verify(struct store *s, const struct store_manifest *m, struct progress *progress,
	struct err *err);
/* Remove the tag. Blobs go at gc. */
int store_remove(struct store *s, const char *ref, struct err *err);
/*
 * Checkpoints (restore/checkpoint.h) need a template version even where it has no name any more: gc
 * keeps what the checkpoints in known directories name.
 */
#define STORE_CAPTURE_FILE "capture.json"
/* Are the manifest and all its layers there? -ENOENT, with what that means. */
int store_manifest_whole(struct store *s, const char *digest, struct err *err);
/* Let gc look for checkpoints in directories below @dir. This is needed once, for a directory
 * into which store_capture_publish() never put one (for copies of checkpoints). */
int store_captures_at(struct store *s, const char *dir, struct err *err);
/* Put @text into @dir as its capture.json: from then on gc keeps @manifest. -ENOENT as above. */
int store_capture_publish(struct store *s, const char *dir, const char *manifest, const void *text,
	size_t len, struct err *err);

/*
 * From now on store_gc() on @s keeps the @n newest versions of each name as well, those with a tag counted among them.
 */
void store_keep_versions(struct store *s, unsigned n);
/*
 * Remove blobs that no tag and no checkpoint reaches, and temporary files older than a day or of
 * dead writers; counts in *@ret_…. A bake in progress is safe: gc takes the lock and keeps blobs
 * younger than @keep_s seconds.
 */
int store_gc(struct store *s, int64_t keep_s, bool dry_run, unsigned *ret_blobs,
	uint64_t *ret_bytes, struct err *err);

#endif
