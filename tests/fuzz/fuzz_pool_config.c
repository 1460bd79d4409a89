/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's configuration: any text is read or refused, and what is read keeps its bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "pool/config.h"
#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool held)
{
	if (!held)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config *c = NULL;
	struct err err = {0};
	char key[64] = "";

	setenv("PARBAKE_HOME", "/tmp/parbake-fuzz-home", 1);
	if (config_parse("fuzz.conf", (const char *)data, size, &c, &err)) {
		must(err.text[0] && !c);
		return 0;
	}
	must(c->timeout_ms <= c->max_timeout_ms && c->max_timeout_ms <= LIMIT_LEASE_MS);
	must(c->max_sandboxes >= 1 && c->max_sandboxes <= LIMIT_POOL_SANDBOXES);
	must(c->socket[0] == '/' && c->state[0] == '/' && c->domain[0]);
	must(!c->listen || c->n_keys);
	for (size_t i = 0; i < c->n_templates; i++)
		must(store_name_valid(c->templates[i].name) &&
			store_name_valid(c->templates[i].tag));
	for (size_t i = 0; i < c->n_keys; i++)
		must(store_name_valid(c->keys[i].name) && digest_valid(c->keys[i].digest));
	memcpy(key, data, size < sizeof(key) - 1 ? size : sizeof(key) - 1);
	must(!config_find_key(c, key));
	must(config_may_replace(c, c, &err) == 0);
	config_free(c);
	return 0;
}
