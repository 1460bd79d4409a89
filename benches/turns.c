/* SPDX-License-Identifier: Apache-2.0 */
/* In which order a measurement makes what it compares. */
#include "benches/turns.h"

bool turns_more(const struct turns *t, uint64_t done, int64_t now)
{
	return done < t->n && (!t->duration || now - t->begun < t->duration);
}

uint64_t turns_due(const struct turns *t, uint64_t want, uint64_t done, int64_t now)
{
	double part = (double)done / (double)t->n;
	double time = t->duration ? (double)(now - t->begun) / (double)t->duration : 0;

	if (!turns_more(t, done, now))
		return want;
	if (t->duration && time > part)
		part = time;
	/* the k-th of them in the middle of its k-th part */
	return done ? (uint64_t)((double)want * part + 0.5) : 0;
}

unsigned turns_mode(uint64_t turn, unsigned place, unsigned n_modes)
{
	return turn % 2 ? n_modes - 1 - place : place;
}
