//! One look at one object, and what follows from it.

use super::Shared;
use super::graph::{Coordinates, Uid};
use super::reference::{Standing, standing};
use super::{FOREGROUND, ORPHAN};
use crate::api::{RequestError, Resource};
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;

/// Why an object has to be looked at again.
#[derive(Debug, thiserror::Error)]
pub(super) enum CollectError {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The server does not serve the kind (any more, or not yet).
    #[error("the kind {kind} of {api_version} is not served")]
    UnknownKind { api_version: String, kind: String },
    /// A cluster-scoped object names an owner in a namespace.
    #[error("a cluster-scoped object cannot have an owner in a namespace")]
    OwnerInNamespace,
    /// Dependents still have to go, or to let go.
    #[error("{remaining} dependents remain")]
    Waiting { remaining: usize },
}

/// Looks at one object.
pub(super) async fn look_at(shared: &Shared, uid: &Uid) -> Result<(), CollectError> {
    let Some(coordinates) = shared.graph.lock().coordinates(uid).cloned() else { return Ok(()) };
    let Coordinates { api_version, kind, namespace, name } = coordinates;
    let discovered = shared.discovered().await?;
    let resource = discovered.of_kind(&api_version, &kind).ok_or_else(|| {
        CollectError::UnknownKind { api_version: api_version.to_string(), kind: kind.to_string() }
    })?;
    let path = resource.object(&namespace, &name);
    let live = match shared.api.get(&path).await {
        Ok(live) if live.uid() == &**uid => live,
        Ok(_) => return gone(shared, uid),
        Err(error) if error.is_not_found() => return gone(shared, uid),
        Err(error) => return Err(error.into()),
    };
    let object = Looked { shared, uid, resource, path, live };
    if object.live.deletion_timestamp().is_empty() {
        object.hold_to_owners().await
    } else if object.live.finalizers().contains(&ORPHAN) {
        object.orphan_dependents().await
    } else if object.live.finalizers().contains(&FOREGROUND) {
        object.delete_dependents().await
    } else {
        Ok(())
    }
}

fn gone(shared: &Shared, uid: &Uid) -> Result<(), CollectError> {
    let look_at = shared.graph.lock().forget(uid);
    shared.look_at(look_at);
    Ok(())
}

/// An object, as the graph and as the server have it.
struct Looked<'a> {
    shared: &'a Shared,
    uid: &'a Uid,
    resource: &'a Resource,
    path: String,
    live: Value,
}

impl Looked<'_> {
    fn references(&self) -> &[Value] {
        self.live["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn solid_references(&self, standings: &[Standing]) -> Vec<Value> {
        let references = self.references().iter().zip(standings);
        references
            .filter(|(_, standing)| **standing == Standing::Solid)
            .map(|(reference, _)| reference.clone())
            .collect()
    }

    /// Not being deleted: keeps it, takes references from it, or deletes it.
    async fn hold_to_owners(&self) -> Result<(), CollectError> {
        if self.references().is_empty() {
            return Ok(());
        }
        let mut standings = Vec::with_capacity(self.references().len());
        for reference in self.references() {
            match standing(self.shared, &self.live, reference).await {
                // Nothing will ever change about it.
                Err(CollectError::OwnerInNamespace) => return Ok(()),
                other => standings.push(other?),
            }
        }
        let is = |wanted: Standing| standings.contains(&wanted);
        if is(Standing::Solid) {
            return match self.solid_references(&standings) {
                kept if kept.len() == standings.len() => Ok(()),
                kept => self.patch(json!({"ownerReferences": kept})).await,
            };
        }
        let policy = if is(Standing::Waiting) && self.shared.graph.lock().has_dependents(self.uid) {
            self.unblock_cycle().await?;
            "Foreground"
        } else if self.live.finalizers().contains(&ORPHAN) {
            "Orphan"
        } else if self.live.finalizers().contains(&FOREGROUND) {
            "Foreground"
        } else {
            "Background"
        };
        self.delete(policy).await
    }

    /// Objects that own each other and wait for each other would wait for ever: this one stops
    /// blocking.
    async fn unblock_cycle(&self) -> Result<(), CollectError> {
        let blocks =
            self.references().iter().any(|reference| reference["blockOwnerDeletion"] == true);
        if !blocks || !self.shared.graph.lock().has_waiting_dependent(self.uid) {
            return Ok(());
        }
        let mut references = self.references().to_vec();
        for reference in &mut references {
            reference["blockOwnerDeletion"] = false.into();
        }
        let metadata = json!({"uid": &**self.uid, "ownerReferences": references});
        self.shared.api.merge_patch(&self.path, &json!({"metadata": metadata})).await?;
        Ok(())
    }

    async fn delete(&self, policy: &str) -> Result<(), CollectError> {
        // After a patch of its own the version is another one; the uid is what must not be
        // mistaken.
        let mut preconditions = json!({"uid": &**self.uid});
        if policy != "Foreground" {
            preconditions["resourceVersion"] = self.live.resource_version().into();
        }
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy, "preconditions": preconditions});
        match self.shared.api.delete(&self.path, &options).await {
            Err(error) if error.is_not_found() => gone(self.shared, self.uid),
            other => Ok(other.map(drop)?),
        }
    }

    /// Deleted in the foreground: lets go when no dependent is left that blocks. The graph had
    /// every dependent looked at when the deletion began, and asks for another look at this object
    /// as each of them goes.
    async fn delete_dependents(&self) -> Result<(), CollectError> {
        let is_blocked = self.shared.graph.lock().is_blocked(self.uid);
        if is_blocked { Ok(()) } else { self.drop_finalizer(FOREGROUND).await }
    }

    /// Deleted with its dependents to be left alone: takes the reference from each, then lets go.
    async fn orphan_dependents(&self) -> Result<(), CollectError> {
        let mut remaining = 0;
        let dependents = self.shared.graph.lock().dependents(self.uid);
        for dependent in &dependents {
            let coordinates = self.shared.graph.lock().coordinates(dependent).cloned();
            let Some(coordinates) = coordinates else { continue };
            if let Err(error) = self.take_reference_from(&coordinates, dependent).await {
                tracing::debug!(%dependent, error = &error as &dyn std::error::Error, "take the reference from a dependent");
                remaining += 1;
            }
        }
        if remaining > 0 {
            return Err(CollectError::Waiting { remaining });
        }
        self.drop_finalizer(ORPHAN).await
    }

    async fn take_reference_from(
        &self,
        coordinates: &Coordinates,
        dependent: &Uid,
    ) -> Result<(), CollectError> {
        let discovered = self.shared.discovered().await?;
        let Some(resource) = discovered.of_kind(&coordinates.api_version, &coordinates.kind) else {
            return Ok(());
        };
        let path = resource.object(&coordinates.namespace, &coordinates.name);
        let live = match self.shared.api.get(&path).await {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        if live.uid() != &**dependent {
            return Ok(());
        }
        let references =
            live["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let kept: Vec<&Value> =
            references.iter().filter(|reference| reference["uid"] != **self.uid).collect();
        if kept.len() == references.len() {
            return Ok(());
        }
        let metadata = json!({"uid": &**dependent, "resourceVersion": live.resource_version(), "ownerReferences": kept});
        match self.shared.api.merge_patch(&path, &json!({"metadata": metadata})).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    async fn drop_finalizer(&self, finalizer: &str) -> Result<(), CollectError> {
        let finalizers = self.live.finalizers();
        let kept: Vec<&str> = finalizers.into_iter().filter(|found| *found != finalizer).collect();
        self.patch(json!({"finalizers": kept})).await
    }

    /// A patch of metadata that holds only for this very state of the object.
    async fn patch(&self, mut metadata: Value) -> Result<(), CollectError> {
        metadata["uid"] = (&**self.uid).into();
        metadata["resourceVersion"] = self.live.resource_version().into();
        tracing::debug!(resource = %self.resource.resource, name = self.live.name(), %metadata, "patch");
        match self.shared.api.merge_patch(&self.path, &json!({"metadata": metadata})).await {
            Err(error) if error.is_not_found() => gone(self.shared, self.uid),
            other => Ok(other.map(drop)?),
        }
    }
}
