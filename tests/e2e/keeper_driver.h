/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_KEEPER_DRIVER_H
#define PARBAKE_TESTS_KEEPER_DRIVER_H

/* What keeper_driver.c asks and waits with. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/str.h"
#include "pool/keeper/end_private.h"
#include "restore/pager/pager.h"
#include "tests/unit/tap.h"
#include "vmm/guest/guest.h"

#define PATIENCE_MS 60000

static struct loop *l;
static struct zygote *zygote;
static const char *name, *tag, *digest, *sockets, *at_rest;
static struct err err;

struct answer {
	bool done;
	int error;
	char text[4096];
	json_t *reply;
	int fds[4];
	unsigned n_fds;
	int64_t at;
};

struct box {
	struct keeper *k;
	bool ended;
	char text[4096];
	struct answer a;
	int channel, machine; /* of its hand_out or describe */
};

/* ---- waiting ------------------------------------------------------------------------------- */

static bool run_until(const bool *flag)
{
	int64_t deadline = clock_deadline(PATIENCE_MS);

	while (!*flag && clock_left_ms(deadline))
		loop_once(l, deadline, &err);
	return *flag;
}

static void on_answer(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	struct answer *a = user;

	a->at = clock_now_ns();
	a->error = error;
	snprintf(a->text, sizeof(a->text), "%s", text ?: "");
	a->reply = json_deep_copy(reply);
	a->n_fds = n_fds;
	for (unsigned i = 0; i < n_fds; i++)
		a->fds[i] = fds[i];
	a->done = true;
}

static void on_ended(void *user, const char *text)
{
	struct box *b = user;

	b->ended = true;
	snprintf(b->text, sizeof(b->text), "%s", text);
}

static const struct keeper_ops ops = {.ended = on_ended};

static struct answer *fresh(struct box *b)
{
	json_decref(b->a.reply);
	b->a = (struct answer){0};
	return &b->a;
}

/* 0, or what the answer said. */
static int answered(struct box *b)
{
	if (!run_until(&b->a.done)) {
		printf("# no answer\n");
		return ETIMEDOUT;
	}
	if (b->a.error)
		printf("# %s\n", b->a.text);
	return b->a.error;
}

static void make(struct box *b, const char *capture, bool same)
{
	*b = (struct box){.channel = -1, .machine = -1};
	if (keeper_make(zygote, capture, same, &ops, b, &b->k, &err) < 0) {
		printf("Bail out! %s\n", err.text);
		exit(1);
	}
}

static void take_fds(struct box *b)
{
	close_fd(&b->machine);
	close_fd(&b->channel);
	if (b->a.n_fds == 2) {
		b->machine = b->a.fds[0];
		b->channel = b->a.fds[1];
	}
}

static int hand_out(struct box *b, const char *id, uint64_t lease_ms, const char *pause_dir)
{
	cleanup_json json_t *record = json_pack("{s:s, s:i}", "of", id, "answer", 42);
	struct keeper_lease lease = {
		.id = id, .record = record, .lease_ms = lease_ms, .pause_dir = pause_dir};

	keeper_hand_out(b->k, &lease, id, on_answer, fresh(b));
	if (answered(b) == 0)
		take_fds(b);
	return b->a.error;
}

static int adopt(struct box *b, const char *id)
{
	cleanup_free char *path = str_printf("%s/%s", sockets, id);
	int r;

	*b = (struct box){.channel = -1, .machine = -1};
	r = keeper_adopt(l, path, &ops, b, &b->k, &err);
	if (r < 0)
		return -r;
	keeper_describe(b->k, on_answer, fresh(b));
	if (answered(b) == 0)
		take_fds(b);
	return b->a.error;
}

static void drop(struct box *b)
{
	keeper_free(b->k);
	b->k = NULL;
	fresh(b);
	close_fd(&b->channel);
	close_fd(&b->machine);
}

static int end(struct box *b)
{
	keeper_kill(b->k, on_answer, fresh(b));
	return answered(b);
}

static int pidfd(int pid)
{
	return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

/* Has it ended, or does it within our patience? Closes @fd. */
static bool ends(int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	int64_t deadline = clock_deadline(PATIENCE_MS);
	bool gone = fd < 0;

	while (!gone && clock_left_ms(deadline)) {
		loop_once(l, 0, &err);
		gone = poll(&pfd, 1, 10) == 1;
	}
	if (fd >= 0)
		close(fd);
	return gone;
}

static unsigned count_dir(const char *path)
{
	cleanup_dir DIR *dir = opendir(path);
	unsigned n = 0;

	for (struct dirent *e; dir && (e = readdir(dir));)
		n += e->d_name[0] != '.';
	return n;
}

/* The name is cleared a moment before or after its process goes. */
static bool no_names(void)
{
	int64_t deadline = clock_deadline(PATIENCE_MS);

	while (count_dir(sockets) && clock_left_ms(deadline))
		loop_once(l, clock_deadline(10), &err);
	return count_dir(sockets) == 0;
}

/* A command in it, by the channel; its output is compared. */
static bool says(struct box *b, const char *line, const char *want)
{
	cleanup_guest_result struct guest_result result = {0};
	cleanup_guest struct guest *g = NULL;
	struct guest_exec_spec spec = {.shell = line, .stdin_fd = -1};
	int64_t deadline = clock_deadline(PATIENCE_MS);
	int fd = fcntl(b->channel, F_DUPFD_CLOEXEC, 3), r;

	r = guest_new(fd, &g, &err);
	if (r == 0) {
		guest_sync_send(g);
		r = guest_exec(g, &spec, deadline, b->machine, &result, &err);
	}
	if (r < 0) {
		printf("# %s\n", err.text);
		return false;
	}
	if (result.exit_code != 0 || strcmp(result.out, want) != 0)
		printf("# exit %d: %s%s", result.exit_code, result.out, result.err);
	return result.exit_code == 0 && strcmp(result.out, want) == 0;
}

/* ---- zygotes ----------------------------------------------------------------------------- */

struct zygote_end {
	bool ended;
	char text[4096];
};
static struct zygote_end zygote_end;

static void on_zygote(void *user, const char *text)
{
	struct zygote_end *e = user;

	e->ended = true;
	snprintf(e->text, sizeof(e->text), "%s", text);
}

/* The one child of this process that is a zygote; -1: none is. */
static pid_t zygote_pid(void)
{
	cleanup_free char *children = NULL;
	size_t len;

	if (file_read_all(AT_FDCWD, "/proc/thread-self/children", 4096, &children, &len, &err) < 0)
		return -1;
	for (char *rest = NULL, *one = strtok_r(children, " ", &rest); one;
		one = strtok_r(NULL, " ", &rest)) {
		cleanup_free char *path = str_printf("/proc/%s/comm", one), *comm = NULL;

		if (file_read_all(AT_FDCWD, path, 64, &comm, &len, &err) == 0 &&
			!strcmp(comm, "parbake-zygote\n"))
			return (pid_t)atoi(one);
	}
	return -1;
}

static void start_zygote(const char *of)
{
	zygote_end = (struct zygote_end){0};
	if (zygote_start(l, NULL, of, name, tag, sockets, on_zygote, &zygote_end, &zygote, &err) <
		0) {
		printf("Bail out! %s\n", err.text);
		exit(1);
	}
}

#endif
