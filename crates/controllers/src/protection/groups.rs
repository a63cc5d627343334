//! Protection of PodGroups. The rules are those of kube-controller-manager's
//! `podgroup-protection-controller`, which looks for pods in its cache only.

use super::finalizer::{being_deleted, others};
use super::waiting::{Pass, Protected, Waiting};
use crate::api::{Api, RequestError, ignore_not_found};
use crate::boxed::Boxed;
use crate::setup::Setup;
use crate::workload::view::view;
use k8s_openapi::api::core::v1 as core;
use kube_core::metadata::PartialObjectMeta;
use kube_core::{ApiResource, DynamicObject};
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_informer::{Event, Object};
use setpoint_object::meta::ObjectExt;
use setpoint_object::pod_phase;
use setpoint_runtime::{BoxError, Controller, Manager, Watch};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The controller's name.
const NAME: &str = "podgroup-protection-controller";
/// The finalizer of groups.
const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";
const GROUP: &str = "scheduling.k8s.io";

view! {
    /// A pod.
    Pod of core::Pod {
        /// The desired state.
        spec: PodSpec,
        /// The observed state.
        status: PodStatus,
    }
}

/// `spec` of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    scheduling_group: Option<SchedulingGroup>,
}

/// The group that a pod belongs to.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SchedulingGroup {
    pod_group_name: Option<String>,
}

/// `status` of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodStatus {
    phase: String,
}

impl Pod {
    /// The group that it uses: none if it has ended.
    fn group_in_use(self) -> Option<String> {
        let has_ended = pod_phase::is_terminal(&self.status.phase);
        self.spec.scheduling_group.filter(|_| !has_ended)?.pod_group_name
    }
}

/// The controller that protects PodGroups. It does nothing until a manager runs it.
#[derive(Debug)]
#[must_use]
pub struct GroupProtection {
    setup: Setup,
}

impl GroupProtection {
    /// The version of PodGroups that it reads and writes.
    pub const VERSION: &str = "v1alpha2";

    /// Creates a controller that starts from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Adds it to a manager of [`Setup::manager`], which runs it; [`Setup::run`] makes one.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let waiting = Arc::new(Waiting::default());
        let pass = Pass { api: self.setup.api(NAME), waiting: waiting.clone(), protected: Groups };
        let resource = ApiResource {
            group: GROUP.to_owned(),
            version: Self::VERSION.to_owned(),
            api_version: format!("{GROUP}/{}", Self::VERSION),
            kind: "PodGroup".to_owned(),
            plural: "podgroups".to_owned(),
        };
        let pods = waiting.clone();
        let controller = Controller::builder(NAME)
            .maps(
                Watch::<DynamicObject>::metadata_dynamic(resource).filter(being_deleted(FINALIZER)),
                move |group: &Object<PartialObjectMeta<DynamicObject>>| waiting.add(group),
            )
            .watches(Watch::<Pod>::new(), move |event: &Event<_>| {
                pods.request(event, frees_a_group)
            })
            .sync_timeout(None)
            .build(Boxed(pass))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// Whether a pod has ended, or is gone.
fn frees_a_group(event: &Event<Pod>) -> bool {
    match event {
        Event::Deleted { .. } => true,
        Event::Updated { old, new, .. } if old.uid() != new.uid() => true,
        event => {
            let pod = event.object().and_then(|pod| pod.get().ok());
            pod.is_none_or(|pod| Pod::clone(&pod).group_in_use().is_none())
        }
    }
}

struct Groups;

impl Protected for Groups {
    type Pod = Pod;
    /// Their names.
    type InUse = BTreeSet<String>;

    fn path(&self, namespace: &str, name: &str) -> String {
        let version = GroupProtection::VERSION;
        format!("/apis/{GROUP}/{version}/namespaces/{namespace}/podgroups/{name}")
    }

    fn add(&self, in_use: &mut BTreeSet<String>, pod: Value) -> Result<bool, serde_json::Error> {
        let group = serde_json::from_value::<Pod>(pod)?.group_in_use();
        let is_member = group.is_some();
        in_use.extend(group);
        Ok(is_member)
    }

    fn is_in_use(&self, in_use: &BTreeSet<String>, group: &Value) -> bool {
        in_use.contains(group.name())
    }

    /// Not a patch: the original's role has no right to patch groups.
    async fn release(&self, api: &Api, path: &str, mut group: Value) -> Result<(), RequestError> {
        let Some(others) = others(&group, FINALIZER) else { return Ok(()) };
        let others = json!(others);
        group.set_meta("finalizers", others);
        ignore_not_found(api.put(path, &group).await).map(drop)
    }
}
