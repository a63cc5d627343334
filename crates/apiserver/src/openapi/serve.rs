//! The documents over HTTP: built when first asked for, kept for as long as the catalog does not change (spec: api-server §1.3).

use super::{V2_PROTOBUF_OLD_TYPE, V2_PROTOBUF_TYPE};
use crate::body::Body;
use crate::negotiate::{accept_header, clauses};
use crate::query::Query;
use crate::respond::{self, Style};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use parking_lot::Mutex;
use setpoint_object::time::Timestamp;
use setpoint_registry::Catalog;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const JSON: &str = "application/json";
/// How long a document may be kept that is asked for by its hash: it never changes.
const KEPT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The documents of the newest catalog.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    newest: Mutex<Option<Arc<Made>>>,
}

/// What was made of one catalog so far.
#[derive(Debug)]
struct Made {
    generation: u64,
    v2: OnceLock<Document>,
    v2_protobuf: OnceLock<Bytes>,
    index: OnceLock<Bytes>,
    v3: BTreeMap<String, OnceLock<Option<Document>>>,
}
#[derive(Debug, Clone)]
struct Document {
    json: Bytes,
    etag: String,
}
impl Document {
    fn new(json: Bytes) -> Self {
        let etag = super::etag(&json);
        Self { json, etag }
    }
}
impl Made {
    fn v2(&self, catalog: &Catalog) -> &Document {
        self.v2.get_or_init(|| Document::new(super::v2(catalog)))
    }
    fn v3(&self, catalog: &Catalog, key: &str) -> Option<&Document> {
        let make = || super::v3_document(catalog, key).map(Document::new);
        self.v3.get(key)?.get_or_init(make).as_ref()
    }
    /// Hashes every document, so makes them all.
    fn index(&self, catalog: &Catalog) -> Bytes {
        let make = || {
            let hashes =
                self.v3.keys().filter_map(|key| Some((&**key, &*self.v3(catalog, key)?.etag)));
            super::index_of(hashes)
        };
        self.index.get_or_init(make).clone()
    }
}

/// How v2 is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Json,
    Protobuf,
}

impl Documents {
    /// Answers a GET of a path below `/openapi/`: `v2`, `v3` or `v3/…`.
    pub(crate) fn respond(
        &self,
        catalog: &Catalog,
        path: &str,
        query: &Query,
        headers: &HeaderMap,
        style: Style,
        now: Timestamp,
    ) -> Response<Body> {
        let made = self.of(catalog);
        match path.split_once('/') {
            None if path == "v2" => v2(&made, catalog, headers, style),
            None if path == "v3" => {
                let index = made.index(catalog);
                respond::with_body(StatusCode::OK, "text/plain; charset=utf-8", style, index)
            }
            Some(("v3", key)) => match made.v3(catalog, key) {
                Some(document) => v3(document, key, query, headers, style, now),
                None => respond::empty(StatusCode::NOT_FOUND),
            },
            _ => respond::page_not_found(),
        }
    }

    fn of(&self, catalog: &Catalog) -> Arc<Made> {
        let mut newest = self.newest.lock();
        if let Some(made) = newest.as_ref().filter(|made| made.generation == catalog.generation) {
            return made.clone();
        }
        let keys = super::v3_keys(catalog);
        let made = Arc::new(Made {
            generation: catalog.generation,
            v2: OnceLock::new(),
            v2_protobuf: OnceLock::new(),
            index: OnceLock::new(),
            v3: keys.into_iter().map(|key| (key, OnceLock::new())).collect(),
        });
        *newest = Some(made.clone());
        made
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

fn v2(made: &Made, catalog: &Catalog, headers: &HeaderMap, style: Style) -> Response<Body> {
    let subtypes =
        [V2_PROTOBUF_TYPE, V2_PROTOBUF_OLD_TYPE].map(|ty| ty.trim_start_matches("application/"));
    let Some(encoding) = encoding(headers, &subtypes) else {
        return respond::empty(StatusCode::NOT_ACCEPTABLE);
    };
    let document = made.v2(catalog);
    let mut response = if knows(headers, &document.etag) {
        respond::empty(StatusCode::NOT_MODIFIED)
    } else {
        match encoding {
            Encoding::Json => {
                respond::with_body(StatusCode::OK, JSON, style, document.json.clone())
            }
            Encoding::Protobuf => {
                let body = made.v2_protobuf.get_or_init(|| super::v2_protobuf(catalog));
                respond::with_body(StatusCode::OK, V2_PROTOBUF_TYPE, style, body.clone())
            }
        }
    };
    let headers = response.headers_mut();
    set_etag(headers, &document.etag);
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.append(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn v3(
    document: &Document,
    key: &str,
    query: &Query,
    headers: &HeaderMap,
    style: Style,
    now: Timestamp,
) -> Response<Body> {
    if encoding(headers, &[]).is_none() {
        return respond::empty(StatusCode::NOT_ACCEPTABLE);
    }
    let asked = query.text("hash");
    if !asked.is_empty() && asked != document.etag {
        let mut response = respond::empty(StatusCode::MOVED_PERMANENTLY);
        let location = format!("/openapi/v3/{key}?hash={}", document.etag);
        if let Ok(location) = HeaderValue::try_from(location) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        return response;
    }
    let mut response = if knows(headers, &document.etag) {
        respond::empty(StatusCode::NOT_MODIFIED)
    } else {
        respond::with_body(StatusCode::OK, JSON, style, document.json.clone())
    };
    let headers = response.headers_mut();
    set_etag(headers, &document.etag);
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.append(header::VARY, HeaderValue::from_static("Accept"));
    if !asked.is_empty() {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        if let Ok(date) = HeaderValue::try_from(http_date(now + KEPT)) {
            headers.insert(header::EXPIRES, date);
        }
    }
    response
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
    fn get(documents: &Documents, path: &str, query: &str, headers: &HeaderMap) -> Response<Body> {
        let (catalog, query) = (Catalog::default(), Query::parse(query));
        let style = Style { pretty: false, gzip: false };
        let now = Timestamp::from_secs(1_763_629_200);
        documents.respond(&catalog, path, &query, headers, style, now)
    }
    fn text(response: &Response<Body>, name: header::HeaderName) -> &str {
        response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[test]
    fn http_dates() {
        assert_eq!(http_date(Timestamp::from_secs(0)), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(Timestamp::from_secs(1_763_629_200)), "Thu, 20 Nov 2025 09:00:00 GMT");
    }

    #[test]
    fn v2_is_json_or_protobuf_by_accept_and_known_by_its_etag() {
        let documents = Documents::default();
        let plain = get(&documents, "v2", "", &HeaderMap::new());
        assert_eq!((plain.status(), text(&plain, header::CONTENT_TYPE)), (StatusCode::OK, JSON));
        for accept in [V2_PROTOBUF_TYPE, V2_PROTOBUF_OLD_TYPE] {
            let answer = get(&documents, "v2", "", &headers(&[(header::ACCEPT, accept)]));
            assert_eq!(text(&answer, header::CONTENT_TYPE), V2_PROTOBUF_TYPE);
            assert_eq!(text(&answer, header::ETAG), text(&plain, header::ETAG));
        }
        let known = headers(&[(header::IF_NONE_MATCH, text(&plain, header::ETAG))]);
        assert_eq!(get(&documents, "v2", "", &known).status(), StatusCode::NOT_MODIFIED);
        let weak = format!("W/{}", text(&plain, header::ETAG));
        let weak = headers(&[(header::IF_NONE_MATCH, weak.as_str())]);
        assert_eq!(get(&documents, "v2", "", &weak).status(), StatusCode::OK);
        let yaml = headers(&[(header::ACCEPT, "application/yaml")]);
        let refused = get(&documents, "v2", "", &yaml);
        assert_eq!(refused.status(), StatusCode::NOT_ACCEPTABLE);
        assert_eq!(refused.body().as_bytes(), Some(&b""[..]));
    }

    #[test]
    fn v3_documents_are_kept_by_their_hash_and_moved_to_it() {
        let documents = Documents::default();
        let index = get(&documents, "v3", "", &HeaderMap::new());
        assert_eq!(text(&index, header::CONTENT_TYPE), "text/plain; charset=utf-8");
        assert_eq!(text(&index, header::ETAG), "");
        let index: serde_json::Value =
            serde_json::from_slice(index.body().as_bytes().unwrap()).unwrap();
        let url = index["paths"]["apis"]["serverRelativeURL"].as_str().unwrap();
        let (path, query) = url.strip_prefix("/openapi/").unwrap().split_once('?').unwrap();
        let kept = get(&documents, path, query, &HeaderMap::new());
        assert_eq!(kept.status(), StatusCode::OK);
        assert_eq!(text(&kept, header::CACHE_CONTROL), "public, immutable");
        assert_eq!(text(&kept, header::EXPIRES), "Fri, 20 Nov 2026 09:00:00 GMT");
        let moved = get(&documents, path, "hash=OLD", &HeaderMap::new());
        assert_eq!(moved.status(), StatusCode::MOVED_PERMANENTLY);
        assert_eq!(text(&moved, header::LOCATION), url);
        let plain = get(&documents, path, "", &HeaderMap::new());
        assert_eq!(text(&plain, header::CACHE_CONTROL), "");
        assert_eq!(format!("hash={}", text(&plain, header::ETAG).trim_matches('"')), query);
        let absent = get(&documents, "v3/apis/nope/v1", "", &HeaderMap::new());
        assert_eq!(absent.status(), StatusCode::NOT_FOUND);
        assert_eq!(absent.body().as_bytes(), Some(&b""[..]));
    }
}
