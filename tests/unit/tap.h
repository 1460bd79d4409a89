/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_TAP_H
#define PARBAKE_TESTS_TAP_H

/*
 * TAP with a computed plan: ok(), is_int(), is_str() count and print; tap_done() prints the plan
 * and is the exit status: 0 only where something was tested and nothing failed.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int tap_count, tap_failed;

__attribute__((format(printf, 4, 5), unused)) static int tap_result(
	int good, const char *file, int line, const char *fmt, ...)
{
	va_list args;

	printf("%sok %d - ", good ? "" : "not ", ++tap_count);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
	if (!good) {
		tap_failed++;
		printf("# %s:%d\n", file, line);
	}
	fflush(stdout);
	return good;
}

#define ok(cond, ...) tap_result(!!(cond), __FILE__, __LINE__, __VA_ARGS__)
#define is_int(got, want, ...)                                                                     \
	({                                                                                         \
		int64_t got_ = (got), want_ = (want);                                              \
		int good_ = ok(got_ == want_, __VA_ARGS__);                                        \
		if (!good_)                                                                        \
			printf("# got %" PRId64 ", want %" PRId64 "\n", got_, want_);              \
		good_;                                                                             \
	})
#define is_str(got, want, ...)                                                                     \
	({                                                                                         \
		const char *got_ = (got), *want_ = (want);                                         \
		int good_ = ok(got_ && want_ && !strcmp(got_, want_), __VA_ARGS__);                \
		if (!good_)                                                                        \
			printf("# got \"%s\"\n# want \"%s\"\n", got_ ? got_ : "(null)",            \
				want_ ? want_ : "(null)");                                         \
		good_;                                                                             \
	})
/* Does @got contain @part? */
#define has_str(got, part, ...)                                                                    \
	({                                                                                         \
		const char *got_ = (got), *part_ = (part);                                         \
		int good_ = ok(got_ && strstr(got_, part_), __VA_ARGS__);                          \
		if (!good_)                                                                        \
			printf("# \"%s\" lacks \"%s\"\n", got_ ? got_ : "(null)", part_);          \
		good_;                                                                             \
	})
/* A test that cannot run here: the reason is shown; the runner decides whether that is allowed. */
#define tap_skip(reason) printf("ok %d # SKIP %s\n", ++tap_count, (reason))

__attribute__((unused)) static int tap_done(void)
{
	printf("1..%d\n", tap_count);
	return tap_count == 0 || tap_failed ? 1 : 0;
}

#endif
