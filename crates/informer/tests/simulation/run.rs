//! One run: an informer of a model server, from its start through faults to its end, determined by
//! a seed.
use crate::coverage::{CoverPoint, Coverage};
use crate::fault::OutageKind;
use crate::handler::{HandlerKind, HandlerRecord, TestHandler, cache_of, model};
use crate::history::{Defect, ModelObject, Name};
use crate::oracle::Oracle;
use crate::reference::{Cache, Reference};
use crate::server::{Server, ServerConfig, StreamSupport};
use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use setpoint_informer::reflector::{ReflectorError, ReflectorOptions};
use setpoint_informer::transform::TransformError;
use setpoint_informer::{
    CachePolicy, HandlerOptions, Object, SharedInformer, SharedInformerBuilder, Snapshot,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The maximum time from the last fault and write until the cache agrees with the server: longer
/// than the longest watch and the longest back-off.
const QUIESCENCE_MAX: Duration = Duration::from_secs(2400);

/// The time after which every handler that is not blocked has handled all its events: a call takes
/// up to 3 s, and a panic 1 s.
const SETTLED: Duration = Duration::from_secs(40);

/// The tested cache policies.
const POLICIES: &[CachePolicy] =
    &[CachePolicy::Compact, CachePolicy::Decoded, CachePolicy::Compressed, CachePolicy::Metadata];

/// The outcome of a run.
pub(crate) struct Outcome {
    /// The first violated rule.
    pub(crate) violation: Option<String>,
    pub(crate) coverage: Coverage,
    pub(crate) trace: Vec<String>,
}

/// Executes the run of a seed.
pub(crate) fn run(seed: u64, traces: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut run = Run::begin(seed, traces);
        let server = run.server.clone();
        let played = run.play().await;
        server.with(|state| state.is_stopping = true);
        drop(run);
        let (violated, coverage) =
            server.with(|state| (state.oracle.violation.take(), state.oracle.coverage.clone()));
        // A violation found by the oracle comes first, because others may follow from it.
        let violation = violated.or(played.err());
        Outcome { violation, coverage, trace: server.take_trace() }
    })
}

struct Run {
    rng: SmallRng,
    server: Server,
    informer: Option<SharedInformer<ConfigMap>>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    handlers: Vec<TestHandler>,
    /// Handlers that were removed.
    removed: Vec<Arc<Mutex<HandlerRecord>>>,
    n_handlers: usize,
    /// Ends the calls of blocked handlers.
    release: CancellationToken,
    /// The position of the cache's last observed state in the reference.
    position: usize,
    snapshots: Vec<(Snapshot<ConfigMap>, Cache)>,
    has_digits: bool,
    has_late_index: bool,
    is_degraded: bool,
    weak_names: Vec<Weak<str>>,
    /// The number of readers that wait for their own write.
    reading: Arc<AtomicUsize>,
}

/// Fails for poisoned objects.
fn transform(object: Bytes) -> Result<Bytes, TransformError> {
    if object.windows(8).any(|window| window == b"\"poison\"") {
        return Err(TransformError("poisoned".to_owned()));
    }
    Ok(object)
}

/// Counts the reported objects that were skipped, and those that did not fit the type of an index
/// function, which must be reported (IDX-5).
fn on_error(server: &Server) -> impl Fn(&ReflectorError) + Send + Sync + 'static {
    let server = server.clone();
    move |error| {
        server.with(|state| match error {
            ReflectorError::Unindexed { .. } => {
                state.n_reported += 1;
                state.count(CoverPoint::UndecodableUnindexed);
            }
            ReflectorError::Object { .. } => state.count(CoverPoint::ObjectSkipped),
            _ => {}
        });
    }
}

fn tier(object: &Object<ConfigMap>) -> Vec<String> {
    object.label("tier").into_iter().map(|tier| tier.into_owned()).collect()
}

fn digit(map: &ConfigMap) -> Vec<String> {
    let version = map.metadata.resource_version.as_deref().unwrap_or_default();
    version.chars().last().map(String::from).into_iter().collect()
}

impl Run {
    fn begin(seed: u64, traces: bool) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = ServerConfig {
            streams: match rng.random_range(0..8) {
                0 => StreamSupport::Rejected,
                1 => StreamSupport::Ignored,
                _ => StreamSupport::Supported,
            },
            bookmarks: *pick(&mut rng, &[0.0, 0.2, 0.8]),
            pages_any_state: rng.random_bool(0.3),
            page_max: rng.random_range(1..5),
            faults: *pick(&mut rng, &[0.03, 0.1, 0.2, 0.35]),
        };
        let stream_list = rng.random();
        let page_size = if rng.random_bool(0.2) { Some(rng.random_range(1..4)) } else { None };
        let internal_error_budget =
            if rng.random() { Duration::ZERO } else { Duration::from_secs(30) };
        let policy = *pick(&mut rng, POLICIES);
        let has_digits = rng.random();
        let has_transform: bool = rng.random();
        let reference =
            Reference::new(has_digits && policy != CachePolicy::Metadata, has_transform);
        let oracle = Oracle::new(stream_list, page_size, internal_error_budget);
        let server = Server::new(rng.random(), config, oracle, reference, traces);
        for _ in 0..rng.random_range(0..10) {
            server.write();
        }
        let mut options = ReflectorOptions::default();
        options.stream_list = stream_list;
        options.page_size = page_size;
        options.internal_error_budget = internal_error_budget;
        let resync = Duration::from_secs(*pick(&mut rng, &[0, 0, 20, 60]));
        let mut builder = SharedInformer::<ConfigMap>::builder(server.clone())
            .policy(policy)
            .resync(resync)
            .reflector(options)
            .seed(rng.random())
            .on_error(on_error(&server))
            .object_index("tier", tier);
        if has_digits {
            builder = builder.index("digit", digit);
        }
        if has_transform {
            let server = server.clone();
            builder = builder.transform(move |object| {
                server.with(|state| state.transformed += 1);
                transform(object)
            });
        }
        server.with(|state| {
            state.count(match policy {
                CachePolicy::Decoded => CoverPoint::PolicyDecoded,
                CachePolicy::Compressed => CoverPoint::PolicyCompressed,
                CachePolicy::Metadata => CoverPoint::PolicyMetadata,
                _ => CoverPoint::PolicyCompact,
            });
            state.trace(|| {
                format!("{config:?} {policy:?} resync {resync:?} transforms {has_transform} page {page_size:?}")
            });
        });
        Self::started(rng, server, builder, has_digits)
    }

    fn started(
        mut rng: SmallRng,
        server: Server,
        builder: SharedInformerBuilder<ConfigMap>,
        has_digits: bool,
    ) -> Self {
        let (informer, worker) = builder.build();
        let (stop, release) = (CancellationToken::new(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(worker.run(stop.clone()));
        let mut run = Self {
            rng: SmallRng::seed_from_u64(rng.random()),
            server,
            informer: Some(informer),
            stop,
            tasks,
            handlers: Vec::new(),
            removed: Vec::new(),
            n_handlers: 0,
            release,
            position: 0,
            snapshots: Vec::new(),
            has_digits,
            has_late_index: false,
            is_degraded: false,
            weak_names: Vec::new(),
            reading: Arc::default(),
        };
        for _ in 0..rng.random_range(1..4) {
            run.add_handler();
        }
        run.wait_for_sync();
        run
    }

    fn informer(&self) -> Result<&SharedInformer<ConfigMap>, String> {
        self.informer.as_ref().ok_or_else(|| "there is no informer".to_owned())
    }

    /// Waits for the sync as users do. After the wait, the complete first list must be readable.
    fn wait_for_sync(&mut self) {
        let (Some(informer), server) = (self.informer.clone(), self.server.clone()) else { return };
        self.tasks.spawn(async move {
            if informer.synced().await.is_err() {
                return;
            }
            let cache = cache_of(&informer.lister().snapshot());
            server.with(|state| {
                state.count(CoverPoint::SyncedWaited);
                let first = state.reference.first_list().unwrap_or(usize::MAX);
                if state.reference.find(first, &cache).is_none() {
                    state.oracle.violated(
                        "invariant 6: the informer has synced, but the first list is not readable",
                    );
                }
            });
        });
    }

    fn add_handler(&mut self) {
        let Some(informer) = &self.informer else { return };
        self.n_handlers += 1;
        let added =
            TestHandler::add(self.n_handlers, informer, &self.server, &mut self.rng, &self.release);
        let Some(handler) = added else {
            return self.server.with(|state| state.oracle.violated("a handler is rejected"));
        };
        let (registration, record) = (handler.registration.clone(), handler.record.clone());
        let server = self.server.clone();
        self.tasks.spawn(async move {
            if registration.synced().await.is_ok() && record.lock().is_initial {
                server.with(|state| {
                    state.oracle.violated("invariant 6: a handler synced within an initial call");
                });
            }
        });
        self.handlers.push(handler);
    }

    /// Writes, and waits to read the write, as a controller does.
    fn write_then_read(&mut self) {
        self.server.write();
        let (Some(informer), server) = (self.informer.clone(), self.server.clone()) else { return };
        let Some(change) = server.with(|state| state.history.last_change()) else { return };
        let (lister, by_key) = (informer.lister(), self.rng.random());
        let reading = self.reading.clone();
        reading.fetch_add(1, Ordering::Relaxed);
        self.tasks.spawn(async move {
            let (key, version) = (change.name.key(), change.model.version.to_string());
            let reached = if by_key {
                lister.at_least_for(&key, &version).await
            } else {
                lister.at_least(&version).await
            };
            reading.fetch_sub(1, Ordering::Relaxed);
            if reached.is_ok() {
                let cached = lister.object(&key).map(|object| model(&object).1);
                server.with(|state| state.check_read(change, cached));
            }
        });
    }

    async fn play(&mut self) -> Result<(), String> {
        let steps = self.rng.random_range(10..60);
        for _ in 0..steps {
            self.step().await?;
            self.check_invariants()?;
        }
        if self.rng.random_bool(0.15) {
            self.server.with(|state| state.count(CoverPoint::StoppedEarly));
        } else {
            self.quiesce().await?;
        }
        self.end().await
    }

    /// Executes one random step.
    async fn step(&mut self) -> Result<(), String> {
        match self.rng.random_range(0..100) {
            0..4 => {
                self.server.with(|state| state.count(CoverPoint::Late));
                self.add_handler();
            }
            4..7 if self.handlers.len() > 1 => self.remove_handler().await?,
            7..9 => {
                let time = Duration::from_secs(self.rng.random_range(5..180));
                let down = *pick(&mut self.rng, &OutageKind::ALL);
                self.server.start_outage(time, down);
            }
            9..11 => {
                let time = Duration::from_secs(self.rng.random_range(1..900));
                self.server.with(|state| {
                    state.count(CoverPoint::ClockJumped);
                    state.trace(|| format!("clock     jumps by {time:?}"));
                    state.oracle.jumped_at = Some(Instant::now() + time);
                });
                advance(time).await;
            }
            11 if !self.has_late_index => {
                self.has_late_index = true;
                self.server.with(|state| state.count(CoverPoint::LateIndex));
                let added = self.informer()?.add_object_index("late", tier);
                added.map_err(|error| format!("IDX-6: {error}"))?;
            }
            12..20 => {
                for _ in 0..self.rng.random_range(2..20) {
                    self.server.write();
                }
            }
            20..30 => {}
            30..36 => self.write_then_read(),
            _ => self.server.write(),
        }
        let wait = match self.rng.random_range(0..40) {
            0 => self.rng.random_range(0..700_000),
            1..6 => self.rng.random_range(0..60_000),
            6..16 => 0,
            _ => self.rng.random_range(0..1500),
        };
        if wait == 0 {
            tokio::task::yield_now().await;
        } else {
            sleep(Duration::from_millis(wait)).await;
        }
        Ok(())
    }

    async fn remove_handler(&mut self) -> Result<(), String> {
        let at = self.rng.random_range(0..self.handlers.len());
        let handler = self.handlers.swap_remove(at);
        if handler.kind == HandlerKind::Blocked {
            // `remove_and_wait` would wait for its blocked call.
            handler.registration.remove();
            self.removed.push(handler.record);
            return Ok(());
        }
        self.server.with(|state| state.count(CoverPoint::Removed));
        let ended = timeout(Duration::from_secs(60), handler.remove()).await;
        self.removed.push(ended.map_err(|_| "SHI-7: a removal does not end".to_owned())?);
        Ok(())
    }

    /// Checks the invariants that hold at any time.
    fn check_invariants(&mut self) -> Result<(), String> {
        if let Some(violation) = self.server.with(|state| state.oracle.violation.clone()) {
            return Err(violation);
        }
        if let Some(Err(error)) = self.tasks.try_join_next().filter(Result::is_err) {
            return Err(format!("a task ended: {error}"));
        }
        let informer = self.informer()?.clone();
        let snapshot = informer.lister().snapshot();
        let cache = cache_of(&snapshot);
        // After the sync, the cache has the first list or a later state (invariant 6).
        let has_synced = informer.has_synced();
        let found = self.server.with(|state| {
            let first = state.reference.first_list().unwrap_or(usize::MAX);
            let from = if has_synced { self.position.max(first) } else { self.position };
            state.reference.find(from, &cache)
        });
        let Some(position) = found else {
            let expected = self.server.with(|state| state.reference.last().clone());
            return Err(format!(
                "invariants 3, 4, 6 and 14: the cache is not in a state of the reference: {cache:?}, last {expected:?}, synced {has_synced}"
            ));
        };
        self.position = position;
        // Equal to the cache's state, and with the defects.
        let expected = self.server.with(|state| state.reference.at(position).clone());
        self.check_indices(&snapshot, &expected)?;
        for handler in &self.handlers {
            handler.check(&informer, &self.server)?;
        }
        let is_degraded = informer.status().degraded.is_some();
        match (self.is_degraded, is_degraded) {
            (false, true) => self.server.with(|state| state.count(CoverPoint::Degraded)),
            (true, false) => self.server.with(|state| state.count(CoverPoint::Recovered)),
            _ => {}
        }
        self.is_degraded = is_degraded;
        if self.rng.random_bool(0.05) {
            self.server.with(|state| state.count(CoverPoint::SnapshotTaken));
            self.weak_names.extend(snapshot.iter().take(1).map(|o| Arc::downgrade(&o.key().name)));
            self.snapshots.push((snapshot, cache));
        }
        Ok(())
    }

    /// Checks that the indexes of a snapshot match its objects (IDX-3, IDX-7).
    fn check_indices(&self, snapshot: &Snapshot<ConfigMap>, cache: &Cache) -> Result<(), String> {
        let check = |index: &str, value: fn(&(Name, ModelObject)) -> String, is_typed: bool| {
            let mut want: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (name, model) in &*cache.objects {
                if !is_typed || model.defect != Defect::Undecodable {
                    want.entry(value(&(*name, *model))).or_default().push(name.to_string());
                }
            }
            let have: BTreeMap<String, Vec<String>> = snapshot
                .index_values(index)
                .iter()
                .map(|value| {
                    let keys = snapshot.index_keys(index, value).unwrap_or_default();
                    (value.to_string(), keys.iter().map(ToString::to_string).collect())
                })
                .collect();
            if have == want {
                return Ok(());
            }
            Err(format!("invariant 1: the index {index} is {have:?}, expected {want:?}"))
        };
        check("tier", |(_, model)| model.tier(), false)?;
        check("namespace", |(name, _)| name.namespace(), false)?;
        if self.has_digits {
            let is_typed = self.server.with(|state| state.reference.has_typed_index);
            check("digit", |(_, model)| model.digit(), is_typed)?;
        }
        if self.has_late_index {
            check("late", |(_, model)| model.tier(), false)?;
        }
        Ok(())
    }

    /// Ends faults and writes, and checks that the cache and the handlers agree with the server.
    async fn quiesce(&mut self) -> Result<(), String> {
        self.server.heal();
        let healed = Instant::now();
        loop {
            sleep(Duration::from_secs(20)).await;
            self.check_invariants()?;
            let done = self.server.with(|state| {
                state.oracle.is_live()
                    && !state.reference.needs_list
                    && *state.reference.last().objects == *state.history.objects()
                    && state.reference.is_last(self.position)
            });
            if done {
                break;
            }
            if healed.elapsed() > QUIESCENCE_MAX {
                return Err(
                    self.difference("invariant 1: the cache does not reach the server's state")
                );
            }
        }
        // Lets handlers handle their pending events. A blocked handler must not delay others
        // (invariant 12).
        sleep(SETTLED).await;
        self.check_invariants()?;
        self.check_handlers(|kind| matches!(kind, HandlerKind::Fast))?;
        self.server.with(|state| state.count(CoverPoint::Late));
        self.add_handler();
        self.release.cancel();
        sleep(SETTLED).await;
        self.check_invariants()?;
        self.check_handlers(|_| true)?;
        let reading = self.reading.load(Ordering::Relaxed);
        if reading > 0 {
            return Err(format!("{reading} readers wait for a version that the cache has reached"));
        }
        let (transformed, to_transform, already_cached) = self.server.with(|state| {
            (state.transformed, state.reference.to_transform, state.reference.already_cached)
        });
        let expected = to_transform
            .map(|to_transform| to_transform.saturating_sub(already_cached)..=to_transform);
        if transformed > 0 && expected.is_some_and(|expected| !expected.contains(&transformed)) {
            return Err(format!(
                "invariant 11: {to_transform:?} objects were delivered, of which {already_cached} were cached, but {transformed} were transformed"
            ));
        }
        // An index that is added meanwhile makes the others' functions be called again.
        let (n_reported, least) =
            self.server.with(|state| (state.n_reported, state.reference.unindexed));
        if n_reported < least {
            return Err(format!(
                "IDX-5: {least} objects did not fit an index, {n_reported} were reported"
            ));
        }
        let unsynced = self.handlers.iter().any(|handler| !handler.registration.has_synced());
        if unsynced { Err("SHI-9: a handler never synced".to_owned()) } else { Ok(()) }
    }

    fn difference(&self, rule: &str) -> String {
        self.server.with(|state| {
            format!("{rule}: {:?}, server {:?}", state.reference.last(), state.history.objects())
        })
    }

    /// Invariant 5: all handlers have the server's objects, whether they were added early or late,
    /// and are slow or fast.
    fn check_handlers(&self, of: impl Fn(HandlerKind) -> bool) -> Result<(), String> {
        let want = self.server.with(|state| state.history.objects().clone());
        for handler in self.handlers.iter().filter(|handler| of(handler.kind)) {
            let folded = handler.folded();
            if folded != want {
                return Err(format!(
                    "invariants 2, 5 and 12: a handler has {folded:?}, expected {want:?}"
                ));
            }
        }
        Ok(())
    }

    /// Stops the informer, and checks that nothing remains.
    async fn end(&mut self) -> Result<(), String> {
        self.server.with(|state| {
            state.is_stopping = true;
            state.trace(|| "stop".to_owned());
        });
        self.stop.cancel();
        self.release.cancel();
        let tasks = &mut self.tasks;
        let ended = timeout(Duration::from_secs(60), async {
            while let Some(ended) = tasks.join_next().await {
                ended.map_err(|error| format!("a task ended: {error}"))?;
            }
            Ok(())
        });
        ended.await.unwrap_or_else(|_| Err("CTL-1: the worker does not end".to_owned()))?;
        let records: Vec<_> = self.handlers.drain(..).map(|handler| handler.record).collect();
        let informer = self.informer.take().ok_or("there is no informer")?;
        if !informer.has_stopped() {
            return Err("SHI-1: a stopped informer does not report that it has stopped".to_owned());
        }
        let late = informer.add_handler(|_| (), HandlerOptions::default());
        if late.is_ok() {
            return Err("SHI-1: a stopped informer accepts a handler".to_owned());
        }
        let events = |records: &[Arc<Mutex<HandlerRecord>>]| -> Vec<usize> {
            records.iter().map(|record| record.lock().events).collect()
        };
        let (before, last) = (events(&records), cache_of(&informer.lister().snapshot()));
        self.server.write();
        sleep(Duration::from_secs(60)).await;
        if events(&records) != before || cache_of(&informer.lister().snapshot()) != last {
            return Err("CTL-2, SHI-6: something changed after the end".to_owned());
        }
        for (snapshot, was) in self.snapshots.drain(..) {
            if cache_of(&snapshot) != was {
                return Err(format!("IDX-3: a snapshot changed: {was:?}"));
            }
        }
        drop(informer);
        self.check_leaks(&records)
    }

    fn check_leaks(&mut self, records: &[Arc<Mutex<HandlerRecord>>]) -> Result<(), String> {
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        if tasks > 0 {
            return Err(format!("{tasks} tasks remain"));
        }
        for record in records.iter().chain(&self.removed) {
            self.weak_names.append(&mut record.lock().weak_names);
            if Arc::strong_count(record) > 1 {
                return Err("a handler remains".to_owned());
            }
        }
        if let Some(name) = self.weak_names.iter().find_map(Weak::upgrade) {
            return Err(format!("an object named {name} remains"));
        }
        match self.server.n_references() {
            // This handle, and the one in `run`.
            2 => Ok(()),
            n => Err(format!(
                "the server has {n} references: a watch, a source or a handler remains"
            )),
        }
    }
}

fn pick<'a, T>(rng: &mut SmallRng, choices: &'a [T]) -> &'a T {
    &choices[rng.random_range(0..choices.len())]
}
