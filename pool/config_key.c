/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys, and which settings a new configuration may change.
 *
 * Of a key only its digest is stored. Keys are long and random, so a plain SHA-256 is enough: there
 * is nothing to guess. A key that a client sends is digested and compared with all that are
 * configured, every byte of each, so that the time taken tells neither which key was nearest nor
 * where in the list it stands.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/digest.h"
#include "common/err.h"
#include "pool/config.h"

int config_make_key(char ret[static CONFIG_KEY_SIZE], struct err *err)
{
	unsigned char bytes[20];
	ssize_t n = getrandom(bytes, sizeof(bytes), 0);

	if (n != (ssize_t)sizeof(bytes))
		return err_sys(err, n < 0 ? errno : EIO, "make a random key");
	memcpy(ret, "e2b_", 5);
	for (size_t i = 0; i < sizeof(bytes); i++)
		sprintf(ret + 4 + 2 * i, "%02x", bytes[i]);
	explicit_bzero(bytes, sizeof(bytes));
	return 0;
}

bool config_same_secret(const char *a, const char *b, size_t len)
{
	const volatile char *x = a, *y = b;
	unsigned char differs = 0;

	for (size_t i = 0; i < len; i++)
		differs |= (unsigned char)(x[i] ^ y[i]);
	return differs == 0;
}

const struct config_key *config_find_key(const struct config *c, const char *text)
{
	char digest[DIGEST_TEXT_SIZE];
	size_t found = 0; /* its number + 1 */

	digest_buffer(text, strlen(text), digest);
	for (size_t i = 0; i < c->n_keys; i++) {
		size_t fits = config_same_secret(c->keys[i].digest, digest, sizeof(digest));

		found |= (0 - fits) & (i + 1);
	}
	return found ? &c->keys[found - 1] : NULL;
}

static bool same(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

int config_may_replace(const struct config *old, const struct config *new, struct err *err)
{
	const struct {
		const char *name, *old, *new;
	} fixed[] = {
		{"socket", old->socket, new->socket},
		{"listen", old->listen, new->listen},
		{"state", old->state, new->state},
		{"store", old->store, new->store},
		{"require_signature", old->require_signature, new->require_signature},
	};

	for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++)
		if (!same(fixed[i].old, fixed[i].new))
			return err_set(err, EINVAL,
				"[pool] %s cannot change while the daemon runs (from %s to %s): "
				"restart it",
				fixed[i].name, fixed[i].old ? fixed[i].old : "none",
				fixed[i].new ? fixed[i].new : "none");
	return 0;
}
