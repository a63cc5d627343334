//! Finds the end of a value that arrives in pieces.
use super::nesting::Nesting;
use super::string_bytes_before_stop;
use crate::skim::SkimError;

/// Finds the end of one JSON value whose bytes arrive in pieces. Reads each byte once.
///
/// Checks as much as a skim does of skipped values: that brackets balance and nest no deeper than
/// 128, and that strings end.
///
/// ```
/// use setpoint_object::ValueEnd;
///
/// let mut end = ValueEnd::default();
/// assert_eq!(end.feed(br#"{"a":"}"#)?, None);
/// assert_eq!(end.feed(br#""}, next"#)?, Some(2));
/// # Ok::<(), setpoint_object::skim::SkimError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ValueEnd {
    kind: Kind,
    /// Number of bytes processed before.
    taken: usize,
}

#[derive(Debug, Clone, Default)]
enum Kind {
    #[default]
    Unknown,
    Nested(Nesting),
    String {
        is_escaped: bool,
    },
    Scalar,
}

impl ValueEnd {
    /// Processes the next bytes; the first byte must be the value's first. Returns how many of
    /// these bytes belong to the value once its end is known. The end of a number is known only at
    /// the byte after it.
    ///
    /// # Errors
    /// If the bytes are not a JSON value, as far as it checks. The position counts from the value's
    /// first byte.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, SkimError> {
        let Some(first) = bytes.first() else { return Ok(None) };
        let mut from = 0;
        if matches!(self.kind, Kind::Unknown) {
            self.kind = match first {
                b'{' | b'[' => Kind::Nested(Nesting::default()),
                b'"' => {
                    from = 1;
                    Kind::String { is_escaped: false }
                }
                byte if is_scalar(*byte) => Kind::Scalar,
                _ => return Err(SkimError { at: self.taken, what: "a value was expected" }),
            };
        }
        let found = match &mut self.kind {
            Kind::Nested(nesting) => nesting
                .feed(bytes)
                .map_err(|fault| SkimError { at: self.taken + fault.at, what: fault.what })?,
            Kind::String { is_escaped } => string_tail(bytes, from, is_escaped),
            Kind::Unknown | Kind::Scalar => bytes.iter().position(|byte| !is_scalar(*byte)),
        };
        self.taken += found.unwrap_or(bytes.len());
        Ok(found)
    }
}

/// Whether a byte may occur in a number, `true`, `false` or `null`.
pub(super) fn is_scalar(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'+' | b'-' | b'.' | b'E')
}
fn string_tail(bytes: &[u8], mut at: usize, is_escaped: &mut bool) -> Option<usize> {
    loop {
        if std::mem::take(is_escaped) {
            if at == bytes.len() {
                *is_escaped = true;
                return None;
            }
            at += 1;
        }
        at += string_bytes_before_stop(&bytes[at..])?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        *is_escaped = true;
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_strategy;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_end_is_the_same_in_any_pieces(
            value in json_strategy::value(),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let mut text = serde_json::to_vec(&value).unwrap();
            let len = text.len();
            text.extend_from_slice(b", 1]");
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len())).collect();
            cuts.sort_unstable();
            cuts.push(text.len());
            let (mut end, mut from, mut found) = (ValueEnd::default(), 0, None);
            for to in cuts {
                if let Some(n_bytes) = end.feed(&text[from..to]).unwrap() {
                    found = Some(from + n_bytes);
                    break;
                }
                from = to;
            }
            prop_assert_eq!(found, Some(len));
        }
    }

    #[test]
    fn invalid_first_byte_is_an_error() {
        for text in [&b","[..], b"}", b" 1", b"\\"] {
            assert!(ValueEnd::default().feed(text).is_err());
        }
        let mut end = ValueEnd::default();
        assert_eq!(end.feed(b"[1,").unwrap(), None);
        assert_eq!(end.feed(b"}").unwrap_err().at, 4);
    }
}
