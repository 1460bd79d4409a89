/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_DIGEST_H
#define PARBAKE_COMMON_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/err.h"

/*
 * SHA-256 (FIPS 180-4, by OpenSSL's libcrypto), as content addresses:
 * "sha256:" and 64 lower-case hexadecimal digits, as OCI writes them.
 */
#define DIGEST_HEX_SIZE 65 /* with the NUL */
#define DIGEST_TEXT_SIZE (7 + DIGEST_HEX_SIZE) /* "sha256:" + hex + NUL */

struct digest; /* a running sum; one thread at a time */

struct digest *digest_new(void); /* never NULL: aborts where memory is out */
void digest_free(struct digest *d);
DEFINE_CLEANUP(struct digest *, digest_free)
#define cleanup_digest cleanup_with(digest_free_p_)

void digest_update(struct digest *d, const void *data, size_t len);
/* Add @len zero bytes (a hole). */
void digest_zeros(struct digest *d, uint64_t len);
/* Finish: "sha256:…" into @ret. @d then starts afresh. */
void digest_final(struct digest *d, char ret[static DIGEST_TEXT_SIZE]);

/* The digest of a buffer. */
void digest_buffer(const void *data, size_t len, char ret[static DIGEST_TEXT_SIZE]);
/* The digest of all that @fd holds from offset 0 (holes are not read); moves its offset. */
int digest_fd(int fd, char ret[static DIGEST_TEXT_SIZE], struct err *err);
/* Is @text "sha256:" and 64 lower-case hexadecimal digits, nothing else? */
bool digest_valid(const char *text);

#endif
