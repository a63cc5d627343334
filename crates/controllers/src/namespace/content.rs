//! What a namespace holds, and its removal.

use super::condition::Findings;
use crate::api::{Api, Discovered, RequestError, Resource};
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use std::time::Duration;

/// The pods of a namespace that names no period get this one.
const GRACE_DEFAULT: Duration = Duration::from_secs(30);

/// Deletes everything in a namespace; failures are found, not returned.
pub(super) async fn delete_all(
    api: &Api,
    namespace: &str,
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
        let left = delete_resource(api, namespace, resource, findings).await;
        let grace = left.iter().map(|pod| {
            pod["metadata"]["deletionGracePeriodSeconds"]
                .as_u64()
                .or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_u64())
        });
        findings.pods_grace =
            grace.map(|seconds| seconds.map_or(GRACE_DEFAULT, Duration::from_secs)).max();
    }
    if findings.pods_grace.is_some() {
        return;
    }
    for resource in others {
        delete_resource(api, namespace, resource, findings).await;
    }
}

/// Deletes one resource's objects; returns those that remain.
async fn delete_resource(
    api: &Api,
    namespace: &str,
    resource: &Resource,
    findings: &mut Findings,
) -> Vec<Value> {
    match try_delete(api, namespace, resource).await {
        Ok(left) => {
            if !left.is_empty() {
                findings.remaining.insert(resource.dotted(), left.len());
            }
            for finalizer in left.iter().flat_map(ObjectExt::finalizers) {
                *findings.finalizers.entry(finalizer.to_owned()).or_default() += 1;
            }
            left
        }
        // The type went away while we looked: so did its objects.
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) => {
            findings.failures.insert(resource.dotted(), error.to_string());
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
            // The answer lists what matched: an empty one needs no second look.
            Ok(deleted) if deleted["items"].as_array().is_some_and(Vec::is_empty) => {
                return Ok(Vec::new());
            }
            Err(error) if !error.is_method_not_allowed() => return Err(error),
            _ => {}
        }
    }
    let mut left = list(api, &collection).await?;
    if !as_one && !left.is_empty() {
        for object in &left {
            let deleted = api.delete(&resource.object(namespace, object.name()), &options).await;
            deleted
                .map(drop)
                .or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) })?;
        }
        left = list(api, &collection).await?;
    }
    Ok(left)
}

async fn list(api: &Api, collection: &str) -> Result<Vec<Value>, RequestError> {
    let mut objects = Vec::new();
    api.list_pages(collection, |object| objects.push(object)).await?;
    Ok(objects)
}
