//! Evicts pods from devices with taints of effect `NoExecute`.
//!
//! # Theory
//!
//! Devices have taints from ResourceSlices and, if that is turned on, from DeviceTaintRules. A pod
//! leaves when the toleration of one of its devices ends, the shortest one first; without a
//! toleration at once. Tolerations are in the allocations of the claims that the pod uses and that
//! are reserved for it.
//!
//! | key | comes from | a pass |
//! |---|---|---|
//! | pod | changes of the pod, of its claims, and the passes below | plans when it leaves, or evicts it: condition `DisruptionTarget`, event, deletion |
//! | pool | changes of tainted slices | adds the pods of the pool's devices |
//! | rule | changes of the rule | writes its status, then adds the pods of the devices that it selects, or selected |
//! | status | evictions by the rule, with a delay | writes the rule's status |
//!
//! The taints that evict are in memory (`taints.rs`): a pod's pass costs as much as it has devices,
//! however many slices there are. Slices of older generations do not count. While there are no such
//! taints, changes of pods and claims are no keys: whatever is tainted later finds them.
//!
//! The rules and texts are those of kube-controller-manager's `device-taint-eviction-controller`.

mod status;
mod taints;

use super::COMPONENT;
use super::pod_control::{DISRUPTION_TARGET, condition_patch, precondition};
use super::resource_claim::{Claim, Named, Pod, has_claims};
use super::view::view;
use crate::setup::Setup;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as resource;
use kube_core::params::Patch;
use kube_core::{ApiResource, DynamicObject};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_informer::{Event, Object};
use setpoint_object::skim;
use setpoint_object::taint::Taint;
use setpoint_object::time::Timestamp;
use setpoint_runtime::client::{ClientError, ignore_not_found};
use setpoint_runtime::source::{Enqueue, KeySink, SourceRun, source_fn};
use setpoint_runtime::{
    Action, BoxError, Client, Context, Controller, Manager, ObjectReference, Reconciler, Request,
    Watch,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use taints::{Allocated, NO_EXECUTE, Rule, RuleId, SliceTaints, Taints, pool_key};

/// The controller's name, and the field manager of the status of rules.
const NAME: &str = "device-taint-eviction-controller";
/// Number of keys that are processed at the same time: 8, as in kube-controller-manager.
const WORKERS: usize = 8;
/// The index of allocated claims by the devices that they have: by nothing, by driver, and by
/// driver and pool.
const BY_DEVICE: &str = "devices-of-claim";
/// The shortest time between two writes of a rule's status: 10 s, as in kube-controller-manager.
const STATUS_PERIOD: Duration = Duration::from_secs(10);
/// Objects that are read in one go; other tasks run in between.
const READ_OBJECTS: usize = 64;
/// The reason of events.
const EVENT: &str = "DeviceTaintManagerEviction";

view! {
    /// A ResourceSlice.
    Slice of resource::ResourceSlice {
        /// The devices.
        spec: SliceSpec,
    }
}

/// `spec` of a slice.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SliceSpec {
    driver: String,
    pool: SlicePool,
    devices: Vec<Device>,
}

/// The pool of a slice.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SlicePool {
    name: String,
    generation: i64,
}

/// A device of a slice.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Device {
    name: String,
    taints: Vec<Taint>,
}

impl SliceSpec {
    /// The key of its pool.
    fn key(&self) -> String {
        pool_key(&self.driver, &self.pool.name)
    }

    fn taints(&self) -> SliceTaints {
        let evicting = |device: &Device| {
            let taints = device.taints.iter().filter(|taint| taint.effect == NO_EXECUTE);
            let taints: Vec<Taint> = taints.cloned().collect();
            (!taints.is_empty()).then(|| (Arc::from(&*device.name), taints))
        };
        SliceTaints {
            pool: self.key().into(),
            generation: self.pool.generation,
            tainted: self.devices.iter().filter_map(evicting).collect(),
        }
    }
}

/// DeviceTaintRules in the version that kube-controller-manager reads.
fn rules() -> ApiResource {
    ApiResource {
        group: "resource.k8s.io".to_owned(),
        version: "v1beta2".to_owned(),
        api_version: "resource.k8s.io/v1beta2".to_owned(),
        kind: "DeviceTaintRule".to_owned(),
        plural: "devicetaintrules".to_owned(),
    }
}

/// A piece of work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Work {
    /// A pod that may have to leave.
    Pod(Request),
    /// A pool whose taints have changed, by its key.
    Pool(Arc<str>),
    /// A rule that has changed.
    Rule(Arc<str>),
    /// A rule whose status may be out of date.
    Status(Arc<str>),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) => write!(f, "pod {key}"),
            Self::Pool(pool) => write!(f, "pool {pool}"),
            Self::Rule(rule) => write!(f, "rule {rule}"),
            Self::Status(rule) => write!(f, "status of rule {rule}"),
        }
    }
}

/// The controller of evictions from tainted devices.
#[derive(Clone, Debug)]
#[must_use]
pub struct DeviceTaintEviction {
    has_rules: bool,
}

impl DeviceTaintEviction {
    /// Creates a controller. Whether it heeds DeviceTaintRules is `setup`'s
    /// [`device_taint_rules`](Setup::device_taint_rules).
    pub fn new(setup: Setup) -> Self {
        Self { has_rules: setup.has_device_taint_rules() }
    }

    /// Adds it to a manager, which runs it.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let shared = Arc::new(Shared::default());
        let of = || shared.clone();
        let (on_pod, on_claim, on_slice, on_rule, sink) = (of(), of(), of(), of(), of());
        let claims = Watch::<Claim>::new().index(BY_DEVICE, index_values);
        let controller = Controller::<Work>::builder_of(NAME)
            .handles(Watch::<Pod>::new(), move |event: &Event<Pod>, keys: &Enqueue<'_, Work>| {
                if on_pod.is_concerned(event) {
                    keys.add(Work::Pod(event.key().clone()));
                }
            })
            .handles(claims, move |event: &Event<Claim>, keys: &Enqueue<'_, Work>| {
                if on_claim.is_idle() {
                    return;
                }
                let old = match event {
                    Event::Updated { old, .. } => old.get().ok(),
                    _ => None,
                };
                let new = event.object().and_then(|claim| claim.get().ok());
                let pods = old.iter().chain(&new).flat_map(|claim| consumers(claim));
                pods.for_each(|pod| keys.add(Work::Pod(pod)));
            })
            .handles(
                Watch::<Slice>::new(),
                move |event: &Event<Slice>, keys: &Enqueue<'_, Work>| {
                    let slice = match event {
                        Event::Deleted { .. } => None,
                        event => event.object().and_then(|slice| slice.get().ok()),
                    };
                    let slice = slice.map(|slice| slice.spec.taints());
                    let pools = on_slice.taints.lock().put_slice(&event.key().name, slice);
                    pools.into_iter().for_each(|pool| keys.add(Work::Pool(pool)));
                },
            )
            .source(source_fn("evictions", async move |keys: KeySink<Work>| {
                // Controllers start once.
                _ = sink.keys.set(keys);
                Ok(SourceRun::none())
            }))
            .concurrency(WORKERS)
            .sync_timeout(None);
        let controller = match self.has_rules {
            false => controller,
            true => controller.handles(
                Watch::<DynamicObject>::dynamic(rules()).cluster_scoped(),
                move |event: &Event<DynamicObject>, keys: &Enqueue<'_, Work>| {
                    let name = &event.key().name;
                    let read = |rule: &Object<DynamicObject>| Some(Rule::read(&*rule.get().ok()?));
                    let rule = match event {
                        Event::Deleted { .. } => None,
                        event => event.object().and_then(read),
                    };
                    // Most changes are of the status.
                    let is_same = match event {
                        Event::Updated { old, .. } => read(old) == rule,
                        _ => false,
                    };
                    on_rule.taints.lock().put_rule(name, rule);
                    if !is_same {
                        keys.add(Work::Rule(name.clone()));
                    }
                },
            ),
        };
        manager.add(controller.build(Passes(Pass { shared }))?)?;
        Ok(())
    }
}

/// The values of the index of claims.
fn index_values(claim: &Claim) -> Vec<String> {
    let devices = Allocated::all(&claim.status.allocation);
    if devices.is_empty() {
        return Vec::new();
    }
    let mut values = BTreeSet::from([String::new()]);
    for device in devices {
        values.insert(pool_key(&device.driver, &device.pool));
        values.insert(device.driver);
    }
    values.into_iter().collect()
}

/// The pods that a claim is reserved for.
fn consumers(claim: &Claim) -> Vec<Request> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let all = claim.status.reserved_for.iter();
    let pods = all.filter(|consumer| {
        let group = consumer["apiGroup"].as_str();
        consumer["resource"] == "pods" && group.is_none_or(str::is_empty)
    });
    pods.filter_map(|pod| Some(Request::new(namespace, pod["name"].as_str()?))).collect()
}

/// What the handlers and the passes know.
#[derive(Debug, Default)]
struct Shared {
    taints: Mutex<Taints>,
    /// The pods that will leave if nothing changes.
    planned: Mutex<BTreeMap<Request, Plan>>,
    /// How many pods each rule has evicted since the controller started.
    evicted: Mutex<BTreeMap<Arc<RuleId>, u64>>,
    keys: OnceLock<KeySink<Work>>,
}

/// Why a pod will leave.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    at: Timestamp,
    rules: BTreeSet<Arc<RuleId>>,
}

impl Shared {
    /// Whether no taint evicts, and no pod is to leave.
    fn is_idle(&self) -> bool {
        self.taints.lock().is_empty() && self.planned.lock().is_empty()
    }

    fn is_concerned(&self, event: &Event<Pod>) -> bool {
        if self.is_idle() || !event.object().is_none_or(has_claims) {
            return false;
        }
        let is_planned = || self.planned.lock().contains_key(event.key());
        match event {
            Event::Deleted { .. } => is_planned(),
            // Pods change often; their claims and their node do not.
            Event::Updated { old, new } => {
                old.uid() != new.uid() || !uses_same(old, new) || is_planned()
            }
            _ => true,
        }
    }

    fn add(&self, work: Work) {
        if let Some(keys) = self.keys.get() {
            keys.add(work);
        }
    }

    fn add_after(&self, work: Work, delay: Duration) {
        if let Some(keys) = self.keys.get() {
            keys.add_after(work, delay);
        }
    }

    /// Has the status of rules written after a while: more may change until then, and the caches
    /// show what has changed.
    fn write_later(&self, rules: &BTreeSet<Arc<RuleId>>) {
        for rule in rules {
            self.add_after(Work::Status(rule.name.clone()), STATUS_PERIOD);
        }
    }

    fn plan(&self, pod: &Request, plan: &Plan) {
        let before = self.planned.lock().insert(pod.clone(), plan.clone());
        if before.as_ref() != Some(plan) {
            self.write_later(&plan.rules);
        }
    }

    /// A pod does not leave, or has left. Returns whether it was to leave.
    fn forget(&self, pod: &Request) -> bool {
        let plan = self.planned.lock().remove(pod);
        if let Some(plan) = &plan {
            self.write_later(&plan.rules);
        }
        plan.is_some()
    }
}

/// Whether two versions of a pod have the same node and claims. Decodes nothing.
fn uses_same(old: &Object<Pod>, new: &Object<Pod>) -> bool {
    let (Some(old), Some(new)) = (old.json(), new.json()) else { return false };
    [["spec", "nodeName"], ["status", "resourceClaimStatuses"]]
        .map(|path| path.map(str::to_owned))
        .iter()
        .all(|path| skim::value_at(&old, path) == skim::value_at(&new, path))
}

/// Runs passes. Each is boxed, so that a worker that waits for work is small.
struct Passes(Pass);

impl Reconciler<Work> for Passes {
    type Error = BoxError;

    async fn reconcile(&self, work: Work, context: Context) -> Result<Action, BoxError> {
        Box::pin(self.0.pass(&work, &context)).await
    }
}

struct Pass {
    shared: Arc<Shared>,
}

impl Pass {
    async fn pass(&self, work: &Work, context: &Context) -> Result<Action, BoxError> {
        match work {
            Work::Pod(key) => return self.pod(key, context).await,
            Work::Pool(pool) => self.add_pods(context.client(), pool, |_| true).await?,
            Work::Rule(name) => self.rule(name, context).await?,
            Work::Status(name) => {
                if let Some(left) = self.status(name, context).await? {
                    return Ok(Action::requeue_after(left));
                }
            }
        }
        Ok(Action::await_change())
    }

    async fn pod(&self, key: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client();
        let pod = client.api::<Pod>().get(key)?;
        let Some(pod) = pod.filter(|pod| !pod.is_being_deleted()) else {
            self.shared.forget(key);
            return Ok(Action::await_change());
        };
        let Some(plan) = self.leaves(client, &pod)? else {
            if self.shared.forget(key) {
                context.recorder().normal(&reference(key, pod.uid()), EVENT, "Cancelling deletion");
            }
            return Ok(Action::await_change());
        };
        self.shared.plan(key, &plan);
        let left = plan.at.since(context.clock().now());
        if !left.is_zero() {
            return Ok(Action::requeue_after(left));
        }
        if evict(key, pod.uid(), context).await? {
            let mut evicted = self.shared.evicted.lock();
            for rule in &plan.rules {
                *evicted.entry(rule.clone()).or_default() += 1;
            }
        }
        // It stays planned until the cache shows its end: the status of the rules, which counts by
        // the cache, is written after that.
        Ok(Action::await_change())
    }

    /// When a pod leaves, and which rules are among the reasons; `None`: it stays.
    fn leaves(&self, client: &Client, pod: &Pod) -> Result<Option<Plan>, ClientError> {
        if pod.node_name().is_empty() {
            return Ok(None);
        }
        let mut plan: Option<Plan> = None;
        for claim in used(client, pod)? {
            for device in Allocated::all(&claim.status.allocation) {
                let taints = self.shared.taints.lock().of(&device);
                for (taint, rule) in taints {
                    let Some(at) = device.leaves_at(&taint) else { continue };
                    let plan = plan.get_or_insert_with(|| Plan { at, rules: BTreeSet::new() });
                    plan.at = plan.at.min(at);
                    plan.rules.extend(rule);
                }
            }
        }
        Ok(plan)
    }

    /// Adds the pods that claims are reserved for, of the claims under a value of the index that
    /// have a device of interest.
    async fn add_pods(
        &self,
        client: &Client,
        index_value: &str,
        concerns: impl Fn(&Allocated) -> bool + Send,
    ) -> Result<(), BoxError> {
        let claims = client.api::<Claim>().lister()?.objects_by_index(BY_DEVICE, index_value)?;
        for some in claims.chunks(READ_OBJECTS) {
            for claim in some {
                let claim = claim.get()?;
                if Allocated::all(&claim.status.allocation).iter().any(&concerns) {
                    let pods = consumers(&claim).into_iter();
                    pods.for_each(|pod| self.shared.add(Work::Pod(pod)));
                }
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn rule(&self, name: &Arc<str>, context: &Context) -> Result<(), BoxError> {
        let client = context.client();
        // Its users see what will happen before it happens.
        let written = Box::pin(self.status(name, context)).await;
        let is_its =
            |(_, plan): &(&Request, &Plan)| plan.rules.iter().any(|rule| rule.name == *name);
        let planned: Vec<Request> = {
            let planned = self.shared.planned.lock();
            planned.iter().filter(is_its).map(|(pod, _)| pod.clone()).collect()
        };
        planned.into_iter().for_each(|pod| self.shared.add(Work::Pod(pod)));
        let rule = self.shared.taints.lock().rule(name).cloned();
        if let Some(rule) = rule {
            self.add_pods(client, &rule.index_value(), |device| rule.selects(device)).await?;
        }
        if let Some(left) = written? {
            self.shared.add_after(Work::Status(name.clone()), left);
        }
        Ok(())
    }
}

/// The claims that a pod uses and that are reserved for it.
fn used(client: &Client, pod: &Pod) -> Result<Vec<Arc<Claim>>, ClientError> {
    let claims = client.api::<Claim>();
    let mut used = Vec::new();
    for named in pod.named_claims() {
        let (Named::ByUser(name) | Named::Generated(name)) = named else { continue };
        let found = claims.get(&Request::new(pod.namespace(), name))?;
        used.extend(found.filter(|claim| {
            let is_own = matches!(named, Named::ByUser(_)) || claim.is_for(pod);
            is_own && claim.is_reserved_for(pod)
        }));
    }
    Ok(used)
}

/// A reference to a pod for events.
fn reference(key: &Request, uid: &str) -> ObjectReference {
    let mut reference = ObjectReference::default();
    reference.api_version = "v1".to_owned();
    reference.kind = "Pod".to_owned();
    reference.namespace = key.namespace.to_string();
    reference.name = key.name.to_string();
    reference.uid = uid.to_owned();
    reference
}

/// Evicts the pod of a uid. Returns whether it was there.
async fn evict(key: &Request, uid: &str, context: &Context) -> Result<bool, BoxError> {
    let api = context.client().field_manager(COMPONENT).api::<core::Pod>();
    let Some(pod) = api.get_live(key).await? else { return Ok(false) };
    let is_it = pod.metadata.uid.as_deref() == Some(uid);
    if !is_it || pod.metadata.deletion_timestamp.is_some() {
        return Ok(false);
    }
    context.recorder().normal(&reference(key, uid), EVENT, "Marking for deletion");
    if let Some(condition) = disruption_target(&pod, context.clock().now()) {
        let status = pod.status.iter();
        let held = status.flat_map(|status| status.conditions.iter().flatten());
        let status = condition_patch(held.map(|condition| &*condition.type_), condition);
        let patch = json!({"metadata": {"uid": uid}, "status": status});
        // A conflict does not say whether another pod has the name: the pass is repeated.
        let patch = Patch::Strategic(patch);
        let noted = api.subresource::<Value>("status").patch(key, &patch).await;
        if ignore_not_found(noted)?.is_none() {
            return Ok(false);
        }
    }
    Ok(ignore_not_found(api.delete(key, &precondition(uid)).await)?.is_some())
}

/// The condition that says why a pod leaves; `None` if it has it.
fn disruption_target(pod: &core::Pod, now: Timestamp) -> Option<Value> {
    const REASON: &str = "DeletionByDeviceTaintManager";
    const MESSAGE: &str = "Device Taint manager: deleting due to NoExecute taint";
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let held = conditions.find(|condition| condition.type_ == DISRUPTION_TARGET);
    let was_true = held.is_some_and(|held| held.status == "True");
    let is_same = held.is_some_and(|held| {
        held.reason.as_deref() == Some(REASON) && held.message.as_deref() == Some(MESSAGE)
    });
    if was_true && is_same {
        return None;
    }
    let mut condition = json!({
        "type": DISRUPTION_TARGET, "status": "True", "reason": REASON, "message": MESSAGE,
    });
    if !was_true {
        condition["lastTransitionTime"] = now.rfc3339().into();
    }
    Some(condition)
}
