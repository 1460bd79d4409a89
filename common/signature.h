/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_SIGNATURE_H
#define PARBAKE_COMMON_SIGNATURE_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/*
 * Signatures: Ed25519 over the BLAKE2b-512 digest of some bytes, in minisign's file formats
 * (prehashed, "ED"), so that minisign(1) verifies ours and we verify its own. By libsodium. Any thread.
 */
#define SIGNATURE_ID 8
#define SIGNATURE_ID_TEXT (2 * SIGNATURE_ID + 1)

/* A public key. */
struct signature_key {
	uint8_t id[SIGNATURE_ID];
	uint8_t public[32];
};

struct signature_keys {
	struct signature_key *items;
	size_t n;
};

/*
 * Read public keys from @text: lines in base 64 as minisign writes them; comments (# or "untrusted comment:") and
 * empty lines are passed over. @what names it in errors. -EINVAL: a line is no key; -ENOENT: there is none. Caller calls
 * signature_keys_clear().
 */
int signature_keys_parse(const char *what, const char *text, size_t len, struct signature_keys *ret,
	struct err *err);
int signature_keys_read(const char *path, struct signature_keys *ret, struct err *err);
void signature_keys_clear(struct signature_keys *keys);
#define cleanup_signature_keys cleanup_with(signature_keys_clear)

/* The key that a signature's text names, as 16 hexadecimal digits. -EINVAL: it is no signature. */
int signature_id(const char *text, char ret[static SIGNATURE_ID_TEXT], struct err *err);
/*
 * Is the text a signature of the @len bytes by one of @keys? 0; -EKEYREJECTED: by one of them, and it is wrong (or its
 * trusted comment is); -ENOKEY: by another; -EINVAL: it is no signature.
 */
int signature_verify(const char *text, const void *data, size_t len,
	const struct signature_keys *keys, struct err *err);

/* A new pair of keys, as minisign's files; the secret one has no password. Caller frees both, and wipes the secret. */
void signature_make_keys(char **ret_secret, char **ret_public);
/*
 * Sign with the text of a secret key's file. @comment, one line, is signed, too. Caller frees *@ret. -EINVAL: it is no key;
 * -EACCES: it has a password.
 */
int signature_make(const char *secret, const void *data, size_t len, const char *comment,
	char **ret, struct err *err);

#endif
