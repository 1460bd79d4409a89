/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_GATE_GATE_H
#define PARBAKE_BENCHES_GATE_GATE_H

#include <stdbool.h>

/* What the parts of the simulation share. */

/* So many of each are simulated. */
extern unsigned gate_times;
/*
 * Print one figure: @hits of @of, and what it must be: at least, or at most, @percent (< 0: nothing). One that is not
 * what it must be is counted.
 */
void gate_say(const char *what, unsigned hits, unsigned of, bool least, double percent);

/* What creates cost, judged in turn. */
void gate_simulate_costs(void);

#endif
