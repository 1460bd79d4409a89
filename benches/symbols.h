/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_SYMBOLS_H
#define PARBAKE_BENCHES_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/err.h"

/*
 * What a page of guest memory is to the guest's kernel, from its System.map. Only the kernel's
 * own image has names: its text and data lie where they were linked (the guest's kernel is not
 * relocatable), all else is what the page allocator gave to user memory, page cache, slab and
 * page tables, which no map tells apart.
 */
struct symbols;

/* @text: a System.map ("ffffffff81000000 T _text" lines). -EINVAL names the line. */
int symbols_parse(const char *text, size_t len, struct symbols **ret, struct err *err);
/*
 * The map of the kernel with the digest @kernel_digest: beside PARBAKE_KERNEL or the vmlinux that
 * parbake came with, where that is the very kernel. -ENOENT says why there is none.
 */
int symbols_find(const char *kernel_digest, struct symbols **ret, struct err *err);
void symbols_free(struct symbols *s);
DEFINE_CLEANUP(struct symbols *, symbols_free)
#define cleanup_symbols cleanup_with(symbols_free_p_)

/*
 * The meaning of the page at @offset of guest memory: "kernel text: do_idle", "kernel data:
 * runqueues", "freed init memory", "user, page cache or slab". @s may be NULL: "unknown".
 */
void symbols_name(const struct symbols *s, uint64_t offset, char *ret, size_t len);

#endif
