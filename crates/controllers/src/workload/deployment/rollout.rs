//! One step of a rollout.

use super::numbers::{Fenceposts, Part, Size, grow, in_proportion, shrink, sum, with_surge};
use super::revision::{
    DESIRED_REPLICAS, HASH_LABEL, MAX_REPLICAS, REVISION, annotations, comparable, hash, number,
};
use super::status::{DeploymentStatus, PROGRESSING, condition};
use super::{Deployment, ReplicaSet};
use crate::workload::fresh;
use crate::workload::pod::{BY_CONTROLLER, Pod};
use crate::workload::pod_control::{is_namespace_terminating, message, precondition};
use k8s_openapi::api::apps::v1 as apps;
use kube_core::params::Patch;
use kube_core::{ApiResource, DynamicObject};
use serde_json::{Map, Value, json};
use setpoint_object::time::Timestamp;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{
    BoxError, Client, ClientError, Context, ObjectReference, Request, controller_reference,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest name of a ReplicaSet.
const NAME_CHARS_MAX: usize = 253;

/// The hash of the new template belongs to another ReplicaSet; the next pass uses another one.
#[derive(Debug, thiserror::Error)]
#[error("the name {0} is taken by a ReplicaSet with another template")]
struct Collision(String);

/// A Deployment and its ReplicaSets in one pass.
pub(super) struct Rollout<'a> {
    context: &'a Context,
    client: &'a Client,
    pub(super) deployment: Arc<Deployment>,
    reference: ObjectReference,
    pub(super) fenceposts: Fenceposts,
    /// The new status, which is written at the end of the pass.
    pub(super) status: DeploymentStatus,
    /// The new value of the Deployment's annotation of its revision.
    revision: Option<String>,
    /// Oldest first.
    pub(super) sets: Vec<ReplicaSet>,
    /// The uid of the one with the Deployment's template.
    new: Option<String>,
    pub(super) now: Timestamp,
}

impl<'a> Rollout<'a> {
    pub(super) fn new(
        context: &'a Context,
        client: &'a Client,
        deployment: Arc<Deployment>,
        sets: Vec<Arc<ReplicaSet>>,
    ) -> Self {
        let mut sets: Vec<ReplicaSet> = sets.iter().map(|set| (**set).clone()).collect();
        sets.sort_by(|a, b| a.age().cmp(&b.age()));
        let wanted = comparable(&deployment.spec.template);
        // The oldest one, if several have the template.
        let new = sets.iter().find(|set| comparable(&set.spec.template) == wanted);
        let new = new.map(|set| set.uid().to_owned());
        Self {
            context,
            client,
            reference: ObjectReference::of(&*deployment),
            fenceposts: deployment.fenceposts(),
            status: deployment.status.clone(),
            revision: None,
            sets,
            new,
            now: context.clock().now(),
            deployment,
        }
    }

    /// The ReplicaSet with the Deployment's template.
    pub(super) fn new_set(&self) -> Option<&ReplicaSet> {
        self.sets.iter().find(|set| Some(set.uid()) == self.new.as_deref())
    }

    fn is_new(&self, set: &ReplicaSet) -> bool {
        Some(set.uid()) == self.new.as_deref()
    }

    fn replicas(&self) -> i32 {
        self.deployment.spec.replicas()
    }

    /// Does one step.
    pub(super) async fn step(&mut self) -> Result<(), BoxError> {
        if self.deployment.metadata.deletion_timestamp.is_some() {
            self.count();
            return Ok(());
        }
        self.note_pause();
        if self.deployment.spec.paused {
            self.sync_new_set().await?;
            self.scale().await?;
            self.clean_up().await?;
            self.count();
            return Ok(());
        }
        let is_scaled = self.sets.iter().any(|set| {
            let desired = number(set, DESIRED_REPLICAS);
            set.spec.replicas() > 0 && desired.is_some_and(|n| n != i64::from(self.replicas()))
        });
        if is_scaled {
            self.sync_new_set().await?;
            self.scale().await?;
            self.count();
            return Ok(());
        }
        match self.deployment.spec.is_recreate() {
            true => self.recreate().await?,
            false => self.roll().await?,
        }
        self.count();
        self.judge_progress();
        Ok(())
    }

    /// One step of a rolling update.
    async fn roll(&mut self) -> Result<(), BoxError> {
        self.sync_new_set().await?;
        if self.new.is_none() {
            self.create_new_set().await?;
        }
        let Some(new) = self.new_set().cloned() else { return Ok(()) };
        let old: Vec<usize> =
            (0..self.sets.len()).filter(|n| !self.is_new(&self.sets[*n])).collect();
        let sizes: Vec<Size> = old.iter().map(|n| self.sets[*n].size()).collect();
        let Fenceposts { surge, unavailable } = self.fenceposts;
        let size = grow(new.size(), &sizes, self.replicas(), surge);
        if self.resize(new.uid(), size).await? {
            return Ok(());
        }
        let mut is_smaller = false;
        for (n, size) in old.iter().zip(shrink(&sizes, new.size(), self.replicas(), unavailable)) {
            let uid = self.sets[*n].uid().to_owned();
            is_smaller |= self.resize(&uid, size).await?;
        }
        if !is_smaller && self.deployment.status.is_complete(&self.deployment) {
            self.clean_up().await?;
        }
        Ok(())
    }

    /// One step of a rollout that deletes all old pods before it creates new ones.
    async fn recreate(&mut self) -> Result<(), BoxError> {
        self.sync_new_set().await?;
        let old: Vec<ReplicaSet> =
            self.sets.iter().filter(|set| !self.is_new(set)).cloned().collect();
        let mut is_smaller = false;
        for set in &old {
            is_smaller |= self.resize(set.uid(), 0).await?;
        }
        if is_smaller || self.has_pods(&old)? {
            return Ok(());
        }
        if self.new.is_none() {
            self.create_new_set().await?;
        }
        let Some(new) = self.new.clone() else { return Ok(()) };
        self.resize(&new, self.replicas()).await?;
        if self.deployment.status.is_complete(&self.deployment) {
            self.clean_up().await?;
        }
        Ok(())
    }

    /// Whether ReplicaSets have pods that have not finished, also such that are being deleted.
    fn has_pods(&self, sets: &[ReplicaSet]) -> Result<bool, BoxError> {
        let namespace = self.deployment.metadata.namespace.as_deref().unwrap_or_default();
        let pods = self.client.api::<Pod>().lister_of(namespace)?;
        for set in sets {
            let is_observed = set.size().is_observed;
            let mut of_set = pods.by_index(BY_CONTROLLER, set.uid())?.into_iter();
            if !is_observed || set.status.replicas > 0 || of_set.any(|pod| !pod.is_finished()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Scales the Deployment outside of a rollout. If one ReplicaSet has pods, it gets the new
    /// number; otherwise all of them are scaled in proportion, so that the rollout is neither
    /// faster nor riskier than before.
    pub(super) async fn scale(&mut self) -> Result<(), BoxError> {
        let replicas = self.replicas();
        let active: Vec<&ReplicaSet> =
            self.sets.iter().filter(|set| set.spec.replicas() > 0).collect();
        let only = match &active[..] {
            [] => self.new_set().or(self.sets.last()),
            [only] => Some(*only),
            _ => None,
        };
        if let Some(only) = only.map(|set| set.uid().to_owned()) {
            self.resize(&only, replicas).await?;
            return Ok(());
        }
        let is_saturated = self.new_set().is_some_and(|new| {
            new.spec.replicas() == replicas
                && number(new, DESIRED_REPLICAS) == Some(i64::from(replicas))
                && new.status.available_replicas == replicas
        });
        if is_saturated {
            let old = active.into_iter().filter(|set| !self.is_new(set));
            let old: Vec<String> = old.map(|set| set.uid().to_owned()).collect();
            for uid in old {
                self.resize(&uid, 0).await?;
            }
            return Ok(());
        }
        if self.deployment.spec.is_recreate() {
            return Ok(());
        }
        let surge = self.fenceposts.surge;
        let present = sum(active.iter().map(|set| set.spec.replicas()));
        let is_growing = with_surge(replicas, surge) > present;
        let mut sorted = active;
        // Of sets of one size, the newest grows first, and the oldest shrinks first.
        match is_growing {
            true => sorted.sort_by(|a, b| {
                b.spec.replicas().cmp(&a.spec.replicas()).then_with(|| b.age().cmp(&a.age()))
            }),
            false => sorted.sort_by_key(|set| Reverse(set.spec.replicas())),
        }
        let part = |set: &&ReplicaSet| Part {
            wanted: set.spec.replicas(),
            max_replicas: number(set, MAX_REPLICAS).and_then(|n| i32::try_from(n).ok()),
        };
        let parts: Vec<Part> = sorted.iter().map(part).collect();
        let uids: Vec<String> = sorted.iter().map(|set| set.uid().to_owned()).collect();
        let sizes = in_proportion(&parts, replicas, surge, self.deployment.status.replicas);
        for (uid, size) in uids.iter().zip(sizes) {
            self.write_size(uid, size).await?;
        }
        Ok(())
    }

    /// Resizes a ReplicaSet if its size differs. Returns whether it did.
    async fn resize(&mut self, uid: &str, size: i32) -> Result<bool, ClientError> {
        let set = self.sets.iter().find(|set| set.uid() == uid);
        match set.is_some_and(|set| set.spec.replicas() != size) {
            true => self.write_size(uid, size).await,
            false => Ok(false),
        }
    }

    /// Writes a ReplicaSet's size and the annotations of scaling, where they differ. Returns
    /// whether the size has changed.
    async fn write_size(&mut self, uid: &str, size: i32) -> Result<bool, ClientError> {
        let Some(set) = self.sets.iter().find(|set| set.uid() == uid).cloned() else {
            return Ok(false);
        };
        let before = set.spec.replicas();
        let annotations = self.scale_annotations();
        let has = |(key, value): (&String, &Value)| {
            set.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str)
                == value.as_str()
        };
        if before == size && annotations.iter().all(has) {
            return Ok(false);
        }
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": size}});
        self.patch_set(&set, patch).await?;
        if before != size {
            let direction = if before < size { "up" } else { "down" };
            let note =
                format!("Scaled {direction} replica set {} from {before} to {size}", set.name());
            self.context.recorder().normal(&self.reference, "ScalingReplicaSet", note);
        }
        Ok(before != size)
    }

    /// The annotations that a scaling leaves on a ReplicaSet.
    fn scale_annotations(&self) -> Map<String, Value> {
        let max = self.replicas().saturating_add(self.fenceposts.surge);
        let mut annotations = Map::new();
        annotations.insert(DESIRED_REPLICAS.into(), self.replicas().to_string().into());
        annotations.insert(MAX_REPLICAS.into(), max.to_string().into());
        annotations
    }

    /// Patches a ReplicaSet in the version that was read.
    async fn patch_set(&mut self, set: &ReplicaSet, mut patch: Value) -> Result<(), ClientError> {
        patch["metadata"]["resourceVersion"] = json!(set.metadata.resource_version);
        patch["metadata"]["uid"] = json!(set.metadata.uid);
        let api = self.client.api::<ReplicaSet>();
        let patched = api.patch(&set.key(), &Patch::Merge(patch)).await?;
        if let Some(known) = self.sets.iter_mut().find(|known| known.uid() == patched.uid()) {
            *known = patched;
        }
        Ok(())
    }

    /// The number of a template that becomes current.
    fn next_revision(&self) -> i64 {
        let old = self.sets.iter().filter(|set| !self.is_new(set));
        old.filter_map(|set| number(set, REVISION)).max().unwrap_or(0).max(0).saturating_add(1)
    }

    /// Keeps the new ReplicaSet's annotations and `minReadySeconds`, and the Deployment's revision.
    async fn sync_new_set(&mut self) -> Result<(), BoxError> {
        let Some(new) = self.new_set().cloned() else { return Ok(()) };
        let existing = new.metadata.annotations.clone().unwrap_or_default();
        let changed = annotations(&self.deployment, &existing, self.next_revision());
        let min_ready = self.deployment.spec.min_ready_seconds;
        if !changed.is_empty() || new.spec.min_ready_seconds != min_ready {
            let patch = json!({
                "metadata": {"annotations": changed}, "spec": {"minReadySeconds": min_ready},
            });
            self.patch_set(&new, patch).await?;
        }
        let revision =
            self.new_set().and_then(|set| set.metadata.annotations.as_ref()?.get(REVISION));
        self.revision = revision.cloned();
        if self.deployment.deadline().is_some() && self.status.condition(PROGRESSING).is_none() {
            let note = format!("Found new replica set {:?}", new.name());
            let reason = "FoundNewReplicaSet";
            self.status.set(condition(self.now, PROGRESSING, "True", reason, note));
        }
        Ok(())
    }

    /// Creates the new ReplicaSet, as large as the rollout permits.
    async fn create_new_set(&mut self) -> Result<(), BoxError> {
        let deployment = self.deployment.clone();
        if !fresh::is_live(&self.client.api(), &*deployment).await? {
            return Ok(());
        }
        let hash = hash(&comparable(&deployment.spec.template), self.status.collision_count);
        let mut template = deployment.spec.template.clone();
        template["metadata"]["labels"][HASH_LABEL] = json!(hash);
        let mut selector = deployment.spec.selector.clone();
        selector["matchLabels"][HASH_LABEL] = json!(hash);
        let sizes: Vec<Size> = self.sets.iter().map(ReplicaSet::size).collect();
        let size = match deployment.spec.is_recreate() {
            true => self.replicas(),
            false => {
                let new = Size { is_observed: true, ..Size::default() };
                grow(new, &sizes, self.replicas(), self.fenceposts.surge)
            }
        };
        let revision = self.next_revision();
        let mut marks = annotations(&deployment, &BTreeMap::new(), revision);
        marks.extend(self.scale_annotations());
        let name = set_name(deployment.name(), &hash);
        let resource = ApiResource::erase::<apps::ReplicaSet>(&());
        let mut set = DynamicObject::new(&name, &resource);
        set.metadata.namespace.clone_from(&deployment.metadata.namespace);
        set.metadata.labels = serde_json::from_value(template["metadata"]["labels"].clone())?;
        set.metadata.annotations = serde_json::from_value(Value::Object(marks))?;
        set.metadata.owner_references = Some(vec![controller_reference(&*deployment, &())?]);
        set.data = json!({"spec": {
            "replicas": size, "minReadySeconds": deployment.spec.min_ready_seconds,
            "selector": selector, "template": template,
        }});
        let created = self.client.api_with::<DynamicObject>(resource).create(&set).await;
        let created: ReplicaSet = match created {
            Ok(created) => serde_json::from_value(serde_json::to_value(created)?)?,
            Err(error) if error.is_already_exists() => {
                return self.use_existing(&name, error).await;
            }
            Err(error) if is_namespace_terminating(&error) => return Err(error.into()),
            Err(error) => {
                let note =
                    format!("Failed to create new replica set {name:?}: {}", message(&error));
                let reason = "ReplicaSetCreateError";
                if deployment.deadline().is_some() {
                    self.status.set(condition(self.now, PROGRESSING, "False", reason, &*note));
                }
                self.context.recorder().warning(&self.reference, reason, note);
                return Err(error.into());
            }
        };
        if size > 0 {
            let note = format!("Scaled up replica set {name} from 0 to {size}");
            self.context.recorder().normal(&self.reference, "ScalingReplicaSet", note);
        }
        if deployment.deadline().is_some() {
            let note = format!("Created new replica set {name:?}");
            let reason = "NewReplicaSetCreated";
            self.status.set(condition(self.now, PROGRESSING, "True", reason, note));
        }
        self.revision = Some(revision.to_string());
        self.new = Some(created.uid().to_owned());
        self.sets.push(created);
        Ok(())
    }

    /// Uses the ReplicaSet that has the name already, if it is the Deployment's and has the
    /// template. Otherwise the hashes collide: the next pass uses another one.
    async fn use_existing(&mut self, name: &str, error: ClientError) -> Result<(), BoxError> {
        let namespace = self.deployment.metadata.namespace.as_deref().unwrap_or_default();
        let key = Request::new(namespace, name);
        let Some(existing) = self.client.api::<ReplicaSet>().get_live(&key).await? else {
            return Err(error.into());
        };
        let owner = controller_of(&existing).map(|owner| owner.uid.as_str());
        let is_own = owner == self.deployment.metadata.uid.as_deref();
        let wanted = comparable(&self.deployment.spec.template);
        if is_own && comparable(&existing.spec.template) == wanted {
            self.revision = Some(self.next_revision().to_string());
            self.new = Some(existing.uid().to_owned());
            self.sets.push(existing);
            return Ok(());
        }
        self.status.collision_count = Some(self.status.collision_count.unwrap_or(0) + 1);
        Err(Collision(name.to_owned()).into())
    }

    /// Deletes the oldest ReplicaSets without pods beyond the history's limit.
    async fn clean_up(&mut self) -> Result<(), BoxError> {
        let Some(limit) = self.deployment.spec.revision_history_limit else { return Ok(()) };
        let limit = usize::try_from(limit).unwrap_or_default();
        let is_alive =
            |set: &&ReplicaSet| !self.is_new(set) && set.metadata.deletion_timestamp.is_none();
        let mut old: Vec<&ReplicaSet> = self.sets.iter().filter(is_alive).collect();
        old.sort_by_key(|set| number(set, REVISION).unwrap_or(0));
        let n = old.len().saturating_sub(limit);
        let mut deleted = Vec::new();
        for set in old.into_iter().take(n) {
            let size = set.size();
            if size.wanted != 0 || size.existing != 0 || !size.is_observed {
                continue;
            }
            let mut params = precondition(set.uid());
            if let Some(preconditions) = &mut params.preconditions {
                preconditions.resource_version.clone_from(&set.metadata.resource_version);
            }
            self.client.api::<ReplicaSet>().delete(&set.key(), &params).await?;
            deleted.push(set.uid().to_owned());
        }
        self.sets.retain(|set| !deleted.iter().any(|uid| uid == set.uid()));
        Ok(())
    }

    /// Writes the status and the revision if they differ.
    pub(super) async fn write_status(&self) -> Result<(), ClientError> {
        let annotations = self.deployment.metadata.annotations.as_ref();
        let before = annotations.and_then(|annotations| annotations.get(REVISION));
        let revision = self.revision.as_ref().filter(|revision| before != Some(revision));
        if self.status == self.deployment.status && revision.is_none() {
            return Ok(());
        }
        // The list of conditions is replaced: one that another client adds meanwhile must stay.
        let meta = &self.deployment.metadata;
        let mut patch = json!({
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": self.status.body(),
        });
        if let Some(revision) = revision {
            patch["metadata"]["annotations"] = json!({REVISION: revision});
        }
        let namespace = self.deployment.metadata.namespace.as_deref().unwrap_or_default();
        let key = Request::new(namespace, self.deployment.name());
        let deployments = self.client.api::<Deployment>();
        ignore_not_found(deployments.patch_status(&key, &Patch::Merge(patch)).await).map(drop)
    }
}

impl ReplicaSet {
    fn key(&self) -> Request {
        Request::new(self.metadata.namespace.as_deref().unwrap_or_default(), self.name())
    }

    /// Sorts the oldest first.
    fn age(&self) -> (i64, &str) {
        let created = self.metadata.creation_timestamp.as_ref();
        (created.map_or(0, |time| time.0.as_second()), self.name())
    }

    pub(super) fn size(&self) -> Size {
        Size {
            wanted: self.spec.replicas(),
            existing: self.status.replicas,
            available: self.status.available_replicas,
            is_observed: self.status.observed_generation
                >= self.metadata.generation.unwrap_or_default(),
        }
    }
}

/// The name of a ReplicaSet: the Deployment's, shortened if necessary, and the hash.
fn set_name(deployment: &str, hash: &str) -> String {
    let max = NAME_CHARS_MAX - 1 - hash.len();
    // Names are ASCII.
    format!("{}-{hash}", deployment.get(..deployment.len().min(max)).unwrap_or(deployment))
}
