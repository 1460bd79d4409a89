/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directories that parbake uses. Each is made on first use, with mode 0700 and owned by this
 * user: what is in it (guest memory, sockets) is for nobody else to read.
 */
#include "common/paths.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/str.h"

#define N_PLACES (PATHS_RUN + 1)

static const struct place {
	const char *what;
	const char *root_dir; /* as root */
	const char *xdg; /* otherwise: this variable … */
	const char *xdg_fallback; /* … or this below HOME; NULL: there is none */
	const char *home_name; /* below PARBAKE_HOME */
} places[N_PLACES] = {
	[PATHS_STORE] = {"store", "/var/lib/parbake", "XDG_DATA_HOME", ".local/share", "store"},
	[PATHS_CACHE] = {"cache", "/var/cache/parbake", "XDG_CACHE_HOME", ".cache", "cache"},
	[PATHS_RUN] = {"run", "/run/parbake", "XDG_RUNTIME_DIR", NULL, "run"},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *decided[N_PLACES];

static int decide(const struct place *p, char **ret, struct err *err)
{
	const char *home = getenv("PARBAKE_HOME"), *dir;

	if (home && *home) {
		char real[PATH_MAX];
		int r = file_mkdir_p(home, 0700, err);

		if (r < 0)
			return r;
		if (!realpath(home, real))
			return err_sys(err, errno, "PARBAKE_HOME=%s", home);
		*ret = str_printf("%s/%s", real, p->home_name);
		return 0;
	}
	if (geteuid() == 0) {
		*ret = str_dup(p->root_dir);
		return 0;
	}
	dir = getenv(p->xdg);
	if (dir && *dir == '/') {
		*ret = str_printf("%s/parbake", dir);
		return 0;
	}
	if (!p->xdg_fallback)
		return err_set(
			err, ENOENT, "no %s directory: set %s or PARBAKE_HOME", p->what, p->xdg);
	dir = getenv("HOME");
	if (!dir || *dir != '/')
		return err_set(err, ENOENT, "no %s directory: set HOME, %s or PARBAKE_HOME",
			p->what, p->xdg);
	*ret = str_printf("%s/%s/parbake", dir, p->xdg_fallback);
	return 0;
}

static int check_private(const char *path, struct err *err)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return err_sys(err, errno, "%s", path);
	if (st.st_uid != geteuid())
		return err_set(err, EPERM,
			"%s belongs to user %u, not to this one; set PARBAKE_HOME", path,
			(unsigned)st.st_uid);
	if (st.st_mode & 077 && chmod(path, 0700) < 0)
		return err_sys(err, errno, "make %s private", path);
	return 0;
}

int paths_get(enum paths_place place, const char **ret, struct err *err)
{
	int r = 0;

	pthread_mutex_lock(&lock);
	if (!decided[place]) {
		cleanup_free char *path = NULL;

		r = decide(&places[place], &path, err);
		if (!r)
			r = file_mkdir_p(path, 0700, err);
		if (!r)
			r = check_private(path, err);
		if (!r)
			decided[place] = steal_ptr(&path);
		else
			err_prefix(err, "%s directory", places[place].what);
	}
	if (!r)
		*ret = decided[place];
	pthread_mutex_unlock(&lock);
	return r;
}

int paths_sub(enum paths_place place, const char *sub, char **ret, struct err *err)
{
	cleanup_free char *path = NULL;
	const char *dir;
	int r = paths_get(place, &dir, err);

	if (r)
		return r;
	path = str_printf("%s/%s", dir, sub);
	r = file_mkdir_p(path, 0700, err);
	if (r < 0)
		return r;
	*ret = steal_ptr(&path);
	return 0;
}

#define N_TRIES 6

int paths_lib(const char *name, char **ret, struct err *err)
{
	const char *env = getenv("PARBAKE_LIBDIR");
	char exe[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	char *tries[N_TRIES] = {NULL};
	int found = -1;

	if (len > 0)
		exe[len] = '\0';
	if (env && *env) {
		tries[0] = str_printf("%s/%s", env, name);
	} else {
		char *slash = len > 0 ? strrchr(exe, '/') : NULL;

		if (slash) {
			*slash = '\0';
			/* in the source tree: parbake beside build/, tests in build/tests/ */
			tries[1] = str_printf("%s/build/%s", exe, name);
			tries[2] = str_printf("%s/../%s", exe, name);
			tries[3] = str_printf("%s/%s", exe, name);
			/* installed: wherever the tree was put, whatever prefix it was built for */
			tries[4] = str_printf("%s/../lib/parbake/%s", exe, name);
		}
		tries[5] = str_printf("%s/%s", PARBAKE_LIBDIR, name);
	}
	for (int i = 0; i < N_TRIES && found < 0; i++) {
		if (tries[i] && access(tries[i], R_OK) == 0)
			found = i;
	}
	if (found >= 0)
		*ret = str_dup(tries[found]);
	else
		err_set(err, ENOENT,
			"%s is not beside the program (%s) nor in %s: run `make all`, or "
			"set PARBAKE_LIBDIR",
			name, len > 0 ? exe : "?", env ? env : PARBAKE_LIBDIR);
	for (int i = 0; i < N_TRIES; i++)
		free(tries[i]);
	return found >= 0 ? 0 : -ENOENT;
}
