/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets of the host that install steps are lent: read at the last moment, in no cache key and no text. */
#include "bake/secrets.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#include "common/file.h"
#include "bake/limits.h"

/* @where: "env:NAME" or "file:PATH". Caller frees *@ret. */
static int read_one(const char *where, char **ret, struct err *err)
{
	const char *value;
	size_t len;
	int r;

	if (!strncmp(where, "env:", 4)) {
		value = getenv(where + 4);
		if (!value)
			return err_set(err, ENOENT, "$%s is not set where parbake runs", where + 4);
		*ret = str_dup(value);
		return 0;
	}
	r = file_read_all(AT_FDCWD, where + strlen("file:"), LIMIT_SECRET_BYTES, ret, &len, err);
	if (r)
		return r;
	if (strlen(*ret) != len) {
		free(steal_ptr(ret));
		return err_set(err, EINVAL, "%s has NUL bytes in it", where + strlen("file:"));
	}
	if (len && (*ret)[len - 1] == '\n')
		(*ret)[len - 1] = '\0';
	return 0;
}

int secrets_read(const struct recipe *r, struct strings *env, struct lent *lent, struct err *err)
{
	for (size_t i = 0; i < r->secrets.n; i++) {
		const char *where = strchr(r->secrets.items[i], '=') + 1;
		cleanup_free char *name =
			strndup(r->secrets.items[i], (size_t)(where - 1 - r->secrets.items[i]));
		cleanup_free char *label = str_printf("the secret %s", name ? name : "");
		cleanup_free char *pair = NULL;
		char *value = NULL;
		int rc;

		if (!name)
			abort();
		rc = read_one(where, &value, err);
		if (!rc && lent_add_secret(lent, label, value, strlen(value)))
			rc = err_set(err, EINVAL,
				"has less than %d bytes: too few to tell whether a snapshot holds "
				"it",
				SEARCH_MIN);
		if (!rc) {
			pair = str_printf("%s=%s", name, value);
			strings_add(env, pair);
			explicit_bzero(pair, strlen(pair));
		}
		if (value)
			explicit_bzero(value, strlen(value));
		free(value);
		if (rc) {
			err_prefix(err, "[secrets] %s", name);
			return rc;
		}
	}
	return 0;
}

void secrets_clear(struct strings *env)
{
	for (size_t i = 0; i < env->n; i++)
		explicit_bzero(env->items[i], strlen(env->items[i]));
	strings_clear(env);
}
