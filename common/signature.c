/* SPDX-License-Identifier: Apache-2.0 */
/* minisign's formats, byte for byte: doc/ of minisign and its manual page describe them. */
#include "common/signature.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "common/base64.h"
#include "common/cleanup.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/str.h"

#define HASH 64
#define SIGNATURE 64

/* What a line of base 64 holds. All fields are bytes: no padding. */
struct public_file {
	uint8_t algorithm[2]; /* "Ed" */
	uint8_t id[SIGNATURE_ID];
	uint8_t public[crypto_sign_PUBLICKEYBYTES];
};

struct signature_file {
	uint8_t algorithm[2]; /* "ED": of the digest */
	uint8_t id[SIGNATURE_ID];
	uint8_t signature[SIGNATURE];
};

struct secret_file {
	uint8_t algorithm[2]; /* "Ed" */
	uint8_t kdf[2]; /* "Sc" with a password, zeros without */
	uint8_t sum_algorithm[2]; /* "B2" */
	uint8_t salt[32];
	uint8_t limits[16];
	uint8_t id[SIGNATURE_ID];
	uint8_t secret[crypto_sign_SECRETKEYBYTES];
	uint8_t sum[32]; /* BLAKE2b-256 of algorithm, id and secret */
};
_Static_assert(sizeof(struct public_file) == 42 && sizeof(struct signature_file) == 74 &&
		sizeof(struct secret_file) == 158,
	"the formats have no padding");

static void begin(void)
{
	if (sodium_init() < 0)
		abort();
}

/* The line that begins at *@at, without its end; *@at goes behind it. Caller frees; NULL: there is none. */
static char *next_line(const char **at)
{
	size_t n = strcspn(*at, "\n");
	char *line;

	if (!**at)
		return NULL;
	line = strndup(*at, n);
	if (!line)
		abort();
	*at += n + ((*at)[n] == '\n');
	if (n && line[n - 1] == '\r')
		line[n - 1] = '\0';
	return line;
}

/* A line of base 64 of exactly @size bytes. */
static bool decode(const char *line, void *ret, size_t size)
{
	size_t len = strlen(line);
	uint8_t buf[4 * sizeof(struct secret_file)];
	ssize_t n = -1;

	if (len <= sizeof(buf))
		n = base64_decode(line, len, buf);
	if (n == (ssize_t)size)
		memcpy(ret, buf, size);
	sodium_memzero(buf, sizeof(buf));
	return n == (ssize_t)size;
}

static char *encode(const void *bytes, size_t size)
{
	return base64_encode(bytes, size);
}

/* minisign prints the number of a key as one of 64 bits. */
static void id_text(const uint8_t *id, char ret[static SIGNATURE_ID_TEXT])
{
	for (int i = 0; i < SIGNATURE_ID; i++)
		snprintf(ret + 2 * i, 3, "%02X", id[SIGNATURE_ID - 1 - i]);
}

/* ---- public keys ------------------------------------------------------------------------- */

static void add_key(struct signature_keys *keys, const struct public_file *p)
{
	struct signature_key *k;

	keys->items = reallocarray(keys->items, keys->n + 1, sizeof(*keys->items));
	if (!keys->items)
		abort();
	k = &keys->items[keys->n++];
	memcpy(k->id, p->id, sizeof(k->id));
	memcpy(k->public, p->public, sizeof(k->public));
}

int signature_keys_parse(
	const char *what, const char *text, size_t len, struct signature_keys *ret, struct err *err)
{
	cleanup_signature_keys struct signature_keys keys = {0};
	unsigned number = 0;
	const char *at = text;

	if (strlen(text) != len)
		return err_set(err, EINVAL, "%s: NUL bytes in it", what);
	for (char *line; (line = next_line(&at)); free(line)) {
		struct public_file p;

		number++;
		if (!*line || *line == '#' || !strncmp(line, "untrusted comment:", 18))
			continue;
		if (!decode(line, &p, sizeof(p)) || memcmp(p.algorithm, "Ed", 2) ||
			keys.n == LIMIT_SIGNATURE_KEYS) {
			free(line);
			return err_set(err, EINVAL,
				"%s:%u: not a public key of minisign, or more than %d", what,
				number, LIMIT_SIGNATURE_KEYS);
		}
		add_key(&keys, &p);
	}
	if (!keys.n)
		return err_set(err, ENOENT, "%s: no public key in it", what);
	*ret = keys;
	keys = (struct signature_keys){0};
	return 0;
}

int signature_keys_read(const char *path, struct signature_keys *ret, struct err *err)
{
	cleanup_free char *text = NULL;
	size_t len;
	int r = file_read_all(AT_FDCWD, path, LIMIT_SIGNATURE_BYTES, &text, &len, err);

	return r ? r : signature_keys_parse(path, text, len, ret, err);
}

void signature_keys_clear(struct signature_keys *keys)
{
	free(keys->items);
	*keys = (struct signature_keys){0};
}

/* ---- verifying --------------------------------------------------------------------------- */

struct parsed {
	struct signature_file file;
	uint8_t global[SIGNATURE];
	char *comment; /* the trusted one; owned */
};

static void parsed_clear(struct parsed *p)
{
	free(p->comment);
}

static int parse(const char *text, struct parsed *ret, struct err *err)
{
	static const char trusted[] = "trusted comment: ";
	char *lines[4] = {NULL};
	const char *at = text;
	bool good;

	for (size_t i = 0; i < 4; i++)
		lines[i] = next_line(&at);
	good = lines[3] && !strncmp(lines[0], "untrusted comment: ", 19) &&
		decode(lines[1], &ret->file, sizeof(ret->file)) &&
		!strncmp(lines[2], trusted, strlen(trusted)) &&
		decode(lines[3], ret->global, sizeof(ret->global)) &&
		!memcmp(ret->file.algorithm, "ED", 2);
	if (good)
		ret->comment = str_dup(lines[2] + strlen(trusted));
	for (size_t i = 0; i < 4; i++)
		free(lines[i]);
	return good ? 0
		    : err_set(err, EINVAL, "not a signature of minisign over a digest (\"ED\")");
}

int signature_id(const char *text, char ret[static SIGNATURE_ID_TEXT], struct err *err)
{
	cleanup_with(parsed_clear) struct parsed p = {0};
	int r = parse(text, &p, err);

	if (!r)
		id_text(p.file.id, ret);
	return r;
}

/* What the second signature is of: the first one and the comment. Caller frees. */
static uint8_t *global_text(const struct signature_file *f, const char *comment, size_t *ret_len)
{
	uint8_t *all = malloc(SIGNATURE + strlen(comment) + 1);

	if (!all)
		abort();
	memcpy(all, f->signature, SIGNATURE);
	memcpy(all + SIGNATURE, comment, strlen(comment));
	*ret_len = SIGNATURE + strlen(comment);
	return all;
}

static bool is_by(
	const struct parsed *p, const struct signature_key *k, const void *data, size_t len)
{
	cleanup_free uint8_t *global = NULL;
	uint8_t hash[HASH];
	size_t n;

	crypto_generichash(hash, sizeof(hash), data, len, NULL, 0);
	if (crypto_sign_verify_detached(p->file.signature, hash, sizeof(hash), k->public))
		return false;
	global = global_text(&p->file, p->comment, &n);
	return !crypto_sign_verify_detached(p->global, global, n, k->public);
}

int signature_verify(const char *text, const void *data, size_t len,
	const struct signature_keys *keys, struct err *err)
{
	cleanup_with(parsed_clear) struct parsed p = {0};
	char id[SIGNATURE_ID_TEXT];
	bool known = false;
	int r;

	begin();
	r = parse(text, &p, err);
	if (r)
		return r;
	id_text(p.file.id, id);
	for (size_t i = 0; i < keys->n; i++) {
		if (memcmp(keys->items[i].id, p.file.id, SIGNATURE_ID))
			continue;
		if (is_by(&p, &keys->items[i], data, len))
			return 0;
		known = true;
	}
	if (known)
		return err_set(err, EKEYREJECTED, "the signature by key %s is not of this", id);
	return err_set(err, ENOKEY, "it is signed by key %s, which is not listed", id);
}

/* ---- signing ----------------------------------------------------------------------------- */

static void secret_sum(const struct secret_file *f, uint8_t ret[static 32])
{
	crypto_generichash_state state;

	crypto_generichash_init(&state, NULL, 0, 32);
	crypto_generichash_update(&state, f->algorithm, sizeof(f->algorithm));
	crypto_generichash_update(&state, f->id, sizeof(f->id));
	crypto_generichash_update(&state, f->secret, sizeof(f->secret));
	crypto_generichash_final(&state, ret, 32);
}

void signature_make_keys(char **ret_secret, char **ret_public)
{
	struct secret_file s = {.algorithm = "Ed", .sum_algorithm = "B2"};
	struct public_file p = {.algorithm = "Ed"};
	cleanup_free char *secret = NULL, *public = NULL;
	char id[SIGNATURE_ID_TEXT];

	begin();
	randombytes_buf(s.id, sizeof(s.id));
	memcpy(p.id, s.id, sizeof(p.id));
	crypto_sign_keypair(p.public, s.secret);
	secret_sum(&s, s.sum);
	id_text(s.id, id);
	secret = encode(&s, sizeof(s));
	public = encode(&p, sizeof(p));
	*ret_secret =
		str_printf("untrusted comment: secret key %s of parbake, without a password\n%s\n",
			id, secret);
	*ret_public = str_printf("untrusted comment: public key %s of parbake\n%s\n", id, public);
	sodium_memzero(&s, sizeof(s));
	sodium_memzero(secret, strlen(secret));
}

/*
 * minisign leaves the sum of a key without a password zero. The secret's two halves belong together, which tells as
 * much.
 */
static bool is_whole(const struct secret_file *f)
{
	static const uint8_t none[sizeof(f->sum)];
	uint8_t sum[sizeof(f->sum)], public[crypto_sign_PUBLICKEYBYTES], secret[sizeof(f->secret)];
	bool whole;

	secret_sum(f, sum);
	crypto_sign_seed_keypair(public, secret, f->secret);
	whole = !sodium_memcmp(secret, f->secret, sizeof(secret)) &&
		(!memcmp(f->sum, none, sizeof(none)) || !sodium_memcmp(sum, f->sum, sizeof(sum)));
	sodium_memzero(secret, sizeof(secret));
	return whole;
}

static int parse_secret(const char *text, struct secret_file *ret, struct err *err)
{
	cleanup_free char *comment = NULL, *line = NULL;
	const char *at = text;
	bool good;

	comment = next_line(&at);
	line = next_line(&at);
	good = line && decode(line, ret, sizeof(*ret)) && !memcmp(ret->algorithm, "Ed", 2);
	if (line)
		sodium_memzero(line, strlen(line));
	if (!good)
		return err_set(err, EINVAL, "not a secret key of minisign");
	if (ret->kdf[0] || ret->kdf[1])
		return err_set(err, EACCES,
			"the key has a password: sign the manifest with minisign, and bring the "
			"signature in with --signature");
	return is_whole(ret) ? 0 : err_set(err, EINVAL, "the secret key is damaged");
}

int signature_make(const char *secret, const void *data, size_t len, const char *comment,
	char **ret, struct err *err)
{
	struct secret_file key;
	struct signature_file f = {.algorithm = "ED"};
	uint8_t hash[HASH], global[SIGNATURE];
	cleanup_free uint8_t *all = NULL;
	cleanup_free char *first = NULL, *second = NULL;
	char id[SIGNATURE_ID_TEXT];
	size_t n;
	int r;

	begin();
	r = parse_secret(secret, &key, err);
	if (!r) {
		memcpy(f.id, key.id, sizeof(f.id));
		id_text(f.id, id);
		crypto_generichash(hash, sizeof(hash), data, len, NULL, 0);
		crypto_sign_detached(f.signature, NULL, hash, sizeof(hash), key.secret);
		all = global_text(&f, comment, &n);
		crypto_sign_detached(global, NULL, all, n, key.secret);
		first = encode(&f, sizeof(f));
		second = encode(global, sizeof(global));
		*ret = str_printf(
			"untrusted comment: signature by key %s\n%s\ntrusted comment: %s\n%s\n", id,
			first, comment, second);
	}
	sodium_memzero(&key, sizeof(key));
	return r;
}
