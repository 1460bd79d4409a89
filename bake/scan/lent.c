/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of what was lent, as pieces to search for. What anyone can read anyway is taken out of it
 * again: a CA bundle is mostly certificates that every root disk has, and an index may be one that
 * the packages in the root name themselves.
 */
#include "bake/scan/lent.h"

#include <ctype.h>
#include <fcntl.h>
#include <fts.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base64.h"
#include "common/str.h"

#define PIECE 16 /* of a secret that is long enough to be cut */
#define LINE_MIN 16
#define LINE_VARIES 8 /* different bytes that a line has at least */

static void add_piece(struct lent *l, const char *label, const char *bytes, size_t len, bool secret)
{
	struct lent_piece *p;

	if (len < SEARCH_MIN)
		return;
	if (len > SEARCH_MAX)
		len = SEARCH_MAX;
	if (l->n == l->room) {
		l->room = l->room ? 2 * l->room : 64;
		l->pieces = reallocarray(l->pieces, l->room, sizeof(*l->pieces));
		if (!l->pieces)
			abort();
	}
	p = &l->pieces[l->n++];
	*p = (struct lent_piece){
		.label = str_dup(label), .bytes = malloc(len), .len = len, .secret = secret};
	if (!p->bytes)
		abort();
	memcpy(p->bytes, bytes, len);
}

int lent_add_secret(struct lent *l, const char *label, const void *bytes, size_t len)
{
	const char *text = bytes;

	if (len < SEARCH_MIN)
		return -EINVAL;
	if (len < 2 * PIECE) {
		add_piece(l, label, text, len, true);
		return 0;
	}
	for (size_t at = 0; at + PIECE <= len; at += PIECE)
		add_piece(l, label, text + at, PIECE, true);
	if (len % PIECE)
		add_piece(l, label, text + len - PIECE, PIECE, true);
	return 0;
}

/* ---- URLs -------------------------------------------------------------------------------- */

/* @text with %XX decoded. Caller frees. */
static char *percent_decoded(const char *text)
{
	char *out = str_dup(text), *to = out;

	for (; *text; text++) {
		if (*text == '%' && isxdigit((unsigned char)text[1]) &&
			isxdigit((unsigned char)text[2])) {
			const char digits[] = {text[1], text[2], '\0'};

			*to++ = (char)strtoul(digits, NULL, 16);
			text += 2;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
	return out;
}

/* @user is "NAME:PASSWORD" or a token alone, as it stands in the URL. */
static void add_user(struct lent *l, const char *whose, const char *user)
{
	cleanup_free char *decoded = percent_decoded(user);
	cleanup_free char *basic = base64_encode(decoded, strlen(decoded));
	cleanup_free char *label = str_printf("the password in the URL of %s's index", whose);
	cleanup_free char *encoded =
		str_printf("user and password of %s's index, as HTTP sends them", whose);
	const char *const texts[] = {user, decoded};

	for (size_t i = 0; i < 2; i++) {
		const char *colon = strchr(texts[i], ':');
		const char *secret = colon ? colon + 1 : texts[i];

		if (i && !strcmp(user, decoded))
			break;
		/* a short password is known by what stands around it */
		if (lent_add_secret(l, label, secret, strlen(secret)))
			add_piece(l, label, texts[i], strlen(texts[i]), true);
	}
	add_piece(l, encoded, basic, strcspn(basic, "="), true);
}

void lent_add_url(struct lent *l, const char *whose, const char *url)
{
	const char *p = strstr(url, "://"), *at;
	cleanup_free char *place = NULL;
	cleanup_free char *label = str_printf("the address of %s's index", whose);
	const char *host;

	if (!p)
		return;
	p += 3;
	place = strndup(p, strcspn(p, "/?# \t\n"));
	if (!place)
		abort();
	at = strrchr(place, '@');
	host = at ? at + 1 : place;
	if (at) {
		cleanup_free char *user = strndup(place, (size_t)(at - place));

		if (!user)
			abort();
		add_user(l, whose, user);
		explicit_bzero(user, strlen(user));
	}
	if (strlen(host) >= SEARCH_MIN) {
		add_piece(l, label, host, strlen(host), false);
	} else {
		cleanup_free char *longer = str_printf("://%s/", host);

		add_piece(l, label, longer, strlen(longer), false);
	}
}

/* ---- lines ------------------------------------------------------------------------------- */

static bool telling(const char *line, size_t len)
{
	bool seen[256] = {false};
	size_t different = 0;

	if (len < LINE_MIN || !strncmp(line, "-----", 5))
		return false;
	for (size_t i = 0; i < len; i++) {
		different += !seen[(unsigned char)line[i]];
		seen[(unsigned char)line[i]] = true;
	}
	return different >= LINE_VARIES;
}

static int by_bytes(const void *a, const void *b)
{
	const struct lent_piece *x = a, *y = b;
	int r = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);

	return r ? r : (x->len > y->len) - (x->len < y->len);
}

static void free_piece(struct lent_piece *p)
{
	free(p->label);
	explicit_bzero(p->bytes, p->len);
	free(p->bytes);
}

static void drop_doubles(struct lent *l)
{
	size_t kept = 0;

	qsort(l->pieces, l->n, sizeof(*l->pieces), by_bytes);
	for (size_t i = 0; i < l->n; i++) {
		if (kept && !by_bytes(&l->pieces[kept - 1], &l->pieces[i]))
			free_piece(&l->pieces[i]);
		else
			l->pieces[kept++] = l->pieces[i];
	}
	l->n = kept;
}

void lent_add_lines(struct lent *l, const char *label, const char *text, size_t len)
{
	for (const char *p = text, *end = text + len, *next; p < end; p = next + 1) {
		size_t n;

		next = memchr(p, '\n', (size_t)(end - p));
		if (!next)
			next = end;
		n = (size_t)(next - p);
		if (n && p[n - 1] == '\r')
			n--;
		if (telling(p, n))
			add_piece(l, label, p, n, false);
	}
	if (l->n)
		drop_doubles(l);
}

/* ---- what is known anyway ---------------------------------------------------------------- */

struct search *lent_search(const struct lent *l, struct search_string **ret_strings)
{
	struct search_string *strings = calloc(l->n + 1, sizeof(*strings));

	if (!strings)
		abort();
	for (size_t i = 0; i < l->n; i++)
		strings[i] = (struct search_string){l->pieces[i].bytes, l->pieces[i].len};
	*ret_strings = strings;
	return search_new(strings, l->n);
}

static int mark(void *user, size_t string, uint64_t offset)
{
	bool *known = user;

	(void)offset;
	known[string] = true;
	return 0;
}

/* Does a part of the same secret stand nowhere? Then that part is what tells, and not a line like "BEGIN PRIVATE KEY". */
static bool told_by_another(const struct lent *l, const bool *known, size_t i)
{
	for (size_t j = 0; j < l->n; j++)
		if (!known[j] && !strcmp(l->pieces[i].label, l->pieces[j].label))
			return true;
	return false;
}

static void drop_marked(struct lent *l, const bool *known)
{
	cleanup_free bool *drop = calloc(l->n + 1, sizeof(*drop));
	size_t kept = 0;

	if (!drop)
		abort();
	for (size_t i = 0; i < l->n; i++)
		drop[i] = known[i] && (!l->pieces[i].secret || told_by_another(l, known, i));
	for (size_t i = 0; i < l->n; i++) {
		if (drop[i])
			free_piece(&l->pieces[i]);
		else
			l->pieces[kept++] = l->pieces[i];
	}
	l->n = kept;
}

int lent_drop_known(struct lent *l, int fd, uint64_t bytes, const char *what, struct err *err)
{
	cleanup_free struct search_string *strings = NULL;
	cleanup_search struct search *s = lent_search(l, &strings);
	cleanup_free bool *known = calloc(l->n + 1, sizeof(*known));
	int r;

	if (!known)
		abort();
	r = search_fd(s, fd, bytes, what, mark, known, NULL, err);
	if (!r)
		drop_marked(l, known);
	return r;
}

void lent_drop_known_below(struct lent *l, const char *dir)
{
	cleanup_free struct search_string *strings = NULL;
	cleanup_search struct search *s = lent_search(l, &strings);
	cleanup_free bool *known = calloc(l->n + 1, sizeof(*known));
	char *const roots[] = {(char *)(uintptr_t)dir, NULL};
	FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	FTSENT *e;

	if (!known)
		abort();
	while (walk && (e = fts_read(walk))) {
		cleanup_fd int fd = -1;

		if (e->fts_info != FTS_F)
			continue;
		fd = open(e->fts_accpath, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0)
			search_fd(s, fd, (uint64_t)e->fts_statp->st_size, e->fts_path, mark, known,
				NULL, NULL);
	}
	if (walk)
		fts_close(walk);
	drop_marked(l, known);
}

/* Pieces overlap: they are looked for in the text as it was. */
void lent_mask(const struct lent *l, char *text, size_t len)
{
	cleanup_free char *was = malloc(len + 1);

	if (!was)
		abort();
	memcpy(was, text, len);
	for (size_t i = 0; i < l->n; i++) {
		const struct lent_piece *p = &l->pieces[i];
		char *at = was;

		if (!p->secret)
			continue;
		for (; (at = memmem(at, len - (size_t)(at - was), p->bytes, p->len)); at++)
			memset(text + (at - was), '*', p->len);
	}
	explicit_bzero(was, len);
}

void lent_clear(struct lent *l)
{
	for (size_t i = 0; i < l->n; i++)
		free_piece(&l->pieces[i]);
	free(l->pieces);
	*l = (struct lent){0};
}
