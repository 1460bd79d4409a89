/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_LOG_H
#define PARBAKE_COMMON_LOG_H

/*
 * Lines for a person on standard error, one write(2) each, any thread.
 * Levels: error, warn, info (what an operator wants to see), debug.
 * The environment variable PARBAKE_LOG (a level's name) sets what is shown.
 */
enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

enum log_level log_get_level(void);

/* Write one line; where the text has line ends, those behind the first begin with a tab, so that
 * no text from elsewhere can be taken for a line of the log. Other control characters than tabs
 * (C1 in UTF-8, too) are shown as `?`. */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Make @text, which comes from elsewhere, fit for a line of the log: line ends and other control
 * characters as \xNN, at most LOG_QUOTED bytes of it. */
#define LOG_QUOTED 256
const char *log_quote(const char *text, char ret[static LOG_QUOTED]);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
	do {                                                                                       \
		if (log_get_level() >= LOG_LEVEL_DEBUG)                                            \
			log_line(LOG_LEVEL_DEBUG, __VA_ARGS__);                                    \
	} while (0)

#endif
