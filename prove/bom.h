/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_PROVE_BOM_H
#define PARBAKE_PROVE_BOM_H

#include "common/json.h"
#include "prove/subject.h"

/*
 * What is in a template version and where it comes from, in the field's own forms. Each returns a new reference, aborts
 * without memory, and gives the same object for the same version, whenever and wherever it is asked.
 */

/* A bill of materials as SPDX 2.3 JSON: the template, its kernel and agent, and its packages. */
json_t *bom_spdx(const struct store_manifest *m, const struct subject *s);
/* The same as CycloneDX 1.5 JSON. */
json_t *bom_cyclonedx(const struct store_manifest *m, const struct subject *s);
/* An in-toto statement (v1) with SLSA's provenance predicate (v1): recipe, and what was resolved from it. */
json_t *bom_provenance(const struct store_manifest *m, const struct subject *s);

/* A package's URL (purl), "pkg:deb/debian/curl@7.88.1-10?arch=amd64". Caller frees. */
char *bom_purl(const struct package *p);

#endif
