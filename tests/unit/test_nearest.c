/* SPDX-License-Identifier: Apache-2.0 */
/* Nearest names: what a typo was meant to be, and silence where nothing is near. */
#include "common/nearest.h"

#include "tests/unit/tap.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char *const keys[] = {
	"memory", "vcpus", "disk", NULL, "packages", "source", "description"};

static const struct {
	const char *word, *want;
} cases[] = {
	{"memory", "memory"},
	{"memroy", "memory"}, /* a swap */
	{"mem0ry", "memory"},
	{"vcpu", "vcpus"},
	{"vcpuss", "vcpus"},
	{"dsk", "disk"},
	{"package", "packages"},
	{"pakcages", "packages"},
	{"discription", "description"},
	{"descrpton", "description"},
	{"zzzzzz", NULL},
	{"m", NULL},
	{"", NULL},
	{"xy", NULL},
};

int main(void)
{
	static const char *const twins[] = {"bat", "cat"};
	static const char *const later[] = {"cart", "cat"};
	char long_word[200];

	for (size_t i = 0; i < COUNT(cases); i++) {
		const char *got = nearest_name(cases[i].word, keys, COUNT(keys));

		if (cases[i].want)
			is_str(got, cases[i].want, "%s → %s", cases[i].word, cases[i].want);
		else
			ok(got == NULL, "\"%s\" is near nothing", cases[i].word);
	}
	is_str(nearest_name("rat", twins, 2), "bat",
		"of two names equally near the earlier is suggested");
	is_str(nearest_name("caat", later, 2), "cart",
		"of two names at distance 1 the earlier is suggested");
	is_str(nearest_name("cat", later, 2), "cat", "the nearer one wins over the earlier");
	ok(nearest_name("memory", keys, 0) == NULL, "no candidates");

	memset(long_word, 'a', sizeof(long_word) - 1);
	long_word[sizeof(long_word) - 1] = '\0';
	ok(nearest_name(long_word, keys, COUNT(keys)) == NULL, "a word of 199 bytes is no typo");
	{
		const char *const one[] = {long_word};

		ok(nearest_name("memory", one, 1) == NULL,
			"a name that is too long is no suggestion");
	}
	return tap_done();
}
