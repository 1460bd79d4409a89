/* SPDX-License-Identifier: Apache-2.0 */
/*
 * [root] source = debian: a root made by mmdebstrap, at native speed, with all packages of the
 * chain at once.
 *
 * Where the packages come from is the host's own affair: the lines for the suite are taken from
 * what its apt is configured with (`apt-get indextargets`), and so are its proxy and its rules on
 * expired indexes. None of that is an input of the result, and of it only the sources stay in the
 * image, without user and password.
 *
 * The same packages give the same archive: SOURCE_DATE_EPOCH clamps times, mmdebstrap sorts
 * names, and the hook below removes what differs from host to host or run to run. Python's byte
 * code needs care: under SOURCE_DATE_EPOCH it is made to be checked by hash, which reads every
 * source at every start; it is turned into the usual kind, checked by time and size, with the
 * time that the source has in the image.
 *
 * mmdebstrap unpacks into a directory of the host. A shell in a session of its own owns that
 * directory: when this process ends in whatever way, its end of a pipe closes, and the shell
 * kills mmdebstrap (with all its children: they are a PID namespace where we may make one) and
 * removes the directory.
 */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "bake/source/source.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/proc.h"
#include "common/str.h"

#define APT_OUTPUT_MAX (4 << 20)
#define TAIL_LINES 12
#define LINE_SIZE 1024

/* mmdebstrap that fails sends SIGHUP to its whole group: the supervisor outlives that, for its directory must go. */
static const char supervise[] =
	"dir=$1; shift\n"
	"trap : HUP INT TERM\n"
	"\"$@\" 3<&- &\n"
	"work=$!\n"
	"{ cat <&3; kill -9 $work; } >/dev/null 2>&1 &\n"
	"exec >&- 2>/dev/null\n"
	"while wait $work; rc=$?; kill -0 $work 2>/dev/null; do :; done\n"
	"rm -rf --one-file-system \"$dir\" || { sleep 1; rm -rf --one-file-system \"$dir\"; }\n"
	"exit $rc\n";

/*
 * What must not stay, what must not differ. $1 is the root. Its /tmp holds the configuration by
 * which mmdebstrap keeps its last apt-get calls inside the root: nothing is removed there,
 * mmdebstrap clears it itself.
 */
static const char tidy[] =
	"set -e; cd \"$1\"\n"
	"rm -f etc/resolv.conf etc/hostname etc/apt/apt.conf.d/99mmdebstrap\n"
	"rm -f var/cache/debconf/*-old var/lib/dpkg/*-old var/cache/ldconfig/aux-cache etc/*-\n"
	"rm -f etc/ssh/ssh_host_*\n"
	"find var/log -xdev -type f -delete\n"
	"sed 's#://[^/@]*@#://#' etc/apt/sources.list.d/0000host.list >etc/apt/sources.list\n"
	"rm etc/apt/sources.list.d/0000host.list\n"
	"chmod 644 etc/apt/sources.list\n"
	"printf '127.0.0.1\\tlocalhost\\n::1\\tlocalhost\\n' >etc/hosts\n"
	": >etc/machine-id\n"
	"chmod 644 etc/hosts; chmod 444 etc/machine-id\n";

static const char byte_code[] =
	"use strict; use File::Find; my $epoch = $ENV{SOURCE_DATE_EPOCH};\n"
	"find({ no_chdir => 1, wanted => sub {\n"
	"	return unless -f $_ && !-l $_ && "
	"m{^(.*)/__pycache__/([^/]+)\\.cpython-\\d+\\.pyc$};\n"
	"	my @st = stat \"$1/$2.py\" or return;\n"
	"	open my $f, '+<:raw', $_ or die \"$_: $!\"; my $head;\n"
	"	return unless read($f, $head, 16) == 16 && (unpack 'x4V', $head) & 1;\n"
	"	my $time = $st[9] > $epoch ? $epoch : $st[9];\n"
	"	seek $f, 4, 0; print $f pack 'VVV', 0, $time & 0xffffffff, $st[7] & 0xffffffff;\n"
	"	close $f or die \"$_: $!\";\n"
	"} }, \"$ARGV[0]/usr\");\n";

static const char *const excludes[] = {
	"/usr/share/doc/*",
	"/usr/share/man/*",
	"/usr/share/info/*",
	"/usr/share/locale/*",
	"/usr/share/lintian/*",
	"/usr/share/bug/*",
};

/* ---- the host's apt --------------------------------------------------------------------- */

static bool release_fits(const char *release, const char *suite)
{
	static const char *const tails[] = {"", "-updates", "-security", "/updates"};
	size_t n = strlen(suite);

	if (strncmp(release, suite, n))
		return false;
	for (size_t i = 0; i < sizeof(tails) / sizeof(*tails); i++)
		if (!strcmp(release + n, tails[i]))
			return true;
	return false;
}

int source_debian_list(const char *targets, const char *suite, char **ret, struct err *err)
{
	cleanup_free char *copy = str_dup(targets), *out = NULL;
	char *save = NULL;
	bool base = false;
	size_t len;
	FILE *f = open_memstream(&out, &len);

	if (!f)
		abort();
	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *origin = strsep(&line, "|"), *uri = strsep(&line, "|");
		char *release = strsep(&line, "|"), *component = strsep(&line, "|");

		if (!component || strcmp(origin, "Debian") || !release_fits(release, suite) ||
			strpbrk(uri, " \t[]") || strpbrk(component, " \t[]"))
			continue;
		base |= !strcmp(release, suite);
		fprintf(f, "deb %s %s %s\n", uri, release, component);
	}
	if (fclose(f))
		abort();
	if (!base)
		return err_set(err, ENOENT,
			"the host's apt knows no Debian %s: add it to /etc/apt/sources.list.d and "
			"run "
			"apt-get update",
			suite);
	*ret = steal_ptr(&out);
	return 0;
}

static int host_list(const char *suite, char **ret, struct err *err)
{
	static const char *const argv[] = {"apt-get", "indextargets", "--format",
		SOURCE_TARGET_FORMAT, "Created-By: Packages", NULL};
	struct proc_spec spec = {.argv = argv};
	cleanup_free char *out = NULL;
	int rc = proc_output(&spec, 60000, APT_OUTPUT_MAX, &out, err);

	if (rc == -ENOENT)
		return err_set(err, ENOENT,
			"source = debian takes its packages through the host's apt, and there is "
			"no "
			"apt-get here: bake on a Debian host, or write source = tar");
	return rc ? rc : source_debian_list(out, suite, ret, err);
}

/* Options of the host's apt that decide whether and how its sources can be reached. */
static int host_apt_options(char **ret, struct err *err)
{
	static const char *const argv[] = {"apt-config", "dump", NULL};
	static const char *const taken[] = {"Acquire::Check-Valid-Until ", "Acquire::Check-Date ",
		"Acquire::http::", "Acquire::https::", "Acquire::Retries "};
	struct proc_spec spec = {.argv = argv};
	cleanup_free char *dump = NULL, *out = NULL;
	char *save = NULL;
	size_t len;
	FILE *f;
	int rc = proc_output(&spec, 60000, APT_OUTPUT_MAX, &dump, err);

	if (rc)
		return rc;
	f = open_memstream(&out, &len);
	if (!f)
		abort();
	fputs("APT::Install-Recommends \"false\";\n", f);
	for (char *line = strtok_r(dump, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++)
			if (!strncmp(line, taken[i], strlen(taken[i])))
				fprintf(f, "%s\n", line);
	if (fclose(f))
		abort();
	*ret = steal_ptr(&out);
	return 0;
}

/* ---- mmdebstrap's run -------------------------------------------------------------------- */

struct run {
	struct progress *progress;
	int out_fd;
	char line[LINE_SIZE];
	size_t line_len;
	char tail[TAIL_LINES][LINE_SIZE];
	unsigned n_lines;
};

static void take_line(struct run *run)
{
	run->line[run->line_len] = '\0';
	if (run->line_len) {
		memcpy(run->tail[run->n_lines++ % TAIL_LINES], run->line, run->line_len + 1);
		if (!strncmp(run->line, "I: ", 3) &&
			(strstr(run->line, "ing packages") || strstr(run->line, "apt-get update") ||
				strstr(run->line, "tarball")))
			progress_note(run->progress, "mmdebstrap: %s", run->line + 3);
	}
	run->line_len = 0;
}

/* Read its standard error to the end; meanwhile the archive grows. */
static int follow(struct run *run, int err_fd)
{
	for (;;) {
		struct pollfd p = {.fd = err_fd, .events = POLLIN};
		char buf[4096];
		struct stat st;
		ssize_t n;

		if (poll(&p, 1, 500) == 0) {
			if (!fstat(run->out_fd, &st) && st.st_size)
				progress_update(run->progress, (uint64_t)st.st_size);
			continue;
		}
		n = read(err_fd, buf, sizeof(buf));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		for (ssize_t i = 0; i < n; i++) {
			if (buf[i] == '\n' || buf[i] == '\r' || run->line_len == LINE_SIZE - 1)
				take_line(run);
			if (buf[i] != '\n' && buf[i] != '\r')
				run->line[run->line_len++] = buf[i];
		}
	}
}

static int explain(struct run *run, int status, struct err *err)
{
	unsigned first = run->n_lines > TAIL_LINES ? run->n_lines - TAIL_LINES : 0;
	bool no_root = false;

	err_set(err, EIO, "mmdebstrap failed (%s %d)", WIFEXITED(status) ? "exit status" : "signal",
		WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	for (unsigned i = first; i < run->n_lines; i++) {
		const char *line = run->tail[i % TAIL_LINES];

		if (strncmp(line, "I: ", 3))
			err_append(err, "\n  %.200s", line);
		if (strstr(line, "chroot mode") || strstr(line, "uidmap") ||
			strstr(line, "/etc/sub"))
			no_root = true;
	}
	if (no_root && geteuid())
		err_append(err,
			"\nbake as root; or install uidmap and give this user ranges in "
			"/etc/subuid and "
			"/etc/subgid");
	return -EIO;
}

static bool may_make_pid_namespace(void)
{
	static const char *const argv[] = {
		"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "true", NULL};
	struct proc_spec spec = {.argv = argv};
	cleanup_free char *out = NULL;

	return geteuid() == 0 && proc_output(&spec, 10000, 4096, &out, NULL) == 0;
}

static char *joined_packages(const struct recipe *r)
{
	char *out = NULL;
	size_t len;
	FILE *f = open_memstream(&out, &len);

	if (!f)
		abort();
	/* keeps apt from choosing usrmerge, and with it all of perl */
	fputs("--include=usr-is-merged", f);
	for (size_t i = 0; i < r->packages.n; i++)
		fprintf(f, ",%s", r->packages.items[i]);
	if (fclose(f))
		abort();
	return out;
}

/* An argument list that owns its strings. */
struct args {
	char *items[64];
	size_t n;
};

__attribute__((format(printf, 2, 3))) static void add(struct args *a, const char *fmt, ...)
{
	va_list list;

	assert(a->n < sizeof(a->items) / sizeof(*a->items) - 1);
	va_start(list, fmt);
	if (vasprintf(&a->items[a->n++], fmt, list) < 0)
		abort();
	va_end(list);
}

static void args_clear(struct args *a)
{
	while (a->n)
		free(a->items[--a->n]);
}

static void add_all(struct args *a, const char *const *words)
{
	for (; *words; words++)
		add(a, "%s", *words);
}

static void make_args(struct args *a, const struct recipe *r, int64_t epoch, const char *dir)
{
	static const char *const alone[] = {
		"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", NULL};
	static const char *const steady[] = {
		"LC_ALL=C.UTF-8", "TZ=UTC", "sh", "-c", "umask 022; exec \"$@\"", "sh", NULL};
	static const char *const mmdebstrap[] = {"mmdebstrap", "--mode=auto", "--variant=apt",
		"--format=tar", "--skip=output/dev",
		"--hook-dir=/usr/share/mmdebstrap/hooks/maybe-merged-usr", NULL};
	cleanup_free char *include = joined_packages(r);

	add_all(a, (const char *const[]){"sh", "-c", supervise, "sh", dir, NULL});
	if (may_make_pid_namespace())
		add_all(a, alone);
	add(a, "env");
	add(a, "SOURCE_DATE_EPOCH=%" PRId64, epoch);
	add(a, "TMPDIR=%s", dir);
	add_all(a, steady);
	add_all(a, mmdebstrap);
	add(a, "%s", include);
	add(a, "--aptopt=%s/apt.conf", dir);
	for (size_t i = 0; i < sizeof(excludes) / sizeof(*excludes); i++)
		add(a, "--dpkgopt=path-exclude=%s", excludes[i]);
	add(a, "--customize-hook=%s/tidy \"$1\"", dir);
	add(a, "--customize-hook=perl %s/byte-code \"$1\"", dir);
	add(a, "%s", r->suite);
	add(a, "-");
	add(a, "%s/host.list", dir);
}

/* Start the shell that runs mmdebstrap in @dir; *@ret_err_fd is its standard error, *@ret_hold the
 * pipe that must stay open while it is wanted. */
static int start(const struct recipe *r, int64_t epoch, const char *dir, int out_fd,
	struct proc *proc, int *ret_err_fd, int *ret_hold, struct err *err)
{
	cleanup_with(args_clear) struct args args = {0};
	cleanup_fd int err_read = -1, err_write = -1, hold_read = -1, hold_write = -1;
	struct proc_spec spec = {.argv = (const char *const *)args.items, .new_session = true};
	int pipes[2], rc;

	make_args(&args, r, epoch, dir);
	if (pipe2(pipes, O_CLOEXEC))
		return err_sys(err, errno, "pipe");
	err_read = pipes[0];
	err_write = pipes[1];
	if (pipe2(pipes, O_CLOEXEC))
		return err_sys(err, errno, "pipe");
	hold_read = pipes[0];
	hold_write = pipes[1];
	proc_map_fd(&spec, out_fd, 1);
	proc_map_fd(&spec, err_write, 2);
	proc_map_fd(&spec, hold_read, 3);
	rc = proc_start(&spec, proc, err);
	if (rc)
		return rc;
	*ret_err_fd = steal_fd(&err_read);
	*ret_hold = steal_fd(&hold_write);
	return 0;
}

static int write_helpers(const char *dir, const char *list, const char *aptopts, struct err *err)
{
	cleanup_free char *script = str_printf("#!/bin/sh\n%s", tidy);
	int rc = file_publish(dir, "host.list", list, strlen(list), 0644, err);

	if (!rc)
		rc = file_publish(dir, "apt.conf", aptopts, strlen(aptopts), 0644, err);
	if (!rc)
		rc = file_publish(dir, "tidy", script, strlen(script), 0755, err);
	if (!rc)
		rc = file_publish(dir, "byte-code", byte_code, strlen(byte_code), 0644, err);
	return rc;
}

static bool have_mmdebstrap(void)
{
	static const char *const argv[] = {"mmdebstrap", "--version", NULL};
	struct proc_spec spec = {.argv = argv};
	cleanup_free char *out = NULL;

	return proc_output(&spec, 30000, 4096, &out, NULL) != -ENOENT;
}

int source_debian(const struct recipe *r, int64_t epoch, int out_fd, struct progress *progress,
	struct err *err)
{
	cleanup_free char *list = NULL, *aptopts = NULL, *dir = NULL;
	cleanup_free struct run *run = calloc(1, sizeof(*run));
	cleanup_fd int err_fd = -1, hold = -1;
	cleanup_proc struct proc proc = PROC_INIT;
	const char *tmp = getenv("TMPDIR");
	int status = 0, rc;

	if (!run)
		abort();
	rc = host_list(r->suite, &list, err);
	if (!rc)
		rc = host_apt_options(&aptopts, err);
	if (rc)
		return rc;
	if (!have_mmdebstrap())
		return err_set(err, ENOENT,
			"source = debian needs mmdebstrap: apt-get install mmdebstrap");
	/* not in the cache: apt's own user must be able to reach it */
	dir = str_printf("%s/parbake-XXXXXX", tmp && *tmp == '/' ? tmp : "/var/tmp");
	if (!mkdtemp(dir))
		return err_sys(err, errno, "a directory %s for mmdebstrap", dir);
	if (chmod(dir, 0755))
		rc = err_sys(err, errno, "%s", dir);
	if (!rc)
		rc = write_helpers(dir, list, aptopts, err);
	if (!rc)
		rc = start(r, epoch, dir, out_fd, &proc, &err_fd, &hold, err);
	if (rc) {
		file_remove_tree(AT_FDCWD, dir, NULL);
		return rc;
	}
	run->progress = progress;
	run->out_fd = out_fd;
	rc = follow(run, err_fd);
	if (rc) {
		close_fd(&hold);
		err_sys(err, -rc, "reading from mmdebstrap");
		proc_wait(&proc, CLOCK_NEVER, NULL);
		return rc;
	}
	rc = proc_wait(&proc, CLOCK_NEVER, &status);
	if (rc)
		return err_sys(err, -rc, "waiting for mmdebstrap");
	return status ? explain(run, status, err) : 0;
}
