/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures beside the blobs: found by the manifest's digest, so nothing of a manifest changes when it is signed. */
#include "store/signed.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/str.h"
#include "store/store_private.h"
#include "store/limits.h"

static const char *hex_of(const char *digest)
{
	return digest + strlen("sha256:");
}

static int read_manifest(
	struct store *s, const char *digest, char **ret, size_t *ret_len, struct err *err)
{
	cleanup_fd int fd = -1;
	char got[DIGEST_TEXT_SIZE];
	int r = store_blob_open(s, digest, STORE_BYTES_ANY, &fd, err);

	if (!r)
		r = file_read_rest(fd, "the manifest", LIMIT_MANIFEST_BYTES, ret, ret_len, err);
	if (r)
		return r;
	digest_buffer(*ret, *ret_len, got);
	return strcmp(got, digest) ? err_set(err, EBADMSG, "the manifest %s is damaged", digest)
				   : 0;
}

int store_signature_put(struct store *s, const char *digest, const char *text, struct err *err)
{
	cleanup_free char *dir = str_printf("%s/" STORE_SIGNATURES, s->dir), *name = NULL;
	char id[SIGNATURE_ID_TEXT];
	int r = signature_id(text, id, err);

	if (!r)
		r = file_mkdir_p(dir, 0700, err);
	if (r)
		return r;
	name = str_printf("%s-%s.minisig", hex_of(digest), id);
	return file_publish(dir, name, text, strlen(text), 0600, err);
}

int store_sign(struct store *s, const struct store_manifest *m, const char *secret, struct err *err)
{
	cleanup_free char *manifest = NULL, *text = NULL;
	cleanup_free char *comment = str_printf("%s:%s %s", m->name, m->tag, m->digest);
	size_t len;
	int r = read_manifest(s, m->digest, &manifest, &len, err);

	if (!r)
		r = signature_make(secret, manifest, len, comment, &text, err);
	return r ? r : store_signature_put(s, m->digest, text, err);
}

/* Look at one file of the directory. */
static int try_one(int dirfd, const char *name, const char *manifest, size_t len,
	const struct signature_keys *keys, struct err *err)
{
	cleanup_free char *text = NULL;
	size_t n;
	int r = file_read_all(dirfd, name, LIMIT_SIGNATURE_BYTES, &text, &n, err);

	return r ? r : signature_verify(text, manifest, len, keys, err);
}

static int signed_by(
	struct store *s, const char *digest, const struct signature_keys *keys, struct err *err)
{
	cleanup_free char *manifest = NULL;
	cleanup_dir DIR *dir = NULL;
	struct dirent *e;
	struct err why = {0};
	size_t len;
	int worst = 0, fd, r = read_manifest(s, digest, &manifest, &len, err);

	if (r)
		return r;
	fd = openat(s->fd, STORE_SIGNATURES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (fd >= 0 && !dir)
		close(fd);
	while (dir && (e = readdir(dir))) {
		struct err this;
		int one;

		if (strncmp(e->d_name, hex_of(digest), DIGEST_HEX_SIZE - 1) ||
			e->d_name[DIGEST_HEX_SIZE - 1] != '-')
			continue;
		one = try_one(dirfd(dir), e->d_name, manifest, len, keys, &this);
		if (!one)
			return 0;
		/* a wrong one by a listed key tells more than those of others */
		if (worst != -EKEYREJECTED)
			why = this;
		if (one == -EKEYREJECTED)
			worst = one;
	}
	return err_set(err, EPERM, "%s", *why.text ? why.text : "it is not signed");
}

int store_signed_by_file(struct store *s, const char *digest, const char *path, struct err *err)
{
	cleanup_signature_keys struct signature_keys keys = {0};
	int r = signature_keys_read(path, &keys, err);

	if (!r)
		r = signed_by(s, digest, &keys, err);
	if (r == -EPERM)
		err_prefix(err, "refused: a signature by a key of %s is required", path);
	return r;
}
