/* SPDX-License-Identifier: Apache-2.0 */
/* `parbake sign`: a signature for versions, by a key of minisign's, made here or elsewhere. */
#include "cli/cli.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/str.h"
#include "store/signed.h"

struct args {
	const char *store_dir, *key, *signature, *new_key;
	struct words templates;
	bool json;
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

static int make_key(const struct args *a, struct err *err)
{
	const char *path = a->new_key;
	cleanup_json json_t *made = NULL;
	cleanup_free char *secret = NULL, *public = NULL, *to = str_printf("%s.pub", path);
	int r;

	signature_make_keys(&secret, &public);
	r = write_new(path, secret, 0600, err);
	if (!r)
		r = write_new(to, public, 0666 & ~cli_umask, err);
	explicit_bzero(secret, strlen(secret));
	if (!r && a->json) {
		made = json_pack("{s:o, s:o}", "secret", json_lossy(path, strlen(path)), "public",
			json_lossy(to, strlen(to)));
		json_print_line(made);
	} else if (!r) {
		printf("%s: the secret key, without a password; %s: the public one\n", path, to);
	}
	return r;
}

static int sign_one(const struct args *a, const char *ref, const char *text, struct err *err)
{
	cleanup_store struct store *s = NULL;
	cleanup_manifest struct store_manifest m = {0};
	cleanup_json json_t *done = NULL;
	int r = cli_resolve(a->store_dir, ref, &s, &m, err);

	if (!r)
		r = a->key ? store_sign(s, &m, text, err)
			   : store_signature_put(s, m.digest, text, err);
	if (!r && a->json) {
		done = json_pack(
			"{s:s, s:s, s:s}", "name", m.name, "tag", m.tag, "digest", m.digest);
		json_print_line(done);
	} else if (!r) {
		printf("%s:%s: signed, %s\n", m.name, m.tag, m.digest);
	}
	return r;
}

static int run(void *user)
{
	const struct args *a = user;
	cleanup_free char *text = NULL;
	struct err err = {0};
	size_t len;
	int r;

	if (!!a->key + !!a->signature + !!a->new_key != 1)
		return command_usage(&command_sign, "give one of: --key, --signature, --new-key");
	if (a->new_key)
		return make_key(a, &err) ? cli_fail(&err) : CLI_OK;
	if (a->templates.n == 0)
		return command_usage(&command_sign, "which template?");
	if (a->signature && a->templates.n != 1)
		return command_usage(&command_sign, "one template, whose signature it is");
	r = file_read_all(
		AT_FDCWD, a->key ? a->key : a->signature, LIMIT_SIGNATURE_BYTES, &text, &len, &err);
	for (size_t i = 0; i < a->templates.n && !r; i++)
		r = sign_one(a, a->templates.items[i], text, &err);
	if (text)
		explicit_bzero(text, strlen(text));
	return r ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry options[] = {
	{"key", 0, OPTION_TEXT, "FILE", AT(key),
		"with this secret key of minisign's, one without a password", NAMES_FILE},
	{"signature", 0, OPTION_TEXT, "FILE", AT(signature),
		"keep a signature of the manifest that was made elsewhere", NAMES_FILE},
	{"new-key", 0, OPTION_TEXT, "FILE", AT(new_key),
		"make a secret key, and FILE.pub with the public one", NAMES_FILE},
	OPTION_JSON(struct args, json),
	OPTION_STORE(struct args, store_dir),
	{0},
};

static const struct operand_entry operands[] = {
	{"TEMPLATE", AT(templates), NAMES_TEMPLATE, .optional = true, .many = true}, {0}};

const struct command command_sign = {"sign", "sign versions, as minisign does",
	.notes = "One of --key, --signature and --new-key is given; --new-key takes no template.",
	.options = options, .operands = operands, .args_bytes = sizeof(struct args), .run = run};
