//! A server that gets batches of events (spec: auth §3).

use crate::event::Truncation;
use crate::sink::{Audit, Entry};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use setpoint_remote::{CONNECTION_MAX, PostError, Remote};
use std::future::pending;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
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
    /// Maximum number of events that wait; further ones are lost. Default: 10,000.
    pub buffer_events_max: usize,
    /// Maximum number of events that are sent at once. Default: 400.
    pub batch_events_max: usize,
    /// How long an event waits for others. Default: 30 s.
    pub batch_wait: Duration,
    /// How often batches are sent. Default: ten a second, fifteen at once.
    pub throttle: Option<Throttle>,
    /// The pause after the first failed attempt. Default: 10 s.
    pub initial_backoff: Duration,
    /// Leaves out the objects of large events. Default: up to
    /// [`OBJECT_BYTES_MAX`](crate::OBJECT_BYTES_MAX) each.
    pub truncation: Option<Truncation>,
}

impl Default for AuditWebhookOptions {
    fn default() -> Self {
        Self {
            buffer_events_max: 10_000,
            batch_events_max: 400,
            batch_wait: Duration::from_secs(30),
            throttle: Some(Throttle { per_second: 10.0, burst: 15 }),
            initial_backoff: Duration::from_secs(10),
            truncation: None,
        }
    }
}

/// How often something may happen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttle {
    /// How often in a second. Must be more than zero.
    pub per_second: f64,
    /// How often at once after a pause.
    pub burst: u32,
}

/// The rest of a [`Throttle`].
#[derive(Debug)]
struct Bucket {
    throttle: Option<Throttle>,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn new(throttle: Option<Throttle>, now: Instant) -> Self {
        let tokens = throttle.map_or(0.0, |throttle| f64::from(throttle.burst));
        Self { throttle, tokens, filled: now }
    }

    /// Takes a token.
    ///
    /// # Errors
    ///
    /// There is none before this time.
    fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let Some(Throttle { per_second, burst }) = self.throttle else { return Ok(()) };
        let elapsed = now.duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + elapsed * per_second).min(f64::from(burst));
        self.filled = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        // A little later than computed, so that rounding causes no second wait.
        let missing = (1.0 - self.tokens) / per_second.max(f64::MIN_POSITIVE);
        let missing = Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX);
        let missing = missing.min(Duration::from_secs(3600));
        Err(now + missing + Duration::from_millis(1))
    }
}

/// Sends until `stop`, then what is still queued.
pub(crate) async fn run(
    audit: &Audit,
    remote: &Remote,
    options: AuditWebhookOptions,
    stop: CancellationToken,
) {
    let mut sending = FuturesUnordered::new();
    let mut bucket = Bucket::new(options.throttle, Instant::now());
    // When the first event that waits is sent in any case.
    let mut due: Option<Instant> = None;
    let mut end: Option<Instant> = None;
    loop {
        let (now, n) = (Instant::now(), audit.n_waiting());
        let is_stopping = stop.is_cancelled();
        if is_stopping {
            let end = *end.get_or_insert(now + ORDERLY_END_MAX);
            if n == 0 && sending.is_empty() {
                return;
            }
            if now >= end {
                break;
            }
        }
        let is_due = due.is_some_and(|due| due <= now);
        let is_ready = n >= options.batch_events_max.max(1) || n > 0 && (is_due || is_stopping);
        let mut wake = None;
        if is_ready && sending.len() < SENDING_MAX {
            match if is_stopping { Ok(()) } else { bucket.take(now) } {
                Ok(()) => {
                    due = None;
                    let batch = audit.take(options.batch_events_max.max(1));
                    sending.push(send(audit, remote, batch, &options, &stop));
                    continue;
                }
                Err(later) => wake = Some(later),
            }
        } else if n > 0 && !is_ready {
            wake = Some(*due.get_or_insert(now + options.batch_wait));
        }
        let wake = [wake, end].into_iter().flatten().min();
        let woken = async {
            match wake {
                Some(wake) => sleep_until(wake).await,
                None => pending().await,
            }
        };
        tokio::select! {
            // Cancel safe: a notification that is not taken stays.
            () = audit.added.notified() => {}
            // Cancel safe: a sent batch is taken whole or not at all.
            Some(()) = sending.next(), if !sending.is_empty() => {}
            // Cancel safe: both only wait.
            () = woken => {}
            () = stop.cancelled(), if !is_stopping => {}
        }
    }
    let n_lost = audit.take(usize::MAX).len();
    audit.drop_events(n_lost);
    tracing::error!(
        queued = n_lost,
        batches = sending.len(),
        "the audit webhook did not take all events before the end"
    );
}

/// Sends a batch, and counts what is lost.
async fn send(
    audit: &Audit,
    remote: &Remote,
    batch: Vec<Entry>,
    options: &AuditWebhookOptions,
    stop: &CancellationToken,
) {
    let (n, truncation) = (batch.len(), options.truncation);
    // Encoding many objects takes long.
    let encoded = tokio::task::spawn_blocking(move || lists(&batch, truncation)).await;
    let lists = match encoded {
        Ok(lists) => lists,
        Err(error) => {
            audit.drop_events(n);
            tracing::error!(%error, events = n, "encode audit events");
            return;
        }
    };
    audit.drop_events(n - lists.iter().map(|(n, _)| n).sum::<usize>());
    for (n, list) in lists {
        if let Err(error) = send_list(remote, list, options.initial_backoff, stop).await {
            audit.drop_events(n);
            tracing::error!(%error, events = n, "send events to the audit webhook");
        }
    }
}

/// Repeats an attempt that may succeed later, until `stop`.
async fn send_list(
    remote: &Remote,
    list: Vec<u8>,
    mut pause: Duration,
    stop: &CancellationToken,
) -> Result<(), PostError> {
    for attempt in 1.. {
        match remote.post(list.clone(), CONNECTION_MAX).await {
            Ok(_) => return Ok(()),
            Err(error) if !error.may_repeat || attempt == ATTEMPTS || stop.is_cancelled() => {
                return Err(error);
            }
            Err(error) => tracing::warn!(%error, "the audit webhook is tried again"),
        }
        tokio::select! {
            // Cancel safe: both only wait. At the end there is one more attempt.
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => {}
        }
        pause = pause.mul_f64(GROWTH);
    }
    Ok(())
}

/// The events as lists, each with their number. Events that are too large are left out.
fn lists(batch: &[Entry], truncation: Option<Truncation>) -> Vec<(usize, Vec<u8>)> {
    const HEAD: &[u8] =
        br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
    let bytes_max = truncation.map_or(BATCH_BYTES_MAX, |limits| limits.batch_bytes_max);
    let mut lists: Vec<(usize, Vec<u8>)> = Vec::new();
    for event in batch.iter().filter_map(|entry| entry.encode(truncation)) {
        match lists.last_mut() {
            Some((n, list)) if list.len() - HEAD.len() + event.len() <= bytes_max => {
                *n += 1;
                list.push(b',');
                list.extend_from_slice(&event);
            }
            _ => lists.push((1, [HEAD, &event].concat())),
        }
    }
    for (_, list) in &mut lists {
        list.extend_from_slice(b"]}");
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_lets_a_burst_through_and_then_a_rate() {
        let start = Instant::now();
        let throttle = Throttle { per_second: 10.0, burst: 3 };
        let mut bucket = Bucket::new(Some(throttle), start);
        for _ in 0..3 {
            assert!(bucket.take(start).is_ok());
        }
        let later = bucket.take(start).unwrap_err();
        assert!((100..=102).contains(&(later - start).as_millis()));
        assert!(bucket.take(later).is_ok());
        assert!(bucket.take(later).is_err());
        assert!(Bucket::new(None, start).take(start).is_ok());
    }
}
