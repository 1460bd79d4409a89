/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_FETCH_FETCH_PRIVATE_H
#define PARBAKE_BAKE_FETCH_FETCH_PRIVATE_H

/*
 * Downloads from inside: what fetch.c (the states of an item), transfer.c and answer.c (one request and what follows
 * from its answer) and part.c (the files) share. One thread. Functions that may fail return -errno.
 */
#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bake/fetch/fetch.h"
#include "common/digest.h"
#include "common/err.h"

#define FETCH_VALIDATOR_SIZE 256

/*
 * The part: the bytes of one download that have come so far, in a file that outlives a failure:
 * downloads/partial/HEX, and beside it HEX.from with the URL and the server's validator. Whoever
 * holds the flock on the file owns it.
 */
struct fetch_part {
	int dirfd; /* of downloads; owned; -1: not open */
	int fd; /* of the part, locked */
	const char *hex; /* borrowed */
	uint64_t have; /* bytes */
	struct digest *sum; /* of them */
	char validator[FETCH_VALIDATOR_SIZE]; /* as If-Range takes it, or "" */
};

#define FETCH_PART_INIT                                                                            \
	{                                                                                          \
		.dirfd = -1, .fd = -1                                                              \
	}

/* The path of the file with digest @hex in the cache (caller frees); NULL: it is not there. */
char *fetch_cached(const char *downloads, const char *hex);
/*
 * Lock and open the part; -EWOULDBLOCK where another process owns it. @url: the stored validator
 * counts only if it came from that URL.
 */
int fetch_part_open(struct fetch_part *p, const char *downloads, const char *hex, const char *url,
	struct err *err);
int fetch_part_write(struct fetch_part *p, const void *data, size_t len);
/* Throw away the bytes that have come. */
int fetch_part_restart(struct fetch_part *p);
/* Keep what is needed to ask for the rest of this very file later. */
void fetch_part_note(struct fetch_part *p, const char *url, const char *validator);
/* The digest of all that has come; what comes after it starts another. */
void fetch_part_digest(struct fetch_part *p, char ret[static DIGEST_TEXT_SIZE]);
/* Give the part its name in the cache. */
int fetch_part_publish(struct fetch_part *p, struct err *err);
/* Unlock; the part stays for the next time unless it is empty or @drop. */
void fetch_part_close(struct fetch_part *p, bool drop);

/* fetch.c's states; transfer.c and answer.c move an item through RUNNING. */
enum fetch_state { WAITING, READY, RUNNING, DONE };
enum fetch_stop { STOP_NONE, STOP_LARGE, STOP_WRITE, STOP_RANGE, STOP_BODY };

struct fetch_transfer {
	struct fetch_item *item;
	struct fetch_transfer *twin; /* an earlier item of the same digest: its result is ours */
	enum fetch_state state;
	struct fetch_part part;
	CURL *easy;
	struct curl_slist *headers;
	char *url; /* now: the item's or where it redirects to */
	char *shown; /* the item's, fit to be read by others */
	char want[DIGEST_TEXT_SIZE];
	char error[CURL_ERROR_SIZE];
	int64_t not_before;
	uint64_t max, best, total; /* most bytes ever had; size of the whole, 0: not known */
	unsigned tries, redirects;
	bool resumed, anew; /* bytes of several answers; has been started anew for that */
	bool https; /* from here on nothing else */
	/* the answer */
	uint64_t range_from, dropped;
	bool has_range, began;
	char validator[FETCH_VALIDATOR_SIZE];
	enum fetch_stop stop;
	int write_error;
};

struct fetch {
	CURLM *multi;
	char *downloads;
	struct fetch_transfer *transfers;
	size_t n;
	struct progress *progress;
};

/* transfer.c: ask for what is missing; the bytes go into the part as they come. */
int fetch_transfer_start(struct fetch *f, struct fetch_transfer *t, struct err *err);
long fetch_answer_code(const struct fetch_transfer *t);
bool fetch_has_scheme(const char *url, const char *scheme);

/* answer.c: the transfer has ended with @rc: done, another try, a redirect, or an error. */
int fetch_ended(struct fetch *f, struct fetch_transfer *t, CURLcode rc, struct err *err);
/* Back to the item's own URL. */
void fetch_url_reset(struct fetch_transfer *t);

#endif
