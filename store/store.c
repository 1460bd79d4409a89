/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store on disk and reading it:
 *
 *     DIR/oci-layout, DIR/index.json    as the OCI image layout has them
 *     DIR/blobs/sha256/HEX              immutable, named by their content
 *     DIR/tmp/                          blobs being written
 *     DIR/lock                          flock(2), taken by whoever changes names
 *
 * Whatever is read may have been put there by another tool or by damage: JSON is bounded and
 * checked field by field, a digest is checked before it becomes a file name, and
 * manifests and configs are compared with their digests each time (they are small). Memory images
 * hold whatever the guest's memory held, so everything is the owner's alone: 0700 and 0600.
 */
#include "store/store.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/fault.h"
#include "common/file.h"
#include "common/log.h"
#include "common/nearest.h"
#include "common/paths.h"
#include "store/snapshot.h"
#include "common/str.h"
#include "store/store_private.h"
#include "store/limits.h"

static const char layout_text[] = "{\"imageLayoutVersion\":\"1.0.0\"}\n";

static int open_dir(int at, const char *path, const char *dir, struct err *err)
{
	int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? err_sys(err, errno, "open the store %s: %s", dir, path) : fd;
}

/* Make what is missing. Harmless beside another process that does the same. */
static int create(const char *dir, struct err *err)
{
	static const char *const subdirs[] = {"blobs/sha256", "tmp"};
	static const char index_text[] =
		"{\"manifests\":[],\"mediaType\":\"" STORE_MEDIA_INDEX "\",\"schemaVersion\":2}\n";
	static const struct {
		const char *name, *text, *fault;
	} files[] = {
		{"index.json", index_text, "store.open.before-index"},
		{"oci-layout", layout_text,
			"store.open.before-layout"}, /* last: it makes it a store */
	};
	cleanup_fd int lock = -1;
	int r = 0;

	for (size_t i = 0; r == 0 && i < 2; i++) {
		cleanup_free char *path = str_printf("%s/%s", dir, subdirs[i]);

		r = file_mkdir_p(path, 0700, err);
	}
	if (r < 0)
		return r;
	lock = file_lock(dir, "lock", true, true, err);
	if (lock < 0)
		return lock;
	for (size_t i = 0; i < 2; i++) {
		cleanup_free char *path = str_printf("%s/%s", dir, files[i].name);

		if (access(path, F_OK) == 0)
			continue;
		r = fault_point(files[i].fault);
		if (r < 0)
			return err_sys(err, -r, "write %s", path);
		r = file_publish(
			dir, files[i].name, files[i].text, strlen(files[i].text), 0600, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int check_layout(struct store *s, struct err *err)
{
	cleanup_json json_t *layout = NULL;
	const char *version;
	int r = json_read_file(s->fd, "oci-layout", &layout, err);

	if (r == -ENOENT)
		return err_set(
			err, ENOENT, "there is no store in %s; `parbake bake` makes one", s->dir);
	if (r == 0)
		r = json_get_string(layout, "imageLayoutVersion", &version, err);
	if (r) {
		err_prefix(err, "%s", s->dir);
		return r;
	}
	if (strcmp(version, "1.0.0"))
		return err_set(err, EINVAL,
			"%s/oci-layout: version %.32s, this program knows 1.0.0", s->dir, version);
	return 0;
}

int store_open(const char *dir, bool make, struct store **ret, struct err *err)
{
	cleanup_store struct store *s = calloc(1, sizeof(*s));
	int r = 0;

	if (!s)
		return err_sys(err, ENOMEM, "open the store");
	s->fd = s->blobs = s->tmp = -1;
	if (!dir)
		r = paths_get(PATHS_STORE, &dir, err);
	if (r == 0 && make)
		r = create(dir, err);
	if (r < 0)
		return r;
	s->dir = str_dup(dir);
	s->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->fd < 0 && errno == ENOENT)
		return err_set(
			err, ENOENT, "there is no store in %s; `parbake bake` makes one", dir);
	if (s->fd < 0)
		return err_sys(err, errno, "open the store %s", dir);
	r = check_layout(s, err);
	if (r < 0)
		return r;
	s->blobs = open_dir(s->fd, "blobs/sha256", dir, err);
	if (s->blobs < 0)
		return s->blobs;
	/* a layout that another tool made has none; only writers need it */
	s->tmp = openat(s->fd, "tmp", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	*ret = steal_ptr(&s);
	return 0;
}

void store_free(struct store *s)
{
	if (!s)
		return;
	close_fd(&s->tmp);
	close_fd(&s->blobs);
	close_fd(&s->fd);
	free(s->dir);
	free(s);
}

const char *store_dir(const struct store *s)
{
	return s->dir;
}

int store_lock(struct store *s, struct err *err)
{
	return file_lock(s->dir, "lock", true, true, err);
}

/* ---- index.json ---- */

int store_index_read(struct store *s, json_t **ret, struct err *err)
{
	cleanup_json json_t *index = NULL;
	json_t *manifests, *item;
	size_t i;
	int r = json_read_file(s->fd, "index.json", &index, err);

	if (r < 0) {
		err_prefix(err, "%s", s->dir);
		return r == -EINVAL ? -EBADMSG : r;
	}
	manifests = json_object_get(index, "manifests");
	if (!json_is_array(manifests))
		return err_set(err, EBADMSG, "%s/index.json: no array \"manifests\"", s->dir);
	if (json_array_size(manifests) > LIMIT_INDEX_ENTRIES)
		return err_set(err, EBADMSG, "%s/index.json: more than %d manifests", s->dir,
			LIMIT_INDEX_ENTRIES);
	json_array_foreach(manifests, i, item) if (!json_is_object(item)) return err_set(
		err, EBADMSG, "%s/index.json: manifest %zu is not an object", s->dir, i);
	*ret = steal_ptr(&index);
	return 0;
}

const char *store_index_ref(const json_t *descriptor)
{
	return json_string_value(
		json_object_get(json_object_get(descriptor, "annotations"), STORE_REF));
}

/* Say what was probably meant. */
static int no_such_ref(struct store *s, const json_t *manifests, const char *ref, struct err *err)
{
	size_t n = json_array_size(manifests);
	cleanup_free const char **refs = calloc(n + 1, sizeof(*refs));
	const char *near = NULL;

	if (refs) {
		for (size_t i = 0; i < n; i++)
			refs[i] = store_index_ref(json_array_get(manifests, i));
		near = nearest_name(ref, refs, n);
	}
	if (near)
		return err_set(err, ENOENT, "no template \"%s\" in %s; did you mean \"%.127s\"?",
			ref, s->dir, near);
	return err_set(err, ENOENT, "no template \"%s\" in %s; `parbake ls` shows what there is",
		ref, s->dir);
}

int store_index_find(struct store *s, const json_t *index, const struct store_ref *ref, size_t *ret,
	struct err *err)
{
	json_t *manifests = json_object_get(index, "manifests");
	char text[2 * LIMIT_NAME_SIZE];

	store_ref_text(ref->name, ref->tag, text);
	for (size_t i = 0; i < json_array_size(manifests); i++) {
		const char *other = store_index_ref(json_array_get(manifests, i));

		if (other && !strcmp(other, text)) {
			*ret = i;
			return 0;
		}
	}
	return no_such_ref(s, manifests, text, err);
}

/* ---- resolving ---- */

/* A template of that tag that has the name for an alias; its own name and tag are in *@ret. */
static bool find_alias(struct store *s, const struct store_ref *ref, struct store_manifest *ret)
{
	struct store_manifest *list = NULL;
	bool found = false;
	size_t n = 0;

	if (store_list(s, &list, &n, NULL) < 0)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!found && !strcmp(list[i].tag, ref->tag) &&
			snapshot_aliases_have(list[i].config, ref->name)) {
			*ret = list[i];
			found = true;
		} else {
			store_manifest_clear(&list[i]);
		}
	}
	free(list);
	return found;
}

int store_resolve(struct store *s, const char *text, struct store_manifest *ret, struct err *err)
{
	cleanup_manifest struct store_manifest m = {0};
	cleanup_json json_t *index = NULL;
	struct store_layer desc = {.bytes = STORE_BYTES_ANY};
	struct store_ref ref;
	size_t i = 0;
	int r = store_ref_parse(text, &ref, err);

	if (r == 0 && ref.digest[0]) {
		memcpy(desc.digest, ref.digest, sizeof(ref.digest));
	} else if (r == 0) {
		r = store_index_read(s, &index, err);
		if (r == 0)
			r = store_index_find(s, index, &ref, &i, err);
		if (r == -ENOENT && find_alias(s, &ref, ret))
			return 0;
		if (r == 0)
			r = store_descriptor_parse(
				json_array_get(json_object_get(index, "manifests"), i), &desc, err);
	}
	if (r == 0)
		r = store_manifest_read(s, desc.digest, desc.bytes, &m, err);
	if (r < 0)
		return r == -EMEDIUMTYPE ? -EBADMSG : r;
	if (ref.digest[0] && strcmp(m.name, ref.name))
		return err_set(err, ENOENT, "%s is a version of \"%s\", not of \"%s\"", ref.digest,
			m.name, ref.name);
	memcpy(m.name, ref.name, sizeof(m.name));
	memcpy(m.tag, ref.tag, sizeof(m.tag));
	*ret = m;
	m = (struct store_manifest){0};
	return 0;
}

static int by_ref(const void *a, const void *b)
{
	const struct store_manifest *x = a, *y = b;
	int r = strcmp(x->name, y->name);

	return r ? r : strcmp(x->tag, y->tag);
}

/* One line of index.json. -EMEDIUMTYPE: not a template of ours. */
static int list_one(
	struct store *s, const json_t *descriptor, struct store_manifest *ret, struct err *err)
{
	const char *text = store_index_ref(descriptor);
	struct store_layer desc;
	struct store_ref ref;
	int r;

	if (!text || store_ref_parse(text, &ref, NULL) < 0 || ref.digest[0])
		return -EMEDIUMTYPE;
	r = store_descriptor_parse(descriptor, &desc, err);
	if (r < 0)
		return r;
	if (strcmp(desc.media, STORE_MEDIA_MANIFEST))
		return -EMEDIUMTYPE;
	r = store_manifest_read(s, desc.digest, desc.bytes, ret, err);
	if (r < 0)
		return r;
	memcpy(ret->name, ref.name, sizeof(ret->name));
	memcpy(ret->tag, ref.tag, sizeof(ret->tag));
	return 0;
}

int store_list(struct store *s, struct store_manifest **ret, size_t *ret_n, struct err *err)
{
	cleanup_json json_t *index = NULL;
	struct store_manifest *list;
	json_t *manifests, *item;
	size_t i, n = 0;
	int r = store_index_read(s, &index, err);

	if (r < 0)
		return r;
	manifests = json_object_get(index, "manifests");
	list = calloc(json_array_size(manifests) + 1, sizeof(*list));
	if (!list)
		return err_sys(err, ENOMEM, "list the store");
	json_array_foreach(manifests, i, item)
	{
		struct err why;

		r = list_one(s, item, &list[n], &why);
		if (r == 0)
			n++;
		else if (r != -EMEDIUMTYPE) /* one that is damaged hides no other */
			log_warn("%s: %s: %s", s->dir, store_index_ref(item), why.text);
	}
	qsort(list, n, sizeof(*list), by_ref);
	*ret = list;
	*ret_n = n;
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int store_refs(struct store *s, char ***ret, size_t *ret_n, struct err *err)
{
	cleanup_json json_t *index = NULL;
	json_t *manifests, *item;
	size_t i, n = 0;
	char **refs;
	int r = store_index_read(s, &index, err);

	if (r < 0)
		return r;
	manifests = json_object_get(index, "manifests");
	refs = calloc(json_array_size(manifests) + 1, sizeof(*refs));
	if (!refs)
		return err_sys(err, ENOMEM, "list the store");
	json_array_foreach(manifests, i, item)
	{
		const char *text = store_index_ref(item);
		struct store_ref ref;

		if (text && store_ref_parse(text, &ref, NULL) == 0 && !ref.digest[0])
			refs[n++] = str_dup(text);
	}
	qsort(refs, n, sizeof(*refs), by_text);
	*ret = refs;
	*ret_n = n;
	return 0;
}

/* ---- blobs ---- */

int store_blob_open(
	struct store *s, const char *digest, uint64_t bytes, int *ret_fd, struct err *err)
{
	cleanup_fd int fd = -1;
	struct stat st;

	if (!digest_valid(digest))
		return err_set(err, EINVAL, "\"%.80s\" is not a digest (sha256:…)", digest);
	/* non-blocking: a FIFO of that name does not hold us up */
	fd = openat(s->blobs, digest + 7, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return err_set(err, ENOENT, "blob %s is missing in %s", digest, s->dir);
	if (fd < 0)
		return err_sys(err, errno, "open blob %s", digest);
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "open blob %s", digest);
	if (!S_ISREG(st.st_mode))
		return err_set(err, EBADMSG, "blob %s is not a regular file", digest);
	if (bytes != STORE_BYTES_ANY && (uint64_t)st.st_size != bytes)
		return err_set(err, EBADMSG, "blob %s has %lld bytes, not %llu", digest,
			(long long)st.st_size, (unsigned long long)bytes);
	*ret_fd = steal_fd(&fd);
	return 0;
}

int store_layer_json(struct store *s, const struct store_layer *layer, const char *what,
	json_t **ret, struct err *err)
{
	cleanup_free char *buf = NULL;
	char digest[DIGEST_TEXT_SIZE];
	cleanup_fd int fd = -1;
	int r = store_blob_open(s, layer->digest, layer->bytes, &fd, err);

	if (r < 0)
		return r;
	if (layer->bytes == 0 || layer->bytes > LIMIT_JSON_BYTES)
		return err_set(
			err, EBADMSG, "%s has %llu bytes", what, (unsigned long long)layer->bytes);
	buf = malloc(layer->bytes);
	if (!buf)
		return err_set(err, ENOMEM, "no memory for %s", what);
	r = file_pread_full(fd, buf, layer->bytes, 0);
	if (r < 0)
		return err_sys(err, -r, "read %s", what);
	digest_buffer(buf, layer->bytes, digest);
	if (strcmp(digest, layer->digest) != 0)
		return err_set(err, EBADMSG,
			"%s in the store is damaged: rebake it with `parbake bake --force`", what);
	return json_parse(what, buf, layer->bytes, ret, err);
}

bool store_blob_has(struct store *s, const char *digest, uint64_t bytes)
{
	struct stat st;

	return digest_valid(digest) &&
		fstatat(s->blobs, digest + 7, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		S_ISREG(st.st_mode) && (uint64_t)st.st_size == bytes;
}
