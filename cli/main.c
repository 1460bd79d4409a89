/* SPDX-License-Identifier: Apache-2.0 */
/* The `parbake` command: a table of subcommands and what they share. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bake/recipe/recipe.h"
#include "benches/document.h"
#include "common/limits.h"
#include "common/nearest.h"
#include "common/str.h"
#include "pool/keeper/keeper.h"
#include "pool/publish.h"
#include "restore/pager/pager.h"
#include "restore/train.h"

/* A command: its table, or (of those that have none yet) what its own file does not say. */
static const struct entry {
	const struct command *table;
	const char *name;
	int (*run)(int argc, char **argv);
	const char *usage; /* after "parbake NAME " */
	const char *summary;
	const char *options; /* lines of the help page */
} commands[] = {
	{NULL, "bake", cmd_bake,
		"RECIPE… [--tag TAG] [--force] [--from-stage STAGE] [--until root] [--accel "
		"tcg|kvm] [--monitor kvm|qemu] "
		"[--sources DIR] [--lock|--locked] [--check] [--json] [--store DIR]",
		"make snapshots from recipes",
		"  --tag TAG          publish under NAME:TAG (latest)\n"
		"  --force            do every stage anew, whatever is cached\n"
		"  --from-stage S     do stage S and those after it anew: source, root, guest\n"
		"  --until root       make the root disk, into the cache, and no more: needs no "
		"guest "
		"kernel\n"
		"  --accel A          bake for kvm or tcg (what this host has)\n"
		"  --monitor M        bake with parbake-vmm (kvm) or QEMU (qemu; what works best)\n"
		"  --sources DIR      take the root's archive from DIR, where `parbake fetch` has "
		"put it\n"
		"  --lock             write what it was made of into NAME.lock beside the recipe\n"
		"  --locked           bake what NAME.lock says: any drift is listed and refused\n"
		"  --check            bake nothing, say whether the version is what the recipe "
		"would give\n"
		"  --json             events, one JSON object a line\n"
		"  exit status: 0; 1 it failed; 3 --check: to be baked, --locked: it differs from "
		"the lock\n"},
	{NULL, "fetch", cmd_fetch, "RECIPE… --into DIR [--json]",
		"save what recipes' roots take from a network, for bakes without one",
		"  --into DIR         where it goes; `parbake bake --sources DIR` takes it from "
		"there\n"},
	{NULL, "run", cmd_run, "TEMPLATE [OPTIONS] -- COMMAND… | --code CODE | --shell LINE",
		"make a sandbox, run a command in it, remove it",
		"  --code CODE        run Python in the template's warm interpreter (-: from "
		"standard input)\n"
		"  --shell LINE       run a line of sh(1)\n"
		"  -e, --env K=V      set a variable (repeat)\n"
		"  -f, --file A:B     copy the file A into the sandbox as B first (repeat)\n"
		"  -o, --fetch B:A    copy B out of the sandbox as A afterwards (repeat)\n"
		"  -t, --timeout T    kill the whole process tree after T (the recipe's, else 5m)\n"
		"  -C, --cwd DIR      directory in the sandbox\n"
		"  -u, --user USER    name or uid[:gid] (root)\n"
		"  --require-signature FILE\n"
		"                     run nothing that no key in FILE has signed\n"
		"  --max-output N     bytes of each output stream passed on (the recipe's, else "
		"16M)\n"
		"  --tty              give the command a terminal\n"
		"  --json             print one JSON object with everything instead\n"
		"  exit status: the command's; 124 timed out; 125 parbake failed; 126, 127 as "
		"sh(1);\n"
		"  128+N killed by signal N\n"},
	{.table = &command_ls},
	{NULL, "inspect", cmd_inspect, "TEMPLATE [--config|--manifest|--recipe] [--store DIR]",
		"show what a snapshot is made of, as JSON", ""},
	{NULL, "diff", cmd_diff,
		"A B [--html FILE] [--bench A.json --bench B.json] [--other-store DIR] [--json] "
		"[--store DIR]",
		"what differs between two versions: config, packages, files, memory, processes",
		"  A                  a version, or a recipe (a path, or NAME.ini)\n"
		"  --html FILE        all of it as one page, too\n"
		"  --bench FILE       given twice: compare create latency, from `bench create "
		"--save`\n"
		"  --other-store DIR  where B lies (as A)\n"
		"  --json             all of it, one JSON object\n"
		"  exit status: 0 the same but for memory; 3 something differs; 1 it failed\n"},
	{NULL, "sbom", cmd_sbom, "TEMPLATE [--format spdx|cyclonedx|provenance] [--store DIR]",
		"what is in a version and where it comes from, as a document for tools",
		"  --format F         SPDX 2.3, CycloneDX 1.5, or an in-toto statement with SLSA's "
		"provenance (spdx)\n"},
	{NULL, "sign", cmd_sign,
		"TEMPLATE… --key FILE | TEMPLATE --signature FILE | --new-key FILE [--store DIR]",
		"sign versions, as minisign does",
		"  --key FILE         with this secret key of minisign's, one without a password\n"
		"  --signature FILE   keep a signature of the manifest that was made elsewhere\n"
		"  --new-key FILE     make a secret key, and FILE.pub with the public one\n"},
	{NULL, "verify", cmd_verify,
		"[TEMPLATE…] [--boot] [--require-signature FILE] [--json] [--store DIR]",
		"check every byte of snapshots against their digests, and of what the cache has of "
		"them",
		"  --boot             then restore each, and have it pass its ready check\n"
		"  --require-signature FILE\n"
		"                     a key in FILE must have signed it\n"},
	{NULL, "rm", cmd_rm, "TEMPLATE… [--store DIR]", "remove tags (the data go with gc)", ""},
	{.table = &command_gc},
	{.table = &command_bench},
	{NULL, "pool", cmd_pool,
		"serve [--config FILE] | check [FILE] | key NAME | status [--json]",
		"run a pool of sandboxes behind an HTTP API; look after it",
		"  serve              be the daemon, until SIGTERM; SIGHUP reads the configuration "
		"anew\n"
		"    --config FILE    parbake-pool(5); else /etc/parbake/pool.conf where it is "
		"there\n"
		"  check [FILE]       is a configuration good? Says what it comes to\n"
		"  key NAME           make a key for the API, and what the configuration says of "
		"it\n"
		"  status             what waits for each template, and what came of it\n"},
	{NULL, "create", cmd_create,
		"TEMPLATE [--timeout T] [--metadata K=V]… [--env K=V]… [--auto-pause] [--allow "
		"HOST]… [--json]",
		"ask the pool for a sandbox, print its id",
		"  -t, --timeout T       its lease (the pool's default, 5m unless configured)\n"
		"  -m, --metadata K=V    a note that ps shows (repeat)\n"
		"  -e, --env K=V         a variable of all its commands (repeat)\n"
		"  --auto-pause          at the lease's end it is paused, not killed\n"
		"  --allow HOST          a host that it may reach (repeat; none otherwise)\n"},
	{NULL, "ps", cmd_ps, "[--all] [--quiet] [--json]", "list the pool's sandboxes",
		"  -a, --all             with those that are paused\n"
		"  -q, --quiet           ids alone\n"},
	{.table = &command_exec},
	{NULL, "cp", cmd_cp, "FROM TO, one of them ID:PATH [--user USER] [--json]",
		"copy a file into a sandbox of the pool or out of it",
		"  a directory as TO: end it with /; - as TO: standard output\n"},
	{NULL, "code", cmd_code,
		"ID [--code CODE|-] [--context ID | --language L] [--timeout T] [--json]",
		"run code in a sandbox: Python, in its warm interpreter, or another language",
		"  -c, --code CODE       what to run (-: standard input, the default)\n"
		"  --context ID          in an interpreter of its own\n"
		"  -l, --language L      python, javascript, typescript, bash, r or java\n"
		"  --timeout T           interrupt it after so long\n"
		"  --json                the events of the execution, one a line\n"
		"  exit status: 0; 1 it raised; 124 it was timed out; 125 parbake failed\n"},
	{NULL, "kill", cmd_kill, "ID… | --all [--json]", "end sandboxes of the pool", ""},
	{NULL, "pause", cmd_pause, "ID [--json]", "put a sandbox to disk", ""},
	{NULL, "resume", cmd_resume, "ID [--timeout T] [--json]", "go on with a paused sandbox",
		""},
	{NULL, "fork", cmd_fork, "ID [-n N] [--timeout T] [--json]",
		"make sandboxes that go on from where one is", ""},
	{NULL, "snapshot", cmd_snapshot, "ID [--name TEMPLATE [--replace]] [--json]",
		"keep a sandbox's state, as a template where named",
		"  --name TEMPLATE       a new one, NAME or NAME:TAG; without a name the pool "
		"keeps it\n"
		"  --replace             in the place of one that is there\n"},
	{NULL, "timeout", cmd_timeout, "ID DURATION [--json]",
		"let a sandbox's lease end that far from now", ""},
	{NULL, "logs", cmd_logs, "ID [--json]", "show a sandbox's console", ""},
	{NULL, "stats", cmd_stats, "[ID…] [--once] [--json]",
		"show what sandboxes take, live on a terminal", ""},
	{NULL, "doctor", cmd_doctor, "[--json]", "say how this host works, and why", ""},
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const char *name_of(const struct entry *e)
{
	return e->table ? e->table->name : e->name;
}

static const struct entry *find(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (!strcmp(name_of(&commands[i]), name))
			return &commands[i];
	}
	return NULL;
}

int cli_fail(const struct err *err)
{
	fprintf(stderr, "parbake: %s\n", err->text);
	return CLI_FAILED;
}

int cli_command_line(const char *name, int argc, char **argv, const char *short_options,
	const struct option *options, int (*take)(void *user, int opt, struct err *err), void *user,
	const char **ret_word, const char *const **ret_argv)
{
	/* '-': words before "--" come as option 1, so that the one may stand anywhere */
	cleanup_free char *among = str_printf("-%s", short_options);
	struct err err = {0};
	int opt;

	*ret_word = NULL;
	while ((opt = getopt_long(argc, argv, among, options, NULL)) != -1) {
		if (opt == '?')
			return cli_usage(name, "see above");
		if (opt == 1 && *ret_word)
			return cli_usage(name, "\"%s\": the command goes behind --", optarg);
		if (opt == 1)
			*ret_word = optarg;
		else if (take(user, opt, &err) < 0)
			return cli_usage(name, "%s", err.text);
	}
	*ret_argv = optind < argc ? (const char *const *)argv + optind : NULL;
	return 0;
}

int cli_usage(const char *name, const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "parbake %s: ", name);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "\nusage: parbake %s %s\n", name, find(name)->usage);
	return CLI_USAGE;
}

int cli_help(const char *name)
{
	const struct entry *c = find(name);

	if (c->table) {
		command_help(c->table, stdout, command_help_width());
		return CLI_OK;
	}
	printf("usage: parbake %s %s\n%s.\n%s%s", c->name, c->usage, c->summary,
		c->options[0] ? "\n" : "", c->options);
	return CLI_OK;
}

static int help(FILE *to)
{
	fprintf(to,
		"parbake %s: bake microVM templates, make sandboxes from them in milliseconds\n\n",
		PARBAKE_VERSION);
	for (size_t i = 0; i < N_COMMANDS; i++)
		fprintf(to, "  parbake %-8s %s\n", name_of(&commands[i]),
			commands[i].table ? commands[i].table->summary : commands[i].summary);
	fprintf(to, "  parbake %-8s %s\n", "version", "say which parbake this is");
	fprintf(to,
		"\n`parbake help COMMAND` tells more; so do parbake(1), parbake-recipe(5) and "
		"parbake-pool(5).\n");
	return to == stdout ? CLI_OK : CLI_USAGE;
}

static int unknown(const char *name)
{
	const char *names[N_COMMANDS];
	const char *near;

	for (size_t i = 0; i < N_COMMANDS; i++)
		names[i] = name_of(&commands[i]);
	near = nearest_name(name, names, N_COMMANDS);
	fprintf(stderr, "parbake: there is no command \"%s\"%s%s%s; see `parbake help`\n", name,
		near ? " (do you mean \"" : "", near ? near : "", near ? "\"?)" : "");
	return CLI_USAGE;
}

int cli_pair(const char *option, const char *text, json_t *obj, struct err *err)
{
	const char *eq = strchr(text, '=');
	cleanup_json json_t *value = eq ? json_string(eq + 1) : NULL;

	if (!eq || eq == text)
		return err_set(err, EINVAL, "%s %s: write NAME=VALUE", option, text);
	if (json_object_size(obj) >= LIMIT_CONFIG_ENV)
		return err_set(err, E2BIG, "more than %d of %s", LIMIT_CONFIG_ENV, option);
	if (!value || json_object_setn(obj, text, (size_t)(eq - text), value) < 0)
		return err_set(err, EINVAL, "%s %s: not UTF-8", option, text);
	return 0;
}

int cli_resolve(const char *store_dir, const char *ref, struct store **ret_store,
	struct store_manifest *ret, struct err *err)
{
	cleanup_store struct store *s = NULL;
	int r = store_open(store_dir, false, &s, err);

	if (r < 0)
		return r;
	r = store_resolve(s, ref, ret, err);
	if (r < 0)
		return r;
	*ret_store = steal_ptr(&s);
	return 0;
}

mode_t cli_umask = 022;

/*
 * Standard streams that were closed: what is opened next must not take their place, and be read or
 * written as one. An absent input is empty; writing to an absent output goes on to fail.
 */
static bool fill_standard_fds(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
			return false;
	}
	return true;
}

static int dispatch(int argc, char **argv)
{
	static char program[64];
	const char *name = argc > 1 ? argv[1] : NULL;
	const struct entry *c;

	if (!name)
		return help(stderr);
	if (!strcmp(name, "--version") || !strcmp(name, "version")) {
		printf("parbake %s\n", PARBAKE_VERSION);
		return CLI_OK;
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		if (argc < 3 || !strcmp(argv[2], "help") || !strcmp(argv[2], "version") ||
			!strcmp(argv[2], "--help"))
			return help(stdout);
		return find(argv[2]) ? cli_help(argv[2]) : unknown(argv[2]);
	}
	if (!strcmp(name, "pager")) /* internal: started by pager_client_connect() */
		return pager_process_main(argc, argv);
	if (!strcmp(name, "pool-publish")) /* internal: started by the pool */
		return pool_publish_main(argc, argv);
	if (!strcmp(name, "train")) /* internal: started by train_in_background() */
		return train_main(argc, argv);
	if (!strcmp(name, "zygote")) /* internal: started by zygote_start() */
		return zygote_main(argc, argv);
	c = find(name);
	if (!c)
		return unknown(name);
	if (c->table)
		return command_main(c->table, argc - 1, argv + 1);
	for (int i = 2; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "--help"))
			return cli_help(name);
	}
	/* as getopt_long() names who complains */
	snprintf(program, sizeof(program), "parbake %s", c->name);
	argv[1] = program;
	return c->run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	int status;

	if (!fill_standard_fds())
		return CLI_FAILED;
	/* what we make is nobody else's, and ours to read, whoever started us */
	cli_umask = umask(077);
	bench_file_mode = 0666 & ~cli_umask;
	/* a peer that went away is an error of one call, not the end of the program */
	signal(SIGPIPE, SIG_IGN);
	/* who started us may ignore it, and then children leave no status (sigaction(2)) */
	signal(SIGCHLD, SIG_DFL);
	status = dispatch(argc, argv);
	/* what could not be written was not said */
	if ((fflush(stdout) == 0 && !ferror(stdout)) || status != CLI_OK)
		return status;
	fprintf(stderr, "parbake: standard output could not be written: %s\n", strerror(errno));
	return argc > 1 && (!strcmp(argv[1], "run") || !strcmp(argv[1], "exec")) ? CLI_NOT_RUN
										 : CLI_FAILED;
}
