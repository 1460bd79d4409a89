/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An image as a blob. Memory is read page by page, so its frames are small. Other images are read
 * whole, so they have larger frames, which take less room.
 */
#include <string.h>

#include "store/store.h"

int store_blob_put_image(struct store *s, const char *media, const char *what, int raw_fd,
	uint64_t raw_bytes, struct progress *progress, struct store_layer *ret,
	struct image_stats *ret_stats, struct err *err)
{
	const struct image_options opt = {
		.frame_bytes = strcmp(media, STORE_MEDIA_MEMORY) ? IMAGE_FRAME_WHOLE : 0};
	struct store_blob *b;
	char data[16], stored[16];
	int r = store_blob_begin(s, &b, err);

	if (r < 0)
		return r;
	progress_stage(progress, what, "bytes", raw_bytes);
	r = image_write(raw_fd, raw_bytes, &opt, store_blob_fd(b), progress, ret_stats, err);
	if (r < 0) {
		store_blob_abort(b);
		err_prefix(err, "compress the %s", what);
		return r;
	}
	r = store_blob_finish(b, ret_stats->digest, ret, err);
	if (r < 0)
		return r;
	snprintf(ret->media, sizeof(ret->media), "%s", media);
	progress_done(progress, "%s of data in %s", progress_bytes(ret_stats->data_bytes, data),
		progress_bytes(ret_stats->stored_bytes, stored));
	return 0;
}
