/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens for the inside of a sandbox. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/str.h"
#include "pool/api/api_private.h"
#include "tests/unit/tap.h"

#define READ_SIGNATURE "v1_oNgalc2f//hWzEA/bA4c820u83SMUqtWS9lWqIvLxkw"
#define WRITE_SIGNATURE "v1_BuhPbJVoT9dW6ximtE9xobhYpauRWkl998m5ccf3Glk"

/* Against the digests that E2B's SDKs make of a known token: the secret here is 0, 1, 2 …, the sandbox "abc". */
static void test_signatures(void)
{
	struct api a = {0};
	struct api_signature s = {.id = "abc", .path = "/tmp/a b", .signature = READ_SIGNATURE};

	for (unsigned i = 0; i < sizeof(a.secret); i++)
		a.secret[i] = (uint8_t)i;
	ok(!api_signature_wrong(&a, &s, 1000), "a signed address to read a file");
	s.write = true;
	is_str(api_signature_wrong(&a, &s, 1000), "invalid signature",
		"a signature to read is none to write");
	s.write = false;
	s.path = "/tmp/a c";
	is_str(api_signature_wrong(&a, &s, 1000), "invalid signature",
		"a signature is of one file alone");
	s.path = "/tmp/a b";
	s.username = "root";
	is_str(api_signature_wrong(&a, &s, 1000), "invalid signature",
		"a signature is of one user alone");
	s.username = NULL;
	s.id = "abd";
	is_str(api_signature_wrong(&a, &s, 1000), "invalid signature",
		"a signature is of one sandbox alone");
	s.id = "abc";
	s.signature = NULL;
	is_str(api_signature_wrong(&a, &s, 1000), "missing signature query parameter",
		"a request without a signature is refused");
	s.write = true;
	s.username = "root";
	s.expiration = "2000";
	s.signature = WRITE_SIGNATURE;
	ok(!api_signature_wrong(&a, &s, 2000),
		"a signature to write, as a user, for a time, is valid");
	is_str(api_signature_wrong(&a, &s, 2001), "signature is already expired", "which ends");
	s.expiration = "3000";
	is_str(api_signature_wrong(&a, &s, 2001), "invalid signature",
		"a signature with an end cannot be made longer");
	s.expiration = "2000x";
	is_str(api_signature_wrong(&a, &s, 1000), "invalid signature",
		"an end that is no number is refused");
}

int main(void)
{
	char dir[] = "/tmp/parbake-token-XXXXXX", one[DIGEST_TEXT_SIZE], two[DIGEST_TEXT_SIZE];
	struct config config = {.state = dir};
	struct api a = {.config = &config}, b = {.config = &config};
	cleanup_free char *path = NULL;
	struct err err = {""};
	struct stat st;

	if (!mkdtemp(dir)) {
		printf("Bail out! no directory\n");
		return 1;
	}
	path = str_printf("%s/access.key", dir);
	is_int(api_token_open(&a, &err), 0, "a secret is made (%s)", err.text);
	ok(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600 && st.st_size == API_SECRET_BYTES,
		"for its owner alone");
	api_token_of(&a, "abc", one);
	is_int((int64_t)strlen(one), 64, "a token");
	ok(api_token_is(&a, "abc", one), "a token is the one of its sandbox");
	ok(!api_token_is(&a, "abd", one) && !api_token_is(&a, "ab", one) &&
			!api_token_is(&a, "abcd", one),
		"a token is of no other sandbox");
	ok(!api_token_is(&a, "abc", NULL) && !api_token_is(&a, "abc", ""),
		"no token is not the token");
	test_signatures();
	one[63] ^= 1;
	ok(!api_token_is(&a, "abc", one), "a token that is nearly right is not the token");
	one[63] ^= 1;
	is_int(api_token_open(&b, &err), 0, "the secret is found again");
	api_token_of(&b, "abc", two);
	is_str(two, one, "a secret that is found again makes the same tokens");
	if (truncate(path, 5) < 0)
		return 1;
	is_int(api_token_open(&b, &err), 0, "a secret that is cut is made anew");
	api_token_of(&b, "abc", two);
	ok(strcmp(one, two) != 0 && stat(path, &st) == 0 && st.st_size == API_SECRET_BYTES,
		"a secret that was made anew is whole");
	unlink(path);
	if (mkdir(path, 0700) < 0)
		return 1;
	ok(api_token_open(&b, &err) < 0, "a secret that cannot be read is an error");
	has_str(err.text, "access.key", "the error names the secret that cannot be read");
	file_remove_tree(AT_FDCWD, dir, NULL);
	return tap_done();
}
