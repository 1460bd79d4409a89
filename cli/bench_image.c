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

struct request {
	struct bench_output out;
	struct words images;
	struct bench_numbers frames, levels; /* frames in KiB */
	uint64_t threads, reads, memory_mib, data_mib;
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
	progress_stage(rq->progress, name, "measurements", rq->frames.n * rq->levels.n);
	for (size_t i = 0; i < rq->frames.n && r == 0; i++) {
		for (size_t j = 0; j < rq->levels.n && r == 0; j++) {
			struct image_cost c;
			double stored, data;

			r = image_cost_measure(raw, bytes, (uint32_t)(rq->frames.items[i] * KIB),
				(int)rq->levels.items[j], (unsigned)rq->threads,
				(unsigned)rq->reads, &c, err);
			if (r < 0)
				break;
			stored = (double)c.stored_bytes / MIB;
			data = (double)c.data_bytes / MIB;
			text_add(&rq->text,
				"%8" PRIu64 " %5" PRIu64
				" %10.2f %10.2f %7.2f %8.0f %8.0f %8.0f %8.1f %8.1f %8.1f\n",
				rq->frames.items[i], rq->levels.items[j], data, stored,
				data / stored, ms(c.write_ns), ms(c.write_fast_ns), ms(c.expand_ns),
				us(c.read_p50_ns), us(c.read_p99_ns), us(c.read_max_ns));
			bench_run_row(rq->run,
				json_pack("[s, I, I, f, f, f, f, f, f, f, f]", name,
					(json_int_t)rq->frames.items[i],
					(json_int_t)rq->levels.items[j], data, stored,
					data / stored, ms(c.write_ns), ms(c.expand_ns),
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

static int take_levels(void *field, const char *option, const char *text, struct err *err)
{
	return bench_numbers(option, text, 1, 19, field, err);
}

static int run(void *args)
{
	static const char *const columns[] = {"image", "frame KiB", "level", "data MiB",
		"stored MiB", "ratio", "write ms", "expand ms", "read p50 µs", "p99 µs", "max µs"};
	struct request *rq = args;
	struct err err = {0};
	int r = 0;

	if (rq->make == (rq->images.n > 0))
		return command_usage(
			&command_bench_image, "name templates, raw files (./RAW), or --make one");
	rq->run = bench_run_new("image", "image", "Stored images by frame size and zstd level");
	bench_run_columns(rq->run, columns, sizeof(columns) / sizeof(columns[0]));
	rq->progress = progress_new(PROGRESS_AUTO);
	if (rq->make)
		r = measure_made(rq, &err);
	/* a path has a slash, a template's name has none */
	for (size_t i = 0; i < rq->images.n && r == 0; i++)
		r = strchr(rq->images.items[i], '/')
			? measure_file(rq, rq->images.items[i], &err)
			: measure_template(rq, rq->images.items[i], &err);
	if (r == 0)
		r = bench_finish(&rq->out, json_incref(rq->run), &rq->text, &err);
	json_decref(rq->run);
	text_clear(&rq->text);
	progress_free(rq->progress);
	return r < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry options[] = {
	{"frame", .kind = OPTION_CALL, .take = bench_take_kib,
		.offset = offsetof(struct request, frames), .value = "KIB,…",
		.help = "sizes of frames (16,64,256,1024)"},
	{"level", .kind = OPTION_CALL, .take = take_levels,
		.offset = offsetof(struct request, levels), .value = "N,…",
		.help = "zstd levels (1,3,6)"},
	{"threads", .kind = OPTION_NUMBER, .max = 64, .offset = offsetof(struct request, threads),
		.value = "N", .help = "threads that compress (0: one for each core)"},
	BENCH_COUNT(struct request, reads, 1000000, "frames read, one by one (2000)"),
	{"disk", .offset = offsetof(struct request, disk),
		.help = "the templates' disks instead of their memory"},
	{"make", .offset = offsetof(struct request, make),
		.help = "an image made of files of this host"},
	{"memory", .kind = OPTION_NUMBER, .min = 1, .max = 65536,
		.offset = offsetof(struct request, memory_mib), .value = "MIB",
		.help = "the size of that (512)"},
	{"data", .kind = OPTION_NUMBER, .min = 1, .max = 65536,
		.offset = offsetof(struct request, data_mib), .value = "MIB",
		.help = "what of it is data (45)"},
	{"from", .kind = OPTION_TEXT, .names = NAMES_DIR, .offset = offsetof(struct request, from),
		.value = "DIR", .help = "where the files are (/usr/lib)"},
	BENCH_OUTPUT(struct request, out),
	{0},
};

static const struct operand_entry operands[] = {
	{"IMAGE", .optional = true, .many = true, .names = NAMES_TEMPLATE,
		.offset = offsetof(struct request, images)},
	{0},
};

const struct command command_bench_image = {
	.name = "bench image",
	.summary = "stored images by frame size and zstd level",
	.notes = "An IMAGE is a template, or a raw file: a word with a slash.",
	.options = options,
	.operands = operands,
	.args_bytes = sizeof(struct request),
	.defaults =
		&(const struct request){
			.frames = {{16, 64, 256, 1024}, 4},
			.levels = {{1, 3, 6}, 3},
			.reads = 2000,
			.memory_mib = 512,
			.data_mib = 45,
			.from = "/usr/lib",
		},
	.run = run,
};
