/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a page costs: each way is measured on a small memory, and the pager answers as often as it
 * must.
 */
#include "benches/fault.h"
#include "benches/image.h"
#include "common/cleanup.h"
#include "common/limits.h"
#include "restore/pager/pager.h"
#include "tests/unit/tap.h"

static void measure(enum fault_source source, uint32_t window, bool write, uint64_t want_faults)
{
	struct fault_spec spec = {.source = source,
		.bytes = 1 * MIB,
		.window_bytes = window,
		.frame_bytes = 64 * KIB,
		.write = write};
	struct fault_result res;
	struct err err = {0};
	int r = fault_measure(&spec, &res, &err);

	if (!is_int(r, 0, "%s, %s", fault_source_names[source], write ? "written" : "read")) {
		printf("# %s\n", err.text);
		return;
	}
	is_int((int64_t)res.pages, 256, "every page is touched");
	ok(res.total_ns > 0, "touching pages takes time");
	/*
	 * A page that the host took back in between faults again, and now and then the kernel
	 * itself maps a neighbour that is in the memfd.
	 */
	ok(res.faults >= want_faults * 3 / 4 && res.faults <= want_faults + 8,
		"the pager answers %llu times for %llu", (unsigned long long)res.faults,
		(unsigned long long)want_faults);
	bench_series_clear(&res.waits);
}

static void test_image(void)
{
	cleanup_fd int raw = image_scratch(NULL);
	struct image_cost c;
	struct err err;

	is_int(image_make_raw(raw, 4 * MIB, 512 * KIB, "/usr/bin", &err), 0, "an image to measure");
	is_int(image_cost_measure(raw, 4 * MIB, 64 * KIB, 3, 1, 20, &c, &err), 0,
		"an image's costs are measured");
	ok(c.data_bytes >= 128 * KIB && c.data_bytes <= 576 * KIB, "it holds data (%llu bytes)",
		(unsigned long long)c.data_bytes);
	ok(c.stored_bytes > 0 && c.stored_bytes < 4 * MIB && c.write_ns > 0 && c.expand_ns > 0,
		"all are told");
	ok(c.read_p50_ns > 0 && c.read_p50_ns <= c.read_p99_ns && c.read_p99_ns <= c.read_max_ns,
		"in order");
	is_int(image_make_raw(raw, 4 * MIB, 512 * KIB, "/nowhere", &err), -ENOENT,
		"no files, no image");
	is_int(image_make_raw(raw, 4096, 512 * KIB, "/usr/bin", &err), -EINVAL, "too small a one");
}

int main(void)
{
	measure(FAULT_PRIVATE, 0, false, 0);
	if (pager_probe(NULL, NULL) < 0) {
		tap_skip("userfaultfd may not be used here");
	} else {
		measure(FAULT_FILLED, 4 * KIB, false, 256);
		measure(FAULT_FILLED, 64 * KIB, true, 16);
		measure(FAULT_FRAME, 64 * KIB, false, 16);
		measure(FAULT_HOLE, 256 * KIB, false, 4);
	}
	test_image();
	return tap_done();
}
