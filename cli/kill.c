/* SPDX-License-Identifier: Apache-2.0 */
/* parbake kill: end sandboxes, many at once; it returns when their machines are gone. */
#include "cli/cli.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/client.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/str.h"

#define AT_ONCE 32

struct crowd {
	struct client *client;
	char **ids;
	size_t n, begun, ended, failed;
	bool all, json;
};

struct one {
	struct crowd *crowd;
	const char *id;
};

static void on_done(void *user, const struct client_answer *a)
{
	struct one *one = user;
	struct crowd *crowd = one->crowd;
	/* of all there were, one may have ended by itself meanwhile */
	bool gone = !a->error || (crowd->all && a->status == 404);

	crowd->ended++;
	if (!gone) {
		crowd->failed++;
		fprintf(stderr, "parbake: kill %s: %s\n", one->id, a->text);
	} else if (crowd->json) {
		cleanup_json json_t *obj =
			json_pack("{s:s, s:b}", "sandboxID", one->id, "killed", 1);

		json_print_line(obj);
	} else {
		printf("%s\n", one->id);
	}
	free(one);
}

static int begin(struct crowd *crowd, struct err *err)
{
	struct one *one = malloc(sizeof(*one));
	cleanup_free char *path = str_printf("/sandboxes/%s", crowd->ids[crowd->begun]);
	struct client_spec spec = {.method = "DELETE", .path = path, .done = on_done, .user = one};

	if (!one)
		abort();
	*one = (struct one){.crowd = crowd, .id = crowd->ids[crowd->begun++]};
	if (client_begin(crowd->client, &spec, err))
		return 0;
	free(one);
	return -EIO;
}

static int kill_all(struct crowd *crowd, struct err *err)
{
	int r = 0;

	while (r == 0 && crowd->ended < crowd->n) {
		while (r == 0 && crowd->begun < crowd->n && crowd->begun - crowd->ended < AT_ONCE)
			r = begin(crowd, err);
		if (r == 0)
			r = client_turn(crowd->client, NULL, 0, CLOCK_NEVER, err);
	}
	return r;
}

static int find_all(struct crowd *crowd, struct err *err)
{
	cleanup_json json_t *list = NULL;
	json_t *sandbox;
	size_t i;
	int r = client_list(crowd->client, NULL, &list, err);

	if (r < 0)
		return r;
	crowd->ids = calloc(json_array_size(list) + 1, sizeof(*crowd->ids));
	if (!crowd->ids)
		abort();
	json_array_foreach(list, i, sandbox)
	{
		char *id = client_escape(client_string(sandbox, "sandboxID"));

		crowd->ids[crowd->n++] = id;
	}
	return 0;
}

static int find_named(struct crowd *crowd, char **names, size_t n)
{
	crowd->ids = calloc(n, sizeof(*crowd->ids));
	if (!crowd->ids)
		abort();
	for (size_t i = 0; i < n; i++) {
		struct err err = {0};
		int r = client_resolve(crowd->client, names[i], &crowd->ids[crowd->n], &err);

		if (r == 0) {
			crowd->n++;
			continue;
		}
		cli_fail(&err);
		crowd->failed++;
		if (r == -ECONNREFUSED)
			return r;
	}
	return 0;
}

int cmd_kill(int argc, char **argv)
{
	static const struct option options[] = {
		{"all", no_argument, NULL, 'a'},
		{"json", no_argument, NULL, 'j'},
		{NULL, 0, NULL, 0},
	};
	cleanup_client struct client *c = NULL;
	struct crowd crowd = {0};
	struct err err = {0};
	int opt, r;

	while ((opt = getopt_long(argc, argv, "a", options, NULL)) != -1) {
		if (opt == '?')
			return cli_usage("kill", "see above");
		crowd.all |= opt == 'a';
		crowd.json |= opt == 'j';
	}
	if (crowd.all == (optind < argc))
		return cli_usage("kill", crowd.all ? "--all, or ids" : "which sandboxes?");
	r = client_new(&c, &err);
	crowd.client = c;
	if (r == 0)
		r = crowd.all ? find_all(&crowd, &err)
			      : find_named(&crowd, argv + optind, (size_t)(argc - optind));
	if (r == 0)
		r = kill_all(&crowd, &err);
	if (r < 0 && err.text[0])
		cli_fail(&err);
	for (size_t i = 0; i < crowd.n; i++)
		free(crowd.ids[i]);
	free(crowd.ids);
	return r < 0 || crowd.failed ? CLI_FAILED : CLI_OK;
}
