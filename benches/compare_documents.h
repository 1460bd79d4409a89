/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_COMPARE_DOCUMENTS_H
#define PARBAKE_BENCHES_COMPARE_DOCUMENTS_H

#include "benches/compare.h"
#include "benches/text.h"
#include "common/json.h"

/*
 * Two documents of measurements, compared series by series; compare.h has the tests. Documents are borrowed. Any thread.
 */

/* What may differ between two documents without making them incomparable. */
enum compare_across {
	ACROSS_HOST = 1 << 0, /* cores, processor, memory, kernel */
	ACROSS_ACCEL = 1 << 1, /* accelerator, monitor and its version */
	ACROSS_TEMPLATE = 1 << 2, /* the snapshot's digest */
	ACROSS_PARBAKE = 1 << 3, /* its version */
	ACROSS_ALL = 0xf,
};

/* "host,template". -EINVAL names what is none of them. */
int compare_across_parse(const char *text, unsigned *ret, struct err *err);

/* What decides. */
enum compare_judge {
	JUDGE_ALL, /* times, failures, and costs that have risen */
	JUDGE_TIME, /* times and failures */
	JUDGE_COSTS, /* costs alone, which hold where a busy host makes times undecided */
};

struct compare_request {
	const char *only; /* series whose "ID NAME" contains it; NULL: all */
	const struct compare_limit *limits;
	size_t n_limits;
	double detect; /* change of the median that has to be found: 0.05 */
	enum compare_judge judge;
	double cost_regress; /* a rise of a cost that is accepted: 0.05 */
	unsigned across;
	bool any_load; /* judge as if the host had been idle */
};

/* What a comparison ends with; the values are exit statuses. */
enum compare_outcome {
	OUTCOME_GOOD = 0, /* same, or faster */
	OUTCOME_SLOWER = 1,
	OUTCOME_INCOMPARABLE = 2,
	OUTCOME_UNDECIDED = 3,
};

/*
 * All series of the documents @old and @new, by run id and series name; runs of one id are one run each. One document
 * of `bench ab` is given twice: its runs say which side and round they are of. *@ret:
 * {"verdict":"same"|"faster"|"slower"|"undecided"|"incomparable","why":[…],"detect":0.05,
 * "rows":[{"id","name","measure","quantity","percentile","n_old","n_new","runs_old","runs_new","old_ns","new_ns","change","low",
 * "high","limit","could_see","p","verdict","method","needs"}…],"notes":[…]}; ends that are open are null; "measure" is "time" or a cost's name, and old_ns
 * and new_ns are in its unit. A cost is the median of each run's creates; what they make dearer is "slower" too. A series that
 * only @old has is slower. 0 also where the two cannot be compared; errors are of the documents' content.
 */
int compare_documents(const json_t *old, const json_t *new, const struct compare_request *rq,
	json_t **ret, struct err *err);
enum compare_outcome compare_outcome_of(const json_t *result);
/* A row's "old_ns" or "new_ns" as people read it: milliseconds, or a number. @ret. */
const char *compare_value_text(const json_t *row, const char *key, char ret[static 24]);
/* As a table for a terminal, the verdict and its reasons last. */
void compare_print(struct text *out, const json_t *result);

#endif
