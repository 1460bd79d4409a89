/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One changed byte anywhere in a store is found. Every file of a small one is gone through, byte by byte, with another
 * byte in each place: the version cannot be resolved any more, or its verification fails. index.json alone has no digest:
 * there, what is resolved after all is the very same version, since its digest stands for each of its bytes.
 */
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/unit/store_fixture.h"
#include "tests/unit/tap.h"

#define STEP 5 /* of places in an image, whose every byte one digest is of */

static char dir[] = "/tmp/parbake-test-XXXXXX";

/* Is version "base" found and good, as `parbake verify base` looks at it? @ret, where it is. */
static bool good(char ret[static DIGEST_TEXT_SIZE])
{
	cleanup_manifest struct store_manifest m = {0};
	cleanup_store struct store *s = NULL;
	struct err err = {0};

	if (store_open(dir, false, &s, &err) || store_resolve(s, "base", &m, &err) ||
		store_verify(s, &m, NULL, &err))
		return false;
	memcpy(ret, m.digest, DIGEST_TEXT_SIZE);
	return true;
}

static void write_byte(int fd, off_t at, uint8_t c)
{
	if (file_pwrite_full(fd, &c, 1, at) < 0)
		abort();
}

/*
 * How many of the file's bytes can be another one and nobody notices; *@ret_tried: how many were tried. @same: that the
 * version is the one of this digest is good enough; NULL: it is not.
 */
static unsigned unnoticed(const char *path, const char *same, unsigned *ret_tried)
{
	static const uint8_t flips[] = {0x01, 0x20, 0x80}; /* 0x20: upper and lower case */
	cleanup_fd int fd = open(path, O_RDWR | O_CLOEXEC);
	unsigned missed = 0, step;
	struct stat st;
	off_t first = -1;

	if (fd < 0 || fstat(fd, &st) < 0)
		abort();
	step = st.st_size > 2000 ? STEP : 1;
	for (off_t at = 0; at < st.st_size; at += step) {
		char digest[DIGEST_TEXT_SIZE];
		uint8_t was;

		if (file_pread_full(fd, &was, 1, at) < 0)
			abort();
		write_byte(fd, at, was ^ flips[*ret_tried % sizeof(flips)]);
		++*ret_tried;
		if (good(digest) && !(same && !strcmp(digest, same))) {
			missed++;
			if (first < 0)
				first = at;
		}
		write_byte(fd, at, was);
	}
	if (missed)
		printf("# %s: byte %lld is the first that can be another one\n", path,
			(long long)first);
	return missed;
}

int main(void)
{
	cleanup_manifest struct store_manifest m = {0};
	cleanup_store struct store *s = NULL;
	cleanup_dir DIR *blobs = NULL;
	unsigned files = 0, tried = 0;
	struct err err = {0};
	struct dirent *e;
	char path[512], digest[DIGEST_TEXT_SIZE];

	if (!mkdtemp(dir) || store_open(dir, true, &s, &err) < 0 ||
		fixture_publish(s, "base", NULL, 1, &m, &err) < 0) {
		printf("Bail out! %s\n", err.text);
		return 1;
	}
	ok(good(digest), "a store is good");
	snprintf(path, sizeof(path), "%s/blobs/sha256", dir);
	blobs = opendir(path);
	if (!blobs)
		abort();
	while ((e = readdir(blobs))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/blobs/sha256/%s", dir, e->d_name);
		is_int(unnoticed(path, NULL, &tried), 0,
			"a blob: no byte of it can be another one");
		files++;
	}
	is_int(files, (int64_t)m.n_layers + 2, "each layer, the config and the manifest");
	snprintf(path, sizeof(path), "%s/index.json", dir);
	is_int(unnoticed(path, m.digest, &tried), 0,
		"index.json: no byte of it leads to another version");
	snprintf(path, sizeof(path), "%s/oci-layout", dir);
	is_int(unnoticed(path, m.digest, &tried), 0, "oci-layout: nor does one of it");
	ok(good(digest) && !strcmp(digest, m.digest),
		"oci-layout is good again with its bytes back");
	printf("# %u changed bytes\n", tried);
	file_remove_tree(AT_FDCWD, dir, NULL);
	return tap_done();
}
