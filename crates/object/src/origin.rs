//! Which reconcile a request comes from.

use std::fmt::{self, Write as _};
use std::sync::Arc;

/// The longest header value, in bytes. What is longer is not sent, and not read.
pub const HEADER_BYTES_MAX: usize = 1024;

/// Who sends a request: the controller, the key that it reconciles, and the pass. The client says
/// so itself: it explains a change, and proves nothing.
///
/// In a process it is an extension of the `http::Request`; on the wire it is the header
/// [`Origin::HEADER`], in which the three parts stand in this order with a space between them, and
/// whatever is not visible ASCII, and `%`, as `%XX`.
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
    /// The key that is reconciled, as it displays.
    pub request: Arc<str>,
    /// The id of the pass, as it displays.
    pub reconcile_id: Arc<str>,
}

impl Origin {
    /// The header that carries it.
    pub const HEADER: &'static str = "setpoint-origin";

    /// One of these parts.
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

    /// How long its parts are together, in bytes.
    pub fn byte_len(&self) -> usize {
        [&self.controller, &self.request, &self.reconcile_id].map(|part| part.len()).iter().sum()
    }

    /// The value of the header; `None` when it is longer than [`HEADER_BYTES_MAX`], or when a part
    /// is empty.
    pub fn to_header(&self) -> Option<String> {
        let parts = [&self.controller, &self.request, &self.reconcile_id];
        if parts.iter().any(|part| part.is_empty()) {
            return None;
        }
        let text = self.to_string();
        (text.len() <= HEADER_BYTES_MAX).then_some(text)
    }

    /// Reads the value of the header; `None` when it is none.
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

/// As in the header.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, part) in [&self.controller, &self.request, &self.reconcile_id].iter().enumerate() {
            if n > 0 {
                f.write_char(' ')?;
            }
            for byte in part.bytes() {
                match byte {
                    b'!'..=b'~' if byte != b'%' => f.write_char(char::from(byte))?,
                    _ => write!(f, "%{byte:02X}")?,
                }
            }
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
        fn what_is_sent_is_read(controller in ".{1,20}", request in ".{1,20}", id in ".{1,20}") {
            let origin = Origin::new(controller, request, id);
            let header = origin.to_header().unwrap();
            prop_assert!(header.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            prop_assert_eq!(Origin::parse(&header), Some(origin));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,60}") {
            if let Some(origin) = Origin::parse(&text) {
                prop_assert_eq!(Origin::parse(&origin.to_string()), Some(origin));
            }
        }
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for text in ["", "a", "a b", "a b c d", "a  c", "a b %4", "a b %ff", "a b \u{e9}"] {
            assert_eq!(Origin::parse(text), None, "{text:?}");
        }
        let long = Origin::new("a", "b".repeat(HEADER_BYTES_MAX), "c");
        assert_eq!(long.to_header(), None);
        assert_eq!(Origin::parse(&long.to_string()), None);
    }
}
