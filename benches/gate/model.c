/* SPDX-License-Identifier: Apache-2.0 */
/* Latencies out of a generator with a seed: the same ones each time. */
#include "benches/gate/model.h"

#include <math.h>
#include <stdlib.h>

#include "benches/plan.h"

const struct model model_idle = {
	.median_ms = 10.5,
	.sample_sd = 0.12,
	.run_sd = 0.05,
	.minute_sd = 0.03,
	.session_sd = 0.07,
	.neighbour = 0.05,
	.stall = 0.01,
	.stall_ms = 5,
	.begin_ms = 450,
	.clear_ms = 8,
};

const struct model model_busy = {
	.median_ms = 40,
	.sample_sd = 0.35,
	.run_sd = 0.10,
	.minute_sd = 0.10,
	.session_sd = 0.15,
	.neighbour = 0.2,
	.stall = 0.05,
	.stall_ms = 40,
	.begin_ms = 1500,
	.clear_ms = 20,
};

double model_normal(struct stats_random *r)
{
	double u = stats_random_unit(r), v = stats_random_unit(r);

	return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

void model_begin(const struct model *m, struct model_state *s, uint64_t seed)
{
	struct stats_random mix = {.state = seed};

	/* seeds that follow each other would give one stream, shifted by one */
	*s = (struct model_state){.random = {.state = stats_random_next(&mix)}};
	model_new_session(m, s);
}

void model_new_session(const struct model *m, struct model_state *s)
{
	s->session = m->session_sd * model_normal(&s->random);
	s->minute = m->minute_sd * model_normal(&s->random);
	s->clock_ms = 0;
}

static double latency_ms(
	const struct model *m, struct stats_random *r, const struct change *change, double level)
{
	double ms =
		m->median_ms * exp(level + m->sample_sd * model_normal(r)) * (1 + change->slower);

	if (stats_random_unit(r) < m->stall)
		ms += m->stall_ms * -log(stats_random_unit(r));
	if (stats_random_unit(r) < change->share)
		ms = ms * (change->times > 0 ? change->times : 1) + change->more_ms;
	return ms;
}

void model_run(const struct model *m, struct model_state *s, const struct change *change, size_t n,
	long round, struct compare_samples *to)
{
	struct stats_random *r = &s->random;
	int64_t *values = calloc(n, sizeof(*values));
	size_t kept = 0;
	double level;

	if (!values)
		abort();
	/* the walk goes nine tenths of its way on */
	s->minute = 0.9 * s->minute + sqrt(1 - 0.81) * m->minute_sd * model_normal(r);
	level = s->session + s->minute + m->run_sd * model_normal(r);
	if (stats_random_unit(r) < m->neighbour)
		level += log(1.1 + 0.5 * stats_random_unit(r));
	s->clock_ms += m->begin_ms;
	for (size_t i = 0; i < n; i++) {
		double ms = latency_ms(m, r, change, level);

		s->clock_ms += ms + m->clear_ms;
		if (stats_random_unit(r) >= change->fails)
			values[kept++] = (int64_t)(ms * 1e6);
	}
	compare_samples_add(to, values, kept, n - kept, round);
	free(values);
}

void model_ab(const struct model *m, struct model_state *s, const struct change *change,
	double detect, double time_ms, struct compare_samples *old, struct compare_samples *new)
{
	static const struct change none = {0};

	for (size_t round = 0; round < PLAN_ROUNDS_MOST; round++) {
		bool new_first = plan_new_first(round);

		if (s->clock_ms >= time_ms || plan_enough(old, new, 1, detect))
			break;
		model_run(m, s, new_first ? change : &none, PLAN_CREATES, (long)round,
			new_first ? new : old);
		model_run(m, s, new_first ? &none : change, PLAN_CREATES, (long)round,
			new_first ? old : new);
	}
}
