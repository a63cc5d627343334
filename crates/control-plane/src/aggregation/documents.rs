//! Discovery and OpenAPI documents of a server (spec: extension §1.4).

use super::check::request;
use super::remote::{Remote, Route};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use setpoint_apiserver::{Backend, BackendBuilder, BackendError, DOCUMENT_BYTES_MAX, Identity};
use setpoint_object::error::chain;
use setpoint_object::{GroupVersion, users};
use setpoint_webhook_client::Lane;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a server has for discovery, and for OpenAPI, which it may have to build first.
const DISCOVERY_MAX: Duration = Duration::from_secs(5);
const OPEN_API_MAX: Duration = Duration::from_secs(60);
/// Maximum length of a document of all groups, of which one version is kept.
const ALL_BYTES_MAX: usize = 4 * DOCUMENT_BYTES_MAX;

/// Both forms of aggregated discovery, and the legacy one.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// What is known of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Documents {
    discovery: Option<Discovery>,
    /// The OpenAPI v2 document with its ETag.
    v2: Option<(Bytes, Option<HeaderValue>)>,
    /// Keys and URLs of OpenAPI v3 documents.
    v3: Arc<BTreeMap<String, String>>,
}

#[derive(Debug, Clone)]
enum Discovery {
    /// An `APIVersionDiscovery`.
    Aggregated(Bytes),
    /// An `APIResourceList`.
    Legacy(Bytes),
}

/// An answer with status 200, or none.
struct Answer {
    head: http::response::Parts,
    body: Bytes,
}

impl Documents {
    /// Fetches what has changed of discovery, and of the OpenAPI documents if these are wanted, by
    /// whether discovery was fetched. What cannot be fetched stays as it was. Returns whether
    /// discovery was fetched.
    pub(super) async fn refresh(
        &mut self,
        remote: &Remote,
        route: &Route,
        wants_open_api: impl FnOnce(bool) -> bool,
    ) -> bool {
        let discovery = discovery(remote, route).await;
        let is_found = discovery.is_some();
        if is_found {
            self.discovery = discovery;
        }
        if !wants_open_api(is_found) {
            return is_found;
        }
        let user = Identity::new("system:aggregator", []);
        let known = self.v2.as_ref().and_then(|(_, etag)| etag.clone());
        let v2 = fetch(remote, route, "/openapi/v2", &user, None, known, OPEN_API_MAX);
        if let Some(Answer { head, body }) = v2.await {
            self.v2 = Some((body, head.headers.get(header::ETAG).cloned()));
        }
        let v3 = fetch(remote, route, "/openapi/v3", &user, None, None, OPEN_API_MAX);
        if let Some(Answer { body, .. }) = v3.await {
            // Parses it on another thread, as the other documents.
            let index = tokio::task::spawn_blocking(move || index(&body)).await;
            if let Ok(Some(index)) = index {
                self.v3 = Arc::new(index);
            }
        }
        is_found
    }

    /// The backend with these documents, and whether discovery is one of them. Those that cannot be
    /// used are left out. Parses them on another thread.
    pub(super) async fn backend(&self, remote: &Arc<Remote>) -> Option<(Backend, bool)> {
        let (documents, remote) = (self.clone(), remote.clone());
        let built = tokio::task::spawn_blocking(move || documents.build(&remote)).await;
        built.ok().flatten()
    }

    fn build(&self, remote: &Arc<Remote>) -> Option<(Backend, bool)> {
        let group_version = &remote.group_version;
        let error = match self.combined(remote.builder(), group_version) {
            Ok(backend) => return Some((backend, self.discovery.is_some())),
            Err(error) => error,
        };
        tracing::warn!(error = chain(&error), %group_version, "use a server's documents");
        let used = self.usable(|one| one.combined(remote.builder(), group_version).is_ok());
        let backend = used.combined(remote.builder(), group_version).ok()?;
        Some((backend, used.discovery.is_some()))
    }

    /// The documents that can be used alone: one of the wrong form is no reason to do without the
    /// others.
    fn usable(&self, is_usable: impl Fn(&Self) -> bool) -> Self {
        let alone = [
            Self { discovery: self.discovery.clone(), ..Self::default() },
            Self { v2: self.v2.clone(), ..Self::default() },
            Self { v3: self.v3.clone(), ..Self::default() },
        ];
        let [discovery, v2, v3] =
            alone.map(|one| if is_usable(&one) { one } else { Self::default() });
        Self { discovery: discovery.discovery, v2: v2.v2, v3: v3.v3 }
    }

    fn combined(
        &self,
        builder: BackendBuilder,
        group_version: &GroupVersion,
    ) -> Result<Backend, BackendError> {
        let mut builder = builder.open_api_v3_index(BTreeMap::clone(&self.v3));
        builder = match &self.discovery {
            Some(Discovery::Aggregated(document)) => builder.discovery(document.clone()),
            Some(Discovery::Legacy(document)) => builder.resources(document.clone()),
            None => builder,
        };
        if let Some((document, _)) = &self.v2 {
            builder = builder.open_api_v2(used_part(document, group_version));
        }
        builder.build()
    }
}

/// An OpenAPI v2 document. Of one that is too long, only what a group version uses.
fn used_part(document: &Bytes, group_version: &GroupVersion) -> Bytes {
    type Members<'a> = BTreeMap<String, &'a RawValue>;
    const REFERENCE: &str = "\"#/definitions/";
    if document.len() <= DOCUMENT_BYTES_MAX {
        return document.clone();
    }
    let Ok(mut members) = serde_json::from_slice::<Members<'_>>(document) else {
        return document.clone();
    };
    let section = |members: &Members<'_>, name: &str| -> BTreeMap<String, Box<RawValue>> {
        let section = members.get(name);
        section.and_then(|text| serde_json::from_str(text.get()).ok()).unwrap_or_default()
    };
    let root = format!("/apis/{group_version}/");
    let mut paths = section(&members, "paths");
    paths.retain(|path, _| path.starts_with(&root));
    let mut definitions = section(&members, "definitions");
    let references = |text: &str| -> Vec<String> {
        let parts = text.split(REFERENCE).skip(1);
        parts.filter_map(|part| Some(part.split_once('"')?.0.to_owned())).collect()
    };
    let mut open: Vec<String> = paths.values().flat_map(|text| references(text.get())).collect();
    let mut used = BTreeMap::new();
    while let Some(name) = open.pop() {
        if let Some(text) = definitions.remove(&name) {
            open.extend(references(text.get()));
            used.insert(name, text);
        }
    }
    let raw = |value: &BTreeMap<String, Box<RawValue>>| serde_json::value::to_raw_value(value);
    let (Ok(paths), Ok(used)) = (raw(&paths), raw(&used)) else { return document.clone() };
    members.insert("paths".to_owned(), &paths);
    members.insert("definitions".to_owned(), &used);
    serde_json::to_vec(&members).map_or_else(|_| document.clone(), Bytes::from)
}

/// Keys and URLs of an index of OpenAPI v3 documents. One that could not be served is not parsed.
fn index(document: &Bytes) -> Option<BTreeMap<String, String>> {
    if document.len() > DOCUMENT_BYTES_MAX {
        return None;
    }
    let index: Index = serde_json::from_slice(document).ok()?;
    Some(index.paths.into_iter().map(|(key, entry)| (key, entry.server_relative_url)).collect())
}

/// The index of OpenAPI v3 documents.
#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    paths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "serverRelativeURL", default)]
    server_relative_url: String,
}

#[derive(Deserialize)]
struct Groups<'a> {
    #[serde(borrow, default)]
    items: Vec<Group<'a>>,
}

#[derive(Deserialize)]
struct Group<'a> {
    #[serde(default)]
    metadata: Value,
    #[serde(borrow, default)]
    versions: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    version: String,
}

/// The description of the group version: in aggregated form, if the server has it.
async fn discovery(remote: &Remote, route: &Route) -> Option<Discovery> {
    let user = Identity::new("system:kube-aggregator", [users::MASTERS]);
    let whole = fetch(remote, route, "/apis", &user, Some(DISCOVERY), None, DISCOVERY_MAX).await;
    let is_aggregated = |answer: &Answer| {
        let kind = answer.head.headers.get(header::CONTENT_TYPE);
        kind.and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.contains("APIGroupDiscoveryList"))
    };
    if let Some(answer) = whole.filter(is_aggregated) {
        // Absent: the server has another opinion of what it serves.
        let group_version = remote.group_version.clone();
        let found = tokio::task::spawn_blocking(move || {
            let groups: Groups<'_> = serde_json::from_slice(&answer.body).ok()?;
            let named = |group: &&Group<'_>| group.metadata["name"] == *group_version.group;
            let group = groups.items.iter().find(named)?;
            let version = group.versions.iter().find(|text| {
                let version = serde_json::from_str::<Version>(text.get());
                version.is_ok_and(|found| *found.version == *group_version.version)
            })?;
            Some(Discovery::Aggregated(Bytes::copy_from_slice(version.get().as_bytes())))
        });
        return found.await.ok().flatten();
    }
    let path = format!("/apis/{}", remote.group_version);
    let answer = fetch(remote, route, &path, &user, None, None, DISCOVERY_MAX).await?;
    Some(Discovery::Legacy(answer.body))
}

/// GETs a document; `None` if it is unchanged, not there, too long or late.
async fn fetch(
    remote: &Remote,
    route: &Route,
    path: &str,
    user: &Identity,
    accept: Option<&str>,
    known: Option<HeaderValue>,
    most: Duration,
) -> Option<Answer> {
    let fetched = async {
        let address = remote.address(route).await.map_err(|error| format!("{error:?}"))?;
        let mut request = request(path, user, accept);
        if let Some(known) = known {
            request.headers_mut().insert(header::IF_NONE_MATCH, known);
        }
        let sent = remote.send(route, &address, request, Lane::Shared).await;
        let (head, body) = sent.map_err(|error| format!("{error:?}"))?.into_parts();
        match head.status {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED => return Ok(None),
            code => return Err(code.to_string()),
        }
        let body = Limited::new(body, ALL_BYTES_MAX).collect().await;
        let body = body.map_err(|error| chain(&*error))?.to_bytes();
        Ok::<_, String>(Some(Answer { head, body }))
    };
    let fetched = tokio::time::timeout(most, fetched).await;
    match fetched.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
        Ok(answer) => answer,
        Err(error) => {
            let group_version = &remote.group_version;
            tracing::debug!(error, %group_version, path, "fetch a server's document");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use setpoint_apiserver::{Body, RequestBody};

    #[test]
    fn a_document_of_the_wrong_form_is_left_out_and_the_others_are_used() {
        async fn none(_: http::Request<RequestBody>) -> http::Response<Body> {
            http::Response::new(Body::once("{}"))
        }
        let group_version = GroupVersion::new("ex.io", "v1");
        let fits = |documents: &Documents| {
            let builder = Backend::builder("ex.io", "v1", Arc::new(none));
            documents.combined(builder, &group_version).is_ok()
        };
        let resources = |text: &'static str| Some(Discovery::Legacy(text.into()));
        let good = Documents {
            discovery: resources(r#"{"resources": []}"#),
            v2: Some((r#"{"paths": {"/apis/ex.io/v1/": {}}}"#.into(), None)),
            v3: Arc::new(BTreeMap::from([("apis/ex.io/v1".to_owned(), "/x".to_owned())])),
        };
        assert!(fits(&good));
        for wrong in ["{}", "404 page not found"] {
            let one = Documents { discovery: resources(wrong), ..good.clone() };
            let used = one.usable(fits);
            assert!(!fits(&one) && fits(&used), "{wrong}");
            assert!(used.discovery.is_none() && used.v2.is_some() && !used.v3.is_empty());
            let two = Documents { v2: Some((wrong.into(), None)), ..good.clone() };
            let used = two.usable(fits);
            assert!(used.discovery.is_some() && !used.v3.is_empty(), "{wrong}");
        }
    }

    #[test]
    fn an_index_has_urls_and_a_bound() {
        let entry = |text: &str| json!({"serverRelativeURL": text});
        let of = |key: &str| json!({"paths": {key: entry("/x"), "b": {}}}).to_string().into();
        let short = index(&of("a")).unwrap();
        assert_eq!((&*short["a"], &*short["b"]), ("/x", ""));
        assert_eq!(index(&of(&"a".repeat(DOCUMENT_BYTES_MAX))), None);
        assert_eq!(index(&Bytes::from("[")), None);
    }

    #[test]
    fn only_what_is_used_remains_of_a_long_document() {
        let long = "x".repeat(DOCUMENT_BYTES_MAX);
        let reference = |name: &str| json!({"$ref": format!("#/definitions/{name}")});
        let document = json!({"swagger": "2.0",
            "paths": {"/apis/ex.io/v1/things": {"get": reference("A")}, "/apis/ex.io/v2/things": reference("C")},
            "definitions": {"A": {"b": reference("B"), "a": reference("A")}, "B": {}, "C": {"description": long}}});
        let gv = GroupVersion::new("ex.io", "v1");
        let used = used_part(&document.to_string().into(), &gv);
        let used: Value = serde_json::from_slice(&used).unwrap();
        assert_eq!(used["swagger"], "2.0");
        let names =
            |member: &str| used[member].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(
            (names("paths"), names("definitions")),
            (vec!["/apis/ex.io/v1/things".to_owned()], vec!["A".to_owned(), "B".to_owned()])
        );
        let short = Bytes::from("{}");
        assert_eq!(used_part(&short, &gv), short);
    }
}
