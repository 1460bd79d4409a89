/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a template version to look into it. */
#include "prove/subject.h"

#include <string.h>

#include "restore/disk.h"

static int open_layer(struct store *s, const struct store_manifest *m, const char *media, int *ret,
	struct err *err)
{
	const struct store_layer *layer = store_layer(m, media);

	return layer ? store_blob_open(s, layer->digest, layer->bytes, ret, err) : 0;
}

int subject_open(struct store *s, const struct store_manifest *m, struct progress *progress,
	struct subject *ret, struct err *err)
{
	cleanup_subject struct subject made = SUBJECT_INIT;
	cleanup_fd int root = -1, delta = -1;
	int r = snapshot_config_from_json(m->config, &made.config, err);

	if (!r)
		r = open_layer(s, m, STORE_MEDIA_DISK, &root, err);
	if (!r)
		r = open_layer(s, m, STORE_MEDIA_DELTA, &delta, err);
	if (!r && root < 0)
		r = err_set(err, EBADMSG, "it has no disk");
	if (!r)
		r = disk_open(root, delta, &made.config, progress, &made.disk_fd, err);
	if (!r)
		r = ext4_image_open(made.disk_fd, &made.disk, err);
	if (!r)
		r = inventory_read(made.disk, &made.packages, err);
	if (r) {
		err_prefix(err, "%s:%s", m->name, m->tag);
		return r;
	}
	*ret = made;
	made = (struct subject)SUBJECT_INIT;
	return 0;
}

void subject_clear(struct subject *s)
{
	inventory_clear(&s->packages);
	ext4_image_free(s->disk);
	close_fd(&s->disk_fd);
	snapshot_config_clear(&s->config);
	*s = (struct subject)SUBJECT_INIT;
}
