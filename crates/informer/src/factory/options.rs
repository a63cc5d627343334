//! Options of all informers of a factory.
use crate::informer::{Settings, SharedInformerBuilder};
use crate::metrics::MetricsRegistry;
use crate::policy::CachePolicy;
use crate::reflector::ReflectorError;
use crate::resource_type::ResourceType;
use crate::source::{ClientSource, ListWatch, Selection};
use crate::transform::Transform;
use kube_core::DynamicObject;
use setpoint_object::Prune;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Chooses the source of an informer; see [`FactoryOptions::source`].
pub type ChooseSource =
    Arc<dyn Fn(&SourceRequest, Arc<dyn ListWatch>) -> Arc<dyn ListWatch> + Send + Sync>;

/// Handles a failure of the informer of a type; see [`FactoryOptions::on_error`].
pub type OnError = Arc<dyn Fn(&ResourceType, &ReflectorError) + Send + Sync>;

/// The resource and selection of an informer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SourceRequest {
    /// The type.
    pub resource_type: ResourceType,
    /// The selected objects.
    pub selection: Selection,
    /// Whether metadata is enough. It can change to `false` before the first request.
    pub metadata_only: Arc<AtomicBool>,
}

/// Options of all informers of a factory.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct FactoryOptions {
    /// Only objects of this namespace; `None` is all of them.
    pub namespace: Option<String>,
    /// A label selector in the query form.
    pub labels: String,
    /// A field selector in the query form.
    pub fields: String,
    /// A shard selector (KEP-5866), see [`ClientSource::shard`]; empty is all.
    pub shard: String,
    /// Chooses the source of each informer. It gets what the informer lists and watches, and the
    /// source over the factory's client, which it may wrap or ignore. A source that has only some
    /// of the objects implements [`ListWatch::selection`]. `None`: the client's source.
    pub source: Option<ChooseSource>,
    /// The resync period; zero is never.
    pub resync: Duration,
    /// The random spread of resync periods; see [`SharedInformerBuilder::resync_spread`].
    pub resync_spread: f64,
    /// Resync periods of single types.
    pub resync_of: HashMap<ResourceType, Duration>,
    /// How caches store objects.
    pub policy: CachePolicy,
    /// Fields to remove from objects before they are cached; see [`SharedInformerBuilder::prune`].
    pub prune: Option<Prune>,
    /// Whether caches keep `metadata.managedFields`; see
    /// [`SharedInformerBuilder::keep_managed_fields`]. Default: no.
    pub keep_managed_fields: bool,
    /// The largest size of the decoded objects that each cache keeps besides, bytes; `None` is
    /// [`DECODED_BYTES`](crate::DECODED_BYTES).
    pub decoded_bytes: Option<usize>,
    /// Changes every object before it is cached; see [`Transform`].
    pub transform: Option<Transform>,
    /// The first and the longest wait between failures; `None` is client-go's.
    pub backoff: Option<(Duration, Duration)>,
    /// How long a watch may bring nothing before another one is opened; zero turns it off. `None`
    /// is [`WATCH_QUIET_TIMEOUT`](crate::reflector::WATCH_QUIET_TIMEOUT), 90 s. See
    /// [`SharedInformerBuilder::watch_quiet_timeout`].
    pub watch_quiet_timeout: Option<Duration>,
    /// Called with every failure of an informer; see [`SharedInformerBuilder::on_error`].
    pub on_error: Option<OnError>,
    /// Stops informers whose type has been refused for this long; see
    /// [`SharedInformerBuilder::give_up_after`]. `None` is never.
    pub give_up_after: Option<Duration>,
    /// The registry for metrics, under [`name`](Self::name). Of several selections of one type, the
    /// first has metrics.
    pub metrics: Option<MetricsRegistry>,
    /// The informer name in metrics.
    pub name: String,
    /// The seed of all jitter, for a simulation; each informer derives its own. `None` is the
    /// operating system's entropy.
    pub seed: Option<u64>,
}

impl fmt::Debug for FactoryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FactoryOptions")
            .field("name", &self.name)
            .field("selection", &self.selection())
            .field("resync", &self.resync)
            .field("policy", &self.policy)
            .field("prune", &self.prune)
            .field("transforms", &self.transform.is_some())
            .field("watch_quiet_timeout", &self.watch_quiet_timeout)
            .field("give_up_after", &self.give_up_after)
            .finish_non_exhaustive()
    }
}

impl FactoryOptions {
    /// The selection of requests without one.
    pub(super) fn selection(&self) -> Selection {
        Selection {
            namespace: self.namespace.clone(),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            shard: self.shard.clone(),
        }
    }

    /// How an informer is built, over the source that reads its objects from the server.
    pub(super) fn settings(
        &self,
        source: ClientSource,
        resource_type: &ResourceType,
        selection: &Selection,
        metadata_only: Arc<AtomicBool>,
    ) -> Box<Settings> {
        let source = source
            .labels(selection.labels.clone())
            .fields(selection.fields.clone())
            .shard(selection.shard.clone())
            .metadata_while(metadata_only.clone());
        let mut source: Arc<dyn ListWatch> = Arc::new(source);
        if let Some(choose) = &self.source {
            let (resource_type, selection) = (resource_type.clone(), selection.clone());
            source = choose(&SourceRequest { resource_type, selection, metadata_only }, source);
        }
        let mut hasher = DefaultHasher::new();
        resource_type.hash(&mut hasher);
        // The factory's own selection does not change the seed.
        if *selection != self.selection() {
            selection.hash(&mut hasher);
        }
        let resync = self.resync_of.get(resource_type).copied().unwrap_or(self.resync);
        // What it is built with does not depend on the type of the objects.
        let mut builder =
            SharedInformerBuilder::<DynamicObject>::new(source, resource_type.clone())
                .resync(resync)
                .resync_spread(self.resync_spread)
                .policy(self.policy)
                .keep_managed_fields(self.keep_managed_fields);
        if let Some(seed) = self.seed {
            builder = builder.seed(seed ^ hasher.finish());
        }
        if let Some((min, max)) = self.backoff {
            builder = builder.backoff(min, max);
        }
        if let Some(timeout) = self.watch_quiet_timeout {
            builder = builder.watch_quiet_timeout(timeout);
        }
        if let Some(handle) = self.on_error.clone() {
            let of = resource_type.clone();
            builder = builder.on_error(move |error| handle(&of, error));
        }
        if let Some(prune) = self.prune.clone() {
            builder = builder.prune(prune);
        }
        if let Some(n_bytes) = self.decoded_bytes {
            builder = builder.decoded_bytes(n_bytes);
        }
        if let Some(transform) = self.transform.clone() {
            builder = builder.transform(move |object| transform(object));
        }
        if let Some(patience) = self.give_up_after {
            builder = builder.give_up_after(patience);
        }
        if let Some(metrics) = &self.metrics {
            builder = builder.metrics(metrics, self.name.as_str());
        }
        builder.into_settings()
    }
}
