/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How pieces pass through the pipeline. The slots are a ring. Sequence numbers only grow; piece s
 * is in slot s % slots:
 *
 *     freed ≤ taken, followed ≤ made      freed ≤ claimed ≤ made      made - freed ≤ slots
 *
 * The calling thread makes pieces while a slot is free (that keeps the workers busy), and otherwise
 * takes the oldest piece that has been worked on. A slot is free again when both the taker and the
 * follower are past its piece. One lock guards the numbers and the flags; callbacks run without it.
 */
#include "store/pipeline.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>

#include "common/cleanup.h"

enum piece_state { PIECE_MADE, PIECE_CLAIMED, PIECE_WORKED };

struct pipeline {
	const struct pipeline_ops *ops;
	void *ctx;
	unsigned slots;
	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t to_work, to_use;
	uint8_t *state; /* enum piece_state of each slot in flight */
	uint64_t made, claimed, taken, followed;
	bool ended; /* next() has nothing more, or there was an error */
	unsigned worker_ids;
	int error;
	struct err err; /* of the first failure */
};

unsigned pipeline_cores(void)
{
	cpu_set_t set;
	int n;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 1;
	n = CPU_COUNT(&set);
	return n < 1 ? 1 : n > PIPELINE_WORKERS_MAX ? PIPELINE_WORKERS_MAX : (unsigned)n;
}

/* The first piece whose slot is still in use. */
static uint64_t freed(const struct pipeline *p)
{
	return p->ops->follow && p->followed < p->taken ? p->followed : p->taken;
}

/* With the lock: keep the first failure, wake everybody. */
static void fail(struct pipeline *p, int error, const struct err *err)
{
	if (!p->error) {
		p->error = error;
		p->err = *err;
	}
	p->ended = true;
	pthread_cond_broadcast(&p->to_work);
	pthread_cond_broadcast(&p->to_use);
}

static void *worker_main(void *arg)
{
	struct pipeline *p = arg;
	struct err err;
	unsigned id;

	pthread_mutex_lock(&p->lock);
	id = p->worker_ids++;
	for (;;) {
		unsigned slot;
		int r;

		if (p->claimed < freed(p))
			p->claimed = freed(p);
		while (!p->error && p->claimed < p->made &&
			p->state[p->claimed % p->slots] != PIECE_MADE)
			p->claimed++; /* needs no worker */
		if (p->error || (p->ended && p->claimed == p->made))
			break;
		if (p->claimed == p->made) {
			pthread_cond_wait(&p->to_work, &p->lock);
			continue;
		}
		slot = (unsigned)(p->claimed++ % p->slots);
		p->state[slot] = PIECE_CLAIMED;
		pthread_mutex_unlock(&p->lock);
		r = p->ops->work(p->ctx, slot, id, &err);
		pthread_mutex_lock(&p->lock);
		p->state[slot] = PIECE_WORKED;
		if (r < 0)
			fail(p, r, &err);
		pthread_cond_broadcast(&p->to_use);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void *follower_main(void *arg)
{
	struct pipeline *p = arg;
	struct err err;

	pthread_mutex_lock(&p->lock);
	while (!p->error && !(p->ended && p->followed == p->made)) {
		unsigned slot = (unsigned)(p->followed % p->slots);
		int r;

		if (p->followed == p->made || p->state[slot] != PIECE_WORKED) {
			pthread_cond_wait(&p->to_use, &p->lock);
			continue;
		}
		pthread_mutex_unlock(&p->lock);
		r = p->ops->follow(p->ctx, slot, &err);
		pthread_mutex_lock(&p->lock);
		p->followed++;
		if (r < 0)
			fail(p, r, &err);
		pthread_cond_broadcast(&p->to_use);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* With the lock, given up meanwhile: one more piece. */
static void make_piece(struct pipeline *p)
{
	unsigned slot = (unsigned)(p->made % p->slots);
	bool work = true;
	struct err err;
	int r;

	pthread_mutex_unlock(&p->lock);
	r = p->ops->next(p->ctx, slot, &work, &err);
	pthread_mutex_lock(&p->lock);
	if (r < 0) {
		fail(p, r, &err);
	} else if (r == 0) {
		p->ended = true;
		pthread_cond_broadcast(&p->to_work);
		pthread_cond_broadcast(&p->to_use);
	} else {
		p->state[slot] = work ? PIECE_MADE : PIECE_WORKED;
		p->made++;
		if (work)
			pthread_cond_signal(&p->to_work);
		else
			pthread_cond_broadcast(&p->to_use);
	}
}

static void take_piece(struct pipeline *p)
{
	unsigned slot = (unsigned)(p->taken % p->slots);
	struct err err;
	int r;

	pthread_mutex_unlock(&p->lock);
	r = p->ops->take ? p->ops->take(p->ctx, slot, &err) : 0;
	pthread_mutex_lock(&p->lock);
	p->taken++;
	if (r < 0)
		fail(p, r, &err);
}

/* The calling thread's part, with the lock. */
static void drive(struct pipeline *p)
{
	while (!p->error) {
		if (!p->ended && p->made - freed(p) < p->slots)
			make_piece(p);
		else if (p->taken < p->made && p->state[p->taken % p->slots] == PIECE_WORKED)
			take_piece(p);
		else if (p->ended && freed(p) == p->made)
			return;
		else
			pthread_cond_wait(&p->to_use, &p->lock);
	}
}

/* Signals are the other threads' business: ours are born with all of them blocked. */
static int start_thread(pthread_t *ret, void *(*body)(void *), struct pipeline *p)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(ret, NULL, body, p);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

int pipeline_run(const struct pipeline_ops *ops, void *ctx, unsigned slots, unsigned workers,
	struct err *err)
{
	struct pipeline p = {.ops = ops, .ctx = ctx, .slots = slots};
	pthread_t threads[PIPELINE_WORKERS_MAX + 1];
	cleanup_free uint8_t *state = NULL;
	unsigned n = 0;
	int r = 0;

	assert(slots >= 2 && workers >= 1 && workers <= PIPELINE_WORKERS_MAX);
	state = calloc(slots, 1);
	if (!state)
		return err_sys(err, ENOMEM, "start threads");
	p.state = state;
	pthread_mutex_init(&p.lock, NULL);
	pthread_cond_init(&p.to_work, NULL);
	pthread_cond_init(&p.to_use, NULL);
	if (ops->follow && (r = start_thread(&threads[n], follower_main, &p)) == 0)
		n++;
	for (unsigned i = 0; r == 0 && i < workers; i++) {
		r = start_thread(&threads[n], worker_main, &p);
		if (r == 0)
			n++;
		else if (i > 0)
			workers = i, r = 0; /* fewer will do */
	}
	pthread_mutex_lock(&p.lock);
	if (r) {
		struct err own;

		fail(&p, err_sys(&own, r, "start threads"), &own);
	}
	drive(&p);
	pthread_mutex_unlock(&p.lock);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	pthread_cond_destroy(&p.to_use);
	pthread_cond_destroy(&p.to_work);
	pthread_mutex_destroy(&p.lock);
	return p.error ? err_set(err, -p.error, "%s", p.err.text) : 0;
}
