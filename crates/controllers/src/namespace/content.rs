//! Deletes the content of a namespace.

use super::condition::Findings;
use crate::api::{Api, Discovered, RequestError, Resource, ignore_not_found};
use crate::first_error::FirstError;
use serde_json::{Value, json};
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt;
use std::time::Duration;

/// Time that content with finalizers gets before the next pass: 15 s, as in the reference.
const FINALIZER_ESTIMATE: Duration = Duration::from_secs(15);

/// Deletes everything in a namespace that is being deleted since `age`. Records failures in
/// `findings`.
pub(super) async fn delete_all(
    api: &Api,
    namespace: &str,
    age: Duration,
    discovered: &Discovered,
    findings: &mut Findings,
) {
    let in_namespaces = |resource: &&Resource| {
        resource.namespaced && resource.serves("delete") && resource.serves("list")
    };
    let (pods, others): (Vec<&Resource>, Vec<&Resource>) = discovered
        .resources
        .iter()
        .filter(in_namespaces)
        .partition(|resource| resource.group.is_empty() && resource.resource == "pods");
    for resource in pods {
        let remaining = delete_resource(api, namespace, resource, findings).await;
        findings.waits_for_pods = !remaining.is_empty();
        judge(&remaining, grace(&remaining, age), namespace, resource, findings);
    }
    // What pods depend on, such as the policies of their network, must not go before them.
    if findings.waits_for_pods {
        return;
    }
    for resource in others {
        let remaining = delete_resource(api, namespace, resource, findings).await;
        judge(&remaining, Duration::ZERO, namespace, resource, findings);
    }
}

/// The longest grace period of pods that run; none if it has passed since the namespace's deletion.
fn grace(pods: &[Value], age: Duration) -> Duration {
    let runs =
        |pod: &&Value| !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let running = pods.iter().filter(runs);
    let longest =
        running.filter_map(|pod| pod["spec"]["terminationGracePeriodSeconds"].as_u64()).max();
    Some(Duration::from_secs(longest.unwrap_or(0))).filter(|grace| *grace > age).unwrap_or_default()
}

/// Whether objects that remain are waited for: during a grace period, or if finalizers hold them.
/// Others have outlived their deletion.
fn judge(
    remaining: &[Value],
    grace: Duration,
    namespace: &str,
    resource: &Resource,
    findings: &mut Findings,
) {
    if remaining.is_empty() {
        return;
    }
    let is_held = remaining.iter().any(|object| !object.finalizers().is_empty());
    let estimate = match grace {
        Duration::ZERO if is_held => FINALIZER_ESTIMATE,
        Duration::ZERO => {
            let Resource { group, version, resource: name, .. } = resource;
            let failure = format!(
                "unexpected items still remain in namespace: {namespace} for gvr: {group}/{version}, Resource={name}"
            );
            findings.failures.insert(resource.dotted(), failure);
            return;
        }
        grace => grace,
    };
    findings.longest = findings.longest.max(estimate);
}

/// Deletes one resource's objects; returns those that remain.
async fn delete_resource(
    api: &Api,
    namespace: &str,
    resource: &Resource,
    findings: &mut Findings,
) -> Vec<Value> {
    match try_delete(api, namespace, resource).await {
        Ok(remaining) => {
            if !remaining.is_empty() {
                findings.remaining.insert(resource.dotted(), remaining.len());
            }
            for finalizer in remaining.iter().flat_map(ObjectExt::finalizers) {
                *findings.finalizers.entry(finalizer.to_owned()).or_default() += 1;
            }
            remaining
        }
        // The type was removed meanwhile, and its objects with it.
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) => {
            findings.failures.insert(resource.dotted(), chain(&error));
            Vec::new()
        }
    }
}

async fn try_delete(
    api: &Api,
    namespace: &str,
    resource: &Resource,
) -> Result<Vec<Value>, RequestError> {
    let collection = resource.collection(namespace);
    let options =
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    let as_one = resource.serves("deletecollection");
    if as_one {
        match api.delete(&collection, &options).await {
            // The response lists the matching objects: if it is empty, no further list is needed.
            Ok(deleted) if deleted["items"].as_array().is_some_and(Vec::is_empty) => {
                return Ok(Vec::new());
            }
            Err(error) if !error.is_method_not_allowed() => return Err(error),
            _ => {}
        }
    }
    let mut remaining = list(api, &collection).await?;
    if !as_one && !remaining.is_empty() {
        // An object that is refused does not keep the others.
        let mut errors = FirstError::new();
        for object in &remaining {
            let deleted = api.delete(&resource.object(namespace, object.name()), &options).await;
            errors.note(ignore_not_found(deleted));
        }
        errors.into_result()?;
        remaining = list(api, &collection).await?;
    }
    Ok(remaining)
}

async fn list(api: &Api, collection: &str) -> Result<Vec<Value>, RequestError> {
    let mut objects = Vec::new();
    api.list_pages(collection, |object| objects.push(object)).await?;
    Ok(objects)
}
