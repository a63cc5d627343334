//! OpenAPI v2 and v3 documents of everything that is served (spec: api-server §1.3, crd §12).
//!
//! Built-in types come from the facts tables, custom ones from their definitions' schemas.
//! Documents are built on request. `Documents` caches the newest ones, each with an ETag that is a
//! function of its rows, so that a change of one definition affects its own group version only.
//! Large documents are built in steps with other tasks in between, and the schemas of a server
//! never exist as trees at the same time.
//!
//! How clients use them: `kubectl explain` reads the schemas in the v3 document of a group version;
//! `kubectl apply` and `diff` the merge keys and strategies; client-side validation the v2
//! definitions (protobuf, for kubectl before 1.27); and every kubectl whether the PATCH operation
//! of a kind takes `fieldValidation` and `dryRun`. Of the built-in types, only `ObjectMeta` has
//! descriptions: the facts tables have none. Others, and those of parameters, come from published
//! documents, if the server is given some ([`OpenApiDescriptions`]).

mod backend;
mod content;
mod custom;
mod descriptions;
mod name;
mod parameter;
mod path;
mod phrase;
mod protobuf;
mod protobuf_v3;
mod row;
mod schema;
mod serve;
mod template;
#[cfg(test)]
mod tests;
mod values;

use bytes::Bytes;
use parking_lot::Mutex;
use row::Row;
use serde_json::{Value, json};
use setpoint_object::GroupVersionKind;
use setpoint_registry::catalog::Group;
use setpoint_registry::{Catalog, Release, Resource, Routes};
use sha2::{Digest as _, Sha512};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use template::Templates;

pub use descriptions::{OPEN_API_FILE_BYTES_MAX, OpenApiDescriptions, OpenApiFileError};
pub(crate) use serve::Documents;

/// Documents of the v3 index besides those of group versions: the key, and the document with its
/// path.
const OTHER_DOCUMENTS: [(&str, Small<'static>); 5] = [
    (
        "version",
        Small {
            path: "/version/",
            tag: "version",
            id: "CodeVersion",
            text: "get the version information for this server",
            types: &["application/json"],
            answer: Some(schema::VERSION),
        },
    ),
    (
        ".well-known/openid-configuration",
        Small {
            path: "/.well-known/openid-configuration/",
            tag: "WellKnown",
            id: "ServiceAccountIssuerOpenIDConfiguration",
            text: "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
            types: &["application/json"],
            answer: None,
        },
    ),
    (
        "openid/v1/jwks",
        Small {
            path: "/openid/v1/jwks/",
            tag: "openid",
            id: "ServiceAccountIssuerOpenIDKeyset",
            text: "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
            types: &[crate::openid::KEYS_TYPE],
            answer: None,
        },
    ),
    (
        "api",
        Small {
            path: "/api/",
            tag: "core",
            id: "CoreAPIVersions",
            text: "get available API versions",
            types: &path::OBJECT_TYPES,
            answer: Some(schema::META_API_VERSIONS),
        },
    ),
    (
        "apis",
        Small {
            path: "/apis/",
            tag: "apis",
            id: "APIVersions",
            text: "get available API versions",
            types: &path::OBJECT_TYPES,
            answer: Some(schema::META_API_GROUP_LIST),
        },
    ),
];

/// A document with one path to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Small<'a> {
    path: &'a str,
    tag: &'a str,
    /// The operation's id, without its first word.
    id: &'a str,
    /// The operation's description.
    text: &'a str,
    types: &'a [&'a str],
    /// The definition of the answer; a text without one.
    answer: Option<&'static str>,
}

/// The OpenAPI version of a document.
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

/// The media type of the Swagger 2.0 document in its protobuf encoding. It is also the type of the
/// answer to clients that request the older name [`V2_PROTOBUF_OLD_TYPE`]: they do not accept that
/// name in an answer.
pub const V2_PROTOBUF_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The name in the `Accept` header of older clients.
pub const V2_PROTOBUF_OLD_TYPE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// The media type of an OpenAPI 3.0 document in its protobuf encoding. It is also the type of the
/// answer to clients that request [`V3_PROTOBUF_OLD_TYPE`].
pub const V3_PROTOBUF_TYPE: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
/// The name in the `Accept` header of client-go.
pub const V3_PROTOBUF_OLD_TYPE: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// The index of keys with their hashes, and of others with their URLs.
fn index_of<'a>(
    documents: impl Iterator<Item = (&'a str, &'a str)>,
    others: impl Iterator<Item = (&'a str, &'a str)>,
) -> Bytes {
    let documents = documents.map(|(key, hash)| {
        let url = format!("/openapi/v3/{key}?hash={hash}");
        (key.to_owned(), json!({"serverRelativeURL": url}))
    });
    let others = others.map(|(key, url)| (key.to_owned(), json!({"serverRelativeURL": url})));
    let paths: serde_json::Map<String, Value> = documents.chain(others).collect();
    Bytes::from(json!({"paths": paths}).to_string())
}

/// The documents of the v3 index: `api/v1`, `apis/apps/v1`, and the small ones (`api`, `apis`,
/// `apis/apps`, `version`, …).
pub fn v3_keys(catalog: &Catalog) -> BTreeSet<String> {
    v3_keys_of(&catalog.groups)
}
fn v3_keys_of(groups: &[Group]) -> BTreeSet<String> {
    let mut keys: BTreeSet<String> =
        OTHER_DOCUMENTS.iter().map(|(key, _)| (*key).to_owned()).collect();
    for group in groups {
        let root = name::root(&group.name);
        // The reference server has no route for groups that change.
        if !group.name.is_empty() && group.routes == Routes::Installed {
            keys.insert(root.clone());
        }
        keys.extend(group.versions.iter().map(|version| format!("{root}/{version}")));
    }
    keys
}

/// The document of a key of [`v3_keys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key<'a> {
    /// One path.
    Small(Small<'static>),
    /// The group itself.
    Group(&'a str),
    /// The resources of a group version.
    GroupVersion(&'a str, &'a str),
}
impl<'a> Key<'a> {
    fn parse(key: &'a str) -> Option<Self> {
        if let Some((_, small)) = OTHER_DOCUMENTS.iter().find(|(other, _)| *other == key) {
            return Some(Self::Small(*small));
        }
        let segments: Vec<&str> = key.split('/').collect();
        Some(match segments[..] {
            ["apis", group] => Self::Group(group),
            ["api", version] => Self::GroupVersion("", version),
            ["apis", group, version] => Self::GroupVersion(group, version),
            _ => return None,
        })
    }
}

/// The document of a key of [`v3_keys`], in pieces of little work each.
fn v3_pieces<'a>(key: Key<'a>, rows: &'a [Row<'a>], texts: Texts<'a>) -> Pieces<'a> {
    match key {
        Key::Small(small) => Box::new(std::iter::once(small_v3(&small, texts))),
        Key::Group(group) => {
            let document = with_group(group, |small| small_v3(small, texts));
            Box::new(std::iter::once(document))
        }
        Key::GroupVersion(group, version) => v3_of(rows, &row::used_kinds(group, version), texts),
    }
}

/// The ETag of a document of these rows, without quotes: uppercase hex SHA-512 of all inputs. So
/// the document need not be built to answer a client that has it.
fn etag(key: &str, rows: &[Arc<Resource>], cbor: bool, texts: Texts<'_>) -> String {
    let mut hash = Sha512::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    add(concat!(env!("CARGO_PKG_VERSION"), " form 3"));
    if cbor {
        add("cbor");
    }
    if let Some(descriptions) = texts.descriptions {
        add(&descriptions.digest());
    }
    if !texts.has_values {
        add("no values");
    }
    if texts.release != Release::PRESENT {
        add(&texts.release.to_string());
    }
    add(key);
    let gvk = |add: &mut dyn FnMut(&str), gvk: &GroupVersionKind| {
        [&gvk.group, &gvk.version, &gvk.kind].into_iter().for_each(|text| add(text));
    };
    for row in rows {
        gvk(&mut add, &row.gvk);
        add(&row.resource);
        add(&row.list_kind);
        add(if row.scope.is_namespaced() { "namespaced" } else { "cluster" });
        row.verbs.iter().for_each(|verb| add(verb.as_str()));
        for sub in &row.subresources {
            add(sub.name.as_str());
            gvk(&mut add, &sub.gvk);
            sub.verbs.iter().for_each(|verb| add(verb.as_str()));
        }
        // The schema is a function of it.
        add(&row.definition_identity());
    }
    hex(hash)
}
fn hex(hash: Sha512) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(128);
    for byte in hash.finalize() {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
    text
}

fn info(release: Release) -> Value {
    json!({"title": "Kubernetes", "version": release.to_string()})
}

/// That of a v3 document with custom kinds only.
fn custom_info() -> Value {
    json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"})
}

fn security() -> Value {
    json!({"type": "apiKey", "in": "header", "name": "authorization", "description": "Bearer Token authentication"})
}

/// What the schemas of built-in types say besides their form.
#[derive(Debug, Clone, Copy)]
struct Texts<'a> {
    /// Descriptions, if there are any.
    descriptions: Option<&'a OpenApiDescriptions>,
    /// Whether the known values of texts are there.
    has_values: bool,
    /// The release whose API the server has.
    release: Release,
}
impl Texts<'_> {
    /// Without descriptions.
    const PLAIN: Self = Texts { descriptions: None, has_values: true, release: Release::PRESENT };
}

/// A document in pieces.
type Pieces<'a> = Box<dyn Iterator<Item = Vec<u8>> + Send + 'a>;

/// A schema of a document.
#[derive(Debug, Clone, Copy)]
enum Schema<'a> {
    BuiltIn(&'static str, Texts<'a>),
    Custom(custom::CustomSchema<'a>),
}
impl Schema<'_> {
    fn make(self, dialect: Dialect) -> Value {
        match self {
            Self::BuiltIn(name, texts) => schema::definition(name, dialect, texts),
            Self::Custom(made) => made.make(dialect),
        }
    }

    /// Appends it to the v3 document of a group version. `row`: a built-in row of that, if there is
    /// one.
    fn write_v3(self, out: &mut Vec<u8>, row: Option<&Row<'_>>) {
        match (self, row) {
            (Self::Custom(made), _) => made.write_v3(out),
            (Self::BuiltIn(name, _), Some(row)) if name.starts_with(schema::META) => {
                let mut made = self.make(Dialect::V3);
                schema::retain_kinds(&mut made, &row.kind);
                write_value(out, &made);
            }
            (Self::BuiltIn(..), _) => write_value(out, &self.make(Dialect::V3)),
        }
    }
}

/// Built-in definitions that rows and the requests on them refer to directly.
fn roots(rows: &[Row<'_>]) -> Vec<&'static str> {
    let mut roots = Vec::new();
    for row in rows {
        if row.has_own_schema() {
            roots.extend([schema::OBJECT_META, schema::LIST_META]);
        } else {
            roots.extend(row.definition());
            roots.extend(row.list_definition());
            roots.push(schema::META_RESOURCES);
        }
        if row.serves("delete") || row.serves("deletecollection") {
            roots.extend([schema::STATUS, schema::DELETE_OPTIONS]);
        }
        let is_patched = |sub: &row::Sub<'_>| sub.verbs.contains(&"patch");
        if row.serves("patch") || row.subresources.iter().any(is_patched) {
            roots.push(schema::PATCH);
        }
        roots.extend(row.has_watch_paths.then_some(schema::WATCH_EVENT));
        roots.extend(row.subresources.iter().filter_map(|sub| schema::of_kind(&sub.kind)));
    }
    roots
}
fn custom_schemas<'a>(
    rows: &'a [Row<'a>],
    dialect: Dialect,
) -> impl Iterator<Item = (String, Schema<'a>)> {
    let custom = rows.iter().filter(|row| row.has_own_schema());
    let custom = custom.flat_map(move |row| custom::definitions(row, dialect));
    custom.map(|(name, made)| (name, Schema::Custom(made)))
}
fn built_in_schemas<'a>(
    roots: Vec<&'static str>,
    texts: Texts<'a>,
) -> impl Iterator<Item = (String, Schema<'a>)> + Send {
    let names = schema::reachable(roots).into_iter();
    names.map(move |name| (name.to_owned(), Schema::BuiltIn(name, texts)))
}

fn v3_of<'a>(rows: &'a [Row<'a>], used: &[&'static str], texts: Texts<'a>) -> Pieces<'a> {
    let built_in = rows.iter().find(|row| !row.has_own_schema());
    let info =
        if rows.is_empty() || built_in.is_some() { info(texts.release) } else { custom_info() };
    let head = format!("{{\"openapi\":\"3.0.0\",\"info\":{info},\"paths\":{{");
    let paths = path::all(rows, Dialect::V3, texts).into_iter();
    let templates = Arc::new(Mutex::new(Templates::default()));
    let paths = paths.map(move |(path, make)| {
        let templates = templates.clone();
        (path, move |out: &mut Vec<u8>| make.write(out, &mut templates.lock()))
    });
    let roots = [used, &roots(rows)].concat();
    let mut schemas: BTreeMap<String, Schema<'a>> = built_in_schemas(roots, texts).collect();
    schemas.extend(custom_schemas(rows, Dialect::V3));
    let schemas = schemas
        .into_iter()
        .map(move |(name, schema)| (name, move |out: &mut Vec<u8>| schema.write_v3(out, built_in)));
    let security = json!({"BearerToken": security()});
    let tail = format!("}},\"securitySchemes\":{security}}}}}");
    let pieces = std::iter::once(head.into_bytes())
        .chain(members(paths))
        .chain(std::iter::once(b"},\"components\":{\"schemas\":{".to_vec()))
        .chain(members(schemas))
        .chain(std::iter::once(tail.into_bytes()));
    Box::new(pieces)
}

/// Appends the members of an object in JSON, each by its function, with commas between them.
fn members<F: FnOnce(&mut Vec<u8>)>(
    members: impl Iterator<Item = (String, F)>,
) -> impl Iterator<Item = Vec<u8>> {
    members.enumerate().map(|(at, (name, write))| {
        let mut out = Vec::new();
        if at > 0 {
            out.push(b',');
        }
        write_value(&mut out, &Value::String(name));
        out.push(b':');
        write(&mut out);
        out
    })
}

/// The encoding of v2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Encoding {
    Json,
    Protobuf,
}

/// The part of the v2 document for one group version: its paths, and the definitions of custom
/// kinds. In JSON the members of an object without braces, in protobuf the fields of a message.
#[derive(Debug, Default)]
struct V2Part {
    paths: Vec<u8>,
    definitions: Vec<u8>,
}
impl V2Part {
    fn len(&self) -> usize {
        self.paths.len() + self.definitions.len()
    }
}

/// Builds a part in steps of little work each; the last step returns it.
fn v2_part<'a>(
    rows: &'a [Row<'a>],
    encoding: Encoding,
    texts: Texts<'a>,
) -> impl Iterator<Item = Option<V2Part>> + Send + 'a {
    let mut paths = path::all(rows, Dialect::V2, texts).into_iter();
    let mut definitions = custom_schemas(rows, Dialect::V2);
    let mut part = Some(V2Part { paths: Vec::new(), definitions: Vec::new() });
    std::iter::from_fn(move || {
        let made = part.as_mut()?;
        if let Some((path, make)) = paths.next() {
            add_v2(&mut made.paths, encoding, V2Section::Paths, path, &make.build());
        } else if let Some((name, schema)) = definitions.next() {
            let value = schema.make(Dialect::V2);
            add_v2(&mut made.definitions, encoding, V2Section::Definitions, name, &value);
        } else {
            return Some(part.take());
        }
        Some(None)
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum V2Section {
    Paths,
    Definitions,
}
fn add_v2(out: &mut Vec<u8>, encoding: Encoding, section: V2Section, name: String, value: &Value) {
    match encoding {
        Encoding::Json => {
            if !out.is_empty() {
                out.push(b',');
            }
            write_value(out, &Value::String(name));
            out.push(b':');
            write_value(out, value);
        }
        Encoding::Protobuf if section == V2Section::Paths => protobuf::push_path(out, &name, value),
        Encoding::Protobuf => protobuf::push_definition(out, &name, value),
    }
}

/// The same for the built-in definitions that `roots` and [`V2_ROOTS`] refer to, and for the paths
/// that list versions, groups and what else is no resource.
fn v2_shared<'a>(
    roots: &[&'static str],
    groups: &'a [&'a str],
    encoding: Encoding,
    texts: Texts<'a>,
) -> impl Iterator<Item = Option<V2Part>> + Send + 'a {
    let mut groups = groups.iter();
    let mut schemas = built_in_schemas([roots, &V2_ROOTS].concat(), texts);
    let mut part = Some(V2Part { paths: Vec::new(), definitions: Vec::new() });
    for (_, small) in OTHER_DOCUMENTS {
        add_v2_small(part.as_mut(), encoding, &small);
    }
    std::iter::from_fn(move || {
        if let Some(group) = groups.next() {
            with_group(group, |small| add_v2_small(part.as_mut(), encoding, small));
            return Some(None);
        }
        let made = part.as_mut()?;
        let Some((name, schema)) = schemas.next() else { return Some(part.take()) };
        let value = schema.make(Dialect::V2);
        add_v2(&mut made.definitions, encoding, V2Section::Definitions, name, &value);
        Some(None)
    })
}

/// Definitions that no resource has.
const V2_ROOTS: [&str; 4] = [
    schema::META_API_VERSIONS,
    schema::META_API_GROUP_LIST,
    schema::META_API_GROUP,
    schema::VERSION,
];

fn add_v2_small(part: Option<&mut V2Part>, encoding: Encoding, small: &Small<'_>) {
    let Some(part) = part else { return };
    let Small { path, tag, id, text, types, answer } = *small;
    let read = path::read(tag, id, text, types, answer, Dialect::V2);
    add_v2(&mut part.paths, encoding, V2Section::Paths, path.to_owned(), &read);
}

/// Calls a function with the document of a group.
fn with_group<T>(group: &str, with: impl FnOnce(&Small<'_>) -> T) -> T {
    let kind = row::Kind { group, version: "", kind: "" };
    with(&Small {
        path: &format!("/apis/{group}/"),
        tag: &name::group_tag(group),
        id: &format!("{}APIGroup", name::in_operation(&kind)),
        text: phrase::GROUP,
        types: &path::OBJECT_TYPES,
        answer: Some(schema::META_API_GROUP),
    })
}

/// Joins the parts of the v2 document, in pieces.
fn v2_whole(parts: Vec<Arc<V2Part>>, encoding: Encoding, release: Release) -> Pieces<'static> {
    let definitions: Vec<_> =
        parts.iter().filter(|part| !part.definitions.is_empty()).cloned().collect();
    let paths: Vec<_> = parts.into_iter().filter(|part| !part.paths.is_empty()).collect();
    if encoding == Encoding::Protobuf {
        let paths_len = paths.iter().map(|part| part.paths.len()).sum();
        let definitions_len = definitions.iter().map(|part| part.definitions.len()).sum();
        let pieces = std::iter::once(protobuf::head("2.0", &info(release), paths_len))
            .chain(paths.into_iter().map(|part| part.paths.clone()))
            .chain(std::iter::once(protobuf::definitions_head(definitions_len)))
            .chain(definitions.into_iter().map(|part| part.definitions.clone()));
        return Box::new(pieces);
    }
    let joined = |parts: Vec<Arc<V2Part>>, of: fn(&V2Part) -> &Vec<u8>| {
        parts.into_iter().enumerate().map(move |(at, part)| {
            let comma: &[u8] = if at > 0 { b"," } else { b"" };
            [comma, of(&part)].concat()
        })
    };
    let head = format!("{{\"swagger\":\"2.0\",\"info\":{},\"paths\":{{", info(release));
    let security = json!({"BearerToken": security()});
    let tail =
        format!("}},\"securityDefinitions\":{security},\"security\":[{{\"BearerToken\":[]}}]}}");
    let pieces = std::iter::once(head.into_bytes())
        .chain(joined(paths, |part| &part.paths))
        .chain(std::iter::once(b"},\"definitions\":{".to_vec()))
        .chain(joined(definitions, |part| &part.definitions))
        .chain(std::iter::once(tail.into_bytes()));
    Box::new(pieces)
}

/// A document with one path to read, and the schema of its answer.
fn small_v3(small: &Small<'_>, texts: Texts<'_>) -> Vec<u8> {
    let Small { path, tag, id, text, types, answer } = *small;
    let read = path::read(tag, id, text, types, answer, Dialect::V3);
    let mut components = json!({"securitySchemes": {"BearerToken": security()}});
    if let Some(answer) = answer {
        let names = schema::reachable(vec![answer]).into_iter();
        components["schemas"] = names
            .map(|name| (name.to_owned(), schema::definition(name, Dialect::V3, texts)))
            .collect();
    }
    let document = json!({
        "openapi": "3.0.0",
        "info": info(texts.release),
        "paths": {path: read},
        "components": components,
    });
    document.to_string().into_bytes()
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    // Writing a tree of JSON values to memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}
