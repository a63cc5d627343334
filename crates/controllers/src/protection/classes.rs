//! Protection of attributes classes: a VolumeAttributesClass that is being deleted remains while a
//! claim or a volume uses it.
//!
//! Admission adds the finalizer `kubernetes.io/vac-protection` to every class; a class from before
//! that gets it here. Any change of a claim or a volume enqueues the classes that are being
//! deleted, of which there are few. When the caches show no use any more, the server is asked,
//! because a cache may not yet show every claim. The rules are those of kube-controller-manager's
//! `volumeattributesclass-protection-controller`.

use super::finalizer::{protect, release};
use crate::api::Api;
use crate::boxed::{Boxed, BoxedReconciler};
use crate::readable::readable;
use crate::setup::Setup;
use crate::workload::view::view;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube_core::metadata::PartialObjectMeta;
use serde::Deserialize;
use serde_json::Value;
use setpoint_informer::Object;
use setpoint_object::meta::ObjectExt;
use setpoint_runtime::{
    Action, BoxError, Client, Context, Controller, Manager, Predicate, Request, Watch,
};

/// The controller's name.
const NAME: &str = "volumeattributesclass-protection-controller";
/// The finalizer of classes.
const FINALIZER: &str = "kubernetes.io/vac-protection";
/// The index of claims and volumes by the classes that they use.
const BY_CLASS: &str = "attributes-class";

view! {
    /// A PersistentVolumeClaim.
    Claim of core::PersistentVolumeClaim {
        /// The desired state.
        spec: Uses,
        /// The observed state.
        status: ClaimStatus,
    }
}

view! {
    /// A PersistentVolume.
    Volume of core::PersistentVolume {
        /// What it is.
        spec: Uses,
    }
}

/// The part of a spec that names a class; empty if it names none.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Uses {
    volume_attributes_class_name: String,
}

/// `status` of a claim: the class that its volume has, and the one that it is to get.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimStatus {
    current_volume_attributes_class_name: String,
    modify_volume_status: Modification,
}

/// A change of the class that is under way.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Modification {
    target_volume_attributes_class_name: String,
}

impl Claim {
    fn classes(&self) -> Vec<String> {
        let Self { spec, status, .. } = self;
        let all = [
            &spec.volume_attributes_class_name,
            &status.current_volume_attributes_class_name,
            &status.modify_volume_status.target_volume_attributes_class_name,
        ];
        all.into_iter().filter(|name| !name.is_empty()).cloned().collect()
    }
}

impl Volume {
    fn classes(&self) -> Vec<String> {
        let name = &self.spec.volume_attributes_class_name;
        if name.is_empty() { Vec::new() } else { vec![name.clone()] }
    }
}

/// The controller that protects attributes classes. It does nothing until a manager runs it.
#[derive(Debug)]
#[must_use]
pub struct AttributesClassProtection {
    setup: Setup,
}

impl AttributesClassProtection {
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
        let claims = Watch::<Claim>::new().index(BY_CLASS, Claim::classes);
        let volumes = Watch::<Volume>::new().index(BY_CLASS, Volume::classes);
        let controller = Controller::builder(NAME)
            .for_(Watch::<VolumeAttributesClass>::metadata().filter(Predicate::object(has_work)))
            .watches_with(claims, |_, client: &Client| deleted_classes(client))
            .watches_with(volumes, |_, client: &Client| deleted_classes(client))
            .sync_timeout(None)
            .build(Boxed(Pass { api: self.setup.api(NAME) }))?;
        manager.add(controller)?;
        Ok(())
    }
}

type ClassMetadata = PartialObjectMeta<VolumeAttributesClass>;

/// Whether a class is being deleted and has the finalizer, or neither.
fn has_work(class: &Object<ClassMetadata>) -> bool {
    let skim = class.skim();
    let has_finalizer = skim.finalizers.iter().any(|finalizer| finalizer == FINALIZER);
    has_finalizer != skim.deletion_timestamp.is_empty()
}

/// The classes that wait for their finalizer to be removed.
fn deleted_classes(client: &Client) -> Vec<Request> {
    let classes = client.metadata::<VolumeAttributesClass>();
    let all = readable(&classes.select());
    let deleted = all.iter().filter(|class| class.metadata.deletion_timestamp.is_some());
    deleted.map(|class| Request::of(&**class)).collect()
}

struct Pass {
    api: Api,
}

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let name = &*request.name;
        let client = context.client();
        let path = format!("/apis/storage.k8s.io/v1/volumeattributesclasses/{name}");
        let Some(class) = self.api.get_opt(&path).await? else {
            return Ok(Action::await_change());
        };
        if class.deletion_timestamp().is_empty() {
            protect(&self.api, &path, &class, FINALIZER).await?;
            return Ok(Action::await_change());
        }
        let claims = client.api::<Claim>().select().index(BY_CLASS, name).all()?;
        let volumes = client.api::<Volume>().select().index(BY_CLASS, name).all()?;
        if !claims.is_empty() || !volumes.is_empty() {
            return Ok(Action::await_change());
        }
        if self.is_used(name).await? {
            // Until the caches show it.
            return Ok(Action::requeue());
        }
        release(&self.api, &path, &class, FINALIZER).await?;
        Ok(Action::await_change())
    }
}

impl Pass {
    /// Whether the server has a claim or a volume that uses a class.
    async fn is_used(&self, name: &str) -> Result<bool, BoxError> {
        let (mut is_used, mut failed) = (false, None);
        let mut look =
            |object: Value, classes: fn(Value) -> serde_json::Result<Vec<String>>| match classes(
                object,
            ) {
                Ok(classes) => is_used |= classes.iter().any(|class| class == name),
                Err(error) => failed = Some(error),
            };
        let of_claim = |claim| serde_json::from_value(claim).map(|claim: Claim| claim.classes());
        let of_volume =
            |volume| serde_json::from_value(volume).map(|volume: Volume| volume.classes());
        let claims = "/api/v1/persistentvolumeclaims";
        self.api.list_pages(claims, |claim| look(claim, of_claim)).await?;
        self.api.list_pages("/api/v1/persistentvolumes", |volume| look(volume, of_volume)).await?;
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(is_used),
        }
    }
}
