/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that would keep the loop waiting for a disk (fsync, removing trees, copying checkpoints) is
 * done by two threads, in the order that it came. Its end is reported to the loop through an
 * eventfd. The argument of a piece of work belongs to that work until done() has it back, so
 * nothing is shared between threads.
 *
 * To remove a file is to rename it into STATE/trash, at once and whole; what lies there is litter
 * by its place.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/file.h"
#include "common/log.h"
#include "common/loop.h"
#include "pool/pool_private.h"
#include "pool/sandbox_private.h"
#include "pool/work_private.h"

#define WORK_THREADS 2
#define TRASH_TRIES 20 /* while somebody still writes into it */
#define TRASH_PAUSE_NS 50000000L

struct work {
	STAILQ_ENTRY(work) link;
	void (*run)(void *arg);
	void (*done)(void *arg);
	void *arg;
};

struct pool_works {
	struct loop_watch *watch;
	int event;
	unsigned n_threads;
	pthread_t threads[WORK_THREADS];
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t some;
	STAILQ_HEAD(work_list, work) todo, ended;
	bool stop;
};

static void *work_thread(void *arg)
{
	struct pool_works *w = arg;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		struct work *one = STAILQ_FIRST(&w->todo);

		if (!one && w->stop)
			break;
		if (!one) {
			pthread_cond_wait(&w->some, &w->lock);
			continue;
		}
		STAILQ_REMOVE_HEAD(&w->todo, link);
		pthread_mutex_unlock(&w->lock);
		one->run(one->arg);
		pthread_mutex_lock(&w->lock);
		STAILQ_INSERT_TAIL(&w->ended, one, link);
		eventfd_write(w->event, 1);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void works_ended(void *user, short revents)
{
	struct work_list ended = STAILQ_HEAD_INITIALIZER(ended);
	struct pool_works *w = user;
	struct work *one;
	eventfd_t n;

	(void)revents;
	eventfd_read(w->event, &n);
	pthread_mutex_lock(&w->lock);
	STAILQ_CONCAT(&ended, &w->ended);
	pthread_mutex_unlock(&w->lock);
	while ((one = STAILQ_FIRST(&ended))) {
		STAILQ_REMOVE_HEAD(&ended, link);
		if (one->done)
			one->done(one->arg);
		free(one);
	}
}

int pool_works_new(struct loop *l, struct pool_works **ret, struct err *err)
{
	struct pool_works *w = calloc(1, sizeof(*w));
	sigset_t all, old;

	if (!w)
		abort();
	*w = (struct pool_works){
		.lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER};
	STAILQ_INIT(&w->todo);
	STAILQ_INIT(&w->ended);
	w->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->event >= 0)
		w->watch = loop_add(l, w->event, POLLIN, works_ended, w, err);
	else
		err_sys(err, errno, "an eventfd for the pool");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (w->watch && w->n_threads < WORK_THREADS &&
		pthread_create(&w->threads[w->n_threads], NULL, work_thread, w) == 0)
		w->n_threads++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!w->n_threads) {
		if (w->watch)
			err_set(err, EAGAIN, "a thread for the pool's files could not be made");
		pool_works_free(w);
		return -EAGAIN;
	}
	*ret = w;
	return 0;
}

void pool_works_free(struct pool_works *w)
{
	struct work *one;

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->some);
	pthread_mutex_unlock(&w->lock);
	for (unsigned i = 0; i < w->n_threads; i++)
		pthread_join(w->threads[i], NULL);
	while ((one = STAILQ_FIRST(&w->ended))) {
		STAILQ_REMOVE_HEAD(&w->ended, link);
		free(one);
	}
	loop_remove(w->watch);
	close_fd(&w->event);
	free(w);
}

void pool_work(struct pool_works *w, void (*run)(void *arg), void (*done)(void *arg), void *arg)
{
	struct work *one = malloc(sizeof(*one));

	if (!one)
		abort();
	*one = (struct work){.run = run, .done = done, .arg = arg};
	pthread_mutex_lock(&w->lock);
	STAILQ_INSERT_TAIL(&w->todo, one, link);
	pthread_cond_signal(&w->some);
	pthread_mutex_unlock(&w->lock);
}

static void trash_remove(void *arg)
{
	cleanup_free char *path = arg;
	struct err err = {0};
	int r = -1;

	/* a keeper may be in the middle of capturing into it */
	for (unsigned i = 0; i < TRASH_TRIES && r < 0; i++) {
		if (i)
			nanosleep(&(struct timespec){.tv_nsec = TRASH_PAUSE_NS}, NULL);
		r = file_remove_tree(AT_FDCWD, path, &err);
	}
	if (r < 0)
		log_warn("%s is left, until the pool starts again: %s", path, err.text);
}

int pool_trash(struct pool *p, const char *path, struct err *err)
{
	char name[POOL_ID_SIZE];
	char *to;

	pool_id_make(name);
	to = pool_path(p, "trash", name);
	if (rename(path, to) == 0) {
		pool_work(p->works, trash_remove, NULL, to);
		return 0;
	}
	free(to);
	return errno == ENOENT ? 0 : err_sys(err, errno, "removing %s", path);
}
