//! Priority and fairness: which requests run, which wait, and which are refused when the server has
//! much to do.
//!
//! # Theory
//!
//! ```text
//! request ─▶ FlowSchema (the first that matches) ─▶ its level ─▶ seat │ queue, then seat │ 429
//! ```
//!
//! FlowSchemas and PriorityLevelConfigurations are taken from the watch cache at each request and
//! compiled once per version ([`config`]), so a change has effect as soon as the cache has it. The
//! [`scheduler`] decides who runs. It is behind one lock, which is held for a step of its state
//! machine only. Requests of an exempt level take no lock.
//!
//! | a request | seats |
//! |---|---|
//! | of an exempt level; a stream to a node, a Service or a pod | none |
//! | a list | one per hundred objects of the resource or of its page, at most ten, 15 % of the level, and what leaves each queue of a flow as much |
//! | a watch | one until it is established |
//! | any other | one until its answer is ready |
//!
//! A waiting request is refused after [`WAIT_MAX`], or a quarter of its own deadline.

mod config;
mod dump;
mod scheduler;
mod stats;
mod utilization;

pub(crate) use config::Schema;
pub(crate) use dump::Page;
pub use stats::{FlowControl, FlowFigures, LevelFigures};
pub use utilization::UtilizationFigures;

use config::Config;
use http::{HeaderMap, HeaderName};
use parking_lot::{Mutex, RwLock};
use scheduler::{
    Arrival, Dispatched, LevelId, Limits, Response, Running, Scheduler, Ticket, Waiting,
};
use setpoint_object::keys;
use setpoint_registry::{Attributes, Registry, Requested, StoredObject, Verb};
use stats::{Reason, Stats};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The group of schemas and levels.
const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// How long a request waits in a queue: 15 s, a quarter of the longest deadline, as in
/// kube-apiserver.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(15);
/// The objects of a list that take one seat.
const OBJECTS_PER_SEAT: usize = 100;

const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Priority and fairness of a server. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Fairness(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// All seats.
    seats: u32,
    /// Where the schemas and the levels are stored.
    prefixes: [String; 2],
    /// When time zero was.
    epoch: Instant,
    /// `None`: no request needed it yet.
    config: RwLock<Option<Arc<Config>>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    scheduler: Scheduler,
    /// The names of the levels, by position.
    levels: Vec<Arc<str>>,
    waiting: BTreeMap<Ticket, Waiter>,
}

/// A request that waits.
#[derive(Debug)]
struct Waiter {
    schema: Arc<Schema>,
    width: u32,
    arrived: Instant,
    /// What it is, for dumps.
    about: RequestDescription,
    ready: oneshot::Sender<Seat>,
}

/// What a waiting request is about, as text.
#[derive(Debug)]
struct RequestDescription {
    user: Arc<str>,
    distinguisher: String,
    verb: Verb,
    path: String,
    namespace: String,
    name: String,
    version: String,
    resource: String,
    subresource: String,
}

impl RequestDescription {
    fn of(request: &Attributes, schema: &Schema) -> Self {
        let version = match request.group() {
            "" => request.version().to_owned(),
            group => format!("{group}/{}", request.version()),
        };
        Self {
            user: request.identity.user.clone(),
            distinguisher: schema.distinguisher(request).to_owned(),
            verb: request.verb.clone(),
            path: path(request, &version),
            namespace: request.namespace().to_owned(),
            name: request.name().to_owned(),
            version,
            resource: request.resource().to_owned(),
            subresource: request.subresource().map_or("", |sub| sub.as_str()).to_owned(),
        }
    }
}

/// The path of a request, without its query.
fn path(request: &Attributes, version: &str) -> String {
    if !request.is_resource() {
        return request.path().to_owned();
    }
    let root = if request.group().is_empty() { "/api/" } else { "/apis/" };
    let mut path = format!("{root}{version}");
    let scope = ["namespaces", request.namespace()];
    let scope = scope.into_iter().filter(|_| !request.namespace().is_empty());
    let subresource = request.subresource().map_or("", |sub| sub.as_str());
    let rest = [request.resource(), request.name(), subresource];
    for segment in scope.chain(rest.into_iter().filter(|segment| !segment.is_empty())) {
        path.push('/');
        path.push_str(segment);
    }
    path
}

/// Reads the figures of a server's priority and fairness. Cheap to clone, and does not keep the
/// server alive.
#[derive(Debug, Clone)]
pub struct FlowControlReader(Fairness);

impl FlowControlReader {
    pub(crate) fn new(fairness: &Fairness) -> Self {
        Self(fairness.clone())
    }

    /// The figures now.
    pub fn read(&self) -> FlowControl {
        self.0.figures()
    }
}

/// A request that runs. Dropping it ends the request and may let others run.
#[derive(Debug)]
pub(crate) struct Seat {
    fairness: Fairness,
    schema: Arc<Schema>,
    /// `None`: its level is exempt.
    running: Option<Running>,
    is_watch: bool,
    begun: Instant,
    is_over: bool,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let dispatched = self.end();
        self.fairness.deliver(dispatched);
    }
}

impl Seat {
    fn width(&self) -> u32 {
        self.running.map_or(1, |running| running.width)
    }

    /// Ends the request, once. Returns the requests that run now.
    fn end(&mut self) -> Vec<Dispatched> {
        if std::mem::replace(&mut self.is_over, true) {
            return Vec::new();
        }
        self.schema.stats.end(self.width(), self.begun.elapsed(), self.is_watch);
        match self.running {
            Some(running) => {
                let now = self.fairness.now();
                self.fairness.0.state.lock().scheduler.finish(running, now)
            }
            None => Vec::new(),
        }
    }
}

/// The outcome for a request.
#[derive(Debug)]
pub(crate) struct Entered {
    /// Its schema.
    pub(crate) schema: Arc<Schema>,
    /// Its seat; `None`: it is refused.
    pub(crate) seat: Option<Seat>,
}

impl Schema {
    /// Adds the headers that name a request's schema and level.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        headers.insert(SCHEMA_UID, self.schema_uid.clone());
        headers.insert(LEVEL_UID, self.level_uid.clone());
    }
}

/// Ends the wait of a request whose future is dropped.
struct WaitGuard<'a> {
    fairness: &'a Fairness,
    schema: &'a Schema,
    waiting: Waiting,
    is_over: bool,
}

impl WaitGuard<'_> {
    /// Ends the wait. A request that was dispatched at the same moment gets its seat anyway.
    fn cancel(&mut self, reason: Reason) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let now = self.fairness.now();
        let (waiter, dispatched) = {
            let mut state = self.fairness.0.state.lock();
            let waiter = state.waiting.remove(&self.waiting.ticket);
            (waiter, state.scheduler.cancel(self.waiting, now))
        };
        // Whoever removes it from the waiting requests counts it.
        if let Some(waiter) = waiter {
            self.schema.stats.end_wait(waiter.width);
            self.schema.stats.reject(reason);
        }
        self.fairness.deliver(dispatched);
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.cancel(Reason::Cancelled);
    }
}

impl Fairness {
    /// A server with this many seats.
    pub(crate) fn new(seats: u32) -> Self {
        let shared = Shared {
            seats,
            prefixes: ["flowschemas", "prioritylevelconfigurations"]
                .map(|resource| keys::built_in_prefix(GROUP, resource)),
            epoch: Instant::now(),
            config: RwLock::default(),
            state: Mutex::default(),
        };
        Self(Arc::new(shared))
    }

    /// Waits for a seat, for at most `patience`. `objects_max`: the objects of a page. `None`: the
    /// request needs none and has no schema. Dropping the future stops waiting.
    pub(crate) async fn enter(
        &self,
        registry: &Registry,
        request: &Attributes,
        patience: Duration,
        objects_max: usize,
    ) -> Option<Entered> {
        if request.is_long_running() && request.verb != Verb::Watch {
            return None;
        }
        let config = self.config(registry, request);
        let schema = config.classify(request)?.clone();
        let is_watch = request.verb == Verb::Watch;
        let Some(level) = schema.level else {
            schema.stats.needs(1);
            schema.stats.begin(1);
            let seat = self.seat(schema.clone(), None, is_watch);
            return Some(Entered { schema, seat: Some(seat) });
        };
        let width = width(registry, request, schema.width_max, objects_max);
        schema.stats.needs(width);
        let arrived = Instant::now();
        let (flow, now) = (schema.flow(request), self.now());
        let refused = |reason: Reason| {
            schema.stats.reject(reason);
            schema.stats.waited(false, Duration::ZERO);
            Some(Entered { schema: schema.clone(), seat: None })
        };
        let (waiting, mut ready, dispatched) = {
            let mut state = self.0.state.lock();
            let (arrival, dispatched) = state.scheduler.arrive(level, flow, width, now);
            match arrival {
                Arrival::Runs(running) => {
                    drop(state);
                    if running.has_queue() {
                        schema.stats.queued(1);
                    }
                    schema.stats.begin(running.width);
                    let seat = self.seat(schema.clone(), Some(running), is_watch);
                    schema.stats.waited(true, Duration::ZERO);
                    return Some(Entered { schema, seat: Some(seat) });
                }
                Arrival::QueueFull => return refused(Reason::QueueFull),
                Arrival::NoSeat => return refused(Reason::ConcurrencyLimit),
                Arrival::Waits(waiting) => {
                    let (sender, ready) = oneshot::channel();
                    let about = RequestDescription::of(request, &schema);
                    let schema = schema.clone();
                    let waiter = Waiter { schema, width, arrived, about, ready: sender };
                    state.waiting.insert(waiting.ticket, waiter);
                    (waiting, ready, dispatched)
                }
            }
        };
        schema.stats.queued(waiting.length);
        schema.stats.begin_wait(width);
        self.deliver(dispatched);
        let mut guard = WaitGuard { fairness: self, schema: &schema, waiting, is_over: false };
        // Boxed, so that a request that does not wait has a small future.
        let seat = match Box::pin(tokio::time::timeout(patience, &mut ready)).await {
            Ok(seat) => seat.ok(),
            Err(_) => {
                guard.cancel(Reason::TimeOut);
                // Perhaps it was dispatched at that moment.
                ready.try_recv().ok()
            }
        };
        guard.is_over = true;
        drop(guard);
        schema.stats.waited(seat.is_some(), arrived.elapsed());
        Some(Entered { schema, seat })
    }

    /// The figures for metrics.
    pub(crate) fn figures(&self) -> FlowControl {
        let config = self.known_config();
        let flow = |schema: &Arc<Schema>| schema.stats.read(&schema.level_name, &schema.name);
        let flows = config.schemas.iter().map(flow).collect();
        let now = self.now();
        let state = self.0.state.lock();
        let level = |level: &config::Level| {
            let figures = level.id.and_then(|id| state.scheduler.level(id));
            let (current, in_use) = match figures {
                Some(figures) => (figures.current, figures.in_use),
                None => {
                    // Exempt: its requests have as many seats as they need.
                    let of_level = config.schemas.iter().filter(|s| s.level_name == level.name);
                    let running: u64 = of_level.map(|schema| schema.stats.executing()).sum();
                    let running = u32::try_from(running).unwrap_or(u32::MAX);
                    (running.max(level.limits.min), running)
                }
            };
            let limits = figures.map_or(level.limits, |figures| figures.limits);
            LevelFigures {
                priority_level: level.name.to_string(),
                nominal: limits.nominal,
                min: limits.min,
                max: limits.max,
                current,
                in_use,
                utilization: level.id.and_then(|id| state.scheduler.utilization(id, now)),
            }
        };
        FlowControl { levels: config.levels.iter().map(level).collect(), flows }
    }

    fn now(&self) -> Duration {
        self.0.epoch.elapsed()
    }

    fn seat(&self, schema: Arc<Schema>, running: Option<Running>, is_watch: bool) -> Seat {
        let begun = Instant::now();
        Seat { fairness: self.clone(), schema, running, is_watch, begun, is_over: false }
    }

    /// Gives requests that were dispatched their seats, outside the lock.
    fn deliver(&self, dispatched: Vec<Dispatched>) {
        let mut dispatched = VecDeque::from(dispatched);
        while let Some(Dispatched { ticket, running }) = dispatched.pop_front() {
            let waiter = self.0.state.lock().waiting.remove(&ticket);
            let Some(Waiter { schema, width, about, ready, .. }) = waiter else {
                // Its wait ended in the meantime.
                let now = self.now();
                dispatched.extend(self.0.state.lock().scheduler.finish(running, now));
                continue;
            };
            schema.stats.end_wait(width);
            schema.stats.begin(running.width);
            // Nobody waits any more: end it here, because dropping it would recurse.
            if let Err(mut seat) =
                ready.send(self.seat(schema, Some(running), about.verb == Verb::Watch))
            {
                dispatched.extend(seat.end());
            }
        }
    }

    /// The configuration, compiled again if the objects have changed.
    fn config(&self, registry: &Registry, request: &Attributes) -> Arc<Config> {
        // The server's own requests are exempt in every configuration. So a server without other
        // requests compiles none. Scrapes show it.
        if request.identity.is_loopback() && request.non_resource_path().is_none() {
            let config = self.known_config();
            if config.at.is_none() {
                return config;
            }
        }
        let [schemas, levels] = &self.0.prefixes;
        let at = registry.newest_change(schemas).zip(registry.newest_change(levels));
        let config = self.known_config();
        // A cache that is filled again may lack objects for a moment.
        if at.is_none() || config.at == at {
            return config;
        }
        let (schemas, newest_schema) = registry.stored_objects(schemas);
        let (levels, newest_level) = registry.stored_objects(levels);
        self.compile(Some((newest_schema, newest_level)), &schemas, &levels)
    }

    /// The configuration of the last request; before the first one, that without objects, in which
    /// the mandatory ones exist nevertheless.
    fn known_config(&self) -> Arc<Config> {
        let known = self.0.config.read().clone();
        known.unwrap_or_else(|| self.compile(None, &[], &[]))
    }

    fn compile(
        &self,
        at: Option<(u64, u64)>,
        schemas: &[StoredObject],
        levels: &[StoredObject],
    ) -> Arc<Config> {
        let mut state = self.0.state.lock();
        let former = self.0.config.read().clone();
        // Another request may have been faster, with a newer state.
        let newer = former.as_ref().filter(|former| former.at > at);
        if let Some(newer) = newer {
            return newer.clone();
        }
        let former_names = state.levels.clone();
        let mut names = std::mem::take(&mut state.levels);
        let position = |name: &Arc<str>| position(&mut names, &state.scheduler, name, levels);
        let stats = |schema: &Arc<str>, level: &Arc<str>| {
            let same = |known: &&Arc<Schema>| known.name == *schema && known.level_name == *level;
            let known = former.iter().flat_map(|former| &former.schemas).find(same);
            known.map_or_else(Arc::<Stats>::default, |known| known.stats.clone())
        };
        let config = Arc::new(Config::compile(at, schemas, levels, self.0.seats, position, stats));
        // Deleted levels lend all their seats, and serve their queues with the remaining ones.
        let gone = Limits { nominal: 0, min: 0, max: self.0.seats, response: Response::Reject };
        let mut limits = vec![gone; names.len()];
        for level in &config.levels {
            if let Some(id) = level.id {
                limits[id] = level.limits;
            }
        }
        let now = self.now();
        for (id, (name, former)) in names.iter().zip(&former_names).enumerate() {
            if name != former {
                state.scheduler.begin_level(id, now);
            }
        }
        state.levels = names;
        let dispatched = state.scheduler.configure(&limits, now);
        *self.0.config.write() = Some(config.clone());
        drop(state);
        self.deliver(dispatched);
        config
    }
}

/// The position of a level: its own, that of a level that is gone and has no requests, or a new
/// one.
fn position(
    names: &mut Vec<Arc<str>>,
    scheduler: &Scheduler,
    name: &Arc<str>,
    present: &[StoredObject],
) -> LevelId {
    if let Some(id) = names.iter().position(|known| known == name) {
        return id;
    }
    let is_present = |known: &str| {
        known == config::CATCH_ALL
            || present.iter().any(|level| level.skim().is_ok_and(|skim| skim.name == known))
    };
    let is_free = |id: &LevelId| {
        let state = scheduler.level(*id);
        !is_present(&names[*id])
            && state.is_none_or(|state| state.executing == 0 && state.waiting == 0)
    };
    match (0..names.len()).find(is_free) {
        Some(id) => {
            names[id] = name.clone();
            id
        }
        None => {
            names.push(name.clone());
            names.len() - 1
        }
    }
}

/// The seats of a request, of which it may have `most`.
fn width(registry: &Registry, request: &Attributes, most: u32, objects_max: usize) -> u32 {
    let Requested::Resource(target) = &request.requested else { return 1 };
    if request.verb != Verb::List {
        return 1;
    }
    let n_max = objects_max.min(most as usize * OBJECTS_PER_SEAT);
    let n_objects = registry.count_objects(&target.resource, n_max);
    u32::try_from(n_objects.div_ceil(OBJECTS_PER_SEAT)).unwrap_or(most).clamp(1, most)
}
