/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_BENCH_SAMPLER_H
#define PARBAKE_CLI_BENCH_SAMPLER_H

#include "benches/series.h"
#include "common/progress.h"
#include "restore/sandbox.h"
#include "store/store.h"

/* Creates, one or many at once, measured. */
enum bench_mode { MODE_COLD, MODE_STANDBY, MODE_SPARE, N_MODES };
enum bench_result { RESULT_NONE, RESULT_EXEC, RESULT_PYTHON, N_RESULTS };

extern const char *const bench_mode_names[N_MODES];
extern const char *const bench_result_names[N_RESULTS];
/* What a create is measured to: "the agent's answer", … */
extern const char *const bench_result_titles[N_RESULTS];

struct bench_sampler {
	struct store *store;
	struct store_manifest *manifest;
	struct template_options options;
	enum bench_result result;
	bool alone; /* one create after the other */
	bool drop_all; /* with cold_cache: all of the host's page cache, not these files alone */
	bool cold_cache; /* drop the files' page cache before each create */
	struct template *template; /* open, but for the moments a create opens it itself */
	double resident; /* after dropping: the greatest part of the files still in the page cache */
};

/* (Re)open the template. */
int bench_sampler_open(struct bench_sampler *b, struct err *err);
void bench_sampler_close(struct bench_sampler *b);
/* Does a create open the template as part of itself? (A fresh pager, or cold files.) */
bool bench_sampler_reopens(const struct bench_sampler *b);

/*
 * What happens before the clock starts: a standby or spare is made. *@ret stays NULL for a cold
 * one.
 */
int bench_prepare(
	struct bench_sampler *b, enum bench_mode mode, struct sandbox **ret, struct err *err);
/*
 * Begin to count what a create costs, in the thread that makes it: bench_count_open() before bench_prepare(), so that
 * a monitor that is started there is counted, bench_count_begin() when all is ready for the create.
 */
void bench_count_open(struct bench_counted *c);
void bench_count_begin(struct bench_sampler *b, const struct sandbox *sb, struct bench_counted *c);
void bench_count_close(struct bench_counted *c);
#define cleanup_counted __attribute__((__cleanup__(bench_count_close)))
/*
 * Create (from *@sb or into it) and wait for the result. @m's begin and started are the caller's
 * where set, else now; the rest of it is filled. What @counted counted becomes the sample's costs. Any thread, where the template is not reopened.
 */
int bench_create_one(struct bench_sampler *b, enum bench_mode mode, struct sandbox **sb,
	struct bench_moments *m, struct bench_counted *counted, struct bench_sample *ret,
	struct err *err);

struct bench_load {
	struct bench_sampler *sampler;
	enum bench_mode mode;
	uint64_t n;
	int64_t begun; /* CLOCK_MONOTONIC: samples' times count from then; an open loop's from its own begin */
	unsigned clients; /* creates at once */
	double rate; /* begun a second, whatever became of the others (open loop); 0: closed */
	struct progress *progress; /* may be NULL */
	/*
	 * After each create of the client @lane (from 0): its sandbox still runs, its sample is kept afterwards. One
	 * call at a time. May be NULL.
	 */
	void (*sampled)(
		void *user, unsigned lane, struct bench_sample *one, const struct bench_moments *m);
	void *user;
};

/*
 * Run it: samples and failures are added to @s. What bench_stop_asked() interrupts is neither. With
 * one client and a closed loop one create follows the
 * other. With more, they begin together, round after round, and those of a round stay until its
 * last is made. In an open loop create i is to begin at i / rate; what carries it out late counts
 * from then.
 */
int bench_load_run(const struct bench_load *load, struct bench_series *s, struct err *err);

#endif
