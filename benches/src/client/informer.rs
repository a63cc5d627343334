//! This project's informer.
use super::{Findings, Run};
use anyhow::{Context, bail};
use setpoint::informer::reflector::ReflectorOptions;
use setpoint::informer::{
    CachePolicy, Cacheable, ClientSource, Event, HandlerOptions, HandlerRegistration, Key, Lister,
    SharedInformer,
};
use std::future::poll_fn;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How many reads are timed.
const READS: u64 = 20_000;

/// How many objects are "few": a working set that a cache of decoded objects is made for.
const FEW: u64 = 64;

fn policy(name: &str) -> anyhow::Result<CachePolicy> {
    Ok(match name {
        "compact" => CachePolicy::Compact,
        "compressed" => CachePolicy::Compressed,
        "metadata" => CachePolicy::Metadata,
        "decoded" => CachePolicy::Decoded,
        other => bail!("no policy {other}"),
    })
}

/// `K` is a Pod, or under [`CachePolicy::Metadata`] its `PartialObjectMeta`, for which the source
/// sends no more than that.
pub(super) async fn run<K>(mut run: Run) -> anyhow::Result<Findings>
where
    K: Cacheable,
    K::DynamicType: Default,
{
    let policy = policy(&run.args.policy)?;
    let source = ClientSource::dynamic::<K>(run.client.clone(), &K::DynamicType::default(), None)
        .metadata_only(policy == CachePolicy::Metadata);
    let mut options = ReflectorOptions::default();
    options.stream_list = run.args.stream;
    let mut builder = SharedInformer::<K>::builder(source).policy(policy).reflector(options);
    if !run.args.prune {
        builder = builder.keep_managed_fields(true);
    }
    let mut holds = Holds::default();
    let mut tasks = tokio::task::JoinSet::new();
    if run.args.holds {
        tasks.spawn(holds.clone().watch_turns());
        tasks.spawn(holds.clone().watch_events());
    }
    run.sync_begins()?;
    let (informer, worker) = builder.build();
    let counts = Arc::new(Counts::default());
    let counted = counts.clone();
    let last_version = run.facts.last_version.to_string();
    let registration = informer.add_handler(
        move |event: Event<K>| {
            counted.calls.fetch_add(1, Relaxed);
            if event.object().is_some_and(|object| object.resource_version() == last_version) {
                counted.last_seen.store(1, Relaxed);
            }
        },
        HandlerOptions::default(),
    )?;
    let stop = CancellationToken::new();
    tasks.spawn(worker.run(stop.clone()));
    informer.synced().await?;
    registration.synced().await?;
    run.sync_ends(informer.lister().len() as u64)?;
    let hold_of_sync = holds.longest();
    let snapshot = informer.lister().snapshot();
    let bytes = snapshot.iter().filter_map(|object| Some(object.bytes()?.len() as u64));
    run.findings.json_bytes = bytes.sum();
    // While somebody holds a snapshot, each event copies the path to what it changes.
    drop(snapshot);

    if run.args.relist {
        let before = informer.lister().resource_version();
        run.relist_begins().await?;
        while informer.lister().resource_version() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        registration.delivered().await;
        run.relist_ends()?;
    }
    let hold_of_relist = holds.longest();
    if run.args.reads {
        let lister = informer.lister();
        let keys: Vec<Key> = lister.snapshot().iter().map(|object| object.key().clone()).collect();
        run.findings.reads_of_few = Some(reads(&lister, &keys, FEW)?);
        run.findings.reads_of_all = Some(reads(&lister, &keys, keys.len() as u64)?);
    }
    if run.wants_events() {
        let before = counts.calls.load(Relaxed);
        run.events_begin().await?;
        counts.done(&registration).await;
        run.events_end(counts.calls.load(Relaxed) - before)?;
    }
    if run.args.holds {
        run.findings.holds = Some([hold_of_sync, hold_of_relist, holds.longest()]);
    }
    stop.cancel();
    holds.stop();
    while tasks.join_next().await.is_some() {}
    Ok(run.findings)
}

/// How long other tasks held the thread, nanoseconds.
#[derive(Clone, Default)]
struct Holds {
    /// The longest wait of a task that is ready.
    turn: Arc<AtomicU64>,
    /// The longest wait of a task for the runtime's next look at sockets and timers: after at most
    /// 61 polls of others.
    events: Arc<AtomicU64>,
    has_ended: Arc<AtomicU64>,
}

impl Holds {
    /// A task that is always ready.
    async fn watch_turns(self) {
        let mut last = Instant::now();
        poll_fn(|context| {
            has_waited(&self.turn, &mut last);
            context.waker().wake_by_ref();
            if self.has_ended.load(Relaxed) == 0 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// A task that becomes ready when the runtime looks at sockets and timers.
    async fn watch_events(self) {
        let mut last = Instant::now();
        while self.has_ended.load(Relaxed) == 0 {
            tokio::task::yield_now().await;
            has_waited(&self.events, &mut last);
        }
    }

    /// The longest of both, in seconds, since they were asked for the last time.
    fn longest(&mut self) -> [f64; 2] {
        [&self.turn, &self.events]
            .map(|longest| Duration::from_nanos(longest.swap(0, Relaxed)).as_secs_f64())
    }

    fn stop(&self) {
        self.has_ended.store(1, Relaxed);
    }
}

/// Keeps the time since `last`, if it is the longest.
fn has_waited(longest: &AtomicU64, last: &mut Instant) {
    let now = Instant::now();
    longest.fetch_max((now - *last).as_nanos() as u64, Relaxed);
    *last = now;
}

#[derive(Default)]
struct Counts {
    calls: AtomicU64,
    last_seen: AtomicU64,
}

impl Counts {
    /// Waits until the last event has been handled, and whatever was merged with others after it.
    async fn done(&self, registration: &HandlerRegistration) {
        while self.last_seen.load(Relaxed) == 0 || registration.pending() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Median and 99th percentile of typed reads, over so many of the keys, without the time that the
/// clock takes. Each key of a few was read before.
fn reads<K: Cacheable>(lister: &Lister<K>, keys: &[Key], n_keys: u64) -> anyhow::Result<[u64; 2]> {
    let key = |n: u64| &keys[(n.wrapping_mul(15_485_863) % n_keys.min(keys.len() as u64)) as usize];
    if n_keys <= FEW {
        for n in 0..n_keys {
            black_box(lister.get_key(key(n))?);
        }
    }
    let clock = quantiles(|_| Ok(Instant::now().elapsed()))?[0];
    let reads = quantiles(|n| {
        let key = key(n);
        let started = Instant::now();
        let object = lister.get_key(key)?;
        let took = started.elapsed();
        black_box(object.context("a key without an object")?);
        Ok(took)
    })?;
    Ok(reads.map(|nanos| nanos.saturating_sub(clock)))
}

/// Median and 99th percentile, in nanoseconds.
fn quantiles(read: impl Fn(u64) -> anyhow::Result<Duration>) -> anyhow::Result<[u64; 2]> {
    let nanos = (0..READS).map(|n| Ok(read(n)?.as_nanos() as u64));
    let mut nanos = nanos.collect::<anyhow::Result<Vec<_>>>()?;
    nanos.sort_unstable();
    Ok([nanos[nanos.len() / 2], nanos[nanos.len() * 99 / 100]])
}
