//! Handlers: what each is told is checked as it is told.
use crate::coverage::Seen;
use crate::reference::Cache;
use crate::server::Server;
use crate::world::{Flavor, Name, THINGS_MAX, Thing, Things};
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

/// How a handler is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Temper {
    Quick,
    Slow,
    /// Its first call ends when the test lets it.
    Blocked,
    Panics,
}

/// One handler's place, and what it was told.
pub(crate) struct Witness {
    pub(crate) registration: HandlerRegistration,
    pub(crate) temper: Temper,
    pub(crate) told: Arc<Mutex<Told>>,
    queue_max: usize,
}

#[derive(Default)]
pub(crate) struct Told {
    /// What a handler that folds its events believes.
    pub(crate) believes: Things,
    pub(crate) events: usize,
    is_running: bool,
    /// The running call is about the initial list.
    pub(crate) is_initial: bool,
    /// Its registration has said that it is synced.
    pub(crate) is_synced: bool,
    /// It was removed, or its informer has ended.
    pub(crate) is_over: bool,
    unknown_deletions: u64,
    /// Where among its states this handler saw the cache last.
    position: usize,
    /// Names of objects that were seen: they must go with the informer.
    pub(crate) weak: Vec<Weak<str>>,
}

struct Teller {
    id: usize,
    server: Server,
    lister: Lister<ConfigMap>,
    told: Arc<Mutex<Told>>,
    temper: Temper,
    rng: SmallRng,
    release: CancellationToken,
}

pub(crate) fn thing(object: &Object<ConfigMap>) -> (Name, Thing) {
    let name = Name::read(object.namespace(), object.name());
    let version = object.resource_version().parse().unwrap_or_default();
    let uid = object.uid().trim_start_matches('u').parse().unwrap_or_default();
    (name, Thing { version, uid, flavor: Flavor::Plain })
}

pub(crate) fn cache_of(snapshot: &Snapshot<ConfigMap>) -> Cache {
    let things: Things = snapshot.iter().map(|object| thing(&object)).collect();
    Cache { version: snapshot.resource_version().to_owned(), things: Arc::new(things) }
}

impl Handler<ConfigMap> for Teller {
    async fn handle(&mut self, event: Event<ConfigMap>) {
        self.begin(&event);
        match self.temper {
            Temper::Slow if !self.release.is_cancelled() => {
                sleep(Duration::from_millis(self.rng.random_range(1..3000))).await;
            }
            Temper::Blocked => self.release.cancelled().await,
            _ => {}
        }
        drop(event);
        let panics = self.temper == Temper::Panics
            && !self.release.is_cancelled()
            && self.rng.random_bool(0.3);
        let mut told = self.told.lock();
        (told.is_running, told.is_initial) = (false, false);
        drop(told);
        if panics {
            self.server.with(|state| state.note(Seen::Panics));
            // Says nothing on the standard error.
            std::panic::resume_unwind(Box::new("a handler that panics"));
        }
    }
}

impl Teller {
    fn begin(&mut self, event: &Event<ConfigMap>) {
        let mut told = self.told.lock();
        told.events += 1;
        if let Some(key) = event.object().map(Object::key)
            && told.weak.len() < 8
        {
            told.weak.push(Arc::downgrade(&key.name));
        }
        let wrong = self.judge(&mut told, event);
        told.is_running = true;
        told.is_initial = event.in_initial_list();
        drop(told);
        let id = self.id;
        self.server.with(|state| {
            state.trace(|| format!("handler {id} {event:?}"));
            if let Some(rule) = wrong {
                state.oracle.broken(format!("handler {id}: {rule}: {event:?}"));
            }
        });
    }

    /// The rule that an event breaks.
    fn judge(&self, told: &mut Told, event: &Event<ConfigMap>) -> Option<String> {
        let mut wrong = None;
        let mut check = |holds: bool, rule: &str| {
            if !holds && wrong.is_none() {
                wrong = Some(rule.to_owned());
            }
        };
        check(!told.is_running, "SHI-4, two calls at once");
        check(!told.is_over, "invariant 13, a call after the end");
        check(
            !(told.is_synced && event.in_initial_list()),
            "invariant 6, an initial addition after the handler had synced",
        );
        let note = |seen| self.server.with(|state| state.note(seen));
        match event {
            Event::Added { object, in_initial_list } => {
                let (name, thing) = thing(object);
                note(if *in_initial_list { Seen::ToldInitial } else { Seen::ToldAdded });
                check(told.believes.insert(name, thing).is_none(), "invariant 2, added twice");
            }
            Event::Updated { old, new } => {
                let ((name, was), (_, thing)) = (thing(old), thing(new));
                let believed = told.believes.insert(name, thing);
                check(believed == Some(was), "invariant 2, an update from what was not told");
                if was.uid == thing.uid {
                    check(was.version <= thing.version, "invariant 3, a version that decreases");
                } else {
                    note(Seen::ToldNewUid);
                    check(was.uid < thing.uid, "invariant 3, an incarnation that comes back");
                }
                note(if event.is_sync() { Seen::ToldSync } else { Seen::ToldUpdated });
            }
            Event::Deleted { tombstone } => {
                note(match tombstone {
                    Tombstone::Final(_) => Seen::ToldFinal,
                    _ => Seen::ToldMissed,
                });
                let key = tombstone.key();
                let name = Name::read(&key.namespace, &key.name);
                match (told.believes.remove(&name), tombstone.object().map(thing)) {
                    (None, _) => {
                        note(Seen::ToldUnknownDeleted);
                        told.unknown_deletions += 1;
                        let excused = self.server.with(|s| s.reference.unknown_deletions);
                        check(
                            told.unknown_deletions <= excused,
                            "invariant 2, deleted and never added",
                        );
                    }
                    (Some(was), Some((_, last))) => check(
                        was.uid < last.uid || (was.uid == last.uid && was.version <= last.version),
                        "invariant 3, deleted as it was before",
                    ),
                    (Some(_), None) => {}
                }
            }
            _ => check(false, "an event of an unknown kind"),
        }
        check(self.cache_is_as_new(event), "EVT-7, the cache is older than the event");
        check(
            event.is_sync() || self.cache_is_right(&mut told.position),
            "invariants 3, 4 and 14, the cache is in no state it could be in",
        );
        wrong
    }

    /// Whether the cache is in a state that it has to go through.
    fn cache_is_right(&self, position: &mut usize) -> bool {
        let cache = cache_of(&self.lister.snapshot());
        let found = self.server.with(|state| state.reference.find(*position, &cache));
        *position = found.unwrap_or(*position);
        found.is_some()
    }

    /// EVT-7: the cache has the state that is told, or a later one.
    fn cache_is_as_new(&self, event: &Event<ConfigMap>) -> bool {
        let Some((_, told)) = event.object().map(thing) else { return true };
        let cached = self.lister.object(event.key()).map(|object| thing(&object).1);
        match (event, cached) {
            (Event::Deleted { .. }, Some(cached)) => cached.uid > told.uid,
            (_, Some(cached)) => cached.uid > told.uid || cached.version >= told.version,
            (_, None) => true,
        }
    }
}

impl Witness {
    pub(crate) fn join(
        id: usize,
        informer: &SharedInformer<ConfigMap>,
        server: &Server,
        rng: &mut SmallRng,
        release: &CancellationToken,
    ) -> Option<Self> {
        let temper = match rng.random_range(0..10) {
            0..5 => Temper::Quick,
            5..8 => Temper::Slow,
            8 => Temper::Panics,
            _ => Temper::Blocked,
        };
        let told = Arc::new(Mutex::new(Told::default()));
        let teller = Teller {
            id,
            server: server.clone(),
            lister: informer.lister(),
            told: told.clone(),
            temper,
            rng: SmallRng::seed_from_u64(rng.random()),
            release: release.clone(),
        };
        let queue_max = if rng.random() { rng.random_range(1..8) } else { 1024 };
        let mut options = HandlerOptions::default().queue_max(queue_max);
        if rng.random_bool(0.3) {
            options = options.resync(Duration::from_millis(rng.random_range(0..30_000)));
            server.with(|state| state.note(Seen::OwnResync));
        }
        server.with(|state| {
            match temper {
                Temper::Slow => state.note(Seen::Slow),
                Temper::Blocked => state.note(Seen::Blocked),
                _ => {}
            }
            state.trace(|| format!("handler {id} is {temper:?}, {options:?}"));
        });
        let registration = informer.add_handler(teller, options).ok()?;
        Some(Self { registration, temper, told, queue_max })
    }

    /// What can be said of a handler at any time.
    pub(crate) fn look(
        &self,
        informer: &SharedInformer<ConfigMap>,
        server: &Server,
    ) -> Result<(), String> {
        let waiting = self.registration.pending();
        if waiting >= self.queue_max {
            server.with(|state| state.note(Seen::QueueFull));
        }
        // Two walks over all objects, and three runs of events that they separate.
        let most = self.queue_max + (2 + 3 * 2) * THINGS_MAX + TAKEN_MAX;
        if waiting > most {
            return Err(format!("SHI-5: {waiting} notifications wait, at most {most} may"));
        }
        if self.registration.has_synced() {
            let mut told = self.told.lock();
            if told.is_initial && !told.is_synced {
                return Err("invariant 6: a handler synced within an initial call".to_owned());
            }
            told.is_synced = true;
            if !informer.has_synced() {
                return Err("SHI-9: a handler synced before its informer".to_owned());
            }
        }
        Ok(())
    }

    /// Removes it; no call starts after this.
    pub(crate) async fn leave(self) -> Arc<Mutex<Told>> {
        self.registration.remove_and_wait().await.unwrap();
        self.told.lock().is_over = true;
        self.told
    }

    /// What it believes, without what does not show in a cache.
    pub(crate) fn believes(&self) -> Things {
        self.told.lock().believes.clone()
    }
}
