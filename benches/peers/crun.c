/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same root as a container, by crun: namespaces for mounts, processes, IPC, host name and
 * network, no cgroup, the root read-only. The root's files come out of the template's disk by
 * debugfs(8), once; no mount is needed. A container shares the host's kernel, so this is a floor
 * for the time and no equal in what it keeps apart.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

#include "benches/peers/peers.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/paths.h"
#include "common/proc.h"
#include "common/str.h"

#define DISK_FD 3
#define EXTRACT_MS 300000
#define RUN_MS 30000

/* A program's run to its end; its output is dropped. */
static int run_program(const char *const *argv, int disk, int timeout_ms, struct err *err)
{
	struct proc_spec spec = {.argv = argv};
	cleanup_free char *out = NULL;

	if (disk >= 0)
		proc_map_fd(&spec, disk, DISK_FD);
	return proc_output(&spec, timeout_ms, MIB, &out, err);
}

static json_t *mount_json(const char *where, const char *type, const char *options)
{
	return json_pack("{s:s, s:s, s:s, s:[s, s, s]}", "destination", where, "type", type,
		"source", type, "options", "nosuid", "noexec", options);
}

static json_t *config_json(void)
{
	static const char *const namespaces[] = {"pid", "mount", "ipc", "uts", "network"};
	json_t *list = json_array();

	for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++)
		json_array_append_new(list, json_pack("{s:s}", "type", namespaces[i]));
	return json_pack("{s:s, s:{s:b, s:{s:i, s:i}, s:[s, s], s:s, s:[s]}, s:{s:s, s:b}, s:s, "
			 "s:[o, o], s:{s:o}}",
		"ociVersion", "1.0.2", "process", "terminal", false, "user", "uid", 0, "gid", 0,
		"args", "/bin/echo", "ready", "cwd", "/", "env", "PATH=/usr/bin:/bin", "root",
		"path", "rootfs", "readonly", true, "hostname", "peer", "mounts",
		mount_json("/proc", "proc", "nodev"), mount_json("/dev", "tmpfs", "mode=755"),
		"linux", "namespaces", list);
}

/*
 * crun wants the hierarchy of version 2 alone (or version 1 alone) below /sys/fs/cgroup. On a
 * host that has both, this process gets a view of its own, in a mount namespace that ends with
 * it.
 */
static int see_one_hierarchy(struct err *err)
{
	static const char where[] = "/sys/fs/cgroup";

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		umount2(where, MNT_DETACH) < 0 || mount("cgroup2", where, "cgroup2", 0, NULL) < 0)
		return err_sys(err, errno, "show crun one hierarchy of cgroups");
	return 0;
}

/* From exec of crun to "ready\n". */
static int run_container(struct peers *p, int64_t *ret_output, struct err *err)
{
	cleanup_free char *name = str_printf("parbake-peer-%d-%u", (int)getpid(), p->containers++);
	const char *argv[] = {
		"crun", "--cgroup-manager=disabled", "run", "--bundle", p->bundle, name, NULL};
	struct proc_spec spec = {.argv = argv};
	cleanup_proc struct proc proc = PROC_INIT;
	cleanup_fd int in = -1, out = -1;
	char text[256];
	size_t got = 0;
	int64_t begin;
	int pipes[2], status, r;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return err_sys(err, errno, "make a pipe");
	in = pipes[0];
	out = pipes[1];
	proc_map_fd(&spec, out, 1);
	proc_map_fd(&spec, out, 2);
	begin = clock_now_ns();
	r = proc_start(&spec, &proc, err);
	if (r < 0)
		return r;
	close_fd(&out);
	while (got < sizeof(text) - 1 && !memchr(text, '\n', got)) {
		ssize_t n = read(in, text + got, sizeof(text) - 1 - got);

		if (n <= 0)
			break;
		got += (size_t)n;
	}
	*ret_output = clock_now_ns() - begin;
	text[got] = '\0';
	r = proc_wait(&proc, clock_deadline(RUN_MS), &status);
	if (r < 0)
		return err_sys(err, -r, "crun does not end");
	if (status != 0 || strcmp(text, "ready\n"))
		return err_set(err, EIO, "crun: status %d: %.*s", status >> 8,
			(int)strcspn(text, "\n"), text);
	return 0;
}

static int prepare(struct peers *p, struct err *err)
{
	const char *const probe[] = {"crun", "--version", NULL};
	cleanup_free char *cache = NULL, *root = NULL, *dump = NULL, *text = NULL;
	cleanup_json json_t *config = NULL;
	const char *extract[] = {"debugfs", "-R", NULL, "/proc/self/fd/3", NULL};
	int64_t ignored;
	int r = run_program(probe, -1, RUN_MS, err);

	if (r < 0)
		return r;
	if (geteuid() != 0)
		return err_set(err, EPERM, "only root can give the container its users");
	if ((r = paths_sub(PATHS_CACHE, "peers", &cache, err)) < 0)
		return r;
	p->bundle = str_printf("%s/bundle-XXXXXX", cache);
	if (!mkdtemp(p->bundle)) {
		free(steal_ptr(&p->bundle));
		return err_sys(err, errno, "%s", cache);
	}
	root = str_printf("%s/rootfs", p->bundle);
	r = file_mkdir_p(root, 0755, err);
	if (r < 0)
		return r;
	dump = str_printf("rdump / \"%s\"", root);
	extract[2] = dump;
	r = run_program(extract, template_disk_fd(p->template), EXTRACT_MS, err);
	if (r < 0) {
		err_prefix(err, "take the root out of the disk");
		return r;
	}
	config = config_json();
	text = json_text(config);
	r = file_publish(p->bundle, "config.json", text, strlen(text), 0644, err);
	if (r == 0)
		r = run_container(p, &ignored, err);
	if (r < 0 && strstr(err->text, "hybrid") && see_one_hierarchy(err) == 0)
		r = run_container(p, &ignored, err);
	return r;
}

static int once(struct peers *p, int64_t *ret_answer, int64_t *ret_output, struct err *err)
{
	(void)ret_answer;
	return run_container(p, ret_output, err);
}

void peer_crun_clear(struct peers *p)
{
	struct err err;

	if (p->bundle && file_remove_tree(AT_FDCWD, p->bundle, &err) < 0)
		fprintf(stderr, "bench_peers: %s\n", err.text);
	free(steal_ptr(&p->bundle));
}

const struct peer peer_crun = {
	.name = "crun, a container",
	.short_name = "crun",
	.every = 1,
	.prepare = prepare,
	.once = once,
};
