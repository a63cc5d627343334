//! The context of a span, and its header `traceparent`.

use std::fmt;

/// Id of a trace; not all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// Id of a span; not all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

/// What identifies a span in any process. It is displayed as the value of the header `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span.
    pub span_id: SpanId,
    /// Whether the span is recorded.
    pub is_sampled: bool,
}

impl SpanContext {
    /// The name of the header.
    pub const HEADER: &'static str = "traceparent";

    /// Parses the value of a `traceparent` header (W3C Trace Context, level 1). `None` for any
    /// other text. Of later versions, what follows the flags is ignored, as the standard says.
    pub fn parse(text: &str) -> Option<Self> {
        let (version, rest) = byte_and_rest(text.as_bytes())?;
        let trace_id = hex::<16>(rest.strip_prefix(b"-")?.get(..32)?)?;
        let rest = rest.get(33..)?.strip_prefix(b"-")?;
        let span_id = hex::<8>(rest.get(..16)?)?;
        let (flags, rest) = byte_and_rest(rest.get(16..)?.strip_prefix(b"-")?)?;
        let is_whole = match version {
            0 => rest.is_empty(),
            255 => false,
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        let is_valid = is_whole && trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(Self {
            trace_id: TraceId(trace_id),
            span_id: SpanId(span_id),
            is_sampled: flags & 1 == 1,
        })
    }
}

impl fmt::Display for SpanContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace_id.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.span_id.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-{:02x}", u8::from(self.is_sampled))
    }
}

/// A byte of two digits, and the rest.
fn byte_and_rest(text: &[u8]) -> Option<(u8, &[u8])> {
    let [byte] = hex::<1>(text.get(..2)?)?;
    Some((byte, text.get(2..)?))
}

/// Bytes of lower-case digits; `text` has two per byte.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_standards_example_is_parsed() {
        let context = SpanContext::parse(VALID).unwrap();
        assert_eq!(context.trace_id.0[..3], [0x0a, 0xf7, 0x65]);
        assert_eq!(context.span_id.0[7], 0x31);
        assert!(context.is_sampled);
        assert_eq!(context.to_string(), VALID);
    }

    #[test]
    fn other_texts_are_not_parsed() {
        let zero = "0".repeat(32);
        for wrong in [
            String::new(),
            "00".to_owned(),
            VALID.to_uppercase(),
            VALID.replace('-', "_"),
            VALID[..54].to_owned(),
            format!("{VALID}-00"),
            format!("{VALID} "),
            format!("ff{}", &VALID[2..]),
            format!("01{}x", &VALID[2..]),
            format!("00-{zero}-b7ad6b7169203331-01"),
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01".to_owned(),
            VALID.replace('1', "é"),
        ] {
            assert_eq!(SpanContext::parse(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn later_versions_may_have_more() {
        let later = format!("01{}-more", &VALID[2..]);
        assert_eq!(SpanContext::parse(&later), SpanContext::parse(VALID));
    }

    #[test]
    fn only_the_last_flag_counts() {
        let parse = |flags| SpanContext::parse(&format!("{}{flags}", &VALID[..53])).unwrap();
        assert!(parse("ff").is_sampled);
        assert!(!parse("fe").is_sampled);
        assert!(!parse("00").is_sampled);
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_one_context(text in "\\PC{0,80}") {
            if let Some(context) = SpanContext::parse(&text) {
                prop_assert_eq!(SpanContext::parse(&context.to_string()), Some(context));
            }
        }

        #[test]
        fn contexts_are_parsed_as_they_are_displayed(trace in 1_u128.., span in 1_u64.., is_sampled: bool) {
            let context = SpanContext {
                trace_id: TraceId(trace.to_be_bytes()),
                span_id: SpanId(span.to_be_bytes()),
                is_sampled,
            };
            prop_assert_eq!(SpanContext::parse(&context.to_string()), Some(context));
        }

        #[test]
        fn cuts_and_changes_of_a_valid_one_never_panic(at in 0_usize..55, byte in any::<u8>()) {
            let mut bytes = VALID.as_bytes().to_vec();
            bytes[at] = byte;
            let _ = SpanContext::parse(&String::from_utf8_lossy(&bytes));
            let _ = SpanContext::parse(&VALID[..at]);
        }
    }
}
