/* SPDX-License-Identifier: Apache-2.0 */
/* A config, a working set, a delta, of any JSON; what is taken comes back the same. */
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "store/snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_config(const json_t *obj)
{
	cleanup_snapshot_config struct snapshot_config c = {0}, again = {0};
	cleanup_with(snapshot_ranges_clear) struct snapshot_ranges delta = {0};
	cleanup_json json_t *once = NULL, *twice = NULL;
	struct err err;

	if (snapshot_config_from_json(obj, &c, &err) < 0)
		return;
	(void)snapshot_delta_get(&c, &delta, &err);
	once = snapshot_config_to_json(&c);
	if (snapshot_config_from_json(once, &again, &err) < 0)
		abort();
	twice = snapshot_config_to_json(&again);
	if (!json_equal(once, twice))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_with(snapshot_ranges_clear) struct snapshot_ranges w = {0};
	cleanup_json json_t *obj = NULL;
	struct err err;

	if (json_parse("input", data, size, &obj, &err) < 0)
		return 0;
	try_config(obj);
	if (snapshot_ranges_from_json(obj, 1 * MIB, &w, &err) == 0)
		for (size_t i = 0; i < w.n; i++)
			if (w.ranges[i].offset + w.ranges[i].bytes > 1 * MIB)
				abort();
	return 0;
}
