/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing to the store: blobs first, names last. A blob is written in tmp/ under its writer's
 * flock(2), so that gc can tell a dead writer's file (nobody holds the lock) from a live one's; it
 * is synced, then renamed to its digest. index.json is replaced by rename when all that it names is
 * on disk. So a process that dies anywhere leaves the old index, whole blobs that nothing names
 * yet, and an unlocked temporary file: gc clears these, and the next try does not stumble over
 * them.
 *
 * Renaming a blob is done under the store's lock and makes it young, whether its content was there
 * already or not: gc, which takes the lock too, keeps what is young.
 */
#include <assert.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "common/fault.h"
#include "common/file.h"
#include "common/rfc3339.h"
#include "store/store_private.h"
#include "store/limits.h"

struct store_blob {
	struct store *store; /* borrowed */
	int fd;
	char name[64]; /* in tmp/ */
};

/* A new locked file in tmp/ whose name nobody has taken away. */
static int begin_file(struct store *s, struct store_blob *b, struct err *err)
{
	static _Atomic unsigned serial;

	for (;;) {
		cleanup_fd int fd = -1;
		struct stat st;

		snprintf(b->name, sizeof(b->name), "blob-%ld-%u", (long)getpid(), serial++);
		fd = openat(s->tmp, b->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0 && errno == EEXIST)
			continue;
		if (fd < 0)
			return err_sys(err, errno, "make a blob in %s/tmp", s->dir);
		/* gc may come between: it takes an unlocked file for a dead writer's */
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			if (errno == EWOULDBLOCK)
				continue;
			return err_sys(err, errno, "lock a blob in %s/tmp", s->dir);
		}
		if (fstat(fd, &st) < 0)
			return err_sys(err, errno, "make a blob in %s/tmp", s->dir);
		if (st.st_nlink == 1) {
			b->fd = steal_fd(&fd);
			return 0;
		}
	}
}

int store_blob_begin(struct store *s, struct store_blob **ret, struct err *err)
{
	cleanup_free struct store_blob *b = calloc(1, sizeof(*b));
	int r = fault_point("store.blob.begin");

	if (r < 0)
		return err_sys(err, -r, "make a blob in %s/tmp", s->dir);
	if (!b)
		return err_sys(err, ENOMEM, "make a blob");
	if (s->tmp < 0) {
		if (mkdirat(s->fd, "tmp", 0700) < 0 && errno != EEXIST)
			return err_sys(err, errno, "make %s/tmp", s->dir);
		s->tmp = openat(s->fd, "tmp", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (s->tmp < 0)
			return err_sys(err, errno, "open %s/tmp", s->dir);
	}
	b->store = s;
	r = begin_file(s, b, err);
	if (r < 0)
		return r;
	*ret = steal_ptr(&b);
	return 0;
}

int store_blob_fd(const struct store_blob *b)
{
	return b->fd;
}

void store_blob_abort(struct store_blob *b)
{
	int saved = errno;

	if (!b)
		return;
	if (b->name[0])
		unlinkat(b->store->tmp, b->name, 0);
	close(b->fd);
	free(b);
	errno = saved;
}
DEFINE_CLEANUP(struct store_blob *, store_blob_abort)

/*
 * Give the synced file its digest's name. What has that name already is replaced: it should be the same, and where it
 * is not (a damaged disk), that is how it becomes so; who has it open keeps what he has.
 */
static int settle(struct store_blob *b, const struct store_layer *layer, struct err *err)
{
	struct store *s = b->store;
	cleanup_fd int lock = store_lock(s, err);
	int r;

	if (lock < 0)
		return lock;
	r = fault_point("store.blob.before-rename");
	if (r < 0)
		return err_sys(err, -r, "name blob %s", layer->digest);
	if (renameat(s->tmp, b->name, s->blobs, layer->digest + 7) < 0)
		return err_sys(err, errno, "name blob %s", layer->digest);
	b->name[0] = '\0';
	r = fault_point("store.blob.after-rename");
	if (r < 0 || fsync(s->blobs) < 0)
		return err_sys(err, r < 0 ? -r : errno, "sync %s/blobs", s->dir);
	return 0;
}

int store_blob_finish(
	struct store_blob *blob, const char *digest, struct store_layer *ret, struct err *err)
{
	cleanup_with(store_blob_abort_p_) struct store_blob *b = blob;
	struct store_layer layer = {0};
	struct stat st;
	int r = fault_point("store.blob.before-sync");

	if (r < 0 || fsync(b->fd) < 0)
		return err_sys(err, r < 0 ? -r : errno, "write a blob to %s", b->store->dir);
	if (fstat(b->fd, &st) < 0)
		return err_sys(err, errno, "write a blob to %s", b->store->dir);
	layer.bytes = (uint64_t)st.st_size;
	if (digest && !digest_valid(digest))
		return err_set(err, EINVAL, "\"%.80s\" is not a digest", digest);
	if (digest)
		memcpy(layer.digest, digest, DIGEST_TEXT_SIZE);
	else
		r = digest_fd(b->fd, layer.digest, err);
	if (r == 0)
		r = settle(b, &layer, err);
	if (r < 0)
		return r;
	memcpy(ret->digest, layer.digest, DIGEST_TEXT_SIZE);
	ret->bytes = layer.bytes;
	return 0;
}

int store_blob_put(
	struct store *s, const void *data, size_t len, struct store_layer *ret, struct err *err)
{
	cleanup_with(store_blob_abort_p_) struct store_blob *b = NULL;
	int r = store_blob_begin(s, &b, err);

	if (r)
		return r;
	r = fault_point("store.blob.write");
	if (r == 0)
		r = file_write_full(b->fd, data, len); /* NOLINT: b is what begin made */
	if (r < 0)
		return err_sys(err, -r, "write a blob to %s", s->dir);
	return store_blob_finish(steal_ptr(&b), NULL, ret, err);
}

int store_blob_put_fd(struct store *s, int fd, struct store_layer *ret, struct err *err)
{
	cleanup_with(store_blob_abort_p_) struct store_blob *b = NULL;
	cleanup_digest struct digest *d = digest_new();
	cleanup_free char *buf = malloc(MIB);
	char digest[DIGEST_TEXT_SIZE];
	off_t at = 0;
	int r = buf ? store_blob_begin(s, &b, err) : err_sys(err, ENOMEM, "store a file");

	if (r < 0)
		return r;
	for (;;) {
		ssize_t n = pread(fd, buf, MIB, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(err, errno, "read a file to store");
		if (n == 0)
			break;
		digest_update(d, buf, (size_t)n);
		r = fault_point("store.blob.write");
		if (r == 0)
			r = file_write_full(b->fd, buf, (size_t)n);
		if (r < 0)
			return err_sys(err, -r, "write a blob to %s", s->dir);
		at += n;
	}
	digest_final(d, digest);
	return store_blob_finish(steal_ptr(&b), digest, ret, err);
}

/* ---- names ---- */

static int store_index_write(struct store *s, const json_t *index, struct err *err)
{
	cleanup_publish struct publish p = PUBLISH_INIT;
	cleanup_free char *text = json_text(index);
	int r = publish_begin(&p, s->dir, err);

	if (r < 0)
		return r;
	r = file_write_full(p.fd, text, strlen(text));
	if (r == 0)
		r = file_write_full(p.fd, "\n", 1);
	if (r == 0)
		r = fault_point("store.index.before-rename");
	if (r < 0)
		return err_sys(err, -r, "write %s/index.json", s->dir);
	r = publish_commit(&p, "index.json", 0600, err);
	/* no error from here on: the new index is there */
	if (r == 0)
		(void)fault_point("store.index.after-rename");
	return r;
}

static json_t *descriptor(const struct store_layer *layer)
{
	return json_pack("{s:s, s:s, s:I}", "mediaType", layer->media, "digest", layer->digest,
		"size", (json_int_t)layer->bytes);
}

static json_t *build_manifest(const char *name, const char *created,
	const struct store_layer *config, const struct store_layer *layers, unsigned n)
{
	json_t *array = json_array(), *manifest;

	for (unsigned i = 0; i < n; i++) {
		json_t *item = descriptor(&layers[i]);
		const char *title = store_media_title(layers[i].media);

		if (title)
			json_object_set_new(
				item, "annotations", json_pack("{s:s}", STORE_TITLE, title));
		json_array_append_new(array, item);
	}
	manifest = json_pack("{s:i, s:s, s:s, s:o, s:o, s:{s:s, s:s}}", "schemaVersion", 2,
		"mediaType", STORE_MEDIA_MANIFEST, "artifactType", STORE_ARTIFACT_TYPE, "config",
		descriptor(config), "layers", array, "annotations", STORE_CREATED, created,
		STORE_TITLE, name);
	if (!manifest)
		abort(); /* without memory */
	return manifest;
}

/* May the tag of this entry of the index not move to another version? */
static bool tag_stays(const struct store *s, const json_t *entry)
{
	const char *digest = json_string_value(json_object_get(entry, "digest"));

	return s->keep_tags && (!s->may_go[0] || !digest || strcmp(digest, s->may_go) != 0);
}

/* Point the ref at @manifest, in place of what it pointed at. With the lock. */
static int tag(struct store *s, const struct store_ref *ref, const struct store_layer *manifest,
	const char *created, struct err *err)
{
	cleanup_json json_t *index = NULL;
	char text[2 * LIMIT_NAME_SIZE];
	json_t *item = descriptor(manifest), *manifests;
	size_t i;
	int r = store_index_read(s, &index, err);

	store_ref_text(ref->name, ref->tag, text);
	json_object_set_new(item, "artifactType", json_string(STORE_ARTIFACT_TYPE));
	json_object_set_new(item, "annotations",
		json_pack("{s:s, s:s}", STORE_REF, text, STORE_CREATED, created));
	if (r < 0) {
		json_decref(item);
		return r;
	}
	manifests = json_object_get(index, "manifests");
	if (store_index_find(s, index, ref, &i, NULL) < 0) {
		json_array_append_new(manifests, item);
	} else if (tag_stays(s, json_array_get(manifests, i))) {
		json_decref(item);
		return err_set(
			err, EEXIST, "there is a template \"%s\" already, and it stays", text);
	} else {
		json_array_set_new(manifests, i, item);
	}
	if (json_array_size(manifests) > LIMIT_INDEX_ENTRIES)
		return err_set(err, E2BIG, "%s has %d tags already; remove some", s->dir,
			LIMIT_INDEX_ENTRIES);
	return store_index_write(s, index, err);
}

static int check_there(
	struct store *s, const struct store_layer *layers, unsigned n, struct err *err)
{
	for (unsigned i = 0; i < n; i++)
		if (!store_blob_has(s, layers[i].digest, layers[i].bytes))
			return err_set(err, ENOENT, "publish: blob %.80s (%s) is not in %s",
				layers[i].digest, layers[i].media, s->dir);
	return 0;
}

static int put_json(struct store *s, const json_t *value, const char *media, size_t max,
	struct store_layer *ret, struct err *err)
{
	cleanup_free char *text = json_text(value);

	*ret = (struct store_layer){0};
	snprintf(ret->media, sizeof(ret->media), "%s", media);
	if (strlen(text) > max)
		return err_set(err, EFBIG, "publish: %s has more than %zu bytes", media, max);
	return store_blob_put(s, text, strlen(text), ret, err);
}

static int format_time(int64_t seconds, char ret[static RFC3339_SIZE], struct err *err)
{
	if (seconds < 0 || seconds > INT64_MAX / 1000000000)
		return err_set(err, EINVAL, "publish: %lld is not a time", (long long)seconds);
	rfc3339_text(seconds * 1000000000, 0, ret);
	return 0;
}

/* What a publication consists of. */
struct parts {
	struct store_ref ref;
	struct store_layer all[STORE_LAYERS_MAX + 2]; /* layers, config, manifest */
	char when[RFC3339_SIZE];
};

static int check_names(const char *name, const char *tag_name, unsigned n_layers, struct parts *ret,
	struct err *err)
{
	if (!tag_name)
		tag_name = "latest";
	if (!store_name_valid(name) || !store_tag_valid(tag_name))
		return err_set(err, EINVAL, "publish: \"%.80s:%.80s\" is not a name and a tag",
			name, tag_name);
	if (n_layers > STORE_LAYERS_MAX)
		return err_set(err, E2BIG, "publish: more than %d layers", STORE_LAYERS_MAX);
	snprintf(ret->ref.name, sizeof(ret->ref.name), "%s", name);
	snprintf(ret->ref.tag, sizeof(ret->ref.tag), "%s", tag_name);
	return 0;
}

/* Config and manifest blobs beside the layers: all that has to be there. */
static int put_parts(struct store *s, const char *name, const char *tag_name, const json_t *config,
	const struct store_layer *layers, unsigned n_layers, int64_t created, struct parts *ret,
	struct err *err)
{
	cleanup_json json_t *manifest = NULL;
	int r = check_names(name, tag_name, n_layers, ret, err);

	if (r == 0)
		r = format_time(created, ret->when, err);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < n_layers; i++)
		ret->all[i] = layers[i];
	if (store_layers_check(ret->all, n_layers, err) < 0)
		return -EINVAL;
	r = check_there(s, ret->all, n_layers, err);
	if (r == 0)
		r = put_json(
			s, config, STORE_MEDIA_CONFIG, LIMIT_JSON_BYTES, &ret->all[n_layers], err);
	if (r < 0)
		return r;
	manifest = build_manifest(name, ret->when, &ret->all[n_layers], ret->all, n_layers);
	return put_json(s, manifest, STORE_MEDIA_MANIFEST, LIMIT_MANIFEST_BYTES,
		&ret->all[n_layers + 1], err);
}

int store_put_manifest(struct store *s, const char *name, const char *tag_name,
	const json_t *config, const struct store_layer *layers, unsigned n_layers, int64_t created,
	struct store_manifest *ret, struct err *err)
{
	struct parts p = {0};
	const struct store_layer *manifest;
	int r = put_parts(s, name, tag_name, config, layers, n_layers, created, &p, err);

	if (r < 0)
		return r;
	manifest = &p.all[n_layers + 1];
	r = store_manifest_read(s, manifest->digest, manifest->bytes, ret, err);
	if (r < 0)
		return r;
	memcpy(ret->name, p.ref.name, sizeof(ret->name));
	memcpy(ret->tag, p.ref.tag, sizeof(ret->tag));
	return 0;
}

void store_keep_tags(struct store *s, const char *but)
{
	s->keep_tags = true;
	snprintf(s->may_go, sizeof(s->may_go), "%s", but ? but : "");
}

int store_publish(struct store *s, const char *name, const char *tag_name, const json_t *config,
	const struct store_layer *layers, unsigned n_layers, int64_t created,
	struct store_manifest *ret, struct err *err)
{
	struct parts p = {0};
	cleanup_fd int lock = -1;
	char text[2 * LIMIT_NAME_SIZE + 8];
	int r = put_parts(s, name, tag_name, config, layers, n_layers, created, &p, err);

	if (r < 0)
		return r;
	r = fault_point("store.publish.before-index");
	if (r < 0)
		return err_sys(err, -r, "publish %s", name);
	lock = store_lock(s, err);
	if (lock < 0)
		return lock;
	/* again, now that gc is kept out */
	r = check_there(s, p.all, n_layers + 2, err);
	if (r == 0)
		r = tag(s, &p.ref, &p.all[n_layers + 1], p.when, err);
	if (r < 0)
		return r;
	snprintf(text, sizeof(text), "%s:%s", p.ref.name, p.ref.tag);
	return ret ? store_resolve(s, text, ret, err) : 0;
}

int store_remove(struct store *s, const char *text, struct err *err)
{
	cleanup_json json_t *index = NULL;
	cleanup_fd int lock = -1;
	struct store_layer desc;
	struct store_ref ref;
	json_t *manifests;
	size_t i;
	int r = store_ref_parse(text, &ref, err);

	if (r < 0)
		return r;
	lock = store_lock(s, err);
	if (lock < 0)
		return lock;
	r = store_index_read(s, &index, err);
	if (r == 0)
		r = store_index_find(s, index, &ref, &i, err);
	if (r)
		return r;
	manifests = json_object_get(index, "manifests");
	if (ref.digest[0] &&
		(store_descriptor_parse(json_array_get(manifests, i), &desc, NULL) < 0 ||
			strcmp(desc.digest, ref.digest)))
		return err_set(err, ENOENT, "%s has another digest by now", text);
	json_array_remove(manifests, i);
	return store_index_write(s, index, err);
}
