//! Writes what claims of devices get, and who uses them.

use super::{Binder, FIELD_MANAGER};
use crate::plugins::claims::{Claim, Grant};
use crate::pod::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube_core::params::Patch;
use kube_core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use setpoint_runtime::client::Api;
use setpoint_runtime::{BoxError, ClientError, Context, Request};

/// The finalizer of claims that have devices.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// How often a claim is read again after somebody else has written it: client-go's default
/// makes five attempts.
const CONFLICTS_MAX: usize = 4;

impl Binder {
    /// Reserves a pod's claims for it, with the devices that were chosen for them. Returns why it
    /// cannot have one of them, as kube-scheduler words it.
    pub(super) async fn claim_devices(
        &self,
        pod: &Pod,
        grants: &[Grant],
        context: &Context,
    ) -> Result<Option<String>, BoxError> {
        for grant in grants {
            if let Some(why) = self.claim(pod, grant, context).await? {
                return Ok(Some(format!("running PreBind plugin \"DynamicResources\": {why}")));
            }
        }
        Ok(None)
    }

    async fn claim(
        &self,
        pod: &Pod,
        grant: &Grant,
        context: &Context,
    ) -> Result<Option<String>, BoxError> {
        let (api, key) = (api(context), &grant.claim);
        let meanwhile = |what: &str| Ok(Some(format!("claim {key} got {what} in the meantime")));
        let mut n_conflicts = 0;
        loop {
            let found = api.get_live(key).await?;
            let found = found.filter(|found| {
                let meta = &found.metadata;
                meta.uid.as_deref() == Some(&*grant.uid) && meta.deletion_timestamp.is_none()
            });
            let Some(mut claim) = found else { return meanwhile("deleted") };
            match (is_allocated(&claim), grant.allocation.is_some()) {
                (true, _) if consumers(&claim).iter().any(|user| user["uid"] == *pod.uid) => {
                    // Written before, or by an earlier attempt whose answer was lost.
                    self.take_in(key, &claim);
                    return Ok(None);
                }
                // By another pod of the group, or by somebody else.
                (true, true) if !grant.is_met_by(&claim.data["status"]["allocation"]) => {
                    return meanwhile("allocated elsewhere");
                }
                (false, false) => return meanwhile("deallocated elsewhere"),
                (true, _) | (false, true) => {}
            }
            match write(&api, pod, grant, &mut claim).await {
                Ok(()) => {
                    self.take_in(key, &claim);
                    return Ok(None);
                }
                Err((_, error)) if error.is_conflict() && n_conflicts < CONFLICTS_MAX => {
                    n_conflicts += 1;
                }
                Err((what, error)) if matches!(error.code(), Some(400 | 403 | 404 | 422)) => {
                    let message = error.api().map(|status| status.0.message.clone());
                    let message = message.unwrap_or_else(|| error.to_string());
                    return Ok(Some(format!("{what} to claim {key}: {message}")));
                }
                Err((_, error)) => return Err(error.into()),
            }
        }
    }

    /// Takes in a claim as the server has it.
    fn take_in(&self, key: &Request, claim: &DynamicObject) {
        let Ok(claim) = serde_json::to_value(claim) else { return };
        self.shared.put(|state| {
            let inventory = &mut state.view.inventory;
            let earlier = inventory.claim(key).cloned();
            inventory.put_own_claim(key, Claim::read(&claim, earlier.as_deref()));
        });
    }

    /// Undoes the reservations of a pod that is not bound. The devices stay the claims', as with
    /// kube-scheduler: the pod's next node has to have them, or they are taken away then.
    pub(super) async fn release(
        &self,
        pod: &Pod,
        grants: &[Grant],
        context: &Context,
    ) -> Result<(), BoxError> {
        let api = api(context);
        for grant in grants {
            let Some(claim) = api.get_live(&grant.claim).await? else { continue };
            let is_same = claim.metadata.uid.as_deref() == Some(&*grant.uid);
            if !is_same || !consumers(&claim).iter().any(|user| user["uid"] == *pod.uid) {
                continue;
            }
            let patch = json!({
                "metadata": {"uid": &*grant.uid},
                "status": {"reservedFor": [{"$patch": "delete", "uid": &*pod.uid}]},
            });
            match api.patch_status(&grant.claim, &Patch::Strategic(patch)).await {
                Ok(claim) => self.take_in(&grant.claim, &claim),
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes the devices from a claim that nobody but a pod uses, so that it gets others.
    pub(super) async fn deallocate(
        &self,
        key: &Request,
        pod: &Pod,
        context: &Context,
    ) -> Result<(), BoxError> {
        let api = api(context);
        let Some(claim) = api.get_live(key).await? else { return Ok(()) };
        let is_idle = consumers(&claim).iter().all(|user| user["uid"] == *pod.uid);
        if !is_idle || !is_allocated(&claim) {
            return Ok(());
        }
        let patch = json!({
            "metadata": version(&claim),
            "status": {"allocation": null, "reservedFor": null, "devices": null},
        });
        match api.patch_status(key, &Patch::Merge(patch)).await {
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            written => Ok(written.map(drop)?),
        }
    }

    /// Finds out what the server has of claims that were being written for pods that are gone.
    pub(super) async fn settle_orphans(
        &self,
        pod: &Request,
        context: &Context,
    ) -> Result<(), BoxError> {
        let orphans = self.shared.state.lock().view.inventory.orphans(pod);
        for (key, pod) in orphans {
            if let Some(claim) = api(context).get_live(&key).await? {
                self.take_in(&key, &claim);
            }
            self.shared.put(|state| state.forget_orphan(&key, &pod));
        }
        Ok(())
    }
}

/// Writes the finalizer, the devices and the consumer. `claim` becomes what the server has then.
/// An error says what was to be added.
async fn write(
    api: &Api<DynamicObject>,
    pod: &Pod,
    grant: &Grant,
    claim: &mut DynamicObject,
) -> Result<(), (&'static str, ClientError)> {
    let mut status = json!({});
    let allocation = grant.allocation.as_ref().filter(|_| !is_allocated(claim));
    if let Some(allocation) = allocation {
        let mut finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|held| held == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
            let mut metadata = version(claim);
            metadata["finalizers"] = json!(finalizers);
            let patch = json!({"metadata": metadata});
            let patched = api.patch(&grant.claim, &Patch::Merge(patch)).await;
            *claim = patched.map_err(|error| ("add finalizer", error))?;
        }
        status["allocation"] = (**allocation).clone();
    }
    let what = match allocation {
        Some(_) => "add allocation and reservation",
        None => "add reservation",
    };
    let mut consumers = consumers(claim);
    consumers.push(json!({"resource": "pods", "name": &*pod.key.name, "uid": &*pod.uid}));
    status["reservedFor"] = consumers.into();
    let patch = json!({"metadata": version(claim), "status": status});
    let patched = api.patch_status(&grant.claim, &Patch::Merge(patch)).await;
    *claim = patched.map_err(|error| (what, error))?;
    Ok(())
}

/// Claims as trees, so that nothing in them is lost.
fn api(context: &Context) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<ResourceClaim>(&());
    context.client().api_with::<DynamicObject>(resource).field_manager(FIELD_MANAGER)
}

fn is_allocated(claim: &DynamicObject) -> bool {
    !claim.data["status"]["allocation"].is_null()
}

fn consumers(claim: &DynamicObject) -> Vec<Value> {
    claim.data["status"]["reservedFor"].as_array().cloned().unwrap_or_default()
}

/// The state that a write is based on.
fn version(claim: &DynamicObject) -> Value {
    json!({"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version})
}
