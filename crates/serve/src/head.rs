//! Which requests are refused before a handler sees them, as by Go's server.
//!
//! hyper has parsed the head. What is no head, it has answered itself: with a 400 without a text,
//! also where Go's server has another code (a `Transfer-Encoding` that does not end with `chunked`
//! is a 501 there). Of the others, these are refused by the rules of Go's `net/http` and `net/url`:
//!
//! | a request | answer |
//! |---|---|
//! | with two `Host`, or a `%` in the path that is no escape | 400 `400 Bad Request` |
//! | without `Host` (HTTP/1.1) | 400 `400 Bad Request: missing required Host header` |
//! | with other bytes in `Host` than hosts have | 400 `400 Bad Request: malformed Host header` |
//! | with another `Expect` than `100-continue` | 417 |
//! | with more than `chunked` in `Transfer-Encoding` | 501 `Unsupported transfer encoding` |
//!
//! The connection is closed after each. Over HTTP/2, the stream of a request whose path is invalid
//! is reset, and there is nothing else to check.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, Version, header};

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has two `Host`, or an invalid path.
    BadRequest,
    /// It has no `Host`.
    MissingHost,
    /// Its `Host` has bytes that hosts do not have.
    MalformedHost,
    /// Its `Expect` is not `100-continue`.
    Expectation,
    /// Its body has another encoding than `chunked`, or several.
    TransferEncoding,
}

impl Refusal {
    /// The answer, after which the connection is closed.
    pub(crate) fn answer(self) -> Response<Bytes> {
        let text = match self {
            Self::BadRequest => "400 Bad Request",
            Self::MissingHost => "400 Bad Request: missing required Host header",
            Self::MalformedHost => "400 Bad Request: malformed Host header",
            Self::Expectation => "",
            Self::TransferEncoding => "Unsupported transfer encoding",
        };
        let mut answer = Response::new(Bytes::from_static(text.as_bytes()));
        *answer.status_mut() = match self {
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::TransferEncoding => StatusCode::NOT_IMPLEMENTED,
            Self::BadRequest | Self::MissingHost | Self::MalformedHost => StatusCode::BAD_REQUEST,
        };
        let headers = answer.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if !text.is_empty() {
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            headers.insert(header::CONTENT_TYPE, plain);
        }
        answer
    }
}

/// Checks a request of HTTP/1.
///
/// # Errors
///
/// How it is refused.
pub(crate) fn check(
    method: &Method,
    uri: &Uri,
    version: Version,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    let mut encodings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let encoding = encodings.next().map_or(&b"chunked"[..], HeaderValue::as_bytes);
    // The body would be that encoding's, as it is, for whoever reads it.
    let is_known = encodings.next().is_none() && encoding.eq_ignore_ascii_case(b"chunked");
    if version >= Version::HTTP_11 && !is_known {
        return Err(Refusal::TransferEncoding);
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() || !is_valid_path(method, uri) {
        return Err(Refusal::BadRequest);
    }
    match host {
        None if version >= Version::HTTP_11 && method != Method::CONNECT => {
            return Err(Refusal::MissingHost);
        }
        Some(host) if !host.as_bytes().iter().copied().all(is_host_byte) => {
            return Err(Refusal::MalformedHost);
        }
        _ => {}
    }
    let expect = headers.get(header::EXPECT).map_or(&b""[..], HeaderValue::as_bytes);
    match expect.is_empty() || has_token(expect, b"100-continue") {
        true => Ok(()),
        false => Err(Refusal::Expectation),
    }
}

/// Whether Go's server takes the target of an HTTP/2 request.
pub(crate) fn is_valid_http2(method: &Method, uri: &Uri) -> bool {
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    !has_user && is_valid_path(method, uri)
}

/// Whether each `%` of the path begins an escape.
fn is_valid_path(method: &Method, uri: &Uri) -> bool {
    let mut escapes = uri.path().as_bytes().split(|byte| *byte == b'%').skip(1);
    method == Method::CONNECT
        || escapes.all(|rest| rest.len() > 1 && rest[..2].iter().all(u8::is_ascii_hexdigit))
}

/// Whether a `Host` may have this byte.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(&byte)
}

/// Whether a list of words, with spaces or commas between them, has this one.
fn has_token(list: &[u8], token: &[u8]) -> bool {
    let is_boundary = |byte: &u8| matches!(byte, b' ' | b',' | b'\t');
    list.split(is_boundary).any(|word| word.eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The refusal of a request with these headers.
    fn outcome(request: &str, version: Version, headers: &[(&str, &str)]) -> Option<Refusal> {
        let (method, target) = request.split_once(' ').unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = header::HeaderName::try_from(*name).unwrap();
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        check(&method.parse().unwrap(), &target.parse().unwrap(), version, &map).err()
    }

    #[test]
    fn a_body_is_chunked_or_has_no_encoding() {
        for (encodings, is_refused) in [
            (&[][..], false),
            (&["chunked"][..], false),
            (&["Chunked"], false),
            (&["gzip, chunked"], true),
            (&["chunked", "chunked"], true),
            (&["identity"], true),
            (&[""], true),
        ] {
            let mut headers = vec![("host", "a")];
            headers.extend(encodings.iter().map(|encoding| ("transfer-encoding", *encoding)));
            let found = outcome("POST /", Version::HTTP_11, &headers);
            let expected = is_refused.then_some(Refusal::TransferEncoding);
            assert_eq!(found, expected, "{encodings:?}");
        }
    }

    #[test]
    fn host_is_required_once_and_has_bytes_of_hosts() {
        for (request, headers, expected) in [
            ("GET /", &[][..], Some(Refusal::MissingHost)),
            ("GET http://a/", &[], Some(Refusal::MissingHost)),
            ("CONNECT a:1", &[], None),
            ("GET /", &[("host", "")], None),
            ("GET /", &[("host", "[::1]:80")], None),
            ("GET /", &[("host", "a"), ("host", "a")], Some(Refusal::BadRequest)),
            ("GET /", &[("host", "a b")], Some(Refusal::MalformedHost)),
            ("GET /", &[("host", "a/b")], Some(Refusal::MalformedHost)),
            ("GET /", &[("host", "a@b")], Some(Refusal::MalformedHost)),
            ("GET /", &[("host", "é")], Some(Refusal::MalformedHost)),
        ] {
            assert_eq!(
                outcome(request, Version::HTTP_11, headers),
                expected,
                "{request} {headers:?}"
            );
        }
        assert_eq!(outcome("GET /", Version::HTTP_10, &[]), None);
    }

    #[test]
    fn escapes_of_paths_and_expectations_are_checked() {
        let host = ("host", "a");
        for (target, expected) in [
            ("/%ff?%zz", None),
            ("/a%2fb", None),
            ("/%", Some(Refusal::BadRequest)),
            ("/%z", Some(Refusal::BadRequest)),
            ("/%zz", Some(Refusal::BadRequest)),
            ("/%a", Some(Refusal::BadRequest)),
            ("/%a/", Some(Refusal::BadRequest)),
        ] {
            let request = format!("GET {target}");
            assert_eq!(outcome(&request, Version::HTTP_11, &[host]), expected, "{target}");
        }
        for (expect, expected) in [
            ("100-Continue", None),
            ("a, 100-continue", None),
            ("", None),
            ("200-ok", Some(Refusal::Expectation)),
        ] {
            let headers = [host, ("expect", expect)];
            assert_eq!(outcome("GET /", Version::HTTP_11, &headers), expected, "{expect}");
        }
    }
}
