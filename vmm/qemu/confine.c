/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a QEMU process gives up before it starts (common/confine.h does it), and copies of what it
 * reads under names that its user may not reach: a build tree in a home directory, blobs of the
 * store. They are memfds, sealed, which anybody may open who has the descriptor.
 *
 * The firmware of a QEMU that brings its own, beside its program (`make monitor`), is one of these.
 *
 * What it may open by name is what a program needs to come up: libraries, its modules and firmware,
 * which all lie with the system's programs or with its own, and a handful of small things.
 */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/limits.h"
#include "common/paths.h"
#include "common/proc.h"
#include "common/str.h"
#include "vmm/console.h"
#include "vmm/qemu/qemu_private.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010u /* Linux 6.3 */
#endif

#define PATHS_MAX 64
#define PROGRAMS_MAX 8
#define FIRMWARE "qboot.rom" /* of the machine type microvm */
#define VERSION_MS 30000

/* descriptors, most of them its event loops' and KVM's */
#define FILES 256
/* 64 in the block layer's pool, a few a processor, and room */
#define THREADS 256
/* private memory beside the guest's: translated code, stacks, heap */
#define OWN_MEMORY (1536 * MIB)
#define LOCKED_MEMORY (64 * KIB)
/* of an overlay: its tables are 1/4096 of its data and less */
#define OVERLAY_SLACK (64 * MIB)

int qemu_copy_file(const char *path, struct err *err)
{
	cleanup_fd int from = open(path, O_RDONLY | O_CLOEXEC);
	cleanup_fd int to = -1;
	off_t left;
	struct stat st;

	if (from < 0 || fstat(from, &st) < 0)
		return err_sys(err, errno, "open %s", path);
	/* a host may forbid one or the other; ld.so does not care which it gets */
	to = memfd_create("parbake-copy", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	if (to < 0)
		to = memfd_create("parbake-copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (to < 0)
		return err_sys(err, errno, "copy %s", path);
	for (left = st.st_size; left > 0;) {
		ssize_t n = sendfile(to, from, NULL, (size_t)left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_sys(err, n < 0 ? errno : ENODATA, "copy %s", path);
		left -= n;
	}
	if (fcntl(to, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return err_sys(err, errno, "copy %s", path);
	return steal_fd(&to);
}

/* ---- what stays the same for all machines of this process ------------------------------------ */

static struct {
	pthread_mutex_t lock;
	int preload; /* -1: not yet */
	char library[PATH_MAX]; /* that it is a copy of */
	struct program {
		char path[PATH_MAX];
		int files; /* -1: the host has no Landlock */
		int firmware; /* -1: it comes with the system */
	} programs[PROGRAMS_MAX];
	size_t n_programs;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER, .preload = -1};

int qemu_preload(const struct monitor_facts *facts, int *ret, struct err *err)
{
	cleanup_free char *path = NULL;
	int r;

	*ret = -1;
	if (facts->hands_over)
		return 0;
	r = paths_lib("libparbake-uffd.so", &path, err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&kept.lock);
	if (strcmp(kept.library, path) != 0) {
		r = qemu_copy_file(path, err);
		if (r >= 0) {
			close_fd(&kept.preload);
			kept.preload = r;
			snprintf(kept.library, sizeof(kept.library), "%s", path);
		}
	}
	if (r >= 0)
		*ret = kept.preload;
	pthread_mutex_unlock(&kept.lock);
	return r < 0 ? r : 0;
}

struct paths {
	struct confine_path list[PATHS_MAX];
	size_t n;
};

static void add_path(struct paths *p, const char *path)
{
	if (p->n < PATHS_MAX && path[0] == '/' && path[1])
		p->list[p->n++].path = path;
}

/* The directories that a variable lists; its copy @text is cut up. */
static void add_paths(struct paths *p, char *text)
{
	char *save = NULL;

	for (char *dir = text ? strtok_r(text, ":;", &save) : NULL; dir;
		dir = strtok_r(NULL, ":;", &save))
		add_path(p, dir);
}

/* The directory of @program, of which ../ is cut where it is a bin/ and @prefix. "": nowhere. */
static void dir_of(const char *program, bool prefix, char ret[static PATH_MAX])
{
	char *slash;

	ret[0] = '\0';
	if (!realpath(program, ret) || !(slash = strrchr(ret, '/')))
		return;
	*slash = '\0';
	slash = strrchr(ret, '/');
	if (prefix && slash && !strcmp(slash, "/bin"))
		*slash = '\0';
}

static int make_files(const char *program, struct err *err)
{
	cleanup_free char *libs = str_dup(getenv("LD_LIBRARY_PATH"));
	cleanup_free char *modules = str_dup(getenv("QEMU_MODULE_DIR"));
	char prefix[PATH_MAX];
	struct paths p = {.list[0] = {.path = "/dev/null", .write = true}, .n = 1};
	static const char *const system[] = {"/usr", "/lib", "/lib32", "/lib64", "/nix/store",
		"/gnu/store", "/etc/ld.so.cache", "/dev/urandom", "/sys/devices/system/cpu",
		"/sys/devices/system/node"};

	for (size_t i = 0; i < sizeof(system) / sizeof(system[0]); i++)
		add_path(&p, system[i]);
	dir_of(program, true, prefix);
	add_path(&p, prefix);
	add_path(&p, program);
	add_paths(&p, libs);
	add_paths(&p, modules);
	return confine_files_new(p.list, p.n, err);
}

static int make_program(struct program *p, const char *program, struct err *err)
{
	cleanup_free char *firmware = NULL;
	char dir[PATH_MAX];
	int r;

	if (snprintf(p->path, sizeof(p->path), "%s", program) >= (int)sizeof(p->path))
		return err_set(err, ENAMETOOLONG, "%s", program);
	p->files = p->firmware = -1;
	dir_of(program, false, dir);
	firmware = str_printf("%s/" FIRMWARE, dir);
	if (access(firmware, F_OK) == 0) {
		r = p->firmware = qemu_copy_file(firmware, err);
		if (r < 0)
			return r;
	}
	r = p->files = make_files(program, err);
	if (r < -1) {
		close_fd(&p->firmware);
		return r;
	}
	return 0;
}

/* What is kept of it, which does not change any more. */
static int find_program(const char *program, const struct program **ret, struct err *err)
{
	size_t i = 0;
	int r = 0;

	pthread_mutex_lock(&kept.lock);
	while (i < kept.n_programs && strcmp(kept.programs[i].path, program) != 0)
		i++;
	if (i == PROGRAMS_MAX)
		r = err_set(err, EMFILE, "%s: more than %d monitors", program, PROGRAMS_MAX);
	else if (i == kept.n_programs)
		r = make_program(&kept.programs[i], program, err);
	if (r == 0 && i == kept.n_programs)
		kept.n_programs++;
	*ret = &kept.programs[i < PROGRAMS_MAX ? i : 0];
	pthread_mutex_unlock(&kept.lock);
	return r;
}

int qemu_confine_make(const char *program, const struct machine_shape *shape, uint64_t disk_bytes,
	bool uffd_call, struct confine *ret, int *ret_firmware, struct err *err)
{
	const struct program *p;
	int r = find_program(program, &p, err);

	if (r < 0)
		return r;
	*ret = (struct confine)CONFINE_INIT;
	ret->files_fd = p->files;
	*ret_firmware = p->firmware;
	ret->may = CONFINE_MAY_EXEC | (uffd_call ? CONFINE_MAY_UFFD : 0);
	ret->killed_first = true;
	confine_limit(ret, RLIMIT_CORE, 0);
	confine_limit(ret, RLIMIT_NOFILE, FILES);
	confine_limit(ret, RLIMIT_NPROC, THREADS);
	confine_limit(ret, RLIMIT_FSIZE, disk_bytes + disk_bytes / 64 + OVERLAY_SLACK);
	confine_limit(ret, RLIMIT_DATA, shape->memory_bytes + OWN_MEMORY);
	confine_limit(ret, RLIMIT_MEMLOCK, LOCKED_MEMORY);
	confine_limit(ret, RLIMIT_MSGQUEUE, 0);
	confine_limit(ret, RLIMIT_RTPRIO, 0);
	return 0;
}

int qemu_prepare(const struct monitor_facts *facts, struct err *err)
{
	const struct program *p;
	int preload, r = qemu_preload(facts, &preload, err);

	confine_host();
	console_stop(); /* KVM may have been tried */
	return r < 0 ? r : find_program(facts->program, &p, err);
}

int qemu_confined(const struct monitor_facts *facts, struct err *err)
{
	static const struct machine_shape shape = {.memory_bytes = 256 * MIB, .vcpus = 1};
	cleanup_qemu_args struct qemu_args env = {0};
	cleanup_free char *out = NULL;
	struct confine confine;
	struct proc_spec spec = {.confine = &confine, .die_with_parent = true, .cwd = "/"};
	int preload, firmware, r = qemu_preload(facts, &preload, err);

	if (r < 0 ||
		(r = qemu_confine_make(
			 facts->program, &shape, GIB, false, &confine, &firmware, err)) < 0)
		return r;
	qemu_env_make(&env, preload >= 0, false, false, false);
	/* the configuration it was installed with is not for us, and may lie where it cannot read */
	spec.argv =
		(const char *const[]){facts->program, "-no-user-config", "-accel", "help", NULL};
	spec.env = (const char *const *)env.items;
	if (preload >= 0)
		proc_map_fd(&spec, preload, QEMU_FD_PRELOAD);
	return proc_output(&spec, VERSION_MS, 64 * KIB, &out, err);
}
