/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for a boot. A boot takes a second on an idle host and half a minute on a busy one, so the
 * time alone says nothing. A slow boot differs from a dead one in that its monitor gets something
 * done. A guest that spins for ever does too, so there is a limit in any case.
 */
#include "vmm/boot.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/str.h"
#include "vmm/machine.h"

#define SLICE_MS 500 /* between two looks */
#define STILL_CPU_MS 300 /* an idle guest's timers use less in LIMIT_BOOT_STILL_MS */
#define END_WAIT_MS 1000
#define NOTE_AFTER_MS 10000
#define LAST_WORDS 1200

/* Processor time the monitor has used, in ms; 0 where that cannot be told. */
static int64_t cpu_ms(const struct machine *m)
{
	cleanup_free char *path = str_printf("/proc/%d/stat", machine_pid(m));
	cleanup_free char *text = NULL;
	unsigned long user, system;
	const char *after;
	size_t len;

	if (file_read_all(AT_FDCWD, path, 4096, &text, &len, NULL) < 0)
		return 0;
	/* the name may hold anything but ends with the last bracket; times are fields 14 and 15 */
	after = strrchr(text, ')');
	if (!after ||
		sscanf(after, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
			&system) != 2)
		return 0;
	return (int64_t)((user + system) * 1000 / (unsigned long)sysconf(_SC_CLK_TCK));
}

static void quote_console(struct machine *m, struct err *err)
{
	cleanup_free char *text = machine_console(m);

	if (text && *text)
		err_append(err, "\nthe console said last:\n%s", console_tail(text, LAST_WORDS));
	else
		err_append(err, "; the console said nothing");
}

struct still {
	int64_t since_ns, cpu_ms; /* when progress was last seen, and the processor time then */
	uint64_t printed;
};

/* Has there been none for too long? */
static bool stands_still(struct machine *m, struct still *s)
{
	uint64_t printed = console_total(m->console);
	int64_t cpu = cpu_ms(m);
	int64_t now = clock_now_ns();

	if (printed == s->printed && cpu - s->cpu_ms < STILL_CPU_MS)
		return now - s->since_ns > LIMIT_BOOT_STILL_MS * 1000000ll;
	*s = (struct still){.since_ns = now, .cpu_ms = cpu, .printed = printed};
	return false;
}

/* The newest line of the console, for whoever wonders what takes so long. */
static void note(struct machine *m, struct progress *p, int64_t begun_ns)
{
	cleanup_free char *text = machine_console(m);
	size_t len = text ? strlen(text) : 0;
	char *line;

	while (len && text[len - 1] == '\n')
		text[--len] = '\0';
	line = len ? strrchr(text, '\n') : NULL;
	progress_note(p, "still booting after %d s: %.200s",
		(int)((clock_now_ns() - begun_ns) / 1000000000),
		line          ? line + 1
			: len ? text
			      : "silent");
}

static void monitor_said(void *user, short revents)
{
	struct machine *m = user;

	machine_get_state(m);
	if (revents & (POLLHUP | POLLERR)) /* its last word; the pidfd tells the rest */
		guest_watch_set(m->watch, 0);
}

void machine_watch(struct machine *m, struct guest *g)
{
	m->watch = guest_watch_add(g, machine_event_fd(m), POLLIN, monitor_said, m);
}

int machine_boot_wait(struct machine *m, struct guest *g, struct progress *p,
	struct proto_hello *ret, struct err *err)
{
	int64_t begun = clock_now_ns(), noted = begun;
	struct still still = {.since_ns = begun};

	for (;;) {
		struct err why;
		int r = guest_sync(g, clock_deadline(SLICE_MS), machine_pidfd(m), ret, &why);

		if (r == 0)
			return 0;
		/* where the channel has broken, the monitor's end is only moments away */
		if (r != -ETIMEDOUT)
			poll(&(struct pollfd){.fd = machine_pidfd(m), .events = POLLIN}, 1,
				END_WAIT_MS);
		if (machine_get_state(m) == MACHINE_ENDED) {
			machine_end_reason(m, err);
			err_prefix(err, "boot");
			return -ECONNABORTED;
		}
		if (r != -ETIMEDOUT) {
			err_set(err, -r, "boot: %s", why.text);
			quote_console(m, err);
			return r;
		}
		if (stands_still(m, &still))
			err_set(err, ETIMEDOUT,
				"boot: the guest does nothing, and its agent never answered");
		else if (clock_now_ns() - begun > LIMIT_BOOT_MS * 1000000ll)
			err_set(err, ETIMEDOUT, "boot: no answer from the agent within %d s",
				LIMIT_BOOT_MS / 1000);
		else
			r = 0;
		if (r < 0) {
			quote_console(m, err);
			return r;
		}
		if (clock_now_ns() - noted > NOTE_AFTER_MS * 1000000ll) {
			note(m, p, begun);
			noted = clock_now_ns();
		}
	}
}
