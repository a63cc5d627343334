//! Coordinated leader election: the server elects the holders of Leases for which components have
//! proposed themselves with LeaseCandidates, the one with the oldest versions first, so that a
//! component that is being upgraded does not lead before all have been.
//!
//! # Theory
//!
//! A key is a Lease, by the name in the candidates' `spec.leaseName`. A pass looks at the Lease and
//! at its candidates, and does the next step of an election. It keeps nothing: what was asked and
//! answered is in the candidates.
//!
//! | state | step |
//! |---|---|
//! | the holder renews, and is the best candidate | none; look again after five seconds |
//! | candidates have not renewed in the last five seconds | ask them: set their `pingTime` |
//! | some were asked less than five seconds ago and have not renewed since | wait |
//! | all have answered or run out of time | elect the best of those that have |
//!
//! Nobody holds a Lease that has expired or has no holder, so the elected candidate becomes its
//! holder. A holder that renews is only told who is preferred, in `preferredHolder`: it gives the
//! Lease up itself. Candidates that ask for another strategy than `OldestEmulationVersion` get a
//! Lease without a holder, and leave the choice to somebody else.
//!
//! The clocks of the server and of the components have to agree within five seconds: a candidate
//! that is further behind never seems to have answered.
//!
//! The rules are those of kube-apiserver's `leader-election-controller`, and of its collector of
//! candidates that have not renewed for half an hour, which here are deleted when their time comes:
//! those that have never renewed, half an hour after their creation.
//! Of equal candidates the oldest is the best; of those of one second, here the first by name.

use crate::api::{Api, RequestError, as_read, ignore_stale};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use crate::workload::view::view;
use k8s_openapi::api::coordination::{v1, v1beta1};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use semver::Version;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_informer::{Event, Object};
use setpoint_object::time::{Clock, Timestamp};
use setpoint_runtime::{Action, BoxError, Client, Context, Controller, Manager, Request, Watch};
use std::sync::Arc;
use std::time::Duration;

/// The controllers' names.
const NAME: &str = "leader-election-controller";
const CLEANER: &str = "leasecandidate-cleaner-controller";
/// The strategy that is carried out here.
const OLDEST: &str = "OldestEmulationVersion";
/// The index of candidates by namespace and name of their Lease.
const BY_LEASE: &str = "lease";
/// How long candidates have to answer.
const VOTE: Duration = Duration::from_secs(5);
/// After how long a Lease with candidates is looked at again.
const LOOK: Duration = Duration::from_secs(5);
/// The `leaseDurationSeconds` of an elected holder, until it renews itself.
const LEASE_SECONDS: u64 = 5;
/// How long a candidate counts after it has renewed. All are asked again after half of it.
pub const CANDIDATE_AGE_MAX: Duration = Duration::from_secs(30 * 60);

view! {
    /// A LeaseCandidate.
    Candidate of v1beta1::LeaseCandidate {
        /// What it proposes.
        spec: CandidateSpec,
    }
}

/// `spec` of a LeaseCandidate. Times are as they are written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CandidateSpec {
    lease_name: String,
    ping_time: Option<String>,
    renew_time: Option<String>,
    binary_version: String,
    emulation_version: String,
    strategy: String,
}

view! {
    /// A Lease.
    Lease of v1::Lease {
        /// Who holds it, and how long.
        spec: LeaseSpec,
    }
}

/// `spec` of a Lease. Times are as they are written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LeaseSpec {
    holder_identity: Option<String>,
    renew_time: Option<String>,
    lease_duration_seconds: Option<u64>,
}

fn time(text: Option<&String>) -> Option<Timestamp> {
    text.and_then(|text| Timestamp::parse(text))
}

impl Candidate {
    fn renewed(&self) -> Option<Timestamp> {
        time(self.spec.renew_time.as_ref())
    }

    fn asked(&self) -> Option<Timestamp> {
        time(self.spec.ping_time.as_ref())
    }

    /// When it stops to count.
    fn end(&self) -> Timestamp {
        self.renewed().map(|renewed| renewed + CANDIDATE_AGE_MAX).unwrap_or_default()
    }

    /// When it is deleted.
    fn removal(&self) -> Timestamp {
        let created = || {
            let time = self.metadata.creation_timestamp.as_ref()?;
            u64::try_from(time.0.as_second()).ok().map(Timestamp::from_secs)
        };
        self.renewed().or_else(created).map(|last| last + CANDIDATE_AGE_MAX).unwrap_or_default()
    }

    /// Whether it has renewed in the last [`VOTE`], which counts as an answer.
    fn is_awake(&self, now: Timestamp) -> bool {
        self.renewed().is_some_and(|renewed| renewed + VOTE > now)
    }

    /// Whether it has been asked and has not renewed since.
    fn owes_answer(&self) -> bool {
        self.asked().is_some_and(|asked| self.renewed().is_some_and(|renewed| renewed < asked))
    }

    /// What comes first is better; `None` if it cannot be elected by the versions.
    fn rank(&self) -> Option<(Version, Version, Option<&Time>, &str)> {
        let emulated = Version::parse(&self.spec.emulation_version).ok()?;
        let binary = Version::parse(&self.spec.binary_version).ok()?;
        let created = self.metadata.creation_timestamp.as_ref();
        Some((emulated, binary, created, self.name()))
    }
}

impl LeaseSpec {
    fn holder(&self) -> &str {
        self.holder_identity.as_deref().unwrap_or_default()
    }

    fn has_expired(&self, now: Timestamp) -> bool {
        let renewed = time(self.renew_time.as_ref());
        let ends = renewed.zip(self.lease_duration_seconds);
        ends.is_none_or(|(renewed, seconds)| renewed + Duration::from_secs(seconds) < now)
    }
}

/// The controllers of coordinated leader election. They do nothing until a manager runs them.
#[derive(Debug)]
#[must_use]
pub struct CoordinatedElection {
    setup: Setup,
}

impl CoordinatedElection {
    /// Creates controllers that start from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Adds them to a manager of [`Setup::manager`], which runs them; [`Setup::run`] makes one.
    ///
    /// # Errors
    ///
    /// If the manager refuses one, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let pass =
            |name| Pass { api: self.setup.api_of_server(name), clock: self.setup.clock().clone() };
        let candidates = || Watch::<Candidate>::new().index(BY_LEASE, Candidate::lease_keys);
        let elections = Controller::builder(NAME)
            .watches_with(candidates(), |event: &Event<Candidate>, _: &Client| of_candidate(event))
            .watches_with(Watch::<Lease>::new(), of_lease)
            .sync_timeout(None)
            .build(Boxed(Elections(pass(NAME))))?;
        manager.add(elections)?;
        let cleaner = Controller::builder(CLEANER)
            .for_(candidates())
            .sync_timeout(None)
            .build(Boxed(Cleaner(pass(CLEANER))))?;
        manager.add(cleaner)?;
        Ok(())
    }
}

/// The key of a Lease in the index of candidates.
fn lease_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

impl Candidate {
    fn lease_keys(&self) -> Vec<String> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        vec![lease_key(namespace, &self.spec.lease_name)]
    }
}

/// The Lease of a candidate, unless it has only been asked: the election goes on with its answer,
/// or when its time is over.
fn of_candidate(event: &Event<Candidate>) -> Vec<Request> {
    let candidate = event.object().and_then(|object: &Object<Candidate>| object.get().ok());
    let candidate = candidate.filter(|candidate| !candidate.owes_answer());
    let request = |candidate: Arc<Candidate>| {
        Request::new(event.key().namespace.clone(), &*candidate.spec.lease_name)
    };
    candidate.map(request).into_iter().collect()
}

/// A Lease, if it has candidates: most have none, and those of nodes change all the time.
fn of_lease(event: &Event<Lease>, client: &Client) -> Vec<Request> {
    let request = event.key().clone();
    // A pass reports what cannot be read.
    let is_empty = candidates(client, &request).is_ok_and(|found| found.is_empty());
    if is_empty { Vec::new() } else { vec![request] }
}

/// The candidates of a Lease.
fn candidates(client: &Client, lease: &Request) -> Result<Vec<Arc<Candidate>>, BoxError> {
    let key = lease_key(&lease.namespace, &lease.name);
    Ok(client.api::<Candidate>().select().index(BY_LEASE, key).all()?)
}

/// The path of a candidate.
fn path_of(namespace: &str, name: &str) -> String {
    format!("/apis/coordination.k8s.io/v1beta1/namespaces/{namespace}/leasecandidates/{name}")
}

/// The strategy that the candidates with the newest program ask for.
fn strategy(candidates: &[Arc<Candidate>]) -> Result<&str, Disagreement> {
    let version = |candidate: &Candidate| {
        Version::parse(&candidate.spec.binary_version).unwrap_or(Version::new(0, 0, 0))
    };
    let newest = candidates.iter().map(|candidate| version(candidate)).max();
    let mut wanted = candidates
        .iter()
        .filter(|candidate| Some(version(candidate)) == newest)
        .map(|candidate| &*candidate.spec.strategy);
    let first = wanted.next().unwrap_or_default();
    match wanted.find(|other| *other != first) {
        Some(other) => Err(Disagreement([first.to_owned(), other.to_owned()])),
        None => Ok(first),
    }
}

/// Candidates of one version ask for different strategies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("candidates of the same binary version ask for the strategies {:?} and {:?}", .0[0], .0[1])]
struct Disagreement([String; 2]);

/// The candidate to elect.
fn best(candidates: &[Arc<Candidate>]) -> Option<&Candidate> {
    let ranked = candidates.iter().filter_map(|candidate| Some((candidate.rank()?, candidate)));
    ranked.min_by(|(one, _), (other, _)| one.cmp(other)).map(|(_, candidate)| &**candidate)
}

/// Whether there is something to decide.
fn is_open(
    lease: Option<&LeaseSpec>,
    candidates: &[Arc<Candidate>],
    now: Timestamp,
) -> Result<bool, Disagreement> {
    let Some(lease) = lease else { return Ok(true) };
    let is_silent = |candidate: &Arc<Candidate>| {
        let renewed = candidate.renewed().unwrap_or_default();
        renewed + CANDIDATE_AGE_MAX / 2 < now
    };
    if lease.has_expired(now) || lease.holder().is_empty() || candidates.iter().any(is_silent) {
        return Ok(true);
    }
    let holder = lease.holder();
    Ok(strategy(candidates)? == OLDEST
        && best(candidates).is_some_and(|candidate| candidate.name() != holder))
}

/// `spec` of a Lease after an election; `holder` is elected, unless somebody else elects.
fn elected(mut spec: Value, strategy: &str, holder: Option<&str>, now: Timestamp) -> Value {
    let before = LeaseSpec::deserialize(&spec).unwrap_or_default();
    spec["strategy"] = strategy.into();
    let Some(holder) = holder.filter(|holder| *holder != before.holder()) else { return spec };
    if !before.holder().is_empty() && !before.has_expired(now) {
        spec["preferredHolder"] = holder.into();
        return spec;
    }
    spec["holderIdentity"] = holder.into();
    spec["renewTime"] = now.rfc3339_micro().into();
    spec["leaseDurationSeconds"] = LEASE_SECONDS.into();
    if let Some(members) = spec.as_object_mut() {
        members.retain(|name, _| !["preferredHolder", "acquireTime"].contains(&&**name));
    }
    spec
}

struct Pass {
    api: Api,
    clock: Clock,
}

struct Elections(Pass);

impl BoxedReconciler for Elections {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        self.0.elect(request, context.client()).await
    }
}

impl Pass {
    async fn elect(&self, lease: &Request, client: &Client) -> Result<Action, BoxError> {
        let now = self.clock.now();
        let mut candidates = candidates(client, lease)?;
        candidates.retain(|candidate| candidate.end() >= now);
        if candidates.is_empty() {
            return Ok(Action::await_change());
        }
        let again = Ok(Action::requeue_after(LOOK));
        let known = client.api::<Lease>().get(lease)?;
        if !is_open(known.as_deref().map(|lease| &lease.spec), &candidates, now)? {
            return again;
        }
        if self.ask(lease, &candidates, now).await? {
            return again;
        }
        candidates.retain(|candidate| candidate.is_awake(now));
        let strategy = strategy(&candidates)?;
        let holder = (strategy == OLDEST).then(|| best(&candidates)).flatten();
        // None has answered, or none can be elected.
        let is_void = candidates.is_empty() || strategy == OLDEST && holder.is_none();
        if !is_void {
            self.decide(lease, strategy, holder.map(Candidate::name), now).await?;
        }
        again
    }

    /// Asks the candidates that are not awake. Returns whether one still has time to answer.
    async fn ask(
        &self,
        lease: &Request,
        candidates: &[Arc<Candidate>],
        now: Timestamp,
    ) -> Result<bool, RequestError> {
        let mut is_open = false;
        for candidate in candidates {
            let has_time = candidate.asked().is_some_and(|asked| asked + VOTE > now);
            if candidate.owes_answer() {
                // One that had its time is not asked again before it renews.
                is_open |= has_time;
                continue;
            }
            if candidate.is_awake(now) || has_time {
                continue;
            }
            is_open = true;
            let path = path_of(&lease.namespace, candidate.name());
            let patch = json!({
                "metadata": {"resourceVersion": candidate.metadata.resource_version},
                "spec": {"pingTime": now.rfc3339_micro()},
            });
            ignore_stale(self.api.merge_patch(&path, &patch).await)?;
        }
        Ok(is_open)
    }

    /// Writes the result of an election, unless somebody else was faster: the change is another
    /// pass.
    async fn decide(
        &self,
        lease: &Request,
        strategy: &str,
        holder: Option<&str>,
        now: Timestamp,
    ) -> Result<(), RequestError> {
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", lease.namespace);
        let path = format!("{leases}/{}", lease.name);
        let Some(mut found) = self.api.get_opt(&path).await? else {
            let new =
                json!({"renewTime": now.rfc3339_micro(), "leaseDurationSeconds": LEASE_SECONDS});
            let new = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"namespace": &*lease.namespace, "name": &*lease.name},
                "spec": elected(new, strategy, holder, now),
            });
            return match self.api.post(&leases, &new).await {
                Err(error) if error.is_already_exists() => Ok(()),
                created => created.map(drop),
            };
        };
        let spec = elected(found["spec"].clone(), strategy, holder, now);
        if found["spec"] == spec {
            return Ok(());
        }
        found["spec"] = spec;
        ignore_stale(self.api.put(&path, &found).await).map(drop)
    }
}

struct Cleaner(Pass);

impl BoxedReconciler for Cleaner {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        self.0.clean(request, context.client()).await
    }
}

impl Pass {
    /// Deletes a candidate that has not renewed for too long.
    async fn clean(&self, request: &Request, client: &Client) -> Result<Action, BoxError> {
        let now = self.clock.now();
        let known = client.api::<Candidate>().get(request)?;
        let Some(known) = known else { return Ok(Action::await_change()) };
        let removal = known.removal();
        if removal >= now {
            // A moment later.
            return Ok(Action::requeue_after(removal.since(now) + Duration::from_millis(1)));
        }
        let path = path_of(&request.namespace, &request.name);
        let Some(found) = self.api.get_opt(&path).await? else {
            return Ok(Action::await_change());
        };
        if Candidate::deserialize(&found)?.removal() >= now {
            // The cache will show it.
            return Ok(Action::await_change());
        }
        ignore_stale(self.api.delete(&path, &as_read(&found)).await)?;
        Ok(Action::await_change())
    }
}

#[cfg(test)]
mod tests;
