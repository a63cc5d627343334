//! Aggregated discovery: `apidiscovery.k8s.io/v2`, the whole catalog in one document with an ETag.

use super::legacy::words;
use crate::backend::{Backend, Generation, Served};
use crate::body::Body;
use crate::negotiate::{Accepted, Encoding, clauses};
use crate::peers::PeerTable;
use crate::respond::{self, Style};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use setpoint_object::{GroupVersion, GroupVersionKind};
use setpoint_registry::Routes;
use setpoint_registry::catalog::{Group, Resource};
use sha2::{Digest, Sha512};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The media type parameters of the form, which clients check in the answer.
const PARAMS: &str = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The profile of the form without what peers serve.
const NO_PEER: &str = "nopeer";

/// The aggregated form as a client accepts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    encoding: Encoding,
    /// Whether what peers serve is in it.
    has_peers: bool,
}

/// How the client accepts the aggregated form. Any clause that names it has precedence over plain
/// ones. `None`: the client requests the legacy form.
pub(crate) fn wants_aggregated(accept: &str) -> Option<Wanted> {
    clauses(accept).iter().find_map(|clause| {
        let named = clause.param("g") == Some("apidiscovery.k8s.io")
            && clause.param("v") == Some("v2")
            && clause.param("as") == Some("APIGroupDiscoveryList");
        let encoding = clause.encoding().filter(|one| named && clause.is_of_document(*one))?;
        Some(Wanted { encoding, has_peers: clause.param("profile") != Some(NO_PEER) })
    })
}

/// The two documents of the newest catalog, made on first use.
#[derive(Debug, Default)]
pub(crate) struct Aggregated {
    documents: Mutex<Option<(Generation, Arc<Documents>)>>,
    /// The document of the groups with those of peers; `None`: they add nothing.
    with_peers: Mutex<Option<WithPeers>>,
}

/// The document that is made of two others.
#[derive(Debug, Clone)]
struct WithPeers {
    documents: Arc<Documents>,
    peers: Arc<PeerTable>,
    document: Option<Arc<Document>>,
}

#[derive(Debug)]
struct Documents {
    core: Document,
    groups: Document,
    /// Their entries, by group.
    parts: BTreeMap<Arc<str>, Part>,
}

/// The entry of one group and its inputs. Reused while the inputs are unchanged.
#[derive(Debug, Clone)]
struct Part {
    versions: Vec<Arc<str>>,
    rows: Vec<Arc<Resource>>,
    backends: Vec<Arc<Backend>>,
    /// A slice of the document.
    json: Bytes,
}
impl Part {
    /// The known entry if it is up to date, otherwise a new one.
    fn of(served: &Served, group: &Group, known: Option<&Self>) -> Self {
        let versions = &group.versions;
        let backends = || versions.iter().filter_map(|v| served.backend(&group.name, v));
        let local = || versions.iter().filter(|v| served.backend(&group.name, v).is_none());
        let rows = || local().flat_map(|v| served.catalog.group_version(&group.name, v));
        let is_same = |known: &&Self| {
            known.versions == *versions
                && known.rows.len() == rows().count()
                && known.rows.iter().zip(rows()).all(|(a, b)| Arc::ptr_eq(a, b))
                && known.backends.len() == backends().count()
                && known.backends.iter().zip(backends()).all(|(a, b)| a.is_listed_as(b))
        };
        known.filter(is_same).cloned().unwrap_or_else(|| Self {
            versions: versions.clone(),
            rows: rows().cloned().collect(),
            backends: backends().cloned().collect(),
            json: super::to_bytes(&item(served, group)),
        })
    }
}

impl Documents {
    /// The entries of the groups as trees.
    fn groups(&self) -> Option<Vec<Value>> {
        let tree: Value = serde_json::from_slice(&self.groups.json).ok()?;
        tree.get("items")?.as_array().cloned()
    }
}

#[derive(Debug)]
struct Document {
    json: Bytes,
    etag: HeaderValue,
}

impl Aggregated {
    /// Answers `/api` (`core`) or `/apis`: the document, or 304 if the client has it.
    pub(crate) fn respond(
        &self,
        served: &Served,
        (core, wanted): (bool, Wanted),
        peers: &Arc<PeerTable>,
        headers: &HeaderMap,
        style: Style,
    ) -> Response<Body> {
        let Wanted { encoding, has_peers } = wanted;
        let documents = self.documents(served);
        let with_peers = match has_peers && !core {
            true => self.with_peers(served, &documents, peers),
            false => None,
        };
        let document = match (core, &with_peers) {
            (true, _) => &documents.core,
            (false, Some(document)) => document,
            (false, None) => &documents.groups,
        };
        let known = headers.get(header::IF_NONE_MATCH) == Some(&document.etag);
        let mut response = if known {
            respond::empty(StatusCode::NOT_MODIFIED)
        } else {
            let accepted = Accepted { encoding, ..Accepted::default() };
            respond::document(StatusCode::OK, accepted, style, document.json.clone())
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, document.etag.clone());
        headers.append(header::VARY, HeaderValue::from_static("Accept"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
        let media_type = format!("{};{PARAMS}", encoding.media_type());
        if let (false, Ok(media_type)) = (known, HeaderValue::try_from(media_type)) {
            headers.insert(header::CONTENT_TYPE, media_type);
        }
        response
    }

    /// The document with what peers serve; `None`: they add nothing. Made once for each pair.
    fn with_peers(
        &self,
        served: &Served,
        documents: &Arc<Documents>,
        peers: &Arc<PeerTable>,
    ) -> Option<Arc<Document>> {
        let known = self.with_peers.lock().clone();
        if let Some(known) = known
            && Arc::ptr_eq(&known.documents, documents)
            && Arc::ptr_eq(&known.peers, peers)
        {
            return known.document;
        }
        let is_served = |group: &str, version: &str, resource: &str| {
            served.catalog.get(group, version, resource).is_some()
                || served.backend(group, version).is_some()
        };
        let local = if peers.has_more_than(is_served) { documents.groups() } else { None };
        let document = local.map(|local| peers.merged(&local)).map(|groups| {
            let items: Vec<Bytes> = groups.iter().map(super::to_bytes).collect();
            Arc::new(Document::new(&items).0)
        });
        let made = WithPeers {
            documents: documents.clone(),
            peers: peers.clone(),
            document: document.clone(),
        };
        *self.with_peers.lock() = Some(made);
        document
    }

    fn documents(&self, served: &Served) -> Arc<Documents> {
        let known = self.documents.lock().clone();
        let known = match known {
            Some((generation, documents)) if generation == served.generation() => return documents,
            known => known.map(|(_, documents)| documents),
        };
        let part = |group: &Group| {
            let known = known.as_ref().and_then(|known| known.parts.get(&group.name));
            (group.name.clone(), Part::of(served, group, known))
        };
        let mut parts: BTreeMap<Arc<str>, Part> = served.groups.iter().map(part).collect();
        let mut document = |is_core: bool| {
            let groups = served.groups.iter().filter(|group| group.name.is_empty() == is_core);
            let names: Vec<&Arc<str>> = groups.map(|group| &group.name).collect();
            let items: Vec<Bytes> =
                names.iter().filter_map(|name| Some(parts.get(*name)?.json.clone())).collect();
            let (document, items) = Document::new(&items);
            for (name, json) in names.into_iter().zip(items) {
                if let Some(part) = parts.get_mut(name) {
                    part.json = json;
                }
            }
            document
        };
        let (core, groups) = (document(true), document(false));
        let documents = Arc::new(Documents { core, groups, parts });
        *self.documents.lock() = Some((served.generation(), documents.clone()));
        documents
    }
}

impl Document {
    /// The document of these items, and the items as slices of it.
    fn new(items: &[Bytes]) -> (Self, Vec<Bytes>) {
        const HEAD: &[u8] = br#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":["#;
        const TAIL: &[u8] = br#"]}"#;
        let commas = items.len().saturating_sub(1);
        let len = items.iter().map(Bytes::len).sum::<usize>() + commas;
        let mut json = Vec::with_capacity(HEAD.len() + len + TAIL.len());
        json.extend_from_slice(HEAD);
        let mut places = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                json.push(b',');
            }
            places.push(json.len()..json.len() + item.len());
            json.extend_from_slice(item);
        }
        json.extend_from_slice(TAIL);
        let json = Bytes::from(json);
        let items = places.into_iter().map(|place| json.slice(place)).collect();
        let hash: String = Sha512::digest(&json).iter().map(|byte| format!("{byte:02X}")).collect();
        let etag = HeaderValue::try_from(format!("\"{hash}\""))
            .unwrap_or_else(|_| HeaderValue::from_static("\"\""));
        (Self { json, etag }, items)
    }
}

fn item(served: &Served, group: &Group) -> Value {
    let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": &*group.name}) };
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            if let Some(backend) = served.backend(&group.name, version) {
                return match &backend.documents().discovery {
                    Some(resources) if backend.is_discovered() => json!({
                        "version": &**version, "resources": resources, "freshness": "Current",
                    }),
                    _ => json!({"version": &**version, "freshness": "Stale"}),
                };
            }
            let group_version = GroupVersion::new(group.name.clone(), version.clone());
            let resources: Vec<Value> = served
                .catalog
                .group_version(&group.name, version)
                .map(|row| resource(row, &group_version))
                .collect();
            json!({"version": &**version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    json!({"metadata": metadata, "versions": versions})
}

fn resource(row: &Resource, group_version: &GroupVersion) -> Value {
    let mut entry = Map::new();
    entry.insert("resource".into(), (&*row.resource).into());
    // Of custom resources it is always complete.
    let enclosing = Some(group_version).filter(|_| row.routes == Routes::Installed);
    entry.insert("responseKind".into(), kind(&row.gvk, enclosing));
    entry.insert("scope".into(), row.scope.to_string().into());
    entry.insert("singularResource".into(), (&*row.singular).into());
    entry.insert("verbs".into(), words(&row.verbs));
    if !row.short_names.is_empty() {
        entry.insert("shortNames".into(), words(&row.short_names));
    }
    if !row.categories.is_empty() {
        entry.insert("categories".into(), words(&row.categories));
    }
    if !row.subresources.is_empty() {
        let subresources = row.subresources.iter().map(|sub| {
            json!({
                "subresource": sub.name.as_str(),
                "responseKind": kind(&sub.gvk, enclosing),
                "verbs": words(&sub.verbs),
            })
        });
        entry.insert("subresources".into(), subresources.collect());
    }
    Value::Object(entry)
}

/// A kind; its group and version are empty if they equal the enclosing ones.
fn kind(gvk: &GroupVersionKind, enclosing: Option<&GroupVersion>) -> Value {
    let (group, version) = match enclosing {
        Some(enclosing) if gvk.group_version() == *enclosing => ("", ""),
        _ => (&*gvk.group, &*gvk.version),
    };
    json!({"group": group, "version": version, "kind": &*gvk.kind})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregated_form_has_precedence_in_any_position() {
        let json = Some(Wanted { encoding: Encoding::Json, has_peers: true });
        for (accept, expected) in [
            ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", json),
            (
                "application/json,application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
                json,
            ),
            (
                "application/yaml;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
                Some(Wanted { encoding: Encoding::Yaml, has_peers: true }),
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json",
                Some(Wanted { encoding: Encoding::Json, has_peers: false }),
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
                None,
            ),
            ("application/json", None),
            ("", None),
        ] {
            assert_eq!(wants_aggregated(accept), expected, "{accept}");
        }
    }
}
