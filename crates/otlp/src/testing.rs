//! A collector for tests.

use crate::proto::{
    Any, EXPORT, ExportTraceServiceRequest, ExportTraceServiceResponse, KeyValue, Span,
};
use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message as _;
use setpoint_grpc::testing::{Reply, Script};
use setpoint_grpc::{Code, Status};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A span as it arrived. Ids are lower-case hexadecimal.
#[derive(Debug, Clone)]
pub struct ReceivedSpan {
    /// Trace.
    pub trace_id: String,
    /// Id.
    pub span_id: String,
    /// Id of the parent; empty: none.
    pub parent: String,
    /// Traces and spans of links.
    pub links: Vec<(String, String)>,
    /// Name.
    pub name: String,
    /// OpenTelemetry's number of the kind: 1 is internal, 2 a server's, 3 a client's.
    pub kind: i32,
    /// Nanoseconds from start to end.
    pub n_nanos: u64,
    /// Attributes as text.
    pub attributes: BTreeMap<String, String>,
    /// Names of events.
    pub events: Vec<String>,
    /// Whether it has failed.
    pub has_failed: bool,
    /// Attributes of its resource.
    pub resource: BTreeMap<String, String>,
}

/// A collector that answers every call, with a chosen gRPC status.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    state: Arc<State>,
    n_spans: watch::Receiver<usize>,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    spans: Mutex<Vec<ReceivedSpan>>,
    statuses: Mutex<Vec<u32>>,
    n_spans: watch::Sender<usize>,
}

impl Collector {
    /// Listens on a free port of 127.0.0.1. Its first calls fail with these gRPC codes. Dropping it
    /// closes everything.
    ///
    /// # Errors
    ///
    /// No port.
    pub async fn bind(failures: &[u32]) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (sender, n_spans) = watch::channel(0);
        let state = Arc::new(State {
            spans: Mutex::default(),
            statuses: Mutex::new(failures.iter().rev().copied().collect()),
            n_spans: sender,
        });
        let script = {
            let state = state.clone();
            Script::new(move |path, message| state.answer(path, message))
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, script));
        Ok(Self { address, state, n_spans, tasks })
    }

    /// Its address as an endpoint.
    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// Waits until this span, or another one for which `is_it` is true, has arrived, and returns
    /// all.
    pub async fn until(&mut self, is_it: impl Fn(&ReceivedSpan) -> bool) -> Vec<ReceivedSpan> {
        loop {
            self.n_spans.mark_unchanged();
            let spans = self.spans();
            if spans.iter().any(&is_it) {
                return spans;
            }
            if self.n_spans.changed().await.is_err() || self.tasks.is_empty() {
                return spans;
            }
        }
    }

    /// What has arrived so far.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.state.spans.lock().clone()
    }
}

async fn accept(listener: TcpListener, script: Script) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        connections.spawn(script.clone().serve(socket));
    }
}

impl State {
    fn answer(&self, path: &str, message: Bytes) -> Reply {
        let failure = self.statuses.lock().pop();
        match (failure, ExportTraceServiceRequest::decode(message)) {
            (Some(code), _) => Reply::Status(Status::new(Code(code), "")),
            (None, Ok(message)) if path == EXPORT => {
                self.add(message);
                Reply::message(&ExportTraceServiceResponse::default())
            }
            _ => Reply::Status(Status::new(Code::UNIMPLEMENTED, "")),
        }
    }

    fn add(&self, message: ExportTraceServiceRequest) {
        let mut spans = self.spans.lock();
        for group in message.resource_spans {
            let resource = texts(group.resource.unwrap_or_default().attributes);
            for span in group.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                spans.push(received(span, resource.clone()));
            }
        }
        let n = spans.len();
        drop(spans);
        self.n_spans.send_replace(n);
    }
}

fn received(span: Span, resource: BTreeMap<String, String>) -> ReceivedSpan {
    let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    ReceivedSpan {
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        links: span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
        name: span.name,
        kind: span.kind,
        n_nanos: span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano),
        attributes: texts(span.attributes),
        events: span.events.into_iter().map(|event| event.name).collect(),
        has_failed: span.status.is_some_and(|status| status.code == 2),
        resource,
    }
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Any| match value {
        Any::Text(text) => text,
        Any::Bool(is) => is.to_string(),
        Any::Int(number) => number.to_string(),
    };
    let pairs = attributes.into_iter().map(|pair| {
        let value = pair.value.and_then(|value| value.value);
        (pair.key, value.map(text).unwrap_or_default())
    });
    pairs.collect()
}
