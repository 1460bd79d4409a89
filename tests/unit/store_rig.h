/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_STORE_RIG_H
#define PARBAKE_TESTS_STORE_RIG_H

/* Stores for tests: each in a directory of its own below one that the test removes at its end. */
#include "common/str.h"
#include "tests/unit/store_fixture.h"
#include "tests/unit/tap.h"

static struct err err;
static char top[] = "/tmp/parbake-test-store-XXXXXX";
static unsigned serial;

/* A new store in a directory of its own. Caller frees @ret_dir. */
static struct store *new_store(char **ret_dir)
{
	struct store *s = NULL;

	*ret_dir = str_printf("%s/%u", top, serial++);
	if (!is_int(store_open(*ret_dir, true, &s, &err), 0, "make a store")) {
		printf("# %s\n", err.text);
		exit(1);
	}
	return s;
}

static char *in(const char *dir, const char *name)
{
	return str_printf("%s/%s", dir, name);
}

static char *blob_path(const char *dir, const char *digest)
{
	return str_printf("%s/blobs/sha256/%s", dir, digest + 7);
}

#endif
