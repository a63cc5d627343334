//! Runs a manager: starts its members in order, supervises them, stops them in order.

use std::sync::Arc;

use futures::{
    FutureExt,
    future::{BoxFuture, Fuse, join, join_all},
};
use setpoint_informer::factory::FactoryWorker;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Grace, Manager, ManagerError, RUNNING_KEYS_MAX, RunningTask,
    election::Election,
    fleet::{ClusterWorkers, Fleet, Membership},
    handle::ManagerHandle,
    roster::{Member, Roster},
    stage::{Stage, keep_first},
};
use crate::runnable::Group;
use crate::{election::LeaderState, error::chain, signal::cancel_on_signal};

/// How far a manager has started. Each member starts at one of these steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    /// HTTP servers start.
    Servers,
    /// Webhooks start.
    Webhooks,
    /// The caches run, and members that wait for their own caches.
    Caches,
    /// The caches that the program requested itself have synced.
    Synced,
    /// This process leads.
    Elected,
}

impl Member {
    fn starts_at(&self) -> Progress {
        match self.group {
            Group::Server => Progress::Servers,
            Group::Webhook => Progress::Webhooks,
            Group::Other | Group::WarmUp if self.awaits_its_caches => Progress::Caches,
            Group::Other | Group::WarmUp => Progress::Synced,
            Group::Leader => Progress::Elected,
        }
    }
}

/// Why a manager stops.
enum Cause {
    Requested,
    Failed(ManagerError),
    /// Everything must stop at once: another process leads.
    Lost(ManagerError),
}

/// The end of a task.
enum Ended {
    Election(Result<(), ManagerError>),
    Task(Result<(), ManagerError>),
}

/// The cache of a cluster whose events have started.
struct ClusterCache {
    stop: CancellationToken,
    cache: FactoryWorker,
    member: Arc<Membership>,
}

/// The running manager.
struct Running {
    // Helpers.
    roster: Arc<Roster>,
    fleet: Arc<Fleet>,
    synced: CancellationToken,
    elected: CancellationToken,

    // Running tasks, in start order.
    events: Stage,
    servers: Stage,
    webhooks: Stage,
    caches: Stage,
    others: Stage,
    warm_up: Stage,
    leader: Stage,
    election: Stage,

    // State.
    progress: Progress,
    waiting: Vec<Member>,
}

/// Refuses new members and clusters when dropped, however the manager ends.
struct Closing(ManagerHandle);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.begin_stop();
    }
}

impl Manager {
    /// Runs everything until SIGINT or SIGTERM, or until a member fails; then stops everything in
    /// order, as [`run`](Self::run). A second signal exits at once, with status 1.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), or if signal handlers cannot be installed.
    pub async fn run_until_signal(self) -> Result<(), ManagerError> {
        let stop = CancellationToken::new();
        tokio::select! {
            biased;
            ended = self.run(stop.clone()) => ended,
            // Returns only on an error: after the first signal the other branch ends.
            signal = cancel_on_signal(stop) => match signal.map_err(ManagerError::Signals)? {},
        }
    }

    /// Runs everything until `stop`, or until a member fails; then stops everything in order.
    ///
    /// Consumes the manager, so it cannot be started twice (MGR-10). Dropping the future drops all
    /// tasks.
    ///
    /// # Errors
    ///
    /// The first failure of a member (later ones are logged), a lost leadership, or an exceeded
    /// grace period, with the failure that caused the stop as its source.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ManagerError> {
        let Self { handle, grace, cache_worker, event_worker, election, .. } = self;
        #[cfg(feature = "endpoints")]
        for (name, endpoint) in self.served.start() {
            let added = handle.add_runnable(name, endpoint);
            added.map_err(|error| ManagerError::Member {
                name: name.into(),
                source: error.into(),
            })?;
        }
        let _closing = Closing(handle.clone());
        let mut life = Running::new(&handle);

        life.events.spawn("the event recorder", |stop| async move {
            event_worker.run(stop).await;
            Ok(())
        });
        let clusters: Vec<_> =
            life.fleet.take().into_iter().map(|cluster| life.start_events(cluster)).collect();
        life.waiting = life.roster.take();
        life.advance(Progress::Servers).await;
        life.advance(Progress::Webhooks).await;
        life.caches.spawn("the cache", |stop| async move {
            cache_worker.run(stop).await;
            Ok(())
        });
        clusters.into_iter().for_each(|cluster| life.start_cache(cluster));
        life.advance(Progress::Caches).await;
        let synced = handle.caches_synced().boxed().fuse();

        let cause = life.supervise(&stop, synced, election).await;
        handle.begin_stop();
        match &cause {
            Cause::Requested if handle.environment.is_quiet => tracing::debug!("stopping"),
            Cause::Requested => tracing::info!("stopping"),
            Cause::Failed(error) | Cause::Lost(error) => {
                tracing::error!(error = chain(error), "stopping");
            }
        }
        let (failure, grace) = match cause {
            Cause::Requested => (None, grace),
            Cause::Failed(error) => (Some(error), grace),
            Cause::Lost(error) => (Some(error), Grace::None),
        };
        let period = match grace {
            Grace::None => return failure.map_or(Ok(()), Err),
            Grace::Period(period) if period.is_zero() => return failure.map_or(Ok(()), Err),
            Grace::Period(period) => Some(period),
            Grace::Unlimited => None,
        };
        life.end(period, failure).await
    }
}

impl Running {
    fn new(handle: &ManagerHandle) -> Self {
        Self {
            roster: handle.roster.clone(),
            fleet: handle.fleet.clone(),
            synced: handle.synced.clone(),
            elected: handle.elected.clone(),
            events: Stage::new(),
            servers: Stage::new(),
            webhooks: Stage::new(),
            caches: Stage::new(),
            others: Stage::new(),
            warm_up: Stage::new(),
            leader: Stage::new(),
            election: Stage::new(),
            progress: Progress::Servers,
            waiting: Vec::new(),
        }
    }

    /// Starts the events of a cluster, and returns its cache.
    fn start_events(&mut self, cluster: ClusterWorkers) -> ClusterCache {
        let ClusterWorkers { stop, cache, events, member } = cluster;
        let (name, end, held) = (member.name.clone(), stop.clone(), member.clone());
        self.events.spawn_until(&format!("the event recorder of {name}"), end, |stop| async move {
            let _held = held;
            events.run(stop).await;
        });
        ClusterCache { stop, cache, member }
    }

    fn start_cache(&mut self, ClusterCache { stop, cache, member }: ClusterCache) {
        let name = format!("the cache of {}", member.name);
        self.caches.spawn_until(&name, stop, |stop| async move {
            let _held = member;
            cache.run(stop).await;
        });
    }

    /// Starts clusters that were added while running.
    fn start_clusters(&mut self) {
        for cluster in self.fleet.take() {
            let cache = self.start_events(cluster);
            self.start_cache(cache);
        }
    }

    /// Enters the next step, and waits until the members that it starts have been called, not until
    /// they have done anything.
    async fn advance(&mut self, progress: Progress) {
        self.progress = progress;
        let called = self.admit();
        // An error means that the member will never be called.
        join_all(called).await;
    }

    /// Starts the members whose step has come, group by group, each in the order they were added.
    fn admit(&mut self) -> Vec<tokio::sync::oneshot::Receiver<()>> {
        let progress = self.progress;
        let mut admitted: Vec<Member> =
            self.waiting.extract_if(.., |member| member.starts_at() <= progress).collect();
        admitted.sort_by_key(|member| member.group);
        let started = admitted.into_iter().map(|member| {
            let go = match member.group {
                Group::Server | Group::Webhook | Group::Other => &self.synced,
                Group::WarmUp | Group::Leader => &self.elected,
            };
            let stage = match member.group {
                Group::Server => &mut self.servers,
                Group::Webhook => &mut self.webhooks,
                Group::Other => &mut self.others,
                Group::WarmUp => &mut self.warm_up,
                Group::Leader => &mut self.leader,
            };
            tracing::debug!(name = %member.name, group = ?member.group, "starting");
            stage.admit(member, go.clone(), self.roster.clone())
        });
        started.collect()
    }

    /// Advances through the steps and takes new members, until there is a reason to stop.
    async fn supervise(
        &mut self,
        stop: &CancellationToken,
        mut synced: Fuse<BoxFuture<'static, ()>>,
        mut election: Option<Election>,
    ) -> Cause {
        let mut leading = None;
        let roster = self.roster.clone();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Cause::Requested,
                // Cancel safe: see `next`.
                ended = self.next() => match ended {
                    Ended::Election(ended) => return self.election_ended(ended),
                    Ended::Task(Err(error)) => return Cause::Failed(error),
                    Ended::Task(Ok(())) => {}
                },
                // After the ends of tasks, since the election's end says why it was lost. Cancel
                // safe: see `changed`.
                state = changed(&mut leading) => match (state, self.progress) {
                    (LeaderState::Leading, Progress::Synced) => self.lead().await,
                    (LeaderState::Ended, Progress::Elected) => {
                        return Cause::Lost(ManagerError::LeadershipLost { source: None });
                    }
                    _ => {}
                },
                // Cancel safe: a dropped `notified` that was not woken passes its wake-up on.
                () = roster.added.notified() => {
                    self.start_clusters();
                    self.take_new();
                }
                // Cancel safe: the future is kept across iterations.
                () = &mut synced => {
                    self.advance(Progress::Synced).await;
                    self.synced.cancel();
                    match election.take() {
                        Some(Election { run, state }) => {
                            tracing::info!("waiting to be elected");
                            self.election.spawn("the leader election", run);
                            leading = Some(state);
                        }
                        None => self.lead().await,
                    }
                }
            }
        }
    }

    async fn lead(&mut self) {
        self.advance(Progress::Elected).await;
        self.elected.cancel();
    }

    /// Takes members that were added while running. They start at once if their step has come
    /// (MGR-9).
    fn take_new(&mut self) {
        let new = self.roster.take();
        self.waiting.extend(new);
        for removed in self.waiting.extract_if(.., |member| member.stop.is_cancelled()) {
            self.roster.ended(&removed.name);
        }
        // No need to wait until they are called.
        drop(self.admit());
    }

    /// Without a stop, the election ends only by failing.
    fn election_ended(&self, ended: Result<(), ManagerError>) -> Cause {
        if self.progress < Progress::Elected {
            let name = Arc::from("the leader election");
            return Cause::Failed(
                ended.err().unwrap_or_else(|| ManagerError::Member {
                    name,
                    source: "it has ended".into(),
                }),
            );
        }
        Cause::Lost(lost(ended))
    }

    /// The next end of a task. Cancel safe, as each of its branches.
    async fn next(&mut self) -> Ended {
        tokio::select! {
            biased;
            // First: its end means that nothing else may go on.
            ended = self.election.next() => Ended::Election(ended),
            ended = self.leader.next() => Ended::Task(ended),
            ended = self.warm_up.next() => Ended::Task(ended),
            ended = self.others.next() => Ended::Task(ended),
            ended = self.caches.next() => Ended::Task(ended),
            ended = self.webhooks.next() => Ended::Task(ended),
            ended = self.servers.next() => Ended::Task(ended),
            ended = self.events.next() => Ended::Task(ended),
        }
    }

    /// Stops everything in order, for at most `period`.
    async fn end(
        mut self,
        period: Option<std::time::Duration>,
        mut failure: Option<ManagerError>,
    ) -> Result<(), ManagerError> {
        let expired = async {
            match period {
                Some(period) => {
                    tokio::time::sleep(period).await;
                    period
                }
                None => std::future::pending().await,
            }
        };
        let expired = tokio::select! {
            biased;
            ended = self.end_in_order(&mut failure) => {
                ended?;
                None
            }
            period = expired => Some(period),
        };
        let Some(period) = expired else { return failure.map_or(Ok(()), Err) };
        let stages = [
            &self.events,
            &self.servers,
            &self.webhooks,
            &self.caches,
            &self.others,
            &self.warm_up,
            &self.leader,
            &self.election,
        ];
        let (told, untold): (Vec<_>, Vec<_>) = stages.into_iter().partition(|s| s.is_stopping());
        let (running, waiting) = (self.running_tasks(told), self.running_tasks(untold));
        let source = failure.map(Box::new);
        Err(ManagerError::GraceExpired { period, running, waiting, source })
    }

    /// The running tasks of stages, sorted, with the keys of running passes.
    fn running_tasks(&self, stages: Vec<&Stage>) -> Vec<RunningTask> {
        let controllers = self.roster.controllers();
        let task = |name: &Arc<str>| {
            let controller = controllers.iter().find(|handle| handle.name() == &**name);
            let keys = controller.map(|handle| handle.running_keys(RUNNING_KEYS_MAX));
            RunningTask { name: name.clone(), keys: keys.unwrap_or_default() }
        };
        let mut running: Vec<_> = stages.into_iter().flat_map(Stage::running).map(task).collect();
        running.sort();
        running
    }

    /// Stops in the order of MGR-20. If the leadership is lost before everything it guards has
    /// ended, all tasks are dropped (MGR-22). That is the error then, unless a failure caused the
    /// stop (MGR-10: the first one is returned).
    async fn end_in_order(
        &mut self,
        failure: &mut Option<ManagerError>,
    ) -> Result<(), ManagerError> {
        let Self { warm_up, others, leader, election, .. } = self;
        // If elected, warm-up tasks stop with the leader's tasks; otherwise with the tasks that
        // need no leader. Either may hold what the other waits for.
        let was_elected = self.progress == Progress::Elected;
        let work = async {
            if was_elected {
                let others_failed = others.end().await;
                let (leader_failed, warm_up_failed) = join(leader.end(), warm_up.end()).await;
                [others_failed, leader_failed, warm_up_failed]
            } else {
                let rest = async { (others.end().await, leader.end().await) };
                let ((others_failed, leader_failed), warm_up_failed) =
                    join(rest, warm_up.end()).await;
                [others_failed, leader_failed, warm_up_failed]
            }
        };
        let failed = tokio::select! {
            biased;
            ended = election.next(), if was_elected => {
                let lost = lost(ended);
                let Some(first) = failure.take() else { return Err(lost) };
                tracing::error!(error = chain(&lost), "while stopping");
                return Err(first);
            }
            failed = work => failed,
        };
        for failed in failed {
            keep_first(failure, failed);
        }
        // The caches stop after the reconcilers, which read to the end; then the servers; then the
        // election, which guards nothing any more; and last the event recorder, which all of them
        // may use.
        for stage in [&mut self.caches, &mut self.webhooks, &mut self.servers] {
            keep_first(failure, stage.end().await);
        }
        let failed = self.election.end().await;
        keep_first(
            failure,
            if was_elected { failed.map(|error| lost(Err(error))) } else { failed },
        );
        keep_first(failure, self.events.end().await);
        Ok(())
    }
}

/// The end of an election that was won, before it was asked to stop.
fn lost(ended: Result<(), ManagerError>) -> ManagerError {
    let source = match ended {
        Err(ManagerError::Member { source, .. }) => Some(source),
        ended => ended.err().map(Into::into),
    };
    ManagerError::LeadershipLost { source }
}

/// Waits until the election's state changes. Pending for ever without an election, and when it has
/// ended: its task reports that.
///
/// Cancel safe: a dropped `changed` marks nothing as seen.
async fn changed(election: &mut Option<watch::Receiver<LeaderState>>) -> LeaderState {
    if let Some(state) = election {
        if state.changed().await.is_ok() {
            return *state.borrow_and_update();
        }
        *election = None;
    }
    std::future::pending().await
}
