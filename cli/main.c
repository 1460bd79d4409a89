/* SPDX-License-Identifier: Apache-2.0 */
/* The `parbake` command: a table of subcommands and what they share. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bake/recipe/recipe.h"
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
	{.table = &command_bake},
	{.table = &command_fetch},
	{.table = &command_run},
	{.table = &command_ls},
	{.table = &command_inspect},
	{.table = &command_diff},
	{.table = &command_sbom},
	{.table = &command_sign},
	{.table = &command_verify},
	{.table = &command_rm},
	{.table = &command_gc},
	{NULL, "bench", cmd_bench,
		"create|boot|exec|load|density|fault|image|vm|ab|compare|history|bisect|report "
		"[OPTIONS] …",
		"measure creates and what they are made of; compare, report, gate",
		"  create TEMPLATE    create latency by mode: n, p50, p90, p99, max and the parts\n"
		"    -n N             creates per mode (100)\n"
		"    --mode M         cold, standby or spare; repeat for several (all)\n"
		"    --result R       what is waited for after the agent's answer: none, exec, "
		"python (none)\n"
		"    --concurrency N  that many at once, round after round (1)\n"
		"    --rate R         open loop: R creates a second begin on time, latency counts "
		"from then\n"
		"    --boots N        cold boots beside it (3; 0: none)\n"
		"    --monitor M      kvm or qemu: the template must be of that monitor\n"
		"    --trace          the median create of each mode, taken apart: parts and "
		"faults\n"
		"    --perfetto FILE  all creates as a trace that ui.perfetto.dev opens\n"
		"    --cold-cache     the template's files leave the page cache before each "
		"create\n"
		"    --own-pager      a fresh pager for every create: nothing of the memory filled "
		"yet\n"
		"    --no-premap      do not map the working set at attach\n"
		"    --no-uffd        the plain private mapping instead of userfaultfd\n"
		"  boot TEMPLATE      cold boots of the same machine; -n N (10)\n"
		"  exec TEMPLATE      calls into a sandbox and bytes through it; -n N (200), --mib "
		"N (32)\n"
		"  load TEMPLATE      creates and kills through a running pool; -n N (100), "
		"--concurrency N (1)\n"
		"    --rate R         open loop: R creates a second begin on time\n"
		"    --until exec     also to the end of a first command\n"
		"    --pace           each create waits until the pool has refilled\n"
		"  density TEMPLATE   memory of many sandboxes; --clones A,B,… (1,2,5,10,20), "
		"--busy SHELL,\n"
		"                     --idle-only\n"
		"  fault              µs a page; --window KIB,…, --frame KIB,…, --memory MIB, -n N "
		"(5)\n"
		"  vm                 parbake-vmm: a machine made, its state loaded, where "
		"/dev/kvm makes "
		"machines;\n"
		"                     -n N (200), --many N: that many at once\n"
		"  image TEMPLATE…    frame sizes and levels; also of raw files (./RAW) or --make "
		"[--memory MIB]\n"
		"                     [--data MIB] [--from DIR]; --frame KIB,…, --level N,…, "
		"--disk, -n N\n"
		"  ab OLD NEW         two builds measured in turn, and the verdict; each is words: "
		"a "
		"program (with a\n"
		"                     slash), a template, VARIABLE=VALUE, options of create; exit "
		"status as compare\n"
		"    --template T     where neither names one\n"
		"    --mode M         cold (default), standby or spare; repeat; --result R; -n N "
		"creates "
		"a run (25)\n"
		"    --detect 5%      the change of p50 that must be seen; rounds go on until it "
		"is\n"
		"    --time-limit T   at most so long (170s); --rounds N: so many, exactly\n"
		"    --any-load       judge as if the host were idle; --max-regress, --strict, "
		"--only,\n"
		"                     --judge, --max-cost as compare\n"
		"  compare OLD NEW    documents: exit status 0 same or faster, 1 slower, 2 not to "
		"be "
		"compared,\n"
		"                     3 undecided; --max-regress p50=5%,p99=10%, --detect 5%, "
		"--across "
		"host,accel,\n"
		"                     template,parbake, --strict, --only TEXT; --judge "
		"all|time|costs: what\n"
		"                     decides; --max-cost 5%: by how much costs may rise\n"
		"  history add DIR DOC.json   keep a measurement by commit; --commit, --branch, "
		"--time "
		"(else git's),\n"
		"                     --release NAME, --note TEXT\n"
		"  history show DIR   a table; trend DIR --report PAGE: charts with steps marked; "
		"--branch B\n"
		"  history gate DIR   is the newest slower than branch main's since the last "
		"release? "
		"as compare\n"
		"  bisect GOOD BAD    git bisect run by bench ab; --template T, --build CMD, "
		"--program "
		"PATH,\n"
		"                     -- OPTIONS of ab\n"
		"  report DOC…        several documents as one\n"
		"  what measures:     --json (everything, raw samples too), --save DOC.json, "
		"--report PAGE.html,\n"
		"                     --against OLD.json (repeat), --store DIR\n"},
	{.table = &command_pool},
	{.table = &command_create},
	{.table = &command_ps},
	{.table = &command_exec},
	{.table = &command_cp},
	{.table = &command_code},
	{.table = &command_kill},
	{.table = &command_pause},
	{.table = &command_resume},
	{.table = &command_fork},
	{.table = &command_snapshot},
	{.table = &command_timeout},
	{.table = &command_logs},
	{.table = &command_stats},
	{.table = &command_doctor},
	{.table = &command_completion},
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

const struct command *const *cli_commands(void)
{
	static const struct command *tables[N_COMMANDS + 1];
	size_t n = 0;

	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (commands[i].table)
			tables[n++] = commands[i].table;
	}
	return tables;
}

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

/* @words: of its subcommands. */
static int help_of(const struct entry *e, int n, char **words)
{
	const struct command *c = e->table, *next;

	if (!c) {
		printf("usage: parbake %s %s\n%s.\n\n%s", e->name, e->usage, e->summary,
			e->options);
		return CLI_OK;
	}
	for (int i = 0; i < n && c->commands; i++) {
		next = command_find(c->commands, words[i]);
		if (!next)
			return command_main(c, 2, (char *[]){NULL, words[i], NULL});
		c = next;
	}
	command_help(c, stdout, command_help_width());
	return CLI_OK;
}

static int help(FILE *to)
{
	fprintf(to,
		"parbake %s: bake microVM templates, make sandboxes from them in milliseconds\n\n",
		PARBAKE_VERSION);
	for (size_t i = 0; i < N_COMMANDS; i++)
		fprintf(to, "  parbake %-10s %s\n", name_of(&commands[i]),
			commands[i].table ? commands[i].table->summary : commands[i].summary);
	fprintf(to, "  parbake %-10s %s\n", "version", "say which parbake this is");
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
		return find(argv[2]) ? help_of(find(argv[2]), argc - 3, argv + 3)
				     : unknown(argv[2]);
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
			return help_of(c, 0, NULL);
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
