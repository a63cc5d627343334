//! Which objects of a type are cached, and how: what is said of a type goes before what is said of
//! all.

use std::{any::TypeId, collections::BTreeMap, fmt, sync::Arc, time::Duration};

use kube_core::ClusterResourceScope;
use setpoint_informer::{
    CachePolicy, Cacheable, ListWatch, MetricsRegistry, ResourceType,
    factory::{ChooseSource, Selection, SourceRequest},
    source::saved::SavedLists,
    transform::Transform,
};
use setpoint_object::{GroupVersionResource, Prune};

/// How many namespaces one level of options names at most.
pub const NAMESPACES_MAX: usize = 1024;

/// The key of [`Namespaces`] that stands for all namespaces, or for all others where there are
/// named ones.
pub const ALL_NAMESPACES: &str = "";

/// What one level says about caches; `None` leaves it to the level below (CCH-1).
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct CacheConfig {
    /// A label selector in the query form; empty is everything, whatever a level below says.
    pub labels: Option<String>,
    /// A field selector in the query form; empty is everything, whatever a level below says.
    pub fields: Option<String>,
    /// Changes every object before it enters.
    pub transform: Option<Transform>,
    /// What is cut out of objects before they enter.
    pub prune: Option<Prune>,
    /// Whether caches keep `metadata.managedFields`; `false` without a level that says.
    pub keep_managed_fields: Option<bool>,
    /// What caches hold.
    pub policy: Option<CachePolicy>,
    /// The resync period; zero is never.
    pub resync: Option<Duration>,
}

/// The namespaces whose objects are cached, each with what is special about it.
pub type Namespaces = BTreeMap<String, CacheConfig>;

/// What is said of one type, before what is said of all.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ByType {
    /// Of all its objects.
    pub config: CacheConfig,
    /// `None` is what is said of all types; an empty map is all namespaces (CCH-2).
    pub namespaces: Option<Namespaces>,
}

/// What a manager or a cluster caches, and how: of all types, of some namespaces, and of single
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
    pub(super) give_up_after: Option<Duration>,
    pub(super) source: Option<ChooseSource>,
    pub(super) saved: Option<SavedLists>,
    /// Where informers are counted, under which informer name.
    pub(crate) metrics: Option<(MetricsRegistry, String)>,
}

/// Options that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheOptionsError {
    /// Objects of this type have no namespace (CCH-2).
    #[error("{resource} has no namespaces: none can be chosen")]
    ClusterScoped {
        /// The resource.
        resource: String,
    },
    /// More namespaces than [`NAMESPACES_MAX`].
    #[error("{n_namespaces} namespaces are more than {NAMESPACES_MAX}")]
    TooMany {
        /// So many.
        n_namespaces: usize,
    },
}

/// What holds for the objects of one type in one namespace, or in all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resolved {
    pub(crate) selection: Selection,
    /// It is of one namespace that was named.
    pub(crate) is_named: bool,
    pub(crate) config: CacheConfig,
}

impl CacheOptions {
    /// All objects of every type that is asked for, held as [`CachePolicy::Compact`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything that may be said of all types, in place of what was said before.
    pub fn config(mut self, config: CacheConfig) -> Self {
        self.config = config;
        self
    }

    /// Caches only the objects of these namespaces; a cached read of another one is an error. No
    /// names: all namespaces, which is the default.
    ///
    /// Each namespace is a list and a watch of its own, for which permissions in that namespace are
    /// enough. Types that have no namespaces are cached whole. Of a type that is known at run time
    /// alone this cannot be seen: say it by
    /// [`Watch::cluster_scoped`](crate::Watch::cluster_scoped), or by an empty map [of its
    /// own](ByType::namespaces).
    ///
    /// # Errors
    ///
    /// There are more than [`NAMESPACES_MAX`].
    pub fn namespaces<N: Into<String>>(
        self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, CacheOptionsError> {
        let named = |name: N| (name.into(), CacheConfig::default());
        // One more than there may be, so that an endless iterator ends.
        self.namespaces_with(names.into_iter().take(NAMESPACES_MAX + 1).map(named).collect())
    }

    /// [`namespaces`](Self::namespaces), each with what is special about it.
    ///
    /// # Errors
    ///
    /// There are more than [`NAMESPACES_MAX`].
    pub fn namespaces_with(mut self, namespaces: Namespaces) -> Result<Self, CacheOptionsError> {
        check_number(&namespaces)?;
        self.namespaces = namespaces;
        Ok(self)
    }

    /// Caches only objects whose labels match, in the query form. Default: all.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.config.labels = Some(selector.into());
        self
    }

    /// Caches only objects whose fields match, in the query form. Default: all.
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

    /// What caches hold of each object. Default: [`CachePolicy::Compact`].
    pub fn policy(mut self, policy: CachePolicy) -> Self {
        self.config.policy = Some(policy);
        self
    }

    /// How often handlers are told again of every cached object, without asking the server; each
    /// informer's period is longer or shorter by up to 10 %. Zero is never. Default:
    /// [`SYNC_PERIOD`](super::SYNC_PERIOD), 10 h.
    pub fn resync(mut self, period: Duration) -> Self {
        self.config.resync = Some(period);
        self
    }

    /// Caches only a part of the objects that the server chooses (KEP-5866), of every type.
    /// Default: all.
    pub fn shard(mut self, selector: impl Into<String>) -> Self {
        self.shard = selector.into();
        self
    }

    /// How many bytes of decoded objects each cache keeps beside the encoded ones, so that what was
    /// read is there for its next reader. Default:
    /// [`DECODED_BYTES`](setpoint_informer::DECODED_BYTES); zero is none.
    pub fn decoded_bytes(mut self, n_bytes: usize) -> Self {
        self.decoded_bytes = Some(n_bytes);
        self
    }

    /// The first and the longest wait of an informer between failures. Default: client-go's.
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.backoff = Some((min, max));
        self
    }

    /// Ends an informer whose type the server has refused (403, 404) for so long; controllers that
    /// still wait for its first list then fail. Default: never, it goes on trying.
    pub fn give_up_after(mut self, patience: Duration) -> Self {
        self.give_up_after = Some(patience);
        self
    }

    /// Chooses the source of each cache: a control plane in this process without HTTP, a recorded
    /// or scripted one, or one that injects faults.
    ///
    /// The function gets what the cache lists and watches, and the source over the client, which it
    /// may wrap or ignore. It is called once per cache, when the cache is requested. Writes and
    /// live reads use the client in any case. Default: the source over the client.
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
    /// A cache of a saved resource and selection sends no list: it watches from the version that
    /// was saved. If the server no longer has that version, the cache lists as usual. Others list
    /// as usual, too. Each list is used once. Default: nothing is restored.
    ///
    /// Restore lists of the same cluster only, and with the same `prune` and transforms: objects
    /// stay in the saved form until they change.
    pub fn restore(mut self, saved: SavedLists) -> Self {
        self.saved = Some(saved);
        self
    }

    /// Counts informers into this registry, under this informer name. Default: the manager's
    /// metrics, as `manager` or by the cluster's name.
    pub fn metrics(mut self, registry: MetricsRegistry, name: impl Into<String>) -> Self {
        self.metrics = Some((registry, name.into()));
        self
    }

    /// Says something of one type; the last one counts.
    ///
    /// # Errors
    ///
    /// It has no namespaces, and some were chosen; or there are too many.
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
            check_number(namespaces)?;
        }
        self.by_type.insert(resource, by_type);
        Ok(self)
    }

    /// What holds for the objects of a type, per namespace (CCH-1 to 3, CCH-12).
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
                // Beside named ones it is all others.
                let others = names.iter().filter(|name| **name != ALL_NAMESPACES);
                fields.extend(others.map(|name| format!("metadata.namespace!={name}")));
            }
            let fields = fields.join(",");
            let mut selection = Selection::default();
            selection.namespace = match *name {
                ALL_NAMESPACES => the_namespace(&fields),
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
    /// Takes from a level below what this does not say.
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

fn check_number(namespaces: &Namespaces) -> Result<(), CacheOptionsError> {
    let n_namespaces = namespaces.len();
    if n_namespaces > NAMESPACES_MAX {
        return Err(CacheOptionsError::TooMany { n_namespaces });
    }
    Ok(())
}

fn has_no_namespaces<K: Cacheable>() -> bool {
    TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>()
}

/// The one namespace that a field selector demands: then its path is asked, which a permission for
/// that namespace allows (CCH-12).
fn the_namespace(fields: &str) -> Option<String> {
    let demanded = fields.split(',').find_map(|requirement| {
        let (field, value) = requirement.split_once('=')?;
        let value = value.strip_prefix('=').unwrap_or(value);
        (field.trim() == "metadata.namespace").then(|| value.trim().to_owned())
    });
    demanded.filter(|namespace| !namespace.is_empty())
}

impl fmt::Debug for CacheOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheOptions")
            .field("config", &self.config)
            .field("namespaces", &self.namespaces)
            .field("by_type", &self.by_type)
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
