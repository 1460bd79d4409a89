/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes: any text is read or refused; what is read has a canonical text that is read again to the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bake/recipe/recipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const dirs[] = {NULL};
	struct recipe *r = NULL, *again = NULL;
	struct err err;
	char *text, *text2;

	if (recipe_parse("/nonexistent/fuzz.ini", (const char *)data, size, dirs, &r, &err))
		return 0;
	text = recipe_text(r);
	/* a line may outgrow the limit by its indent or its smaller units; that is all that may fail */
	if (!recipe_parse("/nonexistent/fuzz.ini", text, strlen(text), dirs, &again, &err)) {
		text2 = recipe_text(again);
		if (strcmp(text, text2))
			abort();
		free(text2);
	} else if (!strstr(err.text, "longer than") && !strstr(err.text, "more than")) {
		abort();
	}
	recipe_free(again);
	recipe_free(r);
	free(text);
	return 0;
}
