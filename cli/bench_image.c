/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench image: what frame sizes and zstd levels cost, of a template's memory and disk, of
 * raw files, or of an image made for it (--make) where neither is at hand. benches/NOTES.md has
 * the figures that the defaults come from.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "benches/image.h"
#include "cli/bench.h"
#include "common/progress.h"
#include "common/str.h"
#include "store/image.h"

#define SIZES_MAX 16

struct request {
	struct bench_output out;
	uint64_t frames[SIZES_MAX], levels[SIZES_MAX], threads, reads, memory_mib, data_mib;
	size_t n_frames, n_levels;
	bool make, disk;
	const char *from;
	json_t *run;
	struct text text;
	struct progress *progress;
};

static double ms(int64_t ns)
{
	return (double)ns / 1e6;
}

static double us(int64_t ns)
{
	return (double)ns / 1e3;
}

static int measure(struct request *rq, const char *name, int raw, uint64_t bytes, struct err *err)
{
	uint64_t done = 0;
	int r = 0;

	text_add(&rq->text, "%s: %.1f MiB raw\n", name, (double)bytes / MIB);
	text_add(&rq->text, "%8s %5s %10s %10s %7s %8s %8s %8s %8s %8s %8s\n", "frame", "level",
		"data MiB", "stored", "ratio", "write ms", "no sha", "expand", "read p50", "p99 us",
		"max us");
	progress_stage(rq->progress, name, "measurements", rq->n_frames * rq->n_levels);
	for (size_t i = 0; i < rq->n_frames && r == 0; i++) {
		for (size_t j = 0; j < rq->n_levels && r == 0; j++) {
			struct image_cost c;
			double stored, data;

			r = image_cost_measure(raw, bytes, (uint32_t)(rq->frames[i] * KIB),
				(int)rq->levels[j], (unsigned)rq->threads, (unsigned)rq->reads, &c,
				err);
			if (r < 0)
				break;
			stored = (double)c.stored_bytes / MIB;
			data = (double)c.data_bytes / MIB;
			text_add(&rq->text,
				"%8" PRIu64 " %5" PRIu64
				" %10.2f %10.2f %7.2f %8.0f %8.0f %8.0f %8.1f %8.1f %8.1f\n",
				rq->frames[i], rq->levels[j], data, stored, data / stored,
				ms(c.write_ns), ms(c.write_fast_ns), ms(c.expand_ns),
				us(c.read_p50_ns), us(c.read_p99_ns), us(c.read_max_ns));
			bench_run_row(rq->run,
				json_pack("[s, I, I, f, f, f, f, f, f, f, f]", name,
					(json_int_t)rq->frames[i], (json_int_t)rq->levels[j], data,
					stored, data / stored, ms(c.write_ns), ms(c.expand_ns),
					us(c.read_p50_ns), us(c.read_p99_ns), us(c.read_max_ns)));
			progress_update(rq->progress, ++done);
		}
	}
	progress_done(rq->progress, NULL);
	return r;
}

static int measure_file(struct request *rq, const char *path, struct err *err)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(err, errno, "%s", path);
	if (!S_ISREG(st.st_mode) || st.st_size == 0)
		return err_set(err, EINVAL, "%s: not a raw image", path);
	return measure(rq, path, fd, (uint64_t)st.st_size, err);
}

static int measure_layer(struct request *rq, struct store *s, const struct store_manifest *m,
	const char *media, const char *what, struct err *err)
{
	const struct store_layer *l = store_layer(m, media);
	cleanup_free char *name = str_printf("%s, %s", m->name, what);
	cleanup_fd int blob = -1, raw = -1;
	cleanup_image struct image *img = NULL;
	int r;

	if (!l)
		return err_set(err, ENOENT, "%s has no %s", m->name, what);
	r = store_blob_open(s, l->digest, l->bytes, &blob, err);
	if (r == 0)
		r = image_open(blob, &img, err);
	if (r == 0)
		r = raw = image_scratch(err);
	if (r >= 0)
		r = image_expand(img, raw, NULL, NULL, err);
	return r < 0 ? r : measure(rq, name, raw, image_raw_bytes(img), err);
}

static int measure_template(struct request *rq, const char *ref, struct err *err)
{
	cleanup_manifest struct store_manifest m = {0};
	cleanup_store struct store *s = NULL;
	int r = cli_resolve(rq->out.store_dir, ref, &s, &m, err);

	if (r == 0)
		r = measure_layer(rq, s, &m, STORE_MEDIA_MEMORY, "memory", err);
	if (r == 0 && rq->disk)
		r = measure_layer(rq, s, &m, STORE_MEDIA_DISK, "disk", err);
	return r;
}

static int measure_made(struct request *rq, struct err *err)
{
	cleanup_fd int raw = image_scratch(err);
	int r = raw < 0
		? raw
		: image_make_raw(raw, rq->memory_mib * MIB, rq->data_mib * MIB, rq->from, err);

	return r < 0 ? r : measure(rq, "made image", raw, rq->memory_mib * MIB, err);
}

static int take_option(int opt, struct request *rq, struct err *err)
{
	int r = 0;

	switch (opt) {
	case 'f':
		r = bench_list(
			"--frame", optarg, 4, 4096, rq->frames, SIZES_MAX, &rq->n_frames, err);
		for (size_t i = 0; i < rq->n_frames && r == 0; i++) {
			if (rq->frames[i] & (rq->frames[i] - 1))
				r = err_set(err, EINVAL, "--frame %s: KiB, powers of two", optarg);
		}
		return r;
	case 'l':
		return bench_list(
			"--level", optarg, 1, 19, rq->levels, SIZES_MAX, &rq->n_levels, err);
	case 'T':
		return cli_number("--threads", optarg, 0, 64, &rq->threads, err);
	case 'n':
		return cli_number("-n", optarg, 1, 1000000, &rq->reads, err);
	case 'M':
		return cli_number("--memory", optarg, 1, 65536, &rq->memory_mib, err);
	case 'D':
		return cli_number("--data", optarg, 1, 65536, &rq->data_mib, err);
	case 'F':
		rq->from = optarg;
		return 0;
	case 'm':
		rq->make = true;
		return 0;
	case 'd':
		rq->disk = true;
		return 0;
	default:
		return bench_take_output(opt, &rq->out, &r, err)
			? r
			: err_set(err, EINVAL, "see above");
	}
}

static int parse(int argc, char **argv, struct request *rq)
{
	static const struct option options[] = {
		{"frame", required_argument, NULL, 'f'},
		{"level", required_argument, NULL, 'l'},
		{"threads", required_argument, NULL, 'T'},
		{"make", no_argument, NULL, 'm'},
		{"disk", no_argument, NULL, 'd'},
		{"memory", required_argument, NULL, 'M'},
		{"data", required_argument, NULL, 'D'},
		{"from", required_argument, NULL, 'F'},
		BENCH_OUTPUT_OPTIONS,
		{NULL, 0, NULL, 0},
	};
	struct err err = {0};
	int opt;

	while ((opt = getopt_long(argc, argv, "n:", options, NULL)) != -1) {
		if (take_option(opt, rq, &err) < 0)
			return cli_usage("bench", "%s", err.text);
	}
	if (rq->make ? optind != argc : optind == argc)
		return cli_usage("bench",
			"write `bench image TEMPLATE…`, `bench image ./RAW…` or `bench image "
			"--make`");
	return 0;
}

int bench_image_main(int argc, char **argv)
{
	static const char *const columns[] = {"image", "frame KiB", "level", "data MiB",
		"stored MiB", "ratio", "write ms", "expand ms", "read p50 µs", "p99 µs", "max µs"};
	struct request rq = {.frames = {16, 64, 256, 1024},
		.n_frames = 4,
		.levels = {1, 3, 6},
		.n_levels = 3,
		.reads = 2000,
		.memory_mib = 512,
		.data_mib = 45,
		.from = "/usr/lib"};
	struct err err = {0};
	int r = parse(argc, argv, &rq);

	if (r)
		return r;
	rq.run = bench_run_new("image", "image", "Stored images by frame size and zstd level");
	bench_run_columns(rq.run, columns, sizeof(columns) / sizeof(columns[0]));
	rq.progress = progress_new(PROGRESS_AUTO);
	if (rq.make)
		r = measure_made(&rq, &err);
	/* a path has a slash, a template's name has none */
	for (int i = optind; i < argc && r == 0; i++)
		r = strchr(argv[i], '/') ? measure_file(&rq, argv[i], &err)
					 : measure_template(&rq, argv[i], &err);
	if (r == 0)
		r = bench_finish(&rq.out, json_incref(rq.run), &rq.text, &err);
	json_decref(rq.run);
	text_clear(&rq.text);
	progress_free(rq.progress);
	return r < 0 ? cli_fail(&err) : CLI_OK;
}
