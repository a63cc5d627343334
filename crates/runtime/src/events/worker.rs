//! Correlates and writes events.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use hashbrown::HashMap;
use http::{HeaderValue, Method, Request, header};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio_util::sync::CancellationToken;

use super::{
    EVENT_QUEUE_MAX,
    correlator::{Correlator, Record, Write},
    encode,
    event::Emitted,
    loss::{Losses, count},
    recorder::{EventOptions, EventQueue},
};
use crate::{
    client::{Call, Client, ClientError},
    error::chain,
    events::EventApi,
};

/// How many events are written concurrently: 8, as client-go's newer recorder. A retry then delays
/// few others.
const WRITES_MAX: usize = 8;

/// Writes the events of recorders; owned by the manager.
pub(crate) struct EventWorker {
    // Helpers.
    client: Client,
    options: EventOptions,
    rng: SmallRng,

    // Inputs.
    queue: EventQueue,

    // State.
    correlator: Correlator,
    outbox: Outbox,
}

impl EventWorker {
    pub(crate) fn new(client: Client, queue: EventQueue, options: EventOptions, seed: u64) -> Self {
        let correlator = Correlator::new(options.api);
        let rng = SmallRng::seed_from_u64(seed);
        Self { client, options, rng, queue, correlator, outbox: Outbox::default() }
    }

    /// Writes until `stop`; then writes the queued events and the last counts of series, each with
    /// a single try.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let sender = Arc::new(Sender {
            client: self.client.clone(),
            options: self.options.clone(),
            losses: self.queue.losses.clone(),
            stop: stop.clone(),
        });
        let mut writes = FuturesUnordered::new();
        let mut is_ending = false;
        loop {
            while writes.len() < WRITES_MAX
                && let Some(write) = self.outbox.next()
            {
                let rng = SmallRng::from_rng(&mut self.rng);
                writes.push(sender.clone().deliver(write, rng));
            }
            if is_ending && writes.is_empty() {
                return;
            }
            let clock = &self.queue.clock;
            let due = self.correlator.next_due().map(|due| due.since(clock.now()));
            tokio::select! {
                biased;
                // Cancel safe: a result that was not taken stays.
                Some(name) = writes.next() => self.outbox.done(&name),
                // Cancel safe: a dropped `recv` takes nothing.
                Some(emitted) = self.queue.receiver.recv(), if !is_ending => self.take(*emitted),
                // Cancel safe: it only observes.
                () = stop.cancelled(), if !is_ending => {
                    is_ending = true;
                    self.end();
                }
                // Cancel safe: it only waits.
                () = tokio::time::sleep(due.unwrap_or_default()), if !is_ending && due.is_some() => {
                    let writes = self.correlator.due(self.queue.clock.now());
                    self.push(writes);
                }
                // No recorder is left, nothing is being written, and nothing is due.
                else => return,
            }
        }
    }

    fn take(&mut self, emitted: Emitted) {
        let writes = self.correlator.take(emitted);
        let n_held_back = self.correlator.take_held_back();
        self.queue.losses.held_back.fetch_add(n_held_back, Ordering::Relaxed);
        self.push(writes.into_iter().flatten());
    }

    /// Takes the events that are queued now, and refuses later ones.
    fn end(&mut self) {
        self.queue.receiver.close();
        while let Ok(emitted) = self.queue.receiver.try_recv() {
            self.take(*emitted);
        }
        let writes = self.correlator.end(self.queue.clock.now());
        self.push(writes);
    }

    fn push(&mut self, writes: impl IntoIterator<Item = Write>) {
        for write in writes {
            if !self.outbox.push(write) {
                count(&self.queue.losses.queue_full);
            }
        }
    }
}

/// The writes in order, with one write per event at a time.
#[derive(Default)]
pub(super) struct Outbox {
    /// The names of the events that wait, each once, in order.
    order: VecDeque<Arc<str>>,
    waiting: HashMap<Arc<str>, Write>,
    /// The names of the events being written: at most [`WRITES_MAX`].
    in_flight: BTreeSet<Arc<str>>,
}

impl Outbox {
    /// Adds a write, or replaces the waiting one of the same event. Returns false if it is full.
    pub(super) fn push(&mut self, write: Write) -> bool {
        let name = &write.record().name;
        if let Some(waiting) = self.waiting.get_mut(name) {
            let (Write::Create(old) | Write::More(old)) = waiting;
            old.clone_from(write.record());
            return true;
        }
        if self.waiting.len() >= EVENT_QUEUE_MAX {
            return false;
        }
        self.order.push_back(name.clone());
        self.waiting.insert(name.clone(), write);
        true
    }

    /// The next write of an event that is not being written.
    pub(super) fn next(&mut self) -> Option<Write> {
        // Near the front: only events in flight are passed over.
        let at = self.order.iter().position(|name| !self.in_flight.contains(name))?;
        let name = self.order.remove(at)?;
        let write = self.waiting.remove(&name)?;
        self.in_flight.insert(name);
        Some(write)
    }

    /// A write has ended.
    pub(super) fn done(&mut self, name: &Arc<str>) {
        self.in_flight.remove(name);
    }
}

/// How often the write of an event is tried: 12, as client-go.
const TRIES_MAX: u32 = 12;
/// The delay between two tries: 10 s, as client-go. With the core API the first delay is a random
/// part of it; with the newer one every delay is up to a quarter longer.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// What all writes share.
pub(super) struct Sender {
    pub(super) client: Client,
    pub(super) options: EventOptions,
    pub(super) losses: Arc<Losses>,
    /// After it is cancelled, every write is tried once.
    pub(super) stop: CancellationToken,
}

/// What an answer means for a write.
enum Verdict {
    /// Written.
    Written,
    /// Refused; a retry would be too.
    Refused,
    /// Failed; retry.
    Again,
    /// The request is invalid.
    Impossible,
}

impl Sender {
    /// Writes one event, or counts it as lost. Returns the event's name.
    pub(super) async fn deliver(self: Arc<Self>, mut write: Write, mut rng: SmallRng) -> Arc<str> {
        let name = write.record().name.clone();
        for n_tries in 1.. {
            let Err(error) = self.attempt(&mut write).await else { return name };
            match self.verdict(&write, &error, n_tries) {
                Verdict::Written => return name,
                Verdict::Again if n_tries < TRIES_MAX && !self.stop.is_cancelled() => {}
                Verdict::Again => {
                    return self.lose(name, &self.losses.unreachable, &error, n_tries);
                }
                Verdict::Refused | Verdict::Impossible => {
                    return self.lose(name, &self.losses.refused, &error, n_tries);
                }
            }
            let part = rng.random::<f64>();
            let pause = match (write.record().group.api, n_tries) {
                (EventApi::New, _) => RETRY_PAUSE.mul_f64(1.0 + part / 4.0),
                (EventApi::Core, 1) => RETRY_PAUSE.mul_f64(part),
                (EventApi::Core, _) => RETRY_PAUSE,
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        name
    }

    fn lose(
        &self,
        name: Arc<str>,
        counter: &std::sync::atomic::AtomicU64,
        error: &ClientError,
        n_tries: u32,
    ) -> Arc<str> {
        count(counter);
        if is_namespace_terminating(error) {
            tracing::debug!(event = &*name, "an event is lost: its namespace is being deleted");
        } else {
            tracing::warn!(event = &*name, error = chain(error), n_tries, "an event is lost");
        }
        name
    }

    fn verdict(&self, write: &Write, error: &ClientError, n_tries: u32) -> Verdict {
        let is_more = matches!(write, Write::More(_));
        match error {
            // It was created between a failed patch and this create: it can be patched now.
            error if error.is_already_exists() && is_more => Verdict::Again,
            // An earlier try succeeded, and its answer was lost.
            error if error.is_already_exists() && n_tries > 1 => Verdict::Written,
            // The codes that client-go's REST client retries.
            ClientError::Api { source, .. } if matches!(source.code(), 429 | 503) => Verdict::Again,
            ClientError::Api { .. } => Verdict::Refused,
            ClientError::Request { .. } => Verdict::Impossible,
            _ => Verdict::Again,
        }
    }

    /// Tries to write once. A repeated event that is gone from the server is created again.
    async fn attempt(&self, write: &mut Write) -> Result<(), ClientError> {
        if let Write::More(record) = write {
            match self.send(Method::PATCH, record).await {
                Err(error) if error.is_not_found() => {}
                answer => return answer,
            }
        }
        self.send(Method::POST, write.record()).await
    }

    async fn send(&self, method: Method, record: &Record) -> Result<(), ClientError> {
        let (namespace, group) = (encode::namespace(record), &record.group);
        let (verb, name, content_type, body) = if method == Method::POST {
            let body = encode::created(record, &self.options.host);
            ("create", "", "application/json", body)
        } else {
            ("patch", &*record.name, "application/merge-patch+json", encode::more(record))
        };
        let manager = group.source.field_manager.as_deref();
        let manager = manager.or(self.client.manager_of_fields());
        let path = encode::target(record, name, manager);
        let resource = match group.api {
            EventApi::New => "events.events.k8s.io",
            EventApi::Core => "events",
        };
        let object = format!("{namespace}/{}", record.name);
        let call = Call { verb, resource: resource.into(), object };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, HeaderValue::from_static(content_type))
            .body(body.to_string().into_bytes());
        match request {
            Ok(request) => self.client.send(call, request).await.map(drop),
            Err(source) => Err(ClientError::Request { call, source: source.into() }),
        }
    }
}

/// Whether a write was refused because the namespace is being deleted.
fn is_namespace_terminating(error: &ClientError) -> bool {
    error.api().is_some_and(|error| {
        let mut causes = error.0.details.iter().flat_map(|details| &details.causes);
        causes.any(|cause| cause.reason == "NamespaceTerminating")
    })
}

#[cfg(test)]
mod tests {
    use setpoint_object::time::Timestamp;

    use super::*;
    use crate::events::{
        EventType, ObjectReference,
        correlator::{Group, Record, Write},
        event::Source,
    };

    fn record(name: &str, count: u32) -> Record {
        let group = Group {
            regarding: Arc::default(),
            related: None,
            event_type: EventType::Normal,
            reason: "R".into(),
            action: "A".into(),
            api: EventApi::New,
            source: Source { component: "c".into(), api: None, field_manager: None },
        };
        let at = Timestamp::default();
        Record {
            name: name.into(),
            group: Arc::new(group),
            regarding: ObjectReference::default(),
            note: "n".into(),
            first: at,
            last: at,
            count,
        }
    }

    #[test]
    fn one_write_of_an_event_at_a_time_and_the_waiting_one_is_the_newest() {
        let mut outbox = Outbox::default();
        assert!(outbox.push(Write::Create(record("a", 1))));
        assert!(outbox.push(Write::Create(record("b", 1))));
        assert!(outbox.push(Write::More(record("b", 2))));
        let first = outbox.next().unwrap();
        assert_eq!(first, Write::Create(record("a", 1)));
        assert!(outbox.push(Write::More(record("a", 2))));
        assert_eq!(
            outbox.next(),
            Some(Write::Create(record("b", 2))),
            "it has not been created yet"
        );
        assert_eq!(outbox.next(), None, "a is being written");
        outbox.done(&first.record().name);
        assert_eq!(outbox.next(), Some(Write::More(record("a", 2))));
    }

    #[test]
    fn full_outbox_refuses_writes() {
        let mut outbox = Outbox::default();
        for n in 0..EVENT_QUEUE_MAX {
            assert!(outbox.push(Write::Create(record(&n.to_string(), 1))));
        }
        assert!(!outbox.push(Write::Create(record("one more", 1))));
        assert!(outbox.push(Write::More(record("7", 2))), "it replaces the waiting write");
    }
}
