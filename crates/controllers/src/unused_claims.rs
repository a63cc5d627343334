//! Claims that no pod uses: since when is in their condition `Unused`.
//!
//! | pods that use the claim | condition | reason |
//! |---|---|---|
//! | at least one that has not ended | `False` | `PodUsingPVC` |
//! | none | `True` | `NoPodsUsingPVC` |
//!
//! A pod uses a claim by its name, or because the claim was made for one of its generic ephemeral
//! volumes. A pod that is being deleted counts until no container of it runs. The condition's time
//! is that of the pass that noticed the change. The rules and the texts are those of
//! kube-controller-manager's `pvc-protection-controller` with the feature gate
//! `PersistentVolumeClaimUnusedSinceTime`.

use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use crate::workload::ephemeral_volume::claim_name;
use crate::workload::view::view;
use k8s_openapi::api::core::v1 as core;
use kube_core::params::Patch;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_object::pod_phase;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{Action, BoxError, Context, Controller, Manager, Request, Watch};

/// The controller's name.
const NAME: &str = "pvc-unused-since-controller";
/// The type of the condition.
const UNUSED: &str = "Unused";
/// The index of pods by the claims that they may use: `namespace/name`.
const BY_CLAIM: &str = "claim";

view! {
    /// A PersistentVolumeClaim.
    Claim of core::PersistentVolumeClaim {
        /// The observed state.
        status: ClaimStatus,
    }
}

/// `status` of a claim.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimStatus {
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

view! {
    /// A pod.
    Pod of core::Pod {
        /// The spec.
        spec: PodSpec,
        /// The observed state.
        status: PodStatus,
    }
}

/// `spec` of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodSpec {
    volumes: Vec<Volume>,
}

/// A volume: its name, and what it is if it is a claim.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    name: String,
    persistent_volume_claim: Option<NamedClaim>,
    ephemeral: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NamedClaim {
    claim_name: String,
}

/// `status` of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    phase: String,
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
    ephemeral_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    state: Value,
}

impl ContainerStatus {
    fn may_run(&self) -> bool {
        !self.state["terminated"].is_object() && !self.state["waiting"].is_object()
    }
}

impl Volume {
    /// The claim that it may be.
    fn claim(&self, pod: &str) -> Option<String> {
        match &self.persistent_volume_claim {
            Some(named) => Some(named.claim_name.clone()),
            None => self.ephemeral.map(|_| claim_name(pod, &self.name)),
        }
    }
}

impl Pod {
    /// Whether no container of it runs or will.
    fn has_ended(&self) -> bool {
        let status = &self.status;
        let mut statuses = status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses)
            .chain(&status.ephemeral_container_statuses);
        pod_phase::is_terminal(&status.phase)
            || self.is_being_deleted() && !statuses.any(ContainerStatus::may_run)
    }

    /// The claims that it may use.
    fn claims(&self) -> impl Iterator<Item = String> {
        self.spec.volumes.iter().filter_map(|volume| volume.claim(self.name()))
    }

    fn uses(&self, claim: &Claim) -> bool {
        let owner = controller_of(claim).map_or("", |owner| &*owner.uid);
        let is_it = |volume: &Volume| {
            let is_named = volume.persistent_volume_claim.is_some();
            volume.claim(self.name()).as_deref() == Some(claim.name())
                && (is_named || owner == self.uid())
        };
        !self.has_ended() && self.spec.volumes.iter().any(is_it)
    }
}

/// The controller that says since when claims are not used. It does nothing until a manager runs
/// it.
#[derive(Debug)]
#[must_use]
pub struct UnusedClaims(());

impl UnusedClaims {
    /// Creates a controller. It has no settings: client and clock are the manager's.
    pub fn new(_: Setup) -> Self {
        Self(())
    }

    /// Adds it to a manager of [`Setup::manager`], which runs it; [`Setup::run`] makes one.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let by_claim = |pod: &Pod| {
            let namespace = pod.namespace();
            pod.claims().map(|claim| format!("{namespace}/{claim}")).collect()
        };
        let controller = Controller::builder(NAME)
            .for_(Watch::<Claim>::new())
            .watches(Watch::<Pod>::new().index(BY_CLAIM, by_claim), claims_of)
            .sync_timeout(None)
            .build(Boxed(Pass))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// The claims of a pod that has changed, or is gone.
fn claims_of(event: &Event<Pod>) -> Vec<Request> {
    let Some(pod) = event.object().and_then(|pod| pod.get().ok()) else { return Vec::new() };
    let namespace = &event.key().namespace;
    pod.claims().map(|claim| Request::new(namespace.clone(), claim)).collect()
}

struct Pass;

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client();
        let claim = client.api::<Claim>().get(request)?;
        let Some(claim) = claim.filter(|claim| !claim.is_being_deleted()) else {
            return Ok(Action::await_change());
        };
        let key = format!("{}/{}", claim.namespace(), claim.name());
        let pods = client.api::<Pod>().select().index(BY_CLAIM, key).all()?;
        let is_used = pods.iter().any(|pod| pod.uses(&claim));
        let known = claim.status.conditions.iter().find(|condition| condition.kind == UNUSED);
        let is_noted = known.is_some_and(|known| (known.status == "True") != is_used);
        if is_noted {
            return Ok(Action::await_change());
        }
        let (status, reason, message) = match is_used {
            true => ("False", "PodUsingPVC", "A pod is currently referencing this PVC"),
            false => ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC"),
        };
        let condition = json!({
            "type": UNUSED, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": context.clock().now().rfc3339(),
        });
        let patch =
            json!({"metadata": {"uid": claim.uid()}, "status": {"conditions": [condition]}});
        let api = client.api::<core::PersistentVolumeClaim>();
        let noted =
            api.subresource::<Value>("status").patch(request, &Patch::Strategic(patch)).await;
        ignore_not_found(noted)?;
        Ok(Action::await_change())
    }
}
