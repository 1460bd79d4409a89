/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over files instead of a fuzzer's inputs: `fuzz_x FILE…`. A crash is
 * the failure; the runner gives every file of the corpus. With libFuzzer this file is left out.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: %s FILE…\n", argv[0]);
		return 2;
	}
	for (int i = 1; i < argc; i++) {
		FILE *f = fopen(argv[i], "rb");
		uint8_t *data = malloc(1 << 20);
		size_t len;

		if (!f || !data) {
			perror(argv[i]);
			return 1;
		}
		len = fread(data, 1, 1 << 20, f);
		fclose(f);
		/* exactly as long as the input, so that a read past its end is seen */
		data = realloc(data, len ? len : 1);
		LLVMFuzzerTestOneInput(data, len);
		free(data);
	}
	return 0;
}
