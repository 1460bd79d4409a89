/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_STORE_SIGNED_H
#define PARBAKE_STORE_SIGNED_H

#include "common/signature.h"
#include "store/store.h"

/*
 * Signed versions. A signature is of a manifest's bytes, which name all else by digest; it lies in the store, in
 * signatures/HEX-KEY.minisig (docs/format.md), and goes with its manifest. Any thread.
 */

/* Keep a signature's text for the version with the manifest @digest; one by the same key is replaced. -EINVAL. */
int store_signature_put(struct store *s, const char *digest, const char *text, struct err *err);
/* Sign the version with the text of a secret key (common/signature.h), and keep that. */
int store_sign(
	struct store *s, const struct store_manifest *m, const char *secret, struct err *err);
/*
 * Is the version with the manifest @digest signed by one of the keys in the file @path? 0, or -EPERM: it is not; the error says whether it has
 * no signature, or those of others, or one that is wrong.
 */
int store_signed_by_file(struct store *s, const char *digest, const char *path, struct err *err);

#endif
