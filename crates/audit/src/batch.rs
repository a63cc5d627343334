//! When events go to their receiver: at once, in batches, so many per second.

use crate::sink::{Audit, EVENTS_MAX, Entry};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::future::pending;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Whether requests wait until their events are stored.
#[derive(Debug, Clone, PartialEq)]
pub enum AuditMode {
    /// They do not. Events wait in a buffer, and those that find it full are lost.
    Batch(BatchOptions),
    /// They do, at most [`BLOCKING_MAX`](crate::BLOCKING_MAX), and then go on, whether the event is
    /// stored or not. Events of requests that are served at the same time are stored together.
    Blocking,
    /// The same, but a request whose arrival cannot be stored is refused with 500.
    BlockingStrict,
}

/// The buffer of events and the batches that are made of it.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchOptions {
    /// Maximum number of events that wait; further ones are lost.
    pub buffer_events_max: usize,
    /// Maximum number of events that are stored at once. Zero counts as one.
    pub batch_events_max: usize,
    /// How long an event waits for others.
    pub batch_wait: Duration,
    /// How often batches are stored; `None`: at once.
    pub throttle: Option<Throttle>,
}

impl BatchOptions {
    /// For a file: 16,384 events in the buffer, up to 512 at once, and no waiting.
    pub const LOG: Self = Self {
        buffer_events_max: EVENTS_MAX,
        batch_events_max: 512,
        batch_wait: Duration::ZERO,
        throttle: None,
    };
    /// For a server, as kube-apiserver's: 10,000 events in the buffer, up to 400 at once or after
    /// 30 s, ten batches a second and fifteen after a pause.
    pub const WEBHOOK: Self = Self {
        buffer_events_max: 10_000,
        batch_events_max: 400,
        batch_wait: Duration::from_secs(30),
        throttle: Some(Throttle { per_second: 10.0, burst: 15 }),
    };
}

/// How often something may happen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttle {
    /// How often in a second. Must be more than zero.
    pub per_second: f64,
    /// How often at once after a pause.
    pub burst: u32,
}

/// Who gets batches.
pub(crate) trait Receiver {
    /// Maximum number of batches that are on their way at the same time.
    const SENDING_MAX: usize;
    /// How long it gets batches after the end. `None`: until all are stored.
    const END_MAX: Option<Duration>;

    /// Stores a batch, and settles each of its events. `stop`: the worker ends.
    fn deliver(
        &self,
        audit: &Audit,
        batch: Vec<Entry>,
        stop: &CancellationToken,
    ) -> impl Future<Output = ()> + Send;
}

/// Delivers until `stop`, then what is still queued.
pub(crate) async fn run<R: Receiver + Sync>(
    audit: &Audit,
    receiver: &R,
    options: &BatchOptions,
    stop: CancellationToken,
) {
    let mut sending = FuturesUnordered::new();
    let mut bucket = Bucket::new(options.throttle, Instant::now());
    let batch_events_max = options.batch_events_max.max(1);
    // When the first event that waits is sent in any case.
    let mut due: Option<Instant> = None;
    let mut end: Option<Instant> = None;
    loop {
        let (now, n) = (Instant::now(), audit.n_waiting());
        let is_stopping = stop.is_cancelled();
        if is_stopping {
            if n == 0 && sending.is_empty() {
                audit.close();
                return;
            }
            end = end.or_else(|| R::END_MAX.map(|max| now + max));
            if end.is_some_and(|end| end <= now) {
                break;
            }
        }
        let is_due = options.batch_wait.is_zero() || due.is_some_and(|due| due <= now);
        let is_ready = n >= batch_events_max || n > 0 && (is_due || is_stopping);
        let mut wake = None;
        if is_ready && sending.len() < R::SENDING_MAX {
            match if is_stopping { Ok(()) } else { bucket.take(now) } {
                Ok(()) => {
                    due = None;
                    sending.push(receiver.deliver(audit, audit.take(batch_events_max), &stop));
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
    let n_lost = audit.close();
    tracing::error!(
        queued = n_lost,
        batches = sending.len(),
        "the receiver of audit events did not take all before the end"
    );
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
