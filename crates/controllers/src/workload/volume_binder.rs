//! PersistentVolumes and claims: bound to each other, provisioned, and reclaimed.
//!
//! # Theory
//!
//! A binding is written in four steps: the volume's `claimRef`, the volume's phase, the claim's
//! `volumeName`, the claim's phase. Whatever step is missing is made up for by the next pass. One
//! worker runs all passes, so that no volume is promised twice.
//!
//! | a claim without a volume | becomes |
//! |---|---|
//! | names a volume, or one fits | bound: `matching` |
//! | its class waits for the first consumer | nothing, until the scheduler has chosen a node |
//! | its class has the provisioner [`PROVISIONER`] | bound to a volume that is made for it, has no storage behind it, and grows with it |
//! | its class has another provisioner | annotated for it, and bound when somebody has made the volume |
//!
//! A volume whose claim is gone is `Released`. The policy `Delete` deletes it, if this controller
//! made it; those of other provisioners are theirs. The rules and the texts are those of
//! kube-controller-manager's `persistentvolume-binder-controller`. Volumes are not recycled.

mod matching;
mod object;
mod wake;

use super::COMPONENT;
use super::difference::difference;
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use k8s_openapi::api::core::v1 as core;
use kube_core::params::{DeleteParams, Patch, Preconditions};
use matching::Wanted;
use object::{
    Claim, Class, Volume, annotation, by_claim, by_volume, claim_key, has_class, simulated, version,
};
use serde_json::{Value, json};
use setpoint_informer::Object;
use setpoint_object::label::Selector;
use setpoint_object::quantity::Quantity;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::{
    Action, BoxError, Client, Context, Controller, Manager, ObjectReference, Request, Watch,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use wake::{first, of_claim, of_class, of_volume};

/// The provisioner of classes whose volumes this controller makes. They have no storage.
pub const PROVISIONER: &str = "volumes.setpoint.dev/simulated";

/// The controller's name in events.
const NAME: &str = "persistentvolume-controller";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The index of volumes by their claim: `namespace/name`.
const BY_CLAIM: &str = "claim";
/// The index of volumes without a claim.
const BY_CAPACITY: &str = "capacity";
/// The index of claims by the volume that they name.
const BY_VOLUME: &str = "volume";
/// The index of claims that name no volume.
const BY_REQUEST: &str = "request";

/// The controller of volumes and claims.
#[derive(Clone, Debug)]
#[must_use]
pub struct VolumeBinder(());

impl VolumeBinder {
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
        let claims = Watch::<Claim>::new().index(BY_VOLUME, by_volume);
        let volumes = Watch::<Volume>::new().index(BY_CLAIM, by_claim);
        let controller = Controller::builder(NAME)
            .watches_with(claims.index(BY_REQUEST, matching::by_request), of_claim)
            .watches_with(volumes.index(BY_CAPACITY, matching::by_capacity), of_volume)
            .watches_with(Watch::<Class>::new(), of_class)
            .concurrency(1)
            .sync_timeout(None)
            .build(Boxed(Binder))?;
        manager.add(controller)?;
        Ok(())
    }
}

struct Binder;

impl BoxedReconciler for Binder {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        // A volume that was just promised must be seen as promised.
        client.api::<Volume>().lister_own().await?;
        client.api::<Claim>().lister_own().await?;
        let pass = Pass { context, client };
        if request.namespace.is_empty() {
            if let Some(volume) = pass.client.api::<Volume>().get(request)? {
                pass.volume(&volume).await?;
            }
        } else if let Some(claim) = pass.client.api::<Claim>().get(request)? {
            match claim.is_bound() {
                true => pass.bound(&claim).await?,
                false => pass.unbound(&claim).await?,
            }
        }
        Ok(Action::await_change())
    }
}

/// Whether an amount is larger than another. Amounts that cannot be read are not.
fn is_larger(amount: &Value, other: &Value) -> bool {
    let read = |amount: &Value| Quantity::parse(amount.as_str()?).ok();
    let both = read(amount).zip(read(other));
    both.is_some_and(|(amount, other)| amount.compare(&other).is_gt())
}

struct Pass<'a> {
    context: &'a Context,
    client: Client,
}

impl Pass<'_> {
    fn warn(&self, claim: &Claim, reason: &str, note: impl Into<String>) {
        self.context.recorder().warning(&ObjectReference::of(claim), reason, note);
    }

    fn record(&self, claim: &Claim, reason: &str, note: impl Into<String>) {
        self.context.recorder().normal(&ObjectReference::of(claim), reason, note);
    }

    fn get_volume(&self, name: &str) -> Result<Option<Arc<Volume>>, BoxError> {
        Ok(self.client.api::<Volume>().get(&Request::cluster(name))?)
    }

    /// A claim that has not been bound yet.
    async fn unbound(&self, claim: &Claim) -> Result<(), BoxError> {
        if !claim.volume().is_empty() {
            return self.named(claim).await;
        }
        let class = match claim.class() {
            "" => None,
            name => self.client.api::<Class>().get(&Request::cluster(name))?,
        };
        let waits = class.as_ref().is_some_and(|class| class.waits());
        let wanted = Wanted::by(claim);
        let reserved = self.client.api::<Volume>().select();
        let reserved = reserved.index(BY_CLAIM, claim_key(&claim.key())).all()?;
        if let Some(volume) = wanted.reserved(reserved.iter().map(|volume| &**volume)) {
            return self.bind(volume, claim).await;
        }
        if !waits && let Some(volume) = self.best(&wanted)? {
            return self.bind(&volume, claim).await;
        }
        if self.assign_default_class(claim).await? {
            return Ok(());
        }
        if waits && annotation(&claim.metadata, SELECTED_NODE).is_none() {
            let note = "waiting for first consumer to be created before binding";
            self.record(claim, "WaitForFirstConsumer", note);
        } else if !claim.class().is_empty() {
            return self.provision(claim, class.as_deref()).await;
        } else {
            let note = "no persistent volumes available for this claim and no storage class is set";
            self.record(claim, "FailedBinding", note);
        }
        self.set_claim(claim, "Pending", None).await.map(drop)
    }

    /// The free volume that fits a claim best.
    fn best(&self, wanted: &Wanted<'_>) -> Result<Option<Arc<Volume>>, BoxError> {
        for range in wanted.ranges() {
            let fitting = |volume: &Object<Volume>| {
                volume.get().ok().filter(|volume| wanted.is_met_by_free(volume))
            };
            let found = first(&self.client, BY_CAPACITY, range, fitting)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// A free volume: binds claims that it fits, until it has one. A claim may prefer another
    /// volume.
    async fn offer(&self, volume: &Volume) -> Result<(), BoxError> {
        let class = self.client.api::<Class>().get(&Request::cluster(volume.class()))?;
        if class.is_some_and(|class| class.waits()) {
            return Ok(());
        }
        let mut tried = BTreeSet::new();
        loop {
            let fitting = |claim: &Object<Claim>| {
                let claim = claim.get().ok().filter(|claim| !tried.contains(&claim.key()))?;
                Wanted::by(&claim).is_met_by_free(volume).then_some(claim)
            };
            let range = matching::requests_of(volume);
            let Some(claim) = first(&self.client, BY_REQUEST, range, fitting)? else {
                return Ok(());
            };
            tried.insert(claim.key());
            self.unbound(&claim).await?;
            self.client.api::<Volume>().lister_own().await?;
            self.client.api::<Claim>().lister_own().await?;
            let is_free = |volume: Arc<Volume>| volume.spec["claimRef"].is_null();
            if !self.get_volume(volume.name())?.is_some_and(is_free) {
                return Ok(());
            }
        }
    }

    /// A claim that names its volume.
    async fn named(&self, claim: &Claim) -> Result<(), BoxError> {
        let name = claim.volume();
        let Some(volume) = self.get_volume(name)? else {
            return self.set_claim(claim, "Pending", None).await.map(drop);
        };
        if volume.is_bound_to(claim) {
            return self.bind(&volume, claim).await;
        }
        if !volume.spec["claimRef"].is_null() {
            let note = format!("volume {name:?} already bound to a different claim.");
            self.warn(claim, "FailedBinding", note);
        } else if let Some(why) = volume.mismatch(claim) {
            let note = format!("Cannot bind to requested volume {name:?}: {why}");
            self.warn(claim, "VolumeMismatch", note);
        } else {
            return self.bind(&volume, claim).await;
        }
        self.set_claim(claim, "Pending", None).await.map(drop)
    }

    /// A claim that has been bound.
    async fn bound(&self, claim: &Claim) -> Result<(), BoxError> {
        let volume = match claim.volume() {
            "" => None,
            name => self.get_volume(name)?,
        };
        let (reason, note) = match &volume {
            Some(volume) if volume.spec["claimRef"].is_null() || volume.is_bound_to(claim) => {
                return self.bind(volume, claim).await;
            }
            Some(_) => (
                "ClaimMisbound",
                "Two claims are bound to the same volume, this one is bound incorrectly",
            ),
            None if claim.volume().is_empty() => (
                "ClaimLost",
                "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
            ),
            None => (
                "ClaimLost",
                "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
            ),
        };
        if claim.status["phase"] != "Lost" && self.set_claim(claim, "Lost", None).await?.is_some() {
            self.warn(claim, reason, note);
        }
        Ok(())
    }

    /// Makes up for the steps of a binding that are missing.
    async fn bind(&self, volume: &Volume, claim: &Claim) -> Result<(), BoxError> {
        let volumes = self.client.api::<Volume>();
        let mut volume = volume.clone();
        if volume.spec["claimRef"]["uid"] != claim.uid() {
            let mut metadata = version(&volume.metadata);
            if !volume.is_bound_to(claim) {
                metadata["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
            }
            let reference = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim.name(),
                "namespace": claim.namespace(), "uid": claim.uid(),
                "resourceVersion": claim.metadata.resource_version,
            });
            let patch = json!({"metadata": metadata, "spec": {"claimRef": reference}});
            volume = volumes.patch(&volume.key(), &Patch::Merge(patch)).await?;
        }
        let volume = self.follow(volume, claim).await?;
        let Some(volume) = self.set_volume(&volume, "Bound", "").await? else { return Ok(()) };
        let mut claim = claim.clone();
        if claim.volume() != volume.name() || !claim.is_bound() {
            let mut metadata = version(&claim.metadata);
            metadata["annotations"] = json!({BIND_COMPLETED: "yes"});
            if claim.volume() != volume.name() {
                metadata["annotations"][BOUND_BY_CONTROLLER] = "yes".into();
            }
            let patch = json!({"metadata": metadata, "spec": {"volumeName": volume.name()}});
            let claims = self.client.api::<Claim>();
            let patched = claims.patch(&claim.key(), &Patch::Merge(patch)).await;
            let Some(patched) = ignore_not_found(patched)? else { return Ok(()) };
            claim = patched;
        }
        self.set_claim(&claim, "Bound", Some(&volume)).await.map(drop)
    }

    /// Gives a simulated volume the size and the attributes class that its claim now asks for:
    /// admission has allowed them. Other volumes are their provisioner's.
    async fn follow(&self, volume: Volume, claim: &Claim) -> Result<Volume, BoxError> {
        let mut spec = volume.spec.clone();
        if volume.is_simulated() {
            let wanted = &claim.spec["resources"]["requests"]["storage"];
            if is_larger(wanted, &spec["capacity"]["storage"]) {
                spec["capacity"]["storage"] = wanted.clone();
            }
            let class = &claim.spec["volumeAttributesClassName"];
            if class.as_str().is_some_and(|class| !class.is_empty()) {
                spec["volumeAttributesClassName"] = class.clone();
            }
        }
        let patch = difference(&volume.spec, &spec);
        if patch.is_empty() {
            return Ok(volume);
        }
        let patch = json!({"metadata": version(&volume.metadata), "spec": patch});
        let volumes = self.client.api::<Volume>();
        Ok(volumes.patch(&volume.key(), &Patch::Merge(patch)).await?)
    }

    /// Sets the phase of a claim, and what it has of its volume. `None` if it is gone.
    async fn set_claim(
        &self,
        claim: &Claim,
        phase: &str,
        volume: Option<&Volume>,
    ) -> Result<Option<Claim>, BoxError> {
        let mut status = claim.status.clone();
        if !status.is_object() {
            status = json!({});
        }
        let is_new = status["phase"] != phase;
        status["phase"] = phase.into();
        let attributes = "currentVolumeAttributesClassName";
        if let Some(volume) = volume {
            status["accessModes"] = volume.spec["accessModes"].clone();
            // Later the file system may be smaller than the device.
            if is_new || volume.is_simulated() {
                status["capacity"] = volume.spec["capacity"].clone();
                let class = &volume.spec["volumeAttributesClassName"];
                if !class.is_null() {
                    status[attributes] = class.clone();
                }
            }
        } else if let Some(status) = status.as_object_mut() {
            for member in ["accessModes", "capacity", attributes] {
                status.remove(member);
            }
        }
        let patch = difference(&claim.status, &status);
        if patch.is_empty() {
            return Ok(Some(claim.clone()));
        }
        let patch = json!({"metadata": version(&claim.metadata), "status": patch});
        let claims = self.client.api::<Claim>();
        let patched = claims.patch_status(&claim.key(), &Patch::Merge(patch)).await;
        Ok(ignore_not_found(patched)?)
    }

    /// Sets the phase of a volume. `None` if it is gone.
    async fn set_volume(
        &self,
        volume: &Volume,
        phase: &str,
        message: &str,
    ) -> Result<Option<Volume>, BoxError> {
        if volume.phase() == phase {
            return Ok(Some(volume.clone()));
        }
        let message = if message.is_empty() { Value::Null } else { message.into() };
        let patch = json!({
            "metadata": version(&volume.metadata), "status": {"phase": phase, "message": message},
        });
        let volumes = self.client.api::<Volume>();
        let patched = volumes.patch_status(&volume.key(), &Patch::Merge(patch)).await;
        Ok(ignore_not_found(patched)?)
    }

    /// Gives a claim without a class the default one. Returns whether it did.
    async fn assign_default_class(&self, claim: &Claim) -> Result<bool, BoxError> {
        if has_class(claim) {
            return Ok(false);
        }
        let classes = self.client.api::<Class>().list(None, &Selector::everything())?;
        let is_default = |class: &&Arc<Class>| {
            let names = ["storageclass.kubernetes.io", "storageclass.beta.kubernetes.io"];
            names.iter().any(|name| {
                let name = format!("{name}/is-default-class");
                annotation(&class.metadata, &name) == Some("true")
            })
        };
        // The newest; of those of a second, the first by name.
        let default = classes.iter().filter(is_default).min_by_key(|class| {
            let created = class.metadata.creation_timestamp.as_ref();
            (std::cmp::Reverse(created.map(|time| time.0)), class.metadata.name.clone())
        });
        let Some(default) = default else { return Ok(false) };
        let spec = json!({"storageClassName": default.metadata.name});
        let patch = json!({"metadata": version(&claim.metadata), "spec": spec});
        let claims = self.client.api::<Claim>();
        ignore_not_found(claims.patch(&claim.key(), &Patch::Merge(patch)).await)?;
        Ok(true)
    }

    /// Has a volume made for a claim.
    async fn provision(&self, claim: &Claim, class: Option<&Class>) -> Result<(), BoxError> {
        let name = claim.class();
        let pending = self.set_claim(claim, "Pending", None).await?;
        let Some(claim) = pending else { return Ok(()) };
        let Some(class) = class else {
            let note = format!("storageclass.storage.k8s.io {name:?} not found");
            self.warn(&claim, "ProvisioningFailed", note);
            return Ok(());
        };
        let provisioner = class.provisioner.as_str();
        if provisioner.starts_with("kubernetes.io/") {
            let note = format!("no volume plugin matched name: {provisioner}");
            self.warn(&claim, "ProvisioningFailed", note);
            return Ok(());
        }
        let mut claim = claim;
        if annotation(&claim.metadata, STORAGE_PROVISIONER) != Some(provisioner) {
            let mut metadata = version(&claim.metadata);
            metadata["annotations"] =
                json!({STORAGE_PROVISIONER: provisioner, BETA_STORAGE_PROVISIONER: provisioner});
            let claims = self.client.api::<Claim>();
            let patch = Patch::Merge(json!({"metadata": metadata}));
            let Some(patched) = ignore_not_found(claims.patch(&claim.key(), &patch).await)? else {
                return Ok(());
            };
            claim = patched;
        }
        if provisioner != PROVISIONER {
            let note = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
            );
            self.record(&claim, "ExternalProvisioning", note);
            return Ok(());
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let volume = simulated(&claim, class)?;
        let name = volume.metadata.name.clone().unwrap_or_default();
        match self.client.api::<core::PersistentVolume>().create(&volume).await {
            Err(error) if error.is_already_exists() => {}
            created => {
                created?;
                let note = format!("Successfully provisioned volume {name} using {PROVISIONER}");
                self.record(&claim, "ProvisioningSucceeded", note);
            }
        }
        Ok(())
    }

    /// A volume: its phase, and what becomes of it without its claim.
    async fn volume(&self, volume: &Volume) -> Result<(), BoxError> {
        let uid = volume.spec["claimRef"]["uid"].as_str().unwrap_or_default();
        let Some(key) = volume.claim().filter(|_| !uid.is_empty()) else {
            // Otherwise its claims are looked for when the cache shows the phase.
            return match volume.phase() {
                "Available" => self.offer(volume).await,
                _ => self.set_volume(volume, "Available", "").await.map(drop),
            };
        };
        let is_it = |claim: &Claim| claim.uid() == uid;
        let cached = self.client.api::<Claim>().get(&key)?.filter(|claim| is_it(claim));
        let claim = match cached {
            Some(claim) => Some((*claim).clone()),
            // The cache may not show the claim yet.
            None => self.client.api::<Claim>().get_live(&key).await?.filter(is_it),
        };
        let Some(claim) = claim else { return self.reclaim(volume).await };
        match claim.volume() {
            "" => {
                if volume.has_other_mode(&claim) {
                    let (of, by) = (volume.name(), claim.name());
                    let note = format!(
                        "Cannot bind PersistentVolume to requested PersistentVolumeClaim {by:?} due to incompatible volumeMode."
                    );
                    let reference = ObjectReference::of(volume);
                    self.context.recorder().warning(&reference, "VolumeMismatch", note);
                    let note = format!(
                        "Cannot bind PersistentVolume {of:?} to requested PersistentVolumeClaim due to incompatible volumeMode."
                    );
                    self.warn(&claim, "VolumeMismatch", note);
                }
                // The pass over the claim binds it.
                Ok(())
            }
            name if name == volume.name() => self.set_volume(volume, "Bound", "").await.map(drop),
            // The claim has another volume.
            _ if annotation(&volume.metadata, PROVISIONED_BY).is_some()
                && volume.spec["persistentVolumeReclaimPolicy"] == "Delete" =>
            {
                self.reclaim(volume).await
            }
            _ => self.release(volume).await,
        }
    }

    /// Ends a binding that its claim does not have.
    async fn release(&self, volume: &Volume) -> Result<(), BoxError> {
        let mut metadata = version(&volume.metadata);
        let reference = if annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_some() {
            metadata["annotations"] = json!({BOUND_BY_CONTROLLER: null});
            Value::Null
        } else {
            json!({"uid": null, "resourceVersion": null})
        };
        let patch = json!({"metadata": metadata, "spec": {"claimRef": reference}});
        let volumes = self.client.api::<Volume>();
        let patched = volumes.patch(&volume.key(), &Patch::Merge(patch)).await;
        match ignore_not_found(patched)? {
            Some(volume) => self.set_volume(&volume, "Available", "").await.map(drop),
            None => Ok(()),
        }
    }

    /// Handles a volume whose claim was deleted.
    async fn reclaim(&self, volume: &Volume) -> Result<(), BoxError> {
        let volume = match volume.phase() {
            "Released" | "Failed" => volume.clone(),
            _ => match self.set_volume(volume, "Released", "").await? {
                Some(volume) => volume,
                None => return Ok(()),
            },
        };
        let (reason, note) = match volume.spec["persistentVolumeReclaimPolicy"].as_str() {
            Some("Delete") => match annotation(&volume.metadata, PROVISIONED_BY) {
                Some(PROVISIONER) => return self.delete(&volume).await,
                // Its provisioner deletes it.
                Some(_) => return Ok(()),
                None if volume.spec["csi"].is_object() => return Ok(()),
                None => (
                    "VolumeFailedDelete",
                    format!(
                        "error getting deleter volume plugin for volume {:?}: no deletable volume plugin matched",
                        volume.name()
                    ),
                ),
            },
            Some("Recycle") => {
                ("VolumeFailedRecycle", "No recycler plugin found for the volume!".to_owned())
            }
            _ => return Ok(()),
        };
        if volume.phase() != "Failed" && self.set_volume(&volume, "Failed", &note).await?.is_some()
        {
            let reference = ObjectReference::of(&volume);
            self.context.recorder().warning(&reference, reason, note);
        }
        Ok(())
    }

    async fn delete(&self, volume: &Volume) -> Result<(), BoxError> {
        if volume.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let preconditions = Preconditions {
            uid: volume.metadata.uid.clone(),
            resource_version: volume.metadata.resource_version.clone(),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let volumes = self.client.api::<Volume>();
        ignore_not_found(volumes.delete(&volume.key(), &params).await)?;
        Ok(())
    }
}
