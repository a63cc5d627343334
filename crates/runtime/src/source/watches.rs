//! Watches that come and go while a controller runs.

use std::{fmt, sync::Arc};

use setpoint_informer::{Cacheable, Event};

use super::{
    DynSource, EventHandler, Foreign, Mapped, Source, SourceStatus, Sources, Unbound, Watch,
    WatchError,
};
use crate::{
    cache::CacheRegistration,
    request::{Request, RequestKey},
};

/// The watches of one controller, to be added to and taken from while it runs. Cheap to clone;
/// outlives the controller.
///
/// A watch that is added before the controller starts is like those it was built with: its workers
/// wait for it. One that is added later begins at once, and nobody waits for it. It keeps its type
/// cached for as long as it is there, and no longer, unless somebody else needs that; so a
/// reconciler reads such a type only while its watch is there.
///
/// From [`Controller::watches`](crate::Controller::watches),
/// [`ControllerHandle::watches`](crate::ControllerHandle::watches), and in a pass
/// [`Context::watches`](crate::Context::watches).
pub struct Watches<R = Request>(pub(crate) Arc<Sources<R>>);

impl Watches<Request> {
    /// Adds a type whose keys are its own objects.
    ///
    /// # Errors
    ///
    /// The controller has stopped, or has too many sources; or the watch was given an informer that
    /// has stopped.
    pub fn objects<K: Cacheable>(&self, watch: Watch<K>) -> Result<WatchHandle, WatchError> {
        self.add(watch.of_objects())
    }
}

impl<R: RequestKey> Watches<R> {
    /// Adds a type whose events concern the keys that `map` says:
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

    /// Adds a source that is no watch. One that is added while the controller runs starts at once,
    /// and its start has no time-out.
    ///
    /// # Errors
    ///
    /// The controller has stopped, or has too many sources.
    pub fn source(&self, source: impl Source<R>) -> Result<(), WatchError> {
        let source: Box<dyn DynSource<R>> = Box::new(Foreign(source));
        self.0.add_foreign(source)
    }

    fn add(&self, watch: Unbound<R>) -> Result<WatchHandle, WatchError> {
        let number = self.0.add_watch(watch)?;
        Ok(WatchHandle { sources: self.0.clone(), number })
    }

    /// Wants a pass, at the low priority, over every key that the watched objects lead to and
    /// `only` wants: as if the controller began anew. Takes time that grows with the cached
    /// objects.
    pub fn requeue(&self, only: impl Fn(&R) -> bool) {
        self.0.requeue(&only);
    }

    /// How the watches do, those of the builder first.
    pub fn statuses(&self) -> Vec<SourceStatus> {
        self.0.statuses()
    }
}

impl<R> Clone for Watches<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R> fmt::Debug for Watches<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watches").field(&self.0).finish()
    }
}

/// A controller's sources whose keys' type is forgotten.
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

/// One watch that was added to a controller. Dropping it leaves the watch where it is, for as long
/// as the controller runs.
#[derive(Clone)]
pub struct WatchHandle {
    sources: Arc<dyn DynSources>,
    number: usize,
}

impl WatchHandle {
    /// Ends the watch: no event of it leads to a key any more, and its type is cached no longer,
    /// unless somebody else needs that. What is queued stays. Says whether it was still there.
    pub fn remove(&self) -> bool {
        self.sources.remove_watch(self.number)
    }

    /// How it does; nothing before the controller is added to a manager, and after the end.
    pub fn status(&self) -> Option<SourceStatus> {
        self.sources.status(self.number)
    }

    /// Waits until everything that was there when it began has been told; says whether that came.
    /// Not so before the controller has started, and if the watch ends first. Cancel safe: it only
    /// looks.
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
