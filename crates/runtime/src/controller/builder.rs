//! What may be chosen about a controller.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use setpoint_informer::{Cacheable, Event};
use setpoint_workqueue::{Exponential, LimiterError, RateLimiter, WorkQueue};
use tokio::sync::{mpsc, watch};

use super::{
    CATCH_UP_MAX, Controller, Options, SYNC_TIMEOUT, Shared, stats::Counters, worker::Erased,
};
use crate::{
    reconciler::Reconciler,
    request::{Request, RequestKey},
    watch::{Owner, Source, Watch},
};

/// The first wait of a key whose pass failed. 5 ms, as client-go's default limiter.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// The longest wait of a key whose passes fail. 1000 s, as client-go's default limiter.
const BACKOFF_MAX: Duration = Duration::from_secs(1000);

/// Builds a [`Controller`]. Nothing runs before a manager runs it.
#[must_use = "a builder does nothing until `build`"]
pub struct ControllerBuilder<R = Request> {
    options: Options,
    limiter: Option<Box<dyn RateLimiter<R>>>,
    sources: Vec<Source<R>>,
    channels: Vec<mpsc::Receiver<R>>,
    /// The type of `for_`.
    owner: Option<Owner>,
    /// The first thing asked for that cannot be.
    fault: Option<Fault>,
    keys: PhantomData<fn() -> R>,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    TwoTypes,
    OwnsWithoutType,
}

/// A controller that could not work as it was asked for.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// `for_` was called twice.
    #[error("controller {name:?} is for two types: let it watch the second")]
    TwoTypes {
        /// The controller.
        name: Arc<str>,
    },
    /// `owns` without `for_`, or before it.
    #[error("controller {name:?} owns objects, but it was not said before for which type it is")]
    OwnsWithoutType {
        /// The controller.
        name: Arc<str>,
    },
    /// There is nothing to watch.
    #[error("controller {name:?} watches nothing")]
    NoSource {
        /// The controller.
        name: Arc<str>,
    },
    /// The name is empty.
    #[error("the controller has no name")]
    NoName,
    /// The default rate limiter's figures are wrong.
    #[error("make the rate limiter of controller {name:?}")]
    Limiter {
        /// The controller.
        name: Arc<str>,
        /// What is wrong.
        #[source]
        source: LimiterError,
    },
}

impl ControllerBuilder<Request> {
    /// The type the controller is for: keys are its objects. At most once.
    pub fn for_<K: Cacheable>(mut self, watch: Watch<K>) -> Self {
        if self.owner.is_some() {
            self.fault.get_or_insert(Fault::TwoTypes);
        }
        self.owner = Some(watch.owner());
        self.sources.push(watch.of_objects());
        self
    }

    /// A type whose objects belong to those of [`for_`](Self::for_): keys are their owners, by owner reference.
    pub fn owns<K: Cacheable>(mut self, watch: Watch<K>) -> Self {
        match self.owner.clone() {
            Some(owner) => self.sources.push(watch.of_owners(owner)),
            None => _ = self.fault.get_or_insert(Fault::OwnsWithoutType),
        }
        self
    }
}

impl<R: RequestKey> ControllerBuilder<R> {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            options: Options {
                name,
                n_workers: 1,
                sync_timeout: Some(SYNC_TIMEOUT),
                reconcile_timeout: None,
                recovers_panics: true,
                catch_up: CATCH_UP_MAX,
            },
            limiter: None,
            sources: Vec::new(),
            channels: Vec::new(),
            owner: None,
            fault: None,
            keys: PhantomData,
        }
    }

    /// A type whose events concern other keys: `map` says which. It runs in the informer's delivery: quick and pure, please.
    ///
    /// For an update it sees old and new; for a deletion that was missed there may be no object.
    pub fn watches<K: Cacheable>(
        mut self,
        watch: Watch<K>,
        map: impl Fn(&Event<K>) -> Vec<R> + Send + Sync + 'static,
    ) -> Self {
        self.sources.push(watch.mapped(map));
        self
    }

    /// Keys from outside the cluster. The channel's bound is its sender's back-pressure; closing it ends this source and nothing else.
    pub fn channel(mut self, keys: mpsc::Receiver<R>) -> Self {
        self.channels.push(keys);
        self
    }

    /// How many keys are reconciled at the same time. Default: 1, which zero means too.
    pub fn concurrency(mut self, n_workers: usize) -> Self {
        self.options.n_workers = n_workers.max(1);
        self
    }

    /// How long a key waits after a pass that failed. Default: 5 ms, doubling to 1000 s, each key for itself.
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<R>) -> Self {
        self.limiter = Some(Box::new(limiter));
        self
    }

    /// How long the caches may take to sync before the controller, and so its manager, fails. Default: 2 min.
    ///
    /// `None` waits for ever: for a controller that may start before its type is served. The informer meanwhile logs what the server
    /// says and asks again with back-off.
    pub fn sync_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.options.sync_timeout = timeout;
        self
    }

    /// How long one pass may take. Then its future is dropped, and that is an error. Default: for ever.
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.options.reconcile_timeout = Some(timeout);
        self
    }

    /// How long a key is held after a pass, at most, until the caches that this controller watches show what the pass wrote. Default: 250 ms.
    ///
    /// So the next pass over the key reads its own writes, and their events lead to one pass instead of one each. The worker waits with
    /// it. Zero never holds a key.
    pub fn catch_up(mut self, max: Duration) -> Self {
        self.options.catch_up = max;
        self
    }

    /// Whether a pass that panics is an error like another. Default: yes; otherwise the panic ends the manager.
    pub fn recover_panics(mut self, recovers: bool) -> Self {
        self.options.recovers_panics = recovers;
        self
    }

    /// The controller, with its reconciler.
    ///
    /// # Errors
    ///
    /// It has no name, watches nothing, is for two types, or owns something without being for a type.
    pub fn build(self, reconciler: impl Reconciler<R>) -> Result<Controller<R>, BuildError> {
        let name = self.options.name.clone();
        if name.is_empty() {
            return Err(BuildError::NoName);
        }
        match self.fault {
            Some(Fault::TwoTypes) => return Err(BuildError::TwoTypes { name }),
            Some(Fault::OwnsWithoutType) => return Err(BuildError::OwnsWithoutType { name }),
            None if self.sources.is_empty() && self.channels.is_empty() => {
                return Err(BuildError::NoSource { name });
            }
            None => {}
        }
        let limiter = match self.limiter {
            Some(limiter) => limiter,
            None => match Exponential::new(BACKOFF_MIN, BACKOFF_MAX) {
                Ok(limiter) => Box::new(limiter),
                Err(source) => return Err(BuildError::Limiter { name, source }),
            },
        };
        Ok(Controller {
            reconciler: Arc::new(Erased(reconciler)),
            options: self.options,
            sources: self.sources,
            channels: self.channels,
            queue: WorkQueue::builder().rate_limiter(limiter).build(),
            shared: Arc::new(Shared {
                state: watch::Sender::default(),
                counters: Counters::default(),
            }),
        })
    }
}

impl<R> fmt::Debug for ControllerBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerBuilder")
            .field("options", &self.options)
            .field("n_sources", &(self.sources.len() + self.channels.len()))
            .finish_non_exhaustive()
    }
}
