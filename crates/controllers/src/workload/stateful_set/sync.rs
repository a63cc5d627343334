//! One pass over the pods of a StatefulSet.

use super::claims::{self, VolumeClaim};
use super::{REVISION_LABEL, STALE_CLAIM_PAUSE, StatefulSet, StatefulSetStatus, reference};
use crate::first_error::FirstError;
use crate::workload::deployment::int_or_percent;
use crate::workload::fresh;
use crate::workload::history::ControllerRevision;
use crate::workload::pod::{Pod, next_available};
use crate::workload::pod_control::{
    BURST_MAX, is_namespace_terminating, message, pod_from_template, precondition,
};
use futures::future::join_all;
use kube_core::DynamicObject;
use kube_core::params::Patch;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use setpoint_runtime::events::EventType;
use setpoint_runtime::{
    BoxError, Client, ClientError, Context, ObjectReference, Request, controller_reference,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::OnceCell;

/// The most ordinals that parallel management processes at the same time.
const BATCH_MAX: usize = 64;
/// The labels of a pod's name and ordinal.
const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// A StatefulSet and its pods in one pass.
pub(super) struct Sync<'a> {
    context: &'a Context,
    client: &'a Client,
    set: &'a StatefulSet,
    reference: ObjectReference,
    /// By ordinal.
    pods: BTreeMap<i32, &'a Arc<Pod>>,
    current: &'a ControllerRevision,
    update: &'a ControllerRevision,
    now: Timestamp,
    /// Pods of the current revision that were deleted for an update.
    n_replaced: i32,
    /// A pod waits for the end of its claims.
    has_stale_claim: Mutex<bool>,
    /// Whether the server has the set, once a pod is to be created.
    is_live: OnceCell<bool>,
    /// Pods that this pass has tried to create.
    n_creates: AtomicUsize,
}

/// Whether the pass goes on after a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Continue,
    Stop,
}

/// The ordinals that a pass goes through.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// Those that should have a pod.
    Wanted,
    /// Those that should not. The one that is the first unavailable of all is deleted although it
    /// is unavailable.
    Condemned { first_unavailable: Option<i32> },
}

impl<'a> Sync<'a> {
    pub(super) fn new(
        context: &'a Context,
        client: &'a Client,
        set: &'a StatefulSet,
        pods: &'a [Arc<Pod>],
        current: &'a ControllerRevision,
        update: &'a ControllerRevision,
    ) -> Self {
        let pods = pods.iter().filter_map(|pod| Some((set.ordinal(pod.name())?, pod))).collect();
        Self {
            context,
            client,
            set,
            reference: reference(set),
            pods,
            current,
            update,
            now: context.clock().now(),
            n_replaced: 0,
            has_stale_claim: Mutex::new(false),
            is_live: OnceCell::new(),
            n_creates: AtomicUsize::new(0),
        }
    }

    /// Moves the pods one step towards the desired state.
    pub(super) async fn run(&mut self) -> Result<(), BoxError> {
        if self.set.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        if self.for_all(self.set.wanted(), Part::Wanted).await? == Step::Stop {
            return Ok(());
        }
        let condemned: Vec<i32> =
            self.pods.keys().rev().filter(|ordinal| !self.set.wants(**ordinal)).copied().collect();
        for ordinal in &condemned {
            self.keep_retention(self.pods[ordinal]).await?;
        }
        let part = Part::Condemned { first_unavailable: self.first_unavailable(&condemned) };
        if self.for_all(condemned, part).await? == Step::Stop {
            return Ok(());
        }
        match self.set.spec.update_strategy["type"] == "OnDelete" {
            true => Ok(()),
            false => self.replace().await,
        }
    }

    /// Runs a step for all ordinals: in order until one stops. With parallel management some at a
    /// time, and none stops the others.
    async fn for_all(
        &self,
        ordinals: impl IntoIterator<Item = i32>,
        part: Part,
    ) -> Result<Step, BoxError> {
        let mut ordinals = ordinals.into_iter();
        if !self.set.is_parallel() {
            for ordinal in ordinals {
                if self.one(ordinal, part).await? == Step::Stop {
                    return Ok(Step::Stop);
                }
            }
            return Ok(Step::Continue);
        }
        let mut errors = FirstError::new();
        loop {
            let batch: Vec<_> = ordinals.by_ref().take(BATCH_MAX).collect();
            let is_last = batch.is_empty();
            let steps = batch.into_iter().map(|ordinal| self.one(ordinal, part));
            for step in join_all(steps).await {
                errors.note(step);
            }
            // The next pass creates more pods. A set that is gone needs none.
            let is_full = self.n_creates.load(Ordering::Relaxed) >= BURST_MAX;
            let is_stopped = is_full || self.is_live.get() == Some(&false);
            if is_last || is_stopped {
                errors.into_result()?;
                return Ok(if is_stopped { Step::Stop } else { Step::Continue });
            }
        }
    }

    /// The step of one ordinal.
    async fn one(&self, ordinal: i32, part: Part) -> Result<Step, BoxError> {
        match part {
            Part::Wanted => self.replica(ordinal).await,
            Part::Condemned { first_unavailable } => {
                self.condemned(ordinal, first_unavailable).await
            }
        }
    }

    /// One wanted ordinal.
    async fn replica(&self, ordinal: i32) -> Result<Step, BoxError> {
        let is_ordered = !self.set.is_parallel();
        let Some(pod) = self.pods.get(&ordinal) else {
            if !self.create(ordinal).await? || is_ordered {
                return Ok(Step::Stop);
            }
            return Ok(Step::Continue);
        };
        if pod.is_finished() {
            if !pod.is_being_deleted() {
                self.delete(pod).await?;
            }
            return Ok(Step::Stop);
        }
        if pod.status.phase == "Pending" {
            self.create_claims(pod.name()).await?;
        }
        if is_ordered && !self.is_available(pod) {
            return Ok(Step::Stop);
        }
        self.keep_retention(pod).await?;
        self.keep_identity(pod, ordinal).await?;
        Ok(Step::Continue)
    }

    /// One ordinal that is not wanted any more.
    async fn condemned(
        &self,
        ordinal: i32,
        first_unavailable: Option<i32>,
    ) -> Result<Step, BoxError> {
        let pod = self.pods[&ordinal];
        let is_ordered = !self.set.is_parallel();
        if pod.is_being_deleted() {
            return Ok(if is_ordered { Step::Stop } else { Step::Continue });
        }
        // A scaling down waits for pods that may become available, but not for itself.
        if is_ordered && !self.is_available(pod) && first_unavailable != Some(ordinal) {
            return Ok(Step::Stop);
        }
        self.delete(pod).await?;
        Ok(Step::Stop)
    }

    /// The unavailable ordinal that is first in line, low before high. Ordered management comes
    /// here only if all wanted ones are available.
    fn first_unavailable(&self, condemned: &[i32]) -> Option<i32> {
        let is_unavailable = |ordinal: &&i32| !self.is_available(self.pods[*ordinal]);
        condemned.iter().rev().find(is_unavailable).copied()
    }

    /// Deletes pods of older revisions.
    async fn replace(&mut self) -> Result<(), BoxError> {
        let rolling = &self.set.spec.update_strategy["rollingUpdate"];
        let partition = rolling["partition"].as_i64().unwrap_or(0);
        let partition = usize::try_from(partition).unwrap_or_default();
        let max = match &rolling["maxUnavailable"] {
            Value::Null => 1,
            max => int_or_percent(max, self.set.replicas(), false).max(1),
        };
        let wanted = self.set.wanted();
        let available = self.pods.range(wanted.clone()).filter(|(_, pod)| self.is_available(pod));
        let n_available = i32::try_from(available.count()).unwrap_or(i32::MAX);
        let n_unavailable = self.set.replicas().saturating_sub(n_available);
        let mut room = max.saturating_sub(n_unavailable);
        for ordinal in wanted.skip(partition).rev() {
            let Some(pod) = self.pods.get(&ordinal).copied() else { return Ok(()) };
            // A finished one is being replaced anyway.
            let is_old = pod.label(REVISION_LABEL) != self.update.name() && !pod.is_finished();
            let is_available = self.is_available(pod);
            // A pod that is unavailable anyway may go: a broken revision must not block its
            // successor.
            if is_old && !pod.is_being_deleted() && (room > 0 || (max == 1 && !is_available)) {
                self.delete(pod).await?;
                self.n_replaced += i32::from(pod.label(REVISION_LABEL) == self.current.name());
                room -= 1;
                if max == 1 {
                    return Ok(());
                }
            } else if max == 1 && !is_available {
                return Ok(());
            }
        }
        Ok(())
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pod.status.phase == "Running"
            && !pod.is_being_deleted()
            && pod.is_available(self.set.spec.min_ready_seconds, self.now)
    }

    /// Creates the claims and the pod of an ordinal. False if it has to wait for old claims, or the
    /// set is gone.
    async fn create(&self, ordinal: i32) -> Result<bool, BoxError> {
        let ask = async || fresh::is_live(&self.client.api(), self.set).await;
        if !*self.is_live.get_or_try_init(ask).await? {
            return Ok(false);
        }
        let name = format!("{}-{ordinal}", self.set.name());
        let existing = self.client.api::<VolumeClaim>();
        for template in &self.set.spec.volume_claim_templates {
            let key = Request::new(self.set.namespace(), claims::name(template, &name));
            if existing.get(&key)?.is_some_and(|claim| claims::is_stale(&claim, &name)) {
                *self.has_stale_claim.lock() = true;
                return Ok(false);
            }
        }
        self.n_creates.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.create_claims(&name).await {
            let note = message(&error);
            self.pod_event("Create", &name, Some(&note));
            return Err(error.into());
        }
        let pod = self.body(ordinal, &name)?;
        let resource = kube_core::ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        match self.client.api_with::<DynamicObject>(resource).create(&pod).await {
            Ok(created) => {
                self.pod_event("Create", &name, None);
                let created: Pod = serde_json::from_value(serde_json::to_value(created)?)?;
                self.keep_retention(&created).await?;
                Ok(true)
            }
            // The cache shows it soon, or somebody else's pod has the name.
            Err(error) if error.is_already_exists() => Err(error.into()),
            Err(error) if is_namespace_terminating(&error) => Ok(false),
            Err(error) => {
                self.pod_event("Create", &name, Some(&message(&error)));
                Err(error.into())
            }
        }
    }

    /// The pod of an ordinal: of the current revision below the partition, and above of the new
    /// one.
    fn body(&self, ordinal: i32, name: &str) -> Result<DynamicObject, BoxError> {
        let strategy = &self.set.spec.update_strategy;
        let n_current = match strategy["rollingUpdate"]["partition"].as_i64() {
            _ if strategy["type"] == "OnDelete" => 0,
            Some(partition) => partition,
            None => i64::from(self.set.status.current_replicas),
        };
        let is_current = i64::from(ordinal) < i64::from(self.set.start()) + n_current;
        let revision = if is_current { self.current } else { self.update };
        let owner = controller_reference(self.set, &())?;
        let mut pod = pod_from_template(&revision.template(), self.set.namespace(), &owner);
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.generate_name = Some(format!("{}-", self.set.name()));
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert(REVISION_LABEL.into(), revision.name().to_owned());
        labels.extend(identity(name, ordinal));
        let spec = &mut pod.data["spec"];
        spec["hostname"] = json!(name);
        if !self.set.spec.service_name.is_empty() {
            spec["subdomain"] = json!(self.set.spec.service_name);
        }
        let templates = &self.set.spec.volume_claim_templates;
        let mut volumes: Vec<Value> = templates
            .iter()
            .map(|template| {
                let claim = json!({"claimName": claims::name(template, name)});
                json!({"name": template["metadata"]["name"], "persistentVolumeClaim": claim})
            })
            .collect();
        let is_claimed = |volume: &&Value| {
            templates.iter().any(|template| template["metadata"]["name"] == volume["name"])
        };
        let others = spec["volumes"].as_array().into_iter().flatten();
        volumes.extend(others.filter(|volume| !is_claimed(volume)).cloned());
        if !volumes.is_empty() {
            spec["volumes"] = json!(volumes);
        }
        Ok(pod)
    }

    /// Creates the claims of a pod that do not exist.
    async fn create_claims(&self, pod: &str) -> Result<(), ClientError> {
        for template in &self.set.spec.volume_claim_templates {
            let name = claims::name(template, pod);
            let key = Request::new(self.set.namespace(), &*name);
            if self.client.api::<VolumeClaim>().get(&key)?.is_some() {
                continue;
            }
            let api = self.client.api_with::<DynamicObject>(claims::resource());
            let set = self.set.name();
            let recorder = self.context.recorder();
            match api.create(&claims::body(self.set, template, pod)).await {
                Ok(_) => {
                    let note =
                        format!("Create Claim {name} Pod {pod} in StatefulSet {set} success");
                    recorder.normal(&self.reference, "SuccessfulCreate", note);
                }
                Err(error) if error.is_already_exists() => {}
                Err(error) => {
                    let cause = message(&error);
                    let note = format!(
                        "Create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {cause}"
                    );
                    recorder.warning(&self.reference, "FailedCreate", note);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Gives a pod's claims the owners of the retention policy.
    async fn keep_retention(&self, pod: &Pod) -> Result<(), BoxError> {
        for template in &self.set.spec.volume_claim_templates {
            let key = Request::new(self.set.namespace(), claims::name(template, pod.name()));
            let api = self.client.api::<VolumeClaim>();
            let Some(claim) = api.get_own(&key).await? else { continue };
            let Some(owners) = claims::owners(&claim, self.set, pod) else { continue };
            let metadata = json!({
                "resourceVersion": claim.metadata.resource_version, "ownerReferences": owners,
            });
            api.patch(&key, &Patch::Merge(json!({"metadata": metadata}))).await?;
        }
        Ok(())
    }

    /// Restores the labels of a pod's name and ordinal.
    async fn keep_identity(&self, pod: &Pod, ordinal: i32) -> Result<(), BoxError> {
        let wanted = identity(pod.name(), ordinal);
        if wanted.iter().all(|(key, value)| pod.label(key) == value) {
            return Ok(());
        }
        let labels: BTreeMap<_, _> = wanted.into_iter().collect();
        let patch = json!({"metadata": {"uid": pod.uid(), "labels": labels}});
        let key = Request::new(self.set.namespace(), pod.name());
        let updated = self.client.api::<Pod>().patch(&key, &Patch::Merge(patch)).await;
        self.changed("Update", pod, updated.map(drop))
    }

    async fn delete(&self, pod: &Pod) -> Result<(), BoxError> {
        let key = Request::new(self.set.namespace(), pod.name());
        let deleted = self.client.api::<Pod>().delete(&key, &precondition(pod.uid())).await;
        self.changed("Delete", pod, deleted)
    }

    /// Records how a change of a pod went.
    fn changed(
        &self,
        verb: &str,
        pod: &Pod,
        done: Result<(), ClientError>,
    ) -> Result<(), BoxError> {
        match &done {
            // It may still be the same pod: the pass is repeated.
            Err(error) if error.is_conflict() => {}
            Err(error) => self.pod_event(verb, pod.name(), Some(&message(error))),
            Ok(()) => self.pod_event(verb, pod.name(), None),
        }
        Ok(done?)
    }

    fn pod_event(&self, verb: &str, pod: &str, failure: Option<&str>) {
        let set = self.set.name();
        let (kind, reason, end) = match failure {
            None => (EventType::Normal, format!("Successful{verb}"), "successful".to_owned()),
            Some(cause) => {
                (EventType::Warning, format!("Failed{verb}"), format!("failed error: {cause}"))
            }
        };
        let note = format!("{verb} Pod {pod} in StatefulSet {set} {end}");
        self.context.recorder().event(&self.reference, kind, &reason, note);
    }

    /// The status, with the pods as they were at the start of the pass.
    pub(super) fn status(&self) -> StatefulSetStatus {
        let count = |counts: &dyn Fn(&Pod) -> bool| {
            let n = self.pods.values().filter(|pod| counts(pod)).count();
            i32::try_from(n).unwrap_or(i32::MAX)
        };
        let is_ready = |pod: &Pod| pod.status.phase == "Running" && pod.is_ready();
        let min = self.set.spec.min_ready_seconds;
        let of = |revision: &ControllerRevision| {
            count(&|pod| !pod.is_being_deleted() && pod.label(REVISION_LABEL) == revision.name())
        };
        let mut status = StatefulSetStatus {
            observed_generation: self.set.metadata.generation.unwrap_or_default(),
            replicas: count(&|_| true),
            ready_replicas: count(&is_ready),
            available_replicas: count(&|pod| is_ready(pod) && pod.is_available(min, self.now)),
            current_replicas: of(self.current) - self.n_replaced,
            updated_replicas: of(self.update),
            current_revision: self.current.name().to_owned(),
            update_revision: self.update.name().to_owned(),
            collision_count: None,
        };
        let replicas = self.set.replicas();
        let is_rolling = self.set.spec.update_strategy["type"] != "OnDelete";
        if is_rolling
            && status.updated_replicas == replicas
            && status.ready_replicas == replicas
            && status.replicas == replicas
        {
            status.current_replicas = status.updated_replicas;
            status.current_revision.clone_from(&status.update_revision);
        }
        status
    }

    /// When the set has to be looked at again without a change.
    pub(super) fn wait(&self) -> Option<Duration> {
        if *self.has_stale_claim.lock() {
            return Some(STALE_CLAIM_PAUSE);
        }
        let pods = self.pods.values().map(|pod| &***pod);
        let wait = next_available(pods, self.set.spec.min_ready_seconds, self.now);
        wait.map(|wait| wait.max(Duration::from_millis(100)))
    }
}

/// The labels of a pod's name and ordinal.
fn identity(name: &str, ordinal: i32) -> [(String, String); 2] {
    [(NAME_LABEL.to_owned(), name.to_owned()), (INDEX_LABEL.to_owned(), ordinal.to_string())]
}
