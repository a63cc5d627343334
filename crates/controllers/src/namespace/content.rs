//! Deletes the content of a namespace.

use super::condition::Findings;
use crate::api::{Api, Discovered, JSON, RequestError, Resource, ignore_not_found};
use crate::first_error::FirstError;
use serde_json::{Value, json};
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time that content with finalizers gets before the next pass: 15 s, as in the reference.
const FINALIZER_ESTIMATE: Duration = Duration::from_secs(15);

/// Lists have metadata only, because whole objects may be more than a client takes at once.
const METADATA: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

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
    let (pods, others): (Vec<&Resource>, Vec<&Resource>) =
        discovered.resources.iter().filter(in_namespaces).partition(|resource| is_pods(resource));
    for resource in pods {
        let remaining = delete_resource(api, namespace, resource, findings).await;
        findings.waits_for_pods = remaining.n > 0;
        let grace = Some(remaining.grace).filter(|grace| *grace > age).unwrap_or_default();
        judge(&remaining, grace, namespace, resource, findings);
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

fn is_pods(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.resource == "pods"
}

/// The objects of a resource that remain. There may be thousands, so only what counts is kept.
#[derive(Debug, Default)]
struct Remaining {
    n: usize,
    /// Number of objects by finalizer.
    finalizers: BTreeMap<String, usize>,
    /// The longest grace period of pods that run.
    grace: Duration,
}

impl Remaining {
    fn add(&mut self, object: &Value) {
        self.n += 1;
        for finalizer in object.finalizers() {
            *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
        let runs = !matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let grace = object["spec"]["terminationGracePeriodSeconds"].as_u64().filter(|_| runs);
        self.grace = self.grace.max(Duration::from_secs(grace.unwrap_or(0)));
    }
}

/// Whether objects that remain are waited for: during a grace period, or if finalizers hold them.
/// Others have outlived their deletion.
fn judge(
    remaining: &Remaining,
    grace: Duration,
    namespace: &str,
    resource: &Resource,
    findings: &mut Findings,
) {
    if remaining.n == 0 {
        return;
    }
    let estimate = match grace {
        Duration::ZERO if !remaining.finalizers.is_empty() => FINALIZER_ESTIMATE,
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
) -> Remaining {
    match try_delete(api, namespace, resource).await {
        Ok(remaining) => {
            if remaining.n > 0 {
                findings.remaining.insert(resource.dotted(), remaining.n);
            }
            for (finalizer, n) in &remaining.finalizers {
                *findings.finalizers.entry(finalizer.clone()).or_default() += n;
            }
            remaining
        }
        // The type was removed meanwhile, and its objects with it.
        Err(error) if error.is_not_found() => Remaining::default(),
        Err(error) => {
            findings.failures.insert(resource.dotted(), chain(&error));
            Remaining::default()
        }
    }
}

async fn try_delete(
    api: &Api,
    namespace: &str,
    resource: &Resource,
) -> Result<Remaining, RequestError> {
    let collection = resource.collection(namespace);
    let options =
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    let mut is_deleted = false;
    if resource.serves("deletecollection") {
        match api.delete_accepting(&collection, &options, METADATA).await {
            // The response lists the matching objects: if it is empty, no further list is needed.
            Ok(deleted) if deleted["items"].as_array().is_some_and(Vec::is_empty) => {
                return Ok(Remaining::default());
            }
            Ok(_) => is_deleted = true,
            // The server of an extension may say otherwise than its documents.
            Err(error) if error.is_method_not_allowed() => {}
            Err(error) => return Err(error),
        }
    }
    if !is_deleted {
        let mut names = Vec::new();
        let note = |object: Value| names.push(object.name().to_owned());
        api.list_pages_accepting(&collection, METADATA, note).await?;
        if names.is_empty() {
            return Ok(Remaining::default());
        }
        // An object that is refused does not keep the others.
        let mut errors = FirstError::new();
        for name in &names {
            let deleted = api.delete(&resource.object(namespace, name), &options).await;
            errors.note(ignore_not_found(deleted));
        }
        errors.into_result()?;
    }
    let mut remaining = Remaining::default();
    // Pods have grace periods.
    let accept = if is_pods(resource) { JSON } else { METADATA };
    api.list_pages_accepting(&collection, accept, |object| remaining.add(&object)).await?;
    Ok(remaining)
}
