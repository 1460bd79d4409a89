/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Downloads, by one libcurl multi handle, in one thread. Each item is a small state machine:
 *
 *     WAITING ──lock──► READY ──slot, time──► RUNNING ──► DONE
 *        ▲ another has it │ ▲                   │
 *        └────────────────┘ └── retry, redirect ┘
 *
 * What always holds: a byte counts only once it is in the part file and in the running sum. The sum
 * decides in the end. A resume asks for the rest with Range and If-Range; a 200 instead of a 206
 * starts the part anew; a sum that is wrong after a resume starts the part anew once (the file may
 * have changed between tries); a sum that is wrong without a resume is the error "differs".
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bake/fetch/fetch_private.h"
#include "common/clock.h"
#include "common/limits.h"
#include "bake/fetch/limits.h"
#include "common/paths.h"
#include "common/str.h"

#define LOCK_POLL_MS 200

/* A twin's result, the cache's, or the lock on the part. */
static int transfer_prepare(struct fetch *f, struct fetch_transfer *t, struct err *err)
{
	int r;

	if (t->twin) {
		if (t->twin->state == DONE) {
			t->item->ret_path = str_dup(t->twin->item->ret_path);
			t->state = DONE;
		}
		return 0;
	}
	t->item->ret_path = fetch_cached(f->downloads, t->item->sha256);
	if (t->item->ret_path) {
		t->state = DONE;
		return 0;
	}
	r = fetch_part_open(&t->part, f->downloads, t->item->sha256, t->item->url, err);
	if (r == -EWOULDBLOCK) {
		t->not_before = clock_deadline(LOCK_POLL_MS);
		return 0;
	}
	if (r < 0)
		return r;
	/* who had the lock may just have published it */
	t->item->ret_path = fetch_cached(f->downloads, t->item->sha256);
	if (t->item->ret_path) {
		fetch_part_close(&t->part, true);
		t->state = DONE;
		return 0;
	}
	t->best = t->part.have;
	t->state = READY;
	return 0;
}

/* Move on what can move; *@ret_next is when something has to be looked at again. */
static int step(struct fetch *f, size_t *ret_left, int64_t *ret_next, struct err *err)
{
	size_t active = 0, left = 0;
	int64_t now = clock_now_ns();

	for (size_t i = 0; i < f->n; i++)
		active += f->transfers[i].state == READY || f->transfers[i].state == RUNNING;
	*ret_next = clock_deadline(1000);
	for (size_t i = 0; i < f->n; i++) {
		struct fetch_transfer *t = &f->transfers[i];
		int r = 0;

		if (t->state == WAITING && t->not_before <= now && active < LIMIT_DOWNLOADS) {
			r = transfer_prepare(f, t, err);
			active += r == 0 && t->state == READY;
		}
		if (r == 0 && t->state == READY && t->not_before <= now)
			r = fetch_transfer_start(f, t, err);
		if (r < 0)
			return r;
		left += t->state != DONE;
		if ((t->state == WAITING || t->state == READY) && t->not_before > now &&
			t->not_before < *ret_next)
			*ret_next = t->not_before;
	}
	*ret_left = left;
	return 0;
}

static void progress_show(struct fetch *f)
{
	uint64_t have = 0, total = 0;

	for (size_t i = 0; i < f->n; i++) {
		const struct fetch_transfer *t = &f->transfers[i];

		have += t->state == DONE ? t->best : t->part.have;
		total += t->total;
	}
	progress_total(f->progress, total > have ? total : have);
	progress_update(f->progress, have);
}

static int run(struct fetch *f, struct err *err)
{
	for (;;) {
		int64_t next;
		size_t left;
		CURLMsg *msg;
		bool moved = false;
		int running, queued, r = step(f, &left, &next, err);

		if (r < 0 || left == 0)
			return r;
		if (curl_multi_perform(f->multi, &running) != CURLM_OK)
			return err_set(err, EIO, "downloads: libcurl's loop failed");
		while ((msg = curl_multi_info_read(f->multi, &queued))) {
			struct fetch_transfer *t = NULL;
			CURLcode rc = msg->data.result;

			if (msg->msg != CURLMSG_DONE)
				continue;
			curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&t);
			curl_multi_remove_handle(f->multi, t->easy);
			r = fetch_ended(f, t, rc, err);
			if (r < 0)
				return r;
			moved = true;
		}
		progress_show(f);
		if (!moved)
			curl_multi_poll(f->multi, NULL, 0, clock_left_ms(next), NULL);
	}
}

static int transfer_init(struct fetch *f, size_t i, struct fetch_item *item, struct err *err)
{
	struct fetch_transfer *t = &f->transfers[i];

	*t = (struct fetch_transfer){.item = item, .part = FETCH_PART_INIT};
	item->ret_path = NULL;
	if (!item->url ||
		(!fetch_has_scheme(item->url, "http") && !fetch_has_scheme(item->url, "https") &&
			!fetch_has_scheme(item->url, "file")))
		return err_set(err, EINVAL, "%s: not an http, https or file URL",
			item->url ? item->url : "a download without URL");
	if (strpbrk(item->url, "\r\n"))
		return err_set(err, EINVAL, "a download's URL with a line break in it");
	t->shown = fetch_url_shown(item->url);
	if (!item->sha256 || strlen(item->sha256) != DIGEST_HEX_SIZE - 1)
		return err_set(
			err, EINVAL, "%s: needs a sha256 of 64 hexadecimal digits", t->shown);
	snprintf(t->want, sizeof(t->want), "sha256:%s", item->sha256);
	if (!digest_valid(t->want))
		return err_set(err, EINVAL,
			"%s: \"%s\" is no sha256 (64 lower-case hexadecimal digits)", t->shown,
			item->sha256);
	t->max = item->max_bytes ? item->max_bytes : LIMIT_ARCHIVE_BYTES;
	fetch_url_reset(t);
	for (size_t j = 0; j < i && !t->twin; j++) {
		if (strcmp(f->transfers[j].want, t->want) == 0)
			t->twin = &f->transfers[j];
	}
	return 0;
}

static void transfer_end(struct fetch *f, struct fetch_transfer *t)
{
	if (t->easy && t->state == RUNNING)
		curl_multi_remove_handle(f->multi, t->easy);
	if (t->easy)
		curl_easy_cleanup(t->easy);
	curl_slist_free_all(t->headers);
	if (t->part.dirfd >= 0)
		fetch_part_close(&t->part, false);
	free(t->url);
	free(t->shown);
}

static void curl_start(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int places_make(struct fetch *f, struct err *err)
{
	cleanup_free char *done = NULL, *partial = NULL;
	int r = paths_sub(PATHS_CACHE, "downloads", &f->downloads, err);

	if (r == 0)
		r = paths_sub(PATHS_CACHE, "downloads/sha256", &done, err);
	if (r == 0)
		r = paths_sub(PATHS_CACHE, "downloads/partial", &partial, err);
	return r;
}

int fetch_all(struct fetch_item *items, size_t n, struct progress *progress, struct err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct fetch f = {.progress = progress};
	int r = 0;

	pthread_once(&once, curl_start);
	f.transfers = calloc(n ? n : 1, sizeof(*f.transfers));
	f.multi = curl_multi_init();
	if (!f.transfers || !f.multi)
		r = err_sys(err, ENOMEM, "downloads");
	if (r == 0)
		r = places_make(&f, err);
	while (r == 0 && f.n < n) {
		r = transfer_init(&f, f.n, &items[f.n], err);
		f.n++;
	}
	if (r == 0)
		r = run(&f, err);
	for (size_t i = 0; i < f.n; i++)
		transfer_end(&f, &f.transfers[i]);
	for (size_t i = 0; r < 0 && i < f.n; i++)
		free(steal_ptr(&items[i].ret_path));
	if (f.multi)
		curl_multi_cleanup(f.multi);
	free(f.transfers);
	free(f.downloads);
	return r;
}
