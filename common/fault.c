/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault points. A process has at most one fault, parsed from the environment the first time any
 * point is reached. `fault_mode` makes the point cheap where there is none. Dying is _exit(137): no
 * buffer is flushed and no handler runs, so what is on disk is what a kill -9 leaves there.
 */
#include "common/fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/nearest.h"

enum fault_mode { FAULT_UNREAD, FAULT_NONE, FAULT_TRACE, FAULT_ARMED };

static _Atomic int fault_mode;
static pthread_once_t fault_once = PTHREAD_ONCE_INIT;
static char fault_name[128];
static unsigned long fault_at = 1;
static int fault_errno; /* 0: die */
static long fault_delay_ms; /* ≠ 0: neither */
static atomic_ulong fault_hits;

static const struct {
	const char *name;
	int code;
} fault_errors[] = {
	{"ENOSPC", ENOSPC},
	{"EIO", EIO},
	{"ENOMEM", ENOMEM},
	{"EINTR", EINTR},
	{"EMFILE", EMFILE},
	{"EOPNOTSUPP", EOPNOTSUPP},
};

/* Every point there is, so that a name that is mistyped is an error and not a test of nothing (tests/rules.sh). */
static const char *const fault_names[] = {
	"file.unnamed",
	"image.expand.write",
	"image.write.out",
	"keeper.begin",
	"keeper.hand-out.answered",
	"keeper.hand-out.named",
	"pool.create.hand-out",
	"pool.create.handed-out",
	"pool.fork.captured",
	"pool.kill.gone",
	"pool.pause.captured",
	"pool.pause.gone",
	"pool.rest.noted",
	"pool.resume.running",
	"pool.snapshot.captured",
	"restore.activate.begin",
	"restore.capture.before-publish",
	"restore.capture.compress",
	"restore.capture.disk",
	"restore.capture.memory",
	"restore.capture.state",
	"restore.create.begin",
	"restore.disk.before-publish",
	"restore.pager.own",
	"restore.publish.before-manifest",
	"store.blob.after-rename",
	"store.blob.before-rename",
	"store.blob.before-sync",
	"store.blob.begin",
	"store.blob.write",
	"store.gc.before-unlink",
	"store.index.after-rename",
	"store.index.before-rename",
	"store.open.before-index",
	"store.open.before-layout",
	"store.publish.before-index",
	"zygote.fork",
};

static void bad_value(const char *text)
{
	dprintf(STDERR_FILENO,
		"PARBAKE_FAULT=%s: write "
		"NAME[:N][=ENOSPC|EIO|ENOMEM|EINTR|EMFILE|EOPNOTSUPP|20ms]\n",
		text);
	_exit(2);
}

static void check_name(const char *text)
{
	const size_t n = sizeof(fault_names) / sizeof(fault_names[0]);
	const char *near;

	for (size_t i = 0; i < n; i++) {
		if (!strcmp(fault_name, fault_names[i]))
			return;
	}
	near = nearest_name(fault_name, fault_names, n);
	dprintf(STDERR_FILENO, "PARBAKE_FAULT=%s: there is no point \"%s\"%s%s%s\n", text,
		fault_name, near ? ", do you mean \"" : "", near ?: "", near ? "\"?" : "");
	_exit(2);
}

/* "20ms": up to a minute. */
static long parse_delay(const char *text)
{
	char *end;
	long ms = strtol(text, &end, 10);

	return end != text && !strcmp(end, "ms") && ms > 0 && ms <= 60000 ? ms : 0;
}

static void parse(const char *text)
{
	size_t len = strcspn(text, ":=");
	const char *rest = text + len;

	if (len == 0 || len >= sizeof(fault_name))
		bad_value(text);
	memcpy(fault_name, text, len);
	check_name(text);
	if (*rest == ':') {
		char *end;

		fault_at = strtoul(rest + 1, &end, 10);
		if (end == rest + 1 || fault_at == 0)
			bad_value(text);
		rest = end;
	}
	if (*rest == '=') {
		for (size_t i = 0; i < sizeof(fault_errors) / sizeof(fault_errors[0]); i++)
			if (!strcmp(rest + 1, fault_errors[i].name))
				fault_errno = fault_errors[i].code;
		if (!fault_errno)
			fault_delay_ms = parse_delay(rest + 1);
		if (!fault_errno && !fault_delay_ms)
			bad_value(text);
	} else if (*rest) {
		bad_value(text);
	}
}

static void read_environment(void)
{
	const char *text = secure_getenv("PARBAKE_FAULT");
	int mode = FAULT_ARMED;

	if (!text || !*text)
		mode = FAULT_NONE;
	else if (!strcmp(text, "?"))
		mode = FAULT_TRACE;
	else
		parse(text);
	atomic_store(&fault_mode, mode);
}

int fault_point(const char *name)
{
	int mode = atomic_load_explicit(&fault_mode, memory_order_acquire);
	unsigned long hit;

	if (mode == FAULT_NONE)
		return 0;
	if (mode == FAULT_UNREAD) {
		pthread_once(&fault_once, read_environment);
		mode = atomic_load(&fault_mode);
	}
	if (mode == FAULT_TRACE)
		dprintf(STDERR_FILENO, "fault %s\n", name);
	if (mode != FAULT_ARMED || strcmp(name, fault_name))
		return 0;
	hit = atomic_fetch_add(&fault_hits, 1) + 1;
	if (fault_delay_ms) {
		const struct timespec delay = {.tv_sec = fault_delay_ms / 1000,
			.tv_nsec = fault_delay_ms % 1000 * 1000000};

		if (hit >= fault_at)
			nanosleep(&delay, NULL);
		return 0;
	}
	if (hit != fault_at)
		return 0;
	if (!fault_errno)
		_exit(137);
	return -fault_errno;
}
