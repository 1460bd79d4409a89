/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory delta of a paused machine: the pages in which its memory differs from its template's.
 *
 * The monitor maps the template's memory privately, so the pages that the guest has written are
 * pages of the monitor's own, and the kernel knows which they are. /proc/PID/pagemap has them as
 * pages that are present (or swapped out) and are not the file's
 * (Documentation/admin-guide/mm/pagemap.rst). All other pages are the template's, whether they were
 * ever touched or not. So nothing has to be compared, and no page that the machine has not touched
 * is read. Pages that the machine got from an earlier checkpoint are its own too, so a delta is
 * always one to the template.
 *
 * A page of zeros counts only where the template has data: most of what a guest reads of its free
 * memory is the kernel's one zero page. Where this process may learn that page's number, the page
 * need not even be read.
 *
 * A user other than root may not look into a monitor, which cannot be traced even by its own user.
 * Then the monitor is asked for all of the memory, and pages are compared. That takes longer,
 * touches all of the memory, and trusts the monitor with nothing that it does not have already.
 *
 * A guest can write every second page. Where that would make more ranges than capture.json can
 * hold, pages between the ranges are taken along.
 */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/str.h"
#include "restore/checkpoint_private.h"

#define PAGE ((uint64_t)IMAGE_PAGE)
#define BATCH (1 * MIB) /* read from the machine at once; memory is whole ones */
#define PIECE (32 * MIB) /* written by the monitor at once */
#define BATCH_RUNS 256 /* of these */
#define ENTRIES 8192 /* of a pagemap, read at once */
#define LINE 512

/* Documentation/admin-guide/mm/pagemap.rst */
#define IS_PRESENT (1ull << 63)
#define IS_SWAPPED (1ull << 62)
#define IS_FILE (1ull << 61)
#define FRAME_NUMBER ((1ull << 55) - 1)

struct region {
	uint64_t addr, start, end; /* in the monitor; offsets in the memory */
};

struct take {
	const struct checkpoint_memory *m;
	struct region regions[LIMIT_REGIONS];
	unsigned n_regions;
	uint64_t *pages; /* bitmap: taken */
	uint64_t *zeros; /* bitmap: known to be the zero page */
	uint64_t zero_frame; /* 0: not known */
	bool all; /* zeros are taken, too: they join ranges */
	/* what was taken */
	int fd;
	uint64_t at;
	struct snapshot_ranges out;
	size_t max_out;
	uint8_t *buf;
};

static bool get(const uint64_t *map, uint64_t page)
{
	return map[page / 64] >> page % 64 & 1;
}

static void put(uint64_t *map, uint64_t page, bool value)
{
	if (value)
		map[page / 64] |= 1ull << page % 64;
	else
		map[page / 64] &= ~(1ull << page % 64);
}

static int denied(int code, const char *what, struct err *err)
{
	if (code == EACCES || code == EPERM)
		return err_set(err, EPERM,
			"%s: this user may not look into a machine's process; captures of machines "
			"with "
			"more than 2 GiB need root (or CAP_SYS_PTRACE)",
			what);
	return err_sys(err, code, "%s", what);
}

/* ---- where it is ------------------------------------------------------------------------------ */

static int parse_map(struct take *t, const char *line, struct err *err)
{
	const struct stat *st = t->m->file;
	uint64_t from, to, offset, inode;
	unsigned maj, min;
	char mode[5];
	struct region *g;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &from, &to, mode,
		    &offset, &maj, &min, &inode) != 7)
		return err_set(err, EPROTO, "a line of the machine's maps makes no sense");
	if (inode != st->st_ino || makedev(maj, min) != st->st_dev)
		return 0;
	if (t->n_regions == LIMIT_REGIONS)
		return err_set(err, EPROTO, "the machine maps its memory in more than %d pieces",
			LIMIT_REGIONS);
	if (mode[3] != 'p' || to <= from || from % PAGE || to % PAGE || offset % PAGE ||
		offset > t->m->bytes || to - from > t->m->bytes - offset)
		return err_set(err, EPROTO, "the machine maps its memory in an unknown way");
	g = &t->regions[t->n_regions++];
	*g = (struct region){from, offset, offset + (to - from)};
	for (unsigned i = 0; i + 1 < t->n_regions; i++) {
		if (g->start < t->regions[i].end && t->regions[i].start < g->end)
			return err_set(err, EPROTO, "the machine maps its memory twice");
	}
	return 0;
}

static int find_regions(struct take *t, struct err *err)
{
	cleanup_free char *path = str_printf("/proc/%d/maps", machine_pid(t->m->machine));
	cleanup_file FILE *maps = fopen(path, "re");
	char line[LINE];
	bool whole = true;
	int r = 0;

	if (!maps)
		return denied(errno, path, err);
	while (r == 0 && fgets(line, sizeof(line), maps)) {
		if (whole) /* else the rest of a long name */
			r = parse_map(t, line, err);
		whole = strchr(line, '\n') != NULL;
	}
	if (r == 0 && ferror(maps))
		r = err_sys(err, EIO, "read %s", path);
	if (r == 0 && t->n_regions == 0)
		r = err_set(err, EPROTO, "the machine does not map its memory");
	return r;
}

/* ---- which pages are its own -------------------------------------------------------------------- */

/* The number of the kernel's zero page, where we may see such numbers: that of a page never written. */
static uint64_t find_zero_frame(void)
{
	cleanup_fd int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	volatile uint8_t *map =
		mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t entry = 0;

	if (map == MAP_FAILED)
		return 0;
	if (fd < 0 || map[0] != 0 ||
		file_pread_full(fd, &entry, sizeof(entry),
			(off_t)((uintptr_t)map / PAGE * sizeof(entry))) < 0)
		entry = 0;
	munmap((void *)(uintptr_t)map, PAGE);
	return entry & IS_PRESENT ? entry & FRAME_NUMBER : 0;
}

static void mark(struct take *t, uint64_t page, uint64_t entry)
{
	if (!(entry & (IS_PRESENT | IS_SWAPPED)) || entry & IS_FILE)
		return;
	put(t->pages, page, true);
	if (entry & IS_PRESENT && t->zero_frame && (entry & FRAME_NUMBER) == t->zero_frame)
		put(t->zeros, page, true);
}

static int mark_region(struct take *t, int fd, const struct region *g, struct err *err)
{
	cleanup_free uint64_t *entries = malloc(ENTRIES * sizeof(*entries));
	uint64_t n = (g->end - g->start) / PAGE;

	if (!entries)
		return err_set(err, ENOMEM, "no memory for page tables");
	for (uint64_t done = 0; done < n;) {
		uint64_t some = n - done < ENTRIES ? n - done : ENTRIES;
		int r = file_pread_full(fd, entries, some * sizeof(*entries),
			(off_t)((g->addr / PAGE + done) * sizeof(*entries)));

		if (r < 0)
			return err_sys(err, -r, "read the page tables of the machine");
		for (uint64_t i = 0; i < some; i++)
			mark(t, g->start / PAGE + done + i, entries[i]);
		done += some;
	}
	return 0;
}

static int mark_pages(struct take *t, struct err *err)
{
	cleanup_free char *path = str_printf("/proc/%d/pagemap", machine_pid(t->m->machine));
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	int r = 0;

	if (fd < 0)
		return denied(errno, path, err);
	t->zero_frame = find_zero_frame();
	for (unsigned i = 0; r == 0 && i < t->n_regions; i++)
		r = mark_region(t, fd, &t->regions[i], err);
	for (size_t i = 0; i < t->m->own->n; i++) {
		const struct snapshot_range *own = &t->m->own->ranges[i];

		for (uint64_t at = own->offset; at < own->offset + own->bytes; at += PAGE)
			put(t->pages, at / PAGE, true);
	}
	return r;
}

/* Pages that are zeros here and in the template. */
static void drop_zeros(struct take *t)
{
	for (uint64_t page = 0; page < t->m->bytes / PAGE; page++) {
		if (get(t->zeros, page) && !image_page_has_data(t->m->image, page * PAGE))
			put(t->pages, page, false);
	}
}

/* The next run of pages that are taken (or not) from @page on. */
static uint64_t run_end(const struct take *t, uint64_t page, bool taken)
{
	uint64_t n = t->m->bytes / PAGE, skip = taken ? UINT64_MAX : 0;

	while (page < n) {
		if (page % 64 == 0 && t->pages[page / 64] == skip)
			page += 64;
		else if (get(t->pages, page) == taken)
			page++;
		else
			return page;
	}
	return n;
}

static size_t count_runs(const struct take *t)
{
	uint64_t n = t->m->bytes / PAGE;
	size_t runs = 0;

	for (uint64_t at = run_end(t, 0, false); at < n; runs++)
		at = run_end(t, run_end(t, at, true), false);
	return runs;
}

/* Take along what lies between runs, until they are few enough. */
static void join_runs(struct take *t)
{
	uint64_t n = t->m->bytes / PAGE;

	for (uint64_t gap = 1; count_runs(t) > t->m->max_ranges; gap *= 2) {
		uint64_t at = run_end(t, run_end(t, 0, false), true);

		while (at < n) {
			uint64_t next = run_end(t, at, false);

			if (next < n && next - at <= gap) {
				for (uint64_t page = at; page < next; page++)
					put(t->pages, page, true);
			}
			at = run_end(t, next, true);
		}
	}
}

/* ---- taking them -------------------------------------------------------------------------------- */

static bool is_zero(const uint8_t *page)
{
	return page[0] == 0 && memcmp(page, page + 1, PAGE - 1) == 0;
}

/* The next range of the memory is also the next of the file. */
static int add_range(struct take *t, uint64_t offset, uint64_t len, struct err *err)
{
	struct snapshot_ranges *w = &t->out;
	struct snapshot_range *last = w->n ? &w->ranges[w->n - 1] : NULL;

	t->at += len;
	if (last && last->offset + last->bytes == offset) {
		last->bytes += len;
		return 0;
	}
	if (w->n == t->max_out) {
		size_t more = t->max_out ? 2 * t->max_out : 256;
		struct snapshot_range *ranges = reallocarray(w->ranges, more, sizeof(*ranges));

		if (!ranges)
			return err_set(err, ENOMEM, "no memory for ranges");
		w->ranges = ranges;
		t->max_out = more;
	}
	assert(w->ranges);
	w->ranges[w->n++] = (struct snapshot_range){offset, len};
	return 0;
}

/* @len bytes at @offset of the memory lie in the buffer at @bytes. */
static int keep(
	struct take *t, uint64_t offset, uint64_t len, const uint8_t *bytes, struct err *err)
{
	for (uint64_t at = 0, stop; at < len; at = stop) {
		bool zero = is_zero(bytes + at);
		int r = 0;

		stop = at + PAGE;
		if (zero && !t->all && !image_page_has_data(t->m->image, offset + at))
			continue;
		while (!zero && stop < len && !is_zero(bytes + stop))
			stop += PAGE;
		if (!zero)
			r = file_pwrite_full(t->fd, bytes + at, stop - at, (off_t)t->at);
		if (r < 0)
			return err_sys(err, -r, "write the memory delta");
		r = add_range(t, offset + at, stop - at, err);
		if (r < 0)
			return r;
	}
	return 0;
}

struct batch {
	struct iovec from[BATCH_RUNS];
	uint64_t offset[BATCH_RUNS];
	unsigned n;
	uint64_t bytes;
};

static int read_batch(struct take *t, struct batch *b, struct err *err)
{
	struct iovec to = {.iov_base = t->buf, .iov_len = b->bytes};
	const uint8_t *at = t->buf;
	ssize_t n =
		b->n ? process_vm_readv(machine_pid(t->m->machine), &to, 1, b->from, b->n, 0) : 0;
	int r = 0;

	if (n < 0)
		return denied(errno, "read the machine's memory", err);
	if ((uint64_t)n != b->bytes)
		return err_set(err, EIO, "read the machine's memory: %zd of %" PRIu64 " bytes", n,
			b->bytes);
	for (unsigned i = 0; r == 0 && i < b->n; i++) {
		r = keep(t, b->offset[i], b->from[i].iov_len, at, err);
		at += b->from[i].iov_len;
	}
	b->n = 0;
	b->bytes = 0;
	if (r == 0 && clock_left_ms(t->m->deadline) == 0)
		r = err_set(err, ETIMEDOUT, "read the machine's memory: not in time");
	return r;
}

/* [@start, @end) of the memory, of which one region holds all. */
static int read_run(struct take *t, struct batch *b, const struct region *g, uint64_t start,
	uint64_t end, struct err *err)
{
	for (uint64_t at = start; at < end;) {
		uint64_t n = end - at < BATCH - b->bytes ? end - at : BATCH - b->bytes;
		int r = 0;

		b->from[b->n] =
			(struct iovec){(void *)(uintptr_t)(g->addr + (at - g->start)), (size_t)n};
		b->offset[b->n++] = at;
		b->bytes += n;
		at += n;
		if (b->n == BATCH_RUNS || b->bytes == BATCH)
			r = read_batch(t, b, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_pages(struct take *t, struct err *err)
{
	struct batch b = {.n = 0};
	uint64_t n = t->m->bytes / PAGE, end;

	t->at = t->out.n = 0;
	if (ftruncate(t->fd, 0) < 0)
		return err_sys(err, errno, "write the memory delta");
	for (uint64_t page = run_end(t, 0, false); page < n; page = run_end(t, end, false)) {
		uint64_t found = 0;

		end = run_end(t, page, true);
		/* in rising order, whatever the order of the mappings */
		for (uint64_t at = page * PAGE; at < end * PAGE; at = found) {
			const struct region *in = NULL;
			int r;

			for (unsigned i = 0; i < t->n_regions; i++) {
				if (at >= t->regions[i].start && at < t->regions[i].end)
					in = &t->regions[i];
			}
			if (!in)
				return err_set(err, EPROTO,
					"the machine does not map its memory at %" PRIu64, at);
			found = end * PAGE < in->end ? end * PAGE : in->end;
			r = read_run(t, &b, in, at, found, err);
			if (r < 0)
				return r;
		}
	}
	return read_batch(t, &b, err);
}

/* ---- without a look into the process -------------------------------------------------------------- */

/* @len bytes at @offset of the memory: those that are not as in the template, whose bytes are in @was. */
static int compare(
	struct take *t, uint64_t offset, uint64_t len, const uint8_t *was, struct err *err)
{
	int r = 0;

	for (uint64_t at = 0, stop; r == 0 && at < len; at = stop) {
		bool same = memcmp(t->buf + at, was + at, PAGE) == 0;

		stop = at + PAGE;
		/* of a page that nobody has needed yet the template's file holds zeros: no judge of zeros */
		if (same && !t->all && !is_zero(t->buf + at))
			continue;
		r = keep(t, offset + at, stop - at, t->buf + at, err);
	}
	return r;
}

/* The monitor writes out all of the memory, piece by piece. */
static int compare_all(struct take *t, struct err *err)
{
	cleanup_fd int fd = memfd_create("parbake-pages", MFD_CLOEXEC);
	cleanup_free uint8_t *was = malloc(BATCH);
	int r = 0;

	if (fd < 0 || !was)
		return err_sys(err, fd < 0 ? errno : ENOMEM, "a file for pages");
	t->at = t->out.n = 0;
	if (ftruncate(t->fd, 0) < 0)
		return err_sys(err, errno, "write the memory delta");
	for (uint64_t at = 0; r == 0 && at < t->m->bytes; at += BATCH) {
		if (at % PIECE == 0)
			r = machine_read_memory(t->m->machine, at,
				t->m->bytes - at < PIECE ? t->m->bytes - at : PIECE, fd,
				t->m->deadline, err);
		if (r < 0)
			return r;
		r = file_pread_full(fd, t->buf, BATCH, (off_t)(at % PIECE));
		if (r == 0)
			r = file_pread_full(t->m->template_fd, was, BATCH, (off_t)at);
		if (r < 0)
			return err_sys(err, -r, "read the machine's memory");
		r = compare(t, at, BATCH, was, err);
	}
	return r;
}

/* By a look into its process. */
static int look_all(struct take *t, struct err *err)
{
	int r = find_regions(t, err);

	if (r == 0)
		r = mark_pages(t, err);
	if (r < 0)
		return r;
	drop_zeros(t);
	if (count_runs(t) <= t->m->max_ranges) {
		r = read_pages(t, err);
		if (r < 0 || t->out.n <= t->m->max_ranges)
			return r;
	}
	t->all = true;
	join_runs(t);
	return read_pages(t, err);
}

/* Whether we may look into the monitor is not one question: with CAP_PERFMON its page tables are open to us
 * (Linux 6.14), its memory is not. So every refusal on the way leads to the monitor being asked. */
static int take_all(struct take *t, struct err *err)
{
	int r = look_all(t, err);

	if (r != -EPERM || t->m->bytes > MACHINE_READ_MAX)
		return r;
	t->all = false;
	r = compare_all(t, err);
	if (r < 0 || t->out.n <= t->m->max_ranges)
		return r;
	t->all = true;
	return compare_all(t, err);
}

int checkpoint_memory_take(
	const struct checkpoint_memory *m, int fd, struct snapshot_ranges *ret, struct err *err)
{
	size_t words = m->bytes / PAGE / 64 + 1;
	cleanup_free uint64_t *pages = calloc(words, sizeof(*pages));
	cleanup_free uint64_t *zeros = calloc(words, sizeof(*zeros));
	cleanup_free uint8_t *buf = malloc(BATCH);
	struct take t = {.m = m, .pages = pages, .zeros = zeros, .buf = buf, .fd = fd};
	int r;

	if (!pages || !zeros || !buf)
		return err_set(err, ENOMEM, "no memory for a table of pages");
	r = take_all(&t, err);
	if (r == 0 && ftruncate(fd, (off_t)t.at) < 0) /* zeros at the end */
		r = err_sys(err, errno, "write the memory delta");
	if (r < 0)
		snapshot_ranges_clear(&t.out);
	else
		*ret = t.out;
	return r;
}
