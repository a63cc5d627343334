//! Conditions and ranges of requests for documents (RFC 9110, sections 13 and 14), as Go's
//! `ServeContent` evaluates them.
//!
//! Documents have an ETag and no date, so conditions with dates do not apply. More than one range
//! is the whole document.

use crate::body::Body;
use crate::respond::{self, Style};
use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use std::ops::Range;

/// A list of ranges that is longer than 16 KiB is not read: it is the whole document.
const RANGE_BYTES_MAX: usize = 16 << 10;

/// The answer to a condition that keeps the document from being sent.
pub(super) fn unsent(headers: &HeaderMap, etag: &str) -> Option<Response<Body>> {
    let condition = |name: HeaderName| {
        let text = headers.get(name).and_then(|value| value.to_str().ok());
        text.filter(|text| !text.is_empty())
    };
    if let Some(wanted) = condition(header::IF_MATCH)
        && !tags(wanted).any(|tag| tag.is("*") || tag.is_strongly(etag))
    {
        return Some(respond::empty(StatusCode::PRECONDITION_FAILED));
    }
    if let Some(known) = condition(header::IF_NONE_MATCH)
        && tags(known).any(|tag| tag.is("*") || tag.is_weakly(etag))
    {
        return Some(respond::empty(StatusCode::NOT_MODIFIED));
    }
    None
}

/// Answers with a document, or with the requested part of it.
pub(super) fn sent(
    headers: &HeaderMap,
    etag: &str,
    media_type: &'static str,
    style: Style,
    body: Bytes,
) -> Response<Body> {
    let text = |name: HeaderName| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    };
    let if_range = text(header::IF_RANGE);
    let is_current = if_range.is_empty() || tags(if_range).any(|tag| tag.is_strongly(etag));
    let range = if is_current { text(header::RANGE) } else { "" };
    let size = body.len();
    let mut response = match requested(range, size) {
        Ok(None) => respond::with_body(StatusCode::OK, media_type, style, body),
        Ok(Some(part)) => {
            let plain = Style { gzip: false, ..style };
            let content_range = format!("bytes {}-{}/{size}", part.start, part.end - 1);
            let part = body.slice(part);
            let mut response =
                respond::with_body(StatusCode::PARTIAL_CONTENT, media_type, plain, part);
            set(&mut response, header::CONTENT_RANGE, &content_range);
            response
        }
        Err(fault) => {
            let text = match fault {
                Fault::Malformed => "invalid range\n",
                Fault::Outside => "invalid range: failed to overlap\n",
            };
            let mut response = respond::plain(StatusCode::RANGE_NOT_SATISFIABLE, text);
            if fault == Fault::Outside {
                set(&mut response, header::CONTENT_RANGE, &format!("bytes */{size}"));
            }
            return response;
        }
    };
    set(&mut response, header::ACCEPT_RANGES, "bytes");
    response
}

fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value) {
        response.headers_mut().insert(name, value);
    }
}

/// A tag in a list, as written.
struct Tag<'a>(&'a str);

impl Tag<'_> {
    fn is(&self, text: &str) -> bool {
        self.0 == text
    }

    fn is_strongly(&self, etag: &str) -> bool {
        self.0.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) == Some(etag)
    }

    fn is_weakly(&self, etag: &str) -> bool {
        Tag(self.0.strip_prefix("W/").unwrap_or(self.0)).is_strongly(etag)
    }
}

/// The tags of a list. Those of documents have no commas.
fn tags(list: &str) -> impl Iterator<Item = Tag<'_>> {
    list.split(',').map(|tag| Tag(tag.trim()))
}

/// Why a range cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It is no range of bytes.
    Malformed,
    /// It begins behind the end.
    Outside,
}

/// The requested part of a document of `size` bytes; `None`: all of it.
fn requested(header: &str, size: usize) -> Result<Option<Range<usize>>, Fault> {
    if header.is_empty() || header.len() > RANGE_BYTES_MAX {
        return Ok(None);
    }
    let list = header.strip_prefix("bytes=").ok_or(Fault::Malformed)?;
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse::<usize>().map_err(|_| Fault::Malformed),
        false => Err(Fault::Malformed),
    };
    let (mut parts, mut is_outside) = (Vec::new(), false);
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (start, end) = part.split_once('-').ok_or(Fault::Malformed)?;
        let part = match (start.trim(), end.trim()) {
            ("", last) => size - number(last)?.min(size)..size,
            (start, _) if number(start)? >= size => {
                is_outside = true;
                continue;
            }
            (start, "") => number(start)?..size,
            (start, end) => {
                let (start, end) = (number(start)?, number(end)?);
                if start > end {
                    return Err(Fault::Malformed);
                }
                start..end.saturating_add(1).min(size)
            }
        };
        parts.push(part);
    }
    match parts.as_slice() {
        [] if is_outside => Err(Fault::Outside),
        [part] if !part.is_empty() => Ok(Some(part.clone())),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_by_go() {
        for (header, expected) in [
            ("", Ok(None)),
            ("bytes=0-9", Ok(Some(0..10))),
            ("bytes= 5 - ", Ok(Some(5..100))),
            ("bytes=-5", Ok(Some(95..100))),
            ("bytes=-500", Ok(Some(0..100))),
            ("bytes=90-500", Ok(Some(90..100))),
            ("bytes=0-1,3-4", Ok(None)),
            ("bytes=0-1,100-", Ok(Some(0..2))),
            ("bytes=", Ok(None)),
            ("bytes=-0", Ok(None)),
            ("bytes=100-", Err(Fault::Outside)),
            ("bytes=5-4", Err(Fault::Malformed)),
            ("bytes=5", Err(Fault::Malformed)),
            ("bytes=a-b", Err(Fault::Malformed)),
            ("bytes=--5", Err(Fault::Malformed)),
            ("bytes=-", Err(Fault::Malformed)),
            ("bytes=99999999999999999999-", Err(Fault::Malformed)),
            ("bytes=90-18446744073709551615", Ok(Some(90..100))),
            ("foo", Err(Fault::Malformed)),
        ] {
            assert_eq!(requested(header, 100), expected, "{header}");
        }
    }

    fn code(headers: &[(&'static str, &'static str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_static(value));
        }
        let style = Style { pretty: false, gzip: true };
        let body = || Bytes::from_static(b"0123456789");
        let response = unsent(&map, "tag");
        response.unwrap_or_else(|| sent(&map, "tag", "text/plain", style, body())).status().as_u16()
    }

    #[test]
    fn conditions_decide_what_is_sent() {
        for (headers, expected) in [
            (&[][..], 200),
            (&[("if-none-match", "*")], 304),
            (&[("if-none-match", "\"tag\"")], 304),
            (&[("if-none-match", "\"a\", W/\"tag\"")], 304),
            (&[("if-none-match", "tag")], 200),
            (&[("if-match", "*")], 200),
            (&[("if-match", "\"tag\"")], 200),
            (&[("if-match", "W/\"tag\"")], 412),
            (&[("if-match", "\"a\""), ("if-none-match", "*")], 412),
            (&[("range", "bytes=0-1")], 206),
            (&[("range", "bytes=10-")], 416),
            (&[("range", "foo")], 416),
            (&[("range", "bytes=0-1"), ("if-range", "\"tag\"")], 206),
            (&[("range", "bytes=0-1"), ("if-range", "\"a\"")], 200),
            (&[("range", "foo"), ("if-none-match", "*")], 304),
        ] {
            assert_eq!(code(headers), expected, "{headers:?}");
        }
    }
}
