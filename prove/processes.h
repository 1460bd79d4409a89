/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_PROVE_PROCESSES_H
#define PARBAKE_PROVE_PROCESSES_H

#include <stdbool.h>

#include "common/json.h"

/*
 * Compare two records of processes (docs/format.md: Processes), JSON from anywhere. New reference, an object:
 *
 *     {"processes": [{"command", "a", "b", "a_count", "b_count", "files_added": [PATH…], "files_removed": [PATH…]}…],
 *      "kernel": [{"use", "a", "b"}…]}
 *
 * with each command and each use of memory of which something differs: its bytes in memory (null: not there), how many
 * processes have it, the files that they map. JSON's null where one of them is no record.
 */
json_t *processes_compare(const json_t *a, const json_t *b);
/* Does such a comparison say that there are the same processes with the same files? Of sizes it says nothing. */
bool processes_same(const json_t *comparison);

#endif
