//! Adds and removes watches while a controller runs.

use std::{fmt, sync::Arc};

use setpoint_informer::{Cacheable, Event};

use super::{
    DynSource, EventHandler, External, Mapped, Source, SourceStatus, Sources, Unbound, Watch,
};
use crate::{
    cache::CacheRegistration,
    cluster::Cluster,
    pass::CacheId,
    request::{Request, RequestKey},
};

/// The watches of one controller, to add and remove while it runs. Cheap to clone; outlives the
/// controller.
///
/// The workers wait for the watches that are added before the controller starts. A watch that is
/// added later starts at once, and nothing waits for it. Its type is cached until the watch is
/// removed, or longer if something else needs it. So a reconciler should read such a type only
/// while its watch exists.
///
/// From [`Controller::watches`](crate::Controller::watches),
/// [`ControllerHandle::watches`](crate::ControllerHandle::watches), and in a pass
/// [`Context::watches`](crate::Context::watches).
pub struct Watches<R = Request> {
    sources: Arc<Sources<R>>,
    /// Whether the start of the controller waits for watches that are added before it.
    delays_start: bool,
}

impl Watches<Request> {
    /// Adds a type whose objects' own keys are queued.
    ///
    /// # Errors
    ///
    /// The controller has stopped or has too many sources, the given informer has stopped, or the
    /// cluster was removed.
    pub fn objects<K: Cacheable>(&self, watch: Watch<K>) -> Result<WatchHandle, WatchError> {
        self.add(watch.of_objects())
    }
}

impl<R> Watches<R> {
    pub(crate) fn new(sources: Arc<Sources<R>>) -> Self {
        Self { sources, delays_start: true }
    }

    /// The same, for watches that the start of the controller never waits for.
    pub(crate) fn in_background(&self) -> Self {
        Self { sources: self.sources.clone(), delays_start: false }
    }
}

impl<R: RequestKey> Watches<R> {
    /// Adds a type whose events concern the keys that `map` returns:
    /// [`ControllerBuilder::watches`](crate::ControllerBuilder::watches).
    ///
    /// # Errors
    ///
    /// As [`objects`](Watches::objects).
    pub fn watch<K: Cacheable>(
        &self,
        watch: Watch<K>,
        map: impl Fn(&Event<K>) -> Vec<R> + Send + Sync + 'static,
    ) -> Result<WatchHandle, WatchError> {
        self.add(watch.handled(Mapped(map)))
    }

    /// Adds a type whose events `handler` turns into keys:
    /// [`ControllerBuilder::handles`](crate::ControllerBuilder::handles).
    ///
    /// # Errors
    ///
    /// As [`objects`](Watches::objects).
    pub fn handle<K: Cacheable>(
        &self,
        watch: Watch<K>,
        handler: impl EventHandler<K, R>,
    ) -> Result<WatchHandle, WatchError> {
        self.add(watch.handled(handler))
    }

    /// Calls the controller's functions for a cluster, once.
    pub(crate) fn engage(&self, cluster: &Cluster) -> Result<(), WatchError> {
        self.sources.engage().engage(cluster, &self.in_background())
    }

    /// Removes the watches of a cluster.
    pub(crate) fn remove_cluster(&self, cache: CacheId) {
        self.sources.remove_cluster(cache);
    }

    /// Adds a source other than a watch. While the controller runs, it starts at once, without a
    /// time-out.
    ///
    /// # Errors
    ///
    /// The controller has stopped, or has too many sources.
    pub fn source(&self, source: impl Source<R>) -> Result<(), WatchError> {
        let source: Box<dyn DynSource<R>> = Box::new(External(source));
        self.sources.add_external(source)
    }

    fn add(&self, watch: Unbound<R>) -> Result<WatchHandle, WatchError> {
        let number = self.sources.add_watch(watch, self.delays_start)?;
        Ok(WatchHandle { sources: self.sources.clone(), number })
    }

    /// Queues, at the low priority, every key that the watched objects lead to and that `only`
    /// accepts, as at a restart. Takes time proportional to the number of cached objects, in slices
    /// of [`OBJECTS_PER_POLL_MAX`](setpoint_informer::informer::OBJECTS_PER_POLL_MAX). Cancel safe:
    /// a dropped future queues no more.
    pub async fn requeue(&self, only: impl Fn(&R) -> bool + Send + Sync) {
        self.sources.requeue(&only).await;
    }

    /// The status of each watch, those of the builder first, and then of each channel.
    pub fn statuses(&self) -> Vec<SourceStatus> {
        self.sources.statuses()
    }
}

impl<R> Clone for Watches<R> {
    fn clone(&self) -> Self {
        Self { sources: self.sources.clone(), delays_start: self.delays_start }
    }
}

impl<R> fmt::Debug for Watches<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watches").field(&self.sources).finish()
    }
}

/// The sources of a controller, without the type of its keys.
trait DynSources: Send + Sync {
    fn remove_watch(&self, number: usize) -> bool;
    fn status(&self, number: usize) -> Option<SourceStatus>;
    fn registration(&self, number: usize) -> Option<CacheRegistration>;
}

impl<R: RequestKey> DynSources for Sources<R> {
    fn remove_watch(&self, number: usize) -> bool {
        Sources::remove_watch(self, number)
    }

    fn status(&self, number: usize) -> Option<SourceStatus> {
        Sources::status(self, number)
    }

    fn registration(&self, number: usize) -> Option<CacheRegistration> {
        Sources::registration(self, number)
    }
}

/// A watch that was added to a controller. Dropping the handle does not remove the watch.
#[derive(Clone)]
pub struct WatchHandle {
    sources: Arc<dyn DynSources>,
    number: usize,
}

impl WatchHandle {
    /// Removes the watch: its events add no more keys, and its type is no longer cached for it.
    /// Queued keys stay. Returns whether the watch existed.
    pub fn remove(&self) -> bool {
        self.sources.remove_watch(self.number)
    }

    /// Its status; `None` before the controller is added to a manager, and after its end.
    pub fn status(&self) -> Option<SourceStatus> {
        self.sources.status(self.number)
    }

    /// Waits until all objects of the initial list were handled. Returns false if the controller
    /// has not started, or if the watch ends first. Cancel safe: it only observes.
    pub async fn synced(&self) -> bool {
        match self.sources.registration(self.number) {
            Some(registration) => registration.synced().await.is_ok(),
            None => false,
        }
    }
}

impl fmt::Debug for WatchHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchHandle").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// An index that a watch declares or needs, and that is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("index {index:?} of {resource}: {reason}")]
#[non_exhaustive]
pub struct IndexRefused {
    /// The resource, with its group.
    pub resource: String,
    /// The index.
    pub index: Arc<str>,
    /// The reason.
    pub reason: String,
}

/// Why a controller did not add a watch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// An index that the watch declares or needs is not available.
    #[error(transparent)]
    Index(#[from] IndexRefused),
    /// The controller is stopping or has ended.
    #[error("the controller has stopped")]
    Stopped,
    /// The given informer has stopped.
    #[error("the informer has stopped")]
    InformerStopped,
    /// The cluster of the watch was removed from the manager.
    #[error("the cluster was removed from the manager")]
    ClusterRemoved,
    /// The watch leads to keys of another type than the controller's.
    #[error("the controller's keys are of another type")]
    Keys,
    /// The controller has the maximum number of sources.
    #[error("the controller already has {} sources", super::set::SOURCES_MAX)]
    TooMany,
}
