/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log is standard error: what runs parbake (a terminal, CI, systemd) keeps
 * it. Text may come from a guest, so control characters never reach a terminal.
 */
#include "common/log.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const level_names[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARN] = "warn",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
};

#define N_LEVELS (sizeof(level_names) / sizeof(level_names[0]))
static_assert(N_LEVELS == LOG_LEVEL_DEBUG + 1, "every level has a name");

/* -1: not decided yet, ask the environment. */
static _Atomic int current_level = -1;

void log_set_level(enum log_level level)
{
	current_level = (int)level;
}

enum log_level log_get_level(void)
{
	const char *name;
	int level = current_level;

	if (level >= 0)
		return (enum log_level)level;
	level = LOG_LEVEL_INFO;
	name = getenv("PARBAKE_LOG");
	for (size_t i = 0; name && i < N_LEVELS; i++) {
		if (!strcmp(name, level_names[i]))
			level = (int)i;
	}
	current_level = level;
	return (enum log_level)level;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	char line[4096];
	va_list args;
	size_t len, start;

	if (level > log_get_level())
		return;
	len = (size_t)snprintf(line, sizeof(line), "parbake: %s%s",
		level == LOG_LEVEL_INFO ? "" : level_names[level],
		level == LOG_LEVEL_INFO ? "" : ": ");
	start = len;
	va_start(args, fmt);
	vsnprintf(line + len, sizeof(line) - len - 1, fmt, args);
	va_end(args);
	len += strlen(line + len);
	for (size_t i = start; i < len; i++) {
		unsigned char c = (unsigned char)line[i];

		if ((c < ' ' && c != '\t' && c != '\n') || c == 0x7f)
			line[i] = '?';
	}
	line[len++] = '\n';
	if (write(STDERR_FILENO, line, len) < 0)
		return; /* nowhere left to say it */
}
