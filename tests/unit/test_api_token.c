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
	ok(api_token_is(&a, "abc", one), "is the one of its sandbox");
	ok(!api_token_is(&a, "abd", one) && !api_token_is(&a, "ab", one) &&
			!api_token_is(&a, "abcd", one),
		"and of no other");
	ok(!api_token_is(&a, "abc", NULL) && !api_token_is(&a, "abc", ""), "none is none");
	one[63] ^= 1;
	ok(!api_token_is(&a, "abc", one), "nor is one that is nearly it");
	one[63] ^= 1;
	is_int(api_token_open(&b, &err), 0, "the secret is found again");
	api_token_of(&b, "abc", two);
	is_str(two, one, "and makes the same tokens");
	if (truncate(path, 5) < 0)
		return 1;
	is_int(api_token_open(&b, &err), 0, "one that is cut is made anew");
	api_token_of(&b, "abc", two);
	ok(strcmp(one, two) != 0 && stat(path, &st) == 0 && st.st_size == API_SECRET_BYTES,
		"whole");
	unlink(path);
	if (mkdir(path, 0700) < 0)
		return 1;
	ok(api_token_open(&b, &err) < 0, "a secret that cannot be read is an error");
	has_str(err.text, "access.key", "that names it");
	file_remove_tree(AT_FDCWD, dir, NULL);
	return tap_done();
}
