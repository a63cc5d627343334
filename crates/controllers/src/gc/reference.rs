//! What an owner reference of a live object leads to.

use super::collect::CollectError;
use super::{FOREGROUND, Shared};
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;

/// What a reference leads to, looked up on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The owner exists.
    Solid,
    /// The owner is being deleted and waits for its dependents.
    Waiting,
    /// There is no such owner: the object is missing, or it has another uid.
    Dangling,
}

/// A text member of a reference; empty when absent.
fn text<'a>(reference: &'a Value, member: &str) -> &'a str {
    reference[member].as_str().unwrap_or_default()
}

/// Looks an owner up in its dependent's namespace (or in the cluster scope).
pub(super) async fn standing(
    shared: &Shared,
    dependent: &Value,
    reference: &Value,
) -> Result<Standing, CollectError> {
    let (api_version, kind) = (text(reference, "apiVersion"), text(reference, "kind"));
    let discovered = shared.discovered().await?;
    let resource = discovered.of_kind(api_version, kind).ok_or_else(|| {
        CollectError::UnknownKind { api_version: api_version.to_owned(), kind: kind.to_owned() }
    })?;
    if resource.namespaced && dependent.namespace().is_empty() {
        // A cluster-scoped object cannot be owned from inside a namespace: never resolved, never
        // deleted.
        return Err(CollectError::OwnerInNamespace);
    }
    match shared.api.get(&resource.object(dependent.namespace(), text(reference, "name"))).await {
        Ok(owner) if owner.uid() != text(reference, "uid") => Ok(Standing::Dangling),
        Ok(owner)
            if !owner.deletion_timestamp().is_empty()
                && owner.finalizers().contains(&FOREGROUND) =>
        {
            Ok(Standing::Waiting)
        }
        Ok(_) => Ok(Standing::Solid),
        Err(error) if error.is_not_found() => {
            warn_of_other_namespace(shared, dependent, reference).await;
            Ok(Standing::Dangling)
        }
        Err(error) => Err(error.into()),
    }
}

/// Says so, by an Event, when the owner exists in another namespace. Failing to say so changes
/// nothing.
async fn warn_of_other_namespace(shared: &Shared, dependent: &Value, reference: &Value) {
    let uid = text(reference, "uid");
    let elsewhere = shared.graph.lock().seen(uid).is_some_and(|owner| {
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
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        // A prefix may end in a dash, but not in a dot.
        "metadata": {"generateName": format!("{}.owner-", dependent.name()), "namespace": namespace},
        "involvedObject": {
            "apiVersion": dependent["apiVersion"], "kind": dependent["kind"], "namespace": namespace,
            "name": dependent.name(), "uid": dependent.uid(), "resourceVersion": dependent.resource_version(),
        },
        "type": "Warning", "reason": "OwnerRefInvalidNamespace", "message": message, "count": 1,
        "source": {"component": component}, "reportingComponent": component,
    });
    let path = format!("/api/v1/namespaces/{namespace}/events");
    if let Err(error) = shared.api.post(&path, &event).await {
        tracing::debug!(error = &error as &dyn std::error::Error, "record an event");
    }
}
