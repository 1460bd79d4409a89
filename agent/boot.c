/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boot. Devices appear when the kernel has found them: what is not there yet is
 * waited for by its uevents, so nothing polls. The root is data from outside: every
 * directory of it that is mounted on is opened without following a link, and the agent's own
 * files (machine id, hostname, hosts) live in /run and are bound over the root's, so that a
 * clone's identity needs no write to a disk.
 */
#include "agent/boot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "agent/agent.h"
#include "agent/etc.h"
#include "agent/proto.h"
#include "agent/tree.h"

#define BOOT_WAIT_MS 20000
#define BOOT_NEWROOT "/newroot"
#define BOOT_AGENT_MEMORY "16777216" /* kept for the agent whatever else runs */

static int boot_uevents = -1;

static void mount_or_log(const char *what, const char *where, const char *type, unsigned long flags,
	const char *data)
{
	mkdir(where, 0755);
	if (mount(what, where, type, flags, data) < 0 && errno != EBUSY)
		agent_log("cannot mount %s on %s: %s", type, where, strerror(errno));
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		agent_log("cannot write %s to %s: %s", text, path, strerror(errno));
	if (fd >= 0)
		close(fd);
}

/* ---- waiting for devices -------------------------------------------------------------- */

static void uevents_open(void)
{
	struct sockaddr_nl addr = {.nl_family = AF_NETLINK, .nl_groups = 1};

	boot_uevents = socket(
		AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
	if (boot_uevents < 0 || bind(boot_uevents, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		agent_log("cannot listen for devices: %s", strerror(errno));
}

/* Until @find() returns a descriptor (then that) or BOOT_WAIT_MS have passed (-ETIMEDOUT). */
static int device_wait(int (*find)(const char *arg), const char *arg)
{
	int64_t until = agent_now() + BOOT_WAIT_MS * MS_NS;
	char event[4096];
	int fd;

	while ((fd = find(arg)) < 0) {
		struct pollfd p = {.fd = boot_uevents, .events = POLLIN};
		int64_t left = (until - agent_now()) / MS_NS;

		if (left <= 0)
			return -ETIMEDOUT;
		if (poll(&p, 1, (int)left) > 0)
			while (recv(boot_uevents, event, sizeof(event), 0) > 0)
				continue;
	}
	return fd;
}

static int find_disk(const char *path)
{
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* The port of our name: its node is /dev/ and the directory's name in sysfs. */
static int find_port(const char *name)
{
	DIR *d = opendir("/sys/class/virtio-ports");
	struct dirent *e;
	int fd = -1;

	while (d && fd < 0 && (e = readdir(d)) != NULL) {
		char path[600], text[64] = "";
		int at;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", e->d_name);
		at = open(path, O_RDONLY | O_CLOEXEC);
		if (at < 0)
			continue;
		(void)!read(at, text, sizeof(text) - 1);
		close(at);
		text[strcspn(text, "\n")] = '\0';
		if (strcmp(text, name) != 0)
			continue;
		snprintf(path, sizeof(path), "/dev/%s", e->d_name);
		fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	}
	if (d)
		closedir(d);
	return fd;
}

/* ---- the root ------------------------------------------------------------------------- */

/* The value of @key= on the kernel's command line. */
static bool cmdline_get(const char *key, char *ret, size_t max)
{
	char text[4096], *save = NULL;
	int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	size_t len = strlen(key);

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	for (char *word = strtok_r(text, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
		if (!strncmp(word, key, len) && word[len] == '=' && strlen(word + len + 1) < max) {
			strcpy(ret, word + len + 1);
			return true;
		}
	}
	return false;
}

/* Move the mount at @from onto the directory @name of the new root (made where missing). */
static int root_move(int root, const char *from, const char *name)
{
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS};
	char path[64];
	int fd, res = 0;

	mkdirat(root, name, 0755);
	fd = (int)syscall(SYS_openat2, root, name, &how, sizeof(how));
	if (fd < 0) {
		res = -errno;
		agent_log("the root's /%s is not a directory: %s", name, strerror(errno));
		return res;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (mount(from, path, NULL, MS_MOVE, NULL) < 0) {
		res = -errno;
		agent_log("cannot move %s into the root: %s", from, strerror(errno));
	}
	close(fd);
	return res;
}

static int root_mount(const char *device)
{
	int disk = device_wait(find_disk, device), root, res;

	if (disk < 0) {
		agent_log("the root %s did not appear within %d s", device, BOOT_WAIT_MS / 1000);
		return disk;
	}
	close(disk);
	mkdir(BOOT_NEWROOT, 0755);
	if (mount(device, BOOT_NEWROOT, "ext4", MS_NOATIME, NULL) < 0) {
		res = -errno;
		agent_log("cannot mount the root %s: %s", device, strerror(errno));
		return res;
	}
	root = open(BOOT_NEWROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	/* /proc last: the moves go by it */
	res = root_move(root, "/sys", "sys");
	if (res == 0)
		res = root_move(root, "/dev", "dev");
	if (res == 0)
		res = root_move(root, "/run", "run");
	if (res == 0)
		res = root_move(root, "/proc", "proc");
	if (res == 0 &&
		(fchdir(root) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
			chdir("/") < 0)) {
		res = -errno;
		agent_log("cannot switch to the root: %s", strerror(errno));
	}
	close(root);
	return res;
}

/* ---- the rest ------------------------------------------------------------------------- */

static void boot_mounts(void)
{
	const unsigned long safe = MS_NOSUID | MS_NODEV | MS_NOEXEC;

	mount_or_log("proc", "/proc", "proc", safe, NULL);
	mount_or_log("sysfs", "/sys", "sysfs", safe, NULL);
	mount_or_log("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=0755");
	mount_or_log("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755");
	mount_or_log("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
		"mode=0620,ptmxmode=0666,gid=5");
	mount_or_log("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
	mount_or_log("cgroup2", "/sys/fs/cgroup", "cgroup2", safe, NULL);
	(void)!symlink("/proc/self/fd", "/dev/fd");
	(void)!symlink("/proc/self/fd/0", "/dev/stdin");
	(void)!symlink("/proc/self/fd/1", "/dev/stdout");
	(void)!symlink("/proc/self/fd/2", "/dev/stderr");
}

/* The agent in a leaf of its own, everything else beneath work/. */
static void boot_cgroups(void)
{
	static const char base[] = "/sys/fs/cgroup/";
	char threads[32] = "";
	int fd, max;

	write_file("/sys/fs/cgroup/cgroup.subtree_control", "+memory +pids +cpu");
	if (mkdir("/sys/fs/cgroup/agent", 0755) < 0 || mkdir("/sys/fs/cgroup/work", 0755) < 0) {
		agent_log("cannot make cgroups in %s: %s", base, strerror(errno));
		return;
	}
	write_file("/sys/fs/cgroup/agent/cgroup.procs", "0");
	write_file("/sys/fs/cgroup/agent/memory.min", BOOT_AGENT_MEMORY);
	write_file("/sys/fs/cgroup/work/cgroup.subtree_control", "+memory +pids +cpu");
	/* a fork bomb must leave the agent some processes to end it with */
	fd = open("/proc/sys/kernel/threads-max", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		(void)!read(fd, threads, sizeof(threads) - 1);
		close(fd);
	}
	max = atoi(threads);
	if (max > 256) {
		snprintf(threads, sizeof(threads), "%d", max - 192);
		write_file("/sys/fs/cgroup/work/pids.max", threads);
	}
	tree_init(open("/sys/fs/cgroup/work", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static void boot_loopback(void)
{
	struct ifreq req = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req) < 0)
		agent_log("cannot bring loopback up: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
}

int boot_machine(void)
{
	char device[256];
	int port;

	umask(022);
	boot_mounts();
	reboot(RB_DISABLE_CAD);
	write_file("/proc/self/oom_score_adj", "-1000");
	uevents_open();
	if (cmdline_get("parbake.root", device, sizeof(device)))
		agent.rooted = root_mount(device) == 0;
	boot_cgroups();
	boot_loopback();
	agent.root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	agent.random = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	etc_init();
	port = device_wait(find_port, PROTO_PORT_NAME);
	if (port < 0)
		agent_log("no virtio port named %s: %s", PROTO_PORT_NAME, strerror(-port));
	close_fd(&boot_uevents);
	return port;
}
