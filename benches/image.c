/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a frame size and a zstd level cost: for each raw image given, each frame size and each
 * level, the stored size, the speed of writing, and the time to read one frame that holds data
 * (that is a page fault's wait) and all of them.
 *
 *     build/bench_image [-f BYTES,…] [-l LEVEL,…] [-j THREADS] [-n READS] RAW…
 *     build/bench_image --make FILE [--memory MIB] [--data MIB] [--from DIR]
 *
 * The second form makes a raw image like a guest's memory: a sparse file in which runs of 1 to
 * 64 pages of files below DIR lie scattered, as the kernel's page cache and heap do.
 */
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "store/image.h"

#define LIST_MAX 16

struct list {
	unsigned items[LIST_MAX];
	size_t n;
};

static struct list frames = {{16384, 32768, 65536, 131072, 262144, 1048576}, 6};
static struct list levels = {{1, 3, 6, 9}, 4};
static unsigned threads, reads = 2000;

static void parse_list(const char *text, struct list *ret)
{
	ret->n = 0;
	while (*text && ret->n < LIST_MAX) {
		char *end;

		ret->items[ret->n++] = (unsigned)strtoul(text, &end, 10);
		text = *end ? end + 1 : end;
	}
}

static int by_time(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* One thread reads @reads frames with data at random: the times, sorted. */
static size_t read_some(struct image *img, int64_t *times)
{
	uint64_t raw = image_raw_bytes(img), state = 1;
	uint8_t *buf = malloc(image_frame_bytes(img) + 1);
	struct err err;
	size_t n = 0;

	for (size_t tries = 0; n < reads && tries < 1000UL * reads; tries++) {
		uint64_t at, start, bytes;
		int64_t began;

		state = state * 6364136223846793005u + 1442695040888963407u;
		at = (state >> 16) % raw / IMAGE_PAGE * IMAGE_PAGE;
		if (!image_page_has_data(img, at))
			continue;
		image_frame_at(img, at, &start, &bytes);
		began = clock_now_ns();
		if (image_read_frame(img, start, buf, &err) < 0) {
			fprintf(stderr, "%s\n", err.text);
			exit(1);
		}
		times[n++] = clock_now_ns() - began;
	}
	qsort(times, n, sizeof(*times), by_time);
	free(buf);
	return n;
}

static void measure(int raw, uint64_t raw_bytes, unsigned frame, unsigned level)
{
	struct image_options opt = {.frame_bytes = frame, .level = (int)level, .threads = threads};
	cleanup_fd int out = file_scratch("/tmp", NULL), back = file_scratch("/tmp", NULL);
	cleanup_image struct image *img = NULL;
	cleanup_free int64_t *times = calloc(reads + 1, sizeof(*times));
	struct image_stats stats, no_digest;
	int64_t began, wrote, wrote_fast, expanded;
	struct err err;
	size_t n;

	began = clock_now_ns();
	if (image_write(raw, raw_bytes, &opt, out, NULL, &stats, &err) < 0)
		goto failed;
	wrote = clock_now_ns() - began;
	opt.no_raw_digest = true;
	began = clock_now_ns();
	if (image_write(raw, raw_bytes, &opt, back, NULL, &no_digest, &err) < 0)
		goto failed;
	wrote_fast = clock_now_ns() - began;
	if (image_open(out, &img, &err) < 0)
		goto failed;
	n = read_some(img, times);
	began = clock_now_ns();
	if (image_expand(img, back, NULL, NULL, &err) < 0)
		goto failed;
	expanded = clock_now_ns() - began;
	printf("%8u %5u %10.2f %7.2f %8.0f %8.0f %8.0f %8.1f %8.1f %8.1f\n", frame / 1024, level,
		(double)stats.stored_bytes / MIB,
		(double)stats.data_bytes / (double)stats.stored_bytes, (double)wrote / 1e6,
		(double)wrote_fast / 1e6, (double)expanded / 1e6,
		n ? (double)times[n / 2] / 1e3 : 0, n ? (double)times[n * 99 / 100] / 1e3 : 0,
		n ? (double)times[n - 1] / 1e3 : 0);
	fflush(stdout);
	return;
failed:
	fprintf(stderr, "%s\n", err.text);
	exit(1);
}

static int bench(const char *path)
{
	cleanup_fd int raw = open(path, O_RDONLY | O_CLOEXEC);
	struct image_stats stats;
	struct stat st;
	struct err err;
	cleanup_fd int out = file_scratch("/tmp", NULL);

	if (raw < 0 || fstat(raw, &st) < 0) {
		perror(path);
		return 1;
	}
	/* once for the page cache, and for what is in it */
	if (image_write(raw, (uint64_t)st.st_size, NULL, out, NULL, &stats, &err) < 0) {
		fprintf(stderr, "%s: %s\n", path, err.text);
		return 1;
	}
	printf("%s: %.1f MiB raw, %.1f MiB in pages that are not zero\n", path,
		(double)stats.raw_bytes / MIB, (double)stats.data_bytes / MIB);
	printf("%8s %5s %10s %7s %8s %8s %8s %8s %8s %8s\n", "frame", "level", "stored", "ratio",
		"write", "no sha", "expand", "read p50", "p99", "max");
	printf("%8s %5s %10s %7s %8s %8s %8s %8s %8s %8s\n", "KiB", "", "MiB", "", "ms", "ms", "ms",
		"us", "us", "us");
	for (size_t i = 0; i < frames.n; i++)
		for (size_t j = 0; j < levels.n; j++)
			measure(raw, (uint64_t)st.st_size, frames.items[i], levels.items[j]);
	return 0;
}

/* ---- a raw image to measure ---- */

static int make_fd = -1;
static uint64_t make_bytes = 512 * MIB, make_left = 45 * MIB, make_state = 42;

static uint64_t make_random(void)
{
	make_state = make_state * 6364136223846793005u + 1442695040888963407u;
	return make_state >> 33;
}

/* Scatter a file's pages in runs. */
static int scatter(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	static char run[64 * IMAGE_PAGE];
	cleanup_fd int fd = -1;
	ssize_t n;

	(void)ftw;
	if (kind != FTW_F || !S_ISREG(st->st_mode) || make_random() % 8)
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && make_left) {
		size_t len = (1 + make_random() % 64) * IMAGE_PAGE;
		uint64_t at = make_random() % (make_bytes / IMAGE_PAGE - 64) * IMAGE_PAGE;

		n = read(fd, run, len < make_left ? len : make_left);
		if (n <= 0)
			break;
		if (file_pwrite_full(make_fd, run, (size_t)n, (off_t)at) < 0)
			return 1;
		make_left -= (uint64_t)n;
	}
	return make_left == 0;
}

static int make(const char *path, const char *from)
{
	make_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (make_fd < 0 || ftruncate(make_fd, (off_t)make_bytes) < 0) {
		perror(path);
		return 1;
	}
	nftw(from, scatter, 16, FTW_PHYS);
	if (make_left) {
		fprintf(stderr, "%s: too little below %s\n", path, from);
		return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"make", required_argument, NULL, 'm'},
		{"memory", required_argument, NULL, 'M'},
		{"data", required_argument, NULL, 'd'},
		{"from", required_argument, NULL, 'F'},
		{NULL, 0, NULL, 0},
	};
	const char *made = NULL, *from = "/usr/lib";
	int opt, r = 0;

	while ((opt = getopt_long(argc, argv, "f:l:j:n:", options, NULL)) != -1) {
		switch (opt) {
		case 'f':
			parse_list(optarg, &frames);
			break;
		case 'l':
			parse_list(optarg, &levels);
			break;
		case 'j':
			threads = (unsigned)atoi(optarg);
			break;
		case 'n':
			reads = (unsigned)atoi(optarg);
			break;
		case 'm':
			made = optarg;
			break;
		case 'M':
			make_bytes = strtoull(optarg, NULL, 10) * MIB;
			break;
		case 'd':
			make_left = strtoull(optarg, NULL, 10) * MIB;
			break;
		case 'F':
			from = optarg;
			break;
		default:
			return 2;
		}
	}
	if (made)
		return make(made, from);
	if (optind == argc) {
		fprintf(stderr,
			"usage: %s [-f BYTES,…] [-l LEVEL,…] [-j THREADS] [-n READS] RAW…\n"
			"       %s --make FILE [--memory MIB] [--data MIB] [--from DIR]\n",
			argv[0], argv[0]);
		return 2;
	}
	for (; optind < argc && r == 0; optind++)
		r = bench(argv[optind]);
	return r;
}
