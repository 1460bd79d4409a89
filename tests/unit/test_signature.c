/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures: made and verified; every changed byte of text, comment, signature or key is noticed. */
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/signature.h"
#include "common/str.h"
#include "tests/unit/tap.h"

static const char text[] = "what is signed";

struct pair {
	char *secret, *public;
	struct signature_keys keys;
};

static struct pair make(void)
{
	struct pair p = {0};
	struct err err = {0};

	signature_make_keys(&p.secret, &p.public);
	is_int(signature_keys_parse("k.pub", p.public, strlen(p.public), &p.keys, &err), 0,
		"a public key is read: %s", err.text);
	return p;
}

static void pair_clear(struct pair *p)
{
	free(p->secret);
	free(p->public);
	signature_keys_clear(&p->keys);
}

static void test_round(void)
{
	cleanup_with(pair_clear) struct pair one = make(), other = make();
	cleanup_free char *signature = NULL,
			  *both = str_printf("%s\n# two\n%s", other.public, one.public);
	cleanup_signature_keys struct signature_keys two = {0};
	char id[SIGNATURE_ID_TEXT];
	struct err err = {0};

	is_int(signature_make(one.secret, text, sizeof(text), "a comment", &signature, &err), 0,
		"sign");
	is_int(signature_id(signature, id, &err), 0, "the signature names a key");
	ok(strstr(one.public, id) != NULL, "which is ours");
	is_int(signature_verify(signature, text, sizeof(text), &one.keys, &err), 0,
		"a signature is verified");
	is_int(signature_verify(signature, text, sizeof(text), &other.keys, &err), -ENOKEY,
		"not by another key");
	has_str(err.text, id, "which the error names");
	is_int(signature_verify(signature, text, sizeof(text) - 1, &one.keys, &err), -EKEYREJECTED,
		"a signature does not verify other bytes");
	is_int(signature_keys_parse("both", both, strlen(both), &two, &err), 0,
		"two keys in one file");
	is_int(signature_verify(signature, text, sizeof(text), &two, &err), 0,
		"of two keys in a file both are tried");
	/* another key under the same number */
	memcpy(other.keys.items[0].id, one.keys.items[0].id, SIGNATURE_ID);
	is_int(signature_verify(signature, text, sizeof(text), &other.keys, &err), -EKEYREJECTED,
		"a key's number is not the key");
}

/* Change each byte of the signature's file: what is verified after it is the comment that nobody trusts. */
static void test_sweep(void)
{
	cleanup_with(pair_clear) struct pair one = make();
	cleanup_free char *signature = NULL;
	struct err err = {0};
	size_t end, wrong = 0;

	signature_make(one.secret, text, sizeof(text), "a comment", &signature, &err);
	end = strlen(signature) - 1; /* the last line end need not be there */
	for (size_t i = strcspn(signature, "\n") + 1; i < end; i++) {
		char was = signature[i];

		/* the lowest bits of the last digit before "==" mean nothing, so the highest is changed */
		signature[i] = (char)(was == 'A' ? 'g' : was == 'g' ? 'A' : was ^ 0x20);
		if (signature[i] != '=' &&
			!signature_verify(signature, text, sizeof(text), &one.keys, &err))
			wrong += printf("# byte %zu: %c to %c\n", i, was, signature[i]) > 0;
		signature[i] = was;
	}
	is_int((int64_t)wrong, 0, "a change of any byte is noticed");
}

static void test_refused(void)
{
	static const char *const keys[] = {
		"", "# nothing\n", "RWQ\n", "untrusted comment: x\nnot base 64!\n"};
	static const char *const signatures[] = {"",
		"untrusted comment: x\nRUQ\ntrusted comment: y\nRUQ\n", "untrusted comment: x\n"};
	cleanup_with(pair_clear) struct pair one = make();
	cleanup_free char *locked = str_dup(one.secret), *signature = NULL,
			  *damaged = str_dup(one.secret);
	struct signature_keys none = {0};
	struct err err = {0};
	char *line;

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		is_int(signature_keys_parse("k", keys[i], strlen(keys[i]), &none, &err),
			i < 2 ? -ENOENT : -EINVAL, "no key: %s", err.text);
	for (size_t i = 0; i < sizeof(signatures) / sizeof(*signatures); i++)
		is_int(signature_verify(signatures[i], text, 1, &one.keys, &err), -EINVAL,
			"no signature: %s", err.text);
	/* "Ed", then "Sc" where there are zeros: RWQAAEIy… to RWRTY0Iy… */
	line = strstr(locked, "RWQAAEIy");
	ok(line != NULL, "a secret key begins as minisign's does");
	if (line)
		memcpy(line, "RWRTY0Iy", 8);
	is_int(signature_make(locked, text, 1, "c", &signature, &err), -EACCES,
		"one with a password");
	line = strchr(damaged, '\n') + 120;
	*line = *line == 'A' ? 'B' : 'A';
	is_int(signature_make(damaged, text, 1, "c", &signature, &err), -EINVAL,
		"one that is damaged");
	is_int(signature_make("x\n", text, 1, "c", &signature, &err), -EINVAL, "what is none");
}

int main(void)
{
	test_round();
	test_sweep();
	test_refused();
	return tap_done();
}
