/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies, metadata, tokens and records of any bytes; what is taken keeps its bounds and its shape. */
#include <stdlib.h>
#include <string.h>

#include "common/rfc3339.h"
#include "pool/api/control_private.h"
#include "pool/record_private.h"
#include "pool/sandbox_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_record(const char *text, size_t size)
{
	cleanup_json json_t *record = NULL, *once = NULL, *twice = NULL;
	struct pool_record n;

	if (json_parse("input", text, size, &record, NULL) < 0 ||
		pool_record_read(record, &n, NULL) < 0)
		return;
	once = pool_record_write(&n);
	if (!pool_id_valid(n.id) || pool_record_read(once, &n, NULL) < 0)
		abort();
	twice = pool_record_write(&n);
	if (!json_equal(once, twice))
		abort();
}

static void try_bodies(const char *text, size_t size)
{
	cleanup_control_create struct control_create c = {0};
	struct control_change change = {.auto_pause = -1, .count = 1};

	if (control_create_parse(text, size, &c, NULL) == 0 &&
		(!*c.template || c.timeout_ms > LIMIT_LEASE_MS ||
			json_object_size(c.metadata) > LIMIT_POOL_METADATA))
		abort();
	if (control_change_parse(text, size, "timeout", false, &change, NULL) == 0 &&
		(change.count < 1 || change.count > LIMIT_POOL_FORK ||
			change.timeout_ms > LIMIT_LEASE_MS))
		abort();
}

static void try_queries(const char *text)
{
	cleanup_json json_t *metadata = NULL;
	char id[LIMIT_NAME_SIZE];
	int64_t ms;

	if (control_metadata_parse(text, &metadata, NULL) == 0 &&
		json_object_size(metadata) > LIMIT_POOL_METADATA)
		abort();
	if (control_token_parse(text, &ms, id, NULL) == 0) {
		int64_t again;
		char same[LIMIT_NAME_SIZE];
		cleanup_free char *token = control_token_make(ms, id);

		if (control_token_parse(token, &again, same, NULL) < 0 || again != ms ||
			strcmp(same, id))
			abort();
	}
	if (rfc3339_parse(text, &ms) == 0) {
		char again[RFC3339_SIZE];
		int64_t same;

		rfc3339_text(ms, 9, again);
		if (rfc3339_parse(again, &same) < 0 || same != ms)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free char *text = malloc(size + 1);

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	try_record(text, size);
	try_bodies(text, size);
	try_queries(text);
	return 0;
}
