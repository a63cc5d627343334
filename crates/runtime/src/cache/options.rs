//! Options of the cache: which objects of a type are cached, and in which form. Options of a type
//! take precedence over those of all types.

mod level;

use std::{any::TypeId, collections::BTreeMap, fmt, sync::Arc, time::Duration};

use kube_core::ClusterResourceScope;
use setpoint_informer::{
    CachePolicy, Cacheable, ListWatch, MetricsRegistry, ReflectorError, ResourceType,
    factory::{ChooseSource, OnError, Selection, SourceRequest},
    source::saved::SavedLists,
    transform::Transform,
};
use setpoint_object::{GroupVersionResource, Prune, name::dns1123_label};

/// The maximum number of namespaces at one level of options.
pub const NAMESPACES_MAX: usize = 1024;

/// The key of [`Namespaces`] for all namespaces, or for all others if some are named.
pub const ALL_NAMESPACES: &str = "";

/// The options of one level. `None` inherits the value of the level below (CCH-1).
///
/// ```
/// # use setpoint_runtime::cache::{ByType, CacheConfig};
/// let by_type = ByType::new().config(CacheConfig::new().labels("app=web"));
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
#[must_use]
pub struct CacheConfig {
    /// A label selector in the query form. Empty selects everything and overrides the levels below.
    pub labels: Option<String>,
    /// A field selector in the query form. Empty selects everything and overrides the levels below.
    pub fields: Option<String>,
    /// A function that changes every object before it is cached.
    pub transform: Option<Transform>,
    /// The fields removed from objects before they are cached.
    pub prune: Option<Prune>,
    /// Whether caches keep `metadata.managedFields`. `false` if no level sets it.
    pub keep_managed_fields: Option<bool>,
    /// The form in which objects are stored.
    pub policy: Option<CachePolicy>,
    /// The resync period. Zero disables it.
    pub resync: Option<Duration>,
}

/// The cached namespaces, each with its options.
pub type Namespaces = BTreeMap<String, CacheConfig>;

/// The options of one type, which take precedence over the options of all types.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
#[must_use]
pub struct ByType {
    /// Options for all its objects.
    pub config: CacheConfig,
    /// `None` inherits the namespaces of all types. An empty map is all namespaces (CCH-2).
    pub namespaces: Option<Namespaces>,
}

/// The cache options of a manager or a cluster: for all types, for some namespaces, and for single
/// types.
///
/// ```
/// # use std::time::Duration;
/// # use setpoint_runtime::{CacheOptions, cache::CacheOptionsError};
/// # fn example() -> Result<CacheOptions, CacheOptionsError> {
/// let options = CacheOptions::new()
///     .namespaces(["web", "jobs"])?
///     .labels("app.kubernetes.io/managed-by=me")
///     .resync(Duration::from_secs(3600));
/// # Ok(options)
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct CacheOptions {
    config: CacheConfig,
    namespaces: Namespaces,
    by_type: BTreeMap<GroupVersionResource, ByType>,
    pub(super) shard: String,
    pub(super) decoded_bytes: Option<usize>,
    pub(super) backoff: Option<(Duration, Duration)>,
    pub(super) watch_quiet_timeout: Option<Duration>,
    pub(super) on_error: Option<OnError>,
    pub(super) give_up_after: Option<Duration>,
    pub(super) source: Option<ChooseSource>,
    pub(super) saved: Option<SavedLists>,
    /// The metrics registry of the informers, and their name in it.
    pub(crate) metrics: Option<(MetricsRegistry, String)>,
}

/// Invalid options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheOptionsError {
    /// Namespaces were given for a cluster-scoped type (CCH-2).
    #[error("{resource} is cluster-scoped: its namespaces cannot be set")]
    ClusterScoped {
        /// The resource.
        resource: String,
    },
    /// A text that is no name of a namespace. It would lead to the path of another resource, or of
    /// none.
    #[error(
        "{name:?} cannot be the name of a namespace: use lower-case letters, digits and '-' between them, at most 63"
    )]
    Namespace {
        /// The text.
        name: String,
    },
    /// More namespaces than [`NAMESPACES_MAX`].
    #[error("{n_namespaces} namespaces are too many: the maximum is {NAMESPACES_MAX}")]
    TooMany {
        /// The number given.
        n_namespaces: usize,
    },
}

/// The resolved options for the objects of one type in one namespace, or in all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resolved {
    pub(crate) selection: Selection,
    /// The options name this namespace.
    pub(crate) is_named: bool,
    pub(crate) config: CacheConfig,
}

impl CacheOptions {
    /// Caches all objects of every requested type as [`CachePolicy::Compact`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what `config` sets, for all types. What it leaves out stays as it is, so that the order
    /// of calls matters only if two set the same option: then the last one counts.
    pub fn config(mut self, mut config: CacheConfig) -> Self {
        config.inherit(&self.config);
        self.config = config;
        self
    }

    /// Caches only the objects of these namespaces. A cached read of another namespace is an error.
    /// Without names, all namespaces are cached, which is the default.
    ///
    /// Each namespace has its own list and watch, so permissions in that namespace are enough.
    /// Cluster-scoped types are cached whole. The scope of a type known only at run time is
    /// unknown: set it with [`Watch::cluster_scoped`](crate::Watch::cluster_scoped), or give the
    /// type an empty map of [namespaces](ByType::namespaces).
    ///
    /// # Errors
    ///
    /// More than [`NAMESPACES_MAX`] namespaces, or a text that is no name of one.
    pub fn namespaces<N: Into<String>>(
        self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, CacheOptionsError> {
        let named = |name: N| (name.into(), CacheConfig::default());
        // Takes one more than the maximum, so that an endless iterator ends.
        self.namespaces_with(names.into_iter().take(NAMESPACES_MAX + 1).map(named).collect())
    }

    /// [`namespaces`](Self::namespaces), each with its own options.
    ///
    /// # Errors
    ///
    /// More than [`NAMESPACES_MAX`] namespaces, or a text that is no name of one.
    pub fn namespaces_with(mut self, namespaces: Namespaces) -> Result<Self, CacheOptionsError> {
        check(&namespaces)?;
        self.namespaces = namespaces;
        Ok(self)
    }

    /// The namespaces of all types.
    pub(crate) fn into_namespaces(self) -> Namespaces {
        self.namespaces
    }

    /// These namespaces, which were checked, in place of those that are set.
    pub(crate) fn in_namespaces(mut self, namespaces: Namespaces) -> Self {
        self.namespaces = namespaces;
        self
    }

    /// Caches only objects whose labels match this selector in the query form. Default: all.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.config.labels = Some(selector.into());
        self
    }

    /// Caches only objects whose fields match this selector in the query form. Default: all.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.config.fields = Some(selector.into());
        self
    }

    /// Removes fields from objects before they are cached. Default: only `metadata.managedFields`;
    /// see [`keep_managed_fields`](Self::keep_managed_fields).
    pub fn prune(mut self, prune: Prune) -> Self {
        self.config.prune = Some(prune);
        self
    }

    /// Whether caches keep `metadata.managedFields`, often a third of an object. Default: no.
    ///
    /// Explanations name the writers of an object only if they are kept
    /// ([`Explanation::writers`](crate::explain::Explanation::writers)). Writes do not need them:
    /// an update without them keeps the owners on the server.
    pub fn keep_managed_fields(mut self, keep: bool) -> Self {
        self.config.keep_managed_fields = Some(keep);
        self
    }

    /// The form in which objects are stored. Default: [`CachePolicy::Compact`].
    pub fn policy(mut self, policy: CachePolicy) -> Self {
        self.config.policy = Some(policy);
        self
    }

    /// How often handlers receive every cached object again, without a request to the server. Each
    /// informer's period is longer or shorter by up to 10 %. Zero disables it. Default:
    /// [`SYNC_PERIOD`](super::SYNC_PERIOD), 10 h.
    pub fn resync(mut self, period: Duration) -> Self {
        self.config.resync = Some(period);
        self
    }

    /// Caches only one shard of the objects of every type, which the server selects (KEP-5866).
    /// Default: all.
    pub fn shard(mut self, selector: impl Into<String>) -> Self {
        self.shard = selector.into();
        self
    }

    /// The maximum size of the decoded objects that each cache keeps beside the encoded ones, so
    /// that an object that was read need not be decoded again. Default:
    /// [`DECODED_BYTES`](setpoint_informer::DECODED_BYTES). Zero disables it.
    pub fn decoded_bytes(mut self, n_bytes: usize) -> Self {
        self.decoded_bytes = Some(n_bytes);
        self
    }

    /// The minimum and maximum back-off of an informer after failures. Default: client-go's.
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.backoff = Some((min, max));
        self
    }

    /// How long a watch may bring nothing, not even a bookmark, before another one is opened, and
    /// how long a request for a watch may wait for its answer: a connection that died silently is
    /// found after this time and at most a quarter more. Zero turns it off. Default:
    /// [`WATCH_QUIET_TIMEOUT`](setpoint_informer::reflector::WATCH_QUIET_TIMEOUT), 90 s.
    ///
    /// Servers send a bookmark every minute or so. A shorter time opens many watches for nothing.
    pub fn watch_quiet_timeout(mut self, timeout: Duration) -> Self {
        self.watch_quiet_timeout = Some(timeout);
        self
    }

    /// Calls `handler` with every failure of an informer to list or watch its type, in addition to
    /// the log and the informer's status. Must return fast. Default: nothing is called.
    ///
    /// ```
    /// # use setpoint_runtime::CacheOptions;
    /// let options = CacheOptions::new().on_error(|resource, error| {
    ///     eprintln!("{resource}: {error}");
    /// });
    /// ```
    pub fn on_error(
        mut self,
        handler: impl Fn(&ResourceType, &ReflectorError) + Send + Sync + 'static,
    ) -> Self {
        self.on_error = Some(Arc::new(handler));
        self
    }

    /// Ends an informer when the server has refused its type (403, 404) for this long. Controllers
    /// that still wait for its first list then fail. Default: never; the informer keeps trying.
    pub fn give_up_after(mut self, patience: Duration) -> Self {
        self.give_up_after = Some(patience);
        self
    }

    /// Chooses the source of each cache: a control plane in this process without HTTP, a recorded
    /// or scripted one, or one that injects faults.
    ///
    /// The function receives the resource and selection of the cache, and the source over the
    /// client, which it may wrap or ignore. It is called once per cache, when the cache is
    /// requested. Writes and live reads use the client in any case. Default: the source over the
    /// client.
    ///
    /// ```
    /// # use setpoint_runtime::CacheOptions;
    /// let options = CacheOptions::new().source(|request, source| {
    ///     tracing::info!(resource = %request.resource_type, "cached");
    ///     source
    /// });
    /// ```
    pub fn source(
        mut self,
        choose: impl Fn(&SourceRequest, Arc<dyn ListWatch>) -> Arc<dyn ListWatch>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.source = Some(Arc::new(choose));
        self
    }

    /// Starts caches with the objects of an earlier process, from
    /// [`Cache::save`](super::Cache::save).
    ///
    /// A cache whose resource and selection were saved sends no list: it watches from the saved
    /// version. If the server no longer has that version, the cache lists as usual. All other
    /// caches list as usual. Each saved list is used once. Default: nothing is restored.
    ///
    /// Restore lists of the same cluster only, and with the same `prune` and transforms: objects
    /// stay in the saved form until they change.
    pub fn restore(mut self, saved: SavedLists) -> Self {
        self.saved = Some(saved);
        self
    }

    /// Records the informers' metrics in this registry, under this informer name. Default: the
    /// manager's metrics, under `manager` or the cluster's name.
    pub fn metrics(mut self, registry: MetricsRegistry, name: impl Into<String>) -> Self {
        self.metrics = Some((registry, name.into()));
        self
    }

    /// Sets the options of one type, in place of earlier ones.
    ///
    /// # Errors
    ///
    /// The type is cluster-scoped and namespaces were given, there are too many namespaces, or one
    /// is no name.
    pub fn of<K: Cacheable>(
        mut self,
        dynamic_type: &K::DynamicType,
        by_type: ByType,
    ) -> Result<Self, CacheOptionsError> {
        let resource = ResourceType::of::<K>(dynamic_type).resource;
        if let Some(namespaces) = &by_type.namespaces {
            if !namespaces.is_empty() && has_no_namespaces::<K>() {
                let resource = resource.resource.to_string();
                return Err(CacheOptionsError::ClusterScoped { resource });
            }
            check(namespaces)?;
        }
        self.by_type.insert(resource, by_type);
        Ok(self)
    }

    /// Resolves the options of a type, per namespace (CCH-1 to 3, CCH-12).
    pub(crate) fn resolve<K: Cacheable>(
        &self,
        resource: &ResourceType,
        is_cluster_scoped: bool,
    ) -> Vec<Resolved> {
        self.resolve_of(&resource.resource, is_cluster_scoped || has_no_namespaces::<K>())
    }

    fn resolve_of(
        &self,
        resource: &GroupVersionResource,
        is_cluster_scoped: bool,
    ) -> Vec<Resolved> {
        let by_type = self.by_type.get(resource);
        let own = by_type.map(|by_type| &by_type.config);
        let own_namespaces =
            by_type.and_then(|by_type| by_type.namespaces.as_ref()).filter(|_| !is_cluster_scoped);
        let none = Namespaces::new();
        let chosen = match own_namespaces {
            _ if is_cluster_scoped => &none,
            Some(namespaces) => namespaces,
            None => &self.namespaces,
        };
        let names: Vec<&str> = if chosen.is_empty() {
            vec![ALL_NAMESPACES]
        } else {
            chosen.keys().map(String::as_str).collect()
        };
        let resolve = |name: &&str| {
            let levels = [
                own_namespaces.and_then(|namespaces| namespaces.get(*name)),
                own,
                self.namespaces.get(*name).filter(|_| !is_cluster_scoped),
                Some(&self.config),
            ];
            let mut config = CacheConfig::default();
            for level in levels.into_iter().flatten() {
                config.inherit(level);
            }
            let mut fields: Vec<String> = config.fields.iter().cloned().collect();
            fields.retain(|fields| !fields.is_empty());
            if *name == ALL_NAMESPACES {
                // If other namespaces are named, this is all others.
                let others = names.iter().filter(|name| **name != ALL_NAMESPACES);
                fields.extend(others.map(|name| format!("metadata.namespace!={name}")));
            }
            let fields = fields.join(",");
            let mut selection = Selection::default();
            selection.namespace = match *name {
                ALL_NAMESPACES => demanded_namespace(&fields),
                name => Some(name.to_owned()),
            };
            selection.labels = config.labels.clone().unwrap_or_default();
            selection.fields = fields;
            selection.shard.clone_from(&self.shard);
            let is_named = *name != ALL_NAMESPACES;
            Resolved { selection, is_named, config }
        };
        names.iter().map(resolve).collect()
    }
}

impl CacheConfig {
    /// Takes the values that are not set here from the level below.
    fn inherit(&mut self, below: &Self) {
        fn take<T: Clone>(own: &mut Option<T>, below: &Option<T>) {
            if own.is_none() {
                own.clone_from(below);
            }
        }
        take(&mut self.labels, &below.labels);
        take(&mut self.fields, &below.fields);
        take(&mut self.transform, &below.transform);
        take(&mut self.prune, &below.prune);
        take(&mut self.keep_managed_fields, &below.keep_managed_fields);
        take(&mut self.policy, &below.policy);
        take(&mut self.resync, &below.resync);
    }
}

fn check(namespaces: &Namespaces) -> Result<(), CacheOptionsError> {
    let n_namespaces = namespaces.len();
    if n_namespaces > NAMESPACES_MAX {
        return Err(CacheOptionsError::TooMany { n_namespaces });
    }
    let is_none = |name: &&String| *name != ALL_NAMESPACES && !dns1123_label(name).is_empty();
    match namespaces.keys().find(is_none) {
        Some(name) => Err(CacheOptionsError::Namespace { name: name.clone() }),
        None => Ok(()),
    }
}

fn has_no_namespaces<K: Cacheable>() -> bool {
    TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>()
}

/// The one namespace that a field selector demands. The request then uses the path of that
/// namespace, for which a permission in it is enough (CCH-12).
fn demanded_namespace(fields: &str) -> Option<String> {
    let demanded = fields.split(',').find_map(|requirement| {
        let (field, value) = requirement.split_once('=')?;
        let value = value.strip_prefix('=').unwrap_or(value);
        (field.trim() == "metadata.namespace").then(|| value.trim().to_owned())
    });
    demanded.filter(|namespace| dns1123_label(namespace).is_empty())
}

impl fmt::Debug for CacheOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheOptions")
            .field("config", &self.config)
            .field("namespaces", &self.namespaces)
            .field("by_type", &self.by_type)
            .field("watch_quiet_timeout", &self.watch_quiet_timeout)
            .field("give_up_after", &self.give_up_after)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for CacheConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheConfig")
            .field("labels", &self.labels)
            .field("fields", &self.fields)
            .field("transforms", &self.transform.is_some())
            .field("prune", &self.prune)
            .field("keep_managed_fields", &self.keep_managed_fields)
            .field("policy", &self.policy)
            .field("resync", &self.resync)
            .finish()
    }
}

#[cfg(test)]
mod tests;
