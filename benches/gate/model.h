/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_GATE_MODEL_H
#define PARBAKE_BENCHES_GATE_MODEL_H

#include "benches/compare.h"
#include "benches/stats.h"

/*
 * Creates that were never made: latencies with what real ones have. One sample is
 *
 *     median × session × minute × run × neighbour × sample, + a stall now and then
 *
 * where session, minute and run vary from one to the next and not within; benches/METHOD.md says where the figures
 * come from.
 */
struct model {
	double median_ms;
	double sample_sd; /* of the logarithm, within a run */
	double run_sd; /* between runs of one build */
	double minute_sd; /* of the drift from one run to the next: a walk that is drawn back */
	double session_sd; /* between two measurements of different days */
	double neighbour; /* share of runs that another process slows down, by 10 to 60 % */
	double stall; /* share of creates that are held up, */
	double stall_ms; /* by an exponential time of this mean */
	double begin_ms, clear_ms; /* what a run, and the removal of each sandbox, take besides */
};

/* What a change makes of a latency. */
struct change {
	double slower; /* 0.05: 5 % */
	double share; /* that part of creates takes … */
	double times; /* … so many times as long (0: no change) */
	double more_ms; /* … and so much longer */
	double fails; /* share of creates that fail */
};

struct model_state {
	struct stats_random random;
	double session, minute; /* logarithms */
	double clock_ms; /* what the measuring has taken */
};

extern const struct model model_idle; /* as `base` on an idle host of two cores, emulated */
extern const struct model model_busy; /* the same beside other work */

/* A draw from the standard normal distribution. */
double model_normal(struct stats_random *r);
void model_begin(const struct model *m, struct model_state *s, uint64_t seed);
/* A session of another day, on the same host. */
void model_new_session(const struct model *m, struct model_state *s);
/* One run of @n creates of a build with @change, added to @to as of @round. */
void model_run(const struct model *m, struct model_state *s, const struct change *change, size_t n,
	long round, struct compare_samples *to);
/*
 * What `bench ab` does by default (benches/plan.h): rounds until they show @detect, at most @time_ms of the model's
 * own time.
 */
void model_ab(const struct model *m, struct model_state *s, const struct change *change,
	double detect, double time_ms, struct compare_samples *old, struct compare_samples *new);

#endif
