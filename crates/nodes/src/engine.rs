//! Moves objects from stage to stage.
//!
//! # Theory
//!
//! A pass over an object finds the stage that it matches. If it matched that stage before, the
//! stage is due when its delay has passed since; otherwise the delay begins now. A stage that is
//! due is carried out. What it writes makes a new version of the object, and so another pass. A
//! stage without a delay that changes nothing is not repeated before the object changes. A stage
//! that fails stays due: its delay does not begin again.

use crate::kubelet::resize::{self, Resize};
use crate::kubelet::{self, Plan, PodEvent, Surroundings, is_over, text};
use crate::stage::{Action as PodAction, Next, Scope, Stage, choose};
use crate::world::World;
use kube_core::params::{DeleteParams, Patch, Preconditions};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use serde_json::{Map, Value, json};
use setpoint_informer::{Cacheable, Object};
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;
use setpoint_runtime::client::{Api, ClientError};
use setpoint_runtime::events::EventType;
use setpoint_runtime::{
    Action, BoxError, Context, EventRecorder, ObjectReference, Reconciler, Request,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The name in `managedFields`.
pub(crate) const FIELD_MANAGER: &str = "kubelet";

/// The stages of one kind, and the objects that wait in them.
pub(crate) struct Engine<K: Cacheable> {
    pub(crate) stages: Vec<Stage>,
    pub(crate) dynamic_type: K::DynamicType,
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) world: Arc<World>,
    pub(crate) recorder: EventRecorder,
    pub(crate) waiting: Mutex<BTreeMap<Request, Waiting>>,
    pub(crate) rng: Mutex<SmallRng>,
}

/// An object that waits in a stage.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    uid: String,
    stage: usize,
    due: Timestamp,
}

impl<K: Cacheable> Reconciler for Engine<K>
where
    K::DynamicType: Clone + Send + Sync,
{
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        // Boxed, so that a worker that waits for work is small.
        Box::pin(self.pass(&request, &context)).await
    }
}

impl<K: Cacheable> Engine<K>
where
    K::DynamicType: Clone + Send + Sync,
{
    async fn pass(&self, key: &Request, context: &Context) -> Result<Action, BoxError> {
        let api =
            context.client().api_with::<K>(self.dynamic_type.clone()).field_manager(FIELD_MANAGER);
        let object = api.lister_of(&key.namespace)?.object(key).and_then(|object| value(&object));
        let Some(object) = object.filter(|object| self.is_ours(object)) else {
            self.waiting.lock().remove(key);
            return Ok(Action::await_change());
        };
        let now = context.clock().now();
        let Some(waiting) = self.stage_of(key, &object, now) else {
            return Ok(Action::await_change());
        };
        if waiting.due > now {
            return Ok(Action::requeue_after(waiting.due.since(now)));
        }
        let stage = &self.stages[waiting.stage];
        let pass = Pass { engine: self, api: &api, key, object: &object, now };
        let again = match stage.next.action {
            Some(PodAction::RunPod) => pass.run_pod().await?,
            Some(PodAction::StopPod) => pass.stop_pod().await?,
            None => None,
        };
        let has_changed = pass.carry_out(&stage.next).await?;
        self.waiting.lock().remove(key);
        Ok(match again {
            Some(due) => Action::requeue_after(due.since(now).max(Duration::from_millis(1))),
            // The new version makes a pass. Without one, a stage with a delay begins again.
            None if has_changed || stage.next.action.is_some() => Action::await_change(),
            None => match stage.delay(&object, now, &mut *self.rng.lock()) {
                Duration::ZERO => Action::await_change(),
                delay => Action::requeue_after(delay),
            },
        })
    }

    fn is_ours(&self, object: &Value) -> bool {
        match self.kind.as_str() {
            "Node" => self.world.has_node(object.name()),
            "Pod" => self.world.has_node(text(&object["spec"]["nodeName"])),
            _ => true,
        }
    }

    /// The stage of an object and when it is due.
    fn stage_of(&self, key: &Request, object: &Value, now: Timestamp) -> Option<Waiting> {
        let earlier = self.waiting.lock().get(key).cloned();
        let still = earlier.filter(|earlier| {
            earlier.uid == object.uid() && self.stages[earlier.stage].matches(object)
        });
        if still.is_some() {
            return still;
        }
        let mut rng = self.rng.lock();
        let Some(stage) = choose(&self.stages, object, &mut *rng) else {
            self.waiting.lock().remove(key);
            return None;
        };
        let due = now + self.stages[stage].delay(object, now, &mut *rng);
        drop(rng);
        let waiting = Waiting { uid: object.uid().to_owned(), stage, due };
        self.waiting.lock().insert(key.clone(), waiting.clone());
        Some(waiting)
    }
}

/// One stage of one object.
struct Pass<'a, K: Cacheable> {
    engine: &'a Engine<K>,
    api: &'a Api<K>,
    key: &'a Request,
    object: &'a Value,
    now: Timestamp,
}

impl<K: Cacheable> Pass<'_, K>
where
    K::DynamicType: Send + Sync,
{
    fn surroundings(&self) -> Surroundings {
        let (world, node) = (&self.engine.world, text(&self.object["spec"]["nodeName"]));
        Surroundings {
            now: self.now,
            host_ips: world.host_ips(node),
            pod_ips: match self.object["spec"]["hostNetwork"] == true {
                true => Vec::new(),
                false => world.pod_ips(self.key, self.object.uid()),
            },
            rejection: match self.object["status"]["startTime"].is_null() {
                true => world.admit(self.key, self.object.uid()).err(),
                false => None,
            },
            resize: match resize::wanted(self.object) {
                Some(wanted) => world.resize(self.key, self.object.uid(), wanted),
                None => Resize::None,
            },
        }
    }

    /// Returns when the pod moves next by itself.
    async fn run_pod(&self) -> Result<Option<Timestamp>, BoxError> {
        let plan = kubelet::run(self.object, &self.surroundings());
        self.write(&plan).await?;
        Ok(plan.due)
    }

    async fn stop_pod(&self) -> Result<Option<Timestamp>, BoxError> {
        let plan = kubelet::stop(self.object, &self.surroundings());
        if plan.due.is_some() {
            return Ok(plan.due);
        }
        if !self.write(&plan).await? {
            return Ok(None);
        }
        let remains = !self.object.finalizers().is_empty()
            && self.object["metadata"]["deletionGracePeriodSeconds"] == 0
            && is_over(self.object);
        if !remains {
            self.delete(Some(0)).await?;
        }
        Ok(None)
    }

    /// Writes the status of a plan, and its events if that succeeds. False if the object has been
    /// replaced or is gone.
    ///
    /// A cache may not show what was written last, so the status is written to the version that the
    /// plan was made of only. Otherwise containers would start twice.
    async fn write(&self, plan: &Plan) -> Result<bool, BoxError> {
        let version = Some(self.object.resource_version());
        if !plan.status.is_null() && !self.patch_status(plan.status.clone(), version).await? {
            return Ok(false);
        }
        for PodEvent { is_warning, reason, message, field_path } in &plan.events {
            let mut reference = self.reference();
            reference.field_path.clone_from(field_path);
            self.event(&reference, *is_warning, reason, message.clone());
        }
        Ok(true)
    }

    /// Carries out what is data. Returns whether anything was written.
    async fn carry_out(&self, next: &Next) -> Result<bool, BoxError> {
        let world = &self.engine.world;
        let variable = |name: &str| {
            let node = match self.engine.kind.as_str() {
                "Node" => self.object.name(),
                _ => text(&self.object["spec"]["nodeName"]),
            };
            Some(match name {
                "now" => self.now.rfc3339().into(),
                "node.name" => node.into(),
                "node.ip" => world.host_ips(node).into_iter().next()?.into(),
                "node.addresses" => world.node_addresses(node),
                "pod.ip" => world.pod_ips(self.key, self.object.uid()).into_iter().next()?.into(),
                _ => return None,
            })
        };
        let scope = Scope { object: self.object, item: None, variable: &variable };
        let mut has_changed = false;
        let mut patch = next.patch.as_ref().map(|patch| patch.fill(&scope));
        if let Some(finalizers) = next.finalizers(self.object) {
            let patch = patch.get_or_insert_with(|| Value::Object(Map::new()));
            patch["metadata"]["finalizers"] = finalizers.into();
        }
        if let Some(mut patch) = patch {
            patch["metadata"]["uid"] = self.object.uid().into();
            has_changed |= found(self.api.patch(self.key, &Patch::Merge(patch)).await)?;
        }
        if let Some(status) = &next.status {
            has_changed |= self.patch_status(status.fill(&scope), None).await?;
        }
        if let Some(event) = &next.event {
            let message = match event.message.fill(&scope) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            self.event(&self.reference(), event.is_warning, &event.reason, message);
        }
        if next.deletes {
            self.delete(None).await?;
            has_changed = true;
        }
        Ok(has_changed)
    }

    /// Patches the status, of one version if that is given; false if the object has been replaced
    /// or is gone.
    async fn patch_status(&self, status: Value, version: Option<&str>) -> Result<bool, BoxError> {
        let mut patch = json!({"metadata": {"uid": self.object.uid()}, "status": status});
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = version.into();
        }
        // Lists of conditions are merged where the server knows how: not in custom resources.
        let patch = match self.engine.api_version.contains('.') {
            true => Patch::Merge(patch),
            false => Patch::Strategic(patch),
        };
        found(self.api.subresource::<Value>("status").patch(self.key, &patch).await)
    }

    async fn delete(&self, grace: Option<u32>) -> Result<(), BoxError> {
        let uid = Some(self.object.uid().to_owned());
        let params = DeleteParams {
            grace_period_seconds: grace,
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        found(self.api.delete(self.key, &params).await).map(drop)
    }

    fn event(&self, reference: &ObjectReference, is_warning: bool, reason: &str, message: String) {
        let event_type = if is_warning { EventType::Warning } else { EventType::Normal };
        self.engine.recorder.event(reference, event_type, reason, message);
    }

    fn reference(&self) -> ObjectReference {
        let mut reference = ObjectReference::default();
        reference.api_version.clone_from(&self.engine.api_version);
        reference.kind.clone_from(&self.engine.kind);
        reference.namespace = self.key.namespace.to_string();
        reference.name = self.key.name.to_string();
        // Events about nodes name the node as their uid, as kubelets' do.
        reference.uid = match self.engine.kind.as_str() {
            "Node" => self.key.name.to_string(),
            _ => self.object.uid().to_owned(),
        };
        reference
    }
}

/// Whether the object was still there. A conflict is an error: it does not say whether another
/// object has the name.
fn found<T>(answer: Result<T, ClientError>) -> Result<bool, BoxError> {
    match answer {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The object as a tree; `None` if it is not JSON, which no server sends.
pub(crate) fn value<K: Cacheable>(object: &Object<K>) -> Option<Value> {
    serde_json::from_slice(&object.json()?).ok()
}
