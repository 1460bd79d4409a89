/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables at the end of an image, read back from a file that nobody has checked. What
 * holds once image_table_read() has succeeded:
 *
 *   - the frames and the page map fill the file up to the seek table, without gap or overlap;
 *   - every frame begins on a page and holds at least a byte; together they are raw_bytes;
 *   - a frame that holds data has at most LIMIT_FRAME_BYTES raw, and stored no more than zstd
 *     could have needed; the others hold zeros and are never decompressed;
 *   - seek table and page map belong together: each is covered by a check in the map's header.
 *
 * Nothing is allocated that the file's own size does not justify, but for the bitmap,
 * which has at most LIMIT_DISK_MAX / 32768 bytes.
 */
#include "store/image_table.h"

#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include "common/file.h"
#include "store/limits.h"

static int bad(struct err *err, const char *what)
{
	return err_set(err, EBADMSG, "the image is damaged: %s", what);
}

static int read_at(const struct image *img, void *buf, size_t len, uint64_t at, struct err *err)
{
	int r = file_pread_full(img->fd, buf, len, (off_t)at);

	if (r == -ENODATA)
		return bad(err, "the file ends early");
	return r < 0 ? err_sys(err, -r, "read the image") : 0;
}

/* The seek table's text: @ret_n entries, where its skippable frame begins. Caller frees *@ret. */
static int read_seek_table(
	const struct image *img, uint8_t **ret, uint64_t *ret_n, uint64_t *ret_at, struct err *err)
{
	uint8_t foot[IMAGE_TABLE_FOOT], head[IMAGE_TABLE_HEAD];
	cleanup_free uint8_t *text = NULL;
	uint64_t n, bytes, at;
	int r;

	if (img->file_bytes < IMAGE_TABLE_HEAD + IMAGE_TABLE_ENTRY + IMAGE_TABLE_FOOT)
		return bad(err, "too short for a seek table");
	r = read_at(img, foot, sizeof(foot), img->file_bytes - sizeof(foot), err);
	if (r < 0)
		return r;
	if (image_get32(foot + 5) != IMAGE_SEEKABLE_MAGIC)
		return bad(err, "no seek table at its end (cut off, or not an image)");
	if (foot[4] != IMAGE_TABLE_CHECKSUMS)
		return bad(err, "the seek table has no checksums, or unknown fields");
	n = image_get32(foot);
	if (n < 1 || n - 1 > LIMIT_FRAMES)
		return bad(err, "the seek table's number of frames");
	bytes = IMAGE_TABLE_HEAD + n * IMAGE_TABLE_ENTRY + IMAGE_TABLE_FOOT;
	if (bytes > img->file_bytes)
		return bad(err, "the seek table is longer than the file");
	at = img->file_bytes - bytes;
	r = read_at(img, head, sizeof(head), at, err);
	if (r < 0)
		return r;
	if (image_get32(head) != IMAGE_TABLE_MAGIC ||
		image_get32(head + 4) != bytes - IMAGE_TABLE_HEAD)
		return bad(err, "the seek table's beginning");
	text = malloc(n * IMAGE_TABLE_ENTRY);
	if (!text)
		return err_sys(err, ENOMEM, "read the seek table");
	r = read_at(img, text, n * IMAGE_TABLE_ENTRY, at + IMAGE_TABLE_HEAD, err);
	if (r < 0)
		return r;
	*ret = steal_ptr(&text);
	*ret_n = n;
	*ret_at = at;
	return 0;
}

/* Fill the arrays from the table's text. */
static int take_entries(
	struct image *img, const uint8_t *text, uint64_t n, uint64_t table_at, struct err *err)
{
	uint64_t raw = 0, stored = 0;

	img->n_frames = n - 1; /* the last is the page map */
	img->raw_at = malloc(n * sizeof(*img->raw_at));
	img->stored_at = malloc(n * sizeof(*img->stored_at));
	img->check = malloc(n * sizeof(*img->check));
	if (!img->raw_at || !img->stored_at || !img->check)
		return err_sys(err, ENOMEM, "read the seek table");
	for (uint64_t i = 0; i < n; i++) {
		const uint8_t *e = text + i * IMAGE_TABLE_ENTRY;

		img->raw_at[i] = raw;
		img->stored_at[i] = stored;
		img->check[i] = image_get32(e + 8);
		stored += image_get32(e);
		raw += image_get32(e + 4);
		if (i < n - 1 && image_get32(e + 4) == 0)
			return bad(err, "a frame in the seek table is empty");
		if (img->raw_at[i] % IMAGE_PAGE && i < n - 1)
			return bad(err, "a frame in the seek table does not begin on a page");
		if (raw > LIMIT_DISK_MAX || stored > table_at)
			return bad(err, "the seek table's sizes exceed the file's");
	}
	if (stored != table_at)
		return bad(err, "the seek table's sizes are not the file's");
	if (raw != img->raw_at[n - 1] || img->check[n - 1] != IMAGE_EMPTY_CHECK)
		return bad(err, "the seek table's last line is not the page map's");
	img->raw_bytes = raw;
	img->n_pages = image_pages(raw);
	return 0;
}

static int check_map_head(const struct image *img, const uint8_t *head, uint64_t stored,
	const uint8_t *table, struct err *err)
{
	if (image_get32(head) != IMAGE_MAP_MAGIC ||
		memcmp(head + IMAGE_MAP_AT_INNER, IMAGE_MAP_INNER, 8) != 0)
		return bad(err, "no page map before the seek table (not an image of parbake)");
	if (image_get32(head + IMAGE_MAP_AT_SIZE) != stored - 8)
		return bad(err, "the page map's size");
	if (image_get32(head + IMAGE_MAP_AT_CHECK) !=
		image_check(head + IMAGE_MAP_AT_INNER, IMAGE_MAP_AT_CHECK - IMAGE_MAP_AT_INNER))
		return bad(err, "the page map's header does not match its checksum");
	if (image_get32(head + IMAGE_MAP_AT_VERSION) != IMAGE_MAP_VERSION)
		return err_set(err, EBADMSG,
			"the image has format %u, this program reads format %d",
			image_get32(head + IMAGE_MAP_AT_VERSION), IMAGE_MAP_VERSION);
	if (image_get32(head + IMAGE_MAP_AT_PAGE) != IMAGE_PAGE)
		return bad(err, "the page map's page size is not 4096");
	if (image_get64(head + IMAGE_MAP_AT_RAW) != img->raw_bytes)
		return bad(err, "page map and seek table differ in the image's size");
	if (image_get32(head + IMAGE_MAP_AT_TABLE) !=
		image_check(table, img->n_frames * IMAGE_TABLE_ENTRY))
		return bad(err, "the seek table does not match its checksum");
	return 0;
}

static int check_map_bits(struct image *img, uint64_t want_data, struct err *err)
{
	uint64_t bytes = (img->n_pages + 7) / 8, data = 0;

	for (uint64_t i = 0; i < bytes; i++)
		data += (unsigned)__builtin_popcount(img->map[i]);
	if (img->n_pages % 8 && img->map[bytes - 1] >> img->n_pages % 8)
		return bad(err, "the page map has pages behind the end");
	if (data != want_data)
		return bad(err, "the page map's number of pages");
	return 0;
}

static int read_map(struct image *img, uint64_t table_at, const uint8_t *table, struct err *err)
{
	uint64_t at = img->stored_at[img->n_frames], stored = table_at - at;
	size_t bytes = (img->n_pages + 7) / 8, n;
	cleanup_free uint8_t *text = NULL;
	int r;

	if (stored < IMAGE_MAP_HEAD || stored > IMAGE_MAP_HEAD + ZSTD_compressBound(bytes))
		return bad(err, "the page map's size in the seek table");
	text = malloc(stored);
	if (!text)
		return err_sys(err, ENOMEM, "read the page map");
	r = read_at(img, text, stored, at, err);
	if (r == 0)
		r = check_map_head(img, text, stored, table, err);
	if (r < 0)
		return r;
	if (image_get32(text + IMAGE_MAP_AT_BITS) !=
		image_check(text + IMAGE_MAP_HEAD, stored - IMAGE_MAP_HEAD))
		return bad(err, "the page map does not match its checksum");
	img->map = malloc(bytes + 1);
	if (!img->map)
		return err_sys(err, ENOMEM, "read the page map");
	n = ZSTD_decompress(img->map, bytes, text + IMAGE_MAP_HEAD, stored - IMAGE_MAP_HEAD);
	if (ZSTD_isError(n) || n != bytes)
		return bad(err, "the page map does not decompress to a bit per page");
	return check_map_bits(img, image_get64(text + IMAGE_MAP_AT_DATA), err);
}

/* The largest frame with data; none may exceed what a reader has to hold. */
static int check_data_frames(struct image *img, struct err *err)
{
	for (uint64_t i = 0; i < img->n_frames; i++) {
		uint64_t raw = img->raw_at[i + 1] - img->raw_at[i];
		uint64_t stored = img->stored_at[i + 1] - img->stored_at[i];

		if (!image_table_has_data(img, i))
			continue;
		if (raw > LIMIT_FRAME_BYTES)
			return bad(err, "a frame that holds data is too large");
		if (stored < IMAGE_ZSTD_HEAD + 4 || stored > ZSTD_compressBound(raw) + 32)
			return bad(err, "a frame's stored size");
		if (raw > img->frame_bytes)
			img->frame_bytes = (uint32_t)raw;
	}
	return 0;
}

int image_table_read(struct image *img, struct err *err)
{
	cleanup_free uint8_t *table = NULL;
	uint64_t n = 0, table_at = 0;
	struct stat st;
	int r;

	if (fstat(img->fd, &st) < 0)
		return err_sys(err, errno, "open the image");
	if (!S_ISREG(st.st_mode))
		return err_set(err, EBADMSG, "the image is not a regular file");
	img->file_bytes = (uint64_t)st.st_size;
	r = read_seek_table(img, &table, &n, &table_at, err);
	if (r == 0)
		r = take_entries(img, table, n, table_at, err);
	if (r == 0)
		r = read_map(img, table_at, table, err);
	if (r == 0)
		r = check_data_frames(img, err);
	return r;
}

bool image_table_has_data(const struct image *img, uint64_t i)
{
	bool data = false;

	return image_run_end(img, img->raw_at[i], img->raw_at[i + 1], &data) < img->raw_at[i + 1] ||
		data;
}

uint64_t image_table_find(const struct image *img, uint64_t offset)
{
	uint64_t low = 0, high = img->n_frames; /* raw_at[low] ≤ offset < raw_at[high] */

	while (high - low > 1) {
		uint64_t mid = low + (high - low) / 2;

		if (img->raw_at[mid] <= offset)
			low = mid;
		else
			high = mid;
	}
	return low;
}

uint64_t image_raw_bytes(const struct image *img)
{
	return img->raw_bytes;
}

uint32_t image_frame_bytes(const struct image *img)
{
	return img->frame_bytes;
}

bool image_page_has_data(const struct image *img, uint64_t offset)
{
	return offset < img->raw_bytes && image_bit(img->map, offset / IMAGE_PAGE);
}

/* From @page on: the first page before @end that is not as @data says, else @end. */
static uint64_t skip_alike(const struct image *img, uint64_t page, uint64_t end, bool data)
{
	uint64_t word, all = data ? UINT64_MAX : 0;

	while (page < end) {
		if (page % 64 == 0 && page + 64 <= end) {
			memcpy(&word, img->map + page / 8, sizeof(word));
			if (word == all) {
				page += 64;
				continue;
			}
		}
		if (image_bit(img->map, page) != data)
			break;
		page++;
	}
	return page;
}

uint64_t image_run_end(const struct image *img, uint64_t offset, uint64_t end, bool *ret_data)
{
	uint64_t page;

	*ret_data = image_page_has_data(img, offset);
	if (end > img->raw_bytes)
		end = img->raw_bytes;
	if (offset >= end)
		return end;
	page = skip_alike(img, offset / IMAGE_PAGE, image_pages(end), *ret_data);
	return page * IMAGE_PAGE < end ? page * IMAGE_PAGE : end;
}

void image_frame_at(
	const struct image *img, uint64_t offset, uint64_t *ret_start, uint64_t *ret_bytes)
{
	uint64_t i;

	if (offset >= img->raw_bytes) {
		*ret_start = img->raw_bytes;
		*ret_bytes = 0;
		return;
	}
	i = image_table_find(img, offset);
	*ret_start = img->raw_at[i];
	*ret_bytes = img->raw_at[i + 1] - img->raw_at[i];
}
