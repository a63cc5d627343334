//! Owns every task of a program's controllers, and starts and stops them in order.

mod builder;
mod error;
mod readiness;
mod run;

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use setpoint_informer::factory::FactoryWorker;
use setpoint_object::time::Clock;
use tokio_util::sync::CancellationToken;

pub use self::{
    builder::ManagerBuilder,
    error::{AddError, ManagerError},
    readiness::Readiness,
};
use crate::{
    cache::Cache,
    client::Client,
    controller::{Controller, ControllerHandle, Environment},
    event::{Broadcaster, EventRecorder, EventWorker},
    reconciler::BoxError,
    request::RequestKey,
};

/// How long a manager waits for its tasks when it stops.
///
/// 30 s, as controller-runtime's graceful shutdown.
pub const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// How long a manager lets its tasks end by themselves when it stops; after that they are dropped where they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grace {
    /// For this time, all stages together.
    Period(Duration),
    /// Not at all, and that is no error.
    None,
    /// As long as it takes.
    Unlimited,
}

/// Runs controllers, with the caches, the client and the event recorder that they share.
///
/// | stage | runs                     | starts                                      | stops when                                 |
/// |-------|--------------------------|---------------------------------------------|--------------------------------------------|
/// | 1     | event recorder           | first                                       | everything else has ended; writes the rest |
/// | 2     | caches                   | then                                        | the third stage has ended: reads work to the end |
/// | 3     | controllers, other tasks | then; each waits for the caches it watches  | first                                      |
///
/// The grace period is for all stages together.
#[must_use = "a manager does nothing until it is run"]
pub struct Manager {
    // Helpers.
    environment: ManagerEnvironment,
    grace: Grace,

    // What runs.
    cache_worker: FactoryWorker,
    event_worker: EventWorker,
    members: Vec<Member>,

    // State.
    handles: Vec<ControllerHandle>,
}

/// What a manager's members share.
struct ManagerEnvironment {
    client: Client,
    cache: Cache,
    broadcaster: Broadcaster,
    clock: Clock,
    seed: u64,
}

type Run = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> + Send>;

/// A controller or another task.
struct Member {
    name: Arc<str>,
    run: Run,
}

impl Manager {
    /// Starts a manager over a client. Must be called where tokio time is to be read: the clock is the only source of dates.
    pub fn builder(client: kube_client::Client, clock: Clock) -> ManagerBuilder {
        ManagerBuilder::new(client, clock)
    }

    /// Adds a controller; the types it watches are cached from now on.
    ///
    /// # Errors
    ///
    /// There is a member of that name.
    pub fn add<R: RequestKey>(
        &mut self,
        controller: Controller<R>,
    ) -> Result<ControllerHandle, AddError> {
        let handle = controller.handle();
        let name: Arc<str> = handle.name().into();
        self.check_name(&name)?;
        let environment = Environment {
            client: self.environment.client.clone(),
            recorder: self.environment.broadcaster.recorder(name.clone()),
            clock: self.environment.clock.clone(),
            seed: self.environment.seed_of(&name),
        };
        let bound = controller.bind(&self.environment.cache);
        let run: Run = Box::new(move |stop| {
            Box::pin(async move { bound.run(environment, stop).await.map_err(BoxError::from) })
        });
        self.members.push(Member { name, run });
        self.handles.push(handle.clone());
        Ok(handle)
    }

    /// Adds another task, which starts and stops with the controllers. It runs until its token is cancelled, or until its work is
    /// done; an error stops the manager.
    ///
    /// # Errors
    ///
    /// There is a member of that name.
    pub fn add_task<Fut>(
        &mut self,
        name: impl Into<Arc<str>>,
        run: impl FnOnce(CancellationToken) -> Fut + Send + 'static,
    ) -> Result<(), AddError>
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let name = name.into();
        self.check_name(&name)?;
        self.members.push(Member { name, run: Box::new(move |stop| Box::pin(run(stop))) });
        Ok(())
    }

    fn check_name(&self, name: &Arc<str>) -> Result<(), AddError> {
        if self.members.iter().any(|member| member.name == *name) {
            return Err(AddError::DuplicateName { name: name.clone() });
        }
        Ok(())
    }

    /// The client that controllers get, under the manager's own field manager.
    pub fn client(&self) -> &Client {
        &self.environment.client
    }

    /// The cache that controllers share.
    pub fn cache(&self) -> &Cache {
        &self.environment.cache
    }

    /// A recorder of events in the name of `component`.
    pub fn recorder(&self, component: impl Into<Arc<str>>) -> EventRecorder {
        self.environment.broadcaster.recorder(component.into())
    }

    /// The views of the controllers added so far.
    pub fn controllers(&self) -> &[ControllerHandle] {
        &self.handles
    }

    /// Whether the controllers added so far reconcile, to be awaited by any number of tasks.
    pub fn readiness(&self) -> Readiness {
        Readiness::new(self.handles.clone())
    }
}

impl ManagerEnvironment {
    /// A member's share of the seed.
    fn seed_of(&self, name: &str) -> u64 {
        use std::hash::{DefaultHasher, Hasher};
        // A hasher with fixed keys: the same name has the same share in each process.
        let mut hasher = DefaultHasher::new();
        hasher.write(name.as_bytes());
        self.seed ^ hasher.finish()
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("grace", &self.grace)
            .field("controllers", &self.handles)
            .finish_non_exhaustive()
    }
}
