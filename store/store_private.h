/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_STORE_STORE_PRIVATE_H
#define PARBAKE_STORE_STORE_PRIVATE_H

/* The store from inside: what store/store*.c share. */
#include "store/store.h"

#define STORE_MEDIA_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define STORE_MEDIA_INDEX "application/vnd.oci.image.index.v1+json"
#define STORE_REF "org.opencontainers.image.ref.name"
#define STORE_CREATED "org.opencontainers.image.created"
#define STORE_TITLE "org.opencontainers.image.title"

#define STORE_TMP_PREFIX ".tmp-" /* common/file.h's publish, in the store's directory */

#define STORE_SIGNATURES "signatures"

struct store {
	char *dir;
	int fd; /* of dir */
	int blobs; /* blobs/sha256 */
	int tmp; /* tmp: blobs being written, each flock(2)ed by its writer */
	bool keep_tags;
	unsigned keep_versions; /* of each name, by gc */
	char may_go
		[DIGEST_TEXT_SIZE]; /* with keep_tags: a tag of this version may move; "": none may */
};

struct store_ref {
	char name[LIMIT_NAME_SIZE], tag[LIMIT_NAME_SIZE];
	char digest[DIGEST_TEXT_SIZE]; /* "" where none was given */
};

/* name[:tag][@sha256:…]. -EINVAL. */
int store_ref_parse(const char *text, struct store_ref *ret, struct err *err);
/* The text in index.json: name, or name:tag. */
void store_ref_text(const char *name, const char *tag, char ret[static 2 * LIMIT_NAME_SIZE]);
/* The writers' lock; a descriptor to close. Not to be taken twice by one thread. */
int store_lock(struct store *s, struct err *err);
/* index.json, its shape checked: an object with an array "manifests" of objects. */
int store_index_read(struct store *s, json_t **ret, struct err *err);
/* The ref of a descriptor in index.json, or NULL. */
const char *store_index_ref(const json_t *descriptor);
/* The place of @ref in the array "manifests", or -ENOENT with the nearest ref there is. */
int store_index_find(struct store *s, const json_t *index, const struct store_ref *ref, size_t *ret,
	struct err *err);
/* An OCI descriptor, its media type in lower case. -EBADMSG names the field. */
int store_descriptor_parse(const json_t *obj, struct store_layer *ret, struct err *err);
/* A blob that is JSON, its digest checked. @bytes may be STORE_BYTES_ANY; at most @max. */
int store_json_blob(struct store *s, const char *digest, uint64_t bytes, size_t max, json_t **ret,
	struct err *err);
/* A manifest of ours with its config; tag is left empty. -EMEDIUMTYPE: another kind of artifact. */
int store_manifest_read(struct store *s, const char *digest, uint64_t bytes,
	struct store_manifest *ret, struct err *err);
/* At most one layer of a media type. */
int store_layers_check(const struct store_layer *layers, unsigned n, struct err *err);
/*
 * Call @fn for each checkpoint in the known directories, with its path. A value of @fn other than 0
 * ends the walk.
 */
int store_captures_each(struct store *s,
	int (*fn)(void *user, const char *manifest, const char *path, struct err *err), void *user,
	struct err *err);
/*
 * Call @fn for the @newest versions of each name, tagged or not, with their manifests' digests. A value of @fn other
 * than 0 ends it.
 */
int store_versions_each(struct store *s, unsigned newest,
	int (*fn)(void *user, const char *manifest, struct err *err), void *user, struct err *err);
/* What people call a layer ("memory"), and the file name it would have. NULL: unknown. */
const char *store_media_name(const char *media);
const char *store_media_title(const char *media);

#endif
