//! Protection of PodGroups: a group that is being deleted remains while a pod of it runs.
//!
//! Admission adds the finalizer `scheduling.k8s.io/podgroup-protection` to every new PodGroup. It
//! is removed when no pod names the group in `spec.schedulingGroup` but those that have ended.
//! Groups are reconciled by namespace, as claims are ([`protection`](crate::protection)): the
//! deletion of a group and the end of a pod both enqueue their namespace, and one pass lists its
//! pods once, from the server. The rules are those of kube-controller-manager's
//! `podgroup-protection-controller`, which looks for pods in its cache only.

use crate::api::{Api, RequestError, ignore_not_found};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::first_error::FirstError;
use crate::protection::{Waiting, being_deleted};
use crate::setup::Setup;
use crate::workload::view::view;
use k8s_openapi::api::core::v1 as core;
use kube_core::metadata::PartialObjectMeta;
use kube_core::{ApiResource, DynamicObject};
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_informer::{Event, Object};
use setpoint_object::meta::ObjectExt;
use setpoint_runtime::{Action, BoxError, Context, Controller, Manager, Request, Watch};
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
        /// What is wanted.
        spec: PodSpec,
        /// What is.
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
    /// The group that it keeps: none if it has ended.
    fn kept_group(self) -> Option<String> {
        let has_ended = matches!(&*self.status.phase, "Succeeded" | "Failed");
        self.spec.scheduling_group.filter(|_| !has_ended)?.pod_group_name
    }
}

/// The controller that protects PodGroups. It does nothing until a manager runs it.
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
        let pass = Pass { api: self.setup.api(NAME), waiting: waiting.clone() };
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
                move |group: &Object<PartialObjectMeta<DynamicObject>>| {
                    let key = group.key();
                    waiting.add(&key.namespace, &key.name);
                    vec![Request::cluster(key.namespace.clone())]
                },
            )
            .watches(Watch::<Pod>::new(), move |event: &Event<Pod>| {
                let namespace = &event.key().namespace;
                let is_relevant = pods.has_any(namespace) && frees_a_group(event);
                is_relevant.then(|| Request::cluster(namespace.clone())).into_iter().collect()
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
            pod.is_none_or(|pod| Pod::clone(&pod).kept_group().is_none())
        }
    }
}

/// Reconciles the groups of one namespace, which is the request's name.
struct Pass {
    api: Api,
    waiting: Arc<Waiting>,
}

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let namespace = &*request.name;
        let waiting = self.waiting.of(namespace);
        if waiting.is_empty() {
            return Ok(Action::await_change());
        }
        let used = self.used(namespace).await?;
        // A group that cannot be released does not keep the others.
        let mut errors = FirstError::new();
        for name in waiting {
            errors.note(self.one(namespace, &name, used.groups.contains(&*name)).await);
        }
        errors.into_result()?;
        if !self.waiting.has_any(namespace) {
            return Ok(Action::await_change());
        }
        // The end of a pod that the cache does not show yet may cause no event: a cache that lists
        // again has never seen it.
        let cache = context.client().api::<Pod>();
        for (name, uid) in &used.pods {
            let shown = cache.get(&Request::new(namespace, &**name))?;
            if shown.is_none_or(|shown| shown.metadata.uid.as_ref() != Some(uid)) {
                return Ok(Action::requeue());
            }
        }
        Ok(Action::await_change())
    }
}

/// The groups that the pods of a namespace keep.
#[derive(Debug, Default)]
struct Used {
    /// The names and uids of these pods.
    pods: Vec<(String, String)>,
    groups: BTreeSet<String>,
}

impl Pass {
    async fn used(&self, namespace: &str) -> Result<Used, BoxError> {
        let (mut used, mut failed) = (Used::default(), None);
        let take = |object: Value| {
            let (name, uid) = (object.name().to_owned(), object.uid().to_owned());
            match serde_json::from_value::<Pod>(object).map(Pod::kept_group) {
                Ok(None) => {}
                Ok(Some(group)) => {
                    used.pods.push((name, uid));
                    used.groups.insert(group);
                }
                Err(error) => failed = Some(error),
            }
        };
        self.api.list_pages(&format!("/api/v1/namespaces/{namespace}/pods"), take).await?;
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(used),
        }
    }

    /// Releases a waiting group that no pod keeps.
    async fn one(&self, namespace: &str, name: &str, is_used: bool) -> Result<(), RequestError> {
        let version = GroupProtection::VERSION;
        let path = format!("/apis/{GROUP}/{version}/namespaces/{namespace}/podgroups/{name}");
        let mut group = match self.api.get(&path).await {
            Err(error) if error.is_not_found() => {
                self.waiting.remove(namespace, name);
                return Ok(());
            }
            group => group?,
        };
        if is_used {
            return Ok(());
        }
        let finalizers = group.finalizers();
        if !group.deletion_timestamp().is_empty() && finalizers.contains(&FINALIZER) {
            let others: Vec<_> =
                finalizers.into_iter().filter(|found| *found != FINALIZER).collect();
            let others = json!(others);
            group.set_meta("finalizers", others);
            // Not a patch: the original's role has no right to patch groups.
            ignore_not_found(self.api.put(&path, &group).await)?;
        }
        self.waiting.remove(namespace, name);
        Ok(())
    }
}
