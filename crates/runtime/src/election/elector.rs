//! A candidate that may become the leader.

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
    watch::{Change, LeaseWatch},
};
use crate::{
    answer::{OBJECT_BYTES_MAX, limited},
    error::{BoxError, chain},
    events::{EventRecorder, EventType, ObjectReference},
    fence::Moment,
};

/// A candidate's longest delay: the retry period × 2.2 (LE-6).
const JITTER_MAX: f64 = 1.2;

/// A candidate for a Lease. Sends no request before [`run`](Self::run).
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
    /// The Lease is deleted: until this time its last holder may still consider itself leader.
    held_until: Option<Instant>,
    /// The record in the Lease, if this process wrote it.
    own: Option<LeaseSpec>,
    attempts: Attempts,
    _ended: Ended,
}

/// The result of one try to acquire or renew the lease.
enum Try {
    /// This process holds it; the write was sent at this time.
    Held(Moment),
    /// Another process holds the lease.
    HeldByOther,
}

impl LeaderElector {
    /// A candidate that uses `client`, which must not be fenced by this election. Call it within a
    /// runtime. An answer has at most 4 MiB.
    ///
    /// # Errors
    ///
    /// The options are invalid, or name no namespace and this process runs in no pod.
    ///
    /// # Panics
    ///
    /// If there is no seed and the operating system provides no randomness.
    pub fn new(
        client: kube_client::Client,
        clock: Clock,
        options: ElectionOptions,
    ) -> Result<Self, OptionsError> {
        let options = options.resolved()?;
        let namespace = options.namespace.clone().unwrap_or_default();
        let client = limited(&client, OBJECT_BYTES_MAX);
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

    /// Records changes of the leader as events on the Lease: LE-15.
    pub fn recorder(self, recorder: EventRecorder) -> Self {
        Self { recorder: Some(recorder), ..self }
    }

    /// A view of the election; outlives the elector.
    pub fn leadership(&self) -> Leadership {
        Leadership::new(self.shared.clone())
    }

    /// Runs for election and then leads, until `stop`; releases the lease then if configured. Never
    /// leads twice.
    ///
    /// Work that the lease guards must have ended before `stop` is cancelled. A candidate waits for
    /// its pending requests, for at most two time-outs, so that a lease they acquired can be
    /// released. Dropping the future closes the fence and leaves the lease to expire.
    ///
    /// # Errors
    ///
    /// The lease was lost. A candidate retries whatever the server answers.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), ElectionError> {
        let Some(sent) = self.acquire(&stop).await else { return Ok(()) };
        self.shared.deadline.open(sent, self.options.timings.renew);
        *self.shared.renewed.lock() = Some(sent.instant());
        self.shared.state.send_replace(LeaderState::Leading);
        tracing::info!(lease = %self.shared.lease_name, identity = %self.shared.identity, "became leader");
        self.record_event("became leader");

        let lost = self.lead(&stop).await;
        self.shared.deadline.close();
        self.record_event("stopped leading");
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

    /// Tries until the lease is acquired; returns when the successful write was sent. `None` if
    /// stopped.
    async fn acquire(&mut self, stop: &CancellationToken) -> Option<Moment> {
        while !stop.is_cancelled() {
            match self.attempt().await {
                Ok(Try::Held(sent)) => return Some(sent),
                Ok(Try::HeldByOther) => {}
                Err(error) => {
                    tracing::warn!(lease = %self.shared.lease_name, error = chain(&*error), "failed to read or write the lease");
                }
            }
            let factor = 1.0 + JITTER_MAX * self.rng.random::<f64>();
            let mut until = Instant::now() + self.options.timings.retry.mul_f64(factor);
            // Takes over from a silent holder as soon as permitted, not up to two retries later.
            if let Some(expires) = self.held_by_other_until() {
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

    /// Renews until the lease is lost (returns how) or `stop` is cancelled.
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
                // Drops a pending request; its attempt stays remembered.
                () = deadline.passed() => return Some(loss),
                tried = self.renew() => tried,
            };
            match tried {
                Ok(Try::Held(sent)) => {
                    // Refused if the deadline passed before the answer came: others may have relied
                    // on it.
                    if deadline.extend(sent, renew).is_err() {
                        return Some(loss);
                    }
                    *self.shared.renewed.lock() = Some(sent.instant());
                }
                Ok(Try::HeldByOther) => {
                    let holder = self.observed.as_ref().map(Observed::holder).unwrap_or_default();
                    return Some(Loss::Taken { holder: holder.to_owned() });
                }
                Err(error) => {
                    tracing::warn!(lease = %self.shared.lease_name, error = chain(&*error), "failed to renew the lease");
                }
            }
        }
    }

    /// One renewal: updates the last seen version; if that fails, reads and updates again (LE-12).
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

    /// Reads the Lease, and acquires or renews it if permitted.
    async fn attempt(&mut self) -> Result<Try, BoxError> {
        let read = bounded(self.within(), self.api.get_opt(&self.options.name)).await?;
        match read {
            Some(lease) => self.observe(lease),
            None => self.forget(),
        }
        let version =
            self.observed.as_ref().and_then(|o| o.lease.metadata.resource_version.clone());
        self.watch.arm(version.as_deref());
        if self.own.is_none() && self.held_by_other_until().is_some() {
            return Ok(Try::HeldByOther);
        }
        let was_leading = self.shared.deadline.until().is_some();
        if was_leading && self.own.is_none() && self.observed.is_some() {
            // It was taken from this process and is free again: a new tenure, not this one.
            return Ok(Try::HeldByOther);
        }
        self.write().await.map(Try::Held)
    }

    /// Until when another process may hold the lease, even if the Lease is deleted; `None` if it is
    /// free.
    fn held_by_other_until(&self) -> Option<Instant> {
        let until = match &self.observed {
            Some(observed) => Some(observed.expires()),
            None => self.held_until,
        };
        until.filter(|until| *until > Instant::now())
    }

    /// Writes this process's record; returns when the write was sent.
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

    /// Writes a record: updates the last seen version, or creates the Lease.
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
            // The write may have been done despite any failure, even a conflict, if a layer below
            // sent it twice.
            Err(error) => Err(error.into()),
        }
    }

    /// Stores the observed Lease.
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
            let lease = &self.shared.lease_name;
            if new_holder.is_empty() {
                tracing::info!(%lease, "the lease is free");
            } else if *new_holder != *self.shared.identity {
                tracing::info!(%lease, leader = new_holder, "another process became leader");
            }
            self.shared.holder.send_replace(new_holder.into());
        }
        self.observed = Some(Observed { lease, changed });
        self.held_until = None;
    }

    /// Records that the Lease does not exist. A holder that has not noticed still counts until
    /// expiry.
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

    /// Releases the lease: LE-14. Retries conflicts and failures within the renew deadline.
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

    fn record_event(&self, what: &str) {
        let Some(recorder) = &self.recorder else { return };
        let lease = self.observed.as_ref().map(|observed| observed.lease.clone());
        let lease = ObjectReference::of(&lease.unwrap_or_else(|| self.empty()));
        let message = format!("{} {what}", self.shared.identity);
        recorder.event(&lease, EventType::Normal, "LeaderElection", message);
    }

    /// The time-out of one request.
    fn within(&self) -> Duration {
        self.options.timings.request_timeout()
    }
}

impl fmt::Debug for LeaderElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElector").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Why a request about the Lease failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("read or write the lease")]
    Failed(#[source] kube_client::Error),
    #[error("read or write the lease: no answer within {within:?}")]
    Timeout { within: Duration },
}

impl RequestError {
    /// The client's error, if it was one.
    pub(crate) fn kube(&self) -> Option<&kube_client::Error> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Timeout { .. } => None,
        }
    }
}

/// A request with a time-out. A dropped request may still be done.
pub(crate) async fn bounded<T>(
    within: Duration,
    request: impl Future<Output = kube_client::Result<T>>,
) -> Result<T, RequestError> {
    match tokio::time::timeout(within, request).await {
        Ok(answer) => answer.map_err(RequestError::Failed),
        Err(_) => Err(RequestError::Timeout { within }),
    }
}
