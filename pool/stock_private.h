/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_STOCK_PRIVATE_H
#define PARBAKE_POOL_STOCK_PRIVATE_H

/* Shells and spares kept ready (pool/stock.c). */

#include <stdbool.h>
#include <stdint.h>

struct pool;
struct pool_machine;
struct pool_version;

/* A spare, else a shell, taken out of the stock. NULL: none. */
struct pool_machine *pool_stock_take(struct pool_version *v, const char **ret_mode);
/* One in the stock has ended; it is freed after this. */
void pool_stock_ended(struct pool_machine *m, const char *text);
void pool_stock_arrival(struct pool_version *v);
/* Arrivals a second, now. */
double pool_stock_rate(const struct pool_version *v);
void pool_stock_want(struct pool_version *v, unsigned ret[static 2]);
/* Make what is missing, as far as it may be now. */
void pool_stock_refill(struct pool *p);
void pool_stock_end(struct pool_version *v);
/* What those that wait cost, of other versions than @keep (NULL: of all). */
uint64_t pool_stock_bytes(const struct pool *p, const struct pool_version *keep);
/* End one that waits, of another version than @keep (NULL: of any). False: there is none. */
bool pool_stock_give_up(struct pool *p, const struct pool_version *keep);
/* Sandboxes that run are asked, some at a time, what they take by now. */
void pool_stock_measure(struct pool *p);
/* What one more machine of @v is counted with. */
uint64_t pool_version_cost(const struct pool_version *v);
/* The pure parts: the smoothed rate after @dt_s with @arrivals more; how many should be ready. */
double pool_rate_next(double rate, double dt_s, unsigned arrivals);
unsigned pool_rate_target(double rate, double make_s, unsigned max);

#endif
