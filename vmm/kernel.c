/* SPDX-License-Identifier: Apache-2.0 */
/* The path of the guest kernel. */
#include "vmm/kernel.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "common/paths.h"
#include "common/proc.h"

/* kernel/build.sh beside the running program, in a source tree: where it has put the kernel. */
static char *built_kernel(void)
{
	cleanup_free char *dir = realpath("/proc/self/exe", NULL), *script = NULL, *out = NULL;
	char *slash = dir ? strrchr(dir, '/') : NULL;
	struct stat st;

	if (!slash)
		return NULL;
	*slash = '\0';
	script = str_printf("%s/kernel/build.sh", dir);
	if (!stat(script, &st)) {
		const char *const argv[] = {"bash", script, "--print-path", NULL};
		struct proc_spec spec = {.argv = argv};

		if (proc_output(&spec, 60000, 8192, &out, NULL))
			return NULL;
		out[strcspn(out, "\n")] = '\0';
		return stat(out, &st) ? NULL : steal_ptr(&out);
	}
	return NULL;
}

int machine_kernel_path(char **ret, struct err *err)
{
	const char *env = getenv("PARBAKE_KERNEL");
	char *path = NULL;

	if (env && *env) {
		if (access(env, R_OK))
			return err_sys(err, errno, "PARBAKE_KERNEL = %s", env);
		path = str_dup(env);
	} else if (paths_lib("vmlinux", &path, NULL)) {
		path = built_kernel();
	}
	if (!path)
		return err_set(err, ENOENT,
			"there is no guest kernel: run `make kernel`, or set PARBAKE_KERNEL to a "
			"vmlinux");
	*ret = path;
	return 0;
}
