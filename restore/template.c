/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An opened template: everything that is the same for each of its sandboxes is done here, once.
 * Whether this host can run the template is decided here, from the config and the monitor found,
 * and a refusal says what to do. What is left for a create is its own work.
 *
 * The device state is read into memory and its digest checked: it is small, and the monitor
 * believes what it reads there. Descriptors keep all of it alive, so a template that is rebaked or
 * removed while open stays what it was.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/limits.h"
#include "common/str.h"
#include "restore/pager/memory_delta.h"
#include "restore/disk.h"
#include "restore/sandbox_private.h"
#include "restore/translations.h"
#include "vmm/cmdline.h"
#include "vmm/cpu.h"

#define END_WAIT_MS 500

struct template
{
	struct snapshot_config config;
	struct machine_shape shape;
	const struct monitor_facts *monitor;
	struct template_options opt;
	char name[LIMIT_NAME_SIZE], tag[LIMIT_NAME_SIZE];
	char label[2 * LIMIT_NAME_SIZE];
	char manifest[DIGEST_TEXT_SIZE];
	char memory_key[DIGEST_TEXT_SIZE];
	char *store_dir;
	int disk_fd, state_fd, image_fd, translations_fd;
	struct snapshot_ranges wset;
	pthread_mutex_t lock;
	struct pager_client *pager; /* under lock: replaced where it is gone */
};

/* ---- does it fit here? --------------------------------------------------------------------- */

/* The monitor that made it, among those of this host. */
static int find_monitor(struct template *t, struct err *err)
{
	const struct snapshot_config *c = &t->config;
	struct err there;

	if (monitor_find(c->monitor, c->monitor_version, &t->monitor, &there) < 0)
		return err_set(err, ENOEXEC,
			"%s was baked with %s %s, and its device state fits that very build, but "
			"here %s: "
			"rebake it with `parbake bake`, or name that build in PARBAKE_QEMU",
			t->label, c->monitor, c->monitor_version, there.text);
	if (strcmp(c->machine, t->monitor->machine) != 0)
		return err_set(err, ENOEXEC,
			"%s was baked for the machine type %s, this parbake uses %s: rebake it "
			"with "
			"`parbake bake`",
			t->label, c->machine, t->monitor->machine);
	return 0;
}

static int check_cpu(struct template *t, struct err *err)
{
	const struct snapshot_config *c = &t->config;
	char features[DIGEST_TEXT_SIZE];
	int r;

	if (machine_accel_parse(c->accel, &t->shape.accel) < 0)
		return err_set(err, ENOEXEC,
			"%s was baked for the accelerator %s, which this parbake lacks: "
			"rebake it with `parbake bake`",
			t->label, c->accel);
	if (strcmp(c->cpu, monitor_cpu_model(t->monitor, t->shape.accel)) != 0)
		return err_set(err, ENOEXEC,
			"%s was baked for the CPU model %s, this parbake gives %s: rebake it with "
			"`parbake bake`",
			t->label, c->cpu, monitor_cpu_model(t->monitor, t->shape.accel));
	if (t->shape.accel != MACHINE_KVM)
		return 0;
	if (!t->monitor->has_kvm)
		return err_set(err, ENOEXEC,
			"%s was baked with KVM, which does not work here (%s): make /dev/kvm "
			"usable, or rebake it "
			"here with `parbake bake`",
			t->label, t->monitor->why_not_kvm);
	r = machine_cpu_features(t->shape.accel, features, err);
	if (r < 0)
		return r;
	if (strcmp(c->cpu_features, features) != 0)
		return err_set(err, ENOEXEC,
			"%s was baked under KVM on a CPU with other features than this host's: "
			"rebake it here "
			"with `parbake bake`, or run it on a host of the kind it was baked on",
			t->label);
	return 0;
}

/* An emulated machine reads the host's time stamp counter as its own. */
static int check_clock(const struct template *t, struct err *err)
{
	uint64_t khz;
	int r;

	if (!t->config.tsc_khz)
		return 0;
	r = machine_tsc_khz(&khz, err);
	if (r < 0)
		return r;
	if (!machine_tsc_same(khz, t->config.tsc_khz))
		return err_set(err, ENOEXEC,
			"%s was baked where the time stamp counter runs at %llu kHz, here it runs "
			"at %llu: its "
			"clocks would go wrong; rebake it here with `parbake bake`",
			t->label, (unsigned long long)t->config.tsc_khz, (unsigned long long)khz);
	return 0;
}

static int check_host(struct template *t, struct err *err)
{
	const struct snapshot_config *c = &t->config;
	long page = sysconf(_SC_PAGESIZE);
	int r;

	if ((r = find_monitor(t, err)) < 0 || (r = check_cpu(t, err)) < 0)
		return r;
	if (c->page_bytes != (uint64_t)page || c->page_bytes != IMAGE_PAGE)
		return err_set(err, ENOEXEC,
			"%s was baked with pages of %u bytes, this host has %ld: rebake it here "
			"with "
			"`parbake bake`",
			t->label, c->page_bytes, page);
	if (c->protocol != PROTO_VERSION)
		return err_set(err, ENOEXEC,
			"%s has an agent that speaks version %u of the protocol, this parbake "
			"speaks %u: rebake "
			"it with `parbake bake`",
			t->label, c->protocol, PROTO_VERSION);
	t->shape.memory_bytes = c->memory_bytes;
	t->shape.vcpus = c->vcpus;
	return check_clock(t, err);
}

/* ---- its parts ----------------------------------------------------------------------------- */

/* -ENOENT where it has no such layer. */
static int open_layer(struct store *s, const struct store_manifest *m, const char *media,
	int *ret_fd, struct err *err)
{
	const struct store_layer *l = store_layer(m, media);

	if (!l)
		return err_set(err, ENOENT, "%s has no layer %s", m->name, media);
	return store_blob_open(s, l->digest, l->bytes, ret_fd, err);
}

static int load_state(
	struct template *t, struct store *s, const struct store_manifest *m, struct err *err)
{
	const struct store_layer *l = store_layer(m, STORE_MEDIA_STATE);
	cleanup_fd int blob = -1, fd = -1;
	cleanup_free char *buf = NULL;
	char digest[DIGEST_TEXT_SIZE];
	int r = open_layer(s, m, STORE_MEDIA_STATE, &blob, err);

	if (r < 0)
		return r;
	if (l->bytes == 0 || l->bytes > LIMIT_STATE_BYTES)
		return err_set(err, EBADMSG, "%s: a device state of %llu bytes", t->label,
			(unsigned long long)l->bytes);
	buf = malloc(l->bytes);
	if (!buf)
		return err_set(err, ENOMEM, "no memory for the device state");
	r = file_pread_full(blob, buf, l->bytes, 0);
	if (r < 0)
		return err_sys(err, -r, "%s: read the device state", t->label);
	digest_buffer(buf, l->bytes, digest);
	if (strcmp(digest, l->digest) != 0)
		return err_set(err, EBADMSG,
			"%s: the device state in the store is damaged: rebake it with "
			"`parbake bake --force`",
			t->label);
	fd = memfd_create("parbake-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	r = fd < 0 ? -errno : file_write_full(fd, buf, l->bytes);
	if (r == 0 &&
		fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) <
			0)
		r = -errno;
	if (r < 0)
		return err_sys(err, -r, "keep the device state");
	t->state_fd = steal_fd(&fd);
	return 0;
}

static int load_wset(
	struct template *t, struct store *s, const struct store_manifest *m, struct err *err)
{
	const struct store_layer *l = store_layer(m, STORE_MEDIA_WSET);
	cleanup_json json_t *obj = NULL;
	int r;

	if (!l) /* a template without one only faults more */
		return 0;
	r = store_layer_json(s, l, "the working set", &obj, err);
	if (r < 0)
		err_prefix(err, "%s", t->label);
	return r < 0 ? r : snapshot_ranges_from_json(obj, t->config.memory_bytes, &t->wset, err);
}

static int load_disk(
	struct template *t, struct store *s, const struct store_manifest *m, struct err *err)
{
	cleanup_fd int root = -1, delta = -1;
	int r = open_layer(s, m, STORE_MEDIA_DISK, &root, err);

	if (r == 0 && t->config.delta_raw_digest[0])
		r = open_layer(s, m, STORE_MEDIA_DELTA, &delta, err);
	if (r == 0)
		r = disk_open(root, delta, &t->config, t->opt.progress, &t->disk_fd, err);
	return r;
}

/* ---- the pager ----------------------------------------------------------------------------- */

static int connect_pager(struct template *t, struct err *err)
{
	struct stat st;
	int r;
	struct pager_client_spec spec = {
		.key = t->memory_key,
		.image_fd = t->image_fd,
		.wset = t->wset.n ? &t->wset : NULL,
		.options = t->opt.pager,
		.own = t->opt.own_pager,
		.no_uffd = t->opt.no_uffd,
	};

	r = pager_client_connect(&spec, &t->pager, err);
	if (r < 0)
		return r;
	/* a machine that maps more than there is would die of it, or worse: find zeros */
	if (fstat(pager_client_memory_fd(t->pager), &st) < 0)
		return err_sys(err, errno, "the pager's memory");
	if ((uint64_t)st.st_size != t->config.memory_bytes)
		return err_set(err, EBADMSG,
			"%s: its memory image has %llu bytes, its config says %llu: rebake it with "
			"`parbake bake --force`",
			t->label, (unsigned long long)st.st_size,
			(unsigned long long)t->config.memory_bytes);
	return 0;
}

/* Between requests a pager says nothing: readable means gone. */
/* Within @wait_ms. */
static bool pager_gone(const struct template *t, int wait_ms)
{
	struct pollfd pfd = {.fd = pager_client_fd(t->pager), .events = POLLIN};

	return poll(&pfd, 1, wait_ms) > 0;
}

/* Connect where nobody is there (any more). With the lock. */
static int need_pager(struct template *t, struct err *err)
{
	if (t->pager && !pager_gone(t, 0))
		return 0;
	pager_client_free(t->pager);
	t->pager = NULL;
	return connect_pager(t, err);
}

/* Without userfaultfd: the template's memory with the delta over it, in a file of the machine's own. */
static int private_memory(struct template *t, struct memory_delta *own, int *ret, struct err *err)
{
	cleanup_fd int fd = memfd_create("parbake-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint64_t bytes = t->config.memory_bytes;
	int r;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return err_sys(err, errno, "memory of the machine's own");
	r = file_copy_sparse(pager_client_memory_fd(t->pager), fd, bytes, NULL, NULL);
	if (r < 0)
		return err_sys(err, -r, "memory of the machine's own");
	r = memory_delta_apply(own, fd, err);
	if (r < 0)
		return r;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return err_sys(err, errno, "seal the machine's memory");
	*ret = steal_fd(&fd);
	return 0;
}

int template_memory(struct template *t, const struct template_own *own, int *ret_memory,
	int *ret_pager, int *ret_own_in, struct err *err)
{
	cleanup_fd int memory = -1, sock = -1, own_in = -1;
	int r;

	pthread_mutex_lock(&t->lock);
	r = need_pager(t, err);
	if (r == 0 && pager_client_way(t->pager) == PAGER_UFFD)
		r = pager_client_attach(t->pager, own ? own->image_fd : -1,
			own ? own->ranges : NULL, &sock, &own_in, err);
	if (r == 0 && own && sock < 0) {
		r = private_memory(t, own->delta, &memory, err);
	} else if (r == 0) {
		memory = fcntl(pager_client_memory_fd(t->pager), F_DUPFD_CLOEXEC, 3);
		if (memory < 0)
			r = err_sys(err, errno, "the pager's memory");
	}
	pthread_mutex_unlock(&t->lock);
	if (r < 0)
		return r;
	*ret_memory = steal_fd(&memory);
	*ret_pager = steal_fd(&sock);
	*ret_own_in = steal_fd(&own_in);
	return 0;
}

int template_before_fork(struct template *t, struct err *err)
{
	int r = monitor_prepare(t->monitor, err);

	pthread_mutex_lock(&t->lock);
	if (r == 0)
		r = need_pager(t, err);
	pthread_mutex_unlock(&t->lock);
	return r;
}

void template_after_fork(struct template *t)
{
	pager_client_forget(t->pager);
	t->pager = NULL;
}

void template_explain(struct template *t, bool ended, struct err *err)
{
	struct err why;

	pthread_mutex_lock(&t->lock);
	/* its machines may be seen to end a moment before it */
	if (t->pager && pager_gone(t, ended ? END_WAIT_MS : 0))
		err_append(err, "\nthe pager is gone, and its machines with it");
	else if (t->pager && pager_client_get_error(t->pager, &why, NULL) == 0 && why.text[0])
		err_append(err, "\nthe pager said last: %s", why.text);
	pthread_mutex_unlock(&t->lock);
}

/* ---- open and close ------------------------------------------------------------------------ */

bool template_trainable(const struct template *t)
{
	return t->shape.accel == MACHINE_TCG && t->monitor->hands_over;
}

bool template_trained(const struct template *t)
{
	return t->translations_fd >= 0;
}

bool template_look_for_translations(struct template *t)
{
	if (!t->opt.untrained && template_trainable(t) && t->translations_fd < 0)
		t->translations_fd = translations_open(t->memory_key, t->monitor);
	return template_trained(t);
}

static int open_parts(
	struct template *t, struct store *s, const struct store_manifest *m, struct err *err)
{
	const struct store_layer *memory = store_layer(m, STORE_MEDIA_MEMORY);
	int r = snapshot_config_from_json(m->config, &t->config, err);

	if (r < 0) {
		err_prefix(err, "%s", t->label);
		return r;
	}
	if ((r = check_host(t, err)) < 0 ||
		(r = open_layer(s, m, STORE_MEDIA_MEMORY, &t->image_fd, err)) < 0 ||
		(r = load_wset(t, s, m, err)) < 0)
		return r;
	/* by the blob, not by what it expands to: a damaged copy must not serve for a sound one */
	memcpy(t->memory_key, memory->digest, sizeof(t->memory_key));
	template_look_for_translations(t);
	/* the pager starts to fill the working set while the rest is made */
	if ((r = connect_pager(t, err)) < 0 || (r = load_state(t, s, m, err)) < 0)
		return r;
	return load_disk(t, s, m, err);
}

int template_open(struct store *s, const struct store_manifest *m,
	const struct template_options *opt, struct template **ret, struct err *err)
{
	cleanup_template struct template *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return err_set(err, ENOMEM, "no memory for a template");
	pthread_mutex_init(&t->lock, NULL);
	t->disk_fd = t->state_fd = t->image_fd = t->translations_fd = -1;
	t->store_dir = str_dup(store_dir(s));
	memcpy(t->manifest, m->digest, sizeof(t->manifest));
	memcpy(t->name, m->name, sizeof(t->name));
	memcpy(t->tag, m->tag, sizeof(t->tag));
	if (opt)
		t->opt = *opt;
	snprintf(t->label, sizeof(t->label), "%s%s%s", m->name, m->tag[0] ? ":" : "", m->tag);
	r = open_parts(t, s, m, err);
	if (r < 0)
		return r;
	*ret = steal_ptr(&t);
	return 0;
}

void template_free(struct template *t)
{
	if (!t)
		return;
	pager_client_free(t->pager);
	close_fd(&t->disk_fd);
	close_fd(&t->state_fd);
	close_fd(&t->image_fd);
	close_fd(&t->translations_fd);
	free(t->store_dir);
	snapshot_ranges_clear(&t->wset);
	snapshot_config_clear(&t->config);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

const struct snapshot_config *template_config(const struct template *t)
{
	return &t->config;
}

struct pager_client *template_pager(struct template *t)
{
	return t->pager;
}

const struct machine_shape *template_shape(const struct template *t)
{
	return &t->shape;
}

int template_disk_fd(const struct template *t)
{
	return t->disk_fd;
}

int template_state_fd(const struct template *t)
{
	return t->state_fd;
}

int template_translations_fd(const struct template *t)
{
	return t->translations_fd;
}

bool template_counts_cpu(const struct template *t)
{
	return t->opt.count_cpu;
}

const char *template_memory_key(const struct template *t)
{
	return t->memory_key;
}

int template_image_fd(const struct template *t)
{
	return t->image_fd;
}

void template_get_name(const struct template *t, char ret_name[static LIMIT_NAME_SIZE],
	char ret_tag[static LIMIT_NAME_SIZE])
{
	memcpy(ret_name, t->name, sizeof(t->name));
	memcpy(ret_tag, t->tag, sizeof(t->tag));
}

const char *template_manifest(const struct template *t)
{
	return t->manifest;
}

const char *template_store(const struct template *t)
{
	return t->store_dir;
}

const struct monitor_facts *template_monitor(const struct template *t)
{
	return t->monitor;
}

const char *template_label(const struct template *t)
{
	return t->label;
}
