/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: what is published is found, verified and collected; what is damaged, forged or
 * half-written is refused with its name and hides nothing else. (test_store_faults.c: dying at
 * every step.)
 */
#include "store/store.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/file.h"
#include "common/proc.h"
#include "tests/unit/store_rig.h"

static unsigned mode_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_mode & 07777 : 0;
}

static void test_names(void)
{
	static const char *const good[] = {
		"base", "a", "0", "code-interpreter", "a.b_c-d", "x1", "a--b"};
	static const char *const wrong[] = {"", "Base", "-a", ".a", "_a", "a/b", "a:b", "a b", "ä",
		"..", "a.", "a..b", "a__b", "a.-b", "a-.b", "a---b", "a-",
		"0123456789012345678901234567890123456789012345678901234567890123"};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		ok(store_name_valid(good[i]), "\"%s\" is a name", good[i]);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ok(!store_name_valid(wrong[i]), "\"%s\" is no name", wrong[i]);
}

/* A name that leads to a template as long as no template has it. */
static void leads_elsewhere(struct store *s, const struct store_manifest *like)
{
	char *names[] = {"python-v1", "python"};
	cleanup_json json_t *config = json_deep_copy(like->config);
	struct store_manifest got = {0};

	json_object_set_new(config, "extra", json_object());
	snapshot_aliases_set(json_object_get(config, "extra"), names, 2);
	is_int(store_publish(s, "interpreter", "latest", config, like->layers, like->n_layers, 1,
		       NULL, &err),
		0, "publish with aliases");
	is_int(store_resolve(s, "python-v1", &got, &err), 0, "an alias leads to it (%s)", err.text);
	is_str(got.name, "interpreter", "under its own name");
	store_manifest_clear(&got);
	is_int(store_resolve(s, "python-v1:old", &got, &err), -ENOENT,
		"an alias stands for its own tag alone");
	is_int(fixture_publish(s, "python-v1", NULL, 5, NULL, &err), 0, "a template of that name");
	is_int(store_resolve(s, "python-v1", &got, &err), 0,
		"a template with an alias's name goes before the alias");
	is_str(got.name, "python-v1", "a template's own name goes before an alias");
	store_manifest_clear(&got);
	is_int(store_remove(s, "python-v1", &err), 0,
		"a template whose name hid an alias is removed");
	is_int(store_resolve(s, "python-v1", &got, &err), 0, "the alias leads there again");
	is_str(got.name, "interpreter", "the alias leads to its template as before");
	store_manifest_clear(&got);
	is_int(store_remove(s, "interpreter", &err), 0, "an alias goes with its template");
	is_int(store_resolve(s, "python-v1", &got, &err), -ENOENT, "for good");
}

static void test_life(void)
{
	cleanup_free char *dir = NULL, *index = NULL, *blob = NULL, *blobs = NULL, *pinned = NULL;
	cleanup_store struct store *s = NULL;
	cleanup_manifest struct store_manifest one = {0}, two = {0}, got = {0};
	struct store_manifest *list;
	unsigned gone = 0;
	uint64_t bytes = 0;
	size_t n;
	cleanup_fd int fd = -1;

	umask(0);
	s = new_store(&dir);
	is_str(store_dir(s), dir, "a store tells its directory");
	is_int(mode_of(dir), 0700, "the directory is the owner's alone, whatever the umask");
	if (!is_int(fixture_publish(s, "base", NULL, 1, &one, &err), 0, "a template is published"))
		printf("# %s\n", err.text);
	index = in(dir, "index.json");
	blobs = in(dir, "blobs/sha256");
	blob = blob_path(dir, one.layers[2].digest);
	is_int(mode_of(index), 0600, "index.json is the owner's alone");
	is_int(mode_of(blob), 0600, "the memory's blob is the owner's alone");
	is_int(mode_of(blobs), 0700, "the blobs' directory is the owner's alone");
	umask(022);
	is_str(one.name, "base", "a manifest has its name");
	is_str(one.tag, "latest", "a manifest has its tag");
	is_str(one.created, "2023-11-14T22:13:21Z", "a manifest has its time");
	is_int(one.n_layers, 4, "a manifest has its layers");
	is_str(one.layers[2].media, STORE_MEDIA_MEMORY, "a layer's media type");
	ok(store_layer(&one, STORE_MEDIA_DISK) == &one.layers[3], "a layer by its type");
	ok(store_layer(&one, STORE_MEDIA_WSET) == NULL, "a layer there is not");
	is_int(json_integer_value(json_object_get(one.config, "format")), 1,
		"a manifest has its config");

	is_int(store_resolve(s, "base", &got, &err), 0, "a name is resolved");
	is_str(got.digest, one.digest, "… the same");
	store_manifest_clear(&got);
	is_int(store_resolve(s, "base:latest", &got, &err), 0, "resolve with the tag");
	store_manifest_clear(&got);
	pinned = str_printf("base@%s", one.digest);
	if (!is_int(store_verify(s, &one, NULL, &err), 0, "a version is verified"))
		printf("# %s\n", err.text);

	is_int(fixture_publish(s, "base", NULL, 2, &two, &err), 0, "publish a new version");
	ok(strcmp(one.digest, two.digest) != 0, "a new version has another digest");
	is_int(store_resolve(s, "base", &got, &err), 0,
		"a name is resolved when it has a new version");
	is_str(got.digest, two.digest, "… the new one");
	store_manifest_clear(&got);
	is_int(store_resolve(s, pinned, &got, &err), 0, "the old one by its digest");
	is_str(got.digest, one.digest, "… the old one");
	store_manifest_clear(&got);
	leads_elsewhere(s, &two);
	is_int(fixture_publish(s, "base", "v1", 3, NULL, &err), 0, "publish with a tag");
	is_int(fixture_publish(s, "alpha", NULL, 9, NULL, &err), 0, "publish another name");
	is_int(store_list(s, &list, &n, &err), 0, "list");
	is_int((int64_t)n, 3, "… three");
	is_str(list[0].name, "alpha", "… sorted by name");
	is_str(list[1].tag, "latest", "… and by tag");
	is_str(list[2].tag, "v1", "… and by tag");
	for (size_t i = 0; i < n; i++)
		store_manifest_clear(&list[i]);
	free(list);

	is_int(store_blob_open(s, one.config_blob.digest, one.config_blob.bytes, &fd, &err), 0,
		"open the old config");
	is_int(store_gc(s, 3600, false, &gone, &bytes, &err), 0, "gc that keeps the young");
	is_int(gone, 0, "… removes nothing");
	is_int(store_gc(s, 0, true, &gone, &bytes, &err), 0, "gc without doing it");
	ok(gone > 0, "… would remove %u", gone);
	ok(store_blob_has(s, one.config_blob.digest, one.config_blob.bytes), "… but did not");
	{
		unsigned real = 0;

		is_int(store_gc(s, 0, false, &real, &bytes, &err), 0, "gc");
		is_int(real, gone, "… removes as many");
	}
	ok(!store_blob_has(s, one.config_blob.digest, one.config_blob.bytes),
		"the old config is gone");
	ok(store_blob_has(s, one.layers[1].digest, 6), "the kernel that all share is there");
	{
		char first = 0;

		ok(pread(fd, &first, 1, 0) == 1 && first == '{', "an open blob stays readable");
	}
	is_int(store_resolve(s, pinned, &got, &err), -ENOENT, "the old version is gone");
	is_int(store_verify(s, &two, NULL, &err), 0, "the new one is whole");
	is_int(store_remove(s, "base", &err), 0, "a template is removed");
	is_int(store_resolve(s, "base", &got, &err), -ENOENT, "… it is not found");
	is_int(store_resolve(s, "base:v1", &got, &err), 0, "… its other tag is");
	store_manifest_clear(&got);
	is_int(store_remove(s, "base", &err), -ENOENT, "remove again");
}

static void test_unknown(void)
{
	cleanup_free char *dir = NULL, *pinned = NULL;
	cleanup_store struct store *s = new_store(&dir);
	cleanup_store struct store *none = NULL;
	cleanup_manifest struct store_manifest m = {0}, got = {0};
	static const char *const wrong[] = {"", "Base", "base:", "base:a/b", "base@",
		"base@sha256:12", "base@sha256:../../../etc/passwd", "../base", "base:latest:x",
		"a@b@c"};

	is_int(fixture_publish(s, "base", NULL, 1, &m, &err), 0,
		"a template is published for resolving");
	is_int(fixture_publish(s, "code-interpreter", NULL, 1, NULL, &err), 0,
		"a second template is published for resolving");
	is_int(store_resolve(s, "bsae", &got, &err), -ENOENT, "a typo");
	has_str(err.text, "did you mean \"base\"?", "… is recognised");
	is_int(store_resolve(s, "code-interpeter", &got, &err), -ENOENT, "a typo");
	has_str(err.text, "did you mean \"code-interpreter\"?", "… is recognised");
	is_int(store_resolve(s, "zzz", &got, &err), -ENOENT,
		"a name that is like no other is not resolved");
	has_str(err.text, "parbake ls", "… says what to do");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		is_int(store_resolve(s, wrong[i], &got, &err), -EINVAL, "\"%s\" is no ref",
			wrong[i]);
	pinned = str_printf("code-interpreter@%s", m.digest);
	is_int(store_resolve(s, pinned, &got, &err), -ENOENT, "a digest of another name");
	has_str(err.text, "version of \"base\"", "… says whose it is");
	is_int(store_open("/nonexistent/store", false, &none, &err), -ENOENT,
		"a store there is not");
	has_str(err.text, "parbake bake", "… says what makes one");
	is_int(store_open(top, false, &none, &err), -ENOENT, "a directory that is no store");
}

static void test_blobs(void)
{
	cleanup_free char *dir = NULL, *path = NULL, *victim = NULL;
	cleanup_store struct store *s = new_store(&dir);
	struct store_layer layer = {0}, again = {0};
	struct store_blob *b = NULL;
	struct stat before, after;
	cleanup_fd int fd = -1, file = -1;
	char digest[DIGEST_TEXT_SIZE];

	is_int(store_blob_put(s, "hello", 5, &layer, &err), 0, "put a blob");
	is_str(layer.digest,
		"sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
		"a layer has its digest");
	path = blob_path(dir, layer.digest);
	stat(path, &before);
	is_int(store_blob_put(s, "hello", 5, &again, &err), 0, "put it again");
	stat(path, &after);
	ok(after.st_mtim.tv_sec > before.st_mtim.tv_sec ||
			after.st_mtim.tv_nsec > before.st_mtim.tv_nsec,
		"… and young again");
	is_int(store_blob_open(s, layer.digest, 5, &fd, &err), 0, "open it");
	is_int(store_blob_open(s, layer.digest, 6, &fd, &err), -EBADMSG,
		"a blob of another size is refused");
	has_str(err.text, "5 bytes, not 6", "… says which");
	is_int(store_blob_open(s, "sha256:../../index.json", 5, &fd, &err), -EINVAL,
		"a path for a digest");
	is_int(store_blob_begin(s, &b, &err), 0, "begin one");
	store_blob_abort(b);
	store_blob_abort(NULL);
	is_int(store_blob_begin(s, &b, &err), 0, "begin one");
	is_int(store_blob_finish(b, "sha256:zz", &again, &err), -EINVAL, "a digest that is none");

	file = file_scratch(top, &err);
	file_write_full(file, "hello", 5);
	is_int(store_blob_put_fd(s, file, &again, &err), 0, "put a file");
	is_str(again.digest, layer.digest, "… the same digest");

	digest_buffer("link", 4, digest);
	victim = blob_path(dir, digest);
	ok(symlink("/etc/passwd", victim) == 0, "a link for a blob");
	ok(store_blob_open(s, digest, 4, &fd, &err) < 0, "… is not followed");
	unlink(victim);
	ok(mkfifo(victim, 0600) == 0, "a FIFO for a blob");
	is_int(store_blob_open(s, digest, 0, &fd, &err), -EBADMSG, "… does not block");
	unlink(victim);
	/* what has the name but not the size is not that content */
	ok(truncate(path, 3) == 0, "a blob cut short");
	is_int(store_blob_put(s, "hello", 5, &again, &err), 0, "put it again");
	ok(store_blob_has(s, layer.digest, 5), "… it is whole again");
	close_fd(&fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ok(pwrite(fd, "J", 1, 0) == 1, "a blob damaged, its size as it was");
	is_int(store_blob_put(s, "hello", 5, &again, &err), 0, "put it again");
	is_int(pread(fd, digest, 5, 0), 5, "who has it open");
	ok(!memcmp(digest, "Jello", 5), "… keeps what it was");
	close_fd(&fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	is_int(pread(fd, digest, 5, 0), 5, "who opens it");
	ok(!memcmp(digest, "hello", 5), "… finds it whole again");
}

static void flip(const char *path, off_t at)
{
	cleanup_fd int fd = open(path, O_RDWR | O_CLOEXEC);
	char c;

	if (pread(fd, &c, 1, at) != 1)
		abort();
	c ^= 0x40;
	if (pwrite(fd, &c, 1, at) != 1)
		abort();
}

static void test_damage(void)
{
	cleanup_free char *dir = NULL;
	cleanup_store struct store *s = new_store(&dir);
	cleanup_manifest struct store_manifest m = {0}, got = {0};
	struct store_manifest *list;
	unsigned gone;
	size_t n;
	char **refs;

	is_int(fixture_publish(s, "base", NULL, 1, &m, &err), 0,
		"a template is published for damage");
	is_int(fixture_publish(s, "other", NULL, 2, NULL, &err), 0,
		"a second template is published beside the damaged one");
	for (unsigned i = 0; i < m.n_layers; i++) {
		cleanup_free char *path = blob_path(dir, m.layers[i].digest);

		flip(path, (off_t)m.layers[i].bytes / 2);
		is_int(store_verify(s, &m, NULL, &err), -EBADMSG, "%s flipped: verify refuses",
			m.layers[i].media);
		has_str(err.text, m.layers[i].digest, "… and names the blob");
		ok(strstr(err.text, "cannot be told") || strstr(err.text, "are wrong") ||
				strstr(err.text, "all data in it is good"),
			"… and says where, or why it cannot");
		flip(path, (off_t)m.layers[i].bytes / 2);
	}
	is_int(store_verify(s, &m, NULL, &err), 0,
		"a version with everything put right is verified");
	{
		cleanup_free char *path = blob_path(dir, m.config_blob.digest);

		flip(path, 5);
		is_int(store_resolve(s, "base", &got, &err), -EBADMSG,
			"config flipped: not resolved");
		has_str(err.text, m.config_blob.digest, "… names the blob");
		is_int(store_list(s, &list, &n, &err), 0,
			"a store with a damaged config is listed");
		is_int((int64_t)n, 1, "… the other one is still there");
		for (size_t i = 0; i < n; i++)
			store_manifest_clear(&list[i]);
		free(list);
		is_int(store_refs(s, &refs, &n, &err), 0, "references are listed");
		is_int((int64_t)n, 2, "… both");
		is_str(n ? refs[0] : NULL, "base", "… with the damaged one");
		while (n)
			free(refs[--n]);
		free(refs);
		flip(path, 5);
	}
	{
		cleanup_free char *path = blob_path(dir, m.digest);

		flip(path, 5);
		is_int(store_resolve(s, "base", &got, &err), -EBADMSG,
			"manifest flipped: not resolved");
		is_int(store_gc(s, 0, false, &gone, NULL, &err), -EBADMSG,
			"… gc removes nothing at all");
		has_str(err.text, "base", "… and says because of what");
		ok(store_blob_has(s, m.layers[0].digest, m.layers[0].bytes),
			"… the layers are there");
		is_int(store_remove(s, "base", &err), 0, "a damaged one can be removed");
		is_int(store_gc(s, 0, false, &gone, NULL, &err), 0, "… then gc works");
		ok(gone >= 4, "… and removes its blobs");
	}
}

/* Put @text as a manifest and point "forged" at it. */
static void forge(struct store *s, const char *dir, const char *text)
{
	struct store_layer layer = {0};
	cleanup_free char *index = NULL;

	store_blob_put(s, text, strlen(text), &layer, &err);
	index = str_printf(
		"{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":"
		"\"application/vnd.oci.image.manifest.v1+json\",\"digest\":\"%s\",\"size\":%zu,"
		"\"annotations\":{\"org.opencontainers.image.ref.name\":\"forged\"}}]}",
		layer.digest, strlen(text));
	file_publish(dir, "index.json", index, strlen(index), 0600, &err);
}

#define HEAD "{\"schemaVersion\":2,\"artifactType\":\"" STORE_ARTIFACT_TYPE "\","
#define EMPTY "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void test_forged(void)
{
	static const char *const manifests[] = {
		"",
		"[]",
		"{}",
		"null",
		"{\"schemaVersion\":1}",
		"{\"schemaVersion\":2}",
		"{\"schemaVersion\":2,\"artifactType\":\"x\"}",
		HEAD "\"layers\":[]}",
		HEAD "\"config\":7,\"layers\":[]}",
		HEAD "\"config\":{\"mediaType\":\"" STORE_MEDIA_CONFIG
		     "\",\"digest\":\"sha256:../../oci-layout\","
		     "\"size\":30},\"layers\":[]}",
		HEAD "\"config\":{\"mediaType\":\"" STORE_MEDIA_CONFIG "\",\"digest\":\"" EMPTY
		     "\",\"size\":-1},"
		     "\"layers\":[]}",
		HEAD "\"config\":{\"mediaType\":\"" STORE_MEDIA_CONFIG "\",\"digest\":\"" EMPTY
		     "\",\"size\":0},"
		     "\"layers\":{}}",
		HEAD "\"config\":{\"mediaType\":\"x\",\"digest\":\"" EMPTY
		     "\",\"size\":0},\"layers\":[]}",
		HEAD "\"config\":{\"mediaType\":\"" STORE_MEDIA_CONFIG "\",\"digest\":\"" EMPTY
		     "\",\"size\":0},"
		     "\"layers\":[{\"mediaType\":\"a\\nb\",\"digest\":\"" EMPTY "\",\"size\":0}]}",
		HEAD "\"config\":{\"mediaType\":\"" STORE_MEDIA_CONFIG "\",\"digest\":\"" EMPTY
		     "\",\"size\":0},"
		     "\"layers\":[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]}",
		HEAD "\"config\":{\"mediaType\":\"" STORE_MEDIA_CONFIG "\",\"digest\":\"" EMPTY
		     "\",\"size\":0},"
		     "\"layers\":[{\"mediaType\":\"x\",\"digest\":\"" EMPTY "\",\"size\":0},"
		     "{\"mediaType\":\"x\",\"digest\":\"" EMPTY "\",\"size\":0}]}",
		HEAD "\"config\":{\"mediaType\":\"" STORE_MEDIA_CONFIG "\",\"digest\":\"" EMPTY
		     "\",\"size\":0},"
		     "\"layers\":[],\"annotations\":{\"org.opencontainers.image.created\":"
		     "\"\\u001b[2J\"}}",
	};
	static const char *const indexes[] = {
		"",
		"[]",
		"{}",
		"{\"manifests\":{}}",
		"{\"manifests\":[1]}",
		"{\"manifests\":[],\"manifests\":[]}",
		"{\"manifests\":[{\"annotations\":{\"org.opencontainers.image.ref.name\":"
		"\"forged\"}}]}",
		"{\"manifests\":[{\"mediaType\":\"x\",\"digest\":\"sha256:../../x\",\"size\":1,"
		"\"annotations\":{\"org.opencontainers.image.ref.name\":\"forged\"}}]}",
	};
	cleanup_free char *dir = NULL;
	cleanup_store struct store *s = new_store(&dir);
	cleanup_manifest struct store_manifest got = {0};
	struct store_layer empty = {0};

	store_blob_put(s, "", 0, &empty, &err);
	is_str(empty.digest, EMPTY, "an empty blob");
	for (size_t i = 0; i < sizeof(manifests) / sizeof(manifests[0]); i++) {
		forge(s, dir, manifests[i]);
		if (!is_int(store_resolve(s, "forged", &got, &err), -EBADMSG, "forged manifest %zu",
			    i))
			printf("# %s\n", err.text);
	}
	for (size_t i = 0; i < sizeof(indexes) / sizeof(indexes[0]); i++) {
		int r;

		file_publish(dir, "index.json", indexes[i], strlen(indexes[i]), 0600, &err);
		r = store_resolve(s, "forged", &got, &err);
		ok(r == -EBADMSG, "forged index %zu: %s", i, err.text);
		ok(store_gc(s, 0, false, NULL, NULL, &err) < 0 && store_blob_has(s, EMPTY, 0),
			"… gc removes nothing by it");
	}
}

/* What other tools put into the layout is kept and left alone. */
#define MANIFEST "application/vnd.oci.image.manifest.v1+json"

/* One that names a manifest as a mere blob comes first: what is in that manifest is kept all the same. */
static void test_named_twice(void)
{
	cleanup_free char *dir = NULL, *blob = NULL, *manifest = NULL, *text = NULL;
	cleanup_store struct store *s = new_store(&dir);
	cleanup_json json_t *index = NULL;
	struct store_layer layer = {0}, inner = {0}, outer = {0};
	unsigned gone = 9;

	store_blob_put(s, "data", 4, &layer, &err);
	manifest = str_printf(
		"{\"schemaVersion\":2,\"layers\":[{\"mediaType\":\"a/b\",\"digest\":\"%s\","
		"\"size\":4}]}",
		layer.digest);
	store_blob_put(s, manifest, strlen(manifest), &inner, &err);
	blob = str_printf(
		"{\"schemaVersion\":2,\"layers\":[{\"mediaType\":\"a/b\",\"digest\":\"%s\","
		"\"size\":%zu}]}",
		inner.digest, strlen(manifest));
	store_blob_put(s, blob, strlen(blob), &outer, &err);
	index = json_pack("{s:i, s:[{s:s, s:s, s:I}, {s:s, s:s, s:I}]}", "schemaVersion", 2,
		"manifests", "mediaType", MANIFEST, "digest", outer.digest, "size",
		(json_int_t)outer.bytes, "mediaType", MANIFEST, "digest", inner.digest, "size",
		(json_int_t)inner.bytes);
	text = json_text(index);
	is_int(file_publish(dir, "index.json", text, strlen(text), 0600, &err), 0,
		"an index of two manifests");
	is_int(store_gc(s, 0, false, &gone, NULL, &err), 0,
		"a collection of garbage keeps what an index names");
	is_int(gone, 0, "… removes nothing");
	ok(store_blob_has(s, layer.digest, 4), "… of what the second one names");
}

/* index.json with one entry: @m, or the blob. */
static void index_of(const char *dir, const char *media, const char *ref,
	const struct store_manifest *m, const char *blob, uint64_t bytes)
{
	cleanup_json json_t *index = json_pack("{s:i, s:[{s:s, s:s, s:I, s:{s:s}}]}",
		"schemaVersion", 2, "manifests", "mediaType", media, "digest", m ? m->digest : blob,
		"size", (json_int_t)bytes, "annotations", "org.opencontainers.image.ref.name", ref);
	cleanup_free char *text = json_text(index);

	is_int(file_publish(dir, "index.json", text, strlen(text), 0600, &err), 0,
		"an index whose entry is %s", media);
}

static uint64_t bytes_of(const char *dir, const char *digest)
{
	cleanup_free char *path = blob_path(dir, digest);
	struct stat st;

	return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* gc and all who read a template mean the same by an index, whatever it says of itself. */
static void test_types(void)
{
	static const char *const types[] = {"Application/VND.OCI.Image.Manifest.v1+JSON",
		"application/vnd.example.unknown.v1+json", "application/octet-stream"};
	cleanup_free char *dir = NULL, *text = NULL;
	cleanup_store struct store *s = new_store(&dir);
	cleanup_manifest struct store_manifest m = {0};
	struct store_layer odd = {0}, extra = {0}, raw = {0};
	unsigned gone;

	is_int(fixture_publish(s, "base", NULL, 1, &m, &err), 0,
		"a template is published beside an unknown index");
	for (size_t i = 0; i < 3; i++) {
		cleanup_manifest struct store_manifest got = {0};

		index_of(dir, types[i], "base", &m, NULL, bytes_of(dir, m.digest));
		is_int(store_resolve(s, "base", &got, &err), 0, "… is a template to run");
		is_int(store_gc(s, 0, false, &gone, NULL, &err), 0, "… to gc");
		is_int(store_verify(s, &got, NULL, &err), 0, "… which verify finds whole then");
	}
	store_blob_put(s, "extra", 5, &extra, &err);
	text = str_printf(
		"{\"schemaVersion\":2,\"blobs\":[{\"at\":{\"digest\":\"%s\"}}]}", extra.digest);
	store_blob_put(s, text, strlen(text), &odd, &err);
	index_of(dir, types[1], "odd", NULL, odd.digest, odd.bytes);
	is_int(store_gc(s, 0, false, &gone, NULL, &err), 0,
		"a collection of garbage reads unknown fields");
	ok(store_blob_has(s, extra.digest, 5), "… keeps what an unknown field mentions");
	store_blob_put(s, "\x89PNG", 4, &raw, &err);
	index_of(dir, types[2], "raw", NULL, raw.digest, raw.bytes);
	is_int(store_gc(s, 0, false, &gone, NULL, &err), 0,
		"a collection of garbage reads what is no manifest");
	ok(store_blob_has(s, raw.digest, 4), "… keeps what is no manifest");
	ok(!store_blob_has(s, extra.digest, 5), "… and nothing that nobody names");
}

static void test_foreign(void)
{
	static const char manifest[] =
		"{\"schemaVersion\":2,\"config\":{\"mediaType\":"
		"\"application/vnd.oci.image.config.v1+json\",\"digest\":\"" EMPTY
		"\",\"size\":0},\"layers\":[]}";
	cleanup_free char *dir = NULL, *text = NULL;
	cleanup_store struct store *s = new_store(&dir);
	cleanup_manifest struct store_manifest got = {0};
	cleanup_json json_t *index = NULL;
	struct store_layer empty = {0};
	struct store_manifest *list;
	unsigned gone;
	size_t n;

	store_blob_put(s, "", 0, &empty, &err);
	forge(s, dir, manifest);
	is_int(store_resolve(s, "forged", &got, &err), -EBADMSG, "an image that is no template");
	has_str(err.text, "not a parbake template", "… says so");
	is_int(fixture_publish(s, "base", NULL, 1, NULL, &err), 0, "publish beside it");
	is_int(store_list(s, &list, &n, &err), 0,
		"a store with an image that is no template is listed");
	is_int((int64_t)n, 1, "… ours alone");
	store_manifest_clear(&list[0]);
	free(list);
	is_int(store_gc(s, 0, false, &gone, NULL, &err), 0,
		"a collection of garbage runs beside another's image");
	ok(store_blob_has(s, EMPTY, 0), "… keeps what the other one names");
	is_int(store_remove(s, "base", &err), 0, "remove ours");
	is_int(json_read_file(AT_FDCWD, (text = in(dir, "index.json")), &index, &err), 0,
		"index.json is read");
	is_int((int64_t)json_array_size(json_object_get(index, "manifests")), 1,
		"… still has theirs");
}

static void test_publish_refused(void)
{
	cleanup_free char *dir = NULL;
	cleanup_store struct store *s = new_store(&dir);
	cleanup_json json_t *config = json_object();
	struct store_layer layer = {.media = STORE_MEDIA_STATE, .digest = EMPTY, .bytes = 10};
	struct store_layer many[STORE_LAYERS_MAX + 1] = {0};

	is_int(store_publish(s, "base", NULL, config, &layer, 1, 0, NULL, &err), -ENOENT,
		"a layer that is not there");
	has_str(err.text, EMPTY, "… is named");
	is_int(store_publish(s, "Base", NULL, config, NULL, 0, 0, NULL, &err), -EINVAL,
		"a bad name");
	is_int(store_publish(s, "base", "a b", config, NULL, 0, 0, NULL, &err), -EINVAL,
		"a bad tag");
	is_int(store_publish(s, "base", NULL, config, NULL, 0, -1, NULL, &err), -EINVAL,
		"a bad time");
	is_int(store_publish(s, "base", NULL, config, many, STORE_LAYERS_MAX + 1, 0, NULL, &err),
		-E2BIG, "a manifest of too many layers is refused");
}

/* Who may add templates, and replace none. */
static void test_tags_kept(void)
{
	cleanup_free char *dir = NULL;
	cleanup_store struct store *s = new_store(&dir);
	cleanup_manifest struct store_manifest m = {0}, n = {0};

	is_int(fixture_publish(s, "mine", NULL, 1, NULL, &err), 0, "a template");
	is_int(store_resolve(s, "mine", &m, &err), 0, "a template that was published is there");
	store_keep_tags(s, NULL);
	is_int(fixture_publish(s, "mine", NULL, 2, NULL, &err), -EEXIST,
		"a tag that is kept is not replaced");
	has_str(err.text, "\"mine\"", "… which is said by name");
	is_int(store_resolve(s, "mine", &n, &err), 0, "… it stays");
	is_str(n.digest, m.digest, "… as it was");
	is_int(fixture_publish(s, "mine", "v2", 2, NULL, &err), 0,
		"another tag is added beside one that is kept");
	store_keep_tags(s, m.digest);
	is_int(fixture_publish(s, "mine", "v2", 3, NULL, &err), -EEXIST,
		"where one version may be replaced, a tag of another stays");
	is_int(fixture_publish(s, "mine", NULL, 3, NULL, &err), 0, "… and a tag of that one moves");
	is_int(fixture_publish(s, "mine", NULL, 4, NULL, &err), -EEXIST, "… once");
}

static void test_many_writers(void)
{
	enum { WRITERS = 6 };
	cleanup_free char *dir = NULL;
	cleanup_store struct store *s = new_store(&dir);
	pid_t pids[WRITERS];
	int failed = 0;
	struct store_manifest *list;
	size_t n;

	for (int i = 0; i < WRITERS; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			cleanup_store struct store *own = NULL;
			char name[16];

			snprintf(name, sizeof(name), "t%d", i);
			for (unsigned round = 0; round < 4; round++)
				if (store_open(dir, true, &own, &err) < 0 ||
					fixture_publish(own, name, NULL, round, NULL, &err) < 0 ||
					store_gc(own, 3600, false, NULL, NULL, &err) < 0) {
					printf("# %s\n", err.text);
					fflush(stdout);
					_exit(1);
				} else {
					store_free(own);
					own = NULL;
				}
			_exit(0);
		}
	}
	for (int i = 0; i < WRITERS; i++) {
		int status;

		waitpid(pids[i], &status, 0);
		failed += status != 0;
	}
	is_int(failed, 0, "%d writers and collectors at once", WRITERS);
	is_int(store_list(s, &list, &n, &err), 0, "a store with many writers is listed");
	is_int((int64_t)n, WRITERS, "… every name is there");
	for (size_t i = 0; i < n; i++) {
		is_int(store_verify(s, &list[i], NULL, &err), 0, "… and whole");
		store_manifest_clear(&list[i]);
	}
	free(list);
}

int main(void)
{
	if (!mkdtemp(top))
		return 1;
	test_names();
	test_life();
	test_unknown();
	test_blobs();
	test_damage();
	test_forged();
	test_named_twice();
	test_types();
	test_foreign();
	test_publish_refused();
	test_tags_kept();
	test_many_writers();
	is_int(file_remove_tree(AT_FDCWD, top, &err), 0, "clean up");
	return tap_done();
}
