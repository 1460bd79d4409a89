/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_BENCH_SIDE_H
#define PARBAKE_CLI_BENCH_SIDE_H

#include <stdbool.h>

#include "common/err.h"
#include "common/json.h"

/*
 * One side of a comparison: a program, a template, settings, as words of one argument in any order:
 *
 *     ./old/parbake                 a program: a word with a slash
 *     base:release                  a template: any other word
 *     PARBAKE_CONFINE=off           a variable of its environment
 *     --no-premap --result=exec     options of its `bench create`
 *
 * What is not said is what both have in common: this program, the template of --template.
 */
#define BENCH_SIDE_WORDS 32

struct bench_side {
	char *text; /* the argument, cut into words */
	const char *program, *template;
	const char *variables[BENCH_SIDE_WORDS + 1], *options[BENCH_SIDE_WORDS + 1];
};

/* Parse @word. @template (may be NULL) where it names none. Free with bench_side_clear(). */
int bench_side_parse(
	const char *word, const char *template, struct bench_side *ret, struct err *err);
void bench_side_clear(struct bench_side *side);

/* What both sides' runs have in common. */
struct bench_side_run {
	const char *store_dir; /* NULL: the default */
	const char *const *create; /* further words for `bench create`, NULL-terminated */
	int64_t deadline; /* of the run (clock.h) */
};

/*
 * One run: `bench create` in a process of its own, with a run directory of its own, so that no pager or daemon is
 * shared with the other side or another run. *@ret: its document; failed creates are in it. -EINTR where
 * a signal has asked for an end, -ETIMEDOUT at the deadline: its process is gone then; other errors say what it said last.
 */
int bench_side_measure(const struct bench_side *side, const struct bench_side_run *rq, json_t **ret,
	struct err *err);

/* From here on SIGINT, SIGTERM and SIGHUP ask for an end: what is measured so far is kept. */
void bench_stop_on_signals(void);
/* Has one come? Its number, or 0. Any thread. */
int bench_stop_asked(void);

#endif
