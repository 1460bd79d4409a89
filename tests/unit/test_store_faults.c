/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dying and failing at every step of a publish: a child bakes a new version with a fault armed,
 * at every fault point, each time that it is reached, once as kill -9 and once as a full disk.
 * Afterwards the old version (or, past the last step, the new one) is whole, gc leaves nothing
 * behind, and the next try works.
 */
#include "common/fault.h"

#include <dirent.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "common/file.h"
#include "common/str.h"
#include "tests/unit/store_fixture.h"
#include "tests/unit/tap.h"

static struct err err;
/*
 * in memory where there is such a place: hundreds of fsyncs wait for a disk that no kill -9
 * needs
 */
static char in_memory[] = "/dev/shm/parbake-test-faults-XXXXXX",
	    in_tmp[] = "/tmp/parbake-test-faults-XXXXXX";
static const char *top;

/* ---- the child: this program again, as `test_store_faults ACTION DIR` ---- */

static int child_main(const char *action, const char *dir)
{
	cleanup_store struct store *s = NULL;
	unsigned gone;
	int r = store_open(dir, true, &s, &err);

	if (r == 0 && !strcmp(action, "bake"))
		r = fixture_publish(s, "base", NULL, 2, NULL, &err);
	else if (r == 0 && !strcmp(action, "remove"))
		r = store_remove(s, "base", &err);
	else if (r == 0 && !strcmp(action, "gc"))
		r = store_gc(s, 0, false, &gone, NULL, &err);
	if (r < 0)
		fprintf(stderr, "error %s\n", err.text);
	return r < 0;
}

/* Exit status, 128+N for a signal; what it wrote to standard error in @text (may be NULL). */
static int run_child(
	const char *action, const char *dir, const char *fault, char *text, size_t size)
{
	int pipe_fds[2], status;
	size_t len = 0;
	ssize_t n;
	pid_t pid;
	char rest[512];

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		abort();
	pid = fork();
	if (pid == 0) {
		if (fault)
			setenv("PARBAKE_FAULT", fault, 1);
		else
			unsetenv("PARBAKE_FAULT");
		dup2(pipe_fds[1], STDERR_FILENO);
		execl("/proc/self/exe", "test_store_faults", action, dir, (char *)NULL);
		_exit(99);
	}
	close(pipe_fds[1]);
	while ((n = read(pipe_fds[0], text && len < size - 1 ? text + len : rest,
			text && len < size - 1 ? size - 1 - len : sizeof(rest))) > 0)
		if (text && len < size - 1)
			len += (size_t)n;
	if (text)
		text[len] = '\0';
	close(pipe_fds[0]);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- what is on disk ---- */

static unsigned count_entries(const char *dir, const char *sub)
{
	cleanup_free char *path = str_printf("%s/%s", dir, sub);
	cleanup_dir DIR *d = opendir(path);
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)))
		n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	return n;
}

/* After gc: exactly what one version of one template needs. Says what is too much. */
static bool no_litter(const char *dir)
{
	/* top: index.json, oci-layout, lock, blobs, tmp; blobs: four layers, config, manifest */
	unsigned files = count_entries(dir, "."), blobs = count_entries(dir, "blobs/sha256"),
		 tmp = count_entries(dir, "tmp");

	if (files == 5 && blobs == 6 && tmp == 0)
		return true;
	printf("# %u files, %u blobs, %u temporary\n", files, blobs, tmp);
	return false;
}

static const char *const modes[] = {"", "=ENOSPC"};
static char digest_of[3][DIGEST_TEXT_SIZE]; /* of version 1 and 2 */

/* Which version is "base"? 0: none. It must be whole. */
static unsigned present(const char *dir)
{
	cleanup_manifest struct store_manifest m = {0};
	cleanup_store struct store *s = NULL;

	if (store_open(dir, false, &s, &err) < 0 || store_resolve(s, "base", &m, &err) < 0)
		return 0;
	if (store_verify(s, &m, NULL, &err) < 0) {
		printf("# damaged: %s\n", err.text);
		return 99;
	}
	for (unsigned v = 1; v <= 2; v++)
		if (!strcmp(m.digest, digest_of[v]))
			return v;
	return 98;
}

static int collect(const char *dir)
{
	cleanup_store struct store *s = NULL;

	return store_open(dir, true, &s, &err) < 0 || store_gc(s, 0, false, NULL, NULL, &err) < 0;
}

static void publish_version(const char *dir, unsigned version)
{
	cleanup_store struct store *s = NULL;
	cleanup_manifest struct store_manifest m = {0};

	if (store_open(dir, true, &s, &err) < 0 ||
		fixture_publish(s, "base", NULL, version, &m, &err) < 0) {
		printf("# %s\n", err.text);
		exit(1);
	}
	memcpy(digest_of[version], m.digest, DIGEST_TEXT_SIZE);
}

/* One fault. @before: the version there at first, 0: no store at all. */
static void one_fault(
	const char *action, const char *point, unsigned nth, const char *mode, unsigned before)
{
	cleanup_free char *dir = str_printf("%s/s", top),
			  *fault = str_printf("%s:%u%s", point, nth, mode);
	bool last = !strcmp(point, "store.index.after-rename");
	bool bakes = !strcmp(action, "bake");
	int status;
	unsigned now;

	file_remove_tree(AT_FDCWD, dir, &err);
	if (before)
		publish_version(dir, before);
	status = run_child(action, dir, fault, NULL, 0);
	if (*mode == '\0')
		is_int(status, 137, "%s, %s: dies", action, fault);
	else
		is_int(status, last ? 0 : 1, "%s, %s: %s", action, fault,
			last ? "too late to fail" : "fails");
	now = present(dir);
	if (bakes)
		is_int(now, last ? 2 : before, "… version %u is whole", last ? 2 : before);
	is_int(collect(dir), 0, "… gc");
	if (bakes && (before || last)) {
		is_int(present(dir), now, "… and it is still there");
		ok(no_litter(dir), "… and nothing else");
	}
	is_int(run_child("bake", dir, NULL, NULL, 0), 0, "… the next try works");
	is_int(present(dir), 2, "… the new version is whole");
	is_int(collect(dir), 0, "… gc");
	ok(no_litter(dir), "… and nothing else is left");
}

static void all_faults(const char *action, unsigned before)
{
	cleanup_free char *dir = str_printf("%s/s", top);
	char trace[16384], *line, *save;
	struct {
		char name[64];
		unsigned hits;
	} seen[32] = {0};
	size_t n = 0;

	file_remove_tree(AT_FDCWD, dir, &err);
	if (before)
		publish_version(dir, before);
	is_int(run_child(action, dir, "?", trace, sizeof(trace)), 0, "%s with every point named",
		action);
	for (line = strtok_r(trace, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		size_t i;

		if (strncmp(line, "fault ", 6) != 0)
			continue;
		for (i = 0; i < n && strcmp(seen[i].name, line + 6); i++)
			;
		if (i == 32)
			abort();
		snprintf(seen[i].name, sizeof(seen[i].name), "%s", line + 6);
		n += i == n;
		seen[i].hits++;
	}
	ok(n >= 2, "%s passes %zu fault points", action, n);
	for (size_t i = 0; i < n; i++)
		for (unsigned nth = 1; nth <= seen[i].hits; nth++)
			for (size_t mode = 0; mode < 2; mode++)
				one_fault(action, seen[i].name, nth, modes[mode], before);
}

/* ---- the files of writers, dead and alive ---- */

static void test_temporary_files(void)
{
	cleanup_free char *dir = str_printf("%s/t", top), *path = NULL, *tmp = NULL;
	cleanup_store struct store *s = NULL;
	struct store_layer layer = {0};
	struct store_blob *b = NULL;
	struct timeval old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	cleanup_dir DIR *d = NULL;
	struct dirent *e;

	is_int(store_open(dir, true, &s, &err), 0, "a store");
	is_int(store_blob_begin(s, &b, &err), 0, "a blob begun");
	file_write_full(store_blob_fd(b), "alive", 5);
	path = str_printf("%s/tmp/blob-dead", dir);
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	free(path);
	path = str_printf("%s/.tmp-1-1", dir);
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	is_int(store_gc(s, 0, false, NULL, NULL, &err), 0, "gc");
	is_int(count_entries(dir, "tmp"), 1,
		"the dead writer's file is gone, the live one's is not");
	ok(access(path, F_OK) < 0, "the dead index is gone");
	is_int(store_blob_finish(b, NULL, &layer, &err), 0, "the blob is finished");
	is_int((int64_t)layer.bytes, 5, "… whole");

	is_int(store_blob_begin(s, &b, &err), 0, "another");
	free(path);
	path = str_printf("%s/tmp", dir);
	d = opendir(path);
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			tmp = str_printf("%s/%s", path, e->d_name);
	ok(tmp && utimes(tmp, old) == 0, "… that nobody has written to for a day");
	is_int(store_gc(s, 0, false, NULL, NULL, &err), 0, "gc");
	is_int(count_entries(dir, "tmp"), 0, "… takes it for a dead one's");
	store_blob_abort(b);
}

/* ---- a disk that is really full ---- */

static int put_random(struct store *s, size_t len, struct err *why)
{
	cleanup_free char *buf = malloc(len);
	struct store_layer layer = {0};
	uint32_t x = 1;

	for (size_t i = 0; i < len; i++) {
		x = x * 1664525 + 1013904223;
		buf[i] = (char)(x >> 24);
	}
	return store_blob_put(s, buf, len, &layer, why);
}

/* In a child with a file system of 1 MiB. Exit status: the step that went wrong. */
static int full_disk(const char *dir)
{
	cleanup_store struct store *s = NULL;
	struct store_layer layer = {0};

	if (store_open(dir, true, &s, &err) < 0)
		return 1;
	publish_version(dir, 1);
	if (put_random(s, 4 * MIB, &err) != -ENOSPC)
		return 2;
	if (!strstr(err.text, "No space left"))
		return 3;
	/* fill it to the last page, so that not even an index fits */
	{
		cleanup_free char *path = str_printf("%s/filler", dir);
		cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		char page[4096] = {1};

		while (write(fd, page, sizeof(page)) == sizeof(page))
			;
		if (fixture_publish(s, "base", NULL, 2, NULL, &err) != -ENOSPC)
			return 4;
		if (present(dir) != 1)
			return 5;
		unlink(path);
	}
	if (store_gc(s, 0, false, NULL, NULL, &err) < 0 || !no_litter(dir))
		return 6;
	if (fixture_publish(s, "base", NULL, 2, NULL, &err) < 0 || present(dir) != 2)
		return 7;
	(void)layer;
	return 0;
}

static void test_full_disk(void)
{
	cleanup_free char *dir = str_printf("%s/full", top);
	int status;
	pid_t pid;

	publish_version(dir, 2); /* its digest */
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWNS) < 0 ||
			mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
			mount("tmpfs", dir, "tmpfs", 0, "size=1M") < 0)
			_exit(77);
		status = full_disk(dir);
		if (status)
			printf("# %s\n", err.text);
		fflush(stdout);
		_exit(status);
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		tap_skip("mounting a small file system needs root");
	else
		is_int(status >> 8, 0, "a disk that is full: refused, nothing lost, no litter");
}

static void test_bad_faults(void)
{
	static const char *const wrong[] = {":", "=EIO", "keeper.begin:0", "keeper.begin:x",
		"keeper.begin=EWHAT", "keeper.begin:1b", "no.such.point", "store.blob.beginn=20ms"};
	cleanup_free char *dir = str_printf("%s/s", top);

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		is_int(run_child("bake", dir, wrong[i], NULL, 0), 2, "PARBAKE_FAULT=%s is refused",
			wrong[i]);
	is_int(run_child("bake", dir, "keeper.begin", NULL, 0), 0, "a point that is never reached");
}

int main(int argc, char **argv)
{
	if (argc == 3)
		return child_main(argv[1], argv[2]);
	top = mkdtemp(in_memory);
	if (!top)
		top = mkdtemp(in_tmp);
	if (!top)
		return 1;
	{
		cleanup_free char *dir = str_printf("%s/versions", top);

		publish_version(dir, 1);
		publish_version(dir, 2);
	}
	all_faults("bake", 1);
	all_faults("bake", 0);
	all_faults("remove", 1);
	{
		/* something to collect: a version that lost its tag */
		cleanup_free char *dir = str_printf("%s/g", top);
		unsigned n = 1;

		publish_version(dir, 1);
		publish_version(dir, 2);
		for (;; n++) {
			cleanup_free char *fault = str_printf("store.gc.before-unlink:%u", n);

			if (run_child("gc", dir, fault, NULL, 0) == 0)
				break;
			is_int(present(dir), 2,
				"gc dies before removal %u: the tagged version is whole", n);
		}
		ok(n > 2, "gc was stopped %u times", n - 1);
		ok(no_litter(dir), "… and came to its end");
	}
	test_temporary_files();
	test_full_disk();
	test_bad_faults();
	is_int(file_remove_tree(AT_FDCWD, top, &err), 0, "clean up");
	return tap_done();
}
