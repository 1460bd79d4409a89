/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signed addresses of files: GET or POST /files?path=P&signature=v1_S lets whoever has it read, or write, that one
 * file of a sandbox, until signature_expiration where there is one, without a key or a token. S is the SHA-256
 * of "PATH:read|write:USERNAME:TOKEN" (and ":EXPIRATION") in base 64 without padding, as E2B's SDKs make it of
 * the sandbox's token.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base64.h"
#include "common/digest.h"
#include "common/str.h"
#include "pool/api/api_private.h"

/* 64 hexadecimal digits to bytes. */
static void unhex(const char *text, uint8_t ret[32])
{
	for (unsigned i = 0; i < 32; i++) {
		char two[3] = {text[2 * i], text[2 * i + 1], '\0'};

		ret[i] = (uint8_t)strtoul(two, NULL, 16);
	}
}

const char *api_signature_wrong(const struct api *a, const struct api_signature *s, int64_t now_s)
{
	cleanup_free char *text = NULL, *coded = NULL, *right = NULL;
	char token[DIGEST_TEXT_SIZE], digest[DIGEST_TEXT_SIZE], *end = NULL;
	long long expires = 0;
	uint8_t bytes[32];
	size_t n;

	if (!s->signature || !*s->signature)
		return "missing signature query parameter";
	if (s->expiration) {
		expires = strtoll(s->expiration, &end, 10);
		if (!*s->expiration || *end)
			return "invalid signature";
	}
	api_token_of(a, s->id, token);
	text = str_printf("%s:%s:%s:%s%s%s", s->path ? s->path : "", s->write ? "write" : "read",
		s->username ? s->username : "", token, s->expiration ? ":" : "",
		s->expiration ? s->expiration : "");
	digest_buffer(text, strlen(text), digest);
	unhex(strchr(digest, ':') + 1, bytes);
	coded = base64_encode(bytes, sizeof(bytes));
	coded[strcspn(coded, "=")] = '\0';
	right = str_printf("v1_%s", coded);
	n = strlen(right);
	if (strlen(s->signature) != n || !config_same_secret(s->signature, right, n))
		return "invalid signature";
	return s->expiration && expires < now_s ? "signature is already expired" : NULL;
}
