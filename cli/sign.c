/* SPDX-License-Identifier: Apache-2.0 */
/* `parbake sign`: a signature for versions, by a key of minisign's, made here or elsewhere. */
#include "cli/cli.h"

#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/limits.h"
#include "common/str.h"
#include "store/signed.h"

struct args {
	const char *store_dir, *key, *signature, *new_key;
};

static int write_new(const char *path, const char *text, mode_t mode, struct err *err)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	int r;

	if (fd < 0)
		return err_sys(err, errno, "%s", path);
	r = file_write_full(fd, text, strlen(text));
	return r ? err_sys(err, -r, "%s", path) : 0;
}

static int make_key(const char *path, struct err *err)
{
	cleanup_free char *secret = NULL, *public = NULL, *to = str_printf("%s.pub", path);
	int r;

	signature_make_keys(&secret, &public);
	r = write_new(path, secret, 0600, err);
	if (!r)
		r = write_new(to, public, 0666 & ~cli_umask, err);
	explicit_bzero(secret, strlen(secret));
	if (!r)
		printf("%s: the secret key, without a password; %s: the public one\n", path, to);
	return r;
}

static int sign_one(const struct args *a, const char *ref, const char *text, struct err *err)
{
	cleanup_store struct store *s = NULL;
	cleanup_manifest struct store_manifest m = {0};
	int r = cli_resolve(a->store_dir, ref, &s, &m, err);

	if (!r)
		r = a->key ? store_sign(s, &m, text, err)
			   : store_signature_put(s, m.digest, text, err);
	if (!r)
		printf("%s:%s: signed, %s\n", m.name, m.tag, m.digest);
	return r;
}

int cmd_sign(int argc, char **argv)
{
	static const struct option options[] = {
		{"key", required_argument, NULL, 'k'},
		{"signature", required_argument, NULL, 's'},
		{"new-key", required_argument, NULL, 'n'},
		{"store", required_argument, NULL, 'S'},
		{NULL, 0, NULL, 0},
	};
	struct args a = {0};
	cleanup_free char *text = NULL;
	struct err err = {0};
	const char *from;
	size_t len;
	int opt, r = 0;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'k')
			a.key = optarg;
		else if (opt == 's')
			a.signature = optarg;
		else if (opt == 'n')
			a.new_key = optarg;
		else if (opt == 'S')
			a.store_dir = optarg;
		else
			return cli_usage("sign", "see above");
	}
	if (!!a.key + !!a.signature + !!a.new_key != 1)
		return cli_usage("sign", "give one of: --key, --signature, --new-key");
	if (a.new_key)
		return make_key(a.new_key, &err) ? cli_fail(&err) : CLI_OK;
	if (optind == argc || (a.signature && argc - optind != 1))
		return cli_usage("sign",
			a.signature ? "one template, whose signature it is" : "which template?");
	from = a.key ? a.key : a.signature;
	r = file_read_all(AT_FDCWD, from, LIMIT_SIGNATURE_BYTES, &text, &len, &err);
	for (int i = optind; i < argc && !r; i++)
		r = sign_one(&a, argv[i], text, &err);
	if (text)
		explicit_bzero(text, strlen(text));
	return r ? cli_fail(&err) : CLI_OK;
}
