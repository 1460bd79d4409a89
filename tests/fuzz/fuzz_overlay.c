/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The overlay reader. An input is a list of changes (u32 offset modulo the file, u8 length up to
 * 16, that many bytes) to a good overlay with one L2 table and some data, so that inputs are short
 * and reach deep.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/limits.h"
#include "vmm/monitor.h"

#define CLUSTER (64 * KIB)
#define DISK (1024 * MIB)
#define FILE_BYTES (8 * CLUSTER)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What always holds of the runs, whatever the file says. */
static int check_run(void *user, uint64_t at, uint64_t len, bool zero, uint64_t from)
{
	uint64_t *last = user;

	if (!len || at < *last || len > DISK || at > DISK - len)
		abort();
	if (!zero && (from > FILE_BYTES || len > FILE_BYTES - from))
		abort();
	*last = at + len;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t l1[8] = {0x80, 0, 0, 0, 0, 4, 0, 0};
	cleanup_fd int fd = memfd_create("overlay", MFD_CLOEXEC);
	uint64_t last = 0;

	if (machine_overlay_init(fd, DISK, NULL) < 0 || ftruncate(fd, FILE_BYTES) < 0)
		abort();
	file_pwrite_full(fd, l1, sizeof(l1), 3 * CLUSTER);
	for (uint8_t i = 0; i < 3; i++) {
		const uint8_t entry[8] = {0x80, 0, 0, 0, 0, (uint8_t)(5 + i), 0, 0};

		file_pwrite_full(fd, entry, sizeof(entry), 4 * CLUSTER + 8 * i);
	}
	while (size > 5) {
		uint32_t at;
		size_t len = data[4] % 17;

		memcpy(&at, data, 4);
		data += 5;
		size -= 5;
		if (len > size)
			len = size;
		at %= FILE_BYTES - 16;
		file_pwrite_full(fd, data, len, at);
		data += len;
		size -= len;
	}
	machine_overlay_walk(fd, DISK, check_run, &last, NULL);
	return 0;
}
