/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_TURNS_H
#define PARBAKE_BENCHES_TURNS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * In which order a measurement makes what it compares. A turn is one create of each mode (with several clients: one
 * round of them); what is rarer, boots and first creates, is spread evenly among the turns. So a bad minute meets all
 * of them, and none has a place of its own.
 */
struct turns {
	uint64_t n; /* turns; with a duration: at most */
	int64_t begun, duration; /* CLOCK_MONOTONIC, ns; 0: it is n that counts */
};

/* Is there one more after @done turns? */
bool turns_more(const struct turns *t, uint64_t done, int64_t now);
/* How many of @want rare ones should be done after @done turns: none before the first, all after the last. */
uint64_t turns_due(const struct turns *t, uint64_t want, uint64_t done, int64_t now);
/*
 * The mode of @n_modes that comes at @place in turn @turn: there and back, so that none always follows the same one.
 */
unsigned turns_mode(uint64_t turn, unsigned place, unsigned n_modes);

#endif
