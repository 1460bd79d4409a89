/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A template's memory on this host: one memfd, filled frame by frame, each once.
 *
 * The pager maps the memfd shared and writable and then seals it, so that nobody else can ever map
 * it so: machines map it privately. A frame goes EMPTY → FILLING → FILLED, or becomes DAMAGED for
 * ever; a thread that finds it FILLING waits. Only pages that hold data are touched: a hole of the
 * image stays a hole of the memfd, also inside a frame (a read through the mapping would allocate
 * it, so nothing here reads). Pages are populated by madvise before they are written, because that
 * reports the end of memory where a store would be SIGBUS, and because it costs one call instead of
 * a fault a page.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "restore/pager/pager_private.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

int pager_worker_init(struct pager_worker *w, struct pager *p, struct err *err)
{
	w->pager = p;
	w->frame = malloc(image_frame_bytes(p->img) ?: IMAGE_PAGE);
	return w->frame ? 0 : err_set(err, ENOMEM, "pager: no memory for a frame");
}

int pager_memory_make(struct pager *p, struct err *err)
{
	p->memfd = memfd_create("parbake-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (p->memfd < 0)
		return err_sys(err, errno, "pager: make the memory's memfd");
	if (ftruncate(p->memfd, (off_t)p->bytes) < 0)
		return err_sys(
			err, errno, "pager: a memfd of %llu bytes", (unsigned long long)p->bytes);
	p->map = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->memfd, 0);
	if (p->map == MAP_FAILED) {
		p->map = NULL;
		return err_sys(err, errno, "pager: map the memory");
	}
	/* a huge page would give its holes pages; where there are none the kernel refuses, all
	 * right */
	madvise(p->map, p->bytes, MADV_NOHUGEPAGE);
	madvise(p->map, p->bytes, MADV_DONTDUMP);
	p->frames = calloc(p->bytes / IMAGE_PAGE, sizeof(*p->frames));
	if (!p->frames)
		return err_set(err, ENOMEM, "pager: no memory for the frame table");
	return 0;
}

int pager_memory_seal(struct pager *p, struct err *err)
{
	if (fcntl(p->memfd, F_ADD_SEALS,
		    F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return err_sys(err, errno, "pager: seal the memory (Linux 5.1 or newer is needed)");
	return 0;
}

static int populate(struct pager *p, uint64_t start, uint64_t end, struct err *err)
{
	while (madvise(p->map + start, end - start, MADV_POPULATE_WRITE) < 0) {
		if (errno == EINTR || errno == EAGAIN)
			continue;
		if (errno == EINVAL) /* before 5.14: the stores below fault one by one */
			return 0;
		return err_sys(err, errno, "pager: memory for %llu bytes at %llu",
			(unsigned long long)(end - start), (unsigned long long)start);
	}
	return 0;
}

/* Decompress one frame into the memfd: straight where all of it is data, else run by run. */
static int fill_now(
	struct pager *p, struct pager_worker *w, uint64_t start, uint64_t bytes, struct err *err)
{
	uint64_t end = start + bytes, data = 0;
	bool is_data, whole;
	int r;

	whole = image_run_end(p->img, start, end, &is_data) >= end && is_data;
	if (!whole) {
		r = image_read_frame(p->img, start, w->frame, err);
		if (r < 0)
			return r;
	}
	for (uint64_t at = start, next; at < end; at = next) {
		next = image_run_end(p->img, at, end, &is_data);
		if (!is_data)
			continue;
		r = populate(p, at, next, err);
		if (r < 0)
			return r;
		if (!whole)
			memcpy(p->map + at, w->frame + (at - start), next - at);
		data += next - at;
	}
	if (whole) {
		r = image_read_frame(p->img, start, p->map + start, err);
		if (r < 0)
			return r;
	}
	STAT_ADD(p, frames, 1);
	STAT_ADD(p, bytes, data);
	return 0;
}

bool pager_filled(struct pager *p, uint64_t offset)
{
	uint64_t start, bytes;

	image_frame_at(p->img, offset, &start, &bytes);
	return atomic_load_explicit(&p->frames[start / IMAGE_PAGE], memory_order_acquire) ==
		FRAME_FILLED;
}

int pager_fill(struct pager *p, struct pager_worker *w, uint64_t offset, struct err *err)
{
	uint64_t start, bytes;
	struct pager_shard *shard;
	atomic_uchar *state;
	unsigned char now;
	int r;

	image_frame_at(p->img, offset, &start, &bytes);
	state = &p->frames[start / IMAGE_PAGE];
	if (atomic_load_explicit(state, memory_order_acquire) == FRAME_FILLED)
		return 0;
	shard = &p->shards[start / bytes % PAGER_SHARDS];
	pthread_mutex_lock(&shard->lock);
	while ((now = atomic_load(state)) == FRAME_FILLING)
		pthread_cond_wait(&shard->changed, &shard->lock);
	if (now == FRAME_EMPTY)
		atomic_store(state, FRAME_FILLING);
	pthread_mutex_unlock(&shard->lock);
	if (now == FRAME_FILLED)
		return 0;
	if (now == FRAME_DAMAGED)
		return err_set(err, EBADMSG,
			"the frame at byte %llu of the memory image is damaged",
			(unsigned long long)start);

	r = fill_now(p, w, start, bytes, err);
	pthread_mutex_lock(&shard->lock);
	/* what may pass (no memory, a failing read) is tried again by the next machine that needs it; a
	 * frame that was read and is wrong is not */
	atomic_store(state, r == 0 ? FRAME_FILLED : r == -EBADMSG ? FRAME_DAMAGED : FRAME_EMPTY);
	pthread_cond_broadcast(&shard->changed);
	pthread_mutex_unlock(&shard->lock);
	return r;
}

/* ---- all of it, for the private way -------------------------------------------------------- */

struct fill_all {
	struct pager *pager;
	pthread_mutex_t lock;
	uint64_t next; /* under lock */
	int result; /* under lock: the first failure */
	struct err err;
};

/* The next frame with data; false at the end or after a failure. */
static bool take_frame(struct fill_all *all, uint64_t *ret)
{
	struct pager *p = all->pager;
	uint64_t start, bytes;
	bool found = false, data;

	pthread_mutex_lock(&all->lock);
	while (!found && all->result == 0 && all->next < p->bytes) {
		if (!image_page_has_data(p->img, all->next)) {
			all->next = image_run_end(p->img, all->next, p->bytes, &data);
			continue;
		}
		*ret = all->next;
		image_frame_at(p->img, all->next, &start, &bytes);
		all->next = start + bytes;
		found = true;
	}
	pthread_mutex_unlock(&all->lock);
	return found;
}

static void *fill_all_main(void *arg)
{
	struct fill_all *all = arg;
	struct pager_worker w = {0};
	struct err err;
	uint64_t offset;
	int r = pager_worker_init(&w, all->pager, &err);

	while (r == 0 && take_frame(all, &offset))
		r = pager_fill(all->pager, &w, offset, &err);
	if (r < 0) {
		pthread_mutex_lock(&all->lock);
		if (all->result == 0) {
			all->result = r;
			all->err = err;
		}
		pthread_mutex_unlock(&all->lock);
	}
	free(w.frame);
	return NULL;
}

int pager_fill_all(struct pager *p, unsigned threads, struct err *err)
{
	struct fill_all all = {.pager = p, .lock = PTHREAD_MUTEX_INITIALIZER};
	pthread_t ids[PAGER_WORKERS_MAX];
	unsigned n = 0;

	while (n + 1 < threads && n < PAGER_WORKERS_MAX &&
		pthread_create(&ids[n], NULL, fill_all_main, &all) == 0)
		n++;
	fill_all_main(&all); /* this thread is one of them, so there is always one */
	for (unsigned i = 0; i < n; i++)
		pthread_join(ids[i], NULL);
	if (all.result < 0)
		return err_set(err, -all.result, "%s", all.err.text);
	return 0;
}
