/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_NEAREST_H
#define PARBAKE_COMMON_NEAREST_H

#include <stddef.h>

/*
 * Spelling mistakes: the candidate that @word was most likely meant to be: the one with the fewest
 * single insertions, deletions, substitutions and swaps of neighbours, the earlier one of two
 * equals. NULL where none is near (more than a third of @word's bytes, at least 2, would change) or
 * @word is longer than 128 bytes. NULL candidates are passed over. Borrowed from @candidates. Any
 * thread.
 */
const char *nearest_name(const char *word, const char *const *candidates, size_t n);

#endif
