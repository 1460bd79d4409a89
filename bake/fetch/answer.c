/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows from an answer: success, another try, a redirect or an error. After a fault that may
 * pass (of the connection, 5xx, a cut) the request is tried again a few times, after a longer wait
 * each time. The count of tries starts over when more bytes have come than ever before, so that a
 * long download over a poor line succeeds, and a server that always cuts at the same byte does not
 * go on for ever. Redirects are followed here and not by libcurl, because only here can each hop be
 * checked against the rule that https never becomes http.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bake/fetch/fetch_private.h"
#include "common/clock.h"
#include "common/limits.h"
#include "bake/fetch/limits.h"
#include "common/str.h"

#define BACKOFF_MS 250 /* doubled with each try */
#define RETRY_AFTER_MAX_MS 10000
#define GAIN (1 * MIB) /* more than ever before: the tries start over */

void fetch_url_reset(struct fetch_transfer *t)
{
	free(t->url);
	t->url = str_dup(t->item->url);
	t->https = fetch_has_scheme(t->url, "https");
	t->redirects = 0;
}

/* Another try, if there is one left; @code and @why become the error otherwise. */
static int retry(struct fetch_transfer *t, int code, const char *why, struct err *err)
{
	curl_off_t after_s = 0;
	int64_t wait_ms;

	if (t->part.have > t->best + GAIN)
		t->tries = 0;
	if (t->part.have > t->best)
		t->best = t->part.have;
	if (++t->tries >= LIMIT_DOWNLOAD_TRIES)
		return err_set(
			err, code, "%s: %s (after %d tries)", t->shown, why, LIMIT_DOWNLOAD_TRIES);
	curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &after_s);
	wait_ms = (int64_t)BACKOFF_MS << (t->tries - 1);
	/* the server's wish may be any number */
	if (after_s > RETRY_AFTER_MAX_MS / 1000)
		after_s = RETRY_AFTER_MAX_MS / 1000;
	if (after_s * 1000 > wait_ms)
		wait_ms = after_s * 1000;
	t->not_before = clock_deadline(wait_ms < RETRY_AFTER_MAX_MS ? wait_ms : RETRY_AFTER_MAX_MS);
	fetch_url_reset(t);
	t->state = READY;
	return 0;
}

static int redirect(struct fetch_transfer *t, struct err *err)
{
	char *to = NULL;

	curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &to);
	if (!to)
		return err_set(err, EIO, "%s: a redirect to nowhere", t->shown);
	if (++t->redirects > LIMIT_REDIRECTS)
		return err_set(err, EIO, "%s: more than %d redirects", t->shown, LIMIT_REDIRECTS);
	if (!fetch_has_scheme(to, "https") && (t->https || !fetch_has_scheme(to, "http"))) {
		cleanup_free char *shown = fetch_url_shown(to);

		return err_set(err, EIO, "%s: redirects to %s, which %s", t->shown, shown,
			t->https ? "is not https" : "is neither http nor https");
	}
	t->https = fetch_has_scheme(to, "https");
	to = str_dup(to);
	free(t->url);
	t->url = to;
	t->not_before = 0;
	t->state = READY;
	return 0;
}

static int start_anew(struct fetch_transfer *t, struct err *err)
{
	int r = fetch_part_restart(&t->part);

	if (r < 0)
		return err_sys(err, -r, "%s: starting over", t->shown);
	t->anew = true;
	t->resumed = false;
	t->not_before = 0;
	fetch_url_reset(t);
	t->state = READY;
	return 0;
}

/* All has come: is it what was wanted? */
static int complete(struct fetch *f, struct fetch_transfer *t, struct err *err)
{
	char got[DIGEST_TEXT_SIZE];
	uint64_t had = t->part.have;
	int r;

	fetch_part_digest(&t->part, got);
	if (strcmp(got, t->want) == 0) {
		r = fetch_part_publish(&t->part, err);
		fetch_part_close(&t->part, false);
		t->item->ret_path = r < 0 ? NULL : fetch_cached(f->downloads, t->item->sha256);
		t->best = t->total = had;
		t->state = DONE;
		return r;
	}
	if (t->resumed && !t->anew)
		return start_anew(t, err);
	fetch_part_close(&t->part, true);
	return err_set(err, EBADMSG, "%s: differs: %llu bytes came, of %s, not %s", t->shown,
		(unsigned long long)had, got, t->want);
}

static int answered(struct fetch *f, struct fetch_transfer *t, struct err *err)
{
	long code = fetch_answer_code(t);
	char why[64];

	snprintf(why, sizeof(why), "the server answered %ld", code);
	switch (code) {
	case 200:
	case 206:
		/* an empty file has no first byte that would have told where it belongs */
		if (!t->began && code == 200 && t->part.have && fetch_part_restart(&t->part) < 0)
			return err_sys(err, errno, "%s: starting over", t->shown);
		return complete(f, t, err);
	case 301:
	case 302:
	case 303:
	case 307:
	case 308:
		return redirect(t, err);
	case 416: /* nothing lies beyond what we have: it may be all, or of another file */
		t->resumed = true;
		return complete(f, t, err);
	case 404:
	case 410:
		return err_set(err, ENOENT, "%s: is not there (%s)", t->shown, why);
	case 401:
	case 403:
	case 407:
		return err_set(err, EACCES, "%s: %s", t->shown, why);
	default:
		if (code == 408 || code == 429 || code >= 500)
			return retry(t, EIO, why, err);
		return err_set(err, EIO, "%s: %s", t->shown, why);
	}
}

static bool is_transient(CURLcode rc)
{
	switch (rc) {
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_CONNECT:
	case CURLE_WEIRD_SERVER_REPLY:
	case CURLE_OPERATION_TIMEDOUT:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_GOT_NOTHING:
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_HTTP2:
	case CURLE_HTTP2_STREAM:
		return true;
	default:
		return false;
	}
}

/* One transfer has ended, well or not. */
int fetch_ended(struct fetch *f, struct fetch_transfer *t, CURLcode rc, struct err *err)
{
	char why[CURL_ERROR_SIZE + 64];

	switch (t->stop) {
	case STOP_LARGE:
		return err_set(err, EFBIG, "%s: larger than the %llu bytes allowed", t->shown,
			(unsigned long long)t->max);
	case STOP_WRITE:
		return err_sys(err, -t->write_error, "%s: writing the download", t->shown);
	case STOP_RANGE:
		if (fetch_part_restart(&t->part) < 0)
			return err_sys(err, errno, "%s: starting over", t->shown);
		return retry(t, EIO, "the server sends another range than asked for", err);
	case STOP_BODY: /* the answer's code says enough */
	case STOP_NONE:
		break;
	}
	if (rc == CURLE_OK || t->stop == STOP_BODY)
		return answered(f, t, err);
	if (rc == CURLE_FILE_COULDNT_READ_FILE)
		return err_set(err, ENOENT, "%s: is not there", t->shown);
	if (rc == CURLE_PARTIAL_FILE) {
		snprintf(why, sizeof(why),
			t->total ? "truncated: %llu of %llu bytes came"
				 : "truncated: %llu bytes came",
			(unsigned long long)t->part.have, (unsigned long long)t->total);
		return retry(t, EBADMSG, why, err);
	}
	snprintf(why, sizeof(why), "%s", t->error[0] ? t->error : curl_easy_strerror(rc));
	if (is_transient(rc))
		return retry(t, EIO, why, err);
	return err_set(err, EIO, "%s: %s", t->shown, why);
}
