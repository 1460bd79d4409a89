/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens for the inside of one sandbox. SDKs send the token to run commands in the sandbox
 * (X-Access-Token, and for the interpreter's contexts E2b-Traffic-Access-Token); the API's key
 * stays with whoever made the sandbox. The token is a digest of the sandbox's id and of a secret in
 * the state directory. So it need not be stored, and it holds over restarts of the daemon.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>

#include "common/digest.h"
#include "common/file.h"
#include "common/str.h"
#include "pool/api/api_private.h"

#define SECRET_NAME "access.key"

static int secret_read(const char *path, uint8_t ret[API_SECRET_BYTES])
{
	cleanup_fd int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : file_pread_full(fd, ret, API_SECRET_BYTES, 0);
}

int api_token_open(struct api *a, struct err *err)
{
	cleanup_free char *path = str_printf("%s/%s", a->config->state, SECRET_NAME);
	int r = secret_read(path, a->secret);

	if (r == 0)
		return 0;
	if (r != -ENOENT && r != -ENODATA)
		return err_sys(err, -r, "the secret of the access tokens, %s", path);
	if (getrandom(a->secret, sizeof(a->secret), 0) != sizeof(a->secret))
		return err_sys(err, errno, "a secret for the access tokens");
	r = file_publish(a->config->state, SECRET_NAME, a->secret, sizeof(a->secret), 0600, err);
	if (r < 0)
		err_prefix(err, "the secret of the access tokens");
	return r;
}

void api_token_of(const struct api *a, const char *id, char ret[static DIGEST_TEXT_SIZE])
{
	cleanup_digest struct digest *d = digest_new();
	char text[DIGEST_TEXT_SIZE];

	/* the secret on both sides: what is known of one sandbox's says nothing of a longer id's */
	digest_update(d, a->secret, sizeof(a->secret));
	digest_update(d, id, strlen(id));
	digest_update(d, a->secret, sizeof(a->secret));
	digest_final(d, text);
	strcpy(ret, strchr(text, ':') + 1);
}

bool api_token_is(const struct api *a, const char *id, const char *text)
{
	char right[DIGEST_TEXT_SIZE];
	size_t n;

	if (!text)
		return false;
	api_token_of(a, id, right);
	n = strlen(right);
	return strlen(text) == n && config_same_secret(text, right, n);
}
