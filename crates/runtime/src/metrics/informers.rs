//! Metrics of informers and their reflectors.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use setpoint_informer::{MetricsRegistry, metrics};
use setpoint_object::GroupVersionResource;

use super::family::{Durations, counter, gauge, histogram};

/// The upper bounds of the buckets of processing, lists and watches, in seconds.
const SECONDS: [f64; 14] =
    [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 600.0];

/// The numbers of every live informer. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct InformerFigures(Arc<Mutex<Vec<Weak<Figures>>>>);

/// The numbers of one informer.
struct Figures {
    informer: Box<str>,
    resource: GroupVersionResource,

    lists: Durations,
    listed: AtomicU64,
    watches: Durations,
    watched: AtomicU64,
    short_watches: AtomicU64,
    last_resource_version: AtomicU64,
    processed: Durations,
    queued: AtomicU64,
    store_resource_version: AtomicU64,
    objects: AtomicU64,
    pending: AtomicU64,
    pending_most: AtomicU64,
    panics: AtomicU64,
}

impl Figures {
    fn new(informer: &str, resource: &GroupVersionResource) -> Self {
        Self {
            informer: informer.into(),
            resource: resource.clone(),
            lists: Durations::new(&SECONDS),
            listed: AtomicU64::new(0),
            watches: Durations::new(&SECONDS),
            watched: AtomicU64::new(0),
            short_watches: AtomicU64::new(0),
            last_resource_version: AtomicU64::new(0),
            processed: Durations::new(&SECONDS),
            queued: AtomicU64::new(0),
            store_resource_version: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            pending_most: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        }
    }

    fn labels(&self) -> [(&'static str, &str); 4] {
        let GroupVersionResource { group, version, resource } = &self.resource;
        [("name", &self.informer), ("group", group), ("version", version), ("resource", resource)]
    }
}

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

impl metrics::Metrics for Figures {
    fn listed(&self, took: Duration, n_items: usize) {
        self.lists.observe(took);
        self.listed.fetch_add(wide(n_items), Relaxed);
    }

    fn watched(&self, took: Duration, n_events: u64, is_short: bool) {
        self.watches.observe(took);
        self.watched.fetch_add(n_events, Relaxed);
        self.short_watches.fetch_add(u64::from(is_short), Relaxed);
    }

    fn last_resource_version(&self, resource_version: u64) {
        self.last_resource_version.store(resource_version, Relaxed);
    }

    fn processed(&self, took: Duration, _: usize, n_queued: usize) {
        self.processed.observe(took);
        self.queued.store(wide(n_queued), Relaxed);
    }

    fn store(&self, resource_version: Option<u64>, n_objects: usize) {
        if let Some(resource_version) = resource_version {
            self.store_resource_version.store(resource_version, Relaxed);
        }
        self.objects.store(wide(n_objects), Relaxed);
    }

    fn handlers(&self, pending: usize, pending_most: usize) {
        self.pending.store(wide(pending), Relaxed);
        self.pending_most.store(wide(pending_most), Relaxed);
    }

    fn handler_panicked(&self) {
        self.panics.fetch_add(1, Relaxed);
    }
}

impl InformerFigures {
    /// A registry for informers to report to.
    pub(crate) fn registry(&self) -> MetricsRegistry {
        let all = self.0.clone();
        MetricsRegistry::new(move |informer, resource| {
            let figures = Arc::new(Figures::new(informer, resource));
            let mut all = all.lock();
            // An informer that has ended reports nothing more.
            all.retain(|figures| figures.strong_count() > 0);
            all.push(Arc::downgrade(&figures));
            figures
        })
    }

    fn living(&self) -> Vec<Arc<Figures>> {
        let mut living: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        living.sort_by(|a, b| (&a.informer, &a.resource).cmp(&(&b.informer, &b.resource)));
        living
    }
}

/// Writes the metrics of informers: `informer_*` and `reflector_*`.
pub(crate) struct InformerCollector(pub(crate) InformerFigures);

type Number = (&'static str, &'static str, fn(&Figures) -> &AtomicU64);
type Distribution = (&'static str, &'static str, fn(&Figures) -> &Durations);

const COUNTS: [Number; 4] = [
    ("reflector_list_items", "Objects of all lists", |figures| &figures.listed),
    ("reflector_watch_events", "Events of all watches", |figures| &figures.watched),
    ("reflector_short_watches", "Watches that ended within a second without an event", |figures| {
        &figures.short_watches
    }),
    ("informer_handler_panics", "Calls to handlers that panicked", |figures| &figures.panics),
];

const GAUGES: [Number; 6] = [
    (
        "reflector_last_resource_version",
        "The last version of the reflector, its last 15 digits",
        |figures| &figures.last_resource_version,
    ),
    ("informer_queued_items", "Changes that wait to be processed", |figures| &figures.queued),
    (
        "informer_store_resource_version",
        "The version of the cache, its last 15 digits",
        |figures| &figures.store_resource_version,
    ),
    ("informer_store_objects", "Objects in the cache", |figures| &figures.objects),
    ("informer_handler_pending", "Notifications that wait for handlers", |figures| {
        &figures.pending
    }),
    (
        "informer_handler_pending_most",
        "Pending notifications of the handler with the most",
        |figures| &figures.pending_most,
    ),
];

const DISTRIBUTIONS: [Distribution; 3] = [
    ("reflector_list_duration_seconds", "Duration of lists", |figures| &figures.lists),
    ("reflector_watch_duration_seconds", "Duration of watches", |figures| &figures.watches),
    (
        "informer_processing_latency_seconds",
        "Duration of processing a batch of changes",
        |figures| &figures.processed,
    ),
];

impl Collector for InformerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.living();
        let encoder = &mut encoder;
        for (name, help, of) in [
            ("reflector_lists", "Completed lists", DISTRIBUTIONS[0].2),
            ("reflector_watches", "Ended watches", DISTRIBUTIONS[1].2),
        ] {
            let mut family = counter(encoder, name, help)?;
            for figures in &all {
                let n = of(figures).buckets().iter().map(|(_, count)| count).sum();
                family.count(&figures.labels(), n)?;
            }
        }
        for (name, help, of) in COUNTS {
            let mut family = counter(encoder, name, help)?;
            for figures in &all {
                family.count(&figures.labels(), of(figures).load(Relaxed))?;
            }
        }
        for (name, help, of) in GAUGES {
            let mut family = gauge(encoder, name, help)?;
            for figures in &all {
                family.value(&figures.labels(), &of(figures).load(Relaxed))?;
            }
        }
        for (name, help, of) in DISTRIBUTIONS {
            let mut family = histogram(encoder, name, help)?;
            for figures in &all {
                let durations = of(figures);
                family.distribution(&figures.labels(), durations.sum(), &durations.buckets())?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for InformerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InformerCollector")
    }
}
