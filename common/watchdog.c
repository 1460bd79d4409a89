/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog is a POSIX timer whose signal is SIGKILL. */
#include "common/watchdog.h"

#include <signal.h>

int watchdog_start(struct watchdog *w, int64_t ms, struct err *err)
{
	struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
	const struct itimerspec t = {.it_value = {ms / 1000, ms % 1000 * 1000000}};

	w->armed = 0;
	if (timer_create(CLOCK_MONOTONIC, &ev, &w->timer) < 0)
		return err_sys(err, errno, "make a watchdog");
	w->armed = 1;
	if (timer_settime(w->timer, 0, &t, NULL) < 0) {
		int r = err_sys(err, errno, "set a watchdog");

		watchdog_stop(w);
		return r;
	}
	return 0;
}

void watchdog_stop(struct watchdog *w)
{
	if (w->armed)
		timer_delete(w->timer);
	w->armed = 0;
}
