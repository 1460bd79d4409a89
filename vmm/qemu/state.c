/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device state of a machine that was itself restored.
 *
 * A migration would write all of its memory: x-ignore-shared leaves out what is shared, and a
 * restored machine's memory is private. QEMU has one command that saves devices alone,
 * xen-save-devices-state (QEMU: migration/savevm.c; it is there without Xen too). What it writes is
 * not a stream that migrate-incoming takes: the configuration section is missing, and so is the
 * memory section, which holds the firmware. Both are the same for every state of one template, as
 * they depend on the machine's shape, and neither can be changed by a guest (a machine's firmware
 * is read-only). So a state is put together of the beginning of the one that the machine was
 * restored from and of the devices saved now:
 *
 *     header  configuration  memory sections │ devices (FULL sections)  end  description
 *     from the state it was restored from    │ saved now                     empty
 *
 * The beginning is parsed strictly (it has no lengths: to find its end is to understand it). The
 * devices are as the monitor writes them. It writes them to a file without a name in the cache (on
 * disk, like the overlay, and as long as its limits let it), and at most as much as a state may
 * have is copied from there. So the monitor keeps no way to change them later.
 */
#include "vmm/qemu/state_private.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/paths.h"
#include "common/str.h"

#define MAGIC "QEVM"
#define VERSION 3
#define PAGE 4096

enum section {
	END = 0,
	START = 1,
	PART = 2,
	LAST = 3,
	FULL = 4,
	SUBSECTION = 5,
	DESCRIPTION = 6,
	CONFIGURATION = 7,
	FOOTER = 0x7e
};

/* of a page's header in a memory section (QEMU: migration/ram.c) */
#define RAM_ZERO 0x02u
#define RAM_SIZES 0x04u
#define RAM_PAGE 0x08u
#define RAM_END 0x10u
#define RAM_SAME 0x20u /* block as the one before */
#define RAM_VERSION 4
#define CAPABILITIES 64

/* A cursor that never passes the end: once anything is missing, it stays bad. */
struct in {
	const uint8_t *at, *end;
	const char *bad; /* what is wrong; NULL: nothing yet */
};

static const uint8_t *take(struct in *in, size_t n)
{
	const uint8_t *at = in->at;

	if (in->bad || n > (size_t)(in->end - in->at)) {
		in->bad = in->bad ?: "it is cut short";
		return NULL;
	}
	in->at += n;
	return at;
}

static uint64_t number(struct in *in, size_t bytes)
{
	const uint8_t *at = take(in, bytes);
	uint64_t n = 0;

	for (size_t i = 0; at && i < bytes; i++)
		n = n << 8 | at[i];
	return n;
}

static void expect(struct in *in, uint64_t value, size_t bytes, const char *what)
{
	if (number(in, bytes) != value && !in->bad)
		in->bad = what;
}

/* A text with its length in @bytes bytes before it; @want: which. NULL: any. */
static void text(struct in *in, size_t bytes, const char *want, const char *what)
{
	size_t n = number(in, bytes);
	const uint8_t *at = take(in, n);

	if (at && want && (n != strlen(want) || memcmp(at, want, n) != 0))
		in->bad = what;
}

static void header(struct in *in)
{
	const uint8_t *magic = take(in, strlen(MAGIC));

	if (magic && memcmp(magic, MAGIC, strlen(MAGIC)) != 0)
		in->bad = "it does not begin as one";
	expect(in, VERSION, 4, "it is of another version");
}

/* The machine's type, then the one subsection that our capability makes. */
static void configuration(struct in *in)
{
	uint64_t n;

	expect(in, CONFIGURATION, 1, "it has no configuration");
	text(in, 4, NULL, NULL);
	expect(in, SUBSECTION, 1, "its configuration names no capabilities");
	text(in, 1, "configuration/capabilities", "its configuration has an unknown part");
	expect(in, 1, 4, "its configuration is of another version");
	n = number(in, 4);
	if (n > CAPABILITIES)
		in->bad = in->bad ?: "it has too many capabilities";
	while (!in->bad && n--)
		text(in, 1, "x-ignore-shared", "it was made with another capability");
}

/* The list of memory blocks: name, length, address of each, until @bytes are told. */
static void sizes(struct in *in, uint64_t bytes)
{
	while (!in->bad && bytes) {
		uint64_t block;

		text(in, 1, NULL, NULL);
		block = number(in, 8);
		number(in, 8);
		if (!in->bad && (block == 0 || block > bytes))
			in->bad = "its memory blocks do not add up";
		bytes -= block;
	}
}

/* What a memory section holds, to its end. */
static void pages(struct in *in)
{
	while (!in->bad) {
		uint64_t head = number(in, 8);
		unsigned flags = head % PAGE;

		if (flags == RAM_END)
			return;
		if (flags == RAM_SIZES) {
			sizes(in, head - flags);
			continue;
		}
		if (!(flags & RAM_SAME))
			text(in, 1, NULL, NULL);
		flags &= ~RAM_SAME;
		if (flags == RAM_PAGE)
			take(in, PAGE);
		else if (flags == RAM_ZERO)
			expect(in, 0, 1, "a zero page is not zero");
		else
			in->bad = in->bad ?: "its memory is written in an unknown way";
	}
}

static void memory_section(struct in *in, enum section kind)
{
	uint64_t id = number(in, 4);

	if (kind == START) {
		text(in, 1, "ram", "it has a section of its own before the devices");
		expect(in, 0, 4, "its memory is not the first");
		expect(in, RAM_VERSION, 4, "its memory is of another version");
	}
	pages(in);
	expect(in, FOOTER, 1, "a section does not end where it should");
	expect(in, id, 4, "a section ends as another");
}

static int verdict(const struct in *in, struct err *err)
{
	return in->bad ? err_set(err, EBADMSG, "the device state cannot be understood: %s", in->bad)
		       : 0;
}

int qemu_state_prefix(const uint8_t *state, size_t len, size_t *ret_len, struct err *err)
{
	struct in in = {.at = state, .end = state + len};
	int r;

	header(&in);
	configuration(&in);
	while (!in.bad) {
		uint64_t kind = number(&in, 1);

		if (in.bad || kind == FULL)
			break;
		if (kind != START && kind != PART && kind != LAST)
			in.bad = "it has an unknown section before the devices";
		else
			memory_section(&in, (enum section)kind);
	}
	r = verdict(&in, err);
	if (r == 0)
		*ret_len = (size_t)(in.at - state) - 1; /* without FULL */
	return r;
}

int qemu_state_devices(const uint8_t *state, size_t len, size_t *ret_start, struct err *err)
{
	struct in in = {.at = state, .end = state + len};
	const uint8_t *first;
	int r;

	header(&in);
	first = in.at;
	expect(&in, FULL, 1, "no device comes first");
	/* the last device's footer, then the end */
	if (!in.bad && (in.end - in.at < 6 || in.end[-1] != END || in.end[-6] != FOOTER))
		in.bad = "it does not end behind a device";
	r = verdict(&in, err);
	if (r == 0)
		*ret_start = (size_t)(first - state);
	return r;
}

/* ---- saving ---------------------------------------------------------------------------------- */

struct bytes {
	uint8_t *data;
	size_t len;
};

static void bytes_clear(struct bytes *b)
{
	free(b->data);
	*b = (struct bytes){0};
}
#define cleanup_bytes __attribute__((__cleanup__(bytes_clear)))

static int read_bytes(int fd, uint64_t len, const char *what, struct bytes *ret, struct err *err)
{
	int r;

	if (len == 0 || len > LIMIT_STATE_BYTES)
		return err_set(err, EBADMSG, "%s has %llu bytes", what, (unsigned long long)len);
	ret->data = malloc(len);
	if (!ret->data)
		return err_set(err, ENOMEM, "no memory for %s", what);
	ret->len = len;
	r = file_pread_full(fd, ret->data, len, 0);
	return r < 0 ? err_sys(err, -r, "read %s", what) : 0;
}

/* A file, and a descriptor over it to write alone. */
static int make_sink(int *ret_file, int *ret_write, struct err *err)
{
	cleanup_fd int file = -1;
	const char *dir;
	char path[64];
	int r = paths_get(PATHS_CACHE, &dir, err);

	if (r < 0)
		return r;
	file = file_scratch(dir, err);
	if (file < 0)
		return file;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	/* QEMU asks for just this mode */
	*ret_write = open(path, O_WRONLY | O_CLOEXEC);
	if (*ret_write < 0)
		return err_sys(err, errno, "a file for the device state");
	*ret_file = steal_fd(&file);
	return 0;
}

/*
 * Lend the monitor @fd while @fn lets it do something with it: QEMU knows such a descriptor as a set of its own,
 * and by its number.
 */
struct lent {
	int set, fd; /* there */
	int64_t deadline;
	uint64_t offset, len;
};

static int lend(struct qmp *q, int fd, struct lent *l,
	int (*fn)(struct qmp *q, const struct lent *l, struct err *err), struct err *err)
{
	cleanup_json json_t *added = NULL;
	uint64_t id, set, number;
	int r = qmp_send(q, "add-fd", NULL, fd, &id, err), removed;

	if (r < 0 || (r = qmp_wait(q, id, l->deadline, &added, err)) < 0 ||
		(r = json_get_u64(added, "fdset-id", 0, INT32_MAX, &set, err)) < 0 ||
		(r = json_get_u64(added, "fd", 0, INT32_MAX, &number, err)) < 0)
		return r;
	l->set = (int)set;
	l->fd = (int)number;
	r = fn(q, l, err);
	removed = qmp_call(q, "remove-fd", json_pack("{s:i}", "fdset-id", l->set), l->deadline,
		NULL, r < 0 ? NULL : err);
	return r < 0 ? r : removed;
}

static int save_devices(struct qmp *q, const struct lent *l, struct err *err)
{
	cleanup_free char *name = str_printf("/dev/fdset/%d", l->set);

	return qmp_call(q, "xen-save-devices-state",
		json_pack("{s:s, s:b}", "filename", name, "live", 0), l->deadline, NULL, err);
}

/* This one knows no sets. */
static int save_memory(struct qmp *q, const struct lent *l, struct err *err)
{
	cleanup_free char *name = str_printf("/proc/self/fd/%d", l->fd);

	return qmp_call(q, "pmemsave",
		json_pack("{s:I, s:I, s:s}", "val", (json_int_t)l->offset, "size",
			(json_int_t)l->len, "filename", name),
		l->deadline, NULL, err);
}

int qemu_memory_save(
	struct qmp *q, uint64_t offset, uint64_t len, int fd, int64_t deadline, struct err *err)
{
	struct lent l = {.deadline = deadline, .offset = offset, .len = len};

	if (ftruncate(fd, 0) < 0)
		return err_sys(err, errno, "empty the file for memory");
	return lend(q, fd, &l, save_memory, err);
}

int qemu_state_save(struct qmp *q, int base_fd, int state_fd, int64_t deadline, struct err *err)
{
	static const uint8_t description[] = {DESCRIPTION, 0, 0, 0, 2, '{', '}'};
	cleanup_bytes struct bytes base = {0}, saved = {0};
	cleanup_fd int file = -1, write_fd = -1;
	struct lent l = {.deadline = deadline};
	size_t prefix, start;
	struct stat st;
	off_t len;
	int r;

	if (fstat(base_fd, &st) < 0)
		return err_sys(err, errno, "the device state that it was restored from");
	r = read_bytes(base_fd, (uint64_t)st.st_size, "the device state that it was restored from",
		&base, err);
	if (r < 0 || (r = qemu_state_prefix(base.data, base.len, &prefix, err)) < 0 ||
		(r = make_sink(&file, &write_fd, err)) < 0 ||
		(r = lend(q, write_fd, &l, save_devices, err)) < 0)
		return r;
	/* the monitor's offset is ours: one open file */
	len = lseek(write_fd, 0, SEEK_CUR);
	r = read_bytes(
		file, len < 0 ? 0 : (uint64_t)len, "the monitor's device state", &saved, err);
	if (r < 0 || (r = qemu_state_devices(saved.data, saved.len, &start, err)) < 0)
		return r;
	r = file_pwrite_full(state_fd, base.data, prefix, 0);
	if (r == 0)
		r = file_pwrite_full(
			state_fd, saved.data + start, saved.len - start, (off_t)prefix);
	if (r == 0)
		r = file_pwrite_full(state_fd, description, sizeof(description),
			(off_t)(prefix + saved.len - start));
	return r < 0 ? err_sys(err, -r, "write the device state") : 0;
}
