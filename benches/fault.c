/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of a page. The child is forked before the engine starts its threads, and only waits
 * until it is given the memory and a pager's socket; it then does what a monitor does (maps
 * privately, registers, hands over) and touches page after page. Its numbers come back over the
 * same socket.
 *
 * The image's pages are half random, half text, so that they compress about as a guest's memory
 * does (2 to 3).
 */
#include "benches/fault.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "benches/stats.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/sock.h"
#include "restore/pager/pager.h"
#include "restore/pager/uffd.h"
#include "store/image.h"

#define CHILD_SECONDS 120

const char *const fault_source_names[] = {"private mapping", "filled memfd", "zstd frame", "hole"};
static_assert(
	sizeof(fault_source_names) / sizeof(fault_source_names[0]) == FAULT_SOURCES, "all named");

/* ---- the machine --------------------------------------------------------------------------- */

struct answer {
	int64_t total_ns;
	uint64_t n_waits; /* that many int64_t follow */
};

static int64_t touch(volatile uint8_t *page, bool write)
{
	int64_t began = clock_now_ns();

	if (write)
		*page = 1;
	else
		(void)*page;
	return clock_now_ns() - began;
}

/* Register with the pager at @sock, as the preload library does. */
static void attach(int sock, void *map, uint64_t bytes)
{
	int uffd = uffd_create(NULL, NULL);
	char text[160], ok[4] = "";
	size_t got = 0;
	int len;

	if (uffd < 0 || uffd_register(uffd, map, bytes) < 0)
		_exit(3);
	len = snprintf(text, sizeof(text),
		"[{\"base_host_virt_addr\":%llu,\"size\":%llu,\"offset\":0,\"page_size\":4096}]",
		(unsigned long long)(uintptr_t)map, (unsigned long long)bytes);
	if (sock_send_fds(sock, text, (size_t)len, &uffd, 1) < 0)
		_exit(4);
	while (got < 3) {
		ssize_t n = read(sock, ok + got, 3 - got);

		if (n <= 0)
			_exit(5);
		got += (size_t)n;
	}
}

static void machine_main(int sock, const struct fault_spec *spec)
{
	uint64_t pages = spec->bytes / IMAGE_PAGE;
	int64_t *waits = calloc(pages ?: 1, sizeof(*waits)), began;
	struct answer a = {0};
	int fds[2] = {-1, -1};
	size_t n_fds = 2;
	uint8_t *map;
	char word;

	alarm(CHILD_SECONDS); /* never to stay behind */
	if (!waits || sock_recv_fds(sock, &word, 1, fds, &n_fds) != 1 || n_fds < 1)
		_exit(1);
	map = mmap(
		NULL, spec->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fds[0], 0);
	if (map == MAP_FAILED)
		_exit(2);
	if (n_fds == 2)
		attach(fds[1], map, spec->bytes);
	for (uint64_t page = 0; page < pages; page++) /* the results' own pages are no part of it */
		waits[page] = 1;
	began = clock_now_ns();
	for (uint64_t page = 0; page < pages; page++) {
		int64_t took = touch(map + page * IMAGE_PAGE, spec->write);

		if (took >= FAULT_WAITED_NS)
			waits[a.n_waits++] = took;
	}
	a.total_ns = clock_now_ns() - began;
	if (file_write_full(sock, &a, sizeof(a)) < 0 ||
		file_write_full(sock, waits, a.n_waits * sizeof(*waits)) < 0)
		_exit(6);
	_exit(0);
}

/* ---- the image ----------------------------------------------------------------------------- */

static int make_image(const struct fault_spec *spec, int *ret, struct err *err)
{
	cleanup_fd int raw = memfd_create("parbake-raw", MFD_CLOEXEC);
	cleanup_fd int out = memfd_create("parbake-image", MFD_CLOEXEC);
	const struct image_options opt = {.frame_bytes = spec->frame_bytes, .no_raw_digest = true};
	struct stats_random random = {.state = 1};
	uint64_t words[IMAGE_PAGE / 8];
	struct image_stats stats;
	int r = raw < 0 || out < 0 || ftruncate(raw, (off_t)spec->bytes) < 0 ? -errno : 0;

	for (uint64_t at = 0; spec->source != FAULT_HOLE && at < spec->bytes && r == 0;
		at += IMAGE_PAGE) {
		for (size_t i = 0; i < IMAGE_PAGE / 8; i++)
			words[i] = i % 16 < 6 ? stats_random_next(&random)
					      : 0x2065676170206120 + i % 7;
		r = file_pwrite_full(raw, words, sizeof(words), (off_t)at);
	}
	if (r < 0)
		return err_sys(err, -r, "make a memory image to measure with");
	r = image_write(raw, spec->bytes, &opt, out, NULL, &stats, err);
	if (r == 0)
		*ret = steal_fd(&out);
	return r;
}

/* ---- measuring ----------------------------------------------------------------------------- */

/* The word to go: its memory and, with @uffd, a socket that the pager has the other end of. */
static int send_machine(int sock, struct pager *p, bool uffd, struct err *err)
{
	int fds[2] = {pager_memory_fd(p), -1}, pair[2], r;

	if (!uffd) {
		r = sock_send_fds(sock, "g", 1, fds, 1);
		return r < 0 ? err_sys(err, -r, "give a machine its memory") : 0;
	}
	r = sock_pair(pair, err);
	if (r < 0)
		return r;
	r = pager_attach(p, pair[0], NULL, -1, err);
	if (r == 0) {
		fds[1] = pair[1];
		r = sock_send_fds(sock, "g", 1, fds, 2);
		if (r < 0)
			err_sys(err, -r, "give a machine its memory");
	}
	close(pair[1]);
	return r;
}

static int read_full(int fd, void *buf, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = read(fd, (char *)buf + got, len - got);

		if (n <= 0)
			return n < 0 ? -errno : -ECONNRESET;
		got += (size_t)n;
	}
	return 0;
}

static int receive(
	int sock, const struct fault_spec *spec, struct fault_result *ret, struct err *err)
{
	cleanup_free int64_t *waits = NULL;
	struct answer a;
	int r = read_full(sock, &a, sizeof(a));

	if (r == 0 && a.n_waits > spec->bytes / IMAGE_PAGE)
		r = -EPROTO;
	if (r == 0) {
		waits = calloc(a.n_waits ?: 1, sizeof(*waits));
		r = waits ? read_full(sock, waits, a.n_waits * sizeof(*waits)) : -ENOMEM;
	}
	if (r < 0)
		return err_sys(err, -r, "hear from the machine that touches pages");
	ret->total_ns = a.total_ns;
	ret->pages = spec->bytes / IMAGE_PAGE;
	bench_series_init(&ret->waits, fault_source_names[spec->source], false, false);
	for (uint64_t i = 0; waits && i < a.n_waits; i++)
		bench_series_add_time(&ret->waits, waits[i]);
	return 0;
}

/* A machine, forked. Returns our end of its socket, its number in *@ret_pid. */
static int start_machine(const struct fault_spec *spec, pid_t *ret_pid, struct err *err)
{
	int pair[2], r = sock_pair(pair, err);

	if (r < 0)
		return r;
	*ret_pid = fork();
	if (*ret_pid == 0) {
		close(pair[0]);
		machine_main(pair[1], spec);
	}
	close(pair[1]);
	if (*ret_pid < 0) {
		r = err_sys(err, errno, "start a machine that touches pages");
		close(pair[0]);
		return r;
	}
	return pair[0];
}

static int one_machine(struct pager *p, int sock, const struct fault_spec *spec,
	struct fault_result *ret, struct err *err)
{
	struct pager_stats before, after;
	int r;

	pager_get_stats(p, &before);
	r = send_machine(sock, p, spec->source != FAULT_PRIVATE, err);
	if (r == 0)
		r = receive(sock, spec, ret, err);
	pager_get_stats(p, &after);
	ret->faults = after.faults - before.faults;
	return r;
}

int fault_measure(const struct fault_spec *spec, struct fault_result *ret, struct err *err)
{
	bool uffd = spec->source != FAULT_PRIVATE;
	const struct pager_options opt = {.window_bytes = spec->window_bytes, .no_premap = true};
	const struct fault_spec filling = {.source = FAULT_FRAME, .bytes = spec->bytes};
	struct fault_result ignored = {0};
	cleanup_pager struct pager *p = NULL;
	cleanup_image struct image *img = NULL;
	cleanup_fd int image = -1, sock = -1, filler = -1;
	pid_t pid = 0, filler_pid = 0;
	int r = uffd ? pager_probe(NULL, err) : 0;

	*ret = (struct fault_result){0};
	if (r < 0 || (r = make_image(spec, &image, err)) < 0)
		return r;
	/* before there are threads */
	r = sock = start_machine(spec, &pid, err);
	if (r >= 0 && spec->source == FAULT_FILLED)
		r = filler = start_machine(&filling, &filler_pid, err);
	if (r >= 0)
		r = image_open(image, &img, err);
	if (r >= 0)
		r = pager_new(img, NULL, uffd ? PAGER_UFFD : PAGER_PRIVATE, &opt, &p, err);
	/* another machine touches everything first, so that every frame is in the memfd */
	if (r >= 0 && filler >= 0)
		r = one_machine(p, filler, &filling, &ignored, err);
	if (r >= 0)
		r = one_machine(p, sock, spec, ret, err);
	/* a machine that was told nothing ends when its socket does */
	close_fd(&sock);
	close_fd(&filler);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	if (filler_pid > 0)
		waitpid(filler_pid, NULL, 0);
	bench_series_clear(&ignored.waits);
	if (r < 0)
		bench_series_clear(&ret->waits);
	return r < 0 ? r : 0;
}
