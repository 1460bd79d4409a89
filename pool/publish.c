/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing a checkpoint takes seconds of reading and compressing: a process of its own, `parbake
 * pool-publish`, does it, and dies with the daemon. Its error message is what it writes to its
 * standard error, which is a file without a name.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/proc.h"
#include "pool/pool_private.h"
#include "pool/publish.h"
#include "pool/transition_private.h"
#include "restore/checkpoint.h"

#define PUBLISH_TEXT_MAX 1500

struct pool_publish {
	struct proc proc;
	struct loop_watch *watch;
	int errors;
	void (*done)(void *user, int error, const char *text);
	void *user;
};

void pool_publish_free(struct pool_publish *w)
{
	if (!w)
		return;
	loop_remove(w->watch);
	proc_kill(&w->proc);
	close_fd(&w->errors);
	free(w);
}

/* The end of what it said, without its own name in front. */
static void last_words(int fd, char ret[static PUBLISH_TEXT_MAX + 1])
{
	off_t size = lseek(fd, 0, SEEK_END);
	off_t from = size > PUBLISH_TEXT_MAX ? size - PUBLISH_TEXT_MAX : 0;
	ssize_t n = pread(fd, ret, PUBLISH_TEXT_MAX, from);

	ret[n > 0 ? n : 0] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
	if (!strncmp(ret, "parbake: ", 9))
		memmove(ret, ret + 9, strlen(ret + 9) + 1);
}

static void publish_ended(void *user, short revents)
{
	struct pool_publish *w = user;
	void (*done)(void *of, int error, const char *text) = w->done;
	void *of = w->user;
	char text[PUBLISH_TEXT_MAX + 1];
	int status = -1;
	int error;

	(void)revents;
	if (!proc_ended(&w->proc))
		return;
	/* reaping closes what is watched */
	loop_remove(w->watch);
	w->watch = NULL;
	if (proc_wait(&w->proc, clock_deadline(0), &status) < 0)
		status = -1;
	status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	error = status == 0 ? 0 : status == POOL_PUBLISH_EXISTS ? EEXIST : EIO;
	last_words(w->errors, text);
	pool_publish_free(w);
	done(of, error, !error ? "" : text[0] ? text : "it could not be published");
}

static int start(struct pool *p, const char *const argv[],
	void (*done)(void *user, int error, const char *text), void *user,
	struct pool_publish **ret, struct err *err)
{
	struct proc_spec spec = {.argv = argv, .die_with_parent = true};
	struct pool_publish *w = calloc(1, sizeof(*w));
	int r = 0;

	if (!w)
		abort();
	*w = (struct pool_publish){.proc = PROC_INIT, .done = done, .user = user};
	w->errors = memfd_create("parbake-publish", MFD_CLOEXEC);
	if (w->errors < 0)
		r = err_sys(err, errno, "a file for the errors of %s", argv[1]);
	if (r == 0) {
		proc_map_fd(&spec, w->errors, STDERR_FILENO);
		r = proc_start(&spec, &w->proc, err);
	}
	if (r == 0)
		w->watch = loop_add(p->loop, w->proc.pidfd, POLLIN, publish_ended, w, err);
	if (r < 0 || !w->watch) {
		pool_publish_free(w);
		return r < 0 ? r : -EIO;
	}
	*ret = w;
	return 0;
}

int pool_publish_start(struct pool *p, const char *dir, const char *name, bool only_new,
	const char *replaced, void (*done)(void *user, int error, const char *text), void *user,
	struct pool_publish **ret, struct err *err)
{
	const char *const argv[] = {"/proc/self/exe", "pool-publish", dir, name, p->store_dir,
		only_new ? "new" : NULL, *replaced ? replaced : NULL, NULL};

	return start(p, argv, done, user, ret, err);
}

int pool_publish_gc(struct pool *p, void (*done)(void *user, int error, const char *text),
	void *user, struct pool_publish **ret, struct err *err)
{
	const char *const argv[] = {
		"/proc/self/exe", "gc", p->store_dir ? "--store" : NULL, p->store_dir, NULL};

	return start(p, argv, done, user, ret, err);
}

int pool_publish_main(int argc, char **argv)
{
	cleanup_checkpoint struct checkpoint *c = NULL;
	cleanup_store struct store *s = NULL;
	cleanup_manifest struct store_manifest m = {0};
	char name[2 * LIMIT_NAME_SIZE];
	char *tag;
	struct err err;
	int r;

	if (argc < 4 || argc > 7 || strlen(argv[3]) >= sizeof(name) ||
		(argc > 5 && strcmp(argv[5], "new") != 0)) {
		fprintf(stderr,
			"parbake: pool-publish DIR NAME[:TAG] [STORE [new [DIGEST]]] is the pool's "
			"own\n");
		return 2;
	}
	snprintf(name, sizeof(name), "%s", argv[3]);
	tag = strchr(name, ':');
	if (tag)
		*tag++ = '\0';
	r = store_open(argc > 4 ? argv[4] : NULL, true, &s, &err);
	if (r == 0 && argc > 5)
		store_keep_tags(s, argc > 6 ? argv[6] : NULL);
	if (r == 0)
		r = checkpoint_open(argv[2], &c, &err);
	if (r == 0)
		r = checkpoint_publish(s, c, name, tag ? tag : "latest", NULL, &m, &err);
	if (r < 0) {
		fprintf(stderr, "parbake: %s\n", err.text);
		return r == -EEXIST ? POOL_PUBLISH_EXISTS : 1;
	}
	return 0;
}
