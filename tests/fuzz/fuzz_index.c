/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's JSON, any bytes: as index.json (first byte even) or as a manifest that an index
 * names (odd). Whatever is in it, resolving, listing, collecting and tagging beside it end with
 * an answer.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/str.h"
#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[] = "/dev/shm/parbake-fuzz-index-XXXXXX";
static struct store *store;

static void put(const char *name, const void *data, size_t len)
{
	cleanup_free char *path = str_printf("%s/%s", dir, name);
	cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || file_write_full(fd, data, len) < 0)
		abort();
}

static void finish(void)
{
	store_free(store);
	file_remove_tree(AT_FDCWD, dir, NULL);
}

static void start(void)
{
	struct err err;

	setenv("PARBAKE_LOG", "error", true);
	if (!mkdtemp(dir) || store_open(dir, true, &store, &err) < 0)
		abort();
	atexit(finish);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct store_manifest m = {0}, *list;
	struct store_layer layer = {0};
	struct err err;
	size_t n;

	if (!store)
		start();
	if (size == 0)
		return 0;
	if (data[0] % 2) {
		cleanup_free char *index = NULL;

		if (store_blob_put(store, data + 1, size - 1, &layer, &err) < 0)
			abort();
		index = str_printf(
			"{\"manifests\":[{\"mediaType\":"
			"\"application/"
			"vnd.oci.image.manifest.v1+json\",\"digest\":\"%s\",\"size\":%zu,"
			"\"annotations\":{\"org.opencontainers.image.ref.name\":\"base\"}}]}",
			layer.digest, size - 1);
		put("index.json", index, strlen(index));
	} else {
		put("index.json", data + 1, size - 1);
	}
	if (store_resolve(store, "base", &m, &err) == 0) {
		(void)store_verify(store, &m, NULL, &err);
		store_manifest_clear(&m);
	}
	if (store_list(store, &list, &n, &err) == 0) {
		while (n)
			store_manifest_clear(&list[--n]);
		free(list);
	}
	(void)store_gc(store, 0, false, NULL, NULL, &err);
	(void)store_remove(store, "base", &err);
	put("index.json", "{\"manifests\":[]}", 16);
	if (store_gc(store, 0, false, NULL, NULL, &err) < 0)
		abort();
	return 0;
}
