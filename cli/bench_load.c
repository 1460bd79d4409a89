/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates under load. A machine dies with the thread that started it, so each client is a thread,
 * and what it made is gone before it is.
 *
 * In a closed loop a slow create delays the ones behind it, which then never suffer what made it
 * slow ("coordinated omission"); the open loop has begin times that nothing moves, and counts
 * from them.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "cli/bench_sampler.h"
#include "cli/bench_side.h"
#include "common/clock.h"

#define LOOK_NS 100000000 /* how often one that waits looks whether it is to end */

struct crowd {
	const struct bench_load *load;
	struct bench_series *series;
	pthread_barrier_t together;
	int64_t begun; /* written between two barriers */
	pthread_mutex_t lock; /* series and what follows */
	uint64_t next, done;
	unsigned lanes; /* clients that have one */
};

static unsigned take_lane(struct crowd *c)
{
	unsigned lane;

	pthread_mutex_lock(&c->lock);
	lane = c->lanes++;
	pthread_mutex_unlock(&c->lock);
	return lane;
}

static void keep(struct crowd *c, unsigned lane, int r, struct bench_sample *one,
	const struct bench_moments *m, const struct err *err)
{
	pthread_mutex_lock(&c->lock);
	if (r == 0 && c->load->sampled)
		c->load->sampled(c->load->user, lane, one, m);
	if (r == 0)
		bench_series_add(c->series, one);
	else if (!bench_stop_asked())
		bench_series_fail(c->series, err);
	progress_update(c->load->progress, ++c->done);
	pthread_mutex_unlock(&c->lock);
}

/* One create of @mode, prepared already (@prepared: with what result). */
static void create_and_keep(struct crowd *c, unsigned lane, struct sandbox **sb, int prepared,
	struct bench_moments *m, struct bench_counted *counted, struct err *err)
{
	struct bench_sample one = {0};
	int r = prepared;

	if (r == 0)
		r = bench_create_one(c->load->sampler, c->load->mode, sb, m, counted, &one, err);
	one.at = m->begin - c->begun;
	keep(c, lane, r, &one, m, err);
}

/* Round after round: prepare, begin together, stay until all are made. */
static void *closed_client(void *arg)
{
	struct crowd *c = arg;
	uint64_t clients = c->load->clients, rounds = (c->load->n + clients - 1) / clients;
	unsigned lane = take_lane(c);

	for (uint64_t round = 0; round < rounds; round++) {
		cleanup_sandbox struct sandbox *sb = NULL;
		cleanup_counted struct bench_counted counted;
		bool mine = round * clients + lane < c->load->n;
		struct bench_moments m = {0};
		struct err err = {0};
		int r;

		bench_count_open(&counted);
		r = mine ? bench_prepare(c->load->sampler, c->load->mode, &sb, &err) : 0;
		bench_count_begin(c->load->sampler, sb, &counted);
		pthread_barrier_wait(&c->together);
		if (mine)
			create_and_keep(c, lane, &sb, r, &m, &counted, &err);
		pthread_barrier_wait(&c->together);
	}
	return NULL;
}

/* Until @when, or until it is to end. */
static void sleep_until(int64_t when)
{
	int64_t now;

	while ((now = clock_now_ns()) < when && !bench_stop_asked()) {
		int64_t to = when - now > LOOK_NS ? now + LOOK_NS : when;
		const struct timespec ts = {.tv_sec = to / 1000000000, .tv_nsec = to % 1000000000};

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
	}
}

/* Prepared first, so that a standby or spare waits for its request, as a pool's do. */
static void *open_client(void *arg)
{
	struct crowd *c = arg;
	unsigned lane = take_lane(c);
	bool first = true;

	for (;;) {
		cleanup_sandbox struct sandbox *sb = NULL;
		cleanup_counted struct bench_counted counted;
		struct bench_moments m = {0};
		struct err err = {0};
		uint64_t mine;
		int r;

		bench_count_open(&counted);
		r = bench_prepare(c->load->sampler, c->load->mode, &sb, &err);
		bench_count_begin(c->load->sampler, sb, &counted);
		if (first) {
			/* NOLINTNEXTLINE(bugprone-posix-return): this constant is negative */
			if (pthread_barrier_wait(&c->together) == PTHREAD_BARRIER_SERIAL_THREAD)
				c->begun = clock_now_ns();
			pthread_barrier_wait(&c->together);
			first = false;
		}
		pthread_mutex_lock(&c->lock);
		mine = c->next++;
		pthread_mutex_unlock(&c->lock);
		if (mine >= c->load->n || bench_stop_asked())
			return NULL;
		m.begin = c->begun + (int64_t)((double)mine * 1e9 / c->load->rate);
		sleep_until(m.begin);
		if (bench_stop_asked())
			return NULL;
		m.started = clock_now_ns();
		create_and_keep(c, lane, &sb, r, &m, &counted, &err);
	}
}

/* One after the other, in this thread. */
static void alone(struct crowd *c)
{
	const struct bench_load *load = c->load;

	for (uint64_t i = 0; i < load->n && !bench_stop_asked(); i++) {
		cleanup_sandbox struct sandbox *sb = NULL;
		cleanup_counted struct bench_counted counted;
		struct bench_sampler *b = load->sampler;
		struct pager_stats before = {0}, after = {0};
		struct bench_moments m = {0};
		struct bench_sample one = {0};
		struct err err = {0};
		bool uffd, fresh = bench_sampler_reopens(b) && load->mode == MODE_COLD;
		int r;

		bench_count_open(&counted);
		r = bench_prepare(b, load->mode, &sb, &err);
		if (r == 0 && !fresh && pager_client_way(template_pager(b->template)) == PAGER_UFFD)
			r = pager_client_get_stats(template_pager(b->template), &before, &err);
		bench_count_begin(b, sb, &counted);
		if (r == 0)
			r = bench_create_one(b, load->mode, &sb, &m, &counted, &one, &err);
		uffd = r == 0 && pager_client_way(template_pager(b->template)) == PAGER_UFFD;
		if (uffd)
			r = pager_client_get_stats(template_pager(b->template), &after, &err);
		one.at = m.begin - c->begun;
		one.faults = after.faults - before.faults;
		one.premapped = after.pages_premapped - before.pages_premapped;
		keep(c, 0, r, &one, &m, &err);
	}
}

static int start_clients(struct crowd *c, struct err *err)
{
	unsigned n = c->load->clients, started = 0;
	sigset_t ask, before;
	pthread_t *ids = calloc(n, sizeof(*ids));
	int r = 0;

	if (!ids)
		return err_set(err, ENOMEM, "no memory for %u clients", n);
	pthread_barrier_init(&c->together, NULL, n);
	/* who asks for an end is heard by the thread that waits here */
	sigemptyset(&ask);
	sigaddset(&ask, SIGINT);
	sigaddset(&ask, SIGTERM);
	sigaddset(&ask, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &ask, &before);
	while (started < n && r == 0) {
		r = pthread_create(
			&ids[started], NULL, c->load->rate > 0 ? open_client : closed_client, c);
		started += r == 0;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	/* those that wait for the others would wait for ever: there is no way on */
	if (r != 0) {
		fprintf(stderr, "parbake: cannot start %u threads\n", n);
		_exit(1);
	}
	for (unsigned i = 0; i < started; i++)
		pthread_join(ids[i], NULL);
	pthread_barrier_destroy(&c->together);
	free(ids);
	return 0;
}

int bench_load_run(const struct bench_load *load, struct bench_series *s, struct err *err)
{
	struct crowd c = {.load = load, .series = s, .begun = load->begun};
	int64_t begin = clock_now_ns();
	int r = 0;

	pthread_mutex_init(&c.lock, NULL);
	if (load->clients == 1 && load->rate <= 0)
		alone(&c);
	else
		r = start_clients(&c, err);
	s->span += clock_now_ns() - begin;
	pthread_mutex_destroy(&c.lock);
	return r;
}
