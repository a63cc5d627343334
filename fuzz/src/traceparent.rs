//! The header `traceparent`.
use setpoint_spans::SpanContext;

/// A text is refused, or has the ids that it shows in the order of the standard, and is written as
/// one that is parsed to the same.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Some(context) = SpanContext::parse(&text) else { return };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(&text[3..35], hex(&context.trace_id.0));
    assert_eq!(&text[36..52], hex(&context.span_id.0));
    let flags = u8::from_str_radix(&text[53..55], 16).unwrap();
    assert_eq!(flags & 1 == 1, context.is_sampled);
    assert!(text.len() == 55 || (!text.starts_with("00") && text[55..].starts_with('-')));
    assert_ne!((context.trace_id.0, context.span_id.0), ([0; 16], [0; 8]));
    assert_eq!(SpanContext::parse(&context.to_string()), Some(context));
}
