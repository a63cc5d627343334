//! Writing answers: JSON, YAML or protobuf, indented or not, compressed or not; a `Status` for every failure.

use crate::body::Body;
use crate::go;
use crate::negotiate::{Accepted, Encoding, Endpoint, accept_header, negotiate};
use crate::query::Query;
use crate::scan;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_schema::protobuf;
use std::io::Write as _;

/// Bodies longer than this many bytes are compressed for clients that take gzip: 128 KiB, as the reference server's.
const GZIP_BYTES_MIN: usize = 128 * 1024;

/// What of a request decides how its answer is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// Indent JSON.
    pub(crate) pretty: bool,
    /// The client takes gzip.
    pub(crate) gzip: bool,
}

impl Style {
    /// From the headers and the query. `?pretty=false` wins over everything, then `?pretty=true`, then the user agents of
    /// people at a terminal or a browser.
    pub(crate) fn of(headers: &HeaderMap, query: &Query) -> Self {
        let agent =
            headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let pretty = match query.get("pretty") {
            Some("true" | "1") => true,
            Some("false" | "0") => false,
            _ => ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix)),
        };
        // Only the bare token counts: `gzip;q=0.5` does not.
        let gzip = headers
            .get_all(header::ACCEPT_ENCODING)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .flat_map(|v| v.split(','))
            .any(|token| token.trim() == "gzip");
        Self { pretty, gzip }
    }
}

/// Answers with a JSON document in the accepted form.
pub(crate) fn document(
    code: StatusCode,
    accepted: Accepted,
    style: Style,
    json: Bytes,
) -> Response<Body> {
    let mut media_type = accepted.encoding.media_type();
    let body = match accepted.encoding {
        Encoding::Json if style.pretty || accepted.pretty => {
            let mut text = scan::indent(&json);
            text.push(b'\n');
            Bytes::from(text)
        }
        Encoding::Json => with_newline(&json),
        Encoding::Yaml => match to_yaml(&json) {
            Ok(text) => text.into(),
            Err(error) => return status(&ApiError::internal(error), Accepted::default(), style),
        },
        Encoding::Protobuf => match protobuf::object(&json) {
            Ok(bytes) => bytes.into(),
            Err(error) => {
                media_type = not_in_protobuf(&error);
                with_newline(&json)
            }
        },
    };
    with_body(code, media_type, style, body)
}

/// Answers with a list in protobuf, put together from its metadata and items. `whole` makes the same list in JSON.
pub(crate) fn protobuf_list<'a>(
    style: Style,
    (api_version, kind, metadata): (&str, &str, &str),
    items: impl DoubleEndedIterator<Item = &'a [u8]>,
    whole: impl FnOnce() -> Bytes,
) -> Response<Body> {
    let (media_type, body) = match protobuf::list(api_version, kind, metadata, items) {
        Ok(bytes) => (Encoding::Protobuf.media_type(), bytes.into()),
        Err(error) => (not_in_protobuf(&error), with_newline(&whole())),
    };
    with_body(StatusCode::OK, media_type, style, body)
}

/// What has no form in protobuf, which objects at rest do have, is answered in JSON: the write it may tell of is done.
fn not_in_protobuf(error: &protobuf::EncodeError) -> &'static str {
    tracing::error!(%error, "answer in JSON what has no form in protobuf");
    Encoding::Json.media_type()
}

fn with_newline(json: &[u8]) -> Bytes {
    let mut text = Vec::with_capacity(json.len() + 1);
    text.extend_from_slice(json);
    text.push(b'\n');
    text.into()
}

/// Answers with a body of a media type, compressed when it is long and the client takes it.
pub(crate) fn with_body(
    code: StatusCode,
    media_type: &'static str,
    style: Style,
    body: Bytes,
) -> Response<Body> {
    let compressed = (style.gzip && body.len() > GZIP_BYTES_MIN).then(|| gzip(&body)).flatten();
    let zipped = compressed.is_some();
    let mut response = Response::new(Body::once(compressed.unwrap_or(body)));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    if zipped {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// Compresses; `None` when that fails, which in memory it does not.
fn gzip(body: &[u8]) -> Option<Bytes> {
    // Level 4 of 9, as the reference server: most of the saving at a fraction of the time.
    let mut encoder = flate2::write::GzEncoder::new(
        Vec::with_capacity(body.len() / 6),
        flate2::Compression::new(4),
    );
    encoder.write_all(body).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// JSON as YAML.
fn to_yaml(json: &[u8]) -> Result<String, String> {
    let value: Value = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    serde_saphyr::to_string(&value).map_err(|error| error.to_string())
}

/// Answers with a failure's `Status`, in the form that the client accepts, or as indented JSON when it accepts none.
pub(crate) fn error(error: &ApiError, headers: &HeaderMap, style: Style) -> Response<Body> {
    match negotiate(&accept_header(headers), Endpoint::Status) {
        Ok(accepted) => status(error, accepted, style),
        Err(_) => status(error, Accepted { pretty: true, ..Accepted::default() }, style),
    }
}

/// Answers with a failure's `Status`.
fn status(error: &ApiError, accepted: Accepted, style: Style) -> Response<Body> {
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = document(code, accepted, style, error.to_json().into());
    let retry = error.0.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, retry.into());
    }
    response
}

/// Answers with plain text.
pub(crate) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::once(text));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// As [`text`], with the header that keeps browsers from guessing.
pub(crate) fn plain(code: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = text(code, body);
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// `404 page not found`: nothing is served there.
pub(crate) fn page_not_found() -> Response<Body> {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// No body.
pub(crate) fn empty(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}

/// Longest total of warning texts in characters, and of one warning when that is exceeded.
const WARNINGS_CHARS_MAX: usize = 4096;
/// See [`WARNINGS_CHARS_MAX`].
const WARNING_CHARS_MAX: usize = 256;

/// Adds one `Warning` header per text. Texts with control characters are dropped; when all together exceed their budget each
/// is cut short and what still does not fit is dropped.
pub(crate) fn add_warnings(headers: &mut HeaderMap, texts: &[String]) {
    let clean = || texts.iter().filter(|text| !text.chars().any(char::is_control));
    let total: usize = clean().map(|text| text.chars().count()).sum();
    let (each_max, mut left) = if total > WARNINGS_CHARS_MAX {
        (WARNING_CHARS_MAX, WARNINGS_CHARS_MAX)
    } else {
        (usize::MAX, usize::MAX)
    };
    for text in clean() {
        let cut: String = text.chars().take(each_max).collect();
        let length = cut.chars().count();
        if length > left {
            continue;
        }
        left -= length;
        let line = format!("299 - {}", go::quote(&cut));
        if let Ok(value) = HeaderValue::from_bytes(line.as_bytes()) {
            headers.append(header::WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(headers: &[(&'static str, &'static str)], query: &str) -> Style {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        Style::of(&map, &Query::parse(query))
    }

    #[test]
    fn json_is_pretty_for_people() {
        assert!(style(&[("user-agent", "curl/8.5.0")], "").pretty);
        assert!(!style(&[("user-agent", "curl/8.5.0")], "pretty=false").pretty);
        assert!(style(&[("user-agent", "kubectl/v1.32")], "pretty=1").pretty);
        assert!(!style(&[("user-agent", "kubectl/v1.32")], "").pretty);
    }

    #[test]
    fn only_long_bodies_are_compressed_and_only_for_the_bare_token() {
        let long = Bytes::from(vec![b' '; GZIP_BYTES_MIN + 1]);
        let encoding = |style: Style, body: &Bytes| {
            with_body(StatusCode::OK, "application/json", style, body.clone())
                .headers()
                .contains_key(header::CONTENT_ENCODING)
        };
        let takes = style(&[("accept-encoding", "deflate, gzip")], "");
        assert!(encoding(takes, &long));
        assert!(!encoding(takes, &long.slice(1..)));
        assert!(!encoding(style(&[("accept-encoding", "gzip;q=0.5")], ""), &long));
    }

    #[test]
    fn warnings_are_quoted_and_kept_within_their_budget() {
        let mut headers = HeaderMap::new();
        add_warnings(&mut headers, &["unknown field \"a\"".into(), "bad\u{1}".into()]);
        let lines: Vec<_> = headers.get_all(header::WARNING).iter().collect();
        assert_eq!(lines, [r#"299 - "unknown field \"a\"""#]);
        let mut headers = HeaderMap::new();
        add_warnings(&mut headers, &vec!["x".repeat(300); 20]);
        assert_eq!(headers.get_all(header::WARNING).iter().count(), 16);
    }

    #[test]
    fn error_nobody_can_take_is_indented_json() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/html"));
        let response = error(&ApiError::unauthorized(), &headers, style(&[], ""));
        assert_eq!(response.status(), 401);
        let body = std::str::from_utf8(response.body().as_bytes().unwrap()).unwrap();
        assert!(body.starts_with("{\n  \"kind\": \"Status\",\n"), "{body}");
    }
}
