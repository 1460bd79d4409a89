/* SPDX-License-Identifier: Apache-2.0 */
/* parbake doctor: how this host works, found out by trying, and what would make it better. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include "common/json.h"
#include "common/paths.h"
#include "common/progress.h"
#include "common/str.h"
#include "pool/cgroup.h"
#include "restore/translations.h"
#include "store/store.h"
#include "vmm/kernel.h"

/* good: all is well; worse: it works, another way; bad: it does not. */
enum verdict { GOOD, WORSE, BAD };

static const char *const verdict_names[] = {"good", "worse", "bad"};

struct report {
	bool json;
	json_t *list;
	bool bad;
};

__attribute__((format(printf, 4, 5))) static void say(
	struct report *rep, enum verdict verdict, const char *what, const char *fmt, ...)
{
	char text[1024];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	rep->bad |= verdict == BAD;
	if (rep->json)
		json_array_append_new(rep->list,
			json_pack("{s:s, s:s, s:o}", "what", what, "verdict",
				verdict_names[verdict], "text", json_lossy(text, strlen(text))));
	else
		printf("%-6s %-14s %s\n", verdict_names[verdict], what, text);
}

/* What the newest line says, as one word for programs. */
static void say_value(struct report *rep, const char *value)
{
	size_t n = json_array_size(rep->list);

	if (n)
		json_object_set_new(json_array_get(rep->list, n - 1), "value", json_string(value));
}

static const char *monitor_why(const struct monitor_facts *facts)
{
	if (!strcmp(facts->origin, "PARBAKE_QEMU"))
		return "PARBAKE_QEMU names it";
	if (!facts->emulates)
		return "parbake's own, for hosts with KVM: nothing in it but what a machine needs";
	return facts->hands_over ? "the trimmed build of `make monitor`: starts fastest"
				 : "the distribution's, in PATH";
}

/* What machines run with from here on; for programs as "value", too. @facts NULL: there is no monitor. */
static void check_accel(struct report *rep, const struct monitor_facts *facts)
{
	enum machine_accel accel;
	struct err err = {0};
	cleanup_free char *why = NULL;

	if (monitor_default_accel(&accel, &err) < 0) {
		say(rep, BAD, "accelerator", "%s", err.text);
		return;
	}
	if (!facts)
		return;
	why = monitor_accel_reason(facts, accel);
	say(rep, accel == MACHINE_KVM ? GOOD : WORSE, "accelerator", "%s", why);
	say_value(rep, machine_accel_name(accel));
}

static void check_monitor(struct report *rep)
{
	const struct monitor_facts *first, *facts;
	struct err err = {0};
	int r;

	monitor_forget();
	if (monitor_probe(&first, &err) < 0) {
		say(rep, BAD, "monitor", "%s", err.text);
		check_accel(rep, NULL); /* it may be for want of what was asked for */
		return;
	}
	say(rep, GOOD, "monitor", "%s %s, %s (%s)", first->name, first->version, first->program,
		monitor_why(first));
	for (unsigned i = 0; (r = monitor_candidate(i, &facts, &err)) != -ERANGE; i++) {
		if (r < 0)
			say(rep, WORSE, "other monitor", "%s", err.text);
		else if (facts != first)
			say(rep, GOOD, "other monitor",
				"%s %s, %s (from %s): runs the snapshots it has made", facts->name,
				facts->version, facts->program, facts->origin);
	}
	check_accel(rep, first);
}

static void check_confinement(struct report *rep)
{
	struct err err = {0};
	char text[256];
	int r = monitor_confinement(text, &err);

	if (r < 0)
		say(rep, BAD, "confinement", "%s; PARBAKE_CONFINE=off does without", err.text);
	else
		say(rep, r == 0 ? GOOD : WORSE, "confinement", "%s", text);
}

/* As a pool started here and now would find it; its configuration may name another. */
static void check_cgroups(struct report *rep)
{
	char text[256];

	say(rep, pool_cgroups_probe(NULL, text) == 0 ? GOOD : WORSE, "cgroups", "%s", text);
}

static void check_uffd(struct report *rep)
{
	struct err err = {0};
	const char *how;

	if (pager_probe(&how, &err) == 0)
		say(rep, GOOD, "userfaultfd",
			"by %s: memory is served as it is touched, and shared", how);
	else
		say(rep, WORSE, "userfaultfd",
			"%s; memory is filled at once and mapped privately instead", err.text);
}

static void check_lib(struct report *rep, const char *name, const char *what)
{
	cleanup_free char *path = NULL;
	struct err err = {0};

	if (paths_lib(name, &path, &err) == 0)
		say(rep, GOOD, what, "%s", path);
	else
		say(rep, BAD, what, "%s", err.text);
}

/* As a bake finds it. */
static void check_kernel(struct report *rep)
{
	cleanup_free char *path = NULL;
	struct err err = {0};

	if (machine_kernel_path(&path, &err) == 0)
		say(rep, GOOD, "kernel", "%s", path);
	else
		say(rep, WORSE, "kernel", "templates run, but none can be baked: %s", err.text);
}

static void check_place(struct report *rep, enum paths_place place, const char *what)
{
	struct err err = {0};
	struct statvfs vfs;
	const char *path;
	char free_space[16];

	if (paths_get(place, &path, &err) < 0) {
		say(rep, BAD, what, "%s", err.text);
		return;
	}
	if (statvfs(path, &vfs) < 0) {
		say(rep, BAD, what, "%s: %m", path);
		return;
	}
	progress_bytes((uint64_t)vfs.f_bavail * vfs.f_frsize, free_space);
	if ((uint64_t)vfs.f_bavail * vfs.f_frsize < 64UL << 20)
		say(rep, WORSE, what, "%s: only %s free", path, free_space);
	else
		say(rep, GOOD, what, "%s, %s free", path, free_space);
}

static void check_machine(struct report *rep)
{
	struct utsname un;
	long cores = sysconf(_SC_NPROCESSORS_ONLN), page = sysconf(_SC_PAGESIZE);

	uname(&un);
	say(rep, page == IMAGE_PAGE ? GOOD : BAD, "host", "%s %s, %ld cores, pages of %ld bytes%s",
		un.machine, un.release, cores, page,
		page == IMAGE_PAGE ? "" : ": parbake needs pages of 4096");
}

/* Emulated templates without translations: baked elsewhere, or the cache was emptied. */
static void check_translations(struct report *rep)
{
	cleanup_store struct store *s = NULL;
	cleanup_free char *missing = str_dup("");
	struct store_manifest *list = NULL;
	size_t n = 0, kept = 0, without = 0;

	if (store_open(NULL, false, &s, NULL) < 0 || store_list(s, &list, &n, NULL) < 0)
		return; /* the store has its own line */
	for (size_t i = 0; i < n; i++) {
		const struct store_layer *memory = store_layer(&list[i], STORE_MEDIA_MEMORY);
		enum translations_state state = memory
			? translations_look(list[i].config, memory->digest)
			: TRANSLATIONS_UNNEEDED;

		kept += state == TRANSLATIONS_KEPT;
		if (state == TRANSLATIONS_MISSING) {
			char *more = str_printf("%s %s:%s", missing, list[i].name, list[i].tag);

			free(missing);
			missing = more;
			without++;
		}
		store_manifest_clear(&list[i]);
	}
	free(list);
	if (without)
		say(rep, WORSE, "translations",
			"emulated sandboxes of%s start slower until they are made: at the first "
			"use, or "
			"by `parbake bake`",
			missing);
	else if (kept)
		say(rep, GOOD, "translations", "all %zu emulated templates have theirs", kept);
}

static int run(void *user)
{
	struct report *rep = user;

	rep->list = rep->json ? json_array() : NULL;
	check_machine(rep);
	check_monitor(rep);
	check_confinement(rep);
	check_cgroups(rep);
	check_uffd(rep);
	check_lib(rep, "libparbake-uffd.so", "preload");
	check_lib(rep, "initramfs.cpio", "agent");
	check_kernel(rep);
	check_place(rep, PATHS_STORE, "store");
	check_place(rep, PATHS_CACHE, "cache");
	check_place(rep, PATHS_RUN, "run");
	check_translations(rep);
	if (rep->json) {
		json_print_line(rep->list);
		json_decref(rep->list);
	}
	return rep->bad ? CLI_FAILED : CLI_OK;
}

static const struct option_entry options[] = {OPTION_JSON(struct report, json), {0}};

const struct command command_doctor = {"doctor", "say how this host works, and why",
	.options = options, .args_bytes = sizeof(struct report), .run = run};
