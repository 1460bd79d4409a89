/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bills of materials and provenance. Identifiers are made from the manifest's digest, and times are the
 * version's own, so that a document can be made again and compared.
 */
#include "prove/bom.h"

#include <ctype.h>
#include <string.h>

#include "common/str.h"

#define BUILD_TYPE "urn:parbake:bake:1" /* externalParameters: a recipe; docs/format.md */
#define BUILDER "urn:parbake:parbake"

static const char *hex_of(const char *digest)
{
	const char *colon = strchr(digest, ':');

	return colon ? colon + 1 : digest;
}

static const char *maker(const struct subject *s)
{
	const char *version = json_string_value(json_object_get(s->config.extra, "parbake"));

	return version ? version : "unknown";
}

/* A UUID of version 8 (RFC 9562) from the first half of a digest. */
static char *uuid_of(const char *digest)
{
	const char *h = hex_of(digest);

	return str_printf("urn:uuid:%.8s-%.4s-8%.3s-8%.3s-%.12s", h, h + 8, h + 13, h + 17, h + 20);
}

/* ---- package URLs ------------------------------------------------------------------------ */

static void put_encoded(FILE *f, const char *text, bool lower)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		fprintf(f, isalnum(*p) || strchr(".-_~:", *p) ? "%c" : "%%%02X",
			lower ? (unsigned)tolower(*p) : *p);
}

char *bom_purl(const struct package *p)
{
	const char *slash = p->kind == PACKAGE_NPM ? strchr(p->name, '/') : NULL;
	cleanup_free char *name = str_dup(p->name);
	char *out = NULL;
	size_t len;
	FILE *f = open_memstream(&out, &len);

	if (!f)
		abort();
	/* the purl specification's name for Python packages */
	for (char *c = name; p->kind == PACKAGE_PYTHON && *c; c++)
		*c = *c == '_' ? '-' : *c;
	fprintf(f, "pkg:%s/%s", package_kind_purl(p->kind),
		p->kind == PACKAGE_DEBIAN ? "debian/" : "");
	if (slash) {
		name[slash - p->name] = '\0';
		put_encoded(f, name, false);
		fputc('/', f);
		put_encoded(f, slash + 1, false);
	} else {
		put_encoded(f, name, p->kind != PACKAGE_NPM);
	}
	fputc('@', f);
	put_encoded(f, p->version, false);
	if (*p->arch) {
		fputs("?arch=", f);
		put_encoded(f, p->arch, false);
	}
	if (fclose(f))
		abort();
	return out;
}

/* Parts that are no packages: name and digest. */
struct part {
	const char *name, *digest;
};

#define PARTS 2

static void parts_of(const struct subject *s, struct part ret[static PARTS])
{
	ret[0] = (struct part){"linux", s->config.kernel_digest};
	ret[1] = (struct part){"parbake-agent", s->config.agent_digest};
}

static json_t *packed(json_t *value)
{
	if (!value)
		abort();
	return value;
}

/* ---- SPDX -------------------------------------------------------------------------------- */

static json_t *spdx_package(
	const char *id, const char *name, const char *version, const char *purpose)
{
	json_t *p = packed(json_pack("{s:s, s:o, s:s, s:b, s:s, s:s, s:s, s:s}", "SPDXID", id,
		"name", json_lossy(name, strlen(name)), "downloadLocation", "NOASSERTION",
		"filesAnalyzed", 0, "licenseConcluded", "NOASSERTION", "licenseDeclared",
		"NOASSERTION", "copyrightText", "NOASSERTION", "primaryPackagePurpose", purpose));

	if (version)
		json_object_set_new(p, "versionInfo", json_lossy(version, strlen(version)));
	return p;
}

static void spdx_checksum(json_t *p, const char *digest)
{
	if (*digest)
		json_object_set_new(p, "checksums",
			packed(json_pack("[{s:s, s:s}]", "algorithm", "SHA256", "checksumValue",
				hex_of(digest))));
}

static void spdx_relate(json_t *list, const char *from, const char *how, const char *to)
{
	json_array_append_new(list,
		packed(json_pack("{s:s, s:s, s:s}", "spdxElementId", from, "relationshipType", how,
			"relatedSpdxElement", to)));
}

static void spdx_contents(const struct subject *s, json_t *packages, json_t *relations)
{
	struct part parts[PARTS];

	parts_of(s, parts);
	for (size_t i = 0; i < PARTS; i++) {
		cleanup_free char *id = str_printf("SPDXRef-Part-%zu", i);
		json_t *p = spdx_package(
			id, parts[i].name, NULL, i ? "APPLICATION" : "OPERATING-SYSTEM");

		spdx_checksum(p, parts[i].digest);
		json_array_append_new(packages, p);
		spdx_relate(relations, "SPDXRef-Template", "CONTAINS", id);
	}
	for (size_t i = 0; i < s->packages.n; i++) {
		const struct package *of = &s->packages.items[i];
		cleanup_free char *id = str_printf("SPDXRef-Package-%zu", i), *purl = bom_purl(of);
		json_t *p = spdx_package(id, of->name, of->version, "LIBRARY");

		json_object_set_new(p, "externalRefs",
			packed(json_pack("[{s:s, s:s, s:s}]", "referenceCategory",
				"PACKAGE-MANAGER", "referenceType", "purl", "referenceLocator",
				purl)));
		json_array_append_new(packages, p);
		spdx_relate(relations, "SPDXRef-Template", "CONTAINS", id);
	}
}

json_t *bom_spdx(const struct store_manifest *m, const struct subject *s)
{
	cleanup_free char *creator = str_printf("Tool: parbake-%s", maker(s)),
			  *uuid = uuid_of(m->digest);
	json_t *packages = json_array(), *relations = json_array();
	json_t *template = spdx_package("SPDXRef-Template", m->name, m->digest, "CONTAINER");

	spdx_checksum(template, m->digest);
	json_array_append_new(packages, template);
	spdx_relate(relations, "SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Template");
	spdx_contents(s, packages, relations);
	return packed(json_pack("{s:s, s:s, s:s, s:s, s:s, s:{s:s, s:[s]}, s:o, s:o}",
		"spdxVersion", "SPDX-2.3", "dataLicense", "CC0-1.0", "SPDXID", "SPDXRef-DOCUMENT",
		"name", m->name, "documentNamespace", uuid, "creationInfo", "created", m->created,
		"creators", creator, "packages", packages, "relationships", relations));
}

/* ---- CycloneDX --------------------------------------------------------------------------- */

static json_t *hashes(const char *digest)
{
	return packed(json_pack("[{s:s, s:s}]", "alg", "SHA-256", "content", hex_of(digest)));
}

json_t *bom_cyclonedx(const struct store_manifest *m, const struct subject *s)
{
	cleanup_free char *uuid = uuid_of(m->digest);
	json_t *components = json_array();
	struct part parts[PARTS];

	parts_of(s, parts);
	for (size_t i = 0; i < PARTS; i++) {
		json_t *c = packed(
			json_pack("{s:s, s:s, s:s}", "type", i ? "application" : "operating-system",
				"bom-ref", parts[i].name, "name", parts[i].name));

		if (*parts[i].digest)
			json_object_set_new(c, "hashes", hashes(parts[i].digest));
		json_array_append_new(components, c);
	}
	for (size_t i = 0; i < s->packages.n; i++) {
		const struct package *p = &s->packages.items[i];
		cleanup_free char *purl = bom_purl(p), *ref = str_printf("package-%zu", i);

		json_array_append_new(components,
			packed(json_pack("{s:s, s:s, s:o, s:o, s:s}", "type", "library", "bom-ref",
				ref, "name", json_lossy(p->name, strlen(p->name)), "version",
				json_lossy(p->version, strlen(p->version)), "purl", purl)));
	}
	return packed(
		json_pack("{s:s, s:s, s:s, s:i, s:{s:s, s:{s:[{s:s, s:s, s:s}]}, s:{s:s, s:s, s:s, "
			  "s:s, s:o}}, s:o}",
			"bomFormat", "CycloneDX", "specVersion", "1.5", "serialNumber", uuid,
			"version", 1, "metadata", "timestamp", m->created, "tools", "components",
			"type", "application", "name", "parbake", "version", maker(s), "component",
			"type", "container", "bom-ref", "template", "name", m->name, "version",
			m->digest, "hashes", hashes(m->digest), "components", components));
}

/* ---- provenance -------------------------------------------------------------------------- */

static void add_dependency(json_t *list, const char *uri, const char *name, const char *digest)
{
	json_t *d = packed(json_pack("{s:o}", "name", json_lossy(name, strlen(name))));

	if (uri)
		json_object_set_new(d, "uri", json_string(uri));
	if (digest && *digest)
		json_object_set_new(
			d, "digest", packed(json_pack("{s:s}", "sha256", hex_of(digest))));
	json_array_append_new(list, d);
}

static json_t *text_or_null(const char *text)
{
	return text ? json_lossy(text, strlen(text)) : json_null();
}

json_t *bom_provenance(const struct store_manifest *m, const struct subject *s)
{
	const struct snapshot_config *c = &s->config;
	json_t *found = json_array();
	struct part parts[PARTS];

	parts_of(s, parts);
	for (size_t i = 0; i < PARTS; i++)
		add_dependency(found, NULL, parts[i].name, parts[i].digest);
	add_dependency(found, NULL, "root disk", c->disk_raw_digest);
	/* a package has no digest here: what the disk has of it is not the archive that it came in */
	for (size_t i = 0; i < s->packages.n; i++) {
		cleanup_free char *purl = bom_purl(&s->packages.items[i]);

		add_dependency(found, purl, s->packages.items[i].name, NULL);
	}
	return packed(json_pack("{s:s, s:[{s:s, s:{s:s}}], s:s, s:{s:{s:s, s:{s:o}, s:{s:s, s:s, "
				"s:s, s:s}, s:o}, s:{s:{s:s, "
				"s:{s:s}}, s:{s:s, s:s}}}}",
		"_type", "https://in-toto.io/Statement/v1", "subject", "name", m->name, "digest",
		"sha256", hex_of(m->digest), "predicateType", "https://slsa.dev/provenance/v1",
		"predicate", "buildDefinition", "buildType", BUILD_TYPE, "externalParameters",
		"recipe", text_or_null(c->recipe), "internalParameters", "accel", c->accel,
		"monitor", c->monitor, "monitor_version", c->monitor_version, "recipe_digest",
		c->recipe_digest, "resolvedDependencies", found, "runDetails", "builder", "id",
		BUILDER, "version", "parbake", maker(s), "metadata", "invocationId", m->digest,
		"startedOn", m->created));
}
