//! The documents over HTTP: made when they are asked for, kept while there is room and their rows
//! stay the same (spec: api-server §1.3).

use super::{Encoding, Key, V2_PROTOBUF_OLD_TYPE, V2_PROTOBUF_TYPE, V2Part, backend, row};
use crate::backend::{Backend, Generation, Served};
use crate::body::Body;
use crate::negotiate::{accept_header, clauses};
use crate::query::Query;
use crate::respond::{self, Style};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use parking_lot::Mutex;
use setpoint_object::time::Timestamp;
use sha2::{Digest as _, Sha512};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;

const JSON: &str = "application/json";
/// How long a document may be kept that is asked for by its hash: it never changes.
const KEPT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The documents that are kept, in bytes and in sum; what was used longest ago goes first and is
/// made again when it is asked for.
///
/// 16 MiB: the documents of the built-in kinds take 6 MiB, those of some thirty large definitions
/// as much. Clients read them now and then, and most have them already.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// How much of a document is made before other tasks get their turn, in bytes: a millisecond's work
/// or so.
const SLICE_BYTES: usize = 64 << 10;

/// The documents that were asked for, as far as they are still what the catalog says.
#[derive(Debug)]
pub(crate) struct Documents {
    newest: Mutex<Option<Arc<Site>>>,
    kept: Mutex<Kept>,
    /// Held while a document is made: one at a time, and what many ask for is made once.
    turn: Semaphore,
}
impl Default for Documents {
    fn default() -> Self {
        Self { newest: Mutex::default(), kept: Mutex::default(), turn: Semaphore::new(1) }
    }
}

/// What one catalog and its backends have documents of.
#[derive(Debug)]
struct Site {
    generation: Generation,
    /// ETags of the documents of v3, by key.
    etags: BTreeMap<String, String>,
    v2_etag: String,
    index: Bytes,
}
impl Site {
    fn of(served: &Served) -> Self {
        let etags: BTreeMap<String, String> = super::v3_keys_of(&served.groups)
            .into_iter()
            .filter_map(|key| {
                let rows: Vec<_> = match Key::parse(&key) {
                    Some(Key::GroupVersion(group, version)) => {
                        if let Some(backend) = served.backend(group, version) {
                            // One without a document is not in the index.
                            let (_, etag) = backend.documents().v3.as_ref()?;
                            return Some((key, etag.clone()));
                        }
                        served.catalog.group_version(group, version).cloned().collect()
                    }
                    _ => Vec::new(),
                };
                let etag = super::etag(&key, &rows);
                Some((key, etag))
            })
            .collect();
        let mut hash = Sha512::new();
        etags.values().for_each(|etag| hash.update(etag));
        for backend in served.backends.iter() {
            hash.update(backend.group_version().to_string());
            hash.update(backend.documents().v2.as_ref().map_or("", |swagger| &swagger.etag));
        }
        let index = super::index_of(etags.iter().map(|(key, etag)| (&**key, &**etag)));
        let v2_etag = super::hex(hash);
        Self { generation: served.generation(), etags, v2_etag, index }
    }
}

/// What is kept of which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    V3,
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
/// Documents and parts of documents, [`KEPT_BYTES_MAX`] in sum.
#[derive(Debug, Default)]
struct Kept {
    /// By form and key; with the ETag, and when it was used last.
    contents: BTreeMap<(Form, String), (String, u64, Content)>,
    bytes: usize,
    n_uses: u64,
    /// The v2 document as a whole, for as long as somebody is being sent it.
    whole: BTreeMap<Encoding, (String, Weak<Vec<u8>>)>,
}
impl Kept {
    fn get(&mut self, form: Form, key: &str, etag: &str) -> Option<Content> {
        self.n_uses += 1;
        let (known, used, content) = self.contents.get_mut(&(form, key.to_owned()))?;
        if known != etag {
            return None;
        }
        *used = self.n_uses;
        Some(content.clone())
    }
    fn put(&mut self, form: Form, key: &str, etag: &str, content: Content) {
        if content.len() > KEPT_BYTES_MAX {
            return;
        }
        self.bytes += content.len();
        let entry = (etag.to_owned(), self.n_uses, content);
        if let Some((_, _, old)) = self.contents.insert((form, key.to_owned()), entry) {
            self.bytes -= old.len();
        }
        while self.bytes > KEPT_BYTES_MAX {
            let oldest = self.contents.iter().min_by_key(|(_, (_, used, _))| *used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { return };
            if let Some((_, _, old)) = self.contents.remove(&oldest) {
                self.bytes -= old.len();
            }
        }
    }
}
struct Owner(Arc<Vec<u8>>);
impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Lets other tasks run whenever a slice of work is done.
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
    /// Answers a GET of a path below `/openapi/`: `v2`, `v3` or `v3/…`. Dropping it leaves nothing
    /// half made.
    pub(crate) async fn respond(
        &self,
        served: &Served,
        path: &str,
        query: &Query,
        headers: &HeaderMap,
        style: Style,
        now: Timestamp,
    ) -> Response<Body> {
        let site = self.site(served);
        match path.split_once('/') {
            None if path == "v2" => self.v2(&site, served, headers, style).await,
            None if path == "v3" => {
                let index = site.index.clone();
                respond::with_body(StatusCode::OK, "text/plain; charset=utf-8", style, index)
            }
            Some(("v3", key)) => match site.etags.get(key) {
                Some(etag) => {
                    let asked = Asked { served, key, etag, query, headers, style, now };
                    self.v3(asked).await
                }
                None => respond::empty(StatusCode::NOT_FOUND),
            },
            _ => respond::page_not_found(),
        }
    }

    fn site(&self, served: &Served) -> Arc<Site> {
        if let Some(site) = &*self.newest.lock()
            && site.generation == served.generation()
        {
            return site.clone();
        }
        let site = Arc::new(Site::of(served));
        *self.newest.lock() = Some(site.clone());
        site
    }

    async fn v3_document(&self, served: &Served, key: &str, etag: &str) -> Bytes {
        let known = || match self.kept.lock().get(Form::V3, key, etag) {
            Some(Content::Document(json)) => Some(json),
            _ => None,
        };
        if let Some(json) = known() {
            return json;
        }
        // Never closed: without a turn it would be made twice, no more.
        let _turn = self.turn.acquire().await;
        if let Some(json) = known() {
            return json;
        }
        let Some(parsed) = Key::parse(key) else { return Bytes::new() };
        let rows = match parsed {
            Key::GroupVersion(group, version) => {
                row::of_group_version(&served.catalog, group, version)
            }
            _ => Vec::new(),
        };
        let (mut out, mut slices) = (Vec::new(), Slices::default());
        for mut piece in super::v3_pieces(parsed, &rows) {
            let len = piece.len();
            out.append(&mut piece);
            slices.worked(len).await;
        }
        out.shrink_to_fit();
        let json = Bytes::from(out);
        self.kept.lock().put(Form::V3, key, etag, Content::Document(json.clone()));
        json
    }

    async fn v2_document(&self, site: &Site, served: &Served, encoding: Encoding) -> Bytes {
        let whole = || {
            let kept = self.kept.lock();
            let (etag, whole) = kept.whole.get(&encoding)?;
            whole.upgrade().filter(|_| *etag == site.v2_etag)
        };
        let shared = |whole: Arc<Vec<u8>>| Bytes::from_owner(Owner(whole));
        if let Some(whole) = whole() {
            return shared(whole);
        }
        // Never closed: without a turn it would be made twice, no more.
        let _turn = self.turn.acquire().await;
        if let Some(whole) = whole() {
            return shared(whole);
        }
        let form = Form::V2(encoding);
        let (mut parts, mut roots) = (Vec::new(), BTreeSet::new());
        let mut slices = Slices::default();
        for (key, etag) in &site.etags {
            let Some(Key::GroupVersion(group, version)) = Key::parse(key) else { continue };
            if served.backend(group, version).is_some() {
                continue;
            }
            let rows = row::of_group_version(&served.catalog, group, version);
            roots.extend(super::roots(&rows));
            let steps = super::v2_part(&rows, encoding);
            parts.push(self.part(form, key, etag, steps, &mut slices).await);
        }
        let roots: Vec<&'static str> = roots.into_iter().collect();
        let steps = super::v2_shared(roots.clone(), encoding);
        parts.push(self.part(form, "", &roots.join(","), steps, &mut slices).await);
        let mut names = backend::Names::new(served, &roots);
        for known in served.backends.iter() {
            let Some(swagger) = &known.documents().v2 else { continue };
            let (key, merged) = (known.group_version().to_string(), names.merge(swagger));
            let etag = merged.etag();
            parts.push(self.part(form, &key, &etag, merged.part(encoding), &mut slices).await);
        }
        let len = parts.iter().map(|part| part.len() + 1).sum::<usize>() + SLICE_BYTES;
        let mut out = Vec::with_capacity(len);
        for mut piece in super::v2_whole(parts, encoding) {
            // Copying is quick, making is not.
            slices.worked(piece.len() / 16).await;
            out.append(&mut piece);
        }
        let out = Arc::new(out);
        let whole = (site.v2_etag.clone(), Arc::downgrade(&out));
        self.kept.lock().whole.insert(encoding, whole);
        shared(out)
    }

    /// A part of the v2 document: the one that is kept, or what the last of these steps gives.
    async fn part(
        &self,
        form: Form,
        key: &str,
        etag: &str,
        steps: impl Iterator<Item = Option<V2Part>> + Send,
        slices: &mut Slices,
    ) -> Arc<V2Part> {
        if let Some(Content::Part(part)) = self.kept.lock().get(form, key, etag) {
            return part;
        }
        let mut made = V2Part::default();
        for step in steps {
            // Of what a step adds nothing is known here: a definition, or a path with its
            // operations, is some kilobytes.
            slices.worked(SLICE_BYTES / 16).await;
            made = step.unwrap_or(made);
        }
        let part = Arc::new(made);
        self.kept.lock().put(form, key, etag, Content::Part(part.clone()));
        part
    }
}

/// The encoding of the best clause that names a served one; no clause at all means JSON.
fn encoding(headers: &HeaderMap, protobuf: &[&str]) -> Option<Encoding> {
    let accept = accept_header(headers);
    if accept.trim().is_empty() {
        return Some(Encoding::Json);
    }
    clauses(&accept).iter().find_map(|clause| match clause.media_type() {
        ("*", "*") | ("application", "*" | "json") => Some(Encoding::Json),
        ("application", sub) if protobuf.contains(&sub) => Some(Encoding::Protobuf),
        _ => None,
    })
}

impl Documents {
    async fn v2(
        &self,
        site: &Site,
        served: &Served,
        headers: &HeaderMap,
        style: Style,
    ) -> Response<Body> {
        let subtypes = [V2_PROTOBUF_TYPE, V2_PROTOBUF_OLD_TYPE]
            .map(|ty| ty.trim_start_matches("application/"));
        let Some(encoding) = encoding(headers, &subtypes) else {
            return respond::empty(StatusCode::NOT_ACCEPTABLE);
        };
        let mut response = if knows(headers, &site.v2_etag) {
            respond::empty(StatusCode::NOT_MODIFIED)
        } else {
            let body = self.v2_document(site, served, encoding).await;
            let media_type = match encoding {
                Encoding::Json => JSON,
                Encoding::Protobuf => V2_PROTOBUF_TYPE,
            };
            respond::with_body(StatusCode::OK, media_type, style, body)
        };
        set_etag(response.headers_mut(), &site.v2_etag);
        vary(response.headers_mut());
        response
    }

    async fn v3(&self, asked: Asked<'_>) -> Response<Body> {
        let Asked { served, key, etag, query, headers, style, now } = asked;
        if encoding(headers, &[]).is_none() {
            return respond::empty(StatusCode::NOT_ACCEPTABLE);
        }
        if let Some(backend) = asked_of(served, key) {
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
        let mut response = if knows(headers, etag) {
            respond::empty(StatusCode::NOT_MODIFIED)
        } else {
            let json = self.v3_document(served, key, etag).await;
            respond::with_body(StatusCode::OK, JSON, style, json)
        };
        set_etag(response.headers_mut(), etag);
        vary(response.headers_mut());
        if !hash.is_empty() {
            let headers = response.headers_mut();
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
            if let Ok(date) = HeaderValue::try_from(http_date(now + KEPT)) {
                headers.insert(header::EXPIRES, date);
            }
        }
        response
    }
}

/// The backend whose document has this key.
fn asked_of<'a>(served: &'a Served, key: &str) -> Option<&'a Backend> {
    match Key::parse(key)? {
        Key::GroupVersion(group, version) => served.backend(group, version).map(|known| &**known),
        _ => None,
    }
}

/// The document of a backend, whatever hash was asked for.
fn of_backend(backend: &Backend, headers: &HeaderMap, style: Style) -> Response<Body> {
    if !backend.is_available() {
        return respond::service_unavailable();
    }
    let Some((json, etag)) = &backend.documents().v3 else {
        return respond::empty(StatusCode::NOT_FOUND);
    };
    let mut response = if knows(headers, etag) {
        respond::empty(StatusCode::NOT_MODIFIED)
    } else {
        respond::with_body(StatusCode::OK, JSON, style, json.clone())
    };
    set_etag(response.headers_mut(), etag);
    vary(response.headers_mut());
    response
}

/// A request for a document of v3 that there is.
struct Asked<'a> {
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

/// Whether the client has this very document; the weak form does not count.
fn knows(headers: &HeaderMap, etag: &str) -> bool {
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|value| value.trim().strip_prefix('"').and_then(|v| v.strip_suffix('"')) == Some(etag))
}

fn set_etag(headers: &mut HeaderMap, etag: &str) {
    if let Ok(value) = HeaderValue::try_from(format!("\"{etag}\"")) {
        headers.insert(header::ETAG, value);
    }
}

/// A moment as HTTP headers write it: `Fri, 20 Nov 2026 09:00:00 GMT`.
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
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }
    async fn get(
        documents: &Documents,
        path: &str,
        query: &str,
        headers: &HeaderMap,
    ) -> Response<Body> {
        let (served, query) = (Served::default(), Query::parse(query));
        let style = Style { pretty: false, gzip: false };
        let now = Timestamp::from_secs(1_763_629_200);
        documents.respond(&served, path, &query, headers, style, now).await
    }
    fn text(response: &Response<Body>, name: header::HeaderName) -> &str {
        response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[test]
    fn what_was_used_longest_ago_goes_when_there_is_no_room() {
        let mut kept = Kept::default();
        let third = Bytes::from(vec![b' '; KEPT_BYTES_MAX / 3]);
        for key in ["a", "b", "c"] {
            kept.put(Form::V3, key, "1", Content::Document(third.clone()));
        }
        assert!(kept.get(Form::V3, "a", "1").is_some());
        assert!(kept.get(Form::V3, "b", "2").is_none(), "another document");
        kept.put(Form::V3, "d", "1", Content::Document(third.clone()));
        let has = |kept: &mut Kept, key| kept.get(Form::V3, key, "1").is_some();
        assert_eq!(["a", "b", "c", "d"].map(|key| has(&mut kept, key)), [true, false, true, true]);
        let whole = Bytes::from(vec![b' '; KEPT_BYTES_MAX + 1]);
        kept.put(Form::V3, "e", "1", Content::Document(whole));
        // It would take the place of everything, and stay itself no longer.
        assert!(!has(&mut kept, "e") && has(&mut kept, "d"));
        assert_eq!(
            kept.bytes,
            kept.contents.values().map(|(_, _, content)| content.len()).sum::<usize>()
        );
    }

    #[test]
    fn http_dates() {
        assert_eq!(http_date(Timestamp::from_secs(0)), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(Timestamp::from_secs(1_763_629_200)), "Thu, 20 Nov 2025 09:00:00 GMT");
    }

    #[tokio::test]
    async fn v2_is_json_or_protobuf_by_accept_and_known_by_its_etag() {
        let documents = Documents::default();
        let plain = get(&documents, "v2", "", &HeaderMap::new()).await;
        assert_eq!((plain.status(), text(&plain, header::CONTENT_TYPE)), (StatusCode::OK, JSON));
        for accept in [V2_PROTOBUF_TYPE, V2_PROTOBUF_OLD_TYPE] {
            let answer = get(&documents, "v2", "", &headers(&[(header::ACCEPT, accept)])).await;
            assert_eq!(text(&answer, header::CONTENT_TYPE), V2_PROTOBUF_TYPE);
            assert_eq!(text(&answer, header::ETAG), text(&plain, header::ETAG));
        }
        let known = headers(&[(header::IF_NONE_MATCH, text(&plain, header::ETAG))]);
        assert_eq!(get(&documents, "v2", "", &known).await.status(), StatusCode::NOT_MODIFIED);
        let weak = format!("W/{}", text(&plain, header::ETAG));
        let weak = headers(&[(header::IF_NONE_MATCH, weak.as_str())]);
        assert_eq!(get(&documents, "v2", "", &weak).await.status(), StatusCode::OK);
        let yaml = headers(&[(header::ACCEPT, "application/yaml")]);
        let refused = get(&documents, "v2", "", &yaml).await;
        assert_eq!(refused.status(), StatusCode::NOT_ACCEPTABLE);
        assert_eq!(refused.body().as_bytes(), Some(&b""[..]));
    }

    #[tokio::test]
    async fn v3_documents_are_kept_by_their_hash_and_moved_to_it() {
        let documents = Documents::default();
        let index = get(&documents, "v3", "", &HeaderMap::new()).await;
        assert_eq!(text(&index, header::CONTENT_TYPE), "text/plain; charset=utf-8");
        assert_eq!(text(&index, header::ETAG), "");
        let index: serde_json::Value =
            serde_json::from_slice(index.body().as_bytes().unwrap()).unwrap();
        let url = index["paths"]["apis"]["serverRelativeURL"].as_str().unwrap();
        let (path, query) = url.strip_prefix("/openapi/").unwrap().split_once('?').unwrap();
        let kept = get(&documents, path, query, &HeaderMap::new()).await;
        assert_eq!(kept.status(), StatusCode::OK);
        assert_eq!(text(&kept, header::CACHE_CONTROL), "public, immutable");
        assert_eq!(text(&kept, header::EXPIRES), "Fri, 20 Nov 2026 09:00:00 GMT");
        let moved = get(&documents, path, "hash=OLD", &HeaderMap::new()).await;
        assert_eq!(moved.status(), StatusCode::MOVED_PERMANENTLY);
        assert_eq!(text(&moved, header::LOCATION), url);
        let plain = get(&documents, path, "", &HeaderMap::new()).await;
        assert_eq!(text(&plain, header::CACHE_CONTROL), "");
        assert_eq!(format!("hash={}", text(&plain, header::ETAG).trim_matches('"')), query);
        let absent = get(&documents, "v3/apis/nope/v1", "", &HeaderMap::new()).await;
        assert_eq!(absent.status(), StatusCode::NOT_FOUND);
        assert_eq!(absent.body().as_bytes(), Some(&b""[..]));
    }
}
