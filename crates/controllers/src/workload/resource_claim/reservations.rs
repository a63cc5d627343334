//! Who claims are reserved for: pods that have ended are removed, and what nobody uses is released.

use super::{BY_POD, Claim, Pod, WORKERS, has_claims};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::workload::{COMPONENT, pod_control};
use kube_core::params::Patch;
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_runtime::client::{ClientError, ignore_not_found};
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{Action, BoxError, Client, Context, Controller, Manager, Request, Watch};

/// The finalizer of allocated claims.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The controller's name.
const NAME: &str = "resource_claim_reservations";

/// Adds the controller to a manager.
pub(super) fn add_to(manager: &mut Manager) -> Result<(), BoxError> {
    let claims_of_ended = |event: &Event<Pod>, client: &Client| {
        let Some(pod) = event.object().filter(|pod| has_claims(pod)) else { return Vec::new() };
        let Ok(pod) = pod.get() else { return Vec::new() };
        if !matches!(event, Event::Deleted { .. }) && !pod.is_done() {
            return Vec::new();
        }
        let namespace = &event.key().namespace;
        let named = pod.claims().map(|name| Request::new(namespace.clone(), name));
        // Also those whose names are not in the pod's status.
        let own = client.api::<Claim>().lister().ok();
        let own = own.and_then(|claims| claims.objects_by_index(BY_POD, pod.uid()).ok());
        named.chain(own.into_iter().flatten().map(|claim| claim.key().clone())).collect()
    };
    let controller = Controller::builder(NAME)
        .for_(Watch::<Claim>::new())
        .watches_with(Watch::<Pod>::new(), claims_of_ended)
        .concurrency(WORKERS)
        .sync_timeout(None)
        .build(Boxed(Pass))?;
    manager.add(controller)?;
    Ok(())
}

struct Pass;

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        pass(request, context).await?;
        Ok(Action::await_change())
    }
}

async fn pass(key: &Request, context: &Context) -> Result<(), BoxError> {
    let client = context.client().field_manager(COMPONENT);
    let Some(claim) = client.api::<Claim>().get(key)? else { return Ok(()) };
    let all = &claim.status.reserved_for;
    let mut remaining = Vec::new();
    for consumer in all {
        // Consumers of other types are not known here, and stay.
        let is_pod = consumer["apiGroup"].as_str().is_none_or(str::is_empty)
            && consumer["resource"] == "pods";
        let text = |member: &str| consumer[member].as_str().unwrap_or_default();
        if !is_pod || !has_ended(&client, key, text("name"), text("uid")).await? {
            remaining.push(consumer.clone());
        }
    }
    let is_allocated = !claim.status.allocation.is_null();
    let is_protected = claim.metadata.finalizers.iter().flatten().any(|held| held == FINALIZER);
    if remaining.len() < all.len() {
        let ends = remaining.is_empty() && is_protected;
        let mut status = json!({"reservedFor": remaining});
        if ends {
            status["allocation"] = Value::Null;
        }
        let written = write(&client, key, &claim, &status).await?;
        if ends {
            unprotect(&client, key, &written).await?;
        }
    } else if remaining.is_empty() && is_protected && claim.metadata.deletion_timestamp.is_some() {
        if is_allocated {
            let written = write(&client, key, &claim, &json!({"allocation": null})).await?;
            unprotect(&client, key, &written).await?;
        } else {
            unprotect(&client, key, &claim).await?;
        }
    }
    if remaining.is_empty() && claim.metadata.deletion_timestamp.is_none() {
        delete_if_ended(&client, key, &claim).await?;
    }
    Ok(())
}

/// Whether the pod of this uid does not exist any more, or will not run.
async fn has_ended(
    client: &Client,
    claim: &Request,
    name: &str,
    uid: &str,
) -> Result<bool, ClientError> {
    let key = Request::new(claim.namespace.clone(), name);
    let pods = client.api::<Pod>();
    if let Some(pod) = pods.get(&key)?
        && pod.uid() == uid
    {
        return Ok(pod.is_done());
    }
    // A cache that is behind may lack the pod, or show another one of the name.
    let live = pods.get_live(&key).await?;
    Ok(live.is_none_or(|live| live.uid() != uid || live.is_done()))
}

/// Deletes a claim that was made for a pod that has ended. If the pod is gone, the garbage
/// collector does that.
async fn delete_if_ended(client: &Client, key: &Request, claim: &Claim) -> Result<(), BoxError> {
    let owner = controller_of(claim);
    let Some(owner) = owner.filter(|owner| owner.api_version == "v1" && owner.kind == "Pod") else {
        return Ok(());
    };
    let pod = client.api::<Pod>().get(&Request::new(key.namespace.clone(), &*owner.name))?;
    if pod.is_none() || !has_ended(client, key, &owner.name, &owner.uid).await? {
        return Ok(());
    }
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let deleted = client.api::<Claim>().delete(key, &pod_control::precondition(uid)).await;
    ignore_not_found(deleted)?;
    Ok(())
}

/// Writes a part of a claim's status, if the claim has not changed since it was read.
pub(super) async fn write(
    client: &Client,
    key: &Request,
    claim: &Claim,
    status: &Value,
) -> Result<Claim, ClientError> {
    let patch = json!({"metadata": version(claim), "status": status});
    client.api::<Claim>().status().patch(key, &Patch::Merge(&patch)).await
}

/// Removes the finalizer, if the claim has not changed since it was read.
async fn unprotect(client: &Client, key: &Request, claim: &Claim) -> Result<(), ClientError> {
    let finalizers = claim.metadata.finalizers.iter().flatten();
    let remaining: Vec<&String> = finalizers.filter(|held| *held != FINALIZER).collect();
    let mut metadata = version(claim);
    metadata["finalizers"] = json!(remaining);
    let patch = json!({"metadata": metadata});
    ignore_not_found(client.api::<Claim>().patch(key, &Patch::Merge(&patch)).await)?;
    Ok(())
}

/// The state that a write is based on.
fn version(claim: &Claim) -> Value {
    json!({"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version})
}
