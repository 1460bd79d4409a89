/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way in which a monitor stops a machine is an end, seen at once and told in words; and what a monitor says of a
 * disk that fails is kept. The monitor is played by this very program: it is started as one, speaks QMP, and does what
 * the guest's command line says.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "common/json.h"
#include "common/limits.h"
#include "tests/unit/tap.h"
#include "vmm/boot.h"
#include "vmm/guest/guest.h"
#include "vmm/monitor.h"

#define MEMORY (64 * MIB)
#define DISK (16 * MIB)
#define SOON clock_deadline(60000)
#define QMP_FD 6 /* vmm/qemu.h */
#define LINE 4096

/* ---- the monitor ---------------------------------------------------------------------------- */

static const char *scenario = "";

static void say(const char *text)
{
	if (send(QMP_FD, text, strlen(text), MSG_NOSIGNAL) != (ssize_t)strlen(text))
		_exit(3);
}

__attribute__((format(printf, 1, 2))) static void sayf(const char *fmt, ...)
{
	char text[LINE];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	say(text);
}

/* One command: its name and number. */
static bool hear(char name[static 64], long long *id)
{
	char line[LINE];
	size_t n = 0;
	const char *at;

	do {
		if (n == sizeof(line) - 1 || read(QMP_FD, line + n, 1) != 1)
			return false;
	} while (line[n++] != '\n');
	line[n] = '\0';
	at = strstr(line, "\"execute\":\"");
	if (!at || sscanf(at, "\"execute\":\"%63[^\"]", name) != 1)
		return false;
	at = strstr(line, "\"id\":");
	return at && sscanf(at, "\"id\":%lld", id) == 1;
}

/* As soon as it has been set up. */
static void begin(void)
{
	static const char *const reasons[] = {"guest-reset", "guest-shutdown", "guest-panic"};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		if (strcmp(scenario, reasons[i]) != 0)
			continue;
		sayf("{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":true,\"reason\":\"%s\"}}\n",
			scenario);
		_exit(0);
	}
	if (!strcmp(scenario, "full") || !strcmp(scenario, "broken"))
		sayf("{\"event\":\"BLOCK_IO_ERROR\",\"data\":{\"device\":\"\",\"operation\":"
		     "\"write\","
		     "\"action\":\"report\",\"nospace\":false,\"reason\":\"%s\"}}\n",
			strerror(strcmp(scenario, "full") ? EIO : ENOSPC));
	else if (strcmp(scenario, "slow") != 0 && strcmp(scenario, "well") != 0)
		say("{\"event\":\"STOP\"}\n");
}

static void answer(long long id)
{
	sayf("{\"return\":{},\"id\":%lld}\n", id);
}

/* It comes to a `stop` only when it has been told to go on behind it. */
static void stop_late(long long id)
{
	long long status, go_on;
	char name[64];

	if (!hear(name, &status) || !hear(name, &go_on) || strcmp(name, "cont") != 0)
		_exit(4);
	say("{\"event\":\"STOP\"}\n");
	answer(id);
	sayf("{\"return\":{\"status\":\"paused\"},\"id\":%lld}\n", status);
	say("{\"event\":\"RESUME\"}\n");
	answer(go_on);
	scenario = "well";
}

static _Noreturn void play(int argc, char **argv)
{
	bool paused = false;
	char name[64];
	long long id;

	for (int i = 1; i + 1 < argc; i++) {
		if (!strcmp(argv[i], "-append"))
			scenario = argv[i + 1];
	}
	say("{\"QMP\":{}}\n");
	while (hear(name, &id)) {
		if (!strcmp(name, "query-status")) {
			sayf("{\"return\":{\"status\":\"%s\"},\"id\":%lld}\n",
				paused ? "paused" : scenario, id);
			continue;
		}
		if (!strcmp(name, "stop") && !strcmp(scenario, "slow")) {
			stop_late(id);
			continue;
		}
		if (!strcmp(name, "stop")) {
			say("{\"event\":\"STOP\"}\n");
			paused = true;
		}
		answer(id);
		if (!strcmp(name, "migrate-set-capabilities"))
			begin();
	}
	_exit(0);
}

/* ---- the tests ------------------------------------------------------------------------------ */

static struct monitor_facts facts = {.name = "qemu", .hands_over = true};

static int make_file(const char *name, off_t bytes)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, bytes) < 0)
		abort();
	return fd;
}

static struct machine *start(const char *what, struct err *err)
{
	cleanup_fd int memory = make_file("memory", MEMORY), disk = make_file("disk", DISK);
	cleanup_fd int overlay = make_file("overlay", 0), disk_ro = -1;
	cleanup_free char *path = str_printf("/proc/self/fd/%d", disk);
	struct machine_spec spec = {
		.shape = {.memory_bytes = MEMORY, .vcpus = 1, .accel = MACHINE_TCG},
		.monitor = &facts,
		.memory_fd = memory,
		.pager_fd = -1,
		.overlay_fd = overlay,
		.kernel = facts.program, /* any file will do */
		.initrd = facts.program,
		.cmdline = what,
	};
	struct machine *m = NULL;

	disk_ro = open(path, O_RDONLY | O_CLOEXEC);
	spec.disk_fd = disk_ro;
	if (machine_start(&spec, &m, err) < 0)
		printf("# %s\n", err->text);
	return m;
}

/* A guest that would be waited for for ever. */
static int wait_for_guest(struct machine *m, struct err *err)
{
	cleanup_guest struct guest *g = NULL;
	const bool never = false;
	int r = guest_new(machine_take_channel(m), &g, err);

	if (r < 0)
		return r;
	machine_watch(m, g);
	return guest_wait(g, &never, SOON, machine_pidfd(m), err);
}

static void test_ends(void)
{
	static const struct {
		const char *scenario, *says;
	} cases[] = {
		{"internal-error", "stopped with an internal error of KVM"},
		{"guest-panicked", "the guest's kernel panicked"},
		{"io-error", "an error of its disk"},
		{"watchdog", "watchdog"},
		{"suspended", "went to sleep"},
		{"shutdown", "switched off"},
		{"a-state-of-tomorrow", "stopped the machine by itself (a-state-of-tomorrow)"},
		{"guest-reset", "the guest reset"},
		{"guest-shutdown", "the guest switched off"},
		{"guest-panic", "the guest's kernel panicked"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct err err = {""};
		cleanup_machine struct machine *m = start(cases[i].scenario, &err);
		int r;

		if (!ok(m != NULL, "%s: a machine", cases[i].scenario))
			continue;
		r = wait_for_guest(m, &err);
		ok(r == -ECONNABORTED || r == -ECONNRESET,
			"%s: who waits for the guest waits no longer", cases[i].scenario);
		is_int(machine_resume(m, SOON, &err), -ECONNABORTED,
			"%s: a call says that it is over", cases[i].scenario);
		has_str(err.text, cases[i].says, "%s: and why", cases[i].scenario);
		is_int(machine_get_state(m), MACHINE_ENDED, "%s: it is", cases[i].scenario);
	}
}

static void test_disk(void)
{
	static const struct {
		const char *scenario, *says;
	} cases[] = {
		{"full", "the host has no space left"},
		{"broken", "the host fails to write the sandbox's disk: Input/output error"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct err err = {""};
		cleanup_machine struct machine *m = start(cases[i].scenario, &err);
		int64_t deadline = SOON;

		if (!ok(m != NULL, "%s: a machine", cases[i].scenario))
			continue;
		ok(machine_disk_error(m) == NULL, "%s: its disk is well before", cases[i].scenario);
		while (machine_get_state(m) != MACHINE_ENDED && !machine_disk_error(m) &&
			clock_left_ms(deadline)) {
			struct pollfd p = {.fd = machine_event_fd(m), .events = POLLIN};

			poll(&p, 1, clock_left_ms(deadline));
		}
		has_str(machine_disk_error(m), cases[i].says, "%s: its disk's error is kept",
			cases[i].scenario);
		is_int(machine_get_state(m), MACHINE_RUNNING, "%s: it goes on", cases[i].scenario);
	}
}

static void test_slow_stop(void)
{
	struct err err = {""};
	cleanup_machine struct machine *m = start("slow", &err);

	if (!ok(m != NULL, "slow: a machine"))
		return;
	is_int(machine_ready(m, SOON, &err), 0, "a slow machine's monitor answers");
	is_int(machine_pause(m, clock_deadline(50), &err), -ETIMEDOUT,
		"a pause that the monitor does not come to is given up");
	is_int(machine_get_state(m), MACHINE_RUNNING, "the machine runs");
	/* the monitor has waited for being told to go on, and ends where it is told anything else */
	is_int(machine_pause(m, SOON, &err), 0,
		"a monitor told to go on is paused by the next pause");
	is_int(machine_get_state(m), MACHINE_PAUSED, "a machine that was paused stays paused");
	is_int(machine_resume(m, SOON, &err), 0, "until it is resumed");
}

int main(int argc, char **argv)
{
	ssize_t n;

	if (argc > 1 && !strcmp(argv[1], "-nodefaults"))
		play(argc, argv);
	n = readlink("/proc/self/exe", facts.program, sizeof(facts.program) - 1);
	if (n <= 0)
		return 1;
	test_ends();
	test_disk();
	test_slow_stop();
	return tap_done();
}
