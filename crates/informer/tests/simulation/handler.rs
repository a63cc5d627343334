//! Handlers that check each event when they receive it.
use crate::coverage::CoverPoint;
use crate::history::{Defect, ModelObject, ModelObjects, Name, OBJECTS_MAX};
use crate::reference::Cache;
use crate::server::Server;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use setpoint_informer::handler::TAKEN_MAX;
use setpoint_informer::{
    Event, Handler, HandlerOptions, HandlerRegistration, Lister, Object, SharedInformer, Snapshot,
    Tombstone,
};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The behavior of a handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandlerKind {
    Fast,
    Slow,
    /// Its first call ends when the test releases it.
    Blocked,
    Panics,
}

/// A handler in the informer, and the record of its events.
pub(crate) struct TestHandler {
    pub(crate) registration: HandlerRegistration,
    pub(crate) kind: HandlerKind,
    pub(crate) record: Arc<Mutex<HandlerRecord>>,
    queue_max: usize,
}

#[derive(Default)]
pub(crate) struct HandlerRecord {
    /// The objects that result from all its events.
    pub(crate) folded: ModelObjects,
    pub(crate) events: usize,
    is_running: bool,
    /// The running call has an object of the initial list.
    pub(crate) is_initial: bool,
    /// Its registration has reported that it has synced.
    pub(crate) is_synced: bool,
    /// The handler was removed, or its informer has ended.
    pub(crate) is_over: bool,
    unknown_deletions: u64,
    /// The position of the last state of the cache that this handler saw.
    position: usize,
    /// Names of some objects. They must be freed with the informer.
    pub(crate) weak_names: Vec<Weak<str>>,
}

struct CheckingHandler {
    id: usize,
    server: Server,
    lister: Lister<ConfigMap>,
    record: Arc<Mutex<HandlerRecord>>,
    kind: HandlerKind,
    rng: SmallRng,
    release: CancellationToken,
}

pub(crate) fn model(object: &Object<ConfigMap>) -> (Name, ModelObject) {
    let name = Name::read(object.namespace(), object.name());
    let version = object.resource_version().parse().unwrap_or_default();
    let uid = object.uid().trim_start_matches('u').parse().unwrap_or_default();
    (name, ModelObject { version, uid, defect: Defect::Plain })
}

pub(crate) fn cache_of(snapshot: &Snapshot<ConfigMap>) -> Cache {
    let objects: ModelObjects = snapshot.iter().map(|object| model(&object)).collect();
    Cache { version: snapshot.resource_version().to_owned(), objects: Arc::new(objects) }
}

impl Handler<ConfigMap> for CheckingHandler {
    async fn handle(&mut self, event: Event<ConfigMap>) {
        self.begin(&event);
        match self.kind {
            HandlerKind::Slow if !self.release.is_cancelled() => {
                sleep(Duration::from_millis(self.rng.random_range(1..3000))).await;
            }
            HandlerKind::Blocked => self.release.cancelled().await,
            _ => {}
        }
        drop(event);
        let panics = self.kind == HandlerKind::Panics
            && !self.release.is_cancelled()
            && self.rng.random_bool(0.3);
        let mut record = self.record.lock();
        (record.is_running, record.is_initial) = (false, false);
        drop(record);
        if panics {
            self.server.with(|state| state.count(CoverPoint::Panics));
            // Without a message on standard error.
            std::panic::resume_unwind(Box::new("a handler that panics"));
        }
    }
}

impl CheckingHandler {
    fn begin(&mut self, event: &Event<ConfigMap>) {
        let mut record = self.record.lock();
        record.events += 1;
        if let Some(key) = event.object().map(Object::key)
            && record.weak_names.len() < 8
        {
            record.weak_names.push(Arc::downgrade(&key.name));
        }
        let violation = self.check_event(&mut record, event);
        record.is_running = true;
        record.is_initial = event.in_initial_list();
        drop(record);
        let id = self.id;
        self.server.with(|state| {
            state.trace(|| format!("handler {id} {event:?}"));
            if let Some(rule) = violation {
                state.oracle.violated(format!("handler {id}: {rule}: {event:?}"));
            }
        });
    }

    /// Returns the rule that an event violates.
    fn check_event(&self, record: &mut HandlerRecord, event: &Event<ConfigMap>) -> Option<String> {
        let mut violation = None;
        let mut check = |holds: bool, rule: &str| {
            if !holds && violation.is_none() {
                violation = Some(rule.to_owned());
            }
        };
        check(!record.is_running, "SHI-4, two calls at once");
        check(!record.is_over, "invariant 13, a call after the end");
        check(
            !(record.is_synced && event.in_initial_list()),
            "invariant 6, an initial addition after the handler had synced",
        );
        let count = |point| self.server.with(|state| state.count(point));
        match event {
            Event::Added { object, in_initial_list } => {
                let (name, model) = model(object);
                count(if *in_initial_list {
                    CoverPoint::EventInitial
                } else {
                    CoverPoint::EventAdded
                });
                check(record.folded.insert(name, model).is_none(), "invariant 2, added twice");
            }
            Event::Updated { old, new } => {
                let ((name, was), (_, model)) = (model(old), model(new));
                let previous = record.folded.insert(name, model);
                check(
                    previous == Some(was),
                    "invariant 2, an update from another state than the last event's",
                );
                if was.uid == model.uid {
                    check(was.version <= model.version, "invariant 3, a version that decreases");
                } else {
                    count(CoverPoint::EventNewUid);
                    check(was.uid < model.uid, "invariant 3, an earlier incarnation returns");
                }
                count(if event.is_sync() {
                    CoverPoint::EventSync
                } else {
                    CoverPoint::EventUpdated
                });
            }
            Event::Deleted { tombstone } => {
                count(match tombstone {
                    Tombstone::Final(_) => CoverPoint::EventDeleted,
                    _ => CoverPoint::EventMissed,
                });
                let key = tombstone.key();
                let name = Name::read(&key.namespace, &key.name);
                match (record.folded.remove(&name), tombstone.object().map(model)) {
                    (None, _) => {
                        count(CoverPoint::EventUnknownDeleted);
                        record.unknown_deletions += 1;
                        let allowed = self.server.with(|s| s.reference.unknown_deletions);
                        check(
                            record.unknown_deletions <= allowed,
                            "invariant 2, deleted and never added",
                        );
                    }
                    (Some(was), Some((_, last))) => check(
                        was.uid < last.uid || (was.uid == last.uid && was.version <= last.version),
                        "invariant 3, deleted in an earlier state",
                    ),
                    (Some(_), None) => {}
                }
            }
            _ => check(false, "an event of an unknown kind"),
        }
        check(self.cache_is_current(event), "EVT-7, the cache is older than the event");
        check(
            event.is_sync() || self.cache_is_valid(&mut record.position),
            "invariants 3, 4 and 14, the cache is not in a state of the reference",
        );
        violation
    }

    /// Whether the cache is in a state of the reference.
    fn cache_is_valid(&self, position: &mut usize) -> bool {
        let cache = cache_of(&self.lister.snapshot());
        let found = self.server.with(|state| state.reference.find(*position, &cache));
        *position = found.unwrap_or(*position);
        found.is_some()
    }

    /// EVT-7: whether the cache has the state of the event, or a later one.
    fn cache_is_current(&self, event: &Event<ConfigMap>) -> bool {
        let Some((_, record)) = event.object().map(model) else { return true };
        let cached = self.lister.object(event.key()).map(|object| model(&object).1);
        match (event, cached) {
            (Event::Deleted { .. }, Some(cached)) => cached.uid > record.uid,
            (_, Some(cached)) => cached.uid > record.uid || cached.version >= record.version,
            (_, None) => true,
        }
    }
}

impl TestHandler {
    pub(crate) fn add(
        id: usize,
        informer: &SharedInformer<ConfigMap>,
        server: &Server,
        rng: &mut SmallRng,
        release: &CancellationToken,
    ) -> Option<Self> {
        let kind = match rng.random_range(0..10) {
            0..5 => HandlerKind::Fast,
            5..8 => HandlerKind::Slow,
            8 => HandlerKind::Panics,
            _ => HandlerKind::Blocked,
        };
        let record = Arc::new(Mutex::new(HandlerRecord::default()));
        let handler = CheckingHandler {
            id,
            server: server.clone(),
            lister: informer.lister(),
            record: record.clone(),
            kind,
            rng: SmallRng::seed_from_u64(rng.random()),
            release: release.clone(),
        };
        let queue_max = if rng.random() { rng.random_range(1..8) } else { 1024 };
        let mut options = HandlerOptions::default().queue_max(queue_max);
        if rng.random_bool(0.3) {
            options = options.resync(Duration::from_millis(rng.random_range(0..30_000)));
            server.with(|state| state.count(CoverPoint::OwnResync));
        }
        server.with(|state| {
            match kind {
                HandlerKind::Slow => state.count(CoverPoint::Slow),
                HandlerKind::Blocked => state.count(CoverPoint::Blocked),
                _ => {}
            }
            state.trace(|| format!("handler {id} is {kind:?}, {options:?}"));
        });
        let registration = informer.add_handler(handler, options).ok()?;
        Some(Self { registration, kind, record, queue_max })
    }

    /// Checks the invariants of a handler that hold at any time.
    pub(crate) fn check(
        &self,
        informer: &SharedInformer<ConfigMap>,
        server: &Server,
    ) -> Result<(), String> {
        let waiting = self.registration.pending();
        if waiting >= self.queue_max {
            server.with(|state| state.count(CoverPoint::QueueFull));
        }
        // Two walks over all objects, and the three sequences of events that they separate.
        let most = self.queue_max + (2 + 3 * 2) * OBJECTS_MAX + TAKEN_MAX;
        if waiting > most {
            return Err(format!("SHI-5: {waiting} notifications are pending, the limit is {most}"));
        }
        if self.registration.has_synced() {
            let mut record = self.record.lock();
            if record.is_initial && !record.is_synced {
                return Err("invariant 6: a handler synced within an initial call".to_owned());
            }
            record.is_synced = true;
            if !informer.has_synced() {
                return Err("SHI-9: a handler synced before its informer".to_owned());
            }
        }
        Ok(())
    }

    /// Removes it. No call starts afterwards.
    pub(crate) async fn remove(self) -> Arc<Mutex<HandlerRecord>> {
        self.registration.remove_and_wait().await.unwrap();
        self.record.lock().is_over = true;
        self.record
    }

    /// The objects that result from all its events.
    pub(crate) fn folded(&self) -> ModelObjects {
        self.record.lock().folded.clone()
    }
}
