//! The messages of OTLP that a trace exporter sends and receives (opentelemetry-proto 1).

use prost::{Message, Oneof};
use setpoint_object::time::Timestamp;
use setpoint_spans as spans;

/// The path of the call.
pub(crate) const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportTraceServiceResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Scope {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(crate) name: String,
    #[prost(int32, tag = "6")]
    pub(crate) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub(crate) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "10")]
    pub(crate) dropped_attributes_count: u32,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
    #[prost(message, repeated, tag = "13")]
    pub(crate) links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    pub(crate) status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    pub(crate) flags: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Event {
    #[prost(fixed64, tag = "1")]
    pub(crate) time_unix_nano: u64,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Link {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) span_id: Vec<u8>,
    #[prost(fixed32, tag = "6")]
    pub(crate) flags: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "3")]
    pub(crate) code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "Any", tags = "1, 2, 3")]
    pub(crate) value: Option<Any>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Any {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
}

/// The status of a span that has failed.
const ERROR: i32 = 2;
/// Flag of a recorded trace.
const SAMPLED: u32 = 1;
/// Flag: whether the parent is remote is known.
const HAS_IS_REMOTE: u32 = 0x100;
/// Flag: the parent is remote.
const IS_REMOTE: u32 = 0x200;

impl From<&spans::EndedSpan> for Span {
    fn from(span: &spans::EndedSpan) -> Self {
        let kind = match span.kind {
            spans::SpanKind::Internal => 1,
            spans::SpanKind::Server => 2,
            spans::SpanKind::Client => 3,
        };
        let remote = if span.is_parent_remote { IS_REMOTE } else { 0 };
        Self {
            trace_id: span.context.trace_id.0.to_vec(),
            span_id: span.context.span_id.0.to_vec(),
            parent_span_id: span.parent.map(|id| id.0.to_vec()).unwrap_or_default(),
            name: span.name.clone().into_owned(),
            kind,
            start_time_unix_nano: nanos(span.start),
            end_time_unix_nano: nanos(span.end),
            attributes: attributes(&span.attributes),
            dropped_attributes_count: span.n_left_out,
            events: span.events.iter().map(Event::from).collect(),
            links: span.link.iter().map(Link::from).collect(),
            status: span.has_failed.then_some(Status { code: ERROR }),
            flags: SAMPLED | HAS_IS_REMOTE | remote,
        }
    }
}

impl From<&spans::Event> for Event {
    fn from(event: &spans::Event) -> Self {
        Self {
            time_unix_nano: nanos(event.at),
            name: event.name.to_owned(),
            attributes: attributes(&event.attributes),
        }
    }
}

impl From<&spans::SpanContext> for Link {
    fn from(context: &spans::SpanContext) -> Self {
        Self {
            trace_id: context.trace_id.0.to_vec(),
            span_id: context.span_id.0.to_vec(),
            flags: u32::from(context.is_sampled) | HAS_IS_REMOTE | IS_REMOTE,
        }
    }
}

fn attributes(list: &[(spans::Key, spans::Value)]) -> Vec<KeyValue> {
    list.iter().map(|(key, value)| attribute(key, value)).collect()
}

/// One attribute.
pub(crate) fn attribute(key: &str, value: &spans::Value) -> KeyValue {
    let value = match value {
        spans::Value::Text(text) => Any::Text(text.clone().into_owned()),
        spans::Value::Int(number) => Any::Int(*number),
        spans::Value::Bool(is) => Any::Bool(*is),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.0.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_published_numbers() {
        let span = Span {
            trace_id: vec![1; 16],
            span_id: vec![2; 8],
            parent_span_id: vec![3; 8],
            name: "n".to_owned(),
            kind: 2,
            start_time_unix_nano: 1,
            end_time_unix_nano: 2,
            attributes: vec![attribute("k", &spans::Value::Int(5))],
            dropped_attributes_count: 0,
            events: vec![Event { time_unix_nano: 1, name: "e".to_owned(), attributes: Vec::new() }],
            links: vec![Link { trace_id: vec![4; 16], span_id: vec![5; 8], flags: 1 }],
            status: Some(Status { code: ERROR }),
            flags: 1,
        };
        let mut expected = vec![0x0a, 16];
        expected.extend([1; 16]);
        expected.extend([0x12, 8]);
        expected.extend([2; 8]);
        expected.extend([0x22, 8]);
        expected.extend([3; 8]);
        expected.extend([0x2a, 1, b'n', 0x30, 2]);
        expected.extend([0x39, 1, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([0x41, 2, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([0x4a, 7, 0x0a, 1, b'k', 0x12, 2, 0x18, 5]);
        expected.extend([0x5a, 12, 0x09, 1, 0, 0, 0, 0, 0, 0, 0, 0x12, 1, b'e']);
        expected.extend([0x6a, 33, 0x0a, 16]);
        expected.extend([4; 16]);
        expected.extend([0x12, 8]);
        expected.extend([5; 8]);
        expected.extend([0x35, 1, 0, 0, 0]);
        expected.extend([0x7a, 2, 0x18, 2]);
        expected.extend([0x85, 1, 1, 0, 0, 0]);
        assert_eq!(span.encode_to_vec(), expected);
    }
}
