/* SPDX-License-Identifier: Apache-2.0 */
/* parbake pool: its verbs. `status` is a client of the daemon, in pool_status.c. */
#include "cli/cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/limits.h"
#include "common/nearest.h"
#include "pool/config.h"
#include "pool/daemon/daemon.h"

/* --config FILE of serve and check; NULL: none. */
static int take_config(int argc, char **argv, const char **ret)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{NULL, 0, NULL, 0},
	};
	int opt;

	*ret = NULL;
	while ((opt = getopt_long(argc, argv, "c:", options, NULL)) != -1) {
		if (opt != 'c')
			return cli_usage("pool", "see above");
		*ret = optarg;
	}
	return CLI_OK;
}

static int serve_main(int argc, char **argv)
{
	const char *path;
	struct err err = {0};
	int status = take_config(argc, argv, &path);

	if (status != CLI_OK)
		return status;
	if (optind < argc)
		return cli_usage(
			"pool", "\"%s\"? A configuration goes behind --config", argv[optind]);
	return daemon_run(path, &err) < 0 ? cli_fail(&err) : CLI_OK;
}

static void print_ready(const char *what, uint32_t n, uint32_t most)
{
	if (n == CONFIG_AUTO)
		printf(" %s auto (at most %" PRIu32 ")", what, most);
	else
		printf(" %s %" PRIu32, what, n);
}

static int check_main(int argc, char **argv)
{
	cleanup_config struct config *c = NULL;
	const char *path;
	struct err err = {0};
	int status = take_config(argc, argv, &path);

	if (status != CLI_OK)
		return status;
	if (optind < argc && !path)
		path = argv[optind++];
	if (optind < argc)
		return cli_usage("pool", "\"%s\"? One configuration is checked", argv[optind]);
	if (!path && access(DAEMON_CONFIG, F_OK) == 0)
		path = DAEMON_CONFIG;
	if (config_read(path, &c, &err) < 0)
		return cli_fail(&err);
	printf("%s is good: socket %s%s%s, state %s\n", path ? path : "the default configuration",
		c->socket, c->listen ? ", listen " : "", c->listen ? c->listen : "", c->state);
	for (size_t i = 0; i < c->n_templates; i++) {
		printf("  template %s:%s:", c->templates[i].name, c->templates[i].tag);
		print_ready("standbys", c->templates[i].standbys, c->templates[i].max_standbys);
		printf(",");
		print_ready("spares", c->templates[i].spares, c->templates[i].max_spares);
		printf("\n");
	}
	for (size_t i = 0; i < c->n_keys; i++)
		printf("  key %s\n", c->keys[i].name);
	return CLI_OK;
}

/* The key itself is shown once, here, and nowhere kept. */
static int key_main(int argc, char **argv)
{
	char key[CONFIG_KEY_SIZE], digest[DIGEST_TEXT_SIZE];
	struct err err = {0};

	if (argc != 2)
		return cli_usage("pool", "which name shall the key have?");
	if (!store_name_valid(argv[1]))
		return cli_usage("pool",
			"\"%s\" is no name of a key: up to %d of a-z 0-9, between them single . _ "
			"-",
			argv[1], LIMIT_NAME);
	if (config_make_key(key, &err) < 0)
		return cli_fail(&err);
	digest_buffer(key, strlen(key), digest);
	printf("# the key, for its user (PARBAKE_API_KEY, X-API-Key); it is shown this once:\n"
	       "#   %s\n"
	       "# for the daemon's configuration:\n"
	       "[key %s]\n"
	       "digest = %s\n",
		key, argv[1], digest);
	return CLI_OK;
}

static const struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
} verbs[] = {
	{"serve", serve_main},
	{"check", check_main},
	{"key", key_main},
	{"status", pool_status_main},
};

#define N_VERBS (sizeof(verbs) / sizeof(verbs[0]))

int cmd_pool(int argc, char **argv)
{
	const char *names[N_VERBS], *near;

	for (size_t i = 0; i < N_VERBS; i++) {
		if (argc > 1 && !strcmp(argv[1], verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
		names[i] = verbs[i].name;
	}
	if (argc < 2)
		return cli_usage("pool", "which one?");
	near = nearest_name(argv[1], names, N_VERBS);
	return cli_usage("pool", "there is no `pool %s`%s%s%s", argv[1],
		near ? ", do you mean `pool " : "", near ?: "", near ? "`?" : "");
}
