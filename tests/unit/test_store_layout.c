/* SPDX-License-Identifier: Apache-2.0 */
/* The store beside other tools: the JSON that they read, and registry tools that judge it. */
#include "store/store.h"

#include "common/file.h"
#include "common/proc.h"
#include "tests/unit/store_rig.h"

/* What the manifest's and the index's JSON must be for other tools. */
static void test_layout(void)
{
	cleanup_free char *dir = NULL, *path = NULL, *layout = NULL;
	cleanup_store struct store *s = new_store(&dir);
	cleanup_manifest struct store_manifest m = {0};
	cleanup_json json_t *index = NULL, *manifest = NULL, *version = NULL;
	json_t *item;

	is_int(fixture_publish(s, "base", "v2", 1, &m, &err), 0, "publish");
	path = in(dir, "index.json");
	layout = in(dir, "oci-layout");
	is_int(json_read_file(AT_FDCWD, layout, &version, &err), 0, "oci-layout");
	is_str(json_string_value(json_object_get(version, "imageLayoutVersion")), "1.0.0",
		"oci-layout has the version that OCI defines");
	json_read_file(AT_FDCWD, path, &index, &err);
	item = json_array_get(json_object_get(index, "manifests"), 0);
	is_str(json_string_value(json_object_get(
		       json_object_get(item, "annotations"), "org.opencontainers.image.ref.name")),
		"base:v2", "the ref's name");
	is_str(json_string_value(json_object_get(item, "digest")), m.digest,
		"the manifest's digest");
	free(path);
	path = blob_path(dir, m.digest);
	is_int(json_read_file(AT_FDCWD, path, &manifest, &err), 0, "the manifest");
	is_str(json_string_value(json_object_get(manifest, "mediaType")),
		"application/vnd.oci.image.manifest.v1+json", "the manifest has OCI's media type");
	is_str(json_string_value(json_object_get(manifest, "artifactType")), STORE_ARTIFACT_TYPE,
		"the manifest has parbake's artifact type");
	item = json_array_get(json_object_get(manifest, "layers"), 2);
	is_str(json_string_value(json_object_get(
		       json_object_get(item, "annotations"), "org.opencontainers.image.title")),
		"memory.raw.zst", "a layer's title");
}

/* Standard output of a program, or NULL. */
static char *output_of(const char *const *argv)
{
	struct proc_spec spec = {.argv = argv};
	char *out = NULL;

	if (proc_output(&spec, 60000, MIB, &out, &err) < 0) {
		printf("# %s\n", err.text);
		return NULL;
	}
	return out;
}

/* The independent judge: registry tools read what we write, and we what they write. */
static void test_skopeo(void)
{
	cleanup_free char *dir = NULL, *from = NULL, *copy_dir = str_printf("%s/copied", top);
	cleanup_free char *to = str_printf("oci:%s:elsewhere:v1", copy_dir), *out = NULL,
			  *copied = NULL;
	cleanup_store struct store *s = new_store(&dir), *copy = NULL;
	cleanup_manifest struct store_manifest m = {0}, got = {0};
	char digest[DIGEST_TEXT_SIZE] = "";

	is_int(fixture_publish(s, "base", NULL, 1, &m, &err), 0, "publish");
	from = str_printf("oci:%s:base", dir);
	{
		const char *const probe[] = {"skopeo", "--version", NULL};
		const char *const inspect[] = {"skopeo", "inspect", "--raw", from, NULL};
		const char *const copies[] = {
			"skopeo", "--insecure-policy", "copy", from, to, NULL};
		cleanup_free char *version = output_of(probe);

		if (!version) {
			tap_skip("skopeo is not installed");
			return;
		}
		out = output_of(inspect);
		if (out)
			digest_buffer(out, strlen(out), digest);
		is_str(digest, m.digest, "skopeo inspect reads the manifest");
		copied = output_of(copies);
		ok(copied != NULL, "skopeo copies it to another layout");
	}
	if (!is_int(store_open(copy_dir, false, &copy, &err), 0, "that is a store"))
		return;
	is_int(store_resolve(copy, "elsewhere:v1", &got, &err), 0, "the template is found in it");
	is_str(got.digest, m.digest, "… with its digest");
	is_int(store_verify(copy, &got, NULL, &err), 0, "… and whole");
	is_int(fixture_publish(copy, "base", NULL, 2, NULL, &err), 0,
		"a copied store can be published to");
	is_int(store_gc(copy, 0, false, NULL, NULL, &err), 0, "a copied store can be collected");
	is_int(store_verify(copy, &got, NULL, &err), 0, "… which keeps the copy");
}

/* Four versions of one name, two of another, and what a trial has left of the last but one. */
static void test_versions(void)
{
	cleanup_free char *dir = NULL;
	cleanup_store struct store *s = new_store(&dir);
	struct store_manifest m[6] = {0}, trial = {0};
	static const bool kept[6] = {false, false, true, true, true, true};
	int64_t created = FIXTURE_CREATED + 3;

	for (unsigned i = 0; i < 6; i++)
		is_int(fixture_publish(s, i < 4 ? "one" : "two", NULL, i + 1, &m[i], &err), 0,
			"publish");
	is_int(store_put_manifest(s, "one", "latest", m[2].config, m[2].layers, m[2].n_layers - 1,
		       created, &trial, &err),
		0, "a manifest without a tag is published for a trial");
	store_keep_versions(s, 2);
	is_int(store_gc(s, 0, false, NULL, NULL, &err), 0, "gc that keeps two versions of each");
	for (unsigned i = 0; i < 6; i++) {
		is_int(store_manifest_whole(s, m[i].digest, NULL) == 0, kept[i], "version %u is %s",
			i + 1, kept[i] ? "kept" : "gone");
	}
	is_int(store_manifest_whole(s, trial.digest, NULL), -ENOENT, "a trial is no version");
	store_keep_versions(s, 0);
	is_int(store_gc(s, 0, false, NULL, NULL, &err), 0, "gc that keeps none");
	is_int(store_manifest_whole(s, m[2].digest, NULL), -ENOENT, "what has no tag is gone");
	is_int(store_manifest_whole(s, m[3].digest, NULL), 0, "what has one is there");
	for (unsigned i = 0; i < 6; i++)
		store_manifest_clear(&m[i]);
	store_manifest_clear(&trial);
}

int main(void)
{
	if (!mkdtemp(top))
		return 1;
	test_layout();
	test_skopeo();
	test_versions();
	is_int(file_remove_tree(AT_FDCWD, top, &err), 0, "clean up");
	return tap_done();
}
