/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.json, and the beginning of a device state: the first byte says which. What is taken is written
 * again and must be taken again, with the same text.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "restore/checkpoint_private.h"
#include "vmm/qemu/state_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void record(const uint8_t *data, size_t size)
{
	struct checkpoint_record a, b;
	cleanup_free char *once = NULL, *twice = NULL;
	struct err err;

	if (checkpoint_record_parse(data, size, &a, &err) < 0)
		return;
	once = checkpoint_record_text(&a);
	if (checkpoint_record_parse(once, strlen(once), &b, &err) < 0)
		abort();
	twice = checkpoint_record_text(&b);
	if (strcmp(once, twice) != 0)
		abort();
	checkpoint_record_clear(&a);
	checkpoint_record_clear(&b);
}

/* The digest would keep all but what is whole from the fields: put the right one in. */
static void whole(const uint8_t *data, size_t size)
{
	cleanup_json json_t *inner = NULL, *all = NULL;
	cleanup_free char *text = NULL, *document = NULL;
	char digest[DIGEST_TEXT_SIZE];

	if (json_parse("fuzz", data, size, &inner, NULL) < 0 || !json_is_object(inner))
		return;
	text = json_text(inner);
	digest_buffer(text, strlen(text), digest);
	all = json_pack("{s:O, s:s}", "capture", inner, "digest", digest);
	document = json_text(all);
	record((const uint8_t *)document, strlen(document));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t at = 0;
	struct err err;

	if (size == 0)
		return 0;
	if (data[0] == 'Q') {
		if (qemu_state_prefix(data, size, &at, &err) == 0 && at >= size)
			abort();
		if (qemu_state_devices(data, size, &at, &err) == 0 && at >= size)
			abort();
	} else {
		record(data, size);
		whole(data, size);
	}
	return 0;
}
