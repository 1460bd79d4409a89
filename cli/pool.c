/* SPDX-License-Identifier: Apache-2.0 */
/* parbake pool: its verbs. `status` is a client of the daemon, in pool_status.c. */
#include "cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/limits.h"
#include "pool/config.h"
#include "pool/daemon/daemon.h"

static int serve(void *user)
{
	const char *const *path = user;
	struct err err = {0};

	return daemon_run(*path, &err) < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry serve_options[] = {
	{"config", 'c', OPTION_TEXT, "FILE", .offset = 0,
		"parbake-pool(5); else " DAEMON_CONFIG " where it is there", NAMES_FILE},
	{0}};

static const struct command command_serve = {"pool serve",
	"be the daemon, until SIGTERM; SIGHUP reads the configuration anew",
	.options = serve_options, .args_bytes = sizeof(const char *), .run = serve};

static void print_ready(const char *what, uint32_t n, uint32_t most)
{
	if (n == CONFIG_AUTO)
		printf(" %s auto (at most %" PRIu32 ")", what, most);
	else
		printf(" %s %" PRIu32, what, n);
}

struct args {
	const char *config, *file;
};

static int check(void *user)
{
	const struct args *a = user;
	cleanup_config struct config *c = NULL;
	const char *path = a->config ? a->config : a->file;
	struct err err = {0};

	if (a->config && a->file)
		return command_usage(
			&command_pool, "\"%s\"? One configuration is checked", a->file);
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

static const struct option_entry check_options[] = {
	{"config", 'c', OPTION_TEXT, "FILE", AT(config),
		"the configuration, as `pool serve` has it", NAMES_FILE},
	{0}};

static const struct operand_entry check_operands[] = {
	{"FILE", AT(file), NAMES_FILE, .optional = true}, {0}};

static const struct command command_check = {"pool check",
	"is a configuration good? Says what it comes to", .options = check_options,
	.operands = check_operands, .args_bytes = sizeof(struct args), .run = check};

/* The key itself is shown once, here, and nowhere kept. */
static int make_key(void *user)
{
	const char *name = *(const char *const *)user;
	char key[CONFIG_KEY_SIZE], digest[DIGEST_TEXT_SIZE];
	struct err err = {0};

	if (!store_name_valid(name))
		return command_usage(&command_pool,
			"\"%s\" is no name of a key: up to %d of a-z 0-9, between them single . _ "
			"-",
			name, LIMIT_NAME);
	if (config_make_key(key, &err) < 0)
		return cli_fail(&err);
	digest_buffer(key, strlen(key), digest);
	printf("# the key, for its user (PARBAKE_API_KEY, X-API-Key); it is shown this once:\n"
	       "#   %s\n"
	       "# for the daemon's configuration:\n"
	       "[key %s]\n"
	       "digest = %s\n",
		key, name, digest);
	return CLI_OK;
}

static const struct operand_entry key_operands[] = {{"NAME", .offset = 0}, {0}};

static const struct command command_key = {"pool key",
	"make a key for the API, and what the configuration says of it", .operands = key_operands,
	.args_bytes = sizeof(const char *), .run = make_key};

const struct command command_pool = {"pool",
	"run a pool of sandboxes behind an HTTP API; look after it",
	.commands = (const struct command *const[]){
		&command_serve, &command_check, &command_key, &command_pool_status, NULL}};
