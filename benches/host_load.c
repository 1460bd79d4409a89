/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load is read from /proc, all of it differences between begin and end. Our own children's time counts once they have
 * been waited for, so the end is read when none is left; a pager, which is nobody's child, counts as other work.
 */
#include "benches/host_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "benches/stats.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/str.h"

#define LOOP_STEPS 400000

static void read_ticks(uint64_t *ret_busy, uint64_t *ret_steal)
{
	/* user, nice, system, idle, iowait, irq, softirq, steal (proc(5)) */
	unsigned long long t[8] = {0};
	cleanup_file FILE *f = fopen("/proc/stat", "re");

	if (!f ||
		fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3],
			&t[4], &t[5], &t[6], &t[7]) != 8)
		memset(t, 0, sizeof(t));
	*ret_busy = t[0] + t[1] + t[2] + t[5] + t[6];
	*ret_steal = t[7];
}

static uint64_t read_waited_us(void)
{
	cleanup_file FILE *f = fopen("/proc/pressure/cpu", "re");
	unsigned long long total = 0;

	if (!f || fscanf(f, "some avg10=%*f avg60=%*f avg300=%*f total=%llu", &total) != 1)
		return UINT64_MAX;
	return total;
}

static int64_t own_ns(void)
{
	static const int whose[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
	int64_t ns = 0;

	for (int i = 0; i < 2; i++) {
		struct rusage u;

		getrusage(whose[i], &u);
		ns += (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000LL;
		ns += (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000LL;
	}
	return ns;
}

void host_load_begin(struct host_load *h)
{
	memset(h, 0, sizeof(*h));
	h->began_ns = clock_now_ns();
	h->own_ns = own_ns();
	h->waited_us = read_waited_us();
	read_ticks(&h->busy_ticks, &h->steal_ticks);
}

void host_load_loop(struct host_load *h)
{
	int64_t begin = clock_now_ns();
	volatile uint64_t x = 1;

	for (unsigned i = 0; i < LOOP_STEPS; i++)
		x = x * 6364136223846793005u + 1442695040888963407u;
	if (h->n_loops < HOST_LOAD_LOOPS)
		h->loops[h->n_loops++] = clock_now_ns() - begin;
}

static double positive(double x)
{
	return x > 0 ? x : 0;
}

void host_load_end(const struct host_load *h, struct host_load_result *ret)
{
	double took = (double)(clock_now_ns() - h->began_ns) / 1e9;
	double cores = (double)sysconf(_SC_NPROCESSORS_ONLN), hz = (double)sysconf(_SC_CLK_TCK);
	double own = (double)(own_ns() - h->own_ns) / 1e9;
	uint64_t busy, steal, waited = read_waited_us();
	cleanup_free int64_t *sorted = calloc(h->n_loops ?: 1, sizeof(*sorted));

	if (!sorted)
		abort();
	*ret = (struct host_load_result){.pressure = -1};
	read_ticks(&busy, &steal);
	took = took > 0.001 ? took : 0.001;
	ret->others = positive((double)(busy - h->busy_ticks) / hz - own) / took / cores;
	ret->steal = (double)(steal - h->steal_ticks) / hz / took / cores;
	if (waited != UINT64_MAX && h->waited_us != UINT64_MAX)
		ret->pressure = (double)(waited - h->waited_us) / 1e6 / took;
	if (h->n_loops) {
		memcpy(sorted, h->loops, h->n_loops * sizeof(*sorted));
		stats_sort(sorted, h->n_loops);
		ret->loop_usual =
			(double)stats_percentile_sorted(sorted, h->n_loops, 50) / (double)sorted[0];
		ret->loop_worst = (double)sorted[h->n_loops - 1] / (double)sorted[0];
	}
	ret->busy = ret->steal >= HOST_TOO_BUSY_STEAL || ret->loop_usual >= HOST_TOO_BUSY_LOOP
		? HOST_TOO_BUSY
		: ret->others >= HOST_BUSY_OTHERS || ret->steal >= HOST_BUSY_STEAL ||
			ret->loop_usual >= HOST_BUSY_LOOP
		? HOST_BUSY
		: HOST_IDLE;
}

char *host_load_text(const struct host_load_result *r)
{
	cleanup_free char *pressure = r->pressure < 0
		? str_dup("")
		: str_printf(", work waited for a core %.0f %% of the time", r->pressure * 100);
	cleanup_free char *loop = r->loop_usual > 0
		? str_printf(", a fixed loop took %.2f times its best, %.2f at the worst",
			  r->loop_usual, r->loop_worst)
		: str_dup("");

	return str_printf("other work took %.0f %% of the cores, the host's own host %.0f %%%s%s",
		r->others * 100, r->steal * 100, pressure, loop);
}

const char *host_busy_name(enum host_busy busy)
{
	static const char *const names[] = {
		[HOST_IDLE] = "idle", [HOST_BUSY] = "busy", [HOST_TOO_BUSY] = "too busy"};

	return names[busy];
}
