//! OpenAPI v2 and v3 documents of everything that is served (spec: api-server §1.3, crd §12).
//!
//! Pure functions of a [`Catalog`]: built-in types come from the facts tables, custom ones from their definitions' schemas. Nothing is
//! built before it is asked for; `Documents`, which serves them, keeps what was made until [`Catalog::generation`] changes. Documents are
//! written piece by piece, so that the whole server's v2 document never exists as a tree.
//!
//! What clients read in them: `kubectl explain` the schemas of the v3 document of a group version; `kubectl apply` and `diff` the merge
//! keys and strategies; client-side validation the v2 definitions (protobuf, for kubectl before 1.27); and every kubectl whether the
//! PATCH operation of a kind takes `fieldValidation` and `dryRun`. Built-in types carry no descriptions: the facts tables have none.

mod custom;
mod name;
mod parameter;
mod path;
mod protobuf;
mod row;
mod schema;
mod serve;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use row::Row;
use serde_json::{Value, json};
use setpoint_registry::Catalog;
use sha2::{Digest as _, Sha512};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) use serve::Documents;

/// Documents of the v3 index beside those of group versions.
const OTHER_DOCUMENTS: [(&str, &str); 3] = [
    ("version", "/version/"),
    (".well-known/openid-configuration", "/.well-known/openid-configuration/"),
    ("openid/v1/jwks", "/openid/v1/jwks/"),
];

/// Which OpenAPI is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}
impl Dialect {
    /// A reference to a named schema.
    fn reference(self, name: &str) -> Value {
        let prefix = match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        };
        json!({"$ref": format!("{prefix}{name}")})
    }
}

/// The Swagger 2.0 document of the whole server, as JSON.
pub fn v2(catalog: &Catalog) -> Bytes {
    v2_of(&row::all(catalog))
}

/// The media type [`v2_protobuf`] is answered with, also to clients that ask by the older name [`V2_PROTOBUF_OLD_TYPE`]: they do not
/// understand that one in an answer.
pub const V2_PROTOBUF_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// What older clients write in `Accept`.
pub const V2_PROTOBUF_OLD_TYPE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// The Swagger 2.0 document of the whole server in its protobuf encoding ([`V2_PROTOBUF_TYPE`]).
pub fn v2_protobuf(catalog: &Catalog) -> Bytes {
    protobuf_of(&row::all(catalog))
}

/// The v3 index: every document with the path and hash ([`etag`]) it is served under. Builds every document to hash it.
pub fn v3_index(catalog: &Catalog) -> Bytes {
    let documents: Vec<(String, String)> = v3_keys(catalog)
        .into_iter()
        .filter_map(|key| {
            let hash = etag(&v3_document(catalog, &key)?);
            Some((key, hash))
        })
        .collect();
    index_of(documents.iter().map(|(key, hash)| (&**key, &**hash)))
}

/// The index over keys and hashes.
fn index_of<'a>(documents: impl Iterator<Item = (&'a str, &'a str)>) -> Bytes {
    let paths: serde_json::Map<String, Value> = documents
        .map(|(key, hash)| {
            let url = format!("/openapi/v3/{key}?hash={hash}");
            (key.to_owned(), json!({"serverRelativeURL": url}))
        })
        .collect();
    Bytes::from(json!({"paths": paths}).to_string())
}

/// The OpenAPI 3.0 document of one group version; `None` when it is not served.
pub fn v3(catalog: &Catalog, group: &str, version: &str) -> Option<Bytes> {
    catalog.group(group)?.versions.iter().find(|served| &***served == version)?;
    Some(v3_of(&row::of_group_version(catalog, group, version), &row::used_kinds(group, version)))
}

/// The documents of the v3 index: `api/v1`, `apis/apps/v1`, and the small ones (`api`, `apis`, `apis/apps`, `version`, …).
pub fn v3_keys(catalog: &Catalog) -> BTreeSet<String> {
    let mut keys: BTreeSet<String> = ["api", "apis"]
        .into_iter()
        .chain(OTHER_DOCUMENTS.iter().map(|(key, _)| *key))
        .map(str::to_owned)
        .collect();
    for group in &catalog.groups {
        let root = name::root(&group.name);
        if !group.name.is_empty() {
            keys.insert(root.clone());
        }
        keys.extend(group.versions.iter().map(|version| format!("{root}/{version}")));
    }
    keys
}

/// The document of one key of [`v3_keys`]; `None` for any other.
pub fn v3_document(catalog: &Catalog, key: &str) -> Option<Bytes> {
    if let Some((_, path)) = OTHER_DOCUMENTS.iter().find(|(other, _)| *other == key) {
        return Some(small_v3(path, None));
    }
    let segments: Vec<&str> = key.split('/').collect();
    match segments[..] {
        ["api"] => Some(small_v3("/api/", Some(schema::META_API_VERSIONS))),
        ["apis"] => Some(small_v3("/apis/", Some(schema::META_API_GROUP_LIST))),
        ["apis", group] => {
            catalog.group(group)?;
            Some(small_v3(&format!("/apis/{group}/"), Some(schema::META_API_GROUP)))
        }
        ["api", version] => v3(catalog, "", version),
        ["apis", group, version] if !group.is_empty() => v3(catalog, group, version),
        _ => None,
    }
}

/// The ETag of a document, without quotes: uppercase hex SHA-512 of its JSON.
pub fn etag(json: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(128);
    for byte in Sha512::digest(json) {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
    text
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "unversioned"})
}

fn security() -> Value {
    json!({"type": "apiKey", "in": "header", "name": "authorization", "description": "Bearer Token authentication"})
}

/// Schemas that rows and the requests on them refer to, by name; `None`: a built-in definition.
type Schemas = BTreeMap<String, Option<Value>>;

fn schemas(rows: &[Row<'_>], used: &[&'static str], dialect: Dialect) -> Schemas {
    let mut custom = BTreeMap::new();
    let mut roots: Vec<&'static str> = used.to_vec();
    for row in rows {
        if row.custom {
            custom.extend(custom::definitions(row, dialect));
            roots.push(schema::OBJECT_META);
        } else {
            roots.extend(row.definition());
            roots.extend(row.list_definition());
        }
        roots.extend(row.subresources.iter().filter_map(|sub| schema::of_kind(&sub.kind)));
    }
    roots.extend(schema::META_OF_OPERATIONS);
    let mut all: Schemas =
        schema::reachable(roots).into_iter().map(|name| (name.to_owned(), None)).collect();
    all.extend(custom.into_iter().map(|(name, value)| (name, Some(value))));
    all
}

fn schema_value(name: &str, given: Option<Value>, dialect: Dialect) -> Value {
    given.unwrap_or_else(|| schema::definition(name, dialect))
}

fn v2_of(rows: &[Row<'_>]) -> Bytes {
    let mut out = Vec::new();
    out.extend_from_slice(b"{\"swagger\":\"2.0\",\"info\":");
    write_value(&mut out, &info());
    out.extend_from_slice(b",\"paths\":");
    let paths = path::all(rows, Dialect::V2);
    write_members(&mut out, paths.iter().map(|(path, make)| (path.clone(), make.build())));
    out.extend_from_slice(b",\"definitions\":");
    let definitions = schemas(rows, &[], Dialect::V2);
    let definitions = definitions.into_iter().map(|(name, given)| {
        let value = schema_value(&name, given, Dialect::V2);
        (name, value)
    });
    write_members(&mut out, definitions);
    out.extend_from_slice(b",\"securityDefinitions\":");
    write_value(&mut out, &json!({"BearerToken": security()}));
    out.extend_from_slice(b",\"security\":[{\"BearerToken\":[]}]}");
    Bytes::from(out)
}

fn protobuf_of(rows: &[Row<'_>]) -> Bytes {
    let mut document = protobuf::Document::new("2.0", &info());
    for (path, make) in path::all(rows, Dialect::V2) {
        document.path(&path, &make.build());
    }
    for (name, given) in schemas(rows, &[], Dialect::V2) {
        let value = schema_value(&name, given, Dialect::V2);
        document.definition(&name, &value);
    }
    Bytes::from(document.finish())
}

fn v3_of(rows: &[Row<'_>], used: &[&'static str]) -> Bytes {
    let mut out = Vec::new();
    out.extend_from_slice(b"{\"openapi\":\"3.0.0\",\"info\":");
    write_value(&mut out, &info());
    out.extend_from_slice(b",\"paths\":");
    let paths = path::all(rows, Dialect::V3);
    write_members(&mut out, paths.iter().map(|(path, make)| (path.clone(), make.build())));
    out.extend_from_slice(b",\"components\":{\"schemas\":");
    let all = schemas(rows, used, Dialect::V3).into_iter().map(|(name, given)| {
        let value = schema_value(&name, given, Dialect::V3);
        (name, value)
    });
    write_members(&mut out, all);
    out.extend_from_slice(b",\"securitySchemes\":");
    write_value(&mut out, &json!({"BearerToken": security()}));
    out.extend_from_slice(b"}}");
    Bytes::from(out)
}

/// A document with one path that is read and, where it has one, the schema of its answer.
fn small_v3(path: &str, answer: Option<&'static str>) -> Bytes {
    let mut ok = json!({"description": "OK"});
    let mut components = serde_json::Map::new();
    if let Some(answer) = answer {
        ok["content"] = json!({"application/json": {"schema": Dialect::V3.reference(answer)}});
        for name in schema::reachable(vec![answer]) {
            components.insert(name.to_owned(), schema::definition(name, Dialect::V3));
        }
    }
    let document = json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": {(path): {"get": {"responses": {"200": ok}}}},
        "components": {"schemas": components, "securitySchemes": {"BearerToken": security()}},
    });
    Bytes::from(document.to_string())
}

fn write_members(out: &mut Vec<u8>, members: impl Iterator<Item = (String, Value)>) {
    out.push(b'{');
    for (at, (name, value)) in members.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_value(out, &Value::String(name));
        out.push(b':');
        write_value(out, &value);
    }
    out.push(b'}');
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    // A tree of JSON values written to memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}
