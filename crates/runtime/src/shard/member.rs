//! A member of a group: joins, renews and publishes, removes expired members, leaves.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube_client::{Api, Error as KubeError};
use kube_core::params::{DeleteParams, PostParams, Preconditions};
use setpoint_informer::{ClientSource, HandlerOptions, InformerWorker, SharedInformer};
use setpoint_object::{label::Selector, time::Clock};
use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    MEMBERS_MAX, Sharded,
    hand_over::HandOvers,
    options::ShardOptions,
    ownership::Ownership,
    promise::{Members, Promise, seed_of},
    roster::{Expired, Roster},
    state::State,
};
use crate::{
    answer::{OBJECT_BYTES_MAX, limited},
    election::{Attempts, bounded, micro_time},
    error::{BoxError, chain},
    fence::Fence,
};

/// The label that selects the Leases of a group.
const GROUP_LABEL: &str = "shard.setpoint.dev/group";

/// A member of a group; runs beside its controller's workers.
pub(crate) struct Member {
    // Helpers.
    api: Api<Lease>,
    clock: Clock,
    informer: SharedInformer<Lease>,
    informer_worker: Option<InformerWorker>,
    hand_overs: Arc<HandOvers>,

    // Inputs.
    options: ShardOptions,
    namespace: String,
    me: Arc<str>,
    lease_name: String,
    /// Notified when the watch delivers a change.
    changed: Arc<Notify>,

    // State.
    state: Arc<State>,
    roster: Roster,
    own: Option<Own>,
}

/// The Lease of this member.
struct Own {
    lease: Lease,
    attempts: Attempts,
    /// Published promises that may be in force, the one seen in the watch first. Never empty.
    promises: Vec<Promise>,
    /// The watch shows the first of them.
    is_seen: bool,
    /// The next promise, once no running pass contradicts it.
    next: Option<Members>,
}

/// Why a member left the group.
enum LeaveReason {
    /// It was stopped.
    Stopped,
    /// Its Lease was deleted.
    Removed,
}

/// Why a renewal failed.
enum RenewError {
    /// The Lease was deleted, or another process holds it.
    Removed,
    /// To be retried.
    Failed(BoxError),
}

impl<E: Into<BoxError>> From<E> for RenewError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Member {
    /// A member whose client is not fenced by its own membership.
    pub(crate) fn new(
        sharded: Sharded,
        client: kube_client::Client,
        clock: Clock,
        seed: u64,
        hand_overs: Arc<HandOvers>,
    ) -> Self {
        let Sharded { options, namespace, state } = sharded;
        let source = ClientSource::namespaced::<Lease>(client.clone(), &namespace)
            .labels(format!("{GROUP_LABEL}={}", options.group));
        let (informer, informer_worker) = SharedInformer::builder(source)
            // Without its watch a member makes no progress: short back-off.
            .backoff(options.timings.retry / 8, options.timings.retry)
            .seed(seed)
            .build();
        Self {
            api: Api::namespaced(limited(&client, OBJECT_BYTES_MAX), &namespace),
            clock,
            informer,
            informer_worker: Some(informer_worker),
            hand_overs,
            me: options.identity.as_str().into(),
            lease_name: format!("{}-{:016x}", options.group, seed_of(&options.identity)),
            options,
            namespace,
            changed: Arc::new(Notify::new()),
            state,
            roster: Roster::default(),
            own: None,
        }
    }

    /// Participates until `stop`, which must be cancelled after the controller's workers have
    /// ended; then leaves, so that others take over at once. Dropping the future leaves the Lease
    /// to expire.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        let end = CancellationToken::new();
        let _end = end.clone().drop_guard();
        if let Some(worker) = self.informer_worker.take() {
            tasks.spawn(worker.run(end.clone()));
        }
        let changed = self.changed.clone();
        // A notification is enough: the Leases are read from the cache.
        let registration = self.informer.add_handler(
            move |_| changed.notify_one(),
            HandlerOptions::default().queue_max(MEMBERS_MAX),
        );
        let Ok(registration) = registration else { return };
        let synced = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            synced = registration.synced() => synced,
        };
        if synced.is_err() {
            return;
        }
        while self.join(&stop).await {
            match self.stay(&stop).await {
                LeaveReason::Stopped => return self.leave().await,
                LeaveReason::Removed => {
                    tracing::warn!(group = self.options.group, identity = %self.me, "this replica's lease is gone: it joins again");
                    self.withdraw();
                    // Running passes began under the deleted Lease and must end before the next
                    // one.
                    while self.state.runs_any() && !stop.is_cancelled() {
                        tokio::select! {
                            biased;
                            () = stop.cancelled() => {}
                            () = self.state.ended.notified() => {}
                        }
                    }
                }
            }
        }
    }

    /// Gives up all keys.
    fn withdraw(&mut self) {
        self.state.deadline.close();
        self.state.await_ends(true);
        self.state.set(Ownership::default());
        self.state.members.send_replace(Vec::new());
        self.own = None;
    }

    /// Creates this member's Lease, with a promise to run nothing. Returns false if stopped first.
    async fn join(&mut self, stop: &CancellationToken) -> bool {
        let mut attempts = Attempts::default();
        while !stop.is_cancelled() {
            self.observe();
            if self.roster.len() < MEMBERS_MAX {
                match self.create(&mut attempts).await {
                    Ok(true) => return true,
                    // The Lease of another process with the same identity. If it is silent, it
                    // expires as any other.
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(
                            group = self.options.group,
                            error = chain(&*error),
                            "failed to join the group"
                        );
                    }
                }
            }
            self.remove_expired().await;
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = self.changed.notified() => {}
                () = tokio::time::sleep(self.options.timings.retry) => {}
            }
        }
        false
    }

    async fn create(&mut self, attempts: &mut Attempts) -> Result<bool, BoxError> {
        let within = self.options.timings.request_timeout();
        let mut lease = Lease::default();
        lease.metadata.name = Some(self.lease_name.clone());
        lease.metadata.namespace = Some(self.namespace.clone());
        let labels = lease.metadata.labels.get_or_insert_default();
        labels.insert(GROUP_LABEL.to_owned(), self.options.group.clone());
        let now = micro_time(&self.clock);
        let spec = LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: Some(self.options.timings.lease_seconds()),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..LeaseSpec::default()
        };
        lease.spec = Some(spec.clone());
        let promise = Promise::default();
        promise.put(&mut lease);
        attempts.add(spec);
        let sent = self.state.deadline.now();
        let created = bounded(within, self.api.create(&PostParams::default(), &lease)).await;
        let (lease, is_answered) = match created {
            Ok(lease) => (lease, true),
            Err(error) => {
                // An earlier try may have succeeded without its answer.
                let found = bounded(within, self.api.get_opt(&self.lease_name)).await?;
                match found {
                    Some(lease) if attempts.contains(&lease.spec.clone().unwrap_or_default()) => {
                        (lease, false)
                    }
                    Some(_) => return Ok(false),
                    None => return Err(error.into()),
                }
            }
        };
        if is_answered {
            self.state.deadline.open(sent, self.options.timings.renew);
        }
        tracing::info!(group = self.options.group, identity = %self.me, "joined the group");
        self.own = Some(Own {
            lease,
            attempts: std::mem::take(attempts),
            promises: vec![promise],
            is_seen: false,
            next: None,
        });
        Ok(true)
    }

    /// Renews, acknowledges changes of members, and removes expired ones.
    async fn stay(&mut self, stop: &CancellationToken) -> LeaveReason {
        let mut renewal = Instant::now();
        if self.state.deadline.check().is_ok() {
            renewal += self.options.timings.retry;
        }
        loop {
            self.observe();
            if self.has_lost_lease() {
                renewal = Instant::now();
            }
            let is_published = self.prepare();
            if is_published || renewal <= Instant::now() {
                renewal = Instant::now() + self.options.timings.retry;
                let renewed = tokio::select! {
                    biased;
                    // Drops a pending renewal: the Lease will be deleted in any case.
                    () = stop.cancelled() => return LeaveReason::Stopped,
                    renewed = self.renew() => renewed,
                };
                match renewed {
                    Ok(()) => {}
                    Err(RenewError::Removed) => return LeaveReason::Removed,
                    Err(RenewError::Failed(error)) => {
                        tracing::warn!(
                            group = self.options.group,
                            error = chain(&*error),
                            "failed to renew this replica's lease"
                        );
                    }
                }
                self.observe();
            }
            self.remove_expired().await;
            let wake = self.roster.next_expiry().map_or(renewal, |expiry| expiry.min(renewal));
            tokio::select! {
                biased;
                () = stop.cancelled() => return LeaveReason::Stopped,
                // Cancel safe, as the next: a dropped wait passes its wake-up on.
                () = self.changed.notified() => {}
                () = self.state.ended.notified() => {}
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// Reads the members from the watch, and updates what may run.
    fn observe(&mut self) {
        let Ok(leases) = self.informer.lister().list(&Selector::everything()) else {
            // A Lease that cannot be parsed may promise anything.
            self.state.set(Ownership::default());
            return;
        };
        let own = self.own.as_ref().map(|own| (&own.lease.metadata.name, &own.lease.metadata.uid));
        let is_own = |lease: &Lease| own == Some((&lease.metadata.name, &lease.metadata.uid));
        self.roster.update(leases.iter().map(|lease| &**lease).filter(|lease| !is_own(lease)));
        let shown = leases.iter().find(|lease| is_own(lease)).and_then(|lease| Promise::of(lease));
        let Some(own) = &mut self.own else { return };

        // The watch never goes back: the shown promise is or was in force, and earlier ones are
        // over.
        let shown = shown.map(|promise| promise.number);
        if let Some(at) = own.promises.iter().position(|promise| Some(promise.number) == shown) {
            own.promises.drain(..at);
            own.is_seen = true;
        } else {
            own.is_seen = false;
        }
        let names = self.roster.holders().chain([self.me.clone()]);
        let members = Members::of(names);
        // One at a time: the next promise starts when the last has been seen.
        if own.is_seen && own.promises.len() == 1 {
            own.next = (own.promises[0].members != members).then_some(members);
        }
        self.update_ownership();
    }

    /// Updates what may run, and queues gained keys.
    fn update_ownership(&mut self) {
        let Some(own) = &self.own else { return };
        self.state.await_ends(own.next.is_some());
        let ownership = if own.is_seen {
            let sent = own.promises.iter().map(|promise| promise.members.clone());
            let all = sent.chain(own.next.clone()).collect();
            Ownership::new(self.me.clone(), all, self.roster.claims())
        } else {
            Ownership::default()
        };
        let before = self.state.ownership();
        if *before == ownership {
            return;
        }
        let gains = ownership.may_gain_on(&before);
        let before = self.state.set(ownership);
        if gains {
            let now = self.state.ownership();
            self.hand_overs.add(Box::new(move |key| now.owns(key) && !before.owns(key)));
        }
    }

    /// Makes the next promise the one to publish, if no running pass contradicts it.
    fn prepare(&mut self) -> bool {
        let Some(own) = &mut self.own else { return false };
        let Some(next) = &own.next else { return false };
        if self.state.runs_others(&self.me, next) {
            return false;
        }
        let number = own.promises.last().map_or(0, |promise| promise.number) + 1;
        tracing::info!(group = self.options.group, identity = %self.me, members = ?next.names().collect::<Vec<_>>(), "acknowledged");
        self.state.members.send_replace(next.names().cloned().collect());
        own.promises.push(Promise { number, members: next.clone() });
        own.next = None;
        true
    }

    /// Whether the watch has shown this member's Lease, and then its deletion.
    fn has_lost_lease(&self) -> bool {
        self.own.as_ref().is_some_and(|own| !own.is_seen && own.promises[0].number > 0)
    }

    /// One renewal with the last promise: updates the last seen version; if that fails, reads and
    /// updates again (LE-12).
    async fn renew(&mut self) -> Result<(), RenewError> {
        if let Err(error) = self.update().await {
            let within = self.options.timings.request_timeout();
            let found = bounded(within, self.api.get_opt(&self.lease_name)).await?;
            let Some(own) = &mut self.own else { return Err(RenewError::Removed) };
            let Some(found) = found else { return Err(RenewError::Removed) };
            let spec = found.spec.clone().unwrap_or_default();
            let is_own = found.metadata.uid == own.lease.metadata.uid
                && (own.lease.spec.as_ref() == Some(&spec) || own.attempts.contains(&spec));
            if !is_own {
                return Err(RenewError::Removed);
            }
            tracing::debug!(error = chain(&*error), "renewing what was read");
            own.lease = found;
            self.update().await?;
        }
        if self.state.take_missed() {
            let now = self.state.ownership();
            self.hand_overs.add(Box::new(move |key| now.owns(key)));
        }
        Ok(())
    }

    async fn update(&mut self) -> Result<(), BoxError> {
        let within = self.options.timings.request_timeout();
        let Some(own) = &mut self.own else { return Ok(()) };
        let mut lease = own.lease.clone();
        let spec = LeaseSpec {
            renew_time: Some(micro_time(&self.clock)),
            ..lease.spec.clone().unwrap_or_default()
        };
        lease.spec = Some(spec.clone());
        if let Some(promise) = own.promises.last() {
            promise.put(&mut lease);
        }
        own.attempts.add(spec);
        let sent = self.state.deadline.now();
        let params = PostParams::default();
        own.lease = bounded(within, self.api.replace(&self.lease_name, &params, &lease)).await?;
        own.attempts.clear();
        // The Lease existed throughout, so no other member had this member's keys, even if the
        // deadline had passed.
        self.state.deadline.open(sent, self.options.timings.renew);
        Ok(())
    }

    /// Deletes an expired Lease at the version that was seen.
    async fn remove_expired(&mut self) {
        let retry = self.options.timings.retry;
        let Some(Expired { name, uid, resource_version }) = self.roster.take_expired(retry) else {
            return;
        };
        let params = DeleteParams::default().preconditions(Preconditions { uid, resource_version });
        let within = self.options.timings.request_timeout();
        match bounded(within, self.api.delete(&name, &params)).await {
            Ok(_) => tracing::info!(
                group = self.options.group,
                lease = name,
                "removed a lease that has expired"
            ),
            Err(error) => {
                tracing::debug!(
                    group = self.options.group,
                    lease = name,
                    error = chain(&error),
                    "did not remove a lease"
                );
            }
        }
    }

    /// Deletes this member's Lease. No pass runs any more.
    async fn leave(&mut self) {
        let Some(own) = self.own.take() else { return };
        self.withdraw();
        let uid = own.lease.metadata.uid.clone();
        let params =
            DeleteParams::default().preconditions(Preconditions { uid, resource_version: None });
        let timings = self.options.timings;
        let delete = async {
            loop {
                match bounded(timings.request_timeout(), self.api.delete(&self.lease_name, &params))
                    .await
                {
                    Ok(_) => return,
                    Err(error) if error.kube().is_some_and(is_gone) => return,
                    Err(error) => {
                        tracing::warn!(
                            group = self.options.group,
                            error = chain(&error),
                            "failed to leave the group"
                        );
                    }
                }
                tokio::time::sleep(timings.retry).await;
            }
        };
        if tokio::time::timeout(timings.renew, delete).await.is_ok() {
            tracing::info!(group = self.options.group, identity = %self.me, "left the group");
        }
    }
}

/// Whether the answer says that the Lease does not exist.
fn is_gone(error: &KubeError) -> bool {
    matches!(error, KubeError::Api(status) if status.code == 404 || status.code == 409)
}
