/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One create, measured from the request to the first correct answer.
 *
 * Every sample is a restore: sandbox_… fails where the agent's boot nonce, which lives only in
 * guest memory, is not the snapshot's. A failed create is counted as failed, never dropped.
 * Removing a sandbox is not part of a create.
 *
 * Cold files: the blobs of the template and its expanded disk leave the page cache before the
 * request; how much of them did not is measured. The programs (monitor, libraries) stay: a host
 * that serves creates has them.
 */
#include "cli/bench_sampler.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "benches/first.h"
#include "common/clock.h"
#include "common/limits.h"

const char *const bench_mode_names[] = {"cold", "standby", "spare"};
const char *const bench_result_names[] = {"none", "exec", "python"};
const char *const bench_result_titles[] = {
	"the agent's answer", "the first command's output", "the first Python result"};

int bench_sampler_open(struct bench_sampler *b, struct err *err)
{
	bench_sampler_close(b);
	return template_open(b->store, b->manifest, &b->options, &b->template, err);
}

void bench_sampler_close(struct bench_sampler *b)
{
	if (b->template)
		template_free(steal_ptr(&b->template));
}

bool bench_sampler_reopens(const struct bench_sampler *b)
{
	return b->options.own_pager || b->cold_cache;
}

/* ---- cold files ---------------------------------------------------------------------------- */

/* How much of the file is in the page cache, in bytes. */
static uint64_t resident_bytes(int fd, uint64_t bytes)
{
	unsigned char *pages = malloc(bytes / 4096 + 1);
	void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	uint64_t n = 0;

	if (pages && map != MAP_FAILED && mincore(map, bytes, pages) == 0) {
		for (uint64_t i = 0; i < (bytes + 4095) / 4096; i++)
			n += pages[i] & 1;
	}
	if (map != MAP_FAILED)
		munmap(map, bytes);
	free(pages);
	return n * 4096;
}

static int drop_file(int fd, uint64_t *ret_bytes, uint64_t *ret_resident, struct err *err)
{
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "look at a file of the template");
	if (st.st_size == 0)
		return 0;
	/* pages that are not on disk yet cannot be dropped */
	if (fdatasync(fd) < 0)
		return err_sys(err, errno, "write back a file of the template");
	r = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	if (r != 0)
		return err_sys(err, r, "drop a file of the template from the page cache");
	*ret_bytes += (uint64_t)st.st_blocks * 512;
	*ret_resident += resident_bytes(fd, (uint64_t)st.st_size);
	return 0;
}

/* @translations: -1: there are none. */
static int drop_files(struct bench_sampler *b, int disk, int translations, struct err *err)
{
	uint64_t bytes = 0, resident = 0;
	int r = drop_file(disk, &bytes, &resident, err);

	if (r == 0 && translations >= 0)
		r = drop_file(translations, &bytes, &resident, err);
	for (unsigned i = 0; i < b->manifest->n_layers && r == 0; i++) {
		const struct store_layer *l = &b->manifest->layers[i];
		cleanup_fd int fd = -1;

		r = store_blob_open(b->store, l->digest, l->bytes, &fd, err);
		if (r == 0)
			r = drop_file(fd, &bytes, &resident, err);
	}
	if (r == 0 && bytes && (double)resident / (double)bytes > b->resident)
		b->resident = (double)resident / (double)bytes;
	return r;
}

/* All that is clean leaves the host's page cache (proc(5), /proc/sys/vm/drop_caches). */
static int drop_all(struct err *err)
{
	cleanup_fd int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

	sync();
	if (fd < 0 || write(fd, "1", 1) != 1)
		return err_sys(err, errno, "drop the host's page cache, which root alone may");
	return 0;
}

/* Nothing of the template is open, and with cold files nothing of it in memory. */
static int let_go(struct bench_sampler *b, struct err *err)
{
	cleanup_fd int disk = -1, translations = -1;
	int r;

	if (!b->template)
		return 0;
	disk = fcntl(template_disk_fd(b->template), F_DUPFD_CLOEXEC, 3);
	if (template_trained(b->template))
		translations = fcntl(template_translations_fd(b->template), F_DUPFD_CLOEXEC, 3);
	bench_sampler_close(b);
	if (disk < 0)
		return err_sys(err, errno, "the template's disk");
	r = b->cold_cache ? drop_files(b, disk, translations, err) : 0;
	return r == 0 && b->cold_cache && b->drop_all ? drop_all(err) : r;
}

/* ---- a create ------------------------------------------------------------------------------ */

static int first_result(struct bench_sampler *b, struct sandbox *sb, struct err *err)
{
	int pidfd = machine_pidfd(sandbox_machine(sb));
	int r = b->result == RESULT_PYTHON ? bench_first_python(sandbox_guest(sb), pidfd, err)
					   : bench_first_exec(sandbox_guest(sb), pidfd, err);

	sandbox_mark_result(sb);
	return r;
}

int bench_prepare(
	struct bench_sampler *b, enum bench_mode mode, struct sandbox **ret, struct err *err)
{
	int64_t deadline = clock_deadline(LIMIT_CREATE_MS);
	int r = 0;

	if (bench_sampler_reopens(b)) {
		r = let_go(b, err);
		/* only a cold create has nothing open */
		if (r == 0 && mode != MODE_COLD)
			r = bench_sampler_open(b, err);
	}
	if (r < 0 || mode == MODE_COLD)
		return r;
	r = sandbox_standby(b->template, ret, err);
	if (r < 0)
		return r;
	if (mode == MODE_SPARE)
		return sandbox_prepare(*ret, deadline, err);
	return machine_ready(sandbox_machine(*ret), deadline, err);
}

static int create(struct bench_sampler *b, enum bench_mode mode, struct sandbox **sb,
	struct bench_moments *m, struct bench_counted *counted, struct err *err)
{
	int64_t deadline = clock_deadline(LIMIT_CREATE_MS);
	int r = 0;

	switch (mode) {
	case MODE_COLD:
		if (!b->template) {
			r = bench_sampler_open(b, err);
			m->opened = clock_now_ns();
			counted->cpu_opened = cost_cpu_now(0);
		}
		return r < 0 ? r : sandbox_create(b->template, NULL, deadline, sb, err);
	case MODE_STANDBY:
		return sandbox_restore(*sb, NULL, deadline, err);
	default:
		return sandbox_activate(*sb, NULL, deadline, err);
	}
}

static pid_t monitor_of(const struct sandbox *sb)
{
	return sb ? machine_pid(sandbox_machine((struct sandbox *)sb)) : 0;
}

/* The pager's time is told apart where one create follows the other: else it serves several at once. */
static pid_t pager_of(const struct bench_sampler *b)
{
	return b->template && b->alone ? pager_client_pid(template_pager(b->template)) : 0;
}

void bench_count_open(struct bench_counted *c)
{
	*c = (struct bench_counted){0};
	cost_open(&c->counters);
}

void bench_count_begin(struct bench_sampler *b, const struct sandbox *sb, struct bench_counted *c)
{
	cost_read(&c->counters, monitor_of(sb), pager_of(b), &c->before);
}

void bench_count_close(struct bench_counted *c)
{
	cost_close(&c->counters);
}

int bench_create_one(struct bench_sampler *b, enum bench_mode mode, struct sandbox **sb,
	struct bench_moments *m, struct bench_counted *counted, struct bench_sample *ret,
	struct err *err)
{
	int r;

	counted->cpu_begin = cost_cpu_now(monitor_of(*sb));
	if (!m->begin)
		m->begin = clock_now_ns();
	r = create(b, mode, sb, m, counted, err);
	if (!r && b->result != RESULT_NONE)
		r = first_result(b, *sb, err);
	if (r < 0) {
		if (*sb)
			sandbox_explain(*sb, err);
		return r;
	}
	m->end = b->result == RESULT_NONE ? sandbox_trace(*sb)->answered
					  : sandbox_trace(*sb)->first_result;
	counted->cpu_end = cost_cpu_now(monitor_of(*sb));
	cost_read(&counted->counters, monitor_of(*sb), pager_of(b), &counted->after);
	bench_sample_fill(ret, m, sandbox_trace(*sb));
	bench_sample_cost(ret, counted, sandbox_cpu(*sb));
	return 0;
}
