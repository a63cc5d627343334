//! One life: an informer of a modelled server, from its start over faults to its end, as a function
//! of a seed.
use crate::coverage::{Coverage, Seen};
use crate::fault::Down;
use crate::oracle::Oracle;
use crate::reference::{Cache, Reference};
use crate::server::{Manners, Server, Streams};
use crate::witness::{Temper, Told, Witness, cache_of, thing};
use crate::world::Name;
use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use setpoint_informer::intake::ObjectError;
use setpoint_informer::reflector::{ReflectorError, ReflectorOptions};
use setpoint_informer::transform::{TransformError, pruned};
use setpoint_informer::{
    CachePolicy, HandlerOptions, Object, SharedInformer, SharedInformerBuilder, Snapshot,
};
use setpoint_object::Prune;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How long after the last fault and write everything has to be right: longer than the longest
/// watch and the longest back-off.
const QUIESCENCE_MAX: Duration = Duration::from_secs(2400);

/// How long after that every handler that is not stuck has handled what it was told: a call takes
/// up to 3 s, and a panic 1 s.
const SETTLED: Duration = Duration::from_secs(40);

/// What caches keep of an object.
const POLICIES: &[CachePolicy] =
    &[CachePolicy::Compact, CachePolicy::Decoded, CachePolicy::Compressed, CachePolicy::Metadata];

/// What came of a life.
pub(crate) struct Outcome {
    /// The first rule that was broken.
    pub(crate) violation: Option<String>,
    pub(crate) coverage: Coverage,
    pub(crate) trace: Vec<String>,
}

/// Lives one life.
pub(crate) fn run(seed: u64, traces: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut life = Life::begin(seed, traces);
        let server = life.server.clone();
        let lived = life.live().await;
        server.with(|state| state.is_stopping = true);
        drop(life);
        let (broken, coverage) =
            server.with(|state| (state.oracle.violation.take(), state.oracle.coverage.clone()));
        // What the oracle found comes first: the rest follows from it.
        let violation = broken.or(lived.err());
        Outcome { violation, coverage, trace: server.take_trace() }
    })
}

struct Life {
    rng: SmallRng,
    server: Server,
    informer: Option<SharedInformer<ConfigMap>>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    witnesses: Vec<Witness>,
    /// Handlers that were removed.
    gone: Vec<Arc<Mutex<Told>>>,
    joined: usize,
    /// Lets go of handlers that are stuck.
    release: CancellationToken,
    /// Where among its states the cache was seen last.
    position: usize,
    kept: Vec<(Snapshot<ConfigMap>, Cache)>,
    has_digits: bool,
    has_late_index: bool,
    is_degraded: bool,
    weak: Vec<Weak<str>>,
    /// How many wait to read what they wrote.
    reading: Arc<AtomicUsize>,
}

/// Fails for what is poisoned, and takes something out of the rest.
fn transform(object: Bytes) -> Result<Bytes, TransformError> {
    if object.windows(8).any(|window| window == b"\"poison\"") {
        return Err(TransformError("poisoned".to_owned()));
    }
    pruned(object, &Prune::managed_fields())
}

/// Hears of what is skipped: an index function that fails is loud (IDX-5).
fn hear(server: &Server) -> impl Fn(&ReflectorError) + Send + Sync + 'static {
    let server = server.clone();
    move |error| {
        server.with(|state| match error {
            ReflectorError::Object { source: ObjectError::Index(_), .. } => {
                state.misfits_told += 1;
                state.note(Seen::MisfitRejected);
            }
            ReflectorError::Object { .. } => state.note(Seen::ObjectSkipped),
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

impl Life {
    fn begin(seed: u64, traces: bool) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let manners = Manners {
            streams: match rng.random_range(0..8) {
                0 => Streams::Refuses,
                1 => Streams::Ignores,
                _ => Streams::Knows,
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
        let server = Server::new(rng.random(), manners, oracle, reference, traces);
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
            .on_error(hear(&server))
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
            state.note(match policy {
                CachePolicy::Decoded => Seen::DecodedKept,
                CachePolicy::Compressed => Seen::CompressedKept,
                CachePolicy::Metadata => Seen::MetadataKept,
                _ => Seen::CompactKept,
            });
            state.trace(|| {
                format!("{manners:?} {policy:?} resync {resync:?} transforms {has_transform} page {page_size:?}")
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
        let mut life = Self {
            rng: SmallRng::seed_from_u64(rng.random()),
            server,
            informer: Some(informer),
            stop,
            tasks,
            witnesses: Vec::new(),
            gone: Vec::new(),
            joined: 0,
            release,
            position: 0,
            kept: Vec::new(),
            has_digits,
            has_late_index: false,
            is_degraded: false,
            weak: Vec::new(),
            reading: Arc::default(),
        };
        for _ in 0..rng.random_range(1..4) {
            life.join();
        }
        life.wait_for_sync();
        life
    }

    fn informer(&self) -> Result<&SharedInformer<ConfigMap>, String> {
        self.informer.as_ref().ok_or_else(|| "there is no informer".to_owned())
    }

    /// Waits as users do: whoever is woken finds the first list, whole.
    fn wait_for_sync(&mut self) {
        let (Some(informer), server) = (self.informer.clone(), self.server.clone()) else { return };
        self.tasks.spawn(async move {
            if informer.synced().await.is_err() {
                return;
            }
            let cache = cache_of(&informer.lister().snapshot());
            server.with(|state| {
                state.note(Seen::SyncedWaited);
                let first = state.reference.first_list().unwrap_or(usize::MAX);
                if state.reference.find(first, &cache).is_none() {
                    state.oracle.broken("invariant 6: synced, and the first list is not readable");
                }
            });
        });
    }

    fn join(&mut self) {
        let Some(informer) = &self.informer else { return };
        self.joined += 1;
        let joined =
            Witness::join(self.joined, informer, &self.server, &mut self.rng, &self.release);
        let Some(witness) = joined else {
            return self.server.with(|state| state.oracle.broken("a handler is not taken"));
        };
        let (registration, told) = (witness.registration.clone(), witness.told.clone());
        let server = self.server.clone();
        self.tasks.spawn(async move {
            if registration.synced().await.is_ok() && told.lock().is_initial {
                server.with(|state| {
                    state.oracle.broken("invariant 6: a handler synced within an initial call");
                });
            }
        });
        self.witnesses.push(witness);
    }

    /// Writes, and waits to read it, as a controller does.
    fn write_then_read(&mut self) {
        self.server.write();
        let (Some(informer), server) = (self.informer.clone(), self.server.clone()) else { return };
        let Some(change) = server.with(|state| state.world.last_change()) else { return };
        let (lister, by_key) = (informer.lister(), self.rng.random());
        let reading = self.reading.clone();
        reading.fetch_add(1, Ordering::Relaxed);
        self.tasks.spawn(async move {
            let (key, version) = (change.name.key(), change.thing.version.to_string());
            let reached = if by_key {
                lister.at_least_for(&key, &version).await
            } else {
                lister.at_least(&version).await
            };
            reading.fetch_sub(1, Ordering::Relaxed);
            if reached.is_ok() {
                let cached = lister.object(&key).map(|object| thing(&object).1);
                server.with(|state| state.judge_read(change, cached));
            }
        });
    }

    async fn live(&mut self) -> Result<(), String> {
        let steps = self.rng.random_range(10..60);
        for _ in 0..steps {
            self.step().await?;
            self.observe()?;
        }
        if self.rng.random_bool(0.15) {
            self.server.with(|state| state.note(Seen::StoppedEarly));
        } else {
            self.quiesce().await?;
        }
        self.end().await
    }

    /// Something happens.
    async fn step(&mut self) -> Result<(), String> {
        match self.rng.random_range(0..100) {
            0..4 => {
                self.server.with(|state| state.note(Seen::Late));
                self.join();
            }
            4..7 if self.witnesses.len() > 1 => self.leave().await?,
            7..9 => {
                let time = Duration::from_secs(self.rng.random_range(5..180));
                let down = *pick(&mut self.rng, &Down::ALL);
                self.server.go_down(time, down);
            }
            9..11 => {
                let time = Duration::from_secs(self.rng.random_range(1..900));
                self.server.with(|state| {
                    state.note(Seen::ClockJumped);
                    state.trace(|| format!("clock     jumps by {time:?}"));
                    state.oracle.jumped_at = Some(Instant::now() + time);
                });
                advance(time).await;
            }
            11 if !self.has_late_index => {
                self.has_late_index = true;
                self.server.with(|state| state.note(Seen::LateIndex));
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

    async fn leave(&mut self) -> Result<(), String> {
        let at = self.rng.random_range(0..self.witnesses.len());
        let witness = self.witnesses.swap_remove(at);
        if witness.temper == Temper::Blocked {
            // Would not come back before its call does.
            witness.registration.remove();
            self.gone.push(witness.told);
            return Ok(());
        }
        self.server.with(|state| state.note(Seen::Removed));
        let left = timeout(Duration::from_secs(60), witness.leave()).await;
        self.gone.push(left.map_err(|_| "SHI-7: a removal that does not end".to_owned())?);
        Ok(())
    }

    /// What holds at any time.
    fn observe(&mut self) -> Result<(), String> {
        if let Some(violation) = self.server.with(|state| state.oracle.violation.clone()) {
            return Err(violation);
        }
        if let Some(Err(error)) = self.tasks.try_join_next().filter(Result::is_err) {
            return Err(format!("a task ended: {error}"));
        }
        let informer = self.informer()?.clone();
        let snapshot = informer.lister().snapshot();
        let cache = cache_of(&snapshot);
        // Once it has synced, the first list is in the cache, or what came after it (invariant 6).
        let has_synced = informer.has_synced();
        let found = self.server.with(|state| {
            let first = state.reference.first_list().unwrap_or(usize::MAX);
            let from = if has_synced { self.position.max(first) } else { self.position };
            state.reference.find(from, &cache)
        });
        let Some(position) = found else {
            let expected = self.server.with(|state| state.reference.last().clone());
            return Err(format!(
                "invariants 3, 4, 6 and 14: the cache is in no state it could be in: {cache:?}, last {expected:?}, synced {has_synced}"
            ));
        };
        self.position = position;
        self.check_indices(&snapshot, &cache)?;
        for witness in &self.witnesses {
            witness.look(&informer, &self.server)?;
        }
        let is_degraded = informer.status().degraded.is_some();
        match (self.is_degraded, is_degraded) {
            (false, true) => self.server.with(|state| state.note(Seen::Degraded)),
            (true, false) => self.server.with(|state| state.note(Seen::Recovered)),
            _ => {}
        }
        self.is_degraded = is_degraded;
        if self.rng.random_bool(0.05) {
            self.server.with(|state| state.note(Seen::SnapshotKept));
            self.weak.extend(snapshot.iter().take(1).map(|o| Arc::downgrade(&o.key().name)));
            self.kept.push((snapshot, cache));
        }
        Ok(())
    }

    /// The indices of a snapshot are what its objects say (IDX-3, IDX-7).
    fn check_indices(&self, snapshot: &Snapshot<ConfigMap>, cache: &Cache) -> Result<(), String> {
        let check = |index: &str, value: fn(&(Name, crate::world::Thing)) -> String| {
            let mut want: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (name, thing) in &*cache.things {
                want.entry(value(&(*name, *thing))).or_default().push(name.to_string());
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
            Err(format!("invariant 1: the index {index} is {have:?} and should be {want:?}"))
        };
        check("tier", |(_, thing)| thing.tier())?;
        check("namespace", |(name, _)| name.namespace())?;
        if self.has_digits {
            check("digit", |(_, thing)| thing.digit())?;
        }
        if self.has_late_index {
            check("late", |(_, thing)| thing.tier())?;
        }
        Ok(())
    }

    /// Faults and writes stop: everything comes right.
    async fn quiesce(&mut self) -> Result<(), String> {
        self.server.heal();
        let healed = Instant::now();
        loop {
            sleep(Duration::from_secs(20)).await;
            self.observe()?;
            let done = self.server.with(|state| {
                state.oracle.is_live()
                    && !state.reference.needs_list
                    && *state.reference.last().things == *state.world.things()
                    && state.reference.is_last(self.position)
            });
            if done {
                break;
            }
            if healed.elapsed() > QUIESCENCE_MAX {
                return Err(self.difference("invariant 1: the cache does not come right"));
            }
        }
        // What handlers were told of and have not handled. One that is stuck holds up nobody
        // (invariant 12).
        sleep(SETTLED).await;
        self.observe()?;
        self.agree(|temper| matches!(temper, Temper::Quick))?;
        self.server.with(|state| state.note(Seen::Late));
        self.join();
        self.release.cancel();
        sleep(SETTLED).await;
        self.observe()?;
        self.agree(|_| true)?;
        let reading = self.reading.load(Ordering::Relaxed);
        if reading > 0 {
            return Err(format!("{reading} wait for a version that the cache has reached"));
        }
        let (transformed, entered, known) = self
            .server
            .with(|state| (state.transformed, state.reference.entered, state.reference.known));
        let expected = entered.map(|entered| entered.saturating_sub(known)..=entered);
        if transformed > 0 && expected.is_some_and(|expected| !expected.contains(&transformed)) {
            return Err(format!(
                "invariant 11: {entered:?} objects entered, of which the cache held {known}, and {transformed} were transformed"
            ));
        }
        let (told, (least, most)) =
            self.server.with(|state| (state.misfits_told, state.reference.rejected));
        if !(least..=most).contains(&told) {
            return Err(format!("IDX-5: {least} to {most} objects were rejected, {told} told of"));
        }
        let unsynced = self.witnesses.iter().any(|witness| !witness.registration.has_synced());
        if unsynced { Err("SHI-9: a handler never synced".to_owned()) } else { Ok(()) }
    }

    fn difference(&self, rule: &str) -> String {
        self.server.with(|state| {
            format!("{rule}: {:?}, server {:?}", state.reference.last(), state.world.things())
        })
    }

    /// Invariant 5: early or late, slow or quick, handlers believe what the server holds.
    fn agree(&self, of: impl Fn(Temper) -> bool) -> Result<(), String> {
        let want = self.server.with(|state| state.world.things().clone());
        for witness in self.witnesses.iter().filter(|witness| of(witness.temper)) {
            let believes = witness.believes();
            if believes != want {
                return Err(format!(
                    "invariants 2, 5 and 12: a handler believes {believes:?} and should {want:?}"
                ));
            }
        }
        Ok(())
    }

    /// The informer stops, and leaves nothing behind.
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
        let told: Vec<_> = self.witnesses.drain(..).map(|witness| witness.told).collect();
        let informer = self.informer.take().ok_or("there is no informer")?;
        if !informer.has_stopped() {
            return Err("SHI-1: a stopped informer does not say so".to_owned());
        }
        let late = informer.add_handler(|_| (), HandlerOptions::default());
        if late.is_ok() {
            return Err("SHI-1: a stopped informer takes a handler".to_owned());
        }
        let events = |told: &[Arc<Mutex<Told>>]| -> Vec<usize> {
            told.iter().map(|told| told.lock().events).collect()
        };
        let (before, last) = (events(&told), cache_of(&informer.lister().snapshot()));
        self.server.write();
        sleep(Duration::from_secs(60)).await;
        if events(&told) != before || cache_of(&informer.lister().snapshot()) != last {
            return Err("CTL-2, SHI-6: something changed after the end".to_owned());
        }
        for (snapshot, was) in self.kept.drain(..) {
            if cache_of(&snapshot) != was {
                return Err(format!("IDX-3: a snapshot changed: {was:?}"));
            }
        }
        drop(informer);
        self.leaks(&told)
    }

    fn leaks(&mut self, told: &[Arc<Mutex<Told>>]) -> Result<(), String> {
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        if tasks > 0 {
            return Err(format!("{tasks} tasks are left"));
        }
        for told in told.iter().chain(&self.gone) {
            self.weak.append(&mut told.lock().weak);
            if Arc::strong_count(told) > 1 {
                return Err("a handler is left".to_owned());
            }
        }
        if let Some(name) = self.weak.iter().find_map(Weak::upgrade) {
            return Err(format!("an object named {name} is left"));
        }
        match self.server.holders() {
            // The one here, and the one of whoever began this life.
            2 => Ok(()),
            n => {
                Err(format!("the server is held {n} times: a watch, a source or a handler is left"))
            }
        }
    }
}

fn pick<'a, T>(rng: &mut SmallRng, choices: &'a [T]) -> &'a T {
    &choices[rng.random_range(0..choices.len())]
}
