//! The task that empties the queue.

use crate::collector::{CollectorError, Connection};
use crate::config::Endpoint;
use crate::proto::{self, ExportTraceServiceRequest, ResourceSpans, Scope, ScopeSpans, attribute};
use setpoint_dial::Dialer;
use setpoint_object::error::chain;
use setpoint_spans::{EndedSpan, SpanQueue, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// Maximum spans of one call: 512, as the batch processor of OpenTelemetry's SDKs.
pub const BATCH_SPANS_MAX: usize = 512;
/// How long a span waits for others: 5 s, as there.
pub const BATCH_WAIT_MAX: Duration = Duration::from_secs(5);
/// Maximum time of one call, connecting included: 10 s, as OTLP's exporters.
pub const EXPORT_MAX: Duration = Duration::from_secs(10);
/// Time between a failure and the next call: 5 s, as OTLP's exporters begin with.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Time from the first call of a batch after which it is not sent again: 60 s, as there.
pub const RETRY_MAX: Duration = Duration::from_secs(60);
/// Maximum time after `stop` for the batch that is being sent, and again for the rest: 5 s.
pub const FLUSH_MAX: Duration = Duration::from_secs(5);

/// The name of the instrumentation scope.
const SCOPE: &str = "setpoint";

/// What the spans are of: OpenTelemetry's resource.
#[derive(Debug, Clone)]
pub struct Resource {
    /// `service.name`.
    pub service_name: String,
    /// `service.instance.id`.
    pub instance_id: String,
}

/// Sends the spans of a queue to a collector.
#[derive(Debug)]
#[must_use = "an exporter does nothing unless it runs"]
pub struct Exporter {
    queue: Arc<SpanQueue>,
    endpoint: Endpoint,
    dialer: Dialer,
    resource: proto::Resource,
}

/// A connection, if there is one.
type Slot = Option<Connection>;

impl Exporter {
    /// An exporter of the queue. Connects when it runs and there are spans.
    pub fn new(queue: Arc<SpanQueue>, endpoint: Endpoint, resource: Resource) -> Self {
        let resource = proto::Resource {
            attributes: vec![
                attribute("service.name", &Value::from(resource.service_name)),
                attribute("service.instance.id", &Value::from(resource.instance_id)),
            ],
        };
        Self { queue, endpoint, dialer: Dialer::default(), resource }
    }

    /// How the collector is reached over TCP. Default: directly.
    pub fn dialer(mut self, dialer: Dialer) -> Self {
        self.dialer = dialer;
        self
    }

    /// Sends spans until `stop`, and then the rest, which takes at most twice [`FLUSH_MAX`]. What
    /// cannot be sent is counted in [`SpanQueue::dropped`]. Dropping the future loses the batch of
    /// the present call.
    pub async fn run(self, stop: CancellationToken) {
        let mut slot = None;
        let mut reported = 0;
        while !stop.is_cancelled() {
            if !self.wait(&mut slot, &stop).await {
                break;
            }
            let batch = self.queue.take(BATCH_SPANS_MAX);
            self.deliver(&mut slot, &batch, &stop).await;
            let dropped = self.queue.dropped();
            if dropped > reported {
                tracing::warn!(dropped, "spans were lost: the collector is slow or absent");
                reported = dropped;
            }
        }
        let deadline = Instant::now() + FLUSH_MAX;
        loop {
            let batch = self.queue.take(BATCH_SPANS_MAX);
            if batch.is_empty() {
                break;
            }
            let sent = timeout_at(deadline, self.send(&mut slot, &batch)).await;
            if !matches!(sent, Ok(Ok(()))) {
                let n_lost = batch.len() + self.queue.take(usize::MAX).len();
                self.queue.lost(n_lost as u64);
                tracing::warn!(spans = n_lost, "the last spans were not sent");
                break;
            }
        }
    }

    /// Waits for a batch: the first span, and then until it is full or old. Returns false at
    /// `stop`.
    async fn wait(&self, slot: &mut Slot, stop: &CancellationToken) -> bool {
        let batch = async {
            self.queue.has(1).await;
            // An error is a batch that is not full.
            let _ = timeout(BATCH_WAIT_MAX, self.queue.has(BATCH_SPANS_MAX)).await;
        };
        let mut batch = std::pin::pin!(batch);
        loop {
            let is_connected = slot.is_some();
            let closed = async {
                if let Some(connection) = slot.as_mut() {
                    connection.closed().await;
                }
            };
            tokio::select! {
                biased;
                // Cancel safe: a token.
                () = stop.cancelled() => return false,
                // Pinned outside; it takes nothing.
                () = &mut batch => return true,
                // Cancel safe: the connection stays in its slot.
                () = closed, if is_connected => *slot = None,
            }
        }
    }

    /// Sends a batch, again after transient failures, until `stop`.
    async fn deliver(&self, slot: &mut Slot, batch: &[EndedSpan], stop: &CancellationToken) {
        let give_up = Instant::now() + RETRY_MAX;
        loop {
            let sent = tokio::select! {
                // A call ends within its limit; its connection is of no use after that.
                sent = self.send(slot, batch) => sent,
                () = stopped_for(stop, FLUSH_MAX) => Err(lost("the server has stopped")),
            };
            let Err(error) = sent else { return };
            tracing::debug!(error = chain(&error), spans = batch.len(), "spans were not sent");
            let is_last = Instant::now() + RETRY_INTERVAL > give_up || stop.is_cancelled();
            if !error.is_transient() || is_last {
                return self.queue.lost(batch.len() as u64);
            }
            tokio::select! {
                // Both cancel safe: a timer and a token.
                () = sleep(RETRY_INTERVAL) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// One call.
    async fn send(&self, slot: &mut Slot, batch: &[EndedSpan]) -> Result<(), CollectorError> {
        let scope = Scope { name: SCOPE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let spans = batch.iter().map(proto::Span::from).collect();
        let message = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans { scope: Some(scope), spans }],
            }],
        };
        // Out of the slot, so that what fails or is dropped is closed.
        let held = slot.take();
        let call = async {
            let mut connection = match held {
                Some(connection) => connection,
                None => Connection::open(&self.endpoint, &self.dialer).await?,
            };
            let answer = connection.export(&message, EXPORT_MAX).await?;
            Ok((connection, answer))
        };
        let (connection, (n_rejected, text)) =
            timeout(EXPORT_MAX, call).await.unwrap_or_else(|_| Err(lost("no answer in time")))?;
        *slot = Some(connection);
        if let Some(n) = u64::try_from(n_rejected).ok().filter(|n| *n > 0) {
            self.queue.lost(n);
            tracing::debug!(spans = n, text, "the collector has rejected spans");
        }
        Ok(())
    }
}

fn lost(text: &str) -> CollectorError {
    CollectorError::Lost(text.to_owned())
}

/// Ends this long after `stop`.
async fn stopped_for(stop: &CancellationToken, time: Duration) {
    stop.cancelled().await;
    sleep(time).await;
}

#[cfg(test)]
mod tests;
