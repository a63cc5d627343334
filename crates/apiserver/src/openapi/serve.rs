//! The documents over HTTP: built on request and cached while there is room and their rows are
//! unchanged (spec: api-server §1.3).

use super::row::Row;
use super::{
    Encoding, Key, OpenApiDescriptions, Texts, V2_PROTOBUF_OLD_TYPE, V2_PROTOBUF_TYPE, V2Part,
    V3_PROTOBUF_OLD_TYPE, V3_PROTOBUF_TYPE, backend, content, protobuf_v3, row,
};
use crate::backend::{Backend, Generation, Served};
use crate::body::Body;
use crate::negotiate::{accept_header, clauses};
use crate::query::Query;
use crate::respond::{self, Style};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use parking_lot::Mutex;
use setpoint_object::bounded::{self, LruCache};
use setpoint_object::time::Timestamp;
use setpoint_registry::{Feature, FeatureGates, Release};
use sha2::{Digest as _, Sha512};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;

const JSON: &str = "application/json";
/// Maximum age of a document that is requested by its hash, which never changes.
const IMMUTABLE_MAX_AGE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Maximum total size of cached documents, in bytes. The least recently used is dropped first and
/// built again on request.
///
/// 16 MiB: the documents of the built-in kinds take 6 MiB, those of some thirty large definitions
/// as much. Clients read them rarely, and most have them already.
const CACHE_BYTES_MAX: usize = 16 << 20;
/// Bytes of a document that are built before the task yields: about a millisecond of work.
const SLICE_BYTES: usize = 64 << 10;

/// The requested documents, as far as they match the present catalog.
#[derive(Debug)]
pub(crate) struct Documents {
    newest: Mutex<Option<Arc<Snapshot>>>,
    cache: Mutex<DocumentCache>,
    /// Held while a document is built: one at a time, and concurrent requests for it build it once.
    building: Semaphore,
    /// Whether built-in kinds are served in CBOR. The documents of custom ones never say so.
    cbor: bool,
    /// Of built-in types.
    descriptions: Option<Arc<OpenApiDescriptions>>,
    /// Whether their schemas have the known values of texts.
    has_values: bool,
    /// The release whose API the server has.
    release: Release,
}

/// The ETags and index of one catalog and its backends.
#[derive(Debug)]
struct Snapshot {
    generation: Generation,
    /// ETags of the v3 documents, by key.
    etags: BTreeMap<String, String>,
    v2_etag: String,
    index: Bytes,
}
impl Snapshot {
    fn of(served: &Served, cbor: bool, texts: Texts<'_>) -> Self {
        let etags: BTreeMap<String, String> = super::v3_keys_of(&served.groups)
            .into_iter()
            .filter_map(|key| {
                let rows: Vec<_> = match Key::parse(&key) {
                    Some(Key::GroupVersion(group, version)) => {
                        if let Some(backend) = served.backend(group, version) {
                            // A backend without a document is not in the index, and those at
                            // its handler come below.
                            let (_, etag) = backend.documents().v3.as_ref()?;
                            return Some((key, etag.clone()));
                        }
                        served.catalog.group_version(group, version).cloned().collect()
                    }
                    _ => Vec::new(),
                };
                let etag = super::etag(&key, &rows, cbor, texts);
                Some((key, etag))
            })
            .collect();
        let mut hash = Sha512::new();
        etags.values().for_each(|etag| hash.update(etag));
        for backend in served.backends.iter() {
            hash.update(backend.group_version().to_string());
            hash.update(backend.documents().v2.as_ref().map_or("", |swagger| &swagger.etag));
        }
        let is_there = |key: &str| {
            let found = served.backends.document(&served.catalog, key);
            move |backend: &Backend| {
                found.is_some_and(|found| found.group_version() == backend.group_version())
            }
        };
        let of_handlers = served.backends.iter().flat_map(|backend| {
            let index = backend.documents().v3_index.iter();
            index.filter(move |(key, _)| is_there(key)(backend))
        });
        let index = super::index_of(
            etags.iter().map(|(key, etag)| (&**key, &**etag)),
            of_handlers.map(|(key, url)| (&**key, &**url)),
        );
        let v2_etag = super::hex(hash);
        Self { generation: served.generation(), etags, v2_etag, index }
    }
}

/// The form of a cached entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Form {
    V3(Encoding),
    V2(Encoding),
}
#[derive(Debug, Clone)]
enum Content {
    Document(Bytes),
    Part(Arc<V2Part>),
}
impl Content {
    fn len(&self) -> usize {
        match self {
            Self::Document(json) => json.len(),
            Self::Part(part) => part.len(),
        }
    }
}
/// Documents and parts of documents, at most [`CACHE_BYTES_MAX`] in total.
#[derive(Debug)]
struct DocumentCache {
    /// By form and key; with the ETag. Bounded in bytes.
    contents: LruCache<(Form, String), (String, Content)>,
    bytes: usize,
    /// The whole v2 document, while it is being sent to a client.
    whole: BTreeMap<Encoding, (String, Weak<Vec<u8>>)>,
}
impl Default for DocumentCache {
    fn default() -> Self {
        Self { contents: bounded::lru(usize::MAX), bytes: 0, whole: BTreeMap::new() }
    }
}
impl DocumentCache {
    fn get(&mut self, form: Form, key: &str, etag: &str) -> Option<Content> {
        let key = (form, key.to_owned());
        // One with another ETag is not used.
        self.contents.peek(&key).filter(|(known, _)| known == etag)?;
        self.contents.get(&key).map(|(_, content)| content.clone())
    }
    fn put(&mut self, form: Form, key: &str, etag: &str, content: Content) {
        if content.len() > CACHE_BYTES_MAX {
            return;
        }
        self.bytes += content.len();
        let entry = (etag.to_owned(), content);
        if let Some((_, old)) = self.contents.put((form, key.to_owned()), entry) {
            self.bytes -= old.len();
        }
        while self.bytes > CACHE_BYTES_MAX {
            let Some((_, (_, old))) = self.contents.pop_lru() else { return };
            self.bytes -= old.len();
        }
    }
}
struct Owner(Arc<Vec<u8>>);
impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Yields after each slice of work.
#[derive(Debug, Default)]
struct Slices {
    bytes: usize,
}
impl Slices {
    async fn worked(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= SLICE_BYTES {
            self.bytes = 0;
            tokio::task::yield_now().await;
        }
    }
}

impl Documents {
    /// With features of the server, and descriptions of built-in types.
    pub(crate) fn new(
        features: FeatureGates,
        descriptions: Option<Arc<OpenApiDescriptions>>,
    ) -> Self {
        Self {
            newest: Mutex::default(),
            cache: Mutex::default(),
            building: Semaphore::new(1),
            cbor: features.is_on(Feature::CBORServingAndStorage),
            descriptions,
            has_values: features.is_on(Feature::OpenAPIEnums),
            release: features.emulation().release(),
        }
    }

    fn texts(&self) -> Texts<'_> {
        let Self { has_values, release, .. } = *self;
        Texts { descriptions: self.descriptions.as_deref(), has_values, release }
    }

    /// The served resources of one group version.
    fn rows<'a>(&self, served: &'a Served, group: &'a str, version: &'a str) -> Vec<Row<'a>> {
        let mut rows = row::of_group_version(&served.catalog, group, version);
        rows.iter_mut().for_each(|row| row.cbor = self.cbor && !row.has_own_schema());
        rows
    }

    /// Answers a GET of a path below `/openapi/`: `v2`, `v3` or `v3/…`. Dropping the future has no
    /// effect.
    pub(crate) async fn respond(
        &self,
        served: &Served,
        path: &str,
        query: &Query,
        headers: &HeaderMap,
        style: Style,
        now: Timestamp,
    ) -> Response<Body> {
        let snapshot = self.snapshot(served);
        match path.split_once('/') {
            None if path == "v2" => self.v2(&snapshot, served, headers, style).await,
            None if path == "v3" => {
                let (index, media_type) = (snapshot.index.clone(), "text/plain; charset=utf-8");
                content::unsent(headers, "")
                    .unwrap_or_else(|| content::sent(headers, "", media_type, style, index))
            }
            Some(("v3", key)) => match snapshot.etags.get(key) {
                Some(etag) => {
                    let request = V3Request { served, key, etag, query, headers, style, now };
                    self.v3(request).await
                }
                None => respond::empty(StatusCode::NOT_FOUND),
            },
            _ => respond::page_not_found(),
        }
    }

    fn snapshot(&self, served: &Served) -> Arc<Snapshot> {
        if let Some(snapshot) = &*self.newest.lock()
            && snapshot.generation == served.generation()
        {
            return snapshot.clone();
        }
        let snapshot = Arc::new(Snapshot::of(served, self.cbor, self.texts()));
        *self.newest.lock() = Some(snapshot.clone());
        snapshot
    }

    async fn v3_document(&self, served: &Served, key: &str, etag: &str) -> Bytes {
        let cached = || match self.cache.lock().get(Form::V3(Encoding::Json), key, etag) {
            Some(Content::Document(json)) => Some(json),
            _ => None,
        };
        if let Some(json) = cached() {
            return json;
        }
        // Never closed. Without a permit, the document would only be built twice.
        let _permit = self.building.acquire().await;
        if let Some(json) = cached() {
            return json;
        }
        let Some(parsed) = Key::parse(key) else { return Bytes::new() };
        let rows = match parsed {
            Key::GroupVersion(group, version) => self.rows(served, group, version),
            _ => Vec::new(),
        };
        let (mut out, mut slices) = (Vec::new(), Slices::default());
        for mut piece in super::v3_pieces(parsed, &rows, self.texts()) {
            let len = piece.len();
            out.append(&mut piece);
            slices.worked(len).await;
        }
        out.shrink_to_fit();
        let json = Bytes::from(out);
        self.cache.lock().put(Form::V3(Encoding::Json), key, etag, Content::Document(json.clone()));
        json
    }

    /// A v3 document in protobuf, made from the one in JSON.
    async fn v3_protobuf(&self, key: &str, etag: &str, json: &[u8]) -> Bytes {
        let form = Form::V3(Encoding::Protobuf);
        let cached = || match self.cache.lock().get(form, key, etag) {
            Some(Content::Document(bytes)) => Some(bytes),
            _ => None,
        };
        if let Some(bytes) = cached() {
            return bytes;
        }
        // Never closed. Without a permit, the document would only be made twice.
        let _permit = self.building.acquire().await;
        if let Some(bytes) = cached() {
            return bytes;
        }
        let (mut document, mut slices) = (protobuf_v3::Document::default(), Slices::default());
        for piece in protobuf_v3::pieces(json) {
            document.add(piece);
            slices.worked(piece.len()).await;
        }
        let bytes = Bytes::from(document.into_bytes());
        self.cache.lock().put(form, key, etag, Content::Document(bytes.clone()));
        bytes
    }

    async fn v2_document(&self, snapshot: &Snapshot, served: &Served, encoding: Encoding) -> Bytes {
        let whole = || {
            let cache = self.cache.lock();
            let (etag, whole) = cache.whole.get(&encoding)?;
            whole.upgrade().filter(|_| *etag == snapshot.v2_etag)
        };
        let shared = |whole: Arc<Vec<u8>>| Bytes::from_owner(Owner(whole));
        if let Some(whole) = whole() {
            return shared(whole);
        }
        // Never closed. Without a permit, the document would only be built twice.
        let _permit = self.building.acquire().await;
        if let Some(whole) = whole() {
            return shared(whole);
        }
        let form = Form::V2(encoding);
        let (mut parts, mut roots) = (Vec::new(), BTreeSet::new());
        let mut slices = Slices::default();
        for (key, etag) in &snapshot.etags {
            let Some(Key::GroupVersion(group, version)) = Key::parse(key) else { continue };
            if served.backend(group, version).is_some() {
                continue;
            }
            let rows = self.rows(served, group, version);
            roots.extend(super::roots(&rows));
            let steps = super::v2_part(&rows, encoding, self.texts());
            parts.push(self.part(form, key, etag, steps, &mut slices).await);
        }
        let roots: Vec<&'static str> = roots.into_iter().collect();
        let groups = snapshot.etags.keys().filter_map(|key| match Key::parse(key) {
            Some(Key::Group(group)) => Some(group),
            _ => None,
        });
        let groups: Vec<&str> = groups.collect();
        let etag = format!("{} {}", roots.join(","), groups.join(","));
        let steps = super::v2_shared(&roots, &groups, encoding, self.texts());
        parts.push(self.part(form, "", &etag, steps, &mut slices).await);
        let mut names = backend::Names::new(served, &roots);
        for backend in served.backends.iter() {
            let Some(swagger) = &backend.documents().v2 else { continue };
            let (key, merged) = (backend.group_version().to_string(), names.merge(swagger));
            let etag = merged.etag();
            parts.push(self.part(form, &key, &etag, merged.part(encoding), &mut slices).await);
        }
        let len = parts.iter().map(|part| part.len() + 1).sum::<usize>() + SLICE_BYTES;
        let mut out = Vec::with_capacity(len);
        for mut piece in super::v2_whole(parts, encoding, self.release) {
            // Copying is faster than building.
            slices.worked(piece.len() / 16).await;
            out.append(&mut piece);
        }
        let out = Arc::new(out);
        let whole = (snapshot.v2_etag.clone(), Arc::downgrade(&out));
        self.cache.lock().whole.insert(encoding, whole);
        shared(out)
    }

    /// A part of the v2 document: the cached one, or the result of the last of these steps.
    async fn part(
        &self,
        form: Form,
        key: &str,
        etag: &str,
        steps: impl Iterator<Item = Option<V2Part>> + Send,
        slices: &mut Slices,
    ) -> Arc<V2Part> {
        if let Some(Content::Part(part)) = self.cache.lock().get(form, key, etag) {
            return part;
        }
        let mut made = V2Part::default();
        for step in steps {
            // The size of a step's result is unknown here: a definition, or a path with its
            // operations, has some kilobytes.
            slices.worked(SLICE_BYTES / 16).await;
            made = step.unwrap_or(made);
        }
        let part = Arc::new(made);
        self.cache.lock().put(form, key, etag, Content::Part(part.clone()));
        part
    }
}

/// The encoding of the best clause that names a served one; without any clause JSON.
fn encoding(headers: &HeaderMap, protobuf: &[&str]) -> Option<Encoding> {
    let accept = accept_header(headers);
    if accept.is_empty() {
        return Some(Encoding::Json);
    }
    let is_protobuf =
        |sub: &str| protobuf.iter().any(|ty| ty.strip_prefix("application/") == Some(sub));
    // Other than anywhere else, a subtype may follow a wildcard.
    clauses(&accept).iter().find_map(|clause| match clause.media_type() {
        ("*" | "application", "*" | "json") => Some(Encoding::Json),
        ("*" | "application", sub) if is_protobuf(sub) => Some(Encoding::Protobuf),
        _ => None,
    })
}

impl Documents {
    async fn v2(
        &self,
        snapshot: &Snapshot,
        served: &Served,
        headers: &HeaderMap,
        style: Style,
    ) -> Response<Body> {
        let types = [V2_PROTOBUF_TYPE, V2_PROTOBUF_OLD_TYPE];
        let Some(encoding) = encoding(headers, &types) else { return not_acceptable() };
        let etag = &snapshot.v2_etag;
        let response = match content::unsent(headers, etag) {
            Some(response) => response,
            None => {
                let body = self.v2_document(snapshot, served, encoding).await;
                let media_type = match encoding {
                    Encoding::Json => JSON,
                    Encoding::Protobuf => V2_PROTOBUF_TYPE,
                };
                content::sent(headers, etag, media_type, style, body)
            }
        };
        tagged(response, etag)
    }

    async fn v3(&self, request: V3Request<'_>) -> Response<Body> {
        let V3Request { served, key, etag, query, headers, style, now } = request;
        let backend = backend_of(served, key);
        // A backend has its document in JSON only.
        let types: &[&str] = match backend {
            Some(_) => &[],
            None => &[V3_PROTOBUF_TYPE, V3_PROTOBUF_OLD_TYPE],
        };
        let Some(encoding) = encoding(headers, types) else { return not_acceptable() };
        if let Some(backend) = backend {
            return of_backend(backend, headers, style);
        }
        let hash = query.text("hash");
        if !hash.is_empty() && hash != etag {
            let mut response = respond::empty(StatusCode::MOVED_PERMANENTLY);
            let location = format!("/openapi/v3/{key}?hash={etag}");
            if let Ok(location) = HeaderValue::try_from(location) {
                response.headers_mut().insert(header::LOCATION, location);
            }
            return response;
        }
        let response = match content::unsent(headers, etag) {
            Some(response) => response,
            None => {
                let json = self.v3_document(served, key, etag).await;
                let (media_type, body) = match encoding {
                    Encoding::Json => (JSON, json),
                    Encoding::Protobuf => {
                        (V3_PROTOBUF_TYPE, self.v3_protobuf(key, etag, &json).await)
                    }
                };
                content::sent(headers, etag, media_type, style, body)
            }
        };
        let mut response = tagged(response, etag);
        if !hash.is_empty() {
            let headers = response.headers_mut();
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
            if let Ok(date) = HeaderValue::try_from(http_date(now + IMMUTABLE_MAX_AGE)) {
                headers.insert(header::EXPIRES, date);
            }
        }
        response
    }
}

/// The backend with this key, if it has one.
fn backend_of<'a>(served: &'a Served, key: &str) -> Option<&'a Backend> {
    match Key::parse(key)? {
        Key::GroupVersion(group, version) => served.backend(group, version).map(|known| &**known),
        _ => None,
    }
}

/// The document of a backend, for any requested hash.
fn of_backend(backend: &Backend, headers: &HeaderMap, style: Style) -> Response<Body> {
    if !backend.is_available() {
        return respond::service_unavailable();
    }
    let Some((json, etag)) = &backend.documents().v3 else {
        return respond::empty(StatusCode::NOT_FOUND);
    };
    let response = content::unsent(headers, etag)
        .unwrap_or_else(|| content::sent(headers, etag, JSON, style, json.clone()));
    tagged(response, etag)
}

/// A request for an existing v3 document.
struct V3Request<'a> {
    served: &'a Served,
    key: &'a str,
    etag: &'a str,
    query: &'a Query,
    headers: &'a HeaderMap,
    style: Style,
    now: Timestamp,
}

fn vary(headers: &mut HeaderMap) {
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.append(header::VARY, HeaderValue::from_static("Accept"));
}

fn not_acceptable() -> Response<Body> {
    let mut response = respond::empty(StatusCode::NOT_ACCEPTABLE);
    vary(response.headers_mut());
    response
}

/// The response with the ETag of its document, unless it is an error, and with what it varies by.
fn tagged(mut response: Response<Body>, etag: &str) -> Response<Body> {
    let is_error = response.status() == StatusCode::RANGE_NOT_SATISFIABLE;
    if let (false, Ok(value)) = (is_error, HeaderValue::try_from(format!("\"{etag}\""))) {
        response.headers_mut().insert(header::ETAG, value);
    }
    vary(response.headers_mut());
    response
}

/// A time as HTTP headers write it: `Fri, 20 Nov 2026 09:00:00 GMT`.
fn http_date(moment: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // The epoch was a Thursday.
    let weekday = DAYS[usize::try_from(moment.0.as_secs() / 86_400 % 7).unwrap_or_default()];
    let text = moment.rfc3339();
    let (date, time) = text.trim_end_matches('Z').split_once('T').unwrap_or_default();
    let mut parts = date.split('-');
    let mut part = || parts.next().unwrap_or_default();
    let (year, month, day) = (part(), part(), part());
    let month = month.parse().ok().and_then(|number: usize| MONTHS.get(number.wrapping_sub(1)));
    format!("{weekday}, {day} {} {year} {time} GMT", month.unwrap_or(&"Jan"))
}

#[cfg(test)]
mod tests;
