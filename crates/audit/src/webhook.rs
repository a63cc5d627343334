//! A server that gets lists of events (spec: auth §3).

use crate::batch::{AuditMode, BatchOptions, Receiver};
use crate::event::Truncation;
use crate::sink::{Audit, Entry, Fate};
use setpoint_object::error::chain;
use setpoint_remote::{CONNECTION_MAX, Remote, Retry};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Maximum number of batches that are on their way at the same time. Others wait in the queue, so
/// that a server that does not answer costs no more than this and the queue.
pub const SENDING_MAX: usize = 4;
/// How long a stopped worker goes on to send what is queued.
pub const ORDERLY_END_MAX: Duration = Duration::from_secs(10);
/// The number of attempts of a batch, as kube-apiserver's.
const ATTEMPTS: u32 = 5;
/// By how much each pause between attempts is longer than the one before.
const GROWTH: f64 = 1.5;
/// Maximum bytes of events that are sent at once unless [`Truncation`] says otherwise.
const BATCH_BYTES_MAX: usize = 10 << 20;

/// How events are sent. The defaults are kube-apiserver's.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditWebhookOptions {
    /// Whether requests wait. Default: they do not, [`BatchOptions::WEBHOOK`].
    pub mode: AuditMode,
    /// The pause after the first failed attempt. Default: 10 s.
    pub initial_backoff: Duration,
    /// Leaves out the objects of large events. Default: up to
    /// [`OBJECT_BYTES_MAX`](crate::OBJECT_BYTES_MAX) each.
    pub truncation: Option<Truncation>,
}

impl Default for AuditWebhookOptions {
    fn default() -> Self {
        Self {
            mode: AuditMode::Batch(BatchOptions::WEBHOOK),
            initial_backoff: Duration::from_secs(10),
            truncation: None,
        }
    }
}

/// The server.
#[derive(Debug)]
pub(crate) struct Webhook {
    pub(crate) remote: Remote,
    pub(crate) initial_backoff: Duration,
    pub(crate) truncation: Option<Truncation>,
}

impl Receiver for Webhook {
    const SENDING_MAX: usize = SENDING_MAX;
    const END_MAX: Option<Duration> = Some(ORDERLY_END_MAX);

    /// Repeats an attempt that failed, until `stop`.
    async fn deliver(&self, audit: &Audit, mut batch: Vec<Entry>, stop: &CancellationToken) {
        let mut waiting: Vec<_> = batch.iter_mut().map(Entry::take_waiting).collect();
        let mut settle = |nth: usize, fate| {
            if let Some(waiting) = waiting.get_mut(nth) {
                audit.settle(waiting.take(), fate);
            }
        };
        let (n, truncation) = (batch.len(), self.truncation);
        // Encoding many objects takes long.
        let encoded = tokio::task::spawn_blocking(move || lists(&batch, truncation)).await;
        let Lists { lists, too_large } = match encoded {
            Ok(lists) => lists,
            Err(error) => {
                tracing::error!(error = chain(&error), events = n, "encode audit events");
                (0..n).for_each(|nth| settle(nth, Fate::Lost));
                return;
            }
        };
        too_large.into_iter().for_each(|nth| settle(nth, Fate::TooLarge));
        // As the reference: events are worth another attempt, whatever the error.
        let pause = self.initial_backoff;
        let retry = Retry { attempts: ATTEMPTS, pause, growth: GROWTH, whatever: true };
        for (events, list) in lists {
            let sent = self.remote.post_repeatedly(list, CONNECTION_MAX, retry, stop.cancelled());
            let fate = match sent.await {
                Ok(_) => Fate::Stored,
                Err(error) => {
                    let n_events = events.len();
                    tracing::error!(
                        error = chain(&error),
                        events = n_events,
                        "send events to the audit webhook"
                    );
                    Fate::Lost
                }
            };
            events.into_iter().for_each(|nth| settle(nth, fate));
        }
    }
}

/// The encoded events of a batch.
#[derive(Default)]
struct Lists {
    /// Lists, each with the positions of its events in the batch.
    lists: Vec<(Vec<usize>, Vec<u8>)>,
    /// The positions of events that are too large.
    too_large: Vec<usize>,
}

fn lists(batch: &[Entry], truncation: Option<Truncation>) -> Lists {
    const HEAD: &[u8] =
        br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
    let bytes_max = truncation.map_or(BATCH_BYTES_MAX, |limits| limits.batch_bytes_max);
    let Lists { mut lists, mut too_large } = Lists::default();
    for (nth, entry) in batch.iter().enumerate() {
        let Some(event) = entry.item(truncation) else {
            too_large.push(nth);
            continue;
        };
        match lists.last_mut() {
            Some((events, list)) if list.len() - HEAD.len() + event.len() <= bytes_max => {
                events.push(nth);
                list.push(b',');
                list.extend_from_slice(&event);
            }
            _ => lists.push((vec![nth], [HEAD, &event].concat())),
        }
    }
    for (_, list) in &mut lists {
        list.extend_from_slice(b"]}");
    }
    Lists { lists, too_large }
}
