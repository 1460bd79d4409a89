/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log is standard error: whatever runs parbake (a terminal, CI, systemd) keeps it. Text may
 * come from a guest, so control characters never reach a terminal.
 */
#include "common/log.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
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

/* One that a terminal may act on, a tab and a line's end apart; C1 is two bytes in UTF-8. */
static bool is_control(const char *p, const char *begin)
{
	unsigned char c = (unsigned char)*p;

	if ((c < ' ' && c != '\t' && c != '\n') || c == 0x7f)
		return true;
	return c >= 0x80 && c < 0xa0 && p > begin && (unsigned char)p[-1] == 0xc2;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	char text[4096], line[4096];
	va_list args;
	size_t len;

	if (level > log_get_level())
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	len = (size_t)snprintf(line, sizeof(line), "parbake: %s%s",
		level == LOG_LEVEL_INFO ? "" : level_names[level],
		level == LOG_LEVEL_INFO ? "" : ": ");
	for (const char *p = text; *p && len < sizeof(line) - 2; p++) {
		line[len++] = is_control(p, text) ? '?' : *p;
		if (*p == '\n')
			line[len++] = '\t';
	}
	line[len++] = '\n';
	if (write(STDERR_FILENO, line, len) < 0)
		return; /* nowhere left to say it */
}

const char *log_quote(const char *text, char ret[static LOG_QUOTED])
{
	size_t n = 0;

	for (const char *p = text; *p && n < LOG_QUOTED - 5; p++) {
		/* a quoted character takes four places */
		if (*p == '\n' || *p == '\t' || is_control(p, text))
			n += (size_t)snprintf(ret + n, 5, "\\x%02x", (unsigned char)*p);
		else
			ret[n++] = *p;
	}
	ret[n] = '\0';
	return ret;
}
