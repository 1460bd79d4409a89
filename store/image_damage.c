/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a damaged image is damaged: each frame has a checksum of its own, so the frames that are wrong
 * can be named, and what of the raw image they hold. What lies between the damaged ones is good.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "common/str.h"
#include "store/image.h"
#include "store/image_table.h"

#define RUNS_TOLD 8

struct damage {
	FILE *f;
	unsigned runs;
	uint64_t frames;
};

/* Frames [@from, @to) are wrong. */
static void tell(struct damage *d, const struct image *img, uint64_t from, uint64_t to)
{
	d->frames += to - from;
	if (d->runs++ < RUNS_TOLD)
		fprintf(d->f,
			"%sbytes %" PRIu64 " to %" PRIu64 " of it (%" PRIu64 " to %" PRIu64
			" of what it holds)",
			d->runs > 1 ? ", " : "", img->stored_at[from], img->stored_at[to] - 1,
			img->raw_at[from], img->raw_at[to] - 1);
}

static void look(struct damage *d, struct image *img, uint8_t *buf)
{
	uint64_t from = 0;
	bool bad = false;

	for (uint64_t i = 0; i < img->n_frames; i++) {
		bool now = image_table_has_data(img, i) &&
			image_read_frame(img, img->raw_at[i], buf, NULL);

		if (now && !bad)
			from = i;
		if (bad && !now)
			tell(d, img, from, i);
		bad = now;
	}
	if (bad)
		tell(d, img, from, img->n_frames);
}

char *image_damage(int fd)
{
	cleanup_image struct image *img = NULL;
	cleanup_free uint8_t *buf = NULL;
	struct damage d = {0};
	struct err err;
	char *text = NULL;
	size_t len;

	if (image_open(fd, &img, &err))
		return str_printf(
			"its tables, at its end, are wrong (%s): which frames are cannot be told",
			err.text);
	buf = malloc(img->frame_bytes ? img->frame_bytes : IMAGE_PAGE);
	d.f = open_memstream(&text, &len);
	if (!buf || !d.f)
		abort();
	look(&d, img, buf);
	if (d.runs > RUNS_TOLD)
		fprintf(d.f, ", and more");
	if (d.runs)
		fprintf(d.f, " are wrong: %" PRIu64 " of %" PRIu64 " frames", d.frames,
			img->n_frames);
	else
		fprintf(d.f,
			"all data in it is good: wrong is a frame that holds nothing, or the "
			"tables from "
			"byte %" PRIu64 " on",
			img->stored_at[img->n_frames]);
	if (fclose(d.f))
		abort();
	return text;
}
