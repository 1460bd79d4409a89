/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training in the background, in a process of its own: `parbake train STORE DIGEST NAME TAG`. Nobody
 * waits for it and it has nobody to tell; when it has ended, translations are there or they are not.
 * It is nice to whoever wants to make sandboxes meanwhile.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/log.h"
#include "common/proc.h"
#include "common/str.h"
#include "restore/train.h"

#define NICE 10

void train_in_background(const char *store_dir, const char *digest, const char *name,
	const char *tag, bool die_with_parent)
{
	const char *argv[] = {proc_program(), "train", store_dir ?: "", digest, name,
		tag && *tag ? tag : "latest", NULL};
	const char *off = getenv("PARBAKE_TRAIN");
	struct proc_spec spec = {
		.argv = argv, .cwd = "/", .die_with_parent = die_with_parent, .new_session = true};
	struct proc proc = PROC_INIT;
	struct err err;

	if (off && !strcmp(off, "off"))
		return;
	if (proc_start(&spec, &proc, &err) < 0)
		log_warn("%s: translations are not made: %s", name, err.text);
	if (proc.pidfd >= 0)
		close(proc.pidfd);
}

int train_main(int argc, char **argv)
{
	cleanup_store struct store *s = NULL;
	cleanup_manifest struct store_manifest m = {0};
	cleanup_free char *ref = NULL;
	struct err err;
	int r;

	if (argc != 6) {
		log_error("train: this command is parbake's own; it is started when it is needed");
		return 2;
	}
	prctl(PR_SET_NAME, "parbake-train");
	setpriority(PRIO_PROCESS, 0, NICE);
	ref = str_printf("%s:%s@%s", argv[4], argv[5], argv[3]);
	r = store_open(*argv[2] ? argv[2] : NULL, false, &s, &err);
	if (r == 0)
		r = store_resolve(s, ref, &m, &err);
	if (r == 0)
		r = train_template(s, &m, false, NULL, &err);
	if (r < 0)
		log_warn("%s: sandboxes will start slower than they could: %s", argv[4], err.text);
	return r < 0;
}
