//! Cross-origin requests of browsers: which pages may read answers.

use crate::body::Body;
use crate::respond;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use setpoint_cel::pattern::{PatternError, Regex};

/// Maximum bytes of one compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// What an allowed page may do, as kube-apiserver says it.
const ALLOWED: [(header::HeaderName, &str); 4] = [
    (header::ACCESS_CONTROL_ALLOW_METHODS, "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
    ),
    (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
    (header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
];

/// Why a list of origins is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CorsError {
    /// A pattern is empty.
    #[error("an allowed origin is empty")]
    Empty,
    /// A pattern is no regular expression.
    #[error("allowed origin {pattern:?} is not a regular expression")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The error of the parser, in Go's words.
        #[source]
        source: PatternErrorText,
    },
    /// A pattern also matches hosts of others: `example.com` matches `http://example.com.evil`.
    #[error(
        "allowed origin {pattern:?} does not pin to start/end of host in the origin header: begin the host with `^` or `//`, and end it with `$` or `:`"
    )]
    Unpinned {
        /// The pattern.
        pattern: String,
    },
}

/// The text of a pattern's error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PatternErrorText(String);

impl From<PatternError> for PatternErrorText {
    fn from(error: PatternError) -> Self {
        Self(error.to_string())
    }
}

/// The origins of pages that may read answers, as `--cors-allowed-origins`.
///
/// Every answer to a request with such an `Origin` gets the headers of an allowed page. An
/// `OPTIONS` request from one is answered at once, before it is authenticated.
///
/// ```
/// use setpoint_apiserver::{Cors, CorsError};
///
/// assert!(Cors::new([r"^https://example\.com(:|$)"]).is_ok());
/// assert!(matches!(Cors::new(["example.com"]), Err(CorsError::Unpinned { .. })));
/// ```
#[derive(Debug)]
pub struct Cors(Vec<Regex>);

impl Cors {
    /// Compiles the patterns, in Go's syntax.
    ///
    /// # Errors
    ///
    /// A pattern that kube-apiserver refuses.
    pub fn new(patterns: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, CorsError> {
        let compile = |pattern: String| {
            if pattern.is_empty() {
                return Err(CorsError::Empty);
            }
            let regex = match Regex::new(&pattern, PATTERN_BYTES_MAX) {
                Ok(regex) => regex,
                Err(error) => return Err(CorsError::Pattern { pattern, source: error.into() }),
            };
            let has = |words: [&str; 2]| words.iter().any(|word| pattern.contains(word));
            match has(["^", "//"]) && has(["$", ":"]) {
                true => Ok(regex),
                false => Err(CorsError::Unpinned { pattern }),
            }
        };
        let patterns = patterns.into_iter().map(|pattern| compile(pattern.into()));
        Ok(Self(patterns.collect::<Result<_, _>>()?))
    }

    /// The origin of a request, if its page may read the answer.
    pub(crate) fn allowed(&self, head: &Parts) -> Option<HeaderValue> {
        let value = head.headers.get(header::ORIGIN)?;
        let origin = value.to_str().ok().filter(|origin| !origin.is_empty())?;
        let is_allowed = |pattern: &Regex| pattern.is_match(&mut pattern.scratch(), origin);
        self.0.iter().any(is_allowed).then(|| value.clone())
    }
}

/// The answer to a page's question what it may do; `None`: it is another request.
pub(crate) fn preflight(head: &Parts) -> Option<Response<Body>> {
    (head.method == Method::OPTIONS).then(|| respond::empty(StatusCode::NO_CONTENT))
}

/// Adds the headers of an allowed page.
pub(crate) fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    for (name, value) in ALLOWED {
        // A proxied server may have added names to those that pages may read.
        headers.append(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_the_original() {
        let error = |pattern: &str| Cors::new([pattern]).unwrap_err();
        assert_eq!(error(""), CorsError::Empty);
        for unpinned in ["example.com", "^example.com", "example.com$", ".*"] {
            let expected = CorsError::Unpinned { pattern: unpinned.to_owned() };
            assert_eq!(error(unpinned), expected);
        }
        let CorsError::Pattern { source, .. } = error("^(a$") else { panic!("{}", error("^(a$")) };
        assert_eq!(source.to_string(), "error parsing regexp: missing closing ): `^(a$`");
        Cors::new([r"//example\.com(:|$)", "^https?://a$"]).unwrap();
    }

    #[test]
    fn only_pages_of_allowed_origins_are_allowed() {
        let cors = Cors::new([r"^https?://ok\.example(:|$)"]).unwrap();
        for (origin, is_allowed) in [
            ("http://ok.example", true),
            ("https://ok.example:8080", true),
            ("http://ok.example.evil", false),
            ("http://bad.example", false),
            ("", false),
        ] {
            let (head, ()) =
                http::Request::builder().header("origin", origin).body(()).unwrap().into_parts();
            assert_eq!(cors.allowed(&head).is_some(), is_allowed, "{origin}");
        }
        let (head, ()) = http::Request::new(()).into_parts();
        assert!(cors.allowed(&head).is_none());
    }
}
