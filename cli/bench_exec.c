/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench exec: what a running sandbox answers in, and what it carries.
 *
 *   ping     a request that the agent answers itself
 *   exec     /bin/true, begun, ended and its status told
 *   bash     bash -lc true, python3: python3 -c pass (where the template has them)
 *   python   1 + 1 in the warm interpreter (where the template has one)
 *   out, in  bytes of a command's output and input; put, get: of a file
 *
 * What is carried is counted at both ends: a byte too few or too many fails the measurement.
 */
#include <string.h>
#include <sys/mman.h>

#include "benches/series.h"
#include "cli/bench.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/progress.h"
#include "common/str.h"

#define CALL_MS 60000
#define WARM_UP 5

struct request {
	struct bench_output out;
	const char *template;
	uint64_t n, mib;
};

struct exec_bench {
	const struct request *rq;
	struct template *template;
	struct sandbox *sandbox;
	json_t *run;
	struct text text;
	struct progress *progress;
	uint64_t received;
	const char *const *argv; /* of the program that is being measured */
};

static int pidfd(const struct exec_bench *b)
{
	return machine_pidfd(sandbox_machine(b->sandbox));
}

/* ---- round trips --------------------------------------------------------------------------- */

static int ping(struct exec_bench *b, struct err *err)
{
	struct guest_info info;

	return guest_info(sandbox_guest(b->sandbox), clock_deadline(CALL_MS), pidfd(b), &info, err);
}

static int exec_program(struct exec_bench *b, struct err *err)
{
	struct guest_exec_spec spec = {.argv = b->argv, .timeout_ms = CALL_MS, .stdin_fd = -1};
	cleanup_guest_result struct guest_result res = {0};
	int r = guest_exec(
		sandbox_guest(b->sandbox), &spec, clock_deadline(2 * CALL_MS), pidfd(b), &res, err);

	if (r == 0 && res.exit_code)
		r = err_set(err, EIO, "%s ended with status %d", b->argv[0], res.exit_code);
	return r;
}

static int python(struct exec_bench *b, struct err *err)
{
	struct guest_exec_spec spec = {.timeout_ms = CALL_MS, .stdin_fd = -1};
	cleanup_guest_result struct guest_result res = {0};
	int r = guest_code(sandbox_guest(b->sandbox), NULL, "print(1 + 1)", &spec,
		clock_deadline(2 * CALL_MS), pidfd(b), &res, err);

	if (r == 0 && (!res.out || strcmp(res.out, "2\n")))
		r = err_set(err, EIO, "1 + 1 gave \"%s\" %s", res.out ?: "", res.traceback ?: "");
	return r;
}

static int round_trips(struct exec_bench *b, const char *name,
	int (*call)(struct exec_bench *, struct err *), struct err *err)
{
	cleanup_series struct bench_series s = {0};
	int64_t begun;
	double rate;

	bench_series_init(&s, name, false, false);
	for (int i = 0; i < WARM_UP; i++) {
		int r = call(b, err);

		if (r < 0)
			return r;
	}
	progress_stage(b->progress, name, "calls", b->rq->n);
	begun = clock_now_ns();
	for (uint64_t i = 0; i < b->rq->n; i++) {
		struct err why = {0};
		int64_t at = clock_now_ns();
		int r = call(b, &why);

		if (r == 0)
			bench_series_add(&s,
				&(struct bench_sample){
					.at = at - begun, .total = clock_now_ns() - at});
		else
			bench_series_fail(&s, &why);
		progress_update(b->progress, i + 1);
	}
	s.span = clock_now_ns() - begun;
	progress_done(b->progress, "%zu failed", s.failed);
	rate = (double)s.n / ((double)s.span / 1e9);
	bench_print_series(&b->text, &s, 1e6);
	text_add(&b->text, "%24s %.0f a second, one after the other\n", "", rate);
	bench_run_append(b->run, "series", bench_series_to_json(&s));
	bench_run_row(b->run, json_pack("[s, f, s]", name, rate, "calls a second"));
	return s.failed
		? err_set(err, EIO, "%zu %s calls failed: %s", s.failed, name, s.first_error.text)
		: 0;
}

/* What a sandbox is asked to start most; what the template has not is left out. */
static int programs(struct exec_bench *b, struct err *err)
{
	static const struct {
		const char *name, *argv[4];
	} list[] = {
		{"exec", {"/bin/true"}},
		{"bash", {"/bin/bash", "-lc", "true"}},
		{"python3", {"/usr/bin/python3", "-c", "pass"}},
	};
	struct err why;

	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
		int r;

		b->argv = list[i].argv;
		if (i > 0 && exec_program(b, &why) == -ENOENT)
			continue;
		r = round_trips(b, list[i].name, exec_program, err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- throughput ---------------------------------------------------------------------------- */

static int count(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	struct exec_bench *b = user;

	(void)bytes;
	if (channel == PROTO_OUT)
		b->received += len;
	return 0;
}

static void tell_speed(struct exec_bench *b, const char *name, uint64_t bytes, int64_t took)
{
	double speed = (double)bytes / MIB / ((double)took / 1e9);

	text_add(&b->text, "%-24s %.1f MiB/s (%llu MiB)\n", name, speed,
		(unsigned long long)(bytes / MIB));
	bench_run_row(b->run, json_pack("[s, f, s]", name, speed, "MiB/s"));
}

static int command(
	struct exec_bench *b, const char *shell, int in, const char *want, struct err *err)
{
	struct guest_exec_spec spec = {
		.shell = shell, .timeout_ms = CALL_MS, .stdin_fd = in, .limit_out = 1024 * GIB};
	cleanup_guest_result struct guest_result res = {0};
	int r;

	if (!want) {
		spec.output = count;
		spec.user_data = b;
	}
	r = guest_exec(
		sandbox_guest(b->sandbox), &spec, clock_deadline(2 * CALL_MS), pidfd(b), &res, err);
	if (r < 0)
		return r;
	if (res.exit_code || res.timed_out)
		return err_set(err, EIO, "\"%s\" ended with status %d: %s", shell, res.exit_code,
			res.err ?: "");
	if (want && (!res.out || strncmp(res.out, want, strlen(want))))
		return err_set(
			err, EIO, "\"%s\" said %s, not %s", shell, res.out ?: "nothing", want);
	return 0;
}

/* A file of @bytes without a hole. */
static int make_file(uint64_t bytes, struct err *err)
{
	cleanup_fd int fd = memfd_create("parbake-carried", MFD_CLOEXEC);
	char block[64 * KIB];
	int r = fd < 0 ? -errno : 0;

	memset(block, 'p', sizeof(block));
	for (uint64_t at = 0; at < bytes && r == 0; at += sizeof(block))
		r = file_write_full(fd, block, sizeof(block));
	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	return r < 0 ? err_sys(err, -r, "make a file to carry") : steal_fd(&fd);
}

static int carry_streams(struct exec_bench *b, uint64_t bytes, struct err *err)
{
	cleanup_free char *shell = str_printf("head -c %llu /dev/zero", (unsigned long long)bytes);
	cleanup_free char *want = str_printf("%llu", (unsigned long long)bytes);
	cleanup_fd int fd = make_file(bytes, err);
	int64_t began = clock_now_ns();
	int r = fd < 0 ? fd : command(b, shell, -1, NULL, err);

	if (r < 0)
		return r;
	if (b->received != bytes)
		return err_set(err, EIO, "%llu of %llu bytes of output came",
			(unsigned long long)b->received, (unsigned long long)bytes);
	tell_speed(b, "out", bytes, clock_now_ns() - began);
	began = clock_now_ns();
	r = command(b, "wc -c", fd, want, err);
	if (r == 0)
		tell_speed(b, "in", bytes, clock_now_ns() - began);
	return r;
}

static int carry_files(struct exec_bench *b, uint64_t bytes, struct err *err)
{
	static const char path[] = "/dev/shm/parbake-carried";
	cleanup_fd int fd = make_file(bytes, err), back = memfd_create("parbake-back", MFD_CLOEXEC);
	int64_t began = clock_now_ns();
	struct guest *g = sandbox_guest(b->sandbox);
	int r = fd < 0
		? fd
		: guest_put_file(g, fd, path, 0600, NULL, clock_deadline(CALL_MS), pidfd(b), err);

	if (r < 0)
		return r;
	tell_speed(b, "put", bytes, clock_now_ns() - began);
	began = clock_now_ns();
	r = back < 0 ? -errno
		     : guest_get_file(g, path, back, bytes, clock_deadline(CALL_MS), pidfd(b), err);
	if (r == 0 && lseek(back, 0, SEEK_END) != (off_t)bytes)
		r = err_set(err, EIO, "the file came back with another length");
	if (r == 0)
		tell_speed(b, "get", bytes, clock_now_ns() - began);
	return r;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int run(
	struct exec_bench *b, struct store *s, const struct store_manifest *m, struct err *err)
{
	static const char *const columns[] = {"what", "rate", "unit"};
	const struct template_options options = {.progress = b->progress};
	cleanup_free char *id = str_printf("exec %s", m->name);
	cleanup_free char *title = str_printf("Calls into a running sandbox of %s", m->name);
	uint64_t bytes = b->rq->mib * MIB;
	int r = template_open(s, m, &options, &b->template, err);

	if (r == 0)
		r = sandbox_create(
			b->template, NULL, clock_deadline(LIMIT_CREATE_MS), &b->sandbox, err);
	if (r < 0)
		return r;
	b->run = bench_run_new("exec", id, title);
	bench_run_template(b->run, m, b->template);
	bench_run_columns(b->run, columns, 3);
	text_add(&b->text, "%s; times in ms\n", title);
	bench_print_head(&b->text, "", "");
	r = round_trips(b, "ping", ping, err);
	if (r == 0)
		r = programs(b, err);
	if (r == 0 && template_config(b->template)->context)
		r = round_trips(b, "python", python, err);
	progress_stage(b->progress, "throughput", NULL, 0);
	if (r == 0)
		r = carry_streams(b, bytes, err);
	if (r == 0)
		r = carry_files(b, bytes, err);
	progress_done(b->progress, NULL);
	if (r < 0)
		sandbox_explain(b->sandbox, err);
	return r < 0 ? r : bench_finish(&b->rq->out, json_incref(b->run), &b->text, err);
}

static int measure(void *args)
{
	const struct request *rq = args;
	cleanup_manifest struct store_manifest m = {0};
	cleanup_store struct store *s = NULL;
	struct exec_bench b = {.rq = rq};
	struct err err = {0};
	int r;

	b.progress = progress_new(PROGRESS_AUTO);
	r = cli_resolve(rq->out.store_dir, rq->template, &s, &m, &err);
	if (r == 0)
		r = run(&b, s, &m, &err);
	sandbox_free(b.sandbox);
	if (b.template)
		template_free(b.template);
	json_decref(b.run);
	text_clear(&b.text);
	progress_free(b.progress);
	return r < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry options[] = {
	BENCH_COUNT(struct request, n, 100000, "calls of each kind (200)"),
	{"mib", .kind = OPTION_NUMBER, .min = 1, .max = 4096,
		.offset = offsetof(struct request, mib), .value = "N",
		.help = "MiB that are carried each way (32)"},
	BENCH_OUTPUT(struct request, out),
	{0},
};

static const struct operand_entry operands[] = {
	{"TEMPLATE", .names = NAMES_TEMPLATE, .offset = offsetof(struct request, template)},
	{0},
};

const struct command command_bench_exec = {
	.name = "bench exec",
	.summary = "calls into a running sandbox, and bytes through it",
	.options = options,
	.operands = operands,
	.args_bytes = sizeof(struct request),
	.defaults = &(const struct request){.n = 200, .mib = 32},
	.run = measure,
};
