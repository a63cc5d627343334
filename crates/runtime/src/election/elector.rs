//! A candidate, and the leader it may become.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube_client::Api;
use kube_core::params::PostParams;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use setpoint_object::{seed, time::Clock};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    ElectionError, ElectionOptions, LeaderState, Leadership, Loss, OptionsError,
    leadership::{Ended, Shared},
    options::Timings,
    record::{Attempts, Observed, holder, micro_time},
    request::bounded,
    watch::{Change, LeaseWatch},
};
use crate::{
    error::{BoxError, chain},
    events::{EventRecorder, EventType, ObjectReference},
    fence::Moment,
};

/// How much longer than the retry period a candidate waits at most: × 2.2 (LE-6).
const JITTER_MAX: f64 = 1.2;

/// One candidate for one Lease. Nothing is asked before [`run`](Self::run).
#[must_use = "an elector does nothing until it is run"]
pub struct LeaderElector {
    // Helpers.
    api: Api<Lease>,
    clock: Clock,
    recorder: Option<EventRecorder>,
    watch: LeaseWatch,
    rng: SmallRng,

    // Inputs.
    options: ElectionOptions,
    namespace: String,

    // State.
    shared: Arc<Shared>,
    observed: Option<Observed>,
    /// There is no Lease, and somebody held the last one: until then its holder may believe that it
    /// does.
    held_until: Option<Instant>,
    /// The record in the Lease if this process wrote it.
    own: Option<LeaseSpec>,
    attempts: Attempts,
    _ended: Ended,
}

/// What one try to take or keep the lease came to.
enum Try {
    /// This process holds it, by a write that was sent then.
    Held(Moment),
    /// Somebody else holds it.
    Theirs,
}

impl LeaderElector {
    /// A candidate that asks through `client`, which must not be fenced by this election itself.
    ///
    /// # Errors
    ///
    /// The options break a rule, or name no namespace where there is no pod's.
    ///
    /// # Panics
    ///
    /// When there is no seed and the operating system gives no randomness.
    pub fn new(
        client: kube_client::Client,
        clock: Clock,
        options: ElectionOptions,
    ) -> Result<Self, OptionsError> {
        let options = options.resolved()?;
        let namespace = options.namespace.clone().unwrap_or_default();
        let api: Api<Lease> = Api::namespaced(client, &namespace);
        let lease_name = format!("{namespace}/{}", options.name);
        let shared = Arc::new(Shared::new(lease_name.into(), options.clone()));
        Ok(Self {
            watch: LeaseWatch::new(api.clone(), options.name.clone()),
            api,
            clock,
            recorder: None,
            rng: SmallRng::seed_from_u64(options.seed.unwrap_or_else(seed::from_entropy)),
            namespace,
            _ended: Ended(shared.clone()),
            shared,
            options,
            observed: None,
            held_until: None,
            own: None,
            attempts: Attempts::default(),
        })
    }

    /// Tells of changes of the leader by events on the Lease: LE-15.
    pub fn recorder(self, recorder: EventRecorder) -> Self {
        Self { recorder: Some(recorder), ..self }
    }

    /// A view of the election that outlives it.
    pub fn leadership(&self) -> Leadership {
        Leadership::new(self.shared.clone())
    }

    /// Stands for election, then leads, until `stop`; gives the lease up then if it is to. It never
    /// leads twice.
    ///
    /// What is guarded by the lease must have ended before `stop` is cancelled. A candidate's
    /// requests on the way are waited for, at most for two time-outs: what they took can then be
    /// given up. Dropping the future closes the fence, and leaves the lease to expire.
    ///
    /// # Errors
    ///
    /// The lease was lost. Without a lease to lose, it goes on trying whatever the server says.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), ElectionError> {
        let Some(sent) = self.stand(&stop).await else { return Ok(()) };
        self.shared.deadline.open(sent, self.options.timings.renew);
        *self.shared.renewed.lock() = Some(sent.instant());
        self.shared.state.send_replace(LeaderState::Leading);
        tracing::info!(lease = %self.shared.lease_name, identity = %self.shared.identity, "became leader");
        self.tell("became leader");

        let lost = self.lead(&stop).await;
        self.shared.deadline.close();
        self.tell("stopped leading");
        match lost {
            Some(why) => {
                let (lease, identity) =
                    (self.shared.lease_name.clone(), self.shared.identity.clone());
                tracing::error!(%lease, %identity, %why, "leader election lost");
                Err(ElectionError::Lost { lease, identity, why })
            }
            None => {
                if self.options.release_on_stop {
                    self.release().await;
                }
                Ok(())
            }
        }
    }

    /// Tries until the lease is held: when the write that took it was sent. `None` when stopped.
    async fn stand(&mut self, stop: &CancellationToken) -> Option<Moment> {
        while !stop.is_cancelled() {
            match self.attempt().await {
                Ok(Try::Held(sent)) => return Some(sent),
                Ok(Try::Theirs) => {}
                Err(error) => {
                    tracing::warn!(lease = %self.shared.lease_name, error = chain(&*error), "failed to ask for the lease");
                }
            }
            let factor = 1.0 + JITTER_MAX * self.rng.random::<f64>();
            let mut until = Instant::now() + self.options.timings.retry.mul_f64(factor);
            // A holder that stays silent is succeeded when it may be, not up to two retries later.
            if let Some(expires) = self.theirs_until() {
                until = until.min(expires);
            }
            loop {
                let change = tokio::select! {
                    biased;
                    () = stop.cancelled() => return None,
                    // Cancel safe: an event is taken only when it is returned.
                    change = self.watch.next() => change,
                    () = tokio::time::sleep_until(until) => break,
                };
                match change {
                    Change::Changed(lease) => self.observe(*lease),
                    Change::Deleted => self.forget(),
                }
                if self.observed.as_ref().is_none_or(|observed| observed.holder().is_empty()) {
                    break;
                }
            }
        }
        None
    }

    /// Renews until the lease is lost, which it says how, or it is stopped.
    async fn lead(&mut self, stop: &CancellationToken) -> Option<Loss> {
        let Timings { renew, retry, .. } = self.options.timings;
        let deadline = self.shared.deadline.clone();
        let loss = Loss::Deadline { within: renew };
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                () = deadline.passed() => return Some(loss),
                () = tokio::time::sleep(retry) => {}
            }
            let tried = tokio::select! {
                biased;
                // Dropping a request that is on its way: the attempt stays remembered.
                () = deadline.passed() => return Some(loss),
                tried = self.renew() => tried,
            };
            match tried {
                Ok(Try::Held(sent)) => {
                    // Refused when the deadline passed while the answer was on its way: others may
                    // count on that.
                    if deadline.extend(sent, renew).is_err() {
                        return Some(loss);
                    }
                    *self.shared.renewed.lock() = Some(sent.instant());
                }
                Ok(Try::Theirs) => {
                    let holder = self.observed.as_ref().map(Observed::holder).unwrap_or_default();
                    return Some(Loss::Taken { holder: holder.to_owned() });
                }
                Err(error) => {
                    tracing::warn!(lease = %self.shared.lease_name, error = chain(&*error), "failed to renew the lease");
                }
            }
        }
    }

    /// One renewal: an update of what was last seen, and if that fails a read and another one
    /// (LE-12).
    async fn renew(&mut self) -> Result<Try, BoxError> {
        if self.own.is_some() && self.observed.is_some() {
            match self.write().await {
                Ok(sent) => return Ok(Try::Held(sent)),
                Err(error) => {
                    tracing::debug!(lease = %self.shared.lease_name, error = chain(&*error), "reading the lease before renewing it");
                }
            }
        }
        self.shared.n_slow_paths.fetch_add(1, Ordering::Relaxed);
        self.attempt().await
    }

    /// Reads the Lease, and takes or renews it if this process may.
    async fn attempt(&mut self) -> Result<Try, BoxError> {
        let read = bounded(self.within(), self.api.get_opt(&self.options.name)).await?;
        match read {
            Some(lease) => self.observe(lease),
            None => self.forget(),
        }
        let version =
            self.observed.as_ref().and_then(|o| o.lease.metadata.resource_version.clone());
        self.watch.arm(version.as_deref());
        if self.own.is_none() && self.theirs_until().is_some() {
            return Ok(Try::Theirs);
        }
        let was_leading = self.shared.deadline.until().is_some();
        if was_leading && self.own.is_none() && self.observed.is_some() {
            // It was taken from this process, and is free again: that is another tenure, not this
            // one.
            return Ok(Try::Theirs);
        }
        self.write().await.map(Try::Held)
    }

    /// Until when somebody else may hold the lease, also one that is deleted; `None` if it is free.
    fn theirs_until(&self) -> Option<Instant> {
        let until = match &self.observed {
            Some(observed) => Some(observed.expires()),
            None => self.held_until,
        };
        until.filter(|until| *until > Instant::now())
    }

    /// Writes this process's record over what was last seen: when the write was sent.
    async fn write(&mut self) -> Result<Moment, BoxError> {
        let now = micro_time(&self.clock);
        let before = self.observed.as_ref().map(Observed::spec).unwrap_or_default();
        let mut spec = LeaseSpec {
            holder_identity: Some(self.shared.identity.to_string()),
            lease_duration_seconds: Some(self.options.timings.lease_seconds()),
            renew_time: Some(now.clone()),
            ..before
        };
        if self.own.is_none() {
            let transitions = spec.lease_transitions.unwrap_or(0);
            let is_new = self.observed.is_none();
            spec.lease_transitions = Some(if is_new { 0 } else { transitions.saturating_add(1) });
            spec.acquire_time = Some(now);
        }
        self.put(spec).await
    }

    /// Writes a record: an update of the version last seen, or a creation.
    async fn put(&mut self, spec: LeaseSpec) -> Result<Moment, BoxError> {
        let mut lease = match &self.observed {
            Some(observed) => observed.lease.clone(),
            None => self.empty(),
        };
        let labels = lease.metadata.labels.get_or_insert_default();
        labels.extend(self.options.labels.clone());
        lease.spec = Some(spec.clone());
        self.attempts.add(spec);
        let params = PostParams::default();
        let sent = self.shared.deadline.now();
        let answer = match self.observed {
            Some(_) => {
                bounded(self.within(), self.api.replace(&self.options.name, &params, &lease)).await
            }
            None => bounded(self.within(), self.api.create(&params, &lease)).await,
        };
        match answer {
            Ok(lease) => {
                self.own = lease.spec.clone();
                self.attempts.clear();
                self.observe(lease);
                Ok(sent)
            }
            // Whatever the failure, it may have been done: also a conflict, if a layer below sent
            // it twice.
            Err(error) => Err(error.into()),
        }
    }

    /// Notes what the Lease is.
    fn observe(&mut self, lease: Lease) {
        let before = self.observed.as_ref();
        if before.is_some_and(|before| !before.is_older_than(&lease)) {
            return;
        }
        let spec = lease.spec.clone().unwrap_or_default();
        let is_own = self.own.as_ref() == Some(&spec) || self.attempts.contains(&spec);
        self.own = is_own.then(|| spec.clone());
        self.attempts.clear();
        let changed = match before {
            Some(before) if before.is_same_object(&lease) && before.spec() == spec => {
                before.changed
            }
            _ => Instant::now(),
        };
        let new_holder = holder(&lease);
        if **self.shared.holder.borrow() != *new_holder {
            tracing::info!(lease = %self.shared.lease_name, leader = new_holder, "the leader is another one");
            self.shared.holder.send_replace(new_holder.into());
        }
        self.observed = Some(Observed { lease, changed });
        self.held_until = None;
    }

    /// Notes that there is no Lease. A holder who has not noticed yet is still waited for.
    fn forget(&mut self) {
        if let Some(observed) = self.observed.take() {
            self.attempts.clear();
            self.held_until = self.own.is_none().then(|| observed.expires());
        }
        self.own = None;
        if !self.shared.holder.borrow().is_empty() {
            self.shared.holder.send_replace("".into());
        }
    }

    /// Gives the lease up: LE-14. Tries again at conflicts and failures, within the renew deadline.
    async fn release(&mut self) {
        let renew = self.options.timings.renew;
        let give_up = async {
            loop {
                match self.release_once().await {
                    Ok(()) => return,
                    Err(error) => {
                        tracing::warn!(lease = %self.shared.lease_name, error = chain(&*error), "failed to release the lease");
                    }
                }
                match bounded(self.within(), self.api.get_opt(&self.options.name)).await {
                    Ok(Some(lease)) => self.observe(lease),
                    Ok(None) => return self.forget(),
                    Err(_) => tokio::time::sleep(self.options.timings.retry).await,
                }
            }
        };
        if tokio::time::timeout(renew, give_up).await.is_err() {
            tracing::warn!(lease = %self.shared.lease_name, "the lease is not released: it will expire");
        }
    }

    async fn release_once(&mut self) -> Result<(), BoxError> {
        if self.own.is_none() {
            return Ok(());
        }
        let now = micro_time(&self.clock);
        let before = self.observed.as_ref().map(Observed::spec).unwrap_or_default();
        let spec = LeaseSpec {
            holder_identity: None,
            lease_duration_seconds: Some(1),
            renew_time: Some(now.clone()),
            acquire_time: Some(now),
            ..before
        };
        self.put(spec).await?;
        self.own = None;
        tracing::info!(lease = %self.shared.lease_name, "released");
        Ok(())
    }

    fn empty(&self) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.name = Some(self.options.name.clone());
        lease.metadata.namespace = Some(self.namespace.clone());
        lease
    }

    fn tell(&self, what: &str) {
        let Some(recorder) = &self.recorder else { return };
        let lease = self.observed.as_ref().map(|observed| observed.lease.clone());
        let lease = ObjectReference::of(&lease.unwrap_or_else(|| self.empty()));
        let message = format!("{} {what}", self.shared.identity);
        recorder.event(&lease, EventType::Normal, "LeaderElection", message);
    }

    /// How long one request may take.
    fn within(&self) -> Duration {
        self.options.timings.request_timeout()
    }
}

impl fmt::Debug for LeaderElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElector").field("options", &self.options).finish_non_exhaustive()
    }
}
