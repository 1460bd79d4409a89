/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 through libcrypto's EVP interface, which picks the processor's own
 * instructions. Failures of EVP here are failures to allocate: they abort.
 */
#include "common/digest.h"

#include <assert.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/stat.h>

#include "common/limits.h"

struct digest {
	EVP_MD_CTX *ctx;
};

static void start(struct digest *d)
{
	if (EVP_DigestInit_ex(d->ctx, EVP_sha256(), NULL) != 1)
		abort();
}

struct digest *digest_new(void)
{
	struct digest *d = calloc(1, sizeof(*d));

	if (!d)
		abort();
	d->ctx = EVP_MD_CTX_new();
	if (!d->ctx)
		abort();
	start(d);
	return d;
}

void digest_free(struct digest *d)
{
	EVP_MD_CTX_free(d->ctx);
	free(d);
}

void digest_update(struct digest *d, const void *data, size_t len)
{
	if (EVP_DigestUpdate(d->ctx, data, len) != 1)
		abort();
}

void digest_zeros(struct digest *d, uint64_t len)
{
	static const unsigned char zeros[64 * KIB];

	while (len) {
		size_t n = len < sizeof(zeros) ? (size_t)len : sizeof(zeros);

		digest_update(d, zeros, n);
		len -= n;
	}
}

void digest_final(struct digest *d, char ret[static DIGEST_TEXT_SIZE])
{
	static const char hex[] = "0123456789abcdef";
	unsigned char sum[32];

	if (EVP_DigestFinal_ex(d->ctx, sum, NULL) != 1)
		abort();
	memcpy(ret, "sha256:", 7);
	for (size_t i = 0; i < sizeof(sum); i++) {
		ret[7 + 2 * i] = hex[sum[i] >> 4];
		ret[8 + 2 * i] = hex[sum[i] & 15];
	}
	ret[DIGEST_TEXT_SIZE - 1] = '\0';
	start(d);
}

void digest_buffer(const void *data, size_t len, char ret[static DIGEST_TEXT_SIZE])
{
	cleanup_digest struct digest *d = digest_new();

	digest_update(d, data, len);
	digest_final(d, ret);
}

static int digest_range(struct digest *d, int fd, off_t pos, off_t end, struct err *err)
{
	cleanup_free char *buf = malloc(MIB);

	if (!buf)
		return err_sys(err, ENOMEM, "compute a digest");
	while (pos < end) {
		size_t want = end - pos < (off_t)MIB ? (size_t)(end - pos) : MIB;
		ssize_t n = pread(fd, buf, want, pos);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(
				err, errno, "compute a digest: read at %lld", (long long)pos);
		if (n == 0)
			return err_set(err, EIO, "compute a digest: the file became shorter");
		digest_update(d, buf, (size_t)n);
		pos += n;
	}
	return 0;
}

int digest_fd(int fd, char ret[static DIGEST_TEXT_SIZE], struct err *err)
{
	cleanup_digest struct digest *d = digest_new();
	struct stat st;
	off_t pos = 0;
	int r;

	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "compute a digest");
	while (pos < st.st_size) {
		off_t data = lseek(fd, pos, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			data = st.st_size;
		else if (data < 0)
			data = pos; /* no holes known here: read it all */
		if (data > st.st_size)
			data = st.st_size;
		digest_zeros(d, (uint64_t)(data - pos));
		hole = data < st.st_size ? lseek(fd, data, SEEK_HOLE) : data;
		if (hole < 0 || hole > st.st_size)
			hole = st.st_size;
		r = digest_range(d, fd, data, hole, err);
		if (r < 0)
			return r;
		pos = hole;
	}
	digest_final(d, ret);
	return 0;
}

bool digest_valid(const char *text)
{
	return strlen(text) == DIGEST_TEXT_SIZE - 1 && !strncmp(text, "sha256:", 7) &&
		strspn(text + 7, "0123456789abcdef") == DIGEST_HEX_SIZE - 1;
}
