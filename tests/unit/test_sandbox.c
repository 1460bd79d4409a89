/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes of a real machine: a kernel, the agent and an empty root, booted once, captured frozen,
 * put into a store, and made into clones: each itself, all of one memory, dead when their pager is.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/proc.h"
#include "common/str.h"
#include "restore/sandbox.h"
#include "store/image.h"
#include "tests/unit/tap.h"

#define MEMORY (128 * MIB)
#define DISK (16 * MIB)
#define SOON clock_deadline(60000)
#define CLONES 4
#define CMDLINE                                                                                    \
	"console=ttyS0 reboot=t panic=-1 tsc=reliable no_timer_check lapic_timer_khz=1000000 "     \
	"parbake.root=/dev/vda"

static char home[] = "/tmp/parbake-sandbox-XXXXXX";
static char *kernel, *initrd;
static const struct monitor_facts *monitor;
static struct err err;

#define MUST(call)                                                                                 \
	do {                                                                                       \
		if ((call) < 0) {                                                                  \
			printf("not ok - %s\n# %s\n", #call, err.text);                            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* ---- a template, baked by hand ----------------------------------------------------------- */

static int make_root(void)
{
	cleanup_free char *path = str_printf("%s/root.ext4", home),
			  *tree = str_printf("%s/tree", home);
	cleanup_free char *line = str_printf(
		"mkdir -p %s/proc %s/sys %s/dev %s/run %s/tmp %s/etc %s/root && touch "
		"%s/etc/machine-id "
		"%s/etc/hostname %s/etc/hosts && truncate -s %lu %s && mkfs.ext4 -q -F -d %s %s",
		tree, tree, tree, tree, tree, tree, tree, tree, tree, tree, DISK, path, tree, path);
	const char *argv[] = {"sh", "-c", line, NULL};
	struct proc_spec spec = {.argv = argv};
	cleanup_free char *out = NULL;
	int fd;

	MUST(proc_output(&spec, 60000, 4096, &out, &err));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	MUST(fd);
	return fd;
}

struct walk {
	int overlay, delta;
	struct snapshot_range ranges[4096];
	size_t n;
	uint64_t bytes;
};

static int walk_one(void *user, uint64_t at, uint64_t len, bool zero, uint64_t file_at)
{
	struct walk *w = user;
	cleanup_free char *buf = malloc(len);

	if (!buf || w->n == 4096)
		return -ENOMEM;
	w->ranges[w->n++] = (struct snapshot_range){at, len};
	w->bytes += len;
	if (zero)
		return 0;
	if (file_pread_full(w->overlay, buf, len, (off_t)file_at) < 0)
		return -EIO;
	return file_pwrite_full(w->delta, buf, len, (off_t)w->bytes - (off_t)len);
}

static void put_image(struct store *s, int fd, uint64_t bytes, const char *media,
	struct store_layer *ret, char raw_digest[static DIGEST_TEXT_SIZE])
{
	struct image_stats stats;
	struct store_blob *b;

	MUST(store_blob_begin(s, &b, &err));
	MUST(image_write(fd, bytes, NULL, store_blob_fd(b), NULL, &stats, &err));
	MUST(store_blob_finish(b, stats.digest, ret, &err));
	snprintf(ret->media, sizeof(ret->media), "%s", media);
	memcpy(raw_digest, stats.raw_digest, DIGEST_TEXT_SIZE);
}

/* Boot, wait for the root, freeze, capture. */
static void boot_and_capture(int root, int overlay, int memory, int state, uint8_t nonce[static 16])
{
	struct machine_spec spec = {
		.shape = {.memory_bytes = MEMORY, .vcpus = 1, .accel = MACHINE_TCG},
		.monitor = monitor,
		.memory_fd = memory,
		.pager_fd = -1,
		.disk_fd = root,
		.overlay_fd = overlay,
		.kernel = kernel,
		.initrd = initrd,
		.cmdline = CMDLINE};
	cleanup_machine struct machine *m = NULL;
	cleanup_guest struct guest *g = NULL;
	struct proto_hello hello;
	uint8_t buf[64];
	struct proto_out body = {.buf = buf, .max = sizeof(buf)};
	int64_t deadline = clock_deadline(60000);

	MUST(machine_start(&spec, &m, &err));
	MUST(guest_new(machine_take_channel(m), &g, &err));
	do {
		int r = guest_sync(g, deadline, machine_pidfd(m), &hello, &err);

		if (r < 0) {
			cleanup_free char *console = machine_console(m);

			size_t len = console ? strlen(console) : 0;

			err_append(&err, "\n%s", len > 1500 ? console + len - 1500 : console);
		}
		MUST(r);
	} while (!(hello.flags & PROTO_HELLO_ROOT) && poll(NULL, 0, 20) == 0);
	memcpy(nonce, hello.boot, 16);
	proto_put_u64(&body, PROTO_T_TIMEOUT_MS, 30000);
	MUST(guest_call(g, PROTO_FREEZE, &body, deadline, machine_pidfd(m), NULL, NULL, &err));
	MUST(machine_pause(m, deadline, &err));
	MUST(machine_capture(m, state, deadline, &err));
}

static void bake(struct store *s)
{
	struct snapshot_config c = {.memory_bytes = MEMORY,
		.vcpus = 1,
		.page_bytes = 4096,
		.protocol = PROTO_VERSION,
		.disk_bytes = DISK};
	struct store_layer layers[4] = {0};
	struct store_manifest m;
	static struct walk w;
	int root = make_root(), overlay = memfd_create("overlay", MFD_CLOEXEC);
	int memory = memfd_create("memory", MFD_CLOEXEC),
	    state = memfd_create("state", MFD_CLOEXEC);
	json_t *config;

	MUST(ftruncate(memory, MEMORY));
	MUST(machine_overlay_init(overlay, DISK, &err));
	boot_and_capture(root, overlay, memory, state, c.boot_nonce);
	w.n = w.bytes = 0;
	w.overlay = overlay;
	w.delta = memfd_create("delta", MFD_CLOEXEC);
	MUST(machine_overlay_walk(overlay, DISK, walk_one, &w, &err));
	MUST(ftruncate(w.delta, (off_t)w.bytes));
	printf("# %zu ranges of the disk were written\n", w.n);
	snapshot_delta_set(&c, w.ranges, w.n);
	put_image(s, root, DISK, STORE_MEDIA_DISK, &layers[0], c.disk_raw_digest);
	put_image(s, w.delta, w.bytes, STORE_MEDIA_DELTA, &layers[1], c.delta_raw_digest);
	put_image(s, memory, MEMORY, STORE_MEDIA_MEMORY, &layers[2], c.memory_raw_digest);
	lseek(state, 0, SEEK_SET);
	MUST(store_blob_put_fd(s, state, &layers[3], &err));
	snprintf(layers[3].media, sizeof(layers[3].media), "%s", STORE_MEDIA_STATE);
	snprintf(c.accel, sizeof(c.accel), "tcg");
	snprintf(c.monitor, sizeof(c.monitor), "%s", monitor->name);
	snprintf(c.monitor_version, sizeof(c.monitor_version), "%s", monitor->version);
	snprintf(c.machine, sizeof(c.machine), "%s", monitor->machine);
	snprintf(c.cpu, sizeof(c.cpu), "%s", monitor_cpu_model(monitor, MACHINE_TCG));
	memcpy(c.kernel_digest, c.disk_raw_digest, DIGEST_TEXT_SIZE);
	memcpy(c.agent_digest, c.disk_raw_digest, DIGEST_TEXT_SIZE);
	memcpy(c.recipe_digest, c.disk_raw_digest, DIGEST_TEXT_SIZE);
	c.recipe = str_dup("[template]\nname = tiny\n");
	c.description = str_dup("");
	config = snapshot_config_to_json(&c);
	MUST(store_publish(s, "tiny", NULL, config, layers, 4, 1700000000, &m, &err));
	json_decref(config);
	store_manifest_clear(&m);
	snapshot_config_clear(&c);
	close(root);
	close(overlay);
	close(memory);
	close(state);
	close(w.delta);
}

/* The template again, with what was recorded as its working set. */
static void publish_wset(struct store *s, const struct snapshot_ranges *wset)
{
	struct store_manifest m, again;
	cleanup_json json_t *obj = snapshot_ranges_to_json(wset);
	cleanup_free char *text = json_text(obj);

	MUST(store_resolve(s, "tiny", &m, &err));
	MUST(store_blob_put(s, text, strlen(text), &m.layers[m.n_layers], &err));
	snprintf(m.layers[m.n_layers].media, sizeof(m.layers[0].media), "%s", STORE_MEDIA_WSET);
	MUST(store_publish(
		s, "tiny", NULL, m.config, m.layers, m.n_layers + 1, 1700000000, &again, &err));
	store_manifest_clear(&m);
	store_manifest_clear(&again);
}

/* ---- tests --------------------------------------------------------------------------------- */

static struct template *open_template(struct store *s, const struct template_options *opt)
{
	struct store_manifest m;
	struct template *t;

	MUST(store_resolve(s, "tiny", &m, &err));
	MUST(template_open(s, &m, opt, &t, &err));
	store_manifest_clear(&m);
	return t;
}

static struct sandbox *create(struct template *t, const char *hostname)
{
	struct sandbox *sb = NULL;

	err.text[0] = '\0';
	if (!ok(sandbox_create(t, hostname, SOON, &sb, &err) == 0, "a sandbox is created"))
		printf("# %s\n", err.text);
	return sb;
}

static bool read_file(struct sandbox *sb, const char *path, char ret[static 80])
{
	int fd = memfd_create("got", MFD_CLOEXEC);
	ssize_t n = -1;

	memset(ret, 0, 80);
	if (guest_get_file(sandbox_guest(sb), path, fd, 79, SOON,
		    machine_pidfd(sandbox_machine(sb)), &err) == 0)
		n = pread(fd, ret, 79, 0);
	close(fd);
	return n > 0;
}

static void test_record(struct store *s)
{
	struct template_options opt = {
		.own_pager = true, .pager = {.record = true, .no_premap = true}};
	cleanup_template struct template *t = open_template(s, &opt);
	cleanup_sandbox struct sandbox *sb = create(t, NULL);
	struct snapshot_ranges wset = {0};
	uint64_t bytes = 0;

	if (!sb)
		return;
	is_int(pager_client_recorded(template_pager(t), &wset, &err), 0,
		"a sandbox's faults were recorded");
	for (size_t i = 0; i < wset.n; i++)
		bytes += wset.ranges[i].bytes;
	ok(bytes > 100 * 4096 && bytes < MEMORY / 2, "%" PRIu64 " KiB in %zu ranges", bytes / 1024,
		wset.n);
	publish_wset(s, &wset);
	snapshot_ranges_clear(&wset);
}

static void test_clones(struct template *t)
{
	struct sandbox *sb[CLONES];
	struct guest_info info[CLONES];
	struct pager_stats st;
	char id[CLONES][80], name[80], text[] = "clone 0";

	for (int i = 0; i < CLONES; i++) {
		sb[i] = create(t, i == 0 ? "first" : NULL);
		if (!sb[i])
			return;
	}
	for (int i = 0; i < CLONES; i++) {
		cleanup_fd int fd = memfd_create("put", MFD_CLOEXEC);
		int also = machine_pidfd(sandbox_machine(sb[i]));

		ok(read_file(sb[i], "/etc/machine-id", id[i]), "clone %d has a machine id", i);
		is_int(guest_info(sandbox_guest(sb[i]), SOON, also, &info[i], &err), 0,
			"a clone answers");
		text[6] = (char)('0' + i);
		ok(pwrite(fd, text, 7, 0) == 7 &&
				guest_put_file(sandbox_guest(sb[i]), fd, "/root/mine", 0600, NULL,
					SOON, also, &err) == 0,
			"a clone's root is thawed and can be written");
		for (int j = 0; j < i; j++)
			ok(strcmp(id[i], id[j]) != 0, "no id twice");
		ok(memcmp(info[i].nonce, template_config(t)->boot_nonce, 16) == 0,
			"memory is the snapshot's");
	}
	ok(read_file(sb[0], "/etc/hostname", name) && strncmp(name, "first", 5) == 0,
		"named as asked");
	for (int i = 0; i < CLONES; i++) {
		text[6] = (char)('0' + i);
		ok(read_file(sb[i], "/root/mine", name) && strcmp(name, text) == 0,
			"each has its own disk");
	}
	is_int(pager_client_get_stats(template_pager(t), &st, &err), 0, "the pager counts");
	is_int(st.machines, CLONES, "the pager counts all machines");
	printf("# %" PRIu64 " faults, %" PRIu64 " pages premapped, %" PRIu64 " frames\n", st.faults,
		st.pages_premapped, st.frames_filled);
	for (int i = 0; i < CLONES; i++)
		sandbox_free(sb[i]);
}

static void test_pager_killed(struct template *t)
{
	struct sandbox *a = create(t, NULL), *b = create(t, NULL), *c;
	int64_t begin = clock_now_ns();
	struct pollfd pfd[2] = {{.events = POLLIN}, {.events = POLLIN}};

	if (!a || !b)
		return;
	pfd[0].fd = machine_pidfd(sandbox_machine(a));
	pfd[1].fd = machine_pidfd(sandbox_machine(b));
	kill(pager_client_pid(template_pager(t)), SIGKILL);
	ok(poll(&pfd[0], 1, 1000) == 1 && poll(&pfd[1], 1, 1000) == 1 &&
			clock_now_ns() - begin < 1000000000,
		"both sandboxes are dead within a second of their pager's end");
	err_set(&err, EIO, "it went");
	sandbox_explain(a, &err);
	has_str(err.text, "pager is gone", "which the error says");
	sandbox_free(a);
	sandbox_free(b);
	c = create(t, NULL);
	ok(c != NULL, "the next one gets a new pager");
	sandbox_free(c);
}

static void test_spare(struct template *t)
{
	cleanup_sandbox struct sandbox *sb = NULL;

	MUST(sandbox_standby(t, &sb, &err));
	is_int(sandbox_activate(sb, NULL, SOON, &err), -EINVAL, "a standby is no spare");
	is_int(sandbox_prepare(sb, SOON, &err), 0, "a standby becomes a spare");
	is_int(machine_get_state(sandbox_machine(sb)), MACHINE_PAUSED, "a spare is paused");
	is_int(sandbox_prepare(sb, SOON, &err), -EALREADY, "a machine becomes a spare only once");
	is_int(sandbox_activate(sb, "not a name", SOON, &err), -EINVAL,
		"a bad host name is refused");
	is_int(sandbox_activate(sb, NULL, SOON, &err), -EINVAL,
		"there is one try to hand a spare out");
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void measure(struct template *t, const char *what)
{
	double total[15], part[4] = {0};
	struct pager_stats before = {0}, after = {0};
	int n = 0;

	pager_client_get_stats(template_pager(t), &before, &err);
	for (int i = 0; i < 15; i++) {
		struct sandbox *sb;
		const struct sandbox_trace *tr;

		if (sandbox_create(t, NULL, SOON, &sb, &err) < 0) {
			printf("# %s\n", err.text);
			continue;
		}
		tr = sandbox_trace(sb);
		total[n++] = (double)(tr->answered - tr->begin) / 1e6;
		part[0] += (double)(tr->monitor_started - tr->begin) / 1e6;
		part[1] += (double)(tr->monitor_ready - tr->monitor_started) / 1e6;
		part[2] += (double)(tr->state_loaded - tr->monitor_ready) / 1e6;
		part[3] += (double)(tr->answered - tr->state_loaded) / 1e6;
		sandbox_free(sb);
	}
	is_int(n, 15, "%s: every create succeeds", what);
	if (!n)
		return;
	qsort(total, (size_t)n, sizeof(*total), compare);
	pager_client_get_stats(template_pager(t), &after, &err);
	printf("# %s: faults a create: %.1f, pages premapped: %.1f\n", what,
		(double)(after.faults - before.faults) / n,
		(double)(after.pages_premapped - before.pages_premapped) / n);
	printf("# %s: p50 %.1f ms, max %.1f ms; mean parts: start %.1f, ready %.1f, state %.1f, "
	       "answer %.1f\n",
		what, total[n / 2], total[n - 1], part[0] / n, part[1] / n, part[2] / n,
		part[3] / n);
}

/* A config that does not fit this host is refused with a way out. */
/* A config that promises more memory than the image holds: a machine of it would find zeros. */
static void test_other_memory(struct store *s)
{
	cleanup_manifest struct store_manifest m = {0};
	struct template *t;

	MUST(store_resolve(s, "tiny", &m, &err));
	json_object_set_new(m.config, "memory_bytes", json_integer(2 * MEMORY));
	is_int(template_open(s, &m, NULL, &t, &err), -EBADMSG,
		"more memory than the image has is refused");
	has_str(err.text, "memory image", "which the error says");
}

/* Can a machine be made of "tiny", with nothing of it in the cache or in another pager? */
static bool restores(struct store *s)
{
	struct template_options opt = {.no_uffd = true, .own_pager = true};
	cleanup_manifest struct store_manifest m = {0};
	cleanup_template struct template *t = NULL;
	cleanup_free char *disks = str_printf("%s/cache/disks", home);
	struct err why;

	file_remove_tree(AT_FDCWD, disks, NULL);
	return store_resolve(s, "tiny", &m, &why) == 0 && template_open(s, &m, &opt, &t, &why) == 0;
}

static void flip(const char *path, off_t at)
{
	cleanup_fd int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t c;

	if (fd < 0 || file_pread_full(fd, &c, 1, at) < 0)
		abort();
	c ^= 0x20;
	if (file_pwrite_full(fd, &c, 1, at) < 0)
		abort();
}

/* One changed byte of what a restore reads is found by it, wherever it is: some places of each part are tried. */
static void test_changed_bytes(struct store *s)
{
	enum { PLACES = 5 };
	cleanup_manifest struct store_manifest m = {0};
	unsigned missed = 0, tried = 0;

	MUST(store_resolve(s, "tiny", &m, &err));
	m.layers[m.n_layers++] = m.config_blob;
	memcpy(m.layers[m.n_layers].digest, m.digest, sizeof(m.digest));
	m.n_layers++;
	ok(restores(s), "a template as it was baked is restored");
	for (unsigned i = 0; i < m.n_layers; i++) {
		cleanup_free char *path =
			str_printf("%s/blobs/sha256/%s", store_dir(s), m.layers[i].digest + 7);
		struct stat st;

		MUST(stat(path, &st));
		for (unsigned j = 0; j < PLACES; j++) {
			off_t at = (st.st_size - 1) * j / (PLACES - 1);

			flip(path, at);
			tried++;
			if (restores(s)) {
				printf("# byte %lld of %lld of %s\n", (long long)at,
					(long long)st.st_size, m.layers[i].media);
				missed++;
			}
			flip(path, at);
		}
	}
	is_int(missed, 0, "a changed byte at each of %u places is found by a restore", tried);
	ok(restores(s), "a template that was put right is restored");
}

static void test_refused(struct store *s)
{
	static const struct {
		const char *field, *value, *says;
	} wrong[] = {{"monitor_version", "0.1 (nowhere)", "PARBAKE_QEMU"},
		{"monitor", "other", "rebake"}, {"machine", "pc-1.0", "rebake"},
		{"accel", "xen", "rebake"}, {"cpu", "486", "rebake"}};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct snapshot_config c;
		struct store_manifest m;
		struct template *t;
		char *field;
		size_t room;

		MUST(store_resolve(s, "tiny", &m, &err));
		MUST(snapshot_config_from_json(m.config, &c, &err));
		field = strcmp(wrong[i].field, "monitor_version") == 0 ? c.monitor_version
			: strcmp(wrong[i].field, "monitor") == 0       ? c.monitor
			: strcmp(wrong[i].field, "machine") == 0       ? c.machine
			: strcmp(wrong[i].field, "accel") == 0         ? c.accel
								       : c.cpu;
		room = field == c.accel ? sizeof(c.accel) : 32;
		snprintf(field, room, "%s", wrong[i].value);
		json_decref(m.config);
		m.config = snapshot_config_to_json(&c);
		is_int(template_open(s, &m, NULL, &t, &err), -ENOEXEC,
			"a template of another %s is refused", wrong[i].field);
		has_str(err.text, wrong[i].says, "the error of a refusal says what to do");
		snapshot_config_clear(&c);
		store_manifest_clear(&m);
	}
}

/* ---- the fixture --------------------------------------------------------------------------- */

/* NULL: all is there. */
static const char *set_up(void)
{
	cleanup_free char *self = realpath("/proc/self/exe", NULL), *script = NULL;
	const struct monitor_facts *facts;
	const char *argv[] = {"bash", NULL, "--print-path", NULL};
	struct proc_spec spec = {.argv = argv};

	for (int i = 0; i < 2; i++)
		*strrchr(self, '/') = '\0'; /* …/build/tests/test_sandbox → …/build */
	setenv("PARBAKE_LIBDIR", self, 0);
	setenv("PARBAKE_EXE", "/proc/self/exe", 1);
#ifdef __SANITIZE_ADDRESS__
	/* its leak check traces its own process */
	setenv("PARBAKE_CONFINE", "off", 1);
#endif
	setenv("PARBAKE_HOME", home, 1);
	initrd = getenv("PARBAKE_INITRD") ? str_dup(getenv("PARBAKE_INITRD"))
					  : str_printf("%s/initramfs.cpio", self);
	*strrchr(self, '/') = '\0';
	script = str_printf("%s/kernel/build.sh", self);
	argv[1] = script;
	if (getenv("PARBAKE_KERNEL"))
		kernel = str_dup(getenv("PARBAKE_KERNEL"));
	else if (proc_output(&spec, 30000, 4096, &kernel, &err) == 0)
		kernel[strcspn(kernel, "\n")] = '\0';
	if (monitor_probe(&facts, &err) < 0)
		return err.text;
	if (!kernel || access(kernel, R_OK) < 0)
		return "no guest kernel; build it with make kernel or set PARBAKE_KERNEL";
	if (access(initrd, R_OK) < 0)
		return "no initramfs; build it with make all or set PARBAKE_INITRD";
	return NULL;
}

/* All of it with one monitor: what it has made is restored by it and no other. */
static void test_monitor(struct store *s)
{
	struct template_options private = {.no_uffd = true};
	struct template *t;

	printf("# %s %s\n", monitor->program, monitor->version);
	bake(s);
	test_refused(s);
	test_other_memory(s);
	test_changed_bytes(s);
	t = open_template(s, &private);
	ok(template_monitor(t) == monitor, "the template's monitor is the one that made it");
	is_int(pager_client_way(template_pager(t)), PAGER_PRIVATE,
		"a sandbox is made without userfaultfd");
	test_spare(t);
	measure(t, "private");
	template_free(t);
	if (pager_probe(NULL, &err) < 0) {
		tap_skip(err.text);
	} else {
		test_record(s);
		t = open_template(s, NULL);
		test_clones(t);
		test_spare(t);
		test_pager_killed(t);
		measure(t, "userfaultfd");
		template_free(t);
	}
}

int main(int argc, char **argv)
{
	struct store *s = NULL;
	const char *missing;
	int r;

	if (argc > 1 && strcmp(argv[1], "pager") == 0)
		return pager_process_main(argc, argv);
	if (!mkdtemp(home))
		return 1;
	missing = set_up();
	if (missing) {
		tap_skip(missing);
		file_remove_tree(AT_FDCWD, home, NULL);
		return tap_done();
	}
	MUST(store_open(NULL, true, &s, &err));
	for (unsigned i = 0; (r = monitor_candidate(i, &monitor, NULL)) != -ERANGE; i++)
		if (r == 0 && monitor->emulates)
			test_monitor(s);
	store_free(s);
	file_remove_tree(AT_FDCWD, home, NULL);
	free(kernel);
	free(initrd);
	return tap_done();
}
