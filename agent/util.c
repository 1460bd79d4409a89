/* SPDX-License-Identifier: Apache-2.0 */
/* The small tools of agent.h, and the state every part shares. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "agent/agent.h"

struct agent agent = {.root = -1, .random = -1};

void agent_log(const char *fmt, ...)
{
	char line[600];
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(line, sizeof(line) - 1, fmt, args);
	va_end(args);
	if (len < 0)
		return;
	if (len > (int)sizeof(line) - 2)
		len = (int)sizeof(line) - 2;
	line[len] = '\n';
	dprintf(STDERR_FILENO, "parbake-agent: %.*s", len + 1, line);
}

int fail_set(struct fail *f, int err, const char *fmt, ...)
{
	va_list args;

	f->err = err;
	va_start(args, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, args);
	va_end(args);
	return -err;
}

void *agent_alloc(size_t len)
{
	void *p = calloc(1, len ? len : 1);

	if (!p) {
		static const char text[] = "parbake-agent: out of memory\n";

		(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
		abort();
	}
	return p;
}

void agent_random(void *buf, size_t len)
{
	if (getrandom(buf, len, GRND_NONBLOCK) != (ssize_t)len &&
		getrandom(buf, len, GRND_INSECURE) != (ssize_t)len)
		agent_log("no random numbers: %s", strerror(errno));
}
