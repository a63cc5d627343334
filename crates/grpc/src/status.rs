//! Statuses, by which calls end.

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use std::fmt;

/// Maximum length in bytes of a status' text; the rest is dropped.
pub const STATUS_TEXT_BYTES_MAX: usize = 1024;

const CODE: HeaderName = HeaderName::from_static("grpc-status");
const TEXT: HeaderName = HeaderName::from_static("grpc-message");

/// Bytes of a text that are encoded: all but printable ASCII, and `%`.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// A gRPC status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u32);

#[allow(missing_docs, reason = "gRPC's words as they are")]
impl Code {
    pub const OK: Self = Self(0);
    pub const CANCELLED: Self = Self(1);
    pub const UNKNOWN: Self = Self(2);
    pub const INVALID_ARGUMENT: Self = Self(3);
    pub const DEADLINE_EXCEEDED: Self = Self(4);
    pub const NOT_FOUND: Self = Self(5);
    pub const ALREADY_EXISTS: Self = Self(6);
    pub const PERMISSION_DENIED: Self = Self(7);
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    pub const FAILED_PRECONDITION: Self = Self(9);
    pub const ABORTED: Self = Self(10);
    pub const OUT_OF_RANGE: Self = Self(11);
    pub const UNIMPLEMENTED: Self = Self(12);
    pub const INTERNAL: Self = Self(13);
    pub const UNAVAILABLE: Self = Self(14);
    pub const DATA_LOSS: Self = Self(15);
    pub const UNAUTHENTICATED: Self = Self(16);
}

impl Code {
    /// The name in Go, which is also the label of metrics; `None` for an unknown code.
    pub fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 17] = [
            "OK",
            "Canceled",
            "Unknown",
            "InvalidArgument",
            "DeadlineExceeded",
            "NotFound",
            "AlreadyExists",
            "PermissionDenied",
            "ResourceExhausted",
            "FailedPrecondition",
            "Aborted",
            "OutOfRange",
            "Unimplemented",
            "Internal",
            "Unavailable",
            "DataLoss",
            "Unauthenticated",
        ];
        NAMES.get(usize::try_from(self.0).ok()?).copied()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Code({})", self.0),
        }
    }
}

/// How a call has ended. As text it is the server's text, or the code if there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// The server's text. At most [`STATUS_TEXT_BYTES_MAX`] if it was received.
    pub text: String,
}

impl Status {
    /// A status.
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// Success.
    pub fn ok() -> Self {
        Self::new(Code::OK, "")
    }

    /// The status in headers or trailers; `None`: they have none.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let code = text(CODE)?.parse().ok()?;
        let text = percent_decode_str(text(TEXT).unwrap_or_default()).decode_utf8_lossy();
        Some(Self::new(Code(code), &text[..text.floor_char_boundary(STATUS_TEXT_BYTES_MAX)]))
    }

    /// Whether headers have a status: nothing else follows them.
    pub(crate) fn is_in(headers: &HeaderMap) -> bool {
        headers.contains_key(CODE)
    }

    /// As headers or trailers.
    pub fn to_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([(CODE, HeaderValue::from(self.code.0))]);
        let text = utf8_percent_encode(&self.text, ENCODED).to_string();
        if let Some(text) = HeaderValue::from_str(&text).ok().filter(|text| !text.is_empty()) {
            headers.insert(TEXT, text);
        }
        headers
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.text {
            "" => self.code.fmt(f),
            text => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(code: &'static str, text: &'static str) -> Option<Status> {
        let headers = [(CODE, code), (TEXT, text)];
        Status::of(
            &headers
                .map(|(name, value)| (name, HeaderValue::from_static(value)))
                .into_iter()
                .collect(),
        )
    }

    #[test]
    fn texts_are_decoded() {
        for (text, decoded) in [("a%20b%E2%82%AC %4", "a b€ %4"), ("%zz%", "%zz%"), ("", "")] {
            assert_eq!(received("5", text), Some(Status::new(Code::NOT_FOUND, decoded)));
        }
        assert_eq!(received("x", ""), None);
        assert_eq!(Status::of(&HeaderMap::new()), None);
    }

    #[test]
    fn status_is_received_as_it_was_sent() {
        for text in ["", "a b€ 100%", "tab\tline\n"] {
            let status = Status::new(Code::ABORTED, text);
            assert_eq!(Status::of(&status.to_headers()), Some(status));
        }
        let long = Status::new(Code::ABORTED, "€".repeat(1000));
        let text = Status::of(&long.to_headers()).unwrap().text;
        assert_eq!(text, "€".repeat(STATUS_TEXT_BYTES_MAX / 3));
    }

    #[test]
    fn codes_have_the_names_of_go() {
        assert_eq!(Code::CANCELLED.to_string(), "Canceled");
        assert_eq!(Code::UNAUTHENTICATED.to_string(), "Unauthenticated");
        assert_eq!(Code(17).to_string(), "Code(17)");
        assert_eq!(Status::new(Code::ABORTED, "").to_string(), "Aborted");
    }
}
