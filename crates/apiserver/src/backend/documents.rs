//! The documents of a backend, parsed and checked against the limits.

use super::{BackendError, DOCUMENT_BYTES_MAX};
use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use setpoint_object::GroupVersion;
use sha2::{Digest as _, Sha256, Sha512};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The documents as they were set.
#[derive(Debug, Default)]
pub(super) struct RawDocuments {
    pub(super) resources: Option<Bytes>,
    pub(super) discovery: Option<Bytes>,
    pub(super) forward_discovery: bool,
    pub(super) v3: Option<Bytes>,
    pub(super) v3_index: BTreeMap<String, String>,
    pub(super) v2: Option<Bytes>,
}

/// The documents of one backend.
#[derive(Debug)]
pub(crate) struct Documents {
    /// The answer to `GET /apis/{group}/{version}`; `None`: the handler answers.
    pub(crate) resources: Option<Bytes>,
    /// The resources for aggregated discovery; `None`: unknown.
    pub(crate) discovery: Option<Value>,
    /// The OpenAPI v3 document and its ETag, without quotes.
    pub(crate) v3: Option<(Bytes, String)>,
    /// The keys of the OpenAPI v3 documents at the handler, with the URLs in the index.
    pub(crate) v3_index: BTreeMap<String, String>,
    /// Its part of the OpenAPI v2 document.
    pub(crate) v2: Option<Swagger>,
    len: usize,
}

/// SHA-256 of a definition.
pub(crate) type Digest = [u8; 32];

/// A backend's part of the OpenAPI v2 document.
#[derive(Debug)]
pub(crate) struct Swagger {
    /// Its paths, by name.
    pub(crate) paths: BTreeMap<String, Box<RawValue>>,
    /// Its definitions, by name.
    pub(crate) definitions: BTreeMap<String, (Digest, Box<RawValue>)>,
    /// The ETag of its source, without quotes.
    pub(crate) etag: String,
}

const RESOURCE_LIST: &str = "APIResourceList";
const DISCOVERY: &str = "APIVersionDiscovery";
const OPEN_API_V3: &str = "OpenAPI v3 document";
const OPEN_API_V2: &str = "OpenAPI v2 document";
/// The extension in which equal definitions may differ: every server lists its own kinds there.
const KINDS: &str = "x-kubernetes-group-version-kind";

impl RawDocuments {
    pub(super) fn read(self, group_version: &GroupVersion) -> Result<Documents, BackendError> {
        let len = [&self.resources, &self.discovery, &self.v3, &self.v2]
            .map(|document| document.as_ref().map_or(0, Bytes::len))
            .into_iter()
            .sum::<usize>();
        let len_index = self.v3_index.iter().map(|(key, url)| key.len() + url.len()).sum::<usize>();
        if len_index > DOCUMENT_BYTES_MAX {
            return Err(BackendError::TooLarge { what: "OpenAPI v3 index", bytes: len_index });
        }
        let list = self.resources.as_ref().map(|text| parse(RESOURCE_LIST, text)).transpose()?;
        let discovery = match (&self.discovery, &list) {
            (Some(text), _) => {
                let mut version: Value = parse(DISCOVERY, text)?;
                array(DISCOVERY, &version, "resources")?;
                let mut resources = version["resources"].take();
                complete(&mut resources);
                Some(resources)
            }
            (None, Some(list)) => Some(discovery_of(array(RESOURCE_LIST, list, "resources")?)),
            (None, None) => None,
        };
        let v3 = match self.v3 {
            Some(text) => {
                let members: BTreeMap<String, &RawValue> = parse(OPEN_API_V3, &text)?;
                lacks(OPEN_API_V3, members.contains_key("openapi"), "openapi")?;
                let etag = hex(&Sha512::digest(&text));
                Some((text, etag))
            }
            None => None,
        };
        let v2 = self.v2.map(|text| Swagger::read(&text, group_version)).transpose()?;
        let resources = self.resources.filter(|_| !self.forward_discovery);
        let len = len + len_index;
        Ok(Documents { resources, discovery, v3, v3_index: self.v3_index, v2, len })
    }
}

impl Documents {
    /// Total length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Swagger {
    fn read(text: &Bytes, group_version: &GroupVersion) -> Result<Self, BackendError> {
        type Members = BTreeMap<String, Box<RawValue>>;
        let mut members: BTreeMap<String, &RawValue> = parse(OPEN_API_V2, text)?;
        // The reference does not ask for the version, and Go encodes a document without one.
        let is_one = ["swagger", "paths"].iter().any(|member| members.contains_key(*member));
        lacks(OPEN_API_V2, is_one, "swagger")?;
        let mut section = |name: &str| match members.remove(name) {
            Some(section) => parse(OPEN_API_V2, section.get().as_bytes()),
            None => Ok(Members::new()),
        };
        let (mut paths, definitions) = (section("paths")?, section("definitions")?);
        let root = format!("/apis/{group_version}/");
        paths.retain(|path, _| path.starts_with(&root));
        let digested = definitions.into_iter().map(|(name, text)| {
            let value: Value = parse(OPEN_API_V2, text.get().as_bytes())?;
            Ok((name, (digest(value), text)))
        });
        Ok(Self {
            definitions: digested.collect::<Result<_, BackendError>>()?,
            paths,
            etag: hex(&Sha512::digest(text)),
        })
    }
}

/// A hash of a definition without its list of kinds.
pub(crate) fn digest(mut definition: Value) -> Digest {
    if let Value::Object(members) = &mut definition {
        members.remove(KINDS);
    }
    // Members of an object are sorted.
    Sha256::digest(definition.to_string()).into()
}

fn parse<'a, T: serde::Deserialize<'a>>(
    what: &'static str,
    text: &'a [u8],
) -> Result<T, BackendError> {
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(BackendError::TooLarge { what, bytes: text.len() });
    }
    serde_json::from_slice(text).map_err(|source| BackendError::Json { what, source })
}

fn lacks(what: &'static str, has: bool, member: &'static str) -> Result<(), BackendError> {
    if has { Ok(()) } else { Err(BackendError::Member { what, member }) }
}

fn array<'a>(
    what: &'static str,
    document: &'a Value,
    member: &'static str,
) -> Result<&'a [Value], BackendError> {
    document[member].as_array().map(Vec::as_slice).ok_or(BackendError::Member { what, member })
}

fn hex(hash: &[u8]) -> String {
    hash.iter().fold(String::with_capacity(hash.len() * 2), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// Gives a kind without a name to the entries that have none, as the reference's aggregator does:
/// clients of Kubernetes 1.26 (client-go before 0.26.4) panic without one.
fn complete(entries: &mut Value) {
    for entry in entries.as_array_mut().into_iter().flatten() {
        let Value::Object(members) = entry else { continue };
        let kind = members.entry("responseKind").or_insert(Value::Null);
        if kind.is_null() {
            *kind = json!({"group": "", "version": "", "kind": ""});
        }
        if let Some(subresources) = members.get_mut("subresources") {
            complete(subresources);
        }
    }
}

/// The entries of an `APIResourceList` in the form of aggregated discovery: subresources are nested
/// in their resource.
fn discovery_of(list: &[Value]) -> Value {
    let mut resources: Vec<(&str, Map<String, Value>)> = Vec::new();
    for entry in list {
        let name = entry["name"].as_str().unwrap_or_default();
        let (resource, subresource) = match name.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (name, None),
        };
        let at = resources.iter().position(|(known, _)| *known == resource);
        let at = at.unwrap_or_else(|| {
            let scope = if entry["namespaced"] == true { "Namespaced" } else { "Cluster" };
            let new = json!({"resource": resource, "scope": scope, "verbs": []});
            resources.push((resource, new.as_object().cloned().unwrap_or_default()));
            resources.len() - 1
        });
        let Some((_, members)) = resources.get_mut(at) else { continue };
        let text = |member: &str| entry[member].as_str().unwrap_or_default();
        let kind =
            json!({"group": text("group"), "version": text("version"), "kind": text("kind")});
        if let Some(subresource) = subresource {
            let known = members.entry("subresources").or_insert_with(|| json!([]));
            if let Value::Array(known) = known {
                known.push(json!({
                    "subresource": subresource, "responseKind": kind, "verbs": entry["verbs"],
                }));
            }
            continue;
        }
        members.insert("responseKind".to_owned(), kind);
        members.insert("singularResource".to_owned(), text("singularName").into());
        for member in ["verbs", "shortNames", "categories"] {
            if entry[member].is_array() {
                members.insert(member.to_owned(), entry[member].clone());
            }
        }
    }
    resources.into_iter().map(|(_, members)| Value::Object(members)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_of_discovery_has_a_kind() {
        let kind = json!({"group": "ex.io", "version": "v1", "kind": "A"});
        let document = json!({"version": "v1", "resources": [
            {"resource": "a", "responseKind": kind, "subresources": [
                {"subresource": "status", "responseKind": null}]},
            {"resource": "b"},
        ]});
        let discovery = Some(document.to_string().into());
        let read = RawDocuments { discovery, ..RawDocuments::default() };
        let found = read.read(&GroupVersion::new("ex.io", "v1")).unwrap().discovery.unwrap();
        let none = json!({"group": "", "version": "", "kind": ""});
        let subresources = json!([{"subresource": "status", "responseKind": none}]);
        let a = json!({"resource": "a", "responseKind": kind, "subresources": subresources});
        assert_eq!(found, json!([a, {"resource": "b", "responseKind": none}]));
    }
}
