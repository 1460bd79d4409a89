/* SPDX-License-Identifier: Apache-2.0 */
/* The first useful thing that a machine does: a wrong result is a failure, however fast it came. */
#include "benches/first.h"

#include <string.h>

#include "common/clock.h"
#include "common/limits.h"

int bench_first_exec(struct guest *g, int also_fd, struct err *err)
{
	static const char *const argv[] = {"/bin/echo", "ready", NULL};
	struct guest_exec_spec spec = {.argv = argv, .timeout_ms = LIMIT_CREATE_MS, .stdin_fd = -1};
	cleanup_guest_result struct guest_result res = {0};
	int r = guest_exec(g, &spec, clock_deadline(LIMIT_CREATE_MS), also_fd, &res, err);

	if (!r && (!res.out || strcmp(res.out, "ready\n")))
		r = err_set(err, EIO, "echo gave \"%s\"", res.out ?: "");
	return r;
}

int bench_first_python(struct guest *g, int also_fd, struct err *err)
{
	struct guest_exec_spec spec = {.timeout_ms = LIMIT_CREATE_MS, .stdin_fd = -1};
	cleanup_guest_result struct guest_result res = {0};
	int r = guest_code(g, NULL, "print(6 * 7)", &spec, clock_deadline(LIMIT_CREATE_MS), also_fd,
		&res, err);

	if (!r && (!res.out || strcmp(res.out, "42\n")))
		r = err_set(err, EIO, "6 * 7 gave \"%s\" %s", res.out ?: "", res.traceback ?: "");
	return r;
}
