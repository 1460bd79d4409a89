/* SPDX-License-Identifier: Apache-2.0 */
/* Locks, keys and signatures: any text is read or refused; a lock that is read has a text that is read again to the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/signature.h"
#include "prove/lock.h"

#define LOCK_ALL ((1U << LOCK_KINDS) - 1)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_lock(const char *text, size_t len)
{
	cleanup_lock struct lock l = {0}, again = {0};
	cleanup_free char *out = NULL, *second = NULL;
	cleanup_with(strings_clear) struct strings drift = {0};
	struct err err;

	if (lock_parse("fuzz.lock", text, len, &l, &err))
		return;
	out = lock_text(&l);
	if (lock_parse("fuzz.lock", out, strlen(out), &again, &err))
		abort();
	second = lock_text(&again);
	if (strcmp(out, second))
		abort();
	lock_compare(&again, &again, LOCK_ALL, false, &drift);
	if (drift.n)
		abort();
	lock_compare(&l, &again, LOCK_ALL, true, &drift);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free char *text = malloc(size + 1), *signature = NULL;
	cleanup_signature_keys struct signature_keys keys = {0};
	struct err err;

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	try_lock(text, size);
	if (signature_keys_parse("fuzz", text, size, &keys, &err))
		keys = (struct signature_keys){0};
	/* nothing is signed by nobody */
	if (!signature_verify(text, data, size, &keys, &err))
		abort();
	signature_make(text, data, size, "a comment", &signature, &err);
	return 0;
}
