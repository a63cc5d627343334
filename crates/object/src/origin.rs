//! The reconcile that a request comes from.

use std::fmt;
use std::sync::Arc;

/// Maximum length of the header value, in bytes. Longer values are neither sent nor read.
pub const HEADER_BYTES_MAX: usize = 1024;

/// The sender of a request: the controller, the reconciled key, and the pass. Set by the client
/// itself, so it explains a change but proves nothing.
///
/// In process it is an extension of the `http::Request`. On the wire it is the header
/// [`Origin::HEADER`], with the three parts in this order, separated by spaces. `%` and everything
/// except visible ASCII is escaped as `%XX`.
///
/// ```
/// use setpoint_object::Origin;
///
/// let origin = Origin::new("copier", "default/a b", "1-2-3");
/// assert_eq!(origin.to_header().as_deref(), Some("copier default/a%20b 1-2-3"));
/// assert_eq!(Origin::parse("copier default/a%20b 1-2-3"), Some(origin));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// The controller's name.
    pub controller: Arc<str>,
    /// The reconciled key, in its display form.
    pub request: Arc<str>,
    /// The id of the pass, in its display form.
    pub reconcile_id: Arc<str>,
}

impl Origin {
    /// The name of the header.
    pub const HEADER: &'static str = "setpoint-origin";

    /// Creates an origin from its parts.
    pub fn new(
        controller: impl Into<Arc<str>>,
        request: impl Into<Arc<str>>,
        reconcile_id: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            controller: controller.into(),
            request: request.into(),
            reconcile_id: reconcile_id.into(),
        }
    }

    /// Total length of its parts, in bytes.
    pub fn byte_len(&self) -> usize {
        [&self.controller, &self.request, &self.reconcile_id].map(|part| part.len()).iter().sum()
    }

    /// The header value; `None` if it is longer than [`HEADER_BYTES_MAX`], or if a part is empty.
    pub fn to_header(&self) -> Option<String> {
        let parts = [&self.controller, &self.request, &self.reconcile_id];
        if parts.iter().any(|part| part.is_empty()) {
            return None;
        }
        let text = self.to_string();
        (text.len() <= HEADER_BYTES_MAX).then_some(text)
    }

    /// Parses a header value; `None` if it is invalid.
    pub fn parse(value: &str) -> Option<Self> {
        if value.len() > HEADER_BYTES_MAX {
            return None;
        }
        let mut parts = value.split(' ').map(unescaped);
        let mut next = || parts.next().flatten().filter(|part| !part.is_empty());
        let origin = Self::new(next()?, next()?, next()?);
        parts.next().is_none().then_some(origin)
    }
}

/// Displays as the header value.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, part) in [&self.controller, &self.request, &self.reconcile_id].iter().enumerate() {
            if n > 0 {
                f.write_str(" ")?;
            }
            let is_plain = |c: char| matches!(c, '!'..='~') && c != '%';
            let mut rest = &***part;
            while let Some(at) = rest.find(|c| !is_plain(c)) {
                let (plain, others) = rest.split_at(at);
                let end = others.find(is_plain).unwrap_or(others.len());
                f.write_str(plain)?;
                others[..end].bytes().try_for_each(|byte| write!(f, "%{byte:02X}"))?;
                rest = &others[end..];
            }
            f.write_str(rest)?;
        }
        Ok(())
    }
}

fn unescaped(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'!'..=b'~' => byte,
            _ => return None,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn header_is_parsed_back(controller in ".{1,20}", request in ".{1,20}", id in ".{1,20}") {
            let origin = Origin::new(controller, request, id);
            let header = origin.to_header().unwrap();
            prop_assert!(header.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            prop_assert_eq!(Origin::parse(&header), Some(origin));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,60}") {
            if let Some(origin) = Origin::parse(&text) {
                prop_assert_eq!(Origin::parse(&origin.to_string()), Some(origin));
            }
        }
    }

    #[test]
    fn invalid_origin_is_refused() {
        for text in ["", "a", "a b", "a b c d", "a  c", "a b %4", "a b %ff", "a b \u{e9}"] {
            assert_eq!(Origin::parse(text), None, "{text:?}");
        }
        let long = Origin::new("a", "b".repeat(HEADER_BYTES_MAX), "c");
        assert_eq!(long.to_header(), None);
        assert_eq!(Origin::parse(&long.to_string()), None);
    }
}
