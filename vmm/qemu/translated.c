/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an emulating QEMU has translated: how much it is, and saving it. Only the trimmed QEMU has
 * the commands (trimmed/translations.c); they are looked for in its list of commands, since the
 * error for an unknown one is an error like any other.
 */
#include <string.h>

#include "common/json.h"
#include "vmm/qemu/state_private.h"

/* 0 where the monitor has @command, -ENOTSUP where it has not. */
static int look_for(struct qmp *q, const char *command, int64_t deadline, struct err *err)
{
	cleanup_json json_t *list = NULL;
	const json_t *one;
	size_t i;
	int r = qmp_call(q, "query-commands", NULL, deadline, &list, err);

	if (r < 0)
		return r;
	json_array_foreach(list, i, one)
	{
		if (!strcmp(json_string_value(json_object_get(one, "name")) ?: "", command))
			return 0;
	}
	return err_set(err, ENOTSUP, "this QEMU keeps no translations: `make monitor` does");
}

int qemu_translations_save(struct qmp *q, int fd, int64_t deadline, struct err *err)
{
	static const char command[] = "x-save-translations";
	int r = look_for(q, command, deadline, err);

	if (r < 0)
		return r;
	if (fd < 0)
		return qmp_call(q, command, NULL, deadline, NULL, err);
	r = qmp_send(q, "getfd", json_pack("{s:s}", "fdname", "image"), fd, NULL, err);
	return r < 0
		? r
		: qmp_call(q, command, json_pack("{s:s}", "fdname", "image"), deadline, NULL, err);
}

int qemu_translations_count(
	struct qmp *q, struct machine_translated *ret, int64_t deadline, struct err *err)
{
	static const char command[] = "x-query-translations";
	cleanup_json json_t *info = NULL;
	struct machine_translated t;
	int r = look_for(q, command, deadline, err);

	if (r < 0 || (r = qmp_call(q, command, NULL, deadline, &info, err)) < 0 ||
		(r = json_get_u64(info, "bytes", 0, INT64_MAX, &t.bytes, err)) < 0 ||
		(r = json_get_u64(info, "blocks", 0, INT64_MAX, &t.blocks, err)) < 0)
		return r;
	*ret = t;
	return 0;
}
