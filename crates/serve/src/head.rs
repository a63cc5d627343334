//! The head of an HTTP/1 request, checked as Go's server does before a handler sees it.
//!
//! hyper is in parts stricter and in parts more lenient, and its refusals have no text. So heads
//! are checked first, by the rules of Go's `net/http`, `net/textproto` and `net/url`:
//!
//! | a head | answer |
//! |---|---|
//! | that is no head: request line, target, header line, two `Host`, a bad `Content-Length` | 400 `400 Bad Request` |
//! | without `Host` (HTTP/1.1) | 400 `400 Bad Request: missing required Host header` |
//! | with other bytes in `Host` than hosts have | 400 `400 Bad Request: malformed Host header` |
//! | with a space in the name of a header | 400 `400 Bad Request: invalid header name` |
//! | with a `Transfer-Encoding` other than one `chunked` | 501 `Unsupported transfer encoding` |
//! | of HTTP/2 or later | 505 |
//! | with another `Expect` than `100-continue` | 417 |
//! | of more than [`HEAD_BYTES_MAX`] and 4 KiB | 431 |
//!
//! The connection is closed after each. What Go accepts and hyper does not is rewritten: lines that
//! continue a header, bytes of a target that have to be escaped, later minor versions, and a header
//! that HTTP/1.0 ignores.

mod target;

use crate::limits::HEAD_BYTES_MAX;
use http::{Method, Uri};

/// Maximum bytes of a head that is refused at once when it is not complete: Go's server has the
/// limit of its buffer on top.
pub(crate) const HEAD_READ_MAX: usize = HEAD_BYTES_MAX as usize + 4096;

/// What follows a head on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes, and the next head.
    Length(u64),
    /// Chunks, and the next head.
    Chunked,
    /// The connection may be used for something else from here on.
    Opaque,
}

/// A head that passed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    /// What follows it.
    pub(crate) framing: Framing,
    /// Whether empty lines may follow its body, which old clients send after a POST.
    pub(crate) is_post: bool,
    /// The head that takes its place, if hyper would not read it in the same way.
    pub(crate) rewritten: Option<Vec<u8>>,
}

/// Why a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is no head of a request.
    BadRequest,
    /// It has no `Host`.
    MissingHost,
    /// Its `Host` has bytes that hosts do not have.
    MalformedHost,
    /// The name of a header has a space.
    HeaderName,
    /// Its `Transfer-Encoding` is not `chunked`.
    TransferEncoding,
    /// Its version is not HTTP/1.
    Version,
    /// Its `Expect` is not `100-continue`.
    Expectation,
    /// It is too long.
    TooLarge,
}

impl Refusal {
    /// The whole answer, after which the connection is closed.
    pub(crate) fn answer(self) -> String {
        let (status, text) = match self {
            Self::BadRequest => ("400 Bad Request", "400 Bad Request"),
            Self::MissingHost => return named("400 Bad Request: missing required Host header"),
            Self::MalformedHost => return named("400 Bad Request: malformed Host header"),
            Self::HeaderName => return named("400 Bad Request: invalid header name"),
            Self::Version => {
                return named("505 HTTP Version Not Supported: unsupported protocol version");
            }
            Self::TransferEncoding => ("501 Not Implemented", "Unsupported transfer encoding"),
            Self::TooLarge => {
                ("431 Request Header Fields Too Large", "431 Request Header Fields Too Large")
            }
            Self::Expectation => {
                return "HTTP/1.1 417 Expectation Failed\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
                    .to_owned();
            }
        };
        answer(status, text)
    }
}

/// An answer whose status line has its text, too.
fn named(text: &str) -> String {
    answer(text, text)
}

fn answer(status: &str, text: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n{text}"
    )
}

/// The end of a head, after its empty line. `from`: bytes that were searched before.
pub(crate) fn end(bytes: &[u8], from: usize) -> Option<usize> {
    // An end that was cut begins up to two bytes before.
    let mut at = from.saturating_sub(2);
    while let Some(n) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        at += n + 1;
        match bytes[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}

/// Checks the first line of a head that is not complete yet.
///
/// # Errors
///
/// It is no request line.
pub(crate) fn check_start(bytes: &[u8]) -> Result<(), Refusal> {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => RequestLine::parse(without_return(&bytes[..end])).map(|_| ()),
        None => Ok(()),
    }
}

/// Checks a complete head, with its empty line.
///
/// # Errors
///
/// How it is refused.
pub(crate) fn check(head: &[u8]) -> Result<Checked, Refusal> {
    let mut lines = head.split(|byte| *byte == b'\n').map(without_return);
    let line = RequestLine::parse(lines.next().unwrap_or_default())?;
    let headers = Headers::parse(lines)?;
    if headers.n_hosts > 1 {
        return Err(Refusal::BadRequest);
    }
    let is_11 = line.version >= (1, 1);
    let chunked = match headers.encodings.as_slice() {
        [] => false,
        // HTTP/1.0 has no such header.
        _ if !is_11 => false,
        [encoding] if encoding.eq_ignore_ascii_case(b"chunked") => true,
        _ => return Err(Refusal::TransferEncoding),
    };
    let length = headers.length()?;
    if chunked && headers.has_bad_trailer {
        return Err(Refusal::BadRequest);
    }
    if line.version.0 != 1 {
        return Err(Refusal::Version);
    }
    match headers.host {
        None if is_11 && line.method != b"CONNECT" => return Err(Refusal::MissingHost),
        Some(host) if !host.iter().copied().all(target::is_host_byte) => {
            return Err(Refusal::MalformedHost);
        }
        _ => {}
    }
    if headers.has_bad_name {
        return Err(Refusal::HeaderName);
    }
    let is_expected = headers.expect.is_empty() || has_token(headers.expect, b"100-continue");
    if !is_expected {
        return Err(Refusal::Expectation);
    }
    let framing = match (chunked, length) {
        _ if headers.has_upgrade || line.method == b"CONNECT" => Framing::Opaque,
        (true, _) => Framing::Chunked,
        (false, length) => Framing::Length(length.unwrap_or(0)),
    };
    let escaped = target::escaped(line.target);
    let is_ignored = !is_11 && !headers.encodings.is_empty();
    let is_post = line.method == b"POST";
    let is_unusual = line.version.1 > 1;
    let rewritten = (escaped.is_some() || headers.is_folded || is_ignored || is_unusual)
        .then(|| rewrite(head, &line, escaped.as_deref(), is_ignored));
    Ok(Checked { framing, is_post, rewritten })
}

/// Whether Go's server takes the target of an HTTP/2 request. hyper has checked its characters.
pub(crate) fn is_valid_http2(method: &Method, uri: &Uri) -> bool {
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    !has_user && (method == Method::CONNECT || target::are_escapes_valid(uri.path().as_bytes()))
}

/// The first line of a head.
struct RequestLine<'a> {
    method: &'a [u8],
    target: &'a [u8],
    version: (u8, u8),
}

impl<'a> RequestLine<'a> {
    fn parse(line: &'a [u8]) -> Result<Self, Refusal> {
        let parsed = cut(line, b' ').and_then(|(method, rest)| {
            let (target, version) = cut(rest, b' ')?;
            let version = match version {
                [b'H', b'T', b'T', b'P', b'/', major @ b'0'..=b'9', b'.', minor @ b'0'..=b'9'] => {
                    (major - b'0', minor - b'0')
                }
                _ => return None,
            };
            let is_token = !method.is_empty() && method.iter().copied().all(is_token_byte);
            let is_authority = method == b"CONNECT" && !target.starts_with(b"/");
            let is_target = match is_authority {
                true => target::is_authority_valid(target),
                false => target::is_valid(target),
            };
            (is_token && is_target).then_some(Self { method, target, version })
        });
        parsed.ok_or(Refusal::BadRequest)
    }
}

/// What the headers of a head say about it.
#[derive(Default)]
struct Headers<'a> {
    host: Option<&'a [u8]>,
    n_hosts: usize,
    encodings: Vec<&'a [u8]>,
    lengths: Vec<&'a [u8]>,
    expect: &'a [u8],
    has_bad_trailer: bool,
    has_bad_name: bool,
    has_upgrade: bool,
    /// Whether a header has more than one line.
    is_folded: bool,
}

impl<'a> Headers<'a> {
    fn parse(lines: impl Iterator<Item = &'a [u8]>) -> Result<Self, Refusal> {
        let mut headers = Self::default();
        let mut is_first = true;
        for line in lines {
            if line.is_empty() {
                break;
            }
            if matches!(line[0], b' ' | b'\t') {
                if is_first || !line.iter().copied().all(is_value_byte) {
                    return Err(Refusal::BadRequest);
                }
                headers.is_folded = true;
                continue;
            }
            is_first = false;
            let (name, value) = cut(line, b':').ok_or(Refusal::BadRequest)?;
            let is_name = !name.is_empty()
                && name.iter().copied().all(|byte| byte == b' ' || is_token_byte(byte));
            if !is_name || !value.iter().copied().all(is_value_byte) {
                return Err(Refusal::BadRequest);
            }
            headers.has_bad_name |= name.contains(&b' ');
            headers.note(name, trim(value));
        }
        Ok(headers)
    }

    fn note(&mut self, name: &[u8], value: &'a [u8]) {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                self.n_hosts += 1;
                self.host = Some(value);
            }
            6 if name.eq_ignore_ascii_case(b"expect") && self.expect.is_empty() => {
                self.expect = value;
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.has_upgrade = true,
            7 if name.eq_ignore_ascii_case(b"trailer") => {
                self.has_bad_trailer |= value.split(|byte| *byte == b',').any(|field| {
                    ["transfer-encoding", "trailer", "content-length"]
                        .iter()
                        .any(|bad| trim(field).eq_ignore_ascii_case(bad.as_bytes()))
                });
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.lengths.push(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.encodings.push(value),
            _ => {}
        }
    }

    /// The value of `Content-Length`, which may be repeated.
    fn length(&self) -> Result<Option<u64>, Refusal> {
        let Some((first, others)) = self.lengths.split_first() else { return Ok(None) };
        let is_number = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(first).ok().filter(|_| is_number);
        let number = number.and_then(|text| text.parse::<i64>().ok()?.try_into().ok());
        match number {
            Some(length) if others.iter().all(|other| other == first) => Ok(Some(length)),
            _ => Err(Refusal::BadRequest),
        }
    }
}

/// The head as hyper reads it: one line for each header, an escaped target, and without
/// `Transfer-Encoding` where it has no meaning.
fn rewrite(
    head: &[u8],
    line: &RequestLine<'_>,
    target: Option<&[u8]>,
    drops_encoding: bool,
) -> Vec<u8> {
    // A minor version after 1 is no other protocol.
    let (major, minor) = line.version.min((1, 1));
    let mut out = Vec::with_capacity(head.len() + 256);
    out.extend_from_slice(line.method);
    out.push(b' ');
    out.extend_from_slice(target.unwrap_or(line.target));
    out.extend_from_slice(format!(" HTTP/{major}.{minor}").as_bytes());
    let mut is_dropped = false;
    for line in head.split(|byte| *byte == b'\n').skip(1).map(without_return) {
        let is_continued = matches!(line, [b' ' | b'\t', ..]);
        if !is_continued {
            is_dropped = drops_encoding
                && cut(line, b':')
                    .is_some_and(|(name, _)| name.eq_ignore_ascii_case(b"transfer-encoding"));
        }
        if line.is_empty() {
            break;
        }
        if !is_dropped {
            out.extend_from_slice(if is_continued { b" " } else { b"\r\n" });
            out.extend_from_slice(trim(line));
        }
    }
    out.extend_from_slice(b"\r\n\r\n");
    out
}

/// The parts around the first such byte.
fn cut(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == at)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Without spaces and tabs around it.
fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Whether a list of words, with spaces or commas between them, has this one.
fn has_token(list: &[u8], token: &[u8]) -> bool {
    let is_boundary = |byte: &u8| matches!(byte, b' ' | b',' | b'\t');
    list.split(is_boundary).any(|word| word.eq_ignore_ascii_case(token))
}

/// Whether a name of a method or header may have this byte (RFC 9110, section 5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether the value of a header may have this byte.
fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}

#[cfg(test)]
mod tests;
