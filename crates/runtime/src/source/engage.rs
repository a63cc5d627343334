//! The functions of a controller that add watches of each cluster.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use super::{WatchError, Watches};
use crate::{cluster::Cluster, pass::CacheId};

/// A function that adds the watches of a cluster:
/// [`ControllerBuilder::each_cluster`](crate::ControllerBuilder::each_cluster).
pub(crate) type EngageFn<R> =
    Box<dyn Fn(&Cluster, &Watches<R>) -> Result<(), WatchError> + Send + Sync>;

/// Calls a controller's functions once for each cluster.
pub(crate) struct Engage<R> {
    functions: Vec<EngageFn<R>>,
    /// The caches of the clusters for which they were called.
    engaged: Mutex<BTreeSet<CacheId>>,
}

impl<R> Engage<R> {
    pub(crate) fn new(functions: Vec<EngageFn<R>>) -> Self {
        Self { functions, engaged: Mutex::default() }
    }

    /// Calls the functions, unless they were called for this cluster before. A cluster and a
    /// controller that are added at the same time find each other twice.
    pub(crate) fn engage(&self, cluster: &Cluster, watches: &Watches<R>) -> Result<(), WatchError> {
        let is_new = !self.functions.is_empty() && self.engaged.lock().insert(cluster.cache().id());
        if !is_new {
            return Ok(());
        }
        self.functions.iter().try_for_each(|engage| engage(cluster, watches))
    }

    /// Forgets a cluster that was removed.
    pub(crate) fn forget(&self, cache: CacheId) {
        self.engaged.lock().remove(&cache);
    }
}
