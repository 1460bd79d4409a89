/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_PIP_LEND_H
#define PARBAKE_BAKE_PIP_LEND_H

#include "bake/recipe/recipe.h"
#include "common/err.h"
#include "common/str.h"

/*
 * The part of the host's pip configuration that the guest is lent while packages are installed: the
 * index, and the CA bundle that its certificate is checked with. It travels as environment
 * variables and one file on a tmpfs.
 */
struct pip_lend {
	struct strings env; /* "PIP_INDEX_URL=…", … */
	struct strings hosts; /* host[:port] of the configured indexes; none: pip's own default */
	char *index; /* the configured index, NULL: pip's own default */
	char *ca_path; /* on the host; NULL: none found */
};

/* Ask pip (where the host has one) and the environment. Caller calls pip_lend_clear(). */
void pip_lend_get(struct pip_lend *ret);
/* The same from `pip config list`' output. For tests. */
void pip_lend_parse(const char *config, struct pip_lend *ret);
void pip_lend_clear(struct pip_lend *l);

/* "host[:port]" of a URL, lower case; NULL where it has none. Caller frees. */
char *pip_url_host(const char *url);

#endif
