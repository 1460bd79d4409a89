/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_DIFF_PAGE_H
#define PARBAKE_CLI_DIFF_PAGE_H

#include "common/err.h"
#include "common/json.h"

/*
 * The comparison @all, as diff_versions() or diff_recipe() made it (and, as "latency", what compare_documents() made of
 * two benches), as one page of HTML with nothing outside of it, published at @path.
 */
int diff_page_write(const char *path, const json_t *all, struct err *err);

#endif
