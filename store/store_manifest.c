/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refs, descriptors and manifests: the JSON of the store, taken apart. Every text that goes into a
 * fixed array is measured first, every number is bounded, and what does not fit is refused with the
 * field's name.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "store/store_private.h"
#include "store/limits.h"

static const struct {
	const char *media, *name, *title;
} medias[] = {
	{STORE_MEDIA_CONFIG, "config", "config.json"},
	{STORE_MEDIA_DISK, "disk", "disk.raw.zst"},
	{STORE_MEDIA_DELTA, "disk delta", "disk-delta.raw.zst"},
	{STORE_MEDIA_MEMORY, "memory", "memory.raw.zst"},
	{STORE_MEDIA_STATE, "device state", "state.bin"},
	{STORE_MEDIA_KERNEL, "kernel", "vmlinux"},
	{STORE_MEDIA_INITRD, "initramfs", "initramfs.cpio"},
	{STORE_MEDIA_WSET, "working set", "working-set.json"},
	{STORE_MEDIA_PROCESSES, "processes", "processes.json"},
};

const char *store_media_name(const char *media)
{
	for (size_t i = 0; i < sizeof(medias) / sizeof(medias[0]); i++)
		if (!strcmp(media, medias[i].media))
			return medias[i].name;
	return NULL;
}

const char *store_media_title(const char *media)
{
	for (size_t i = 0; i < sizeof(medias) / sizeof(medias[0]); i++)
		if (!strcmp(media, medias[i].media))
			return medias[i].title;
	return NULL;
}

/*
 * As the image-spec has the components of a ref's name, so that other tools take it: letters and
 * digits, between them one of . _ - (or two -).
 */
static bool component_valid(const char *text, bool upper)
{
	size_t len = strnlen(text, LIMIT_NAME + 1);
	bool letter = false;

	if (len == 0 || len > LIMIT_NAME)
		return false;
	for (size_t i = 0; i < len; i++) {
		bool before = letter;

		letter = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= '0' && text[i] <= '9') ||
			(upper && text[i] >= 'A' && text[i] <= 'Z');
		if (letter)
			continue;
		if (before && strchr("._-", text[i]))
			continue;
		if (i < 2 || text[i] != '-' || text[i - 1] != '-' || text[i - 2] == '-')
			return false;
	}
	return letter;
}

bool store_name_valid(const char *name)
{
	return component_valid(name, false);
}

bool store_tag_valid(const char *tag)
{
	return component_valid(tag, true);
}

int store_ref_parse(const char *text, struct store_ref *ret, struct err *err)
{
	char copy[2 * LIMIT_NAME_SIZE + DIGEST_TEXT_SIZE + 2];
	size_t len = strnlen(text, sizeof(copy));
	struct store_ref ref = {.tag = "latest"};
	char *at, *colon;

	if (len >= sizeof(copy))
		return err_set(err, EINVAL, "\"%.40s…\" is too long for a template's name", text);
	memcpy(copy, text, len + 1);
	at = strchr(copy, '@');
	if (at) {
		*at = '\0';
		if (!digest_valid(at + 1))
			return err_set(err, EINVAL,
				"\"%s\": what follows the @ is not a digest "
				"(sha256: and 64 hexadecimal digits)",
				text);
		memcpy(ref.digest, at + 1, DIGEST_TEXT_SIZE);
	}
	colon = strchr(copy, ':');
	if (colon) {
		*colon = '\0';
		if (!store_tag_valid(colon + 1))
			return err_set(err, EINVAL,
				"\"%s\": \"%s\" is not a tag (letters and "
				"digits, between them . _ -)",
				text, colon + 1);
		memcpy(ref.tag, colon + 1, strlen(colon + 1) + 1);
	}
	if (!store_name_valid(copy))
		return err_set(err, EINVAL,
			"\"%s\" is not a template's name (lower-case letters and "
			"digits, between them . _ -; at most %d; a tag follows a colon)",
			copy, LIMIT_NAME);
	memcpy(ref.name, copy, strlen(copy) + 1);
	*ret = ref;
	return 0;
}

void store_ref_text(const char *name, const char *tag, char ret[static 2 * LIMIT_NAME_SIZE])
{
	bool latest = !strcmp(tag, "latest");

	snprintf(ret, 2 * LIMIT_NAME_SIZE, "%s%s%s", name, latest ? "" : ":", latest ? "" : tag);
}

static bool media_valid(const char *media)
{
	size_t len = strlen(media);

	if (len == 0 || len >= sizeof(((struct store_layer *)0)->media))
		return false;
	for (size_t i = 0; i < len; i++)
		if (media[i] <= ' ' || media[i] > '~')
			return false;
	return true;
}

int store_descriptor_parse(const json_t *obj, struct store_layer *ret, struct err *err)
{
	const char *media, *digest;
	uint64_t bytes;

	if (json_get_string(obj, "mediaType", &media, err) < 0 ||
		json_get_string(obj, "digest", &digest, err) < 0 ||
		json_get_u64(obj, "size", 0, INT64_MAX, &bytes, err) < 0) {
		err_prefix(err, "a descriptor");
		return -EBADMSG;
	}
	if (!media_valid(media))
		return err_set(err, EBADMSG, "a descriptor: \"mediaType\" is no media type");
	if (!digest_valid(digest))
		return err_set(err, EBADMSG,
			"a descriptor: \"digest\" is not sha256: and 64 "
			"hexadecimal digits");
	*ret = (struct store_layer){.bytes = bytes};
	/* a media type is the same in upper and lower case (RFC 6838, 4.2) */
	for (size_t i = 0; media[i]; i++)
		ret->media[i] =
			(char)(media[i] >= 'A' && media[i] <= 'Z' ? media[i] | 0x20 : media[i]);
	memcpy(ret->digest, digest, DIGEST_TEXT_SIZE);
	return 0;
}

int store_json_blob(struct store *s, const char *digest, uint64_t bytes, size_t max, json_t **ret,
	struct err *err)
{
	cleanup_free char *text = NULL;
	char got[DIGEST_TEXT_SIZE];
	cleanup_fd int fd = -1;
	struct stat st;
	int r = store_blob_open(s, digest, bytes, &fd, err);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "read blob %s", digest);
	if ((uint64_t)st.st_size > max)
		return err_set(err, EBADMSG, "blob %s: more than %zu bytes of JSON", digest, max);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return err_sys(err, ENOMEM, "read blob %s", digest);
	r = file_pread_full(fd, text, (size_t)st.st_size, 0);
	if (r < 0)
		return err_sys(err, -r, "read blob %s", digest);
	digest_buffer(text, (size_t)st.st_size, got);
	if (strcmp(got, digest))
		return err_set(err, EBADMSG, "blob %s is damaged: its content has %s", digest, got);
	r = json_parse(digest, text, (size_t)st.st_size, ret, err);
	return r == -EINVAL ? -EBADMSG : r;
}

int store_layers_check(const struct store_layer *layers, unsigned n, struct err *err)
{
	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < i; j++)
			if (!strcmp(layers[i].media, layers[j].media))
				return err_set(err, EBADMSG, "two layers are %s", layers[i].media);
	return 0;
}

static int read_layers(const json_t *manifest, struct store_manifest *ret, struct err *err)
{
	json_t *layers = json_object_get(manifest, "layers"), *item;
	size_t i;

	if (!json_is_array(layers))
		return err_set(err, EBADMSG, "no array \"layers\"");
	if (json_array_size(layers) > STORE_LAYERS_MAX)
		return err_set(err, EBADMSG, "more than %d layers", STORE_LAYERS_MAX);
	json_array_foreach(layers, i, item)
	{
		int r = store_descriptor_parse(item, &ret->layers[i], err);

		if (r < 0) {
			err_prefix(err, "layer %zu", i);
			return r;
		}
		ret->n_layers++;
	}
	return store_layers_check(ret->layers, ret->n_layers, err);
}

/* created and name out of the annotations. */
static int read_annotations(const json_t *manifest, struct store_manifest *ret, struct err *err)
{
	json_t *annotations = json_object_get(manifest, "annotations");
	const char *created = json_string_value(json_object_get(annotations, STORE_CREATED));
	const char *name = json_string_value(json_object_get(annotations, STORE_TITLE));

	if (created) {
		size_t len = strlen(created);

		if (len >= sizeof(ret->created) || strspn(created, "0123456789-:.TZ+") != len)
			return err_set(err, EBADMSG, "\"" STORE_CREATED "\" is no time");
		memcpy(ret->created, created, len + 1);
	}
	if (name && store_name_valid(name))
		memcpy(ret->name, name, strlen(name) + 1);
	return 0;
}

static int parse_manifest(const json_t *manifest, struct store_manifest *ret, struct err *err)
{
	const char *artifact;
	uint64_t version;
	int r;

	if (json_get_u64(manifest, "schemaVersion", 2, 2, &version, err) < 0)
		return -EBADMSG;
	artifact = json_string_value(json_object_get(manifest, "artifactType"));
	if (!artifact || strcasecmp(artifact, STORE_ARTIFACT_TYPE))
		return err_set(err, EMEDIUMTYPE,
			"not a parbake template (its \"artifactType\" is not " STORE_ARTIFACT_TYPE
			")");
	r = store_descriptor_parse(json_object_get(manifest, "config"), &ret->config_blob, err);
	if (r < 0) {
		err_prefix(err, "\"config\"");
		return r;
	}
	if (strcmp(ret->config_blob.media, STORE_MEDIA_CONFIG))
		return err_set(err, EBADMSG, "\"config\" is %s, not " STORE_MEDIA_CONFIG,
			ret->config_blob.media);
	r = read_layers(manifest, ret, err);
	return r < 0 ? r : read_annotations(manifest, ret, err);
}

int store_manifest_read(struct store *s, const char *digest, uint64_t bytes,
	struct store_manifest *ret, struct err *err)
{
	cleanup_manifest struct store_manifest m = {0};
	cleanup_json json_t *manifest = NULL;
	int r = store_json_blob(s, digest, bytes, LIMIT_MANIFEST_BYTES, &manifest, err);

	if (r < 0)
		return r;
	memcpy(m.digest, digest, DIGEST_TEXT_SIZE);
	r = parse_manifest(manifest, &m, err);
	if (r < 0) {
		err_prefix(err, "manifest %s", digest);
		return r;
	}
	r = store_json_blob(
		s, m.config_blob.digest, m.config_blob.bytes, LIMIT_JSON_BYTES, &m.config, err);
	if (r < 0) {
		err_prefix(err, "config");
		return r;
	}
	if (!json_is_object(m.config))
		return err_set(err, EBADMSG, "config %s is not an object", m.config_blob.digest);
	*ret = m;
	m = (struct store_manifest){0};
	return 0;
}

void store_manifest_clear(struct store_manifest *m)
{
	json_decref(m->config);
	*m = (struct store_manifest){0};
}

const struct store_layer *store_layer(const struct store_manifest *m, const char *media)
{
	for (unsigned i = 0; i < m->n_layers; i++)
		if (!strcmp(m->layers[i].media, media))
			return &m->layers[i];
	return NULL;
}
