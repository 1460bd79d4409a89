/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest addresses by name. x86_64 links the kernel at 0xffffffff80000000 plus its physical
 * address (Documentation/arch/x86/x86_64/mm.rst, "kernel text mapping"), and below the hole under
 * 4 GiB, where a kernel is loaded, a machine's physical address is the offset in its memory. A
 * page holds many symbols; it is named by the one that covers its first byte.
 */
#include "benches/symbols.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/paths.h"
#include "common/str.h"

#define KERNEL_MAP 0xffffffff80000000u

struct symbol {
	uint64_t addr;
	char kind;
	const char *name; /* in symbols.text */
};

struct symbols {
	char *text; /* cut into strings */
	struct symbol *list; /* by address, those of the kernel's image alone */
	size_t n;
	uint64_t init_begin, init_end, end;
};

static int by_address(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

void symbols_free(struct symbols *s)
{
	if (!s)
		return;
	free(s->text);
	free(s->list);
	free(s);
}

/* "ADDRESS KIND NAME", its end cut off already. */
static bool parse_line(char *line, struct symbol *ret)
{
	char *end, *name;

	ret->addr = strtoull(line, &end, 16);
	if (end != line + 16 || end[0] != ' ' || !end[1] || end[2] != ' ' || !end[3])
		return false;
	ret->kind = end[1];
	name = end + 3;
	name[strcspn(name, "\t ")] = '\0'; /* a module's, behind a tab */
	ret->name = name;
	return true;
}

int symbols_parse(const char *text, size_t len, struct symbols **ret, struct err *err)
{
	cleanup_symbols struct symbols *s = calloc(1, sizeof(*s));
	size_t lines = 0, number = 0;

	if (!s || len > LIMIT_SYMBOLS_BYTES)
		return err_set(err, s ? EFBIG : ENOMEM, "a System.map of %zu bytes", len);
	s->text = malloc(len + 1);
	for (size_t i = 0; i < len; i++)
		lines += text[i] == '\n';
	s->list = calloc(lines + 1, sizeof(*s->list));
	if (!s->text || !s->list)
		return err_set(err, ENOMEM, "no memory for a System.map");
	memcpy(s->text, text, len);
	s->text[len] = '\0';
	for (char *line = s->text, *next; *line; line = next) {
		struct symbol *one = &s->list[s->n];

		next = line + strcspn(line, "\n");
		if (*next)
			*next++ = '\0';
		number++;
		if (!parse_line(line, one))
			return err_set(err, EINVAL,
				"System.map: line %zu is not \"address kind name\"", number);
		if (one->addr < KERNEL_MAP)
			continue; /* of the per-CPU section, absolute */
		if (!strcmp(one->name, "__init_begin"))
			s->init_begin = one->addr;
		else if (!strcmp(one->name, "__init_end"))
			s->init_end = one->addr;
		else if (!strcmp(one->name, "_end"))
			s->end = one->addr;
		s->n++;
	}
	if (s->n == 0)
		return err_set(err, EINVAL, "System.map: no symbol of the kernel's image");
	qsort(s->list, s->n, sizeof(*s->list), by_address);
	if (!s->end)
		s->end = s->list[s->n - 1].addr;
	*ret = steal_ptr(&s);
	return 0;
}

/* Is the kernel at @path the one of the snapshot? Then its map is read. */
static int read_beside(const char *path, const char *digest, struct symbols **ret, struct err *err)
{
	cleanup_free char *real = realpath(path, NULL), *map = NULL, *kernel = NULL, *text = NULL;
	char got[DIGEST_TEXT_SIZE];
	size_t len, kernel_len;
	int r;

	if (!real)
		return err_sys(err, errno, "%s", path);
	r = file_read_all(AT_FDCWD, real, 512 * MIB, &kernel, &kernel_len, err);
	if (r < 0)
		return r;
	digest_buffer(kernel, kernel_len, got);
	if (strcmp(got, digest) != 0)
		return err_set(err, ENOENT, "%s is another kernel than the snapshot's", path);
	map = str_printf("%.*s/System.map", (int)(strrchr(real, '/') - real), real);
	r = file_read_all(AT_FDCWD, map, LIMIT_SYMBOLS_BYTES, &text, &len, err);
	return r < 0 ? r : symbols_parse(text, len, ret, err);
}

int symbols_find(const char *kernel_digest, struct symbols **ret, struct err *err)
{
	const char *env = getenv("PARBAKE_KERNEL");
	cleanup_free char *path = NULL;

	if (env && *env)
		return read_beside(env, kernel_digest, ret, err);
	if (paths_lib("vmlinux", &path, err) < 0)
		return -ENOENT;
	return read_beside(path, kernel_digest, ret, err);
}

/* The last symbol at or below @addr. */
static const struct symbol *covering(const struct symbols *s, uint64_t addr)
{
	size_t low = 0, high = s->n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (s->list[mid].addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? &s->list[low - 1] : NULL;
}

void symbols_name(const struct symbols *s, uint64_t offset, char *ret, size_t len)
{
	uint64_t addr = KERNEL_MAP + offset;
	const struct symbol *first;
	bool text;

	if (!s) {
		snprintf(ret, len, "unknown");
		return;
	}
	first = addr < KERNEL_MAP || addr >= s->end ? NULL : covering(s, addr);
	if (!first) {
		snprintf(ret, len, "user, page cache or slab");
		return;
	}
	if (addr >= s->init_begin && addr < s->init_end) {
		snprintf(ret, len, "freed init memory");
		return;
	}
	text = first->kind == 't' || first->kind == 'T' || first->kind == 'w' || first->kind == 'W';
	snprintf(ret, len, "kernel %s: %s", text ? "text" : "data", first->name);
}
