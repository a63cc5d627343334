//! Watch streams: positions in the history.

use crate::calls::Shared;
use crate::grpc::{Messages, Status};
use crate::keyspace::{Change, KeyRange, Keyspace};
use crate::proto::{Event, WatchCreateRequest, WatchRequest, WatchRequestUnion, WatchResponse};
use bytes::Bytes;
use futures::Stream;
use http_body::Body;
use setpoint_grpc::frame;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

/// Maximum number of watches of one stream.
pub const WATCHES_MAX: usize = 10_000;
/// About how many bytes of events are sent at once. One revision is not divided.
pub const EVENTS_BYTES: usize = 1 << 20;
/// Time between two progress notifications, as in etcd.
const PROGRESS_PERIOD: Duration = Duration::from_secs(10 * 60);
/// The id of answers to the whole stream, and of creations that failed.
const NO_WATCH: i64 = -1;

/// One watch.
#[derive(Debug)]
struct Watcher {
    range: KeyRange,
    /// The first revision that has not been sent.
    next: i64,
    skips_puts: bool,
    skips_deletes: bool,
    with_previous: bool,
    with_progress: bool,
}

/// The watches of a stream.
struct Watches {
    shared: Arc<Shared>,
    watchers: BTreeMap<i64, Watcher>,
    next_id: i64,
    /// Answers that are ready to be sent.
    ready: VecDeque<WatchResponse>,
}

/// Why the stream waits no longer.
enum Woken {
    Request(Option<WatchRequest>),
    Revision,
    Progress,
}

/// The answers of a watch stream. It ends with its requests, or when the server stops.
pub(crate) fn answers<B>(
    shared: Arc<Shared>,
    requests: Messages<B>,
) -> impl Stream<Item = Result<Bytes, Status>> + Send + 'static
where
    B: Body<Data = Bytes, Error: Send> + Unpin + Send + 'static,
{
    let revision = shared.revisions();
    let mut progress = tokio::time::interval_at(Instant::now() + PROGRESS_PERIOD, PROGRESS_PERIOD);
    progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watches = Watches { shared, watchers: BTreeMap::new(), next_id: 0, ready: VecDeque::new() };
    let state = (watches, requests, revision, progress, false);
    futures::stream::unfold(
        state,
        async |(mut watches, mut requests, mut revision, mut progress, is_over)| {
            if is_over {
                return None;
            }
            loop {
                // Marked as seen before the history is read.
                revision.borrow_and_update();
                watches.advance();
                if let Some(answer) = watches.ready.pop_front() {
                    return Some((
                        Ok(frame(&answer)),
                        (watches, requests, revision, progress, false),
                    ));
                }
                let woken = match wait(&mut requests, &mut revision, &mut progress).await {
                    Ok(woken) => woken,
                    Err(status) => {
                        return Some((Err(status), (watches, requests, revision, progress, true)));
                    }
                };
                match woken {
                    Woken::Request(Some(request)) => watches.request(request),
                    Woken::Request(None) => return None,
                    Woken::Revision => {}
                    Woken::Progress => watches.progress(),
                }
            }
        },
    )
}

async fn wait<B: Body<Data = Bytes> + Unpin>(
    requests: &mut Messages<B>,
    revision: &mut watch::Receiver<i64>,
    progress: &mut tokio::time::Interval,
) -> Result<Woken, Status> {
    tokio::select! {
        biased;
        // Cancel safe: a partial message stays with `requests`.
        request = requests.next() => Ok(Woken::Request(request?)),
        // Cancel safe: it waits for a state. An error means that the server has ended.
        changed = revision.changed() => Ok(match changed {
            Ok(()) => Woken::Revision,
            Err(_) => Woken::Request(None),
        }),
        // Cancel safe: a dropped `tick` fires next time.
        _ = progress.tick() => Ok(Woken::Progress),
    }
}

impl Watches {
    fn answer(&self, revision: i64, watch_id: i64) -> WatchResponse {
        let header = Some(self.shared.header(revision));
        WatchResponse { header, watch_id, ..WatchResponse::default() }
    }

    fn request(&mut self, request: WatchRequest) {
        let revision = self.shared.keys.lock().revision;
        match request.request {
            Some(WatchRequestUnion::Create(create)) => self.create(create, revision),
            Some(WatchRequestUnion::Cancel(cancel)) => self.cancel(cancel.watch_id, revision),
            // Everything before has been sent: `advance` precedes.
            Some(WatchRequestUnion::Progress(_)) => self.progress_of_stream(),
            None => {}
        }
    }

    fn cancel(&mut self, id: i64, revision: i64) {
        if self.watchers.remove(&id).is_some() {
            let canceled = self.answer(revision, id);
            self.ready.push_back(WatchResponse { canceled: true, ..canceled });
        }
    }

    fn create(&mut self, create: WatchCreateRequest, revision: i64) {
        let refuse = |this: &mut Self, why: &str| {
            let refused = this.answer(revision, NO_WATCH);
            let cancel_reason = why.to_owned();
            this.ready.push_back(WatchResponse {
                created: true,
                canceled: true,
                cancel_reason,
                ..refused
            });
        };
        if self.watchers.len() >= WATCHES_MAX {
            return refuse(self, "etcdserver: too many watches on one stream");
        }
        // An empty key with an end means all keys before it; alone, the first key.
        let key = if create.key.is_empty() { Bytes::from_static(b"\0") } else { create.key };
        let range = KeyRange::new(key, create.range_end);
        if range.is_inverted() {
            return refuse(self, "mvcc: watcher range is empty");
        }
        let id = match create.watch_id {
            0 => loop {
                let id = self.next_id;
                self.next_id += 1;
                if !self.watchers.contains_key(&id) {
                    break id;
                }
            },
            id if self.watchers.contains_key(&id) => {
                return refuse(self, "mvcc: duplicate watch ID provided on the WatchStream");
            }
            id => id,
        };
        let created = self.answer(revision, id);
        self.ready.push_back(WatchResponse { created: true, ..created });
        let watcher = Watcher {
            range,
            next: if create.start_revision > 0 { create.start_revision } else { revision + 1 },
            skips_puts: create.filters.contains(&0),
            skips_deletes: create.filters.contains(&1),
            with_previous: create.prev_kv,
            with_progress: create.progress_notify,
        };
        self.watchers.insert(id, watcher);
    }

    /// Adds the answers about changes since the last time. At most one answer for each watch, so
    /// that a client that reads slowly holds no more.
    fn advance(&mut self) {
        if !self.ready.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        let keys = shared.keys.lock();
        let mut compacted = Vec::new();
        for (id, watcher) in &mut self.watchers {
            if watcher.next > keys.revision {
                continue;
            }
            let header = Some(shared.header(keys.revision));
            let answer = WatchResponse { header, watch_id: *id, ..WatchResponse::default() };
            if watcher.next < keys.compacted {
                let compact_revision = keys.compacted;
                let cancel_reason = Status::compacted().to_string();
                self.ready.push_back(WatchResponse {
                    canceled: true,
                    compact_revision,
                    cancel_reason,
                    ..answer
                });
                compacted.push(*id);
                continue;
            }
            let events = watcher.events(&keys);
            if !events.is_empty() {
                self.ready.push_back(WatchResponse { events, ..answer });
            }
        }
        drop(keys);
        for id in compacted {
            self.watchers.remove(&id);
        }
    }

    /// Progress of the whole stream.
    fn progress_of_stream(&mut self) {
        self.advance();
        // What is ready is sent before. A watch that begins in the future has nothing to send.
        let revision = self.shared.keys.lock().revision;
        let sent = self.watchers.values().map(|watcher| watcher.next - 1).min();
        let answer = self.answer(sent.map_or(revision, |sent| sent.min(revision)), NO_WATCH);
        self.ready.push_back(answer);
    }

    /// Progress of the watches that request it.
    fn progress(&mut self) {
        let revision = self.shared.keys.lock().revision;
        let notified = self.watchers.iter().filter(|(_, watcher)| watcher.with_progress);
        let answer =
            |(id, watcher): (&i64, &Watcher)| self.answer(revision.min(watcher.next - 1), *id);
        let answers: Vec<_> = notified.map(answer).collect();
        self.ready.extend(answers);
    }
}

impl Watcher {
    /// The next events, complete revisions only; moves on behind them.
    fn events(&mut self, keys: &Keyspace) -> Vec<Event> {
        let mut events = Vec::new();
        let (mut n_bytes, mut last) = (0, 0);
        for change in keys.changes_from(self.next) {
            let revision = change.kv.mod_revision;
            if n_bytes > EVENTS_BYTES && revision != last {
                self.next = revision;
                return events;
            }
            last = revision;
            if self.wants(change) {
                n_bytes += change.kv.value.len() + change.kv.key.len();
                events.push(self.event(change));
            }
        }
        self.next = keys.revision + 1;
        events
    }

    fn wants(&self, change: &Change) -> bool {
        let is_skipped = if change.is_delete { self.skips_deletes } else { self.skips_puts };
        !is_skipped && self.range.contains(&change.kv.key)
    }

    fn event(&self, change: &Change) -> Event {
        Event {
            kind: if change.is_delete { Event::DELETE } else { Event::PUT },
            kv: Some(change.kv.clone()),
            prev_kv: change.previous.clone().filter(|_| self.with_previous),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Options;

    fn watches() -> Watches {
        let shared = Shared::new(Options::default());
        Watches { shared, watchers: BTreeMap::new(), next_id: 0, ready: VecDeque::new() }
    }

    fn create(watches: &mut Watches, create: WatchCreateRequest) -> WatchResponse {
        watches.request(WatchRequest { request: Some(WatchRequestUnion::Create(create)) });
        watches.ready.pop_front().unwrap()
    }

    /// Progress of a watch that begins in the future promised revisions that did not exist: its
    /// client would have resumed behind them.
    #[test]
    fn progress_is_never_ahead_of_the_store() {
        let mut watches = watches();
        let key = || Bytes::from_static(b"a");
        let later = WatchCreateRequest {
            key: key(),
            start_revision: 1_000,
            progress_notify: true,
            ..WatchCreateRequest::default()
        };
        assert!(create(&mut watches, later).created);
        watches.progress_of_stream();
        watches.progress();
        let revision = |answer: WatchResponse| (answer.watch_id, answer.header.unwrap().revision);
        let seen: Vec<_> = watches.ready.drain(..).map(revision).collect();
        assert_eq!(seen, [(NO_WATCH, 1), (0, 1)]);
    }

    #[test]
    fn a_watch_of_no_keys_is_refused() {
        let mut watches = watches();
        let (key, range_end) = (Bytes::from_static(b"b"), Bytes::from_static(b"a"));
        let inverted = WatchCreateRequest { key, range_end, ..WatchCreateRequest::default() };
        let refused = create(&mut watches, inverted);
        assert!(refused.created && refused.canceled && refused.watch_id == NO_WATCH);
        assert_eq!(refused.cancel_reason, "mvcc: watcher range is empty");
    }
}
