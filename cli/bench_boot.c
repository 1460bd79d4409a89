/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench boot: the cold boot that a restore is compared with: the same machine, kernel, initramfs and disk as the
 * template's, started from nothing up to the agent's answer. What every boot needs anyway (memory, overlay)
 * is inside the measured time, as it is for a create.
 */
#include "cli/bench_boot.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "benches/series.h"
#include "cli/bench.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/progress.h"
#include "common/paths.h"
#include "vmm/boot.h"
#include "vmm/cmdline.h"

static int blob_path(struct store *s, const struct store_manifest *m, const char *media, char **ret,
	struct err *err)
{
	const struct store_layer *layer = store_layer(m, media);

	if (!layer)
		return err_set(err, ENOENT, "%s:%s has no %s", m->name, m->tag, media);
	*ret = str_printf("%s/blobs/sha256/%s", store_dir(s), layer->digest + strlen("sha256:"));
	return 0;
}

/* Up to the answer. *@ret_smaps (may be NULL): the machine's memory then. */
static int boot_once(const struct machine_spec *spec, int64_t *ret_end, struct smaps *ret_smaps, struct err *err)
{
	cleanup_machine struct machine *machine = NULL;
	cleanup_guest struct guest *guest = NULL;
	struct proto_hello hello;
	int r = machine_start(spec, &machine, err);

	if (r < 0)
		return r;
	r = guest_new(machine_take_channel(machine), &guest, err);
	if (r < 0)
		return r;
	r = machine_boot_wait(machine, guest, NULL, &hello, err);
	*ret_end = clock_now_ns();
	if (!r && !(hello.flags & PROTO_HELLO_ROOT))
		r = err_set(err, EPROTO, "the agent answered without a root");
	if (!r && ret_smaps)
		r = smaps_read(machine_pid(machine), ret_smaps, err);
	return r;
}

static int boot(struct store *s, const struct store_manifest *m, struct template *t, int64_t *ret,
	struct smaps *ret_smaps, struct err *err)
{
	const struct snapshot_config *c = template_config(t);
	cleanup_free char *kernel = NULL, *initrd = NULL, *cmdline = NULL;
	cleanup_fd int memory = -1, overlay = -1;
	struct machine_spec spec = {
		.shape = {.memory_bytes = c->memory_bytes, .vcpus = c->vcpus},
		.pager_fd = -1,
		.disk_fd = template_disk_fd(t),
	};
	const char *scratch;
	int64_t begin, end = 0;
	int r = machine_accel_parse(c->accel, &spec.shape.accel);

	if (r < 0)
		return err_set(err, EINVAL, "accelerator \"%s\"", c->accel);
	if ((r = blob_path(s, m, STORE_MEDIA_KERNEL, &kernel, err)) < 0 ||
		(r = blob_path(s, m, STORE_MEDIA_INITRD, &initrd, err)) < 0 ||
		(r = machine_cmdline(spec.shape.accel, &cmdline, err)) < 0)
		return r;
	begin = clock_now_ns();
	memory = memfd_create("parbake-boot", MFD_CLOEXEC);
	if (memory < 0 || ftruncate(memory, (off_t)c->memory_bytes) < 0)
		return err_sys(err, errno, "make the machine's memory");
	if ((r = paths_get(PATHS_CACHE, &scratch, err)) < 0 ||
		(r = overlay = file_scratch(scratch, err)) < 0 ||
		(r = machine_overlay_init(overlay, c->disk_bytes, err)) < 0)
		return r;
	spec.memory_fd = memory;
	spec.overlay_fd = overlay;
	spec.kernel = kernel;
	spec.initrd = initrd;
	spec.cmdline = cmdline;
	r = boot_once(&spec, &end, ret_smaps, err);
	if (r == 0)
		*ret = end - begin;
	return r;
}

int bench_boot(struct store *s, const struct store_manifest *m, struct template *t, int64_t *ret,
	struct err *err)
{
	return boot(s, m, t, ret, NULL, err);
}

int bench_boot_smaps(struct store *s, const struct store_manifest *m, struct template *t,
	struct smaps *ret, struct err *err)
{
	int64_t ignored;

	return boot(s, m, t, &ignored, ret, err);
}

/* ---- bench boot ---------------------------------------------------------------------------- */

static void run_boots(struct store *s, const struct store_manifest *m, struct template *t, uint64_t n,
	struct progress *progress, struct bench_series *series)
{
	progress_stage(progress, "boot", "boots", n);
	for (uint64_t i = 0; i < n; i++) {
		struct err why = {0};
		int64_t took;

		if (bench_boot(s, m, t, &took, &why) == 0)
			bench_series_add_time(series, took);
		else
			bench_series_fail(series, &why);
		progress_update(progress, i + 1);
	}
	progress_done(progress, "%zu failed", series->failed);
}

static int finish(const struct bench_output *o, const struct store_manifest *m, struct template *t,
	const struct bench_series *series, struct err *err)
{
	cleanup_free char *id = str_printf("boot %s", m->name);
	cleanup_free char *title = str_printf("Cold boot of %s to the agent's answer", m->name);
	cleanup_text struct text out = {0};
	json_t *run = bench_run_new("boot", id, title);
	int r;

	bench_run_template(run, m, t);
	bench_run_append(run, "series", bench_series_to_json(series));
	text_add(&out, "%s; times in ms\n", title);
	bench_print_head(&out, "", "");
	bench_print_series(&out, series, 1e6);
	r = bench_finish(o, run, &out, err);
	if (r == 0 && series->failed)
		r = err_set(err, EIO, "%zu boots failed", series->failed);
	return r;
}

int bench_boot_main(int argc, char **argv)
{
	static const struct option options[] = {BENCH_OUTPUT_OPTIONS, {NULL, 0, NULL, 0}};
	struct bench_output out = {0};
	cleanup_series struct bench_series series = {0};
	cleanup_manifest struct store_manifest m = {0};
	cleanup_template struct template *t = NULL;
	cleanup_store struct store *s = NULL;
	struct progress *progress;
	struct err err = {0};
	uint64_t n = 10;
	int opt, r = 0;

	while ((opt = getopt_long(argc, argv, "n:", options, NULL)) != -1) {
		if (opt == 'n')
			r = cli_number("-n", optarg, 1, 10000, &n, &err);
		else if (!bench_take_output(opt, &out, &r, &err))
			return cli_usage("bench", "see above");
		if (r < 0)
			return cli_usage("bench", "%s", err.text);
	}
	if (argc - optind != 1)
		return cli_usage("bench", "write `bench boot TEMPLATE`");
	progress = progress_new(PROGRESS_AUTO);
	bench_series_init(&series, "boot", false, false);
	r = cli_resolve(out.store_dir, argv[optind], &s, &m, &err);
	if (r == 0)
		r = template_open(s, &m, &(struct template_options){.progress = progress}, &t, &err);
	if (r == 0) {
		run_boots(s, &m, t, n, progress, &series);
		r = finish(&out, &m, t, &series, &err);
	}
	progress_free(progress);
	return r < 0 ? cli_fail(&err) : CLI_OK;
}
