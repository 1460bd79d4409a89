/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versions, tagged or not: manifests of ours among the blobs. A bake writes two with one config, for the
 * trial and, with the working set, to be published: the one with more layers is the version.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/str.h"
#include "store/store_private.h"

struct version {
	char digest[DIGEST_TEXT_SIZE], config[DIGEST_TEXT_SIZE];
	char name[LIMIT_NAME_SIZE], created[32];
	unsigned layers;
};

struct versions {
	struct version *items;
	size_t n;
};

/* By name; of a name, the newest first, and of one config the one with more layers. */
static int in_order(const void *a, const void *b)
{
	const struct version *x = a, *y = b;
	int r = strcmp(x->name, y->name);

	if (!r)
		r = strcmp(y->created, x->created);
	if (!r)
		r = strcmp(x->config, y->config);
	return r ? r : (x->layers < y->layers) - (x->layers > y->layers);
}

/* What cannot be read as a manifest of ours is none. */
static void look_at(struct store *s, const char *hex, struct versions *all)
{
	cleanup_manifest struct store_manifest m = {0};
	cleanup_free char *digest = str_printf("sha256:%s", hex);
	cleanup_fd int fd = openat(s->blobs, hex, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct version *v;
	struct stat st;
	char first;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) ||
		st.st_size > (off_t)LIMIT_MANIFEST_BYTES || pread(fd, &first, 1, 0) != 1 ||
		first != '{' || store_manifest_read(s, digest, STORE_BYTES_ANY, &m, NULL))
		return;
	all->items = reallocarray(all->items, all->n + 1, sizeof(*all->items));
	if (!all->items)
		abort();
	v = &all->items[all->n++];
	*v = (struct version){.layers = m.n_layers};
	memcpy(v->digest, digest, sizeof(v->digest));
	memcpy(v->config, m.config_blob.digest, sizeof(v->config));
	memcpy(v->name, m.name, sizeof(v->name));
	memcpy(v->created, m.created, sizeof(v->created));
}

int store_versions_each(struct store *s, unsigned newest,
	int (*fn)(void *user, const char *manifest, struct err *err), void *user, struct err *err)
{
	cleanup_dir DIR *dir = NULL;
	struct versions all = {0};
	struct dirent *e;
	unsigned taken = 0;
	int fd = openat(s->blobs, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		close_fd(&fd);
		return err_sys(err, errno, "read %s", s->dir);
	}
	while ((e = readdir(dir)))
		if (strlen(e->d_name) == DIGEST_HEX_SIZE - 1)
			look_at(s, e->d_name, &all);
	if (all.n)
		qsort(all.items, all.n, sizeof(*all.items), in_order);
	for (size_t i = 0; !r && i < all.n; i++) {
		const struct version *v = &all.items[i], *before = i ? v - 1 : NULL;

		if (!before || strcmp(before->name, v->name))
			taken = 0;
		else if (!strcmp(before->config, v->config))
			continue;
		if (taken++ < newest)
			r = fn(user, v->digest, err);
	}
	free(all.items);
	return r;
}
