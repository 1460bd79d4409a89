/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifying a template: each blob is read whole and compared with its digest; each image is
 * then opened, every frame decompressed, and what comes out compared with the size and the
 * digest that the config names. So "verified" means that a restore will find the very bytes
 * that were baked.
 */
#include <inttypes.h>
#include <string.h>

#include "common/file.h"
#include "common/str.h"
#include "store/image.h"
#include "store/store_private.h"

/* Images, and where the config says what is in them. */
static const struct {
	const char *media, *size_key, *digest_key;
} images[] = {
	{STORE_MEDIA_DISK, "disk_bytes", "disk_raw_digest"},
	{STORE_MEDIA_DELTA, NULL, "delta_raw_digest"}, /* its size: of all ranges in extra.delta */
	{STORE_MEDIA_MEMORY, "memory_bytes", "memory_raw_digest"},
};

static const char *layer_name(const struct store_layer *layer)
{
	const char *name = store_media_name(layer->media);

	return name ? name : layer->media;
}

static int check_digest(
	int fd, const struct store_layer *layer, struct progress *progress, struct err *err)
{
	cleanup_digest struct digest *d = digest_new();
	cleanup_free char *buf = malloc(MIB);
	char got[DIGEST_TEXT_SIZE];
	uint64_t at = 0;

	if (!buf)
		return err_sys(err, ENOMEM, "verify");
	while (at < layer->bytes) {
		size_t n = layer->bytes - at < MIB ? (size_t)(layer->bytes - at) : MIB;
		int r = file_pread_full(fd, buf, n, (off_t)at);

		if (r < 0)
			return err_sys(err, -r, "read");
		digest_update(d, buf, n);
		at += n;
		progress_update(progress, at);
	}
	digest_final(d, got);
	if (strcmp(got, layer->digest))
		return err_set(err, EBADMSG, "its content has %s", got);
	return 0;
}

/* What the config says of the raw size of image number @i: false where it does not. */
static bool wanted_bytes(const json_t *config, size_t i, uint64_t *ret)
{
	json_t *size = images[i].size_key ? json_object_get(config, images[i].size_key) : NULL;
	json_t *ranges = json_object_get(json_object_get(config, "extra"), "delta"), *range;
	size_t at;

	if (images[i].size_key) {
		*ret = json_is_integer(size) ? (uint64_t)json_integer_value(size) : 0;
		return size != NULL;
	}
	*ret = 0;
	json_array_foreach(ranges, at, range) *ret +=
		(uint64_t)json_integer_value(json_array_get(range, 1));
	return true;
}

/* Image number @i of the table: what is inside. */
static int check_image(int fd, size_t i, const struct store_layer *layer, const json_t *config,
	struct progress *progress, struct err *err)
{
	const char *want = json_string_value(json_object_get(config, images[i].digest_key));
	uint64_t bytes;
	cleanup_image struct image *img = NULL;
	cleanup_free char *stage = str_printf("expand %s", layer_name(layer));
	int r = image_open(fd, &img, err);

	if (r < 0)
		return r;
	if (wanted_bytes(config, i, &bytes) && bytes != image_raw_bytes(img))
		return err_set(err, EBADMSG,
			"it holds %" PRIu64 " bytes, the config's \"%s\" says %" PRIu64,
			image_raw_bytes(img),
			images[i].size_key ? images[i].size_key : "extra.delta", bytes);
	progress_stage(progress, stage, "bytes", image_raw_bytes(img));
	r = image_check_all(img, want && *want ? want : NULL, progress, err);
	if (r == 0)
		progress_done(progress, NULL);
	return r;
}

/* The digest says that something is wrong; what, as far as the format lets it be told. */
static void locate(int fd, const struct store_layer *layer, struct err *err)
{
	bool image = false;
	cleanup_free char *where = NULL;

	for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++)
		image |= !strcmp(layer->media, images[i].media);
	if (!image) {
		err_append(err,
			": some of its %" PRIu64
			" bytes; it has one digest for all, so which cannot be "
			"told",
			layer->bytes);
		return;
	}
	where = image_damage(fd);
	err_append(err, ": %s", where);
}

static int check_layer(struct store *s, const struct store_layer *layer, const json_t *config,
	struct progress *progress, struct err *err)
{
	cleanup_free char *stage = str_printf("verify %s", layer_name(layer));
	cleanup_fd int fd = -1;
	int r = store_blob_open(s, layer->digest, layer->bytes, &fd, err);

	if (r == 0) {
		progress_stage(progress, stage, "bytes", layer->bytes);
		r = check_digest(fd, layer, progress, err);
		if (r == -EBADMSG)
			locate(fd, layer, err);
		if (r == 0)
			progress_done(progress, NULL);
	}
	for (size_t i = 0; r == 0 && i < sizeof(images) / sizeof(images[0]); i++)
		if (!strcmp(layer->media, images[i].media))
			r = check_image(fd, i, layer, config, progress, err);
	if (r < 0)
		err_prefix(err, "%s (%s)", layer_name(layer), layer->digest);
	return r;
}

int store_verify(
	struct store *s, const struct store_manifest *m, struct progress *progress, struct err *err)
{
	cleanup_manifest struct store_manifest again = {0};
	/* manifest and config: read anew and compared with their digests on the way */
	int r = store_manifest_read(s, m->digest, STORE_BYTES_ANY, &again, err);

	for (unsigned i = 0; r == 0 && i < again.n_layers; i++)
		r = check_layer(s, &again.layers[i], again.config, progress, err);
	return r;
}
