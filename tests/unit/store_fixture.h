/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_STORE_FIXTURE_H
#define PARBAKE_TESTS_STORE_FIXTURE_H

/* A small template to publish: memory and disk images, device state, kernel, config. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/file.h"
#include "common/limits.h"
#include "store/image.h"
#include "store/snapshot.h"
#include "store/store.h"

#define FIXTURE_CREATED 1700000000

/* A valid config; caller clears. */
static inline struct snapshot_config fixture_config(unsigned seed)
{
	struct snapshot_config c = {
		.memory_bytes = LIMIT_MEMORY_MIN,
		.vcpus = 1,
		.accel = "tcg",
		.monitor = "qemu",
		.monitor_version = "7.2.0",
		.machine = "microvm",
		.cpu = "max",
		.page_bytes = 4096,
		.protocol = 1,
		.disk_bytes = 1 * MIB,
		.memory_data_bytes = 8192,
		.context = true,
	};

	memset(c.boot_nonce, (int)seed, sizeof(c.boot_nonce));
	digest_buffer("kernel", 6, c.kernel_digest);
	digest_buffer("agent", 5, c.agent_digest);
	digest_buffer(&seed, sizeof(seed), c.recipe_digest);
	return c;
}

/* An image of @bytes whose data depends on @seed. */
static inline int fixture_image(struct store *s, const char *media, uint64_t bytes, unsigned seed,
	char raw_digest[static DIGEST_TEXT_SIZE], struct store_layer *ret, struct err *err)
{
	cleanup_fd int raw = memfd_create("raw", MFD_CLOEXEC);
	struct store_blob *b = NULL;
	struct image_stats stats;
	char text[8192];
	int r;

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)(i * (seed + 7) >> 3);
	if (ftruncate(raw, (off_t)bytes) < 0 ||
		file_pwrite_full(raw, text, sizeof(text), (off_t)(bytes / 2)) < 0)
		abort();
	snprintf(ret->media, sizeof(ret->media), "%s", media);
	r = store_blob_begin(s, &b, err);
	if (r < 0)
		return r;
	r = image_write(raw, bytes, NULL, store_blob_fd(b), NULL, &stats, err);
	if (r < 0) {
		store_blob_abort(b);
		return r;
	}
	memcpy(raw_digest, stats.raw_digest, DIGEST_TEXT_SIZE);
	return store_blob_finish(b, stats.digest, ret, err);
}

/* Bake version @seed of @name:@tag. */
static inline int fixture_publish(struct store *s, const char *name, const char *tag, unsigned seed,
	struct store_manifest *ret, struct err *err)
{
	cleanup_snapshot_config struct snapshot_config c = fixture_config(seed);
	struct store_layer layers[4] = {
		{.media = STORE_MEDIA_STATE}, {.media = STORE_MEDIA_KERNEL}};
	cleanup_json json_t *config = NULL;
	char state[64];
	int r;

	c.memory_bytes = 1 * MIB; /* too little for a machine, enough for a store, and quick */
	snprintf(state, sizeof(state), "device state %u", seed);
	r = store_blob_put(s, state, strlen(state), &layers[0], err);
	if (r == 0)
		r = store_blob_put(s, "kernel", 6, &layers[1], err);
	if (r == 0)
		r = fixture_image(s, STORE_MEDIA_MEMORY, c.memory_bytes, seed, c.memory_raw_digest,
			&layers[2], err);
	if (r == 0)
		r = fixture_image(s, STORE_MEDIA_DISK, c.disk_bytes, seed + 100, c.disk_raw_digest,
			&layers[3], err);
	if (r < 0)
		return r;
	config = snapshot_config_to_json(&c);
	return store_publish(s, name, tag, config, layers, 4, FIXTURE_CREATED + seed, ret, err);
}

#endif
