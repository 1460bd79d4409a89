/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_AGENT_CELLS_H
#define PARBAKE_TESTS_AGENT_CELLS_H

/* Cells of an agent's contexts, for the tests of them. */
#include "tests/unit/agent_client.h"

static struct seen *code(const char *line, uint64_t timeout_ms)
{
	proto_put_str(begin(), PROTO_T_CODE, line);
	proto_put_u64(&body, PROTO_T_TIMEOUT_MS, timeout_ms);
	return call(PROTO_CODE);
}

static int context_start(void)
{
	char env[8192];
	struct seen *s;

	/* its python3 is the one of this test's PATH */
	snprintf(env, sizeof(env), "PATH=%s", getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	proto_put_str(begin(), PROTO_T_ENV, env);
	proto_put_str(&body, PROTO_T_ACTION, "start");
	s = call(PROTO_CONTEXT);
	if (field(s, PROTO_T_ERROR) == -1)
		return 1;
	printf("# %s\n", error_text(s));
	return 0;
}

#endif
