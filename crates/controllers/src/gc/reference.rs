//! Resolves the owner references of a live object.

use super::collect::CollectError;
use super::{FOREGROUND, Shared};
use serde_json::{Value, json};
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt;

/// The state of the owner that a reference names, as read from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnerState {
    /// The owner exists.
    Solid,
    /// The owner is being deleted and waits for its dependents.
    Waiting,
    /// The owner does not exist, or has another uid.
    Dangling,
}

/// A text member of a reference; empty when absent.
fn text<'a>(reference: &'a Value, member: &str) -> &'a str {
    reference[member].as_str().unwrap_or_default()
}

/// Looks up an owner in its dependent's namespace, or in the cluster scope.
pub(super) async fn owner_state(
    shared: &Shared,
    dependent: &Value,
    reference: &Value,
) -> Result<OwnerState, CollectError> {
    let (api_version, kind) = (text(reference, "apiVersion"), text(reference, "kind"));
    let discovered = shared.discovered().await?;
    let Some(resource) = discovered.of_served_kind(api_version, kind) else {
        // Its kind may have been deleted with it. One of other versions says nothing.
        let has_kind = discovered.of_kind(api_version, kind).is_some();
        return match !has_kind && is_gone(shared, dependent, reference) {
            true => Ok(OwnerState::Dangling),
            false => Err(CollectError::UnknownKind {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
            }),
        };
    };
    if resource.namespaced && dependent.namespace().is_empty() {
        // A cluster-scoped object cannot have an owner in a namespace: never resolved, never
        // deleted.
        warn_of_other_namespace(shared, dependent, reference).await;
        return Err(CollectError::OwnerInNamespace);
    }
    let name = text(reference, "name");
    match shared.api.get(&resource.object(dependent.namespace(), name)).await {
        Ok(owner) if owner.uid() != text(reference, "uid") => Ok(OwnerState::Dangling),
        Ok(owner)
            if !owner.deletion_timestamp().is_empty()
                && owner.finalizers().contains(&FOREGROUND) =>
        {
            Ok(OwnerState::Waiting)
        }
        Ok(_) => Ok(OwnerState::Solid),
        Err(error) if shared.means_absent(&error, resource, name) => {
            warn_of_other_namespace(shared, dependent, reference).await;
            Ok(OwnerState::Dangling)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether the owner that a reference names was seen to be deleted. An object has the same identity
/// in all versions of its group.
fn is_gone(shared: &Shared, dependent: &Value, reference: &Value) -> bool {
    let group = |api_version: &str| api_version.rsplit_once('/').unwrap_or_default().0.to_owned();
    shared.graph.lock().gone(text(reference, "uid")).is_some_and(|owner| {
        group(&owner.api_version) == group(text(reference, "apiVersion"))
            && *owner.kind == *text(reference, "kind")
            && *owner.name == *text(reference, "name")
            && (owner.namespace.is_empty() || *owner.namespace == *dependent.namespace())
    })
}

/// Records a warning Event if the owner exists in another namespace. A failure to record it is
/// ignored.
async fn warn_of_other_namespace(shared: &Shared, dependent: &Value, reference: &Value) {
    let uid = text(reference, "uid");
    let elsewhere = shared.graph.lock().observed(uid).is_some_and(|owner| {
        !owner.namespace.is_empty() && &*owner.namespace != dependent.namespace()
    });
    if !elsewhere {
        return;
    }
    let (namespace, component) = (dependent.namespace(), "garbage-collector-controller");
    let message = format!(
        "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {uid}] does not exist in namespace {namespace:?}",
        text(reference, "apiVersion"),
        text(reference, "kind"),
        text(reference, "name"),
    );
    // Events about objects of the cluster are in `default`.
    let place = if namespace.is_empty() { "default" } else { namespace };
    let mut involved = json!({
        "apiVersion": dependent["apiVersion"], "kind": dependent["kind"],
        "name": dependent.name(), "uid": dependent.uid(), "resourceVersion": dependent.resource_version(),
    });
    if !namespace.is_empty() {
        involved["namespace"] = namespace.into();
    }
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        // A prefix may end in a dash, but not in a dot.
        "metadata": {"generateName": format!("{}.owner-", dependent.name()), "namespace": place},
        "involvedObject": involved,
        "type": "Warning", "reason": "OwnerRefInvalidNamespace", "message": message, "count": 1,
        "source": {"component": component}, "reportingComponent": component,
    });
    let path = format!("/api/v1/namespaces/{place}/events");
    if let Err(error) = shared.api.post(&path, &event).await {
        tracing::debug!(error = chain(&error), "record an event");
    }
}
