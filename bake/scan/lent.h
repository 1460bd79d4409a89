/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_SCAN_LENT_H
#define PARBAKE_BAKE_SCAN_LENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bake/scan/search.h"
#include "common/err.h"

/*
 * What was lent to a bake: values that a guest may use while it is made, and that must not be in the
 * snapshot. Each value has a label for people ("the password in the pip index's URL"), which never
 * has the value in it. All zero is an empty list. One thread at a time.
 */
struct lent {
	struct lent_piece {
		char *label;
		char *bytes; /* searched for; SEARCH_MIN … SEARCH_MAX of them */
		size_t len;
		bool secret; /* else it is none where the root disk has it anyway */
	} * pieces;
	size_t n, room;
};

/*
 * Add a secret of @len bytes under @label. Of a long one each piece is searched for by itself, since
 * text that is contiguous to a program lies in pages here and there. A secret of less than
 * SEARCH_MIN bytes is -EINVAL without an error text: it would be found by chance.
 */
int lent_add_secret(struct lent *l, const char *label, const void *bytes, size_t len);
/*
 * Add what is private in the URL of the index of @whose ("pip"): its host, and its user with the password, as
 * they stand in the URL, decoded, and as HTTP's basic authentication sends them.
 */
void lent_add_url(struct lent *l, const char *whose, const char *url);
/*
 * Add the lines of a file of text, each by itself; lines that are short or hardly vary are left out. *@label
 * names the file.
 */
void lent_add_lines(struct lent *l, const char *label, const char *text, size_t len);
/*
 * Take out addresses and lines that @fd, a file of @bytes bytes, holds: everybody knows them. So they do pieces of
 * a secret, as long as another piece of it is not there. -errno, with @what named in the error.
 */
int lent_drop_known(struct lent *l, int fd, uint64_t bytes, const char *what, struct err *err);
/* The same for files below the directory @dir; one that is not there, or cannot be read, holds nothing. */
void lent_drop_known_below(struct lent *l, const char *dir);
/* A search for all of it. It borrows from @l, which must not change meanwhile. Caller frees. */
struct search *lent_search(const struct lent *l, struct search_string **ret_strings);
/* Write asterisks over every secret of @l in the text @text of @len bytes. */
void lent_mask(const struct lent *l, char *text, size_t len);
void lent_clear(struct lent *l); /* wipes the values */
#define cleanup_lent cleanup_with(lent_clear)

#endif
