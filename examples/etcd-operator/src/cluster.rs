//! The controller of clusters.
//!
//! A pass observes the cluster, decides, and takes at most one step. The decision is made from the
//! cache and again from live reads of the server and etcd; the step is taken only if both decisions
//! are equal. The status has the observed state and the next step.

use crate::api::{
    AVAILABLE, DEGRADED, EtcdBackup, EtcdCluster, EtcdClusterStatus, MemberStatus, PROGRESSING,
    TEMPLATE_ANNOTATION, VOTER_LABEL,
};
use crate::etcd::{CLIENT_PORT, Etcd, EtcdError};
use crate::objects::{Objects, Source, backup_volume, entry_patch, hash_of};
use crate::observe::{From, Observed, hex, is_owned, observe};
use crate::plan::{Entry, Reason, Step, Wait, decide};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;
use setpoint::kube_client::api::{DeleteParams, Patch, Preconditions};
use setpoint::kube_core::ObjectMeta;
use setpoint::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// The controller's name.
pub const NAME: &str = "etcd-cluster";
/// Number of concurrent passes.
pub const WORKERS: usize = 4;
/// The pause after a step that causes no event of a watch.
const SOON: Duration = Duration::from_millis(200);
/// The pause between two looks at members while waiting: they send no events.
const POLL: Duration = Duration::from_secs(2);
/// The pause while the cluster is as declared, or while the cache is behind: an event ends it.
const STEADY: Duration = Duration::from_secs(10);

/// The reconciler of clusters.
#[derive(Debug)]
pub struct Clusters<E> {
    etcd: Arc<E>,
}

/// The controller, to be added to a manager.
///
/// # Errors
///
/// None: these options are valid.
pub fn controller<E: Etcd>(etcd: Arc<E>) -> Result<Controller, BuildError> {
    Controller::builder(NAME)
        .for_(Watch::<EtcdCluster>::new())
        .owns(Watch::<Pod>::new())
        .owns(Watch::<PersistentVolumeClaim>::new())
        .owns(Watch::<ConfigMap>::new())
        .owns(Watch::<Service>::new())
        .owns(Watch::<PodDisruptionBudget>::new())
        .concurrency(WORKERS)
        .build(Clusters { etcd })
}

impl<E: Etcd> Reconciler for Clusters<E> {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        // With the status of the pass before: what it says must not begin anew.
        let cluster = context.client().api::<EtcdCluster>().get_own(&request).await?;
        // Gone: the garbage collector deletes what it owned.
        let Some(cluster) = cluster.filter(|found| found.meta().deletion_timestamp.is_none())
        else {
            return Ok(Action::await_change());
        };
        let uid = cluster.meta().uid.clone().unwrap_or_default();
        let pass = Pass { etcd: &*self.etcd, key: &request, uid: &uid, context: &context };
        pass.frame(&cluster).await?;
        pass.run().await
    }
}

/// A pass over one cluster.
struct Pass<'a, E> {
    etcd: &'a E,
    key: &'a Request,
    uid: &'a str,
    context: &'a Context,
}

impl<E: Etcd> Pass<'_, E> {
    async fn observe(&self, from: From) -> Result<Option<Observed>, BoxError> {
        let (client, clock) = (self.context.client(), self.context.clock());
        observe(self.etcd, client, clock, self.key, self.uid, from).await
    }

    async fn run(&self) -> Result<Action, BoxError> {
        let Some(mut observed) = self.observe(From::Cache).await? else {
            return Ok(Action::await_change());
        };
        self.mark_voters(&observed).await?;
        let mut step = decide(&observed.state);
        let mut pause = match step {
            Step::Done => STEADY,
            _ => POLL,
        };
        if !matches!(step, Step::Done | Step::Wait(_)) {
            let Some(live) = self.observe(From::Server).await? else {
                return Ok(Action::await_change());
            };
            let again = decide(&live.state);
            // What the cache lacks comes as an event; what etcd answered otherwise does not.
            let is_behind = observed.state.slots != live.state.slots;
            pause = if is_behind { STEADY } else { SOON };
            observed = live;
            if again == step {
                // What the status says is written also if the step fails.
                let done = match self.waits_for_backup(&observed, &step)? {
                    Some(why) => {
                        step = Step::Wait(Wait::Refused(why));
                        Ok(POLL)
                    }
                    None => match self.take(&observed, &step).await {
                        Err(error) if is_for_now(&error) => Ok(POLL),
                        done => done,
                    },
                };
                self.report(&observed, &step).await?;
                return Ok(Action::requeue_after(done?));
            }
            step = again;
        }
        self.report(&observed, &step).await?;
        Ok(Action::requeue_after(pause))
    }

    /// Makes the Services, the budget and the ConfigMap, or what they should be by now.
    async fn frame(&self, cluster: &EtcdCluster) -> Result<(), BoxError> {
        let objects = Objects { cluster, key: self.key };
        self.ensure(objects.peers()?).await?;
        self.ensure(objects.clients()?).await?;
        self.ensure(objects.budget()?).await?;
        self.ensure(objects.entries()?).await
    }

    /// Makes an object. One of the same name that is not the cluster's stays as it is.
    async fn ensure<K>(&self, apply: Apply<K>) -> Result<(), BoxError>
    where
        K: setpoint::informer::Cacheable,
        K::DynamicType: Default,
    {
        let hash = hash_of(&apply.body()?["spec"]);
        let apply = apply.annotation(TEMPLATE_ANNOTATION, &*hash);
        let (api, key) = (self.context.client().api::<K>(), apply.key());
        let Some(cached) = shown(api.get_own_within(key, Duration::ZERO).await)? else {
            return Ok(());
        };
        let annotations = cached.as_ref().and_then(|found| found.meta().annotations.as_ref());
        if annotations.and_then(|all| all.get(TEMPLATE_ANNOTATION)) == Some(&hash) {
            return Ok(());
        }
        if let Some(found) = api.get_live(key).await?
            && !is_owned(found.meta(), self.uid)
        {
            let kind = K::kind(&K::DynamicType::default()).into_owned();
            return Err(format!("the {kind} {key} is not of this cluster").into());
        }
        api.apply(&apply).await?;
        Ok(())
    }

    /// Labels the pods of voting members, which the Service of clients selects.
    async fn mark_voters(&self, observed: &Observed) -> Result<(), BoxError> {
        for member in observed.state.members.iter().flatten().filter(|one| !one.is_learner) {
            let pod = member.ordinal.and_then(|ordinal| observed.pods.get(&ordinal));
            let Some(pod) = pod.filter(|pod| pod.metadata.deletion_timestamp.is_none()) else {
                continue;
            };
            let labels = pod.metadata.labels.as_ref();
            if labels.is_none_or(|labels| !labels.contains_key(VOTER_LABEL)) {
                let key = Request::new(&*self.key.namespace, pod.name_any().as_str());
                let pods = self.context.client().api::<Pod>();
                if shown(pods.get_own_within(&key, Duration::ZERO).await)?.is_none() {
                    continue;
                }
                let patch = json!({
                    "metadata": {"uid": pod.metadata.uid, "labels": {VOTER_LABEL: "true"}},
                });
                pods.patch(&key, &Patch::Merge(patch)).await?;
            }
        }
        Ok(())
    }

    /// The backup that the first member restores; `Err` says what is missing.
    fn source(&self, cluster: &EtcdCluster) -> Result<Result<Option<Source>, String>, BoxError> {
        let Some(from) = &cluster.spec.restore_from else { return Ok(Ok(None)) };
        let location = match (&from.location, &from.backup) {
            (Some(location), _) => location.clone(),
            (None, name) => {
                let name = name.as_deref().unwrap_or_default();
                let key = Request::new(&*self.key.namespace, name);
                let backup = self.context.client().api::<EtcdBackup>().get(&key)?;
                let complete = backup.filter(|backup| {
                    backup.status.as_ref().is_some_and(|status| status.phase == "Complete")
                });
                let Some(backup) = complete else {
                    return Ok(Err(format!("the EtcdBackup {name} is not complete")));
                };
                let mut location = backup.spec.destination.clone();
                location.file = Some(backup.file());
                location
            }
        };
        let Some(file) = location.file.clone() else {
            return Ok(Err("restoreFrom.location names no file".to_owned()));
        };
        Ok(Ok(Some(Source { volume: backup_volume(&location), file })))
    }

    /// Why the first pod cannot be made yet.
    fn waits_for_backup(
        &self,
        observed: &Observed,
        step: &Step,
    ) -> Result<Option<String>, BoxError> {
        if observed.state.has_begun || !matches!(step, Step::CreatePod(_)) {
            return Ok(None);
        }
        Ok(self.source(&observed.cluster)?.err())
    }

    /// Takes a step. Returns when to look again.
    async fn take(&self, observed: &Observed, step: &Step) -> Result<Duration, BoxError> {
        let client = self.context.client();
        let objects = Objects { cluster: &observed.cluster, key: self.key };
        let slot_of =
            |ordinal: u32| observed.state.slots.iter().find(move |slot| slot.ordinal == ordinal);
        let url_of = |ordinal: u32| {
            let url = slot_of(ordinal).and_then(|slot| slot.url.clone());
            url.ok_or_else(|| format!("the member {ordinal} has no address"))
        };
        let everyone: Vec<String> =
            observed.endpoints.iter().map(|(_, endpoint)| endpoint.clone()).collect();
        match step {
            Step::CreateClaim(ordinal) => {
                let claim = objects.claim(*ordinal)?;
                client.api::<PersistentVolumeClaim>().create(&claim).await?;
            }
            Step::CreatePod(ordinal) => {
                let is_begun = observed.state.has_begun;
                let source = self.source(&observed.cluster)?.ok().flatten();
                let members = observed.state.members.iter().flatten();
                let is_voter =
                    members.clone().any(|m| m.ordinal == Some(*ordinal) && !m.is_learner);
                let source = source.as_ref().filter(|_| !is_begun);
                let pod = objects.pod(*ordinal, is_voter, source)?;
                client.api::<Pod>().create(&pod).await?;
            }
            Step::SetEntry(ordinal, entry) => {
                let others = observed.members.iter().flat_map(|members| &members.list);
                let others = others.filter(|member| !member.name.is_empty());
                let others: Vec<(String, String)> = others
                    .flat_map(|one| one.peer_urls.iter().map(|url| (one.name.clone(), url.clone())))
                    .collect();
                let url = url_of(*ordinal)?;
                self.set_entry(&objects, *ordinal, Some(*entry), &url, &others).await?;
            }
            Step::DeleteEntry(ordinal) => {
                self.set_entry(&objects, *ordinal, None, "", &[]).await?;
            }
            Step::AddLearner(ordinal) => {
                let url = url_of(*ordinal)?;
                self.etcd.add_learner(&everyone, &url).await?;
                let name = objects.member(*ordinal);
                self.publish(observed, "MemberAdded", &format!("{name} is a learner at {url}"));
            }
            Step::Promote(id) => {
                if !self.etcd.promote(&everyone, *id).await? {
                    return Ok(POLL);
                }
                let message = format!("{} votes", self.name_of(observed, *id));
                self.publish(observed, "MemberPromoted", &message);
            }
            Step::RemoveMember(id, why) => {
                self.etcd.remove(&observed.endpoints_without(*id), *id).await?;
                let why = match why {
                    Reason::ScaleDown => "the cluster becomes smaller",
                    Reason::Lost => "it has lost its data, or is silent",
                    Reason::Leftover | Reason::Outdated | Reason::Restore => "it has no pod",
                };
                let message = format!("{} is removed: {why}", self.name_of(observed, *id));
                self.publish(observed, "MemberRemoved", &message);
            }
            Step::DeletePod(ordinal, why) => {
                if let Some(pod) = observed.pods.get(ordinal) {
                    let key = objects.member_key(*ordinal);
                    client.api::<Pod>().delete(&key, &exactly(&pod.metadata)).await?;
                }
                if *why == Reason::Outdated {
                    let message = format!("{} is replaced", objects.member(*ordinal));
                    self.publish(observed, "PodReplaced", &message);
                }
            }
            Step::DeleteClaim(ordinal) => {
                if let Some(claim) = observed.claims.get(ordinal) {
                    let key = objects.member_key(*ordinal);
                    let params = exactly(&claim.metadata);
                    client.api::<PersistentVolumeClaim>().delete(&key, &params).await?;
                }
            }
            Step::Wait(_) | Step::Done => {}
        }
        Ok(SOON)
    }

    async fn set_entry(
        &self,
        objects: &Objects<'_>,
        ordinal: u32,
        entry: Option<Entry>,
        url: &str,
        others: &[(String, String)],
    ) -> Result<(), BoxError> {
        let patch = entry_patch(&objects.member(ordinal), entry, url, others);
        let maps = self.context.client().api::<ConfigMap>();
        maps.patch(&objects.entries_key(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    fn name_of(&self, observed: &Observed, id: u64) -> String {
        let members = observed.members.iter().flat_map(|members| &members.list);
        let found = members.into_iter().find(|member| member.id == id);
        match found.map(|member| member.name.clone()).filter(|name| !name.is_empty()) {
            Some(name) => name,
            None => format!("the member {}", hex(id)),
        }
    }

    fn publish(&self, observed: &Observed, reason: &str, message: &str) {
        tracing::info!(cluster = %self.key, "{reason}: {message}");
        let reference = ObjectReference::of(&observed.cluster);
        self.context.recorder().normal(&reference, reason, message);
    }

    /// Writes the status if it has changed.
    async fn report(&self, observed: &Observed, step: &Step) -> Result<(), BoxError> {
        let status = self.status(observed, step);
        if observed.cluster.status.as_ref() != Some(&status) {
            let apply = Apply::<EtcdCluster>::new(self.key).status(&status).force();
            self.context.client().api::<EtcdCluster>().status().apply(&apply).await?;
        }
        Ok(())
    }

    fn status(&self, observed: &Observed, step: &Step) -> EtcdClusterStatus {
        let cluster = &observed.cluster;
        let mut status = cluster.status.clone().unwrap_or_default();
        status.observed_generation = cluster.meta().generation;
        if let (Some(members), Some(list)) = (&observed.members, &observed.state.members) {
            status.cluster_id = Some(hex(members.cluster_id));
            status.size = list.len() as u32;
            status.members = list
                .iter()
                .map(|member| MemberStatus {
                    name: member.name.clone(),
                    id: hex(member.id),
                    is_learner: member.is_learner,
                    is_ready: member.is_healthy,
                    version: observed.looks.get(&member.id).map(|look| look.version.clone()),
                })
                .collect();
            let voters = list.iter().filter(|member| !member.is_learner);
            let hosts = voters.filter_map(|member| {
                let ordinal = member.ordinal?;
                let ip = observed.pods.get(&ordinal).and_then(crate::observe::ip_of);
                Objects { cluster, key: self.key }.host(ordinal, ip)
            });
            status.endpoints = hosts.map(|host| format!("http://{host}:{CLIENT_PORT}")).collect();
            let versions = observed.looks.values().map(|look| look.version.clone());
            let lowest = versions.min_by_key(|version| semver::Version::parse(version).ok());
            status.version = lowest.or(status.version);
        } else {
            status.members.iter_mut().for_each(|member| member.is_ready = false);
        }
        status.ready_members = status.members.iter().filter(|one| one.is_ready).count() as u32;
        let Summary { phase, available, progressing, degraded } = summarize(observed, step);
        phase.clone_into(&mut status.phase);
        let (generation, now) = (cluster.meta().generation, self.context.clock().now());
        for (kind, (holds, reason, message)) in
            [(AVAILABLE, available), (PROGRESSING, progressing), (DEGRADED, degraded)]
        {
            let conditions = &mut status.conditions;
            set_condition(conditions, kind, holds, reason, &message, generation, now);
        }
        status
    }
}

/// A condition: its status, reason and message.
type Condition = (bool, &'static str, String);

/// The phase and the conditions of a status.
struct Summary {
    phase: &'static str,
    available: Condition,
    progressing: Condition,
    degraded: Condition,
}

fn summarize(observed: &Observed, step: &Step) -> Summary {
    let state = &observed.state;
    let members = state.members.as_deref().unwrap_or_default();
    let voters = members.iter().filter(|member| !member.is_learner);
    let (n, n_healthy) = (voters.clone().count(), voters.filter(|one| one.is_healthy).count());
    let has_answered = state.members.is_some();
    let next = describe(step);
    let phase = match step {
        Step::Done => "Running",
        Step::Wait(Wait::Refused(_) | Wait::Foreign(_) | Wait::LostBeyondQuorum(_)) => "Blocked",
        _ if !state.has_begun => "Creating",
        _ if !has_answered => "NoQuorum",
        Step::DeletePod(_, Reason::Outdated) => "Upgrading",
        _ if n_healthy < n => match state.slots.iter().any(is_outdated) {
            true => "Upgrading",
            false => "Healing",
        },
        _ if members.len() != state.size as usize || n != state.size as usize => "Scaling",
        _ => "Healing",
    };
    let available = match (has_answered, state.has_begun) {
        (true, _) => (true, "Quorum", format!("{n_healthy} of {n} voting members answer")),
        (false, false) => (false, "Creating", "the cluster has not begun".to_owned()),
        (false, true) => {
            let why = observed.failed.as_ref().map(ToString::to_string).unwrap_or_default();
            (false, "NoQuorum", format!("no majority answers: {why}"))
        }
    };
    let progressing = match phase {
        "Running" => (false, "AsDeclared", "the cluster is as declared".to_owned()),
        "Blocked" => (false, "Blocked", next.clone()),
        "NoQuorum" => (false, "NoQuorum", next.clone()),
        "Creating" => (true, "Creating", next.clone()),
        "Upgrading" => (true, "Upgrading", next.clone()),
        "Scaling" => (true, "Scaling", next.clone()),
        _ => (true, "Healing", next.clone()),
    };
    let is_silent = |slot: &&crate::plan::Slot| slot.pod.as_ref().is_some_and(|pod| pod.is_silent);
    let silent = state.slots.iter().find(is_silent).map(|slot| slot.ordinal);
    let degraded = match phase {
        "Blocked" => (true, "Blocked", next),
        "NoQuorum" => (true, "NoQuorum", next),
        _ if has_answered && n_healthy < n => {
            (true, "MembersDown", format!("{} of {n} voting members do not answer", n - n_healthy))
        }
        _ if state
            .slots
            .iter()
            .any(|slot| slot.pod.as_ref().is_some_and(|p| p.has_failed_restore)) =>
        {
            (true, "RestoreFailed", "the backup cannot be restored; see the pod".to_owned())
        }
        _ => match silent {
            // For example a new member that never becomes healthy.
            Some(ordinal) => {
                (true, "PodSilent", format!("the pod of member {ordinal} does not become ready"))
            }
            None => (false, "Healthy", "no fault is known".to_owned()),
        },
    };
    Summary { phase, available, progressing, degraded }
}

fn is_outdated(slot: &crate::plan::Slot) -> bool {
    slot.pod.as_ref().is_some_and(|pod| !pod.is_current)
}

/// Describes a step in one sentence.
fn describe(step: &Step) -> String {
    match step {
        Step::Done => "nothing is to be done".to_owned(),
        Step::CreateClaim(n) | Step::CreatePod(n) | Step::SetEntry(n, _) => {
            format!("member {n} is prepared")
        }
        Step::AddLearner(n) => format!("member {n} joins"),
        Step::Promote(id) => format!("member {} gets its vote", hex(*id)),
        Step::RemoveMember(id, _) => format!("member {} is removed", hex(*id)),
        Step::DeletePod(n, Reason::Outdated) => format!("the pod of member {n} is replaced"),
        Step::DeletePod(n, _) | Step::DeleteClaim(n) | Step::DeleteEntry(n) => {
            format!("what is left of member {n} is deleted")
        }
        Step::Wait(Wait::FirstMember) => "the first member starts".to_owned(),
        Step::Wait(Wait::Deletion(n)) => format!("the pod or claim of member {n} disappears"),
        Step::Wait(Wait::Address(n)) => format!("the pod of member {n} waits for an address"),
        Step::Wait(Wait::Learner(id)) => format!("member {} receives the data", hex(*id)),
        Step::Wait(Wait::Member(id)) => format!("member {} does not answer", hex(*id)),
        Step::Wait(Wait::Quorum) => {
            "no member is changed without a majority; if it does not come back, restore a backup \
             into a new cluster"
                .to_owned()
        }
        Step::Wait(Wait::LostBeyondQuorum(id)) => {
            format!("member {} is lost, and removing it would cost the majority", hex(*id))
        }
        Step::Wait(Wait::Foreign(id)) => {
            format!("member {} is none of the operator's: remove it with etcdctl", hex(*id))
        }
        Step::Wait(Wait::Refused(why)) => why.clone(),
    }
}

fn is_for_now(error: &BoxError) -> bool {
    error.downcast_ref::<EtcdError>().is_some_and(EtcdError::is_for_now)
}

/// What the cache has of an object; `None` if an earlier pass has written it, and the cache does
/// not show that yet. Its event starts a pass.
fn shown<T>(read: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match read {
        Err(ClientError::Behind { .. }) => Ok(None),
        read => read.map(Some),
    }
}

/// Deletes this object only, not a later one of the same name.
fn exactly(meta: &ObjectMeta) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions { uid: meta.uid.clone(), resource_version: None }),
        ..DeleteParams::default()
    }
}
