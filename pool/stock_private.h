/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_STOCK_PRIVATE_H
#define PARBAKE_POOL_STOCK_PRIVATE_H

/* The stock: standbys and spares that are kept ready (pool/stock.c). */

#include <stdbool.h>
#include <stdint.h>

struct pool;
struct pool_machine;
struct pool_version;

/* Take a spare, else a standby, out of the stock. NULL: there is neither. */
struct pool_machine *pool_stock_take(struct pool_version *v, const char **ret_mode);
/* The machine @m of the stock has ended; it is freed after this. */
void pool_stock_ended(struct pool_machine *m, const char *text);
void pool_stock_arrival(struct pool_version *v);
/* Creates of @v a second, smoothed, as of now. */
double pool_stock_rate(const struct pool_version *v);
void pool_stock_want(struct pool_version *v, unsigned ret[static 2]);
/* Make the standbys and spares that are missing, as far as they may be made now. */
void pool_stock_refill(struct pool *p);
void pool_stock_end(struct pool_version *v);
/*
 * The memory that the standbys and spares of all versions but @keep (NULL: of all) are counted with,
 * in bytes.
 */
uint64_t pool_stock_bytes(const struct pool *p, const struct pool_version *keep);
/* End one standby or spare of another version than @keep (NULL: of any). False: there is none. */
bool pool_stock_give_up(struct pool *p, const struct pool_version *keep);
/* Ask the keepers of running sandboxes, some at a time, how much memory they use by now. */
void pool_stock_measure(struct pool *p);
/* The bytes of memory that one more machine of @v is counted with. */
uint64_t pool_version_cost(const struct pool_version *v);
/* The pure parts: the smoothed rate after @dt_s with @arrivals more; how many should be ready. */
double pool_rate_next(double rate, double dt_s, unsigned arrivals);
unsigned pool_rate_target(double rate, double make_s, unsigned max);

#endif
