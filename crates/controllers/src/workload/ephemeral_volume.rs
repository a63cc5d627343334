//! Claims of generic ephemeral volumes: each is made from the template in its pod.
//!
//! The claim is named after the pod and the volume, and the pod is its controller, so it is
//! collected with the pod. A claim of that name that does not belong to the pod is never used: the
//! pod waits, and an event says why. The rules and the texts are those of kube-controller-manager's
//! `ephemeral-volume-controller`.

use super::view::view;
use super::{COMPONENT, fresh};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use k8s_openapi::api::core::v1 as core;
use kube_core::{ApiResource, DynamicObject};
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_informer::{Event, Object};
use setpoint_object::skim;
use setpoint_runtime::owner::{controller_of, controller_reference};
use setpoint_runtime::{
    Action, BoxError, Client, Context, Controller, Manager, ObjectReference, Predicate, Request,
    Watch,
};

/// The controller's name in events.
const NAME: &str = "ephemeral_volume";
/// Number of pods that are processed at the same time: 5, as in kube-controller-manager.
const WORKERS: usize = 5;

view! {
    /// A pod.
    Pod of core::Pod {
        /// The spec.
        spec: PodSpec,
    }
}

/// `spec` of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodSpec {
    volumes: Vec<Volume>,
}

/// A volume of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Volume {
    name: String,
    /// The source, if it is a generic ephemeral volume.
    ephemeral: Option<Ephemeral>,
}

/// A generic ephemeral volume.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ephemeral {
    /// Metadata and spec of the claim, as JSON.
    volume_claim_template: Value,
}

view! {
    /// A PersistentVolumeClaim.
    Claim of core::PersistentVolumeClaim {}
}

/// The controller that creates claims of ephemeral volumes.
#[derive(Clone, Debug)]
#[must_use]
pub struct EphemeralVolumeController(());

impl EphemeralVolumeController {
    /// Creates a controller. It has no settings: client, clock and seed are the manager's.
    pub fn new(_: Setup) -> Self {
        Self(())
    }

    /// Adds it to a manager, which runs it.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        // The volumes of a pod never change, so no update matters.
        let is_concerned = |event: &Event<Pod>| match event {
            Event::Added { object, .. } => has_ephemeral_volumes(object),
            _ => false,
        };
        let controller = Controller::builder(NAME)
            .for_(Watch::<Pod>::new().filter(Predicate::new(is_concerned)))
            .watches(Watch::<Claim>::new(), |event: &Event<Claim>| pod_of_deleted(event))
            .concurrency(WORKERS)
            .sync_timeout(None)
            .build(Boxed(Pass))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// The name of the claim of a generic ephemeral volume.
pub(crate) fn claim_name(pod: &str, volume: &str) -> String {
    format!("{pod}-{volume}")
}

/// Whether a pod has ephemeral volumes. Decodes nothing, because hardly any pod has them.
fn has_ephemeral_volumes(pod: &Object<Pod>) -> bool {
    let path = ["spec".to_owned(), "volumes".to_owned()];
    let json = pod.json();
    let volumes = json.as_deref().and_then(|json| skim::value_at(json, &path));
    volumes.is_some_and(|volumes| memchr::memmem::find(volumes, b"\"ephemeral\"").is_some())
}

/// The pod that a deleted claim belonged to: it gets another one.
fn pod_of_deleted(event: &Event<Claim>) -> Vec<Request> {
    let (Event::Deleted { .. }, Some(claim)) = (event, event.object()) else { return Vec::new() };
    let skim = claim.skim();
    let owner = skim.controller().filter(|owner| owner.kind == "Pod");
    let pod = owner.map(|owner| Request::new(event.key().namespace.clone(), &*owner.name));
    pod.into_iter().collect()
}

/// Why a volume of a pod has no claim.
#[derive(Debug, thiserror::Error)]
enum EphemeralVolumeError {
    /// The name is taken.
    #[error("PVC {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)")]
    NotOwned { namespace: String, claim: String, pod: String },
    /// It could not be created.
    #[error("create PVC {claim}: {cause}")]
    Create { claim: String, cause: String },
}

struct Pass;

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        let Some(pod) = client.api::<Pod>().get(request)? else {
            return Ok(Action::await_change());
        };
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        for volume in &pod.spec.volumes {
            let Some(ephemeral) = &volume.ephemeral else { continue };
            if let Err(error) = ensure(&client, request, &pod, volume, ephemeral).await {
                let why = super::pod_control::message(&*error);
                let note = format!("ephemeral volume {}: {why}", volume.name);
                context.recorder().warning(&ObjectReference::of(&*pod), "FailedBinding", note);
                return Err(error);
            }
        }
        Ok(Action::await_change())
    }
}

/// Creates the claim of a volume unless it exists.
async fn ensure(
    client: &Client,
    key: &Request,
    pod: &Pod,
    volume: &Volume,
    ephemeral: &Ephemeral,
) -> Result<(), BoxError> {
    let claim = claim_name(&key.name, &volume.name);
    let claim_key = Request::new(key.namespace.clone(), &*claim);
    let claims = client.api::<Claim>();
    let is_own = |found: &Claim| {
        controller_of(found).is_some_and(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref())
    };
    let not_owned = || EphemeralVolumeError::NotOwned {
        namespace: key.namespace.to_string(),
        claim: claim.clone(),
        pod: key.name.to_string(),
    };
    match claims.get(&claim_key)? {
        Some(found) if is_own(&found) => return Ok(()),
        Some(_) => return Err(not_owned().into()),
        None => {}
    }
    if !fresh::is_live(&client.api(), pod).await? {
        return Ok(());
    }
    let resource = ApiResource::erase::<core::PersistentVolumeClaim>(&());
    let template = &ephemeral.volume_claim_template;
    let metadata = json!({
        "name": claim, "namespace": &*key.namespace,
        "labels": template["metadata"]["labels"], "annotations": template["metadata"]["annotations"],
        "ownerReferences": [controller_reference(pod, &())?],
    });
    let body: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
        "spec": template["spec"],
    }))?;
    match client.api_with::<DynamicObject>(resource).create(&body).await {
        Ok(_) => Ok(()),
        // The cache was behind, or the answer to an earlier create was lost.
        Err(error) if error.is_already_exists() => match claims.get_live(&claim_key).await? {
            Some(found) if is_own(&found) => Ok(()),
            Some(_) => Err(not_owned().into()),
            None => Err(error.into()),
        },
        Err(error) => {
            let cause = super::pod_control::message(&error);
            Err(EphemeralVolumeError::Create { claim, cause }.into())
        }
    }
}
